"""hloom from Python, without JAX: run HLO programs, and see what they cost, what memory they take and how they differ.

All functions use the `hloom` command: the one that HLOOM_COMMAND names, or that was installed with this package, or that
is on the PATH. A program is the text of HLO or StableHLO, or what JAX makes of a function: `jax.jit(f).lower(x)`, or that
compiled. What `report`, `memory` and `diff` return shows itself in a notebook.
"""

from __future__ import annotations

import html
import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["Diff", "HloomError", "Memory", "Page", "diff", "memory", "report", "run_hlo"]


class HloomError(RuntimeError):
    """hloom refused a program, or could not run it; the text says why."""


def _find() -> str:
    """The command."""
    given = os.environ.get("HLOOM_COMMAND")
    if given:
        # Commands are run elsewhere.
        return os.path.abspath(given) if os.path.dirname(given) else given
    found = shutil.which("hloom", path=sysconfig.get_path("scripts")) or shutil.which("hloom")
    if found is None:
        raise HloomError("the hloom command is not there: put it on the PATH, or name it with HLOOM_COMMAND")
    return found


def _command(arguments: Sequence[str], folder: str, well: Sequence[int] = (0,)) -> str:
    """Runs the command in a folder, so that pages and errors name its files without the folder."""
    command = _find()
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode not in well:
        raise HloomError(done.stderr.strip() or f"{command} ended with status {done.returncode}")
    return done.stdout


def _text(program: Any) -> str:
    """The text of a program: its own, or what JAX says of it."""
    if isinstance(program, str):
        return program
    if not hasattr(program, "as_text"):
        if hasattr(program, "lower"):
            raise TypeError("lower the function for its arguments first: jax.jit(f).lower(x)")
        raise TypeError(f"a program is text, or what jax.jit(f).lower(x) gives, not {type(program).__name__}")
    # With source lines, where this JAX can tell them; what is compiled has one text only.
    for options in ({"dialect": "hlo", "debug_info": True}, {"dialect": "hlo"}):
        try:
            return program.as_text(**options)
        except TypeError:
            continue
    return program.as_text()


def _written(program: Any, folder: str, name: str = "program") -> str:
    """Writes a program into a folder; the name of its file there."""
    name = f"{name}.hlo"
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(_text(program))
    return name


def _frame(page: str, height: int) -> str:
    """A page inside another: it may run its own script and reaches nothing around it."""
    style = f"width:100%;height:{height}px;box-sizing:border-box;display:block;border:1px solid #8884;border-radius:6px"
    return f'<iframe sandbox="allow-scripts allow-downloads" style="{style}" srcdoc="{html.escape(page)}"></iframe>'


class Page:
    """A page of HTML that needs nothing else. In a notebook it shows itself."""

    def __init__(self, text: str, height: int = 760) -> None:
        self.html = text
        self.height = height

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file, for any browser."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def _repr_html_(self) -> str:
        return _frame(self.html, self.height)

    def __repr__(self) -> str:
        return f"<hloom.Page of {len(self.html)} characters: save(path) writes it>"


class Memory(dict):
    """What memory a program takes, as `hloom memory --json` tells it. In a notebook it shows the memory map."""

    def __init__(self, told: Mapping[str, Any], program: str) -> None:
        super().__init__(told)
        self._program = program

    def page(self) -> Page:
        """The memory map over the schedule."""
        with tempfile.TemporaryDirectory() as folder:
            return Page(_command(["memory", _written(self._program, folder), "--html", "-"], folder))

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()


class Diff(dict):
    """What differs in two programs, as `hloom diff --json` tells it. In a notebook it shows both texts of each change."""

    def __init__(self, told: Mapping[str, Any], page: Page) -> None:
        super().__init__(told)
        self.page = page

    def __str__(self) -> str:
        return self["summary"]

    def _repr_html_(self) -> str:
        return self.page._repr_html_()


def run_hlo(text: str, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray] = ()) -> list[np.ndarray]:
    """Runs a program in the text of HLO on one device.

    Args:
      text: the program.
      inputs: the arguments, in order, or by the names that the command gives them: `p0`, `p1`, ….

    Returns:
      The results, in order.

    Raises:
      HloomError: the program is wrong, or the arguments do not fit it.
    """
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["run", _written(text, folder), "--output", os.path.join(folder, "out.npz")]
        if len(inputs):
            given = os.path.join(folder, "in.npz")
            if isinstance(inputs, Mapping):
                np.savez(given, **{name: np.asarray(a) for name, a in inputs.items()})
            else:
                np.savez(given, **{f"p{i}": np.asarray(a) for i, a in enumerate(inputs)})
            arguments += ["--input", given]
        _command(arguments, folder)
        with np.load(os.path.join(folder, "out.npz")) as out:
            return [out[name] for name in out.files]


def memory(program: Any) -> Memory:
    """What memory a program takes, as `hloom memory --json` tells it.

    Args:
      program: the text of the program, or what `jax.jit(f).lower(x)` gives.

    Returns:
      The object that the command prints: the allocations, the peak, and what is live at it.

    Raises:
      HloomError: the program is wrong.
    """
    text = _text(program)
    with tempfile.TemporaryDirectory() as folder:
        return Memory(json.loads(_command(["memory", _written(text, folder), "--json"], folder)), text)


def report(*programs: Any, target: str | None = None) -> Page:
    """The page that `hloom report` writes: cost, memory, timeline, graph and collectives of a program.

    Args:
      programs: one program, or two to compare: the text of each, or what `jax.jit(f).lower(x)` gives.
      target: the machine, as `tpu-v6e`; what the program looks made for, unless given.

    Returns:
      The page.

    Raises:
      HloomError: a program is wrong.
    """
    if not 1 <= len(programs) <= 2:
        raise TypeError("report takes one program, or two to compare")
    with tempfile.TemporaryDirectory() as folder:
        files = [_written(p, folder, name) for p, name in zip(programs, ("program", "other"), strict=False)]
        # A machine is a name, or a file that describes it.
        machine = ["--target", os.path.abspath(target) if os.path.exists(target) else target] if target else []
        return Page(_command(["report", *files, "-o", "-", *machine], folder))


def diff(before: Any, after: Any) -> Diff:
    """What differs in two programs, renaming and reordering set aside.

    Args:
      before: a program: its text, or what `jax.jit(f).lower(x)` gives.
      after: another.

    Returns:
      The object that `hloom diff --json` prints.

    Raises:
      HloomError: a program is wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [_written(before, folder, "before"), _written(after, folder, "after")]
        # Status 1 is the answer that they differ.
        told = json.loads(_command(["diff", *files, "--json"], folder, well=(0, 1)))
        page = os.path.join(folder, "diff.html")
        _command(["diff", *files, "--html", page], folder, well=(0, 1))
        with open(page, encoding="utf-8") as file:
            return Diff(told, Page(file.read(), height=480))

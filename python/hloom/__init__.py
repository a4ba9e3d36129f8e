"""hloom from Python, without JAX: run HLO programs, and see what memory they take.

Both functions use the `hloom` command: the one that HLOOM_COMMAND names, or that was installed with this package, or that
is on the PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["HloomError", "memory", "run_hlo"]


class HloomError(RuntimeError):
    """hloom refused a program, or could not run it; the text says why."""


def _find() -> str:
    """The command."""
    given = os.environ.get("HLOOM_COMMAND")
    if given:
        return given
    found = shutil.which("hloom", path=sysconfig.get_path("scripts")) or shutil.which("hloom")
    if found is None:
        raise HloomError("the hloom command is not there: put it on the PATH, or name it with HLOOM_COMMAND")
    return found


def _command(arguments: Sequence[str]) -> str:
    command = _find()
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HloomError(done.stderr.strip() or f"{command} ended with status {done.returncode}")
    return done.stdout


def _written(text: str, folder: str) -> str:
    path = os.path.join(folder, "program.hlo")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


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
        _command(arguments)
        with np.load(os.path.join(folder, "out.npz")) as out:
            return [out[name] for name in out.files]


def memory(text: str) -> dict[str, Any]:
    """What memory a program in the text of HLO takes, as `hloom memory --json` tells it.

    Args:
      text: the program.

    Returns:
      The object that the command prints: the allocations, the peak, and what is live at it.

    Raises:
      HloomError: the program is wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        return json.loads(_command(["memory", _written(text, folder), "--json"]))

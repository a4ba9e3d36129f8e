#!/usr/bin/env python3
"""Runs three programs for 4, 4 and 8 devices under mpirun, a rank for each, and compares the results with numpy.

    tools/mpi_numpy.py [--hloom PATH] [--mpirun CMD] [--tensor-parallel FILE] [--fsdp FILE] [--data-parallel FILE]

The programs are a gated MLP cut over the hidden units, one whose weights are gathered as they are needed, and a step of
training with the gradients summed over all devices, as compilers for TPUs and GPUs leave them; sizes are read from the
files. Those that are not named are looked for in ../shared/seeds (000, 001, 002).
"""

from __future__ import annotations

import argparse
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from mpi_corpus import ROOT, environment  # noqa: E402

Arrays = dict[str, np.ndarray]
RNG = np.random.default_rng(0)


def parameters(path: pathlib.Path) -> list[tuple[int, ...]]:
    """The dimensions of the entry's parameters, all of them f32."""
    entry = path.read_text().split("ENTRY", 1)[1]
    found = {int(n): dims for dims, n in re.findall(r"= f32\[([\d,]*)\]\S* parameter\((\d+)\)", entry)}
    return [tuple(int(d) for d in found[n].split(",") if d) for n in sorted(found)]


def draw(shape: tuple[int, ...], fan_in: int = 1) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


def as_bf16(x: np.ndarray) -> np.ndarray:
    """The nearest bf16 numbers, ties to even."""
    bits = x.view(np.uint32).astype(np.uint64)
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)).view(np.float32)


def gated(x: np.ndarray, up: np.ndarray, gate: np.ndarray, down: np.ndarray) -> np.ndarray:
    """silu of the product of both hidden layers, brought back; matrices have a row for each of their results."""
    x = x.astype(np.float64)
    both = (x @ up.T) * (x @ gate.T)
    return (both / (1 + np.exp(-both))) @ down.T


def tensor_parallel(shapes: list[tuple[int, ...]], devices: int) -> tuple[Arrays, Arrays]:
    """Each device has some of the hidden units; the results are summed."""
    _, down, up, tokens, gate = shapes
    x = draw(tokens)
    inputs, total = {"p0": np.float32(1), "p3": x}, 0
    for d in range(devices):
        weights = draw(up, up[1]), draw(gate, gate[1]), draw(down, down[1])
        inputs |= {f"d{d}.p2": weights[0], f"d{d}.p4": weights[1], f"d{d}.p1": weights[2]}
        total = total + gated(x, *weights)
    return inputs, {f"d{d}.o0": total for d in range(devices)}


def fsdp(shapes: list[tuple[int, ...]], devices: int) -> tuple[Arrays, Arrays]:
    """Each device has a part of every matrix and its own tokens; matrices travel as bf16."""
    down, up, tokens, gate = shapes
    parts = [(draw(down, down[1] * devices), draw(up, up[1]), draw(gate, gate[1]), draw(tokens)) for _ in range(devices)]
    whole = [as_bf16(np.concatenate([p[n] for p in parts], axis)) for n, axis in ((0, 1), (1, 0), (2, 0))]
    inputs, expected = {}, {}
    for d, (own_down, own_up, own_gate, x) in enumerate(parts):
        inputs |= {f"d{d}.p0": own_down, f"d{d}.p1": own_up, f"d{d}.p2": x, f"d{d}.p3": own_gate}
        expected[f"d{d}.o0"] = gated(x, whole[1], whole[2], whole[0])
    return inputs, expected


def data_parallel(shapes: list[tuple[int, ...]], devices: int) -> tuple[Arrays, Arrays]:
    """Three layers, each device with its own images; a step down the summed gradients of the mean cross-entropy."""
    *weights, images, labels = shapes
    params = [draw(s, s[0] if len(s) > 1 else 1) for s in weights]
    inputs: Arrays = {f"p{n}": p for n, p in enumerate(params)}
    w1, b1, w2, b2, w3, b3 = (p.astype(np.float64) for p in params)
    sums = [np.zeros(s) for s in weights]
    for d in range(devices):
        x = draw(images)
        y = np.eye(labels[1], dtype=np.float32)[RNG.integers(0, labels[1], labels[0])]
        inputs |= {f"d{d}.p6": x, f"d{d}.p7": y}
        h1 = np.tanh(x @ w1 + b1)
        h2 = np.tanh(h1 @ w2 + b2)
        scores = h2 @ w3 + b3
        softmax = np.exp(scores - scores.max(1, keepdims=True))
        d3 = (softmax / softmax.sum(1, keepdims=True) - y) / labels[0]
        d2 = d3 @ w3.T * (1 - h2 * h2)
        d1 = d2 @ w2.T * (1 - h1 * h1)
        gradient = [x.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ d3, d3.sum(0)]
        sums = [s + g for s, g in zip(sums, gradient)]
    stepped = [p - 0.001 * s for p, s in zip(params, sums)]
    return inputs, {f"d{d}.o{n}": s for d in range(devices) for n, s in enumerate(stepped)}


def agrees(args: argparse.Namespace, path: pathlib.Path, devices: int, made: tuple[Arrays, Arrays]) -> str:
    """What is wrong with the results, if anything."""
    inputs, expected = made
    with tempfile.TemporaryDirectory() as folder:
        given, result = f"{folder}/in.npz", f"{folder}/out.npz"
        np.savez(given, **inputs)
        command = [*shlex.split(args.mpirun), "-n", str(devices), args.hloom, "run", str(path), "--devices", str(devices)]
        command += ["--input", given, "--output", result, "--threads", "1", "--time-limit", str(args.timeout)]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=args.timeout + 60)
        if done.returncode:
            return done.stderr[-600:]
        results = dict(np.load(result))
    if missing := sorted(set(expected) - set(results)):
        return f"there is no {', '.join(missing)}"
    # Sums of some thousand products of f32 numbers, which are added in another order than here.
    error = lambda name: np.abs(results[name] - expected[name]).max() / np.abs(expected[name]).max()  # noqa: E731
    worst = max(map(error, expected))
    return "" if worst < args.tolerance else f"the results differ by {worst:.2e} of the largest"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hloom", default=str(ROOT / "target/release/hloom"))
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--timeout", type=int, default=600)
    parser.add_argument("--tolerance", type=float, default=1e-5)
    programs = {"tensor_parallel": ("000", 4, tensor_parallel), "fsdp": ("001", 4, fsdp), "data_parallel": ("002", 8, data_parallel)}
    for name, (number, devices, _) in programs.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=pathlib.Path, metavar="FILE", help=f"for {devices} devices; else seed {number}")
    args = parser.parse_args()
    bad = 0
    for name, (number, devices, make) in programs.items():
        found = getattr(args, name) or next(iter(sorted(ROOT.parent.glob(f"shared/seeds/{number}_*.txt"))), None)
        if found is None:
            print(f"{name}: skipped: there is no such program here")
            continue
        why = agrees(args, found, devices, make(parameters(found), devices))
        bad += bool(why)
        print(f"{name} on {devices} ranks: {why or 'agrees with numpy'}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compares hloom on several ranks with plain MPI, with virtual devices in one process, and with XLA:CPU's processes.

    tools/mpi_bench.py [--hloom PATH] [--mpirun CMD] [--ranks 4] [--only allreduce,chain,mlp,overlap,jax] [--json OUT]

- allreduce: a step of one all-reduce of 1 KB to 256 MB, against MPI_Allreduce of the same bytes (a C program, compiled
  here by mpicc); a step is a whole run of a program
- chain: each of 64 all-reduces in one program, one after another, against 64 calls of MPI_Allreduce in a row
- mlp: a program for as many devices as ranks (--mlp FILE), against the same on virtual devices of one process
- overlap: how much of the time of gathers is hidden (--fsdp FILE), from --trace, against MPI_Allgather of the same bytes
- jax: a data-parallel training step on processes of the plugin and of XLA:CPU (gloo)

Ranks should be bound, each to cores / ranks processors: for Open MPI
`--mpirun "mpirun --map-by slot:PE={share} --bind-to core"`, where {share} becomes that number. Where there is no compiler
for MPI, `--plain` names the C program compiled elsewhere (`--write-plain FILE.c` writes it).
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from mpi_corpus import ROOT, environment  # noqa: E402

PLAIN = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
  int rank, size, gather = !strcmp(argv[1], "gather");
  long bytes = atol(argv[2]);
  int runs = atoi(argv[3]), in_a_row = argc > 4 ? atoi(argv[4]) : 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  float *in = calloc(bytes, 1), *out = calloc(gather ? bytes * size : bytes, 1);
  double best = 1e9;
  for (int n = 0; n <= runs; n++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (int k = 0; k < in_a_row; k++)
      if (gather) MPI_Allgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, MPI_COMM_WORLD);
      else MPI_Allreduce(in, out, bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double took = (MPI_Wtime() - begun) / in_a_row;
    if (n && took < best) best = took;
  }
  if (!rank) printf("%.6f\n", best * 1e3);
  MPI_Finalize();
}
"""

ALL_REDUCE = """HloModule all_reduce, replica_count={ranks}
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
ENTRY e {{
  x = f32[{size}] parameter(0)
  ROOT sum = f32[{size}] all-reduce(x), to_apply=add, replica_groups={{}}
}}
"""

CHAIN = """HloModule chain, replica_count={ranks}
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
ENTRY e {{
  x0 = f32[{size}] parameter(0)
{chain}
  ROOT end = f32[{size}] negate(x{length})
}}
"""
CHAIN_LENGTH = 64

JAX_STEP = r"""
import os, sys, time
import jax, numpy as np
port, count, platform = sys.argv[1], int(sys.argv[2]), sys.argv[4]
rank = int(os.environ["OMPI_COMM_WORLD_RANK"] if sys.argv[3] == "launched" else sys.argv[3])
if platform == "cpu":
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{port}", count, rank)
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("batch",))
split, whole = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())
rng = np.random.default_rng(0)
sizes = [784, 1024, 1024, 10]
params = [jax.make_array_from_process_local_data(whole, rng.normal(size=s).astype(np.float32) * 0.03) for s in zip(sizes, sizes[1:])]
rows = 128
images = jax.make_array_from_process_local_data(split, rng.normal(size=(rows, 784)).astype(np.float32))
labels = jax.make_array_from_process_local_data(split, rng.integers(0, 10, rows))
def loss(params, images, labels):
    x = images
    for w in params[:-1]:
        x = jax.nn.relu(x @ w)
    return -jnp.take_along_axis(jax.nn.log_softmax(x @ params[-1]), labels[:, None], 1).mean()
@jax.jit
def step(params, images, labels):
    gradient = jax.grad(loss)(params, images, labels)
    return [p - 0.1 * g for p, g in zip(params, gradient)]
best = 1e9
for n in range(23):
    begun = time.perf_counter()
    params = jax.block_until_ready(step(params, images, labels))
    if n > 2:
        best = min(best, time.perf_counter() - begun)
if rank == 0:
    print(best * 1e3)
"""


class Bench:
    def __init__(self, args: argparse.Namespace, folder: pathlib.Path) -> None:
        self.args, self.folder, self.results = args, folder, {}

    def launch(self, command: list[str], ranks: int) -> str:
        launcher = self.launcher(ranks) if ranks > 1 else []
        done = subprocess.run([*launcher, *command], env=environment(), capture_output=True, text=True, timeout=900)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stderr[-400:]}")
        return done.stdout

    def launcher(self, ranks: int) -> list[str]:
        share = max(1, len(os.sched_getaffinity(0)) // ranks)
        return [*shlex.split(self.args.mpirun.replace("{share}", str(share))), "-n", str(ranks)]

    def hloom(self, file: pathlib.Path, ranks: int, runs: int, *options: str) -> float:
        if ranks > 1 and self.args.threads:
            options = (*options, "--threads", str(self.args.threads))
        text = self.launch([self.args.hloom, "run", str(file), "--seed", "1", "--bench", str(runs), "--json", *options], ranks)
        return json.loads(text.strip().splitlines()[-1])["run_ms"]

    def plain(self, kind: str, size: int, runs: int, in_a_row: int = 1) -> float:
        program = pathlib.Path(self.args.plain or self.folder / "plain")
        if not program.exists():
            (self.folder / "plain.c").write_text(PLAIN)
            subprocess.run([self.args.mpicc, "-O2", str(self.folder / "plain.c"), "-o", str(program)], check=True)
        return float(self.launch([str(program), kind, str(size), str(runs), str(in_a_row)], self.args.ranks).split()[-1])

    def allreduce(self) -> None:
        for size in [1 << n for n in range(10, 29, 2)]:
            runs = 200 if size <= 1 << 16 else 20 if size <= 1 << 24 else 5
            file = self.folder / "all_reduce.hlo"
            file.write_text(ALL_REDUCE.format(ranks=self.args.ranks, size=size // 4))
            pairs = [(self.plain("reduce", size, runs), self.hloom(file, self.args.ranks, runs)) for _ in range(self.args.repeat)]
            mpi, ours = (min(column) for column in zip(*pairs))
            self.note(f"all-reduce {size >> 10} KB", mpi, ours, "plain MPI")

    def chain(self) -> None:
        for size in [1 << n for n in range(10, 21, 2)]:
            link = "  x{next} = f32[{size}] all-reduce(x{last}), to_apply=add, replica_groups={{}}, channel_id={next}"
            links = [link.format(next=n + 1, last=n, size=size // 4) for n in range(CHAIN_LENGTH)]
            file = self.folder / "chain.hlo"
            file.write_text(CHAIN.format(ranks=self.args.ranks, size=size // 4, chain="\n".join(links), length=CHAIN_LENGTH))
            pairs = [
                (self.plain("reduce", size, 20, CHAIN_LENGTH), self.hloom(file, self.args.ranks, 20) / CHAIN_LENGTH)
                for _ in range(self.args.repeat)
            ]
            mpi, ours = (min(column) for column in zip(*pairs))
            self.note(f"all-reduce {size >> 10} KB in a chain", mpi, ours, "plain MPI")

    def mlp(self) -> None:
        file = pathlib.Path(self.args.mlp or ROOT / "examples/tensor_parallel_mlp.hlo")
        pairs = [(self.hloom(file, 1, 10), self.hloom(file, self.args.ranks, 10)) for _ in range(self.args.repeat)]
        alone, ours = (min(column) for column in zip(*pairs))
        self.note(file.name, alone, ours, "virtual devices")

    def overlap(self) -> None:
        file = pathlib.Path(self.args.fsdp or ROOT / "examples/fsdp_mlp.hlo")
        trace = self.folder / "trace.json"
        threads = ["--threads", str(self.args.threads)] if self.args.threads else []
        self.launch([self.args.hloom, "run", str(file), "--seed", "1", "--trace", str(trace), "--bench", "10", *threads], self.args.ranks)
        events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X" and e["pid"] == 0]
        gathers = [e for e in events if e["args"]["opcode"].startswith("all-gather")]
        exposed = sum(e["dur"] for e in gathers) / 1e3
        total = 0.0
        for shape in {e["args"]["shape"]: None for e in gathers}:
            count = sum(1 for e in gathers if e["args"]["shape"] == shape and e["cat"] == "collective")
            total += count * self.plain("gather", shape_bytes(shape) // self.args.ranks, 10)
        hidden = 1 - exposed / total if total else 0.0
        print(f"gathers: {total:.3f} ms by plain MPI, {exposed:.3f} ms exposed: {hidden:.0%} hidden")
        self.results["overlap"] = {"gather_ms": total, "exposed_ms": exposed, "hidden": hidden}

    def jax(self) -> None:
        script = self.folder / "step.py"
        script.write_text(JAX_STEP)
        for count in (2, 4):
            times = {name: min(self.processes(script, count, name) for _ in range(self.args.repeat)) for name in ("cpu", "hloom")}
            self.note(f"training step on {count} processes", times["cpu"], times["hloom"], "XLA:CPU, gloo")

    def processes(self, script: pathlib.Path, count: int, platform: str) -> float:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        env = {**environment(), "JAX_PLATFORMS": "cpu" if platform == "cpu" else "hloom,cpu"}
        command = lambda rank: [self.args.python, str(script), str(port), str(count), rank, platform]  # noqa: E731
        if platform != "cpu" and self.args.jax_launched:
            launched = [*self.launcher(count), *command("launched")]
            done = subprocess.run(launched, env=env, capture_output=True, text=True, timeout=600)
            if done.returncode:
                raise RuntimeError(f"{platform} failed: {done.stderr[-600:]}")
            return float(done.stdout.split()[-1])
        cores, share = sorted(os.sched_getaffinity(0)), max(1, (os.cpu_count() or 1) // count)
        bind = lambda rank: (lambda: os.sched_setaffinity(0, cores[rank * share : (rank + 1) * share] or cores))  # noqa: E731
        started = [subprocess.Popen(command(str(r)), env=env, stdout=subprocess.PIPE, text=True, preexec_fn=bind(r)) for r in range(count)]
        texts = [p.communicate(timeout=600)[0] for p in started]
        return float(texts[0].split()[-1])

    def note(self, what: str, theirs: float, ours: float, who: str) -> None:
        print(f"{what}: {ours:.4f} ms, {who} {theirs:.4f} ms: {ours / theirs:.2f} times", flush=True)
        self.results[what] = {"hloom_ms": ours, "other_ms": theirs, "other": who}
        self.save()

    def save(self) -> None:
        if self.args.json:
            self.args.json.write_text(json.dumps(self.results, indent=1))


def shape_bytes(shape: str) -> int:
    widths = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8, "s32": 4, "u32": 4, "s8": 1, "pred": 1}
    kind, _, rest = shape.partition("[")
    size = widths.get(kind, 4)
    for n in filter(None, rest.partition("]")[0].split(",")):
        size *= int(n)
    return size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hloom", default=str(ROOT / "target/release/hloom"))
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--mpicc", default=shutil.which("mpicc.openmpi") or "mpicc")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--only", default="allreduce,chain,mlp,overlap,jax")
    parser.add_argument("--mlp")
    parser.add_argument("--fsdp")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--repeat", type=int, default=3, help="each side is measured so often, in turn")
    parser.add_argument("--threads", type=int, help="compute threads of each rank")
    parser.add_argument("--plain", help="the C program, compiled")
    parser.add_argument("--write-plain", type=pathlib.Path, metavar="FILE.c", help="write the C program, and end")
    parser.add_argument("--jax-launched", action="store_true", help="start hloom's JAX processes by the launcher")
    args = parser.parse_args()
    if args.write_plain:
        args.write_plain.write_text(PLAIN)
        return 0
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(args, pathlib.Path(name))
        for what in args.only.split(","):
            try:
                getattr(bench, what)()
            except (RuntimeError, OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
                print(f"{what}: not measured: {error}", flush=True)
        bench.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())

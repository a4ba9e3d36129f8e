#!/usr/bin/env python3
"""Kills, stops and misleads ranks of a job at random, and checks that every other rank ends with an error that names them.

    tools/mpi_faults.py [--hloom PATH] [--mpirun CMD] [--count 200] [--seed 0] [--time-limit 5] [--slack 20] [--ended-by-launcher]

A fault is one of: a rank is killed, stopped, given another program, given inputs of another shape, or never starts; the
ranks sum over and over what goes in one message with its head, in several of these, or in messages of its own. All
must end within the time limit and some seconds more, without a result, and every rank that can still say something with
an error of exit status 4 (1 where programs differ) that names the rank that is killed, stopped, missing or disagrees. A rank
that is killed or stopped while all run leaves the others in a collective, which their errors name with its source line.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from mpi_corpus import ROOT, environment  # noqa: E402

PROGRAM = """HloModule steps, replica_count={ranks}
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
body {{
  state = (s32[], f32[{size}]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[{size}] get-tuple-element(state), index=1
  sum = f32[{size}] all-reduce(x), to_apply=add, replica_groups={{}}, metadata={{source_file="train.py" source_line=12}}
  few = f32[] constant({scale})
  scale = f32[{size}] broadcast(few), dimensions={{}}
  mean = f32[{size}] multiply(sum, scale)
  ROOT out = (s32[], f32[{size}]) tuple(next, mean)
}}
condition {{
  state = (s32[], f32[{size}]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  last = s32[] constant({steps})
  ROOT more = pred[] compare(i, last), direction=LT
}}
ENTRY e {{
  x = f32[{size}] parameter(0)
  zero = s32[] constant(0)
  begin = (s32[], f32[{size}]) tuple(zero, x)
  end = (s32[], f32[{size}]) while(begin), condition=condition, body=body
  ROOT r = f32[{size}] get-tuple-element(end), index=1
}}
"""

# Elements of what is summed: in one message with its head, in several of these, in messages of its own.
SIZES = (256, 2048, 16384)

# Each rank starts through this: it notes its process and takes what is meant for it.
WRAPPER = """#!/bin/sh
rank="${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}"
if [ "$FAULT" = missing ] && [ "$rank" = "$VICTIM" ]; then exec sleep 1000; fi
program="$FOLDER/program.hlo"
if [ "$FAULT" = program ] && [ "$rank" = "$VICTIM" ]; then program="$FOLDER/other.hlo"; fi
if [ "$FAULT" = shape ] && [ "$rank" = "$VICTIM" ]; then program="$FOLDER/shape.hlo"; fi
echo $$ > "$FOLDER/pid.$rank"
"$HLOOM" run "$program" --seed 1 --threads 1 --time-limit "$LIMIT" --output "$FOLDER/out.npz" 2> "$FOLDER/err.$rank" &
child=$!
echo $child > "$FOLDER/pid.$rank"
trap 'kill -TERM $child 2>/dev/null' TERM
wait $child; code=$?
while kill -0 $child 2>/dev/null; do wait $child; code=$?; done
echo $code > "$FOLDER/code.$rank"
exit $code
"""


def one(args: argparse.Namespace, folder: pathlib.Path, fault: str, ranks: int, victim: int, delay: float, size: int) -> str:
    """Lets one fault happen; what is wrong with how it ended, if anything."""
    for old in folder.glob("*.*"):
        old.unlink()
    text = lambda size, steps: PROGRAM.format(ranks=ranks, size=size, steps=steps, scale=1 / ranks)  # noqa: E731
    (folder / "program.hlo").write_text(text(size, 100_000_000))
    (folder / "other.hlo").write_text(text(size, 100_000_001))
    (folder / "shape.hlo").write_text(text(size + 4, 100_000_000))
    wrapper = folder / "wrapper.sh"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)
    # Open MPI ends all ranks a second after it has told them so, which on a busy machine is before they have noted how they
    # ended; it is given longer, and so is nobody excused.
    patience = {"OMPI_MCA_odls_base_sigkill_timeout": str(args.patience)}
    env = {**environment(), **patience, "FOLDER": str(folder), "HLOOM": args.hloom, "LIMIT": str(args.time_limit), "FAULT": fault, "VICTIM": str(victim)}
    begun = time.monotonic()
    job = subprocess.Popen(
        [*shlex.split(args.mpirun), "-n", str(ranks), str(wrapper)],
        env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )
    stopped = None
    if fault in ("kill", "stop"):
        # A rank that is ended before it has begun can say nothing.
        pid_file = folder / f"pid.{victim}"
        while not all((folder / f"pid.{r}").exists() for r in range(ranks)) and time.monotonic() - begun < 60:
            time.sleep(0.05)
        time.sleep(0.5 + delay)
        pid = int(pid_file.read_text() or 0)
        os.kill(pid, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
        stopped = pid if fault == "stop" else None
    from_fault = time.monotonic()
    # A launcher waits for what is stopped or asleep: what counts is when the other ranks have ended.
    others = [r for r in range(ranks) if r != victim or fault in ("program", "shape")]
    limit = args.time_limit + args.slack
    while not all((folder / f"code.{r}").exists() for r in others) and time.monotonic() - from_fault < limit:
        if job.poll() is not None:
            time.sleep(0.2)
            break
        time.sleep(0.05)
    took = time.monotonic() - from_fault
    if stopped:
        try:
            os.kill(stopped, signal.SIGKILL)
        except ProcessLookupError:
            pass
    if job.poll() is None and fault in ("kill", "program", "shape"):
        try:
            job.wait(timeout=args.slack + args.patience)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            return "the launcher did not end"
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    if (folder / "out.npz").exists():
        return "there is a result"
    for rank in range(ranks):
        error = folder / f"err.{rank}"
        said = error.read_text() if error.exists() else ""
        if rank == victim and fault in ("kill", "stop", "missing"):
            continue
        code = folder / f"code.{rank}"
        status = (code.read_text().strip() if code.exists() else "") or "none"
        expected = ("4", "1") if fault in ("program", "shape") else ("4",)
        # MPICH's launcher ends as soon as one rank has, and with it those that have said what is wrong and are ending.
        if args.ended_by_launcher and job.poll() is not None:
            expected = (*expected, "none")
        if status not in expected or "error" not in said:
            return f"rank {rank} ended with {status} and said: {said[-300:]!r}"
        if rank != victim and f"rank {victim}" not in said:
            return f"rank {rank} does not name rank {victim}: {said[-300:]!r}"
        if fault in ("kill", "stop") and ("sum" not in said or "train.py:12" not in said):
            return f"rank {rank} does not name the collective: {said[-600:]!r}"
    if took > limit:
        return f"it took {took:.0f} s"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hloom", default=str(ROOT / "target/release/hloom"))
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=int, default=5)
    parser.add_argument("--slack", type=int, default=20, help="seconds beyond the limit, for processes to start and end")
    parser.add_argument("--patience", type=int, default=6, help="seconds that the launcher gives ranks to end")
    parser.add_argument("--ended-by-launcher", action="store_true", help="judge ranks whose status is not noted by what they say: for MPICH, with -disable-auto-cleanup")
    parser.add_argument("--ranks", type=int, nargs=2, default=(2, 4), metavar=("FEWEST", "MOST"))
    args = parser.parse_args()
    rng = random.Random(args.seed)
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        for n in range(args.count):
            fault = rng.choice(["kill", "stop", "program", "shape", "missing"])
            ranks = rng.randint(*args.ranks)
            victim, delay, size = rng.randrange(ranks), rng.uniform(0, 3), rng.choice(SIZES)
            why = one(args, pathlib.Path(name), fault, ranks, victim, delay, size)
            if why:
                bad += 1
            print(f"{n}: {fault} rank {victim} of {ranks} after {delay:.1f} s, sums of {4 * size} bytes: {why or 'well'}", flush=True)
    print(f"{args.count - bad} of {args.count} ended as they should")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

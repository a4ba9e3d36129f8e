#!/usr/bin/env python3
"""Runs programs for several devices under mpirun and in one process, and compares the results bit for bit.

    tools/mpi_corpus.py [--hloom PATH] [--mpirun CMD] [--engine cpu|eval] [--per-rank N] FOLDER_OR_FILE...

A file NAME.dN.hlo runs on N devices, with NAME.dN.in.npz for input where that is there and made-up input where it is not;
other .hlo files run on as many as they say. Files for one device are left out.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def environment() -> dict[str, str]:
    """What lets Open MPI run anywhere: as root, and with more ranks than processors."""
    return {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_btl_base_warn_component_unused": "0",
    }


def devices_of(path: pathlib.Path) -> int:
    if found := re.search(r"\.d(\d+)\.hlo$", path.name):
        return int(found.group(1))
    head = path.read_text(errors="replace")[:4000]
    counts = [int(n) for n in re.findall(r"(?:replica_count|num_partitions)=(\d+)", head)]
    return max(1, *(counts or [1])) if len(counts) < 2 else counts[0] * counts[1]


def run(command: list[str], timeout: int) -> tuple[int, str]:
    try:
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=timeout)
        return done.returncode, done.stderr
    except subprocess.TimeoutExpired:
        return -1, "timed out"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hloom", default=str(ROOT / "target/release/hloom"))
    parser.add_argument("--mpirun", default="mpirun", help="the launcher, with options of its own")
    parser.add_argument("--engine", default="cpu")
    parser.add_argument("--per-rank", type=int, default=1, help="devices that a rank owns")
    parser.add_argument("--timeout", type=int, default=300)
    parser.add_argument("paths", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    files = [f for p in args.paths for f in (sorted(p.glob("*.hlo")) if p.is_dir() else [p])]
    same = different = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        alone, together = f"{folder}/alone.npz", f"{folder}/together.npz"
        for file in files:
            devices = devices_of(file)
            ranks = devices // args.per_rank
            if ranks < 2 or devices % args.per_rank:
                continue
            given = file.with_suffix(".in.npz") if not file.name.endswith(".hlo") else pathlib.Path(str(file)[:-4] + ".in.npz")
            source = ["--input", str(given)] if given.exists() else ["--seed", "1"]
            common = [args.hloom, "run", str(file), "--engine", args.engine, "--devices", str(devices), "--threads", "1"]
            common += source + ["--time-limit", "120"]
            for path in (alone, together):
                pathlib.Path(path).unlink(missing_ok=True)
            code, error = run([*common, "--output", alone], args.timeout)
            if code:
                refused += 1
                continue
            code, error = run([*shlex.split(args.mpirun), "-n", str(ranks), *common, "--output", together], args.timeout)
            if code == 0 and pathlib.Path(alone).read_bytes() == pathlib.Path(together).read_bytes():
                same += 1
            else:
                different += 1
                print(f"{file.name} on {ranks} ranks: exit {code}\n{error[-800:]}", flush=True)
    print(f"{same} the same, {different} different, {refused} that do not run in one process either")
    return 1 if different or not same else 0


if __name__ == "__main__":
    sys.exit(main())

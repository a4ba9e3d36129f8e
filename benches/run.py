#!/usr/bin/env python3
"""Times the programs beside it, and compares builds of hloom.

    benches/run.py target/release/hloom                      a table of one build
    benches/run.py before/hloom after/hloom --rounds 5       two builds, taken alternately, and their ratios

For each program the table has the time to compile and the fastest run (milliseconds, as `hloom run --bench` says them),
and the processor time of the whole process (seconds), which says most on a machine that does other things, too. Of
several rounds the least of each is taken. A ratio above 1 means that the second build is faster.
"""

import argparse
import json
import math
import pathlib
import resource
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parent / "programs"


def measure(build: str, program: pathlib.Path, runs: int) -> dict[str, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    command = [build, "run", str(program), "--seed", "1", "--bench", str(runs), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} fails:\n{done.stderr}")
    told = json.loads(done.stdout)
    user = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return {"compile": told["compile_ms"], "run": told["run_ms"], "cpu": user}


def least(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {key: min(value, other.get(key, math.inf)) for key, value in one.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", help="one or two builds of the command")
    parser.add_argument("--rounds", type=int, default=3, help="how often each program is measured with each build")
    parser.add_argument("--runs", type=int, default=20, help="runs of the program in each measurement")
    parser.add_argument("--only", default="", help="programs whose name contains this")
    args = parser.parse_args()
    if len(args.builds) > 2:
        parser.error("at most two builds are compared")
    programs = sorted(p for p in FOLDER.glob("*.hlo") if args.only in p.stem)
    titles = [f"{what} {n + 1}" if len(args.builds) > 1 else what for n in range(len(args.builds)) for what in ("compile ms", "run ms", "cpu s")]
    ratios = ["compile", "run", "cpu"] if len(args.builds) == 2 else []
    print("| program | " + " | ".join(titles + [f"{r} ×" for r in ratios]) + " |")
    print("|---|" + "---:|" * (len(titles) + len(ratios)))
    products = {ratio: [] for ratio in ratios}
    for program in programs:
        best: list[dict[str, float]] = [{} for _ in args.builds]
        for _ in range(args.rounds):
            for n, build in enumerate(args.builds):
                best[n] = least(measure(build, program, args.runs), best[n])
        cells = [f"{b['compile']:.1f} | {b['run']:.3f} | {b['cpu']:.2f}" for b in best]
        for ratio in ratios:
            quotient = best[0][ratio] / max(best[1][ratio], 1e-9)
            products[ratio].append(max(quotient, 1e-9))
            cells.append(f"{quotient:.2f}")
        print(f"| `{program.stem}` | " + " | ".join(cells) + " |", flush=True)
    for ratio, all_of_it in products.items():
        mean = math.exp(sum(map(math.log, all_of_it)) / max(len(all_of_it), 1))
        print(f"\ngeometric mean of {ratio}: {mean:.3f}")


if __name__ == "__main__":
    main()

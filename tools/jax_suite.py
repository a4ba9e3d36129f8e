#!/usr/bin/env python3
"""Runs JAX's own tests on hloom and on JAX's own CPU, file by file, and makes a table of the two.

    jax_suite.py --tests jax-0.10.2/tests --library target/release/libhloom_pjrt.so --out RESULTS [FILE...]

The tests are those of JAX's repository at the tag of the release (`jax-v0.10.2`), unpacked outside of the project: the
source distribution has none. FILE is a name as `lax_test`; without one, all files but those of Pallas, Mosaic, several processes
and other machines. A file is run in a process of its own with limits of time and memory. Every result is written down at
once: a run that was stopped goes on where it was, and a test that ends the process counts as `crashed`, and the rest of
its file is run. RESULTS has a file of lines for each test file and engine, the outputs, and `table.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

LEFT_OUT = ("pallas", "mosaic", "mgpu", "multiprocess", "tpu", "gpu", "cuda", "triton", "pytorch_interop", "rocm")
MAX_STARTS = 40


# As a plugin of pytest: notes what becomes of each test, and passes over those that are noted.


def _notes():
    return os.environ.get("JAX_SUITE_NOTES")


def _note(test, outcome, **more):
    with open(_notes(), "a") as file:
        file.write(json.dumps({"test": test, "outcome": outcome, **more}) + "\n")


def outcomes(path):
    """What became of each test; one that began and did not end has ended the process."""
    found = {}
    if os.path.exists(path):
        with open(path) as file:
            for line in file:
                try:
                    entry = json.loads(line)
                except ValueError:  # The process was ended while it wrote.
                    continue
                found[entry["test"]] = entry["outcome"]
    found = {test: "crashed" if outcome == "began" else outcome for test, outcome in found.items()}
    return {test: outcome for test, outcome in found.items() if outcome != "left"}


def leave(path, known):
    """Notes that the test at which the time was over is to be run again, unless it had the time for itself."""
    new = {test: outcome for test, outcome in outcomes(path).items() if test not in known}
    if len(new) > 1:
        with open(path, "a") as file:
            for test in (test for test, outcome in new.items() if outcome == "crashed"):
                file.write(json.dumps({"test": test, "outcome": "left"}) + "\n")


def pytest_collection_modifyitems(config, items):
    if not _notes():
        return
    done = outcomes(_notes())
    left = [item for item in items if item.nodeid not in done]
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = left


def pytest_runtest_logstart(nodeid, location):
    if _notes():
        _note(nodeid, "began")


_failed: set[str] = set()
_skipped: set[str] = set()


def pytest_runtest_logreport(report):
    if not _notes():
        return
    if report.failed:
        _failed.add(report.nodeid)
    if report.skipped:
        _skipped.add(report.nodeid)
    if report.when == "teardown":
        test = report.nodeid
        _note(test, "failed" if test in _failed else "skipped" if test in _skipped else "passed")


# As a program.


def environment(options, engine, notes):
    variables = dict(os.environ)
    variables.update(
        JAX_SUITE_NOTES=str(notes),
        JAX_SKIP_SLOW_TESTS="1",
        JAX_NUM_GENERATED_CASES=str(options.cases),
        JAX_ENABLE_CHECKS="0",
    )
    here = pathlib.Path(__file__).resolve().parent
    paths = [str(here)]
    if engine == "hloom":
        variables.update(
            HLOOM_LIBRARY=str(pathlib.Path(options.library).resolve()),
            HLOOM_PLATFORM_NAME="cpu",
            HLOOM_NUM_DEVICES=str(options.devices),
            JAX_PLATFORMS="hloom,cpu",
        )
        paths.append(str(here.parent / "python"))
    else:
        variables.update(JAX_PLATFORMS="cpu", JAX_NUM_CPU_DEVICES=str(options.devices))
    variables["PYTHONPATH"] = os.pathsep.join([*paths, variables.get("PYTHONPATH", "")])
    return variables


def run_file(options, name, engine):
    """Runs a file to its end, again after each crash; the seconds of processor time that it took."""
    notes = options.out / f"{name}.{engine}.jsonl"
    finished = options.out / f"{name}.{engine}.seconds"
    if finished.exists():
        return float(finished.read_text())
    tests = options.tests.resolve()

    def limits():
        resource.setrlimit(resource.RLIMIT_AS, (options.memory << 30, options.memory << 30))

    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "jax_suite", "-p", "no:cacheprovider", f"{tests.name}/{name}.py"]
    with open(options.out / f"{name}.{engine}.log", "a") as log:
        for _ in range(MAX_STARTS):
            known = outcomes(notes)
            try:
                ended = subprocess.run(
                    command,
                    cwd=tests.parent,
                    env=environment(options, engine, notes),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=options.time_limit,
                    preexec_fn=limits,
                ).returncode
            except subprocess.TimeoutExpired:
                ended = -1
                leave(notes, known)
            # 0 all passed, 1 some failed, 5 none was left.
            if ended in (0, 1, 5) or len(outcomes(notes)) == len(known):
                break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime - begun.ru_utime - begun.ru_stime
    finished.write_text(f"{seconds:.1f}")
    return seconds


def table(options, names):
    """The table, and what passes on JAX's own CPU and not on hloom."""
    lines = [
        "| file | of those that pass on JAX's own CPU | pass | fail | crash | hloom | JAX's own CPU |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    wrong, all_passed, all_theirs = [], 0, 0
    for name in names:
        finished = [options.out / f"{name}.{engine}.seconds" for engine in ("hloom", "xla")]
        if not all(f.exists() for f in finished):
            continue
        ours, theirs = (outcomes(options.out / f"{name}.{engine}.jsonl") for engine in ("hloom", "xla"))
        passing = [test for test, outcome in theirs.items() if outcome == "passed"]
        count = {"passed": 0, "failed": 0, "crashed": 0}
        for test in passing:
            outcome = ours.get(test, "failed")
            count["passed" if outcome == "skipped" else outcome] += 1
            if outcome in ("failed", "crashed"):
                wrong.append(f"{test}: {outcome}")
        all_passed, all_theirs = all_passed + count["passed"], all_theirs + len(passing)
        seconds = [float(f.read_text()) for f in finished]
        lines.append(
            f"| `{name}` | {len(passing)} | {count['passed']} | {count['failed']} | {count['crashed']} "
            f"| {seconds[0]:.0f} s | {seconds[1]:.0f} s |"
        )
    if all_theirs:
        lines.append(f"\n{all_passed} of {all_theirs}: {100 * all_passed / all_theirs:.2f} %.")
    return "\n".join(lines), wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=pathlib.Path, required=True)
    parser.add_argument("--library", default="target/release/libhloom_pjrt.so")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--cases", type=int, default=2)
    parser.add_argument("--time-limit", type=int, default=3600, help="seconds for each start of a file")
    parser.add_argument("--memory", type=int, default=64, help="GiB of addresses for a process")
    parser.add_argument("--engines", default="hloom,xla")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    names = [name.removesuffix(".py") for name in options.files]
    if not names:
        found = sorted(path.stem for path in options.tests.glob("*_test.py"))
        names = [name for name in found if not any(word in name for word in LEFT_OUT)]
    for name in names:
        for engine in options.engines.split(","):
            begun = time.monotonic()
            seconds = run_file(options, name, engine)
            kinds = list(outcomes(options.out / f"{name}.{engine}.jsonl").values())
            counts = ", ".join(f"{kinds.count(k)} {k}" for k in ("passed", "failed", "skipped", "crashed"))
            print(f"{name}, {engine}: {counts}; {seconds:.0f} s ({time.monotonic() - begun:.0f} s)", flush=True)
    text, wrong = table(options, names)
    (options.out / "table.md").write_text(text + "\n")
    (options.out / "wrong.txt").write_text("\n".join(wrong) + "\n")
    print(text)


if __name__ == "__main__":
    main()

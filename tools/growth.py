#!/usr/bin/env python3
"""How the commands' time and memory grow with programs: a table, and an exit status of 1 where it is faster than linear.

    growth.py [--hloom target/release/hloom] [--sizes 10000,100000] [--shapes chain,wide,…] [--commands verify,…]

Programs of several shapes are generated in each size (in instructions; up to a million is ordinary). Each command is run
on each, and its processor time and largest memory are compared from size to size: ten times the program may take
`--factor` times the time, where it takes enough to be measured.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile

SLOW_ENOUGH = 0.2  # seconds


def chain(n):
    """Each instruction needs the one before."""
    yield "HloModule chain\n\nENTRY e {\n  a0 = f32[8] parameter(0)\n"
    for i in range(1, n):
        yield f"  a{i} = f32[8] {'sine' if i % 2 else 'cosine'}(a{i - 1})\n"
    yield f"  ROOT r = f32[8] negate(a{n - 1})\n}}\n"


def wide(n):
    """All that is made goes into one tuple, and half of it is made twice."""
    yield "HloModule wide\n\nENTRY e {\n  x = f32[8] parameter(0)\n"
    for i in range(n):
        yield f"  c{i} = f32[] constant({i // 2})\n  b{i} = f32[8] broadcast(c{i}), dimensions={{}}\n" if i % 3 == 0 else ""
        yield f"  a{i} = f32[8] add(x, b{i - i % 3})\n"
    kinds, names = ", ".join(["f32[8]"] * n), ", ".join(f"a{i}" for i in range(n))
    yield f"  ROOT r = ({kinds}) tuple({names})\n}}\n"


def computations(n):
    """Many small computations, each called once."""
    count = max(n // 5, 1)
    yield "HloModule computations\n\n"
    for i in range(count):
        yield f"f{i} {{\n  x{i} = f32[8] parameter(0)\n  y{i} = f32[8] sine(x{i})\n  ROOT n{i} = f32[8] negate(y{i})\n}}\n\n"
    yield "ENTRY e {\n  a0 = f32[8] parameter(0)\n"
    for i in range(count):
        yield f"  a{i + 1} = f32[8] call(a{i}), to_apply=f{i}\n"
    yield f"  ROOT r = f32[8] negate(a{count})\n}}\n"


def nest(n, depth=200):
    """Loops in loops, with bodies that are long."""
    length = max(n // depth, 1)
    yield "HloModule nest\n\n"
    for d in range(depth):
        yield (
            f"c{d} {{\n  cs{d} = (f32[], f32[8]) parameter(0)\n  cg{d} = f32[] get-tuple-element(cs{d}), index=0\n"
            f"  cz{d} = f32[] constant({d})\n  ROOT cp{d} = pred[] compare(cg{d}, cz{d}), direction=LT\n}}\n\n"
        )
        yield f"b{d} {{\n  q{d} = (f32[], f32[8]) parameter(0)\n"
        if d:
            yield f"  w{d} = (f32[], f32[8]) while(q{d}), condition=c{d - 1}, body=b{d - 1}\n"
        whole = f"w{d}" if d else f"q{d}"
        yield f"  g{d} = f32[] get-tuple-element({whole}), index=0\n  v{d}_0 = f32[8] get-tuple-element({whole}), index=1\n"
        yield f"  o{d} = f32[] constant(1)\n  m{d} = f32[] add(g{d}, o{d})\n"
        for i in range(1, length):
            yield f"  v{d}_{i} = f32[8] sine(v{d}_{i - 1})\n"
        yield f"  ROOT t{d} = (f32[], f32[8]) tuple(m{d}, v{d}_{length - 1})\n}}\n\n"
    yield (
        f"ENTRY e {{\n  n = f32[] parameter(0)\n  x = f32[8] parameter(1)\n  t = (f32[], f32[8]) tuple(n, x)\n"
        f"  ROOT w = (f32[], f32[8]) while(t), condition=c{depth - 1}, body=b{depth - 1}\n}}\n"
    )


def parameters(n):
    """Many parameters, each used once."""
    count = max(n // 2, 2)
    yield "HloModule parameters\n\nENTRY e {\n"
    for i in range(count):
        yield f"  p{i} = f32[8] parameter({i})\n"
    for i in range(1, count):
        yield f"  a{i} = f32[8] add({'p0' if i == 1 else f'a{i - 1}'}, p{i})\n"
    yield f"  ROOT r = f32[8] negate(a{count - 1})\n}}\n"


SHAPES = {f.__name__: f for f in (chain, wide, computations, nest, parameters)}
COMMANDS = {
    "verify": ["verify", "FILE"],
    "fmt": ["fmt", "FILE"],
    "stats": ["stats", "FILE"],
    "opt": ["opt", "FILE", "--target", "cpu"],
    "memory": ["memory", "FILE", "--summary"],
    "compile": ["compile", "FILE", "--target", "cpu", "--emit", "schedule"],
    "compile for a TPU": ["compile", "FILE", "--target", "tpu-v5e", "--emit", "schedule"],
    "simulate": ["simulate", "FILE", "--target", "tpu-v5e", "--json"],
    "diff": ["diff", "FILE", "FILE"],
    "report": ["report", "FILE", "-o", "OUT"],
    "memory --html": ["memory", "FILE", "--html", "OUT"],
    "convert": ["convert", "FILE", "OUT.pb"],
    "eval": ["run", "FILE", "--engine", "eval", "--seed", "1", "--json"],
}


def measure(command, limit):
    """Seconds of processor time, megabytes, and the exit status."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            ended = "late"
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.write(writer, f"{used.ru_utime + used.ru_stime} {used.ru_maxrss / 1024} {ended}".encode())
        os._exit(0)
    os.close(writer)
    answer = os.read(reader, 200).decode().split()
    os.close(reader)
    os.waitpid(child, 0)
    return float(answer[0]), float(answer[1]), answer[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hloom", default="target/release/hloom")
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--factor", type=float, default=16.0, help="what ten times the program may take")
    parser.add_argument("--time-limit", type=float, default=600)
    options = parser.parse_args()
    sizes = [int(n) for n in options.sizes.split(",")]
    wrong = []
    print("| shape | command |" + "".join(f" {n} |" for n in sizes))
    print("|---|---|" + "---:|" * len(sizes))
    with tempfile.TemporaryDirectory() as folder:
        for shape in options.shapes.split(","):
            paths = []
            for n in sizes:
                paths.append(os.path.join(folder, f"{shape}{n}.hlo"))
                with open(paths[-1], "w") as file:
                    file.writelines(SHAPES[shape](n))
            for command in options.commands.split(","):
                cells, before = [], None
                for n, path in zip(sizes, paths):
                    names = {"FILE": path, "OUT": path + ".html", "OUT.pb": path + ".pb"}
                    words = [names.get(word, word) for word in COMMANDS[command]]
                    seconds, megabytes, ended = measure([options.hloom, *words], options.time_limit)
                    cells.append(f"{seconds:.2f} s, {megabytes:.0f} MB" + ("" if ended == "0" else f" ({ended})"))
                    if ended not in ("0", "1"):
                        wrong.append(f"{command} of {shape}, {n}: ended with {ended}")
                    if before and before[1] > SLOW_ENOUGH and seconds / before[1] > options.factor * (n / before[0] / 10):
                        wrong.append(f"{command} of {shape}: {seconds / before[1]:.1f} times the time from {before[0]} to {n}")
                    before = (n, seconds)
                print(f"| {shape} | {command} | " + " | ".join(cells) + " |", flush=True)
            for path in paths:
                os.remove(path)
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

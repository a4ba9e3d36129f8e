#!/usr/bin/env python3
"""Compares what StableHLO programs become when they are read as text and as bytecode of the compiler's own dialects.

    compare_bytecode.py [--hloom target/release/hloom] [--write DIR] PATH...

PATH is a file of StableHLO's text, or a folder with such files. jaxlib reads each and writes both forms, with the same
locations; hloom converts both to HLO, which has to be the same but for metadata (the short forms of some operations leave
locations out). What jaxlib cannot read is left out and counted. With DIR both forms are kept there.
"""

import argparse
import collections
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from jax._src.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir


def converted(hloom, path, folder):
    to = os.path.join(folder, "out.hlo")
    ran = subprocess.run([hloom, "convert", str(path), to], capture_output=True, text=True)
    if ran.returncode:
        return None, ran.stderr
    return re.sub(r", metadata=\{[^}]*\}", "", pathlib.Path(to).read_text()), ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hloom", default="target/release/hloom")
    parser.add_argument("--write", help="a folder for both forms of the programs")
    parser.add_argument("paths", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    files = [f for path in options.paths for f in (sorted(path.rglob("*.mlir")) if path.is_dir() else [path])]
    counts, context = collections.Counter(), jax_mlir.make_ir_context()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.write or scratch
        os.makedirs(folder, exist_ok=True)
        for number, file in enumerate(files):
            try:
                module = ir.Module.parse(file.read_text(), context)
            except (ir.MLIRError, UnicodeDecodeError):
                counts["not read by jaxlib"] += 1
                continue
            stem = os.path.join(folder, f"{number:05d}_{file.stem[:60]}")
            bytecode = io.BytesIO()
            module.operation.write_bytecode(bytecode)
            pathlib.Path(stem + ".bc").write_bytes(bytecode.getvalue())
            pathlib.Path(stem + ".mlir").write_text(module.operation.get_asm(enable_debug_info=True))
            ours, error = converted(options.hloom, stem + ".bc", scratch)
            text, refused = converted(options.hloom, stem + ".mlir", scratch)
            verdict = "different" if ours != text else "refused" if ours is None else "same"
            counts[verdict] += 1
            if verdict == "different":
                print(f"{file}: {error or refused or 'the programs differ'}", flush=True)
    print(dict(counts))
    sys.exit(counts["different"] > 0)


if __name__ == "__main__":
    main()

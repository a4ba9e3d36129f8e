#!/usr/bin/env python3
"""Compares bf16 and f16 programs with XLA's CPU, bit for bit.

    compare_precision.py --hloom target/release/hloom [--programs 200] [--seed 0] [--products] [--keep DIR] [--verbose]

Random programs of element-wise operations, converts to f32 and back, reduce-precision, barriers and movements of elements
are compiled by JAX for its own CPU, once as it does by default and once with `xla_allow_excess_precision=False`. hloom
runs the same StableHLO: its CPU engine as it does by default, which has to equal the first, and its evaluator and its CPU
engine with `--excess-precision=never`, which have to equal the second. All NaNs are one.

With `--products`, the programs are products of arrays in all arrangements of their dimensions and convolutions, of small
whole numbers, whose sums are exact in any order, and what becomes of them afterwards.

Otherwise sums, products of matrices and what XLA rewrites inexactly (quotients of quotients, products of exponentials, divisors
that are constants) are left out: their values depend on the order of operations, not on where they are rounded.
Every other program has functions such as tanh, which are within a few last digits of f32 in both and not the same: what
differs there is counted apart, as `near`.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

FUNCTIONS = ("exp", "tanh", "sin", "log1p", "logistic")


class Program:
    """A random program: a list of steps, each an operation on values made before."""

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.dtype = jnp.dtype(rng.choice([jnp.bfloat16, jnp.bfloat16, jnp.float16]))
        self.shape = rng.choice([(64,), (7,), (8, 16), (3, 5, 4), (130,)])
        self.inputs = rng.randint(1, 3)
        self.functions = FUNCTIONS if seed % 2 else ()
        self.steps = []
        # What each value is: its kind of type, and what made it.
        kinds = [("small", "parameter")] * self.inputs
        for _ in range(rng.randint(3, 24)):
            step = self.step(kinds)
            if step is not None:
                self.steps.append(step)
                kinds.append((step[2], step[0]))
        used = {i for step in self.steps for i in step[1]}
        self.results = [i for i in range(len(kinds)) if i >= self.inputs and i not in used][:6]
        self.results = self.results or [len(kinds) - 1]

    def step(self, kinds):
        rng = self.rng
        kind = rng.choice(["small"] * 4 + ["wide"])
        of_kind = [i for i, (k, _) in enumerate(kinds) if k == kind]
        if not of_kind:
            return None
        recent = of_kind[-6:]

        def pick(*forbidden):
            allowed = [i for i in recent if kinds[i][1] not in forbidden]
            return rng.choice(allowed) if allowed else None

        op = rng.choice(
            ["add", "sub", "mul", "div", "max", "min", "neg", "abs", "floor", "sqrt", "select", "constant-add"]
            + ["constant-mul", "convert", "convert", "reduce-precision", "barrier", "transpose", "clamp", *self.functions]
        )
        if op in ("add", "sub", "max", "min"):
            operands = [pick(), pick()]
        elif op == "mul":
            operands = [pick("exp", "div", "constant-mul", "sqrt"), pick("exp", "div", "constant-mul", "sqrt")]
        elif op == "div":
            operands = [pick("exp", "div", "mul", "constant-mul", "neg"), pick("exp", "div", "sqrt", "mul", "constant-mul", "neg")]
        elif op == "select":
            operands = [pick(), pick(), pick()]
        elif op in ("constant-add", "constant-mul"):
            operands = [pick("constant-add", "constant-mul", "div")]
        else:
            operands = [pick()]
        # An operation of a value with itself is dropped by one and not by the other.
        if None in operands or (op in ("div", "sub", "max", "min") and operands[0] == operands[1]):
            return None
        if op == "select" and operands[1] == operands[2]:
            return None
        made = kind
        if op == "convert":
            made = "wide" if kind == "small" else "small"
        detail = rng.choice([0.1, 0.7, 3.0, 256.0, 1000.0, 1 / 3, -5.5])
        return op, operands, made, detail

    def __call__(self, *inputs):
        values = list(inputs)
        for op, operands, made, detail in self.steps:
            values.append(self.apply(op, [values[i] for i in operands], made, detail))
        return tuple(values[i] for i in self.results)

    def apply(self, op, x, made, detail):
        a = x[0]
        constant = jnp.asarray(detail, a.dtype)
        match op:
            case "add":
                return x[0] + x[1]
            case "sub":
                return x[0] - x[1]
            case "mul":
                return x[0] * x[1]
            case "div":
                return x[0] / x[1]
            case "max":
                return jnp.maximum(x[0], x[1])
            case "min":
                return jnp.minimum(x[0], x[1])
            case "neg":
                return -a
            case "abs":
                return abs(a)
            case "floor":
                return jnp.floor(a)
            case "sqrt":
                return lax.sqrt(abs(a))
            case "select":
                return lax.select(x[0] > x[1], x[1], x[2])
            case "constant-add":
                return a + constant
            case "constant-mul":
                return a * constant
            case "convert":
                return a.astype(jnp.float32 if made == "wide" else self.dtype)
            case "reduce-precision":
                return lax.reduce_precision(a, 8, 7) if self.dtype == jnp.bfloat16 else lax.reduce_precision(a, 5, 10)
            case "barrier":
                return lax.optimization_barrier(a)
            case "transpose":
                return jnp.reshape(jnp.reshape(a, self.shape[::-1]).T, self.shape)
            case "clamp":
                return lax.clamp(jnp.asarray(-2, a.dtype), a, jnp.asarray(3, a.dtype))
            case "exp":
                return jnp.exp(jnp.minimum(a, jnp.asarray(4, a.dtype)))
            case "log1p":
                return jnp.log1p(abs(a))
            case "logistic":
                return lax.logistic(a)
            case _:
                return getattr(jnp, op)(a)

    @property
    def has_functions(self):
        return any(step[0] in FUNCTIONS for step in self.steps)

    def arguments(self, seed):
        rng = np.random.default_rng(seed)
        scales = [0.01, 1.0, 1.0, 30.0]
        return [
            (rng.standard_normal(self.shape) * rng.choice(scales)).astype(self.dtype) for _ in range(self.inputs)
        ]


class ProductProgram:
    """A random product or convolution of two arrays, and a few steps on what it makes."""

    has_functions = False

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.dtype = jnp.dtype(rng.choice([jnp.bfloat16, jnp.bfloat16, jnp.bfloat16, jnp.float16]))
        self.shapes, self.product = self.convolution() if rng.random() < 0.25 else self.dot()
        self.steps = [rng.choice(["transpose", "reshape", "barrier", "add", "double", "max"]) for _ in range(rng.choice([0, 0, 1, 2]))]
        self.keeps_product = rng.random() < 0.3

    def dot(self):
        rng = self.rng
        batch = [rng.choice([2, 3]) for _ in range(rng.choice([0, 0, 1, 2]))]
        contracting = [rng.choice([4, 6, 9]) for _ in range(rng.choice([1, 1, 1, 2]))]
        others = [[rng.choice([1, 5, 8, 17]) for _ in range(rng.choice([0, 1, 1, 1, 2]))] for _ in range(2)]
        shapes, dimensions = [], []
        for other in others:
            sizes = {"b": batch, "c": contracting, "o": other}
            kinds = [(kind, n) for kind in "bco" for n in range(len(sizes[kind]))]
            if rng.random() < 0.5:
                rng.shuffle(kinds)
            shapes.append(tuple(sizes[kind][n] for kind, n in kinds))
            dimensions.append({kind: tuple(kinds.index((kind, n)) for n in range(len(sizes[kind]))) for kind in "bc"})
        l, r = dimensions
        return shapes, lambda lhs, rhs: lax.dot_general(lhs, rhs, ((l["c"], r["c"]), (l["b"], r["b"])))

    def convolution(self):
        rng = self.rng
        spatial = "HW"[: rng.choice([1, 2, 2])]
        orders = ["NC" + spatial, "OI" + spatial, "NC" + spatial]
        if rng.random() < 0.7:
            orders = ["".join(rng.sample(order, len(order))) for order in orders]
        feature_groups, batch_groups = rng.choice([(1, 1), (1, 1), (4, 1), (2, 1), (1, 2)])
        channels = rng.choice([4, 8])
        sizes = {"N": 2 * batch_groups, "C": channels, "O": 2 * feature_groups * batch_groups, "I": channels // feature_groups}
        base = {d: rng.choice([5, 8, 11]) for d in spatial}
        window = {d: rng.choice([1, 2, 3]) for d in spatial}
        shapes = [tuple((sizes | base)[d] for d in orders[0]), tuple((sizes | window)[d] for d in orders[1])]
        each = lambda choices: tuple(rng.choice(choices) for _ in spatial)
        options = {
            "window_strides": each([1, 1, 2]),
            "padding": tuple((rng.choice([0, 1]), rng.choice([0, 1, 2])) for _ in spatial),
            "lhs_dilation": each([1, 1, 2]),
            "rhs_dilation": each([1, 1, 2]),
            "dimension_numbers": tuple(orders),
            "feature_group_count": feature_groups,
            "batch_group_count": batch_groups,
        }
        return shapes, lambda lhs, rhs: lax.conv_general_dilated(lhs, rhs, **options)

    def __call__(self, lhs, rhs):
        product = value = self.product(lhs, rhs)
        for step in self.steps:
            match step:
                case "transpose":
                    value = jnp.transpose(value)
                case "reshape":
                    value = jnp.reshape(value, (-1,))
                case "barrier":
                    value = lax.optimization_barrier(value)
                case "add":
                    value = value + jnp.asarray(257, value.dtype)
                case "double":
                    value = value * jnp.asarray(3, value.dtype)
                case "max":
                    value = jnp.maximum(value, jnp.asarray(0, value.dtype))
        value = value.astype(jnp.float32)
        return (value, product) if self.keeps_product else (value,)

    def arguments(self, seed):
        rng = np.random.default_rng(seed)
        return [rng.integers(-15, 16, shape).astype(self.dtype) for shape in self.shapes]


def bits(array):
    """The elements as integers in the order of the floats, all NaNs as one."""
    array = np.asarray(array)
    integer = np.dtype(f"int{8 * array.dtype.itemsize}")
    ordered = array.view(integer).astype(np.int64)
    ordered = np.where(ordered < 0, -(ordered & np.iinfo(integer).max), ordered)
    return np.where(np.isnan(array.astype(np.float32)), np.int64(1) << 40, ordered)


def run_hloom(command, path, inputs, outputs, results, options):
    ran = subprocess.run(
        [command, "run", path, "--input", inputs, "--output", outputs, *options], capture_output=True, text=True
    )
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr)
    with np.load(outputs) as made:
        return [made[f"d0.o{n}"].view(np.asarray(r).dtype).reshape(np.shape(r)) for n, r in enumerate(results)]


def compare(ours, theirs):
    """How many elements there are, how many differ, and by how many steps at most."""
    elements = different = steps = 0
    for a, b in zip(ours, theirs):
        distance = abs(bits(a) - bits(b))
        elements += distance.size
        different += int(np.count_nonzero(distance))
        steps = max(steps, int(distance.max(initial=0)))
    return elements, different, steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hloom", default="target/release/hloom")
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no program after this time")
    parser.add_argument("--products", action="store_true", help="programs around products of arrays")
    parser.add_argument("--keep", help="a folder for the programs that differ")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    engines = {
        "cpu": (["--engine", "cpu"], "default"),
        "cpu, never": (["--engine", "cpu", "--excess-precision=never"], "never"),
        "eval": (["--engine", "eval"], "never"),
    }
    counts = {name: {"programs": 0, "equal": 0, "near": 0, "different": 0, "elements": 0, "unequal": 0} for name in engines}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.programs):
            if time.monotonic() - begun > options.seconds:
                break
            program = ProductProgram(seed) if options.products else Program(seed)
            arguments = program.arguments(seed)
            lowered = jax.jit(program, keep_unused=True).lower(*arguments)
            path = os.path.join(folder, f"{seed}.mlir")
            with open(path, "w") as file:
                file.write(lowered.as_text())
            inputs = os.path.join(folder, "in.npz")
            np.savez(inputs, **{f"p{n}": np.asarray(a).view(f"V{a.dtype.itemsize}") if a.dtype == jnp.bfloat16 else a for n, a in enumerate(arguments)})
            expected = {
                "default": lowered.compile()(*arguments),
                "never": lowered.compile(compiler_options={"xla_allow_excess_precision": False})(*arguments),
            }
            for name, (flags, which) in engines.items():
                made = run_hloom(options.hloom, path, inputs, os.path.join(folder, "out.npz"), expected[which], flags)
                elements, different, steps = compare(made, expected[which])
                count = counts[name]
                count["programs"] += 1
                count["elements"] += elements
                count["unequal"] += different
                if different == 0:
                    count["equal"] += 1
                elif program.has_functions:
                    count["near"] += 1
                else:
                    count["different"] += 1
                if different and (options.verbose or not program.has_functions):
                    print(f"program {seed} ({program.dtype}), {name}: {different} of {elements}, by {steps}", file=sys.stderr)
                    if options.keep:
                        os.makedirs(options.keep, exist_ok=True)
                        with open(os.path.join(options.keep, f"{seed}.mlir"), "w") as file:
                            file.write(lowered.as_text())
    for name, count in counts.items():
        print(name, count)
    sys.exit(any(count["different"] for count in counts.values()))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares random JAX programs of all types with XLA's CPU, on hloom's CPU engine and its evaluator.

    compare_programs.py --library target/release/libhloom_pjrt.so --hloom target/release/hloom
                        [--programs 1000] [--seed 0] [--seconds S] [--keep DIR] [--no-eval]

A program is a graph of 8 to 35 operations: element-wise ones of every type, converts, movements of elements, reductions,
scans, products, convolutions, gathers, scatters, sorts, loops and conditionals. JAX compiles it for its own CPU and for
the plugin in one process; the evaluator runs its StableHLO by the command.

Integers have to be equal. Floats have to be near; where they are not, the program is run again with every floating-point
value disturbed by a few last digits, several times, and what moves by as much as the two differ is counted as
`sensitive`: comparisons that turn, digits that cancel, sums and products that overflow in one order and not in another,
values that are small enough to be zeros in one order. Where XLA's results are others when it runs the operations one by
one, and hloom's are those, the program counts as `xla`. The evaluator keeps subnormal numbers, which are zeros to
compiled programs. Where its results differ, every operation is judged by itself, XLA being given the evaluator's
operands: where all are right, or have operands that are subnormal, the program counts as `subnormal`, or as `sensitive`.
All else is a difference: it is printed, and the program is written to DIR. The exit status is 1 if there is one, or if hloom ends the process; XLA does so at times.

XLA compiles with little effort first: HLO's passes are all run, kernels are made by the older emitters, and LLVM does not
optimise them. That takes a fifth of the time, and moves last digits. Its kernels of YNNPACK are left out, whose maxima
lose NaNs. Where the results differ then, by more than what is `sensitive`, XLA compiles once more as it does by default,
and those results count.
"""

import argparse
import collections
import copy
import functools
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="target/release/libhloom_pjrt.so")
    parser.add_argument("--hloom", default="target/release/hloom")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no program after this time")
    parser.add_argument("--keep", help="a folder for the programs that differ")
    parser.add_argument("--no-eval", action="store_true", help="leave the evaluator out")
    parser.add_argument("--batch", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


OPTIONS = options_of(sys.argv[1:])
os.environ.update(
    HLOOM_LIBRARY=str(pathlib.Path(OPTIONS.library).resolve()), JAX_PLATFORMS="hloom,cpu", JAX_ENABLE_X64="1"
)

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

SIGNED = [jnp.int8, jnp.int16, jnp.int32, jnp.int32, jnp.int64]
UNSIGNED = [jnp.uint8, jnp.uint16, jnp.uint32, jnp.uint64]
FLOATS = [jnp.float32, jnp.float32, jnp.float32, jnp.bfloat16, jnp.float16, jnp.float64]
COMPLEX = [jnp.complex64, jnp.complex128]
# XLA with little effort, in how kernels are made.
CHEAP = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_experimental_ynn_fusion_type": "",
}
TYPES = [jnp.dtype(t) for t in SIGNED + UNSIGNED + FLOATS + FLOATS + COMPLEX + [jnp.bool_]]
EPSILON = {np.dtype(t): float(jnp.finfo(t).eps) for t in set(FLOATS)}


def is_float(dtype):
    return jnp.issubdtype(dtype, jnp.floating)


def is_complex(dtype):
    return jnp.issubdtype(dtype, jnp.complexfloating)


def is_integer(dtype):
    return jnp.issubdtype(dtype, jnp.integer)


def epsilon(dtype):
    return EPSILON[np.dtype(np.empty(0, dtype).real.dtype if is_complex(dtype) else dtype)]


class Program:
    """A random program: steps, each a function of values made before."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.base = tuple(self.rng.choice([1, 2, 3, 4, 5, 7, 8, 16, 33]) for _ in range(self.rng.randint(1, 3)))
        self.known = []
        self.inputs = []
        for _ in range(self.rng.randint(1, 4)):
            self.inputs.append(jax.ShapeDtypeStruct(self.base, self.rng.choice(TYPES)))
        self.known += self.inputs
        self.steps = []
        wanted = self.rng.randint(8, 35)
        for _ in range(4 * wanted):
            if len(self.steps) < wanted:
                self.add()
        used = {i for _, operands, _ in self.steps for i in operands}
        results = [i for i in range(len(self.inputs), len(self.known)) if i not in used]
        self.results = results[-8:]

    def add(self):
        kind = self.rng.choice(KINDS)
        made = kind(self)
        if made is None:
            return
        function, operands = made
        try:
            shape = jax.eval_shape(function, *(self.known[i] for i in operands))
        except (TypeError, ValueError, OverflowError):  # Not of these types or sizes.
            return
        if shape.size > 4096 or len(shape.shape) > 5:
            return
        self.steps.append((function, operands, kind.__name__))
        self.known.append(shape)

    def pick(self, fits=lambda known: True):
        """One of the values that fit, the last ones more often."""
        found = [i for i, known in enumerate(self.known) if fits(known)]
        if not found:
            return None
        return self.rng.choice(found[-6:] if self.rng.random() < 0.7 else found)

    def ancestry(self, i):
        """The kinds of the steps that a value is made by."""
        kinds, waiting, seen = set(), [i], set()
        while waiting:
            n = waiting.pop() - len(self.inputs)
            if n >= 0 and n not in seen:
                seen.add(n)
                kinds.add(self.steps[n][2])
                waiting += self.steps[n][1]
        return kinds

    def with_results(self, results):
        made = copy.copy(self)
        made.results = list(results)
        return made

    def with_steps(self, inputs, steps):
        """A program of such steps, whose arguments are values of this one; the last step's value is the result."""
        made = self.with_results([len(inputs) + len(steps) - 1])
        made.inputs, made.steps = [self.known[i] for i in inputs], steps
        return made

    def like(self, i):
        return self.pick(lambda known: known.shape == self.known[i].shape and known.dtype == self.known[i].dtype)

    def run(self, inputs, disturb=None):
        values = list(inputs)
        for n, (function, operands, kind) in enumerate(self.steps):
            given = [values[i] for i in operands]
            value = function(*given)
            if disturb is not None and (is_float(value.dtype) or is_complex(value.dtype)):
                if kind in IN_ANY_ORDER:
                    value = overflowing(function, given, value, disturb)
                value = disturbed(value, disturb + jnp.uint32(n * 7919))
            values.append(value)
        return tuple(values[i] for i in self.results)

    def __call__(self, *inputs):
        return self.run(inputs)

    def disturbed(self, seed, *inputs):
        noisy = [disturbed(x, seed + jnp.uint32(k)) if is_float(x.dtype) or is_complex(x.dtype) else x for k, x in enumerate(inputs)]
        return self.run(noisy, seed)

    def arguments(self, seed):
        rng = np.random.default_rng(seed)
        made = []
        for known in self.inputs:
            shape, dtype = known.shape, known.dtype
            if dtype == jnp.bool_:
                value = rng.integers(0, 2, shape).astype(bool)
            elif is_integer(dtype):
                info, small = jnp.iinfo(dtype), rng.random() < 0.7
                low, high = (max(info.min, -9), 10) if small else (info.min, info.max)
                value = rng.integers(low, high, shape, dtype=np.dtype(dtype), endpoint=not small)
            else:
                value = rng.standard_normal(shape) * rng.choice([0.01, 1.0, 1.0, 1.0, 30.0])
                if is_complex(dtype):
                    value = value + 1j * rng.standard_normal(shape)
                elif rng.random() < 0.1 and value.size > 2:
                    value.flat[0], value.flat[1] = np.nan, np.inf
                value = value.astype(dtype)
            made.append(value)
        return made


def disturbed(value, seed):
    """The value, every element changed by a few last digits at most."""
    index = lax.iota(jnp.uint32, max(value.size, 1))[: value.size].reshape(value.shape) * jnp.uint32(2654435761)
    mixed = (index ^ (seed * jnp.uint32(40503))) * jnp.uint32(2246822519)
    digits = ((mixed >> 13) % 7).astype(jnp.float32) - 3.0
    noise = 1 + digits.astype(value.dtype) * jnp.asarray(epsilon(value.dtype), value.dtype)
    noisy = value * noise
    if is_float(value.dtype):
        least = jnp.finfo(value.dtype).tiny
        if value.dtype == jnp.float16:
            # Its subnormal numbers are kept by everybody: theirs are fewer digits.
            few = (noisy != 0) & (jnp.abs(noisy) < least)
            noisy = jnp.where(few, noisy + digits.astype(value.dtype) * jnp.asarray(2.0**-24, value.dtype), noisy)
        else:
            noisy = jnp.where((seed % 2 == 1) & (jnp.abs(noisy) < 8 * least), 0, noisy)
    return lax.optimization_barrier(noisy)


def overflowing(function, operands, value, seed):
    """The value of a sum or a product, but where it overflows or vanishes in one order of its terms: anything."""

    def of_magnitudes(change):
        def magnitude(x):
            if not (is_float(x.dtype) or is_complex(x.dtype)):
                return x
            size = jnp.abs(x)
            return change(jnp.where(jnp.isfinite(size), size, jnp.ones((), size.dtype))).astype(x.dtype)

        return function(*(magnitude(x) for x in operands))

    large = of_magnitudes(lambda x: jnp.maximum(x, 1))
    small = of_magnitudes(lambda x: jnp.where(x == 0, 1, jnp.minimum(x, 1)).astype(x.dtype))
    anything = jnp.asarray([np.nan, np.inf, -np.inf, 0.0, 1.0], value.dtype)[seed % 5]
    return jnp.where(~jnp.isfinite(large) | (jnp.abs(small) < jnp.finfo(value.dtype).tiny), anything, value)


# The kinds of operations. Each gives a function and the numbers of its operands, or nothing.


def elementwise(p):
    i = p.pick()
    dtype = p.known[i].dtype
    if dtype == jnp.bool_:
        names = ["bitwise_not"]
    elif is_integer(dtype):
        names = ["neg", "bitwise_not", "population_count", "clz"] + (["abs", "sign"] if jnp.issubdtype(dtype, jnp.signedinteger) else [])
    elif is_complex(dtype):
        names = ["neg", "exp", "sin", "cos", "tanh", "sqrt", "log1p", "conj", "square", "real", "imag", "abs"]
    else:
        names = ["neg", "abs", "sign", "floor", "ceil", "exp", "expm1", "log1p", "tanh", "logistic", "sin", "cos", "sqrt"]
        names += ["rsqrt", "cbrt", "erf", "erfc", "square", "is_finite", "asinh", "atan", "log", "round", "tan"]
    return getattr(lax, p.rng.choice(names)), [i]


def binary(p):
    i = p.pick()
    j, dtype = p.like(i), p.known[i].dtype
    if dtype == jnp.bool_:
        names = ["bitwise_and", "bitwise_or", "bitwise_xor"]
    elif is_integer(dtype):
        names = ["add", "sub", "mul", "div", "rem", "max", "min", "bitwise_and", "bitwise_or", "bitwise_xor"]
        names += ["shift_left", "shift_right_logical", "shift_right_arithmetic"]
    elif is_complex(dtype):
        names = ["add", "sub", "mul", "div"]
    else:
        names = ["add", "sub", "mul", "div", "max", "min", "atan2", "rem", "nextafter", "pow"]
    return getattr(lax, p.rng.choice(names)), [i, j]


def constant(p):
    i = p.pick(lambda k: k.dtype != jnp.bool_)
    if i is None:
        return None
    dtype, name = p.known[i].dtype, p.rng.choice(["add", "sub", "mul", "div", "max", "min"])
    if is_complex(dtype) and name in ("max", "min"):
        return None
    number = p.rng.choice([1, 2, 3, 7, 0]) if is_integer(dtype) else p.rng.choice([0.5, 2.0, -1.0, 0.1, 3.7, 1.0])

    def with_constant(x):
        other = jnp.full(x.shape, number, x.dtype)
        # For a quotient by a complex constant, XLA multiplies by its reciprocal, and makes NaNs of infinities.
        return getattr(lax, name)(x, lax.optimization_barrier(other) if is_complex(dtype) else other)

    return with_constant, [i]


def compare(p):
    i = p.pick()
    name = p.rng.choice(["eq", "ne"] if is_complex(p.known[i].dtype) else ["eq", "ne", "lt", "le", "gt", "ge"])
    return getattr(lax, name), [i, p.like(i)]


def select(p):
    i = p.pick(lambda k: k.dtype == jnp.bool_)
    if i is None:
        return None
    j = p.pick(lambda k: k.shape == p.known[i].shape)
    return lax.select, [i, j, p.like(j)]


def clamp(p):
    i = p.pick(lambda k: k.dtype != jnp.bool_ and not is_complex(k.dtype))
    if i is None:
        return None
    low = 0 if jnp.issubdtype(p.known[i].dtype, jnp.unsignedinteger) else -2
    return (lambda x: lax.clamp(jnp.asarray(low, x.dtype), x, jnp.asarray(5, x.dtype))), [i]


def convert(p):
    i = p.pick()
    to = p.rng.choice(TYPES)
    if is_complex(p.known[i].dtype) and not is_complex(to):
        return None
    return (lambda x: lax.convert_element_type(x, to)), [i]


def bitcast(p):
    i = p.pick(lambda k: is_integer(k.dtype))
    if i is None:
        return None
    size = p.known[i].dtype.itemsize
    to = p.rng.choice([t for t in TYPES if is_integer(t) and t.itemsize == size])
    return (lambda x: lax.bitcast_convert_type(x, to)), [i]


def reduce_precision(p):
    i = p.pick(lambda k: is_float(k.dtype))
    return None if i is None else ((lambda x: lax.reduce_precision(x, 5, 6)), [i])


def reshape(p):
    i = p.pick()
    size = p.known[i].size
    divisors = [d for d in range(1, size + 1) if size % d == 0] or [1]
    d = p.rng.choice(divisors)
    shape = p.rng.choice([(size,), (d, size // d), (size // d, 1, d)])
    return (lambda x: lax.reshape(x, shape)), [i]


def transpose(p):
    i = p.pick(lambda k: len(k.shape) > 1)
    if i is None:
        return None
    order = list(range(len(p.known[i].shape)))
    p.rng.shuffle(order)
    return (lambda x: lax.transpose(x, order)), [i]


def broadcast(p):
    i = p.pick(lambda k: len(k.shape) < 4)
    if i is None:
        return None
    n = p.rng.choice([1, 2, 3, 5])
    return (lambda x: jnp.broadcast_to(x, (n, *x.shape))), [i]


def slice_(p):
    i = p.pick(lambda k: len(k.shape) > 0)
    if i is None:
        return None
    starts, ends, strides = [], [], []
    for n in p.known[i].shape:
        start = p.rng.randint(0, max(n - 1, 0))
        starts.append(start)
        ends.append(p.rng.randint(start, n))
        strides.append(p.rng.choice([1, 1, 2, 3]))
    return (lambda x: lax.slice(x, starts, ends, strides)), [i]


def pad(p):
    i = p.pick(lambda k: len(k.shape) > 0)
    if i is None:
        return None
    config = [(p.rng.randint(-1, 2), p.rng.randint(-1, 2), p.rng.choice([0, 0, 1])) for _ in p.known[i].shape]
    return (lambda x: lax.pad(x, jnp.zeros((), x.dtype), config)), [i]


def concatenate(p):
    i = p.pick(lambda k: len(k.shape) > 0)
    if i is None:
        return None
    axis = p.rng.randrange(len(p.known[i].shape))
    return (lambda x, y: lax.concatenate([x, y, x], axis)), [i, p.like(i)]


def reverse(p):
    i = p.pick(lambda k: len(k.shape) > 0)
    if i is None:
        return None
    axes = [d for d in range(len(p.known[i].shape)) if p.rng.random() < 0.6]
    return (lambda x: lax.rev(x, axes)), [i]


def reduction(p):
    i = p.pick(lambda k: len(k.shape) > 0)
    if i is None:
        return None
    dtype = p.known[i].dtype
    axes = tuple(d for d in range(len(p.known[i].shape)) if p.rng.random() < 0.5) or (0,)
    if dtype == jnp.bool_:
        name = p.rng.choice(["any", "all"])
    else:
        name = p.rng.choice(["sum", "prod"] if is_complex(dtype) else ["sum", "sum", "max", "min", "prod", "mean"])
        if name in ("max", "min") and any(p.known[i].shape[d] == 0 for d in axes):
            return None
    keep = p.rng.random() < 0.3
    return (lambda x: getattr(jnp, name)(x, axis=axes, keepdims=keep)), [i]


def arg_reduction(p):
    i = p.pick(lambda k: len(k.shape) > 0 and not is_complex(k.dtype) and all(k.shape))
    if i is None:
        return None
    axis, name = p.rng.randrange(len(p.known[i].shape)), p.rng.choice(["argmax", "argmin"])
    return (lambda x: getattr(lax, name)(x, axis, jnp.int32)), [i]


def scan_along(p):
    i = p.pick(lambda k: len(k.shape) > 0 and k.dtype != jnp.bool_)
    if i is None:
        return None
    names = ["cumsum", "cumprod"] + ([] if is_complex(p.known[i].dtype) else ["cummax", "cummin"])
    axis, back, name = p.rng.randrange(len(p.known[i].shape)), p.rng.random() < 0.3, p.rng.choice(names)
    return (lambda x: getattr(lax, name)(x, axis, reverse=back)), [i]


def product(p):
    i = p.pick(lambda k: len(k.shape) == 2 and k.dtype != jnp.bool_)
    if i is None:
        return None
    j = p.pick(lambda k: len(k.shape) == 2 and k.dtype == p.known[i].dtype and k.shape[0] == p.known[i].shape[1])
    if j is not None:
        return (lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())), precision="highest")), [i, j]
    axes = p.rng.choice([((0,), (0,)), ((1,), (1,))])
    return (lambda x: lax.dot_general(x, x, (axes, ((), ())), precision="highest")), [i]


def convolution(p):
    i = p.pick(lambda k: len(k.shape) == 2 and is_float(k.dtype) and min(k.shape) > 2)
    if i is None:
        return None
    stride, dilation, same = p.rng.choice([1, 2]), p.rng.choice([1, 2]), p.rng.choice(["SAME", "VALID"])

    def convolve(x):
        # The padding holds zeros, which make NaN of what is not finite: so says StableHLO, and so XLA does for f32, but for
        # f64 its loops leave the padding out.
        x = jnp.where(jnp.isfinite(x), x, jnp.ones((), x.dtype))
        kernel = lax.rev(x[:2, :2], (0,))[None, None]
        made = lax.conv_general_dilated(x[None, None], kernel, (stride, 1), same, rhs_dilation=(1, dilation), precision="highest")
        return made[0, 0]

    return convolve, [i]


def window(p):
    i = p.pick(lambda k: len(k.shape) > 0 and k.dtype != jnp.bool_ and not is_complex(k.dtype))
    if i is None:
        return None
    shape, same = p.known[i].shape, p.rng.choice(["SAME", "VALID"])
    sizes = [min(p.rng.choice([1, 2, 3]), max(n, 1)) for n in shape]
    strides = [p.rng.choice([1, 1, 2]) for _ in shape]
    dtype = p.known[i].dtype
    least = -np.inf if is_float(dtype) else jnp.iinfo(dtype).min
    init, name = p.rng.choice([(0, "add"), (least, "max")])
    return (lambda x: lax.reduce_window(x, jnp.asarray(init, dtype), getattr(lax, name), sizes, strides, same)), [i]


def take(p):
    i = p.pick(lambda k: len(k.shape) > 0 and all(k.shape))
    j = p.pick(lambda k: is_integer(k.dtype) and len(k.shape) < 3)
    if i is None or j is None:
        return None
    axis = p.rng.randrange(len(p.known[i].shape))
    mode = p.rng.choice(["clip", "fill", "wrap"])
    return (lambda x, n: jnp.take(x, n, axis=axis, mode=mode)), [i, j]


def scatter(p):
    i = p.pick(lambda k: len(k.shape) > 0 and all(k.shape) and k.dtype != jnp.bool_ and not is_complex(k.dtype))
    j = p.pick(lambda k: is_integer(k.dtype) and len(k.shape) == 1)
    if i is None or j is None:
        return None
    name, number = p.rng.choice(["add", "max", "min"]), p.rng.choice([1, 3])
    return (lambda x, n: getattr(x.at[n], name)(jnp.asarray(number, x.dtype))), [i, j]


def dynamic(p):
    i = p.pick(lambda k: len(k.shape) > 0 and all(k.shape))
    j = p.pick(lambda k: is_integer(k.dtype) and k.size > 0)
    if i is None or j is None:
        return None
    shape, update = p.known[i].shape, p.rng.random() < 0.5
    sizes = [p.rng.randint(1, n) for n in shape]

    def dynamically(x, n):
        start = [lax.convert_element_type(n.reshape(-1)[0], jnp.int32)] + [jnp.int32(0)] * (len(shape) - 1)
        part = lax.dynamic_slice(x, start, sizes)
        return lax.dynamic_update_slice(x, lax.rev(part, (0,)), [s + 1 for s in start]) if update else part

    return dynamically, [i, j]


def sort(p):
    i = p.pick(lambda k: len(k.shape) > 0 and not is_complex(k.dtype))
    if i is None:
        return None
    axis, order = p.rng.randrange(len(p.known[i].shape)), p.rng.random() < 0.4
    if order:
        return (lambda x: lax.sort((x, lax.broadcasted_iota(jnp.int32, x.shape, axis)), axis, num_keys=1)[1]), [i]
    return (lambda x: lax.sort(x, axis)), [i]


def top_k(p):
    i = p.pick(lambda k: len(k.shape) > 0 and k.shape[-1] > 0 and not is_complex(k.dtype) and k.dtype != jnp.bool_)
    if i is None:
        return None
    k, which = p.rng.randint(1, p.known[i].shape[-1]), p.rng.randrange(2)

    def largest(x):
        # It orders NaNs by their signs (as XLA does, for those that are given). Of one that an operation makes, IEEE 754
        # leaves the sign open, and XLA's differs between what it folds and what it runs.
        return lax.top_k(jnp.where(x != x, jnp.asarray(jnp.nan, x.dtype), x) if is_float(x.dtype) else x, k)[which]

    return largest, [i]


def loop(p):
    i = p.pick(lambda k: k.dtype != jnp.bool_)
    count, name = p.rng.randint(0, 6), p.rng.choice(["add", "mul", "sub"])
    return (lambda x: lax.fori_loop(0, count, lambda n, y: getattr(lax, name)(y, x) + n.astype(x.dtype), x)), [i]


def scanned(p):
    i = p.pick(lambda k: len(k.shape) > 1 and k.dtype != jnp.bool_)
    if i is None:
        return None
    which = p.rng.randrange(2)

    def scan(x):
        state, made = lax.scan(lambda s, row: (s + row, s * row), jnp.ones(x.shape[1:], x.dtype), x)
        return (state, made)[which]

    return scan, [i]


def conditional(p):
    i = p.pick(lambda k: k.dtype != jnp.bool_)
    j = p.pick(lambda k: is_integer(k.dtype) and k.size > 0)
    if i is None or j is None:
        return None
    branches = [lambda x: x + x, lambda x: -x, lambda x: x * x]
    return (lambda x, n: lax.switch(n.reshape(-1)[0].astype(jnp.int32), branches, x)), [i, j]


def softmax(p):
    i = p.pick(lambda k: len(k.shape) > 0 and is_float(k.dtype) and k.shape[-1] > 0)
    return None if i is None else ((lambda x: jax.nn.softmax(x, axis=-1)), [i])


def gradient(p):
    i = p.pick(lambda k: is_float(k.dtype))
    if i is None:
        return None
    name = p.rng.choice(["tanh", "logistic", "sin", "exp"])
    derivative = jax.grad(lambda x: getattr(lax, name)(x).astype(jnp.float32).sum())
    # Digits that cancel inside of a step cannot be disturbed: they are hidden behind those of a one.
    return (lambda x: derivative(x) + 1 if name in ("tanh", "logistic") else derivative(x)), [i]


def iota(p):
    i = p.pick(lambda k: len(k.shape) > 0 and k.dtype != jnp.bool_)
    if i is None:
        return None
    axis = p.rng.randrange(len(p.known[i].shape))
    return (lambda x: x + lax.broadcasted_iota(jnp.int32, x.shape, axis).astype(x.dtype)), [i]


KINDS = [elementwise] * 6 + [binary] * 7 + [constant] * 3 + [compare, select, select, clamp, convert, convert, convert]
KINDS += [bitcast, reduce_precision, reshape, reshape, transpose, transpose, broadcast, slice_, slice_, pad, concatenate]
KINDS += [reverse, reduction, reduction, reduction, arg_reduction, scan_along, product, product, convolution, window, take]
KINDS += [scatter, dynamic, dynamic, sort, top_k, loop, scanned, conditional, softmax, gradient, iota]
# Those whose terms are taken in any order, and those whose results lie elsewhere when a number or an order changes.
IN_ANY_ORDER = {f.__name__ for f in (reduction, scan_along, product, convolution, window, scanned)}
MOVING = {f.__name__ for f in (sort, top_k, take, scatter, dynamic, conditional, arg_reduction)}


# How results are compared.


def wide(array):
    array = np.asarray(array)
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if is_complex(array.dtype) else np.float64)


def parts(array):
    array = wide(array)
    return [array.real, array.imag] if array.dtype.kind == "c" else [array]


def far(ours, theirs, tolerance):
    """Which elements differ by more than the tolerance, and by more than numbers that are zeros while programs run."""
    found = np.zeros(np.shape(ours), bool)
    width = np.dtype(theirs.dtype).itemsize // (2 if is_complex(theirs.dtype) else 1)
    least = float(np.finfo(np.float64 if width == 8 else np.float32).tiny)
    if theirs.dtype == np.float16:  # Whose subnormal numbers are kept, and have fewer digits.
        least = tolerance * float(np.finfo(np.float16).tiny)
    for a, b in zip(parts(ours), parts(theirs)):
        if a.dtype.kind in "biu":
            found |= a != b
            continue
        with np.errstate(all="ignore"):
            near = np.abs(a - b) <= tolerance * np.maximum(np.abs(a), np.abs(b)) + least
        found |= ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
    return found


class Xla:
    """What XLA makes of a program and its arguments, each way of running it at most once."""

    def __init__(self, program, arguments, cpu):
        self.program, self.arguments, self.cpu = program, arguments, cpu
        self.given = jax.device_put(arguments, cpu)
        self.traced = jax.jit(program, keep_unused=True).trace(*arguments)
        with jax.default_device(cpu):
            self.lowered = self.traced.lower(lowering_platforms=("cpu",))

    def results(self, options):
        return [np.asarray(t) for t in self.lowered.compile(compiler_options=options)(*self.given)]

    @functools.cached_property
    def cheap(self):
        return self.results(CHEAP)

    @functools.cached_property
    def default(self):
        return self.results({})

    @functools.cached_property
    def noisy(self):
        """The results where every value is disturbed, several times."""
        runs = jax.jit(self.program.disturbed).lower(np.uint32(0), *self.given).compile(compiler_options=CHEAP)
        return [runs(np.uint32(seed), *self.given) for seed in range(1, 9)]

    @functools.cached_property
    def one_by_one(self):
        """The results where every operation is a program of its own."""
        values = list(self.given)
        for function, operands, _ in self.program.steps:
            given = [values[i] for i in operands]
            values.append(jax.jit(function).lower(*given).compile(compiler_options=CHEAP)(*given))
        return [np.asarray(values[i]) for i in self.program.results]


def explained(xla, ours, theirs):
    """Whether all that differs moves as much when the digits are disturbed."""
    noisy = xla.noisy
    for n, (a, b) in enumerate(zip(ours, theirs)):
        tolerance = 0 if np.asarray(b).dtype.kind in "biu" else 64 * epsilon(b.dtype)
        wrong = far(a, b, tolerance)
        if not wrong.any():
            continue
        moved = np.zeros_like(wrong)
        for k, (x, y) in enumerate(zip(parts(a), parts(b))):
            others = [parts(run[n])[k] for run in noisy]
            with np.errstate(all="ignore"):
                if y.dtype.kind in "biu":
                    # The whole result, since a sort or a scatter moves elements.
                    moved |= any((o != y).any() for o in others)
                    continue
                spread = np.max([np.abs(np.where(np.isfinite(o) & np.isfinite(y), o - y, np.inf)) for o in others], axis=0)
                spread = np.where([np.array_equal(o, y, equal_nan=True) for o in others], 0.0, 1.0).max() * spread
                same = np.all([(o == y) | (np.isnan(o) & np.isnan(y)) for o in others], axis=0)
                distance = np.where(np.isfinite(x) & np.isfinite(y), np.abs(x - y), np.inf)
                moved |= ~same & (distance <= 40 * np.where(np.isnan(spread), np.inf, spread))
        places = xla.program.ancestry(xla.program.results[n]) & MOVING
        if (wrong & ~moved).any() and not (places and shuffled(parts(b)[0], [parts(run[n])[0] for run in noisy])):
            return False
    return True


def differing(ours, theirs):
    limits = [0 if t.dtype.kind in "biu" else 64 * epsilon(t.dtype) for t in theirs]
    return [n for n, (a, b, limit) in enumerate(zip(ours, theirs, limits)) if far(a, b, limit).any()]


def verdict_on(xla, made):
    for theirs in ("cheap", "default"):
        expected = getattr(xla, theirs)
        wrong = differing(made, expected)
        if not wrong:
            return "same"
        if explained(xla, made, expected):
            return "sensitive"
    if not differing(made, xla.one_by_one) or explained(xla, made, xla.one_by_one):
        return "xla"
    return f"different in result {wrong[0]}"


def shuffled(value, others):
    """Whether disturbing moves elements from place to place, so that no single place tells anything."""
    if value.size < 2 or value.dtype.kind == "b":
        return False
    finite = np.isfinite(value)
    largest = np.abs(value[finite]).max(initial=1e-30)
    with np.errstate(all="ignore"):
        moves = [np.abs(o - value)[finite & np.isfinite(o)].max(initial=0) > 0.05 * largest for o in others]
    return any(moves) or any((np.isfinite(o) != finite).any() for o in others)


def step_by_step(folder, program, arguments, cpu):
    """The verdict on the evaluator's operations, each judged by itself."""
    whole = program.with_results(range(len(program.inputs), len(program.known)))
    xla = Xla(whole, arguments, cpu)
    shapes = [np.empty(known.shape, known.dtype) for known in program.known[len(program.inputs) :]]
    values = [*map(np.asarray, arguments), *on_evaluator(folder, xla.lowered, arguments, shapes)]
    found = "sensitive"
    for n, (function, operands, kind) in enumerate(program.steps, len(program.inputs)):
        given = [values[i] for i in operands]
        one = program.with_steps(operands, [(function, list(range(len(operands))), kind)])
        if verdict_on(Xla(one, given, cpu), [values[n]]) not in EXPECTED:
            if not any(has_subnormals(value) for value in given):
                return f"different in step {n}, {kind}"
            found = "subnormal"
    return found


def has_subnormals(array):
    array = np.asarray(array)
    if array.dtype.kind in "biu" or array.dtype == np.float16:
        return False
    least = float(jnp.finfo(array.real.dtype if is_complex(array.dtype) else array.dtype).tiny)
    return any(((part != 0) & (np.abs(part) < least)).any() for part in parts(array))


def on_evaluator(folder, lowered, arguments, theirs):
    path, inputs, outputs = (os.path.join(folder, name) for name in ("program.mlir", "in.npz", "out.npz"))
    with open(path, "w") as file:
        file.write(lowered.as_text())
    raw = {f"p{n}": a.view("V2") if a.dtype == jnp.bfloat16 else a for n, a in enumerate(map(np.asarray, arguments))}
    np.savez(inputs, **raw)
    ran = subprocess.run(
        [OPTIONS.hloom, "run", path, "--engine", "eval", "--input", inputs, "--output", outputs], capture_output=True, text=True
    )
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr)
    with np.load(outputs) as made:
        return [made[f"d0.o{n}"].view(np.asarray(t).dtype).reshape(np.shape(t)) for n, t in enumerate(theirs)]


def compare_all(first, count, tell):
    """Compares programs, and tells of each: that it begins, that XLA is done with it, and the verdicts."""
    cpu = jax.devices("cpu")[0]
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            tell(seed, "begins", "xla")
            program = Program(seed)
            if not program.results:
                continue
            arguments = program.arguments(seed)
            xla = Xla(program, arguments, cpu)
            theirs = xla.cheap
            engines = {"cpu": lambda: xla.traced.lower().compile()(*arguments)}
            if not OPTIONS.no_eval:
                engines["eval"] = lambda: on_evaluator(folder, xla.lowered, arguments, theirs)
            for name, run in engines.items():
                tell(seed, "begins", name)
                try:
                    made = [np.asarray(m) for m in run()]
                except Exception as error:  # Whatever it is, it is told of.
                    verdict = f"failed: {str(error)[:300]}"
                else:
                    tell(seed, "begins", "xla")
                    verdict = verdict_on(xla, made)
                    if verdict not in EXPECTED and name == "eval":
                        verdict = step_by_step(folder, program, arguments, cpu)
                tell(seed, verdict, name)
                if verdict not in EXPECTED and OPTIONS.keep:
                    os.makedirs(OPTIONS.keep, exist_ok=True)
                    np.savez(os.path.join(OPTIONS.keep, f"{seed}.npz"), **{f"p{n}": a for n, a in enumerate(arguments)})
                    with open(os.path.join(OPTIONS.keep, f"{seed}.mlir"), "w") as file:
                        file.write(xla.lowered.as_text())


EXPECTED = ("same", "sensitive", "xla", "subnormal")
# So many programs are compared by one process: their code is gone with it, and so is a crash.
BATCH = 150


def main():
    if OPTIONS.batch:
        compare_all(OPTIONS.seed, OPTIONS.programs, lambda *told: print(json.dumps(told), flush=True))
        return
    counts, begun, seed = collections.Counter(), time.monotonic(), OPTIONS.seed
    end = OPTIONS.seed + OPTIONS.programs
    while seed < end and time.monotonic() - begun < OPTIONS.seconds:
        arguments = [*sys.argv[1:], "--batch", "--seed", str(seed), "--programs", str(min(BATCH, end - seed))]
        child = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
        where, last = "xla", seed + min(BATCH, end - seed)
        for line in child.stdout:
            seed, verdict, where = json.loads(line)
            if verdict == "begins":
                continue
            counts[f"{where}: {verdict.split(':')[0].split(' ')[0]}"] += 1
            if verdict not in EXPECTED:
                print(f"program {seed}, {where}: {verdict}", flush=True)
        status = child.wait()
        if status:
            print(f"program {seed}: {where} ended the process with {status}", flush=True)
            counts[f"{where}: crashed"] += 1
        seed = seed + 1 if status else last
        print(f"up to {seed}: {dict(counts)}", flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{used.ru_utime + used.ru_stime:.0f} s of processor time")
    bad = ("different", "failed", "crashed")
    sys.exit(any(word in key and key != "xla: crashed" for key in counts for word in bad))


if __name__ == "__main__":
    main()

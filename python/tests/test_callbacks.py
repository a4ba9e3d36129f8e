"""Calls back into Python, by the name `hloom` and by the name `cpu`: once, in order, with arrays of every kind.

Each case runs in a process of its own for each name, since a process has one client. Skipped where JAX or the library is
not there.
"""

import os
import subprocess
import sys
import unittest

try:
    import jax  # noqa: F401

    from jax_plugins import hloom

    MISSING = "" if os.path.exists(hloom.library_path()) else "hloom's library is not built"
except ImportError as error:
    MISSING = f"JAX is not there: {error}"

CASES = '''
import jax, jax.numpy as jnp, numpy as np, ml_dtypes
from jax import lax
from jax.experimental import io_callback

F32 = jax.ShapeDtypeStruct((), jnp.float32)

def case_branches():
    def f(p, x):
        twice = lambda x: jax.pure_callback(lambda a: a * 2, F32, x)
        thrice = lambda x: jax.pure_callback(lambda a: a * 3, F32, x)
        return lax.cond(p, twice, thrice, x)
    assert [float(jax.jit(f)(p, 1.0)) for p in (True, False)] == [2, 3]

def case_effects_of_branches():
    seen = []
    @jax.jit
    def f(p, x):
        lax.cond(p, lambda: jax.debug.callback(lambda a: seen.append("yes"), x),
                 lambda: jax.debug.callback(lambda a: seen.append("no"), x))
        return x
    f(True, 1.0); f(False, 1.0); jax.effects_barrier()
    assert seen == ["yes", "no"], seen

def case_loops():
    for n in (1, 2, 3, 4, 5, 9):
        seen = []
        def body(i, x):
            io_callback(lambda i: seen.append(int(i)), None, i, ordered=True)
            return x + 1
        jax.jit(lambda x: lax.fori_loop(0, n, body, x))(0.0)
        jax.effects_barrier()
        assert seen == list(range(n)), (n, seen)

def case_shapes():
    call = lambda f, shape, *x: jax.jit(lambda *x: jax.pure_callback(f, jax.ShapeDtypeStruct(shape, jnp.float32), *x))(*x)
    x = jnp.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(call(lambda a: np.asarray(a).T, (4, 3), x), np.asarray(x).T)
    np.testing.assert_array_equal(call(lambda a: np.asfortranarray(a), (3, 4), x), x)
    np.testing.assert_array_equal(call(lambda a: np.broadcast_to(np.asarray(a)[0], (3, 4)), (3, 4), x), [np.arange(4)] * 3)
    assert call(lambda a: np.asarray(a) * 2, (), jnp.float32(3)) == 6
    assert call(lambda a: np.zeros((0, 3), np.float32), (0, 3), jnp.zeros((0, 5))).shape == (0, 3)

def case_types():
    for name in ("int4", "uint4", "int2", "uint2", "float8_e4m3fn", "float4_e2m1fn", "bfloat16", "bool", "complex64"):
        dtype = jnp.dtype(getattr(ml_dtypes, name, None) or name)
        x = np.array([1, 0, 1, 1, 0]).astype(dtype)
        seen = []
        def f(a):
            seen.append(np.asarray(a).copy())
            return a
        y = jax.jit(lambda x: jax.pure_callback(f, jax.ShapeDtypeStruct((5,), dtype), x))(jnp.asarray(x))
        assert (np.asarray(y) == x).all() and (seen[0] == x).all(), (name, y, seen)

def case_ordered_results():
    seen = []
    def next(a):
        seen.append(float(a))
        return np.float32(a) + 1
    f = jax.jit(lambda x: io_callback(next, F32, io_callback(next, F32, x, ordered=True), ordered=True))
    assert f(1.0) == 3 and seen == [1, 2]

def case_compiled_ahead():
    seen = []
    def f(x):
        io_callback(lambda a: seen.append(float(a)), None, x, ordered=True)
        return x
    compiled = jax.jit(f).lower(jnp.float32(0)).compile()
    for i in range(4):
        compiled(jnp.float32(i))
    jax.effects_barrier()
    assert seen == [0, 1, 2, 3], seen

def case_errors():
    def fails(a):
        raise ValueError("not today")
    try:
        jax.jit(lambda x: jax.pure_callback(fails, F32, x))(1.0)
    except Exception as error:
        assert "not today" in str(error)
    else:
        raise AssertionError("the call did not raise it")

def case_buffers():
    from jax.experimental import buffer_callback
    def negate(context, out, x):
        np.asarray(out)[...] = -np.asarray(x)
    f = buffer_callback.buffer_callback(negate, jax.ShapeDtypeStruct((3,), jnp.float32))
    np.testing.assert_array_equal(jax.jit(f)(jnp.arange(3.0)), [0, -1, -2])
'''
NAMES = [line[4:].split("(")[0] for line in CASES.splitlines() if line.startswith("def case_")]


@unittest.skipIf(MISSING, MISSING)
class Callbacks(unittest.TestCase):
    def run_all(self, platform):
        variables = dict(os.environ, JAX_PLATFORMS="hloom,cpu", HLOOM_NUM_DEVICES="4", HLOOM_PLATFORM_NAME=platform)
        program = CASES + "".join(f"\n{name}(); print({name!r})" for name in NAMES)
        ran = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True)
        self.assertEqual(ran.stdout.split(), NAMES, ran.stderr)
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_as_hloom(self):
        self.run_all("hloom")

    def test_as_cpu(self):
        self.run_all("cpu")


if __name__ == "__main__":
    unittest.main()

"""JAX on hloom. Run with HLOOM_LIBRARY naming the built library and `python/` on the PYTHONPATH.

Skipped where JAX or the library is not there.
"""

import os
import unittest

os.environ.setdefault("JAX_PLATFORMS", "hloom,cpu")
os.environ.setdefault("HLOOM_NUM_DEVICES", "4")

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec as P

    from jax_plugins import hloom

    MISSING = "" if os.path.exists(hloom.library_path()) else "hloom's library is not built"
except ImportError as error:
    MISSING = f"JAX is not there: {error}"


@unittest.skipIf(MISSING, MISSING)
class OnOneDevice(unittest.TestCase):
    def test_arithmetic(self):
        np.testing.assert_array_equal(jax.jit(lambda x: x + 1)(jnp.arange(4)), [1, 2, 3, 4])

    def test_donated_arguments_are_gone(self):
        x = jnp.ones(3)
        y = jax.jit(lambda x: x * 2, donate_argnums=0)(x)
        np.testing.assert_array_equal(y, [2, 2, 2])
        self.assertTrue(x.is_deleted())

    def test_linear_algebra(self):
        a = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
        u, s, v = jnp.linalg.svd(a, full_matrices=False)
        np.testing.assert_allclose(u @ jnp.diag(s) @ v, a, atol=1e-5)

    def test_callbacks(self):
        got = jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), np.float32), jnp.arange(3.0))
        np.testing.assert_allclose(got, np.sin(np.arange(3, dtype=np.float32)))

        def fails(x):
            raise ValueError("not today")

        with self.assertRaisesRegex(RuntimeError, "not today"):
            jax.block_until_ready(jax.pure_callback(fails, jax.ShapeDtypeStruct((), np.float32), 1.0))

    def test_a_compiled_program_tells_of_itself(self):
        compiled = jax.jit(lambda x: x @ x).lower(jnp.ones((8, 8))).compile()
        self.assertEqual(compiled.cost_analysis()["flops"], 1024)
        self.assertEqual(compiled.memory_analysis().argument_size_in_bytes, 256)
        self.assertIn("HloModule", compiled.as_text())


@unittest.skipIf(MISSING, MISSING)
class OnSeveralDevices(unittest.TestCase):
    def setUp(self):
        if len(jax.devices()) < 4:
            self.skipTest("this needs four devices")
        auto = (jax.sharding.AxisType.Auto,) * 2
        self.mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=auto)

    def test_shard_map(self):
        a = np.arange(16, dtype=np.float32).reshape(4, 4)
        f = jax.shard_map(lambda a: jax.lax.psum(a, "x"), mesh=self.mesh, in_specs=P("x", "y"), out_specs=P(None, "y"))
        np.testing.assert_array_equal(jax.jit(f)(a), a[:2] + a[2:])

    def test_global_programs(self):
        a = np.arange(16, dtype=np.float32).reshape(4, 4)
        x = jax.device_put(a, NamedSharding(self.mesh, P("x", "y")))
        np.testing.assert_array_equal(jax.jit(lambda x: x @ x.T)(x), a @ a.T)
        spread = jax.jit(lambda x: x * 2, out_shardings=NamedSharding(self.mesh, P("y", "x")))(x)
        np.testing.assert_array_equal(spread, a * 2)


if __name__ == "__main__":
    unittest.main()

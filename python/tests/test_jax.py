"""JAX on hloom. Run with HLOOM_LIBRARY naming the built library and `python/` on the PYTHONPATH.

Skipped where JAX or the library is not there.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

os.environ.setdefault("JAX_PLATFORMS", "hloom,cpu")
os.environ.setdefault("HLOOM_NUM_DEVICES", "4")

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import io_callback
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

    def test_layouts_of_arguments_and_results(self):
        from jax.experimental.layout import Format, Layout

        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        columns = Format(Layout(major_to_minor=(1, 0)), sharding)
        put = jax.device_put(x, columns)
        self.assertEqual(put.format.layout.major_to_minor, (1, 0))
        np.testing.assert_array_equal(put, x)
        # What is not asked for is as it was given, and a result is as it is asked for.
        np.testing.assert_array_equal(jax.jit(lambda a: a @ a.T)(put), x @ x.T)
        turned = jax.jit(lambda a: a * 2, in_shardings=columns, out_shardings=columns)(put)
        self.assertEqual(turned.format.layout.major_to_minor, (1, 0))
        np.testing.assert_array_equal(turned, x * 2)
        # Where the compiler may choose, a transpose costs nothing.
        free = jax.jit(lambda a: a.T, out_shardings=Format(Layout.AUTO)).lower(x).compile()
        self.assertEqual(free.output_formats.layout.major_to_minor, (1, 0))
        np.testing.assert_array_equal(free(x), x.T)

    def test_donated_arrays_of_another_layout(self):
        from jax.experimental.layout import Format, Layout

        x = np.arange(12, dtype=np.int32).reshape(3, 4)
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        columns = Format(Layout(major_to_minor=(1, 0)), sharding)
        put = jax.device_put(x, columns)
        f = jax.jit(lambda a: a * a, in_shardings=columns, out_shardings=columns, donate_argnums=0)
        np.testing.assert_array_equal(f(put), x * x)
        self.assertTrue(put.is_deleted())

    def test_linear_algebra(self):
        a = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
        u, s, v = jnp.linalg.svd(a, full_matrices=False)
        np.testing.assert_allclose(u @ jnp.diag(s) @ v, a, atol=1e-5)

    def test_results_of_calls_with_layouts_of_their_own_are_row_major(self):
        # A solver of LAPACK, which works on columns, makes the result itself.
        x = jnp.asarray(np.diag([2.0, 4.0, 8.0]) + np.arange(9.0).reshape(3, 3) / 10, jnp.float32)
        inverse = jax.jit(jnp.linalg.inv)(x)
        self.assertEqual(inverse.format.layout.major_to_minor, (0, 1))
        np.testing.assert_allclose(jax.jit(jnp.matmul)(inverse, x), np.eye(3), atol=1e-5)

    def test_a_call_that_nobody_provides_is_an_error_of_the_call(self):
        missing = jax.ffi.ffi_call("nobody_provides_this", jax.ShapeDtypeStruct((3,), jnp.float32))
        with self.assertRaisesRegex(Exception, "nobody_provides_this"):
            jax.jit(lambda x: missing(x) + 1)(jnp.ones(3))

    def test_callbacks(self):
        got = jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), np.float32), jnp.arange(3.0))
        np.testing.assert_allclose(got, np.sin(np.arange(3, dtype=np.float32)))

        def fails(x):
            raise ValueError("not today")

        with self.assertRaisesRegex(RuntimeError, "not today"):
            jax.block_until_ready(jax.pure_callback(fails, jax.ShapeDtypeStruct((), np.float32), 1.0))

    def test_ordered_callbacks_and_printing(self):
        seen = []

        @jax.jit
        def f(x):
            jax.debug.print("x is {x}", x=x)
            io_callback(lambda v: seen.append(float(v)), None, x, ordered=True)
            io_callback(lambda v: seen.append(float(v) + 1), None, x, ordered=True)
            return x + 1

        self.assertEqual(f(1.0), 2.0)
        self.assertEqual(f(5.0), 6.0)
        jax.effects_barrier()
        self.assertEqual(seen, [1.0, 2.0, 5.0, 6.0])

    def test_calls_return_before_the_program_is_done(self):
        x = jnp.ones((128, 128)) / 128
        f = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, a: a @ x, x)).lower(x).compile()
        results = [f(x) for _ in range(3)]
        # The last depends on what may still be running.
        total = f(results[-1])
        jax.block_until_ready(total)
        self.assertTrue(all(r.is_ready() for r in results))
        np.testing.assert_allclose(total, x, rtol=1e-4)

    def test_a_callback_that_fails_is_an_error_of_the_call(self):
        def fails(x):
            raise ValueError("not today")

        f = jax.jit(lambda x: jax.pure_callback(fails, jax.ShapeDtypeStruct((), np.float32), x))
        with self.assertRaisesRegex(RuntimeError, "not today"):
            f(1.0)

    def test_a_saved_program_runs_again(self):
        from jax.experimental import serialize_executable

        x = jnp.arange(6.0).reshape(2, 3)
        compiled = jax.jit(lambda x: jnp.sin(x) @ x.T).lower(x).compile()
        saved = serialize_executable.serialize(compiled)
        again = serialize_executable.deserialize_and_load(*saved, execution_devices=jax.devices()[:1])
        np.testing.assert_array_equal(again(x), compiled(x))

    def test_jaxs_cache_hits_in_another_process(self):
        program = (
            "import jax, jax.numpy as jnp\n"
            "hits = []\n"
            "jax.monitoring.register_event_listener(lambda e, **_: hits.append(e) if 'cache_hits' in e else None)\n"
            "print(jax.jit(lambda x: jnp.sin(x) + 2)(jnp.arange(4.0)).sum(), len(hits))\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            settings = {
                "JAX_COMPILATION_CACHE_DIR": folder,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }

            def run():
                command = [sys.executable, "-c", program]
                done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                return done.stdout.split()

            first, second = run(), run()
        self.assertEqual(first[0], second[0])
        self.assertEqual(int(first[1]), 0)
        self.assertGreater(int(second[1]), 0)

    def test_what_is_compiled_and_run_is_written_into_a_folder(self):
        program = "import jax, jax.numpy as jnp; print(jax.jit(lambda x: jnp.tanh(x @ x.T).sum())(jnp.ones((4, 8))))"
        with tempfile.TemporaryDirectory() as folder:
            settings = {"HLOOM_DUMP_TO": folder, "HLOOM_NUM_DEVICES": "1"}
            command = [sys.executable, "-c", program]
            done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            names = [n for n in sorted(os.listdir(folder)) if "lambda" in n]
            for ending in (
                ".before_optimizations.txt",
                ".cpu_after_optimizations.txt",
                ".cpu_after_optimizations-buffer-assignment.txt",
                ".compile_report.txt",
                ".execution_0000.hlo_snapshot.pb",
            ):
                self.assertTrue([n for n in names if n.endswith(ending)], (ending, names))
            self.assertTrue([n for n in names if ".pipeline.after_" in n], names)
            key = names[0].split(".before")[0]
            report = pathlib.Path(folder, f"{key}.compile_report.txt").read_text(encoding="utf-8")
            self.assertIn("simplify", report)
            self.assertIn("flops: ", report)

    def test_programs_are_written_where_the_compile_options_say(self):
        with tempfile.TemporaryDirectory() as folder:
            options = {"xla_dump_to": folder, "xla_dump_hlo_as_proto": True}
            jax.jit(lambda x: x + 7, compiler_options=options)(jnp.arange(3))
            names = sorted(os.listdir(folder))
        self.assertEqual(sum(n.endswith("after_optimizations.txt") for n in names), 1, names)
        self.assertEqual(sum(n.endswith("after_optimizations.hlo.pb") for n in names), 1, names)

    def test_a_trace_names_the_programs_that_ran(self):
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                jax.block_until_ready(jax.jit(lambda x: x * 3, inline=False)(jnp.arange(5)))
            found = [p for p in pathlib.Path(folder).rglob("*.xplane.pb") if b"/host:hloom" in p.read_bytes()]
        self.assertTrue(found)

    def test_memory_in_use_is_counted(self):
        before = jax.devices()[0].memory_stats()
        x = jax.device_put(np.ones(1 << 16, np.float32), jax.devices()[0])
        after = jax.devices()[0].memory_stats()
        self.assertGreaterEqual(after["bytes_in_use"] - before["bytes_in_use"], x.nbytes)
        self.assertGreater(after["bytes_limit"], after["bytes_in_use"])

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

    def test_results_are_spread_as_what_they_are_made_of(self):
        a = np.arange(16, dtype=np.float32).reshape(4, 4)
        x = jax.device_put(a, NamedSharding(self.mesh, P("x", "y")))
        for function, spec in [
            (lambda x: x * 2 + 1, P("x", "y")),
            (lambda x: x.T, P("y", "x")),
            (lambda x: x.sum(axis=1), P("x")),
            (lambda x: x @ jnp.ones((4, 2)), P("x")),
        ]:
            got = jax.jit(function)(x)
            np.testing.assert_array_equal(got, function(a))
            self.assertTrue(got.sharding.is_equivalent_to(NamedSharding(self.mesh, spec), got.ndim), got.sharding)

    def test_axes_that_a_manual_computation_has_for_itself_do_not_cut_its_results(self):
        a = np.arange(16, dtype=np.float32).reshape(4, 4)
        x = jax.device_put(a, NamedSharding(self.mesh, P("x", "y")))
        got = jax.jit(jax.shard_map(lambda x: x * 2, mesh=self.mesh, in_specs=P("x"), out_specs=P("x")))(x)
        np.testing.assert_array_equal(got, a * 2)
        self.assertTrue(got.sharding.is_equivalent_to(NamedSharding(self.mesh, P("x")), 2), got.sharding)

    def test_manual_computations_in_one_another(self):
        a = np.arange(16, dtype=np.float32).reshape(4, 4)

        def inner(x):
            return x * (1 + jax.lax.axis_index("y")) + jax.lax.psum(x.sum(), "y")

        def outer(x):
            spec = P(None, "y")
            return jax.shard_map(inner, in_specs=spec, out_specs=spec, axis_names={"y"})(x)

        f = jax.shard_map(outer, mesh=self.mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
        half = a.reshape(2, 2, 4)
        wanted = half * np.array([1, 1, 2, 2]) + half.sum(axis=(1, 2), keepdims=True)
        np.testing.assert_array_equal(jax.jit(f)(a), wanted.reshape(4, 4))

    def test_shardings_are_told_while_programs_are_compiled(self):
        told = []

        def double(x):
            jax.debug.inspect_array_sharding(x, callback=told.append)
            return x * 2

        jax.jit(double)(jax.device_put(np.arange(8.0), NamedSharding(self.mesh, P("x"))))
        self.assertEqual([len(sharding.device_set) for sharding in told], [4])

    def test_what_was_exported_for_one_device_is_called_on_several(self):
        kind = (jax.sharding.AxisType.Auto,)
        alone = jax.make_mesh((1,), ("i",), axis_types=kind, devices=jax.devices()[:1])

        def total(x):
            return jax.lax.with_sharding_constraint(x, NamedSharding(alone, P("i"))).sum(0)

        x = np.arange(8.0, dtype=np.float32).reshape(4, 2)
        exported = jax.export.export(jax.jit(total))(x)
        several = jax.device_put(x, NamedSharding(self.mesh, P("x")))
        np.testing.assert_array_equal(jax.jit(exported.call)(several), x.sum(0))

    def test_sums_that_are_not_made_yet(self):
        mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
        a = np.arange(8, dtype=np.float32)
        with jax.set_mesh(mesh):
            x = jax.device_put(a, P("x"))
            f = jax.shard_map(lambda x: x, in_specs=P("x"), out_specs=P(unreduced={"x"}), check_vma=False)
            y = jax.jit(lambda x: jax.sharding.reshard(f(x), P()))(x)
        np.testing.assert_array_equal(y, a.reshape(4, 2).sum(axis=0))

    def test_global_programs(self):
        a = np.arange(16, dtype=np.float32).reshape(4, 4)
        x = jax.device_put(a, NamedSharding(self.mesh, P("x", "y")))
        np.testing.assert_array_equal(jax.jit(lambda x: x @ x.T)(x), a @ a.T)
        spread = jax.jit(lambda x: x * 2, out_shardings=NamedSharding(self.mesh, P("y", "x")))(x)
        np.testing.assert_array_equal(spread, a * 2)


if __name__ == "__main__":
    unittest.main()

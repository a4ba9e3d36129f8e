"""The examples: what they train gets better, and what they spread stays the same.

Skipped where JAX, Optax, Flax or the library is not there.
"""

import importlib.util
import os
import pathlib
import sys
import unittest

os.environ.setdefault("JAX_PLATFORMS", "hloom,cpu")
os.environ.setdefault("HLOOM_NUM_DEVICES", "4")

try:
    import jax
    import numpy as np

    from jax_plugins import hloom

    MISSING = "" if os.path.exists(hloom.library_path()) else "hloom's library is not built"
except ImportError as error:
    MISSING = f"JAX is not there: {error}"


def example(name: str):
    """The module of an example; the test is skipped if something that it imports is not there."""
    path = pathlib.Path(__file__).parent.parent / "examples" / f"{name}.py"
    if not path.exists():
        raise unittest.SkipTest(f"the examples are not beside the tests: {path}")
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise unittest.SkipTest(f"the example {name} needs more: {error}") from error
    return module


@unittest.skipIf(MISSING, MISSING)
class Examples(unittest.TestCase):
    def test_they_run_on_hloom(self):
        self.assertEqual(jax.devices()[0].client.platform, os.environ.get("HLOOM_PLATFORM_NAME", "hloom"))

    def test_digits_are_learnt(self):
        losses, accuracy = example("mnist").train(steps=30)
        self.assertLess(losses[-1], losses[0] / 2)
        self.assertGreater(accuracy, 0.9)

    def test_the_transformer_learns(self):
        losses = example("transformer").train(steps=20)
        self.assertTrue(all(np.isfinite(losses)))
        self.assertLess(losses[-1], losses[0] - 0.3)

    def test_the_recurrent_network_learns(self):
        losses = example("rnn").train(steps=60)
        self.assertLess(losses[-1], losses[0] / 2)

    def test_four_devices_compute_what_one_does(self):
        together, alone = example("tensor_parallel").compare()
        np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    unittest.main()

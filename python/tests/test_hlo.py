"""Running HLO from Python without JAX. Skipped where the command is not there."""

import unittest

import numpy as np

import hloom

ADD = """HloModule add
ENTRY main {
  x = f32[3] parameter(0)
  y = f32[3] parameter(1)
  s = f32[3] add(x, y)
  ROOT t = (f32[3], f32[3]) tuple(s, x)
}
"""

try:
    hloom.memory(ADD)
    MISSING = ""
except (hloom.HloomError, OSError) as error:
    MISSING = str(error)


@unittest.skipIf(MISSING, MISSING)
class Hlo(unittest.TestCase):
    def test_a_program_runs(self):
        x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
        total, same = hloom.run_hlo(ADD, [x, y])
        np.testing.assert_array_equal(total, x + y)
        np.testing.assert_array_equal(same, x)
        by_name, _ = hloom.run_hlo(ADD, {"p1": y, "p0": x})
        np.testing.assert_array_equal(by_name, x + y)

    def test_what_is_wrong_is_said(self):
        with self.assertRaisesRegex(hloom.HloomError, "f32\\[4\\]"):
            hloom.run_hlo(ADD.replace("s = f32[3]", "s = f32[4]"))

    def test_the_memory_of_a_program(self):
        self.assertIsInstance(hloom.memory(ADD), dict)


if __name__ == "__main__":
    unittest.main()

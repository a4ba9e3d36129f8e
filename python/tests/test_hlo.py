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
        told = hloom.memory(ADD)
        self.assertIsInstance(told, dict)
        self.assertIn("srcdoc=", told._repr_html_())

    def test_a_report_shows_itself(self):
        page = hloom.report(ADD)
        self.assertIn("<title>add · report</title>", page.html)
        shown = page._repr_html_()
        self.assertTrue(shown.startswith("<iframe sandbox="))
        self.assertNotIn("<script", shown)
        self.assertIn("comparison", hloom.report(ADD, ADD.replace("add(x, y)", "multiply(x, y)")).html)

    def test_a_report_takes_what_jax_lowers(self):
        class Lowered:
            def as_text(self, dialect):
                return ADD if dialect == "hlo" else "something else"

        class Compiled:
            def as_text(self):
                return ADD

        class WithSourceLines:
            def as_text(self, dialect=None, *, debug_info=False):
                place = ', metadata={op_name="jit(f)/add" source_file="net.py" source_line=7}' if debug_info else ""
                return ADD.replace("add(x, y)", f"add(x, y){place}")

        for program in (Lowered(), Compiled()):
            self.assertIn("add", hloom.report(program).html)
        told = hloom.diff(WithSourceLines(), ADD.replace("add(x, y)", "multiply(x, y)"))
        self.assertEqual(told["differences"][0]["a"]["source"], "net.py:7")
        with self.assertRaisesRegex(TypeError, "a program is text"):
            hloom.report(3)

    def test_a_difference_is_told(self):
        if "diff" not in hloom._command(["--help"], "."):
            self.skipTest("this hloom has no diff")
        found = hloom.diff(ADD, ADD.replace("add(x, y)", "multiply(x, y)"))
        self.assertTrue(str(found).startswith("1 difference (1 opcode)"), str(found))
        shown = found._repr_html_()
        self.assertIn("srcdoc=", shown)
        # It is about the programs, not about where they were written.
        self.assertIn("before.hlo → after.hlo", shown)
        self.assertNotIn("/before.hlo", shown)


if __name__ == "__main__":
    unittest.main()

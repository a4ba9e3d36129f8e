//! Barriers against optimisation, taken away when the passes that they hold back are done.
//!
//! A barrier keeps what stands before it from being shared with, or moved past, what stands behind it: that a value is
//! computed twice, to be kept for a shorter time, is up to the program. What comes after only puts together what is
//! computed side by side, and there a barrier only hinders. So does a rounding of bf16 to bf16 (`reduce-precision`), which
//! is a barrier against more digits.

use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use crate::rules::{convert, operand, tuple};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;

/// The pass.
pub static PASS: Pass = Pass {
    name: "remove-barriers",
    statement: "takes barriers against optimisation away, when there is no more to hold back",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| {
        let mut all = module.computations().iter().flat_map(|&c| module[c].instructions());
        let any = all.any(|&i| matches!(module[i].op, Op::OptBarrier | Op::ReducePrecision { .. }));
        Ok(if any { rewrite(module, &[RULES, convert::OF_SMALL, tuple::RULES]) } else { 0 })
    },
};

/// The rules.
pub static RULES: &[Rule] =
    &[Rule { name: "barrier", statement: "opt-barrier(x) → x", opcodes: &[Opcode::OptBarrier], apply: barrier }];

fn barrier(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    operand(module, i, 0)
}

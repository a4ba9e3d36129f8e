//! Calls that only say where a value is to be, or how it is sharded or laid out, taken away for a machine with one memory.

use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_eval::custom_call::placement::PLACEMENTS;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;

/// The pass.
pub static PASS: Pass = Pass {
    name: "remove-placements",
    statement: "takes custom calls away that say where a value is to be, and compute nothing",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[Rule {
    name: "placement",
    statement: "custom-call(x) to MoveToHost, Pin, LayoutConstraint and the like → x",
    opcodes: &[Opcode::CustomCall],
    apply: placement,
}];

fn placement(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::CustomCall(call) = &module[i].op else { return None };
    let &[value] = module[i].operands() else { return None };
    let is_placement = PLACEMENTS.contains(&&*call.target);
    (is_placement && module[i].shape.equal_ignoring_layout(&module[value].shape)).then_some(())?;
    // It has none but on other machines, and must not be kept for it.
    if let Op::CustomCall(call) = &mut module.instruction_mut(i).op {
        call.has_side_effect = false;
    }
    Some(value)
}

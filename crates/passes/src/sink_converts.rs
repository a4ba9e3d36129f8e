//! Conversions to a wider type behind gathers: what is gathered, stored to be gathered from or sent to be put together is
//! narrow.

use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;

/// The pass.
pub static PASS: Pass = Pass {
    name: "sink-converts",
    statement: "gather(convert(x)) → convert(gather(x)), where x is narrower",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(sink_converts(module)),
};

/// The rules.
static RULES: &[Rule] = &[Rule {
    name: "gather-convert",
    statement: "gather(convert(x)) → convert(gather(x)), where x is narrower",
    opcodes: &[Opcode::Gather],
    apply: gather_convert,
}];

/// As the pass; says how often.
pub fn sink_converts(module: &mut Module) -> usize {
    rewrite(module, &[RULES])
}

fn gather_convert(module: &mut Module, gather: InstructionId) -> Option<InstructionId> {
    let (Op::Gather(_), &[converted, indices]) = (&module[gather].op, module[gather].operands()) else { return None };
    let (Op::Convert, &[narrow]) = (&module[converted].op, module[converted].operands()) else { return None };
    let element_type = module[narrow].shape.as_array()?.element_type;
    let wide = module[gather].shape.as_array()?.clone();
    // How the wide array is to be sharded was somebody's wish.
    if element_type.bits() >= wide.element_type.bits() || module[converted].common.sharding.is_some() {
        return None;
    }
    let home = module[gather].parent();
    let sharding = module[gather].common.sharding.clone();
    let new = |name: &str, op, shape, operands: &[InstructionId]| NewInstruction {
        name: name.into(),
        op,
        shape,
        operands: Operands::from_slice(operands),
        common: Common { sharding: sharding.clone(), ..Common::default() },
    };
    let op = module[gather].op.clone();
    let gathered = new("gather", op, wide.with_element_type(element_type).into(), &[narrow, indices]);
    let gathered = module.add_instruction(home, gathered);
    Some(module.add_instruction(home, new("convert", Op::Convert, wide.into(), &[gathered])))
}

//! Conversions to a wider type behind gathers: what is gathered, and what is stored to be gathered from, is narrow.

use crate::edit::{add, array_of, flow_computations, remove_dead};
use crate::stage::{Stage, StageContext};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::Common;
use hloom_ir::module::Module;
use hloom_ir::op::Op;

/// The stage.
pub(crate) static STAGE: Stage = Stage {
    name: "sink-converts",
    statement: "gather(convert(x)) → convert(gather(x)), where x is narrower",
    run: |module: &mut Module, context: &StageContext<'_>| {
        let mut changes = 0;
        for c in flow_computations(module) {
            for i in module[c].instructions().to_vec() {
                changes += usize::from(sink(module, i).is_some());
            }
        }
        if changes > 0 {
            remove_dead(module, context.target)?;
        }
        Ok(changes) as Result<usize, Diagnostic>
    },
};

fn sink(module: &mut Module, gather: InstructionId) -> Option<()> {
    let (Op::Gather(_), &[converted, indices]) = (&module[gather].op, module[gather].operands()) else { return None };
    let (Op::Convert, &[narrow]) = (&module[converted].op, module[converted].operands()) else { return None };
    let (from, to) = (array_of(module, narrow)?.element_type, array_of(module, gather)?.element_type);
    if from.bits() >= to.bits() {
        return None;
    }
    let wide = module[gather].shape.clone();
    let shape = array_of(module, gather)?.with_element_type(from);
    let (op, common) = (module[gather].op.clone(), module[gather].common.clone());
    let gathered = add(module, gather, "gather", op, shape, &[narrow, indices], common);
    let result = add(module, gather, "convert", Op::Convert, wide, &[gathered], Common::default());
    module.replace_all_uses(gather, result).ok()
}

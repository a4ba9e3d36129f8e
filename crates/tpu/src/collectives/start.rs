//! Collectives that run beside other work: collective-permutes become a start and a done, and all-gathers where the machine
//! can carry them through fusions.

use crate::edit::{add, flow_computations, remove_dead};
use crate::stage::staged;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::Common;
use hloom_ir::layout::Layout;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_passes::Pass;

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "start-all-gathers",
    statement: "makes a start and a done of all-gathers and collective-permutes",
    keeps_schedule: false,
    run: |module, context| {
        staged(module, context, |module, context| {
            let all: Vec<InstructionId> =
                flow_computations(module).iter().flat_map(|&c| module[c].instructions()).copied().collect();
            let with_gathers = context.policy.carries_collectives;
            let changes = all.into_iter().filter(|&i| split(module, i, with_gathers).is_some()).count();
            // Together: a removal goes through the whole computation.
            remove_dead(module, context.target)?;
            Ok(changes) as Result<usize, Diagnostic>
        })
    },
};

/// Puts a start and a done in the place of a collective, which nothing reads any more then.
fn split(module: &mut Module, i: InstructionId, with_gathers: bool) -> Option<()> {
    let &[source] = module[i].operands() else { return None };
    let result = module[i].shape.clone();
    let from = module[source].shape.clone();
    if !result.is_array() || !from.is_array() {
        return None;
    }
    let (name, op, done_name, done, shape) = match &module[i].op {
        Op::AllGather(a) if with_gathers => {
            let shape = Shape::tuple([from, result.clone()]);
            ("all-gather-start", Op::AllGatherStart(a.clone()), "all-gather-done", Op::AllGatherDone, shape)
        }
        Op::CollectivePermute(p) => {
            let word: Shape = semaphore().into();
            let shape = Shape::tuple([from, result.clone(), word.clone(), word]);
            let start = Op::CollectivePermuteStart(p.clone());
            ("collective-permute-start", start, "collective-permute-done", Op::CollectivePermuteDone, shape)
        }
        _ => return None,
    };
    let common = Common { metadata: module[i].common.metadata.clone(), ..Common::default() };
    let start = add(module, i, name, op, shape, &[source], common);
    let done = add(module, i, done_name, done, result, &[start], Common::default());
    module.replace_all_uses(i, done).ok()
}

/// The shape of a semaphore.
pub(crate) fn semaphore() -> ArrayShape {
    let layout = Layout { memory_space: 2, ..Layout::default() };
    ArrayShape::new(ElementType::U32, []).with_layout(layout)
}

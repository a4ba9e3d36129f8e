//! Notes on collectives: the barrier at which devices meet, and the memory that an exchange reserves.
//!
//! Exchanges that are carried through fusions meet at barrier 0. Synchronous ones count from there, so that two that
//! follow each other never meet at the same one.

use crate::backend_config::BackendConfig;
use crate::edit::flow_computations;
use crate::stage::staged;
use hloom_ir::attributes::FusionKind;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{Fusion, Op};
use hloom_passes::Pass;

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "note-collectives",
    statement: "notes barriers and reserved memory on collectives",
    keeps_schedule: true,
    run: |module, context| staged(module, context, |module, _| Ok(note(module)) as Result<usize, Diagnostic>),
};

/// Main memory that a reduction between devices reserves.
const REDUCTION_BYTES: i64 = 64 << 20;

/// Whether a fusion stands for a reduction between devices.
fn is_reduction(module: &Module, fusion: &Fusion) -> bool {
    let reduces = |&i: &InstructionId| matches!(module[i].op, Op::AllReduce(_));
    fusion.kind == FusionKind::Custom && module[fusion.calls].instructions().iter().any(reduces)
}

fn note(module: &mut Module) -> usize {
    let computations = flow_computations(module);
    let all = || computations.iter().flat_map(|&c| module[c].instructions().to_vec());
    let is_carried = |op: &Op| matches!(op, Op::Fusion(f) if !f.output_operand_aliasing.is_empty());
    let mut barrier = i64::from(all().any(|i| is_carried(&module[i].op)));
    let mut changes = 0;
    for i in all().collect::<Vec<_>>() {
        let scoped = match module[i].op {
            Op::AllReduce(_) | Op::ReduceScatter(_) => vec![(0, REDUCTION_BYTES)],
            Op::Fusion(ref fusion) if is_reduction(module, fusion) => vec![(0, REDUCTION_BYTES)],
            Op::AllGather(_) => Vec::new(),
            _ => continue,
        };
        BackendConfig { barrier: Some(barrier), scoped, ..BackendConfig::default() }.set(module, i);
        barrier += 1;
        changes += 1;
    }
    changes
}

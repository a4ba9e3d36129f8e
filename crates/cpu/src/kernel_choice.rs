//! Which code an instruction gets on a CPU: the one place where that is decided.
//!
//! A routine written by hand where there is one, an output fusion where a fusion begins with a product that has one, loops
//! wherever there are any, and the evaluator for the rest, with the reason. The pass `assign-kernels` writes it on each
//! instruction; fusion asks whether a group would be left to the evaluator before it makes one.

use crate::library_call::LibraryCall;
use crate::output_fusion::{OutputFusion, product_of};
use hloom_ir::entity::InstructionId;
use hloom_ir::kernel_config::KernelConfig;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use hloom_loops::nests::MAX_PARTS;
use hloom_loops::{supports, supports_members};
use hloom_passes::pass::FusionCandidate;
use hloom_runtime::placement::hands_on;

/// What was chosen for an instruction, or would be where nothing is written on it.
pub(crate) fn kernel_of(module: &Module, id: InstructionId) -> KernelConfig {
    let written = is_chosen(&module[id].op).then(|| KernelConfig::of(&module[id])).flatten();
    written.unwrap_or_else(|| decide(module, id))
}

/// The code for an instruction that computes something; `None` for one that has none, or is carried out as it says itself.
pub(crate) fn choose(module: &Module, id: InstructionId) -> Option<KernelConfig> {
    is_chosen(&module[id].op).then(|| decide(module, id))
}

/// Whether the code of an instruction is chosen and written on it. Control flow, collectives and copies are what they are,
/// and the configuration of a custom call is the call's.
fn is_chosen(op: &Op) -> bool {
    let is_own = matches!(
        op,
        Op::Parameter { .. }
            | Op::Constant(_)
            | Op::Copy
            | Op::Reshape { .. }
            | Op::CopyStart { .. }
            | Op::ReplicaId
            | Op::PartitionId
            | Op::While { .. }
            | Op::Conditional { .. }
            | Op::Call { .. }
            | Op::AsyncStart(_)
            | Op::CustomCall(_)
    );
    let meets = op.collective().is_some() || matches!(op, Op::CollectivePermute(_) | Op::CollectivePermuteStart(_));
    !is_own && !meets && !hands_on(op)
}

fn decide(module: &Module, id: InstructionId) -> KernelConfig {
    let instruction = &module[id];
    let all = instruction.operands().iter().copied().chain([id]);
    let is_known_later = |shape: &Shape| shape.is_dynamic() || matches!(shape, Shape::Opaque);
    if all.into_iter().any(|i| module[i].shape.leaves().iter().any(|(_, leaf)| is_known_later(leaf))) {
        return KernelConfig::Evaluator { reason: "it has a size that is known at run time only".into() };
    }
    let may_be_library = match instruction.op {
        Op::Dot(_)
        | Op::Convolution(_)
        | Op::Sort { .. }
        | Op::TopK { .. }
        | Op::Fft { .. }
        | Op::SelectAndScatter { .. }
        | Op::Cholesky { .. }
        | Op::TriangularSolve { .. }
        | Op::CustomCall(_) => true,
        // Loops would ask of every element which of the arrays it is from.
        Op::Concatenate { .. } => instruction.operands().len() > MAX_PARTS,
        // In a loop it is better part of native code that is one whole.
        Op::Transpose { .. } => module.entry() == Some(instruction.parent()),
        _ => false,
    };
    if may_be_library && let Ok(call) = LibraryCall::new(module, id) {
        return KernelConfig::Library { routine: call.name().into() };
    }
    if let Some(routine) = output_fusion(module, id) {
        return KernelConfig::OutputFusion { routine: routine.into() };
    }
    match supports(module, id, None) {
        Ok(()) => KernelConfig::Loops,
        Err(why) => KernelConfig::Evaluator { reason: why.to_string().into() },
    }
}

/// The routine of an output fusion, if `id` is one that has kernels for both its parts.
fn output_fusion(module: &Module, id: InstructionId) -> Option<&'static str> {
    let product = product_of(module, id)?;
    let fusion = OutputFusion::new(module, id, product, 0)?;
    supports(module, id, Some(product)).is_ok().then(|| fusion.call.name())
}

/// Whether a fusion would get native code, and a product in it a kernel of its own.
pub(crate) fn supports_fusion(module: &Module, candidate: &FusionCandidate<'_>) -> bool {
    let &FusionCandidate { members, results, product } = candidate;
    product.is_none_or(|product| LibraryCall::new(module, product).is_ok())
        && supports_members(module, members, results, product).is_ok()
}

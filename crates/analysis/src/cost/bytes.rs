//! Memory traffic of one instruction.

use super::Cost;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::Instruction;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::{ArrayShape, Shape};
use std::collections::HashMap;

/// Bytes of all arrays in `shape`, packed where the layout says so; tile padding is not counted.
pub fn shape_bytes(shape: &Shape) -> u64 {
    match shape {
        Shape::Array(a) | Shape::Buffer(a) => array_bytes(a),
        Shape::Tuple(t) => t.iter().fold(0, |n, s| n.saturating_add(shape_bytes(s))),
        Shape::Token | Shape::Opaque => 0,
    }
}

fn array_bytes(array: &ArrayShape) -> u64 {
    if array.is_unbounded() {
        return 0;
    }
    let Some(elements) = array.element_count().and_then(|n| u64::try_from(n).ok()) else { return u64::MAX };
    let packed =
        array.layout.as_ref().and_then(|l| u64::try_from(l.element_size_in_bits).ok()).filter(|&bits| bits > 0);
    match packed {
        Some(bits) => elements.saturating_mul(bits).div_ceil(8),
        None => elements.saturating_mul(array.element_type.bytes() as u64),
    }
}

/// What a fused computation moves at its borders: bytes read of each parameter, and bytes written.
struct Borders {
    parameters: Vec<u64>,
    result: u64,
}

/// Measures traffic; remembers the borders of fused computations, which many fusions may share.
#[derive(Default)]
pub(super) struct FusedBytes {
    borders: HashMap<ComputationId, Borders>,
}

impl FusedBytes {
    /// Bytes that one execution of the instruction reads and writes itself.
    pub(super) fn own(&mut self, module: &Module, id: InstructionId) -> Cost {
        let instruction = module.instruction(id);
        let result = shape_bytes(&instruction.shape);
        let operand = |n: usize| operand_bytes(module, instruction, n);
        let operands = || (0..instruction.operands().len()).fold(0u64, |sum, n| sum.saturating_add(operand(n)));
        let all_but_first = || operands().saturating_sub(operand(0));
        let bytes = match &instruction.op {
            // These name or regroup values that are in memory already, or run computations that are measured apart.
            Op::Parameter { .. }
            | Op::Constant(_)
            | Op::Tuple
            | Op::GetTupleElement { .. }
            | Op::Bitcast
            | Op::AfterAll
            | Op::AddDependency
            | Op::OptBarrier
            | Op::Domain(_)
            | Op::ReplicaId
            | Op::PartitionId
            | Op::While { .. }
            | Op::Conditional { .. }
            | Op::Call { .. }
            | Op::AsyncStart(_)
            | Op::AsyncUpdate { .. }
            | Op::AsyncDone
            | Op::GetDimensionSize { .. }
            | Op::SetDimensionSize { .. } => 0,
            // The second half of an operation whose traffic its first half counts.
            Op::AllReduceDone
            | Op::AllGatherDone
            | Op::CollectivePermuteDone
            | Op::CopyDone
            | Op::SendDone(_)
            | Op::RecvDone(_) => 0,
            // The start's result names the operand again beside what it makes.
            Op::CopyStart { .. } | Op::CollectivePermuteStart(_) | Op::Send(_) => operands().saturating_mul(2),
            Op::AllGatherStart(_) => result,
            // What is taken is read, what is made is written, and the indices are read.
            Op::Slice { .. } => result.saturating_mul(2),
            Op::DynamicSlice { .. } | Op::Gather(_) => result.saturating_mul(2).saturating_add(all_but_first()),
            // In place: the update is read and written, the rest stays.
            Op::DynamicUpdateSlice => all_but_first().saturating_add(operand(1)),
            Op::Scatter(_) => {
                let n = instruction.operands().len() / 2;
                let updates = (n + 1..instruction.operands().len()).fold(0u64, |sum, i| sum.saturating_add(operand(i)));
                updates.saturating_mul(3).saturating_add(operand(n))
            }
            Op::Fusion(fusion) => {
                let borders = self.borders.entry(fusion.calls).or_insert_with(|| borders(module, fusion.calls));
                borders.parameters.iter().fold(borders.result, |sum, b| sum.saturating_add(*b))
            }
            _ => operands().saturating_add(result),
        };
        Cost { bytes, ..Cost::default() }
    }
}

fn operand_bytes(module: &Module, instruction: &Instruction, n: usize) -> u64 {
    instruction.operands().get(n).map_or(0, |&o| shape_bytes(&module.instruction(o).shape))
}

fn borders(module: &Module, computation: ComputationId) -> Borders {
    let parameters = module.parameters(computation).iter().map(|&p| parameter_bytes(module, p)).collect();
    let result = module.root(computation).map_or(0, |root| match module.instruction(root).op {
        Op::DynamicUpdateSlice if updates_parameter(module, root) => operand_bytes(module, module.instruction(root), 1),
        _ => shape_bytes(&module.instruction(root).shape),
    });
    Borders { parameters, result }
}

/// Bytes that a fused computation reads of its parameter: what its users take, where all of them take a part.
fn parameter_bytes(module: &Module, parameter: InstructionId) -> u64 {
    let whole = shape_bytes(&module.instruction(parameter).shape);
    let mut taken = 0u64;
    for &user in module.instruction(parameter).users() {
        let instruction = module.instruction(user);
        let is_data_only = instruction.operands().iter().skip(1).all(|&o| o != parameter);
        taken = taken.saturating_add(match instruction.op {
            Op::Slice { .. } | Op::DynamicSlice { .. } | Op::Gather(_) if is_data_only => {
                shape_bytes(&instruction.shape)
            }
            // What is updated in place is not read.
            Op::DynamicUpdateSlice if is_data_only && module.root(instruction.parent()) == Some(user) => 0,
            _ => whole,
        });
    }
    taken.min(whole)
}

/// Whether `update` changes a parameter of its computation in place.
fn updates_parameter(module: &Module, update: InstructionId) -> bool {
    let target = module.instruction(update).operands().first();
    target.is_some_and(|&t| matches!(module.instruction(t).op, Op::Parameter { .. }))
}

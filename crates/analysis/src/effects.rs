//! Which operations do more than make their value, and whose value is more than a function of their operands.

use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order;

/// Whether an operation does something besides making its value, the computations it calls aside. Such an instruction is
/// kept although nothing uses it.
pub fn has_side_effect(op: &Op) -> bool {
    match op {
        Op::Send(_) | Op::SendDone(_) | Op::Recv(_) | Op::RecvDone(_) => true,
        Op::Infeed { .. } | Op::Outfeed { .. } | Op::RngGetAndUpdateState { .. } => true,
        Op::CustomCall(call) => call.has_side_effect,
        _ => false,
    }
}

/// Whether an operation's value depends on more than its operands, or it does more than make it, the computations it
/// calls aside. Two such instructions that look alike may differ.
pub fn reaches_outside(op: &Op) -> bool {
    let meets = op.collective().is_some() || matches!(op, Op::CollectivePermute(_) | Op::CollectivePermuteStart(_));
    has_side_effect(op) || meets || matches!(op, Op::Rng { .. } | Op::CustomCall(_))
}

/// Whether an operation is a call that is known to come back with a function of its operands, whatever they are: LAPACK's.
pub fn is_function(op: &Op) -> bool {
    matches!(op, Op::CustomCall(call) if call.target.starts_with("lapack_") && !call.has_side_effect)
}

/// Whether an operation only makes arrays of arrays, so that it may be done at any time its operands are there, or not at
/// all, as far as the computations it calls allow.
pub fn only_computes(op: &Op) -> bool {
    op.is_elementwise()
        || matches!(
            op,
            Op::Iota { .. }
                | Op::Reshape { .. }
                | Op::Broadcast { .. }
                | Op::Transpose { .. }
                | Op::Reverse { .. }
                | Op::Concatenate { .. }
                | Op::Slice { .. }
                | Op::DynamicSlice { .. }
                | Op::Pad { .. }
                | Op::Gather(_)
                | Op::Dot(_)
                | Op::Convolution(_)
                | Op::Reduce { .. }
                | Op::ReduceWindow { .. }
                | Op::Sort { .. }
                | Op::Fft { .. }
                | Op::Cholesky { .. }
                | Op::TriangularSolve { .. }
        )
}

/// Which instructions `is` true of, and which computations have such an instruction in them or in what they call; an
/// instruction that calls such a computation is one, too.
pub fn instructions_with(
    module: &Module,
    is: impl Fn(&Op) -> bool,
) -> (SideTable<InstructionId, bool>, SideTable<ComputationId, bool>) {
    let mut effects = SideTable::with_len(module.instruction_slots(), false);
    let mut computation_has: SideTable<ComputationId, bool> = SideTable::default();
    for c in order::computations(module) {
        for &i in module[c].instructions() {
            let op = &module[i].op;
            if is(op) || op.called_computations().iter().any(|&callee| computation_has[callee]) {
                effects.set(i, true);
                computation_has.set(c, true);
            }
        }
    }
    (effects, computation_has)
}

//! Mixed precision: what an instruction computes whose operands and result have different floating-point types.
//!
//! Compilers that keep values in bf16 where they can leave such instructions behind. Their meaning here: operands are
//! widened to the widest type among them and the result, what is computed is rounded to the type that is written, and
//! reductions accumulate in their reducer's type. Values that enter a computation take the types of its parameters.
//!
//! Which instructions are concerned is found once, before the run; a program without any pays nothing.

use crate::interpreter::OperandValues;
use crate::ops::elementwise::convert;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::infer::wider_float;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use hloom_value::{ExecutionError, Value};
use rustc_hash::FxHashSet;

/// The instructions of a module that mix floating-point types, and the computations they call.
#[derive(Debug, Default)]
pub struct MixedPrecision {
    instructions: FxHashSet<InstructionId>,
    computations: FxHashSet<ComputationId>,
}

impl MixedPrecision {
    /// What of `module` mixes types.
    pub fn of(module: &Module) -> MixedPrecision {
        let mut mixed = MixedPrecision::default();
        for &i in module.computations().iter().flat_map(|&c| module[c].instructions()) {
            if mixes(module, i) {
                mixed.instructions.insert(i);
                mixed.computations.extend(module[i].op.called_computations());
            }
        }
        mixed
    }

    /// Whether `i` mixes types.
    pub fn has(&self, i: InstructionId) -> bool {
        !self.instructions.is_empty() && self.instructions.contains(&i)
    }

    /// Whether an instruction that mixes types calls `computation`.
    pub fn calls(&self, computation: ComputationId) -> bool {
        !self.computations.is_empty() && self.computations.contains(&computation)
    }
}

/// Whether the operands and the result of `i`, and for calls what is called, have more than one floating-point type. More
/// than what needs it is no harm: values that have the right type already are left alone.
pub(crate) fn mixes(module: &Module, i: InstructionId) -> bool {
    let op = &module[i].op;
    if matches!(op, Op::Tuple | Op::GetTupleElement { .. } | Op::Convert | Op::Parameter { .. } | Op::Constant(_)) {
        return false;
    }
    let mut first = None;
    let mut differs = |shape: &Shape| differs_from(shape, &mut first);
    let operands = module[i].operands().iter().any(|&o| differs(&module[o].shape));
    if operands || differs(&module[i].shape) {
        return true;
    }
    let called = op.called_computations();
    let mut inside = called.iter().flat_map(|&c| module.parameters(c).into_iter().chain(module.root(c)));
    inside.any(|p| differs(&module[p].shape))
}

/// Whether `shape` has a floating-point type other than `first`, which is set to the first one found.
fn differs_from(shape: &Shape, first: &mut Option<ElementType>) -> bool {
    match shape {
        Shape::Array(a) | Shape::Buffer(a) if a.element_type.component().is_float() => {
            let own = a.element_type.component();
            *first.get_or_insert(own) != own
        }
        Shape::Tuple(elements) => elements.iter().any(|e| differs_from(e, first)),
        _ => false,
    }
}

/// The operands of `i` as it computes with them: where it puts values of several operands together, all of the widest
/// type. Operations that know of several types themselves (element-wise ones, products, reductions, calls) are given
/// them as they are.
pub fn widen(module: &Module, i: InstructionId, operands: &mut OperandValues) -> Result<(), ExecutionError> {
    let together = matches!(
        module[i].op,
        Op::Concatenate { .. }
            | Op::Pad { .. }
            | Op::DynamicUpdateSlice
            | Op::SelectAndScatter { .. }
            | Op::BatchNormTraining { .. }
            | Op::BatchNormInference { .. }
            | Op::BatchNormGrad { .. }
            | Op::TriangularSolve { .. }
            | Op::AllToAll { .. }
            | Op::RaggedAllToAll { .. }
    );
    if !together {
        return Ok(());
    }
    let floats = operands.iter().filter_map(|v| match v {
        Value::Array(a) if a.element_type().is_float() => Some(a.element_type()),
        _ => None,
    });
    let Some(wide) = floats.reduce(wider_float) else { return Ok(()) };
    for value in operands.iter_mut() {
        if let Value::Array(a) = value
            && a.element_type().is_float()
            && a.element_type() != wide
        {
            *value = Value::Array(convert(a.clone(), wide)?);
        }
    }
    Ok(())
}

/// `value` with the floating-point types of `shape`.
pub fn rounded(value: Value, shape: &Shape) -> Result<Value, ExecutionError> {
    match (value, shape) {
        (Value::Array(a), Shape::Array(s) | Shape::Buffer(s))
            if a.element_type() != s.element_type && a.element_type().is_float() && s.element_type.is_float() =>
        {
            convert(a, s.element_type).map(Value::Array)
        }
        (Value::Tuple(values), Shape::Tuple(shapes)) if values.len() == shapes.len() => {
            let values = values.into_iter().zip(shapes.iter()).map(|(v, s)| rounded(v, s));
            Ok(Value::Tuple(values.collect::<Result<_, _>>()?))
        }
        (value, _) => Ok(value),
    }
}

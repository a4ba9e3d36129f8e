//! Operands whose dynamic dimensions have different sizes now.
//!
//! Shapes agree in their bounds only, so such operands pass the verifier. As in XLA, an operand that has size 1 where
//! others have more is repeated; otherwise the least size is that of the result, and operands are cut to it. A static
//! dimension takes the size of the dynamic ones it meets.

use crate::interpreter::OperandValues;
use crate::ops::{data_movement, slice_to};
use hloom_ir::layout::DimVec;
use hloom_ir::shape::Shape;
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};

/// Brings the arrays among `operands` (which have those shapes) to equal sizes; scalars stay.
pub(super) fn align<'s>(
    operands: &mut OperandValues,
    shapes: impl Iterator<Item = &'s Shape> + Clone,
) -> Result<(), ExecutionError> {
    let sizes = |v: &Value| v.as_array().map(|a| DimVec::from(a.dims())).unwrap_or_default();
    let Some(longest) = operands.iter().map(sizes).max_by_key(|dims| dims.len()) else { return Ok(()) };
    if longest.is_empty() || operands.iter().map(sizes).all(|dims| dims.is_empty() || dims == longest) {
        return Ok(());
    }
    let mut target = longest;
    for (d, size) in target.iter_mut().enumerate() {
        let mut dynamic = None;
        for (operand, shape) in operands.iter().zip(shapes.clone()) {
            let is_dynamic = shape.as_array().is_some_and(|s| s.is_dynamic_dim(d));
            if let (true, Some(&n)) = (is_dynamic, sizes(operand).get(d)) {
                dynamic = Some(dynamic.map_or(n, |m| common_size(m, n)));
            }
        }
        *size = dynamic.unwrap_or(*size);
    }
    for (operand, shape) in operands.iter_mut().zip(shapes) {
        if let Value::Array(a) = operand
            && a.rank() == target.len()
        {
            let repeats = |d: usize| a.dims()[d] == 1 && shape.as_array().is_some_and(|s| s.is_dynamic_dim(d));
            let kept: DimVec = (0..a.rank()).filter(|&d| !repeats(d)).map(|d| d as i64).collect();
            *a = fit(a, &target, &kept)?;
        }
    }
    Ok(())
}

fn common_size(m: i64, n: i64) -> i64 {
    if m.min(n) == 1 { m.max(n) } else { m.min(n) }
}

/// `a` cut to `target` in the dimensions `kept` and repeated in the others, in which it has size 1.
fn fit(a: &Array, target: &[i64], kept: &[i64]) -> Result<Array, ExecutionError> {
    let mut cut: DimVec = a.dims().into();
    for &d in kept {
        let d = d as usize;
        if target[d] > cut[d] {
            return Err(ExecutionError::bug(format!("{:?} cannot become {target:?}", a.dims())));
        }
        cut[d] = target[d];
    }
    let a = slice_to(a, &cut)?;
    let sizes: DimVec = kept.iter().map(|&d| target[d as usize]).collect();
    data_movement::broadcast(&a.reshaped(&sizes)?, target, kept)
}

//! Dynamic dimensions: asking for a size, setting it, reshaping to sizes known only at run time.
//!
//! An array has its actual sizes, so setting a size cuts the array (or, where it grows again, fills with zeros, since
//! what lies beyond the size is not defined).

use crate::interpreter::{Device, OperandValues};
use crate::ops::data_movement::{array_shape, slice_to};
use hloom_ir::diagnostic::codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::Op;
use hloom_value::ExecutionError;
use hloom_value::strided::{View, copy};
use hloom_value::{Array, Value};

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let mut arrays = operands.into_iter().map(Value::into_array);
    let mut next = || arrays.next().ok_or_else(|| ExecutionError::bug("an operand is missing"))?;
    match &module[i].op {
        Op::GetDimensionSize { dimension } => {
            let operand = next()?;
            let size =
                operand.dims().get(*dimension as usize).ok_or_else(|| ExecutionError::bug("no such dimension"))?;
            Array::scalar(ElementType::S32, *size as i32).map(Value::Array)
        }
        Op::SetDimensionSize { dimension } => {
            let (operand, size) = (next()?, next()?.to_i64()?);
            let bound = array_shape(&module[i].shape)?.dims()[*dimension as usize];
            if size < 0 || size > bound {
                return Err(ExecutionError::new(
                    &codes::eval::UNSUPPORTED,
                    format!("dimension {dimension} cannot have size {size}: its bound is {bound}"),
                ));
            }
            let mut sizes: DimVec = operand.dims().into();
            sizes[*dimension as usize] = size;
            resize(&operand, &sizes).map(Value::Array)
        }
        Op::DynamicReshape => {
            let operand = next()?;
            let sizes = arrays.map(|s| s.and_then(|s| s.to_i64())).collect::<Result<DimVec, _>>()?;
            let count = sizes.iter().try_fold(1i64, |n, &d| if d < 0 { None } else { n.checked_mul(d) });
            if count != Some(operand.len() as i64) {
                return Err(ExecutionError::new(
                    &codes::eval::UNSUPPORTED,
                    format!("{:?} cannot be reshaped to {sizes:?}: the numbers of elements differ", operand.dims()),
                ));
            }
            operand.reshaped(&sizes).map(Value::Array)
        }
        other => Err(ExecutionError::bug(format!("{} is not about dynamic sizes", other.opcode()))),
    }
}

/// `array` cut to `sizes`, or extended with zeros where those are larger.
pub fn resize(array: &Array, sizes: &[i64]) -> Result<Array, ExecutionError> {
    let kept: DimVec = array.dims().iter().zip(sizes).map(|(&a, &s)| a.min(s)).collect();
    if kept[..] == *sizes {
        return slice_to(array, sizes);
    }
    let mut result = Array::zeroed(array.element_type(), sizes)?;
    copy(&kept, array, &View::whole(array.dims()), &mut result, &View::whole(sizes))?;
    Ok(result)
}

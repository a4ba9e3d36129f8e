//! Calls that go between arrays of dynamic size and arrays of static size with their sizes beside them.

use super::CustomCalls;
use crate::interpreter::{Device, OperandValues};
use crate::ops::dynamic::resize;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};

pub(super) fn register(calls: &mut CustomCalls) {
    calls.register("PadToStatic", Box::new(pad_to_static));
    calls.register("SliceToDynamic", Box::new(slice_to_dynamic));
}

/// The array at its bounds, then each of its sizes.
fn pad_to_static(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let [array] = crate::ops::arrays(operands)?;
    let shape = device.module()[i].shape.as_tuple().and_then(|t| t.first()).and_then(|s| s.as_array());
    let shape = shape.ok_or_else(|| ExecutionError::bug("PadToStatic makes a tuple"))?;
    let mut values = vec![Value::Array(resize(&array, shape.dims())?)];
    for &size in array.dims() {
        values.push(Value::Array(Array::scalar(ElementType::S32, size as i32)?));
    }
    Ok(Value::Tuple(values))
}

/// The part of a static array that its sizes say is there.
fn slice_to_dynamic(_: &mut Device<'_>, _: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let mut arrays = operands.into_iter().map(Value::into_array);
    let array = arrays.next().ok_or_else(|| ExecutionError::bug("SliceToDynamic has no operand"))??;
    let mut sizes: DimVec = array.dims().into();
    for (size, given) in sizes.iter_mut().zip(arrays) {
        *size = given?.to_i64()?.clamp(0, *size);
    }
    resize(&array, &sizes).map(Value::Array)
}

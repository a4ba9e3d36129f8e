//! Arrays as memory: what a bitcast, and whatever else looks at the bytes of an array, makes of its layout.
//!
//! Where a bitcast only moves pieces ([`Moves`]) that is what is done. Otherwise the operand is written out as memory, its
//! padding filled with zeros, and read again under the other layout. That a result depends on what padding holds is
//! found before the program runs ([`crate::padding`]).

use crate::interpreter::{Device, OperandValues};
use crate::ops::data_movement::{concatenate, pad, slice_to, transpose};
use crate::ops::elementwise;
use hloom_ir::attributes::PaddingDim;
use hloom_ir::diagnostic::codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::layout::bitcast::Moves;
use hloom_ir::layout::memory::{MemoryForm, element_bits};
use hloom_ir::module::Module;
use hloom_ir::shape::ArrayShape;
use hloom_value::ExecutionError;
use hloom_value::array::{Array, Value};

/// Evaluates a bitcast.
pub(super) fn evaluate(
    device: &Device<'_>,
    i: InstructionId,
    operands: OperandValues,
) -> Result<Value, ExecutionError> {
    let module = device.module();
    let operand = operands.into_iter().next().ok_or_else(|| ExecutionError::bug("bitcast has no operand"))?;
    match (operand, shapes(module, i)) {
        (Value::Array(array), Some((from, to))) => bitcast(array, from, to, 0).map(Value::Array),
        (operand, _) => Ok(operand),
    }
}

/// The shapes between which the bitcast `i` reads memory; `None` if it gives its operand as it is.
pub(crate) fn shapes(module: &Module, i: InstructionId) -> Option<(&ArrayShape, &ArrayShape)> {
    let from = module[i].operands().first().and_then(|&o| module[o].shape.as_array_or_buffer())?;
    let to = module[i].shape.as_array_or_buffer()?;
    // Before a module is scheduled its layouts are only proposals, and a bitcast to the same shape is no transpose.
    let identity = from.same_dims_and_type(to) && (!module.is_scheduled || same_memory(from, to));
    (!identity).then_some((from, to))
}

fn same_memory(from: &ArrayShape, to: &ArrayShape) -> bool {
    let tiles = |a: &ArrayShape| a.layout.as_ref().map(|l| l.tiles.clone()).unwrap_or_default();
    from.minor_to_major() == to.minor_to_major() && tiles(from) == tiles(to) && element_bits(from) == element_bits(to)
}

/// `array` as the memory that its layout makes of it, read again under another type, dimensions and layout; every byte of
/// padding is `fill`.
pub fn bitcast(array: Array, from: &ArrayShape, to: &ArrayShape, fill: u8) -> Result<Array, ExecutionError> {
    if array.dims() != from.dims() {
        return dynamic_bitcast(array, from, to);
    }
    if array.is_empty() {
        return Array::zeroed(to.element_type, to.dims());
    }
    match Moves::of(from, to) {
        Some(moves) => moved(array, &moves, to),
        None => load(retyped(store(array, from, fill)?, from, to, fill)?, to, fill),
    }
}

/// The memory of several arrays, one after another, read as one.
pub fn concat_bitcast(parts: Vec<(Array, &ArrayShape)>, to: &ArrayShape, fill: u8) -> Result<Array, ExecutionError> {
    let mut memories = Vec::with_capacity(parts.len());
    for (array, from) in parts {
        if array.dims() != from.dims() {
            return Err(depends_on_machine(&array, from, to));
        }
        let memory = store(array, from, fill)?;
        let bits = memory.len() as i64 * element_bits(from);
        if bits % element_bits(to) != 0 {
            let message = format!("{from} ends within an element of {to}");
            return Err(ExecutionError::new(&codes::eval::UNSUPPORTED, message));
        }
        memories.push(retyped(memory, from, to, fill)?);
    }
    load(concatenate(&memories, 0)?, to, fill)
}

fn moved(array: Array, moves: &Moves, to: &ArrayShape) -> Result<Array, ExecutionError> {
    let wide = array.element_type().bits() > to.element_type.bits();
    let array = if wide { elementwise::bitcast_convert(array, moves.unit)? } else { array };
    let array = transpose(array.reshaped(&moves.split)?, &moves.order)?.reshaped(&moves.joined)?;
    if array.element_type() == to.element_type {
        Ok(array)
    } else {
        elementwise::bitcast_convert(array, to.element_type)
    }
}

/// How an array lies in memory; an error where nothing is known of that.
fn memory_form(shape: &ArrayShape) -> Result<MemoryForm, ExecutionError> {
    MemoryForm::of(shape).ok_or_else(|| {
        ExecutionError::new(&codes::eval::UNSUPPORTED, format!("how {shape} lies in memory is not known"))
    })
}

/// The memory of `array`, place by place.
fn store(array: Array, shape: &ArrayShape, fill: u8) -> Result<Array, ExecutionError> {
    let form = memory_form(shape)?;
    let mut value = transpose(array, &form.order)?;
    for stage in &form.stages {
        value = value.reshaped(&stage.joined)?;
        value = padded(value, &stage.padded, fill)?;
        value = transpose(value.reshaped(&stage.split)?, &stage.order)?;
    }
    value.reshaped(&[form.count])
}

/// `array` with places after it up to those sizes.
fn padded(array: Array, sizes: &[i64], fill: u8) -> Result<Array, ExecutionError> {
    if array.dims() == sizes {
        return Ok(array);
    }
    let element_type = array.element_type();
    let value = Array::from_bytes(element_type, &[], &vec![fill; element_type.bytes()])?;
    let padding = array.dims().iter().zip(sizes).map(|(n, size)| PaddingDim { low: 0, high: size - n, interior: 0 });
    let padding: Vec<PaddingDim> = padding.collect();
    pad(&array, &value, &padding)
}

/// The array of that shape out of its memory, which need not have all of it.
fn load(memory: Array, shape: &ArrayShape, fill: u8) -> Result<Array, ExecutionError> {
    let form = memory_form(shape)?;
    let have = memory.dims().first().copied().unwrap_or(0);
    let memory = padded(memory, &[have.max(form.count)], fill)?;
    let mut value = slice_to(&memory, &[form.count])?;
    for stage in form.stages.iter().rev() {
        value = transpose(value.reshaped(&stage.dims())?, &inverse(&stage.order))?.reshaped(&stage.padded)?;
        value = slice_to(&value, &stage.joined)?;
    }
    transpose(value.reshaped(&form.physical)?, &inverse(&form.order))
}

fn inverse(order: &[i64]) -> DimVec {
    let mut inverse: DimVec = order.into();
    for (k, &d) in order.iter().enumerate() {
        inverse[d as usize] = k as i64;
    }
    inverse
}

/// Places of one type as places of another.
fn retyped(memory: Array, from: &ArrayShape, to: &ArrayShape, fill: u8) -> Result<Array, ExecutionError> {
    let (from_bits, to_bits) = (element_bits(from), element_bits(to));
    if from.element_type == to.element_type && from_bits == to_bits {
        return Ok(memory);
    }
    let exact = |a: &ArrayShape| element_bits(a) == i64::from(a.element_type.bits());
    let (wide, narrow) = (from_bits.max(to_bits), from_bits.min(to_bits));
    if !exact(from) || !exact(to) || wide % narrow != 0 {
        let message = format!("a bitcast from {from} to {to} takes elements apart");
        return Err(ExecutionError::new(&codes::eval::UNSUPPORTED, message));
    }
    let ratio = wide / narrow;
    let count = memory.dims().first().copied().unwrap_or(0);
    let memory = if from_bits < to_bits {
        let groups = count / ratio + i64::from(count % ratio != 0);
        padded(memory, &[groups * ratio], fill)?.reshaped(&[groups, ratio])?
    } else {
        memory
    };
    let memory = elementwise::bitcast_convert(memory, to.element_type)?;
    let places = memory.len() as i64;
    memory.reshaped(&[places])
}

/// A bitcast of an array that is not as large now as its bounds: what that is in memory only the machine that ran the
/// program knows, unless its elements stay in their order.
fn dynamic_bitcast(array: Array, from: &ArrayShape, to: &ArrayShape) -> Result<Array, ExecutionError> {
    let wider = |dims: &[i64]| -> DimVec { dims.iter().copied().filter(|&n| n != 1).collect() };
    let in_order = |a: &ArrayShape| a.minor_to_major().iter().rev().enumerate().all(|(k, &d)| k as i64 == d);
    let same = from.element_type == to.element_type && wider(from.dims()) == wider(to.dims());
    let elements: i64 = array.dims().iter().product();
    let mut sizes = array.dims().iter().zip(from.dims()).filter(|(_, bound)| **bound != 1).map(|(n, _)| *n);
    let dims: DimVec = to.dims().iter().map(|&n| if n == 1 { 1 } else { sizes.next().unwrap_or(n) }).collect();
    if same && in_order(from) && in_order(to) && dims.iter().product::<i64>() == elements {
        return array.reshaped(&dims);
    }
    Err(depends_on_machine(&array, from, to))
}

fn depends_on_machine(array: &Array, from: &ArrayShape, to: &ArrayShape) -> ExecutionError {
    let given = array.shape();
    let message = format!("a bitcast from {from}, which is {given} now, to {to} depends on the machine");
    ExecutionError::new(&codes::eval::UNSUPPORTED, message)
}

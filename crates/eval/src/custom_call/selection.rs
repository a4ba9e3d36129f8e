//! Libraries that select, sort and scan: `TopK` in its forms and what approximates it, CUB's radix sorts and prefix sums.

use super::attributes::Attributes;
use super::{CustomCalls, config, shaped, unsupported};
use crate::interpreter::{Device, OperandValues};
use crate::ops::contraction::compute_type;
use crate::ops::data_movement::iota;
use crate::ops::dynamic::resize;
use crate::ops::elementwise::{binary_function, convert};
use crate::ops::sort::{radix_sort, sort_by, sort_by_keys, top_k};
use crate::scalar::Scalar;
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};

pub(super) fn register(calls: &mut CustomCalls) {
    for target in ["TopK", "__gpu$TopK"] {
        calls.register(target, Box::new(top_k_call));
    }
    for target in ["PartialReduce", "ApproxTopK"] {
        calls.register(target, Box::new(best_of_order));
    }
    for target in [
        "__cub$DeviceRadixSort",
        "__cub$DeviceRadixSortUnassignedScratchSize",
        "xla.gpu.ext.cub_sort_unassigned_scratch_size",
        "xla.gpu.ext.cub_sort_pairs",
        "xla.gpu.ext.cub_sort_keys",
    ] {
        calls.register(target, Box::new(cub_sort));
    }
    for target in ["xla.gpu.ext.cub_scan_unassigned_scratch_size", "xla.gpu.ext.cub_scan"] {
        calls.register(target, Box::new(cub_scan));
    }
}

/// The options of a call, which stand in its configuration as JSON or, for the foreign function interface, as an MLIR
/// dictionary.
enum CallOptions {
    Json(serde_json::Value),
    Dictionary(Attributes),
}

impl CallOptions {
    fn of(device: &Device<'_>, i: InstructionId) -> CallOptions {
        let text = device.module()[i].common.backend_config.as_deref().unwrap_or_default();
        match serde_json::from_slice(text) {
            Ok(json) => CallOptions::Json(json),
            Err(_) => CallOptions::Dictionary(Attributes::read(&String::from_utf8_lossy(text))),
        }
    }

    /// A number, or a truth as 0 or 1.
    fn get(&self, name: &str) -> Option<i64> {
        match self {
            CallOptions::Dictionary(attributes) => attributes.get(name),
            CallOptions::Json(json) => {
                let value = json.get(name)?;
                let text = || match value.as_str()? {
                    "true" => Some(1),
                    "false" => Some(0),
                    text => text.parse().ok(),
                };
                value.as_i64().or_else(|| value.as_bool().map(i64::from)).or_else(text)
            }
        }
    }
}

/// The k first elements of each row in the order of the comparator, or the largest, and where they are; k is in the
/// result's shape.
fn top_k_call(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let shape = &module[i].shape;
    let values = shape.as_tuple().and_then(|t| t.first()).and_then(Shape::as_array);
    let k = values.and_then(|v| v.dims().last().copied());
    let k = k.ok_or_else(|| unsupported(device, i, "its result is not a tuple of values and indices"))?;
    let largest = CallOptions::of(device, i).get("largest") != Some(0);
    let [operand] = crate::ops::arrays(operands)?;
    let called = module[i].op.called_computations();
    let selected = match *called {
        [] => top_k(operand, k, largest)?,
        [order] => match plain_order(module, order) {
            Some(largest) => top_k(operand, k, largest)?,
            None => first_in_order(device, i, operand, k, order)?,
        },
        _ => return Err(unsupported(device, i, "it has several comparators")),
    };
    shaped(shape, selected.into_tuple()?)
}

/// Whether a comparator of two elements asks for the larger or for the smaller first, and nothing else.
fn plain_order(module: &Module, comparator: ComputationId) -> Option<bool> {
    let root = &module[module.root(comparator)?];
    let Op::Compare { direction, .. } = root.op else { return None };
    let parameter = |o: usize| match module[*root.operands().get(o)?].op {
        Op::Parameter { number, .. } => Some(number),
        _ => None,
    };
    let swapped = match (parameter(0)?, parameter(1)?) {
        (0, 1) => false,
        (1, 0) => true,
        _ => return None,
    };
    match direction {
        ComparisonDirection::Gt | ComparisonDirection::Ge => Some(!swapped),
        ComparisonDirection::Lt | ComparisonDirection::Le => Some(swapped),
        _ => None,
    }
}

/// The first `k` elements of each row in the order of a comparator, which may look at their positions too.
fn first_in_order(
    device: &mut Device<'_>,
    i: InstructionId,
    operand: Array,
    k: i64,
    comparator: ComputationId,
) -> Result<Value, ExecutionError> {
    let keys = match device.module().parameters(comparator).len() {
        2 => 1,
        4 => 2,
        _ => {
            return Err(unsupported(device, i, "its comparator compares neither elements nor elements with positions"));
        }
    };
    let Some((&length, _)) = operand.dims().split_last() else {
        return Err(unsupported(device, i, "it selects from a scalar"));
    };
    let mut dims = operand.dims().to_vec();
    let last = dims.len() - 1;
    let positions = iota(&ArrayShape::new(ElementType::S32, dims.iter().copied()), last)?;
    dims[last] = k.clamp(0, length);
    let sorted = sort_by_keys(device, vec![operand, positions], keys, last, comparator)?;
    let first = sorted.iter().map(|a| resize(a, &dims).map(Value::Array));
    Ok(Value::Tuple(first.collect::<Result<_, _>>()?))
}

/// As many elements as the result has, the first in the order of a comparator. Where only approximate ones are asked for,
/// these are exact.
fn best_of_order(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let config = config(device, i)?;
    let number = |v: &serde_json::Value| v.as_i64().or_else(|| v.as_str()?.parse().ok());
    let called = module[i].op.called_computations();
    let (Some(dimension), &[to_apply]) = (config.get("reduction_dim").and_then(number), &called[..]) else {
        return Err(unsupported(device, i, "it needs a reduction_dim and a comparator"));
    };
    let shape = &module[i].shape;
    let parts = shape.as_tuple().map_or_else(|| vec![shape], |t| t.iter().collect());
    // What follows the arrays is what each slice would begin with, which sorting does not need.
    let arrays = operands.into_iter().take(parts.len()).map(Value::into_array).collect::<Result<Vec<_>, _>>()?;
    let rank = arrays.first().map_or(0, |a| a.rank() as i64);
    let dimension = if dimension < 0 { dimension + rank } else { dimension };
    if !(0..rank).contains(&dimension) {
        return Err(unsupported(device, i, "its reduction_dim is no dimension of its operands"));
    }
    let sorted = sort_by(device, arrays, dimension as usize, to_apply)?;
    let mut values = Vec::with_capacity(parts.len());
    for (array, part) in sorted.iter().zip(&parts) {
        let Some(part) = part.as_array() else { return Err(unsupported(device, i, "its result is no array")) };
        values.push(Value::Array(resize(array, part.dims())?));
    }
    shaped(shape, values)
}

/// Keys, and values with them, by the bits of the keys; then a workspace.
fn cub_sort(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let arrays = operands.into_iter().map(Value::into_array).collect::<Result<Vec<_>, _>>()?;
    if !(1..=2).contains(&arrays.len()) || arrays[0].rank() == 0 {
        return Err(unsupported(device, i, "it sorts neither keys nor keys with values"));
    }
    let descending = CallOptions::of(device, i).get("descending") == Some(1);
    let dimension = arrays[0].rank() - 1;
    let sorted = radix_sort(arrays, dimension, descending)?;
    shaped(&device.module()[i].shape, sorted.into_iter().map(Value::Array).collect())
}

/// Sums of what is before each element of a row in memory, itself included; then a workspace. Rows may hold vectors, which
/// are added element by element.
fn cub_scan(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let options = CallOptions::of(device, i);
    let sizes =
        ["column_length", "row_length", "vector_length"].map(|key| options.get(key).unwrap_or(1).max(0) as usize);
    let [columns, row, vector] = sizes;
    let is_sum = match &options {
        CallOptions::Json(json) => json.get("kind").is_some_and(|k| k.as_str() == Some("SUM") || k.as_i64() == Some(1)),
        CallOptions::Dictionary(attributes) => attributes.get("kind") == Some(1),
    };
    if !is_sum {
        return Err(unsupported(device, i, "it scans by another operation than a sum"));
    }
    let [array] = crate::ops::arrays(operands)?;
    // The operand lies as the result does, whatever an engine made of the copy that brought it there.
    let shape = module[i].shape.as_tuple().and_then(|t| t.first()).unwrap_or(&module[i].shape);
    let shape = shape.as_array().ok_or_else(|| ExecutionError::bug("a scan of no array"))?;
    let in_memory = match &shape.layout {
        Some(layout) => array.to_memory(layout)?,
        None => array,
    };
    let count = columns.checked_mul(row).and_then(|n| n.checked_mul(vector));
    if count != Some(in_memory.len()) {
        return Err(unsupported(device, i, "its lengths are not those of its operand"));
    }
    let to = in_memory.element_type();
    let mut sums = convert(in_memory, compute_type(to, to, to))?;
    let add = binary_function(BinaryOp::Add, sums.element_type());
    let add = add.ok_or_else(|| unsupported(device, i, "its elements cannot be added"))?;
    let reverse = options.get("is_reverse") == Some(1);
    let width = sums.element_type().bytes();
    for column in 0..columns {
        for step in 1..row {
            let (from, at) = if reverse { (row - step, row - step - 1) } else { (step - 1, step) };
            for lane in 0..vector {
                let place = |r: usize| (column * row + r) * vector + lane;
                let sum = add(Scalar::load(&sums, place(from)), Scalar::load(&sums, place(at)));
                sum.store(&mut sums.bytes_mut()[place(at) * width..(place(at) + 1) * width]);
            }
        }
    }
    let result = Array::from_memory(shape, convert(sums, to)?.bytes())?;
    shaped(&module[i].shape, vec![Value::Array(result)])
}

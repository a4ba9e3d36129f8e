//! LAPACK: the calls that JAX's programs make for linear algebra, `lapack_sgetrf_ffi` and its like, and those for other
//! machines that take and give the same.
//!
//! Operands and results are batches of matrices and vectors; layouts say how LAPACK wants them in memory, and are set
//! aside. Attributes stand in `backend_config` as an MLIR dictionary, characters as numbers: `{uplo = 76 : ui8}`. Most
//! calls end with an information word per matrix, which is zero if all went well.

mod routines;

use super::attributes::Attributes;
use super::{CustomCalls, shaped, unsupported};
use crate::interpreter::{Device, OperandValues};
use crate::linear_algebra::{C, Matrix, Number};
use crate::ops::elementwise::convert;
use hloom_ir::entity::InstructionId;
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_value::ExecutionError;
use hloom_value::array::{Array, Value, index_count};

/// One result for one matrix.
enum Part {
    Real(Vec<f64>),
    Complex(Vec<C>),
}

impl Part {
    fn of<T: Number>(elements: impl IntoIterator<Item = T>) -> Part {
        if T::TYPE.is_complex() {
            Part::Complex(elements.into_iter().map(|x| x.complex()).collect())
        } else {
            Part::Real(elements.into_iter().map(|x| x.re()).collect())
        }
    }

    fn integers(numbers: impl IntoIterator<Item = usize>) -> Part {
        Part::Real(numbers.into_iter().map(|n| n as f64).collect())
    }
}

/// What a routine is given: the attributes, the operands for one matrix (vectors are matrices of one column), and the
/// sizes of its results, without the batch.
struct Given<'g, T> {
    attributes: &'g Attributes,
    operands: Vec<Matrix<T>>,
    results: &'g [Vec<usize>],
}

/// A routine: the results for one matrix.
type Routine<T> = fn(Given<'_, T>) -> Vec<Part>;

/// A call: how many dimensions each operand has besides the batch, and what it does for real and complex numbers.
struct Entry {
    /// LAPACK's names for real and for complex numbers, without the letter of the type.
    names: [&'static str; 2],
    ranks: &'static [usize],
    /// Whether rows and columns of the operands go together.
    fits: fn(&[(usize, usize)]) -> bool,
    real: Routine<f64>,
    complex: Routine<C>,
}

pub(super) fn register(calls: &mut CustomCalls) {
    for entry in routines::ENTRIES {
        for (letter, is_complex) in [('s', false), ('d', false), ('c', true), ('z', true)] {
            let name = format!("lapack_{letter}{}_ffi", entry.names[usize::from(is_complex)]);
            calls.register(name, Box::new(move |device, i, operands| call(device, i, operands, entry)));
        }
    }
    // The same for GPUs.
    for routine in ["getrf", "geqrf", "orgqr", "ormqr", "potrf", "syevd", "sytrd"] {
        let entry = routines::ENTRIES.iter().find(|e| e.names[0] == routine);
        for library in ["cusolver", "hipsolver"] {
            if let Some(entry) = entry {
                let name = format!("{library}_{routine}_ffi");
                calls.register(name, Box::new(move |device, i, operands| call(device, i, operands, entry)));
            }
        }
    }
    for (name, entry) in routines::GPU_ENTRIES {
        for library in ["cu", "hip"] {
            let name = format!("{library}{name}_ffi");
            calls.register(name, Box::new(move |device, i, operands| call(device, i, operands, entry)));
        }
    }
    for (name, entry) in routines::TPU_ENTRIES {
        calls.register(*name, Box::new(move |device, i, operands| call(device, i, operands, entry)));
    }
    for name in ["cu_lu_pivots_to_permutation", "hip_lu_pivots_to_permutation"] {
        calls.register(name, Box::new(pivots_to_permutation));
    }
}

fn call(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
    entry: &Entry,
) -> Result<Value, ExecutionError> {
    let arrays = operands.into_iter().map(Value::into_array).collect::<Result<Vec<_>, _>>()?;
    match arrays.first().is_some_and(|a| a.element_type().is_complex()) {
        true => batched(device, i, arrays, entry, entry.complex),
        false => batched(device, i, arrays, entry, entry.real),
    }
}

/// The shapes of the results, whether there is one or a tuple of them.
fn result_shapes(shape: &Shape) -> Option<Vec<&ArrayShape>> {
    match shape {
        Shape::Tuple(elements) => elements.iter().map(Shape::as_array).collect(),
        other => other.as_array().map(|a| vec![a]),
    }
}

/// Runs `routine` for each matrix of the batch.
fn batched<T: Number>(
    device: &mut Device<'_>,
    i: InstructionId,
    arrays: Vec<Array>,
    entry: &Entry,
    routine: Routine<T>,
) -> Result<Value, ExecutionError> {
    let shape = &device.module()[i].shape;
    let wrong = |why: &str| unsupported(device, i, why);
    let shapes = result_shapes(shape).ok_or_else(|| wrong("its results are not arrays"))?;
    if arrays.len() != entry.ranks.len() {
        return Err(wrong("it has another number of operands"));
    }
    let config = device.module()[i].common.backend_config.as_deref().unwrap_or_default();
    let attributes = Attributes::read(&String::from_utf8_lossy(config));
    let mut batch: Option<Vec<i64>> = None;
    let mut operands = Vec::new();
    for (array, &rank) in arrays.into_iter().zip(entry.ranks) {
        let dims = array.dims().to_vec();
        let (leading, own) = dims.split_at_checked(dims.len().wrapping_sub(rank)).unwrap_or((&[], &[]));
        if own.len() != rank || batch.get_or_insert(leading.to_vec()) != leading {
            return Err(wrong("its operands do not have the dimensions that they need"));
        }
        let rows = own.first().map_or(1, |&d| d as usize);
        let columns = own.get(1).map_or(1, |&d| d as usize);
        operands.push((convert(array, T::TYPE)?, rows, columns));
    }
    let leading = batch.unwrap_or_default();
    let given: Vec<(usize, usize)> = operands.iter().map(|(_, rows, columns)| (*rows, *columns)).collect();
    if !(entry.fits)(&given) {
        return Err(wrong("rows and columns of its operands do not go together"));
    }
    // Without elements there is nothing to compute, whatever the other sizes are.
    if operands.iter().any(|(array, ..)| array.is_empty()) {
        return Value::zeroed(shape);
    }
    let mut sizes = Vec::new();
    for shape in &shapes {
        // A single number for all matrices stands where a result is not wanted.
        let own = match shape.dims().strip_prefix(&*leading) {
            Some(own) => own,
            None if shape.dims().is_empty() => &[],
            None => return Err(wrong("its results are of another batch")),
        };
        sizes.push(own.iter().map(|&d| d as usize).collect::<Vec<usize>>());
    }
    let count = index_count(&leading);
    let mut parts: Vec<Part> = Vec::new();
    for n in 0..count {
        let matrix = |(array, rows, columns): &(Array, usize, usize)| {
            let size = rows * columns;
            let elements = array.elements::<T>().get(n * size..(n + 1) * size).unwrap_or_default().to_vec();
            Matrix { rows: *rows, columns: *columns, elements }
        };
        let given = Given { attributes: &attributes, operands: operands.iter().map(matrix).collect(), results: &sizes };
        let results = routine(given);
        if n == 0 {
            parts = results;
            continue;
        }
        for (all, one) in parts.iter_mut().zip(results) {
            match (all, one) {
                (Part::Real(all), Part::Real(one)) => all.extend(one),
                (Part::Complex(all), Part::Complex(one)) => all.extend(one),
                _ => return Err(ExecutionError::bug("a routine gives now real numbers, now complex ones")),
            }
        }
    }
    let mut values = Vec::new();
    for (part, shape) in parts.into_iter().zip(&shapes) {
        if shape.dims().is_empty() && count != 1 {
            values.push(Value::zeroed(&Shape::from((*shape).clone()))?);
            continue;
        }
        let wide = match &part {
            Part::Real(x) if x.len() == index_count(shape.dims()) => Array::new(shape.dims(), x),
            Part::Complex(x) if x.len() == index_count(shape.dims()) => Array::new(shape.dims(), x),
            _ => None,
        };
        let wide = wide.ok_or_else(|| wrong("its results do not have the sizes that they need"))?;
        values.push(Value::Array(convert(wide, shape.element_type)?));
    }
    shaped(shape, values)
}

/// For rows that were exchanged one after another (pivots, counted from zero) where each came to be.
fn pivots_to_permutation(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
) -> Result<Value, ExecutionError> {
    let [pivots] = crate::ops::arrays(operands)?;
    let shape = result_shapes(&device.module()[i].shape).and_then(|s| s.first().map(|s| s.dims().to_vec()));
    let dims = shape.ok_or_else(|| unsupported(device, i, "its result is not an array"))?;
    let (rows, swaps) = (dims.last().copied().unwrap_or(0), pivots.dims().last().copied().unwrap_or(0));
    let batch = index_count(dims.split_last().map_or(&[], |(_, batch)| batch));
    let mut all = Vec::new();
    for n in 0..batch {
        let mut order: Vec<i32> = (0..rows as i32).collect();
        for k in 0..swaps as usize {
            let other = usize::try_from(pivots.integer_at(n * swaps as usize + k)?).unwrap_or(usize::MAX);
            if k >= order.len() || other >= order.len() {
                return Err(unsupported(device, i, "a pivot is not a row"));
            }
            order.swap(k, other);
        }
        all.extend(order);
    }
    let array = Array::new(&dims, &all).ok_or_else(|| ExecutionError::bug("as many as the dimensions say"))?;
    shaped(&device.module()[i].shape, vec![Value::Array(array)])
}

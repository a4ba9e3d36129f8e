//! Sparse matrices as JAX's programs hand them to libraries: `cpu_csr_sparse_dense_ffi` and cuSPARSE's calls.
//!
//! A matrix is its numbers with a row and a column each (COO), or with a column each and, for every row, where its numbers
//! begin (CSR). Numbers that name one place twice are added up.

use super::{CustomCalls, shaped, unsupported};
use crate::interpreter::{Device, OperandValues};
use crate::linear_algebra::{C, Number};
use crate::ops::elementwise::convert;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_value::ExecutionError;
use hloom_value::array::{Array, Value};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Coo,
    Csr,
}

pub(super) fn register(calls: &mut CustomCalls) {
    calls.register("cpu_csr_sparse_dense_ffi", Box::new(csr_product));
    for library in ["cusparse", "hipsparse"] {
        for (name, format) in [("coo", Format::Coo), ("csr", Format::Csr)] {
            let target = |what: &str| format!("{library}_{name}_{what}_ffi");
            calls.register(target("todense"), Box::new(move |d, i, operands| to_dense(d, i, operands, format)));
            calls.register(target("fromdense"), Box::new(move |d, i, operands| from_dense(d, i, operands, format)));
            for product in ["matvec", "matmat"] {
                calls.register(target(product), Box::new(move |d, i, operands| gpu_product(d, i, operands, format)));
            }
        }
    }
}

/// Numbers of a matrix with their places.
struct Entries {
    data: Array,
    places: Vec<(usize, usize)>,
}

impl Entries {
    /// From the two arrays of indices: rows and columns, or columns and where rows begin.
    fn read(data: Array, first: &Array, second: &Array, format: Format) -> Result<Option<Entries>, ExecutionError> {
        let index = |a: &Array, n: usize| a.integer_at(n).map(|x| usize::try_from(x).unwrap_or(usize::MAX));
        let mut places = Vec::with_capacity(data.len());
        match format {
            Format::Coo if first.len() == data.len() && second.len() == data.len() => {
                for n in 0..data.len() {
                    places.push((index(first, n)?, index(second, n)?));
                }
            }
            Format::Csr if first.len() == data.len() => {
                for row in 0..second.len().saturating_sub(1) {
                    let (begin, end) = (index(second, row)?, index(second, row + 1)?);
                    if begin != places.len() || end > data.len() {
                        return Ok(None);
                    }
                    for n in begin..end {
                        places.push((row, index(first, n)?));
                    }
                }
            }
            _ => return Ok(None),
        }
        Ok(Some(Entries { data, places }))
    }

    /// The product with a matrix or vector; entries outside of the result or the operand do not count.
    fn times(&self, dense: Array, to: &ArrayShape) -> Result<Array, ExecutionError> {
        match self.data.element_type().is_complex() {
            true => self.times_in::<C>(dense, to),
            false => self.times_in::<f64>(dense, to),
        }
    }

    fn times_in<T: Number>(&self, dense: Array, to: &ArrayShape) -> Result<Array, ExecutionError> {
        let width = dense.dims().get(1).map_or(1, |&d| d as usize);
        let rows = to.dims().first().map_or(0, |&d| d as usize);
        let data = convert(self.data.clone(), T::TYPE)?;
        let dense = convert(dense, T::TYPE)?;
        let (data, dense) = (data.elements::<T>(), dense.elements::<T>());
        let mut result = Array::zeroed(T::TYPE, to.dims())?;
        let sums = result.elements_mut::<T>();
        for (&(row, column), &factor) in self.places.iter().zip(data) {
            let from = column.checked_mul(width).and_then(|at| dense.get(at..at.checked_add(width)?));
            if let (true, Some(from)) = (row < rows, from) {
                for (sum, &x) in sums[row * width..(row + 1) * width].iter_mut().zip(from) {
                    *sum += factor * x;
                }
            }
        }
        convert(result, to.element_type)
    }
}

/// The first result of a call, or its only one.
fn first_shape<'m>(device: &Device<'m>, i: InstructionId) -> Result<&'m ArrayShape, ExecutionError> {
    let shape = &device.module()[i].shape;
    let first = shape.as_tuple().map_or(Some(shape), <[Shape]>::first);
    first.and_then(Shape::as_array).ok_or_else(|| unsupported(device, i, "its result is no array"))
}

fn arrays<const N: usize>(operands: OperandValues) -> Result<[Array; N], ExecutionError> {
    crate::ops::arrays(operands)
}

/// Numbers, where rows begin, columns, and what is multiplied.
fn csr_product(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let [data, begins, columns, dense] = arrays(operands)?;
    let to = first_shape(device, i)?;
    let entries = Entries::read(data, &columns, &begins, Format::Csr)?;
    let entries = entries.ok_or_else(|| unsupported(device, i, "its indices do not go with its numbers"))?;
    fits(device, i, &dense, to)?;
    shaped(&device.module()[i].shape, vec![Value::Array(entries.times(dense, to)?)])
}

fn fits(device: &Device<'_>, i: InstructionId, dense: &Array, to: &ArrayShape) -> Result<(), ExecutionError> {
    let same_width = dense.dims().get(1) == to.dims().get(1);
    match dense.rank() == to.rank() && (1..=2).contains(&dense.rank()) && same_width {
        true => Ok(()),
        false => Err(unsupported(device, i, "what it multiplies does not go with its result")),
    }
}

/// Whether the matrix is transposed stands in bytes that only the library reads: it is told where sizes and places leave no
/// doubt.
fn gpu_product(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
    format: Format,
) -> Result<Value, ExecutionError> {
    let [data, first, second, dense] = arrays(operands)?;
    let to = first_shape(device, i)?;
    fits(device, i, &dense, to)?;
    let (rows, columns) = (to.dims().first().copied(), dense.dims().first().copied());
    let entries = Entries::read(data, &first, &second, format)?;
    let mut entries = entries.ok_or_else(|| unsupported(device, i, "its indices do not go with its numbers"))?;
    let within = |size: Option<i64>, at: usize| size.is_some_and(|s| at < s as usize);
    let is_plain = entries.places.iter().all(|&(r, c)| within(rows, r) && within(columns, c));
    let is_turned = entries.places.iter().all(|&(r, c)| within(rows, c) && within(columns, r));
    let is_transposed = match format {
        Format::Csr if rows != columns => rows != Some(second.len() as i64 - 1),
        _ if is_plain != is_turned => is_turned,
        _ => return Err(unsupported(device, i, "whether its matrix is transposed cannot be told")),
    };
    if is_transposed {
        entries.places.iter_mut().for_each(|place| *place = (place.1, place.0));
    }
    shaped(&device.module()[i].shape, vec![Value::Array(entries.times(dense, to)?)])
}

fn to_dense(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
    format: Format,
) -> Result<Value, ExecutionError> {
    let [data, first, second] = arrays(operands)?;
    let to = first_shape(device, i)?;
    let entries = Entries::read(data, &first, &second, format)?;
    let entries = entries.ok_or_else(|| unsupported(device, i, "its indices do not go with its numbers"))?;
    let &[rows, columns] = to.dims() else { return Err(unsupported(device, i, "its result is no matrix")) };
    let width = entries.data.element_type().bytes();
    let mut dense = Array::zeroed(entries.data.element_type(), to.dims())?;
    for (&(row, column), number) in entries.places.iter().zip(entries.data.bytes().chunks_exact(width)) {
        if row < rows as usize && column < columns as usize {
            let at = (row * columns as usize + column) * width;
            dense.bytes_mut()[at..at + width].copy_from_slice(number);
        }
    }
    shaped(&device.module()[i].shape, vec![Value::Array(convert(dense, to.element_type)?)])
}

/// Numbers that are not zero, row by row; where there are fewer than there is room for, the rest is zero.
fn from_dense(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
    format: Format,
) -> Result<Value, ExecutionError> {
    let [matrix] = arrays(operands)?;
    let shape = &device.module()[i].shape;
    let parts: Vec<&ArrayShape> = shape.as_tuple().unwrap_or_default().iter().filter_map(Shape::as_array).collect();
    let (&[rows, columns], [data, first, second, ..]) = (matrix.dims(), &parts[..]) else {
        return Err(unsupported(device, i, "it needs a matrix, and gives numbers and their places"));
    };
    let room = data.dims().first().map_or(0, |&d| d as usize);
    let width = matrix.element_type().bytes();
    let (mut numbers, mut row_of, mut column_of, mut begins) = (Vec::new(), Vec::new(), Vec::new(), vec![0i64]);
    let is_zero = |x: &[u8]| {
        Array::from_bytes(matrix.element_type(), &[1], x).and_then(|a| {
            let wide = if a.element_type().is_complex() { ElementType::C128 } else { ElementType::F64 };
            Ok(convert(a, wide)?.bytes().iter().all(|&b| b == 0 || b == 0x80))
        })
    };
    for (n, x) in matrix.bytes().chunks_exact(width.max(1)).enumerate() {
        let (row, column) = (n as i64 / columns.max(1), n as i64 % columns.max(1));
        if !is_zero(x)? && row_of.len() < room {
            numbers.extend_from_slice(x);
            row_of.push(row);
            column_of.push(column);
        }
        if column + 1 == columns {
            begins.push(row_of.len() as i64);
        }
    }
    begins.resize(rows as usize + 1, row_of.len() as i64);
    numbers.resize(room * width, 0);
    row_of.resize(room, 0);
    column_of.resize(room, 0);
    let numbers = Array::from_bytes(matrix.element_type(), data.dims(), &numbers)?;
    let indices = |all: &[i64], to: &ArrayShape| {
        let wide = Array::new(to.dims(), all);
        let wide = wide.ok_or_else(|| unsupported(device, i, "its places do not go with its numbers"))?;
        convert(wide, to.element_type).map(Value::Array)
    };
    let places = match format {
        Format::Coo => [indices(&row_of, first)?, indices(&column_of, second)?],
        Format::Csr => [indices(&column_of, first)?, indices(&begins, second)?],
    };
    shaped(shape, [Value::Array(numbers)].into_iter().chain(places).collect())
}

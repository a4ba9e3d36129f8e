//! Cholesky decomposition and triangular solve, for batches of matrices. Computed in f64 or c128 and rounded once.

use crate::interpreter::{Device, OperandValues};
use crate::linear_algebra::triangular::{self, TriangularSystem};
use crate::linear_algebra::{C, Matrix, Number};
use crate::ops::arrays;
use crate::ops::elementwise::convert;
use hloom_ir::attributes::TransposeA;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Op;
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    match device.module()[i].op {
        Op::Cholesky { lower } => {
            let [a] = arrays(operands)?;
            cholesky(a, lower).map(Value::Array)
        }
        Op::TriangularSolve { left_side, lower, unit_diagonal, transpose_a } => {
            let [a, b] = arrays(operands)?;
            triangular_solve(a, b, TriangularSystem { left_side, lower, unit_diagonal, transpose_a }).map(Value::Array)
        }
        _ => Err(ExecutionError::bug("not linear algebra")),
    }
}

/// Rows and columns of the matrices in `a`.
fn matrix_size(a: &Array) -> Result<(usize, usize), ExecutionError> {
    match *a.dims() {
        [.., rows, columns] => Ok((rows as usize, columns as usize)),
        _ => Err(ExecutionError::bug("a matrix needs two dimensions")),
    }
}

/// The triangular factor of each matrix; all NaN where a matrix has none. The other triangle is zero.
pub fn cholesky(a: Array, lower: bool) -> Result<Array, ExecutionError> {
    match a.element_type().is_complex() {
        true => factors::<C>(a, lower, C::new(f64::NAN, f64::NAN)),
        false => factors::<f64>(a, lower, f64::NAN),
    }
}

fn factors<T: Number>(a: Array, lower: bool, none: T) -> Result<Array, ExecutionError> {
    let to = a.element_type();
    let (rows, columns) = matrix_size(&a)?;
    let mut wide = convert(a, T::TYPE)?;
    for elements in wide.elements_mut::<T>().chunks_exact_mut((rows * columns).max(1)) {
        let matrix = Matrix { rows, columns, elements: elements.to_vec() };
        match triangular::cholesky(&matrix, lower) {
            Ok(factor) => elements.copy_from_slice(&factor.elements),
            Err(_) => elements.fill(none),
        }
    }
    convert(wide, to)
}

/// The inverse of a triangle of each matrix; the other triangle is not looked at.
pub fn inverse_of_triangle(a: Array, lower: bool) -> Result<Array, ExecutionError> {
    let (rows, columns) = matrix_size(&a)?;
    if rows != columns {
        return Err(ExecutionError::bug("the inverse of a matrix needs as many rows as columns"));
    }
    let system = TriangularSystem { left_side: true, lower, unit_diagonal: false, transpose_a: TransposeA::None };
    let mut identity = Array::zeroed(ElementType::F64, a.dims())?;
    for matrix in identity.elements_mut::<f64>().chunks_exact_mut((rows * rows).max(1)) {
        matrix.iter_mut().step_by(rows + 1).for_each(|x| *x = 1.0);
    }
    let identity = convert(identity, a.element_type())?;
    triangular_solve(a, identity, system)
}

/// Solves the system for each pair of matrices, whose sizes go together.
pub fn triangular_solve(a: Array, b: Array, system: TriangularSystem) -> Result<Array, ExecutionError> {
    match b.element_type().is_complex() {
        true => solve::<C>(a, b, system),
        false => solve::<f64>(a, b, system),
    }
}

fn solve<T: Number>(a: Array, b: Array, system: TriangularSystem) -> Result<Array, ExecutionError> {
    let to = b.element_type();
    let (n, _) = matrix_size(&a)?;
    let (rows, columns) = matrix_size(&b)?;
    let a = convert(a, T::TYPE)?;
    let mut x = convert(b, T::TYPE)?;
    let matrices = a.elements::<T>().chunks_exact((n * n).max(1));
    for (a, b) in matrices.zip(x.elements_mut::<T>().chunks_exact_mut((rows * columns).max(1))) {
        let a = Matrix { rows: n, columns: n, elements: a.to_vec() };
        let mut solution = Matrix { rows, columns, elements: b.to_vec() };
        system.solve(&a, &mut solution);
        b.copy_from_slice(&solution.elements);
    }
    convert(x, to)
}

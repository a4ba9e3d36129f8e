//! Cholesky decomposition and triangular solve, for batches of matrices. Computed in c128 (reals have imaginary parts of
//! zero, exactly) and rounded once.

use crate::array::{Array, Value};
use crate::fault::Fault;
use crate::interpreter::{Device, OperandValues};
use crate::ops::arrays;
use crate::ops::elementwise::convert;
use hloom_ir::attributes::TransposeA;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Op;
use num_complex::Complex;

type C = Complex<f64>;

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, Fault> {
    match device.module()[i].op {
        Op::Cholesky { lower } => {
            let [a] = arrays(operands)?;
            cholesky(a, lower).map(Value::Array)
        }
        Op::TriangularSolve { left_side, lower, unit_diagonal, transpose_a } => {
            let [a, b] = arrays(operands)?;
            triangular_solve(a, b, left_side, lower, unit_diagonal, transpose_a).map(Value::Array)
        }
        _ => Err(Fault::bug("not linear algebra")),
    }
}

/// Rows and columns of the matrices in `a`.
fn matrix_size(a: &Array) -> Result<(usize, usize), Fault> {
    match *a.dims() {
        [.., rows, columns] => Ok((rows as usize, columns as usize)),
        _ => Err(Fault::bug("a matrix needs two dimensions")),
    }
}

/// The triangular factor of each matrix; all NaN where a matrix has none. The other triangle is zero.
pub fn cholesky(a: Array, lower: bool) -> Result<Array, Fault> {
    let to = a.element_type();
    let (n, _) = matrix_size(&a)?;
    let mut wide = convert(a, ElementType::C128)?;
    for matrix in wide.elements_mut::<C>().chunks_exact_mut((n * n).max(1)) {
        // The lower factor, reading the triangle that is given.
        let at = |m: &[C], r: usize, c: usize| if lower { m[r * n + c] } else { m[c * n + r].conj() };
        let mut factor = vec![C::default(); n * n];
        let mut definite = true;
        for c in 0..n {
            let square: f64 = factor[c * n..c * n + c].iter().map(|x| x.norm_sqr()).sum();
            let diagonal = at(matrix, c, c).re - square;
            definite &= diagonal > 0.0;
            let root = diagonal.sqrt();
            factor[c * n + c] = C::new(root, 0.0);
            for r in c + 1..n {
                let sum: C = (0..c).map(|k| factor[r * n + k] * factor[c * n + k].conj()).sum();
                factor[r * n + c] = (at(matrix, r, c) - sum) / root;
            }
        }
        for r in 0..n {
            for c in 0..n {
                matrix[r * n + c] = match (definite, lower) {
                    (false, _) => C::new(f64::NAN, f64::NAN),
                    (true, true) => factor[r * n + c],
                    (true, false) => factor[c * n + r].conj(),
                };
            }
        }
    }
    convert(wide, to)
}

/// Solves op(a) × x = b, or x × op(a) = b, for each pair of matrices.
fn triangular_solve(
    a: Array,
    b: Array,
    left_side: bool,
    lower: bool,
    unit_diagonal: bool,
    transpose_a: TransposeA,
) -> Result<Array, Fault> {
    let to = b.element_type();
    let (n, _) = matrix_size(&a)?;
    let (rows, columns) = matrix_size(&b)?;
    let a = convert(a, ElementType::C128)?;
    let mut x = convert(b, ElementType::C128)?;
    let count = rows * columns;
    for (matrix, b) in
        a.elements::<C>().chunks_exact((n * n).max(1)).zip(x.elements_mut::<C>().chunks_exact_mut(count.max(1)))
    {
        // op(a), with only the given triangle read.
        let given = |r: usize, c: usize| match (r == c, (c < r) == lower) {
            (true, _) if unit_diagonal => C::new(1.0, 0.0),
            (true, _) | (false, true) => matrix[r * n + c],
            _ => C::default(),
        };
        let op = |r: usize, c: usize| match transpose_a {
            TransposeA::None => given(r, c),
            TransposeA::Transpose => given(c, r),
            TransposeA::Adjoint => given(c, r).conj(),
        };
        // x × op(a) = b is op(a)ᵀ × xᵀ = bᵀ: one solver, reading b by columns or by rows.
        let system = |r: usize, c: usize| if left_side { op(r, c) } else { op(c, r) };
        let (right_hand_sides, step, stride) = if left_side { (columns, 1, columns) } else { (rows, columns, 1) };
        let effective_lower = (lower == (transpose_a == TransposeA::None)) == left_side;
        for s in 0..right_hand_sides {
            for k in 0..n {
                let r = if effective_lower { k } else { n - 1 - k };
                let known = if effective_lower { 0..r } else { r + 1..n };
                let sum: C = known.map(|c| system(r, c) * b[s * step + c * stride]).sum();
                let at = s * step + r * stride;
                b[at] = (b[at] - sum) / system(r, r);
            }
        }
    }
    convert(x, to)
}

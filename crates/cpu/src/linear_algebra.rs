//! Factors of matrices and triangular systems: the instructions of HLO, and the calls of LAPACK that JAX's programs make
//! for them.
//!
//! Arrays are row-major whatever layout a call states, as everywhere in the engine.

use crate::library_call::{NoRoutine, Threads, array, slice, slice_mut};
use crate::library_routine::count;
use hloom_cpu_kernels::linear_algebra::{
    Cholesky, Diagonals, Lu, Qr, ReflectorProduct, Scalar, TriangularSolve, Tridiagonal,
};
use hloom_eval::custom_call::attributes::Attributes;
use hloom_ir::attributes::TransposeA;
use hloom_ir::element_type::ElementType;
use hloom_ir::instruction::Instruction;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::ArrayShape;

/// A routine with all it has to know but the arrays.
#[derive(Debug)]
pub(crate) struct LinearAlgebra {
    kind: Kind,
    is_double: bool,
}

#[derive(Debug)]
enum Kind {
    /// Results: the factors, the pivots, and for each matrix whether a pivot is zero.
    Lu(Lu),
    /// Results: the factors, and for each matrix whether there is one.
    CholeskyWithWord(Cholesky),
    /// The factor with zeros in the other triangle; NaN where there is none.
    Cholesky(Cholesky),
    Triangular(TriangularSolve),
    /// Results: R and the reflectors, and the τ of each.
    Qr(Qr),
    ReflectorProduct(ReflectorProduct),
    /// Results: the diagonals of U, the solutions, and for each matrix whether a pivot is zero.
    Tridiagonal(Tridiagonal),
}

/// Rows and columns of the matrices in an array, and how many there are.
fn matrices(shape: &ArrayShape) -> Result<(usize, usize, usize), NoRoutine> {
    let (batch, &[rows, columns]) = shape.dims().split_last_chunk::<2>().ok_or("it has no matrices")?;
    Ok((count(batch)?, count(&[rows])?, count(&[columns])?))
}

/// How many vectors there are in an array, and how long they are.
fn vectors(shape: &ArrayShape) -> Result<(usize, usize), NoRoutine> {
    let (&length, batch) = shape.dims().split_last().ok_or("it has no vectors")?;
    Ok((count(batch)?, count(&[length])?))
}

impl LinearAlgebra {
    /// The routine for an instruction, or why there is none.
    pub(crate) fn new(module: &Module, instruction: &Instruction) -> Result<LinearAlgebra, NoRoutine> {
        let none = || NoRoutine::from(format!("there is no kernel for {}", instruction.op.opcode()));
        let config = instruction.common.backend_config.as_deref().unwrap_or_default();
        let attributes = || Attributes::read(&String::from_utf8_lossy(config));
        let shapes = instruction.operands().iter().map(|&o| array(module, o)).collect::<Result<Vec<_>, _>>();
        // Other calls are no concern of ours, whatever they are given.
        let shapes = shapes.map_err(|_| none())?;
        let element_type = shapes.first().ok_or_else(none)?.element_type;
        let is_double = match element_type {
            ElementType::F32 => false,
            ElementType::F64 => true,
            other => return Err(format!("there is no kernel for {other}").into()),
        };
        let kind = match &instruction.op {
            Op::Cholesky { lower } => Kind::Cholesky(cholesky(&shapes, *lower)?),
            &Op::TriangularSolve { left_side, lower, unit_diagonal, transpose_a } => {
                let is_transposed = transpose_a != TransposeA::None;
                Kind::Triangular(triangular(&shapes, left_side, lower, unit_diagonal, is_transposed)?)
            }
            Op::CustomCall(call) => match &*call.target {
                "lapack_sgetrf_ffi" | "lapack_dgetrf_ffi" => Kind::Lu(lu(&shapes)?),
                "lapack_spotrf_ffi" | "lapack_dpotrf_ffi" => {
                    Kind::CholeskyWithWord(cholesky(&shapes, attributes().is_lower())?)
                }
                "lapack_strsm_ffi" | "lapack_dtrsm_ffi" => {
                    let attributes = attributes();
                    let (left, unit) = (attributes.is("side", b'L'), attributes.is("diag", b'U'));
                    let is_transposed = attributes.is("trans_x", b'T') || attributes.is("trans_x", b'C');
                    Kind::Triangular(triangular(&shapes, left, attributes.is_lower(), unit, is_transposed)?)
                }
                "lapack_sgeqrf_ffi" | "lapack_dgeqrf_ffi" => Kind::Qr(qr(&shapes)?),
                "lapack_sorgqr_ffi" | "lapack_dorgqr_ffi" => Kind::ReflectorProduct(reflector_product(&shapes)?),
                "lapack_sgtsv_ffi" | "lapack_dgtsv_ffi" => Kind::Tridiagonal(tridiagonal(&shapes)?),
                _ => return Err(none()),
            },
            _ => return Err(none()),
        };
        let leaves = instruction.shape.leaves();
        let types: Vec<_> = leaves.iter().map(|(_, shape)| shape.element_type()).collect();
        let (own, s32) = (Some(element_type), Some(ElementType::S32));
        let known = match &kind {
            Kind::Lu(_) => types == [own, s32, s32],
            Kind::CholeskyWithWord(_) => types == [own, s32],
            Kind::Cholesky(_) | Kind::Triangular(_) | Kind::ReflectorProduct(_) => types == [own],
            Kind::Qr(_) => types == [own, own],
            Kind::Tridiagonal(_) => types == [own, own, own, own, s32],
        };
        match known && shapes.iter().all(|s| s.element_type == element_type) {
            true => Ok(LinearAlgebra { kind, is_double }),
            false => Err("its arrays are of other types".into()),
        }
    }

    /// What it is, for the report.
    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Lu(_) => "lu",
            Kind::CholeskyWithWord(_) | Kind::Cholesky(_) => "cholesky",
            Kind::Triangular(_) => "triangular-solve",
            Kind::Qr(_) => "qr",
            Kind::ReflectorProduct(_) => "householder-product",
            Kind::Tridiagonal(_) => "tridiagonal-solve",
        }
    }

    /// Runs it; `None` if the arrays are of other sizes.
    ///
    /// # Safety
    /// The addresses must be those of the instruction's arrays, `bytes` long: operands, then results. A result may be the
    /// operand that it takes the place of; nothing else may overlap.
    pub(crate) unsafe fn run(&self, arrays: &[*mut u8], bytes: &[usize], parallel: &Threads<'_>) -> Option<()> {
        // SAFETY: the caller's promise.
        match self.is_double {
            true => unsafe { self.run_in::<f64>(arrays, bytes, parallel) },
            false => unsafe { self.run_in::<f32>(arrays, bytes, parallel) },
        }
    }

    /// # Safety
    /// As for [`LinearAlgebra::run`].
    unsafe fn run_in<T: Scalar>(&self, arrays: &[*mut u8], bytes: &[usize], parallel: &Threads<'_>) -> Option<()> {
        // SAFETY (all): the caller's promise; `in_place` leaves one slice of an array that is both operand and result.
        match (&self.kind, arrays, bytes) {
            (Kind::Lu(lu), &[from, to, pivots, singular], &[m, n, p, s]) => unsafe {
                let matrices = in_place::<T>(from, to, m, n)?;
                lu.run(matrices, slice_mut(pivots, p), slice_mut(singular, s), parallel)
            },
            (Kind::CholeskyWithWord(cholesky), &[from, to, failed], &[m, n, f]) => unsafe {
                cholesky.run(in_place::<T>(from, to, m, n)?, slice_mut(failed, f), parallel)
            },
            (Kind::Cholesky(cholesky), &[from, to], &[m, n]) => {
                // SAFETY: as above.
                let matrices = unsafe { in_place::<T>(from, to, m, n)? };
                let mut failed = vec![0; cholesky.batch];
                cholesky.run(matrices, &mut failed, parallel)?;
                finish(cholesky, matrices, &failed);
                Some(())
            }
            (Kind::Triangular(system), &[a, from, to], &[k, m, n]) => unsafe {
                system.run::<T>(slice(a, k), in_place(from, to, m, n)?, parallel)
            },
            (Kind::Qr(qr), &[from, to, taus], &[m, n, t]) => unsafe {
                qr.run::<T>(in_place(from, to, m, n)?, slice_mut(taus, t), parallel)
            },
            (Kind::ReflectorProduct(product), &[from, taus, to], &[m, t, n]) => unsafe {
                product.run::<T>(in_place(from, to, m, n)?, slice(taus, t), parallel)
            },
            (Kind::Tridiagonal(system), &[dl, d, du, b, to_dl, to_d, to_du, to_b, singular], sizes) => unsafe {
                let &[dl_size, d_size, du_size, b_size, to_dl_size, to_d_size, to_du_size, to_b_size, s] = sizes else {
                    return None;
                };
                let mut diagonals = Diagonals::<T> {
                    below: in_place(dl, to_dl, dl_size, to_dl_size)?,
                    diagonal: in_place(d, to_d, d_size, to_d_size)?,
                    above: in_place(du, to_du, du_size, to_du_size)?,
                };
                system.run(&mut diagonals, in_place(b, to_b, b_size, to_b_size)?, slice_mut(singular, s), parallel)
            },
            _ => None,
        }
    }
}

/// The result, with what the operand holds in it.
///
/// # Safety
/// As for [`slice_mut()`]; the two are the same array or do not overlap.
unsafe fn in_place<'a, T>(from: *mut u8, to: *mut u8, from_bytes: usize, to_bytes: usize) -> Option<&'a mut [T]> {
    (from_bytes == to_bytes).then_some(())?;
    if from != to {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, to_bytes) };
    }
    // SAFETY: the caller's promise.
    Some(unsafe { slice_mut(to, to_bytes) })
}

/// Zeros in the triangles that are not the factors', and NaN in matrices that have none.
fn finish<T: Scalar>(cholesky: &Cholesky, matrices: &mut [T], failed: &[i32]) {
    let n = cholesky.n;
    for (matrix, &failed) in matrices.chunks_exact_mut((n * n).max(1)).zip(failed) {
        for (r, row) in matrix.chunks_exact_mut(n).enumerate() {
            match (failed != 0, cholesky.lower) {
                (true, _) => row.fill(T::NAN),
                (false, true) => row[r + 1..].fill(T::default()),
                (false, false) => row[..r].fill(T::default()),
            }
        }
    }
}

fn lu(shapes: &[&ArrayShape]) -> Result<Lu, NoRoutine> {
    let &[a] = shapes else { return Err("it has another number of operands".into()) };
    let (batch, rows, columns) = matrices(a)?;
    Ok(Lu { batch, rows, columns })
}

fn cholesky(shapes: &[&ArrayShape], lower: bool) -> Result<Cholesky, NoRoutine> {
    let &[a] = shapes else { return Err("it has another number of operands".into()) };
    match matrices(a)? {
        (batch, n, columns) if columns == n => Ok(Cholesky { batch, n, lower }),
        _ => Err("its matrices are not square".into()),
    }
}

fn triangular(
    shapes: &[&ArrayShape],
    left: bool,
    lower: bool,
    unit_diagonal: bool,
    transposed: bool,
) -> Result<TriangularSolve, NoRoutine> {
    let &[a, b] = shapes else { return Err("it has another number of operands".into()) };
    let ((batch, n, width), (batch_of_b, rows, columns)) = (matrices(a)?, matrices(b)?);
    let (own, others) = if left { (rows, columns) } else { (columns, rows) };
    if n != width || n != own || batch != batch_of_b {
        return Err("its matrices do not go together".into());
    }
    Ok(TriangularSolve { batch, n, others, left, lower, unit_diagonal, transposed })
}

fn qr(shapes: &[&ArrayShape]) -> Result<Qr, NoRoutine> {
    let &[a] = shapes else { return Err("it has another number of operands".into()) };
    let (batch, rows, columns) = matrices(a)?;
    Ok(Qr { batch, rows, columns })
}

fn reflector_product(shapes: &[&ArrayShape]) -> Result<ReflectorProduct, NoRoutine> {
    let &[a, taus] = shapes else { return Err("it has another number of operands".into()) };
    let (batch, rows, columns) = matrices(a)?;
    let (batch_of_taus, reflectors) = vectors(taus)?;
    if batch != batch_of_taus || reflectors > columns || columns > rows {
        return Err("its reflectors do not go with its matrices".into());
    }
    Ok(ReflectorProduct { batch, rows, columns, reflectors })
}

fn tridiagonal(shapes: &[&ArrayShape]) -> Result<Tridiagonal, NoRoutine> {
    let &[below, diagonal, above, b] = shapes else { return Err("it has another number of operands".into()) };
    let (batch, n, columns) = matrices(b)?;
    for diagonal in [below, diagonal, above] {
        if vectors(diagonal)? != (batch, n) {
            return Err("its diagonals do not go with its matrices".into());
        }
    }
    Ok(Tridiagonal { batch, n, columns })
}

//! Factors of matrices by cuSOLVER, triangular systems and transposes by cuBLAS.

use crate::cufft::Cublas;
use crate::driver::{DevicePointer, Handle};
use crate::gpu::Gpu;
use crate::library::Library;
use crate::solver::{Kind, Solver};
use hloom_ir::attributes::TransposeA;
use hloom_ir::diagnostic::{Blame, codes};
use hloom_ir::element_type::ElementType;
use hloom_value::ExecutionError;

/// A function for f32, f64, c64 and c128.
type ForTypes<F> = [F; 4];

type TriangleSize = unsafe extern "C" fn(Handle, i32, i32, DevicePointer, i32, *mut i32) -> i32;
type Triangle = unsafe extern "C" fn(Handle, i32, i32, DevicePointer, i32, DevicePointer, i32, DevicePointer) -> i32;
type MatrixSize = unsafe extern "C" fn(Handle, i32, i32, DevicePointer, i32, *mut i32) -> i32;
type Lu =
    unsafe extern "C" fn(Handle, i32, i32, DevicePointer, i32, DevicePointer, DevicePointer, DevicePointer) -> i32;
type Qr =
    unsafe extern "C" fn(Handle, i32, i32, DevicePointer, i32, DevicePointer, DevicePointer, i32, DevicePointer) -> i32;
type OrthogonalSize = unsafe extern "C" fn(Handle, i32, i32, i32, DevicePointer, i32, DevicePointer, *mut i32) -> i32;
type Orthogonal = unsafe extern "C" fn(
    Handle,
    i32,
    i32,
    i32,
    DevicePointer,
    i32,
    DevicePointer,
    DevicePointer,
    i32,
    DevicePointer,
) -> i32;

/// cuSOLVER with a handle. The functions for eigenvalues have the types of those for orthogonal matrices: three numbers, a
/// matrix, an array, and memory to work in.
#[derive(Debug)]
pub(crate) struct Cusolver {
    handle: Handle,
    set_stream: unsafe extern "C" fn(Handle, Handle) -> i32,
    cholesky_size: ForTypes<TriangleSize>,
    cholesky: ForTypes<Triangle>,
    lu_size: ForTypes<MatrixSize>,
    lu: ForTypes<Lu>,
    qr_size: ForTypes<MatrixSize>,
    qr: ForTypes<Qr>,
    orthogonal_size: ForTypes<OrthogonalSize>,
    orthogonal: ForTypes<Orthogonal>,
    symmetric_size: ForTypes<OrthogonalSize>,
    symmetric: ForTypes<Orthogonal>,
}

fn check(status: i32, call: &str) -> Result<(), ExecutionError> {
    let name = match status {
        0 => return Ok(()),
        1 => "CUSOLVER_STATUS_NOT_INITIALIZED",
        2 => "CUSOLVER_STATUS_ALLOC_FAILED",
        3 => "CUSOLVER_STATUS_INVALID_VALUE",
        6 => "CUSOLVER_STATUS_EXECUTION_FAILED",
        7 => "CUSOLVER_STATUS_INTERNAL_ERROR",
        _ => "",
    };
    let error = ExecutionError::new(&codes::eval::DEVICE_FAILED, format!("{call} answers {status} {name}"));
    Err(error.blame(if status == 3 { Blame::Hloom } else { Blame::Machine }))
}

impl Cusolver {
    /// Opens the library, which is never closed.
    pub(crate) fn open() -> Result<Cusolver, ExecutionError> {
        let library = Library::open("cuSOLVER", &["libcusolver.so.12", "libcusolver.so.11", "libcusolver.so"])?;
        /// The functions of a routine, whose name is another for complex numbers.
        ///
        /// # Safety
        /// `F` must be the type of those functions.
        unsafe fn of<F: Copy>(library: &Library, names: [&str; 2], end: &str) -> Result<ForTypes<F>, ExecutionError> {
            let name = |letter: &str, n: usize| format!("cusolverDn{letter}{}{end}", names[n]);
            let all = [name("S", 0), name("D", 0), name("C", 1), name("Z", 1)];
            // SAFETY: the caller's promise.
            let get = |n: usize| unsafe { library.function::<F>(&[all[n].as_str()]) };
            Ok([get(0)?, get(1)?, get(2)?, get(3)?])
        }
        let (potrf, getrf, geqrf) = (["potrf"; 2], ["getrf"; 2], ["geqrf"; 2]);
        let (orgqr, syevd, size) = (["orgqr", "ungqr"], ["syevd", "heevd"], "_bufferSize");
        let mut handle = 0;
        // SAFETY: the types are those of the library's documentation, and the out parameter is valid.
        let solver = unsafe {
            let create: unsafe extern "C" fn(*mut Handle) -> i32 = library.function(&["cusolverDnCreate"])?;
            check(create(&mut handle), "cusolverDnCreate")?;
            Cusolver {
                handle,
                set_stream: library.function(&["cusolverDnSetStream"])?,
                cholesky_size: of(&library, potrf, size)?,
                cholesky: of(&library, potrf, "")?,
                lu_size: of(&library, getrf, size)?,
                lu: of(&library, getrf, "")?,
                qr_size: of(&library, geqrf, size)?,
                qr: of(&library, geqrf, "")?,
                orthogonal_size: of(&library, orgqr, size)?,
                orthogonal: of(&library, orgqr, "")?,
                symmetric_size: of(&library, syevd, size)?,
                symmetric: of(&library, syevd, "")?,
            }
        };
        std::mem::forget(library);
        Ok(solver)
    }
}

/// The place of a type among the functions of a routine.
fn of_type(element_type: ElementType) -> usize {
    match element_type {
        ElementType::F32 => 0,
        ElementType::F64 => 1,
        ElementType::C64 => 2,
        _ => 3,
    }
}

/// A routine with the memory that it works in.
#[derive(Debug)]
pub(crate) struct PreparedSolver {
    solver: Solver,
    /// Elements that the library works in.
    work: i32,
}

/// Where the memory of a call begins: for the library, for the turned matrix, and for words that nobody reads.
struct Workspace {
    library: DevicePointer,
    turned: DevicePointer,
    words: DevicePointer,
}

impl PreparedSolver {
    /// Makes a routine ready.
    pub(crate) fn new(gpu: &Gpu, solver: &Solver) -> Result<PreparedSolver, ExecutionError> {
        gpu.cublas()?;
        let (t, mut work) = (of_type(solver.element_type), 0);
        let (rows, columns) = (solver.rows as i32, solver.columns as i32);
        if matches!(solver.kind, Kind::Triangular { .. }) {
            return Ok(PreparedSolver { solver: solver.clone(), work });
        }
        let f = gpu.cusolver()?;
        // SAFETY: the matrices are not read, and the out parameter is valid.
        let status = unsafe {
            match solver.kind {
                Kind::Triangular { .. } => 0,
                Kind::Cholesky { lower } => (f.cholesky_size[t])(f.handle, fill(!lower), rows, 0, rows, &mut work),
                Kind::Lu => (f.lu_size[t])(f.handle, rows, columns, 0, rows, &mut work),
                Kind::Qr => (f.qr_size[t])(f.handle, rows, columns, 0, rows, &mut work),
                Kind::Orthogonal { reflectors } => {
                    (f.orthogonal_size[t])(f.handle, rows, columns, reflectors as i32, 0, rows, 0, &mut work)
                }
                Kind::Symmetric { lower, vectors } => {
                    (f.symmetric_size[t])(f.handle, i32::from(vectors), fill(lower), rows, 0, rows, 0, &mut work)
                }
            }
        };
        check(status, "cusolverDn_bufferSize")?;
        Ok(PreparedSolver { solver: solver.clone(), work: work.max(1) })
    }

    fn library_bytes(&self) -> usize {
        (self.work.max(0) as usize * self.solver.element_type.bytes()).next_multiple_of(256)
    }

    fn turned_bytes(&self) -> usize {
        if self.solver.turns() { self.solver.matrix_bytes().next_multiple_of(256) } else { 0 }
    }

    /// Bytes that it works in.
    pub(crate) fn workspace_bytes(&self) -> usize {
        self.library_bytes() + self.turned_bytes() + 256
    }

    /// Enqueues the routine for all matrices of the arrays at these addresses: operands, then results.
    pub(crate) fn enqueue(
        &self,
        gpu: &Gpu,
        arrays: &[DevicePointer],
        workspace: DevicePointer,
    ) -> Result<(), ExecutionError> {
        let turned = workspace + self.library_bytes() as u64;
        let place = Workspace { library: workspace, turned, words: turned + self.turned_bytes() as u64 };
        let s = &self.solver;
        let element = s.element_type.bytes();
        let least = s.rows.min(s.columns);
        let (matrix, word) = (s.matrix_bytes() as u64, 4u64);
        let at = |array: usize, n: u64, bytes: u64| arrays.get(array).map(|&a| a + n * bytes);
        let missing = || ExecutionError::bug("an array of a factorisation is missing");
        for n in 0..s.batch as u64 {
            let array = |a: usize, bytes: u64| at(a, n, bytes).ok_or_else(missing);
            match s.kind {
                Kind::Cholesky { lower } => {
                    gpu.copy(array(1, matrix)?, array(0, matrix)?, matrix as usize)?;
                    self.cholesky(gpu, lower, array(1, matrix)?, array(2, word)?, &place)?;
                }
                Kind::Triangular { left, .. } => {
                    let size = if left { s.rows } else { s.columns };
                    gpu.copy(array(2, matrix)?, array(1, matrix)?, matrix as usize)?;
                    let triangle = (size * size * element) as u64;
                    gpu.cublas()?.triangular(gpu, s, array(0, triangle)?, array(2, matrix)?)?;
                }
                Kind::Lu => {
                    let [pivots, info] = [array(2, word * least as u64)?, array(3, word)?];
                    self.turned(gpu, [array(0, matrix)?, array(1, matrix)?], &place, [pivots, info])?;
                }
                Kind::Qr => {
                    let factors = array(2, (least * element) as u64)?;
                    self.turned(gpu, [array(0, matrix)?, array(1, matrix)?], &place, [factors, place.words])?;
                }
                Kind::Orthogonal { reflectors } => {
                    let factors = array(1, (reflectors * element) as u64)?;
                    self.turned(gpu, [array(0, matrix)?, array(2, matrix)?], &place, [factors, place.words])?;
                }
                Kind::Symmetric { .. } => {
                    let real = if s.element_type.is_complex() { element / 2 } else { element };
                    let [values, info] = [array(2, (s.rows * real) as u64)?, array(3, word)?];
                    self.turned(gpu, [array(0, matrix)?, array(1, matrix)?], &place, [values, info])?;
                }
            }
        }
        Ok(())
    }

    fn cholesky(
        &self,
        gpu: &Gpu,
        lower: bool,
        matrix: DevicePointer,
        info: DevicePointer,
        place: &Workspace,
    ) -> Result<(), ExecutionError> {
        let (f, t, n) = (gpu.cusolver()?, of_type(self.solver.element_type), self.solver.rows as i32);
        // SAFETY: the matrix and the memory are as large as was said.
        unsafe {
            check((f.set_stream)(f.handle, gpu.stream()), "cusolverDnSetStream")?;
            let call = (f.cholesky[t])(f.handle, fill(!lower), n, matrix, n, place.library, self.work, info);
            check(call, "cusolverDnpotrf")
        }
    }

    /// A routine on the turned matrix: `others` are an array beside it, and the word that says whether all went well.
    fn turned(
        &self,
        gpu: &Gpu,
        [from, to]: [DevicePointer; 2],
        place: &Workspace,
        [other, info]: [DevicePointer; 2],
    ) -> Result<(), ExecutionError> {
        let (f, blas, s) = (gpu.cusolver()?, gpu.cublas()?, &self.solver);
        let (t, m, n) = (of_type(s.element_type), s.rows as i32, s.columns as i32);
        let (a, work) = (place.turned, place.library);
        blas.turn(gpu, s.element_type, [s.rows, s.columns], from, a)?;
        // SAFETY: the matrix, the array beside it and the memory are as large as was said.
        let status = unsafe {
            check((f.set_stream)(f.handle, gpu.stream()), "cusolverDnSetStream")?;
            match s.kind {
                Kind::Lu => (f.lu[t])(f.handle, m, n, a, m, work, other, info),
                Kind::Qr => (f.qr[t])(f.handle, m, n, a, m, other, work, self.work, info),
                Kind::Orthogonal { reflectors } => {
                    (f.orthogonal[t])(f.handle, m, n, reflectors as i32, a, m, other, work, self.work, info)
                }
                Kind::Symmetric { lower, vectors } => {
                    let (vectors, fill) = (i32::from(vectors), fill(lower));
                    (f.symmetric[t])(f.handle, vectors, fill, m, a, m, other, work, self.work, info)
                }
                Kind::Cholesky { .. } | Kind::Triangular { .. } => 0,
            }
        };
        check(status, "cuSOLVER")?;
        blas.turn(gpu, s.element_type, [s.columns, s.rows], a, to)
    }
}

/// `cublasFillMode_t`.
fn fill(lower: bool) -> i32 {
    if lower { 0 } else { 1 }
}

/// A factor of a type, as the library reads it.
fn factor(element_type: ElementType, value: f64) -> [u64; 2] {
    match element_type {
        ElementType::F32 | ElementType::C64 => [u64::from((value as f32).to_bits()), 0],
        _ => [value.to_bits(), 0],
    }
}

impl Cublas {
    /// Enqueues the transpose of a row-major matrix of that many rows and columns.
    fn turn(
        &self,
        gpu: &Gpu,
        element_type: ElementType,
        [rows, columns]: [usize; 2],
        from: DevicePointer,
        to: DevicePointer,
    ) -> Result<(), ExecutionError> {
        let f = &self.functions;
        let add = [f.add, f.add_double, f.add_complex, f.add_complex_double][of_type(element_type)];
        let (one, zero) = (factor(element_type, 1.0), factor(element_type, 0.0));
        let (one, zero) = (one.as_ptr().cast(), zero.as_ptr().cast());
        let (m, n) = (rows as i32, columns as i32);
        // SAFETY: both matrices have so many elements, and do not overlap.
        unsafe {
            check((f.set_stream)(self.handle, gpu.stream()), "cublasSetStream")?;
            check(add(self.handle, 1, 0, m, n, one, from, n, zero, to, m, to, m), "cublasgeam")
        }
    }

    /// Enqueues the solution of triangular systems, in place.
    fn triangular(
        &self,
        gpu: &Gpu,
        solver: &Solver,
        triangle: DevicePointer,
        sides: DevicePointer,
    ) -> Result<(), ExecutionError> {
        let Kind::Triangular { left, lower, unit_diagonal, transpose } = solver.kind else { return Ok(()) };
        let f = &self.functions;
        let t = of_type(solver.element_type);
        let solve = [f.solve, f.solve_double, f.solve_complex, f.solve_complex_double][t];
        let one = factor(solver.element_type, 1.0);
        let transpose = match transpose {
            TransposeA::Transpose => 1,
            TransposeA::Adjoint => 2,
            _ => 0,
        };
        let (m, n) = (solver.columns as i32, solver.rows as i32);
        let size = if left { n } else { m };
        // SAFETY: the matrices have so many elements.
        unsafe {
            check((f.set_stream)(self.handle, gpu.stream()), "cublasSetStream")?;
            let (side, fill, unit) = (i32::from(left), fill(!lower), i32::from(unit_diagonal));
            let one = one.as_ptr().cast();
            let call = solve(self.handle, side, fill, transpose, unit, m, n, one, triangle, size, sides, m);
            check(call, "cublastrsm")
        }
    }
}

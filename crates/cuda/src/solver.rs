//! Factors of matrices and triangular systems as cuSOLVER and cuBLAS take them: which instruction is one, and its sizes.
//!
//! JAX's programs call LAPACK for these, or cuSOLVER where they were written for a GPU; both take and give the same. Arrays
//! are row-major whatever layouts a call states, and the libraries' matrices are column-major: seen by them each is
//! transposed. For Cholesky and triangular systems that is the other triangle, and the other side; for the rest the matrix
//! is turned before and after.

use hloom_eval::custom_call::attributes::Attributes;
use hloom_ir::attributes::TransposeA;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::ArrayShape;

/// More matrices than this are too many calls.
const MAX_BATCH: usize = 4096;

/// What is asked of the libraries, for each of `batch` matrices. The arrays of the thunk are those of the instruction:
/// operands, then results.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Solver {
    pub(crate) kind: Kind,
    pub(crate) element_type: ElementType,
    pub(crate) batch: usize,
    /// Rows and columns of the matrix that is factored, or of the right side of the systems.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Which routine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Results: the matrix with one triangle its factor, and whether there is one.
    Cholesky { lower: bool },
    /// Operands: the triangles and the right sides; the result is where the right sides were.
    Triangular { left: bool, lower: bool, unit_diagonal: bool, transpose: TransposeA },
    /// Results: both factors in one matrix, the rows that were exchanged, and whether one is singular.
    Lu,
    /// Results: the upper triangle with the reflectors below, and their factors.
    Qr,
    /// Operands: reflectors and their factors, so many. The result has orthogonal columns.
    Orthogonal { reflectors: usize },
    /// Results: the eigenvectors, the eigenvalues, and whether they were found.
    Symmetric { lower: bool, vectors: bool },
}

/// Rows and columns of the matrices in an array, and how many there are.
fn matrices(shape: &ArrayShape) -> Result<(usize, usize, usize), String> {
    let (batch, &[rows, columns]) = shape.dims().split_last_chunk::<2>().ok_or("it has no matrices")?;
    let size = |n: i64| usize::try_from(n).ok().filter(|&n| n < 1 << 20).ok_or("it is too large for cuSOLVER");
    let batch = batch.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
    Ok((batch.ok_or("it is too large for cuSOLVER")?, size(rows)?, size(columns)?))
}

impl Solver {
    /// The routine for an instruction; `None` if it is no such instruction, and why not if it is one that there is none for.
    pub(crate) fn new(module: &Module, id: InstructionId) -> Option<Result<Solver, String>> {
        let instruction = &module[id];
        let config = instruction.common.backend_config.as_deref().unwrap_or_default();
        let attributes = || Attributes::read(&String::from_utf8_lossy(config));
        let kind = match &instruction.op {
            // It is written out as the call and what comes after it, where that can be.
            Op::Cholesky { .. } => return Some(Err("there is no cholesky of such an array".to_owned())),
            &Op::TriangularSolve { left_side, lower, unit_diagonal, transpose_a } => {
                Kind::Triangular { left: left_side, lower, unit_diagonal, transpose: transpose_a }
            }
            Op::CustomCall(call) => match routine(&call.target)? {
                "potrf" => Kind::Cholesky { lower: attributes().is_lower() },
                "trsm" => {
                    let a = attributes();
                    let transpose = match () {
                        () if a.is("trans_x", b'T') => TransposeA::Transpose,
                        () if a.is("trans_x", b'C') => TransposeA::Adjoint,
                        () => TransposeA::None,
                    };
                    let (left, unit_diagonal) = (a.is("side", b'L'), a.is("diag", b'U'));
                    Kind::Triangular { left, lower: a.is_lower(), unit_diagonal, transpose }
                }
                "getrf" => Kind::Lu,
                "geqrf" => Kind::Qr,
                "orgqr" | "ungqr" => Kind::Orthogonal { reflectors: 0 },
                "syevd" | "heevd" => {
                    let a = attributes();
                    Kind::Symmetric { lower: a.is_lower(), vectors: !a.is("mode", b'N') }
                }
                _ => return None,
            },
            _ => return None,
        };
        Some(Solver::of(module, id, kind))
    }

    fn of(module: &Module, id: InstructionId, kind: Kind) -> Result<Solver, String> {
        let array = |i: InstructionId| module[i].shape.as_array().filter(|a| !a.is_dynamic());
        let operands = module[id].operands().iter().map(|&o| array(o)).collect::<Option<Vec<_>>>();
        let operands = operands.ok_or("an operand is no array of a known size")?;
        let leaves = module[id].shape.leaves();
        let results = leaves.iter().map(|(_, leaf)| leaf.as_array()).collect::<Option<Vec<_>>>();
        let results = results.ok_or("a result is no array")?;
        let first = *operands.first().ok_or("it has no operands")?;
        let element_type = first.element_type;
        let real = match element_type {
            ElementType::F32 | ElementType::C64 => ElementType::F32,
            ElementType::F64 | ElementType::C128 => ElementType::F64,
            other => return Err(format!("cuSOLVER has no matrices of {other}")),
        };
        let matrix = match kind {
            Kind::Triangular { .. } => *operands.get(1).ok_or("it has no right side")?,
            _ => first,
        };
        let (batch, rows, columns) = matrices(matrix)?;
        let least = rows.min(columns) as i64;
        let outer = &matrix.dims()[..matrix.rank() - 2];
        let with = |last: &[i64]| [outer, last].concat();
        let (own, s32) = (element_type, ElementType::S32);
        let same = matrix.dims().to_vec();
        // What the results of each are, so that nothing is written where there is no room.
        let (kind, wanted) = match kind {
            Kind::Cholesky { .. } if rows == columns => (kind, vec![(own, same), (s32, with(&[]))]),
            Kind::Triangular { left, .. } => {
                let size = if left { rows } else { columns };
                if matrices(first)? != (batch, size, size) || operands.len() != 2 {
                    return Err("its matrices do not go together".to_owned());
                }
                (kind, vec![(own, same)])
            }
            Kind::Lu => (kind, vec![(own, same), (s32, with(&[least])), (s32, with(&[]))]),
            Kind::Qr => (kind, vec![(own, same), (own, with(&[least]))]),
            Kind::Orthogonal { .. } => {
                let factors = *operands.get(1).ok_or("it has no factors")?;
                let reflectors = factors.dims().last().copied().unwrap_or(0);
                if factors.dims() != with(&[reflectors]) || reflectors > columns as i64 || columns > rows {
                    return Err("its reflectors do not go together".to_owned());
                }
                (Kind::Orthogonal { reflectors: reflectors as usize }, vec![(own, same)])
            }
            Kind::Symmetric { .. } if rows == columns => {
                (kind, vec![(own, same), (real, with(&[least])), (s32, with(&[]))])
            }
            _ => return Err("its matrices are not square".to_owned()),
        };
        let fits = |(result, (t, dims)): (&&ArrayShape, &(ElementType, Vec<i64>))| {
            result.element_type == *t && result.dims() == &dims[..]
        };
        if results.len() != wanted.len() || !results.iter().zip(&wanted).all(fits) {
            return Err("its results are not those of the routine".to_owned());
        }
        if operands.iter().any(|o| o.element_type != element_type) {
            return Err("its operands are of several types".to_owned());
        }
        if batch == 0 || rows == 0 || columns == 0 || kind == (Kind::Orthogonal { reflectors: 0 }) {
            return Err("it has no elements".to_owned());
        }
        if batch > MAX_BATCH {
            return Err(format!("{batch} matrices are too many to be factored one by one"));
        }
        Ok(Solver { kind, element_type, batch, rows, columns })
    }

    /// Bytes of one matrix.
    pub(crate) fn matrix_bytes(&self) -> usize {
        self.rows * self.columns * self.element_type.bytes()
    }

    /// Whether the matrix is turned before and after.
    pub(crate) fn turns(&self) -> bool {
        !matches!(self.kind, Kind::Cholesky { .. } | Kind::Triangular { .. })
    }

    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Cholesky { .. } => "cholesky",
            Kind::Triangular { .. } => "triangular solve",
            Kind::Lu => "lu",
            Kind::Qr => "qr",
            Kind::Orthogonal { .. } => "orthogonal matrix",
            Kind::Symmetric { .. } => "eigenvalues",
        }
    }
}

/// What LAPACK calls the routine of a call.
fn routine(target: &str) -> Option<&str> {
    let routine = target.strip_suffix("_ffi")?;
    if let Some(routine) = routine.strip_prefix("lapack_") {
        return routine.strip_prefix(['s', 'd', 'c', 'z']);
    }
    routine.strip_prefix("cusolver_").or_else(|| routine.strip_prefix("hipsolver_"))
}

impl std::fmt::Display for Solver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}[{}x{}]", self.name(), self.element_type, self.rows, self.columns)?;
        if self.batch == 1 { Ok(()) } else { write!(f, " x{}", self.batch) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text;

    fn solver(text: &str) -> Option<Result<Solver, String>> {
        let text = format!("HloModule m\n\nENTRY e {{\n{text}\n}}\n");
        let module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        Solver::new(&module, module.root(module.entry().unwrap()).unwrap())
    }

    #[test]
    fn calls_of_lapack_and_of_cusolver_are_the_same() {
        for call in ["lapack_sgetrf_ffi", "cusolver_getrf_ffi"] {
            let text = format!(
                "a = f32[3,4,6] parameter(0)\nROOT r = (f32[3,4,6], s32[3,4], s32[3]) custom-call(a), custom_call_target=\"{call}\""
            );
            let s = solver(&text).unwrap().unwrap();
            assert_eq!((s.kind, s.batch, s.rows, s.columns), (Kind::Lu, 3, 4, 6));
            assert!(s.turns());
        }
    }

    #[test]
    fn results_of_other_sizes_are_refused() {
        let text = "a = f32[4,4] parameter(0)\nROOT r = (f32[4,4], s32[4]) custom-call(a), custom_call_target=\"lapack_spotrf_ffi\"";
        assert_eq!(solver(text), Some(Err("its results are not those of the routine".to_owned())));
        assert_eq!(
            solver("a = f32[4] parameter(0)\nROOT r = f32[4] custom-call(a), custom_call_target=\"other\""),
            None
        );
    }

    #[test]
    fn systems_have_their_triangles_on_one_side() {
        let text = "a = c64[2,5,5] parameter(0)\nb = c64[2,3,5] parameter(1)\nROOT x = c64[2,3,5] triangular-solve(a, b), left_side=false, lower=true, transpose_a=ADJOINT";
        let s = solver(text).unwrap().unwrap();
        let (left, lower, unit_diagonal, transpose) = (false, true, false, TransposeA::Adjoint);
        assert_eq!(s.kind, Kind::Triangular { left, lower, unit_diagonal, transpose });
        assert_eq!(s.to_string(), "triangular solve c64[3x5] x2");
    }
}

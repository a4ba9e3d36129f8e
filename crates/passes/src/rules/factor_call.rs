//! The kernels to which TPU compilers expand linear algebra, as the operations that they compute.

use super::custom_call::{spread, target, tuple_like};
use super::{array, beside, operand};
use crate::rewrite::Rule;
use hloom_ir::attributes::{ComparisonDirection, TransposeA};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::ArrayShape;

/// The rules.
pub(super) static RULES: &[Rule] = &[
    Rule {
        name: "cholesky-call",
        statement: "a call that gives the lower Cholesky factor → cholesky",
        opcodes: &[Opcode::CustomCall],
        apply: cholesky,
    },
    Rule {
        name: "invert-triangles-call",
        statement: "a call that inverts triangles → triangular-solve with identities",
        opcodes: &[Opcode::CustomCall],
        apply: invert_triangles,
    },
];

/// The matrices that `i` is called with, if there is something like that.
fn matrices(module: &Module, i: InstructionId) -> Option<InstructionId> {
    let matrices = operand(module, i, 0)?;
    let shape = array(module, matrices).filter(|a| !a.is_dynamic())?;
    let is_real = matches!(shape.element_type, ElementType::F32 | ElementType::F64);
    let [.., rows, columns] = *shape.dims() else { return None };
    (is_real && rows == columns && module[i].operands().len() == 1).then_some(matrices)
}

fn cholesky(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    if target(module, i)? != "Cholesky" {
        return None;
    }
    let a = matrices(module, i)?;
    let shape = module[i].shape.clone();
    let mut b = beside(module, i);
    let factor = b.push(Op::Cholesky { lower: true }, &[a]).ok()?;
    let made = tuple_like(&mut b, &shape, vec![factor])?;
    b.shape(made).equal_ignoring_layout(&shape).then_some(made)
}

fn invert_triangles(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let lower = match target(module, i)? {
        "InvertDiagBlocksLowerTriangular" => true,
        "InvertDiagBlocksUpperTriangular" => false,
        _ => return None,
    };
    let a = matrices(module, i)?;
    let shape = array(module, a)?.clone();
    if !module[i].shape.equal_ignoring_layout(&module[a].shape) {
        return None;
    }
    let sizes: DimVec = shape.dims().into();
    let mut b = beside(module, i);
    let places = ArrayShape::new(ElementType::S32, sizes.iter().copied()).with_default_layout();
    let last = sizes.len() as i64 - 1;
    let (row, column) = (b.iota(places.clone(), last - 1).ok()?, b.iota(places, last).ok()?);
    let diagonal = b.compare(ComparisonDirection::Eq, row, column).ok()?;
    let (one, zero) =
        (spread(&mut b, shape.element_type, 1.0, &sizes)?, spread(&mut b, shape.element_type, 0.0, &sizes)?);
    let identity = b.select(diagonal, one, zero).ok()?;
    let op = Op::TriangularSolve { left_side: true, lower, unit_diagonal: false, transpose_a: TransposeA::None };
    b.push(op, &[a, identity]).ok()
}

//! A bias that is an array times positions, as ALiBi's: slope · (key − query), recognised so that it need not be written out
//! for every query and key.

use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};

use crate::scores::{FoundPositions, operand, widens};
use crate::values::{Affine, affine, carry, splat};
use crate::view::{Dimension, View, reorder, view_of};

/// Bounds how long products are followed.
const STEPS: usize = 16;

/// A multiple of a sum of positions along the dimensions of an array.
pub(crate) struct Positions {
    sum: Affine,
    is_absolute: bool,
    scale: f64,
}

impl Positions {
    /// The same along the axes of a space whose factors the dimensions are.
    pub(crate) fn along(&self, dims: &[Dimension]) -> Option<FoundPositions> {
        let mut terms = Vec::new();
        for (&coefficient, dim) in self.sum.coefficients.iter().zip(dims) {
            if coefficient == 0 || dim.is_empty() {
                continue;
            }
            let [factor] = dim.as_slice() else { return None };
            terms.push((factor.stride, coefficient));
        }
        let (constant, is_absolute) = (self.sum.constant, self.is_absolute);
        Some(FoundPositions { terms, constant, is_absolute, scale: self.scale })
    }
}

/// A bias as slopes, of which it is told where they lie in its own dimensions, and positions that multiply them.
pub(crate) fn slope(module: &Module, bias: InstructionId) -> Option<(View, Positions)> {
    // From the bias to the product of slopes and positions.
    let mut path = Vec::new();
    let mut scale = 1.0;
    let mut id = bias;
    let (slopes, mut positions) = loop {
        if path.len() > STEPS {
            return None;
        }
        let (a, b) = (operand(module, id, 0), operand(module, id, 1));
        match &module[id].op {
            Op::Transpose { .. } | Op::Reshape { .. } | Op::Broadcast { .. } | Op::Copy => path.push(id),
            Op::Unary { op: UnaryOp::Negate, .. } => scale = -scale,
            Op::Binary(BinaryOp::Multiply) => match (splat(module, a?), splat(module, b?)) {
                (Some(number), None) => {
                    scale *= number;
                    id = b?;
                    continue;
                }
                (None, Some(number)) => {
                    scale *= number;
                    id = a?;
                    continue;
                }
                (None, None) => {
                    let found = |slopes: InstructionId, other: InstructionId| Some((slopes, positions(module, other)?));
                    break found(a?, b?).or_else(|| found(b?, a?))?;
                }
                _ => return None,
            },
            _ => return None,
        }
        id = a?;
    };
    positions.scale *= scale;
    let mut view = view_of(module, slopes, |i| widens(module, i))?;
    for &step in path.iter().rev() {
        view.dims = reorder(module, step, &view.dims)?;
        positions.sum.coefficients = match module[step].op {
            Op::Copy => positions.sum.coefficients,
            _ => carry(module, step, &positions.sum.coefficients)?,
        };
    }
    Some((view, positions))
}

/// An array of floats that is a multiple of a sum of positions, computed exactly.
fn positions(module: &Module, id: InstructionId) -> Option<Positions> {
    let mut path = Vec::new();
    let mut found = Positions { sum: Affine { coefficients: Vec::new(), constant: 0 }, is_absolute: false, scale: 1.0 };
    let mut id = id;
    loop {
        if path.len() > STEPS {
            return None;
        }
        if let Some(sum) = affine(module, id) {
            found.sum = sum;
            break;
        }
        let of = |i: InstructionId| module[i].shape.element_type();
        let a = operand(module, id, 0)?;
        match &module[id].op {
            Op::Transpose { .. } | Op::Reshape { .. } | Op::Broadcast { .. } => path.push(id),
            // Exact, for sums that the kernel takes.
            Op::Convert if of(id) == Some(ElementType::F32) && of(a)?.is_integer() => {}
            Op::Unary { op: UnaryOp::Negate, .. } if !found.is_absolute => found.scale = -found.scale,
            Op::Unary { op: UnaryOp::Negate, .. } => {}
            Op::Unary { op: UnaryOp::Abs, .. } => found.is_absolute = true,
            _ => return None,
        }
        id = a;
    }
    for &step in path.iter().rev() {
        found.sum.coefficients = carry(module, step, &found.sum.coefficients)?;
    }
    // The same number everywhere is no position.
    found.sum.coefficients.iter().any(|&c| c != 0).then_some(found)
}

//! What is done to the result of a dot, brought to where the dot can take it.
//!
//! - A part of a result that nobody reads as a whole: the dot of parts of its operands.
//! - A transpose behind work on elements: the transpose goes first, and the dot makes its result in that order.

use crate::edit::{add, array_of};
use crate::tiling::{retiled, tiled_array};
use hloom_ir::attributes::SliceDim;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::layout::{DimVec, Layout};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::ArrayShape;

/// How much work on elements a transpose goes through.
const MOST_STEPS: usize = 8;

/// Brings what is done to dots' results to them; says how often. What nothing reads any more stays for a later removal.
pub(crate) fn bring(module: &mut Module) -> usize {
    let mut changes = 0;
    for c in module.computations().to_vec() {
        for i in module[c].instructions().to_vec() {
            let done = match &module[i].op {
                Op::Slice { .. } => slice(module, i),
                Op::Transpose { .. } => transpose(module, i),
                _ => None,
            };
            changes += usize::from(done.is_some());
        }
    }
    changes
}

fn is_read_once(module: &Module, i: InstructionId) -> bool {
    module[i].users().len() == 1 && module.root(module[i].parent()) != Some(i)
}

/// A slice of a dot becomes the dot of slices.
fn slice(module: &mut Module, i: InstructionId) -> Option<()> {
    let (Op::Slice { dims: parts }, &[dot]) = (&module[i].op, module[i].operands()) else { return None };
    let (Op::Dot(attributes), &[x, y]) = (&module[dot].op, module[dot].operands()) else { return None };
    if !is_read_once(module, dot) {
        return None;
    }
    let parts = parts.clone();
    let dims = &attributes.dims;
    let free = |operand: InstructionId, batch: &DimVec, contracting: &DimVec| {
        let rank = array_of(module, operand)?.rank() as i64;
        Some((0..rank).filter(|d| !batch.contains(d) && !contracting.contains(d)).collect::<DimVec>())
    };
    let (lhs_free, rhs_free) =
        (free(x, &dims.lhs_batch, &dims.lhs_contracting)?, free(y, &dims.rhs_batch, &dims.rhs_contracting)?);
    // Which dimension of each operand a dimension of the result is.
    let lhs: DimVec = dims.lhs_batch.iter().chain(&lhs_free).copied().collect();
    let none = lhs_free.iter().map(|_| -1);
    let rhs: DimVec = dims.rhs_batch.iter().copied().chain(none).chain(rhs_free.iter().copied()).collect();
    let op = module[dot].op.clone();
    let shape = array_of(module, i)?.clone();
    let x = part(module, (i, x), &lhs, &parts)?;
    let y = part(module, (i, y), &rhs, &parts)?;
    let common = Common { metadata: module[dot].common.metadata.clone(), ..Common::default() };
    let made = add(module, i, "dot", op, shape, &[x, y], common);
    module.replace_all_uses(i, made).ok()
}

/// The part of `operand` that makes the part of the result; `of` says which of its dimensions those of the result are.
fn part(
    module: &mut Module,
    (at, operand): (InstructionId, InstructionId),
    of: &[i64],
    parts: &[SliceDim],
) -> Option<InstructionId> {
    let array = array_of(module, operand)?.clone();
    let mut dims: DimVec = array.dims().into();
    let mut taken: Vec<SliceDim> = dims.iter().map(|&n| SliceDim { start: 0, limit: n, stride: 1 }).collect();
    for (&dimension, part) in of.iter().zip(parts) {
        let Ok(d) = usize::try_from(dimension) else { continue };
        *taken.get_mut(d)? = *part;
        dims[d] = (part.limit - part.start + part.stride - 1) / part.stride.max(1);
    }
    if dims == DimVec::from(array.dims()) {
        return Some(operand);
    }
    let shape = like(&array, &dims);
    let op = Op::Slice { dims: taken.into_iter().collect() };
    Some(add(module, at, "slice", op, shape, &[operand], Common::default()))
}

/// An array of other sizes, with its dimensions in the same order in memory.
fn like(array: &ArrayShape, dims: &[i64]) -> ArrayShape {
    let shape = ArrayShape::new(array.element_type, dims.iter().copied());
    retiled(&shape.with_layout(Layout::new(array.minor_to_major())))
}

/// A transpose of what is computed element by element of a dot becomes the same of the transposed dot.
fn transpose(module: &mut Module, i: InstructionId) -> Option<()> {
    let Op::Transpose { dimensions } = &module[i].op else { return None };
    let dimensions = dimensions.clone();
    let result = array_of(module, i)?.clone();
    let mut steps = Vec::new();
    let mut at = *module[i].operands().first()?;
    while !matches!(module[at].op, Op::Dot(_)) {
        // One operand goes on to the dot; the others are the same number everywhere.
        let is_spread =
            |&o: &InstructionId| matches!(&module[o].op, Op::Broadcast { dimensions } if dimensions.is_empty());
        let mut others = module[at].operands().iter().copied().filter(|o| !is_spread(o));
        let (Some(next), None) = (others.next(), others.next()) else { return None };
        if !module[at].op.is_elementwise() || !is_read_once(module, at) || steps.len() == MOST_STEPS {
            return None;
        }
        steps.push((at, next));
        at = next;
    }
    if steps.is_empty() || !is_read_once(module, at) {
        return None;
    }
    let shape_of = |module: &Module, step: InstructionId| {
        Some(tiled_array(&retiled(&result.with_element_type(array_of(module, step)?.element_type))))
    };
    let shape = shape_of(module, at)?;
    let mut value = add(module, i, "transpose", Op::Transpose { dimensions }, shape, &[at], Common::default());
    for (step, next) in steps.into_iter().rev() {
        let shape = shape_of(module, step)?;
        let mut operands = Operands::new();
        for o in module[step].operands().to_vec() {
            operands.push(match o == next {
                true => value,
                false => {
                    let shape = shape_of(module, o)?;
                    let number = *module[o].operands().first()?;
                    let everywhere = Op::Broadcast { dimensions: DimVec::new() };
                    add(module, i, "broadcast", everywhere, shape, &[number], Common::default())
                }
            });
        }
        let common = Common { metadata: module[step].common.metadata.clone(), ..Common::default() };
        let op = module[step].op.clone();
        value = add(module, i, op.opcode().name(), op, shape, &operands, common);
    }
    module.replace_all_uses(i, value).ok()
}

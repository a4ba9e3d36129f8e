//! Products of matrices in one form, and those that are too small to be worth one.
//!
//! The form: operands of two dimensions, or of three with one batch dimension first; of the others one is summed over and
//! one is not, in either order. What can be had by reading an operand in another order is not transposed: an operand whose
//! batch dimensions lie elsewhere is left as it is if each group of its other dimensions can be read in one stride, and a
//! transpose of an operand goes into the dimension numbers where that leaves either.

use super::{array, beside, convolution, dims, inverse, is_identity, operand};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::attributes::DotDimensionNumbers;
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::{Dot, Op};
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::ArrayShape;
use smallvec::smallvec;

/// The pass.
pub static PASS: Pass = Pass {
    name: "canonicalize-dots",
    statement: "brings products into the form batch × M × K · K × N, transposes folded in, convolutions that are products too; tiny ones become sums of products",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[
    convolution::AS_DOT,
    convolution::OF_ONE_TYPE,
    Rule {
        name: "tiny-dot",
        statement: "a dot of a few elements, or of integers with a vector → multiply and reduce; over one element → multiply",
        opcodes: &[Opcode::Dot],
        apply: tiny_dot,
    },
    Rule {
        name: "interleaved-dot",
        statement: "a dot of vectors with vectors or matrices that lie in each other element by element → multiply and reduce",
        opcodes: &[Opcode::Dot],
        apply: interleaved_dot,
    },
    Rule {
        name: "canonical-dot",
        statement: "dot of any dimensions → reshapes around a dot of batch × M × K and K × N",
        opcodes: &[Opcode::Dot],
        apply: canonical_dot,
    },
    Rule {
        name: "transposed-dot",
        statement: "transpose of a dot that puts the second operand's dimensions first → dot of the operands in the other order",
        opcodes: &[Opcode::Transpose],
        apply: transposed_dot,
    },
];

/// Rows that are worth a product of matrices of their own.
const SOME_ROWS: i64 = 16;
/// So many matrices that lie in each other, of more elements than this in all, are laid out one after another first.
const SOME_MATRICES: i64 = 4;
const MAX_INTERLEAVED: i64 = 1 << 12;

/// One operand of a dot: which of its dimensions are what, in the order in which they go together.
#[derive(Clone)]
struct Side {
    value: InstructionId,
    dims: DimVec,
    batch: DimVec,
    free: DimVec,
    summed: DimVec,
}

impl Side {
    fn new(module: &Module, value: InstructionId, batch: &[i64], summed: &[i64]) -> Option<Side> {
        let dims = DimVec::from(dims(module, value)?);
        let free = (0..dims.len() as i64).filter(|d| !batch.contains(d) && !summed.contains(d)).collect();
        let (batch, summed) = (batch.into(), summed.into());
        Some(Side { value, dims, batch, free, summed })
    }

    /// The same before the transpose that the operand is; `None` if it is none.
    fn before_transpose(&self, module: &Module) -> Option<Side> {
        let Op::Transpose { dimensions } = &module[self.value].op else { return None };
        let value = operand(module, self.value, 0)?;
        let map = |list: &DimVec| list.iter().map(|&d| dimensions.get(d as usize).copied()).collect::<Option<DimVec>>();
        Some(Side {
            value,
            dims: dims(module, value)?.into(),
            batch: map(&self.batch)?,
            free: map(&self.free)?,
            summed: map(&self.summed)?,
        })
    }

    fn size(&self, list: &[i64]) -> Option<i64> {
        list.iter().try_fold(1i64, |n, &d| n.checked_mul(*self.dims.get(d as usize)?))
    }

    /// Whether the dimensions are those of the batch, those not summed over, then those summed over.
    fn is_free_first(&self) -> bool {
        is_identity(&[&self.batch[..], &self.free, &self.summed].concat())
    }

    /// Whether the dimensions are those of the batch, those summed over, then the others.
    fn is_summed_first(&self) -> bool {
        is_identity(&[&self.batch[..], &self.summed, &self.free].concat())
    }

    fn has_form(&self) -> bool {
        self.is_free_first() || self.is_summed_first()
    }

    /// Whether kernels can read it as it is: what is summed over in one stride, and what is not as well, each matrix of a batch by itself. Of the first
    /// operand the outer ones of the others may lie elsewhere: they are like a batch that uses the second again, which
    /// is good work only if each of its products has some rows.
    fn is_readable(&self, is_first: bool) -> bool {
        let consecutive = |list: &[i64]| list.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let inner = self.free.windows(2).rposition(|pair| pair[0] + 1 != pair[1]).map_or(0, |n| n + 1);
        let has_rows = || self.size(&self.free[inner..]).is_some_and(|rows| rows >= SOME_ROWS);
        let in_strides = consecutive(&self.summed) && (inner == 0 || is_first && has_rows());
        self.has_form() || in_strides && !self.is_batch_innermost()
    }

    /// Whether the matrices of a batch lie in each other element by element, so that to read one is to touch the memory of
    /// them all, and they are more than stays near.
    fn is_batch_innermost(&self) -> bool {
        let innermost = self.dims.iter().rposition(|&n| n != 1);
        let of_batch = innermost.filter(|&d| self.batch.contains(&(d as i64)));
        let is_large = || self.dims.iter().fold(1i64, |n, &d| n.saturating_mul(d)) > MAX_INTERLEAVED;
        of_batch.is_some_and(|d| self.dims[d] >= SOME_MATRICES) && is_large()
    }

    /// Whether it is an operand in the form.
    fn is_canonical(&self) -> bool {
        self.batch.len() <= 1 && self.free.len() == 1 && self.summed.len() == 1 && self.has_form()
    }

    /// The operand with its dimensions in the order of the form.
    fn transposed(mut self, b: &mut Builder<'_>, free_first: bool) -> Option<Side> {
        let order: DimVec = match free_first {
            true => [&self.batch[..], &self.free, &self.summed].concat().into(),
            false => [&self.batch[..], &self.summed, &self.free].concat().into(),
        };
        let to = inverse(&order)?;
        self.dims = order.iter().map(|&d| self.dims[d as usize]).collect();
        self.value = b.transpose(self.value, order).ok()?;
        for list in [&mut self.batch, &mut self.free, &mut self.summed] {
            list.iter_mut().for_each(|d| *d = to[*d as usize]);
        }
        Some(self)
    }

    /// An operand that has the order of the form, with one dimension for each group.
    fn collapsed(mut self, b: &mut Builder<'_>) -> Option<Side> {
        let (batch, free, summed) = (self.size(&self.batch)?, self.size(&self.free)?, self.size(&self.summed)?);
        let free_first = self.is_free_first();
        let mut dims: DimVec = if self.batch.is_empty() { smallvec![] } else { smallvec![batch] };
        dims.extend(if free_first { [free, summed] } else { [summed, free] });
        if dims != self.dims {
            self.value = b.reshape(self.value, dims.iter().copied()).ok()?;
        }
        let first = dims.len() as i64 - 2;
        let (at_free, at_summed) = if free_first { (first, first + 1) } else { (first + 1, first) };
        let batch: DimVec = (0..first).collect();
        Some(Side { value: self.value, dims, batch, free: smallvec![at_free], summed: smallvec![at_summed] })
    }
}

/// The two operands of a dot.
fn sides(module: &Module, i: InstructionId) -> Option<(Side, Side)> {
    let Op::Dot(dot) = &module[i].op else { return None };
    let d = &dot.dims;
    let &[lhs, rhs] = module[i].operands() else { return None };
    let sides = (
        Side::new(module, lhs, &d.lhs_batch, &d.lhs_contracting)?,
        Side::new(module, rhs, &d.rhs_batch, &d.rhs_contracting)?,
    );
    Some(sides)
}

fn canonical_dot(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (mut lhs, mut rhs) = sides(module, i)?;
    let was_canonical = lhs.is_canonical() && rhs.is_canonical();
    // What is no work for the kernels for matrices is brought into the form all the same: then it becomes sums.
    let is_tiny = is_tiny(module, i, &lhs, &rhs)?;
    let is_fine = |side: &Side, is_first: bool| side.has_form() || !is_tiny && side.is_readable(is_first);
    let mut changed = false;
    for is_first in [true, false] {
        let side = if is_first { &lhs } else { &rhs };
        // The dimensions that are not summed over come out in the order in which the operand has them.
        let Some(before) = side.before_transpose(module).filter(|before| before.free.is_sorted()) else { continue };
        let untouched = in_order(lhs.clone(), rhs.clone())?;
        let folded = match is_first {
            true => in_order(before, rhs.clone())?,
            false => in_order(lhs.clone(), before)?,
        };
        let readable = |(lhs, rhs): &(Side, Side), first: bool| match first {
            true => is_fine(lhs, true),
            false => is_fine(rhs, false),
        };
        // The other operand must not need a transpose instead.
        let other_is_fine = readable(&folded, !is_first) || !readable(&untouched, !is_first);
        if readable(&folded, is_first) && other_is_fine {
            (lhs, rhs) = folded;
            changed = true;
        }
    }
    changed |= !lhs.summed.is_sorted();
    (lhs, rhs) = in_order(lhs, rhs)?;
    let in_form = lhs.has_form() && rhs.has_form();
    let readable = is_fine(&lhs, true) && is_fine(&rhs, false);
    if !changed && (was_canonical || readable && !in_form) {
        return None;
    }
    let readable_swapped = is_fine(&rhs, true) && is_fine(&lhs, false);
    // What is summed over in another order cannot be read in one stride from either side.
    if !readable && readable_swapped && rhs.summed.is_sorted() && is_larger(module, rhs.value, i) {
        return swapped_dot(module, i, lhs, rhs);
    }
    let Op::Dot(dot) = &module[i].op else { return None };
    let precision = dot.precision.clone();
    let result = array(module, i)?.clone();
    let mut b = beside(module, i);
    let mut to = DimVec::from(result.dims());
    if in_form {
        (lhs, rhs) = (lhs.collapsed(&mut b)?, rhs.collapsed(&mut b)?);
        to = lhs.batch.iter().map(|&d| lhs.dims[d as usize]).collect();
        to.extend([lhs.size(&lhs.free)?, rhs.size(&rhs.free)?]);
    } else {
        lhs = if is_fine(&lhs, true) { lhs } else { lhs.transposed(&mut b, true)? };
        rhs = if is_fine(&rhs, false) { rhs } else { rhs.transposed(&mut b, false)? };
    }
    let dims = DotDimensionNumbers {
        lhs_contracting: lhs.summed,
        rhs_contracting: rhs.summed,
        lhs_batch: lhs.batch,
        rhs_batch: rhs.batch,
    };
    let shape = ArrayShape::new(result.element_type, to.iter().copied()).with_default_layout();
    let op = Op::Dot(Box::new(Dot { dims, precision }));
    let value = b.push_shaped(op, &[lhs.value, rhs.value], shape).ok()?;
    if result.dims() == to.as_slice() { Some(value) } else { b.reshape(value, result.dims().iter().copied()).ok() }
}

/// The order of what is summed over is free, as long as it is the same on both sides: that of the first operand.
fn in_order(mut lhs: Side, mut rhs: Side) -> Option<(Side, Side)> {
    let mut order: Vec<usize> = (0..lhs.summed.len()).collect();
    order.sort_by_key(|&k| lhs.summed[k]);
    for side in [&mut lhs, &mut rhs] {
        side.summed = order.iter().map(|&k| side.summed.get(k).copied()).collect::<Option<DimVec>>()?;
    }
    Some((lhs, rhs))
}

fn is_larger(module: &Module, a: InstructionId, b: InstructionId) -> bool {
    let bytes = |i: InstructionId| array(module, i).and_then(ArrayShape::byte_size);
    bytes(a) > bytes(b)
}

/// The product with its operands in the other order, and its result transposed instead of the second operand.
fn swapped_dot(module: &mut Module, i: InstructionId, lhs: Side, rhs: Side) -> Option<InstructionId> {
    let Op::Dot(dot) = &module[i].op else { return None };
    let mut precision = dot.precision.clone();
    precision.operand_precision.reverse();
    let sizes = |side: &Side, list: &[i64]| list.iter().map(|&d| side.dims[d as usize]).collect::<DimVec>();
    let mut dims = sizes(&lhs, &lhs.batch);
    dims.extend(sizes(&rhs, &rhs.free));
    dims.extend(sizes(&lhs, &lhs.free));
    let (batch, first) = (lhs.batch.len() as i64, rhs.free.len() as i64);
    let order: DimVec = (0..batch).chain(batch + first..dims.len() as i64).chain(batch..batch + first).collect();
    let shape = ArrayShape::new(array(module, i)?.element_type, dims).with_default_layout();
    let numbers = DotDimensionNumbers {
        lhs_contracting: rhs.summed,
        rhs_contracting: lhs.summed,
        lhs_batch: rhs.batch,
        rhs_batch: lhs.batch,
    };
    let mut b = beside(module, i);
    let op = Op::Dot(Box::new(Dot { dims: numbers, precision }));
    let value = b.push_shaped(op, &[rhs.value, lhs.value], shape).ok()?;
    b.transpose(value, order).ok()
}

/// The transpose of a product as the product of the operands in the other order. What is to be in another order among one
/// operand's own dimensions is transposed there, if that operand is much smaller than the result.
fn transposed_dot(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Transpose { dimensions } = &module[i].op else { return None };
    let order = dimensions.clone();
    let product = operand(module, i, 0)?;
    let Op::Dot(dot) = &module[product].op else { return None };
    let mut precision = dot.precision.clone();
    let (lhs, rhs) = sides(module, product)?;
    let (batch, left, right) = (lhs.batch.len(), lhs.free.len(), rhs.free.len());
    if module[product].users() != [i] || left == 0 || right == 0 || order.len() != batch + left + right {
        return None;
    }
    let (kept, moved) = order.split_at(batch);
    let (first, second) = moved.split_at(right);
    let of_rhs = |d: &i64| *d >= (batch + left) as i64;
    if !is_identity(kept) || !first.iter().all(of_rhs) || second.iter().any(of_rhs) {
        return None;
    }
    let bytes = |i: InstructionId| array(module, i).and_then(ArrayShape::byte_size);
    let result = array(module, i)?.clone();
    let budget = result.byte_size()? / 2;
    // The operands with their dimensions in the order in which they are wanted.
    let wanted = |side: Side, places: &[i64], start: usize| -> Option<(Side, bool)> {
        let free = places.iter().map(|&d| side.free.get(d as usize - start).copied()).collect::<Option<DimVec>>()?;
        let moves = !free.is_sorted();
        (!moves || bytes(side.value)? <= budget).then_some((Side { free, ..side }, moves))
    };
    let (new_lhs, lhs_moves) = wanted(rhs, first, batch + left)?;
    let (new_rhs, rhs_moves) = wanted(lhs, second, batch)?;
    // Otherwise the operands are in this order for a reason.
    if !(lhs_moves || new_lhs.is_readable(true)) || !(rhs_moves || new_rhs.is_readable(false)) {
        return None;
    }
    precision.operand_precision.reverse();
    let mut b = beside(module, i);
    let lhs = if lhs_moves { new_lhs.transposed(&mut b, true)? } else { new_lhs };
    let rhs = if rhs_moves { new_rhs.transposed(&mut b, true)? } else { new_rhs };
    let dims = DotDimensionNumbers {
        lhs_contracting: lhs.summed,
        rhs_contracting: rhs.summed,
        lhs_batch: lhs.batch,
        rhs_batch: rhs.batch,
    };
    let op = Op::Dot(Box::new(Dot { dims, precision }));
    let shape = ArrayShape::new(result.element_type, result.dims().iter().copied()).with_default_layout();
    b.push_shaped(op, &[lhs.value, rhs.value], shape).ok()
}

/// Products of more elements than this are left to the kernels for matrices.
const TINY: i64 = 256;
/// Within a loop, where a call costs as much as a small product and what is around it can be computed along with it,
/// these bounds hold for all products of the batch together: one for matrices, one where one of them is a vector.
const TINY_IN_LOOP: i64 = 4096;
const TINY_OF_VECTOR: i64 = 1 << 14;

/// Whether a dot is better written out as multiplications and sums.
fn is_tiny(module: &Module, i: InstructionId, lhs: &Side, rhs: &Side) -> Option<bool> {
    let element_type = array(module, i)?.element_type;
    let same = |s: &Side| array(module, s.value).is_some_and(|a| a.element_type == element_type);
    let (m, n, k) = (lhs.size(&lhs.free)?, rhs.size(&rhs.free)?, lhs.size(&lhs.summed)?);
    use ElementType::{Bf16, F16, F32, F64, S32, S64, U32, U64};
    let most = match Some(module[i].parent()) == module.entry() {
        true => 0,
        false if m == 1 || n == 1 => TINY_OF_VECTOR,
        false => TINY_IN_LOOP,
    };
    let size = m.saturating_mul(n).saturating_mul(k);
    let in_all = size.saturating_mul(lhs.size(&lhs.batch)?);
    let tiny = match element_type {
        // Integers can be summed in any order, so that a sum of products is as fast as anything that reads the matrix once.
        S32 | S64 | U32 | U64 if m == 1 || n == 1 => k > 0,
        F32 | F64 | S32 | S64 => k == 1 || k > 0 && (size <= TINY || in_all <= most),
        // Sums of these are made in a wider type.
        Bf16 | F16 => k == 1,
        _ => false,
    };
    Some(tiny && same(lhs) && same(rhs))
}

fn tiny_dot(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (lhs, rhs) = sides(module, i)?;
    let k = lhs.size(&lhs.summed)?;
    if !lhs.is_canonical() || !rhs.is_canonical() || !is_tiny(module, i, &lhs, &rhs)? {
        return None;
    }
    let result = DimVec::from(dims(module, i)?);
    let batch = lhs.batch.len() as i64;
    let mut all = result.clone();
    if k > 1 {
        all.push(k);
    }
    let mut b = beside(module, i);
    let mut repeat = |side: &Side, at: i64| {
        // The dimension summed over goes last, or away if it has one element.
        let mut positions = DimVec::from_elem(at, side.dims.len());
        side.batch.iter().for_each(|&d| positions[d as usize] = d);
        positions[side.summed[0] as usize] = batch + 2;
        let mut value = side.value;
        if k == 1 {
            positions.remove(side.summed[0] as usize);
            let mut kept = side.dims.clone();
            kept.remove(side.summed[0] as usize);
            value = b.reshape(value, kept).ok()?;
        } else if !positions.is_sorted() {
            let last = side.dims.len() as i64 - 1;
            let order: DimVec = (0..last - 1).chain([last, last - 1]).collect();
            value = b.transpose(value, order).ok()?;
            positions.sort_unstable();
        }
        b.broadcast(value, all.iter().copied(), positions).ok()
    };
    let x = repeat(&lhs, batch)?;
    let y = repeat(&rhs, batch + 1)?;
    let product = b.multiply(x, y).ok()?;
    if k == 1 { Some(product) } else { b.sum(product, [batch + 2]).ok() }
}

/// A batch of products with vectors, where what belongs together is far apart in memory: sums of products for many of the
/// batch side by side, in the order in which the larger operand lies.
fn interleaved_dot(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (lhs, rhs) = sides(module, i)?;
    let result = array(module, i)?.clone();
    let same = |s: &Side| array(module, s.value).is_some_and(|a| a.element_type == result.element_type);
    let is_known = matches!(result.element_type, ElementType::F32 | ElementType::F64) && same(&lhs) && same(&rhs);
    if !is_known || !lhs.is_batch_innermost() || !rhs.is_batch_innermost() {
        return None;
    }
    let (vectors, others) = match (lhs.size(&lhs.free)?, rhs.size(&rhs.free)?) {
        (1, _) => (lhs, rhs),
        (_, 1) => (rhs, lhs),
        _ => return None,
    };
    let rank = vectors.dims.len() as i64;
    let kept: DimVec = (0..rank).filter(|d| !vectors.free.contains(d)).collect();
    let place = |d: &i64| {
        let at = |mine: &DimVec, its: &DimVec| mine.iter().position(|m| m == d).and_then(|n| its.get(n).copied());
        at(&vectors.batch, &others.batch).or_else(|| at(&vectors.summed, &others.summed))
    };
    let places = kept.iter().map(place).collect::<Option<DimVec>>()?;
    if !places.is_sorted() {
        return None;
    }
    let mut b = beside(module, i);
    let vector = b.reshape(vectors.value, kept.iter().map(|&d| vectors.dims[d as usize])).ok()?;
    let repeated = b.broadcast(vector, others.dims.iter().copied(), places).ok()?;
    let product = b.multiply(repeated, others.value).ok()?;
    let sums = b.sum(product, others.summed.iter().copied()).ok()?;
    // The batch comes first in the result.
    let rest: DimVec = (0..others.dims.len() as i64).filter(|d| !others.summed.contains(d)).collect();
    let wanted = others.batch.iter().chain(&others.free);
    let order = wanted.map(|d| rest.iter().position(|r| r == d).map(|n| n as i64)).collect::<Option<DimVec>>()?;
    let moved = b.transpose(sums, order).ok()?;
    b.reshape(moved, result.dims().iter().copied()).ok()
}

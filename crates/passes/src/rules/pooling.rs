//! Select-and-scatter, the gradient of a maximum over windows, written out without anything that is scattered.
//!
//! First the element that each window selects is found, by going through the elements of all windows at once, and noted as
//! its offset in the window. Then each element of the result looks at the windows that it lies in, which are few, and
//! takes what belongs to those that selected it. Nothing is written twice, so all of it can be made side by side.

use super::functions::{applied, applied_up_to, needed};
use super::numbers::{Number, filled, scalar};
use super::{array, beside, dims};
use crate::rewrite::Rule;
use hloom_ir::attributes::{ComparisonDirection, PaddingDim, SliceDim, WindowDim};
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType::{self, S32, U32};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::layout::DimVec;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op};
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::{ArrayShape, Shape};
use smallvec::SmallVec;

/// The rules.
pub(super) static RULES: &[Rule] = &[Rule {
    name: "select-and-scatter",
    statement: "→ the offset that each window selects, and for each element the sum of what selected it",
    opcodes: &[Opcode::SelectAndScatter],
    apply: select_and_scatter,
}];

/// Windows of more elements are left as they are.
const MAX_WINDOW: i64 = 32;
/// And windows that overlap so much that an element lies in more than this many.
const MAX_OVERLAP: i64 = 16;

/// A select-and-scatter being written out.
struct Pooling {
    windows: SmallVec<[WindowDim; 4]>,
    /// The sizes of the operand, and how many windows there are along each dimension.
    whole: DimVec,
    count: DimVec,
    element_type: ElementType,
    select: ComputationId,
}

fn select_and_scatter(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::SelectAndScatter { window, select, scatter } = &module[i].op else { return None };
    let &[x, source, init] = module[i].operands() else { return None };
    let (select, added) = (*select, addend(module, *scatter)?);
    let element_type = array(module, i)?.element_type;
    let same = [x, source, init].iter().all(|&o| array(module, o).is_some_and(|a| a.element_type == element_type));
    let pooling = Pooling {
        windows: window.dims.iter().copied().collect(),
        whole: dims(module, x)?.into(),
        count: dims(module, source)?.into(),
        element_type,
        select,
    };
    (same && pooling.is_plain()).then_some(())?;
    let chosen = pooling.chosen(module, i, x)?;
    let &[source] = applied_up_to(module, i, added, &[source, source], &pooling.count)?.as_slice() else { return None };
    pooling.taken(&mut beside(module, i), chosen, source, init)
}

/// What a function adds to its first parameter, if it is a sum of that and of what it makes of the second.
fn addend(module: &Module, function: ComputationId) -> Option<InstructionId> {
    let root = module.root(function)?;
    let (Op::Binary(BinaryOp::Add), &[a, b]) = (&module[root].op, module[root].operands()) else { return None };
    let &[first, _] = module.parameters(function).as_slice() else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(sum, added)| {
        let is_own = sum == first && !needed(module, added)?.contains(&first);
        let same = module[added].shape.element_type() == module[root].shape.element_type();
        (is_own && same).then_some(added)
    })
}

/// All vectors below `sizes`, the last number first to change.
fn vectors(sizes: &[i64]) -> Vec<DimVec> {
    let mut all = vec![DimVec::new()];
    for &size in sizes {
        all = all.iter().flat_map(|v| (0..size).map(|n| v.iter().copied().chain([n]).collect())).collect();
    }
    all
}

impl Pooling {
    fn is_plain(&self) -> bool {
        let plain = |w: &WindowDim| {
            let undilated = w.base_dilation == 1 && w.window_dilation == 1 && !w.window_reversal;
            undilated && w.size > 0 && w.stride > 0 && w.padding_low >= 0 && w.padding_high >= 0
        };
        let small =
            |sizes: DimVec, most: i64| sizes.iter().try_fold(1i64, |n, &s| n.checked_mul(s)).is_some_and(|n| n <= most);
        let fits = |n: &i64| *n > 0 && *n < 1 << 24;
        let floats_or_integers = self.element_type.is_integer()
            || matches!(self.element_type, ElementType::F16 | ElementType::Bf16 | ElementType::F32 | ElementType::F64);
        floats_or_integers
            && self.windows.iter().all(plain)
            && self.whole.iter().chain(&self.count).all(fits)
            && small(self.windows.iter().map(|w| w.size).collect(), MAX_WINDOW)
            && small(self.overlap(), MAX_OVERLAP)
    }

    /// In how many windows an element lies at most, along each dimension.
    fn overlap(&self) -> DimVec {
        self.windows.iter().map(|w| (w.size + w.stride - 1) / w.stride).collect()
    }

    /// The number that stands for an offset in a window. Each offset that an element may have, within the window or
    /// behind its end, has its own.
    fn code(&self, offset: &[i64]) -> i128 {
        let sizes = self.windows.iter().zip(self.overlap()).map(|(w, n)| w.stride * n);
        offset.iter().zip(sizes).fold(0, |code, (&o, size)| code * i128::from(size) + i128::from(o))
    }

    fn has_padding(&self) -> bool {
        self.windows.iter().any(|w| w.padding_low > 0 || w.padding_high > 0)
    }

    /// For each window the code of the offset that it selects; one that no offset has if it lies in the padding.
    fn chosen(&self, module: &mut Module, i: InstructionId, x: InstructionId) -> Option<InstructionId> {
        let mut b = beside(module, i);
        let mut padded = x;
        if self.has_padding() {
            let zero = b.literal(Literal::zero(self.element_type)).ok()?;
            let pad = |w: &WindowDim| PaddingDim { low: w.padding_low, high: w.padding_high, interior: 0 };
            padded = b.pad(x, zero, self.windows.iter().map(pad)).ok()?;
        }
        let sizes: DimVec = self.windows.iter().map(|w| w.size).collect();
        let mut state: Option<(InstructionId, InstructionId, Option<InstructionId>)> = None;
        for offset in vectors(&sizes) {
            let mut b = beside(module, i);
            let parts = self.windows.iter().zip(&self.count).zip(&offset).map(|((w, &n), &start)| SliceDim {
                start,
                limit: start + (n - 1) * w.stride + 1,
                stride: if n > 1 { w.stride } else { 1 },
            });
            let value = b.slice(padded, parts).ok()?;
            let code = filled(&mut b, U32, &self.count, Number::Int(self.code(&offset)))?;
            let within = if self.has_padding() { Some(self.within(&mut b, &offset)?) } else { None };
            state = Some(match state {
                None => (value, code, within),
                Some((best, best_code, any)) => {
                    let &[keeps] = applied(module, i, self.select, &[best, value], &self.count)?.as_slice() else {
                        return None;
                    };
                    let mut b = beside(module, i);
                    let (mut takes, mut any) = (b.not(keeps).ok()?, any);
                    if let (Some(before), Some(within)) = (any, within) {
                        let first = b.not(before).ok()?;
                        takes = b.or(first, takes).ok()?;
                        takes = b.and(within, takes).ok()?;
                        any = Some(b.or(before, within).ok()?);
                    }
                    (b.select(takes, value, best).ok()?, b.select(takes, code, best_code).ok()?, any)
                }
            });
        }
        let (_, code, any) = state?;
        let mut b = beside(module, i);
        match any {
            None => Some(code),
            Some(any) => {
                let none = filled(&mut b, U32, &self.count, Number::Int(u32::MAX.into()))?;
                b.select(any, code, none).ok()
            }
        }
    }

    /// Which windows have the element at `offset` within the operand, and not in its padding.
    fn within(&self, b: &mut Builder<'_>, offset: &[i64]) -> Option<InstructionId> {
        let mut all = None;
        for (d, ((w, &size), &o)) in self.windows.iter().zip(&self.whole).zip(offset).enumerate() {
            if w.padding_low == 0 && w.padding_high == 0 {
                continue;
            }
            let number = |b: &mut Builder<'_>, n: i64| filled(b, S32, &self.count, Number::Int(n.into()));
            let place = b.iota(Shape::array(S32, self.count.iter().copied()), d as i64).ok()?;
            let stride = number(b, w.stride)?;
            let place = b.multiply(place, stride).ok()?;
            let (first, last) = (number(b, w.padding_low - o)?, number(b, w.padding_low - o + size - 1)?);
            let not_before = b.compare(ComparisonDirection::Ge, place, first).ok()?;
            let not_after = b.compare(ComparisonDirection::Le, place, last).ok()?;
            let here = b.and(not_before, not_after).ok()?;
            all = Some(match all {
                None => here,
                Some(others) => b.and(others, here).ok()?,
            });
        }
        all.or_else(|| filled(b, ElementType::Pred, &self.count, Number::Int(1)))
    }

    /// A value of each window, for each element of the operand that lies in it: that of the window that begins `behind`
    /// windows before the last one that has begun there. `nothing` where there is none.
    fn spread(
        &self,
        b: &mut Builder<'_>,
        value: InstructionId,
        behind: &[i64],
        nothing: InstructionId,
    ) -> Option<InstructionId> {
        let wide: DimVec = self.count.iter().zip(&self.windows).flat_map(|(&n, w)| [n, w.stride]).collect();
        let places = (0..self.count.len() as i64).map(|d| 2 * d);
        let repeated = b.broadcast(value, wide, places).ok()?;
        let sizes = self.count.iter().zip(&self.windows).map(|(&n, w)| n * w.stride);
        let flat = b.reshape(repeated, sizes).ok()?;
        let shift = |((w, &n), (&whole, &j)): ((&WindowDim, &i64), (&i64, &i64))| {
            let low = j * w.stride - w.padding_low;
            PaddingDim { low, high: whole - low - n * w.stride, interior: 0 }
        };
        let shifts = self.windows.iter().zip(&self.count).zip(self.whole.iter().zip(behind)).map(shift);
        b.pad(flat, nothing, shifts).ok()
    }

    /// The code of the offset that each element has in the window `behind` the last.
    fn codes(&self, b: &mut Builder<'_>, behind: &[i64]) -> Option<InstructionId> {
        let mut code = filled(b, U32, &self.whole, Number::Int(0))?;
        for (d, (w, &j)) in self.windows.iter().zip(behind).enumerate() {
            let number = |b: &mut Builder<'_>, n: i64| filled(b, U32, &self.whole, Number::Int(n.into()));
            let place = b.iota(Shape::array(U32, self.whole.iter().copied()), d as i64).ok()?;
            let (low, stride, before) = (number(b, w.padding_low)?, number(b, w.stride)?, number(b, j * w.stride)?);
            let place = b.add(place, low).ok()?;
            let within = b.remainder(place, stride).ok()?;
            let offset = b.add(within, before).ok()?;
            let size = number(b, w.stride * self.overlap()[d])?;
            let scaled = b.multiply(code, size).ok()?;
            code = b.add(scaled, offset).ok()?;
        }
        Some(code)
    }

    /// For each element the sum of what belongs to the windows that chose it.
    fn taken(
        &self,
        b: &mut Builder<'_>,
        chosen: InstructionId,
        source: InstructionId,
        init: InstructionId,
    ) -> Option<InstructionId> {
        let zero = b.literal(Literal::zero(self.element_type)).ok()?;
        let nobody = scalar(b, U32, Number::Int(u32::MAX.into()))?;
        let zeros = b.broadcast(zero, self.whole.iter().copied(), []).ok()?;
        let mut sum = b.broadcast(init, self.whole.iter().copied(), []).ok()?;
        for behind in vectors(&self.overlap()) {
            let code = self.codes(b, &behind)?;
            let chosen = self.spread(b, chosen, &behind, nobody)?;
            let value = self.spread(b, source, &behind, zero)?;
            let here = b.compare(ComparisonDirection::Eq, chosen, code).ok()?;
            let part = b.select(here, value, zeros).ok()?;
            sum = b.add(sum, part).ok()?;
        }
        let is_whole = b.shape(sum).as_array().map(ArrayShape::dims) == Some(self.whole.as_slice());
        is_whole.then_some(sum)
    }
}

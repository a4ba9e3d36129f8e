//! What one operation makes of the shardings of its operands and results.
//!
//! Both strategies first find, for each factor, the axes on which all arrays that have it agree, or that one has and the
//! others may take. The basic one gives an axis to all arrays or to none; the aggressive one looks at each array alone, and
//! where two factors want one axis, prefers the one whose axes come from the larger array.

use super::graph::Direction;
use super::projection::{FactorSharding, TensorProjection};
use crate::axes::{Axis, AxisList, Prefix, compatible, prefix_of, total_size};
use crate::rules::{Factor, gcd};
use smallvec::SmallVec;

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Strategy {
    /// An axis goes to all arrays or to none.
    Basic,
    /// To each array that can take it.
    Aggressive,
}

/// The arrays of one operation, operands first.
pub(crate) struct Step<'a> {
    pub tensors: &'a mut [TensorProjection],
    pub operands: usize,
    pub factors: &'a [Factor],
    pub elementwise: bool,
    /// The array whose axes go first where factors want the same.
    pub leading: Option<usize>,
}

impl Step<'_> {
    /// Carries axes along the factors, each in its direction; says which arrays changed.
    pub(crate) fn run(&mut self, strategy: Strategy, direction: impl Fn(usize) -> Direction) -> SmallVec<[bool; 4]> {
        match strategy {
            Strategy::Basic => self.basic(direction),
            Strategy::Aggressive => self.aggressive(direction),
        }
    }

    /// The axes of a factor on which the arrays agree, conflicts set aside.
    fn common_axes(&self, factor: usize, direction: Direction) -> AxisList {
        let (operands, results) = self.tensors.split_at(self.operands);
        let (first, second) = match direction {
            Direction::None => return AxisList::new(),
            Direction::Both | Direction::Forward => (operands, results),
            Direction::Backward => (results, operands),
        };
        let mut axes = AxisList::new();
        let mut can_expand = true;
        for tensor in first {
            let f = &tensor.factors[factor];
            if f.present {
                (axes, can_expand) = compatible(&axes, &f.axes, can_expand);
            }
        }
        can_expand &= direction == Direction::Both;
        for tensor in second {
            let f = &tensor.factors[factor];
            if f.present {
                (axes, can_expand) = compatible(&axes, &f.axes, can_expand);
            }
        }
        axes
    }

    fn basic(&mut self, direction: impl Fn(usize) -> Direction) -> SmallVec<[bool; 4]> {
        let mut changed: SmallVec<[bool; 4]> = SmallVec::from_elem(false, self.tensors.len());
        for factor in 0..self.factors.len() {
            let mut axes = self.common_axes(factor, direction(factor));
            let size = self.factors[factor].size;
            truncate(&mut axes, |axis, sharded| {
                let mut left = axis;
                for tensor in self.tensors.iter() {
                    left = outside_other_factors(left, tensor, factor)?;
                    if tensor.factors[factor].present {
                        left = within_factor(left, tensor, factor, sharded, size)?;
                    }
                }
                Some(left)
            });
            for (tensor, changed) in self.tensors.iter_mut().zip(&mut changed) {
                *changed |= tensor.expand(factor, &axes);
            }
        }
        changed
    }

    fn aggressive(&mut self, direction: impl Fn(usize) -> Direction) -> SmallVec<[bool; 4]> {
        let mut changed: SmallVec<[bool; 4]> = SmallVec::from_elem(false, self.tensors.len());
        let axes: SmallVec<[AxisList; 4]> =
            (0..self.factors.len()).map(|f| self.common_axes(f, direction(f))).collect();
        if axes.iter().all(|a| a.is_empty()) {
            return changed;
        }
        let order = self.order_of_factors(&axes);
        // Results first: what they accept bounds what operands of element-wise operations take.
        for tensor in (self.operands..self.tensors.len()).chain(0..self.operands) {
            for &factor in &order {
                let Some(mut new) = self.axes_for(tensor, factor, &axes[factor]) else { continue };
                if self.elementwise && tensor < self.operands {
                    for result in &self.tensors[self.operands..] {
                        let f = &result.factors[factor];
                        if f.present && prefix_of(&f.axes, &new) == Prefix::Strict {
                            new = f.axes.clone();
                        }
                    }
                }
                changed[tensor] |= self.tensors[tensor].expand(factor, &new);
            }
        }
        changed
    }

    /// What of `axes` a tensor can take for a factor; `None` for no more than it has.
    fn axes_for(&self, tensor: usize, factor: usize, axes: &AxisList) -> Option<AxisList> {
        let t = &self.tensors[tensor];
        let f = &t.factors[factor];
        if !f.present || prefix_of(&f.axes, axes) != Prefix::Strict {
            return None;
        }
        let mut new = axes.clone();
        let size = self.factors[factor].size;
        truncate(&mut new, |axis, sharded| within_factor(axis, t, factor, sharded, size));
        if prefix_of(&f.axes, &new) != Prefix::Strict {
            return None;
        }
        truncate(&mut new, |axis, _| outside_other_factors(axis, t, factor));
        (!new.is_empty()).then_some(new)
    }

    /// Factors whose axes come from larger arrays first; of element-wise operations, those that are cut more; then as the
    /// arrays and factors come.
    fn order_of_factors(&self, axes: &[AxisList]) -> SmallVec<[usize; 4]> {
        let mut source: SmallVec<[(i64, i64); 4]> = SmallVec::from_elem((-1, -1), self.factors.len());
        for (index, tensor) in self.tensors.iter().enumerate() {
            let present = |f: &(usize, &FactorSharding)| f.1.present;
            let size = tensor.factors.iter().enumerate().filter(present);
            let size = size.fold(1i64, |n, (i, _)| n.saturating_mul(self.factors[i].size));
            for (i, f) in tensor.factors.iter().enumerate().filter(present) {
                let is_source = !axes[i].is_empty() && prefix_of(&axes[i], &f.axes) != Prefix::No;
                let size = if self.leading == Some(index) { i64::MAX } else { size };
                if is_source && size > source[i].0 {
                    source[i] = (size, index as i64);
                }
            }
        }
        let mut order: SmallVec<[usize; 4]> = (0..self.factors.len()).collect();
        order.sort_by_key(|&i| {
            let ways = if self.elementwise { total_size(&axes[i]) } else { 0 };
            (-source[i].0, -ways, source[i].1, i)
        });
        order
    }
}

/// Cuts a list at the first axis of which less is left, or nothing.
fn truncate(axes: &mut AxisList, left: impl Fn(Axis, i64) -> Option<Axis>) {
    let mut sharded = 1i64;
    for i in 0..axes.len() {
        match left(axes[i], sharded) {
            None => {
                axes.truncate(i);
                return;
            }
            Some(axis) if axis != axes[i] => {
                axes[i] = axis;
                axes.truncate(i + 1);
                return;
            }
            Some(axis) => sharded = sharded.saturating_mul(axis.size),
        }
    }
}

/// What of an axis no other factor of the array uses.
fn outside_other_factors(axis: Axis, tensor: &TensorProjection, factor: usize) -> Option<Axis> {
    let mut left = axis;
    for (i, f) in tensor.factors.iter().enumerate() {
        if i != factor && f.present {
            left = left.prefix_outside(&f.overflow)?.prefix_outside(&f.axes)?;
        }
    }
    Some(left)
}

/// What of an axis the factor of the array has or may take: it must be open, and cut evenly unless it is the last of its
/// dimension.
fn within_factor(axis: Axis, tensor: &TensorProjection, factor: usize, sharded: i64, size: i64) -> Option<Axis> {
    let left = axis.prefix_outside(&tensor.replicated)?.prefix_outside(&tensor.unreduced)?;
    let f = &tensor.factors[factor];
    if f.axes.iter().any(|a| a.contains(left)) {
        return Some(left);
    }
    if !f.closed && f.overflow.is_empty() {
        if f.minor_most {
            return Some(left);
        }
        if size % sharded == 0 {
            let common = gcd(size / sharded, left.size);
            if common == left.size {
                return Some(left);
            }
            if common != 1 {
                return Some(Axis { size: common, ..left });
            }
        }
    }
    f.axes.last().copied().filter(|last| last.is_prefix_of(left))
}

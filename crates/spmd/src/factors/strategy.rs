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
                meet(&mut axes, &f.axes, &mut can_expand);
            }
        }
        can_expand &= direction == Direction::Both;
        for tensor in second {
            let f = &tensor.factors[factor];
            if f.present {
                meet(&mut axes, &f.axes, &mut can_expand);
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

    /// Whether all arrays that have a factor are cut alike along it.
    fn agrees(&self, factor: usize) -> bool {
        let mut present = self.tensors.iter().map(|t| &t.factors[factor]).filter(|f| f.present);
        let first = present.next();
        present.all(|f| first.is_some_and(|first| first.axes == f.axes))
    }

    fn aggressive(&mut self, direction: impl Fn(usize) -> Direction) -> SmallVec<[bool; 4]> {
        let mut changed: SmallVec<[bool; 4]> = SmallVec::from_elem(false, self.tensors.len());
        // Where all arrays agree already, none takes more.
        let open = (0..self.factors.len()).filter(|&f| !self.agrees(f));
        let mut wanted: SmallVec<[(usize, AxisList); 2]> =
            open.map(|f| (f, self.common_axes(f, direction(f)))).collect();
        wanted.retain(|(_, axes)| !axes.is_empty());
        self.order_factors(&mut wanted);
        // Results first: what they accept bounds what operands of element-wise operations take.
        for tensor in (self.operands..self.tensors.len()).chain(0..self.operands) {
            for (factor, axes) in &wanted {
                let factor = *factor;
                let Some(mut new) = self.axes_for(tensor, factor, axes) else { continue };
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

    /// Puts factors whose axes come from larger arrays first; of element-wise operations, those that are cut more; then as the
    /// arrays and factors come.
    fn order_factors(&self, wanted: &mut [(usize, AxisList)]) {
        if wanted.len() < 2 {
            return;
        }
        let present = |f: &(usize, &FactorSharding)| f.1.present;
        let size = |(index, tensor): (usize, &TensorProjection)| {
            let factors = tensor.factors.iter().enumerate().filter(present);
            let size = factors.fold(1i64, |n, (i, _)| n.saturating_mul(self.factors[i].size));
            if self.leading == Some(index) { i64::MAX } else { size }
        };
        let sizes: SmallVec<[i64; 4]> = self.tensors.iter().enumerate().map(size).collect();
        wanted.sort_by_cached_key(|(i, axes)| {
            let mut source = (-1, -1);
            for (index, tensor) in self.tensors.iter().enumerate() {
                let f = &tensor.factors[*i];
                if f.present && prefix_of(axes, &f.axes) != Prefix::No && sizes[index] > source.0 {
                    source = (sizes[index], index as i64);
                }
            }
            let ways = if self.elementwise { total_size(axes) } else { 0 };
            (-source.0, -ways, source.1, *i)
        });
    }
}

/// Makes of `axes` what is [`compatible`] with `more`, which mostly is the same, or one of the two is empty.
fn meet(axes: &mut AxisList, more: &[Axis], can_expand: &mut bool) {
    if more.is_empty() || axes.as_slice() == more {
        return;
    }
    if !axes.is_empty() {
        (*axes, *can_expand) = compatible(axes, more, *can_expand);
    } else if *can_expand {
        axes.extend_from_slice(more);
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

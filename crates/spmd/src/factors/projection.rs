//! A sharding in terms of factors, and back.

use super::graph::{MeshId, TensorDim, TensorSharding};
use crate::axes::{Axis, AxisList, Prefix, extend_merged, list_of, prefix_of, push_merged, total_size};
use crate::rules::{Factor, TensorFactors, gcd};
use hloom_ir::sharding::UnreducedReduction;
use smallvec::SmallVec;

/// How one factor of one array is cut.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FactorSharding {
    /// Whether the array has the factor.
    pub present: bool,
    pub axes: AxisList,
    /// Axes that no factor can take; what is minor to this factor is then closed.
    pub overflow: AxisList,
    pub closed: bool,
    /// Whether it is the last of its dimension: it may be cut unevenly.
    pub minor_most: bool,
}

/// How an array is cut, by factors.
#[derive(Clone, Debug)]
pub(crate) struct TensorProjection {
    /// One for each factor of the rule.
    pub factors: SmallVec<[FactorSharding; 4]>,
    pub replicated: AxisList,
    pub unreduced: AxisList,
    pub reduction: UnreducedReduction,
}

/// What is left of a list of axes; the first may be a part of the one in the list.
struct Rest<'a> {
    axes: &'a [Axis],
    first: Option<Axis>,
}

impl<'a> Rest<'a> {
    fn new(axes: &'a [Axis]) -> Rest<'a> {
        Rest { axes, first: axes.first().copied() }
    }

    fn advance(&mut self) {
        self.axes = self.axes.get(1..).unwrap_or(&[]);
        self.first = self.axes.first().copied();
    }

    fn move_all(&mut self, to: &mut AxisList) {
        while let Some(axis) = self.first {
            push_merged(to, axis);
            self.advance();
        }
    }
}

impl TensorProjection {
    /// The projection of a sharding; all factors are open where there is none.
    pub(crate) fn new(
        factors: &[Factor],
        tensor: &TensorFactors,
        sharding: Option<&TensorSharding>,
    ) -> TensorProjection {
        let mut all: SmallVec<[FactorSharding; 4]> = factors.iter().map(|_| FactorSharding::default()).collect();
        for (d, dim) in tensor.iter().enumerate() {
            let of_dim = sharding.and_then(|s| s.dims.get(d));
            let closed = of_dim.is_some_and(|d| d.closed);
            if let &[factor] = dim.as_slice() {
                let f = &mut all[usize::from(factor)];
                (f.present, f.minor_most, f.closed) = (true, true, closed);
                extend_merged(&mut f.axes, of_dim.map_or(&[], |d| &d.axes));
                continue;
            }
            let mut rest = Rest::new(of_dim.map_or(&[], |d| &d.axes));
            let mut overflows = false;
            for (i, &factor) in dim.iter().enumerate() {
                let mut left = factors[usize::from(factor)].size;
                let f = &mut all[usize::from(factor)];
                f.present = true;
                f.minor_most = i + 1 == dim.len();
                f.closed = closed || overflows;
                if overflows {
                    continue;
                }
                if f.minor_most {
                    rest.move_all(&mut f.axes);
                    break;
                }
                while let Some(axis) = rest.first {
                    let common = if axis.size == 1 { 1 } else { gcd(left, axis.size) };
                    if axis.size != 1 && common == 1 {
                        break;
                    }
                    f.axes.push(Axis { size: common, ..axis });
                    left /= common;
                    if common < axis.size {
                        rest.first = Some(Axis { pre: axis.pre * common, size: axis.size / common, ..axis });
                    } else {
                        rest.advance();
                    }
                }
                if left > 1 && rest.first.is_some() {
                    overflows = true;
                    rest.move_all(&mut f.overflow);
                }
            }
        }
        let list = |axes: Option<&AxisList>| axes.map_or_else(AxisList::new, |a| list_of(a));
        TensorProjection {
            factors: all,
            replicated: list(sharding.map(|s| &s.replicated)),
            unreduced: list(sharding.map(|s| &s.unreduced)),
            reduction: sharding.map(|s| s.reduction).unwrap_or_default(),
        }
    }

    /// Cuts a factor along more axes; `false` if these do not go on from what it has.
    pub(crate) fn expand(&mut self, factor: usize, axes: &[Axis]) -> bool {
        let f = &mut self.factors[factor];
        if !f.present || prefix_of(&f.axes, axes) != Prefix::Strict {
            return false;
        }
        f.axes = list_of(axes);
        true
    }

    /// The sharding of the array.
    pub(crate) fn sharding(&self, mesh: MeshId, factors: &[Factor], tensor: &TensorFactors) -> TensorSharding {
        let dims = tensor.iter().map(|dim| {
            let mut out = TensorDim::default();
            for &factor in dim {
                let f = &self.factors[usize::from(factor)];
                out.closed |= f.closed;
                extend_merged(&mut out.axes, &f.axes);
                if !f.overflow.is_empty() {
                    extend_merged(&mut out.axes, &f.overflow);
                    break;
                }
                // What is minor to a factor that is not cut through cannot be cut without strides.
                if total_size(&f.axes) < factors[usize::from(factor)].size {
                    break;
                }
            }
            out
        });
        TensorSharding {
            mesh,
            dims: dims.collect(),
            replicated: list_of(&self.replicated),
            unreduced: list_of(&self.unreduced),
            reduction: self.reduction,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{DimFactors, FactorKind};
    use proptest::prelude::*;

    fn axis(index: u32, pre: i64, size: i64) -> Axis {
        Axis { index, pre, size }
    }
    fn factors(sizes: &[i64]) -> Vec<Factor> {
        sizes.iter().map(|&size| Factor { size, kind: FactorKind::PassThrough, blocked: false }).collect()
    }
    fn one_dim(count: u16) -> TensorFactors {
        SmallVec::from_elem((0..count).collect::<DimFactors>(), 1)
    }
    fn sharding(axes: &[Axis]) -> TensorSharding {
        let mut s = TensorSharding::fully_open(MeshId(0), 1);
        s.dims[0].axes = AxisList::from_slice(axes);
        s
    }

    #[test]
    fn an_axis_is_split_between_factors() {
        let all = factors(&[2, 8]);
        let p = TensorProjection::new(&all, &one_dim(2), Some(&sharding(&[axis(0, 1, 4)])));
        assert_eq!(p.factors[0].axes.as_slice(), [axis(0, 1, 2)]);
        assert_eq!(p.factors[1].axes.as_slice(), [axis(0, 2, 2)]);
    }

    #[test]
    fn what_does_not_divide_a_major_factor_overflows() {
        let all = factors(&[3, 8]);
        let p = TensorProjection::new(&all, &one_dim(2), Some(&sharding(&[axis(0, 1, 4)])));
        assert!(p.factors[0].axes.is_empty());
        assert_eq!(p.factors[0].overflow.as_slice(), [axis(0, 1, 4)]);
        assert!(p.factors[1].closed);
    }

    proptest! {
        #[test]
        fn projecting_loses_nothing(
            sizes in proptest::collection::vec(proptest::sample::select(vec![1i64, 2, 3, 4, 6, 8]), 1..4),
            axes in proptest::collection::vec(proptest::sample::select(vec![2i64, 3, 4]), 0..3),
        ) {
            let all = factors(&sizes);
            let axes: Vec<Axis> = axes.iter().enumerate().map(|(i, &size)| axis(i as u32, 1, size)).collect();
            let tensor = one_dim(sizes.len() as u16);
            let given = sharding(&axes);
            let back = TensorProjection::new(&all, &tensor, Some(&given)).sharding(MeshId(0), &all, &tensor);
            prop_assert_eq!(&back.dims[0].axes, &given.dims[0].axes);
        }
    }
}

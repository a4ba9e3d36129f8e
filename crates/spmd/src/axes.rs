//! Lists of mesh axes: what they overlap, what they are a prefix of, and what is left of them.
//!
//! An axis of size n viewed as [pre, size, n/(pre·size)] has the sub-axis (pre, size). A list is in the order of the data,
//! major first, and never holds two neighbours that could be one.

use smallvec::SmallVec;

/// An axis of a mesh, or a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Axis {
    /// Which axis of the mesh.
    pub index: u32,
    /// The size of what comes before the part.
    pub pre: i64,
    /// The size of the part.
    pub size: i64,
}

/// Axes in order, major first.
pub(crate) type AxisList = SmallVec<[Axis; 1]>;

/// How one list relates to another that may go on from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Prefix {
    /// It is no prefix.
    No,
    /// The lists are equal.
    Equal,
    /// It is a prefix, and the other goes on.
    Strict,
}

impl Axis {
    /// Where the part ends, as a size from the major side.
    pub(crate) fn end(self) -> i64 {
        self.pre * self.size
    }

    /// Whether it holds all of `other`.
    pub(crate) fn contains(self, other: Axis) -> bool {
        self.index == other.index && self.pre <= other.pre && self.end() >= other.end()
    }

    /// Whether `other` begins with it.
    pub(crate) fn is_prefix_of(self, other: Axis) -> bool {
        self.index == other.index && self.pre == other.pre && self.size <= other.size
    }

    /// Whether the two have something in common.
    pub(crate) fn overlaps(self, other: Axis) -> bool {
        self.index == other.index && self.pre < other.end() && other.pre < self.end()
    }

    /// What of it comes before anything in `used`; `None` if nothing does.
    pub(crate) fn prefix_outside(self, used: &[Axis]) -> Option<Axis> {
        let mut left = self;
        for &other in used {
            if left.overlaps(other) {
                if left.pre >= other.pre || other.pre % left.pre != 0 {
                    return None;
                }
                left.size = other.pre / left.pre;
            }
        }
        Some(left)
    }
}

/// The list of those axes. Most lists have one or none, for which no block is copied.
pub(crate) fn list_of(axes: &[Axis]) -> AxisList {
    match *axes {
        [] => AxisList::new(),
        [axis] => AxisList::from_buf([axis]),
        _ => AxisList::from_slice(axes),
    }
}

/// The number of shards along all of them.
pub(crate) fn total_size(axes: &[Axis]) -> i64 {
    axes.iter().fold(1i64, |n, a| n.saturating_mul(a.size))
}

/// Appends an axis, as one with the last where they are neighbours.
pub(crate) fn push_merged(axes: &mut AxisList, axis: Axis) {
    match axes.last_mut() {
        Some(last) if last.index == axis.index && last.end() == axis.pre => last.size *= axis.size,
        _ => axes.push(axis),
    }
}

/// Appends axes, each as one with the last where they are neighbours.
pub(crate) fn extend_merged(list: &mut AxisList, axes: &[Axis]) {
    match *axes {
        [axis] if list.is_empty() => *list = AxisList::from_buf([axis]),
        _ => axes.iter().for_each(|&a| push_merged(list, a)),
    }
}

/// Whether `a` is a prefix of `b`; its last axis may be a prefix of the one in `b`.
pub(crate) fn prefix_of(a: &[Axis], b: &[Axis]) -> Prefix {
    if a.len() > b.len() {
        return Prefix::No;
    }
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        if x == y {
            continue;
        }
        return if i + 1 == a.len() && x.is_prefix_of(*y) { Prefix::Strict } else { Prefix::No };
    }
    if a.len() == b.len() { Prefix::Equal } else { Prefix::Strict }
}

/// What two lists have in common from the major side, and more where one goes on from the other: the `new` one only if
/// `can_expand`. The second part says whether the result may grow further.
pub(crate) fn compatible(old: &[Axis], new: &[Axis], can_expand: bool) -> (AxisList, bool) {
    let mut result = AxisList::new();
    let shared = old.len().min(new.len());
    for i in 0..shared {
        let (o, n) = (old[i], new[i]);
        if o == n {
            result.push(o);
        } else if n.is_prefix_of(o) {
            if i + 1 < new.len() {
                result.push(n);
                return (result, false);
            }
            result.push(o);
        } else if o.is_prefix_of(n) {
            if !can_expand || i + 1 < old.len() {
                result.push(o);
                return (result, false);
            }
            result.push(n);
        } else {
            return (result, false);
        }
    }
    result.extend_from_slice(&old[shared..]);
    if can_expand {
        result.extend_from_slice(&new[shared..]);
    }
    (result, can_expand)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn axis(index: u32, pre: i64, size: i64) -> Axis {
        Axis { index, pre, size }
    }

    #[test]
    fn what_overlaps_is_cut_away() {
        let whole = axis(0, 1, 8);
        assert_eq!(whole.prefix_outside(&[axis(0, 4, 2)]), Some(axis(0, 1, 4)));
        assert_eq!(whole.prefix_outside(&[axis(0, 1, 2)]), None);
        assert_eq!(whole.prefix_outside(&[axis(1, 1, 8)]), Some(whole));
        assert_eq!(axis(0, 2, 2).prefix_outside(&[axis(0, 1, 2), axis(0, 4, 2)]), Some(axis(0, 2, 2)));
    }

    #[test]
    fn lists_go_on_from_each_other() {
        let (a, b, c) = (axis(0, 1, 2), axis(1, 1, 2), axis(2, 1, 2));
        assert_eq!(compatible(&[a], &[a, b], true), (AxisList::from_slice(&[a, b]), true));
        assert_eq!(compatible(&[a, b], &[a, c], true), (AxisList::from_slice(&[a]), false));
        assert_eq!(compatible(&[a], &[a, b], false), (AxisList::from_slice(&[a]), false));
        let (half, whole) = (axis(3, 1, 2), axis(3, 1, 4));
        assert_eq!(compatible(&[half], &[whole], true), (AxisList::from_slice(&[whole]), true));
        assert_eq!(compatible(&[half, b], &[whole, b], true), (AxisList::from_slice(&[half]), false));
    }

    fn lists() -> impl Strategy<Value = Vec<Axis>> {
        proptest::collection::vec((0u32..3, 0u32..3), 0..4).prop_map(|parts| {
            let mut list = AxisList::new();
            for (index, power) in parts {
                let axis = axis(index, 1 << power, 2);
                if list.iter().all(|a| !a.overlaps(axis)) {
                    push_merged(&mut list, axis);
                }
            }
            list.to_vec()
        })
    }

    proptest! {
        #[test]
        fn what_is_compatible_goes_on_from_a_common_start(a in lists(), b in lists()) {
            let (both, _) = compatible(&a, &b, true);
            let (fixed, _) = compatible(&a, &b, false);
            prop_assert!(prefix_of(&fixed, &a) != Prefix::No, "{fixed:?} is not within {a:?}");
            prop_assert!(prefix_of(&fixed, &both) != Prefix::No, "{fixed:?} is not within {both:?}");
            if prefix_of(&a, &b) != Prefix::No {
                prop_assert_eq!(both.to_vec(), b);
            }
        }
    }
}

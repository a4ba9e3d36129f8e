//! Lists of devices: explicit ones, ones computed by reshaping and transposing an iota, and ones named by mesh axes.
//!
//! They are kept in the form a dump gives; [`ReplicaGroups::expand`] gives the explicit groups of any of them.

use smallvec::SmallVec;
use std::sync::Arc;

/// `[2,4]<=[4,2]T(1,0)` without its left side: the numbers `0..n` reshaped to `reshape_dims`, then transposed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct IotaTransform {
    /// The shape that `0..n` is given first.
    pub reshape_dims: SmallVec<[i64; 4]>,
    /// The order of its dimensions afterwards; as long as `reshape_dims`.
    pub transpose_perm: SmallVec<[i64; 4]>,
}

impl IotaTransform {
    /// `0..n` as it is.
    pub fn identity(n: i64) -> IotaTransform {
        IotaTransform { reshape_dims: SmallVec::from_slice(&[n]), transpose_perm: SmallVec::from_slice(&[0]) }
    }

    /// The number of devices; `None` if it overflows or a size is negative.
    pub fn len(&self) -> Option<i64> {
        self.reshape_dims.iter().try_fold(1i64, |n, &d| if d < 0 { None } else { n.checked_mul(d) })
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Whether the transposition changes nothing.
    pub fn is_identity(&self) -> bool {
        self.transpose_perm.iter().enumerate().all(|(i, &p)| p == i as i64)
    }

    /// The same list with as few dimensions as can be: those of size one left out, those that stay neighbours merged.
    /// XLA writes every list in this form. A list whose permutation does not fit its sizes is given back as it is.
    pub fn canonical(&self) -> IotaTransform {
        if !crate::layout::is_permutation(&self.transpose_perm, self.reshape_dims.len()) {
            return self.clone();
        }
        let mut sizes = self.reshape_dims.clone();
        let mut order: SmallVec<[i64; 4]> = self.transpose_perm.clone();
        // Merging can bring dimensions together that were apart, so go on until nothing changes.
        while sizes.len() > 1 {
            let kept: SmallVec<[usize; 4]> = (0..sizes.len()).filter(|&d| sizes[d] != 1).collect();
            order = order.iter().filter_map(|&o| kept.iter().position(|&k| k as i64 == o)).map(|o| o as i64).collect();
            sizes = kept.iter().map(|&d| sizes[d]).collect();
            let mut first = 0;
            let mut merged = false;
            for i in 1..order.len() {
                if order[first] + (i - first) as i64 == order[i] {
                    let (into, from) = (order[first] as usize, order[i] as usize);
                    sizes[into] = sizes[into].saturating_mul(sizes[from]);
                    sizes[from] = 1;
                    merged = true;
                } else {
                    first = i;
                }
            }
            if !merged {
                break;
            }
        }
        if sizes.is_empty() {
            return IotaTransform::identity(1);
        }
        IotaTransform { reshape_dims: sizes, transpose_perm: order }
    }

    /// The devices in order; `None` when the sizes and the permutation do not fit each other, or there are more than
    /// `limit`.
    pub fn expand(&self, limit: i64) -> Option<Vec<i64>> {
        let n = self.len().filter(|&n| n <= limit)?;
        let rank = self.reshape_dims.len();
        if !crate::layout::is_permutation(&self.transpose_perm, rank) {
            return None;
        }
        if n == 0 {
            return Some(Vec::new());
        }
        // No product of sizes exceeds `n`, since none of them is 0.
        let mut strides: SmallVec<[i64; 4]> = SmallVec::from_elem(1, rank);
        for d in (0..rank.saturating_sub(1)).rev() {
            strides[d] = strides[d + 1] * self.reshape_dims[d + 1];
        }
        let dims: SmallVec<[(i64, i64); 4]> =
            self.transpose_perm.iter().map(|&p| (self.reshape_dims[p as usize], strides[p as usize])).collect();
        let mut index: SmallVec<[i64; 4]> = SmallVec::from_elem(0, rank);
        let mut out = Vec::with_capacity(n as usize);
        for _ in 0..n {
            out.push(index.iter().zip(&dims).map(|(i, (_, stride))| i * stride).sum());
            for d in (0..rank).rev() {
                index[d] += 1;
                if index[d] < dims[d].0 {
                    break;
                }
                index[d] = 0;
            }
        }
        Some(out)
    }
}

/// The groups of devices among which a collective works.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ReplicaGroups {
    /// `{{0,1},{2,3}}`; `{}` (no group) means all together.
    Explicit(Vec<Vec<i64>>),
    /// `[2,4]<=[8]`.
    Iota {
        /// How many groups.
        num_groups: i64,
        /// Devices in each.
        group_size: i64,
        /// The devices, group after group.
        devices: IotaTransform,
    },
    /// `mesh['x'=2,'y'=2] {'x'}`: the groups along the named axes.
    MeshAxes {
        /// The mesh.
        mesh: Arc<Mesh>,
        /// The axes along which a group runs.
        axes: Vec<AxisRef>,
    },
}

impl Default for ReplicaGroups {
    fn default() -> Self {
        ReplicaGroups::Explicit(Vec::new())
    }
}

/// A named, logical arrangement of devices.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Mesh {
    /// Names and sizes of the axes, major first.
    pub axes: Vec<(Box<str>, i64)>,
    /// Which device stands where.
    pub devices: MeshDevices,
}

/// The devices of a mesh, row-major over its axes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum MeshDevices {
    /// `0..n`.
    Iota,
    /// `device_ids=([2,2]<=[4]T(..))`.
    Transformed(IotaTransform),
    /// `device_ids=(3,2,1,0)`.
    Explicit(Vec<i64>),
    /// `maximal_mesh[device_id=2]`: no axes, one device.
    Maximal(i64),
}

/// A mesh axis or a part of one: `'x'` or `'x':(1)2`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AxisRef {
    /// Which axis of the mesh.
    pub axis: u32,
    /// `(pre_size, size)` when only a part of the axis is meant.
    pub sub_axis: Option<(i64, i64)>,
}

impl Mesh {
    /// The number of devices; `None` if it overflows.
    pub fn size(&self) -> Option<i64> {
        self.axes.iter().try_fold(1i64, |n, (_, s)| if *s < 0 { None } else { n.checked_mul(*s) })
    }

    /// The devices, row-major over the axes; `None` when the list does not fit the axes or has more than `limit`.
    pub fn expand_devices(&self, limit: i64) -> Option<Vec<i64>> {
        let n = self.size().filter(|&n| n <= limit)?;
        match &self.devices {
            MeshDevices::Iota => Some((0..n).collect()),
            MeshDevices::Transformed(t) => t.expand(limit).filter(|d| d.len() as i64 == n),
            MeshDevices::Explicit(d) => Some(d.clone()).filter(|d| d.len() as i64 == n),
            MeshDevices::Maximal(d) => Some(vec![*d]),
        }
    }
}

impl ReplicaGroups {
    /// No dump names more devices than this; a list that claims more is refused rather than expanded.
    pub const MAX_DEVICES: i64 = 1 << 22;

    /// Whether this is `{}`: all devices in one group.
    pub fn is_empty(&self) -> bool {
        matches!(self, ReplicaGroups::Explicit(g) if g.is_empty())
    }

    /// The explicit groups; `None` when the parts of an iota or mesh form do not fit each other.
    pub fn expand(&self) -> Option<Vec<Vec<i64>>> {
        match self {
            ReplicaGroups::Explicit(groups) => Some(groups.clone()),
            ReplicaGroups::Iota { num_groups, group_size, devices } => {
                let list = devices.expand(Self::MAX_DEVICES)?;
                if *group_size <= 0 || num_groups.checked_mul(*group_size) != Some(list.len() as i64) {
                    return None;
                }
                Some(list.chunks(*group_size as usize).map(<[i64]>::to_vec).collect())
            }
            ReplicaGroups::MeshAxes { mesh, axes } => expand_mesh_axes(mesh, axes),
        }
    }
}

/// The groups along `axes`: two devices are together when all their other coordinates agree. Groups are ordered by the
/// other coordinates, members by the coordinates along `axes` in the order those are named.
fn expand_mesh_axes(mesh: &Mesh, axes: &[AxisRef]) -> Option<Vec<Vec<i64>>> {
    let devices = mesh.expand_devices(ReplicaGroups::MAX_DEVICES)?;
    // Every axis as a list of (size, stride, position among the named ones), sub-axes split off.
    let mut parts: Vec<(i64, i64, Option<usize>)> = Vec::new();
    let mut stride = mesh.size()?;
    for (i, &(_, size)) in mesh.axes.iter().enumerate() {
        if size <= 0 {
            return None;
        }
        stride /= size;
        let mut named: Vec<(i64, i64, usize)> = axes
            .iter()
            .enumerate()
            .filter(|(_, a)| a.axis as usize == i)
            .map(|(k, a)| (a.sub_axis.map_or(1, |s| s.0), a.sub_axis.map_or(size, |s| s.1), k))
            .collect();
        named.sort_unstable();
        // Walk the axis from major to minor; `done` is the product of the parts so far.
        let mut done = 1;
        for (pre, part, k) in named {
            if pre < done || part <= 0 || pre % done != 0 {
                return None;
            }
            if pre > done {
                parts.push((pre / done, stride * (size / pre), None));
            }
            done = pre.checked_mul(part)?;
            if done > size || size % done != 0 {
                return None;
            }
            parts.push((part, stride * (size / done), Some(k)));
        }
        if done < size {
            parts.push((size / done, stride, None));
        }
    }
    let mut inner: Vec<_> = parts.iter().filter_map(|&(n, s, k)| Some((k?, n, s))).collect();
    inner.sort_unstable();
    if inner.len() != axes.len() {
        return None;
    }
    let inner = offsets(inner.iter().map(|&(_, n, s)| (n, s)));
    let outer = offsets(parts.iter().filter(|p| p.2.is_none()).map(|&(n, s, _)| (n, s)));
    let group = |o: &i64| inner.iter().map(|i| devices.get((o + i) as usize).copied()).collect();
    outer.iter().map(group).collect()
}

/// All sums of one multiple of each stride, the last part varying fastest.
fn offsets(parts: impl Iterator<Item = (i64, i64)>) -> Vec<i64> {
    parts.fold(vec![0], |offsets, (n, stride)| {
        offsets.iter().flat_map(|o| (0..n).map(move |i| o + i * stride)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iota_is_reshaped_then_transposed() {
        let t =
            IotaTransform { reshape_dims: [2, 4].into_iter().collect(), transpose_perm: [1, 0].into_iter().collect() };
        assert_eq!(t.expand(100), Some(vec![0, 4, 1, 5, 2, 6, 3, 7]));
        assert_eq!(t.expand(7), None);
    }

    fn transform(reshape_dims: &[i64], transpose_perm: &[i64]) -> IotaTransform {
        IotaTransform { reshape_dims: reshape_dims.into(), transpose_perm: transpose_perm.into() }
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        assert_eq!(transform(&[2, 2], &[0, 0]).expand(100), None);
        assert_eq!(transform(&[2, 2], &[0]).expand(100), None);
        assert_eq!(transform(&[2, 2], &[0, 2]).expand(100), None);
        assert_eq!(transform(&[-2, 2], &[0, 1]).expand(100), None);
        assert_eq!(transform(&[i64::MAX, 2], &[0, 1]).expand(100), None);
        assert_eq!(transform(&[0, i64::MAX, i64::MAX], &[0, 1, 2]).expand(100), Some(vec![]));
        assert_eq!(transform(&[], &[]).expand(100), Some(vec![0]));
        let iota = |num_groups, group_size| {
            ReplicaGroups::Iota { num_groups, group_size, devices: IotaTransform::identity(4) }.expand()
        };
        assert_eq!(iota(2, 2), Some(vec![vec![0, 1], vec![2, 3]]));
        assert_eq!(iota(2, 3), None);
        assert_eq!(iota(0, 0), None);
        assert_eq!(iota(-2, -2), None);
        assert_eq!(iota(i64::MAX, 2), None);
    }

    #[test]
    fn mesh_axes_that_make_no_sense_are_refused() {
        let groups = |axes: &[i64], refs: &[(u32, Option<(i64, i64)>)], devices| {
            let axes = axes.iter().enumerate().map(|(i, &n)| (format!("a{i}").into(), n)).collect();
            let refs = refs.iter().map(|&(axis, sub_axis)| AxisRef { axis, sub_axis }).collect();
            ReplicaGroups::MeshAxes { mesh: Arc::new(Mesh { axes, devices }), axes: refs }.expand()
        };
        assert_eq!(groups(&[4], &[(0, None)], MeshDevices::Explicit(vec![3, 1])), None);
        assert_eq!(groups(&[2], &[(0, None)], MeshDevices::Explicit(vec![3, 1])), Some(vec![vec![3, 1]]));
        assert_eq!(groups(&[2], &[(1, None)], MeshDevices::Iota), None, "no such axis");
        assert_eq!(groups(&[2], &[(0, None), (0, None)], MeshDevices::Iota), None, "an axis twice");
        for part in [(3, 2), (2, 3), (0, 2), (-1, 2), (1, 0), (1, -2), (8, 1), (i64::MAX, 2)] {
            assert_eq!(groups(&[4], &[(0, Some(part))], MeshDevices::Iota), None, "{part:?} of an axis of 4");
        }
        assert_eq!(groups(&[-4], &[(0, None)], MeshDevices::Iota), None);
        assert_eq!(groups(&[i64::MAX, 2], &[(0, None)], MeshDevices::Iota), None);
        assert_eq!(groups(&[i64::MAX, 0], &[(0, None)], MeshDevices::Iota), None);
    }

    #[test]
    fn canonical_lists_have_few_dimensions() {
        let list = |dims: &[i64], perm: &[i64]| IotaTransform {
            reshape_dims: dims.iter().copied().collect(),
            transpose_perm: perm.iter().copied().collect(),
        };
        for (given, wanted) in [
            (list(&[3, 4, 5], &[0, 1, 2]), list(&[60], &[0])),
            (list(&[3, 4, 5], &[1, 2, 0]), list(&[3, 20], &[1, 0])),
            (list(&[3, 4, 5], &[2, 1, 0]), list(&[3, 4, 5], &[2, 1, 0])),
            (list(&[1, 3, 1, 4, 1, 5], &[4, 3, 2, 5, 1, 0]), list(&[3, 20], &[1, 0])),
            (list(&[1, 1], &[1, 0]), list(&[1], &[0])),
        ] {
            assert_eq!(given.canonical(), wanted);
            assert_eq!(given.canonical().expand(100), given.expand(100));
        }
    }

    #[test]
    fn groups_run_along_mesh_axes() {
        let mesh = Arc::new(Mesh { axes: vec![("x".into(), 2), ("y".into(), 4)], devices: MeshDevices::Iota });
        let groups = |axes: Vec<AxisRef>| ReplicaGroups::MeshAxes { mesh: mesh.clone(), axes }.expand();
        let axis = |axis, sub_axis| AxisRef { axis, sub_axis };
        assert_eq!(groups(vec![axis(0, None)]), Some(vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]]));
        assert_eq!(groups(vec![axis(1, None)]), Some(vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7]]));
        assert_eq!(groups(vec![axis(1, Some((1, 2)))]), Some(vec![vec![0, 2], vec![1, 3], vec![4, 6], vec![5, 7]]));
        assert_eq!(groups(vec![axis(1, Some((2, 2)))]), Some(vec![vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7]]));
        assert_eq!(groups(vec![axis(1, None), axis(0, None)]), Some(vec![vec![0, 4, 1, 5, 2, 6, 3, 7]]));
    }
}

//! The devices as a grid of axes of prime sizes.
//!
//! Every sharding of a program cuts arrays along products of device axes. Splitting all of these into primes gives one
//! set of axes in which each sharding is a list of axes per dimension, so that resharding is a matter of lists: an axis
//! stays, moves, vanishes or appears. Kept true: `sizes` multiply to the number of devices, and a device's logical number
//! is its coordinates read in mixed radix, axis 0 the most significant.

pub use super::axis_list::AxisList;
use hloom_ir::device_list::{IotaTransform, ReplicaGroups};
use hloom_ir::sharding::{ShardingKind, SubgroupType, Subgroups, TileAssignment, TileDevices};
use smallvec::SmallVec;
use std::borrow::Cow;

/// Of so many device orders that shardings list, the one that most of them fit is taken.
const MOST_ORDERS: usize = 16;

/// A set of axes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub struct AxisSet(u64);

impl AxisSet {
    /// The set without axes.
    pub const EMPTY: AxisSet = AxisSet(0);
    /// The set of the axes of a list.
    pub fn of(list: &[u8]) -> AxisSet {
        AxisSet(list.iter().fold(0, |set, &a| set | 1 << a))
    }
    /// Whether it has `axis`.
    pub fn has(self, axis: u8) -> bool {
        self.0 >> axis & 1 == 1
    }
    /// Whether it has no axis.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// With those of another set.
    pub fn union(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 | other.0)
    }
    /// Those in both.
    pub fn intersection(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & other.0)
    }
    /// Without those of another set.
    pub fn without(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & !other.0)
    }
    /// With one more.
    pub fn insert(&mut self, axis: u8) {
        self.0 |= 1 << axis;
    }
    /// Its axes, the most significant first.
    pub fn list(self) -> AxisList {
        self.iter().collect()
    }
    fn iter(self) -> impl Iterator<Item = u8> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let next = (rest != 0).then(|| rest.trailing_zeros() as u8)?;
            rest &= rest - 1;
            Some(next)
        })
    }
}

/// The devices of a program as a grid.
#[derive(Clone, Debug)]
pub struct DeviceAxes {
    sizes: Vec<i64>,
    strides: Vec<i64>,
    /// The device of each logical number, where the two differ.
    order: Option<Vec<i64>>,
    devices: i64,
}

/// A tile assignment in terms of axes: one list per tile dimension.
pub type TileAxes = SmallVec<[AxisList; 4]>;

impl DeviceAxes {
    /// How many axes the grid of so many devices has.
    pub fn count(devices: i64) -> usize {
        DeviceAxes::with_cuts(devices, vec![1, devices], None).len()
    }

    /// Axes fine enough for all the tiles given, as far as one grid can be. Arguments and results in another order of
    /// devices than the grid's have to be moved: the order is theirs, by their bytes, and then that of most others.
    pub fn new<'s>(
        devices: i64,
        stated: impl Iterator<Item = &'s TileAssignment>,
        edges: &[(&'s TileAssignment, f64)],
    ) -> DeviceAxes {
        let mut cuts = vec![1, devices];
        let mut seen = rustc_hash::FxHashSet::default();
        let tilings: Vec<&TileAssignment> = stated.filter(|t| seen.insert((&t.dims, &t.devices))).collect();
        for tiles in &tilings {
            if let TileDevices::Iota(iota) = &tiles.devices {
                let mut suffix = 1;
                for &d in iota.reshape_dims.iter().rev() {
                    suffix *= d;
                    cut_at(&mut cuts, suffix, devices);
                }
                for at in inner_cuts(&tiles.dims, iota) {
                    cut_at(&mut cuts, at, devices);
                }
            }
        }
        let plain = DeviceAxes::with_cuts(devices, cuts, None);
        let mut edges_of: rustc_hash::FxHashMap<&TileAssignment, f64> = rustc_hash::FxHashMap::default();
        for &(tiles, bytes) in edges {
            *edges_of.entry(tiles).or_default() += bytes;
        }
        let fitting = |axes: &DeviceAxes| {
            let fits: Vec<&&TileAssignment> = tilings.iter().filter(|t| axes.tile_axes(t).is_some()).collect();
            (fits.iter().filter_map(|t| edges_of.get(**t)).sum::<f64>(), fits.len())
        };
        let mut best = (fitting(&plain), plain);
        // Devices in an order of their own: then the numbers are logical ones.
        let cuts: Vec<i64> = best.1.strides.iter().copied().chain([devices]).collect();
        let listed = tilings.iter().filter_map(|t| match &t.devices {
            TileDevices::Explicit(list) => Some(list),
            TileDevices::Iota(_) => None,
        });
        for order in listed.filter(|o| o.len() as i64 == devices && is_permutation(o)).take(MOST_ORDERS) {
            if best.0.1 == tilings.len() {
                break;
            }
            let relabelled = DeviceAxes::with_cuts(devices, cuts.clone(), Some(order.clone()));
            let fits = fitting(&relabelled);
            if fits > best.0 {
                best = (fits, relabelled);
            }
        }
        best.1
    }

    fn with_cuts(devices: i64, mut cuts: Vec<i64>, order: Option<Vec<i64>>) -> DeviceAxes {
        cuts.sort_unstable();
        cuts.dedup();
        let mut sizes = Vec::new();
        for pair in cuts.windows(2) {
            let mut rest = pair[1] / pair[0];
            let mut prime = 2;
            while rest > 1 {
                while rest % prime == 0 {
                    sizes.push(prime);
                    rest /= prime;
                }
                prime += 1;
                if prime * prime > rest && rest > 1 {
                    sizes.push(rest);
                    rest = 1;
                }
            }
        }
        sizes.reverse();
        let mut strides = vec![1; sizes.len()];
        for i in (0..sizes.len().saturating_sub(1)).rev() {
            strides[i] = strides[i + 1] * sizes[i + 1];
        }
        DeviceAxes { sizes, strides, order, devices }
    }

    /// How many devices there are.
    pub fn devices(&self) -> i64 {
        self.devices
    }
    /// How many axes there are.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }
    /// Whether there is one device only.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }
    /// All axes.
    pub fn all(&self) -> AxisSet {
        AxisSet(if self.len() >= 64 { u64::MAX } else { (1 << self.len()) - 1 })
    }
    /// The size of an axis.
    pub fn size(&self, axis: u8) -> i64 {
        self.sizes[axis as usize]
    }
    /// The distance in logical numbers between neighbours along an axis.
    pub fn stride(&self, axis: u8) -> i64 {
        self.strides[axis as usize]
    }
    /// The product of the sizes of a list of axes.
    pub fn product(&self, list: &[u8]) -> i64 {
        list.iter().map(|&a| self.size(a)).product()
    }
    /// The product of the sizes of a set of axes.
    pub fn set_product(&self, set: AxisSet) -> i64 {
        set.iter().map(|a| self.size(a)).product()
    }
    /// The device of each logical number, where the two differ.
    pub fn order(&self) -> Option<&[i64]> {
        self.order.as_deref()
    }
    /// The device of a logical number.
    pub fn device(&self, logical: i64) -> i64 {
        self.order.as_ref().map_or(logical, |o| o[logical as usize])
    }
    /// The coordinate of a logical number along a list of axes.
    pub fn coordinate(&self, logical: i64, list: &[u8]) -> i64 {
        list.iter().fold(0, |n, &a| n * self.size(a) + logical / self.stride(a) % self.size(a))
    }
    /// A logical number with its coordinates along `list` replaced by those of `coordinate`.
    pub fn with_coordinate(&self, logical: i64, list: &[u8], mut coordinate: i64) -> i64 {
        let mut result = logical;
        for &a in list.iter().rev() {
            let (size, stride) = (self.size(a), self.stride(a));
            result += (coordinate % size - logical / stride % size) * stride;
            coordinate /= size;
        }
        result
    }

    /// Groups of the devices that differ along `list` only, each in the order of the list.
    pub fn groups(&self, list: &[u8]) -> ReplicaGroups {
        let set = AxisSet::of(list);
        let others: AxisList = (0..self.len() as u8).filter(|&a| !set.has(a)).collect();
        let (size, count) = (self.product(list), self.product(&others));
        if self.order.is_none() {
            let transform = IotaTransform {
                reshape_dims: self.sizes.iter().copied().collect(),
                transpose_perm: others.iter().chain(list).map(|&a| i64::from(a)).collect(),
            };
            return ReplicaGroups::Iota { num_groups: count, group_size: size, devices: transform.canonical() };
        }
        let group = |o: i64| {
            let base = self.with_coordinate(0, &others, o);
            (0..size).map(|i| self.device(self.with_coordinate(base, list, i))).collect()
        };
        ReplicaGroups::Explicit((0..count).map(group).collect())
    }

    /// The same of the devices of every replica of the program, which are numbered one replica after the other.
    pub fn groups_of_replicas(&self, list: &[u8], replicas: i64) -> ReplicaGroups {
        match self.groups(list) {
            groups if replicas <= 1 => groups,
            ReplicaGroups::Iota { num_groups, group_size, devices } => {
                let next = |n: &i64| n + 1;
                let transform = IotaTransform {
                    reshape_dims: [replicas].into_iter().chain(devices.reshape_dims).collect(),
                    transpose_perm: [0].into_iter().chain(devices.transpose_perm.iter().map(next)).collect(),
                };
                let num_groups = num_groups.saturating_mul(replicas);
                ReplicaGroups::Iota { num_groups, group_size, devices: transform.canonical() }
            }
            groups => {
                let all = groups.expand().unwrap_or_default();
                let of = |r: i64| all.iter().map(move |g| g.iter().map(|d| d + r * self.devices).collect());
                ReplicaGroups::Explicit((0..replicas).flat_map(of).collect())
            }
        }
    }

    /// The lists of axes of a tile assignment; `None` if the grid cannot express it.
    pub fn tile_axes(&self, tiles: &TileAssignment) -> Option<TileAxes> {
        let dims = &tiles.dims;
        let has_copies = match &tiles.subgroups {
            Subgroups::None => false,
            Subgroups::ReplicateLast => true,
            Subgroups::Types(types) => types.last() == Some(&SubgroupType::Replicated),
        };
        let copies = dims.last().copied().filter(|_| has_copies).unwrap_or(1);
        let sequence = match (&tiles.devices, &self.order) {
            (TileDevices::Iota(iota), None) => self.iota_axes(iota)?,
            (TileDevices::Iota(iota), Some(_)) => {
                self.listed_axes(&iota.expand(ReplicaGroups::MAX_DEVICES)?, copies)?
            }
            (TileDevices::Explicit(list), _) => self.listed_axes(list, copies)?,
        };
        let mut rest = sequence.into_iter();
        let mut result = TileAxes::new();
        for &tiles in dims {
            let mut list = AxisList::new();
            let mut product = 1;
            while product < tiles {
                let axis = rest.next()?;
                product *= self.size(axis);
                list.push(axis);
            }
            if product != tiles {
                return None;
            }
            result.push(list);
        }
        rest.next().is_none().then_some(result)
    }

    /// Lists of axes that cut as many tiles per dimension, in the order of the grid.
    pub fn tiles_in_order(&self, dims: &[i64]) -> Option<TileAxes> {
        let mut rest: Vec<u8> = (0..self.len() as u8).collect();
        let mut result = TileAxes::new();
        for &tiles in dims {
            let mut list = AxisList::new();
            while self.product(&list) < tiles {
                let fits = |&a: &u8| tiles % (self.product(&list) * self.size(a)) == 0;
                let at = rest.iter().position(fits)?;
                list.push(rest.remove(at));
            }
            result.push(list);
        }
        Some(result)
    }

    fn iota_axes(&self, iota: &IotaTransform) -> Option<AxisList> {
        if iota.len() != Some(self.devices) {
            return None;
        }
        let mut result = AxisList::new();
        for (size, stride) in blocks(iota)? {
            let (mut top, bottom) = (stride * size, stride);
            while top > bottom {
                let axis = self.strides.iter().zip(&self.sizes).position(|(&st, &si)| st * si == top)?;
                if result.len() == self.len() {
                    return None;
                }
                result.push(axis as u8);
                top = self.strides[axis];
            }
            if top != bottom {
                return None;
            }
        }
        Some(result)
    }

    /// The axes along which a list of devices runs; each `copies` of them have the same tile, in any order.
    fn listed_axes(&self, list: &[i64], copies: i64) -> Option<AxisList> {
        if list.len() as i64 != self.devices {
            return None;
        }
        let mut logical: Vec<i64> = match &self.order {
            None => list.to_vec(),
            Some(order) => {
                let mut inverse = vec![0; order.len()];
                for (i, &d) in order.iter().enumerate() {
                    inverse[d as usize] = i as i64;
                }
                list.iter().map(|&d| inverse.get(d as usize).copied()).collect::<Option<_>>()?
            }
        };
        logical.chunks_mut(usize::try_from(copies).ok().filter(|&c| c > 0)?).for_each(<[i64]>::sort_unstable);
        let mut result = AxisList::new();
        let mut step = 1;
        while step < logical.len() {
            let stride = logical[step] - logical[0];
            let axis = self.strides.iter().position(|&s| s == stride).filter(|_| result.len() < self.len())? as u8;
            result.push(axis);
            step *= self.size(axis) as usize;
        }
        result.reverse();
        let follows = |i: usize| logical[i] == self.with_coordinate(0, &result, i as i64);
        (AxisSet::of(&result) == self.all() && (0..logical.len()).all(follows)).then_some(result)
    }
}

/// The tiles of a sharding that has some.
pub(crate) fn tiles_of(kind: &ShardingKind) -> Option<Cow<'_, TileAssignment>> {
    match kind {
        ShardingKind::Tiled(tiles) => Some(Cow::Borrowed(tiles)),
        ShardingKind::Named(named) => match named.to_tiles()? {
            ShardingKind::Tiled(tiles) => Some(Cow::Owned(tiles)),
            _ => None,
        },
        _ => None,
    }
}

fn is_permutation(list: &[i64]) -> bool {
    let mut seen = vec![false; list.len()];
    list.iter().all(|&d| usize::try_from(d).is_ok_and(|d| d < seen.len() && !std::mem::replace(&mut seen[d], true)))
}

/// Size and stride of each block of an iota, in transposed order.
fn blocks(iota: &IotaTransform) -> Option<Vec<(i64, i64)>> {
    let mut strides = vec![1; iota.reshape_dims.len()];
    for i in (0..strides.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1] * iota.reshape_dims[i + 1];
    }
    let block = |&p: &i64| Some((*iota.reshape_dims.get(p as usize)?, *strides.get(p as usize)?));
    iota.transpose_perm.iter().map(block).collect()
}

/// Strides at which the tile dimensions cut blocks of an iota in two.
fn inner_cuts(dims: &[i64], iota: &IotaTransform) -> Vec<i64> {
    let mut cuts = Vec::new();
    let Some(blocks) = blocks(iota) else { return cuts };
    let mut boundary = 1;
    for &tiles in dims {
        boundary *= tiles.max(1);
        let mut before = 1;
        for &(size, stride) in &blocks {
            if boundary > before
                && boundary < before * size
                && boundary % before == 0
                && size % (boundary / before) == 0
            {
                cuts.push(stride * (size / (boundary / before)));
            }
            before *= size;
        }
    }
    cuts
}

/// Adds a cut if it divides, and is divided by, all others as a chain of divisors needs.
fn cut_at(cuts: &mut Vec<i64>, at: i64, devices: i64) {
    if at < 1 || devices % at != 0 || cuts.contains(&at) {
        return;
    }
    if cuts.iter().all(|&c| c % at == 0 || at % c == 0) {
        cuts.push(at);
    }
}

//! How long collectives and copies between devices take on the links of a topology, and which links they fill.
//!
//! Bytes over links are those of the usual algorithms: a ring (or rings along several axes) for gathers, scatters and
//! reductions, direct routes for the rest. On a torus a group uses one link for each axis that it spans, two where the
//! axis is a ring; of switches it uses every level that it crosses, between hosts with the ports of all its devices on a
//! host together.

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::op::Op;
use hloom_target::{Link, LinkKind, Target, Topology};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// What devices exchange.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CollectiveKind {
    /// Everyone gets what everyone has.
    AllGather,
    /// Everyone gets the sum.
    AllReduce,
    /// Everyone gets its part of the sum.
    ReduceScatter,
    /// Everyone gets a part of everyone's.
    AllToAll,
    /// Everyone gets what one has, or one gets the sum.
    Broadcast,
}

impl CollectiveKind {
    /// What a collective in replica groups exchanges; `None` for anything else.
    pub fn of(op: &Op) -> Option<CollectiveKind> {
        Some(match op {
            Op::AllGather(_) | Op::AllGatherStart(_) => CollectiveKind::AllGather,
            Op::AllReduce(_) | Op::AllReduceStart(_) => CollectiveKind::AllReduce,
            Op::ReduceScatter(_) => CollectiveKind::ReduceScatter,
            Op::AllToAll { .. } | Op::RaggedAllToAll { .. } => CollectiveKind::AllToAll,
            Op::CollectiveBroadcast { .. } | Op::CollectiveReduce(_) => CollectiveKind::Broadcast,
            _ => return None,
        })
    }
}

/// How the devices of a group lie in the topology: all that the time of a collective depends on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GroupShape {
    /// How many devices.
    pub size: usize,
    /// Along each dimension of the topology, how many different places.
    pub extents: SmallVec<[i64; 3]>,
    /// Whether it is every device of a box with those extents.
    pub is_box: bool,
}

/// Links that an exchange fills while it goes on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkUse {
    /// The axis of a torus, or the level of switches.
    pub link: usize,
    /// How much of what the link can do.
    pub share: f64,
}

/// An exchange between devices.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Transfer {
    /// How long it takes on links that nobody else uses.
    pub seconds: f64,
    /// What of it is starting and hops, whatever the bytes.
    pub latency_seconds: f64,
    /// Bytes that each device sends.
    pub wire_bytes: f64,
    /// The links that it fills.
    pub links: SmallVec<[LinkUse; 3]>,
}

/// The devices of a topology and the links between them.
#[derive(Clone, Debug)]
pub struct Communication<'t> {
    links: &'t [Link],
    topology: Topology,
}

impl<'t> Communication<'t> {
    /// The devices of `target` joined as `topology` says.
    pub fn new(target: &'t Target, topology: Topology) -> Result<Communication<'t>, Diagnostic> {
        target.check_topology(&topology)?;
        Ok(Communication { links: &target.links, topology })
    }

    /// How the devices are joined.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What a [`LinkUse`] is called.
    pub fn link_name(&self, link: usize) -> String {
        match self.links.first() {
            Some(Link { name, kind: LinkKind::Torus { .. }, .. }) => format!("{name} axis {link}"),
            _ => self.links.get(link).map_or_else(|| format!("link {link}"), |l| l.name.clone()),
        }
    }

    /// How many kinds of links there are.
    pub fn link_count(&self) -> usize {
        match self.links.first().map(|l| l.kind) {
            Some(LinkKind::Torus { .. }) => self.topology.dims().len(),
            _ => self.links.len(),
        }
    }

    /// How the devices of a group lie.
    pub fn shape_of(&self, group: &[usize]) -> GroupShape {
        let mut places: SmallVec<[FxHashSet<i64>; 3]> = SmallVec::new();
        places.resize(self.topology.dims().len(), FxHashSet::default());
        for &device in group {
            for (set, at) in places.iter_mut().zip(self.topology.coordinates(device)) {
                set.insert(at);
            }
        }
        let extents: SmallVec<[i64; 3]> = places.iter().map(|p| p.len() as i64).collect();
        let is_box = extents.iter().product::<i64>() == group.len() as i64;
        GroupShape { size: group.len(), extents, is_box }
    }

    /// A collective over a group of that shape. `bytes` are those of the whole array: what a gather makes, what a
    /// scatter or a reduction begins with, what each device of an all-to-all holds.
    pub fn collective(&self, kind: CollectiveKind, bytes: f64, group: &GroupShape) -> Transfer {
        if group.size <= 1 {
            return Transfer::default();
        }
        match self.links.first().map(|l| l.kind) {
            Some(LinkKind::Torus { ring_multiple, .. }) => self.on_torus(kind, bytes, group, ring_multiple),
            Some(LinkKind::Switch { .. }) => self.on_switches(kind, bytes, group),
            None => Transfer::default(),
        }
    }

    fn on_torus(&self, kind: CollectiveKind, bytes: f64, group: &GroupShape, ring_multiple: i64) -> Transfer {
        let link = &self.links[0];
        let n = group.size as f64;
        let axes = || group.extents.iter().zip(self.topology.dims()).enumerate().filter(|(_, (e, _))| **e > 1);
        let is_ring = |extent: i64, size: i64| extent == size && size % ring_multiple == 0;
        let ports: f64 = axes().map(|(_, (&e, &size))| if is_ring(e, size) { 2.0 } else { 1.0 }).sum();
        // Devices that are no box send through others: one way in is all that is sure.
        let ports = if group.is_box { ports.max(1.0) } else { 1.0 };
        let width = link.reached() * ports;
        let farthest: f64 =
            axes().map(|(_, (&e, &size))| if is_ring(e, size) { e as f64 / 2.0 } else { (e - 1) as f64 }).sum();
        // The mean distance in a ring of n is about n/4, in a line n/3.
        let mean: f64 =
            axes().map(|(_, (&e, &size))| e as f64 / if is_ring(e, size) { 4.0 } else { 3.0 }).sum::<f64>().max(1.0);
        let others = bytes * (n - 1.0) / n;
        let (wire, rounds) = match kind {
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter => (others, 1.0),
            CollectiveKind::AllReduce => (2.0 * others, 2.0),
            CollectiveKind::AllToAll => (others * mean, 1.0),
            CollectiveKind::Broadcast => (bytes, 1.0),
        };
        let latency = link.start_seconds + rounds * farthest * link.latency_seconds;
        let links = axes().map(|(axis, _)| LinkUse { link: axis, share: 1.0 }).collect();
        Transfer { seconds: latency + wire / width, latency_seconds: latency, wire_bytes: wire, links }
    }

    fn on_switches(&self, kind: CollectiveKind, bytes: f64, group: &GroupShape) -> Transfer {
        let n = group.size as f64;
        let mut links = SmallVec::new();
        // Devices of the group below each level, seen from the innermost.
        let mut below = 1.0;
        let (mut width, mut start, mut ring, mut tree) = (f64::INFINITY, 0f64, 0.0, 0.0);
        let mut direct = 0f64;
        for (level, link) in self.links.iter().enumerate() {
            let dims = self.topology.dims().len();
            let extent = dims.checked_sub(level + 1).and_then(|d| group.extents.get(d)).map_or(1.0, |&e| e as f64);
            // Where hosts hold different numbers of the group, the fullest one counts.
            let extent = if group.is_box { extent } else { extent.min((n / below).ceil()) };
            if extent <= 1.0 {
                continue;
            }
            links.push(LinkUse { link: level, share: 1.0 });
            width = width.min(link.reached() * below);
            start = start.max(link.start_seconds);
            ring += (extent - 1.0) * link.latency_seconds;
            tree += 2.0 * extent.log2().ceil() * link.latency_seconds;
            // Of what a device sends to all others, so much crosses this level, through its own port.
            let crossing = bytes * below * (extent - 1.0) / n * (n / (below * extent)).max(1.0);
            direct = direct.max(crossing.min(bytes) / link.reached());
            below *= extent;
        }
        let others = bytes * (n - 1.0) / n;
        let (wire, seconds, hops) = match kind {
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter => (others, others / width, ring),
            CollectiveKind::AllReduce => (2.0 * others, 2.0 * others / width, (2.0 * ring).min(tree)),
            CollectiveKind::AllToAll => (others, direct, tree / 2.0),
            CollectiveKind::Broadcast => (bytes, bytes / width, tree / 2.0),
        };
        let latency = start + hops;
        Transfer { seconds: latency + seconds, latency_seconds: latency, wire_bytes: wire, links }
    }

    /// Copies of so many bytes from the first to the second device of each pair, all at once: as slow as the slowest.
    pub fn permute(&self, pairs: &[(usize, usize)], bytes: f64) -> Transfer {
        match self.links.first().map(|l| l.kind) {
            Some(LinkKind::Torus { ring_multiple, .. }) => self.permute_on_torus(pairs, bytes, ring_multiple),
            Some(LinkKind::Switch { .. }) => self.permute_on_switches(pairs, bytes),
            None => Transfer::default(),
        }
    }

    /// Routes go along one axis after the other, the short way round; a link carries one copy at a time.
    fn permute_on_torus(&self, pairs: &[(usize, usize)], bytes: f64, ring_multiple: i64) -> Transfer {
        let link = &self.links[0];
        let dims = self.topology.dims();
        let mut load: FxHashMap<(SmallVec<[i64; 3]>, usize, bool), u32> = FxHashMap::default();
        let mut used: SmallVec<[bool; 3]> = SmallVec::from_elem(false, dims.len());
        let mut hops = 0;
        for &(from, to) in pairs {
            let mut at: SmallVec<[i64; 3]> = self.topology.coordinates(from).into();
            let goal = self.topology.coordinates(to);
            let mut steps = 0;
            for axis in 0..dims.len() {
                let size = dims[axis];
                let is_ring = size % ring_multiple == 0;
                while at[axis] != goal[axis] {
                    let forward = (goal[axis] - at[axis]).rem_euclid(size);
                    let ahead = if is_ring { forward * 2 <= size } else { goal[axis] > at[axis] };
                    *load.entry((at.clone(), axis, ahead)).or_insert(0) += 1;
                    used[axis] = true;
                    at[axis] = (at[axis] + if ahead { 1 } else { -1 }).rem_euclid(size);
                    steps += 1;
                }
            }
            hops = hops.max(steps);
        }
        if hops == 0 {
            return Transfer::default();
        }
        let busiest = load.values().copied().max().unwrap_or(1);
        let latency = link.start_seconds + f64::from(hops) * link.latency_seconds;
        let links = used.iter().enumerate().filter(|(_, u)| **u);
        Transfer {
            seconds: latency + f64::from(busiest) * bytes / link.reached(),
            latency_seconds: latency,
            wire_bytes: bytes,
            links: links.map(|(axis, _)| LinkUse { link: axis, share: 1.0 }).collect(),
        }
    }

    fn permute_on_switches(&self, pairs: &[(usize, usize)], bytes: f64) -> Transfer {
        let dims = self.topology.dims().len();
        let mut level = None;
        for &(from, to) in pairs {
            let (a, b) = (self.topology.coordinates(from), self.topology.coordinates(to));
            let outermost = (0..dims).find(|&d| a[d] != b[d]).map(|d| dims - 1 - d);
            level = level.max(outermost);
        }
        let Some((level, link)) = level.and_then(|l| Some((l, self.links.get(l)?))) else { return Transfer::default() };
        let latency = link.start_seconds + link.latency_seconds;
        Transfer {
            seconds: latency + bytes / link.reached(),
            latency_seconds: latency,
            wire_bytes: bytes,
            links: std::iter::once(LinkUse { link: level, share: 1.0 }).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CollectiveKind::*;

    fn seconds(target: &str, topology: &str, kind: CollectiveKind, bytes: f64, group: &[usize]) -> f64 {
        let target = Target::named(target).unwrap();
        let links = Communication::new(&target, Topology::parse(topology).unwrap()).unwrap();
        let transfer = links.collective(kind, bytes, &links.shape_of(group));
        transfer.seconds - transfer.latency_seconds
    }

    fn is_near(a: f64, b: f64) {
        assert!((a / b - 1.0).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn a_torus_gives_a_link_for_each_axis_and_two_for_a_ring() {
        // Four chips in a square without rings: three quarters of the bytes come in over two links of 100 GB/s.
        is_near(seconds("tpu-v6e", "2x2", AllGather, 1e9, &[0, 1, 2, 3]), 0.75e9 / 200e9);
        is_near(seconds("tpu-v6e", "2x2", AllReduce, 1e9, &[0, 1, 2, 3]), 1.5e9 / 200e9);
        // A full axis of 16 is a ring.
        let ring: Vec<usize> = (0..16).collect();
        is_near(seconds("tpu-v6e", "16x16", AllGather, 1e9, &ring), 15.0 / 16.0 * 1e9 / 200e9);
        // Two chips next to each other have one link.
        is_near(seconds("tpu-v6e", "2x2", AllGather, 1e9, &[0, 1]), 0.5e9 / 100e9);
        assert_eq!(seconds("tpu-v6e", "2x2", AllGather, 1e9, &[0]), 0.0);
    }

    #[test]
    fn hosts_are_crossed_with_all_their_ports() {
        let h100 = Target::named("gpu-h100").unwrap();
        let (nvlink, infiniband) = (h100.links[0].reached(), h100.links[1].reached());
        let host: Vec<usize> = (0..8).collect();
        is_near(seconds("gpu-h100", "2x8", AllGather, 1e9, &host), 7.0 / 8.0 * 1e9 / nvlink);
        let all: Vec<usize> = (0..16).collect();
        is_near(seconds("gpu-h100", "2x8", AllGather, 1e9, &all), 15.0 / 16.0 * 1e9 / nvlink.min(8.0 * infiniband));
        // One device on each host: one port.
        is_near(seconds("gpu-h100", "2x8", AllGather, 1e9, &[0, 8]), 0.5e9 / infiniband);
    }

    #[test]
    fn copies_that_share_a_link_take_turns() {
        let target = Target::named("tpu-v6e").unwrap();
        let links = Communication::new(&target, Topology::parse("1x4").unwrap()).unwrap();
        let seconds = |pairs: &[(usize, usize)]| {
            let t = links.permute(pairs, 1e9);
            t.seconds - t.latency_seconds
        };
        is_near(seconds(&[(0, 1), (1, 2), (2, 3)]), 1e9 / 100e9);
        // Without a ring the way back from 3 to 0 goes against the others; links carry both directions.
        is_near(seconds(&[(0, 1), (1, 2), (2, 3), (3, 0)]), 1e9 / 100e9);
        // Both cross from 1 to 2.
        is_near(seconds(&[(0, 2), (1, 3)]), 2e9 / 100e9);
        assert_eq!(links.permute(&[(1, 1)], 1e9), Transfer::default());
    }
}

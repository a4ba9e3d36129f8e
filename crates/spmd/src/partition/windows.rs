//! Windows of what lies in shards: which pieces each shard needs of which others, sent in as few rounds as may be.
//!
//! A round is one collective-permute: each shard sends at most one piece and receives at most one. What a shard has itself
//! is not sent.

use super::axes::{AxisList, DeviceAxes};
use super::body::{Body, Part};
use super::spec::{Spec, shard_size};
use super::{Emit, Reason};
use hloom_ir::ElementType;
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::BinaryOp;

/// A range of a whole dimension that a shard needs, and where in its window it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub start: i64,
    pub length: i64,
    pub position: i64,
}

/// What each shard needs of `whole` elements for a window of `size` that starts at `starts[shard]`.
pub(crate) fn window_needs(starts: &[i64], size: i64, whole: i64) -> Vec<Vec<Need>> {
    let need = |&start: &i64| {
        let (from, end) = (start.max(0), (start + size).min(whole));
        if from < end { vec![Need { start: from, length: end - from, position: from - start }] } else { Vec::new() }
    };
    starts.iter().map(need).collect()
}

/// How the shards of a dimension are cut anew: the axes that tell the devices apart, those that cut it now first, and
/// what each of these devices needs.
pub(crate) struct Recut {
    pub list: AxisList,
    pub needs: Vec<Vec<Need>>,
    /// The size of a shard afterwards.
    pub size: i64,
}

impl Recut {
    /// From shards along `from` to shards along `to` of a dimension of `n` elements.
    pub(crate) fn new(axes: &DeviceAxes, n: i64, from: &[u8], to: &[u8]) -> Recut {
        Recut::ranges(axes, n, from, to, shard_size(n, axes.product(to)))
    }

    /// The same to shards of `size` elements.
    pub(crate) fn ranges(axes: &DeviceAxes, n: i64, from: &[u8], to: &[u8], size: i64) -> Recut {
        let list: AxisList = from.iter().chain(to.iter().filter(|a| !from.contains(a))).copied().collect();
        let start = |i: i64| axes.coordinate(axes.with_coordinate(0, &list, i), to) * size;
        let starts: Vec<i64> = (0..axes.product(&list)).map(start).collect();
        Recut { list, needs: window_needs(&starts, size, n), size }
    }

    /// How many elements of the dimension a device sends, shards being along `from` and of `shard` elements now.
    pub(crate) fn sent_of(&self, axes: &DeviceAxes, shard: i64, from: &[u8]) -> i64 {
        if from.is_empty() {
            return 0;
        }
        sent(&rounds(&self.needs, shard, axes.product(&self.list) / axes.product(from)))
    }
}

fn sent(rounds: &[Round]) -> i64 {
    rounds.iter().filter(|r| r.is_sent()).map(|r| r.length).sum()
}

impl Body<'_, '_> {
    /// A window of dimension `dim` on each shard: shard `i` gets `size` elements of the whole from `starts[i]` on; what
    /// lies outside the whole is `fill`. The shards are those along `list`; `part` is cut along it in that dimension, or
    /// whole.
    pub(crate) fn read_window(
        &mut self,
        part: &Part,
        dim: usize,
        list: &[u8],
        starts: &[i64],
        size: i64,
        fill: InstructionId,
    ) -> Emit<InstructionId> {
        self.read_needs(part, dim, list, &window_needs(starts, size, part.shape.dims()[dim]), size, fill)
    }

    /// Bytes that a device sends to read such windows of an array in the form `spec`.
    pub(crate) fn needs_cost(&self, part: &Part, spec: &Spec, dim: usize, needs: &[Vec<Need>]) -> f64 {
        if spec.dims[dim].is_empty() {
            return 0.0;
        }
        let local = spec.local_dims(self.axes(), part.shape.dims());
        let row = spec.local_bytes(self.axes(), &part.shape) / local[dim].max(1) as f64;
        let copies = needs.len() as i64 / self.axes().product(&spec.dims[dim]).max(1);
        sent(&rounds(needs, local[dim], copies)) as f64 * row
    }

    /// As [`Body::read_window`], with any ranges. `list` may go on after the axes that `part` is cut along: devices that
    /// differ along those have the same shard, and needs of their own.
    pub(crate) fn read_needs(
        &mut self,
        part: &Part,
        dim: usize,
        list: &[u8],
        needs: &[Vec<Need>],
        size: i64,
        fill: InstructionId,
    ) -> Emit<InstructionId> {
        let reason = std::mem::replace(&mut self.reason, Reason::Halo);
        let index = self.coordinate(list)?;
        let mut dims = self.dims(part.id);
        let shard = dims[dim];
        dims[dim] = size;
        let cut = !part.spec.dims[dim].is_empty();
        let copies = self.axes().product(list) / self.axes().product(&part.spec.dims[dim]);
        let rounds = if cut { rounds(needs, shard, copies) } else { local_rounds(needs, shard) };
        let mut result = self.broadcast(fill, &dims, &[])?;
        let position = self.iota(ElementType::S32, &dims, dim)?;
        for round in &rounds {
            let table = |f: &dyn Fn(&Segment) -> i64| -> Vec<i32> {
                round.segments.iter().map(|s| s.as_ref().map_or(0, |s| f(s) as i32)).collect()
            };
            // What a shard sends, by the shard that it goes to.
            let mut sent = vec![0i32; needs.len()];
            for (target, segment) in round.segments.iter().enumerate() {
                if let Some(segment) = segment {
                    sent[if cut { segment.source } else { target }] = segment.offset as i32;
                }
            }
            let start = self.lookup(&sent, index)?;
            let mut piece = match round.length == shard {
                true => part.id,
                false if sent.iter().all(|&s| s == sent[0]) => {
                    self.slice_dim(part.id, dim, i64::from(sent[0]), i64::from(sent[0]) + round.length, 1)?
                }
                false => self.dynamic_slice_dim(part.id, dim, start, round.length)?,
            };
            if cut && round.is_sent() {
                let pairs = self.segment_pairs(&round.segments, list);
                piece = self.permute(piece, pairs, list)?;
            }
            let at = table(&|s| s.position);
            let begin = table(&|s| s.position + s.skip);
            let end = table(&|s| s.position + s.skip + s.length);
            let full = |(b, e): (&i32, &i32)| *b == 0 && i64::from(*e) == size;
            if round.length == size && at.iter().all(|&a| a == 0) && begin.iter().zip(&end).all(full) {
                result = piece;
                continue;
            }
            let placed = if at.iter().all(|&a| a == at[0]) && at[0] >= 0 && i64::from(at[0]) + round.length <= size {
                self.pad_dim(piece, dim, i64::from(at[0]), size - round.length - i64::from(at[0]), Some(fill))?
            } else {
                let padded = self.pad_dim(piece, dim, size, size, Some(fill))?;
                let starts: Vec<i32> = at.iter().map(|&a| size as i32 - a).collect();
                let start = self.lookup(&starts, index)?;
                self.dynamic_slice_dim(padded, dim, start, size)?
            };
            let begin = self.lookup(&begin, index)?;
            let begin = self.broadcast(begin, &dims, &[])?;
            let end = self.lookup(&end, index)?;
            let end = self.broadcast(end, &dims, &[])?;
            let after = self.compare(ComparisonDirection::Ge, position, begin)?;
            let before = self.compare(ComparisonDirection::Lt, position, end)?;
            let inside = self.binary(BinaryOp::And, after, before)?;
            result = self.select(inside, placed, result)?;
        }
        self.reason = reason;
        Ok(result)
    }

    fn segment_pairs(&self, segments: &[Option<Segment>], list: &[u8]) -> Vec<(i64, i64)> {
        let axes = self.axes();
        let mut pairs = Vec::new();
        for device in 0..axes.devices() {
            let target = axes.coordinate(device, list);
            if let Some(segment) = segments[target as usize] {
                let sender = axes.with_coordinate(device, list, segment.source as i64);
                pairs.push((axes.device(sender), axes.device(device)));
            }
        }
        pairs
    }
}

/// A piece of a shard that a shard needs.
#[derive(Clone, Copy, Debug)]
struct Segment {
    source: usize,
    /// Where it begins in the source's shard.
    offset: i64,
    /// Where it begins in the target's window.
    position: i64,
    /// How many of its first elements do not count.
    skip: i64,
    length: i64,
}

/// Pieces that are sent at once: at most one from and to each shard.
#[derive(Debug)]
struct Round {
    /// By target.
    segments: Vec<Option<Segment>>,
    length: i64,
    busy: Vec<bool>,
}

impl Round {
    fn new(shards: usize) -> Round {
        Round { segments: vec![None; shards], length: 0, busy: vec![false; shards] }
    }
    fn is_sent(&self) -> bool {
        self.segments.iter().enumerate().any(|(t, s)| s.is_some_and(|s| s.source != t))
    }
    fn fits(&self, target: usize, segment: &Segment) -> bool {
        self.segments[target].is_none() && !self.busy[segment.source]
    }
    fn put(&mut self, target: usize, segment: Segment) {
        self.segments[target] = Some(segment);
        self.length = self.length.max(segment.length);
        self.busy[segment.source] = true;
    }
    /// A piece that is shorter than the longest starts so that all of it is inside its shard.
    fn align(&mut self, shard: i64) {
        for segment in self.segments.iter_mut().flatten() {
            let over = segment.offset + self.length - shard;
            if over > 0 {
                segment.offset -= over;
                segment.position -= over;
                segment.skip = over;
            }
        }
    }
}

/// Rounds for what every shard has whole: nothing is sent.
fn local_rounds(needs: &[Vec<Need>], whole: i64) -> Vec<Round> {
    let most = needs.iter().map(Vec::len).max().unwrap_or(0);
    let round = |n: usize| {
        let mut round = Round::new(needs.len());
        for (target, list) in needs.iter().enumerate() {
            if let Some(need) = list.get(n) {
                let Need { start, length, position } = *need;
                round.put(target, Segment { source: target, offset: start, position, skip: 0, length });
            }
        }
        round.align(whole);
        round
    };
    (0..most).map(round).collect()
}

/// The rounds in which ranges are read from shards of `shard` elements, each of which `copies` devices in a row have.
/// What a device does not have itself it gets from the one at its own place among the copies.
fn rounds(needs: &[Vec<Need>], shard: i64, copies: i64) -> Vec<Round> {
    let shards = needs.len();
    let mut rounds: Vec<Round> = Vec::new();
    let mut remote: Vec<(usize, Segment)> = Vec::new();
    for (target, list) in needs.iter().enumerate() {
        for need in list {
            let (mut at, end) = (need.start, need.start + need.length);
            while at < end {
                let holder = at / shard;
                let source = (holder * copies) as usize + target % copies as usize;
                let length = end.min((holder + 1) * shard) - at;
                let position = need.position + at - need.start;
                let segment = Segment { source, offset: at - holder * shard, position, skip: 0, length };
                if source == target {
                    let at = rounds.iter().position(|r| r.fits(target, &segment));
                    let at = at.unwrap_or_else(|| {
                        rounds.push(Round::new(shards));
                        rounds.len() - 1
                    });
                    rounds[at].put(target, segment);
                } else {
                    remote.push((target, segment));
                }
                at += length;
            }
        }
    }
    // Pieces of the same size and distance travel together, then whatever fits without making a round longer.
    remote.sort_by_key(|(target, s)| {
        let distance = (*target as i64 - s.source as i64).rem_euclid(shards as i64);
        (std::cmp::Reverse(s.length), distance, s.position)
    });
    let local = rounds.len();
    for (target, segment) in remote {
        let distance = |t: usize, s: &Segment| (t as i64 - s.source as i64).rem_euclid(shards as i64);
        let same = |r: &Round| {
            r.segments.iter().enumerate().any(|(t, s)| s.is_some_and(|s| distance(t, &s) == distance(target, &segment)))
        };
        let free = |r: &Round| r.fits(target, &segment) && r.length >= segment.length;
        let sent = &rounds[local..];
        let at = sent.iter().position(|r| free(r) && same(r)).or_else(|| sent.iter().position(free));
        let at = at.map(|n| n + local).unwrap_or_else(|| {
            rounds.push(Round::new(shards));
            rounds.len() - 1
        });
        rounds[at].put(target, segment);
    }
    rounds.iter_mut().for_each(|r| r.align(shard));
    rounds
}

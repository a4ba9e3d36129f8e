//! Where things lie in one block, so that nothing that is needed at the same time overlaps.
//!
//! A packer puts groups into the block one after another, each into a gap, or searches for an order in which that goes
//! well. The reference packer is that of XLA: largest first and longest first, and the smaller result of the two. Placing
//! one group costs a little more than looking it up, and what it takes to look at the gaps.

mod by_start;
mod exact;
mod orders;
mod search;

use crate::heap::Group;
use crate::intervals::IntervalIndex;
use hloom_target::size::round_up;
use std::cmp::Reverse;

/// How a block is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packer {
    /// As XLA packs temporaries: largest first and longest first, and the smaller of the two.
    Reference,
    /// Longest first only, as what is known of memories that another pass of XLA manages; where something comes in parts,
    /// of which nothing is known, largest first if that is smaller.
    ReferencePreset,
    /// In the order in which things begin, each into the smallest gap, as XLA's newer compilers for TPUs do.
    ReferenceByStart,
    /// As the reference, but the memory of small values is used again only a while after they end: those who use it next
    /// need not wait for those who used it last, where things run beside each other.
    Apart,
    /// The best that is found in a number of steps that the size of the heap decides, and not the clock: the same heap is
    /// always packed the same way. Never larger than the reference, and no further search once the lower bound is reached.
    Best,
}

/// Where each group lies, and how large the block is.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) size: i64,
    pub(crate) offsets: Vec<i64>,
}

/// Which of several gaps a group goes into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fit {
    /// The smallest, of equal ones the lowest.
    Best,
    /// The lowest.
    First,
}

/// Packs the groups; `bound` tells the least that the block can take. `None` when a size does not fit.
pub(crate) fn pack(
    groups: &[Group],
    alignment: i64,
    packer: Packer,
    bound: impl FnOnce() -> Option<i64>,
) -> Option<Placed> {
    if packer == Packer::ReferenceByStart {
        return by_start::place(groups, alignment);
    }
    let site = Site::empty(groups, alignment);
    let temporal = || {
        let order = orders::sorted(&site.groups, |g| (Reverse(g.length as i128), Reverse(g.size as i128), g.owner));
        site.place(&order, Fit::Best, &mut 0)
    };
    let spatial = || {
        let order = orders::sorted(&site.groups, |g| (Reverse(g.size as i128), Reverse(g.own_length as i128), g.owner));
        site.place(&order, Fit::Best, &mut 0)
    };
    if packer == Packer::ReferencePreset {
        let temporal = temporal()?;
        // What comes in parts lends its upper ones to others for a while, if these are placed after it.
        let has_parts = groups.iter().any(|g| !g.parts.is_empty());
        let spatial = if has_parts { spatial() } else { None };
        return spatial.filter(|s| s.size < temporal.size).or(Some(temporal));
    }
    let spatial = spatial();
    let bound = bound()?;
    let reference = match spatial {
        // Nothing is smaller than what must be.
        Some(spatial) if spatial.size <= bound => return Some(spatial),
        Some(spatial) => temporal().filter(|temporal| temporal.size < spatial.size).unwrap_or(spatial),
        None => temporal()?,
    };
    match packer {
        Packer::Best => search::improve(groups, alignment, bound, reference),
        _ => Some(reference),
    }
}

/// Stretches of taken memory that one packing may look at before it looks at the lowest [`FEW`] of each list only. Heaps
/// of thousands of values at once that leave as many gaps come to that; for them there is no telling how XLA would fare,
/// and looking at every gap for every group would be quadratic.
const MANY: u64 = 20_000_000;
const FEW: usize = 32;

/// Memory from the first number up to the second.
type Chunk = (i64, i64);

/// Groups to be placed, and what is there already.
struct Site<'a> {
    groups: Vec<&'a Group>,
    /// For each group, the memory that is taken while it is there, in order; empty where nothing was there before.
    around: Vec<Vec<Chunk>>,
    alignment: i64,
}

impl<'a> Site<'a> {
    /// A block without anything in it.
    fn empty(groups: &'a [Group], alignment: i64) -> Site<'a> {
        Site { groups: groups.iter().collect(), around: Vec::new(), alignment }
    }

    /// Places the groups in that order; counts the groups and the stretches of taken memory that were looked at. `None`
    /// when an offset does not fit.
    fn place(&self, order: &[u32], fit: Fit, steps: &mut u64) -> Option<Placed> {
        let spans = self.groups.iter().flat_map(|g| g.stretches()).flat_map(|(.., spans)| spans);
        let mut taken_when = IntervalIndex::new(spans.flat_map(|s| [s.0, s.1]));
        let mut placed = Placed { size: 0, offsets: vec![0; self.groups.len()] };
        let mut taken: Vec<Chunk> = Vec::new();
        let before = *steps;
        for &g in order {
            let group = self.groups[g as usize];
            if group.size == 0 {
                continue;
            }
            taken.clear();
            taken.extend(self.around.get(g as usize).into_iter().flatten());
            let most = if *steps - before < MANY { usize::MAX } else { FEW };
            for (within, size, spans) in group.stretches() {
                // As far as the whole place must stay away from it.
                let above = group.size - within - size;
                let mut keep_off = |(start, end): Chunk| taken.push((start.saturating_add(above), end - within));
                spans.iter().for_each(|&span| taken_when.taken(span, most, &mut keep_off));
            }
            *steps += 1 + taken.len() as u64;
            let offset = gap(&mut taken, group.size, fit);
            let end = offset.checked_add(group.size)?;
            for (within, size, spans) in group.stretches() {
                let chunk = (offset + within, self.next_after(offset + within + size)?);
                spans.iter().for_each(|&span| taken_when.add(span, chunk));
            }
            placed.offsets[g as usize] = offset;
            placed.size = placed.size.max(end);
        }
        Some(placed)
    }

    /// Nothing can begin before the next multiple of the alignment, so the rest up to it is taken too.
    fn next_after(&self, end: i64) -> Option<i64> {
        round_up(end, self.alignment)
    }
}

/// The start of the gap between the chunks `taken` that a group of that size goes into; above them all is always room. A
/// chunk may end before it starts: nothing of the size may then begin before its end and end after its start.
fn gap(taken: &mut [Chunk], size: i64, fit: Fit) -> i64 {
    // A few runs that are in order: a stable sort merges them.
    taken.sort();
    let mut best: Option<(i64, i64)> = None;
    let mut free_from = 0i64;
    for &(start, end) in taken.iter() {
        let room = start - free_from;
        if room >= size && best.is_none_or(|(smallest, _)| room < smallest) {
            best = Some((room, free_from));
            if fit == Fit::First {
                break;
            }
        }
        free_from = free_from.max(end);
    }
    best.map_or(free_from, |(_, offset)| offset)
}

#[cfg(test)]
mod tests;

//! The search for a better packing than the reference.
//!
//! A handful of orders is tried, with two ways to choose a gap; then the groups that stick out above the lower bound are
//! placed earlier in the next round, until they find room or the steps are used up. Large heaps are packed in stages:
//! first the groups of the busiest moments, where every gap counts, then those of less busy ones around them, which have
//! room. Last, stretches of time that are still too high are searched exactly, as long as they are small. Every part
//! stops as soon as the bound is reached.

use super::orders::{self, Load};
use super::{Chunk, Fit, Placed, Site, exact};
use crate::heap::Group;
use crate::intervals::IntervalIndex;

/// Steps (groups placed, and stretches of taken memory looked at for it) that a whole heap, or each stage of one, may
/// take: a second of work or so. What was begun is ended.
const MAX_STEPS: u64 = 4_000_000;
/// Rounds of repair without a better packing after which an order is given up.
const MAX_IDLE_ROUNDS: u32 = 60;
/// Stretches of each list of taken memory that are kept for a group of a later stage; what is beyond counts as taken.
const MAX_AROUND: usize = 128;
/// How busy, in hundredths of the lower bound, the moments of each stage are at least.
const STAGES: [i128; 7] = [99, 95, 85, 70, 50, 30, 0];
/// Heaps up to this number of groups are tried as a whole.
const MAX_WHOLE: usize = 3000;

/// A packing that is at least as small as `reference`.
pub(super) fn improve(groups: &[Group], alignment: i64, bound: i64, reference: Placed) -> Option<Placed> {
    let mut best = reference;
    let load = Load::new(groups);
    let whole = |_: &Placed| {
        let mut search = Search { site: &Site::empty(groups, alignment), load: &load, bound, best: None, steps: 0 };
        search.run();
        search.best
    };
    let staged = |_: &Placed| in_stages(groups, alignment, bound, &load);
    let exactly = |best: &Placed| exact::repack(groups, alignment, bound, best);
    // What helps most comes first; packing all of a large heap again and again would take too long.
    let ways: &[Way<'_>] = if groups.len() <= MAX_WHOLE { &[&whole, &staged, &exactly] } else { &[&staged, &exactly] };
    for way in ways {
        if best.size <= bound {
            break;
        }
        if let Some(found) = way(&best).filter(|f| f.size < best.size) {
            best = found;
        }
    }
    Some(best)
}

/// A way to find a packing, given the best so far.
type Way<'a> = &'a dyn Fn(&Placed) -> Option<Placed>;

/// Packs the groups of the busiest moments first, then the others around them.
fn in_stages(groups: &[Group], alignment: i64, bound: i64, load: &Load) -> Option<Placed> {
    let mut taken_when = IntervalIndex::new(groups.iter().flat_map(|g| g.spans.iter().flat_map(|s| [s.0, s.1])));
    let mut whole = Placed { size: 0, offsets: vec![0; groups.len()] };
    let busiest: Vec<i128> = groups.iter().map(|g| load.most(g)).collect();
    let mut waiting: Vec<u32> = (0..groups.len() as u32).filter(|&g| groups[g as usize].size > 0).collect();
    for stage in STAGES {
        let is_due = |&g: &u32| busiest[g as usize] * 100 >= i128::from(bound) * stage;
        let (now, later): (Vec<u32>, Vec<u32>) = waiting.into_iter().partition(is_due);
        waiting = later;
        let around = now.iter().map(|&g| around(&taken_when, &groups[g as usize])).collect();
        let site = Site { groups: now.iter().map(|&g| &groups[g as usize]).collect(), around, alignment };
        // What sticks out already does so, whatever comes.
        let mut search = Search { site: &site, load, bound: bound.max(whole.size), best: None, steps: 0 };
        search.run();
        let found = search.best?;
        for (&g, &offset) in now.iter().zip(&found.offsets) {
            let next = site.next_after(offset.checked_add(groups[g as usize].size)?)?;
            groups[g as usize].spans.iter().for_each(|&span| taken_when.add(span, (offset, next)));
            whole.offsets[g as usize] = offset;
        }
        whole.size = whole.size.max(found.size);
    }
    Some(whole)
}

/// The memory that is taken while a group is there, as stretches in order that do not touch.
fn around(taken_when: &IntervalIndex, group: &Group) -> Vec<Chunk> {
    let mut taken: Vec<Chunk> = Vec::new();
    group.spans.iter().for_each(|&span| taken_when.taken(span, MAX_AROUND, |chunk| taken.push(chunk)));
    taken.sort_unstable();
    let mut stretches: Vec<Chunk> = Vec::new();
    for (start, end) in taken {
        match stretches.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => stretches.push((start, end)),
        }
    }
    stretches
}

struct Search<'a> {
    site: &'a Site<'a>,
    load: &'a Load,
    bound: i64,
    best: Option<Placed>,
    steps: u64,
}

impl Search<'_> {
    fn run(&mut self) {
        let orders = orders::all(&self.site.groups, self.load);
        for order in &orders {
            for fit in [Fit::Best, Fit::First] {
                if self.is_done() {
                    return;
                }
                self.attempt(order, fit);
            }
        }
        for (nth, order) in orders.into_iter().enumerate() {
            self.repair(order, nth as u64);
        }
    }

    fn is_done(&self) -> bool {
        self.best.as_ref().is_some_and(|b| b.size <= self.bound || self.steps > MAX_STEPS)
    }

    fn attempt(&mut self, order: &[u32], fit: Fit) -> Option<Placed> {
        let placed = self.site.place(order, fit, &mut self.steps)?;
        if self.best.as_ref().is_none_or(|b| placed.size < b.size) {
            self.best = Some(placed.clone());
        }
        Some(placed)
    }

    /// Places what stuck out earlier, again and again.
    fn repair(&mut self, mut order: Vec<u32>, seed: u64) {
        // A fixed sequence of numbers: the same heap is packed the same way every time.
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ seed);
        let (mut idle, mut least) = (0, i64::MAX);
        while idle < MAX_IDLE_ROUNDS && !self.is_done() {
            let fit = if idle % 2 == 0 { Fit::First } else { Fit::Best };
            let Some(placed) = self.attempt(&order, fit) else { return };
            idle = if placed.size < least { 0 } else { idle + 1 };
            least = least.min(placed.size);
            order = self.earlier(&order, &placed, &mut numbers);
        }
    }

    /// The order with the groups that end above the bound moved towards the front, each by a different share of its way.
    fn earlier(&self, order: &[u32], placed: &Placed, numbers: &mut Numbers) -> Vec<u32> {
        let mut keyed: Vec<(u64, u32)> = Vec::with_capacity(order.len());
        for (place, &g) in order.iter().enumerate() {
            let end = placed.offsets[g as usize].saturating_add(self.site.groups[g as usize].size);
            let share = if end > self.bound { numbers.below(224) } else { 256 };
            keyed.push(((place as u64 + 1) * share, g));
        }
        keyed.sort_by_key(|k| k.0);
        keyed.into_iter().map(|k| k.1).collect()
    }
}

/// Numbers that look random and are always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

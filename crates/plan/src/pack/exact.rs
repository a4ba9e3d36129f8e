//! Exact search for the stretches of time that are packed higher than the lower bound.
//!
//! Groups that share no moment, directly or through others, are packed apart. Of a part that is too high, it is asked
//! whether it fits under a ceiling: groups are laid down from the ground up, each at the lowest place that is free above
//! all before it, in every order that can matter. Any packing can be pressed down into one of that kind, so a search that
//! comes to its end without one proves that there is none. A branch is left as soon as something does not fit under the
//! ceiling even if all that is still to come were laid down without a gap.

use super::Placed;
use crate::heap::Group;
use hloom_target::size::round_up;
use rustc_hash::FxHashMap;

/// Groups of a part up to which it is searched.
const MAX_GROUPS: usize = 256;
/// Steps (groups looked at) that all searches may take together.
const MAX_STEPS: u64 = 6_000_000;
/// Steps that one search may take.
const MAX_STEPS_EACH: u64 = 600_000;
/// How often the ceiling is halved between the bound and what is reached.
const MAX_CEILINGS: usize = 6;

/// A packing with as many of the parts above `bound` lowered as could be; `None` if none was.
pub(super) fn repack(groups: &[Group], alignment: i64, bound: i64, best: &Placed) -> Option<Placed> {
    let mut offsets = best.offsets.clone();
    let mut steps = 0;
    let height = |offsets: &[i64], part: &[u32]| {
        part.iter().map(|&g| offsets[g as usize].saturating_add(groups[g as usize].size)).max().unwrap_or(0)
    };
    for part in parts(groups) {
        let reached = height(&offsets, &part);
        if reached <= bound || part.len() > MAX_GROUPS {
            continue;
        }
        let mut search = Part::new(groups, &part, alignment)?;
        // What is proved or given up below, and what is reached above.
        let (mut low, mut high) = (bound, reached);
        let mut ceiling = bound;
        for _ in 0..MAX_CEILINGS {
            if ceiling >= high || steps > MAX_STEPS {
                break;
            }
            match search.under(ceiling, &mut steps) {
                Some(found) => {
                    part.iter().zip(found).for_each(|(&g, offset)| offsets[g as usize] = offset);
                    high = height(&offsets, &part);
                }
                None => low = ceiling,
            }
            if high <= bound {
                break;
            }
            ceiling = low + (high - low) / 2;
        }
    }
    let all: Vec<u32> = (0..groups.len() as u32).collect();
    let size = height(&offsets, &all);
    (size < best.size).then_some(Placed { size, offsets })
}

/// Groups that share moments, directly or through others; those without size aside.
fn parts(groups: &[Group]) -> Vec<Vec<u32>> {
    let mut spans: Vec<(u64, u64, u32)> = Vec::new();
    for (g, group) in groups.iter().enumerate().filter(|(_, g)| g.size > 0) {
        spans.extend(group.spans.iter().map(|s| (s.0, s.1, g as u32)));
    }
    spans.sort_unstable();
    let mut parent: Vec<u32> = (0..groups.len() as u32).collect();
    let mut open: Option<(u64, u32)> = None;
    for (start, end, g) in spans {
        open = match open {
            Some((until, first)) if start <= until => {
                let (a, b) = (find(&mut parent, first), find(&mut parent, g));
                parent[a.max(b) as usize] = a.min(b);
                Some((until.max(end), first))
            }
            _ => Some((end, g)),
        };
    }
    let mut parts: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (g, _) in groups.iter().enumerate().filter(|(_, g)| g.size > 0) {
        parts.entry(find(&mut parent, g as u32)).or_default().push(g as u32);
    }
    let mut parts: Vec<Vec<u32>> = parts.into_values().collect();
    parts.sort_unstable();
    parts
}

fn find(parent: &mut [u32], mut at: u32) -> u32 {
    while parent[at as usize] != at {
        let up = parent[parent[at as usize] as usize];
        parent[at as usize] = up;
        at = up;
    }
    at
}

/// A group as the search sees it.
struct Item {
    size: i64,
    /// Its size up to where the next may begin.
    whole: i64,
    /// The sections in which it is there.
    sections: Vec<usize>,
    /// One before it that is just like it: it is laid down first, since the two can be exchanged.
    twin: Option<usize>,
}

/// A part of the heap, cut into sections: moments between which no group begins after another has ended.
struct Part {
    items: Vec<Item>,
    section_count: usize,
    /// The most that any group is filled up by: the topmost one need not be.
    filling: i64,
    /// Orders in which groups of equal height are tried.
    preferences: Vec<Vec<usize>>,
}

impl Part {
    fn new(groups: &[Group], part: &[u32], alignment: i64) -> Option<Part> {
        let mut ends: Vec<(u64, bool)> = Vec::new();
        for &g in part {
            ends.extend(groups[g as usize].spans.iter().flat_map(|s| [(s.0, false), (s.1, true)]));
        }
        ends.sort_unstable();
        // A section ends with the first end after a beginning.
        let mut sections: Vec<u64> = Vec::new();
        let mut begun = false;
        for (tick, is_end) in ends {
            if is_end && begun {
                sections.push(tick);
            }
            begun = !is_end;
        }
        let mut items = Vec::with_capacity(part.len());
        let mut twins: FxHashMap<(i64, Vec<usize>), usize> = FxHashMap::default();
        for &g in part {
            let group = &groups[g as usize];
            let within = |&(start, end): &(u64, u64)| {
                let first = sections.partition_point(|&s| s < start);
                first..sections.partition_point(|&s| s <= end)
            };
            let sections: Vec<usize> = group.spans.iter().flat_map(within).collect();
            let twin = twins.insert((group.size, sections.clone()), items.len());
            items.push(Item { size: group.size, whole: round_up(group.size, alignment)?, sections, twin });
        }
        let filling = items.iter().map(|i| i.whole - i.size).max().unwrap_or(0);
        let mut load = vec![0i128; sections.len()];
        for item in &items {
            item.sections.iter().for_each(|&s| load[s] += i128::from(item.whole));
        }
        let busiest = |i: usize| items[i].sections.iter().map(|&s| load[s]).max().unwrap_or(0);
        let by = |key: &dyn Fn(usize) -> (i128, i128)| {
            let mut order: Vec<usize> = (0..items.len()).collect();
            order.sort_by_key(|&i| std::cmp::Reverse(key(i)));
            let mut rank = vec![0; items.len()];
            order.into_iter().enumerate().for_each(|(place, i)| rank[i] = place);
            rank
        };
        let (size, width) = (|i: usize| i128::from(items[i].whole), |i: usize| items[i].sections.len() as i128);
        let preferences = vec![
            by(&|i| (width(i), size(i))),
            by(&|i| (size(i) * width(i), size(i))),
            by(&|i| (busiest(i), size(i) * width(i))),
            by(&|i| (size(i), width(i))),
        ];
        Some(Part { section_count: sections.len(), items, filling, preferences })
    }

    /// Offsets of all groups under the ceiling, if they are found in time.
    fn under(&mut self, ceiling: i64, steps: &mut u64) -> Option<Vec<i64>> {
        for rank in &self.preferences {
            let mut search = Search {
                part: self,
                rank,
                ceiling,
                floor: vec![0; self.section_count],
                load: vec![0; self.section_count],
                offsets: vec![None; self.items.len()],
                steps: 0,
            };
            for item in &self.items {
                item.sections.iter().for_each(|&s| search.load[s] = search.load[s].saturating_add(item.whole));
            }
            let answer = search.lay_down(self.items.len(), 0, 0);
            *steps += search.steps;
            match answer {
                Answer::Found => return search.offsets.into_iter().collect(),
                // There is none, in whatever order one looks.
                Answer::Impossible => return None,
                Answer::GivenUp => {}
            }
        }
        None
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Found,
    Impossible,
    GivenUp,
}

struct Search<'a> {
    part: &'a Part,
    rank: &'a [usize],
    ceiling: i64,
    /// How high each section is taken.
    floor: Vec<i64>,
    /// What is still to be laid down in each section.
    load: Vec<i64>,
    offsets: Vec<Option<i64>>,
    steps: u64,
}

impl Search<'_> {
    /// Lays down what is left, nothing below `lowest`; what lies just there comes in the order of numbers, from `first` on.
    fn lay_down(&mut self, left: usize, lowest: i64, first: usize) -> Answer {
        if left == 0 {
            return Answer::Found;
        }
        let mut open: Vec<(i64, usize, usize)> = Vec::with_capacity(left);
        let mut top = i64::MAX;
        for (i, item) in self.part.items.iter().enumerate().filter(|(i, _)| self.offsets[*i].is_none()) {
            let offset = item.sections.iter().map(|&s| self.floor[s]).max().unwrap_or(0);
            self.steps += 1 + item.sections.len() as u64 / 8;
            if offset >= lowest && item.twin.is_none_or(|t| self.offsets[t].is_some()) {
                top = top.min(offset.saturating_add(item.whole));
                open.push((offset, self.rank[i], i));
            }
        }
        if self.steps > MAX_STEPS_EACH {
            return Answer::GivenUp;
        }
        // What begins only where another could have been laid down below it leaves a gap that need not be.
        open.retain(|&(offset, _, i)| offset < top && (offset > lowest || i >= first));
        open.sort_unstable();
        for (offset, _, i) in open {
            if offset.saturating_add(self.part.items[i].size) > self.ceiling {
                continue;
            }
            let before: Vec<i64> = self.part.items[i].sections.iter().map(|&s| self.floor[s]).collect();
            self.lay(i, offset);
            if self.fits(offset) {
                match self.lay_down(left - 1, offset, i + 1) {
                    Answer::Impossible => {}
                    other => return other,
                }
            }
            self.take_back(i, &before);
        }
        Answer::Impossible
    }

    fn lay(&mut self, i: usize, offset: i64) {
        let item = &self.part.items[i];
        self.offsets[i] = Some(offset);
        for &s in &item.sections {
            self.floor[s] = offset.saturating_add(item.whole);
            self.load[s] -= item.whole;
        }
    }

    fn take_back(&mut self, i: usize, floors: &[i64]) {
        let item = &self.part.items[i];
        self.offsets[i] = None;
        for (&s, &floor) in item.sections.iter().zip(floors) {
            self.floor[s] = floor;
            self.load[s] += item.whole;
        }
    }

    /// Whether what is left fits under the ceiling, as far as its sum tells. Nothing more comes below `lowest`.
    fn fits(&mut self, lowest: i64) -> bool {
        self.steps += self.floor.len() as u64 / 8;
        self.floor.iter().zip(&self.load).all(|(&floor, &load)| {
            load == 0 || floor.max(lowest).saturating_add(load) - self.part.filling <= self.ceiling
        })
    }
}

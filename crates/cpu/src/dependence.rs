//! Which steps must wait for which: what each of them reads and writes of the planned memory.
//!
//! The plan lets values that are not needed at once share memory, in the order of the list. So a step waits not only for
//! those whose results it reads, but also for those that use the memory it writes. Constants are never written and left
//! out.

use crate::thunk::{Location, Thunk, ThunkKind};
use hloom_plan::Plan;
use hloom_plan::positions::Position;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// A piece of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Extent {
    pub(crate) allocation: u32,
    pub(crate) begin: usize,
    pub(crate) end: usize,
}

/// What a step reads and writes, each in order and without overlaps.
#[derive(Clone, Default, Debug)]
pub(crate) struct Footprint {
    reads: Vec<Extent>,
    writes: Vec<Extent>,
}

impl Footprint {
    fn add(&mut self, other: &Footprint) {
        self.reads.extend_from_slice(&other.reads);
        self.writes.extend_from_slice(&other.writes);
    }

    /// Leaves out what is written to an allocation: it will not be.
    pub(crate) fn forget_writes(&mut self, allocation: u32) {
        self.writes.retain(|e| e.allocation != allocation);
    }

    fn resolve(&mut self) {
        resolve(&mut self.reads);
        resolve(&mut self.writes);
    }

    /// Whether the two may not be in progress at the same time.
    pub(crate) fn conflicts(&self, other: &Footprint) -> bool {
        let meet = |few: &[Extent], many: &[Extent]| few.iter().any(|e| overlaps(many, e));
        meet(&other.writes, &self.writes) || meet(&other.writes, &self.reads) || meet(&other.reads, &self.writes)
    }
}

/// Puts pieces in order and joins those that overlap or touch.
fn resolve(extents: &mut Vec<Extent>) {
    extents.sort_unstable();
    extents.dedup_by(|next, so_far| {
        let touches = next.allocation == so_far.allocation && next.begin <= so_far.end;
        if touches {
            so_far.end = so_far.end.max(next.end);
        }
        touches
    });
}

/// Whether one of `settled` overlaps `e`.
fn overlaps(settled: &[Extent], e: &Extent) -> bool {
    let after = settled.partition_point(|s| (s.allocation, s.begin) < (e.allocation, e.end));
    after.checked_sub(1).is_some_and(|n| settled[n].allocation == e.allocation && settled[n].end > e.begin)
}

/// The footprints of all steps of all lists.
pub(crate) fn footprints(
    plan: &Plan<'_>,
    table: &[Location],
    at: &[Position],
    lists: &[Vec<Thunk>],
) -> Vec<Vec<Footprint>> {
    let (module, positions) = (plan.dataflow.module(), &plan.dataflow.positions);
    let extent = |entry: u32| {
        let location = table.get(entry as usize)?;
        let bytes = positions.shape(*at.get(entry as usize)?).byte_size().filter(|&n| n > 0)?;
        let is_constant = plan.allocations.get(location.allocation as usize).is_some_and(|a| a.is_constant);
        if *location == Location::NOWHERE {
            return None;
        }
        let end = location.offset.checked_add(usize::try_from(bytes).ok()?)?;
        (!is_constant).then_some(Extent { allocation: location.allocation, begin: location.offset, end })
    };
    let operand_leaves = |step: &Thunk| -> u32 {
        let leaves = |o| positions.of(o).filter(|&p| !positions.is_tuple(p)).count() as u32;
        module[step.instruction].operands().iter().map(|&o| leaves(o)).sum()
    };
    let mut all: Vec<Vec<Footprint>> = vec![Vec::new(); lists.len()];
    // Lists within a list have higher numbers.
    for list in (0..lists.len()).rev() {
        let mut of_list = Vec::with_capacity(lists[list].len());
        for step in &lists[list] {
            let mut footprint = Footprint::default();
            let inner: Vec<usize> = match &step.kind {
                ThunkKind::While(repeat) => vec![repeat.condition, repeat.body],
                ThunkKind::Conditional { branches, .. } => branches.clone(),
                _ => Vec::new(),
            };
            let reads = match &step.kind {
                ThunkKind::Copy { .. } => 1,
                // What is written there is written by the lists within.
                ThunkKind::While(_) | ThunkKind::Conditional { .. } => step.arrays.len() as u32,
                _ => operand_leaves(step).min(step.arrays.len() as u32),
            };
            let middle = step.arrays.start + reads;
            footprint.reads.extend((step.arrays.start..middle).filter_map(extent));
            footprint.writes.extend((middle..step.arrays.end).filter_map(extent));
            inner.iter().flat_map(|&l| &all[l]).for_each(|f| footprint.add(f));
            footprint.resolve();
            of_list.push(footprint);
        }
        all[list] = of_list;
    }
    all
}

/// A piece of memory whose last writer, and whose readers since, are the same all over.
struct Segment {
    end: usize,
    writer: Option<u32>,
    readers: Vec<u32>,
}

/// Who used which memory last.
#[derive(Default)]
struct Memory {
    allocations: FxHashMap<u32, BTreeMap<usize, Segment>>,
}

impl Memory {
    /// The segments of `extent`, which begin and end where it does; parts that nobody has used yet are made.
    fn segments(&mut self, extent: &Extent) -> &mut BTreeMap<usize, Segment> {
        let map = self.allocations.entry(extent.allocation).or_default();
        for cut in [extent.begin, extent.end] {
            if let Some((&start, segment)) = map.range_mut(..cut).next_back()
                && segment.end > cut
            {
                debug_assert!(start < cut, "a segment is not empty");
                let rest = Segment { end: segment.end, writer: segment.writer, readers: segment.readers.clone() };
                segment.end = cut;
                map.insert(cut, rest);
            }
        }
        let mut gaps = Vec::new();
        let mut at = extent.begin;
        for (&start, segment) in map.range(extent.begin..extent.end) {
            if at < start {
                gaps.push((at, start));
            }
            at = segment.end;
        }
        if at < extent.end {
            gaps.push((at, extent.end));
        }
        for (start, end) in gaps {
            map.insert(start, Segment { end, writer: None, readers: Vec::new() });
        }
        map
    }

    fn read(&mut self, step: u32, extent: &Extent, waits: &mut Vec<u32>) {
        for (_, segment) in self.segments(extent).range_mut(extent.begin..extent.end) {
            waits.extend(segment.writer);
            segment.readers.push(step);
        }
    }

    fn write(&mut self, step: u32, extent: &Extent, waits: &mut Vec<u32>) {
        let map = self.segments(extent);
        let old: Vec<usize> = map.range(extent.begin..extent.end).map(|(&start, _)| start).collect();
        for segment in old.iter().filter_map(|start| map.remove(start)) {
            waits.extend(segment.writer);
            waits.extend(segment.readers);
        }
        map.insert(extent.begin, Segment { end: extent.end, writer: Some(step), readers: Vec::new() });
    }
}

/// For each step the ones before it that it must wait for.
pub(crate) fn dependencies<'f>(footprints: impl Iterator<Item = &'f Footprint>) -> Vec<Vec<u32>> {
    let mut memory = Memory::default();
    let mut all = Vec::new();
    for (step, footprint) in (0u32..).zip(footprints) {
        let mut waits = Vec::new();
        footprint.reads.iter().for_each(|e| memory.read(step, e, &mut waits));
        footprint.writes.iter().for_each(|e| memory.write(step, e, &mut waits));
        waits.retain(|&w| w != step);
        waits.sort_unstable();
        waits.dedup();
        all.push(waits);
    }
    all
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What reads and writes those bytes of one allocation.
    pub(crate) fn uses(reads: &[(usize, usize)], writes: &[(usize, usize)]) -> Footprint {
        let extents = |of: &[(usize, usize)]| {
            of.iter().map(|&(begin, end)| Extent { allocation: 0, begin, end }).collect::<Vec<_>>()
        };
        let mut footprint = Footprint { reads: extents(reads), writes: extents(writes) };
        footprint.resolve();
        footprint
    }

    #[test]
    fn steps_wait_for_what_they_read_and_for_the_memory_they_write() {
        let steps = [
            uses(&[], &[(0, 8)]),
            uses(&[], &[(8, 16)]),
            uses(&[(0, 8)], &[(16, 24)]),
            // Overwrites what the step before reads, and half of what the second wrote.
            uses(&[], &[(0, 12)]),
            uses(&[(12, 16)], &[(24, 32)]),
            uses(&[(0, 16)], &[(32, 40)]),
        ];
        let waits: Vec<Vec<u32>> = vec![vec![], vec![], vec![0], vec![0, 1, 2], vec![1], vec![1, 3]];
        assert_eq!(dependencies(steps.iter()), waits);
    }

    #[test]
    fn dependencies_are_the_conflicts_that_others_do_not_imply() {
        let mut choices = hloom_fuzz::choices::Choices::from_seed(7);
        for _ in 0..200 {
            let mut extents =
                || (0..choices.below(3)).map(|_| (choices.below(20) * 3, choices.below(5) + 1)).collect::<Vec<_>>();
            let mut step = || {
                let (reads, writes) = (extents(), extents());
                let ends = |of: Vec<(usize, usize)>| of.iter().map(|&(b, n)| (b, b + n)).collect::<Vec<_>>();
                uses(&ends(reads), &ends(writes))
            };
            let steps: Vec<Footprint> = (0..12).map(|_| step()).collect();
            let waits = dependencies(steps.iter());
            // All that a step waits for, through others.
            let mut before: Vec<u32> = Vec::new();
            for (n, w) in waits.iter().enumerate() {
                before.push(w.iter().fold(0, |set, &w| set | 1 << w | before[w as usize]));
                for m in 0..n {
                    let waits_for = before[n] & 1 << m != 0;
                    assert!(waits_for || !steps[m].conflicts(&steps[n]), "{m} and {n} of {steps:?}");
                    assert!(!w.contains(&(m as u32)) || steps[m].conflicts(&steps[n]), "{m} and {n} of {steps:?}");
                }
            }
        }
    }
}

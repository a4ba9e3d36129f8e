//! Memory as the checker sees it: for every stretch of bytes, who wrote it last.
//!
//! A stretch that is written over in part is cut: whoever wrote it no longer finds it whole. Changes can be taken back,
//! for the branches of conditionals.

use std::collections::BTreeMap;

/// One act of writing.
pub(super) type Tag = u32;

/// Stands for bytes of which it is not known who wrote them: one branch did, another did not.
pub(super) const UNKNOWN: Tag = 0;

/// Where a value lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Spot {
    pub(super) allocation: u32,
    pub(super) start: i64,
    pub(super) end: i64,
}

impl Spot {
    pub(super) fn overlaps(&self, other: &Spot) -> bool {
        self.allocation == other.allocation && self.start < other.end && other.start < self.end
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

enum Change {
    Added(u32, i64),
    Removed(u32, i64, (i64, Tag)),
}

pub(super) struct Memory {
    /// For each allocation, stretches by their start.
    bytes: Vec<BTreeMap<i64, (i64, Tag)>>,
    log: Vec<Change>,
    /// What was written since the log was begun.
    written: Vec<Spot>,
    /// How many conditionals we are in.
    depth: usize,
}

impl Memory {
    pub(super) fn new(allocations: usize) -> Memory {
        Memory { bytes: vec![BTreeMap::new(); allocations], log: Vec::new(), written: Vec::new(), depth: 0 }
    }

    pub(super) fn write(&mut self, spot: Spot, tag: Tag) {
        let Some(bytes) = self.bytes.get_mut(spot.allocation as usize) else { return };
        if spot.is_empty() {
            return;
        }
        let logged = self.depth > 0;
        let at = spot.allocation;
        // The stretch that reaches in from before, and all that begin within.
        let first = bytes.range(..spot.start).next_back().filter(|(_, v)| v.0 > spot.start).map(|(&s, _)| s);
        let within: Vec<i64> = bytes.range(spot.start..spot.end).map(|(&s, _)| s).collect();
        for start in first.into_iter().chain(within) {
            let Some(old) = bytes.remove(&start) else { continue };
            if logged {
                self.log.push(Change::Removed(at, start, old));
            }
            for (from, to) in [(start, spot.start), (spot.end, old.0)] {
                if from < to && from >= start {
                    bytes.insert(from, (to, old.1));
                    if logged {
                        self.log.push(Change::Added(at, from));
                    }
                }
            }
        }
        bytes.insert(spot.start, (spot.end, tag));
        if logged {
            self.log.push(Change::Added(at, spot.start));
            self.written.push(spot);
        }
    }

    /// Whether the spot is as that act of writing left it; otherwise who wrote there since.
    pub(super) fn holds(&self, spot: Spot, tag: Tag) -> Result<(), Option<Tag>> {
        if spot.is_empty() {
            return Ok(());
        }
        let Some(bytes) = self.bytes.get(spot.allocation as usize) else { return Err(None) };
        match bytes.get(&spot.start) {
            Some(&(end, there)) if end == spot.end && there == tag => Ok(()),
            _ => {
                let before = bytes.range(..=spot.start).next_back().filter(|(_, v)| v.0 > spot.start);
                let all = before.into_iter().chain(bytes.range(spot.start + 1..spot.end));
                Err(all.map(|(_, v)| v.1).find(|&t| t != tag))
            }
        }
    }

    /// Begins to note changes; returns from where.
    pub(super) fn begin(&mut self) -> (usize, usize) {
        self.depth += 1;
        (self.log.len(), self.written.len())
    }

    /// Takes back all changes since; returns the spots that were written.
    pub(super) fn take_back(&mut self, (log, written): (usize, usize)) -> Vec<Spot> {
        for change in self.log.drain(log..).rev() {
            match change {
                Change::Added(at, start) => {
                    self.bytes[at as usize].remove(&start);
                }
                Change::Removed(at, start, old) => {
                    self.bytes[at as usize].insert(start, old);
                }
            }
        }
        self.depth -= 1;
        self.written.drain(written..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(start: i64, end: i64) -> Spot {
        Spot { allocation: 0, start, end }
    }

    #[test]
    fn what_is_written_over_in_part_is_lost() {
        let mut memory = Memory::new(1);
        memory.write(spot(0, 16), 1);
        memory.write(spot(16, 32), 2);
        assert_eq!(memory.holds(spot(0, 16), 1), Ok(()));
        memory.write(spot(12, 20), 3);
        assert_eq!(memory.holds(spot(0, 16), 1), Err(Some(3)));
        assert_eq!(memory.holds(spot(16, 32), 2), Err(Some(3)));
        assert_eq!(memory.holds(spot(12, 20), 3), Ok(()));
        assert_eq!(memory.holds(spot(40, 48), 1), Err(None));
    }

    #[test]
    fn changes_can_be_taken_back() {
        let mut memory = Memory::new(1);
        memory.write(spot(0, 16), 1);
        let mark = memory.begin();
        memory.write(spot(4, 8), 2);
        memory.write(spot(0, 32), 3);
        assert_eq!(memory.take_back(mark), [spot(4, 8), spot(0, 32)]);
        assert_eq!(memory.holds(spot(0, 16), 1), Ok(()));
        assert_eq!(memory.holds(spot(16, 32), 3), Err(None));
    }
}

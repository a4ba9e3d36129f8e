//! What a collective is to a transport: rows of blocks at addresses, who gets which of them, and how they are reduced.
//!
//! Nothing here knows an element's type or an instruction: a [`Collective`] says how many bytes there are and how they are
//! cut, a [`Reducer`] combines elements. [`Collective::run`] does all of it where every participant's memory can be reached.

use smallvec::SmallVec;
use std::fmt::Debug;
use std::ops::Range;

/// A collective's work: for each operand, what becomes of it.
#[derive(Debug)]
pub struct Collective {
    /// What is done with the operands.
    pub kind: CollectiveKind,
    /// The operands; there are as many results.
    pub arrays: Vec<ArrayGeometry>,
}

/// What is done with the operands of the same number of all participants.
#[derive(Debug)]
pub enum CollectiveKind {
    /// All are reduced, in the order of the group; everyone gets the results.
    AllReduce(Vec<Box<dyn Reducer>>),
    /// All are reduced; everyone gets its own block of every row.
    ReduceScatter(Vec<Box<dyn Reducer>>),
    /// Everyone gets the blocks of all, side by side.
    AllGather,
    /// Block `t` of every row goes to participant `t`, to the place of the sender.
    AllToAllBlocks,
    /// Operand `t` goes to participant `t`, to the result of the sender.
    AllToAllArrays,
    /// Everyone gets what the participant at this place has.
    Broadcast(usize),
    /// The second of each pair gets what the first has; others get zeros.
    Permute(Vec<(usize, usize)>),
}

/// An operand: rows of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayGeometry {
    /// The bytes of the operand.
    pub bytes: usize,
    /// Its rows: what is gathered or scattered along a dimension is so row by row.
    pub rows: usize,
    /// For groups of which size it can be.
    pub group: GroupSize,
}

/// How many participants an operand can be for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupSize {
    /// Any number.
    Any,
    /// So many.
    Exactly(usize),
    /// As many as divide this.
    Dividing(usize),
}

/// Combines elements: what a reduction does, and in which type.
pub trait Reducer: Debug + Send + Sync {
    /// The bytes of an element.
    fn element_bytes(&self) -> usize;

    /// Whether any order and any grouping of the participants gives the same bits.
    fn is_exact(&self) -> bool;

    /// Reduces `count` elements at each of `from`, in that order, and writes the results to each of `to`.
    ///
    /// # Safety
    /// So many elements must lie at every address, aligned, and nobody else may use them meanwhile. An address of `to` may
    /// be one of `from`; otherwise they must not overlap.
    unsafe fn reduce(&self, from: &[usize], to: &[usize], count: usize);
}

/// Threads that share a loop.
pub trait Parallel: Sync {
    /// Calls `body` for parts of `0..units` that together are all of it, each of `chunk` units or less.
    fn each(&self, units: usize, chunk: usize, body: &(dyn Fn(usize, usize) + Sync));
}

/// The calling thread alone.
#[derive(Clone, Copy, Debug)]
pub struct Serial;

impl Parallel for Serial {
    fn each(&self, units: usize, _: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        if units > 0 {
            body(0, units);
        }
    }
}

/// The memory that a participant brings: addresses of its operands, and of as many results.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ParticipantMemory {
    /// Where the operands are.
    pub operands: Addresses,
    /// Where the results go. Only results of an all-reduce may take the place of their operands.
    pub results: Addresses,
}

/// Addresses of arrays: those of a few take no memory of their own.
pub type Addresses = SmallVec<[usize; 4]>;

/// Bytes that a thread works on at a time.
const CHUNK: usize = 1 << 16;

impl Collective {
    /// Whether all participants get the same.
    pub fn gives_all_the_same(&self) -> bool {
        matches!(self.kind, CollectiveKind::AllReduce(_) | CollectiveKind::AllGather)
    }

    /// Whether it can be done in a group of so many.
    pub fn fits(&self, group: usize) -> bool {
        let known = match &self.kind {
            CollectiveKind::Permute(pairs) => pairs.iter().all(|&(s, t)| s < group && t < group),
            CollectiveKind::Broadcast(root) => *root < group,
            CollectiveKind::AllReduce(reducers) | CollectiveKind::ReduceScatter(reducers) => {
                reducers.len() == self.arrays.len()
            }
            CollectiveKind::AllToAllArrays => self.arrays.len() == group,
            _ => true,
        };
        let fits = |a: &ArrayGeometry| match a.group {
            GroupSize::Any => true,
            GroupSize::Exactly(needed) => needed == group,
            GroupSize::Dividing(size) => group > 0 && size % group == 0,
        };
        known && self.arrays.iter().all(fits)
    }

    /// Whether a participant that came for `other` with `memory` came for the same, on arrays of the same sizes.
    pub(crate) fn is_like(&self, other: &Collective, memory: &ParticipantMemory) -> bool {
        let arrays = self.arrays.len();
        std::mem::discriminant(&self.kind) == std::mem::discriminant(&other.kind)
            && self.arrays == other.arrays
            && memory.operands.len() == arrays
            && memory.results.len() == arrays
    }

    /// The bytes of result `n` of a participant in a group of so many.
    pub fn result_bytes(&self, n: usize, group: usize) -> usize {
        let bytes = self.arrays.get(n).map_or(0, |a| a.bytes);
        match self.kind {
            CollectiveKind::AllGather => bytes * group,
            CollectiveKind::ReduceScatter(_) => bytes / group.max(1),
            _ => bytes,
        }
    }

    /// The bytes of a block of operand `n`: what lies side by side and goes to or comes from one participant.
    pub(crate) fn block(&self, n: usize, group: usize) -> usize {
        let ArrayGeometry { bytes, rows, .. } = self.arrays[n];
        match self.kind {
            CollectiveKind::AllGather => bytes / rows.max(1),
            CollectiveKind::ReduceScatter(_) | CollectiveKind::AllToAllBlocks => bytes / rows.max(1) / group.max(1),
            _ => bytes,
        }
    }

    /// What goes from operand `n` of participant `source` to participant `target`: ranges of the operand's bytes, in the
    /// order in which they follow each other in a message, with the number of the result and the place in it where each
    /// lands. Reductions are not moved by this.
    pub(crate) fn moves(&self, n: usize, group: usize, source: usize, target: usize) -> Vec<Move> {
        let (block, rows) = (self.block(n, group), self.arrays[n].rows);
        let whole = |result| vec![Move { from: 0..self.arrays[n].bytes, result, to: 0 }];
        let in_rows = |from: &dyn Fn(usize) -> usize| {
            let one = |row: usize| Move {
                from: from(row) * block..(from(row) + 1) * block,
                result: n,
                to: (row * group + source) * block,
            };
            (0..rows).map(one).collect()
        };
        match &self.kind {
            CollectiveKind::AllGather => in_rows(&|row| row),
            CollectiveKind::AllToAllBlocks => in_rows(&|row| row * group + target),
            CollectiveKind::AllToAllArrays if n == target => whole(source),
            CollectiveKind::Broadcast(root) if *root == source => whole(n),
            CollectiveKind::Permute(pairs) if source_of(pairs, target) == Some(source) => whole(n),
            _ => Vec::new(),
        }
    }

    /// Does it in the memory of all participants.
    ///
    /// # Safety
    /// For each participant, in the group's order, the addresses of its operands and results must lead to arrays of the
    /// sizes that the geometry says, aligned for their elements; nobody else may use them meanwhile. The group must fit.
    pub unsafe fn run(&self, group: &[ParticipantMemory], parallel: &dyn Parallel) {
        for n in 0..self.arrays.len() {
            let from: Vec<usize> = group.iter().map(|p| p.operands[n]).collect();
            let mut to: Vec<usize> = match self.kind {
                CollectiveKind::AllToAllArrays => group[n].results.to_vec(),
                _ => group.iter().map(|p| p.results[n]).collect(),
            };
            if self.gives_all_the_same() {
                // What they have in common is written once.
                to.dedup();
            }
            let (units, chunk) = self.units(n, group.len());
            // SAFETY: the caller's promise; parts are apart from each other.
            parallel.each(units, chunk, &|begin, end| unsafe { self.part(n, &from, &to, begin..end) });
        }
    }

    /// The units of work with an operand, and how many a thread takes at a time: elements of reductions, otherwise pieces
    /// of blocks.
    fn units(&self, n: usize, group: usize) -> (usize, usize) {
        let (bytes, block) = (self.arrays[n].bytes, self.block(n, group));
        if bytes == 0 {
            return (0, 1);
        }
        let moves = match &self.kind {
            CollectiveKind::AllReduce(reducers) | CollectiveKind::ReduceScatter(reducers) => {
                let width = reducers[n].element_bytes().max(1);
                return (bytes / width, CHUNK / width);
            }
            CollectiveKind::AllGather | CollectiveKind::AllToAllBlocks => bytes / block.max(1) * group,
            CollectiveKind::AllToAllArrays | CollectiveKind::Broadcast(_) | CollectiveKind::Permute(_) => group,
        };
        (moves * pieces(block), (CHUNK / block.max(1)).max(1))
    }

    /// # Safety
    /// As for [`Collective::run`].
    unsafe fn part(&self, n: usize, from: &[usize], to: &[usize], range: Range<usize>) {
        let (group, block) = (from.len(), self.block(n, from.len()));
        match &self.kind {
            CollectiveKind::AllReduce(reducers) => {
                let offset = range.start * reducers[n].element_bytes();
                let from: Vec<usize> = from.iter().map(|a| a + offset).collect();
                let to: Vec<usize> = to.iter().map(|a| a + offset).collect();
                // SAFETY: the caller's promise.
                return unsafe { reducers[n].reduce(&from, &to, range.len()) };
            }
            CollectiveKind::ReduceScatter(reducers) => {
                // SAFETY: the caller's promise.
                return unsafe { scatter(&*reducers[n], block, from, to, range) };
            }
            _ => {}
        }
        let pieces = pieces(block);
        for unit in range {
            let (unit, first) = (unit / pieces, unit % pieces * CHUNK);
            let bytes = CHUNK.min(block - first);
            // SAFETY (all): the caller's promise; offsets are within the arrays.
            let copy = |source: usize, target: usize| unsafe {
                let (source, target) = ((source + first) as *const u8, (target + first) as *mut u8);
                std::ptr::copy_nonoverlapping(source, target, bytes);
            };
            match &self.kind {
                CollectiveKind::AllGather => {
                    let (row, source) = (unit / group, unit % group);
                    to.iter().for_each(|&t| copy(from[source] + row * block, t + unit * block));
                }
                CollectiveKind::AllToAllBlocks => {
                    let (block_of, sender) = (unit / group, unit % group);
                    let (row, receiver) = (block_of / group, block_of % group);
                    copy(from[sender] + block_of * block, to[receiver] + (row * group + sender) * block);
                }
                CollectiveKind::AllToAllArrays => copy(from[unit], to[unit]),
                CollectiveKind::Broadcast(root) => copy(from[*root], to[unit]),
                CollectiveKind::Permute(pairs) => match source_of(pairs, unit) {
                    Some(source) => copy(from[source], to[unit]),
                    // SAFETY: the caller's promise.
                    None => unsafe { std::ptr::write_bytes((to[unit] + first) as *mut u8, 0, bytes) },
                },
                CollectiveKind::AllReduce(_) | CollectiveKind::ReduceScatter(_) => {}
            }
        }
    }
}

/// A range of an operand's bytes, and where it goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Move {
    pub(crate) from: Range<usize>,
    /// The number of the result.
    pub(crate) result: usize,
    /// The first byte in the result.
    pub(crate) to: usize,
}

/// Who sends to `target`: the last pair that says so.
pub(crate) fn source_of(pairs: &[(usize, usize)], target: usize) -> Option<usize> {
    pairs.iter().rev().find(|p| p.1 == target).map(|p| p.0)
}

/// The pieces that a block is moved in.
fn pieces(block: usize) -> usize {
    block.div_ceil(CHUNK).max(1)
}

/// Reduces a range of elements, each into the block of the participant that it belongs to.
///
/// # Safety
/// As for [`Collective::run`].
unsafe fn scatter(reducer: &dyn Reducer, block: usize, from: &[usize], to: &[usize], range: Range<usize>) {
    let (width, group) = (reducer.element_bytes(), from.len());
    let elements = block / width;
    let mut first = range.start;
    while first < range.end {
        // The elements of one block.
        let (block_of, end) = (first / elements, range.end.min((first / elements + 1) * elements));
        let (row, receiver) = (block_of / group, block_of % group);
        let target = to[receiver] + (first - (block_of - row) * elements) * width;
        let from: Vec<usize> = from.iter().map(|a| a + first * width).collect();
        // SAFETY: the caller's promise.
        unsafe { reducer.reduce(&from, &[target], end - first) };
        first = end;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Sums of 32-bit integers, with a digit for the order: 10·a + b.
    #[derive(Debug)]
    pub(crate) struct InOrder {
        pub(crate) exact: bool,
    }

    impl Reducer for InOrder {
        fn element_bytes(&self) -> usize {
            4
        }
        fn is_exact(&self) -> bool {
            self.exact
        }
        unsafe fn reduce(&self, from: &[usize], to: &[usize], count: usize) {
            for n in 0..count {
                // SAFETY: so many elements are there, as the caller promises.
                let load = |a: &usize| unsafe { (*a as *const u32).add(n).read() };
                let combine = |a: u32, b: u32| if self.exact { a.wrapping_add(b) } else { a.wrapping_mul(10) + b };
                let Some(reduced) = from.iter().map(load).reduce(combine) else { return };
                // SAFETY: so many elements are there, as the caller promises.
                to.iter().for_each(|&a| unsafe { (a as *mut u32).add(n).write(reduced) });
            }
        }
    }

    /// A kind by number, with geometry for arrays of `rows` rows of `group` blocks of two elements.
    pub(crate) fn sample(kind: usize, rows: usize, group: usize) -> Collective {
        let reducer = |exact| vec![Box::new(InOrder { exact }) as Box<dyn Reducer>];
        let kind = match kind {
            0 => CollectiveKind::AllReduce(reducer(false)),
            1 => CollectiveKind::ReduceScatter(reducer(false)),
            2 => CollectiveKind::AllGather,
            3 => CollectiveKind::AllToAllBlocks,
            4 => CollectiveKind::AllToAllArrays,
            5 => CollectiveKind::Broadcast(group - 1),
            6 => CollectiveKind::AllReduce(reducer(true)),
            7 => CollectiveKind::ReduceScatter(reducer(true)),
            _ => CollectiveKind::Permute((1..group).map(|s| (s, s - 1)).collect()),
        };
        let arrays = if matches!(kind, CollectiveKind::AllToAllArrays) { group } else { 1 };
        let geometry = ArrayGeometry { bytes: rows * group * 8, rows, group: GroupSize::Exactly(group) };
        Collective { kind, arrays: vec![geometry; arrays] }
    }

    /// What participant `device` brings.
    pub(crate) fn operands(collective: &Collective, device: usize) -> Vec<Vec<u32>> {
        let one =
            |n: usize, a: &ArrayGeometry| (0..a.bytes / 4).map(|k| (device + 3 * n + k % 5) as u32 % 10).collect();
        collective.arrays.iter().enumerate().map(|(n, a)| one(n, a)).collect()
    }

    /// The results of all, by [`Collective::run`].
    pub(crate) fn in_process(collective: &Collective, group: usize) -> Vec<Vec<Vec<u32>>> {
        let inputs: Vec<_> = (0..group).map(|d| operands(collective, d)).collect();
        let result = |n| vec![99u32; collective.result_bytes(n, group) / 4];
        let mut results: Vec<Vec<Vec<u32>>> =
            (0..group).map(|_| (0..collective.arrays.len()).map(result).collect()).collect();
        let memory: Vec<_> = inputs
            .iter()
            .zip(&mut results)
            .map(|(i, r)| ParticipantMemory {
                operands: i.iter().map(|a| a.as_ptr() as usize).collect(),
                results: r.iter_mut().map(|a| a.as_mut_ptr() as usize).collect(),
            })
            .collect();
        assert!(collective.fits(group));
        // SAFETY: the arrays are as long as the geometry says, and nobody else's.
        unsafe { collective.run(&memory, &Serial) };
        results
    }

    #[test]
    fn every_kind_gives_what_it_says() {
        // Three participants bring [0 1 2 3 4 0] + their number, in one row of three blocks of two.
        let get = |kind| in_process(&sample(kind, 1, 3), 3);
        assert_eq!(get(0), vec![vec![vec![12, 123, 234, 345, 456, 12]]; 3]);
        assert_eq!(get(1), [vec![vec![12, 123]], vec![vec![234, 345]], vec![vec![456, 12]]]);
        let all = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6, 2];
        assert_eq!(get(2), vec![vec![all.to_vec()]; 3]);
        assert_eq!(get(3)[1], [[2, 3, 3, 4, 4, 5]]);
        assert_eq!(
            get(4)[0],
            [operands(&sample(4, 1, 3), 0)[0].clone(), vec![1, 2, 3, 4, 5, 1], vec![2, 3, 4, 5, 6, 2]]
        );
        assert_eq!(get(5), vec![vec![vec![2, 3, 4, 5, 6, 2]]; 3]);
        assert_eq!(get(8)[0], [[1, 2, 3, 4, 5, 1]]);
        assert_eq!(get(8)[2], [[0; 6]]);
    }

    #[test]
    fn rows_are_gathered_and_scattered_one_by_one() {
        // Two rows for two participants: [0 1 2 3 | 4 0 1 2] + their number.
        let gathered = in_process(&sample(2, 2, 2), 2);
        assert_eq!(gathered[0][0], [0, 1, 2, 3, 1, 2, 3, 4, 4, 0, 1, 2, 5, 1, 2, 3]);
        let scattered = in_process(&sample(1, 2, 2), 2);
        assert_eq!(scattered[1][0], [23, 34, 12, 23]);
    }

    #[test]
    fn moves_say_what_run_does() {
        for kind in [2, 3, 4, 5, 8] {
            let collective = sample(kind, 3, 4);
            let mut results = vec![vec![vec![0u8; 3 * 4 * 8 * 4]; collective.arrays.len()]; 4];
            for (s, t) in (0..4).flat_map(|s| (0..4).map(move |t| (s, t))) {
                for (n, operand) in operands(&collective, s).iter().enumerate() {
                    let bytes: Vec<u8> = operand.iter().flat_map(|x| x.to_ne_bytes()).collect();
                    for m in collective.moves(n, 4, s, t) {
                        results[t][m.result][m.to..m.to + m.from.len()].copy_from_slice(&bytes[m.from]);
                    }
                }
            }
            for (got, expected) in results.iter().zip(in_process(&collective, 4)) {
                for (got, expected) in got.iter().zip(expected) {
                    let expected: Vec<u8> = expected.iter().flat_map(|x| x.to_ne_bytes()).collect();
                    assert_eq!(got[..expected.len()], expected, "kind {kind}");
                }
            }
        }
    }
}

//! What a device does in a collective by NCCL: groups of calls, and copies before and after them.
//!
//! NCCL moves and reduces what lies side by side. Blocks of rows are brought side by side in scratch memory first, or
//! spread into rows afterwards. What NCCL does not reduce as HLO says is gathered and reduced by every device for itself, by
//! the kernels that reduce the arrays of devices on one GPU.

use super::calls::{Call, reduction};
use crate::collective::{Collective, Geometry, Kind};
use hloom_ir::op::BinaryOp;

/// Where pieces of scratch memory begin.
const ALIGNMENT: usize = 256;

/// A place in the memory of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct At {
    pub(crate) place: Place,
    pub(crate) offset: usize,
}

/// What a place is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// An array of the thunk.
    Array(usize),
    /// The scratch memory of exchanges.
    Scratch,
}

/// A step, each after the one before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Copies rows of so many bytes, each at its pitch.
    Copy { from: At, from_pitch: usize, to: At, to_pitch: usize, width: usize, rows: usize },
    /// Writes zeros.
    Zero { at: At, bytes: usize },
    /// Calls of NCCL, all at once.
    Exchange(Vec<Call<At>>),
    /// The kernels of a reducer, by its number, on these operands and results.
    Reduce { reducer: usize, operands: Vec<At>, results: Vec<At> },
}

/// What a device does in a collective.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Schedule {
    pub(crate) steps: Vec<Step>,
    /// The scratch memory that it takes; the same for all members of a group.
    pub(crate) scratch_bytes: usize,
}

fn array(n: usize, offset: usize) -> At {
    At { place: Place::Array(n), offset }
}

impl At {
    fn plus(self, bytes: usize) -> At {
        At { offset: self.offset + bytes, ..self }
    }
}

impl Schedule {
    /// What the member of that number does in a group.
    pub(crate) fn new(collective: &Collective, me: usize) -> Schedule {
        let size = collective.groups.first().map_or(1, Vec::len);
        let mut schedule = Schedule::default();
        match &collective.kind {
            Kind::Reduce(op) | Kind::ReduceBlocks(op)
                if collective.arrays.iter().any(|a| reduction(*op, a.element_type).is_none()) =>
            {
                schedule.gather_and_reduce(collective, size, me);
            }
            Kind::Reduce(op) => schedule.reduce(collective, *op),
            Kind::ReduceBlocks(op) => schedule.reduce_blocks(collective, *op, size),
            Kind::Gather => schedule.gather(collective, size),
            Kind::ExchangeBlocks => schedule.exchange_blocks(collective, size, me),
            Kind::ExchangeArrays => schedule.exchange_arrays(collective, size, me),
            Kind::Broadcast => {
                let count = collective.arrays.len();
                let each = |(n, a): (usize, &Geometry)| Call::Broadcast {
                    from: array(n, 0),
                    to: array(count + n, 0),
                    bytes: a.bytes,
                    root: 0,
                };
                let calls = collective.arrays.iter().enumerate().map(each).collect();
                schedule.steps.push(Step::Exchange(calls));
            }
            Kind::Permute(pairs) => schedule.permute(collective, pairs, size, me),
        }
        schedule
    }

    /// A piece of scratch memory.
    fn scratch(&mut self, bytes: usize) -> At {
        let offset = self.scratch_bytes;
        self.scratch_bytes = offset.saturating_add(bytes).checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        At { place: Place::Scratch, offset }
    }

    /// Copies rows; `from` and `to` with their pitches.
    fn copy(&mut self, (from, from_pitch): (At, usize), (to, to_pitch): (At, usize), width: usize, rows: usize) {
        self.steps.push(Step::Copy { from, from_pitch, to, to_pitch, width, rows });
    }

    fn reduce(&mut self, collective: &Collective, op: BinaryOp) {
        let count = collective.arrays.len();
        let each = |(n, a): (usize, &Geometry)| {
            let (from, to) = (array(n, 0), array(count + n, 0));
            Some(Call::AllReduce { from, to, count: elements(a), reduction: reduction(op, a.element_type)? })
        };
        self.steps.push(Step::Exchange(collective.arrays.iter().enumerate().filter_map(each).collect()));
    }

    fn reduce_blocks(&mut self, collective: &Collective, op: BinaryOp, size: usize) {
        let count = collective.arrays.len();
        let mut calls = Vec::with_capacity(count);
        for (n, a) in collective.arrays.iter().enumerate() {
            let Some(reduction) = reduction(op, a.element_type) else { continue };
            let from = if a.rows > 1 { self.pack(array(n, 0), a, size) } else { array(n, 0) };
            calls.push(Call::ReduceScatter { from, to: array(count + n, 0), count: elements(a) / size, reduction });
        }
        self.steps.push(Step::Exchange(calls));
    }

    /// Brings the blocks of each member side by side, where they lie in rows.
    fn pack(&mut self, from: At, a: &Geometry, size: usize) -> At {
        let (row, packed) = (a.bytes / a.rows.max(1), self.scratch(a.bytes));
        let width = row / size;
        for member in 0..size {
            let to = packed.plus(member * width * a.rows);
            self.copy((from.plus(member * width), row), (to, width), width, a.rows);
        }
        packed
    }

    fn gather(&mut self, collective: &Collective, size: usize) {
        let count = collective.arrays.len();
        let (mut calls, mut spread) = (Vec::with_capacity(count), Vec::new());
        for (n, a) in collective.arrays.iter().enumerate() {
            let result = array(count + n, 0);
            let to = if a.rows > 1 { self.scratch(a.bytes.saturating_mul(size)) } else { result };
            calls.push(Call::AllGather { from: array(n, 0), to, bytes: a.bytes });
            if a.rows > 1 {
                spread.push((to, result, a));
            }
        }
        self.steps.push(Step::Exchange(calls));
        for (from, to, a) in spread {
            let row = a.bytes / a.rows;
            for member in 0..size {
                self.copy((from.plus(member * a.bytes), row), (to.plus(member * row), row * size), row, a.rows);
            }
        }
    }

    fn exchange_blocks(&mut self, collective: &Collective, size: usize, me: usize) {
        let count = collective.arrays.len();
        let (mut calls, mut spread) = (Vec::new(), Vec::new());
        for (n, a) in collective.arrays.iter().enumerate() {
            let (block, row) = (a.bytes / size, a.bytes / a.rows.max(1));
            let (operand, result, width) = (array(n, 0), array(count + n, 0), row / size);
            self.copy((operand.plus(me * width), row), (result.plus(me * width), row), width, a.rows);
            let (from, to) = match a.rows > 1 {
                true => (self.pack(operand, a, size), self.scratch(a.bytes)),
                false => (operand, result),
            };
            for rank in (0..size).filter(|&r| r != me) {
                calls.push(Call::Send { from: from.plus(rank * block), bytes: block, rank });
                calls.push(Call::Receive { to: to.plus(rank * block), bytes: block, rank });
                if a.rows > 1 {
                    spread.push((to.plus(rank * block), result.plus(rank * width), width, row, a.rows));
                }
            }
        }
        self.steps.push(Step::Exchange(calls));
        for (from, to, width, row, rows) in spread {
            self.copy((from, width), (to, row), width, rows);
        }
    }

    fn exchange_arrays(&mut self, collective: &Collective, size: usize, me: usize) {
        let bytes = |n: usize| collective.operand_bytes(n);
        let own = bytes(me);
        self.copy((array(me, 0), own), (array(size + me, 0), own), own, 1);
        let calls = (0..size).filter(|&r| r != me).flat_map(|rank| {
            let send = Call::Send { from: array(rank, 0), bytes: bytes(rank), rank };
            [send, Call::Receive { to: array(size + rank, 0), bytes: own, rank }]
        });
        let calls = calls.collect();
        self.steps.push(Step::Exchange(calls));
    }

    fn permute(&mut self, collective: &Collective, pairs: &[(usize, usize)], size: usize, me: usize) {
        // The last pair that names a target holds.
        let mut source = vec![None; size];
        for &(s, t) in pairs {
            source[t] = Some(s);
        }
        let count = collective.arrays.len();
        let mut calls = Vec::new();
        for (n, a) in collective.arrays.iter().enumerate() {
            let (from, to, bytes) = (array(n, 0), array(count + n, 0), a.bytes);
            match source[me] {
                None => self.steps.push(Step::Zero { at: to, bytes }),
                Some(s) if s == me => self.copy((from, bytes), (to, bytes), bytes, 1),
                Some(rank) => calls.push(Call::Receive { to, bytes, rank }),
            }
            let targets = (0..size).filter(|&t| t != me && source[t] == Some(me));
            calls.extend(targets.map(|rank| Call::Send { from, bytes, rank }));
        }
        self.steps.push(Step::Exchange(calls));
    }

    fn gather_and_reduce(&mut self, collective: &Collective, size: usize, me: usize) {
        let in_blocks = matches!(collective.kind, Kind::ReduceBlocks(_));
        let count = collective.arrays.len();
        let gathered: Vec<At> = collective.arrays.iter().map(|a| self.scratch(a.bytes.saturating_mul(size))).collect();
        // The kernels write everybody's blocks; those of others go where nobody reads them.
        let unread = match in_blocks {
            true => self.scratch(collective.arrays.iter().map(|a| a.bytes / size).max().unwrap_or(0)),
            false => At { place: Place::Scratch, offset: 0 },
        };
        let each = |(n, a): (usize, &Geometry)| Call::AllGather { from: array(n, 0), to: gathered[n], bytes: a.bytes };
        self.steps.push(Step::Exchange(collective.arrays.iter().enumerate().map(each).collect()));
        for (number, reducer) in collective.reducers.iter().enumerate() {
            let (mut operands, mut results) = (Vec::new(), Vec::new());
            for n in reducer.operands.clone() {
                operands.extend((0..size).map(|r| gathered[n].plus(r * collective.operand_bytes(n))));
                let is_mine = |r: usize| !in_blocks || r == me;
                results.extend((0..size).map(|r| if is_mine(r) { array(count + n, 0) } else { unread }));
            }
            self.steps.push(Step::Reduce { reducer: number, operands, results });
        }
    }
}

fn elements(a: &Geometry) -> usize {
    a.bytes / a.element_type.bytes().max(1)
}

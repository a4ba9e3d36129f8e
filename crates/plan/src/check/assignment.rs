//! An assignment as the checker sees it: allocations and the values in them, by instruction and index.

use crate::Plan;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Op;
use hloom_ir::shape::ShapeIndex;

/// A buffer assignment, ours or one that was read.
#[derive(Clone, Debug, Default)]
pub struct Assignment {
    /// The allocations.
    pub allocations: Vec<Assigned>,
    /// The sum of their sizes, where the dump states it.
    pub stated_total: Option<i64>,
    /// When values are needed, where that is said: a value is not given to another in between.
    pub ranges: Vec<Ranged>,
}

/// When a value is needed: times count instructions, and both ends are included.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Ranged {
    pub instruction: InstructionId,
    pub index: ShapeIndex,
    pub start: u32,
    pub end: u32,
}

/// An allocation.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Assigned {
    pub size: i64,
    pub memory_space: i64,
    /// The number of the entry parameter that is handed over here, and the part of it.
    pub parameter: Option<(i64, ShapeIndex)>,
    pub is_constant: bool,
    pub is_thread_local: bool,
    pub is_live_out: bool,
    pub pieces: Vec<Piece>,
}

/// A value in an allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Piece {
    pub instruction: InstructionId,
    pub index: ShapeIndex,
    pub is_phi: bool,
    pub offset: i64,
    pub size: i64,
}

impl From<&Plan<'_>> for Assignment {
    fn from(plan: &Plan<'_>) -> Assignment {
        let positions = &plan.dataflow.positions;
        let allocations = plan.allocations.iter().map(|allocation| Assigned {
            size: allocation.size,
            memory_space: allocation.memory_space,
            parameter: allocation.parameter.and_then(|position| {
                match positions.module()[positions.instruction(position)].op {
                    Op::Parameter { number, .. } => Some((number, positions.index(position))),
                    _ => None,
                }
            }),
            is_constant: allocation.is_constant,
            is_thread_local: allocation.is_thread_local,
            is_live_out: allocation.is_live_out,
            pieces: allocation
                .places
                .iter()
                .filter_map(|place| {
                    let value = plan.dataflow.value(place.value)?;
                    Some(Piece {
                        instruction: positions.instruction(value.position),
                        index: positions.index(value.position),
                        is_phi: value.is_phi,
                        offset: place.offset,
                        size: place.size,
                    })
                })
                .collect(),
        });
        let ranges = plan.dataflow.values().filter_map(|(id, value)| {
            let range = plan.live.of(id)?;
            let (instruction, index) = (positions.instruction(value.position), positions.index(value.position));
            Some(Ranged { instruction, index, start: range.start, end: range.end })
        });
        Assignment { allocations: allocations.collect(), stated_total: None, ranges: ranges.collect() }
    }
}

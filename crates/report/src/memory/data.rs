//! An assignment as the memory view of a page reads it.
//!
//! Values are columns of numbers, sorted by the step at which they begin, so that the view finds those of a stretch of time
//! by bisection.

use super::{MemoryReport, describe};
use crate::columns::{Lists, Strings};
use crate::words::{op_name, source_line};
use hloom_ir::entity::InstructionId;
use hloom_plan::Plan;
use hloom_plan::assign::{Allocation, Place};
use hloom_plan::live_range::plain_bytes;
use rustc_hash::FxHashMap;
use serde::Serialize;

/// A plan as the memory view reads it. The names are those in `assets/memory/model.js`.
#[derive(Serialize)]
pub(crate) struct MemoryData {
    target: String,
    /// Bytes of all memory spaces.
    total: i128,
    steps: u32,
    spaces: Vec<Space>,
    allocations: Allocations,
    instructions: Instructions,
    operands: Lists,
    values: Values,
    users: Lists,
    advice: Vec<MemoryAdvice>,
}

#[derive(Serialize)]
struct Space {
    memory_space: i64,
    name: String,
    capacity: Option<i64>,
    total: i128,
}

#[derive(Serialize)]
struct MemoryAdvice {
    memory_space: i64,
    bytes: i128,
    value: Option<u32>,
    text: String,
}

#[derive(Serialize, Default)]
struct Allocations {
    memory_space: Vec<i64>,
    size: Vec<i64>,
    kind: Vec<u8>,
    parameter: Vec<u32>,
}

/// Those of the schedule first, in its order, so that their numbers are steps.
#[derive(Serialize, Default)]
struct Instructions {
    /// Its number in the module that the page shows; -1 if it was added to plan the memory.
    number: Vec<i64>,
    name: Vec<u32>,
    opcode: Vec<u32>,
    computation: Vec<u32>,
    source: Vec<u32>,
    op_name: Vec<u32>,
}

#[derive(Serialize, Default)]
struct Values {
    id: Vec<u32>,
    instruction: Vec<u32>,
    index: Vec<u32>,
    shape: Vec<u32>,
    allocation: Vec<u32>,
    offset: Vec<i64>,
    size: Vec<i64>,
    data: Vec<i64>,
    start: Vec<i64>,
    end: Vec<i64>,
}

/// The numbers of a plan's instructions.
struct PlanNumbers<'p, 'm> {
    plan: &'p Plan<'m>,
    beyond: FxHashMap<InstructionId, u32>,
    all: Vec<InstructionId>,
}

impl PlanNumbers<'_, '_> {
    fn of(&mut self, id: InstructionId) -> u32 {
        if let Some(time) = self.plan.schedule.time(id) {
            return time;
        }
        *self.beyond.entry(id).or_insert_with(|| {
            self.all.push(id);
            self.all.len() as u32 - 1
        })
    }
}

/// The number of an allocation's kind, as in `assets/memory/model.js`.
fn kind(allocation: &Allocation) -> u8 {
    if allocation.parameter.is_some() {
        0
    } else if allocation.is_constant {
        1
    } else if allocation.is_thread_local {
        2
    } else if allocation.is_live_out {
        3
    } else {
        4
    }
}

/// The plan of `report`; `by_name` has the numbers of the instructions of the module that the page shows.
pub(crate) fn memory_data(
    report: &MemoryReport<'_, '_>,
    strings: &mut Strings,
    by_name: &FxHashMap<&str, u32>,
) -> MemoryData {
    let MemoryReport { plan, target, spaces, .. } = report;
    let module = plan.dataflow.module();
    let mut numbers = PlanNumbers { plan, beyond: FxHashMap::default(), all: plan.schedule.sequence.clone() };
    let mut allocations = Allocations::default();
    let mut places: Vec<(i64, i64, u32, Place)> = Vec::new();
    for (number, allocation) in plan.allocations.iter().enumerate() {
        let parameter = allocation.parameter.and_then(|p| plan.dataflow.at(p));
        allocations.memory_space.push(allocation.memory_space);
        allocations.size.push(allocation.size);
        allocations.kind.push(kind(allocation));
        allocations.parameter.push(strings.number(&parameter.map_or(String::new(), |v| describe::label(plan, v))));
        places.extend(allocation.places.iter().map(|place| {
            let range = plan.live.of(place.value);
            let (start, end) = range.map_or((-1, -1), |r| (i64::from(r.start), i64::from(r.end)));
            (start, end, number as u32, *place)
        }));
    }
    places.sort_unstable();

    let (mut values, mut users) = (Values::default(), Lists::new());
    for (start, end, allocation, place) in places {
        let Some(value) = plan.dataflow.value(place.value) else { continue };
        let shape = plan.dataflow.positions.shape(value.position);
        values.id.push(place.value);
        values.instruction.push(numbers.of(plan.dataflow.instruction(value)));
        values.index.push(strings.number(&describe::index(plan, place.value)));
        values.shape.push(strings.number(&shape.to_string()));
        values.allocation.push(allocation);
        values.offset.push(place.offset);
        values.size.push(place.size);
        values.data.push(plain_bytes(shape).min(place.size));
        values.start.push(start);
        values.end.push(end);
        users.push_set(plan.dataflow.uses_of(place.value).iter().map(|u| numbers.of(u.user)));
    }

    let (mut instructions, mut operands) = (Instructions::default(), Lists::new());
    // Operands may bring in instructions that nothing has named so far: the list grows while it is gone through.
    let mut next = 0;
    while let Some(&id) = numbers.all.get(next) {
        next += 1;
        let instruction = &module[id];
        instructions.number.push(by_name.get(instruction.name()).map_or(-1, |&n| i64::from(n)));
        instructions.name.push(strings.number(instruction.name()));
        instructions.opcode.push(strings.number(instruction.opcode().name()));
        instructions.computation.push(strings.number(module[instruction.parent()].name()));
        instructions.source.push(strings.number(&source_line(module, id)));
        instructions.op_name.push(strings.number(op_name(module, id)));
        operands.push_set(instruction.operands().iter().map(|&o| numbers.of(o)));
    }
    debug_assert_eq!(instructions.name.len(), plan.schedule.sequence.len() + numbers.beyond.len());

    MemoryData {
        target: target.name.clone(),
        total: plan.total_bytes(),
        steps: plan.schedule.end(),
        spaces: spaces
            .iter()
            .map(|s| Space { memory_space: s.memory_space, name: s.name.clone(), capacity: s.capacity, total: s.total })
            .collect(),
        allocations,
        instructions,
        operands,
        values,
        users,
        advice: report
            .advice
            .iter()
            .map(|a| MemoryAdvice {
                memory_space: a.memory_space,
                bytes: a.bytes,
                value: a.value,
                text: a.text.clone(),
            })
            .collect(),
    }
}

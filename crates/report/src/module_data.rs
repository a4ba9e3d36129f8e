//! A module as pages hold it: its instructions as columns, numbered computation by computation in the module's order.
//!
//! The names of the fields are those that `assets/lib/module.js` reads.

use crate::collectives::{Collectives, collectives};
use crate::columns::{Lists, Strings};
use crate::highlights::{Highlight, highlights};
use crate::memory::MemoryReport;
use crate::memory::data::{MemoryData, memory_data};
use crate::page::Subject;
use crate::timeline::{Timeline, TimelineData};
use crate::words::{op_name, source_line};
use hloom_analysis::cost::{ModuleCost, cost, shape_bytes};
use hloom_formats::hlo_text::{PrintOptions, print_parts};
use hloom_ir::entity::{EntityId, InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use serde::Serialize;

/// Everything that a page says of one module.
#[derive(Serialize)]
pub(crate) struct ModuleData {
    pub(crate) name: String,
    file: String,
    is_scheduled: bool,
    replicas: i64,
    partitions: i64,
    entry: Option<usize>,
    total: Figures,
    parameter_bytes: u64,
    result_bytes: u64,
    unknown_trip_counts: Vec<u32>,
    strings: Vec<String>,
    computations: ComputationColumns,
    instructions: InstructionColumns,
    operands: Lists,
    /// Pairs of an instruction and one that must come before it.
    control: Vec<(u32, u32)>,
    /// Pairs of an instruction and a computation that it calls.
    calls: Vec<(u32, u32)>,
    highlights: Vec<Highlight>,
    collectives: Collectives,
    memory: Option<MemoryData>,
    /// Why there is no memory view, where there is none.
    memory_absent: Option<String>,
    timelines: Vec<TimelineData>,
    /// Why there is no simulated timeline, where that was tried.
    simulation_absent: Option<String>,
}

/// What one run costs.
#[derive(Serialize, Clone, Copy, Default)]
struct Figures {
    flops: u64,
    transcendentals: u64,
    bytes: u64,
}

#[derive(Serialize, Default)]
struct ComputationColumns {
    name: Vec<u32>,
    /// The number of its first instruction; one more entry at the end.
    first: Vec<u32>,
    root: Vec<i64>,
    /// How often it runs, in memory and inside fusions.
    runs: Vec<u64>,
}

/// Costs are those of all executions together.
#[derive(Serialize, Default)]
struct InstructionColumns {
    name: Vec<u32>,
    opcode: Vec<u32>,
    shape: Vec<u32>,
    argument: Vec<u32>,
    attributes: Vec<u32>,
    source: Vec<u32>,
    op_name: Vec<u32>,
    /// Bytes of the result, where it is a value in memory.
    size: Vec<u64>,
    /// The memory space of the result.
    space: Vec<i64>,
    flops: Vec<u64>,
    transcendentals: Vec<u64>,
    bytes: Vec<u64>,
    /// Microseconds in the first timeline; empty where there is none.
    time: Vec<f64>,
}

/// The numbers of instructions and computations on a page.
pub(crate) struct Numbering {
    instructions: SideTable<InstructionId, u32>,
    computations: Vec<u32>,
}

impl Numbering {
    fn new(module: &Module) -> Numbering {
        let mut instructions = SideTable::with_len(module.instruction_slots(), u32::MAX);
        let mut computations = vec![u32::MAX; module.computation_slots()];
        let mut next = 0;
        for (number, &computation) in module.computations().iter().enumerate() {
            computations[computation.index()] = number as u32;
            for &id in module.computation(computation).instructions() {
                instructions.set(id, next);
                next += 1;
            }
        }
        Numbering { instructions, computations }
    }

    /// The number of an instruction that is in the module.
    pub(crate) fn of(&self, id: InstructionId) -> u32 {
        self.instructions[id]
    }
}

/// What is said of the module of `subject`.
pub(crate) fn module_data(subject: &Subject<'_>) -> ModuleData {
    let module = subject.module.module();
    let costs = cost(subject.module);
    let numbers = Numbering::new(module);
    let mut strings = Strings::new();
    let mut computations = ComputationColumns::default();
    let mut instructions = InstructionColumns::default();
    let mut operands = Lists::new();
    let times = subject.timelines.first().map(Timeline::times_us).unwrap_or_default();
    let (mut control, mut calls) = (Vec::new(), Vec::new());
    for &computation in module.computations() {
        let runs = costs.runs(computation);
        computations.name.push(strings.number(module[computation].name()));
        computations.first.push(instructions.name.len() as u32);
        computations.root.push(module.root(computation).map_or(-1, |r| i64::from(numbers.of(r))));
        computations.runs.push(runs.in_memory.saturating_add(runs.fused));
        for &id in module.computation(computation).instructions() {
            let number = numbers.of(id);
            let instruction = &module[id];
            instructions.push(module, id, &costs, &mut strings);
            if !times.is_empty() {
                instructions.time.push(Timeline::round(times.get(&id).map_or(0.0, |t| t.0)));
            }
            operands.push(instruction.operands().iter().map(|&o| numbers.of(o)));
            let before = instruction.common.rare.as_deref().map_or(&[][..], |r| &r.control_predecessors);
            control.extend(before.iter().map(|&p| (number, numbers.of(p))));
            let called = instruction.op.called_computations();
            calls.extend(called.iter().map(|c| (number, numbers.computations[c.index()])));
        }
    }
    computations.first.push(instructions.name.len() as u32);
    let bytes = |id: InstructionId| shape_bytes(&module[id].shape);
    let entry_parameters = module.entry().map(|e| module.parameters(e)).unwrap_or_default();
    let (memory, memory_absent) = match &subject.memory {
        Ok(report) => (Some(of_memory(report, &mut strings, module, &numbers)), None),
        Err(reason) => (None, Some(reason.clone())),
    };
    ModuleData {
        name: module.name.to_string(),
        file: subject.file.to_owned(),
        is_scheduled: module.is_scheduled,
        replicas: module.config.replica_count,
        partitions: module.config.num_partitions,
        entry: module.entry().map(|e| numbers.computations[e.index()] as usize),
        total: Figures {
            flops: costs.total.flops,
            transcendentals: costs.total.transcendentals,
            bytes: costs.total.bytes,
        },
        parameter_bytes: entry_parameters.iter().map(|&p| bytes(p)).fold(0, u64::saturating_add),
        result_bytes: module.entry().and_then(|e| module.root(e)).map_or(0, bytes),
        unknown_trip_counts: costs.unknown_trip_counts.iter().map(|&id| numbers.of(id)).collect(),
        computations,
        instructions,
        operands,
        control,
        calls,
        highlights: highlights(module, &costs, &numbers, &times),
        collectives: collectives(module, &costs, &|id| numbers.of(id)),
        memory,
        memory_absent,
        timelines: subject.timelines.iter().map(|t| t.data(&mut strings, &|id| numbers.of(id))).collect(),
        simulation_absent: subject.simulation_absent.map(str::to_owned),
        strings: strings.into_all(),
    }
}

fn of_memory(report: &MemoryReport<'_, '_>, strings: &mut Strings, module: &Module, numbers: &Numbering) -> MemoryData {
    // The plan may be of a module that was given copies first: what both have has the same name.
    let names = module.computations().iter().flat_map(|&c| module[c].instructions());
    let by_name = names.map(|&id| (module[id].name(), numbers.of(id))).collect();
    memory_data(report, strings, &by_name)
}

impl InstructionColumns {
    fn push(&mut self, module: &Module, id: InstructionId, costs: &ModuleCost, strings: &mut Strings) {
        let instruction = &module[id];
        let parts = print_parts(module, id, &PrintOptions { elide_constants: true });
        let cost = costs.all_runs(module, id);
        self.name.push(strings.number(instruction.name()));
        self.opcode.push(strings.number(&parts.opcode));
        self.shape.push(strings.number(&instruction.shape.to_string()));
        self.argument.push(strings.number(&parts.argument));
        self.attributes.push(strings.number(&parts.attributes));
        self.source.push(strings.number(&source_line(module, id)));
        self.op_name.push(strings.number(op_name(module, id)));
        self.size.push(match instruction.op {
            // What is inside a fusion has no memory, and these have what others made.
            _ if costs.runs(instruction.parent()).in_memory == 0 => 0,
            Op::Tuple | Op::GetTupleElement { .. } | Op::Bitcast => 0,
            _ => shape_bytes(&instruction.shape),
        });
        self.space.push(memory_space(&instruction.shape));
        self.flops.push(cost.flops);
        self.transcendentals.push(cost.transcendentals);
        self.bytes.push(cost.bytes);
    }
}

/// The memory space of an array, or of the first array in a tuple.
fn memory_space(shape: &Shape) -> i64 {
    let mut shape = shape;
    while let Some(elements) = shape.as_tuple() {
        match elements.first() {
            Some(first) => shape = first,
            None => return 0,
        }
    }
    shape.as_array().and_then(|a| a.layout.as_ref()).map_or(0, |l| l.memory_space)
}

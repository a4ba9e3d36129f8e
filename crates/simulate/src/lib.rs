//! The event-driven timeline of a scheduled module on a target: how long a step takes, and why.
//!
//! The stages are plain functions:
//!
//! 1. [`prepare()`]: a module that has no schedule gets one, and what its memory needs to be planned;
//! 2. `program`: each computation as kernels, movements, waits, loops and calls, priced by `hloom-cost`;
//! 3. `devices`: which devices are alike, so that one of each class stands for all;
//! 4. `engine`: from event to event, with memories and links shared by those that use them;
//! 5. [`Simulation`]: totals, the timeline, the critical path, what was waited for, memory over time. Plain data, to be
//!    shown as anyone likes.
//!
//! [`simulate()`] does all of it. What the input lacks (a trip count, a call's cost, a rate) is an error that names it.

mod devices;
mod engine;
mod memory;
mod options;
mod prepare;
mod program;
mod timeline;

pub use devices::grid_and_topology;
pub use options::{CycleSource, Options};
pub use prepare::{Prepared, prepare};
pub use timeline::{DeviceClass, Event, InstructionTime, Lane, Simulation, SpaceUse, Stall, Totals, Wait};

use devices::Classes;
use engine::{Engine, Outcome};
use hloom_cost::{Communication, CostModel};
use hloom_ir::diagnostic::codes::simulate::{NO_SUCH_NAME, WRONG_GENERATION};
use hloom_ir::diagnostic::{Blame, Diagnostic, Part, did_you_mean};
use hloom_ir::entity::EntityId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::verify::VerifiedModule;
use hloom_target::Target;
use program::Program;

/// Simulates one run of a scheduled module on `target`.
pub fn simulate(module: &VerifiedModule, target: &Target, options: &Options) -> Result<Simulation, Vec<Diagnostic>> {
    let one = |fault: Diagnostic| vec![fault];
    let program_module = module.module();
    check_names(program_module, options)?;
    check_spaces(program_module, target).map_err(one)?;
    let (grid, topology) = grid_and_topology(program_module, target, options.topology.as_ref()).map_err(one)?;
    let links = Communication::new(target, topology).map_err(one)?;
    let model = CostModel::new(program_module, target).map_err(one)?.with_custom_costs(options.costs.iter().cloned());
    let program = Program::new(program_module, &model, options)?;
    let classes = Classes::new(program_module, &program, grid, &links);
    let outcome = Engine::new(&program, &classes, &model, links.link_count()).run().map_err(one)?;
    let mut simulation = summed_up(&outcome, &classes, &program, program_module, target, &links).map_err(one)?;
    (simulation.events, simulation.stalls) = (outcome.events, outcome.stalls);
    simulation.warnings = program.warnings;
    memory::add(&mut simulation, module, target);
    Ok(simulation)
}

/// Options name loops, calls and instructions that there are.
fn check_names(module: &Module, options: &Options) -> Result<(), Vec<Diagnostic>> {
    if options.costs.is_empty() && options.trip_counts.is_empty() {
        return Ok(());
    }
    let all = || module.computations().iter().flat_map(|&c| module[c].instructions()).map(|&i| &module[i]);
    let mut faults = Vec::new();
    let mut missing = |option: &str, name: &str, known: Vec<&str>| {
        let message = format!("`{option}` names `{name}`, which the module lacks");
        let fault = Diagnostic::error(&NO_SUCH_NAME, message).blame(Blame::Data);
        faults.push(match did_you_mean(name, known) {
            Some(near) => fault.help(format!("did you mean `{near}`?")),
            None => fault,
        });
    };
    for (name, _) in &options.trip_counts {
        let loops: Vec<&str> = all().filter(|i| matches!(i.op, Op::While { .. })).map(|i| i.name()).collect();
        if !loops.contains(&name.as_str()) {
            missing("--trip-count", name, loops);
        }
    }
    for (name, _) in &options.costs {
        let called = |i: &'_ hloom_ir::Instruction| match &i.op {
            Op::CustomCall(call) => call.target.as_ref() == name.as_str(),
            _ => false,
        };
        if !all().any(|i| i.name() == name || called(i)) {
            let calls = all().filter_map(|i| match &i.op {
                Op::CustomCall(call) => Some(&*call.target),
                _ => None,
            });
            missing("--cost", name, calls.collect());
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// The module uses only memories that the target has.
fn check_spaces(module: &Module, target: &Target) -> Result<(), Diagnostic> {
    for &computation in module.computations() {
        for &id in module[computation].instructions() {
            let memory_space = Target::memory_space(&module[id].shape);
            // Host memory is nobody's and everybody's.
            if memory_space == 0 || memory_space == 5 || target.space(memory_space).is_some() {
                continue;
            }
            let name = module[id].name();
            let message = format!("`{name}` lies in memory S({memory_space}), which `{}` does not have", target.name);
            return Err(Diagnostic::error(&WRONG_GENERATION, message)
                .at_instruction(id, Part::Shape)
                .help("the module was compiled for another target: name that one"));
        }
    }
    Ok(())
}

fn summed_up(
    outcome: &Outcome,
    classes: &Classes,
    program: &Program,
    module: &Module,
    target: &Target,
    links: &Communication<'_>,
) -> Result<Simulation, Diagnostic> {
    let slowest = (0..outcome.ends.len()).max_by(|&a, &b| outcome.ends[a].total_cmp(&outcome.ends[b])).unwrap_or(0);
    let step = outcome.ends.get(slowest).copied().unwrap_or(0.0);
    let totals = outcome.totals.get(slowest).cloned().unwrap_or_default();
    let share = |seconds: f64| if step > 0.0 { seconds / step } else { 0.0 };
    let traffic = totals.bytes + 2.0 * totals.wire_bytes;
    let mut waits: Vec<Wait> =
        totals.waits.iter().map(|(&instruction, &seconds)| Wait { instruction, seconds }).collect();
    waits.retain(|w| w.seconds > 0.0);
    waits.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then(a.instruction.cmp(&b.instruction)));
    let mut is_seen = vec![false; module.instruction_slots()];
    let mut instructions = Vec::new();
    for event in outcome.events.iter().filter(|e| e.class == slowest && e.lane != Lane::Repeat) {
        if !std::mem::replace(&mut is_seen[event.instruction.index()], true) {
            instructions.push(InstructionTime {
                instruction: event.instruction,
                start: event.start,
                end: event.end,
                bound: event.bound,
                cycles: event.cycles,
                runs: program.runs[module[event.instruction].parent().index()],
                lane: event.lane,
            });
        }
    }
    let link_utilisation =
        totals.link_seconds.iter().enumerate().map(|(n, &s)| (links.link_name(n), share(s))).collect();
    Ok(Simulation {
        target: target.name.clone(),
        topology: links.topology().to_string(),
        devices: links.topology().devices(),
        classes: (0..outcome.ends.len())
            .map(|c| DeviceClass { devices: classes.sizes[c], example: classes.examples[c], seconds: outcome.ends[c] })
            .collect(),
        step_seconds: step,
        cycles: target.compute.clock_hz.map(|hz| step * hz),
        mfu: share(totals.peak_seconds),
        memory_utilisation: share(traffic / target.bandwidth(0)?),
        link_utilisation,
        instructions,
        events: Vec::new(),
        dropped_events: outcome.dropped_events,
        stalls: Vec::new(),
        critical_path: critical_path(&outcome.events, outcome.last.get(slowest).copied().flatten()),
        waits,
        memory: Vec::new(),
        warnings: Vec::new(),
        totals,
    })
}

/// From the last event back to the first, each the one that the next could not begin before.
fn critical_path(events: &[Event], last: Option<usize>) -> Vec<usize> {
    let mut path = Vec::new();
    let mut at = last;
    while let Some(number) = at {
        path.push(number);
        // An event is recorded after what it waited for, so this ends.
        at = events[number].after.filter(|&before| before < number);
    }
    path.reverse();
    path
}

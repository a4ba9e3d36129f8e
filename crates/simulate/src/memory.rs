//! How much of each memory is in use, and when: the memory plan over the simulated time.

use crate::timeline::{Simulation, SpaceUse};
use hloom_ir::diagnostic::codes::simulate::MEMORY_EXCEEDED;
use hloom_ir::diagnostic::{Diagnostic, Place, Severity};
use hloom_ir::entity::EntityId;
use hloom_ir::verify::VerifiedModule;
use hloom_plan::summary::levels;
use hloom_target::Target;

/// So many changes of what is in use are kept for each memory.
const MOST_SAMPLES: usize = 2000;

/// Plans the module's memory and adds what it comes to. A module whose memory cannot be planned (its schedule is not that
/// of a planned program) has none; that is said as a warning.
pub(crate) fn add(simulation: &mut Simulation, module: &VerifiedModule, target: &Target) {
    let plan = match hloom_plan::plan(module, target) {
        Ok(plan) => plan,
        Err(faults) => {
            simulation.warnings.extend(faults.into_iter().take(1).map(|fault| Diagnostic {
                severity: Severity::Warning,
                message: format!("memory over time is not known: {}", fault.message),
                ..fault
            }));
            return;
        }
    };
    let mut start = vec![f64::NAN; module.module().instruction_slots()];
    for event in &simulation.events {
        let slot = &mut start[event.instruction.index()];
        if slot.is_nan() {
            *slot = event.start;
        }
    }
    // What takes no time happens when what comes before it does.
    let mut now = 0f64;
    let seconds: Vec<f64> = plan
        .schedule
        .sequence
        .iter()
        .map(|id| {
            let own = start[id.index()];
            now = if own.is_nan() { now } else { own.max(now) };
            now
        })
        .collect();
    for level in levels(&plan) {
        let space = target.space(level.memory_space);
        let mut samples: Vec<(f64, i128)> = Vec::new();
        for (time, &bytes) in level.bytes.iter().enumerate() {
            let at = seconds.get(time).or(seconds.last()).copied().unwrap_or(0.0);
            match samples.last_mut() {
                Some(last) if last.1 == bytes => {}
                // Of what happens at one moment the most counts.
                Some(last) if last.0 == at => last.1 = last.1.max(bytes),
                _ => samples.push((at, bytes)),
            }
        }
        let planned_bytes: i128 =
            plan.allocations.iter().filter(|a| a.memory_space == level.memory_space).map(|a| i128::from(a.size)).sum();
        let use_ = SpaceUse {
            memory_space: level.memory_space,
            name: space.map_or_else(String::new, |s| s.name.clone()),
            capacity: space.and_then(|s| s.bytes),
            planned_bytes,
            samples: thinned(samples),
        };
        if let Some(capacity) = use_.capacity
            && planned_bytes > i128::from(capacity)
        {
            simulation.warnings.push(exceeded(&use_, capacity, target));
        }
        simulation.memory.push(use_);
    }
}

fn exceeded(space: &SpaceUse, capacity: i64, target: &Target) -> Diagnostic {
    let over = space.planned_bytes - i128::from(capacity);
    let message = format!(
        "the program takes {} bytes of `{}`'s {}, {over} more than there are",
        space.planned_bytes, target.name, space.name
    );
    Diagnostic::error(&MEMORY_EXCEEDED, message)
        .at_place(Place::Header)
        .note(format!("the {} has {capacity} bytes", space.name))
        .help(format!(
            "`hloom memory --summary --target {}` tells what is in use, and what would make it less",
            target.name
        ))
}

/// The samples with the highest of each stretch kept, where there are too many.
fn thinned(samples: Vec<(f64, i128)>) -> Vec<(f64, i128)> {
    if samples.len() <= MOST_SAMPLES {
        return samples;
    }
    let each = samples.len().div_ceil(MOST_SAMPLES);
    samples.chunks(each).filter_map(|c| c.iter().copied().max_by_key(|s| s.1).map(|m| (c[0].0, m.1))).collect()
}

//! A simulated run as a timeline: for each class of like devices its cores, its copies and its exchanges with others.
//!
//! Where cores stand still for a movement, that is an event of theirs, and communication among these is exposed. Arcs go
//! from each movement to where it is waited for.

use super::{Lane, Timeline, TimelineEvent};
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_simulate::{Event, Lane as Unit, Simulation};

/// So many events are shown: the longest.
const MOST_EVENTS: usize = 100_000;

impl Timeline {
    /// The timeline of a simulation of `simulated`, which may be `module` with a schedule and copies that it was given for
    /// that: what both have has the same number and name.
    pub fn from_simulation(simulation: &Simulation, simulated: &Module, module: &Module) -> Timeline {
        let units = [Unit::Compute, Unit::Copy, Unit::Network];
        let lane = |class: usize, unit: Unit| {
            // Further rounds of a loop keep the cores busy.
            let unit = if unit == Unit::Repeat { Unit::Compute } else { unit };
            (class * units.len() + units.iter().position(|&u| u == unit).unwrap_or(0)) as u32
        };
        let mut timeline = Timeline {
            origin: format!("simulated on {}", simulation.target),
            lanes: lanes(simulation, &units),
            ..Timeline::default()
        };
        let known = |id: InstructionId| {
            let is_known = id.index() < module.instruction_slots() && module[id].name() == simulated[id].name();
            is_known.then_some(id)
        };
        let shown = shown(simulation);
        let mut place = vec![None; simulation.events.len()];
        for &number in &shown {
            let event = &simulation.events[number];
            let is_repeat = event.lane == Unit::Repeat;
            place[number] = Some(timeline.events.len() as u32);
            timeline.events.push(TimelineEvent {
                lane: lane(event.class, event.lane),
                instruction: known(event.instruction),
                name: simulated[event.instruction].name().to_owned(),
                category: if is_repeat { "more rounds".into() } else { event.bound.name().into() },
                start_us: event.start * 1e6,
                duration_us: (event.end - event.start) * 1e6,
                is_exposed: false,
            });
        }
        let busy = busy(simulation, &shown, &place);
        for stall in &simulation.stalls {
            let Some(movement) = place[stall.movement] else { continue };
            let of = &simulation.events[stall.movement];
            let mut waiting = busy.get(stall.class).and_then(|b| first_from(b, stall.end));
            if stall.end > stall.start {
                waiting = Some(timeline.events.len() as u32);
                timeline.events.push(TimelineEvent {
                    lane: lane(stall.class, Unit::Compute),
                    instruction: known(of.instruction),
                    name: simulated[of.instruction].name().to_owned(),
                    category: if of.lane == Unit::Network {
                        "waits for others".into()
                    } else {
                        "waits for a copy".into()
                    },
                    start_us: stall.start * 1e6,
                    duration_us: (stall.end - stall.start) * 1e6,
                    is_exposed: of.lane == Unit::Network,
                });
            }
            timeline.arcs.extend(waiting.map(|to| (movement, to)));
        }
        timeline
    }
}

fn lanes(simulation: &Simulation, units: &[Unit]) -> Vec<Lane> {
    let groups = simulation.classes.iter().map(|class| match (simulation.devices, class.devices) {
        (1, _) => "device 0".to_owned(),
        (_, 1) => format!("device {}", class.example),
        (all, many) if many == all => format!("each of {all} devices"),
        (_, many) => format!("{many} devices as device {}", class.example),
    });
    groups.flat_map(|group| units.iter().map(move |u| Lane { name: u.name().into(), group: group.clone() })).collect()
}

/// The events that are shown, in their order.
fn shown(simulation: &Simulation) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..simulation.events.len()).collect();
    if shown.len() > MOST_EVENTS {
        let length = |e: &Event| e.end - e.start;
        shown.sort_by(|&a, &b| length(&simulation.events[b]).total_cmp(&length(&simulation.events[a])));
        shown.truncate(MOST_EVENTS);
        shown.sort_unstable();
    }
    shown
}

/// When the cores of each class begin something, and which event that is, in order.
fn busy(simulation: &Simulation, shown: &[usize], place: &[Option<u32>]) -> Vec<Vec<(f64, u32)>> {
    let mut busy = vec![Vec::new(); simulation.classes.len()];
    for &number in shown {
        let event = &simulation.events[number];
        if let (Unit::Compute | Unit::Repeat, Some(at)) = (event.lane, place[number])
            && let Some(busy) = busy.get_mut(event.class)
        {
            busy.push((event.start, at));
        }
    }
    busy.iter_mut().for_each(|b| b.sort_by(|a, b| a.0.total_cmp(&b.0)));
    busy
}

fn first_from(busy: &[(f64, u32)], time: f64) -> Option<u32> {
    busy.get(busy.partition_point(|(start, _)| *start < time)).map(|(_, at)| *at)
}

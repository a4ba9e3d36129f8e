//! A simulation as JSON. Fields keep their names and meaning from version to version; new ones may be added.

use super::Simulated;
use crate::cli::json::to_line;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct JsonSimulation<'a> {
    target: &'a str,
    topology: &'a str,
    devices: usize,
    classes: Vec<JsonClass>,
    step_ms: f64,
    cycles: Option<f64>,
    /// Arithmetic alone, and so on: they overlap, and do not add up to the step.
    compute_ms: f64,
    memory_ms: f64,
    network_ms: f64,
    copy_ms: f64,
    latency_ms: f64,
    exposed_network_ms: f64,
    exposed_copy_ms: f64,
    flops: f64,
    bytes: f64,
    wire_bytes: f64,
    mfu: f64,
    memory_utilisation: f64,
    link_utilisation: BTreeMap<&'a str, f64>,
    peak_bytes: BTreeMap<String, i128>,
    instructions: Vec<JsonInstruction<'a>>,
    critical_path: Vec<JsonSegment<'a>>,
    waits: Vec<JsonWait<'a>>,
    memory: Vec<JsonMemory<'a>>,
}

#[derive(Serialize)]
struct JsonClass {
    devices: usize,
    example: usize,
    ms: f64,
}

#[derive(Serialize)]
struct JsonInstruction<'a> {
    name: &'a str,
    start_us: f64,
    end_us: f64,
    bound: &'static str,
    /// Of one execution; absent for what has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    cycles: Option<f64>,
    runs: f64,
    lane: &'static str,
}

#[derive(Serialize)]
struct JsonSegment<'a> {
    name: &'a str,
    start_us: f64,
    end_us: f64,
    bound: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<u64>,
}

#[derive(Serialize)]
struct JsonWait<'a> {
    name: &'a str,
    ms: f64,
}

#[derive(Serialize)]
struct JsonMemory<'a> {
    space: i64,
    name: &'a str,
    capacity: Option<i64>,
    planned_bytes: i128,
    /// Microseconds, and bytes from then on.
    samples: Vec<(f64, i128)>,
}

/// So much of the critical path is told: its longest segments.
const MOST_SEGMENTS: usize = 200;

fn json(simulated: &Simulated) -> JsonSimulation<'_> {
    let (s, module) = (&simulated.simulation, simulated.module());
    let name = |id| module.instruction(id).name();
    let t = &s.totals;
    let mut path: Vec<usize> = s.critical_path.clone();
    path.sort_by(|&a, &b| {
        let length = |n: usize| s.events[n].end - s.events[n].start;
        length(b).total_cmp(&length(a))
    });
    path.truncate(MOST_SEGMENTS);
    path.sort_unstable();
    JsonSimulation {
        target: &s.target,
        topology: &s.topology,
        devices: s.devices,
        classes: s
            .classes
            .iter()
            .map(|c| JsonClass { devices: c.devices, example: c.example, ms: c.seconds * 1e3 })
            .collect(),
        step_ms: s.step_seconds * 1e3,
        cycles: s.cycles,
        compute_ms: t.compute_seconds * 1e3,
        memory_ms: t.memory_seconds * 1e3,
        network_ms: t.network_seconds * 1e3,
        copy_ms: t.copy_seconds * 1e3,
        latency_ms: t.latency_seconds * 1e3,
        exposed_network_ms: t.exposed_network_seconds * 1e3,
        exposed_copy_ms: t.exposed_copy_seconds * 1e3,
        flops: t.flops,
        bytes: t.bytes,
        wire_bytes: t.wire_bytes,
        mfu: s.mfu,
        memory_utilisation: s.memory_utilisation,
        link_utilisation: s.link_utilisation.iter().map(|(n, u)| (n.as_str(), *u)).collect(),
        peak_bytes: s.memory.iter().map(|m| (m.memory_space.to_string(), m.planned_bytes)).collect(),
        instructions: s
            .instructions
            .iter()
            .map(|i| JsonInstruction {
                name: name(i.instruction),
                start_us: i.start * 1e6,
                end_us: i.end * 1e6,
                bound: i.bound.name(),
                cycles: i.cycles,
                runs: i.runs,
                lane: i.lane.name(),
            })
            .collect(),
        critical_path: path
            .iter()
            .map(|&n| {
                let e = &s.events[n];
                JsonSegment {
                    name: name(e.instruction),
                    start_us: e.start * 1e6,
                    end_us: e.end * 1e6,
                    bound: e.bound.name(),
                    repeated: (e.rounds > 1).then_some(e.rounds),
                }
            })
            .collect(),
        waits: s.waits.iter().map(|w| JsonWait { name: name(w.instruction), ms: w.seconds * 1e3 }).collect(),
        memory: s
            .memory
            .iter()
            .map(|m| JsonMemory {
                space: m.memory_space,
                name: &m.name,
                capacity: m.capacity,
                planned_bytes: m.planned_bytes,
                samples: m.samples.iter().map(|&(at, bytes)| (at * 1e6, bytes)).collect(),
            })
            .collect(),
    }
}

/// The simulation as one line.
pub(super) fn to_json(simulated: &Simulated) -> String {
    to_line(&json(simulated))
}

/// Two simulations as one line.
pub(super) fn comparison(first: &Simulated, second: &Simulated) -> String {
    #[derive(Serialize)]
    struct Both<'a> {
        a: JsonSimulation<'a>,
        b: JsonSimulation<'a>,
        /// How much faster the second is.
        speedup: f64,
    }
    let speedup = first.simulation.step_seconds / second.simulation.step_seconds.max(f64::MIN_POSITIVE);
    to_line(&Both { a: json(first), b: json(second), speedup })
}

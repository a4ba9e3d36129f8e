//! A simulated timeline, or a sweep, as a page to look at: one file of HTML that needs nothing else and asks no network.
//!
//! Markup, style and script are files in `page/`; what they show is put in as JSON. Nothing from the module can end the
//! script or become markup: `<` never appears in the data.

use super::Simulated;
use super::sweep::Row;
use hloom::simulate::Lane;
use rustc_hash::FxHashMap;
use serde::Serialize;

const TIMELINE: &str = include_str!("page/timeline.html");
const SWEEP: &str = include_str!("page/sweep.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/timeline.js");
const SWEEP_SCRIPT: &str = include_str!("page/sweep.js");

/// So many events are shown: the longest.
const MOST_EVENTS: usize = 50_000;

/// What the script reads. The names are those in `page/timeline.js`.
#[derive(Serialize)]
struct Data<'a> {
    file: &'a str,
    target: &'a str,
    topology: &'a str,
    devices: usize,
    step: f64,
    left_out: usize,
    summary: Vec<(&'static str, f64)>,
    mfu: f64,
    classes: Vec<usize>,
    names: Vec<&'a str>,
    opcodes: Vec<String>,
    bounds: [&'static str; 4],
    lanes: [&'static str; 4],
    events: Vec<EventRow>,
    memory: Vec<Memory<'a>>,
}

/// Class, lane, name, start, end, bound, rounds, whether it is on the critical path.
type EventRow = (usize, u8, usize, f64, f64, u8, u64, bool);

#[derive(Serialize)]
struct Memory<'a> {
    name: String,
    capacity: Option<i64>,
    samples: &'a [(f64, i128)],
}

pub(super) fn to_html(simulated: &Simulated) -> String {
    let (s, module) = (&simulated.simulation, simulated.module());
    let mut is_critical = vec![false; s.events.len()];
    s.critical_path.iter().for_each(|&n| is_critical[n] = true);
    let mut shown: Vec<usize> = (0..s.events.len()).collect();
    if shown.len() > MOST_EVENTS {
        let length = |n: usize| s.events[n].end - s.events[n].start;
        shown.sort_by(|&a, &b| length(b).total_cmp(&length(a)));
        shown.truncate(MOST_EVENTS);
        shown.sort_unstable();
    }
    let mut numbers = FxHashMap::default();
    let (mut names, mut opcodes) = (Vec::new(), Vec::new());
    let mut events = Vec::with_capacity(shown.len());
    for &n in &shown {
        let e = &s.events[n];
        let name = *numbers.entry(e.instruction).or_insert_with(|| {
            let instruction = module.instruction(e.instruction);
            names.push(instruction.name());
            opcodes.push(instruction.opcode().to_string());
            names.len() - 1
        });
        let (lane, bound) = (e.lane as u8, e.bound as u8);
        events.push((e.class, lane, name, e.start, e.end, bound, e.rounds, is_critical[n]));
    }
    let t = &s.totals;
    let data = Data {
        file: &simulated.file,
        target: &s.target,
        topology: &s.topology,
        devices: s.devices,
        step: s.step_seconds,
        left_out: s.events.len() - shown.len() + s.dropped_events,
        summary: vec![
            ("kernels", t.kernel_seconds),
            ("arithmetic alone", t.compute_seconds),
            ("memory traffic alone", t.memory_seconds),
            ("network", t.network_seconds),
            ("network waited for", t.exposed_network_seconds),
            ("copies", t.copy_seconds),
            ("copies waited for", t.exposed_copy_seconds),
        ],
        mfu: s.mfu,
        classes: s.classes.iter().map(|c| c.devices).collect(),
        names,
        opcodes,
        bounds: ["compute", "memory", "network", "latency"],
        lanes: [Lane::Compute, Lane::Copy, Lane::Network, Lane::Repeat].map(Lane::name),
        events,
        memory: s
            .memory
            .iter()
            .map(|m| Memory { name: format!("{} {}", m.colour, m.name), capacity: m.capacity, samples: &m.samples })
            .collect(),
    };
    filled(TIMELINE, SCRIPT, &data)
}

pub(super) fn sweep(file: &str, rows: &[Row]) -> String {
    #[derive(Serialize)]
    struct Data<'a> {
        file: &'a str,
        rows: &'a [Row],
    }
    filled(SWEEP, SWEEP_SCRIPT, &Data { file, rows })
}

fn filled(page: &str, script: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).unwrap_or_else(|_| "null".to_owned()).replace('<', "\\u003c");
    // The data come last: nothing in them is looked for again.
    page.replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", script).replace("/*DATA*/null", &data)
}

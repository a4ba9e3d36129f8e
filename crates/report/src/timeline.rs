//! A timeline: what ran, or would run, where and when. Measured by a run, or made by a simulator.
//!
//! Lanes are engines, threads and links; events of one lane may nest, as a loop and its steps do. Times are microseconds
//! from the start.

mod simulated;
mod times;

use crate::columns::Strings;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::FxHashMap;
use serde::Serialize;
use serde_json::Value;

/// Kinds of events in which a device deals with others: it comes to a collective, and it waits for one.
const COLLECTIVE: &str = "collective";
const WAIT: &str = "wait";

/// A timeline of one run of a module.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Timeline {
    /// Where it comes from, in words: `measured`, `simulated on tpu-v6e`.
    pub origin: String,
    /// The lanes, in the order in which they are shown.
    pub lanes: Vec<Lane>,
    /// The events.
    pub events: Vec<TimelineEvent>,
    /// Pairs of events, by their places in `events`, that are the start and the end of one asynchronous operation.
    pub arcs: Vec<(u32, u32)>,
}

/// Something that does one thing at a time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Lane {
    /// Its name, as `matrix unit` or `link x+`.
    pub name: String,
    /// What it belongs to, as `device 0`.
    pub group: String,
}

/// A stretch of time on a lane.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TimelineEvent {
    /// The lane, by its place in the list.
    pub lane: u32,
    /// The instruction, if it is one of the module's.
    pub instruction: Option<InstructionId>,
    /// What it is called, where it is no instruction.
    pub name: String,
    /// What kind of work it is: `compute`, `memory`, `network`, or a kind of thunk.
    pub category: String,
    /// When it begins.
    pub start_us: f64,
    /// How long it takes.
    pub duration_us: f64,
    /// Whether it is communication that nothing else hides.
    pub is_exposed: bool,
}

/// A timeline as the page reads it.
#[derive(Serialize)]
pub(crate) struct TimelineData {
    origin: String,
    lanes: Vec<Lane>,
    lane: Vec<u32>,
    instruction: Vec<i64>,
    name: Vec<u32>,
    category: Vec<u32>,
    start: Vec<f64>,
    duration: Vec<f64>,
    exposed: Vec<u32>,
    arcs: Vec<(u32, u32)>,
}

/// Why a text is no record of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TraceError {
    /// It is no JSON; what the reader says.
    NoJson(String),
    /// There is no list of trace events in it.
    NoList,
    /// None of its events has a duration.
    NoEvents,
}

impl std::fmt::Display for TraceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TraceError::NoJson(why) => write!(f, "it is no JSON: {why}"),
            TraceError::NoList => f.write_str("it has no list of trace events"),
            TraceError::NoEvents => f.write_str("it has no events with a duration"),
        }
    }
}

impl std::error::Error for TraceError {}

impl Timeline {
    /// Nanoseconds are told apart; what is finer only makes pages longer.
    const GRAIN: f64 = 1e3;

    /// Reads trace events in JSON, as `hloom run --trace` writes them and Perfetto reads them. Events that have an
    /// instruction's name belong to it. Says what is wrong with a text that is no such thing.
    pub fn from_trace_events(text: &str, module: &Module) -> Result<Timeline, TraceError> {
        let json: Value = serde_json::from_str(text).map_err(|e| TraceError::NoJson(e.to_string()))?;
        let events = json.get("traceEvents").unwrap_or(&json);
        let events = events.as_array().ok_or(TraceError::NoList)?;
        let all = module.computations().iter().flat_map(|&c| module[c].instructions());
        let by_name: FxHashMap<&str, InstructionId> = all.map(|&id| (module[id].name(), id)).collect();
        let mut timeline = Timeline { origin: "measured".into(), ..Timeline::default() };
        let mut lanes: FxHashMap<(i64, i64), u32> = FxHashMap::default();
        let number = |event: &Value, key: &str| event.get(key).and_then(Value::as_i64).unwrap_or(0);
        for event in events {
            let place = (number(event, "pid"), number(event, "tid"));
            let mut lane = || {
                *lanes.entry(place).or_insert_with(|| {
                    let name = if place.1 == 0 { "own thread".into() } else { format!("thread {}", place.1) };
                    timeline.lanes.push(Lane { name, group: format!("device {}", place.0) });
                    timeline.lanes.len() as u32 - 1
                })
            };
            let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
            let given = event.get("args").and_then(|a| a.get("name")).and_then(Value::as_str);
            match (text("ph"), text("name"), given) {
                ("X", name, _) => {
                    let time = |key: &str| event.get(key).and_then(Value::as_f64).filter(|t| t.is_finite());
                    let (Some(start_us), duration_us) = (time("ts"), time("dur").unwrap_or(0.0).max(0.0)) else {
                        continue;
                    };
                    let lane = lane();
                    let instruction = by_name.get(name).copied();
                    let category = text("cat").to_owned();
                    // A compiler may have made one collective of several, which has a name of its own.
                    let is_exposed = match instruction.filter(|_| category != WAIT) {
                        Some(id) => waits_for_others(&module[id].op),
                        None => [COLLECTIVE, WAIT].contains(&&*category),
                    };
                    let name = name.to_owned();
                    timeline.events.push(TimelineEvent {
                        lane,
                        instruction,
                        name,
                        category,
                        start_us,
                        duration_us,
                        is_exposed,
                    });
                }
                ("M", "thread_name", Some(name)) => {
                    let lane = lane() as usize;
                    timeline.lanes[lane].name = name.to_owned();
                }
                ("M", "process_name", Some(name)) => {
                    let lane = lane() as usize;
                    let group = timeline.lanes[lane].group.clone();
                    timeline.lanes.iter_mut().filter(|l| l.group == group).for_each(|l| l.group = name.to_owned());
                }
                _ => {}
            }
        }
        if timeline.events.is_empty() {
            return Err(TraceError::NoEvents);
        }
        // Devices and their threads by number, whoever began first.
        let mut places: Vec<((i64, i64), u32)> = lanes.into_iter().collect();
        places.sort_unstable();
        let mut new = vec![0; timeline.lanes.len()];
        places.iter().zip(0u32..).for_each(|((_, old), n)| new[*old as usize] = n);
        timeline.lanes = places.iter().map(|(_, old)| timeline.lanes[*old as usize].clone()).collect();
        timeline.events.iter_mut().for_each(|e| e.lane = new[e.lane as usize]);
        timeline.arcs = timeline.async_pairs(module);
        Ok(timeline)
    }

    /// Each start with the first event of its done that begins no earlier, in the same group; and so each collective that
    /// was begun with the wait for it.
    pub fn async_pairs(&self, module: &Module) -> Vec<(u32, u32)> {
        let mut order: Vec<u32> = (0..self.events.len() as u32).collect();
        order.sort_by(|&a, &b| self.events[a as usize].start_us.total_cmp(&self.events[b as usize].start_us));
        let mut open: FxHashMap<(InstructionId, &str), u32> = FxHashMap::default();
        let mut begun_by_name: FxHashMap<(&str, &str), u32> = FxHashMap::default();
        let mut pairs = Vec::new();
        for number in order {
            let event = &self.events[number as usize];
            let group = self.lanes.get(event.lane as usize).map_or("", |l| l.group.as_str());
            if event.category == COLLECTIVE {
                begun_by_name.insert((&event.name, group), number);
            } else if event.category == WAIT
                && let Some(begun) = begun_by_name.remove(&(&*event.name, group))
            {
                pairs.push((begun, number));
                continue;
            }
            let Some(id) = event.instruction else { continue };
            let name = module[id].opcode().name();
            if name.ends_with("-start") {
                open.insert((id, group), number);
            } else if name.ends_with("-done")
                && let Some(&start) = module[id].operands().first()
                && let Some(begun) = open.remove(&(start, group))
            {
                pairs.push((begun, number));
            }
        }
        pairs
    }

    /// A time as pages hold it.
    pub(crate) fn round(us: f64) -> f64 {
        (us * Timeline::GRAIN).round() / Timeline::GRAIN
    }

    /// From the first beginning to the last end.
    pub fn length_us(&self) -> f64 {
        let first = self.events.iter().map(|e| e.start_us).fold(f64::INFINITY, f64::min);
        let last = self.events.iter().map(|e| e.start_us + e.duration_us).fold(f64::NEG_INFINITY, f64::max);
        if last > first { last - first } else { 0.0 }
    }

    /// The events, by their places, sorted by when they begin, longest first, so that what nests comes after what it is in.
    fn in_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.events.len() as u32).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (&self.events[a as usize], &self.events[b as usize]);
            a.start_us.total_cmp(&b.start_us).then(b.duration_us.total_cmp(&a.duration_us))
        });
        order
    }

    pub(crate) fn data(&self, strings: &mut Strings, number: &dyn Fn(InstructionId) -> u32) -> TimelineData {
        let first = self.events.iter().map(|e| e.start_us).fold(f64::INFINITY, f64::min);
        let round = Timeline::round;
        let mut data = TimelineData {
            origin: self.origin.clone(),
            lanes: self.lanes.clone(),
            lane: Vec::new(),
            instruction: Vec::new(),
            name: Vec::new(),
            category: Vec::new(),
            start: Vec::new(),
            duration: Vec::new(),
            exposed: Vec::new(),
            arcs: Vec::new(),
        };
        let order = self.in_order();
        let mut place = vec![0u32; self.events.len()];
        for (at, &index) in order.iter().enumerate() {
            let event = &self.events[index as usize];
            place[index as usize] = at as u32;
            data.lane.push(event.lane);
            data.instruction.push(event.instruction.map_or(-1, |id| i64::from(number(id))));
            data.name.push(if event.instruction.is_some() { 0 } else { strings.number(&event.name) });
            data.category.push(strings.number(&event.category));
            data.start.push(round(event.start_us - first));
            data.duration.push(round(event.duration_us));
            if event.is_exposed {
                data.exposed.push(at as u32);
            }
        }
        let at = |index: &u32| place.get(*index as usize).copied();
        data.arcs = self.arcs.iter().filter_map(|(a, b)| Some((at(a)?, at(b)?))).collect();
        data
    }
}

/// Whether a device that executes this stands still until others have sent something.
fn waits_for_others(op: &Op) -> bool {
    let is_start = matches!(op, Op::AllReduceStart(_) | Op::AllGatherStart(_) | Op::CollectivePermuteStart(_));
    let is_done = matches!(op, Op::AllReduceDone | Op::AllGatherDone | Op::CollectivePermuteDone | Op::RecvDone(_));
    is_done || (!is_start && (op.collective().is_some() || matches!(op, Op::CollectivePermute(_))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text;

    #[test]
    fn a_trace_is_read_with_its_lanes_and_pairs() {
        let text = "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  \
                    s = (f32[4], f32[4]) collective-permute-start(x), channel_id=1, source_target_pairs={{0,1}}\n  \
                    y = f32[4] negate(x)\n  d = f32[4] collective-permute-done(s)\n  ROOT r = f32[4] add(y, d)\n}\n";
        let module = hlo_text::read(text.as_bytes()).module.expect("it is right");
        let trace = r#"{"traceEvents":[
            {"ph":"X","name":"s","cat":"collective","ts":10,"dur":1,"pid":0,"tid":0},
            {"ph":"X","name":"y","ts":11,"dur":5.5,"pid":0,"tid":0},
            {"ph":"X","name":"d","ts":17,"dur":2,"pid":0,"tid":0},
            {"ph":"X","name":"not one of its","ts":12,"dur":1,"pid":0,"tid":4},
            {"ph":"M","name":"thread_name","pid":0,"tid":4,"args":{"name":"helper"}},
            {"ph":"X","name":"no time"}, 7, null]}"#;
        let timeline = Timeline::from_trace_events(trace, &module).expect("a trace");
        assert_eq!(timeline.lanes.iter().map(|l| &*l.name).collect::<Vec<_>>(), ["own thread", "helper"]);
        assert_eq!(timeline.events.iter().filter(|e| e.is_exposed).map(|e| &*e.name).collect::<Vec<_>>(), ["d"]);
        assert_eq!((timeline.arcs.as_slice(), timeline.length_us()), (&[(0, 2)][..], 9.0));
        assert_eq!(timeline.events[3].instruction, None);
        // Devices by number; of what the compiler made of several, the beginning and the wait belong together.
        let trace = r#"[{"ph":"X","name":"y","ts":0,"dur":1,"pid":2},
            {"ph":"X","name":"both","cat":"collective","ts":1,"dur":1,"pid":1},
            {"ph":"X","name":"y","ts":2,"dur":5,"pid":1}, {"ph":"X","name":"both","cat":"wait","ts":7,"dur":2,"pid":1}]"#;
        let timeline = Timeline::from_trace_events(trace, &module).expect("a trace");
        assert_eq!(timeline.lanes.iter().map(|l| &*l.group).collect::<Vec<_>>(), ["device 1", "device 2"]);
        assert_eq!(timeline.events.iter().map(|e| e.lane).collect::<Vec<_>>(), [1, 0, 0, 0]);
        assert_eq!((timeline.arcs.as_slice(), timeline.events[3].is_exposed), (&[(1, 3)][..], true));
        for bad in ["", "[]", "{}", "{\"traceEvents\": 3}", "[{\"ph\":\"X\"}]"] {
            assert!(Timeline::from_trace_events(bad, &module).is_err(), "{bad}");
        }
    }
}

//! An assignment for people, as tables, and for programs, as JSON.

use super::describe::{label, shape, source};
use crate::cli::lines::clip;
use crate::cli::stats::size;
use crate::cli::table::{Align, Table};
use crate::cli::{json, words};
use hloom::plan::Plan;
use hloom::plan::summary::SpaceSummary;
use hloom::target::Target;
use serde::Serialize;
use std::fmt::Write;

/// At the peak so many values are shown to people.
const SHOWN: usize = 20;

fn bytes(n: i128) -> String {
    size(u64::try_from(n).unwrap_or(u64::MAX))
}

/// Tables of what each memory takes, and of what is in use at its peak.
pub(super) fn to_text(plan: &Plan<'_>, target: &Target, spaces: &[SpaceSummary]) -> String {
    use Align::{Left, Right};
    let module = plan.dataflow.module();
    let mut out = format!(
        "{} on {}: {} in {}\n\n",
        module.name,
        target.name,
        bytes(plan.total_bytes()),
        words::plural(plan.allocations.len(), "allocation")
    );
    let columns = [
        ("memory", Left),
        ("total", Right),
        ("of", Right),
        ("parameters", Right),
        ("results", Right),
        ("constants", Right),
        ("temporaries", Right),
        ("in use at most", Right),
        ("padding then", Right),
    ];
    let mut table = Table::new(&columns);
    for space in spaces {
        let peak = space.peak.as_ref();
        table.row([
            format!("{} {}", space.colour, space.name),
            bytes(space.total),
            space.capacity.map_or(String::new(), |c| bytes(i128::from(c))),
            bytes(space.parameters),
            bytes(space.results),
            bytes(space.constants),
            bytes(space.temporaries + space.thread_local),
            peak.map_or(String::new(), |p| bytes(p.bytes)),
            peak.map_or(String::new(), |p| bytes(p.padding)),
        ]);
    }
    out.push_str(&table.render());
    for space in spaces {
        let Some(peak) = &space.peak else { continue };
        let at = plan.schedule.sequence.get(peak.time as usize).map_or("the end", |&i| module[i].name());
        let what = if space.name.is_empty() { "memory" } else { &space.name };
        let _ = write!(out, "\nmost of {what} is in use at {at}, step {} of {}:\n\n", peak.time, plan.schedule.end());
        let mut table =
            Table::new(&[("bytes", Right), ("padding", Right), ("value", Left), ("shape", Left), ("from", Left)]);
        for value in peak.values.iter().take(SHOWN) {
            table.row([
                bytes(i128::from(value.bytes)),
                bytes(i128::from(value.bytes - value.data.min(value.bytes))),
                label(plan, value.value),
                clip(&shape(plan, value.value), 48),
                source(plan, value.value),
            ]);
        }
        out.push_str(&table.render());
        if let Some(more) = peak.values.get(SHOWN..).filter(|m| !m.is_empty()) {
            let rest: i128 = more.iter().map(|v| i128::from(v.bytes)).sum();
            let _ = writeln!(out, "… and {} of {} together", words::plural(more.len(), "more value"), bytes(rest));
        }
    }
    out
}

/// What `--json` prints. All sizes are in bytes.
#[derive(Serialize)]
struct Memory<'a> {
    module: &'a str,
    target: &'a str,
    total_bytes: i128,
    schedule_length: u32,
    memories: Vec<JsonSpace<'a>>,
    allocations: Vec<JsonAllocation>,
}

#[derive(Serialize)]
struct JsonSpace<'a> {
    color: i64,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity_bytes: Option<i64>,
    total_bytes: i128,
    parameter_bytes: i128,
    result_bytes: i128,
    constant_bytes: i128,
    thread_local_bytes: i128,
    temporary_bytes: i128,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak: Option<JsonPeak>,
}

#[derive(Serialize)]
struct JsonPeak {
    time: u32,
    bytes: i128,
    padding_bytes: i128,
    values: Vec<JsonInUse>,
}

#[derive(Serialize)]
struct JsonInUse {
    id: u32,
    value: String,
    bytes: i64,
    data_bytes: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    source: String,
}

#[derive(Serialize)]
struct JsonAllocation {
    size: i64,
    color: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<String>,
    constant: bool,
    thread_local: bool,
    maybe_live_out: bool,
    values: Vec<JsonValue>,
}

#[derive(Serialize)]
struct JsonValue {
    id: u32,
    value: String,
    phi: bool,
    offset: i64,
    size: i64,
    shape: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<(u32, u32)>,
}

/// One JSON object with everything.
pub(super) fn to_json(plan: &Plan<'_>, target: &Target, spaces: &[SpaceSummary]) -> String {
    let in_use = |v: &hloom::plan::summary::InUse| JsonInUse {
        id: v.value,
        value: label(plan, v.value),
        bytes: v.bytes,
        data_bytes: v.data,
        source: source(plan, v.value),
    };
    let memories = spaces.iter().map(|space| JsonSpace {
        color: space.colour,
        name: &space.name,
        capacity_bytes: space.capacity,
        total_bytes: space.total,
        parameter_bytes: space.parameters,
        result_bytes: space.results,
        constant_bytes: space.constants,
        thread_local_bytes: space.thread_local,
        temporary_bytes: space.temporaries,
        peak: space.peak.as_ref().map(|p| JsonPeak {
            time: p.time,
            bytes: p.bytes,
            padding_bytes: p.padding,
            values: p.values.iter().map(in_use).collect(),
        }),
    });
    let allocations = plan.allocations.iter().map(|allocation| JsonAllocation {
        size: allocation.size,
        color: allocation.colour,
        parameter: allocation.parameter.and_then(|p| plan.dataflow.at(p)).map(|v| label(plan, v)),
        constant: allocation.is_constant,
        thread_local: allocation.is_thread_local,
        maybe_live_out: allocation.is_live_out,
        values: allocation
            .places
            .iter()
            .map(|place| JsonValue {
                id: place.value,
                value: label(plan, place.value),
                phi: plan.dataflow.value(place.value).is_some_and(|v| v.is_phi),
                offset: place.offset,
                size: place.size,
                shape: shape(plan, place.value),
                live: plan.live.of(place.value).map(|r| (r.start, r.end)),
            })
            .collect(),
    });
    json::to_line(&Memory {
        module: &plan.dataflow.module().name,
        target: &target.name,
        total_bytes: plan.total_bytes(),
        schedule_length: plan.schedule.end(),
        memories: memories.collect(),
        allocations: allocations.collect(),
    })
}

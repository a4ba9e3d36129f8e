//! An assignment for programs: one JSON object.

use crate::cli::json;
use hloom::plan::summary::InUse;
use hloom::report::memory::MemoryReport;
use hloom::report::memory::describe::{label, shape, source};
use serde::Serialize;

/// What `--json` prints. All sizes are in bytes.
#[derive(Serialize)]
struct Memory<'a> {
    module: &'a str,
    target: &'a str,
    total_bytes: i128,
    schedule_length: u32,
    memories: Vec<JsonSpace<'a>>,
    sharing: Vec<JsonSharing>,
    advice: Vec<JsonAdvice<'a>>,
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
    heap_bytes: i64,
    heap_lower_bound_bytes: i64,
    most_padded: Vec<JsonInUse>,
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

/// An allocation, and what its values would take apart.
#[derive(Serialize)]
struct JsonSharing {
    allocation: usize,
    values: usize,
    size: i64,
    apart_bytes: i128,
}

#[derive(Serialize)]
struct JsonAdvice<'a> {
    kind: &'static str,
    color: i64,
    bytes: i128,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    text: &'a str,
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
pub(super) fn to_json(report: &MemoryReport<'_, '_>) -> String {
    let MemoryReport { plan, target, spaces, .. } = report;
    let in_use = |v: &InUse| JsonInUse {
        id: v.value,
        value: label(plan, v.value),
        bytes: v.bytes,
        data_bytes: v.data,
        source: source(plan, v.value),
    };
    let memories = spaces.iter().map(|space| JsonSpace {
        color: space.memory_space,
        name: &space.name,
        capacity_bytes: space.capacity,
        total_bytes: space.total,
        parameter_bytes: space.parameters,
        result_bytes: space.results,
        constant_bytes: space.constants,
        thread_local_bytes: space.thread_local,
        temporary_bytes: space.temporaries,
        heap_bytes: space.heap,
        heap_lower_bound_bytes: space.heap_lower_bound,
        most_padded: space.padded.iter().map(in_use).collect(),
        peak: space.peak.as_ref().map(|p| JsonPeak {
            time: p.time,
            bytes: p.bytes,
            padding_bytes: p.padding,
            values: p.values.iter().map(in_use).collect(),
        }),
    });
    let allocations = plan.allocations.iter().map(|allocation| JsonAllocation {
        size: allocation.size,
        color: allocation.memory_space,
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
    let sharing = report.sharings.iter().map(|s| JsonSharing {
        allocation: s.allocation,
        values: s.values,
        size: plan.allocations[s.allocation].size,
        apart_bytes: s.apart,
    });
    let advice = report.advice.iter().map(|a| JsonAdvice {
        kind: a.kind,
        color: a.memory_space,
        bytes: a.bytes,
        id: a.value,
        value: a.value.map(|v| label(plan, v)),
        text: &a.text,
    });
    json::to_line(&Memory {
        module: &plan.dataflow.module().name,
        target: &target.name,
        total_bytes: plan.total_bytes(),
        schedule_length: plan.schedule.end(),
        memories: memories.collect(),
        sharing: sharing.collect(),
        advice: advice.collect(),
        allocations: allocations.collect(),
    })
}

//! The record of a run as Perfetto and Chrome read it: trace events in JSON.

use hloom::ir::module::Module;
use hloom::runtime::trace::Trace;
use std::collections::BTreeMap;

/// What happened in a run of `module`, which is the program as it was compiled.
pub(crate) fn events(trace: Trace, module: &Module) -> Vec<serde_json::Value> {
    // Threads of a device: its own is 0, helpers are numbered as they come.
    let mut threads: BTreeMap<(usize, String), usize> = BTreeMap::new();
    let mut events = Vec::new();
    for event in trace.into_events() {
        let thread = match event.helper {
            None => 0,
            Some(name) => {
                let next = threads.len() + 1;
                *threads.entry((event.device, name)).or_insert(next)
            }
        };
        let instruction = &module[event.instruction];
        events.push(serde_json::json!({
            "name": instruction.name(),
            "cat": event.kind,
            "ph": "X",
            "ts": event.begin.as_nanos() as f64 / 1e3,
            "dur": event.length.as_nanos() as f64 / 1e3,
            "pid": event.device,
            "tid": thread,
            "args": { "opcode": instruction.opcode().to_string(), "shape": instruction.shape.to_string() },
        }));
    }
    for ((device, name), thread) in threads {
        events.push(serde_json::json!({
            "name": "thread_name", "ph": "M", "pid": device, "tid": thread, "args": { "name": name },
        }));
    }
    events
}

/// The record of a run.
pub(crate) fn to_json(events: Vec<serde_json::Value>) -> String {
    format!("{}\n", serde_json::json!({ "traceEvents": events, "displayTimeUnit": "ns" }))
}

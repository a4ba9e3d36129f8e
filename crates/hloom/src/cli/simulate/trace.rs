//! A simulated timeline as Perfetto and Chrome read it: trace events in JSON. A process for each class of devices, a
//! thread for each lane.

use super::Simulated;
use hloom::simulate::Lane;

pub(super) fn to_json(simulated: &Simulated) -> String {
    let (s, module) = (&simulated.simulation, simulated.module());
    let mut events = Vec::new();
    for (class, c) in s.classes.iter().enumerate() {
        let name = match s.classes.len() {
            1 => format!("{} × {}", c.devices, s.target),
            _ => format!("{} × {} (as device {})", c.devices, s.target, c.example),
        };
        events.push(serde_json::json!({
            "name": "process_name", "ph": "M", "pid": class, "args": { "name": name },
        }));
        for lane in [Lane::Compute, Lane::Copy, Lane::Network, Lane::Repeat] {
            events.push(serde_json::json!({
                "name": "thread_name", "ph": "M", "pid": class, "tid": lane as usize, "args": { "name": lane.name() },
            }));
        }
    }
    for event in &s.events {
        let instruction = module.instruction(event.instruction);
        let name = match event.lane {
            Lane::Repeat => format!("{} more rounds of {}", event.rounds, instruction.name()),
            _ => instruction.name().to_owned(),
        };
        // Lanes of movements overlap; as asynchronous events each gets a line of its own.
        let is_async = matches!(event.lane, Lane::Copy | Lane::Network);
        let arguments = serde_json::json!({
            "opcode": instruction.opcode().to_string(),
            "shape": instruction.shape.to_string(),
            "bound": event.bound.name(),
            "cycles": event.cycles,
        });
        let common = serde_json::json!({
            "name": name, "cat": event.bound.name(), "pid": event.class, "tid": event.lane as usize,
        });
        let with = |more: serde_json::Value| {
            let mut all = common.clone();
            if let (Some(all), serde_json::Value::Object(more)) = (all.as_object_mut(), more) {
                all.extend(more);
            }
            all
        };
        let (start, end) = (event.start * 1e6, event.end * 1e6);
        if is_async {
            let id = events.len();
            events.push(with(serde_json::json!({ "ph": "b", "ts": start, "id": id, "args": arguments })));
            events.push(with(serde_json::json!({ "ph": "e", "ts": end, "id": id })));
        } else {
            events.push(with(serde_json::json!({ "ph": "X", "ts": start, "dur": end - start, "args": arguments })));
        }
    }
    for m in &s.memory {
        let name = format!("memory {} ({})", m.memory_space, m.name);
        for &(at, bytes) in &m.samples {
            events.push(serde_json::json!({
                "name": name, "ph": "C", "pid": 0, "ts": at * 1e6, "args": { "bytes": bytes as f64 },
            }));
        }
    }
    format!("{}\n", serde_json::json!({ "traceEvents": events, "displayTimeUnit": "ns" }))
}

//! The part of a dump on time: the flattened schedule, when each value is needed, and the peak.

use super::tree::write_tree;
use super::write_index;
use crate::Plan;
use crate::dataflow::ValueId;
use crate::live_range::{instruction_bytes, peak, plain_bytes};
use hloom_target::DumpDialect;
use std::fmt::Write;

pub(super) fn write(plan: &Plan<'_>, dialect: DumpDialect, out: &mut String) {
    let dataflow = &plan.dataflow;
    let module = dataflow.module();
    let _ = write!(out, "HloLiveRange (max {}):\n  InstructionSequence:\n", plan.schedule.end());
    for (time, &id) in plan.schedule.sequence.iter().enumerate() {
        let _ = writeln!(out, "    {time}:{}", module[id].name());
    }
    out.push_str("  BufferLiveRange:\n");
    for (id, _) in dataflow.values() {
        if let Some(range) = plan.live.of(id) {
            out.push_str("    ");
            name(plan, id, out);
            let _ = writeln!(out, ":{}-{}", range.start, range.end);
        }
    }
    let Some(peak) = peak(dataflow, &plan.live) else { return };
    let _ = writeln!(out, "  Live ranges at {} (peak):", peak.time);
    match dialect {
        DumpDialect::A => {
            for &id in &peak.values {
                if let Some(value) = dataflow.value(id) {
                    let instruction = &module[dataflow.instruction(value)];
                    let _ = writeln!(out, "    {}: {} bytes", instruction.name(), instruction_bytes(dataflow, id));
                }
            }
        }
        DumpDialect::B => {
            let mut sized: Vec<(i64, ValueId)> = peak.values.iter().map(|&id| (own_bytes(plan, id), id)).collect();
            sized.sort_by_cached_key(|&(bytes, id)| {
                let position = dataflow.value(id).map(|v| v.position);
                let index = position.map(|p| dataflow.positions.index(p));
                let name = position.map(|p| module[dataflow.positions.instruction(p)].name());
                (std::cmp::Reverse(bytes), name, index)
            });
            let mut sum = 0i128;
            for &(bytes, id) in &sized {
                sum += i128::from(bytes);
                out.push_str("    ");
                name(plan, id, out);
                let _ = writeln!(out, ": {bytes} bytes (cumulative: {sum} bytes)");
            }
            write_tree(plan, &sized, out);
        }
    }
}

/// The plain bytes of the value's own shape.
fn own_bytes(plan: &Plan<'_>, id: ValueId) -> i64 {
    plan.dataflow.value(id).map_or(0, |v| plain_bytes(plan.dataflow.positions.shape(v.position)))
}

fn name(plan: &Plan<'_>, id: ValueId, out: &mut String) {
    let dataflow = &plan.dataflow;
    if let Some(value) = dataflow.value(id) {
        out.push_str(dataflow.module()[dataflow.instruction(value)].name());
        write_index(out, &dataflow.positions.index(value.position));
    }
}

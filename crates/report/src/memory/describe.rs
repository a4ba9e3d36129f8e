//! Words for values and instructions that the reports share.

use crate::words::{op_name, source_line};
use hloom_ir::entity::InstructionId;
use hloom_plan::Plan;
use hloom_plan::dataflow::ValueId;

/// The name of a value: its instruction, and the index if that makes a tuple.
pub fn label(plan: &Plan<'_>, value: ValueId) -> String {
    let name = instruction(plan, value).map_or("", |id| plan.dataflow.module()[id].name());
    format!("{name}{}", index(plan, value))
}

/// Which part of its instruction's result a value is; empty for the whole.
pub fn index(plan: &Plan<'_>, value: ValueId) -> String {
    let position = plan.dataflow.value(value).map(|v| v.position);
    let index = position.map(|p| plan.dataflow.positions.index(p)).unwrap_or_default();
    match index.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", index.iter().map(i64::to_string).collect::<Vec<_>>().join(",")),
    }
}

/// The instruction that makes a value.
pub fn instruction(plan: &Plan<'_>, value: ValueId) -> Option<InstructionId> {
    Some(plan.dataflow.instruction(plan.dataflow.value(value)?))
}

/// The shape of a value, as text.
pub fn shape(plan: &Plan<'_>, value: ValueId) -> String {
    let found = plan.dataflow.value(value);
    found.map_or(String::new(), |v| plan.dataflow.positions.shape(v.position).to_string())
}

/// The file and line that a value comes from, or else what the framework called the operation.
pub fn source(plan: &Plan<'_>, value: ValueId) -> String {
    let module = plan.dataflow.module();
    let Some(id) = instruction(plan, value) else { return String::new() };
    Some(source_line(module, id)).filter(|s| !s.is_empty()).unwrap_or_else(|| op_name(module, id).to_owned())
}

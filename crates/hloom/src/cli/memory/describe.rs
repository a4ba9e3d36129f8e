//! Words for values and instructions that the reports share.

use crate::cli::render::source_position;
use hloom::ir::entity::InstructionId;
use hloom::ir::module::Module;
use hloom::plan::Plan;
use hloom::plan::dataflow::ValueId;

/// The name of a value: its instruction, and the index if that makes a tuple.
pub(super) fn label(plan: &Plan<'_>, value: ValueId) -> String {
    let name = instruction(plan, value).map_or("", |id| plan.dataflow.module()[id].name());
    format!("{name}{}", index(plan, value))
}

/// Which part of its instruction's result a value is; empty for the whole.
pub(super) fn index(plan: &Plan<'_>, value: ValueId) -> String {
    let position = plan.dataflow.value(value).map(|v| v.position);
    let index = position.map(|p| plan.dataflow.positions.index(p)).unwrap_or_default();
    match index.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", index.iter().map(i64::to_string).collect::<Vec<_>>().join(",")),
    }
}

/// The instruction that makes a value.
pub(super) fn instruction(plan: &Plan<'_>, value: ValueId) -> Option<InstructionId> {
    Some(plan.dataflow.instruction(plan.dataflow.value(value)?))
}

pub(super) fn shape(plan: &Plan<'_>, value: ValueId) -> String {
    let found = plan.dataflow.value(value);
    found.map_or(String::new(), |v| plan.dataflow.positions.shape(v.position).to_string())
}

/// The file and line that an instruction comes from; empty where the module does not say.
pub(super) fn source_line(module: &Module, id: InstructionId) -> String {
    match module[id].common.metadata.as_deref().map(|m| source_position(module, m)) {
        Some((file, line)) if !file.is_empty() => format!("{file}:{line}"),
        _ => String::new(),
    }
}

/// What the framework called the operation; empty where the module does not say.
pub(super) fn op_name(module: &Module, id: InstructionId) -> &str {
    module[id].common.metadata.as_deref().map_or("", |m| &m.op_name)
}

/// The file and line that a value comes from, or else what the framework called the operation.
pub(super) fn source(plan: &Plan<'_>, value: ValueId) -> String {
    let module = plan.dataflow.module();
    let Some(id) = instruction(plan, value) else { return String::new() };
    Some(source_line(module, id)).filter(|s| !s.is_empty()).unwrap_or_else(|| op_name(module, id).to_owned())
}

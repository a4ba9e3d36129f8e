//! A difference as JSON.

use super::text::summary;
use super::{Change, Difference, InstructionFigures, ModuleDiff, ModuleFigures};
use hloom_analysis::cost::Cost;
use serde_json::{Value, json};

/// The difference as one JSON object.
pub fn to_json(diff: &ModuleDiff) -> Value {
    json!({
        "equal": diff.is_equal(),
        "summary": summary(diff),
        "a": module(&diff.a),
        "b": module(&diff.b),
        "header": diff.header,
        "unknown_constants": diff.unknown_constants,
        "differences": diff.differences.iter().map(difference).collect::<Vec<_>>(),
    })
}

fn module(figures: &ModuleFigures) -> Value {
    json!({ "name": figures.name, "instructions": figures.instructions, "cost": cost(figures.cost) })
}

fn cost(cost: Cost) -> Value {
    json!({ "flops": cost.flops, "transcendentals": cost.transcendentals, "bytes": cost.bytes })
}

fn difference(d: &Difference) -> Value {
    let change = match d.change {
        Change::Added => "added",
        Change::Removed => "removed",
        Change::Changed => "changed",
    };
    json!({
        "change": change,
        "kind": d.kind(),
        "aspects": d.aspects.iter().map(|a| json!({ "kind": a.kind.name(), "detail": a.detail })).collect::<Vec<_>>(),
        "a": d.a.as_ref().map(instruction),
        "b": d.b.as_ref().map(instruction),
        "times": d.times,
        "inside": d.inside.iter().map(difference).collect::<Vec<_>>(),
    })
}

fn instruction(i: &InstructionFigures) -> Value {
    json!({
        "name": i.name,
        "opcode": i.opcode,
        "computation": i.computation,
        "text": i.text,
        "source": i.source,
        "op_name": i.op_name,
        "cost": cost(i.cost),
    })
}

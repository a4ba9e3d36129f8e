//! Calls: threads, memory shared by operands and results, and the layouts that custom calls ask for.
//!
//! That what is passed fits the parameters, and what comes back the caller, is checked by [`crate::infer`].

use super::shapes;
use super::{Context, Report};
use crate::attributes::OutputOperandAlias;
use crate::diagnostic::codes::{infer, verify as codes};
use crate::diagnostic::{Diagnostic, Part, Place};
use crate::entity::{ComputationId, InstructionId};
use crate::infer::{compatible, text};
use crate::op::{CustomCall, Op};
use crate::shape::{Shape, ShapeIndex};

/// Checks the calls of instruction `id`.
pub(super) fn check(context: &Context, id: InstructionId, report: &mut Report) {
    match &context.module[id].op {
        Op::Fusion(fusion) => {
            check_thread(context, id, "calls", fusion.calls, report);
            check_aliases(context, id, &fusion.output_operand_aliasing, report);
        }
        Op::While { condition, body } => {
            check_thread(context, id, "condition", *condition, report);
            check_thread(context, id, "body", *body, report);
        }
        Op::Conditional { branches } => {
            for &branch in branches {
                check_thread(context, id, "branch_computations", branch, report);
            }
        }
        Op::CustomCall(call) => custom_call(context, id, call, report),
        _ => {}
    }
}

/// The computation that `attribute` names.
pub(super) fn named_by(op: &Op, attribute: &str) -> Option<ComputationId> {
    match (op, attribute) {
        (Op::While { condition, .. }, "condition") => Some(*condition),
        (Op::While { body, .. }, "body") => Some(*body),
        (Op::SelectAndScatter { select, .. }, "select") => Some(*select),
        (Op::SelectAndScatter { scatter, .. }, "scatter") => Some(*scatter),
        (Op::Conditional { branches }, "true_computation") => branches.first().copied(),
        (Op::Conditional { branches }, "false_computation") => branches.get(1).copied(),
        (_, "to_apply" | "calls") => op.called_computations().first().copied(),
        _ => None,
    }
}

/// The called computation runs on the caller's thread.
fn check_thread(
    context: &Context,
    id: InstructionId,
    attribute: &'static str,
    callee: ComputationId,
    report: &mut Report,
) {
    let module = context.module;
    let caller = module[module[id].parent()].execution_thread.as_deref();
    if !same_thread(caller, module[callee].execution_thread.as_deref()) {
        report.add(thread_mismatch(context, id, attribute, caller, callee));
    }
}

/// The name of the thread that computations without one run on.
const MAIN_THREAD: &str = "main";

pub(super) fn same_thread(a: Option<&str>, b: Option<&str>) -> bool {
    a.unwrap_or(MAIN_THREAD) == b.unwrap_or(MAIN_THREAD)
}

pub(super) fn thread_mismatch(
    context: &Context,
    id: InstructionId,
    attribute: &'static str,
    wanted: Option<&str>,
    callee: ComputationId,
) -> Diagnostic {
    let thread = context.module[callee].execution_thread.as_deref();
    Diagnostic::error(
        &codes::EXECUTION_THREAD,
        format!(
            "{} `{}` runs computation `{}` on thread `{}`, but the computation is for thread `{}`",
            context.module[id].opcode(),
            context.name(id),
            context.computation_name(callee),
            wanted.unwrap_or(MAIN_THREAD),
            thread.unwrap_or(MAIN_THREAD)
        ),
    )
    .at_instruction(id, Part::Attribute(attribute))
    .note_at("the computation is defined here", Place::Computation(callee))
}

fn custom_call(context: &Context, id: InstructionId, call: &CustomCall, report: &mut Report) {
    for shape in call.operand_layouts.iter().flatten() {
        shapes::check(shape, report, id);
    }
    if let Some(dims) = &call.conv_dims {
        let spatial = [&dims.input_spatial, &dims.kernel_spatial, &dims.output_spatial].map(|s| s.len());
        if spatial[0] != spatial[1] || spatial[0] != spatial[2] {
            let [input, kernel, output] = spatial;
            let message = format!("input, kernel and output have {input}, {kernel} and {output} spatial dimensions");
            report.add(
                Diagnostic::error(&infer::DIMENSION_NUMBERS, message).at_instruction(id, Part::Attribute("dim_labels")),
            );
        }
    }
    check_aliases(context, id, &call.output_operand_aliasing, report);
}

/// Parts of the result that are said to be parts of operands exist and have the same shape.
fn check_aliases(context: &Context, id: InstructionId, aliases: &[OutputOperandAlias], report: &mut Report) {
    let instruction = &context.module[id];
    let skip_shapes = instruction.common.frontend_attribute("xla_skip_custom_call_alias_shape_check").is_some();
    for alias in aliases {
        let operand = usize::try_from(alias.operand).ok().and_then(|n| instruction.operands().get(n));
        let Some(&operand) = operand else {
            report.add(alias_error(
                context,
                id,
                format!("operand {} does not exist, there are {}", alias.operand, instruction.operands().len()),
            ));
            continue;
        };
        let input = &context.module[operand].shape;
        match (instruction.shape.at(&alias.output_index), input.at(&alias.operand_index)) {
            (None, _) => report.add(alias_error(
                context,
                id,
                format!("the result {} has no part {}", text(&instruction.shape), index_text(&alias.output_index)),
            )),
            (_, None) => report.add(alias_error(
                context,
                id,
                format!("operand {} ({}) has no part {}", alias.operand, text(input), index_text(&alias.operand_index)),
            )),
            (Some(a), Some(b)) if !skip_shapes && !shares_memory(a, b) => {
                report.add(alias_error(context, id, format!("{} and {} cannot be the same memory", text(a), text(b))));
            }
            _ => {}
        }
    }
}

/// An array and the buffer of one may share memory.
fn shares_memory(a: &Shape, b: &Shape) -> bool {
    match (a.as_array_or_buffer(), b.as_array_or_buffer()) {
        (Some(a), Some(b)) => a.same_dims_and_type(b),
        _ => compatible(a, b),
    }
}

fn alias_error(context: &Context, id: InstructionId, what: String) -> Diagnostic {
    Diagnostic::error(&codes::OUTPUT_ALIAS, format!("output_to_operand_aliasing of `{}`: {what}", context.name(id)))
        .at_instruction(id, Part::Attribute("output_to_operand_aliasing"))
}

/// `{1,0}`.
pub(super) fn index_text(index: &ShapeIndex) -> String {
    let mut text = String::from("{");
    crate::display::write_int_list(&mut text, index);
    text.push('}');
    text
}

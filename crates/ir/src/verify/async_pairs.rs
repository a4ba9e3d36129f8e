//! Asynchronous pairs: every start is finished once, by a done of its kind.
//!
//! Between the two a value may pass through tuples, copies, barriers and loops; what comes out of those is taken on
//! trust, as following it through loops would cost more than reading the module.

use super::calls::{same_thread, thread_mismatch};
use super::{Context, Report, at};
use crate::diagnostic::codes::infer::SHAPE_MISMATCH;
use crate::diagnostic::codes::verify as codes;
use crate::diagnostic::{Diagnostic, Part};
use crate::entity::InstructionId;
use crate::infer::{compatible, text};
use crate::instruction::Instruction;
use crate::op::{AsyncStart, Op, Transfer};
use crate::opcode::Opcode;

/// Checks `id` as a part of an asynchronous pair, if it is one.
pub(super) fn check(context: &Context, id: InstructionId, report: &mut Report) {
    let instruction = &context.module[id];
    let opcode = instruction.opcode();
    if let Some(done) = done_of(opcode) {
        start(context, id, done, report);
    }
    if let Some(start) = start_of(opcode) {
        done(context, id, start, report);
    }
    match &instruction.op {
        Op::AsyncStart(start) => async_start(context, id, start, report),
        Op::AsyncDone => async_done(context, id, report),
        _ => {}
    }
}

/// What finishes a start.
fn done_of(start: Opcode) -> Option<Opcode> {
    Some(match start {
        Opcode::AllReduceStart => Opcode::AllReduceDone,
        Opcode::AllGatherStart => Opcode::AllGatherDone,
        Opcode::CollectivePermuteStart => Opcode::CollectivePermuteDone,
        Opcode::CopyStart => Opcode::CopyDone,
        Opcode::Send => Opcode::SendDone,
        Opcode::Recv => Opcode::RecvDone,
        Opcode::AsyncStart | Opcode::AsyncUpdate => Opcode::AsyncDone,
        _ => return None,
    })
}

/// What a done finishes.
fn start_of(done: Opcode) -> Option<Opcode> {
    Some(match done {
        Opcode::AllReduceDone => Opcode::AllReduceStart,
        Opcode::AllGatherDone => Opcode::AllGatherStart,
        Opcode::CollectivePermuteDone => Opcode::CollectivePermuteStart,
        Opcode::CopyDone => Opcode::CopyStart,
        Opcode::SendDone => Opcode::Send,
        Opcode::RecvDone => Opcode::Recv,
        Opcode::AsyncDone | Opcode::AsyncUpdate => Opcode::AsyncStart,
        _ => return None,
    })
}

/// Whether the value of a start may pass through `instruction` on its way to the done.
fn carries(instruction: &Instruction) -> bool {
    match &instruction.op {
        Op::Tuple
        | Op::GetTupleElement { .. }
        | Op::OptBarrier
        | Op::Copy
        | Op::While { .. }
        | Op::Call { .. }
        | Op::Conditional { .. }
        | Op::Domain(_) => true,
        Op::CustomCall(call) => matches!(
            &*call.target,
            "Sharding"
                | "SPMDFullToShardShape"
                | "SPMDShardToFullShape"
                | "LocalToGlobalShape"
                | "GlobalToLocalShape"
                | "xla.sdy.LocalToGlobalShape"
                | "xla.sdy.GlobalToLocalShape"
                | "xla.sdy.FuncResultSharding"
                | "control_dep"
        ),
        _ => false,
    }
}

/// A start (or update) is used by one done (or update), and by nothing that is not on the way to one.
fn start(context: &Context, id: InstructionId, done: Opcode, report: &mut Report) {
    let instruction = &context.module[id];
    let (opcode, name) = (instruction.opcode(), instruction.name());
    let finishes = |user: InstructionId| {
        let user = context.module[user].opcode();
        user == done || (done == Opcode::AsyncDone && user == Opcode::AsyncUpdate)
    };
    let mut finisher = None;
    for &user in instruction.users() {
        if finishes(user) {
            if let Some(first) = finisher.replace(user) {
                report.add(
                    Diagnostic::error(
                        &codes::ASYNC_DONE_TWICE,
                        format!(
                            "{opcode} `{name}` is finished by `{}` and by `{}`",
                            context.name(first),
                            context.name(user)
                        ),
                    )
                    .at_instruction(user, Part::Operand(0))
                    .note_at("it is started here", at(id))
                    .note_at("it is finished first here", at(first)),
                );
            }
        } else if !carries(&context.module[user]) {
            let number = context.module[user].operands().iter().position(|o| *o == id).unwrap_or(0);
            report.add(
                Diagnostic::error(
                    &codes::ASYNC_USE,
                    format!(
                        "{} `{}` uses {opcode} `{name}`, which only {done} may use",
                        context.module[user].opcode(),
                        context.name(user)
                    ),
                )
                .at_instruction(user, Part::Operand(number))
                .label("not finished yet")
                .help(format!("use the result of the {done} instead")),
            );
        }
    }
    // A root hands its value to the caller, which may finish it there.
    let is_root = || context.facts.root(instruction.parent()) == Some(id);
    if instruction.users().is_empty() && !is_root() {
        report.add(
            Diagnostic::error(&codes::ASYNC_NOT_DONE, format!("{opcode} `{name}` is never finished"))
                .at_instruction(id, Part::Whole)
                .help(format!("a {done} must take its result")),
        );
    }
}

/// A done (or update) takes a start of its kind; the ends of a transfer agree.
fn done(context: &Context, id: InstructionId, start: Opcode, report: &mut Report) {
    let instruction = &context.module[id];
    let Some(&operand) = instruction.operands().first() else { return };
    let started = &context.module[operand];
    let fits = started.opcode() == start || (start == Opcode::AsyncStart && started.opcode() == Opcode::AsyncUpdate);
    // What is passed in may have been started by the caller; nobody calls the entry.
    let passed_in = matches!(started.op, Op::Parameter { .. }) && context.module.entry() != Some(instruction.parent());
    if !fits && !carries(started) && !passed_in {
        report.add(
            Diagnostic::error(
                &codes::ASYNC_DONE_OPERAND,
                format!(
                    "{} `{}` takes {} `{}`, but finishes only {start}",
                    instruction.opcode(),
                    instruction.name(),
                    started.opcode(),
                    started.name()
                ),
            )
            .at_instruction(id, Part::Operand(0))
            .label(format!("this is {}", started.opcode()))
            .note_at(format!("`{}` is here", started.name()), at(operand)),
        );
    }
    if let (Some(end), Some(begin)) = (transfer(&instruction.op), transfer(&started.op)) {
        let text = |t: &Transfer| match (t.channel_id, t.is_host_transfer) {
            (Some(c), true) => format!("channel {c} to the host"),
            (Some(c), false) => format!("channel {c}"),
            (None, true) => "no channel, to the host".to_owned(),
            (None, false) => "no channel".to_owned(),
        };
        if end != begin {
            report.add(
                Diagnostic::error(
                    &codes::ASYNC_CHANNEL,
                    format!(
                        "`{}` starts on {}, but `{}` finishes on {}",
                        started.name(),
                        text(begin),
                        instruction.name(),
                        text(end)
                    ),
                )
                .at_instruction(id, Part::Attribute("channel_id"))
                .note_at("the transfer starts here", at(operand)),
            );
        }
    }
}

fn transfer(op: &Op) -> Option<&Transfer> {
    match op {
        Op::Send(t) | Op::Recv(t) | Op::SendDone(t) | Op::RecvDone(t) => Some(t),
        _ => None,
    }
}

/// The wrapped computation is for the thread that the start names.
fn async_start(context: &Context, id: InstructionId, start: &AsyncStart, report: &mut Report) {
    let thread = start.execution_thread.as_deref();
    if !same_thread(thread, context.module[start.calls].execution_thread.as_deref()) {
        report.add(thread_mismatch(context, id, "async_execution_thread", thread, start.calls));
    }
}

/// A start that binds only the beginning of its result says nothing of the rest; the wrapped computation does.
fn async_done(context: &Context, id: InstructionId, report: &mut Report) {
    let instruction = &context.module[id];
    let Some(&operand) = instruction.operands().first() else { return };
    let bound = context.module[operand].shape.at(&[1]);
    if bound.is_some_and(|b| compatible(b, &instruction.shape)) {
        return;
    }
    let mut started = operand;
    // Of two users of one step only one is looked at, so that all chains together are walked once.
    while let Op::AsyncUpdate { .. } = context.module[started].op
        && let ([_], Some(&before)) = (context.module[started].users(), context.module[started].operands().first())
    {
        started = before;
    }
    let Op::AsyncStart(start) = &context.module[started].op else { return };
    let Some(root) = context.facts.root(start.calls) else { return };
    let given = &context.module[root].shape;
    if !compatible(given, &instruction.shape) {
        report.add(
            Diagnostic::error(
                &SHAPE_MISMATCH,
                format!(
                    "async-done `{}` is {}, but computation `{}` gives {}",
                    instruction.name(),
                    text(&instruction.shape),
                    context.computation_name(start.calls),
                    text(given)
                ),
            )
            .at_instruction(id, Part::Shape)
            .note_at("it is started here", at(started))
            .note_at(format!("the result is `{}`", context.name(root)), at(root)),
        );
    }
}

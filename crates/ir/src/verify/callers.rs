//! The call graph: no recursion, and bodies of fusions and asynchronous operations belong to one caller.

use super::{Report, at};
use crate::diagnostic::codes::verify as codes;
use crate::diagnostic::{Diagnostic, Part, Place};
use crate::entity::{ComputationId, EntityId, InstructionId};
use crate::module::Module;
use crate::op::Op;

/// An instruction that calls a computation.
#[derive(Clone, Copy)]
pub(super) struct CallSite {
    pub(super) caller: ComputationId,
    pub(super) callee: ComputationId,
    pub(super) instruction: InstructionId,
}

/// How a computation is called, as far as that binds it to one caller.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    Fusion,
    Async,
    Other,
}

/// Who calls each computation.
pub(super) struct Callers {
    /// By computation: the first caller.
    first: Vec<Option<(Use, InstructionId)>>,
}

impl Callers {
    pub(super) fn is_fusion_body(&self, computation: ComputationId) -> bool {
        matches!(self.first.get(computation.index()), Some(Some((Use::Fusion, _))))
    }
}

/// Checks the call graph. `sites` lists each computation's calls together.
pub(super) fn check(module: &Module, sites: &[CallSite], report: &mut Report) -> Callers {
    let mut callers = Callers { first: vec![None; module.computation_slots()] };
    for site in sites {
        let this = match module[site.instruction].op {
            Op::Fusion(_) => Use::Fusion,
            Op::AsyncStart(_) => Use::Async,
            _ => Use::Other,
        };
        let first = &mut callers.first[site.callee.index()];
        match *first {
            None => *first = Some((this, site.instruction)),
            // Plain calls share computations freely.
            Some((Use::Other, _)) if this == Use::Other => {}
            Some((_, other)) => report.add(shared(module, site, other)),
        }
    }
    if let Some(entry) = module.entry()
        && let Some(Some((Use::Fusion | Use::Async, caller))) = callers.first.get(entry.index()).copied()
    {
        let opcode = module[caller].opcode();
        report.add(
            Diagnostic::error(
                &codes::ENTRY_CALLED,
                format!(
                    "the entry computation `{}` is the body of {opcode} `{}`",
                    module[entry].name(),
                    module[caller].name()
                ),
            )
            .at_instruction(caller, Part::Attribute("calls"))
            .note_at("the entry is defined here", Place::Computation(entry)),
        );
    }
    recursion(module, sites, report);
    callers
}

fn shared(module: &Module, site: &CallSite, other: InstructionId) -> Diagnostic {
    let callee = module[site.callee].name();
    let opcode = |id: InstructionId| module[id].opcode();
    let binds = |id: InstructionId| matches!(module[id].op, Op::Fusion(_) | Op::AsyncStart(_));
    let bound = if binds(site.instruction) { site.instruction } else { other };
    let part = if binds(site.instruction) { Part::Attribute("calls") } else { Part::Whole };
    let message = format!(
        "computation `{callee}` is called by {} `{}` and by {} `{}`",
        opcode(other),
        module[other].name(),
        opcode(site.instruction),
        module[site.instruction].name()
    );
    // What a fusion computes is clear all the same; which start an asynchronous body belongs to is not.
    let is_async = |id: InstructionId| matches!(module[id].op, Op::AsyncStart(_));
    let finding = if is_async(site.instruction) || is_async(other) {
        Diagnostic::error(&codes::SHARED_BODY, message)
    } else {
        Diagnostic::warning(&codes::SHARED_BODY, message)
    };
    finding
        .at_instruction(site.instruction, part)
        .label("called here too")
        .note_at("the first call is here", at(other))
        .note_at("the computation is defined here", Place::Computation(site.callee))
        .help(format!("the body of {} belongs to it alone: give each caller a copy of `{callee}`", opcode(bound)))
}

/// Reports a computation that calls itself, directly or through others.
fn recursion(module: &Module, sites: &[CallSite], report: &mut Report) {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut ranges = vec![0..0; module.computation_slots()];
    let mut start = 0;
    for group in sites.chunk_by(|a, b| a.caller == b.caller) {
        ranges[group[0].caller.index()] = start..start + group.len();
        start += group.len();
    }
    let mut marks = vec![Mark::New; module.computation_slots()];
    let mut path: Vec<(ComputationId, usize)> = Vec::new();
    for &from in module.computations() {
        if marks[from.index()] != Mark::New {
            continue;
        }
        marks[from.index()] = Mark::Open;
        path.push((from, 0));
        while let Some((computation, next)) = path.last_mut() {
            let Some(site) = sites[ranges[computation.index()].clone()].get(*next) else {
                marks[computation.index()] = Mark::Done;
                path.pop();
                continue;
            };
            *next += 1;
            match marks[site.callee.index()] {
                Mark::New => {
                    marks[site.callee.index()] = Mark::Open;
                    path.push((site.callee, 0));
                }
                Mark::Open => {
                    let begin = path.iter().position(|(c, _)| *c == site.callee).unwrap_or(0);
                    let names: Vec<_> =
                        path[begin..].iter().take(8).map(|(c, _)| format!("`{}`", module[*c].name())).collect();
                    let more = if path.len() - begin > 8 { " → …" } else { "" };
                    let callee = module[site.callee].name();
                    report.add(
                        Diagnostic::error(&codes::RECURSION, format!("computation `{callee}` calls itself"))
                            .at_instruction(site.instruction, Part::Whole)
                            .label(format!("calls `{callee}` again"))
                            .note(format!("the calls are {}{more} → `{callee}`", names.join(" → ")))
                            .help("HLO has no recursion: use a while loop"),
                    );
                    return;
                }
                Mark::Done => {}
            }
        }
    }
}

//! Structure: computations, operands, order and sizes. What the other checks, and all later stages, rely on.
//!
//! One walk over all instructions, with positions in a table by instruction; a computation whose list is not in
//! dependency order is walked again to tell a cycle from a schedule that is wrong. Nothing here recurses.

use super::callers::{self, CallSite};
use super::{Report, at, shapes};
use crate::diagnostic::codes::{infer, verify as codes};
use crate::diagnostic::{Blame, Diagnostic, Part, Place};
use crate::entity::{ComputationId, EntityId, InstructionId};
use crate::infer::counted;
use crate::module::Module;
use crate::op::Op;
use std::ops::Range;

/// What the walk over the structure found out, for the other checks.
pub(super) struct Facts {
    /// The parameters of all computations, each computation's in the order of their numbers.
    parameters: Vec<InstructionId>,
    /// By computation.
    signatures: Vec<Signature>,
}

#[derive(Clone, Default)]
struct Signature {
    parameters: Range<usize>,
    root: Option<InstructionId>,
}

impl Facts {
    /// The parameters of `computation` in the order of their numbers.
    pub(super) fn parameters(&self, computation: ComputationId) -> &[InstructionId] {
        let range = self.signatures.get(computation.index()).map_or(0..0, |s| s.parameters.clone());
        self.parameters.get(range).unwrap_or_default()
    }
    /// The root of `computation`.
    pub(super) fn root(&self, computation: ComputationId) -> Option<InstructionId> {
        self.signatures.get(computation.index())?.root
    }
}

/// A slot of the position table that no computation lists.
const UNLISTED: u32 = u32::MAX;

/// Checks the structure; `None` when it is so wrong that nothing else can be checked.
pub(super) fn check(module: &Module, report: &mut Report) -> Option<Facts> {
    match module.entry() {
        Some(entry) if module.computations.get(entry).is_some() => {}
        _ => report.add(
            Diagnostic::error(&codes::NO_ENTRY, format!("module `{}` has no entry computation", module.name))
                .at_place(Place::Header)
                .help("mark the computation where the program starts with `ENTRY`"),
        ),
    }
    let mut walk = Walk {
        module,
        positions: vec![UNLISTED; module.instruction_slots()],
        balance: vec![0; module.instruction_slots()],
        last_use: vec![UNLISTED; module.instruction_slots()],
        listed: vec![false; module.computation_slots()],
        sites: Vec::new(),
        out_of_order: Vec::new(),
        facts: Facts { parameters: Vec::new(), signatures: vec![Signature::default(); module.computation_slots()] },
    };
    walk.number(report);
    for &computation in module.computations() {
        walk.computation(computation, report);
    }
    walk.users(report);
    if report.has_errors() {
        return None;
    }
    let Walk { positions, sites, out_of_order, facts, .. } = walk;
    let callers = callers::check(module, &sites, report);
    for computation in out_of_order {
        order(module, computation, &positions, module.is_scheduled && !callers.is_fusion_body(computation), report);
    }
    (!report.has_errors()).then_some(facts)
}

struct Walk<'m> {
    module: &'m Module,
    /// By instruction: its place in the concatenation of all lists.
    positions: Vec<u32>,
    /// By instruction: the sum of its uses less the sum of its users; zero when the two agree.
    balance: Vec<u64>,
    /// By instruction: the position of the last user seen, to count a repeated operand once.
    last_use: Vec<u32>,
    /// By computation: whether it is still part of the module.
    listed: Vec<bool>,
    sites: Vec<CallSite>,
    /// Computations whose list is not in dependency order.
    out_of_order: Vec<ComputationId>,
    facts: Facts,
}

impl Walk<'_> {
    /// Gives every listed instruction its position, and notes which computations are listed.
    fn number(&mut self, report: &mut Report) {
        let mut next = 0;
        for &computation in self.module.computations() {
            if let Some(listed) = self.listed.get_mut(computation.index()) {
                *listed = true;
            }
            for &id in self.module[computation].instructions() {
                match self.positions.get_mut(id.index()) {
                    Some(position) if *position == UNLISTED => *position = next,
                    _ => report.add(inconsistent("an instruction is listed twice", Place::Computation(computation))),
                }
                next += 1;
            }
        }
    }

    fn computation(&mut self, computation: ComputationId, report: &mut Report) {
        let module = self.module;
        let body = &module[computation];
        let Some(root) = module.root(computation) else {
            report.add(
                Diagnostic::error(&codes::EMPTY_COMPUTATION, format!("computation `{}` is empty", body.name()))
                    .at_place(Place::Computation(computation)),
            );
            return;
        };
        // The positions of a computation are a range: one look-up tells whether an operand is of the same computation.
        let Some(&start) = body.instructions().first().and_then(|i| self.positions.get(i.index())) else { return };
        let own = start..start + body.instructions().len() as u32;
        if !self.positions.get(root.index()).is_some_and(|p| own.contains(p)) {
            report.add(inconsistent("the root is not listed", Place::Computation(computation)));
        }
        let first_parameter = self.facts.parameters.len();
        let mut in_order = true;
        for (position, &id) in own.clone().zip(body.instructions()) {
            let instruction = &module[id];
            if instruction.parent() != computation {
                report.add(inconsistent("an instruction is listed in a computation that is not its own", at(id)));
            }
            for (number, &operand) in instruction.operands().iter().enumerate() {
                let of_operand = self.positions.get(operand.index()).copied().unwrap_or(UNLISTED);
                if !own.contains(&of_operand) {
                    report.add(operand_elsewhere(module, id, number, operand));
                    continue;
                }
                in_order &= of_operand < position;
                if self.last_use[operand.index()] != position {
                    self.last_use[operand.index()] = position;
                    let balance = &mut self.balance[operand.index()];
                    *balance = balance.wrapping_add(mix(id));
                }
            }
            for &user in instruction.users() {
                let balance = &mut self.balance[id.index()];
                *balance = balance.wrapping_sub(mix(user));
            }
            for &predecessor in instruction.common.control_predecessors() {
                let of_predecessor = self.positions.get(predecessor.index()).copied().unwrap_or(UNLISTED);
                if own.contains(&of_predecessor) {
                    in_order &= of_predecessor < position;
                } else {
                    report.add(control_elsewhere(module, id, predecessor));
                }
            }
            arity(module, id, report);
            shapes::check(&instruction.shape, report, id);
            match instruction.op {
                Op::Parameter { .. } => self.facts.parameters.push(id),
                _ => self.call_sites(computation, id, report),
            }
        }
        if body.parameters.len() != self.facts.parameters.len() - first_parameter {
            report.add(inconsistent("the list of parameters is wrong", Place::Computation(computation)));
        }
        if !in_order {
            self.out_of_order.push(computation);
        }
        let range = first_parameter..self.facts.parameters.len();
        number_parameters(module, &mut self.facts.parameters[range.clone()], report);
        if let Some(signature) = self.facts.signatures.get_mut(computation.index()) {
            *signature = Signature { parameters: range, root: Some(root) };
        }
    }

    /// Notes the computations that `id` calls.
    fn call_sites(&mut self, caller: ComputationId, id: InstructionId, report: &mut Report) {
        for callee in self.module[id].op.called_computations() {
            if !self.listed.get(callee.index()).is_some_and(|l| *l) {
                report.add(
                    Diagnostic::error(
                        &codes::UNKNOWN_COMPUTATION,
                        format!("`{}` calls a computation that does not exist", self.module[id].name()),
                    )
                    .at_instruction(id, Part::Whole),
                );
            }
            self.sites.push(CallSite { caller, callee, instruction: id });
        }
    }

    /// Reports values whose list of users is not the list of instructions that use them.
    fn users(&self, report: &mut Report) {
        for (slot, _) in self.balance.iter().enumerate().filter(|(_, b)| **b != 0) {
            let id = InstructionId::from_index(slot);
            if self.positions.get(slot).is_some_and(|p| *p != UNLISTED) && !report.has_errors() {
                report.add(inconsistent("the users of an instruction are not those that use it", at(id)));
            }
        }
    }
}

/// Spreads ids so that sums of different sets of users differ.
fn mix(id: InstructionId) -> u64 {
    (id.index() as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

fn inconsistent(what: &str, place: Place) -> Diagnostic {
    Diagnostic::error(&codes::INCONSISTENT, format!("the module is inconsistent: {what}"))
        .blame(Blame::Hloom)
        .at_place(place)
}

fn operand_elsewhere(module: &Module, id: InstructionId, number: usize, operand: InstructionId) -> Diagnostic {
    let (user, used) = (&module[id], &module[operand]);
    Diagnostic::error(
        &codes::OPERAND_ELSEWHERE,
        format!(
            "operand {number} of `{}`, `{}`, is not an instruction of computation `{}`",
            user.name(),
            used.name(),
            module[user.parent()].name()
        ),
    )
    .at_instruction(id, Part::Operand(number))
    .note_at(format!("`{}` is in computation `{}`", used.name(), module[used.parent()].name()), at(operand))
    .help("pass the value in as a parameter")
}

fn control_elsewhere(module: &Module, id: InstructionId, predecessor: InstructionId) -> Diagnostic {
    let user = &module[id];
    let name = module.instructions.get(predecessor).map_or("?", |p| p.name());
    Diagnostic::error(
        &codes::CONTROL_ELSEWHERE,
        format!(
            "control predecessor `{name}` of `{}` is not an instruction of computation `{}`",
            user.name(),
            module[user.parent()].name()
        ),
    )
    .at_instruction(id, Part::Attribute("control-predecessors"))
}

fn arity(module: &Module, id: InstructionId, report: &mut Report) {
    let instruction = &module[id];
    let opcode = instruction.opcode();
    let (Some(expected), given) = (opcode.arity(), instruction.operands().len()) else { return };
    if expected != given {
        report.add(
            Diagnostic::error(
                &infer::OPERAND_COUNT,
                format!("{opcode} takes {}, but `{}` has {given}", counted(expected, "operand"), instruction.name()),
            )
            .at_instruction(id, Part::Opcode)
            .label(format!("takes {}", counted(expected, "operand"))),
        );
    }
}

/// Puts the parameters of one computation in the order of their numbers, which must be 0, 1, ….
fn number_parameters(module: &Module, parameters: &mut [InstructionId], report: &mut Report) {
    let number = |id: InstructionId| match module[id].op {
        Op::Parameter { number, .. } => number,
        _ => -1,
    };
    parameters.sort_by_key(|&p| number(p));
    let Some((i, &id)) = parameters.iter().enumerate().find(|(i, p)| number(**p) != *i as i64) else { return };
    let computation = module[module[id].parent()].name();
    let mut finding = if i > 0 && number(parameters[i - 1]) == number(id) {
        Diagnostic::error(
            &codes::PARAMETER_NUMBER,
            format!("computation `{computation}` has two parameters with number {}", number(id)),
        )
        .note_at("the first is here", at(parameters[i - 1]))
    } else {
        Diagnostic::error(
            &codes::PARAMETER_NUMBER,
            format!("computation `{computation}` has parameter {} but no parameter {i}", number(id)),
        )
    };
    finding.label = format!("expected parameter({i})");
    report.add(finding.at_instruction(id, Part::Operand(0)));
}

/// A computation whose list is not in dependency order: a cycle, or, where order matters, a wrong schedule.
fn order(module: &Module, computation: ComputationId, positions: &[u32], scheduled: bool, report: &mut Report) {
    let body = module[computation].instructions();
    if let Some(cycle) = find_cycle(module, body, positions) {
        let names: Vec<_> = cycle.iter().take(8).map(|&i| format!("`{}`", module[i].name())).collect();
        let more = if cycle.len() > 8 { ", …" } else { "" };
        let first = cycle[0];
        report.add(
            Diagnostic::error(&codes::CYCLE, format!("`{}` needs its own result", module[first].name()))
                .at_instruction(first, Part::Whole)
                .note(format!("each needs the next: {}{more}, {}", names.join(", "), names[0])),
        );
        return;
    }
    if !scheduled {
        return;
    }
    for &id in body {
        let instruction = &module[id];
        let later = |other: &InstructionId| positions[other.index()] >= positions[id.index()];
        let (needed, part) = match instruction.operands().iter().position(later) {
            Some(n) => (instruction.operands()[n], Part::Operand(n)),
            None => match instruction.common.control_predecessors().iter().copied().find(|p| later(p)) {
                Some(p) => (p, Part::Attribute("control-predecessors")),
                None => continue,
            },
        };
        report.add(
            Diagnostic::error(
                &codes::SCHEDULE_ORDER,
                format!("`{}` is scheduled before `{}`, which it needs", instruction.name(), module[needed].name()),
            )
            .at_instruction(id, part)
            .note_at(format!("`{}` comes only here", module[needed].name()), at(needed))
            .help("in a module with `is_scheduled=true` the order of the instructions is the schedule"),
        );
    }
}

/// A cycle through operands and control predecessors, each member needing the next; `None` if there is none.
fn find_cycle(module: &Module, body: &[InstructionId], positions: &[u32]) -> Option<Vec<InstructionId>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let start = positions.get(body.first()?.index())?;
    let local = |id: InstructionId| (positions[id.index()] - start) as usize;
    let needs = |id: InstructionId, n: usize| {
        let i = &module[id];
        i.operands().get(n).or_else(|| i.common.control_predecessors().get(n - i.operands().len())).copied()
    };
    let mut marks = vec![Mark::New; body.len()];
    let mut path: Vec<(InstructionId, usize)> = Vec::new();
    for &from in body {
        if marks[local(from)] != Mark::New {
            continue;
        }
        marks[local(from)] = Mark::Open;
        path.push((from, 0));
        while let Some((id, next)) = path.last_mut() {
            let id = *id;
            let Some(needed) = needs(id, *next) else {
                marks[local(id)] = Mark::Done;
                path.pop();
                continue;
            };
            *next += 1;
            match marks[local(needed)] {
                Mark::New => {
                    marks[local(needed)] = Mark::Open;
                    path.push((needed, 0));
                }
                Mark::Open => {
                    let begin = path.iter().position(|(i, _)| *i == needed).unwrap_or(0);
                    return Some(path[begin..].iter().map(|(i, _)| *i).collect());
                }
                Mark::Done => {}
            }
        }
    }
    None
}

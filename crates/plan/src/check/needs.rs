//! When values are read: what the live ranges of an assignment must cover.
//!
//! Noted while the module is run. Values that take turns in the same memory by the meaning of the program (what a loop
//! carries, in-place operations) form a *line*: each is to be kept until the next begins, and the last for as long as any
//! is read.

use super::assignment::Ranged;
use crate::calls::completed;
use crate::positions::{Position, Positions};
use hloom_ir::diagnostic::codes::plan::SHORT_RANGE;
use hloom_ir::diagnostic::{Diagnostic, Part};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::FxHashMap;

type Time = u32;

/// From when to when each instruction and computation runs: what an instruction calls runs right before it.
pub(super) struct Times {
    own: Vec<Time>,
    span: Vec<(Time, Time)>,
    pub(super) end: Time,
}

impl Times {
    pub(super) fn new(module: &Module) -> Times {
        let mut times =
            Times { own: vec![0; module.instruction_slots()], span: vec![(0, 0); module.computation_slots()], end: 0 };
        let Some(entry) = module.entry() else { return times };
        // Computations to begin, instructions to come to, computations to end; what comes first is last.
        enum Step {
            Begin(ComputationId),
            Come(InstructionId),
            End(ComputationId),
        }
        let mut now = 0;
        let mut seen = vec![false; module.computation_slots()];
        let mut steps = vec![Step::Begin(entry)];
        while let Some(step) = steps.pop() {
            match step {
                Step::Begin(computation) => {
                    if std::mem::replace(&mut seen[computation.index()], true) {
                        continue;
                    }
                    times.span[computation.index()].0 = now;
                    steps.push(Step::End(computation));
                    for &id in module[computation].instructions().iter().rev() {
                        steps.push(Step::Come(id));
                        let called: &[ComputationId] = match &module[id].op {
                            Op::While { condition, body } => &[*body, *condition],
                            Op::Call { to_apply, .. } => &[*to_apply],
                            Op::AsyncStart(_) | Op::AsyncUpdate { .. } => {
                                steps.extend(completed(module, id).map(Step::Begin));
                                &[]
                            }
                            Op::Conditional { branches } => {
                                steps.extend(branches.iter().rev().map(|&b| Step::Begin(b)));
                                &[]
                            }
                            _ => &[],
                        };
                        steps.extend(called.iter().map(|&c| Step::Begin(c)));
                    }
                }
                Step::Come(id) => {
                    times.own[id.index()] = now;
                    now += 1;
                }
                Step::End(computation) => times.span[computation.index()].1 = now,
            }
        }
        times.end = now;
        times
    }

    pub(super) fn of(&self, id: InstructionId) -> Time {
        self.own[id.index()]
    }

    pub(super) fn begin(&self, computation: ComputationId) -> Time {
        self.span[computation.index()].0
    }

    pub(super) fn end_of(&self, computation: ComputationId) -> Time {
        self.span[computation.index()].1
    }
}

/// What was noted.
pub(super) struct Needs {
    pub(super) times: Times,
    /// The time that the run has come to.
    pub(super) now: Time,
    /// The value that is at each position, by where it is made or merged.
    value: Vec<Position>,
    /// When each value was first written and last read.
    needed: Vec<Option<(Time, Time)>>,
    /// For each value another of its line that is nearer to its head; a head has itself.
    line: Vec<Position>,
}

impl Needs {
    pub(super) fn new(positions: &Positions<'_>) -> Needs {
        Needs {
            times: Times::new(positions.module()),
            now: 0,
            value: (0..positions.len() as Position).collect(),
            needed: vec![None; positions.len()],
            line: (0..positions.len() as Position).collect(),
        }
    }

    /// A value is made or merged at `position`.
    pub(super) fn begin(&mut self, position: Position, at: Time) {
        self.value[position as usize] = position;
        let needed = self.needed[position as usize].get_or_insert((at, at));
        needed.0 = needed.0.min(at);
    }

    pub(super) fn forward(&mut self, from: Position, to: Position) {
        self.value[to as usize] = self.value[from as usize];
    }

    pub(super) fn read(&mut self, position: Position) {
        let now = self.now;
        if let Some(needed) = &mut self.needed[self.value[position as usize] as usize] {
            needed.1 = needed.1.max(now);
        }
    }

    /// The values at two positions are the same memory by the meaning of the program.
    pub(super) fn join(&mut self, a: Position, b: Position) {
        let (a, b) = (self.head(self.value[a as usize]), self.head(self.value[b as usize]));
        if a != b {
            self.line[b as usize] = a;
        }
    }

    fn head(&mut self, mut at: Position) -> Position {
        while self.line[at as usize] != at {
            let up = self.line[at as usize];
            self.line[at as usize] = self.line[up as usize];
            at = up;
        }
        at
    }

    /// Finds ranges that do not cover what was noted.
    pub(super) fn check(mut self, positions: &Positions<'_>, ranges: &[Ranged], faults: &mut Vec<Diagnostic>) {
        let mut lines: FxHashMap<Position, Vec<(Time, Time, Position, usize)>> = FxHashMap::default();
        for (n, range) in ranges.iter().enumerate() {
            let Some(part) = positions.part(range.instruction, &range.index) else { continue };
            let head = self.head(part.start);
            lines.entry(head).or_default().push((range.start, range.end, part.start, n));
        }
        let mut found: Vec<(usize, Time, Time)> = Vec::new();
        for line in lines.values_mut() {
            line.sort_unstable();
            let mut until = 0;
            for (at, &(start, end, position, n)) in line.iter().enumerate() {
                let Some((first, last)) = self.needed[position as usize] else {
                    // Nobody reads it, but it is made.
                    if start > end {
                        found.push((n, end, end));
                    }
                    continue;
                };
                until = last.max(until);
                let next = line.get(at + 1).map_or(Time::MAX, |next| next.0);
                if start > first || end < until.min(next) {
                    found.push((n, first, until.min(next)));
                }
            }
        }
        found.sort_unstable();
        for (n, first, last) in found {
            let Ranged { instruction, start, end, .. } = ranges[n];
            let name = positions.module()[instruction].name();
            let message = format!("`{name}` is said to be needed from {start} to {end}, and is from {first} to {last}");
            faults.push(Diagnostic::error(&SHORT_RANGE, message).at_instruction(instruction, Part::Whole));
        }
    }
}

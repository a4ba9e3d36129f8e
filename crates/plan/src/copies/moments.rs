//! Time for copy insertion: every instruction, every beginning and end of a computation has moments of its own.
//!
//! An instruction that calls nothing has the moments of a copy before it (read, then write) and its own, at which it
//! reads and writes. What it calls runs between those before it and its own. At the end of a computation there are again
//! the moments of copies (read, then write), and the end itself, at which its result is there for the caller.

use super::Order;
use crate::dataflow::{Dataflow, ValueId};
use crate::order::flow_callees;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::sites::Slot;

pub(super) type Moment = u32;

const NEVER: Moment = Moment::MAX;

/// The moments of copies before an instruction: after those, what it calls begins.
const BEFORE: Moment = 3;

pub(super) struct Moments {
    /// When copies before an instruction read; they write one later, and what they wrote is there one after that.
    before: Vec<Moment>,
    own: Vec<Moment>,
    begin: Vec<Moment>,
    /// When copies at the end of a computation read.
    finish: Vec<Moment>,
    /// How many loops a computation is in.
    depth: Vec<u32>,
    last: Moment,
}

impl Moments {
    /// The moments of `module` when its instructions are in `order`; `None` if there are too many.
    pub(super) fn new(module: &Module, order: &Order) -> Option<Moments> {
        let mut moments = Moments {
            before: vec![NEVER; module.instruction_slots()],
            own: vec![NEVER; module.instruction_slots()],
            begin: vec![NEVER; module.computation_slots()],
            finish: vec![NEVER; module.computation_slots()],
            depth: vec![0; module.computation_slots()],
            last: 0,
        };
        let Some(entry) = module.entry() else { return Some(moments) };
        let mut now: Moment = 0;
        // What is entered, how far it has come, and whether the calls of the instruction there were followed.
        let mut stack: Vec<(ComputationId, usize, bool)> = vec![(entry, 0, false)];
        while let Some(&mut (computation, ref mut at, ref mut entered)) = stack.last_mut() {
            if *at == 0 && !*entered {
                moments.begin[computation.index()] = now;
                now = now.checked_add(1)?;
            }
            let Some(&id) = order[computation.index()].get(*at) else {
                moments.finish[computation.index()] = now;
                now = now.checked_add(3)?;
                stack.pop();
                continue;
            };
            if !*entered {
                *entered = true;
                moments.before[id.index()] = now;
                now = now.checked_add(BEFORE)?;
                let depth = moments.depth[computation.index()] + u32::from(matches!(module[id].op, Op::While { .. }));
                for &callee in flow_callees(module, id).iter().rev() {
                    // Each has one caller, which may name it twice.
                    if moments.begin[callee.index()] == NEVER {
                        moments.depth[callee.index()] = depth;
                        stack.push((callee, 0, false));
                    }
                }
                continue;
            }
            *entered = false;
            *at += 1;
            moments.own[id.index()] = now;
            now = now.checked_add(1)?;
        }
        moments.last = now;
        Some(moments)
    }

    /// Whether the computation runs as a part of the flow.
    pub(super) fn runs(&self, computation: ComputationId) -> bool {
        self.finish[computation.index()] != NEVER
    }

    pub(super) fn own(&self, id: InstructionId) -> Moment {
        self.own[id.index()]
    }

    /// From when to when what a copy before the instruction wrote waits for it.
    pub(super) fn copied_before(&self, module: &Module, id: InstructionId) -> (Moment, Moment) {
        let before = self.before[id.index()];
        let until = if flow_callees(module, id).is_empty() { self.own(id) } else { before + BEFORE - 1 };
        (before + 1, until)
    }

    /// From when to when what a copy at the end of a computation wrote waits for the caller.
    pub(super) fn copied_at_end(&self, computation: ComputationId) -> (Moment, Moment) {
        let finish = self.finish[computation.index()];
        (finish + 1, finish + 2)
    }

    pub(super) fn begin(&self, computation: ComputationId) -> Moment {
        self.begin[computation.index()]
    }

    pub(super) fn depth(&self, computation: ComputationId) -> u32 {
        self.depth[computation.index()]
    }

    /// The moment after everything.
    pub(super) fn last(&self) -> Moment {
        self.last
    }

    /// When a value is needed, as intervals with both ends included, in order and apart. `edges` are the slots at which it
    /// could be copied: there it is needed no longer than until the copy reads it.
    pub(super) fn needed(
        &self,
        dataflow: &Dataflow<'_>,
        edges: &FxHashSet<Slot>,
        always: &[bool],
        value: ValueId,
    ) -> SmallVec<[(Moment, Moment); 1]> {
        let module = dataflow.module();
        if always[value as usize] {
            return SmallVec::from_slice(&[(0, self.last + 1)]);
        }
        // One stretch for each position and use; those of one computation are one.
        let mut spans: SmallVec<[(ComputationId, Moment, Moment); 4]> = SmallVec::new();
        let mut add = |home: ComputationId, from: Moment, to: Moment| spans.push((home, from, to));
        for &position in dataflow.positions_of(value) {
            let id = dataflow.positions.instruction(position);
            let home = module[id].parent();
            if !self.runs(home) {
                continue;
            }
            let is_parameter = matches!(module[id].op, Op::Parameter { .. });
            let from = if is_parameter { self.begin(home) } else { self.own(id) };
            let to = match module.root(home) == Some(id) {
                true if edges.contains(&Slot::Root(home, position)) => self.finish[home.index()],
                true => self.finish[home.index()] + 2,
                false => from,
            };
            add(home, from, to.max(from));
        }
        for usage in dataflow.uses_of(value) {
            let home = module[usage.user].parent();
            if !self.runs(home) {
                continue;
            }
            let slot = Slot::Operand(usage.user, usage.operand, usage.position);
            // What is called gets its operands when it begins, and has positions of its own for them.
            let is_early = edges.contains(&slot) || !flow_callees(module, usage.user).is_empty();
            let at = if is_early { self.before[usage.user.index()] } else { self.own(usage.user) };
            add(home, at, at);
        }
        spans.sort_unstable();
        let mut intervals: SmallVec<[(Moment, Moment); 1]> = SmallVec::new();
        for of_one in spans.chunk_by(|a, b| a.0 == b.0) {
            let to = of_one.iter().map(|s| s.2).max().unwrap_or(0);
            intervals.extend(of_one.first().map(|first| (first.1, to)));
        }
        intervals.sort_unstable();
        let mut apart: SmallVec<[(Moment, Moment); 1]> = SmallVec::new();
        for (from, to) in intervals {
            match apart.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => apart.push((from, to)),
            }
        }
        apart
    }
}

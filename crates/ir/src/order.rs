//! Post-order: instructions with everything they need before them, computations with everything they call.
//!
//! From each instruction without users, in the order in which they stand: first what it must come after (last one
//! first), then its operands from left to right, then itself. Every instruction of the computation comes exactly once,
//! whatever the module looks like; what only a cycle leads to comes last.

use crate::entity::{ComputationId, EntityId, InstructionId};
use crate::module::Module;

/// Works out post-orders; keeps its tables from one computation to the next.
#[derive(Debug)]
pub struct PostOrder<'m> {
    module: &'m Module,
    state: Vec<State>,
    stack: Vec<InstructionId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    New,
    Open,
    Done,
}

impl<'m> PostOrder<'m> {
    /// For the computations of `module`.
    pub fn new(module: &'m Module) -> PostOrder<'m> {
        PostOrder { module, state: vec![State::New; module.instruction_slots()], stack: Vec::new() }
    }

    /// The instructions of `computation` in post-order.
    pub fn instructions(&mut self, computation: ComputationId) -> Vec<InstructionId> {
        let module = self.module;
        let stored = module[computation].instructions();
        for &id in stored {
            self.state[id.index()] = State::New;
        }
        let mut order = Vec::with_capacity(stored.len());
        for &id in stored {
            if module[id].users().is_empty() {
                self.visit(id, &mut order);
            }
        }
        if order.len() < stored.len() {
            for &id in stored {
                self.visit(id, &mut order);
            }
        }
        order
    }

    fn visit(&mut self, from: InstructionId, order: &mut Vec<InstructionId>) {
        self.push(from);
        while let Some(&id) = self.stack.last() {
            match self.state[id.index()] {
                State::New => {
                    self.state[id.index()] = State::Open;
                    let instruction = &self.module[id];
                    for &operand in instruction.operands().iter().rev() {
                        self.push(operand);
                    }
                    for &predecessor in instruction.common.control_predecessors() {
                        self.push(predecessor);
                    }
                }
                State::Open => {
                    self.stack.pop();
                    self.state[id.index()] = State::Done;
                    order.push(id);
                }
                State::Done => {
                    self.stack.pop();
                }
            }
        }
    }

    fn push(&mut self, id: InstructionId) {
        // Only what is in a cycle can be open here; it comes when its own turn does.
        if self.state[id.index()] == State::New {
            self.stack.push(id);
        }
    }
}

/// Computations with everything they call before them, by all calls.
pub fn computations(module: &Module) -> Vec<ComputationId> {
    let mut calls = vec![Vec::new(); module.computation_slots()];
    for &c in module.computations() {
        for &i in module[c].instructions() {
            let called = module[i].op.called_computations();
            if !called.is_empty() {
                calls[c.index()].extend(called);
            }
        }
    }
    computations_by_calls(module, &calls)
}

/// Computations in post-order of calls, from each one that nothing calls, in the order in which they stand. `calls` has,
/// by a computation's index, what it calls, in the order in which that counts.
pub fn computations_by_calls(module: &Module, calls: &[Vec<ComputationId>]) -> Vec<ComputationId> {
    let mut called = vec![false; module.computation_slots()];
    for callee in calls.iter().flatten() {
        called[callee.index()] = true;
    }
    let mut order = Vec::with_capacity(module.computations().len());
    let mut seen = vec![false; module.computation_slots()];
    let mut stack: Vec<(ComputationId, usize)> = Vec::new();
    let roots = module.computations().iter().filter(|c| !called[c.index()]);
    for &root in roots.chain(module.computations()) {
        if std::mem::replace(&mut seen[root.index()], true) {
            continue;
        }
        stack.push((root, 0));
        while let Some((computation, next)) = stack.last_mut() {
            match calls[computation.index()].get(*next) {
                Some(&callee) => {
                    *next += 1;
                    if !std::mem::replace(&mut seen[callee.index()], true) {
                        stack.push((callee, 0));
                    }
                }
                None => {
                    order.push(*computation);
                    stack.pop();
                }
            }
        }
    }
    order
}

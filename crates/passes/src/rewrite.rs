//! Rules and the worklist that applies them.
//!
//! A [`Rule`] looks at one instruction and, if its guard holds, gives the value that is to stand for it, having added the
//! instructions that make it. [`rewrite`] applies a set of rules to a module until none of them holds anywhere: it visits
//! every instruction once, and then again only those that a rewrite touched. So a rule need not look far, nor undo or
//! clean up: what is no longer used goes away by itself.
//!
//! What the worklist takes care of, so that rules need not:
//! - instructions that control dependencies name are not offered, nor arrays of dynamic size;
//! - the replacement must have the shape of what it replaces; where only the layouts differ, it must not be the operand
//!   of a bitcast, to which they mean something;
//! - new instructions get the metadata of what they replace;
//! - what a rule added before it found that it does not apply is taken back;
//! - rules that undo each other do not run for ever.

use crate::facts::pinned;
use hloom_analysis::effects::has_side_effect;
use hloom_ir::entity::{EntityId, InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Range;

/// A rewrite of one instruction.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Its name, for reports and tests.
    pub name: &'static str,
    /// What it does, in one line: `before → after`.
    pub statement: &'static str,
    /// The opcodes it is about; empty for all.
    pub opcodes: &'static [Opcode],
    /// The value to use instead of the instruction, or the instruction itself if it was changed in place; `None`, with
    /// nothing changed but for instructions added that nothing uses, if the rule does not apply.
    pub apply: fn(&mut Module, InstructionId) -> Option<InstructionId>,
}

/// Applies families of rules until none does, and removes what is no longer used. Returns the number of rewrites.
pub fn rewrite(module: &mut Module, families: &[&[Rule]]) -> usize {
    let mut by_opcode: Vec<SmallVec<[&Rule; 8]>> = vec![SmallVec::new(); Opcode::ALL.len()];
    for rule in families.iter().copied().flatten() {
        let opcodes = if rule.opcodes.is_empty() { Opcode::ALL } else { rule.opcodes };
        opcodes.iter().for_each(|&o| by_opcode[o as usize].push(rule));
    }
    // What rules add comes last in its computation, and must not become the root by that.
    for c in module.computations().to_vec() {
        if let Some(root) = module.root(c) {
            module.set_root(root);
        }
    }
    let mut work = Worklist::new(module);
    // Each rewrite is meant to lead nearer to an end; where two undo each other, this ends it.
    let mut left = 1000 + 16 * work.queue.len();
    let mut changes = 0;
    while let Some(i) = work.take() {
        if work.bury_if_unused(module, i) || work.pinned[i] || !is_static(module, i) {
            continue;
        }
        for rule in &by_opcode[module[i].op.opcode() as usize] {
            let before = module.instruction_slots();
            let replacement = (rule.apply)(module, i);
            let added = before..module.instruction_slots();
            let replacement = replacement.filter(|&new| new == i || fits(module, i, new));
            let Some(new) = replacement else {
                work.discard(module, added);
                continue;
            };
            for new in added.map(InstructionId::from_index) {
                if module[new].common.metadata.is_none() {
                    module.instruction_mut(new).common.metadata = module[i].common.metadata.clone();
                }
                work.push(new);
            }
            changes += 1;
            left -= 1;
            work.push(new);
            if new != i {
                let _same_computation = module.replace_all_uses(i, new);
            }
            module[new].users().iter().for_each(|&u| work.push(u));
            if new == i {
                module[i].operands().iter().for_each(|&o| work.push(o));
            }
            work.bury_if_unused(module, i);
            break;
        }
        if left == 0 {
            break;
        }
    }
    work.remove_dead(module);
    changes
}

/// Whether the instruction and all arrays it reads have static sizes.
fn is_static(module: &Module, i: InstructionId) -> bool {
    let is_dynamic = |i: InstructionId| module[i].shape.as_array().is_some_and(|a| a.is_dynamic());
    !is_dynamic(i) && !module[i].operands().iter().any(|&o| is_dynamic(o))
}

/// Whether `new` can stand for `old`.
fn fits(module: &Module, old: InstructionId, new: InstructionId) -> bool {
    let (a, b) = (&module[old].shape, &module[new].shape);
    let same_home = module[old].parent() == module[new].parent();
    debug_assert!(same_home && a.equal_ignoring_layout(b), "{} {a} cannot become {b}", module[old].name());
    same_home
        && a.equal_ignoring_layout(b)
        && (a == b || !module[old].users().iter().any(|&u| matches!(module[u].op, Op::Bitcast)))
}

/// Instructions to look at, and those found dead.
struct Worklist {
    queue: VecDeque<InstructionId>,
    queued: SideTable<InstructionId, bool>,
    /// Instructions that a control dependency names, on either side.
    pinned: SideTable<InstructionId, bool>,
    dead: Vec<InstructionId>,
    is_dead: SideTable<InstructionId, bool>,
}

impl Worklist {
    /// All instructions of `module`.
    fn new(module: &Module) -> Worklist {
        let slots = module.instruction_slots();
        let mut work = Worklist {
            queue: VecDeque::with_capacity(slots),
            queued: SideTable::with_len(slots, false),
            pinned: pinned(module),
            dead: Vec::new(),
            is_dead: SideTable::with_len(slots, false),
        };
        for &i in module.computations().iter().flat_map(|&c| module[c].instructions()) {
            work.push(i);
        }
        work
    }

    fn push(&mut self, i: InstructionId) {
        if !self.is_dead[i] && !std::mem::replace(self.queued.get_mut(i), true) {
            self.queue.push_back(i);
        }
    }

    fn take(&mut self) -> Option<InstructionId> {
        let i = self.queue.pop_front()?;
        self.queued.set(i, false);
        Some(i)
    }

    /// Notes that `i` is dead if it is, and with it whatever only it used.
    fn bury_if_unused(&mut self, module: &mut Module, i: InstructionId) -> bool {
        if !self.is_unused(module, i) {
            return self.is_dead[i];
        }
        let mut stack = vec![i];
        while let Some(i) = stack.pop() {
            if !self.is_unused(module, i) {
                continue;
            }
            self.is_dead.set(i, true);
            self.dead.push(i);
            for operand in module.release_operands(i) {
                // To have one user only may be what a rule waited for.
                if let &[only] = module[operand].users() {
                    self.push(operand);
                    self.push(only);
                }
                stack.push(operand);
            }
        }
        true
    }

    /// Takes back what a rule added that did not apply. Nobody is woken by that, else the rule would be asked again and
    /// add it again, for ever.
    fn discard(&mut self, module: &mut Module, added: Range<usize>) {
        for i in added.rev().map(InstructionId::from_index).collect::<SmallVec<[_; 8]>>() {
            if self.is_unused(module, i) {
                self.is_dead.set(i, true);
                self.dead.push(i);
                module.release_operands(i);
            } else {
                self.push(i);
            }
        }
    }

    /// Whether nothing needs `i`. What calls computations may have effects inside: that is for dead code elimination.
    fn is_unused(&self, module: &Module, i: InstructionId) -> bool {
        let instruction = &module[i];
        instruction.users().is_empty()
            && !self.is_dead[i]
            && !self.pinned[i]
            && !matches!(
                instruction.op,
                Op::Parameter { .. } | Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } | Op::AsyncStart(_)
            )
            && !has_side_effect(&instruction.op)
            && module.root(instruction.parent()) != Some(i)
    }

    fn remove_dead(&self, module: &mut Module) {
        if !self.dead.is_empty() {
            let removed = module.remove_instructions(&self.dead);
            debug_assert!(removed.is_ok(), "{removed:?}");
        }
    }
}

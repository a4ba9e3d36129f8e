//! Edits that keep users, names, roots and the schedule consistent.
//!
//! Every edit is linear in what it touches (the users and operands of the instructions named), but for removals, which
//! are collected and carried out together ([`Module::remove_instructions`]) so that a pass stays linear. To take a value
//! from many users one by one is quadratic in their number: [`Module::replace_all_uses`] does it at once.

use crate::entity::{ComputationId, InstructionId, SideTable};
use crate::instruction::Operands;
use crate::module::Module;
use rustc_hash::FxHashSet;

/// Why an edit was refused; the module is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EditError {
    /// The two instructions are not in the same computation.
    OtherComputation,
    /// The instruction still has users, control successors, or is a root.
    StillUsed(InstructionId),
    /// The instruction has no operand of that number.
    NoSuchOperand,
    /// The new order is not a permutation of the computation's instructions.
    NotAPermutation,
}

impl Module {
    /// Makes operand `number` of `user` be `new`.
    pub fn replace_operand(&mut self, user: InstructionId, number: usize, new: InstructionId) -> Result<(), EditError> {
        if self[user].parent() != self[new].parent() {
            return Err(EditError::OtherComputation);
        }
        let old = *self[user].operands.get(number).ok_or(EditError::NoSuchOperand)?;
        self.wide_users.forget(user);
        self.note_use(new, user);
        self.instructions[user].operands[number] = new;
        self.forget_use(old, user);
        Ok(())
    }

    /// Makes every user of `old` use `new` instead, and `new` the root if `old` was. If `new` itself uses `old` it goes
    /// on to, so that a value can be replaced by a function of it. Control dependencies stay.
    pub fn replace_all_uses(&mut self, old: InstructionId, new: InstructionId) -> Result<(), EditError> {
        let parent = self[old].parent();
        if parent != self[new].parent() {
            return Err(EditError::OtherComputation);
        }
        if old == new {
            return Ok(());
        }
        let users = std::mem::take(&mut self.instructions[old].users);
        for user in users {
            if user == new {
                self.instructions[old].users.push(user);
                continue;
            }
            if !self.wide_users.replace(user, &mut self.instructions[user].operands, old, new) {
                self.instructions[new].users.push(user);
            }
        }
        if self.root(parent) == Some(old) {
            self.computations[parent].root = Some(new);
        }
        Ok(())
    }

    /// Takes from `dead`, which nothing uses, those operands that have few users, so that these are seen to lose one; the
    /// operands are returned. A value of very many users is cleaned when the instruction is removed, with all others
    /// that are: doing it one by one would be quadratic.
    pub fn release_operands(&mut self, dead: InstructionId) -> Operands {
        const FEW: usize = 64;
        self.wide_users.forget(dead);
        let operands = std::mem::take(&mut self.instructions[dead].operands);
        let (released, kept): (Operands, Operands) =
            operands.into_iter().partition(|&o| self.instructions[o].users.len() <= FEW);
        self.instructions[dead].operands = kept;
        for &operand in &released {
            self.instructions[operand].users.retain(|u| *u != dead);
        }
        released
    }

    /// Replaces all operands of `user`.
    pub fn set_operands(&mut self, user: InstructionId, operands: Operands) -> Result<(), EditError> {
        let parent = self[user].parent();
        if operands.iter().any(|&o| self[o].parent() != parent) {
            return Err(EditError::OtherComputation);
        }
        self.wide_users.forget(user);
        let new = distinct(&operands);
        let old = distinct(&std::mem::replace(&mut self.instructions[user].operands, operands));
        let (kept_new, kept_old) = (one_of(&new), one_of(&old));
        for &operand in new.iter().filter(|&&o| !kept_old(o)) {
            self.instructions[operand].users.push(user);
        }
        for &operand in old.iter().filter(|&&o| !kept_new(o)) {
            self.instructions[operand].users.retain(|u| *u != user);
        }
        Ok(())
    }

    /// Removes instructions that nothing uses but one another. Refused if one of them is a root, or is used (as operand
    /// or control predecessor) by an instruction that stays.
    pub fn remove_instructions(&mut self, dead: &[InstructionId]) -> Result<(), EditError> {
        // A set, not a table: a few removals from a large module must not cost as much as the module.
        let is_dead: FxHashSet<InstructionId> = dead.iter().copied().collect();
        let mut touched: Vec<ComputationId> = dead.iter().map(|&i| self[i].parent()).collect();
        touched.sort_unstable();
        touched.dedup();
        for &i in dead {
            if self[i].users.iter().any(|&u| !is_dead.contains(&u)) || self.root(self[i].parent()) == Some(i) {
                return Err(EditError::StillUsed(i));
            }
        }
        for &c in &touched {
            for &i in self[c].instructions() {
                if is_dead.contains(&i) {
                    continue;
                }
                if let Some(&p) = self[i].common.control_predecessors().iter().find(|&&p| is_dead.contains(&p)) {
                    return Err(EditError::StillUsed(p));
                }
            }
        }
        // What a dead instruction read may have very many users: each list is cleaned once.
        let mut read: Vec<InstructionId> = Vec::new();
        for &i in dead {
            self.wide_users.forget(i);
            read.extend(
                std::mem::take(&mut self.instructions[i].operands).into_iter().filter(|&o| !is_dead.contains(&o)),
            );
            self.instructions[i].users.clear();
        }
        read.sort_unstable();
        read.dedup();
        for operand in read {
            self.instructions[operand].users.retain(|u| !is_dead.contains(u));
        }
        for &c in &touched {
            // Pin the root first: it may have been the last instruction only by default.
            self.computations[c].root = self.root(c);
            self.computations[c].instructions.retain(|&i| !is_dead.contains(&i));
            self.computations[c].parameters.retain(|&i| !is_dead.contains(&i));
        }
        Ok(())
    }

    /// Removes computations from the module. That nothing calls them is the verifier's to check.
    pub fn remove_computations(&mut self, dead: &[ComputationId]) {
        let mut is_dead = SideTable::with_len(self.computation_slots(), false);
        for &c in dead {
            is_dead.set(c, true);
        }
        self.order.retain(|&c| !is_dead[c]);
    }

    /// Puts the instructions of `computation` in another order.
    pub fn reorder(&mut self, computation: ComputationId, order: Vec<InstructionId>) -> Result<(), EditError> {
        if self[computation].instructions() != order {
            // Sorting asks for room by the size of the computation, not of the module: a module may have very many.
            let (mut before, mut after) = (self[computation].instructions().to_vec(), order.clone());
            before.sort_unstable();
            after.sort_unstable();
            if before != after {
                return Err(EditError::NotAPermutation);
            }
        }
        let root = self.root(computation);
        let c = &mut self.computations[computation];
        c.root = root;
        c.instructions = order;
        Ok(())
    }

    /// Makes `later` wait for `earlier`.
    pub fn add_control_dependency(&mut self, earlier: InstructionId, later: InstructionId) -> Result<(), EditError> {
        if self[earlier].parent() != self[later].parent() {
            return Err(EditError::OtherComputation);
        }
        let predecessors = &mut self.instructions[later].common.rare_mut().control_predecessors;
        if !predecessors.contains(&earlier) {
            predecessors.push(earlier);
        }
        Ok(())
    }

    /// Gives `instruction` another name, or one like it if that is taken.
    pub fn rename(&mut self, instruction: InstructionId, name: &str) {
        if &*self.instructions[instruction].name == name {
            return;
        }
        self.instructions[instruction].name = self.instruction_names.register(name);
    }

    /// Lists `user` among the users of `operand`, unless its operands (as they are now, before the edit) already have
    /// it. Asking the operands, not the users, keeps this independent of how often a value is used.
    fn note_use(&mut self, operand: InstructionId, user: InstructionId) {
        if !self.instructions[user].operands.contains(&operand) {
            self.instructions[operand].users.push(user);
        }
    }

    fn forget_use(&mut self, operand: InstructionId, user: InstructionId) {
        if !self.instructions[user].operands.contains(&operand) {
            self.instructions[operand].users.retain(|u| *u != user);
        }
    }
}

mod copy;
pub use copy::Outlined;
mod wide;

pub(crate) use wide::{WideUsers, distinct, one_of};

#[cfg(test)]
mod tests;

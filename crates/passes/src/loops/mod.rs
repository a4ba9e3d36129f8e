//! While loops: what they carry, how often they run, and what they compute again and again.
//!
//! Only loops in the plain form are looked at: the state is a tuple that is put together before the loop and at the end
//! of the body, and taken apart everywhere else; body and condition belong to this loop alone.

pub mod double_buffer;
pub mod hoist;
mod invariant_operand_layout;
pub mod state;
pub mod trip_count;

use crate::pass::{Context, Pass};
use hloom_analysis::effects::{instructions_with, reaches_outside};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::Op;
use hloom_ir::order::computations;
use hloom_ir::shape::Shape;
use rustc_hash::FxHashMap;

/// The pass that makes loops carry less and run less often.
pub static PASS: Pass = Pass {
    name: "simplify-loops",
    statement: "takes from loops what they carry in vain, notes how often they run, and unrolls those that run hardly ever",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(simplify(module)) as Result<usize, Diagnostic>,
};

fn simplify(module: &mut Module) -> usize {
    let mut changes = 0;
    let mut removed = false;
    changes += state::use_unchanged(module);
    let pinned = crate::facts::pinned(module);
    let closed = closed_computations(module);
    for w in loops(module) {
        let Some(mut plain) = Loop::of(module, w) else { continue };
        changes += state::simplify(module, &mut plain, &pinned, &closed);
        match trip_count::note(module, &plain) {
            trip_count::Noted::Unrolled => {
                changes += 1;
                removed = true;
            }
            trip_count::Noted::New => changes += 1,
            trip_count::Noted::Nothing => {}
        }
    }
    if changes > 0 || removed {
        crate::dce::remove_dead_code(module);
    }
    changes
}

/// Computations that neither act on the world outside nor depend on it.
fn closed_computations(module: &Module) -> SideTable<ComputationId, bool> {
    let (_, reaches) = instructions_with(module, reaches_outside);
    let mut closed = SideTable::with_len(module.computation_slots(), false);
    module.computations().iter().filter(|&&c| !reaches[c]).for_each(|&c| closed.set(c, true));
    closed
}

/// All loops whose body and condition are called from there alone, inner ones first.
pub(crate) fn loops(module: &Module) -> Vec<InstructionId> {
    let callers = crate::facts::call_counts(module);
    let all = computations(module).into_iter().flat_map(|c| module[c].instructions().iter().copied());
    let is_own = |&w: &InstructionId| module[w].op.called_computations().iter().all(|&c| callers[c] == 1);
    all.filter(|&i| matches!(module[i].op, Op::While { .. })).filter(is_own).collect()
}

/// A loop in the plain form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loop {
    /// The while.
    pub(crate) id: InstructionId,
    pub(crate) body: ComputationId,
    pub(crate) condition: ComputationId,
    /// The tuple of initial values.
    pub(crate) init: InstructionId,
    pub(crate) body_parameter: InstructionId,
    pub(crate) condition_parameter: InstructionId,
    /// The tuple of the next values.
    pub(crate) body_root: InstructionId,
}

impl Loop {
    /// The loop `id`, if it has the plain form.
    pub(crate) fn of(module: &Module, id: InstructionId) -> Option<Loop> {
        let Op::While { condition, body } = module[id].op else { return None };
        let &[init] = module[id].operands() else { return None };
        let body_root = module.root(body)?;
        let is_tuple = |i: InstructionId| matches!(module[i].op, Op::Tuple);
        let &[body_parameter] = module.parameters(body).as_slice() else { return None };
        let &[condition_parameter] = module.parameters(condition).as_slice() else { return None };
        let only_elements = |p: InstructionId| {
            module[p].users().iter().all(|&u| matches!(module[u].op, Op::GetTupleElement { .. }))
                && module.root(module[p].parent()) != Some(p)
        };
        let plain = is_tuple(init)
            && is_tuple(body_root)
            && module[body_root].users().is_empty()
            && only_elements(body_parameter)
            && only_elements(condition_parameter)
            && module[id].common.control_predecessors().is_empty();
        let shapes_agree = module[init].operands().len() == module[body_root].operands().len();
        (plain && shapes_agree).then_some(Loop {
            id,
            body,
            condition,
            init,
            body_parameter,
            condition_parameter,
            body_root,
        })
    }

    /// How many values it carries.
    pub(crate) fn width(&self, module: &Module) -> usize {
        module[self.init].operands().len()
    }

    /// Whether the body gives value `n` on as it got it.
    pub(crate) fn is_invariant(&self, module: &Module, n: usize) -> bool {
        let Some(&next) = module[self.body_root].operands().get(n) else { return false };
        element_of(module, next, self.body_parameter) == Some(n)
    }

    /// Lets everything outside that uses the state as a whole use its elements.
    fn take_apart(&self, module: &mut Module) {
        let parent = module[self.id].parent();
        let is_whole = |u: &InstructionId| !matches!(module[*u].op, Op::GetTupleElement { .. });
        let is_root = module.root(parent) == Some(self.id);
        let users: Vec<InstructionId> = module[self.id].users().iter().copied().filter(is_whole).collect();
        if !is_root && users.is_empty() {
            return;
        }
        if let Some(root) = module.root(parent) {
            module.set_root(root);
        }
        let shape = module[self.id].shape.clone();
        let parts: Vec<Shape> = shape.as_tuple().map(<[Shape]>::to_vec).unwrap_or_default();
        let elements: Operands =
            parts.iter().enumerate().map(|(n, part)| add_element(module, self.id, n, part.clone())).collect();
        let new = NewInstruction {
            name: "tuple".into(),
            op: Op::Tuple,
            shape,
            operands: elements,
            common: Common::default(),
        };
        let whole = module.add_instruction(parent, new);
        for user in users {
            let operands = module[user].operands().iter().map(|&o| if o == self.id { whole } else { o }).collect();
            let _same_computation = module.set_operands(user, operands);
        }
        if is_root {
            module.set_root(whole);
        }
    }

    /// Makes the loop carry the values `kept` only, and then `added`: the initial value outside, and what stands for it in
    /// the body, to which a user is given by `GetTupleElement`s that are returned.
    fn carry(&mut self, module: &mut Module, kept: &[usize], added: &[InstructionId]) -> Option<Vec<InstructionId>> {
        self.take_apart(module);
        let new_number: FxHashMap<usize, usize> = kept.iter().enumerate().map(|(new, &old)| (old, new)).collect();
        let pick = |module: &Module, i: InstructionId| -> Option<Operands> {
            kept.iter().map(|&n| module[i].operands().get(n).copied()).collect()
        };
        let mut initial = pick(module, self.init)?;
        initial.extend_from_slice(added);
        let mut next = pick(module, self.body_root)?;
        let shape = Shape::tuple(initial.iter().map(|&i| module[i].shape.clone()));
        for p in [self.body_parameter, self.condition_parameter, self.id] {
            for u in module[p].users().to_vec() {
                if let Op::GetTupleElement { index } = &mut module.instruction_mut(u).op
                    && let Some(&n) = new_number.get(&(*index as usize))
                {
                    *index = n as i64;
                }
            }
            set_shape(module, p, &shape);
        }
        let mut stands = Vec::new();
        for (k, &value) in added.iter().enumerate() {
            let part = module[value].shape.clone();
            let element = add_element(module, self.body_parameter, kept.len() + k, part);
            next.push(element);
            stands.push(element);
        }
        module.set_operands(self.body_root, next).ok()?;
        set_shape(module, self.body_root, &shape);
        let parent = module[self.id].parent();
        let tuple =
            NewInstruction { name: "tuple".into(), op: Op::Tuple, shape, operands: initial, common: Common::default() };
        let tuple = module.add_instruction(parent, tuple);
        module.set_operands(self.id, Operands::from_slice(&[tuple])).ok()?;
        self.init = tuple;
        Some(stands)
    }
}

/// Gives `i` another shape; what was said of the parts of the old one is dropped.
fn set_shape(module: &mut Module, i: InstructionId, shape: &Shape) {
    let instruction = module.instruction_mut(i);
    instruction.shape = shape.clone();
    instruction.common.sharding = None;
    if let Some(rare) = &mut instruction.common.rare {
        rare.origin = None;
    }
    if let Op::Parameter { replication, .. } = &mut instruction.op {
        *replication = None;
    }
}

/// Adds the element `n` of `tuple`.
fn add_element(module: &mut Module, tuple: InstructionId, n: usize, shape: Shape) -> InstructionId {
    let parent = module[tuple].parent();
    let new = NewInstruction {
        name: "get-tuple-element".into(),
        op: Op::GetTupleElement { index: n as i64 },
        shape,
        operands: Operands::from_slice(&[tuple]),
        common: Common::default(),
    };
    if let Some(root) = module.root(parent) {
        module.set_root(root);
    }
    module.add_instruction(parent, new)
}

/// Which element of `tuple` the instruction `i` takes, if it does.
pub(crate) fn element_of(module: &Module, i: InstructionId, tuple: InstructionId) -> Option<usize> {
    match module[i].op {
        Op::GetTupleElement { index } if module[i].operands() == [tuple] => usize::try_from(index).ok(),
        _ => None,
    }
}

//! What can be decided about a run before it starts: which instructions of each computation are evaluated, in which
//! order, and where each value is used for the last time.
//!
//! Dead instructions without side effects are left out, and so are loops of whose results only what they never change is
//! used: one of those may go on for ever. The order is that of the computation (the schedule, if there is
//! one), except that an instruction's operands and control predecessors always come first. All devices use the same
//! plan, so they meet their collectives in the same order.

use hloom_analysis::effects::{has_side_effect, instructions_with, reaches_outside};
use hloom_analysis::unchanged::Unchanged;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::Op;

/// The plan of every computation of a module.
#[derive(Debug, Default)]
pub struct Plan {
    computations: Vec<ComputationPlan>,
    reaches_outside: SideTable<ComputationId, bool>,
}

/// The plan of one computation. Values live in slots; a parameter's slot is filled by the caller.
#[derive(Debug, Default)]
pub struct ComputationPlan {
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// The operands of all steps, one after another.
    pub uses: Vec<Use>,
    /// The number of slots.
    pub slots: usize,
    /// For each parameter number the slot of its value; `None` if nothing uses it.
    pub parameters: Vec<Option<u32>>,
    /// The slot of the result.
    pub root: Option<u32>,
}

/// One instruction to evaluate.
#[derive(Debug)]
pub struct Step {
    /// The instruction.
    pub instruction: InstructionId,
    /// Where its operands are in [`ComputationPlan::uses`].
    pub uses: std::ops::Range<u32>,
    /// Where its value goes.
    pub slot: u32,
    /// Whether nothing uses the value (it was evaluated for its side effect).
    pub unused: bool,
}

/// One operand of a step.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// Where the value is.
    pub slot: u32,
    /// Whether the value may be taken out of its slot, since nothing uses it later. For a get-tuple-element this is about
    /// the element, not the whole tuple.
    pub last: bool,
}

impl Plan {
    /// The plan of `module`.
    pub fn new(module: &Module) -> Plan {
        let (effects, _) = instructions_with(module, has_side_effect);
        let unchanged = Unchanged::new(module);
        let mut computations = Vec::with_capacity(module.computation_slots());
        computations.resize_with(module.computation_slots(), ComputationPlan::default);
        let mut slot_of = SideTable::with_len(module.instruction_slots(), None);
        let mut is_live = SideTable::with_len(module.instruction_slots(), false);
        for &c in module.computations() {
            computations[c.index()] = plan_computation(module, c, &effects, &unchanged, &mut slot_of, &mut is_live);
        }
        let (_, reaches_outside) = instructions_with(module, reaches_outside);
        Plan { computations, reaches_outside }
    }

    /// Whether evaluating `computation` again may give or do something else although its arguments are the same: it
    /// talks to other devices or the world outside, or draws random numbers.
    pub fn reaches_outside(&self, computation: ComputationId) -> bool {
        self.reaches_outside[computation]
    }

    /// The plan of `computation`.
    pub fn computation(&self, computation: ComputationId) -> &ComputationPlan {
        &self.computations[computation.index()]
    }
}

fn plan_computation(
    module: &Module,
    computation: ComputationId,
    effects: &SideTable<InstructionId, bool>,
    unchanged: &Unchanged,
    slot_of: &mut SideTable<InstructionId, Option<u32>>,
    is_live: &mut SideTable<InstructionId, bool>,
) -> ComputationPlan {
    let list = module[computation].instructions();
    let root = module.root(computation);

    // Backwards from the root and the side effects.
    let mut live: Vec<InstructionId> = Vec::new();
    live.extend(list.iter().copied().filter(|&i| effects[i] || Some(i) == root));
    live.iter().for_each(|&i| is_live.set(i, true));
    while let Some(i) = live.pop() {
        let before_loops = element_of(module, i).map(|(tuple, n)| before_loops(module, unchanged, tuple, n, |_| true));
        let operands = before_loops.as_ref().map_or(module[i].operands(), std::slice::from_ref);
        for &p in operands.iter().chain(module[i].common.control_predecessors()) {
            if !std::mem::replace(is_live.get_mut(p), true) {
                live.push(p);
            }
        }
    }
    // Elements of loops that are left out are taken from before them.
    let tuple_of = |is_live: &SideTable<InstructionId, bool>, i: InstructionId| {
        let (tuple, n) = element_of(module, i)?;
        Some(before_loops(module, unchanged, tuple, n, |w| !is_live[w]))
    };

    // Operands first, otherwise as listed.
    let mut plan = ComputationPlan::default();
    let mut stack: Vec<(InstructionId, bool)> = Vec::new();
    for &listed in list {
        if !is_live[listed] || slot_of[listed].is_some() {
            continue;
        }
        stack.push((listed, false));
        while let Some((i, operands_done)) = stack.pop() {
            if slot_of[i].is_some() {
                continue;
            }
            let tuple = tuple_of(is_live, i);
            let operands = tuple.as_ref().map_or(module[i].operands(), std::slice::from_ref);
            if operands_done {
                add_step(module, i, operands, &mut plan, slot_of);
                continue;
            }
            stack.push((i, true));
            let before = operands.iter().chain(module[i].common.control_predecessors());
            stack.extend(before.filter(|&&p| slot_of[p].is_none()).map(|&p| (p, false)));
        }
    }
    plan.root = root.and_then(|r| slot_of[r]);
    mark_last_uses(module, &mut plan);
    plan
}

/// The tuple of which `i` is an element, and which.
fn element_of(module: &Module, i: InstructionId) -> Option<(InstructionId, usize)> {
    let Op::GetTupleElement { index } = module[i].op else { return None };
    Some((*module[i].operands().first()?, usize::try_from(index).ok()?))
}

/// The tuple whose element `n` is that of `tuple`, where `tuple` is a loop that may be passed over and does not change it.
fn before_loops(
    module: &Module,
    unchanged: &Unchanged,
    mut tuple: InstructionId,
    n: usize,
    may_pass: impl Fn(InstructionId) -> bool,
) -> InstructionId {
    while unchanged.is(tuple, n)
        && may_pass(tuple)
        && let Some(&init) = module[tuple].operands().first()
    {
        tuple = init;
    }
    tuple
}

fn add_step(
    module: &Module,
    i: InstructionId,
    operands: &[InstructionId],
    plan: &mut ComputationPlan,
    slot_of: &mut SideTable<InstructionId, Option<u32>>,
) {
    let slot = plan.slots as u32;
    plan.slots += 1;
    slot_of.set(i, Some(slot));
    if let Op::Parameter { number, .. } = module[i].op {
        let number = number as usize;
        if plan.parameters.len() <= number {
            plan.parameters.resize(number + 1, None);
        }
        plan.parameters[number] = Some(slot);
        return;
    }
    let start = plan.uses.len() as u32;
    let mut use_all = |operands: &[InstructionId]| {
        plan.uses.extend(operands.iter().filter_map(|&o| Some(Use { slot: slot_of[o]?, last: false })));
    };
    use_all(operands);
    // The start of an asynchronous collective gives back the collective's operands, which it does not itself have.
    if let (Op::CustomCall(call), [collective]) = (&module[i].op, module[i].operands())
        && &*call.target == "AsyncCollectiveStart"
    {
        use_all(module[*collective].operands());
    }
    plan.steps.push(Step { instruction: i, uses: start..plan.uses.len() as u32, slot, unused: true });
}

/// Marks the last use of each value, and of each element of a tuple that is only taken apart.
fn mark_last_uses(module: &Module, plan: &mut ComputationPlan) {
    // Walking backwards, the first use met is the last one.
    let mut used = vec![false; plan.slots];
    let mut whole = vec![false; plan.slots];
    if let Some(root) = plan.root {
        used[root as usize] = true;
        whole[root as usize] = true;
    }
    for step in &plan.steps {
        if !matches!(module[step.instruction].op, Op::GetTupleElement { .. }) {
            for u in &plan.uses[step.uses.start as usize..step.uses.end as usize] {
                whole[u.slot as usize] = true;
            }
        }
    }
    let mut elements_used: rustc_hash::FxHashSet<(u32, i64)> = Default::default();
    for step in plan.steps.iter_mut().rev() {
        step.unused = !used[step.slot as usize];
        let uses = &mut plan.uses[step.uses.start as usize..step.uses.end as usize];
        for u in uses.iter_mut().rev() {
            match module[step.instruction].op {
                Op::GetTupleElement { index } if !whole[u.slot as usize] => {
                    u.last = elements_used.insert((u.slot, index));
                    used[u.slot as usize] = true;
                }
                Op::GetTupleElement { .. } => used[u.slot as usize] = true,
                _ => u.last = !std::mem::replace(&mut used[u.slot as usize], true),
            }
        }
    }
}

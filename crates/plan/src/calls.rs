//! Who calls whom, and in which way: as a step of the program's flow, or applied to elements.
//!
//! What runs as part of the flow (while, conditional, call, async) takes part in dataflow, has a time and gets memory
//! like the entry; what is applied (fusion, reduce, sort …) is closed in itself. A computation of the flow has one caller
//! only: each of its values has one place.

use hloom_ir::diagnostic::codes::plan::{MIXED_CALLS, SHARED_COMPUTATION};
use hloom_ir::diagnostic::{Diagnostic, Part, Place};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order::computations_by_calls;
use hloom_target::Target;
use rustc_hash::FxHashMap;

/// How a computation is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// By nobody: the entry, or what is left over.
    Uncalled,
    /// As a step of its caller, which is this instruction.
    Flow(InstructionId),
    /// Applied to elements, or fused.
    Applied,
}

/// The calls of a module.
#[derive(Debug)]
pub struct Calls {
    context: Vec<Context>,
    /// Computations that get memory like the entry, by index.
    global: Vec<bool>,
    /// Computations whose values are local to a thread, by index; bodies of fusions are not among them.
    thread_local: Vec<bool>,
    /// Every computation, callees before callers.
    post_order: Vec<ComputationId>,
}

/// Whether the computations it calls are steps of the flow.
pub fn is_flow(op: &Op) -> bool {
    matches!(op, Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } | Op::AsyncStart(_))
}

/// The async-start that an async instruction is or goes on with; what was started elsewhere ends in what hands it on.
pub fn async_start(module: &Module, mut id: InstructionId) -> InstructionId {
    while let (Op::AsyncUpdate { .. }, Some(&before)) = (&module[id].op, module[id].operands().first()) {
        id = before;
    }
    id
}

/// The computation that runs once `id`, an async-start or an update, has brought its last operand. Where none ever does, it
/// runs at the start.
pub fn completed(module: &Module, id: InstructionId) -> Option<ComputationId> {
    let brings = |i: InstructionId| module[i].operands().len().saturating_sub(1);
    let is_update = |i: InstructionId| matches!(module[i].op, Op::AsyncUpdate { .. });
    if is_update(id) && brings(id) == 0 {
        return None;
    }
    let first = async_start(module, id);
    let Op::AsyncStart(start) = &module[first].op else { return None };
    let wanted = module.parameters(start.calls).len();
    let mut bound = module[first].operands().len();
    let mut last = first;
    while bound < wanted
        && let Some(&next) = module[last].users().iter().find(|&&u| is_update(u))
    {
        bound += brings(next);
        last = next;
    }
    let runs_at = if bound < wanted { first } else { last };
    (runs_at == id).then_some(start.calls)
}

/// The instructions that go on with each async-start and end it.
#[derive(Debug)]
pub struct AsyncChains {
    start_of: Vec<Option<InstructionId>>,
    followers: FxHashMap<InstructionId, Vec<InstructionId>>,
}

impl AsyncChains {
    /// The chains of `module`.
    pub fn new(module: &Module) -> AsyncChains {
        let mut chains =
            AsyncChains { start_of: vec![None; module.instruction_slots()], followers: FxHashMap::default() };
        for &computation in module.computations() {
            for &id in module[computation].instructions() {
                match module[id].op {
                    Op::AsyncStart(_) => chains.start_of[id.index()] = Some(id),
                    Op::AsyncUpdate { .. } | Op::AsyncDone => {
                        let start = module[id].operands().first().and_then(|o| chains.start_of[o.index()]);
                        chains.start_of[id.index()] = start;
                        if let Some(start) = start {
                            chains.followers.entry(start).or_default().push(id);
                        }
                    }
                    _ => {}
                }
            }
        }
        chains
    }

    /// The computation that an async instruction runs, or goes on with.
    pub fn computation(&self, module: &Module, id: InstructionId) -> Option<ComputationId> {
        match &module[self.start_of[id.index()]?].op {
            Op::AsyncStart(start) => Some(start.calls),
            _ => None,
        }
    }

    /// What an async-start and its updates give the computation, in the order of its parameters.
    pub fn operands(&self, module: &Module, start: InstructionId) -> Vec<InstructionId> {
        let updates = self.followers(start).iter().filter(|&&f| matches!(module[f].op, Op::AsyncUpdate { .. }));
        let brought = updates.flat_map(|&u| module[u].operands().iter().skip(1));
        module[start].operands().iter().chain(brought).copied().collect()
    }

    /// The updates and the done of an async-start.
    pub fn followers(&self, start: InstructionId) -> &[InstructionId] {
        self.followers.get(&start).map_or(&[], Vec::as_slice)
    }
}

impl Calls {
    /// The calls of `module`, which are in an order that is right for `target`.
    pub fn new(module: &Module, target: &Target) -> Result<Calls, Vec<Diagnostic>> {
        let mut context = vec![Context::Uncalled; module.computation_slots()];
        let mut first_caller: Vec<Option<InstructionId>> = vec![None; module.computation_slots()];
        let mut is_fusion = vec![false; module.computation_slots()];
        let mut errors = Vec::new();
        for &computation in module.computations() {
            for &id in module[computation].instructions() {
                let flow = is_flow(&module[id].op);
                for callee in module[id].op.called_computations() {
                    is_fusion[callee.index()] |= matches!(module[id].op, Op::Fusion(_));
                    let slot = &mut context[callee.index()];
                    match (*slot, flow) {
                        (Context::Uncalled, true) => *slot = Context::Flow(id),
                        (Context::Uncalled | Context::Applied, false) => *slot = Context::Applied,
                        (other, _) => {
                            let shared = matches!(other, Context::Flow(_)) && flow;
                            errors.push(several_callers(module, callee, id, first_caller[callee.index()], shared));
                        }
                    }
                    first_caller[callee.index()].get_or_insert(id);
                }
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut calls = Calls {
            context,
            global: vec![false; module.computation_slots()],
            thread_local: vec![false; module.computation_slots()],
            post_order: post_order(module, target),
        };
        calls.mark(module, &is_fusion);
        Ok(calls)
    }

    fn mark(&mut self, module: &Module, is_fusion: &[bool]) {
        let Some(entry) = module.entry() else { return };
        let mut applied = vec![false; module.computation_slots()];
        let mut stack = vec![(entry, false)];
        while let Some((computation, is_applied)) = stack.pop() {
            let marks = if is_applied { &mut applied } else { &mut self.global };
            if std::mem::replace(&mut marks[computation.index()], true) {
                continue;
            }
            for &id in module[computation].instructions() {
                let applies = is_applied || !is_flow(&module[id].op);
                stack.extend(module[id].op.called_computations().into_iter().map(|c| (c, applies)));
            }
        }
        for (i, flag) in self.thread_local.iter_mut().enumerate() {
            *flag = applied[i] && !self.global[i] && !is_fusion[i];
        }
    }

    /// How it is reached.
    pub fn context(&self, computation: ComputationId) -> Context {
        self.context[computation.index()]
    }

    /// Whether it gets memory like the entry.
    pub fn is_global(&self, computation: ComputationId) -> bool {
        self.global[computation.index()]
    }

    /// Whether its values are local to a thread.
    pub fn is_thread_local(&self, computation: ComputationId) -> bool {
        self.thread_local[computation.index()]
    }

    /// Every computation, callees before callers.
    pub fn post_order(&self) -> &[ComputationId] {
        &self.post_order
    }
}

fn several_callers(
    module: &Module,
    callee: ComputationId,
    second: InstructionId,
    first: Option<InstructionId>,
    shared: bool,
) -> Diagnostic {
    let name = module[callee].name();
    let (code, message) = if shared {
        (&SHARED_COMPUTATION, format!("`{name}` is called from several places, and its values have one place each"))
    } else {
        (&MIXED_CALLS, format!("`{name}` is a step of the program here and applied to elements elsewhere"))
    };
    let diagnostic = Diagnostic::error(code, message).at_instruction(second, Part::Whole);
    let diagnostic = diagnostic.help("give each caller a copy of the computation");
    match first {
        Some(first) => diagnostic.note_at("called here too", Place::Instruction(first, Part::Whole)),
        None => diagnostic,
    }
}

/// Callees before callers, from each computation that nothing calls. XLA goes through calls in the order in which the
/// instructions are stored, which a text does not tell: the number at the end of the name comes nearest on TPUs, the name
/// itself elsewhere.
fn post_order(module: &Module, target: &Target) -> Vec<ComputationId> {
    let mut callees: Vec<Vec<ComputationId>> = vec![Vec::new(); module.computation_slots()];
    for &computation in module.computations() {
        let mut calling: Vec<InstructionId> = module[computation].instructions().to_vec();
        calling.retain(|&id| !module[id].op.called_computations().is_empty());
        if target.sorted_computations {
            calling.sort_by_key(|&id| name_number(module[id].name()));
        } else {
            calling.sort_by_key(|&id| module[id].name());
        }
        for id in calling {
            callees[computation.index()].extend(module[id].op.called_computations());
        }
    }
    computations_by_calls(module, &callees)
}

/// The number after the last dot of a name; 0 where there is none.
fn name_number(name: &str) -> u64 {
    name.rsplit_once('.').and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

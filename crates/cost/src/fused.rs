//! What fused computations compute, and how much of their parameters and results goes through memory.
//!
//! Worked out once for each, callees first, so that the whole is linear in the size of the module.

use crate::matmul::{Matmul, Producer};
use crate::work::{Work, elements, first_array};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order::computations_by_calls;
use hloom_target::Target;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// What a fused computation does.
#[derive(Clone, Default, Debug)]
pub(crate) struct Fused {
    pub(crate) work: Work,
    /// Of each parameter the share of its elements that is read.
    pub(crate) read: Vec<f64>,
    /// The same where nothing is made that nobody asks for.
    pub(crate) needed: Vec<f64>,
    /// Of each leaf of the result the share of its elements that is written.
    pub(crate) written: Vec<f64>,
    /// Whether it stands for a part of a collective, or calls something outside.
    pub(crate) is_outside: bool,
}

impl Fused {
    /// Of a parameter the share of its elements that is read: loops of a processor make what is asked for, element by
    /// element.
    pub(crate) fn share_read(&self, parameter: usize, target: &Target) -> f64 {
        let shares = if target.compute.thread_seconds > 0.0 { &self.needed } else { &self.read };
        shares.get(parameter).copied().unwrap_or(1.0)
    }
}

/// In computations with more products than this nobody asks which parameter goes into which.
const MOST_TRACED: usize = 4;

/// What every fused computation of the module does; `None` for the others.
pub(crate) fn fused_computations(module: &Module) -> Vec<Option<Fused>> {
    let mut is_fused = vec![false; module.computation_slots()];
    let mut callees: Vec<Vec<ComputationId>> = vec![Vec::new(); module.computation_slots()];
    for &computation in module.computations() {
        for &id in module[computation].instructions() {
            if let Op::Fusion(fusion) = &module[id].op {
                is_fused[fusion.calls.index()] = true;
                callees[computation.index()].push(fusion.calls);
            }
        }
    }
    let mut fused: Vec<Option<Fused>> = vec![None; module.computation_slots()];
    for computation in computations_by_calls(module, &callees) {
        if is_fused[computation.index()] {
            let done = summary(module, computation, &fused);
            fused[computation.index()] = Some(done);
        }
    }
    fused
}

fn summary(module: &Module, computation: ComputationId, fused: &[Option<Fused>]) -> Fused {
    let instructions = module[computation].instructions();
    let mut result = Fused::default();
    let mut products: Vec<(InstructionId, usize)> = Vec::new();
    let needed = shares_read(module, computation, fused, passes_on);
    let root = module.root(computation);
    let mut depths = Shares::default();
    let mut met: FxHashMap<&[InstructionId], InstructionId> = FxHashMap::default();
    for &id in instructions {
        let before = result.work.matmuls.len();
        let mut work = match callee(module, id, fused) {
            // What two nested fusions make of the same values in the same way is made once.
            Some(inner) if is_repeated(module, id, inner, &mut met, fused) => Work::default(),
            Some(inner) => {
                result.is_outside |= inner.is_outside;
                inner.work.clone()
            }
            None => {
                result.is_outside |= is_outside(&module[id].op);
                Work::of(module, id)
            }
        };
        let share = if Some(id) == root { 1.0 } else { needed.get(&id).copied().unwrap_or(0.0) };
        work.additions *= share;
        work.lookups *= share;
        let before_it = module[id].operands().iter().filter_map(|o| depths.get(o)).fold(0.0, |a: f64, &b| a.max(b));
        depths.insert(id, before_it + work.depth);
        result.work.depth = result.work.depth.max(before_it + work.depth);
        result.work.add(&work);
        products.extend((before..result.work.matmuls.len()).map(|n| (id, n)));
    }
    let hands_on = |op: &Op| matches!(op, Op::Bitcast | Op::Tuple | Op::GetTupleElement { .. });
    let read = shares_read(module, computation, fused, hands_on);
    let parameters = module.parameters(computation);
    result.needed = parameters.iter().map(|p| needed.get(p).copied().unwrap_or(0.0)).collect();
    result.read = parameters.iter().map(|p| read.get(p).copied().unwrap_or(0.0)).collect();
    result.written = shares_written(module, computation, fused);
    if products.len() <= MOST_TRACED {
        for (id, n) in products {
            trace(module, id, fused, &mut result.work.matmuls[n]);
        }
    }
    result
}

/// What an instruction's fused computation does, if it is a fusion.
fn callee<'f>(module: &Module, id: InstructionId, fused: &'f [Option<Fused>]) -> Option<&'f Fused> {
    match &module[id].op {
        Op::Fusion(fusion) => fused.get(fusion.calls.index())?.as_ref(),
        _ => None,
    }
}

/// Whether a nested fusion does what an earlier one does.
fn is_repeated<'m>(
    module: &'m Module,
    id: InstructionId,
    inner: &Fused,
    met: &mut FxHashMap<&'m [InstructionId], InstructionId>,
    fused: &[Option<Fused>],
) -> bool {
    let first = *met.entry(module[id].operands()).or_insert(id);
    let is_same = |other: &Fused| other.work == inner.work && !inner.work.matmuls.is_empty();
    first != id && module[first].shape == module[id].shape && callee(module, first, fused).is_some_and(is_same)
}

fn is_outside(op: &Op) -> bool {
    // Room that is not written yet is no work of the outside.
    matches!(op, Op::CustomCall(call) if &*call.target != "AllocateBuffer")
}

/// Finds what is fused in front of the two operands of a product.
fn trace(module: &Module, id: InstructionId, fused: &[Option<Fused>], matmul: &mut Matmul) {
    let operands = module[id].operands();
    match callee(module, id, fused) {
        None => {
            matmul.lhs = producer(module, &operands[..operands.len().min(1)], fused);
            matmul.rhs = producer(module, operands.get(1..2).unwrap_or_default(), fused);
        }
        // The product is inside a fusion of its own: what that reads comes from further ones here.
        Some(_) => {
            let outer = |inner: &Producer| {
                let feeding: Vec<InstructionId> =
                    inner.parameters.iter().filter_map(|&p| operands.get(p as usize).copied()).collect();
                let mut outer = producer(module, &feeding, fused);
                outer.work += inner.work;
                outer.has_product |= inner.has_product;
                outer
            };
            (matmul.lhs, matmul.rhs) = (outer(&matmul.lhs), outer(&matmul.rhs));
        }
    }
}

/// The work that these values need, and the parameters that it begins with.
fn producer(module: &Module, values: &[InstructionId], fused: &[Option<Fused>]) -> Producer {
    let mut found = Producer::default();
    let mut seen: FxHashSet<InstructionId> = values.iter().copied().collect();
    let mut stack: Vec<InstructionId> = values.to_vec();
    while let Some(id) = stack.pop() {
        if let Op::Parameter { number, .. } = module[id].op {
            found.parameters.extend(u32::try_from(number));
            continue;
        }
        let own;
        let work = match callee(module, id, fused) {
            Some(inner) => &inner.work,
            None => {
                own = Work::of(module, id);
                &own
            }
        };
        found.work += work.elementwise;
        found.has_product |= !work.matmuls.is_empty();
        stack.extend(module[id].operands().iter().copied().filter(|&o| seen.insert(o)));
    }
    found.parameters.sort_unstable();
    found
}

type Shares = FxHashMap<InstructionId, f64>;

/// Whether no more of an operation's operands is needed than of its result.
fn passes_on(op: &Op) -> bool {
    let moves = matches!(
        op,
        Op::Bitcast
            | Op::Tuple
            | Op::GetTupleElement { .. }
            | Op::Broadcast { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Reverse { .. }
            | Op::Convert
            | Op::Reduce { .. }
    );
    moves || op.is_elementwise()
}

/// Of each instruction whose value is used, the share of its elements that its users read; where `passes_on` says so, they
/// read of their operands what is read of them.
fn shares_read(
    module: &Module,
    computation: ComputationId,
    fused: &[Option<Fused>],
    passes_on: impl Fn(&Op) -> bool,
) -> Shares {
    let mut shares = Shares::default();
    let root = module.root(computation);
    let results: FxHashSet<InstructionId> = match root {
        Some(root) if matches!(module[root].op, Op::Tuple) => module[root].operands().iter().copied().collect(),
        _ => root.into_iter().collect(),
    };
    for &id in module[computation].instructions().iter().rev() {
        let instruction = &module[id];
        let own = if Some(id) == root { 1.0 } else { shares.get(&id).copied().unwrap_or(0.0) };
        let result = first_array(&instruction.shape).map_or(0.0, elements);
        for (n, &operand) in instruction.operands().iter().enumerate() {
            let whole = first_array(&module[operand].shape).map_or(0.0, elements).max(1.0);
            let share = match &instruction.op {
                Op::Slice { .. } | Op::DynamicSlice { .. } | Op::Gather(_) if n == 0 => result / whole,
                // What is updated in place is not read, unless more is made of it afterwards.
                Op::DynamicUpdateSlice if n == 0 && results.contains(&id) => 0.0,
                // What is handed through is not touched; what is exchanged, others read.
                Op::Tuple if Some(id) == root && matches!(module[operand].op, Op::Parameter { .. }) => 0.0,
                op if op.collective().is_some() => 0.0,
                op if passes_on(op) => own,
                Op::Fusion(_) => callee(module, id, fused).and_then(|f| f.read.get(n).copied()).unwrap_or(1.0),
                _ => 1.0,
            };
            let known = shares.entry(operand).or_insert(0.0);
            *known = (*known + share).min(1.0);
        }
    }
    shares
}

/// Of each leaf of the result the share that is written: an update in place writes its update.
fn shares_written(module: &Module, computation: ComputationId, fused: &[Option<Fused>]) -> Vec<f64> {
    let Some(root) = module.root(computation) else { return Vec::new() };
    let parts: SmallVec<[InstructionId; 4]> = match module[root].op {
        Op::Tuple => module[root].operands().into(),
        _ => std::iter::once(root).collect(),
    };
    let mut written = Vec::new();
    for mut part in parts {
        let leaves = module[part].shape.leaf_count();
        while let (Op::Bitcast, Some(&operand)) = (&module[part].op, module[part].operands().first()) {
            part = operand;
        }
        let whole = first_array(&module[part].shape).map_or(1.0, elements).max(1.0);
        match &module[part].op {
            Op::DynamicUpdateSlice => {
                let update = module[part].operands().get(1).and_then(|&u| first_array(&module[u].shape));
                written.push(update.map_or(1.0, |u| (elements(u) / whole).min(1.0)));
            }
            // A parameter handed through is not written again.
            Op::Parameter { .. } => written.extend(std::iter::repeat_n(0.0, leaves)),
            op if op.collective().is_some() => written.extend(std::iter::repeat_n(0.0, leaves)),
            Op::Fusion(_) => match callee(module, part, fused) {
                Some(inner) if inner.written.len() == leaves => written.extend(inner.written.iter().copied()),
                _ => written.extend(std::iter::repeat_n(1.0, leaves)),
            },
            _ => written.extend(std::iter::repeat_n(1.0, leaves)),
        }
    }
    written
}

//! Common subexpression elimination: of instructions that make the same value, the first makes it for all.
//!
//! Functions that are applied to elements (reducers, comparators, …) are compared first, so that two reductions by two
//! copies of the same sum are seen to be the same; of sorts by the same keys, one makes the results of all
//! (`same_sorts.rs`). What may give something else each time it runs is left alone, and so
//! are control flow and copies.

use crate::facts::pinned;
use crate::pass::{Context, Pass};
use crate::same_sorts::share_sorts;
use hloom_analysis::effects::reaches_outside;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId, SideTable};
use hloom_ir::instruction::Operands;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, ConstantValue, Op};
use hloom_ir::order::PostOrder;
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};

/// The pass.
pub static PASS: Pass = Pass {
    name: "cse",
    statement: "makes one instruction of several that make the same value",
    keeps_schedule: false,
    run,
};

fn run(module: &mut Module, _: &Context<'_>) -> Result<usize, Diagnostic> {
    Ok(share_functions(module) + share_values(module) + share_sorts(module))
}

/// Functions longer than this are not compared.
const MAX_FUNCTION: usize = 32;

/// Lets operations that apply equal functions apply the same one.
fn share_functions(module: &mut Module) -> usize {
    let mut first_of: FxHashMap<u64, SmallVec<[ComputationId; 1]>> = FxHashMap::default();
    let mut stands_for: FxHashMap<ComputationId, ComputationId> = FxHashMap::default();
    let mut seen: SideTable<ComputationId, bool> = SideTable::default();
    let mut applications = Vec::new();
    for &c in module.computations() {
        for &i in module[c].instructions() {
            if !applies_function(&module[i].op) {
                continue;
            }
            for callee in module[i].op.called_computations() {
                applications.push(i);
                if std::mem::replace(seen.get_mut(callee), true) || module[callee].instructions().len() > MAX_FUNCTION {
                    continue;
                }
                let alike = first_of.entry(function_hash(module, callee)).or_default();
                match alike.iter().find(|&&other| same_function(module, callee, other)) {
                    Some(&other) => drop(stands_for.insert(callee, other)),
                    None => alike.push(callee),
                }
            }
        }
    }
    if stands_for.is_empty() {
        return 0;
    }
    for i in applications {
        for callee in module.instruction_mut(i).op.called_computations_mut() {
            if let Some(&other) = stands_for.get(callee) {
                *callee = other;
            }
        }
    }
    stands_for.len()
}

fn applies_function(op: &Op) -> bool {
    matches!(
        op,
        Op::Map { .. }
            | Op::Reduce { .. }
            | Op::ReduceWindow { .. }
            | Op::Sort { .. }
            | Op::Scatter(_)
            | Op::Scan(_)
            | Op::SelectAndScatter { .. }
            | Op::AllReduce(_)
            | Op::ReduceScatter(_)
    )
}

fn function_hash(module: &Module, computation: ComputationId) -> u64 {
    let mut hasher = FxHasher::default();
    for &i in module[computation].instructions() {
        hash_op(&module[i].op, &mut hasher);
        module[i].shape.hash(&mut hasher);
    }
    hasher.finish()
}

/// Whether two functions, which are short, have the same instructions in the same order, and none that reaches outside:
/// what such a one does is said in its `backend_config`, too.
pub(crate) fn same_function(module: &Module, a: ComputationId, b: ComputationId) -> bool {
    let (a_list, b_list) = (module[a].instructions(), module[b].instructions());
    if a_list.len() != b_list.len()
        || a_list.len() > MAX_FUNCTION
        || module[a].execution_thread != module[b].execution_thread
    {
        return false;
    }
    let position = |list: &[InstructionId], i: InstructionId| list.iter().position(|&x| x == i);
    let root = |c, list| module.root(c).and_then(|r| position(list, r));
    root(a, a_list) == root(b, b_list)
        && a_list.iter().zip(b_list).all(|(&x, &y)| {
            let (x, y) = (&module[x], &module[y]);
            x.op == y.op
                && !reaches_outside(&x.op)
                && x.shape == y.shape
                && x.operands().len() == y.operands().len()
                && x.operands().iter().zip(y.operands()).all(|(&p, &q)| position(a_list, p) == position(b_list, q))
        })
}

/// Lets users of values that are the same use the first of them.
fn share_values(module: &mut Module) -> usize {
    let mut stands_for: SideTable<InstructionId, Option<InstructionId>> =
        SideTable::with_len(module.instruction_slots(), None);
    let mut duplicates = Vec::new();
    let pinned = pinned(module);
    let mut order = PostOrder::new(module);
    let mut first_of: FxHashMap<u64, SmallVec<[InstructionId; 1]>> = FxHashMap::default();
    for &c in module.computations() {
        first_of.clear();
        for i in order.instructions(c) {
            if !is_shareable(module, i) || pinned[i] {
                continue;
            }
            let operands = read_by(module, i, &stands_for);
            let mut hasher = FxHasher::default();
            hash_op(&module[i].op, &mut hasher);
            operands.hash(&mut hasher);
            let alike = first_of.entry(hasher.finish()).or_default();
            let same = |&&other: &&InstructionId| {
                module[other].op == module[i].op
                    && module[other].shape == module[i].shape
                    && read_by(module, other, &stands_for) == operands
            };
            match alike.iter().find(same) {
                Some(&other) => {
                    stands_for.set(i, Some(other));
                    duplicates.push((i, other));
                }
                None => alike.push(i),
            }
        }
    }
    for &(duplicate, original) in &duplicates {
        let _same_computation = module.replace_all_uses(duplicate, original);
    }
    let dead: Vec<InstructionId> = duplicates.iter().map(|&(duplicate, _)| duplicate).collect();
    if !dead.is_empty() {
        let removed = module.remove_instructions(&dead);
        debug_assert!(removed.is_ok(), "{removed:?}");
    }
    dead.len()
}

/// The operands, each as the first instruction that makes its value; in one order where the order does not matter.
fn read_by(
    module: &Module,
    i: InstructionId,
    stands_for: &SideTable<InstructionId, Option<InstructionId>>,
) -> Operands {
    let mut operands: Operands = module[i].operands().iter().map(|&o| stands_for[o].unwrap_or(o)).collect();
    if let Op::Binary(op) = module[i].op
        && is_commutative(op)
    {
        operands.sort_unstable();
    }
    operands
}

fn is_commutative(op: BinaryOp) -> bool {
    use BinaryOp::{Add, And, Maximum, Minimum, Multiply, Or, Xor};
    matches!(op, Add | And | Maximum | Minimum | Multiply | Or | Xor)
}

fn is_shareable(module: &Module, i: InstructionId) -> bool {
    let op = &module[i].op;
    match op {
        Op::Parameter { .. }
        | Op::Constant(ConstantValue::Elided)
        | Op::Copy
        | Op::CopyStart { .. }
        | Op::CopyDone
        | Op::While { .. }
        | Op::Conditional { .. }
        | Op::Call { .. }
        | Op::Fusion(_)
        | Op::AsyncStart(_)
        | Op::AsyncUpdate { .. }
        | Op::AsyncDone
        | Op::AllReduceDone
        | Op::AllGatherDone
        | Op::CollectivePermuteDone
        | Op::AfterAll
        | Op::AddDependency
        | Op::OptBarrier
        | Op::StochasticConvert
        | Op::Domain(_) => false,
        _ => !reaches_outside(op),
    }
}

/// Hashes what tells most operations apart; equality decides.
pub fn hash_op(op: &Op, hasher: &mut FxHasher) {
    std::mem::discriminant(op).hash(hasher);
    match op {
        Op::Parameter { number, .. } => number.hash(hasher),
        Op::Constant(ConstantValue::Literal(literal)) => {
            if let Some(array) = literal.as_array() {
                array.shape().hash(hasher);
                // The ends of a large constant tell it from most others.
                let bytes = array.bytes();
                bytes[..bytes.len().min(512)].hash(hasher);
                bytes[bytes.len().saturating_sub(64)..].hash(hasher);
            }
        }
        Op::Unary { op, .. } => op.hash(hasher),
        Op::Binary(op) => op.hash(hasher),
        Op::Compare { direction, .. } => direction.hash(hasher),
        Op::GetTupleElement { index } => index.hash(hasher),
        Op::Iota { dimension } => dimension.hash(hasher),
        Op::Broadcast { dimensions } | Op::Transpose { dimensions } | Op::Reverse { dimensions } => {
            dimensions.hash(hasher);
        }
        Op::Reduce { dimensions, to_apply } => {
            dimensions.hash(hasher);
            to_apply.index().hash(hasher);
        }
        Op::Slice { dims } => dims.hash(hasher),
        Op::DynamicSlice { sizes } => sizes.hash(hasher),
        Op::Pad { padding } => padding.hash(hasher),
        _ => {}
    }
}

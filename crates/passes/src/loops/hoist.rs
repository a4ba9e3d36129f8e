//! Invariant code motion: what a loop would compute anew each iteration, but from values that never change, is computed
//! before the loop and carried: factors of a matrix, too, and what loops inside of the loop make.
//!
//! Only what is worth it: something expensive, or something that would be written to memory each iteration. What is
//! cheap and made element by element is better made again where it is needed than read from memory. Weights that
//! products would bring into another order each iteration are transposed first, so that this, too, is done before the
//! loop.

use super::invariant_operand_layout::transpose_weights;
use super::{Loop, element_of, loops};
use crate::dce::remove_dead_code;
use crate::pass::{Context, Pass};
use hloom_analysis::effects::{is_function, only_computes, reaches_outside};
use hloom_analysis::trip_count::trip_count;
use hloom_cost::element;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::instruction::Operands;
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::order::{PostOrder, computations};
use hloom_ir::shape::Shape;
use rustc_hash::{FxHashMap, FxHashSet};

/// The pass.
pub static PASS: Pass = Pass {
    name: "hoist-invariants",
    statement: "computes before a loop what it would compute the same in every iteration",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(hoist_all(module)) as Result<usize, Diagnostic>,
};

fn hoist_all(module: &mut Module) -> usize {
    let mut changes = 0;
    let functions = functions(module);
    // Inner loops first: what leaves them may leave the outer ones as well.
    for w in loops(module) {
        if let Some(mut plain) = Loop::of(module, w) {
            changes += transpose_weights(module, &plain);
            changes += hoist(module, &mut plain, &functions);
        }
    }
    if changes > 0 {
        remove_dead_code(module);
    }
    changes
}

/// The computations that come to an end and give a function of their operands, whatever these are.
fn functions(module: &Module) -> SideTable<ComputationId, bool> {
    let mut functions: SideTable<ComputationId, bool> = SideTable::with_len(module.computation_slots(), false);
    for c in computations(module) {
        let is_one = module[c].instructions().iter().all(|&i| computes(module, i, &functions));
        functions.set(c, is_one);
    }
    functions
}

/// Whether `i` is done after a known time, and gives a function of its operands, if what it calls is one of `functions`.
fn computes(module: &Module, i: InstructionId, functions: &SideTable<ComputationId, bool>) -> bool {
    let op = &module[i].op;
    (!reaches_outside(op) || is_function(op))
        && op.called_computations().iter().all(|&c| functions[c])
        && (!matches!(op, Op::While { .. }) || trip_count(module, i).is_some())
}

fn hoist(module: &mut Module, plain: &mut Loop, functions: &SideTable<ComputationId, bool>) -> usize {
    let order = PostOrder::new(module).instructions(plain.body);
    let mut invariant: FxHashSet<InstructionId> = FxHashSet::default();
    // How much is computed for each, operands and all: 1 is an addition per element.
    let mut cost: FxHashMap<InstructionId, f64> = FxHashMap::default();
    for &i in &order {
        let carried = element_of(module, i, plain.body_parameter).is_some_and(|n| plain.is_invariant(module, n));
        if carried || is_movable(module, i, functions) && module[i].operands().iter().all(|o| invariant.contains(o)) {
            invariant.insert(i);
            let operands: f64 = module[i].operands().iter().filter_map(|o| cost.get(o)).sum();
            cost.insert(i, if carried { 0.0 } else { own_cost(module, i) + operands });
        }
    }
    // What changes with the rounds, and what is made in no time of what may leave the loop.
    let mut staying: FxHashSet<InstructionId> = FxHashSet::default();
    for &i in order.iter().rev() {
        let is_used = || module[i].users().iter().any(|u| staying.contains(u));
        if !invariant.contains(&i) || is_trivial(module, i) && is_used() {
            staying.insert(i);
        }
    }
    let worth = |&i: &InstructionId| {
        let carried = element_of(module, i, plain.body_parameter).is_some();
        if !invariant.contains(&i) || carried || !module[i].shape.is_array() || is_trivial(module, i) {
            return false;
        }
        let to_memory = |u: &InstructionId| !invariant.contains(u) && reads_memory(&module[*u].op);
        let stays = |u: &InstructionId| staying.contains(u);
        let users = module[i].users();
        users.iter().any(stays) && (cost.get(&i).is_some_and(|&c| c > element::CHEAP) || users.iter().any(to_memory))
    };
    let hoisted: Vec<InstructionId> = order.iter().copied().filter(worth).collect();
    if hoisted.is_empty() {
        return 0;
    }
    let home = module[plain.id].parent();
    if let Some(root) = module.root(home) {
        module.set_root(root);
    }
    let mut outside: FxHashMap<InstructionId, InstructionId> = FxHashMap::default();
    let mut wanted: FxHashSet<InstructionId> = hoisted.iter().copied().collect();
    for &i in order.iter().rev() {
        if wanted.contains(&i) && element_of(module, i, plain.body_parameter).is_none() {
            wanted.extend(module[i].operands().iter().copied());
        }
    }
    for &i in order.iter().filter(|i| wanted.contains(i)) {
        let copy = match element_of(module, i, plain.body_parameter) {
            Some(n) => module[plain.init].operands().get(n).copied(),
            None => copy_outside(module, i, home, &outside),
        };
        if let Some(copy) = copy {
            outside.insert(i, copy);
        }
    }
    let values: Option<Vec<InstructionId>> = hoisted.iter().map(|i| outside.get(i).copied()).collect();
    let all: Vec<usize> = (0..plain.width(module)).collect();
    let Some(stands) = values.and_then(|values| plain.carry(module, &all, &values)) else { return 0 };
    for (&i, &element) in hoisted.iter().zip(&stands) {
        let _same_computation = module.replace_all_uses(i, element);
    }
    hoisted.len()
}

fn copy_outside(
    module: &mut Module,
    i: InstructionId,
    home: ComputationId,
    outside: &FxHashMap<InstructionId, InstructionId>,
) -> Option<InstructionId> {
    let original = &module[i];
    let operands = original.operands().iter().map(|o| outside.get(o).copied()).collect::<Option<Operands>>()?;
    let new = NewInstruction {
        name: original.name().into(),
        op: original.op.clone(),
        shape: original.shape.clone(),
        operands,
        common: original.common.clone(),
    };
    Some(module.add_instruction(home, new))
}

/// Whether `i` gives the same whenever it is computed, and may be computed although the loop never runs.
fn is_movable(module: &Module, i: InstructionId, functions: &SideTable<ComputationId, bool>) -> bool {
    let op = &module[i].op;
    let moves = only_computes(op)
        || is_function(op)
        || matches!(op, Op::Constant(ConstantValue::Literal(_)) | Op::Tuple | Op::GetTupleElement { .. })
        || (makes_array(op) || matches!(op, Op::While { .. })) && computes(module, i, functions);
    let is_plain = |shape: &Shape| shape.as_array().is_some_and(|a| !a.is_dynamic());
    let plain = module[i].shape.leaves().iter().all(|(_, shape)| is_plain(shape));
    moves && plain && module[i].common.control_predecessors().is_empty()
}

/// Whether an operation makes an array by changing a copy of one.
fn makes_array(op: &Op) -> bool {
    matches!(op, Op::Scatter(_) | Op::SelectAndScatter { .. } | Op::DynamicUpdateSlice)
}

/// What need not be carried, whoever reads it: it is made in no time.
fn is_trivial(module: &Module, i: InstructionId) -> bool {
    matches!(module[i].op, Op::Constant(_) | Op::Iota { .. } | Op::Reshape { .. } | Op::Broadcast { .. })
}

/// Whether an operation finds its operands in memory, so that each must be written there.
fn reads_memory(op: &Op) -> bool {
    matches!(
        op,
        Op::Dot(_)
            | Op::Convolution(_)
            | Op::Sort { .. }
            | Op::Fft { .. }
            | Op::Scatter(_)
            | Op::TriangularSolve { .. }
            | Op::CustomCall(_)
    )
}

/// What one element takes, in additions.
fn own_cost(module: &Module, i: InstructionId) -> f64 {
    let instruction = &module[i];
    match instruction.op {
        Op::Constant(_) | Op::Iota { .. } | Op::Broadcast { .. } | Op::Reshape { .. } => 0.0,
        Op::Tuple | Op::GetTupleElement { .. } => 0.0,
        _ => {
            let element_type = instruction.shape.element_type();
            let cost =
                element_type.and_then(|t| element::instruction(&instruction.op, instruction.operands().len(), t));
            // Products, reductions and the like read many elements for each.
            cost.unwrap_or(f64::INFINITY)
        }
    }
}

//! Constant folding: what is made of constants alone is made once, by the evaluator.
//!
//! Bounded in size and in work: large arrays are cheaper to make than to store, so a repeated scalar or a counting array
//! stays what it is, and nothing that calls a function is run.

use crate::facts::pinned;
use crate::pass::{Context, Pass};
use hloom_eval::interpreter::{Device, OperandValues};
use hloom_eval::ops;
use hloom_eval::run::{Options, Prepared, Shared};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{InstructionId, SideTable};
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::order::PostOrder;
use hloom_value::Value;
use rustc_hash::FxHashMap;

/// The pass.
pub static PASS: Pass = Pass {
    name: "fold-constants",
    statement: "computes what is made of constants alone, up to a size",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(fold(module)) as Result<usize, Diagnostic>,
};

/// No larger arrays are made, nor read.
const MAX_ELEMENTS: i64 = 4096;
/// The elements that all folds of one run may read and make.
const MAX_WORK: i64 = 1 << 22;

fn fold(module: &mut Module) -> usize {
    let folded = evaluate(module);
    let mut is_folded = SideTable::with_default(false);
    folded.iter().for_each(|&(i, _)| is_folded.set(i, true));
    let mut changes = 0;
    for (i, value) in folded {
        let parent = module[i].parent();
        let is_root = module.root(parent) == Some(i);
        if !is_root && module[i].users().iter().all(|&u| is_folded[u]) {
            // Only what is folded itself needs it.
            continue;
        }
        let Some(literal) = literal(module, i, &value) else { continue };
        let new = NewInstruction {
            name: "constant".into(),
            op: Op::constant(literal),
            shape: module[i].shape.clone(),
            operands: Operands::new(),
            common: Common { metadata: module[i].common.metadata.clone(), ..Common::default() },
        };
        if let Some(root) = module.root(parent) {
            module.set_root(root);
        }
        let constant = module.add_instruction(parent, new);
        if module.replace_all_uses(i, constant).is_ok() {
            changes += 1;
        }
    }
    if changes > 0 {
        crate::dce::remove_dead_code(module);
    }
    changes
}

/// The instructions that are made of constants alone, each with its value, operands first.
fn evaluate(module: &Module) -> Vec<(InstructionId, Value)> {
    let mut folded: Vec<(InstructionId, Value)> = Vec::new();
    let mut number: FxHashMap<InstructionId, usize> = FxHashMap::default();
    let pinned = pinned(module);
    let (prepared, options) = (Prepared::nothing(), Options::default());
    let shared = Shared::alone(module, &prepared, &options);
    let mut device = Device::new(&shared, 0);
    let mut order = PostOrder::new(module);
    let mut work = MAX_WORK;
    for &c in module.computations() {
        for i in order.instructions(c) {
            if pinned[i] || !is_foldable(module, i) {
                continue;
            }
            let value_of = |o: InstructionId| match &module[o].op {
                Op::Constant(ConstantValue::Literal(literal)) => Value::from_literal(literal).ok(),
                _ => number.get(&o).map(|&n| folded[n].1.clone()),
            };
            let known = |&o: &InstructionId| {
                matches!(module[o].op, Op::Constant(ConstantValue::Literal(_))) || number.contains_key(&o)
            };
            if !module[i].operands().iter().all(known) {
                continue;
            }
            let size =
                |i: InstructionId| module[i].shape.as_array().and_then(|a| a.element_count()).unwrap_or(i64::MAX);
            let read = module[i].operands().iter().fold(0i64, |n, &o| n.saturating_add(size(o)));
            if read > 4 * MAX_ELEMENTS || size(i) > MAX_ELEMENTS {
                continue;
            }
            work -= read + size(i);
            if work < 0 {
                return folded;
            }
            let Some(operands) = module[i].operands().iter().map(|&o| value_of(o)).collect::<Option<OperandValues>>()
            else {
                continue;
            };
            if let Ok(value) = ops::evaluate(&mut device, i, operands) {
                number.insert(i, folded.len());
                folded.push((i, value));
            }
        }
    }
    folded
}

/// Whether `i` can be computed if its operands are known.
fn is_foldable(module: &Module, i: InstructionId) -> bool {
    let Some(array) = module[i].shape.as_array() else { return false };
    match &module[i].op {
        Op::Broadcast { .. } | Op::Iota { .. } => array.element_count() == Some(1),
        op if op.is_elementwise() => !array.is_dynamic(),
        Op::Copy
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Reverse { .. }
        | Op::Concatenate { .. }
        | Op::Slice { .. }
        | Op::DynamicSlice { .. }
        | Op::DynamicUpdateSlice
        | Op::Pad { .. }
        | Op::Gather(_) => !array.is_dynamic(),
        _ => false,
    }
}

/// The constant of that value.
fn literal(module: &Module, i: InstructionId, value: &Value) -> Option<Literal> {
    let shape = module[i].shape.as_array()?.clone();
    let array = value.as_array().ok().filter(|a| a.dims() == shape.dims() && a.element_type() == shape.element_type)?;
    ArrayLiteral::new(shape, array.bytes()).ok().map(Literal::Array)
}

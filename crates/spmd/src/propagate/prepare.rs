//! The program without calls, and with a computation of its own for every loop and branch, so that each value has one
//! sharding; constants and broadcast scalars copied for every use.

use hloom_ir::Op;
use hloom_ir::diagnostic::codes::spmd as codes;
use hloom_ir::diagnostic::{Blame, Diagnostic};
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::instruction::Operands;
use hloom_ir::module::Module;
use hloom_ir::order::{PostOrder, computations};
use rustc_hash::{FxHashMap, FxHashSet};

/// Written out, a program may grow by this many instructions for each that it has, and by this many besides.
const GROWTH: (usize, usize) = (8, 100_000);

pub(super) fn failed(e: impl std::fmt::Debug) -> Vec<Diagnostic> {
    let message = format!("an edit of the program failed: {e:?}");
    vec![Diagnostic::error(&codes::NOT_PROPAGATED, message).blame(Blame::Hloom)]
}

/// Prepares the program.
pub(crate) fn prepare(module: &mut Module) -> Result<(), Vec<Diagnostic>> {
    write_out(module)?;
    let mut constants = SideTable::with_len(module.instruction_slots(), false);
    for c in super::named::sequential(module) {
        split_constants(module, c, &mut constants)?;
    }
    Ok(())
}

/// Writes calls out in place, and gives each loop and branch computations of its own.
pub(super) fn write_out(module: &mut Module) -> Result<(), Vec<Diagnostic>> {
    inline_calls(module)?;
    separate_computations(module)
}

fn inline_calls(module: &mut Module) -> Result<(), Vec<Diagnostic>> {
    let mut budget = GROWTH.1 + GROWTH.0 * module.instruction_count();
    for c in computations(module) {
        let is_call = |i: &InstructionId| matches!(module[*i].op, Op::Call { .. });
        let calls: Vec<InstructionId> = module[c].instructions().iter().copied().filter(is_call).collect();
        let mut inlined = Vec::new();
        for i in calls {
            let Op::Call { to_apply, .. } = module[i].op else { continue };
            let size = module[to_apply].instructions().len();
            if size > budget {
                let message = format!("`{}` cannot be written out: the program would be too large", module[i].name());
                return Err(vec![
                    Diagnostic::error(&codes::NOT_PROPAGATED, message)
                        .at_instruction(i, hloom_ir::diagnostic::Part::Whole),
                ]);
            }
            budget -= size;
            let operands = module[i].operands().to_vec();
            let sharding = module[i].common.sharding.clone();
            let Some(value) = module.inline_computation(c, to_apply, &operands) else { continue };
            if sharding.is_some() && module[value].common.sharding.is_none() && !operands.contains(&value) {
                module.instruction_mut(value).common.sharding = sharding;
            }
            module.replace_all_uses(i, value).map_err(failed)?;
            inlined.push(i);
        }
        if !inlined.is_empty() {
            module.remove_instructions(&inlined).map_err(failed)?;
            let order = PostOrder::new(module).instructions(c);
            module.reorder(c, order).map_err(failed)?;
        }
    }
    Ok(())
}

/// Gives every loop and conditional computations of its own.
fn separate_computations(module: &mut Module) -> Result<(), Vec<Diagnostic>> {
    let Some(entry) = module.entry() else { return Ok(()) };
    let mut taken: FxHashSet<ComputationId> = FxHashSet::default();
    let mut pending = vec![entry];
    let mut budget = GROWTH.1 + GROWTH.0 * module.instruction_count();
    while let Some(c) = pending.pop() {
        for i in module[c].instructions().to_vec() {
            if !matches!(module[i].op, Op::While { .. } | Op::Conditional { .. }) {
                continue;
            }
            for n in 0..module[i].op.called_computations().len() {
                let called = module[i].op.called_computations()[n];
                let mut own = called;
                if !taken.insert(called) {
                    let size = module[called].instructions().len();
                    if size > budget {
                        let message = format!("`{}` cannot be given a body of its own", module[i].name());
                        return Err(vec![Diagnostic::error(&codes::NOT_PROPAGATED, message)]);
                    }
                    budget -= size;
                    let name = module[called].name().to_owned();
                    own = module.clone_computation(called, &name);
                    taken.insert(own);
                    if let Some(slot) = module.instruction_mut(i).op.called_computations_mut().into_iter().nth(n) {
                        *slot = own;
                    }
                }
                pending.push(own);
            }
        }
    }
    Ok(())
}

/// Whether an instruction only says that its operand lies as others of a group do.
fn is_group(module: &Module, i: InstructionId) -> bool {
    matches!(&module[i].op, Op::CustomCall(call) if &*call.target == "xla.sdy.ShardingGroup")
}

fn is_scalar(module: &Module, i: InstructionId) -> bool {
    module[i].shape.as_array().is_some_and(|a| a.rank() == 0)
}

/// Which instructions are constant expressions; copies are not among them.
type Constants = SideTable<InstructionId, bool>;

/// Gives each use of a constant expression or of a broadcast scalar its own copy.
fn split_constants(module: &mut Module, c: ComputationId, constants: &mut Constants) -> Result<(), Vec<Diagnostic>> {
    let old_order = module[c].instructions().to_vec();
    let mut order = Vec::with_capacity(old_order.len());
    let root = module.root(c);
    for i in old_order {
        let op = &module[i].op;
        let operands = Operands::from_slice(module[i].operands());
        let is_leaf = matches!(op, Op::Constant(_) | Op::Iota { .. });
        let keeps = op.is_elementwise() || matches!(op, Op::Broadcast { .. } | Op::Reshape { .. } | Op::Slice { .. });
        let all_constant = !operands.is_empty() && operands.iter().all(|o| constants[*o]);
        let expands = matches!(op, Op::Broadcast { .. }) && operands.first().is_some_and(|&x| is_scalar(module, x));
        if module[i].common.sharding.is_none() && (is_leaf || (keeps && all_constant) || expands) && root != Some(i) {
            constants.set(i, true);
            order.push(i);
            continue;
        }
        // What says that values are to lie alike is no use of them: it goes with each copy.
        if is_group(module, i) {
            order.push(i);
            continue;
        }
        for (n, &x) in operands.iter().enumerate() {
            if !constants[x] || is_scalar(module, x) {
                continue;
            }
            // The last use keeps the original.
            let uses = module[x].users().iter().filter(|&&u| !is_group(module, u)).take(2).count();
            if uses < 2 && first_use(&operands, n) {
                continue;
            }
            let copy = copy_expression(module, c, x, constants, &mut order);
            module.replace_operand(i, n, copy).map_err(failed)?;
        }
        order.push(i);
    }
    if order.len() > module[c].instructions().len() {
        return Err(failed("an instruction is there twice"));
    }
    module.reorder(c, order).map_err(failed)
}

/// Whether the operand is not the same as an earlier one.
fn first_use(operands: &[InstructionId], n: usize) -> bool {
    !operands[..n].contains(&operands[n])
}

fn copy_expression(
    module: &mut Module,
    c: ComputationId,
    root: InstructionId,
    constants: &Constants,
    order: &mut Vec<InstructionId>,
) -> InstructionId {
    let mut copies: FxHashMap<InstructionId, InstructionId> = FxHashMap::default();
    let mut stack = vec![(root, false)];
    while let Some((i, ready)) = stack.pop() {
        if copies.contains_key(&i) {
            continue;
        }
        if !ready {
            stack.push((i, true));
            for &x in module[i].operands() {
                if constants[x] && !is_scalar(module, x) {
                    stack.push((x, false));
                }
            }
            continue;
        }
        let operands = module[i].operands().iter().map(|x| copies.get(x).copied().unwrap_or(*x)).collect();
        let new = hloom_ir::module::NewInstruction {
            name: module[i].name().into(),
            op: module[i].op.clone(),
            operands,
            shape: module[i].shape.clone(),
            common: module[i].common.clone(),
        };
        let copy = module.add_instruction(c, new);
        order.push(copy);
        copies.insert(i, copy);
        let groups: Vec<InstructionId> = module[i].users().iter().copied().filter(|&u| is_group(module, u)).collect();
        for group in groups {
            let new = hloom_ir::module::NewInstruction {
                name: module[group].name().into(),
                op: module[group].op.clone(),
                operands: [copy].into_iter().collect(),
                shape: module[group].shape.clone(),
                common: module[group].common.clone(),
            };
            order.push(module.add_instruction(c, new));
        }
    }
    copies.get(&root).copied().unwrap_or(root)
}

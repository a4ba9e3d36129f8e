//! What is tried to make a case smaller, in one round.

use super::case::{Case, all_instructions};
use super::{Search, shapes, values, values_at};
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use rustc_hash::FxHashSet;

/// The most elements of a constant that is put in place of a value.
const CONSTANT_ELEMENTS: i64 = 4096;

/// Everything once, from the coarse to the fine.
pub(super) fn round(search: &mut Search<'_>) {
    let may_cut = search.oracle.may_cut();
    one_device(search);
    outputs(search);
    if may_cut {
        first_part(search);
        last_part(search);
    }
    plain(search);
    write_out(search);
    if may_cut {
        leave_out(search);
        into_parameters(search);
        shapes::shrink(search);
        values::simplify(search);
    }
    attributes(search);
}

/// One device with the inputs of one that there was.
fn one_device(search: &mut Search<'_>) {
    let devices = search.best.inputs.len();
    if devices < 2 {
        return;
    }
    let on = |device: usize| {
        let mut case = search.best.clone();
        case.module.config.replica_count = 1;
        case.module.config.num_partitions = 1;
        case.inputs = vec![case.inputs[device].clone()];
        case
    };
    let mut candidates: Vec<Case> = (0..devices.min(8)).map(on).collect();
    for case in &mut candidates {
        case.prune();
    }
    search.take_first(candidates);
}

/// One result of several, else half of them.
fn outputs(search: &mut Search<'_>) {
    loop {
        let case = &search.best;
        let Some(root) = case.module.entry().and_then(|e| case.module.root(e)) else { return };
        if !matches!(case.module[root].op, Op::Tuple) {
            return;
        }
        let mut parts = Vec::new();
        let mut seen = FxHashSet::default();
        for &operand in case.module[root].operands() {
            if seen.insert(operand) {
                parts.push(operand);
            }
        }
        let halves = (parts.len() > 3).then(|| parts.chunks(parts.len().div_ceil(2))).into_iter().flatten();
        let singles = parts.chunks(1);
        let candidates: Vec<Case> = halves.chain(singles).filter_map(|p| case.with_results(p)).collect();
        if search.take_first(candidates).is_none() {
            return;
        }
    }
}

/// What is in the entry before `end`, and is read after it or is the result.
fn live_out(module: &Module, order: &[InstructionId], end: usize) -> Vec<InstructionId> {
    let inside: FxHashSet<InstructionId> = order[..end].iter().copied().collect();
    let root = order.first().and_then(|&i| module.root(module[i].parent()));
    let is_read = |i: &InstructionId| {
        Some(*i) == root || module[*i].users().is_empty() || module[*i].users().iter().any(|u| !inside.contains(u))
    };
    let is_value = |i: &InstructionId| {
        let plain = !matches!(module[*i].op, Op::Parameter { .. } | Op::Constant(_));
        plain && is_data(&module[*i].shape)
    };
    order[..end].iter().copied().filter(is_value).filter(is_read).collect()
}

fn is_data(shape: &Shape) -> bool {
    shape.leaves().iter().all(|(_, leaf)| matches!(leaf, Shape::Array(_)))
}

/// The shortest beginning of the entry that shows the fault in what the rest would read.
fn first_part(search: &mut Search<'_>) {
    let count = search.best.entry_order().len();
    search.least(count, |case, end| {
        let order = case.entry_order();
        let results = live_out(&case.module, &order, end);
        case.with_results(&results)
    });
    // The last instruction of it alone, where that is enough.
    let order = search.best.entry_order();
    let candidates = order.iter().rev().take(8).filter(|&&i| is_data(&search.best.module[i].shape));
    let candidates: Vec<Case> = candidates.filter_map(|&i| search.best.with_results(&[i])).collect();
    search.take_first(candidates);
}

/// The shortest end of the entry that shows it, from values that the reference has for what it reads.
fn last_part(search: &mut Search<'_>) {
    let order = search.best.entry_order();
    let count = order.len();
    let oracle = search.oracle;
    search.least(count, |case, kept| {
        let order = case.entry_order();
        let start = order.len().checked_sub(kept)?;
        let later: FxHashSet<InstructionId> = order[start..].iter().copied().collect();
        let module = &case.module;
        let is_read = |i: &&InstructionId| {
            let plain = !matches!(module[**i].op, Op::Parameter { .. } | Op::Constant(_));
            plain && is_data(&module[**i].shape) && module[**i].users().iter().any(|u| later.contains(u))
        };
        let read: Vec<InstructionId> = order[..start].iter().filter(is_read).copied().collect();
        let values = values_at(oracle, case, &read)?;
        case.with_parameters(&read, &values)
    });
}

/// Calls and fusions written out, loops and branches run once: all of a kind at once, then one by one.
fn write_out(search: &mut Search<'_>) {
    let is_call = |op: &Op| matches!(op, Op::Call { .. } | Op::Fusion(_));
    let all = search.best.edited(|module| {
        let mut changed = false;
        for i in all_instructions(module) {
            if is_call(&module[i].op) {
                changed |= inline(module, i, 0).is_some();
            }
        }
        changed.then_some(())
    });
    search.take_first(all.into_iter().collect());
    let may_cut = search.oracle.may_cut();
    search.sweep(
        |case| case.module.instruction_count(),
        |case, n| {
            let Some(&i) = all_instructions(&case.module).get(n) else { return Vec::new() };
            let ways = match &case.module[i].op {
                Op::Call { .. } | Op::Fusion(_) => 1,
                Op::While { .. } if may_cut => 1,
                Op::Conditional { branches } if may_cut => branches.len(),
                _ => 0,
            };
            (0..ways).filter_map(|way| case.edited(|module| inline(module, i, way))).collect()
        },
    );
}

/// Puts the body of what `i` calls in its place: of a loop the body once, of a conditional branch `way`.
fn inline(module: &mut Module, i: InstructionId, way: usize) -> Option<()> {
    let parent = module[i].parent();
    let operands = module[i].operands().to_vec();
    let (callee, arguments) = match &module[i].op {
        Op::Call { to_apply, .. } => (*to_apply, operands),
        Op::Fusion(fusion) => (fusion.calls, operands),
        Op::While { body, .. } => (*body, operands),
        Op::Conditional { branches } => (*branches.get(way)?, vec![*operands.get(way + 1)?]),
        _ => return None,
    };
    let result = module.inline_computation(parent, callee, &arguments)?;
    module.replace_all_uses(i, result).ok()
}

/// Instructions replaced by one of their operands, or by zeros.
fn leave_out(search: &mut Search<'_>) {
    search.sweep(
        |case| case.module.instruction_count(),
        |case, n| {
            let all = all_instructions(&case.module);
            // From the end: what is left out last takes most with it.
            let Some(&i) = all.len().checked_sub(n + 1).and_then(|n| all.get(n)) else { return Vec::new() };
            let module = &case.module;
            if matches!(module[i].op, Op::Parameter { .. } | Op::Constant(_)) {
                return Vec::new();
            }
            let mut candidates = Vec::new();
            let mut seen = FxHashSet::default();
            for &operand in module[i].operands() {
                if module[operand].shape.equal_ignoring_layout(&module[i].shape) && seen.insert(operand) {
                    candidates.extend(case.edited(|m| m.replace_all_uses(i, operand).ok()));
                }
            }
            candidates.extend(case.edited(|m| {
                let zeros = constant(m, i)?;
                m.replace_all_uses(i, zeros).ok()
            }));
            candidates
        },
    );
}

/// A constant of zeros, of the shape of `i` and beside it.
fn constant(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let shape = module[i].shape.as_array()?.clone();
    if shape.is_dynamic() || shape.element_count()? > CONSTANT_ELEMENTS {
        return None;
    }
    let bytes = vec![0u8; usize::try_from(shape.byte_size()?).ok()?];
    let literal = Literal::Array(ArrayLiteral::new(shape.clone(), bytes).ok()?);
    let parent = module[i].parent();
    let root = module.root(parent)?;
    module.set_root(root);
    let op = Op::constant(literal);
    let new = NewInstruction {
        name: "zeros".into(),
        op,
        shape: Shape::from(shape),
        operands: Operands::new(),
        common: Common::default(),
    };
    Some(module.add_instruction(parent, new))
}

/// Values of the entry made parameters, so that what makes them can go.
fn into_parameters(search: &mut Search<'_>) {
    let order = search.best.entry_order();
    if order.len() > 2000 {
        return;
    }
    let oracle = search.oracle;
    search.sweep(
        |case| case.entry_order().len(),
        |case, n| {
            let order = case.entry_order();
            let Some(&i) = order.get(n) else { return Vec::new() };
            let module = &case.module;
            let root = module.entry().and_then(|e| module.root(e));
            let trivial = matches!(module[i].op, Op::Parameter { .. } | Op::Constant(_));
            if trivial || Some(i) == root || !is_data(&module[i].shape) || module[i].operands().is_empty() {
                return Vec::new();
            }
            let values = values_at(oracle, case, &[i]);
            values.and_then(|v| case.with_parameters(&[i], &v)).into_iter().collect()
        },
    );
}

/// Everything dropped that changes no value.
fn plain(search: &mut Search<'_>) {
    let bare = |module: &mut Module, schedule: bool, layouts: bool| {
        for i in all_instructions(module) {
            let instruction = module.instruction_mut(i);
            let metadata = instruction.common.metadata.take();
            let control = instruction.common.control_predecessors().to_vec();
            instruction.common = Common { metadata, ..Common::default() };
            if schedule && !control.is_empty() {
                instruction.common.rare_mut().control_predecessors = control;
            }
            if layouts {
                instruction.shape = instruction.shape.with_default_layout();
            }
        }
        module.is_scheduled &= schedule;
        module.stack_frames = Default::default();
        Some(())
    };
    let ways = [(false, true), (false, false), (true, false)];
    let candidates = ways.into_iter().filter_map(|(s, l)| search.best.edited(|m| bare(m, s, l))).collect();
    search.take_first(candidates);
}

/// Attributes and metadata of single instructions.
fn attributes(search: &mut Search<'_>) {
    search.sweep(
        |case| case.module.instruction_count(),
        |case, n| {
            let Some(&i) = all_instructions(&case.module).get(n) else { return Vec::new() };
            let has_any = case.module[i].common != Common::default();
            let bare = has_any.then(|| {
                case.edited(|m| {
                    let metadata = m[i].common.metadata.clone();
                    m.instruction_mut(i).common = Common { metadata, ..Common::default() };
                    Some(())
                })
            });
            bare.into_iter().flatten().collect()
        },
    );
}

//! Gathers, scatters and sorts that are something simpler.

use super::functions::{parameter_given_back, reducer};
use super::numbers::{Number, bounds, scalar, splat};
use super::{array, beside, dims, is_identity, operand};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::attributes::{ComparisonDirection, SliceDim};
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::layout::DimVec;
use hloom_ir::literal::ArrayLiteral;
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::opcode::Opcode;
use smallvec::SmallVec;

/// The pass.
pub static PASS: Pass = Pass {
    name: "simplify-gathers",
    statement: "makes slices of gathers and updates of scatters at one place, and drops from sorts what nothing needs",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[
    Rule {
        name: "gather-of-splat",
        statement: "gather(broadcast(scalar)) → broadcast(scalar)",
        opcodes: &[Opcode::Gather],
        apply: gather_of_splat,
    },
    Rule {
        name: "gather-in-order",
        statement: "a gather at 0, 1, 2, … along one dimension → slice",
        opcodes: &[Opcode::Gather],
        apply: gather_in_order,
    },
    Rule {
        name: "gather-at-one-place",
        statement: "a gather of one slice → dynamic-slice",
        opcodes: &[Opcode::Gather],
        apply: gather_at_one_place,
    },
    Rule {
        name: "scatter-nothing",
        statement: "a scatter of no updates → its operand",
        opcodes: &[Opcode::Scatter],
        apply: scatter_nothing,
    },
    Rule {
        name: "scatter-at-one-place",
        statement: "a scatter of one update → dynamic-update-slice, of what is there already if it reaches outside",
        opcodes: &[Opcode::Scatter],
        apply: scatter_at_one_place,
    },
    Rule {
        name: "scatter-one-in-each-row",
        statement: "scatter of one update into each row of a made-up array → select(iota == index, updated, array)",
        opcodes: &[Opcode::Scatter],
        apply: scatter_one_in_each_row,
    },
    Rule {
        name: "sort-of-one",
        statement: "a sort along a dimension of at most one element → its operands",
        opcodes: &[Opcode::Sort],
        apply: sort_of_one,
    },
    Rule {
        name: "sort-of-unused",
        statement: "arrays that are sorted along, but neither compared nor used → not sorted",
        opcodes: &[Opcode::Sort],
        apply: sort_of_unused,
    },
];

fn gather_of_splat(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let x = operand(module, i, 0)?;
    let Op::Broadcast { .. } = module[x].op else { return None };
    let value = operand(module, x, 0)?;
    (array(module, value)?.is_scalar() && array(module, x)?.element_count()? > 0).then_some(())?;
    let to = DimVec::from(dims(module, i)?);
    beside(module, i).broadcast(value, to, []).ok()
}

/// The number at which indices begin that count on by one along their only large dimension, and that dimension.
fn consecutive(module: &Module, indices: InstructionId) -> Option<i64> {
    let shape = array(module, indices)?;
    let mut large = (0..shape.rank()).filter(|&d| shape.dims()[d] != 1);
    let along = large.next()?;
    large.next().is_none().then_some(())?;
    match &module[indices].op {
        Op::Iota { dimension } => (*dimension == along as i64).then_some(0),
        Op::Reshape { .. } => consecutive(module, operand(module, indices, 0)?),
        Op::Constant(ConstantValue::Literal(literal)) => counts_from(literal.as_array()?),
        _ => None,
    }
}

/// The first of integers of which each is one more than the one before.
fn counts_from(literal: &ArrayLiteral) -> Option<i64> {
    let number = |n: usize| match literal.element_type() {
        ElementType::S32 => Some(i32::from_le_bytes(literal.element(n).try_into().ok()?).into()),
        ElementType::S64 => Some(i64::from_le_bytes(literal.element(n).try_into().ok()?)),
        ElementType::U32 => Some(u32::from_le_bytes(literal.element(n).try_into().ok()?).into()),
        _ => None,
    };
    let first: i64 = number(0)?;
    (1..literal.len()).all(|n| number(n) == first.checked_add(n as i64)).then_some(first)
}

fn gather_in_order(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Gather(gather) = &module[i].op else { return None };
    let &[x, indices] = module[i].operands() else { return None };
    let d = &gather.dims;
    let &[along] = d.start_index_map.as_slice() else { return None };
    (d.operand_batching_dims.is_empty() && d.collapsed_slice_dims.as_slice() == [along]).then_some(())?;
    (gather.slice_sizes.get(along as usize) == Some(&1)).then_some(())?;
    let start = consecutive(module, indices)?;
    let count = array(module, indices)?.element_count()?;
    let size = *dims(module, x)?.get(along as usize)?;
    (start >= 0 && start.checked_add(count)? <= size).then_some(())?;
    let part = |(k, &n): (usize, &i64)| {
        let first = if k as i64 == along { start } else { 0 };
        let n = if k as i64 == along { count } else { n };
        SliceDim { start: first, limit: first + n, stride: 1 }
    };
    let parts: Vec<SliceDim> = gather.slice_sizes.iter().enumerate().map(part).collect();
    // Where each dimension of the slice goes: the windows' to the offsets, the other to what is left.
    let to = DimVec::from(dims(module, i)?);
    let windows: DimVec = (0..parts.len() as i64).filter(|&k| k != along).collect();
    let batch: DimVec = (0..to.len() as i64).filter(|k| !d.offset_dims.contains(k)).collect();
    let large: DimVec = batch.iter().copied().filter(|&k| to[k as usize] != 1).collect();
    let place = match large.as_slice() {
        &[only] => only,
        _ => return None,
    };
    let mut order: SmallVec<[(i64, i64); 4]> = d.offset_dims.iter().copied().zip(windows).collect();
    order.push((place, along));
    order.sort_unstable();
    let order: DimVec = order.iter().map(|&(_, from)| from).collect();
    let mut b = beside(module, i);
    let mut value = b.slice(x, parts).ok()?;
    if !is_identity(&order) {
        value = b.transpose(value, order).ok()?;
    }
    if b.shape(value).as_array()?.dims() == to.as_slice() { Some(value) } else { b.reshape(value, to).ok() }
}

/// The parts of the only index of a gather or scatter, one for each dimension of what is read or written.
fn only_index(
    module: &mut Module,
    i: InstructionId,
    indices: InstructionId,
    map: &[i64],
    rank: usize,
) -> Option<SmallVec<[InstructionId; 4]>> {
    let element_type = array(module, indices)?.element_type;
    (array(module, indices)?.element_count()? == map.len() as i64).then_some(())?;
    let mut b = beside(module, i);
    let zero = scalar(&mut b, element_type, Number::Int(0))?;
    let mut starts: SmallVec<[InstructionId; 4]> = SmallVec::from_elem(zero, rank);
    let flat = b.reshape(indices, [map.len() as i64]).ok()?;
    for (k, &d) in map.iter().enumerate() {
        let at = k as i64;
        let part = if map.len() == 1 {
            flat
        } else {
            b.slice(flat, [SliceDim { start: at, limit: at + 1, stride: 1 }]).ok()?
        };
        *starts.get_mut(d as usize)? = b.reshape(part, []).ok()?;
    }
    Some(starts)
}

fn gather_at_one_place(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Gather(gather) = &module[i].op else { return None };
    let &[x, indices] = module[i].operands() else { return None };
    let (d, sizes) = (&gather.dims, gather.slice_sizes.clone());
    // The offsets are in order, so that a reshape brings them where they belong.
    let simple = d.operand_batching_dims.is_empty() && d.offset_dims.is_sorted() && sizes.iter().all(|&n| n > 0);
    let map = d.start_index_map.clone();
    (simple && !map.is_empty()).then_some(())?;
    let to = DimVec::from(dims(module, i)?);
    let starts = only_index(module, i, indices, &map, sizes.len())?;
    let mut b = beside(module, i);
    let value = b.dynamic_slice(x, &starts, sizes).ok()?;
    b.reshape(value, to).ok()
}

fn scatter_nothing(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Scatter(_) = &module[i].op else { return None };
    let operands = module[i].operands();
    let count = operands.len() / 2;
    let nothing = operands.get(count + 1..)?.iter().all(|&u| dims(module, u).is_some_and(|d| d.contains(&0)));
    nothing.then_some(())?;
    let same = |&o: &InstructionId, shape: &hloom_ir::shape::Shape| module[o].shape.equal_ignoring_layout(shape);
    match module[i].shape.as_tuple() {
        None => operands.first().copied().filter(|o| same(o, &module[i].shape)),
        Some(parts) => {
            let kept: SmallVec<[InstructionId; 4]> = SmallVec::from_slice(operands.get(..count)?);
            kept.iter().zip(parts).all(|(o, s)| same(o, s)).then_some(())?;
            beside(module, i).tuple(&kept).ok()
        }
    }
}

fn scatter_at_one_place(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Scatter(scatter) = &module[i].op else { return None };
    let &[x, indices, updates] = module[i].operands() else { return None };
    let (d, function) = (scatter.dims.clone(), scatter.to_apply);
    let element_type = array(module, i)?.element_type;
    let same = [x, updates].iter().all(|&o| array(module, o).is_some_and(|a| a.element_type == element_type));
    let simple = d.input_batching_dims.is_empty() && d.update_window_dims.is_sorted();
    (same && simple && !d.scatter_dims_to_operand_dims.is_empty()).then_some(())?;
    let combined = reducer(module, function);
    (combined.is_some() || parameter_given_back(module, function) == Some(1)).then_some(())?;
    // The window of the update: its own dimensions where they are, and 1 where they were left out.
    let (whole, given) = (DimVec::from(dims(module, x)?), DimVec::from(dims(module, updates)?));
    let mut windows = d.update_window_dims.iter().map(|&k| given.get(k as usize).copied());
    let mut sizes = DimVec::new();
    for k in 0..whole.len() as i64 {
        sizes.push(if d.inserted_window_dims.contains(&k) { 1 } else { windows.next()?? });
    }
    array(module, updates)?.element_count().filter(|&n| n == sizes.iter().product::<i64>())?;
    whole.iter().zip(&sizes).all(|(w, s)| s <= w).then_some(())?;
    let limits = bounds(module, indices)?;
    let starts = only_index(module, i, indices, &d.scatter_dims_to_operand_dims, whole.len())?;
    let mut b = beside(module, i);
    let mut new = b.reshape(updates, sizes.iter().copied()).ok()?;
    let mut fits = None;
    for &k in &d.scatter_dims_to_operand_dims {
        let room = whole[k as usize] - sizes[k as usize];
        fits = and_within(&mut b, fits, starts[k as usize], limits, room)?;
    }
    // What would reach outside is left out, but an update is moved inside: there it puts what it finds.
    let old = match combined.is_some() || fits.is_some() {
        true => Some(b.dynamic_slice(x, &starts, sizes.iter().copied()).ok()?),
        false => None,
    };
    if let (Some(op), Some(old)) = (combined, old) {
        new = b.push(Op::Binary(op), &[old, new]).ok()?;
    }
    if let (Some(fits), Some(old)) = (fits, old) {
        let fits = b.broadcast(fits, sizes, []).ok()?;
        new = b.select(fits, new, old).ok()?;
    }
    b.dynamic_update_slice(x, new, &starts).ok()
}

/// `condition`, if there is one, and `0 <= index <= room`, as far as the index's limits do not say so already.
fn and_within(
    b: &mut Builder<'_>,
    condition: Option<InstructionId>,
    index: InstructionId,
    limits: (i128, i128),
    room: i64,
) -> Option<Option<InstructionId>> {
    let element_type = b.shape(index).element_type()?;
    let low = (limits.0 < 0).then_some((ComparisonDirection::Ge, 0));
    let high = (limits.1 > i128::from(room)).then_some((ComparisonDirection::Le, i128::from(room)));
    let mut condition = condition;
    for (direction, limit) in low.into_iter().chain(high) {
        let limit = scalar(b, element_type, Number::Int(limit))?;
        let holds = b.compare(direction, index, limit).ok()?;
        condition = Some(match condition {
            Some(condition) => b.and(condition, holds).ok()?,
            None => holds,
        });
    }
    Some(condition)
}

/// With one update in each row, which element it falls on is a question to each element; the answers need no memory.
fn scatter_one_in_each_row(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Scatter(scatter) = &module[i].op else { return None };
    let &[x, indices, updates] = module[i].operands() else { return None };
    let (d, function) = (scatter.dims.clone(), scatter.to_apply);
    let element_type = array(module, i)?.element_type;
    let same = [x, updates].iter().all(|&o| array(module, o).is_some_and(|a| a.element_type == element_type));
    // Where the operand has to be made anyway, making it with the updates in it is no more work.
    let is_made = splat(module, x).is_some() || matches!(module[x].op, Op::Broadcast { .. });
    let &[row] = &d.scatter_dims_to_operand_dims[..] else { return None };
    let whole = DimVec::from(dims(module, x)?);
    let rank = whole.len() as i64;
    let every_dim = (0..rank).all(|k| k == row || d.input_batching_dims.contains(&k));
    let single = d.update_window_dims.is_empty() && d.inserted_window_dims[..] == [row];
    let in_order = d.input_batching_dims.is_sorted() && d.scatter_indices_batching_dims.is_sorted();
    (same && is_made && every_dim && single && in_order && rank > 1).then_some(())?;
    // No more than one index in each row: all other dimensions of the indices are of size 1.
    let batch: DimVec = d.input_batching_dims.iter().map(|&k| whole[k as usize]).collect();
    (array(module, indices)?.element_count()? == batch.iter().product::<i64>()).then_some(())?;
    (array(module, updates)?.element_count()? == batch.iter().product::<i64>()).then_some(())?;
    let combined = reducer(module, function);
    (combined.is_some() || parameter_given_back(module, function) == Some(1)).then_some(())?;
    let index_type = array(module, indices)?.element_type;
    let is_narrow = index_type == ElementType::S32 && whole[row as usize] < i64::from(i32::MAX);
    let counted = if is_narrow { ElementType::S32 } else { ElementType::S64 };
    (index_type.is_integer() && index_type != ElementType::U64).then_some(())?;
    let mut b = beside(module, i);
    let at = b.reshape(indices, batch.iter().copied()).ok()?;
    let at = if index_type == counted { at } else { b.convert(at, counted).ok()? };
    let at = b.broadcast(at, whole.iter().copied(), d.input_batching_dims.iter().copied()).ok()?;
    let numbers = b.iota(hloom_ir::shape::ArrayShape::new(counted, whole.iter().copied()), row).ok()?;
    let hit = b.compare(ComparisonDirection::Eq, numbers, at).ok()?;
    let new = b.reshape(updates, batch).ok()?;
    let mut new = b.broadcast(new, whole, d.input_batching_dims.iter().copied()).ok()?;
    if let Some(op) = combined {
        new = b.push(Op::Binary(op), &[x, new]).ok()?;
    }
    b.select(hit, new, x).ok()
}

fn sort_of_one(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Sort { dimension, .. } = module[i].op else { return None };
    let operands = SmallVec::<[InstructionId; 4]>::from_slice(module[i].operands());
    (*dims(module, *operands.first()?)?.get(usize::try_from(dimension).ok()?)? <= 1).then_some(())?;
    if module[i].shape.is_tuple() { beside(module, i).tuple(&operands).ok() } else { operands.first().copied() }
}

fn sort_of_unused(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Sort { dimension, is_stable, to_apply } = module[i].op else { return None };
    module[i].shape.is_tuple().then_some(())?;
    (module.root(module[i].parent()) != Some(i)).then_some(())?;
    let operands = SmallVec::<[InstructionId; 4]>::from_slice(module[i].operands());
    let mut needed: SmallVec<[bool; 8]> = SmallVec::from_elem(false, operands.len());
    for &user in module[i].users() {
        let Op::GetTupleElement { index } = module[user].op else { return None };
        *needed.get_mut(usize::try_from(index).ok()?)? = true;
    }
    // Parameters 2k and 2k + 1 of the comparison are of array k.
    for p in module.parameters(to_apply) {
        let Op::Parameter { number, .. } = module[p].op else { return None };
        if !module[p].users().is_empty() || module.root(to_apply) == Some(p) {
            *needed.get_mut(usize::try_from(number / 2).ok()?)? = true;
        }
    }
    let kept: SmallVec<[usize; 8]> = (0..operands.len()).filter(|&k| needed[k]).collect();
    (!kept.is_empty() && kept.len() < operands.len()).then_some(())?;
    let comparator = narrowed(module, to_apply, &kept)?;
    let arrays: SmallVec<[InstructionId; 4]> = kept.iter().map(|&k| operands[k]).collect();
    let mut b = beside(module, i);
    let sorted = b.push(Op::Sort { dimension, is_stable, to_apply: comparator }, &arrays).ok()?;
    let mut results = operands;
    for (n, &k) in kept.iter().enumerate() {
        results[k] = if kept.len() == 1 { sorted } else { b.get_tuple_element(sorted, n as i64).ok()? };
    }
    b.tuple(&results).ok()
}

/// The comparison with the parameters of the arrays `kept` only.
fn narrowed(module: &mut Module, comparator: ComputationId, kept: &[usize]) -> Option<ComputationId> {
    let name = module[comparator].name().to_owned();
    let body = module[comparator].instructions().to_vec();
    let root = module.root(comparator)?;
    let mut copies: rustc_hash::FxHashMap<InstructionId, InstructionId> = rustc_hash::FxHashMap::default();
    // Parameters that nothing uses stand before those that are kept, or after: each gets its new number.
    let steps: Vec<(InstructionId, Op, hloom_ir::shape::Shape, Vec<InstructionId>)> = body
        .iter()
        .map(|&f| (f, module[f].op.clone(), module[f].shape.clone(), module[f].operands().to_vec()))
        .collect();
    let mut b = Builder::new(module, &name);
    for (f, op, shape, operands) in steps {
        let op = match op {
            Op::Parameter { number, .. } => {
                let Some(place) = kept.iter().position(|&k| k as i64 == number / 2) else { continue };
                Op::parameter(2 * place as i64 + number % 2)
            }
            other => other,
        };
        let operands = operands.iter().map(|o| copies.get(o).copied()).collect::<Option<Vec<_>>>()?;
        copies.insert(f, b.push_shaped(op, &operands, shape).ok()?);
    }
    let root = *copies.get(&root)?;
    Some(b.finish(root))
}

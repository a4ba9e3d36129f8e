//! Parts of arrays: slices, paddings, concatenations and updates that do nothing, undo each other or are one.

use super::numbers::splat;
use super::{array, beside, dims, operand};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::attributes::{PaddingDim, SliceDim};
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::Operands;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;
use smallvec::SmallVec;

/// The pass.
pub static PASS: Pass = Pass {
    name: "simplify-slices",
    statement: "cancels and joins slices, paddings, concatenations, reversals and updates of parts",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[
    Rule {
        name: "whole-slice",
        statement: "a slice, dynamic slice or padding of all of x, and a concatenation of x alone → x",
        opcodes: &[Opcode::Slice, Opcode::DynamicSlice, Opcode::Pad, Opcode::Concatenate],
        apply: whole_slice,
    },
    Rule {
        name: "slice-of-slice",
        statement: "slice(slice(x)) → slice(x)",
        opcodes: &[Opcode::Slice],
        apply: slice_of_slice,
    },
    Rule {
        name: "slice-of-broadcast",
        statement: "slice(broadcast(x)) → broadcast(slice(x))",
        opcodes: &[Opcode::Slice],
        apply: slice_of_broadcast,
    },
    Rule {
        name: "slice-of-concatenate",
        statement: "a slice that lies within one part of a concatenation → slice of that part",
        opcodes: &[Opcode::Slice],
        apply: slice_of_concatenate,
    },
    Rule {
        name: "slice-of-pad",
        statement: "a slice that lies within what is padded → slice of that; within the padding → broadcast",
        opcodes: &[Opcode::Slice],
        apply: slice_of_pad,
    },
    Rule {
        name: "slice-of-iota",
        statement: "a slice of iota that keeps the dimension it counts along → iota",
        opcodes: &[Opcode::Slice],
        apply: slice_of_iota,
    },
    Rule {
        name: "slice-of-reverse",
        statement: "slice(reverse(x)) → reverse(slice(x)), for strides of 1",
        opcodes: &[Opcode::Slice],
        apply: slice_of_reverse,
    },
    Rule {
        name: "pad-of-pad", statement: "pad(pad(x, v), v) → pad(x, v)", opcodes: &[Opcode::Pad], apply: pad_of_pad
    },
    Rule {
        name: "pad-of-splat",
        statement: "pad(broadcast(v), v) → broadcast(v)",
        opcodes: &[Opcode::Pad],
        apply: pad_of_splat,
    },
    Rule {
        name: "pad-as-slice",
        statement: "a padding that only takes away → slice",
        opcodes: &[Opcode::Pad],
        apply: pad_as_slice,
    },
    Rule {
        name: "concatenate-nothing",
        statement: "concatenate(x, an empty array) → concatenate(x)",
        opcodes: &[Opcode::Concatenate],
        apply: concatenate_nothing,
    },
    Rule {
        name: "concatenate-of-concatenate",
        statement: "concatenate(concatenate(x, y), z) → concatenate(x, y, z)",
        opcodes: &[Opcode::Concatenate],
        apply: concatenate_of_concatenate,
    },
    Rule {
        name: "concatenate-of-slices",
        statement: "a concatenation of neighbouring slices of x → slice of x",
        opcodes: &[Opcode::Concatenate],
        apply: concatenate_of_slices,
    },
    Rule {
        name: "concatenate-of-splats",
        statement: "a concatenation of arrays that repeat one scalar → broadcast",
        opcodes: &[Opcode::Concatenate],
        apply: concatenate_of_splats,
    },
    Rule {
        name: "reverse-nothing",
        statement: "reverse along dimensions of size 1, or along those that x is repeated along → x",
        opcodes: &[Opcode::Reverse],
        apply: reverse_nothing,
    },
    Rule {
        name: "reverse-of-reverse",
        statement: "reverse(reverse(x)) → x, along the same dimensions",
        opcodes: &[Opcode::Reverse],
        apply: reverse_of_reverse,
    },
    Rule {
        name: "constant-dynamic-slice",
        statement: "a dynamic slice at constant indices → slice",
        opcodes: &[Opcode::DynamicSlice],
        apply: constant_dynamic_slice,
    },
    Rule {
        name: "dynamic-slice-of-broadcast",
        statement: "dynamic-slice(broadcast(x)) → broadcast(dynamic-slice(x))",
        opcodes: &[Opcode::DynamicSlice],
        apply: dynamic_slice_of_broadcast,
    },
    Rule {
        name: "dynamic-slice-of-update",
        statement: "dynamic-slice(dynamic-update-slice(x, y, i), i) of the size of y → y",
        opcodes: &[Opcode::DynamicSlice],
        apply: dynamic_slice_of_update,
    },
    Rule {
        name: "whole-update",
        statement: "an update of all of x by y → y; of nothing → x; of a part by itself → x",
        opcodes: &[Opcode::DynamicUpdateSlice],
        apply: whole_update,
    },
    Rule {
        name: "update-of-update",
        statement: "two updates of the same part → the second",
        opcodes: &[Opcode::DynamicUpdateSlice],
        apply: update_of_update,
    },
];

/// The scalar that `i` repeats, or is.
fn repeated(module: &Module, i: InstructionId) -> Option<InstructionId> {
    let scalar = match module[i].op {
        Op::Broadcast { .. } => operand(module, i, 0)?,
        _ => i,
    };
    array(module, scalar).filter(|a| a.is_scalar()).map(|_| scalar)
}

/// Whether two arrays are of the same type: floats of other precision may be put into an array.
fn same_type(module: &Module, a: InstructionId, b: InstructionId) -> bool {
    let of = |i: InstructionId| array(module, i).map(|a| a.element_type);
    of(a) == of(b)
}

/// Whether two scalars are the same value.
fn is_same(module: &Module, a: InstructionId, b: InstructionId) -> bool {
    let equal = || match (&module[a].op, &module[b].op) {
        (Op::Constant(x), Op::Constant(y)) => x == y,
        _ => false,
    };
    a == b || equal()
}

fn whole_slice(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let x = operand(module, i, 0)?;
    let whole = match &module[i].op {
        Op::Slice { dims } => dims.iter().all(|d| d.stride == 1),
        Op::DynamicSlice { .. } => true,
        Op::Pad { padding } => padding.iter().all(|p| *p == PaddingDim::default()),
        Op::Concatenate { .. } => module[i].operands().len() == 1,
        _ => false,
    };
    (whole && dims(module, x)? == dims(module, i)? && same_type(module, x, i)).then_some(x)
}

fn slice_of_slice(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let (Op::Slice { dims: outer }, Op::Slice { dims: first }) = (&module[i].op, &module[inner].op) else {
        return None;
    };
    let both = first.iter().zip(outer).map(|(a, b)| {
        let start = a.start.checked_add(b.start.checked_mul(a.stride)?)?;
        let stride = a.stride.checked_mul(b.stride)?;
        // The element after the last that is read, which may lie before the end that was asked for.
        let count = if b.limit > b.start { (b.limit - b.start - 1) / b.stride + 1 } else { 0 };
        let limit =
            if count == 0 { start } else { start.checked_add((count - 1).checked_mul(stride)?)?.checked_add(1)? };
        Some(SliceDim { start, limit, stride: if count > 1 { stride } else { 1 } })
    });
    let both = both.collect::<Option<Vec<SliceDim>>>()?;
    let x = operand(module, inner, 0)?;
    beside(module, i).slice(x, both).ok()
}

fn slice_of_broadcast(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let (Op::Slice { dims: parts }, Op::Broadcast { dimensions }) = (&module[i].op, &module[inner].op) else {
        return None;
    };
    let x = operand(module, inner, 0)?;
    let of_x = dimensions.iter().map(|&d| parts.get(d as usize).copied()).collect::<Option<Vec<SliceDim>>>()?;
    let is_whole = |(p, &n): (&SliceDim, &i64)| p.start == 0 && p.limit == n && p.stride == 1;
    let whole = of_x.iter().zip(dims(module, x)?).all(is_whole);
    // Others that need the whole repeat it anyhow; a slice of what is small is no gain then.
    let (to, dimensions) = (DimVec::from(dims(module, i)?), dimensions.clone());
    let mut b = beside(module, i);
    let x = if whole { x } else { b.slice(x, of_x).ok()? };
    b.broadcast(x, to, dimensions).ok()
}

fn slice_of_concatenate(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let (Op::Slice { dims: parts }, Op::Concatenate { dimension }) = (&module[i].op, &module[inner].op) else {
        return None;
    };
    let d = usize::try_from(*dimension).ok()?;
    let wanted = *parts.get(d)?;
    (module[inner].operands().len() <= MAX_SEARCHED).then_some(())?;
    let mut begin = 0;
    for &x in module[inner].operands() {
        let end = begin + dims(module, x)?.get(d)?;
        if wanted.start >= begin && wanted.limit <= end && wanted.start < wanted.limit {
            let mut parts = parts.clone();
            parts[d] = SliceDim { start: wanted.start - begin, limit: wanted.limit - begin, ..wanted };
            return beside(module, i).slice(x, parts).ok();
        }
        begin = end;
    }
    None
}

fn slice_of_pad(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let (Op::Slice { dims: parts }, Op::Pad { padding }) = (&module[i].op, &module[inner].op) else { return None };
    let &[x, value] = module[inner].operands() else { return None };
    let mut within = Vec::with_capacity(parts.len());
    let mut all_padding = false;
    for ((part, pad), &size) in parts.iter().zip(padding).zip(dims(module, x)?) {
        // Where what is padded begins and ends.
        let spread = size + (size - 1).max(0).checked_mul(pad.interior)?;
        let end = pad.low.checked_add(spread)?;
        all_padding |= part.limit <= pad.low || part.start >= end;
        let inside = pad.interior == 0 && part.start >= pad.low && part.limit <= end;
        within.push(inside.then(|| SliceDim { start: part.start - pad.low, limit: part.limit - pad.low, ..*part }));
    }
    if all_padding {
        same_type(module, value, i).then_some(())?;
        let to = DimVec::from(dims(module, i)?);
        return beside(module, i).broadcast(value, to, []).ok();
    }
    let within = within.into_iter().collect::<Option<Vec<SliceDim>>>()?;
    within.iter().all(|p| p.start >= 0).then_some(())?;
    beside(module, i).slice(x, within).ok()
}

fn slice_of_iota(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let (Op::Slice { dims: parts }, Op::Iota { dimension }) = (&module[i].op, &module[inner].op) else { return None };
    let part = parts.get(usize::try_from(*dimension).ok()?)?;
    (part.start == 0 && part.stride == 1).then_some(())?;
    let (dimension, shape) = (*dimension, array(module, i)?.clone().with_default_layout());
    beside(module, i).iota(shape, dimension).ok()
}

fn slice_of_reverse(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let (Op::Slice { dims: parts }, Op::Reverse { dimensions }) = (&module[i].op, &module[inner].op) else {
        return None;
    };
    let (x, dimensions) = (operand(module, inner, 0)?, dimensions.clone());
    (module[inner].users().len() == 1).then_some(())?;
    let mut turned = parts.to_vec();
    for &d in &dimensions {
        let size = *dims(module, x)?.get(d as usize)?;
        let part = turned.get_mut(d as usize)?;
        (part.stride == 1).then_some(())?;
        *part = SliceDim { start: size - part.limit, limit: size - part.start, stride: 1 };
    }
    let mut b = beside(module, i);
    let part = b.slice(x, turned).ok()?;
    b.reverse(part, dimensions).ok()
}

fn pad_of_pad(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[inner, value] = module[i].operands() else { return None };
    let (Op::Pad { padding: outer }, Op::Pad { padding: first }) = (&module[i].op, &module[inner].op) else {
        return None;
    };
    let &[x, inner_value] = module[inner].operands() else { return None };
    is_same(module, value, inner_value).then_some(())?;
    let both = first.iter().zip(outer).map(|(a, b)| {
        // What takes away, or spreads what was padded, is another thing.
        let simple = b.interior == 0 && b.low >= 0 && b.high >= 0 && a.low >= 0 && a.high >= 0;
        let (low, high) = (a.low.checked_add(b.low)?, a.high.checked_add(b.high)?);
        simple.then_some(PaddingDim { low, high, interior: a.interior })
    });
    let both = both.collect::<Option<Vec<PaddingDim>>>()?;
    beside(module, i).pad(x, value, both).ok()
}

fn pad_of_splat(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, value] = module[i].operands() else { return None };
    let repeats = match module[x].op {
        _ if array(module, x)?.element_count() == Some(0) => true,
        Op::Broadcast { .. } => repeated(module, x).is_some_and(|s| is_same(module, s, value)),
        _ => false,
    };
    (repeats && same_type(module, value, i)).then_some(())?;
    let to = DimVec::from(dims(module, i)?);
    beside(module, i).broadcast(value, to, []).ok()
}

fn pad_as_slice(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Pad { padding } = &module[i].op else { return None };
    let x = operand(module, i, 0)?;
    let parts = padding.iter().zip(dims(module, x)?).map(|(p, &n)| {
        let part = SliceDim { start: p.low.checked_neg()?, limit: n.checked_add(p.high)?, stride: 1 };
        let only_less = p.interior == 0 && p.low <= 0 && p.high <= 0 && part.start <= part.limit;
        only_less.then_some(part)
    });
    let parts = parts.collect::<Option<Vec<SliceDim>>>()?;
    beside(module, i).slice(x, parts).ok()
}

fn concatenate_nothing(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Concatenate { dimension } = module[i].op else { return None };
    let d = usize::try_from(dimension).ok()?;
    let is_empty = |&o: &InstructionId| dims(module, o).and_then(|s| s.get(d)) == Some(&0);
    let operands = module[i].operands();
    let left: Operands = operands.iter().copied().filter(|o| !is_empty(o)).collect();
    (!left.is_empty() && left.len() < operands.len()).then_some(())?;
    operands.iter().all(|&o| same_type(module, o, i)).then_some(())?;
    beside(module, i).concatenate(&left, dimension).ok()
}

/// A concatenation of more parts than this is not made.
const MAX_PARTS: usize = 64;
/// Nor is the part that a slice lies in looked for among more.
const MAX_SEARCHED: usize = 512;

fn concatenate_of_concatenate(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Concatenate { dimension } = module[i].op else { return None };
    let element_type = array(module, i)?.element_type;
    let joins = |o: InstructionId| {
        matches!(module[o].op, Op::Concatenate { dimension: d } if d == dimension)
            && module[o].users().len() == 1
            && module[o].operands().iter().all(|&p| array(module, p).is_some_and(|a| a.element_type == element_type))
    };
    let operands = module[i].operands();
    operands.iter().any(|&o| joins(o)).then_some(())?;
    let mut all = Operands::new();
    for &o in operands {
        if joins(o) { all.extend_from_slice(module[o].operands()) } else { all.push(o) }
    }
    (all.len() <= MAX_PARTS).then_some(())?;
    beside(module, i).concatenate(&all, dimension).ok()
}

/// The first of two neighbouring slices, made longer by the second.
fn joined(module: &mut Module, a: InstructionId, b: InstructionId, d: usize) -> Option<InstructionId> {
    let (Op::Slice { dims: first }, Op::Slice { dims: second }) = (&module[a].op, &module[b].op) else { return None };
    let x = operand(module, a, 0).filter(|&x| operand(module, b, 0) == Some(x))?;
    let same = first.iter().zip(second).enumerate().all(|(k, (p, q))| k == d || p == q);
    let (p, q) = (*first.get(d)?, *second.get(d)?);
    (same && p.stride == 1 && q.stride == 1 && p.limit == q.start).then_some(())?;
    let mut parts = first.clone();
    parts[d].limit = q.limit;
    beside(module, a).slice(x, parts).ok()
}

fn concatenate_of_slices(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Concatenate { dimension } = module[i].op else { return None };
    let d = usize::try_from(dimension).ok()?;
    let operands: Operands = module[i].operands().into();
    let mut left = Operands::new();
    for &o in &operands {
        match left.last().copied().and_then(|last| joined(module, last, o, d)) {
            Some(longer) => *left.last_mut()? = longer,
            None => left.push(o),
        }
    }
    (left.len() < operands.len()).then_some(())?;
    if let &[only] = left.as_slice() { Some(only) } else { beside(module, i).concatenate(&left, dimension).ok() }
}

fn concatenate_of_splats(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let operands = module[i].operands();
    let scalar_of = |o: InstructionId| match module[o].op {
        Op::Broadcast { .. } => repeated(module, o),
        _ => None,
    };
    let first = scalar_of(*operands.first()?)?;
    let all_same = operands.iter().all(|&o| scalar_of(o).is_some_and(|s| is_same(module, s, first)));
    (all_same && same_type(module, first, i)).then_some(())?;
    let to = DimVec::from(dims(module, i)?);
    beside(module, i).broadcast(first, to, []).ok()
}

fn reverse_nothing(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Reverse { dimensions } = &module[i].op else { return None };
    let x = operand(module, i, 0)?;
    let sizes = dims(module, x)?;
    let repeated = |d: &i64| matches!(&module[x].op, Op::Broadcast { dimensions } if !dimensions.contains(d));
    let counts = |d: &&i64| sizes.get(**d as usize).is_some_and(|&n| n > 1) && !repeated(d);
    let left: DimVec = dimensions.iter().filter(counts).copied().collect();
    if left.is_empty() {
        return Some(x);
    }
    (left.len() < dimensions.len()).then_some(())?;
    beside(module, i).reverse(x, left).ok()
}

fn reverse_of_reverse(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let (Op::Reverse { dimensions: outer }, Op::Reverse { dimensions: first }) = (&module[i].op, &module[inner].op)
    else {
        return None;
    };
    let mut once: DimVec = outer.iter().filter(|d| !first.contains(d)).copied().collect();
    once.extend(first.iter().filter(|d| !outer.contains(d)).copied());
    let x = operand(module, inner, 0)?;
    if once.is_empty() { Some(x) } else { beside(module, i).reverse(x, once).ok() }
}

/// The starts of a dynamic slice or update, as they are taken, if all are constants.
fn constant_starts(module: &Module, starts: &[InstructionId], whole: &[i64], part: &[i64]) -> Option<DimVec> {
    let start = |(k, &s): (usize, &InstructionId)| {
        let n = splat(module, s)?.int()?;
        let last = i128::from(whole.get(k)? - part.get(k)?);
        i64::try_from(n.clamp(0, last.max(0))).ok()
    };
    (starts.len() == whole.len()).then_some(())?;
    starts.iter().enumerate().map(start).collect()
}

fn constant_dynamic_slice(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let [x, starts @ ..] = module[i].operands() else { return None };
    let (x, part) = (*x, dims(module, i)?);
    let starts = constant_starts(module, starts, dims(module, x)?, part)?;
    let parts: Vec<SliceDim> =
        starts.iter().zip(part).map(|(&start, &n)| SliceDim { start, limit: start + n, stride: 1 }).collect();
    beside(module, i).slice(x, parts).ok()
}

fn dynamic_slice_of_broadcast(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let [inner, starts @ ..] = module[i].operands() else { return None };
    let Op::Broadcast { dimensions } = &module[*inner].op else { return None };
    let x = operand(module, *inner, 0)?;
    let to = DimVec::from(dims(module, i)?);
    let sizes = dimensions.iter().map(|&d| to.get(d as usize).copied()).collect::<Option<DimVec>>()?;
    let of_x = dimensions.iter().map(|&d| starts.get(d as usize).copied());
    let of_x = of_x.collect::<Option<SmallVec<[InstructionId; 4]>>>()?;
    let whole = sizes.as_slice() == dims(module, x)?;
    let dimensions = dimensions.clone();
    let mut b = beside(module, i);
    let x = if whole { x } else { b.dynamic_slice(x, &of_x, sizes).ok()? };
    b.broadcast(x, to, dimensions).ok()
}

fn dynamic_slice_of_update(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let [update, starts @ ..] = module[i].operands() else { return None };
    let Op::DynamicUpdateSlice = module[*update].op else { return None };
    let [_, new, at @ ..] = module[*update].operands() else { return None };
    (at == starts && dims(module, *new)? == dims(module, i)? && same_type(module, *new, i)).then_some(*new)
}

fn whole_update(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let [x, new, starts @ ..] = module[i].operands() else { return None };
    if dims(module, *x)? == dims(module, *new)? && same_type(module, *x, *new) {
        return Some(*new);
    }
    if array(module, *new)?.element_count() == Some(0) {
        return Some(*x);
    }
    let Op::DynamicSlice { .. } = module[*new].op else { return None };
    let [of, at @ ..] = module[*new].operands() else { return None };
    (of == x && at == starts).then_some(*x)
}

fn update_of_update(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let [inner, new, starts @ ..] = module[i].operands() else { return None };
    let Op::DynamicUpdateSlice = module[*inner].op else { return None };
    let [x, old, at @ ..] = module[*inner].operands() else { return None };
    (at == starts && dims(module, *old)? == dims(module, *new)?).then_some(())?;
    let (x, new, starts) = (*x, *new, Operands::from(starts));
    beside(module, i).dynamic_update_slice(x, new, &starts).ok()
}

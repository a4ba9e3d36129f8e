//! Reductions that reduce nothing, or that read what was only moved or repeated.
//!
//! What is moved may be added in another order; nothing else changes. A sum of one element still adds the initial value:
//! 0 + -0 is not -0.

use super::functions::{applied, reducer};
use super::numbers::{Number, filled, splat, type_bounds};
use super::{array, beside, dims, is_identity, operand};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_analysis::effects::only_computes;
use hloom_ir::attributes::SliceDim;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::layout::DimVec;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op};
use hloom_ir::opcode::Opcode;
use smallvec::SmallVec;

/// The pass.
pub static PASS: Pass = Pass {
    name: "simplify-reductions",
    statement: "drops reductions of single elements, and reads what was moved, repeated or reduced before where it lies",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[
    Rule {
        name: "empty-result",
        statement: "whatever has no elements → broadcast(0)",
        opcodes: &[],
        apply: empty_result,
    },
    Rule {
        name: "reduce-nothing",
        statement: "a reduction of one element each → the function applied to it; of none → the initial value",
        opcodes: &[Opcode::Reduce],
        apply: reduce_nothing,
    },
    Rule {
        name: "reduce-unit-dimensions",
        statement: "a reduction along dimensions of size 1 and others → reshape, and along the others only",
        opcodes: &[Opcode::Reduce],
        apply: reduce_unit_dimensions,
    },
    Rule {
        name: "reduce-of-broadcast",
        statement: "sum(broadcast(x)) → sum(x) · n; max(broadcast(x)) → max(x), likewise min, and, or",
        opcodes: &[Opcode::Reduce],
        apply: reduce_of_broadcast,
    },
    Rule {
        name: "reduce-of-transpose",
        statement: "reduce(transpose(x)) → transpose(reduce(x))",
        opcodes: &[Opcode::Reduce],
        apply: reduce_of_transpose,
    },
    Rule {
        name: "reduce-of-reshape",
        statement: "reduce(reshape(x)) → reshape(reduce(x)), where the reshape mixes nothing that stays with what goes",
        opcodes: &[Opcode::Reduce],
        apply: reduce_of_reshape,
    },
    Rule {
        name: "reduce-of-reduce",
        statement: "reduce(reduce(x)) by the same function → reduce(x)",
        opcodes: &[Opcode::Reduce],
        apply: reduce_of_reduce,
    },
    Rule {
        name: "window-of-one",
        statement: "reduce-window or select-and-scatter with windows of one element → the function applied to it",
        opcodes: &[Opcode::ReduceWindow, Opcode::SelectAndScatter],
        apply: window_of_one,
    },
    Rule {
        name: "window-of-all",
        statement: "reduce-window with one window along some dimensions → reduce",
        opcodes: &[Opcode::ReduceWindow],
        apply: window_of_all,
    },
    Rule {
        name: "product-of-nothing",
        statement: "a dot or convolution that sums nothing → broadcast(0)",
        opcodes: &[Opcode::Dot, Opcode::Convolution],
        apply: product_of_nothing,
    },
];

/// An array like `i` of zeros.
fn zeros(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let shape = array(module, i)?;
    let (element_type, to) = (shape.element_type, DimVec::from(shape.dims()));
    let mut b = beside(module, i);
    let zero = b.literal(Literal::zero(element_type)).ok()?;
    b.broadcast(zero, to, []).ok()
}

fn empty_result(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    dims(module, i)?.contains(&0).then_some(())?;
    let op = &module[i].op;
    let splat = matches!(op, Op::Broadcast { dimensions } if dimensions.is_empty());
    (only_computes(op) && !splat).then_some(())?;
    zeros(module, i)
}

/// A reduction of one array.
struct Reduce {
    x: InstructionId,
    init: InstructionId,
    dimensions: DimVec,
    function: ComputationId,
}

impl Reduce {
    fn of(module: &Module, i: InstructionId) -> Option<Reduce> {
        let Op::Reduce { dimensions, to_apply } = &module[i].op else { return None };
        let &[x, init] = module[i].operands() else { return None };
        let element_type = array(module, i)?.element_type;
        let same = [x, init].iter().all(|&o| array(module, o).is_some_and(|a| a.element_type == element_type));
        same.then(|| Reduce { x, init, dimensions: dimensions.clone(), function: *to_apply })
    }

    fn reducer(&self, module: &Module) -> Option<BinaryOp> {
        reducer(module, self.function)
    }
}

/// `init` and `values` for each array of a reduction that meets one element per result.
fn once(
    module: &mut Module,
    i: InstructionId,
    function: ComputationId,
    inits: &[InstructionId],
    values: &[InstructionId],
) -> Option<InstructionId> {
    let to = DimVec::from(dims(module, *values.first()?)?);
    let mut arguments: SmallVec<[InstructionId; 4]> = SmallVec::new();
    for &init in inits {
        let mut b = beside(module, i);
        arguments.push(if to.is_empty() { init } else { b.broadcast(init, to.iter().copied(), []).ok()? });
    }
    arguments.extend_from_slice(values);
    let results = applied(module, i, function, &arguments, &to)?;
    match (module[i].shape.is_tuple(), results.as_slice()) {
        (true, all) => beside(module, i).tuple(all).ok().filter(|&t| has_shape_of(module, t, i)),
        (false, &[only]) => Some(only).filter(|&v| has_shape_of(module, v, i)),
        _ => None,
    }
}

fn has_shape_of(module: &Module, a: InstructionId, b: InstructionId) -> bool {
    module[a].shape.equal_ignoring_layout(&module[b].shape)
}

fn reduce_nothing(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Reduce { dimensions, to_apply } = &module[i].op else { return None };
    let (function, operands) = (*to_apply, module[i].operands());
    let (values, inits) = operands.split_at_checked(operands.len() / 2)?;
    let from = dims(module, *values.first()?)?;
    let sizes = dimensions.iter().map(|&d| from.get(d as usize).copied()).collect::<Option<DimVec>>()?;
    let to: DimVec =
        from.iter().enumerate().filter(|(d, _)| !dimensions.contains(&(*d as i64))).map(|(_, &n)| n).collect();
    if sizes.contains(&0) && !to.contains(&0) {
        let &[init] = inits else { return None };
        (array(module, init)?.element_type == array(module, i)?.element_type).then_some(())?;
        return if to.is_empty() { Some(init) } else { beside(module, i).broadcast(init, to, []).ok() };
    }
    sizes.iter().all(|&n| n == 1).then_some(())?;
    let (values, inits) = (SmallVec::<[_; 2]>::from_slice(values), SmallVec::<[_; 2]>::from_slice(inits));
    let mut b = beside(module, i);
    let narrow = values.iter().map(|&v| b.reshape(v, to.iter().copied()).ok());
    let narrow = narrow.collect::<Option<SmallVec<[InstructionId; 2]>>>()?;
    once(module, i, function, &inits, &narrow)
}

fn reduce_unit_dimensions(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let r = Reduce::of(module, i)?;
    let from = dims(module, r.x)?;
    let is_unit = |d: i64| r.dimensions.contains(&d) && from.get(d as usize) == Some(&1);
    let kept: DimVec = (0..from.len() as i64).filter(|&d| !is_unit(d)).collect();
    let left: DimVec = (0..kept.len() as i64).filter(|&k| r.dimensions.contains(&kept[k as usize])).collect();
    (!left.is_empty() && kept.len() < from.len()).then_some(())?;
    let narrow: DimVec = kept.iter().map(|&d| from[d as usize]).collect();
    let mut b = beside(module, i);
    let x = b.reshape(r.x, narrow).ok()?;
    b.reduce(x, r.init, left, r.function).ok()
}

fn reduce_of_broadcast(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let r = Reduce::of(module, i)?;
    let Op::Broadcast { dimensions: places } = &module[r.x].op else { return None };
    let (x, places) = (operand(module, r.x, 0)?, places.clone());
    let wide = dims(module, r.x)?;
    let op = r.reducer(module)?;
    let is_repeated = |d: &&i64| !places.contains(d);
    r.dimensions.iter().any(|d| !places.contains(d)).then_some(())?;
    let sizes = r.dimensions.iter().filter(is_repeated).map(|&d| wide.get(d as usize).copied());
    let count = sizes.collect::<Option<DimVec>>()?.iter().try_fold(1i64, |n, &s| n.checked_mul(s))?;
    (count > 0).then_some(())?;
    let element_type = array(module, i)?.element_type;
    let is_sum = op == BinaryOp::Add && element_type != ElementType::Pred;
    if is_sum {
        let exact = element_type.is_integer() || matches!(element_type, ElementType::F32 | ElementType::F64);
        (exact && splat(module, r.init)?.is(0)).then_some(())?;
    } else {
        let idempotent = matches!(op, BinaryOp::Maximum | BinaryOp::Minimum | BinaryOp::And | BinaryOp::Or);
        (idempotent || op == BinaryOp::Add && element_type == ElementType::Pred).then_some(())?;
    }
    // What of x is reduced, and where the rest of it goes.
    let (to, rank) = (DimVec::from(dims(module, i)?), wide.len() as i64);
    let kept: DimVec = (0..rank).filter(|d| !r.dimensions.contains(d)).collect();
    let of_x: DimVec = (0..places.len() as i64).filter(|&k| r.dimensions.contains(&places[k as usize])).collect();
    let rest = places.iter().filter(|d| !r.dimensions.contains(d));
    let rest = rest.map(|d| kept.iter().position(|k| k == d).map(|p| p as i64)).collect::<Option<DimVec>>()?;
    let value = if of_x.is_empty() {
        let narrow = DimVec::from(dims(module, x)?);
        let mut b = beside(module, i);
        let init = if narrow.is_empty() { r.init } else { b.broadcast(r.init, narrow, []).ok()? };
        b.push(Op::Binary(op), &[init, x]).ok()?
    } else {
        beside(module, i).reduce(x, r.init, of_x, r.function).ok()?
    };
    let value = if is_sum && count > 1 {
        let narrow = DimVec::from(dims(module, value)?);
        let number = if element_type.is_integer() { Number::Int(count.into()) } else { Number::Float(count as f64) };
        let mut b = beside(module, i);
        let times = filled(&mut b, element_type, &narrow, number)?;
        b.multiply(value, times).ok()?
    } else {
        value
    };
    if dims(module, value)? == to.as_slice() && is_identity(&rest) {
        return Some(value);
    }
    beside(module, i).broadcast(value, to, rest).ok()
}

fn reduce_of_transpose(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let r = Reduce::of(module, i)?;
    let Op::Transpose { dimensions: order } = &module[r.x].op else { return None };
    r.reducer(module)?;
    let x = operand(module, r.x, 0)?;
    let of_x = r.dimensions.iter().map(|&d| order.get(d as usize).copied()).collect::<Option<DimVec>>()?;
    // The dimensions of x that stay, in the order in which the transpose has them, and in their own.
    let wanted: DimVec =
        order.iter().enumerate().filter(|(d, _)| !r.dimensions.contains(&(*d as i64))).map(|(_, &o)| o).collect();
    let mut given = wanted.clone();
    given.sort_unstable();
    let turn =
        wanted.iter().map(|d| given.iter().position(|g| g == d).map(|p| p as i64)).collect::<Option<DimVec>>()?;
    let mut of_x = of_x;
    of_x.sort_unstable();
    let mut b = beside(module, i);
    let value = b.reduce(x, r.init, of_x, r.function).ok()?;
    if is_identity(&turn) { Some(value) } else { b.transpose(value, turn).ok() }
}

/// Ranges of dimensions of `from` and `to` that hold the same elements: (of from, of to), as short as can be.
fn common_factors(from: &[i64], to: &[i64]) -> Option<Vec<(std::ops::Range<usize>, std::ops::Range<usize>)>> {
    let mut found = Vec::new();
    let (mut a, mut b) = (0, 0);
    while a < from.len() || b < to.len() {
        let (first_a, first_b) = (a, b);
        let (mut p, mut q) = (1i64, 1i64);
        loop {
            if p <= q && a < from.len() && (p < q || a == first_a) {
                p = p.checked_mul(*from.get(a)?)?;
                a += 1;
            } else if b < to.len() && (q < p || b == first_b) {
                q = q.checked_mul(*to.get(b)?)?;
                b += 1;
            } else {
                break;
            }
        }
        (p == q && p > 0).then_some(())?;
        found.push((first_a..a, first_b..b));
    }
    Some(found)
}

fn reduce_of_reshape(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let r = Reduce::of(module, i)?;
    let Op::Reshape { .. } = module[r.x].op else { return None };
    let x = operand(module, r.x, 0)?;
    let (from, between) = (dims(module, x)?, dims(module, r.x)?);
    let mut of_x = DimVec::new();
    for (before, after) in common_factors(from, between)? {
        let goes = |d: &usize| r.dimensions.contains(&(*d as i64));
        let large = || after.clone().filter(|&d| between[d] != 1);
        if large().all(|d| goes(&d)) && large().next().is_some() {
            // Dimensions of size 1 need not be reduced, and a reshape takes them away.
            of_x.extend(before.filter(|&d| from[d] != 1).map(|d| d as i64));
        } else if large().any(|d| goes(&d)) {
            return None;
        }
    }
    // Reductions of single elements only are another rule's.
    (!of_x.is_empty()).then_some(())?;
    let to = DimVec::from(dims(module, i)?);
    let mut b = beside(module, i);
    let value = b.reduce(x, r.init, of_x, r.function).ok()?;
    b.reshape(value, to).ok()
}

/// Whether `init` changes nothing that `op` combines it with.
pub(crate) fn is_neutral(op: BinaryOp, element_type: ElementType, init: Number) -> bool {
    let bounds = type_bounds(element_type);
    match (op, init) {
        (BinaryOp::Add | BinaryOp::Or | BinaryOp::Xor, n) => n.is(0),
        (BinaryOp::Multiply, n) => n.is(1),
        (BinaryOp::Maximum, Number::Float(x)) => x == f64::NEG_INFINITY,
        (BinaryOp::Minimum, Number::Float(x)) => x == f64::INFINITY,
        (BinaryOp::Maximum, Number::Int(n)) => bounds.is_some_and(|b| b.0 == n),
        (BinaryOp::Minimum, Number::Int(n)) => bounds.is_some_and(|b| b.1 == n),
        (BinaryOp::And, Number::Int(n)) => bounds.is_some_and(|b| n == if b.0 < 0 { -1 } else { b.1 }),
        _ => false,
    }
}

fn reduce_of_reduce(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let outer = Reduce::of(module, i)?;
    let inner = Reduce::of(module, outer.x)?;
    let op = outer.reducer(module)?;
    (inner.reducer(module)? == op && module[outer.x].users().len() == 1).then_some(())?;
    let (a, b) = (splat(module, outer.init)?, splat(module, inner.init)?);
    // Of two zeros, both have the same sign.
    let same = a == b && a.is_neutral_zero() == b.is_neutral_zero();
    (same && is_neutral(op, array(module, i)?.element_type, b)).then_some(())?;
    let rank = dims(module, inner.x)?.len() as i64;
    let kept: DimVec = (0..rank).filter(|d| !inner.dimensions.contains(d)).collect();
    let of_x = outer.dimensions.iter().map(|&d| kept.get(d as usize).copied()).collect::<Option<DimVec>>()?;
    let mut all: DimVec = inner.dimensions.iter().copied().chain(of_x).collect();
    all.sort_unstable();
    beside(module, i).reduce(inner.x, outer.init, all, outer.function).ok()
}

fn window_of_one(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (window, function) = match &module[i].op {
        Op::ReduceWindow { window, to_apply } => (window, *to_apply),
        Op::SelectAndScatter { window, scatter, .. } => (window, *scatter),
        _ => return None,
    };
    let is_scatter = matches!(module[i].op, Op::SelectAndScatter { .. });
    let simple = window.dims.iter().all(|d| {
        let plain = d.padding_low == 0 && d.padding_high == 0 && d.base_dilation == 1;
        d.size == 1 && plain && (d.stride == 1 || !is_scatter)
    });
    simple.then_some(())?;
    let strides: DimVec = window.dims.iter().map(|d| d.stride).collect();
    let operands = SmallVec::<[InstructionId; 4]>::from_slice(module[i].operands());
    if is_scatter {
        let &[_, source, init] = operands.as_slice() else { return None };
        return once(module, i, function, &[init], &[source]);
    }
    let (values, inits) = operands.split_at_checked(operands.len() / 2)?;
    let mut read: SmallVec<[InstructionId; 2]> = SmallVec::from_slice(values);
    if strides.iter().any(|&s| s != 1) {
        for v in &mut read {
            let parts = dims(module, *v)?.iter().zip(&strides);
            let parts: Vec<SliceDim> = parts.map(|(&limit, &stride)| SliceDim { start: 0, limit, stride }).collect();
            *v = beside(module, i).slice(*v, parts).ok()?;
        }
    }
    once(module, i, function, inits, &read)
}

fn window_of_all(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::ReduceWindow { window, to_apply } = &module[i].op else { return None };
    let function = *to_apply;
    let &[x, init] = module[i].operands() else { return None };
    let element_type = array(module, i)?.element_type;
    let same = [x, init].iter().all(|&o| array(module, o).is_some_and(|a| a.element_type == element_type));
    same.then_some(())?;
    let mut reduced = DimVec::new();
    for (d, (w, &size)) in window.dims.iter().zip(dims(module, x)?).enumerate() {
        let plain = w.padding_low == 0 && w.padding_high == 0 && w.base_dilation == 1 && w.window_dilation == 1;
        if plain && w.size == size && size > 1 {
            reduced.push(d as i64);
        } else if !(plain && w.size == 1 && w.stride == 1) {
            return None;
        }
    }
    (!reduced.is_empty()).then_some(())?;
    let to = DimVec::from(dims(module, i)?);
    let mut b = beside(module, i);
    let value = b.reduce(x, init, reduced, function).ok()?;
    // A reduction is of the reducer's type, a window of that of its initial value.
    b.reshape(value, to).ok().filter(|&v| has_shape_of(module, v, i))
}

fn product_of_nothing(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let has_none = |&o: &InstructionId| dims(module, o).is_some_and(|d| d.contains(&0));
    module[i].operands().iter().any(has_none).then_some(())?;
    // There is no zero in this type.
    (array(module, i)?.element_type != ElementType::F8e8m0fnu).then_some(())?;
    zeros(module, i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_that_hold_the_same_elements() {
        let factors = |from: &[i64], to: &[i64]| {
            common_factors(from, to).map(|f| f.iter().map(|(a, b)| (a.len(), b.len())).collect::<Vec<_>>())
        };
        assert_eq!(factors(&[6, 5], &[2, 3, 5]), Some(vec![(1, 2), (1, 1)]));
        assert_eq!(factors(&[4, 6], &[8, 3]), Some(vec![(2, 2)]));
        assert_eq!(factors(&[2, 3], &[6]), Some(vec![(2, 1)]));
        let of_units = common_factors(&[1, 7, 1], &[7]).unwrap();
        assert_eq!(of_units.iter().map(|(a, _)| a.len()).sum::<usize>(), 3);
        assert_eq!(of_units.iter().map(|(_, b)| b.len()).sum::<usize>(), 1);
    }
}

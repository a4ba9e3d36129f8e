//! Identities of truth values, bits, comparisons and choices.
//!
//! Comparisons of floats are turned round only where NaN allows it: `not(x < y)` is not `x >= y`.

use super::numbers::{Number, bounds, filled_like, splat, type_bounds, with_number};
use super::{array, beside, dims, operand};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_analysis::trip_count::mirrored;
use hloom_ir::attributes::{ComparisonDirection, ComparisonType};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};
use hloom_ir::opcode::Opcode;

/// The pass.
pub static PASS: Pass = Pass {
    name: "simplify-logic",
    statement: "drops and joins bit operations, comparisons, choices, minima, maxima and clamps",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[
    Rule { name: "not-not", statement: "not(not(x)) → x", opcodes: &[Opcode::Not], apply: not_not },
    Rule {
        name: "not-compare",
        statement: "not(x < y) → x >= y, for integers and total orders; not(x = y) → x ≠ y for all",
        opcodes: &[Opcode::Not],
        apply: not_compare,
    },
    Rule {
        name: "same-operands",
        statement: "x and x, x or x, min(x, x), max(x, x) → x; x xor x → 0",
        opcodes: &[Opcode::And, Opcode::Or, Opcode::Xor, Opcode::Minimum, Opcode::Maximum],
        apply: same_operands,
    },
    Rule {
        name: "bits-with-constant",
        statement: "x and 0 → 0, x and all ones → x; likewise or and xor",
        opcodes: &[Opcode::And, Opcode::Or, Opcode::Xor],
        apply: bits_with_constant,
    },
    Rule {
        name: "absorbed",
        statement: "x and (x or y) → x, x or (x and y) → x",
        opcodes: &[Opcode::And, Opcode::Or],
        apply: absorbed,
    },
    Rule {
        name: "shift-by-nothing",
        statement: "a shift by 0 → its operand",
        opcodes: &[Opcode::ShiftLeft, Opcode::ShiftRightLogical, Opcode::ShiftRightArithmetic],
        apply: shift_by_nothing,
    },
    Rule {
        name: "minimum-with-bound",
        statement: "min(x, c) → x or c, where c is beyond all that x can be; likewise max",
        opcodes: &[Opcode::Minimum, Opcode::Maximum],
        apply: minimum_with_bound,
    },
    Rule {
        name: "nested-minimum",
        statement: "min(min(x, a), b) → min(x, the smaller), for constants; min(min(x, y), y) → min(x, y); likewise max",
        opcodes: &[Opcode::Minimum, Opcode::Maximum],
        apply: nested_minimum,
    },
    Rule {
        name: "clamp-within-bounds",
        statement: "clamp(low, x, high) → x, where x cannot be outside; one constant bound that means nothing → min or max",
        opcodes: &[Opcode::Clamp],
        apply: clamp_within_bounds,
    },
    Rule {
        name: "nested-clamp",
        statement: "clamp(low, clamp(low, x, high), high) → clamp(low, x, high)",
        opcodes: &[Opcode::Clamp],
        apply: nested_clamp,
    },
    Rule {
        name: "compare-constant-second",
        statement: "c < x → x > c",
        opcodes: &[Opcode::Compare],
        apply: compare_constant_second,
    },
    Rule {
        name: "compare-with-itself",
        statement: "x < x → false; x <= x → true, for integers and total orders",
        opcodes: &[Opcode::Compare],
        apply: compare_with_itself,
    },
    Rule {
        name: "compare-of-bounded",
        statement: "a comparison that follows from the bounds of its integers → true or false",
        opcodes: &[Opcode::Compare],
        apply: compare_of_bounded,
    },
    Rule {
        name: "compare-of-truth",
        statement: "p = true, p ≠ false → p; p = false, p ≠ true → not(p); also of a p that was made a number",
        opcodes: &[Opcode::Compare],
        apply: compare_of_truth,
    },
    Rule {
        name: "compare-of-sum",
        statement: "x + a = b → x = b - a, and so for ≠, for integers",
        opcodes: &[Opcode::Compare],
        apply: compare_of_sum,
    },
    Rule {
        name: "select-known",
        statement: "select(true, a, b) → a, select(p, a, a) → a",
        opcodes: &[Opcode::Select],
        apply: select_known,
    },
    Rule {
        name: "select-of-not",
        statement: "select(not(p), a, b) → select(p, b, a)",
        opcodes: &[Opcode::Select],
        apply: select_of_not,
    },
    Rule {
        name: "select-of-truths",
        statement: "select(p, true, false) → p, select(p, q, false) → p and q, select(p, true, q) → p or q",
        opcodes: &[Opcode::Select],
        apply: select_of_truths,
    },
    Rule {
        name: "select-again",
        statement: "select(p, select(p, a, b), c) → select(p, a, c), and so for the other side",
        opcodes: &[Opcode::Select],
        apply: select_again,
    },
    Rule {
        name: "select-of-equal",
        statement: "select(x = y, y, x) → x and select(x ≠ y, x, y) → x, for integers",
        opcodes: &[Opcode::Select],
        apply: select_of_equal,
    },
];

/// Whether a type has no NaN and one zero only, so that order and equality are what they seem.
fn is_plain(element_type: ElementType) -> bool {
    element_type.is_integer() || element_type == ElementType::Pred
}

/// The operand of `i`, if that is a negation of bits.
fn negated(module: &Module, i: InstructionId) -> Option<InstructionId> {
    match module[i].op {
        Op::Unary { op: UnaryOp::Not, .. } => operand(module, i, 0),
        _ => None,
    }
}

fn not_not(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    negated(module, operand(module, i, 0)?)
}

fn inverted(direction: ComparisonDirection) -> ComparisonDirection {
    use ComparisonDirection::{Eq, Ge, Gt, Le, Lt, Ne};
    match direction {
        Lt => Ge,
        Le => Gt,
        Gt => Le,
        Ge => Lt,
        Eq => Ne,
        Ne => Eq,
    }
}

/// The type that a comparison compares, if it is one on both sides.
fn compared_type(module: &Module, compare: InstructionId) -> Option<ElementType> {
    let &[x, y] = module[compare].operands() else { return None };
    let element_type = array(module, x)?.element_type;
    (array(module, y)?.element_type == element_type).then_some(element_type)
}

fn not_compare(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let compare = operand(module, i, 0)?;
    let Op::Compare { direction, kind } = module[compare].op else { return None };
    let total = is_plain(compared_type(module, compare)?) || kind == Some(ComparisonType::TotalOrder);
    (total || matches!(direction, ComparisonDirection::Eq | ComparisonDirection::Ne)).then_some(())?;
    (module[compare].users().len() == 1).then_some(())?;
    let operands = module[compare].operands().to_vec();
    beside(module, i).push(Op::Compare { direction: inverted(direction), kind }, &operands).ok()
}

/// Whether the operands of `i` have the type of `i`.
fn is_of_one_type(module: &Module, i: InstructionId) -> bool {
    let Some(element_type) = array(module, i).map(|a| a.element_type) else { return false };
    module[i].operands().iter().all(|&o| array(module, o).is_some_and(|a| a.element_type == element_type))
}

fn same_operands(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, y] = module[i].operands() else { return None };
    (x == y && is_of_one_type(module, i)).then_some(())?;
    match module[i].op {
        Op::Binary(BinaryOp::Xor) => filled_like(module, i, Number::Int(0)),
        _ => Some(x),
    }
}

fn bits_with_constant(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (x, c) = with_number(module, i)?;
    let Op::Binary(op) = module[i].op else { return None };
    let (least, most) = type_bounds(array(module, i)?.element_type)?;
    let ones = if least < 0 { -1 } else { most };
    let c = c.int()?;
    match op {
        BinaryOp::And if c == 0 => filled_like(module, i, Number::Int(0)),
        BinaryOp::Or if c == ones => filled_like(module, i, Number::Int(ones)),
        BinaryOp::And if c == ones => Some(x),
        BinaryOp::Or | BinaryOp::Xor if c == 0 => Some(x),
        BinaryOp::Xor if c == ones => beside(module, i).not(x).ok(),
        _ => None,
    }
}

fn absorbed(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, y] = module[i].operands() else { return None };
    let other = match module[i].op {
        Op::Binary(BinaryOp::And) => BinaryOp::Or,
        _ => BinaryOp::And,
    };
    let holds = |whole: InstructionId, part: InstructionId| {
        matches!(module[whole].op, Op::Binary(op) if op == other) && module[whole].operands().contains(&part)
    };
    if holds(y, x) { Some(x) } else { holds(x, y).then_some(y) }
}

fn shift_by_nothing(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (x, c) = with_number(module, i)?;
    (c == Number::Int(0)).then_some(x)
}

/// What a number is to the operands of a minimum (or maximum).
fn minimum_with_bound(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, y] = module[i].operands() else { return None };
    is_of_one_type(module, i).then_some(())?;
    let is_minimum = matches!(module[i].op, Op::Binary(BinaryOp::Minimum));
    if let Some(Number::Float(c)) = splat(module, y) {
        let neutral = if is_minimum { f64::INFINITY } else { f64::NEG_INFINITY };
        return (c == neutral).then_some(x);
    }
    let (a, b) = (bounds(module, x)?, bounds(module, y)?);
    let (first, second) = if is_minimum { (a.1 <= b.0, b.1 <= a.0) } else { (a.0 >= b.1, b.0 >= a.1) };
    if first { Some(x) } else { second.then_some(y) }
}

fn nested_minimum(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, y] = module[i].operands() else { return None };
    is_of_one_type(module, i).then_some(())?;
    let (inner, other) = if module[x].op == module[i].op { (x, y) } else { (y, x) };
    (module[inner].op == module[i].op && is_of_one_type(module, inner)).then_some(())?;
    let &[p, q] = module[inner].operands() else { return None };
    if p == other || q == other {
        return Some(inner);
    }
    let is_minimum = matches!(module[i].op, Op::Binary(BinaryOp::Minimum));
    let number = match (splat(module, q)?, splat(module, other)?) {
        (Number::Int(a), Number::Int(b)) => Number::Int(if is_minimum { a.min(b) } else { a.max(b) }),
        // NaN would have to win, and zeros differ in sign.
        (Number::Float(a), Number::Float(b)) if a != b && !a.is_nan() && !b.is_nan() => {
            Number::Float(if is_minimum { a.min(b) } else { a.max(b) })
        }
        _ => return None,
    };
    let number = filled_like(module, i, number)?;
    let op = module[i].op.clone();
    beside(module, i).push(op, &[p, number]).ok()
}

fn clamp_within_bounds(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[low, x, high] = module[i].operands() else { return None };
    is_of_one_type(module, i).then_some(())?;
    let to = DimVec::from(dims(module, i)?);
    let is_float = array(module, i)?.element_type.is_float();
    let (no_low, no_high) = if is_float {
        let is = |i: InstructionId, value: f64| splat(module, i).and_then(Number::float) == Some(value);
        (is(low, f64::NEG_INFINITY), is(high, f64::INFINITY))
    } else {
        let (of_x, of_low, of_high) = (bounds(module, x)?, bounds(module, low)?, bounds(module, high)?);
        // What is raised to the lower bound must not then be above the upper one.
        (of_low.1 <= of_x.0, of_high.0 >= of_x.1 && of_high.0 >= of_low.1)
    };
    if no_low && no_high {
        return Some(x);
    }
    if !no_low && !no_high {
        return None;
    }
    let mut b = beside(module, i);
    let bound = if no_low { high } else { low };
    let same = b.shape(bound).as_array()?.dims() == to.as_slice();
    let bound = if same { bound } else { b.broadcast(bound, to, []).ok()? };
    if no_low { b.minimum(x, bound).ok() } else { b.maximum(x, bound).ok() }
}

fn nested_clamp(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[low, x, high] = module[i].operands() else { return None };
    let Op::Clamp = module[x].op else { return None };
    let &[inner_low, _, inner_high] = module[x].operands() else { return None };
    let same = |a: InstructionId, b: InstructionId| {
        let numbers = (splat(module, a), splat(module, b));
        // Zeros of floats may differ in sign.
        let equal = |x: Number, y: Number| x == y && (x.int().is_some() || !x.is(0));
        a == b || matches!(numbers, (Some(x), Some(y)) if equal(x, y))
    };
    (same(low, inner_low) && same(high, inner_high) && is_of_one_type(module, i)).then_some(x)
}

fn compare_constant_second(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Compare { direction, kind } = module[i].op else { return None };
    let &[x, y] = module[i].operands() else { return None };
    (splat(module, x).is_some() && splat(module, y).is_none()).then_some(())?;
    beside(module, i).push(Op::Compare { direction: mirrored(direction), kind }, &[y, x]).ok()
}

fn truth(module: &mut Module, i: InstructionId, value: bool) -> Option<InstructionId> {
    filled_like(module, i, Number::Int(i128::from(value)))
}

fn compare_with_itself(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    use ComparisonDirection::{Eq, Ge, Gt, Le, Lt, Ne};
    let Op::Compare { direction, kind } = module[i].op else { return None };
    let &[x, y] = module[i].operands() else { return None };
    (x == y).then_some(())?;
    let total = is_plain(array(module, x)?.element_type) || kind == Some(ComparisonType::TotalOrder);
    match direction {
        Lt | Gt => truth(module, i, false),
        Eq | Le | Ge if total => truth(module, i, true),
        Ne if total => truth(module, i, false),
        _ => None,
    }
}

fn compare_of_bounded(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    use ComparisonDirection::{Eq, Ge, Gt, Le, Lt, Ne};
    let Op::Compare { direction, .. } = module[i].op else { return None };
    let &[x, y] = module[i].operands() else { return None };
    compared_type(module, i).filter(|&t| is_plain(t))?;
    let (a, b) = (bounds(module, x)?, bounds(module, y)?);
    let (below, above) = (a.1 < b.0, a.0 > b.1);
    let (at_most, at_least) = (a.1 <= b.0, a.0 >= b.1);
    let known = match direction {
        Lt if below => true,
        Lt if at_least => false,
        Le if at_most => true,
        Le if above => false,
        Gt if above => true,
        Gt if at_most => false,
        Ge if at_least => true,
        Ge if below => false,
        Eq if below || above => false,
        Ne if below || above => true,
        _ => return None,
    };
    truth(module, i, known)
}

fn compare_of_truth(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    use ComparisonDirection::{Eq, Ne};
    let Op::Compare { direction, kind } = module[i].op else { return None };
    let (x, c) = with_number(module, i)?;
    // In the total order of floats -0 is another number.
    (kind != Some(ComparisonType::TotalOrder)).then_some(())?;
    // What was made a number of is 0 or 1.
    let p = match module[x].op {
        Op::Convert => operand(module, x, 0)?,
        _ => x,
    };
    (array(module, p)?.element_type == ElementType::Pred).then_some(())?;
    let holds = match (direction, c.is(0), c.is(1)) {
        (Eq, false, true) | (Ne, true, false) => true,
        (Eq, true, false) | (Ne, false, true) => false,
        _ => return None,
    };
    if holds { Some(p) } else { beside(module, i).not(p).ok() }
}

fn compare_of_sum(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Compare { direction, kind } = module[i].op else { return None };
    matches!(direction, ComparisonDirection::Eq | ComparisonDirection::Ne).then_some(())?;
    let (sum, b) = with_number(module, i)?;
    let Op::Binary(BinaryOp::Add) = module[sum].op else { return None };
    let (x, a) = with_number(module, sum)?;
    compared_type(module, i).filter(|t| t.is_integer())?;
    let rest = Number::Int(b.int()?.checked_sub(a.int()?)?);
    let rest = filled_like(module, sum, rest)?;
    beside(module, i).push(Op::Compare { direction, kind }, &[x, rest]).ok()
}

/// The three operands of a select of arrays of one type.
fn choices(module: &Module, i: InstructionId) -> Option<(InstructionId, InstructionId, InstructionId)> {
    let &[p, a, b] = module[i].operands() else { return None };
    let fits = |x: InstructionId| module[x].shape.equal_ignoring_layout(&module[i].shape);
    (fits(a) && fits(b)).then_some((p, a, b))
}

fn select_known(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (p, a, b) = choices(module, i)?;
    if a == b {
        return Some(a);
    }
    Some(if splat(module, p)?.is(0) { b } else { a })
}

fn select_of_not(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (p, a, b) = choices(module, i)?;
    let p = negated(module, p)?;
    beside(module, i).select(p, b, a).ok()
}

fn select_of_truths(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (p, a, b) = choices(module, i)?;
    (array(module, i)?.element_type == ElementType::Pred && dims(module, p) == dims(module, i)).then_some(())?;
    let known = |x: InstructionId| splat(module, x).map(|n| !n.is(0));
    match (known(a), known(b)) {
        (Some(true), Some(false)) => Some(p),
        (Some(false), Some(true)) => beside(module, i).not(p).ok(),
        (None, Some(false)) => beside(module, i).and(p, a).ok(),
        (Some(true), None) => beside(module, i).or(p, b).ok(),
        _ => None,
    }
}

fn select_again(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (p, a, b) = choices(module, i)?;
    let inner = |x: InstructionId| match module[x].op {
        Op::Select => choices(module, x).filter(|c| c.0 == p),
        _ => None,
    };
    match (inner(a), inner(b)) {
        (Some((_, a, _)), _) => beside(module, i).select(p, a, b).ok(),
        (None, Some((_, _, b))) => beside(module, i).select(p, a, b).ok(),
        _ => None,
    }
}

fn select_of_equal(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (p, a, b) = choices(module, i)?;
    let Op::Compare { direction, .. } = module[p].op else { return None };
    compared_type(module, p).filter(|&t| is_plain(t))?;
    let &[x, y] = module[p].operands() else { return None };
    ((a, b) == (x, y) || (a, b) == (y, x)).then_some(())?;
    // Where the two are equal it does not matter which is taken.
    match direction {
        ComparisonDirection::Eq => Some(b),
        ComparisonDirection::Ne => Some(a),
        _ => None,
    }
}

//! Expressions full of zeros, ones, infinities and the like.

use super::{Added, alone, cases, check, context, together};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::Agreement;
use hloom_ir::attributes::{ComparisonDirection, ComparisonType};
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType::{self, *};
use hloom_ir::entity::InstructionId;
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_passes::optimize;
use hloom_passes::rules::{arithmetic, logic};

/// A scalar of a type: one of those that identities are about.
pub(super) fn special(choices: &mut Choices<'_>, t: ElementType) -> Literal {
    let bits: u64 = match t {
        Pred => choices.below(2) as u64,
        F32 => {
            let x =
                *choices.pick(&[0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -4.0, 3.0, f32::INFINITY, -f32::INFINITY, f32::NAN]);
            x.to_bits().into()
        }
        F64 => {
            let x =
                *choices.pick(&[0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -4.0, 3.0, f64::INFINITY, -f64::INFINITY, f64::NAN]);
            x.to_bits()
        }
        F16 => *choices.pick(&[0, 0x8000, 0x3c00, 0xbc00, 0x4000, 0x3800, 0x7c00, 0xfc00, 0x7e00, 0x0001]),
        Bf16 => *choices.pick(&[0, 0x8000, 0x3f80, 0xbf80, 0x4000, 0x3f00, 0x7f80, 0xff80, 0x7fc0, 0x0001]),
        t => {
            let top = 1u64 << (t.bits() - 1);
            let bits = *choices.pick(&[0, 1, 2, 3, 4, 8, u64::MAX, top, top - 1, 16, u64::MAX - 1]);
            let spare = 64 - t.bits();
            // Types narrower than a byte are kept extended.
            if t.is_signed_integer() { ((bits << spare) as i64 >> spare) as u64 } else { bits << spare >> spare }
        }
    };
    let shape = ArrayShape::new(t, []).with_default_layout();
    Literal::Array(ArrayLiteral::new(shape, bits.to_le_bytes()[..t.bytes()].to_vec()).expect("one element"))
}

const TYPES: &[ElementType] = &[Pred, S1, S4, S8, S16, S32, S64, U1, U4, U8, U16, U32, U64, F16, Bf16, F32, F64, C64];
const BINARY: &[BinaryOp] = &[
    BinaryOp::Add,
    BinaryOp::And,
    BinaryOp::Divide,
    BinaryOp::Maximum,
    BinaryOp::Minimum,
    BinaryOp::Multiply,
    BinaryOp::Or,
    BinaryOp::Remainder,
    BinaryOp::ShiftLeft,
    BinaryOp::ShiftRightArithmetic,
    BinaryOp::ShiftRightLogical,
    BinaryOp::Subtract,
    BinaryOp::Xor,
];
const UNARY: &[UnaryOp] = &[
    UnaryOp::Abs,
    UnaryOp::Negate,
    UnaryOp::Negate,
    UnaryOp::Not,
    UnaryOp::Floor,
    UnaryOp::Ceil,
    UnaryOp::RoundNearestEven,
    UnaryOp::Sign,
];
const DIRECTIONS: &[ComparisonDirection] = ComparisonDirection::ALL;

/// Two values that meet in two ways.
fn pairs(b: &mut Builder<'_>, choices: &mut Choices<'_>, x: InstructionId, y: InstructionId) -> Added {
    match choices.below(5) {
        3 => {
            let clamped = b.clamp(y, x, y)?;
            b.clamp(y, clamped, y)
        }
        4 => {
            let t = b.shape(x).element_type().unwrap_or(Pred);
            let (c, d) = (b.literal(special(choices, t))?, b.literal(special(choices, t))?);
            let (c, d) = (b.broadcast(c, [6], [])?, b.broadcast(d, [6], [])?);
            let sum = b.add(x, c)?;
            let equal = b.compare(*choices.pick(DIRECTIONS), sum, d)?;
            b.select(equal, x, y)
        }
        0 => {
            let (x, y) = (b.negate(x)?, b.negate(y)?);
            b.push(Op::Binary(*choices.pick(&[BinaryOp::Multiply, BinaryOp::Divide, BinaryOp::Subtract])), &[x, y])
        }
        1 => {
            let x = b.abs(x)?;
            b.multiply(x, x)
        }
        _ => {
            let equal = b.compare(*choices.pick(DIRECTIONS), x, y)?;
            b.select(equal, x, y)
        }
    }
}

/// An expression over one type: `values` are of it, `truths` of pred.
fn expression(b: &mut Builder<'_>, choices: &mut Choices<'_>, t: ElementType) -> Added {
    const SIZE: i64 = 6;
    let x = b.parameter(0, Shape::array(t, [SIZE]), "x")?;
    let y = b.parameter(1, Shape::array(t, [SIZE]), "y")?;
    let p = b.parameter(2, Shape::array(Pred, [SIZE]), "p")?;
    let (mut values, mut truths) = (vec![x, y], vec![p]);
    if t.is_integer() && t.bits() > 2 || matches!(t, F32 | F64) {
        values.push(b.iota(Shape::array(t, [SIZE]), 0)?);
    }
    let constant = |b: &mut Builder<'_>, choices: &mut Choices<'_>, t: ElementType| {
        if t.is_complex() {
            return Ok(x);
        }
        let scalar = b.literal(special(choices, t))?;
        b.broadcast(scalar, [SIZE], [])
    };
    for _ in 0..choices.between(3, 14) {
        // The last ones are taken often, so that rules meet what others made.
        let near = |choices: &mut Choices<'_>, list: &[InstructionId]| {
            let from = if choices.chance(60) { list.len().saturating_sub(2) } else { 0 };
            list[from + choices.below(list.len() - from)]
        };
        let a = near(choices, &values);
        let c = if choices.chance(45) { constant(b, choices, t)? } else { near(choices, &values) };
        let (first, second) = if choices.chance(50) { (a, c) } else { (c, a) };
        let q = if choices.chance(15) { constant(b, choices, Pred)? } else { near(choices, &truths) };
        let made = match choices.below(11) {
            9 => {
                let op = Op::Binary(*choices.pick(&[
                    BinaryOp::Add,
                    BinaryOp::Multiply,
                    BinaryOp::Minimum,
                    BinaryOp::Maximum,
                ]));
                let (c, d) = (constant(b, choices, t)?, constant(b, choices, t)?);
                b.push(op.clone(), &[a, c]).and_then(|inner| b.push(op, &[inner, d]))
            }
            10 if !t.is_complex() => pairs(b, choices, a, second),
            0..=2 => b.push(Op::Binary(*choices.pick(BINARY)), &[first, second]),
            3 | 4 => b.push(Op::unary(*choices.pick(UNARY)), &[a]),
            5 => {
                // The sign of a NaN that was computed is nobody's: only what is given is compared by it.
                let total = t.is_float() && choices.chance(30);
                let kind = total.then_some(ComparisonType::TotalOrder);
                let operands = if total { [x, if choices.chance(50) { x } else { y }] } else { [first, second] };
                let compare = b.push(Op::Compare { direction: *choices.pick(DIRECTIONS), kind }, &operands);
                truths.extend(compare);
                continue;
            }
            6 => b.select(q, first, second),
            7 => {
                let bound = constant(b, choices, t)?;
                b.clamp(bound, a, second)
            }
            _ => {
                let r = near(choices, &truths);
                let made = match choices.below(5) {
                    0 => b.not(q),
                    1 => b.and(q, r),
                    2 => b.or(q, r),
                    3 => b.select(q, r, p),
                    _ => b.push(Op::Compare { direction: *choices.pick(DIRECTIONS), kind: None }, &[q, r]),
                };
                truths.extend(made);
                continue;
            }
        };
        // What the type does not have is left out.
        values.extend(made);
    }
    let last = [values[values.len() - 1], values[values.len() / 2], truths[truths.len() - 1]];
    b.tuple(&last)
}
fn expression_of(seed: u64, choices: &mut Choices<'_>) -> (Module, Agreement) {
    let t = TYPES[seed as usize % TYPES.len()];
    let mut module = Module::new("expression");
    let mut b = Builder::new(&mut module, "main");
    let root = expression(&mut b, choices, t).expect("it is well formed");
    b.finish_entry(root);
    (module, Agreement::Exact)
}
#[test]
fn expressions_of_special_numbers_stay_exact() {
    together(expression_of, cases() * 3);
}

#[test]
fn each_rule_of_arithmetic_and_logic_is_exact() {
    // Powers and complex numbers are not in these expressions.
    let unmet = ["small-power", "root-power", "part-of-complex"];
    alone(expression_of, cases(), &[arithmetic::RULES, logic::RULES], &unmet);
}

#[test]
fn small_powers_are_products() {
    let folded = hloom_passes::Registry::own().list(["fold-constants", "simplify-arithmetic"]).expect("they are there");
    let mut changes = 0;
    for t in [S32, U8, F16, Bf16, F32, F64] {
        for exponent in [-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0] {
            let mut module = Module::new("power");
            let mut b = Builder::new(&mut module, "main");
            let build = |b: &mut Builder<'_>| {
                let x = b.parameter(0, Shape::array(t, [40]), "x")?;
                let e = b.constant(exponent)?;
                // Made from f64 and folded: the numbers fit every type here.
                let e = b.convert(e, t)?;
                let positive = if t.is_float() { b.abs(x)? } else { x };
                let es = b.broadcast(e, [40], [])?;
                let (p, q) = (b.power(x, es)?, b.power(positive, es)?);
                b.tuple(&[p, q])
            };
            let root = build(&mut b).expect("it is well formed");
            b.finish_entry(root);
            let mut choices = Choices::from_seed(7);
            // One rounding more or less.
            let tolerance = if t == Bf16 { 0.008 } else { 0.001 };
            let agreement = if t.is_float() { Agreement::Within(tolerance) } else { Agreement::Exact };
            let simplify = |module| {
                let optimized =
                    optimize(module, &folded, &context(), None).map_err(|f| format!("{:?}", f.diagnostics))?;
                let changes = optimized.report.changes();
                Ok((optimized.module, changes))
            };
            changes += check(&format!("{t} to the {exponent}"), module, &mut choices, agreement, simplify);
        }
    }
    assert!(changes > 60, "rules apply: {changes}");
}

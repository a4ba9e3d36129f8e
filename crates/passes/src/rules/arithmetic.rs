//! Identities of arithmetic: sums, products, quotients, powers and signs that are simpler than they are written.
//!
//! Every rule is exact, for NaN, infinities, both zeros and the least integers as well: `x + 0` is not `x` where `x` is
//! the float -0, so it stays. Operands of mixed float types are converted as they are read; such instructions are left.

use super::numbers::{Number, filled_like, splat, with_number};
use super::{array, beside, dims, operand};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::attributes::ResultAccuracy;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};
use hloom_ir::opcode::Opcode;

/// The pass.
pub static PASS: Pass = Pass {
    name: "simplify-arithmetic",
    statement: "drops and joins additions, products, quotients, powers and signs where that is exact",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[
    Rule {
        name: "constant-second",
        statement: "c + x → x + c, and so for products, minima, maxima and bits",
        opcodes: &[
            Opcode::Add,
            Opcode::Multiply,
            Opcode::Maximum,
            Opcode::Minimum,
            Opcode::And,
            Opcode::Or,
            Opcode::Xor,
        ],
        apply: constant_second,
    },
    Rule {
        name: "add-nothing", statement: "x + 0 → x; of floats x + -0", opcodes: &[Opcode::Add], apply: add_nothing
    },
    Rule {
        name: "add-negated",
        statement: "x + -y → x - y, and -x + y → y - x",
        opcodes: &[Opcode::Add],
        apply: add_negated,
    },
    Rule {
        name: "add-constants",
        statement: "(x + a) + b → x + (a + b), for integers",
        opcodes: &[Opcode::Add],
        apply: add_constants,
    },
    Rule {
        name: "subtract-constant",
        statement: "x - 0 → x; (x + a) - b → x + (a - b), for integers",
        opcodes: &[Opcode::Subtract],
        apply: subtract_constant,
    },
    Rule {
        name: "subtract-itself",
        statement: "x - x → 0, for integers",
        opcodes: &[Opcode::Subtract],
        apply: subtract_itself,
    },
    Rule {
        name: "subtract-negated",
        statement: "x - -y → x + y",
        opcodes: &[Opcode::Subtract],
        apply: subtract_negated,
    },
    Rule {
        name: "subtract-from-nothing",
        statement: "0 - x → -x; of floats -0 - x",
        opcodes: &[Opcode::Subtract],
        apply: subtract_from_nothing,
    },
    Rule {
        name: "multiply-by-one",
        statement: "x · 1 → x, and x · -1 → -x",
        opcodes: &[Opcode::Multiply],
        apply: multiply_by_one,
    },
    Rule {
        name: "multiply-by-zero",
        statement: "x · 0 → 0, for integers",
        opcodes: &[Opcode::Multiply],
        apply: multiply_by_zero,
    },
    Rule {
        name: "multiply-constants",
        statement: "(x · a) · b → x · (a · b), for integers",
        opcodes: &[Opcode::Multiply],
        apply: multiply_constants,
    },
    Rule {
        name: "multiply-negated",
        statement: "-x · -y → x · y, and so for quotients of floats",
        opcodes: &[Opcode::Multiply, Opcode::Divide],
        apply: multiply_negated,
    },
    Rule {
        name: "divide-by-one",
        statement: "x / 1 → x, and x / -1 → -x",
        opcodes: &[Opcode::Divide],
        apply: divide_by_one,
    },
    Rule {
        name: "divide-by-power-of-two",
        statement: "x / 2ⁿ → x · 2⁻ⁿ for floats, and a shift for unsigned integers",
        opcodes: &[Opcode::Divide],
        apply: divide_by_power_of_two,
    },
    Rule {
        name: "remainder-of-power-of-two",
        statement: "x mod 2ⁿ → x and 2ⁿ - 1, for unsigned integers; x mod 1 → 0 for all integers",
        opcodes: &[Opcode::Remainder],
        apply: remainder_of_power_of_two,
    },
    Rule {
        name: "small-power",
        statement: "x ^ n → products of x, for n of 0 to 4 and -1",
        opcodes: &[Opcode::Power],
        apply: small_power,
    },
    Rule {
        name: "root-power",
        statement: "x ^ ½ → sqrt(x) and x ^ -½ → rsqrt(x), where x is not negative",
        opcodes: &[Opcode::Power],
        apply: root_power,
    },
    Rule { name: "double-negation", statement: "--x → x", opcodes: &[Opcode::Negate], apply: double_negation },
    Rule {
        name: "abs-of-sign",
        statement: "|-x| → |x|, and |x| → x where x has no sign",
        opcodes: &[Opcode::Abs],
        apply: abs_of_sign,
    },
    Rule {
        name: "square-of-abs", statement: "|x| · |x| → x · x", opcodes: &[Opcode::Multiply], apply: square_of_abs
    },
    Rule {
        name: "rounded-twice",
        statement: "floor, ceil or round of what is rounded already → that",
        opcodes: &[Opcode::Floor, Opcode::Ceil, Opcode::RoundNearestAfz, Opcode::RoundNearestEven],
        apply: rounded_twice,
    },
    Rule {
        name: "part-of-complex",
        statement: "real(complex(a, b)) → a, imag(complex(a, b)) → b, complex(real(z), imag(z)) → z",
        opcodes: &[Opcode::Real, Opcode::Imag, Opcode::Complex],
        apply: part_of_complex,
    },
];

/// The type of `i` and all its operands, if it is one.
fn one_type(module: &Module, i: InstructionId) -> Option<ElementType> {
    let element_type = array(module, i)?.element_type;
    let same = |&o: &InstructionId| array(module, o).is_some_and(|a| a.element_type == element_type);
    module[i].operands().iter().all(same).then_some(element_type)
}

/// The operand of `i`, if that is `op` and of the same type.
fn operand_of(module: &Module, i: InstructionId, op: UnaryOp) -> Option<InstructionId> {
    match module[i].op {
        Op::Unary { op: found, .. } if found == op => operand(module, i, 0).filter(|_| one_type(module, i).is_some()),
        _ => None,
    }
}

/// An integer type; not pred, whose sums are something else.
fn integer_type(module: &Module, i: InstructionId) -> Option<ElementType> {
    one_type(module, i).filter(|t| t.is_integer())
}

fn constant_second(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, y] = module[i].operands() else { return None };
    (splat(module, x).is_some() && splat(module, y).is_none()).then_some(())?;
    one_type(module, i)?;
    let op = module[i].op.clone();
    beside(module, i).push(op, &[y, x]).ok()
}

fn add_nothing(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (x, c) = with_number(module, i)?;
    one_type(module, i)?;
    c.is_neutral_zero().then_some(x)
}

fn add_negated(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, y] = module[i].operands() else { return None };
    one_type(module, i)?;
    if let Some(y) = operand_of(module, y, UnaryOp::Negate) {
        return beside(module, i).subtract(x, y).ok();
    }
    let x = operand_of(module, x, UnaryOp::Negate)?;
    beside(module, i).subtract(y, x).ok()
}

/// `(x op a) op b` as `x` and the two numbers.
fn two_numbers(module: &Module, i: InstructionId) -> Option<(InstructionId, i128, i128)> {
    let (inner, b) = with_number(module, i)?;
    (module[inner].op == module[i].op).then_some(())?;
    let (x, a) = with_number(module, inner)?;
    integer_type(module, i).filter(|_| integer_type(module, inner).is_some())?;
    Some((x, a.int()?, b.int()?))
}

fn add_constants(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (x, a, b) = two_numbers(module, i)?;
    let sum = filled_like(module, i, Number::Int(a.checked_add(b)?))?;
    beside(module, i).add(x, sum).ok()
}

fn subtract_constant(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (x, c) = with_number(module, i)?;
    one_type(module, i)?;
    let minus = match c {
        Number::Int(n) => Number::Int(n.checked_neg()?),
        Number::Float(x) => Number::Float(-x),
    };
    if minus.is_neutral_zero() {
        return Some(x);
    }
    let Op::Binary(BinaryOp::Add) = module[x].op else { return None };
    let (inner, a) = with_number(module, x)?;
    integer_type(module, i).filter(|_| integer_type(module, x).is_some())?;
    let sum = filled_like(module, i, Number::Int(a.int()?.checked_add(minus.int()?)?))?;
    beside(module, i).add(inner, sum).ok()
}

fn subtract_itself(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, y] = module[i].operands() else { return None };
    (x == y).then_some(())?;
    integer_type(module, i)?;
    filled_like(module, i, Number::Int(0))
}

fn subtract_negated(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, y] = module[i].operands() else { return None };
    one_type(module, i)?;
    let y = operand_of(module, y, UnaryOp::Negate)?;
    beside(module, i).add(x, y).ok()
}

fn subtract_from_nothing(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[zero, x] = module[i].operands() else { return None };
    splat(module, zero)?.is_neutral_zero().then_some(())?;
    one_type(module, i).filter(|&t| t != ElementType::Pred)?;
    beside(module, i).negate(x).ok()
}

fn multiply_by_one(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (x, c) = with_number(module, i)?;
    let element_type = one_type(module, i)?;
    if c.is(1) {
        return Some(x);
    }
    (c.is(-1) && element_type != ElementType::Pred).then_some(())?;
    beside(module, i).negate(x).ok()
}

fn multiply_by_zero(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (_, c) = with_number(module, i)?;
    one_type(module, i)?;
    (c == Number::Int(0)).then_some(())?;
    filled_like(module, i, c)
}

fn multiply_constants(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (x, a, b) = two_numbers(module, i)?;
    // The low bits of a product follow from the low bits of its factors.
    let product = filled_like(module, i, Number::Int(a.wrapping_mul(b)))?;
    beside(module, i).multiply(x, product).ok()
}

fn multiply_negated(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, y] = module[i].operands() else { return None };
    let element_type = one_type(module, i)?;
    let is_product = matches!(module[i].op, Op::Binary(BinaryOp::Multiply));
    (element_type.is_float() || is_product && element_type.is_integer()).then_some(())?;
    let (x, y) = (operand_of(module, x, UnaryOp::Negate)?, operand_of(module, y, UnaryOp::Negate)?);
    let op = module[i].op.clone();
    beside(module, i).push(op, &[x, y]).ok()
}

fn divide_by_one(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (x, c) = with_number(module, i)?;
    let element_type = one_type(module, i)?;
    if c.is(1) && element_type != ElementType::Pred {
        return Some(x);
    }
    (c.is(-1)).then_some(())?;
    beside(module, i).negate(x).ok()
}

/// The n of 2ⁿ, if it is one.
fn exponent_of_two(n: i128) -> Option<i128> {
    (n > 0 && n.count_ones() == 1).then(|| i128::from(n.trailing_zeros()))
}

fn divide_by_power_of_two(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (x, c) = with_number(module, i)?;
    let element_type = one_type(module, i)?;
    match c {
        Number::Int(n) => {
            element_type.is_unsigned_integer().then_some(())?;
            let shift = exponent_of_two(n).filter(|&s| s > 0)?;
            let shift = filled_like(module, i, Number::Int(shift))?;
            beside(module, i).shift_right_logical(x, shift).ok()
        }
        Number::Float(divisor) => {
            let inverse = 1.0 / divisor;
            // A power of two whose inverse is a normal number of the type, and not a power of it only.
            let exact = divisor.is_normal() && divisor.to_bits() << 12 == 0 && is_normal(element_type, inverse);
            exact.then_some(())?;
            let inverse = filled_like(module, i, Number::Float(inverse))?;
            beside(module, i).multiply(x, inverse).ok()
        }
    }
}

/// Whether a power of two is a normal number of a type.
fn is_normal(element_type: ElementType, x: f64) -> bool {
    let (least, most) = match element_type {
        ElementType::F16 => (-14, 15),
        ElementType::Bf16 | ElementType::F32 => (-126, 127),
        ElementType::F64 => (-1022, 1023),
        _ => return false,
    };
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    (least..=most).contains(&exponent)
}

fn remainder_of_power_of_two(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (x, c) = with_number(module, i)?;
    let n = c.int()?;
    let element_type = integer_type(module, i)?;
    if n == 1 {
        return filled_like(module, i, Number::Int(0));
    }
    exponent_of_two(n).filter(|_| element_type.is_unsigned_integer())?;
    let mask = filled_like(module, i, Number::Int(n - 1))?;
    beside(module, i).and(x, mask).ok()
}

fn small_power(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (x, exponent) = with_number(module, i)?;
    let element_type = one_type(module, i)?;
    let simple = element_type.is_integer()
        || matches!(element_type, ElementType::F16 | ElementType::Bf16 | ElementType::F32 | ElementType::F64);
    simple.then_some(())?;
    let one = if element_type.is_integer() { Number::Int(1) } else { Number::Float(1.0) };
    let n = (-1..=4).find(|&n| exponent.is(n))?;
    // Narrow floats lose too much in a second product.
    let wide = element_type.is_integer() || matches!(element_type, ElementType::F32 | ElementType::F64);
    match n {
        0 => filled_like(module, i, one),
        1 => Some(x),
        2 => beside(module, i).multiply(x, x).ok(),
        3 | 4 if wide => {
            let mut b = beside(module, i);
            let square = b.multiply(x, x).ok()?;
            b.multiply(square, if n == 3 { x } else { square }).ok()
        }
        -1 if element_type.is_float() => {
            let one = filled_like(module, i, one)?;
            beside(module, i).divide(one, x).ok()
        }
        _ => None,
    }
}

/// Whether no element of `i` is below zero, nor is -0; it may be NaN.
fn is_not_negative(module: &Module, i: InstructionId) -> bool {
    let (op, operands) = (&module[i].op, module[i].operands());
    match op {
        Op::Unary { op: UnaryOp::Abs | UnaryOp::Exponential | UnaryOp::Logistic, .. } => {
            array(module, i).is_some_and(|a| a.element_type.is_float())
        }
        Op::Binary(BinaryOp::Multiply) => {
            matches!(operands, &[x, y] if x == y) && array(module, i).is_some_and(|a| a.element_type.is_float())
        }
        Op::Binary(BinaryOp::Maximum) => {
            operands.iter().any(|&o| splat(module, o).and_then(Number::float).is_some_and(|c| c > 0.0))
        }
        Op::Binary(BinaryOp::Add) => match operands {
            // The sum of a number that is not negative and one that is positive.
            &[x, y] => {
                splat(module, y).and_then(Number::float).is_some_and(|c| c > 0.0)
                    && matches!(
                        module[x].op,
                        Op::Unary { op: UnaryOp::Abs | UnaryOp::Exponential, .. } | Op::Binary(BinaryOp::Multiply)
                    )
                    && is_not_negative(module, x)
            }
            _ => false,
        },
        _ => false,
    }
}

fn root_power(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (x, exponent) = with_number(module, i)?;
    one_type(module, i)?;
    is_not_negative(module, x).then_some(())?;
    match exponent.float()? {
        0.5 => beside(module, i).sqrt(x).ok(),
        -0.5 => beside(module, i).rsqrt(x).ok(),
        _ => None,
    }
}

fn double_negation(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    one_type(module, i)?;
    operand_of(module, operand(module, i, 0)?, UnaryOp::Negate)
}

fn abs_of_sign(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let x = operand(module, i, 0)?;
    let element_type = one_type(module, i)?;
    if element_type.is_unsigned_integer() || is_not_negative(module, x) {
        return Some(x);
    }
    if operand_of(module, x, UnaryOp::Abs).is_some() {
        return Some(x);
    }
    let inner = operand_of(module, x, UnaryOp::Negate)?;
    beside(module, i).abs(inner).ok()
}

fn square_of_abs(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, y] = module[i].operands() else { return None };
    (x == y).then_some(())?;
    let element_type = one_type(module, i)?;
    (element_type.is_float() || element_type.is_integer()).then_some(())?;
    let inner = operand_of(module, x, UnaryOp::Abs)?;
    beside(module, i).multiply(inner, inner).ok()
}

fn rounded_twice(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let x = operand(module, i, 0)?;
    one_type(module, i)?;
    let rounds = matches!(
        module[x].op,
        Op::Unary {
            op: UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::RoundNearestAfz | UnaryOp::RoundNearestEven,
            accuracy: ResultAccuracy::Default
        }
    );
    (rounds && one_type(module, x).is_some()).then_some(x)
}

fn part_of_complex(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let part = |z: InstructionId, wanted: UnaryOp| match module[z].op {
        Op::Unary { op, .. } if op == wanted => operand(module, z, 0),
        _ => None,
    };
    match (&module[i].op, module[i].operands()) {
        (Op::Binary(BinaryOp::Complex), &[a, b]) => {
            let z = part(a, UnaryOp::Real)?;
            let whole =
                part(b, UnaryOp::Imag)? == z && array(module, z)?.element_type == array(module, i)?.element_type;
            whole.then_some(z)
        }
        (Op::Unary { op, .. }, &[z]) if matches!(module[z].op, Op::Binary(BinaryOp::Complex)) => {
            let x = operand(module, z, usize::from(*op == UnaryOp::Imag))?;
            let same =
                array(module, x)?.element_type == array(module, i)?.element_type && dims(module, x) == dims(module, i);
            same.then_some(x)
        }
        _ => None,
    }
}

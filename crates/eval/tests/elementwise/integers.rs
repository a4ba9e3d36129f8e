//! Integer operations against arithmetic in `i128`: every pair of values of types up to eight bits, corners of wider ones.

use super::*;
use hloom_ir::attributes::ComparisonDirection;

const TYPES: [ElementType; 14] = [S1, S2, S4, S8, S16, S32, S64, U1, U2, U4, U8, U16, U32, U64];

/// The values of a type to test with.
fn values(t: ElementType) -> Vec<i128> {
    let bits = t.bits();
    let (min, max) =
        if t.is_signed_integer() { (-(1i128 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    if bits <= 8 {
        return (min..=max).collect();
    }
    let mut values: Vec<i128> = (-3..=7).chain([31, 32, 33, 63, 64, 65, 100, -100]).collect();
    values.extend([min, min + 1, min / 2, max / 2, max / 3, max - 1, max]);
    values.retain(|v| (min..=max).contains(v));
    values
}

/// The value of a type with the same low bits.
fn wrap(t: ElementType, x: i128) -> i128 {
    let low = x & ((1 << t.bits()) - 1);
    if t.is_signed_integer() && low >> (t.bits() - 1) == 1 { low - (1 << t.bits()) } else { low }
}

fn array(t: ElementType, values: &[i128]) -> Array {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()[..t.bytes()].to_vec()).collect();
    Array::from_bytes(t, &[values.len() as i64], &bytes).unwrap()
}

fn elements(a: &Array) -> Vec<i128> {
    let (t, width) = (a.element_type(), a.element_type().bytes());
    let whole = |bytes: &[u8]| bytes.iter().rev().fold(0i128, |x, &b| x << 8 | i128::from(b));
    let elements = a.bytes().chunks(width).map(|bytes| {
        let x = whole(bytes);
        let sign = t.is_signed_integer() && x >> (8 * width - 1) == 1;
        if sign { x - (1 << (8 * width)) } else { x }
    });
    elements.collect()
}

/// What `op` gives in unbounded arithmetic; the caller wraps it.
fn expected(op: BinaryOp, t: ElementType, x: i128, y: i128) -> i128 {
    let bits = i128::from(t.bits());
    let unsigned = |v: i128| v & ((1 << bits) - 1);
    match op {
        BinaryOp::Add => x + y,
        BinaryOp::Subtract => x - y,
        BinaryOp::Multiply => x.wrapping_mul(y),
        BinaryOp::Mulhi => {
            // The full product of 64-bit unsigned numbers needs all 128 bits.
            if t.is_unsigned_integer() { ((x as u128 * y as u128) >> bits) as i128 } else { (x * y) >> bits }
        }
        BinaryOp::Divide => {
            if y == 0 {
                -1
            } else {
                x / y
            }
        }
        BinaryOp::Remainder => {
            if y == 0 {
                x
            } else {
                x % y
            }
        }
        BinaryOp::Maximum => x.max(y),
        BinaryOp::Minimum => x.min(y),
        BinaryOp::And => x & y,
        BinaryOp::Or => x | y,
        BinaryOp::Xor => x ^ y,
        BinaryOp::ShiftLeft => {
            if unsigned(y) >= bits {
                0
            } else {
                x << unsigned(y)
            }
        }
        BinaryOp::ShiftRightLogical => {
            if unsigned(y) >= bits {
                0
            } else {
                unsigned(x) >> unsigned(y)
            }
        }
        BinaryOp::ShiftRightArithmetic => {
            let top_is_set = unsigned(x) >> (bits - 1) == 1;
            let signed = if top_is_set { unsigned(x) - (1 << bits) } else { x };
            signed >> unsigned(y).min(bits - 1)
        }
        BinaryOp::Power => {
            if y < 0 && x.abs() != 1 {
                return 0;
            }
            // Odd and even powers of ±1; otherwise square and multiply, wrapping.
            let (mut base, mut rest, mut power) = (x, if y < 0 { -y } else { y }, 1i128);
            while rest > 0 {
                if rest % 2 == 1 {
                    power = wrap(t, wrap(t, power).wrapping_mul(base));
                }
                base = wrap(t, base.wrapping_mul(base));
                rest /= 2;
            }
            power
        }
        BinaryOp::Atan2 | BinaryOp::Complex => unreachable!("not of integers"),
    }
}

#[test]
fn binary_operations() {
    for t in TYPES {
        let (x, y) = pairs(&values(t));
        let (a, b) = (array(t, &x), array(t, &y));
        for &op in BinaryOp::ALL.iter().filter(|op| !matches!(op, BinaryOp::Atan2 | BinaryOp::Complex)) {
            let result = elements(&binary(op, &a, &b, t));
            for (i, &r) in result.iter().enumerate() {
                assert_eq!(r, wrap(t, expected(op, t, x[i], y[i])), "{op:?} {t} of {} and {}", x[i], y[i]);
            }
        }
    }
}

#[test]
fn unary_operations() {
    for t in TYPES {
        let x = values(t);
        let a = array(t, &x);
        let check = |op, f: &dyn Fn(i128) -> i128| {
            for (&x, r) in x.iter().zip(elements(&unary(op, &a, t))) {
                assert_eq!(r, wrap(t, f(x)), "{op:?} {t} of {x}");
            }
        };
        let pattern = |x: i128| (0..t.bits()).map(|bit| (x >> bit) & 1).collect::<Vec<_>>();
        check(UnaryOp::Negate, &|x| -x);
        check(UnaryOp::Not, &|x| -1 - x);
        check(UnaryOp::PopulationCount, &|x| pattern(x).iter().sum());
        check(UnaryOp::CountLeadingZeros, &|x| pattern(x).iter().rev().take_while(|&&bit| bit == 0).count() as i128);
        if t.is_signed_integer() {
            check(UnaryOp::Abs, &|x| x.abs());
            check(UnaryOp::Sign, &|x| x.signum());
        }
    }
}

#[test]
fn comparisons() {
    use ComparisonDirection::*;
    for t in TYPES {
        let (x, y) = pairs(&values(t));
        let (a, b) = (array(t, &x), array(t, &y));
        for direction in [Eq, Ne, Ge, Gt, Le, Lt] {
            let op = Op::Compare { direction, kind: None };
            let result = evaluate(op, &[a.clone(), b.clone()], Pred, a.dims());
            for (i, &r) in result.elements::<u8>().iter().enumerate() {
                let order = x[i].cmp(&y[i]);
                let holds = match direction {
                    Eq => order.is_eq(),
                    Ne => order.is_ne(),
                    Ge => order.is_ge(),
                    Gt => order.is_gt(),
                    Le => order.is_le(),
                    Lt => order.is_lt(),
                };
                assert_eq!(r, u8::from(holds), "{t}: {} {direction:?} {}", x[i], y[i]);
            }
        }
    }
}

#[test]
fn clamps() {
    for t in TYPES {
        let values = values(t);
        let step = values.len().div_ceil(12);
        let few: Vec<i128> = values.iter().copied().step_by(step).collect();
        let (low, rest) = pairs(&few);
        for &high in &few {
            let high_array = array(t, &vec![high; low.len()]);
            let operands = [array(t, &low), array(t, &rest), high_array.clone()];
            let result = elements(&evaluate(Op::Clamp, &operands, t, high_array.dims()));
            for i in 0..low.len() {
                assert_eq!(result[i], low[i].max(rest[i]).min(high), "{t}: {} in {}..{high}", rest[i], low[i]);
            }
        }
        // Bounds that are scalars.
        let (low, high) = (few[few.len() / 3], few[few.len() - 1]);
        let scalar = |x| array(t, &[x]).reshaped(&[]).unwrap();
        let whole = array(t, &values);
        let result = elements(&evaluate(Op::Clamp, &[scalar(low), whole.clone(), scalar(high)], t, whole.dims()));
        for (&x, r) in values.iter().zip(result) {
            assert_eq!(r, x.max(low).min(high), "{t}: {x} in {low}..{high}");
        }
    }
}

#[test]
fn truth_values() {
    let (a, b) = (list(Pred, &[0u8, 0, 1, 1]), list(Pred, &[0u8, 1, 0, 1]));
    let check = |op, expected: [u8; 4]| assert_eq!(binary(op, &a, &b, Pred).bytes(), expected, "{op:?}");
    check(BinaryOp::And, [0, 0, 0, 1]);
    check(BinaryOp::Or, [0, 1, 1, 1]);
    check(BinaryOp::Xor, [0, 1, 1, 0]);
    check(BinaryOp::Add, [0, 1, 1, 1]);
    check(BinaryOp::Multiply, [0, 0, 0, 1]);
    check(BinaryOp::Maximum, [0, 1, 1, 1]);
    check(BinaryOp::Minimum, [0, 0, 0, 1]);
    assert_eq!(unary(UnaryOp::Not, &a, Pred).bytes(), [1, 1, 0, 0]);
    let less = Op::Compare { direction: ComparisonDirection::Lt, kind: None };
    assert_eq!(evaluate(less, &[a, b], Pred, &[4]).bytes(), [0, 1, 0, 0]);
}

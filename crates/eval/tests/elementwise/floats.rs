//! Real functions: tables of known values and of special ones, small types by searching all their values.

use super::*;
use hloom_eval::ops::elementwise::convert;
use hloom_ir::attributes::{ComparisonDirection, ComparisonType};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

const FLOATS: [ElementType; 15] = [
    F16,
    Bf16,
    F32,
    F64,
    F8e5m2,
    F8e4m3,
    F8e4m3fn,
    F8e4m3b11fnuz,
    F8e3m4,
    F8e5m2fnuz,
    F8e4m3fnuz,
    F8e8m0fnu,
    F4e2m1fn,
    F6e3m2fn,
    F6e2m3fn,
];

fn floats(t: ElementType, values: &[f64]) -> Array {
    convert(list(F64, values), t).unwrap()
}

fn values(a: &Array) -> Vec<f64> {
    convert(a.clone(), F64).unwrap().elements::<f64>().to_vec()
}

/// All values of a type of at most eight bits.
fn all_values(t: ElementType) -> Array {
    let codes: Vec<u8> = (0..=(u8::MAX >> (8 - t.bits()))).collect();
    list(t, &codes)
}

#[test]
#[allow(clippy::approx_constant, clippy::excessive_precision, reason = "the table is to be independent")]
fn known_values() {
    let table: [(UnaryOp, f64, f64); 27] = [
        (UnaryOp::Exponential, 1.0, 2.718281828459045),
        (UnaryOp::Exponential, -5.0, 0.006737946999085467),
        (UnaryOp::ExponentialMinusOne, 1e-5, 1.0000050000166668e-5),
        (UnaryOp::ExponentialMinusOne, 1.0, 1.718281828459045),
        (UnaryOp::Log, 2.0, 0.6931471805599453),
        (UnaryOp::LogPlusOne, 1e-5, 9.999950000333331e-6),
        (UnaryOp::LogPlusOne, 1.0, 0.6931471805599453),
        (UnaryOp::Logistic, 1.0, 0.7310585786300049),
        (UnaryOp::Logistic, -5.0, 0.0066928509242848554),
        (UnaryOp::Erf, 1.0, 0.8427007929497149),
        (UnaryOp::Erf, -0.125, -0.1403162048013338),
        (UnaryOp::Sine, 1.0, 0.8414709848078965),
        (UnaryOp::Cosine, 1.0, 0.5403023058681398),
        (UnaryOp::Tan, 1.0, 1.5574077246549023),
        (UnaryOp::Asin, 0.5, 0.5235987755982989),
        (UnaryOp::Acos, 0.5, 1.0471975511965979),
        (UnaryOp::Sinh, 1.0, 1.1752011936438014),
        (UnaryOp::Cosh, 1.0, 1.5430806348152437),
        (UnaryOp::Tanh, 1.0, 0.7615941559557649),
        (UnaryOp::Asinh, 1.0, 0.881373587019543),
        (UnaryOp::Asinh, -1e-3, -0.0009999998333334083),
        (UnaryOp::Acosh, 2.0, 1.3169578969248166),
        (UnaryOp::Atanh, 0.5, 0.5493061443340548),
        (UnaryOp::Cbrt, -27.0, -3.0),
        (UnaryOp::Sqrt, 2.0, 1.4142135623730951),
        (UnaryOp::Rsqrt, 2.0, 0.7071067811865475),
        (UnaryOp::Abs, -2.5, 2.5),
    ];
    // Relative error that the last bit of each type may make.
    for (t, precision) in [(F64, 4e-16), (F32, 1.2e-7), (F16, 1e-3), (Bf16, 8e-3)] {
        for (op, x, expected) in table {
            let rounded = values(&floats(t, &[x]))[0];
            if rounded != x {
                continue;
            }
            let r = values(&unary(op, &floats(t, &[x]), t))[0];
            assert!(((r - expected) / expected).abs() <= precision, "{op:?} {t} of {x} is {r}, not {expected}");
        }
    }
}

#[test]
fn special_values() {
    use UnaryOp::*;
    // Each row: the operation, and argument and result in turn.
    let table: [(UnaryOp, &[(f64, f64)]); 30] = [
        (Abs, &[(-0.0, 0.0), (-INF, INF)]),
        (Negate, &[(0.0, -0.0), (INF, -INF)]),
        (Sign, &[(0.0, 0.0), (-0.0, -0.0), (-3.0, -1.0), (INF, 1.0), (-INF, -1.0)]),
        (Floor, &[(-0.5, -1.0), (0.5, 0.0), (-0.0, -0.0), (INF, INF)]),
        (Ceil, &[(-0.5, -0.0), (0.5, 1.0), (-INF, -INF)]),
        (RoundNearestAfz, &[(0.5, 1.0), (-0.5, -1.0), (2.5, 3.0), (-2.5, -3.0), (1.25, 1.0), (-0.25, -0.0)]),
        (RoundNearestEven, &[(0.5, 0.0), (-0.5, -0.0), (1.5, 2.0), (2.5, 2.0), (-3.5, -4.0), (1.25, 1.0)]),
        (Sqrt, &[(4.0, 2.0), (-0.0, -0.0), (-1.0, NAN), (INF, INF), (-INF, NAN)]),
        (Rsqrt, &[(4.0, 0.5), (0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN)]),
        (Cbrt, &[(8.0, 2.0), (-0.0, -0.0), (-INF, -INF)]),
        (Exponential, &[(0.0, 1.0), (INF, INF), (-INF, 0.0), (1000.0, INF)]),
        (ExponentialMinusOne, &[(-0.0, -0.0), (INF, INF), (-INF, -1.0)]),
        (Log, &[(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, INF)]),
        (LogPlusOne, &[(-0.0, -0.0), (-1.0, -INF), (-2.0, NAN), (INF, INF)]),
        (Logistic, &[(0.0, 0.5), (INF, 1.0), (-INF, 0.0)]),
        (Erf, &[(-0.0, -0.0), (INF, 1.0), (-INF, -1.0)]),
        (Sine, &[(-0.0, -0.0), (INF, NAN)]),
        (Cosine, &[(0.0, 1.0), (-INF, NAN)]),
        (Tan, &[(-0.0, -0.0), (INF, NAN)]),
        (Asin, &[(-0.0, -0.0), (1.5, NAN)]),
        (Acos, &[(1.0, 0.0), (-1.5, NAN)]),
        (Sinh, &[(-0.0, -0.0), (INF, INF), (-INF, -INF)]),
        (Cosh, &[(0.0, 1.0), (-INF, INF)]),
        (Tanh, &[(-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (-100.0, -1.0)]),
        (Asinh, &[(-0.0, -0.0), (INF, INF), (-INF, -INF)]),
        (Acosh, &[(1.0, 0.0), (0.5, NAN), (-8192.0, NAN), (-INF, NAN), (INF, INF)]),
        (Atanh, &[(-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN)]),
        (Real, &[(-2.0, -2.0), (-0.0, -0.0)]),
        (Imag, &[(-2.0, 0.0), (INF, 0.0)]),
        (Not, &[]),
    ];
    for t in [F16, Bf16, F32, F64] {
        for (op, rows) in table {
            let (x, expected): (Vec<f64>, Vec<f64>) = rows.iter().copied().unzip();
            if x.is_empty() {
                assert!(try_evaluate(Op::unary(op), &[floats(t, &[1.0])], t, &[1]).is_err(), "{op:?} {t}");
                continue;
            }
            let result = values(&unary(op, &floats(t, &x), t));
            for i in 0..x.len() {
                assert!(same(result[i], expected[i]), "{op:?} {t} of {:?} is {:?}", x[i], result[i]);
            }
            if op != Imag {
                let nans = values(&unary(op, &floats(t, &[NAN, -NAN]), t));
                assert!(nans.iter().all(|r| r.is_nan()), "{op:?} {t} of NaN is {nans:?}");
            }
        }
        let a = floats(t, &[0.0, -1.5, INF, -INF, NAN]);
        assert_eq!(unary(IsFinite, &a, Pred).bytes(), [1, 1, 0, 0, 0], "{t}");
    }
}

#[test]
fn special_pairs() {
    use BinaryOp::*;
    let table: [(BinaryOp, f64, f64, f64); 34] = [
        (Add, INF, -INF, NAN),
        (Subtract, 0.0, 0.0, 0.0),
        (Add, -0.0, -0.0, -0.0),
        (Multiply, 0.0, INF, NAN),
        (Multiply, -0.0, 3.0, -0.0),
        (Divide, 1.0, -0.0, -INF),
        (Divide, 0.0, 0.0, NAN),
        (Remainder, 7.5, 2.0, 1.5),
        (Remainder, -7.5, 2.0, -1.5),
        (Remainder, -4.0, 2.0, -0.0),
        (Remainder, 1.0, 0.0, NAN),
        (Remainder, 1.0, INF, 1.0),
        (Maximum, NAN, 1.0, NAN),
        (Maximum, 1.0, NAN, NAN),
        (Maximum, -0.0, 0.0, 0.0),
        (Maximum, 0.0, -0.0, 0.0),
        (Maximum, -2.0, -3.0, -2.0),
        (Maximum, -INF, 3.0, 3.0),
        (Minimum, NAN, -INF, NAN),
        (Minimum, -INF, NAN, NAN),
        (Minimum, -0.0, 0.0, -0.0),
        (Minimum, 0.0, -0.0, -0.0),
        (Minimum, -2.0, -3.0, -3.0),
        (Power, 2.0, -2.0, 0.25),
        (Power, -2.0, 3.0, -8.0),
        (Power, -2.0, 0.5, NAN),
        (Power, 1.0, NAN, 1.0),
        (Power, NAN, 0.0, 1.0),
        (Power, NAN, 1.0, NAN),
        (Power, 0.0, -1.0, INF),
        (Power, -0.0, -1.0, -INF),
        (Atan2, 0.0, 1.0, 0.0),
        (Atan2, -0.0, 1.0, -0.0),
        (Atan2, NAN, 1.0, NAN),
    ];
    for t in [F16, Bf16, F32, F64] {
        for (op, x, y, expected) in table {
            let r = values(&binary(op, &floats(t, &[x]), &floats(t, &[y]), t))[0];
            assert!(same(r, expected), "{op:?} {t} of {x:?} and {y:?} is {r:?}");
        }
        for (y, x, quarter_turns) in [(1.0, 1.0, 0.5), (1.0, -1.0, 1.5), (-1.0, 0.0, -1.0), (-0.0, -1.0, -2.0)] {
            let r = values(&binary(Atan2, &floats(t, &[y]), &floats(t, &[x]), t))[0];
            let expected = quarter_turns * std::f64::consts::FRAC_PI_2;
            assert!((r - expected).abs() < 1e-2, "atan2 {t} of {y:?} and {x:?} is {r:?}");
        }
    }
}

/// f32 arithmetic is that of f32: one rounding, no more bits in between.
#[test]
fn f32_rounds_once() {
    let x: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.731).sin() * 10f32.powi(i % 30 - 15)).collect();
    let y: Vec<f32> = x.iter().rev().copied().collect();
    let (a, b) = (list(F32, &x), list(F32, &y));
    let check = |op, f: &dyn Fn(f32, f32) -> f32| {
        for (i, &r) in binary(op, &a, &b, F32).elements::<f32>().iter().enumerate() {
            assert_eq!(r, f(x[i], y[i]), "{op:?} of {} and {}", x[i], y[i]);
        }
    };
    check(BinaryOp::Add, &|x, y| x + y);
    check(BinaryOp::Subtract, &|x, y| x - y);
    check(BinaryOp::Multiply, &|x, y| x * y);
    check(BinaryOp::Divide, &|x, y| x / y);
}

/// Sums and products of eight-bit floats are the nearest values of the type to the exact ones.
#[test]
fn small_types_round_to_nearest() {
    for t in [F8e4m3fn, F8e5m2, F8e4m3b11fnuz, F8e3m4, F6e3m2fn, F4e2m1fn] {
        let all = all_values(t);
        let decoded = values(&all);
        let mut finite: Vec<f64> = decoded.iter().copied().filter(|v| v.is_finite()).collect();
        finite.sort_by(f64::total_cmp);
        let step = decoded.len().div_ceil(64);
        let codes: Vec<usize> = (0..decoded.len()).step_by(step).collect();
        let (i, j) = pairs(&codes);
        let pick = |indices: &[usize]| list(t, &indices.iter().map(|&i| i as u8).collect::<Vec<_>>());
        for (op, f) in [(BinaryOp::Add, (|x, y| x + y) as fn(f64, f64) -> f64), (BinaryOp::Multiply, |x, y| x * y)] {
            let result = values(&binary(op, &pick(&i), &pick(&j), t));
            for (k, &r) in result.iter().enumerate() {
                let exact = f(decoded[i[k]], decoded[j[k]]);
                let max = finite[finite.len() - 1];
                if exact.is_nan() || exact.abs() > max {
                    // Beyond the greatest value, rounding may still come back to it; the types differ in what else happens.
                    assert!(!r.is_finite() || r.abs() == max, "{op:?} {t}: {exact} became {r}");
                    continue;
                }
                let nearest = finite.iter().map(|v| (v - exact).abs()).fold(INF, f64::min);
                assert_eq!((r - exact).abs(), nearest, "{op:?} {t} of {} and {} is {r}", decoded[i[k]], decoded[j[k]]);
            }
        }
    }
}

#[test]
fn comparisons() {
    use ComparisonDirection::*;
    for t in FLOATS {
        let all = if t.bits() <= 8 {
            all_values(t)
        } else {
            floats(t, &[-NAN, -INF, -2.0, -1.0, -1e-3, -0.0, 0.0, 1e-3, 1.0, 2.0, INF, NAN])
        };
        let decoded = values(&all);
        let indices: Vec<usize> = (0..decoded.len()).step_by(decoded.len().div_ceil(70)).collect();
        let (i, j) = pairs(&indices);
        let width = t.bytes();
        let pick = |indices: &[usize]| {
            let bytes: Vec<u8> =
                indices.iter().flat_map(|&i| all.bytes()[i * width..(i + 1) * width].to_vec()).collect();
            Array::from_bytes(t, &[indices.len() as i64], &bytes).unwrap()
        };
        let (a, b) = (pick(&i), pick(&j));
        for direction in [Eq, Ne, Ge, Gt, Le, Lt] {
            for kind in [ComparisonType::Float, ComparisonType::TotalOrder] {
                let op = Op::Compare { direction, kind: Some(kind) };
                let result = evaluate(op, &[a.clone(), b.clone()], Pred, a.dims());
                for (k, &r) in result.bytes().iter().enumerate() {
                    let (x, y) = (decoded[i[k]], decoded[j[k]]);
                    let order = match kind {
                        ComparisonType::TotalOrder => Some(x.total_cmp(&y)),
                        _ => x.partial_cmp(&y),
                    };
                    let holds = match direction {
                        Eq => order.is_some_and(|o| o.is_eq()),
                        Ne => order.is_none_or(|o| o.is_ne()),
                        Ge => order.is_some_and(|o| o.is_ge()),
                        Gt => order.is_some_and(|o| o.is_gt()),
                        Le => order.is_some_and(|o| o.is_le()),
                        Lt => order.is_some_and(|o| o.is_lt()),
                    };
                    assert_eq!(r, u8::from(holds), "{t} {kind:?}: {x:?} {direction:?} {y:?}");
                }
            }
        }
    }
}

#[test]
fn clamps() {
    let rows: [(f64, f64, f64, f64); 9] = [
        (0.0, -1.0, 2.0, 0.0),
        (0.0, 1.0, 2.0, 1.0),
        (0.0, 3.0, 2.0, 2.0),
        (2.0, 1.0, 0.0, 0.0),
        (0.0, NAN, 1.0, NAN),
        (NAN, 0.5, 1.0, NAN),
        (0.0, 0.5, NAN, NAN),
        (0.0, -0.0, 1.0, 0.0),
        (-INF, -1.5, INF, -1.5),
    ];
    for t in [F16, Bf16, F32, F64] {
        for (low, x, high, expected) in rows {
            let [low, x, high] = [low, x, high].map(|v| floats(t, &[v]));
            let r = values(&evaluate(Op::Clamp, &[low.clone(), x.clone(), high.clone()], t, &[1]))[0];
            assert!(same(r, expected), "{t}: {:?} in {:?}..{:?} is {r:?}", values(&x), values(&low), values(&high));
            let bounds = [low.reshaped(&[]).unwrap(), x, high.reshaped(&[]).unwrap()];
            let r = values(&evaluate(Op::Clamp, &bounds, t, &[1]))[0];
            assert!(same(r, expected), "{t}, bounds as scalars: {r:?}");
        }
    }
}

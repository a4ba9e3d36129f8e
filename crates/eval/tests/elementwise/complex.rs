//! Complex functions: identities between them over the plane, and tables of special values.

use super::*;
use num_complex::Complex;

type C = Complex<f64>;
const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn c(re: f64, im: f64) -> C {
    C { re, im }
}

/// Points in all quadrants, of magnitudes that no function below overflows for.
fn points() -> Vec<C> {
    let parts = [-3.0, -1.25, -0.5, -1e-3, 1e-3, 0.4, 1.0, 2.5];
    parts.iter().flat_map(|&re| parts.iter().map(move |&im| c(re, im))).collect()
}

fn array(t: ElementType, z: &[C]) -> Array {
    match t {
        C64 => list(t, &z.iter().map(|z| Complex { re: z.re as f32, im: z.im as f32 }).collect::<Vec<_>>()),
        _ => list(t, z),
    }
}

fn values(a: &Array) -> Vec<C> {
    match a.element_type() {
        C64 => a.elements::<Complex<f32>>().iter().map(|z| c(z.re.into(), z.im.into())).collect(),
        _ => a.elements::<C>().to_vec(),
    }
}

fn close(t: ElementType, a: &[C], b: &[C], what: &str) {
    // Going there and back makes an error of an ulp or two of 1, even where the values are small.
    let (tolerance, least) = if t == C64 { (3e-6, 1.0) } else { (1e-12, 1e-2) };
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        let error = (x - y).norm() / y.norm().max(least);
        assert!(error < tolerance, "{what} {t}, element {i}: {x} is not {y}");
    }
}

#[test]
fn inverse_functions() {
    use UnaryOp::*;
    for t in [C64, C128] {
        let a = array(t, &points());
        for (outer, inner) in [
            (Exponential, Log),
            (ExponentialMinusOne, LogPlusOne),
            (Sine, Asin),
            (Cosine, Acos),
            (Sinh, Asinh),
            (Cosh, Acosh),
            (Tanh, Atanh),
        ] {
            let round_trip = unary(outer, &unary(inner, &a, t), t);
            close(t, &values(&round_trip), &values(&a), &format!("{outer:?} of {inner:?}"));
        }
        let root = unary(Sqrt, &a, t);
        assert!(values(&root).iter().all(|z| z.re >= 0.0), "the root is in the right half plane");
        close(t, &values(&binary(BinaryOp::Multiply, &root, &root, t)), &values(&a), "the square of sqrt");
        let one = array(t, &vec![c(1.0, 0.0); points().len()]);
        let inverse = binary(BinaryOp::Divide, &one, &root, t);
        close(t, &values(&unary(Rsqrt, &a, t)), &values(&inverse), "rsqrt");
        // The principal branches.
        assert!(values(&unary(Asin, &a, t)).iter().all(|z| z.re.abs() <= std::f64::consts::FRAC_PI_2 + 1e-7));
        assert!(values(&unary(Acosh, &a, t)).iter().all(|z| z.re >= 0.0));
        assert!(values(&unary(Atanh, &a, t)).iter().all(|z| z.im.abs() <= std::f64::consts::FRAC_PI_2 + 1e-7));
    }
}

#[test]
fn arithmetic() {
    use BinaryOp::*;
    for t in [C64, C128] {
        let (x, y) = pairs(&points());
        let (a, b) = (array(t, &x), array(t, &y));
        let (x, y) = (values(&a), values(&b));
        let each = |f: &dyn Fn(C, C) -> C| x.iter().zip(&y).map(|(&x, &y)| f(x, y)).collect::<Vec<_>>();
        close(t, &values(&binary(Add, &a, &b, t)), &each(&|x, y| c(x.re + y.re, x.im + y.im)), "add");
        close(t, &values(&binary(Subtract, &a, &b, t)), &each(&|x, y| c(x.re - y.re, x.im - y.im)), "subtract");
        let product = each(&|x, y| c(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re));
        close(t, &values(&binary(Multiply, &a, &b, t)), &product, "multiply");
        let quotient = binary(Divide, &a, &b, t);
        close(t, &values(&binary(Multiply, &quotient, &b, t)), &x, "divide");
        let two = array(t, &vec![c(2.0, 0.0); x.len()]);
        close(t, &values(&binary(Power, &a, &two, t)), &values(&binary(Multiply, &a, &a, t)), "square");
        let e = array(t, &vec![c(std::f64::consts::E, 0.0); x.len()]);
        close(t, &values(&binary(Power, &e, &a, t)), &values(&unary(UnaryOp::Exponential, &a, t)), "power of e");
        let equal = Op::Compare { direction: hloom_ir::attributes::ComparisonDirection::Eq, kind: None };
        let equal = evaluate(equal, &[a.clone(), b.clone()], Pred, a.dims());
        for (i, &r) in equal.bytes().iter().enumerate() {
            assert_eq!(r == 1, x[i].re == y[i].re && x[i].im == y[i].im, "{} == {}", x[i], y[i]);
        }
        // tan of the angle is y/x; in c64 too much of the angle is rounded away to ask that.
        // Where x² + y² is 0 there is no angle, and where x is near 0 a tangent has no more than a few good digits.
        let has_angle = |y: &C, x: &C| (x * x + y * y).norm() > 1e-9 && x.norm() > 0.1;
        let (x, y): (Vec<C>, Vec<C>) = x.iter().zip(&y).filter(|(x, y)| has_angle(x, y)).unzip();
        let (a, b) = (array(t, &x), array(t, &y));
        let angle = binary(Atan2, &a, &b, t);
        if t == C128 {
            let tangent = unary(UnaryOp::Tan, &angle, t);
            close(t, &values(&binary(Multiply, &tangent, &b, t)), &x, "tan of atan2");
        } else {
            let wide = binary(Atan2, &array(C128, &x), &array(C128, &y), C128);
            close(t, &values(&angle), &values(&wide), "atan2");
        }
    }
}

#[test]
fn parts() {
    for (t, part) in [(C64, F32), (C128, F64)] {
        let z = [c(3.0, -4.0), c(-0.0, 0.5), c(-INF, 1.0), c(NAN, INF)];
        let a = array(t, &z);
        let reals = |op| {
            let r = hloom_eval::ops::elementwise::convert(unary(op, &a, part), F64).unwrap();
            r.elements::<f64>().to_vec()
        };
        let all_same = |a: &[f64], b: [f64; 4]| a.iter().zip(b).all(|(&x, y)| same(x, y));
        assert!(all_same(&reals(UnaryOp::Real), [3.0, -0.0, -INF, NAN]));
        assert!(all_same(&reals(UnaryOp::Imag), [-4.0, 0.5, 1.0, INF]));
        assert!(all_same(&reals(UnaryOp::Abs), [5.0, 0.5, INF, NAN]));
        let again = binary(BinaryOp::Complex, &unary(UnaryOp::Real, &a, part), &unary(UnaryOp::Imag, &a, part), t);
        assert_eq!(again.bytes(), a.bytes());
        let sign = values(&unary(UnaryOp::Sign, &array(t, &[c(3.0, -4.0), c(0.0, 0.0)]), t));
        close(t, &sign, &[c(0.6, -0.8), c(0.0, 0.0)], "sign");
        let negated = values(&unary(UnaryOp::Negate, &array(t, &[c(3.0, -0.0)]), t))[0];
        assert!(same(negated.re, -3.0) && same(negated.im, 0.0));
    }
}

#[test]
fn special_values() {
    use UnaryOp::*;
    let table = [
        (Exponential, c(INF, 0.0), c(INF, 0.0)),
        (Exponential, c(-INF, 1.0), c(0.0, 0.0)),
        (Exponential, c(0.0, -0.0), c(1.0, 0.0)),
        (Exponential, c(1.0, NAN), c(NAN, NAN)),
        (Log, c(0.0, 0.0), c(-INF, 0.0)),
        (Log, c(-1.0, 0.0), c(0.0, std::f64::consts::PI)),
        (Log, c(NAN, 1.0), c(NAN, NAN)),
        (Sqrt, c(0.0, -0.0), c(0.0, 0.0)),
        (Sqrt, c(-4.0, 0.0), c(0.0, 2.0)),
        (Sqrt, c(-4.0, -0.0), c(0.0, -2.0)),
        (Sqrt, c(INF, 1.0), c(INF, 0.0)),
        (Sqrt, c(-INF, 1.0), c(0.0, INF)),
        (Sqrt, c(1.0, -INF), c(INF, -INF)),
        (Sqrt, c(NAN, 1.0), c(NAN, NAN)),
        (Rsqrt, c(0.0, 0.0), c(INF, NAN)),
        (Rsqrt, c(INF, 1.0), c(0.0, -0.0)),
        (Rsqrt, c(4.0, 0.0), c(0.5, -0.0)),
        (Tanh, c(INF, 1.0), c(1.0, 0.0)),
        (Tanh, c(-INF, NAN), c(-1.0, 0.0)),
        (Tanh, c(1.0, INF), c(NAN, NAN)),
        (Tanh, c(NAN, 0.0), c(NAN, 0.0)),
        (Tanh, c(300.0, 0.0), c(1.0, 0.0)),
        (Cosh, c(0.0, 0.0), c(1.0, 0.0)),
        (Sinh, c(INF, 0.0), c(INF, 0.0)),
    ];
    let as_type = |t, x: f64| if t == C64 { f64::from(x as f32) } else { x };
    for t in [C64, C128] {
        for (op, z, expected) in table {
            let r = values(&unary(op, &array(t, &[z]), t))[0];
            let holds = same(r.re, as_type(t, expected.re)) && same(r.im, as_type(t, expected.im));
            assert!(holds, "{op:?} {t} of {z:?} is {r:?}, not {expected:?}");
        }
        let pairs = [
            (BinaryOp::Divide, c(1.0, 2.0), c(0.0, 0.0), c(INF, INF)),
            (BinaryOp::Divide, c(INF, 1.0), c(2.0, 0.0), c(INF, NAN)),
            (BinaryOp::Divide, c(1.0, 1.0), c(INF, INF), c(0.0, 0.0)),
            (BinaryOp::Power, c(0.0, 0.0), c(2.0, 0.0), c(0.0, 0.0)),
            (BinaryOp::Power, c(0.0, 0.0), c(0.0, 0.0), c(1.0, 0.0)),
            (BinaryOp::Power, c(NAN, 0.0), c(0.0, 0.0), c(1.0, 0.0)),
            (BinaryOp::Power, c(1.0, 0.0), c(NAN, NAN), c(1.0, 0.0)),
            (BinaryOp::Power, c(INF, 0.0), c(-1.0, 0.0), c(0.0, 0.0)),
            (BinaryOp::Power, c(INF, 0.0), c(0.5, 0.0), c(INF, 0.0)),
        ];
        for (op, x, y, expected) in pairs {
            let r = values(&binary(op, &array(t, &[x]), &array(t, &[y]), t))[0];
            assert!(same(r.re, expected.re) && same(r.im, expected.im), "{op:?} {t} of {x:?} and {y:?} is {r:?}");
        }
    }
}

/// Functions near the points where the plain formulas lose everything.
#[test]
fn cancellation() {
    use UnaryOp::*;
    let table = [
        (Log, c(1.0, 1e-10), c(5e-21, 1e-10)),
        (LogPlusOne, c(1e-15, 1e-15), c(1e-15, 1e-15)),
        (ExponentialMinusOne, c(1e-12, 1e-12), c(1e-12, 1e-12)),
        (Sine, c(1e-9, 1e-9), c(1e-9, 1e-9)),
        (Tanh, c(1e-9, 1e-9), c(1e-9, 1e-9)),
        (Asin, c(1e-9, 1e-9), c(1e-9, 1e-9)),
        (Atanh, c(1e-9, 1e-9), c(1e-9, 1e-9)),
        (Sqrt, c(1e300, 1e300), c(1.0986841134678098e150, 4.550898605622274e149)),
        (Sqrt, c(1e-310, 0.0), c(1e-155, 0.0)),
    ];
    for (op, z, expected) in table {
        let r = values(&unary(op, &array(C128, &[z]), C128))[0];
        for (x, y) in [(r.re, expected.re), (r.im, expected.im)] {
            assert!((x - y).abs() <= 1e-8 * y.abs(), "{op:?} of {z} is {r}, not {expected}");
        }
    }
}

//! Comparing programs by what they compute.
//!
//! The evaluator is the oracle. Two programs that should mean the same (a module and the module a pass made of it, a
//! module and its print read back) are compared by [`same_results`]. An engine is compared with the evaluator by running
//! a generated module ([`crate::generate`] with `Options::runnable()`) in both on the same [`inputs`], and handing the
//! results to [`compare`]:
//!
//! ```text
//! let module = generate(&mut choices, &Options::runnable());
//! let inputs = inputs(&module, 1, &mut choices)?;
//! let expected = evaluate(&verified, &inputs)?;
//! compare(&expected, &engine.run(&verified, &inputs)?, Agreement::Within(1e-5))?;
//! ```
//!
//! Everything here returns in words what differs and where, for the message of a failing test.

use crate::choices::Choices;
use crate::generate::literal_of;
use hloom_eval::ops::elementwise::convert;
use hloom_eval::run::{DeviceGrid, Options, run};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::module::Module;
use hloom_ir::verify::VerifiedModule;
use hloom_value::{Array, Value};

/// How near two results must be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Agreement {
    /// Bit by bit, but that any NaN is like any other: for runs of the same operations in the same order.
    Exact,
    /// Floats may differ by this much of the larger of them, or of one if that is more; infinities and NaNs must be in
    /// the same places, and integers must be equal. For engines that add up in another order.
    Within(f64),
    /// Floats may differ by a part of the whole array's size (the norm of the difference by that of the array) that
    /// goes with their type; infinities and NaNs must be in the same places, and integers must be equal. For real
    /// programs with ordinary numbers.
    ByNorm,
}

/// How much of an array's norm the difference may be: three times what different orders of adding up are known to make.
fn part_of_norm(element_type: ElementType) -> f64 {
    3.0 * match element_type {
        ElementType::F64 | ElementType::C128 => 1e-12,
        ElementType::F32 | ElementType::C64 => 1e-5,
        ElementType::F16 => 2e-3,
        ElementType::Bf16 => 1.6e-2,
        _ => 0.13,
    }
}

/// A difference below this is none, whatever the norms are.
const NOTHING: f64 = 1e-6;

/// Random arguments for each of `devices`, different on each.
pub fn inputs(module: &Module, devices: usize, choices: &mut Choices<'_>) -> Result<Vec<Vec<Value>>, String> {
    let parameters = module.entry().map_or_else(Vec::new, |e| module.parameters(e).to_vec());
    let mut device_arguments = || {
        let literals = parameters.iter().map(|&p| literal_of(choices, &module[p].shape));
        let values = literals.map(|l| Value::from_literal(&l).map_err(|f| f.diagnostic().message.clone()));
        values.collect::<Result<Vec<_>, _>>()
    };
    (0..devices).map(|_| device_arguments()).collect()
}

/// The results of each device, by the evaluator. As many devices as inputs; the partitions are the header's.
pub fn evaluate(module: &VerifiedModule, inputs: &[Vec<Value>]) -> Result<Vec<Value>, Diagnostic> {
    let partitions = usize::try_from(module.module().config.num_partitions).unwrap_or(1).max(1);
    let grid = DeviceGrid { replicas: inputs.len() / partitions, partitions };
    // Generated loops are short: a program that goes on for so long is itself the failure.
    let options = Options { max_steps: Some(10_000_000), ..Options::default() };
    run(module, grid, inputs.to_vec(), &options).map_err(|f| f.into_diagnostic())
}

/// Checks that two programs give the same, bit by bit, on the same inputs; or fail with the same code.
pub fn same_results(a: &VerifiedModule, b: &VerifiedModule, inputs: &[Vec<Value>]) -> Result<(), String> {
    match (evaluate(a, inputs), evaluate(b, inputs)) {
        (Ok(a), Ok(b)) => compare(&a, &b, Agreement::Exact),
        (Err(a), Err(b)) if a.code == b.code => Ok(()),
        (Err(a), Err(b)) => Err(format!("the one fails with {a}, the other with {b}")),
        (Err(e), Ok(_)) => Err(format!("only the first fails: {e}")),
        (Ok(_), Err(e)) => Err(format!("only the second fails: {e}")),
    }
}

/// Checks that the results of two runs agree, device by device and leaf by leaf.
pub fn compare(a: &[Value], b: &[Value], agreement: Agreement) -> Result<(), String> {
    if a.len() != b.len() {
        return Err(format!("results of {} devices and of {}", a.len(), b.len()));
    }
    for (device, (a, b)) in a.iter().zip(b).enumerate() {
        let (a, b) = (a.leaves(), b.leaves());
        if a.len() != b.len() {
            return Err(format!("device {device} has {} results and {}", a.len(), b.len()));
        }
        for (n, (a, b)) in a.iter().zip(b).enumerate() {
            let differ = |what: String| format!("result {n} of device {device} differs: {what}");
            match (a, b) {
                (Value::Array(a), Value::Array(b)) => compare_arrays(a, b, agreement).map_err(differ)?,
                (Value::Array(_), _) | (_, Value::Array(_)) => return Err(differ("only one is an array".into())),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Checks that two arrays agree.
pub fn compare_arrays(a: &Array, b: &Array, agreement: Agreement) -> Result<(), String> {
    if a.element_type() != b.element_type() || a.dims() != b.dims() {
        return Err(format!("{} and {}", a.shape(), b.shape()));
    }
    if a.bytes() == b.bytes() {
        return Ok(());
    }
    let t = a.element_type();
    if !t.is_float() && !t.is_complex() {
        let width = t.bytes();
        let mut pairs = a.bytes().chunks_exact(width).zip(b.bytes().chunks_exact(width));
        let at = pairs.position(|(x, y)| x != y).unwrap_or(0);
        let show = |array: &Array| array.integer_at(at).map_or("?".to_owned(), |n| n.to_string());
        return Err(format!("element {at} of {} is {} and {}", a.shape(), show(a), show(b)));
    }
    // Real and imaginary parts one after another; the conversion is exact.
    let wide = |array: &Array| {
        let wide = convert(array.clone(), ElementType::C128).map_err(|f| f.diagnostic().message.clone())?;
        Ok::<_, String>(wide.bytes().as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect::<Vec<_>>())
    };
    let near = |x: f64, y: f64| match agreement {
        _ if x.is_nan() || y.is_nan() => x.is_nan() && y.is_nan(),
        Agreement::Exact => x.to_bits() == y.to_bits(),
        _ if x == y || x.is_infinite() || y.is_infinite() => x == y,
        Agreement::ByNorm => true,
        Agreement::Within(tolerance) => (x - y).abs() <= tolerance * x.abs().max(y.abs()).max(1.0),
    };
    let (x, y) = (wide(a)?, wide(b)?);
    match x.iter().zip(&y).position(|(&x, &y)| !near(x, y)) {
        Some(n) => Err(format!("element {} of {} is {:e} and {:e}", n / 2, a.shape(), x[n], y[n])),
        None if agreement == Agreement::ByNorm => by_norm(&x, &y, t),
        None => Ok(()),
    }
}

/// Checks that the difference of two arrays, of which all but the finite elements agree, is small beside them.
fn by_norm(x: &[f64], y: &[f64], element_type: ElementType) -> Result<(), String> {
    let finite = || x.iter().zip(y).filter(|(x, y)| x.is_finite() && y.is_finite());
    let largest = finite().map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    if largest < NOTHING {
        return Ok(());
    }
    // Divided by the largest, so that squares do not overflow.
    let scale = finite().map(|(x, y)| x.abs().max(y.abs())).fold(f64::MIN_POSITIVE, f64::max);
    let square = |z: f64| (z / scale) * (z / scale);
    let norm: f64 = finite().map(|(x, _)| square(*x)).sum::<f64>().sqrt();
    let part = finite().map(|(x, y)| square(x - y)).sum::<f64>().sqrt() / norm.max(f64::MIN_POSITIVE);
    match part <= part_of_norm(element_type) {
        true => Ok(()),
        false => Err(format!("the difference is {part:.1e} of the norm, {largest:e} at most")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(elements: &[f32]) -> Array {
        Array::new(&[elements.len() as i64], elements).expect("a list has as many elements as it has")
    }

    #[test]
    fn bits_count_but_for_nan() {
        let other_nan = f32::from_bits(0x7fc0_0001);
        assert_eq!(compare_arrays(&floats(&[1.0, f32::NAN]), &floats(&[1.0, other_nan]), Agreement::Exact), Ok(()));
        for (x, y) in [(0.0, -0.0), (1.0, 1.0 + f32::EPSILON), (f32::NAN, 1.0), (1.0, f32::NAN)] {
            assert!(compare_arrays(&floats(&[x]), &floats(&[y]), Agreement::Exact).is_err(), "{x} and {y}");
        }
    }

    #[test]
    fn nearness_is_relative_and_knows_infinities() {
        let within = |x: f32, y: f32| compare_arrays(&floats(&[x]), &floats(&[y]), Agreement::Within(1e-3)).is_ok();
        assert!(within(1000.0, 1000.5) && within(0.0, 1e-4) && within(f32::INFINITY, f32::INFINITY));
        assert!(!within(1000.0, 1002.0) && !within(0.0, 1e-2));
        assert!(!within(f32::INFINITY, f32::MAX) && !within(f32::INFINITY, f32::NEG_INFINITY));
    }

    #[test]
    fn norms_are_of_whole_arrays_and_know_infinities() {
        let agree = |x: &[f32], y: &[f32]| compare_arrays(&floats(x), &floats(y), Agreement::ByNorm).is_ok();
        assert!(
            agree(&[1e5, 1.0], &[1e5, 1.1]) && agree(&[1e-9], &[2e-9]) && agree(&[f32::NAN, 1.0], &[f32::NAN, 1.0])
        );
        assert!(!agree(&[1.0, 1.0], &[1.0, 1.1]) && !agree(&[1e30, 0.0], &[1e30, 1e29]));
        assert!(!agree(&[f32::INFINITY, 1e9], &[1.0, 1e9]) && !agree(&[f32::NAN, 1e9], &[0.0, 1e9]));
    }

    #[test]
    fn shapes_and_integers_must_be_equal() {
        let int = |n: i32| Array::new(&[1], &[n]).expect("one element");
        assert!(compare_arrays(&int(1), &int(2), Agreement::Within(10.0)).is_err());
        assert!(compare_arrays(&int(1), &floats(&[1.0]), Agreement::Within(10.0)).is_err());
        assert!(compare_arrays(&floats(&[1.0]), &floats(&[1.0, 1.0]), Agreement::Within(10.0)).is_err());
    }
}

//! Running programs that check themselves, and comparing what they computed with what they expect.

use hloom_analysis::devices::DeviceGrid;
use hloom_ir::diagnostic::{Blame, Diagnostic, codes::mlir as codes};
use hloom_ir::element_type::ElementType;
use hloom_ir::module::Module;
use hloom_ir::verify::{self, VerifiedModule, VerifyOptions};
use hloom_stablehlo::Translation;
use hloom_stablehlo::check::{Exactness, Expectation, Expected, Parallel, Step, Test};
use hloom_stablehlo::mlir::ValueId;
use hloom_value::{Array, Value};
use std::collections::HashMap;

/// Runs a program on a grid of devices: the arguments of each device, what is fed to infeed, and the results.
pub type Engine<'e> =
    dyn Fn(&VerifiedModule, DeviceGrid, Vec<Vec<Value>>, Vec<Value>) -> Result<Vec<Value>, Diagnostic> + 'e;

/// Why a test failed: what there is to say, and the program that it speaks of, if it speaks of one.
#[derive(Debug)]
pub struct Failure {
    /// What is wrong.
    pub diagnostics: Vec<Diagnostic>,
    /// The program that was run, with the places of its instructions.
    pub program: Option<Box<Translation>>,
}

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Failure {
        Failure { diagnostics: vec![diagnostic], program: None }
    }
}

/// Runs a test: how many expectations hold, or why not all do.
pub fn run_test(test: Test, engine: &Engine<'_>) -> Result<usize, Box<Failure>> {
    let mut values: HashMap<ValueId, Value> = HashMap::new();
    let mut held = 0;
    let mut broken = Vec::new();
    for step in test.steps {
        match step {
            Step::Run(run) => {
                let inputs = vec![take(&values, &run.inputs)?];
                let grid = DeviceGrid { replicas: 1, partitions: 1 };
                let results = execute(run.program, grid, inputs, Vec::new(), engine)?;
                keep(&mut values, &run.outputs, results.into_iter().next());
            }
            Step::Parallel(parallel) => side_by_side(parallel, &mut values, engine)?,
            Step::Expect(expectation) => match compare(&expectation, &values) {
                None => held += 1,
                Some(diagnostic) => broken.push(diagnostic),
            },
        }
    }
    if broken.is_empty() { Ok(held) } else { Err(Box::new(Failure { diagnostics: broken, program: None })) }
}

fn take(values: &HashMap<ValueId, Value>, wanted: &[ValueId]) -> Result<Vec<Value>, Box<Failure>> {
    let missing = || Diagnostic::error(&codes::UNDEFINED_VALUE, "a value is used before it is computed");
    let found = wanted.iter().map(|v| values.get(v).cloned().ok_or_else(|| Box::new(missing().into())));
    found.collect()
}

fn keep(values: &mut HashMap<ValueId, Value>, names: &[ValueId], result: Option<Value>) {
    match (names, result) {
        ([one], Some(value)) => {
            values.insert(*one, value);
        }
        (names, Some(Value::Tuple(parts))) => values.extend(names.iter().copied().zip(parts)),
        _ => {}
    }
}

fn side_by_side(
    parallel: Parallel,
    values: &mut HashMap<ValueId, Value>,
    engine: &Engine<'_>,
) -> Result<(), Box<Failure>> {
    let one = DeviceGrid { replicas: 1, partitions: 1 };
    let mut infeed = Vec::new();
    for program in parallel.infeed {
        let result = execute(program, one, vec![Vec::new()], Vec::new(), engine)?.into_iter().next();
        // What infeed takes is a tuple, also of one; it adds a token itself.
        infeed.extend(result.map(|value| match value {
            Value::Tuple(parts) => Value::Tuple(parts.into_iter().filter(|p| !matches!(p, Value::Token)).collect()),
            other => Value::Tuple(vec![other]),
        }));
    }
    let count = |n: i64| usize::try_from(n).unwrap_or(1).max(1);
    let config = &parallel.program.module.config;
    let grid = DeviceGrid { replicas: count(config.replica_count), partitions: count(config.num_partitions) };
    let inputs = parallel.inputs.iter().map(|i| take(values, i)).collect::<Result<_, _>>()?;
    let results = execute(parallel.program, grid, inputs, infeed, engine)?;
    for (device, (result, outputs)) in results.into_iter().zip(&parallel.outputs).enumerate() {
        let own = match result {
            Value::Tuple(mut parts) if parallel.indexed && device < parts.len() => parts.swap_remove(device),
            other => other,
        };
        keep(values, outputs, Some(own));
    }
    Ok(())
}

fn execute(
    program: Translation,
    grid: DeviceGrid,
    inputs: Vec<Vec<Value>>,
    infeed: Vec<Value>,
    engine: &Engine<'_>,
) -> Result<Vec<Value>, Box<Failure>> {
    let Translation { module, spans } = program;
    let failure = |diagnostics: Vec<Diagnostic>, module: Module| {
        Box::new(Failure { diagnostics, program: Some(Box::new(Translation { module, spans: spans.clone() })) })
    };
    let verified = match verify::verify(module, &VerifyOptions { devices: Some(grid.devices() as i64) }) {
        Ok(verified) => verified,
        Err(invalid) => return Err(failure(invalid.diagnostics, *invalid.module)),
    };
    engine(&verified, grid, inputs, infeed).map_err(|d| failure(vec![d], verified.module().clone()))
}

/// What is wrong with a value, if anything.
fn compare(expectation: &Expectation, values: &HashMap<ValueId, Value>) -> Option<Diagnostic> {
    let broken = |message: String| {
        Some(
            Diagnostic::error(&codes::EXPECTATION, format!("{}: {message}", expectation.name))
                .blame(Blame::Program)
                .at(expectation.span),
        )
    };
    let array = |id: &ValueId| values.get(id).and_then(|v| v.as_array().ok()).cloned();
    let Some(actual) = array(&expectation.actual) else { return broken("the value was not computed".to_owned()) };
    let expected = match &expectation.expected {
        Expected::Value(id) => array(id),
        Expected::Literal(literal) => Array::from_literal(literal).ok(),
    };
    let Some(expected) = expected else { return broken("what is expected was not computed".to_owned()) };
    if actual.element_type() != expected.element_type() || actual.dims() != expected.dims() {
        return broken(format!("a value of shape {} should have shape {}", actual.shape(), expected.shape()));
    }
    let differences = differences(&actual, &expected, expectation.exactness);
    let first = *differences.first()?;
    let mut index = Vec::new();
    let mut rest = first;
    for &size in actual.dims().iter().rev() {
        let size = usize::try_from(size).unwrap_or(1).max(1);
        index.push(rest % size);
        rest /= size;
    }
    index.reverse();
    let (got, wanted) = (element_text(&actual, first), element_text(&expected, first));
    let message = format!("element {index:?} is {got}, expected {wanted}");
    let count = format!("{} of {} elements differ", differences.len(), actual.len());
    broken(message).map(|d| match expectation.exactness {
        Exactness::Equal => d.note(count),
        Exactness::Within(t) => d.note(format!("{count} by more than {t}")),
        Exactness::Ulps { max, .. } => d.note(format!("{count} by more than {max} units in the last place")),
    })
}

/// The places of the elements that differ.
fn differences(actual: &Array, expected: &Array, exactness: Exactness) -> Vec<usize> {
    let element = actual.element_type();
    let part = element.component();
    let size = part.bytes();
    let parts_per_element = element.bytes() / size.max(1);
    let (a, b) = (actual.bytes().chunks_exact(size), expected.bytes().chunks_exact(size));
    let mut found: Vec<usize> = Vec::new();
    for (n, (a, b)) in a.zip(b).enumerate() {
        if a != b
            && (!part.is_float() || !near(part, a, b, exactness))
            && found.last() != Some(&(n / parts_per_element))
        {
            found.push(n / parts_per_element);
        }
    }
    found
}

fn bits(bytes: &[u8]) -> u64 {
    let mut wide = [0u8; 8];
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(wide)
}

/// The number that the bytes of a float type hold.
fn number(element: ElementType, bytes: &[u8]) -> f64 {
    let wide =
        Array::from_bytes(element, &[], bytes).and_then(|a| hloom_eval::ops::elementwise::convert(a, ElementType::F64));
    wide.ok().and_then(|a| a.as_slice::<f64>().and_then(|s| s.first().copied())).unwrap_or(f64::NAN)
}

fn near(element: ElementType, a: &[u8], b: &[u8], exactness: Exactness) -> bool {
    let (x, y) = (number(element, a), number(element, b));
    if x.is_nan() || y.is_nan() {
        return x.is_nan() && y.is_nan();
    }
    match exactness {
        Exactness::Equal => x == y,
        Exactness::Within(tolerance) => x == y || (x.is_finite() && y.is_finite() && (x - y).abs() <= tolerance),
        Exactness::Ulps { min, max } => {
            if !(x.is_finite() && y.is_finite()) {
                return false;
            }
            // Numbers of a type are ordered as their bits without the sign.
            let sign = 1u64 << (element.bits() - 1);
            let (p, q) = (bits(a) & (sign - 1), bits(b) & (sign - 1));
            let apart = if (bits(a) ^ bits(b)) & sign != 0 { p + q } else { p.abs_diff(q) };
            (min..=max).contains(&apart)
        }
    }
}

fn element_text(array: &Array, n: usize) -> String {
    let element = array.element_type();
    let size = element.bytes();
    let bytes = array.bytes().get(n * size..(n + 1) * size).unwrap_or_default();
    if element.is_complex() {
        let (re, im) = bytes.split_at(size / 2);
        return format!("({:?}, {:?})", number(element.component(), re), number(element.component(), im));
    }
    if element.is_float() {
        return format!("{:?}", number(element, bytes));
    }
    match element {
        ElementType::Pred => (bits(bytes) != 0).to_string(),
        t if t.is_signed_integer() => {
            let unused = 64 - 8 * size as u32;
            ((bits(bytes) << unused) as i64 >> unused).to_string()
        }
        _ => bits(bytes).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_as_exactly_as_asked() {
        let same = |a: f32, b: f32, exactness| near(ElementType::F32, &a.to_le_bytes(), &b.to_le_bytes(), exactness);
        let next = f32::from_bits(1.0f32.to_bits() + 2);
        assert!(same(1.0, next, Exactness::Ulps { min: 0, max: 2 }));
        assert!(!same(1.0, next, Exactness::Ulps { min: 0, max: 1 }));
        assert!(!same(1.0, next, Exactness::Equal) && same(1.0, next, Exactness::Within(1e-6)));
        assert!(same(0.0, -0.0, Exactness::Equal) && same(f32::NAN, -f32::NAN, Exactness::Equal));
        assert!(!same(f32::INFINITY, f32::MAX, Exactness::Ulps { min: 0, max: 3 }));
        let (tiny, minus) = (f32::from_bits(1), -f32::from_bits(1));
        assert!(same(tiny, minus, Exactness::Ulps { min: 0, max: 2 }));
    }
}

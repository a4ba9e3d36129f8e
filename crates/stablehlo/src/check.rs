//! Programs that check themselves: functions without arguments whose `check.expect_*` operations say what their values
//! should be.
//!
//! Such a function is taken apart into steps: programs to run, each with the values it takes from the steps before and
//! those it gives, functions to run side by side on several devices, and comparisons. Whoever runs the programs keeps
//! the values between steps, so any engine can do it.

use crate::hlo::{self, Translation, is_check, locate};
use crate::mlir::{Attr, AttrId, Module, OpId, OpKind, ValueId};
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::diagnostic::{Diagnostic, Span};
use hloom_ir::literal::ArrayLiteral;
use rustc_hash::FxHashSet;

/// A function to check.
#[derive(Debug)]
pub struct Test {
    /// The name of the function.
    pub name: String,
    /// What to do, in order.
    pub steps: Vec<Step>,
}

/// One thing to do for a test.
#[derive(Debug)]
pub enum Step {
    /// Run a program on one device.
    Run(Run),
    /// Run a program on a grid of devices.
    Parallel(Parallel),
    /// Compare.
    Expect(Expectation),
}

/// A program, what it is given and what becomes of its results.
#[derive(Debug)]
pub struct Run {
    /// The program.
    pub program: Translation,
    /// The values that are its arguments.
    pub inputs: Vec<ValueId>,
    /// The values that its result holds: the result itself if it is one, otherwise the elements of a tuple.
    pub outputs: Vec<ValueId>,
}

/// A program for several devices.
#[derive(Debug)]
pub struct Parallel {
    /// The program, whose header says how many replicas and partitions there are.
    pub program: Translation,
    /// For each device the values that are its arguments.
    pub inputs: Vec<Vec<ValueId>>,
    /// For each device the values that its result holds, as in [`Run::outputs`].
    pub outputs: Vec<Vec<ValueId>>,
    /// Whether a device's results are the element of its own number in a tuple of those of all.
    pub indexed: bool,
    /// Programs whose results are fed to infeed, in order.
    pub infeed: Vec<Translation>,
}

/// A comparison.
#[derive(Debug)]
pub struct Expectation {
    /// The operation that asks for it.
    pub op: OpId,
    /// Its name.
    pub name: String,
    /// How exactly.
    pub exactness: Exactness,
    /// What was computed.
    pub actual: ValueId,
    /// What it should be.
    pub expected: Expected,
    /// Where it stands in the text.
    pub span: Span,
}

/// What a value should be.
#[derive(Debug)]
pub enum Expected {
    /// Another value.
    Value(ValueId),
    /// This.
    Literal(ArrayLiteral),
}

/// How exactly values are compared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Exactness {
    /// Equal.
    Equal,
    /// Not further apart than this; a NaN is like any other.
    Within(f64),
    /// As many representable numbers apart; a NaN is like any other.
    Ulps {
        /// At least.
        min: u64,
        /// At most.
        max: u64,
    },
}

/// The tests of a module: every function that takes no arguments, but for those that check nothing and are called by
/// others, with which they run.
pub fn tests(m: &Module<'_>) -> Vec<(String, Result<Test, Box<Diagnostic>>)> {
    let called = called_functions(m);
    let mut tests = Vec::new();
    for (name, function) in m.functions() {
        let Some(block) = m.op(function).regions.first().and_then(|&r| m.region(r).blocks.first()) else { continue };
        let checks = block.ops.iter().any(|&op| is_check(m, op));
        if block.argument_count == 0 && (checks || !called.contains(name)) {
            tests.push((name.to_owned(), test(m, name, &block.ops)));
        }
    }
    tests
}

/// The names that operations refer to.
fn called_functions<'m>(m: &'m Module<'_>) -> FxHashSet<&'m str> {
    let mut names = FxHashSet::default();
    for op in &m.ops {
        for (key, id) in &op.attributes {
            if !matches!(&**key, "callee" | "decomposition" | "called_computations" | "programs" | "infeed") {
                continue;
            }
            let mut stack = vec![*id];
            while let Some(id) = stack.pop() {
                match m.attr(id) {
                    Attr::Array(items) => stack.extend(items),
                    _ => names.extend(m.as_str(id)),
                }
            }
        }
    }
    names
}

fn test(m: &Module<'_>, name: &str, ops: &[OpId]) -> Result<Test, Box<Diagnostic>> {
    // Runs of devices cut the function into stretches.
    let mut stretches: Vec<(Vec<OpId>, Option<OpId>)> = vec![(Vec::new(), None)];
    let mut returned: Vec<ValueId> = Vec::new();
    for &op in ops {
        let last = stretches.len() - 1;
        match m.kind(op) {
            OpKind::RunParallel => {
                stretches[last].1 = Some(op);
                stretches.push((Vec::new(), None));
            }
            kind if kind.is_return() => returned.extend_from_slice(&m.op(op).operands),
            _ => stretches[last].0.push(op),
        }
    }
    let mut steps = Vec::new();
    for (i, (stretch, parallel)) in stretches.iter().enumerate() {
        let computed: Vec<OpId> = stretch.iter().copied().filter(|&op| !is_check(m, op)).collect();
        // Everything that is asked for outside of this stretch.
        let mut wanted: Vec<ValueId> = returned.clone();
        wanted.extend(stretch.iter().filter(|&&op| is_check(m, op)).flat_map(|&op| m.op(op).operands.iter()));
        wanted.extend(parallel.iter().flat_map(|&op| m.op(op).operands.iter()));
        for (later, parallel) in &stretches[i + 1..] {
            later.iter().chain(parallel).for_each(|&op| uses(m, op, &mut wanted));
        }
        let own: FxHashSet<ValueId> = computed.iter().flat_map(|&op| m.op(op).results()).collect();
        let mut seen = FxHashSet::default();
        let outputs: Vec<ValueId> = wanted.into_iter().filter(|v| own.contains(v) && seen.insert(*v)).collect();
        if !outputs.is_empty() {
            let mut used = Vec::new();
            computed.iter().for_each(|&op| uses(m, op, &mut used));
            let nested: FxHashSet<u32> = computed
                .iter()
                .flat_map(|&op| m.op(op).regions.iter())
                .flat_map(|&r| m.region(r).values.clone())
                .collect();
            let mut seen = FxHashSet::default();
            used.retain(|v| !own.contains(v) && !nested.contains(&v.0) && seen.insert(*v));
            let program = hlo::translate_part(m, name, &computed, &used, &outputs)?;
            steps.push(Step::Run(Run { program, inputs: used, outputs }));
        }
        for &op in stretch.iter().filter(|&&op| is_check(m, op)) {
            steps.push(Step::Expect(expectation(m, op)?));
        }
        if let Some(op) = *parallel {
            steps.push(Step::Parallel(run_parallel(m, op)?));
        }
    }
    Ok(Test { name: name.to_owned(), steps })
}

/// All values that `op` and what is in it use.
fn uses(m: &Module<'_>, op: OpId, values: &mut Vec<ValueId>) {
    let mut stack = vec![op];
    while let Some(op) = stack.pop() {
        values.extend_from_slice(&m.op(op).operands);
        for &region in &m.op(op).regions {
            stack.extend(m.region(region).blocks.iter().flat_map(|b| &b.ops));
        }
    }
}

fn expectation(m: &Module<'_>, op: OpId) -> Result<Expectation, Box<Diagnostic>> {
    let operation = m.op(op);
    let bad = |code, message: &str| locate(m, op, Diagnostic::error(code, message));
    let target = m.string_attr(op, "call_target_name");
    let name = target.unwrap_or_else(|| m.op_name(op)).to_owned();
    let number = |key: &str| m.find(op, key).map(|id| m.attr(id));
    let exactness = match &*name {
        "check.expect_eq" | "check.expect_eq_const" => Exactness::Equal,
        // As a custom call it is less exact than as an operation.
        "check.expect_almost_eq" if target.is_some() => Exactness::Within(1e-3),
        "check.expect_almost_eq" | "check.expect_almost_eq_const" => match number("tolerance") {
            Some(Attr::Float(x, _)) => Exactness::Within(*x),
            _ => Exactness::Within(1e-4),
        },
        "check.eq" => Exactness::Within(1e-4),
        "check.expect_close" if target.is_some() => Exactness::Ulps { min: 0, max: 3 },
        "check.expect_close" => {
            let ulps = |key, default| match number(key) {
                Some(Attr::Integer(n, _)) => *n as u64,
                _ => default,
            };
            Exactness::Ulps { min: ulps("min_ulp_difference", 0), max: ulps("max_ulp_difference", 1) }
        }
        _ => return Err(bad(&codes::NO_HLO_FORM, &format!("{name} is not supported"))),
    };
    let Some(&actual) = operation.operands.first() else {
        return Err(bad(&codes::BAD_OPERANDS, &format!("{name} needs a value to compare")));
    };
    let expected = match (operation.operands.get(1), m.find(op, "value")) {
        (Some(&value), _) => Expected::Value(value),
        (None, Some(value)) => Expected::Literal(hlo::literal(m, op, value)?),
        _ => return Err(bad(&codes::BAD_OPERANDS, &format!("{name} needs a value to compare with"))),
    };
    Ok(Expectation { op, name, exactness, actual, expected, span: operation.span })
}

fn run_parallel(m: &Module<'_>, op: OpId) -> Result<Parallel, Box<Diagnostic>> {
    let bad = |code, message: String| locate(m, op, Diagnostic::error(code, message));
    let function = |id: AttrId| -> Result<OpId, Box<Diagnostic>> {
        let name = m.as_str(id).unwrap_or("");
        let found = m.functions().find(|&(n, _)| n == name).map(|(_, f)| f);
        found.ok_or_else(|| bad(&codes::UNKNOWN_FUNCTION, format!("there is no function @{name}")))
    };
    let Some(grid) = m.find(op, "programs") else {
        return Err(bad(&codes::BAD_ATTRIBUTE, "interpreter.run_parallel needs the attribute `programs`".to_owned()));
    };
    let rows = m.list(grid).iter().map(|&row| m.list(row).iter().map(|&id| function(id)).collect());
    let programs: Vec<Vec<OpId>> = rows.collect::<Result<_, _>>()?;
    let program = hlo::translate_parallel(m, op, &programs)?;
    let all: Vec<OpId> = programs.into_iter().flatten().collect();
    let indexed = all.iter().any(|&f| f != all[0]);

    // Arguments and results stand one device after another.
    let signature = |f: OpId| match m.find(f, "function_type").map(|id| m.attr(id)) {
        Some(Attr::Type(t)) => match m.ty(*t) {
            crate::mlir::Type::Function(inputs, results) => (inputs.len(), results.len()),
            _ => (0, 0),
        },
        _ => (0, 0),
    };
    let operation = m.op(op);
    let (mut operands, mut results) = (operation.operands.iter().copied(), operation.results());
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for &f in &all {
        let (takes, gives) = signature(f);
        inputs.push(operands.by_ref().take(takes).collect::<Vec<_>>());
        outputs.push(results.by_ref().take(gives).collect::<Vec<_>>());
        if inputs.last().map(Vec::len) != Some(takes) || outputs.last().map(Vec::len) != Some(gives) {
            let message = "interpreter.run_parallel has fewer operands or results than its programs";
            return Err(bad(&codes::BAD_OPERANDS, message.to_owned()));
        }
    }
    if indexed {
        // Every device takes the arguments of all.
        let together: Vec<ValueId> = inputs.concat();
        inputs = vec![together; all.len()];
    }
    let mut infeed = Vec::new();
    for &id in m.find(op, "infeed").map_or(&[][..], |id| m.list(id)) {
        infeed.push(hlo::translate_parallel(m, op, &[vec![function(id)?]])?);
    }
    Ok(Parallel { program, inputs, outputs, indexed, infeed })
}

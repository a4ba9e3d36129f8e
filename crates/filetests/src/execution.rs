//! Running a test's program, in the evaluator or another engine: the inputs that its header gives, the results that it asks for.
//!
//! Numbers are written as in HLO text and read by the same reader. A result that no line of the header speaks of is a
//! failure, and so is a line that speaks of a result which is not there: nothing comes out unseen.

use hloom_eval::ops::elementwise::convert;
use hloom_eval::run::{DeviceGrid, Options, run};
use hloom_formats::hlo_text;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::literal::Literal;
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::shape::Shape;
use hloom_ir::verify::VerifiedModule;
use hloom_value::{Array, ExecutionError, Value};
use num_complex::Complex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

/// How a test's program is run, and what must come out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Execution {
    /// `devices 4`: as many; the header's counts otherwise.
    pub devices: Option<usize>,
    /// `max-steps 100`.
    pub max_steps: Option<u64>,
    /// `time-limit 2`: seconds that a device waits for another.
    pub time_limit: Option<u64>,
    /// `fill-constants`.
    pub fill_constants: bool,
    /// `tolerance 1e-3`: in place of what the element type has.
    pub tolerance: Option<String>,
    /// `input p0 = f32[2] {1, 2}`, in order.
    pub inputs: Vec<(String, String)>,
    /// `output o0 = f32[2] {1, 2}`, in order.
    pub outputs: Vec<(String, String)>,
    /// `infeed d0 = f32[2] {1, 2}`, in order.
    pub infeed: Vec<(String, String)>,
    /// `outfeed d0 = f32[2] {1, 2}`, in order.
    pub outfeed: Vec<(String, String)>,
}

impl Execution {
    /// Takes a line of a header; false if it is about something else.
    pub(crate) fn take(&mut self, words: &str) -> Result<bool, String> {
        let (word, rest) = words.split_once(' ').unwrap_or((words, ""));
        let number = || rest.trim().parse::<u64>();
        let lists = [
            ("input", &mut self.inputs),
            ("output", &mut self.outputs),
            ("infeed", &mut self.infeed),
            ("outfeed", &mut self.outfeed),
        ];
        for (name, list) in lists {
            if let (true, Some((array, value))) = (word == name, rest.split_once(" = ")) {
                list.push((array.trim().to_owned(), value.trim().to_owned()));
                return Ok(true);
            }
        }
        match (word, number()) {
            ("devices", Ok(n)) => self.devices = usize::try_from(n).ok(),
            ("max-steps", Ok(n)) => self.max_steps = Some(n),
            ("time-limit", Ok(n)) => self.time_limit = Some(n),
            ("fill-constants", _) if rest.is_empty() => self.fill_constants = true,
            ("tolerance", _) if rest.parse::<f64>().is_ok() => self.tolerance = Some(rest.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Runs `module` in the evaluator and compares. A diagnostic of the program is for the caller to expect; all else that
    /// is wrong is an `Err` in words.
    pub(crate) fn run(&self, module: &VerifiedModule) -> Result<Option<Diagnostic>, String> {
        self.run_by(module, |module, grid, arguments, options| {
            run(module, grid, arguments, options).map_err(ExecutionError::into_diagnostic)
        })
    }

    /// The same in another engine: it is given the program, the devices, the arguments of each, and the options.
    pub fn run_by(
        &self,
        module: &VerifiedModule,
        engine: impl FnOnce(&VerifiedModule, DeviceGrid, Vec<Vec<Value>>, &Options<'_>) -> Result<Vec<Value>, Diagnostic>,
    ) -> Result<Option<Diagnostic>, String> {
        let config = &module.module().config;
        let count = |n: i64| usize::try_from(n).unwrap_or(1).max(1);
        let (replicas, partitions) = (count(config.replica_count), count(config.num_partitions));
        let replicas = self.devices.map_or(replicas, |n| (n / partitions).max(1));
        let grid = DeviceGrid { replicas, partitions };
        let outfed = Mutex::new(Vec::new());
        let options = Options {
            max_steps: self.max_steps,
            fill_constants: self.fill_constants,
            time_limit: self.time_limit.map(Duration::from_secs),
            infeed: self.infeed(grid)?,
            outfeed: Some(&outfed),
            ..Options::default()
        };
        let results = match engine(module, grid, self.arguments(module, grid)?, &options) {
            Ok(results) => results,
            Err(diagnostic) => return Ok(Some(diagnostic)),
        };
        let mut came = Vec::new();
        for (d, result) in results.iter().enumerate() {
            came.extend(named_leaves(result, &format!("d{d}.o")));
        }
        self.compare(&self.outputs, came, grid)?;
        let outfed = outfed.into_inner().map_err(|_| "a device panicked")?;
        let outfed = outfed.iter().flat_map(|(d, value)| {
            value.leaves().into_iter().filter_map(move |v| Some((format!("d{d}"), v.as_array().ok()?.clone())))
        });
        self.compare(&self.outfeed, outfed.collect(), grid)?;
        Ok(None)
    }

    fn infeed(&self, grid: DeviceGrid) -> Result<Vec<Mutex<VecDeque<Value>>>, String> {
        let mut queues = vec![VecDeque::new(); grid.devices()];
        for (name, text) in &self.infeed {
            let device = name.strip_prefix('d').and_then(|n| n.parse::<usize>().ok());
            let queue = device.and_then(|d| queues.get_mut(d)).ok_or(format!("`{name}` is no device"))?;
            queue.push_back(value(text)?);
        }
        Ok(queues.into_iter().map(Mutex::new).collect())
    }

    /// The arguments of each device, from the lines `input p0 = …`, `input d1.p0 = …` or `input p0.2 = …`.
    fn arguments(&self, module: &VerifiedModule, grid: DeviceGrid) -> Result<Vec<Vec<Value>>, String> {
        let module = module.module();
        let mut given = BTreeMap::new();
        for (name, text) in &self.inputs {
            given.insert(name.as_str(), value(text).map_err(|e| format!("input {name}: {e}"))?);
        }
        let mut used = BTreeSet::new();
        let mut all = Vec::new();
        let parameters = module.entry().map_or_else(Vec::new, |e| module.parameters(e).to_vec());
        for d in 0..grid.devices() {
            let mut arguments = Vec::new();
            for (n, &p) in parameters.iter().enumerate() {
                let shape = &module[p].shape;
                let leaves = shape.leaves().into_iter().enumerate().map(|(leaf, (_, leaf_shape))| {
                    let base = if shape.is_tuple() { format!("p{n}.{leaf}") } else { format!("p{n}") };
                    let own = format!("d{d}.{base}");
                    let name = if given.contains_key(own.as_str()) { own } else { base };
                    let value = match leaf_shape {
                        Shape::Token => Value::Token,
                        _ => given.get(name.as_str()).ok_or(format!("there is no `// input {name} = …`"))?.clone(),
                    };
                    used.insert(name);
                    Ok(value)
                });
                let leaves = leaves.collect::<Result<Vec<_>, String>>()?;
                arguments.push(assemble(shape, &mut leaves.into_iter()));
            }
            all.push(arguments);
        }
        match given.keys().find(|name| !used.contains(**name)) {
            Some(name) => Err(format!("the program has no parameter for `// input {name}`")),
            None => Ok(all),
        }
    }

    /// Checks that what came is what was asked for; a name without a device stands for all devices.
    fn compare(&self, asked: &[(String, String)], came: Vec<(String, Array)>, grid: DeviceGrid) -> Result<(), String> {
        let mut expected = Vec::new();
        for (name, text) in asked {
            let value = value(text).map_err(|e| format!("output {name}: {e}"))?;
            let array = value.into_array().map_err(|_| format!("output {name} must be an array"))?;
            let device_named = name.starts_with('d');
            let names = (0..grid.devices()).map(|d| format!("d{d}.{name}"));
            let names = if device_named { vec![name.clone()] } else { names.collect() };
            expected.extend(names.into_iter().map(|n| (n, array.clone())));
        }
        let mut wrong = Vec::new();
        for (name, array) in &came {
            // Values of one name (of a feed) come in order.
            let Some(at) = expected.iter().position(|(n, _)| n == name) else {
                wrong.push(format!("{name} came, but nothing is said of it: {}", shown(array)));
                continue;
            };
            let (_, wanted) = expected.remove(at);
            if !self.agree(&wanted, array)? {
                wrong.push(format!("{name} must be\n  {}\nbut is\n  {}", shown(&wanted), shown(array)));
            }
        }
        wrong.extend(expected.iter().map(|(name, _)| format!("{name} did not come")));
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }

    /// Integers agree exactly; floats within the tolerance, relative to numbers above one; NaN with NaN.
    fn agree(&self, wanted: &Array, came: &Array) -> Result<bool, String> {
        let t = wanted.element_type();
        if t != came.element_type() || wanted.dims() != came.dims() {
            return Ok(false);
        }
        if !t.is_float() && !t.is_complex() {
            return Ok(wanted.bytes() == came.bytes());
        }
        let tolerance = match self.tolerance.as_ref().and_then(|s| s.parse::<f64>().ok()) {
            Some(t) => t,
            None => match t {
                ElementType::F64 | ElementType::C128 => 1e-12,
                ElementType::F32 | ElementType::C64 => 1e-6,
                ElementType::F16 => 1e-3,
                ElementType::Bf16 => 4e-3,
                _ => 0.0,
            },
        };
        let near = |a: f64, b: f64| match (a.is_nan(), a == b) {
            (true, _) => b.is_nan(),
            // The signs of a complex number's zeros depend on how a product is summed.
            (false, true) => t.is_complex() || a != 0.0 || a.is_sign_negative() == b.is_sign_negative(),
            (false, false) => (a - b).abs() <= tolerance * a.abs().max(1.0),
        };
        let wide = |a: &Array| convert(a.clone(), ElementType::C128).map_err(|f| f.diagnostic().message.clone());
        let (wanted, came) = (wide(wanted)?, wide(came)?);
        let pairs = wanted.elements::<Complex<f64>>().iter().zip(came.elements::<Complex<f64>>());
        Ok(pairs.into_iter().all(|(a, b)| near(a.re, b.re) && near(a.im, b.im)))
    }
}

/// A value of `shape` from its leaves.
fn assemble(shape: &Shape, leaves: &mut impl Iterator<Item = Value>) -> Value {
    match shape {
        Shape::Tuple(t) => Value::Tuple(t.iter().map(|s| assemble(s, leaves)).collect()),
        _ => leaves.next().unwrap_or(Value::Token),
    }
}

/// The arrays of a result with their names; tokens have a number, but no array.
fn named_leaves(value: &Value, prefix: &str) -> Vec<(String, Array)> {
    let leaves = value.leaves().into_iter().enumerate();
    leaves.filter_map(|(n, leaf)| Some((format!("{prefix}{n}"), leaf.as_array().ok()?.clone()))).collect()
}

/// `f32[2] {1, 2}` as a value: the constant of a module made for it.
fn value(text: &str) -> Result<Value, String> {
    let end = text.find(['[', '(']).and_then(|_| text.find("] ").or_else(|| text.find("} "))).map_or(0, |n| n + 1);
    let (shape, literal) = text.split_at(end);
    let module = format!("HloModule m\nENTRY e {{\n  ROOT c = {shape} constant({})\n}}\n", literal.trim());
    let read = hlo_text::read(module.as_bytes());
    let wrong = || format!("`{text}` is not a shape and a literal: {:?}", read.diagnostics.first().map(|d| &d.message));
    let module = read.module.as_ref().ok_or_else(wrong)?;
    let root = module.entry().and_then(|e| module.root(e)).ok_or_else(wrong)?;
    match &module[root].op {
        Op::Constant(ConstantValue::Literal(literal)) => literal_value(literal),
        _ => Err(wrong()),
    }
}

fn literal_value(literal: &Literal) -> Result<Value, String> {
    Value::from_literal(literal).map_err(|f| f.diagnostic().message.clone())
}

/// An array for a message: its shape and its elements in row-major order.
fn shown(array: &Array) -> String {
    let t = array.element_type();
    let elements: Vec<String> = if t.is_float() || t.is_complex() {
        let wide = convert(array.clone(), ElementType::C128).map(|a| a.elements::<Complex<f64>>().to_vec());
        let number = |c: &Complex<f64>| if t.is_complex() { format!("({}, {})", c.re, c.im) } else { c.re.to_string() };
        wide.unwrap_or_default().iter().map(number).collect()
    } else {
        (0..array.len()).map(|n| array.integer_at(n).map_or("?".into(), |i| i.to_string())).collect()
    };
    format!("{} {{{}}}", array.shape(), elements.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_ir::verify::{VerifyOptions, verify};

    fn outcome(lines: &[&str], program: &str) -> Result<Option<Diagnostic>, String> {
        let mut execution = Execution::default();
        for line in lines {
            assert_eq!(execution.take(line), Ok(true), "{line}");
        }
        let module = hlo_text::read(program.as_bytes()).module.expect("a program that reads");
        execution.run(&verify(module, &VerifyOptions::default()).expect("a valid program"))
    }

    const NEGATE: &str = "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] negate(x)\n}\n";

    #[test]
    fn results_are_compared() {
        assert_eq!(outcome(&["input p0 = f32[2] {1, 2}", "output o0 = f32[2]{0} {-1, -2}"], NEGATE), Ok(None));
        for wrong in ["f32[2] {-1, -2.1}", "f32[2] {-1, nan}", "f32[1] {-1}", "s32[2] {-1, -2}"] {
            let output = format!("output o0 = {wrong}");
            assert!(outcome(&["input p0 = f32[2] {1, 2}", &output], NEGATE).is_err(), "{wrong} was taken");
        }
    }

    #[test]
    fn nothing_may_be_left_out_or_added() {
        let (input, output) = ("input p0 = f32[2] {1, 2}", "output o0 = f32[2] {-1, -2}");
        for lines in [
            &[input][..],
            &[output],
            &[input, output, "output o1 = f32[] 1"],
            &[input, output, "input p1 = f32[] 1"],
            &[input, output, "outfeed d0 = f32[] 1"],
        ] {
            assert!(outcome(lines, NEGATE).is_err(), "{lines:?} was taken");
        }
    }

    #[test]
    fn zeros_have_signs_and_nan_is_nan() {
        let lines = ["input p0 = f32[2] {0, nan}", "output o0 = f32[2] {-0, nan}"];
        assert_eq!(outcome(&lines, NEGATE), Ok(None));
        assert!(outcome(&[lines[0], "output o0 = f32[2] {0, nan}"], NEGATE).is_err());
    }

    #[test]
    fn prose_is_not_taken() {
        for line in ["input and output", "devices meet", "tolerance is a virtue", "Words."] {
            assert_eq!(Execution::default().take(line), Ok(false), "{line}");
        }
    }
}

//! Watching a run: values of named instructions, and the first one that is not finite.

use super::args::RunArgs;
use super::run::replay::Expected;
use super::{Result, output};
use hloom::Array;
use hloom::eval::observe::{Observer, Verdict};
use hloom::formats::hlo_text;
use hloom::ir::diagnostic::{Blame, Diagnostic, Part, codes::eval as codes};
use hloom::ir::element_type::ElementType;
use hloom::ir::entity::InstructionId;
use hloom::ir::literal::ArrayLiteral;
use hloom::ir::module::Module;
use hloom::ir::op::Op;
use hloom::report::values::Disagreement;
use hloom::value::Value;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// What a run is watched for.
pub(crate) struct Watch<'a> {
    module: &'a Module,
    print: HashSet<InstructionId>,
    check_nan: bool,
    expected: &'a Expected,
    seen: Mutex<Vec<String>>,
}

impl<'a> Watch<'a> {
    /// What `args` ask for; an instruction that does not exist is an error.
    pub(crate) fn new(
        module: &'a Module,
        args: &RunArgs,
        expected: &'a Expected,
    ) -> std::result::Result<Watch<'a>, String> {
        let mut print = HashSet::new();
        for name in &args.print_values {
            let pattern = name.trim_start_matches('%');
            let found = named(module, pattern);
            if found.is_empty() {
                return Err(format!("the program has no instruction named {pattern}"));
            }
            print.extend(found);
        }
        Ok(Watch { module, print, check_nan: args.check_nan, expected, seen: Mutex::new(Vec::new()) })
    }

    /// The observer, if there is anything to observe.
    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        (self.check_nan || !self.print.is_empty() || self.expected.watches()).then_some(self as &dyn Observer)
    }

    /// Prints the values that were asked for.
    pub(crate) fn report(&self) -> Result<()> {
        let lines = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        output::to_stdout(lines.concat().as_bytes())
    }
}

/// The instructions of that name; `*` in it stands for anything.
fn named(module: &Module, pattern: &str) -> Vec<InstructionId> {
    let Some((head, rest)) = pattern.split_once('*') else {
        return module.instruction_by_name(pattern).into_iter().collect();
    };
    let is_match = |name: &str| {
        let Some(mut left) = name.strip_prefix(head) else { return false };
        let mut parts: Vec<&str> = rest.split('*').collect();
        let tail = parts.pop().unwrap_or_default();
        for part in parts {
            let Some(at) = left.find(part) else { return false };
            left = &left[at + part.len()..];
        }
        left.ends_with(tail)
    };
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    all.copied().filter(|&i| is_match(module[i].name())).collect()
}

impl Observer for Watch<'_> {
    fn made(&self, device: usize, i: InstructionId, value: &Value, operands: &[Value]) -> Verdict {
        if self.print.contains(&i) {
            let mut text = String::new();
            for (n, leaf) in value.leaves().into_iter().enumerate() {
                let part = if matches!(value, Value::Tuple(_)) { format!(".{n}") } else { String::new() };
                let shown = leaf.as_array().map_or_else(|_| "token[]".to_owned(), show_array);
                text.push_str(&format!("d{device} {}{part} = {shown}\n", self.module[i].name()));
            }
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
        if let Some(found) = self.expected.disagrees(device, i, value) {
            return Verdict::Stop(Box::new(self.disagrees(i, &found)));
        }
        // What only hands on or writes down a value has not made it.
        let op = &self.module[i].op;
        let makes = !matches!(op, Op::Parameter { .. } | Op::Constant(_) | Op::GetTupleElement { .. });
        if self.check_nan && makes && !all_finite(value) && operands.iter().all(all_finite) {
            return Verdict::Stop(Box::new(self.not_finite(device, i, value, operands)));
        }
        Verdict::GoOn
    }
}

impl Watch<'_> {
    fn disagrees(&self, i: InstructionId, found: &Disagreement) -> Diagnostic {
        let at = if found.index.is_empty() { String::new() } else { format!("{:?}", found.index) };
        let (name, device) = (self.module[i].name(), found.device);
        let (left, right, count, all) = (found.left, found.right, found.count, found.elements);
        let message = format!("{name}{at} is {left}, not {right} as expected, first on device {device}");
        Diagnostic::error(&codes::DISAGREES, message)
            .blame(Blame::Data)
            .at_instruction(i, Part::Opcode)
            .note(format!("{count} of {all} elements differ"))
    }

    fn not_finite(&self, device: usize, i: InstructionId, value: &Value, operands: &[Value]) -> Diagnostic {
        let instruction = &self.module[i];
        let what = match value.leaves().iter().any(|v| v.as_array().is_ok_and(|a| count(a, is_nan) > 0)) {
            true => "a NaN",
            false => "an infinity",
        };
        let mut diagnostic = Diagnostic::error(
            &codes::NOT_A_NUMBER,
            format!("{} made {what} out of finite operands, first on device {device}", instruction.name()),
        )
        .at_instruction(i, Part::Opcode);
        for (&o, operand) in instruction.operands().iter().zip(operands) {
            for leaf in operand.leaves() {
                if let Ok(array) = leaf.as_array() {
                    diagnostic = diagnostic.note(format!("{} is {}", self.module[o].name(), show_array(array)));
                }
            }
        }
        diagnostic
    }
}

fn all_finite(value: &Value) -> bool {
    value.leaves().iter().all(|leaf| leaf.as_array().map_or(true, |a| count(a, |x| !x.is_finite()) == 0))
}

fn is_nan(x: f64) -> bool {
    x.is_nan()
}

/// How many elements (parts, for complex ones) of a float array have the property.
fn count(array: &Array, property: impl Fn(f64) -> bool) -> usize {
    let element_type = array.element_type();
    if !element_type.is_float() && !element_type.is_complex() {
        return 0;
    }
    match element_type {
        ElementType::F32 | ElementType::C64 => {
            array.bytes().as_chunks::<4>().0.iter().filter(|b| property(f32::from_le_bytes(**b).into())).count()
        }
        ElementType::F64 | ElementType::C128 => {
            array.bytes().as_chunks::<8>().0.iter().filter(|b| property(f64::from_le_bytes(**b))).count()
        }
        _ => match hloom::eval::ops::elementwise::convert(array.clone(), ElementType::F64) {
            Ok(wide) => wide.bytes().as_chunks::<8>().0.iter().filter(|b| property(f64::from_le_bytes(**b))).count(),
            Err(_) => 0,
        },
    }
}

/// An array for people: its shape, and its elements if they are few, or else the first of them.
pub(crate) fn show_array(array: &Array) -> String {
    const SHOWN: usize = 64;
    let shape = array.shape();
    if array.len() > SHOWN {
        let width = array.element_type().bytes();
        let first = Array::from_bytes(array.element_type(), &[8], &array.bytes()[..8 * width]);
        let elements = first.map_or_else(|_| String::new(), |a| literal_text(&a));
        return format!("{shape} {}, ...}} ({} elements)", elements.trim_end_matches('}').trim_end(), array.len());
    }
    format!("{shape} {}", literal_text(array))
}

fn literal_text(array: &Array) -> String {
    match ArrayLiteral::new(array.shape(), array.bytes().to_vec()) {
        Ok(literal) => hlo_text::print_array(&literal),
        Err(_) => "{...}".to_owned(),
    }
}

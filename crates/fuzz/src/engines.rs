//! Comparing an engine with the evaluator, without false alarms.
//!
//! An engine may add up in another order, keep more digits on the way, and compute functions of its own. For ordinary
//! numbers that makes small differences. Where numbers overflow on the way, or are infinite or NaN, it may make any:
//! `(a + b) - a` is `b` or NaN. And where a small difference decides (a comparison, a rounding to an integer), what
//! follows may be anything too. So each result is looked at by what it is made of ([`Making`]), and by the largest number
//! that the evaluator met ([`Expected::largest`]): results that can be told are compared, the others are open, and it is
//! counted how many are which. Subnormal numbers are zeros on an engine, but not to the evaluator: where one was met
//! ([`Expected::subnormals`]), only what was merely moved can be told.

use crate::differential::{Agreement, compare_arrays};
use hloom_eval::observe::{Observer, Verdict};
use hloom_eval::ops::elementwise::convert;
use hloom_eval::run::{DeviceGrid, Options, run};
use hloom_ir::attributes::ComparisonType;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};
use hloom_ir::shape::Shape;
use hloom_ir::verify::VerifiedModule;
use hloom_value::{Array, Value};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Numbers up to this are ordinary: sums and products of them do not overflow, and what cancels leaves digits.
const ORDINARY: f64 = 65536.0;

/// What the evaluator gives, and what it met on the way.
pub struct Expected {
    /// The results of each device.
    pub values: Vec<Value>,
    /// The largest magnitude of any float in any value; infinite if one was infinite or NaN.
    pub largest: f64,
    /// Whether any value had a number that is subnormal in the type that engines compute with.
    pub subnormals: bool,
}

/// How many leaves of results were compared, and how many are open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compared {
    /// Those that agree.
    pub agree: usize,
    /// Those that may be anything.
    pub open: usize,
}

/// Notes the largest float, and whether there are subnormal ones. The bits of floats that are not negative are in the order
/// of the floats.
#[derive(Default)]
struct Extremes {
    largest: AtomicU64,
    subnormals: AtomicBool,
}

impl Observer for Extremes {
    fn made(&self, _: usize, _: InstructionId, value: &Value, _: &[Value]) -> Verdict {
        for leaf in value.leaves() {
            if let Value::Array(array) = leaf {
                self.note(array);
            }
        }
        Verdict::GoOn
    }
}

impl Extremes {
    fn note(&self, array: &Array) {
        let t = array.element_type();
        if !t.is_float() && !t.is_complex() {
            return;
        }
        let Ok(wide) = convert(array.clone(), ElementType::C128) else {
            self.largest.fetch_max(f64::INFINITY.to_bits(), Ordering::Relaxed);
            return;
        };
        // Narrower types are computed with in f32.
        let normal = if t.component() == ElementType::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) };
        let parts = || wide.bytes().as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b).abs());
        let largest = parts().fold(0.0, |most, x| if x.is_nan() { f64::INFINITY } else { x.max(most) });
        self.largest.fetch_max(largest.to_bits(), Ordering::Relaxed);
        if parts().any(|x| x > 0.0 && x < normal) {
            self.subnormals.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs `module` by the evaluator. Elided constants are filled.
pub fn expected(module: &VerifiedModule, grid: DeviceGrid, arguments: &[Vec<Value>]) -> Result<Expected, Diagnostic> {
    let met = Extremes::default();
    let options =
        Options { fill_constants: true, max_steps: Some(10_000_000), observer: Some(&met), ..Options::default() };
    let values = run(module, grid, arguments.to_vec(), &options).map_err(|f| f.into_diagnostic())?;
    let (largest, subnormals) = (f64::from_bits(met.largest.into_inner()), met.subnormals.into_inner());
    Ok(Expected { values, largest, subnormals })
}

/// Compares what an engine gave for `module` with what was expected.
pub fn agree(module: &Module, expected: &Expected, given: &[Value]) -> Result<Compared, String> {
    if given.len() != expected.values.len() {
        return Err(format!("results of {} devices and of {}", given.len(), expected.values.len()));
    }
    let makings = results(module);
    let mut compared = Compared::default();
    for (device, (given, wanted)) in given.iter().zip(&expected.values).enumerate() {
        let (given, wanted) = (given.leaves(), wanted.leaves());
        if given.len() != wanted.len() || wanted.len() != makings.len() {
            return Err(format!("device {device} has {} results and {}", given.len(), wanted.len()));
        }
        for (n, ((given, wanted), making)) in given.iter().zip(wanted).zip(&makings).enumerate() {
            let (Value::Array(given), Value::Array(wanted)) = (given, wanted) else { continue };
            let told = making.agreement(expected.largest).filter(|_| !(expected.subnormals && making.reads_floats));
            let Some(agreement) = told else {
                compared.open += 1;
                continue;
            };
            compare_arrays(given, wanted, agreement)
                .map_err(|what| format!("result {n} of device {device} differs: {what}"))?;
            compared.agree += 1;
        }
    }
    Ok(compared)
}

/// What a value is made of, as far as it decides how near two engines must come.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Making {
    /// Floats are more than moved.
    reads_floats: bool,
    /// There is arithmetic on floats, which may be done in another order.
    computes: bool,
    /// Small differences of floats may become large ones.
    breaks: bool,
    /// The bits of floats are looked at, those of NaNs too.
    looks_at_bits: bool,
    /// How much a float may differ, by the coarsest type on the way.
    tolerance: f64,
}

impl Making {
    fn joined(self, other: Making) -> Making {
        Making {
            reads_floats: self.reads_floats || other.reads_floats,
            computes: self.computes || other.computes,
            breaks: self.breaks || other.breaks,
            looks_at_bits: self.looks_at_bits || other.looks_at_bits,
            tolerance: self.tolerance.max(other.tolerance),
        }
    }

    /// How near two engines must be; `None` if nothing can be said.
    fn agreement(self, largest: f64) -> Option<Agreement> {
        let is_ordinary = largest <= ORDINARY;
        match (self.computes, self.breaks) {
            (false, _) if self.looks_at_bits && !is_ordinary => None,
            (false, _) => Some(Agreement::Within(self.tolerance)),
            // What cancels leaves an error of the size of what there was.
            (true, false) if is_ordinary => Some(Agreement::Within(self.tolerance * largest.max(1.0))),
            _ => None,
        }
    }

    /// What the instruction itself does.
    fn of(module: &Module, i: InstructionId) -> Making {
        let instruction = &module[i];
        let mut floats = instruction.operands().iter().map(|&o| &module[o].shape).chain([&instruction.shape]);
        let has_floats = floats.any(is_float);
        let operand_is_float = instruction.operands().first().is_some_and(|&o| is_float(&module[o].shape));
        let coarsest = instruction.shape.leaves().into_iter().filter_map(|(_, s)| s.element_type()).map(tolerance);
        let (mut computes, mut breaks, mut looks_at_bits) = (false, false, false);
        match &instruction.op {
            Op::Unary { op, .. } => match op {
                UnaryOp::Abs if operand_is_float && !instruction_is_complex(module, i) => {}
                UnaryOp::Negate | UnaryOp::Real | UnaryOp::Imag => {}
                UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::RoundNearestAfz | UnaryOp::RoundNearestEven => breaks = true,
                UnaryOp::Sign | UnaryOp::IsFinite => breaks = true,
                // These end at zero or at one, or go round a branch cut.
                UnaryOp::Log | UnaryOp::LogPlusOne | UnaryOp::Sqrt | UnaryOp::Rsqrt => {
                    (computes, breaks) = (true, true)
                }
                UnaryOp::Acos | UnaryOp::Asin | UnaryOp::Acosh | UnaryOp::Atanh | UnaryOp::Asinh | UnaryOp::Cbrt => {
                    (computes, breaks) = (true, true);
                }
                _ => computes = true,
            },
            Op::Binary(BinaryOp::Maximum | BinaryOp::Minimum | BinaryOp::Complex) => {}
            Op::Binary(BinaryOp::Remainder | BinaryOp::Power | BinaryOp::Atan2) => (computes, breaks) = (true, true),
            Op::Binary(_) => computes = true,
            Op::Compare { kind, .. } => {
                (breaks, looks_at_bits) = (operand_is_float, *kind == Some(ComparisonType::TotalOrder));
            }
            Op::Convert => breaks = operand_is_float && !is_float(&instruction.shape),
            Op::BitcastConvert | Op::Bitcast => (breaks, looks_at_bits) = (true, true),
            // It has an order for NaNs, by their signs, too.
            Op::TopK { .. } => (breaks, looks_at_bits) = (true, true),
            Op::Sort { .. } | Op::SelectAndScatter { .. } | Op::ReducePrecision { .. } => breaks = true,
            Op::Dot(_) | Op::RaggedDot(_) | Op::ScaledDot(_) | Op::Convolution(_) | Op::Fft { .. } => computes = true,
            Op::Cholesky { .. } | Op::TriangularSolve { .. } => (computes, breaks) = (true, true),
            Op::BatchNormTraining { .. } | Op::BatchNormInference { .. } | Op::BatchNormGrad { .. } => computes = true,
            Op::CustomCall(_) | Op::StochasticConvert => (computes, breaks, looks_at_bits) = (true, true, true),
            _ => {}
        }
        Making {
            reads_floats: has_floats && !moves(&instruction.op),
            computes: computes && has_floats,
            breaks: breaks && has_floats,
            looks_at_bits: looks_at_bits && has_floats,
            tolerance: coarsest.fold(0.0, f64::max),
        }
    }
}

/// Whether an operation gives the bits that it was given, whatever they say.
fn moves(op: &Op) -> bool {
    matches!(
        op,
        Op::Parameter { .. }
            | Op::Constant(_)
            | Op::Tuple
            | Op::GetTupleElement { .. }
            | Op::Broadcast { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Reverse { .. }
            | Op::Slice { .. }
            | Op::DynamicSlice { .. }
            | Op::DynamicUpdateSlice
            | Op::Concatenate { .. }
            | Op::Pad { .. }
            | Op::Copy
            | Op::Bitcast
            | Op::BitcastConvert
    )
}

fn instruction_is_complex(module: &Module, i: InstructionId) -> bool {
    let operand = module[i].operands().first().and_then(|&o| module[o].shape.element_type());
    operand.is_some_and(ElementType::is_complex)
}

fn is_float(shape: &Shape) -> bool {
    let is = |t: ElementType| t.is_float() || t.is_complex();
    shape.leaves().into_iter().any(|(_, s)| s.element_type().is_some_and(is))
}

/// How much a float of that type may differ after a few operations, as a part of the largest number.
fn tolerance(t: ElementType) -> f64 {
    match t {
        ElementType::F64 | ElementType::C128 | ElementType::F32 | ElementType::C64 => 1e-4,
        ElementType::F16 => 1e-2,
        ElementType::Bf16 => 0.1,
        t if t.is_float() => 1.0,
        _ => 0.0,
    }
}

/// What each leaf of the module's result is made of.
fn results(module: &Module) -> Vec<Making> {
    let mut makings: SideTable<InstructionId, Making> =
        SideTable::with_len(module.instruction_slots(), Making::default());
    let mut of_computations: SideTable<ComputationId, Making> =
        SideTable::with_len(module.computation_slots(), Making::default());
    // Everything only grows, so this ends; lists are in order nearly always, and then the second round is the last.
    loop {
        let mut changed = false;
        for &c in module.computations() {
            let mut whole = of_computations[c];
            for &i in module[c].instructions() {
                let operands = module[i].operands().iter().map(|&o| makings[o]);
                let called = module[i].op.called_computations();
                let called = called.iter().map(|&c| of_computations[c]);
                let mut making = operands.chain(called).fold(Making::of(module, i), Making::joined);
                // What cancels is zero, or what is left of rounding: a quotient by it may be anything.
                let divisor =
                    module[i].operands().get(1).filter(|_| matches!(module[i].op, Op::Binary(BinaryOp::Divide)));
                making.breaks |= divisor.is_some_and(|&d| makings[d].computes);
                changed |= making != makings[i];
                makings.set(i, making);
                whole = whole.joined(making);
            }
            changed |= whole != of_computations[c];
            of_computations.set(c, whole);
        }
        if !changed {
            break;
        }
    }
    let mut leaves = Vec::new();
    let mut stack: Vec<InstructionId> = module.entry().and_then(|e| module.root(e)).into_iter().collect();
    while let Some(i) = stack.pop() {
        match module[i].op {
            Op::Tuple => stack.extend(module[i].operands().iter().rev()),
            _ => leaves.extend(module[i].shape.leaves().iter().map(|_| makings[i])),
        }
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text;
    use hloom_ir::verify::{VerifyOptions, verify};

    /// Compares `given` with what the program gives for `x`.
    fn compared(body: &str, x: &[f32], given: &[f32]) -> Result<Compared, String> {
        let n = x.len();
        let text = format!("HloModule m\nENTRY e {{\n x = f32[{n}] parameter(0)\n {body}\n}}");
        let module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        let module = verify(module, &VerifyOptions::default()).expect("it is valid");
        let array = |e: &[f32]| Value::Array(Array::new(&[e.len() as i64], e).expect("a list"));
        let expected =
            expected(&module, DeviceGrid { replicas: 1, partitions: 1 }, &[vec![array(x)]]).expect("it runs");
        agree(module.module(), &expected, &[array(given)])
    }

    const AGREE: Result<Compared, String> = Ok(Compared { agree: 1, open: 0 });
    const OPEN: Result<Compared, String> = Ok(Compared { agree: 0, open: 1 });

    #[test]
    fn ordinary_numbers_must_be_near() {
        assert_eq!(compared("ROOT y = f32[1] add(x, x)", &[1.5], &[3.00001]), AGREE);
        assert!(compared("ROOT y = f32[1] add(x, x)", &[1.5], &[3.1]).is_err());
        assert!(compared("ROOT y = f32[1] add(x, x)", &[1.5], &[f32::NAN]).is_err());
    }

    #[test]
    fn what_overflows_is_open_where_it_is_computed_with() {
        assert_eq!(compared("ROOT y = f32[1] add(x, x)", &[f32::MAX], &[1.0]), OPEN);
        assert_eq!(compared("ROOT y = f32[1] negate(x)", &[f32::MAX], &[-f32::MAX]), AGREE);
        assert!(compared("ROOT y = f32[1] negate(x)", &[f32::NAN], &[1.0]).is_err());
    }

    #[test]
    fn subnormal_numbers_are_open_unless_they_are_moved() {
        let tiny = 1e-40;
        assert_eq!(compared("ROOT y = f32[1] reverse(x), dimensions={0}", &[tiny], &[tiny]), AGREE);
        assert!(compared("ROOT y = f32[1] reverse(x), dimensions={0}", &[tiny], &[1.0]).is_err());
        assert_eq!(compared("ROOT y = f32[1] maximum(x, x)", &[tiny], &[0.0]), OPEN);
    }

    #[test]
    fn quotients_by_what_may_cancel_are_open() {
        let body = "three = f32[] constant(3)\n b = f32[1] broadcast(three), dimensions={}\n t = f32[1] multiply(x, b)
            u = f32[1] subtract(t, x)\n v = f32[1] subtract(u, x)\n w = f32[1] subtract(v, x)\n ROOT y = f32[1] divide(w, w)";
        assert_eq!(compared(body, &[0.1], &[f32::NAN]), OPEN);
        assert!(compared("ROOT y = f32[1] divide(x, x)", &[0.1], &[f32::NAN]).is_err());
    }

    #[test]
    fn roundings_of_computed_numbers_are_open() {
        assert_eq!(compared("s = f32[1] sine(x)\n ROOT y = f32[1] floor(s)", &[1.0], &[1.0]), OPEN);
        assert!(compared("ROOT y = f32[1] floor(x)", &[1.5], &[2.0]).is_err());
    }
}

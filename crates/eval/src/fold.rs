//! Folding elements by a function of the program, by the best means: a known sum, product, maximum or minimum over typed
//! slices; a straight-line scalar program; or, for anything else, the interpreter.

use crate::interpreter::Device;
use crate::ops::elementwise::convert_function;
use crate::scalar::{Function1, Registers, Scalar, ScalarFunction};
use half::{bf16, f16};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op};
use hloom_value::Array;
use hloom_value::ExecutionError;

/// Calls `$fold!(type, function, widen, narrow)` for the type and operation, and answers whether there is such a case.
macro_rules! fold_by_type {
    ($op:expr, $element_type:expr, $fold:ident) => {{
        macro_rules! integer {
            ($t:ty) => {
                match $op {
                    BinaryOp::Add => $fold!($t, <$t>::wrapping_add, same, same),
                    BinaryOp::Multiply => $fold!($t, <$t>::wrapping_mul, same, same),
                    BinaryOp::Maximum => $fold!($t, <$t as Ord>::max, same, same),
                    BinaryOp::Minimum => $fold!($t, <$t as Ord>::min, same, same),
                    BinaryOp::And => $fold!($t, |a: $t, b: $t| a & b, same, same),
                    BinaryOp::Or => $fold!($t, |a: $t, b: $t| a | b, same, same),
                    _ => false,
                }
            };
        }
        macro_rules! float {
            ($t:ty, $wide:expr, $narrow:expr) => {
                match $op {
                    BinaryOp::Add => $fold!($t, |a: f64, b: f64| a + b, $wide, $narrow),
                    BinaryOp::Multiply => $fold!($t, |a: f64, b: f64| a * b, $wide, $narrow),
                    BinaryOp::Maximum => $fold!($t, maximum, $wide, $narrow),
                    BinaryOp::Minimum => $fold!($t, minimum, $wide, $narrow),
                    _ => false,
                }
            };
        }
        match $element_type {
            ElementType::S8 => integer!(i8),
            ElementType::S16 => integer!(i16),
            ElementType::S32 => integer!(i32),
            ElementType::S64 => integer!(i64),
            ElementType::U8 => integer!(u8),
            ElementType::U16 => integer!(u16),
            ElementType::U32 => integer!(u32),
            ElementType::U64 => integer!(u64),
            ElementType::Pred => match $op {
                BinaryOp::And => $fold!(u8, |a: u8, b: u8| a & b, same, same),
                BinaryOp::Or => $fold!(u8, |a: u8, b: u8| a | b, same, same),
                _ => false,
            },
            ElementType::F32 => float!(f32, f64::from, |x: f64| x as f32),
            ElementType::F64 => float!(f64, same, same),
            ElementType::F16 => float!(f16, f64::from, hloom_numerics::f16_from_f64),
            ElementType::Bf16 => float!(bf16, f64::from, hloom_numerics::bf16_from_f64),
            _ => false,
        }
    }};
}

/// A function of the program, ready to be applied to scalars.
///
/// A program may hand a function numbers of another precision than its parameters have (a sum of bf16 by an addition of
/// f32), so arguments and results are converted where the types differ.
pub struct Fold {
    function: ScalarFunction,
    parameter_types: Vec<ElementType>,
    /// From the types given to the parameters'; empty if they are the same.
    to_parameters: Vec<Function1>,
    /// From the results' types to those asked for; empty if they are the same.
    from_results: Vec<Function1>,
    arguments: Vec<Scalar>,
    results: Vec<Scalar>,
    registers: Registers,
    /// The one operation that the function is, if it is one on its two parameters.
    known: Option<BinaryOp>,
}

impl Fold {
    /// `function` from scalars of the types `given` to scalars of the types `asked`.
    pub fn new(
        device: &Device<'_>,
        function: ComputationId,
        given: &[ElementType],
        asked: &[ElementType],
    ) -> Result<Fold, ExecutionError> {
        let module = device.module();
        let (parameter_types, result_types) =
            (Fold::parameter_types(module, function), Fold::result_types(module, function)?);
        if parameter_types.len() != given.len() || result_types.len() != asked.len() {
            return Err(ExecutionError::bug("a function has another number of parameters or results than is needed"));
        }
        let all_same = given.iter().chain(&parameter_types).chain(&result_types).all(|t| Some(t) == asked.first());
        Ok(Fold {
            function: device.scalar_function(function),
            to_parameters: conversions(given, &parameter_types)?,
            from_results: conversions(&result_types, asked)?,
            arguments: vec![Scalar::default(); given.len()],
            results: vec![Scalar::default(); asked.len()],
            known: Fold::known_operation(module, function).filter(|_| all_same),
            parameter_types,
            registers: Registers::default(),
        })
    }

    /// The types of the parameters of `function`.
    pub fn parameter_types(module: &Module, function: ComputationId) -> Vec<ElementType> {
        module.parameters(function).iter().filter_map(|&p| module[p].shape.element_type()).collect()
    }

    /// The types of the results of `function`.
    pub fn result_types(module: &Module, function: ComputationId) -> Result<Vec<ElementType>, ExecutionError> {
        let root = module.root(function).ok_or_else(|| ExecutionError::bug("a function has no result"))?;
        Ok(module[root].shape.leaves().iter().filter_map(|(_, s)| s.element_type()).collect())
    }

    /// The function's results for `arguments`, of which there must be as many as types were given.
    pub fn apply(&mut self, device: &mut Device<'_>, arguments: &[Scalar]) -> Result<&[Scalar], ExecutionError> {
        let mut given = arguments;
        if !self.to_parameters.is_empty() {
            for ((to, convert), &from) in self.arguments.iter_mut().zip(&self.to_parameters).zip(arguments) {
                *to = convert(from);
            }
            given = &self.arguments;
        }
        self.function.apply(device, &mut self.registers, &self.parameter_types, given, &mut self.results)?;
        for (result, convert) in self.results.iter_mut().zip(&self.from_results) {
            *result = convert(*result);
        }
        Ok(&self.results)
    }

    /// Whether the function is one that is known here for elements of that type.
    pub fn knows(&self, element_type: ElementType) -> bool {
        let Some(op) = self.known else { return false };
        macro_rules! known {
            ($t:ty, $fold:expr, $wide:expr, $narrow:expr) => {
                true
            };
        }
        fold_by_type!(op, element_type, known)
    }

    /// Folds each row of `input` into one element of `result`, starting from `init`; false if the function is not one
    /// that is known here.
    pub fn fold_rows(&self, input: &Array, row: usize, init: Scalar, result: &mut Array) -> bool {
        let Some(op) = self.known else { return false };
        macro_rules! fold {
            ($t:ty, $fold:expr, $wide:expr, $narrow:expr) => {{
                let fold = $fold;
                let init = $wide(<$t>::from_le_bytes(low_bytes(init)));
                let elements = input.elements::<$t>();
                for (n, out) in result.elements_mut::<$t>().iter_mut().enumerate() {
                    let row = &elements[n * row..(n + 1) * row];
                    *out = $narrow(row.iter().fold(init, |a, &b| fold(a, $wide(b))));
                }
                true
            }};
        }
        fold_by_type!(op, input.element_type(), fold)
    }

    /// Folds the elements at `positions`; `None` if the function is not one that is known here.
    pub fn fold_at(&self, input: &Array, positions: &[usize], init: Scalar) -> Option<Scalar> {
        let op = self.known?;
        let mut folded = init;
        macro_rules! fold {
            ($t:ty, $fold:expr, $wide:expr, $narrow:expr) => {{
                let fold = $fold;
                let init = $wide(<$t>::from_le_bytes(low_bytes(init)));
                let elements = input.elements::<$t>();
                let value: $t = $narrow(positions.iter().fold(init, |a, &p| fold(a, $wide(elements[p]))));
                let mut bytes = [0; 16];
                bytes[..size_of::<$t>()].copy_from_slice(&value.to_le_bytes());
                folded = Scalar(u128::from_le_bytes(bytes));
                true
            }};
        }
        fold_by_type!(op, input.element_type(), fold).then_some(folded)
    }
}

/// The conversions from one list of types to another; none if the lists are equal.
fn conversions(from: &[ElementType], to: &[ElementType]) -> Result<Vec<Function1>, ExecutionError> {
    if from == to {
        return Ok(Vec::new());
    }
    let each = from.iter().zip(to).map(|(&from, &to)| {
        convert_function(from, to).ok_or_else(|| ExecutionError::bug(format!("{from} cannot become {to}")))
    });
    each.collect()
}

fn same<T>(x: T) -> T {
    x
}

/// The larger; NaN if either is.
fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// The smaller; NaN if either is.
fn minimum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b { a } else { b }
}

fn low_bytes<const N: usize>(scalar: Scalar) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&scalar.0.to_le_bytes()[..N]);
    bytes
}

impl Fold {
    /// The operation, if `function` is one binary operation on its two parameters, in either order (all the operations that
    /// are folded here are commutative).
    pub fn known_operation(module: &Module, function: ComputationId) -> Option<BinaryOp> {
        let root = &module[module.root(function)?];
        let Op::Binary(op) = root.op else { return None };
        let [a, b] = module.parameters(function)[..] else { return None };
        (root.operands() == [a, b] || root.operands() == [b, a]).then_some(op)
    }

    /// The operations, one for each result, if `function` folds values of several types, or several values beside each
    /// other: each result is one operation on an accumulator and the value that goes with it. Conversions between
    /// floating-point types are set aside, so that a sum is carried wide and rounded once.
    pub fn known_operations(module: &Module, function: ComputationId) -> Option<Vec<BinaryOp>> {
        let through_converts = |mut i: InstructionId| {
            while let Op::Convert = module[i].op
                && module[i].shape.element_type().is_some_and(ElementType::is_float)
            {
                i = *module[i].operands().first()?;
            }
            Some(i)
        };
        let root = module.root(function)?;
        let parameters = module.parameters(function);
        let results = match module[root].op {
            Op::Tuple => module[root].operands(),
            _ => std::slice::from_ref(&root),
        };
        if parameters.len() != 2 * results.len() {
            return None;
        }
        let (accumulators, values) = parameters.split_at(results.len());
        let operation = |(&result, (&accumulator, &value)): (&InstructionId, (&InstructionId, &InstructionId))| {
            let result = through_converts(result)?;
            let Op::Binary(op) = module[result].op else { return None };
            let [a, b] = module[result].operands()[..] else { return None };
            let pair = [through_converts(a)?, through_converts(b)?];
            (pair == [accumulator, value] || pair == [value, accumulator]).then_some(op)
        };
        results.iter().zip(accumulators.iter().zip(values)).map(operation).collect()
    }

    /// A fold of numbers of one type by one operation.
    pub fn of_operation(device: &Device<'_>, function: ComputationId, op: BinaryOp) -> Fold {
        Fold {
            function: device.scalar_function(function),
            to_parameters: Vec::new(),
            from_results: Vec::new(),
            arguments: Vec::new(),
            results: Vec::new(),
            known: Some(op),
            parameter_types: Vec::new(),
            registers: Registers::default(),
        }
    }
}

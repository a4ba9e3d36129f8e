//! Folding elements by a function of the program, by the best means: a known sum, product, maximum or minimum over typed
//! slices; a straight-line scalar program; or, for anything else, the interpreter.

use crate::array::Array;
use crate::fault::Fault;
use crate::interpreter::Device;
use crate::scalar::{Registers, Scalar, ScalarFunction};
use half::{bf16, f16};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::ComputationId;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op};

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
pub struct Fold {
    function: ScalarFunction,
    types: Vec<ElementType>,
    results: Vec<Scalar>,
    result_types: Vec<ElementType>,
    registers: Registers,
    /// The one operation that the function is, if it is one on its two parameters.
    known: Option<BinaryOp>,
}

impl Fold {
    /// `function` on scalars of those types.
    pub fn new(device: &Device<'_>, function: ComputationId, types: &[ElementType]) -> Result<Fold, Fault> {
        let module = device.module();
        let root = module.root(function).ok_or_else(|| Fault::bug("a function has no result"))?;
        let result_types: Vec<ElementType> =
            module[root].shape.leaves().iter().filter_map(|(_, s)| s.element_type()).collect();
        Ok(Fold {
            function: device.scalar_function(function),
            types: types.into(),
            results: vec![Scalar::default(); result_types.len()],
            known: Fold::known_operation(module, function)
                .filter(|_| types.iter().all(|&t| Some(t) == result_types.first().copied())),
            result_types,
            registers: Registers::default(),
        })
    }

    /// The type of result `n`.
    pub fn result_type(&self, n: usize) -> Result<ElementType, Fault> {
        self.result_types.get(n).copied().ok_or_else(|| Fault::bug("a function has no such result"))
    }

    /// The function's results for `arguments`.
    pub fn apply(&mut self, device: &mut Device<'_>, arguments: &[Scalar]) -> Result<&[Scalar], Fault> {
        self.function.apply(device, &mut self.registers, &self.types, arguments, &mut self.results)?;
        Ok(&self.results)
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
}

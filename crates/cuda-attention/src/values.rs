//! What is known of an array's elements without running the program: one number for all, or a sum of positions.

use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, ConstantValue, Op, UnaryOp};

/// Bounds how deep expressions are followed.
const DEPTH: u32 = 16;

/// The number that all elements are.
pub(crate) fn splat(module: &Module, id: InstructionId) -> Option<f64> {
    splat_within(module, id, DEPTH)
}

fn splat_within(module: &Module, id: InstructionId, depth: u32) -> Option<f64> {
    let depth = depth.checked_sub(1)?;
    let operand = |n: usize| module[id].operands().get(n).and_then(|&o| splat_within(module, o, depth));
    match &module[id].op {
        Op::Constant(ConstantValue::Literal(literal)) => {
            let array = literal.as_array()?;
            if array.is_empty() {
                return None;
            }
            let first = array.element(0);
            if array.len() > 1024 || (1..array.len()).any(|i| array.element(i) != first) {
                return None;
            }
            number(array.element_type(), first)
        }
        Op::Broadcast { .. } | Op::Reshape { .. } | Op::Transpose { .. } | Op::Copy => operand(0),
        Op::Convert => {
            let value = operand(0)?;
            Some(match module[id].shape.element_type()? {
                ElementType::F32 => f64::from(value as f32),
                ElementType::Bf16 => half::bf16::from_f64(value).to_f64(),
                ElementType::F16 => half::f16::from_f64(value).to_f64(),
                _ => value,
            })
        }
        Op::Unary { op, .. } => match op {
            UnaryOp::Sqrt => Some(operand(0)?.sqrt()),
            UnaryOp::Rsqrt => Some(1.0 / operand(0)?.sqrt()),
            UnaryOp::Negate => Some(-operand(0)?),
            _ => None,
        },
        Op::Binary(op) => {
            let (a, b) = (operand(0)?, operand(1)?);
            match op {
                BinaryOp::Add => Some(a + b),
                BinaryOp::Subtract => Some(a - b),
                BinaryOp::Multiply => Some(a * b),
                BinaryOp::Divide => Some(a / b),
                BinaryOp::Power => Some(a.powf(b)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn number(element_type: ElementType, bytes: &[u8]) -> Option<f64> {
    let bits = |n: usize| -> Option<u64> {
        let mut raw = [0; 8];
        raw.get_mut(..n)?.copy_from_slice(bytes.get(..n)?);
        Some(u64::from_le_bytes(raw))
    };
    Some(match element_type {
        ElementType::F32 => f32::from_bits(bits(4)? as u32).into(),
        ElementType::F64 => f64::from_bits(bits(8)?),
        ElementType::Bf16 => half::bf16::from_bits(bits(2)? as u16).to_f64(),
        ElementType::F16 => half::f16::from_bits(bits(2)? as u16).to_f64(),
        ElementType::S32 => (bits(4)? as u32 as i32).into(),
        ElementType::S64 => bits(8)? as i64 as f64,
        ElementType::U32 => (bits(4)? as u32).into(),
        ElementType::Pred => f64::from(u8::from(bits(1)? != 0)),
        _ => return None,
    })
}

/// A sum of positions along dimensions and a constant: one coefficient for each dimension of the array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Affine {
    pub coefficients: Vec<i64>,
    pub constant: i64,
}

/// An array of integers as a sum of positions.
pub(crate) fn affine(module: &Module, id: InstructionId) -> Option<Affine> {
    affine_within(module, id, DEPTH)
}

fn affine_within(module: &Module, id: InstructionId, depth: u32) -> Option<Affine> {
    let depth = depth.checked_sub(1)?;
    let shape = module[id].shape.as_array()?;
    if !shape.element_type.is_integer() {
        return None;
    }
    let rank = shape.rank();
    let operand = |n: usize| module[id].operands().get(n).and_then(|&o| affine_within(module, o, depth));
    match &module[id].op {
        Op::Iota { dimension } => {
            let mut coefficients = vec![0; rank];
            *coefficients.get_mut(*dimension as usize)? = 1;
            Some(Affine { coefficients, constant: 0 })
        }
        Op::Constant(_) => {
            let value = splat(module, id)?;
            Some(Affine { coefficients: vec![0; rank], constant: value as i64 })
        }
        Op::Convert | Op::Copy => operand(0),
        Op::Broadcast { .. } | Op::Transpose { .. } | Op::Reshape { .. } => {
            let inner = operand(0)?;
            let coefficients = carry(module, id, &inner.coefficients)?;
            Some(Affine { coefficients, constant: inner.constant })
        }
        Op::Binary(op @ (BinaryOp::Add | BinaryOp::Subtract)) => {
            let (a, b) = (operand(0)?, operand(1)?);
            let sign = if *op == BinaryOp::Add { 1 } else { -1 };
            let coefficients = a.coefficients.iter().zip(&b.coefficients).map(|(x, y)| x + sign * y).collect();
            Some(Affine { coefficients, constant: a.constant.checked_add(sign * b.constant)? })
        }
        _ => None,
    }
}

/// The coefficients of an instruction that hands on its operand's elements, from those of the operand.
pub(crate) fn carry(module: &Module, id: InstructionId, inner: &[i64]) -> Option<Vec<i64>> {
    let shape = module[id].shape.as_array()?;
    match &module[id].op {
        Op::Broadcast { dimensions } => {
            let mut coefficients = vec![0; shape.rank()];
            for (&to, &coefficient) in dimensions.iter().zip(inner) {
                *coefficients.get_mut(to as usize)? = coefficient;
            }
            Some(coefficients)
        }
        Op::Transpose { dimensions } => dimensions.iter().map(|&d| inner.get(d as usize).copied()).collect(),
        Op::Reshape { .. } => {
            // Only dimensions of size 1 come and go.
            let from = module[*module[id].operands().first()?].shape.as_array()?;
            let mut kept = from.dims().iter().zip(inner).filter(|(size, _)| **size != 1);
            let mut coefficients = Vec::new();
            for &size in shape.dims() {
                if size == 1 {
                    coefficients.push(0);
                } else {
                    let (&old, &coefficient) = kept.next()?;
                    if old != size {
                        return None;
                    }
                    coefficients.push(coefficient);
                }
            }
            kept.next().is_none().then_some(coefficients)
        }
        _ => None,
    }
}

/// An array of predicates as a comparison of a sum of positions with 0.
pub(crate) fn comparison(module: &Module, id: InstructionId) -> Option<(Affine, ComparisonDirection)> {
    comparison_within(module, id, DEPTH)
}

fn comparison_within(module: &Module, id: InstructionId, depth: u32) -> Option<(Affine, ComparisonDirection)> {
    let depth = depth.checked_sub(1)?;
    match &module[id].op {
        Op::Compare { direction, .. } => {
            let &[left, right] = module[id].operands() else { return None };
            let (left, right) = (affine(module, left)?, affine(module, right)?);
            let coefficients = left.coefficients.iter().zip(&right.coefficients).map(|(x, y)| x - y).collect();
            Some((Affine { coefficients, constant: left.constant.checked_sub(right.constant)? }, *direction))
        }
        Op::Broadcast { .. } | Op::Transpose { .. } | Op::Reshape { .. } => {
            let (inner, direction) = comparison_within(module, *module[id].operands().first()?, depth)?;
            let coefficients = carry(module, id, &inner.coefficients)?;
            Some((Affine { coefficients, constant: inner.constant }, direction))
        }
        _ => None,
    }
}

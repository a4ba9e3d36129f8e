//! What one element of an operation takes on a core with vectors, in additions of f32.
//!
//! The one table of it: fusion weighs by it what is made twice, loops what is kept for a later pass, hoisting what is
//! carried through a loop. The numbers are those of 512-bit vectors in loops that find their data in a near cache,
//! rounded; what an addition takes on a machine is [`CoreCost`](crate::CoreCost)'s.

use hloom_ir::element_type::ElementType;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};

/// Complex functions are several real ones.
const COMPLEX_FUNCTION: f64 = 80.0;
/// A quotient or a root holds its unit for about as long as so many additions.
const QUOTIENT: f64 = 4.0;
/// Integers are divided one at a time.
const INTEGER_QUOTIENT: f64 = 12.0;

/// What a function of a type of 16 bits takes longer than one of f32, rounding aside.
const NARROW_FUNCTION: f64 = 8.0;
/// The longest chain of operations in a function.
const FUNCTION_DEPTH: f64 = 8.0;
/// An operation on integers.
const INTEGER_DEPTH: f64 = 0.4;
/// A reduction's last steps, within a vector.
const REDUCE_DEPTH: f64 = 6.0;

/// What takes no more is made again where it is needed, rather than written to memory and read.
pub const CHEAP: f64 = 6.0;

/// What rounding a result to its type takes, where that is computed in a wider one.
pub fn rounding(t: ElementType) -> f64 {
    match t {
        // Whether the last bit is odd, what to add, the sum, and the high half of it.
        ElementType::Bf16 => 4.0,
        // There and back.
        ElementType::F16 => 2.0,
        t if t.is_small_float() => 16.0,
        _ => 0.0,
    }
}

/// A function of one value of the type.
pub fn unary(op: UnaryOp, t: ElementType) -> f64 {
    match op {
        UnaryOp::Negate => 1.0,
        _ if t.is_complex() => COMPLEX_FUNCTION,
        // Exact of exact values.
        UnaryOp::Abs
        | UnaryOp::Not
        | UnaryOp::Ceil
        | UnaryOp::Floor
        | UnaryOp::Sign
        | UnaryOp::IsFinite
        | UnaryOp::RoundNearestAfz
        | UnaryOp::RoundNearestEven => 1.0,
        UnaryOp::CountLeadingZeros | UnaryOp::PopulationCount => 4.0,
        UnaryOp::Sqrt | UnaryOp::Rsqrt => QUOTIENT + rounding(t),
        UnaryOp::Exponential => 12.0 + rounding(t),
        _ => 20.0 + rounding(t),
    }
}

/// A function of two values of the type.
pub fn binary(op: BinaryOp, t: ElementType) -> f64 {
    match op {
        BinaryOp::Multiply if t.is_complex() => 4.0,
        BinaryOp::Divide if t.is_complex() => 40.0,
        BinaryOp::Divide | BinaryOp::Remainder if !t.is_float() && !t.is_complex() => INTEGER_QUOTIENT,
        BinaryOp::Divide => QUOTIENT + rounding(t),
        BinaryOp::Remainder => 30.0 + rounding(t),
        BinaryOp::Power | BinaryOp::Atan2 => 80.0 + rounding(t),
        BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply => 1.0 + rounding(t),
        _ => 1.0,
    }
}

/// A conversion to the type.
pub fn convert(to: ElementType) -> f64 {
    1.0 + rounding(to)
}

/// Finding one element by an index that is computed.
pub const GATHER: f64 = 4.0;

/// Taking an index apart by a division, which is done for each element by itself.
pub const INDEX_QUOTIENT: f64 = 40.0;

/// What one element of type `t` takes as time: [`instruction`], but for functions that take far longer than those that
/// choices are made between, for which any large number will do.
pub fn time(op: &Op, operands: usize, t: ElementType) -> Option<f64> {
    let is_integer = !t.is_float() && !t.is_complex();
    let function = match op {
        _ if t.is_complex() => None,
        Op::Unary { op: UnaryOp::Log, .. } => Some(26.0),
        Op::Unary { op: UnaryOp::LogPlusOne | UnaryOp::ExponentialMinusOne, .. } => Some(32.0),
        Op::Unary { op: UnaryOp::Sine | UnaryOp::Cosine | UnaryOp::Tan, .. } => Some(44.0),
        Op::Unary { op: UnaryOp::Cbrt, .. } => Some(180.0),
        Op::Binary(BinaryOp::Power) if t == ElementType::F64 => Some(500.0),
        Op::Binary(BinaryOp::Power) => Some(180.0),
        Op::Binary(BinaryOp::Atan2) => Some(96.0),
        Op::Binary(BinaryOp::Divide | BinaryOp::Remainder) if is_integer => Some(160.0),
        // More units take these, and a rotation that is written as three of them is one.
        Op::Binary(
            BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::ShiftLeft
            | BinaryOp::ShiftRightArithmetic
            | BinaryOp::ShiftRightLogical,
        ) => Some(0.6),
        _ => None,
    };
    match (function, op) {
        (Some(each), _) if is_integer => Some(each),
        (Some(each), _) => Some(each + rounding(t)),
        // By itself each piece is copied to its place.
        (None, Op::Concatenate { .. }) => Some(1.0),
        // What is found by an index that is computed is counted by the places where it lies.
        (None, Op::Gather(_)) => Some(1.0),
        // The parts of a function are computed for half a vector of such elements at a time.
        (None, Op::Unary { op, .. }) if rounding(t) > 0.0 && unary(*op, t) > CHEAP + rounding(t) => {
            Some(unary(*op, t) + NARROW_FUNCTION)
        }
        (None, op) => instruction(op, operands, t),
    }
}

/// How long the result for one element is waited for, in additions.
pub fn depth(op: &Op, operands: usize, t: ElementType) -> f64 {
    match op {
        Op::Broadcast { .. } | Op::Reshape { .. } | Op::Slice { .. } | Op::Transpose { .. } => 0.0,
        Op::Concatenate { .. } | Op::Reverse { .. } => 1.0,
        Op::Reduce { .. } => REDUCE_DEPTH,
        // Plain work on integers is done in a cycle.
        op if !t.is_float() && !t.is_complex() => {
            time(op, operands, t).map_or(0.0, |each| (INTEGER_DEPTH * each).clamp(INTEGER_DEPTH, FUNCTION_DEPTH))
        }
        // Most terms of a series do not wait for each other.
        op => time(op, operands, t).map_or(0.0, |each| each.clamp(1.0, FUNCTION_DEPTH)),
    }
}

/// What it takes to make one element of type `t` by `op` of so many operands, these aside; `None` for what is not made
/// element by element.
pub fn instruction(op: &Op, operands: usize, t: ElementType) -> Option<f64> {
    Some(match op {
        Op::Unary { op, .. } => unary(*op, t),
        Op::Binary(op) => binary(*op, t),
        Op::Convert => convert(t),
        Op::Compare { .. } | Op::Select | Op::BitcastConvert => 1.0,
        Op::Clamp | Op::ReducePrecision { .. } | Op::Pad { .. } => 2.0,
        Op::Reshape { .. } | Op::Broadcast { .. } | Op::Transpose { .. } | Op::Reverse { .. } | Op::Slice { .. } => 0.5,
        Op::DynamicSlice { .. } => 1.0,
        Op::Gather(_) => GATHER,
        Op::Concatenate { .. } => operands as f64,
        _ => return None,
    })
}

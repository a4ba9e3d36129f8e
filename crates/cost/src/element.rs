//! What one element of an operation takes on a core with vectors, in additions of f32.
//!
//! The one table of it: fusion weighs by it what is made twice, loops what is kept for a later pass, hoisting what is
//! carried through a loop, and the model of processors how long all of it takes. The numbers are those of 512-bit vectors
//! in loops that find their data in a near cache, rounded; what an addition takes on a machine is
//! [`CoreCost`](crate::CoreCost)'s.

use hloom_ir::element_type::ElementType;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};

/// Complex functions are several real ones.
const COMPLEX_FUNCTION: f64 = 80.0;
/// A quotient or a root holds its unit for about as long as so many additions.
const QUOTIENT: f64 = 4.0;
/// Integers are divided one at a time.
const INTEGER_QUOTIENT: f64 = 160.0;
/// More units take operations on bits, and a rotation that is written as three of them is one.
const BITWISE: f64 = 0.6;

/// What a function of a type of 16 bits takes longer than one of f32, rounding aside: its parts are computed for half a
/// vector of such elements at a time.
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
        UnaryOp::Exponential => function(12.0, t),
        UnaryOp::Log => function(26.0, t),
        UnaryOp::LogPlusOne | UnaryOp::ExponentialMinusOne => function(32.0, t),
        UnaryOp::Sine | UnaryOp::Cosine | UnaryOp::Tan => function(44.0, t),
        UnaryOp::Cbrt => function(180.0, t),
        _ => function(20.0, t),
    }
}

/// A function of the type, which takes so much for f32.
fn function(additions: f64, t: ElementType) -> f64 {
    match rounding(t) {
        0.0 => additions,
        rounding => additions + NARROW_FUNCTION + rounding,
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
        BinaryOp::Power if t.is_complex() => COMPLEX_FUNCTION,
        BinaryOp::Power if t == ElementType::F64 => 500.0,
        BinaryOp::Power => 180.0 + rounding(t),
        BinaryOp::Atan2 => 96.0 + rounding(t),
        BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::ShiftLeft
        | BinaryOp::ShiftRightArithmetic
        | BinaryOp::ShiftRightLogical => BITWISE,
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

/// How long the result for one element is waited for, in additions.
pub fn depth(op: &Op, operands: usize, t: ElementType) -> f64 {
    match op {
        Op::Broadcast { .. } | Op::Reshape { .. } | Op::Slice { .. } | Op::Transpose { .. } => 0.0,
        Op::Concatenate { .. } | Op::Gather(_) | Op::Reverse { .. } => 1.0,
        Op::Reduce { .. } => REDUCE_DEPTH,
        // Plain work on integers is done in a cycle.
        op if !t.is_float() && !t.is_complex() => {
            instruction(op, operands, t).map_or(0.0, |each| (INTEGER_DEPTH * each).clamp(INTEGER_DEPTH, FUNCTION_DEPTH))
        }
        // Most terms of a series do not wait for each other.
        op => instruction(op, operands, t).map_or(0.0, |each| each.clamp(1.0, FUNCTION_DEPTH)),
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

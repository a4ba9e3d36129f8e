//! The element-wise operations: one enum for those on one array, one for those on two.
//!
//! They carry no attributes, so one variant of [`crate::op::Op`] holds each kind, and code over them is a table.

use crate::op::Op;
use crate::opcode::Opcode;

macro_rules! elementwise {
    ($(#[$doc:meta])* $name:ident { $($variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs, reason = "each variant is the opcode of that name")]
        pub enum $name { $($variant),+ }

        impl $name {
            /// Every variant.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            /// The opcode.
            pub const fn opcode(self) -> Opcode {
                match self { $($name::$variant => Opcode::$variant),+ }
            }
            /// The operation of that opcode, if it is of this kind.
            pub const fn from_opcode(opcode: Opcode) -> Option<$name> {
                match opcode { $(Opcode::$variant => Some($name::$variant),)+ _ => None }
            }
        }
    };
}

elementwise!(
    /// Operations on each element of one array.
    UnaryOp {
        Abs, Acos, Acosh, Asin, Asinh, Atanh, Cbrt, Ceil, Cosine, Cosh, CountLeadingZeros, Erf, Exponential,
        ExponentialMinusOne, Floor, Imag, IsFinite, Log, LogPlusOne, Logistic, Negate, Not, PopulationCount, Real,
        RoundNearestAfz, RoundNearestEven, Rsqrt, Sign, Sine, Sinh, Sqrt, Tan, Tanh,
    }
);
elementwise!(
    /// Operations on the corresponding elements of two arrays.
    BinaryOp {
        Add, And, Atan2, Complex, Divide, Maximum, Minimum, Mulhi, Multiply, Or, Power, Remainder, ShiftLeft,
        ShiftRightArithmetic, ShiftRightLogical, Subtract, Xor,
    }
);

impl Op {
    /// Whether each element of the result is made of the corresponding elements of the operands, by plain arithmetic.
    pub const fn is_elementwise(&self) -> bool {
        matches!(
            self,
            Op::Unary { .. }
                | Op::Binary(_)
                | Op::Compare { .. }
                | Op::Select
                | Op::Clamp
                | Op::Convert
                | Op::BitcastConvert
                | Op::ReducePrecision { .. }
        )
    }
}

impl UnaryOp {
    /// Whether `result_accuracy` means something for it.
    pub const fn takes_result_accuracy(self) -> bool {
        use UnaryOp::*;
        matches!(
            self,
            Acos | Acosh
                | Asin
                | Asinh
                | Atanh
                | Cbrt
                | Cosine
                | Cosh
                | Erf
                | Exponential
                | ExponentialMinusOne
                | Log
                | LogPlusOne
                | Logistic
                | Rsqrt
                | Sine
                | Sinh
                | Sqrt
                | Tan
                | Tanh
        )
    }
}

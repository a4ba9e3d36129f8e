//! The small and odd numbers of HLO: conversions of the f8, f6 and f4 types and of bf16 and f16,
//! exact reading and printing of floats, and the integer semantics of the language.
//!
//! Invariants: nothing here panics on any value, every float conversion rounds once (to nearest,
//! ties to even), and every rule follows XLA where XLA has one.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod decimal;
pub mod format;
pub mod int;
pub mod parse;
pub mod small_float;

pub use half::{bf16, f16};
pub use small_float::{
    F4E2M1FN, F6E2M3FN, F6E3M2FN, F8E3M4, F8E4M3, F8E4M3B11FNUZ, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0FNU,
    Format, NanKind, SmallFloat, bf16_from_f64, f16_from_f64,
};

//! What is told of programs beyond their results: the semantic difference of two modules ([`diff`]), where two sets of
//! results disagree ([`values`]), and the smallest program that still shows a fault ([`reduce`], [`bisect`]).
//!
//! Everything here takes values and gives values or text; reading files, running programs and printing are the
//! caller's.

pub mod bisect;
pub mod diff;
pub mod reduce;
pub mod source;
pub mod values;

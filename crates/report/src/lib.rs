//! What is told of programs beyond their results: the semantic difference of two modules ([`diff`]).
//!
//! Everything here takes values and gives values or text; reading files, running programs and printing are the
//! caller's.

pub mod diff;
pub mod source;

//! What is told of programs beyond their results: pages about them ([`page`], [`index`]), the semantic difference of two
//! ([`diff`]), where two sets of results disagree ([`values`]), and the smallest program that still shows a fault
//! ([`reduce`], [`bisect`]).
//!
//! Everything here takes values and gives values or text; reading files, running programs and printing are the
//! caller's.

pub mod bisect;
pub mod collectives;
mod columns;
pub mod diff;
mod highlights;
pub mod index;
pub mod memory;
mod module_data;
pub mod page;
pub mod reduce;
pub mod source;
pub mod timeline;
pub mod values;
pub mod words;

//! What is true of a module: pure functions from a module to facts about it.
//!
//! Everything here is linear in the size of the module, and total: a verified module gives an answer, never a panic.

pub mod cost;
pub mod devices;
pub mod effects;
pub mod summary;
pub mod trip_count;
pub mod unchanged;

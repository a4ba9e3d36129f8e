//! Collectives put together, so that devices meet less often, and started early, so that nobody need wait for them.

pub mod combine;
pub mod order;
pub mod start;

//! Collectives put together, so that devices meet less often, and started early, so that they need not wait.

pub mod combine;
pub mod start;

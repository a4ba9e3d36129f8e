//! Global programs over many devices: from shardings on some arrays to the program of one device.
//!
//! [`mod@propagate`] decides the sharding of every instruction from the annotations of some; [`mod@partition`] writes the
//! program of one device: its part of every value, and the collectives between; [`mod@search`] chooses the shardings of a
//! program that has none.

mod axes;
mod counting;
mod factors;
pub mod gspmd;
pub mod partition;
pub mod propagate;
pub mod report;
mod rules;
pub mod search;
pub mod shards;
pub mod shardy;

pub use partition::{Partitioned, partition, partition_with};
pub use propagate::{PropagationOptions, PropagationReport, PropagationStep, ShardingConflict, StepSource, propagate};

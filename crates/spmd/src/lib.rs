//! Global programs over many devices: from shardings on some arrays to the program of one device.
//!
//! [`mod@propagate`] decides the sharding of every instruction from the annotations of some.

mod axes;
mod factors;
pub mod gspmd;
pub mod propagate;
mod rules;
pub mod shardy;

pub use propagate::{PropagationOptions, PropagationReport, PropagationStep, StepSource, propagate};

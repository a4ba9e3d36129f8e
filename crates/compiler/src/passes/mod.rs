//! The passes that stand on the planner, and the registry of all passes that every backend can name.

mod assign_kernels;
mod copy_insertion;
mod flatten_call_graph;
mod program_order;
mod schedule;

use hloom_passes::{Pass, Registry};
use std::sync::OnceLock;

/// The passes of this crate.
static OWN: &[&Pass] =
    &[&assign_kernels::PASS, &copy_insertion::PASS, &flatten_call_graph::PASS, &program_order::PASS, &schedule::PASS];

/// All passes by name: the rewrites for every machine, fusion, and those that stand on the planner.
pub fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| Registry::new([hloom_passes::registry::ALL, hloom_fusion::PASSES, OWN]))
}

//! What a simulation is asked for besides the module and the target.

use hloom_cost::CustomCost;
use hloom_target::Topology;

/// Where the cycles of instructions come from.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CycleSource {
    /// The cost model.
    #[default]
    Model,
    /// What the compiler wrote into the module.
    Dump,
}

/// What a simulation is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How devices are joined; the usual topology for the program's devices, unless given.
    pub topology: Option<Topology>,
    /// Where cycles come from.
    pub cycles: CycleSource,
    /// What calls cost, by target or instruction name.
    pub costs: Vec<(String, CustomCost)>,
    /// How often loops run, by name.
    pub trip_counts: Vec<(String, u64)>,
}

//! Lists of passes: what is done to a module, in order. A backend names its list as data ([`PipelineStep`]); a
//! [`Registry`](crate::registry::Registry) finds the passes.

use crate::pass::Pass;

/// What is done to a module, in order.
#[derive(Clone, Debug)]
pub struct PassList {
    /// The steps.
    pub steps: Vec<PassStep>,
}

/// One or more passes.
#[derive(Clone, Debug)]
pub enum PassStep {
    /// One pass, once.
    Once(&'static Pass),
    /// Passes that give each other work: all of them again, until none changes anything or the bound is reached.
    Fixpoint {
        /// How often at most.
        bound: usize,
        /// The passes.
        passes: Vec<&'static Pass>,
    },
}

/// A step of a backend's pipeline, by names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PipelineStep {
    /// One pass, once.
    Once(&'static str),
    /// Passes to a fixpoint, at most so often.
    Fixpoint(usize, &'static [&'static str]),
}

impl PipelineStep {
    /// The names of the passes in it.
    pub fn names(&self) -> &[&'static str] {
        match self {
            PipelineStep::Once(name) => std::slice::from_ref(name),
            PipelineStep::Fixpoint(_, names) => names,
        }
    }
}

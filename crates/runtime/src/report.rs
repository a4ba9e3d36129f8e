//! What became of a program: which steps are native and which are left to the evaluator, and why.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What became of a program.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Why the whole program is left to the evaluator, if it is.
    pub evaluated: Option<String>,
    /// Steps with a native kernel, by what they do.
    pub native: BTreeMap<String, usize>,
    /// Steps left to the evaluator, by opcode, each with the reason and the instructions' names.
    pub fallback: BTreeMap<String, Fallback>,
    /// Bytes of the block of temporaries of each device.
    pub temp_bytes: usize,
    /// How long each stage of compiling took, in order.
    pub stages: Vec<(&'static str, Duration)>,
}

/// Steps of one opcode that are left to the evaluator.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Fallback {
    /// Why the first of them is.
    pub reason: String,
    /// The instructions.
    pub instructions: Vec<String>,
}

impl Report {
    /// Does `work` as a stage of compiling.
    pub(crate) fn stage<T>(&mut self, name: &'static str, work: impl FnOnce(&mut Report) -> T) -> T {
        let begun = Instant::now();
        let result = work(self);
        self.stages.push((name, begun.elapsed()));
        result
    }

    /// The number of native steps.
    pub fn native_steps(&self) -> usize {
        self.native.values().sum()
    }

    /// The number of steps left to the evaluator.
    pub fn fallback_steps(&self) -> usize {
        self.fallback.values().map(|f| f.instructions.len()).sum()
    }
}

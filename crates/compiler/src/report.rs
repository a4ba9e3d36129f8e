//! What became of a program: which steps are native and which are left to the evaluator, and why.

use hloom_passes::PassesReport;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What became of a program.
#[derive(Clone, Default, Debug)]
pub struct CompileReport {
    /// Steps with a native kernel, by what they do.
    pub native: BTreeMap<String, usize>,
    /// Steps left to the evaluator, by opcode, each with the reason and the instructions' names.
    pub fallback: BTreeMap<String, Fallback>,
    /// Instructions that do work and have native code, each of a fusion for itself.
    pub native_instructions: usize,
    /// Bytes of the block of temporaries of each device.
    pub temp_bytes: usize,
    /// Bytes of arguments, results and temporaries of each device, aliases once.
    pub peak_bytes: usize,
    /// What each pass did.
    pub passes: PassesReport,
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

impl CompileReport {
    /// Does `work` as a stage of compiling.
    pub fn stage<T>(&mut self, name: &'static str, work: impl FnOnce(&mut CompileReport) -> T) -> T {
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

    /// The share of the instructions that do work and have native code.
    pub fn native_share(&self) -> f64 {
        let (native, fallback) = (self.native_instructions, self.fallback_steps());
        if native + fallback == 0 { 1.0 } else { native as f64 / (native + fallback) as f64 }
    }

    /// Notes an instruction for the evaluator.
    pub fn fall_back(&mut self, opcode: &str, instruction: &str, reason: &str) {
        let fallback = self.fallback.entry(opcode.to_owned()).or_default();
        if fallback.instructions.is_empty() {
            fallback.reason = reason.to_owned();
        }
        fallback.instructions.push(instruction.to_owned());
    }
}

//! What stands for a step while layouts are tried: the program itself, or two of few layers where it repeats many.

use super::evaluate::{annotated, mesh, price, realize};
use super::repeats::Repeats;
use super::{ActivationClass, Choice, Price, SearchOptions};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use rustc_hash::FxHashSet;

/// Layers at each end of the shorter and of the longer program.
const ENDS: [usize; 2] = [1, 2];

/// A program that is priced.
struct Sample {
    module: Module,
    activations: Vec<ActivationClass>,
}

/// What stands for a step.
pub(super) struct StepModel {
    /// The program, or the shorter and the longer one.
    samples: Vec<Sample>,
    layers: Option<usize>,
}

impl Sample {
    fn new(module: Module, activations: &[ActivationClass]) -> Sample {
        let all = module.computations().iter().flat_map(|&c| module[c].instructions());
        let present: FxHashSet<InstructionId> = all.copied().collect();
        let here = |class: &ActivationClass| {
            let members = class.members.iter().copied().filter(|i| present.contains(i)).collect();
            ActivationClass { members, ..class.clone() }
        };
        let activations = activations.iter().map(here).collect();
        Sample { module, activations }
    }

    fn price(&self, choice: &Choice, options: &SearchOptions<'_>, devices: i64) -> Option<Price> {
        let mut module = annotated(&self.module, &mesh(&options.mesh), &self.activations, choice);
        let (_, made) = realize(&mut module, devices).ok()?;
        price(&made, options).ok()
    }
}

impl StepModel {
    pub(super) fn new(source: &Module, activations: &[ActivationClass]) -> StepModel {
        let shortened = Repeats::find(source).and_then(|repeats| {
            let of = |ends: usize| Some(Sample::new(repeats.shortened(source, ends)?, activations));
            Some((ENDS.iter().map(|&ends| of(ends)).collect::<Option<Vec<_>>>()?, repeats.layers))
        });
        match shortened {
            Some((samples, layers)) => StepModel { samples, layers: Some(layers) },
            None => StepModel { samples: vec![Sample::new(source.clone(), activations)], layers: None },
        }
    }

    /// How many instructions one price partitions.
    pub(super) fn instruction_count(&self) -> usize {
        self.samples.iter().map(|s| s.module.instruction_count()).sum()
    }

    pub(super) fn is_shortened(&self) -> bool {
        self.layers.is_some()
    }

    /// How many layers are repeated, where that was made use of.
    pub(super) fn layers(&self) -> Option<usize> {
        self.layers
    }

    /// What a step costs; nothing if it cannot be partitioned so.
    pub(super) fn price(&self, choice: &Choice, options: &SearchOptions<'_>, devices: i64) -> Option<Price> {
        let last = self.samples.last()?.price(choice, options, devices)?;
        let Some(layers) = self.layers else { return Some(last) };
        let first = self.samples.first()?.price(choice, options, devices)?;
        let [few, more] = ENDS.map(|ends| 2 * ends);
        let rest = (layers - more) as f64 / (more - few) as f64;
        let line = |of: &dyn Fn(&Price) -> f64| of(&last) + (of(&last) - of(&first)) * rest;
        Some(Price {
            seconds: line(&|p| p.seconds),
            communication_seconds: line(&|p| p.communication_seconds),
            wire_bytes: line(&|p| p.wire_bytes),
            memory_bytes: line(&|p| p.memory_bytes as f64).max(0.0) as u64,
        })
    }
}

//! How shardings came about.

use hloom_ir::entity::InstructionId;
use hloom_ir::sharding::ShardingKind;

/// Where a step took a sharding from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepSource {
    /// The program says it.
    Annotation,
    /// It went through an instruction, from the value that the other step is about.
    Through {
        /// The instruction.
        instruction: InstructionId,
        /// The step that gave the value on its other side the axes.
        step: Option<usize>,
    },
    /// It is that of another member of a sharding group.
    Group {
        /// The step of that member.
        step: Option<usize>,
    },
}

/// One change of one value's sharding.
#[derive(Clone, Debug)]
pub struct PropagationStep {
    /// The instruction whose result it is.
    pub instruction: InstructionId,
    /// Which leaf of its result.
    pub leaf: usize,
    /// The sharding from then on.
    pub sharding: ShardingKind,
    /// Where it was taken from.
    pub source: StepSource,
}

/// How every sharding came about.
#[derive(Clone, Debug, Default)]
pub struct PropagationReport {
    /// In the order in which shardings were set.
    pub steps: Vec<PropagationStep>,
    /// For each instruction leaf that shares its sharding with another (a tuple's element, a loop's argument), the one
    /// that steps are about.
    pub(crate) aliases: rustc_hash::FxHashMap<(InstructionId, usize), (InstructionId, usize)>,
}

impl PropagationReport {
    /// The steps that led to the sharding of an instruction's leaf: the last one first, each followed by the one it took
    /// the axes from, down to an annotation of the program.
    pub fn explain(&self, instruction: InstructionId, leaf: usize) -> Vec<&PropagationStep> {
        let (instruction, leaf) = *self.aliases.get(&(instruction, leaf)).unwrap_or(&(instruction, leaf));
        let is_own = |s: &PropagationStep| s.instruction == instruction && s.leaf == leaf;
        let mut next = self.steps.iter().rposition(is_own);
        let mut chain = Vec::new();
        while let Some(step) = next.and_then(|i| self.steps.get(i)) {
            // A step takes from an earlier one, so this ends.
            let before = next;
            chain.push(step);
            next = match step.source {
                StepSource::Annotation => None,
                StepSource::Through { step, .. } | StepSource::Group { step } => step,
            };
            next = next.filter(|n| Some(*n) < before);
        }
        chain
    }
}

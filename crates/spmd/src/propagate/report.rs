//! How shardings came about.

use super::conflict::ShardingConflict;
use hloom_ir::entity::InstructionId;
use hloom_ir::sharding::ShardingKind;
use smallvec::SmallVec;

/// Where a step took a sharding from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepSource {
    /// The program says it.
    Annotation,
    /// It went through an instruction, from the values that other steps are about.
    Through {
        /// The instruction.
        instruction: InstructionId,
        /// The steps of the values that have axes which are new here along the same dimensions, each with those axes.
        steps: SmallVec<[(usize, SmallVec<[u32; 2]>); 2]>,
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
    /// Where shardings that the program gives do not fit together.
    pub conflicts: Vec<ShardingConflict>,
    /// For each instruction leaf that shares its sharding with another (a tuple's element, a loop's argument), the one
    /// that steps are about.
    pub(crate) aliases: rustc_hash::FxHashMap<(InstructionId, usize), (InstructionId, usize)>,
}

impl PropagationReport {
    /// The steps that led to the sharding of an instruction's leaf: the last one first, each followed by those it took its
    /// axes from, axis by axis, down to annotations of the program.
    pub fn explain(&self, instruction: InstructionId, leaf: usize) -> Vec<&PropagationStep> {
        let (instruction, leaf) = *self.aliases.get(&(instruction, leaf)).unwrap_or(&(instruction, leaf));
        let is_own = |s: &PropagationStep| s.instruction == instruction && s.leaf == leaf;
        let mut chain = Vec::new();
        let mut seen = rustc_hash::FxHashSet::default();
        // Steps to be told, with the axes that are followed: of the sharding asked about, those that came that way.
        let mut pending: Vec<(usize, Option<Vec<u32>>)> = Vec::new();
        pending.extend(self.steps.iter().rposition(is_own).map(|n| (n, None)));
        while let Some((number, wanted)) = pending.pop() {
            let Some(step) = self.steps.get(number).filter(|_| seen.insert(number)) else { continue };
            chain.push(step);
            let axes = axes_of(&step.sharding);
            let followed: Vec<u32> = match &wanted {
                Some(wanted) => wanted.iter().copied().filter(|a| axes.contains(a)).collect(),
                None => axes,
            };
            // The same value may have had some of the axes before.
            let same = |s: &PropagationStep| s.instruction == step.instruction && s.leaf == step.leaf;
            let before = self.steps[..number].iter().rposition(same);
            let all = |n: usize| (n, self.steps.get(n).map_or_else(Vec::new, |s| axes_of(&s.sharding)));
            let sources: Vec<(usize, Vec<u32>)> = match &step.source {
                StepSource::Annotation => Vec::new(),
                StepSource::Group { step } => step.iter().copied().map(all).collect(),
                StepSource::Through { steps, .. } => {
                    steps.iter().map(|(n, axes)| (*n, axes.to_vec())).chain(before.map(all)).collect()
                }
            };
            // A step takes from earlier ones, so this ends.
            let mut left = followed.clone();
            let mut next: Vec<(usize, Option<Vec<u32>>)> = Vec::new();
            for (source, has) in sources.into_iter().filter(|s| s.0 < number) {
                let (taken, rest): (Vec<u32>, Vec<u32>) = left.iter().partition(|a| has.contains(a));
                if !taken.is_empty() || followed.is_empty() && next.is_empty() {
                    next.push((source, Some(taken)));
                }
                left = rest;
            }
            pending.extend(next.into_iter().rev());
        }
        chain
    }
}

/// The axes that cut a value.
fn axes_of(kind: &ShardingKind) -> Vec<u32> {
    match kind {
        ShardingKind::Named(named) => named.dims.iter().flat_map(|d| &d.axes).map(|a| a.axis).collect(),
        _ => Vec::new(),
    }
}

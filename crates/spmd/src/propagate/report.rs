//! How shardings came about.

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
        /// The steps that gave the values on its other side axes that are new here.
        steps: SmallVec<[usize; 2]>,
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
        let mut wanted: Option<Vec<u32>> = None;
        while let Some((number, step)) = next.and_then(|i| Some((i, self.steps.get(i)?))) {
            chain.push(step);
            let axes = axes_of(&step.sharding);
            // The axes that are followed: of the sharding asked about, those that came this way.
            let followed: Vec<u32> = match &wanted {
                Some(wanted) => wanted.iter().copied().filter(|a| axes.contains(a)).collect(),
                None => axes,
            };
            // A step takes from an earlier one, so this ends.
            next = match &step.source {
                StepSource::Annotation => None,
                StepSource::Group { step } => *step,
                StepSource::Through { steps, .. } => {
                    let has = |&&s: &&usize| {
                        self.steps.get(s).is_some_and(|s| axes_of(&s.sharding).iter().any(|a| followed.contains(a)))
                    };
                    steps.iter().find(has).or(steps.first()).copied()
                }
            };
            next = next.filter(|&n| n < number);
            wanted = Some(followed);
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

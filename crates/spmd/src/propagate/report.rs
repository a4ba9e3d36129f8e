//! How shardings came about.

use super::conflict::{ShardingConflict, conflicts};
use super::hlo_graph::HloGraph;
use crate::axes::Axis;
use crate::factors::{Origin, ValueRef};
use crate::rules::TensorFactors;
use hloom_ir::entity::InstructionId;
use hloom_ir::sharding::ShardingKind;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::OnceLock;

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
#[derive(Debug)]
pub struct PropagationReport {
    /// Where shardings that the program gives do not fit together.
    pub conflicts: Vec<ShardingConflict>,
    /// What was propagated over, with the history of every value.
    built: HloGraph,
    /// The history in terms of instructions, once someone asks.
    steps: OnceLock<Vec<PropagationStep>>,
}

impl PropagationReport {
    pub(crate) fn new(built: HloGraph) -> PropagationReport {
        PropagationReport { conflicts: conflicts(&built), built, steps: OnceLock::new() }
    }

    /// The steps that led to the sharding of an instruction's leaf: the last one first, each followed by those it took its
    /// axes from, axis by axis, down to annotations of the program.
    pub fn explain(&self, instruction: InstructionId, leaf: usize) -> Vec<&PropagationStep> {
        let (instruction, leaf) = self.built.owner(instruction, leaf);
        let all_steps = self.steps.get_or_init(|| steps_of(&self.built));
        let is_own = |s: &PropagationStep| s.instruction == instruction && s.leaf == leaf;
        let mut chain = Vec::new();
        let mut seen = rustc_hash::FxHashSet::default();
        // Steps to be told, with the axes that are followed: of the sharding asked about, those that came that way.
        let mut pending: Vec<(usize, Option<Vec<u32>>)> = Vec::new();
        pending.extend(all_steps.iter().rposition(is_own).map(|n| (n, None)));
        while let Some((number, wanted)) = pending.pop() {
            let Some(step) = all_steps.get(number).filter(|_| seen.insert(number)) else { continue };
            chain.push(step);
            let axes = axes_of(&step.sharding);
            let followed: Vec<u32> = match &wanted {
                Some(wanted) => wanted.iter().copied().filter(|a| axes.contains(a)).collect(),
                None => axes,
            };
            // The same value may have had some of the axes before.
            let same = |s: &PropagationStep| s.instruction == step.instruction && s.leaf == step.leaf;
            let before = all_steps[..number].iter().rposition(same);
            let all = |n: usize| (n, all_steps.get(n).map_or_else(Vec::new, |s| axes_of(&s.sharding)));
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

/// How every sharding came about, in terms of instructions.
fn steps_of(built: &HloGraph) -> Vec<PropagationStep> {
    let mut last: FxHashMap<ValueRef, usize> = FxHashMap::default();
    let mut steps = Vec::with_capacity(built.graph.history.len());
    for (k, (value, origin, sharding)) in built.graph.history.iter().enumerate() {
        let before = last.get(value).map(|&j| &built.graph.history[j].2);
        let is_new =
            |axis: &Axis| before.is_none_or(|b| !b.dims.iter().flat_map(|d| &d.axes).any(|a| a.contains(*axis)));
        let source = match *origin {
            Origin::Annotated => StepSource::Annotation,
            Origin::Group(other) => StepSource::Group { step: last.get(&other).copied() },
            Origin::Through(op) => {
                let op_node = &built.graph.ops[op.index()];
                let factors = &op_node.rule.tensors;
                // The new axes, each with the factors that it cuts.
                let mut new: Vec<(Axis, u16)> = Vec::new();
                for (_, dims) in op_node.tensors.iter().zip(factors).filter(|(t, _)| t.value == Some(*value)) {
                    for (dim, factors) in sharding.dims.iter().zip(dims) {
                        let axes = dim.axes.iter().filter(|a| is_new(a));
                        new.extend(axes.flat_map(|&a| factors.iter().map(move |&f| (a, f))));
                    }
                }
                let gave = |other: ValueRef, dims: &TensorFactors| {
                    let j = *last.get(&other)?;
                    let has = &built.graph.history[j].2.dims;
                    let cuts = |&&(axis, factor): &&(Axis, u16)| {
                        has.iter()
                            .zip(dims)
                            .any(|(d, f)| f.contains(&factor) && d.axes.iter().any(|a| a.overlaps(axis)))
                    };
                    let axes: SmallVec<[u32; 2]> = new.iter().filter(cuts).map(|(axis, _)| axis.index).collect();
                    (!axes.is_empty()).then_some((j, axes))
                };
                let others = op_node.tensors.iter().zip(factors).filter_map(|(t, dims)| Some((t.value?, dims)));
                let steps = others.filter(|(o, _)| o != value).filter_map(|(o, dims)| gave(o, dims)).collect();
                StepSource::Through { instruction: built.instructions[op.index()], steps }
            }
        };
        let (instruction, leaf) = built.owners[value.index()];
        let kind = ShardingKind::Named(built.graph.to_named(sharding));
        steps.push(PropagationStep { instruction, leaf, sharding: kind, source });
        last.insert(*value, k);
    }
    steps
}

/// The axes that cut a value.
fn axes_of(kind: &ShardingKind) -> Vec<u32> {
    match kind {
        ShardingKind::Named(named) => named.dims.iter().flat_map(|d| &d.axes).map(|a| a.axis).collect(),
        _ => Vec::new(),
    }
}

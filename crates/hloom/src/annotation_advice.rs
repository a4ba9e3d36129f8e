//! What one annotation more would save: where a value changes its form, one of the two forms is stated of it, the program
//! is partitioned anew, and what it sends then is counted.

use crate::global::Global;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::sharding::{LeafSharding, NamedSharding, Sharding, ShardingKind};
use hloom_ir::verify::{VerifyOptions, verify};
use hloom_ir::{Op, device_list::Mesh};
use hloom_spmd::partition::Change;
use hloom_spmd::partition::spec::Spec;
use hloom_spmd::report::{PartitionReport, report};
use std::collections::HashMap;
use std::sync::Arc;

/// So many collectives are looked at, those that send most first, and so many annotations tried.
const MOST_COLLECTIVES: usize = 8;
const MOST_TRIALS: usize = 16;
/// Instructions that may be partitioned in all: some seconds of work. At least one annotation is tried.
const BUDGET: usize = 150_000;
/// What saves less of the whole is not worth a word.
const WORTH: f64 = 0.02;
/// So many are told.
const MOST_TOLD: usize = 3;

/// An annotation that would save something.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The instruction that it would be on.
    pub instruction: String,
    /// The line of the source that it comes from, if known.
    pub source: String,
    /// What it would say.
    pub sharding: Sharding,
    /// Bytes that a device would send then.
    pub wire_bytes: f64,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Advised {
    /// The annotations that would save most, the best first.
    pub best: Vec<Advice>,
    /// How many more there were to try than a program of this size allows.
    pub untried: usize,
}

/// Tries annotations. `original` is the program before its shardings were decided.
pub fn advise(original: &Module, made: &Global, figures: &PartitionReport) -> Advised {
    let most_trials = (BUDGET / original.instruction_count().max(1)).clamp(1, MOST_TRIALS);
    let mut untried = 0;
    let devices = made.partitioned.axes.devices();
    let mesh = mesh_of(original);
    let mut found: Vec<Advice> = Vec::new();
    let mut tried: Vec<(InstructionId, Sharding)> = Vec::new();
    for (instruction, spec) in candidates(made, figures) {
        let Some(at) = annotatable(original, &made.source, instruction) else { continue };
        let Some(sharding) = sharding_of(made, mesh.as_ref(), &spec) else { continue };
        if tried.contains(&(at, sharding.clone())) {
            continue;
        }
        tried.push((at, sharding.clone()));
        if tried.len() > most_trials {
            untried += 1;
            continue;
        }
        let mut annotated = original.clone();
        annotated.instruction_mut(at).common.sharding = Some(Arc::new(sharding.clone()));
        let Ok(annotated) = verify(annotated, &VerifyOptions::default()) else { continue };
        let Ok(then) = Global::partition(annotated, devices) else { continue };
        let then = report(&then.source, &then.partitioned, &then.program);
        let saves = then.wire_bytes < figures.wire_bytes * (1.0 - WORTH);
        if saves && then.flops as f64 <= figures.flops as f64 * (1.0 + WORTH) {
            let metadata = original[at].common.metadata.as_deref().filter(|m| !m.source_file.is_empty());
            let source = metadata.map_or_else(String::new, |m| format!("{}:{}", m.source_file, m.source_line));
            let instruction = original[at].name().to_owned();
            found.push(Advice { instruction, source, sharding, wire_bytes: then.wire_bytes });
        }
    }
    found.sort_by(|a, b| a.wire_bytes.total_cmp(&b.wire_bytes));
    found.truncate(MOST_TOLD);
    Advised { best: found, untried }
}

/// Values of the source and forms that they might be told to have, what sends most first.
fn candidates(made: &Global, figures: &PartitionReport) -> Vec<(InstructionId, Spec)> {
    let sent: HashMap<&str, f64> = figures.collectives.iter().map(|c| (c.name.as_str(), c.wire)).collect();
    let mut changes: Vec<(f64, Option<InstructionId>, &Change)> = Vec::new();
    for note in &made.partitioned.notes {
        if let Some(change) = note.change.as_deref()
            && let Some(&wire) = sent.get(made.program.module()[note.instruction].name())
        {
            changes.push((wire, note.source, change));
        }
    }
    changes.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut all = Vec::new();
    for (_, user, change) in changes.into_iter().take(MOST_COLLECTIVES) {
        let sizes = |i: InstructionId| made.source[i].shape.as_array().map(|a| a.dims().to_vec());
        let Some(value) = change.value else { continue };
        let Some(dims) = sizes(value).filter(|d| d.len() == change.to.dims.len()) else { continue };
        all.push((value, change.to.complete()));
        // A sum may be left in pieces by those who add it up.
        let parts = change.from.partial.without(change.to.used()).list();
        if !parts.is_empty() {
            let pieces = made.partitioned.axes.product(&parts);
            for (d, &size) in dims.iter().enumerate() {
                let mut scattered = change.to.complete();
                scattered.dims[d].extend(parts.iter().copied());
                if size % (made.partitioned.axes.product(&change.to.dims[d]) * pieces) == 0 {
                    all.push((value, scattered));
                }
            }
        }
        // What needs it may take it as it lies.
        if let Some(user) = user.filter(|&u| u != value && sizes(u).as_ref() == Some(&dims)) {
            all.push((user, change.from.complete()));
        }
    }
    all
}

/// The instruction of the original program that stands for one of the source, if it is an array of which nothing is said.
fn annotatable(original: &Module, source: &Module, i: InstructionId) -> Option<InstructionId> {
    let at = original.instruction_by_name(source[i].name())?;
    let is_same = original[at].shape.as_array()?.dims() == source[i].shape.as_array()?.dims();
    let is_said = original[at].common.sharding.is_some() || matches!(original[at].op, Op::GetTupleElement { .. });
    (is_same && !is_said && original[at].opcode() == source[i].opcode()).then_some(at)
}

/// A form as the program states shardings: by the axes of its mesh, or as tiles.
fn sharding_of(made: &Global, mesh: Option<&Arc<Mesh>>, spec: &Spec) -> Option<Sharding> {
    if !spec.manual.is_empty() {
        return None;
    }
    let kind = spec.to_sharding(&made.partitioned.axes);
    let kind = match mesh {
        None => kind,
        Some(mesh) => {
            let mut named = NamedSharding::from_kind(&kind, spec.dims.len(), mesh)?;
            named.dims.iter_mut().for_each(|d| d.closed = true);
            ShardingKind::Named(named)
        }
    };
    Some(Sharding::Leaf(Box::new(LeafSharding::from(kind))))
}

fn mesh_of(module: &Module) -> Option<Arc<Mesh>> {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    let mut leaves = all.filter_map(|&i| module[i].common.sharding.as_deref()).flat_map(Sharding::leaves);
    leaves.find_map(|leaf| match &leaf.kind {
        ShardingKind::Named(named) if named.mesh.size().is_some_and(|n| n > 1) => Some(named.mesh.clone()),
        _ => None,
    })
}

//! What the rounds of a loop wait for: the longest chain of operations from a value of the state to the same value of the
//! next round. A processor has the next round's other work done meanwhile.

use crate::work::{Work, first_array};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// So many values of the state are followed.
const MOST_FOLLOWED: usize = 16;
/// Fusions are looked into so deep.
const MOST_DEPTH: usize = 4;

/// How far it is from some of the followed values, in additions.
type Distances = SmallVec<[(u32, f64); 4]>;
/// The same of each part of a tuple; of an array, of the only one.
type Parts = SmallVec<[Distances; 2]>;

/// The longest chain of operations through a loop's body that begins and ends with the same value of its state, in
/// additions. Counters and what they select are known ahead, and belong to no chain.
pub fn carried_chain(module: &Module, body: ComputationId) -> f64 {
    let Some(&parameter) = module.parameters(body).first() else { return 0.0 };
    let hloom_ir::shape::Shape::Tuple(state) = &module[parameter].shape else { return 0.0 };
    let mut start = Parts::new();
    for (n, shape) in state.iter().enumerate() {
        let is_counted = first_array(shape).is_none_or(|a| a.rank() == 0 && !a.element_type.is_float());
        let is_followed = !is_counted && n < MOST_FOLLOWED;
        start.push(is_followed.then_some((n as u32, 0.0)).into_iter().collect());
    }
    let end = through(module, body, &[start], 0);
    let own = |(n, distances): (usize, &Distances)| {
        distances.iter().filter(|d| d.0 as usize == n).map(|d| d.1).fold(0.0, f64::max)
    };
    end.iter().enumerate().map(own).fold(0.0, f64::max)
}

/// How far the parts of a computation's result are, where its parameters are as far as is said.
fn through(module: &Module, computation: ComputationId, parameters: &[Parts], depth: usize) -> Parts {
    let mut known: FxHashMap<InstructionId, Parts> = FxHashMap::default();
    for &id in module[computation].instructions() {
        let instruction = &module[id];
        let operand = |n: usize| instruction.operands().get(n).and_then(|o| known.get(o));
        let parts = match &instruction.op {
            Op::Parameter { number, .. } => {
                let given = usize::try_from(*number).ok().and_then(|n| parameters.get(n));
                given.cloned().unwrap_or_default()
            }
            Op::Tuple => instruction.operands().iter().map(|o| merged(known.get(o).into_iter(), 0.0)).collect(),
            Op::GetTupleElement { index } => {
                let part = usize::try_from(*index).ok().and_then(|n| operand(0)?.get(n));
                std::iter::once(part.cloned().unwrap_or_default()).collect()
            }
            // Where something is found does not depend on what it is.
            Op::DynamicSlice { .. } | Op::Gather(_) => one(merged(operand(0).into_iter(), 1.0)),
            // What is not written over is not touched.
            Op::DynamicUpdateSlice => {
                let mut distances = merged(operand(1).into_iter(), 1.0);
                distances.extend(merged(operand(0).into_iter(), 0.0));
                one(distances)
            }
            Op::Fusion(fusion) if depth < MOST_DEPTH => {
                let given: Vec<Parts> =
                    instruction.operands().iter().map(|o| known.get(o).cloned().unwrap_or_default()).collect();
                through(module, fusion.calls, &given, depth + 1)
            }
            _ => {
                let all = instruction.operands().iter().filter_map(|o| known.get(o));
                one(merged(all, Work::of(module, id).depth))
            }
        };
        known.insert(id, parts);
    }
    module.root(computation).and_then(|root| known.remove(&root)).unwrap_or_default()
}

fn one(distances: Distances) -> Parts {
    std::iter::once(distances).collect()
}

/// The farther of several, and one step more.
fn merged<'p>(parts: impl Iterator<Item = &'p Parts>, step: f64) -> Distances {
    let mut all = Distances::new();
    for &(from, far) in parts.flatten().flatten() {
        match all.iter_mut().find(|d| d.0 == from) {
            Some(known) => known.1 = known.1.max(far + step),
            None => all.push((from, far + step)),
        }
    }
    all
}

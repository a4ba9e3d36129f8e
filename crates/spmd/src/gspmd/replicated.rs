//! Which values are known to be replicated: because an annotation says so, or because what they are made of is known.

use super::Edges;
use crate::factors::{Direction, OpClass, ValueRef};
use crate::propagate::HloGraph;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::sharding::{Sharding, ShardingKind};
use rustc_hash::FxHashMap;

/// The values of which something is known.
pub(super) struct Known {
    is: Vec<bool>,
}

impl Known {
    /// What annotations say.
    pub(super) fn new(
        module: &Module,
        computations: &[ComputationId],
        built: &HloGraph,
        given: &FxHashMap<InstructionId, Sharding>,
        edges: &Edges,
    ) -> Known {
        let mut known = Known { is: vec![false; built.graph.values.len()] };
        for &c in computations {
            for &i in module[c].instructions() {
                let Some(sharding) = given.get(&i) else { continue };
                for (n, value) in built.values(module, i).iter().enumerate() {
                    let leaf = match sharding {
                        Sharding::Leaf(l) => Some(&**l),
                        Sharding::Tuple(all) => all.get(n),
                    };
                    let says = leaf.is_some_and(|l| l.kind != ShardingKind::Unknown);
                    if let (Some(v), true) = (value, says && edges.may_change(module, i, n) != Some(true)) {
                        known.is[v.index()] = true;
                    }
                }
            }
        }
        known
    }

    pub(super) fn is_known(&self, value: ValueRef) -> bool {
        self.is.get(value.index()).copied().unwrap_or(false)
    }

    /// Carries what is known through operations, forward and backward, as far as it goes.
    pub(super) fn spread(&mut self, built: &HloGraph) {
        for (i, value) in built.graph.values.iter().enumerate() {
            self.is[i] |= value.sharding.as_ref().is_some_and(|s| s.dims.iter().any(|d| !d.axes.is_empty()));
        }
        loop {
            let mut changed = false;
            for op in &built.graph.ops {
                let (operands, results) = op.tensors.split_at(op.rule.operands.min(op.tensors.len()));
                let direction = match op.class {
                    OpClass::Barrier(direction) => direction,
                    OpClass::Broadcast => Direction::Forward,
                    _ => Direction::Both,
                };
                let any = |list: &[crate::factors::TensorRef]| {
                    list.iter()
                        .filter_map(|t| t.value)
                        .any(|v| self.is[v.index()] && !built.graph.values[v.index()].dims.is_empty())
                };
                let forward = any(operands) && matches!(direction, Direction::Forward | Direction::Both);
                let backward = any(results) && matches!(direction, Direction::Backward | Direction::Both);
                let targets = forward.then_some(results).into_iter().chain(backward.then_some(operands)).flatten();
                for v in targets.filter_map(|t| t.value) {
                    changed |= !std::mem::replace(&mut self.is[v.index()], true);
                }
            }
            if !changed {
                return;
            }
        }
    }
}

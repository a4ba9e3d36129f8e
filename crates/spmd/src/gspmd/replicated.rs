//! Which values are known to be on one device, or replicated: because an annotation says so, or because what they are made
//! of is known.

use super::Edges;
use crate::factors::{Direction, OpClass, TensorRef, ValueRef};
use crate::propagate::HloGraph;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::sharding::{Sharding, ShardingKind};
use rustc_hash::FxHashMap;

/// The values of which something is known.
pub(super) struct Known {
    is: Vec<Option<ShardingKind>>,
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
        let mut known = Known { is: vec![None; built.graph.values.len()] };
        for &c in computations {
            for &i in module[c].instructions() {
                let Some(sharding) = given.get(&i) else { continue };
                for (n, value) in built.values(module, i).iter().enumerate() {
                    let leaf = match sharding {
                        Sharding::Leaf(l) => Some(&**l),
                        Sharding::Tuple(all) => all.get(n),
                    };
                    let said = match leaf.map(|l| &l.kind) {
                        None | Some(ShardingKind::Unknown) => continue,
                        Some(ShardingKind::Maximal { device }) => ShardingKind::Maximal { device: *device },
                        Some(_) => ShardingKind::Replicated,
                    };
                    if let (Some(v), true) = (value, edges.may_change(module, i, n) != Some(true)) {
                        known.is[v.index()] = Some(said);
                    }
                }
            }
        }
        known
    }

    /// What is known of a value that is not cut.
    pub(super) fn of(&self, value: ValueRef) -> Option<ShardingKind> {
        self.is.get(value.index()).cloned().flatten()
    }

    /// Carries what is known through operations, forward and backward, as far as it goes.
    pub(super) fn spread(&mut self, built: &HloGraph) {
        for (i, value) in built.graph.values.iter().enumerate() {
            if value.sharding.as_ref().is_some_and(|s| s.dims.iter().any(|d| !d.axes.is_empty())) {
                self.is[i] = Some(ShardingKind::Replicated);
            }
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
                // Only what is worked on element by element is on the same device.
                let keeps_device = matches!(op.class, OpClass::Elementwise | OpClass::PassThrough);
                let of_side = |list: &[TensorRef]| -> Option<ShardingKind> {
                    let has_dims = |v: &ValueRef| !built.graph.values[v.index()].dims.is_empty();
                    let mut all = list.iter().filter_map(|t| t.value).filter(has_dims);
                    let found = all.find_map(|v| self.is[v.index()].clone())?;
                    Some(if keeps_device { found } else { ShardingKind::Replicated })
                };
                let forward = of_side(operands).filter(|_| matches!(direction, Direction::Forward | Direction::Both));
                let backward = of_side(results).filter(|_| matches!(direction, Direction::Backward | Direction::Both));
                for (kind, targets) in [(forward, results), (backward, operands)] {
                    let Some(kind) = kind else { continue };
                    for v in targets.iter().filter_map(|t| t.value) {
                        let slot = &mut self.is[v.index()];
                        changed |= slot.is_none();
                        slot.get_or_insert(kind.clone());
                    }
                }
            }
            if !changed {
                return;
            }
        }
    }
}

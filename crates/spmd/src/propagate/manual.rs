//! Which instructions are inside manual computations, and over which axes.

use hloom_ir::device_list::AxisRef;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::sharding::{Sharding, ShardingKind};
use hloom_ir::{Op, Shape};
use std::sync::Arc;

/// For each instruction, the manual axes of its values; none outside manual computations.
#[derive(Debug)]
pub(crate) struct ManualAxes {
    of: Vec<Option<Arc<[u32]>>>,
}

impl ManualAxes {
    /// What is said at the edges of manual computations, carried to what is between them: first to users, then to
    /// operands of which nothing is known (constants, the number of the device).
    pub(super) fn new(module: &Module, computations: &[ComputationId]) -> ManualAxes {
        let mut found = ManualAxes::from_operands(module, computations);
        for &c in computations.iter().rev() {
            for &i in module[c].instructions().iter().rev() {
                let Some(own) = found.of[i.index()].clone() else { continue };
                let stays_outside =
                    matches!(&module[i].op, Op::CustomCall(call) if &*call.target == "SPMDFullToShardShape");
                if stays_outside {
                    continue;
                }
                for &x in module[i].operands() {
                    let is_known = matches!(module[x].op, Op::Parameter { .. })
                        || leaves_region(module, x)
                        || !annotated(module, x).is_empty();
                    let slot = &mut found.of[x.index()];
                    if slot.is_none() && !is_known {
                        *slot = Some(own.clone());
                    }
                }
            }
        }
        found
    }

    /// What is said at the edges of manual computations, carried to users only.
    pub(super) fn from_operands(module: &Module, computations: &[ComputationId]) -> ManualAxes {
        let mut found = ManualAxes { of: vec![None; module.instruction_slots()] };
        // Callers come before what they call.
        for &c in computations {
            for &i in module[c].instructions() {
                if found.of[i.index()].is_none() {
                    found.of[i.index()] = found.forward(module, i);
                }
                found.enter_bodies(module, i);
            }
        }
        found
    }

    /// The manual axes of an instruction, if it is inside a manual computation.
    pub(super) fn side(&self, i: InstructionId) -> Option<Arc<[u32]>> {
        self.of.get(i.index()).cloned().flatten()
    }

    /// The manual axes of an instruction.
    pub(crate) fn of(&self, i: InstructionId) -> &[u32] {
        self.of.get(i.index()).and_then(|o| o.as_deref()).unwrap_or(&[])
    }

    fn forward(&self, module: &Module, i: InstructionId) -> Option<Arc<[u32]>> {
        // A function that is called inside knows nothing of it: its annotations name no manual axes.
        let said = annotated(module, i);
        if !said.is_empty() {
            return Some(said.iter().map(|a| a.axis).collect());
        }
        if leaves_region(module, i) {
            return None;
        }
        // Tokens order what is inside and outside alike.
        let arrays = module[i].operands().iter().filter(|&&x| !matches!(module[x].shape, Shape::Token));
        arrays.into_iter().find_map(|x| self.of[x.index()].clone())
    }

    fn enter_bodies(&mut self, module: &Module, i: InstructionId) {
        let Some(own) = self.of[i.index()].clone() else { return };
        if matches!(module[i].op, Op::While { .. } | Op::Conditional { .. }) {
            for c in module[i].op.called_computations() {
                for p in module.parameters(c) {
                    self.of[p.index()] = Some(own.clone());
                }
            }
        }
    }
}

/// Whether a value comes out of a manual computation here.
fn leaves_region(module: &Module, i: InstructionId) -> bool {
    matches!(&module[i].op, Op::CustomCall(call) if &*call.target == "SPMDShardToFullShape")
}

/// The manual axes that an instruction's own sharding names.
fn annotated(module: &Module, i: InstructionId) -> &[AxisRef] {
    match module[i].common.sharding.as_deref() {
        Some(Sharding::Leaf(leaf)) => match &leaf.kind {
            ShardingKind::Named(named) if !named.mesh.axes.is_empty() => &named.manual,
            _ => &[],
        },
        _ => &[],
    }
}

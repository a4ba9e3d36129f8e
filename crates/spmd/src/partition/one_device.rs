//! Calls that one device makes for all, such as those back into the host's own code.

use super::body::{Body, Part, Val};
use super::spec::Spec;
use super::whole::leaf_specs;
use super::{Emit, error};
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::device_list::{MeshDevices, ReplicaGroups};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::infer::ShapeError;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::Collective;
use hloom_ir::sharding::ShardingKind;
use hloom_ir::{Builder, ElementType, Op, Shape};

/// The device that a call is left to: the one that its sharding names, or the first, if it has effects and nothing is said
/// of where its arrays lie.
pub(crate) fn only_device(module: &Module, i: InstructionId) -> Option<i64> {
    let leaves = module[i].common.sharding.as_deref().map_or(&[][..], |s| s.leaves());
    let named = leaves.iter().find_map(|leaf| match &leaf.kind {
        ShardingKind::Maximal { device } => Some(*device),
        ShardingKind::Named(named) => match named.mesh.devices {
            MeshDevices::Maximal(device) => Some(device),
            _ => None,
        },
        _ => None,
    });
    let has_arrays = module[i].shape.leaves().iter().any(|(_, leaf)| leaf.is_array());
    named.or((!has_arrays && hloom_analysis::effects::has_side_effect(&module[i].op)).then_some(0))
}

/// A value of that shape with nothing in it.
fn nothing(builder: &mut Builder<'_>, shape: &Shape) -> Result<InstructionId, ShapeError> {
    match shape {
        Shape::Array(array) => {
            let zero = builder.literal(Literal::zero(array.element_type))?;
            builder.broadcast(zero, array.dims().iter().copied(), [])
        }
        Shape::Tuple(elements) => {
            let elements: Result<Vec<InstructionId>, ShapeError> =
                elements.iter().map(|e| nothing(builder, e)).collect();
            builder.tuple(&elements?)
        }
        _ => builder.push(Op::AfterAll, &[]),
    }
}

impl Body<'_, '_> {
    /// A call that one device makes, whose results all get: the others take a branch that does nothing.
    pub(crate) fn on_one_device(&mut self, at: InstructionId, device: i64) -> Emit<Val> {
        let source = self.p.source;
        let op = self.local_op(&source[at].op)?;
        let mut ids = Vec::new();
        let mut shapes = Vec::new();
        for &o in source[at].operands() {
            let value = self.value(o)?.clone();
            let mut specs = Vec::new();
            leaf_specs(&value, &mut specs);
            let mut whole = specs.into_iter().map(|s| Spec { manual: s.manual, ..Spec::replicated(s.dims.len()) });
            let id = self.pack(&value, &mut whole)?;
            shapes.push(self.p.target[id].shape.clone());
            ids.push(id);
        }
        let shape = source[at].shape.without_layout();
        let operands = self.add(Op::Tuple, &ids)?;
        let branch = |b: &mut Self, name: &str, calls: bool| -> Emit<ComputationId> {
            let build = |builder: &mut Builder<'_>| {
                let tuple = builder.parameter(0, Shape::tuple(shapes.iter().cloned()), "operands")?;
                let mut elements = Vec::new();
                for index in 0..shapes.len() {
                    elements.push(builder.push(Op::GetTupleElement { index: index as i64 }, &[tuple])?);
                }
                match calls {
                    true => builder.push_shaped(op.clone(), &elements, shape.clone()),
                    false => nothing(builder, &shape),
                }
            };
            let mut builder = Builder::new(&mut b.p.target, name);
            let root = build(&mut builder).map_err(|e| error(e.message))?;
            Ok(builder.finish(root))
        };
        let called = branch(self, "on_one_device", true)?;
        let idle = branch(self, "on_others", false)?;
        if let Some(root) = self.p.target.root(called) {
            self.inherit(root, at);
        }
        self.p.effects.insert(called);
        let own = self.add(Op::PartitionId, &[])?;
        let own = self.convert(own, ElementType::S32)?;
        let wanted = self.s32(device)?;
        let is_own = self.compare(ComparisonDirection::Eq, own, wanted)?;
        let op = Op::Conditional { branches: [called, idle].into_iter().collect() };
        let id = self.add_shaped(op, &[is_own, operands, operands], Some(shape.clone()))?;
        let mut specs = self
            .p
            .annotated_leaves(at)
            .into_iter()
            .map(|s| Spec { manual: s.manual, ..Spec::replicated(s.dims.len()) })
            .collect::<Vec<_>>()
            .into_iter();
        let value = self.unpack(id, &source[at].shape, &mut specs)?;
        self.handed_out(value, device)
    }

    /// What `device` has, for all.
    fn handed_out(&mut self, value: Val, device: i64) -> Emit<Val> {
        Ok(match value {
            Val::Array(part) => {
                let id = self.broadcast_from(part.id, device)?;
                Val::Array(Part { id, ..part })
            }
            Val::Tuple(elements) => {
                Val::Tuple(elements.into_iter().map(|e| self.handed_out(e, device)).collect::<Emit<_>>()?)
            }
            other => other,
        })
    }

    /// What `device` has of an array, on all devices.
    fn broadcast_from(&mut self, id: InstructionId, device: i64) -> Emit<InstructionId> {
        let others = (0..self.axes().devices()).filter(|&d| d != device);
        let group: Vec<i64> = [device].into_iter().chain(others).collect();
        let collective = Collective {
            channel_id: Some(self.p.next_channel()),
            replica_groups: ReplicaGroups::Explicit(vec![group]),
            ..Collective::default()
        };
        let op = Op::CollectiveBroadcast { collective: Box::new(collective), has_dynamic_root: false };
        let id = self.add(op, &[id])?;
        let all = self.axes().all().list();
        self.note(id, &all);
        Ok(id)
    }
}

//! Collectives, asynchronous or not.

use super::{Translate, Translator};
use crate::mlir::{Attr, AttrId, OpKind};
use hloom_ir::device_list::{AxisRef, ReplicaGroups};
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::op::{
    AllGather, AllReduce, AsyncStart, BinaryOp, Collective, CollectivePermute, CollectiveReduce, ReduceScatter,
};
use hloom_ir::{ArrayShape, Op, Shape};
use std::sync::Arc;

impl Translator<'_, '_> {
    /// The channel: absent when its handle is 0.
    pub(super) fn channel_id(&self) -> Translate<Option<i64>> {
        let id = match self.m.find(self.at, "channel_handle") {
            Some(handle) => self.m.field(handle, "handle").and_then(|h| self.m.as_int(h)),
            None => self.m.find(self.at, "channel_id").and_then(|id| self.m.as_int(id)),
        };
        Ok(id.filter(|&id| id != 0))
    }

    fn replica_groups(&self) -> Translate<ReplicaGroups> {
        let Some(id) = self.m.find(self.at, "replica_groups") else { return Ok(ReplicaGroups::default()) };
        if let Attr::Struct(..) = self.m.attr(id) {
            return self.mesh_groups(id);
        }
        let bad = || self.bad_attribute("replica_groups", "a matrix of device numbers");
        let values = self.m.as_ints(id).ok_or_else(bad)?;
        let Attr::Dense(dense) = self.m.attr(id) else { return Err(bad()) };
        let width = match self.m.tensor(dense.ty) {
            Some(([_, width], _)) => usize::try_from(*width).unwrap_or(0),
            _ => return Err(bad()),
        };
        if width == 0 {
            return Ok(ReplicaGroups::default());
        }
        // Shorter groups are filled up with -1.
        let groups = values.chunks(width).map(|g| g.iter().copied().filter(|&d| d >= 0).collect()).collect();
        Ok(ReplicaGroups::Explicit(groups))
    }

    fn mesh_groups(&self, id: AttrId) -> Translate<ReplicaGroups> {
        let bad = || self.bad_attribute("replica_groups", "a list of axes of a known mesh");
        let mesh = self.m.field(id, "mesh").and_then(|m| self.m.mesh(m)).ok_or_else(bad)?;
        let axes = self.m.field(id, "axes").ok_or_else(bad)?;
        let axes = self.m.list(axes).iter().map(|&axis| {
            let name = self.m.as_str(self.m.field(axis, "name")?)?;
            let index = mesh.axes.iter().position(|(n, _)| **n == *name)? as u32;
            let sub_axis = match self.m.field(axis, "sub_axis") {
                Some(sub) => {
                    Some((self.m.as_int(self.m.field(sub, "pre_size")?)?, self.m.as_int(self.m.field(sub, "size")?)?))
                }
                None => None,
            };
            Some(AxisRef { axis: index, sub_axis })
        });
        let axes = axes.collect::<Option<Vec<_>>>().ok_or_else(bad)?;
        Ok(ReplicaGroups::MeshAxes { mesh: Arc::new(mesh), axes })
    }

    fn collective(&self) -> Translate<Collective> {
        Ok(Collective {
            channel_id: self.channel_id()?,
            replica_groups: self.replica_groups()?,
            constrain_layout: false,
            use_global_device_ids: self.flag("use_global_device_ids")?,
            mode: None,
        })
    }

    /// The function that combines values; an old form has none and means the sum.
    fn combiner(&mut self) -> Translate<ComputationId> {
        if self.m.op(self.at).regions.is_empty() {
            let x = self.operand(0)?;
            let Some(element) = self.shape(x).element_type() else {
                return Err(self.error(&codes::BAD_OPERANDS, "only arrays are summed"));
            };
            return self.named_reducer(BinaryOp::Add, element);
        }
        let region = self.region(0)?;
        self.scalar_function(region)
    }

    pub(super) fn all_reduce(&mut self) -> Translate<()> {
        let to_apply = self.combiner()?;
        let collective = self.collective()?;
        let operands = self.operands()?;
        self.emit_results(Op::AllReduce(Box::new(AllReduce { collective, to_apply })), operands)
    }

    pub(super) fn all_gather(&mut self) -> Translate<()> {
        let all_gather = AllGather { collective: self.collective()?, dimension: self.int("all_gather_dim")? };
        let operands = self.operands()?;
        self.emit_results(Op::AllGather(Box::new(all_gather)), operands)
    }

    pub(super) fn reduce_scatter(&mut self) -> Translate<()> {
        let to_apply = self.combiner()?;
        let dimension = self.int("scatter_dimension")?;
        let op = ReduceScatter { collective: self.collective()?, dimension, to_apply };
        self.plain(1, Op::ReduceScatter(Box::new(op)))
    }

    pub(super) fn collective_reduce(&mut self) -> Translate<()> {
        let to_apply = self.combiner()?;
        let has_dynamic_root = self.flag("has_dynamic_root")?;
        let op = CollectiveReduce { collective: self.collective()?, has_dynamic_root, to_apply };
        let operands = self.operands()?;
        self.emit_results(Op::CollectiveReduce(Box::new(op)), operands)
    }

    pub(super) fn collective_broadcast(&mut self) -> Translate<()> {
        let has_dynamic_root = self.flag("has_dynamic_root")?;
        let collective = Box::new(self.collective()?);
        let operands = self.operands()?;
        self.emit_results(Op::CollectiveBroadcast { collective, has_dynamic_root }, operands)
    }

    pub(super) fn collective_permute(&mut self) -> Translate<()> {
        let pairs = self.ints("source_target_pairs")?;
        if pairs.len() % 2 != 0 {
            return Err(self.bad_attribute("source_target_pairs", "a list of pairs"));
        }
        let source_target_pairs = pairs.chunks_exact(2).map(|p| (p[0], p[1])).collect();
        let permute =
            CollectivePermute { channel_id: self.channel_id()?, source_target_pairs, slice_sizes: Vec::new() };
        self.plain(1, Op::CollectivePermute(Box::new(permute)))
    }

    /// HLO splits and concatenates along one dimension; another one for the pieces takes a reshape and a transpose.
    pub(super) fn all_to_all(&mut self) -> Translate<()> {
        let collective = Box::new(self.collective()?);
        let operands = self.operands()?;
        let split = self.int("split_dimension")?;
        let concat = self.int("concat_dimension")?;
        let count = self.int("split_count")?;
        let [x] = operands[..] else {
            let parts = operands.len();
            return self.many_all_to_all(&operands, *collective, split, concat, count, parts);
        };
        let id = self.one_all_to_all(x, *collective, split, concat, count)?;
        self.bind(id)
    }

    /// The exchange of one operand.
    pub(super) fn one_all_to_all(
        &mut self,
        x: InstructionId,
        collective: Collective,
        split: i64,
        concat: i64,
        count: i64,
    ) -> Translate<InstructionId> {
        let op = Op::AllToAll { collective: Box::new(collective), split_dimension: Some(split) };
        let shape = self.result_shape(0)?;
        match split == concat {
            true => self.emit(op, [x].as_slice(), shape),
            false => self.exchanged(op, x, split, concat, count, shape),
        }
    }

    fn exchanged(
        &mut self,
        op: Op,
        x: InstructionId,
        split: i64,
        concat: i64,
        count: i64,
        result: Shape,
    ) -> Translate<InstructionId> {
        let bad = |t: &Self| t.error(&codes::BAD_ATTRIBUTE, "the dimensions of an all_to_all do not fit its operand");
        let Some(from) = self.shape(x).as_array().cloned() else { return Err(bad(self)) };
        let rank = from.rank() as i64;
        let fits = (0..rank).contains(&split) && (0..rank).contains(&concat) && count > 0;
        if !fits || from.dims()[split as usize] % count != 0 {
            return Err(bad(self));
        }
        let exchanged = self.emit(op, [x].as_slice(), from.clone().into())?;
        // The pieces received stand along the split dimension: [.., count, size / count, ..].
        let mut sizes = from.dims().to_vec();
        sizes[split as usize] /= count;
        sizes.insert(split as usize, count);
        let shape = ArrayShape::new(from.element_type, sizes.iter().copied()).with_default_layout();
        let pieces = self.emit(Op::Reshape { inferred_dimension: None }, [exchanged].as_slice(), shape.into())?;
        // The dimension of pieces goes before the one they are joined along.
        let mut order: Vec<i64> = (0..=rank).filter(|&d| d != split).collect();
        let at = order.iter().position(|&d| d == if concat < split { concat } else { concat + 1 });
        order.insert(at.unwrap_or(0), split);
        let moved: Vec<i64> = order.iter().map(|&d| sizes[d as usize]).collect();
        let shape = ArrayShape::new(from.element_type, moved.iter().copied()).with_default_layout();
        let dimensions = order.into_iter().collect();
        let moved = self.emit(Op::Transpose { dimensions }, [pieces].as_slice(), shape.into())?;
        self.emit(Op::Reshape { inferred_dimension: None }, [moved].as_slice(), result)
    }

    /// Several operands are exchanged one by one.
    fn many_all_to_all(
        &mut self,
        operands: &[InstructionId],
        collective: Collective,
        split: i64,
        concat: i64,
        count: i64,
        parts: usize,
    ) -> Translate<()> {
        let mut results = Vec::with_capacity(parts);
        let shapes = self.result_shapes()?;
        for (i, &x) in operands.iter().enumerate() {
            let op = Op::AllToAll { collective: Box::new(collective.clone()), split_dimension: Some(split) };
            let shape = shapes.get(i).cloned().unwrap_or_else(|| self.shape(x).clone());
            results.push(if split == concat {
                self.emit(op, [x].as_slice(), shape)?
            } else {
                self.exchanged(op, x, split, concat, count, shape)?
            });
        }
        self.bind_all(&results)
    }

    /// A collective that is started here and ends at its done.
    pub(super) fn async_start(&mut self) -> Translate<()> {
        let m = self.m;
        let region = self.region(0)?;
        let operands = self.operands()?;
        let body = m.region(region).blocks.first().map_or(&[][..], |b| &b.ops);
        let Some(&inner) = body.first().filter(|_| body.len() == 2) else {
            return Err(self.error(&codes::NO_HLO_FORM, "async_start holds one collective"));
        };
        let outer = self.at;
        let kind = m.kind(inner);
        let result = self.result_shape(0)?;
        let plain = m.op(inner).operands.iter().copied().eq(m.arguments(region).map(crate::mlir::ValueId));
        if plain && matches!(kind, OpKind::AllReduce | OpKind::AllGather | OpKind::CollectivePermute) {
            self.at = inner;
            for (value, &operand) in m.arguments(region).zip(&operands) {
                self.map[value as usize] = Some(operand);
            }
            let (op, shape) = match kind {
                OpKind::AllReduce => {
                    let to_apply = self.combiner()?;
                    self.at = inner;
                    let collective = self.collective()?;
                    (Op::AllReduceStart(Box::new(AllReduce { collective, to_apply })), result)
                }
                OpKind::AllGather => {
                    let collective = self.collective()?;
                    let dimension = self.int("all_gather_dim")?;
                    let inputs = Shape::tuple(operands.iter().map(|&x| self.shape(x).clone()));
                    let inputs = if let [one] = operands[..] { self.shape(one).clone() } else { inputs };
                    let shape = Shape::tuple([inputs, result]);
                    (Op::AllGatherStart(Box::new(AllGather { collective, dimension })), shape)
                }
                _ => {
                    let pairs = self.ints("source_target_pairs")?;
                    let source_target_pairs = pairs.chunks_exact(2).map(|p| (p[0], p[1])).collect();
                    let channel_id = self.channel_id()?;
                    let permute = CollectivePermute { channel_id, source_target_pairs, slice_sizes: Vec::new() };
                    let x = self.shape(operands[0]).clone();
                    (Op::CollectivePermuteStart(Box::new(permute)), Shape::tuple([x, result]))
                }
            };
            self.enter(outer);
            let id = self.emit(op, operands, shape)?;
            return self.bind(id);
        }
        let calls = self.scalar_function(region)?;
        let inputs = Shape::tuple(operands.iter().map(|&x| self.shape(x).clone()));
        let context = Shape::scalar(hloom_ir::ElementType::U32).with_default_layout();
        let shape = Shape::tuple([inputs, result, context]);
        let start = AsyncStart { calls, execution_thread: None, output_operand_aliasing: Vec::new() };
        let id = self.emit(Op::AsyncStart(Box::new(start)), operands, shape)?;
        self.bind(id)
    }

    pub(super) fn async_done(&mut self) -> Translate<()> {
        let start = self.operand(0)?;
        let op = match &self.out[start].op {
            Op::AllReduceStart(_) => Op::AllReduceDone,
            Op::AllGatherStart(_) => Op::AllGatherDone,
            Op::CollectivePermuteStart(_) => Op::CollectivePermuteDone,
            _ => Op::AsyncDone,
        };
        self.emit_results(op, [start].as_slice())
    }
}

//! Carrying out plans of resharding, and reading windows of what lies in shards.
//!
//! A value keeps every form it has been brought into, so that two users of one form share its collectives and a third
//! form starts from the nearest.

use super::axes::{AxisList, AxisSet};
use super::body::{Body, Free, Part, Val};
use super::known_plans::Question;
use super::plan::{ReshardPlan, ReshardStep};
use super::spec::{Spec, shard_size};
use super::windows::Recut;
use super::{Change, Emit};
use hloom_ir::Op;
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::BinaryOp;
use hloom_ir::shape::ArrayShape;
use std::rc::Rc;
use std::sync::Arc;

impl Body<'_, '_> {
    /// The cheapest plan for `part` in the form `to`, and the form to start from.
    fn cheapest(&self, part: &Part, to: &Spec) -> (Rc<ReshardPlan>, Spec, InstructionId) {
        let bits = self.bits_sent(part, to);
        let sizes = part.shape.dims();
        let cost = |spec: &Spec| self.plan_cost(sizes, bits, spec, to);
        let mut best = (cost(&part.spec), &part.spec, part.id);
        for (spec, id) in self.variants.of(part) {
            // Another form may leave less, or as much in fewer steps.
            let other = cost(spec);
            if (other.wire, other.steps) < (best.0.wire, best.0.steps) {
                best = (other, spec, *id);
            }
        }
        let (_, from, id) = best;
        let plan = self.p.plans.plan(self.axes(), Question { sizes, element_bits: bits, from, to });
        (plan, from.clone(), id)
    }

    /// Bytes that a device sends to bring `part` into the form `to`.
    pub(crate) fn reshard_cost(&self, part: &Part, to: &Spec) -> f64 {
        if part.free.is_some() || part.spec == *to {
            return 0.0;
        }
        let forms = self.variants.of(part);
        if forms.iter().any(|(spec, _)| spec == to) {
            return 0.0;
        }
        let bits = self.bits_sent(part, to);
        let of = |spec: &Spec| self.plan_cost(part.shape.dims(), bits, spec, to).wire;
        forms.iter().map(|(spec, _)| of(spec)).fold(of(&part.spec), f64::min)
    }

    /// `part` in the form `to`.
    pub(crate) fn reshard(&mut self, part: &Part, to: &Spec) -> Emit<InstructionId> {
        if part.spec == *to {
            return Ok(part.id);
        }
        if part.spec.manual != to.manual {
            // A value from outside is the same in a manual region, and the other way round.
            let spec = Spec { manual: to.manual, ..part.spec.clone() };
            return self.reshard(&Part { spec, ..part.clone() }, to);
        }
        if let Some(&(_, id)) = self.variants.of(part).iter().find(|(s, _)| s == to) {
            return Ok(id);
        }
        // A shard that becomes a part of a sum stays where it is, as it would if it had to be sent.
        let stays = !to.partial.intersection(part.spec.used()).is_empty();
        if let Some(free) = part.free.clone().filter(|_| !stays) {
            let id = self.remake(&free, &part.shape, to)?;
            self.variants.add(part, to.clone(), id);
            return Ok(id);
        }
        if part.spec.dims.len() != to.dims.len() {
            return Err(self.error("a sharding has another number of dimensions than its array"));
        }
        let (plan, mut spec, mut id) = self.cheapest(part, to);
        if plan.wire > 0.0
            && to.partial.is_empty()
            && let Some(narrow) = self.narrow(part)
        {
            let sent = self.resharded(&narrow, to)?;
            let id = self.widened(sent, part)?.id;
            self.variants.add(part, to.clone(), id);
            return Ok(id);
        }
        let change = Change { value: self.value_of(part.id), from: part.spec.clone(), to: to.clone() };
        let outer = self.change.replace(change);
        for step in &plan.steps {
            (id, spec) = self.carry_out(id, &part.shape, &spec, step)?;
            self.variants.add(part, spec.clone(), id);
        }
        self.change = outer;
        if spec != *to {
            // Only what is said of the device grid differs: parts that the target has yet to make.
            return self.make_partial(id, &spec, to);
        }
        Ok(id)
    }

    /// The operand of the instruction at hand that an instruction of the target stands for; else that instruction itself.
    fn value_of(&self, id: InstructionId) -> Option<InstructionId> {
        let at = self.at?;
        let is_it = |o: &InstructionId| matches!(self.values.get(*o), Some(Val::Array(part)) if part.id == id);
        // Tuples of thousands of results are not looked through for each of them.
        let operands = self.p.source[at].operands();
        Some(operands.iter().take(64).copied().find(is_it).unwrap_or(at))
    }

    /// `part` in the form `to`, as a part again.
    pub(crate) fn resharded(&mut self, part: &Part, to: &Spec) -> Emit<Part> {
        let id = self.reshard(part, to)?;
        Ok(Part { id, shape: part.shape.clone(), spec: to.clone(), free: part.free.clone() })
    }

    /// Whole values as the first of several parts, the others being zero.
    fn make_partial(&mut self, id: InstructionId, from: &Spec, to: &Spec) -> Emit<InstructionId> {
        let fresh = to.partial.without(from.partial).list();
        if from.dims != to.dims || fresh.is_empty() {
            return Err(self.error("a value cannot be brought into the form that is asked for"));
        }
        self.first_part(id, &fresh)
    }

    /// The value on the first device along `axes`, zero on the others.
    pub(crate) fn first_part(&mut self, id: InstructionId, axes: &[u8]) -> Emit<InstructionId> {
        let coordinate = self.coordinate(axes)?;
        let zero = self.s32(0)?;
        let first = self.compare(ComparisonDirection::Eq, coordinate, zero)?;
        let none = self.zero(self.element_type(id))?;
        let dims = self.dims(id);
        let none = self.broadcast(none, &dims, &[])?;
        self.select(first, id, none)
    }

    fn remake(&mut self, free: &Free, shape: &ArrayShape, to: &Spec) -> Emit<InstructionId> {
        let dims = to.local_dims(self.axes(), shape.dims());
        let id = match *free {
            Free::Splat(scalar) => self.broadcast(scalar, &dims, &[])?,
            Free::Iota(dim) => {
                let list = to.dims[dim];
                let local = self.iota(shape.element_type, &dims, dim)?;
                if list.is_empty() {
                    local
                } else {
                    let offset = self.offset(&list, dims[dim])?;
                    let offset = self.convert(offset, shape.element_type)?;
                    let offset = self.broadcast(offset, &dims, &[])?;
                    self.binary(BinaryOp::Add, local, offset)?
                }
            }
        };
        if to.partial.is_empty() { Ok(id) } else { self.first_part(id, &to.partial.list()) }
    }

    fn carry_out(
        &mut self,
        id: InstructionId,
        shape: &Arc<ArrayShape>,
        spec: &Spec,
        step: &ReshardStep,
    ) -> Emit<(InstructionId, Spec)> {
        let mut after = spec.clone();
        let mut result = match step {
            ReshardStep::Slice { dim, axes } => {
                after.dims[*dim].extend_from_slice(axes);
                let pieces = self.axes().product(axes);
                let size = shard_size(self.dims(id)[*dim], pieces);
                let padded = self.resize_dim(id, *dim, size * pieces)?;
                let start = self.offset(axes, size)?;
                self.dynamic_slice_dim(padded, *dim, start, size)?
            }
            ReshardStep::AllReduce { axes, reduction } => {
                after.partial = after.partial.without(AxisSet::of(axes));
                self.all_reduce(id, axes, *reduction)?
            }
            ReshardStep::ReduceScatter { dim, axes, reduction } => {
                after.partial = after.partial.without(AxisSet::of(axes));
                after.dims[*dim].extend_from_slice(axes);
                let padded = self.divisible(id, *dim, axes)?;
                self.reduce_scatter(padded, *dim, axes, *reduction)?
            }
            ReshardStep::Permute { to } => {
                let pairs = self.permutation(&spec.dims, to);
                let moved: AxisList = spec.used().union(Spec::tiled(to.iter().cloned()).used()).list();
                after.dims = to.clone();
                self.permute(id, pairs, &moved)?
            }
            ReshardStep::AllToAll { from, to, axes } => {
                let keep = after.dims[*from].len() - axes.len();
                after.dims[*from].truncate(keep);
                after.dims[*to].extend_from_slice(axes);
                let padded = self.divisible(id, *to, axes)?;
                self.all_to_all(padded, *to, *from, axes)?
            }
            ReshardStep::AllGather { dim, axes } => {
                let keep = after.dims[*dim].len() - axes.len();
                after.dims[*dim].truncate(keep);
                self.all_gather(id, *dim, axes)?
            }
            ReshardStep::ToPartial { dim, axes } => {
                let keep = after.dims[*dim].len() - axes.len();
                after.dims[*dim].truncate(keep);
                let mut partial = after.partial;
                axes.iter().for_each(|&a| partial.insert(a));
                after = after.with_partial(partial, Default::default());
                let mut dims = self.dims(id);
                let shard = dims[*dim];
                dims[*dim] *= self.axes().product(axes);
                let zero = self.zero(shape.element_type)?;
                let none = self.broadcast(zero, &dims, &[])?;
                // Padding would be summed.
                let clean = self.mask_dim(id, *dim, &spec.dims[*dim], shape.dims()[*dim], zero)?;
                let start = self.offset(axes, shard)?;
                let origin = self.s32(0)?;
                let mut operands = vec![none, clean];
                operands.extend((0..dims.len()).map(|d| if d == *dim { start } else { origin }));
                self.add(Op::DynamicUpdateSlice, &operands)?
            }
            ReshardStep::Recut { dim, to } => {
                let recut = Recut::new(self.axes(), shape.dims()[*dim], &spec.dims[*dim], to);
                let part = Part { id, shape: shape.clone(), spec: spec.clone(), free: None };
                after.dims[*dim] = *to;
                let zero = self.zero(shape.element_type)?;
                self.read_needs(&part, *dim, &recut.list, &recut.needs, recut.size, zero)?
            }
        };
        if after.partial.is_empty() {
            after.reduction = Default::default();
        }
        // What was padding in shards that are now together goes.
        let wanted = after.local_dims(self.axes(), shape.dims());
        for (d, &size) in wanted.iter().enumerate() {
            if self.dims(result)[d] > size {
                result = self.slice_dim(result, d, 0, size, 1)?;
            }
        }
        Ok((result, after))
    }

    /// `id` with padding along `dim`, where it takes some to cut it into equal pieces along `axes`.
    fn divisible(&mut self, id: InstructionId, dim: usize, axes: &[u8]) -> Emit<InstructionId> {
        let pieces = self.axes().product(axes);
        let size = shard_size(self.dims(id)[dim], pieces) * pieces;
        self.resize_dim(id, dim, size)
    }

    /// Which device's shard each device gets where lists of axes replace others of the same sizes.
    fn permutation(&self, from: &[AxisList], to: &[AxisList]) -> Vec<(i64, i64)> {
        let axes = self.axes();
        let flat = |lists: &[AxisList]| -> AxisList { lists.iter().flatten().copied().collect() };
        let (source, target) = (flat(from), flat(to));
        // Axes that cut nothing go along with one of their size.
        let rest = |used: &AxisList| -> AxisList { axes.all().without(AxisSet::of(used)).list() };
        let (mut idle_source, mut idle_target) = (rest(&source), rest(&target));
        let by_size = |list: &mut AxisList| list.sort_by_key(|&a| (axes.size(a), a));
        by_size(&mut idle_source);
        by_size(&mut idle_target);
        // Those idle on both sides stay where they are.
        let common: AxisList = idle_source.iter().copied().filter(|a| idle_target.contains(a)).collect();
        idle_source.retain(|a| !common.contains(&a));
        idle_target.retain(|a| !common.contains(&a));
        (0..axes.devices())
            .map(|receiver| {
                let mut sender = receiver;
                for (from, to) in from.iter().zip(to) {
                    sender = axes.with_coordinate(sender, from, axes.coordinate(receiver, to));
                }
                sender = axes.with_coordinate(sender, &idle_source, axes.coordinate(receiver, &idle_target));
                (axes.device(sender), axes.device(receiver))
            })
            .collect()
    }
}

//! Slices and updates at places that the program works out.
//!
//! Of a dimension that is cut and sliced, each shard gives what it has of the slice and zero for the rest: the slice comes
//! in parts, whose sum is due. An update is written by the shards that it falls into.

use super::Emit;
use super::axes::AxisSet;
use super::body::{Body, Part, Val};
use super::rule::{FactorDims, FactorKind, Rule};
use super::spec::{Reduction, Spec};
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::BinaryOp;
use hloom_ir::{ElementType, Op};

impl Body<'_, '_> {
    /// The starts of a slice, one per dimension, whole, as s32, and within bounds.
    fn slice_starts(&mut self, operands: &[InstructionId], dims: &[i64], sizes: &[i64]) -> Emit<Vec<InstructionId>> {
        let mut starts = Vec::new();
        for (d, &o) in operands.iter().enumerate().take(dims.len()) {
            let part = self.part(o)?;
            let id = self.reshard(&part, &part.spec.complete())?;
            if dims[d] == sizes[d] {
                starts.push(self.s32(0)?);
                continue;
            }
            // Clamped in its own type: a large unsigned number is not a negative one.
            let element_type = self.element_type(id);
            let most = self.s32(dims[d] - sizes[d])?;
            let fits = element_type.bits() >= 32 || dims[d] - sizes[d] < 100;
            let id = if fits && element_type.is_unsigned_integer() {
                let most = self.convert(most, element_type)?;
                let id = self.binary(BinaryOp::Minimum, id, most)?;
                self.convert(id, ElementType::S32)?
            } else if element_type.bits() > 32 {
                let most = self.convert(most, element_type)?;
                let zero = self.zero(element_type)?;
                let id = self.add(Op::Clamp, &[zero, id, most])?;
                self.convert(id, ElementType::S32)?
            } else {
                self.convert(id, ElementType::S32)?
            };
            let zero = self.s32(0)?;
            starts.push(self.add(Op::Clamp, &[zero, id, most])?);
        }
        Ok(starts)
    }

    /// The starts as they are, or one vector taken apart.
    fn start_operands(&self, at: InstructionId, first: usize, rank: usize) -> Option<Vec<InstructionId>> {
        let operands = &self.p.source[at].operands()[first..];
        let scalars = operands.iter().all(|&o| self.p.source[o].shape.as_array().is_some_and(|a| a.is_scalar()));
        (operands.len() == rank && scalars).then(|| operands.to_vec())
    }

    pub(crate) fn dynamic_sliced(&mut self, at: InstructionId, sizes: &DimVec) -> Emit<Val> {
        let operand = self.p.source[at].operands()[0];
        let part = self.part(operand)?;
        let shape = self.array_shape(at)?;
        let rank = shape.rank();
        let Some(start_operands) = self.start_operands(at, 1, rank) else { return self.compute_whole(at) };
        let reduction = if shape.element_type == ElementType::Pred { Reduction::Or } else { Reduction::Sum };
        let mut rule = Rule::default();
        let mut from = FactorDims::new();
        let mut to = FactorDims::new();
        let sliced: Vec<usize> = (0..rank).filter(|&d| part.shape.dims()[d] != sizes[d]).collect();
        for d in 0..rank {
            let n = part.shape.dims()[d];
            if sliced.contains(&d) {
                from.push(rule.factor(n, FactorKind::Reduce(reduction)));
                to.push(None);
            } else {
                let factor = rule.factor(n, FactorKind::Pass);
                from.push(factor);
                to.push(factor);
            }
        }
        rule.operands = vec![from];
        rule.results = vec![to];
        let wanted = self.wanted_array(at);
        let parts = [part];
        let assignment = self.choose(&rule, &parts, std::slice::from_ref(&wanted), &|_, _| Some(0.0));
        let manual = self.manual_of(&parts, &wanted);
        let part = &parts[0];
        let spec = rule.operand(0, &assignment, manual);
        let mut id = self.reshard(part, &spec)?;
        let mut starts = self.slice_starts(&start_operands, part.shape.dims(), sizes)?;
        let mut local_sizes: Vec<i64> =
            rule.result(0, &assignment, manual).local_dims(self.axes(), shape.dims()).to_vec();
        let mut masks: Vec<(usize, InstructionId)> = Vec::new();
        for &d in &sliced {
            local_sizes[d] = sizes[d];
            if spec.dims[d].is_empty() {
                continue;
            }
            let shard = self.dims(id)[d];
            let offset = self.offset(&spec.dims[d], shard)?;
            let relative = self.binary(BinaryOp::Subtract, starts[d], offset)?;
            masks.push((d, relative));
            id = self.pad_dim(id, d, sizes[d], sizes[d], None)?;
            let margin = self.s32(sizes[d])?;
            starts[d] = self.binary(BinaryOp::Add, relative, margin)?;
        }
        let mut operands = vec![id];
        operands.extend(&starts);
        let mut result = self.add(Op::DynamicSlice { sizes: local_sizes.iter().copied().collect() }, &operands)?;
        for (d, relative) in masks {
            let shard = part.spec_shard(self, &spec, d);
            let offset = self.offset(&spec.dims[d], shard)?;
            result = self.mask_range(result, d, relative, shard, Some((offset, part.shape.dims()[d])))?;
        }
        let spec = rule.result(0, &assignment, manual);
        Ok(self.array(result, shape, spec))
    }

    /// Zero where `start` plus the position along `dim` is not within the first `limit` elements, nor within the whole.
    fn mask_range(
        &mut self,
        x: InstructionId,
        dim: usize,
        start: InstructionId,
        limit: i64,
        whole: Option<(InstructionId, i64)>,
    ) -> Emit<InstructionId> {
        let dims = self.dims(x);
        let position = self.iota(ElementType::S32, &dims, dim)?;
        let base = self.broadcast(start, &dims, &[])?;
        let position = self.binary(BinaryOp::Add, position, base)?;
        let zero = self.s32(0)?;
        let zeros = self.broadcast(zero, &dims, &[])?;
        let above = self.compare(ComparisonDirection::Ge, position, zeros)?;
        let mut end = self.s32(limit)?;
        if let Some((offset, n)) = whole {
            let n = self.s32(n)?;
            let left = self.binary(BinaryOp::Subtract, n, offset)?;
            end = self.binary(BinaryOp::Minimum, end, left)?;
        }
        let end = self.broadcast(end, &dims, &[])?;
        let below = self.compare(ComparisonDirection::Lt, position, end)?;
        let inside = self.binary(BinaryOp::And, above, below)?;
        let none = self.zero(self.element_type(x))?;
        let none = self.broadcast(none, &dims, &[])?;
        self.select(inside, x, none)
    }

    pub(crate) fn dynamic_updated(&mut self, at: InstructionId) -> Emit<Val> {
        let operands = self.p.source[at].operands().to_vec();
        let (part, update) = (self.part(operands[0])?, self.part(operands[1])?);
        let shape = self.array_shape(at)?;
        let rank = shape.rank();
        let Some(start_operands) = self.start_operands(at, 2, rank) else { return self.compute_whole(at) };
        if update.shape.element_count() == Some(0) {
            return Ok(Val::Array(part));
        }
        let mut rule = Rule::default();
        let mut whole = FactorDims::new();
        let mut piece = FactorDims::new();
        let sliced: Vec<usize> = (0..rank).filter(|&d| update.shape.dims()[d] != shape.dims()[d]).collect();
        for d in 0..rank {
            let factor = rule.factor(shape.dims()[d], FactorKind::Pass);
            whole.push(factor);
            piece.push(if sliced.contains(&d) { None } else { factor });
        }
        rule.operands = vec![whole.clone(), piece];
        rule.results = vec![whole];
        let sizes = update.shape.dims().to_vec();
        // Parts of a sum are updated by parts of a sum.
        let keep = self.stated_partial(at, &[&part, &update]);
        let set_aside = |spec: &Spec| if keep.is_empty() { spec.clone() } else { spec.complete() };
        let wanted = set_aside(&self.wanted_array(at));
        let parts = [part, update];
        let complete = parts.clone().map(|p| Part { spec: set_aside(&p.spec), ..p });
        let assignment = self.choose(&rule, &complete, std::slice::from_ref(&wanted), &|_, a| {
            a.iter().all(|l| AxisSet::of(l).intersection(keep).is_empty()).then_some(0.0)
        });
        let manual = self.manual_of(&parts, &wanted);
        let spec = rule.operand(0, &assignment, manual).with_partial(keep, Reduction::Sum);
        let mut id = self.reshard(&parts[0], &spec)?;
        let piece = rule.operand(1, &assignment, manual).with_partial(keep, Reduction::Sum);
        let update = self.reshard(&parts[1], &piece)?;
        let mut starts = self.slice_starts(&start_operands, shape.dims(), &sizes)?;
        let local = self.dims(id);
        // Beside the shard there is room for an update that falls outside.
        for &d in &sliced {
            if spec.dims[d].is_empty() {
                continue;
            }
            let offset = self.offset(&spec.dims[d], local[d])?;
            let relative = self.binary(BinaryOp::Subtract, starts[d], offset)?;
            let margin = self.s32(sizes[d])?;
            starts[d] = self.binary(BinaryOp::Add, relative, margin)?;
            id = self.pad_dim(id, d, sizes[d], sizes[d], None)?;
        }
        let mut all = vec![id, update];
        all.extend(&starts);
        let mut result = self.add(Op::DynamicUpdateSlice, &all)?;
        for &d in &sliced {
            if !spec.dims[d].is_empty() {
                result = self.slice_dim(result, d, sizes[d], sizes[d] + local[d], 1)?;
            }
        }
        Ok(self.array(result, shape, spec))
    }
}

impl Part {
    /// The size of a shard along `d` in the form `spec`.
    fn spec_shard(&self, body: &Body<'_, '_>, spec: &Spec, d: usize) -> i64 {
        spec.local_dims(body.axes(), self.shape.dims())[d]
    }
}

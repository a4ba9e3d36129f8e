//! Slices and updates at places that the program works out.
//!
//! Of a dimension that is cut and sliced, each shard gives what it has of the slice and zero for the rest: the slice comes
//! in parts, whose sum is due. An update is written by the shards that it falls into. A slice or an update that a shard has
//! room for touches a window of its own size in the shard: the one nearest to it that lies within.

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
use smallvec::smallvec;

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
        rule.operands = smallvec![from];
        rule.results = smallvec![to];
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
            if sizes[d] <= shard {
                starts[d] = self.window_start(relative, shard - sizes[d])?;
                continue;
            }
            id = self.pad_dim(id, d, sizes[d], sizes[d], None)?;
            let margin = self.s32(sizes[d])?;
            starts[d] = self.binary(BinaryOp::Add, relative, margin)?;
        }
        let mut operands = vec![id];
        operands.extend(&starts);
        let mut result = self.add(Op::DynamicSlice { sizes: local_sizes.iter().copied().collect() }, &operands)?;
        for &(d, relative) in &masks {
            if sizes[d] <= part.spec_shard(self, &spec, d) {
                let by = self.binary(BinaryOp::Subtract, relative, starts[d])?;
                result = self.shifted(result, d, by)?;
            }
        }
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
        let mut end = self.s32(limit)?;
        if let Some((offset, n)) = whole {
            let n = self.s32(n)?;
            let left = self.binary(BinaryOp::Subtract, n, offset)?;
            end = self.binary(BinaryOp::Minimum, end, left)?;
        }
        let inside = self.is_within(&dims, dim, start, end)?;
        let none = self.zero(self.element_type(x))?;
        let none = self.broadcast(none, &dims, &[])?;
        self.select(inside, x, none)
    }

    /// For each element of an array, whether `start` plus its position along `dim` is from 0 up to `end`.
    fn is_within(&mut self, dims: &[i64], dim: usize, start: InstructionId, end: InstructionId) -> Emit<InstructionId> {
        let position = self.iota(ElementType::S32, dims, dim)?;
        let base = self.broadcast(start, dims, &[])?;
        let position = self.binary(BinaryOp::Add, position, base)?;
        let zero = self.s32(0)?;
        let zeros = self.broadcast(zero, dims, &[])?;
        let above = self.compare(ComparisonDirection::Ge, position, zeros)?;
        let end = self.broadcast(end, dims, &[])?;
        let below = self.compare(ComparisonDirection::Lt, position, end)?;
        self.binary(BinaryOp::And, above, below)
    }

    /// Where the window within a shard begins that is nearest to `relative`.
    fn window_start(&mut self, relative: InstructionId, most: i64) -> Emit<InstructionId> {
        let (zero, most) = (self.s32(0)?, self.s32(most)?);
        self.add(Op::Clamp, &[zero, relative, most])
    }

    /// The elements from `by` on along `dim`, as many as there are; where there are none the value means nothing.
    fn shifted(&mut self, x: InstructionId, dim: usize, by: InstructionId) -> Emit<InstructionId> {
        let size = self.dims(x)[dim];
        if size == 1 {
            return Ok(x);
        }
        let padded = self.pad_dim(x, dim, size, size, None)?;
        let margin = self.s32(size)?;
        let start = self.binary(BinaryOp::Add, by, margin)?;
        self.dynamic_slice_dim(padded, dim, start, size)
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
        rule.operands = smallvec![whole.clone(), piece];
        rule.results = smallvec![whole];
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
        let cut: Vec<usize> = sliced.into_iter().filter(|&d| !spec.dims[d].is_empty()).collect();
        let (windows, margins): (Vec<usize>, Vec<usize>) = cut.into_iter().partition(|&d| sizes[d] <= local[d]);
        for &d in windows.iter().chain(&margins) {
            let offset = self.offset(&spec.dims[d], local[d])?;
            starts[d] = self.binary(BinaryOp::Subtract, starts[d], offset)?;
        }
        // Beside the shard there is room for an update that falls outside.
        for &d in &margins {
            let margin = self.s32(sizes[d])?;
            starts[d] = self.binary(BinaryOp::Add, starts[d], margin)?;
            id = self.pad_dim(id, d, sizes[d], sizes[d], None)?;
        }
        let update = self.window_update(id, update, &mut starts, &windows)?;
        let mut all = vec![id, update];
        all.extend(&starts);
        let mut result = self.add(Op::DynamicUpdateSlice, &all)?;
        for &d in &margins {
            result = self.slice_dim(result, d, sizes[d], sizes[d] + local[d], 1)?;
        }
        Ok(self.array(result, shape, spec))
    }

    /// An update of the window within `shard` that is nearest to `starts` along `windows`, where it may fall outside: what
    /// is not updated is written back. The starts become those of the window.
    fn window_update(
        &mut self,
        shard: InstructionId,
        update: InstructionId,
        starts: &mut [InstructionId],
        windows: &[usize],
    ) -> Emit<InstructionId> {
        if windows.is_empty() {
            return Ok(update);
        }
        let (local, dims) = (self.dims(shard), self.dims(update));
        let mut moved = update;
        let mut inside: Option<InstructionId> = None;
        for &d in windows {
            let start = self.window_start(starts[d], local[d] - dims[d])?;
            let by = self.binary(BinaryOp::Subtract, start, starts[d])?;
            starts[d] = start;
            moved = self.shifted(moved, d, by)?;
            let end = self.s32(dims[d])?;
            let here = self.is_within(&dims, d, by, end)?;
            inside = Some(match inside {
                Some(others) => self.binary(BinaryOp::And, others, here)?,
                None => here,
            });
        }
        let mut operands = vec![shard];
        operands.extend_from_slice(starts);
        let now = self.add(Op::DynamicSlice { sizes: dims.iter().copied().collect() }, &operands)?;
        match inside {
            Some(inside) => self.select(inside, moved, now),
            None => Ok(moved),
        }
    }
}

impl Part {
    /// The size of a shard along `d` in the form `spec`.
    fn spec_shard(&self, body: &Body<'_, '_>, spec: &Spec, d: usize) -> i64 {
        spec.local_dims(body.axes(), self.shape.dims())[d]
    }
}

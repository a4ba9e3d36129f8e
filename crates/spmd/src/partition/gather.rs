//! Gather: indices and whole slices by shards; of a dimension that is cut and indexed, each shard gives the rows it has,
//! and the result comes in parts.

use super::Emit;
use super::body::{Body, Part, Val};
use super::rule::{FactorDims, FactorKind, Rule};
use super::spec::{Reduction, Spec};
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::{BinaryOp, Gather};
use hloom_ir::shape::ArrayShape;
use hloom_ir::{ElementType, Op};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

impl Body<'_, '_> {
    pub(crate) fn gathered(&mut self, at: InstructionId, gather: &Gather) -> Emit<Val> {
        let operands = self.p.source[at].operands().to_vec();
        let (operand, indices) = (self.part(operands[0])?, self.part(operands[1])?);
        // Rows of what was widened are put together as they were before.
        if let Some(narrow) = self.narrow(&operand).filter(|n| n.shape.element_type != ElementType::Pred) {
            let shape = Arc::new(self.array_shape(at)?.with_element_type(narrow.shape.element_type));
            if let Val::Array(part) = self.gathered_from(at, gather, narrow, indices.clone(), shape)?
                && !part.spec.partial.is_empty()
            {
                let wide = self.array_shape(at)?;
                let wanted = self.wanted_array(at).complete();
                let complete = self.resharded(&part, &Spec { manual: part.spec.manual, ..wanted })?;
                let id = self.convert(complete.id, wide.element_type)?;
                return Ok(self.array(id, wide, complete.spec));
            }
        }
        let shape = self.array_shape(at)?;
        self.gathered_from(at, gather, operand, indices, shape)
    }

    /// The gather of those operands, as an array of that shape.
    fn gathered_from(
        &mut self,
        at: InstructionId,
        gather: &Gather,
        operand: Part,
        indices: Part,
        shape: Arc<ArrayShape>,
    ) -> Emit<Val> {
        let operands = self.p.source[at].operands().to_vec();
        let numbers = &gather.dims;
        let vector_dim = numbers.index_vector_dim as usize;
        let reduction = if shape.element_type == ElementType::Pred { Reduction::Or } else { Reduction::Sum };
        let mut rule = Rule::default();
        let mut from: FactorDims = SmallVec::from_elem(None, operand.shape.rank());
        let mut index: FactorDims = SmallVec::from_elem(None, indices.shape.rank());
        let mut to: FactorDims = SmallVec::from_elem(None, shape.rank());
        // Dimensions of the indices are the result's dimensions that are not offsets, in order.
        let batch: Vec<usize> = (0..shape.rank()).filter(|&d| !numbers.offset_dims.contains(&(d as i64))).collect();
        let index_dims: Vec<usize> = (0..indices.shape.rank()).filter(|&d| d != vector_dim).collect();
        let counting = crate::counting::counting_dims(
            self.p.source,
            operands[1],
            numbers.index_vector_dim,
            &numbers.start_index_map,
            operand.shape.dims(),
        );
        let counting: Vec<(usize, usize)> =
            counting.into_iter().filter(|&(o, _)| numbers.collapsed_slice_dims.contains(&(o as i64))).collect();
        for (&d, &r) in index_dims.iter().zip(&batch) {
            let factor = rule.factor(indices.shape.dims()[d], FactorKind::Pass);
            index[d] = factor;
            to[r] = factor;
            if let Some(&(o, _)) = counting.iter().find(|c| c.1 == d) {
                from[o] = factor;
            }
            let paired = numbers.start_indices_batching_dims.iter().position(|&b| b as usize == d);
            if let Some(&o) = paired.and_then(|n| numbers.operand_batching_dims.get(n)) {
                from[o as usize] = factor;
            }
        }
        let windows: Vec<usize> = (0..operand.shape.rank())
            .filter(|&d| {
                let d = d as i64;
                !numbers.collapsed_slice_dims.contains(&d) && !numbers.operand_batching_dims.contains(&d)
            })
            .collect();
        let mut owned: Vec<usize> = Vec::new();
        for (d, &n) in operand.shape.dims().iter().enumerate() {
            if from[d].is_some() {
                continue;
            }
            let offset = windows.iter().position(|&w| w == d).and_then(|w| numbers.offset_dims.get(w));
            let size = gather.slice_sizes[d];
            match offset {
                Some(&r) if size == n => {
                    let factor = rule.factor(n, FactorKind::Pass);
                    from[d] = factor;
                    to[r as usize] = factor;
                }
                _ if size == 1 && numbers.start_index_map.contains(&(d as i64)) => {
                    from[d] = rule.factor(n, FactorKind::Reduce(reduction));
                    owned.push(d);
                }
                _ => {
                    rule.factor(n, FactorKind::Whole);
                }
            }
        }
        rule.operands = smallvec![from, index];
        rule.results = smallvec![to];
        let wanted = self.wanted_array(at);
        let parts = [operand, indices];
        let assignment = self.choose(&rule, &parts, std::slice::from_ref(&wanted), &|_, _| Some(0.0));
        let manual = self.manual_of(&parts, &wanted);
        let spec = rule.operand(0, &assignment, manual);
        let index_spec = rule.operand(1, &assignment, manual);
        let id = self.reshard(&parts[0], &spec)?;
        let mut starts = self.reshard(&parts[1], &index_spec)?;
        let local = self.dims(id);
        for &(d, _) in counting.iter().filter(|&&(d, _)| !spec.dims[d].is_empty()) {
            // Each row of indices is about the row of the shard beside it.
            starts = self.signed_indices(starts)?;
            let component = numbers.start_index_map.iter().position(|&m| m as usize == d).unwrap_or(0);
            let one = self.component(starts, vector_dim, component)?;
            let offset = self.offset(&spec.dims[d], local[d])?;
            let offset = self.convert(offset, self.element_type(one))?;
            let offset = self.broadcast(offset, &self.dims(one), &[])?;
            let relative = self.binary(BinaryOp::Subtract, one, offset)?;
            starts = self.with_component(starts, vector_dim, component, relative)?;
        }
        let mut valid = None;
        for &d in owned.iter().filter(|&&d| !spec.dims[d].is_empty()) {
            let component = numbers.start_index_map.iter().position(|&m| m as usize == d).unwrap_or(0);
            let n = parts[0].shape.dims()[d];
            let offset = self.offset(&spec.dims[d], local[d])?;
            let (moved, inside) = self.own_indices(starts, vector_dim, component, offset, n, local[d])?;
            starts = moved;
            valid = Some(match valid {
                None => inside,
                Some(before) => self.binary(BinaryOp::And, before, inside)?,
            });
        }
        let mut local_gather = gather.clone();
        for (d, size) in local_gather.slice_sizes.iter_mut().enumerate() {
            if *size == parts[0].shape.dims()[d] && *size != 1 {
                *size = local[d];
            } else if *size == parts[0].shape.dims()[d] && !owned.contains(&d) {
                *size = (*size).min(local[d]);
            }
        }
        let mut result = self.add(Op::Gather(Box::new(local_gather)), &[id, starts])?;
        if let Some(valid) = valid {
            let dims = self.dims(result);
            let places: Vec<i64> = batch.iter().map(|&d| d as i64).collect();
            let valid = self.broadcast(valid, &dims, &places)?;
            let none = self.zero(shape.element_type)?;
            let none = self.broadcast(none, &dims, &[])?;
            result = self.select(valid, result, none)?;
        }
        let spec = rule.result(0, &assignment, manual);
        Ok(self.array(result, shape, spec))
    }

    /// Indices relative to a shard that begins at `offset`, and which of them fall into it. Gather clamps to the whole
    /// dimension of `n` elements first.
    fn own_indices(
        &mut self,
        indices: InstructionId,
        vector_dim: usize,
        component: usize,
        offset: InstructionId,
        n: i64,
        shard: i64,
    ) -> Emit<(InstructionId, InstructionId)> {
        let indices = self.signed_indices(indices)?;
        let element_type = self.element_type(indices);
        let dims = self.dims(indices);
        let implicit = vector_dim >= dims.len();
        let one = self.component(indices, vector_dim, component)?;
        let one_dims = self.dims(one);
        let zero = self.zero(element_type)?;
        let most = self.s32(n - 1)?;
        let most = self.convert(most, element_type)?;
        let clamped = self.add(Op::Clamp, &[zero, one, most])?;
        let offset = self.convert(offset, element_type)?;
        let offset = self.broadcast(offset, &one_dims, &[])?;
        let relative = self.binary(BinaryOp::Subtract, clamped, offset)?;
        let zeros = self.broadcast(zero, &one_dims, &[])?;
        let above = self.compare(ComparisonDirection::Ge, relative, zeros)?;
        let end = self.s32(shard)?;
        let end = self.convert(end, element_type)?;
        let end = self.broadcast(end, &one_dims, &[])?;
        let below = self.compare(ComparisonDirection::Lt, relative, end)?;
        let mut inside = self.binary(BinaryOp::And, above, below)?;
        if implicit {
            return Ok((relative, inside));
        }
        let mut flat = one_dims;
        flat.remove(vector_dim);
        inside = self.reshape(inside, &flat)?;
        Ok((self.with_component(indices, vector_dim, component, relative)?, inside))
    }

    /// Indices in a type that can be negative.
    pub(crate) fn signed_indices(&mut self, indices: InstructionId) -> Emit<InstructionId> {
        let wide = match self.element_type(indices) {
            ElementType::S64 | ElementType::U64 | ElementType::U32 => ElementType::S64,
            _ => ElementType::S32,
        };
        self.convert(indices, wide)
    }

    /// One component of index vectors.
    pub(crate) fn component(
        &mut self,
        indices: InstructionId,
        vector_dim: usize,
        component: usize,
    ) -> Emit<InstructionId> {
        match vector_dim >= self.dims(indices).len() {
            true => Ok(indices),
            false => self.slice_dim(indices, vector_dim, component as i64, component as i64 + 1, 1),
        }
    }

    /// Index vectors with one component replaced.
    pub(crate) fn with_component(
        &mut self,
        indices: InstructionId,
        vector_dim: usize,
        component: usize,
        new: InstructionId,
    ) -> Emit<InstructionId> {
        let count = self.dims(indices).get(vector_dim).copied().unwrap_or(1);
        if count == 1 {
            return Ok(new);
        }
        let mut pieces = Vec::new();
        if component > 0 {
            pieces.push(self.slice_dim(indices, vector_dim, 0, component as i64, 1)?);
        }
        pieces.push(new);
        if (component as i64) + 1 < count {
            pieces.push(self.slice_dim(indices, vector_dim, component as i64 + 1, count, 1)?);
        }
        self.add(Op::Concatenate { dimension: vector_dim as i64 }, &pieces)
    }
}

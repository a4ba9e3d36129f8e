//! Lowering of operations that read elements elsewhere, and of reductions.

use crate::affine::{Affine, ItemId, Term};
use crate::graph::{GatherAttributes, Node, NodeOp, ScalarOp, ValueRef};
use crate::lower::{Index, Loop, Lowerer, ValueRequest, linear};
use crate::program::{Item, Reduce};
use crate::unsupported::Unsupported;
use hloom_ir::ElementType;
use hloom_ir::attributes::{PaddingDim, Window};
use smallvec::{SmallVec, smallvec};

impl Lowerer<'_> {
    /// Works out a value that is merely moved: where its element comes from.
    pub(crate) fn expand_moving(
        &mut self,
        request: &ValueRequest,
        node: &Node,
        first: ValueRef,
    ) -> Result<Option<ItemId>, Unsupported> {
        let graph = self.graph;
        let (index, guard) = (&request.index, request.guard);
        let from = graph.dims(first);
        Ok(match &node.op {
            NodeOp::Reshape if node.dims[..] == *from => self.get(first, index, guard),
            NodeOp::Reshape => {
                let position = linear(index, &node.dims);
                let at = self.delinearize(position, from);
                self.get(first, &at, guard)
            }
            NodeOp::Broadcast { dimensions } => {
                let at: Index = dimensions.iter().map(|&d| index[d as usize].clone()).collect();
                self.get(first, &at, guard)
            }
            NodeOp::Transpose { dimensions } => {
                let mut at: Index = smallvec![Affine::default(); from.len()];
                for (i, &d) in index.iter().zip(dimensions) {
                    at[d as usize] = i.clone();
                }
                self.get(first, &at, guard)
            }
            NodeOp::Reverse { dimensions } => {
                let mut at = index.clone();
                for &d in dimensions {
                    at[d as usize] = Affine::constant(from[d as usize] - 1).plus(&index[d as usize], -1);
                }
                self.get(first, &at, guard)
            }
            NodeOp::Slice(dims) => {
                let at: Index = index.iter().zip(dims).map(|(i, s)| i.times(s.stride).plus_constant(s.start)).collect();
                self.get(first, &at, guard)
            }
            NodeOp::Concatenate { dimension } => self.concatenate(node, *dimension, index, guard),
            NodeOp::Pad(padding) => self.pad(node, padding, index, guard),
            NodeOp::DynamicSlice => {
                let Some(starts) = self.starts(&node.operands[1..], from, &node.dims) else { return Ok(None) };
                let at: Index = index.iter().zip(&starts).map(|(i, s)| i.plus(s, 1)).collect();
                self.get(first, &at, guard)
            }
            NodeOp::DynamicUpdateSlice => self.dynamic_update_slice(node, first, index, guard)?,
            NodeOp::Gather(attributes) => self.gather(node, attributes, index, guard)?,
            NodeOp::Reduce { dimensions, function } => {
                let loops = dimensions.iter().map(|&d| (d as usize, from[d as usize]));
                let mut sorted: Vec<(usize, i64)> = loops.collect();
                sorted.sort_unstable();
                let loops = self.reduce_loops(request, sorted.iter().copied());
                let mut kept = index.iter();
                let mut at = Index::new();
                for d in 0..from.len() {
                    match sorted.iter().position(|&(r, _)| r == d) {
                        Some(n) => at.push(loops[n].1.clone()),
                        None => at.push(kept.next().cloned().unwrap_or_default()),
                    }
                }
                let vars = loops.iter().flat_map(|l| l.0.iter().copied()).collect();
                self.reduce(request, node, &at, Reduce::over(vars, function.clone()), guard)
            }
            NodeOp::ReduceWindow { window, function } => {
                let loops = self.reduce_loops(request, window.dims.iter().map(|w| w.size).enumerate());
                let Some((at, condition)) = self.window_index(window, index, &loops, from)? else { return Ok(None) };
                let vars = loops.iter().flat_map(|l| l.0.iter().copied()).collect();
                let mut reduce = Reduce::over(vars, function.clone());
                reduce.condition = condition;
                self.reduce(request, node, &at, reduce, guard)
            }
            NodeOp::Scatter(_) => return Err(Unsupported::new("a scatter whose result is used in its fusion")),
            _ => return Err(Unsupported::new("an operation in this place")),
        })
    }

    fn concatenate(&mut self, node: &Node, dimension: usize, index: &Index, guard: Option<ItemId>) -> Option<ItemId> {
        let mut parts: Vec<(Option<ItemId>, ItemId)> = Vec::new();
        let (mut start, mut complete) = (0, true);
        for &o in &node.operands {
            let size = self.graph.dims(o)[dimension];
            let at_end = start;
            start += size;
            let condition = match self.in_range(&index[dimension], at_end, at_end + size) {
                Ok(false) => continue,
                Ok(true) => None,
                Err(item) => Some(item),
            };
            let mut at = index.clone();
            at[dimension] = index[dimension].plus_constant(-at_end);
            let inner = self.and(guard, condition);
            match self.get(o, &at, inner) {
                Some(value) => parts.push((condition, value)),
                None => complete = false,
            }
        }
        if !complete {
            return None;
        }
        // The parts cover everything, so the last needs no condition.
        let (_, mut value) = parts.pop()?;
        for (condition, part) in parts.into_iter().rev() {
            if let Some(condition) = condition {
                value = self.scalar(ScalarOp::Select, &[condition, part, value], node.types[0]);
            }
        }
        Some(value)
    }

    fn pad(&mut self, node: &Node, padding: &[PaddingDim], index: &Index, guard: Option<ItemId>) -> Option<ItemId> {
        let graph = self.graph;
        let (operand, padding_value) = (node.operands[0], node.operands[1]);
        let outside = self.get(padding_value, &[], None);
        let mut at = Index::new();
        let mut condition: Option<ItemId> = None;
        for ((i, p), &size) in index.iter().zip(padding).zip(graph.dims(operand)) {
            let mut shifted = i.plus_constant(-p.low);
            if p.interior > 0 {
                let step = p.interior + 1;
                let span = (size - 1).saturating_mul(step).saturating_add(1);
                match self.in_range(&shifted, 0, span) {
                    Ok(true) => {}
                    Ok(false) => return outside,
                    Err(item) => condition = self.and(condition, Some(item)),
                }
                // Moved up by a multiple of the step, so that what is divided is never negative.
                let lift = (p.low / step + 1).max(0);
                let (quotient, remainder) = self.divide(&shifted.plus_constant(lift.saturating_mul(step)), step);
                match self.in_range(&remainder, 0, 1) {
                    Ok(true) => {}
                    Ok(false) => return outside,
                    Err(item) => condition = self.and(condition, Some(item)),
                }
                shifted = quotient.plus_constant(-lift);
            } else {
                match self.in_range(&shifted, 0, size) {
                    Ok(true) => {}
                    Ok(false) => return outside,
                    Err(item) => condition = self.and(condition, Some(item)),
                }
            }
            at.push(shifted);
        }
        let inner = self.and(guard, condition);
        let inside = self.get(operand, &at, inner)?;
        Some(match condition {
            None => inside,
            Some(condition) => self.scalar(ScalarOp::Select, &[condition, inside, outside?], node.types[0]),
        })
    }

    /// The clamped start indices of a slice of those sizes, from scalars or from one vector.
    pub(crate) fn starts(&mut self, operands: &[ValueRef], dims: &[i64], sizes: &[i64]) -> Option<Index> {
        let is_vector = matches!(operands, [one] if self.graph.dims(*one).len() == 1);
        let mut starts: SmallVec<[Option<ItemId>; 4]> = SmallVec::new();
        for d in 0..dims.len() {
            starts.push(match is_vector {
                true => self.get(operands[0], &[Affine::constant(d as i64)], None),
                false => self.get(operands[d], &[], None),
            });
        }
        let starts: SmallVec<[ItemId; 4]> = starts.into_iter().collect::<Option<_>>()?;
        Some(
            starts
                .iter()
                .enumerate()
                .map(|(d, &start)| self.clamped_index(start, dims[d] - sizes.get(d).copied().unwrap_or(1)))
                .collect(),
        )
    }

    /// `item` brought into `0..=high`.
    pub(crate) fn clamped_index(&mut self, item: ItemId, high: i64) -> Affine {
        if high <= 0 {
            return Affine::constant(0);
        }
        // In 32 bits there are twice as many to a vector.
        let clamped = match (self.program.item(item).element_type, i32::try_from(high)) {
            (ElementType::S32, Ok(high)) => {
                let number = |n: i32| Item::Constant(ElementType::S32, n.to_le_bytes()[..].into());
                let (low, high) = (self.add(number(0), ElementType::S32), self.add(number(high), ElementType::S32));
                let clamped = self.scalar(ScalarOp::Clamp, &[low, item, high], ElementType::S32);
                self.scalar(ScalarOp::Convert, &[clamped], ElementType::S64)
            }
            _ => {
                let wide = self.index_item(item);
                let (low, high) = (self.constant_s64(0), self.constant_s64(high));
                self.scalar(ScalarOp::Clamp, &[low, wide, high], ElementType::S64)
            }
        };
        self.set_bounds(clamped, 0, high);
        Affine::term(Term::Item(clamped))
    }

    /// An index of any integer type as s64; what of u64 does not fit is beyond every array, as it should be.
    pub(crate) fn index_item(&mut self, item: ItemId) -> ItemId {
        use ElementType::{S64, U64};
        match self.program.item(item).element_type {
            S64 => item,
            U64 => {
                let bytes = |n: u64| Item::Constant(U64, n.to_le_bytes()[..].into());
                let (zero, limit) = (self.add(bytes(0), U64), self.add(bytes(i64::MAX as u64), U64));
                let limited = self.scalar(ScalarOp::Clamp, &[zero, item, limit], U64);
                self.scalar(ScalarOp::Convert, &[limited], S64)
            }
            _ => self.scalar(ScalarOp::Convert, &[item], S64),
        }
    }

    fn dynamic_update_slice(
        &mut self,
        node: &Node,
        operand: ValueRef,
        index: &Index,
        guard: Option<ItemId>,
    ) -> Result<Option<ItemId>, Unsupported> {
        let graph = self.graph;
        let update = *node.operands.get(1).ok_or_else(|| Unsupported::new("a missing operand"))?;
        let sizes = graph.dims(update);
        let Some(starts) = self.starts(&node.operands[2..], &node.dims, sizes) else { return Ok(None) };
        let mut condition: Option<ItemId> = None;
        let mut at = Index::new();
        for ((i, start), &size) in index.iter().zip(&starts).zip(sizes) {
            let shifted = i.plus(start, -1);
            match self.in_range(&shifted, 0, size) {
                Ok(true) => {}
                Ok(false) => return Ok(self.get(operand, index, guard)),
                Err(item) => condition = self.and(condition, Some(item)),
            }
            at.push(shifted);
        }
        let inner = self.and(guard, condition);
        let (new, old) = (self.get(update, &at, inner), self.get(operand, index, guard));
        let (Some(new), Some(old)) = (new, old) else { return Ok(None) };
        Ok(Some(match condition {
            None => new,
            Some(condition) => self.scalar(ScalarOp::Select, &[condition, new, old], node.types[0]),
        }))
    }

    fn gather(
        &mut self,
        node: &Node,
        attributes: &GatherAttributes,
        index: &Index,
        guard: Option<ItemId>,
    ) -> Result<Option<ItemId>, Unsupported> {
        let graph = self.graph;
        let missing = || Unsupported::new("a missing operand");
        let (operand, indices) = (node.operands[0], *node.operands.get(1).ok_or_else(missing)?);
        let dims = &attributes.dims;
        let operand_dims = graph.dims(operand);
        let batch: Vec<Affine> =
            (0..index.len()).filter(|d| !dims.offset_dims.contains(&(*d as i64))).map(|d| index[d].clone()).collect();
        let index_rank = graph.dims(indices).len();
        let vector_dim = dims.index_vector_dim as usize;
        // The batch dimensions of the indices, in order, are those of the result.
        let mut batch_dims = batch.iter();
        let mut at_indices: Index = SmallVec::new();
        for d in 0..index_rank {
            at_indices.push(if d == vector_dim {
                Affine::default()
            } else {
                batch_dims.next().cloned().unwrap_or_default()
            });
        }
        let mut start_of: Vec<Option<ItemId>> = Vec::new();
        for k in 0..dims.start_index_map.len() {
            let mut at = at_indices.clone();
            if vector_dim < index_rank {
                at[vector_dim] = Affine::constant(k as i64);
            }
            start_of.push(self.get(indices, &at, guard));
        }
        let start_of: Option<Vec<ItemId>> = start_of.into_iter().collect();
        let Some(start_of) = start_of else { return Ok(None) };
        let mut offsets = dims.offset_dims.iter().map(|&d| index[d as usize].clone());
        let mut at = Index::new();
        for (d, &size) in operand_dims.iter().enumerate() {
            let d64 = d as i64;
            let mut component = Affine::default();
            if let Some(k) = dims.operand_batching_dims.iter().position(|&b| b == d64) {
                let of = dims.start_indices_batching_dims.get(k).copied().ok_or_else(missing)? as usize;
                component = at_indices.get(of).cloned().ok_or_else(missing)?;
            } else if !dims.collapsed_slice_dims.contains(&d64) {
                component = offsets.next().ok_or_else(missing)?;
            }
            if let Some(k) = dims.start_index_map.iter().position(|&m| m == d64) {
                let slice = attributes.slice_sizes.get(d).copied().unwrap_or(1).max(1);
                let start = self.clamped_index(start_of[k], size - slice);
                component = component.plus(&start, 1);
            }
            at.push(component);
        }
        Ok(self.get(operand, &at, guard))
    }

    /// Where an element of a window lies in the base, and whether it does.
    fn window_index(
        &mut self,
        window: &Window,
        index: &Index,
        loops: &[Loop],
        base: &[i64],
    ) -> Result<Option<(Index, Option<ItemId>)>, Unsupported> {
        let mut at = Index::new();
        let mut condition: Option<ItemId> = None;
        for (d, w) in window.dims.iter().enumerate() {
            let mut i = index[d].times(w.stride).plus(&loops[d].1, w.window_dilation).plus_constant(-w.padding_low);
            if w.base_dilation != 1 {
                // Only every so many places hold an element. What is divided must not be negative.
                let low = i.range(|t| self.bounds_of(t)).0.min(0);
                let before = i64::try_from(-low).ok().filter(|&n| n < 1 << 40);
                let before = before.ok_or_else(|| Unsupported::new("a window far before its base"))?;
                let whole = (before + w.base_dilation - 1) / w.base_dilation;
                let (quotient, hole) = self.divide(&i.plus_constant(whole * w.base_dilation), w.base_dilation);
                match self.in_range(&hole, 0, 1) {
                    Ok(true) => {}
                    Ok(false) => return Err(Unsupported::new("a window beside its base")),
                    Err(item) => condition = self.and(condition, Some(item)),
                }
                i = quotient.plus_constant(-whole);
            }
            match self.in_range(&i, 0, base[d]) {
                Ok(true) => {}
                Ok(false) => return Err(Unsupported::new("a window beside its base")),
                Err(item) => condition = self.and(condition, Some(item)),
            }
            at.push(i);
        }
        Ok(Some((at, condition)))
    }

    fn reduce(
        &mut self,
        request: &ValueRequest,
        node: &Node,
        at: &Index,
        mut reduce: Reduce,
        guard: Option<ItemId>,
    ) -> Option<ItemId> {
        let (inputs, inits) = node.operands.split_at(node.operands.len() / 2);
        let inner = self.and(guard, reduce.condition);
        let is_empty = reduce.vars.iter().any(|&v| self.program.extents[v as usize] == 0);
        let input_items: SmallVec<[Option<ItemId>; 1]> = match is_empty {
            true => SmallVec::new(),
            false => inputs.iter().map(|&o| self.get(o, at, inner)).collect(),
        };
        let init_items: SmallVec<[Option<ItemId>; 1]> = inits.iter().map(|&o| self.get(o, &[], None)).collect();
        reduce.inputs = input_items.into_iter().collect::<Option<_>>()?;
        reduce.inits = init_items.into_iter().collect::<Option<_>>()?;
        // The function may carry another precision than the arrays have.
        let parameters = reduce.function.parameters.clone();
        for (n, item) in reduce.inits.iter_mut().chain(&mut reduce.inputs).enumerate() {
            if let Some(&t) = parameters.get(n).filter(|&&t| !is_empty && t != self.program.item(*item).element_type) {
                *item = self.scalar(ScalarOp::Convert, &[*item], t);
            }
        }
        if is_empty {
            return reduce.inits.get(request.value.result as usize).copied();
        }
        let element_types = reduce.function.parameters.clone();
        let item = self.add(Item::Reduce(Box::new(reduce)), node.types[0]);
        // All results of a reduce are results of one loop, whichever is asked for first.
        for result in 0..node.types.len() as u32 {
            let other = ValueRequest { value: ValueRef { node: request.value.node, result }, ..request.clone() };
            let carried = element_types.get(result as usize).copied().unwrap_or(node.types[0]);
            let mut value = self.add(Item::ReduceResult(item, result), carried);
            if carried != node.types[result as usize] {
                value = self.scalar(ScalarOp::Convert, &[value], node.types[result as usize]);
            }
            self.answer(other, value);
        }
        self.answered(request)
    }
}

impl Reduce {
    fn over(vars: SmallVec<[u32; 2]>, function: crate::graph::Function) -> Reduce {
        Reduce { vars, inits: SmallVec::new(), inputs: SmallVec::new(), condition: None, function }
    }
}

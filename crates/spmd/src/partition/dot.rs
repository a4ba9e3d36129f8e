//! Products: batch and non-contracting dimensions by shards, contracting ones by parts of sums.

use super::Emit;
use super::axes::AxisList;
use super::body::{Body, Part, Val};
use super::rule::{FactorDims, FactorKind, Rule};
use super::spec::{Reduction, Spec};
use hloom_ir::Op;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::{Dot, RaggedDot};
use smallvec::{SmallVec, smallvec};

impl Body<'_, '_> {
    pub(crate) fn dot(&mut self, at: InstructionId, dot: &Dot) -> Emit<Val> {
        let operands = self.p.source[at].operands();
        let (lhs, rhs) = (self.part(operands[0])?, self.part(operands[1])?);
        let shape = self.array_shape(at)?;
        if operands.len() != 2 {
            return self.compute_whole(at);
        }
        let mut rule = Rule::default();
        let mut left: FactorDims = SmallVec::from_elem(None, lhs.shape.rank());
        let mut right: FactorDims = SmallVec::from_elem(None, rhs.shape.rank());
        let mut result = FactorDims::new();
        for (&l, &r) in dot.dims.lhs_batch.iter().zip(&dot.dims.rhs_batch) {
            let factor = rule.factor(lhs.shape.dims()[l as usize], FactorKind::Pass);
            left[l as usize] = factor;
            right[r as usize] = factor;
            result.push(factor);
        }
        let mut contracted: Vec<(usize, usize)> = Vec::new();
        for (&l, &r) in dot.dims.lhs_contracting.iter().zip(&dot.dims.rhs_contracting) {
            let kind = match Self::sums(shape.element_type) {
                true => FactorKind::Reduce(Reduction::Sum),
                false => FactorKind::Whole,
            };
            let factor = rule.factor(lhs.shape.dims()[l as usize], kind);
            left[l as usize] = factor;
            right[r as usize] = factor;
            contracted.push((l as usize, r as usize));
        }
        for (part, dims) in [(&lhs, &mut left), (&rhs, &mut right)] {
            for (d, factor) in dims.iter_mut().enumerate() {
                if factor.is_none() {
                    *factor = rule.factor(part.shape.dims()[d], FactorKind::Pass);
                    result.push(*factor);
                }
            }
        }
        let elements = shape.element_count().unwrap_or(i64::MAX) as f64;
        let depth: f64 = contracted.iter().map(|&(l, _)| lhs.shape.dims()[l] as f64).product();
        rule.flops = 2.0 * elements * depth;
        rule.operands = smallvec![left, right];
        rule.results = smallvec![result];
        let wanted = self.wanted_array(at);
        let parts = [lhs, rhs];
        let assignment = self.choose_product(&rule, &parts, &wanted, shape.element_type.bits());
        let manual = self.manual_of(&parts, &wanted);
        let mut ids = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            let spec = rule.operand(i, &assignment, manual);
            let mut id = self.reshard(part, &spec)?;
            for &(l, r) in &contracted {
                let d = if i == 0 { l } else { r };
                // Padding would be summed.
                let zero = self.zero(part.shape.element_type)?;
                id = self.mask_dim(id, d, &spec.dims[d], part.shape.dims()[d], zero)?;
            }
            ids.push(id);
        }
        let spec = rule.result(0, &assignment, manual);
        let id = self.add_local(Op::Dot(Box::new(dot.clone())), &ids, &shape, &spec)?;
        Ok(self.array(id, shape, spec))
    }

    /// XLA's own call for a product of numbers with scales: left and right side, each with its rows before the contracting
    /// dimension, and their scales, whose dimensions go with those of the numbers.
    pub(crate) fn block_scaled_dot(&mut self, at: InstructionId) -> Emit<Val> {
        let operands = self.p.source[at].operands().to_vec();
        let shape = self.array_shape(at)?;
        let rank = shape.rank();
        let alike = |&o: &InstructionId| self.p.source[o].shape.as_array().is_some_and(|a| a.rank() == rank);
        if operands.len() != 4 || rank < 2 || !operands.iter().all(alike) {
            return self.compute_whole(at);
        }
        let parts = self.parts(&operands)?;
        let sizes = |i: usize| parts[i].shape.dims();
        let mut rule = Rule::default();
        let batch: FactorDims = sizes(0)[..rank - 2].iter().map(|&n| rule.factor(n, FactorKind::Pass)).collect();
        let rows = rule.factor(sizes(0)[rank - 2], FactorKind::Pass);
        let columns = rule.factor(sizes(1)[rank - 2], FactorKind::Pass);
        let depth = rule.factor(sizes(0)[rank - 1], FactorKind::Reduce(Reduction::Sum));
        let with = |last: [Option<u8>; 2]| -> FactorDims { batch.iter().copied().chain(last).collect() };
        let (left, right) = (with([rows, depth]), with([columns, depth]));
        rule.operands = smallvec![left.clone(), right.clone(), left, right];
        rule.results = smallvec![with([rows, columns])];
        rule.flops = 2.0 * shape.element_count().unwrap_or(i64::MAX) as f64 * sizes(0)[rank - 1] as f64;
        let wanted = self.wanted_array(at);
        let even = |b: &Body<'_, '_>, a: &super::rule::Assignment| {
            let fits = |(part, dims): (&Part, &FactorDims)| {
                part.shape
                    .dims()
                    .iter()
                    .zip(dims)
                    .all(|(n, f)| f.is_none_or(|f| n % b.axes().product(&a[f as usize]) == 0))
            };
            parts.iter().zip(&rule.operands).all(fits).then_some(0.0)
        };
        let assignment = self.choose(&rule, &parts, std::slice::from_ref(&wanted), &even);
        let manual = self.manual_of(&parts, &wanted);
        let mut ids = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            ids.push(self.operand(&rule, i, &assignment, manual, part)?);
        }
        let spec = rule.result(0, &assignment, manual);
        let op = self.local_op(&self.p.source[at].op)?;
        let id = self.add_local(op, &ids, &shape, &spec)?;
        self.inherit(id, at);
        Ok(self.array(id, shape, spec))
    }

    /// Rows in groups, each times a matrix of its own. Columns are cut like a dot's, sums come in parts, and so does the
    /// result where the groups are cut: a device multiplies the rows of its groups.
    pub(crate) fn ragged_dot(&mut self, at: InstructionId, dot: &RaggedDot) -> Emit<Val> {
        let operands = self.p.source[at].operands().to_vec();
        let (lhs, rhs, sizes) = (self.part(operands[0])?, self.part(operands[1])?, self.part(operands[2])?);
        let shape = self.array_shape(at)?;
        let plain = dot.lhs_ragged.len() == 1
            && dot.rhs_group.len() == 1
            && sizes.shape.rank() == 1
            && !dot.dims.lhs_contracting.contains(&dot.lhs_ragged[0])
            && !dot.dims.lhs_batch.contains(&dot.lhs_ragged[0]);
        if !plain {
            return self.compute_whole(at);
        }
        let mut rule = Rule::default();
        let mut left: FactorDims = SmallVec::from_elem(None, lhs.shape.rank());
        let mut right: FactorDims = SmallVec::from_elem(None, rhs.shape.rank());
        let mut result = FactorDims::new();
        let mut contracted: Vec<(usize, usize)> = Vec::new();
        for (&l, &r) in dot.dims.lhs_batch.iter().zip(&dot.dims.rhs_batch) {
            let factor = rule.factor(lhs.shape.dims()[l as usize], FactorKind::Whole);
            left[l as usize] = factor;
            right[r as usize] = factor;
            result.push(factor);
        }
        for (&l, &r) in dot.dims.lhs_contracting.iter().zip(&dot.dims.rhs_contracting) {
            let factor = rule.factor(lhs.shape.dims()[l as usize], FactorKind::Reduce(Reduction::Sum));
            left[l as usize] = factor;
            right[r as usize] = factor;
            contracted.push((l as usize, r as usize));
        }
        let (ragged, group) = (dot.lhs_ragged[0] as usize, dot.rhs_group[0] as usize);
        let groups = rhs.shape.dims()[group];
        right[group] = rule.factor(groups, FactorKind::Reduce(Reduction::Sum));
        let group_factor = right[group];
        let mut rows = 0;
        for (part, dims, is_left) in [(&lhs, &mut left, true), (&rhs, &mut right, false)] {
            for (d, factor) in dims.iter_mut().enumerate() {
                if factor.is_none() {
                    let whole = is_left && d == ragged;
                    if whole {
                        rows = result.len();
                    }
                    *factor =
                        rule.factor(part.shape.dims()[d], if whole { FactorKind::Whole } else { FactorKind::Pass });
                    result.push(*factor);
                }
            }
        }
        rule.operands = smallvec![left, right, FactorDims::from_elem(None, 1)];
        rule.results = smallvec![result];
        let depth: f64 = contracted.iter().map(|&(l, _)| lhs.shape.dims()[l] as f64).product();
        // Every device has all rows, whatever the groups: only columns and sums share the work.
        rule.flops = 0.0;
        let work = 2.0 * shape.element_count().unwrap_or(i64::MAX) as f64 * depth;
        let wanted = self.wanted_array(at);
        let parts = [lhs, rhs, sizes];
        let group_index = group_factor.map_or(0, usize::from);
        let assignment = self.choose(&rule, &parts, std::slice::from_ref(&wanted), &|b, a| {
            let even = groups % b.axes().product(&a[group_index]) == 0;
            let sharing: AxisList =
                a.iter().enumerate().filter(|&(f, _)| f != group_index).flat_map(|(_, l)| l.iter().copied()).collect();
            even.then(|| work / b.axes().product(&sharing) as f64)
        });
        let manual = self.manual_of(&parts, &wanted);
        let mut ids = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            let spec = rule.operand(i, &assignment, manual);
            let mut id = self.reshard(part, &spec)?;
            for &(l, r) in contracted.iter().filter(|_| i < 2) {
                let d = if i == 0 { l } else { r };
                let zero = self.zero(part.shape.element_type)?;
                id = self.mask_dim(id, d, &spec.dims[d], part.shape.dims()[d], zero)?;
            }
            ids.push(id);
        }
        let spec = rule.result(0, &assignment, manual);
        let list = assignment[group_index];
        let id = if list.is_empty() {
            self.add_local(Op::RaggedDot(Box::new(dot.clone())), &ids, &shape, &spec)?
        } else {
            self.own_groups(dot, &ids, &parts, &list, (ragged, rows), &shape, &spec)?
        };
        Ok(self.array(id, shape, spec))
    }

    /// The rows of a device's own groups, multiplied, and zero elsewhere: the rows are moved to the front and back.
    #[allow(clippy::too_many_arguments, reason = "all of a product's parts")]
    fn own_groups(
        &mut self,
        dot: &RaggedDot,
        ids: &[InstructionId],
        parts: &[Part; 3],
        list: &[u8],
        (ragged, row_dim): (usize, usize),
        shape: &hloom_ir::shape::ArrayShape,
        spec: &Spec,
    ) -> Emit<InstructionId> {
        let groups = parts[2].shape.dims()[0];
        let per = groups / self.axes().product(list);
        let size_type = parts[2].shape.element_type;
        let start = self.offset(list, per)?;
        let own = self.dynamic_slice_dim(ids[2], 0, start, per)?;
        // Rows of the groups before.
        let index = self.iota(hloom_ir::ElementType::S32, &[groups], 0)?;
        let bound = self.broadcast(start, &[groups], &[])?;
        let earlier = self.compare(hloom_ir::attributes::ComparisonDirection::Lt, index, bound)?;
        let none = self.zero(size_type)?;
        let nones = self.broadcast(none, &[groups], &[])?;
        let before = self.select(earlier, ids[2], nones)?;
        let add = self.reducer(Reduction::Sum, size_type)?;
        let sum =
            |b: &mut Self, x| b.add(Op::Reduce { dimensions: SmallVec::from_slice(&[0]), to_apply: add }, &[x, none]);
        let before = sum(self, before)?;
        let before = self.convert(before, hloom_ir::ElementType::S32)?;
        let count = sum(self, own)?;
        let count = self.convert(count, hloom_ir::ElementType::S32)?;
        let rows = parts[0].shape.dims()[ragged];
        let padded = self.pad_dim(ids[0], ragged, 0, rows, None)?;
        let mine = self.dynamic_slice_dim(padded, ragged, before, rows)?;
        let product = self.add_local(Op::RaggedDot(Box::new(dot.clone())), &[mine, ids[1], own], shape, spec)?;
        let dims = self.dims(product);
        let position = self.iota(hloom_ir::ElementType::S32, &dims, row_dim)?;
        let count = self.broadcast(count, &dims, &[])?;
        let counts = self.compare(hloom_ir::attributes::ComparisonDirection::Lt, position, count)?;
        let zero = self.zero(shape.element_type)?;
        let zeros = self.broadcast(zero, &dims, &[])?;
        let product = self.select(counts, product, zeros)?;
        let padded = self.pad_dim(product, row_dim, rows, 0, None)?;
        let most = self.s32(rows)?;
        let back = self.binary(hloom_ir::op::BinaryOp::Subtract, most, before)?;
        self.dynamic_slice_dim(padded, row_dim, back, rows)
    }
}

//! Scatter: shards of the operand take the updates that fall into them; shards of the updates make parts of the result.

use super::Emit;
use super::axes::AxisList;
use super::body::{Body, Free, Part, Val};
use super::reduce::reduction_of;
use super::rule::{FactorDims, FactorKind, Rule};
use super::spec::{Reduction, Spec};
use hloom_ir::Op;
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::{BinaryOp, Scatter};
use smallvec::{SmallVec, smallvec};

impl Body<'_, '_> {
    pub(crate) fn scattered(&mut self, at: InstructionId, scatter: &Scatter) -> Emit<Val> {
        let source = self.p.source;
        let operands = source[at].operands().to_vec();
        let count = (operands.len() - 1) / 2;
        let parts = self.parts(&operands)?;
        let (operand, indices, update) = (&parts[0], &parts[count], &parts[count + 1]);
        let numbers = &scatter.dims;
        let vector_dim = numbers.index_vector_dim as usize;
        let reduction = if count == 1 { reduction_of(source, scatter.to_apply) } else { None };
        let mut rule = Rule::default();
        let mut whole: FactorDims = SmallVec::from_elem(None, operand.shape.rank());
        let mut index: FactorDims = SmallVec::from_elem(None, indices.shape.rank());
        let mut piece: FactorDims = SmallVec::from_elem(None, update.shape.rank());
        let batch: Vec<usize> =
            (0..update.shape.rank()).filter(|&d| !numbers.update_window_dims.contains(&(d as i64))).collect();
        let index_dims: Vec<usize> = (0..indices.shape.rank()).filter(|&d| d != vector_dim).collect();
        let mut spread: Vec<(usize, u8)> = Vec::new();
        let counting = crate::counting::counting_dims(
            source,
            operands[count],
            numbers.index_vector_dim,
            &numbers.scatter_dims_to_operand_dims,
            operand.shape.dims(),
        );
        let counting: Vec<(usize, usize)> =
            counting.into_iter().filter(|&(o, _)| numbers.inserted_window_dims.contains(&(o as i64))).collect();
        for (&d, &u) in index_dims.iter().zip(&batch) {
            let paired = numbers.scatter_indices_batching_dims.iter().position(|&b| b as usize == d);
            let paired = paired.and_then(|n| numbers.input_batching_dims.get(n)).map(|&o| o as usize);
            let operand_dim = paired.or_else(|| counting.iter().find(|c| c.1 == d).map(|c| c.0));
            let kind = match (operand_dim, reduction) {
                (Some(_), _) => FactorKind::Pass,
                (None, Some(reduction)) => FactorKind::Reduce(reduction),
                (None, None) => FactorKind::Whole,
            };
            let factor = rule.factor(indices.shape.dims()[d], kind);
            index[d] = factor;
            piece[u] = factor;
            match operand_dim {
                Some(o) => whole[o] = factor,
                None => spread.extend(factor.map(|f| (d, f))),
            }
        }
        let windows: Vec<usize> = (0..operand.shape.rank())
            .filter(|&d| {
                let d = d as i64;
                !numbers.inserted_window_dims.contains(&d) && !numbers.input_batching_dims.contains(&d)
            })
            .collect();
        let mut owned: Vec<usize> = counting.iter().map(|c| c.0).collect();
        for (d, &n) in operand.shape.dims().iter().enumerate() {
            if whole[d].is_some() {
                continue;
            }
            let window = windows.iter().position(|&w| w == d).and_then(|w| numbers.update_window_dims.get(w));
            match window {
                Some(&u) if update.shape.dims()[u as usize] == n => {
                    let factor = rule.factor(n, FactorKind::Pass);
                    whole[d] = factor;
                    piece[u as usize] = factor;
                }
                None if numbers.scatter_dims_to_operand_dims.contains(&(d as i64)) => {
                    whole[d] = rule.factor(n, FactorKind::Pass);
                    owned.push(d);
                }
                _ => {
                    rule.factor(n, FactorKind::Whole);
                }
            }
        }
        rule.operands = smallvec![whole.clone(); count];
        rule.operands.push(index);
        rule.operands.extend(vec![piece; count]);
        rule.results = smallvec![whole; count];
        let wanted = self.p.annotated_leaves(at);
        let assignment = self.choose(&rule, &parts, &wanted, &|_, _| Some(0.0));
        let manual = self.manual_of(&parts, &wanted[0]);
        let spec = rule.operand(0, &assignment, manual);
        let across: AxisList = spread.iter().flat_map(|&(_, f)| assignment[f as usize].iter().copied()).collect();
        let mut ids = Vec::new();
        for (i, part) in parts.iter().enumerate().take(count) {
            let id = self.reshard(part, &rule.operand(i, &assignment, manual))?;
            ids.push(self.start_once(part, id, &across, reduction, operands[i])?);
        }
        let index_spec = rule.operand(count, &assignment, manual);
        let mut starts = self.reshard(&parts[count], &index_spec)?;
        starts = self.own_updates(starts, &parts, &spec, &index_spec, &owned, scatter, count)?;
        ids.push(starts);
        for (i, part) in parts.iter().enumerate().skip(count + 1) {
            ids.push(self.reshard(part, &rule.operand(i, &assignment, manual))?);
        }
        let mut op = self.local_op(&source[at].op)?;
        // Which of the indices a device has need not be in order once some are moved out of its shard.
        if let Op::Scatter(local) = &mut op
            && owned.iter().any(|&d| !spec.dims[d].is_empty())
        {
            local.indices_are_sorted = false;
            local.unique_indices = false;
        }
        let specs: Vec<Spec> = (0..count).map(|i| rule.result(i, &assignment, manual)).collect();
        let shape = self.local_shape(&source[at].shape.without_layout(), &specs);
        let id = self.add_shaped(op, &ids, Some(shape))?;
        self.unpack(id, &source[at].shape, &mut specs.into_iter())
    }

    /// The operand as the first of several parts, the others changing nothing.
    fn start_once(
        &mut self,
        part: &Part,
        id: InstructionId,
        across: &[u8],
        reduction: Option<Reduction>,
        source: InstructionId,
    ) -> Emit<InstructionId> {
        let Some(reduction @ (Reduction::Sum | Reduction::Product)) = reduction else { return Ok(id) };
        if across.is_empty() {
            return Ok(id);
        }
        let zeros = matches!(part.free, Some(Free::Splat(_)))
            && match &self.p.source[source].op {
                Op::Broadcast { .. } => self.is_zero(self.p.source[source].operands()[0]),
                _ => self.is_zero(source),
            };
        if reduction == Reduction::Sum && zeros {
            return Ok(id);
        }
        let element_type = part.shape.element_type;
        let Some(identity) = self.identity(reduction, element_type)? else { return Ok(id) };
        let coordinate = self.coordinate(across)?;
        let zero = self.s32(0)?;
        let first = self.compare(ComparisonDirection::Eq, coordinate, zero)?;
        let dims = self.dims(id);
        let identity = self.broadcast(identity, &dims, &[])?;
        self.select(first, id, identity)
    }

    /// Indices relative to the shards of the operand; scatter drops what falls outside. Those in padding are outside.
    #[allow(clippy::too_many_arguments, reason = "all of a scatter's parts")]
    fn own_updates(
        &mut self,
        starts: InstructionId,
        parts: &[Part],
        spec: &Spec,
        index_spec: &Spec,
        owned: &[usize],
        scatter: &Scatter,
        count: usize,
    ) -> Emit<InstructionId> {
        let vector_dim = scatter.dims.index_vector_dim as usize;
        let dims = self.dims(starts);
        let uneven: Vec<usize> = (0..dims.len())
            .filter(|&d| d != vector_dim)
            .filter(|&d| dims[d] * self.axes().product(&index_spec.dims[d]) > parts[count].shape.dims()[d])
            .collect();
        let cut: Vec<usize> = owned.iter().copied().filter(|&d| !spec.dims[d].is_empty()).collect();
        if uneven.is_empty() && cut.is_empty() {
            return Ok(starts);
        }
        let mut starts = self.signed_indices(starts)?;
        let element_type = self.element_type(starts);
        for d in cut {
            let component =
                scatter.dims.scatter_dims_to_operand_dims.iter().position(|&m| m as usize == d).unwrap_or(0);
            let n = parts[0].shape.dims()[d];
            let shard = spec.local_dims(self.axes(), parts[0].shape.dims())[d];
            let one = self.component(starts, vector_dim, component)?;
            let one_dims = self.dims(one);
            let offset = self.offset(&spec.dims[d], shard)?;
            let offset = self.convert(offset, element_type)?;
            let offset = self.broadcast(offset, &one_dims, &[])?;
            let mut moved = self.binary(BinaryOp::Subtract, one, offset)?;
            if shard * self.axes().product(&spec.dims[d]) > n {
                // Beyond the whole is beyond the shard, though there is padding.
                let end = self.s32(n)?;
                let end = self.convert(end, element_type)?;
                let end = self.broadcast(end, &one_dims, &[])?;
                let inside = self.compare(ComparisonDirection::Lt, one, end)?;
                let outside = self.outside(element_type, &one_dims)?;
                moved = self.select(inside, moved, outside)?;
            }
            starts = self.with_component(starts, vector_dim, component, moved)?;
        }
        let minus = self.s32(-1)?;
        let minus = self.convert(minus, element_type)?;
        for d in uneven {
            starts = self.mask_dim(starts, d, &index_spec.dims[d], parts[count].shape.dims()[d], minus)?;
        }
        Ok(starts)
    }

    fn outside(&mut self, element_type: hloom_ir::ElementType, dims: &[i64]) -> Emit<InstructionId> {
        let minus = self.s32(-1)?;
        let minus = self.convert(minus, element_type)?;
        self.broadcast(minus, dims, &[])
    }
}

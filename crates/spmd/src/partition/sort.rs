//! Sorting and the largest elements: rows by shards; along a cut dimension the largest of each shard, then of those.

use super::axes::AxisList;
use super::body::{Body, Val};
use super::rule::{FactorDims, FactorKind, Rule};
use super::{Emit, Reason};
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::BinaryOp;
use hloom_ir::{ElementType, Op, Shape};
use smallvec::smallvec;
use std::sync::Arc;

impl Body<'_, '_> {
    pub(crate) fn sorted(&mut self, at: InstructionId, dimension: usize) -> Emit<Val> {
        let source = self.p.source;
        let operands = source[at].operands().to_vec();
        let parts = self.parts(&operands)?;
        let op = self.local_op(&source[at].op)?;
        let mut rule = Rule::default();
        let dims: FactorDims = parts[0]
            .shape
            .dims()
            .iter()
            .enumerate()
            .map(|(d, &n)| rule.factor(n, if d == dimension { FactorKind::Whole } else { FactorKind::Pass }))
            .collect();
        rule.operands = smallvec![dims.clone(); parts.len()];
        rule.results = smallvec![dims; parts.len()];
        self.by_rule(at, op, &rule, &parts)
    }

    pub(crate) fn top_k_call(&mut self, at: InstructionId) -> Emit<Val> {
        self.batched(at, 1)
    }

    pub(crate) fn top_k(&mut self, at: InstructionId, k: i64, largest: bool) -> Emit<Val> {
        let source = self.p.source;
        let part = self.part(source[at].operands()[0])?;
        let rank = part.shape.rank();
        let last = rank.wrapping_sub(1);
        let Some(elements) = source[at].shape.as_tuple().map(<[Shape]>::to_vec) else { return self.compute_whole(at) };
        let n = part.shape.dims()[last];
        let sortable = part.shape.element_type.is_float() || part.shape.element_type.is_integer();
        let mut rule = Rule::default();
        let mut from = FactorDims::new();
        for (d, &size) in part.shape.dims().iter().enumerate() {
            // The last dimension may be cut: the shards' largest are gathered.
            from.push(rule.factor(size, if d == last && !sortable { FactorKind::Whole } else { FactorKind::Pass }));
        }
        let mut to = from.clone();
        to[last] = None;
        rule.operands = smallvec![from];
        rule.results = smallvec![to.clone(), to];
        let wanted = self.p.annotated_leaves(at);
        let value_bytes = f64::from(part.shape.element_type.bits()) / 8.0;
        let shape = part.shape.clone();
        let assignment = self.choose(&rule, std::slice::from_ref(&part), &wanted, &|b, a| {
            let shards = b.axes().product(&a[last]);
            if shards == 1 {
                return Some(0.0);
            }
            let each = k.min(super::spec::shard_size(n, shards));
            let spec = rule.operand(0, a, super::axes::AxisSet::EMPTY);
            let local = spec.local_dims(b.axes(), shape.dims());
            let rows: f64 = local[..last].iter().map(|&d| d as f64).product();
            Some((shards - 1) as f64 * rows * each as f64 * (value_bytes + 4.0))
        });
        let manual = self.manual_of(std::slice::from_ref(&part), &wanted[0]);
        let spec = rule.operand(0, &assignment, manual);
        let list: AxisList = spec.dims[last];
        let mut id = self.reshard(&part, &spec)?;
        let op = |k: i64| match &source[at].op {
            Op::TopK { is_stable, .. } => Op::TopK { k, largest, is_stable: *is_stable },
            other => other.clone(),
        };
        let results = if list.is_empty() {
            let both = self.add(op(k), &[id])?;
            [self.element(both, 0)?, self.element(both, 1)?]
        } else {
            let worst = self.worst(part.shape.element_type, largest)?;
            id = self.mask_dim(id, last, &list, n, worst)?;
            let shard = self.dims(id)[last];
            let both = self.add(op(k.min(shard)), &[id])?;
            let (values, places) = (self.element(both, 0)?, self.element(both, 1)?);
            let offset = self.offset(&list, shard)?;
            let dims = self.dims(places);
            let offset = self.broadcast(offset, &dims, &[])?;
            let places = self.binary(BinaryOp::Add, places, offset)?;
            let reason = std::mem::replace(&mut self.reason, Reason::Combine);
            let values = self.all_gather(values, last, &list)?;
            let places = self.all_gather(places, last, &list)?;
            self.reason = reason;
            let both = self.add(op(k), &[values])?;
            let (values, chosen) = (self.element(both, 0)?, self.element(both, 1)?);
            [values, self.pick(places, chosen)?]
        };
        let mut values = Vec::new();
        for (i, (&id, shape)) in results.iter().zip(&elements).enumerate() {
            let shape = shape.as_array().ok_or_else(|| self.error("an array is expected"))?;
            values.push(self.array(id, Arc::new(shape.without_layout()), rule.result(i, &assignment, manual)));
        }
        Ok(Val::Tuple(values))
    }

    fn element(&mut self, tuple: InstructionId, index: i64) -> Emit<InstructionId> {
        self.add(Op::GetTupleElement { index }, &[tuple])
    }

    /// The number that comes after all others.
    fn worst(&mut self, element_type: ElementType, largest: bool) -> Emit<InstructionId> {
        if element_type.is_float() {
            let infinity = self.scalar(if largest { f32::NEG_INFINITY } else { f32::INFINITY })?;
            return self.convert(infinity, element_type);
        }
        let zero = self.zero(element_type)?;
        let one = self.s32(1)?;
        let one = self.convert(one, element_type)?;
        // All ones is the largest unsigned number; shifted, the largest signed one.
        let not = |b: &mut Self, x| b.add(Op::unary(hloom_ir::op::UnaryOp::Not), &[x]);
        let ones = not(self, zero)?;
        match (element_type.is_unsigned_integer(), largest) {
            (true, true) => Ok(zero),
            (true, false) => Ok(ones),
            (false, _) => {
                let most = self.binary(BinaryOp::ShiftRightLogical, ones, one)?;
                if largest { not(self, most) } else { Ok(most) }
            }
        }
    }

    /// The elements of the last dimension of `from` at the places `at`.
    fn pick(&mut self, from: InstructionId, at: InstructionId) -> Emit<InstructionId> {
        let (wide, narrow) = (self.dims(from), self.dims(at));
        let rank = wide.len();
        let mut dims = narrow.clone();
        dims.push(wide[rank - 1]);
        let kept: Vec<i64> = (0..rank as i64).collect();
        let mut spread: Vec<i64> = (0..rank as i64 - 1).collect();
        spread.push(rank as i64);
        let position = self.iota(ElementType::S32, &dims, rank)?;
        let wanted = self.broadcast(at, &dims, &kept)?;
        let wanted = self.convert(wanted, ElementType::S32)?;
        let here = self.compare(ComparisonDirection::Eq, position, wanted)?;
        let all = self.broadcast(from, &dims, &spread)?;
        let zero = self.zero(self.element_type(from))?;
        let zeros = self.broadcast(zero, &dims, &[])?;
        let chosen = self.select(here, all, zeros)?;
        let add = self.reducer(super::spec::Reduction::Sum, self.element_type(from))?;
        self.add(Op::Reduce { dimensions: [rank as i64].into_iter().collect(), to_apply: add }, &[chosen, zero])
    }
}

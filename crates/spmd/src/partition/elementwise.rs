//! Operations on corresponding elements, and where sums stay in parts across them.

use super::Emit;
use super::axes::AxisSet;
use super::body::{Body, Part, Val};
use super::rule::{FactorDims, FactorKind, Rule};
use super::spec::{Reduction, Spec};
use hloom_ir::Op;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::Operands;
use hloom_ir::op::{BinaryOp, UnaryOp};
use hloom_ir::shape::ArrayShape;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::Arc;

impl Body<'_, '_> {
    /// An operation whose operands are of the result's sizes, or scalars.
    pub(crate) fn elementwise(&mut self, at: InstructionId) -> Emit<Val> {
        let source = self.p.source;
        let op = self.local_op(&source[at].op)?;
        let operands = source[at].operands();
        let shape = self.array_shape(at)?;
        let rank = shape.rank();
        let mut rule = Rule::default();
        let dims: FactorDims = shape.dims().iter().map(|&n| rule.factor(n, FactorKind::Pass)).collect();
        rule.results.push(dims.clone());
        let keep = self.kept_partial(at, operands)?;
        let mut parts: SmallVec<[Part; 2]> = SmallVec::new();
        for &o in operands {
            let part = if keep.is_empty() { self.part(o)? } else { self.raw_part(o)? };
            rule.operands.push(if part.shape.rank() == rank { dims.clone() } else { FactorDims::new() });
            if part.shape.rank() != 0 && part.shape.rank() != rank {
                return self.compute_whole(at);
            }
            parts.push(part);
        }
        let wanted = self.wanted_array(at);
        // Parts are set aside for the choice, and their axes are not to be used.
        let complete: Cow<'_, [Part]> = match keep.is_empty() {
            true => Cow::Borrowed(parts.as_slice()),
            false => parts.iter().map(|p| Part { spec: p.spec.complete(), ..p.clone() }).collect(),
        };
        let wanted = if keep.is_empty() { wanted } else { wanted.complete() };
        let assignment = self.choose(&rule, &complete, std::slice::from_ref(&wanted), &|_, a| {
            a.iter().all(|l| AxisSet::of(l).intersection(keep).is_empty()).then_some(0.0)
        });
        let manual = self.manual_of(&parts, &wanted);
        let mut ids = Operands::new();
        for (i, part) in parts.iter().enumerate() {
            ids.push(match !keep.is_empty() && (!part.spec.partial.is_empty() || is_sum(&op)) {
                true => {
                    let spec = rule.operand(i, &assignment, manual).with_partial(keep, Reduction::Sum);
                    self.reshard(part, &spec)?
                }
                false => self.operand(&rule, i, &assignment, manual, part)?,
            });
        }
        let spec = rule.result(0, &assignment, manual).with_partial(keep, Reduction::Sum);
        let id = self.add_local(op, &ids, &shape, &spec)?;
        Ok(self.array(id, shape, spec))
    }

    /// The axes along which the result stays in parts: those of operands in parts, where that costs no more.
    fn kept_partial(&mut self, at: InstructionId, operands: &[InstructionId]) -> Emit<AxisSet> {
        let op = &self.p.source[at].op;
        let linear = match op {
            Op::Binary(BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply | BinaryOp::Divide) => true,
            Op::Unary { op: UnaryOp::Negate, .. } => true,
            // Parts are rounded one by one, which only the program itself may ask for.
            Op::Convert => !self.annotated_array(at).partial.is_empty(),
            _ => return Ok(AxisSet::EMPTY),
        };
        let mut axes = AxisSet::EMPTY;
        let mut partial: SmallVec<[(usize, bool); 2]> = SmallVec::new();
        let mut others = AxisSet::EMPTY;
        for (i, &o) in operands.iter().enumerate() {
            let part = self.array_value(o)?;
            if part.spec.partial.is_empty() || part.spec.reduction != Reduction::Sum {
                others = others.union(part.spec.used());
                if !part.spec.partial.is_empty() {
                    return Ok(AxisSet::EMPTY);
                }
                continue;
            }
            if !partial.is_empty() && part.spec.partial != axes {
                return Ok(AxisSet::EMPTY);
            }
            axes = part.spec.partial;
            others = others.union(part.spec.used());
            partial.push((i, self.uses(o) > 1));
        }
        if !linear || partial.is_empty() || !axes.intersection(others).is_empty() {
            return Ok(AxisSet::EMPTY);
        }
        let wanted = self.wanted_array(at);
        let op = &self.p.source[at].op;
        // Where the result is to be cut along them, each sum would be scattered: two are added first.
        let is_sum_of_two = is_sum(op) && partial.len() == 2;
        if !axes.intersection(wanted.used()).is_empty() && !is_sum_of_two {
            return Ok(AxisSet::EMPTY);
        }
        // Where the program itself leaves the sum to be made, it is not made before.
        let asked = self.annotated_array(at);
        let is_product = matches!(op, Op::Binary(BinaryOp::Multiply | BinaryOp::Divide));
        if asked.partial == axes && asked.reduction == Reduction::Sum && !is_product {
            return Ok(axes);
        }
        let several = partial.iter().filter(|p| p.1).count();
        let keeps = match op {
            Op::Binary(BinaryOp::Add | BinaryOp::Subtract) if partial.len() == 2 => several == 0,
            Op::Binary(BinaryOp::Add | BinaryOp::Subtract) => {
                several == 0 && (self.joins_partial(at, axes) || self.p.accumulators.contains(&at))
            }
            Op::Binary(BinaryOp::Multiply) => partial.len() == 1 && several == 0,
            Op::Binary(_) => partial.len() == 1 && partial[0].0 == 0 && several == 0,
            Op::Convert => false,
            _ => several == 0,
        };
        Ok(if keeps { axes } else { AxisSet::EMPTY })
    }

    /// Whether the only user of `at` adds another sum to it that is expected in parts along `axes`.
    fn joins_partial(&self, at: InstructionId, axes: AxisSet) -> bool {
        let [user] = self.p.source[at].users() else { return false };
        if !matches!(self.p.source[*user].op, Op::Binary(BinaryOp::Add | BinaryOp::Subtract)) {
            return false;
        }
        let operands = self.p.source[*user].operands();
        operands.iter().any(|&o| o != at && self.p.predicted[o] == axes && self.uses(o) == 1)
    }

    /// Transposition.
    pub(crate) fn transposed(&mut self, at: InstructionId, dimensions: &[i64]) -> Emit<Val> {
        let operand = self.p.source[at].operands()[0];
        let part = self.linear_part(operand)?;
        let keep = part.spec.partial;
        let shape = self.array_shape(at)?;
        let mut rule = Rule::default();
        let dims: FactorDims = part.shape.dims().iter().map(|&n| rule.factor(n, FactorKind::Pass)).collect();
        rule.results.push(dimensions.iter().map(|&d| dims[d as usize]).collect());
        rule.operands.push(dims);
        self.one_operand(at, &rule, part, keep, shape, Op::Transpose { dimensions: dimensions.into() })
    }

    /// Repetition along new dimensions.
    pub(crate) fn broadcasted(&mut self, at: InstructionId, dimensions: &[i64]) -> Emit<Val> {
        let operand = self.p.source[at].operands()[0];
        let part = self.linear_part(operand)?;
        let keep = self.stated_partial(at, &[&part]);
        let shape = self.array_shape(at)?;
        if part.shape.rank() == 0 && keep.is_empty() {
            let complete = self.resharded(&part, &part.spec.complete())?;
            let spec = self.annotated_array(at).complete();
            let dims = spec.local_dims(self.axes(), shape.dims());
            let id = self.broadcast(complete.id, &dims, &[])?;
            let free = Some(super::body::Free::Splat(complete.id));
            return Ok(Val::Array(Part { id, shape, spec, free }));
        }
        let mut rule = Rule::default();
        let dims: FactorDims = shape.dims().iter().map(|&n| rule.factor(n, FactorKind::Pass)).collect();
        rule.operands.push(dimensions.iter().map(|&d| dims[d as usize]).collect());
        rule.results.push(dims);
        self.one_operand(at, &rule, part, keep, shape, Op::Broadcast { dimensions: dimensions.into() })
    }

    /// The axes along which all `parts` are parts of sums that the program says are left to be made after `at`, too.
    pub(crate) fn stated_partial(&self, at: InstructionId, parts: &[&Part]) -> AxisSet {
        let stated = self.annotated_array(at);
        let same = |p: &&Part| p.spec.partial == stated.partial && p.spec.reduction == Reduction::Sum;
        let alike = stated.reduction == Reduction::Sum && parts.iter().all(same);
        if alike { stated.partial } else { AxisSet::EMPTY }
    }

    /// An operation of one operand by its rule; `keep` are axes along which the operand is, and the result stays, in parts.
    pub(crate) fn one_operand(
        &mut self,
        at: InstructionId,
        rule: &Rule,
        part: Part,
        keep: AxisSet,
        shape: Arc<ArrayShape>,
        op: Op,
    ) -> Emit<Val> {
        let wanted = self.wanted_array(at);
        let keep = if keep.intersection(wanted.used()).is_empty() { keep } else { AxisSet::EMPTY };
        let mut chosen = part.clone();
        let mut target = wanted.clone();
        if !keep.is_empty() {
            chosen.spec = chosen.spec.complete();
            target = target.complete();
        }
        let assignment = self.choose(rule, std::slice::from_ref(&chosen), std::slice::from_ref(&target), &|_, a| {
            a.iter().all(|l| AxisSet::of(l).intersection(keep).is_empty()).then_some(0.0)
        });
        let manual = self.manual_of(std::slice::from_ref(&part), &wanted);
        let reduction = part.spec.reduction;
        let spec = rule.operand(0, &assignment, manual).with_partial(keep, reduction);
        let id = self.reshard(&part, &spec)?;
        let spec = rule.result(0, &assignment, manual).with_partial(keep, reduction);
        let id = self.add_local(op, &[id], &shape, &spec)?;
        Ok(self.array(id, shape, spec))
    }

    /// Adds `op` with the local part of `shape` as its result.
    pub(crate) fn add_local(
        &mut self,
        op: Op,
        operands: &[InstructionId],
        shape: &ArrayShape,
        spec: &Spec,
    ) -> Emit<InstructionId> {
        let dims = spec.local_dims(self.axes(), shape.dims());
        let shape = self.shape(shape.element_type, &dims);
        self.add_shaped(op, operands, Some(shape))
    }
}

fn is_sum(op: &Op) -> bool {
    matches!(op, Op::Binary(BinaryOp::Add | BinaryOp::Subtract))
}

//! Reductions: each shard by itself, then the shards' results together.

use super::axes::{AxisList, AxisSet};
use super::body::{Body, Part, Val};
use super::rule::{FactorDims, FactorKind, Rule};
use super::spec::{Reduction, Spec};
use super::{Emit, Reason};
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::layout::DimVec;
use hloom_ir::literal::ArrayLiteral;
use hloom_ir::module::Module;
use hloom_ir::op::ConstantValue;
use hloom_ir::{ElementType, Literal, Op, Shape};
use smallvec::smallvec;

/// The operation of a computation that applies one to its two parameters.
pub(crate) fn reduction_of(module: &Module, computation: ComputationId) -> Option<Reduction> {
    let root = module.root(computation)?;
    let Op::Binary(op) = module[root].op else { return None };
    let number = |i: InstructionId| match module[i].op {
        Op::Parameter { number, .. } => Some(number),
        _ => None,
    };
    let operands = module[root].operands();
    let (a, b) = (number(operands[0])?, number(operands[1])?);
    if a == b || module.parameters(computation).len() != 2 {
        return None;
    }
    Reduction::of(op, module[root].shape.element_type()?)
}

impl Body<'_, '_> {
    /// The scalar that changes nothing in such a reduction.
    pub(crate) fn identity(&mut self, reduction: Reduction, element_type: ElementType) -> Emit<Option<InstructionId>> {
        Ok(match reduction {
            Reduction::Sum => Some(self.zero(element_type)?),
            Reduction::Or if element_type == ElementType::Pred => Some(self.scalar(false)?),
            Reduction::And if element_type == ElementType::Pred => Some(self.scalar(true)?),
            Reduction::Product => {
                let one = self.s32(1)?;
                Some(self.convert(one, element_type)?)
            }
            _ => None,
        })
    }

    /// Whether a scalar of the source is known to be zero.
    pub(crate) fn is_zero(&self, i: InstructionId) -> bool {
        let Op::Constant(ConstantValue::Literal(literal)) = &self.p.source[i].op else { return false };
        let zero = |a: &ArrayLiteral| a.bytes().iter().all(|&b| b == 0);
        matches!(&**literal, Literal::Array(a) if zero(a))
    }

    pub(crate) fn reduced(&mut self, at: InstructionId, dimensions: &DimVec, to_apply: ComputationId) -> Emit<Val> {
        let source = self.p.source;
        let operands = source[at].operands().to_vec();
        let count = operands.len() / 2;
        let single = if count == 1 { reduction_of(source, to_apply) } else { None };
        let parts: Vec<Part> = match single {
            // A sum of parts of sums is in parts of the same.
            Some(Reduction::Sum) => vec![self.linear_part(operands[0])?],
            _ => self.parts(&operands[..count])?,
        };
        let wanted = self.p.annotated_leaves(at);
        let keep = parts[0].spec.partial;
        let conflict = !keep.intersection(wanted[0].used()).is_empty();
        let keep = if single == Some(Reduction::Sum) && !conflict { keep } else { AxisSet::EMPTY };
        let mut rule = Rule::default();
        // Without a known combination the shards' results are gathered and reduced again.
        let kind = single.map_or(FactorKind::Pass, FactorKind::Reduce);
        let mut dims = FactorDims::new();
        let mut reduced_factors = Vec::new();
        for (d, &n) in parts[0].shape.dims().iter().enumerate() {
            if dimensions.contains(&(d as i64)) {
                let factor = rule.factor(n, kind);
                reduced_factors.extend(factor.map(usize::from));
                dims.push(factor);
            } else {
                dims.push(rule.factor(n, FactorKind::Pass));
            }
        }
        let kept: FactorDims =
            dims.iter().enumerate().filter(|(d, _)| !dimensions.contains(&(*d as i64))).map(|(_, f)| *f).collect();
        rule.operands = smallvec![dims; count];
        rule.results = smallvec![kept; count];
        let chosen: Vec<Part> = parts
            .iter()
            .map(|p| match keep.is_empty() {
                true => p.clone(),
                false => Part { spec: p.spec.complete(), ..p.clone() },
            })
            .collect();
        let element_bytes: f64 = parts.iter().map(|p| f64::from(p.shape.element_type.bits()) / 8.0).sum();
        let goals: Vec<Spec> = wanted.iter().map(|w| if keep.is_empty() { w.clone() } else { w.complete() }).collect();
        let assignment = self.choose(&rule, &chosen, &goals, &|b, a| {
            if !a.iter().all(|l| AxisSet::of(l).intersection(keep).is_empty()) {
                return None;
            }
            if single.is_some() {
                return Some(0.0);
            }
            let across: i64 = reduced_factors.iter().map(|&f| b.axes().product(&a[f])).product();
            let rest: f64 = rule.results[0]
                .iter()
                .flatten()
                .map(|&f| (rule.factors[f as usize].0 as f64 / b.axes().product(&a[f as usize]) as f64).ceil())
                .product();
            Some((across - 1) as f64 * rest * element_bytes)
        });
        let manual = self.manual_of(&parts, &wanted[0]);
        let mut inits = Vec::new();
        for &init in &operands[count..] {
            let part = self.part(init)?;
            inits.push(self.reshard(&part, &part.spec.complete())?);
        }
        let across: AxisList = reduced_factors.iter().flat_map(|&f| assignment[f].iter().copied()).collect();
        let mut arrays = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            let spec = rule.operand(i, &assignment, manual).with_partial(keep, Reduction::Sum);
            let mut id = self.reshard(part, &spec)?;
            for &d in dimensions {
                let d = d as usize;
                id = self.mask_dim(id, d, &spec.dims[d], part.shape.dims()[d], inits[i])?;
            }
            arrays.push(id);
        }
        // The start counts once.
        if let Some(reduction @ (Reduction::Sum | Reduction::Product)) = single
            && (!across.is_empty() || !keep.is_empty())
            && !(reduction == Reduction::Sum && self.is_zero(operands[count]))
        {
            let element_type = self.element_type(inits[0]);
            if let Some(identity) = self.identity(reduction, element_type)? {
                let axes = AxisSet::of(&across).union(keep).list();
                let coordinate = self.coordinate(&axes)?;
                let zero = self.s32(0)?;
                let first = self.compare(ComparisonDirection::Eq, coordinate, zero)?;
                inits[0] = self.select(first, inits[0], identity)?;
            }
        }
        let op = Op::Reduce { dimensions: dimensions.clone(), to_apply: self.p.computations[&to_apply] };
        let all: Vec<InstructionId> = arrays.iter().chain(&inits).copied().collect();
        let local = self.add(op, &all)?;
        let mut results: Vec<InstructionId> = Vec::new();
        if count == 1 && !source[at].shape.is_tuple() {
            results.push(local);
        } else {
            for index in 0..count {
                results.push(self.add(Op::GetTupleElement { index: index as i64 }, &[local])?);
            }
        }
        if single.is_none() && !across.is_empty() {
            results = self.reduce_again(&results, &inits, &across, self.p.computations[&to_apply])?;
        }
        let mut values = Vec::new();
        let shapes: Vec<&Shape> = match source[at].shape.as_tuple() {
            Some(elements) => elements.iter().collect(),
            None => vec![&source[at].shape],
        };
        for (i, (&id, shape)) in results.iter().zip(shapes).enumerate() {
            let mut spec = rule.result(i, &assignment, manual);
            if !keep.is_empty() {
                spec.partial = spec.partial.union(keep);
                spec.reduction = Reduction::Sum;
            }
            let array = shape.as_array().ok_or_else(|| self.error("a reduction makes arrays"))?;
            values.push(self.array(id, std::sync::Arc::new(array.without_layout()), spec));
        }
        Ok(if source[at].shape.is_tuple() { Val::Tuple(values) } else { values.remove(0) })
    }

    /// Gathers the shards' results, in the order of the shards, and reduces them.
    pub(crate) fn reduce_again(
        &mut self,
        results: &[InstructionId],
        inits: &[InstructionId],
        across: &[u8],
        to_apply: ComputationId,
    ) -> Emit<Vec<InstructionId>> {
        let reason = std::mem::replace(&mut self.reason, Reason::Combine);
        let mut all = Vec::new();
        for &id in results {
            let mut dims = self.dims(id);
            dims.insert(0, 1);
            let row = self.reshape(id, &dims)?;
            all.push(self.all_gather(row, 0, across)?);
        }
        self.reason = reason;
        all.extend(inits);
        let op = Op::Reduce { dimensions: DimVec::from_slice(&[0]), to_apply };
        let again = self.add(op, &all)?;
        if results.len() == 1 {
            return Ok(vec![again]);
        }
        (0..results.len()).map(|index| self.add(Op::GetTupleElement { index: index as i64 }, &[again])).collect()
    }
}

//! Operations without a rule of their own, and those that work on trailing dimensions only.
//!
//! The default gathers every operand and computes the whole on every device: right for whatever has no effect, and told in
//! the report.

use super::axes::AxisSet;
use super::body::{Body, Val};
use super::rule::{FactorDims, FactorKind, Rule};
use super::spec::Spec;
use super::{Emit, Reason};
use hloom_ir::entity::InstructionId;
use hloom_ir::{Op, Shape};
use smallvec::smallvec;

impl Body<'_, '_> {
    /// Gathers the operands and computes the whole.
    pub(crate) fn compute_whole(&mut self, at: InstructionId) -> Emit<Val> {
        let source = self.p.source;
        let op = self.local_op(&source[at].op)?;
        let wanted = self.p.annotated_leaves(at);
        let mut manual = wanted.iter().fold(AxisSet::EMPTY, |m, s| m.union(s.manual));
        let mut sharded = wanted.iter().any(|s| !s.is_replicated());
        self.reason = Reason::NoRule;
        let mut ids = Vec::new();
        for &o in source[at].operands() {
            let value = self.value(o)?.clone();
            let mut specs = Vec::new();
            leaf_specs(&value, &mut specs);
            sharded |= specs.iter().any(|s| !s.is_replicated());
            manual = specs.iter().fold(manual, |m, s| m.union(s.manual));
            let mut whole = specs.into_iter().map(|s| Spec { manual: s.manual, ..Spec::replicated(s.dims.len()) });
            ids.push(self.pack(&value, &mut whole)?);
        }
        if sharded && !source[at].operands().is_empty() {
            self.p.gathered.push(at);
        }
        let id = self.add_shaped(op, &ids, Some(source[at].shape.without_layout()))?;
        self.inherit(id, at);
        let mut specs = wanted
            .into_iter()
            .map(|s| Spec { manual, ..Spec::replicated(s.dims.len()) })
            .collect::<Vec<_>>()
            .into_iter();
        self.unpack(id, &source[at].shape, &mut specs)
    }

    /// What an instruction says besides its operation goes over to its copy.
    pub(crate) fn inherit(&mut self, id: InstructionId, at: InstructionId) {
        let source = &self.p.source[at].common;
        let (backend_config, rare) = (source.backend_config.clone(), source.rare.clone());
        let common = &mut self.p.target.instruction_mut(id).common;
        common.backend_config = backend_config;
        if let Some(mut rare) = rare {
            rare.control_predecessors.clear();
            common.rare = Some(rare);
        }
        self.keep_layouts(id, at);
    }

    /// A call that asks for layouts gets the shards of its arrays in those.
    fn keep_layouts(&mut self, id: InstructionId, at: InstructionId) {
        let source = &self.p.source[at];
        let Op::CustomCall(call) = &source.op else { return };
        let Some(asked) = &call.operand_layouts else { return };
        let operands = self.p.target[id].operands().to_vec();
        let local = operands.iter().map(|&o| &self.p.target[o].shape);
        let operand_layouts = local.zip(asked).map(|(local, asked)| laid_out(local, asked)).collect();
        let shape = laid_out(&self.p.target[id].shape, &source.shape);
        let instruction = self.p.target.instruction_mut(id);
        if let Op::CustomCall(call) = &mut instruction.op {
            call.operand_layouts = Some(operand_layouts);
            instruction.shape = shape;
        }
    }

    /// An operation on the last `trailing` dimensions of all its arrays; those before are done one by one.
    pub(crate) fn batched(&mut self, at: InstructionId, trailing: usize) -> Emit<Val> {
        let source = self.p.source;
        let operands = source[at].operands().to_vec();
        let op = self.local_op(&source[at].op)?;
        let leaves: Vec<Shape> = source[at].shape.leaves().into_iter().map(|(_, s)| s.clone()).collect();
        let mut rule = Rule::default();
        let mut batch: Vec<Option<u8>> = Vec::new();
        let mut parts = Vec::new();
        for &o in &operands {
            parts.push(self.part(o)?);
        }
        let dims_of = |rule: &mut Rule, batch: &mut Vec<Option<u8>>, dims: &[i64]| {
            let leading = dims.len().saturating_sub(trailing);
            while batch.len() < leading {
                let factor = rule.factor(dims[batch.len()], FactorKind::Pass);
                batch.push(factor);
            }
            let mut factors: FactorDims = batch[..leading].iter().copied().collect();
            for &n in &dims[leading..] {
                factors.push(rule.factor(n, FactorKind::Whole));
            }
            factors
        };
        for part in &parts {
            let factors = dims_of(&mut rule, &mut batch, part.shape.dims());
            rule.operands.push(factors);
        }
        for leaf in &leaves {
            let Some(array) = leaf.as_array() else { return self.compute_whole(at) };
            let factors = dims_of(&mut rule, &mut batch, array.dims());
            rule.results.push(factors);
        }
        self.by_rule(at, op, &rule, &parts)
    }

    /// Adds `op` on what its rule makes of its operands.
    pub(crate) fn by_rule(
        &mut self,
        at: InstructionId,
        op: hloom_ir::Op,
        rule: &Rule,
        parts: &[super::body::Part],
    ) -> Emit<Val> {
        let source = self.p.source;
        let wanted = self.p.annotated_leaves(at);
        let assignment = self.choose(rule, parts, &wanted, &|_, _| Some(0.0));
        let manual = self.manual_of(parts, wanted.first().unwrap_or(&Spec::default()));
        let mut ids = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            ids.push(self.reshard(part, &rule.operand(i, &assignment, manual))?);
        }
        let specs: Vec<Spec> = (0..rule.results.len()).map(|i| rule.result(i, &assignment, manual)).collect();
        let whole_needed = rule.factors.iter().any(|f| f.1 == FactorKind::Whole);
        let lost = |(part, i): (&super::body::Part, usize)| {
            let used = rule.operand(i, &assignment, manual).used();
            !part.spec.used().without(used).is_empty()
        };
        if whole_needed && parts.iter().zip(0..).any(lost) {
            self.p.gathered.push(at);
        }
        let shape = self.local_shape(&source[at].shape.without_layout(), &specs);
        let id = self.add_shaped(op, &ids, Some(shape))?;
        self.inherit(id, at);
        self.unpack(id, &source[at].shape, &mut specs.into_iter())
    }

    /// A triangular system: batches and columns of the right-hand sides are solved one by one.
    pub(crate) fn triangular_solve(&mut self, at: InstructionId, left_side: bool) -> Emit<Val> {
        let operands = self.p.source[at].operands().to_vec();
        let parts = self.parts(&operands)?;
        let rank = parts[1].shape.rank();
        let mut rule = Rule::default();
        let mut b: FactorDims = FactorDims::new();
        let mut a: FactorDims = FactorDims::new();
        for (d, &n) in parts[1].shape.dims().iter().enumerate() {
            let free = if left_side { rank - 1 } else { rank - 2 };
            let kind = if d + 2 < rank || d == free { FactorKind::Pass } else { FactorKind::Whole };
            let factor = rule.factor(n, kind);
            b.push(factor);
            if d + 2 < rank {
                a.push(factor);
            }
        }
        for &n in &parts[0].shape.dims()[rank - 2..] {
            let factor = rule.factor(n, FactorKind::Whole);
            a.push(factor);
        }
        rule.operands = smallvec![a, b.clone()];
        rule.results = smallvec![b];
        let op = self.p.source[at].op.clone();
        self.by_rule(at, op, &rule, &parts)
    }
}

/// A shape with the layouts of another of the same ranks.
fn laid_out(shape: &Shape, like: &Shape) -> Shape {
    match (shape, like) {
        (Shape::Array(array), Shape::Array(like)) if array.rank() == like.rank() => match &like.layout {
            Some(layout) => Shape::from(array.without_layout().with_layout(layout.clone())),
            None => shape.clone(),
        },
        (Shape::Tuple(elements), Shape::Tuple(likes)) if elements.len() == likes.len() => {
            Shape::tuple(elements.iter().zip(likes.iter()).map(|(e, l)| laid_out(e, l)))
        }
        _ => shape.clone(),
    }
}

/// How the leaves of a value lie.
pub(crate) fn leaf_specs(value: &Val, specs: &mut Vec<Spec>) {
    match value {
        Val::Array(part) => specs.push(part.spec.clone()),
        Val::Tuple(elements) => elements.iter().for_each(|e| leaf_specs(e, specs)),
        Val::Other(_) => specs.push(Spec::default()),
    }
}

/// Whether a leaf of a value lies in such a way.
pub(crate) fn any_leaf(value: &Val, lies: &impl Fn(&Spec) -> bool) -> bool {
    match value {
        Val::Array(part) => lies(&part.spec),
        Val::Tuple(elements) => elements.iter().any(|e| any_leaf(e, lies)),
        Val::Other(_) => false,
    }
}

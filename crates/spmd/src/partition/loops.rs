//! What a loop carries, in forms that save collectives in its body.
//!
//! A value that the loop only reads is brought, before the loop, into the form that the body would bring it into each
//! time. A sum that the loop adds to stays in parts, and is completed after the loop.

use super::body::{Body, Val};
use super::spec::{Reduction, Spec};
use super::whole::leaf_specs;
use super::{Partitioner, Signature};
use hloom_ir::Op;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::op::BinaryOp;

/// What is taken out of a tuple that was just put together, as calls in place of which their bodies were put leave it.
fn behind_tuples(source: &hloom_ir::module::Module, mut id: InstructionId) -> InstructionId {
    while let Op::GetTupleElement { index } = source[id].op
        && let [tuple] = *source[id].operands()
        && source[tuple].op == Op::Tuple
        && let Some(&element) = usize::try_from(index).ok().and_then(|n| source[tuple].operands().get(n))
    {
        id = element;
    }
    id
}

/// The elements of a computation's root, if it is a flat tuple, with its parameter.
fn carried(source: &hloom_ir::module::Module, body: ComputationId) -> Option<(InstructionId, Vec<InstructionId>)> {
    let root = source.root(body)?;
    let parameter = *source.parameters(body).first()?;
    let flat = source[parameter].shape.as_tuple()?.iter().all(|s| !s.is_tuple());
    let elements = || source[root].operands().iter().map(|&e| behind_tuples(source, e)).collect();
    (flat && source[root].op == Op::Tuple).then(|| (parameter, elements()))
}

/// The instruction that takes element `index` of the parameter, if there is just one.
fn element(source: &hloom_ir::module::Module, parameter: InstructionId, index: usize) -> Option<InstructionId> {
    let mut takers = source[parameter]
        .users()
        .iter()
        .filter(|&&u| matches!(source[u].op, Op::GetTupleElement { index: i } if i == index as i64));
    let first = takers.next().copied()?;
    takers.next().is_none().then_some(first)
}

impl Partitioner<'_> {
    /// Where the program says of a loop's next value that its sum is left to be made, the loop carries the parts.
    pub(crate) fn leave_stated_sums(&self, body: ComputationId, leaves: &mut [Spec]) {
        let Some((_, elements)) = carried(self.source, body) else { return };
        for (&next, leaf) in elements.iter().zip(leaves) {
            let stated = self.annotated_array(next);
            let fits = stated.dims == leaf.dims && stated.partial.intersection(leaf.manual).is_empty();
            if fits && !stated.partial.is_empty() && stated.reduction == Reduction::Sum {
                *leaf = leaf.complete().with_partial(stated.partial, Reduction::Sum);
            }
        }
    }

    /// Finds the sums that a loop's body carries on: each ends in an addition that is the element's next value.
    pub(crate) fn find_accumulators(&mut self, body: ComputationId) {
        if !self.loops.contains_key(&body) {
            return;
        }
        let source = self.source;
        let Some((parameter, elements)) = carried(source, body) else { return };
        for (index, &next) in elements.iter().enumerate() {
            let Some(mut at) = element(source, parameter, index) else { continue };
            // Through additions only, each used once.
            while let [user] = source[at].users() {
                let adds = match source[*user].op {
                    Op::Binary(BinaryOp::Add) => true,
                    Op::Binary(BinaryOp::Subtract) => source[*user].operands()[0] == at,
                    _ => false,
                };
                if !adds {
                    break;
                }
                at = *user;
            }
            if at == next && source[at].users().len() == 1 && matches!(source[at].op, Op::Binary(_)) {
                self.accumulators.insert(at);
            }
        }
    }
}

impl Body<'_, '_> {
    /// A signature of a loop's body under which it needs fewer collectives, by what writing it came to.
    pub(crate) fn better_carries(&self, body: ComputationId, value: &Val, signature: &Signature) -> Option<Signature> {
        let source = self.p.source;
        let (parameter, elements) = carried(source, body)?;
        let Val::Tuple(results) = value else { return None };
        let mut better = signature.clone();
        let mut changed = false;
        let mut specs = Vec::new();
        leaf_specs(value, &mut specs);
        for (index, &next) in elements.iter().enumerate() {
            let Some(Val::Array(result)) = results.get(index) else { continue };
            let Some(of) = signature.result.get(index) else { continue };
            let form = if self.p.accumulators.contains(&next) && result.spec.partial != of.partial {
                let sum = result.spec.reduction == Reduction::Sum;
                let free = result.spec.partial.intersection(of.used()).is_empty();
                (sum && free).then(|| of.complete().with_partial(result.spec.partial, Reduction::Sum))
            } else {
                self.read_only_form(parameter, index, next, of)
            };
            if let Some(form) = form {
                better.parameters[0][index] = form.clone();
                better.result[index] = form;
                changed = true;
            }
        }
        changed.then_some(better)
    }

    /// The form that the body brings a value into which the loop only reads, if that takes collectives.
    fn read_only_form(&self, parameter: InstructionId, index: usize, next: InstructionId, of: &Spec) -> Option<Spec> {
        let source = self.p.source;
        let own = matches!(source[next].op, Op::GetTupleElement { index: i } if i == index as i64)
            && source[next].operands()[0] == parameter;
        if !own {
            return None;
        }
        let Some(Val::Array(part)) = self.values.get(next) else { return None };
        let shape = &part.shape;
        let cost = |to: &Spec| self.plan_cost(shape.dims(), shape.element_type.bits(), of, to).wire;
        let forms = self.variants.of(part).iter().map(|(spec, _)| (cost(spec), spec));
        let (most, form) = forms.max_by(|a, b| a.0.total_cmp(&b.0))?;
        (most > 0.0 && form.partial.is_empty()).then(|| form.clone())
    }
}

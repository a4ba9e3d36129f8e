//! What stands for the values of the source: parts of arrays as operations ask for them, and tuples taken apart and packed.

use super::axes::AxisSet;
use super::body::{Body, Part, Val};
use super::spec::Spec;
use super::{Emit, Partitioner};
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::shape::ArrayShape;
use hloom_ir::{Op, Shape};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// What stands for the instructions of a computation of the source.
#[derive(Default)]
pub(crate) struct Values {
    numbers: FxHashMap<InstructionId, u32>,
    all: Vec<Val>,
}

impl Values {
    pub(crate) fn with_capacity(count: usize) -> Values {
        Values {
            numbers: FxHashMap::with_capacity_and_hasher(count, Default::default()),
            all: Vec::with_capacity(count),
        }
    }
    pub(crate) fn get(&self, i: InstructionId) -> Option<&Val> {
        self.numbers.get(&i).map(|&n| &self.all[n as usize])
    }
    pub(crate) fn insert(&mut self, i: InstructionId, value: Val) {
        match self.numbers.entry(i) {
            Entry::Occupied(number) => self.all[*number.get() as usize] = value,
            Entry::Vacant(place) => {
                place.insert(self.all.len() as u32);
                self.all.push(value);
            }
        }
    }
}

/// Which element of a tuple a value is that nothing but the tuple uses.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Element {
    /// Of no tuple.
    #[default]
    None,
    /// The one of that number.
    At(u32),
    /// More than one.
    Several,
}

impl Partitioner<'_> {
    /// Finds out which elements of tuples the values of a computation are.
    pub(crate) fn find_elements(&mut self, order: &[InstructionId]) {
        for &tuple in order.iter().filter(|&&i| matches!(self.source[i].op, Op::Tuple)) {
            for (&x, n) in self.source[tuple].operands().iter().zip(0..) {
                if let [_] = self.source[x].users() {
                    let is_first = self.elements[x] == Element::None;
                    self.elements.set(x, if is_first { Element::At(n) } else { Element::Several });
                }
            }
        }
    }
}

impl Body<'_, '_> {
    /// What stands for an instruction of the source.
    pub(crate) fn value(&self, i: InstructionId) -> Emit<&Val> {
        self.values.get(i).ok_or_else(|| self.error(format!("operand {} has no value", i.index())))
    }

    /// How many instructions of the source use `i`.
    pub(crate) fn uses(&self, i: InstructionId) -> usize {
        self.p.source[i].users().len()
    }

    /// An operand that is an array, as it lies.
    pub(crate) fn raw_part(&self, i: InstructionId) -> Emit<Part> {
        self.array_value(i).cloned()
    }

    /// The same, not taken.
    pub(crate) fn array_value(&self, i: InstructionId) -> Emit<&Part> {
        match self.value(i)? {
            Val::Array(part) => Ok(part),
            _ => Err(self.error("an array is expected, not a tuple")),
        }
    }

    /// An operand that is an array; parts that several users would complete each for itself are completed here.
    pub(crate) fn part(&mut self, i: InstructionId) -> Emit<Part> {
        let part = self.raw_part(i)?;
        if part.spec.partial.is_empty() || self.uses(i) <= 1 {
            return Ok(part);
        }
        let annotated = self.annotated_array(i);
        // The program itself wants it so.
        if part.spec.partial.without(annotated.partial).is_empty() {
            return Ok(part);
        }
        let complete = self.resharded(&part, &Spec { manual: part.spec.manual, ..annotated.complete() })?;
        self.p.shared.insert(complete.id);
        self.values.insert(i, Val::Array(complete.clone()));
        Ok(complete)
    }

    /// An operand of an operation through which sums may stay in parts.
    pub(crate) fn linear_part(&mut self, i: InstructionId) -> Emit<Part> {
        let part = self.part(i)?;
        if part.spec.partial.is_empty() || part.spec.reduction == super::spec::Reduction::Sum {
            return Ok(part);
        }
        let complete = part.spec.complete();
        self.resharded(&part, &complete)
    }

    pub(crate) fn parts(&mut self, operands: &[InstructionId]) -> Emit<Vec<Part>> {
        operands.iter().map(|&o| self.part(o)).collect()
    }

    /// The whole shape of an instruction of the source that is an array.
    pub(crate) fn array_shape(&self, i: InstructionId) -> Emit<Arc<ArrayShape>> {
        match &self.p.source[i].shape {
            Shape::Array(array) | Shape::Buffer(array) => Ok(array.clone()),
            _ => Err(self.error("an array is expected")),
        }
    }

    /// How an array of the source is to lie.
    pub(crate) fn annotated_array(&self, i: InstructionId) -> Spec {
        self.p.annotated_array(i)
    }

    /// How an array of the source is needed: as its only user needs it, where that is a mere change of form or the result
    /// of the computation; otherwise as its own sharding says.
    pub(crate) fn wanted_array(&self, i: InstructionId) -> Spec {
        let source = self.p.source;
        let own = self.annotated_array(i);
        let mut at = i;
        let mut element: Option<usize> = None;
        for _ in 0..8 {
            if self.root == Some(at) {
                let flat = source[at].shape.as_tuple().is_none_or(|t| t.iter().all(Shape::is_array));
                let spec = self.result.get(element.unwrap_or(0)).filter(|s| flat && s.dims.len() == own.dims.len());
                return spec.map_or(own.clone(), |s| Spec { manual: own.manual, ..s.clone() });
            }
            let [user] = source[at].users() else { return own };
            match &source[*user].op {
                Op::Copy if element.is_none() && source[*user].common.sharding.is_some() => {
                    return Spec { manual: own.manual, ..self.annotated_array(*user) };
                }
                Op::CustomCall(call) if element.is_none() && &*call.target == "Sharding" => {
                    return Spec { manual: own.manual, ..self.annotated_array(*user) };
                }
                Op::Tuple if element.is_none() => match self.p.elements[at] {
                    Element::At(n) => element = Some(n as usize),
                    Element::None | Element::Several => return own,
                },
                Op::GetTupleElement { index } if element == Some(*index as usize) => element = None,
                _ => return own,
            }
            at = *user;
        }
        own
    }

    pub(crate) fn manual_of(&self, parts: &[Part], wanted: &Spec) -> AxisSet {
        parts.iter().fold(wanted.manual, |m, p| m.union(p.spec.manual))
    }

    pub(crate) fn array(&self, id: InstructionId, shape: Arc<ArrayShape>, spec: Spec) -> Val {
        Val::Array(Part { id, shape, spec, free: None })
    }

    /// The operation with the computations it calls replaced by those of the target.
    pub(crate) fn local_op(&self, op: &Op) -> Emit<Op> {
        let mut op = op.clone();
        for called in op.called_computations_mut() {
            let target = self.p.computations.get(called).copied();
            *called = target.ok_or_else(|| self.error("a called computation is not written yet"))?;
        }
        // Layouts that a call asks for are of whole arrays; `inherit` gives it those of shards.
        if let Op::CustomCall(call) = &mut op {
            call.operand_layouts = None;
        }
        Ok(op)
    }

    /// The shape of a value whose leaves lie in those ways.
    pub(crate) fn local_shape(&self, shape: &Shape, specs: &[Spec]) -> Shape {
        fn walk(axes: &super::axes::DeviceAxes, shape: &Shape, specs: &mut std::slice::Iter<'_, Spec>) -> Shape {
            match shape {
                Shape::Tuple(elements) => Shape::tuple(elements.iter().map(|e| walk(axes, e, specs))),
                Shape::Array(a) => match specs.next() {
                    Some(spec) => Shape::array(a.element_type, spec.local_dims(axes, a.dims())),
                    None => shape.clone(),
                },
                other => {
                    specs.next();
                    other.clone()
                }
            }
        }
        walk(self.axes(), shape, &mut specs.iter())
    }

    /// An instruction of the target as a value, its elements taken out of tuples.
    pub(crate) fn unpack(
        &mut self,
        id: InstructionId,
        shape: &Shape,
        specs: &mut impl Iterator<Item = Spec>,
    ) -> Emit<Val> {
        match shape {
            Shape::Tuple(elements) => {
                let mut values = Vec::new();
                for (n, element) in elements.iter().enumerate() {
                    let id = self.add(Op::GetTupleElement { index: n as i64 }, &[id])?;
                    values.push(self.unpack(id, element, specs)?);
                }
                Ok(Val::Tuple(values))
            }
            Shape::Array(a) => {
                let spec = specs.next().unwrap_or_else(|| Spec::replicated(a.rank()));
                Ok(Val::Array(Part { id, shape: a.clone(), spec, free: None }))
            }
            _ => {
                specs.next();
                Ok(Val::Other(id))
            }
        }
    }

    /// A value as an instruction of the target, its leaves in those forms.
    pub(crate) fn pack(&mut self, value: &Val, specs: &mut impl Iterator<Item = Spec>) -> Emit<InstructionId> {
        match value {
            Val::Array(part) => {
                let spec = specs.next().unwrap_or_else(|| part.spec.complete());
                let spec = Spec { manual: part.spec.manual, ..spec };
                self.reshard(part, &spec)
            }
            Val::Tuple(elements) => {
                let mut ids = Vec::new();
                for element in elements {
                    ids.push(self.pack(element, specs)?);
                }
                match self.whole_of(&ids) {
                    Some(whole) => Ok(whole),
                    None => self.add(Op::Tuple, &ids),
                }
            }
            Val::Other(id) => {
                specs.next();
                Ok(*id)
            }
        }
    }

    /// The tuple that instructions of the target are all elements of, in order: what an asynchronous start hands to its
    /// done has to be the start itself.
    fn whole_of(&self, elements: &[InstructionId]) -> Option<InstructionId> {
        let target = &self.p.target;
        let &[whole] = target[*elements.first()?].operands() else { return None };
        let is_element = |(&id, n): (&InstructionId, i64)| {
            target[id].op == Op::GetTupleElement { index: n } && target[id].operands() == [whole]
        };
        let is_all = target[whole].shape.as_tuple().is_some_and(|t| t.len() == elements.len());
        (is_all && elements.iter().zip(0..).all(is_element)).then_some(whole)
    }
}

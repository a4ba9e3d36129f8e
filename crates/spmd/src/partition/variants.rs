//! The forms that values have been brought into.
//!
//! A value is told by its instruction, and by how the array that it stands for lies: two may be one instruction, such as
//! the shards of an array and of its rotation.

use super::body::Part;
use super::spec::Spec;
use hloom_ir::entity::InstructionId;
use hloom_ir::shape::ArrayShape;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// A form of a value, and the instruction that has it.
pub(crate) type Form = (Spec, InstructionId);

struct Value {
    shape: Arc<ArrayShape>,
    spec: Spec,
    forms: Vec<Form>,
}

impl Value {
    fn is(&self, part: &Part) -> bool {
        self.spec == part.spec && (Arc::ptr_eq(&self.shape, &part.shape) || self.shape.dims() == part.shape.dims())
    }
}

/// The forms of the values of one computation, besides those in which they came about.
#[derive(Default)]
pub(crate) struct Variants(FxHashMap<InstructionId, SmallVec<[Value; 1]>>);

impl Variants {
    /// Those of a value, in the order in which they were made.
    pub(crate) fn of(&self, part: &Part) -> &[Form] {
        let value = self.0.get(&part.id).and_then(|all| all.iter().find(|v| v.is(part)));
        value.map_or(&[], |v| &v.forms)
    }

    /// Adds one.
    pub(crate) fn add(&mut self, part: &Part, spec: Spec, id: InstructionId) {
        let all = self.0.entry(part.id).or_default();
        match all.iter_mut().find(|v| v.is(part)) {
            Some(value) => value.forms.push((spec, id)),
            None => all.push(Value { shape: part.shape.clone(), spec: part.spec.clone(), forms: vec![(spec, id)] }),
        }
    }
}

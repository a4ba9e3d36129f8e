//! Values that were widened travel as what they were widened from: the same numbers in fewer bytes.

use super::Emit;
use super::body::{Body, Part};
use super::spec::Spec;
use hloom_ir::entity::InstructionId;
use hloom_ir::{ElementType, Op};
use std::sync::Arc;

/// Whether values of `from` are sent instead of the wider ones that were made of them, of which nothing is lost.
fn travels_as(from: ElementType, wide: ElementType) -> bool {
    use ElementType::{Bf16, F16, F32, F64, Pred};
    matches!((from, wide), (Bf16 | F16, F32 | F64) | (F32, F64)) || from == Pred && wide.bits() > from.bits()
}

impl Body<'_, '_> {
    /// What `part` was widened from, and its type. Parts of sums are added in the type that they have.
    fn widened_from(&self, part: &Part) -> Option<(InstructionId, ElementType)> {
        let instruction = &self.p.target[part.id];
        let is_widened = matches!(instruction.op, Op::Convert) && part.spec.partial.is_empty() && part.free.is_none();
        let id = *instruction.operands().first().filter(|_| is_widened)?;
        let from = self.element_type(id);
        travels_as(from, part.shape.element_type).then_some((id, from))
    }

    /// The same as a part, lying as `part` does.
    pub(crate) fn narrow(&self, part: &Part) -> Option<Part> {
        let (id, from) = self.widened_from(part)?;
        Some(Part { id, shape: Arc::new(part.shape.with_element_type(from)), spec: part.spec.clone(), free: None })
    }

    /// How many bits of an element of `part` are sent on the way to the form `to`.
    pub(crate) fn bits_sent(&self, part: &Part, to: &Spec) -> u32 {
        let narrow = self.widened_from(part).filter(|_| to.partial.is_empty());
        narrow.map_or(part.shape.element_type, |(_, from)| from).bits()
    }

    /// `narrow`, widened to the type of `like`.
    pub(crate) fn widened(&mut self, narrow: Part, like: &Part) -> Emit<Part> {
        let id = self.convert(narrow.id, like.shape.element_type)?;
        Ok(Part { id, shape: like.shape.clone(), spec: narrow.spec, free: None })
    }
}

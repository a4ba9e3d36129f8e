//! Constants, and arrays without elements.

use super::Emit;
use super::body::{Body, Free, Part, Val};
use super::spec::Spec;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::ConstantValue;
use hloom_ir::shape::ArrayShape;
use hloom_ir::{Op, Shape};
use std::sync::Arc;

impl Body<'_, '_> {
    /// A constant: what is the same everywhere is made for each shard, the rest is whole on every device.
    pub(crate) fn constant(&mut self, at: InstructionId, value: &ConstantValue) -> Emit<Val> {
        let source = &self.p.source[at];
        let Shape::Array(shape) = &source.shape else {
            let id = self.add_shaped(source.op.clone(), &[], Some(source.shape.without_layout()))?;
            let mut specs = self
                .p
                .annotated_leaves(at)
                .into_iter()
                .map(|s| Spec { manual: s.manual, ..Spec::replicated(s.dims.len()) });
            return self.unpack(id, &source.shape, &mut specs);
        };
        let shape = shape.clone();
        let annotated = self.annotated_array(at).complete();
        let whole = Spec { manual: annotated.manual, ..Spec::replicated(shape.rank()) };
        if let ConstantValue::Literal(literal) = value
            && let Some(array) = literal.as_array()
            && shape.rank() > 0
            && !array.is_empty()
            && (1..array.len()).all(|i| array.element(i) == array.element(0))
        {
            let scalar =
                hloom_ir::literal::ArrayLiteral::new(ArrayShape::new(shape.element_type, []), array.element(0))
                    .map_err(|_| self.error("a constant does not fit its shape"))?;
            let scalar = self.literal(hloom_ir::Literal::Array(scalar))?;
            let dims = annotated.local_dims(self.axes(), shape.dims());
            let id = self.broadcast(scalar, &dims, &[])?;
            return Ok(Val::Array(Part { id, shape, spec: annotated, free: Some(Free::Splat(scalar)) }));
        }
        let id = self.add_shaped(source.op.clone(), &[], Some(source.shape.without_layout()))?;
        Ok(self.array(id, shape, whole))
    }

    /// An array without elements, made anew whatever it was made of.
    pub(crate) fn nothing(&mut self, at: InstructionId) -> Emit<Option<Val>> {
        let source = &self.p.source[at];
        let Some(array) = source.shape.as_array().filter(|a| a.element_count() == Some(0)) else { return Ok(None) };
        let handed = matches!(source.op, Op::Parameter { .. } | Op::GetTupleElement { .. });
        if handed || hloom_analysis::effects::has_side_effect(&source.op) || source.op.collective().is_some() {
            return Ok(None);
        }
        let shape = Arc::new(array.without_layout());
        let spec = self.annotated_array(at).complete();
        let zero = self.zero(shape.element_type)?;
        let id = self.broadcast(zero, shape.dims(), &[])?;
        Ok(Some(Val::Array(Part { id, shape, spec, free: Some(Free::Splat(zero)) })))
    }
}

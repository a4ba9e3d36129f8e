//! Types as shapes, dense literals as literals.

use super::{Translate, Translator};
use crate::mlir::dense::{Elements, MAX_SPLAT_BYTES};
use crate::mlir::{Attr, AttrId, DYNAMIC, Dense, Type, TypeId};
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::literal::ArrayLiteral;
use hloom_ir::{ArrayShape, ElementType, Layout, Literal, Op, Shape};
use std::sync::Arc;

/// The most parts that a tuple may have, those of its elements included.
const MAX_PARTS: usize = 1 << 20;

impl Translator<'_, '_> {
    /// The shape of a type, with the row-major layout.
    pub(super) fn type_shape(&mut self, id: TypeId) -> Translate<Shape> {
        if let Some(Some(shape)) = self.shapes.get(id.index()) {
            return Ok(shape.clone());
        }
        let shape = self.make_shape(id, 0, &mut { MAX_PARTS })?;
        if let Some(slot) = self.shapes.get_mut(id.index()) {
            *slot = Some(shape.clone());
        }
        Ok(shape)
    }

    /// `left` is how many parts the shape may still have: tuples that share their elements can stand for exponentially
    /// many.
    fn make_shape(&self, id: TypeId, depth: usize, left: &mut usize) -> Translate<Shape> {
        if depth >= Shape::MAX_DEPTH {
            return Err(self.error(&codes::TOO_DEEP, "types nest too deeply"));
        }
        *left = left.checked_sub(1).ok_or_else(|| self.error(&codes::TOO_LARGE, "a tuple has too many parts"))?;
        let mut tuple = |items: &[TypeId]| -> Translate<Shape> {
            Ok(Shape::Tuple(items.iter().map(|&t| self.make_shape(t, depth + 1, left)).collect::<Translate<_>>()?))
        };
        Ok(match self.m.ty(id) {
            Type::Tensor { dims, element, encoding } => self.array_shape(id, dims, *element, *encoding)?.into(),
            Type::MemRef(dims, element) => Shape::Buffer(Arc::new(self.array_shape(id, dims, *element, None)?)),
            Type::Tuple(items) => tuple(items)?,
            Type::Future(items) => match items[..] {
                [one] => self.make_shape(one, depth + 1, left)?,
                _ => tuple(items)?,
            },
            Type::Token => Shape::Token,
            _ => match self.m.element_type(id) {
                Some(element) => Shape::scalar(element).with_default_layout(),
                None => return Err(self.unsupported_type(id)),
            },
        })
    }

    #[cold]
    fn unsupported_type(&self, id: TypeId) -> Box<hloom_ir::Diagnostic> {
        let text = self.m.type_text(id);
        let message = format!("{} has the type {text}, which HLO cannot say", self.op_name());
        self.error(&codes::UNSUPPORTED_TYPE, message)
    }

    fn array_shape(
        &self,
        id: TypeId,
        dims: &[i64],
        element: TypeId,
        encoding: Option<AttrId>,
    ) -> Translate<ArrayShape> {
        let Some(element) = self.m.element_type(element) else { return Err(self.unsupported_type(id)) };
        let layout = Layout::descending(dims.len());
        if !dims.contains(&DYNAMIC) {
            if dims.iter().any(|&d| d < 0) {
                return Err(self.error(&codes::UNSUPPORTED_TYPE, "a dimension is negative"));
            }
            return Ok(ArrayShape::new(element, dims.iter().copied()).with_layout(layout));
        }
        let bounds = encoding.and_then(|e| self.m.field(e, "bounds")).and_then(|b| self.m.as_ints(b));
        let bounds = bounds.unwrap_or_default();
        let sizes = dims.iter().enumerate().map(|(i, &d)| match bounds.get(i) {
            Some(&bound) if d == DYNAMIC && bound >= 0 => bound,
            _ if d == DYNAMIC => ArrayShape::UNBOUNDED,
            _ => d,
        });
        let dynamic = dims.iter().map(|&d| d == DYNAMIC);
        Ok(ArrayShape::with_dynamic(element, sizes, dynamic).with_layout(layout))
    }

    /// A constant; one whose elements are all the same is a scalar that is repeated.
    pub(super) fn constant(&mut self, value: AttrId, result: TypeId) -> Translate<InstructionId> {
        let shape = self.type_shape(result)?;
        let m = self.m;
        match m.attr(value) {
            Attr::Dense(dense) => self.dense(dense, shape),
            Attr::Resource(ty, key) => {
                if &key[..] == b"__elided__" {
                    let message = "the value of this constant was left out when the module was printed";
                    return Err(self.error(&codes::ELIDED_CONSTANT, message));
                }
                let Some(data) = m.resources.get(key) else {
                    let message = format!("there is no resource `{}`", String::from_utf8_lossy(key));
                    return Err(self.error(&codes::UNKNOWN_RESOURCE, message));
                };
                self.dense(&Dense { ty: *ty, data: data.clone() }, shape)
            }
            _ => Err(self.error(&codes::BAD_ATTRIBUTE, "the value of a constant is no dense literal")),
        }
    }

    fn dense(&mut self, dense: &Dense<'_>, shape: Shape) -> Translate<InstructionId> {
        let m = self.m;
        let Some((element, elements)) = m.elements(dense) else {
            let message = format!("a literal of {} bytes is no {}", dense.data.len(), m.type_text(dense.ty));
            return Err(self.error(&codes::BAD_LITERAL, message));
        };
        let dims = m.tensor(dense.ty).map_or(&[][..], |(dims, _)| dims);
        let array = match &shape {
            Shape::Array(a) if a.is_unbounded() => {
                Arc::new(ArrayShape::new(element, dims.iter().copied()).with_default_layout())
            }
            Shape::Array(a) if a.element_type == element && a.dims() == dims => a.clone(),
            _ => {
                let message = format!("a literal of type {} makes a constant of another type", m.type_text(dense.ty));
                return Err(self.error(&codes::BAD_LITERAL, message));
            }
        };
        match elements {
            Elements::Splat(one) => {
                let scalar = self.scalar_bytes(element, &one)?;
                self.emit(Op::Broadcast { dimensions: Default::default() }, [scalar].as_slice(), Shape::Array(array))
            }
            Elements::All(bytes) => match ArrayLiteral::new(array, bytes.into_owned()) {
                Ok(literal) => {
                    let shape = Shape::Array(literal.shared_shape().clone());
                    self.emit(Op::constant(Literal::Array(literal)), [].as_slice(), shape)
                }
                Err(_) => Err(self.error(&codes::BAD_LITERAL, "a literal has another size than its type")),
            },
        }
    }

    /// A scalar constant with these bytes.
    fn scalar_bytes(&mut self, element: ElementType, bytes: &[u8]) -> Translate<InstructionId> {
        let shape = Arc::new(ArrayShape::new(element, []).with_default_layout());
        match ArrayLiteral::new(shape.clone(), bytes) {
            Ok(literal) => self.emit(Op::constant(Literal::Array(literal)), [].as_slice(), Shape::Array(shape)),
            Err(_) => Err(self.error(&codes::BAD_LITERAL, "a literal has another size than its type")),
        }
    }

    /// The literal that an attribute holds, all elements written out.
    pub(crate) fn literal(&mut self, value: AttrId) -> Translate<ArrayLiteral> {
        let m = self.m;
        let resource;
        let dense = match m.attr(value) {
            Attr::Dense(dense) => dense,
            Attr::Resource(ty, key) if m.resources.contains_key(key) => {
                resource = Dense { ty: *ty, data: m.resources[key].clone() };
                &resource
            }
            _ => return Err(self.error(&codes::BAD_ATTRIBUTE, "a value is no dense literal")),
        };
        let bad = |t: &Self| t.error(&codes::BAD_LITERAL, "a literal does not fit its type");
        let (element, elements) = m.elements(dense).ok_or_else(|| bad(self))?;
        let dims = m.tensor(dense.ty).map_or(&[][..], |(dims, _)| dims);
        let shape = ArrayShape::new(element, dims.iter().copied()).with_default_layout();
        let bytes = match elements {
            Elements::All(bytes) => bytes.into_owned(),
            Elements::Splat(one) => {
                let size = shape.byte_size().filter(|&n| n <= MAX_SPLAT_BYTES);
                let Some(size) = size else {
                    return Err(self.error(&codes::TOO_LARGE, "a literal of one element stands for too many"));
                };
                one.repeat(size as usize / one.len().max(1))
            }
        };
        ArrayLiteral::new(shape, bytes).map_err(|_| bad(self))
    }

    /// A scalar constant of that type.
    pub(super) fn number(&mut self, element: ElementType, value: f64) -> Translate<InstructionId> {
        let bytes = element_bytes(element, value);
        self.scalar_bytes(element, &bytes)
    }

    /// A scalar constant of an integer type.
    pub(super) fn whole(&mut self, element: ElementType, value: i64) -> Translate<InstructionId> {
        self.scalar_bytes(element, &value.to_le_bytes()[..element.bytes().min(8)])
    }

    /// A constant that repeats a number in the shape of `like`.
    pub(super) fn number_like(&mut self, like: InstructionId, value: f64) -> Translate<InstructionId> {
        let shape = self.shape(like).clone();
        let element = shape.element_type().unwrap_or(ElementType::F32);
        let scalar = self.number(element, value)?;
        self.splat(scalar, shape)
    }

    /// A scalar repeated.
    pub(super) fn splat(&mut self, scalar: InstructionId, shape: Shape) -> Translate<InstructionId> {
        if shape.as_array().is_some_and(ArrayShape::is_scalar) {
            return Ok(scalar);
        }
        self.emit(Op::Broadcast { dimensions: Default::default() }, [scalar].as_slice(), shape)
    }
}

/// A number in the format of a type.
pub(super) fn element_bytes(element: ElementType, value: f64) -> Vec<u8> {
    match element {
        ElementType::F64 => value.to_le_bytes().to_vec(),
        ElementType::F32 => (value as f32).to_le_bytes().to_vec(),
        ElementType::F16 => hloom_numerics::f16_from_f64(value).to_le_bytes().to_vec(),
        ElementType::Bf16 => hloom_numerics::bf16_from_f64(value).to_le_bytes().to_vec(),
        ElementType::C64 => [(value as f32).to_le_bytes(), [0; 4]].concat(),
        ElementType::C128 => [value.to_le_bytes(), [0; 8]].concat(),
        other if other.is_small_float() => vec![0; other.bytes()],
        other => (value as i64).to_le_bytes()[..other.bytes()].to_vec(),
    }
}

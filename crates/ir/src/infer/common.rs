//! What the rules share: access to operands and called computations, errors, comparisons of shapes and types.

use super::{Inferred, MixedPrecision, Result1, SameType, ShapeError};
use crate::diagnostic::codes::infer as codes;
use crate::diagnostic::{Code, Part};
use crate::display::ShapeStyle;
use crate::element_type::ElementType;
use crate::entity::{ComputationId, InstructionId};
use crate::layout::DimVec;
use crate::module::Module;
use crate::op::Op;
use crate::shape::{ArrayShape, Shape};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt::Display;

/// An operation about to be applied: all a rule looks at.
pub(super) struct Site<'a> {
    pub(super) module: &'a Module,
    pub(super) op: &'a Op,
    pub(super) operands: &'a [InstructionId],
    pub(super) declared: Option<&'a Shape>,
    pub(super) mixed_precision: MixedPrecision,
}

/// An error at `part`.
pub(super) fn error(code: &'static Code, part: Part, message: String) -> ShapeError {
    ShapeError { code, message, part }
}

/// An error at an attribute.
pub(super) fn at_attribute(code: &'static Code, attribute: &'static str, message: String) -> ShapeError {
    error(code, Part::Attribute(attribute), message)
}

impl<'a> Site<'a> {
    /// The opcode's name in HLO text.
    pub(super) fn name(&self) -> &'static str {
        self.op.opcode().name()
    }

    pub(super) fn expect_operands(&self, count: usize) -> Result<(), ShapeError> {
        let given = self.operands.len();
        if given == count {
            return Ok(());
        }
        let message = format!("{} takes {}, but is given {given}", self.name(), counted(count, "operand"));
        Err(error(&codes::OPERAND_COUNT, Part::Whole, message))
    }

    /// An error for operations whose number of operands may vary.
    pub(super) fn operand_count_error(&self, wanted: impl Display) -> ShapeError {
        let message = format!("{} takes {wanted}, but is given {}", self.name(), self.operands.len());
        error(&codes::OPERAND_COUNT, Part::Whole, message)
    }

    pub(super) fn shape(&self, i: usize) -> Result<&'a Shape, ShapeError> {
        match self.operands.get(i) {
            Some(&o) => Ok(&self.module[o].shape),
            None => Err(self.operand_count_error(format_args!("at least {}", counted(i + 1, "operand")))),
        }
    }

    pub(super) fn array(&self, i: usize) -> Result<&'a ArrayShape, ShapeError> {
        let shape = self.shape(i)?;
        shape.as_array().ok_or_else(|| self.not_an_array(i, shape))
    }

    fn not_an_array(&self, i: usize, shape: &Shape) -> ShapeError {
        let message = format!("operand {i} of {} must be an array, but is {}", self.name(), text(shape));
        error(&codes::NOT_AN_ARRAY, Part::Operand(i), message)
    }

    /// Operand `i`, an array or a buffer.
    pub(super) fn array_or_buffer(&self, i: usize) -> Result<&'a ArrayShape, ShapeError> {
        let shape = self.shape(i)?;
        shape.as_array_or_buffer().ok_or_else(|| self.not_an_array(i, shape))
    }

    pub(super) fn scalar(&self, i: usize) -> Result<&'a ArrayShape, ShapeError> {
        let array = self.array(i)?;
        if array.is_scalar() {
            return Ok(array);
        }
        let message = format!("operand {i} of {} must be a scalar, but is {}", self.name(), array_text(array));
        Err(error(&codes::NOT_A_SCALAR, Part::Operand(i), message))
    }

    pub(super) fn token(&self, i: usize) -> Result<(), ShapeError> {
        match self.shape(i)? {
            Shape::Token => Ok(()),
            other => {
                let message = format!("operand {i} of {} must be a token, but is {}", self.name(), text(other));
                Err(error(&codes::NOT_A_TOKEN, Part::Operand(i), message))
            }
        }
    }

    pub(super) fn tuple(&self, i: usize) -> Result<&'a [Shape], ShapeError> {
        let shape = self.shape(i)?;
        shape.as_tuple().ok_or_else(|| {
            let message = format!("operand {i} of {} must be a tuple, but is {}", self.name(), text(shape));
            error(&codes::NOT_A_TUPLE, Part::Operand(i), message)
        })
    }

    /// Element `index` of the tuple that is operand `operand`.
    pub(super) fn tuple_element(&self, operand: usize, index: usize) -> Result1<'a> {
        let elements = self.tuple(operand)?;
        elements.get(index).map(Inferred::Like).ok_or_else(|| {
            let message = format!(
                "{} takes element {index} of operand {operand}, which has only {}",
                self.name(),
                counted(elements.len(), "element")
            );
            error(&codes::TUPLE_INDEX, Part::Operand(operand), message)
        })
    }

    /// Which element types go together here.
    pub(super) fn same_type(&self) -> SameType {
        match self.mixed_precision {
            MixedPrecision::Allowed => same_type_or_floats,
            MixedPrecision::Refused => |a, b| a == b,
        }
    }

    /// Whether a value of shape `a` can stand where one of `b` is wanted.
    pub(super) fn compatible(&self, a: &Shape, b: &Shape) -> bool {
        compatible_if(a, b, &self.same_type())
    }

    /// The shape written on the instruction.
    pub(super) fn declared(&self) -> Result<&'a Shape, ShapeError> {
        self.declared.ok_or_else(|| {
            let message = format!("the shape of {} does not follow from its operands and must be given", self.name());
            error(&codes::SHAPE_NEEDED, Part::Shape, message)
        })
    }

    /// The shape written on the instruction, an array.
    pub(super) fn declared_array(&self) -> Result<&'a ArrayShape, ShapeError> {
        let shape = self.declared()?;
        shape.as_array().ok_or_else(|| self.mismatch(format!("an array, not {}", text(shape))))
    }

    /// The element type asked for, where a shape is written.
    pub(super) fn declared_element_type(&self) -> Result<Option<ElementType>, ShapeError> {
        self.declared.map(|_| self.declared_array().map(|a| a.element_type)).transpose()
    }

    /// The shape that is written should be `wanted`.
    pub(super) fn mismatch(&self, wanted: impl Display) -> ShapeError {
        error(&codes::SHAPE_MISMATCH, Part::Shape, format!("the result of {} is {wanted}", self.name()))
    }

    /// An operand's element type is not one of those wanted.
    pub(super) fn element_type_error(&self, i: usize, given: ElementType, wanted: &str) -> ShapeError {
        let message = format!("{} takes {wanted} elements, but operand {i} has {given}", self.name());
        error(&codes::ELEMENT_TYPE, Part::Operand(i), message)
    }

    /// Two operands' dimensions should be the same.
    pub(super) fn dimensions_differ(&self, i: usize, j: usize) -> ShapeError {
        let shown = |i: usize| self.operands.get(i).map_or(String::new(), |&o| text(&self.module[o].shape));
        let message = format!(
            "operands {i} and {j} of {} must have the same dimensions, but are {} and {}",
            self.name(),
            shown(i),
            shown(j)
        );
        error(&codes::DIMENSIONS_DIFFER, Part::Operand(j), message)
    }

    /// Two operands' element types should be the same (up to the precision of floating-point types).
    pub(super) fn element_types_differ(&self, i: usize, j: usize) -> ShapeError {
        let shown = |i: usize| self.operands.get(i).map_or(String::new(), |&o| text(&self.module[o].shape));
        let message = format!(
            "operands {i} and {j} of {} must have the same element type, but are {} and {}",
            self.name(),
            shown(i),
            shown(j)
        );
        error(&codes::ELEMENT_TYPES_DIFFER, Part::Operand(j), message)
    }

    /// Dimension `d`, named by `attribute`, as an index into an array of `rank` dimensions.
    pub(super) fn dimension(&self, d: i64, rank: usize, attribute: &'static str) -> Result<usize, ShapeError> {
        usize::try_from(d).ok().filter(|&d| d < rank).ok_or_else(|| {
            let message = format!(
                "{attribute} of {} names dimension {d}, but the array has {}",
                self.name(),
                counted(rank, "dimension")
            );
            at_attribute(&codes::DIMENSION_OUT_OF_RANGE, attribute, message)
        })
    }

    /// Whether `dims` are dimensions of an array of `rank` dimensions, none twice.
    pub(super) fn distinct_dimensions(
        &self,
        dims: &[i64],
        rank: usize,
        attribute: &'static str,
    ) -> Result<(), ShapeError> {
        let mut seen: SmallVec<[bool; 16]> = SmallVec::from_elem(false, rank);
        for &d in dims {
            let index = self.dimension(d, rank, attribute)?;
            if std::mem::replace(&mut seen[index], true) {
                let message = format!("{attribute} of {} names dimension {d} twice", self.name());
                return Err(at_attribute(&codes::DIMENSION_REPEATED, attribute, message));
            }
        }
        Ok(())
    }

    /// As [`Site::distinct_dimensions`], and each larger than the one before.
    pub(super) fn ascending_dimensions(
        &self,
        dims: &[i64],
        rank: usize,
        attribute: &'static str,
    ) -> Result<(), ShapeError> {
        for pair in dims.windows(2) {
            if pair[0] >= pair[1] {
                let message =
                    format!("{attribute} of {} must be ascending, but {} follows {}", self.name(), pair[1], pair[0]);
                return Err(at_attribute(&codes::DIMENSION_REPEATED, attribute, message));
            }
        }
        // Ascending, so only the ends can be out of range.
        for &d in dims.first().into_iter().chain(dims.last()) {
            self.dimension(d, rank, attribute)?;
        }
        Ok(())
    }

    /// An attribute must have `wanted` entries.
    pub(super) fn attribute_length(
        &self,
        attribute: &'static str,
        given: usize,
        wanted: usize,
    ) -> Result<(), ShapeError> {
        if given == wanted {
            return Ok(());
        }
        let message = format!("{attribute} of {} needs {}, but has {given}", self.name(), counted(wanted, "entry"));
        Err(at_attribute(&codes::ATTRIBUTE_LENGTH, attribute, message))
    }

    pub(super) fn overflow(&self, dimension: usize) -> ShapeError {
        let message = format!("the size of dimension {dimension} of {} does not fit in 63 bits", self.name());
        error(&codes::SIZE_OVERFLOW, Part::Whole, message)
    }

    /// Parameters and result of a computation that must take `count` parameters. `attribute` is the one that names it.
    pub(super) fn signature(
        &self,
        computation: ComputationId,
        attribute: &'static str,
        count: usize,
    ) -> Result<Signature<'a>, ShapeError> {
        let given = self.module[computation].parameters.len();
        if given != count {
            let message = format!(
                "{} calls {} with {}, but it takes {given}",
                self.name(),
                self.module[computation].name(),
                counted(count, "argument")
            );
            return Err(at_attribute(&codes::COMPUTATION_PARAMETERS, attribute, message));
        }
        let Some(root) = self.module.root(computation) else {
            let message = format!("{} calls {}, which is empty", self.name(), self.module[computation].name());
            return Err(at_attribute(&codes::EMPTY_COMPUTATION, attribute, message));
        };
        let parameters = self.module.parameters_in_order(computation);
        Ok(Signature { module: self.module, computation, attribute, parameters, result: &self.module[root].shape })
    }
}

/// The parameters and the result of a called computation.
pub(super) struct Signature<'a> {
    module: &'a Module,
    computation: ComputationId,
    attribute: &'static str,
    parameters: Cow<'a, [InstructionId]>,
    pub(super) result: &'a Shape,
}

impl<'a> Signature<'a> {
    /// The shapes of the parameters, in order.
    pub(super) fn parameters(&self) -> impl ExactSizeIterator<Item = &'a Shape> + '_ {
        let module = self.module;
        self.parameters.iter().map(move |&p| &module[p].shape)
    }

    pub(super) fn parameter_error(&self, i: usize, given: &Shape, wanted: impl Display) -> ShapeError {
        let name = self.module[self.computation].name();
        let message = format!("parameter {i} of {name} must be {wanted}, but is {}", text(given));
        at_attribute(&codes::COMPUTATION_PARAMETERS, self.attribute, message)
    }

    pub(super) fn result_error(&self, wanted: impl Display) -> ShapeError {
        let name = self.module[self.computation].name();
        let message = format!("the result of {name} must be {wanted}, but is {}", text(self.result));
        at_attribute(&codes::COMPUTATION_RESULT, self.attribute, message)
    }

    /// The result must be a scalar pred.
    pub(super) fn expect_predicate(&self) -> Result<(), ShapeError> {
        if self.result.is_scalar_of(ElementType::Pred) {
            return Ok(());
        }
        Err(self.result_error("pred[]"))
    }
}

/// `1 operand`, `2 operands`, `1 entry`, `2 entries`.
pub(crate) fn counted(n: usize, noun: &str) -> String {
    match (n, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{n} {stem}ies"),
        (_, None) => format!("{n} {noun}s"),
    }
}

/// The longest shape that a message shows whole.
const MAX_SHAPE_TEXT: usize = 200;

/// The shape for a message: without layouts, cut if long.
pub(crate) fn text(shape: &Shape) -> String {
    let mut out = String::new();
    shape.write(&mut out, ShapeStyle { layout: false, index_comments: false });
    if out.len() > MAX_SHAPE_TEXT {
        // Shapes are written in ASCII, so any place is between two characters.
        out.truncate(MAX_SHAPE_TEXT);
        out.push_str(" …");
    }
    out
}

/// The array for a message.
pub(crate) fn array_text(array: &ArrayShape) -> String {
    let mut out = String::new();
    array.write(&mut out, ShapeStyle { layout: false, index_comments: false });
    out
}

/// Same dimensions, where an unbounded one is the same as any; dynamic flags are set aside.
pub(super) fn same_dims(a: &ArrayShape, b: &ArrayShape) -> bool {
    let (a, b) = (a.dims(), b.dims());
    a == b || a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| same_size(a, b))
}

/// Equal, or one of them unbounded.
pub(super) fn same_size(a: i64, b: i64) -> bool {
    a == b || a == ArrayShape::UNBOUNDED || b == ArrayShape::UNBOUNDED
}

/// What two dimensions that must be the same amount to: the size or bound where only one has it, dynamic where either
/// is; `None` if their sizes differ.
pub(super) fn merge_dim(a: (i64, bool), b: (i64, bool)) -> Option<(i64, bool)> {
    match (a.0 == ArrayShape::UNBOUNDED, b.0 == ArrayShape::UNBOUNDED) {
        (true, false) => Some(b),
        (false, true) => Some(a),
        _ => (a.0 == b.0).then_some((a.0, a.1 || b.1)),
    }
}

/// Whether a value of one shape can stand where one of the other is wanted: equal but for layouts and for whether a
/// dimension is dynamic; an unbounded dimension fits any.
pub fn compatible(a: &Shape, b: &Shape) -> bool {
    compatible_if(a, b, &|a, b| a == b)
}

/// As [`compatible`], where any two floating-point types are alike.
pub fn compatible_ignoring_float_precision(a: &Shape, b: &Shape) -> bool {
    compatible_if(a, b, &same_type_or_floats)
}

pub(super) fn compatible_if(a: &Shape, b: &Shape, same_type: &impl Fn(ElementType, ElementType) -> bool) -> bool {
    match (a, b) {
        (Shape::Array(a), Shape::Array(b)) | (Shape::Buffer(a), Shape::Buffer(b)) => {
            std::sync::Arc::ptr_eq(a, b) || same_type(a.element_type, b.element_type) && same_dims(a, b)
        }
        (Shape::Tuple(a), Shape::Tuple(b)) => {
            std::sync::Arc::ptr_eq(a, b)
                || a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| compatible_if(a, b, same_type))
        }
        (Shape::Token, Shape::Token) | (Shape::Opaque, Shape::Opaque) => true,
        _ => false,
    }
}

/// Equal, or both floating-point.
pub(super) fn same_type_or_floats(a: ElementType, b: ElementType) -> bool {
    a == b || a.is_float() && b.is_float()
}

/// Of two element types the one that holds more: complex over real, then range, precision, width, sign.
pub(super) fn higher_precision(a: ElementType, b: ElementType) -> ElementType {
    let rank = |t: ElementType| {
        let c = t.component();
        let (range, precision) = float_format(c).unwrap_or((-1, -1));
        (t.is_complex(), range, precision, c.bits(), c.is_signed_integer())
    };
    if rank(b) > rank(a) { b } else { a }
}

/// One more than the largest exponent, and the digits of the significand, of a floating-point type.
fn float_format(t: ElementType) -> Option<(i32, i32)> {
    use ElementType::*;
    Some(match t {
        F64 => (1024, 53),
        F32 => (128, 24),
        Bf16 => (128, 8),
        F8e8m0fnu => (128, 1),
        F16 => (16, 11),
        F8e5m2 | F8e5m2fnuz => (16, 3),
        F8e4m3fn => (9, 4),
        F8e4m3 | F8e4m3fnuz => (8, 4),
        F8e4m3b11fnuz => (5, 4),
        F8e3m4 => (4, 5),
        F6e3m2fn => (5, 3),
        F6e2m3fn => (3, 4),
        F4e2m1fn => (3, 2),
        _ => return None,
    })
}

/// The dimensions of a result as they come up.
#[derive(Default)]
pub(super) struct Dims {
    sizes: DimVec,
    dynamic: SmallVec<[bool; 8]>,
}

impl Dims {
    pub(super) fn push(&mut self, size: i64, dynamic: bool) {
        self.sizes.push(size);
        self.dynamic.push(dynamic);
    }

    /// Adds dimension `d` of `array`.
    pub(super) fn push_from(&mut self, array: &ArrayShape, d: usize) {
        if let Some(&size) = array.dims().get(d) {
            self.push(size, array.is_dynamic_dim(d));
        }
    }

    /// The dimensions of `array`.
    pub(super) fn of(array: &ArrayShape) -> Dims {
        Dims { sizes: array.dims().iter().copied().collect(), dynamic: array.dynamic_dims().collect() }
    }

    /// Size of dimension `d`, and whether it is dynamic.
    pub(super) fn get(&self, d: usize) -> (i64, bool) {
        (self.sizes.get(d).copied().unwrap_or(1), self.dynamic.get(d).copied().unwrap_or(false))
    }

    pub(super) fn set(&mut self, d: usize, size: i64, dynamic: bool) {
        if let (Some(s), Some(f)) = (self.sizes.get_mut(d), self.dynamic.get_mut(d)) {
            (*s, *f) = (size, dynamic);
        }
    }

    pub(super) fn array(self, element_type: ElementType) -> ArrayShape {
        ArrayShape::with_dynamic(element_type, self.sizes, self.dynamic)
    }

    pub(super) fn inferred<'a>(self, element_type: ElementType) -> Inferred<'a> {
        Inferred::Array(self.array(element_type))
    }
}

//! Operations without (array) operands: parameters, constants, iota and random numbers.

use super::common::{Site, array_text, at_attribute, error, text};
use super::{Inferred, Result1, compatible};
use crate::attributes::RngDistribution;
use crate::diagnostic::Part;
use crate::diagnostic::codes::infer as codes;
use crate::element_type::ElementType;
use crate::op::ConstantValue;
use crate::shape::Shape;

pub(super) fn parameter<'a>(s: &Site<'a>, number: i64) -> Result1<'a> {
    if number < 0 {
        let message = format!("parameters count from 0; there is no parameter {number}");
        return Err(error(&codes::ATTRIBUTE_VALUE, Part::Whole, message));
    }
    s.declared().map(Inferred::Like)
}

pub(super) fn constant<'a>(s: &Site<'a>, value: &'a ConstantValue) -> Result1<'a> {
    let ConstantValue::Literal(literal) = value else { return s.declared().map(Inferred::Like) };
    let Some(declared) = s.declared else {
        return Ok(match literal.as_array() {
            Some(array) => Inferred::Typed(array.shape(), array.element_type()),
            None => tuple_literal(literal),
        });
    };
    // An array literal is compared in place: constants are many.
    let same = match (literal.as_array(), declared) {
        (Some(literal), Shape::Array(declared)) => literal.shape().same_dims_and_type(declared),
        _ => compatible(&literal.shape(), declared),
    };
    if same {
        return Ok(Inferred::Like(declared));
    }
    let message = format!("the constant is {}, but its value is {}", text(declared), text(&literal.shape()));
    Err(error(&codes::LITERAL_SHAPE, Part::Shape, message))
}

fn tuple_literal(literal: &crate::literal::Literal) -> Inferred<'_> {
    use crate::literal::Literal;
    match literal {
        Literal::Array(a) => Inferred::Typed(a.shape(), a.element_type()),
        Literal::Tuple(elements) => Inferred::Tuple(elements.iter().map(tuple_literal).collect()),
        Literal::Token => Inferred::Token,
    }
}

pub(super) fn iota<'a>(s: &Site<'a>, dimension: i64) -> Result1<'a> {
    let array = s.declared_array()?;
    s.dimension(dimension, array.rank(), "iota_dimension")?;
    if array.element_type == ElementType::Pred {
        let message = format!("iota makes numbers, not {}", array_text(array));
        return Err(error(&codes::ELEMENT_TYPE, Part::Shape, message));
    }
    s.declared().map(Inferred::Like)
}

pub(super) fn rng<'a>(s: &Site<'a>, distribution: RngDistribution) -> Result1<'a> {
    s.expect_operands(2)?;
    let (low, high) = (s.scalar(0)?.element_type, s.scalar(1)?.element_type);
    let declared = s.declared_array()?;
    if low != high {
        return Err(s.element_types_differ(0, 1));
    }
    let wanted = match distribution {
        RngDistribution::Uniform if low.is_complex() => "pred, integer or floating-point",
        RngDistribution::Normal if !low.is_float() => "floating-point",
        _ => "",
    };
    if !wanted.is_empty() {
        return Err(s.element_type_error(0, low, wanted));
    }
    if declared.element_type != low {
        return Err(s.mismatch(format_args!("an array of {low}, not {}", array_text(declared))));
    }
    s.declared().map(Inferred::Like)
}

pub(super) fn rng_bit_generator<'a>(s: &Site<'a>) -> Result1<'a> {
    let state = s.array(0)?;
    let declared = s.declared()?;
    let bits = match declared {
        // Without a tuple the new state is dropped.
        Shape::Array(bits) => bits,
        Shape::Tuple(parts) => match &**parts {
            [new_state, Shape::Array(bits)] if compatible(new_state, s.shape(0)?) => bits,
            _ => {
                let wanted = format!("({}, array of bits), not {}", array_text(state), text(declared));
                return Err(s.mismatch(wanted));
            }
        },
        other => return Err(s.mismatch(format_args!("({}, array of bits), not {}", array_text(state), text(other)))),
    };
    if bits.element_type.is_complex() {
        let message = format!("{} makes numbers and bits, not {}", s.name(), array_text(bits));
        return Err(at_attribute(&codes::ELEMENT_TYPE, "algorithm", message));
    }
    Ok(Inferred::Like(declared))
}

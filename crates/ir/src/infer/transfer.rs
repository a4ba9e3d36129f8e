//! Data on its way: asynchronous copies, sends and receives, infeed and outfeed.

use super::common::{Site, error, text};
use super::{Inferred, Result1, compatible};
use crate::diagnostic::Part;
use crate::diagnostic::codes::infer as codes;
use crate::element_type::ElementType;
use crate::shape::Shape;

/// `(target, source, context)`.
pub(super) fn copy_start<'a>(s: &Site<'a>) -> Result1<'a> {
    let operand = s.shape(0)?;
    Ok(Inferred::Tuple(vec![Inferred::Like(operand), Inferred::Like(operand), Inferred::scalar(ElementType::U32)]))
}

pub(super) fn copy_done<'a>(s: &Site<'a>) -> Result1<'a> {
    match s.tuple(0)? {
        [target, source, ..] if compatible(target, source) => Ok(Inferred::Like(target)),
        _ => {
            let message = format!("copy-done takes what copy-start made, not {}", text(s.shape(0)?));
            Err(error(&codes::NOT_A_TUPLE, Part::Operand(0), message))
        }
    }
}

/// `(data, context, token)`.
pub(super) fn send<'a>(s: &Site<'a>) -> Result1<'a> {
    s.token(1)?;
    Ok(in_flight(s.shape(0)?))
}

fn in_flight(data: &Shape) -> Inferred<'_> {
    Inferred::Tuple(vec![Inferred::Like(data), Inferred::scalar(ElementType::U32), Inferred::Token])
}

/// The data that the send or receive given as the operand is about.
fn data_in_flight<'a>(s: &Site<'a>) -> Result<&'a Shape, super::ShapeError> {
    match s.tuple(0)? {
        [data, _, Shape::Token] => Ok(data),
        _ => {
            let message = format!("{} takes (data, context, token), not {}", s.name(), text(s.shape(0)?));
            Err(error(&codes::NOT_A_TUPLE, Part::Operand(0), message))
        }
    }
}

pub(super) fn send_done<'a>(s: &Site<'a>) -> Result1<'a> {
    data_in_flight(s)?;
    Ok(Inferred::Token)
}

pub(super) fn recv<'a>(s: &Site<'a>) -> Result1<'a> {
    s.token(0)?;
    let declared = s.declared()?;
    match declared.at(&[0]) {
        Some(data) => Ok(in_flight(data)),
        None => Err(s.mismatch(format_args!("(data, u32[], token[]), not {}", text(declared)))),
    }
}

pub(super) fn recv_done<'a>(s: &Site<'a>) -> Result1<'a> {
    Ok(Inferred::Tuple(vec![Inferred::Like(data_in_flight(s)?), Inferred::Token]))
}

pub(super) fn infeed<'a>(s: &Site<'a>) -> Result1<'a> {
    s.token(0)?;
    let declared = s.declared()?;
    match declared.as_tuple() {
        Some([_, Shape::Token]) => Ok(Inferred::Like(declared)),
        _ => Err(s.mismatch(format_args!("(data, token[]), not {}", text(declared)))),
    }
}

pub(super) fn outfeed<'a>(s: &Site<'a>, shape: &Shape) -> Result1<'a> {
    s.token(1)?;
    let operand = s.shape(0)?;
    if !compatible(operand, shape) {
        let message = format!("outfeed_shape is {}, but the operand is {}", text(shape), text(operand));
        return Err(error(&codes::DIMENSIONS_DIFFER, Part::Attribute("outfeed_shape"), message));
    }
    Ok(Inferred::Token)
}

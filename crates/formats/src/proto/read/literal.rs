//! Literals: from the element order of their layout to row-major order, and from one field per type to bytes.

use super::error::{Result, decode, error, missing};
use super::shape;
use crate::proto::for_each_position;
use crate::proto::messages::LiteralProto;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::proto as codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::layout::is_permutation;
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::shape::{ArrayShape, Shape};
use std::sync::Arc;

/// The value of a literal; `None` if it has a shape but no elements where its shape asks for some, which is how a
/// value is left out of a dump.
pub(super) fn literal(proto: &LiteralProto) -> Result<Option<Literal>> {
    let Some(shape_proto) = &proto.shape else { return missing("shape of the literal") };
    match shape::shape(shape_proto)? {
        Shape::Token => Ok(Some(Literal::Token)),
        Shape::Array(shape) => Ok(array(proto, shape)?.map(Literal::Array)),
        Shape::Tuple(shapes) => {
            if shapes.len() != proto.tuple_literals.len() {
                let (needed, given) = (shapes.len(), proto.tuple_literals.len());
                return error(&codes::BAD_LITERAL, format!("a tuple literal has {given} of its {needed} elements"));
            }
            let mut elements = Vec::with_capacity(shapes.len());
            for (element, wanted) in proto.tuple_literals.iter().zip(shapes.iter()) {
                let Some(element) = literal(element)? else { return Ok(None) };
                if !element.shape().equal_ignoring_layout(wanted) {
                    let message = format!("an element of a tuple literal is {} instead of {wanted}", element.shape());
                    return error(&codes::BAD_LITERAL, message);
                }
                elements.push(element);
            }
            Ok(Some(Literal::Tuple(elements)))
        }
        other => error(&codes::BAD_LITERAL, format!("a literal cannot have the shape {other}")),
    }
}

fn array(proto: &LiteralProto, shape: Arc<ArrayShape>) -> Result<Option<ArrayLiteral>> {
    let bytes = elements(proto, shape.element_type);
    if bytes.is_empty() && shape.byte_size() != Some(0) {
        return Ok(None);
    }
    let dynamic_sizes = dynamic_sizes(proto, &shape)?;
    let mut literal = from_elements(shape, bytes)?;
    literal.dynamic_sizes = dynamic_sizes;
    Ok(Some(literal))
}

/// An array from the bytes of its elements in the order of its layout.
fn from_elements(shape: Arc<ArrayShape>, bytes: Vec<u8>) -> Result<ArrayLiteral> {
    if shape.byte_size() != Some(bytes.len() as i64) {
        let given = bytes.len() / shape.element_type.bytes();
        return error(&codes::BAD_LITERAL, format!("a literal of shape {shape} has {given} elements"));
    }
    let bytes = match &shape.layout {
        Some(layout) if !layout.is_descending() => {
            if !is_permutation(&layout.minor_to_major, shape.rank()) {
                return error(&codes::BAD_LITERAL, format!("the layout of a literal {shape} orders no dimensions"));
            }
            to_row_major(&bytes, &shape, &layout.minor_to_major)
        }
        _ => bytes,
    };
    ArrayLiteral::new(shape, bytes).map_err(|e| {
        Diagnostic::error(&codes::BAD_LITERAL, format!("a literal has {} bytes instead of {:?}", e.given, e.needed))
    })
}

/// A literal as large snapshots have it: the length of its shape in eight bytes, its shape, then the elements of its
/// arrays as they lie in memory, those of fewer bits than a byte packed. `None` for what has no such form here: dynamic
/// sizes, tokens.
pub(super) fn raw_literal(bytes: &[u8]) -> Result<Option<Literal>> {
    let bad = || Diagnostic::error(&codes::BAD_LITERAL, "an argument of the snapshot ends in the middle");
    let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(bad)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| bad())?;
    let (shape, elements) = rest.split_at_checked(length).ok_or_else(bad)?;
    let whole = shape::shape(&decode(shape, "the shape of an argument")?)?;
    let mut elements = elements;
    let mut arrays = Vec::new();
    for (_, leaf) in whole.leaves() {
        let Shape::Array(array) = leaf else { return Ok(None) };
        if array.is_dynamic() {
            return Ok(None);
        }
        let count = array.element_count().and_then(|n| usize::try_from(n).ok()).ok_or_else(bad)?;
        let bits = array.element_type.bits() as usize;
        let packed = array.element_type == ElementType::Pred || bits < 8;
        let bits = if array.element_type == ElementType::Pred { 1 } else { bits };
        let size = if packed {
            count.saturating_mul(bits).div_ceil(8)
        } else {
            count.saturating_mul(array.element_type.bytes())
        };
        let (own, rest) = elements.split_at_checked(size).ok_or_else(bad)?;
        elements = rest;
        let bytes = if packed { unpacked(own, count, bits, array.element_type) } else { own.to_vec() };
        arrays.push(Literal::Array(from_elements(array.clone(), bytes)?));
    }
    if !elements.is_empty() {
        return Ok(None);
    }
    Ok(Some(assemble(&whole, &mut arrays.into_iter())))
}

/// Elements of fewer bits than a byte, one a byte: the first is in the lowest bits.
fn unpacked(bytes: &[u8], count: usize, bits: usize, element_type: ElementType) -> Vec<u8> {
    let element = |n: usize| {
        let raw = (bytes[n * bits / 8] >> (n * bits % 8)) & ((1u16 << bits) - 1) as u8;
        match element_type.is_signed_integer() {
            true => (((raw << (8 - bits)) as i8) >> (8 - bits)) as u8,
            false => raw,
        }
    };
    (0..count).map(element).collect()
}

/// A literal of `shape` from its arrays in order; shapes nest no deeper than `Shape::MAX_DEPTH`.
fn assemble(shape: &Shape, arrays: &mut impl Iterator<Item = Literal>) -> Literal {
    match shape {
        Shape::Tuple(elements) => Literal::Tuple(elements.iter().map(|e| assemble(e, arrays)).collect()),
        _ => arrays.next().unwrap_or(Literal::Token),
    }
}

fn dynamic_sizes(proto: &LiteralProto, shape: &ArrayShape) -> Result<Vec<i32>> {
    let sizes = &proto.dynamic_sizes;
    if !shape.is_dynamic() || sizes.is_empty() {
        return Ok(Vec::new());
    }
    let fits = |(&size, &bound): (&i32, &i64)| size >= 0 && i64::from(size) <= bound;
    if sizes.len() != shape.rank() || !sizes.iter().zip(shape.dims()).all(fits) {
        return error(&codes::BAD_LITERAL, format!("the dynamic sizes {sizes:?} do not fit in {shape}"));
    }
    let full = sizes.iter().zip(shape.dims()).all(|(&size, &bound)| i64::from(size) == bound);
    Ok(if full { Vec::new() } else { sizes.clone() })
}

/// All elements of the field for that type, in the order given.
fn elements(p: &LiteralProto, element_type: ElementType) -> Vec<u8> {
    fn le<const N: usize, T: Copy>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        values.iter().flat_map(|&v| bytes(v)).collect()
    }
    let bits = element_type.bits();
    let unsigned = |field: &[u8]| field.iter().map(|b| b & ((1 << bits) - 1)).collect();
    let signed = |field: &[u8]| field.iter().map(|b| ((b << (8 - bits)) as i8 >> (8 - bits)) as u8).collect();
    match element_type {
        ElementType::Pred => p.preds.iter().map(|&b| u8::from(b)).collect(),
        ElementType::S32 => le(&p.s32s, i32::to_le_bytes),
        ElementType::S64 => le(&p.s64s, i64::to_le_bytes),
        ElementType::U32 => le(&p.u32s, u32::to_le_bytes),
        ElementType::U64 => le(&p.u64s, u64::to_le_bytes),
        ElementType::F32 => le(&p.f32s, u32::to_le_bytes),
        ElementType::F64 => le(&p.f64s, u64::to_le_bytes),
        ElementType::C64 => le(&p.c64s, u32::to_le_bytes),
        ElementType::C128 => le(&p.c128s, u64::to_le_bytes),
        ElementType::S8 => p.s8s.clone(),
        ElementType::U8 => p.u8s.clone(),
        ElementType::S16 => p.s16s.clone(),
        ElementType::U16 => p.u16s.clone(),
        ElementType::F16 => p.f16s.clone(),
        ElementType::Bf16 => p.bf16s.clone(),
        ElementType::F8e5m2 => p.f8e5m2s.clone(),
        ElementType::F8e4m3 => p.f8e4m3s.clone(),
        ElementType::F8e4m3fn => p.f8e4m3fns.clone(),
        ElementType::F8e4m3b11fnuz => p.f8e4m3b11fnuzs.clone(),
        ElementType::F8e3m4 => p.f8e3m4s.clone(),
        ElementType::F8e5m2fnuz => p.f8e5m2fnuzs.clone(),
        ElementType::F8e4m3fnuz => p.f8e4m3fnuzs.clone(),
        ElementType::F8e8m0fnu => p.f8e8m0fnus.clone(),
        ElementType::S1 => signed(&p.s1s),
        ElementType::S2 => signed(&p.s2s),
        ElementType::S4 => signed(&p.s4s),
        ElementType::U1 => unsigned(&p.u1s),
        ElementType::U2 => unsigned(&p.u2s),
        ElementType::U4 => unsigned(&p.u4s),
        ElementType::F4e2m1fn => unsigned(&p.f4e2m1fns),
        ElementType::F6e3m2fn => unsigned(&p.f6e3m2fns),
        ElementType::F6e2m3fn => unsigned(&p.f6e2m3fns),
    }
}

/// Elements given in the order of a layout, put in row-major order. `bytes` has as many elements as the shape.
fn to_row_major(bytes: &[u8], shape: &ArrayShape, minor_to_major: &[i64]) -> Vec<u8> {
    let width = shape.element_type.bytes();
    let mut out = vec![0; bytes.len()];
    let mut elements = bytes.chunks_exact(width);
    for_each_position(shape, minor_to_major, |at| {
        if let (Some(slot), Some(element)) = (out.get_mut(at..at + width), elements.next()) {
            slot.copy_from_slice(element);
        }
    });
    out
}

//! Literals: from row-major order to the element order of their layout, and from bytes to one field per type.

use super::shape;
use crate::proto::for_each_position;
use crate::proto::messages::{LiteralProto, ShapeProto, primitive_type};
use hloom_ir::element_type::ElementType;
use hloom_ir::layout::{Layout, is_permutation};
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::shape::ArrayShape;
use std::borrow::Cow;

pub(super) fn literal(value: &Literal) -> LiteralProto {
    match value {
        Literal::Array(a) => array(a),
        Literal::Token => {
            let shape = ShapeProto { element_type: primitive_type::TOKEN, ..ShapeProto::default() };
            LiteralProto { shape: Some(shape), ..LiteralProto::default() }
        }
        Literal::Tuple(elements) => {
            let tuple_literals: Vec<LiteralProto> = elements.iter().map(literal).collect();
            let shape = ShapeProto {
                element_type: primitive_type::TUPLE,
                tuple_shapes: tuple_literals.iter().filter_map(|l| l.shape.clone()).collect(),
                ..ShapeProto::default()
            };
            LiteralProto { shape: Some(shape), tuple_literals, ..LiteralProto::default() }
        }
    }
}

fn array(value: &ArrayLiteral) -> LiteralProto {
    let own = value.shape();
    let layout = match &own.layout {
        Some(layout) if is_permutation(&layout.minor_to_major, own.rank()) => layout.clone(),
        _ => Layout::descending(own.rank()),
    };
    let bytes = if layout.is_descending() {
        Cow::Borrowed(value.bytes())
    } else {
        Cow::Owned(from_row_major(value.bytes(), own, &layout.minor_to_major))
    };
    let mut proto = elements(bytes, own.element_type);
    if own.is_dynamic() {
        proto.dynamic_sizes = if value.dynamic_sizes.is_empty() {
            own.dims().iter().map(|&d| i32::try_from(d).unwrap_or(i32::MAX)).collect()
        } else {
            value.dynamic_sizes.clone()
        };
    }
    let mut shape = shape::array(own);
    shape.layout = shape::array(&own.clone().with_layout(layout)).layout;
    proto.shape = Some(shape);
    proto
}

fn elements(bytes: Cow<'_, [u8]>, element_type: ElementType) -> LiteralProto {
    fn le<const N: usize, T>(bytes: &[u8], value: impl Fn([u8; N]) -> T) -> Vec<T> {
        bytes.as_chunks::<N>().0.iter().map(|&c| value(c)).collect()
    }
    let mut p = LiteralProto::default();
    let mask = |bytes: Cow<'_, [u8]>| bytes.iter().map(|b| b & ((1u32 << element_type.bits()) - 1) as u8).collect();
    match element_type {
        ElementType::Pred => p.preds = bytes.iter().map(|&b| b != 0).collect(),
        ElementType::S32 => p.s32s = le(&bytes, i32::from_le_bytes),
        ElementType::S64 => p.s64s = le(&bytes, i64::from_le_bytes),
        ElementType::U32 => p.u32s = le(&bytes, u32::from_le_bytes),
        ElementType::U64 => p.u64s = le(&bytes, u64::from_le_bytes),
        ElementType::F32 => p.f32s = le(&bytes, u32::from_le_bytes),
        ElementType::F64 => p.f64s = le(&bytes, u64::from_le_bytes),
        ElementType::C64 => p.c64s = le(&bytes, u32::from_le_bytes),
        ElementType::C128 => p.c128s = le(&bytes, u64::from_le_bytes),
        ElementType::S8 => p.s8s = bytes.into_owned(),
        ElementType::U8 => p.u8s = bytes.into_owned(),
        ElementType::S16 => p.s16s = bytes.into_owned(),
        ElementType::U16 => p.u16s = bytes.into_owned(),
        ElementType::F16 => p.f16s = bytes.into_owned(),
        ElementType::Bf16 => p.bf16s = bytes.into_owned(),
        ElementType::F8e5m2 => p.f8e5m2s = bytes.into_owned(),
        ElementType::F8e4m3 => p.f8e4m3s = bytes.into_owned(),
        ElementType::F8e4m3fn => p.f8e4m3fns = bytes.into_owned(),
        ElementType::F8e4m3b11fnuz => p.f8e4m3b11fnuzs = bytes.into_owned(),
        ElementType::F8e3m4 => p.f8e3m4s = bytes.into_owned(),
        ElementType::F8e5m2fnuz => p.f8e5m2fnuzs = bytes.into_owned(),
        ElementType::F8e4m3fnuz => p.f8e4m3fnuzs = bytes.into_owned(),
        ElementType::F8e8m0fnu => p.f8e8m0fnus = bytes.into_owned(),
        // One element a byte, upper bits zero.
        ElementType::S1 => p.s1s = mask(bytes),
        ElementType::S2 => p.s2s = mask(bytes),
        ElementType::S4 => p.s4s = mask(bytes),
        ElementType::U1 => p.u1s = mask(bytes),
        ElementType::U2 => p.u2s = mask(bytes),
        ElementType::U4 => p.u4s = mask(bytes),
        ElementType::F4e2m1fn => p.f4e2m1fns = mask(bytes),
        ElementType::F6e3m2fn => p.f6e3m2fns = mask(bytes),
        ElementType::F6e2m3fn => p.f6e2m3fns = mask(bytes),
    }
    p
}

/// Row-major elements in the order of a layout. `minor_to_major` is a permutation of the dimensions.
fn from_row_major(bytes: &[u8], shape: &ArrayShape, minor_to_major: &[i64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for_each_position(shape, minor_to_major, |at| {
        out.extend_from_slice(bytes.get(at..at + shape.element_type.bytes()).unwrap_or_default());
    });
    out
}

//! Shapes and layouts.
//!
//! `prost` has refused what nests more than 100 deep before any of this sees it, which is less than
//! [`Shape::MAX_DEPTH`], so recursion here is bounded.

use super::error::{Result, error};
use crate::proto::messages::{LayoutProto, ProgramShapeProto, ShapeProto, primitive_type};
use hloom_ir::diagnostic::codes::proto as codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::layout::{DimLevel, DimLevelKind, Layout, RareLayout, SplitConfig, Tile};
use hloom_ir::shape::{ArrayShape, ProgramShape, Shape};
use std::sync::Arc;

pub(super) fn shape(proto: &ShapeProto) -> Result<Shape> {
    let only_for_arrays = || {
        if proto.layout.is_some() || !proto.dimensions.is_empty() {
            let message = format!("a shape of element type {} has dimensions or a layout", proto.element_type);
            return error(&codes::BAD_SHAPE, message);
        }
        Ok(())
    };
    match proto.element_type {
        primitive_type::TUPLE => {
            only_for_arrays()?;
            Ok(Shape::Tuple(proto.tuple_shapes.iter().map(shape).collect::<Result<_>>()?))
        }
        primitive_type::BUFFER => match &proto.tuple_shapes[..] {
            [inner] => Ok(Shape::Buffer(Arc::new(array(inner)?))),
            other => error(&codes::BAD_SHAPE, format!("a buffer has {} inner shapes instead of one", other.len())),
        },
        primitive_type::TOKEN => only_for_arrays().map(|()| Shape::Token),
        primitive_type::OPAQUE => only_for_arrays().map(|()| Shape::Opaque),
        _ => array(proto).map(Shape::from),
    }
}

fn array(proto: &ShapeProto) -> Result<ArrayShape> {
    let Some(element_type) = ElementType::from_proto_number(proto.element_type) else {
        return error(&codes::BAD_SHAPE, format!("{} is not an element type", proto.element_type));
    };
    if !proto.tuple_shapes.is_empty() {
        return error(&codes::BAD_SHAPE, format!("an array of {element_type} has tuple elements"));
    }
    let (dims, flags) = (&proto.dimensions, &proto.is_dynamic_dimension);
    if !flags.is_empty() && flags.len() != dims.len() {
        let message =
            format!("a shape has {} dimensions but says of {} whether they are dynamic", dims.len(), flags.len());
        return error(&codes::BAD_SHAPE, message);
    }
    if let Some(d) = dims.iter().find(|&&d| d < 0 && d != ArrayShape::UNBOUNDED) {
        return error(&codes::BAD_SHAPE, format!("a dimension has the size {d}"));
    }
    let mut shape = ArrayShape::with_dynamic(element_type, dims.iter().copied(), flags.iter().copied());
    if let Some(proto) = &proto.layout {
        let layout = layout(proto)?;
        if layout.minor_to_major.len() != shape.rank() {
            let (order, rank) = (layout.minor_to_major.len(), shape.rank());
            return error(&codes::BAD_SHAPE, format!("a layout orders {order} dimensions of an array that has {rank}"));
        }
        shape.layout = Some(layout);
    }
    Ok(shape)
}

pub(super) fn layout(proto: &LayoutProto) -> Result<Layout> {
    let mut layout = Layout::new(proto.minor_to_major.iter().copied());
    layout.tiles = proto.tiles.iter().map(|t| Tile(t.dimensions.iter().copied().collect())).collect();
    layout.memory_space = proto.memory_space;
    layout.element_size_in_bits = proto.element_size_in_bits;
    let rare = RareLayout {
        // Both 0 and absent mean the default.
        tail_padding_alignment_in_elements: match proto.tail_padding_alignment_in_elements {
            0 => 1,
            n if n > 0 => n,
            n => return error(&codes::BAD_SHAPE, format!("a layout pads its tail to a multiple of {n}")),
        },
        index_primitive_type: index_type(proto.index_primitive_type)?,
        pointer_primitive_type: index_type(proto.pointer_primitive_type)?,
        split_configs: proto
            .split_configs
            .iter()
            .map(|s| SplitConfig { dimension: s.dimension, split_indices: s.split_indices.clone() })
            .collect(),
        physical_shape: proto.physical_shape.as_deref().map(shape).transpose()?,
        dynamic_shape_metadata_prefix_bytes: proto.dynamic_shape_metadata_prefix_bytes,
        dim_level_types: dim_levels(proto)?,
    };
    if rare != RareLayout::default() {
        layout.rare = Some(Box::new(rare));
    }
    Ok(layout)
}

fn index_type(number: i32) -> Result<Option<ElementType>> {
    if number == 0 {
        return Ok(None);
    }
    match ElementType::from_proto_number(number) {
        Some(t) => Ok(Some(t)),
        None => error(&codes::BAD_SHAPE, format!("{number} is not a type for indices")),
    }
}

fn dim_levels(proto: &LayoutProto) -> Result<Vec<DimLevel>> {
    let level = |(i, &kind): (usize, &i32)| {
        let kind = match kind {
            0 => DimLevelKind::Dense,
            1 => DimLevelKind::Compressed,
            2 => DimLevelKind::Singleton,
            3 => DimLevelKind::LooseCompressed,
            other => return error(&codes::BAD_SHAPE, format!("{other} is not a way to store a dimension")),
        };
        let flag = |flags: &[bool]| flags.get(i).copied().unwrap_or(true);
        Ok(DimLevel { kind, unique: flag(&proto.dim_unique), ordered: flag(&proto.dim_ordered) })
    };
    let levels: Vec<DimLevel> = proto.dim_level_types.iter().enumerate().map(level).collect::<Result<_>>()?;
    // Old dumps say of every dense array that all its dimensions are dense.
    let plain = DimLevel { kind: DimLevelKind::Dense, unique: true, ordered: true };
    Ok(if levels.iter().all(|l| *l == plain) { Vec::new() } else { levels })
}

pub(super) fn program_shape(proto: &ProgramShapeProto) -> Result<ProgramShape> {
    let Some(result) = &proto.result else { return super::error::missing("result of the program shape") };
    Ok(ProgramShape { parameters: proto.parameters.iter().map(shape).collect::<Result<_>>()?, result: shape(result)? })
}

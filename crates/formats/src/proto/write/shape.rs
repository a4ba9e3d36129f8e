//! Shapes and layouts.

use crate::proto::messages::*;
use hloom_ir::layout::{Layout, RareLayout};
use hloom_ir::shape::{ArrayShape, ProgramShape, Shape};

/// How deep tuples may nest for other readers: protobuf allows 100 messages inside one another, and a shape is itself
/// inside a few.
const MAX_DEPTH: usize = 90;

/// Whether other programs can read the shape.
pub(super) fn is_readable(shape: &Shape) -> bool {
    fn within(shape: &Shape, depth: usize) -> bool {
        match shape {
            Shape::Tuple(elements) => depth > 0 && elements.iter().all(|e| within(e, depth - 1)),
            _ => true,
        }
    }
    within(shape, MAX_DEPTH)
}

pub(super) fn shape(shape: &Shape) -> ShapeProto {
    let of_type = |element_type, tuple_shapes| ShapeProto { element_type, tuple_shapes, ..ShapeProto::default() };
    match shape {
        Shape::Array(a) => array(a),
        Shape::Tuple(t) => of_type(primitive_type::TUPLE, t.iter().map(self::shape).collect()),
        Shape::Token => of_type(primitive_type::TOKEN, Vec::new()),
        Shape::Opaque => of_type(primitive_type::OPAQUE, Vec::new()),
        Shape::Buffer(a) => of_type(primitive_type::BUFFER, vec![array(a)]),
    }
}

pub(super) fn array(a: &ArrayShape) -> ShapeProto {
    ShapeProto {
        element_type: a.element_type.proto_number(),
        dimensions: a.dims().to_vec(),
        tuple_shapes: Vec::new(),
        layout: a.layout.as_ref().map(|l| Box::new(layout(l))),
        is_dynamic_dimension: a.dynamic_dims().collect(),
    }
}

fn layout(l: &Layout) -> LayoutProto {
    let none = RareLayout::default();
    let rare = l.rare.as_deref().unwrap_or(&none);
    let levels = &rare.dim_level_types;
    LayoutProto {
        minor_to_major: l.minor_to_major.to_vec(),
        tiles: l.tiles.iter().map(|t| TileProto { dimensions: t.0.to_vec() }).collect(),
        element_size_in_bits: l.element_size_in_bits,
        memory_space: l.memory_space,
        dim_level_types: levels.iter().map(|d| d.kind as i32).collect(),
        physical_shape: rare.physical_shape.as_ref().map(|s| Box::new(shape(s))),
        index_primitive_type: rare.index_primitive_type.map_or(0, |t| t.proto_number()),
        pointer_primitive_type: rare.pointer_primitive_type.map_or(0, |t| t.proto_number()),
        dim_unique: levels.iter().map(|d| d.unique).collect(),
        dim_ordered: levels.iter().map(|d| d.ordered).collect(),
        dynamic_shape_metadata_prefix_bytes: rare.dynamic_shape_metadata_prefix_bytes,
        tail_padding_alignment_in_elements: rare.tail_padding_alignment_in_elements,
        split_configs: rare
            .split_configs
            .iter()
            .map(|s| SplitConfigProto { dimension: s.dimension, split_indices: s.split_indices.clone() })
            .collect(),
    }
}

/// Shapes with names for the parameters; there are as many names as parameters.
pub(super) fn program_shape<'n>(shape: &ProgramShape, names: impl IntoIterator<Item = &'n str>) -> ProgramShapeProto {
    let mut parameter_names: Vec<String> = names.into_iter().map(Into::into).collect();
    parameter_names.resize(shape.parameters.len(), String::new());
    ProgramShapeProto {
        parameters: shape.parameters.iter().map(self::shape).collect(),
        result: Some(self::shape(&shape.result)),
        parameter_names,
    }
}

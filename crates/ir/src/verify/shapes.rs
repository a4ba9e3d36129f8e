//! Sizes and layouts: every array has a number of elements and bytes that fits, and a layout that fits the array.

use super::Report;
use crate::diagnostic::codes::verify as codes;
use crate::diagnostic::{Diagnostic, Part, Place};
use crate::element_type::ElementType;
use crate::entity::InstructionId;
use crate::infer::array_text;
use crate::layout::{Layout, RareLayout, Tile};
use crate::shape::{ArrayShape, Shape};

/// Checks the shape of instruction `id`.
pub(super) fn check(shape: &Shape, report: &mut Report, id: InstructionId) {
    if let Err(finding) = check_shape(shape, 0) {
        report.add((*finding).at_instruction(id, Part::Shape));
    }
}

/// Checks a shape in the module's header.
pub(super) fn check_in_header(shape: &Shape, report: &mut Report) {
    if let Err(finding) = check_shape(shape, 0) {
        report.add((*finding).at_place(Place::Header));
    }
}

/// Boxed, so that the usual answer is one word.
type Finding = Result<(), Box<Diagnostic>>;

fn check_shape(shape: &Shape, depth: usize) -> Finding {
    match shape {
        Shape::Array(a) | Shape::Buffer(a) => check_array(a, depth),
        Shape::Tuple(_) if depth >= Shape::MAX_DEPTH => {
            error(&codes::SHAPE_TOO_DEEP, format!("tuples are nested more than {} deep", Shape::MAX_DEPTH))
        }
        Shape::Tuple(elements) => elements.iter().try_for_each(|e| check_shape(e, depth + 1)),
        Shape::Token | Shape::Opaque => Ok(()),
    }
}

fn check_array(array: &ArrayShape, depth: usize) -> Finding {
    if let Some(d) = array.dims().iter().position(|&d| d < 0 && d != ArrayShape::UNBOUNDED) {
        return error(
            &codes::NEGATIVE_SIZE,
            format!("dimension {d} of {array} has the size {}, which is negative", array.dims()[d]),
        );
    }
    if !array.is_unbounded() && array.byte_size().is_none() {
        let elements = match array.element_count() {
            Some(n) => format!("{n} elements of {} bytes each", array.element_type.bytes()),
            None => "more elements than can be counted in 63 bits".to_owned(),
        };
        return error(&codes::SHAPE_TOO_LARGE, format!("{} has {elements}", array_text(array)))
            .map_err(|d| Box::new(d.help("no machine holds an array of 2^63 bytes: check its sizes")));
    }
    match &array.layout {
        Some(layout) => check_layout(layout, array, depth),
        None => Ok(()),
    }
}

fn check_layout(layout: &Layout, array: &ArrayShape, depth: usize) -> Finding {
    let rank = array.rank();
    let order = &layout.minor_to_major;
    // Almost every layout is row-major, which is cheaper to see than that it is a permutation.
    let row_major = order.len() == rank && layout.is_descending();
    if !row_major && !layout.is_permutation(rank) {
        let why = if order.len() == rank {
            format!("each of the dimensions 0 to {} must be named once", rank as i64 - 1)
        } else {
            format!("the layout orders {} dimensions, the array has {rank}", order.len())
        };
        return error(&codes::LAYOUT_ORDER, format!("layout {layout} does not fit {}: {why}", array_text(array)));
    }
    for tile in &layout.tiles {
        if let Some(size) = tile.0.iter().find(|&&s| s < 1 && s != Tile::COMBINE) {
            return error(&codes::LAYOUT_TILE, format!("layout {layout} has a tile of size {size}"));
        }
    }
    let property = |what: &str, value: i64| {
        error(&codes::LAYOUT_PROPERTY, format!("the {what} of layout {layout} is {value}, which cannot be"))
    };
    if layout.memory_space < 0 {
        return property("memory space", layout.memory_space);
    }
    if !(0..=MAX_ELEMENT_BITS).contains(&layout.element_size_in_bits) {
        return property("element size in bits", layout.element_size_in_bits);
    }
    match &layout.rare {
        Some(rare) => check_rare(rare, layout, array, depth),
        None => Ok(()),
    }
}

/// Elements are padded to more than their own size at times, but not beyond any register.
const MAX_ELEMENT_BITS: i64 = 1024;

fn check_rare(rare: &RareLayout, layout: &Layout, array: &ArrayShape, depth: usize) -> Finding {
    let property = |what: String| error(&codes::LAYOUT_PROPERTY, format!("layout {layout}: {what}"));
    if rare.tail_padding_alignment_in_elements < 1 {
        return property(format!(
            "elements cannot be padded to a multiple of {}",
            rare.tail_padding_alignment_in_elements
        ));
    }
    if rare.dynamic_shape_metadata_prefix_bytes < 0 {
        return property("the number of bytes before the data is negative".to_owned());
    }
    for (what, of) in [("indices", rare.index_primitive_type), ("pointers", rare.pointer_primitive_type)] {
        if let Some(t) = of.filter(|t| !ElementType::is_unsigned_integer(*t)) {
            return property(format!("{what} must be of an unsigned type, not {t}"));
        }
    }
    if !rare.dim_level_types.is_empty() && rare.dim_level_types.len() != array.rank() {
        return property(format!("{} level types for {} dimensions", rare.dim_level_types.len(), array.rank()));
    }
    for split in &rare.split_configs {
        let size = usize::try_from(split.dimension).ok().and_then(|d| array.dims().get(d));
        let Some(&size) = size else {
            return property(format!("dimension {} is split, but there are {}", split.dimension, array.rank()));
        };
        let in_range = split.split_indices.iter().all(|i| (0..=size.max(0)).contains(i));
        if !in_range || !split.split_indices.is_sorted() {
            return property(format!("dimension {} is split outside of its {size} elements", split.dimension));
        }
    }
    match &rare.physical_shape {
        Some(shape) if depth < Shape::MAX_DEPTH => check_shape(shape, depth + 1),
        Some(_) => error(&codes::SHAPE_TOO_DEEP, format!("shapes are nested more than {} deep", Shape::MAX_DEPTH)),
        None => Ok(()),
    }
}

fn error(code: &'static crate::diagnostic::Code, message: String) -> Finding {
    Err(Box::new(Diagnostic::error(code, message)))
}

//! Operations that put elements elsewhere: reshape, broadcast, transpose, slices, pad, concatenate and the like.

use super::common::{
    Dims, Site, array_text, at_attribute, counted, error, higher_precision, merge_dim, same_dims, same_size,
    same_type_or_floats,
};
use super::{Inferred, Result1, ShapeError};
use crate::attributes::{PaddingDim, SliceDim};
use crate::diagnostic::Part;
use crate::diagnostic::codes::infer as codes;
use crate::element_type::ElementType;
use crate::layout::is_permutation;
use crate::shape::{ArrayShape, Shape};

pub(super) fn bitcast<'a>(s: &Site<'a>) -> Result1<'a> {
    let operand = s.shape(0)?;
    let declared = s.declared()?;
    let (Some(from), Some(to)) = (operand.as_array_or_buffer(), declared.as_array_or_buffer()) else {
        // Anything but an array can only be renamed.
        if super::compatible(operand, declared) {
            return Ok(Inferred::Like(declared));
        }
        return Err(s.mismatch(format_args!("as many bits as its operand {operand}, not {declared}")));
    };
    // A tiled array is padded, so its bits can be seen as another number of elements.
    let tiled = |a: &ArrayShape| a.layout.as_ref().is_some_and(|l| !l.tiles.is_empty());
    let bits = |a: &ArrayShape| a.element_count().and_then(|n| n.checked_mul(i64::from(a.element_type.bits())));
    if !tiled(from) && !tiled(to) && !from.is_dynamic() && !to.is_dynamic() && bits(from) != bits(to) {
        return Err(count_error(s, from, to, "bits"));
    }
    Ok(Inferred::Like(declared))
}

fn count_error(s: &Site<'_>, from: &ArrayShape, to: &ArrayShape, what: &str) -> ShapeError {
    let message = format!("{} makes {} of {}: other {what}", s.name(), array_text(to), array_text(from));
    error(&codes::ELEMENT_COUNT, Part::Shape, message)
}

/// Checks that `to` has the element type and the number of elements of `from`.
fn keeps_elements(s: &Site<'_>, from: &ArrayShape, to: &ArrayShape) -> Result<(), ShapeError> {
    if !s.same_type()(from.element_type, to.element_type) {
        return Err(keeps_type(s, from, to));
    }
    if from.is_unbounded() || to.is_unbounded() {
        return Ok(());
    }
    // Two numbers that both do not fit are not known to be equal, unless the dimensions are.
    if from.element_count() != to.element_count() || from.element_count().is_none() && from.dims() != to.dims() {
        return Err(count_error(s, from, to, "number of elements"));
    }
    Ok(())
}

fn keeps_type(s: &Site<'_>, from: &ArrayShape, to: &ArrayShape) -> ShapeError {
    let message =
        format!("{} keeps the element type of its operand {}: {}", s.name(), array_text(from), array_text(to));
    error(&codes::SHAPE_MISMATCH, Part::Shape, message)
}

pub(super) fn reshape<'a>(s: &Site<'a>, inferred_dimension: Option<i64>) -> Result1<'a> {
    let (operand, declared) = (s.array(0)?, s.declared_array()?);
    keeps_elements(s, operand, declared)?;
    if let Some(d) = inferred_dimension {
        s.dimension(d, declared.rank(), "inferred_dimension")?;
    }
    s.declared().map(Inferred::Like)
}

pub(super) fn dynamic_reshape<'a>(s: &Site<'a>) -> Result1<'a> {
    let (operand, declared) = (s.array(0)?, s.declared_array()?);
    keeps_elements(s, operand, declared)?;
    if s.operands.len() != declared.rank() + 1 {
        return Err(s.operand_count_error(format_args!("an array and {}", counted(declared.rank(), "size"))));
    }
    for i in 1..s.operands.len() {
        let size = s.scalar(i)?;
        if size.element_type != ElementType::S32 {
            return Err(s.element_type_error(i, size.element_type, "s32 sizes and"));
        }
    }
    s.declared().map(Inferred::Like)
}

pub(super) fn broadcast<'a>(s: &Site<'a>, dimensions: &[i64]) -> Result1<'a> {
    let operand = s.array(0)?;
    s.attribute_length("dimensions", dimensions.len(), operand.rank())?;
    if s.declared.is_none() && dimensions.iter().enumerate().all(|(i, &d)| d == i as i64) {
        return Ok(Inferred::Like(s.shape(0)?));
    }
    let declared = s.declared_array()?;
    if !s.same_type()(operand.element_type, declared.element_type) {
        return Err(keeps_type(s, operand, declared));
    }
    s.distinct_dimensions(dimensions, declared.rank(), "dimensions")?;
    for (&size, &d) in operand.dims().iter().zip(dimensions) {
        let wanted = usize::try_from(d).ok().and_then(|d| declared.dims().get(d)).copied().unwrap_or(size);
        if !same_size(size, wanted) {
            let message = format!(
                "broadcast puts a dimension of size {size} of {} at dimension {d} of {}, which has size {wanted}",
                array_text(operand),
                array_text(declared)
            );
            return Err(error(&codes::DIMENSIONS_DIFFER, Part::Attribute("dimensions"), message));
        }
    }
    s.declared().map(Inferred::Like)
}

pub(super) fn transpose<'a>(s: &Site<'a>, dimensions: &[i64]) -> Result1<'a> {
    let operand = s.array(0)?;
    s.attribute_length("dimensions", dimensions.len(), operand.rank())?;
    if !is_permutation(dimensions, operand.rank()) {
        s.distinct_dimensions(dimensions, operand.rank(), "dimensions")?;
    }
    let mut dims = Dims::default();
    for &d in dimensions {
        dims.push_from(operand, d as usize);
    }
    Ok(dims.inferred(operand.element_type))
}

pub(super) fn reverse<'a>(s: &Site<'a>, dimensions: &[i64]) -> Result1<'a> {
    s.distinct_dimensions(dimensions, s.array(0)?.rank(), "dimensions")?;
    Ok(Inferred::Like(s.shape(0)?))
}

pub(super) fn concatenate<'a>(s: &Site<'a>, dimension: i64) -> Result1<'a> {
    let first = s.array(0)?;
    let along = s.dimension(dimension, first.rank(), "dimensions")?;
    let mut element_type = first.element_type;
    let mut dims = Dims::of(first);
    let (mut total, mut dynamic) = (0i64, false);
    let mut unbounded = false;
    for i in 0..s.operands.len() {
        let array = s.array(i)?;
        if !same_type_or_floats(element_type, array.element_type) {
            return Err(s.element_types_differ(0, i));
        }
        element_type = higher_precision(element_type, array.element_type);
        if array.rank() != first.rank() {
            return Err(s.dimensions_differ(0, i));
        }
        for (d, &size) in array.dims().iter().enumerate() {
            if d != along {
                let merged = merge_dim(dims.get(d), (size, array.is_dynamic_dim(d)));
                let (size, dynamic) = merged.ok_or_else(|| s.dimensions_differ(0, i))?;
                dims.set(d, size, dynamic);
                continue;
            }
            dynamic |= array.is_dynamic_dim(d);
            match size == ArrayShape::UNBOUNDED {
                true => unbounded = true,
                false => total = total.checked_add(size).ok_or_else(|| s.overflow(d))?,
            }
        }
    }
    dims.set(along, if unbounded { ArrayShape::UNBOUNDED } else { total }, dynamic);
    Ok(dims.inferred(element_type))
}

pub(super) fn slice<'a>(s: &Site<'a>, slices: &[SliceDim]) -> Result1<'a> {
    let operand = s.array(0)?;
    s.attribute_length("slice", slices.len(), operand.rank())?;
    let mut dims = Dims::default();
    for (d, (slice, &size)) in slices.iter().zip(operand.dims()).enumerate() {
        let SliceDim { start, limit, stride } = *slice;
        let bounded = size != ArrayShape::UNBOUNDED;
        if start < 0 || limit < start || stride <= 0 || bounded && limit > size {
            let message =
                format!("[{start}:{limit}:{stride}] is not a slice of dimension {d} of {}", { array_text(operand) });
            return Err(at_attribute(&codes::SIZE_OUT_OF_RANGE, "slice", message));
        }
        // 0 <= start <= limit, so the difference fits.
        let length = limit - start;
        let count = length / stride + i64::from(length % stride != 0);
        dims.push(count, count != 1 && bounded && operand.is_dynamic_dim(d));
    }
    Ok(dims.inferred(operand.element_type))
}

/// Checks the start indices of dynamic-slice and dynamic-update-slice: one scalar for each dimension, or one vector.
fn start_indices(s: &Site<'_>, first: usize, rank: usize) -> Result<(), ShapeError> {
    let given = s.operands.len().saturating_sub(first);
    let vector = given == 1 && s.array(first)?.rank() == 1;
    if vector {
        let indices = s.array(first)?;
        if indices.dims() != [rank as i64] {
            let message = format!(
                "operand {first} of {} must hold {}, but is {}",
                s.name(),
                counted(rank, "start index").replace("indexs", "indices"),
                array_text(indices)
            );
            return Err(error(&codes::DIMENSIONS_DIFFER, Part::Operand(first), message));
        }
    } else if given != rank {
        let wanted =
            format!("{} and one start index for each of {}", counted(first, "operand"), { counted(rank, "dimension") });
        return Err(s.operand_count_error(wanted));
    }
    let mut first_type = None;
    for i in first..s.operands.len() {
        let index = if vector { s.array(i)? } else { s.scalar(i)? };
        if !index.element_type.is_integer() {
            return Err(s.element_type_error(i, index.element_type, "integer indices and array"));
        }
        if *first_type.get_or_insert(index.element_type) != index.element_type {
            return Err(s.element_types_differ(first, i));
        }
    }
    Ok(())
}

pub(super) fn dynamic_slice<'a>(s: &Site<'a>, sizes: &[i64]) -> Result1<'a> {
    let operand = s.array(0)?;
    start_indices(s, 1, operand.rank())?;
    s.attribute_length("dynamic_slice_sizes", sizes.len(), operand.rank())?;
    let mut dims = Dims::default();
    for (d, (&size, &whole)) in sizes.iter().zip(operand.dims()).enumerate() {
        if size < 0 || whole != ArrayShape::UNBOUNDED && size > whole {
            let message = format!("a slice of size {size} does not fit dimension {d} of {}", array_text(operand));
            return Err(at_attribute(&codes::SIZE_OUT_OF_RANGE, "dynamic_slice_sizes", message));
        }
        dims.push(size, operand.is_dynamic_dim(d) && size > 1 && size == whole);
    }
    Ok(dims.inferred(operand.element_type))
}

pub(super) fn dynamic_update_slice<'a>(s: &Site<'a>) -> Result1<'a> {
    let (operand, update) = (s.array_or_buffer(0)?, s.array(1)?);
    start_indices(s, 2, operand.rank())?;
    if !same_type_or_floats(operand.element_type, update.element_type) {
        return Err(s.element_types_differ(0, 1));
    }
    let fits = |(&part, &whole): (&i64, &i64)| {
        part == ArrayShape::UNBOUNDED || part >= 0 && (whole == ArrayShape::UNBOUNDED || part <= whole)
    };
    if update.rank() != operand.rank() || !update.dims().iter().zip(operand.dims()).all(fits) {
        let message = format!("the update {} does not fit into {}", array_text(update), array_text(operand));
        return Err(error(&codes::SIZE_OUT_OF_RANGE, Part::Operand(1), message));
    }
    let covers = |d: usize| update.is_dynamic_dim(d) && update.dims()[d] == operand.dims()[d];
    if !update.is_dynamic() || !(0..operand.rank()).any(|d| covers(d) && !operand.is_dynamic_dim(d)) {
        return Ok(Inferred::Like(s.shape(0)?));
    }
    let mut dims = Dims::default();
    for d in 0..operand.rank() {
        dims.push(operand.dims()[d], operand.is_dynamic_dim(d) || covers(d));
    }
    Ok(dims.inferred(operand.element_type))
}

pub(super) fn pad<'a>(s: &Site<'a>, padding: &[PaddingDim]) -> Result1<'a> {
    let (operand, value) = (s.array(0)?, s.scalar(1)?);
    if !same_type_or_floats(operand.element_type, value.element_type) {
        return Err(s.element_types_differ(0, 1));
    }
    s.attribute_length("padding", padding.len(), operand.rank())?;
    let mut dims = Dims::default();
    for (d, (pad, &size)) in padding.iter().zip(operand.dims()).enumerate() {
        let bad = |why: &str| {
            let PaddingDim { low, high, interior } = *pad;
            let message = format!("padding {low}_{high}_{interior} of dimension {d} of {} {why}", array_text(operand));
            at_attribute(&codes::SIZE_OUT_OF_RANGE, "padding", message)
        };
        if pad.interior < 0 {
            return Err(bad("has a negative number of elements between"));
        }
        if size == ArrayShape::UNBOUNDED {
            dims.push(size, true);
            continue;
        }
        let padded = (|| {
            let between = size.checked_sub(1)?.max(0).checked_mul(pad.interior)?;
            size.checked_add(between)?.checked_add(pad.low)?.checked_add(pad.high)
        })();
        match padded {
            Some(n) if n >= 0 => dims.push(n, operand.is_dynamic_dim(d)),
            Some(_) => return Err(bad("takes away more than there is")),
            None => return Err(s.overflow(d)),
        }
    }
    Ok(dims.inferred(higher_precision(operand.element_type, value.element_type)))
}

/// Sizes of dimensions are s32 values, so a larger dimension has no size that could be asked for.
fn sized_dimension(s: &Site<'_>, dimension: i64) -> Result<usize, ShapeError> {
    let array = s.array(0)?;
    let d = s.dimension(dimension, array.rank(), "dimensions")?;
    if array.dims()[d] > i64::from(i32::MAX) {
        let message = format!("the size of dimension {d} of {} does not fit in s32", array_text(array));
        return Err(error(&codes::SIZE_OVERFLOW, Part::Operand(0), message));
    }
    Ok(d)
}

pub(super) fn get_dimension_size<'a>(s: &Site<'a>, dimension: i64) -> Result1<'a> {
    sized_dimension(s, dimension)?;
    Ok(Inferred::scalar(ElementType::S32))
}

pub(super) fn set_dimension_size<'a>(s: &Site<'a>, dimension: i64) -> Result1<'a> {
    let d = sized_dimension(s, dimension)?;
    let (operand, size) = (s.array(0)?, s.scalar(1)?);
    if size.element_type != ElementType::S32 {
        return Err(s.element_type_error(1, size.element_type, "an s32 size and array"));
    }
    // The size may also be taken away again: a static result of the same bound is declared then.
    if let Some(Shape::Array(declared)) = s.declared
        && declared.element_type == operand.element_type
        && same_dims(declared, operand)
    {
        return s.declared().map(Inferred::Like);
    }
    let mut dims = Dims::of(operand);
    dims.set(d, operand.dims()[d], true);
    Ok(dims.inferred(operand.element_type))
}

//! Operations in which devices meet.
//!
//! How many devices meet in a group follows from the replica groups, or from the module's counts where there are none;
//! where neither says anything (a module that names no counts), the shape on the instruction decides.

use super::common::{Dims, Site, array_text, at_attribute, error, text};
use super::{Inferred, Result1, ShapeError, compatible};
use crate::diagnostic::Part;
use crate::diagnostic::codes::infer as codes;
use crate::element_type::ElementType;
use crate::entity::ComputationId;
use crate::op::{AllGather, CollectivePermute, CollectiveReduce, ReduceScatter};
use crate::shape::{ArrayShape, Shape};

/// The operands `0..count` as one array or as a tuple; all must be arrays.
fn operands<'a>(s: &Site<'a>, count: usize) -> Result1<'a> {
    for i in 0..count {
        s.array(i)?;
    }
    match s.operands.get(..count) {
        Some([_]) => Ok(Inferred::Like(s.shape(0)?)),
        Some(all) if !all.is_empty() => Ok(Inferred::TupleOf(all)),
        _ => Err(s.operand_count_error("at least 1 operand")),
    }
}

/// A reducer of a collective takes two scalars and returns one. Its type may differ from the operands': one reducer
/// serves operands of several types.
fn check_reducer(s: &Site<'_>, to_apply: ComputationId) -> Result<(), ShapeError> {
    let reducer = s.signature(to_apply, "to_apply", 2)?;
    match reducer.result.as_array().filter(|a| a.is_scalar()) {
        Some(_) => Ok(()),
        None => Err(reducer.result_error("a scalar")),
    }
}

pub(super) fn all_reduce<'a>(s: &Site<'a>, to_apply: ComputationId) -> Result1<'a> {
    check_reducer(s, to_apply)?;
    operands(s, s.operands.len())
}

/// The reduced operands, or, in an older form, a tuple of the operands and of what becomes of them.
pub(super) fn all_reduce_start<'a>(s: &Site<'a>, to_apply: ComputationId) -> Result1<'a> {
    let made = all_reduce(s, to_apply)?;
    match s.declared {
        Some(declared @ Shape::Tuple(parts))
            if parts.len() == 2 && parts.iter().all(|p| made.matches(s.module, p, s.same_type())) =>
        {
            Ok(Inferred::Like(declared))
        }
        _ => Ok(made),
    }
}

pub(super) fn all_reduce_done<'a>(s: &Site<'a>) -> Result1<'a> {
    let started = s.shape(0)?;
    match (s.declared, started) {
        (Some(declared), Shape::Tuple(parts)) if !s.compatible(started, declared) && parts.len() == 2 => {
            Ok(Inferred::Like(&parts[1]))
        }
        _ => Ok(Inferred::Like(started)),
    }
}

/// The number of devices in a group, where the groups or the module's counts tell it.
fn group_size(s: &Site<'_>) -> Option<i64> {
    s.op.group_size(s.module.config.replica_count, s.module.config.num_partitions)
}

/// The number of shards: as the shapes have it (`whole` elements made of, or into, `part`), which must be the size of
/// a group where that is known.
fn shard_count(s: &Site<'_>, shapes: Option<(i64, i64)>) -> Result<i64, ShapeError> {
    let groups = group_size(s);
    let from_shapes = shapes.and_then(|(whole, part)| match part {
        1.. if whole >= 0 => Some(whole / part + i64::from(whole % part != 0)),
        _ => None,
    });
    match (from_shapes, groups) {
        (Some(n), Some(group)) if n != group => {
            let message = format!("groups of {} have {group} devices, but the shapes say {n}", s.name());
            Err(error(&codes::SHARD_COUNT, Part::Attribute("replica_groups"), message))
        }
        (Some(n), _) => Ok(n.max(1)),
        (None, group) => Ok(group.unwrap_or(1)),
    }
}

/// Part `i` of a result with one part for each operand.
fn declared_part<'a>(s: &Site<'a>, declared: Option<&'a Shape>, i: usize) -> Option<&'a ArrayShape> {
    let declared = declared?;
    if s.operands.len() == 1 { declared.as_array() } else { declared.as_tuple()?.get(i)?.as_array() }
}

fn gathered<'a>(s: &Site<'a>, gather: &AllGather, declared: Option<&'a Shape>) -> Result1<'a> {
    resized(s, gather.dimension, |first, d| {
        let made = declared_part(s, declared, 0).and_then(|a| a.dims().get(d).copied());
        let shards = shard_count(s, made.map(|made| (made, first.dims()[d])))?;
        Ok(move |size: i64| size.checked_mul(shards))
    })
}

/// The operands with dimension `dimension` of each changed by the function that `change` gives for the first of them.
fn resized<'a, F: Fn(i64) -> Option<i64>>(
    s: &Site<'a>,
    dimension: i64,
    change: impl FnOnce(&ArrayShape, usize) -> Result<F, ShapeError>,
) -> Result1<'a> {
    let first = s.array(0)?;
    let d = s.dimension(dimension, first.rank(), "dimensions")?;
    let change = change(first, d)?;
    let mut made = Vec::with_capacity(s.operands.len());
    for i in 0..s.operands.len() {
        let array = s.array(i)?;
        let d = s.dimension(dimension, array.rank(), "dimensions")?;
        let size = array.dims()[d];
        let mut dims = Dims::of(array);
        if size != ArrayShape::UNBOUNDED {
            let new = change(size).ok_or_else(|| uneven(s, array, d))?;
            dims.set(d, new, array.is_dynamic_dim(d));
        }
        made.push(dims.inferred(array.element_type));
    }
    Ok(match made.len() {
        1 => made.swap_remove(0),
        _ => Inferred::Tuple(made),
    })
}

fn uneven(s: &Site<'_>, array: &ArrayShape, d: usize) -> ShapeError {
    let message = format!("{} cannot share dimension {d} of {} among its devices", s.name(), array_text(array));
    at_attribute(&codes::SHARD_COUNT, "dimensions", message)
}

pub(super) fn all_gather<'a>(s: &Site<'a>, gather: &AllGather) -> Result1<'a> {
    gathered(s, gather, s.declared)
}

/// The result of a start that carries context: parts of the declared shape beyond the two that are derived.
fn with_context<'a>(s: &Site<'a>, input: Inferred<'a>, output: Inferred<'a>) -> Inferred<'a> {
    let mut parts = vec![input, output];
    parts.extend(s.declared.and_then(Shape::as_tuple).unwrap_or(&[]).iter().skip(2).map(Inferred::Like));
    Inferred::Tuple(parts)
}

pub(super) fn all_gather_start<'a>(s: &Site<'a>, gather: &AllGather) -> Result1<'a> {
    // In an older form the start has the shape of the result alone.
    if let Some(declared @ Shape::Array(_)) = s.declared {
        return gathered(s, gather, Some(declared));
    }
    let output = gathered(s, gather, s.declared.and_then(|d| d.at(&[1])))?;
    Ok(with_context(s, operands(s, s.operands.len())?, output))
}

pub(super) fn all_gather_done<'a>(s: &Site<'a>) -> Result1<'a> {
    match s.shape(0)? {
        array @ Shape::Array(_) => Ok(Inferred::Like(array)),
        _ => s.tuple_element(0, 1),
    }
}

pub(super) fn reduce_scatter<'a>(s: &Site<'a>, scatter: &ReduceScatter) -> Result1<'a> {
    check_reducer(s, scatter.to_apply)?;
    resized(s, scatter.dimension, |first, d| {
        let made = declared_part(s, s.declared, 0).and_then(|a| a.dims().get(d).copied());
        let shards = shard_count(s, made.map(|made| (first.dims()[d], made)))?;
        Ok(move |size: i64| (size % shards == 0).then(|| size / shards))
    })
}

pub(super) fn all_to_all<'a>(s: &Site<'a>, split_dimension: Option<i64>) -> Result1<'a> {
    let Some(dimension) = split_dimension else {
        let first = s.shape(0)?;
        s.array(0)?;
        for i in 1..s.operands.len() {
            if !s.compatible(first, s.shape(i)?) {
                return Err(s.dimensions_differ(0, i));
            }
        }
        if let Some(devices) = group_size(s).filter(|&n| n != s.operands.len() as i64) {
            let message = format!("all-to-all has {} operands for groups of {devices} devices", s.operands.len());
            return Err(error(&codes::SHARD_COUNT, Part::Attribute("replica_groups"), message));
        }
        return Ok(Inferred::TupleOf(s.operands));
    };
    s.expect_operands(1)?;
    let array = s.array(0)?;
    let d = s.dimension(dimension, array.rank(), "dimensions")?;
    // As many pieces are put together as are taken apart, so the shape stays.
    let size = array.dims()[d];
    match group_size(s) {
        Some(n) if size != ArrayShape::UNBOUNDED && size % n != 0 => Err(uneven(s, array, d)),
        _ => Ok(Inferred::Like(s.shape(0)?)),
    }
}

pub(super) fn ragged_all_to_all<'a>(s: &Site<'a>) -> Result1<'a> {
    let (input, output) = (s.array(0)?, s.array(1)?);
    if !s.same_type()(input.element_type, output.element_type) {
        return Err(s.element_types_differ(0, 1));
    }
    for i in 2..s.operands.len() {
        let offsets = s.array(i)?;
        if !offsets.element_type.is_integer() {
            return Err(s.element_type_error(i, offsets.element_type, "integer offsets and sizes and array"));
        }
        if !matches!(offsets.rank(), 1 | 2) {
            let message =
                format!("operand {i} of ragged-all-to-all must have 1 or 2 dimensions: {}", { array_text(offsets) });
            return Err(error(&codes::RANK, Part::Operand(i), message));
        }
        if !compatible(s.shape(2)?, s.shape(i)?) {
            return Err(s.dimensions_differ(2, i));
        }
    }
    Ok(Inferred::Like(s.shape(1)?))
}

/// With a dynamic root the last operand says for each other one which device it comes from or goes to.
fn data_operands(s: &Site<'_>, has_dynamic_root: bool) -> Result<usize, ShapeError> {
    if !has_dynamic_root {
        return Ok(s.operands.len());
    }
    let Some(count) = s.operands.len().checked_sub(1).filter(|&n| n > 0) else {
        return Err(s.operand_count_error("operands and their roots"));
    };
    let roots = s.array(count)?;
    if roots.element_type != ElementType::S32 || roots.dims() != [count as i64] {
        let message = format!("the roots of {} must be s32[{count}], but are {}", s.name(), array_text(roots));
        return Err(error(&codes::DIMENSIONS_DIFFER, Part::Operand(count), message));
    }
    Ok(count)
}

pub(super) fn collective_broadcast<'a>(s: &Site<'a>, has_dynamic_root: bool) -> Result1<'a> {
    operands(s, data_operands(s, has_dynamic_root)?)
}

pub(super) fn collective_reduce<'a>(s: &Site<'a>, reduce: &CollectiveReduce) -> Result1<'a> {
    check_reducer(s, reduce.to_apply)?;
    operands(s, data_operands(s, reduce.has_dynamic_root)?)
}

/// The form that copies slices in place takes source, target and their offsets, and gives the target.
fn in_place(s: &Site<'_>, permute: &CollectivePermute) -> Result<bool, ShapeError> {
    if permute.slice_sizes.is_empty() {
        return Ok(false);
    }
    s.expect_operands(4)?;
    let (source, target) = (s.shape(0)?, s.shape(1)?);
    let parts = |shape: &Shape| shape.as_tuple().map(<[Shape]>::len);
    if source.is_array() != target.is_array() || parts(source) != parts(target) {
        let message = format!("cannot copy slices of {} into {}", text(source), text(target));
        return Err(error(&codes::DIMENSIONS_DIFFER, Part::Operand(1), message));
    }
    for (array, offsets) in [(source, 2), (target, 3)] {
        let given = s.tuple(offsets)?;
        let fits = match array.as_tuple() {
            None => offsets_fit(array, s.shape(offsets)?),
            Some(arrays) => arrays.len() == given.len() && arrays.iter().zip(given).all(|(a, o)| offsets_fit(a, o)),
        };
        if !fits {
            let message = format!("{} are not offsets into {}", text(s.shape(offsets)?), text(array));
            return Err(error(&codes::DIMENSIONS_DIFFER, Part::Operand(offsets), message));
        }
    }
    Ok(true)
}

/// Offsets into an array: a tuple with one scalar for each dimension, or a tuple of such tuples.
fn offsets_fit(array: &Shape, offsets: &Shape) -> bool {
    let (Some(array), Some(offsets)) = (array.as_array(), offsets.as_tuple()) else { return false };
    if offsets.iter().all(Shape::is_tuple) && !offsets.is_empty() {
        return offsets.iter().all(|o| o.as_tuple().is_some_and(|o| o.len() == array.rank()));
    }
    offsets.len() == array.rank() && offsets.iter().all(Shape::is_array)
}

pub(super) fn collective_permute<'a>(s: &Site<'a>, permute: &CollectivePermute) -> Result1<'a> {
    match in_place(s, permute)? {
        true => Ok(Inferred::Like(s.shape(1)?)),
        false => operands(s, s.operands.len()),
    }
}

pub(super) fn collective_permute_start<'a>(s: &Site<'a>, permute: &CollectivePermute) -> Result1<'a> {
    let (input, output) = match in_place(s, permute)? {
        true => (Inferred::Like(s.shape(0)?), Inferred::Like(s.shape(1)?)),
        false => (operands(s, s.operands.len())?, operands(s, s.operands.len())?),
    };
    Ok(with_context(s, input, output))
}

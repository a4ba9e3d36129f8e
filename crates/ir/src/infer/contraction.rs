//! Products that sum over dimensions: dot, ragged-dot and scaled-dot.

use super::common::{Dims, Site, array_text, at_attribute, counted, error, higher_precision, same_size};
use super::{Result1, ShapeError};
use crate::attributes::DotDimensionNumbers;
use crate::diagnostic::Part;
use crate::diagnostic::codes::infer as codes;
use crate::element_type::ElementType;
use crate::op::RaggedDot;
use crate::shape::ArrayShape;
use smallvec::SmallVec;

/// For each dimension of an operand whether it is left after the dot.
type Free = SmallVec<[bool; 16]>;

/// Checks the dimension numbers of one side and finds the dimensions that are neither summed over nor batched.
fn free_dimensions(
    s: &Site<'_>,
    array: &ArrayShape,
    contracting: (&[i64], &'static str),
    batch: (&[i64], &'static str),
) -> Result<Free, ShapeError> {
    let mut free = Free::from_elem(true, array.rank());
    for (dims, attribute) in [contracting, batch] {
        for &d in dims {
            let index = s.dimension(d, array.rank(), attribute)?;
            if !std::mem::replace(&mut free[index], false) {
                let message = format!("dimension {d} of {} has two roles in {}", array_text(array), s.name());
                return Err(at_attribute(&codes::DIMENSION_NUMBERS, attribute, message));
            }
        }
    }
    Ok(free)
}

fn check_pairs(
    s: &Site<'_>,
    (lhs, lhs_dims): (&ArrayShape, &[i64]),
    (rhs, rhs_dims): (&ArrayShape, &[i64]),
    (kind, attribute): (&str, &'static str),
) -> Result<(), ShapeError> {
    if lhs_dims.len() != rhs_dims.len() {
        let message =
            format!("{} has {} {kind} dimensions on the left and {} on the right", s.name(), lhs_dims.len(), {
                rhs_dims.len()
            });
        return Err(at_attribute(&codes::DIMENSION_NUMBERS, attribute, message));
    }
    for (&l, &r) in lhs_dims.iter().zip(rhs_dims) {
        let (x, y) = (lhs.dims()[l as usize], rhs.dims()[r as usize]);
        if !same_size(x, y) {
            let message = format!(
                "{kind} dimension {l} of {} has size {x}, but dimension {r} of {} has size {y}",
                array_text(lhs),
                array_text(rhs)
            );
            return Err(error(&codes::DIMENSIONS_DIFFER, Part::Operand(1), message));
        }
    }
    Ok(())
}

/// Checks the dimension numbers and adds batch, left and right dimensions to `result`. Dimensions of the right that
/// `rhs_groups` lists are left out.
fn product(
    s: &Site<'_>,
    dims: &DotDimensionNumbers,
    rhs_groups: &[i64],
    mut result: Dims,
) -> Result<(Dims, ElementType), ShapeError> {
    let (lhs, rhs) = (s.array(0)?, s.array(1)?);
    let (lc, rc) = (&*dims.lhs_contracting, &*dims.rhs_contracting);
    let (lb, rb) = (&*dims.lhs_batch, &*dims.rhs_batch);
    let lhs_free = free_dimensions(s, lhs, (lc, "lhs_contracting_dims"), (lb, "lhs_batch_dims"))?;
    let mut rhs_free = free_dimensions(s, rhs, (rc, "rhs_contracting_dims"), (rb, "rhs_batch_dims"))?;
    check_pairs(s, (lhs, lc), (rhs, rc), ("contracting", "rhs_contracting_dims"))?;
    check_pairs(s, (lhs, lb), (rhs, rb), ("batch", "rhs_batch_dims"))?;
    for &d in rhs_groups {
        let index = s.dimension(d, rhs.rank(), "rhs_group_dims")?;
        if !std::mem::replace(&mut rhs_free[index], false) {
            let message = format!("dimension {d} of {} has two roles in {}", array_text(rhs), s.name());
            return Err(at_attribute(&codes::DIMENSION_NUMBERS, "rhs_group_dims", message));
        }
    }
    for &d in lb {
        result.push_from(lhs, d as usize);
    }
    for (array, free) in [(lhs, lhs_free), (rhs, rhs_free)] {
        for (d, _) in free.iter().enumerate().filter(|(_, free)| **free) {
            result.push_from(array, d);
        }
    }
    let natural = higher_precision(lhs.element_type, rhs.element_type);
    Ok((result, s.declared_element_type()?.unwrap_or(natural)))
}

pub(super) fn dot<'a>(s: &Site<'a>, dims: &DotDimensionNumbers) -> Result1<'a> {
    let (result, element_type) = product(s, dims, &[], Dims::default())?;
    Ok(result.inferred(element_type))
}

pub(super) fn scaled_dot<'a>(s: &Site<'a>, dims: &DotDimensionNumbers) -> Result1<'a> {
    for (operand, scale) in [(0, 2), (1, 3)] {
        let (array, scales) = (s.array(operand)?, s.array(scale)?);
        if scales.is_scalar() || is_no_scale(array, scales) {
            continue;
        }
        let divides = |(&size, &blocks): (&i64, &i64)| blocks > 0 && size.checked_rem(blocks) == Some(0);
        if scales.rank() != array.rank() || !array.dims().iter().zip(scales.dims()).all(divides) {
            let message =
                format!("the scales {} do not divide operand {operand}, {}", array_text(scales), array_text(array));
            return Err(error(&codes::DIMENSIONS_DIFFER, Part::Operand(scale), message));
        }
    }
    dot(s, dims)
}

/// A bf16 operand takes a single bf16 scale, which says that it is not scaled.
fn is_no_scale(array: &ArrayShape, scales: &ArrayShape) -> bool {
    array.element_type == ElementType::Bf16
        && scales.element_type == ElementType::Bf16
        && scales.dims().iter().all(|&d| d == 1)
}

pub(super) fn ragged_dot<'a>(s: &Site<'a>, dot: &RaggedDot) -> Result1<'a> {
    let (lhs, rhs, sizes) = (s.array(0)?, s.array(1)?, s.array(2)?);
    s.attribute_length("lhs_ragged_dims", dot.lhs_ragged.len(), 1)?;
    let ragged = dot.lhs_ragged.first().copied().unwrap_or_default();
    s.dimension(ragged, lhs.rank(), "lhs_ragged_dims")?;
    let is_batch = dot.dims.lhs_batch.contains(&ragged);
    let is_contracting = dot.dims.lhs_contracting.contains(&ragged);
    let groups = usize::from(!is_batch && !is_contracting);
    s.attribute_length("rhs_group_dims", dot.rhs_group.len(), groups)?;
    let Some(&group_count) = sizes.dims().last() else {
        let message = "the group sizes of ragged-dot must have a dimension".to_owned();
        return Err(error(&codes::RANK, Part::Operand(2), message));
    };
    let mut result = Dims::default();
    if is_contracting {
        result.push_from(sizes, sizes.rank() - 1);
    }
    let (result, element_type) = product(s, &dot.dims, &dot.rhs_group, result)?;
    check_group_sizes(s, dot, ragged)?;
    if let Some(&d) = dot.rhs_group.first() {
        let size = rhs.dims()[d as usize];
        if !same_size(size, group_count) {
            let message = format!(
                "ragged-dot has {} in {}, but dimension {d} of {} has size {size}",
                counted(usize::try_from(group_count).unwrap_or(0), "group"),
                array_text(sizes),
                array_text(rhs)
            );
            return Err(error(&codes::DIMENSIONS_DIFFER, Part::Operand(2), message));
        }
    }
    Ok(result.inferred(element_type))
}

/// Group sizes are one list for all, or one list for each place of the dimensions before the ragged one.
fn check_group_sizes(s: &Site<'_>, dot: &RaggedDot, ragged: i64) -> Result<(), ShapeError> {
    let (lhs, sizes) = (s.array(0)?, s.array(2)?);
    if sizes.rank() == 1 {
        return Ok(());
    }
    let before = |dims: &[i64]| dims.iter().copied().take_while(|&d| d != ragged).collect::<Vec<i64>>();
    let DotDimensionNumbers { lhs_contracting, lhs_batch, .. } = &dot.dims;
    let mut prefix = before(lhs_batch);
    if !lhs_batch.contains(&ragged) {
        let others: Vec<i64> = if lhs_contracting.contains(&ragged) {
            lhs_contracting.to_vec()
        } else {
            let free =
                free_dimensions(s, lhs, (lhs_contracting, "lhs_contracting_dims"), (lhs_batch, "lhs_batch_dims"))?;
            free.iter().enumerate().filter(|(_, free)| **free).map(|(d, _)| d as i64).collect()
        };
        prefix.extend(before(&others));
    }
    let wanted = prefix.iter().map(|&d| lhs.dims()[d as usize]);
    if sizes.rank() == prefix.len() + 1 && wanted.eq(sizes.dims()[..prefix.len()].iter().copied()) {
        return Ok(());
    }
    let message = format!("the group sizes {} do not fit the ragged dimension {ragged} of {}", array_text(sizes), {
        array_text(lhs)
    });
    Err(error(&codes::DIMENSIONS_DIFFER, Part::Operand(2), message))
}

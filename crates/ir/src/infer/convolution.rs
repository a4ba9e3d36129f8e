//! Convolution, and the windows it shares with reduce-window and select-and-scatter.

use super::common::{Dims, Site, array_text, at_attribute, error, higher_precision};
use super::{Result1, ShapeError};
use crate::attributes::{ConvDimensionNumbers, ConvolutionKind, Window, WindowDim};
use crate::diagnostic::Part;
use crate::diagnostic::codes::infer as codes;
use crate::layout::{DimVec, is_permutation};
use crate::op::Convolution;
use crate::shape::ArrayShape;
use smallvec::SmallVec;

/// How many places `window` takes along a dimension of `size`.
pub(super) fn window_count(s: &Site<'_>, d: usize, size: i64, window: &WindowDim) -> Result<i64, ShapeError> {
    check_window_dim(s, d, window)?;
    if size == ArrayShape::UNBOUNDED {
        return Ok(size);
    }
    let counted = (|| {
        let base = dilated(size, window.base_dilation)?;
        let padded = base.checked_add(window.padding_low)?.checked_add(window.padding_high)?;
        Some((padded, dilated(window.size, window.window_dilation)?))
    })();
    let (padded, covered) = counted.ok_or_else(|| s.overflow(d))?;
    if padded < 0 {
        let message = format!("padding takes more than there is of dimension {d}, which has size {size}");
        return Err(at_attribute(&codes::WINDOW, "window", message));
    }
    // Both are non-negative and the stride is at least 1.
    Ok(if padded == 0 || covered > padded { 0 } else { (padded - covered) / window.stride + 1 })
}

fn check_window_dim(s: &Site<'_>, d: usize, window: &WindowDim) -> Result<(), ShapeError> {
    let WindowDim { size, stride, window_dilation, base_dilation, .. } = *window;
    for (value, what) in
        [(size, "size"), (stride, "stride"), (window_dilation, "rhs_dilate"), (base_dilation, "lhs_dilate")]
    {
        if value < 1 {
            let message = format!("the window of {} has {what} {value} in dimension {d}", s.name());
            return Err(at_attribute(&codes::WINDOW, "window", message));
        }
    }
    Ok(())
}

/// The size of a dimension with `dilation - 1` holes between each two elements; `None` if it does not fit.
fn dilated(size: i64, dilation: i64) -> Option<i64> {
    match size {
        ..0 => None,
        0 => Some(0),
        _ => (size - 1).checked_mul(dilation)?.checked_add(1),
    }
}

/// The dimensions that a window makes of `base`, one for one.
pub(super) fn window_dims(s: &Site<'_>, base: &ArrayShape, window: &Window) -> Result<Dims, ShapeError> {
    s.attribute_length("window", window.dims.len(), base.rank())?;
    let mut dims = Dims::default();
    for (d, (window, &size)) in window.dims.iter().zip(base.dims()).enumerate() {
        dims.push(window_count(s, d, size, window)?, base.is_dynamic_dim(d));
    }
    Ok(dims)
}

/// The sizes that matter, by role.
struct Roles {
    batch: i64,
    features: i64,
    kernel_input: i64,
    kernel_output: i64,
}

pub(super) fn convolution<'a>(s: &Site<'a>, conv: &Convolution) -> Result1<'a> {
    let (lhs, rhs) = (s.array(0)?, s.array(1)?);
    check_operands(s, conv)?;
    check_numbers(s, conv, lhs, rhs)?;
    let dims = &conv.dims;
    let size = |a: &ArrayShape, d: i64| a.dims()[d as usize];
    let mut roles = Roles {
        batch: size(lhs, dims.input_batch),
        features: size(lhs, dims.input_feature),
        kernel_input: size(rhs, dims.kernel_input_feature),
        kernel_output: size(rhs, dims.kernel_output_feature),
    };
    if let Some(sparsity) = &conv.rhs_sparsity {
        if sparsity.num_non_zero != 1 {
            let message = format!("sparsity {}x{} is not of the form 1xN", sparsity.num_non_zero, sparsity.block_size);
            return Err(at_attribute(&codes::ATTRIBUTE_VALUE, "sparsity_config", message));
        }
        roles.kernel_input = roles.kernel_input.checked_mul(sparsity.block_size).ok_or_else(|| s.overflow(1))?;
    }
    check_groups(conv, &roles, lhs, rhs)?;
    let (sizes, dynamic) = match conv.kind {
        ConvolutionKind::Unset | ConvolutionKind::Fprop => forward(s, conv, &roles, lhs, rhs)?,
        ConvolutionKind::Dgrad => input_gradient(s, conv, &roles, lhs, rhs)?,
        ConvolutionKind::Wgrad => kernel_gradient(s, conv, &roles, lhs, rhs)?,
    };
    let natural = higher_precision(lhs.element_type, rhs.element_type);
    let mut result = Dims::default();
    for (&size, &dynamic) in sizes.iter().zip(&dynamic) {
        result.push(size, dynamic);
    }
    Ok(result.inferred(s.declared_element_type()?.unwrap_or(natural)))
}

fn check_operands(s: &Site<'_>, conv: &Convolution) -> Result<(), ShapeError> {
    let sparse = [&conv.lhs_sparsity, &conv.rhs_sparsity];
    let count = 2 + sparse.iter().filter(|x| x.is_some()).count();
    s.expect_operands(count)?;
    for sparsity in sparse.into_iter().flatten() {
        match usize::try_from(sparsity.idx).ok().filter(|i| (2..count).contains(i)) {
            Some(i) => s.array(i).map(|_| ())?,
            None => {
                let message = format!("sparsity_config names operand {}, which holds no indices", sparsity.idx);
                return Err(at_attribute(&codes::ATTRIBUTE_VALUE, "sparsity_config", message));
            }
        }
    }
    Ok(())
}

/// Checks that the dimension numbers give each dimension of all three arrays one role.
fn check_numbers(s: &Site<'_>, conv: &Convolution, lhs: &ArrayShape, rhs: &ArrayShape) -> Result<(), ShapeError> {
    let ConvDimensionNumbers { input_spatial, kernel_spatial, output_spatial, .. } = &conv.dims;
    let spatial = input_spatial.len();
    s.attribute_length("window", conv.window.dims.len(), spatial)?;
    for (i, array) in [(0, lhs), (1, rhs)] {
        if array.rank() != spatial + 2 {
            let message =
                format!("dim_labels name {} dimensions, but operand {i} is {}", spatial + 2, array_text(array));
            return Err(error(&codes::RANK, Part::Operand(i), message));
        }
    }
    let d = &conv.dims;
    for (first, second, spatial_dims) in [
        (d.input_batch, d.input_feature, input_spatial),
        (d.kernel_input_feature, d.kernel_output_feature, kernel_spatial),
        (d.output_batch, d.output_feature, output_spatial),
    ] {
        let all: DimVec = [first, second].into_iter().chain(spatial_dims.iter().copied()).collect();
        if !is_permutation(&all, spatial + 2) {
            let message = "dim_labels do not give each dimension one role".to_owned();
            return Err(at_attribute(&codes::DIMENSION_NUMBERS, "dim_labels", message));
        }
    }
    Ok(())
}

fn check_groups(conv: &Convolution, roles: &Roles, lhs: &ArrayShape, rhs: &ArrayShape) -> Result<(), ShapeError> {
    let (features, batches) = (conv.feature_group_count, conv.batch_group_count);
    let bad = |attribute, why: String| {
        let message = format!("{why} in a convolution of {} by {}", array_text(lhs), array_text(rhs));
        Err(at_attribute(&codes::GROUP_COUNT, attribute, message))
    };
    if features < 1 {
        return bad("feature_group_count", format!("there are {features} feature groups"));
    }
    if batches < 1 {
        return bad("batch_group_count", format!("there are {batches} batch groups"));
    }
    if features > 1 && batches > 1 {
        return bad("batch_group_count", "both features and batches are grouped".to_owned());
    }
    let divides = |n: i64, size: i64| size == ArrayShape::UNBOUNDED || size % n == 0;
    // The gradient of the kernel has its features elsewhere.
    if conv.kind != ConvolutionKind::Wgrad {
        if !divides(features, roles.kernel_output) {
            let why = format!("{features} feature groups do not divide {} output features", roles.kernel_output);
            return bad("feature_group_count", why);
        }
        if !divides(batches, roles.kernel_output) {
            let why = format!("{batches} batch groups do not divide {} output features", roles.kernel_output);
            return bad("batch_group_count", why);
        }
    }
    if !divides(batches, roles.batch) {
        return bad("batch_group_count", format!("{batches} batch groups do not divide a batch of {}", roles.batch));
    }
    let wanted = match conv.kind {
        ConvolutionKind::Wgrad => return Ok(()),
        ConvolutionKind::Dgrad => roles.kernel_output,
        _ => roles.kernel_input,
    };
    let unbounded = roles.features == ArrayShape::UNBOUNDED || wanted == ArrayShape::UNBOUNDED;
    if !unbounded && (roles.features % features != 0 || roles.features / features != wanted) {
        let why = format!(
            "the input has {} features in {features} groups, but the kernel takes {wanted} features",
            roles.features
        );
        return bad("feature_group_count", why);
    }
    Ok(())
}

type Sizes = (DimVec, SmallVec<[bool; 8]>);

fn empty_sizes(conv: &Convolution) -> Sizes {
    let rank = conv.dims.input_spatial.len() + 2;
    (DimVec::from_elem(0, rank), SmallVec::from_elem(false, rank))
}

fn check_kernel_window(s: &Site<'_>, conv: &Convolution, rhs: &ArrayShape) -> Result<(), ShapeError> {
    for (i, (window, &k)) in conv.window.dims.iter().zip(&conv.dims.kernel_spatial).enumerate() {
        check_window_dim(s, i, window)?;
        let size = rhs.dims()[k as usize];
        if size != window.size && size != ArrayShape::UNBOUNDED {
            let message = format!(
                "the window has size {} in dimension {i}, but the kernel {} has {size}",
                window.size,
                array_text(rhs)
            );
            return Err(at_attribute(&codes::WINDOW, "window", message));
        }
    }
    if rhs.is_dynamic_dim(conv.dims.kernel_output_feature as usize) {
        let message = format!("the output features of the kernel {} must be static", array_text(rhs));
        return Err(error(&codes::DYNAMIC_DIMENSION, Part::Operand(1), message));
    }
    Ok(())
}

/// Marks the result's dimensions that are dynamic because those of the operands are.
fn mark_dynamic(conv: &Convolution, lhs: &ArrayShape, rhs: &ArrayShape, dynamic: &mut [bool]) {
    let d = &conv.dims;
    dynamic[d.output_batch as usize] = lhs.is_dynamic_dim(d.input_batch as usize);
    for ((&i, &k), &o) in d.input_spatial.iter().zip(&d.kernel_spatial).zip(&d.output_spatial) {
        dynamic[o as usize] = lhs.is_dynamic_dim(i as usize) || rhs.is_dynamic_dim(k as usize);
    }
}

fn grouped(size: i64, groups: i64) -> i64 {
    if size == ArrayShape::UNBOUNDED { size } else { size / groups }
}

fn forward(
    s: &Site<'_>,
    conv: &Convolution,
    roles: &Roles,
    lhs: &ArrayShape,
    rhs: &ArrayShape,
) -> Result<Sizes, ShapeError> {
    check_kernel_window(s, conv, rhs)?;
    let (mut sizes, mut dynamic) = empty_sizes(conv);
    let d = &conv.dims;
    sizes[d.output_batch as usize] = grouped(roles.batch, conv.batch_group_count);
    sizes[d.output_feature as usize] = roles.kernel_output;
    for (i, window) in conv.window.dims.iter().enumerate() {
        let size = lhs.dims()[d.input_spatial[i] as usize];
        sizes[d.output_spatial[i] as usize] = window_count(s, i, size, window)?;
    }
    mark_dynamic(conv, lhs, rhs, &mut dynamic);
    Ok((sizes, dynamic))
}

/// `conv_kind=dgrad`: the operands are the gradient of the output and the kernel.
fn input_gradient(
    s: &Site<'_>,
    conv: &Convolution,
    roles: &Roles,
    lhs: &ArrayShape,
    rhs: &ArrayShape,
) -> Result<Sizes, ShapeError> {
    check_kernel_window(s, conv, rhs)?;
    let (mut sizes, mut dynamic) = empty_sizes(conv);
    let d = &conv.dims;
    sizes[d.output_batch as usize] = grouped(roles.batch, conv.batch_group_count);
    sizes[d.output_feature as usize] = roles.kernel_input;
    for (i, w) in conv.window.dims.iter().enumerate() {
        let size = lhs.dims()[d.input_spatial[i] as usize];
        let made = if size == ArrayShape::UNBOUNDED {
            size
        } else {
            let spread = |n: i64, by: i64| n.checked_sub(1)?.checked_mul(by)?.checked_add(1);
            (|| {
                let last = spread(size, w.base_dilation)?.checked_sub(1)?.checked_mul(w.stride)?;
                let covered = last.checked_add(spread(w.size, w.window_dilation)?)?;
                covered.checked_sub(w.padding_low)?.checked_sub(w.padding_high)
            })()
            .filter(|&n| n >= 0)
            .ok_or_else(|| s.overflow(i))?
        };
        sizes[d.output_spatial[i] as usize] = made;
    }
    mark_dynamic(conv, lhs, rhs, &mut dynamic);
    Ok((sizes, dynamic))
}

/// `conv_kind=wgrad`: the operands are the input and the gradient of the output; the result has the kernel's form.
fn kernel_gradient(
    s: &Site<'_>,
    conv: &Convolution,
    roles: &Roles,
    lhs: &ArrayShape,
    rhs: &ArrayShape,
) -> Result<Sizes, ShapeError> {
    let d = &conv.dims;
    let gradient_batch = rhs.dims()[d.output_batch as usize];
    if roles.batch != gradient_batch {
        let message = format!(
            "the input {} has a batch of {}, but the gradient {} one of {gradient_batch}",
            array_text(lhs),
            roles.batch,
            array_text(rhs)
        );
        return Err(error(&codes::DIMENSIONS_DIFFER, Part::Operand(1), message));
    }
    let (mut sizes, dynamic) = empty_sizes(conv);
    sizes[d.kernel_output_feature as usize] = rhs.dims()[d.output_feature as usize];
    sizes[d.kernel_input_feature as usize] = grouped(roles.features, conv.feature_group_count);
    for (i, window) in conv.window.dims.iter().enumerate() {
        check_window_dim(s, i, window)?;
        sizes[d.kernel_spatial[i] as usize] = window.size;
    }
    Ok((sizes, dynamic))
}

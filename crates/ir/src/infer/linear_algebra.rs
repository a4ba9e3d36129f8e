//! Fourier transforms, triangular systems and batch normalisation.

use super::common::{Dims, Site, array_text, at_attribute, error, same_size, same_type_or_floats};
use super::{Inferred, Result1, ShapeError};
use crate::attributes::FftType;
use crate::diagnostic::Part;
use crate::diagnostic::codes::infer as codes;
use crate::element_type::ElementType;
use crate::op::Op;
use crate::shape::ArrayShape;

pub(super) fn fft<'a>(s: &Site<'a>, kind: FftType, length: &[i64]) -> Result1<'a> {
    let operand = s.array(0)?;
    let t = operand.element_type;
    let accepted = match kind {
        FftType::Rfft => t.complex().is_some(),
        FftType::Fft | FftType::Ifft | FftType::Irfft => t.is_complex(),
    };
    if !accepted {
        return Err(s.element_type_error(0, t, if kind == FftType::Rfft { "f32 or f64" } else { "complex" }));
    }
    if !(1..=3).contains(&length.len()) {
        let message = format!("fft_length must have 1, 2 or 3 entries, but has {}", length.len());
        return Err(at_attribute(&codes::ATTRIBUTE_LENGTH, "fft_length", message));
    }
    let Some(outer) = operand.rank().checked_sub(length.len()) else {
        let message = format!("fft_length has {} entries, but the operand is {}", length.len(), array_text(operand));
        return Err(error(&codes::RANK, Part::Operand(0), message));
    };
    if let Some(&negative) = length.iter().find(|&&n| n < 0) {
        let message = format!("fft_length must not be negative, but has {negative}");
        return Err(at_attribute(&codes::ATTRIBUTE_VALUE, "fft_length", message));
    }
    let last = length.last().copied().unwrap_or_default();
    // The half of a real transform that holds everything.
    let half = last / 2 + i64::from(last > 0);
    // A complex transform is as long as its dimensions, whatever fft_length says: so it is in XLA.
    let checked = matches!(kind, FftType::Rfft | FftType::Irfft);
    for (i, &n) in length.iter().enumerate().filter(|_| checked) {
        let d = outer + i;
        let is_last = i + 1 == length.len();
        let wanted = if kind == FftType::Irfft && is_last { half } else { n };
        if !same_size(operand.dims()[d], wanted) {
            let message = format!(
                "{kind} of length {n} needs size {wanted} in dimension {d}, but the operand is {}",
                array_text(operand)
            );
            return Err(at_attribute(&codes::DIMENSIONS_DIFFER, "fft_length", message));
        }
    }
    let d = operand.rank() - 1;
    let dynamic = operand.is_dynamic_dim(d) && operand.dims()[d] != ArrayShape::UNBOUNDED;
    let mut dims = Dims::of(operand);
    match (kind, t.complex()) {
        (FftType::Rfft, Some(complex)) => {
            dims.set(d, half, dynamic);
            Ok(dims.inferred(complex))
        }
        (FftType::Irfft, _) => {
            dims.set(d, last, dynamic);
            Ok(dims.inferred(t.component()))
        }
        _ => Ok(Inferred::Like(s.shape(0)?)),
    }
}

/// Checks that operand `i` is a batch of square matrices of floating-point or complex numbers; returns their size.
fn square<'a>(s: &Site<'a>, i: usize) -> Result<(&'a ArrayShape, i64), ShapeError> {
    let array = s.array(i)?;
    let t = array.element_type;
    if !t.is_float() && !t.is_complex() {
        return Err(s.element_type_error(i, t, "floating-point or complex"));
    }
    match array.dims() {
        [.., rows, columns] if same_size(*rows, *columns) => Ok((array, *columns)),
        _ => {
            let message = format!("operand {i} of {} must be square, but is {}", s.name(), array_text(array));
            Err(error(&codes::RANK, Part::Operand(i), message))
        }
    }
}

pub(super) fn cholesky<'a>(s: &Site<'a>) -> Result1<'a> {
    square(s, 0)?;
    Ok(Inferred::Like(s.shape(0)?))
}

pub(super) fn triangular_solve<'a>(s: &Site<'a>, left_side: bool) -> Result1<'a> {
    let ((a, n), b) = (square(s, 0)?, s.array(1)?);
    if !s.same_type()(a.element_type, b.element_type) {
        return Err(s.element_types_differ(0, 1));
    }
    let fits = match (a.dims(), b.dims()) {
        ([a_batch @ .., _, _], [b_batch @ .., rows, columns]) => {
            let shared = if left_side { *rows } else { *columns };
            same_size(n, shared)
                && a_batch.len() == b_batch.len()
                && a_batch.iter().zip(b_batch).all(|(&x, &y)| same_size(x, y))
        }
        _ => false,
    };
    if !fits {
        let side = if left_side { "left" } else { "right" };
        let message = format!("{} cannot stand on the {side} of {} in triangular-solve", array_text(a), array_text(b));
        return Err(error(&codes::DIMENSIONS_DIFFER, Part::Operand(1), message));
    }
    Ok(Inferred::Like(s.shape(1)?))
}

/// Training takes (operand, scale, offset), inference these and (mean, variance), grad (operand, scale, mean, variance,
/// gradient of the output).
pub(super) fn batch_norm<'a>(s: &Site<'a>, feature_index: i64) -> Result1<'a> {
    let operand = s.array(0)?;
    let d = s.dimension(feature_index, operand.rank(), "feature_index")?;
    if !operand.element_type.is_float() {
        return Err(s.element_type_error(0, operand.element_type, "floating-point"));
    }
    let features = operand.dims()[d];
    let is_grad = matches!(s.op, Op::BatchNormGrad { .. });
    for i in 1..s.operands.len() {
        let array = s.array(i)?;
        if !same_type_or_floats(operand.element_type, array.element_type) {
            return Err(s.element_types_differ(0, i));
        }
        if is_grad && i == 4 {
            if !super::common::same_dims(operand, array) {
                return Err(s.dimensions_differ(0, i));
            }
        } else if array.rank() != 1 || !same_size(array.dims()[0], features) {
            let message = format!(
                "operand {i} of {} must have one dimension of size {features}, but is {}",
                s.name(),
                array_text(array)
            );
            return Err(error(&codes::DIMENSIONS_DIFFER, Part::Operand(i), message));
        }
    }
    let per_feature = |t: ElementType| {
        let mut dims = Dims::default();
        dims.push_from(operand, d);
        dims.inferred(t)
    };
    let t = operand.element_type;
    Ok(match s.op {
        Op::BatchNormInference { .. } => Inferred::Like(s.shape(0)?),
        _ => Inferred::Tuple(vec![Inferred::Like(s.shape(0)?), per_feature(t), per_feature(t)]),
    })
}

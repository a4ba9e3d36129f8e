//! Comparison, selection and clamping.

use super::element::{Element, Read, Total, TotalOrder, types, with_type};
use super::float_functions::Float;
use super::kernel::{Kernel2, Kernel3, by_width, expanded, kernel2, kernel3, same_sizes};
use hloom_ir::attributes::{ComparisonDirection, ComparisonType};
use hloom_ir::element_type::ElementType;
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};

/// A comparison of elements of a type; `None` if they have no such order.
///
/// Only the total order of floats has to be asked for; signed and unsigned integers compare by their type.
pub(super) fn compare(
    direction: ComparisonDirection,
    kind: Option<ComparisonType>,
    from: ElementType,
) -> Option<Kernel2> {
    if from.is_float() && kind == Some(ComparisonType::TotalOrder) {
        return with_type!(float from, T => total::<T>(direction), None);
    }
    match from {
        ElementType::C64 => equality::<types::C64>(direction),
        ElementType::C128 => equality::<types::C128>(direction),
        ElementType::Pred => Some(ordered::<types::Pred>(direction)),
        _ => with_type!(float from, T => Some(ordered::<T>(direction)),
            with_type!(integer from, T => Some(ordered::<T>(direction)), None)),
    }
}

/// NaN is not equal to anything, and neither less nor greater.
fn ordered<E: Read<Value: PartialOrd>>(direction: ComparisonDirection) -> Kernel2 {
    match direction {
        ComparisonDirection::Eq => kernel2!(fast E => types::Pred, |x, y| x == y),
        ComparisonDirection::Ne => kernel2!(fast E => types::Pred, |x, y| x != y),
        ComparisonDirection::Ge => kernel2!(fast E => types::Pred, |x, y| x >= y),
        ComparisonDirection::Gt => kernel2!(fast E => types::Pred, |x, y| x > y),
        ComparisonDirection::Le => kernel2!(fast E => types::Pred, |x, y| x <= y),
        ComparisonDirection::Lt => kernel2!(fast E => types::Pred, |x, y| x < y),
    }
}

fn total<E: TotalOrder>(direction: ComparisonDirection) -> Option<Kernel2> {
    Some(ordered::<Total<E>>(direction))
}

fn equality<E: Read<Value: PartialEq>>(direction: ComparisonDirection) -> Option<Kernel2> {
    match direction {
        ComparisonDirection::Eq => Some(kernel2!(fast E => types::Pred, |x, y| x == y)),
        ComparisonDirection::Ne => Some(kernel2!(fast E => types::Pred, |x, y| x != y)),
        _ => None,
    }
}

/// The second between the first and the third, and the third where those are in the wrong order; NaN if any is.
pub(super) fn clamp(from: ElementType) -> Option<Kernel3> {
    match from {
        ElementType::Pred => Some(integer_clamp::<types::Pred>()),
        _ => with_type!(float from, T => Some(float_clamp::<T>()),
            with_type!(integer from, T => Some(integer_clamp::<T>()), None)),
    }
}

fn integer_clamp<E: Element<Value: Ord>>() -> Kernel3 {
    kernel3!(E, |low, x, high| low.max(x).min(high))
}

fn float_clamp<E: Element<Value: Float>>() -> Kernel3 {
    kernel3!(E, |low, x, high| low.maximum(x).minimum(high))
}

/// Of two values the one that a scalar says, or of two arrays the elements that an array says.
pub(super) fn select(which: Array, on_true: Value, on_false: Value) -> Result<Value, ExecutionError> {
    if which.rank() == 0 {
        return Ok(if which.to_i64()? != 0 { on_true } else { on_false });
    }
    let (mut on_true, on_false) = (on_true.into_array()?, on_false.into_array()?);
    by_width!(on_true.element_type(), T => {
        on_true = expanded::<T>(on_true, which.dims())?;
        let mut on_false = expanded::<T>(on_false, which.dims())?;
        same_sizes(&which, &on_true)?;
        same_sizes(&on_true, &on_false)?;
        // Whichever array nobody else holds takes the result.
        if on_true.is_unshared() || !on_false.is_unshared() {
            let others = on_false.elements::<T>().iter().zip(which.elements::<u8>());
            for (x, (&y, &p)) in on_true.elements_mut::<T>().iter_mut().zip(others) {
                *x = if p != 0 { *x } else { y };
            }
            Ok(Value::Array(on_true))
        } else {
            let others = on_true.elements::<T>().iter().zip(which.elements::<u8>());
            for (y, (&x, &p)) in on_false.elements_mut::<T>().iter_mut().zip(others) {
                *y = if p != 0 { x } else { *y };
            }
            Ok(Value::Array(on_false))
        }
    })
}

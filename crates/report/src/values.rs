//! Where two sets of results disagree, and by how much.
//!
//! Integers and predicates must be equal. Floats may differ by rounding: the largest difference in an array is held
//! against the largest number in it, and against what sums in another order are known to make for the type. Infinities
//! and NaNs must be in the same places.

use hloom_eval::ops::elementwise::convert;
use hloom_ir::element_type::ElementType;
use hloom_value::{Array, Value};

/// The worst difference of two sets of results.
#[derive(Clone, PartialEq, Debug)]
pub struct Disagreement {
    /// The device whose results they are.
    pub device: usize,
    /// Which leaf of its result.
    pub leaf: usize,
    /// The index of the worst element; empty for a scalar, and where the arrays have no elements to compare.
    pub index: Vec<i64>,
    /// That element in the first.
    pub left: f64,
    /// That element in the second.
    pub right: f64,
    /// The difference as a part of the largest number of the array; infinite where one is a number and the other is
    /// not, or where the arrays are of different shapes.
    pub error: f64,
    /// How many elements of that leaf differ by more than may be.
    pub count: usize,
    /// How many elements that leaf has.
    pub elements: usize,
}

/// How much of the largest number of an array a difference may be, for results that are made in another order.
pub fn tolerance(element_type: ElementType) -> f64 {
    match element_type {
        ElementType::F64 | ElementType::C128 => 1e-9,
        ElementType::F32 | ElementType::C64 => 1e-3,
        ElementType::F16 => 2e-2,
        ElementType::Bf16 => 6e-2,
        t if t.is_small_float() => 0.3,
        _ => 0.0,
    }
}

/// The worst disagreement of the results of two runs, device by device and leaf by leaf; `None` if they agree. With
/// `least` nothing smaller than that counts, where it is more than the type's own tolerance.
pub fn disagreement(a: &[Value], b: &[Value], least: f64) -> Option<Disagreement> {
    let mut worst: Option<Disagreement> = None;
    let mut add = |found: Option<Disagreement>| {
        if let Some(found) = found
            && worst.as_ref().is_none_or(|w| found.error > w.error)
        {
            worst = Some(found);
        }
    };
    for device in 0..a.len().max(b.len()) {
        let (Some(x), Some(y)) = (a.get(device), b.get(device)) else {
            add(Some(misfit(device, 0)));
            continue;
        };
        let (x, y) = (x.leaves(), y.leaves());
        if x.len() != y.len() {
            add(Some(misfit(device, x.len().min(y.len()))));
        }
        for (leaf, (x, y)) in x.into_iter().zip(y).enumerate() {
            if let (Value::Array(x), Value::Array(y)) = (x, y) {
                add(arrays(x, y, least).map(|d| Disagreement { device, leaf, ..d }));
            }
        }
    }
    worst
}

/// The first leaf that disagrees, instead of the worst.
pub fn first_disagreement(a: &[Value], b: &[Value]) -> Option<Disagreement> {
    for (device, (x, y)) in a.iter().zip(b).enumerate() {
        for (leaf, (x, y)) in x.leaves().into_iter().zip(y.leaves()).enumerate() {
            if let (Value::Array(x), Value::Array(y)) = (x, y)
                && let Some(found) = arrays(x, y, 0.0)
            {
                return Some(Disagreement { device, leaf, ..found });
            }
        }
    }
    None
}

fn misfit(device: usize, leaf: usize) -> Disagreement {
    let nan = f64::NAN;
    Disagreement { device, leaf, index: vec![], left: nan, right: nan, error: f64::INFINITY, count: 1, elements: 1 }
}

/// How two arrays disagree; `None` if they agree.
pub fn arrays(a: &Array, b: &Array, least: f64) -> Option<Disagreement> {
    if a.element_type() != b.element_type() || a.dims() != b.dims() {
        return Some(misfit(0, 0));
    }
    if a.bytes() == b.bytes() {
        return None;
    }
    let element_type = a.element_type();
    let (x, y) = (numbers(a)?, numbers(b)?);
    let per_element = (x.len() / a.len().max(1)).max(1);
    let exact = !element_type.is_float() && !element_type.is_complex();
    let scale = x.iter().chain(&y).filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    let limit = tolerance(element_type).max(least);
    let mut worst: Option<(f64, usize)> = None;
    let mut count = 0;
    for (n, (&p, &q)) in x.iter().zip(&y).enumerate() {
        let error = match () {
            _ if p == q || p.is_nan() && q.is_nan() => continue,
            _ if !p.is_finite() || !q.is_finite() => f64::INFINITY,
            _ => (p - q).abs() / scale,
        };
        if !exact && error <= limit {
            continue;
        }
        count += 1;
        if worst.is_none_or(|w| error > w.0) {
            worst = Some((error, n));
        }
    }
    let (error, at) = match (worst, exact) {
        (Some(worst), _) => worst,
        // Large integers that are the same as doubles are still not equal.
        (None, true) => (f64::MIN_POSITIVE, 0),
        (None, false) => return None,
    };
    let index = unflatten(at / per_element, a.dims());
    Some(Disagreement { device: 0, leaf: 0, index, left: x[at], right: y[at], error, count, elements: a.len() })
}

fn numbers(array: &Array) -> Option<Vec<f64>> {
    let wide = if array.element_type().is_complex() { ElementType::C128 } else { ElementType::F64 };
    let converted = convert(array.clone(), wide).ok()?;
    Some(converted.bytes().as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect())
}

/// The index of the element that comes `n`th in row-major order.
pub(crate) fn unflatten(n: usize, dims: &[i64]) -> Vec<i64> {
    let mut rest = n as i64;
    let mut index: Vec<i64> = Vec::with_capacity(dims.len());
    for &d in dims.iter().rev() {
        index.push(rest % d.max(1));
        rest /= d.max(1);
    }
    index.reverse();
    index
}

impl std::fmt::Display for Disagreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "d{}.o{}", self.device, self.leaf)?;
        if !self.index.is_empty() {
            write!(f, "{:?}", self.index)?;
        }
        if self.left.is_nan() && self.right.is_nan() {
            return write!(f, ": results of different shapes");
        }
        write!(f, ": {} against {} ({} of {} elements differ)", self.left, self.right, self.count, self.elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(elements: &[f32]) -> Value {
        Value::Array(Array::new(&[elements.len() as i64], elements).expect("as many elements as the shape has"))
    }

    #[test]
    fn rounding_is_no_disagreement() {
        assert_eq!(disagreement(&[floats(&[1.0, 1000.0])], &[floats(&[1.1, 1000.0])], 0.0), None);
        assert_eq!(disagreement(&[floats(&[f32::NAN])], &[floats(&[f32::NAN])], 0.0), None);
    }

    #[test]
    fn the_worst_element_is_named() {
        let found = disagreement(&[floats(&[1.0, 2.0, 3.0])], &[floats(&[1.0, 2.5, 6.0])], 0.0).expect("they differ");
        assert_eq!((found.index.as_slice(), found.left, found.right, found.count), (&[2][..], 3.0, 6.0, 2));
        assert_eq!(found.to_string(), "d0.o0[2]: 3 against 6 (2 of 3 elements differ)");
        let found = disagreement(&[floats(&[1.0, f32::NAN])], &[floats(&[1.0, 2.0])], 0.0).expect("they differ");
        assert!(found.error.is_infinite(), "{found:?}");
    }

    #[test]
    fn integers_must_be_equal() {
        let integers = |x: i64| [Value::Array(Array::new(&[], &[x]).expect("one element"))];
        assert!(disagreement(&integers(1 << 60), &integers((1 << 60) + 1), 0.0).is_some());
        assert!(disagreement(&integers(7), &integers(7), 0.0).is_none());
    }

    #[test]
    fn different_shapes_disagree() {
        assert!(disagreement(&[floats(&[1.0])], &[floats(&[1.0, 2.0])], 0.0).is_some());
        assert!(disagreement(&[floats(&[1.0])], &[], 0.0).is_some());
    }
}

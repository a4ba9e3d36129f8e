//! Reductions over the arrays of several devices, by address: what collectives do with elements.
//!
//! Devices are combined one after another in the order that is given, so every engine and every transport gets the same
//! bits. f16 and bf16 are carried in f32 and rounded once, at the end.

#![allow(unsafe_code, reason = "the arrays of other devices are known by their addresses")]

use crate::ops::elementwise::{binary_function, convert_function};
use crate::scalar::{Function1, Function2, Scalar};
use half::{bf16, f16};
use hloom_comm::Reducer;
use hloom_ir::element_type::ElementType;
use hloom_ir::op::BinaryOp;

/// One operation on elements of one type.
struct ElementReducer {
    op: BinaryOp,
    element_type: ElementType,
    widen: Function1,
    combine: Function2,
    narrow: Function1,
}

/// The reduction of elements of a type by an operation; `None` if there is no such operation on them.
pub fn reducer(op: BinaryOp, element_type: ElementType) -> Option<Box<dyn Reducer>> {
    let carried = carried(element_type);
    Some(Box::new(ElementReducer {
        op,
        element_type,
        widen: convert_function(element_type, carried)?,
        combine: binary_function(op, carried)?,
        narrow: convert_function(carried, element_type)?,
    }))
}

/// The type in which elements are reduced.
fn carried(t: ElementType) -> ElementType {
    if matches!(t, ElementType::F16 | ElementType::Bf16) { ElementType::F32 } else { t }
}

impl std::fmt::Debug for ElementReducer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {}", self.op, self.element_type)
    }
}

impl Reducer for ElementReducer {
    fn element_bytes(&self) -> usize {
        self.element_type.bytes()
    }

    fn is_exact(&self) -> bool {
        use BinaryOp::{Add, And, Maximum, Minimum, Multiply, Or, Xor};
        let whole = self.element_type.is_integer() || self.element_type == ElementType::Pred;
        whole && matches!(self.op, Add | Multiply | And | Or | Xor | Maximum | Minimum)
    }

    unsafe fn reduce(&self, from: &[usize], to: &[usize], count: usize) {
        use ElementType::{Bf16, F16, F32, F64, S32, S64, U32, U64};
        // SAFETY (all): the caller's promise.
        unsafe {
            match (self.op, self.element_type) {
                (BinaryOp::Add, F32) => sum(from, to, count, |x: f32| x, |a, b| a + b, |x| x),
                (BinaryOp::Add, F64) => sum(from, to, count, |x: f64| x, |a, b| a + b, |x| x),
                (BinaryOp::Add, Bf16) => sum(from, to, count, bf16::to_f32, |a, b| a + b, bf16::from_f32),
                (BinaryOp::Add, F16) => sum(from, to, count, f16::to_f32, |a, b| a + b, f16::from_f32),
                // Sums that wrap round are the same with and without a sign.
                (BinaryOp::Add, S32 | U32) => sum(from, to, count, |x: u32| x, u32::wrapping_add, |x| x),
                (BinaryOp::Add, S64 | U64) => sum(from, to, count, |x: u64| x, u64::wrapping_add, |x| x),
                _ => self.each(from, to, count),
            }
        }
    }
}

impl ElementReducer {
    /// The rarer operations and types, one element after another.
    ///
    /// # Safety
    /// As for [`Reducer::reduce`].
    unsafe fn each(&self, from: &[usize], to: &[usize], count: usize) {
        let bytes = self.element_type.bytes();
        for n in 0..count {
            let load = |&address: &usize| {
                let mut wide = [0; 16];
                // SAFETY: the caller's promise.
                let element = unsafe { std::slice::from_raw_parts((address + n * bytes) as *const u8, bytes) };
                wide[..bytes].copy_from_slice(element);
                (self.widen)(Scalar(u128::from_le_bytes(wide)))
            };
            let Some(reduced) = from.iter().map(load).reduce(self.combine) else { return };
            for &address in to {
                // SAFETY: the caller's promise.
                let element = unsafe { std::slice::from_raw_parts_mut((address + n * bytes) as *mut u8, bytes) };
                (self.narrow)(reduced).store(element);
            }
        }
    }
}

/// Elements that are summed up before they are written: they stay in registers.
const AT_ONCE: usize = 32;

/// # Safety
/// As for [`Reducer::reduce`].
unsafe fn sum<T: Copy, C: Copy>(
    from: &[usize],
    to: &[usize],
    count: usize,
    load: impl Fn(T) -> C,
    add: impl Fn(C, C) -> C,
    store: impl Fn(C) -> T,
) {
    let Some((&first, others)) = from.split_first() else { return };
    let whole = count - count % AT_ONCE;
    for n in (0..whole).step_by(AT_ONCE) {
        // SAFETY: the caller's promise: so many elements lie there.
        let elements = |address: usize| unsafe { (address as *const [T; AT_ONCE]).byte_add(n * size_of::<T>()).read() };
        let mut sums = elements(first).map(&load);
        for &address in others {
            let more = elements(address);
            sums.iter_mut().zip(more).for_each(|(sum, x)| *sum = add(*sum, load(x)));
        }
        let results = sums.map(&store);
        for &address in to {
            // SAFETY: as above; the operands' elements have been read.
            unsafe { (address as *mut [T; AT_ONCE]).byte_add(n * size_of::<T>()).write(results) };
        }
    }
    for n in whole..count {
        // SAFETY: as above.
        let element = |address: usize| load(unsafe { (address as *const T).add(n).read() });
        let sum = others.iter().fold(element(first), |sum, &address| add(sum, element(address)));
        // SAFETY: as above.
        to.iter().for_each(|&address| unsafe { (address as *mut T).add(n).write(store(sum)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::elementwise;
    use hloom_value::Array;

    /// Three arrays of small numbers of a type.
    fn arrays(t: ElementType, count: usize) -> Vec<Array> {
        let numbers =
            |d: usize| (0..count).map(|n| ((n * 7 + d * 3) % 11) as f32 / 4.0 + 0.3 * d as f32).collect::<Vec<_>>();
        let array = |d: usize| Array::new(&[count as i64], &numbers(d)).unwrap();
        (0..3).map(|d| elementwise::convert(array(d), t).unwrap()).collect()
    }

    #[test]
    fn every_type_is_reduced_as_by_elementwise_operations() {
        use ElementType::{Bf16, C64, F8e4m3fn, F16, F32, F64, Pred, S8, S32, S64, U4, U16, U32, U64};
        for t in [Pred, S8, S32, S64, U4, U16, U32, U64, F8e4m3fn, Bf16, F16, F32, F64, C64] {
            for op in [BinaryOp::Add, BinaryOp::Multiply, BinaryOp::Maximum, BinaryOp::Minimum, BinaryOp::And] {
                let Some(reducer) = reducer(op, t) else { continue };
                let arrays = arrays(t, 2500);
                let wide = |a: &Array| elementwise::convert(a.clone(), carried(t)).unwrap();
                let mut expected = wide(&arrays[0]);
                for array in &arrays[1..] {
                    expected = elementwise::binary(op, expected, wide(array), carried(t)).unwrap();
                }
                let expected = elementwise::convert(expected, t).unwrap();
                let mut result = Array::zeroed(t, &[2500]).unwrap();
                let from: Vec<usize> = arrays.iter().map(|a| a.bytes().as_ptr() as usize).collect();
                let to = result.bytes_mut().as_mut_ptr() as usize;
                // SAFETY: 2500 elements are at each address.
                unsafe { reducer.reduce(&from, &[to], 2500) };
                assert_eq!(result.bytes(), expected.bytes(), "{reducer:?}");
            }
        }
        assert!(reducer(BinaryOp::And, F32).is_none());
    }

    #[test]
    fn only_whole_numbers_may_be_reduced_in_any_order() {
        let exact = |op, t| reducer(op, t).unwrap().is_exact();
        assert!(exact(BinaryOp::Add, ElementType::S32) && exact(BinaryOp::And, ElementType::Pred));
        assert!(!exact(BinaryOp::Add, ElementType::F32) && !exact(BinaryOp::Maximum, ElementType::Bf16));
        assert!(!exact(BinaryOp::Subtract, ElementType::S32));
    }
}

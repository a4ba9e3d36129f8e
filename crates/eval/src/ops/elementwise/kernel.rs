//! Functions of elements, applied to whole arrays.
//!
//! A kernel is one function in two forms: on single elements, as [`crate::scalar`] programs call it, and on arrays.
//! Cheap functions are compiled into a loop of their own (`fast`), which the compiler can vectorise; for the others, whose
//! own cost is greater than that of a call, the loop calls the form on single elements. Both forms come from one
//! expression ([`kernel1`], [`kernel2`], [`kernel3`]), so they cannot differ.
//!
//! Arrays are changed in place where nobody else holds them and the result's elements have the same size.

use super::element::{Element, Read, Storage};
use crate::scalar::{Function1, Function2, Function3};
use hloom_ir::element_type::ElementType;
use hloom_value::Array;
use hloom_value::ExecutionError;

/// A function of whole arrays, compiled into a loop of its own.
pub(super) type Loop1 = fn(Array) -> Result<Array, ExecutionError>;
/// The same of two arrays.
pub(super) type Loop2 = fn(Array, Array) -> Result<Array, ExecutionError>;
/// The same of three arrays.
pub(super) type Loop3 = fn(Array, Array, Array) -> Result<Array, ExecutionError>;

/// A function of one element.
#[derive(Clone, Copy)]
pub(super) struct Kernel1 {
    pub(super) result: ElementType,
    pub(super) scalar: Function1,
    pub(super) fast: Option<Loop1>,
}

/// A function of two elements.
#[derive(Clone, Copy)]
pub(super) struct Kernel2 {
    pub(super) result: ElementType,
    pub(super) scalar: Function2,
    pub(super) fast: Option<Loop2>,
}

/// A function of three elements of one type.
#[derive(Clone, Copy)]
pub(super) struct Kernel3 {
    pub(super) scalar: Function3,
    pub(super) array: Loop3,
}

/// Evaluates `$body` with `$T` standing for the storage of the element type `$type`.
macro_rules! by_width {
    ($type:expr, $T:ident => $body:expr) => {
        match $type.bytes() {
            1 => {
                type $T = u8;
                $body
            }
            2 => {
                type $T = u16;
                $body
            }
            4 => {
                type $T = u32;
                $body
            }
            8 => {
                type $T = u64;
                $body
            }
            _ => {
                type $T = u128;
                $body
            }
        }
    };
}
pub(super) use by_width;

/// `kernel1!(fast A => R, |x| …)`: the kernel of a function from values of `A` to values of `R`.
macro_rules! kernel1 {
    (fast $A:ty => $R:ty, |$x:ident| $f:expr) => {
        Kernel1 {
            fast: if <$A as Read>::FAST { Some(|a| crate::ops::elementwise::kernel::map1::<$A, $R>(a, |$x| $f)) } else { None },
            ..kernel1!($A => $R, |$x| $f)
        }
    };
    ($A:ty => $R:ty, |$x:ident| $f:expr) => {
        Kernel1 {
            result: <$R as Element>::TYPE,
            scalar: |s| {
                let $x = <$A as Read>::from_scalar(s);
                <$R as Element>::to_scalar($f)
            },
            fast: None,
        }
    };
}
/// `kernel2!(fast A => R, |x, y| …)`: the kernel of a function from two values of `A` to values of `R`.
macro_rules! kernel2 {
    (fast $A:ty => $R:ty, |$x:ident, $y:ident| $f:expr) => {
        Kernel2 {
            fast: if <$A as Read>::FAST { Some(|a, b| crate::ops::elementwise::kernel::map2::<$A, $R>(a, b, |$x, $y| $f)) } else { None },
            ..kernel2!($A => $R, |$x, $y| $f)
        }
    };
    ($A:ty => $R:ty, |$x:ident, $y:ident| $f:expr) => {
        Kernel2 {
            result: <$R as Element>::TYPE,
            scalar: |s, t| {
                let $x = <$A as Read>::from_scalar(s);
                let $y = <$A as Read>::from_scalar(t);
                <$R as Element>::to_scalar($f)
            },
            fast: None,
        }
    };
}
/// `kernel3!(A, |x, y, z| …)`: the kernel of a function of three values of `A`.
macro_rules! kernel3 {
    ($A:ty, |$x:ident, $y:ident, $z:ident| $f:expr) => {
        Kernel3 {
            scalar: |s, t, u| {
                let $x = <$A as Read>::from_scalar(s);
                let $y = <$A as Read>::from_scalar(t);
                let $z = <$A as Read>::from_scalar(u);
                <$A as Element>::to_scalar($f)
            },
            array: |a, b, c| crate::ops::elementwise::kernel::map3::<$A>(a, b, c, |$x, $y, $z| $f),
        }
    };
}
pub(super) use {kernel1, kernel2, kernel3};

impl Kernel1 {
    /// The function of every element.
    pub(super) fn apply(&self, a: Array) -> Result<Array, ExecutionError> {
        use crate::scalar::Scalar;
        if let Some(fast) = self.fast {
            return fast(a);
        }
        if a.element_type().bytes() == 1 && a.len() > 256 {
            let table: Vec<Scalar> = (0..256).map(|code| (self.scalar)(Scalar(code))).collect();
            return by_width!(self.result, R => {
                let table: Vec<R> = table.iter().map(|s| R::narrow(s.0)).collect();
                map_bits1::<u8, R>(a, self.result, |b| table[usize::from(b)])
            });
        }
        by_width!(a.element_type(), A => by_width!(self.result, R => {
            map_bits1::<A, R>(a, self.result, |b| R::narrow((self.scalar)(Scalar(b.widen())).0))
        }))
    }
}

impl Kernel2 {
    /// The function of the elements at each position.
    pub(super) fn apply(&self, a: Array, b: Array) -> Result<Array, ExecutionError> {
        use crate::scalar::Scalar;
        if let Some(fast) = self.fast {
            return fast(a, b);
        }
        by_width!(a.element_type(), A => by_width!(self.result, R => {
            map_bits2::<A, R>(a, b, self.result, |x, y| {
                R::narrow((self.scalar)(Scalar(x.widen()), Scalar(y.widen())).0)
            })
        }))
    }
}

/// `f` of every element.
#[inline]
pub(super) fn map1<A: Read, R: Element>(a: Array, f: impl Fn(A::Value) -> R::Value) -> Result<Array, ExecutionError> {
    map_bits1::<A::Bits, R::Bits>(a, R::TYPE, |bits| R::write(f(A::read(bits))))
}

/// `f` of the elements at each position.
#[inline]
pub(super) fn map2<A: Read, R: Element>(
    a: Array,
    b: Array,
    f: impl Fn(A::Value, A::Value) -> R::Value,
) -> Result<Array, ExecutionError> {
    map_bits2::<A::Bits, R::Bits>(a, b, R::TYPE, |x, y| R::write(f(A::read(x), A::read(y))))
}

/// `f` of the elements at each position; the first and the third may be scalars.
#[inline]
pub(super) fn map3<A: Element>(
    a: Array,
    mut b: Array,
    c: Array,
    f: impl Fn(A::Value, A::Value, A::Value) -> A::Value,
) -> Result<Array, ExecutionError> {
    if b.rank() > 0 && a.rank() == 0 && c.rank() == 0 {
        let (x, z) = (A::read(scalar_bits(&a)?), A::read(scalar_bits(&c)?));
        return map1::<A, A>(b, |y| f(x, y, z));
    }
    let a = expanded::<A::Bits>(a, b.dims())?;
    let c = expanded::<A::Bits>(c, b.dims())?;
    same_sizes(&a, &b)?;
    same_sizes(&b, &c)?;
    let bounds = a.elements::<A::Bits>().iter().zip(c.elements::<A::Bits>());
    for (y, (&x, &z)) in b.elements_mut::<A::Bits>().iter_mut().zip(bounds) {
        *y = A::write(f(A::read(x), A::read(*y), A::read(z)));
    }
    Ok(b)
}

#[inline]
pub(super) fn map_bits1<A: Storage, R: Storage>(
    mut a: Array,
    result: ElementType,
    f: impl Fn(A) -> R,
) -> Result<Array, ExecutionError> {
    if size_of::<A>() == size_of::<R>() && a.is_unshared() {
        for x in a.elements_mut::<A>() {
            *x = A::narrow(f(*x).widen());
        }
        let dims = a.dims().to_vec();
        return a.reinterpreted(result, &dims);
    }
    let mut r = Array::zeroed(result, a.dims())?;
    for (r, &x) in r.elements_mut::<R>().iter_mut().zip(a.elements::<A>()) {
        *r = f(x);
    }
    Ok(r)
}

#[inline]
pub(super) fn map_bits2<A: Storage, R: Storage>(
    mut a: Array,
    mut b: Array,
    result: ElementType,
    f: impl Fn(A, A) -> R,
) -> Result<Array, ExecutionError> {
    same_sizes(&a, &b)?;
    if size_of::<A>() == size_of::<R>() && a.is_unshared() {
        for (x, &y) in a.elements_mut::<A>().iter_mut().zip(b.elements::<A>()) {
            *x = A::narrow(f(*x, y).widen());
        }
        let dims = a.dims().to_vec();
        return a.reinterpreted(result, &dims);
    }
    if size_of::<A>() == size_of::<R>() && b.is_unshared() {
        for (y, &x) in b.elements_mut::<A>().iter_mut().zip(a.elements::<A>()) {
            *y = A::narrow(f(x, *y).widen());
        }
        let dims = b.dims().to_vec();
        return b.reinterpreted(result, &dims);
    }
    let mut r = Array::zeroed(result, a.dims())?;
    let operands = a.elements::<A>().iter().zip(b.elements::<A>());
    for (r, (&x, &y)) in r.elements_mut::<R>().iter_mut().zip(operands) {
        *r = f(x, y);
    }
    Ok(r)
}

/// The only element of an array.
pub(super) fn scalar_bits<S: Storage>(a: &Array) -> Result<S, ExecutionError> {
    a.elements::<S>().first().copied().ok_or_else(|| ExecutionError::bug("a scalar has no element"))
}

/// A scalar repeated to those sizes; an array as it is.
pub(super) fn expanded<S: Storage>(a: Array, dims: &[i64]) -> Result<Array, ExecutionError> {
    if a.rank() > 0 || dims.is_empty() {
        return Ok(a);
    }
    let bits = scalar_bits::<S>(&a)?;
    let mut r = Array::zeroed(a.element_type(), dims)?;
    r.elements_mut::<S>().fill(bits);
    Ok(r)
}

/// A fault unless the sizes are equal.
pub(super) fn same_sizes(a: &Array, b: &Array) -> Result<(), ExecutionError> {
    if a.dims() == b.dims() {
        return Ok(());
    }
    Err(ExecutionError::bug(format!("operands have different sizes: {:?} and {:?}", a.dims(), b.dims())))
}

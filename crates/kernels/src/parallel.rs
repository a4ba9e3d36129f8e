//! How kernels share work among threads: the caller brings the threads, the kernel says how the work may be cut.

use std::marker::PhantomData;

/// Somebody who can run the parts of a loop at the same time.
pub trait Parallel: Sync {
    /// Calls `body` with ranges that cover `0..units` without overlap, each but the last at least `chunk` long.
    fn each(&self, units: usize, chunk: usize, body: &(dyn Fn(usize, usize) + Sync));

    /// How many parts run at the same time at best.
    fn threads(&self) -> usize;
}

/// One thread: the caller's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Parallel for Serial {
    fn each(&self, units: usize, _chunk: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        if units > 0 {
            body(0, units);
        }
    }

    fn threads(&self) -> usize {
        1
    }
}

/// A slice whose elements several threads write, each its own.
pub(crate) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    borrowed: PhantomData<&'a mut [T]>,
}

// SAFETY: elements are reached through `write` and `slice` only, whose callers promise not to share any.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T: Copy> Shared<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Shared<'a, T> {
        Shared { start: slice.as_mut_ptr(), len: slice.len(), borrowed: PhantomData }
    }

    /// Sets the element at `at`.
    ///
    /// # Safety
    /// No other thread may use that element meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, at: usize, value: T) {
        assert!(at < self.len, "an element outside the slice");
        // SAFETY: it is inside the slice, and nobody else uses it.
        unsafe { self.start.add(at).write(value) }
    }

    /// The address of the element at `at`, for `extent` elements from there on.
    pub(crate) fn address(&self, at: usize, extent: usize) -> *mut T {
        assert!(at.checked_add(extent).is_some_and(|end| end <= self.len), "elements outside the slice");
        // SAFETY: it is inside the slice, or at its end.
        unsafe { self.start.add(at) }
    }

    /// The elements `from..to`.
    ///
    /// # Safety
    /// No other thread may use those elements while the result lives.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the caller promises that nobody else has them")]
    pub(crate) unsafe fn slice(&self, from: usize, to: usize) -> &mut [T] {
        assert!(from <= to && to <= self.len, "elements outside the slice");
        // SAFETY: they are inside the slice, and nobody else uses them.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), to - from) }
    }
}

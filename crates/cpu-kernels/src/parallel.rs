//! How kernels share work among threads: the caller brings the threads, the kernel says how the work may be cut.

use crate::tiles::scratch;
use std::marker::PhantomData;
use std::ops::Range;

/// Somebody who can run the parts of a loop at the same time.
pub trait Parallel: Sync {
    /// Calls `body` with ranges that cover `0..units` without overlap, each but the last at least `chunk` long.
    fn each(&self, units: usize, chunk: usize, body: &(dyn Fn(usize, usize) + Sync));

    /// The same where what is next to each other reads the same: threads take one range after the other in turn, and are
    /// never far apart.
    fn each_in_turn(&self, units: usize, chunk: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        self.each(units, chunk, body);
    }

    /// How many parts run at the same time at best.
    fn threads(&self) -> usize;
}

/// The work that a thread should take at a time: what one core does in about 15 µs, four times as long as it takes to
/// hand it over (`thread_us` of the machine's description). There is more of it the faster it is done.
pub(crate) mod grain {
    /// Multiplications of products whose operands are in registers and near caches.
    pub(crate) const MULTIPLICATIONS: usize = 1 << 19;
    /// Multiplications by numbers that are read for one each.
    pub(crate) const STREAMED: usize = MULTIPLICATIONS / 4;
    /// Bytes that are moved.
    pub(crate) const BYTES: usize = 1 << 17;
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

/// What is done with rows of a result as soon as they are there, by the thread that has computed them, while they are
/// near.
#[derive(Clone, Copy)]
pub struct Epilogue<'a> {
    /// The rows are handed over in whole multiples of so many, the last ones aside.
    pub step: usize,
    /// Called once for each row: with the numbers of some rows and the address of the first of them.
    pub call: &'a (dyn Fn(Range<usize>, *mut u8) + Sync),
}

impl Epilogue<'_> {
    /// The rows of a panel of a product of `m × n` sums, one of several, that would otherwise be cut into such tiles, for
    /// kernels that compute blocks of so many rows at a time.
    pub(crate) fn panel(
        &self,
        [m, n]: [usize; 2],
        products: usize,
        (tile_m, tile_n): (usize, usize),
        block: usize,
        threads: usize,
    ) -> usize {
        /// Results of a panel, which stay in the second cache.
        const MOST: usize = 1 << 16;
        /// Fewer rows do not make good use of the columns that are laid out for them.
        const FEWEST_ROWS: usize = 42;
        let most = (MOST / n.max(1)).max(FEWEST_ROWS);
        let wanted = if threads > 1 { (3 * threads).div_ceil(products) } else { 1 };
        let rows = if tile_n >= n { tile_m } else { m.div_ceil(wanted) };
        self.fitting(rows.clamp(FEWEST_ROWS, most), m, block)
    }

    /// About so many of `m` rows, in whole steps and, as far as that goes, in whole blocks.
    fn fitting(&self, wanted: usize, m: usize, block: usize) -> usize {
        let step = self.step.max(1);
        if wanted >= m {
            return m;
        }
        let filled = |rows: usize| rows as f64 / (rows.div_ceil(block) * block) as f64;
        let most = (wanted / step).max(1);
        let candidates = (most.div_ceil(2)..=most).map(|steps| (steps * step).min(m));
        candidates.max_by(|&a, &b| filled(a).total_cmp(&filled(b))).unwrap_or(m)
    }

    /// Computes a block of rows of so many elements and hands it over.
    pub(crate) fn block<O: Copy>(&self, rows: Range<usize>, row: usize, compute: impl FnOnce(*mut O)) {
        scratch::with_bytes(rows.len() * row * size_of::<O>(), |to| {
            compute(to.cast());
            (self.call)(rows, to);
        });
    }
}

impl std::fmt::Debug for Epilogue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epilogue").field("step", &self.step).finish_non_exhaustive()
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
    pub(crate) fn len(&self) -> usize {
        self.len
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

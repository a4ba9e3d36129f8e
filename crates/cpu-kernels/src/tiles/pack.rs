//! Operands laid out for the innermost loops: *panels* of some lines (rows of the left operand, columns of the right),
//! in which the units of all lines at one place of the summed dimension lie side by side.

use super::micro::{self, Micro};
use crate::number::Stored;
use crate::vectors::with_vectors;
use half::{bf16, f16};

/// How numbers of type `S` are multiplied: what they are packed as, and what their products are summed in.
pub(crate) trait Way<S: Copy>: Sync + 'static {
    /// What one lane multiplies at once.
    type Unit: Copy + Default + Send + Sync + PartialEq + 'static;
    /// What is summed in.
    type Sum: Copy + Default + Send + Sync + 'static;
    /// Numbers in a unit.
    const DEPTH: usize;
    /// Whether a number in memory is a unit.
    const IN_PLACE: bool;
    /// Whether two neighbours in memory are a unit.
    const HALVES: bool = false;
    /// The unit of a number and, where it has two, its neighbour along the summed dimension.
    fn unit(first: S, second: S) -> Self::Unit;
    /// The processor's loops for it.
    fn micro() -> &'static Micro<Self::Unit, Self::Sum>;
    /// Lays out one panel from lines that are dense along the summed dimension, if the processor has a fast way.
    fn turner() -> Option<Turn<S, Self::Unit>> {
        None
    }
    /// Lays out one panel from lines that lie side by side, if the processor has a fast way.
    fn taker() -> Option<Take<S, Self::Unit>> {
        None
    }
    /// A number that adds nothing.
    fn nothing() -> S;
    /// The units of numbers that lie side by side; a last number without a neighbour gets one that adds nothing.
    ///
    /// # Safety
    /// The numbers must be there, and room for the units.
    unsafe fn copy(from: *const S, numbers: usize, to: *mut Self::Unit) {
        // SAFETY: the caller's promise.
        let (from, to) = unsafe {
            let units = numbers.div_ceil(Self::DEPTH);
            (std::slice::from_raw_parts(from, numbers), std::slice::from_raw_parts_mut(to, units))
        };
        for (to, from) in to.iter_mut().zip(from.chunks(Self::DEPTH)) {
            *to = Self::unit(from[0], from.get(1).copied().unwrap_or(Self::nothing()));
        }
    }
}

/// Turns lines into a panel: the addresses of the lines, how many numbers each has, the width of the panel, where it goes.
/// At most fifteen units behind the panel may be overwritten.
pub(crate) type Turn<S, U> = unsafe fn(&[*const S], usize, usize, *mut U);

/// Takes lines that lie side by side as a panel: the address of the first line, how many there are, how many numbers each
/// has and the distance between these, the width of the panel, where it goes.
pub(crate) type Take<S, U> = unsafe fn(*const S, usize, usize, usize, usize, *mut U);

/// What may be overwritten behind a panel.
pub(crate) const SLACK: usize = 16;

/// Numbers as they are.
#[derive(Debug)]
pub(crate) struct Plain;
/// Small floats made f32.
#[derive(Debug)]
pub(crate) struct Widened;
/// Two neighbours at once.
#[derive(Debug)]
pub(crate) struct Pairs;

macro_rules! plain {
    ($($t:ty, $micro:ident, $turner:expr, $taker:expr;)*) => {$(
        impl Way<$t> for Plain {
            type Unit = $t;
            type Sum = $t;
            const DEPTH: usize = 1;
            const IN_PLACE: bool = true;
            #[inline(always)]
            fn unit(first: $t, _: $t) -> $t {
                first
            }
            fn micro() -> &'static Micro<$t, $t> {
                micro::$micro()
            }
            fn turner() -> Option<Turn<$t, $t>> {
                $turner
            }
            fn taker() -> Option<Take<$t, $t>> {
                $taker
            }
            fn nothing() -> $t {
                <$t>::default()
            }
            #[inline]
            unsafe fn copy(from: *const $t, numbers: usize, to: *mut $t) {
                // A few vectors at a time: runs are often too short for a call.
                const STEP: usize = 16;
                let whole = numbers / STEP * STEP;
                // SAFETY: the caller's promise.
                unsafe {
                    for at in (0..whole).step_by(STEP) {
                        to.add(at).cast::<[$t; STEP]>().write_unaligned(from.add(at).cast::<[$t; STEP]>().read_unaligned());
                    }
                    for at in whole..numbers {
                        *to.add(at) = *from.add(at);
                    }
                }
            }
        }
    )*};
}

plain! {
    f32, f32s, turners::f32s(), takers::f32s();
    f64, f64s, None, None;
    i32, i32s, turners::i32s(), None;
}

macro_rules! widened {
    ($($t:ty, $turner:expr, $taker:expr;)*) => {$(
        impl Way<$t> for Widened {
            type Unit = f32;
            type Sum = f32;
            const DEPTH: usize = 1;
            const IN_PLACE: bool = false;
            #[inline(always)]
            fn unit(first: $t, _: $t) -> f32 {
                first.load()
            }
            fn micro() -> &'static Micro<f32, f32> {
                micro::f32s()
            }
            fn turner() -> Option<Turn<$t, f32>> {
                $turner
            }
            fn taker() -> Option<Take<$t, f32>> {
                $taker
            }
            fn nothing() -> $t {
                <$t>::default()
            }
            #[inline]
            unsafe fn copy(from: *const $t, numbers: usize, to: *mut f32) {
                // SAFETY: the caller's promise.
                let (from, to) = unsafe {
                    (std::slice::from_raw_parts(from, numbers), std::slice::from_raw_parts_mut(to, numbers))
                };
                <$t>::load_all(from, to);
            }
        }
    )*};
}

widened! {
    bf16, turners::wide_bf16(), None;
    f16, turners::wide_f16(), takers::wide_f16();
}

impl Way<bf16> for Pairs {
    type Unit = u32;
    type Sum = f32;
    const DEPTH: usize = 2;
    const IN_PLACE: bool = false;
    const HALVES: bool = true;
    #[inline(always)]
    fn unit(first: bf16, second: bf16) -> u32 {
        u32::from(first.to_bits()) | (u32::from(second.to_bits()) << 16)
    }
    fn micro() -> &'static Micro<u32, f32> {
        micro::bf16_pairs().unwrap_or_else(|| unreachable!("pairs are for processors that multiply them"))
    }
    fn turner() -> Option<Turn<bf16, u32>> {
        turners::bf16_pairs()
    }
    fn taker() -> Option<Take<bf16, u32>> {
        takers::bf16_pairs()
    }
    fn nothing() -> bf16 {
        bf16::ZERO
    }
    #[inline]
    unsafe fn copy(from: *const bf16, numbers: usize, to: *mut u32) {
        // SAFETY: the caller's promise; two bf16 are a unit, the first one below on a machine that stores that first, as
        // all with such instructions do.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to.cast(), numbers);
            if numbers % 2 == 1 {
                to.cast::<bf16>().add(numbers).write(bf16::ZERO);
            }
        }
    }
}

macro_rules! integer_pairs {
    ($($t:ty),*) => {$(
        impl Way<$t> for Pairs {
            type Unit = u32;
            type Sum = i32;
            const DEPTH: usize = 2;
            const IN_PLACE: bool = false;
            #[inline(always)]
            fn unit(first: $t, second: $t) -> u32 {
                u32::from(i16::from(first) as u16) | (u32::from(i16::from(second) as u16) << 16)
            }
            fn micro() -> &'static Micro<u32, i32> {
                micro::i16_pairs()
            }
            fn nothing() -> $t {
                0
            }
        }
    )*};
}
integer_pairs!(i8, u8, i16);

/// Lines of an operand: evenly spaced, and so are the numbers of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines<S> {
    pub(crate) first: *const S,
    /// From line to line.
    pub(crate) line: usize,
    /// Along a line.
    pub(crate) along: usize,
}

impl<S: Copy> Lines<S> {
    /// Packs `lines` lines of `depth` numbers as one panel.
    ///
    /// # Safety
    /// The numbers must be there, and room for the panel and [`SLACK`] units behind it.
    pub(crate) unsafe fn pack<W: Way<S>>(self, lines: usize, depth: usize, width: usize, to: *mut W::Unit) {
        debug_assert!(lines <= width && width <= micro::MAX_COLUMNS);
        if self.along == 1 && self.line != 1 {
            let mut starts = [std::ptr::null(); micro::MAX_COLUMNS];
            for (n, start) in starts.iter_mut().enumerate().take(lines) {
                *start = self.first.wrapping_add(n * self.line);
            }
            // SAFETY: the caller's promise.
            return unsafe { turn::<S, W>(&starts[..lines], depth, width, to) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.pack_exactly::<W>(lines, depth, width, to) }
    }

    /// As [`Lines::pack`], but nothing is written besides these lines of the panel.
    ///
    /// # Safety
    /// The numbers must be there, and room for the lines.
    pub(crate) unsafe fn pack_exactly<W: Way<S>>(self, lines: usize, depth: usize, width: usize, to: *mut W::Unit) {
        if self.line == 1
            && let Some(take) = W::taker()
        {
            // SAFETY: the caller's promise; there is a taker only if the processor can run it.
            return unsafe { take(self.first, lines, depth, self.along, width, to) };
        }
        with_vectors!({
            for u in 0..depth.div_ceil(W::DEPTH) {
                let first = self.first.wrapping_add(u * W::DEPTH * self.along);
                // SAFETY: the caller's promise; a panel has room for `width` units at each place.
                let to = unsafe { std::slice::from_raw_parts_mut(to.add(u * width), lines) };
                let second = (W::DEPTH == 2 && 2 * u + 1 < depth).then(|| first.wrapping_add(self.along));
                // SAFETY: the caller's promise that the numbers are there.
                unsafe {
                    match (self.line, second) {
                        (1, None) => across(first, to, |x| W::unit(x, W::nothing())),
                        (1, Some(second)) => across_two(first, second, to, W::unit),
                        (step, None) => {
                            for (n, to) in to.iter_mut().enumerate() {
                                *to = W::unit(*first.add(n * step), W::nothing());
                            }
                        }
                        (step, Some(second)) => {
                            for (n, to) in to.iter_mut().enumerate() {
                                *to = W::unit(*first.add(n * step), *second.add(n * step));
                            }
                        }
                    }
                }
            }
        });
    }
}

/// Lines side by side.
#[inline(always)]
unsafe fn across<S: Copy, U>(from: *const S, to: &mut [U], unit: impl Fn(S) -> U) {
    // SAFETY: the caller's promise.
    let from = unsafe { std::slice::from_raw_parts(from, to.len()) };
    // A whole panel is a few vectors, without a loop.
    if let (Some(from), Some(to)) = (from.first_chunk::<32>(), to.first_chunk_mut::<32>()) {
        to.iter_mut().zip(from).for_each(|(to, &x)| *to = unit(x));
        return;
    }
    to.iter_mut().zip(from).for_each(|(to, &x)| *to = unit(x));
}

#[inline(always)]
unsafe fn across_two<S: Copy, U>(first: *const S, second: *const S, to: &mut [U], unit: impl Fn(S, S) -> U) {
    // SAFETY: the caller's promise.
    let (first, second) =
        unsafe { (std::slice::from_raw_parts(first, to.len()), std::slice::from_raw_parts(second, to.len())) };
    if let (Some(a), Some(b), Some(to)) =
        (first.first_chunk::<32>(), second.first_chunk::<32>(), to.first_chunk_mut::<32>())
    {
        to.iter_mut().zip(a).zip(b).for_each(|((to, &x), &y)| *to = unit(x, y));
        return;
    }
    to.iter_mut().zip(first).zip(second).for_each(|((to, &x), &y)| *to = unit(x, y));
}

/// Packs lines that begin at `starts`, each of `depth` numbers side by side, as one panel.
///
/// # Safety
/// The numbers must be there, and room for the panel and [`SLACK`] units behind it.
pub(crate) unsafe fn turn<S: Copy, W: Way<S>>(starts: &[*const S], depth: usize, width: usize, to: *mut W::Unit) {
    if let Some(turner) = W::turner() {
        // SAFETY: the caller's promise; there is a turner only if the processor can run it.
        return unsafe { turner(starts, depth, width, to) };
    }
    for (n, &start) in starts.iter().enumerate() {
        for u in 0..depth.div_ceil(W::DEPTH) {
            // SAFETY: the caller's promise.
            unsafe {
                let first = *start.add(u * W::DEPTH);
                let second = if 2 * u + 1 < depth && W::DEPTH == 2 { *start.add(2 * u + 1) } else { W::nothing() };
                to.add(u * width + n).write(W::unit(first, second));
            }
        }
    }
}

/// Turns a square of at most sixteen lines of at most sixteen elements of four bytes: the first line and the distance from
/// line to line, how many lines and how many elements of each, and the same of what it becomes.
pub(crate) type TurnSquare = unsafe fn(*const u8, usize, [usize; 2], *mut u8, usize);

/// The function that turns squares, if the processor has a fast way.
pub(crate) fn turn_square() -> Option<TurnSquare> {
    turners::square()
}

#[cfg(not(target_arch = "x86_64"))]
mod takers {
    use super::{Take, bf16, f16};
    pub(super) fn f32s() -> Option<Take<f32, f32>> {
        None
    }
    pub(super) fn bf16_pairs() -> Option<Take<bf16, u32>> {
        None
    }
    pub(super) fn wide_f16() -> Option<Take<f16, f32>> {
        None
    }
}

/// Lines that lie side by side, sixteen at a time.
#[cfg(target_arch = "x86_64")]
mod takers {
    use super::{Take, bf16, f16};
    use std::arch::x86_64::*;

    macro_rules! taker {
        ($name:ident, $s:ty, $u:ty, $depth:literal, $load:expr) => {
            pub(super) fn $name() -> Option<Take<$s, $u>> {
                let able = is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl");
                #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
                unsafe fn take(first: *const $s, lines: usize, depth: usize, along: usize, width: usize, to: *mut $u) {
                    for u in 0..depth.div_ceil($depth) {
                        let from = first.wrapping_add(u * $depth * along);
                        let next =
                            if $depth == 2 && 2 * u + 1 < depth { from.wrapping_add(along) } else { std::ptr::null() };
                        let mut at = 0;
                        while at < lines {
                            let mask = ((1u32 << (lines - at).min(16)) - 1) as __mmask16;
                            // SAFETY: the lines in the mask are there, and room for them.
                            unsafe {
                                let units = $load(from.wrapping_add(at), next, at, mask);
                                _mm512_mask_storeu_epi32(to.add(u * width + at).cast(), mask, units);
                            }
                            at += 16;
                        }
                    }
                }
                able.then_some(take as Take<$s, $u>)
            }
        };
    }

    taker!(f32s, f32, f32, 1, |from: *const f32, _: *const f32, _: usize, mask| _mm512_maskz_loadu_epi32(
        mask,
        from.cast()
    ));
    taker!(wide_f16, f16, f32, 1, |from: *const f16, _: *const f16, _: usize, mask| {
        _mm512_castps_si512(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast())))
    });
    taker!(bf16_pairs, bf16, u32, 2, |from: *const bf16, next: *const bf16, at: usize, mask| {
        let low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from.cast()));
        if next.is_null() {
            low
        } else {
            let high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, next.add(at).cast()));
            _mm512_or_si512(low, _mm512_slli_epi32::<16>(high))
        }
    });
}

#[cfg(not(target_arch = "x86_64"))]
mod turners {
    use super::{Turn, TurnSquare, bf16, f16};
    pub(super) fn square() -> Option<TurnSquare> {
        None
    }
    pub(super) fn f32s() -> Option<Turn<f32, f32>> {
        None
    }
    pub(super) fn i32s() -> Option<Turn<i32, i32>> {
        None
    }
    pub(super) fn bf16_pairs() -> Option<Turn<bf16, u32>> {
        None
    }
    pub(super) fn wide_bf16() -> Option<Turn<bf16, f32>> {
        None
    }
    pub(super) fn wide_f16() -> Option<Turn<f16, f32>> {
        None
    }
}

/// Sixteen lines by sixteen units at a time, turned in registers.
#[cfg(target_arch = "x86_64")]
mod turners {
    use super::{Turn, TurnSquare, bf16, f16};
    use std::arch::x86_64::*;

    pub(super) fn square() -> Option<TurnSquare> {
        #[target_feature(enable = "avx512f")]
        unsafe fn square(from: *const u8, line: usize, [lines, numbers]: [usize; 2], to: *mut u8, to_line: usize) {
            let (from, to) = (from.cast::<i32>(), to.cast::<i32>());
            let (left, made) = (first16(numbers), first16(lines));
            let mut rows = [_mm512_setzero_si512(); 16];
            for (n, row) in rows.iter_mut().enumerate().take(lines) {
                // SAFETY: the caller's promise that the lines are there.
                *row = unsafe { _mm512_maskz_loadu_epi32(left, from.add(n * line)) };
            }
            for (n, row) in turned(rows).iter().enumerate().take(numbers) {
                // SAFETY: the caller's promise that there is room for them.
                unsafe { _mm512_mask_storeu_epi32(to.add(n * to_line), made, *row) };
            }
        }
        is_x86_feature_detected!("avx512f").then_some(square as TurnSquare)
    }

    macro_rules! turner {
        ($name:ident, $s:ty, $u:ty, $depth:literal, $load:expr) => {
            pub(super) fn $name() -> Option<Turn<$s, $u>> {
                let able = is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl");
                #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
                unsafe fn turn(starts: &[*const $s], depth: usize, width: usize, to: *mut $u) {
                    let units = depth.div_ceil($depth);
                    for (block, starts) in starts.chunks(16).enumerate() {
                        for first in (0..units).step_by(16) {
                            let left = (depth - first * $depth).min(16 * $depth);
                            let mut rows = [_mm512_setzero_si512(); 16];
                            for (row, &start) in rows.iter_mut().zip(starts) {
                                // SAFETY: the caller's promise that so many numbers are there.
                                *row = unsafe { $load(start.add(first * $depth), left) };
                            }
                            let rows = turned(rows);
                            let many = (units - first).min(16);
                            for (n, row) in rows.iter().enumerate().take(many) {
                                // SAFETY: there is room for the panel and what may be overwritten behind it.
                                unsafe {
                                    let to = to.add((first + n) * width + block * 16);
                                    _mm512_storeu_si512(to.cast(), *row);
                                }
                            }
                        }
                    }
                }
                able.then_some(turn as Turn<$s, $u>)
            }
        };
    }

    turner!(f32s, f32, f32, 1, |at: *const f32, left| _mm512_maskz_loadu_epi32(first16(left), at.cast()));
    turner!(i32s, i32, i32, 1, |at: *const i32, left| _mm512_maskz_loadu_epi32(first16(left), at));
    turner!(bf16_pairs, bf16, u32, 2, |at: *const bf16, left| _mm512_maskz_loadu_epi16(first32(left), at.cast()));
    turner!(wide_bf16, bf16, f32, 1, |at: *const bf16, left| {
        let bits = _mm256_maskz_loadu_epi16(first16(left), at.cast());
        _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits))
    });
    turner!(wide_f16, f16, f32, 1, |at: *const f16, left| {
        let bits = _mm256_maskz_loadu_epi16(first16(left), at.cast());
        _mm512_castps_si512(_mm512_cvtph_ps(bits))
    });

    fn first16(count: usize) -> __mmask16 {
        ((1u32 << count.min(16)) - 1) as __mmask16
    }

    fn first32(count: usize) -> __mmask32 {
        ((1u64 << count.min(32)) - 1) as __mmask32
    }

    /// Sixteen vectors of which the first holds the first lanes of all, and so on.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn turned(rows: [__m512i; 16]) -> [__m512i; 16] {
        let mut a = [_mm512_setzero_si512(); 16];
        for i in 0..8 {
            a[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
            a[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
        }
        let mut b = a;
        for i in 0..4 {
            b[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
            b[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
            b[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
            b[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
        }
        // Now quarter q of b[4 i + j] holds lane 4 q + j of the rows 4 i .. 4 i + 4.
        let mut turned = b;
        for j in 0..4 {
            let low = _mm512_shuffle_i32x4::<0x88>(b[j], b[4 + j]);
            let high = _mm512_shuffle_i32x4::<0xdd>(b[j], b[4 + j]);
            let low2 = _mm512_shuffle_i32x4::<0x88>(b[8 + j], b[12 + j]);
            let high2 = _mm512_shuffle_i32x4::<0xdd>(b[8 + j], b[12 + j]);
            turned[j] = _mm512_shuffle_i32x4::<0x88>(low, low2);
            turned[8 + j] = _mm512_shuffle_i32x4::<0xdd>(low, low2);
            turned[4 + j] = _mm512_shuffle_i32x4::<0x88>(high, high2);
            turned[12 + j] = _mm512_shuffle_i32x4::<0xdd>(high, high2);
        }
        turned
    }
}

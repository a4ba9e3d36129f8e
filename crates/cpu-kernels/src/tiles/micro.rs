//! The innermost loops of products, for each kind of number and each kind of vectors: a block of sums that stays in
//! registers, to which one line of each operand after the other is added.
//!
//! A *unit* is what one lane multiplies at once: one number, or two neighbours along the summed dimension for the types
//! for which processors have such instructions. The left operand is read unit by unit, the right one vector by vector.
//! Every sum is made in the order of the summed dimension, a part of fixed length at a time, so it does not depend on how a
//! product is cut into tiles.

/// Columns that are computed at once at most.
pub(crate) const MAX_COLUMNS: usize = 32;

/// A block of a product: `rows × columns` sums over `depth` units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<U, C> {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
    pub(crate) lhs: *const U,
    /// From row to row of the left operand. If it is 1 and `lhs_step` is `rows`, the operand is packed.
    pub(crate) lhs_row: usize,
    /// From unit to unit along the summed dimension.
    pub(crate) lhs_step: usize,
    pub(crate) rhs: *const U,
    /// The same of the right operand, whose columns lie side by side.
    pub(crate) rhs_step: usize,
    pub(crate) to: *mut C,
    pub(crate) to_row: usize,
    /// Adds to what is there; otherwise that is overwritten.
    pub(crate) add: bool,
}

/// How many places of the summed dimension the right operand is fetched ahead; so long that it comes even from the third
/// cache in time.
const AHEAD: usize = 8;
/// Loops at least so long fetch what they add to when they begin.
const FAR: usize = 32;

/// Asks for the line of memory at an address, which need not be one.
#[inline(always)]
fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it does nothing where there is no memory.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// What a processor does for one kind of numbers.
#[derive(Debug)]
pub(crate) struct Micro<U, C> {
    /// Rows of a block at most.
    pub(crate) rows: usize,
    /// Columns of a block at most.
    pub(crate) columns: usize,
    /// Computes a block. The matrices must be where the block says, and the processor must have the instructions.
    pub(crate) run: unsafe fn(&Block<U, C>),
}

/// Defines `run`, which computes a block, with the functions of the module it is in: `splat`, `load`, `mask`, `zero`,
/// `multiply_add`, `load_sums`, `store_sums`.
macro_rules! block {
    ($unit:ty, $sum:ty, $lanes:expr, [$($feature:literal)?], [$($rows:literal)*]) => {
        $(#[target_feature(enable = $feature)])?
        #[allow(clippy::needless_range_loop, reason = "the loops are unrolled, and the indices constants")]
        unsafe fn block<const R: usize, const V: usize, const PACKED: bool>(b: &Block<$unit, $sum>) {
            // SAFETY (all): the caller's promise that the matrices are where the block says.
            let mut masks = [mask($lanes); V];
            masks[V - 1] = mask(b.columns - (V - 1) * $lanes);
            let mut sums = [[zero(); V]; R];
            // What is written last is far away: it has the whole loop to come near.
            if b.depth >= FAR {
                for r in 0..R {
                    for v in 0..V {
                        prefetch(b.to.wrapping_add(r * b.to_row + v * $lanes));
                    }
                }
            }
            let (mut lhs, mut rhs) = (b.lhs, b.rhs);
            for _ in 0..b.depth {
                let mut right = [unsafe { load(rhs, masks[0]) }; V];
                for v in 1..V {
                    right[v] = unsafe { load(rhs.add(v * $lanes), masks[v]) };
                }
                for v in 0..V {
                    prefetch(rhs.wrapping_add(AHEAD * b.rhs_step + v * $lanes));
                }
                if PACKED {
                    prefetch(lhs.wrapping_add(2 * AHEAD * R));
                }
                for r in 0..R {
                    let left = unsafe { splat(if PACKED { lhs.add(r) } else { lhs.add(r * b.lhs_row) }) };
                    for v in 0..V {
                        sums[r][v] = multiply_add(sums[r][v], left, right[v]);
                    }
                }
                lhs = lhs.wrapping_add(if PACKED { R } else { b.lhs_step });
                rhs = rhs.wrapping_add(b.rhs_step);
            }
            for r in 0..R {
                for v in 0..V {
                    let to = b.to.wrapping_add(r * b.to_row + v * $lanes);
                    let sum = match b.add {
                        true => add_sums(unsafe { load_sums(to, masks[v]) }, sums[r][v]),
                        false => sums[r][v],
                    };
                    unsafe { store_sums(to, masks[v], sum) };
                }
            }
        }

        $(#[target_feature(enable = $feature)])?
        unsafe fn run(b: &Block<$unit, $sum>) {
            assert!(b.columns > 0 && b.columns <= 2 * $lanes);
            let packed = b.lhs_row == 1 && b.lhs_step == b.rows;
            // SAFETY (all): the caller's promise.
            match (b.rows, b.columns > $lanes, packed) {
                $(
                    ($rows, false, false) => unsafe { block::<$rows, 1, false>(b) },
                    ($rows, false, true) => unsafe { block::<$rows, 1, true>(b) },
                    ($rows, true, false) => unsafe { block::<$rows, 2, false>(b) },
                    ($rows, true, true) => unsafe { block::<$rows, 2, true>(b) },
                )*
                _ => unreachable!("a block of {} rows", b.rows),
            }
        }

        pub(in crate::tiles) static MICRO: Micro<$unit, $sum> =
            Micro { rows: [$($rows),*].len(), columns: 2 * $lanes, run };
    };
}

/// Any processor: arrays of eight numbers, which become whatever vectors there are.
macro_rules! portable {
    ($name:ident, $unit:ty, $sum:ty, $add:expr, $multiply_add:expr) => {
        pub(in crate::tiles) mod $name {
            use super::super::{AHEAD, Block, FAR, Micro, prefetch};
            const LANES: usize = 8;

            fn mask(columns: usize) -> usize {
                columns
            }
            fn zero() -> [$sum; LANES] {
                [<$sum>::default(); LANES]
            }
            unsafe fn splat(at: *const $unit) -> $unit {
                // SAFETY: the caller's promise.
                unsafe { *at }
            }
            unsafe fn load(at: *const $unit, columns: usize) -> [$unit; LANES] {
                let mut vector = [<$unit>::default(); LANES];
                // SAFETY: the caller's promise.
                unsafe { std::ptr::copy_nonoverlapping(at, vector.as_mut_ptr(), columns.min(LANES)) };
                vector
            }
            unsafe fn load_sums(at: *const $sum, columns: usize) -> [$sum; LANES] {
                let mut vector = zero();
                // SAFETY: the caller's promise.
                unsafe { std::ptr::copy_nonoverlapping(at, vector.as_mut_ptr(), columns.min(LANES)) };
                vector
            }
            unsafe fn store_sums(at: *mut $sum, columns: usize, vector: [$sum; LANES]) {
                // SAFETY: the caller's promise.
                unsafe { std::ptr::copy_nonoverlapping(vector.as_ptr(), at, columns.min(LANES)) }
            }
            fn add_sums(before: [$sum; LANES], sums: [$sum; LANES]) -> [$sum; LANES] {
                let one: fn($sum, $sum) -> $sum = $add;
                std::array::from_fn(|i| one(before[i], sums[i]))
            }
            #[inline(always)]
            fn multiply_add(sums: [$sum; LANES], left: $unit, right: [$unit; LANES]) -> [$sum; LANES] {
                let one: fn($sum, $unit, $unit) -> $sum = $multiply_add;
                std::array::from_fn(|i| one(sums[i], left, right[i]))
            }
            block!($unit, $sum, LANES, [], [1 2 3 4]);
        }
    };
}

/// Two 16-bit integers in one unit.
#[inline(always)]
pub(crate) fn halves(pair: u32) -> [i32; 2] {
    [i32::from(pair as u16 as i16), i32::from((pair >> 16) as u16 as i16)]
}

pub(in crate::tiles) mod portable {
    portable!(f32s, f32, f32, |a, b| a + b, |sum, a, b| sum + a * b);
    portable!(f64s, f64, f64, |a, b| a + b, |sum, a, b| sum + a * b);
    portable!(i32s, i32, i32, i32::wrapping_add, |sum, a, b| sum.wrapping_add(a.wrapping_mul(b)));
    portable!(i16_pairs, u32, i32, i32::wrapping_add, |sum, a, b| {
        let ([a, c], [b, d]) = (super::super::halves(a), super::super::halves(b));
        sum.wrapping_add((a * b).wrapping_add(c * d))
    });
}

#[cfg(target_arch = "x86_64")]
macro_rules! x86 {
    (
        $name:ident, $feature:literal, $unit:ty, $sum:ty, $lanes:literal, rows $rows:tt,
        mask $mask:ty = $make_mask:expr, units $units:ty = $load:expr, splat $splat:expr,
        sums $sums:ty = $load_sums:expr, store $store:expr, zero $zero:expr, add $add:expr,
        multiply_add $multiply_add:expr
    ) => {
        pub(in crate::tiles) mod $name {
            use super::super::{AHEAD, Block, FAR, Micro, prefetch};
            use std::arch::x86_64::*;

            #[target_feature(enable = $feature)]
            #[inline]
            fn mask(columns: usize) -> $mask {
                $make_mask(columns)
            }
            #[target_feature(enable = $feature)]
            #[inline]
            fn zero() -> $sums {
                $zero
            }
            #[target_feature(enable = $feature)]
            #[inline]
            unsafe fn splat(at: *const $unit) -> $units {
                // SAFETY: the caller's promise that the unit is there.
                unsafe { $splat(at) }
            }
            #[target_feature(enable = $feature)]
            #[inline]
            unsafe fn load(at: *const $unit, mask: $mask) -> $units {
                // SAFETY: the caller's promise that the columns in the mask are there.
                unsafe { $load(at, mask) }
            }
            #[target_feature(enable = $feature)]
            #[inline]
            unsafe fn load_sums(at: *const $sum, mask: $mask) -> $sums {
                // SAFETY: as above.
                unsafe { $load_sums(at, mask) }
            }
            #[target_feature(enable = $feature)]
            #[inline]
            unsafe fn store_sums(at: *mut $sum, mask: $mask, vector: $sums) {
                // SAFETY: as above.
                unsafe { $store(at, mask, vector) }
            }
            #[target_feature(enable = $feature)]
            #[inline]
            fn add_sums(before: $sums, sums: $sums) -> $sums {
                $add(before, sums)
            }
            #[target_feature(enable = $feature)]
            #[inline]
            fn multiply_add(sums: $sums, left: $units, right: $units) -> $sums {
                $multiply_add(sums, left, right)
            }
            block!($unit, $sum, $lanes, [$feature], $rows);
        }
    };
}

/// Vectors of 512 bits.
#[cfg(target_arch = "x86_64")]
pub(in crate::tiles) mod avx512 {
    x86!(f32s, "avx512f", f32, f32, 16, rows [1 2 3 4 5 6 7 8 9 10 11 12 13 14],
        mask __mmask16 = |columns: usize| ((1u32 << columns) - 1) as __mmask16,
        units __m512 = |at, mask| _mm512_maskz_loadu_ps(mask, at),
        splat |at: *const f32| _mm512_set1_ps(*at),
        sums __m512 = |at, mask| _mm512_maskz_loadu_ps(mask, at),
        store |at, mask, vector| _mm512_mask_storeu_ps(at, mask, vector),
        zero _mm512_setzero_ps(),
        add _mm512_add_ps,
        multiply_add |sums, left, right| _mm512_fmadd_ps(left, right, sums));
    x86!(f64s, "avx512f", f64, f64, 8, rows [1 2 3 4 5 6 7 8 9 10 11 12 13 14],
        mask __mmask8 = |columns: usize| ((1u32 << columns) - 1) as __mmask8,
        units __m512d = |at, mask| _mm512_maskz_loadu_pd(mask, at),
        splat |at: *const f64| _mm512_set1_pd(*at),
        sums __m512d = |at, mask| _mm512_maskz_loadu_pd(mask, at),
        store |at, mask, vector| _mm512_mask_storeu_pd(at, mask, vector),
        zero _mm512_setzero_pd(),
        add _mm512_add_pd,
        multiply_add |sums, left, right| _mm512_fmadd_pd(left, right, sums));
    x86!(i32s, "avx512f", i32, i32, 16, rows [1 2 3 4 5 6 7 8 9 10 11 12],
        mask __mmask16 = |columns: usize| ((1u32 << columns) - 1) as __mmask16,
        units __m512i = |at, mask| _mm512_maskz_loadu_epi32(mask, at),
        splat |at: *const i32| _mm512_set1_epi32(*at),
        sums __m512i = |at, mask| _mm512_maskz_loadu_epi32(mask, at),
        store |at, mask, vector| _mm512_mask_storeu_epi32(at, mask, vector),
        zero _mm512_setzero_si512(),
        add _mm512_add_epi32,
        multiply_add |sums, left, right| _mm512_add_epi32(sums, _mm512_mullo_epi32(left, right)));
    /// Pairs of integers of 16 bits, summed up in 32.
    macro_rules! i16s {
        ($name:ident, $features:literal, $rows:tt, $multiply_add:expr) => {
            x86!($name, $features, u32, i32, 16, rows $rows,
                mask __mmask16 = |columns: usize| ((1u32 << columns) - 1) as __mmask16,
                units __m512i = |at: *const u32, mask| _mm512_maskz_loadu_epi32(mask, at.cast()),
                splat |at: *const u32| _mm512_set1_epi32(at.cast::<i32>().read_unaligned()),
                sums __m512i = |at, mask| _mm512_maskz_loadu_epi32(mask, at),
                store |at, mask, vector| _mm512_mask_storeu_epi32(at, mask, vector),
                zero _mm512_setzero_si512(),
                add _mm512_add_epi32,
                multiply_add $multiply_add);
        };
    }
    i16s!(i16_pairs, "avx512f,avx512bw", [1 2 3 4 5 6 7 8 9 10 11 12],
        |sums, left, right| _mm512_add_epi32(sums, _mm512_madd_epi16(left, right)));
    i16s!(i16_dots, "avx512f,avx512bw,avx512vnni", [1 2 3 4 5 6 7 8 9 10 11 12 13 14],
        |sums, left, right| _mm512_dpwssd_epi32(sums, left, right));
    x86!(bf16_pairs, "avx512f,avx512bf16", u32, f32, 16, rows [1 2 3 4 5 6 7 8 9 10 11 12 13 14],
    mask __mmask16 = |columns: usize| ((1u32 << columns) - 1) as __mmask16,
    units __m512i = |at: *const u32, mask| _mm512_maskz_loadu_epi32(mask, at.cast()),
    splat |at: *const u32| _mm512_set1_epi32(at.cast::<i32>().read_unaligned()),
    sums __m512 = |at, mask| _mm512_maskz_loadu_ps(mask, at),
    store |at, mask, vector| _mm512_mask_storeu_ps(at, mask, vector),
    zero _mm512_setzero_ps(),
    add _mm512_add_ps,
    // SAFETY: all of them are vectors of 512 bits.
    multiply_add |sums, left: __m512i, right: __m512i| unsafe {
        _mm512_dpbf16_ps(sums, std::mem::transmute::<__m512i, __m512bh>(left), std::mem::transmute::<__m512i, __m512bh>(right))
    });
}

/// Vectors of 256 bits.
#[cfg(target_arch = "x86_64")]
pub(in crate::tiles) mod avx2 {
    /// All bits of the first `columns` lanes.
    static LANES: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    static WIDE_LANES: [i64; 8] = [-1, -1, -1, -1, 0, 0, 0, 0];

    x86!(f32s, "avx,avx2,fma", f32, f32, 8, rows [1 2 3 4 5 6],
        // SAFETY: eight numbers are there for every count up to eight.
        mask __m256i = |columns: usize| unsafe { _mm256_loadu_si256(super::LANES[8 - columns..][..8].as_ptr().cast()) },
        units __m256 = |at, mask| _mm256_maskload_ps(at, mask),
        splat |at: *const f32| _mm256_set1_ps(*at),
        sums __m256 = |at, mask| _mm256_maskload_ps(at, mask),
        store |at, mask, vector| _mm256_maskstore_ps(at, mask, vector),
        zero _mm256_setzero_ps(),
        add _mm256_add_ps,
        multiply_add |sums, left, right| _mm256_fmadd_ps(left, right, sums));
    x86!(f64s, "avx,avx2,fma", f64, f64, 4, rows [1 2 3 4 5 6],
        // SAFETY: four numbers are there for every count up to four.
        mask __m256i = |columns: usize| unsafe { _mm256_loadu_si256(super::WIDE_LANES[4 - columns..][..4].as_ptr().cast()) },
        units __m256d = |at, mask| _mm256_maskload_pd(at, mask),
        splat |at: *const f64| _mm256_set1_pd(*at),
        sums __m256d = |at, mask| _mm256_maskload_pd(at, mask),
        store |at, mask, vector| _mm256_maskstore_pd(at, mask, vector),
        zero _mm256_setzero_pd(),
        add _mm256_add_pd,
        multiply_add |sums, left, right| _mm256_fmadd_pd(left, right, sums));
    x86!(i32s, "avx,avx2", i32, i32, 8, rows [1 2 3 4],
        // SAFETY: eight numbers are there for every count up to eight.
        mask __m256i = |columns: usize| unsafe { _mm256_loadu_si256(super::LANES[8 - columns..][..8].as_ptr().cast()) },
        units __m256i = |at, mask| _mm256_maskload_epi32(at, mask),
        splat |at: *const i32| _mm256_set1_epi32(*at),
        sums __m256i = |at, mask| _mm256_maskload_epi32(at, mask),
        store |at, mask, vector| _mm256_maskstore_epi32(at, mask, vector),
        zero _mm256_setzero_si256(),
        add _mm256_add_epi32,
        multiply_add |sums, left, right| _mm256_add_epi32(sums, _mm256_mullo_epi32(left, right)));
    x86!(i16_pairs, "avx,avx2", u32, i32, 8, rows [1 2 3 4],
        // SAFETY: eight numbers are there for every count up to eight.
        mask __m256i = |columns: usize| unsafe { _mm256_loadu_si256(super::LANES[8 - columns..][..8].as_ptr().cast()) },
        units __m256i = |at: *const u32, mask| _mm256_maskload_epi32(at.cast(), mask),
        splat |at: *const u32| _mm256_set1_epi32((*at) as i32),
        sums __m256i = |at, mask| _mm256_maskload_epi32(at, mask),
        store |at, mask, vector| _mm256_maskstore_epi32(at, mask, vector),
        zero _mm256_setzero_si256(),
        add _mm256_add_epi32,
        multiply_add |sums, left, right| _mm256_add_epi32(sums, _mm256_madd_epi16(left, right)));
}

/// The best of the kernels that this processor can run.
macro_rules! best {
    ($function:ident, $name:ident, $unit:ty, $sum:ty, $($extra:tt)?) => {
        pub(crate) fn $function() -> &'static Micro<$unit, $sum> {
            #[cfg(target_arch = "x86_64")]
            {
                if is_x86_feature_detected!("avx512f") $(&& is_x86_feature_detected!($extra))? {
                    return &avx512::$name::MICRO;
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    return &avx2::$name::MICRO;
                }
            }
            &portable::$name::MICRO
        }
    };
}

best!(f32s, f32s, f32, f32,);
best!(f64s, f64s, f64, f64,);
best!(i32s, i32s, i32, i32,);
best!(i16_plain_pairs, i16_pairs, u32, i32, "avx512bw");

/// The kernel for pairs of i16: the one instruction that multiplies and adds them, where there is one.
pub(crate) fn i16_pairs() -> &'static Micro<u32, i32> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vnni") {
        return &avx512::i16_dots::MICRO;
    }
    i16_plain_pairs()
}

/// The kernel for pairs of bf16, if the processor has instructions for them.
pub(crate) fn bf16_pairs() -> Option<&'static Micro<u32, f32>> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16") {
        return Some(&avx512::bf16_pairs::MICRO);
    }
    None
}

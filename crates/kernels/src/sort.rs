//! Sorting arrays along one dimension by the values of one of them.
//!
//! Keys are mapped to unsigned integers of the same order, paired with their positions, and sorted as such: short rows
//! by comparing, long ones digit by digit. Sorting is always stable, and every array is then put in the order found.

use crate::parallel::{Parallel, Shared};
use half::{bf16, f16};

/// The type of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names of the types")]
pub enum KeyType {
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    Bf16,
    F32,
    F64,
}

impl KeyType {
    /// The size of a key in bytes.
    pub fn bytes(self) -> usize {
        match self {
            KeyType::U8 | KeyType::S8 => 1,
            KeyType::U16 | KeyType::S16 | KeyType::F16 | KeyType::Bf16 => 2,
            KeyType::U32 | KeyType::S32 | KeyType::F32 => 4,
            KeyType::U64 | KeyType::S64 | KeyType::F64 => 8,
        }
    }
}

/// How floats are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FloatOrder {
    /// By value: both zeros are equal, a NaN is above all numbers.
    Numeric,
    /// By the total order of IEEE 754: -NaN, -inf … -0, +0 … inf, NaN.
    Total,
}

/// A sort of arrays of `outer` × `len` × `inner` elements along the middle dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sort {
    /// Elements before the sorted dimension.
    pub outer: usize,
    /// The size of the sorted dimension.
    pub len: usize,
    /// Elements behind the sorted dimension.
    pub inner: usize,
    /// Which array holds the keys.
    pub key: usize,
    /// Their type.
    pub key_type: KeyType,
    /// Their order, if they are floats.
    pub float_order: FloatOrder,
    /// The largest come first.
    pub descending: bool,
}

/// An array that is put in order.
#[derive(Debug)]
pub struct Column<'a> {
    /// Its elements.
    pub data: &'a mut [u8],
    /// The size of one.
    pub element_bytes: usize,
}

/// Rows shorter than this are sorted by comparing: counting digits would cost more.
const SHORT: usize = 96;

impl Sort {
    /// Sorts in place. `None`, and nothing is done, if an array has not the size that the sort says.
    pub fn run(&self, columns: &mut [Column<'_>], parallel: &dyn Parallel) -> Option<()> {
        let rows = self.outer.checked_mul(self.inner)?;
        let elements = rows.checked_mul(self.len)?;
        u32::try_from(self.len).ok()?;
        let is_right = |c: &Column<'_>| c.element_bytes.checked_mul(elements) == Some(c.data.len());
        if !columns.iter().all(is_right) || columns.get(self.key)?.element_bytes != self.key_type.bytes() {
            return None;
        }
        if self.len < 2 || rows == 0 {
            return Some(());
        }
        let columns: Vec<(Shared<'_, u8>, usize)> =
            columns.iter_mut().map(|c| (Shared::new(c.data), c.element_bytes)).collect();
        // A few microseconds of work at a time.
        let chunk = (2048 / self.len).max(1);
        parallel.each(rows, chunk, &|begin, end| {
            let mut scratch = Scratch::default();
            for row in begin..end {
                self.row(row, &columns, &mut scratch);
            }
        });
        Some(())
    }

    fn row(&self, row: usize, columns: &[(Shared<'_, u8>, usize)], scratch: &mut Scratch) {
        let first = row / self.inner * self.len * self.inner + row % self.inner;
        let (keys, size) = &columns[self.key];
        let place = |i: usize| first + i * self.inner;
        if self.key_type.bytes() <= 4 {
            scratch.pairs.clear();
            scratch.pairs.extend((0..self.len).map(|i| {
                // SAFETY: the row is this thread's.
                let key = self.ordered(unsafe { keys.slice(place(i) * size, place(i) * size + size) });
                (key << 32) | i as u64
            }));
            sort_pairs(&mut scratch.pairs, &mut scratch.other, 8 * self.key_type.bytes() as u32);
            scratch.order.clear();
            scratch.order.extend(scratch.pairs.iter().map(|&p| p as u32));
        } else {
            scratch.wide.clear();
            scratch.wide.extend((0..self.len).map(|i| {
                // SAFETY: the row is this thread's.
                (self.ordered(unsafe { keys.slice(place(i) * size, place(i) * size + size) }), i as u32)
            }));
            scratch.wide.sort_unstable();
            scratch.order.clear();
            scratch.order.extend(scratch.wide.iter().map(|p| p.1));
        }
        for (data, size) in columns {
            let (order, bytes) = (&scratch.order, &mut scratch.bytes);
            match *size {
                1 => reorder(data, 1, place, order, bytes),
                2 => reorder(data, 2, place, order, bytes),
                4 => reorder(data, 4, place, order, bytes),
                8 => reorder(data, 8, place, order, bytes),
                other => reorder(data, other, place, order, bytes),
            }
        }
    }

    /// The key as an integer that orders as the sort does.
    #[inline(always)]
    fn ordered(&self, bytes: &[u8]) -> u64 {
        let raw = match *bytes {
            [a] => u64::from(a),
            [a, b] => u64::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
            _ => bytes.try_into().map_or(0, u64::from_le_bytes),
        };
        let sign = 1u64 << (8 * self.key_type.bytes() - 1);
        let mask = sign | (sign - 1);
        let float = |is_nan: bool, is_zero: bool| match self.float_order {
            FloatOrder::Numeric if is_nan => mask,
            FloatOrder::Numeric if is_zero => sign,
            _ if raw & sign != 0 => !raw & mask,
            _ => raw | sign,
        };
        let key = match self.key_type {
            KeyType::U8 | KeyType::U16 | KeyType::U32 | KeyType::U64 => raw,
            KeyType::S8 | KeyType::S16 | KeyType::S32 | KeyType::S64 => raw ^ sign,
            KeyType::F16 => float(f16::from_bits(raw as u16).is_nan(), raw & !sign == 0),
            KeyType::Bf16 => float(bf16::from_bits(raw as u16).is_nan(), raw & !sign == 0),
            KeyType::F32 => float(f32::from_bits(raw as u32).is_nan(), raw & !sign == 0),
            KeyType::F64 => float(f64::from_bits(raw).is_nan(), raw & !sign == 0),
        };
        if self.descending { !key & mask } else { key }
    }
}

/// Memory that one row after another uses.
#[derive(Default)]
struct Scratch {
    pairs: Vec<u64>,
    other: Vec<u64>,
    wide: Vec<(u64, u32)>,
    order: Vec<u32>,
    bytes: Vec<u8>,
}

/// Sorts pairs of a key of `bits` bits, above, and a position, below, which are in the order of their positions.
fn sort_pairs(pairs: &mut Vec<u64>, other: &mut Vec<u64>, bits: u32) {
    if pairs.len() < SHORT {
        pairs.sort_unstable();
        return;
    }
    let digit: usize = if bits > 16 { 11 } else { 8 };
    other.clear();
    other.resize(pairs.len(), 0);
    for shift in (0..bits).step_by(digit) {
        let value = |p: u64| ((p >> (32 + shift)) & ((1 << digit) - 1)) as usize;
        let mut starts = vec![0usize; 1 << digit];
        for &p in pairs.iter() {
            starts[value(p)] += 1;
        }
        if starts.contains(&pairs.len()) {
            continue;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += std::mem::replace(start, sum);
        }
        for &p in pairs.iter() {
            let start = &mut starts[value(p)];
            other[*start] = p;
            *start += 1;
        }
        std::mem::swap(pairs, other);
    }
}

/// Puts the elements of a row in `order`. Inlined, so that copies of elements of a known size are single moves.
#[inline(always)]
fn reorder(data: &Shared<'_, u8>, size: usize, place: impl Fn(usize) -> usize, order: &[u32], bytes: &mut Vec<u8>) {
    bytes.clear();
    for &from in order {
        let at = place(from as usize) * size;
        // SAFETY: the row is this thread's.
        bytes.extend_from_slice(unsafe { data.slice(at, at + size) });
    }
    for (i, element) in bytes.chunks_exact(size.max(1)).enumerate() {
        let at = place(i) * size;
        // SAFETY: the row is this thread's.
        unsafe { data.slice(at, at + size) }.copy_from_slice(element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    /// Stable sorting of the middle dimension, with a comparator, by the standard library.
    fn expected<T: Copy>(sort: &Sort, keys: &[T], compare: impl Fn(&T, &T) -> Ordering) -> Vec<u32> {
        let mut positions = vec![0; keys.len()];
        for outer in 0..sort.outer {
            for inner in 0..sort.inner {
                let place = |i: usize| (outer * sort.len + i) * sort.inner + inner;
                let mut order: Vec<usize> = (0..sort.len).collect();
                order.sort_by(|&a, &b| {
                    let order = compare(&keys[place(a)], &keys[place(b)]);
                    if sort.descending { order.reverse() } else { order }
                });
                for (i, from) in order.into_iter().enumerate() {
                    positions[place(i)] = from as u32;
                }
            }
        }
        positions
    }

    /// The positions that the kernel finds, with the keys it leaves.
    fn found(sort: &Sort, keys: Vec<u8>) -> (Vec<u8>, Vec<u32>) {
        let rows = sort.outer * sort.len * sort.inner;
        let mut keys = keys;
        let mut positions: Vec<u8> =
            (0..rows).flat_map(|i| ((i / sort.inner.max(1) % sort.len.max(1)) as u32).to_le_bytes()).collect();
        let mut columns = [
            Column { data: &mut keys, element_bytes: sort.key_type.bytes() },
            Column { data: &mut positions, element_bytes: 4 },
        ];
        sort.run(&mut columns, &Serial).expect("sizes that fit");
        (keys, positions.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect())
    }

    fn sizes() -> impl Strategy<Value = (usize, usize, usize)> {
        prop_oneof![(1..4usize, 0..40usize, 1..4usize), (1..3usize, 90..700usize, 1..3usize)]
    }

    fn sort(sizes: (usize, usize, usize), key_type: KeyType, float_order: FloatOrder, descending: bool) -> Sort {
        Sort { outer: sizes.0, len: sizes.1, inner: sizes.2, key: 0, key_type, float_order, descending }
    }

    proptest! {
        #[test]
        fn integers((sizes, keys) in sizes().prop_flat_map(|s| {
            (Just(s), prop::collection::vec(any::<i32>().prop_map(|x| if x % 3 == 0 { x % 50 } else { x }), s.0 * s.1 * s.2))
        }), descending: bool) {
            let sort = sort(sizes, KeyType::S32, FloatOrder::Total, descending);
            let (sorted, positions) = found(&sort, keys.iter().flat_map(|k| k.to_le_bytes()).collect());
            prop_assert_eq!(&positions, &expected(&sort, &keys, i32::cmp));
            prop_assert_eq!(sorted.len(), keys.len() * 4);
        }

        #[test]
        fn wide_floats((sizes, keys) in sizes().prop_flat_map(|s| {
            (Just(s), prop::collection::vec(any::<f64>(), s.0 * s.1 * s.2))
        }), descending: bool) {
            let sort = sort(sizes, KeyType::F64, FloatOrder::Total, descending);
            let (_, positions) = found(&sort, keys.iter().flat_map(|k| k.to_le_bytes()).collect());
            prop_assert_eq!(&positions, &expected(&sort, &keys, f64::total_cmp));
        }

        #[test]
        fn small_floats_by_value((sizes, keys) in sizes().prop_flat_map(|s| {
            (Just(s), prop::collection::vec(any::<u16>().prop_map(|b| bf16::from_bits(b & 0xf0ff)), s.0 * s.1 * s.2))
        }), descending: bool) {
            let sort = sort(sizes, KeyType::Bf16, FloatOrder::Numeric, descending);
            let (_, positions) = found(&sort, keys.iter().flat_map(|k| k.to_bits().to_le_bytes()).collect());
            let compare = |a: &bf16, b: &bf16| match (a.is_nan(), b.is_nan()) {
                (false, false) => a.partial_cmp(b).expect("numbers compare"),
                (a, b) => a.cmp(&b),
            };
            prop_assert_eq!(&positions, &expected(&sort, &keys, compare));
        }
    }

    #[test]
    fn wrong_sizes_are_refused() {
        let sort = sort((2, 3, 1), KeyType::F32, FloatOrder::Total, false);
        let mut keys = [0u8; 23];
        assert!(sort.run(&mut [Column { data: &mut keys, element_bytes: 4 }], &Serial).is_none());
        assert!(sort.run(&mut [], &Serial).is_none());
    }
}

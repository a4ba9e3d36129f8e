//! Sorting arrays along one dimension by the values of one of them, or of several, the first counting most.
//!
//! Keys are mapped to unsigned integers of the same order, paired with their positions, and sorted as such: short rows
//! by comparing, long ones digit by digit. Sorting is always stable, so that several keys are sorted by one after another,
//! the last first. Every array is then put in the order found.

use crate::order::Order;
use crate::parallel::{Parallel, Shared};

/// A sort of arrays of `outer` × `len` × `inner` elements along the middle dimension.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sort {
    /// Elements before the sorted dimension.
    pub outer: usize,
    /// The size of the sorted dimension.
    pub len: usize,
    /// Elements behind the sorted dimension.
    pub inner: usize,
    /// What is sorted by, the first counting most.
    pub keys: Vec<Key>,
}

/// What is sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// Which array.
    pub column: usize,
    /// Its order.
    pub order: Order,
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
        let fits = |k: &Key| columns.get(k.column).is_some_and(|c| c.element_bytes == k.order.key_type.bytes());
        if !columns.iter().all(is_right) || !self.keys.iter().all(fits) {
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
        let place = |i: usize| first + i * self.inner;
        scratch.order.clear();
        scratch.order.extend(0..self.len as u32);
        for key in self.keys.iter().rev() {
            let (data, size) = &columns[key.column];
            scratch.keys.clear();
            if self.inner == 1 {
                // SAFETY: the row is this thread's.
                let line = unsafe { data.slice(first * size, (first + self.len) * size) };
                key.order.keys(line, &mut scratch.keys);
            } else {
                scratch.bytes.clear();
                for i in 0..self.len {
                    // SAFETY: as above.
                    scratch.bytes.extend_from_slice(unsafe { data.slice(place(i) * size, (place(i) + 1) * size) });
                }
                key.order.keys(&scratch.bytes, &mut scratch.keys);
            }
            let keys = &scratch.keys;
            let value = |i: u32| keys[i as usize];
            let bits = key.order.key_type.key_bits();
            if bits <= 32 {
                scratch.pairs.clear();
                let pairs = scratch.order.iter().zip(0..).map(|(&i, n): (&u32, u64)| (value(i) << 32) | n);
                scratch.pairs.extend(pairs);
                sort_pairs(&mut scratch.pairs, &mut scratch.other, bits);
                let next = scratch.pairs.iter().map(|&p| scratch.order[p as u32 as usize]);
                scratch.next.clear();
                scratch.next.extend(next);
            } else {
                scratch.wide.clear();
                scratch.wide.extend(scratch.order.iter().zip(0..).map(|(&i, n): (&u32, u32)| (value(i), n)));
                scratch.wide.sort_unstable();
                scratch.next.clear();
                scratch.next.extend(scratch.wide.iter().map(|p| scratch.order[p.1 as usize]));
            }
            std::mem::swap(&mut scratch.order, &mut scratch.next);
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
}

/// Memory that one row after another uses.
#[derive(Default)]
struct Scratch {
    pairs: Vec<u64>,
    other: Vec<u64>,
    wide: Vec<(u64, u32)>,
    keys: Vec<u64>,
    order: Vec<u32>,
    next: Vec<u32>,
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
    use crate::order::{FloatOrder, KeyType};
    use half::bf16;
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
                    if sort.keys[0].order.descending { order.reverse() } else { order }
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
            Column { data: &mut keys, element_bytes: sort.keys[0].order.key_type.bytes() },
            Column { data: &mut positions, element_bytes: 4 },
        ];
        sort.run(&mut columns, &Serial).expect("sizes that fit");
        (keys, positions.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect())
    }

    fn sizes() -> impl Strategy<Value = (usize, usize, usize)> {
        prop_oneof![(1..4usize, 0..40usize, 1..4usize), (1..3usize, 90..700usize, 1..3usize)]
    }

    fn sort(sizes: (usize, usize, usize), key_type: KeyType, float_order: FloatOrder, descending: bool) -> Sort {
        let key = Key { column: 0, order: Order { key_type, float_order, descending } };
        Sort { outer: sizes.0, len: sizes.1, inner: sizes.2, keys: vec![key] }
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
    fn the_first_key_counts_most() {
        let order = |key_type, descending| Order { key_type, float_order: FloatOrder::Total, descending };
        let keys = vec![
            Key { column: 1, order: order(KeyType::U8, true) },
            Key { column: 0, order: order(KeyType::S64, false) },
        ];
        let mut wide: Vec<u8> = [3i64, -1, 2, -5, 2].iter().flat_map(|x| x.to_le_bytes()).collect();
        let (mut small, mut places) = (vec![1u8, 2, 2, 1, 2], vec![0u8, 1, 2, 3, 4]);
        let mut columns = [
            Column { data: &mut wide, element_bytes: 8 },
            Column { data: &mut small, element_bytes: 1 },
            Column { data: &mut places, element_bytes: 1 },
        ];
        Sort { outer: 1, len: 5, inner: 1, keys }.run(&mut columns, &Serial).expect("sizes that fit");
        assert_eq!((small, places), (vec![2, 2, 2, 1, 1], vec![1, 2, 4, 3, 0]));
    }

    #[test]
    fn wrong_sizes_are_refused() {
        let sort = sort((2, 3, 1), KeyType::F32, FloatOrder::Total, false);
        let mut keys = [0u8; 23];
        assert!(sort.run(&mut [Column { data: &mut keys, element_bytes: 4 }], &Serial).is_none());
        assert!(sort.run(&mut [], &Serial).is_none());
    }
}

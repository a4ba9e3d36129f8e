//! The first few of each row in some order, with their positions.

use crate::order::Order;
use crate::parallel::{Parallel, Shared};

/// A choice of `k` of each row of `len` elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopK {
    /// How many rows there are.
    pub rows: usize,
    /// Their size.
    pub len: usize,
    /// How many are wanted of each.
    pub k: usize,
    /// Which come first; among equals the one that stands first.
    pub order: Order,
}

impl TopK {
    /// Writes the first elements of each row and where they stand. `None`, and nothing is done, if an array has not the
    /// size that this says.
    pub fn run(&self, input: &[u8], values: &mut [u8], places: &mut [i32], parallel: &dyn Parallel) -> Option<()> {
        let size = self.order.key_type.bytes();
        let bytes = |n: usize| self.rows.checked_mul(n)?.checked_mul(size);
        let fits = input.len() == bytes(self.len)? && values.len() == bytes(self.k)?;
        if !fits || places.len() != self.rows * self.k || self.k > self.len || i32::try_from(self.len).is_err() {
            return None;
        }
        let (values, places) = (Shared::new(values), Shared::new(places));
        parallel.each(self.rows, (4096 / self.len.max(1)).max(1), &|begin, end| {
            let (mut chosen, mut keys) = (Vec::new(), Vec::new());
            for row in begin..end {
                let line = &input[row * self.len * size..(row + 1) * self.len * size];
                keys.clear();
                self.order.keys(line, &mut keys);
                self.choose(&keys, &mut chosen);
                for (n, &(_, from)) in chosen.iter().enumerate() {
                    let to = row * self.k + n;
                    let from = from as usize;
                    // SAFETY: the row is this call's.
                    unsafe {
                        values.slice(to * size, (to + 1) * size).copy_from_slice(&line[from * size..(from + 1) * size]);
                        places.write(to, from as i32);
                    }
                }
            }
        });
        Some(())
    }

    /// The first `k` of a row, in order.
    fn choose(&self, keys: &[u64], chosen: &mut Vec<(u64, u32)>) {
        chosen.clear();
        if self.k == 0 {
            return;
        }
        // Twice as many as wanted are kept before the rest of them is dropped: then only what beats the last of the
        // wanted is looked at any more.
        let room = (2 * self.k).max(64);
        let mut limit = u64::MAX;
        for (part, first) in keys.chunks(16).zip((0..).step_by(16)) {
            // Of most parts nothing is wanted.
            if chosen.len() >= self.k && !part.iter().fold(false, |any, &key| any | (key < limit)) {
                continue;
            }
            for (&key, n) in part.iter().zip(first..) {
                // An equal one that stands later does not come before.
                if key < limit || chosen.len() < self.k {
                    chosen.push((key, n));
                    if chosen.len() >= room {
                        chosen.select_nth_unstable(self.k - 1);
                        chosen.truncate(self.k);
                        limit = chosen.last().map_or(u64::MAX, |c| c.0);
                    }
                }
            }
        }
        chosen.sort_unstable();
        chosen.truncate(self.k);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;
    use crate::order::{FloatOrder, KeyType};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_sorting_would_give(
            (len, k, numbers) in (1..300usize).prop_flat_map(|len| {
                (Just(len), 0..=len, prop::collection::vec(any::<i16>().prop_map(|x| f32::from(x % 40)), 2 * len))
            }),
            descending: bool,
        ) {
            let order = Order { key_type: KeyType::F32, float_order: FloatOrder::Total, descending };
            let input: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            let (mut values, mut places) = (vec![0; 2 * k * 4], vec![0; 2 * k]);
            TopK { rows: 2, len, k, order }.run(&input, &mut values, &mut places, &Serial).expect("sizes that fit");
            for row in 0..2 {
                let line = &numbers[row * len..(row + 1) * len];
                let mut expected: Vec<usize> = (0..len).collect();
                expected.sort_by(|&a, &b| {
                    let order = line[a].total_cmp(&line[b]);
                    if descending { order.reverse() } else { order }
                });
                let found: Vec<usize> = places[row * k..(row + 1) * k].iter().map(|&p| p as usize).collect();
                prop_assert_eq!(&found, &expected[..k]);
            }
        }
    }
}

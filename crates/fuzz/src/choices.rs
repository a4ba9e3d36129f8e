//! Where a generator's choices come from: a seed, or the bytes of a fuzzer.
//!
//! The same seed or bytes give the same choices on every machine and in every version of the toolchain. A choice made
//! from bytes takes few of them, so that a fuzzer that changes one byte changes one choice; when the bytes are used up
//! every further choice is the first, and generators are written so that the first choice ends things.

/// A stream of choices.
#[derive(Clone, Debug)]
pub struct Choices<'a> {
    bytes: &'a [u8],
    /// The generator's state, where there is a seed.
    state: Option<u64>,
    ordinary: bool,
}

impl<'a> Choices<'a> {
    /// Choices by `seed`, without end.
    pub fn from_seed(seed: u64) -> Choices<'static> {
        Choices { bytes: &[], state: Some(seed), ordinary: false }
    }

    /// Choices by `bytes`; after them always the first.
    pub fn from_bytes(bytes: &'a [u8]) -> Choices<'a> {
        Choices { bytes, state: None, ordinary: false }
    }

    /// The same, but all numbers in literals are ordinary: small, and no infinities or NaNs.
    pub fn with_ordinary_numbers(self) -> Choices<'a> {
        Choices { ordinary: true, ..self }
    }

    /// Whether all numbers in literals are ordinary.
    pub fn ordinary_numbers(&self) -> bool {
        self.ordinary
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.take(8)
    }

    /// A number less than `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        match n {
            0 | 1 => 0,
            2..=256 => self.take(1) as usize % n,
            257..=65536 => self.take(2) as usize % n,
            _ => (self.take(8) % n as u64) as usize,
        }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below(usize::try_from(high.saturating_sub(low).saturating_add(1)).unwrap_or(0)) as i64
    }

    /// True in `percent` of cases; false when the bytes are used up.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) >= 100 - percent.min(99)
    }

    /// One of `items`. The list must not be empty.
    pub fn pick<'b, T>(&mut self, items: &'b [T]) -> &'b T {
        &items[self.below(items.len())]
    }

    /// Puts `items` in any order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            // The first choice leaves the list as it is.
            items.swap(i, i - self.below(i + 1));
        }
    }

    /// Some of `0..n`, in order.
    pub fn subset(&mut self, n: usize) -> Vec<usize> {
        (0..n).filter(|_| self.chance(50)).collect()
    }

    fn take(&mut self, n: usize) -> u64 {
        if let Some(state) = &mut self.state {
            return split_mix(state);
        }
        let (taken, rest) = self.bytes.split_at(n.min(self.bytes.len()));
        self.bytes = rest;
        taken.iter().fold(0, |value, &b| value << 8 | u64::from(b))
    }
}

/// The SplitMix64 generator: one step, one well-mixed number.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_run_out_into_first_choices() {
        let mut choices = Choices::from_bytes(&[7, 200]);
        assert_eq!(choices.below(4), 3);
        assert!(choices.chance(1) == (200 % 100 >= 99) && !choices.chance(99));
        assert_eq!((choices.below(9), choices.bits(), choices.between(-3, 5)), (0, 0, -3));
        let mut list = [1, 2, 3];
        choices.shuffle(&mut list);
        assert_eq!(list, [1, 2, 3]);
    }

    #[test]
    fn seeds_give_the_same_choices_again() {
        let draw = |seed| {
            let mut choices = Choices::from_seed(seed);
            (0..20).map(|_| choices.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}

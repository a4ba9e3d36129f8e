//! A short list of device axes, held in place.
//!
//! Choosing how operations are cut makes and compares these lists by the thousand, so one is a value of three words: it is
//! copied, compared and hashed as such. Kept true: bytes behind the last axis are zero.

use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

const BYTES: usize = 24;

/// A list of axes, the most significant first. An axis is in a list once at most.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct AxisList {
    /// The axes, and in the last byte how many there are.
    bytes: [u8; BYTES],
}

impl AxisList {
    /// No list has more axes: a grid of more is refused before any list of its axes is made.
    pub const CAPACITY: usize = BYTES - 1;

    /// The empty list.
    pub const fn new() -> AxisList {
        AxisList { bytes: [0; BYTES] }
    }
    /// The list of those axes.
    pub fn from_slice(axes: &[u8]) -> AxisList {
        let mut list = AxisList::new();
        list.extend_from_slice(axes);
        list
    }
    /// Adds an axis at the end.
    pub fn push(&mut self, axis: u8) {
        let n = self.len();
        assert!(n < AxisList::CAPACITY, "a list has an axis twice");
        self.bytes[n] = axis;
        self.bytes[BYTES - 1] = n as u8 + 1;
    }
    /// Adds axes at the end.
    pub fn extend_from_slice(&mut self, axes: &[u8]) {
        axes.iter().for_each(|&a| self.push(a));
    }
    /// Keeps the first `n` axes.
    pub fn truncate(&mut self, n: usize) {
        if n < self.len() {
            self[n..].fill(0);
            self.bytes[BYTES - 1] = n as u8;
        }
    }
    /// Removes all axes.
    pub fn clear(&mut self) {
        *self = AxisList::new();
    }
    /// Keeps the axes for which `keep` holds.
    pub fn retain(&mut self, keep: impl Fn(u8) -> bool) {
        *self = self.iter().copied().filter(|&a| keep(a)).collect();
    }
}

impl Deref for AxisList {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.bytes[BYTES - 1])]
    }
}

impl DerefMut for AxisList {
    fn deref_mut(&mut self) -> &mut [u8] {
        let n = usize::from(self.bytes[BYTES - 1]);
        &mut self.bytes[..n]
    }
}

impl Hash for AxisList {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (words, _) = self.bytes.as_chunks::<8>();
        let [first, rest @ ..] = words else { return };
        // Most lists are within the first word: their length takes the place of its last byte, which they leave zero.
        state.write_u64(u64::from_le_bytes(*first) ^ (self.len() as u64) << 56);
        if self.len() >= 8 {
            rest.iter().for_each(|&w| state.write_u64(u64::from_ne_bytes(w)));
        }
    }
}

impl std::fmt::Debug for AxisList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Extend<u8> for AxisList {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, axes: I) {
        axes.into_iter().for_each(|a| self.push(a));
    }
}

impl FromIterator<u8> for AxisList {
    fn from_iter<I: IntoIterator<Item = u8>>(axes: I) -> AxisList {
        let mut list = AxisList::new();
        list.extend(axes);
        list
    }
}

impl<'l> IntoIterator for &'l AxisList {
    type Item = &'l u8;
    type IntoIter = std::slice::Iter<'l, u8>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for AxisList {
    type Item = u8;
    type IntoIter = std::iter::Take<std::array::IntoIter<u8, BYTES>>;
    fn into_iter(self) -> Self::IntoIter {
        let n = self.len();
        self.bytes.into_iter().take(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_same_axes_are_equal_however_they_came_about() {
        let mut list = AxisList::from_slice(&[3, 1, 2]);
        list.truncate(1);
        assert_eq!(list, AxisList::from_slice(&[3]));
        list.extend([5, 4]);
        list.retain(|a| a != 5);
        assert_eq!(list, AxisList::from_slice(&[3, 4]));
        list.clear();
        assert_eq!(list, AxisList::new());
        let full: AxisList = (0..AxisList::CAPACITY as u8).collect();
        assert_eq!(full.len(), AxisList::CAPACITY);
        assert!(full.into_iter().eq(0..AxisList::CAPACITY as u8));
    }
}

//! Columns that are laid out once, by all threads, for all tiles of a product that need them.

use super::pack::SLACK;
use super::{Columns, DEPTH, scratch};
use crate::parallel::Parallel;
use std::ops::Range;

/// More than this is not kept in memory at once.
const MOST_BYTES: usize = 32 << 20;
/// Numbers that one thread lays out at a time at least.
const WORTH_TAKING: usize = 1 << 14;

/// Columns of one product that lie in panels.
#[derive(Clone, Copy, Debug)]
struct Packed<U> {
    start: *const U,
    /// From panel to panel.
    room: usize,
    /// Columns of a panel.
    width: usize,
    /// Numbers in a unit.
    unit: usize,
}

// SAFETY: nothing is written to the panels while they are read.
unsafe impl<U> Sync for Packed<U> {}
// SAFETY: as above.
unsafe impl<U> Send for Packed<U> {}

impl<U: Copy> Columns<U> for Packed<U> {
    unsafe fn pack(&self, columns: Range<usize>, depth: Range<usize>, width: usize, to: *mut U) {
        debug_assert_eq!(width, self.width);
        if let Some((from, _)) = self.in_place(columns.start, depth.start, 1) {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from, to, depth.len().div_ceil(self.unit) * width) };
        }
    }

    fn in_place(&self, column: usize, depth: usize, _: usize) -> Option<(*const U, usize)> {
        debug_assert!(column.is_multiple_of(self.width), "a panel in the middle of another");
        Some((self.start.wrapping_add(column / self.width * self.room + depth / self.unit * self.width), self.width))
    }
}

/// The columns of several products, `n` of each.
pub(crate) struct Source<'a, U> {
    pub(crate) columns: &'a [&'a dyn Columns<U>],
    /// The numbers of a column of each product.
    pub(crate) k: Vec<usize>,
    pub(crate) n: usize,
    /// Numbers in a unit.
    pub(crate) unit: usize,
    /// Columns of a panel.
    pub(crate) width: usize,
}

impl<U: Copy> Source<'_, U> {
    /// Calls `body` with the columns of each product, laid out if there are several tiles one below the other (`down`),
    /// which all multiply by them.
    pub(crate) fn with_packed(&self, down: usize, parallel: &dyn Parallel, body: impl FnOnce(&[&dyn Columns<U>])) {
        let panels = self.n.div_ceil(self.width);
        let room = |k: usize| k.div_ceil(self.unit) * self.width + SLACK;
        let units = self.k.iter().fold(0usize, |sum, &k| sum.saturating_add(panels.saturating_mul(room(k))));
        if down < 2 || units.saturating_mul(size_of::<U>()) > MOST_BYTES {
            return body(self.columns);
        }
        scratch::with_bytes(units * size_of::<U>(), |memory| {
            let mut start = memory.cast::<U>().cast_const();
            let mut packed = Vec::with_capacity(self.k.len());
            for &k in &self.k {
                packed.push(Packed { start, room: room(k), width: self.width, unit: self.unit });
                start = start.wrapping_add(panels * room(k));
            }
            let chunk = WORTH_TAKING.div_ceil((units / (panels * packed.len()).max(1)).max(1));
            parallel.each(panels * packed.len(), chunk, &|begin, end| {
                for at in begin..end {
                    let (product, first) = (at / panels, at % panels * self.width);
                    let columns = first..self.n.min(first + self.width);
                    for depth in (0..self.k[product]).step_by(DEPTH * self.unit) {
                        let Some((to, _)) = packed[product].in_place(first, depth, 1) else { continue };
                        let depth = depth..self.k[product].min(depth + DEPTH * self.unit);
                        // SAFETY: this part of the memory is this thread's; what is overwritten behind it is the next
                        // part of the same panel, which is still to come, or the room behind the panel.
                        unsafe {
                            self.columns[product].pack(columns.clone(), depth, self.width, to.cast_mut());
                        }
                    }
                }
            });
            let packed: Vec<&dyn Columns<U>> = packed.iter().map(|p| p as &dyn Columns<U>).collect();
            body(&packed);
        });
    }
}

//! Products by tiles: what matrix products and convolutions have in common.
//!
//! A [`Gemm`] knows how to lay out lines of both operands for the innermost loops ([`Rows`], [`Columns`]); a tile of its
//! result is computed by one thread, a part of the summed dimension at a time. The rows of a tile are laid out as a whole
//! and stay in the second cache; panels of columns are laid out one by one into the first. Rows that can be read where
//! they are, are. How a product is cut into tiles does not change what is computed.

pub(crate) mod micro;
pub(crate) mod pack;
pub(crate) mod packed;
pub(crate) mod scratch;
#[cfg(test)]
mod tests;

use crate::parallel::grain;
use micro::{Block, Micro};
use pack::SLACK;
use std::ops::Range;

/// Units along the summed dimension that are laid out at once.
pub(crate) const DEPTH: usize = 256;
/// Units from row to row where rows are copied one after the other; no power of two, so that they do not push each other
/// out of the cache.
pub(crate) const ROW: usize = DEPTH + 16;

/// How sums become results of another type.
pub(crate) type Finish<C, O> = fn(&[C], &mut [O]);

/// Rows of the left operand.
pub(crate) trait Rows<U>: Sync {
    /// Lays out rows, or says where they are. `depth` is in numbers and begins with a whole unit; at most [`DEPTH`] units.
    ///
    /// # Safety
    /// There must be room at `to` for [`ROW`] units of each row, and [`SLACK`] behind them.
    unsafe fn place(&self, rows: Range<usize>, depth: Range<usize>, to: *mut U) -> Placed<U>;
}

/// Columns of the right operand.
pub(crate) trait Columns<U>: Sync {
    /// Packs columns as one panel.
    ///
    /// # Safety
    /// There must be room for the panel and [`SLACK`] units behind it.
    unsafe fn pack(&self, columns: Range<usize>, depth: Range<usize>, width: usize, to: *mut U);

    /// Where the columns are and the distance from unit to unit, if they lie side by side, are units, and are best read
    /// there by so many blocks of rows.
    fn in_place(&self, column: usize, depth: usize, times: usize) -> Option<(*const U, usize)> {
        let _ = (column, depth, times);
        None
    }
}

/// Rows where they lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<U> {
    pub(crate) at: *const U,
    /// From row to row.
    pub(crate) row: usize,
    /// From unit to unit.
    pub(crate) step: usize,
}

/// A product of `k` numbers per sum.
pub(crate) struct Gemm<'a, U, C> {
    pub(crate) micro: &'a Micro<U, C>,
    pub(crate) k: usize,
    /// Numbers in a unit.
    pub(crate) unit: usize,
    pub(crate) rows: &'a dyn Rows<U>,
    pub(crate) columns: &'a dyn Columns<U>,
}

/// An operand's lines within a tile.
#[derive(Clone, Copy)]
struct Panels {
    begin: usize,
    end: usize,
    /// Lines of a panel.
    width: usize,
}

impl Panels {
    fn count(self) -> usize {
        (self.end - self.begin).div_ceil(self.width)
    }

    fn lines(self, panel: usize) -> Range<usize> {
        let begin = self.begin + panel * self.width;
        begin..self.end.min(begin + self.width)
    }
}

impl<U: Copy + Default, C: Copy + Default> Gemm<'_, U, C> {
    /// Computes the sums in `rows × columns` to `to`, the first of the tile, rows `to_row` apart.
    ///
    /// # Safety
    /// There must be room for the tile, and nobody else may use it.
    pub(crate) unsafe fn tile(&self, rows: Range<usize>, columns: Range<usize>, to: *mut C, to_row: usize) {
        let (m, n) = (rows.len(), columns.len());
        if m == 0 || n == 0 {
            return;
        }
        if self.k == 0 {
            for row in 0..m {
                // SAFETY: the caller's promise.
                unsafe { std::slice::from_raw_parts_mut(to.add(row * to_row), n) }.fill(C::default());
            }
            return;
        }
        // Rows are cut evenly, so that no block is much smaller than the others.
        let height = m.div_ceil(m.div_ceil(self.micro.rows));
        let down = Panels { begin: rows.start, end: rows.end, width: height };
        let across = Panels { begin: columns.start, end: columns.end, width: self.micro.columns };
        let panel = across.width * self.k.div_ceil(self.unit).min(DEPTH);
        let room = (down.count() * height * ROW + SLACK, panel + SLACK);
        scratch::with_two::<U, _>(room.0, room.1, |rows_at, columns_at| {
            let mut part = Part { product: self, depth: 0..0, down, across, rows_at, columns_at, tile: (to, to_row) };
            for first in (0..self.k).step_by(DEPTH * self.unit) {
                part.depth = first..self.k.min(first + DEPTH * self.unit);
                // SAFETY: the caller's promise, and the room that was asked for.
                unsafe { part.sums() };
            }
        });
    }
}

impl<U: Copy + Default, C: Copy + Default> Gemm<'_, U, C> {
    /// As [`Gemm::tile`], with sums that `finish` makes results of; without it they are the results.
    ///
    /// # Safety
    /// As for [`Gemm::tile`]; without `finish`, `O` must be `C`.
    pub(crate) unsafe fn finished_tile<O>(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        finish: Option<Finish<C, O>>,
        to: *mut O,
        to_row: usize,
    ) {
        let (height, width) = (rows.len(), columns.len());
        let Some(finish) = finish else {
            // SAFETY: the caller's promise.
            return unsafe { self.tile(rows, columns, to.cast(), to_row) };
        };
        scratch::with_bytes(height * width * size_of::<C>(), |sums| {
            let sums = sums.cast::<C>();
            // SAFETY: there is room for the tile, and every sum of it is set; the caller's promise for the results.
            unsafe {
                self.tile(rows, columns, sums, width);
                for row in 0..height {
                    let from = std::slice::from_raw_parts(sums.add(row * width), width);
                    finish(from, std::slice::from_raw_parts_mut(to.add(row * to_row), width));
                }
            }
        });
    }
}

/// A part of the summed dimension of a tile.
struct Part<'p, 'a, U, C> {
    product: &'p Gemm<'a, U, C>,
    depth: Range<usize>,
    down: Panels,
    across: Panels,
    rows_at: *mut U,
    columns_at: *mut U,
    tile: (*mut C, usize),
}

impl<U: Copy + Default, C: Copy> Part<'_, '_, U, C> {
    fn units(&self) -> usize {
        self.depth.len().div_ceil(self.product.unit)
    }

    /// # Safety
    /// As for [`Gemm::tile`], and there must be room for what is laid out.
    unsafe fn sums(&self) {
        let room = self.down.width * ROW;
        // SAFETY (all): the caller's promise.
        let place = |i: usize| unsafe {
            let to = self.rows_at.wrapping_add(i * room);
            self.product.rows.place(self.down.lines(i), self.depth.clone(), to)
        };
        let placed: Vec<Placed<U>> = (0..self.down.count()).map(place).collect();
        for j in 0..self.across.count() {
            let right = unsafe { self.columns(j) };
            for (i, &left) in placed.iter().enumerate() {
                unsafe { self.multiply(i, j, left, right) };
            }
        }
    }

    /// # Safety
    /// As for [`Self::sums`].
    unsafe fn columns(&self, panel: usize) -> (*const U, usize) {
        let (lines, source) = (self.across.lines(panel), self.product.columns);
        if let Some(place) = source.in_place(lines.start, self.depth.start, self.down.count()) {
            return place;
        }
        // SAFETY: the caller's promise.
        unsafe { source.pack(lines, self.depth.clone(), self.across.width, self.columns_at) };
        (self.columns_at, self.across.width)
    }

    /// # Safety
    /// As for [`Gemm::tile`]; the operands must be where it is said.
    unsafe fn multiply(&self, i: usize, j: usize, left: Placed<U>, (rhs, rhs_step): (*const U, usize)) {
        let (rows, columns) = (self.down.lines(i), self.across.lines(j));
        let (to, to_row) = self.tile;
        let at = (rows.start - self.down.begin) * to_row + columns.start - self.across.begin;
        let block = Block {
            rows: rows.len(),
            columns: columns.len(),
            depth: self.units(),
            lhs: left.at,
            lhs_row: left.row,
            lhs_step: left.step,
            rhs,
            rhs_step,
            to: to.wrapping_add(at),
            to_row,
            add: self.depth.start > 0,
        };
        // SAFETY: the caller's promise; `micro` is one that the processor can run.
        unsafe { (self.product.micro.run)(&block) };
    }
}

/// How a matrix of `m × n` sums over `k` numbers is cut into tiles for so many threads: rows and columns of a tile.
///
/// A tile must be large, since it packs what it needs of both operands, and small enough for what is kept of it to stay in
/// the second cache.
pub(crate) fn cut<U, C>(micro: &Micro<U, C>, [m, n, k]: [usize; 3], groups: usize, threads: usize) -> (usize, usize) {
    /// Rows that are kept: as many as fit into the second cache, as deep as they are laid out at once.
    const MOST_KEPT: usize = 352;
    let wanted = if threads > 1 { 3 * threads } else { 1 };
    let (mut down, mut across) = (1usize, 1usize);
    loop {
        let (rows, columns) = (m.div_ceil(down), n.div_ceil(across));
        let too_large = rows > MOST_KEPT;
        let too_few = groups.saturating_mul(down).saturating_mul(across) < wanted;
        let large = rows.saturating_mul(columns).saturating_mul(k) >= 2 * grain::MULTIPLICATIONS;
        // Narrow tiles pack more than they multiply.
        let divisible = rows.max(columns) >= 64;
        if !(too_large || too_few && large && divisible) {
            let whole = |size: usize, part: usize, step: usize| {
                if part == size { part } else { part.next_multiple_of(step).min(size) }
            };
            return (whole(m, rows, micro.rows), whole(n, columns, micro.columns));
        }
        if too_large || rows >= columns { down += 1 } else { across += 1 }
    }
}

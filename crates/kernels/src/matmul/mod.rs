//! Batches of matrix products, from operands that lie in any strides to a dense result.
//!
//! The result is cut into tiles whose sizes depend on the shapes alone. f32 and f64 go to the kernels of `gemm` as they
//! lie. Small floats are never widened as a whole: a tile takes what it needs of both operands, either for the
//! processor's own bf16 products ([`bf16`]) or widened.

mod bf16;
#[cfg(test)]
mod tests;
mod vector;

use crate::number::{Real, Stored};
use crate::parallel::{Parallel, Shared};
use std::any::TypeId;

/// A batch of products `lhs × rhs` of `m × k` and `k × n` matrices. Strides are in elements; the result is dense:
/// batches outermost, then rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Matmul {
    /// The dimensions of the batch, outermost first.
    pub batch: Vec<BatchDim>,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// What is summed over.
    pub k: usize,
    /// From one row of the left operand to the next.
    pub lhs_row: usize,
    /// From one column of the left operand to the next.
    pub lhs_column: usize,
    /// From one row of the right operand to the next.
    pub rhs_row: usize,
    /// From one column of the right operand to the next.
    pub rhs_column: usize,
}

/// A dimension of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchDim {
    /// Its size.
    pub size: usize,
    /// The stride of the left operand along it.
    pub lhs: usize,
    /// The stride of the right operand along it.
    pub rhs: usize,
}

/// A tile of one product.
#[derive(Clone, Copy)]
struct Tile {
    /// Where the matrices of this batch begin.
    lhs: usize,
    rhs: usize,
    output: usize,
    rows: (usize, usize),
    columns: (usize, usize),
}

/// Floating-point operations worth handing to another thread.
const WORTH_SHARING: f64 = 1e6;

impl Matmul {
    /// Multiplies; the sums are kept in the type that `S` computes in, and rounded to `O` once. `None`, and nothing is
    /// done, if a slice is too short.
    pub fn run<S: Stored, O: Stored<Compute = S::Compute>>(
        &self,
        lhs: &[S],
        rhs: &[S],
        output: &mut [O],
        parallel: &dyn Parallel,
    ) -> Option<()> {
        self.check(lhs.len(), rhs.len(), output.len())?;
        let groups = self.groups();
        if groups * self.m * self.n == 0 {
            return Some(());
        }
        if self.k == 0 {
            output[..groups * self.m * self.n].fill(O::store(S::Compute::default()));
            return Some(());
        }
        if self.n == 1 && self.m > 1 {
            return self.transposed().run(rhs, lhs, output, parallel);
        }
        let (tile_m, tile_n) = self.tile();
        let (down, across) = (self.m.div_ceil(tile_m), self.n.div_ceil(tile_n));
        let tiles = groups * down * across;
        let chunk = (WORTH_SHARING / (self.flops() / tiles as f64)).ceil() as usize;
        let output = Shared::new(output);
        parallel.each(tiles, chunk.max(1), &|begin, end| {
            let mut scratch = Scratch::default();
            for at in begin..end {
                let (group, at) = (at / (down * across), at % (down * across));
                let (row, column) = (at / across * tile_m, at % across * tile_n);
                let (lhs_start, rhs_start) = self.offsets(group);
                let tile = Tile {
                    lhs: lhs_start,
                    rhs: rhs_start,
                    output: group * self.m * self.n,
                    rows: (row, self.m.min(row + tile_m)),
                    columns: (column, self.n.min(column + tile_n)),
                };
                self.multiply(tile, lhs, rhs, &output, &mut scratch);
            }
        });
        Some(())
    }

    /// Multiplications and additions.
    pub fn flops(&self) -> f64 {
        2.0 * self.groups() as f64 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// The product of the transposed operands, which is the transposed product.
    fn transposed(&self) -> Matmul {
        Matmul {
            batch: self.batch.iter().map(|b| BatchDim { size: b.size, lhs: b.rhs, rhs: b.lhs }).collect(),
            m: self.n,
            n: self.m,
            k: self.k,
            lhs_row: self.rhs_column,
            lhs_column: self.rhs_row,
            rhs_row: self.lhs_column,
            rhs_column: self.lhs_row,
        }
    }

    fn groups(&self) -> usize {
        self.batch.iter().map(|b| b.size).product()
    }

    /// Where batch number `group` of both operands begins.
    fn offsets(&self, mut group: usize) -> (usize, usize) {
        let (mut lhs, mut rhs) = (0, 0);
        for dim in self.batch.iter().rev() {
            let at = group % dim.size;
            group /= dim.size;
            lhs += at * dim.lhs;
            rhs += at * dim.rhs;
        }
        (lhs, rhs)
    }

    fn check(&self, lhs: usize, rhs: usize, output: usize) -> Option<()> {
        let side = |of: fn(&BatchDim) -> usize, matrix: [(usize, usize); 2]| {
            let mut dims: Vec<(usize, usize)> = self.batch.iter().map(|b| (b.size, of(b))).collect();
            dims.extend(matrix);
            crate::extent(&dims)
        };
        side(|b| b.lhs, [(self.m, self.lhs_row), (self.k, self.lhs_column)]).filter(|&n| n <= lhs)?;
        side(|b| b.rhs, [(self.k, self.rhs_row), (self.n, self.rhs_column)]).filter(|&n| n <= rhs)?;
        let groups = self.batch.iter().try_fold(1usize, |n, b| n.checked_mul(b.size))?;
        groups.checked_mul(self.m)?.checked_mul(self.n).filter(|&n| n <= output).map(|_| ())
    }

    /// The size of tiles: enough of them to share, each large enough to be worth it.
    fn tile(&self) -> (usize, usize) {
        /// No side longer than this: what a tile packs has to stay in the cache.
        const LONGEST: usize = 768;
        let flops = self.flops() / self.groups() as f64;
        let wanted = ((flops / WORTH_SHARING) as usize).clamp(1, 16);
        let (mut m, mut n) = (self.m, self.n);
        // The longer side is cut, at multiples of what the kernels do at once.
        if self.m >= self.n {
            m = self.m.div_ceil(wanted).next_multiple_of(48);
        } else {
            n = self.n.div_ceil(wanted).next_multiple_of(64);
        }
        (m.min(self.m).min(LONGEST), n.min(self.n).min(LONGEST))
    }

    fn multiply<S: Stored, O: Stored<Compute = S::Compute>>(
        &self,
        tile: Tile,
        lhs: &[S],
        rhs: &[S],
        output: &Shared<'_, O>,
        scratch: &mut Scratch<S::Compute>,
    ) {
        let (m, n) = (tile.rows.1 - tile.rows.0, tile.columns.1 - tile.columns.0);
        let lhs = &lhs[tile.lhs + tile.rows.0 * self.lhs_row..];
        let rhs = &rhs[tile.rhs + tile.columns.0 * self.rhs_column..];
        scratch.sums.clear();
        scratch.sums.resize(m * n, S::Compute::default());
        if m <= vector::FEW_ROWS && vector::multiply(self, [m, n], lhs, rhs, &mut scratch.sums) {
            self.store(tile, &scratch.sums, output);
            return;
        }
        if let (Some(lhs), Some(rhs), true) = (same(lhs), same(rhs), O::IS_COMPUTE) {
            let first = tile.output + tile.rows.0 * self.n + tile.columns.0;
            let sizes = [m, n, self.k];
            assert!(crate::extent(&[(m, self.lhs_row), (self.k, self.lhs_column)]).is_some_and(|e| e <= lhs.len()));
            assert!(crate::extent(&[(self.k, self.rhs_row), (n, self.rhs_column)]).is_some_and(|e| e <= rhs.len()));
            let to = output.address(first, (m - 1) * self.n + n).cast::<S::Compute>();
            // SAFETY: the operands lie inside their slices and the tile inside the output, as was just made sure of;
            // tiles do not overlap; `O` is the type that is computed in.
            unsafe {
                let strides = [self.lhs_row, self.lhs_column, self.rhs_row, self.rhs_column].map(|s| s as isize);
                product(sizes, lhs.as_ptr(), rhs.as_ptr(), strides, to, self.n as isize, false);
            }
            return;
        }
        let is_bf16 = TypeId::of::<S>() == TypeId::of::<half::bf16>();
        if !(is_bf16 && bf16::multiply(self, [m, n], raw(lhs), raw(rhs), raw_mut(&mut scratch.sums))) {
            self.widened([m, n], lhs, rhs, scratch);
        }
        self.store(tile, &scratch.sums, output);
    }

    /// Rounds the sums of a tile into their places.
    fn store<O: Stored>(&self, tile: Tile, sums: &[O::Compute], output: &Shared<'_, O>) {
        let n = tile.columns.1 - tile.columns.0;
        for (row, sums) in sums.chunks_exact(n).enumerate() {
            let first = tile.output + (tile.rows.0 + row) * self.n + tile.columns.0;
            // SAFETY: tiles do not overlap, and each is one thread's.
            let to = unsafe { output.slice(first, first + n) };
            pulp::Arch::new().dispatch(
                #[inline(always)]
                || to.iter_mut().zip(sums).for_each(|(to, &sum)| *to = O::store(sum)),
            );
        }
    }

    /// The sums of a tile from operands widened some hundred columns of the left at a time.
    fn widened<S: Stored>(&self, [m, n]: [usize; 2], lhs: &[S], rhs: &[S], scratch: &mut Scratch<S::Compute>) {
        const DEPTH: usize = 256;
        let Scratch { sums, lhs: wide_lhs, rhs: wide_rhs } = scratch;
        for first in (0..self.k).step_by(DEPTH) {
            let k = DEPTH.min(self.k - first);
            widen(&lhs[first * self.lhs_column..], [m, k], [self.lhs_row, self.lhs_column], wide_lhs);
            // Columns of the right operand become rows where they lie closer together.
            let by_columns = self.rhs_row < self.rhs_column;
            let from = &rhs[first * self.rhs_row..];
            let (row, column) = if by_columns {
                widen(from, [n, k], [self.rhs_column, self.rhs_row], wide_rhs);
                (1, k as isize)
            } else {
                widen(from, [k, n], [self.rhs_row, self.rhs_column], wide_rhs);
                (n as isize, 1)
            };
            assert!(sums.len() == m * n && wide_lhs.len() == m * k && wide_rhs.len() == k * n);
            let strides = [k as isize, 1, row, column];
            // SAFETY: all three are dense matrices of these sizes.
            unsafe {
                product([m, n, k], wide_lhs.as_ptr(), wide_rhs.as_ptr(), strides, sums.as_mut_ptr(), n as isize, true);
            }
        }
    }
}

/// Memory that one tile after another uses.
#[derive(Default)]
struct Scratch<C> {
    sums: Vec<C>,
    lhs: Vec<C>,
    rhs: Vec<C>,
}

/// A matrix as a dense one of the type to compute in.
fn widen<S: Stored>(
    from: &[S],
    [rows, columns]: [usize; 2],
    [row_stride, column_stride]: [usize; 2],
    to: &mut Vec<S::Compute>,
) {
    to.clear();
    to.resize(rows * columns, S::Compute::default());
    let arch = pulp::Arch::new();
    for (row, to) in to.chunks_exact_mut(columns).enumerate() {
        let from = &from[row * row_stride..];
        arch.dispatch(
            #[inline(always)]
            || {
                if column_stride == 1 {
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.load());
                } else {
                    let from = from.iter().step_by(column_stride.max(1));
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.load());
                }
            },
        );
    }
}

/// `to` (of dense columns and rows `to_row` apart) = or += `lhs` × `rhs`; `strides` are those of rows and columns.
///
/// # Safety
/// The matrices must be where they are said to be, and nobody else may use `to`.
pub(crate) unsafe fn product<C: Real>(
    [m, n, k]: [usize; 3],
    lhs: *const C,
    rhs: *const C,
    [lhs_row, lhs_column, rhs_row, rhs_column]: [isize; 4],
    to: *mut C,
    to_row: isize,
    add: bool,
) {
    let scale = if add { C::ONE } else { C::default() };
    // SAFETY: the caller's promise.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            to,
            1,
            to_row,
            add,
            lhs,
            lhs_column,
            lhs_row,
            rhs,
            rhs_column,
            rhs_row,
            scale,
            C::ONE,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// The slice as one of the type to compute in, if it is of that type.
pub(crate) fn same<S: Stored>(slice: &[S]) -> Option<&[S::Compute]> {
    // SAFETY: the types are the same.
    S::IS_COMPUTE.then(|| unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), slice.len()) })
}

/// The bits of bf16 numbers.
fn raw<S: Stored>(slice: &[S]) -> &[u16] {
    assert!(TypeId::of::<S>() == TypeId::of::<half::bf16>());
    // SAFETY: a bf16 is a u16.
    unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), slice.len()) }
}

/// What bf16 numbers are summed in.
fn raw_mut<C: Real>(slice: &mut [C]) -> &mut [f32] {
    assert!(TypeId::of::<C>() == TypeId::of::<f32>());
    // SAFETY: it is a slice of f32.
    unsafe { std::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), slice.len()) }
}

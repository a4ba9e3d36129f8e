//! Batches of matrix products, from operands that lie in any strides to a dense result.
//!
//! Products with few rows or columns read the larger operand once, as it lies ([`vector`], [`columns`]), and small ones
//! both; all others are cut into tiles ([`crate::tiles`]), whose kernels are chosen for the type and the processor.

pub(crate) mod columns;
mod combine;
mod split;
#[cfg(test)]
mod tests;
mod vector;

use crate::number::Stored;
use crate::parallel::{Epilogue, Parallel, Shared, grain};
use crate::tiles::micro::Block;
use crate::tiles::pack::{Lines, Pairs, Plain, Way, Widened};
use crate::tiles::packed::Source;
use crate::tiles::{Columns, DEPTH, Finish, Gemm, Placed, ROW, Rows, cut, micro};
use half::{bf16, f16};
use std::any::TypeId;
use std::marker::PhantomData;
use std::ops::Range;

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

/// Integers whose products are summed in 32 bits, wrapping round.
pub trait Integer: Copy + Send + Sync + 'static {
    #[doc(hidden)]
    fn multiply(product: &Matmul, lhs: &[Self], rhs: &[Self], output: &mut [i32], parallel: &dyn Parallel);
}

macro_rules! integers {
    ($($t:ty, $way:ty;)*) => {$(
        impl Integer for $t {
            fn multiply(product: &Matmul, lhs: &[$t], rhs: &[$t], output: &mut [i32], parallel: &dyn Parallel) {
                product.by_tiles::<$t, $way, i32>(lhs, rhs, &Shared::new(output), parallel, None, None);
            }
        }
    )*};
}

integers! {
    i32, Plain;
    i16, Pairs;
    i8, Pairs;
    u8, Pairs;
}

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
        self.compute(lhs, rhs, &Shared::new(output), parallel, None)
    }

    /// As [`Matmul::run`], but each row of the result is handed over as soon as it is there, and kept no longer; rows of all
    /// batches are counted. `None`, and nothing is done, for products that are [not](Matmul::tiles_by_rows) made so.
    pub fn run_with_epilogue<S: Stored, O: Stored<Compute = S::Compute>>(
        &self,
        [lhs, rhs]: [&[S]; 2],
        parallel: &dyn Parallel,
        epilogue: &Epilogue<'_>,
    ) -> Option<()> {
        self.compute::<S, O>(lhs, rhs, &Shared::new(&mut []), parallel, Some(epilogue))
    }

    /// Whether rows of the result can be handed over as they are made, so many at a time.
    pub fn tiles_by_rows(&self, step: usize) -> bool {
        let in_steps = self.groups() == 1 || self.m.is_multiple_of(step.max(1));
        let is_narrow = columns::suits(self) || self.n <= micro::MAX_COLUMNS && self.lies_ready();
        let is_few = is_narrow || self.has_few_rows() || self.has_few_columns();
        in_steps && !is_few && split::part(self).is_none() && self.k > 0 && !self.is_empty()
    }

    fn has_few_rows(&self) -> bool {
        self.m <= vector::FEW && vector::can_read(self)
    }

    fn has_few_columns(&self) -> bool {
        self.n <= vector::FEW_COLUMNS && vector::can_read(&self.transposed())
    }

    /// All of it, to the output or to the epilogue.
    pub(crate) fn compute<S: Stored, O: Stored<Compute = S::Compute>>(
        &self,
        lhs: &[S],
        rhs: &[S],
        output: &Shared<'_, O>,
        parallel: &dyn Parallel,
        epilogue: Option<&Epilogue<'_>>,
    ) -> Option<()> {
        let room = if epilogue.is_some() { usize::MAX } else { output.len() };
        self.check(lhs.len(), rhs.len(), room)?;
        if epilogue.is_some_and(|epilogue| !self.tiles_by_rows(epilogue.step)) {
            return None;
        }
        if self.is_empty() {
            return Some(());
        }
        match split::part(self) {
            _ if self.k == 0 => {
                // SAFETY: the caller's promise that nobody else uses the output.
                unsafe { output.slice(0, self.groups() * self.m * self.n) }.fill(O::default());
                Some(())
            }
            Some(part) => split::run(self, part, [lhs, rhs], output, parallel),
            None => {
                self.multiply(lhs, rhs, output, parallel, epilogue);
                Some(())
            }
        }
    }

    /// Multiplies, with sums of at least one number that are not cut.
    fn multiply<S: Stored, O: Stored<Compute = S::Compute>>(
        &self,
        lhs: &[S],
        rhs: &[S],
        output: &Shared<'_, O>,
        parallel: &dyn Parallel,
        epilogue: Option<&Epilogue<'_>>,
    ) {
        if columns::run(self, lhs, rhs, output, parallel).is_some() {
            return;
        }
        // Short sums are soon made, and then a vector of them is better than a vector for each.
        let is_short = self.k < columns::SHORTEST && self.n > 2 && S::IS_COMPUTE && O::IS_COMPUTE;
        if is_short && self.is_small::<f32, Plain>() {
            if let (Some(lhs), Some(rhs)) = (cast::<S, f32>(lhs), cast::<S, f32>(rhs)) {
                return self.by_tiles::<f32, Plain, O>(lhs, rhs, output, parallel, None, epilogue);
            }
            if let (Some(lhs), Some(rhs)) = (cast::<S, f64>(lhs), cast::<S, f64>(rhs)) {
                return self.by_tiles::<f64, Plain, O>(lhs, rhs, output, parallel, None, epilogue);
            }
        }
        if self.has_few_rows() {
            return vector::run(self, lhs, rhs, output, false, parallel);
        }
        if self.has_few_columns() {
            return vector::run(&self.transposed(), rhs, lhs, output, true, parallel);
        }
        let finish: Finish<f32, O> = |from, to| O::store_all(as_compute::<f32, O>(from), to);
        let finish = (!O::IS_COMPUTE).then_some(finish);
        if let (Some(lhs), Some(rhs)) = (cast::<S, f32>(lhs), cast::<S, f32>(rhs)) {
            self.by_tiles::<f32, Plain, O>(lhs, rhs, output, parallel, finish, epilogue)
        } else if let (Some(lhs), Some(rhs)) = (cast::<S, f64>(lhs), cast::<S, f64>(rhs)) {
            self.by_tiles::<f64, Plain, O>(lhs, rhs, output, parallel, None, epilogue)
        } else if let (Some(lhs), Some(rhs)) = (cast::<S, bf16>(lhs), cast::<S, bf16>(rhs)) {
            match micro::bf16_pairs().is_some() {
                true => self.by_tiles::<bf16, Pairs, O>(lhs, rhs, output, parallel, finish, epilogue),
                false => self.by_tiles::<bf16, Widened, O>(lhs, rhs, output, parallel, finish, epilogue),
            }
        } else if let (Some(lhs), Some(rhs)) = (cast::<S, f16>(lhs), cast::<S, f16>(rhs)) {
            self.by_tiles::<f16, Widened, O>(lhs, rhs, output, parallel, finish, epilogue)
        } else {
            unreachable!("a float that there are no tiles for")
        }
    }

    /// Multiplies integers. `None`, and nothing is done, if a slice is too short.
    pub fn run_integers<S: Integer>(
        &self,
        lhs: &[S],
        rhs: &[S],
        output: &mut [i32],
        parallel: &dyn Parallel,
    ) -> Option<()> {
        self.check(lhs.len(), rhs.len(), output.len())?;
        if self.k == 0 {
            output[..self.groups() * self.m * self.n].fill(0);
        } else if !self.is_empty() {
            S::multiply(self, lhs, rhs, output, parallel);
        }
        Some(())
    }

    fn is_empty(&self) -> bool {
        self.m == 0 || self.n == 0 || self.batch.iter().any(|b| b.size == 0)
    }

    /// Computes tile by tile; without `finish` the result is of the type that is summed in. Says whether `then` has got
    /// its rows.
    fn by_tiles<S: Copy + Send + Sync + 'static, W: Way<S>, O: Copy + Send + Sync + 'static>(
        &self,
        lhs: &[S],
        rhs: &[S],
        output: &Shared<'_, O>,
        parallel: &dyn Parallel,
        finish: Option<Finish<W::Sum, O>>,
        epilogue: Option<&Epilogue<'_>>,
    ) {
        assert!(finish.is_some() || TypeId::of::<W::Sum>() == TypeId::of::<O>(), "sums are results of another type");
        let micro = W::micro();
        if finish.is_none() && self.is_small::<S, W>() {
            return self.in_place::<S, W, O>(lhs, rhs, output, parallel);
        }
        let groups = self.groups();
        let threads = parallel.threads();
        let tile = cut(micro, [self.m, self.n, self.k], groups, threads);
        let panel =
            epilogue.map(|epilogue| (epilogue.panel([self.m, self.n], groups, tile, micro.rows, threads), epilogue));
        let (tile_m, tile_n) = panel.map_or(tile, |(rows, _)| (rows, self.n));
        let (down, across) = (self.m.div_ceil(tile_m), self.n.div_ceil(tile_n));
        let work = tile_m.saturating_mul(tile_n).saturating_mul(self.k).max(1);
        let right = |group: usize| {
            let rhs = &rhs[self.offsets(group).1..];
            Matrix::<S, W>::new(rhs, [self.n, self.rhs_column], [self.k, self.rhs_row])
        };
        let tiles = |packed: Option<&[&dyn Columns<W::Unit>]>, begin: usize, end: usize| {
            for at in begin..end {
                let (group, at) = (at / (down * across), at % (down * across));
                let (row, column) = (at / across * tile_m, at % across * tile_n);
                let (rows, columns) = (row..self.m.min(row + tile_m), column..self.n.min(column + tile_n));
                let lhs = &lhs[self.offsets(group).0..];
                let left = Matrix::<S, W>::new(lhs, [self.m, self.lhs_row], [self.k, self.lhs_column]);
                let right = right(group);
                let columns_of = packed.map_or(&right as &dyn Columns<W::Unit>, |packed| packed[group]);
                let product = Gemm { micro, k: self.k, unit: W::DEPTH, rows: &left, columns: columns_of };
                if let Some((_, epilogue)) = panel {
                    let done = group * self.m + rows.start..group * self.m + rows.end;
                    epilogue.block(done, self.n, |to| {
                        // SAFETY: there is room for the block, which is nobody else's; the types are as said above.
                        unsafe { product.finished_tile(rows, columns, finish, to, self.n) }
                    });
                    continue;
                }
                let first = (group * self.m + rows.start) * self.n + columns.start;
                let to = output.address(first, (rows.len() - 1) * self.n + columns.len());
                // SAFETY: the tile lies inside the output and is nobody else's; the types are as said above.
                unsafe { product.finished_tile(rows, columns, finish, to, self.n) };
            }
        };
        let each_tile = |packed: Option<&[&dyn Columns<W::Unit>]>| {
            let chunk = grain::MULTIPLICATIONS.div_ceil(work);
            parallel.each_in_turn(groups * down * across, chunk, &|begin, end| tiles(packed, begin, end));
        };
        // There may be very many groups of one tile: for those nothing is made beforehand.
        if down < 2 {
            return each_tile(None);
        }
        let right: Vec<Matrix<S, W>> = (0..groups).map(right).collect();
        let right: Vec<&dyn Columns<W::Unit>> = right.iter().map(|r| r as &dyn Columns<W::Unit>).collect();
        let source =
            Source { columns: &right, n: self.n, k: vec![self.k; groups], unit: W::DEPTH, width: micro.columns };
        source.with_packed(down, parallel, |right| each_tile(Some(right)));
    }

    /// Whether nothing need be laid out: one panel of columns of operands that lie as they are read.
    fn is_small<S: Copy, W: Way<S>>(&self) -> bool {
        let collide = collide(self.lhs_row * size_of::<S>()) || collide(self.lhs_column * size_of::<S>());
        W::IN_PLACE && self.n <= W::micro().columns && self.lies_ready() && (!collide || self.m <= 4)
    }

    /// Whether the kernels can read the operands where they lie: short sums, and rows that do not push each other out of
    /// the cache, which depends on their type.
    fn lies_ready(&self) -> bool {
        self.k <= DEPTH && self.rhs_column == 1 && (self.lhs_column == 1 || self.lhs_row == 1)
    }

    /// Computes from where the operands lie, and to where the sums are results.
    fn in_place<S: Copy + Send + Sync + 'static, W: Way<S>, O: Copy + Send + Sync + 'static>(
        &self,
        lhs: &[S],
        rhs: &[S],
        output: &Shared<'_, O>,
        parallel: &dyn Parallel,
    ) {
        /// Blocks that a thread takes at once.
        const BLOCKS: usize = 8;
        let micro = W::micro();
        let height = self.m.div_ceil(self.m.div_ceil(micro.rows));
        let tall = height * BLOCKS;
        let down = self.m.div_ceil(tall);
        let work = tall.min(self.m).saturating_mul(self.n).saturating_mul(self.k).max(1);
        parallel.each(self.groups() * down, grain::MULTIPLICATIONS.div_ceil(work), &|begin, end| {
            for at in begin..end {
                let (group, first) = (at / down, at % down * tall);
                let (left, right) = self.offsets(group);
                let (left, right) = (&lhs[left..], &rhs[right..]);
                let reaches =
                    |data: &[S], dims: [(usize, usize); 2]| crate::extent(&dims).is_some_and(|n| n <= data.len());
                assert!(reaches(left, [(self.m, self.lhs_row), (self.k, self.lhs_column)]), "a short operand");
                assert!(reaches(right, [(self.n, self.rhs_column), (self.k, self.rhs_row)]), "a short operand");
                for row in (first..self.m.min(first + tall)).step_by(height) {
                    let rows = height.min(self.m - row);
                    let to = output.address((group * self.m + row) * self.n, rows * self.n);
                    let block = Block {
                        rows,
                        columns: self.n,
                        depth: self.k,
                        lhs: left.as_ptr().wrapping_add(row * self.lhs_row).cast(),
                        lhs_row: self.lhs_row,
                        lhs_step: self.lhs_column,
                        rhs: right.as_ptr().cast(),
                        rhs_step: self.rhs_row,
                        to: to.cast(),
                        to_row: self.n,
                        add: false,
                    };
                    // SAFETY: the operands are there, and are units; the rows of the result are this thread's, and of
                    // the type that is summed in; `micro` is one that the processor can run.
                    unsafe { (micro.run)(&block) };
                }
            }
        });
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
}

/// The lines of one operand.
struct Matrix<'a, S, W> {
    data: &'a [S],
    line: usize,
    along: usize,
    way: PhantomData<W>,
}

impl<'a, S: Copy, W: Way<S>> Matrix<'a, S, W> {
    /// Lines and numbers in a line, with their strides; all of them must be in `data`.
    fn new(data: &'a [S], [lines, line]: [usize; 2], [depth, along]: [usize; 2]) -> Matrix<'a, S, W> {
        assert!(crate::extent(&[(lines, line), (depth, along)]).is_some_and(|n| n <= data.len()), "a short operand");
        Matrix { data, line, along, way: PhantomData }
    }
}

impl<S: Copy + Sync, W: Way<S>> Matrix<'_, S, W> {
    fn lines(&self, line: usize, depth: usize) -> Lines<S> {
        let first = self.data.as_ptr().wrapping_add(line * self.line + depth * self.along);
        Lines { first, line: self.line, along: self.along }
    }

    /// Whether as many rows as are read at once push each other out of the first cache.
    fn rows_collide(&self) -> bool {
        collide(self.line * size_of::<S>())
    }
}

/// Whether lines so many bytes apart push each other out of the first cache.
fn collide(distance: usize) -> bool {
    const PAGE: usize = 4096;
    distance >= PAGE - 64 && !(64..=PAGE - 64).contains(&(distance % PAGE))
}

impl<S: Copy + Sync, W: Way<S>> Rows<W::Unit> for Matrix<'_, S, W> {
    unsafe fn place(&self, rows: Range<usize>, depth: Range<usize>, to: *mut W::Unit) -> Placed<W::Unit> {
        let from = self.lines(rows.start, depth.start);
        let is_fine = || self.along == 1 && !self.rows_collide();
        if W::IN_PLACE && (rows.len() <= 4 || is_fine()) {
            return Placed { at: from.first.cast(), row: self.line, step: self.along };
        }
        let whole_pairs = self.along == 1 && self.line.is_multiple_of(2) && depth.len().is_multiple_of(2);
        if W::HALVES && whole_pairs && is_fine() {
            return Placed { at: from.first.cast(), row: self.line / 2, step: 1 };
        }
        // SAFETY (all): `new` has made sure of the numbers, the caller of the room.
        if self.along == 1 {
            for row in 0..rows.len() {
                unsafe { W::copy(from.first.add(row * self.line), depth.len(), to.add(row * ROW)) };
            }
            return Placed { at: to, row: ROW, step: 1 };
        }
        unsafe { from.pack::<W>(rows.len(), depth.len(), rows.len(), to) };
        Placed { at: to, row: 1, step: rows.len() }
    }
}

impl<S: Copy + Sync, W: Way<S>> Columns<W::Unit> for Matrix<'_, S, W> {
    unsafe fn pack(&self, columns: Range<usize>, depth: Range<usize>, width: usize, to: *mut W::Unit) {
        let from = self.lines(columns.start, depth.start);
        // SAFETY: `new` has made sure of the numbers, the caller of the room.
        unsafe { from.pack::<W>(columns.len(), depth.len(), width, to) }
    }

    fn in_place(&self, column: usize, depth: usize, times: usize) -> Option<(*const W::Unit, usize)> {
        // A panel that is read once or twice is not worth the writing.
        (W::IN_PLACE && self.line == 1 && times <= 2).then(|| (self.lines(column, depth).first.cast(), self.along))
    }
}

/// The slice as one of `T`, if it is that.
pub(crate) fn cast<S: 'static, T: 'static>(slice: &[S]) -> Option<&[T]> {
    // SAFETY: the types are the same.
    (TypeId::of::<S>() == TypeId::of::<T>())
        .then(|| unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), slice.len()) })
}

/// Sums as what `O` is computed in, which they are.
pub(crate) fn as_compute<C: 'static, O: Stored>(sums: &[C]) -> &[O::Compute] {
    cast(sums).unwrap_or_else(|| unreachable!("sums of another type"))
}

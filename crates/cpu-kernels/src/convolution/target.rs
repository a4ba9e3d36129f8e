//! Where the sums of a convolution go: tiles of them become results, side by side or scattered.

use super::implicit::Dim;
use crate::parallel::Shared;
use crate::tiles::{Finish, Gemm, scratch};
use std::ops::Range;

/// The distance in the result from position to position, if it is one.
pub(super) fn position_stride(dims: &[Dim]) -> Option<usize> {
    let mut joint: Option<(usize, usize)> = None;
    for dim in dims.iter().rev().filter(|d| d.size > 1) {
        joint = match joint {
            None => Some((dim.size, dim.output)),
            Some((n, s)) if dim.output == n * s => Some((n * dim.size, s)),
            Some(_) => return None,
        };
    }
    Some(joint.map_or(1, |j| j.1))
}

/// Where the sums go.
pub(super) struct Target<'a, C, O> {
    pub(super) start: usize,
    pub(super) dims: &'a [Dim],
    pub(super) feature_stride: usize,
    pub(super) output: &'a Shared<'a, O>,
    pub(super) finish: Option<Finish<C, O>>,
}

impl<C: Copy + Default + 'static, O: Copy + Default> Target<'_, C, O> {
    fn offset(&self, position: usize) -> usize {
        let mut left = position;
        let mut offset = self.start;
        for dim in self.dims.iter().rev() {
            offset += left % dim.size * dim.output;
            left /= dim.size;
        }
        offset
    }

    /// Computes a tile.
    pub(super) fn tile<U: Copy + Default>(
        &self,
        product: &Gemm<'_, U, C>,
        rows: Range<usize>,
        columns: Range<usize>,
        features_are_columns: bool,
    ) {
        let (height, width) = (rows.len(), columns.len());
        let stride = position_stride(self.dims);
        let (row_stride, is_dense) = match features_are_columns {
            true => (stride, self.feature_stride == 1 || width == 1),
            false => (Some(self.feature_stride), stride == Some(1)),
        };
        if let (Some(row_stride), true, None) = (row_stride, is_dense, self.finish) {
            let (row, column) = (rows.start, columns.start);
            let first = self.start + row * row_stride + column;
            let to = self.output.address(first, (height - 1) * row_stride + width);
            // SAFETY: the tile lies inside the output, is nobody else's, and of the type that is summed in.
            unsafe { product.tile(rows, columns, to.cast(), row_stride) };
            return;
        }
        scratch::with_bytes(height * width * size_of::<C>(), |sums| {
            let sums = sums.cast::<C>();
            // SAFETY: there is room for the tile, every sum of which is set.
            let sums = unsafe {
                product.tile(rows.clone(), columns.clone(), sums, width);
                std::slice::from_raw_parts(sums, height * width)
            };
            let mut results = vec![O::default(); width];
            for (row, sums) in rows.zip(sums.chunks_exact(width)) {
                let place = |column: usize| match features_are_columns {
                    true => self.offset(row) + column * self.feature_stride,
                    false => self.offset(column) + row * self.feature_stride,
                };
                if is_dense {
                    let first = place(columns.start);
                    // SAFETY: elements of the result lie apart, and these are this thread's.
                    self.store(sums, unsafe { self.output.slice(first, first + width) });
                    continue;
                }
                self.store(sums, &mut results);
                for (column, &result) in columns.clone().zip(&results) {
                    // SAFETY: as above.
                    unsafe { self.output.write(place(column), result) };
                }
            }
        });
    }

    fn store(&self, sums: &[C], to: &mut [O]) {
        match self.finish {
            Some(finish) => finish(sums, to),
            None => {
                assert!(size_of::<C>() == size_of::<O>(), "sums are results of another type");
                // SAFETY: without `finish` the result is of the type that is summed in.
                to.copy_from_slice(unsafe { std::slice::from_raw_parts(sums.as_ptr().cast(), sums.len()) });
            }
        }
    }
}

//! Convolutions of one or two dimensions with few weights, where features lie side by side.
//!
//! With few features the matrix of patches costs more to lay out than to multiply. Here some rows of the image are copied
//! with their padding instead, and the kernels of products read the values under the windows where they lie: next to each
//! other for all taps of a row of the window, and evenly spaced from position to position.

use super::{Axis, Convolution};
use crate::parallel::{Parallel, Shared, grain};
use crate::tiles::micro::Block;
use crate::tiles::pack::Way;
use crate::tiles::scratch;
use std::any::TypeId;

/// Weights that stay in the cache while rows of the result are made of them one after the other.
const MAX_WEIGHTS: usize = 1 << 16;
/// Rows of the result that share a copy of the image's rows, which is to stay in the cache.
const ROWS: usize = 8;

/// Whether a convolution is best done this way.
pub(super) fn suits(c: &Convolution) -> bool {
    let Some(last) = c.axes.last() else { return false };
    let features = c.output_features >= 4
        && c.input_features > 0
        && c.taps() * c.input_features * c.output_features <= MAX_WEIGHTS;
    let side_by_side = c.input_feature_stride == 1
        && c.output_feature_stride == 1
        && last.input_stride == c.input_features
        && last.output_stride >= c.output_features;
    let plain = |a: &Axis| a.base_dilation == 1 && a.stride > 0 && a.window_dilation > 0;
    features
        && side_by_side
        && c.groups == 1
        && c.axes.len() <= 2
        && c.taps() > 1
        && c.axes.iter().all(plain)
        && last.output >= 8
}

/// The sizes that the loops need.
pub(super) struct Shape<'c> {
    c: &'c Convolution,
    pub(super) across: &'c Axis,
    /// None if there is one dimension only.
    pub(super) down: Option<&'c Axis>,
    /// Numbers of a row of the copy.
    pub(super) row: usize,
    /// Runs of numbers that are summed over: in a row of the window, and of each.
    pub(super) runs: usize,
    pub(super) depth: usize,
}

impl<'c> Shape<'c> {
    /// Of a convolution of one or two dimensions.
    pub(super) fn new(c: &'c Convolution) -> Option<Shape<'c>> {
        let (across, down) = (c.axes.last()?, c.axes.len().checked_sub(2).map(|d| &c.axes[d]));
        // Taps of a row of the window that lie side by side are one run.
        let together = across.window_dilation == 1;
        let (runs, depth) = match together {
            true => (1, across.kernel * c.input_features),
            false => (across.kernel, c.input_features),
        };
        let width = (across.output - 1) * across.stride + (across.kernel - 1) * across.window_dilation + 1;
        Some(Shape { c, across, down, row: width * c.input_features, runs, depth })
    }

    /// Rows of the image under so many rows of the result.
    pub(super) fn rows_under(&self, rows: usize) -> usize {
        self.down.map_or(1, |a| (rows - 1) * a.stride + (a.kernel - 1) * a.window_dilation + 1)
    }

    /// Copies rows of an image from `first` on, counted with the padding, and its padding; numbers become what `convert`
    /// makes of them.
    pub(super) fn copy<S: Copy, C: Copy>(
        &self,
        image: &[S],
        first: usize,
        nothing: C,
        to: &mut [C],
        convert: impl Fn(&[S], &mut [C]),
    ) {
        let (features, width) = (self.c.input_features, self.row / self.c.input_features);
        let low = self.across.padding_low.clamp(0, width as isize) as usize;
        let high = (self.across.padding_low + self.across.input as isize).clamp(low as isize, width as isize) as usize;
        for (n, to) in to.chunks_exact_mut(self.row).enumerate() {
            let at = match self.down {
                Some(a) => a.within(first + n).map(|i| i * a.input_stride),
                None => Some(0),
            };
            let Some(at) = at.filter(|_| low < high) else {
                to.fill(nothing);
                continue;
            };
            let from = at + (low as isize - self.across.padding_low) as usize * features;
            to[..low * features].fill(nothing);
            convert(&image[from..from + (high - low) * features], &mut to[low * features..high * features]);
            to[high * features..].fill(nothing);
        }
    }
}

/// Convolves; `O` is `S`, the type that is computed in.
pub(super) fn run<S, W, O>(c: &Convolution, input: &[S], kernel: &[S], output: &Shared<'_, O>, parallel: &dyn Parallel)
where
    S: Copy + Send + Sync + 'static,
    W: Way<S, Unit = S, Sum = S>,
    O: Copy + Send + Sync + 'static,
{
    assert!(TypeId::of::<S>() == TypeId::of::<O>(), "the result is of the type that is computed in");
    let Some(shape) = Shape::new(c) else { return };
    let (across, down) = (shape.across, shape.down);
    let micro = W::micro();
    // The weights: for each panel of features all that is summed over, features side by side.
    let taps = c.tap_weights();
    let panels = c.output_features.div_ceil(micro.columns);
    let panel = c.output_features.div_ceil(panels);
    let mut weights = Vec::with_capacity(panels * panel * taps.len() * c.input_features);
    for first in (0..c.output_features).step_by(panel) {
        for tap in &taps {
            for i in 0..c.input_features {
                let from = tap + i * c.kernel_input_stride;
                let feature = |f: usize| match first + f < c.output_features {
                    true => kernel[from + (first + f) * c.kernel_output_stride],
                    false => W::nothing(),
                };
                weights.extend((0..panel).map(feature));
            }
        }
    }
    let height = down.map_or(1, |a| a.output);
    let blocks = height.div_ceil(ROWS);
    let work = ROWS.min(height) * across.output * c.output_features * c.input_features * taps.len();
    let chunk = grain::MULTIPLICATIONS.div_ceil(work.max(1));
    parallel.each(c.batch * blocks, chunk, &|begin, end| {
        scratch::with_bytes(shape.rows_under(ROWS.min(height)) * shape.row * size_of::<S>(), |at| {
            for unit in begin..end {
                let (image, first) = (unit / blocks, unit % blocks * ROWS);
                let rows = ROWS.min(height - first);
                // SAFETY: there is room for so many rows, of whatever numbers it holds; nobody else has it.
                let copy =
                    unsafe { std::slice::from_raw_parts_mut(at.cast::<S>(), shape.rows_under(rows) * shape.row) };
                let first_under = down.map_or(0, |a| first * a.stride);
                let image_at = &input[image * c.input_batch_stride..];
                shape.copy(image_at, first_under, W::nothing(), copy, |from, to| to.copy_from_slice(from));
                for y in 0..rows {
                    let to = image * c.output_batch_stride + down.map_or(0, |a| (first + y) * a.output_stride);
                    shape.result_row::<S, W, O>(copy, y, &weights, panel, output, to);
                }
            }
        });
    });
}

impl Shape<'_> {
    /// One row of the result, which begins at `to`, from the copy.
    fn result_row<S, W, O>(&self, copy: &[S], y: usize, weights: &[S], panel: usize, output: &Shared<'_, O>, to: usize)
    where
        S: Copy + 'static,
        W: Way<S, Unit = S, Sum = S>,
        O: Copy,
    {
        let (c, micro) = (self.c, W::micro());
        let kernel_rows = self.down.map_or(1, |a| a.kernel);
        let (stride, dilation) = self.down.map_or((0, 0), |a| (a.stride, a.window_dilation));
        // Blocks of positions of about the same size.
        let positions = self.across.output.div_ceil(self.across.output.div_ceil(micro.rows));
        let step = self.across.stride * c.input_features;
        let all = kernel_rows * self.runs * self.depth * panel;
        for x in (0..self.across.output).step_by(positions) {
            let rows = positions.min(self.across.output - x);
            for (n, weights) in weights.chunks_exact(all).enumerate() {
                let feature = n * panel;
                let columns = panel.min(c.output_features - feature);
                let to_row = self.across.output_stride;
                let extent = (rows - 1) * to_row + columns;
                let to = output.address(to + x * to_row + feature, extent).cast::<S>();
                for (run, weights) in weights.chunks_exact(self.depth * panel).enumerate() {
                    let (row, tap) = (y * stride + run / self.runs * dilation, run % self.runs);
                    let from = row * self.row + x * step + tap * self.across.window_dilation * c.input_features;
                    let from = &copy[from..from + (rows - 1) * step + self.depth];
                    let block = Block {
                        rows,
                        columns,
                        depth: self.depth,
                        lhs: from.as_ptr(),
                        lhs_row: step,
                        lhs_step: 1,
                        rhs: weights.as_ptr(),
                        rhs_step: panel,
                        to,
                        to_row,
                        add: run > 0,
                    };
                    // SAFETY: the values lie in `from`, the weights in their slice; these positions are this thread's
                    // alone. The processor has what its own kernels need.
                    unsafe { (micro.run)(&block) };
                }
            }
        }
    }
}

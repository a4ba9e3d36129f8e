//! Convolutions whose windows are as wide as images, where images lie side by side: gradients of kernels, in which what
//! was a feature is an image, and what was a position is a tap.
//!
//! What is summed over are taps. For one row of the window the sums at all positions of a row, for all images, are a product
//! of matrices: its left operand is a row of the input, padded, read where it lies from as many beginnings as there are
//! positions and images, and its right operand a row of the kernel. Nothing but one row at a time is laid out.

use super::{Axis, Convolution};
use crate::parallel::{Parallel, Shared, grain};
use crate::tiles::Finish;
use crate::tiles::micro::Block;
use crate::tiles::pack::{SLACK, Way};
use std::any::TypeId;

/// Sums over fewer taps at once take longer to store than to make.
const MIN_TAPS: usize = 16;
/// Sums of a row of positions at most: they stay in the cache from one row of the window to the next.
const MAX_SUMS: usize = 1 << 16;

/// Whether a convolution is best done this way.
pub(super) fn suits(c: &Convolution) -> bool {
    let Some(last) = c.axes.last() else { return false };
    let images_last = (c.input_batch_stride == 1 || c.batch == 1) && last.input_stride == c.batch;
    let evenly = last.output == 1 || last.output_stride == c.batch * c.output_batch_stride;
    let features = c.kernel_output_stride == 1 && (c.output_feature_stride == 1 || c.output_features == 1);
    let plain = |a: &Axis| a.base_dilation == 1 && !a.reversed;
    let sums = last.output.saturating_mul(c.batch);
    images_last
        && evenly
        && features
        && c.groups == 1
        && c.axes.len() <= 2
        && c.axes.iter().all(plain)
        && last.stride == 1
        && last.kernel >= MIN_TAPS
        && sums >= 4
        && c.output_features >= 8
        && sums.saturating_mul(c.output_features) <= MAX_SUMS
}

/// Whether taps can be taken two at a time: none is left over, whose second number would have to be none for some sums
/// only.
pub(super) fn in_pairs(c: &Convolution) -> bool {
    c.axes.last().is_some_and(|a| a.kernel.is_multiple_of(2))
}

/// A row of a kernel or of the positions of a result, where there is one dimension only.
static ONE_ROW: Axis = Axis {
    input: 1,
    kernel: 1,
    output: 1,
    stride: 1,
    padding_low: 0,
    base_dilation: 1,
    window_dilation: 1,
    reversed: false,
    input_stride: 0,
    kernel_stride: 0,
    output_stride: 0,
};

/// The sizes that the loops need.
struct Shape<'c> {
    c: &'c Convolution,
    across: &'c Axis,
    down: &'c Axis,
    /// From tap to tap in a row of the input.
    step: usize,
    /// Units of a row of the input.
    row: usize,
    /// Rows of the input that are kept: so many that all rows of positions find theirs under one row of the window.
    kept: usize,
    /// Columns of a panel.
    panel: usize,
    panels: usize,
    /// Positions of a row times images.
    sums: usize,
}

/// Convolves; without `finish` the result is of the type that is summed in.
pub(super) fn run<S, W, O>(
    c: &Convolution,
    input: &[S],
    kernel: &[S],
    output: &Shared<'_, O>,
    parallel: &dyn Parallel,
    finish: Option<Finish<W::Sum, O>>,
) where
    S: Copy + Send + Sync + 'static,
    W: Way<S>,
    O: Copy + Default + Send + Sync + 'static,
{
    assert!(finish.is_some() || TypeId::of::<W::Sum>() == TypeId::of::<O>(), "sums are results of another type");
    let (Some(across), down) = (c.axes.last(), c.axes.len().checked_sub(2).map_or(&ONE_ROW, |d| &c.axes[d])) else {
        return;
    };
    let panels = c.output_features.div_ceil(W::micro().columns);
    let step = across.window_dilation * c.batch;
    let taps = across.kernel;
    let shape = Shape {
        c,
        across,
        down,
        step,
        row: (taps - 1) * step + across.output * c.batch,
        kept: (down.output - 1) * down.stride + 1,
        panel: c.output_features.div_ceil(panels),
        panels,
        sums: across.output * c.batch,
    };
    // Each thread makes some rows of positions of some panels.
    let units = shape.panels * down.output;
    let work = shape.sums * shape.panel * c.taps() * c.input_features;
    let chunk = units.div_ceil(parallel.threads().max(1)).max(grain::MULTIPLICATIONS.div_ceil(work.max(1)));
    parallel.each(units, chunk, &|begin, end| {
        let sums = (end - begin) * shape.sums * shape.panel;
        let mut sums = vec![W::Sum::default(); sums];
        shape.add::<S, W>(input, kernel, begin..end, &mut sums);
        for (unit, sums) in (begin..end).zip(sums.chunks_exact(shape.sums * shape.panel)) {
            shape.store(sums, unit, output, finish);
        }
    });
}

impl Shape<'_> {
    /// The panel of columns and the row of positions that a unit of work is.
    fn unit(&self, unit: usize) -> (usize, usize) {
        (unit / self.down.output, unit % self.down.output)
    }

    fn columns(&self, panel: usize) -> usize {
        self.panel.min(self.c.output_features - panel * self.panel)
    }

    /// Adds up everything for some units of work.
    fn add<S: Copy + 'static, W: Way<S>>(
        &self,
        input: &[S],
        kernel: &[S],
        units: std::ops::Range<usize>,
        sums: &mut [W::Sum],
    ) {
        let taps = self.across.kernel.div_ceil(W::DEPTH);
        let mut rows = vec![W::Unit::default(); self.kept * self.row];
        let mut padded = vec![W::nothing(); self.row + self.step];
        let mut weights = vec![W::Unit::default(); if W::IN_PLACE { 0 } else { taps * self.panel + SLACK }];
        for feature in 0..self.c.input_features {
            let image = &input[feature * self.c.input_feature_stride..];
            let mut kept = vec![usize::MAX; self.kept];
            for tap in 0..self.down.kernel {
                let row_of_kernel = feature * self.c.kernel_input_stride + tap * self.down.kernel_stride;
                let mut packed = usize::MAX;
                for (n, unit) in units.clone().enumerate() {
                    let (panel, y) = self.unit(unit);
                    let at = y * self.down.stride + tap * self.down.window_dilation;
                    let Some(index) = self.down.within(at) else { continue };
                    let columns = self.columns(panel);
                    let from = row_of_kernel + panel * self.panel;
                    let extent = (self.across.kernel - 1) * self.across.kernel_stride + columns;
                    let from = &kernel[from..from + extent];
                    if !W::IN_PLACE && packed != panel {
                        self.pack::<S, W>(from, columns, &mut weights);
                        packed = panel;
                    }
                    // SAFETY: a number is a unit, where it is said to be one.
                    let (rhs, rhs_step) = match W::IN_PLACE {
                        true => (from.as_ptr().cast::<W::Unit>(), self.across.kernel_stride),
                        false => (weights.as_ptr(), self.panel),
                    };
                    let slot = at % self.kept;
                    let row = &mut rows[slot * self.row..][..self.row];
                    if kept[slot] != at {
                        kept[slot] = at;
                        self.pad::<S, W>(&image[index * self.down.input_stride..], &mut padded, row);
                    }
                    let sums = &mut sums[n * self.sums * self.panel..][..self.sums * self.panel];
                    self.multiply::<S, W>(row, (rhs, rhs_step), taps, columns, sums);
                }
            }
        }
    }

    /// Adds the product of a row of the input and a row of the kernel.
    fn multiply<S: Copy, W: Way<S>>(
        &self,
        row: &[W::Unit],
        (rhs, rhs_step): (*const W::Unit, usize),
        depth: usize,
        columns: usize,
        sums: &mut [W::Sum],
    ) {
        let micro = W::micro();
        let height = self.sums.div_ceil(self.sums.div_ceil(micro.rows));
        for first in (0..self.sums).step_by(height) {
            let rows = height.min(self.sums - first);
            let lhs_step = self.step * W::DEPTH;
            let lhs = &row[first..first + (depth - 1) * lhs_step + rows];
            let to = &mut sums[first * self.panel..(first + rows) * self.panel];
            let block = Block {
                rows,
                columns,
                depth,
                lhs: lhs.as_ptr(),
                lhs_row: 1,
                lhs_step,
                rhs,
                rhs_step,
                to: to.as_mut_ptr(),
                to_row: self.panel,
                add: true,
            };
            // SAFETY: the values lie in `lhs`, the sums in `to`, the weights where the caller found them. The processor has
            // what its own kernels need.
            unsafe { (micro.run)(&block) };
        }
    }

    /// Lays out a row of the input as units: each of a number and of those under the taps beside it.
    fn pad<S: Copy + 'static, W: Way<S>>(&self, from: &[S], padded: &mut [S], to: &mut [W::Unit]) {
        let (images, width) = (self.c.batch, padded.len() / self.c.batch);
        let padding = self.across.padding_low;
        let low = padding.clamp(0, width as isize) as usize;
        let high = (padding + self.across.input as isize).clamp(low as isize, width as isize) as usize;
        padded[..low * images].fill(W::nothing());
        if low < high {
            let first = (low as isize - padding) as usize * images;
            padded[low * images..high * images].copy_from_slice(&from[first..first + (high - low) * images]);
        }
        padded[high * images..].fill(W::nothing());
        if W::DEPTH == 1 {
            // SAFETY: there are as many units as numbers that are read.
            unsafe { W::copy(padded.as_ptr(), to.len(), to.as_mut_ptr()) };
            return;
        }
        for (to, (&first, &second)) in to.iter_mut().zip(padded.iter().zip(&padded[self.step..])) {
            *to = W::unit(first, second);
        }
    }

    /// Packs a row of the kernel as one panel.
    fn pack<S: Copy, W: Way<S>>(&self, from: &[S], columns: usize, to: &mut [W::Unit]) {
        let (taps, stride) = (self.across.kernel, self.across.kernel_stride);
        if let Some(take) = W::taker() {
            // SAFETY: `from` holds so many lines of so many numbers; there is room for the panel and what may be
            // overwritten behind it.
            unsafe { take(from.as_ptr(), columns, taps, stride, self.panel, to.as_mut_ptr()) };
            return;
        }
        for (n, to) in to.chunks_exact_mut(self.panel).take(taps.div_ceil(W::DEPTH)).enumerate() {
            let tap = n * W::DEPTH;
            for (column, to) in to[..columns].iter_mut().enumerate() {
                let second = if tap + 1 < taps { from.get((tap + 1) * stride + column) } else { None };
                *to = W::unit(from[tap * stride + column], second.copied().unwrap_or(W::nothing()));
            }
        }
    }

    /// Makes results of the sums of a unit of work.
    fn store<C: Copy, O: Copy>(&self, sums: &[C], unit: usize, output: &Shared<'_, O>, finish: Option<Finish<C, O>>) {
        let (panel, y) = self.unit(unit);
        let columns = self.columns(panel);
        for (n, sums) in sums.chunks_exact(self.panel).enumerate() {
            let position = y * self.down.output_stride + n / self.c.batch * self.across.output_stride;
            let first = position + n % self.c.batch * self.c.output_batch_stride + panel * self.panel;
            // SAFETY: elements of the result lie apart, and these are this thread's.
            let to = unsafe { output.slice(first, first + columns) };
            match finish {
                Some(finish) => finish(&sums[..columns], to),
                // SAFETY: without `finish` the result is of the type that is summed in.
                None => to.copy_from_slice(unsafe { std::slice::from_raw_parts(sums.as_ptr().cast(), columns) }),
            }
        }
    }
}

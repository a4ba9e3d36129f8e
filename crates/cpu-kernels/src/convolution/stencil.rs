//! Convolutions of each channel by itself, along one dimension, whose rows lie in a row: a stencil.
//!
//! Rows are read where they lie, and no copy with padding is made of them: what taps above and below the image add is the
//! same for a whole row (zero, or NaN where a weight is not finite), and the few positions whose windows reach over the
//! ends of a row are computed one by one. The others are summed in loops over the row, each for several taps.

use super::{Axis, Convolution, for_each_index};
use crate::number::{Real, Stored};
use crate::parallel::{Parallel, Shared, grain};
use crate::vectors::with_vectors;
use std::ops::Range;

/// Shorter rows are not worth a loop for each.
const SHORTEST: usize = 32;

/// Whether a convolution can be done this way, has rows that are long enough, and windows along one dimension only: what
/// others share from row to row is worth the copy with padding.
pub(super) fn suits<S: Stored>(c: &Convolution) -> bool {
    let Some(last) = c.axes.last() else { return false };
    let in_a_row = last.input_stride == 1 && last.output_stride == 1 && last.stride == 1 && last.output >= SHORTEST;
    let plain = c.axes.iter().all(|a| a.base_dilation == 1);
    let one_way = c.axes.iter().filter(|a| a.kernel > 1).count() <= 1;
    S::IS_COMPUTE && in_a_row && plain && one_way && c.input_features == 1 && c.output_features == 1
}

/// Convolves, if this is the way to; otherwise nothing is done.
pub(super) fn run<S: Stored>(
    c: &Convolution,
    input: &[S],
    kernel: &[S],
    output: &Shared<'_, S>,
    parallel: &dyn Parallel,
) -> Option<()> {
    let (last, outer) = c.axes.split_last()?;
    if !suits::<S>(c) {
        return None;
    }
    let offsets = c.tap_weights();
    let weights = |group: usize| offsets.iter().map(move |w| kernel[w + group * c.kernel_output_stride].load());
    let weights: Vec<S::Compute> = (0..c.groups).flat_map(weights).collect();
    let windows = Windows::new(outer, last);
    let rows: usize = outer.iter().map(|a| a.output).product();
    let work = last.output * offsets.len();
    parallel.each(c.batch * c.groups * rows, grain::MULTIPLICATIONS.div_ceil(work.max(1)), &|begin, end| {
        let mut row = Row { last, taps: Vec::with_capacity(offsets.len()), outside: S::Compute::default() };
        for unit in begin..end {
            let (plane, number) = (unit / rows, unit % rows);
            let (image, group) = (plane / c.groups, plane % c.groups);
            let from = image * c.input_batch_stride + group * c.input_group_stride;
            let to = windows.at_row(number, &weights[group * offsets.len()..][..offsets.len()], &mut row);
            let to = to + image * c.output_batch_stride + group * c.output_feature_stride;
            // SAFETY: elements of the result lie apart, and this row of them is this thread's.
            let sums = unsafe { output.slice(to, to + last.output) };
            with_vectors!(row.sweep(&input[from..], sums));
        }
    });
    Some(())
}

/// What windows look at, a row at a time.
struct Windows<'a> {
    outer: &'a [Axis],
    last: &'a Axis,
    /// The taps of a window along all dimensions but the last, one after the other.
    taps: Vec<usize>,
    /// How many there are of them.
    count: usize,
}

impl<'a> Windows<'a> {
    fn new(outer: &'a [Axis], last: &'a Axis) -> Windows<'a> {
        let mut windows = Windows { outer, last, taps: Vec::new(), count: 0 };
        let sizes: Vec<usize> = outer.iter().map(|a| a.kernel).collect();
        for_each_index(&sizes, |tap| {
            windows.taps.extend(tap);
            windows.count += 1;
        });
        windows
    }

    /// Makes `row` the taps that have values for a row of the result. Returns where that begins in its plane.
    fn at_row<C: Real>(&self, number: usize, weights: &[C], row: &mut Row<'_, C>) -> usize {
        row.taps.clear();
        row.outside = C::default();
        for window_row in 0..self.count {
            let taps = &self.taps[window_row * self.outer.len()..][..self.outer.len()];
            let (mut rest, mut from) = (number, Some(0));
            for (axis, tap) in self.outer.iter().zip(taps).rev() {
                let at = axis.within(rest % axis.output * axis.stride + tap * axis.window_dilation);
                from = from.zip(at).map(|(from, at)| from + at * axis.input_stride);
                rest /= axis.output;
            }
            for (t, &weight) in weights[window_row * self.last.kernel..][..self.last.kernel].iter().enumerate() {
                match from {
                    Some(from) => row.taps.push(Tap { row: from, place: t * self.last.window_dilation, weight }),
                    None => row.outside = row.outside + C::default() * weight,
                }
            }
        }
        let mut rest = number;
        let mut to = 0;
        for axis in self.outer.iter().rev() {
            to += rest % axis.output * axis.output_stride;
            rest /= axis.output;
        }
        to
    }
}

/// A tap: where its row of the image begins, how far into the window it is, and its weight.
struct Tap<C> {
    row: usize,
    place: usize,
    weight: C,
}

/// How a row of the result is made.
struct Row<'a, C> {
    last: &'a Axis,
    taps: Vec<Tap<C>>,
    /// What the taps add for which there are no values.
    outside: C,
}

impl<C: Real> Row<'_, C> {
    /// Computes the row from the plane of the image.
    #[inline(always)]
    fn sweep<S: Stored<Compute = C>>(&self, plane: &[S], sums: &mut [S]) {
        let Range { start, end } = self.within();
        self.one_by_one(plane, 0..start, sums);
        self.one_by_one(plane, end..sums.len(), sums);
        let sums = &mut sums[start..end];
        sums.fill(S::store(self.outside));
        // Nine taps are those of the most common window.
        let (nines, rest) = self.taps.as_chunks::<9>();
        for taps in nines {
            self.add(plane, start, taps, sums);
        }
        let (threes, rest) = rest.as_chunks::<3>();
        for taps in threes {
            self.add(plane, start, taps, sums);
        }
        for tap in rest {
            self.add(plane, start, std::array::from_ref(tap), sums);
        }
    }

    /// The positions whose windows have values at all taps of a row.
    fn within(&self) -> Range<usize> {
        let Axis { input, output, padding_low, .. } = *self.last;
        let reach = self.last.kernel.saturating_sub(1) * self.last.window_dilation;
        let start = (padding_low.max(0) as usize).min(output);
        let end = (input as isize + padding_low - reach as isize).max(0) as usize;
        start..end.clamp(start, output)
    }

    /// Adds what some taps make of the positions from `start` on.
    #[inline(always)]
    fn add<S: Stored<Compute = C>, const N: usize>(
        &self,
        plane: &[S],
        start: usize,
        taps: &[Tap<C>; N],
        sums: &mut [S],
    ) {
        let length = sums.len();
        let values = taps.each_ref().map(|tap| {
            let at = (tap.row + start + tap.place).wrapping_add_signed(-self.last.padding_low);
            if length == 0 { &plane[..0] } else { &plane[at..][..length] }
        });
        let weights = taps.each_ref().map(|tap| tap.weight);
        for (x, sum) in sums.iter_mut().enumerate() {
            let mut own = sum.load();
            for (values, &weight) in values.iter().zip(&weights) {
                own = own + values[x].load() * weight;
            }
            *sum = S::store(own);
        }
    }

    #[inline(always)]
    fn one_by_one<S: Stored<Compute = C>>(&self, plane: &[S], places: Range<usize>, sums: &mut [S]) {
        for x in places {
            let mut sum = self.outside;
            for tap in &self.taps {
                let at = (x + tap.place).wrapping_add_signed(-self.last.padding_low);
                let value = if at < self.last.input { plane[tap.row + at].load() } else { C::default() };
                sum = sum + value * tap.weight;
            }
            sums[x] = S::store(sum);
        }
    }
}

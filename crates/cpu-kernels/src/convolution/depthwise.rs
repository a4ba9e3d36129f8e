//! Convolutions of each channel by itself: memory-bound, so each plane is read once into a padded copy that stays in
//! the cache, and swept tap by tap without a question about borders.

use super::{Convolution, for_each_index};
use crate::number::Stored;
use crate::parallel::{Parallel, Shared};
use crate::vectors::with_vectors;

/// A channel of an image, or a block of channels that lie side by side, with its padding.
struct Plane<'c> {
    convolution: &'c Convolution,
    /// The padded sizes.
    sizes: Vec<usize>,
    /// Channels that lie side by side, innermost.
    lanes: usize,
}

/// Channels of a block: enough for several vectors, few enough for their planes to stay in the cache.
const LANES: usize = 64;

pub(super) fn run<S: Stored>(
    convolution: &Convolution,
    input: &[S],
    kernel: &[S],
    output: &Shared<'_, S>,
    parallel: &dyn Parallel,
) {
    let c = convolution;
    let side_by_side = c.input_group_stride == 1 && c.output_feature_stride == 1;
    let lanes = if side_by_side { LANES.min(c.groups) } else { 1 };
    let blocks = c.groups.div_ceil(lanes);
    let weights = c.tap_weights();
    parallel.each(c.batch * blocks, 1, &|begin, end| {
        let mut scratch = Vec::new();
        for unit in begin..end {
            let (image, channel) = (unit / blocks, unit % blocks * lanes);
            let lanes = lanes.min(c.groups - channel);
            let sizes = c.axes.iter().map(|a| (a.output - 1) * a.stride + (a.kernel - 1) * a.window_dilation + 1);
            let plane = Plane { convolution: c, sizes: sizes.collect(), lanes };
            let mut sums = Vec::new();
            for feature in 0..c.input_features {
                let factors: Vec<S::Compute> = weights
                    .iter()
                    .flat_map(|w| (0..lanes).map(move |l| w + (channel + l) * c.kernel_output_stride))
                    .map(|at| kernel[at + feature * c.kernel_input_stride].load())
                    .collect();
                let start =
                    image * c.input_batch_stride + channel * c.input_group_stride + feature * c.input_feature_stride;
                with_vectors!(plane.fill(&input[start..], &mut scratch));
                let start = image * c.output_batch_stride + channel * c.output_feature_stride;
                if c.input_features > 1 {
                    plane.gather(&scratch, &factors, &mut sums);
                } else {
                    plane.sweep(&scratch, &factors, output, start);
                }
            }
            if c.input_features > 1 {
                let start = image * c.output_batch_stride + channel * c.output_feature_stride;
                plane.store(&sums, output, start);
            }
        }
    });
}

impl Plane<'_> {
    /// Copies the plane into `padded`.
    #[inline(always)]
    fn fill<S: Stored>(&self, input: &[S], padded: &mut Vec<S::Compute>) {
        padded.clear();
        padded.resize(self.sizes.iter().product::<usize>() * self.lanes, S::Compute::default());
        let (Some((last, outer)), Some((&width, heights))) =
            (self.convolution.axes.split_last(), self.sizes.split_last())
        else {
            for (to, from) in padded.iter_mut().zip(input) {
                *to = from.load();
            }
            return;
        };
        let mut row = 0;
        let mut inputs: Vec<Option<usize>> = (0..width).map(|at| last.within(at)).collect();
        inputs.iter_mut().for_each(|at| *at = at.map(|at| at * last.input_stride));
        // Values of a row that lie side by side, in the plane and in its copy.
        let is_run = self.lanes == 1 && last.input_stride == 1 && last.base_dilation == 1;
        let first = inputs.iter().position(Option::is_some).filter(|_| is_run);
        let run = first.map(|first| (first, inputs[first..].iter().take_while(|at| at.is_some()).count()));
        for_each_index(heights, |index| {
            let places = outer.iter().zip(index).map(|(a, &i)| a.within(i).map(|at| at * a.input_stride));
            if let Some(start) = places.sum::<Option<usize>>() {
                let to = &mut padded[row * width * self.lanes..][..width * self.lanes];
                if let Some((first, count)) = run {
                    S::load_all(&input[start + inputs[first].unwrap_or(0)..][..count], &mut to[first..first + count]);
                    row += 1;
                    return;
                }
                for (to, at) in to.chunks_exact_mut(self.lanes).zip(&inputs) {
                    let Some(at) = at else { continue };
                    for (to, from) in to.iter_mut().zip(&input[start + at..][..self.lanes]) {
                        *to = from.load();
                    }
                }
            }
            row += 1;
        });
    }

    /// From one position to the next along each padded dimension, and where each tap is.
    fn steps_and_taps(&self) -> (Vec<usize>, Vec<usize>) {
        let axes = &self.convolution.axes;
        let mut steps = vec![self.lanes; axes.len()];
        for d in (1..axes.len()).rev() {
            steps[d - 1] = steps[d] * self.sizes[d];
        }
        let mut taps = Vec::new();
        let kernel: Vec<usize> = axes.iter().map(|a| a.kernel).collect();
        for_each_index(&kernel, |tap| {
            taps.push(tap.iter().zip(axes).zip(&steps).map(|((t, a), s)| t * a.window_dilation * s).sum::<usize>());
        });
        (steps, taps)
    }

    /// Calls `visit` with each row of positions along the last dimension, and where its first window begins.
    fn for_each_row(&self, steps: &[usize], mut visit: impl FnMut(&[usize], usize)) {
        let axes = &self.convolution.axes;
        let outer = axes.len().saturating_sub(1);
        let rows: Vec<usize> = axes[..outer].iter().map(|a| a.output).collect();
        for_each_index(&rows, |row| {
            let from = |(i, d): (&usize, usize)| i * axes[d].stride * steps[d];
            visit(row, row.iter().zip(0..).map(from).sum::<usize>());
        });
    }

    /// Computes the plane of the result that begins at `start`.
    fn sweep<S: Stored>(&self, padded: &[S::Compute], factors: &[S::Compute], output: &Shared<'_, S>, start: usize) {
        let axes = &self.convolution.axes;
        let (steps, taps) = self.steps_and_taps();
        let (width, stride) = axes.last().map_or((1, self.lanes), |a| (a.output, a.stride * self.lanes));
        let mut sums = vec![S::Compute::default(); width * self.lanes];
        self.for_each_row(&steps, |row, from| {
            sums.fill(S::Compute::default());
            with_vectors!(sweep_row(&padded[from..], &taps, factors, self.lanes, stride, &mut sums));
            let to = start + row.iter().zip(axes).map(|(i, a)| i * a.output_stride).sum::<usize>();
            self.store_row(&sums, output, to);
        });
    }

    /// Adds the sums of one input feature to those of all positions.
    fn gather<C: crate::number::Real>(&self, padded: &[C], factors: &[C], sums: &mut Vec<C>) {
        let axes = &self.convolution.axes;
        let (steps, taps) = self.steps_and_taps();
        let (width, stride) = axes.last().map_or((1, self.lanes), |a| (a.output, a.stride * self.lanes));
        sums.resize(self.convolution.positions() * self.lanes, C::default());
        let mut rows = sums.chunks_exact_mut(width * self.lanes);
        self.for_each_row(&steps, |_, from| {
            if let Some(sums) = rows.next() {
                with_vectors!(sweep_row(&padded[from..], &taps, factors, self.lanes, stride, sums));
            }
        });
    }

    /// Writes the sums of all positions.
    fn store<S: Stored>(&self, sums: &[S::Compute], output: &Shared<'_, S>, start: usize) {
        let axes = &self.convolution.axes;
        let width = axes.last().map_or(1, |a| a.output);
        let mut rows = sums.chunks_exact(width * self.lanes);
        self.for_each_row(&vec![0; axes.len()], |row, _| {
            let to = start + row.iter().zip(axes).map(|(i, a)| i * a.output_stride).sum::<usize>();
            if let Some(sums) = rows.next() {
                self.store_row(sums, output, to);
            }
        });
    }

    /// Writes the sums of one row of positions.
    fn store_row<S: Stored>(&self, sums: &[S::Compute], output: &Shared<'_, S>, to: usize) {
        let out_stride = self.convolution.axes.last().map_or(0, |a| a.output_stride);
        let lane_stride = self.convolution.output_feature_stride;
        if self.lanes > 1 && lane_stride == 1 {
            for (x, sums) in sums.chunks_exact(self.lanes).enumerate() {
                let at = to + x * out_stride;
                // SAFETY: elements of the result lie apart, and these channels of this image are this thread's.
                S::store_all(sums, unsafe { output.slice(at, at + self.lanes) });
            }
            return;
        }
        if self.lanes == 1 && out_stride == 1 {
            // SAFETY: as above.
            S::store_all(sums, unsafe { output.slice(to, to + sums.len()) });
            return;
        }
        for (x, sums) in sums.chunks_exact(self.lanes).enumerate() {
            for (lane, &sum) in sums.iter().enumerate() {
                // SAFETY: as above.
                unsafe { output.write(to + x * out_stride + lane * lane_stride, S::store(sum)) };
            }
        }
    }
}

/// Adds the sums of one row: `lanes` channels side by side, `stride` values from one window to the next.
#[inline(always)]
fn sweep_row<C: crate::number::Real>(
    plane: &[C],
    taps: &[usize],
    factors: &[C],
    lanes: usize,
    stride: usize,
    sums: &mut [C],
) {
    if lanes == 1 && stride == 1 {
        return sweep_run(plane, taps, factors, sums);
    }
    for (&tap, factors) in taps.iter().zip(factors.chunks_exact(lanes)) {
        let plane = &plane[tap..];
        match factors {
            [factor] => {
                for (sum, &x) in sums.iter_mut().zip(plane.iter().step_by(stride)) {
                    *sum = *sum + x * *factor;
                }
            }
            _ => {
                for (at, sums) in sums.chunks_exact_mut(lanes).enumerate() {
                    for ((sum, &x), &factor) in sums.iter_mut().zip(&plane[at * stride..][..lanes]).zip(factors) {
                        *sum = *sum + x * factor;
                    }
                }
            }
        }
    }
}

/// The same for one channel whose windows begin side by side: some sums at a time stay in registers.
#[inline(always)]
fn sweep_run<C: crate::number::Real>(plane: &[C], taps: &[usize], factors: &[C], sums: &mut [C]) {
    const MANY: usize = 32;
    let (many, rest) = sums.as_chunks_mut::<MANY>();
    for (n, sums) in many.iter_mut().enumerate() {
        let mut own = *sums;
        for (&tap, &factor) in taps.iter().zip(factors) {
            for (sum, &x) in own.iter_mut().zip(&plane[tap + n * MANY..][..MANY]) {
                *sum = *sum + x * factor;
            }
        }
        *sums = own;
    }
    let done = many.len() * MANY;
    for (&tap, &factor) in taps.iter().zip(factors) {
        for (sum, &x) in rest.iter_mut().zip(&plane[tap + done..]) {
            *sum = *sum + x * factor;
        }
    }
}

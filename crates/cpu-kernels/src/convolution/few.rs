//! Convolutions of one or two dimensions to few features, as the last of a model that makes images, and as the gradient of
//! its first: where the features of the input lie side by side.
//!
//! A vector of output features would be nearly empty. Here vectors go along what is summed over: some rows of the image are
//! copied with their padding, and each number of them is loaded once for all output features. What a dilated input has
//! nothing for is left out: positions that look at the same taps are done together.

use super::direct::Shape;
use super::parts::{Part, PartAxis, parts};
use super::{Axis, Convolution};
use crate::matmul::columns::{self, Lines};
use crate::number::Stored;
use crate::parallel::{Parallel, Shared, grain};

/// More output features fill vectors of their own.
const MOST: usize = 8;
/// Shorter runs of numbers are not worth adding up vectors for.
const SHORTEST: usize = 48;
/// Positions whose sums are made at once.
const POSITIONS: usize = 3;
/// Rows of the result that share a copy of the image's rows.
const ROWS: usize = 8;

/// A part of a convolution, which is a convolution without base dilation, and where its weights and results begin.
struct Piece {
    convolution: Convolution,
    kernel: usize,
    output: usize,
}

/// Whether a convolution may be best done this way.
pub(super) fn is_few(c: &Convolution) -> bool {
    let has_few = (1..=MOST).contains(&c.output_features) && c.groups == 1 && (1..=2).contains(&c.axes.len());
    has_few && c.input_feature_stride == 1 && c.input_features > 0
}

/// Convolves, if this is the way to; otherwise nothing is done.
pub(super) fn run<S: Stored>(
    c: &Convolution,
    input: &[S],
    kernel: &[S],
    output: &Shared<'_, S>,
    parallel: &dyn Parallel,
) -> Option<()> {
    if !is_few(c) {
        return None;
    }
    columns::sums::<S::Compute>()?;
    let pieces = parts(c).into_iter().map(|part| piece(c, &part).filter(|p| suits(&p.convolution)));
    let pieces = pieces.collect::<Option<Vec<Piece>>>()?;
    for p in &pieces {
        run_piece(&p.convolution, input, &kernel[p.kernel..], output, p.output, parallel)?;
    }
    Some(())
}

/// The convolution that a part is, if its taps are evenly spaced.
fn piece(c: &Convolution, part: &Part) -> Option<Piece> {
    let mut piece = Piece { convolution: c.clone(), kernel: 0, output: part.output };
    piece.convolution.axes.clear();
    for PartAxis { outputs, output_stride, step, input, input_stride, taps } in &part.axes {
        let (first, last) = (taps.first()?, taps.last()?);
        let (mut apart, mut weight) = (1, 0);
        if let [first, second, ..] = taps[..] {
            (apart, weight) = (second.at - first.at, second.weight as isize - first.weight as isize);
        }
        let even = taps
            .windows(2)
            .all(|t| t[1].at - t[0].at == apart && t[1].weight as isize - t[0].weight as isize == weight);
        if !even {
            return None;
        }
        piece.kernel += first.weight.min(last.weight);
        piece.convolution.axes.push(Axis {
            input: *input,
            kernel: taps.len(),
            output: *outputs,
            stride: *step,
            padding_low: -first.at,
            base_dilation: 1,
            window_dilation: usize::try_from(apart).ok()?,
            reversed: weight < 0,
            input_stride: *input_stride,
            kernel_stride: weight.unsigned_abs(),
            output_stride: *output_stride,
        });
    }
    Some(piece)
}

/// Whether a convolution without base dilation can be done this way, and is long enough.
fn suits(c: &Convolution) -> bool {
    let Some(last) = c.axes.last() else { return false };
    let run = if last.window_dilation == 1 { last.kernel * c.input_features } else { c.input_features };
    let forward = |a: &Axis| a.window_dilation > 0 && (a.stride > 0 || a.output == 1);
    run >= SHORTEST && last.input_stride == c.input_features && c.axes.iter().all(forward)
}

/// Convolves; results are written from `start` on.
fn run_piece<S: Stored>(
    c: &Convolution,
    input: &[S],
    kernel: &[S],
    output: &Shared<'_, S>,
    start: usize,
    parallel: &dyn Parallel,
) -> Option<()> {
    let multiply = columns::sums::<S::Compute>()?;
    let shape = Shape::new(c)?;
    let n = c.output_features;
    // The weights of each feature, in the order in which they are summed.
    let taps = c.tap_weights();
    let line = (taps.len() * c.input_features).next_multiple_of(16) + 16;
    let mut weights = vec![S::Compute::default(); n * line];
    for (f, to) in weights.chunks_exact_mut(line).enumerate() {
        for (tap, to) in taps.iter().zip(to.chunks_exact_mut(c.input_features)) {
            let from = tap + f * c.kernel_output_stride;
            to.iter_mut().enumerate().for_each(|(i, to)| *to = kernel[from + i * c.kernel_input_stride].load());
        }
    }
    let height = shape.down.map_or(1, |a| a.output);
    let (kernel_rows, dilation) = shape.down.map_or((1, 0), |a| (a.kernel, a.window_dilation));
    let stride = shape.down.map_or(0, |a| a.stride);
    let step = shape.across.stride * c.input_features;
    let blocks = height.div_ceil(ROWS);
    let work = ROWS.min(height) * shape.across.output * n * c.input_features * taps.len();
    parallel.each(c.batch * blocks, (grain::MULTIPLICATIONS / 2).div_ceil(work.max(1)), &|begin, end| {
        let mut copy = vec![S::Compute::default(); shape.rows_under(ROWS.min(height)) * shape.row];
        let mut sums = vec![S::Compute::default(); POSITIONS * n];
        for unit in begin..end {
            let (image, first) = (unit / blocks, unit % blocks * ROWS);
            let rows = ROWS.min(height - first);
            let copy = &mut copy[..shape.rows_under(rows) * shape.row];
            let nothing = S::Compute::default();
            shape.copy(&input[image * c.input_batch_stride..], first * stride, nothing, copy, S::load_all);
            for y in 0..rows {
                let to = image * c.output_batch_stride + shape.down.map_or(0, |a| (first + y) * a.output_stride);
                for x in (0..shape.across.output).step_by(POSITIONS) {
                    let positions = POSITIONS.min(shape.across.output - x);
                    sums.fill(nothing);
                    for run in 0..kernel_rows * shape.runs {
                        let (row, tap) = (y * stride + run / shape.runs * dilation, run % shape.runs);
                        let apart = tap * shape.across.window_dilation * c.input_features;
                        let from = &copy[row * shape.row + x * step + apart..][..(positions - 1) * step + shape.depth];
                        // SAFETY: the numbers lie in `from`, the weights in their lines, and there is room for the sums;
                        // there is a function only if the processor can run it.
                        unsafe {
                            multiply(
                                Lines { at: from.as_ptr(), count: positions, line: step },
                                Lines { at: weights[run * shape.depth..].as_ptr(), count: n, line },
                                shape.depth,
                                sums.as_mut_ptr(),
                                n,
                            );
                        }
                    }
                    for (position, sums) in sums.chunks_exact(n).take(positions).enumerate() {
                        let to = start + to + (x + position) * shape.across.output_stride;
                        for (f, &sum) in sums.iter().enumerate() {
                            // SAFETY: elements of the result lie apart, and these are this thread's.
                            unsafe { output.write(to + f * c.output_feature_stride, S::store(sum)) };
                        }
                    }
                }
            }
        }
    });
    Some(())
}

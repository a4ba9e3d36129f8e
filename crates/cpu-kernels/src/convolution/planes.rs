//! Convolutions of one or two dimensions, where the positions of each feature lie side by side.
//!
//! Laying out the matrix of patches means copying every value once for each tap. Here every plane of the image is copied
//! once, with its padding, and cut into as many planes as the steps of the window are long, so that what a tap looks at
//! from position to position lies side by side. The rows of a plane follow each other without gaps: then the products of
//! weights and planes run over the ends of rows, and vectors are full however short the rows are. What they make between
//! the rows is left out of the result.

use super::Convolution;
use super::parts::{Part, PartAxis, Tap, parts};
use crate::parallel::{Parallel, Shared, grain};
use crate::tiles::micro::Block;
use crate::tiles::pack::Way;
use crate::vectors::with_vectors;
use std::any::TypeId;
use std::ops::Range;

/// Numbers of the planes that are worked on at a time: they are to stay in the second cache.
const MOST_IN_PLANES: usize = 1 << 16;

/// Whether a convolution is best done this way.
pub(super) fn suits(c: &Convolution) -> bool {
    let Some(last) = c.axes.last() else { return false };
    let side_by_side = last.input_stride == 1 && last.output_stride == 1;
    let few_axes = c.axes.len() <= 2 && c.taps() > 1 && c.axes.iter().all(|a| a.stride > 0 && a.base_dilation > 0);
    side_by_side && few_axes && parts(c).iter().all(|part| Planes::new(part).is_some())
}

/// One dimension of the planes that a part is made from.
struct Side {
    /// Positions.
    outputs: usize,
    /// From one position to the next in the result.
    output_stride: usize,
    /// How many planes there are along this dimension.
    phases: usize,
    /// Which of them the first number of a plane comes from, in steps.
    first: isize,
    /// Numbers along it that belong to no position of their own.
    more: usize,
    /// For each tap its plane, where the first position finds its number in that, and its weight.
    taps: Vec<(usize, usize, usize)>,
    input: usize,
    input_stride: usize,
}

impl Side {
    /// `None` if there is nothing to sum up.
    fn new(axis: &PartAxis) -> Option<Side> {
        let step = isize::try_from(axis.step.max(1)).ok()?;
        let steps = |tap: &Tap| tap.at.div_euclid(step);
        let (first, last) = (axis.taps.iter().map(steps).min()?, axis.taps.iter().map(steps).max()?);
        let tap = |t: &Tap| (t.at.rem_euclid(step) as usize, (steps(t) - first) as usize, t.weight);
        Some(Side {
            outputs: axis.outputs,
            output_stride: axis.output_stride,
            phases: step as usize,
            first,
            more: (last - first) as usize,
            taps: axis.taps.iter().map(tap).collect(),
            input: axis.input,
            input_stride: axis.input_stride,
        })
    }

    /// The one row of what has one dimension.
    fn one() -> Side {
        let taps = vec![(0, 0, 0)];
        Side { outputs: 1, output_stride: 0, phases: 1, first: 0, more: 0, taps, input: 1, input_stride: 0 }
    }

    /// The index into the input of a number of a plane; it may lie in the padding.
    fn index(&self, phase: usize, at: usize) -> isize {
        (at as isize + self.first) * self.phases as isize + phase as isize
    }
}

/// The planes that a part of a convolution is made from.
struct Planes {
    down: Side,
    across: Side,
    /// From row to row of a plane.
    pitch: usize,
    /// Which planes are looked at.
    used: Vec<(usize, usize)>,
    /// For each tap the number of its plane among these, where it begins there, and its weight.
    taps: Vec<(usize, usize, usize)>,
}

impl Planes {
    /// `None` if most of what would be computed is between rows.
    fn new(part: &Part) -> Option<Planes> {
        let (across, down) = part.axes.split_last()?;
        let across = Side::new(across)?;
        let down = down.last().map_or(Some(Side::one()), Side::new)?;
        let pitch = across.outputs + across.more;
        (across.outputs * 2 > pitch).then_some(())?;
        let (mut used, mut taps) = (Vec::new(), Vec::new());
        for &(down_phase, row, down_weight) in &down.taps {
            for &(phase, column, weight) in &across.taps {
                let plane = used.iter().position(|&p| p == (down_phase, phase)).unwrap_or_else(|| {
                    used.push((down_phase, phase));
                    used.len() - 1
                });
                taps.push((plane, row * pitch + column, down_weight + weight));
            }
        }
        Some(Planes { down, across, pitch, used, taps })
    }

    /// Copies what `rows` of the positions look at of one feature's plane of the image.
    #[inline(always)]
    fn copy<S: Copy>(
        &self,
        image: &[S],
        (down_phase, phase): (usize, usize),
        rows: Range<usize>,
        nothing: S,
        to: &mut [S],
    ) {
        let (across, step) = (&self.across, self.across.phases as isize);
        // The numbers of a row that are not in the padding are one range.
        let first = across.index(phase, 0);
        let low = ((-first).max(0) as usize).div_ceil(across.phases).min(self.pitch);
        let high = (across.input as isize - first + step - 1).div_euclid(step).clamp(low as isize, self.pitch as isize);
        let high = high as usize;
        for (row, to) in (rows.start..).zip(to.chunks_exact_mut(self.pitch)) {
            let index = self.down.index(down_phase, row);
            if low == high || index < 0 || index >= self.down.input as isize {
                to.fill(nothing);
                continue;
            }
            to[..low].fill(nothing);
            to[high..].fill(nothing);
            let from = &image[index as usize * self.down.input_stride + across.index(phase, low) as usize..];
            match across.phases {
                1 => to[low..high].copy_from_slice(&from[..high - low]),
                2 => {
                    // Whole pairs, which become vectors; of the last the first number may be all there is.
                    let (pairs, rest) = from[..2 * (high - low) - 1].as_chunks::<2>();
                    for (to, pair) in to[low..high].iter_mut().zip(pairs) {
                        *to = pair[0];
                    }
                    to[high - 1] = rest[0];
                }
                phases => {
                    for (to, &from) in to[low..high].iter_mut().zip(from.iter().step_by(phases)) {
                        *to = from;
                    }
                }
            }
        }
    }
}

/// Convolves; `O` is `S`, the type that is computed in.
pub(super) fn run<S, W, O>(c: &Convolution, input: &[S], kernel: &[S], output: &Shared<'_, O>, parallel: &dyn Parallel)
where
    S: Copy + Default + Send + Sync + 'static,
    W: Way<S, Unit = S, Sum = S>,
    O: Copy + Send + Sync + 'static,
{
    assert!(TypeId::of::<S>() == TypeId::of::<O>(), "the result is of the type that is computed in");
    for part in parts(c) {
        let Some(planes) = Planes::new(&part) else { unreachable!("such a part suits another way") };
        run_part::<S, W, O>(c, &planes, part.output, [input, kernel], output, parallel);
    }
}

fn run_part<S, W, O>(
    c: &Convolution,
    planes: &Planes,
    start: usize,
    [input, kernel]: [&[S]; 2],
    output: &Shared<'_, O>,
    parallel: &dyn Parallel,
) where
    S: Copy + Default + Send + Sync + 'static,
    W: Way<S, Unit = S, Sum = S>,
    O: Copy + Send + Sync + 'static,
{
    let (down, across, pitch) = (&planes.down, &planes.across, planes.pitch);
    let (m, k, height) = (c.output_features, c.input_features, W::micro().rows);
    let height = m.div_ceil(m.div_ceil(height));
    let weights = laid_out(c, planes, kernel, height);
    // Rows of positions that are worked on at a time, about as many each time.
    let row = k.saturating_mul(planes.used.len()).saturating_mul(pitch);
    let most = (MOST_IN_PLANES / row.max(1)).saturating_sub(down.more).max(4);
    let blocks = down.outputs.div_ceil(most);
    let rows = down.outputs.div_ceil(blocks.max(1));
    let work = rows.saturating_mul(pitch).saturating_mul(m * k).saturating_mul(planes.taps.len());
    let chunk = grain::MULTIPLICATIONS.div_ceil(work.max(1));
    parallel.each(c.batch * c.groups * blocks, chunk, &|begin, end| {
        let plane = (rows + down.more) * pitch;
        let mut copies = vec![S::default(); planes.used.len() * k * plane];
        let mut sums = vec![S::default(); m * rows * pitch];
        for unit in begin..end {
            let (image, block) = (unit / blocks, unit % blocks);
            let (image, group) = (image / c.groups, image % c.groups);
            let first = block * rows;
            let rows = rows.min(down.outputs - first);
            let under = first..first + rows + down.more;
            let from = image * c.input_batch_stride + group * c.input_group_stride;
            for (n, copy) in copies.chunks_exact_mut(plane).enumerate() {
                let image = &input[from + n % k * c.input_feature_stride..];
                let copy = &mut copy[..under.len() * pitch];
                with_vectors!(planes.copy(image, planes.used[n / k], under.clone(), W::nothing(), copy));
            }
            let weights = &weights[group * m * k * planes.taps.len()..];
            let positions = (rows - 1) * pitch + across.outputs;
            multiply::<S, W>(planes, (&copies, plane), (weights, height), [m, k, positions], &mut sums);
            let to = start + image * c.output_batch_stride + group * m * c.output_feature_stride;
            for (feature, sums) in sums.chunks(positions).take(m).enumerate() {
                for (y, sums) in sums.chunks(pitch).enumerate() {
                    let to = to + feature * c.output_feature_stride + (first + y) * down.output_stride;
                    let reach = (across.outputs - 1) * across.output_stride + 1;
                    // SAFETY: elements of the result lie apart, and those of these positions are this thread's; `O` is `S`.
                    let to = unsafe { std::slice::from_raw_parts_mut(output.address(to, reach).cast::<S>(), reach) };
                    match across.output_stride {
                        1 => to.copy_from_slice(&sums[..across.outputs]),
                        stride => to.iter_mut().step_by(stride).zip(sums).for_each(|(to, &sum)| *to = sum),
                    }
                }
            }
        }
    });
}

/// The weights of each group: for each block of so many output features, for each tap, input feature by input feature.
fn laid_out<S: Copy>(c: &Convolution, planes: &Planes, kernel: &[S], height: usize) -> Vec<S> {
    let (m, k) = (c.output_features, c.input_features);
    let mut weights = Vec::with_capacity(c.groups * m * k * planes.taps.len());
    for group in 0..c.groups {
        for first in (0..m).step_by(height) {
            let features = first + group * m..height.min(m - first) + first + group * m;
            for &(_, _, weight) in &planes.taps {
                for i in 0..k {
                    let from = &kernel[weight + i * c.kernel_input_stride + features.start * c.kernel_output_stride..];
                    weights.extend(from.iter().step_by(c.kernel_output_stride.max(1)).take(features.len()));
                }
            }
        }
    }
    weights
}

/// The sums of all features at so many places of the planes.
fn multiply<S: Copy + 'static, W: Way<S, Unit = S, Sum = S>>(
    planes: &Planes,
    (copies, plane): (&[S], usize),
    (weights, height): (&[S], usize),
    [m, k, positions]: [usize; 3],
    sums: &mut [S],
) {
    let micro = W::micro();
    let (columns, taps) = (micro.columns, planes.taps.len());
    for at in (0..positions).step_by(columns) {
        let columns = columns.min(positions - at);
        for first in (0..m).step_by(height) {
            let rows = height.min(m - first);
            let weights = &weights[first * k * taps..][..rows * k * taps];
            let to = &mut sums[first * positions + at..][..(rows - 1) * positions + columns];
            for (n, (&(number, offset, _), weights)) in
                planes.taps.iter().zip(weights.chunks_exact(rows * k)).enumerate()
            {
                let rhs = &copies[number * k * plane + offset + at..][..(k - 1) * plane + columns];
                let block = Block {
                    rows,
                    columns,
                    depth: k,
                    lhs: weights.as_ptr(),
                    lhs_row: 1,
                    lhs_step: rows,
                    rhs: rhs.as_ptr(),
                    rhs_step: plane,
                    to: to.as_mut_ptr(),
                    to_row: positions,
                    add: n > 0,
                };
                // SAFETY: the values lie in `rhs`, the weights in their slice, the sums in `to`. The processor has what its
                // own kernels need.
                unsafe { (micro.run)(&block) };
            }
        }
    }
}

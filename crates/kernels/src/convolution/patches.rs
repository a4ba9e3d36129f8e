//! Convolutions as products of matrices: a row for each position of the window holds the values under it, and the
//! kernel is the other matrix.

use super::{Convolution, for_each_index};
use crate::number::{Real, Stored, same};
use crate::parallel::{Parallel, Shared};

/// Values of a matrix of patches: what fits the second cache beside the kernel's share.
const PATCH_VALUES: usize = 96 * 1024;

/// The kernel of one group as a matrix of `taps × input features` rows.
struct Weights<'k, C: Real> {
    data: std::borrow::Cow<'k, [C]>,
    row_stride: isize,
    column_stride: isize,
    /// From one group to the next.
    group_stride: usize,
    /// Features come before taps in the order of rows.
    features_first: bool,
}

pub(super) fn run<S: Stored>(
    convolution: &Convolution,
    input: &[S],
    kernel: &[S],
    output: &Shared<'_, S>,
    parallel: &dyn Parallel,
) {
    let c = convolution;
    let depth = c.taps() * c.input_features;
    let positions = c.positions();
    let tile = (PATCH_VALUES / depth.max(1)).clamp(32, 1024).min(positions);
    let tiles = positions.div_ceil(tile);
    let weights = weights(c, kernel);
    let units = c.batch * c.groups * tiles;
    let chunk = (2e5 / (c.flops() / units as f64).max(1.0)).ceil() as usize;
    parallel.each(units, chunk.max(1), &|begin, end| {
        let mut patches = Vec::new();
        let mut product = Vec::new();
        for unit in begin..end {
            let (image, rest) = (unit / (c.groups * tiles), unit % (c.groups * tiles));
            let (group, first) = (rest / tiles, rest % tiles * tile);
            let rows = tile.min(positions - first);
            let start = image * c.input_batch_stride + group * c.input_features * c.input_feature_stride;
            let (row_stride, column_stride) =
                lay_out(c, input.get(start..).unwrap_or_default(), first, rows, weights.features_first, &mut patches);
            product.clear();
            product.resize(rows * c.output_features, S::Compute::default());
            let matrix = weights.data.get(group * weights.group_stride..).unwrap_or_default();
            if depth > 0 {
                multiply(
                    &patches,
                    (row_stride, column_stride),
                    matrix,
                    &weights,
                    &mut product,
                    [rows, c.output_features, depth],
                );
            }
            let start = image * c.output_batch_stride + group * c.output_features * c.output_feature_stride;
            store(c, &product, first, rows, output, start);
        }
    });
}

/// `product` = patches × weights, `product` being row-major.
fn multiply<C: Real>(
    patches: &[C],
    (row_stride, column_stride): (isize, isize),
    matrix: &[C],
    weights: &Weights<'_, C>,
    product: &mut [C],
    [m, n, k]: [usize; 3],
) {
    let reach = |rows: usize, row: isize, columns: usize, column: isize| {
        (rows - 1) * row.unsigned_abs() + (columns - 1) * column.unsigned_abs() + 1
    };
    assert!(reach(m, row_stride, k, column_stride) <= patches.len(), "patches of another size");
    assert!(reach(k, weights.row_stride, n, weights.column_stride) <= matrix.len(), "weights of another size");
    assert!(m * n <= product.len(), "a product of another size");
    let strides = [row_stride, column_stride, weights.row_stride, weights.column_stride];
    // SAFETY: the three matrices lie inside their slices, as was just made sure of.
    unsafe {
        product_of([m, n, k], patches.as_ptr(), matrix.as_ptr(), strides, product.as_mut_ptr(), n as isize, false);
    }
}

/// The kernel as a matrix, where it lies if it can be one there.
fn weights<'k, S: Stored>(c: &Convolution, kernel: &'k [S]) -> Weights<'k, S::Compute> {
    let (taps, features) = (c.tap_weights(), c.input_features);
    let even = |offsets: &[usize], step: usize| offsets.iter().enumerate().all(|(i, &o)| o == i * step);
    if let Some(data) = same(kernel) {
        let group_stride = c.output_features * c.kernel_output_stride;
        let column_stride = c.kernel_output_stride as isize;
        // Taps first, features running.
        if features > 0 && even(&taps, features * c.kernel_input_stride) {
            let row_stride = c.kernel_input_stride as isize;
            return Weights { data: data.into(), row_stride, column_stride, group_stride, features_first: false };
        }
        // Features first, taps running.
        if let Some(step) = taps.get(1).filter(|&&s| even(&taps, s) && c.kernel_input_stride == s * taps.len()) {
            let row_stride = *step as isize;
            return Weights { data: data.into(), row_stride, column_stride, group_stride, features_first: true };
        }
    }
    let mut data = Vec::with_capacity(c.groups * taps.len() * features * c.output_features);
    for group in 0..c.groups {
        for tap in &taps {
            for feature in 0..features {
                let at = tap + feature * c.kernel_input_stride + group * c.output_features * c.kernel_output_stride;
                data.extend((0..c.output_features).map(|o| kernel[at + o * c.kernel_output_stride].load()));
            }
        }
    }
    let (row_stride, group_stride) = (c.output_features as isize, taps.len() * features * c.output_features);
    Weights { data: data.into(), row_stride, column_stride: 1, group_stride, features_first: false }
}

/// Lays out the values under the windows `first..first + rows`; gives the strides from row to row and from column to
/// column. Columns are in the order of the weights' rows.
fn lay_out<S: Stored>(
    c: &Convolution,
    input: &[S],
    first: usize,
    rows: usize,
    features_first: bool,
    patches: &mut Vec<S::Compute>,
) -> (isize, isize) {
    let (taps, features) = (c.taps(), c.input_features);
    let depth = taps * features;
    patches.clear();
    patches.resize(rows * depth, S::Compute::default());
    let column =
        |tap: usize, feature: usize| if features_first { feature * taps + tap } else { tap * features + feature };
    let kernel: Vec<usize> = c.axes.iter().map(|a| a.kernel).collect();
    let mut index = position(c, first);
    let arch = pulp::Arch::new();
    if c.input_feature_stride == 1 && !features_first {
        // Features lie side by side on both sides: a patch is made of as many runs as there are taps.
        for patch in patches.chunks_exact_mut(depth.max(1)) {
            let mut tap = 0;
            for_each_index(&kernel, |t| {
                if let Some(at) = source(c, &index, t) {
                    let (to, from) = (&mut patch[tap * features..][..features], &input[at..][..features]);
                    arch.dispatch(
                        #[inline(always)]
                        || to.iter_mut().zip(from).for_each(|(to, from)| *to = from.load()),
                    );
                }
                tap += 1;
            });
            advance(c, &mut index);
        }
        return (depth as isize, 1);
    }
    // Positions run: in rows of the last dimension the values of a tap and a feature are evenly spaced.
    let mut row = 0;
    while row < rows {
        let width = c.axes.last().map_or(1, |a| a.output - index[index.len() - 1]);
        let run = width.min(rows - row);
        let mut tap = 0;
        for_each_index(&kernel, |t| {
            let place = |feature: usize| column(tap, feature) * rows + row;
            lay_out_run(c, input, &index, t, patches, run, place);
            tap += 1;
        });
        for _ in 0..run {
            advance(c, &mut index);
        }
        row += run;
    }
    (1, rows as isize)
}

/// The values of one tap at `run` positions in a row of the last dimension; those of a feature go to its `place` in
/// `patches` and behind it.
fn lay_out_run<S: Stored>(
    c: &Convolution,
    input: &[S],
    index: &[usize],
    tap: &[usize],
    patches: &mut [S::Compute],
    run: usize,
    place: impl Fn(usize) -> usize,
) {
    let Some(((last, outer), (&first, before))) = c.axes.split_last().zip(index.split_last()) else {
        for feature in 0..c.input_features {
            patches[place(feature)] = input[feature * c.input_feature_stride].load();
        }
        return;
    };
    let places = outer.iter().zip(before).zip(tap).map(|((a, &i), &t)| a.source(i, t).map(|at| at * a.input_stride));
    let Some(start) = places.sum::<Option<usize>>() else { return };
    let tap = tap[tap.len() - 1];
    if last.base_dilation > 1 {
        for i in 0..run {
            let Some(at) = last.source(first + i, tap) else { continue };
            for feature in 0..c.input_features {
                let from = start + at * last.input_stride + feature * c.input_feature_stride;
                patches[place(feature) + i] = input[from].load();
            }
        }
        return;
    }
    // The positions whose value is not padding are one range.
    let stride = last.stride.max(1);
    let low = (first * last.stride + tap * last.window_dilation) as isize - last.padding_low;
    let begin = if low < 0 { low.unsigned_abs().div_ceil(stride) } else { 0 };
    let room = (last.input as isize - low).max(0).unsigned_abs();
    let end = room.div_ceil(stride).min(run);
    let (true, Some(at)) = (begin < end, last.source(first + begin, tap)) else { return };
    let from = start + at * last.input_stride;
    let step = (last.stride * last.input_stride).max(1);
    let arch = pulp::Arch::new();
    for feature in 0..c.input_features {
        let to = &mut patches[place(feature)..][begin..end];
        let values = &input[from + feature * c.input_feature_stride..];
        arch.dispatch(
            #[inline(always)]
            || {
                if step == 1 {
                    to.iter_mut().zip(values).for_each(|(to, from)| *to = from.load());
                } else {
                    to.iter_mut().zip(values.iter().step_by(step)).for_each(|(to, from)| *to = from.load());
                }
            },
        );
    }
}

/// Writes the rows of the product to their places.
fn store<S: Stored>(
    c: &Convolution,
    product: &[S::Compute],
    first: usize,
    rows: usize,
    output: &Shared<'_, S>,
    start: usize,
) {
    let mut index = position(c, first);
    let features = c.output_features;
    if c.output_feature_stride == 1 {
        for row in product.chunks_exact(features).take(rows) {
            let at = start + index.iter().zip(&c.axes).map(|(i, a)| i * a.output_stride).sum::<usize>();
            // SAFETY: elements of the result lie apart, and these positions of this group are this thread's.
            let to = unsafe { output.slice(at, at + features) };
            pulp::Arch::new().dispatch(
                #[inline(always)]
                || to.iter_mut().zip(row).for_each(|(to, &from)| *to = S::store(from)),
            );
            advance(c, &mut index);
        }
        return;
    }
    // Where the features of a position lie far apart, features run on the outside.
    let places: Vec<usize> = (0..rows)
        .map(|_| {
            let at = start + index.iter().zip(&c.axes).map(|(i, a)| i * a.output_stride).sum::<usize>();
            advance(c, &mut index);
            at
        })
        .collect();
    for feature in 0..features {
        for (row, at) in places.iter().enumerate() {
            let value = S::store(product[row * features + feature]);
            // SAFETY: elements of the result lie apart, and these positions of this group are this thread's.
            unsafe { output.write(at + feature * c.output_feature_stride, value) };
        }
    }
}

/// Where the value under a tap is.
#[inline]
fn source(c: &Convolution, index: &[usize], tap: &[usize]) -> Option<usize> {
    c.axes.iter().zip(index).zip(tap).map(|((a, &i), &t)| Some(a.source(i, t)? * a.input_stride)).sum()
}

/// The index of position `at`.
fn position(c: &Convolution, mut at: usize) -> Vec<usize> {
    let mut index = vec![0; c.axes.len()];
    for (i, axis) in index.iter_mut().zip(&c.axes).rev() {
        *i = at % axis.output;
        at /= axis.output;
    }
    index
}

/// To the next position.
fn advance(c: &Convolution, index: &mut [usize]) {
    for (i, axis) in index.iter_mut().zip(&c.axes).rev() {
        *i += 1;
        if *i < axis.output {
            return;
        }
        *i = 0;
    }
}

unsafe fn product_of<C: Real>(
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

//! Convolutions against the definition: a sum over taps and features for each element.

use super::{Axis, Convolution, direct, for_each_index, planes, stencil, taps};
use crate::Serial;
use crate::number::Stored;
use half::{bf16, f16};
use proptest::prelude::*;

/// Which dimension is outermost … innermost: batch, features and space of the input, and the same of the others.
#[derive(Clone, Copy, Debug)]
enum Layout {
    FeaturesLast,
    FeaturesFirst,
    /// Of the input only: space, features, images, as when the gradient of a kernel is computed.
    BatchLast,
}

fn axis() -> impl Strategy<Value = Axis> {
    (1..9usize, 1..4usize, 1..3usize, -2..3isize, 1..3usize, 1..3usize, any::<bool>(), 0..3usize).prop_map(
        |(input, kernel, stride, padding_low, base_dilation, window_dilation, reversed, padding_high)| {
            let dilated = (input - 1) * base_dilation + 1;
            let window = (kernel - 1) * window_dilation + 1;
            let padded = dilated as isize + padding_low + padding_high as isize;
            let output = if padded < window as isize { 0 } else { (padded as usize - window) / stride + 1 };
            Axis {
                input,
                kernel,
                output,
                stride,
                padding_low,
                base_dilation,
                window_dilation,
                reversed,
                input_stride: 0,
                kernel_stride: 0,
                output_stride: 0,
            }
        },
    )
}

type Size = fn(&Axis) -> usize;
type SetStride = fn(&mut Axis, usize);

/// Fills in the strides of dense arrays.
fn laid_out(mut c: Convolution, by_image: bool, [input, kernel, output]: [Layout; 3]) -> Convolution {
    let features = if by_image { c.input_features } else { c.groups * c.input_features };
    let images = if by_image { c.groups * c.batch } else { c.batch };
    let outputs = c.groups * c.output_features;
    let space = |axes: &mut Vec<Axis>, of: Size, set: SetStride, mut stride: usize| {
        for axis in axes.iter_mut().rev() {
            set(axis, stride);
            stride *= of(axis);
        }
        stride
    };
    let (of, set): (Size, SetStride) = (|a| a.input, |a, s| a.input_stride = s);
    match input {
        Layout::FeaturesLast => {
            c.input_feature_stride = 1;
            c.input_batch_stride = space(&mut c.axes, of, set, features);
        }
        Layout::FeaturesFirst => {
            c.input_feature_stride = space(&mut c.axes, of, set, 1);
            c.input_batch_stride = c.input_feature_stride * features;
        }
        Layout::BatchLast => {
            c.input_batch_stride = 1;
            c.input_feature_stride = images;
            space(&mut c.axes, of, set, images * features);
        }
    }
    c.input_group_stride =
        if by_image { c.batch * c.input_batch_stride } else { c.input_features * c.input_feature_stride };
    let (of, set): (Size, SetStride) = (|a| a.kernel, |a, s| a.kernel_stride = s);
    match kernel {
        Layout::FeaturesLast => {
            c.kernel_output_stride = 1;
            c.kernel_input_stride = outputs;
            space(&mut c.axes, of, set, outputs * c.input_features);
        }
        _ => {
            c.kernel_input_stride = space(&mut c.axes, of, set, 1);
            c.kernel_output_stride = c.kernel_input_stride * c.input_features;
        }
    }
    let (of, set): (Size, SetStride) = (|a| a.output, |a, s| a.output_stride = s);
    match output {
        Layout::FeaturesLast => {
            c.output_feature_stride = 1;
            c.output_batch_stride = space(&mut c.axes, of, set, outputs);
        }
        _ => {
            c.output_feature_stride = space(&mut c.axes, of, set, 1);
            c.output_batch_stride = c.output_feature_stride * outputs;
        }
    }
    c
}

fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![Just(Layout::FeaturesLast), Just(Layout::FeaturesFirst), Just(Layout::BatchLast)]
}

fn convolution() -> impl Strategy<Value = Convolution> {
    let features = prop_oneof![
        (1..4usize, 1..4usize, 1..5usize),
        (1..150usize, Just(1), Just(1)),
        (1..3usize, 1..40usize, 1..40usize),
    ];
    (1..3usize, features, prop::collection::vec(axis(), 0..3), any::<bool>(), [layout(), layout(), layout()]).prop_map(
        |(batch, (groups, input_features, output_features), axes, by_image, layouts)| {
            let c = without_strides(batch, groups, [input_features, output_features], axes);
            laid_out(c, by_image, layouts)
        },
    )
}

/// A convolution whose arrays are still to be laid out.
fn without_strides(batch: usize, groups: usize, features: [usize; 2], axes: Vec<Axis>) -> Convolution {
    let [input_features, output_features] = features;
    Convolution {
        batch,
        input_batch_stride: 0,
        output_batch_stride: 0,
        groups,
        input_group_stride: 0,
        input_features,
        input_feature_stride: 0,
        output_features,
        output_feature_stride: 0,
        kernel_input_stride: 0,
        kernel_output_stride: 0,
        axes,
    }
}

/// By the definition.
fn expected(c: &Convolution, input: &[f64], kernel: &[f64], len: usize) -> Vec<f64> {
    let mut output = vec![f64::NAN; len];
    let outputs: Vec<usize> = c.axes.iter().map(|a| a.output).collect();
    let taps: Vec<usize> = c.axes.iter().map(|a| a.kernel).collect();
    for_each_index(&[c.batch, c.groups, c.output_features], |at| {
        for_each_index(&outputs, |position| {
            let mut sum = 0.0;
            for_each_index(&taps, |tap| {
                let sources = c
                    .axes
                    .iter()
                    .zip(position)
                    .zip(tap)
                    .map(|((a, &o), &t)| a.within(o * a.stride + t * a.window_dilation));
                let Some(source) = sources.collect::<Option<Vec<usize>>>() else { return };
                let place: usize = c.axes.iter().zip(&source).map(|(a, s)| a.input_stride * s).sum();
                let weight: usize = c.axes.iter().zip(tap).map(|(a, &t)| a.weight(t)).sum();
                let feature = at[1] * c.output_features + at[2];
                for i in 0..c.input_features {
                    let from = at[0] * c.input_batch_stride + at[1] * c.input_group_stride + i * c.input_feature_stride;
                    let factor = weight + i * c.kernel_input_stride + feature * c.kernel_output_stride;
                    sum += input[from + place] * kernel[factor];
                }
            });
            let place: usize = c.axes.iter().zip(position).map(|(a, o)| a.output_stride * o).sum();
            let feature = at[1] * c.output_features + at[2];
            output[at[0] * c.output_batch_stride + feature * c.output_feature_stride + place] = sum;
        });
    });
    output
}

fn agrees<S: Stored>(c: &Convolution, read: fn(f64) -> S, value: fn(S) -> f64, tolerance: f64) {
    let space = |of: fn(&Axis) -> usize| c.axes.iter().map(of).product::<usize>();
    let numbers = |n: usize, seed: u32| -> Vec<S> {
        (0..n as u32).map(|i| read(f64::from((i.wrapping_mul(2654435761) ^ seed) >> 24) / 64.0 - 2.0)).collect()
    };
    let input = numbers(c.batch * c.groups * c.input_features * space(|a| a.input), 1);
    let kernel = numbers(c.groups * c.output_features * c.input_features * space(|a| a.kernel), 0x5555_5555);
    let len = c.batch * c.groups * c.output_features * space(|a| a.output);
    let mut output = vec![read(f64::NAN); len];
    c.run(&input, &kernel, &mut output, &Serial).expect("dense arrays are long enough");
    let exact = |v: &[S]| v.iter().map(|&x| value(x)).collect::<Vec<_>>();
    let expected = expected(c, &exact(&input), &exact(&kernel), len);
    for (i, (&found, &expected)) in output.iter().zip(&expected).enumerate() {
        let found = value(found);
        let scale = expected.abs().max(1.0);
        assert!((found - expected).abs() <= tolerance * scale, "{i}: {found} instead of {expected} in {c:?}");
    }
}

proptest! {
    #[test]
    fn by_the_definition(c in convolution()) {
        agrees::<f64>(&c, |x| x, |x| x, 1e-12);
        agrees::<f32>(&c, |x| x as f32, f64::from, 1e-4);
        agrees::<bf16>(&c, bf16::from_f64, |x| f64::from(x.to_f32()), 1e-2);
        agrees::<f16>(&c, f16::from_f64, |x| f64::from(x.to_f32()), 2e-3);
    }
}

/// A dimension with so much padding before it and one element behind it. The dilations are those of the input and of the
/// window.
fn padded_axis(
    input: usize,
    kernel: usize,
    stride: usize,
    padding_low: isize,
    [base_dilation, window_dilation]: [usize; 2],
) -> Axis {
    let window = (kernel - 1) * window_dilation + 1;
    let padded = ((input - 1) * base_dilation + 1).saturating_add_signed(padding_low + 1);
    Axis {
        input,
        kernel,
        output: (padded - window) / stride + 1,
        stride,
        padding_low,
        base_dilation,
        window_dilation,
        reversed: false,
        input_stride: 0,
        kernel_stride: 0,
        output_stride: 0,
    }
}

/// Few features side by side: some rows of the image at a time, with all kinds of padding, strides and dilations.
#[test]
fn few_features() {
    let axis = |input: usize, kernel: usize, stride: usize, padding_low: isize, window_dilation: usize| {
        let reversed = stride == 2;
        Axis { reversed, ..padded_axis(input, kernel, stride, padding_low, [1, window_dilation]) }
    };
    for (stride, padding, dilation) in [(1, 1, 1), (2, 0, 1), (1, 2, 2), (1, -1, 1), (3, 3, 2)] {
        for (input_features, output_features) in [(1, 20), (3, 64), (4, 5), (16, 16), (7, 33), (32, 48)] {
            for down in [None, Some(axis(21, 3, stride, padding, dilation))] {
                let c = without_strides(
                    2,
                    1,
                    [input_features, output_features],
                    down.into_iter().chain([axis(50, 3, stride, padding, dilation)]).collect(),
                );
                let c = laid_out(c, false, [Layout::FeaturesLast; 3]);
                assert!(direct::suits(&c), "{c:?}");
                agrees::<f64>(&c, |x| x, |x| x, 1e-12);
                agrees::<f32>(&c, |x| x as f32, f64::from, 1e-4);
            }
        }
    }
}

/// From many features to few: whole rows of the window at a time, with all kinds of padding, strides and dilations, of the
/// input too.
#[test]
fn to_few_features() {
    let axis = |input: usize, kernel: usize, stride: usize, padding_low: isize, dilations: [usize; 2]| {
        let reversed = padding_low == 2;
        Axis { reversed, ..padded_axis(input, kernel, stride, padding_low, dilations) }
    };
    for (stride, padding, dilations) in
        [(1, 1, [1, 1]), (2, 0, [1, 1]), (1, 2, [2, 1]), (1, -1, [1, 2]), (3, 2, [2, 3])]
    {
        for (input_features, output_features) in [(64, 3), (50, 1), (17, 8)] {
            for down in [None, Some(axis(19, 4, stride, padding, dilations))] {
                let axes: Vec<Axis> = down.into_iter().chain([axis(23, 4, stride, padding, dilations)]).collect();
                let c = without_strides(2, 1, [input_features, output_features], axes);
                for output in [Layout::FeaturesLast, Layout::FeaturesFirst] {
                    let c = laid_out(c.clone(), false, [Layout::FeaturesLast, Layout::FeaturesLast, output]);
                    agrees::<f64>(&c, |x| x, |x| x, 1e-12);
                    agrees::<f32>(&c, |x| x as f32, f64::from, 1e-4);
                    agrees::<bf16>(&c, bf16::from_f64, |x| f64::from(x.to_f32()), 1e-2);
                }
            }
        }
    }
}

/// Windows as wide as images that lie side by side, as gradients of kernels have them.
#[test]
fn wide_windows() {
    let axis = |kernel: usize, output: usize, padding_low: isize, window_dilation: usize| Axis {
        // A little less than what is looked at, so that there is padding on both sides, or some of it not looked at.
        input: ((kernel - 1) * window_dilation + output - 1).saturating_sub(1).saturating_add_signed(-padding_low),
        kernel,
        output,
        stride: 1,
        padding_low,
        base_dilation: 1,
        window_dilation,
        reversed: false,
        input_stride: 0,
        kernel_stride: 0,
        output_stride: 0,
    };
    for (padding, dilation, kernel) in [(0, 1, 24), (1, 1, 56), (2, 2, 27), (-2, 1, 30), (3, 3, 25)] {
        for (images, output_features) in [(3, 64), (1, 8), (40, 33), (5, 17)] {
            for down in [None, Some(axis(9, 3, padding, dilation))] {
                let axes: Vec<Axis> = down.into_iter().chain([axis(kernel, 5, padding, dilation)]).collect();
                let c = without_strides(images, 1, [2, output_features], axes);
                let mut c = laid_out(c, false, [Layout::FeaturesFirst, Layout::FeaturesLast, Layout::FeaturesLast]);
                // The input: features, space, images. The kernel and the result: features inside of all others.
                (c.input_batch_stride, c.input_feature_stride) = (1, c.input_feature_stride * images);
                c.axes.iter_mut().for_each(|a| a.input_stride *= images);
                (c.output_batch_stride, c.kernel_input_stride) =
                    (output_features, output_features * c.axes.iter().map(|a| a.kernel).product::<usize>());
                for axis in &mut c.axes {
                    axis.kernel_stride /= 2;
                    axis.output_stride *= images;
                }
                assert!(taps::suits(&c), "{c:?}");
                agrees::<f64>(&c, |x| x, |x| x, 1e-12);
                agrees::<f32>(&c, |x| x as f32, f64::from, 1e-4);
                agrees::<bf16>(&c, bf16::from_f64, |x| f64::from(x.to_f32()), 1e-2);
                agrees::<f16>(&c, f16::from_f64, |x| f64::from(x.to_f32()), 2e-3);
            }
        }
    }
}

/// Many features of positions that lie side by side: planes that are cut by strides and put together from what dilation
/// takes apart, of rows short and long, and of one row.
#[test]
fn planes_of_many_features() {
    for (kernel, stride, padding, base, window) in [
        (3, 1, 1, 1, 1),
        (3, 2, 0, 1, 1),
        (5, 3, 2, 1, 1),
        (3, 1, 2, 2, 1),
        (3, 1, -1, 1, 2),
        (3, 2, 1, 3, 1),
        (4, 3, 1, 2, 1),
    ] {
        for (images, groups, features, size) in
            [(8, 1, [8, 9], [30, 35]), (3, 2, [11, 14], [40, 45]), (9, 1, [33, 8], [1, 250])]
        {
            let axis = |input: usize| Axis {
                reversed: stride == 2,
                ..padded_axis(input, kernel, stride, padding, [base, window])
            };
            let axes = size.into_iter().filter(|&n| n > 1).map(axis).collect();
            let c = laid_out(without_strides(images, groups, features, axes), false, [Layout::FeaturesFirst; 3]);
            assert!(planes::suits(&c), "{c:?}");
            agrees::<f64>(&c, |x| x, |x| x, 1e-12);
            agrees::<f32>(&c, |x| x as f32, f64::from, 1e-4);
        }
    }
}

/// A dimension of a plane with so many taps and so much padding on both sides.
fn plane_axis(input: usize, kernel: usize, padding_low: isize, window_dilation: usize, stride: usize) -> Axis {
    let reach = (input as isize + 2 * padding_low) as usize - (kernel - 1) * window_dilation;
    Axis {
        input,
        kernel,
        output: reach.div_ceil(stride),
        stride,
        padding_low,
        base_dilation: 1,
        window_dilation,
        reversed: padding_low == 4,
        input_stride: 1,
        kernel_stride: 1,
        output_stride: 1,
    }
}

/// Rows long enough for several sums to be kept in registers, with and without padding.
#[test]
fn a_plane_with_long_rows() {
    for (padding, dilation, stride) in [(0, 1, 1), (1, 1, 2), (4, 2, 1), (-2, 1, 1), (40, 1, 1)] {
        for (groups, width) in [(1, 81), (3, 200), (2, 129)] {
            for (down, across) in [(3, 1), (1, 3), (3, 3)] {
                let rows = plane_axis(9, down, padding, dilation, stride);
                let axes = vec![rows, plane_axis(width, across, padding, dilation, 1)];
                let c = laid_out(without_strides(2, groups, [1, 1], axes), false, [Layout::FeaturesFirst; 3]);
                assert_eq!(stencil::suits::<f64>(&c), down * across == 3, "{c:?}");
                agrees::<f64>(&c, |x| x, |x| x, 1e-12);
                agrees::<f32>(&c, |x| x as f32, f64::from, 1e-4);
                agrees::<bf16>(&c, bf16::from_f64, |x| f64::from(x.to_f32()), 1e-2);
            }
        }
    }
}

/// What is around an image is zero, which a weight that is not finite makes NaN.
#[test]
fn infinite_weights_of_what_is_outside() {
    let n = 100;
    let axes = vec![plane_axis(n, 3, 1, 1, 1), plane_axis(n, 3, 1, 1, 1)];
    let c = laid_out(without_strides(1, 1, [1, 1], axes), false, [Layout::FeaturesFirst; 3]);
    for tap in 0..9 {
        let mut kernel = [1f32; 9];
        kernel[tap] = f32::INFINITY;
        let mut output = vec![0f32; n * n];
        c.run(&vec![1.0; n * n], &kernel, &mut output, &Serial).expect("the slices are long enough");
        for (at, &found) in output.iter().enumerate() {
            let (y, x) = (at / n + tap / 3, at % n + tap % 3);
            let outside = y == 0 || y == n + 1 || x == 0 || x == n + 1;
            assert_eq!(found.is_nan(), outside, "{found} at {at} with tap {tap}");
        }
    }
}

#[test]
fn short_slices_are_refused() {
    let axis = Axis {
        input: 4,
        kernel: 2,
        output: 3,
        stride: 1,
        padding_low: 0,
        base_dilation: 1,
        window_dilation: 1,
        reversed: false,
        input_stride: 1,
        kernel_stride: 1,
        output_stride: 1,
    };
    let c = Convolution {
        batch: 1,
        input_batch_stride: 4,
        output_batch_stride: 3,
        groups: 1,
        input_group_stride: 4,
        input_features: 1,
        input_feature_stride: 4,
        output_features: 1,
        output_feature_stride: 3,
        kernel_input_stride: 2,
        kernel_output_stride: 2,
        axes: vec![axis],
    };
    let mut output = [0f32; 3];
    assert!(c.run(&[1.0; 4], &[1.0, -1.0], &mut output, &Serial).is_some());
    assert!(c.run(&[1.0; 3], &[1.0, -1.0], &mut output, &Serial).is_none());
    assert!(c.run(&[1.0; 4], &[1.0], &mut output, &Serial).is_none());
    assert!(c.run(&[1.0; 4], &[1.0, -1.0], &mut output[..2], &Serial).is_none());
    let other = Convolution { groups: 2, ..c.clone() };
    assert!(other.run(&[1.0; 7], &[1.0, -1.0, 1.0, 1.0], &mut [0f32; 6], &Serial).is_none());
    let stacked = Convolution { batch: 2, input_batch_stride: 0, output_batch_stride: 0, ..c };
    assert!(stacked.run(&[1.0; 4], &[1.0, -1.0], &mut output, &Serial).is_none());
}

/// Taps, or values, that are very far apart: nothing is kept of the space between them.
#[test]
fn far_apart() {
    let far = 1_000_000_000_000;
    let axis = |base_dilation: usize, window_dilation: usize| Axis {
        output: 2,
        ..padded_axis(
            5,
            2,
            1,
            if window_dilation > 1 { window_dilation as isize } else { 0 },
            [base_dilation, window_dilation],
        )
    };
    for (groups, features) in [(1, [1, 1]), (3, [1, 1]), (1, [8, 8])] {
        for axis in [axis(far, 1), axis(1, far)] {
            let c = without_strides(2, groups, features, vec![axis]);
            let c = laid_out(c, false, [Layout::FeaturesLast; 3]);
            agrees::<f32>(&c, |x| x as f32, f64::from, 1e-4);
        }
    }
}

//! A convolution in parts without base dilation.
//!
//! Between dilated values there is nothing, so positions that are a whole number of dilations apart look at the same taps
//! of the window, and only these need to be computed with. The positions that look at the same taps are a part: it has
//! some of the taps, and every n-th position. Without base dilation there is one part.

use super::{Axis, Convolution};

/// Positions that look at the same taps.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Part {
    pub(super) axes: Vec<PartAxis>,
    /// Where its first position is in the result.
    pub(super) output: usize,
}

/// A spatial dimension of a part.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct PartAxis {
    /// How many positions.
    pub(super) outputs: usize,
    /// From one position to the next in the memory of the result.
    pub(super) output_stride: usize,
    /// From one position to the next in indices of the input.
    pub(super) step: usize,
    /// Size and stride of the input.
    pub(super) input: usize,
    pub(super) input_stride: usize,
    pub(super) taps: Vec<Tap>,
}

/// A tap along one dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tap {
    /// The index into the input under it at the first position; it may lie in the padding.
    pub(super) at: isize,
    /// Where its weight is along this dimension of the kernel.
    pub(super) weight: usize,
}

impl PartAxis {
    /// Whether there is a value at `index`.
    pub(super) fn has(&self, index: isize) -> bool {
        index >= 0 && index < self.input as isize
    }
}

/// The parts of a convolution.
pub(super) fn parts(convolution: &Convolution) -> Vec<Part> {
    let mut parts = vec![Part { axes: Vec::new(), output: 0 }];
    for axis in &convolution.axes {
        let phases = phases(axis);
        let join = |part: &Part, (phase, axis): &(usize, PartAxis)| {
            let mut joined = part.clone();
            joined.axes.push(axis.clone());
            joined.output += phase;
            joined
        };
        parts = parts.iter().flat_map(|part| phases.iter().map(move |phase| join(part, phase))).collect();
    }
    parts
}

/// The parts of one dimension, each with where it begins in the result.
fn phases(axis: &Axis) -> Vec<(usize, PartAxis)> {
    let dilation = axis.base_dilation;
    let period = dilation / gcd(dilation, axis.stride);
    let phase = |first: usize| {
        let outputs = (axis.output - first).div_ceil(period);
        let step = axis.stride * period / dilation;
        let tap = |tap: usize| {
            let at = (first * axis.stride + tap * axis.window_dilation) as isize - axis.padding_low;
            if at % dilation as isize != 0 {
                return None;
            }
            let at = at / dilation as isize;
            // Some taps see nothing but padding.
            let sees = at + ((outputs - 1) * step) as isize >= 0 && at < axis.input as isize;
            sees.then(|| Tap { at, weight: axis.weight(tap) })
        };
        let part = PartAxis {
            outputs,
            output_stride: axis.output_stride * period,
            step,
            input: axis.input,
            input_stride: axis.input_stride,
            taps: (0..axis.kernel).filter_map(tap).collect(),
        };
        (first * axis.output_stride, part)
    };
    (0..period.min(axis.output)).map(phase).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

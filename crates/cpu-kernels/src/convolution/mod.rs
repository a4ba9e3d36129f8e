//! Convolutions of any number of spatial dimensions, in any layout, with strides, padding, dilations and groups.
//!
//! Where each channel is convolved by itself, rows are read where they lie ([`stencil`]), or planes are padded once and
//! swept tap by tap ([`depthwise`]). A window of one element makes a product of matrices ([`crate::matmul`]). To few
//! features the kernels of products read images where they lie ([`direct`]), to very few they are summed along vectors
//! ([`few`]), and so do gradients of kernels over wide images ([`taps`]). Where positions lie side by side, planes are padded
//! once and multiplied by the weights of one tap after the other ([`planes`]). All others are such products too, of the kernel
//! and of a matrix of the values under the window that is never made as a whole ([`implicit`]).
//!
//! Winograd's way for windows of 3 × 3, F(2 × 2, 3 × 3), is not among them. It saves five of nine multiplications, but the
//! products above run about as fast as any product of matrices, and with its sums of values, of weights and of results in
//! plain code it was a tenth faster at best, and took more than twice as long at worst: of the present way's speed on one
//! core 0.6 with 64 features, 0.7 to 1.1 with 128, 0.35 to 1.1 with 256, 0.5 to 1.0 with 512. To pay it would need those
//! sums by hand, and the weights' made once for many runs.

mod depthwise;
mod direct;
mod few;
mod implicit;
mod parts;
mod planes;
mod runs;
mod stencil;
mod taps;
mod target;
#[cfg(test)]
mod tests;

use crate::extent;
use crate::matmul::{BatchDim, Matmul, as_compute, cast};
use crate::number::Stored;
use crate::parallel::{Epilogue, Parallel, Shared};
use crate::tiles::micro;
use crate::tiles::pack::{Pairs, Plain, Widened};
use half::{bf16, f16};

/// A convolution. Strides are in elements; the sizes of features are those of one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Convolution {
    /// How many images.
    pub batch: usize,
    /// From one image to the next.
    pub input_batch_stride: usize,
    /// The same in the result.
    pub output_batch_stride: usize,
    /// How many groups are convolved apart from each other, each with its own output features.
    pub groups: usize,
    /// From the input of one group to that of the next: groups have their own features, or their own images.
    pub input_group_stride: usize,
    /// Input features of a group.
    pub input_features: usize,
    /// From one feature of the input to the next.
    pub input_feature_stride: usize,
    /// Output features of a group.
    pub output_features: usize,
    /// From one feature of the result to the next.
    pub output_feature_stride: usize,
    /// From one input feature of the kernel to the next.
    pub kernel_input_stride: usize,
    /// From one output feature of the kernel to the next, those of all groups being in a row.
    pub kernel_output_stride: usize,
    /// The spatial dimensions.
    pub axes: Vec<Axis>,
}

/// A spatial dimension.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the field's own names")]
pub struct Axis {
    pub input: usize,
    pub kernel: usize,
    pub output: usize,
    pub stride: usize,
    pub padding_low: isize,
    pub base_dilation: usize,
    pub window_dilation: usize,
    /// The kernel is turned round along this dimension.
    pub reversed: bool,
    pub input_stride: usize,
    pub kernel_stride: usize,
    pub output_stride: usize,
}

impl Axis {
    /// The index into the input at place `at` of the padded and dilated dimension; `None` where there is no value.
    #[inline]
    fn within(&self, at: usize) -> Option<usize> {
        let at = usize::try_from(at as isize - self.padding_low).ok()?;
        (at.is_multiple_of(self.base_dilation) && at / self.base_dilation < self.input).then(|| at / self.base_dilation)
    }

    /// Where the weight of tap `tap` is along this dimension of the kernel.
    fn weight(&self, tap: usize) -> usize {
        (if self.reversed { self.kernel - 1 - tap } else { tap }) * self.kernel_stride
    }
}

impl Convolution {
    /// Convolves. `None`, and nothing is done, if a slice is too short for the sizes and strides, or the strides make
    /// elements of the result lie upon each other.
    pub fn run<S: Stored>(&self, input: &[S], kernel: &[S], output: &mut [S], parallel: &dyn Parallel) -> Option<()> {
        self.compute(input, kernel, &Shared::new(output), parallel, None)
    }

    /// The elements of a row of the result, if it is made row by row.
    pub fn row(&self) -> Option<usize> {
        match self.as_product() {
            Some((product, _)) => Some(product.n),
            None if self.is_empty() || self.is_by_channel() => None,
            None => implicit::rows(self).map(|([_, row], _)| row),
        }
    }

    /// Whether [rows](Convolution::row) of the result can be handed over as they are made, so many at a time.
    pub fn tiles_by_rows(&self, step: usize) -> bool {
        if let Some((product, _)) = self.as_product() {
            return product.tiles_by_rows(step);
        }
        let other_ways = [taps::suits, direct::suits, planes::suits];
        let in_rows = !(self.is_empty() || self.is_by_channel() || other_ways.iter().any(|suits| suits(self)));
        let rows = implicit::rows(self).filter(|_| in_rows && !few::is_few(self));
        rows.is_some_and(|([m, _], products)| products == 1 || m.is_multiple_of(step.max(1)))
    }

    fn is_empty(&self) -> bool {
        self.batch * self.groups * self.output_features * self.positions() == 0
    }

    /// As [`Convolution::run`], but each row of the result is handed over as soon as it is there, and kept no longer. `None`,
    /// and nothing is done, for convolutions that are [not](Convolution::tiles_by_rows) made so.
    pub fn run_with_epilogue<S: Stored>(
        &self,
        [input, kernel]: [&[S]; 2],
        parallel: &dyn Parallel,
        epilogue: &Epilogue<'_>,
    ) -> Option<()> {
        self.compute(input, kernel, &Shared::new(&mut []), parallel, Some(epilogue))
    }

    /// All of it, to the output or to the epilogue.
    fn compute<S: Stored>(
        &self,
        input: &[S],
        kernel: &[S],
        output: &Shared<'_, S>,
        parallel: &dyn Parallel,
        epilogue: Option<&Epilogue<'_>>,
    ) -> Option<()> {
        let room = if epilogue.is_some() { usize::MAX } else { output.len() };
        self.check(input.len(), kernel.len(), room)?;
        if epilogue.is_some_and(|epilogue| !self.tiles_by_rows(epilogue.step)) {
            return None;
        }
        if self.is_empty() {
            return Some(());
        }
        if let Some((product, weights_first)) = self.as_product() {
            let (lhs, rhs) = if weights_first { (kernel, input) } else { (input, kernel) };
            return product.compute(lhs, rhs, output, parallel, epilogue);
        }
        if self.is_by_channel() && stencil::run(self, input, kernel, output, parallel).is_some() {
            return Some(());
        }
        // What copies the image with its padding does so for windows that are not much larger than what they look at.
        let compact = self.is_compact();
        if compact && self.is_by_channel() {
            depthwise::run(self, input, kernel, output, parallel);
            return Some(());
        }
        if compact && few::run(self, input, kernel, output, parallel).is_some() {
            return Some(());
        }
        if compact && taps::suits(self) {
            self.over_taps(input, kernel, output, parallel);
            return Some(());
        }
        if compact && planes::suits(self) {
            if let (Some(input), Some(kernel)) = (cast::<S, f32>(input), cast::<S, f32>(kernel)) {
                planes::run::<f32, Plain, S>(self, input, kernel, output, parallel);
                return Some(());
            }
            if let (Some(input), Some(kernel)) = (cast::<S, f64>(input), cast::<S, f64>(kernel)) {
                planes::run::<f64, Plain, S>(self, input, kernel, output, parallel);
                return Some(());
            }
        }
        let is_direct = compact && direct::suits(self);
        let by_implicit = implicit::Call { convolution: self, output, parallel, epilogue };
        if let (Some(input), Some(kernel)) = (cast::<S, f32>(input), cast::<S, f32>(kernel)) {
            if is_direct {
                direct::run::<f32, Plain, S>(self, input, kernel, output, parallel);
                return Some(());
            }
            by_implicit.run::<f32, Plain>(input, kernel, None)
        } else if let (Some(input), Some(kernel)) = (cast::<S, f64>(input), cast::<S, f64>(kernel)) {
            if is_direct {
                direct::run::<f64, Plain, S>(self, input, kernel, output, parallel);
                return Some(());
            }
            by_implicit.run::<f64, Plain>(input, kernel, None)
        } else if let (Some(input), Some(kernel)) = (cast::<S, bf16>(input), cast::<S, bf16>(kernel)) {
            match micro::bf16_pairs().is_some() {
                true => by_implicit.run::<bf16, Pairs>(input, kernel, Some(finish)),
                false => by_implicit.run::<bf16, Widened>(input, kernel, Some(finish)),
            }
        } else if let (Some(input), Some(kernel)) = (cast::<S, f16>(input), cast::<S, f16>(kernel)) {
            by_implicit.run::<f16, Widened>(input, kernel, Some(finish))
        } else {
            unreachable!("a float that there are no products for")
        }
        Some(())
    }

    /// Computes it as the gradient of a kernel over a wide image.
    fn over_taps<S: Stored>(&self, input: &[S], kernel: &[S], output: &Shared<'_, S>, parallel: &dyn Parallel) {
        if let (Some(input), Some(kernel)) = (cast::<S, f32>(input), cast::<S, f32>(kernel)) {
            taps::run::<f32, Plain, S>(self, input, kernel, output, parallel, None);
        } else if let (Some(input), Some(kernel)) = (cast::<S, f64>(input), cast::<S, f64>(kernel)) {
            taps::run::<f64, Plain, S>(self, input, kernel, output, parallel, None);
        } else if let (Some(input), Some(kernel)) = (cast::<S, bf16>(input), cast::<S, bf16>(kernel)) {
            match micro::bf16_pairs().is_some() && taps::in_pairs(self) {
                true => taps::run::<bf16, Pairs, S>(self, input, kernel, output, parallel, Some(finish)),
                false => taps::run::<bf16, Widened, S>(self, input, kernel, output, parallel, Some(finish)),
            }
        } else if let (Some(input), Some(kernel)) = (cast::<S, f16>(input), cast::<S, f16>(kernel)) {
            taps::run::<f16, Widened, S>(self, input, kernel, output, parallel, Some(finish));
        } else {
            unreachable!("a float that there are no products for")
        }
    }

    /// Whether the windows reach over an image that is not much larger than what there is in it.
    fn is_compact(&self) -> bool {
        self.axes.iter().all(|a| {
            let window = (a.kernel.saturating_sub(1)).saturating_mul(a.window_dilation);
            let reach = a.output.saturating_sub(1).saturating_mul(a.stride).saturating_add(window);
            let there = a.input.saturating_add(a.kernel).saturating_add(a.output);
            reach / 64 <= there.saturating_add(1024)
        })
    }

    /// Whether each channel is best convolved by itself. Several input features make sense only where there are few
    /// positions, as in the gradient of such a convolution's kernel, since the sums of all of them are kept.
    fn is_by_channel(&self) -> bool {
        let few = self.input_features == 1 || self.input_group_stride == 1 && self.positions() <= 64;
        few && self.input_features > 0 && self.output_features == 1 && (self.groups > 1 || self.input_features == 1)
    }

    /// The product of matrices that it is, if it is one, and whether the kernel is the left operand.
    fn as_product(&self) -> Option<(Matmul, bool)> {
        let still = |a: &Axis| {
            let one_tap = a.kernel == 1 && a.padding_low == 0 && a.base_dilation == 1;
            one_tap && (a.stride == 1 || a.output == 1) && a.output <= a.input
        };
        if self.groups != 1 || !self.axes.iter().all(still) {
            return None;
        }
        // Dimensions as one, if they are evenly spaced.
        let joined = |dims: &mut dyn Iterator<Item = (usize, usize)>| {
            let mut joint: Option<(usize, usize)> = None;
            for (size, stride) in dims.filter(|d| d.0 > 1) {
                joint = match joint {
                    None => Some((size, stride)),
                    Some((n, s)) if stride == n * s => Some((n * size, s)),
                    Some(_) => return None,
                };
            }
            Some(joint.unwrap_or((1, 1)))
        };
        let (features, positions) = (self.output_features, self.positions());
        let inputs = self.axes.iter().rev().map(|a| (a.output, a.input_stride));
        let outputs = self.axes.iter().rev().map(|a| (a.output, a.output_stride));
        let k = self.input_features;
        if self.output_feature_stride == 1 {
            let (m, lhs_row) = joined(&mut inputs.chain([(self.batch, self.input_batch_stride)]))?;
            let (_, row) = joined(&mut outputs.chain([(self.batch, self.output_batch_stride)]))?;
            let product = Matmul {
                batch: Vec::new(),
                m,
                n: features,
                k,
                lhs_row,
                lhs_column: self.input_feature_stride,
                rhs_row: self.kernel_input_stride,
                rhs_column: self.kernel_output_stride,
            };
            return (row == features || m == 1).then_some((product, false));
        }
        let ((n, rhs_column), (_, column)) = (joined(&mut inputs.clone())?, joined(&mut outputs.clone())?);
        let is_dense = (column == 1 || n == 1)
            && (self.output_feature_stride == positions || features == 1)
            && (self.output_batch_stride == positions * features || self.batch == 1);
        let product = Matmul {
            batch: vec![BatchDim { size: self.batch, lhs: 0, rhs: self.input_batch_stride }],
            m: features,
            n,
            k,
            lhs_row: self.kernel_output_stride,
            lhs_column: self.kernel_input_stride,
            rhs_row: self.input_feature_stride,
            rhs_column,
        };
        is_dense.then_some((product, true))
    }

    /// Multiplications and additions.
    pub fn flops(&self) -> f64 {
        let per_group = self.input_features as f64 * self.output_features as f64 * self.taps() as f64;
        2.0 * self.batch as f64 * self.groups as f64 * per_group * self.positions() as f64
    }

    fn positions(&self) -> usize {
        self.axes.iter().map(|a| a.output).product()
    }

    fn taps(&self) -> usize {
        self.axes.iter().map(|a| a.kernel).product()
    }

    /// The offset of each tap's weights in the kernel, the last dimension fastest.
    fn tap_weights(&self) -> Vec<usize> {
        let mut offsets = vec![0];
        for axis in &self.axes {
            let taps = (0..axis.kernel).map(|t| axis.weight(t)).collect::<Vec<_>>();
            offsets = offsets.iter().flat_map(|o| taps.iter().map(move |t| o + t)).collect();
        }
        offsets
    }

    fn check(&self, input: usize, kernel: usize, output: usize) -> Option<()> {
        let axes = |of: fn(&Axis) -> (usize, usize)| self.axes.iter().map(of).collect::<Vec<_>>();
        let mut dims = axes(|a| (a.input, a.input_stride));
        dims.extend([(self.batch, self.input_batch_stride), (self.input_features, self.input_feature_stride)]);
        dims.push((self.groups, self.input_group_stride));
        extent(&dims).filter(|&n| n <= input)?;
        let outputs = self.groups.checked_mul(self.output_features)?;
        let mut dims = axes(|a| (a.kernel, a.kernel_stride));
        dims.extend([(self.input_features, self.kernel_input_stride), (outputs, self.kernel_output_stride)]);
        extent(&dims).filter(|&n| n <= kernel)?;
        let mut dims = axes(|a| (a.output, a.output_stride));
        dims.extend([(self.batch, self.output_batch_stride), (outputs, self.output_feature_stride)]);
        extent(&dims).filter(|&n| n <= output)?;
        if !apart(dims) {
            return None;
        }
        let reach = |a: &Axis| {
            let last = a.output.saturating_sub(1).checked_mul(a.stride)?;
            let window = a.kernel.saturating_sub(1).checked_mul(a.window_dilation)?;
            let dilated = a.input.checked_mul(a.base_dilation)?;
            let most = last.checked_add(window)?.checked_add(a.padding_low.unsigned_abs())?.checked_add(dilated)?;
            (a.base_dilation > 0 && most < isize::MAX as usize / 2).then_some(())
        };
        self.axes.iter().try_for_each(reach)
    }
}

/// Rounds sums to results.
fn finish<S: Stored>(sums: &[f32], to: &mut [S]) {
    S::store_all(as_compute::<f32, S>(sums), to);
}

/// Whether no two indices mean the same element.
fn apart(mut dims: Vec<(usize, usize)>) -> bool {
    if dims.iter().any(|d| d.0 == 0) {
        return true;
    }
    dims.retain(|d| d.0 > 1);
    dims.sort_by_key(|d| d.1);
    let mut reached = 0usize;
    dims.iter().all(|&(size, stride)| {
        let is_apart = stride > reached;
        reached = reached.saturating_add((size - 1).saturating_mul(stride));
        is_apart
    })
}

/// Counts through a multi-dimensional index, the last dimension fastest; calls `visit` with each.
fn for_each_index(sizes: &[usize], mut visit: impl FnMut(&[usize])) {
    if sizes.contains(&0) {
        return;
    }
    let mut index = vec![0; sizes.len()];
    loop {
        visit(&index);
        let mut d = sizes.len();
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            index[d] += 1;
            if index[d] < sizes[d] {
                break;
            }
            index[d] = 0;
        }
    }
}

//! The pass `expand-depthwise`: convolutions of every feature by itself, and the gradients of their filters, as sums.
//!
//! Nothing is multiplied as a matrix there, so that cuDNN has no use for the tensor cores, and reads as much as a loop does.
//! Written out, each tap of the window is a slice of the padded image times the tap's weights; all of them are one kernel,
//! with whatever comes before and after it. The gradient of a tap is a sum over such a slice times the gradient of the
//! output.

use crate::canonicalize::replace_each;
use crate::convolution::has_convolution;
use hloom_ir::attributes::{PaddingDim, SliceDim};
use hloom_ir::builder::Builder;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{self, Op};
use hloom_ir::shape::ArrayShape;
use hloom_passes::{Context, Pass};

/// The pass.
pub(crate) static PASS: Pass = Pass {
    name: "expand-depthwise",
    statement: "writes out convolutions of single features as sums over their windows",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(replace_each(module, written_out)) as Result<usize, Diagnostic>,
};

/// More taps than this are left to cuDNN: the text of the kernel would be long.
const MAX_TAPS: i64 = 64;

/// A convolution whose operands are known.
struct Depthwise<'m> {
    b: Builder<'m>,
    conv: op::Convolution,
    image: ArrayShape,
    filter: ArrayShape,
    result: ArrayShape,
    /// The type that sums are made in.
    wide: ElementType,
}

fn written_out(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (Op::Convolution(conv), &[lhs, rhs]) = (&module[i].op, module[i].operands()) else { return None };
    let conv = conv.as_ref().clone();
    let array = |i: InstructionId| module[i].shape.as_array().filter(|a| !a.is_dynamic()).cloned();
    let (image, filter, result) = (array(lhs)?, array(rhs)?, array(i)?);
    let is_known = has_convolution(image.element_type, filter.element_type, result.element_type);
    let is_sparse = conv.lhs_sparsity.is_some() || conv.rhs_sparsity.is_some();
    if !is_known || is_sparse || result.element_count()? == 0 || image.element_count()? == 0 {
        return None;
    }
    let wide = if result.element_type == ElementType::F64 { ElementType::F64 } else { ElementType::F32 };
    let parent = module[i].parent();
    let mut depthwise = Depthwise { b: Builder::resume(module, parent), conv, image, filter, result, wide };
    match depthwise.conv.batch_group_count > 1 {
        false => depthwise.forward(lhs, rhs),
        true => depthwise.filter_gradient(lhs, rhs),
    }
}

fn size(array: &ArrayShape, dim: i64) -> Option<i64> {
    array.dims().get(usize::try_from(dim).ok()?).copied()
}

/// All vectors below `sizes`, the last number first to change.
fn vectors(sizes: &[i64]) -> Vec<Vec<i64>> {
    let mut all = vec![Vec::new()];
    for &size in sizes {
        all = all.iter().flat_map(|v| (0..size).map(|n| [&v[..], &[n]].concat())).collect();
    }
    all
}

impl Depthwise<'_> {
    /// The sizes of a list of dimensions, if there are few elements of them.
    fn taps(&self, array: &ArrayShape, dims: &[i64]) -> Option<Vec<Vec<i64>>> {
        let sizes = dims.iter().map(|&d| size(array, d)).collect::<Option<Vec<i64>>>()?;
        let count = sizes.iter().try_fold(1i64, |n, &s| n.checked_mul(s))?;
        (1..=MAX_TAPS).contains(&count).then(|| vectors(&sizes))
    }

    fn converted(&mut self, x: InstructionId, to: ElementType) -> Option<InstructionId> {
        if self.b.shape(x).element_type() == Some(to) { Some(x) } else { self.b.convert(x, to).ok() }
    }

    /// The image with its padding, and its elements as far apart as the convolution takes them.
    fn padded(&mut self, image: InstructionId) -> Option<InstructionId> {
        let mut padding = vec![PaddingDim::default(); self.image.rank()];
        for (w, &d) in self.conv.window.dims.iter().zip(&self.conv.dims.input_spatial) {
            let dim = PaddingDim { low: w.padding_low, high: w.padding_high, interior: w.base_dilation - 1 };
            *padding.get_mut(usize::try_from(d).ok()?)? = dim;
        }
        if padding.iter().all(|p| *p == PaddingDim::default()) {
            return Some(image);
        }
        let zero = self.b.literal(Literal::zero(self.image.element_type)).ok()?;
        self.b.pad(image, zero, padding).ok()
    }

    /// The elements of the padded image along its spatial dimensions, each from a start on, so many of them, so far apart.
    fn part(&mut self, padded: InstructionId, along: &[(i64, i64, i64)]) -> Option<InstructionId> {
        let whole = self.b.shape(padded).as_array()?.dims().to_vec();
        let mut dims: Vec<SliceDim> = whole.iter().map(|&n| SliceDim { start: 0, limit: n, stride: 1 }).collect();
        for (&(start, count, stride), &d) in along.iter().zip(&self.conv.dims.input_spatial) {
            let limit = start + (count - 1) * stride + 1;
            let stride = if count > 1 { stride } else { 1 };
            *dims.get_mut(usize::try_from(d).ok()?)? = SliceDim { start, limit, stride };
        }
        let part = self.b.slice(padded, dims).ok()?;
        self.converted(part, self.wide)
    }

    fn forward(&mut self, image: InstructionId, filter: InstructionId) -> Option<InstructionId> {
        let dims = self.conv.dims.clone();
        let features = size(&self.image, dims.input_feature)?;
        let is_single = features > 1
            && self.conv.feature_group_count == features
            && size(&self.filter, dims.kernel_input_feature)? == 1
            && size(&self.filter, dims.kernel_output_feature)? == features;
        let taps = is_single.then(|| self.taps(&self.filter, &dims.kernel_spatial))??;
        let windows = self.conv.window.dims.clone();
        let counts = dims.output_spatial.iter().map(|&d| size(&self.result, d)).collect::<Option<Vec<i64>>>()?;
        let padded = self.padded(image)?;
        let mut sum: Option<InstructionId> = None;
        for tap in taps {
            let along: Vec<(i64, i64, i64)> =
                (0..tap.len()).map(|n| (tap[n] * windows[n].window_dilation, counts[n], windows[n].stride)).collect();
            let part = self.part(padded, &along)?;
            let mut of_tap: Vec<SliceDim> =
                self.filter.dims().iter().map(|&n| SliceDim { start: 0, limit: n, stride: 1 }).collect();
            for (n, &d) in dims.kernel_spatial.iter().enumerate() {
                let last = size(&self.filter, d)? - 1;
                let start = if windows[n].window_reversal { last - tap[n] } else { tap[n] };
                *of_tap.get_mut(usize::try_from(d).ok()?)? = SliceDim { start, limit: start + 1, stride: 1 };
            }
            let weights = self.b.slice(filter, of_tap).ok()?;
            let weights = self.b.reshape(weights, [features]).ok()?;
            let weights = self.converted(weights, self.wide)?;
            let sizes = self.b.shape(part).as_array()?.dims().to_vec();
            let weights = self.b.broadcast(weights, sizes, [dims.input_feature]).ok()?;
            let product = self.b.multiply(part, weights).ok()?;
            sum = Some(match sum {
                None => product,
                Some(before) => self.b.add(before, product).ok()?,
            });
        }
        let sum = self.converted(sum?, self.result.element_type)?;
        // From the order of the image's dimensions to that of the result's.
        let mut order = vec![0; self.result.rank()];
        let spatial = dims.output_spatial.iter().zip(&dims.input_spatial).map(|(&to, &from)| (to, from));
        let others = [(dims.output_batch, dims.input_batch), (dims.output_feature, dims.input_feature)];
        for (to, from) in spatial.chain(others) {
            *order.get_mut(usize::try_from(to).ok()?)? = from;
        }
        self.turned(sum, order)
    }

    fn turned(&mut self, x: InstructionId, order: Vec<i64>) -> Option<InstructionId> {
        let is_identity = order.iter().enumerate().all(|(n, &d)| n as i64 == d);
        if is_identity { Some(x) } else { self.b.transpose(x, order).ok() }
    }

    /// The image's batches are the features here, and its features the batches; what slides over it is the gradient of the
    /// output.
    fn filter_gradient(&mut self, image: InstructionId, gradient: InstructionId) -> Option<InstructionId> {
        let dims = self.conv.dims.clone();
        let features = size(&self.image, dims.input_batch)?;
        let is_single = self.conv.batch_group_count == features
            && self.conv.feature_group_count == 1
            && size(&self.filter, dims.kernel_output_feature)? == features;
        let in_order = dims.input_batch == dims.kernel_output_feature
            && dims.input_feature == dims.kernel_input_feature
            && dims.input_spatial == dims.kernel_spatial;
        let windows = self.conv.window.dims.clone();
        let is_plain = windows.iter().all(|w| !w.window_reversal);
        let taps = (is_single && in_order && is_plain).then(|| self.taps(&self.result, &dims.output_spatial))??;
        let count = taps.len() as i64;
        let gradient = self.converted(gradient, self.wide)?;
        let summed: Vec<i64> = (0..self.image.rank() as i64).filter(|&d| d != dims.input_batch).collect();
        let mut sums = Vec::new();
        for tap in taps {
            let along: Vec<(i64, i64, i64)> = (0..tap.len())
                .map(|n| (tap[n] * windows[n].stride, windows[n].size, windows[n].window_dilation))
                .collect();
            // Each sum has its own pad, to be made where it is needed: one for all would be put into memory.
            let padded = self.padded(image)?;
            let part = self.part(padded, &along)?;
            let product = self.b.multiply(part, gradient).ok()?;
            let sum = self.b.sum(product, summed.iter().copied()).ok()?;
            sums.push(self.b.reshape(sum, [1, features]).ok()?);
        }
        let all = if count == 1 { sums[0] } else { self.b.concatenate(&sums, 0).ok()? };
        let all = self.converted(all, self.result.element_type)?;
        // As [spatial…, batch of one, features], from there to the order of the result.
        let spatial = dims.output_spatial.iter().map(|&d| size(&self.result, d)).collect::<Option<Vec<i64>>>()?;
        let apart = self.b.reshape(all, spatial.iter().copied().chain([1, features])).ok()?;
        let mut order = vec![0; self.result.rank()];
        let places = dims.output_spatial.iter().chain([&dims.output_batch, &dims.output_feature]);
        for (from, &to) in (0..).zip(places) {
            *order.get_mut(usize::try_from(to).ok()?)? = from;
        }
        self.turned(apart, order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_analysis::devices::DeviceGrid;
    use hloom_formats::hlo_text;
    use hloom_ir::verify::{VerifyOptions, verify};
    use hloom_value::{Array, Value};

    /// Numbers that sums of few are exact of.
    fn made_up(dims: &[i64], seed: u64) -> Value {
        let count: i64 = dims.iter().product();
        let each = |n: i64| ((n as u64 * 7 + seed * 3) % 11) as f32 - 5.0;
        let bytes: Vec<u8> = (0..count).flat_map(|n| each(n).to_le_bytes()).collect();
        Value::Array(Array::from_bytes(ElementType::F32, dims, &bytes).expect("the bytes are as many"))
    }

    fn results(module: Module, inputs: &[Value]) -> Vec<f32> {
        let module = verify(module, &VerifyOptions::default()).unwrap_or_else(|e| panic!("{:?}", e.diagnostics));
        let grid = DeviceGrid { replicas: 1, partitions: 1 };
        let mut results = hloom_eval::run(&module, grid, vec![inputs.to_vec()], &hloom_eval::Options::default())
            .unwrap_or_else(|e| panic!("{e:?}"));
        let Value::Array(array) = results.remove(0) else { panic!("it is an array") };
        array.as_slice::<f32>().expect("its elements are f32").to_vec()
    }

    fn check(image: &[i64], filter: &[i64], rest: &str) {
        let list = |dims: &[i64]| dims.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let text = format!(
            "HloModule m\n\nENTRY e {{\na = f32[{}] parameter(0)\nb = f32[{}] parameter(1)\nROOT c = {rest}\n}}\n",
            list(image),
            list(filter)
        );
        let before = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        let mut after = before.clone();
        assert_eq!(replace_each(&mut after, written_out), 1, "{rest}");
        let inputs = [made_up(image, 1), made_up(filter, 2)];
        assert_eq!(results(before, &inputs), results(after, &inputs), "{rest}");
    }

    #[test]
    fn sums_over_windows_are_the_convolution() {
        check(
            &[2, 6, 5, 3],
            &[3, 3, 1, 3],
            "f32[2,6,5,3] convolution(a, b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=3",
        );
        check(
            &[2, 3, 9],
            &[3, 1, 4],
            "f32[2,5,3] convolution(a, b), window={size=4 stride=2 pad=3_0 rhs_dilate=1 rhs_reversal=1}, \
             dim_labels=bf0_oi0->b0f, feature_group_count=3",
        );
        check(
            &[1, 4, 2],
            &[2, 1, 2],
            "f32[1,7,2] convolution(a, b), window={size=2 pad=1_1 lhs_dilate=2 rhs_dilate=2}, \
             dim_labels=b0f_0io->b0f, feature_group_count=2",
        );
    }

    #[test]
    fn sums_over_images_are_the_gradient_of_the_filter() {
        check(
            &[2, 6, 5, 3],
            &[2, 6, 5, 3],
            "f32[3,3,1,3] convolution(a, b), window={size=6x5 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf, batch_group_count=3",
        );
        check(
            &[2, 7, 3],
            &[2, 3, 3],
            "f32[4,1,3] convolution(a, b), window={size=3 pad=1_0 rhs_dilate=2}, dim_labels=f0b_i0o->0bf, \
             batch_group_count=3",
        );
    }

    #[test]
    fn features_that_are_mixed_are_left_alone() {
        let text = "HloModule m

             ENTRY e {
               a = f32[2,6,6,4] parameter(0)
               b = f32[3,3,2,4] parameter(1)
               ROOT c = f32[2,4,4,4] convolution(a, b), window={size=3x3}, dim_labels=b01f_01io->b01f, feature_group_count=2
             }";
        let mut module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        assert_eq!(replace_each(&mut module, written_out), 0);
    }
}

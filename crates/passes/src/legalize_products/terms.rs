//! Convolutions as the sums that they are: each term is a part of the padded input times a weight, and fusion makes one loop
//! of all of them and of what comes after.

use super::{broadcast_to, converted};
use crate::rules::dims;
use hloom_ir::attributes::{PaddingDim, SliceDim, WindowDim};
use hloom_ir::builder::Builder;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::Convolution;
use hloom_ir::shape::ArrayShape;

/// Terms that are written out.
const MOST_TERMS: i64 = 32;
/// The padded input may have so many times the elements of input and result.
const MOST_PADDED: i64 = 4;

/// Terms of each sum of a convolution with that kernel.
pub(super) fn terms(module: &Module, convolution: &Convolution, kernel: InstructionId) -> Option<i64> {
    let sizes = dims(module, kernel)?;
    let outputs = *sizes.get(convolution.dims.kernel_output_feature as usize)?;
    let all = sizes.iter().try_fold(1i64, |n, &d| n.checked_mul(d))?;
    all.checked_div(outputs)
}

/// The convolution as a sum of products, if it has few terms. Operands are of its type.
pub(super) fn written_out(
    b: &mut Builder<'_>,
    convolution: &Convolution,
    [input, kernel]: [InstructionId; 2],
    to: &ArrayShape,
) -> Option<InstructionId> {
    let is_plain = convolution.feature_group_count == 1
        && convolution.batch_group_count == 1
        && convolution.lhs_sparsity.is_none()
        && convolution.rhs_sparsity.is_none();
    let terms = terms(b.module(), convolution, kernel)?;
    if !is_plain || !(1..=MOST_TERMS).contains(&terms) || to.dims().contains(&0) {
        return None;
    }
    let numbers = &convolution.dims;
    let windows: &[WindowDim] = &convolution.window.dims;
    let (sizes, taps) = (dims(b.module(), input)?.to_vec(), dims(b.module(), kernel)?.to_vec());
    let mut padding = vec![PaddingDim { low: 0, high: 0, interior: 0 }; sizes.len()];
    for (window, &d) in windows.iter().zip(&numbers.input_spatial) {
        *padding.get_mut(d as usize)? = PaddingDim {
            low: window.padding_low,
            high: window.padding_high,
            interior: window.base_dilation.max(1) - 1,
        };
    }
    let zero = b.constant(0i32).ok()?;
    let zero = converted(b, zero, to.element_type)?;
    let padded = b.pad(input, zero, padding).ok()?;
    let sizes_there = dims(b.module(), padded)?.to_vec();
    // Where the dimensions of a part, and that of a weight for each feature, are in the result.
    let is_feature = |d: usize| d as i64 == numbers.input_feature;
    let place = |d: usize| match numbers.input_spatial.iter().position(|&s| s == d as i64) {
        Some(n) => numbers.output_spatial.get(n).copied(),
        None => Some(numbers.output_batch),
    };
    let kept: Vec<usize> = (0..sizes.len()).filter(|&d| !is_feature(d)).collect();
    let places: DimVec = kept.iter().map(|&d| place(d)).collect::<Option<_>>()?;
    // What is only moved apart, or far outside, is not to be written to memory.
    let count = |sizes: &[i64]| sizes.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
    let most = count(&sizes)?.saturating_add(count(to.dims())?).saturating_mul(MOST_PADDED);
    (count(&sizes_there)? <= most).then_some(())?;
    let all = DimVec::from(to.dims());
    let mut sum: Option<InstructionId> = None;
    for term in 0..terms {
        let feature = term % *sizes.get(numbers.input_feature as usize)?;
        let mut rest = term / sizes[numbers.input_feature as usize];
        let whole = |size: i64| SliceDim { start: 0, limit: size, stride: 1 };
        let one = |at: i64| SliceDim { start: at, limit: at + 1, stride: 1 };
        let mut part: Vec<SliceDim> = sizes_there.iter().map(|&size| whole(size)).collect();
        let mut weight: Vec<SliceDim> = taps.iter().map(|&size| whole(size)).collect();
        *part.get_mut(numbers.input_feature as usize)? = one(feature);
        *weight.get_mut(numbers.kernel_input_feature as usize)? = one(feature);
        for (n, window) in windows.iter().enumerate() {
            let (from, of, made) =
                (numbers.input_spatial.get(n)?, numbers.kernel_spatial.get(n)?, numbers.output_spatial.get(n)?);
            let (count, positions) = (*taps.get(*of as usize)?, *to.dims().get(*made as usize)?);
            let tap = rest % count;
            rest /= count;
            *weight.get_mut(*of as usize)? = one(if window.window_reversal { count - 1 - tap } else { tap });
            let (start, stride) = (tap * window.window_dilation.max(1), window.stride.max(1));
            *part.get_mut(*from as usize)? = SliceDim { start, limit: start + (positions - 1) * stride + 1, stride };
        }
        let part = b.slice(padded, part).ok()?;
        let part_sizes: Vec<i64> = kept.iter().map(|&d| dims(b.module(), part).map(|s| s[d])).collect::<Option<_>>()?;
        let part = b.reshape(part, part_sizes).ok()?;
        let part = broadcast_to(b, part, &all, &places)?;
        let weight = b.slice(kernel, weight).ok()?;
        let weight = b.reshape(weight, [*taps.get(numbers.kernel_output_feature as usize)?]).ok()?;
        let weight = broadcast_to(b, weight, &all, &DimVec::from_slice(&[numbers.output_feature]))?;
        let product = b.multiply(part, weight).ok()?;
        sum = Some(sum.map_or(Ok(product), |sum| b.add(sum, product)).ok()?);
    }
    sum
}

/// Whether a convolution is of one feature and makes one, of its rows as they lie, by windows of several rows: kernels for
/// products have nothing to gain from it. (Along a single dimension there is one that is faster.)
pub(super) fn is_stencil(module: &Module, convolution: &Convolution, kernel: InstructionId, to: &ArrayShape) -> bool {
    /// Shorter rows leave vectors nearly empty.
    const SHORTEST: i64 = 16;
    let numbers = &convolution.dims;
    let Some(sizes) = dims(module, kernel) else { return false };
    let is_one = |d: i64| sizes.get(d as usize) == Some(&1);
    let last = to.dims().iter().rposition(|&n| n > 1).map(|d| d as i64);
    let row = last.and_then(|d| to.dims().get(d as usize)).copied().unwrap_or(0);
    is_one(numbers.kernel_input_feature)
        && is_one(numbers.kernel_output_feature)
        && row >= SHORTEST
        && last.is_some_and(|d| numbers.output_spatial.contains(&d))
        && convolution.window.dims.iter().all(|w| w.base_dilation <= 1)
        && convolution.window.dims.iter().filter(|w| w.size > 1).count() > 1
}

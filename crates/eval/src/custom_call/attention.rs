//! `__cudnn$fmha…`: attention as cuDNN computes it, and its gradients.
//!
//! Scores are scaled products of queries and keys, plus a bias; what a mask excludes does not count; weights are their
//! softmax, and the result sums values by weights. Everything is computed in f32 and rounded once.

use super::gemm::{dimension_numbers, fit, number_or};
use super::{CustomCalls, attributes, config, shaped, unsupported};
use crate::interpreter::{Device, OperandValues};
use crate::ops::contraction::dot;
use crate::ops::data_movement::broadcast;
use crate::ops::elementwise::{binary, convert};
use hloom_ir::attributes::DotDimensionNumbers;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::BinaryOp;
use hloom_ir::shape::Shape;
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};
use serde_json::Value as Json;

const F32: ElementType = ElementType::F32;

pub(super) fn register(calls: &mut CustomCalls) {
    for target in ["__cudnn$fmhaSoftmax", "__cudnn$fmhaScaleBiasSoftmax"] {
        calls.register(target, Box::new(forward));
        calls.register(format!("{target}Backward"), Box::new(backward));
    }
}

/// What a call says of its scores.
struct ScoreOptions {
    scale: f64,
    causal: bool,
    padding: bool,
    /// How many keys back a query sees, where that is limited.
    window: Option<i64>,
    has_bias: bool,
}

impl ScoreOptions {
    fn of(device: &Device<'_>, i: InstructionId, options: &Json) -> Result<ScoreOptions, ExecutionError> {
        let wrong = |why: &str| Err(unsupported(device, i, why));
        if number_or(options, "dropout_rate", 0.0) != 0.0 {
            return wrong("it drops weights at random");
        }
        if options.get("is_paged_attention").and_then(Json::as_bool) == Some(true) {
            return wrong("its keys and values are in pages");
        }
        if number_or(options, "max_seg_per_batch", 1.0) > 1.0 {
            return wrong("its sequences are packed");
        }
        let mask = options.get("mask_type").and_then(Json::as_str).unwrap_or("NO_MASK");
        if !["NO_MASK", "PADDING", "CAUSAL", "PADDING_CAUSAL"].contains(&mask) {
            return wrong(&format!("the mask {mask} is not known"));
        }
        let window = number_or(options, "sliding_window_length", 0.0) as i64;
        Ok(ScoreOptions {
            scale: number_or(options, "fmha_scale", 1.0),
            causal: mask.contains("CAUSAL") || options.get("is_causal_mask").and_then(Json::as_bool) == Some(true),
            padding: mask.starts_with("PADDING"),
            window: (window > 0).then_some(window),
            has_bias: attributes(device, i)?.target.contains("Bias"),
        })
    }

    /// The lengths of queries and of keys in each batch, where the rest is padding.
    fn lengths(&self, rest: &mut impl Iterator<Item = Array>) -> Result<Option<[Vec<i64>; 2]>, ExecutionError> {
        let (true, Some(queries), Some(keys)) = (self.padding, rest.next(), rest.next()) else { return Ok(None) };
        let all = |a: Array| (0..a.len()).map(|n| a.integer_at(n)).collect::<Result<Vec<_>, _>>();
        Ok(Some([all(queries)?, all(keys)?]))
    }

    /// Scales `scores` (batch, heads, queries, keys), adds the bias and excludes what the mask excludes.
    fn finish(
        &self,
        mut scores: Array,
        bias: Option<Array>,
        lengths: Option<&[Vec<i64>; 2]>,
    ) -> Result<Array, ExecutionError> {
        let dims = scores.dims().to_vec();
        scores.elements_mut::<f32>().iter_mut().for_each(|x| *x *= self.scale as f32);
        if let Some(bias) = bias {
            let kept: DimVec =
                (0..dims.len() as i64).filter(|&d| bias.dims()[d as usize] == dims[d as usize]).collect();
            let sizes: DimVec = kept.iter().map(|&d| dims[d as usize]).collect();
            let bias = broadcast(&convert(bias, F32)?.reshaped(&sizes)?, &dims, &kept)?;
            scores = binary(BinaryOp::Add, scores, bias, F32)?;
        }
        let (heads, queries, keys) = (dims[1].max(1) as usize, dims[2] as usize, dims[3] as usize);
        for (row, scores) in scores.elements_mut::<f32>().chunks_exact_mut(keys.max(1)).enumerate() {
            let (batch, query) = (row / (heads * queries.max(1)), (row % queries.max(1)) as i64);
            let limit = lengths.and_then(|l| l[1].get(batch)).copied().unwrap_or(keys as i64);
            for (key, x) in (0i64..).zip(scores) {
                let seen = key < limit && (!self.causal || key <= query) && self.window.is_none_or(|w| key > query - w);
                if !seen {
                    *x = f32::NEG_INFINITY;
                }
            }
        }
        Ok(scores)
    }
}

/// Turns scores into weights that sum to one, row by row, and gives the logarithm of what each row was divided by. A row
/// that sees nothing has no weights.
fn softmax(scores: &mut Array) -> Vec<f32> {
    let keys = scores.dims().last().map_or(1, |&d| d.max(1) as usize);
    let mut logarithms = Vec::new();
    for row in scores.elements_mut::<f32>().chunks_exact_mut(keys) {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if most == f32::NEG_INFINITY && !row.iter().any(|x| x.is_nan()) {
            row.fill(0.0);
            logarithms.push(f32::NEG_INFINITY);
            continue;
        }
        row.iter_mut().for_each(|x| *x = (*x - most).exp());
        let sum: f32 = row.iter().sum();
        row.iter_mut().for_each(|x| *x /= sum);
        logarithms.push(most + sum.ln());
    }
    logarithms
}

/// Keys or values, each repeated for the queries' heads that share it: `head` is the dimension of heads in both.
fn repeat_heads(shared: &Array, head: Option<&i64>, queries: &Array, queries_head: Option<&i64>) -> Option<Array> {
    let (head, of_queries) = (usize::try_from(*head?).ok()?, usize::try_from(*queries_head?).ok()?);
    let (few, many) = (*shared.dims().get(head)?, *queries.dims().get(of_queries)?);
    if few == many || few <= 0 || many % few != 0 {
        return None;
    }
    let mut dims: DimVec = shared.dims().into();
    dims.insert(head + 1, many / few);
    let kept: DimVec = (0..dims.len() as i64).filter(|&d| d != head as i64 + 1).collect();
    let repeated = broadcast(shared, &dims, &kept).ok()?;
    let mut merged: DimVec = shared.dims().into();
    merged[head] = many;
    repeated.reshaped(&merged).ok()
}

/// The sum over the heads of queries that share a head of keys or values.
fn sum_heads(gradient: Array, head: i64, few: i64) -> Result<Array, ExecutionError> {
    let head = head as usize;
    let (mut apart, mut kept): (DimVec, DimVec) = (gradient.dims().into(), gradient.dims().into());
    let group = apart[head] / few.max(1);
    apart[head] = few;
    apart.insert(head + 1, group);
    let mut sums: DimVec = apart.clone();
    sums[head + 1] = 1;
    kept[head] = few;
    summed_to(gradient.reshaped(&apart)?, &sums)?.reshaped(&kept)
}

/// `a` × `b` in f32, where the dimension numbers fit.
fn product(
    device: &Device<'_>,
    i: InstructionId,
    a: &Array,
    b: &Array,
    dims: &DotDimensionNumbers,
) -> Result<Array, ExecutionError> {
    if !fit(dims, a, b)
        || a.rank() != 4
        || b.rank() != 4
        || dims.lhs_batch.len() != 2
        || dims.lhs_contracting.len() != 1
    {
        return Err(unsupported(device, i, "its dimension numbers do not fit its operands"));
    }
    dot(a.clone(), b.clone(), dims, F32)
}

/// Whether `bias` can be added to scores of those sizes.
fn bias_fits(bias: &Array, scores: &Array) -> bool {
    let mut pairs = bias.dims().iter().zip(scores.dims());
    bias.rank() == scores.rank() && pairs.all(|(&b, &s)| b == s || b == 1)
}

fn forward(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let whole = config(device, i)?;
    let config = whole.get("cudnn_fmha_backend_config").unwrap_or(&whole);
    let options = ScoreOptions::of(device, i, config)?;
    let mut arrays = operands.into_iter().map(Value::into_array).collect::<Result<Vec<_>, _>>()?.into_iter();
    let (Some(queries), Some(keys), Some(values)) = (arrays.next(), arrays.next(), arrays.next()) else {
        return Err(unsupported(device, i, "it needs queries, keys and values"));
    };
    let bias = if options.has_bias { arrays.next() } else { None };
    let lengths = options.lengths(&mut arrays)?;
    let to_scores = dimension_numbers(config, "bmm1_dot_dimension_numbers");
    let to_result = dimension_numbers(config, "bmm2_dot_dimension_numbers");
    let head = to_scores.lhs_batch.get(1);
    let keys = repeat_heads(&keys, to_scores.rhs_batch.get(1), &queries, head).unwrap_or(keys);
    let values = repeat_heads(&values, to_result.rhs_batch.get(1), &queries, head).unwrap_or(values);
    let scores = product(device, i, &queries, &keys, &to_scores)?;
    if bias.as_ref().is_some_and(|b| !bias_fits(b, &scores)) {
        return Err(unsupported(device, i, "its bias has other sizes than its scores"));
    }
    let mut weights = options.finish(scores, bias, lengths.as_ref())?;
    let logarithms = softmax(&mut weights);
    if let Some([lengths, _]) = &lengths {
        clear_padding(&mut weights, lengths);
    }
    let result = product(device, i, &weights, &values, &to_result)?;
    let shape = &device.module()[i].shape;
    let parts: Vec<&Shape> = shape.as_tuple().map_or_else(|| vec![shape], |t| t.iter().collect());
    let to = parts.first().and_then(|s| s.element_type());
    let to = to.ok_or_else(|| unsupported(device, i, "its result is no array"))?;
    let mut results = vec![Value::Array(convert(result, to)?)];
    // What training keeps of the softmax.
    if let Some(kept) = parts.get(1).and_then(|s| s.as_array()).filter(|s| s.element_type == F32) {
        if hloom_value::array::index_count(kept.dims()) != logarithms.len() {
            return Err(unsupported(device, i, "what it keeps of the softmax is not one number for each query"));
        }
        results.push(Value::Array(Array::from_elements(F32, kept.dims(), &logarithms)?));
    }
    shaped(shape, results)
}

/// Queries beyond their sequence take nothing.
fn clear_padding(weights: &mut Array, lengths: &[i64]) {
    let (heads, queries, keys) = (weights.dims()[1] as usize, weights.dims()[2] as usize, weights.dims()[3] as usize);
    for (row, weights) in weights.elements_mut::<f32>().chunks_exact_mut(keys.max(1)).enumerate() {
        let (batch, query) = (row / (heads * queries).max(1), (row % queries.max(1)) as i64);
        if lengths.get(batch).is_some_and(|&length| query >= length) {
            weights.fill(0.0);
        }
    }
}

/// Gradients of queries, keys and values, given that of the result; the weights are computed anew.
fn backward(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let whole = config(device, i)?;
    let config = whole.get("cudnn_fmha_backend_config").unwrap_or(&whole);
    let options = ScoreOptions::of(device, i, config)?;
    let arrays = operands.into_iter().map(Value::into_array).collect::<Result<Vec<_>, _>>()?;
    // Queries, keys, values, what was kept of the softmax, the gradient; then a bias, the result, lengths.
    let [queries, keys, values, _, gradient, rest @ ..] = &arrays[..] else {
        return Err(unsupported(device, i, "it needs queries, keys, values, and the gradient of the result"));
    };
    let mut rest = rest.iter().cloned();
    let bias = if options.has_bias { rest.next() } else { None };
    let _result = rest.next();
    let lengths = options.lengths(&mut rest)?;
    let [to_keys, to_queries, to_values, to_weights] = [
        "bmm1_grad_gemm1_dot_dimension_numbers",
        "bmm1_grad_gemm2_dot_dimension_numbers",
        "bmm2_grad_gemm1_dot_dimension_numbers",
        "bmm2_grad_gemm2_dot_dimension_numbers",
    ]
    .map(|key| dimension_numbers(config, key));
    // Gradients of keys sum over queries, and those of queries over keys: what is left is what scores sum over.
    let feature = |batch: &[i64], row: &[i64]| (0..4).filter(|d| !batch.contains(d) && !row.contains(d)).collect();
    let forward = DotDimensionNumbers {
        lhs_contracting: feature(&to_keys.rhs_batch, &to_keys.rhs_contracting),
        rhs_contracting: feature(&to_queries.rhs_batch, &to_queries.rhs_contracting),
        lhs_batch: to_keys.rhs_batch.clone(),
        rhs_batch: to_queries.rhs_batch.clone(),
    };
    let head = forward.lhs_batch.get(1);
    let heads_of = |array: &Array, head: Option<&i64>| head.and_then(|&h| array.dims().get(h as usize).copied());
    let [key_heads, value_heads] =
        [heads_of(keys, forward.rhs_batch.get(1)), heads_of(values, to_weights.rhs_batch.get(1))];
    let more_keys = repeat_heads(keys, forward.rhs_batch.get(1), queries, head);
    let more_values = repeat_heads(values, to_weights.rhs_batch.get(1), queries, head);
    let (keys, values) = (more_keys.as_ref().unwrap_or(keys), more_values.as_ref().unwrap_or(values));
    let scores = product(device, i, queries, keys, &forward)?;
    if bias.as_ref().is_some_and(|b| !bias_fits(b, &scores)) {
        return Err(unsupported(device, i, "its bias has other sizes than its scores"));
    }
    let mut weights = options.finish(scores, bias.clone(), lengths.as_ref())?;
    softmax(&mut weights);
    if let Some([lengths, _]) = &lengths {
        clear_padding(&mut weights, lengths);
    }
    let shared = |gradient: Array, heads: Option<i64>| match heads {
        Some(heads) if heads > 0 && gradient.dims().get(1).is_some_and(|&all| all != heads) => {
            sum_heads(gradient, 1, heads)
        }
        _ => Ok(gradient),
    };
    let of_values = shared(product(device, i, &weights, gradient, &to_values)?, value_heads)?;
    let mut of_scores = product(device, i, gradient, values, &to_weights)?;
    if of_scores.dims() != weights.dims() {
        return Err(unsupported(device, i, "the gradient of its weights has other sizes than its weights"));
    }
    let row = weights.dims().last().map_or(1, |&d| d.max(1) as usize);
    let rows = of_scores.elements_mut::<f32>().chunks_exact_mut(row).zip(weights.elements::<f32>().chunks_exact(row));
    for (gradients, weights) in rows {
        let mean: f32 = gradients.iter().zip(weights).map(|(g, w)| g * w).sum();
        gradients.iter_mut().zip(weights).for_each(|(g, w)| *g = w * (*g - mean));
    }
    let of_bias = of_scores.clone();
    of_scores.elements_mut::<f32>().iter_mut().for_each(|x| *x *= options.scale as f32);
    let of_queries = product(device, i, &of_scores, keys, &to_queries)?;
    let of_keys = shared(product(device, i, &of_scores, queries, &to_keys)?, key_heads)?;
    let shape = &device.module()[i].shape;
    let parts = shape.as_tuple().unwrap_or_default();
    let mut results = Vec::new();
    for (array, part) in [of_queries, of_keys, of_values].into_iter().zip(parts) {
        let to = part.element_type().ok_or_else(|| unsupported(device, i, "a result is no array"))?;
        results.push(Value::Array(convert(array, to)?));
    }
    if let (Some(bias), Some(part)) = (bias, parts.get(3).and_then(Shape::as_array))
        && part.element_type != ElementType::U8
    {
        results.push(Value::Array(convert(summed_to(of_bias, bias.dims())?, part.element_type)?));
    }
    shaped(shape, results)
}

/// The sum over those dimensions of which `dims` has one.
fn summed_to(array: Array, dims: &[i64]) -> Result<Array, ExecutionError> {
    let mut sums = Array::zeroed(F32, dims)?;
    let (from, to) = (array.strides(), sums.strides());
    let target = sums.elements_mut::<f32>();
    for (n, &x) in array.elements::<f32>().iter().enumerate() {
        let coordinate = |d: usize| n as i64 / from[d] % array.dims()[d];
        let place: i64 = (0..dims.len()).filter(|&d| dims[d] != 1).map(|d| coordinate(d) * to[d]).sum();
        target[place as usize] += x;
    }
    Ok(sums)
}

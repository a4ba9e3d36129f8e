//! `__cudnn$conv…`: convolutions forward, backward to the input, backward to the filter, and forward with bias and
//! activation or with a graph of operations behind it.
//!
//! Window and dimension labels are those of the forward convolution in every form; the backward ones are forward
//! convolutions of other operands, with the window turned accordingly.

use super::convolution_graph::{GraphError, graph_results};
use super::{CustomCalls, attributes, config, shaped, unsupported};
use crate::interpreter::{Device, OperandValues};
use crate::ops::contraction::{compute_type, convolution};
use crate::ops::data_movement::{broadcast, transpose};
use crate::ops::elementwise::{binary, convert, unary};
use hloom_ir::attributes::{ConvDimensionNumbers, ConvolutionKind, PrecisionConfig, Window};
use hloom_ir::diagnostic::codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::{BinaryOp, Convolution, UnaryOp};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};
use serde_json::Value as Json;

pub(super) fn register(calls: &mut CustomCalls) {
    calls.register("__cudnn$convForward", Box::new(|d, i, o| call(d, i, o, Form::Forward)));
    calls.register("__cudnn$convBackwardInput", Box::new(|d, i, o| call(d, i, o, Form::BackwardInput)));
    calls.register("__cudnn$convBackwardFilter", Box::new(|d, i, o| call(d, i, o, Form::BackwardFilter)));
    calls.register("__cudnn$convBiasActivationForward", Box::new(|d, i, o| call(d, i, o, Form::BiasActivation)));
    calls.register("__cudnn$convForwardGraph", Box::new(|d, i, o| call(d, i, o, Form::Graph)));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Forward,
    BackwardInput,
    BackwardFilter,
    BiasActivation,
    Graph,
}

fn call(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
    form: Form,
) -> Result<Value, ExecutionError> {
    let whole = config(device, i)?;
    let options = whole.get("cudnn_conv_backend_config").unwrap_or(&whole);
    let attributes = attributes(device, i)?;
    let (Some(window), Some(dims)) = (&attributes.window, &attributes.conv_dims) else {
        return Err(unsupported(device, i, "it has no window or dim_labels"));
    };
    let shape = &device.module()[i].shape;
    let result_shape = match shape {
        Shape::Tuple(t) => t.first().and_then(Shape::as_array),
        single => single.as_array(),
    };
    let result_shape = result_shape.ok_or_else(|| unsupported(device, i, "it makes no array"))?;
    let forward = Convolution {
        window: window.clone(),
        dims: dims.clone(),
        feature_group_count: attributes.feature_group_count.max(1),
        batch_group_count: 1,
        precision: PrecisionConfig::default(),
        kind: ConvolutionKind::Unset,
        lhs_sparsity: None,
        rhs_sparsity: None,
    };
    let mut arrays = operands.into_iter().map(Value::into_array).collect::<Result<Vec<_>, _>>()?.into_iter();
    let (Some(a), Some(b)) = (arrays.next(), arrays.next()) else {
        return Err(unsupported(device, i, "it needs two operands"));
    };
    if !labels_fit(dims, window, [a.rank(), b.rank(), result_shape.rank()]) {
        return Err(unsupported(device, i, "its window or dim_labels do not fit its operands and its result"));
    }
    let to = result_shape.element_type;
    let is_integer = a.element_type().is_integer() && b.element_type().is_integer();
    // Products of integers are summed exactly; what follows, up to a result that is narrower, is computed in f32.
    let sums = if is_integer { ElementType::S32 } else { compute_type(a.element_type(), b.element_type(), to) };
    let compute = if is_integer && to != ElementType::S32 { ElementType::F32 } else { sums };
    let mut result = match form {
        Form::Forward | Form::BiasActivation | Form::Graph => convolution(device, a, b, &forward, sums)?,
        Form::BackwardInput => backward_input(device, a, b, &forward, result_shape, sums)?,
        Form::BackwardFilter => backward_filter(device, a, b, &forward, result_shape, sums)?,
    };
    result = convert(result, compute)?;
    if form == Form::Graph {
        let graph = options.get("serialized_graph").and_then(Json::as_str).unwrap_or_default();
        let results = graph_results(result, arrays, graph, to).map_err(|e| match e {
            GraphError::Form(why) => unsupported(device, i, &why),
            GraphError::Value(error) => error,
        })?;
        return shaped(shape, results.into_iter().map(Value::Array).collect());
    }
    result = scaled(result, number(options, "conv_result_scale", 1.0), compute)?;
    if form == Form::BiasActivation {
        result = bias_and_activation(device, i, result, arrays, options, dims, compute)?;
    }
    shaped(shape, vec![Value::Array(convert(result, to)?)])
}

/// Whether the labels, which nobody has verified for a custom call, name each dimension of arrays with those ranks once,
/// and the window is one that can be walked.
fn labels_fit(dims: &ConvDimensionNumbers, window: &Window, ranks: [usize; 3]) -> bool {
    let space = window.dims.len();
    let names_all = |a: i64, b: i64, spatial: &[i64]| {
        let mut all = [&[a, b], spatial].concat();
        all.sort_unstable();
        all.iter().copied().eq(0..space as i64 + 2)
    };
    // Sizes and steps this large fit no array, and computing with them would overflow.
    let usable = |n: i64| (1..1 << 31).contains(&n);
    ranks.iter().all(|&r| r == space + 2)
        && names_all(dims.input_batch, dims.input_feature, &dims.input_spatial)
        && names_all(dims.kernel_input_feature, dims.kernel_output_feature, &dims.kernel_spatial)
        && names_all(dims.output_batch, dims.output_feature, &dims.output_spatial)
        && window.dims.iter().all(|w| {
            let steps = usable(w.stride) && usable(w.base_dilation) && usable(w.window_dilation);
            steps && usable(w.padding_low.saturating_abs().max(1)) && usable(w.padding_high.saturating_abs().max(1))
        })
}

fn number(options: &Json, key: &str, default: f64) -> f64 {
    options.get(key).and_then(Json::as_f64).unwrap_or(default)
}

fn scaled(array: Array, factor: f64, compute: ElementType) -> Result<Array, ExecutionError> {
    if factor == 1.0 {
        return Ok(array);
    }
    let factor = convert(Array::scalar(ElementType::F64, factor)?, compute)?;
    let factor = broadcast(&factor, array.dims(), &[])?;
    binary(BinaryOp::Multiply, array, factor, compute)
}

/// activation(convolution + side_input_scale × side input + bias).
fn bias_and_activation(
    device: &Device<'_>,
    i: InstructionId,
    mut result: Array,
    mut rest: impl Iterator<Item = Array>,
    options: &Json,
    dims: &ConvDimensionNumbers,
    compute: ElementType,
) -> Result<Array, ExecutionError> {
    let bias = rest.next().ok_or_else(|| unsupported(device, i, "the bias is missing"))?;
    if bias.rank() != 1 || result.dims().get(dims.output_feature as usize) != Some(&bias.dims()[0]) {
        return Err(unsupported(device, i, "the bias is not a vector with an element for each output feature"));
    }
    let bias = broadcast(&convert(bias, compute)?, result.dims(), &[dims.output_feature])?;
    result = binary(BinaryOp::Add, result, bias, compute)?;
    let side_scale = number(options, "side_input_scale", 0.0);
    if let (Some(side), true) = (rest.next(), side_scale != 0.0) {
        if side.dims() != result.dims() {
            return Err(unsupported(device, i, "the side input has another size than the result"));
        }
        let side = scaled(convert(side, compute)?, side_scale, compute)?;
        result = binary(BinaryOp::Add, result, side, compute)?;
    }
    let zero = |result: &Array| Array::zeroed(compute, result.dims());
    match options.get("activation_mode").and_then(Json::as_str).unwrap_or("kNone") {
        "kNone" | "0" => Ok(result),
        "kRelu" => {
            let zero = zero(&result)?;
            binary(BinaryOp::Maximum, result, zero, compute)
        }
        "kRelu6" => {
            let (low, high) = (zero(&result)?, scaled(ones(&result, compute)?, 6.0, compute)?);
            let capped = binary(BinaryOp::Minimum, result, high, compute)?;
            binary(BinaryOp::Maximum, capped, low, compute)
        }
        "kElu" => {
            let zero_or_more = binary(BinaryOp::Maximum, result.clone(), zero(&result)?, compute)?;
            let zero_or_less = binary(BinaryOp::Minimum, result.clone(), zero(&result)?, compute)?;
            binary(BinaryOp::Add, zero_or_more, unary(UnaryOp::ExponentialMinusOne, zero_or_less, compute)?, compute)
        }
        "kLeakyRelu" => {
            let zero_or_more = binary(BinaryOp::Maximum, result.clone(), zero(&result)?, compute)?;
            let zero_or_less = binary(BinaryOp::Minimum, result.clone(), zero(&result)?, compute)?;
            let slope = number(options, "leakyrelu_alpha", 0.0);
            binary(BinaryOp::Add, zero_or_more, scaled(zero_or_less, slope, compute)?, compute)
        }
        other => Err(unsupported(device, i, &format!("the activation {other} is not known"))),
    }
}

fn ones(like: &Array, compute: ElementType) -> Result<Array, ExecutionError> {
    broadcast(&convert(Array::scalar(ElementType::F64, 1.0f64)?, compute)?, like.dims(), &[])
}

/// What each input element receives: a convolution of the output's gradient, spread by the stride, with the mirrored
/// kernel, whose features change places.
fn backward_input(
    device: &Device<'_>,
    gradient: Array,
    kernel: Array,
    forward: &Convolution,
    result: &ArrayShape,
    compute: ElementType,
) -> Result<Array, ExecutionError> {
    let dims = &forward.dims;
    let mut window = Window::default();
    for (d, w) in forward.window.dims.iter().enumerate() {
        let (input, output) =
            (result.dims()[dims.input_spatial[d] as usize], gradient.dims()[dims.output_spatial[d] as usize]);
        let size = kernel.dims()[dims.kernel_spatial[d] as usize];
        let reach = (size - 1) * w.window_dilation;
        let spread = if output == 0 { 0 } else { (output - 1) * w.stride + 1 };
        let padding_low = reach - w.padding_low;
        window.dims.push(hloom_ir::attributes::WindowDim {
            size,
            stride: 1,
            padding_low,
            padding_high: input + reach - spread - padding_low,
            window_dilation: w.window_dilation,
            base_dilation: w.stride,
            window_reversal: !w.window_reversal,
        });
    }
    let kernel = swap_grouped_features(kernel, dims, forward.feature_group_count)?;
    let turned = Convolution {
        window,
        dims: ConvDimensionNumbers {
            input_batch: dims.output_batch,
            input_feature: dims.output_feature,
            input_spatial: dims.output_spatial.clone(),
            kernel_input_feature: dims.kernel_output_feature,
            kernel_output_feature: dims.kernel_input_feature,
            kernel_spatial: dims.kernel_spatial.clone(),
            output_batch: dims.input_batch,
            output_feature: dims.input_feature,
            output_spatial: dims.input_spatial.clone(),
        },
        ..forward.clone()
    };
    convolution(device, gradient, kernel, &turned, compute)
}

/// A kernel of G groups has I/G input and O output features; seen from the other side it has O/G and I. The groups move
/// from the one dimension to the other.
fn swap_grouped_features(kernel: Array, dims: &ConvDimensionNumbers, groups: i64) -> Result<Array, ExecutionError> {
    if groups == 1 {
        return Ok(kernel);
    }
    let (input, output) = (dims.kernel_input_feature as usize, dims.kernel_output_feature as usize);
    let mut split: DimVec = kernel.dims().into();
    let mut result: DimVec = kernel.dims().into();
    if split[output] % groups != 0 {
        return Err(ExecutionError::new(
            &codes::eval::UNSUPPORTED,
            "a kernel's features do not divide into its groups",
        ));
    }
    result[output] /= groups;
    result[input] *= groups;
    // Split the output features into (group, rest), then move the group in front of the input features.
    split[output] = groups;
    split.insert(output + 1, result[output]);
    let mut order: DimVec = (0..split.len() as i64).filter(|&d| d as usize != output).collect();
    let input_now = if input > output { input + 1 } else { input };
    let at = order.iter().position(|&d| d as usize == input_now).unwrap_or(0);
    order.insert(at, output as i64);
    transpose(kernel.reshaped(&split)?, &order)?.reshaped(&result)
}

/// What each kernel element receives: a convolution of the input with the output's gradient as the kernel, batch and
/// feature changing places, stride and dilation too.
fn backward_filter(
    device: &Device<'_>,
    input: Array,
    gradient: Array,
    forward: &Convolution,
    result: &ArrayShape,
    compute: ElementType,
) -> Result<Array, ExecutionError> {
    let dims = &forward.dims;
    let mut window = Window::default();
    let mut reversed = DimVec::new();
    for (d, w) in forward.window.dims.iter().enumerate() {
        let base = input.dims()[dims.input_spatial[d] as usize];
        let output = gradient.dims()[dims.output_spatial[d] as usize];
        let size = result.dims()[dims.kernel_spatial[d] as usize];
        let reach = if output == 0 { 0 } else { (output - 1) * w.stride + 1 };
        let spread = if base == 0 { 0 } else { (base - 1) * w.base_dilation + 1 };
        let needed = (size - 1) * w.window_dilation + reach;
        window.dims.push(hloom_ir::attributes::WindowDim {
            size: output,
            stride: w.window_dilation,
            padding_low: w.padding_low,
            padding_high: needed - spread - w.padding_low,
            window_dilation: w.stride,
            base_dilation: w.base_dilation,
            window_reversal: false,
        });
        if w.window_reversal {
            reversed.push(dims.kernel_spatial[d]);
        }
    }
    let turned = Convolution {
        window,
        dims: ConvDimensionNumbers {
            input_batch: dims.input_feature,
            input_feature: dims.input_batch,
            input_spatial: dims.input_spatial.clone(),
            kernel_input_feature: dims.output_batch,
            kernel_output_feature: dims.output_feature,
            kernel_spatial: dims.output_spatial.clone(),
            output_batch: dims.kernel_input_feature,
            output_feature: dims.kernel_output_feature,
            output_spatial: dims.kernel_spatial.clone(),
        },
        feature_group_count: 1,
        batch_group_count: forward.feature_group_count,
        ..forward.clone()
    };
    let made = convolution(device, input, gradient, &turned, compute)?;
    crate::ops::data_movement::reverse(&made, &reversed)
}

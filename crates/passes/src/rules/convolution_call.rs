//! Calls of cuDNN for convolutions, written out as what they compute.
//!
//! Window and dimension labels are those of the forward convolution in every form; the gradients are convolutions of other
//! operands, with the window turned accordingly. Groups in gradients, integers, and graphs of operations behind a
//! convolution are left to whoever evaluates the call.

use super::custom_call::{converted, number, spread, target, tuple_like};
use super::{array, beside};
use crate::rewrite::Rule;
use hloom_ir::attributes::{ConvDimensionNumbers, ConvolutionKind, PrecisionConfig, Window, WindowDim};
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::{Convolution, Op};
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::{ArrayShape, Shape};
use serde_json::Value as Json;

/// The rule.
pub(super) static RULES: [Rule; 1] = [Rule {
    name: "convolution-call",
    statement: "a call of cuDNN → convolution, scaled, with what is added and the activation",
    opcodes: &[Opcode::CustomCall],
    apply: convolution,
}];

fn convolution(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let form = target(module, i)?.strip_prefix("__cudnn$conv")?.to_owned();
    let Op::CustomCall(call) = &module[i].op else { return None };
    let groups = call.feature_group_count.max(1);
    if !matches!(&*form, "Forward" | "BackwardInput" | "BackwardFilter" | "BiasActivationForward") {
        return None;
    }
    let (window, dims) = (call.window.clone()?, call.conv_dims.clone()?);
    let shape = module[i].shape.clone();
    let result = match &shape {
        Shape::Tuple(t) => t.first()?.as_array()?.clone(),
        single => single.as_array()?.clone(),
    };
    let operands = module[i].operands().to_vec();
    let (&lhs, &rhs) = (operands.first()?, operands.get(1)?);
    let (a, b) = (array(module, lhs)?.clone(), array(module, rhs)?.clone());
    let to = result.element_type;
    let is_float = matches!(to, ElementType::F16 | ElementType::Bf16 | ElementType::F32 | ElementType::F64);
    let is_backward = form.starts_with("Backward");
    if !is_float
        || a.element_type != to
        || b.element_type != to
        || is_backward && groups > 1
        || [&a, &b, &result].iter().any(|s| s.rank() != window.dims.len() + 2)
        || !fits(&dims, &window)
    {
        return None;
    }
    let options: Json = match module[i].common.backend_config.as_deref() {
        Some(text) => serde_json::from_slice(text).ok()?,
        None => Json::Null,
    };
    let options = options.get("cudnn_conv_backend_config").unwrap_or(&options);
    let scale = number(options, "conv_result_scale", 1.0)?;
    let has_more = scale != 1.0 || form == "BiasActivationForward";
    // What follows the convolution is computed in f32, and rounded in the end.
    let wide = if has_more && to != ElementType::F64 { ElementType::F32 } else { to };
    let sizes: DimVec = result.dims().into();
    let (turned, reversed) = match &*form {
        "BackwardInput" => (input_gradient(&window, &dims, [&a, &b, &result])?, DimVec::new()),
        "BackwardFilter" => filter_gradient(&window, &dims, [&a, &b, &result])?,
        _ => ((window, dims.clone()), DimVec::new()),
    };
    let op = Op::Convolution(Box::new(Convolution {
        window: turned.0,
        dims: turned.1,
        feature_group_count: groups,
        batch_group_count: 1,
        precision: PrecisionConfig::default(),
        kind: ConvolutionKind::Unset,
        lhs_sparsity: None,
        rhs_sparsity: None,
    }));
    let mut b = beside(module, i);
    // Its numbers were not verified as part of the module: the builder does that now.
    let plain = b.push(op.clone(), &[lhs, rhs]).ok()?;
    if b.shape(plain).as_array()?.dims() != &sizes[..] {
        return None;
    }
    let product = ArrayShape::new(wide, sizes.iter().copied()).with_default_layout();
    let mut value = b.push_shaped(op, &[lhs, rhs], product).ok()?;
    if !reversed.is_empty() {
        value = b.reverse(value, reversed).ok()?;
    }
    if scale != 1.0 {
        let factor = spread(&mut b, wide, scale, &sizes)?;
        value = b.multiply(value, factor).ok()?;
    }
    if form == "BiasActivationForward" {
        value = bias_and_activation(&mut b, value, &operands[2..], options, dims.output_feature)?;
    }
    let value = converted(&mut b, value, to)?;
    tuple_like(&mut b, &shape, vec![value])
}

/// Whether labels name each dimension once, and the window is one that can be walked: nobody has verified them for a
/// custom call.
fn fits(dims: &ConvDimensionNumbers, window: &Window) -> bool {
    let space = window.dims.len();
    let names_all = |a: i64, b: i64, spatial: &[i64]| {
        let mut all = [&[a, b], spatial].concat();
        all.sort_unstable();
        all.iter().copied().eq(0..space as i64 + 2)
    };
    // Sizes and steps this large fit no array, and computing with them would overflow.
    let usable = |n: i64| (1..1 << 31).contains(&n);
    names_all(dims.input_batch, dims.input_feature, &dims.input_spatial)
        && names_all(dims.kernel_input_feature, dims.kernel_output_feature, &dims.kernel_spatial)
        && names_all(dims.output_batch, dims.output_feature, &dims.output_spatial)
        && window.dims.iter().all(|w| {
            let steps = usable(w.stride) && usable(w.base_dilation) && usable(w.window_dilation);
            steps && usable(w.padding_low.saturating_abs().max(1)) && usable(w.padding_high.saturating_abs().max(1))
        })
}

/// The size of a dimension, if there can be such an array.
fn size(shape: &ArrayShape, dimension: i64) -> Option<i64> {
    shape.dims().get(usize::try_from(dimension).ok()?).copied().filter(|n| (1..1 << 31).contains(n))
}

type Turned = (Window, ConvDimensionNumbers);

/// What each input element receives: a convolution of the output's gradient, spread by the stride, with the mirrored
/// kernel, whose features change places.
fn input_gradient(
    forward: &Window,
    dims: &ConvDimensionNumbers,
    [gradient, kernel, result]: [&ArrayShape; 3],
) -> Option<Turned> {
    let mut window = Window::default();
    for (d, w) in forward.dims.iter().enumerate() {
        let (input, output) = (size(result, dims.input_spatial[d])?, size(gradient, dims.output_spatial[d])?);
        let kernel_size = size(kernel, dims.kernel_spatial[d])?;
        let reach = (kernel_size - 1).checked_mul(w.window_dilation)?;
        let spread = (output - 1).checked_mul(w.stride)?.checked_add(1)?;
        let padding_low = reach.checked_sub(w.padding_low)?;
        window.dims.push(WindowDim {
            size: kernel_size,
            stride: 1,
            padding_low,
            padding_high: input.checked_add(reach)?.checked_sub(spread)?.checked_sub(padding_low)?,
            window_dilation: w.window_dilation,
            base_dilation: w.stride,
            window_reversal: !w.window_reversal,
        });
    }
    let turned = ConvDimensionNumbers {
        input_batch: dims.output_batch,
        input_feature: dims.output_feature,
        input_spatial: dims.output_spatial.clone(),
        kernel_input_feature: dims.kernel_output_feature,
        kernel_output_feature: dims.kernel_input_feature,
        kernel_spatial: dims.kernel_spatial.clone(),
        output_batch: dims.input_batch,
        output_feature: dims.input_feature,
        output_spatial: dims.input_spatial.clone(),
    };
    Some((window, turned))
}

/// What each kernel element receives: a convolution of the input with the output's gradient as the kernel, batch and
/// feature changing places, stride and dilation too; and which of its dimensions are to be reversed.
fn filter_gradient(
    forward: &Window,
    dims: &ConvDimensionNumbers,
    [input, gradient, result]: [&ArrayShape; 3],
) -> Option<(Turned, DimVec)> {
    let mut window = Window::default();
    let mut reversed = DimVec::new();
    for (d, w) in forward.dims.iter().enumerate() {
        let (base, output) = (size(input, dims.input_spatial[d])?, size(gradient, dims.output_spatial[d])?);
        let reach = (output - 1).checked_mul(w.stride)?.checked_add(1)?;
        let spread = (base - 1).checked_mul(w.base_dilation)?.checked_add(1)?;
        let kernel_size = size(result, dims.kernel_spatial[d])?;
        let needed = (kernel_size - 1).checked_mul(w.window_dilation)?.checked_add(reach)?;
        window.dims.push(WindowDim {
            size: output,
            stride: w.window_dilation,
            padding_low: w.padding_low,
            padding_high: needed.checked_sub(spread)?.checked_sub(w.padding_low)?,
            window_dilation: w.stride,
            base_dilation: w.base_dilation,
            window_reversal: false,
        });
        if w.window_reversal {
            reversed.push(dims.kernel_spatial[d]);
        }
    }
    let turned = ConvDimensionNumbers {
        input_batch: dims.input_feature,
        input_feature: dims.input_batch,
        input_spatial: dims.input_spatial.clone(),
        kernel_input_feature: dims.output_batch,
        kernel_output_feature: dims.output_feature,
        kernel_spatial: dims.output_spatial.clone(),
        output_batch: dims.kernel_input_feature,
        output_feature: dims.kernel_output_feature,
        output_spatial: dims.kernel_spatial.clone(),
    };
    Some(((window, turned), reversed))
}

/// activation(convolution + side_input_scale × side input + bias).
fn bias_and_activation(
    b: &mut Builder<'_>,
    value: InstructionId,
    rest: &[InstructionId],
    options: &Json,
    feature: i64,
) -> Option<InstructionId> {
    let shape = b.shape(value).as_array()?.clone();
    let (wide, sizes) = (shape.element_type, shape.dims());
    let (&bias, side) = rest.split_first()?;
    let bias = converted(b, bias, wide)?;
    let bias = b.broadcast(bias, sizes.iter().copied(), [feature]).ok()?;
    let mut value = b.add(value, bias).ok()?;
    let side_scale = number(options, "side_input_scale", 0.0)?;
    if let (Some(&side), true) = (side.first(), side_scale != 0.0) {
        let side = converted(b, side, wide)?;
        let factor = spread(b, wide, side_scale, sizes)?;
        let side = b.multiply(side, factor).ok()?;
        value = b.add(value, side).ok()?;
    }
    match options.get("activation_mode").and_then(Json::as_str).unwrap_or("kNone") {
        "kNone" | "0" => Some(value),
        "kRelu" => {
            let zero = spread(b, wide, 0.0, sizes)?;
            b.maximum(value, zero).ok()
        }
        "kRelu6" => {
            let (zero, six) = (spread(b, wide, 0.0, sizes)?, spread(b, wide, 6.0, sizes)?);
            let capped = b.minimum(value, six).ok()?;
            b.maximum(capped, zero).ok()
        }
        _ => None,
    }
}

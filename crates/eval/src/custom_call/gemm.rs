//! `__cublas$gemm`, `__cublas$lt$matmul` and its f8 form: alpha × lhs × rhs + beta × c, and what the epilogue adds.

use super::{CustomCalls, attributes, config, shaped, unsupported};
use crate::interpreter::{Device, OperandValues};
use crate::ops::contraction::{compute_type, dot};
use crate::ops::data_movement::broadcast;
use crate::ops::elementwise::{binary, clamp, convert, unary};
use hloom_ir::attributes::DotDimensionNumbers;
use hloom_ir::diagnostic::codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::{BinaryOp, UnaryOp};
use hloom_ir::shape::Shape;
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};
use serde_json::Value as Json;

pub(super) fn register(calls: &mut CustomCalls) {
    for target in ["__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8", "__triton_gemm"] {
        calls.register(target, Box::new(matmul));
    }
}

fn matmul(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let whole = config(device, i)?;
    // Newer dumps wrap the configuration in one that is shared by all GPU operations.
    let options = whole.get("gemm_backend_config").unwrap_or(&whole);
    let is_f8 = attributes(device, i)?.target.ends_with("$f8");
    let shape = &device.module()[i].shape;
    let result_shape = match shape {
        Shape::Tuple(t) => t.first().and_then(Shape::as_array),
        single => single.as_array(),
    };
    let result_shape = result_shape.ok_or_else(|| unsupported(device, i, "it makes no array"))?;
    let to = result_shape.element_type;

    let mut arrays = operands.into_iter().map(Value::into_array);
    let mut next = || arrays.next().ok_or_else(|| unsupported(device, i, "an operand is missing"))?;
    let (lhs, rhs) = (next()?, next()?);
    let compute = compute_type(lhs.element_type(), rhs.element_type(), to);
    let beta = number(options, "beta");
    let c = if beta != 0.0 { Some(next()?) } else { None };
    // What is left of the operands: scalars, which scale the operands and the result of the f8 form, and the bias.
    let rest = arrays.collect::<Result<Vec<_>, _>>()?;
    let (scales, biases): (Vec<Array>, Vec<Array>) = rest.into_iter().partition(|a| is_f8 && a.rank() == 0);
    let (operand_scales, result_scales) = scales.split_at(scales.len().min(2));

    let dims = dimension_numbers(options, "dot_dimension_numbers");
    if !fit(&dims, &lhs, &rhs) {
        return Err(unsupported(device, i, "its dot_dimension_numbers do not fit its operands"));
    }
    let mut product = dot(lhs, rhs, &dims, compute)?;
    product = scaled_by(product, number_or(options, "alpha_real", 1.0), number(options, "alpha_imag"), compute)?;
    for scale in operand_scales {
        product = times(product, scale, compute)?;
    }
    if let Some(c) = c {
        let c = scaled_by(convert(c, compute)?, beta, 0.0, compute)?;
        if c.len() != product.len() {
            return Err(unsupported(device, i, "the matrix that is added has another size than the product"));
        }
        let dims: DimVec = product.dims().into();
        product = binary(BinaryOp::Add, product, c.reshaped(&dims)?, compute)?;
    }
    let epilogue = options.get("epilogue").and_then(Json::as_str).unwrap_or("DEFAULT");
    if epilogue.contains("BIAS") {
        let bias = biases.into_iter().next_back();
        let bias = bias.ok_or_else(|| unsupported(device, i, "the epilogue's bias is missing"))?;
        if bias.rank() == 0 || !product.dims().ends_with(bias.dims()) {
            return Err(unsupported(device, i, "the bias does not have an element for each column"));
        }
        let columns: DimVec = (product.rank() as i64 - bias.rank() as i64..product.rank() as i64).collect();
        let bias = broadcast(&convert(bias, compute)?, product.dims(), &columns)?;
        product = binary(BinaryOp::Add, product, bias, compute)?;
    }
    let before_activation = product.clone();
    product = match epilogue.trim_start_matches("BIAS").trim_start_matches('_').trim_end_matches("_AUX") {
        "" | "DEFAULT" => product,
        "RELU" => {
            let zero = Array::zeroed(compute, product.dims())?;
            binary(BinaryOp::Maximum, product, zero, compute)?
        }
        "GELU" => gelu(product, compute)?,
        "SILU" => {
            let gate = unary(UnaryOp::Logistic, product.clone(), compute)?;
            binary(BinaryOp::Multiply, product, gate, compute)?
        }
        other => return Err(unsupported(device, i, &format!("the epilogue {other} is not known"))),
    };
    let amax = if options.get("damax_output").and_then(Json::as_bool) == Some(true) {
        let magnitudes = convert(unary(UnaryOp::Abs, product.clone(), compute)?, ElementType::F32)?;
        Some(Array::scalar(ElementType::F32, magnitudes.elements::<f32>().iter().copied().fold(0.0, largest))?)
    } else {
        None
    };
    if to.is_small_float() {
        // Where there are two, the first is that of the matrix that is added.
        if let Some(scale) = result_scales.last() {
            product = times(product, scale, compute)?;
        }
        product = saturated(product, to)?;
    }
    let mut results = vec![Value::Array(convert(product, to)?)];
    if epilogue.ends_with("_AUX") {
        results.push(Value::Array(convert(before_activation, to)?));
    }
    results.extend(amax.map(Value::Array));
    shaped(shape, results)
}

/// A number of the configuration, which protos in JSON may write as a string.
pub(super) fn number_or(options: &Json, key: &str, default: f64) -> f64 {
    match options.get(key) {
        Some(Json::String(s)) => s.parse().unwrap_or(default),
        Some(n) => n.as_f64().unwrap_or(default),
        None => default,
    }
}

fn number(options: &Json, key: &str) -> f64 {
    number_or(options, key, 0.0)
}

pub(super) fn dimension_numbers(options: &Json, name: &str) -> DotDimensionNumbers {
    let list = |key: &str| -> DimVec {
        let all = options.get(name).and_then(|d| d.get(key)).and_then(Json::as_array);
        let entry = |n: &Json| n.as_i64().or_else(|| n.as_str()?.parse().ok());
        all.map(|l| l.iter().filter_map(entry).collect()).unwrap_or_default()
    };
    DotDimensionNumbers {
        lhs_contracting: list("lhs_contracting_dimensions"),
        rhs_contracting: list("rhs_contracting_dimensions"),
        lhs_batch: list("lhs_batch_dimensions"),
        rhs_batch: list("rhs_batch_dimensions"),
    }
}

/// Whether the numbers, which nobody has verified, name different dimensions of the operands, equal in pairs.
pub(super) fn fit(dims: &DotDimensionNumbers, lhs: &Array, rhs: &Array) -> bool {
    let size = |a: &Array, d: i64| usize::try_from(d).ok().and_then(|d| a.dims().get(d).copied());
    let pairs_equal = |left: &[i64], right: &[i64]| {
        let mut pairs = left.iter().zip(right);
        left.len() == right.len() && pairs.all(|(&l, &r)| size(lhs, l).is_some_and(|n| size(rhs, r) == Some(n)))
    };
    let distinct = |a: &[i64], b: &[i64]| {
        let mut all = [a, b].concat();
        all.sort_unstable();
        all.windows(2).all(|w| w[0] != w[1])
    };
    pairs_equal(&dims.lhs_batch, &dims.rhs_batch)
        && pairs_equal(&dims.lhs_contracting, &dims.rhs_contracting)
        && distinct(&dims.lhs_batch, &dims.lhs_contracting)
        && distinct(&dims.rhs_batch, &dims.rhs_contracting)
}

/// `array` × (real + imaginary i).
fn scaled_by(array: Array, real: f64, imaginary: f64, compute: ElementType) -> Result<Array, ExecutionError> {
    if real == 1.0 && imaginary == 0.0 {
        return Ok(array);
    }
    let factor = Array::scalar(ElementType::C128, num_complex::Complex::new(real, imaginary))?;
    times(array, &factor, compute)
}

/// `array` × a scalar.
fn times(array: Array, scalar: &Array, compute: ElementType) -> Result<Array, ExecutionError> {
    if scalar.len() != 1 {
        return Err(ExecutionError::new(
            &codes::eval::UNSUPPORTED,
            format!("a scale must be a scalar, not {}", scalar.shape()),
        ));
    }
    let factor = convert(scalar.clone().reshaped(&[])?, compute)?;
    let factor = broadcast(&factor, array.dims(), &[])?;
    binary(BinaryOp::Multiply, array, factor, compute)
}

/// The larger of two numbers, or NaN where one is.
fn largest(a: f32, b: f32) -> f32 {
    if a.is_nan() || a > b { a } else { b }
}

/// `array` with what is beyond the finite numbers of `to`, a type of at most eight bits, as the last of them.
pub(super) fn saturated(array: Array, to: ElementType) -> Result<Array, ExecutionError> {
    let compute = array.element_type();
    let bound = |x: f64| convert(Array::scalar(ElementType::F64, x)?, compute);
    let limit = largest_finite(to)?;
    clamp(bound(-limit)?, array, bound(limit)?, compute)
}

/// The largest finite number of a type of at most eight bits.
pub(super) fn largest_finite(of: ElementType) -> Result<f64, ExecutionError> {
    let codes: Vec<u8> = (0..1u16 << of.bits().min(8)).map(|code| code as u8).collect();
    let numbers = convert(Array::from_bytes(of, &[codes.len() as i64], &codes)?, ElementType::F64)?;
    Ok(numbers.elements::<f64>().iter().copied().filter(|x| x.is_finite()).fold(0.0, f64::max))
}

/// The approximation by tanh that cuBLAS uses: x / 2 × (1 + tanh(√(2/π) × (x + 0.044715 x³))).
fn gelu(x: Array, compute: ElementType) -> Result<Array, ExecutionError> {
    let cube =
        binary(BinaryOp::Multiply, binary(BinaryOp::Multiply, x.clone(), x.clone(), compute)?, x.clone(), compute)?;
    let inner = binary(BinaryOp::Add, x.clone(), scaled_by(cube, 0.044715, 0.0, compute)?, compute)?;
    let inner = scaled_by(inner, (2.0 / std::f64::consts::PI).sqrt(), 0.0, compute)?;
    let tanh = unary(UnaryOp::Tanh, inner, compute)?;
    let half = scaled_by(x, 0.5, 0.0, compute)?;
    binary(BinaryOp::Add, half.clone(), binary(BinaryOp::Multiply, half, tanh, compute)?, compute)
}

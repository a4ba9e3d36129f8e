//! The graph of operations that `__cudnn$convForwardGraph` carries out behind a convolution.
//!
//! It is written `12:[f32]conv();15:[f32]scale(12);18:[f8e4m3fn]relu(15);`: a number for each operation, the type of its
//! result, its name, and which operations it takes its operands from. What is not in the graph it takes from the call's
//! operands, in order.

use super::gemm::saturated;
use crate::ops::data_movement::broadcast;
use crate::ops::elementwise::{binary, convert, unary};
use hloom_ir::element_type::ElementType;
use hloom_ir::op::{BinaryOp, UnaryOp};
use hloom_value::Array;
use hloom_value::ExecutionError;
use rustc_hash::FxHashMap;

/// Why a graph has no results.
pub(super) enum GraphError {
    /// The graph is not one that is known.
    Form(String),
    Value(ExecutionError),
}

impl From<ExecutionError> for GraphError {
    fn from(error: ExecutionError) -> GraphError {
        GraphError::Value(error)
    }
}

/// The result of the graph behind `convolution`, of type `to`, and then the largest magnitudes that it asks for.
pub(super) fn graph_results(
    convolution: Array,
    operands: impl Iterator<Item = Array>,
    graph: &str,
    to: ElementType,
) -> Result<Vec<Array>, GraphError> {
    let compute = convolution.element_type();
    let mut operands = operands;
    let mut values: FxHashMap<&str, Array> = FxHashMap::default();
    let mut last = convolution.clone();
    let mut largest = Vec::new();
    for text in graph.split(';').filter(|t| !t.is_empty()) {
        let unknown = || GraphError::Form(format!("its graph has an operation that cannot be read: {text}"));
        let (number, rest) = text.split_once(":[").ok_or_else(unknown)?;
        let (type_name, rest) = rest.split_once(']').ok_or_else(unknown)?;
        let (name, inputs) = rest.trim_end_matches(')').split_once('(').ok_or_else(unknown)?;
        let element_type = ElementType::from_name(type_name.as_bytes()).ok_or_else(unknown)?;
        let mut inputs =
            inputs.split(',').filter(|n| !n.is_empty()).map(|n| values.get(n).cloned().ok_or_else(unknown));
        let mut next = || match inputs.next() {
            Some(value) => value,
            None => operands.next().ok_or_else(|| GraphError::Form("its graph needs more operands".into())),
        };
        let dims = last.dims().to_vec();
        let shaped = |operand: Array| -> Result<Array, GraphError> {
            let operand = convert(operand, compute)?;
            match operand.len() {
                1 => Ok(broadcast(&operand.reshaped(&[])?, &dims, &[])?),
                _ if operand.dims() == dims => Ok(operand),
                _ => Err(GraphError::Form("an operand of its graph has other sizes than the convolution".into())),
            }
        };
        let two = |op, a: Array, b: Array| binary(op, a, b, compute);
        let value = match name {
            "conv" => convolution.clone(),
            "scale" => two(BinaryOp::Multiply, next()?, shaped(next()?)?)?,
            "invscale" => two(BinaryOp::Divide, next()?, shaped(next()?)?)?,
            "add" => two(BinaryOp::Add, next()?, shaped(next()?)?)?,
            "min" => two(BinaryOp::Minimum, next()?, shaped(next()?)?)?,
            "max" => two(BinaryOp::Maximum, next()?, shaped(next()?)?)?,
            "relu" => two(BinaryOp::Maximum, next()?, Array::zeroed(compute, &dims)?)?,
            "elu" => {
                let x = next()?;
                let above = two(BinaryOp::Maximum, x.clone(), Array::zeroed(compute, &dims)?)?;
                let below = two(BinaryOp::Minimum, x, Array::zeroed(compute, &dims)?)?;
                two(BinaryOp::Add, above, unary(UnaryOp::ExponentialMinusOne, below, compute)?)?
            }
            "amax" => {
                let magnitudes = convert(unary(UnaryOp::Abs, next()?, compute)?, ElementType::F64)?;
                let most = magnitudes.elements::<f64>().iter().copied().fold(0.0, f64::max);
                largest.push(convert(Array::scalar(ElementType::F64, most)?, element_type)?);
                continue;
            }
            other => return Err(GraphError::Form(format!("its graph has an unknown operation {other}"))),
        };
        // Values are rounded to the type that is written, and go on in the one that is computed in.
        let value = if element_type.is_small_float() { saturated(value, element_type)? } else { value };
        let value = convert(convert(value, element_type)?, compute)?;
        last = value.clone();
        values.insert(number, value);
    }
    let last = if to.is_small_float() { saturated(last, to)? } else { last };
    let mut results = vec![convert(last, to)?];
    results.extend(largest);
    Ok(results)
}

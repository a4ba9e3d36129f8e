//! Operations that apply a computation to elements: reduce, reduce-window, select-and-scatter, scan, sort and map;
//! and topk.

use super::common::{
    Dims, Signature, Site, array_text, at_attribute, counted, error, same_dims, same_size, same_type_or_floats, text,
};
use super::convolution::window_dims;
use super::{Inferred, Result1, ShapeError, compatible, compatible_ignoring_float_precision};
use crate::attributes::Window;
use crate::diagnostic::Part;
use crate::diagnostic::codes::infer as codes;
use crate::element_type::ElementType;
use crate::entity::ComputationId;
use crate::op::Scan;
use crate::shape::{ArrayShape, Shape};
use smallvec::SmallVec;

/// The element types of a reducer's accumulators.
pub(super) type Accumulators = SmallVec<[ElementType; 2]>;

/// Checks a reducer over `inputs` values: it takes the accumulators and one element of each input, and returns the
/// accumulators. `element(i)` and `init(i)` are the types of input `i` and of its first accumulator.
pub(super) fn check_reducer<'a>(
    s: &Site<'a>,
    computation: ComputationId,
    attribute: &'static str,
    inputs: usize,
    element: impl Fn(usize) -> ElementType,
    init: impl Fn(usize) -> ElementType,
) -> Result<Accumulators, ShapeError> {
    let reducer = s.signature(computation, attribute, inputs.saturating_mul(2))?;
    let results: &[Shape] = match reducer.result {
        Shape::Tuple(elements) if elements.len() == inputs => elements,
        array @ Shape::Array(_) if inputs == 1 => std::slice::from_ref(array),
        _ if inputs == 1 => return Err(reducer.result_error("a scalar")),
        _ => return Err(reducer.result_error(format_args!("a tuple of {inputs} scalars"))),
    };
    let mut accumulators = Accumulators::new();
    for (i, result) in results.iter().enumerate() {
        let Some(array) = result.as_array().filter(|a| a.is_scalar()) else {
            return Err(reducer.result_error("made of scalars"));
        };
        if !same_type_or_floats(array.element_type, init(i)) {
            return Err(reducer.result_error(format_args!("{}[], as the initial value", init(i))));
        }
        accumulators.push(array.element_type);
    }
    for (p, parameter) in reducer.parameters().enumerate() {
        let accumulator = accumulators[p % inputs];
        let scalar = parameter.as_array().filter(|a| a.is_scalar());
        if p < inputs && !scalar.is_some_and(|a| s.same_type()(a.element_type, accumulator)) {
            return Err(reducer.parameter_error(p, parameter, format_args!("the accumulator, {accumulator}[]")));
        }
        let wanted = element(p % inputs);
        if p >= inputs && !scalar.is_some_and(|a| same_type_or_floats(a.element_type, wanted)) {
            return Err(reducer.parameter_error(p, parameter, format_args!("an element, {wanted}[]")));
        }
        if p >= inputs && !scalar.is_some_and(|a| same_type_or_floats(a.element_type, accumulator)) {
            return Err(reducer.parameter_error(p, parameter, format_args!("{accumulator}[], as the result")));
        }
    }
    Ok(accumulators)
}

/// Half of the operands are inputs, half initial values; all inputs have the same dimensions.
fn inputs_and_inits(s: &Site<'_>) -> Result<usize, ShapeError> {
    let inputs = s.operands.len() / 2;
    if inputs == 0 || !s.operands.len().is_multiple_of(2) {
        return Err(s.operand_count_error("inputs and as many initial values"));
    }
    let first = s.array(0)?;
    for i in 1..inputs {
        if !same_dims(first, s.array(i)?) {
            return Err(s.dimensions_differ(0, i));
        }
    }
    for i in inputs..s.operands.len() {
        s.scalar(i)?;
    }
    Ok(inputs)
}

fn operand_type(s: &Site<'_>, i: usize) -> ElementType {
    s.operands.get(i).and_then(|&o| s.module[o].shape.element_type()).unwrap_or(ElementType::Pred)
}

/// One array, or a tuple of arrays of the same dimensions.
fn arrays<'a>(dims: ArrayShape, types: &[ElementType]) -> Inferred<'a> {
    match types {
        [one] => Inferred::Array(dims.with_element_type(*one)),
        _ => Inferred::Tuple(types.iter().map(|&t| Inferred::Array(dims.with_element_type(t))).collect()),
    }
}

pub(super) fn reduce<'a>(s: &Site<'a>, dimensions: &[i64], to_apply: ComputationId) -> Result1<'a> {
    let inputs = inputs_and_inits(s)?;
    let first = s.array(0)?;
    s.distinct_dimensions(dimensions, first.rank(), "dimensions")?;
    let accumulators =
        check_reducer(s, to_apply, "to_apply", inputs, |i| operand_type(s, i), |i| operand_type(s, inputs + i))?;
    let mut reduced: SmallVec<[bool; 16]> = SmallVec::from_elem(false, first.rank());
    for &d in dimensions {
        reduced[d as usize] = true;
    }
    let mut dims = Dims::default();
    for (d, _) in reduced.iter().enumerate().filter(|(_, reduced)| !**reduced) {
        dims.push_from(first, d);
    }
    Ok(arrays(dims.array(first.element_type), &accumulators))
}

pub(super) fn reduce_window<'a>(s: &Site<'a>, window: &Window, to_apply: ComputationId) -> Result1<'a> {
    let inputs = inputs_and_inits(s)?;
    let first = s.array(0)?;
    check_reducer(s, to_apply, "to_apply", inputs, |i| operand_type(s, i), |i| operand_type(s, inputs + i))?;
    let dims = window_dims(s, first, window)?.array(first.element_type);
    let types: Accumulators = (inputs..s.operands.len()).map(|i| operand_type(s, i)).collect();
    Ok(arrays(dims, &types))
}

pub(super) fn select_and_scatter<'a>(
    s: &Site<'a>,
    window: &Window,
    select: ComputationId,
    scatter: ComputationId,
) -> Result1<'a> {
    let (operand, source, init) = (s.array(0)?, s.array(1)?, s.scalar(2)?);
    let chooser = s.signature(select, "select", 2)?;
    chooser.expect_predicate()?;
    for (i, parameter) in chooser.parameters().enumerate() {
        if !is_element(parameter, operand.element_type) {
            return Err(chooser.parameter_error(i, parameter, format_args!("{}[]", operand.element_type)));
        }
    }
    check_reducer(s, scatter, "scatter", 1, |_| source.element_type, |_| init.element_type)?;
    let windows = window_dims(s, operand, window)?.array(operand.element_type);
    if !same_type_or_floats(source.element_type, operand.element_type) {
        return Err(s.element_types_differ(0, 1));
    }
    if !same_dims(source, &windows) {
        let message = format!(
            "operand 1 has a value for each place of the window, so it must be {}, but is {}",
            array_text(&windows),
            array_text(source)
        );
        return Err(error(&codes::DIMENSIONS_DIFFER, Part::Operand(1), message));
    }
    Ok(Inferred::Like(s.shape(0)?))
}

/// Whether `shape` is a scalar of that type, up to the precision of floating-point types.
fn is_element(shape: &Shape, t: ElementType) -> bool {
    shape.as_array().is_some_and(|a| a.is_scalar() && same_type_or_floats(a.element_type, t))
}

pub(super) fn map<'a>(s: &Site<'a>, to_apply: ComputationId, dimensions: &[i64]) -> Result1<'a> {
    let first = s.array(0)?;
    for i in 1..s.operands.len() {
        if !same_dims(first, s.array(i)?) {
            return Err(s.dimensions_differ(0, i));
        }
    }
    // Left out, the dimensions are all of them.
    if !dimensions.is_empty() && !dimensions.iter().copied().eq(0..first.rank() as i64) {
        let message = format!("map works on all dimensions of {} in order", array_text(first));
        return Err(at_attribute(&codes::DIMENSION_NUMBERS, "dimensions", message));
    }
    let function = s.signature(to_apply, "to_apply", s.operands.len())?;
    for (i, parameter) in function.parameters().enumerate() {
        let wanted = operand_type(s, i);
        if !is_element(parameter, wanted) {
            return Err(function.parameter_error(i, parameter, format_args!("{wanted}[]")));
        }
    }
    match function.result.as_array().filter(|a| a.is_scalar()) {
        Some(scalar) => Ok(Inferred::Typed(first, scalar.element_type)),
        None => Err(function.result_error("a scalar")),
    }
}

pub(super) fn sort<'a>(s: &Site<'a>, dimension: i64, to_apply: ComputationId) -> Result1<'a> {
    let first = s.array(0)?;
    for i in 1..s.operands.len() {
        if !same_dims(first, s.array(i)?) {
            return Err(s.dimensions_differ(0, i));
        }
    }
    s.dimension(dimension, first.rank(), "dimensions")?;
    let compare = s.signature(to_apply, "to_apply", s.operands.len().saturating_mul(2))?;
    compare.expect_predicate()?;
    for (p, parameter) in compare.parameters().enumerate() {
        let wanted = operand_type(s, p / 2);
        if !is_element(parameter, wanted) {
            return Err(compare.parameter_error(
                p,
                parameter,
                format_args!("{wanted}[], an element of operand {}", p / 2),
            ));
        }
    }
    Ok(match s.operands {
        [_] => Inferred::Like(s.shape(0)?),
        _ => Inferred::TupleOf(s.operands),
    })
}

pub(super) fn top_k<'a>(s: &Site<'a>, k: i64) -> Result1<'a> {
    let operand = s.array(0)?;
    let Some((&last, rest)) = operand.dims().split_last() else {
        return Err(error(&codes::RANK, Part::Operand(0), "topk needs at least one dimension".to_owned()));
    };
    if k < 0 || last != ArrayShape::UNBOUNDED && k > last {
        let message = format!("there are no {k} largest of the last dimension of {}", array_text(operand));
        return Err(at_attribute(&codes::SIZE_OUT_OF_RANGE, "k", message));
    }
    let mut dims = Dims::default();
    for d in 0..rest.len() {
        dims.push_from(operand, d);
    }
    dims.push(k, false);
    Ok(arrays(dims.array(operand.element_type), &[operand.element_type, ElementType::S32]))
}

/// Scan: operands are inputs, then the initial carries; results are outputs, then the final carries. The computation
/// sees inputs and outputs without the scanned dimension.
pub(super) fn scan<'a>(s: &Site<'a>, scan: &Scan) -> Result1<'a> {
    let step = s.signature(scan.to_apply, "to_apply", s.operands.len())?;
    let results: &[Shape] = match step.result {
        Shape::Tuple(elements) => elements,
        single => std::slice::from_ref(single),
    };
    let carries = usize::try_from(scan.num_carries).ok().filter(|&n| n <= s.operands.len() && n <= results.len());
    let Some(carries) = carries else {
        let message = format!(
            "scan cannot have {} carries with {} and {}",
            scan.num_carries,
            counted(s.operands.len(), "operand"),
            counted(results.len(), "result")
        );
        return Err(at_attribute(&codes::ATTRIBUTE_VALUE, "num_carries", message));
    };
    let (inputs, outputs) = (s.operands.len() - carries, results.len() - carries);
    if inputs == 0 && outputs == 0 {
        return Err(s.operand_count_error("inputs besides the carries"));
    }
    let length = scan_length(s, scan.dimension, inputs, results)?;
    check_step(s, scan.dimension, length, inputs, &step)?;
    for (i, result) in results.iter().enumerate().skip(outputs) {
        let parameter = step.parameters().nth(inputs + i - outputs);
        if !parameter.is_some_and(|p| compatible_ignoring_float_precision(p, result)) {
            return Err(step.result_error(format_args!("the carries as they came in (element {i})")));
        }
    }
    let mut made: Vec<Inferred<'a>> = Vec::with_capacity(results.len());
    for (i, result) in results.iter().enumerate() {
        made.push(if i < outputs {
            stacked(s, &step, result, scan.dimension, length)?
        } else {
            Inferred::Like(result)
        });
    }
    // A single result may stand alone, or in a tuple, whatever the computation's own result does.
    let alone = made.len() == 1 && !s.declared.unwrap_or(step.result).is_tuple();
    Ok(if alone { made.swap_remove(0) } else { Inferred::Tuple(made) })
}

/// The size of the scanned dimension: of the first input, or where there is none of the first output as declared.
fn scan_length(s: &Site<'_>, dimension: i64, inputs: usize, results: &[Shape]) -> Result<(i64, bool), ShapeError> {
    let array = if inputs > 0 {
        s.array(0)?
    } else {
        let declared = s.declared()?;
        let first = if results.len() > 1 { declared.at(&[0]) } else { Some(declared) };
        first.and_then(Shape::as_array).ok_or_else(|| s.mismatch(format_args!("not {}", text(declared))))?
    };
    let d = s.dimension(dimension, array.rank(), "dimensions")?;
    Ok((array.dims()[d], array.is_dynamic_dim(d)))
}

/// Checks the parameters of the computation that scan applies.
fn check_step(
    s: &Site<'_>,
    dimension: i64,
    (length, _): (i64, bool),
    inputs: usize,
    step: &Signature<'_>,
) -> Result<(), ShapeError> {
    for (i, parameter) in step.parameters().enumerate() {
        if i >= inputs {
            if !compatible_ignoring_float_precision(parameter, s.shape(i)?) {
                return Err(step.parameter_error(i, parameter, text(s.shape(i)?)));
            }
            continue;
        }
        let input = s.array(i)?;
        let along = s.dimension(dimension, input.rank(), "dimensions")?;
        if !same_size(input.dims()[along], length) {
            return Err(s.dimensions_differ(0, i));
        }
        let mut dims = Dims::default();
        for d in (0..input.rank()).filter(|&d| d != along) {
            dims.push_from(input, d);
        }
        let wanted = Shape::from(dims.array(input.element_type));
        if !compatible(parameter, &wanted) && !compatible_ignoring_float_precision(parameter, &wanted) {
            return Err(step.parameter_error(i, parameter, text(&wanted)));
        }
    }
    Ok(())
}

/// The output of one step with the scanned dimension put in.
fn stacked<'a>(
    s: &Site<'a>,
    step: &Signature<'a>,
    output: &'a Shape,
    dimension: i64,
    (length, dynamic): (i64, bool),
) -> Result1<'a> {
    let Some(array) = output.as_array() else { return Err(step.result_error("made of arrays")) };
    let at = s.dimension(dimension, array.rank() + 1, "dimensions")?;
    let mut dims = Dims::default();
    for d in 0..array.rank() {
        if d == at {
            dims.push(length, dynamic);
        }
        dims.push_from(array, d);
    }
    if at == array.rank() {
        dims.push(length, dynamic);
    }
    Ok(dims.inferred(array.element_type))
}

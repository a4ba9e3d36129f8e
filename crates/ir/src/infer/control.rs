//! Tuples, order, control flow, calls, custom calls and asynchronous calls.

use super::common::{Dims, Signature, Site, at_attribute, counted, error, text};
use super::{Inferred, Result1, ShapeError, compatible};
use crate::diagnostic::Part;
use crate::diagnostic::codes::infer as codes;
use crate::element_type::ElementType;
use crate::entity::ComputationId;
use crate::op::CustomCall;
use crate::shape::{ArrayShape, Shape};

pub(super) fn get_tuple_element<'a>(s: &Site<'a>, index: i64) -> Result1<'a> {
    let elements = s.tuple(0)?;
    usize::try_from(index).ok().and_then(|i| elements.get(i)).map(Inferred::Like).ok_or_else(|| {
        let message = format!("there is no element {index} in a tuple of {}", counted(elements.len(), "element"));
        at_attribute(&codes::TUPLE_INDEX, "index", message)
    })
}

pub(super) fn add_dependency<'a>(s: &Site<'a>) -> Result1<'a> {
    s.token(1)?;
    Ok(Inferred::Like(s.shape(0)?))
}

/// Checks that the computation can be called with operands `first..`.
fn check_arguments(s: &Site<'_>, called: &Signature<'_>, first: usize) -> Result<(), ShapeError> {
    for (i, parameter) in called.parameters().enumerate() {
        let operand = s.shape(first + i)?;
        if !s.compatible(parameter, operand) {
            return Err(called.parameter_error(i, parameter, format_args!("{}, as the operand", text(operand))));
        }
    }
    Ok(())
}

pub(super) fn while_loop<'a>(s: &Site<'a>, condition: ComputationId, body: ComputationId) -> Result1<'a> {
    let init = s.shape(0)?;
    let condition = s.signature(condition, "condition", 1)?;
    check_arguments(s, &condition, 0)?;
    condition.expect_predicate()?;
    let body = s.signature(body, "body", 1)?;
    check_arguments(s, &body, 0)?;
    if !s.compatible(body.result, init) {
        return Err(body.result_error(format_args!("{}, as the operand", text(init))));
    }
    Ok(Inferred::Like(init))
}

pub(super) fn conditional<'a>(s: &Site<'a>, branches: &[ComputationId]) -> Result1<'a> {
    let index = s.scalar(0)?;
    let attribute = match index.element_type {
        ElementType::Pred if branches.len() == 2 => "true_computation",
        ElementType::S32 if !branches.is_empty() => "branch_computations",
        ElementType::Pred | ElementType::S32 => {
            let message = format!(
                "{} cannot be chosen among by {}[]",
                counted(branches.len(), "branch").replace("branchs", "branches"),
                index.element_type
            );
            return Err(at_attribute(&codes::ATTRIBUTE_LENGTH, "branch_computations", message));
        }
        other => return Err(s.element_type_error(0, other, "a pred or s32 index and its")),
    };
    s.expect_operands(branches.len() + 1)?;
    let mut first: Option<&'a Shape> = None;
    let mut any_dynamic = false;
    for (i, &branch) in branches.iter().enumerate() {
        let attribute = if attribute == "true_computation" && i == 1 { "false_computation" } else { attribute };
        let branch = s.signature(branch, attribute, 1)?;
        check_arguments(s, &branch, i + 1)?;
        let wanted = *first.get_or_insert(branch.result);
        if !s.compatible(branch.result, wanted) {
            return Err(branch.result_error(format_args!("{}, as that of the first branch", text(wanted))));
        }
        any_dynamic |= branch.result.is_dynamic();
    }
    let Some(result) = first else { return s.declared().map(Inferred::Like) };
    if !any_dynamic {
        return Ok(Inferred::Like(result));
    }
    // A dimension that is dynamic in one branch is so in the result.
    let results = branches.iter().filter_map(|&b| Some(&s.module[s.module.root(b)?].shape));
    Ok(results.skip(1).fold(Inferred::Like(result), merge_dynamic))
}

fn merge_dynamic<'a>(made: Inferred<'a>, other: &'a Shape) -> Inferred<'a> {
    match (made, other) {
        (Inferred::Like(Shape::Tuple(parts)), Shape::Tuple(others)) => {
            Inferred::Tuple(parts.iter().zip(others.iter()).map(|(p, o)| merge_dynamic(Inferred::Like(p), o)).collect())
        }
        (Inferred::Tuple(parts), Shape::Tuple(others)) => {
            Inferred::Tuple(parts.into_iter().zip(others.iter()).map(|(p, o)| merge_dynamic(p, o)).collect())
        }
        (Inferred::Like(Shape::Array(a)), Shape::Array(o)) => Inferred::Array(merge_arrays(a, o)),
        (Inferred::Array(a), Shape::Array(o)) => Inferred::Array(merge_arrays(&a, o)),
        (made, _) => made,
    }
}

fn merge_arrays(a: &ArrayShape, b: &ArrayShape) -> ArrayShape {
    let mut dims = Dims::default();
    for (d, &size) in a.dims().iter().enumerate() {
        dims.push(size, a.is_dynamic_dim(d) || b.is_dynamic_dim(d));
    }
    dims.array(a.element_type)
}

/// Call and fusion: the result is that of the computation.
pub(super) fn call<'a>(s: &Site<'a>, to_apply: ComputationId, attribute: &'static str) -> Result1<'a> {
    let called = s.signature(to_apply, attribute, s.operands.len())?;
    check_arguments(s, &called, 0)?;
    Ok(Inferred::Like(called.result))
}

pub(super) fn custom_call<'a>(s: &Site<'a>, call: &CustomCall) -> Result1<'a> {
    if let Some(shapes) = &call.operand_layouts {
        s.attribute_length("operand_layout_constraints", shapes.len(), s.operands.len())?;
        for (i, shape) in shapes.iter().enumerate() {
            let operand = s.shape(i)?;
            if !compatible(shape, operand) {
                let message = format!("operand {i} is {}, but its layout constraint {}", text(operand), text(shape));
                return Err(at_attribute(&codes::DIMENSIONS_DIFFER, "operand_layout_constraints", message));
            }
        }
    }
    s.declared().map(Inferred::Like)
}

/// Whether `prefix` is the beginning of `whole`: all of it, or of a tuple the first elements, or beginnings of those; of
/// anything nothing, which is an empty tuple.
fn is_prefix(prefix: &Shape, whole: &Shape) -> bool {
    match (prefix, whole) {
        (Shape::Tuple(p), _) if p.is_empty() => true,
        (Shape::Tuple(p), Shape::Tuple(w)) => {
            p.len() <= w.len() && p.iter().zip(w.iter()).all(|(p, w)| is_prefix(p, w))
        }
        _ => compatible(prefix, whole),
    }
}

/// `((operands), result, context…)`: the operands and the result so far, which for the usual start are all of them.
pub(super) fn async_start<'a>(s: &Site<'a>, calls: ComputationId) -> Result1<'a> {
    let Some(declared) = s.declared else {
        let called = s.signature(calls, "calls", s.operands.len())?;
        check_arguments(s, &called, 0)?;
        return Ok(Inferred::Tuple(vec![Inferred::TupleOf(s.operands), Inferred::Like(called.result)]));
    };
    let called = s.signature(calls, "calls", s.module[calls].parameters.len())?;
    let form = || {
        let wanted = format!("((operands), {}, …), not {}", text(called.result), text(declared));
        error(&codes::NOT_A_TUPLE, Part::Shape, format!("the result of async-start is {wanted}"))
    };
    let [Shape::Tuple(bound), result, ..] = declared.as_tuple().ok_or_else(form)? else { return Err(form()) };
    s.expect_operands(bound.len())?;
    if bound.len() > called.parameters().len() {
        let message = format!("async-start passes more operands than the {} parameters", called.parameters().len());
        return Err(at_attribute(&codes::COMPUTATION_PARAMETERS, "calls", message));
    }
    for (i, (bound, parameter)) in bound.iter().zip(called.parameters()).enumerate() {
        let operand = s.shape(i)?;
        if !compatible(bound, operand) {
            return Err(form());
        }
        if !compatible(parameter, operand) {
            return Err(called.parameter_error(i, parameter, format_args!("{}, as the operand", text(operand))));
        }
    }
    if !is_prefix(result, called.result) {
        return Err(form());
    }
    Ok(Inferred::Like(declared))
}

/// Update hands on what it was given, and may bind further operands.
pub(super) fn async_update<'a>(s: &Site<'a>) -> Result1<'a> {
    let before = s.shape(0)?;
    if s.operands.len() == 1 {
        return Ok(Inferred::Like(before));
    }
    let declared = s.declared()?;
    let form = || s.mismatch(format_args!("{} with the new operands, not {}", text(before), text(declared)));
    let (Some([b0 @ Shape::Tuple(old), b1, ..]), Some([d0 @ Shape::Tuple(new), d1, ..])) =
        (before.as_tuple(), declared.as_tuple())
    else {
        return Err(form());
    };
    let added = s.operands.len() - 1;
    if !is_prefix(b0, d0) || !is_prefix(b1, d1) || new.len() != old.len() + added {
        return Err(form());
    }
    for (i, bound) in new.iter().skip(old.len()).enumerate() {
        if !compatible(bound, s.shape(i + 1)?) {
            return Err(form());
        }
    }
    Ok(Inferred::Like(declared))
}

/// Done gives the result, of which the start may have bound only the beginning.
pub(super) fn async_done<'a>(s: &Site<'a>) -> Result1<'a> {
    let bound = s.tuple_element(0, 1)?;
    match (&bound, s.declared) {
        (Inferred::Like(bound), Some(declared)) if is_prefix(bound, declared) => Ok(Inferred::Like(declared)),
        _ => Ok(bound),
    }
}

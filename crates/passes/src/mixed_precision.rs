//! Mixed precision made explicit: a convert wherever an instruction has floating-point types on its two sides that a
//! source program could not have.
//!
//! Modules that a compiler has optimised mix bf16 and f32 freely: values are computed in the widest type among operands
//! and result and rounded to the type that is written, reductions accumulate in their reducer's type, and what enters a
//! computation takes the types of its parameters (as in `hloom_eval::mixed_precision`, which is the definition). After this
//! pass each instruction makes what its operands say, and converts do the rest, so that nothing else has to know.

use crate::pass::{Context, Pass};
use hloom_ir::builder::Builder;
use hloom_ir::diagnostic::{Blame, Diagnostic, Part};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::infer::{MixedPrecision, ShapeError, check_shape, infer_shape, wider_float};
use hloom_ir::instruction::Operands;
use hloom_ir::module::Module;
use hloom_ir::op::{Op, Scan};
use hloom_ir::shape::{ArrayShape, Shape};

/// The pass.
pub static PASS: Pass = Pass {
    name: "legalize-mixed-precision",
    statement: "puts converts where instructions have different floating-point types on their two sides",
    keeps_schedule: true,
    run: |module: &mut Module, _: &Context<'_>| legalize(module),
};

/// Makes mixed precision in `module` explicit; it has no schedule afterwards unless nothing changed.
pub fn legalize(module: &mut Module) -> Result<usize, Diagnostic> {
    let reducers = legalize_reducers(module).map_err(|e| Diagnostic::error(e.code, e.message).blame(Blame::Hloom))?;
    let all: Vec<InstructionId> =
        module.computations().iter().flat_map(|&c| module[c].instructions()).copied().collect();
    let mixed = |&i: &InstructionId| {
        let (op, operands, shape) = (&module[i].op, module[i].operands(), &module[i].shape);
        may_mix(module, i)
            && (check_shape(module, op, operands, shape, MixedPrecision::Refused).is_err()
                || !wider_keys(module, i).is_empty()
                || applies_to_other_types(module, i))
    };
    let mixed: Vec<InstructionId> = all.into_iter().filter(mixed).collect();
    for &i in &mixed {
        let done = match module[i].op.clone() {
            Op::While { condition, body } => legalize_loop(module, i, condition, body),
            Op::Fusion(fusion) => legalize_call(module, i, &[fusion.calls], 0),
            Op::Call { to_apply, .. } => legalize_call(module, i, &[to_apply], 0),
            Op::Conditional { branches } => legalize_call(module, i, &branches, 1),
            Op::Sort { .. } => legalize_sort(module, i),
            Op::ReduceWindow { to_apply, .. } => legalize_window(module, i, to_apply),
            Op::Scatter(scatter) => legalize_scatter(module, i, scatter.to_apply),
            Op::Scan(scan) => legalize_scan(module, i, &scan),
            _ => legalize_operation(module, i),
        };
        done.map_err(|e| Diagnostic::error(e.code, e.message).blame(Blame::Hloom).at_instruction(i, Part::Whole))?;
    }
    let changes = reducers + mixed.len();
    if changes > 0 {
        module.is_scheduled = false;
    }
    Ok(changes)
}

/// Makes reducers return accumulators of the types that they take. Returns how many did not.
fn legalize_reducers(module: &mut Module) -> Result<usize, ShapeError> {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions()).copied();
    let reducer = |i: InstructionId| match &module[i].op {
        Op::Reduce { to_apply, .. } | Op::ReduceWindow { to_apply, .. } => Some(*to_apply),
        Op::Scatter(scatter) => Some(scatter.to_apply),
        Op::SelectAndScatter { scatter, .. } => Some(*scatter),
        _ => None,
    };
    let mut reducers: Vec<ComputationId> = all.filter_map(reducer).collect();
    reducers.sort_unstable();
    reducers.dedup();
    let mut changes = 0;
    for reducer in reducers {
        let Some(root) = module.root(reducer) else { continue };
        let mut taken = module.parameters(reducer).into_iter().map(|p| module[p].shape.clone());
        let accumulators = match &module[root].shape {
            Shape::Tuple(elements) => Shape::tuple(taken.take(elements.len())),
            _ => taken.next().unwrap_or_else(|| module[root].shape.clone()),
        };
        if !same_types(&module[root].shape, &accumulators) {
            convert_root(module, reducer, &accumulators)?;
            changes += 1;
        }
    }
    Ok(changes)
}

/// Whether operands and result of `i`, or what it calls, have several floating-point types; cheap to ask.
fn may_mix(module: &Module, i: InstructionId) -> bool {
    fn several(shape: &Shape, first: &mut Option<ElementType>) -> bool {
        match shape {
            Shape::Array(a) | Shape::Buffer(a) if a.element_type.component().is_float() => {
                let own = a.element_type.component();
                *first.get_or_insert(own) != own
            }
            Shape::Tuple(elements) => elements.iter().any(|e| several(e, first)),
            _ => false,
        }
    }
    let mut first = None;
    let operands = module[i].operands().iter().any(|&o| several(&module[o].shape, &mut first));
    let called = module[i].op.called_computations();
    let inside = || called.iter().flat_map(|&c| module.parameters(c).into_iter().chain(module.root(c)));
    operands || several(&module[i].shape, &mut first) || inside().any(|p| several(&module[p].shape, &mut first))
}

/// `shape` with the floating-point types of `types`, leaf by leaf.
fn with_types(shape: &Shape, types: &Shape) -> Shape {
    match (shape, types) {
        (Shape::Array(a), Shape::Array(t)) if a.element_type.is_float() && t.element_type.is_float() => {
            a.with_element_type(t.element_type).into()
        }
        (Shape::Tuple(elements), Shape::Tuple(types)) if elements.len() == types.len() => {
            Shape::tuple(elements.iter().zip(types.iter()).map(|(e, t)| with_types(e, t)))
        }
        _ => shape.clone(),
    }
}

/// `shape` with every floating-point type made `t`.
fn all_of_type(shape: &Shape, t: ElementType) -> Shape {
    shape.map_arrays(&mut |a: &ArrayShape| if a.element_type.is_float() { a.with_element_type(t) } else { a.clone() })
}

fn same_types(a: &Shape, b: &Shape) -> bool {
    match (a, b) {
        (Shape::Tuple(a), Shape::Tuple(b)) => a.iter().zip(b.iter()).all(|(a, b)| same_types(a, b)),
        _ => a.element_type() == b.element_type(),
    }
}

/// A builder at the end of a computation, whose root stays what it is.
pub(crate) fn builder(module: &mut Module, computation: ComputationId) -> Builder<'_> {
    if let Some(root) = module.root(computation) {
        module.set_root(root);
    }
    Builder::resume(module, computation)
}

/// `value` with the floating-point types of `shape`.
fn converted(b: &mut Builder<'_>, value: InstructionId, shape: &Shape) -> Result<InstructionId, ShapeError> {
    if same_types(b.shape(value), shape) {
        return Ok(value);
    }
    match shape {
        Shape::Tuple(elements) => {
            let mut parts = Vec::with_capacity(elements.len());
            for (n, element) in elements.iter().enumerate() {
                let part = b.get_tuple_element(value, n as i64)?;
                parts.push(converted(b, part, element)?);
            }
            b.tuple(&parts)
        }
        Shape::Array(a) => b.convert(value, a.element_type),
        _ => Ok(value),
    }
}

/// Gives operand `n` of `i` the types of `shape`.
fn convert_operand(module: &mut Module, i: InstructionId, n: usize, shape: &Shape) -> Result<(), ShapeError> {
    let (parent, operand) = (module[i].parent(), module[i].operands()[n]);
    let value = converted(&mut builder(module, parent), operand, shape)?;
    let replaced = module.replace_operand(i, n, value);
    debug_assert!(replaced.is_ok());
    Ok(())
}

/// Makes `i` give values of the types of `natural`, which those who use it see with the types that it had.
fn convert_result(module: &mut Module, i: InstructionId, natural: &Shape) -> Result<(), ShapeError> {
    let written = module[i].shape.clone();
    let shape = with_types(&written, natural);
    if same_types(&shape, &written) {
        return Ok(());
    }
    let users: Vec<InstructionId> = module[i].users().to_vec();
    let parent = module[i].parent();
    let was_root = module.root(parent) == Some(i);
    module.instruction_mut(i).shape = shape;
    if matches!(module[i].op, Op::AllReduceStart(_) | Op::AllGatherStart(_) | Op::CollectivePermuteStart(_)) {
        // What was started has these types until it is done.
        for done in users {
            let natural = infer_shape(module, &module[done].op, module[done].operands(), None)?;
            convert_result(module, done, &natural)?;
        }
        return Ok(());
    }
    let value = converted(&mut builder(module, parent), i, &written)?;
    for user in users {
        let operands: Operands = module[user].operands().iter().map(|&o| if o == i { value } else { o }).collect();
        let set = module.set_operands(user, operands);
        debug_assert!(set.is_ok());
    }
    if was_root {
        module.set_root(value);
    }
    Ok(())
}

/// Operations other than calls: operands that are combined become of one type, and the result what follows from them.
fn legalize_operation(module: &mut Module, i: InstructionId) -> Result<(), ShapeError> {
    let instruction = &module[i];
    let floats = |shape: &Shape| shape.as_array().map(|a| a.element_type).filter(|t| t.is_float());
    let operands: Vec<InstructionId> = instruction.operands().to_vec();
    let of_operands = operands.iter().filter_map(|&o| floats(&module[o].shape)).reduce(wider_float);
    let widest = match (of_operands, floats(&instruction.shape)) {
        // What is computed for each element is computed in the result's type, if that is wider.
        (Some(a), Some(b)) if instruction.op.is_elementwise() => Some(wider_float(a, b)),
        (operands, _) => operands,
    };
    if let Some(widest) = widest.filter(|_| combines(&instruction.op)) {
        for (n, &operand) in operands.iter().enumerate() {
            if floats(&module[operand].shape).is_some_and(|t| t != widest) {
                let shape = all_of_type(&module[operand].shape, widest);
                convert_operand(module, i, n, &shape)?;
            }
        }
    }
    let instruction = &module[i];
    let first = instruction.operands().first().and_then(|&o| floats(&module[o].shape));
    let declared = match if combines(&instruction.op) { widest } else { first } {
        Some(t) => all_of_type(&instruction.shape, t),
        None => instruction.shape.clone(),
    };
    let natural = infer_shape(module, &instruction.op, instruction.operands(), Some(&declared))?;
    convert_result(module, i, &natural)
}

/// The operands of a sort that are compared in a wider type than they have, and that type.
fn wider_keys(module: &Module, i: InstructionId) -> Vec<(usize, ElementType)> {
    let Op::Sort { to_apply, .. } = module[i].op else { return Vec::new() };
    let parameters = module.parameters(to_apply);
    let sides = parameters.iter().step_by(2).map(|&p| module[p].shape.element_type());
    let operands = module[i].operands().iter().map(|&o| module[o].shape.element_type());
    let wider = operands.zip(sides).enumerate().filter_map(|(n, (own, compared))| {
        let (own, compared) = (own?, compared?);
        let is_wider = own != compared && own.is_float() && wider_float(own, compared) == compared;
        is_wider.then_some((n, compared))
    });
    wider.collect()
}

/// Sorts: what is compared in a wider type is sorted in it, which changes no order.
fn legalize_sort(module: &mut Module, i: InstructionId) -> Result<(), ShapeError> {
    for (n, t) in wider_keys(module, i) {
        let shape = all_of_type(&module[module[i].operands()[n]].shape, t);
        convert_operand(module, i, n, &shape)?;
    }
    legalize_operation(module, i)
}

/// Whether a window or a scan begins with, or goes on with, accumulators of other types than its computation takes, or
/// a scatter has updates of other types.
fn applies_to_other_types(module: &Module, i: InstructionId) -> bool {
    let differ = |operands: &[InstructionId], parameters: &[InstructionId]| {
        operands.iter().zip(parameters).any(|(&o, &p)| !same_types(&module[o].shape, &module[p].shape))
    };
    let operands = module[i].operands();
    match &module[i].op {
        Op::ReduceWindow { to_apply, .. } => differ(&operands[operands.len() / 2..], &module.parameters(*to_apply)),
        Op::Scatter(scatter) => {
            let arrays = operands.len() / 2;
            let taken = module.parameters(scatter.to_apply);
            taken.get(arrays..).is_some_and(|taken| differ(&operands[arrays + 1..], taken))
        }
        Op::Scan(scan) => {
            let parameters = module.parameters(scan.to_apply);
            let carries = usize::try_from(scan.num_carries).unwrap_or(0).min(parameters.len());
            let results = module.root(scan.to_apply).map(|r| module[r].shape.clone());
            let results = results.as_ref().and_then(Shape::as_tuple).unwrap_or_default();
            let returned = results.iter().rev().take(carries);
            let taken = parameters.iter().rev().map(|&p| &module[p].shape);
            differ(operands, &parameters) || returned.zip(taken).any(|(a, b)| !same_types(a, b))
        }
        _ => false,
    }
}

/// Windows begin with accumulators of their reducer's types, and give those.
fn legalize_window(module: &mut Module, i: InstructionId, reducer: ComputationId) -> Result<(), ShapeError> {
    let inputs = module[i].operands().len() / 2;
    for (n, p) in module.parameters(reducer).into_iter().take(inputs).enumerate() {
        let shape = module[p].shape.clone();
        convert_operand(module, i, inputs + n, &shape)?;
    }
    legalize_operation(module, i)
}

/// Updates are what the function of their scatter takes.
fn legalize_scatter(module: &mut Module, i: InstructionId, function: ComputationId) -> Result<(), ShapeError> {
    let arrays = module[i].operands().len() / 2;
    for (n, p) in module.parameters(function).into_iter().skip(arrays).enumerate() {
        let at = arrays + 1 + n;
        let (Some(&update), Some(t)) = (module[i].operands().get(at), module[p].shape.element_type()) else { continue };
        if t.is_float() {
            let shape = all_of_type(&module[update].shape, t);
            convert_operand(module, i, at, &shape)?;
        }
    }
    legalize_operation(module, i)
}

/// Scans take what their computation takes, and their carries keep those types.
fn legalize_scan(module: &mut Module, i: InstructionId, scan: &Scan) -> Result<(), ShapeError> {
    let parameters: Vec<Shape> =
        module.parameters(scan.to_apply).into_iter().map(|p| module[p].shape.clone()).collect();
    for (n, parameter) in parameters.iter().enumerate() {
        let shape = match parameter.element_type() {
            Some(t) if t.is_float() => all_of_type(&module[module[i].operands()[n]].shape, t),
            _ => continue,
        };
        convert_operand(module, i, n, &shape)?;
    }
    let carries = usize::try_from(scan.num_carries).unwrap_or(0);
    let root = module.root(scan.to_apply).map(|r| module[r].shape.clone());
    if let Some(results) = root.as_ref().and_then(Shape::as_tuple) {
        let (outputs, first) = (results.len().saturating_sub(carries), parameters.len().saturating_sub(carries));
        let kept = results.iter().take(outputs).chain(&parameters[first..]).cloned();
        convert_root(module, scan.to_apply, &Shape::tuple(kept))?;
    }
    let declared = module[i].shape.clone();
    let natural = infer_shape(module, &module[i].op, module[i].operands(), Some(&declared))?;
    convert_result(module, i, &natural)
}

/// Whether an operation puts values of several operands together, which then need one type. Products, reductions, sorting
/// and collectives may take several.
fn combines(op: &Op) -> bool {
    op.is_elementwise()
        || matches!(
            op,
            Op::Concatenate { .. }
                | Op::Pad { .. }
                | Op::DynamicUpdateSlice
                | Op::SelectAndScatter { .. }
                | Op::BatchNormTraining { .. }
                | Op::BatchNormInference { .. }
                | Op::BatchNormGrad { .. }
                | Op::TriangularSolve { .. }
                | Op::AllToAll { .. }
                | Op::RaggedAllToAll { .. }
        )
}

/// Calls: arguments become what the parameters are, and the result what the computation gives. Operands before `first`
/// are no arguments; each computation then takes one, or the only one takes all.
fn legalize_call(
    module: &mut Module,
    i: InstructionId,
    computations: &[ComputationId],
    first: usize,
) -> Result<(), ShapeError> {
    let parameters: Vec<InstructionId> = computations.iter().flat_map(|&c| module.parameters(c)).collect();
    for (n, p) in parameters.into_iter().enumerate() {
        if first + n < module[i].operands().len() {
            let shape = module[p].shape.clone();
            convert_operand(module, i, first + n, &shape)?;
        }
    }
    let Some(natural) = computations.first().and_then(|&c| module.root(c)).map(|r| module[r].shape.clone()) else {
        return Ok(());
    };
    // All branches give what the first gives.
    for &c in computations.iter().skip(1) {
        convert_root(module, c, &natural)?;
    }
    convert_result(module, i, &natural)
}

/// Gives the result of a computation the types of `shape`.
fn convert_root(module: &mut Module, computation: ComputationId, shape: &Shape) -> Result<(), ShapeError> {
    let Some(root) = module.root(computation) else { return Ok(()) };
    let value = converted(&mut builder(module, computation), root, shape)?;
    module.set_root(value);
    Ok(())
}

/// Loops: the state has the types of the body's parameter throughout.
fn legalize_loop(
    module: &mut Module,
    i: InstructionId,
    condition: ComputationId,
    body: ComputationId,
) -> Result<(), ShapeError> {
    let Some(&state) = module.parameters(body).first() else { return Ok(()) };
    let state = module[state].shape.clone();
    convert_operand(module, i, 0, &state)?;
    convert_root(module, body, &state)?;
    if let Some(&p) = module.parameters(condition).first() {
        // The parameter then gives the condition what it was written for.
        convert_result(module, p, &state)?;
    }
    convert_result(module, i, &state)
}

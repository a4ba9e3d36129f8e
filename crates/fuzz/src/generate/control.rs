//! Steps that call other computations: fusions, calls, loops and branches.
//!
//! Loops count a number of their own up to a constant, so that they end whatever else their bodies do.

use super::Generator;
use super::body::Body;
use super::elementwise::index_scalar;
use hloom_ir::attributes::{ComparisonDirection, FusionKind};
use hloom_ir::element_type::ElementType::{Pred, S32};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::op::{BinaryOp, Fusion, Op};
use hloom_ir::shape::{ArrayShape, Shape};

/// How deep computations may call each other.
const MAX_DEPTH: usize = 3;

/// Some arrays of `body` to hand to another computation.
fn arguments(g: &mut Generator<'_, '_>, body: &Body, most: i64) -> Vec<(InstructionId, ArrayShape)> {
    (0..g.choices.between(1, most)).filter_map(|_| g.find(body, |_| true)).collect()
}

/// A computation of those parameters with a few steps in it.
fn inner(g: &mut Generator<'_, '_>, outer: &Body, name: &str, parameters: &[ArrayShape]) -> Body {
    let mut body = Body::new(&mut g.module, name);
    body.depth = outer.depth + 1;
    for shape in parameters {
        g.parameter(&mut body, shape.clone().into());
    }
    body
}

fn grow(g: &mut Generator<'_, '_>, body: &mut Body) {
    for _ in 0..g.choices.between(1, 5) {
        g.step(body);
    }
}

/// A fusion.
pub(super) fn fusion(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let arguments = arguments(g, body, 6);
    let shapes: Vec<_> = arguments.iter().map(|a| a.1.clone()).collect();
    let mut fused = inner(g, body, "fused_computation", &shapes);
    fused.small = true;
    grow(g, &mut fused);
    g.finish(&mut fused);
    let result = g.module[g.module.root(fused.computation)?].shape.clone();
    let kind = *g.choices.pick(FusionKind::ALL);
    let fusion = Fusion { kind, calls: fused.computation, output_operand_aliasing: Vec::new() };
    call_with(g, body, Op::Fusion(Box::new(fusion)), result, arguments);
    Some(())
}

/// A call.
pub(super) fn call(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    if body.depth >= MAX_DEPTH {
        return None;
    }
    let arguments = arguments(g, body, 3);
    let shapes: Vec<_> = arguments.iter().map(|a| a.1.clone()).collect();
    let mut callee = inner(g, body, "callee", &shapes);
    callee.uniform = body.uniform;
    grow(g, &mut callee);
    g.finish(&mut callee);
    let result = g.module[g.module.root(callee.computation)?].shape.clone();
    call_with(g, body, Op::Call { to_apply: callee.computation, is_composite: false }, result, arguments);
    Some(())
}

/// Adds the caller, and takes its result apart if it is a tuple.
fn call_with(
    g: &mut Generator<'_, '_>,
    body: &mut Body,
    op: Op,
    result: Shape,
    arguments: Vec<(InstructionId, ArrayShape)>,
) {
    let called = g.add(body, op, result.clone(), arguments.into_iter().map(|a| a.0));
    if let Shape::Tuple(parts) = result {
        for (index, part) in parts.iter().enumerate() {
            if g.choices.chance(50) {
                g.add(body, Op::GetTupleElement { index: index as i64 }, part.clone(), [called]);
            }
        }
    }
}

/// A loop with a counter and a few arrays.
pub(super) fn repeat(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    if body.depth >= MAX_DEPTH {
        return None;
    }
    let arguments = arguments(g, body, 4);
    let mut shapes: Vec<Shape> = vec![Shape::scalar(S32)];
    shapes.extend(arguments.iter().map(|a| a.1.clone().into()));
    let state = Shape::tuple(shapes.iter().cloned());
    let condition = below_limit(g, body, &state);
    let turn = loop_body(g, body, &state, &shapes);
    let zero = g.integer(body, S32, 0);
    let init = g.add(body, Op::Tuple, state.clone(), std::iter::once(zero).chain(arguments.iter().map(|a| a.0)));
    let done = g.add(body, Op::While { condition, body: turn }, state, [init]);
    let index = g.choices.below(shapes.len());
    g.add(body, Op::GetTupleElement { index: index as i64 }, shapes[index].clone(), [done]);
    Some(())
}

/// Whether the counter is still below a small constant.
fn below_limit(g: &mut Generator<'_, '_>, outer: &Body, state: &Shape) -> ComputationId {
    let mut body = inner(g, outer, "condition", &[]);
    let state = g.parameter(&mut body, state.clone());
    let counter = g.add(&mut body, Op::GetTupleElement { index: 0 }, Shape::scalar(S32), [state]);
    let limit = g.choices.between(0, 5);
    let limit = g.integer(&mut body, S32, limit);
    let op = Op::Compare { direction: ComparisonDirection::Lt, kind: None };
    let root = g.add(&mut body, op, Shape::scalar(Pred), [counter, limit]);
    g.module.set_root(root);
    body.computation
}

/// One turn: the counter plus one, the arrays changed somehow.
fn loop_body(g: &mut Generator<'_, '_>, outer: &Body, state: &Shape, shapes: &[Shape]) -> ComputationId {
    let mut body = inner(g, outer, "body", &[]);
    body.uniform = outer.uniform;
    let parameter = g.parameter(&mut body, state.clone());
    let mut parts = Vec::new();
    for (index, shape) in shapes.iter().enumerate() {
        parts.push(g.add(&mut body, Op::GetTupleElement { index: index as i64 }, shape.clone(), [parameter]));
    }
    let one = g.integer(&mut body, S32, 1);
    let counter = g.add(&mut body, Op::Binary(BinaryOp::Add), Shape::scalar(S32), [parts[0], one]);
    // The counter is for counting only: nothing else may use it up or replace it.
    body.values.retain(|&v| v != parts[0] && v != counter && v != parameter);
    grow(g, &mut body);
    let mut next = vec![counter];
    for &part in &parts[1..] {
        let shape = g.array_shape(part);
        next.push(shape.map_or(part, |shape| g.value_of(&mut body, &shape)));
    }
    let root = g.add(&mut body, Op::Tuple, state.clone(), next);
    g.module.set_root(root);
    body.computation
}

/// Two branches by a pred, or several by an index.
pub(super) fn conditional(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    if body.depth >= MAX_DEPTH {
        return None;
    }
    let (_, result) = g.find_static(body, |_| true)?;
    let by_index = g.choices.chance(50);
    let (which, count) = if by_index {
        (index_scalar(g, body, 4), g.choices.between(1, 4))
    } else {
        (g.value_of(body, &ArrayShape::new(Pred, [])), 2)
    };
    let mut operands = vec![which];
    let mut branches = Vec::new();
    for _ in 0..count {
        let (argument, shape) = g.find(body, |_| true)?;
        operands.push(argument);
        // Devices may take different branches: no collectives inside.
        let mut branch = inner(g, body, "branch", &[shape]);
        grow(g, &mut branch);
        let root = g.value_of(&mut branch, &result);
        g.module.set_root(root);
        branches.push(branch.computation);
    }
    g.add(body, Op::Conditional { branches: branches.into() }, result, operands);
    Some(())
}

/// A token, and a value that waits for it.
pub(super) fn after_all(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find(body, |_| true)?;
    let token = g.add(body, Op::AfterAll, Shape::Token, []);
    if g.choices.chance(50) {
        g.add(body, Op::AddDependency, shape, [x, token]);
    }
    Some(())
}

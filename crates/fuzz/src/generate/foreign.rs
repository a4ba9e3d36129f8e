//! Steps whose results the program alone does not determine, or that only programs for a device have: custom calls,
//! random numbers, feeds, transfers, asynchronous operations, bitcasts.

use super::Generator;
use super::body::Body;
use hloom_ir::attributes::*;
use hloom_ir::element_type::ElementType::{self, F32, Pred, S32, U8, U16, U32, U64};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::op::{AsyncStart, BinaryOp, CustomCall, Domain, Op, Transfer, UnaryOp};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_ir::sharding::{Sharding, ShardingKind};

/// A call of something unknown, with any of its attributes.
pub(super) fn custom_call(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let mut operands = Vec::new();
    for _ in 0..g.choices.below(7) {
        operands.push(g.find(body, |_| true)?);
    }
    let mut call = CustomCall::new(*g.choices.pick(&["target", "a$b", "quoted \"target\"", "__op$one"]));
    call.has_side_effect = g.choices.chance(20);
    call.schedule = *g.choices.pick(CustomCallSchedule::ALL);
    call.api_version = *g.choices.pick(&[
        CustomCallApiVersion::Original,
        CustomCallApiVersion::StatusReturning,
        CustomCallApiVersion::StatusReturningUnified,
        CustomCallApiVersion::TypedFfi,
    ]);
    if g.choices.chance(20) {
        let shapes = operands.iter().map(|o| g.module[o.0].shape.clone());
        call.operand_layouts = Some(shapes.collect());
    }
    if g.choices.chance(15) {
        // Of the layout of such a literal, protos keep no more than the order.
        let shape = Shape::array(g.any_type(), [2]).with_default_layout();
        call.literal = Some(std::sync::Arc::new(super::literal_of(g.choices, &shape)));
    }
    if g.choices.chance(15) {
        call.called_computations.push(g.scalar_computation(BinaryOp::Add, F32));
    }
    let mut result: Shape = g.any_shape().into();
    if let (Some((_, first)), true) = (operands.first(), g.choices.chance(30)) {
        // A result in the memory of the first operand.
        result = first.clone().into();
        call.output_operand_aliasing.push(OutputOperandAlias {
            output_index: Default::default(),
            operand: 0,
            operand_index: Default::default(),
        });
    } else if g.choices.chance(30) {
        let second = g.any_shape().into();
        result = Shape::tuple([result, second, Shape::Token]);
    }
    g.add(body, Op::CustomCall(Box::new(call)), result, operands.into_iter().map(|o| o.0));
    Some(())
}

/// Random numbers, in one of three ways.
pub(super) fn random(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    match g.choices.below(3) {
        0 => {
            let scalar = ArrayShape::new(F32, []);
            let (low, high) = (g.value_of(body, &scalar), g.value_of(body, &scalar));
            let distribution = *g.choices.pick(RngDistribution::ALL);
            let shape = g.any_shape_of(F32);
            g.add(body, Op::Rng { distribution }, shape, [low, high]);
        }
        1 => {
            let state = ArrayShape::new(U64, [2]);
            let from = g.value_of(body, &state);
            let t = *g.choices.pick(&[U8, U16, U32, U64]);
            let result = Shape::tuple([state.into(), g.any_shape_of(t).into()]);
            let algorithm = *g.choices.pick(RngAlgorithm::ALL);
            g.add(body, Op::RngBitGenerator { algorithm }, result, [from]);
        }
        _ => {
            let delta = g.choices.between(0, 99);
            g.add(body, Op::RngGetAndUpdateState { delta }, Shape::array(U64, [2]), []);
        }
    }
    Some(())
}

/// Something in, and out again.
pub(super) fn feed(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let token = g.add(body, Op::AfterAll, Shape::Token, []);
    let shape: Shape = g.any_shape().into();
    let config: Box<[u8]> = if g.choices.chance(30) { b"queue \"1\"".to_vec().into() } else { Box::default() };
    let result = Shape::tuple([shape.clone(), Shape::Token]);
    let fed = g.add(body, Op::Infeed { config: config.clone() }, result, [token]);
    let value = g.add(body, Op::GetTupleElement { index: 0 }, shape.clone(), [fed]);
    let token = g.add(body, Op::GetTupleElement { index: 1 }, Shape::Token, [fed]);
    let shape = g.with_layouts(&shape);
    g.add(body, Op::Outfeed { config, shape }, Shape::Token, [value, token]);
    Some(())
}

/// A value to the host and another from there.
pub(super) fn transfer(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |_| true)?;
    let token = g.add(body, Op::AfterAll, Shape::Token, []);
    let out = Transfer { channel_id: Some(g.channel()), is_host_transfer: true };
    let sent = g.add(body, Op::Send(out.clone()), in_flight(shape.into()), [x, token]);
    let data = g.module[x].shape.clone();
    settle_transfer(g, sent, data);
    let token = g.add(body, Op::SendDone(out), Shape::Token, [sent]);
    let back = Transfer { channel_id: Some(g.channel()), is_host_transfer: true };
    let shape: Shape = g.any_shape().into();
    let received = g.add(body, Op::Recv(back.clone()), in_flight(shape.clone()), [token]);
    let data = g.with_layouts(&shape);
    settle_transfer(g, received, data);
    g.add(body, Op::RecvDone(back), Shape::tuple([shape, Shape::Token]), [received]);
    Some(())
}

/// What send and recv give: the value, a number that stands for the transfer, and a token.
fn in_flight(shape: Shape) -> Shape {
    Shape::tuple([shape, Shape::scalar(U32), Shape::Token])
}

/// Gives a transfer the shape that readers give it, as XLA does: the data as they are, the number in the default layout.
fn settle_transfer(g: &mut Generator<'_, '_>, transfer: InstructionId, data: Shape) {
    let context = Shape::scalar(U32).with_default_layout();
    g.module.instruction_mut(transfer).shape = Shape::tuple([data, context, Shape::Token]);
}

/// An operation begun, perhaps looked after, and ended.
pub(super) fn asynchronous(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (a, shape) = g.find_static(body, |a| a.element_type != Pred)?;
    let b = g.value_of(body, &shape);
    let thread: Option<Box<str>> = g.choices.chance(50).then(|| "host".into());
    let calls = wrapped(g, body, &shape, thread.clone());
    let result: Shape = shape.into();
    let mut parts = vec![Shape::tuple([result.clone(), result.clone()]), result.clone()];
    if g.choices.chance(50) {
        parts.push(Shape::scalar(U32));
    }
    let state = Shape::tuple(parts);
    let start = AsyncStart { calls, execution_thread: thread, output_operand_aliasing: Vec::new() };
    let mut last: InstructionId = g.add(body, Op::AsyncStart(Box::new(start)), state.clone(), [a, b]);
    if g.choices.chance(30) {
        last = g.add(body, Op::AsyncUpdate { output_operand_aliasing: Vec::new() }, state, [last]);
    }
    g.add(body, Op::AsyncDone, result, [last]);
    Some(())
}

/// A computation of two arrays that an asynchronous operation runs: one operation, or two.
fn wrapped(g: &mut Generator<'_, '_>, outer: &Body, shape: &ArrayShape, thread: Option<Box<str>>) -> ComputationId {
    // Not `async_wrapped`: that is what the reader calls those that are printed as the operation they hold.
    let mut body = Body::new(&mut g.module, "started");
    body.depth = outer.depth + 1;
    let a = g.parameter(&mut body, shape.clone().into());
    let b = g.parameter(&mut body, shape.clone().into());
    let op = match g.choices.below(3) {
        0 => Op::CustomCall(Box::new(CustomCall::new("remote"))),
        _ => Op::Binary(BinaryOp::Multiply),
    };
    let mut root = g.add(&mut body, op, shape.clone(), [a, b]);
    if g.choices.chance(30) {
        root = g.add(&mut body, Op::unary(UnaryOp::Negate), shape.clone(), [root]);
    }
    g.module.set_root(root);
    g.module.computation_mut(body.computation).execution_thread = thread;
    body.computation
}

/// A copy begun and ended.
pub(super) fn copy_ahead(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |_| true)?;
    let shape: Shape = shape.into();
    let state = Shape::tuple([shape.clone(), shape.clone(), Shape::scalar(U32)]);
    let start = g.add(body, Op::CopyStart { cross_program_prefetch_index: None }, state, [x]);
    g.add(body, Op::CopyDone, shape, [start]);
    Some(())
}

/// A border between two shardings.
pub(super) fn domain(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |_| true)?;
    let entry = Sharding::leaf(ShardingKind::Replicated);
    let exit = Sharding::leaf(ShardingKind::Maximal { device: 0 });
    g.add(body, Op::Domain(Box::new(Domain { entry, exit })), shape, [x]);
    Some(())
}

/// A factorisation; of a matrix that need not have one.
pub(super) fn cholesky(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let n = g.choices.between(0, 4);
    let shape = ArrayShape::new(F32, [n, n]);
    let a = g.value_of(body, &shape);
    let lower = g.choices.chance(50);
    g.add(body, Op::Cholesky { lower }, shape, [a]);
    Some(())
}

/// A conversion that rounds at random.
pub(super) fn stochastic_convert(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| a.element_type == F32)?;
    let random = g.value_of(body, &shape.with_element_type(U32));
    let to = *g.choices.pick(&[ElementType::S8, ElementType::S16, S32]);
    g.add(body, Op::StochasticConvert, shape.with_element_type(to), [x, random]);
    Some(())
}

/// A reshape to sizes that are computed.
pub(super) fn dynamic_reshape(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    if !g.options.dynamic {
        return None;
    }
    let (x, shape) = g.find(body, |a| a.rank() > 0)?;
    let dynamic: Vec<bool> = (0..shape.rank()).map(|d| d == 0).collect();
    let mut operands = vec![x];
    for &size in shape.dims() {
        operands.push(g.integer(body, S32, size));
    }
    let result = ArrayShape::with_dynamic(shape.element_type, shape.dims().iter().copied(), dynamic);
    g.add(body, Op::DynamicReshape, result, operands);
    Some(())
}

/// The same bytes as another shape.
pub(super) fn bitcast(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |_| true)?;
    let count = shape.element_count()?;
    g.add(body, Op::Bitcast, Shape::array(shape.element_type, [count]), [x]);
    Some(())
}

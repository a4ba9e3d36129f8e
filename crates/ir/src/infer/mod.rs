//! Shape inference: what an operation makes of its operands. One place, for the builder, the readers and the verifier.
//!
//! The rules are XLA's. They are split into files by family; each rule looks at the operands' shapes, the attributes
//! and the parameters and results of called computations, and says what comes out as an `Inferred`, which can be
//! turned into a shape ([`infer_shape`]) or compared with one ([`check_shape`]) without being built. All arithmetic is
//! checked: sizes may be anything a file can say. Nothing here looks at layouts.

mod collective;
mod common;
mod contraction;
mod control;
mod convolution;
mod data_movement;
mod elementwise;
mod gather_scatter;
mod leaf;
mod linear_algebra;
mod reduction;
mod transfer;

#[cfg(test)]
mod tests;

use crate::diagnostic::{Code, Part, codes};
use crate::element_type::ElementType;
use crate::entity::InstructionId;
use crate::laid_out::LaidOutShapes;
use crate::module::Module;
use crate::op::Op;
use crate::shape::{ArrayShape, Shape};
use common::Site;
use std::fmt;

pub(crate) use common::{array_text, counted, text};
pub use common::{compatible, compatible_ignoring_float_precision};

/// Whether floating-point types may differ where an operation makes one of another: what compilers leave behind that keep
/// values in bf16 where they can. The value is then computed in the widest of the types and rounded to the one written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MixedPrecision {
    /// As in programs that people and front ends write: a convert is needed.
    Refused,
    /// As in modules that a compiler has optimised. Operations that only pass bytes on (tuples and their elements,
    /// bitcasts, transfers, custom calls) still keep types.
    Allowed,
}

/// The wider of two floating-point types: that of the larger range, then of more precision.
pub fn wider_float(a: ElementType, b: ElementType) -> ElementType {
    common::higher_precision(a, b)
}

/// Why an operation cannot be applied to its operands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShapeError {
    /// The kind.
    pub code: &'static Code,
    /// What is wrong, with the shapes at hand.
    pub message: String,
    /// Which part of the instruction is at fault.
    pub part: Part,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ShapeError {}

/// The shape of `op` applied to `operands` (instructions of `module`), without layouts. `declared` is the shape written
/// on the instruction, for operations whose result cannot be derived (parameter, constant, iota, convert, reshape,
/// custom-call, …): it is checked as far as it can be and returned.
///
/// Floating-point types may be mixed where XLA's own inference allows it; [`check_shape`] is stricter.
pub fn infer_shape(
    module: &Module,
    op: &Op,
    operands: &[InstructionId],
    declared: Option<&Shape>,
) -> Result<Shape, ShapeError> {
    let site = Site { module, op, operands, declared, mixed_precision: MixedPrecision::Refused };
    Ok(infer(&site)?.into_shape(module))
}

/// The same, with default layouts.
pub fn infer_laid_out(
    module: &Module,
    op: &Op,
    operands: &[InstructionId],
    declared: Option<&Shape>,
    shapes: &mut LaidOutShapes,
) -> Result<Shape, ShapeError> {
    let site = Site { module, op, operands, declared, mixed_precision: MixedPrecision::Refused };
    Ok(infer(&site)?.into_laid_out(module, shapes))
}

/// Whether `declared` is the shape of `op` applied to `operands`, as the verifier wants it: as in [`infer_shape`], but
/// without building the shape, and refusing mixed floating-point types where XLA's verifier does. Layouts and whether
/// a dimension is dynamic are set aside ([`compatible`]).
pub fn check_shape(
    module: &Module,
    op: &Op,
    operands: &[InstructionId],
    declared: &Shape,
    mixed_precision: MixedPrecision,
) -> Result<(), ShapeError> {
    let site = Site { module, op, operands, declared: Some(declared), mixed_precision };
    let inferred = infer(&site)?;
    if mixed_precision == MixedPrecision::Refused {
        elementwise::check_mixed_precision(&site)?;
    }
    let same_type = match mixed_precision {
        MixedPrecision::Allowed if !passes_bytes_on(op) => common::same_type_or_floats,
        _ => |a, b| a == b,
    };
    if inferred.matches(module, declared, same_type) {
        return Ok(());
    }
    let made = common::text(&inferred.into_shape(module));
    let message = format!("{} makes {made} of its operands, not {}", site.name(), common::text(declared));
    Err(ShapeError { code: &codes::infer::SHAPE_MISMATCH, message, part: Part::Shape })
}

/// Whether what an operation gives is bytes that it was given, so that their type is what it was.
fn passes_bytes_on(op: &Op) -> bool {
    matches!(
        op,
        Op::Parameter { .. }
            | Op::Constant(_)
            | Op::Bitcast
            | Op::BitcastConvert
            | Op::Tuple
            | Op::GetTupleElement { .. }
            | Op::CopyStart { .. }
            | Op::CopyDone
            | Op::AsyncStart(_)
            | Op::AsyncUpdate { .. }
            | Op::AsyncDone
            | Op::Send(_)
            | Op::SendDone(_)
            | Op::Recv(_)
            | Op::RecvDone(_)
            | Op::Infeed { .. }
            | Op::Outfeed { .. }
            | Op::CustomCall(_)
    )
}

/// Whether two element types go together.
type SameType = fn(ElementType, ElementType) -> bool;

/// What an operation makes, in a form that is cheap to have where the result is like something that exists.
enum Inferred<'a> {
    /// That shape, layouts aside.
    Like(&'a Shape),
    /// That array with another element type.
    Typed(&'a ArrayShape, ElementType),
    /// A new array.
    Array(ArrayShape),
    /// A tuple of the shapes of these instructions.
    TupleOf(&'a [InstructionId]),
    /// A tuple.
    Tuple(Vec<Inferred<'a>>),
    /// A token.
    Token,
}

impl Inferred<'_> {
    fn scalar(element_type: ElementType) -> Self {
        Inferred::Array(ArrayShape::new(element_type, []))
    }

    fn into_shape(self, module: &Module) -> Shape {
        match self {
            Inferred::Like(shape) => shape.without_layout(),
            Inferred::Typed(a, t) => a.without_layout().with_element_type(t).into(),
            Inferred::Array(a) => a.into(),
            Inferred::TupleOf(operands) => Shape::tuple(operands.iter().map(|&o| module[o].shape.without_layout())),
            Inferred::Tuple(elements) => Shape::tuple(elements.into_iter().map(|e| e.into_shape(module))),
            Inferred::Token => Shape::Token,
        }
    }

    fn into_laid_out(self, module: &Module, shapes: &mut LaidOutShapes) -> Shape {
        match self {
            Inferred::Like(shape) => shapes.of(shape),
            Inferred::Typed(a, t) => shapes.like(a, t),
            Inferred::Array(a) => shapes.like(&a, a.element_type),
            Inferred::TupleOf(operands) => Shape::tuple(operands.iter().map(|&o| shapes.of(&module[o].shape))),
            Inferred::Tuple(elements) => Shape::tuple(elements.into_iter().map(|e| e.into_laid_out(module, shapes))),
            Inferred::Token => Shape::Token,
        }
    }

    fn matches(&self, module: &Module, declared: &Shape, same_type: SameType) -> bool {
        match (self, declared) {
            (Inferred::Like(shape), _) => common::compatible_if(shape, declared, &same_type),
            (Inferred::Typed(a, t), Shape::Array(d)) => same_type(d.element_type, *t) && common::same_dims(a, d),
            (Inferred::Array(a), Shape::Array(d)) => {
                same_type(d.element_type, a.element_type) && common::same_dims(a, d)
            }
            (Inferred::TupleOf(operands), Shape::Tuple(elements)) => {
                operands.len() == elements.len()
                    && operands
                        .iter()
                        .zip(elements.iter())
                        .all(|(&o, e)| common::compatible_if(&module[o].shape, e, &same_type))
            }
            (Inferred::Tuple(parts), Shape::Tuple(elements)) => {
                parts.len() == elements.len()
                    && parts.iter().zip(elements.iter()).all(|(p, e)| p.matches(module, e, same_type))
            }
            (Inferred::Token, Shape::Token) => true,
            _ => false,
        }
    }
}

/// What the rules answer.
type Result1<'a> = Result<Inferred<'a>, ShapeError>;

fn infer<'a>(s: &Site<'a>) -> Result1<'a> {
    if let Some(arity) = s.op.opcode().arity() {
        s.expect_operands(arity)?;
    }
    match s.op {
        Op::Parameter { number, .. } => leaf::parameter(s, *number),
        Op::Constant(value) => leaf::constant(s, value),
        Op::Iota { dimension } => leaf::iota(s, *dimension),
        Op::ReplicaId | Op::PartitionId => Ok(Inferred::scalar(ElementType::U32)),
        Op::Rng { distribution } => leaf::rng(s, *distribution),
        Op::RngBitGenerator { .. } => leaf::rng_bit_generator(s),
        Op::RngGetAndUpdateState { .. } => Ok(Inferred::Array(ArrayShape::new(ElementType::U64, [2]))),

        Op::Unary { op, .. } => elementwise::unary(s, *op),
        Op::Binary(op) => elementwise::binary(s, *op),
        Op::Compare { .. } => elementwise::compare(s),
        Op::Select => elementwise::select(s),
        Op::Clamp => elementwise::clamp(s),
        Op::Convert => elementwise::convert(s),
        Op::BitcastConvert => elementwise::bitcast_convert(s),
        Op::ReducePrecision { exponent_bits, mantissa_bits } => {
            elementwise::reduce_precision(s, *exponent_bits, *mantissa_bits)
        }
        Op::StochasticConvert => elementwise::stochastic_convert(s),
        Op::Map { to_apply, dimensions } => reduction::map(s, *to_apply, dimensions),

        Op::Bitcast => data_movement::bitcast(s),
        Op::Copy | Op::OptBarrier | Op::Domain(_) => Ok(Inferred::Like(s.shape(0)?)),
        Op::Reshape { inferred_dimension } => data_movement::reshape(s, *inferred_dimension),
        Op::DynamicReshape => data_movement::dynamic_reshape(s),
        Op::Broadcast { dimensions } => data_movement::broadcast(s, dimensions),
        Op::Transpose { dimensions } => data_movement::transpose(s, dimensions),
        Op::Reverse { dimensions } => data_movement::reverse(s, dimensions),
        Op::Concatenate { dimension } => data_movement::concatenate(s, *dimension),
        Op::Slice { dims } => data_movement::slice(s, dims),
        Op::DynamicSlice { sizes } => data_movement::dynamic_slice(s, sizes),
        Op::DynamicUpdateSlice => data_movement::dynamic_update_slice(s),
        Op::Pad { padding } => data_movement::pad(s, padding),
        Op::GetDimensionSize { dimension } => data_movement::get_dimension_size(s, *dimension),
        Op::SetDimensionSize { dimension } => data_movement::set_dimension_size(s, *dimension),
        Op::Gather(gather) => gather_scatter::gather(s, gather),
        Op::Scatter(scatter) => gather_scatter::scatter(s, scatter),

        Op::Dot(dot) => contraction::dot(s, &dot.dims),
        Op::RaggedDot(dot) => contraction::ragged_dot(s, dot),
        Op::ScaledDot(dot) => contraction::scaled_dot(s, &dot.dims),
        Op::Convolution(conv) => convolution::convolution(s, conv),
        Op::Reduce { dimensions, to_apply } => reduction::reduce(s, dimensions, *to_apply),
        Op::ReduceWindow { window, to_apply } => reduction::reduce_window(s, window, *to_apply),
        Op::SelectAndScatter { window, select, scatter } => reduction::select_and_scatter(s, window, *select, *scatter),
        Op::Scan(scan) => reduction::scan(s, scan),
        Op::Sort { dimension, to_apply, .. } => reduction::sort(s, *dimension, *to_apply),
        Op::TopK { k, .. } => reduction::top_k(s, *k),
        Op::Fft { kind, length } => linear_algebra::fft(s, *kind, length),
        Op::Cholesky { .. } => linear_algebra::cholesky(s),
        Op::TriangularSolve { left_side, .. } => linear_algebra::triangular_solve(s, *left_side),
        Op::BatchNormTraining { feature_index, .. }
        | Op::BatchNormInference { feature_index, .. }
        | Op::BatchNormGrad { feature_index, .. } => linear_algebra::batch_norm(s, *feature_index),

        Op::Tuple => Ok(Inferred::TupleOf(s.operands)),
        Op::GetTupleElement { index } => control::get_tuple_element(s, *index),
        Op::AfterAll => Ok(Inferred::Token),
        Op::AddDependency => control::add_dependency(s),
        Op::While { condition, body } => control::while_loop(s, *condition, *body),
        Op::Conditional { branches } => control::conditional(s, branches),
        Op::Call { to_apply, .. } => control::call(s, *to_apply, "to_apply"),
        Op::Fusion(fusion) => control::call(s, fusion.calls, "calls"),
        Op::CustomCall(call) => control::custom_call(s, call),
        Op::AsyncStart(start) => control::async_start(s, start.calls),
        Op::AsyncUpdate { .. } => control::async_update(s),
        Op::AsyncDone => control::async_done(s),

        Op::AllReduce(a) => collective::all_reduce(s, a.to_apply),
        Op::AllReduceStart(a) => collective::all_reduce_start(s, a.to_apply),
        Op::AllReduceDone => collective::all_reduce_done(s),
        Op::AllGather(a) => collective::all_gather(s, a),
        Op::AllGatherStart(a) => collective::all_gather_start(s, a),
        Op::AllGatherDone => collective::all_gather_done(s),
        Op::CollectivePermuteDone => s.tuple_element(0, 1),
        Op::ReduceScatter(r) => collective::reduce_scatter(s, r),
        Op::CollectiveReduce(r) => collective::collective_reduce(s, r),
        Op::AllToAll { split_dimension, .. } => collective::all_to_all(s, *split_dimension),
        Op::RaggedAllToAll { .. } => collective::ragged_all_to_all(s),
        Op::CollectiveBroadcast { has_dynamic_root, .. } => collective::collective_broadcast(s, *has_dynamic_root),
        Op::CollectivePermute(p) => collective::collective_permute(s, p),
        Op::CollectivePermuteStart(p) => collective::collective_permute_start(s, p),

        Op::CopyStart { .. } => transfer::copy_start(s),
        Op::CopyDone => transfer::copy_done(s),
        Op::Send(_) => transfer::send(s),
        Op::SendDone(_) => transfer::send_done(s),
        Op::Recv(_) => transfer::recv(s),
        Op::RecvDone(_) => transfer::recv_done(s),
        Op::Infeed { .. } => transfer::infeed(s),
        Op::Outfeed { shape, .. } => transfer::outfeed(s, shape),
    }
}

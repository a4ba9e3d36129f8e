//! Operations with their attributes.
//!
//! An opcode is a variant that carries its own attributes, so an instruction cannot hold an attribute its opcode lacks.
//! Operands are not here but in the instruction; computations that an operation calls are, as ids.

mod fields;

use crate::attributes::*;
use crate::entity::ComputationId;
use crate::layout::DimVec;
use crate::literal::Literal;
use crate::opcode::Opcode;
use crate::shape::Shape;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

pub use crate::elementwise::{BinaryOp, UnaryOp};
pub use fields::*;

/// An operation and its attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "variants and fields are named as in HLO text")]
pub enum Op {
    // Leaves.
    Parameter {
        number: i64,
        replication: Option<Box<[bool]>>,
    },
    Constant(ConstantValue),
    Iota {
        dimension: i64,
    },
    ReplicaId,
    PartitionId,

    // Element by element.
    Unary {
        op: UnaryOp,
        accuracy: ResultAccuracy,
    },
    Binary(BinaryOp),
    Compare {
        direction: ComparisonDirection,
        kind: Option<ComparisonType>,
    },
    Select,
    Clamp,
    Convert,
    BitcastConvert,
    ReducePrecision {
        exponent_bits: i32,
        mantissa_bits: i32,
    },
    StochasticConvert,
    Map {
        to_apply: ComputationId,
        dimensions: DimVec,
    },

    // The same elements elsewhere.
    Bitcast,
    Copy,
    Reshape {
        inferred_dimension: Option<i64>,
    },
    DynamicReshape,
    Broadcast {
        dimensions: DimVec,
    },
    Transpose {
        dimensions: DimVec,
    },
    Reverse {
        dimensions: DimVec,
    },
    Concatenate {
        dimension: i64,
    },
    Slice {
        dims: Box<[SliceDim]>,
    },
    DynamicSlice {
        sizes: DimVec,
    },
    DynamicUpdateSlice,
    Pad {
        padding: Box<[PaddingDim]>,
    },
    Gather(Box<Gather>),
    Scatter(Box<Scatter>),
    GetDimensionSize {
        dimension: i64,
    },
    SetDimensionSize {
        dimension: i64,
    },

    // Products, sums and orders.
    Dot(Box<Dot>),
    RaggedDot(Box<RaggedDot>),
    ScaledDot(Box<Dot>),
    Convolution(Box<Convolution>),
    Reduce {
        dimensions: DimVec,
        to_apply: ComputationId,
    },
    ReduceWindow {
        window: Box<Window>,
        to_apply: ComputationId,
    },
    SelectAndScatter {
        window: Box<Window>,
        select: ComputationId,
        scatter: ComputationId,
    },
    Scan(Box<Scan>),
    Sort {
        dimension: i64,
        is_stable: bool,
        to_apply: ComputationId,
    },
    TopK {
        k: i64,
        largest: bool,
        is_stable: bool,
    },
    Fft {
        kind: FftType,
        length: DimVec,
    },
    Cholesky {
        lower: bool,
    },
    TriangularSolve {
        left_side: bool,
        lower: bool,
        unit_diagonal: bool,
        transpose_a: TransposeA,
    },
    BatchNormTraining {
        epsilon: F32Bits,
        feature_index: i64,
    },
    BatchNormInference {
        epsilon: F32Bits,
        feature_index: i64,
    },
    BatchNormGrad {
        epsilon: F32Bits,
        feature_index: i64,
    },
    Rng {
        distribution: RngDistribution,
    },
    RngBitGenerator {
        algorithm: RngAlgorithm,
    },
    RngGetAndUpdateState {
        delta: i64,
    },

    // Tuples and order.
    Tuple,
    GetTupleElement {
        index: i64,
    },
    AfterAll,
    AddDependency,
    OptBarrier,
    Domain(Box<Domain>),

    // Control flow and calls.
    While {
        condition: ComputationId,
        body: ComputationId,
    },
    /// Two branches chosen by a pred, or any number chosen by an s32, as the first operand's type says.
    Conditional {
        branches: SmallVec<[ComputationId; 2]>,
    },
    Call {
        to_apply: ComputationId,
        is_composite: bool,
    },
    Fusion(Box<Fusion>),
    CustomCall(Box<CustomCall>),
    AsyncStart(Box<AsyncStart>),
    AsyncUpdate {
        output_operand_aliasing: Vec<OutputOperandAlias>,
    },
    AsyncDone,

    // Devices meeting.
    AllReduce(Box<AllReduce>),
    AllReduceStart(Box<AllReduce>),
    AllReduceDone,
    AllGather(Box<AllGather>),
    AllGatherStart(Box<AllGather>),
    AllGatherDone,
    ReduceScatter(Box<ReduceScatter>),
    CollectiveReduce(Box<CollectiveReduce>),
    AllToAll {
        collective: Box<Collective>,
        split_dimension: Option<i64>,
    },
    RaggedAllToAll {
        collective: Box<Collective>,
        split_dimension: Option<i64>,
    },
    CollectiveBroadcast {
        collective: Box<Collective>,
        has_dynamic_root: bool,
    },
    CollectivePermute(Box<CollectivePermute>),
    CollectivePermuteStart(Box<CollectivePermute>),
    CollectivePermuteDone,

    // Moving data.
    CopyStart {
        cross_program_prefetch_index: Option<i32>,
    },
    CopyDone,
    Send(Transfer),
    SendDone(Transfer),
    Recv(Transfer),
    RecvDone(Transfer),
    Infeed {
        config: Box<[u8]>,
    },
    Outfeed {
        config: Box<[u8]>,
        shape: Shape,
    },
}

/// The value of a constant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConstantValue {
    /// Known.
    Literal(Arc<Literal>),
    /// Left out of the dump as `{...}`; the instruction's shape is all that is known.
    Elided,
}

/// An `f32` that can be compared and hashed: its bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct F32Bits(u32);

impl From<f32> for F32Bits {
    fn from(value: f32) -> Self {
        F32Bits(value.to_bits())
    }
}

impl F32Bits {
    /// The number.
    pub fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

impl Op {
    /// A unary element-wise operation without a stated accuracy.
    pub fn unary(op: UnaryOp) -> Op {
        Op::Unary { op, accuracy: ResultAccuracy::Default }
    }

    /// A parameter.
    pub fn parameter(number: i64) -> Op {
        Op::Parameter { number, replication: None }
    }

    /// A constant of known value.
    pub fn constant(literal: Literal) -> Op {
        Op::Constant(ConstantValue::Literal(Arc::new(literal)))
    }

    /// Which operation it is.
    pub fn opcode(&self) -> Opcode {
        match self {
            Op::Parameter { .. } => Opcode::Parameter,
            Op::Constant(_) => Opcode::Constant,
            Op::Iota { .. } => Opcode::Iota,
            Op::ReplicaId => Opcode::ReplicaId,
            Op::PartitionId => Opcode::PartitionId,
            Op::Unary { op, .. } => op.opcode(),
            Op::Binary(op) => op.opcode(),
            Op::Compare { .. } => Opcode::Compare,
            Op::Select => Opcode::Select,
            Op::Clamp => Opcode::Clamp,
            Op::Convert => Opcode::Convert,
            Op::BitcastConvert => Opcode::BitcastConvert,
            Op::ReducePrecision { .. } => Opcode::ReducePrecision,
            Op::StochasticConvert => Opcode::StochasticConvert,
            Op::Map { .. } => Opcode::Map,
            Op::Bitcast => Opcode::Bitcast,
            Op::Copy => Opcode::Copy,
            Op::Reshape { .. } => Opcode::Reshape,
            Op::DynamicReshape => Opcode::DynamicReshape,
            Op::Broadcast { .. } => Opcode::Broadcast,
            Op::Transpose { .. } => Opcode::Transpose,
            Op::Reverse { .. } => Opcode::Reverse,
            Op::Concatenate { .. } => Opcode::Concatenate,
            Op::Slice { .. } => Opcode::Slice,
            Op::DynamicSlice { .. } => Opcode::DynamicSlice,
            Op::DynamicUpdateSlice => Opcode::DynamicUpdateSlice,
            Op::Pad { .. } => Opcode::Pad,
            Op::Gather(_) => Opcode::Gather,
            Op::Scatter(_) => Opcode::Scatter,
            Op::GetDimensionSize { .. } => Opcode::GetDimensionSize,
            Op::SetDimensionSize { .. } => Opcode::SetDimensionSize,
            Op::Dot(_) => Opcode::Dot,
            Op::RaggedDot(_) => Opcode::RaggedDot,
            Op::ScaledDot(_) => Opcode::ScaledDot,
            Op::Convolution(_) => Opcode::Convolution,
            Op::Reduce { .. } => Opcode::Reduce,
            Op::ReduceWindow { .. } => Opcode::ReduceWindow,
            Op::SelectAndScatter { .. } => Opcode::SelectAndScatter,
            Op::Scan(_) => Opcode::Scan,
            Op::Sort { .. } => Opcode::Sort,
            Op::TopK { .. } => Opcode::TopK,
            Op::Fft { .. } => Opcode::Fft,
            Op::Cholesky { .. } => Opcode::Cholesky,
            Op::TriangularSolve { .. } => Opcode::TriangularSolve,
            Op::BatchNormTraining { .. } => Opcode::BatchNormTraining,
            Op::BatchNormInference { .. } => Opcode::BatchNormInference,
            Op::BatchNormGrad { .. } => Opcode::BatchNormGrad,
            Op::Rng { .. } => Opcode::Rng,
            Op::RngBitGenerator { .. } => Opcode::RngBitGenerator,
            Op::RngGetAndUpdateState { .. } => Opcode::RngGetAndUpdateState,
            Op::Tuple => Opcode::Tuple,
            Op::GetTupleElement { .. } => Opcode::GetTupleElement,
            Op::AfterAll => Opcode::AfterAll,
            Op::AddDependency => Opcode::AddDependency,
            Op::OptBarrier => Opcode::OptBarrier,
            Op::Domain(_) => Opcode::Domain,
            Op::While { .. } => Opcode::While,
            Op::Conditional { .. } => Opcode::Conditional,
            Op::Call { .. } => Opcode::Call,
            Op::Fusion(_) => Opcode::Fusion,
            Op::CustomCall(_) => Opcode::CustomCall,
            Op::AsyncStart(_) => Opcode::AsyncStart,
            Op::AsyncUpdate { .. } => Opcode::AsyncUpdate,
            Op::AsyncDone => Opcode::AsyncDone,
            Op::AllReduce(_) => Opcode::AllReduce,
            Op::AllReduceStart(_) => Opcode::AllReduceStart,
            Op::AllReduceDone => Opcode::AllReduceDone,
            Op::AllGather(_) => Opcode::AllGather,
            Op::AllGatherStart(_) => Opcode::AllGatherStart,
            Op::AllGatherDone => Opcode::AllGatherDone,
            Op::ReduceScatter(_) => Opcode::ReduceScatter,
            Op::CollectiveReduce(_) => Opcode::CollectiveReduce,
            Op::AllToAll { .. } => Opcode::AllToAll,
            Op::RaggedAllToAll { .. } => Opcode::RaggedAllToAll,
            Op::CollectiveBroadcast { .. } => Opcode::CollectiveBroadcast,
            Op::CollectivePermute(_) => Opcode::CollectivePermute,
            Op::CollectivePermuteStart(_) => Opcode::CollectivePermuteStart,
            Op::CollectivePermuteDone => Opcode::CollectivePermuteDone,
            Op::CopyStart { .. } => Opcode::CopyStart,
            Op::CopyDone => Opcode::CopyDone,
            Op::Send(_) => Opcode::Send,
            Op::SendDone(_) => Opcode::SendDone,
            Op::Recv(_) => Opcode::Recv,
            Op::RecvDone(_) => Opcode::RecvDone,
            Op::Infeed { .. } => Opcode::Infeed,
            Op::Outfeed { .. } => Opcode::Outfeed,
        }
    }

    /// The computations it calls, in the order of XLA's protos (while: body, then condition).
    pub fn called_computations(&self) -> SmallVec<[ComputationId; 2]> {
        match self {
            Op::Map { to_apply, .. }
            | Op::Reduce { to_apply, .. }
            | Op::ReduceWindow { to_apply, .. }
            | Op::Sort { to_apply, .. }
            | Op::Call { to_apply, .. } => smallvec![*to_apply],
            Op::Scatter(s) => smallvec![s.to_apply],
            Op::Scan(s) => smallvec![s.to_apply],
            Op::SelectAndScatter { select, scatter, .. } => smallvec![*select, *scatter],
            Op::While { condition, body } => smallvec![*body, *condition],
            Op::Conditional { branches } => branches.clone(),
            Op::Fusion(f) => smallvec![f.calls],
            Op::CustomCall(c) => SmallVec::from_slice(&c.called_computations),
            Op::AsyncStart(a) => smallvec![a.calls],
            Op::AllReduce(a) | Op::AllReduceStart(a) => smallvec![a.to_apply],
            Op::ReduceScatter(r) => smallvec![r.to_apply],
            Op::CollectiveReduce(r) => smallvec![r.to_apply],
            _ => SmallVec::new(),
        }
    }

    /// The computations it calls, each to be replaced.
    pub fn called_computations_mut(&mut self) -> SmallVec<[&mut ComputationId; 2]> {
        match self {
            Op::Map { to_apply, .. }
            | Op::Reduce { to_apply, .. }
            | Op::ReduceWindow { to_apply, .. }
            | Op::Sort { to_apply, .. }
            | Op::Call { to_apply, .. } => smallvec![to_apply],
            Op::Scatter(s) => smallvec![&mut s.to_apply],
            Op::Scan(s) => smallvec![&mut s.to_apply],
            Op::SelectAndScatter { select, scatter, .. } => smallvec![select, scatter],
            Op::While { condition, body } => smallvec![body, condition],
            Op::Conditional { branches } => branches.iter_mut().collect(),
            Op::Fusion(f) => smallvec![&mut f.calls],
            Op::CustomCall(c) => c.called_computations.iter_mut().collect(),
            Op::AsyncStart(a) => smallvec![&mut a.calls],
            Op::AllReduce(a) | Op::AllReduceStart(a) => smallvec![&mut a.to_apply],
            Op::ReduceScatter(r) => smallvec![&mut r.to_apply],
            Op::CollectiveReduce(r) => smallvec![&mut r.to_apply],
            _ => SmallVec::new(),
        }
    }
}

//! The attributes of instructions: which there are, which operation takes which, and their values while an instruction
//! is being read.
//!
//! What every instruction may have goes into its [`Common`]; the rest is kept here until the operation is built.

use hloom_ir::attributes::*;
use hloom_ir::device_list::ReplicaGroups;
use hloom_ir::diagnostic::Span;
use hloom_ir::entity::ComputationId;
use hloom_ir::instruction::Common;
use hloom_ir::layout::DimVec;
use hloom_ir::literal::Literal;
use hloom_ir::op::Domain;
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::Shape;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::{Arc, LazyLock};

macro_rules! attributes {
    ($($variant:ident $text:literal),+ $(,)?) => {
        /// An attribute of an instruction.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(super) enum Attr { $($variant),+ }

        impl Attr {
            const ALL: &'static [Attr] = &[$(Attr::$variant),+];

            /// The name in HLO text.
            pub(super) const fn name(self) -> &'static str {
                match self { $(Attr::$variant => $text),+ }
            }
        }
    };
}

attributes! {
    Sharding "sharding", FrontendAttributes "frontend_attributes", Statistics "statistics",
    ParameterReplication "parameter_replication", ControlPredecessors "control-predecessors", Origin "origin",
    Metadata "metadata", BackendConfig "backend_config",
    // Whole numbers.
    IotaDimension "iota_dimension", K "k", ChannelId "channel_id", Index "index",
    FeatureGroupCount "feature_group_count", BatchGroupCount "batch_group_count",
    InferredDimension "inferred_dimension", NumCarries "num_carries", IndexVectorDim "index_vector_dim",
    FeatureIndex "feature_index", Delta "delta", ExponentBits "exponent_bits", MantissaBits "mantissa_bits",
    CrossProgramPrefetchIndex "cross_program_prefetch_index",
    // true or false.
    Largest "largest", IsStable "is_stable", ConstrainLayout "constrain_layout",
    UseGlobalDeviceIds "use_global_device_ids", HasDynamicRoot "has_dynamic_root", IsHostTransfer "is_host_transfer",
    IsComposite "is_composite", IsReverse "is_reverse", IsAssociative "is_associative",
    IndicesAreSorted "indices_are_sorted", UniqueIndices "unique_indices",
    HasSideEffect "custom_call_has_side_effect", Lower "lower", LeftSide "left_side", UnitDiagonal "unit_diagonal",
    // Lists of whole numbers.
    Dimensions "dimensions", FftLength "fft_length", LhsContractingDims "lhs_contracting_dims",
    RhsContractingDims "rhs_contracting_dims", LhsBatchDims "lhs_batch_dims", RhsBatchDims "rhs_batch_dims",
    LhsRaggedDims "lhs_ragged_dims", RhsGroupDims "rhs_group_dims", DynamicSliceSizes "dynamic_slice_sizes",
    OffsetDims "offset_dims", CollapsedSliceDims "collapsed_slice_dims", StartIndexMap "start_index_map",
    OperandBatchingDims "operand_batching_dims", StartIndicesBatchingDims "start_indices_batching_dims",
    UpdateWindowDims "update_window_dims", InsertedWindowDims "inserted_window_dims",
    ScatterDimsToOperandDims "scatter_dims_to_operand_dims", InputBatchingDims "input_batching_dims",
    ScatterIndicesBatchingDims "scatter_indices_batching_dims",
    // Computations.
    ToApply "to_apply", Condition "condition", Body "body", Select "select", Scatter "scatter", Calls "calls",
    TrueComputation "true_computation", FalseComputation "false_computation",
    BranchComputations "branch_computations", CalledComputations "called_computations",
    // Of their own kind.
    SliceSizes "slice_sizes", Epsilon "epsilon", CustomCallTarget "custom_call_target", InfeedConfig "infeed_config",
    OutfeedConfig "outfeed_config", AsyncExecutionThread "async_execution_thread",
    ResultAccuracy "result_accuracy", ReplicaGroups "replica_groups", SourceTargetPairs "source_target_pairs",
    Window "window", DimLabels "dim_labels", ConvolutionKind "convolution_kind",
    OperandPrecision "operand_precision", Algorithm "algorithm", SparsityConfig "sparsity_config",
    FftType "fft_type", TransposeA "transpose_a", Direction "direction", Type "type", Order "order",
    Slice "slice",
    Padding "padding", Kind "kind", OutputToOperandAliasing "output_to_operand_aliasing",
    OutfeedShape "outfeed_shape", Distribution "distribution",
    OperandLayoutConstraints "operand_layout_constraints", PaddingType "padding_type", Literal "literal",
    Schedule "schedule", ApiVersion "api_version", Mode "mode", Domain "domain",
}

static BY_NAME: LazyLock<FxHashMap<&'static [u8], Attr>> =
    LazyLock::new(|| Attr::ALL.iter().map(|&a| (a.name().as_bytes(), a)).collect());

static OPCODES: LazyLock<FxHashMap<&'static [u8], Opcode>> =
    LazyLock::new(|| Opcode::ALL.iter().map(|&o| (o.name().as_bytes(), o)).collect());

/// The operation of that name; by hashing, since there are many and each instruction asks.
pub(super) fn opcode_by_name(name: &[u8]) -> Option<Opcode> {
    OPCODES.get(name).copied()
}

impl Attr {
    /// The attribute of that name.
    pub(super) fn from_name(name: &[u8]) -> Option<Attr> {
        BY_NAME.get(name).copied()
    }
}

/// A set of attributes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct AttrSet(u128);

impl AttrSet {
    pub(super) const fn of(attrs: &[Attr]) -> AttrSet {
        let mut bits = 0;
        let mut i = 0;
        while i < attrs.len() {
            bits |= 1 << attrs[i] as u32;
            i += 1;
        }
        AttrSet(bits)
    }
    pub(super) const fn has(self, attr: Attr) -> bool {
        self.0 & 1 << attr as u32 != 0
    }
    pub(super) const fn and(self, other: AttrSet) -> AttrSet {
        AttrSet(self.0 | other.0)
    }
    pub(super) const fn without(self, other: AttrSet) -> AttrSet {
        AttrSet(self.0 & !other.0)
    }
    pub(super) fn add(&mut self, attr: Attr) {
        self.0 |= 1 << attr as u32;
    }
    pub(super) fn iter(self) -> impl Iterator<Item = Attr> + Clone {
        Attr::ALL.iter().copied().filter(move |&a| self.has(a))
    }
}

/// What every instruction may have.
pub(super) const COMMON: AttrSet = {
    use Attr::*;
    AttrSet::of(&[
        Sharding,
        FrontendAttributes,
        Statistics,
        ParameterReplication,
        ControlPredecessors,
        Origin,
        Metadata,
        BackendConfig,
    ])
};

/// The attributes of `opcode` beyond the common ones: those it needs, and those it may have.
pub(super) fn attributes_of(opcode: Opcode) -> (AttrSet, AttrSet) {
    use Attr::*;
    use Opcode as O;
    const fn sets(required: &[Attr], optional: &[Attr]) -> (AttrSet, AttrSet) {
        (AttrSet::of(required), AttrSet::of(optional))
    }
    const DOT: &[Attr] =
        &[LhsContractingDims, RhsContractingDims, LhsBatchDims, RhsBatchDims, OperandPrecision, Algorithm];
    const NONE: (AttrSet, AttrSet) = sets(&[], &[]);
    const DIMENSIONS: (AttrSet, AttrSet) = sets(&[Dimensions], &[]);
    match opcode {
        O::Iota => sets(&[IotaDimension], &[]),
        O::TopK => sets(&[K], &[Largest, IsStable]),
        O::Acos
        | O::Acosh
        | O::Asin
        | O::Asinh
        | O::Atanh
        | O::Cbrt
        | O::Cosine
        | O::Cosh
        | O::Erf
        | O::Exponential
        | O::ExponentialMinusOne
        | O::Log
        | O::LogPlusOne
        | O::Logistic
        | O::Rsqrt
        | O::Sine
        | O::Sinh
        | O::Sqrt
        | O::Tan
        | O::Tanh => sets(&[], &[ResultAccuracy]),
        O::AllGather | O::AllGatherStart => {
            sets(&[Dimensions], &[ReplicaGroups, ChannelId, ConstrainLayout, UseGlobalDeviceIds])
        }
        O::AllReduce | O::AllReduceStart => {
            sets(&[ToApply], &[ReplicaGroups, ChannelId, ConstrainLayout, UseGlobalDeviceIds, Mode])
        }
        O::ReduceScatter => {
            sets(&[ToApply, Dimensions], &[ReplicaGroups, ChannelId, ConstrainLayout, UseGlobalDeviceIds, Mode])
        }
        O::CollectiveReduce => {
            sets(&[ToApply], &[ReplicaGroups, ChannelId, ConstrainLayout, UseGlobalDeviceIds, HasDynamicRoot])
        }
        O::AllToAll => sets(&[], &[ReplicaGroups, ChannelId, ConstrainLayout, Dimensions]),
        O::RaggedAllToAll => sets(&[], &[ReplicaGroups, ChannelId, Dimensions]),
        O::CollectiveBroadcast => sets(&[], &[ReplicaGroups, ChannelId, HasDynamicRoot]),
        O::CollectivePermute | O::CollectivePermuteStart => sets(&[SourceTargetPairs], &[ChannelId, SliceSizes]),
        O::AsyncStart => sets(&[Calls], &[AsyncExecutionThread, OutputToOperandAliasing]),
        O::AsyncUpdate => sets(&[], &[Calls, AsyncExecutionThread, OutputToOperandAliasing]),
        O::AsyncDone => sets(&[], &[Calls, AsyncExecutionThread]),
        O::CopyStart => sets(&[], &[CrossProgramPrefetchIndex]),
        O::Reshape => sets(&[], &[InferredDimension]),
        O::Sort => sets(&[Dimensions, ToApply], &[IsStable]),
        O::While => sets(&[Condition, Body], &[]),
        O::Recv | O::RecvDone | O::Send | O::SendDone => sets(&[], &[ChannelId, IsHostTransfer]),
        O::GetTupleElement => sets(&[Index], &[]),
        O::Call => sets(&[ToApply], &[IsComposite]),
        O::ReduceWindow => sets(&[ToApply], &[Window]),
        O::Convolution => sets(
            &[DimLabels],
            &[Window, FeatureGroupCount, BatchGroupCount, ConvolutionKind, OperandPrecision, Algorithm, SparsityConfig],
        ),
        O::Fft => sets(&[FftType, FftLength], &[]),
        O::TriangularSolve => sets(&[], &[LeftSide, Lower, UnitDiagonal, TransposeA]),
        O::Compare => sets(&[Direction], &[Type, Order]),
        O::Cholesky => sets(&[], &[Lower]),
        // Needed unless the operand is a scalar, which is known only with the operand.
        O::Broadcast => sets(&[], &[Dimensions]),
        O::Concatenate | O::Reverse | O::Transpose | O::GetDimensionSize | O::SetDimensionSize => DIMENSIONS,
        O::Map => sets(&[ToApply], &[Dimensions]),
        O::Scan => sets(&[ToApply, Dimensions, NumCarries], &[IsReverse, IsAssociative]),
        O::Reduce => sets(&[ToApply, Dimensions], &[]),
        O::SelectAndScatter => sets(&[Select, Scatter], &[Window]),
        O::Slice => sets(&[Slice], &[]),
        O::DynamicSlice => sets(&[DynamicSliceSizes], &[]),
        O::BatchNormTraining | O::BatchNormInference | O::BatchNormGrad => sets(&[Epsilon, FeatureIndex], &[]),
        O::Pad => sets(&[Padding], &[]),
        O::Fusion => sets(&[Calls, Kind], &[OutputToOperandAliasing]),
        O::Infeed => sets(&[], &[InfeedConfig]),
        O::Outfeed => sets(&[], &[OutfeedConfig, OutfeedShape]),
        O::Rng => sets(&[Distribution], &[]),
        O::RngGetAndUpdateState => sets(&[Delta], &[]),
        O::RngBitGenerator => sets(&[Algorithm], &[]),
        O::ReducePrecision => sets(&[ExponentBits, MantissaBits], &[]),
        // Which of the two forms is needed depends on the first operand.
        O::Conditional => sets(&[], &[TrueComputation, FalseComputation, BranchComputations]),
        O::CustomCall => sets(
            &[CustomCallTarget],
            &[
                Window,
                DimLabels,
                FeatureGroupCount,
                BatchGroupCount,
                OperandLayoutConstraints,
                HasSideEffect,
                ToApply,
                CalledComputations,
                OutputToOperandAliasing,
                PaddingType,
                Literal,
                OperandPrecision,
                Schedule,
                ApiVersion,
            ],
        ),
        O::Dot | O::ScaledDot => (AttrSet::default(), AttrSet::of(DOT)),
        O::RaggedDot => (
            AttrSet::default(),
            AttrSet::of(&[LhsRaggedDims, RhsGroupDims]).and(AttrSet::of(DOT).without(AttrSet::of(&[Algorithm]))),
        ),
        O::Gather => sets(
            &[OffsetDims, CollapsedSliceDims, StartIndexMap, IndexVectorDim, SliceSizes],
            &[IndicesAreSorted, OperandBatchingDims, StartIndicesBatchingDims],
        ),
        O::Scatter => sets(
            &[UpdateWindowDims, InsertedWindowDims, ScatterDimsToOperandDims, IndexVectorDim, ToApply],
            &[IndicesAreSorted, UniqueIndices, InputBatchingDims, ScatterIndicesBatchingDims],
        ),
        O::Domain => sets(&[Domain], &[]),
        _ => NONE,
    }
}

/// The attributes of the instruction that is being read.
#[derive(Default)]
pub(super) struct Values {
    pub(super) seen: AttrSet,
    /// Where each stands.
    pub(super) places: SmallVec<[(Attr, Span); 8]>,
    pub(super) common: Common,
    pub(super) replication: Option<Box<[bool]>>,
    pub(super) ints: SmallVec<[(Attr, i64); 4]>,
    pub(super) true_ones: AttrSet,
    pub(super) lists: SmallVec<[(Attr, DimVec); 4]>,
    pub(super) computations: SmallVec<[(Attr, ComputationId); 2]>,
    pub(super) strings: SmallVec<[(Attr, Vec<u8>); 1]>,
    pub(super) precision: SmallVec<[Precision; 2]>,
    pub(super) algorithm: Option<DotAlgorithm>,
    pub(super) accuracy: ResultAccuracy,
    pub(super) direction: Option<ComparisonDirection>,
    pub(super) comparison_type: Option<ComparisonType>,
    pub(super) fusion_kind: Option<FusionKind>,
    pub(super) slice: Vec<SliceDim>,
    pub(super) padding: Vec<PaddingDim>,
    pub(super) aliasing: Vec<OutputOperandAlias>,
    pub(super) replica_groups: Option<Box<ReplicaGroups>>,
    pub(super) rare: Option<Box<RareValues>>,
}

/// Attributes that few instructions have.
#[derive(Default)]
pub(super) struct RareValues {
    pub(super) window: Option<Window>,
    pub(super) conv_dims: Option<ConvDimensionNumbers>,
    pub(super) pairs: Vec<(i64, i64)>,
    pub(super) list_lists: Vec<Vec<i64>>,
    pub(super) branches: Vec<ComputationId>,
    pub(super) epsilon: f32,
    pub(super) convolution_kind: Option<ConvolutionKind>,
    pub(super) rng_algorithm: Option<RngAlgorithm>,
    pub(super) lhs_sparsity: Option<Sparsity>,
    pub(super) rhs_sparsity: Option<Sparsity>,
    pub(super) fft_type: Option<FftType>,
    pub(super) transpose_a: Option<TransposeA>,
    pub(super) outfeed_shape: Option<Shape>,
    pub(super) distribution: Option<RngDistribution>,
    pub(super) operand_layouts: Option<Vec<Shape>>,
    pub(super) padding_type: Option<PaddingType>,
    pub(super) literal: Option<Arc<Literal>>,
    pub(super) schedule: Option<CustomCallSchedule>,
    pub(super) api_version: Option<CustomCallApiVersion>,
    pub(super) mode: Option<CollectiveGroupMode>,
    pub(super) domain: Option<Box<Domain>>,
}

impl Values {
    /// Sets everything back to the defaults, field by field: what is given back is used by the next instruction.
    pub(super) fn clear(&mut self) {
        if self.seen == AttrSet::default() {
            return;
        }
        self.seen = AttrSet::default();
        self.true_ones = AttrSet::default();
        self.places.clear();
        self.common = Common::default();
        self.ints.clear();
        self.lists.clear();
        self.computations.clear();
        self.strings.clear();
        self.precision.clear();
        self.slice.clear();
        self.padding.clear();
        self.aliasing.clear();
        self.replication = None;
        self.algorithm = None;
        self.accuracy = ResultAccuracy::Default;
        self.direction = None;
        self.comparison_type = None;
        self.fusion_kind = None;
        self.replica_groups = None;
        self.rare = None;
    }
    pub(super) fn rare(&mut self) -> &mut RareValues {
        self.rare.get_or_insert_default()
    }
    pub(super) fn place(&self, attr: Attr) -> Option<Span> {
        self.places.iter().find(|p| p.0 == attr).map(|p| p.1)
    }
    pub(super) fn int(&self, attr: Attr) -> Option<i64> {
        self.ints.iter().find(|p| p.0 == attr).map(|p| p.1)
    }
    pub(super) fn is_true(&self, attr: Attr) -> bool {
        self.true_ones.has(attr)
    }
    pub(super) fn bool(&self, attr: Attr) -> Option<bool> {
        self.seen.has(attr).then(|| self.is_true(attr))
    }
    /// The list, empty if it was not given.
    pub(super) fn list(&mut self, attr: Attr) -> DimVec {
        let found = self.lists.iter_mut().find(|p| p.0 == attr);
        found.map(|p| std::mem::take(&mut p.1)).unwrap_or_default()
    }
    pub(super) fn computation(&self, attr: Attr) -> Option<ComputationId> {
        self.computations.iter().find(|p| p.0 == attr).map(|p| p.1)
    }
    pub(super) fn string(&mut self, attr: Attr) -> Option<Vec<u8>> {
        let found = self.strings.iter_mut().find(|p| p.0 == attr);
        found.map(|p| std::mem::take(&mut p.1))
    }
    pub(super) fn precision_config(&mut self) -> PrecisionConfig {
        PrecisionConfig {
            operand_precision: std::mem::take(&mut self.precision),
            algorithm: self.algorithm.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attribute_has_its_bit() {
        assert!(Attr::ALL.len() <= 128);
        for &a in Attr::ALL {
            assert_eq!(Attr::from_name(a.name().as_bytes()), Some(a));
            let taken =
                COMMON.has(a) || Opcode::ALL.iter().any(|&o| attributes_of(o).0.has(a) || attributes_of(o).1.has(a));
            assert!(taken, "no operation takes {}", a.name());
        }
    }
}

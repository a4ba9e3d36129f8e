//! The attributes of operations that have several of them, each kind a struct.

use crate::attributes::*;
use crate::device_list::ReplicaGroups;
use crate::entity::ComputationId;
use crate::layout::DimVec;
use crate::literal::Literal;
use crate::shape::Shape;
use crate::sharding::Sharding;
use std::sync::Arc;

/// Attributes of gather.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Gather {
    pub dims: GatherDimensionNumbers,
    pub slice_sizes: DimVec,
    pub indices_are_sorted: bool,
}

/// Attributes of scatter.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Scatter {
    pub dims: ScatterDimensionNumbers,
    pub indices_are_sorted: bool,
    pub unique_indices: bool,
    pub to_apply: ComputationId,
}

/// Attributes of dot and scaled-dot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Dot {
    pub dims: DotDimensionNumbers,
    pub precision: PrecisionConfig,
}

/// Attributes of ragged-dot.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct RaggedDot {
    pub dims: DotDimensionNumbers,
    pub lhs_ragged: DimVec,
    pub rhs_group: DimVec,
    pub precision: PrecisionConfig,
}

/// Attributes of convolution.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Convolution {
    pub window: Window,
    pub dims: ConvDimensionNumbers,
    pub feature_group_count: i64,
    pub batch_group_count: i64,
    pub precision: PrecisionConfig,
    pub kind: ConvolutionKind,
    pub lhs_sparsity: Option<Sparsity>,
    pub rhs_sparsity: Option<Sparsity>,
}

/// Attributes of scan.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Scan {
    pub dimension: i64,
    pub num_carries: i64,
    pub is_reverse: bool,
    pub is_associative: Option<bool>,
    pub to_apply: ComputationId,
}

/// Attributes of domain: the shardings on its two sides.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Domain {
    pub entry: Sharding,
    pub exit: Sharding,
}

/// Attributes of fusion.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Fusion {
    pub kind: FusionKind,
    pub calls: ComputationId,
    pub output_operand_aliasing: Vec<OutputOperandAlias>,
}

/// Attributes of custom-call.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct CustomCall {
    pub target: Box<str>,
    pub window: Option<Window>,
    pub conv_dims: Option<ConvDimensionNumbers>,
    pub feature_group_count: i64,
    pub batch_group_count: i64,
    /// `operand_layout_constraints={…}`; present only with `constrain_layout` in protos.
    pub operand_layouts: Option<Vec<Shape>>,
    pub has_side_effect: bool,
    pub called_computations: Vec<ComputationId>,
    pub output_operand_aliasing: Vec<OutputOperandAlias>,
    pub padding_type: PaddingType,
    pub literal: Option<Arc<Literal>>,
    pub precision: PrecisionConfig,
    pub schedule: CustomCallSchedule,
    pub api_version: CustomCallApiVersion,
}

impl CustomCall {
    /// A call of `target` with every attribute at its default.
    pub fn new(target: impl Into<Box<str>>) -> CustomCall {
        CustomCall {
            target: target.into(),
            window: None,
            conv_dims: None,
            feature_group_count: 1,
            batch_group_count: 1,
            operand_layouts: None,
            has_side_effect: false,
            called_computations: Vec::new(),
            output_operand_aliasing: Vec::new(),
            padding_type: PaddingType::Invalid,
            literal: None,
            precision: PrecisionConfig::default(),
            schedule: CustomCallSchedule::None,
            api_version: CustomCallApiVersion::Original,
        }
    }
}

/// Attributes of async-start. Its update and done find them by their operand.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct AsyncStart {
    pub calls: ComputationId,
    /// `async_execution_thread`; the main thread when absent.
    pub execution_thread: Option<Box<str>>,
    pub output_operand_aliasing: Vec<OutputOperandAlias>,
}

/// What all collectives have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Collective {
    pub channel_id: Option<i64>,
    pub replica_groups: ReplicaGroups,
    pub constrain_layout: bool,
    pub use_global_device_ids: bool,
    /// `mode=…`, where it is written out.
    pub mode: Option<CollectiveGroupMode>,
}

/// Attributes of all-reduce and all-reduce-start.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct AllReduce {
    pub collective: Collective,
    pub to_apply: ComputationId,
}

/// Attributes of all-gather and all-gather-start.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct AllGather {
    pub collective: Collective,
    pub dimension: i64,
}

/// Attributes of reduce-scatter.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct ReduceScatter {
    pub collective: Collective,
    pub dimension: i64,
    pub to_apply: ComputationId,
}

/// Attributes of collective-reduce.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct CollectiveReduce {
    pub collective: Collective,
    pub has_dynamic_root: bool,
    pub to_apply: ComputationId,
}

/// Attributes of collective-permute and collective-permute-start.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct CollectivePermute {
    pub channel_id: Option<i64>,
    pub source_target_pairs: Vec<(i64, i64)>,
    /// For the form that copies slices in place.
    pub slice_sizes: Vec<Vec<i64>>,
}

/// Attributes of send, recv and their dones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Transfer {
    pub channel_id: Option<i64>,
    pub is_host_transfer: bool,
}

//! An instruction's attributes. Name, opcode, shape, metadata, literal and ids (fields 1, 2, 3, 7, 8 and 35 to 38) are
//! read and written field by field beside this message: they are what every instruction has, and most have no more.

use super::*;

/// The rest of an `HloInstructionProto`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct InstructionAttributes {
    #[prost(int64, tag = "9")]
    pub parameter_number: i64,
    #[prost(string, tag = "11")]
    pub fusion_kind: String,
    #[prost(int64, tag = "13")]
    pub tuple_index: i64,
    #[prost(int64, repeated, tag = "14")]
    pub dimensions: Vec<i64>,
    #[prost(message, optional, boxed, tag = "15")]
    pub window: Option<Box<Window>>,
    #[prost(message, optional, boxed, tag = "16")]
    pub convolution_dimension_numbers: Option<Box<ConvolutionDimensionNumbers>>,
    #[prost(message, repeated, tag = "17")]
    pub slice_dimensions: Vec<SliceDimensions>,
    #[prost(int32, tag = "18")]
    pub exponent_bits: i32,
    #[prost(int32, tag = "19")]
    pub mantissa_bits: i32,
    #[prost(int64, repeated, tag = "20")]
    pub dynamic_slice_sizes: Vec<i64>,
    #[prost(message, optional, boxed, tag = "21")]
    pub padding_config: Option<Box<PaddingConfig>>,
    #[prost(bytes = "vec", tag = "22")]
    pub outfeed_config: Vec<u8>,
    #[prost(int32, tag = "23")]
    pub distribution: i32,
    // Optional so that -0, which equals the default, is written too.
    #[prost(float, optional, tag = "24")]
    pub epsilon: Option<f32>,
    #[prost(int64, tag = "25")]
    pub feature_index: i64,
    /// XLA's dumps leave out a channel 0, which then reads as none; the optional field keeps it.
    #[prost(int64, optional, tag = "26")]
    pub channel_id: Option<i64>,
    #[prost(bytes = "vec", tag = "27")]
    pub infeed_config: Vec<u8>,
    #[prost(string, tag = "28")]
    pub custom_call_target: String,
    #[prost(message, optional, boxed, tag = "29")]
    pub outfeed_shape: Option<Box<ShapeProto>>,
    #[prost(message, optional, boxed, tag = "30")]
    pub dot_dimension_numbers: Option<Box<DotDimensionNumbers>>,
    #[prost(int32, tag = "31")]
    pub fft_type: i32,
    #[prost(int64, repeated, tag = "32")]
    pub fft_length: Vec<i64>,
    #[prost(message, optional, boxed, tag = "33")]
    pub gather_dimension_numbers: Option<Box<GatherDimensionNumbers>>,
    #[prost(int64, repeated, tag = "34")]
    pub gather_slice_sizes: Vec<i64>,
    #[prost(message, optional, boxed, tag = "40")]
    pub sharding: Option<Box<OpSharding>>,
    #[prost(bytes = "vec", tag = "43")]
    pub backend_config: Vec<u8>,
    #[prost(int64, tag = "45")]
    pub all_reduce_id: i64,
    #[prost(bool, tag = "47")]
    pub is_host_transfer: bool,
    #[prost(message, optional, boxed, tag = "48")]
    pub scatter_dimension_numbers: Option<Box<ScatterDimensionNumbers>>,
    #[prost(message, repeated, tag = "49")]
    pub replica_groups: Vec<ReplicaGroup>,
    #[prost(int64, tag = "50")]
    pub feature_group_count: i64,
    #[prost(message, optional, boxed, tag = "51")]
    pub precision_config: Option<Box<PrecisionConfig>>,
    #[prost(message, repeated, tag = "52")]
    pub source_target_pairs: Vec<SourceTarget>,
    #[prost(message, optional, boxed, tag = "54")]
    pub domain_entry_sharding: Option<Box<OpSharding>>,
    #[prost(message, optional, boxed, tag = "55")]
    pub domain_exit_sharding: Option<Box<OpSharding>>,
    #[prost(bool, tag = "56")]
    pub constrain_layout: bool,
    #[prost(message, repeated, tag = "57")]
    pub operand_shapes_with_layout: Vec<ShapeProto>,
    #[prost(int64, tag = "58")]
    pub batch_group_count: i64,
    #[prost(message, optional, boxed, tag = "59")]
    pub triangular_solve_options: Option<Box<TriangularSolveOptions>>,
    #[prost(bool, tag = "60")]
    pub is_stable: bool,
    #[prost(message, optional, boxed, tag = "61")]
    pub parameter_replication: Option<Box<ParameterReplication>>,
    #[prost(message, optional, boxed, tag = "62")]
    pub cholesky_options: Option<Box<CholeskyOptions>>,
    #[prost(string, tag = "63")]
    pub comparison_direction: String,
    #[prost(bool, tag = "65")]
    pub custom_call_has_side_effect: bool,
    #[prost(int64, tag = "66")]
    pub delta: i64,
    #[prost(bool, tag = "67")]
    pub indices_are_sorted: bool,
    #[prost(message, optional, boxed, tag = "68")]
    pub frontend_attributes: Option<Box<FrontendAttributes>>,
    #[prost(bool, tag = "69")]
    pub unique_indices: bool,
    #[prost(int32, tag = "70")]
    pub rng_algorithm: i32,
    #[prost(bool, tag = "71")]
    pub use_global_device_ids: bool,
    #[prost(string, tag = "72")]
    pub comparison_type: String,
    #[prost(bool, tag = "73")]
    pub is_cross_program_prefetch: bool,
    #[prost(message, repeated, tag = "74")]
    pub output_operand_aliasing: Vec<OutputOperandAliasing>,
    #[prost(int32, tag = "75")]
    pub padding_type: i32,
    #[prost(int32, tag = "76")]
    pub custom_call_schedule: i32,
    #[prost(int32, tag = "77")]
    pub custom_call_api_version: i32,
    #[prost(string, tag = "79")]
    pub async_execution_thread: String,
    #[prost(int32, optional, tag = "80")]
    pub cross_program_prefetch_index: Option<i32>,
    #[prost(int64, tag = "81")]
    pub k: i64,
    #[prost(message, optional, boxed, tag = "82")]
    pub statistics_viz: Option<Box<StatisticsViz>>,
    #[prost(bool, tag = "85")]
    pub largest: bool,
    #[prost(message, optional, boxed, tag = "87")]
    pub collective_device_list: Option<Box<CollectiveDeviceListProto>>,
    #[prost(message, optional, boxed, tag = "88")]
    pub original_value: Option<Box<OriginalValueProto>>,
    #[prost(bool, tag = "89")]
    pub is_composite: bool,
    #[prost(message, optional, boxed, tag = "90")]
    pub ragged_dot_dimension_numbers: Option<Box<RaggedDotDimensionNumbers>>,
    #[prost(message, optional, boxed, tag = "91")]
    pub result_accuracy: Option<Box<ResultAccuracy>>,
    #[prost(message, optional, boxed, tag = "92")]
    pub iota_collective_device_list: Option<Box<IotaReplicaGroupListProto>>,
    #[prost(message, optional, boxed, tag = "93")]
    pub mesh_axes_replica_group_list: Option<Box<MeshAxesReplicaGroupListProto>>,
    #[prost(bool, tag = "94")]
    pub is_reverse: bool,
    #[prost(int64, tag = "95")]
    pub num_carries: i64,
    #[prost(int32, tag = "96")]
    pub is_associative: i32,
    #[prost(int32, tag = "97")]
    pub conv_kind: i32,
    #[prost(message, optional, boxed, tag = "98")]
    pub sparsity_config: Option<Box<SparsityConfig>>,
    #[prost(message, optional, boxed, tag = "99")]
    pub backend_config_payload: Option<Box<Payload>>,
    #[prost(bool, tag = "100")]
    pub has_dynamic_root: bool,
}

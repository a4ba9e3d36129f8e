//! Shardings, meshes and device groups.

/// The numbers of `OpSharding.Type`.
pub(in crate::proto) mod sharding_type {
    pub(in crate::proto) const REPLICATED: i32 = 0;
    pub(in crate::proto) const MAXIMAL: i32 = 1;
    pub(in crate::proto) const TUPLE: i32 = 2;
    pub(in crate::proto) const OTHER: i32 = 3;
    pub(in crate::proto) const MANUAL: i32 = 4;
    pub(in crate::proto) const UNKNOWN: i32 = 5;
    pub(in crate::proto) const UNREDUCED: i32 = 6;
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct OpSharding {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(int64, repeated, tag = "3")]
    pub tile_assignment_dimensions: Vec<i64>,
    #[prost(int64, repeated, tag = "4")]
    pub tile_assignment_devices: Vec<i64>,
    #[prost(message, repeated, tag = "5")]
    pub tuple_shardings: Vec<OpSharding>,
    #[prost(bool, tag = "6")]
    pub replicate_on_last_tile_dim: bool,
    /// `OpMetadata`, encoded.
    #[prost(bytes = "vec", repeated, tag = "7")]
    pub metadata: Vec<Vec<u8>>,
    #[prost(int32, repeated, tag = "8")]
    pub last_tile_dims: Vec<i32>,
    #[prost(int64, repeated, tag = "9")]
    pub iota_reshape_dims: Vec<i64>,
    #[prost(int64, repeated, tag = "10")]
    pub iota_transpose_perm: Vec<i64>,
    #[prost(bool, tag = "11")]
    pub is_shard_group: bool,
    #[prost(int64, tag = "12")]
    pub shard_group_id: i64,
    #[prost(int32, tag = "13")]
    pub shard_group_type: i32,
    #[prost(message, optional, boxed, tag = "14")]
    pub named_sharding: Option<Box<NamedShardingProto>>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct NamedShardingProto {
    #[prost(message, optional, tag = "2")]
    pub mesh: Option<MeshProto>,
    #[prost(message, repeated, tag = "3")]
    pub dim_shardings: Vec<DimensionShardingProto>,
    #[prost(message, repeated, tag = "4")]
    pub replicated_axes: Vec<AxisRefProto>,
    #[prost(message, repeated, tag = "5")]
    pub unreduced_axes: Vec<AxisRefProto>,
    /// `OpMetadata`, encoded.
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub metadata: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "7")]
    pub manual_axes: Vec<AxisRefProto>,
    #[prost(int32, tag = "8")]
    pub reduction_op: i32,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct DimensionShardingProto {
    #[prost(message, repeated, tag = "1")]
    pub axes: Vec<AxisRefProto>,
    #[prost(bool, tag = "2")]
    pub is_closed: bool,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct MeshProto {
    #[prost(message, repeated, tag = "1")]
    pub axes: Vec<MeshAxisProto>,
    #[prost(int64, repeated, tag = "2")]
    pub device_ids: Vec<i64>,
    #[prost(message, optional, tag = "3")]
    pub iota_transform: Option<IotaTransformProto>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct MeshAxisProto {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int64, tag = "2")]
    pub size: i64,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct IotaTransformProto {
    #[prost(int64, repeated, tag = "1")]
    pub reshape_dims: Vec<i64>,
    #[prost(int64, repeated, tag = "2")]
    pub transpose_perm: Vec<i64>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct AxisRefProto {
    #[prost(int64, tag = "1")]
    pub mesh_axis_index: i64,
    #[prost(message, optional, tag = "2")]
    pub sub_axis_info: Option<SubAxisInfoProto>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct SubAxisInfoProto {
    #[prost(int64, tag = "1")]
    pub pre_size: i64,
    #[prost(int64, tag = "2")]
    pub size: i64,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct ReplicaGroup {
    #[prost(int64, repeated, tag = "1")]
    pub replica_ids: Vec<i64>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct CollectiveDeviceListProto {
    #[prost(message, repeated, tag = "1")]
    pub replica_groups: Vec<ReplicaGroup>,
    /// Where dumps of 2024 and 2025 put what is field 92 of an instruction today.
    #[prost(message, optional, tag = "2")]
    pub iota_replica_group_list: Option<IotaReplicaGroupListProto>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct IotaReplicaGroupListProto {
    #[prost(int64, tag = "1")]
    pub num_replica_groups: i64,
    #[prost(int64, tag = "2")]
    pub num_devices_per_group: i64,
    #[prost(int64, repeated, tag = "3")]
    pub iota_reshape_dims: Vec<i64>,
    #[prost(int64, repeated, tag = "4")]
    pub iota_transpose_perm: Vec<i64>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct MeshAxesReplicaGroupListProto {
    #[prost(message, optional, tag = "1")]
    pub mesh: Option<MeshProto>,
    #[prost(message, repeated, tag = "2")]
    pub axes: Vec<AxisRefProto>,
}

//! A module's own fields.

use super::*;
use std::collections::BTreeMap;

/// An `HloModuleProto` without its computations.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct ModuleHeader {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub entry_computation_name: String,
    #[prost(message, optional, tag = "4")]
    pub host_program_shape: Option<ProgramShapeProto>,
    #[prost(int64, tag = "6")]
    pub entry_computation_id: i64,
    #[prost(message, optional, tag = "7")]
    pub schedule: Option<HloScheduleProto>,
    #[prost(message, optional, tag = "8")]
    pub input_output_alias: Option<HloInputOutputAliasProto>,
    #[prost(message, optional, tag = "17")]
    pub stack_frame_index: Option<StackFrameIndexProto>,
    #[prost(message, optional, tag = "18")]
    pub buffer_donor: Option<HloBufferDonorProto>,
    #[prost(message, optional, tag = "19")]
    pub frontend_attributes: Option<FrontendAttributes>,
    #[prost(message, optional, tag = "20")]
    pub original_value_recovery_table: Option<OriginalValueRecoveryTableProto>,
    #[prost(bytes = "vec", repeated, tag = "22")]
    pub payloads: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct HloScheduleProto {
    #[prost(btree_map = "int64, message", tag = "1")]
    pub sequences: BTreeMap<i64, InstructionSequence>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct InstructionSequence {
    #[prost(int64, repeated, tag = "1")]
    pub instruction_ids: Vec<i64>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct HloInputOutputAliasProto {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<AliasEntryProto>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct AliasEntryProto {
    #[prost(int64, repeated, tag = "1")]
    pub output_shape_index: Vec<i64>,
    #[prost(int64, tag = "2")]
    pub parameter_number: i64,
    #[prost(int64, repeated, tag = "3")]
    pub parameter_shape_index: Vec<i64>,
    #[prost(int32, tag = "4")]
    pub kind: i32,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct HloBufferDonorProto {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<BufferDonorEntryProto>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct BufferDonorEntryProto {
    #[prost(int64, tag = "1")]
    pub parameter_number: i64,
    #[prost(int64, repeated, tag = "2")]
    pub parameter_shape_index: Vec<i64>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct StackFrameIndexProto {
    #[prost(string, repeated, tag = "1")]
    pub file_names: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub function_names: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub file_locations: Vec<FileLocationProto>,
    #[prost(message, repeated, tag = "4")]
    pub stack_frames: Vec<StackFrameProto>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct FileLocationProto {
    #[prost(int32, tag = "1")]
    pub file_name_id: i32,
    #[prost(int32, tag = "2")]
    pub function_name_id: i32,
    #[prost(int32, tag = "3")]
    pub line: i32,
    #[prost(int32, tag = "4")]
    pub column: i32,
    #[prost(int32, tag = "5")]
    pub end_line: i32,
    #[prost(int32, tag = "6")]
    pub end_column: i32,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct StackFrameProto {
    #[prost(int32, tag = "1")]
    pub file_location_id: i32,
    #[prost(int32, tag = "2")]
    pub parent_frame_id: i32,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct OriginalValueRecoveryTableProto {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<OriginalValueRecoveryEntry>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(in crate::proto) struct OriginalValueRecoveryEntry {
    #[prost(message, optional, tag = "1")]
    pub old_original_array: Option<OriginalArrayProto>,
    #[prost(message, optional, tag = "2")]
    pub new_original_array: Option<OriginalArrayProto>,
    /// An `HloModuleProto`, encoded.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub recovery_module: Option<Vec<u8>>,
}

//! Codes of the proto reader.

super::codes! {
    201 NOT_A_PROTO "not an HloModuleProto or HloProto",
        "The bytes cannot be decoded as protobuf, or hold neither an HloModuleProto nor an HloProto.",
        "hloom verify photo.pb";
}

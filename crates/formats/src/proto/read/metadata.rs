//! `OpMetadata`, field by field: almost every instruction has one, with strings that repeat.

use super::error::{Result, decode, error, wire};
use super::module::Reader;
use crate::proto::messages::Payload;
use crate::proto::unknown;
use crate::proto::wire::{Field, Fields, Value, read_integers};
use hloom_ir::diagnostic::codes::proto as codes;
use hloom_ir::metadata::{Metadata, RareMetadata};

pub(super) fn metadata(reader: &mut Reader<'_>, bytes: &[u8]) -> Result<Metadata> {
    let mut metadata = Metadata::default();
    let mut rare = RareMetadata::default();
    let mut unknown = Vec::new();
    let (mut profile_types, mut payload) = (Vec::new(), Vec::new());
    for field in Fields::new(bytes) {
        let field = field.map_err(wire("the metadata"))?;
        match field.number {
            1 => metadata.op_type = reader.intern(text(&field)?),
            2 => metadata.op_name = reader.intern(text(&field)?),
            3 => metadata.source_file = reader.intern(text(&field)?),
            4 => metadata.source_line = int32(&field)?,
            5 => read_integers(field.value, &mut profile_types).map_err(wire("profile_type of the metadata"))?,
            12 => rare.deduplicated_name = text(&field)?.into(),
            15 => metadata.stack_frame_id = int32(&field)?,
            16 => rare.scheduling_name = text(&field)?.into(),
            17 => metadata.source_end_line = int32(&field)?,
            18 => metadata.source_column = int32(&field)?,
            19 => metadata.source_end_column = int32(&field)?,
            20 => payload.extend_from_slice(field.value.bytes().unwrap_or_default()),
            _ => unknown::keep(&field, unknown::METADATA, &mut unknown),
        }
    }
    if !payload.is_empty() {
        let payload: Payload = decode(&payload, "metadata_payload")?;
        rare.payload = match (payload.value, payload.id) {
            (_, Some(id)) => Some(reader.payload(id)?),
            (value, None) => value.map(Into::into),
        };
    }
    rare.profile_types = profile_types.into_iter().map(|n| n as i32).collect();
    rare.unknown_fields = unknown.into();
    if rare != RareMetadata::default() {
        metadata.rare = Some(Box::new(rare));
    }
    Ok(metadata)
}

fn text<'a>(field: &Field<'a>) -> Result<&'a str> {
    match field.value.bytes().map(std::str::from_utf8) {
        Some(Ok(text)) => Ok(text),
        _ => error(&codes::DAMAGED, format!("field {} of the metadata is not text", field.number)),
    }
}

fn int32(field: &Field<'_>) -> Result<i32> {
    match field.value {
        Value::Varint(n) => Ok(n as i32),
        _ => error(&codes::DAMAGED, format!("field {} of the metadata is not a number", field.number)),
    }
}

//! What the proto reader says when something is wrong, and decoding that says it.

use crate::proto::wire::WireError;
use hloom_ir::diagnostic::codes::proto as codes;
use hloom_ir::diagnostic::{Code, Diagnostic};
use std::fmt::Display;

/// Reading stops at the first fault: what follows in a damaged proto is rarely what it seems.
pub(super) type Result<T> = std::result::Result<T, Diagnostic>;

pub(super) fn error<T>(code: &'static Code, message: impl Into<String>) -> Result<T> {
    Err(Diagnostic::error(code, message))
}

pub(super) fn missing<T>(field: &str) -> Result<T> {
    error(&codes::MISSING_FIELD, format!("the field {field} is missing"))
}

/// The enumeration's member with that number.
pub(super) fn member<T>(field: &str, number: i32, from: impl Fn(i32) -> Option<T>) -> Result<T> {
    match from(number) {
        Some(member) => Ok(member),
        None => error(&codes::BAD_VALUE, format!("{field} is {number}, which stands for nothing known")),
    }
}

/// Decodes a message; `what` names it.
pub(super) fn decode<M: prost::Message + Default>(bytes: &[u8], what: &str) -> Result<M> {
    M::decode(bytes).map_err(|e| {
        let reason = e.to_string();
        if reason.contains("recursion limit") {
            return Diagnostic::error(&codes::TOO_DEEP, format!("{what} nests too deeply"))
                .note("protobuf allows 100 messages inside one another");
        }
        Diagnostic::error(&codes::DAMAGED, format!("{what} cannot be decoded")).note(reason)
    })
}

/// Says of which message `error` is.
pub(super) fn wire(what: impl Display) -> impl Fn(WireError) -> Diagnostic {
    move |error| match error {
        WireError::Truncated => Diagnostic::error(&codes::DAMAGED, format!("{what} ends in the middle of a field")),
        WireError::Malformed => Diagnostic::error(&codes::DAMAGED, format!("{what} has a field that is not protobuf")),
        WireError::TooDeep => Diagnostic::error(&codes::TOO_DEEP, format!("{what} nests too deeply")),
    }
}

/// Puts the place before the message.
pub(super) fn locate(place: impl Display) -> impl FnOnce(Diagnostic) -> Diagnostic {
    move |mut diagnostic| {
        diagnostic.message = format!("{place}: {}", diagnostic.message);
        diagnostic
    }
}

//! MLIR text.

use crate::mlir::{FloatKind, Signedness, Type};

/// A type that is one word.
pub(crate) fn simple_type<'a>(text: &[u8]) -> Option<Type<'a>> {
    if let Some(kind) = FloatKind::from_text(text) {
        return Some(Type::Float(kind));
    }
    let (sign, digits) = match text {
        b"index" => return Some(Type::Index),
        b"none" => return Some(Type::None),
        [b'i', digits @ ..] => (Signedness::Signless, digits),
        [b's', b'i', digits @ ..] => (Signedness::Signed, digits),
        [b'u', b'i', digits @ ..] => (Signedness::Unsigned, digits),
        _ => return None,
    };
    let bits: u32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (bits < 1 << 24 && digits[0] != b'+').then_some(Type::Integer(bits, sign))
}

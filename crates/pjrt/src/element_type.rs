//! The numbers of the C API for element types.

use crate::status::Status;
use hloom_ir::ElementType::{self, *};

/// The type of values that are tokens.
pub const TOKEN: i32 = 23;

/// By number, from 1.
const TYPES: [Option<ElementType>; 33] = [
    Some(Pred),
    Some(S8),
    Some(S16),
    Some(S32),
    Some(S64),
    Some(U8),
    Some(U16),
    Some(U32),
    Some(U64),
    Some(F16),
    Some(F32),
    Some(F64),
    Some(Bf16),
    Some(C64),
    Some(C128),
    Some(F8e5m2),
    Some(F8e4m3fn),
    Some(F8e4m3b11fnuz),
    Some(F8e5m2fnuz),
    Some(F8e4m3fnuz),
    Some(S4),
    Some(U4),
    None,
    Some(S2),
    Some(U2),
    Some(F8e4m3),
    Some(F8e3m4),
    Some(F8e8m0fnu),
    Some(F4e2m1fn),
    Some(S1),
    Some(U1),
    Some(F6e2m3fn),
    Some(F6e3m2fn),
];

/// The type of a number.
pub fn from_number(number: i32) -> Result<ElementType, Status> {
    let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
    let found = index.and_then(|i| TYPES.get(i)).copied().flatten();
    found.ok_or_else(|| Status::invalid(format!("there are no arrays of type {number}")))
}

/// The number of a type.
pub fn number(element_type: ElementType) -> i32 {
    TYPES.iter().position(|&t| t == Some(element_type)).map_or(0, |i| i as i32 + 1)
}

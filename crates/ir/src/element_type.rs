//! The element types of arrays: XLA's `PrimitiveType` without tuple, token, opaque and buffer, which are shapes here.
//!
//! The discriminants are the numbers of `PrimitiveType` in XLA's protos, so that reading and writing protos is a cast
//! and a check.

use std::fmt;

/// The type of an array's elements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "each variant is the type of that name")]
pub enum ElementType {
    Pred = 1,
    S8 = 2,
    S16 = 3,
    S32 = 4,
    S64 = 5,
    U8 = 6,
    U16 = 7,
    U32 = 8,
    U64 = 9,
    F16 = 10,
    F32 = 11,
    F64 = 12,
    C64 = 15,
    Bf16 = 16,
    C128 = 18,
    F8e5m2 = 19,
    F8e4m3fn = 20,
    S4 = 21,
    U4 = 22,
    F8e4m3b11fnuz = 23,
    F8e5m2fnuz = 24,
    F8e4m3fnuz = 25,
    S2 = 26,
    U2 = 27,
    F8e4m3 = 28,
    F8e3m4 = 29,
    S1 = 30,
    U1 = 31,
    F4e2m1fn = 32,
    F8e8m0fnu = 33,
    F6e3m2fn = 35,
    F6e2m3fn = 36,
}

use ElementType::*;

impl ElementType {
    /// Every element type, in the order of their proto numbers.
    pub const ALL: [ElementType; 32] = [
        Pred,
        S8,
        S16,
        S32,
        S64,
        U8,
        U16,
        U32,
        U64,
        F16,
        F32,
        F64,
        C64,
        Bf16,
        C128,
        F8e5m2,
        F8e4m3fn,
        S4,
        U4,
        F8e4m3b11fnuz,
        F8e5m2fnuz,
        F8e4m3fnuz,
        S2,
        U2,
        F8e4m3,
        F8e3m4,
        S1,
        U1,
        F4e2m1fn,
        F8e8m0fnu,
        F6e3m2fn,
        F6e2m3fn,
    ];

    /// The type's name in HLO text.
    pub const fn name(self) -> &'static str {
        match self {
            Pred => "pred",
            S1 => "s1",
            S2 => "s2",
            S4 => "s4",
            S8 => "s8",
            S16 => "s16",
            S32 => "s32",
            S64 => "s64",
            U1 => "u1",
            U2 => "u2",
            U4 => "u4",
            U8 => "u8",
            U16 => "u16",
            U32 => "u32",
            U64 => "u64",
            F16 => "f16",
            Bf16 => "bf16",
            F32 => "f32",
            F64 => "f64",
            C64 => "c64",
            C128 => "c128",
            F8e5m2 => "f8e5m2",
            F8e4m3 => "f8e4m3",
            F8e4m3fn => "f8e4m3fn",
            F8e4m3b11fnuz => "f8e4m3b11fnuz",
            F8e3m4 => "f8e3m4",
            F8e5m2fnuz => "f8e5m2fnuz",
            F8e4m3fnuz => "f8e4m3fnuz",
            F8e8m0fnu => "f8e8m0fnu",
            F4e2m1fn => "f4e2m1fn",
            F6e3m2fn => "f6e3m2fn",
            F6e2m3fn => "f6e2m3fn",
        }
    }

    /// The type of that name in HLO text.
    pub fn from_name(name: &[u8]) -> Option<ElementType> {
        // Ordered by how often they occur: the reader asks this for every shape.
        Some(match name {
            b"f32" => F32,
            b"bf16" => Bf16,
            b"s32" => S32,
            b"pred" => Pred,
            b"u32" => U32,
            b"f64" => F64,
            b"s64" => S64,
            b"f16" => F16,
            b"s8" => S8,
            b"u8" => U8,
            b"s16" => S16,
            b"u16" => U16,
            b"u64" => U64,
            b"c64" => C64,
            b"c128" => C128,
            b"s1" => S1,
            b"s2" => S2,
            b"s4" => S4,
            b"u1" => U1,
            b"u2" => U2,
            b"u4" => U4,
            b"f8e5m2" => F8e5m2,
            b"f8e4m3" => F8e4m3,
            b"f8e4m3fn" => F8e4m3fn,
            b"f8e4m3b11fnuz" => F8e4m3b11fnuz,
            b"f8e3m4" => F8e3m4,
            b"f8e5m2fnuz" => F8e5m2fnuz,
            b"f8e4m3fnuz" => F8e4m3fnuz,
            b"f8e8m0fnu" => F8e8m0fnu,
            b"f4e2m1fn" => F4e2m1fn,
            b"f6e3m2fn" => F6e3m2fn,
            b"f6e2m3fn" => F6e2m3fn,
            _ => return None,
        })
    }

    /// The number of the type in XLA's `PrimitiveType`.
    pub const fn proto_number(self) -> i32 {
        self as i32
    }

    /// The type with that number in XLA's `PrimitiveType`.
    pub fn from_proto_number(number: i32) -> Option<ElementType> {
        ElementType::ALL.into_iter().find(|t| t.proto_number() == number)
    }

    /// Bits of information in one element.
    pub const fn bits(self) -> u32 {
        match self {
            S1 | U1 => 1,
            S2 | U2 => 2,
            S4 | U4 | F4e2m1fn => 4,
            F6e3m2fn | F6e2m3fn => 6,
            Pred | S8 | U8 | F8e5m2 | F8e4m3 | F8e4m3fn | F8e4m3b11fnuz | F8e3m4 | F8e5m2fnuz | F8e4m3fnuz
            | F8e8m0fnu => 8,
            S16 | U16 | F16 | Bf16 => 16,
            S32 | U32 | F32 => 32,
            S64 | U64 | F64 | C64 => 64,
            C128 => 128,
        }
    }

    /// Bytes of one element in a literal: sub-byte types take a whole byte there.
    pub const fn bytes(self) -> usize {
        self.bits().div_ceil(8) as usize
    }

    /// s1 … s64.
    pub const fn is_signed_integer(self) -> bool {
        matches!(self, S1 | S2 | S4 | S8 | S16 | S32 | S64)
    }
    /// u1 … u64.
    pub const fn is_unsigned_integer(self) -> bool {
        matches!(self, U1 | U2 | U4 | U8 | U16 | U32 | U64)
    }
    /// Signed or unsigned integer (not pred).
    pub const fn is_integer(self) -> bool {
        self.is_signed_integer() || self.is_unsigned_integer()
    }
    /// Any real floating-point type, the small ones included.
    pub const fn is_float(self) -> bool {
        matches!(self, F16 | Bf16 | F32 | F64) || self.is_small_float()
    }
    /// The f8, f6 and f4 types.
    pub const fn is_small_float(self) -> bool {
        matches!(
            self,
            F8e5m2
                | F8e4m3
                | F8e4m3fn
                | F8e4m3b11fnuz
                | F8e3m4
                | F8e5m2fnuz
                | F8e4m3fnuz
                | F8e8m0fnu
                | F4e2m1fn
                | F6e3m2fn
                | F6e2m3fn
        )
    }
    /// c64 or c128.
    pub const fn is_complex(self) -> bool {
        matches!(self, C64 | C128)
    }
    /// Types narrower than a byte, which layouts may pack.
    pub const fn is_sub_byte(self) -> bool {
        self.bits() < 8
    }
    /// The type of the real and imaginary parts, for complex types; the type itself for others.
    pub const fn component(self) -> ElementType {
        match self {
            C64 => F32,
            C128 => F64,
            other => other,
        }
    }
    /// The complex type whose parts have this type.
    pub const fn complex(self) -> Option<ElementType> {
        match self {
            F32 => Some(C64),
            F64 => Some(C128),
            _ => None,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_round_trip() {
        for t in ElementType::ALL {
            assert_eq!(ElementType::from_name(t.name().as_bytes()), Some(t));
            assert_eq!(ElementType::from_proto_number(t.proto_number()), Some(t));
        }
        for number in [0, 13, 14, 17, 34, 37, -1] {
            assert_eq!(ElementType::from_proto_number(number), None, "{number} is not an element type");
        }
    }
}

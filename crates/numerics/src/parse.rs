//! Float tokens of HLO text to values of a type.
//!
//! A token is read as an `f64` (or as a NaN with its payload) and then rounded to the type, as XLA
//! does. A finite token must become a finite value. `-0` keeps its sign.
//!
//! Invariants: never panics; a NaN is never read as a number, so a type without NaN refuses it.

use crate::small_float::{BF16_FORMAT, F16_FORMAT, Format, SmallFloat};
use half::{bf16, f16};
use std::fmt;

/// Why a token is not a value of the type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Not a number, an infinity or a NaN.
    Malformed,
    /// A finite number that does not round to a finite value of the type.
    OutOfRange {
        /// The type.
        type_name: &'static str,
    },
    /// A NaN payload of zero, which would not be a NaN.
    ZeroPayload,
    /// A NaN payload with more bits than the type has.
    PayloadTooLarge {
        /// The type.
        type_name: &'static str,
        /// The payload.
        payload: u64,
        /// The greatest payload of the type.
        max: u64,
    },
    /// A payload for a type whose NaN has none.
    NoPayload {
        /// The type.
        type_name: &'static str,
    },
    /// NaN for a type that has none.
    NoNan {
        /// The type.
        type_name: &'static str,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => write!(f, "not a floating-point number"),
            Self::OutOfRange { type_name } => write!(f, "value is out of range for {type_name}"),
            Self::ZeroPayload => write!(f, "a NaN payload cannot be zero"),
            Self::PayloadTooLarge { type_name, payload, max } => {
                write!(f, "NaN payload {payload:#x} is out of range for {type_name}, whose greatest is {max:#x}")
            }
            Self::NoPayload { type_name } => write!(f, "a NaN of {type_name} has no payload"),
            Self::NoNan { type_name } => write!(f, "{type_name} has no NaN"),
        }
    }
}

impl std::error::Error for ParseError {}

/// What a token says, before it is given a type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FloatToken {
    /// A number or an infinity; never NaN, and infinite only if the token says so.
    Number(f64),
    /// A NaN.
    Nan {
        /// Whether a minus sign stands before it.
        negative: bool,
        /// The payload, if the token gives one; not zero.
        payload: Option<u64>,
    },
}

impl FloatToken {
    /// Reads `1`, `-1.5`, `.5e-3`, `inf`, `-inf`, `nan`, `-nan`, `nan(0x7)`.
    pub fn parse(token: &str) -> Result<Self, ParseError> {
        let (negative, magnitude) = match token.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, token),
        };
        match magnitude.as_bytes().first() {
            // The standard library reads exactly the grammar of HLO once the first character
            // (no second sign, no other names of infinity) is settled.
            Some(b'0'..=b'9' | b'.') => {
                let number: f64 = token.parse().map_err(|_| ParseError::Malformed)?;
                if number.is_infinite() {
                    return Err(ParseError::OutOfRange { type_name: "f64" });
                }
                Ok(Self::Number(number))
            }
            Some(b'i') if magnitude == "inf" => {
                Ok(Self::Number(if negative { f64::NEG_INFINITY } else { f64::INFINITY }))
            }
            Some(b'n') => {
                let payload = magnitude.strip_prefix("nan").ok_or(ParseError::Malformed)?;
                let payload = match payload {
                    "" => None,
                    text => Some(parse_payload(text)?),
                };
                Ok(Self::Nan { negative, payload })
            }
            _ => Err(ParseError::Malformed),
        }
    }
}

/// The `(0x7)` after `nan`.
fn parse_payload(text: &str) -> Result<u64, ParseError> {
    let digits = text
        .strip_prefix("(0x")
        .and_then(|rest| rest.strip_suffix(')'))
        .filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_hexdigit()))
        .ok_or(ParseError::Malformed)?;
    // Only overflow is left to go wrong, and no type has so many payload bits.
    let payload = u64::from_str_radix(digits, 16).unwrap_or(u64::MAX);
    if payload == 0 {
        return Err(ParseError::ZeroPayload);
    }
    Ok(payload)
}

/// A type that float tokens can be read as.
pub trait FromFloatToken: Sized {
    /// The value of the token in this type.
    fn from_token(token: FloatToken) -> Result<Self, ParseError>;
}

/// Reads a token as a value of a type.
pub fn parse_float<T: FromFloatToken>(token: &str) -> Result<T, ParseError> {
    T::from_token(FloatToken::parse(token)?)
}

/// The mantissa of a NaN of a type with `bits` mantissa bits (0: no payload possible).
fn nan_mantissa(payload: Option<u64>, bits: u32, type_name: &'static str) -> Result<u64, ParseError> {
    match payload {
        None => Ok(1 << (bits.max(1) - 1)),
        Some(0) => Err(ParseError::ZeroPayload),
        Some(_) if bits == 0 => Err(ParseError::NoPayload { type_name }),
        Some(payload) => {
            let max = (1 << bits) - 1;
            if payload > max {
                return Err(ParseError::PayloadTooLarge { type_name, payload, max });
            }
            Ok(payload)
        }
    }
}

impl FromFloatToken for f64 {
    fn from_token(token: FloatToken) -> Result<Self, ParseError> {
        match token {
            FloatToken::Number(value) => Ok(value),
            FloatToken::Nan { negative, payload } => {
                let mantissa = nan_mantissa(payload, 52, "f64")?;
                let sign = (negative as u64) << 63;
                Ok(f64::from_bits(sign | 0x7ff0_0000_0000_0000 | mantissa))
            }
        }
    }
}

impl FromFloatToken for f32 {
    fn from_token(token: FloatToken) -> Result<Self, ParseError> {
        match token {
            FloatToken::Number(value) => {
                let rounded = value as f32;
                if rounded.is_infinite() && value.is_finite() {
                    return Err(ParseError::OutOfRange { type_name: "f32" });
                }
                Ok(rounded)
            }
            FloatToken::Nan { negative, payload } => {
                let mantissa = nan_mantissa(payload, 23, "f32")? as u32;
                let sign = (negative as u32) << 31;
                Ok(f32::from_bits(sign | 0x7f80_0000 | mantissa))
            }
        }
    }
}

/// The code of a token in any format.
pub fn code_from_token(format: &Format, token: FloatToken) -> Result<u16, ParseError> {
    let type_name = format.name;
    match token {
        FloatToken::Number(value) => {
            let code = format.encode(value);
            let finite = !format.is_nan(code) && !format.is_infinite(code);
            if value.is_finite() && !finite {
                return Err(ParseError::OutOfRange { type_name });
            }
            Ok(code)
        }
        FloatToken::Nan { negative, payload } => {
            let code = format.nan_code(negative).ok_or(ParseError::NoNan { type_name })?;
            let bits = format.nan_payload_bits();
            let mantissa = nan_mantissa(payload, bits, type_name)? as u16;
            if bits == 0 {
                return Ok(code);
            }
            Ok(code & !format.mantissa_mask() | mantissa)
        }
    }
}

impl FromFloatToken for f16 {
    fn from_token(token: FloatToken) -> Result<Self, ParseError> {
        code_from_token(&F16_FORMAT, token).map(f16::from_bits)
    }
}

impl FromFloatToken for bf16 {
    fn from_token(token: FloatToken) -> Result<Self, ParseError> {
        code_from_token(&BF16_FORMAT, token).map(bf16::from_bits)
    }
}

impl<T: SmallFloat> FromFloatToken for T {
    fn from_token(token: FloatToken) -> Result<Self, ParseError> {
        code_from_token(&T::FORMAT, token).map(|code| T::from_bits(code as u8))
    }
}

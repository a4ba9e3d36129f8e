//! Dense literals in MLIR text: nested lists, one element for all, or the buffer in hexadecimal.

use super::cursor::parse_integer;
use super::{Parse, Parser};
use crate::mlir::{Attr, AttrId, Dense, TypeId};
use hloom_ir::ElementType;
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_numerics::parse::{FloatToken, code_from_token, parse_float};
use hloom_numerics::{self as numerics, Format};
use std::borrow::Cow;

impl<'a> Parser<'a> {
    /// What follows `dense`.
    pub(super) fn dense(&mut self) -> Parse<AttrId> {
        let start = self.pos;
        self.expect(b'<')?;
        let body = self.pos;
        // Elements are numbers, brackets and strings of digits: none holds a `>`.
        let Some(length) = memchr::memchr(b'>', self.rest()) else {
            return Err(self.error(start, &codes::SYNTAX, "a literal does not end"));
        };
        let end = body + length;
        self.pos = end + 1;
        self.expect(b':')?;
        let ty = self.parse_type()?;
        let after = self.pos;
        self.pos = body;
        let data = self.dense_body(start, end, ty)?;
        if self.peek() != b'>' || self.pos != end {
            return Err(self.expected("`>` at the end of the literal"));
        }
        self.pos = after;
        Ok(self.m.add_attr(Attr::Dense(Dense { ty, data: Cow::Owned(data) })))
    }

    fn dense_body(&mut self, start: usize, end: usize, ty: TypeId) -> Parse<Vec<u8>> {
        let Some((dims, element)) = self.m.tensor(ty) else {
            return Err(self.error(start, &codes::BAD_LITERAL, "a literal has a type that is no tensor"));
        };
        let dims = dims.to_vec();
        let Some(element) = self.m.element_type(element) else {
            // Quantized and other types that HLO lacks: the elements are not looked at.
            self.pos = end;
            return Ok(Vec::new());
        };
        match self.peek() {
            b'>' => {
                if self.m.element_count(ty) != Some(0) {
                    return Err(self.error(
                        start,
                        &codes::BAD_LITERAL,
                        "a literal without elements has a type with some",
                    ));
                }
                Ok(Vec::new())
            }
            b'"' => self.hex_body(start),
            b'[' => {
                let mut data = Vec::new();
                self.elements(&dims, element, &mut data)?;
                Ok(if element == ElementType::Pred { packed(&data) } else { data })
            }
            _ => {
                let mut data = Vec::new();
                self.element(element, &mut data)?;
                if element == ElementType::Pred {
                    data[0] = if data[0] != 0 { 0xff } else { 0 };
                }
                Ok(data)
            }
        }
    }

    /// The buffer in hexadecimal.
    fn hex_body(&mut self, start: usize) -> Parse<Vec<u8>> {
        self.pos += 1;
        let Some(length) = memchr::memchr(b'"', self.rest()) else {
            return Err(self.error(start, &codes::SYNTAX, "a string does not end"));
        };
        let digits = &self.rest()[..length];
        let Some(data) = digits.strip_prefix(b"0x").and_then(hex_bytes) else {
            return Err(self.error(start, &codes::BAD_LITERAL, "a literal in quotes is 0x and hexadecimal digits"));
        };
        self.pos += length + 1;
        Ok(data)
    }

    /// `[…]`: as many elements as the first of `dims` says, each with the other dimensions.
    fn elements(&mut self, dims: &[i64], element: ElementType, data: &mut Vec<u8>) -> Parse<()> {
        let Some((&size, inner)) = dims.split_first() else { return self.element(element, data) };
        self.skip();
        let start = self.pos;
        self.enter(start)?;
        self.expect(b'[')?;
        let mut count = 0i64;
        while !self.eat(b']') {
            if count > 0 {
                self.expect(b',')?;
            }
            self.elements(inner, element, data)?;
            count += 1;
        }
        self.leave();
        if count != size {
            let message = format!("{count} entries stand where the type has {size}");
            return Err(self.error(start, &codes::BAD_LITERAL, message));
        }
        Ok(())
    }

    fn element(&mut self, element: ElementType, data: &mut Vec<u8>) -> Parse<()> {
        if element.is_complex() {
            self.expect(b'(')?;
            self.element(element.component(), data)?;
            self.expect(b',')?;
            self.element(element.component(), data)?;
            return self.expect(b')');
        }
        self.skip();
        let start = self.pos;
        if self.eat_text("true") || self.eat_text("false") {
            let one = self.text[start] == b't';
            data.extend_from_slice(&u64::from(one).to_le_bytes()[..element.bytes()]);
            return Ok(());
        }
        let Some(token) = self.number_token() else { return Err(self.expected("an element")) };
        match bytes_of(element, token) {
            Some(bytes) => {
                data.extend_from_slice(&bytes[..element.bytes()]);
                Ok(())
            }
            None => Err(self.error(start, &codes::BAD_LITERAL, format!("`{token}` is no {element}"))),
        }
    }
}

/// The bytes of an element, in the first of eight.
fn bytes_of(element: ElementType, token: &str) -> Option<[u8; 8]> {
    let hex = token.strip_prefix("0x");
    let bits = if element.is_float() {
        match (hex, element) {
            (Some(hex), _) => {
                let bits = u64::from_str_radix(hex, 16).ok()?;
                let width = element.bits();
                if width < 64 && bits >> width != 0 {
                    return None;
                }
                bits
            }
            (_, ElementType::F64) => parse_float::<f64>(token).ok()?.to_bits(),
            (_, ElementType::F32) => parse_float::<f32>(token).ok()?.to_bits().into(),
            (_, ElementType::F16) => parse_float::<half::f16>(token).ok()?.to_bits().into(),
            (_, ElementType::Bf16) => parse_float::<half::bf16>(token).ok()?.to_bits().into(),
            (_, other) => code_from_token(&small_format(other)?, FloatToken::parse(token).ok()?).ok()?.into(),
        }
    } else {
        let value = parse_integer(token)?;
        let bits = element.bits();
        let fits = match element {
            ElementType::Pred => value == 0 || value == 1 || value == -1,
            _ if bits >= 64 => true,
            t if t.is_signed_integer() => (-(1 << (bits - 1))..1i64 << bits).contains(&value),
            _ => (-(1i64 << (bits - 1))..1i64 << bits).contains(&value),
        };
        if !fits {
            return None;
        }
        value as u64
    };
    Some(bits.to_le_bytes())
}

/// The format of a small float type.
pub(crate) fn small_format(element: ElementType) -> Option<Format> {
    Some(match element {
        ElementType::F8e5m2 => numerics::F8E5M2::FORMAT,
        ElementType::F8e4m3 => numerics::F8E4M3::FORMAT,
        ElementType::F8e4m3fn => numerics::F8E4M3FN::FORMAT,
        ElementType::F8e4m3b11fnuz => numerics::F8E4M3B11FNUZ::FORMAT,
        ElementType::F8e3m4 => numerics::F8E3M4::FORMAT,
        ElementType::F8e5m2fnuz => numerics::F8E5M2FNUZ::FORMAT,
        ElementType::F8e4m3fnuz => numerics::F8E4M3FNUZ::FORMAT,
        ElementType::F8e8m0fnu => numerics::F8E8M0FNU::FORMAT,
        ElementType::F4e2m1fn => numerics::F4E2M1FN::FORMAT,
        ElementType::F6e3m2fn => numerics::F6E3M2FN::FORMAT,
        ElementType::F6e2m3fn => numerics::F6E2M3FN::FORMAT,
        _ => return None,
    })
}

/// Truth values eight to a byte.
fn packed(bools: &[u8]) -> Vec<u8> {
    let mut out = vec![0u8; bools.len().div_ceil(8)];
    for (i, &b) in bools.iter().enumerate() {
        out[i / 8] |= (b & 1) << (i % 8);
    }
    out
}

/// Bytes written as pairs of hexadecimal digits.
pub(super) fn hex_bytes(digits: &[u8]) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let value = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    digits.chunks_exact(2).map(|p| Some(value(p[0])? << 4 | value(p[1])?)).collect()
}

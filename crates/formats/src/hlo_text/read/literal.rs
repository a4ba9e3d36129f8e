//! Literals: the values in `constant(…)` and `literal=…`.
//!
//! Elements go straight into the bytes of the literal. Room is made for as many elements as the rest of the text can
//! hold at most, whatever the shape claims.

use super::cursor::{is_ident, number_end};
use super::{Read, Reader};
use hloom_ir::diagnostic::{Code, Diagnostic, Span, codes};
use hloom_ir::element_type::ElementType;
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_numerics::parse::{FloatToken, ParseError, code_from_token, parse_float};
use hloom_numerics::small_float::{BF16_FORMAT, F16_FORMAT};
use hloom_numerics::{
    F4E2M1FN, F6E2M3FN, F6E3M2FN, F8E3M4, F8E4M3, F8E4M3B11FNUZ, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0FNU,
    Format,
};
use smallvec::SmallVec;
use std::sync::Arc;

impl<'a> Reader<'a> {
    /// The value of a constant of that shape; `None` if it is left out as `{...}`.
    pub(super) fn literal_of(&mut self, shape: &Shape) -> Read<Option<Literal>> {
        match shape {
            Shape::Array(array) => Ok(self.array_literal(array)?.map(Literal::Array)),
            Shape::Tuple(elements) => self.tuple_literal(elements),
            Shape::Token => Ok(Some(Literal::Token)),
            Shape::Opaque | Shape::Buffer(_) => {
                self.skip();
                let span = self.found_at(self.pos).1;
                let message = format!("a constant cannot have the shape {shape}");
                self.fail_at(&codes::text::LITERAL_TYPE, span, message, "expected an array or a tuple")
            }
        }
    }

    /// A literal that says its own shape: `f32[2] {1, 2}`, or a tuple of such.
    pub(super) fn literal_with_shape(&mut self) -> Read<Option<Literal>> {
        if self.peek() != b'(' {
            let shape = self.shape()?;
            return self.literal_of(&shape);
        }
        self.enter()?;
        self.pos += 1;
        let mut elements = Some(Vec::new());
        while self.peek() != b')' {
            let element = self.literal_with_shape()?;
            elements = elements.zip(element).map(|(mut all, e)| {
                all.push(e);
                all
            });
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b')', "or `,` after an element of a tuple literal")?;
        self.leave();
        Ok(elements.map(Literal::Tuple))
    }

    /// Passes `{...}`, if that is next.
    fn elided(&mut self) -> bool {
        if self.peek() != b'{' {
            return false;
        }
        let start = self.pos;
        self.pos += 1;
        if self.eat_text(b"...") && self.eat(b'}') {
            return true;
        }
        self.pos = start;
        false
    }

    fn tuple_literal(&mut self, shapes: &[Shape]) -> Read<Option<Literal>> {
        if self.elided() {
            return Ok(None);
        }
        self.enter()?;
        self.expect(b'(', "to start a tuple literal")?;
        let mut elements = Some(Vec::with_capacity(shapes.len()));
        for (i, shape) in shapes.iter().enumerate() {
            if i > 0 {
                self.expect(b',', "between the elements of a tuple literal")?;
            }
            // Old dumps repeat the shape of each element.
            if shape.is_array() && self.at_shape() && self.byte() != b'(' {
                self.shape()?;
            }
            let element = self.literal_of(shape)?;
            elements = elements.zip(element).map(|(mut all, e)| {
                all.push(e);
                all
            });
        }
        self.expect(b')', "after the elements of a tuple literal")?;
        self.leave();
        Ok(elements.map(Literal::Tuple))
    }

    fn array_literal(&mut self, shape: &Arc<ArrayShape>) -> Read<Option<ArrayLiteral>> {
        if self.elided() {
            return Ok(None);
        }
        self.skip();
        let start = self.pos;
        let Some(count) = shape.element_count() else {
            let span = self.found_at(start).1;
            let message = format!("a literal cannot have the shape {shape}");
            let label = "the number of elements is not known";
            return self.fail_at(&codes::text::LITERAL_UNBOUNDED, span, message, label);
        };
        let width = shape.element_type.bytes();
        // Every element but the last takes at least two bytes of text: a digit and something between.
        let most = (self.text.len() - start) / 2 + 1;
        let room = usize::try_from(count).unwrap_or(usize::MAX).min(most);
        let mut out = Elements { bytes: Vec::with_capacity(room * width), element_type: shape.element_type };
        if shape.is_scalar() {
            self.element(&mut out)?;
        } else if self.byte() != b'{' && count > 0 {
            self.element(&mut out)?;
            self.rest_is_zero(shape, count, start, &mut out)?;
        } else {
            self.elements(shape, &mut out)?;
        }
        match ArrayLiteral::new(shape.clone(), out.bytes) {
            Ok(literal) => Ok(Some(literal)),
            // The counts of each dimension were checked, so the number of bytes is right.
            Err(_) => self.expected("a literal of the shape"),
        }
    }

    /// A single value where an array is wanted: XLA takes it for the first element, and zero for the others.
    #[cold]
    fn rest_is_zero(&mut self, shape: &ArrayShape, count: i64, start: usize, out: &mut Elements) -> Read<()> {
        /// All such literals of a text together have at most this many bytes (of which the system gives the zeros only
        /// when somebody looks at them).
        const MOST_BYTES: usize = 256 << 20;
        let span = self.span_from(start);
        let size = usize::try_from(count).ok().and_then(|n| n.checked_mul(shape.element_type.bytes()));
        let Some(size) = size.filter(|&n| n <= MOST_BYTES.saturating_sub(self.zero_bytes)) else {
            let message = format!("a single value for all of {shape}");
            return self.fail_at(&codes::text::LITERAL_SHAPE, span, message, "expected braces");
        };
        self.zero_bytes += size;
        let first = std::mem::replace(&mut out.bytes, vec![0; size]);
        out.bytes[..first.len()].copy_from_slice(&first);
        self.report(
            Diagnostic::warning(&codes::text::SINGLE_VALUE, format!("a single value for an array of {count} elements"))
                .at(span)
                .label("this is the first element; the others are zero")
                .help("to fill an array with one value, broadcast a scalar constant"),
        );
        Ok(())
    }

    /// Nested braces, as deep as the shape has dimensions.
    fn elements(&mut self, shape: &ArrayShape, out: &mut Elements) -> Read<()> {
        let dims = shape.dims();
        let rank = dims.len();
        let mut seen: SmallVec<[i64; 8]> = SmallVec::from_elem(0, rank);
        let mut level = 0;
        loop {
            match self.peek() {
                b',' if level > 0 => self.pos += 1,
                b'{' => {
                    if level == rank {
                        return self.wrong_nesting(shape, "braces nest deeper than the shape has dimensions");
                    }
                    if level > 0 {
                        seen[level - 1] += 1;
                        if seen[level - 1] > dims[level - 1] {
                            return self.wrong_count(shape, level - 1, None);
                        }
                    }
                    level += 1;
                    self.pos += 1;
                }
                b'}' if level > 0 => {
                    level -= 1;
                    if seen[level] != dims[level] {
                        return self.wrong_count(shape, level, Some(seen[level]));
                    }
                    seen[level] = 0;
                    self.pos += 1;
                    if level == 0 {
                        return Ok(());
                    }
                }
                _ if level == rank => {
                    seen[level - 1] += 1;
                    if seen[level - 1] > dims[level - 1] {
                        return self.wrong_count(shape, level - 1, None);
                    }
                    self.element(out)?;
                }
                b'.' | b'-' | b'(' | b'0'..=b'9' | b'a'..=b'z' => {
                    return self.wrong_nesting(shape, "braces nest less deeply than the shape has dimensions");
                }
                _ => return self.expected("a literal"),
            }
        }
    }

    #[cold]
    fn wrong_nesting(&mut self, shape: &ArrayShape, what: &str) -> Read<()> {
        let span = self.found_at(self.pos).1;
        let message = format!("this literal is not a {shape}: {what}");
        let label = format!("expected {} levels of braces", shape.rank());
        self.fail_at(&codes::text::LITERAL_SHAPE, span, message, label)
    }

    /// More elements than dimension `dim` has, or `seen` of them, which are fewer.
    #[cold]
    fn wrong_count(&mut self, shape: &ArrayShape, dim: usize, seen: Option<i64>) -> Read<()> {
        let span = self.found_at(self.pos).1;
        let size = shape.dims().get(dim).copied().unwrap_or(0);
        let seen = seen.map_or("more".to_owned(), |n| n.to_string());
        let message = format!("dimension {dim} of {shape} has {size} elements, but {seen} are given");
        self.fail_at(&codes::text::LITERAL_SHAPE, span, message, format!("expected {size} elements"))
    }

    /// One element.
    #[inline]
    fn element(&mut self, out: &mut Elements) -> Read<()> {
        use ElementType::*;
        match out.element_type {
            F32 => {
                let value = self.f32_element()?;
                out.bytes.extend_from_slice(&value.to_le_bytes());
                Ok(())
            }
            F64 => {
                let value = self.f64_element()?;
                out.bytes.extend_from_slice(&value.to_le_bytes());
                Ok(())
            }
            C64 | C128 => self.complex_element(out),
            t if t.is_float() => self.small_element(out),
            _ => self.int_element(out),
        }
    }

    #[inline]
    fn f64_element(&mut self) -> Read<f64> {
        if let Some((value, end)) = simple_decimal(self.text, self.pos) {
            self.pos = end;
            return Ok(value);
        }
        let (value, _) = self.float_token(parse_float::<f64>)?;
        Ok(value)
    }

    #[inline]
    fn f32_element(&mut self) -> Read<f32> {
        if let Some((value, end)) = simple_decimal(self.text, self.pos) {
            // The f64 is the nearest to the decimal; rounding it once more is right unless it lies exactly between two
            // f32, or where these are no longer spaced by the exponent.
            let between = value.to_bits() & 0x1fff_ffff == 0x1000_0000;
            let magnitude = value.abs();
            if magnitude == 0.0 || (!between && magnitude > f64::from(f32::MIN_POSITIVE) && magnitude < 3e38) {
                self.pos = end;
                return Ok(value as f32);
            }
        }
        let (value, _) = self.float_token(|token| match token.parse::<f32>() {
            Ok(v) if v.is_finite() && token.ends_with(|c: char| c.is_ascii_digit() || c == '.') => Ok(v),
            _ => parse_float::<f32>(token),
        })?;
        Ok(value)
    }

    /// Reads the number token here with `parse`.
    fn float_token<T>(&mut self, parse: impl Fn(&str) -> Result<T, ParseError>) -> Read<(T, Span)> {
        let start = self.pos;
        let end = number_end(self.text, start);
        let token = std::str::from_utf8(&self.text[start..end]).unwrap_or_default();
        let span = Span::new(start, end.max(start + 1));
        match parse(token) {
            Ok(value) => {
                self.pos = end;
                Ok((value, span))
            }
            Err(ParseError::Malformed) => self.expected_value("a floating-point number"),
            Err(error) => {
                let code = payload_or_range(&error);
                let token = token.to_owned();
                self.fail_at(code, span, format!("{token}: {error}"), "not a value of the type")
            }
        }
    }

    /// What stands here is not a value of the type.
    #[cold]
    fn expected_value<T>(&mut self, what: &str) -> Read<T> {
        let end = number_end(self.text, self.pos);
        if end > self.pos {
            let span = Span::new(self.pos, end);
            let message = format!("expected {what}, found {}", self.quote(span));
            return self.fail_at(&codes::text::LITERAL_TYPE, span, message, format!("expected {what}"));
        }
        self.expected(what)
    }

    fn small_element(&mut self, out: &mut Elements) -> Read<()> {
        let Some(format) = format_of(out.element_type) else { return self.expected("a number") };
        let (code, _) = self.float_token(|token| code_from_token(&format, FloatToken::parse(token)?))?;
        let width = out.element_type.bytes();
        out.bytes.extend_from_slice(&code.to_le_bytes()[..width]);
        Ok(())
    }

    /// `(re, im)`: each part is read as a number of its own type, so that a NaN keeps its payload.
    fn complex_element(&mut self, out: &mut Elements) -> Read<()> {
        if self.byte() != b'(' {
            return self.expected_value("a complex number: (re, im)");
        }
        self.pos += 1;
        for part in 0..2 {
            if part == 1 {
                self.expect(b',', "after the real part")?;
            }
            self.skip();
            if out.element_type == ElementType::C64 {
                let value = self.f32_element()?;
                out.bytes.extend_from_slice(&value.to_le_bytes());
            } else {
                let value = self.f64_element()?;
                out.bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
        self.expect(b')', "after the imaginary part")
    }

    fn int_element(&mut self, out: &mut Elements) -> Read<()> {
        let element_type = out.element_type;
        let start = self.pos;
        if element_type == ElementType::Pred
            && let word @ (b"true" | b"false") = self.peek_ident()
        {
            self.pos += word.len();
            out.bytes.push(u8::from(word == b"true"));
            return Ok(());
        }
        let negative = self.byte() == b'-';
        let mut pos = start + usize::from(negative);
        let first = pos;
        let mut magnitude = Some(0u64);
        while let Some(digit) = self.text.get(pos).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10) {
            magnitude = magnitude.and_then(|m| m.checked_mul(10)?.checked_add(u64::from(digit)));
            pos += 1;
        }
        if pos == first || self.text.get(pos).is_some_and(|&b| is_ident(b)) {
            let what =
                if element_type == ElementType::Pred { "true, false or a whole number" } else { "a whole number" };
            return self.expected_value(what);
        }
        let Some(bits) = magnitude.and_then(|m| encode_int(element_type, negative, m)) else {
            let span = Span::new(start, pos);
            let text = self.quote(span);
            let (low, high) = int_range(element_type);
            return self.fail(
                Diagnostic::error(&codes::text::LITERAL_RANGE, format!("{text} is out of range for {element_type}"))
                    .at(span)
                    .label("not a value of the type")
                    .note(format!("{element_type} goes from {low} to {high}")),
            );
        };
        self.pos = pos;
        out.bytes.extend_from_slice(&bits.to_le_bytes()[..element_type.bytes()]);
        Ok(())
    }
}

/// The elements of a literal so far.
struct Elements {
    bytes: Vec<u8>,
    element_type: ElementType,
}

fn payload_or_range(error: &ParseError) -> &'static Code {
    match error {
        ParseError::OutOfRange { .. } => &codes::text::LITERAL_RANGE,
        _ => &codes::text::NAN_PAYLOAD,
    }
}

fn int_range(t: ElementType) -> (i128, i128) {
    let bits = t.bits();
    if t.is_signed_integer() { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) }
}

/// The two's complement of the number, if it is in range. As XLA has it, the 64-bit types take each other's numbers.
fn encode_int(t: ElementType, negative: bool, magnitude: u64) -> Option<u64> {
    if t == ElementType::Pred {
        return Some(u64::from(magnitude != 0));
    }
    let value = if negative { -i128::from(magnitude) } else { i128::from(magnitude) };
    let (low, high) = match t.bits() {
        64 => (i128::from(i64::MIN), i128::from(u64::MAX)),
        _ => int_range(t),
    };
    (low <= value && value <= high).then_some(value as u64)
}

fn format_of(t: ElementType) -> Option<Format> {
    use ElementType::*;
    Some(match t {
        F16 => F16_FORMAT,
        Bf16 => BF16_FORMAT,
        F8e5m2 => F8E5M2::FORMAT,
        F8e4m3 => F8E4M3::FORMAT,
        F8e4m3fn => F8E4M3FN::FORMAT,
        F8e4m3b11fnuz => F8E4M3B11FNUZ::FORMAT,
        F8e3m4 => F8E3M4::FORMAT,
        F8e5m2fnuz => F8E5M2FNUZ::FORMAT,
        F8e4m3fnuz => F8E4M3FNUZ::FORMAT,
        F8e8m0fnu => F8E8M0FNU::FORMAT,
        F4e2m1fn => F4E2M1FN::FORMAT,
        F6e3m2fn => F6E3M2FN::FORMAT,
        F6e2m3fn => F6E2M3FN::FORMAT,
        _ => return None,
    })
}

/// Powers of ten that an f64 holds exactly.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// The f64 nearest to a decimal whose digits and power of ten are both exact in an f64 (one multiplication or division
/// then rounds once), and where it ends; `None` for anything else.
#[inline]
fn simple_decimal(text: &[u8], start: usize) -> Option<(f64, usize)> {
    let digit = |pos: usize| text.get(pos).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10);
    let negative = text.get(start) == Some(&b'-');
    let mut pos = start + usize::from(negative);
    let first = pos;
    let mut mantissa = 0u64;
    while let Some(d) = digit(pos) {
        mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(d));
        pos += 1;
    }
    let mut digits = pos - first;
    let mut exponent = 0i32;
    if text.get(pos) == Some(&b'.') {
        pos += 1;
        let fraction = pos;
        while let Some(d) = digit(pos) {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(d));
            pos += 1;
        }
        digits += pos - fraction;
        exponent = -((pos - fraction) as i32);
    }
    // Nineteen digits always fit; then the mantissa has to be exact as well.
    if digits == 0 || digits > 19 || mantissa > 1 << 53 {
        return None;
    }
    if let Some(b'e' | b'E') = text.get(pos) {
        pos += 1;
        let minus = text.get(pos) == Some(&b'-');
        pos += usize::from(minus || text.get(pos) == Some(&b'+'));
        let first = pos;
        let mut power = 0i32;
        while let Some(d) = digit(pos) {
            power = power.saturating_mul(10).saturating_add(i32::from(d));
            pos += 1;
        }
        if pos == first || power > 400 {
            return None;
        }
        exponent += if minus { -power } else { power };
    }
    if text.get(pos).is_some_and(|&b| is_ident(b)) {
        return None;
    }
    let scale = *EXACT_POWERS.get(exponent.unsigned_abs() as usize)?;
    let magnitude = if exponent < 0 { mantissa as f64 / scale } else { mantissa as f64 * scale };
    Some((if negative { -magnitude } else { magnitude }, pos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_decimals_are_exact() {
        for text in ["0", "-0", "1.5", "123456.703", "1e-05", "9007199254740992", "0.1", "3.14159274", "-2.5e+10", "1."]
        {
            let (value, end) = simple_decimal(text.as_bytes(), 0).expect(text);
            assert_eq!(value.to_bits(), text.parse::<f64>().expect(text).to_bits(), "{text}");
            assert_eq!(end, text.len());
        }
        for text in ["inf", "nan", "", "-", ".", "1e", "1e300", "1x", "18446744073709551616", "9007199254740993"] {
            assert_eq!(simple_decimal(text.as_bytes(), 0), None, "{text}");
        }
    }
}

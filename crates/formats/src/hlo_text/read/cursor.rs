//! The bytes of the text and the place where the reader stands: white space, words, numbers and strings.
//!
//! There is no list of tokens: each construct is read straight from the bytes. `pos` never passes the end of the text,
//! and a byte beyond it reads as 0, which no construct accepts.

use super::{Read, Reader};
use hloom_ir::diagnostic::{Diagnostic, Span, codes};
use std::borrow::Cow;

const IDENT: u8 = 1;
const IDENT_START: u8 = 2;
const SPACE: u8 = 4;

/// What each byte can be part of.
static CLASS: [u8; 256] = {
    let mut class = [0; 256];
    let mut b = 0;
    while b < 256 {
        let c = b as u8;
        if c.is_ascii_alphabetic() || c == b'_' {
            class[b] = IDENT | IDENT_START;
        } else if c.is_ascii_digit() || c == b'.' || c == b'-' {
            class[b] = IDENT;
        } else if matches!(c, b' ' | b'\t' | b'\n' | b'\r') {
            class[b] = SPACE;
        }
        b += 1;
    }
    class
};

/// Whether `byte` can stand in a word.
#[inline]
pub(crate) fn is_ident(byte: u8) -> bool {
    CLASS[byte as usize] & IDENT != 0
}

/// Whether a word can start with `byte`.
#[inline]
pub(crate) fn is_ident_start(byte: u8) -> bool {
    CLASS[byte as usize] & IDENT_START != 0
}

/// Where white space and comments that start at `pos` end. An unterminated comment is not passed.
#[inline]
pub(crate) fn skip_space(text: &[u8], mut pos: usize) -> usize {
    while let Some(&b) = text.get(pos) {
        if CLASS[b as usize] & SPACE != 0 {
            pos += 1;
        } else if b == b'/' {
            match skip_comment(text, pos) {
                Some(end) => pos = end,
                None => break,
            }
        } else {
            break;
        }
    }
    pos
}

/// Where the comment at `pos` ends, if there is one that ends.
#[cold]
fn skip_comment(text: &[u8], pos: usize) -> Option<usize> {
    let rest = text.get(pos + 2..)?;
    match text.get(pos + 1)? {
        b'*' => memchr::memmem::find(rest, b"*/").map(|n| pos + 2 + n + 2),
        b'/' => Some(memchr::memchr2(b'\n', b'\r', rest).map_or(text.len(), |n| pos + 2 + n)),
        _ => None,
    }
}

/// Where the word at `pos` ends.
#[inline]
pub(crate) fn ident_end(text: &[u8], pos: usize) -> usize {
    let rest = text.get(pos..).unwrap_or_default();
    pos + rest.iter().position(|&b| !is_ident(b)).unwrap_or(rest.len())
}

impl<'a> Reader<'a> {
    /// Passes white space and comments.
    #[inline]
    pub(super) fn skip(&mut self) {
        // The common case is no space, or one.
        match self.text.get(self.pos) {
            Some(&b) if CLASS[b as usize] & SPACE == 0 && b != b'/' => {}
            _ => self.pos = skip_space(self.text, self.pos),
        }
    }

    /// The byte where the reader stands; 0 at the end.
    #[inline]
    pub(super) fn byte(&self) -> u8 {
        self.text.get(self.pos).copied().unwrap_or(0)
    }

    /// The byte `n` further on; 0 beyond the end.
    #[inline]
    pub(super) fn byte_at(&self, n: usize) -> u8 {
        self.text.get(self.pos + n).copied().unwrap_or(0)
    }

    /// The next byte that is not white space, without passing it.
    #[inline]
    pub(super) fn peek(&mut self) -> u8 {
        self.skip();
        self.byte()
    }

    /// Passes `byte` if it is next.
    #[inline]
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == byte && self.pos < self.text.len();
        self.pos += usize::from(is_next);
        is_next
    }

    /// Passes `text` if it is next, whatever follows it.
    pub(super) fn eat_text(&mut self, text: &[u8]) -> bool {
        self.skip();
        let is_next = self.text[self.pos..].starts_with(text);
        if is_next {
            self.pos += text.len();
        }
        is_next
    }

    /// Passes `word` if it is the next whole word.
    pub(super) fn eat_word(&mut self, word: &[u8]) -> bool {
        self.skip();
        let rest = &self.text[self.pos..];
        let is_next = rest.starts_with(word) && !rest.get(word.len()).is_some_and(|&b| is_ident(b));
        if is_next {
            self.pos += word.len();
        }
        is_next
    }

    /// The bytes from `start` to where the reader stands.
    #[inline]
    pub(super) fn span_from(&self, start: usize) -> Span {
        Span::new(start, self.pos.max(start))
    }

    /// Passes `byte`, or says that `what` was expected.
    #[inline]
    pub(super) fn expect(&mut self, byte: u8, what: &str) -> Read<()> {
        if self.eat(byte) { Ok(()) } else { self.expected_byte(byte, what) }
    }

    #[cold]
    fn expected_byte(&mut self, byte: u8, what: &str) -> Read<()> {
        self.expected(&format!("`{}` {what}", byte as char))
    }

    /// The next word without passing it; empty if there is none.
    #[inline]
    pub(super) fn peek_ident(&mut self) -> &'a [u8] {
        if is_ident_start(self.peek()) { &self.text[self.pos..ident_end(self.text, self.pos)] } else { &[] }
    }

    /// The next word, or an error that `what` was expected.
    #[inline]
    pub(super) fn ident(&mut self, what: &str) -> Read<&'a [u8]> {
        let ident = self.peek_ident();
        if ident.is_empty() {
            return self.expected(what);
        }
        self.pos += ident.len();
        Ok(ident)
    }

    /// A name with or without `%`; without one it may end in `:`.
    #[inline]
    pub(super) fn name(&mut self, what: &str) -> Read<&'a [u8]> {
        if self.peek() == b'%' && is_ident_start(self.byte_at(1)) {
            let end = ident_end(self.text, self.pos + 1);
            let name = &self.text[self.pos + 1..end];
            self.pos = end;
            return Ok(name);
        }
        let name = self.ident(what)?;
        if self.byte() == b':' {
            self.pos += 1;
        }
        Ok(name)
    }

    /// The name of the attribute that starts here, if a word followed by `=` does; passes both.
    #[inline]
    pub(super) fn attribute_name(&mut self) -> Option<&'a [u8]> {
        let name = self.peek_ident();
        if name.is_empty() || self.byte_at(name.len()) != b'=' {
            return None;
        }
        self.pos += name.len() + 1;
        Some(name)
    }

    /// A whole number that is followed by no more digits, letters or dots.
    #[inline]
    pub(super) fn int(&mut self, what: &str) -> Read<i64> {
        self.skip();
        let start = self.pos;
        let value = self.digits(what)?;
        if is_ident(self.byte()) && self.byte() != b'-' {
            self.pos = start;
            return self.expected(what);
        }
        Ok(value)
    }

    /// A whole number, whatever follows it.
    #[inline]
    pub(super) fn digits(&mut self, what: &str) -> Read<i64> {
        let start = self.pos;
        let negative = self.byte() == b'-';
        let mut pos = start + usize::from(negative);
        let first = pos;
        let mut value: i64 = 0;
        while let Some(digit) = self.text.get(pos).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10) {
            // Accumulating below zero reaches i64::MIN too.
            match value.checked_mul(10).and_then(|v| v.checked_sub(i64::from(digit))) {
                Some(v) => value = v,
                None => return self.int_out_of_range(start),
            }
            pos += 1;
        }
        if pos == first {
            return self.expected(what);
        }
        self.pos = pos;
        if negative {
            return Ok(value);
        }
        match value.checked_neg() {
            Some(v) => Ok(v),
            None => self.int_out_of_range(start),
        }
    }

    #[cold]
    fn int_out_of_range<T>(&mut self, start: usize) -> Read<T> {
        let span = self.found_at(start).1;
        let text = self.quote(span);
        self.fail(
            Diagnostic::error(&codes::text::NUMBER_OUT_OF_RANGE, format!("{text} does not fit in 64 bits"))
                .at(span)
                .label("too large"),
        )
    }

    /// A whole number of 32 bits.
    pub(super) fn int32(&mut self, what: &str) -> Read<i32> {
        self.skip();
        let start = self.pos;
        let value = self.int(what)?;
        match i32::try_from(value) {
            Ok(v) => Ok(v),
            Err(_) => self.fail(
                Diagnostic::error(&codes::text::NUMBER_OUT_OF_RANGE, format!("{value} does not fit in 32 bits"))
                    .at(self.span_from(start))
                    .label("too large"),
            ),
        }
    }

    /// `true` or `false`.
    pub(super) fn bool(&mut self) -> Read<bool> {
        match self.peek_ident() {
            b"true" => {
                self.pos += 4;
                Ok(true)
            }
            b"false" => {
                self.pos += 5;
                Ok(false)
            }
            _ => self.expected("true or false"),
        }
    }

    /// A number with or without fraction.
    pub(super) fn float(&mut self, what: &str) -> Read<f64> {
        self.skip();
        let start = self.pos;
        let end = number_end(self.text, start);
        let token = std::str::from_utf8(&self.text[start..end]).unwrap_or_default();
        match hloom_numerics::parse::parse_float::<f64>(token) {
            Ok(value) => {
                self.pos = end;
                Ok(value)
            }
            Err(_) => self.expected(what),
        }
    }

    /// The raw bytes between the quotes of the string that starts here, and whether they have escapes.
    fn raw_string(&mut self) -> Read<(&'a [u8], bool)> {
        let quote = self.peek();
        if quote != b'"' && quote != b'\'' {
            return self.expected("a string");
        }
        let start = self.pos;
        let mut pos = start + 1;
        let mut has_escapes = false;
        loop {
            let rest = self.text.get(pos..).unwrap_or_default();
            match memchr::memchr2(quote, b'\\', rest) {
                Some(n) if rest[n] == quote => {
                    self.pos = pos + n + 1;
                    return Ok((&self.text[start + 1..pos + n], has_escapes));
                }
                Some(n) => {
                    has_escapes = true;
                    pos += n + 2;
                }
                None => {
                    let span = Span::new(start, start + 1);
                    self.pos = self.text.len();
                    return self.fail(
                        Diagnostic::error(&codes::text::UNTERMINATED_STRING, "this string does not end")
                            .at(span)
                            .label("the string starts here"),
                    );
                }
            }
        }
    }

    /// A string in quotes of either kind, its escapes resolved.
    pub(super) fn string(&mut self) -> Read<Cow<'a, [u8]>> {
        self.skip();
        let start = self.pos;
        let (raw, has_escapes) = self.raw_string()?;
        if !has_escapes {
            return Ok(Cow::Borrowed(raw));
        }
        match unescape(raw) {
            Ok(bytes) => Ok(Cow::Owned(bytes)),
            Err(at) => {
                let at = start + 1 + at;
                let end = self.pos;
                let result = self.fail(
                    Diagnostic::error(&codes::text::BAD_ESCAPE, "this escape means nothing")
                        .at(Span::new(at, (at + 2).min(end)))
                        .label("unknown escape")
                        .help("write a backslash as \\\\"),
                );
                self.pos = end;
                result
            }
        }
    }

    /// A string that is text.
    pub(super) fn text_string(&mut self) -> Read<Cow<'a, str>> {
        self.skip();
        let start = self.pos;
        let text = match self.string()? {
            Cow::Borrowed(b) => match std::str::from_utf8(b) {
                Ok(s) => return Ok(Cow::Borrowed(s)),
                Err(_) => String::from_utf8_lossy(b).into_owned(),
            },
            Cow::Owned(b) => match String::from_utf8(b) {
                Ok(s) => return Ok(Cow::Owned(s)),
                Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
            },
        };
        let span = self.span_from(start);
        self.report(
            Diagnostic::warning(&codes::text::NOT_UTF8, "this string is not UTF-8")
                .at(span)
                .label("the bytes that are not were replaced"),
        );
        Ok(Cow::Owned(text))
    }

    /// Raw text in braces, strings respected: `{...}` with the braces.
    pub(super) fn braced_text(&mut self) -> Read<&'a [u8]> {
        self.skip();
        let start = self.pos;
        let mut depth = 0usize;
        let mut pos = start;
        while let Some(n) = self.text.get(pos..).and_then(|rest| memchr::memchr3(b'{', b'}', b'"', rest)) {
            pos += n;
            match self.text[pos] {
                b'{' => depth += 1,
                b'}' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        self.pos = pos + 1;
                        return Ok(&self.text[start..self.pos]);
                    }
                }
                _ => {
                    self.pos = pos;
                    self.raw_string()?;
                    pos = self.pos;
                    continue;
                }
            }
            pos += 1;
        }
        self.pos = self.text.len();
        self.fail(
            Diagnostic::error(&codes::text::UNEXPECTED_END, "the text ends before this brace is closed")
                .at(Span::new(start, start + 1))
                .label("opened here"),
        )
    }
}

/// Where the number token at `pos` ends: digits, a sign, a dot, an exponent, or inf or nan with a payload.
pub(super) fn number_end(text: &[u8], pos: usize) -> usize {
    let mut end = pos;
    while let Some(&b) = text.get(end) {
        let is_sign_of_exponent = b == b'+' && end > pos && matches!(text[end - 1], b'e' | b'E');
        if !(is_ident(b) || is_sign_of_exponent) {
            break;
        }
        end += 1;
    }
    let word = &text[pos..end];
    if matches!(word, b"nan" | b"-nan")
        && text.get(end) == Some(&b'(')
        && let Some(n) = text[end..].iter().take(40).position(|&b| b == b')')
    {
        end += n + 1;
    }
    end
}

/// Resolves C escapes; the error is the place of a wrong one.
fn unescape(raw: &[u8]) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(raw.len());
    let mut pos = 0;
    while let Some(&b) = raw.get(pos) {
        if b != b'\\' {
            let run = memchr::memchr(b'\\', &raw[pos..]).unwrap_or(raw.len() - pos);
            out.extend_from_slice(&raw[pos..pos + run]);
            pos += run;
            continue;
        }
        let start = pos;
        pos += 2;
        let escape = *raw.get(start + 1).ok_or(start)?;
        let plain = match escape {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'\\' | b'?' | b'\'' | b'"' => escape,
            b'0'..=b'7' => {
                let (value, len) = number_in(&raw[start + 1..], 8, 3);
                pos = start + 1 + len;
                u8::try_from(value).map_err(|_| start)?
            }
            b'x' | b'X' => {
                let (value, len) = number_in(&raw[start + 2..], 16, 8);
                if len == 0 {
                    return Err(start);
                }
                pos = start + 2 + len;
                u8::try_from(value).map_err(|_| start)?
            }
            b'u' | b'U' => {
                let wanted = if escape == b'u' { 4 } else { 8 };
                let (value, len) = number_in(&raw[start + 2..], 16, wanted);
                let c = char::from_u32(value).filter(|_| len == wanted).ok_or(start)?;
                pos = start + 2 + len;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return Err(start),
        };
        out.push(plain);
    }
    Ok(out)
}

/// The number of at most `longest` digits that `bytes` start with, and how many digits it has.
fn number_in(bytes: &[u8], radix: u32, longest: usize) -> (u32, usize) {
    let digits = bytes.iter().take(longest).map_while(|&b| (b as char).to_digit(radix));
    digits.fold((0u32, 0), |(value, len), d| (value.wrapping_mul(radix).wrapping_add(d), len + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_c() {
        assert_eq!(unescape(br#"a\n\t\\\"\x41\101\u00e9"#), Ok("a\n\t\\\"AA\u{e9}".as_bytes().to_vec()));
        assert_eq!(unescape(br"ab\q"), Err(2));
        assert_eq!(unescape(br"\x"), Err(0));
        assert_eq!(unescape(br"\777"), Err(0));
    }

    #[test]
    fn numbers_end_where_they_end() {
        for (text, len) in [("1.5e+3,", 6), ("-inf)", 4), ("nan(0x7f) ", 9), ("-nan,", 4), ("12}", 2), ("1+2", 1)] {
            assert_eq!(number_end(text.as_bytes(), 0), len, "{text}");
        }
    }
}

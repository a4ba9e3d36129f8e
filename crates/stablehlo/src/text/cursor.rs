//! The bytes of the text and the place where the reader stands: white space, comments, words, numbers and strings.
//!
//! `pos` never passes the end of the text, and a byte beyond it reads as 0, which nothing accepts.

use super::{Parse, Parser};
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::diagnostic::{Code, Diagnostic, Span};
use std::borrow::Cow;

/// Whether `b` can stand in a word.
pub(super) fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'.')
}

/// Whether `b` can stand in the name of a value.
fn is_value_name(b: u8) -> bool {
    is_word(b) || b == b'-'
}

impl<'a> Parser<'a> {
    /// Passes over white space and comments.
    #[inline]
    pub(super) fn skip(&mut self) {
        while let Some(&b) = self.text.get(self.pos) {
            match b {
                b' ' | b'\t' | b'\n' | b'\r' => self.pos += 1,
                b'/' if self.text.get(self.pos + 1) == Some(&b'/') => {
                    let rest = &self.text[self.pos..];
                    self.pos += memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                }
                _ => return,
            }
        }
    }

    /// The next byte that is not white space.
    #[inline]
    pub(super) fn peek(&mut self) -> u8 {
        self.skip();
        self.at(0)
    }

    /// The byte `n` further on, as it stands.
    pub(super) fn at(&self, n: usize) -> u8 {
        self.text.get(self.pos + n).copied().unwrap_or(0)
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.text[self.pos.min(self.text.len())..]
    }

    #[inline]
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        if self.peek() == byte {
            self.pos += 1;
            return true;
        }
        false
    }

    /// Passes over a word or mark if it comes next. A word must end there.
    pub(super) fn eat_text(&mut self, text: &str) -> bool {
        self.skip();
        if !self.rest().starts_with(text.as_bytes()) {
            return false;
        }
        let ends_in_word = text.bytes().last().is_some_and(is_word);
        if ends_in_word && is_word(self.at(text.len())) {
            return false;
        }
        self.pos += text.len();
        true
    }

    /// Whether a word or mark comes next.
    pub(super) fn is_next(&mut self, text: &str) -> bool {
        let at = self.pos;
        let found = self.eat_text(text);
        self.pos = at;
        found
    }

    pub(super) fn expect(&mut self, byte: u8) -> Parse<()> {
        if self.eat(byte) { Ok(()) } else { Err(self.expected(&format!("`{}`", byte as char))) }
    }

    pub(super) fn expect_text(&mut self, text: &str) -> Parse<()> {
        if self.eat_text(text) { Ok(()) } else { Err(self.expected(&format!("`{text}`"))) }
    }

    /// Something else should stand here.
    #[cold]
    pub(super) fn expected(&mut self, what: &str) -> Box<Diagnostic> {
        self.skip();
        let found = match self.at(0) {
            0 if self.pos >= self.text.len() => "the end of the text".to_owned(),
            _ => format!("`{}`", String::from_utf8_lossy(&self.text[self.pos..self.word_end(self.pos)])),
        };
        let (start, end) = (self.pos, self.word_end(self.pos));
        let message = format!("expected {what}, found {found}");
        Box::new(Diagnostic::error(&codes::SYNTAX, message).at(Span::new(start, end)).label(format!("expected {what}")))
    }

    /// An error about the bytes from `start` to here.
    #[cold]
    pub(super) fn error(&self, start: usize, code: &'static Code, message: impl Into<String>) -> Box<Diagnostic> {
        Box::new(Diagnostic::error(code, message).at(Span::new(start, self.pos.max(start + 1))))
    }

    /// Where what stands at `pos` ends: a word, or one mark.
    fn word_end(&self, pos: usize) -> usize {
        let rest = self.text.get(pos..).unwrap_or_default();
        let len = rest.iter().position(|&b| !is_word(b)).unwrap_or(rest.len());
        (pos + len.max(1)).min(self.text.len())
    }

    /// A word, if one comes next.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        let first = self.peek();
        if !(first.is_ascii_alphabetic() || first == b'_') {
            return None;
        }
        let rest = self.rest();
        let len = rest.iter().position(|&b| !is_word(b)).unwrap_or(rest.len());
        self.pos += len;
        std::str::from_utf8(&rest[..len]).ok()
    }

    pub(super) fn expect_word(&mut self, what: &str) -> Parse<&'a str> {
        self.word().ok_or_else(|| self.expected(what))
    }

    /// `%name`, without the `#n` of a group.
    pub(super) fn value_name(&mut self) -> Parse<&'a [u8]> {
        self.expect(b'%')?;
        let rest = self.rest();
        let len = rest.iter().position(|&b| !is_value_name(b)).unwrap_or(rest.len());
        if len == 0 {
            return Err(self.expected("the name of a value"));
        }
        self.pos += len;
        Ok(&rest[..len])
    }

    /// `@name` or `@"name"`.
    pub(super) fn symbol(&mut self) -> Parse<Cow<'a, [u8]>> {
        self.expect(b'@')?;
        if self.at(0) == b'"' {
            return self.string();
        }
        let rest = self.rest();
        let len = rest.iter().position(|&b| !is_value_name(b)).unwrap_or(rest.len());
        if len == 0 {
            return Err(self.expected("the name of a symbol"));
        }
        self.pos += len;
        Ok(Cow::Borrowed(&rest[..len]))
    }

    /// `"…"`.
    pub(super) fn string(&mut self) -> Parse<Cow<'a, [u8]>> {
        self.expect(b'"')?;
        let start = self.pos;
        let Some(plain) = memchr::memchr3(b'"', b'\\', b'\n', self.rest()) else {
            return Err(self.error(start - 1, &codes::SYNTAX, "a string does not end"));
        };
        if self.at(plain) == b'"' {
            self.pos += plain + 1;
            return Ok(Cow::Borrowed(&self.text[start..start + plain]));
        }
        let mut out = Vec::new();
        loop {
            match self.at(0) {
                b'"' => {
                    self.pos += 1;
                    return Ok(Cow::Owned(out));
                }
                b'\\' => {
                    let (a, b) = (self.at(1), self.at(2));
                    let hex = |c: u8| (c as char).to_digit(16);
                    match (a, hex(a), hex(b)) {
                        (b'n', ..) => out.push(b'\n'),
                        (b't', ..) => out.push(b'\t'),
                        (b'\\' | b'"', ..) => out.push(a),
                        (_, Some(high), Some(low)) => {
                            out.push((high * 16 + low) as u8);
                            self.pos += 1;
                        }
                        _ => {
                            let at = self.pos;
                            self.pos += 2;
                            return Err(self.error(at, &codes::SYNTAX, "an unknown escape in a string"));
                        }
                    }
                    self.pos += 2;
                }
                0 | b'\n' => return Err(self.error(start - 1, &codes::SYNTAX, "a string does not end")),
                b => {
                    out.push(b);
                    self.pos += 1;
                }
            }
        }
    }

    /// A name of UTF-8 text.
    pub(super) fn utf8(&self, start: usize, bytes: Cow<'a, [u8]>) -> Parse<Cow<'a, str>> {
        match bytes {
            Cow::Borrowed(b) => std::str::from_utf8(b).map(Cow::Borrowed).ok(),
            Cow::Owned(b) => String::from_utf8(b).map(Cow::Owned).ok(),
        }
        .ok_or_else(|| self.error(start, &codes::SYNTAX, "a name is not UTF-8"))
    }

    /// The digits of a number with its sign, `.` and exponent; `None` if none comes next.
    pub(super) fn number_token(&mut self) -> Option<&'a str> {
        self.skip();
        let rest = self.rest();
        let sign = usize::from(matches!(rest.first(), Some(b'-' | b'+')));
        if !rest.get(sign)?.is_ascii_digit() {
            return None;
        }
        let mut end = sign;
        if rest[sign..].starts_with(b"0x") && rest.get(sign + 2).is_some_and(u8::is_ascii_hexdigit) {
            end += 2;
            while rest.get(end).is_some_and(u8::is_ascii_hexdigit) {
                end += 1;
            }
        } else {
            while rest.get(end).is_some_and(u8::is_ascii_digit) {
                end += 1;
            }
            if rest.get(end) == Some(&b'.') {
                end += 1;
                while rest.get(end).is_some_and(u8::is_ascii_digit) {
                    end += 1;
                }
            }
            if matches!(rest.get(end), Some(b'e' | b'E')) {
                let sign = usize::from(matches!(rest.get(end + 1), Some(b'-' | b'+')));
                if rest.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
                    end += 1 + sign;
                    while rest.get(end).is_some_and(u8::is_ascii_digit) {
                        end += 1;
                    }
                }
            }
        }
        self.pos += end;
        std::str::from_utf8(&rest[..end]).ok()
    }

    /// A whole number.
    pub(super) fn integer(&mut self) -> Parse<i64> {
        let Some(token) = self.number_token() else { return Err(self.expected("a whole number")) };
        let start = self.pos - token.len();
        parse_integer(token).ok_or_else(|| self.error(start, &codes::SYNTAX, "the number is not whole, or too large"))
    }

    /// `[1, 2, 3]`.
    pub(super) fn integers(&mut self) -> Parse<Vec<i64>> {
        self.expect(b'[')?;
        let mut values = Vec::new();
        while !self.eat(b']') {
            if !values.is_empty() {
                self.expect(b',')?;
            }
            values.push(self.integer()?);
        }
        Ok(values)
    }
}

/// The number that a token writes; unsigned ones keep their bits.
pub(super) fn parse_integer(token: &str) -> Option<i64> {
    let (negative, digits) = match token.as_bytes().first()? {
        b'-' => (true, &token[1..]),
        b'+' => (false, &token[1..]),
        _ => (false, token),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse::<u64>().ok()?,
    };
    if negative { (value <= 1 << 63).then(|| (value as i64).wrapping_neg()) } else { Some(value as i64) }
}

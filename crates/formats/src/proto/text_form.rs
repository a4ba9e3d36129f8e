//! Protos in protobuf's text form, as some tools write snapshots: turned into the bytes that the readers take.
//!
//! The text names fields where the bytes number them; `text_schema.txt` has the numbers. A field that is not there is an
//! error that points at it, since nobody could say what the program means without it.

use super::wire::{write_bytes, write_varint};
use hloom_ir::diagnostic::codes::proto as codes;
use hloom_ir::diagnostic::{Blame, Diagnostic, Span};
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

/// As deep as protobuf lets messages nest.
const MAX_DEPTH: usize = 100;

/// What a field holds.
#[derive(Clone, Copy, Debug)]
enum FieldKind {
    Bytes,
    Integer,
    Float,
    Double,
    /// By the name of its type.
    Message(&'static str),
    Enumeration(&'static str),
    Skipped,
}

/// The fields of messages and the values of enumerations, by the names of both.
struct Schema {
    fields: FxHashMap<(&'static str, &'static str), (u32, FieldKind)>,
    values: FxHashMap<(&'static str, &'static str), u64>,
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let mut statements: Vec<Vec<&'static str>> = Vec::new();
    for line in include_str!("text_schema.txt").lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        match statements.last_mut() {
            Some(last) if line.starts_with(' ') => last.extend(line.split_whitespace()),
            _ => statements.push(line.split_whitespace().collect()),
        }
    }
    let is_enumeration = |name: &str| statements.iter().any(|s| s[0] == "enum" && s[1] == name);
    let mut schema = Schema { fields: FxHashMap::default(), values: FxHashMap::default() };
    for statement in &statements {
        if statement[0] == "enum" {
            for (name, value) in statement[2..].iter().filter_map(|v| v.split_once('=')) {
                schema.values.insert((statement[1], name), value.parse::<i64>().unwrap_or(0) as u64);
            }
            continue;
        }
        for (name, rest) in statement[1..].iter().filter_map(|f| f.split_once('=')) {
            let Some((number, kind)) = rest.split_once(':') else { continue };
            let kind = match kind {
                "s" => FieldKind::Bytes,
                "i" => FieldKind::Integer,
                "f" => FieldKind::Float,
                "d" => FieldKind::Double,
                "-" => FieldKind::Skipped,
                name if is_enumeration(name) => FieldKind::Enumeration(name),
                name => FieldKind::Message(name),
            };
            schema.fields.insert((statement[0], name), (number.parse().unwrap_or(0), kind));
        }
    }
    schema
});

/// The messages that a file may be, by a field that only this one begins with.
const ROOTS: [(&str, &str); 7] = [
    ("hlo", "HloSnapshot"),
    ("arguments", "HloSnapshot"),
    ("execution_platform", "HloSnapshot"),
    ("hlo_module", "HloUnoptimizedSnapshot"),
    ("partitions", "HloUnoptimizedSnapshot"),
    ("name", "HloModuleProto"),
    ("computations", "HloModuleProto"),
];

/// Whether these bytes are the text form of a module or snapshot.
pub fn is_text_form(bytes: &[u8]) -> bool {
    root(bytes).is_some()
}

fn root(bytes: &[u8]) -> Option<&'static str> {
    let mut cursor = Cursor { bytes, at: 0 };
    let Token::Word(first) = cursor.next().ok()?.0 else { return None };
    let (_, message) = ROOTS.iter().find(|(field, _)| field.as_bytes() == first)?;
    let then = cursor.next().ok()?.0;
    matches!(then, Token::Mark(b':' | b'{' | b'<')).then_some(message)
}

/// The bytes of the message whose text form this is.
pub fn from_text_form(text: &[u8]) -> Result<Vec<u8>, Diagnostic> {
    let root = root(text).ok_or_else(|| error(Span::new(0, text.len().min(1)), "this is no module and no snapshot"))?;
    let mut cursor = Cursor { bytes: text, at: 0 };
    // The messages that are open: what they are, their number in the one around them, and what closes them.
    let mut open: Vec<(&'static str, u32, u8, Vec<u8>)> = vec![(root, 0, 0, Vec::new())];
    loop {
        let (token, span) = cursor.next()?;
        let depth = open.len();
        let (message, _, closes, out) = open.last_mut().ok_or_else(|| error(span, "there is no message open here"))?;
        match token {
            Token::End if depth == 1 => return Ok(std::mem::take(out)),
            Token::End => return Err(error(span, &format!("the text ends inside a {message}"))),
            Token::Mark(b',' | b';') => {}
            Token::Mark(mark) if mark == *closes => {
                let (_, number, _, inner) = open.pop().unwrap_or(("", 0, 0, Vec::new()));
                if let Some((_, _, _, out)) = open.last_mut() {
                    write_bytes(out, number, &inner);
                }
            }
            Token::Word(name) => {
                let name = String::from_utf8_lossy(name).into_owned();
                let found = SCHEMA.fields.get(&(*message, name.as_str())).or_else(|| {
                    // A module with its buffer assignment begins as an unoptimised snapshot does.
                    let other = if *message == "HloUnoptimizedSnapshot" { "HloProto" } else { return None };
                    SCHEMA.fields.get(&(other, name.as_str()))
                });
                let &(number, kind) =
                    found.ok_or_else(|| error(span, &format!("{message} has no field `{name}` that is known")))?;
                match cursor.opening()? {
                    Some(closing) => {
                        if depth >= MAX_DEPTH {
                            return Err(Diagnostic::error(&codes::TOO_DEEP, "messages nest too deeply").at(span));
                        }
                        match kind {
                            FieldKind::Message(inner) => open.push((inner, number, closing, Vec::new())),
                            FieldKind::Skipped => cursor.skip_message(closing)?,
                            _ => return Err(error(span, &format!("`{name}` is not a message"))),
                        }
                    }
                    None => cursor.values(&name, number, kind, out)?,
                }
            }
            _ => return Err(error(span, &format!("a field of {message} should stand here"))),
        }
    }
}

fn error(span: Span, message: &str) -> Diagnostic {
    Diagnostic::error(&codes::DAMAGED, message).blame(Blame::Data).at(span)
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Token<'a> {
    /// A name, or a number.
    Word(&'a [u8]),
    /// Quoted text, with its quotes.
    Text(&'a [u8]),
    Mark(u8),
    End,
}

#[derive(Clone, Copy)]
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The next token and where it stands.
    fn next(&mut self) -> Result<(Token<'a>, Span), Diagnostic> {
        loop {
            match self.bytes.get(self.at) {
                Some(b) if b.is_ascii_whitespace() => self.at += 1,
                Some(b'#') => self.at = self.find(|b| b == b'\n'),
                _ => break,
            }
        }
        let start = self.at;
        let token = match self.bytes.get(start).copied() {
            None => Token::End,
            Some(quote @ (b'"' | b'\'')) => {
                self.at += 1;
                loop {
                    match self.bytes.get(self.at) {
                        None | Some(b'\n') => return Err(error(Span::new(start, self.at), "the text does not end")),
                        Some(b'\\') => self.at += 2,
                        Some(&b) => {
                            self.at += 1;
                            if b == quote {
                                break;
                            }
                        }
                    }
                }
                Token::Text(&self.bytes[start..self.at])
            }
            Some(b) if is_word(b) => {
                self.at = self.find(|b| !is_word(b));
                Token::Word(&self.bytes[start..self.at])
            }
            Some(b) => {
                self.at += 1;
                Token::Mark(b)
            }
        };
        Ok((token, Span::new(start, self.at)))
    }

    /// Where a byte that is meant stands, or the end.
    fn find(&self, is_meant: impl Fn(u8) -> bool) -> usize {
        let rest = &self.bytes[self.at..];
        self.at + rest.iter().position(|&b| is_meant(b)).unwrap_or(rest.len())
    }

    /// What closes the message that is opened here, after a colon or without; `None` if there is none.
    fn opening(&mut self) -> Result<Option<u8>, Diagnostic> {
        let mut ahead = *self;
        let mut token = ahead.next()?.0;
        if token == Token::Mark(b':') {
            token = ahead.next()?.0;
        }
        let closing = match token {
            Token::Mark(b'{') => b'}',
            Token::Mark(b'<') => b'>',
            _ => return Ok(None),
        };
        *self = ahead;
        Ok(Some(closing))
    }

    /// Goes on behind a message that nobody needs.
    fn skip_message(&mut self, closing: u8) -> Result<(), Diagnostic> {
        let mut open = vec![closing];
        while let Some(&last) = open.last() {
            match self.next()? {
                (Token::Mark(b'{'), _) => open.push(b'}'),
                (Token::Mark(b'<'), _) => open.push(b'>'),
                (Token::Mark(mark), _) if mark == last => _ = open.pop(),
                (Token::End, span) => return Err(error(span, "the text ends inside a message")),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the value of a field, or each of a list.
    fn values(&mut self, name: &str, number: u32, kind: FieldKind, out: &mut Vec<u8>) -> Result<(), Diagnostic> {
        match self.next()? {
            (Token::Mark(b':'), _) => {}
            (_, span) => return Err(error(span, &format!("the value of `{name}` should stand here"))),
        }
        let mut ahead = *self;
        if ahead.next()?.0 != Token::Mark(b'[') {
            return self.value(name, number, kind, out);
        }
        *self = ahead;
        loop {
            let mut ahead = *self;
            match ahead.next()?.0 {
                Token::Mark(b']') => {
                    *self = ahead;
                    return Ok(());
                }
                Token::Mark(b',') => *self = ahead,
                _ => self.value(name, number, kind, out)?,
            }
        }
    }

    fn value(&mut self, name: &str, number: u32, kind: FieldKind, out: &mut Vec<u8>) -> Result<(), Diagnostic> {
        let (token, span) = self.next()?;
        let wrong = || error(span, &format!("this is no value of `{name}`"));
        let tag = |out: &mut Vec<u8>, wire: u64| write_varint(out, u64::from(number) << 3 | wire);
        match (kind, token) {
            (FieldKind::Skipped, _) => {}
            (FieldKind::Bytes, Token::Text(quoted)) => {
                let mut bytes = unquoted(quoted).ok_or_else(wrong)?;
                // Texts one after another are one.
                let mut ahead = *self;
                while let (Token::Text(more), _) = ahead.next()? {
                    bytes.extend(unquoted(more).ok_or_else(wrong)?);
                    *self = ahead;
                }
                write_bytes(out, number, &bytes);
            }
            (FieldKind::Integer | FieldKind::Enumeration(_), Token::Word(word)) => {
                let word = std::str::from_utf8(word).map_err(|_| wrong())?;
                let named = match kind {
                    FieldKind::Enumeration(of) => SCHEMA.values.get(&(of, word)).copied(),
                    _ => ["false", "true"].iter().position(|w| *w == word).map(|n| n as u64),
                };
                let value = named.or_else(|| integer(word)).ok_or_else(wrong)?;
                tag(out, 0);
                write_varint(out, value);
            }
            (FieldKind::Float, Token::Word(word)) => {
                let value = float(word).ok_or_else(wrong)?;
                tag(out, 5);
                out.extend((value as f32).to_le_bytes());
            }
            (FieldKind::Double, Token::Word(word)) => {
                let value = float(word).ok_or_else(wrong)?;
                tag(out, 1);
                out.extend(value.to_le_bytes());
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'.')
}

/// An integer in two's complement.
fn integer(word: &str) -> Option<u64> {
    let (negative, digits) = word.strip_prefix('-').map_or((false, word), |rest| (true, rest));
    let (digits, radix) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    Some(if negative { magnitude.wrapping_neg() } else { magnitude })
}

fn float(word: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(word).ok()?;
    let unsuffixed = || text.strip_suffix(['f', 'F'])?.parse().ok();
    text.parse().ok().or_else(unsuffixed)
}

/// The bytes of a quoted text.
fn unquoted(quoted: &[u8]) -> Option<Vec<u8>> {
    let inner = quoted.get(1..quoted.len().checked_sub(1)?)?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.iter().copied().peekable();
    while let Some(b) = rest.next() {
        if b != b'\\' {
            bytes.push(b);
            continue;
        }
        let escape = rest.next()?;
        let mut digits = |radix: u32, most: usize, mut value: u32| {
            for _ in 0..most {
                let Some(digit) = rest.peek().and_then(|&b| char::from(b).to_digit(radix)) else { break };
                value = value * radix + digit;
                rest.next();
            }
            value
        };
        let byte = match escape {
            b'n' => u32::from(b'\n'),
            b't' => u32::from(b'\t'),
            b'r' => u32::from(b'\r'),
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'v' => 11,
            b'x' | b'X' => digits(16, 2, 0),
            b'0'..=b'7' => digits(8, 2, u32::from(escape - b'0')),
            b'\\' | b'\'' | b'"' | b'?' => u32::from(escape),
            _ => return None,
        };
        bytes.push(u8::try_from(byte).ok()?);
    }
    Some(bytes)
}

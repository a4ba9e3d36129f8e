//! The attributes of a custom call: a dictionary in the text of MLIR, as `{uplo = 76 : ui8, name = "x"}`.

use super::abi::{self, List, Scalar, Span, attribute_type};
use crate::status::Status;
use std::ffi::c_void;

/// A value of an attribute; types are numbered as by XLA.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Attribute {
    /// A number: its type, and its bytes.
    Scalar(i32, Vec<u8>),
    /// Numbers: their type, how many, and their bytes.
    List(i32, usize, Vec<u8>),
    /// Text.
    String(Vec<u8>),
    /// Attributes by name, in the order of their names.
    Dictionary(Vec<(String, Attribute)>),
}

/// Dictionaries nest no deeper.
const MAX_DEPTH: usize = 16;

/// Reads a dictionary; no text is an empty one.
fn read(text: &[u8]) -> Result<Vec<(String, Attribute)>, Status> {
    let text = String::from_utf8_lossy(text);
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut parser = Parser { rest: &text };
    match parser.value(0) {
        Some(Attribute::Dictionary(entries)) if parser.rest.trim().is_empty() => Ok(entries),
        _ => Err(Status::invalid(format!("the attributes of a custom call are wrong before {:?}", parser.rest))),
    }
}

struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    fn eat(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(text)?;
        Some(())
    }

    fn sees(&self, text: &str) -> bool {
        self.rest.trim_start().starts_with(text)
    }

    fn word(&mut self) -> Option<&'t str> {
        let rest = self.rest.trim_start();
        let is_end = |c: char| c.is_whitespace() || "=,:<>[]{}\"".contains(c);
        let end = rest.find(is_end).unwrap_or(rest.len());
        self.rest = &rest[end..];
        (end > 0).then(|| &rest[..end])
    }

    /// Text in quotes; any byte may be written as two digits of base 16.
    fn string(&mut self) -> Option<Vec<u8>> {
        self.eat("\"")?;
        let bytes = self.rest.as_bytes();
        let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
        let mut out = Vec::new();
        let mut at = 0;
        while *bytes.get(at)? != b'"' {
            let (byte, len) = match (bytes[at], bytes.get(at + 1)) {
                (b'\\', Some(b'n')) => (b'\n', 2),
                (b'\\', Some(b't')) => (b'\t', 2),
                (b'\\', Some(&escaped @ (b'"' | b'\\'))) => (escaped, 2),
                (b'\\', _) => ((digit(at + 1)? * 16 + digit(at + 2)?) as u8, 3),
                (byte, _) => (byte, 1),
            };
            out.push(byte);
            at += len;
        }
        self.rest = self.rest.get(at + 1..)?;
        Some(out)
    }

    fn value(&mut self, depth: usize) -> Option<Attribute> {
        if depth > MAX_DEPTH {
            return None;
        }
        if self.sees("\"") {
            return self.string().map(Attribute::String);
        }
        if self.eat("{").is_some() {
            return self.dictionary(depth);
        }
        if self.eat("array<").is_some() {
            let ty = self.word()?;
            let items = if self.eat(":").is_some() { self.words(">")? } else { self.eat(">").map(|()| Vec::new())? };
            return list(ty, &items);
        }
        if self.eat("dense<").is_some() {
            let items = if self.eat("[").is_some() {
                let items = self.words("]")?;
                self.eat(">")?;
                items
            } else {
                self.words(">")?
            };
            self.eat(":")?;
            self.eat("tensor<")?;
            let ty = self.word()?;
            self.eat(">")?;
            let (count, ty) = ty.rsplit_once('x').map_or((1, ty), |(n, ty)| (n.parse().unwrap_or(0), ty));
            let items = if items.len() == 1 && (2..1 << 20).contains(&count) { vec![items[0]; count] } else { items };
            return list(ty, &items);
        }
        if self.eat("[").is_some() {
            return self.items(depth);
        }
        match self.word()? {
            word @ ("true" | "false") => Some(Attribute::Scalar(1, vec![u8::from(word == "true")])),
            "unit" => Some(Attribute::Dictionary(Vec::new())),
            number => {
                let ty = if self.eat(":").is_some() { self.word()? } else { "i64" };
                scalar(ty, number).map(|(dtype, bytes)| Attribute::Scalar(dtype, bytes))
            }
        }
    }

    /// Numbers of one type up to a bracket.
    fn items(&mut self, depth: usize) -> Option<Attribute> {
        let mut all: Option<(i32, usize, Vec<u8>)> = None;
        while self.eat("]").is_none() {
            let Attribute::Scalar(dtype, bytes) = self.value(depth + 1)? else { return None };
            let (of, count, list) = all.get_or_insert((dtype, 0, Vec::new()));
            if *of != dtype {
                return None;
            }
            *count += 1;
            list.extend(bytes);
            let _ = self.eat(",");
        }
        let (dtype, count, bytes) = all.unwrap_or((5, 0, Vec::new()));
        Some(Attribute::List(dtype, count, bytes))
    }

    fn dictionary(&mut self, depth: usize) -> Option<Attribute> {
        let mut entries = Vec::new();
        while self.eat("}").is_none() {
            let name = if self.sees("\"") { String::from_utf8(self.string()?).ok()? } else { self.word()?.to_owned() };
            let given = self.eat("=").is_some();
            let value = if given { self.value(depth + 1)? } else { Attribute::Dictionary(Vec::new()) };
            entries.push((name, value));
            if self.eat(",").is_none() && !self.sees("}") {
                return None;
            }
        }
        // Handlers look attributes up by their place in the order of names.
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Some(Attribute::Dictionary(entries))
    }

    /// Words between commas up to `end`.
    fn words(&mut self, end: &str) -> Option<Vec<&'t str>> {
        let mut words = Vec::new();
        while self.eat(end).is_none() {
            words.push(self.word()?);
            let _ = self.eat(",");
        }
        Some(words)
    }
}

/// The number of a type, and the bytes of a value of it.
fn scalar(ty: &str, text: &str) -> Option<(i32, Vec<u8>)> {
    let integer = || match text {
        "true" => Some(1),
        "false" => Some(0),
        _ => text.parse::<i128>().ok(),
    };
    let float = || match text.strip_prefix("0x") {
        Some(digits) if ty == "f32" => u32::from_str_radix(digits, 16).ok().map(|b| f64::from(f32::from_bits(b))),
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(f64::from_bits),
        None => text.parse::<f64>().ok(),
    };
    Some(match ty {
        "i1" => (1, vec![u8::from(integer()? != 0)]),
        "i8" | "si8" => (2, (integer()? as i8).to_le_bytes().to_vec()),
        "i16" | "si16" => (3, (integer()? as i16).to_le_bytes().to_vec()),
        "i32" | "si32" => (4, (integer()? as i32).to_le_bytes().to_vec()),
        "i64" | "si64" | "index" => (5, (integer()? as i64).to_le_bytes().to_vec()),
        "ui8" => (6, (integer()? as u8).to_le_bytes().to_vec()),
        "ui16" => (7, (integer()? as u16).to_le_bytes().to_vec()),
        "ui32" => (8, (integer()? as u32).to_le_bytes().to_vec()),
        "ui64" => (9, (integer()? as u64).to_le_bytes().to_vec()),
        "f32" => (11, (float()? as f32).to_le_bytes().to_vec()),
        "f64" => (12, float()?.to_le_bytes().to_vec()),
        _ => return None,
    })
}

fn list(ty: &str, items: &[&str]) -> Option<Attribute> {
    let (dtype, _) = scalar(ty, "0")?;
    let mut bytes = Vec::new();
    for item in items {
        bytes.extend(scalar(ty, item)?.1);
    }
    Some(Attribute::List(dtype, items.len(), bytes))
}

/// The attributes of one call, read once for all of its runs.
pub(super) struct Attributes {
    entries: Vec<(String, Attribute)>,
    encoded: Encoded,
}

// SAFETY: what the pointers point to is owned by the same value, and never changed.
unsafe impl Send for Attributes {}
// SAFETY: likewise.
unsafe impl Sync for Attributes {}

impl Attributes {
    /// Of the text of a dictionary.
    pub(super) fn read(text: &[u8]) -> Result<Attributes, Status> {
        let entries = read(text)?;
        // Names and values are on the heap, where they stay when the entries are moved.
        let encoded = Encoded::new(&entries);
        Ok(Attributes { entries, encoded })
    }

    /// The attribute of that name.
    pub(super) fn get(&self, name: &str) -> Option<&Attribute> {
        self.entries.iter().find(|(other, _)| other == name).map(|(_, attribute)| attribute)
    }

    /// As a handler takes them.
    pub(super) fn encoded(&self) -> abi::Attributes {
        self.encoded.attributes()
    }
}

/// Attributes as C has them, with what the pointers point to; boxed, since addresses must stay.
#[derive(Default)]
struct Encoded {
    types: Vec<i32>,
    names: Vec<*const Span>,
    values: Vec<*const c_void>,
    kept: Vec<Kept>,
}

/// What a pointer points to; in a box each, since addresses must stay.
#[allow(dead_code, reason = "only kept, for the pointers to it")]
enum Kept {
    Span(Box<Span>),
    Scalar(Box<Scalar>),
    List(Box<List>),
    Dictionary(Encoded, Box<abi::Attributes>),
}

impl Encoded {
    /// Of attributes that stay where they are for as long as this is used.
    fn new(entries: &[(String, Attribute)]) -> Encoded {
        let mut encoded = Encoded::default();
        for (name, value) in entries {
            let name = encoded.span(name.as_bytes());
            encoded.names.push(name);
            let (ty, value): (i32, *const c_void) = match value {
                Attribute::Scalar(dtype, bytes) => {
                    let scalar = Box::new(Scalar { dtype: *dtype, value: bytes.as_ptr().cast() });
                    let at = (&raw const *scalar).cast();
                    encoded.kept.push(Kept::Scalar(scalar));
                    (attribute_type::SCALAR, at)
                }
                Attribute::List(dtype, size, bytes) => {
                    let list = Box::new(List { dtype: *dtype, size: *size, data: bytes.as_ptr().cast() });
                    let at = (&raw const *list).cast();
                    encoded.kept.push(Kept::List(list));
                    (attribute_type::ARRAY, at)
                }
                Attribute::String(text) => (attribute_type::STRING, encoded.span(text).cast()),
                Attribute::Dictionary(entries) => {
                    let inner = Encoded::new(entries);
                    let attributes = Box::new(inner.attributes());
                    let at = (&raw const *attributes).cast();
                    encoded.kept.push(Kept::Dictionary(inner, attributes));
                    (attribute_type::DICTIONARY, at)
                }
            };
            encoded.types.push(ty);
            encoded.values.push(value);
        }
        encoded
    }

    fn span(&mut self, bytes: &[u8]) -> *const Span {
        let span = Box::new(Span { start: bytes.as_ptr(), len: bytes.len() });
        let at = &raw const *span;
        self.kept.push(Kept::Span(span));
        at
    }

    fn attributes(&self) -> abi::Attributes {
        abi::Attributes {
            struct_size: size_of::<abi::Attributes>(),
            extension_start: std::ptr::null_mut(),
            size: self.types.len() as i64,
            types: self.types.as_ptr(),
            names: self.names.as_ptr(),
            attributes: self.values.as_ptr(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_of_all_kinds_is_read_in_the_order_of_names() {
        let text =
            br#"{uplo = 76 : ui8, deep = {"a b" = true}, name = "x\22\0A", list = array<i32: 1, -2>, f = 1.5 : f32}"#;
        let read = read(text).unwrap();
        let names: Vec<&str> = read.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["deep", "f", "list", "name", "uplo"]);
        assert_eq!(read[0].1, Attribute::Dictionary(vec![("a b".into(), Attribute::Scalar(1, vec![1]))]));
        assert_eq!(read[1].1, Attribute::Scalar(11, 1.5f32.to_le_bytes().to_vec()));
        assert_eq!(read[2].1, Attribute::List(4, 2, [1i32, -2].iter().flat_map(|n| n.to_le_bytes()).collect()));
        assert_eq!(read[3].1, Attribute::String(b"x\"\n".to_vec()));
        assert_eq!(read[4].1, Attribute::Scalar(6, vec![76]));
    }

    #[test]
    fn what_is_no_dictionary_is_an_error() {
        for text in ["{a = }", "{a", "{a = \"x}", "{a = 1 : what}", "[1, 2]", "{a = 1 b = 2}", &"{a=".repeat(40)] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(read(b"").unwrap(), []);
    }
}

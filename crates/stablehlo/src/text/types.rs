//! Types in MLIR text.

use super::{Parse, Parser};
use crate::mlir::{DYNAMIC, FloatKind, Signedness, Type, TypeId};
use hloom_ir::diagnostic::codes::mlir as codes;
use smallvec::SmallVec;
use std::borrow::Cow;

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

impl<'a> Parser<'a> {
    /// Adds a type, or finds it if its text was read before.
    fn remember(&mut self, start: usize, ty: Type<'a>) -> TypeId {
        let id = self.m.add_type(ty);
        self.type_cache.insert(&self.text[start..self.pos], id);
        id
    }

    /// Where the `<…>` that starts at `pos` ends; `None` if it does not. Arrows do not count as brackets.
    pub(super) fn angle_end(&self, pos: usize) -> Option<usize> {
        let mut depth = 0usize;
        let mut at = pos;
        let mut previous = 0;
        while let Some(&b) = self.text.get(at) {
            match b {
                b'<' => depth += 1,
                b'>' if previous == b'-' => {}
                b'>' => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                b'"' => {
                    at += 1;
                    while *self.text.get(at)? != b'"' {
                        at += if self.text[at] == b'\\' { 2 } else { 1 };
                    }
                }
                _ => {}
            }
            previous = b;
            at += 1;
        }
        None
    }

    pub(super) fn parse_type(&mut self) -> Parse<TypeId> {
        self.skip();
        let start = self.pos;
        match self.at(0) {
            b'(' => {
                let (inputs, results) = self.function_type()?;
                Ok(self.m.add_type(Type::Function(inputs, results)))
            }
            b'!' => self.dialect_type(),
            _ => {
                let Some(word) = self.word() else { return Err(self.expected("a type")) };
                if self.at(0) != b'<' {
                    if let Some(&id) = self.type_cache.get(word.as_bytes()) {
                        return Ok(id);
                    }
                    return match simple_type(word.as_bytes()) {
                        Some(ty) => Ok(self.remember(start, ty)),
                        None => {
                            self.pos = start;
                            Err(self.expected("a type"))
                        }
                    };
                }
                let Some(end) = self.angle_end(self.pos) else {
                    return Err(self.error(start, &codes::SYNTAX, "a type does not end"));
                };
                if let Some(&id) = self.type_cache.get(&self.text[start..end]) {
                    self.pos = end;
                    return Ok(id);
                }
                self.enter(start)?;
                self.pos += 1;
                let ty = self.bracketed_type(word, start, end)?;
                self.leave();
                Ok(self.remember(start, ty))
            }
        }
    }

    /// What stands in the brackets of `word<…>`, which end at `end`.
    fn bracketed_type(&mut self, word: &str, start: usize, end: usize) -> Parse<Type<'a>> {
        Ok(match word {
            "tensor" => {
                if self.peek() == b'*' {
                    self.pos += 1;
                    self.expect_text("x").or_else(|_| self.expect(b'x'))?;
                    let element = self.parse_type()?;
                    self.expect(b'>')?;
                    return Ok(Type::UnrankedTensor(element));
                }
                let dims = self.dimensions()?;
                let element = self.parse_type()?;
                let encoding = if self.eat(b',') { Some(self.attribute()?) } else { None };
                self.expect(b'>')?;
                Type::Tensor { dims, element, encoding }
            }
            "memref" => {
                let dims = self.dimensions()?;
                let element = self.parse_type()?;
                if self.eat(b',') {
                    self.pos = end - 1;
                }
                self.expect(b'>')?;
                Type::MemRef(dims, element)
            }
            "complex" => {
                let part = self.parse_type()?;
                self.expect(b'>')?;
                Type::Complex(part)
            }
            "tuple" => {
                let mut items = Vec::new();
                while !self.eat(b'>') {
                    if !items.is_empty() {
                        self.expect(b',')?;
                    }
                    items.push(self.parse_type()?);
                }
                Type::Tuple(items)
            }
            "vector" => {
                self.pos = end;
                Type::Opaque(Cow::Borrowed(&self.text[start..end]))
            }
            _ => {
                self.pos = start;
                return Err(self.expected("a type"));
            }
        })
    }

    /// `2x?x3x`, up to the element type.
    fn dimensions(&mut self) -> Parse<SmallVec<[i64; 4]>> {
        let mut dims = SmallVec::new();
        loop {
            self.skip();
            let start = self.pos;
            if self.at(0) == b'?' && self.at(1) == b'x' {
                self.pos += 2;
                dims.push(DYNAMIC);
                continue;
            }
            let digits = self.rest().iter().take_while(|b| b.is_ascii_digit()).count();
            if digits == 0 || self.at(digits) != b'x' {
                return Ok(dims);
            }
            self.pos += digits;
            let text = std::str::from_utf8(&self.text[start..self.pos]).unwrap_or("");
            let Ok(size) = text.parse::<i64>() else {
                return Err(self.error(start, &codes::SYNTAX, "the size of a dimension does not fit in 64 bits"));
            };
            dims.push(size);
            self.pos += 1;
        }
    }

    /// `!alias` or `!dialect.name<…>`.
    fn dialect_type(&mut self) -> Parse<TypeId> {
        let start = self.pos;
        self.pos += 1;
        let name = self.expect_word("the name of a type")?;
        if !name.contains('.') && self.at(0) != b'<' {
            return match self.type_aliases.get(name) {
                Some(&id) => Ok(id),
                None => Err(self.error(start, &codes::UNKNOWN_ALIAS, format!("the alias !{name} is not defined"))),
            };
        }
        let mut end = self.pos;
        if self.at(0) == b'<' {
            end = match self.angle_end(self.pos) {
                Some(end) => end,
                None => return Err(self.error(start, &codes::SYNTAX, "a type does not end")),
            };
        }
        if let Some(&id) = self.type_cache.get(&self.text[start..end]) {
            self.pos = end;
            return Ok(id);
        }
        let whole = Cow::Borrowed(&self.text[start..end]);
        let ty = match name {
            "stablehlo.token" | "mhlo.token" => Type::Token,
            "stablehlo.future" => {
                self.enter(start)?;
                self.expect(b'<')?;
                let mut items = Vec::new();
                while !self.eat(b'>') {
                    if !items.is_empty() {
                        self.expect(b',')?;
                    }
                    items.push(self.parse_type()?);
                }
                self.leave();
                Type::Future(items)
            }
            _ if name.starts_with("quant.") => Type::Quantized(whole),
            _ => Type::Opaque(whole),
        };
        self.pos = end;
        Ok(self.remember(start, ty))
    }

    /// `(T, T) -> T` or `(T) -> (T, T)`.
    pub(super) fn function_type(&mut self) -> Parse<(Vec<TypeId>, Vec<TypeId>)> {
        self.skip();
        self.enter(self.pos)?;
        let inputs = self.parenthesized_types()?;
        self.expect_text("->")?;
        let results = self.result_types()?;
        self.leave();
        Ok((inputs, results))
    }

    /// `T` or `(T, T)`.
    pub(super) fn result_types(&mut self) -> Parse<Vec<TypeId>> {
        if self.peek() == b'(' {
            return self.parenthesized_types();
        }
        Ok(vec![self.parse_type()?])
    }

    fn parenthesized_types(&mut self) -> Parse<Vec<TypeId>> {
        self.expect(b'(')?;
        let mut types = Vec::new();
        while !self.eat(b')') {
            if !types.is_empty() {
                self.expect(b',')?;
            }
            types.push(self.parse_type()?);
        }
        Ok(types)
    }

    /// The type `tensor<element>`, the scalar of the tensor type `id`.
    pub(super) fn scalar_of(&mut self, id: TypeId) -> TypeId {
        match self.m.ty(id) {
            Type::Tensor { element, .. } => {
                let element = *element;
                self.m.add_type(Type::Tensor { dims: SmallVec::new(), element, encoding: None })
            }
            _ => id,
        }
    }
}

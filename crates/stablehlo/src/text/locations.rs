//! Locations in MLIR text.
//!
//! Aliases of locations may be used before they are defined: a use makes an entry, the definition fills it.

use super::{Parse, Parser};
use crate::mlir::{Attr, AttrId, FileRange, Location};
use hloom_ir::diagnostic::codes::mlir as codes;
use std::borrow::Cow;

impl<'a> Parser<'a> {
    /// `loc(…)`, if it comes next.
    pub(super) fn optional_location(&mut self) -> Parse<Option<AttrId>> {
        if self.peek() != b'l' || !self.is_next("loc") {
            return Ok(None);
        }
        self.location().map(Some)
    }

    /// `loc(…)`.
    pub(super) fn location(&mut self) -> Parse<AttrId> {
        self.expect_text("loc")?;
        self.expect(b'(')?;
        let id = self.location_body()?;
        self.expect(b')')?;
        Ok(id)
    }

    fn location_body(&mut self) -> Parse<AttrId> {
        self.skip();
        let start = self.pos;
        self.enter(start)?;
        let location = match self.at(0) {
            b'#' => {
                self.pos += 1;
                let name = self.expect_word("the name of a location")?;
                self.leave();
                return Ok(self.location_alias(name));
            }
            b'"' => self.named_or_file()?,
            _ => {
                let word = self.expect_word("a location")?;
                match word {
                    "unknown" => Location::Unknown,
                    "callsite" => {
                        self.expect(b'(')?;
                        let callee = self.location_body()?;
                        self.expect_text("at")?;
                        let caller = self.location_body()?;
                        self.expect(b')')?;
                        Location::CallSite { callee, caller }
                    }
                    "fused" => {
                        if self.eat(b'<') {
                            self.attribute()?;
                            self.expect(b'>')?;
                        }
                        self.expect(b'[')?;
                        Location::Fused(self.list_until(b']', Self::location_body)?)
                    }
                    "loc" => {
                        self.expect(b'(')?;
                        let id = self.location_body()?;
                        self.expect(b')')?;
                        self.leave();
                        return Ok(id);
                    }
                    _ => {
                        self.pos = start;
                        return Err(self.expected("a location"));
                    }
                }
            }
        };
        self.leave();
        Ok(self.m.add_attr(Attr::Location(location)))
    }

    fn named_or_file(&mut self) -> Parse<Location<'a>> {
        let text = self.string()?;
        if self.peek() == b':' {
            self.pos += 1;
            let line = self.position()?;
            self.expect(b':')?;
            let column = self.position()?;
            let (mut end_line, mut end_column) = (line, column);
            if self.eat_text("to") {
                if self.peek() != b':' {
                    end_line = self.position()?;
                }
                self.expect(b':')?;
                end_column = self.position()?;
            }
            return Ok(Location::File(Box::new(FileRange { file: text, line, column, end_line, end_column })));
        }
        let child = if self.eat(b'(') {
            let child = self.location_body()?;
            self.expect(b')')?;
            Some(child)
        } else {
            None
        };
        Ok(Location::Name(text, child))
    }

    fn position(&mut self) -> Parse<u32> {
        let n = self.integer()?;
        Ok(u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// The entry of an alias, made where the alias is not defined yet.
    fn location_alias(&mut self, name: &'a str) -> AttrId {
        if let Some(&id) = self.attr_aliases.get(name) {
            return id;
        }
        let id = self.m.add_attr(Attr::Location(Location::Unknown));
        self.attr_aliases.insert(name, id);
        self.open_aliases.insert(name, self.pos - name.len());
        id
    }

    /// `#name = attribute`.
    pub(super) fn attribute_alias(&mut self) -> Parse<()> {
        self.pos += 1;
        let name = self.expect_word("the name of an alias")?;
        self.expect(b'=')?;
        let id = self.attribute()?;
        if self.open_aliases.remove(name).is_some() {
            let slot = self.attr_aliases[name];
            let content = self.m.attr(id).clone();
            self.m.attrs[slot.index()] = content;
        } else {
            self.attr_aliases.insert(name, id);
        }
        Ok(())
    }

    /// `!name = type`.
    pub(super) fn type_alias(&mut self) -> Parse<()> {
        self.pos += 1;
        let name = self.expect_word("the name of an alias")?;
        self.expect(b'=')?;
        let id = self.parse_type()?;
        self.type_aliases.insert(name, id);
        Ok(())
    }

    /// Says so if an alias was used and never defined.
    pub(super) fn check_aliases(&self) -> Parse<()> {
        match self.open_aliases.iter().min_by_key(|&(_, pos)| *pos) {
            None => Ok(()),
            Some((name, &pos)) => {
                let message = format!("the alias #{name} is not defined");
                Err(Box::new(
                    hloom_ir::Diagnostic::error(&codes::UNKNOWN_ALIAS, message)
                        .at(hloom_ir::diagnostic::Span::new(pos, pos + name.len())),
                ))
            }
        }
    }

    /// `{-# dialect_resources: {…} #-}`: the blobs that literals refer to.
    pub(super) fn resources(&mut self) -> Parse<()> {
        self.expect_text("{-#")?;
        while !self.eat_text("#-}") {
            let group = self.expect_word("a group of resources")?;
            self.expect(b':')?;
            self.expect(b'{')?;
            while !self.eat(b'}') {
                self.resource_key()?;
                self.expect(b':')?;
                self.expect(b'{')?;
                while !self.eat(b'}') {
                    let key = self.resource_key()?;
                    self.expect(b':')?;
                    self.resource_value(group, key)?;
                    self.eat(b',');
                }
                self.eat(b',');
            }
            self.eat(b',');
        }
        Ok(())
    }

    fn resource_key(&mut self) -> Parse<Cow<'a, [u8]>> {
        match self.peek() {
            b'"' => self.string(),
            _ => Ok(Cow::Borrowed(self.expect_word("the name of a resource")?.as_bytes())),
        }
    }

    fn resource_value(&mut self, group: &str, key: Cow<'a, [u8]>) -> Parse<()> {
        self.skip();
        let start = self.pos;
        if self.at(0) != b'"' {
            self.attribute()?;
            return Ok(());
        }
        let text = self.string()?;
        if group == "dialect_resources"
            && let Some(digits) = text.strip_prefix(b"0x")
        {
            let Some(bytes) = super::dense::hex_bytes(digits).filter(|b| b.len() >= 4) else {
                return Err(self.error(start, &codes::BAD_LITERAL, "a resource is 0x and hexadecimal digits"));
            };
            // The first four bytes say how it is aligned.
            self.m.resources.insert(key, Cow::Owned(bytes[4..].to_vec()));
        }
        Ok(())
    }
}

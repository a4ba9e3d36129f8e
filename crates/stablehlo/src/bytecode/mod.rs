//! MLIR bytecode: the container, and in it portable artifacts (VHLO) of every released StableHLO version, or the
//! compiler's own dialects as the StableHLO of JAX 0.10 writes them.
//!
//! Any bytes are accepted; what is wrong with them is an error, and memory stays a small multiple of their number.
//! Sections are collected first and decoded after, since the strings come late. All attributes and types are decoded
//! into the tables of [`Module`] without following references, so that no nesting of them can exhaust the stack;
//! VHLO's spelling becomes StableHLO's on the way.

mod circles;
mod cursor;
mod names;
mod native;
mod ops;
mod tables;

use crate::mlir::{Attr, AttrId, Module, NameId, Type, TypeId};
use cursor::{Cursor, Read, damaged};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::mlir as codes;
use names::OpForm;
use std::borrow::Cow;

/// What bytecode starts with.
pub const MAGIC: &[u8] = b"ML\xefR";

/// The newest version of the container that is read.
const MAX_VERSION: u64 = 6;

const STRINGS: usize = 0;
const DIALECTS: usize = 1;
const ATTR_TYPE: usize = 2;
const ATTR_TYPE_OFFSET: usize = 3;
const IR: usize = 4;
const RESOURCE: usize = 5;
const RESOURCE_OFFSET: usize = 6;
const DIALECT_VERSIONS: usize = 7;
const PROPERTIES: usize = 8;
const SECTION_NAMES: [&str; 9] = [
    "the strings",
    "the dialects",
    "the attributes and types",
    "the table of attributes and types",
    "the operations",
    "the resources",
    "the table of resources",
    "a dialect's version",
    "the properties",
];

/// Reads a module from bytecode.
pub fn read_bytecode(bytes: &[u8]) -> Result<Module<'_>, Box<Diagnostic>> {
    if !bytes.starts_with(MAGIC) {
        return Err(Box::new(Diagnostic::error(&codes::NOT_BYTECODE, "this is not MLIR bytecode")));
    }
    let mut reader = Reader::new(bytes)?;
    reader.dialects()?;
    reader.tables()?;
    reader.properties()?;
    reader.resources()?;
    reader.operations()?;
    Ok(reader.module)
}

pub(crate) struct Reader<'a> {
    file: &'a [u8],
    version: u64,
    sections: [Option<&'a [u8]>; 9],
    strings: Vec<&'a [u8]>,
    dialects: Vec<&'a str>,
    /// How the operations are written, beside `module.names`.
    forms: Vec<OpForm>,
    properties: Vec<&'a [u8]>,
    /// The names of resources in the order of their handles.
    handles: Vec<&'a [u8]>,
    attr_count: u32,
    type_count: u32,
    module: Module<'a>,
}

/// One section: its number and its data.
fn section<'a>(file: &Cursor<'a>, at: &mut Cursor<'a>) -> Read<(usize, &'a [u8])> {
    let id = at.byte()?;
    let length = at.varint()?;
    let length = usize::try_from(length).map_err(|_| at.damaged("a section is too long"))?;
    if id & 0x80 != 0 {
        let alignment = at.varint()?;
        if !alignment.is_power_of_two() || alignment > 1 << 20 {
            return Err(at.damaged(format_args!("an alignment of {alignment} is claimed")));
        }
        // Alignment is relative to the start of the file.
        let offset = at.bytes.as_ptr() as usize - file.bytes.as_ptr() as usize + at.pos;
        let padding = offset.next_multiple_of(alignment as usize) - offset;
        at.take(padding)?;
    }
    Ok((usize::from(id & 0x7f), at.take(length)?))
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Read<Reader<'a>> {
        let file = Cursor::new(bytes, "the file");
        let mut at = Cursor { pos: MAGIC.len(), ..file };
        let version = at.varint()?;
        if version > MAX_VERSION {
            let message = format!("the bytecode has version {version}; versions up to {MAX_VERSION} are read");
            return Err(Box::new(Diagnostic::error(&codes::NEWER_BYTECODE, message)));
        }
        let producer = memchr::memchr(0, &bytes[at.pos..]).ok_or_else(|| at.damaged("the producer does not end"))?;
        at.pos += producer + 1;
        let mut sections = [None; 9];
        while !at.is_at_end() {
            let (id, data) = section(&file, &mut at)?;
            match sections.get_mut(id) {
                Some(slot @ None) => *slot = Some(data),
                Some(Some(_)) => return Err(at.damaged(format_args!("section {id} is there twice"))),
                None => return Err(at.damaged(format_args!("there is a section {id}"))),
            }
        }
        let mut reader = Reader {
            file: bytes,
            version,
            sections,
            strings: Vec::new(),
            dialects: Vec::new(),
            forms: Vec::new(),
            properties: Vec::new(),
            handles: Vec::new(),
            attr_count: 0,
            type_count: 0,
            module: Module::default(),
        };
        reader.read_strings()?;
        Ok(reader)
    }

    fn section(&self, id: usize) -> Read<Cursor<'a>> {
        let Some(bytes) = self.sections[id] else {
            return Err(damaged("the file", format_args!("{} are missing", SECTION_NAMES[id])));
        };
        Ok(Cursor::new(bytes, SECTION_NAMES[id]))
    }

    fn read_strings(&mut self) -> Read<()> {
        let mut at = self.section(STRINGS)?;
        let count = at.count()?;
        // Lengths come last string first, the strings themselves in order.
        let mut end = at.bytes.len();
        self.strings = vec![&[]; count];
        for i in (0..count).rev() {
            let length = at.varint()?;
            let start = usize::try_from(length).ok().and_then(|n| end.checked_sub(n));
            let Some(start) = start.filter(|&s| s < end && s >= at.pos) else {
                return Err(at.damaged(format_args!("a string of {length} bytes is claimed")));
            };
            self.strings[i] = &at.bytes[start..end - 1];
            end = start;
        }
        if end < at.pos {
            return Err(at.damaged("strings overlap their lengths"));
        }
        Ok(())
    }

    fn string(&self, at: &Cursor<'a>, index: u64) -> Read<&'a [u8]> {
        let found = usize::try_from(index).ok().and_then(|i| self.strings.get(i));
        found.copied().ok_or_else(|| at.damaged(format_args!("there is no string {index}")))
    }

    fn text(&self, at: &Cursor<'a>, index: u64) -> Read<&'a str> {
        std::str::from_utf8(self.string(at, index)?).map_err(|_| at.damaged("a name is not UTF-8"))
    }

    fn read_string(&self, at: &mut Cursor<'a>) -> Read<&'a [u8]> {
        let index = at.varint()?;
        self.string(at, index)
    }

    /// The dialect whose number comes next.
    fn dialect(&self, at: &mut Cursor<'a>) -> Read<&'a str> {
        let number = at.varint()?;
        let dialect = usize::try_from(number).ok().and_then(|d| self.dialects.get(d));
        dialect.copied().ok_or_else(|| at.damaged(format_args!("there is no dialect {number}")))
    }

    /// The names of dialects and operations.
    fn dialects(&mut self) -> Read<()> {
        let mut at = self.section(DIALECTS)?;
        let count = at.count()?;
        for _ in 0..count {
            let (index, versioned) = if self.version == 0 { (at.varint()?, false) } else { at.flagged()? };
            let name = self.text(&at, index)?;
            self.dialects.push(name);
            if versioned {
                let file = Cursor::new(self.file, "the file");
                let (id, _) = section(&file, &mut at)?;
                if id != DIALECT_VERSIONS {
                    return Err(at.damaged("a dialect's version is missing"));
                }
            }
        }
        if self.version >= 4 {
            at.varint()?;
        }
        while !at.is_at_end() {
            let dialect = self.dialect(&mut at)?;
            let count = at.count()?;
            for _ in 0..count {
                let (index, registered) = if self.version < 5 { (at.varint()?, true) } else { at.flagged()? };
                let name = self.text(&at, index)?;
                let (name, form) = names::resolve(dialect, name, registered);
                self.module.names.push(name);
                self.forms.push(form);
            }
        }
        Ok(())
    }

    fn properties(&mut self) -> Read<()> {
        if self.sections[PROPERTIES].is_none() {
            return Ok(());
        }
        let mut at = self.section(PROPERTIES)?;
        let count = at.count()?;
        self.properties = (0..count).map(|_| at.blob()).collect::<Read<_>>()?;
        Ok(())
    }

    fn resources(&mut self) -> Read<()> {
        if self.sections[RESOURCE_OFFSET].is_none() || self.sections[RESOURCE].is_none() {
            return Ok(());
        }
        let mut at = self.section(RESOURCE_OFFSET)?;
        let mut data = self.section(RESOURCE)?;
        let external = at.count()?;
        for _ in 0..external {
            at.varint()?;
            self.resource_group(&mut at, &mut data, false)?;
        }
        while !at.is_at_end() {
            at.varint()?;
            self.resource_group(&mut at, &mut data, true)?;
        }
        // Handles in attributes were read as numbers, before the names were known.
        for attr in &mut self.module.attrs {
            if let Attr::Resource(_, key) = attr
                && let Some(number) = key.strip_prefix(b"\0handle ".as_slice())
            {
                let number = std::str::from_utf8(number).ok().and_then(|n| n.parse::<usize>().ok());
                let name = number.and_then(|n| self.handles.get(n).copied());
                *key = Cow::Borrowed(name.ok_or_else(|| damaged("the resources", "a handle refers to nothing"))?);
            }
        }
        Ok(())
    }

    fn resource_group(&mut self, at: &mut Cursor<'a>, data: &mut Cursor<'a>, dialect: bool) -> Read<()> {
        let count = at.count()?;
        for _ in 0..count {
            let key = self.read_string(at)?;
            let size = at.varint()?;
            let kind = at.byte()?;
            let size = usize::try_from(size).map_err(|_| at.damaged("a resource is too long"))?;
            let bytes = data.take(size)?;
            if dialect {
                self.handles.push(key);
            }
            if kind == 0 && dialect {
                let mut blob = Cursor::new(bytes, "a resource");
                blob.varint()?;
                let length = blob.varint()?;
                let start = usize::try_from(length).ok().and_then(|n| bytes.len().checked_sub(n));
                let start = start.filter(|&s| s >= blob.pos).ok_or_else(|| blob.damaged("a blob is too long"))?;
                self.module.resources.insert(Cow::Borrowed(key), Cow::Borrowed(&bytes[start..]));
            }
        }
        Ok(())
    }

    /// An index of the attribute table.
    fn attr(&self, at: &mut Cursor<'a>) -> Read<AttrId> {
        let index = at.index()?;
        self.check_attr(at, index)
    }

    fn check_attr(&self, at: &Cursor<'a>, index: u32) -> Read<AttrId> {
        if index >= self.attr_count {
            return Err(at.damaged(format_args!("there is no attribute {index}")));
        }
        Ok(AttrId(index))
    }

    /// An attribute that need not be there.
    fn optional_attr(&self, at: &mut Cursor<'a>) -> Read<Option<AttrId>> {
        let (index, present) = at.flagged()?;
        if !present {
            return Ok(None);
        }
        let index = u32::try_from(index).map_err(|_| at.damaged("an index is out of range"))?;
        self.check_attr(at, index).map(Some)
    }

    fn attrs(&self, at: &mut Cursor<'a>) -> Read<Vec<AttrId>> {
        let n = at.count()?;
        (0..n).map(|_| self.attr(at)).collect()
    }

    /// An index of the type table.
    fn type_id(&self, at: &mut Cursor<'a>) -> Read<TypeId> {
        let index = at.index()?;
        if index >= self.type_count {
            return Err(at.damaged(format_args!("there is no type {index}")));
        }
        Ok(TypeId(index))
    }

    fn types(&self, at: &mut Cursor<'a>) -> Read<Vec<TypeId>> {
        let n = at.count()?;
        (0..n).map(|_| self.type_id(at)).collect()
    }

    /// A string held by an attribute.
    fn attr_string(&self, id: AttrId) -> Option<&Cow<'a, [u8]>> {
        match self.module.attr(id) {
            Attr::String(s) | Attr::Symbol(s) => Some(s),
            _ => None,
        }
    }

    /// A whole-number type of 64 bits, for attributes that are written without a type.
    fn i64_type(&mut self) -> TypeId {
        TypeId(self.type_count)
    }

    fn name_id(&self, at: &mut Cursor<'a>) -> Read<NameId> {
        let index = at.index()?;
        if index as usize >= self.module.names.len() {
            return Err(at.damaged(format_args!("there is no operation name {index}")));
        }
        Ok(NameId(index))
    }

    fn push_i64_type(&mut self) {
        self.module.types.push(Type::Integer(64, crate::mlir::Signedness::Signless));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytecode of version 6 with one dialect, and nothing else. Numbers below 128 are written twice as large, and one more.
    fn with_dialect(name: &str) -> Vec<u8> {
        let number = |n: usize| 2 * n as u8 + 1;
        let size = name.len() + 1;
        let strings = [&[number(1), number(size)][..], name.as_bytes(), b"\0"].concat();
        let dialects = [number(1), number(0), number(0)];
        let sections = [&[0, number(strings.len())][..], &strings, &[1, number(dialects.len())], &dialects].concat();
        [MAGIC, &[number(6)], b"test\0", &sections].concat()
    }

    #[test]
    fn bytecode_without_operations_is_damaged() {
        for dialect in ["func", "stablehlo", "vhlo"] {
            let bytes = with_dialect(dialect);
            let refused = read_bytecode(&bytes).expect_err("it has no operations");
            assert_eq!(refused.code.number, codes::DAMAGED_BYTECODE.number, "{}", refused.message);
        }
    }
}

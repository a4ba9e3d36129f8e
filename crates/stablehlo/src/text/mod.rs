//! MLIR text: StableHLO, func, CHLO, check, interpreter and sdy operations in their own forms, any operation in the
//! generic form.
//!
//! One pass over the bytes, straight into the model. Any bytes are accepted; the first thing that is wrong with them is
//! reported with its place. Nesting is limited, types that were read are found again by their text, and names of values
//! are looked up in constant time.

mod attributes;
mod cursor;
mod dense;
mod forms;
mod functions;
mod locations;
mod ops;
mod sdy;
mod types;

pub(crate) use types::simple_type;

use crate::mlir::{
    AttrId, Block, FloatKind, MAX_DEPTH, Module, NameId, OpId, OpKind, OpName, Operation, Region, RegionId, Signedness,
    Type, TypeId, ValueId,
};
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::diagnostic::{Diagnostic, Span};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::borrow::Cow;

/// What reading a part gives.
type Parse<T> = Result<T, Box<Diagnostic>>;

/// Reads a module from text.
pub fn read_text(text: &[u8]) -> Result<Module<'_>, Box<Diagnostic>> {
    let mut parser = Parser::new(text, 0, text.len());
    parser.file()?;
    Ok(parser.m)
}

/// Reads the modules of a text that is split by lines that say `// -----`. Places are those in the whole text.
pub fn read_split_text(text: &[u8]) -> Vec<Result<Module<'_>, Box<Diagnostic>>> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut line = 0;
    while line <= text.len() {
        let end = memchr::memchr(b'\n', &text[line..]).map_or(text.len(), |n| line + n);
        let is_separator = text[line..end].trim_ascii_start().starts_with(b"// -----");
        if is_separator || end == text.len() {
            let part_end = if is_separator { line } else { text.len() };
            let mut parser = Parser::new(text, start, part_end);
            if !parser.is_empty() {
                parts.push(parser.file().map(|()| parser.m));
            }
            start = end;
        }
        if end == text.len() {
            break;
        }
        line = end + 1;
    }
    parts
}

/// Whether the bytes are one attribute and nothing else.
pub(crate) fn is_attribute(text: &[u8]) -> bool {
    let mut parser = Parser::new(text, 0, text.len());
    parser.attribute().is_ok() && parser.is_empty()
}

/// Reads an attribute into the tables of a module that was not read from text; `None` if it is not one.
pub(crate) fn attribute_into<'a>(module: &mut Module<'a>, text: &'a [u8]) -> Option<AttrId> {
    let mut parser = Parser::within(std::mem::take(module), text, 0, text.len());
    let id = parser.attribute().ok().filter(|_| parser.is_empty());
    *module = parser.m;
    id
}

pub(crate) struct Parser<'a> {
    /// The text up to the end of the part that is read.
    text: &'a [u8],
    pos: usize,
    m: Module<'a>,
    index_type: TypeId,
    float_type: TypeId,
    depth: usize,
    attr_aliases: FxHashMap<&'a str, AttrId>,
    /// Aliases that were used and are not defined yet, with the place of their first use.
    open_aliases: FxHashMap<&'a str, usize>,
    type_aliases: FxHashMap<&'a str, TypeId>,
    type_cache: FxHashMap<&'a [u8], TypeId>,
    names: FxHashMap<Cow<'a, str>, NameId>,
    /// Values by name: the first of a group and how many it has.
    values: FxHashMap<&'a [u8], Group>,
    /// What names meant before the regions around gave them another meaning.
    shadowed: Vec<(&'a [u8], Option<Group>)>,
}

/// The first of the values that one name stands for, and how many there are.
type Group = (ValueId, u32);

/// An operation whose parts were read, before it is given its results.
#[derive(Default)]
struct Parsed<'a> {
    operands: SmallVec<[ValueId; 4]>,
    attributes: SmallVec<[(Cow<'a, str>, AttrId); 2]>,
    regions: SmallVec<[RegionId; 1]>,
    results: Vec<TypeId>,
}

impl<'a> Parsed<'a> {
    fn set(&mut self, name: &'static str, value: AttrId) {
        self.attributes.push((Cow::Borrowed(name), value));
    }
}

impl<'a> Parser<'a> {
    fn new(text: &'a [u8], start: usize, end: usize) -> Parser<'a> {
        Parser::within(Module { is_text: true, ..Module::default() }, text, start, end)
    }

    /// A parser that adds to what is in `m`.
    fn within(mut m: Module<'a>, text: &'a [u8], start: usize, end: usize) -> Parser<'a> {
        // The types of numbers that are written without one.
        let index_type = m.add_type(Type::Integer(64, Signedness::Signless));
        let float_type = m.add_type(Type::Float(FloatKind::F64));
        Parser {
            text: &text[..end],
            pos: start,
            m,
            index_type,
            float_type,
            depth: 0,
            attr_aliases: FxHashMap::default(),
            open_aliases: FxHashMap::default(),
            type_aliases: FxHashMap::default(),
            type_cache: FxHashMap::default(),
            names: FxHashMap::default(),
            values: FxHashMap::default(),
            shadowed: Vec::new(),
        }
    }

    fn index_type(&self) -> TypeId {
        self.index_type
    }

    fn float_type(&self) -> TypeId {
        self.float_type
    }

    /// Whether nothing but white space and comments is left.
    fn is_empty(&mut self) -> bool {
        self.peek() == 0 && self.pos >= self.text.len()
    }

    /// Goes one level deeper.
    fn enter(&mut self, at: usize) -> Parse<()> {
        self.depth += 1;
        // Operations and regions both count.
        if self.depth > 2 * MAX_DEPTH {
            let message = format!("this nests more than {} deep", 2 * MAX_DEPTH);
            return Err(Box::new(Diagnostic::error(&codes::TOO_DEEP, message).at(Span::new(at, at + 1))));
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    /// A whole file: aliases, a module or bare operations, resources.
    fn file(&mut self) -> Parse<()> {
        let start = self.pos;
        let mut ops = Vec::new();
        while !self.is_empty() {
            match self.at(0) {
                b'#' => self.attribute_alias()?,
                b'!' => self.type_alias()?,
                b'{' => self.resources()?,
                _ => ops.push(self.operation()?),
            }
        }
        self.check_aliases()?;
        self.m.root = match ops[..] {
            [only] if self.m.kind(only) == OpKind::Module => Some(only),
            [] => {
                self.pos = start;
                return Err(Box::new(Diagnostic::error(&codes::NO_ENTRY, "there is no module in the text")));
            }
            _ => Some(self.implied_module(ops)),
        };
        Ok(())
    }

    /// Operations that stand by themselves form a module.
    fn implied_module(&mut self, ops: Vec<OpId>) -> OpId {
        let block = Block { first_argument: ValueId(0), argument_count: 0, locations: Vec::new(), ops };
        let region = self.add_region(smallvec::smallvec![block], 0);
        let name = self.name_id(Cow::Borrowed("builtin.module"));
        let parsed = Parsed { regions: smallvec::smallvec![region], ..Parsed::default() };
        self.add_operation(name, parsed, None, Span::default()).0
    }

    fn add_region(&mut self, blocks: SmallVec<[Block; 1]>, first_value: u32) -> RegionId {
        self.m.regions.push(Region { blocks, values: first_value..self.m.values.len() as u32 });
        RegionId(self.m.regions.len() as u32 - 1)
    }

    fn name_id(&mut self, name: Cow<'a, str>) -> NameId {
        if let Some(&id) = self.names.get(&name) {
            return id;
        }
        let id = NameId(self.m.names.len() as u32);
        self.m.names.push(OpName { kind: OpKind::from_name(&name), name: name.clone() });
        self.names.insert(name, id);
        id
    }

    /// Adds an operation and its results; gives the first result.
    fn add_operation(
        &mut self,
        name: NameId,
        parsed: Parsed<'a>,
        location: Option<AttrId>,
        span: Span,
    ) -> (OpId, ValueId) {
        let first_result = ValueId(self.m.values.len() as u32);
        let result_count = parsed.results.len() as u32;
        self.m.values.extend(parsed.results);
        self.m.ops.push(Operation {
            name,
            location,
            span,
            operands: parsed.operands,
            first_result,
            result_count,
            attributes: parsed.attributes,
            regions: parsed.regions,
        });
        let op = OpId(self.m.ops.len() as u32 - 1);
        if self.m.kind(op) == OpKind::SdyMesh {
            self.m.meshes.push(op);
        }
        (op, first_result)
    }

    /// Gives a name to values.
    fn define(&mut self, name: &'a [u8], first: ValueId, count: u32) {
        let previous = self.values.insert(name, (first, count));
        self.shadowed.push((name, previous));
    }

    /// Forgets the names given since there were `mark` of them.
    fn forget(&mut self, mark: usize) {
        while self.shadowed.len() > mark {
            if let Some((name, previous)) = self.shadowed.pop() {
                match previous {
                    Some(previous) => self.values.insert(name, previous),
                    None => self.values.remove(name),
                };
            }
        }
    }

    /// `%name` or `%name#2`.
    fn value(&mut self) -> Parse<ValueId> {
        self.skip();
        let start = self.pos;
        let name = self.value_name()?;
        let index = if self.at(0) == b'#' {
            self.pos += 1;
            self.integer()?
        } else {
            0
        };
        match self.values.get(name) {
            Some(&(first, count)) if (0..i64::from(count)).contains(&index) => Ok(ValueId(first.0 + index as u32)),
            Some(&(_, count)) => {
                let message = format!("%{} has {count} values, there is no #{index}", String::from_utf8_lossy(name));
                Err(self.error(start, &codes::UNDEFINED_VALUE, message))
            }
            None => {
                let message = format!("%{} is not defined", String::from_utf8_lossy(name));
                Err(self.error(start, &codes::UNDEFINED_VALUE, message))
            }
        }
    }

    /// Values with commas between; none if none comes next.
    fn value_list(&mut self) -> Parse<SmallVec<[ValueId; 4]>> {
        let mut values = SmallVec::new();
        if self.peek() != b'%' {
            return Ok(values);
        }
        values.push(self.value()?);
        while self.peek() == b',' {
            let at = self.pos;
            self.pos += 1;
            if self.peek() != b'%' {
                self.pos = at;
                break;
            }
            values.push(self.value()?);
        }
        Ok(values)
    }

    /// The span of a statement from `start`, not beyond the end of its line.
    fn statement_span(&self, start: usize) -> Span {
        let line = memchr::memchr(b'\n', &self.text[start..self.pos]).map_or(self.pos, |n| start + n);
        Span::new(start, start + self.text[start..line].trim_ascii_end().len().max(1))
    }
}

//! The section of operations.
//!
//! Values are numbered from 0 in every isolated operation; a region takes the numbers after those of the region around
//! it, and gives them back at its end. Here each value also gets a number of its own for the whole module.

use super::cursor::{Cursor, Read};
use super::names::OpForm;
use super::{IR, Reader, section};
use crate::mlir::{Attr, Block, MAX_DEPTH, OpId, OpKind, Operation, Region, RegionId, ValueId};
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::diagnostic::{Diagnostic, Span};
use smallvec::SmallVec;
use std::borrow::Cow;

const HAS_ATTRIBUTES: u8 = 0x01;
const HAS_RESULTS: u8 = 0x02;
const HAS_OPERANDS: u8 = 0x04;
const HAS_SUCCESSORS: u8 = 0x08;
const HAS_REGIONS: u8 = 0x10;
const HAS_USE_LISTS: u8 = 0x20;
const HAS_PROPERTIES: u8 = 0x40;

/// The values of one isolated operation, by the numbers that the bytecode gives them: the regions that the reader is in,
/// outermost first. Room is made for values as they come, not as they are claimed.
#[derive(Default)]
struct Scope {
    regions: Vec<Numbers>,
}

/// The values of one region.
struct Numbers {
    base: u64,
    claimed: u64,
    values: Vec<Option<ValueId>>,
}

impl Scope {
    fn enter(&mut self, claimed: u64) {
        let base = self.regions.last().map_or(0, |r| r.base.saturating_add(r.claimed));
        self.regions.push(Numbers { base, claimed, values: Vec::new() });
    }

    fn leave(&mut self) {
        self.regions.pop();
    }

    fn get(&self, number: u64) -> Option<ValueId> {
        let region = self.regions.iter().rev().find(|r| r.base <= number)?;
        *region.values.get(usize::try_from(number - region.base).ok()?)?
    }

    /// Sets `count` numbers aside; where they start in the innermost region.
    fn reserve(&mut self, at: &Cursor<'_>, count: usize) -> Read<usize> {
        if count == 0 {
            return Ok(0);
        }
        let region = self.regions.last_mut().ok_or_else(|| at.damaged("a value is defined outside of a region"))?;
        let start = region.values.len();
        if (start + count) as u64 > region.claimed {
            return Err(at.damaged("a region defines more values than it claims"));
        }
        region.values.resize(start + count, None);
        Ok(start)
    }

    fn set(&mut self, slot: usize, value: ValueId) {
        if let Some(region) = self.regions.last_mut() {
            region.values[slot] = Some(value);
        }
    }
}

impl<'a> Reader<'a> {
    /// Reads all operations.
    pub(super) fn operations(&mut self) -> Read<()> {
        let mut at = self.section(IR)?;
        let head = at.varint()?;
        if head != 2 {
            return Err(at.damaged("there is more than one operation at the top"));
        }
        let root = self.operation(&mut at, &mut Scope::default(), 0)?;
        if self.module.kind(root) != OpKind::Module {
            return Err(at.damaged(format_args!("{} is at the top instead of a module", self.module.op_name(root))));
        }
        self.module.root = Some(root);
        Ok(())
    }

    fn operation(&mut self, at: &mut Cursor<'a>, scope: &mut Scope, depth: usize) -> Read<OpId> {
        let name = self.name_id(at)?;
        let mask = at.byte()?;
        let location = Some(self.attr(at)?);
        let mut attributes = SmallVec::new();
        if mask & HAS_ATTRIBUTES != 0 {
            let id = self.attr(at)?;
            match self.module.attr(id) {
                Attr::Dict(fields) => attributes.extend(fields.iter().cloned()),
                _ => return Err(at.damaged("an operation's attributes are no dictionary")),
            }
        }
        if mask & HAS_PROPERTIES != 0 {
            let index = at.varint()?;
            let bytes = usize::try_from(index).ok().and_then(|i| self.properties.get(i).copied());
            let bytes = bytes.ok_or_else(|| at.damaged(format_args!("there are no properties {index}")))?;
            let mut properties = Cursor::new(bytes, "the properties of an operation");
            match self.forms[name.index()] {
                OpForm::Named(names) => {
                    for &attribute in names {
                        let (attribute, id) = if let Some(optional) = attribute.strip_prefix('?') {
                            (optional, self.optional_attr(&mut properties)?)
                        } else if let Some(sizes) = attribute.strip_prefix('#') {
                            (sizes, Some(self.segment_sizes(&mut properties)?))
                        } else {
                            (attribute, Some(self.attr(&mut properties)?))
                        };
                        if let Some(id) = id {
                            attributes.push((Cow::Borrowed(attribute), id));
                        }
                    }
                    if !properties.is_at_end() {
                        return Err(self.unknown(name, location));
                    }
                }
                OpForm::Dictionary => {
                    let id = self.attr(&mut properties)?;
                    if let Attr::Dict(fields) = self.module.attr(id) {
                        attributes.extend(fields.iter().cloned());
                    }
                }
                OpForm::Unknown => return Err(self.unknown(name, location)),
            }
        } else if self.forms[name.index()] == OpForm::Unknown && self.module.names[name.index()].kind == OpKind::Unknown
        {
            return Err(self.unknown(name, location));
        }
        let mut result_types = Vec::new();
        if mask & HAS_RESULTS != 0 {
            result_types = self.types(at)?;
        }
        let mut operands = SmallVec::new();
        if mask & HAS_OPERANDS != 0 {
            let count = at.count()?;
            for _ in 0..count {
                let number = at.varint()?;
                operands
                    .push(scope.get(number).ok_or_else(|| at.damaged(format_args!("value {number} is not defined")))?);
            }
        }
        if mask & HAS_SUCCESSORS != 0 {
            at.indices()?;
        }
        if mask & HAS_USE_LISTS != 0 {
            skip_use_lists(at, result_types.len())?;
        }
        let id = OpId(self.module.ops.len() as u32);
        self.module.ops.push(Operation {
            name,
            location,
            span: Span::default(),
            operands,
            first_result: ValueId(0),
            result_count: result_types.len() as u32,
            attributes,
            regions: SmallVec::new(),
        });
        // The bytecode numbers the results before what is in the regions, but a region's values are to be one range
        // without them: so the regions' values come first here, and results get theirs after. Their numbers are set
        // aside for that.
        let slot = scope.reserve(at, result_types.len())?;
        if mask & HAS_REGIONS != 0 {
            let (count, isolated) = at.flagged()?;
            let count = usize::try_from(count).ok().filter(|&n| n <= at.left());
            let count = count.ok_or_else(|| at.damaged("too many regions are claimed"))?;
            let regions = if isolated && self.version >= 2 {
                let file = Cursor::new(self.file, "the file");
                let (section_id, data) = section(&file, at)?;
                if section_id != IR {
                    return Err(at.damaged("the regions of an operation are missing"));
                }
                let mut inner = Cursor::new(data, "the operations");
                let mut fresh = Scope::default();
                (0..count).map(|_| self.region(&mut inner, &mut fresh, depth)).collect::<Read<_>>()?
            } else if isolated {
                let mut fresh = Scope::default();
                (0..count).map(|_| self.region(at, &mut fresh, depth)).collect::<Read<_>>()?
            } else {
                (0..count).map(|_| self.region(at, scope, depth)).collect::<Read<_>>()?
            };
            self.module.ops[id.index()].regions = regions;
        }
        match self.module.kind(id) {
            OpKind::SdyMesh => self.module.meshes.push(id),
            OpKind::SdyPropagationBarrier => self.name_direction(id),
            _ => {}
        }
        self.module.ops[id.index()].first_result = ValueId(self.module.values.len() as u32);
        for (i, ty) in result_types.into_iter().enumerate() {
            let value = self.module.add_value(ty);
            scope.set(slot + i, value);
        }
        Ok(id)
    }

    fn region(&mut self, at: &mut Cursor<'a>, scope: &mut Scope, depth: usize) -> Read<RegionId> {
        if depth >= MAX_DEPTH {
            let message = format!("regions nest more than {MAX_DEPTH} deep");
            return Err(Box::new(Diagnostic::error(&codes::TOO_DEEP, message)));
        }
        let first_value = self.module.values.len() as u32;
        let block_count = at.count()?;
        let mut blocks: SmallVec<[Block; 1]> = SmallVec::new();
        if block_count > 0 {
            let value_count = at.varint()?;
            scope.enter(value_count);
            for _ in 0..block_count {
                blocks.push(self.block(at, scope, depth)?);
            }
            scope.leave();
        }
        let id = RegionId(self.module.regions.len() as u32);
        self.module.regions.push(Region { blocks, values: first_value..self.module.values.len() as u32 });
        Ok(id)
    }

    fn block(&mut self, at: &mut Cursor<'a>, scope: &mut Scope, depth: usize) -> Read<Block> {
        let (op_count, has_arguments) = at.flagged()?;
        let mut block = Block {
            first_argument: ValueId(self.module.values.len() as u32),
            argument_count: 0,
            locations: Vec::new(),
            ops: Vec::new(),
        };
        if has_arguments {
            let count = at.count()?;
            for _ in 0..count {
                let (ty, location) = if self.version >= 4 {
                    let (ty, located) = at.flagged()?;
                    let ty = u32::try_from(ty).ok().filter(|&t| t < self.type_count);
                    let ty = crate::mlir::TypeId(ty.ok_or_else(|| at.damaged("there is no such type"))?);
                    (ty, if located { Some(self.attr(at)?) } else { None })
                } else {
                    (self.type_id(at)?, Some(self.attr(at)?))
                };
                let slot = scope.reserve(at, 1)?;
                let value = self.module.add_value(ty);
                scope.set(slot, value);
                block.locations.push(location);
            }
            block.argument_count = count as u32;
            if self.version >= 3 && at.byte()? != 0 {
                skip_use_lists(at, count)?;
            }
        }
        let op_count = usize::try_from(op_count).ok().filter(|&n| n <= at.left());
        let op_count = op_count.ok_or_else(|| at.damaged("too many operations are claimed"))?;
        block.ops.reserve(op_count);
        for _ in 0..op_count {
            let op = self.operation(at, scope, depth + 1)?;
            block.ops.push(op);
        }
        Ok(block)
    }

    /// In which direction shardings may pass a barrier is a number in bytecode and a word in text.
    fn name_direction(&mut self, id: OpId) {
        const DIRECTIONS: [&str; 4] = ["NONE", "FORWARD", "BACKWARD", "BOTH"];
        let number = self.module.find(id, "allowed_direction").and_then(|a| self.module.as_int(a));
        let word = number.and_then(|n| DIRECTIONS.get(usize::try_from(n).ok()?));
        if let Some(&word) = word {
            let word = self.module.add_attr(Attr::Keyword(Cow::Borrowed(word)));
            let attributes = &mut self.module.ops[id.index()].attributes;
            attributes.iter_mut().filter(|(name, _)| name == "allowed_direction").for_each(|(_, a)| *a = word);
        }
    }

    #[cold]
    fn unknown(&self, name: crate::mlir::NameId, location: Option<crate::mlir::AttrId>) -> Box<Diagnostic> {
        let name = &self.module.names[name.index()].name;
        let mut diagnostic = if name.starts_with("vhlo.") {
            Diagnostic::error(&codes::NEWER_BYTECODE, format!("the operation {name} is not known"))
                .help("write the artifact for an older StableHLO version, or use a newer hloom")
        } else {
            Diagnostic::error(
                &codes::UNKNOWN_OPERATION,
                format!("the operation {name}, as it is written here, is not known"),
            )
            .help(super::tables::SERIALIZE)
        };
        if let Some(location) = location {
            diagnostic = diagnostic.note(format!("it comes from {}", self.module.location_text(location)));
        }
        Box::new(diagnostic)
    }
}

/// Passes over the order in which the uses of `values` values are listed.
fn skip_use_lists(at: &mut Cursor<'_>, values: usize) -> Read<()> {
    let count = if values > 1 { at.count()? } else { 1 };
    for _ in 0..count {
        if values > 1 {
            at.varint()?;
        }
        let (n, _) = at.flagged()?;
        if n > at.left() as u64 {
            return Err(at.damaged("a list of uses is too long"));
        }
        for _ in 0..n {
            at.varint()?;
        }
    }
    Ok(())
}

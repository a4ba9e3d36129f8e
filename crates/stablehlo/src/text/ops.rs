//! Statements: results, the generic form of any operation, regions.

use super::{Parse, Parsed, Parser};
use crate::mlir::{AttrId, Block, OpId, OpKind, RegionId, ValueId};
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::diagnostic::did_you_mean;
use smallvec::SmallVec;
use std::borrow::Cow;

impl<'a> Parser<'a> {
    /// `%a, %b:2 = operation`.
    pub(super) fn operation(&mut self) -> Parse<OpId> {
        self.skip();
        let start = self.pos;
        self.enter(start)?;
        let mut names: SmallVec<[(&'a [u8], u32); 2]> = SmallVec::new();
        if self.at(0) == b'%' {
            loop {
                let name = self.value_name()?;
                let mut count = 1;
                if self.at(0) == b':' {
                    self.pos += 1;
                    let n = self.integer()?;
                    count = u32::try_from(n).map_err(|_| self.expected("a number of results"))?;
                }
                names.push((name, count));
                if !self.eat(b',') {
                    break;
                }
            }
            self.expect(b'=')?;
        }
        self.skip();
        let name_start = self.pos;
        let (name, parsed) = if self.at(0) == b'"' {
            let name = self.string()?;
            let name = self.utf8(name_start, name)?;
            let kind = OpKind::from_name(&name);
            (name, self.generic(kind)?)
        } else {
            let word = self.expect_word("an operation")?;
            let (name, kind) = self.resolve(word, name_start)?;
            (name, self.custom(kind, name_start)?)
        };
        let location = self.optional_location()?;
        let wanted: u64 = names.iter().map(|&(_, n)| u64::from(n)).sum();
        let given = parsed.results.len() as u64;
        if !names.is_empty() && wanted != given {
            let message = format!("{name} gives {given} results, {wanted} are named");
            return Err(self.error(start, &codes::BAD_OPERANDS, message));
        }
        let span = self.statement_span(start);
        let id = self.name_id(name);
        let (op, first) = self.add_operation(id, parsed, location, span);
        let mut next = first.0;
        for (name, count) in names {
            self.define(name, ValueId(next), count);
            next += count;
        }
        self.leave();
        Ok(op)
    }

    /// The full name of an operation written as `word`.
    fn resolve(&mut self, word: &'a str, start: usize) -> Parse<(Cow<'a, str>, OpKind)> {
        // `cross-replica-sum` has dashes, which words do not.
        if word == "stablehlo.cross" && self.rest().starts_with(b"-replica-sum") {
            self.pos += "-replica-sum".len();
            return Ok((Cow::Borrowed("stablehlo.cross-replica-sum"), OpKind::CrossReplicaSum));
        }
        let full = match word {
            "module" => "builtin.module",
            "func" => "func.func",
            "return" => "func.return",
            "call" => "func.call",
            "constant" => "stablehlo.constant",
            other => other,
        };
        let kind = OpKind::from_name(full);
        if kind == OpKind::Unknown {
            let message = format!("there is no operation {full}");
            let mut error = self.error(start, &codes::UNKNOWN_OPERATION, message);
            if let Some(near) = did_you_mean(full, OpKind::NAMES.iter().copied()) {
                *error = error.help(format!("did you mean {near}?"));
            }
            return Err(error);
        }
        Ok((Cow::Borrowed(full), kind))
    }

    /// `(operands) [successors] <{properties}> ({region}, …) {attributes} : (T) -> T`.
    fn generic(&mut self, kind: OpKind) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        self.expect(b'(')?;
        parsed.operands = self.value_list()?;
        self.expect(b')')?;
        self.generic_tail(kind, &mut parsed)?;
        Ok(parsed)
    }

    pub(super) fn generic_tail(&mut self, kind: OpKind, parsed: &mut Parsed<'a>) -> Parse<()> {
        if self.eat(b'[') {
            while !self.eat(b']') {
                self.expect(b'^')?;
                self.expect_word("the name of a block")?;
                self.eat(b',');
            }
        }
        if self.peek() == b'<' && self.rest().starts_with(b"<{") {
            self.pos += 1;
            parsed.attributes.extend(self.dictionary()?);
            self.expect(b'>')?;
        }
        if self.eat(b'(') {
            let isolated = matches!(kind, OpKind::Func | OpKind::Module);
            while !self.eat(b')') {
                if !parsed.regions.is_empty() {
                    self.expect(b',')?;
                }
                let region = if isolated { self.isolated_region()? } else { self.region(&[])? };
                parsed.regions.push(region);
            }
        }
        if self.peek() == b'{' {
            parsed.attributes.extend(self.dictionary()?);
        }
        self.expect(b':')?;
        self.skip();
        let start = self.pos;
        let (inputs, results) = self.function_type()?;
        if inputs.len() != parsed.operands.len() {
            let message = format!("{} operands have {} types", parsed.operands.len(), inputs.len());
            return Err(self.error(start, &codes::BAD_OPERANDS, message));
        }
        parsed.results = results;
        Ok(())
    }

    /// A region that sees no names from outside.
    pub(super) fn isolated_region(&mut self) -> Parse<RegionId> {
        let outer = (std::mem::take(&mut self.values), std::mem::take(&mut self.shadowed));
        let region = self.region(&[]);
        (self.values, self.shadowed) = outer;
        region
    }

    /// `{ … }`: blocks with their operations. `arguments` are those of the first block where the operation writes them
    /// before it: they must be defined right after this begins, so they are given as names and types.
    pub(super) fn region(&mut self, arguments: &[Argument<'a>]) -> Parse<RegionId> {
        self.skip();
        let start = self.pos;
        self.enter(start)?;
        self.expect(b'{')?;
        let mark = self.shadowed.len();
        let first_value = self.m.values.len() as u32;
        let mut blocks: SmallVec<[Block; 1]> = SmallVec::new();
        let mut block = self.open_block(arguments);
        let mut labelled = false;
        loop {
            match self.peek() {
                b'}' => {
                    self.pos += 1;
                    break;
                }
                b'^' => {
                    if labelled || !block.ops.is_empty() {
                        blocks.push(block);
                    }
                    labelled = true;
                    block = self.block_label()?;
                }
                _ => {
                    let op = self.operation()?;
                    block.ops.push(op);
                }
            }
        }
        // A region without operations has no block, unless it has arguments.
        if labelled || !block.ops.is_empty() || block.argument_count > 0 || !blocks.is_empty() {
            blocks.push(block);
        }
        self.forget(mark);
        self.leave();
        Ok(self.add_region(blocks, first_value))
    }

    fn open_block(&mut self, arguments: &[Argument<'a>]) -> Block {
        let first_argument = ValueId(self.m.values.len() as u32);
        let mut locations = Vec::new();
        for argument in arguments {
            let value = self.m.add_value(argument.ty);
            self.define(argument.name, value, 1);
            locations.push(argument.location);
        }
        Block { first_argument, argument_count: arguments.len() as u32, locations, ops: Vec::new() }
    }

    /// `^bb0(%a: T, %b: T):`.
    fn block_label(&mut self) -> Parse<Block> {
        self.expect(b'^')?;
        let rest = self.rest();
        self.pos += rest.iter().position(|&b| !super::cursor::is_word(b)).unwrap_or(rest.len());
        let mut arguments = Vec::new();
        if self.eat(b'(') {
            arguments = self.list_until(b')', Self::argument)?;
        }
        self.expect(b':')?;
        Ok(self.open_block(&arguments))
    }

    /// `%a: T loc(…)`.
    pub(super) fn argument(&mut self) -> Parse<Argument<'a>> {
        let name = self.value_name()?;
        self.expect(b':')?;
        let ty = self.parse_type()?;
        let location = self.optional_location()?;
        Ok(Argument { name, ty, location })
    }
}

/// An argument of a block.
#[derive(Clone, Copy)]
pub(super) struct Argument<'a> {
    pub(super) name: &'a [u8],
    pub(super) ty: crate::mlir::TypeId,
    pub(super) location: Option<AttrId>,
}

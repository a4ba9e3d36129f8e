//! Modules, functions, loops and reductions: operations whose own form has regions.

use super::ops::Argument;
use super::{Parse, Parsed, Parser};
use crate::mlir::{Attr, AttrId, Block, Type, TypeId, ValueId};
use hloom_ir::diagnostic::Span;
use hloom_ir::diagnostic::codes::mlir as codes;
use smallvec::SmallVec;
use std::borrow::Cow;

impl<'a> Parser<'a> {
    fn symbol_attr(&mut self) -> Parse<AttrId> {
        let name = self.symbol()?;
        Ok(self.m.add_attr(Attr::String(name)))
    }

    /// `module @name attributes {…} { … }`.
    pub(super) fn module_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        if self.peek() == b'@' {
            let name = self.symbol_attr()?;
            parsed.set("sym_name", name);
        }
        if self.eat_text("attributes") {
            parsed.attributes.extend(self.dictionary()?);
        }
        parsed.regions.push(self.isolated_region()?);
        Ok(parsed)
    }

    /// `func.func private @f(%a: T {…}) -> (T {…}) attributes {…} { … }`.
    pub(super) fn func_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        for visibility in ["public", "private", "nested"] {
            if self.eat_text(visibility) {
                let id = self.m.add_attr(Attr::String(Cow::Borrowed(visibility.as_bytes())));
                parsed.set("sym_visibility", id);
                break;
            }
        }
        let name = self.symbol_attr()?;
        parsed.set("sym_name", name);
        self.expect(b'(')?;
        let mut arguments = Vec::new();
        let mut types = Vec::new();
        let mut attributes = Vec::new();
        let mut any = false;
        while !self.eat(b')') {
            if !types.is_empty() {
                self.expect(b',')?;
            }
            let name = if self.peek() == b'%' {
                let name = self.value_name()?;
                self.expect(b':')?;
                Some(name)
            } else {
                None
            };
            let ty = self.parse_type()?;
            types.push(ty);
            attributes.push(self.optional_dictionary(&mut any)?);
            let location = self.optional_location()?;
            if let Some(name) = name {
                arguments.push(Argument { name, ty, location });
            }
        }
        if any {
            let id = self.m.add_attr(Attr::Array(attributes));
            parsed.set("arg_attrs", id);
        }
        let results = if self.eat_text("->") { self.func_results(&mut parsed)? } else { Vec::new() };
        let ty = self.m.add_type(Type::Function(types, results));
        let id = self.m.add_attr(Attr::Type(ty));
        parsed.set("function_type", id);
        if self.eat_text("attributes") {
            parsed.attributes.extend(self.dictionary()?);
        }
        let outer = (std::mem::take(&mut self.values), std::mem::take(&mut self.shadowed));
        let region = if self.peek() == b'{' && !self.rest().starts_with(b"{-#") {
            self.region(&arguments)?
        } else {
            self.add_region(SmallVec::new(), self.m.values.len() as u32)
        };
        (self.values, self.shadowed) = outer;
        parsed.regions.push(region);
        Ok(parsed)
    }

    fn func_results(&mut self, parsed: &mut Parsed<'a>) -> Parse<Vec<TypeId>> {
        if self.peek() != b'(' {
            return Ok(vec![self.parse_type()?]);
        }
        self.pos += 1;
        let (mut types, mut attributes, mut any) = (Vec::new(), Vec::new(), false);
        while !self.eat(b')') {
            if !types.is_empty() {
                self.expect(b',')?;
            }
            types.push(self.parse_type()?);
            attributes.push(self.optional_dictionary(&mut any)?);
        }
        if any {
            let id = self.m.add_attr(Attr::Array(attributes));
            parsed.set("res_attrs", id);
        }
        Ok(types)
    }

    fn optional_dictionary(&mut self, any: &mut bool) -> Parse<AttrId> {
        let fields = if self.peek() == b'{' {
            *any = true;
            self.dictionary()?.into_vec()
        } else {
            Vec::new()
        };
        Ok(self.m.add_attr(Attr::Dict(fields)))
    }

    /// `while(%i = %init, …) : T, T attributes {…} cond { … } do { … }`.
    pub(super) fn while_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        let mut names = Vec::new();
        self.expect(b'(')?;
        while !self.eat(b')') {
            if !names.is_empty() {
                self.expect(b',')?;
            }
            names.push(self.value_name()?);
            self.expect(b'=')?;
            parsed.operands.push(self.value()?);
        }
        if self.eat(b':') && !names.is_empty() {
            loop {
                parsed.results.push(self.parse_type()?);
                if !self.eat(b',') {
                    break;
                }
            }
        }
        if names.len() != parsed.results.len() {
            return Err(self.expected("as many types as the loop has values"));
        }
        if self.eat_text("attributes") {
            parsed.attributes.extend(self.dictionary()?);
        }
        let argument = |(&name, &ty): (&&'a [u8], &TypeId)| Argument { name, ty, location: None };
        let arguments: Vec<Argument<'a>> = names.iter().zip(&parsed.results).map(argument).collect();
        self.expect_text("cond")?;
        parsed.regions.push(self.region(&arguments)?);
        self.expect_text("do")?;
        parsed.regions.push(self.region(&arguments)?);
        Ok(parsed)
    }

    /// `reduce(%x init: %z), (%y init: %w) applies op across dimensions = [1] : FT`, or with a `reducer`.
    pub(super) fn reduce_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        let mut inits: SmallVec<[ValueId; 4]> = SmallVec::new();
        loop {
            self.expect(b'(')?;
            parsed.operands.push(self.value()?);
            self.expect_text("init")?;
            self.expect(b':')?;
            inits.push(self.value()?);
            self.expect(b')')?;
            if !self.eat(b',') {
                break;
            }
        }
        let count = inits.len();
        parsed.operands.extend(inits);
        self.skip();
        let start = self.pos;
        let applied = if self.eat_text("applies") { Some(self.expect_word("an operation")?) } else { None };
        self.expect_text("across")?;
        self.expect_text("dimensions")?;
        self.expect(b'=')?;
        let dimensions = self.integers()?;
        let id = self.ints_attr(dimensions);
        parsed.set("dimensions", id);
        if self.peek() == b'{' {
            parsed.attributes.extend(self.dictionary()?);
        }
        self.expect(b':')?;
        let (inputs, results) = self.function_type()?;
        parsed.results = results;
        let region = match applied {
            Some(op) => self.applied(op, &inputs, start)?,
            None => {
                self.expect_text("reducer")?;
                let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
                for _ in 0..count {
                    self.expect(b'(')?;
                    firsts.push(self.argument()?);
                    self.expect(b',')?;
                    seconds.push(self.argument()?);
                    self.expect(b')')?;
                }
                firsts.extend(seconds);
                self.region(&firsts)?
            }
        };
        parsed.regions.push(region);
        Ok(parsed)
    }

    /// The region of a reduction that applies one operation to two scalars.
    fn applied(&mut self, op: &'a str, inputs: &[TypeId], start: usize) -> Parse<crate::mlir::RegionId> {
        let Some(&input) = inputs.first() else { return Err(self.expected("the type of an input")) };
        if crate::mlir::OpKind::from_name(op) == crate::mlir::OpKind::Unknown {
            return Err(self.error(start, &codes::UNKNOWN_OPERATION, format!("there is no operation {op}")));
        }
        let scalar = self.scalar_of(input);
        let first_value = self.m.values.len() as u32;
        let x = self.m.add_value(scalar);
        let y = self.m.add_value(scalar);
        let span = Span::new(start, start + op.len());
        let name = self.name_id(Cow::Borrowed(op));
        let parsed = Parsed { operands: smallvec::smallvec![x, y], results: vec![scalar], ..Parsed::default() };
        let (inner, result) = self.add_operation(name, parsed, None, span);
        let name = self.name_id(Cow::Borrowed("stablehlo.return"));
        let parsed = Parsed { operands: smallvec::smallvec![result], ..Parsed::default() };
        let (end, _) = self.add_operation(name, parsed, None, span);
        let block = Block { first_argument: x, argument_count: 2, locations: Vec::new(), ops: vec![inner, end] };
        Ok(self.add_region(smallvec::smallvec![block], first_value))
    }

    /// `scan(%x) inits (%a) dimension = 0 attributes {…} { ^bb0(…): … } : FT`.
    pub(super) fn scan_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        self.expect(b'(')?;
        parsed.operands = self.value_list()?;
        self.expect(b')')?;
        self.expect_text("inits")?;
        self.expect(b'(')?;
        let inits = self.value_list()?;
        self.expect(b')')?;
        let carries = self.int_attr(inits.len() as i64);
        parsed.set("num_carries", carries);
        parsed.operands.extend(inits);
        self.expect_text("dimension")?;
        self.expect(b'=')?;
        let dimension = self.integer()?;
        let dimension = self.int_attr(dimension);
        parsed.set("dimension", dimension);
        if self.eat_text("attributes") {
            parsed.attributes.extend(self.dictionary()?);
        }
        parsed.regions.push(self.region(&[])?);
        self.expect(b':')?;
        parsed.results = self.function_type()?.1;
        Ok(parsed)
    }
}

//! Instructions: a statement, its operands, and the names they go by.

use super::attributes::{Attr, AttrSet, COMMON, Values, attributes_of, opcode_by_name};
use super::op::Subject;
use super::other_names::named_elsewhere;
use super::settle::{lay_out, settle, unpacked};
use super::{Failed, Read, Reader, Symbol};
use crate::hlo_text::source_map::find_part;
use hloom_ir::diagnostic::{Diagnostic, Place, Span, codes, did_you_mean};
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::Operands;
use hloom_ir::module::NewInstruction;
use hloom_ir::names::is_reserved_type_name;
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::Shape;
use hloom_ir::sharding::{LeafSharding, Sharding, ShardingKind, TileDevices};
use std::sync::Arc;

/// An operation as it is written: `add`, or `add-start` for async-start of an add.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub(super) opcode: Opcode,
    pub(super) wrapped: Option<Opcode>,
    pub(super) span: Span,
}

/// The left side of an instruction, and where it starts.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    /// Its name; empty for an instruction in place of an operand.
    pub(super) name: &'a [u8],
    pub(super) name_span: Span,
    pub(super) start: usize,
}

impl<'a> Reader<'a> {
    /// `[ROOT] name = …`.
    pub(super) fn statement(&mut self) -> Read<()> {
        self.skip();
        let start = self.pos;
        let is_root = self.byte() == b'R' && self.eat_word(b"ROOT");
        let root_span = Span::new(start, start + 4);
        self.skip();
        let name_start = self.pos;
        let name = self.name("an instruction or `}`")?;
        let target = Target { name, name_span: Span::new(name_start, self.pos), start };
        let read = self.right_side(target, is_root.then_some(root_span));
        if read.is_err() {
            // Whoever uses the name is not to blame.
            self.scope().names.entry(name).or_insert(Symbol { id: None, span: target.name_span, report: None });
        }
        read
    }

    fn right_side(&mut self, target: Target<'a>, root: Option<Span>) -> Read<()> {
        self.expect(b'=', "after the name of an instruction")?;
        let id = self.instruction(target, true)?;
        self.define(target, id)?;
        let Some(span) = root else { return Ok(()) };
        if let Some((_, first)) = self.scope().root {
            return self.fail(
                Diagnostic::error(&codes::text::SECOND_ROOT, "this computation has a root already")
                    .at(span)
                    .label("a second ROOT")
                    .note_at("the first ROOT", Place::Span(first)),
            );
        }
        self.scope().root = Some((id, span));
        Ok(())
    }

    /// Lets `target` name `id` in the computation at hand.
    fn define(&mut self, target: Target<'a>, id: InstructionId) -> Read<()> {
        let symbol = Symbol { id: Some(id), span: target.name_span, report: None };
        let Some(old) = self.scope().names.insert(target.name, symbol) else { return Ok(()) };
        if let Some(report) = old.report {
            self.add_note(report, "it is defined only here; an operand stands before its users", target.name_span);
        }
        if old.id.is_none() {
            return Ok(());
        }
        self.scope().names.insert(target.name, old);
        let name = String::from_utf8_lossy(target.name).into_owned();
        self.fail(
            Diagnostic::error(&codes::text::DUPLICATE_INSTRUCTION, format!("`{name}` is defined twice"))
                .at(target.name_span)
                .label("defined again")
                .note_at("first defined here", Place::Span(old.span)),
        )
    }

    /// The instruction of that name in the computation at hand.
    pub(super) fn find_instruction(&mut self, name: &'a [u8], span: Span) -> Read<InstructionId> {
        match self.scope().names.get(name) {
            Some(Symbol { id: Some(id), .. }) => Ok(*id),
            // Its statement was wrong, or it was reported already.
            Some(_) => Err(Failed),
            None => self.undefined(name, span),
        }
    }

    #[cold]
    fn undefined(&mut self, name: &'a [u8], span: Span) -> Read<InstructionId> {
        /// Beyond this many names a search for a similar one is not worth its time.
        const MOST_NAMES: usize = 10_000;
        let text = String::from_utf8_lossy(name).into_owned();
        let message = format!("there is no instruction `{text}` before this one in its computation");
        let mut diagnostic =
            Diagnostic::error(&codes::text::UNDEFINED_INSTRUCTION, message).at(span).label("not defined");
        let names = &self.scope().names;
        if names.len() <= MOST_NAMES {
            let known = names.iter().filter(|(_, s)| s.id.is_some()).filter_map(|(n, _)| std::str::from_utf8(n).ok());
            // The table has no order of its own; the answer must.
            let mut known: Vec<&str> = known.collect();
            known.sort_unstable();
            if let Some(near) = did_you_mean(&text, known) {
                diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
            }
        }
        let report = self.next_report();
        self.report(diagnostic);
        self.scope().names.insert(name, Symbol { id: None, span, report });
        Err(Failed)
    }

    /// What stands right of `=`, or in place of an operand; adds the instruction to the computation at hand.
    pub(super) fn instruction(&mut self, target: Target<'a>, allow_attributes: bool) -> Read<InstructionId> {
        let mut declared = self.shape_if_any()?;
        let written = self.opcode()?;
        if written.opcode == Opcode::Constant {
            declared = declared.map(unpacked);
        }
        if declared.is_none() && !infers_shape(written.opcode) {
            let message = format!("the shape of {} has to be written", written.opcode);
            let label = "expected a shape before this";
            return self.fail_at(&codes::text::SHAPE_REQUIRED, written.span, message, label);
        }
        if matches!(written.opcode, Opcode::AsyncStart | Opcode::AsyncUpdate | Opcode::AsyncDone) {
            return self.async_instruction(target, written, declared, allow_attributes);
        }
        let mut operands = Operands::new();
        let mut leaf = None;
        match (written.opcode, &declared) {
            (Opcode::Parameter, _) => leaf = Some(self.parameter()?),
            (Opcode::Constant, Some(shape)) => leaf = Some(self.constant(shape)?),
            _ => self.operands_of(written, &mut operands)?,
        }
        let (required, optional) = attributes_of(written.opcode);
        let subject =
            Subject { opcode: written.opcode, opcode_span: written.span, allowed: COMMON.and(required).and(optional) };
        let mut values = self.take_values();
        let end = self.attributes(&subject, required, allow_attributes, &mut values)?;
        let mut op = match leaf {
            Some(mut op) => {
                if let Op::Parameter { replication, .. } = &mut op {
                    *replication = values.replication.take();
                }
                op
            }
            None => self.build_op(&subject, &mut values, &operands)?,
        };
        let span = Span::new(target.start, end);
        let shape = match declared {
            Some(shape) => shape,
            None => self.infer(&op, &operands, span)?,
        };
        let shape = settle(&self.module, &mut op, shape, &operands);
        let id = self.add(target, span, op, shape, operands, &mut values)?;
        self.give_back(values);
        Ok(id)
    }

    /// Adds an instruction whose parts were all read.
    pub(super) fn add(
        &mut self,
        target: Target<'a>,
        span: Span,
        op: Op,
        shape: Shape,
        operands: Operands,
        values: &mut Values,
    ) -> Read<InstructionId> {
        let name = self.instruction_name(target, op.opcode())?;
        if let Op::Parameter { replication: Some(replication), .. } = &op {
            let leaves = shape.leaf_count();
            if leaves != replication.len() {
                let at = values.place(Attr::ParameterReplication).unwrap_or(span);
                let message = format!("the parameter has {leaves} arrays, but {} are listed", replication.len());
                return self.fail_at(
                    &codes::text::REPLICATION_LENGTH,
                    at,
                    message,
                    format!("expected {leaves} entries"),
                );
            }
        }
        let mut common = std::mem::take(&mut values.common);
        if let (Shape::Tuple(_), Some(sharding)) = (&shape, &mut common.sharding) {
            spread_sharding(Arc::make_mut(sharding), &shape);
        }
        let computation = self.scope().computation;
        let id = self.module.push_instruction(computation, NewInstruction { name, op, shape, operands, common });
        self.positions.set_instruction(id, span);
        Ok(id)
    }

    fn instruction_name(&mut self, target: Target<'a>, opcode: Opcode) -> Read<Box<str>> {
        let name = target.name;
        if name.is_empty() {
            return Ok(self.made_names.register(&format!("{opcode}.anon")));
        }
        // Names are ASCII by the grammar.
        let text = std::str::from_utf8(name).unwrap_or_default();
        let could_be_type =
            name.get(1).is_some_and(u8::is_ascii_digit) || matches!(name, b"pred" | b"bf16" | b"token" | b"opaque");
        let is_type = could_be_type && is_reserved_type_name(name);
        if is_type || (name.starts_with(b"__") && !name.starts_with(b"__xla_")) {
            let better = hloom_ir::names::sanitize(text);
            return self.fail(
                Diagnostic::error(&codes::text::ILLEGAL_NAME, format!("an instruction cannot be called `{text}`"))
                    .at(target.name_span)
                    .label("reserved")
                    .help(format!("call it `{better}`")),
            );
        }
        let stem = name.iter().rposition(|b| !b.is_ascii_digit()).map_or(name, |last| &name[..=last]);
        if stem.strip_suffix(b".").unwrap_or(stem).ends_with(b".anon") {
            self.made_names.register(text);
        }
        Ok(text.into())
    }

    /// Attributes after the operands; answers where the statement ends.
    pub(super) fn attributes(
        &mut self,
        subject: &Subject,
        required: AttrSet,
        allow: bool,
        values: &mut Values,
    ) -> Read<usize> {
        let mut end = self.pos;
        if allow {
            while self.eat(b',') {
                self.attribute(subject, values)?;
                end = self.pos;
            }
        }
        if let Some(missing) = required.without(values.seen).iter().next() {
            if !allow {
                let message =
                    format!("{} needs `{}`, so it cannot stand in place of an operand", subject.opcode, missing.name());
                return self.fail(
                    Diagnostic::error(&codes::text::NESTED_ATTRIBUTES, message)
                        .at(subject.opcode_span)
                        .label("needs attributes")
                        .help("give it a line and a name of its own"),
                );
            }
            return self.missing_attribute(missing, subject);
        }
        Ok(end)
    }

    /// The shape of an operation that was written without.
    fn infer(&mut self, op: &Op, operands: &[InstructionId], statement: Span) -> Read<Shape> {
        match hloom_ir::infer::infer_shape(&self.module, op, operands, None) {
            Ok(shape) => Ok(lay_out(&self.module, op, operands, &shape)),
            Err(error) => {
                let at = find_part(self.text, statement, error.part).unwrap_or(statement);
                self.fail(Diagnostic::error(error.code, error.message).at(at).label("the shape cannot be inferred"))
            }
        }
    }

    /// The name of an operation.
    #[inline]
    fn opcode(&mut self) -> Read<Written> {
        let name = self.ident("an operation")?;
        let span = Span::new(self.pos - name.len(), self.pos);
        match opcode_by_name(name) {
            Some(opcode) => Ok(Written { opcode, wrapped: None, span }),
            None => self.sugared_opcode(name, span),
        }
    }

    #[cold]
    fn sugared_opcode(&mut self, name: &[u8], span: Span) -> Read<Written> {
        let forms: [(&[u8], Opcode); 3] =
            [(b"-start", Opcode::AsyncStart), (b"-update", Opcode::AsyncUpdate), (b"-done", Opcode::AsyncDone)];
        for (suffix, opcode) in forms {
            let Some(wrapped) = name.strip_suffix(suffix).and_then(opcode_by_name) else { continue };
            if !has_own_async_form(wrapped) {
                return Ok(Written { opcode, wrapped: Some(wrapped), span });
            }
            let text = String::from_utf8_lossy(name);
            return self.fail(
                Diagnostic::error(&codes::text::NO_ASYNC_FORM, format!("there is no operation `{text}`"))
                    .at(span)
                    .label("unknown operation")
                    .note(format!("{wrapped} has asynchronous forms of its own, and this is not one of them")),
            );
        }
        let text = String::from_utf8_lossy(name).into_owned();
        let mut diagnostic = Diagnostic::error(&codes::text::UNKNOWN_OPCODE, format!("there is no operation `{text}`"))
            .at(span)
            .label("unknown operation");
        let near = named_elsewhere(&text).or_else(|| did_you_mean(&text, Opcode::ALL.iter().map(|o| o.name())));
        if let Some(near) = near {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        }
        self.fail(diagnostic)
    }

    /// `(0)` of `parameter(0)`.
    fn parameter(&mut self) -> Read<Op> {
        self.expect(b'(', "before the number of a parameter")?;
        self.skip();
        let start = self.pos;
        let number = self.int("the number of a parameter")?;
        if number < 0 {
            let span = self.span_from(start);
            let message = "the number of a parameter cannot be negative";
            return self.fail_at(&codes::text::NUMBER_OUT_OF_RANGE, span, message, "negative");
        }
        self.expect(b')', "after the number of a parameter")?;
        Ok(Op::parameter(number))
    }

    /// `({1, 2})` of `constant({1, 2})`.
    fn constant(&mut self, shape: &Shape) -> Read<Op> {
        self.expect(b'(', "before the value of a constant")?;
        // Old dumps repeat the shape: constant(f32[2] {1, 2}).
        if shape.is_array() && self.at_shape() && self.byte() != b'(' {
            self.shape()?;
        }
        let value = self.literal_of(shape)?;
        self.expect(b')', "after the value of a constant")?;
        Ok(Op::Constant(match value {
            Some(literal) => ConstantValue::Literal(Arc::new(literal)),
            None => ConstantValue::Elided,
        }))
    }

    /// Operands in parentheses, as many as the operation takes.
    pub(super) fn operands_of(&mut self, written: Written, operands: &mut Operands) -> Read<()> {
        self.skip();
        let start = self.pos;
        self.expect(b'(', "before the operands")?;
        let mut has_failed = false;
        if self.peek() != b')' {
            loop {
                match self.operand() {
                    Ok(operand) => operands.push(operand),
                    // A name that means nothing does not keep the others from being looked at.
                    Err(Failed) if matches!(self.peek(), b',' | b')') => has_failed = true,
                    Err(Failed) => return Err(Failed),
                }
                if !self.eat(b',') {
                    break;
                }
            }
        }
        self.expect(b')', "or `,` after an operand")?;
        if has_failed {
            return Err(Failed);
        }
        if let Some(arity) = written.opcode.arity().filter(|&n| n != operands.len()) {
            let span = self.span_from(start);
            let count = if arity == 1 { "1 operand".to_owned() } else { format!("{arity} operands") };
            let message = format!("{} takes {count}, but {} are given", written.opcode, operands.len());
            return self.fail_at(&codes::text::OPERAND_COUNT, span, message, format!("expected {count}"));
        }
        Ok(())
    }

    /// `name`, `shape name`, `name#0#1`, or an instruction in place.
    #[inline]
    fn operand(&mut self) -> Read<InstructionId> {
        self.skip();
        let start = self.pos;
        let declared = if self.byte() != b'%' { self.shape_if_any()? } else { None };
        self.skip();
        let name_start = self.pos;
        if self.byte() != b'%' && super::cursor::is_ident_start(self.byte()) {
            // A word before a parenthesis is an operation.
            let word_end = super::cursor::ident_end(self.text, self.pos);
            let next = super::cursor::skip_space(self.text, word_end);
            if self.text.get(next) == Some(&b'(') {
                self.pos = start;
                self.enter()?;
                let target = Target { name: b"", name_span: Span::new(start, start), start };
                let id = self.instruction(target, false);
                self.leave();
                return id;
            }
        } else if self.byte() != b'%' && declared.is_some() && self.makes_parameters() {
            return self.missing_operand(b"", declared, Span::new(start, self.pos));
        }
        let name = self.name("an operand")?;
        let span = Span::new(name_start, self.pos);
        if self.peek() == b'#' {
            return self.tuple_element_operand(name, span, declared);
        }
        if self.makes_parameters() && !self.scope().names.contains_key(name) {
            return self.missing_operand(name, declared, span);
        }
        let id = self.find_instruction(name, span)?;
        match declared {
            Some(declared) => self.check_operand_shape(id, declared, Span::new(start, span.end as usize)),
            None => Ok(id),
        }
    }

    #[inline]
    fn check_operand_shape(&mut self, id: InstructionId, declared: Shape, span: Span) -> Read<InstructionId> {
        let actual = &self.module[id].shape;
        if same_dims(actual, &declared) {
            return Ok(id);
        }
        let message = format!("the operand is written as {declared}, but `{}` is {actual}", self.module[id].name());
        let mut diagnostic =
            Diagnostic::error(&codes::text::OPERAND_SHAPE, message).at(span).label("not the shape of this operand");
        if let Some(defined) = self.positions.instruction(id) {
            diagnostic = diagnostic.note_at("defined here", Place::Span(defined));
        }
        self.fail(diagnostic)
    }

    /// `name#0#1`: elements of a tuple, each made once.
    fn tuple_element_operand(&mut self, name: &'a [u8], span: Span, declared: Option<Shape>) -> Read<InstructionId> {
        let mut id = self.find_instruction(name, span)?;
        let mut element_name = String::from_utf8_lossy(name).into_owned();
        while self.eat(b'#') {
            let index = self.int("the number of an element")?;
            let at = self.span_from(span.start as usize);
            let Some(shape) = self.module[id].shape.at(&[index]).cloned() else {
                let message = format!("{} has no element {index}", self.module[id].shape);
                return self.fail_at(&codes::text::TUPLE_INDEX, at, message, "no such element");
            };
            element_name.push_str(&format!("_{index}"));
            id = match self.scope().elements.get(&(id, index)) {
                Some(&element) => element,
                None => {
                    let computation = self.scope().computation;
                    let new = NewInstruction {
                        name: hloom_ir::names::sanitize(&element_name),
                        op: Op::GetTupleElement { index },
                        shape,
                        operands: Operands::from_slice(&[id]),
                        common: Default::default(),
                    };
                    let element = self.module.push_instruction(computation, new);
                    self.positions.set_instruction(element, at);
                    self.scope().elements.insert((id, index), element);
                    element
                }
            };
        }
        match declared {
            Some(declared) => self.check_operand_shape(id, declared, span),
            None => Ok(id),
        }
    }

    /// Whether operands that are not defined become parameters: in a text that is one instruction.
    fn makes_parameters(&self) -> bool {
        self.single.is_some() && self.outer_scopes.is_empty()
    }

    #[cold]
    fn missing_operand(&mut self, name: &'a [u8], shape: Option<Shape>, span: Span) -> Read<InstructionId> {
        let Some(shape) = shape else {
            let message = "in a text that is one instruction, operands are written with their shapes";
            return self.fail_at(&codes::text::UNDEFINED_INSTRUCTION, span, message, "expected a shape before this");
        };
        let number = self.single.unwrap_or(0);
        self.single = Some(number + 1);
        let text = if name.is_empty() { format!("_{number}") } else { String::from_utf8_lossy(name).into_owned() };
        let computation = self.scope().computation;
        let new = NewInstruction {
            name: text.into(),
            op: Op::parameter(number),
            shape,
            operands: Operands::new(),
            common: Default::default(),
        };
        let id = self.module.push_instruction(computation, new);
        self.positions.set_instruction(id, span);
        if !name.is_empty() {
            self.scope().names.insert(name, Symbol { id: Some(id), span, report: None });
        }
        Ok(id)
    }
}

/// Same form, types and dimensions; layouts and which dimensions are dynamic set aside.
pub(super) fn same_dims(a: &Shape, b: &Shape) -> bool {
    match (a, b) {
        (Shape::Array(a), Shape::Array(b)) | (Shape::Buffer(a), Shape::Buffer(b)) => {
            Arc::ptr_eq(a, b) || a.same_dims_and_type(b)
        }
        (Shape::Tuple(a), Shape::Tuple(b)) => {
            Arc::ptr_eq(a, b) || (a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| same_dims(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Gives a tuple that has a single sharding one for each of its leaves, as XLA does.
fn spread_sharding(sharding: &mut Sharding, shape: &Shape) {
    /// A long list of devices for very many leaves stays written once.
    const MOST_DEVICES: usize = 1 << 20;
    let Sharding::Leaf(leaf) = sharding else { return };
    let count = shape.leaf_count().max(1);
    let devices = match &leaf.kind {
        ShardingKind::Tiled(t) => match &t.devices {
            TileDevices::Explicit(list) => list.len(),
            TileDevices::Iota(_) => 1,
        },
        _ => 1,
    };
    if count.saturating_mul(devices) <= MOST_DEVICES {
        let leaf: LeafSharding = LeafSharding::clone(leaf);
        *sharding = Sharding::Tuple(vec![leaf; count]);
    }
}

/// Operations that have asynchronous forms as operations of their own.
fn has_own_async_form(opcode: Opcode) -> bool {
    use Opcode::*;
    matches!(opcode, AllGather | AllReduce | CollectivePermute | Copy | Recv | Send)
}

/// Whether the shape may be left out.
fn infers_shape(opcode: Opcode) -> bool {
    use Opcode::*;
    !matches!(
        opcode,
        AsyncStart
            | AsyncUpdate
            | AsyncDone
            | AllGather
            | AllGatherStart
            | AllGatherDone
            | AllReduce
            | AllReduceStart
            | AllReduceDone
            | AllToAll
            | CollectiveBroadcast
            | CollectivePermute
            | CollectivePermuteStart
            | CollectivePermuteDone
            | CopyDone
            | CopyStart
            | DynamicReshape
            | DynamicSlice
            | DynamicUpdateSlice
            | RaggedAllToAll
            | CollectiveReduce
            | Recv
            | RecvDone
            | ReduceScatter
            | Send
            | SendDone
            | Slice
            | Bitcast
            | BitcastConvert
            | Constant
            | Convert
            | CustomCall
            | Fusion
            | Infeed
            | Iota
            | Outfeed
            | Parameter
            | ReducePrecision
            | Reshape
            | Rng
            | RngBitGenerator
            | RngGetAndUpdateState
            | StochasticConvert
    )
}

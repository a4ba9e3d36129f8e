//! async-start, async-update and async-done, and their short forms.
//!
//! `add-start(a, b)` is async-start of a computation that holds that one add. The computation is made here; its
//! parameters have the shapes that the first part of the start's shape lists, its result the second.

use super::attributes::{Attr, AttrSet, COMMON, Values, attributes_of};
use super::instruction::{Target, Written, same_dims};
use super::op::Subject;
use super::{Failed, Read, Reader};
use hloom_ir::diagnostic::{Diagnostic, Place, Span, codes};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::{Common, Operands, RareCommon};
use hloom_ir::module::NewInstruction;
use hloom_ir::op::{AsyncStart, Op};
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::{ArrayShape, Shape};

/// The thread that computations run on unless they say otherwise.
const MAIN_THREAD: &[u8] = b"main";

impl<'a> Reader<'a> {
    pub(super) fn async_instruction(
        &mut self,
        target: Target<'a>,
        written: Written,
        declared: Option<Shape>,
        allow_attributes: bool,
    ) -> Read<InstructionId> {
        let mut operands = Operands::new();
        self.operands_of(written, &mut operands)?;
        let is_start = written.opcode == Opcode::AsyncStart;
        let shape = declared.ok_or(Failed)?;
        if written.opcode != Opcode::AsyncDone && parts(&shape).is_none() {
            let message = format!("{} has the shape ((operands), result, ...), not {shape}", written.opcode);
            return self.fail_at(&codes::text::ASYNC_SHAPE, written.span, message, "the shape before this is wrong");
        }
        let subject = subject_of(written);
        let required = match written.wrapped {
            Some(wrapped) if is_start => attributes_of(wrapped).0,
            Some(_) => AttrSet::default(),
            None => attributes_of(written.opcode).0,
        };
        let mut values = self.take_values();
        let end = self.attributes(&subject, required, allow_attributes, &mut values)?;
        let span = Span::new(target.start, end);
        let op = match written.opcode {
            Opcode::AsyncStart => self.start(&subject, written, &shape, &mut values, span)?,
            opcode => {
                self.check_chain(written, &operands, &mut values)?;
                self.follow_shapes(written, &operands, &shape);
                let aliasing = std::mem::take(&mut values.aliasing);
                match opcode {
                    Opcode::AsyncUpdate => Op::AsyncUpdate { output_operand_aliasing: aliasing },
                    _ => Op::AsyncDone,
                }
            }
        };
        let start = self.chain_start(operands.first());
        let id = self.add(target, span, op, shape, operands, &mut values)?;
        self.give_back(values);
        if let (Opcode::AsyncUpdate, Some(start)) = (written.opcode, start) {
            self.async_starts.insert(id, start);
        }
        Ok(id)
    }

    fn start(
        &mut self,
        subject: &Subject,
        written: Written,
        shape: &Shape,
        values: &mut Values,
        span: Span,
    ) -> Read<Op> {
        let thread = values.string(Attr::AsyncExecutionThread).filter(|t| t != MAIN_THREAD);
        let thread: Option<Box<str>> = thread.map(|t| String::from_utf8_lossy(&t).into());
        let output_operand_aliasing = std::mem::take(&mut values.aliasing);
        let calls = match written.wrapped {
            Some(_) => self.wrap(subject, shape, values, span)?,
            None => values.computation(Attr::Calls).ok_or(Failed)?,
        };
        if thread.is_some() {
            self.set_thread(calls, &thread);
        }
        if written.wrapped.is_none() {
            self.hand_on(calls, &values.common);
        }
        Ok(Op::AsyncStart(Box::new(AsyncStart { calls, execution_thread: thread, output_operand_aliasing })))
    }

    /// Makes `computation` and all that it calls run on `thread`.
    fn set_thread(&mut self, computation: ComputationId, thread: &Option<Box<str>>) {
        let mut left = vec![computation];
        while let Some(computation) = left.pop() {
            // A computation whose calls are threaded already needs no second look, however often it is called.
            if self.threaded.insert(computation, thread.clone()).as_ref() == Some(thread) {
                continue;
            }
            self.module.computation_mut(computation).execution_thread = thread.clone();
            let module = &self.module;
            let calls = module[computation].instructions().iter().flat_map(|&i| module[i].op.called_computations());
            left.extend(calls);
        }
    }

    /// Gives the root of `computation` what its start says of the operation as a whole.
    fn hand_on(&mut self, computation: ComputationId, common: &Common) {
        let Some(root) = self.module.root(computation) else { return };
        let Common { metadata, backend_config, rare, .. } = wrapped_common(common);
        let inner = &mut self.module.instruction_mut(root).common;
        if metadata.is_some() {
            inner.metadata = metadata;
        }
        if backend_config.is_some() {
            inner.backend_config = backend_config;
        }
        if let Some(rare) = rare {
            let RareCommon { frontend_attributes, statistics, .. } = *rare;
            if !frontend_attributes.is_empty() {
                inner.rare_mut().frontend_attributes = frontend_attributes;
            }
            if statistics.is_some() {
                inner.rare_mut().statistics = statistics;
            }
        }
    }

    /// The computation that holds the one operation of a sugared start.
    fn wrap(&mut self, subject: &Subject, shape: &Shape, values: &mut Values, span: Span) -> Read<ComputationId> {
        let (operand_shapes, result) = parts(shape).ok_or(Failed)?;
        let computation = self.module.start_computation("async_wrapped");
        self.positions.set_computation(computation, span);
        let mut parameters = Operands::new();
        // An operand may come only with a later update; until then it is anything.
        let count = operand_shapes.len().max(subject.opcode.arity().unwrap_or(0));
        for i in 0..count {
            let shape = operand_shapes.get(i).cloned().unwrap_or_else(unknown_operand);
            let parameter = self.wrapped_parameter(computation, i, shape, span);
            parameters.push(parameter);
        }
        let op = self.build_op(subject, values, &parameters)?;
        let called = match &op {
            Op::Fusion(f) => Some(f.calls),
            Op::Call { to_apply, .. } => Some(*to_apply),
            _ => None,
        };
        let mut result = result.clone();
        if let Some(called) = called {
            for (i, parameter) in self.module.parameters(called).into_iter().enumerate() {
                let shape = self.module[parameter].shape.clone();
                match parameters.get(i) {
                    Some(&p) if same_dims(&self.module[p].shape, &shape) => {}
                    Some(&p) => self.module.instruction_mut(p).shape = shape,
                    None => {
                        let parameter = self.wrapped_parameter(computation, i, shape, span);
                        parameters.push(parameter);
                    }
                }
            }
            if let Some(root) = self.module.root(called) {
                let shape = &self.module[root].shape;
                if !same_dims(&result, shape) {
                    result = shape.clone();
                }
            }
        }
        let new = NewInstruction {
            name: subject.opcode.name().into(),
            op,
            shape: result,
            operands: parameters,
            common: wrapped_common(&values.common),
        };
        let root = self.module.push_instruction(computation, new);
        self.positions.set_instruction(root, span);
        self.module.set_root(root);
        self.finish_computation(computation);
        Ok(computation)
    }

    fn wrapped_parameter(
        &mut self,
        computation: ComputationId,
        number: usize,
        shape: Shape,
        span: Span,
    ) -> InstructionId {
        let new = NewInstruction {
            name: "async_param".into(),
            op: Op::parameter(number as i64),
            shape,
            operands: Operands::new(),
            common: Common::default(),
        };
        let id = self.module.push_instruction(computation, new);
        self.positions.set_instruction(id, span);
        id
    }

    /// The async-start that `operand` belongs to, if it is one or an update of one.
    fn chain_start(&self, operand: Option<&InstructionId>) -> Option<InstructionId> {
        let id = *operand?;
        match &self.module[id].op {
            Op::AsyncStart(_) => Some(id),
            Op::AsyncUpdate { .. } => self.async_starts.get(&id).copied(),
            _ => None,
        }
    }

    /// What an update or done says of its chain must be what the start said.
    fn check_chain(&mut self, written: Written, operands: &[InstructionId], values: &mut Values) -> Read<()> {
        if operands.first().is_some_and(|&o| matches!(self.module[o].op, Op::AsyncDone)) {
            let message = format!("{} cannot follow async-done", written.opcode);
            return self.fail_at(&codes::text::ASYNC_CHAIN, written.span, message, "the operation is done already");
        }
        let Some(start_id) = self.chain_start(operands.first()) else { return Ok(()) };
        let Op::AsyncStart(start) = &self.module[start_id].op else { return Ok(()) };
        let calls = start.calls;
        let started_on = start.execution_thread.as_deref().map_or(MAIN_THREAD, str::as_bytes).to_vec();
        let other_thread = values.string(Attr::AsyncExecutionThread).filter(|t| *t != started_on);
        let fault = if let Some(thread) = other_thread {
            let quote = |t: &[u8]| String::from_utf8_lossy(t).into_owned();
            let message = format!("the operation started on thread {:?}, not {:?}", quote(&started_on), quote(&thread));
            Some((values.place(Attr::AsyncExecutionThread), message))
        } else if values.computation(Attr::Calls).is_some_and(|c| c != calls) {
            let message = format!("the operation that started calls `{}`", self.module[calls].name());
            Some((values.place(Attr::Calls), message))
        } else {
            let begun = self.module.root(calls).map(|r| self.module[r].opcode());
            match (written.wrapped, begun) {
                (Some(wrapped), Some(begun)) if wrapped != begun => {
                    Some((Some(written.span), format!("the operation that started is {begun}, not {wrapped}")))
                }
                _ => None,
            }
        };
        let Some((place, message)) = fault else { return Ok(()) };
        let mut diagnostic = Diagnostic::error(&codes::text::ASYNC_CHAIN, message)
            .at(place.unwrap_or(written.span))
            .label("contradicts the start");
        if let Some(started) = self.positions.instruction(start_id) {
            diagnostic = diagnostic.note_at("started here", Place::Span(started));
        }
        self.fail(diagnostic)
    }

    /// A later part of a sugared chain may say better what the wrapped computation takes and gives.
    fn follow_shapes(&mut self, written: Written, operands: &[InstructionId], shape: &Shape) {
        if written.wrapped.is_none() {
            return;
        }
        let Some(start) = self.chain_start(operands.first()) else { return };
        let Op::AsyncStart(async_start) = &self.module[start].op else { return };
        let calls = async_start.calls;
        let result = match written.opcode {
            Opcode::AsyncUpdate => parts(shape).map(|p| p.1.clone()),
            _ => Some(shape.clone()),
        };
        let Some((result, root)) = result.zip(self.module.root(calls)) else { return };
        if written.opcode == Opcode::AsyncUpdate {
            let shapes = parts(shape).map(|p| p.0.to_vec()).unwrap_or_default();
            for (parameter, shape) in self.module.parameters(calls).into_iter().zip(shapes) {
                if !same_dims(&self.module[parameter].shape, &shape) {
                    self.module.instruction_mut(parameter).shape = shape;
                }
            }
        }
        if !same_dims(&self.module[root].shape, &result) {
            self.module.instruction_mut(root).shape = result;
        }
    }
}

/// The attributes that may be written.
fn subject_of(written: Written) -> Subject {
    use Attr::*;
    let allowed = match (written.wrapped, written.opcode) {
        (Some(wrapped), Opcode::AsyncStart) => {
            let (required, optional) = attributes_of(wrapped);
            required.and(optional).and(AttrSet::of(&[AsyncExecutionThread, OutputToOperandAliasing]))
        }
        (_, opcode) => {
            let (required, optional) = attributes_of(opcode);
            let both = required.and(optional);
            if written.wrapped.is_some() { both.without(AttrSet::of(&[Calls])) } else { both }
        }
    };
    let opcode = match written.opcode {
        Opcode::AsyncStart => written.wrapped.unwrap_or(written.opcode),
        opcode => opcode,
    };
    Subject { opcode, opcode_span: written.span, allowed: COMMON.and(allowed) }
}

/// `((operands), result, …)`.
fn parts(shape: &Shape) -> Option<(&[Shape], &Shape)> {
    let elements = shape.as_tuple()?;
    Some((elements.first()?.as_tuple()?, elements.get(1)?))
}

fn unknown_operand() -> Shape {
    ArrayShape::new(ElementType::F32, [1]).with_default_layout().into()
}

/// What the wrapped operation has of the start's: where it came from and how it is configured, not where it lies.
fn wrapped_common(common: &Common) -> Common {
    let rare = common.rare.as_ref().map(|r| {
        Box::new(RareCommon {
            frontend_attributes: r.frontend_attributes.clone(),
            statistics: r.statistics.clone(),
            // An origin has the form of the start's own shape.
            ..RareCommon::default()
        })
    });
    Common { metadata: common.metadata.clone(), backend_config: common.backend_config.clone(), sharding: None, rare }
}

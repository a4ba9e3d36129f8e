//! Tests of the proto reader and writer.

mod hostile;
mod old_dumps;
mod round_trip;
mod snapshot;
mod unknown_fields;

use super::wire::{write_bytes, write_integer, write_integers, write_message, write_str};
use super::{Container, messages as m, read, write};
use crate::hlo_text::{PrintOptions, print};
use hloom_ir::diagnostic::{Code, Diagnostic};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::Common;
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;

/// The module as HLO text with all there is.
fn text(module: &Module) -> String {
    print(module, &PrintOptions::default())
}

/// The module after a journey through a proto.
fn through_proto(module: &Module) -> Module {
    let bytes = write(module, Container::Module).expect("it can be written");
    read(&bytes).expect("it can be read back")
}

fn add(
    module: &mut Module,
    computation: ComputationId,
    name: &str,
    op: Op,
    shape: &Shape,
    operands: &[InstructionId],
) -> InstructionId {
    module.add_instruction(
        computation,
        NewInstruction {
            name: name.into(),
            op,
            shape: shape.clone(),
            operands: operands.iter().copied().collect(),
            common: Common::default(),
        },
    )
}

/// An encoded instruction of shape `f32[2]`, to which more fields may be appended.
fn instruction(name: &str, opcode: &str, id: i64, operands: &[i64]) -> Vec<u8> {
    let mut out = Vec::new();
    write_str(&mut out, 1, name);
    write_str(&mut out, 2, opcode);
    let shape = m::ShapeProto { element_type: 11, dimensions: vec![2], ..m::ShapeProto::default() };
    write_message(&mut out, 3, &shape);
    write_integer(&mut out, 35, id);
    write_integers(&mut out, 36, operands.iter().copied());
    out
}

/// An encoded computation.
fn computation(name: &str, id: i64, root: i64, instructions: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    write_str(&mut out, 1, name);
    for i in instructions {
        write_bytes(&mut out, 2, i);
    }
    write_integer(&mut out, 5, id);
    write_integer(&mut out, 6, root);
    out
}

/// An encoded module.
fn module(entry: i64, computations: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    write_str(&mut out, 1, "m");
    for c in computations {
        write_bytes(&mut out, 3, c);
    }
    write_integer(&mut out, 6, entry);
    out
}

/// The one thing that is wrong with some bytes.
fn fault(bytes: &[u8]) -> Diagnostic {
    let mut diagnostics = read(bytes).expect_err("it must be refused");
    assert_eq!(diagnostics.len(), 1);
    diagnostics.remove(0)
}

/// Checks that bytes are refused for that reason, with a message that has all of `parts` in it.
fn assert_refused(bytes: &[u8], code: &'static Code, parts: &[&str]) {
    let diagnostic = fault(bytes);
    assert_eq!(diagnostic.code, code, "{}", diagnostic.message);
    for part in parts {
        assert!(diagnostic.message.contains(part), "{part:?} is not in {:?}", diagnostic.message);
    }
}

//! Tables of operations, operands and what comes of them.
//!
//! A row is written like an instruction: the operation, the operands' shapes with `|` between them, the shape declared
//! (empty where none is), and the result: a shape, or a code and the part it points at.

mod collectives;
mod data_movement;
mod elementwise;
mod functions;
mod products;
mod robustness;

use super::{MixedPrecision, check_shape, infer_shape};
use crate::builder::Builder;
use crate::diagnostic::Part;
use crate::element_type::ElementType;
use crate::entity::InstructionId;
use crate::module::Module;
use crate::op::Op;
use crate::shape::{ArrayShape, Shape};

/// Reads `f32[2,<=3,?]`, `(f32[], token[])`, `opaque[]`, `b(f32[2])`.
pub(super) fn shape(text: &str) -> Shape {
    let (shape, rest) = read_shape(text.trim());
    assert!(rest.is_empty(), "{text}: {rest} is left over");
    shape
}

fn read_shape(text: &str) -> (Shape, &str) {
    if let Some(mut rest) = text.strip_prefix('(') {
        let mut elements = Vec::new();
        while !rest.starts_with(')') {
            let (element, after) = read_shape(rest.trim_start_matches([',', ' ']));
            elements.push(element);
            rest = after;
        }
        return (Shape::tuple(elements), &rest[1..]);
    }
    if let Some(rest) = text.strip_prefix("b(") {
        let (Shape::Array(array), rest) = read_shape(rest) else { panic!("{text}: a buffer of no array") };
        return (Shape::Buffer(array), &rest[1..]);
    }
    let (name, rest) = text.split_once('[').unwrap_or_else(|| panic!("{text} is no shape"));
    let (dims, rest) = rest.split_once(']').unwrap_or_else(|| panic!("{text} is no shape"));
    let shape = match name {
        "token" => Shape::Token,
        "opaque" => Shape::Opaque,
        _ => {
            let element_type = ElementType::from_name(name.as_bytes()).unwrap_or_else(|| panic!("no type {name}"));
            let dims: Vec<(i64, bool)> = dims.split(',').filter(|d| !d.is_empty()).map(read_dimension).collect();
            let sizes = dims.iter().map(|d| d.0);
            ArrayShape::with_dynamic(element_type, sizes, dims.iter().map(|d| d.1)).into()
        }
    };
    (shape, rest)
}

fn read_dimension(text: &str) -> (i64, bool) {
    match (text, text.strip_prefix("<=")) {
        ("?", _) => (ArrayShape::UNBOUNDED, true),
        (_, Some(bound)) => (bound.parse().unwrap(), true),
        (_, None) => (text.parse().unwrap(), false),
    }
}

/// A module with one parameter for each of the shapes in `operands`.
pub(super) fn with_operands(operands: &str) -> (Module, Vec<InstructionId>) {
    let mut module = Module::new("m");
    let mut b = Builder::new(&mut module, "main");
    let shapes = operands.split('|').filter(|o| !o.trim().is_empty());
    let ids = shapes.enumerate().map(|(i, o)| b.parameter(i as i64, shape(o), "p").unwrap()).collect();
    (module, ids)
}

/// What comes of `op`: the shape, or the code and the part.
pub(super) fn outcome(module: &Module, op: &Op, operands: &[InstructionId], declared: &str) -> String {
    let declared = (!declared.is_empty()).then(|| shape(declared));
    match infer_shape(module, op, operands, declared.as_ref()) {
        Ok(made) => {
            // A shape that is inferred is a shape the verifier takes, but for mixed floating-point types.
            if let Err(e) = check_shape(module, op, operands, &made, MixedPrecision::Refused) {
                assert_eq!(e.code.number, 325, "{}: {e}", op.opcode());
                return format!("{made}, but H0325");
            }
            made.to_string()
        }
        Err(e) => {
            assert!(!e.message.is_empty());
            format!("{} {}", e.code, part_text(e.part))
        }
    }
}

fn part_text(part: Part) -> String {
    match part {
        Part::Whole => "whole".into(),
        Part::Name => "name".into(),
        Part::Shape => "shape".into(),
        Part::Opcode => "opcode".into(),
        Part::Operand(i) => format!("operand {i}"),
        Part::Attribute(name) => name.into(),
    }
}

/// Checks the rows of a table without called computations.
pub(super) fn check_table(rows: impl IntoIterator<Item = (Op, &'static str, &'static str, &'static str)>) {
    let mut wrong = String::new();
    for (op, operands, declared, expected) in rows {
        let (module, ids) = with_operands(operands);
        let found = outcome(&module, &op, &ids, declared);
        if found != expected {
            wrong += &format!("{}({operands}) as '{declared}': {found}, expected {expected}\n", op.opcode());
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Checks one operation that calls computations, which `make` may define.
#[track_caller]
pub(super) fn check_call(operands: &str, declared: &str, make: impl FnOnce(&mut Builder<'_>) -> Op, expected: &str) {
    let (mut module, ids) = with_operands(operands);
    let computation = module[ids[0]].parent();
    let op = make(&mut Builder::resume(&mut module, computation));
    assert_eq!(outcome(&module, &op, &ids, declared), expected, "{}({operands}) as '{declared}'", op.opcode());
}

/// A computation with those parameters and that result.
pub(super) fn computation(b: &mut Builder<'_>, parameters: &str, result: &str) -> crate::entity::ComputationId {
    b.define("c", |b| {
        for (i, p) in parameters.split('|').filter(|p| !p.trim().is_empty()).enumerate() {
            b.parameter(i as i64, shape(p), "p")?;
        }
        b.push_shaped(Op::CustomCall(Box::new(crate::op::CustomCall::new("result"))), &[], shape(result))
    })
    .unwrap()
}

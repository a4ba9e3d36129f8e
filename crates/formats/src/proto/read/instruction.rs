//! One instruction: what every instruction has, and its operands.

use super::error::{Result, decode, error, locate, missing, wire};
use super::module::{LocalIds, Reader, frontend_attributes, integer, original_array, sanitized, text};
use super::{literal, metadata, op, sharding};
use crate::proto::messages::{InstructionAttributes, LiteralProto, OriginalValueProto};
use crate::proto::unknown::{self, FieldSet};
use crate::proto::wire::{Fields, Value, read_integers};
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::diagnostic::codes::proto as codes;
use hloom_ir::diagnostic::{Diagnostic, did_you_mean};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::{Common, Operands, OriginTree, OriginalArray, OriginalValue, Statistics};
use hloom_ir::literal::Literal;
use hloom_ir::metadata::Metadata;
use hloom_ir::module::NewInstruction;
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::Shape;
use std::borrow::Cow;
use std::sync::Arc;

/// The fields that every instruction has; the others are in [`InstructionAttributes`].
#[derive(Default)]
struct Frame<'a> {
    name: &'a str,
    opcode: &'a str,
    shape: Option<Cow<'a, [u8]>>,
    metadata: Option<Cow<'a, [u8]>>,
    literal: Option<Cow<'a, [u8]>>,
    id: i64,
    operands: Vec<i64>,
    control_predecessors: Vec<i64>,
    called_computations: Vec<i64>,
    /// All fields that occur.
    present: FieldSet,
}

/// What reading an operation needs to know.
pub(super) struct Parts<'p> {
    pub(super) attributes: &'p InstructionAttributes,
    pub(super) shape: &'p Shape,
    pub(super) operands: &'p [InstructionId],
    pub(super) called: Vec<ComputationId>,
    /// Field 8; the outer option is whether it is there, the inner one whether it has elements.
    pub(super) literal: Option<Option<Literal>>,
    /// The direction that an opcode of old dumps implies.
    pub(super) direction: Option<ComparisonDirection>,
}

/// Reads an instruction and adds it to `computation`.
pub(super) fn instruction<'a>(
    reader: &mut Reader<'a>,
    computation: ComputationId,
    local: &mut LocalIds,
    bytes: &'a [u8],
) -> Result<()> {
    let frame = frame(bytes)?;
    if frame.name.is_empty() {
        return missing("name of an instruction");
    }
    let here = || format!("instruction {}", frame.name);
    let new = new_instruction(reader, local, bytes, &frame).map_err(|d| locate(here())(d))?;
    let id = reader.module.add_instruction(computation, new);
    if !local.insert(frame.id, id) {
        let message = format!("{}: another instruction has the id {} too", here(), frame.id);
        return Err(Diagnostic::error(&codes::DUPLICATE_ID, message)
            .note("of an instruction's id the lower 32 bits count within a computation"));
    }
    Ok(())
}

fn frame(bytes: &[u8]) -> Result<Frame<'_>> {
    let mut frame = Frame::default();
    for field in Fields::new(bytes) {
        let field = field.map_err(wire(format_args!("instruction {}", frame.name)))?;
        // XLA writes frontend attributes and statistics for every instruction, though it be with nothing in them.
        if !(matches!(field.number, 68 | 82) && field.value == Value::Bytes(&[])) {
            frame.present.insert(field.number);
        }
        let numbers = match field.number {
            1 => {
                frame.name = text(&field, "name of an instruction")?;
                continue;
            }
            2 => {
                frame.opcode = text(&field, "opcode of an instruction")?;
                continue;
            }
            3 | 7 | 8 => {
                let Some(bytes) = field.value.bytes() else {
                    let message = format!("instruction {}: field {} is not a message", frame.name, field.number);
                    return error(&codes::DAMAGED, message);
                };
                let slot = match field.number {
                    3 => &mut frame.shape,
                    7 => &mut frame.metadata,
                    _ => &mut frame.literal,
                };
                match slot {
                    // The parts of a message that was written in parts are merged, which is to append them.
                    Some(before) => before.to_mut().extend_from_slice(bytes),
                    None => *slot = Some(Cow::Borrowed(bytes)),
                }
                continue;
            }
            35 => {
                frame.id = integer(&field, "id of an instruction")?;
                continue;
            }
            36 => &mut frame.operands,
            37 => &mut frame.control_predecessors,
            38 => &mut frame.called_computations,
            _ => continue,
        };
        read_integers(field.value, numbers).map_err(wire(format_args!("instruction {}", frame.name)))?;
    }
    Ok(frame)
}

fn new_instruction<'a>(
    reader: &mut Reader<'a>,
    local: &LocalIds,
    bytes: &[u8],
    frame: &Frame<'a>,
) -> Result<NewInstruction> {
    let (opcode, direction) = opcode(frame.opcode)?;
    let attributes = if frame.present.without(unknown::INSTRUCTION_FRAME).is_empty() {
        InstructionAttributes::default()
    } else {
        decode(bytes, "the instruction")?
    };
    let Some(shape) = &frame.shape else { return missing("shape") };
    let shape = reader.shape(shape.clone())?;
    let operands: Operands = resolve(local, &frame.operands, "operand")?;
    let mut called = Vec::with_capacity(frame.called_computations.len());
    for &id in &frame.called_computations {
        match reader.computations.get(&id) {
            Some(&c) => called.push(c),
            None => {
                let message = format!("it calls the computation with the id {id}, which no earlier one has");
                return error(&codes::UNKNOWN_ID, message);
            }
        }
    }
    let modelled = unknown::instruction(opcode);
    let literal = match &frame.literal {
        Some(literal) if modelled.contains(8) => {
            let proto: LiteralProto = decode(literal, "the literal")?;
            Some(literal::literal(&proto)?)
        }
        _ => None,
    };
    let mut common = common(reader, &attributes, &shape)?;
    if let Some(encoded) = &frame.metadata {
        let mut metadata = metadata::metadata(reader, encoded)?;
        // A frame that the table does not have is no place at all.
        let frames = reader.module.stack_frames.frames.len();
        if usize::try_from(metadata.stack_frame_id).map_or(true, |id| id > frames) {
            metadata.stack_frame_id = 0;
        }
        if metadata != Metadata::default() {
            common.metadata = Some(Box::new(metadata));
        }
    }
    if !frame.control_predecessors.is_empty() {
        let predecessors = resolve(local, &frame.control_predecessors, "control predecessor")?;
        common.rare_mut().control_predecessors = predecessors;
    }
    let parts = Parts { attributes: &attributes, shape: &shape, operands: &operands, called, literal, direction };
    let op = op::op(reader, opcode, parts)?;
    if !frame.present.without(modelled).is_empty() {
        keep_unknown(bytes, modelled, &mut common);
    }
    Ok(NewInstruction { name: sanitized(frame.name), op, shape, operands, common })
}

fn keep_unknown(bytes: &[u8], modelled: FieldSet, common: &mut Common) {
    let mut unknown_fields = Vec::new();
    for field in Fields::new(bytes).flatten() {
        unknown::keep(&field, modelled, &mut unknown_fields);
    }
    if !unknown_fields.is_empty() {
        common.rare_mut().unknown_fields = unknown_fields.into();
    }
}

/// The opcode, and for the comparisons of old dumps, each of which had its own, what they compare.
fn opcode(name: &str) -> Result<(Opcode, Option<ComparisonDirection>)> {
    if name.is_empty() {
        return missing("opcode");
    }
    if let Some(opcode) = Opcode::from_name(name.as_bytes()) {
        return Ok((opcode, None));
    }
    let direction = match name {
        "equal-to" => ComparisonDirection::Eq,
        "not-equal-to" => ComparisonDirection::Ne,
        "greater-than-or-equal-to" => ComparisonDirection::Ge,
        "greater-than" => ComparisonDirection::Gt,
        "less-than-or-equal-to" => ComparisonDirection::Le,
        "less-than" => ComparisonDirection::Lt,
        _ => {
            let diagnostic = Diagnostic::error(&codes::UNKNOWN_OPCODE, format!("unknown opcode {name:?}"));
            return Err(match did_you_mean(name, Opcode::ALL.iter().map(|o| o.name())) {
                Some(near) => diagnostic.help(format!("did you mean {near:?}?")),
                None => diagnostic,
            });
        }
    };
    Ok((Opcode::Compare, Some(direction)))
}

fn resolve<C: FromIterator<InstructionId>>(local: &LocalIds, ids: &[i64], what: &str) -> Result<C> {
    let find = |(i, &id): (usize, &i64)| match local.get(id) {
        Some(instruction) => Ok(instruction),
        None => error(
            &codes::UNKNOWN_ID,
            format!("{what} {i} has the id {id}, which no earlier instruction of the computation has"),
        ),
    };
    ids.iter().enumerate().map(find).collect()
}

fn common(reader: &mut Reader<'_>, p: &InstructionAttributes, shape: &Shape) -> Result<Common> {
    let mut common = Common::default();
    if let Some(proto) = &p.sharding {
        common.sharding = Some(Arc::new(sharding::sharding_of(reader, proto, shape)?));
    }
    common.backend_config = match &p.backend_config_payload {
        Some(payload) => match (payload.id, &payload.value) {
            (Some(id), _) => Some(reader.payload(id)?),
            (None, value) => value.as_deref().map(Into::into),
        },
        None => Some(p.backend_config.as_slice().into()),
    };
    common.backend_config = common.backend_config.filter(|c| !c.is_empty());
    if let Some(attributes) = p.frontend_attributes.as_ref().filter(|a| !a.map.is_empty()) {
        common.rare_mut().frontend_attributes = frontend_attributes(&attributes.map);
    }
    if let Some(viz) = p.statistics_viz.as_ref().filter(|v| !v.statistics.is_empty()) {
        common.rare_mut().statistics = Some(Statistics {
            visualizing_index: viz.stat_index_to_visualize,
            values: viz.statistics.iter().map(|s| (s.stat_name.as_str().into(), s.stat_val)).collect(),
        });
    }
    if let Some(proto) = &p.original_value {
        common.rare_mut().origin = Some(original_value(proto, shape)?);
    }
    Ok(common)
}

fn original_value(proto: &OriginalValueProto, shape: &Shape) -> Result<OriginalValue> {
    if proto.is_synthetic_call {
        return Ok(OriginalValue::SyntheticCall);
    }
    let mut tree = unknown_origin(shape);
    for element in &proto.elements {
        let array = element.original_array.as_ref().map(|a| original_array(Some(a)));
        if place(&mut tree, &element.shape_index, shape, array).is_none() {
            let index = &element.shape_index;
            return error(&codes::BAD_VALUE, format!("original_value has the part {index:?}, which {shape} has not"));
        }
    }
    Ok(OriginalValue::Tree(tree))
}

/// A tree in the form of `shape`, of which no leaf is known.
fn unknown_origin(shape: &Shape) -> OriginTree {
    match shape {
        Shape::Tuple(elements) => OriginTree::Tuple(elements.iter().map(unknown_origin).collect()),
        _ => OriginTree::Leaf(None),
    }
}

/// Puts a leaf into the tree. Its path is followed along `shape`, so that the tree grows no larger than that.
fn place(tree: &mut OriginTree, path: &[i64], shape: &Shape, array: Option<OriginalArray>) -> Option<()> {
    let Some((&first, rest)) = path.split_first() else {
        *tree = OriginTree::Leaf(array);
        return Some(());
    };
    let index = usize::try_from(first).ok()?;
    let shapes = shape.as_tuple()?;
    let element = shapes.get(index)?;
    if let OriginTree::Leaf(_) = tree {
        *tree = unknown_origin(shape);
    }
    let OriginTree::Tuple(elements) = tree else { return None };
    place(elements.get_mut(index)?, rest, element, array)
}

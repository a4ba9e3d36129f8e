//! Modules and computations: ids, order, schedule and what the header says.
//!
//! Computations and instructions are decoded one at a time, so that a large proto is never held twice. What is used
//! comes first in a proto (operands before users, callees before callers), which makes call and operand cycles
//! impossible; a proto in another order is refused, as XLA refuses it. The instructions of a computation are added in
//! the order of the schedule, or else in the order of their ids, which is the order they have in text: XLA writes them
//! in another one.

use super::error::{Result, decode, error, locate, missing, wire};
use super::{instruction, shape};
use crate::open_layouts;
use crate::proto::messages::{ModuleHeader, OriginalArrayProto, ShapeProto, StackFrameIndexProto};
use crate::proto::unknown;
use crate::proto::wire::{Field, Fields, read_integers};
use hloom_ir::attributes::AliasKind;
use hloom_ir::diagnostic::codes::proto as codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::{FrontendAttributes, OriginalArray};
use hloom_ir::metadata::{FileLocation, StackFrame, StackFrames};
use hloom_ir::module::{BufferDonor, InputOutputAlias, Module, OriginRecovery};
use hloom_ir::shape::Shape;
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How deep recovery modules may have recovery modules.
const MAX_MODULE_DEPTH: usize = 4;
/// Bytes that may be copied in all for what a proto gives once and means often, whatever the size of the proto.
const MIN_COPY_BUDGET: usize = 64 << 20;

/// A module being read.
pub(super) struct Reader<'a> {
    pub(super) module: Module,
    /// Computations read so far, by their ids.
    pub(super) computations: FxHashMap<i64, ComputationId>,
    /// Shapes read so far, by their encoding: modules of a million instructions have a few hundred.
    shapes: FxHashMap<&'a [u8], Shape>,
    strings: FxHashSet<Arc<str>>,
    payloads: Vec<Vec<u8>>,
    /// Bytes that may still be copied.
    copy_budget: usize,
}

/// Reads an `HloModuleProto`.
pub(super) fn module(bytes: &[u8]) -> Result<Module> {
    let mut copy_budget = bytes.len().saturating_mul(64).max(MIN_COPY_BUDGET);
    nested_module(bytes, 0, &mut copy_budget)
}

/// Reads an `HloModuleProto`; `depth` counts the modules it is inside of, with which it shares what may be copied.
fn nested_module(bytes: &[u8], depth: usize, copy_budget: &mut usize) -> Result<Module> {
    if depth > MAX_MODULE_DEPTH {
        return error(&codes::TOO_DEEP, "recovery modules have recovery modules too deeply");
    }
    let mut header_bytes = Vec::new();
    let mut unknown_fields = Vec::new();
    let mut computations = Vec::new();
    for field in Fields::new(bytes) {
        let field = field.map_err(wire("the module"))?;
        if field.number == 3 {
            computations.push(message(&field, "computations")?);
            continue;
        }
        if unknown::MODULE.contains(field.number) {
            header_bytes.extend_from_slice(field.raw);
        }
        unknown::keep(&field, unknown::MODULE, &mut unknown_fields);
    }
    let mut header: ModuleHeader = decode(&header_bytes, "the module")?;
    let mut reader = Reader {
        module: Module::new(sanitized(&header.name)),
        computations: FxHashMap::default(),
        shapes: FxHashMap::default(),
        strings: FxHashSet::default(),
        payloads: std::mem::take(&mut header.payloads),
        copy_budget: *copy_budget,
    };
    reader.module.config.unknown_fields = unknown_fields.into();
    reader.header(&header, depth)?;
    let mut sequences = match header.schedule.take() {
        Some(schedule) => {
            reader.module.is_scheduled = true;
            schedule.sequences
        }
        None => BTreeMap::new(),
    };
    for bytes in computations {
        reader.computation(bytes, &mut sequences)?;
    }
    // Sequences of computations that are not there are passed over: XLA leaves them behind when it removes one.
    let entry = reader.computations.get(&header.entry_computation_id).copied();
    let named = || reader.module.computation_by_name(&header.entry_computation_name);
    match entry.or_else(named) {
        Some(entry) => reader.module.set_entry(entry),
        None => {
            let id = header.entry_computation_id;
            return error(&codes::UNKNOWN_ID, format!("entry_computation_id is {id}, which no computation has"));
        }
    }
    *copy_budget = reader.copy_budget;
    Ok(reader.module)
}

/// The bytes of a message field.
fn message<'a>(field: &Field<'a>, what: &str) -> Result<&'a [u8]> {
    match field.value.bytes() {
        Some(bytes) => Ok(bytes),
        None => error(&codes::DAMAGED, format!("the field {what} is not a message")),
    }
}

impl<'a> Reader<'a> {
    fn header(&mut self, header: &ModuleHeader, depth: usize) -> Result<()> {
        let config = &mut self.module.config;
        if let Some(shape) = &header.host_program_shape {
            config.entry_layout = Some(shape::program_shape(shape).map_err(locate("host_program_shape"))?);
        }
        for alias in header.input_output_alias.iter().flat_map(|a| &a.entries) {
            let Some(kind) = AliasKind::from_proto_number(alias.kind) else {
                return error(&codes::BAD_VALUE, format!("input_output_alias has the kind {}", alias.kind));
            };
            config.input_output_alias.push(InputOutputAlias {
                output_index: alias.output_shape_index.iter().copied().collect(),
                parameter: alias.parameter_number,
                parameter_index: alias.parameter_shape_index.iter().copied().collect(),
                kind,
            });
        }
        for donor in header.buffer_donor.iter().flat_map(|d| &d.entries) {
            config.buffer_donors.push(BufferDonor {
                parameter: donor.parameter_number,
                parameter_index: donor.parameter_shape_index.iter().copied().collect(),
            });
        }
        if let Some(attributes) = &header.frontend_attributes {
            config.frontend_attributes = frontend_attributes(&attributes.map);
            open_layouts::reopen(config);
        }
        for entry in header.original_value_recovery_table.iter().flat_map(|t| &t.entries) {
            let budget = &mut self.copy_budget;
            let recovery = entry.recovery_module.as_deref().map(|m| nested_module(m, depth + 1, budget));
            let recovery = recovery.transpose().map_err(locate("original_value_recovery_table"))?;
            config.origin_recovery_table.push(OriginRecovery {
                old: original_array(entry.old_original_array.as_ref()),
                new: original_array(entry.new_original_array.as_ref()),
                recovery: recovery.map(Box::new),
            });
        }
        if let Some(index) = &header.stack_frame_index {
            self.module.stack_frames = stack_frames(index);
        }
        Ok(())
    }

    fn computation(
        &mut self,
        bytes: &'a [u8],
        sequences: &mut BTreeMap<i64, crate::proto::messages::InstructionSequence>,
    ) -> Result<()> {
        let (mut name, mut thread) = ("", "");
        let (mut id, mut root) = (0, 0);
        let mut unknown_fields = Vec::new();
        let mut instructions = Vec::new();
        for field in Fields::new(bytes) {
            let field = field.map_err(wire("a computation"))?;
            match field.number {
                1 => name = text(&field, "name of a computation")?,
                2 => instructions.push(message(&field, "instructions")?),
                5 => id = integer(&field, "id of a computation")?,
                6 => root = integer(&field, "root_id of a computation")?,
                8 => thread = text(&field, "execution_thread of a computation")?,
                _ => unknown::keep(&field, unknown::COMPUTATION, &mut unknown_fields),
            }
        }
        if name.is_empty() {
            return missing("name of a computation");
        }
        let here = || format!("computation {name}");
        let computation = self.module.add_computation(&sanitized(name));
        let c = self.module.computation_mut(computation);
        c.execution_thread = Some(thread).filter(|t| !t.is_empty() && *t != "main").map(Into::into);
        c.proto_id = Some(id);
        c.unknown_fields = unknown_fields.into();
        let sequence = sequences.remove(&id).map(|s| s.instruction_ids);
        let mut local = LocalIds::default();
        let instructions = in_order(instructions, sequence.as_deref(), &mut local).map_err(|d| locate(here())(d))?;
        for bytes in instructions {
            instruction::instruction(self, computation, &mut local, bytes).map_err(|d| locate(here())(d))?;
        }
        match local.get(root) {
            Some(root) => self.module.set_root(root),
            None => {
                let message = format!("{}: root_id is {root}, which no instruction has", here());
                return error(&codes::UNKNOWN_ID, message);
            }
        }
        // Only now: a computation that calls itself finds nobody.
        if self.computations.insert(id, computation).is_some() {
            return error(&codes::DUPLICATE_ID, format!("{}: another computation has the id {id} too", here()));
        }
        Ok(())
    }

    /// The shape with that encoding.
    pub(super) fn shape(&mut self, encoded: Cow<'a, [u8]>) -> Result<Shape> {
        if let Some(shape) = self.shapes.get(&*encoded) {
            return Ok(shape.clone());
        }
        let shape = shape::shape(&decode::<ShapeProto>(&encoded, "the shape")?)?;
        if let Cow::Borrowed(encoded) = encoded {
            self.shapes.insert(encoded, shape.clone());
        }
        Ok(shape)
    }

    /// The text, shared with all the places that have the same.
    pub(super) fn intern(&mut self, text: &str) -> Arc<str> {
        match self.strings.get(text) {
            Some(shared) => shared.clone(),
            None => {
                let shared: Arc<str> = text.into();
                self.strings.insert(shared.clone());
                shared
            }
        }
    }

    /// A copy of one of the module's payloads.
    pub(super) fn payload(&mut self, id: i64) -> Result<Box<[u8]>> {
        let Some(payload) = usize::try_from(id).ok().and_then(|id| self.payloads.get(id)) else {
            let count = self.payloads.len();
            return error(&codes::UNKNOWN_ID, format!("{id} is none of the {count} payloads of the module"));
        };
        let payload: Box<[u8]> = payload.as_slice().into();
        self.spend(payload.len(), "the payloads of the module are referred to too often")?;
        Ok(payload)
    }

    /// Notes that so many bytes are copied.
    pub(super) fn spend(&mut self, bytes: usize, refusal: &str) -> Result<()> {
        match self.copy_budget.checked_sub(bytes) {
            Some(left) => self.copy_budget = left,
            None => return error(&codes::TOO_LARGE, refusal),
        }
        Ok(())
    }
}

/// The instructions of a computation read so far, by the lower 32 bits of their ids: newer dumps have the
/// computation's id in the upper half, older ones small numbers that are unique in the module.
#[derive(Default)]
pub(super) struct LocalIds {
    /// By id, where the ids of the computation lie so close that this is not much longer than there are instructions.
    dense: Vec<Option<InstructionId>>,
    /// All others.
    sparse: FxHashMap<u32, InstructionId>,
}

impl LocalIds {
    /// Makes room for that many instructions, the largest id of which is known.
    fn reserve(&mut self, count: usize, largest: u32) {
        if (largest as usize) < count.saturating_mul(4).saturating_add(64) {
            self.dense.resize(largest as usize + 1, None);
        }
    }
    pub(super) fn get(&self, id: i64) -> Option<InstructionId> {
        match self.dense.get(id as u32 as usize) {
            Some(slot) => *slot,
            None => self.sparse.get(&(id as u32)).copied(),
        }
    }
    /// Says whether the id was free.
    #[must_use]
    pub(super) fn insert(&mut self, id: i64, instruction: InstructionId) -> bool {
        match self.dense.get_mut(id as u32 as usize) {
            Some(slot) => slot.replace(instruction).is_none(),
            None => self.sparse.insert(id as u32, instruction).is_none(),
        }
    }
}

/// The encoded instructions in the order of a schedule, or by their ids if that puts what is used first, or else as they
/// are. Makes room for them in `local`.
fn in_order<'a>(instructions: Vec<&'a [u8]>, sequence: Option<&[i64]>, local: &mut LocalIds) -> Result<Vec<&'a [u8]>> {
    let mut by_id = Vec::with_capacity(instructions.len());
    let mut largest = 0;
    let mut used_first = true;
    let mut needs = Vec::new();
    for &bytes in &instructions {
        let mut id = 0;
        needs.clear();
        for field in Fields::new(bytes) {
            let field = field.map_err(wire("an instruction"))?;
            match field.number {
                35 => id = integer(&field, "id of an instruction")?,
                36 | 37 => read_integers(field.value, &mut needs).map_err(wire("the operands of an instruction"))?,
                _ => {}
            }
        }
        used_first &= needs.iter().all(|&n| (n as u32) < id as u32);
        by_id.push((id as u32, bytes));
        largest = largest.max(id as u32);
    }
    local.reserve(instructions.len(), largest);
    match sequence {
        Some(sequence) => scheduled(&by_id, sequence),
        None if used_first => {
            by_id.sort_by_key(|i| i.0);
            Ok(by_id.into_iter().map(|i| i.1).collect())
        }
        None => Ok(instructions),
    }
}

fn scheduled<'a>(instructions: &[(u32, &'a [u8])], sequence: &[i64]) -> Result<Vec<&'a [u8]>> {
    let mut waiting: FxHashMap<u32, &'a [u8]> = FxHashMap::default();
    for &(id, bytes) in instructions {
        if waiting.insert(id, bytes).is_some() {
            return error(&codes::DUPLICATE_ID, format!("two instructions have the id {id}"));
        }
    }
    let mut order = Vec::with_capacity(instructions.len());
    for &id in sequence {
        match waiting.remove(&(id as u32)) {
            Some(bytes) => order.push(bytes),
            None => {
                let message = format!("the schedule lists an instruction {id}, which is not there or listed already");
                return error(&codes::BAD_SCHEDULE, message);
            }
        }
    }
    if !waiting.is_empty() {
        let message = format!("the schedule leaves out {} of {} instructions", waiting.len(), instructions.len());
        return error(&codes::BAD_SCHEDULE, message);
    }
    Ok(order)
}

pub(super) fn text<'a>(field: &Field<'a>, what: &str) -> Result<&'a str> {
    match field.value.bytes().map(std::str::from_utf8) {
        Some(Ok(text)) => Ok(text),
        _ => error(&codes::DAMAGED, format!("the {what} is not text")),
    }
}

pub(super) fn integer(field: &Field<'_>, what: &str) -> Result<i64> {
    match field.value.varint() {
        Some(n) => Ok(n as i64),
        None => error(&codes::DAMAGED, format!("the {what} is not a number")),
    }
}

/// A name that HLO text can hold, by XLA's rule: other characters become `_`, a type's name gets one more, and names
/// that begin with `__` are left to compilers. Nothing at all becomes `name`.
pub(super) fn sanitized(name: &str) -> Box<str> {
    if name.is_empty() {
        return "name".into();
    }
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    let mut bytes: Vec<u8> = name.bytes().map(|b| if allowed(b) { b } else { b'_' }).collect();
    if let Some(first) = bytes.first_mut().filter(|b| !b.is_ascii_alphabetic()) {
        *first = b'_';
    }
    if ElementType::from_name(&bytes).is_some() || matches!(&bytes[..], b"token" | b"opaque") {
        bytes.push(b'_');
    }
    if bytes.starts_with(b"__") && !bytes.starts_with(b"__xla_") {
        bytes[0] = b'a';
    }
    // Every byte is ASCII by now.
    String::from_utf8(bytes).unwrap_or_default().into()
}

pub(super) fn frontend_attributes(map: &BTreeMap<String, String>) -> FrontendAttributes {
    map.iter().map(|(k, v)| (k.as_str().into(), v.as_str().into())).collect()
}

pub(super) fn original_array(proto: Option<&OriginalArrayProto>) -> OriginalArray {
    OriginalArray {
        instruction_name: proto.map_or("", |a| &a.instruction_name).into(),
        index: proto.map_or(Default::default(), |a| a.shape_index.iter().copied().collect()),
    }
}

fn stack_frames(index: &StackFrameIndexProto) -> StackFrames {
    let names = |list: &[String]| list.iter().map(|n| n.as_str().into()).collect();
    StackFrames {
        file_names: names(&index.file_names),
        function_names: names(&index.function_names),
        file_locations: index
            .file_locations
            .iter()
            .map(|l| FileLocation {
                file_name_id: l.file_name_id,
                function_name_id: l.function_name_id,
                line: l.line,
                end_line: l.end_line,
                column: l.column,
                end_column: l.end_column,
            })
            .collect(),
        frames: index
            .stack_frames
            .iter()
            .map(|f| StackFrame { file_location_id: f.file_location_id, parent_frame_id: f.parent_frame_id })
            .collect(),
    }
}

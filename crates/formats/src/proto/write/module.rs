//! Modules and computations: order, ids, schedule and what the header says.

use super::instruction::{Ids, frontend_attributes, instruction, original_array};
use super::order::{self, Places};
use super::shape;
use crate::open_layouts;
use crate::proto::messages::*;
use crate::proto::wire::{write_bytes, write_integer, write_message, write_str};
use hloom_ir::diagnostic::codes::proto as codes;
use hloom_ir::diagnostic::{Diagnostic, Place};
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::metadata::StackFrames;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::ProgramShape;
use std::collections::BTreeMap;

/// An encoded `HloModuleProto`; what cannot be encoded is said in `errors`.
pub(super) fn module(module: &Module, errors: &mut Vec<Diagnostic>) -> Vec<u8> {
    let Some(entry) = module.entry() else {
        errors.push(Diagnostic::error(&codes::CANNOT_ENCODE, "the module has no entry computation"));
        return Vec::new();
    };
    if module.config.debug_attributes.is_some() {
        let message = "debug_attributes are kept as text, which a proto has no place for";
        errors.push(Diagnostic::error(&codes::CANNOT_ENCODE, message).at_place(Place::Header));
    }
    let order = order::computations(module);
    let mut ids = Ids { computations: SideTable::with_len(module.computation_slots(), 0), places: Places::new(module) };
    for (number, &c) in order.iter().enumerate() {
        ids.computations.set(c, number as i64);
    }
    let fused = fused_computations(module, &order);
    let mut out = Vec::new();
    let mut sequences = BTreeMap::new();
    let header = header(module, entry, &ids, errors);
    prost::Message::encode_raw(&header, &mut out);
    let mut scratch = Vec::new();
    for &c in &order {
        let list = ids.places.order(module, c);
        scratch.clear();
        computation(&mut scratch, module, &ids, c, &list, fused[c], errors);
        write_bytes(&mut out, 3, &scratch);
        if module.is_scheduled && !fused[c] {
            let instruction_ids = module[c].instructions().iter().map(|&i| ids.instruction(module, i)).collect();
            sequences.insert(ids.computations[c], InstructionSequence { instruction_ids });
        }
    }
    if module.is_scheduled {
        write_message(&mut out, 7, &HloScheduleProto { sequences });
    }
    out.extend_from_slice(&module.config.unknown_fields);
    out
}

/// Computations that are the body of a fusion: they have no schedule.
fn fused_computations(module: &Module, order: &[ComputationId]) -> SideTable<ComputationId, bool> {
    let mut fused = SideTable::with_len(module.computation_slots(), false);
    for &c in order {
        for &i in module[c].instructions() {
            if let Op::Fusion(f) = &module[i].op {
                fused.set(f.calls, true);
            }
        }
    }
    fused
}

fn header(module: &Module, entry: ComputationId, ids: &Ids, errors: &mut Vec<Diagnostic>) -> ModuleHeader {
    let config = &module.config;
    // XLA refuses a module without this; where the header says nothing it is what the entry says.
    let stated = config.entry_layout.as_ref().map(open_layouts::written);
    let (program_shape, open) = match stated {
        Some(written) => (Some(written.shape), written.attribute),
        None => (module.program_shape(entry).map(|shape| open_layouts::written(&shape).shape), None),
    };
    let mut attributes = config.frontend_attributes.clone();
    attributes.extend(open);
    let alias = |a: &hloom_ir::module::InputOutputAlias| AliasEntryProto {
        output_shape_index: a.output_index.to_vec(),
        parameter_number: a.parameter,
        parameter_shape_index: a.parameter_index.to_vec(),
        kind: a.kind.proto_number(),
    };
    let donor = |d: &hloom_ir::module::BufferDonor| BufferDonorEntryProto {
        parameter_number: d.parameter,
        parameter_shape_index: d.parameter_index.to_vec(),
    };
    let recovery = |r: &hloom_ir::module::OriginRecovery| OriginalValueRecoveryEntry {
        old_original_array: Some(original_array(&r.old)),
        new_original_array: Some(original_array(&r.new)),
        recovery_module: r.recovery.as_deref().map(|m| self::module(m, errors)),
    };
    let table: Vec<_> = config.origin_recovery_table.iter().map(recovery).collect();
    ModuleHeader {
        name: module.name.to_string(),
        entry_computation_name: module[entry].name().into(),
        host_program_shape: program_shape.map(|s| shape::program_shape(&s, [])),
        entry_computation_id: ids.computations[entry],
        schedule: None,
        input_output_alias: (!config.input_output_alias.is_empty())
            .then(|| HloInputOutputAliasProto { entries: config.input_output_alias.iter().map(alias).collect() }),
        stack_frame_index: (!module.stack_frames.is_empty()).then(|| stack_frames(&module.stack_frames)),
        buffer_donor: (!config.buffer_donors.is_empty())
            .then(|| HloBufferDonorProto { entries: config.buffer_donors.iter().map(donor).collect() }),
        frontend_attributes: (!attributes.is_empty()).then(|| frontend_attributes(&attributes)),
        original_value_recovery_table: (!table.is_empty())
            .then_some(OriginalValueRecoveryTableProto { entries: table }),
        payloads: Vec::new(),
    }
}

fn computation(
    out: &mut Vec<u8>,
    module: &Module,
    ids: &Ids,
    computation: ComputationId,
    list: &[InstructionId],
    is_fused: bool,
    errors: &mut Vec<Diagnostic>,
) {
    let c = &module[computation];
    let Some(root) = module.root(computation) else {
        let message = format!("computation {} has no instructions", c.name());
        errors.push(Diagnostic::error(&codes::CANNOT_ENCODE, message).at_place(Place::Computation(computation)));
        return;
    };
    write_str(out, 1, c.name());
    let mut scratch = Vec::new();
    for &i in list {
        scratch.clear();
        instruction(&mut scratch, module, ids, i, errors);
        write_bytes(out, 2, &scratch);
    }
    let parameters = module.parameters(computation);
    let program_shape = ProgramShape {
        parameters: parameters.iter().map(|&p| module[p].shape.clone()).collect(),
        result: module[root].shape.clone(),
    };
    let names = parameters.iter().map(|&p| module[p].name());
    write_message(out, 4, &shape::program_shape(&program_shape, names));
    write_integer(out, 5, ids.computations[computation]);
    write_integer(out, 6, ids.instruction(module, root));
    write_integer(out, 7, is_fused.into());
    write_str(out, 8, c.execution_thread.as_deref().unwrap_or_default());
    out.extend_from_slice(&c.unknown_fields);
}

fn stack_frames(frames: &StackFrames) -> StackFrameIndexProto {
    let names = |list: &[Box<str>]| list.iter().map(|n| n.to_string()).collect();
    StackFrameIndexProto {
        file_names: names(&frames.file_names),
        function_names: names(&frames.function_names),
        file_locations: frames
            .file_locations
            .iter()
            .map(|l| FileLocationProto {
                file_name_id: l.file_name_id,
                function_name_id: l.function_name_id,
                line: l.line,
                column: l.column,
                end_line: l.end_line,
                end_column: l.end_column,
            })
            .collect(),
        stack_frames: frames
            .frames
            .iter()
            .map(|f| StackFrameProto { file_location_id: f.file_location_id, parent_frame_id: f.parent_frame_id })
            .collect(),
    }
}

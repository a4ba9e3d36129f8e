//! The header, the stack-frame tables and the computations of a module.

use super::Printer;
use super::order::{self, Order};
use crate::open_layouts;
use hloom_ir::display::ShapeStyle;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::instruction::OriginalArray;
use hloom_ir::module::{ModuleConfig, OriginRecovery};
use hloom_ir::op::Op;
use hloom_ir::shape::ProgramShape;
use rustc_hash::FxHashSet;
use std::borrow::Cow;

impl Printer<'_> {
    /// The whole module; every computation is followed by an empty line.
    pub(super) fn module(&mut self) {
        let module = self.module;
        self.header();
        self.stack_frames();
        self.text("\n\n");
        let hidden = self.hidden_computations();
        let mut order = Order::new(module);
        let mut instructions = vec![Vec::new(); module.computation_slots()];
        for &computation in module.computations() {
            instructions[computation.index()] = order.instructions(computation);
        }
        for computation in order::computations(module, &instructions) {
            if !hidden.contains(&computation) {
                self.computation(computation, &instructions[computation.index()]);
                self.text("\n\n");
            }
        }
    }

    /// Computations that are written with the async instructions that call them, and nowhere else.
    fn hidden_computations(&self) -> FxHashSet<ComputationId> {
        let module = self.module;
        let all = || module.computations().iter().flat_map(|&c| module[c].instructions());
        let wraps = |id: InstructionId| match &module[id].op {
            Op::AsyncStart(start) => self.wrapped_instruction(id).map(|_| start.calls),
            _ => None,
        };
        let mut hidden: FxHashSet<ComputationId> = all().filter_map(|&id| wraps(id)).collect();
        if !hidden.is_empty() {
            for &id in all().filter(|&&id| wraps(id).is_none()) {
                for called in module[id].op.called_computations() {
                    hidden.remove(&called);
                }
            }
        }
        hidden
    }

    fn header(&mut self) {
        let module = self.module;
        let config = &module.config;
        self.indentation(0);
        self.text("HloModule ");
        self.text(&module.name);
        if module.is_scheduled {
            self.text(", is_scheduled=true");
        }
        self.aliasing(config);
        if config.alias_passthrough_params {
            self.text(", alias_passthrough_params=true");
        }
        let written = config.entry_layout.as_ref().map(open_layouts::written);
        match &written {
            Some(written) => self.entry_layout(&written.shape),
            None => {
                if let Some(layout) = module.entry().and_then(|entry| module.program_shape(entry)) {
                    self.entry_layout(&layout);
                }
            }
        }
        self.flags(
            ", allow_spmd_sharding_propagation_to_parameters={",
            &config.allow_spmd_sharding_propagation_to_parameters,
        );
        self.flags(", allow_spmd_sharding_propagation_to_output={", &config.allow_spmd_sharding_propagation_to_output);
        if config.replica_count != 1 {
            self.int_attribute(", replica_count=", config.replica_count);
        }
        if config.num_partitions != 1 {
            self.int_attribute(", num_partitions=", config.num_partitions);
        }
        let mut attributes = Cow::Borrowed(&config.frontend_attributes);
        if let Some(attribute) = written.and_then(|w| w.attribute) {
            attributes.to_mut().extend([attribute]);
        }
        if !attributes.is_empty() {
            self.frontend_attributes(&attributes);
        }
        if !config.origin_recovery_table.is_empty() {
            self.origin_recovery_table(&config.origin_recovery_table);
        }
        if let Some(attributes) = &config.debug_attributes {
            self.text(",\ndebug_attributes={");
            self.text(attributes);
            self.text("}");
        }
    }

    fn aliasing(&mut self, config: &ModuleConfig) {
        if !config.input_output_alias.is_empty() {
            let mut aliases: Vec<_> = config.input_output_alias.iter().collect();
            aliases.sort_by(|a, b| a.output_index.cmp(&b.output_index));
            self.text(", input_output_alias={ ");
            for (i, alias) in aliases.into_iter().enumerate() {
                self.comma(i);
                self.braced_list(&alias.output_index);
                self.text(": (");
                self.int(alias.parameter);
                self.text(", ");
                self.braced_list(&alias.parameter_index);
                self.text(", ");
                self.text(alias.kind.text());
                self.text(")");
            }
            self.text(" }");
        }
        if !config.buffer_donors.is_empty() {
            let mut donors: Vec<_> = config.buffer_donors.iter().collect();
            donors.sort_by(|a, b| (a.parameter, &a.parameter_index).cmp(&(b.parameter, &b.parameter_index)));
            self.text(", buffer_donor={ ");
            for (i, donor) in donors.into_iter().enumerate() {
                self.comma(i);
                self.text("(");
                self.int(donor.parameter);
                self.text(", ");
                self.braced_list(&donor.parameter_index);
                self.text(")");
            }
            self.text(" }");
        }
    }

    fn entry_layout(&mut self, layout: &ProgramShape) {
        self.text(", entry_computation_layout={(");
        for (i, parameter) in layout.parameters.iter().enumerate() {
            self.separator(i);
            parameter.write(&mut self.out, ShapeStyle::FULL);
        }
        self.text(")->");
        layout.result.write(&mut self.out, ShapeStyle::FULL);
        self.text("}");
    }

    /// A list of flags, unless it is the default, which is a single `false`.
    fn flags(&mut self, name: &str, flags: &[bool]) {
        if !matches!(flags, [] | [false]) {
            self.text(name);
            self.bools(flags);
            self.text("}");
        }
    }

    /// `true,false`.
    pub(super) fn bools(&mut self, flags: &[bool]) {
        for (i, &flag) in flags.iter().enumerate() {
            if i > 0 {
                self.out.push(',');
            }
            self.text(if flag { "true" } else { "false" });
        }
    }

    /// The table, in the order of the values that are gone, over several lines. The programs in it are strings, so
    /// that they can be read on their own.
    fn origin_recovery_table(&mut self, table: &[OriginRecovery]) {
        let mut table: Vec<_> = table.iter().collect();
        table.sort_by(|a, b| (&a.old.instruction_name, &a.old.index).cmp(&(&b.old.instruction_name, &b.old.index)));
        self.text(", origin_recovery_table={\n");
        for entry in table {
            self.indentation(2);
            self.text("{");
            self.original_array(&entry.old);
            self.text("} : {");
            self.original_array(&entry.new);
            self.text("}");
            if let Some(recovery) = &entry.recovery {
                let mut nested = Printer::new(recovery, &self.options);
                nested.indent = self.indent + 4;
                nested.module();
                self.text(",\n");
                self.indentation(2);
                self.text("\"\n");
                for part in nested.out.split_inclusive(['"', '\\']) {
                    match part.as_bytes().last() {
                        Some(b'"' | b'\\') => {
                            let (plain, escaped) = part.split_at(part.len() - 1);
                            self.text(plain);
                            self.text("\\");
                            self.text(escaped);
                        }
                        _ => self.text(part),
                    }
                }
                self.text("\n");
                self.indentation(2);
                self.text("\"");
            }
            self.text("\n");
        }
        self.text("}\n");
    }

    /// The tables that `stack_frame_id` refers to. Callers are written plus one: 1 is none.
    fn stack_frames(&mut self) {
        let frames = &self.module.stack_frames;
        if frames.is_empty() {
            return;
        }
        for (title, names) in [("\n\nFileNames\n", &frames.file_names), ("\nFunctionNames\n", &frames.function_names)] {
            self.text(title);
            for (i, name) in names.iter().enumerate() {
                self.int(i as i64 + 1);
                self.quoted(" ", name.as_bytes());
                self.text("\n");
            }
        }
        self.text("\nFileLocations\n");
        for (i, location) in frames.file_locations.iter().enumerate() {
            self.int(i as i64 + 1);
            self.int_attribute(" {file_name_id=", location.file_name_id.into());
            self.int_attribute(" function_name_id=", location.function_name_id.into());
            self.int_attribute(" line=", location.line.into());
            self.int_attribute(" end_line=", location.end_line.into());
            self.int_attribute(" column=", location.column.into());
            self.int_attribute(" end_column=", location.end_column.into());
            self.text("}\n");
        }
        self.text("\nStackFrames\n");
        for (i, frame) in frames.frames.iter().enumerate() {
            self.int(i as i64 + 1);
            self.int_attribute(" {file_location_id=", frame.file_location_id.into());
            self.int_attribute(" parent_frame_id=", i64::from(frame.parent_frame_id) + 1);
            self.text("}\n");
        }
    }

    fn computation(&mut self, id: ComputationId, order: &[InstructionId]) {
        let module = self.module;
        let computation = &module[id];
        self.indentation(0);
        if module.entry() == Some(id) {
            self.text("ENTRY ");
        }
        self.text("%");
        self.text(computation.name());
        self.signature(id);
        self.text(" {\n");
        let root = module.root(id);
        for &instruction in order {
            self.indentation(2);
            if Some(instruction) == root {
                self.text("ROOT ");
            }
            self.instruction(instruction);
            self.text("\n");
        }
        self.indentation(0);
        self.text("}");
        if let Some(thread) = &computation.execution_thread {
            self.quoted(", execution_thread=", thread.as_bytes());
        }
    }

    /// ` (p: f32[2]) -> f32[2]`: parameters by number, shapes without layouts.
    fn signature(&mut self, id: ComputationId) {
        let module = self.module;
        let Some(root) = module.root(id) else { return };
        self.text(" (");
        for (i, parameter) in module.parameters(id).into_iter().enumerate() {
            self.comma(i);
            self.text(module[parameter].name());
            self.text(": ");
            module[parameter].shape.write(&mut self.out, ShapeStyle::SIGNATURE);
        }
        self.text(") -> ");
        module[root].shape.write(&mut self.out, ShapeStyle::SIGNATURE);
    }

    /// `"name" {1}`: an array of the source program.
    pub(super) fn original_array(&mut self, array: &OriginalArray) {
        self.quoted("", array.instruction_name.as_bytes());
        if !array.index.is_empty() {
            self.text(" ");
            self.braced_list(&array.index);
        }
    }
}

//! The module's header, and the table of stack frames that may follow it.

use super::{Read, Reader, read_nested};
use crate::open_layouts;
use hloom_ir::attributes::AliasKind;
use hloom_ir::diagnostic::{Diagnostic, Span, codes};
use hloom_ir::instruction::OriginalArray;
use hloom_ir::metadata::{FileLocation, StackFrame};
use hloom_ir::module::{BufferDonor, InputOutputAlias, OriginRecovery};
use hloom_ir::shape::{ProgramShape, ShapeIndex};

const ATTRIBUTES: [&str; 12] = [
    "is_scheduled",
    "replica_count",
    "num_partitions",
    "input_output_alias",
    "buffer_donor",
    "alias_passthrough_params",
    "entry_computation_layout",
    "frontend_attributes",
    "allow_spmd_sharding_propagation_to_parameters",
    "allow_spmd_sharding_propagation_to_output",
    "origin_recovery_table",
    "debug_attributes",
];

impl<'a> Reader<'a> {
    /// What follows `HloModule`.
    pub(super) fn header(&mut self, start: usize) -> Read<()> {
        let name = self.name("the name of the module")?;
        self.module.name = String::from_utf8_lossy(name).into();
        self.positions.set_header(self.span_from(start));
        let mut seen: Vec<&[u8]> = Vec::new();
        while self.eat(b',') {
            self.skip();
            let at = self.pos;
            let Some(name) = self.attribute_name() else { return self.expected("an attribute: name=value") };
            let span = Span::new(at, at + name.len());
            if seen.contains(&name) {
                return self.repeated(name, span);
            }
            seen.push(name);
            self.header_attribute(name, span)?;
            self.positions.set_header(self.span_from(start));
        }
        open_layouts::reopen(&mut self.module.config);
        Ok(())
    }

    fn header_attribute(&mut self, name: &[u8], span: Span) -> Read<()> {
        match name {
            b"is_scheduled" => self.module.is_scheduled = self.bool()?,
            b"replica_count" => self.module.config.replica_count = self.int("a whole number")?,
            b"num_partitions" => self.module.config.num_partitions = self.int("a whole number")?,
            b"input_output_alias" => self.module.config.input_output_alias = self.input_output_alias()?,
            b"buffer_donor" => self.module.config.buffer_donors = self.buffer_donors()?,
            b"alias_passthrough_params" => self.module.config.alias_passthrough_params = self.bool()?,
            b"entry_computation_layout" => self.module.config.entry_layout = Some(self.program_shape()?),
            b"frontend_attributes" => self.module.config.frontend_attributes = self.frontend_attributes()?,
            b"allow_spmd_sharding_propagation_to_parameters" => {
                self.module.config.allow_spmd_sharding_propagation_to_parameters = self.bool_or_list()?;
            }
            b"allow_spmd_sharding_propagation_to_output" => {
                self.module.config.allow_spmd_sharding_propagation_to_output = self.bool_or_list()?;
            }
            b"origin_recovery_table" => self.module.config.origin_recovery_table = self.recovery_table()?,
            b"debug_attributes" => {
                if self.peek() != b'{' {
                    return self.expected("`{` to start debug attributes");
                }
                let text = self.braced_text()?;
                let inside = String::from_utf8_lossy(&text[1..text.len() - 1]);
                self.module.config.debug_attributes = Some(inside.trim().into());
            }
            _ => return self.unknown_attribute(name, span, ATTRIBUTES.into_iter()),
        }
        Ok(())
    }

    fn bool_or_list(&mut self) -> Read<Vec<bool>> {
        if self.peek() == b'{' { self.bool_list() } else { Ok(vec![self.bool()?]) }
    }

    /// `(1, {0}` of an alias or a donor, without the end.
    fn parameter_path(&mut self) -> Read<(i64, ShapeIndex)> {
        self.expect(b'(', "before a parameter")?;
        let parameter = self.int("the number of a parameter")?;
        self.expect(b',', "after the number of a parameter")?;
        Ok((parameter, self.shape_index()?))
    }

    /// `{ {0}: (0, {}, may-alias), {1}: (2, {0}) }`.
    fn input_output_alias(&mut self) -> Read<Vec<InputOutputAlias>> {
        let mut aliases: Vec<InputOutputAlias> = Vec::new();
        self.list(|r| {
            let output_index = r.shape_index()?;
            r.expect(b':', "after the path into the output")?;
            let (parameter, parameter_index) = r.parameter_path()?;
            let kind = match r.eat(b',') {
                true => r.word("a kind of alias", AliasKind::ALL, AliasKind::text)?,
                false => AliasKind::May,
            };
            r.expect(b')', "after the parameter")?;
            aliases.push(InputOutputAlias { output_index, parameter, parameter_index, kind });
            Ok(())
        })?;
        // XLA keeps them in the order of the output, the first for each.
        aliases.sort_by(|a, b| a.output_index.cmp(&b.output_index));
        aliases.dedup_by(|later, first| later.output_index == first.output_index);
        Ok(aliases)
    }

    /// `{ (2, {}), (3, {0}) }`.
    fn buffer_donors(&mut self) -> Read<Vec<BufferDonor>> {
        let mut donors = Vec::new();
        self.list(|r| {
            let (parameter, parameter_index) = r.parameter_path()?;
            r.expect(b')', "after the parameter")?;
            donors.push(BufferDonor { parameter, parameter_index });
            Ok(())
        })?;
        donors.sort_by(|a, b| (a.parameter, &a.parameter_index).cmp(&(b.parameter, &b.parameter_index)));
        donors.dedup();
        Ok(donors)
    }

    /// `{(f32[4]{0}, …)->f32[4]{0}}`.
    fn program_shape(&mut self) -> Read<ProgramShape> {
        self.expect(b'{', "to start the entry's layout")?;
        self.expect(b'(', "before the parameters")?;
        let mut parameters = Vec::new();
        while self.peek() != b')' {
            parameters.push(self.shape()?);
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b')', "or `,` after a parameter")?;
        if !self.eat_text(b"->") {
            return self.expected("`->` after the parameters");
        }
        let result = self.shape()?;
        self.expect(b'}', "to end the entry's layout")?;
        Ok(ProgramShape { parameters, result })
    }

    /// `{{"a" {0}} : {"b"}, "HloModule …" …}`.
    fn recovery_table(&mut self) -> Read<Vec<OriginRecovery>> {
        self.expect(b'{', "to start the recovery table")?;
        let mut table = Vec::new();
        while self.peek() != b'}' {
            let old = self.known_array()?;
            self.expect(b':', "after the array that was replaced")?;
            let new = self.known_array()?;
            let mut recovery = None;
            if self.eat(b',') {
                self.skip();
                let start = self.pos;
                let text = self.string()?;
                let span = self.span_from(start);
                recovery = Some(Box::new(self.recovery_module(&text, span)?));
            }
            table.push(OriginRecovery { old, new, recovery });
        }
        self.pos += 1;
        Ok(table)
    }

    fn known_array(&mut self) -> Read<OriginalArray> {
        let array = self.original_array()?;
        Ok(array.unwrap_or(OriginalArray { instruction_name: "".into(), index: ShapeIndex::new() }))
    }

    fn recovery_module(&mut self, text: &[u8], span: Span) -> Read<hloom_ir::module::Module> {
        /// A recovery module has no reason to have a recovery table with modules of its own.
        const DEEPEST: usize = 4;
        if self.outer_modules >= DEEPEST {
            let message = "recovery tables are nested too deeply";
            return self.fail_at(&codes::text::TOO_DEEP, span, message, "too deep");
        }
        let result = read_nested(text, self.outer_modules + 1, None);
        if let Some(module) = result.module {
            return Ok(module);
        }
        let mut diagnostic = Diagnostic::error(&codes::text::BAD_RECOVERY_MODULE, "this module cannot be read")
            .at(span)
            .label("wrong module");
        for inner in result.diagnostics.iter().take(3) {
            diagnostic = diagnostic.note(inner.message.clone());
        }
        self.fail(diagnostic)
    }

    /// `FileNames … FunctionNames … FileLocations … StackFrames …`, if they are there.
    pub(super) fn stack_frames(&mut self) -> Read<()> {
        if !self.eat_word(b"FileNames") {
            return Ok(());
        }
        self.module.stack_frames.file_names = self.numbered_strings()?;
        self.section(b"FunctionNames")?;
        self.module.stack_frames.function_names = self.numbered_strings()?;
        self.section(b"FileLocations")?;
        while self.peek().is_ascii_digit() {
            self.int("a number")?;
            let location = self.file_location()?;
            self.module.stack_frames.file_locations.push(location);
        }
        self.section(b"StackFrames")?;
        while self.peek().is_ascii_digit() {
            self.int("a number")?;
            let frame = self.stack_frame()?;
            self.module.stack_frames.frames.push(frame);
        }
        self.find_sound_frames();
        Ok(())
    }

    fn section(&mut self, name: &[u8]) -> Read<()> {
        if self.eat_word(name) { Ok(()) } else { self.expected(&super::report::quote(name)) }
    }

    fn numbered_strings(&mut self) -> Read<Vec<Box<str>>> {
        let mut strings = Vec::new();
        while self.peek().is_ascii_digit() {
            self.int("a number")?;
            strings.push(self.text_string()?.into());
        }
        Ok(strings)
    }

    fn file_location(&mut self) -> Read<FileLocation> {
        const NAMES: [&str; 6] = ["file_name_id", "function_name_id", "line", "end_line", "column", "end_column"];
        let values = self.numbers(&NAMES)?;
        Ok(FileLocation {
            file_name_id: values[0],
            function_name_id: values[1],
            line: values[2],
            end_line: values[3],
            column: values[4],
            end_column: values[5],
        })
    }

    fn stack_frame(&mut self) -> Read<StackFrame> {
        let values = self.numbers(&["file_location_id", "parent_frame_id"])?;
        // The parent is written plus one, so that 1 is none.
        Ok(StackFrame { file_location_id: values[0], parent_frame_id: values[1].saturating_sub(1) })
    }

    /// `{a=1 b=2}` with all of `names`.
    fn numbers<const N: usize>(&mut self, names: &[&'static str; N]) -> Read<[i32; N]> {
        self.skip();
        let start = self.pos;
        let mut values = [None; N];
        self.fields(names, |r, name| {
            let Some(i) = names.iter().position(|n| n.as_bytes() == name) else { return Ok(false) };
            values[i] = Some(r.int32("a whole number")?);
            Ok(true)
        })?;
        if let Some(i) = values.iter().position(Option::is_none) {
            let span = self.span_from(start);
            let message = format!("`{}` is missing", names[i]);
            return self.fail_at(&codes::text::MISSING_ATTRIBUTE, span, message, "one is missing here");
        }
        Ok(values.map(Option::unwrap_or_default))
    }

    /// For each frame whether its callers are all in the table and lead to an outermost one.
    fn find_sound_frames(&mut self) {
        let frames = &self.module.stack_frames.frames;
        let caller = |i: usize| usize::try_from(frames[i].parent_frame_id).ok();
        let mut sound = vec![None; frames.len()];
        let mut path = Vec::new();
        for start in 0..frames.len() {
            let mut at = Some(start);
            let is_sound = loop {
                match at {
                    // A frame on the path that is not decided yet calls itself.
                    Some(i) => match sound.get(i) {
                        Some(None) => {
                            sound[i] = Some(false);
                            path.push(i);
                            at = match caller(i) {
                                Some(0) => None,
                                Some(id) => Some(id - 1),
                                None => Some(usize::MAX),
                            };
                        }
                        Some(&Some(known)) => break known,
                        None => break false,
                    },
                    None => break true,
                }
            };
            for i in path.drain(..) {
                sound[i] = Some(is_sound);
            }
        }
        self.sound_frames = sound.into_iter().map(|s| s == Some(true)).collect();
    }
}

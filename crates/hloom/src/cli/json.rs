//! Diagnostics for programs: one JSON object per line and diagnostic.
//!
//! Fields keep their names and meaning from version to version; new ones may be added. Lines and columns count from 1,
//! columns in characters; `byte_start` and `byte_end` count from 0. What is not known is absent.

use super::lines::LineIndex;
use super::render::instruction_text;
use hloom::Source;
use hloom::ir::diagnostic::{Blame, Diagnostic, NoteKind, Place, Severity};
use hloom::ir::module::Module;
use hloom::report::source::source_position;
use serde::Serialize;

#[derive(Serialize)]
struct JsonDiagnostic<'a> {
    code: String,
    severity: &'static str,
    blame: &'static str,
    message: &'a str,
    file: &'a str,
    #[serde(flatten)]
    position: Option<JsonPosition>,
    #[serde(skip_serializing_if = "str::is_empty")]
    label: &'a str,
    notes: Vec<JsonNote<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instruction: Option<JsonInstruction<'a>>,
}

#[derive(Serialize)]
struct JsonPosition {
    line: usize,
    column: usize,
    end_line: usize,
    end_column: usize,
    byte_start: u32,
    byte_end: u32,
}

#[derive(Serialize)]
struct JsonNote<'a> {
    kind: &'static str,
    message: &'a str,
    #[serde(flatten)]
    position: Option<JsonPosition>,
}

/// The instruction a diagnostic is about, and where in the user's program it came from.
#[derive(Serialize)]
struct JsonInstruction<'a> {
    name: &'a str,
    computation: &'a str,
    text: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    source_file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_line: Option<i32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    op_name: &'a str,
}

/// All `diagnostics` about `source`, a line each.
pub(crate) fn report(source: &Source, module: Option<&Module>, diagnostics: &[Diagnostic]) -> String {
    let lines = LineIndex::new(&source.bytes);
    let position = |place: &Place| {
        let span = source.resolve(place)?;
        let at = lines.locate(span);
        let (end_line, end_column) = at.end;
        let (line, column) = (at.line, at.column);
        Some(JsonPosition { line, column, end_line, end_column, byte_start: span.start, byte_end: span.end })
    };
    let mut out = String::new();
    for diagnostic in diagnostics {
        let notes = diagnostic.notes.iter().map(|note| JsonNote {
            kind: match note.kind {
                NoteKind::Note => "note",
                NoteKind::Help => "help",
            },
            message: &note.message,
            position: position(&note.place),
        });
        let object = JsonDiagnostic {
            code: diagnostic.code.to_string(),
            severity: match diagnostic.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            blame: match diagnostic.blame {
                Blame::Program => "program",
                Blame::Data => "data",
                Blame::Machine => "machine",
                Blame::Hloom => "hloom",
            },
            message: &diagnostic.message,
            file: &source.name,
            position: position(&diagnostic.place),
            label: &diagnostic.label,
            notes: notes.collect(),
            instruction: module.and_then(|m| instruction(m, &diagnostic.place)),
        };
        out.push_str(&to_line(&object));
    }
    out
}

/// `value` as JSON on a line of its own.
pub(crate) fn to_line(value: &impl Serialize) -> String {
    // Serialising plain data into memory does not fail.
    let mut line = serde_json::to_string(value).unwrap_or_default();
    line.push('\n');
    line
}

fn instruction<'a>(module: &'a Module, place: &Place) -> Option<JsonInstruction<'a>> {
    let Place::Instruction(id, _) = *place else { return None };
    let instruction = module.instruction(id);
    let metadata = instruction.common.metadata.as_deref();
    let (source_file, line) = metadata.map_or(("", 0), |m| source_position(module, m));
    Some(JsonInstruction {
        name: instruction.name(),
        computation: module.computation(instruction.parent()).name(),
        text: instruction_text(module, id),
        source_file,
        source_line: Some(line).filter(|&l| l > 0),
        op_name: metadata.map_or("", |m| &m.op_name),
    })
}

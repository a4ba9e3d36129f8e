//! Diagnostics for people: rustc-like snippets with a caret, notes and help.
//!
//! What is shown is bounded whatever the input: of a source line only the part around the caret, of an instruction's
//! text only its beginning. Line starts are found once per source, so that many diagnostics in a large file stay cheap.

use super::lines::{LineIndex, Located, clip};
use super::words::plural;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use hloom::Source;
use hloom::formats::hlo_text::{self, PrintOptions};
use hloom::ir::diagnostic::{Diagnostic, NoteKind, Place, Severity};
use hloom::ir::entity::InstructionId;
use hloom::ir::module::Module;
use hloom::report::source::source_position;
use std::fmt::Write;
use std::io::IsTerminal;

/// Characters of an instruction that are shown where there is no source text.
const MAX_INSTRUCTION: usize = 400;

/// Whether what goes to standard error may be coloured: on a terminal, unless the user said no.
pub(crate) fn colour_on_stderr() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    std::io::stderr().is_terminal() && !refused && !dumb
}

/// All `diagnostics` about `source`, and a closing line that counts them.
pub(crate) fn report(source: &Source, module: Option<&Module>, diagnostics: &[Diagnostic], colour: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let lines = LineIndex::new(&source.bytes);
    let mut out = String::new();
    for diagnostic in diagnostics {
        render(&mut out, &renderer, source, &lines, module, diagnostic);
        out.push('\n');
    }
    out.push_str(&summary(&source.name, diagnostics));
    out
}

/// `2 errors and 1 warning in m.hlo`, where there is more than one thing to count.
fn summary(name: &str, diagnostics: &[Diagnostic]) -> String {
    let count = |severity| diagnostics.iter().filter(|d| d.severity == severity).count();
    match (count(Severity::Error), count(Severity::Warning)) {
        (0 | 1, 0) | (0, 1) => String::new(),
        (errors, 0) => format!("{} in {name}\n", plural(errors, "error")),
        (0, warnings) => format!("{} in {name}\n", plural(warnings, "warning")),
        (errors, warnings) => {
            format!("{} and {} in {name}\n", plural(errors, "error"), plural(warnings, "warning"))
        }
    }
}

fn render(
    out: &mut String,
    renderer: &Renderer,
    source: &Source,
    lines: &LineIndex<'_>,
    module: Option<&Module>,
    diagnostic: &Diagnostic,
) {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let locate = |place: &Place| source.resolve(place).map(|span| lines.locate(span));
    let primary = locate(&diagnostic.place);
    let placed_notes: Vec<Option<Located>> = diagnostic.notes.iter().map(|n| locate(&n.place)).collect();
    let footer = footer(source, module, diagnostic);

    let mut main = Group::with_title(level.primary_title(&*diagnostic.message).id(diagnostic.code.to_string()));
    match &primary {
        Some(at) => {
            let label = Some(diagnostic.label.as_str()).filter(|l| !l.is_empty());
            main = main.element(snippet(source, at, AnnotationKind::Primary, label));
        }
        None if !source.bytes.is_empty() => main = main.element(Origin::path(&*source.name)),
        None => {}
    }
    for (note, at) in diagnostic.notes.iter().zip(&placed_notes) {
        if at.is_none() {
            main = main.element(level_of(note.kind).message(&*note.message));
        }
    }
    if primary.is_none() && !diagnostic.label.is_empty() {
        main = main.element(Level::NOTE.message(&*diagnostic.label));
    }
    main = main.elements(footer.iter().map(|text| Level::NOTE.message(&**text)));
    let mut groups = vec![main];
    for (note, at) in diagnostic.notes.iter().zip(&placed_notes) {
        if let Some(at) = at {
            let group = Group::with_title(level_of(note.kind).secondary_title(&*note.message));
            groups.push(group.element(snippet(source, at, AnnotationKind::Primary, None)));
        }
    }
    let mut text = renderer.render(&groups);
    for at in primary.iter().chain(placed_notes.iter().flatten()) {
        text = restore_column(text, &source.name, at);
    }
    out.push_str(&text);
    out.push('\n');
}

fn level_of(kind: NoteKind) -> Level<'static> {
    match kind {
        NoteKind::Note => Level::NOTE,
        NoteKind::Help => Level::HELP,
    }
}

fn snippet<'a>(
    source: &'a Source,
    at: &'a Located,
    kind: AnnotationKind,
    label: Option<&'a str>,
) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
    Snippet::source(&*at.excerpt)
        .line_start(at.line)
        .path(&*source.name)
        .annotation(kind.span(at.marked.clone()).label(label))
}

/// The renderer counts columns in the excerpt it is given; where the line was clipped on the left, the true column takes
/// its place.
fn restore_column(text: String, name: &str, at: &Located) -> String {
    if at.column == at.excerpt_column {
        return text;
    }
    let wrong = format!("{name}:{}:{}\n", at.line, at.excerpt_column);
    text.replacen(&wrong, &format!("{name}:{}:{}\n", at.line, at.column), 1)
}

/// What is known of the instruction besides its place: its text where there is no source to show, and where in the
/// user's program it came from.
fn footer(source: &Source, module: Option<&Module>, diagnostic: &Diagnostic) -> Vec<String> {
    let (Place::Instruction(id, _), Some(module)) = (&diagnostic.place, module) else { return Vec::new() };
    let mut footer = Vec::new();
    if source.resolve(&diagnostic.place).is_none() {
        footer.push(format!("the instruction is `{}`", instruction_text(module, *id)));
        let computation = module.computation(module.instruction(*id).parent());
        footer.push(format!("it is in the computation `{}`", computation.name()));
    }
    if let Some(origin) = origin(module, *id) {
        footer.push(origin);
    }
    footer
}

/// The instruction in HLO text, its beginning if it is long.
pub(crate) fn instruction_text(module: &Module, id: InstructionId) -> String {
    clip(&hlo_text::print_instruction(module, id, &PrintOptions { elide_constants: true }), MAX_INSTRUCTION)
}

/// `from model.py:42, op_name "jit(f)/mul"`.
fn origin(module: &Module, id: InstructionId) -> Option<String> {
    let metadata = module.instruction(id).common.metadata.as_deref()?;
    let (file, line) = source_position(module, metadata);
    let mut text = String::new();
    if !file.is_empty() {
        let _ = write!(text, "it comes from {file}");
        if line > 0 {
            let _ = write!(text, ":{line}");
        }
    }
    if !metadata.op_name.is_empty() {
        text.push_str(if text.is_empty() { "it is op_name " } else { ", op_name " });
        let _ = write!(text, "\"{}\"", clip(&metadata.op_name, MAX_INSTRUCTION));
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;

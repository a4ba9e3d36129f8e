//! Diagnostics as people see them.

use super::*;
use expect_test::{Expect, expect};
use hloom::Format;
use hloom::formats::hlo_text::SourceMap;
use hloom::ir::diagnostic::codes::text::UNEXPECTED_TOKEN;
use hloom::ir::diagnostic::{Part, Span};
use hloom::ir::element_type::ElementType;
use hloom::ir::instruction::{Common, Operands};
use hloom::ir::metadata::Metadata;
use hloom::ir::module::NewInstruction;
use hloom::ir::op::Op;
use hloom::ir::shape::Shape;
use std::sync::Arc;

fn source(text: &str) -> Source {
    let bytes = Arc::new(text.as_bytes().to_vec());
    Source { name: "m.hlo".into(), bytes, format: Format::HloText, positions: SourceMap::default() }
}

/// The bytes of `part` in `text`.
fn span(text: &str, part: &str) -> Span {
    let start = text.find(part).expect("the part is in the text");
    Span::new(start, start + part.len())
}

fn error_at(text: &str, part: &str, message: &str) -> Diagnostic {
    Diagnostic::error(&UNEXPECTED_TOKEN, message).at(span(text, part))
}

fn check(source: &Source, module: Option<&Module>, diagnostics: &[Diagnostic], expected: Expect) {
    expected.assert_eq(&report(source, module, diagnostics, false));
}

const TEXT: &str = "HloModule m\n\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] ad(x, x)\n}\n";

#[test]
fn shows_the_line_with_a_caret_label_and_notes() {
    let error = error_at(TEXT, "ad", "there is no opcode `ad`")
        .label("unknown opcode")
        .note("opcodes are written in lower case")
        .help("did you mean `add`?")
        .note_at("`x` is defined here", Place::Span(span(TEXT, "x")));
    check(
        &source(TEXT),
        None,
        &[error],
        expect![[r#"
        error[H0101]: there is no opcode `ad`
         --> m.hlo:5:19
          |
        5 |   ROOT y = f32[2] ad(x, x)
          |                   ^^ unknown opcode
          |
          = note: opcodes are written in lower case
          = help: did you mean `add`?
        note: `x` is defined here
         --> m.hlo:4:3
          |
        4 |   x = f32[2] parameter(0)
          |   ^

    "#]],
    );
}

#[test]
fn counts_errors_and_warnings_at_the_end() {
    let errors = [
        error_at(TEXT, "f32[2] p", "one"),
        error_at(TEXT, "ROOT", "two"),
        Diagnostic::warning(&UNEXPECTED_TOKEN, "three").at(span(TEXT, "HloModule m")),
    ];
    check(
        &source(TEXT),
        None,
        &errors,
        expect![[r#"
        error[H0101]: one
         --> m.hlo:4:7
          |
        4 |   x = f32[2] parameter(0)
          |       ^^^^^^^^

        error[H0101]: two
         --> m.hlo:5:3
          |
        5 |   ROOT y = f32[2] ad(x, x)
          |   ^^^^

        warning[H0101]: three
         --> m.hlo:1:1
          |
        1 | HloModule m
          | ^^^^^^^^^^^

        2 errors and 1 warning in m.hlo
    "#]],
    );
}

#[test]
fn long_lines_are_clipped_and_keep_their_true_column() {
    let text = format!("  c = f32[9999] constant({{{}oops, {}}})", "1, ".repeat(3000), "2, ".repeat(3000));
    let error = error_at(&text, "oops", "`oops` is not a number").label("expected an f32");
    check(
        &source(&text),
        None,
        &[error],
        expect![[r#"
        error[H0101]: `oops` is not a number
         --> m.hlo:1:9027
          |
        1 | …, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, oops, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,…
          |                                                             ^^^^ expected an f32

    "#]],
    );
}

#[test]
fn the_end_of_the_text_has_a_caret_too() {
    let text = "HloModule m\n";
    let at_end = Diagnostic::error(&UNEXPECTED_TOKEN, "the text ends too early").at(Span::new(12, 12));
    check(
        &source(text),
        None,
        &[at_end],
        expect![[r#"
        error[H0101]: the text ends too early
         --> m.hlo:2:1
          |
        2 |
          | ^

    "#]],
    );
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let text = "x\u{1b}[31m = \u{7f}\tq";
    let error = error_at(text, "q", "bad \u{1b}[31m character");
    let shown = report(&source(text), None, &[error], true);
    assert!(!shown.contains("\u{1b}[31m") && !shown.contains('\u{7f}'), "{shown:?}");
}

#[test]
fn a_proto_shows_the_instruction_and_where_it_came_from() {
    let mut module = Module::new("m");
    let entry = module.add_computation("main");
    let metadata =
        Metadata { op_name: "jit(f)/x".into(), source_file: "model.py".into(), source_line: 7, ..Metadata::default() };
    let x = module.add_instruction(
        entry,
        NewInstruction {
            name: "x".into(),
            op: Op::parameter(0),
            shape: Shape::array(ElementType::F32, [2]),
            operands: Operands::new(),
            common: Common { metadata: Some(Box::new(metadata)), ..Common::default() },
        },
    );
    module.set_entry(entry);
    let proto = Source { name: "m.pb".into(), format: Format::HloProto, ..source("bytes") };
    let error = Diagnostic::error(&UNEXPECTED_TOKEN, "wrong").at_instruction(x, Part::Shape).label("this shape");
    check(
        &proto,
        Some(&module),
        &[error],
        expect![[r#"
        error[H0101]: wrong
        --> m.pb
         = note: this shape
         = note: the instruction is `%x = f32[2] parameter(0), metadata={op_name="jit(f)/x" source_file="model.py" source_line=7}`
         = note: it is in the computation `main`
         = note: it comes from model.py:7, op_name "jit(f)/x"

    "#]],
    );
}

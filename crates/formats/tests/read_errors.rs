//! What the HLO text reader says about wrong text, and where.

use hloom_formats::hlo_text::read;
use hloom_ir::diagnostic::{Diagnostic, NoteKind, Place, Severity, codes};

/// Errors as `code line:column`, in order.
fn errors(text: &str) -> Vec<String> {
    let result = read(text.as_bytes());
    let errors: Vec<&Diagnostic> = result.diagnostics.iter().filter(|d| d.severity == Severity::Error).collect();
    assert_eq!(result.module.is_none(), !errors.is_empty(), "a module exactly when there is no error");
    let place = |d: &Diagnostic| {
        let span = result.positions.resolve(text.as_bytes(), &d.place).expect("every error has a place");
        let before = &text.as_bytes()[..span.start as usize];
        let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
        let column = before.len() - before.iter().rposition(|&b| b == b'\n').map_or(0, |n| n + 1) + 1;
        format!("{} {line}:{column}", d.code)
    };
    errors.iter().map(|d| place(d)).collect()
}

/// Checks the errors of a module whose entry has these lines; the first is line 3.
fn check(body: &str, expected: &[&str]) {
    let text = format!("HloModule m\nENTRY e {{\n{body}\n}}\n");
    assert_eq!(errors(&text), expected, "in\n{text}");
}

fn helps(text: &str) -> Vec<String> {
    let result = read(text.as_bytes());
    let notes = result.diagnostics.into_iter().flat_map(|d| d.notes);
    notes.filter(|n| n.kind == NoteKind::Help).map(|n| n.message).collect()
}

#[test]
fn every_code_is_given_by_its_example() {
    for code in codes::text::ALL {
        // These two need more text than an example can show.
        if [109, 199].contains(&code.number) {
            continue;
        }
        let given: Vec<u16> = read(code.example.as_bytes()).diagnostics.iter().map(|d| d.code.number).collect();
        assert!(given.contains(&code.number), "{code} ({}) gives {given:?}", code.title);
    }
}

#[test]
fn places_are_exact() {
    check("  ROOT p = f32[2 parameter(0)", &["H0101 3:18"]);
    check("  ROOT p = g32[] parameter(0)", &["H0110 3:12"]);
    check("  p = f32[2,3]{0} parameter(0)", &["H0112 3:15"]);
    check("  p = f32[2] parameter(0)\n  ROOT a = f32[2] ad(p, p)", &["H0120 4:19"]);
    check("  p = f32[2] parameter(0)\n  ROOT a = f32[2] add(p, q)", &["H0123 4:26"]);
    check("  p = f32[2] parameter(0)\n  ROOT a = f32[2] add(p, p, p)", &["H0122 4:22"]);
    check("  p = f32[2] parameter(0)\n  ROOT a = f32[2] reverse(p)", &["H0142 4:19"]);
    check("  p = f32[2] parameter(0)\n  ROOT a = f32[2] reverse(p), dimension={0}", &["H0140 4:31"]);
    check("  p = f32[2] parameter(0)\n  ROOT a = f32[2] reverse(p), dimensions={0}, dimensions={0}", &["H0141 4:47"]);
    check("  p = f32[2] parameter(0)\n  ROOT a = f32[2] negate(f32[3] p)", &["H0128 4:26"]);
    check("  ROOT c = s32[2] constant({1, 2.5})", &["H0150 3:32"]);
    check("  ROOT c = s8[2] constant({1, 300})", &["H0151 3:31"]);
    check("  ROOT c = s8[2] constant({1, 2, 3})", &["H0152 3:34"]);
    check("  ROOT c = s8[2] constant({1})", &["H0152 3:29"]);
    check("  ROOT c = s8[2,2] constant({1, 2})", &["H0152 3:30"]);
    check("  p = f32[] parameter(0)\n  p = f32[] parameter(1)", &["H0125 4:3"]);
    check("  ROOT p = f32[] parameter(-1)", &["H0107 3:28"]);
}

#[test]
fn near_misses_are_suggested() {
    let module = |line: &str| format!("HloModule m\nENTRY e {{\n  param = f32[2] parameter(0)\n  {line}\n}}\n");
    for (line, word) in [
        ("ROOT a = f32[2] negat(param)", "negate"),
        ("ROOT a = f32[2] negate(parm)", "param"),
        ("ROOT a = f32[2] reverse(param), dimension={0}", "dimensions"),
        ("ROOT a = pred[2] compare(param, param), direction=LTX", "LT"),
        ("ROOT a = f31[2] negate(param)", "f32"),
    ] {
        let helps = helps(&module(line));
        assert!(helps.iter().any(|h| h.contains(&format!("`{word}`"))), "{line}: {helps:?}");
    }
}

#[test]
fn all_errors_are_reported_once_each() {
    check(
        "  a = f32[2] parameter(0)\n  b = f32[2] ad(a, a)\n  c = f32[2] negate(b)\n  d = f32[2] add(c, x)\n  \
         e = f32[2] negate(x)\n  f = f33[2] negate(a)\n  ROOT g = f32[2] add(f, a)",
        &["H0120 4:14", "H0123 6:21", "H0110 8:7"],
    );
    let text = "HloModule m\nf (p: f32[]) -> f32[] {\n  p = f32[] parameter(0)\n  ROOT q = f32[] nope(p)\n}\n\
                ENTRY e {\n  p = f32[] parameter(0)\n  a = f32[] call(p), to_apply=f\n  b = f32[] call(p), to_apply=g\n  ROOT c = f32[] what(b)\n}\n";
    assert_eq!(errors(text), ["H0120 4:18", "H0124 9:31", "H0120 10:18"]);
}

#[test]
fn what_is_defined_too_late_is_pointed_out() {
    let text = "HloModule m\nENTRY e {\n  ROOT a = f32[] negate(b)\n  b = f32[] parameter(0)\n}\n";
    let result = read(text.as_bytes());
    let note = &result.diagnostics[0].notes[0];
    let Place::Span(span) = note.place else { panic!("the note points nowhere") };
    assert_eq!(span.start as usize, text.find("b = ").unwrap());
}

#[test]
fn duplicates_point_at_the_first() {
    let text = "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  p = f32[] parameter(1)\n}\n";
    let result = read(text.as_bytes());
    let Place::Span(span) = result.diagnostics[0].notes[0].place else { panic!("the note points nowhere") };
    assert_eq!(span.start as usize, text.find("p = ").unwrap());
}

#[test]
fn the_end_of_the_text_is_a_place() {
    assert_eq!(errors(""), ["H0133 1:1"]);
    assert_eq!(errors("HloModule m\n"), ["H0133 2:1"]);
    assert_eq!(errors("HloModule test\nENTRY entry {\n"), ["H0102 3:1"]);
    assert_eq!(errors("HloModule test\nENTRY entry () -> \n"), ["H0102 3:1"]);
}

#[test]
fn bytes_that_are_not_text() {
    assert_eq!(read(b"\x00\x01\x02").diagnostics[0].code, &codes::text::BAD_CHARACTER);
    assert_eq!(read(b"\xff\xfe").diagnostics[0].code, &codes::text::BAD_CHARACTER);
    let result = read(b"HloModule m\nENTRY e {\n  ROOT p = f32[] parameter(0), metadata={op_name=\"\xff\"}\n}");
    assert_eq!(result.diagnostics[0].severity, Severity::Warning);
    assert!(result.module.is_some());
}

#[test]
fn reading_stops_after_many_errors() {
    let mut text = "HloModule m\nENTRY e {\n".to_owned();
    for i in 0..1000 {
        text.push_str(&format!("  x{i} = f32[] nope()\n"));
    }
    text.push_str("}\n");
    let codes = errors(&text);
    assert_eq!(codes.len(), 101);
    assert!(codes[100].starts_with("H0199"));
}

#[test]
fn too_deep_is_refused() {
    let shape = format!("{}{}", "(".repeat(200), ")".repeat(200));
    let operand = format!("{}p{}", "negate(".repeat(200), ")".repeat(200));
    for body in
        [format!("  ROOT p = {shape} parameter(0)"), format!("  p = f32[] parameter(0)\n  ROOT r = f32[] {operand}")]
    {
        let text = format!("HloModule m\nENTRY e {{\n{body}\n}}\n");
        assert!(errors(&text)[0].starts_with("H0109"), "{:?}", errors(&text));
    }
}

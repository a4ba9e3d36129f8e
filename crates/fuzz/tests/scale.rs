//! Large modules. Real ones have hundreds of thousands of instructions: a step that is quadratic does not end.

use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_formats::proto::{self, Container};
use hloom_ir::verify::{VerifyOptions, verify};
use std::fmt::Write;

/// A text of `n` instructions in one computation: long chains, wide fan-out, a name for each, and one use of many.
fn large_text(n: usize) -> String {
    let mut text = String::from("HloModule large\n\nENTRY main {\n  p0 = f32[8,16]{1,0} parameter(0)\n");
    let mut previous = "p0".to_string();
    for i in 1..n.saturating_sub(2) {
        let name = format!("v{i}");
        let _ = match i % 4 {
            0 => writeln!(
                text,
                "  {name} = f32[8,16]{{1,0}} add({previous}, p0), metadata={{op_name=\"jit(f)/step{i}\"}}"
            ),
            1 => writeln!(text, "  {name} = f32[8,16]{{1,0}} negate({previous})"),
            2 => writeln!(text, "  {name} = f32[8,16]{{1,0}} multiply({previous}, {previous})"),
            _ => writeln!(text, "  {name} = f32[8,16]{{1,0}} maximum(p0, {previous})"),
        };
        previous = name;
    }
    let _ = writeln!(text, "  s = f32[8,16]{{1,0}} abs({previous})\n  ROOT r = (f32[8,16]{{1,0}}) tuple(s)\n}}");
    text
}

/// A text of `n` computations, each called by the next.
fn many_computations(n: usize) -> String {
    let mut text = String::from("HloModule many\n");
    for i in 0..n {
        let _ = write!(text, "\nc{i} {{\n  x{i} = f32[] parameter(0)\n");
        let _ = match i {
            0 => writeln!(text, "  ROOT r{i} = f32[] negate(x{i})\n}}"),
            _ => writeln!(text, "  ROOT r{i} = f32[] call(x{i}), to_apply=c{}\n}}", i - 1),
        };
    }
    let _ = writeln!(text, "\nENTRY e {{\n  x = f32[] parameter(0)\n  ROOT r = f32[] call(x), to_apply=c{}\n}}", n - 1);
    text
}

/// Reads, verifies, prints, and goes through a proto.
fn survives(text: &str, instructions: usize) {
    let read = hlo_text::read(text.as_bytes());
    let module = read.module.unwrap_or_else(|| panic!("{:?}", read.diagnostics));
    assert_eq!(module.instruction_count(), instructions);
    let module = match verify(module, &VerifyOptions::default()) {
        Ok(module) => module.into_module(),
        Err(invalid) => panic!("{:?}", invalid.diagnostics.first()),
    };
    let options = PrintOptions { elide_constants: false };
    let printed = hlo_text::print(&module, &options);
    let bytes = proto::write(&module, Container::Module).expect("it can be written as a proto");
    let through = proto::read(&bytes).expect("our own proto is read");
    assert!(hlo_text::print(&through, &options) == printed, "a proto changes the module");
}

#[test]
fn fifty_thousand_instructions() {
    survives(&large_text(50_000), 50_000);
}

#[test]
fn ten_thousand_computations_in_a_chain_of_calls() {
    survives(&many_computations(10_000), 20_002);
}

#[test]
#[ignore = "takes a while: run by hand with --release -- --ignored"]
fn a_million_instructions() {
    survives(&large_text(1_000_000), 1_000_000);
}

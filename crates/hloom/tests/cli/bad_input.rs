//! Whatever the input is, hloom says what is wrong with it and exits with 1.

use super::*;

/// Every command that reads a module says no to `FILE`, in words that contain `words`.
#[track_caller]
fn refused(folder: &Folder, file: &str, words: &str) {
    for command in [&["verify", file][..], &["fmt", file], &["stats", file], &["convert", file, "out.hlo"]] {
        let ran = folder.hloom(command).exits(1);
        assert!(ran.stderr.contains(words), "{command:?} says: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{command:?}");
    }
    assert!(!folder.names().contains(&"out.hlo".to_owned()), "an output was written");
}

#[test]
fn files_that_are_not_there() {
    let folder = Folder::new("bad-missing");
    refused(&folder, "missing.hlo", "error[H0801]: cannot read `missing.hlo`: no such file");
    refused(&folder, ".", "error[H0801]: cannot read `.`: is a directory");
}

#[test]
fn files_with_nothing_in_them() {
    let folder = Folder::new("bad-empty").with("empty.hlo", "").with("blank.hlo", " \n\t\n");
    refused(&folder, "empty.hlo", "error[H0803]: `empty.hlo` is empty");
    refused(&folder, "blank.hlo", "error[H0803]: `blank.hlo` is empty");
    let ran = folder.hloom_with(&["verify", "-"], "").exits(1);
    assert!(ran.stderr.contains("`<stdin>` is empty"), "{}", ran.stderr);
}

#[test]
fn bytes_that_are_no_text() {
    let folder = Folder::new("bad-bytes")
        .with("nul.hlo", "HloModule m\0\n\nENTRY e {\n  ROOT x = f32[] parameter(0)\n}\n")
        .with("latin1.hlo", b"HloModule m\n\nENTRY e {\n  ROOT x\xe9 = f32[] parameter(0)\n}\n")
        .with("noise.hlo", (0..=255).cycle().take(5000).collect::<Vec<u8>>());
    for (file, place) in [("nul.hlo", "nul.hlo:1:12"), ("latin1.hlo", "latin1.hlo:4:"), ("noise.hlo", "error[H")] {
        let ran = folder.hloom(&["verify", file]).exits(1);
        assert!(ran.stderr.contains(place), "{file}: {}", ran.stderr);
    }
}

#[test]
fn text_that_stops_anywhere() {
    let folder = Folder::new("bad-cut");
    // The last brace, and what follows it, may go only together with what they close.
    for end in (1..PRINTED.trim_end().len()).step_by(7) {
        let ran = folder.hloom_with(&["verify", "-"], &PRINTED[..end]).exits(1);
        assert!(ran.stderr.contains("error[H"), "cut at {end}: {}", ran.stderr);
    }
}

#[test]
fn stablehlo_that_is_cut_off_or_unknown() {
    let folder = Folder::new("bad-mlir")
        .with("m.mlir", "module @jit_f {\n  func.func @main() { arith.nop }\n}\n")
        .with("m.mlirbc", b"ML\xefR\x01StableHLO");
    refused(&folder, "m.mlir", "error[H0908]: there is no operation arith.nop");
    refused(&folder, "m.mlirbc", "error[H0902]: the bytecode is damaged");
}

#[test]
fn deep_nesting_does_not_exhaust_the_stack() {
    let depth = 200_000;
    let folder = Folder::new("bad-deep");
    let tuple = format!(
        "HloModule m\nENTRY e {{\n  ROOT x = {}f32[]{} parameter(0)\n}}\n",
        "(".repeat(depth),
        ")".repeat(depth)
    );
    let ran = folder.hloom_with(&["verify", "-"], tuple).exits(1);
    assert!(ran.stderr.contains("<stdin>:3:"), "{}", &ran.stderr[..ran.stderr.len().min(500)]);
    let braces = format!("HloModule m\nENTRY e {{\n  ROOT x = f32[1] constant({}\n}}\n", "{".repeat(depth));
    folder.hloom_with(&["verify", "-"], braces).exits(1);
}

#[test]
fn a_long_line_is_shown_in_part() {
    let operands = "x, ".repeat(100_000);
    let text =
        format!("HloModule m\nENTRY e {{\n  x = f32[] parameter(0)\n  ROOT t = (f32[]) tuple({operands}oops)\n}}\n");
    let ran = Folder::new("bad-long").hloom_with(&["verify", "-"], text).exits(1);
    assert!(ran.stderr.contains("oops") && ran.stderr.contains("<stdin>:4:300026"), "{:.2000}", ran.stderr);
    assert!(ran.stderr.len() < 5000, "{} bytes of words", ran.stderr.len());
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_is_no_error() {
    use std::process::{Command, Stdio};
    let instructions: String = (0..20_000).map(|i| format!("  x{i} = f32[] parameter({i})\n")).collect();
    let text = format!("HloModule m\nENTRY e {{\n{instructions}  ROOT r = f32[] negate(x0)\n}}\n");
    let folder = Folder::new("bad-pipe").with("m.hlo", text);
    let mut child = Command::new(env!("CARGO_BIN_EXE_hloom"))
        .args(["fmt", "m.hlo"])
        .current_dir(&folder.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("hloom starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("hloom ends");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

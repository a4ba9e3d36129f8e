//! Portable artifacts against what XLA itself makes of them: the translation of each is run beside XLA's HLO.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use hloom_eval::{DeviceGrid, Options};
use hloom_ir::verify::{VerifyOptions, verify};
use hloom_ir::{ArrayShape, ElementType, Literal, Module, Shape, VerifiedModule};
use hloom_value::Value;
use std::path::{Path, PathBuf};

/// The folder of samples; `None`, with a word about it, where there is none.
fn samples() -> Option<PathBuf> {
    let shared = std::env::var_os("HLOOM_SHARED").map(PathBuf::from).or_else(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        here.ancestors().map(|a| a.join("shared")).find(|p| p.join("corpus").is_dir())
    });
    let folder = shared.map(|s| s.join("corpus/stablehlo-samples")).filter(|f| f.is_dir());
    if folder.is_none() {
        eprintln!("skipped: there is no folder shared/corpus/stablehlo-samples beside the project");
    }
    folder
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder can be listed");
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    files.retain(|f| f.to_string_lossy().ends_with(ending));
    files.sort();
    files
}

/// What HLO cannot say, by the number of the sample.
const NO_HLO: &[&str] = &["20_", "22_", "36_", "38_", "55_"];

/// Numbers that differ from element to element and are in the range of most functions.
fn input(shape: &Shape, seed: usize) -> Value {
    let fill = |a: &ArrayShape| -> Value {
        let count = a.element_count().expect("a static shape") as usize;
        let mut bytes = Vec::new();
        for i in 0..count {
            let x = ((i * 7 + seed * 3) % 13) as f64 / 16.0 + 0.0625;
            match a.element_type {
                ElementType::F32 => bytes.extend((x as f32).to_le_bytes()),
                ElementType::F64 => bytes.extend(x.to_le_bytes()),
                ElementType::F16 => bytes.extend(half::f16::from_f64(x).to_le_bytes()),
                ElementType::Bf16 => bytes.extend(half::bf16::from_f64(x).to_le_bytes()),
                ElementType::C64 => bytes.extend([(x as f32).to_le_bytes(), (-x as f32).to_le_bytes()].concat()),
                t => bytes
                    .extend(((i % 2) as u64).to_le_bytes()[..t.bytes().min(8)].iter().chain(&[0; 8]).take(t.bytes())),
            }
        }
        let literal = hloom_ir::literal::ArrayLiteral::new(a.without_layout().with_default_layout(), bytes);
        Value::from_literal(&Literal::Array(literal.expect("the right size"))).expect("a value")
    };
    match shape {
        Shape::Array(a) => fill(a),
        Shape::Token => Value::Token,
        other => Value::zeroed(other).expect("a value"),
    }
}

fn run(module: &VerifiedModule) -> Result<Vec<Value>, String> {
    let m = module.module();
    let entry = m.entry().expect("an entry");
    let inputs = m.parameters(entry).iter().enumerate().map(|(i, &p)| input(&m[p].shape, i)).collect();
    let grid = DeviceGrid { replicas: 1, partitions: 1 };
    hloom_eval::run(module, grid, vec![inputs], &Options { max_steps: Some(200_000), ..Options::default() })
        .map_err(|f| f.into_diagnostic().to_string())
}

fn verified(module: Module) -> Result<VerifiedModule, String> {
    verify(module, &VerifyOptions { devices: None }).map_err(|e| {
        let all: Vec<String> = e.diagnostics.iter().map(ToString::to_string).collect();
        all.join("; ")
    })
}

/// Whether two results are the same, numbers up to rounding.
fn agree(ours: &[Value], theirs: &[Value]) -> bool {
    let near = |x: f32, y: f32| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= 1e-5 * y.abs().max(1.0);
    let same = |a: &Value, b: &Value| match (a.as_array(), b.as_array()) {
        (Ok(a), Ok(b)) if a.element_type().component() == ElementType::F32 && a.shape() == b.shape() => {
            let number = |c: &[u8]| f32::from_le_bytes(c.try_into().expect("four bytes"));
            a.bytes().chunks_exact(4).zip(b.bytes().chunks_exact(4)).all(|(x, y)| near(number(x), number(y)))
        }
        _ => format!("{a:?}") == format!("{b:?}"),
    };
    let (a, b): (Vec<_>, Vec<_>) =
        (ours.iter().flat_map(Value::leaves).collect(), theirs.iter().flat_map(Value::leaves).collect());
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| same(a, b))
}

/// Compares what each sample of these endings becomes with XLA's own HLO of it.
fn compare(endings: &[&str], translate: fn(&[u8]) -> Result<Module, String>, at_least: usize) {
    let Some(folder) = samples() else { return };
    let mut wrong = Vec::new();
    let mut compared = 0;
    for file in endings.iter().flat_map(|e| files(&folder, e)) {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        if NO_HLO.iter().any(|n| name.starts_with(n)) {
            continue;
        }
        let bytes = std::fs::read(&file).expect("it can be read");
        let ours = match translate(&bytes).and_then(verified) {
            Ok(ours) => ours,
            Err(reason) => {
                wrong.push(format!("{name}: {reason}"));
                continue;
            }
        };
        let stem = name.split('.').next().expect("a stem");
        let Ok(text) = std::fs::read(folder.join(format!("{stem}.hlo.txt"))) else { continue };
        let Some(theirs) = hloom_formats::hlo_text::read(&text).module else { continue };
        let Ok(theirs) = verified(theirs) else { continue };
        // Random numbers are made up anew for every program.
        if name.starts_with("15_") {
            continue;
        }
        // What needs several devices, or calls of other libraries, is not run here.
        let Ok(expected) = run(&theirs) else { continue };
        match run(&ours) {
            Ok(results) if agree(&results, &expected) => compared += 1,
            Ok(_) => wrong.push(format!("{name}: gives other results than XLA's HLO")),
            Err(reason) => wrong.push(format!("{name}: {reason}")),
        }
    }
    assert!(wrong.is_empty(), "{compared} agree, {} do not:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared >= at_least, "only {compared} samples were compared");
}

#[test]
fn artifacts_do_what_xla_says_they_do() {
    let translate = |bytes: &[u8]| {
        let module = hloom_stablehlo::read_bytecode(bytes).and_then(|m| hloom_stablehlo::to_hlo(&m));
        module.map_err(|d| d.to_string())
    };
    compare(&[".bc"], translate, 40);
}

#[test]
fn texts_do_what_xla_says_they_do() {
    let translate = |bytes: &[u8]| {
        let module = hloom_stablehlo::read_text(bytes).and_then(|m| hloom_stablehlo::to_hlo(&m));
        module.map_err(|d| d.to_string())
    };
    compare(&[".mlir"], translate, 80);
}

#[test]
fn what_is_written_reads_back_and_does_the_same() {
    let translate = |bytes: &[u8]| {
        let module = hloom_stablehlo::read_text(bytes).and_then(|m| hloom_stablehlo::to_hlo(&m));
        let text = module.and_then(|m| hloom_stablehlo::from_hlo(&m)).map_err(|d| d.to_string())?;
        let module = hloom_stablehlo::read_text(text.as_bytes()).and_then(|m| hloom_stablehlo::to_hlo(&m));
        module.map_err(|d| format!("{d} ({:?}) in\n{text}", d.place))
    };
    compare(&[".mlir"], translate, 70);
}

#[test]
fn artifacts_that_are_cut_off_anywhere_are_refused() {
    let Some(folder) = samples() else { return };
    let bytes = std::fs::read(folder.join("13_control_flow.bc")).expect("it can be read");
    for end in 0..bytes.len() {
        assert!(hloom_stablehlo::read_bytecode(&bytes[..end]).is_err(), "cut off at {end}");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x55;
        // Whatever it says now, it is read or refused.
        let _ = hloom_stablehlo::read_bytecode(&changed).and_then(|m| hloom_stablehlo::to_hlo(&m));
    }
}

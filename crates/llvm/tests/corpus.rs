//! Real programs: the kernel of each instruction against the evaluator, on random arguments.

mod common;

use common::{check_run, mild_arguments};
use hloom_formats::hlo_text;
use hloom_ir::verify::{VerifyOptions, verify};
use std::path::{Path, PathBuf};

/// The folder of programs beside the checkout, or where HLOOM_SHARED points.
fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("HLOOM_SHARED").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|p| p.join("shared"));
    named.into_iter().chain(beside).map(|p| p.join("corpus/exec")).find(|p| p.is_dir())
}

#[test]
fn kernels_agree_with_the_evaluator_on_real_programs() {
    let Some(folder) = folder() else {
        // Nothing to compare: there is no corpus beside the project.
        return;
    };
    let wanted = std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let files = std::fs::read_dir(folder).expect("it can be listed").filter_map(|e| e.ok()).map(|e| e.path());
    let is_small = |p: &PathBuf| p.metadata().is_ok_and(|m| m.len() < 20_000);
    let mut files: Vec<PathBuf> = files.filter(|p| p.to_string_lossy().ends_with(".d1.hlo")).filter(is_small).collect();
    files.sort();
    let step = (files.len() / wanted).max(1);
    let (mut checked, mut failures) = (0, Vec::new());
    for file in files.iter().step_by(step) {
        let Ok(text) = std::fs::read(file) else { continue };
        let Some(module) = hlo_text::read(&text).module else { continue };
        let Ok(module) = verify(module, &VerifyOptions::default()) else { continue };
        let plain = module.module();
        let parameters = plain.entry().map_or_else(Vec::new, |e| plain.parameters(e));
        let bytes: i64 = parameters.iter().map(|&p| plain[p].shape.byte_size().unwrap_or(i64::MAX / 1024)).sum();
        if bytes > 1 << 20 {
            continue;
        }
        match std::panic::catch_unwind(|| check_run(&module, vec![mild_arguments(&module, 7)], None)) {
            Ok(summary) => checked += summary.checked,
            Err(e) => {
                let why = e.downcast_ref::<String>().cloned().unwrap_or_default();
                failures.push(format!("{}: {why}", file.display()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(checked > 100, "only {checked} kernels were run");
}

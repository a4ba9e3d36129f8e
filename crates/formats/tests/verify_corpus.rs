//! The verifier over real modules: what XLA ran is accepted, what must be refused is refused.
//!
//! The modules lie beside the project in `shared/` (or where `HLOOM_SHARED` says); without them there is nothing to do.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

use hloom_formats::hlo_text::read;
use hloom_ir::diagnostic::Severity;
use hloom_ir::verify::{VerifyOptions, check};
use std::path::{Path, PathBuf};

/// The folder `name` of the shared corpus, if it is there.
fn shared(name: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|a| a.join("shared")).find(|s| s.is_dir());
    let root = std::env::var_os("HLOOM_SHARED").map(PathBuf::from).or_else(beside);
    root.map(|r| r.join(name)).filter(|f| f.is_dir())
}

/// All files of `folder` and its folders that end in one of `extensions`.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            found.extend(files(&entry, extensions));
        } else if entry.extension().is_some_and(|e| extensions.iter().any(|x| e == *x)) {
            found.push(entry);
        }
    }
    found
}

/// The first error in the file: from reading it, or from verifying it.
fn first_error(file: &Path) -> Option<String> {
    let read = read(&std::fs::read(file).unwrap());
    let findings = match &read.module {
        Some(module) => check(module, &VerifyOptions::default()),
        None => read.diagnostics,
    };
    findings.iter().find(|d| d.severity == Severity::Error).map(|d| format!("{}: {d}", file.display()))
}

#[test]
fn what_runs_is_accepted() {
    for name in ["corpus/exec", "corpus/bench", "corpus/cpu_ba", "seeds"] {
        let Some(folder) = shared(name) else {
            println!("skipped: there is no {name}");
            continue;
        };
        // Among the seeds are dumps of other kinds, with other numbers.
        let is_module = |f: &PathBuf| {
            name != "seeds"
                || ["000", "001", "002"]
                    .iter()
                    .any(|n| f.file_name().is_some_and(|f| f.to_string_lossy().starts_with(n)))
        };
        let extensions = if name == "seeds" { &["txt"] } else { &["hlo"] };
        let modules: Vec<_> = files(&folder, extensions).into_iter().filter(is_module).collect();
        assert!(!modules.is_empty(), "{name} has no modules");
        let refused: Vec<_> = modules.iter().filter_map(|f| first_error(f)).collect();
        assert!(refused.is_empty(), "{} of {} are refused:\n{}", refused.len(), modules.len(), refused.join("\n"));
    }
}

#[test]
fn what_must_be_refused_is_refused() {
    let Some(folder) = shared("corpus/hlo-reject") else {
        println!("skipped: there is no corpus/hlo-reject");
        return;
    };
    let accepted: Vec<_> = files(&folder, &["hlo"]).into_iter().filter(|f| first_error(f).is_none()).collect();
    assert!(accepted.is_empty(), "these are accepted: {accepted:?}");
}

//! Real modules: what is read prints as XLA prints it, and what was printed reads and prints the same again.
//!
//! The modules are not part of the project; without them these tests say so and pass.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use hloom_formats::hlo_text::{PrintOptions, print, read};
use std::path::{Path, PathBuf};

const DUMP: PrintOptions = PrintOptions { elide_constants: true };
const FULL: PrintOptions = PrintOptions { elide_constants: false };

/// Of a thousand modules this many may print otherwise than in XLA: it reads `-0`, NaN parts of complex numbers and
/// left-out constants as something else than what they say.
const DIFFERENT_PER_THOUSAND: usize = 3;

fn shared() -> Option<PathBuf> {
    let named = std::env::var_os("HLOOM_SHARED").map(PathBuf::from);
    let beside = || {
        let mut ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        ancestors.find_map(|dir| Some(dir.join("shared")).filter(|s| s.join("corpus").is_dir()))
    };
    named.or_else(beside)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|e| e == "hlo") {
            found.push(path);
        }
    }
}

/// All modules in these folders of the corpus; none, with a word, where there is no corpus.
fn modules(folders: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    match shared() {
        Some(shared) => folders.iter().for_each(|f| collect(&shared.join("corpus").join(f), &mut found)),
        None => eprintln!("skipped: no corpus beside the project; HLOOM_SHARED names one"),
    }
    found.sort();
    found
}

fn printed(text: &[u8], options: &PrintOptions) -> Result<String, String> {
    let result = read(text);
    result.module.map(|m| print(&m, options)).ok_or_else(|| format!("not read: {:?}", result.diagnostics.first()))
}

#[test]
fn modules_print_as_in_xla() {
    let mut different = Vec::new();
    let mut all = 0;
    for path in modules(&["hlo"]) {
        // XLA cannot read back what it printed for these.
        if path.to_string_lossy().contains(".nofix") {
            continue;
        }
        let Ok(golden) = std::fs::read_to_string(path.with_extension("golden")) else { continue };
        all += 1;
        let out = std::fs::read(&path).map_err(|e| e.to_string()).and_then(|text| printed(&text, &DUMP));
        if out.as_deref().map(str::trim) != Ok(golden.trim()) {
            different.push(path);
        }
    }
    assert!(
        different.len() * 1000 <= all * DIFFERENT_PER_THOUSAND,
        "{} of {all} print otherwise: {different:#?}",
        different.len()
    );
}

#[test]
fn printing_is_a_fixed_point() {
    for path in modules(&["hlo", "exec", "bench"]) {
        let text = std::fs::read(&path).unwrap_or_default();
        for options in [&FULL, &DUMP] {
            let once = printed(&text, options).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let twice =
                printed(once.as_bytes(), options).unwrap_or_else(|e| panic!("{}: own text: {e}", path.display()));
            assert!(once == twice, "{} prints differently the second time", path.display());
        }
    }
}

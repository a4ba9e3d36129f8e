//! The corpus of real programs, where there is one: a folder `shared/corpus` beside the checkout, or in `HLOOM_SHARED`.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use hloom::formats::hlo_text::{PrintOptions, print};
use hloom::load::{Rejected, load};
use hloom::{Loaded, Verified};
use std::path::{Path, PathBuf};

/// The folder of that name in the corpus; `None`, with a word about it, where there is no corpus.
fn corpus(name: &str) -> Option<PathBuf> {
    let named = std::env::var_os("HLOOM_SHARED").map(PathBuf::from);
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|a| a.join("shared"));
    let found = named.into_iter().chain(ancestors).map(|s| s.join("corpus").join(name)).find(|f| f.is_dir());
    if found.is_none() {
        eprintln!("skipped: there is no corpus/{name} in a folder `shared` beside the checkout, nor in HLOOM_SHARED");
    }
    found
}

/// All files below `folder` with that ending, sorted.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("it can be listed") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                files.push(path);
            }
        }
    }
    files.sort();
    assert!(!files.is_empty(), "there are no {ending} files in {}", folder.display());
    files
}

fn read(path: &Path) -> Result<Loaded, Box<Rejected>> {
    load(&path.to_string_lossy(), None)
}

fn read_and_verify(path: &Path) -> Result<Verified, Box<Rejected>> {
    read(path)?.verify(None)
}

/// Fails if more than `allowed` of `total` went wrong, and shows the first of them.
fn allow(what: &str, wrong: &[String], allowed: usize, total: usize) {
    let first: Vec<&str> = wrong.iter().take(10).map(String::as_str).collect();
    let shown = first.join("\n");
    assert!(wrong.len() <= allowed, "{what}: {} of {total} went wrong, {allowed} may:\n{shown}", wrong.len());
    eprintln!("{what}: {} of {total}", total - wrong.len());
}

fn why(path: &Path, rejected: &Rejected) -> String {
    format!("{}: {}", path.display(), rejected.diagnostics.first().map_or("no reason".into(), ToString::to_string))
}

#[test]
fn modules_print_as_xla_prints_them() {
    let Some(folder) = corpus("hlo") else { return };
    let files: Vec<PathBuf> =
        files(&folder, ".hlo").into_iter().filter(|f| !f.to_string_lossy().contains(".nofix")).collect();
    let mut wrong = Vec::new();
    for path in &files {
        let golden = std::fs::read_to_string(path.with_extension("golden")).expect("a golden stands beside it");
        match read(path) {
            Err(rejected) => wrong.push(why(path, &rejected)),
            Ok(loaded) => {
                let printed = print(&loaded.module, &PrintOptions { elide_constants: true });
                if printed.trim() != golden.trim() {
                    wrong.push(format!("{}: printed otherwise", path.display()));
                }
            }
        }
    }
    allow("printed as XLA does", &wrong, files.len() / 100, files.len());
}

#[test]
fn programs_that_run_pass_the_verifier() {
    let Some(folder) = corpus("exec") else { return };
    let files = files(&folder, ".hlo");
    let wrong: Vec<String> =
        files.iter().filter_map(|path| read_and_verify(path).err().map(|r| why(path, &r))).collect();
    allow("verified", &wrong, 0, files.len());
}

#[test]
fn what_xla_refuses_is_refused_at_a_place() {
    let Some(folder) = corpus("hlo-reject") else { return };
    let files = files(&folder, ".hlo");
    let mut wrong = Vec::new();
    for path in &files {
        match read_and_verify(path) {
            Ok(_) => wrong.push(format!("{}: accepted", path.display())),
            Err(r) => {
                if !r.diagnostics.iter().any(|d| r.source.resolve(&d.place).is_some()) {
                    wrong.push(format!("{}: without a place", why(path, &r)));
                }
            }
        }
    }
    allow("refused", &wrong, files.len() / 100, files.len());
}

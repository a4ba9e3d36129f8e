//! Holds the code to ARCHITECTURE.md, as far as a machine can: every crate is on the map, dependencies point one way,
//! files stay small and say what they are for, and only the edges print.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The most lines a source file may have.
const MAX_LINES: usize = 700;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The crates by the names of their folders, with the folders of those they depend on; what only their tests use is
/// left out.
fn crates() -> BTreeMap<String, BTreeSet<String>> {
    let folders = fs::read_dir(root().join("crates")).expect("there is a folder of crates");
    let manifests = folders.map(|f| f.expect("it can be listed").path()).filter(|f| f.join("Cargo.toml").exists());
    let crates: BTreeMap<String, BTreeSet<String>> = manifests
        .map(|folder| {
            let manifest = read(&folder.join("Cargo.toml"));
            let sections = manifest.split("\n[").filter(|s| s.starts_with("dependencies]") || s.starts_with("build-"));
            let used = sections.flat_map(str::lines).filter_map(|line| {
                let key = line.split([' ', '.', '=']).next()?;
                key.strip_prefix("hloom-").map(str::to_owned)
            });
            (folder.file_name().expect("a folder has a name").to_string_lossy().into_owned(), used.collect())
        })
        .collect();
    assert!(crates.len() > 5, "these cannot be all crates: {crates:?}");
    crates
}

/// The crates in the order of the table in ARCHITECTURE.md.
fn map() -> Vec<String> {
    let text = read(&root().join("ARCHITECTURE.md"));
    let section = text.split("\n## ").find(|s| s.starts_with("The crates")).expect("a section on the crates");
    section.lines().filter_map(|l| Some(l.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect()
}

/// All Rust files of the crates.
fn sources() -> Vec<PathBuf> {
    let mut sources = Vec::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("it can be listed") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                sources.push(path);
            }
        }
    }
    assert!(sources.len() > 20, "these cannot be all sources");
    sources
}

/// Fails with all that was found wrong, a line each.
fn expect_none(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn every_crate_is_on_the_map() {
    let on_map: BTreeSet<String> = map().into_iter().collect();
    let there: BTreeSet<String> = crates().into_keys().collect();
    assert_eq!(on_map, there, "ARCHITECTURE.md (left) and crates/ (right) differ");
}

#[test]
fn dependencies_point_one_way() {
    let order = map();
    let rank = |name: &str| order.iter().position(|c| c == name).unwrap_or_else(|| panic!("{name} is not on the map"));
    let mut wrong = Vec::new();
    for (name, used) in crates() {
        for other in used {
            if rank(&other) >= rank(&name) {
                wrong.push(format!("{name} uses {other}, which is not above it in ARCHITECTURE.md"));
            }
        }
    }
    expect_none(wrong);
}

#[test]
fn files_are_small_and_say_what_they_are_for() {
    let mut wrong = Vec::new();
    for path in sources() {
        let text = read(&path);
        let lines = text.lines().count();
        if lines > MAX_LINES {
            wrong.push(format!("{} has {lines} lines, more than {MAX_LINES}", path.display()));
        }
        if !text.starts_with("//!") {
            wrong.push(format!("{} does not open with `//!`", path.display()));
        }
    }
    expect_none(wrong);
}

#[test]
fn only_the_edges_print() {
    let printing = ["println!", "print!", "eprintln!", "eprint!", "io::stdout", "io::stderr", "dbg!"];
    let mut wrong = Vec::new();
    for path in sources() {
        let folder = path.strip_prefix(root().join("crates")).expect("it is in there").to_string_lossy().into_owned();
        // Tests talk to whoever runs them.
        let is_test =
            ["/tests", "/benches", "/examples", "build.rs", "filetests/", "fuzz/"].iter().any(|t| folder.contains(t));
        if folder.starts_with("hloom/src") || folder == "pjrt/src/log.rs" || is_test {
            continue;
        }
        let text = read(&path);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().filter(|l| !l.trim_start().starts_with("//")) {
            if let Some(what) = printing.iter().find(|p| line.contains(**p)) {
                wrong.push(format!("{folder} uses {what}: {}", line.trim()));
            }
        }
    }
    expect_none(wrong);
}

#[test]
fn the_readme_names_the_two_commands() {
    let readme = read(&root().join("README.md"));
    for command in ["./x demo", "./x test"] {
        assert!(readme.contains(command), "README.md does not name `{command}`");
    }
}

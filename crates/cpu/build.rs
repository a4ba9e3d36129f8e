//! Names the sources that decide what compiled code looks like, so that code saved by another version is not loaded.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

/// The crates that decide what is in a saved program, besides this one.
const CRATES: [&str; 14] = [
    "numerics",
    "ir",
    "formats",
    "analysis",
    "target",
    "cost",
    "value",
    "passes",
    "fusion",
    "plan",
    "loops",
    "llvm",
    "loader",
    "cpu-kernels",
];

fn main() {
    let own = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut hasher = DefaultHasher::new();
    // Another compiler may lay out and call things differently.
    std::env::var("RUSTC").ok().and_then(|rustc| version(&rustc)).hash(&mut hasher);
    let backend: &[&str] = match std::env::var("CARGO_PKG_NAME").as_deref() {
        Ok("hloom-cuda") => &["cuda-kernels", "cuda-codegen", "cuda"],
        _ => &["cpu"],
    };
    for name in CRATES.iter().chain(&["compiler", "runtime"]).chain(backend) {
        let folder = own.join("..").join(name).join("src");
        println!("cargo:rerun-if-changed={}", folder.display());
        hash_folder(&folder, &mut hasher);
    }
    // Whoever this is the build script of: a path that is not there would have it run, and all be built, every time.
    println!("cargo:rerun-if-changed={}", own.join("../cpu/build.rs").display());
    println!("cargo:rustc-env=HLOOM_SOURCES={:016x}", hasher.finish());
}

fn version(rustc: &str) -> Option<Vec<u8>> {
    std::process::Command::new(rustc).arg("--version").output().ok().map(|o| o.stdout)
}

/// Adds the files of a folder in the order of their names.
fn hash_folder(folder: &Path, hasher: &mut DefaultHasher) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            hash_folder(&path, hasher);
        } else {
            path.file_name().hash(hasher);
            fs::read(&path).unwrap_or_default().hash(hasher);
        }
    }
}

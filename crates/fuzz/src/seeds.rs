//! Inputs to start from: generated modules, the filetests, and a corpus beside the project where there is one.

use crate::choices::Choices;
use crate::generate::{Options, generate};
use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_formats::proto::{self, Container};
use hloom_ir::module::Module;
use std::path::{Path, PathBuf};

/// HLO texts: `generated` ones, and files of at most `max_bytes`. Larger ones make slow cases and find little more.
pub fn texts(generated: u64, max_bytes: u64) -> Vec<Vec<u8>> {
    let print = |module: &Module| hlo_text::print(module, &PrintOptions { elide_constants: false }).into_bytes();
    let mut texts: Vec<Vec<u8>> = modules(generated).iter().map(print).collect();
    texts.extend(files(max_bytes));
    texts
}

/// Protos of the same.
pub fn protos(generated: u64, max_bytes: u64) -> Vec<Vec<u8>> {
    let mut modules = modules(generated);
    modules.extend(files(max_bytes).iter().filter_map(|text| hlo_text::read(text).module));
    let container = |i| if i % 2 == 0 { Container::Module } else { Container::Proto };
    modules.iter().enumerate().filter_map(|(i, module)| proto::write(module, container(i)).ok()).collect()
}

fn modules(n: u64) -> Vec<Module> {
    let options = Options { max_instructions: 20, ..Options::default() };
    (0..n).map(|seed| generate(&mut Choices::from_seed(seed), &options)).collect()
}

/// The `.hlo` files of the filetests, and of the corpus if there is one.
fn files(max_bytes: u64) -> Vec<Vec<u8>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let filetests = crates.map(|c| c.join("filetests/tests"));
    let corpus = shared_folder().map(|s| s.join("corpus"));
    let mut paths = Vec::new();
    for root in [filetests, corpus].into_iter().flatten() {
        collect(&root, max_bytes, &mut paths);
    }
    paths.sort();
    paths.iter().filter_map(|p| std::fs::read(p).ok()).collect()
}

/// The folder of data beside the project: the one named by `HLOOM_SHARED`, or the nearest `shared` beside a parent.
pub fn shared_folder() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("HLOOM_SHARED") {
        return Some(PathBuf::from(named));
    }
    let beside = |folder: &Path| Some(folder.parent()?.join("shared")).filter(|s| s.is_dir());
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find_map(beside)
}

fn collect(folder: &Path, max_bytes: u64, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, max_bytes, paths);
        } else if path.extension().is_some_and(|e| e == "hlo") && entry.metadata().is_ok_and(|m| m.len() <= max_bytes) {
            paths.push(path);
        }
    }
}

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

/// StableHLO texts: a few small ones that use every kind of syntax, and those of the corpus if there is one.
pub fn stablehlo_texts(max_bytes: u64) -> Vec<Vec<u8>> {
    let mut texts: Vec<Vec<u8>> = STABLEHLO.iter().map(|t| t.as_bytes().to_vec()).collect();
    texts.extend(corpus_files("mlir", max_bytes));
    texts
}

/// MLIR bytecode of the corpus, if there is one; otherwise its first bytes.
pub fn stablehlo_bytecode(max_bytes: u64) -> Vec<Vec<u8>> {
    let mut files = corpus_files("bc", max_bytes);
    files.push(b"ML\xefR\x0dStableHLO_v1.0.0\0".to_vec());
    files
}

/// Programs with regions, locations, aliases and literals of all kinds.
const STABLEHLO: &[&str] = &[
    "#loc = loc(\"a.py\":1:2 to :9)\n!v = tensor<4xf32>\nmodule @m attributes {mhlo.num_replicas = 2 : i32} {\n\
     func.func public @main(%a: !v {tf.aliasing_output = 0 : i32}, %b: tensor<4xi1>) -> (!v {jax.result_info = \"r\"}) {\n\
     %c = stablehlo.constant dense<[1.0, 2.0, 0x7FC00000, -1.5e-3]> : tensor<4xf32>\n\
     %z = stablehlo.constant dense<0.0> : tensor<f32> loc(#loc)\n\
     %s = stablehlo.select %b, %a, %c : tensor<4xi1>, !v loc(\"n\"(callsite(#loc at \"b\")))\n\
     %r = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [0] : (!v, tensor<f32>) -> tensor<f32>\n\
     %w = stablehlo.broadcast_in_dim %r, dims = [] : (tensor<f32>) -> !v\n\
     %q = call @f(%w) : (!v) -> !v\n return %q : !v\n}\n\
     func.func private @f(%x: !v) -> !v {\n %0 = \"stablehlo.add\"(%x, %x) {k = [1, \"s\", @f]} : (!v, !v) -> !v\n return %0 : !v\n}\n}",
    "func.func @t() {\n %c = stablehlo.constant dense<\"0x01000000\"> : tensor<i32>\n\
     %0:2 = stablehlo.while(%i = %c, %j = %c) : tensor<i32>, tensor<i32>\n cond {\n\
     %p = stablehlo.compare LT, %i, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n stablehlo.return %p : tensor<i1>\n\
     } do {\n stablehlo.return %i, %j : tensor<i32>, tensor<i32>\n }\n\
     check.expect_eq_const %0#1, dense<1> : tensor<i32>\n func.return\n}",
];

/// The files of the corpus with that ending, if there is one.
fn corpus_files(ending: &str, max_bytes: u64) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    if let Some(corpus) = shared_folder().map(|s| s.join("corpus")) {
        for folder in ["stablehlo-samples", "stablehlo/interpret"] {
            collect(&corpus.join(folder), ending, max_bytes, &mut paths);
        }
    }
    paths.sort();
    paths.iter().filter_map(|p| std::fs::read(p).ok()).collect()
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
        collect(&root, "hlo", max_bytes, &mut paths);
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

fn collect(folder: &Path, ending: &str, max_bytes: u64, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, ending, max_bytes, paths);
        } else if path.extension().is_some_and(|e| e == ending) && entry.metadata().is_ok_and(|m| m.len() <= max_bytes)
        {
            paths.push(path);
        }
    }
}

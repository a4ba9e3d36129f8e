//! What the pipeline makes of two programs, against what a TPU compiler made of them: dumps that lie beside the checkout.
//!
//! Modules are compared as text after their names are replaced by numbers in the order of appearance. What code generation
//! notes (windows, cycles, used memory) is set aside there and compared on its own.
#![allow(clippy::print_stderr, reason = "tests talk to whoever runs them")]

use hloom_cost::dumped::{WindowConfig, estimated_cycles, window_config};
use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_plan::dump::dump_a;
use hloom_target::{Target, Topology};
use hloom_tpu::compile_to_schedule;
use std::collections::HashMap;
use std::path::PathBuf;

fn shared() -> PathBuf {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared"));
    std::env::var_os("HLOOM_SHARED").map_or_else(beside, PathBuf::from)
}

/// The text of the file whose name begins so, or a word that there is none.
fn text(folder: &str, prefix: &str) -> Option<String> {
    let found = std::fs::read_dir(shared().join(folder)).ok().into_iter().flatten().flatten();
    let path = found.map(|f| f.path()).find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix)));
    let Some(path) = path else {
        eprintln!("skipped: there is no {folder}/{prefix} in {}", shared().display());
        return None;
    };
    std::fs::read_to_string(path).ok()
}

fn module(text: &str) -> VerifiedModule {
    let module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
    verify(module, &VerifyOptions::default()).expect("it is valid")
}

fn compiled(source: &str) -> VerifiedModule {
    let target = Target::named("tpu-v6e").expect("it is described");
    let topology = Topology::parse("2x2").expect("it is a topology");
    compile_to_schedule(&module(source), &target, topology).unwrap_or_else(|d| panic!("{d:?}"))
}

/// Removes every `from … to` from the text.
fn without(text: &str, from: &str, to: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some(end) = rest.find(to) else { break };
        rest = &rest[end + to.len()..];
    }
    out + rest
}

/// The lines of the module, with names numbered and without what code generation notes.
fn lines(module: &VerifiedModule) -> Vec<String> {
    let mut text = hlo_text::print(module.module(), &PrintOptions { elide_constants: false });
    for (from, to) in [
        (",\"window_config\":{", "]}"),
        (",\"used_scoped_memory_configs\":[", "]"),
        (",\"retry_config\":{", "}"),
        (",\"convolution_algorithm_config\":{", "}"),
        (",\"collective_algorithm_config\":{", "\"}"),
    ] {
        text = without(&text, from, to);
    }
    let empty = ", backend_config={\"flag_configs\":[],\"scoped_memory_configs\":[]}";
    let text = text.replace(empty, "");
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut all = Vec::new();
    // The signature of a computation repeats its parameters.
    for line in text.lines().skip(1).map(|l| if l.ends_with('{') { l.split(" (").next().unwrap_or(l) } else { l }) {
        let mut out = String::new();
        let mut rest = line;
        while let Some(at) = rest.find('%') {
            let name_end = rest[at + 1..].find(|c: char| !c.is_alphanumeric() && !"._-".contains(c));
            let end = name_end.map_or(rest.len(), |e| at + 1 + e);
            let next = numbers.len();
            let number = numbers.entry(rest[at..end].to_owned()).or_insert(next);
            out.push_str(&rest[..at]);
            out.push_str(&format!("%{number}"));
            rest = &rest[end..];
        }
        all.push(out + rest);
    }
    all
}

fn assert_equal(got: &VerifiedModule, want: &VerifiedModule) {
    let (got, want) = (lines(got), lines(want));
    let differ: Vec<String> = got
        .iter()
        .zip(&want)
        .filter(|(g, w)| g != w)
        .map(|(g, w)| format!("got  {}\nwant {}", &g[..g.len().min(300)], &w[..w.len().min(300)]))
        .collect();
    assert!(
        differ.is_empty() && got.len() == want.len(),
        "{} lines for {}\n{}",
        got.len(),
        want.len(),
        differ.join("\n")
    );
}

/// The sizes and offsets of an assignment, without names and numbers of values.
fn places(dump: &str) -> Vec<String> {
    let first = dump.split("\nUsed values:").next().unwrap_or_default();
    let of_line = |l: &str| l.find("(size=").map_or_else(|| l.to_owned(), |at| l[at..].to_owned());
    let mut all: Vec<String> = first.lines().map(of_line).collect();
    all.sort();
    all
}

fn plan(module: &VerifiedModule) -> String {
    let target = Target::named("tpu-v6e").expect("it is described");
    let plan = hloom_plan::plan(module, &target).expect("it can be planned");
    dump_a(&plan, &target)
}

#[test]
fn a_tensor_parallel_mlp_becomes_the_module_of_its_dump() {
    let Some(source) = text("corpus/tpu/seed-sources", "000_tp_mlp.source") else { return };
    let (Some(want), Some(assignment)) = (text("seeds", "000"), text("seeds", "004")) else { return };
    let got = compiled(&source);
    assert_equal(&got, &module(&want));
    assert_eq!(places(&plan(&got)), places(&assignment));
}

/// What each of four devices computes of an MLP whose weights are spread over them.
const SHARDED_MLP: &str = "
HloModule sharded_mlp, entry_computation_layout={(f32[4096,3584]{1,0}, f32[3584,4096]{1,0}, f32[32,512,4096]{2,1,0}, f32[3584,4096]{1,0})->(f32[32,512,4096]{2,1,0})}, num_partitions=4

ENTRY main {
  x = f32[32,512,4096]{2,1,0} parameter(2), sharding={devices=[4,1,1]0,1,2,3}
  up.shard = f32[3584,4096]{1,0} parameter(3), sharding={devices=[4,1]0,1,2,3}
  up.whole = f32[14336,4096]{1,0} all-gather(up.shard), channel_id=2, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true
  up = f32[32,512,14336]{2,1,0} dot(x, up.whole), lhs_contracting_dims={2}, rhs_contracting_dims={1}
  gate.shard = f32[3584,4096]{1,0} parameter(1), sharding={devices=[4,1]0,1,2,3}
  gate.whole = f32[14336,4096]{1,0} all-gather(gate.shard), channel_id=4, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true
  gate = f32[32,512,14336]{2,1,0} dot(x, gate.whole), lhs_contracting_dims={2}, rhs_contracting_dims={1}
  product = f32[32,512,14336]{2,1,0} multiply(up, gate)
  logistic = f32[32,512,14336]{2,1,0} logistic(product)
  hidden = f32[32,512,14336]{2,1,0} multiply(product, logistic)
  down.shard = f32[4096,3584]{1,0} parameter(0), sharding={devices=[1,4]0,1,2,3}
  down.whole = f32[4096,14336]{1,0} all-gather(down.shard), channel_id=6, replica_groups={{0,1,2,3}}, dimensions={1}, use_global_device_ids=true
  down = f32[32,512,4096]{2,1,0} dot(hidden, down.whole), lhs_contracting_dims={2}, rhs_contracting_dims={1}
  ROOT result = (f32[32,512,4096]{2,1,0}) tuple(down)
}
";

#[test]
fn a_sharded_mlp_becomes_the_module_of_its_dump() {
    let (Some(want), Some(assignment)) = (text("seeds", "001"), text("seeds", "003")) else { return };
    let (got, want) = (compiled(SHARDED_MLP), module(&want));
    assert_equal(&got, &want);
    assert_eq!(places(&plan(&got)), places(&assignment));
    let noted = |m: &VerifiedModule| -> Vec<(u64, Option<WindowConfig>)> {
        let module = m.module();
        let entry = module.entry().expect("there is an entry");
        let steps = module[entry].instructions().iter().map(|&i| &module[i]);
        steps.filter_map(|i| Some((estimated_cycles(i)?, window_config(i)))).collect()
    };
    let (got, want) = (noted(&got), noted(&want));
    assert_eq!(got.len(), want.len());
    for ((got, windows), (want, same)) in got.into_iter().zip(want) {
        assert_eq!(windows, same);
        let ratio = got as f64 / want as f64;
        assert!((0.98..1.02).contains(&ratio), "{got} estimated cycles are {ratio:.3} times the dump's");
    }
}

//! Propagation over the programs of the partitioning corpus that JAX lowered, where it is at hand: the shardings of inputs
//! and outputs are those that XLA chose.
//!
//! `HLOOM_MISSES=1` prints every sharding that differs.

#![allow(clippy::print_stdout, reason = "tests say what they measured")]

use hloom_formats::hlo_text::{print_sharding, read_sharding};
use hloom_ir::module::Module;
use hloom_ir::sharding::{LeafSharding, Sharding, ShardingKind, same_devices};
use hloom_spmd::{PropagationOptions, propagate};
use hloom_stablehlo::{read_text, to_hlo};
use serde_json::Value;
use std::path::Path;

fn leaf_of(sharding: Option<&Sharding>, n: usize) -> LeafSharding {
    match sharding {
        Some(Sharding::Leaf(leaf)) => (**leaf).clone(),
        Some(Sharding::Tuple(all)) => all.get(n).cloned().unwrap_or(ShardingKind::Replicated.into()),
        None => ShardingKind::Replicated.into(),
    }
}

/// Whether a sharding is the one that is written.
fn is(found: &LeafSharding, wanted: &str) -> bool {
    let Ok(wanted) = read_sharding(wanted.as_bytes()) else { return false };
    same_devices(&found.kind, &leaf_of(Some(&wanted), 0).kind)
}

fn differing(module: &Module, case: &Value) -> Vec<String> {
    let entry = module.entry().expect("an entry");
    let mut wrong = Vec::new();
    let text = |leaf: &LeafSharding| {
        let kind = leaf.kind.without_names().unwrap_or(ShardingKind::Unknown);
        print_sharding(&Sharding::leaf(kind.canonical()))
    };
    for (n, (p, input)) in
        module.parameters(entry).into_iter().zip(case["inputs"].as_array().into_iter().flatten()).enumerate()
    {
        let found = leaf_of(module[p].common.sharding.as_deref(), 0);
        let wanted = input["hlo_sharding"].as_str().unwrap_or("{replicated}");
        if !is(&found, wanted) {
            wrong.push(format!("input {n}: {} instead of {wanted}", text(&found)));
        }
    }
    let root = module.root(entry).expect("a root");
    for (n, output) in case["outputs"].as_array().into_iter().flatten().enumerate() {
        let found = leaf_of(module[root].common.sharding.as_deref(), n);
        let wanted = output["hlo_sharding"].as_str().unwrap_or("{replicated}");
        if !is(&found, wanted) {
            wrong.push(format!("output {n}: {} instead of {wanted}", text(&found)));
        }
    }
    wrong
}

#[test]
fn inputs_and_outputs_have_the_shardings_that_xla_chose() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/partition");
    let Ok(index) = std::fs::read_to_string(folder.join("index.jsonl")) else {
        println!("skipped: there is no partitioning corpus");
        return;
    };
    let cases = index.lines().map(|l| serde_json::from_str::<Value>(l).expect("a line is JSON"));
    let (mut good, mut all) = (0, 0);
    for case in cases.filter(|c| c["kind"] == "jax") {
        let name = case["name"].as_str().unwrap_or("");
        let text = std::fs::read(folder.join(case["files"]["program"].as_str().expect("a program"))).expect("a file");
        all += 1;
        let started = std::time::Instant::now();
        let mut module = match read_text(&text).and_then(|m| to_hlo(&m)) {
            Ok(module) => module,
            Err(error) => {
                println!("{name}: {error}");
                continue;
            }
        };
        let translated = started.elapsed();
        let count = module.instruction_count();
        match propagate(&mut module, &PropagationOptions::default()) {
            Ok(_) => {}
            Err(errors) => {
                println!("{name}: {errors:?}");
                continue;
            }
        }
        let wrong = differing(&module, &case);
        good += usize::from(wrong.is_empty());
        if std::env::var_os("HLOOM_MISSES").is_some() {
            wrong.iter().for_each(|w| println!("{name}: {w}"));
            println!("{name}: {count} instructions, {:?} after {translated:?}", started.elapsed() - translated);
        }
    }
    println!("{good} of {all} programs");
    assert!(all > 50, "these cannot be all");
    assert!(good * 100 >= all * 97, "{good} of {all} programs");
}

//! Propagation of tiles over the HLO modules of the partitioning corpus, where it is at hand: what GSPMD's tests expect.
//!
//! `HLOOM_MISSES=1` prints every expectation that is not met.

#![allow(clippy::print_stdout, reason = "tests say what they measured")]

use hloom_formats::hlo_text::{self, print_sharding, read_sharding};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::sharding::{Sharding, ShardingKind, same_devices};
use hloom_spmd::PropagationOptions;
use hloom_spmd::gspmd::{annotations_to_copies, propagate_known};
use serde_json::Value;
use std::path::Path;

fn instruction(module: &Module, of: &str) -> Option<InstructionId> {
    let entry = module.entry()?;
    if of == "ROOT" {
        return module.root(entry);
    }
    if let Some(n) = of.strip_prefix("PARAM").and_then(|n| n.parse::<usize>().ok()) {
        return module.parameters(entry).get(n).copied();
    }
    if let Some((name, n)) = of.split_once(".operand") {
        let user = instruction(module, name)?;
        return module[user].operands().get(n.parse::<usize>().ok()?).copied();
    }
    module.instruction_by_name(of)
}

fn same(a: &Sharding, b: &Sharding) -> bool {
    let (x, y) = (a.leaves(), b.leaves());
    let kind = |k: &ShardingKind| if *k == ShardingKind::Unknown { ShardingKind::Replicated } else { k.clone() };
    match (a, b) {
        (Sharding::Leaf(l), Sharding::Tuple(all)) | (Sharding::Tuple(all), Sharding::Leaf(l)) => {
            all.iter().all(|other| same_devices(&kind(&l.kind), &kind(&other.kind)))
        }
        _ => x.len() == y.len() && x.iter().zip(y).all(|(a, b)| same_devices(&kind(&a.kind), &kind(&b.kind))),
    }
}

/// Whether an expectation about shardings is met; `None` if it is not about shardings.
fn met(module: &Module, i: Option<InstructionId>, is: &Value) -> Option<bool> {
    let own = i.and_then(|i| module[i].common.sharding.as_deref());
    if let Some(wanted) = is.get("sharding") {
        let Some(text) = wanted.as_str() else { return Some(own.is_none()) };
        let wanted = read_sharding(text.as_bytes()).ok()?;
        return Some(own.is_some_and(|own| same(own, &wanted)));
    }
    if let Some(other) = is.get("same_sharding_as").and_then(Value::as_str) {
        let other = instruction(module, other).and_then(|i| module[i].common.sharding.as_deref());
        return Some(match (own, other) {
            (Some(a), Some(b)) => same(a, b),
            (a, b) => a.is_none() && b.is_none(),
        });
    }
    let all = |key: &str| -> Vec<bool> {
        is.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(|y| met(module, i, y)).collect()
    };
    let (every, any, none) = (all("all_of"), all("any_of"), all("not"));
    if every.is_empty() && any.is_empty() && none.is_empty() {
        return None;
    }
    Some(every.iter().all(|&m| m) && (any.is_empty() || any.contains(&true)) && !none.contains(&true))
}

fn flags(value: &Value, both: bool) -> Vec<bool> {
    match value {
        Value::Array(all) => all.iter().map(|v| v.as_bool().unwrap_or(false)).collect(),
        Value::String(_) => vec![both],
        Value::Bool(b) => vec![*b],
        _ => vec![false],
    }
}

#[test]
fn shardings_are_those_that_gspmd_expects() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/partition");
    let Ok(index) = std::fs::read_to_string(folder.join("index.jsonl")) else {
        println!("skipped: there is no partitioning corpus");
        return;
    };
    let (mut good, mut all) = (0, 0);
    for line in index.lines() {
        let case: Value = serde_json::from_str(line).expect("a line is JSON");
        let Some(how) = case.get("propagation") else { continue };
        let name = case["name"].as_str().unwrap_or("");
        let text = std::fs::read(folder.join(case["files"]["program"].as_str().expect("a program"))).expect("a file");
        let Some(mut module) = hlo_text::read(&text).module else {
            println!("{name}: it cannot be read");
            continue;
        };
        let options = PropagationOptions {
            allow_propagation_to_output: flags(&how["allow_propagation_to_output"], true),
            allow_propagation_to_parameters: flags(&how["allow_propagation_to_parameters"], true),
            is_spmd: how["is_spmd"] == true,
            cse_prevention_only: how["cse_prevention_only"] == true,
        };
        // One name is given several answers there.
        if case["ambiguous"] == true {
            continue;
        }
        if let Err(errors) = propagate_known(&mut module, &options) {
            println!("{name}: {errors:?}");
        }
        if !options.cse_prevention_only {
            annotations_to_copies(&mut module);
        }
        for expected in case["expect"].as_array().into_iter().flatten() {
            // What a test gets at by code has no name here.
            let of = expected["of"].as_str().unwrap_or("?");
            let i = instruction(&module, of);
            if of == "?" {
                continue;
            }
            let Some(met) = met(&module, i, &expected["is"]) else { continue };
            all += 1;
            good += usize::from(met);
            if !met && std::env::var_os("HLOOM_MISSES").is_some() {
                let own = i.and_then(|i| module[i].common.sharding.as_deref()).map(print_sharding);
                println!("{name}: {expected}: {}", own.unwrap_or_else(|| "none".to_owned()));
            }
        }
    }
    println!("{good} of {all} expected shardings");
    assert!(all > 50, "these cannot be all");
    assert!(good * 100 >= all * 97, "{good} of {all} expected shardings");
}

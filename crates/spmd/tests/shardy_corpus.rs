//! Propagation over the cases of the partitioning corpus, where it is at hand: what Shardy's own tests expect.
//!
//! `HLOOM_MISSES=1` prints every expectation that is not met.

#![allow(clippy::print_stdout, reason = "tests say what they measured")]

use hloom_spmd::shardy;
use hloom_stablehlo::mlir::module_text::module_text;
use hloom_stablehlo::read_text;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn corpus() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/partition");
    path.join("index.jsonl").exists().then_some(path)
}

fn cases(folder: &Path, kind: &str) -> Vec<Value> {
    let index = std::fs::read_to_string(folder.join("index.jsonl")).expect("the index can be read");
    let all = index.lines().map(|l| serde_json::from_str::<Value>(l).expect("a line is JSON"));
    all.filter(|c| c["kind"] == kind).collect()
}

fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(plain)).collect()
}

/// Whether `parts` stand in `text`, in that order.
fn in_order(text: &str, parts: &[String]) -> bool {
    let mut rest = text;
    parts.iter().all(|part| match rest.find(part.as_str()) {
        Some(i) => {
            rest = &rest[i + part.len()..];
            true
        }
        None => false,
    })
}

/// The shardings that an expectation names, and whether a line of the result has them.
fn check(lines: &[String], at: &mut usize, expected: &Value) -> Option<bool> {
    if expected["absent"] == true {
        return None;
    }
    let op = expected["op"].as_str().unwrap_or("");
    let attrs = strings(&expected["attrs"]);
    if attrs.is_empty() || op.is_empty() {
        return None;
    }
    let named = match op {
        "func" => format!("@{}(", expected["name"].as_str().unwrap_or("")),
        _ => op.to_owned(),
    };
    let fits = |line: &String| {
        let is_op = match op {
            "func" => line.contains("func.func") && line.contains(&named),
            "call" => line.contains("call@") && !line.contains("custom_call"),
            _ => line.contains(&named),
        };
        is_op && in_order(line, &attrs)
    };
    let found = lines.iter().enumerate().skip(if op == "func" { 0 } else { *at }).find(|(_, l)| fits(l));
    if let Some((i, _)) = found {
        *at = i + 1;
    }
    Some(found.is_some())
}

#[test]
fn shardings_are_those_that_shardy_expects() {
    let Some(folder) = corpus() else {
        println!("skipped: there is no partitioning corpus");
        return;
    };
    let (mut good, mut all) = (0, 0);
    for case in cases(&folder, "shardy") {
        let passes = case["passes"].as_array().expect("passes are a list");
        let passes: Vec<&str> = passes.iter().filter_map(Value::as_str).collect();
        if !passes.iter().any(|p| p.contains("propagat")) {
            continue;
        }
        let name = case["name"].as_str().unwrap_or("");
        let path = folder.join(case["files"]["program"].as_str().expect("a program"));
        let text = std::fs::read(&path).expect("the program can be read");
        let mut result = String::new();
        match read_text(&text) {
            Ok(mut module) => {
                let passes = shardy::parse_passes(passes.iter().copied()).expect("the passes are known");
                match shardy::run(&mut module, &passes) {
                    Ok(()) => result = module_text(&module, false),
                    Err(errors) => println!("{name}: {errors:?}"),
                }
            }
            Err(error) => println!("{name}: {error}"),
        }
        let lines: Vec<String> = result.lines().map(plain).collect();
        let mut at = 0;
        let mut missed = false;
        for expected in case["expect"].as_array().into_iter().flatten() {
            let Some(met) = check(&lines, &mut at, expected) else { continue };
            all += 1;
            good += usize::from(met);
            if !met && std::env::var_os("HLOOM_MISSES").is_some() {
                println!("{name}: not met: {expected}");
                missed = true;
            }
        }
        if missed {
            println!("{result}");
        }
    }
    println!("{good} of {all} expected shardings");
    assert!(all > 100, "these cannot be all");
    assert!(good * 100 >= all * 97, "{good} of {all} expected shardings");
}

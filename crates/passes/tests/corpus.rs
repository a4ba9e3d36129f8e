//! The list of the CPU on real programs, where there are some: a folder `shared/corpus` beside the checkout, or in
//! `HLOOM_SHARED`. What is optimised computes the same as before, on inputs made up here.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use hloom_formats::hlo_text;
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare, evaluate, inputs};
use hloom_ir::module::Module;
use hloom_ir::verify::{VerifyOptions, verify};
use hloom_passes::{Context, PassList, optimize};
use hloom_target::Target;
use std::path::{Path, PathBuf};

/// Of the programs that can be run, one in so many is: all of them take minutes.
const ONE_IN: usize = 6;
/// Inputs are random bits, so floats of all sizes: sums in another order differ by much.
const TOLERANCE: f64 = 0.05;

fn programs() -> Vec<PathBuf> {
    let named = std::env::var_os("HLOOM_SHARED").map(PathBuf::from);
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|a| a.join("shared"));
    let found = named.into_iter().chain(ancestors).map(|s| s.join("corpus/exec")).find(|f| f.is_dir());
    let Some(folder) = found else {
        eprintln!("skipped: there is no corpus/exec in a folder `shared` beside the checkout, nor in HLOOM_SHARED");
        return Vec::new();
    };
    let entries = std::fs::read_dir(folder).expect("it can be listed");
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("it can be listed").path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "hlo"));
    files.sort();
    files
}

fn devices(module: &Module) -> usize {
    (module.config.replica_count.max(1) * module.config.num_partitions.max(1)) as usize
}

#[test]
fn real_programs_compute_the_same() {
    let target = Target::named("cpu").expect("the CPU is described");
    let list = PassList::for_target("cpu").expect("there is one");
    let mut wrong = Vec::new();
    let mut compared = 0;
    for path in programs().iter().step_by(ONE_IN) {
        let text = std::fs::read(path).expect("it can be read");
        let Some(module) = hlo_text::read(&text).module else { continue };
        let Ok(original) = verify(module, &VerifyOptions::default()) else { continue };
        let mut choices = Choices::from_seed(1);
        let Ok(arguments) = inputs(original.module(), devices(original.module()), &mut choices) else { continue };
        // What fails before may fail after: random numbers, unknown calls, inputs that a program refuses.
        let Ok(expected) = evaluate(&original, &arguments) else { continue };
        let outcome = match optimize(original, &list, &Context { target: &target }, None) {
            Err(failed) => Err(format!("{}: {:?}", failed.pass, failed.diagnostics)),
            Ok(optimized) => match evaluate(&optimized.module, &arguments) {
                Ok(values) => compare(&expected, &values, Agreement::Within(TOLERANCE)),
                Err(error) => Err(error.to_string()),
            },
        };
        compared += 1;
        if let Err(error) = outcome {
            wrong.push(format!("{}: {error}", path.display()));
        }
    }
    eprintln!("{compared} programs compared");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

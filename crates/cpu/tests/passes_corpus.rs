//! Passes on real programs with their own inputs, where there are some: a folder `shared/corpus` beside the checkout, or
//! in `HLOOM_SHARED`. Every pass alone, each pass of the CPU's list in its place, and what the list leaves to others
//! (schedules, copies): what the program computes stays the same, by the evaluator.
//!
//! One in so many programs is tried: all of them take minutes. `HLOOM_ONE_IN=1 cargo test --release -p hloom-passes
//! --test corpus` tries all.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use hloom::arrays;
use hloom_analysis::devices::DeviceGrid;
use hloom_compiler::{Backend, registry};
use hloom_cpu::CpuBackend;
use hloom_formats::hlo_text;
use hloom_fuzz::differential::{Agreement, compare, evaluate};
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_passes::{Context, Pass, PassList, PassStep, optimize};
use hloom_value::Value;
use std::path::{Path, PathBuf};

/// Of the programs that can be run, one in so many is.
fn one_in() -> usize {
    std::env::var("HLOOM_ONE_IN").ok().and_then(|n| n.parse().ok()).unwrap_or(12).max(1)
}

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
    files.into_iter().step_by(one_in()).collect()
}

/// A program, its inputs on each device, and what it computes.
struct Program {
    name: String,
    module: VerifiedModule,
    arguments: Vec<Vec<Value>>,
    expected: Vec<Value>,
}

/// The program in a file; none where the evaluator does not run it, which other tests are about.
fn program(path: &Path) -> Option<Program> {
    let text = std::fs::read(path).expect("it can be read");
    let module = verify(hlo_text::read(&text).module?, &VerifyOptions::default()).ok()?;
    let config = &module.module().config;
    let name = path.file_stem()?.to_string_lossy().into_owned();
    let devices: usize = name.rsplit_once(".d")?.1.parse().ok()?;
    let partitions = (config.num_partitions.max(1) as usize).min(devices);
    let grid = DeviceGrid { replicas: devices / partitions, partitions };
    let file = arrays::ArrayFile::open(&path.with_extension("in.npz").to_string_lossy())?;
    let arguments = arrays::from_npz(module.module(), grid, &file).ok()?;
    let expected = evaluate(&module, &arguments).ok()?;
    Some(Program { name, module, arguments, expected })
}

/// Runs `pass` alone on `module`, which computes what `program` does. The module after it, if it changed anything, or
/// what is wrong.
fn apply(program: &Program, module: &VerifiedModule, pass: &'static Pass) -> Result<Option<VerifiedModule>, String> {
    let backend = CpuBackend::new(1).expect("a backend");
    let list = PassList { steps: vec![PassStep::Once(pass)] };
    let optimized = optimize(module.clone(), &list, &Context { info: backend.info() }, None)
        .map_err(|failed| format!("{:?}", failed.diagnostics))?;
    if optimized.report.changes() == 0 {
        return Ok(None);
    }
    let values = evaluate(&optimized.module, &program.arguments).map_err(|e| e.to_string())?;
    compare(&program.expected, &values, Agreement::ByNorm)?;
    Ok(Some(optimized.module))
}

/// Passes that refuse what another has not been over before.
const NEEDS: [(&str, &str); 1] = [("copy-insertion", "flatten-call-graph")];

/// Fails with all that went wrong; says how much was tried.
fn conclude(wrong: &[String], programs: usize, changed: usize) {
    eprintln!("{programs} programs, {changed} runs of passes that changed one");
    assert!(wrong.is_empty(), "{} went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_pass_alone_keeps_what_real_programs_compute() {
    let (mut wrong, mut count, mut changed) = (Vec::new(), 0, 0);
    for program in programs().iter().filter_map(|path| program(path)) {
        count += 1;
        // Those that keep more digits change values on purpose.
        for pass in registry().all().iter().filter(|p| !p.name.starts_with("widen-")) {
            let needs = NEEDS.iter().find(|(name, _)| *name == pass.name).map(|(_, needs)| *needs);
            let ready = needs.and_then(|n| apply(&program, &program.module, registry().find(n).ok()?).ok()?);
            match apply(&program, ready.as_ref().unwrap_or(&program.module), pass) {
                Ok(after) => changed += usize::from(after.is_some()),
                Err(why) => wrong.push(format!("{} on {}: {why}", pass.name, program.name)),
            }
        }
    }
    conclude(&wrong, count, changed);
}

#[test]
fn the_passes_of_the_cpu_in_their_places_keep_what_real_programs_compute() {
    let list = registry().pipeline(CpuBackend::new(1).expect("a backend").pipeline()).expect("there is one");
    // Passes that want what the list makes come after it.
    let own = |name: &&str| registry().find(name).expect("it is there");
    let after: Vec<&Pass> = ["start-collectives", "schedule", "copy-insertion"].iter().map(own).collect();
    let after = after.into_iter().map(PassStep::Once);
    let steps: Vec<PassStep> = list.steps.into_iter().chain(after).collect();
    let (mut wrong, mut count, mut changed) = (Vec::new(), 0, 0);
    'programs: for program in programs().iter().filter_map(|path| program(path)) {
        count += 1;
        let mut module = program.module.clone();
        for step in &steps {
            let (bound, passes) = match step {
                PassStep::Once(pass) => (1, std::slice::from_ref(pass)),
                PassStep::Fixpoint { bound, passes } => (*bound, passes.as_slice()),
            };
            for _ in 0..bound {
                let before = changed;
                for pass in passes {
                    match apply(&program, &module, pass) {
                        Ok(None) => {}
                        Ok(Some(after)) => (module, changed) = (after, changed + 1),
                        Err(why) => {
                            wrong.push(format!("{} on {}, in its place: {why}", pass.name, program.name));
                            continue 'programs;
                        }
                    }
                }
                if changed == before {
                    break;
                }
            }
        }
    }
    conclude(&wrong, count, changed);
}

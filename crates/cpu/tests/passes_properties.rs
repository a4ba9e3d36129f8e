//! Every pass alone, and every target's list, on generated programs: the result is valid and computes the same.

use hloom_compiler::{Backend, registry};
use hloom_cpu::CpuBackend;
use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare, evaluate, inputs};
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::diagnostic::codes::eval::{PADDING, UNSUPPORTED};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_passes::{Context, PassList, PassStep, optimize};

/// As many modules of each kind; `HLOOM_CASES` asks for more.
fn cases() -> u64 {
    std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40)
}

fn print(module: &Module) -> String {
    hlo_text::print(module, &PrintOptions { elide_constants: false })
}

/// Floats of eight bits and less have steps of this size; sums in another order may land on the next one.
const TOLERANCE: f64 = 0.02;

/// Whether there is a batch normalisation: of generated numbers its squares do not fit into f32, and the evaluator's
/// f64 gives something else. Files test these with numbers that do.
fn has_batch_norm(module: &Module) -> bool {
    let mut all = module.computations().iter().flat_map(|&c| module[c].instructions());
    all.any(|&i| {
        matches!(module[i].op, Op::BatchNormTraining { .. } | Op::BatchNormInference { .. } | Op::BatchNormGrad { .. })
    })
}

/// Runs `list` over generated programs and compares what they compute before and after.
fn keeps_meaning(name: &str, list: &PassList, options: &Options) -> usize {
    let backend = CpuBackend::new(1).expect("a backend");
    let devices = (options.replicas * options.partitions) as usize;
    let mut changes = 0;
    for seed in 0..cases() {
        let mut choices = Choices::from_seed(seed);
        let module = generate(&mut choices, options);
        if has_batch_norm(&module) {
            continue;
        }
        let verified = |m: Module| -> VerifiedModule {
            verify(m, &VerifyOptions::default()).unwrap_or_else(|e| panic!("{:?}", e.diagnostics))
        };
        let arguments = inputs(&module, devices, &mut choices).expect("arguments can be made");
        let before = print(&module);
        let original = verified(module.clone());
        let expected = match evaluate(&original, &arguments) {
            Ok(values) => values,
            Err(_) => continue,
        };
        let optimized = optimize(original, list, &Context { info: backend.info() }, None).unwrap_or_else(|failed| {
            let found: Vec<String> = failed.diagnostics.iter().map(ToString::to_string).collect();
            panic!("{name}, seed {seed}: {found:#?}\n{before}\nbecame\n{}", print(&failed.module))
        });
        changes += optimized.report.changes();
        let after = print(optimized.module.module());
        let outcome = match evaluate(&optimized.module, &arguments) {
            Ok(values) => compare(&expected, &values, Agreement::Within(TOLERANCE)),
            Err(error) => Err(format!("only the optimised program fails: {error}")),
        };
        if let Err(error) = outcome {
            panic!("{name}, seed {seed}: {error}\n{before}\nbecame\n{after}");
        }
    }
    changes
}

/// Kinds of programs: for one device and for several, with odd layouts and without.
fn kinds() -> [Options; 3] {
    let plain = Options::runnable();
    [plain.clone(), Options { replicas: 4, ..plain.clone() }, Options { layouts: true, annotations: true, ..plain }]
}

#[test]
fn every_pass_alone_keeps_what_programs_compute() {
    // Those that keep more digits change values on purpose.
    for pass in registry().all().iter().filter(|p| !p.name.starts_with("widen-")) {
        let list = registry().list([pass.name]).expect("it is there");
        for options in kinds() {
            keeps_meaning(pass.name, &list, &options);
        }
    }
}

#[test]
fn the_list_of_the_cpu_keeps_what_programs_compute() {
    let backend = CpuBackend::new(1).expect("a backend");
    let exact = backend.pipeline().iter().filter(|s| !s.names().contains(&"widen-converted")).copied();
    let list = registry().pipeline(&exact.collect::<Vec<_>>()).expect("there is one");
    for options in kinds() {
        assert!(keeps_meaning("the list", &list, &options) > 0, "nothing was ever changed");
    }
}

/// A group of passes that give each other work comes to rest: after some rounds nothing is left to do, for any of them.
#[test]
fn the_groups_of_the_cpu_come_to_rest() {
    let list = registry().pipeline(CpuBackend::new(1).expect("a backend").pipeline()).expect("there is one");
    let backend = CpuBackend::new(1).expect("a backend");
    for seed in 0..cases() {
        for options in kinds() {
            let module = generate(&mut Choices::from_seed(seed), &options);
            let before = print(&module);
            let Ok(mut module) = verify(module, &VerifyOptions::default()) else {
                panic!("generated modules are valid")
            };
            for step in &list.steps {
                let passes = match step {
                    PassStep::Once(pass) => vec![*pass],
                    PassStep::Fixpoint { passes, .. } => passes.clone(),
                };
                let bound = if matches!(step, PassStep::Once(_)) { 1 } else { MANY_ROUNDS };
                let many = PassList { steps: vec![PassStep::Fixpoint { bound, passes }] };
                let optimized = optimize(module, &many, &Context { info: backend.info() }, None)
                    .unwrap_or_else(|f| panic!("seed {seed}: {} {:?}", f.pass, f.diagnostics));
                let all = &optimized.report.passes;
                assert!(all.iter().all(|p| p.runs < MANY_ROUNDS), "seed {seed}: {all:#?}\n{before}");
                module = optimized.module;
            }
        }
    }
}

/// Far more rounds than a group may have in a list.
const MANY_ROUNDS: usize = 40;

/// What comes out is a module like any other: it can be printed and read, whatever was in the program.
#[test]
fn the_list_of_the_cpu_prints_and_reads_back() {
    let list = registry().pipeline(CpuBackend::new(1).expect("a backend").pipeline()).expect("there is one");
    let backend = CpuBackend::new(1).expect("a backend");
    for seed in 0..cases() {
        let module = generate(&mut Choices::from_seed(seed), &Options { replicas: 4, ..Options::default() });
        let Ok(verified) = verify(module, &VerifyOptions::default()) else { panic!("generated modules are valid") };
        let optimized = match optimize(verified, &list, &Context { info: backend.info() }, None) {
            Ok(optimized) => optimized,
            // What depends on padding has no defined result; of some readings of memory nothing is known. Both are refused.
            Err(failed) if failed.diagnostics.iter().any(|d| d.code == &PADDING || d.code == &UNSUPPORTED) => continue,
            Err(f) => panic!("seed {seed}: {} {:?}", f.pass, f.diagnostics),
        };
        let text = print(optimized.module.module());
        let read = hlo_text::read(text.as_bytes());
        assert!(read.module.is_some(), "seed {seed}: {:?}\n{text}", read.diagnostics);
    }
}

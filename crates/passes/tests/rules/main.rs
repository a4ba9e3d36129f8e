//! Rules for single instructions, on programs made to be simplified: expressions full of zeros, ones, infinities and the
//! like, and arrays that are cut, padded, turned and put together again. What is simplified computes the same, bit by bit.

mod expressions;
mod moves;

use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare, evaluate, inputs};
use hloom_ir::entity::InstructionId;
use hloom_ir::infer::ShapeError;
use hloom_ir::module::Module;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_passes::rewrite::{Rule, rewrite};
use hloom_passes::{Context, optimize};
use hloom_target::Target;
use std::sync::LazyLock;

type Added = Result<InstructionId, ShapeError>;

/// As many programs of each kind; `HLOOM_CASES` asks for more.
fn cases() -> u64 {
    std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(600)
}

fn context() -> Context<'static> {
    static CPU: LazyLock<Target> = LazyLock::new(|| Target::named("cpu").expect("the CPU is described"));
    Context { info: &*CPU }
}

/// Simplifies `module` and compares what it computes before and after; returns the number of changes.
fn check(
    name: &str,
    module: Module,
    choices: &mut Choices<'_>,
    agreement: Agreement,
    simplify: impl FnOnce(VerifiedModule) -> Result<(VerifiedModule, usize), String>,
) -> usize {
    let print = |m: &Module| hlo_text::print(m, &PrintOptions { elide_constants: false });
    let arguments = inputs(&module, 1, choices).expect("arguments can be made");
    let original = verify(module, &VerifyOptions::default())
        .unwrap_or_else(|e| panic!("{name}: {:?}\n{}", e.diagnostics, print(&e.module)));
    let (simplified, changes) = match simplify(original.clone()) {
        Ok((_, 0)) => return 0,
        Ok(simplified) => simplified,
        Err(error) => panic!("{name}: {error}\n{}", print(original.module())),
    };
    // Operations that a type does not have are refused before and after.
    let Ok(expected) = evaluate(&original, &arguments) else { return 0 };
    let outcome = match evaluate(&simplified, &arguments) {
        Ok(values) => compare(&expected, &values, agreement),
        Err(error) => Err(format!("only the simplified program fails: {error}")),
    };
    if let Err(error) = outcome {
        panic!("{name}: {error}\n{}\nbecame\n{}", print(original.module()), print(simplified.module()));
    }
    changes
}
/// The program of a seed, and how near its results must be.
type Generator = fn(u64, &mut Choices<'_>) -> (Module, Agreement);
/// All rules together keep what the programs compute.
fn together(generator: Generator, programs: u64) {
    let list = hloom_passes::Registry::own()
        .list(["simplify", "fold-constants", "simplify", "cse", "simplify"])
        .expect("they are there");
    let mut changes = 0;
    for seed in 0..programs {
        let mut choices = Choices::from_seed(seed);
        let (module, agreement) = generator(seed, &mut choices);
        let simplify = |module| {
            let optimized = optimize(module, &list, &context(), None);
            let optimized = optimized.map_err(|f| format!("{}: {:?}", f.pass, f.diagnostics))?;
            let changes = optimized.report.changes();
            Ok((optimized.module, changes))
        };
        changes += check(&format!("seed {seed}"), module, &mut choices, agreement, simplify);
    }
    assert!(changes as u64 > programs, "rules apply: {changes}");
}

/// Each rule alone keeps what the programs compute, and each is met.
fn alone(generator: Generator, programs: u64, families: &[&'static [Rule]], never_met: &[&str]) {
    let rules: Vec<&Rule> = families.iter().copied().flatten().collect();
    let mut met = vec![0; rules.len()];
    for seed in 0..programs {
        for (rule, met) in rules.iter().zip(&mut met) {
            let mut choices = Choices::from_seed(seed);
            let (module, agreement) = generator(seed, &mut choices);
            let simplify = |module: VerifiedModule| {
                let mut module = module.into_module();
                let changes = rewrite(&mut module, &[std::slice::from_ref(*rule)]);
                let module = verify(module, &VerifyOptions::default());
                module.map(|m| (m, changes)).map_err(|e| format!("{:?}", e.diagnostics))
            };
            let name = format!("{}, seed {seed}", rule.name);
            *met += check(&name, module, &mut choices, agreement, simplify);
        }
    }
    let unmet: Vec<&str> = rules.iter().zip(&met).filter(|(_, n)| **n == 0).map(|(r, _)| r.name).collect();
    assert_eq!(unmet, never_met, "rules that no program met");
}

//! Faults planted in engines and passes: the pass is found, and a small program that shows the fault.
//!
//! A faulty engine is the evaluator on a program in which certain instructions were replaced by wrong ones; a faulty pass
//! replaces them for good.

use super::{Case, Oracle, Progress, Settings, reduce};
use crate::bisect::first_wrong;
use crate::values::disagreement;
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{evaluate, inputs};
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::Operands;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};
use hloom_ir::verify::VerifiedModule;
use hloom_passes::{Context, Registry, optimize};
use hloom_target::Target;
use hloom_value::Value;
use std::sync::atomic::AtomicBool;

/// What a fault does to an instruction of the right kind; `None` leaves it as it is.
type Wrong = fn(&mut Module, InstructionId) -> Option<()>;

/// When it does.
type When = fn(&Module, InstructionId) -> bool;

const WRONGS: &[(&str, Wrong)] = &[
    ("adds instead of subtracting", |m, i| binary(m, i, BinaryOp::Subtract, BinaryOp::Add)),
    ("subtracts instead of adding", |m, i| binary(m, i, BinaryOp::Add, BinaryOp::Subtract)),
    ("adds instead of multiplying", |m, i| binary(m, i, BinaryOp::Multiply, BinaryOp::Add)),
    ("gives the lesser for the greater", |m, i| binary(m, i, BinaryOp::Maximum, BinaryOp::Minimum)),
    ("gives the greater for the lesser", |m, i| binary(m, i, BinaryOp::Minimum, BinaryOp::Maximum)),
    ("exchanges the operands of a subtraction", |m, i| {
        swap(m, i, |op| matches!(op, Op::Binary(BinaryOp::Subtract)), 0)
    }),
    ("exchanges what select chooses from", |m, i| swap(m, i, |op| matches!(op, Op::Select), 1)),
    ("loses the sign", |m, i| unary(m, i, UnaryOp::Negate, UnaryOp::Abs)),
    ("forgets a negation", |m, i| forget(m, i, |op| matches!(op, Op::Unary { op: UnaryOp::Negate, .. }))),
    ("forgets to reverse", |m, i| forget(m, i, |op| matches!(op, Op::Reverse { .. }))),
    ("takes the wrong end of a comparison", |m, i| match &mut m.instruction_mut(i).op {
        Op::Compare { direction, .. } => {
            *direction = match direction {
                ComparisonDirection::Lt => ComparisonDirection::Gt,
                ComparisonDirection::Eq => ComparisonDirection::Ne,
                _ => ComparisonDirection::Eq,
            };
            Some(())
        }
        _ => None,
    }),
    ("counts along the wrong dimension", |m, i| {
        let rank = m[i].shape.as_array()?.rank() as i64;
        match &mut m.instruction_mut(i).op {
            Op::Iota { dimension } if rank > 1 => *dimension = (*dimension + 1) % rank,
            _ => return None,
        }
        Some(())
    }),
];

const WHENS: &[(&str, When)] = &[
    ("always", |_, _| true),
    ("for matrices", |m, i| m[i].shape.as_array().is_some_and(|a| a.rank() >= 2)),
    ("for f32", |m, i| m[i].shape.element_type() == Some(ElementType::F32)),
    ("with a result that is read twice", |m, i| m[i].users().len() >= 2),
    ("after arithmetic", |m, i| m[i].operands().iter().any(|&o| matches!(m[o].op, Op::Binary(_) | Op::Unary { .. }))),
    ("before arithmetic", |m, i| m[i].users().iter().any(|&u| matches!(m[u].op, Op::Binary(_) | Op::Unary { .. }))),
];

fn binary(module: &mut Module, i: InstructionId, from: BinaryOp, to: BinaryOp) -> Option<()> {
    let is_number = module[i].shape.element_type()? != ElementType::Pred;
    (is_number && module[i].op == Op::Binary(from)).then(|| module.instruction_mut(i).op = Op::Binary(to))
}

fn unary(module: &mut Module, i: InstructionId, from: UnaryOp, to: UnaryOp) -> Option<()> {
    (module[i].op == Op::unary(from)).then(|| module.instruction_mut(i).op = Op::unary(to))
}

fn swap(module: &mut Module, i: InstructionId, is: fn(&Op) -> bool, at: usize) -> Option<()> {
    let mut operands = Operands::from_slice(module[i].operands());
    if !is(&module[i].op) {
        return None;
    }
    operands.swap(at, at + 1);
    module.set_operands(i, operands).ok()
}

fn forget(module: &mut Module, i: InstructionId, is: fn(&Op) -> bool) -> Option<()> {
    let operand = *module[i].operands().first()?;
    if !is(&module[i].op) {
        return None;
    }
    module.replace_all_uses(i, operand).ok()
}

/// A planted fault.
#[derive(Clone, Copy)]
struct Fault {
    wrong: Wrong,
    when: When,
}

impl Fault {
    /// Fault number `n`, in words too.
    fn number(n: usize) -> (Fault, String) {
        let (what, wrong) = WRONGS[n % WRONGS.len()];
        let (condition, when) = WHENS[n / WRONGS.len() % WHENS.len()];
        (Fault { wrong, when }, format!("{what} {condition}"))
    }

    /// The module as the faulty engine takes it.
    fn apply(&self, module: &Module) -> Module {
        let mut changed = module.clone();
        for &c in module.computations() {
            for &i in module[c].instructions() {
                if (self.when)(module, i) {
                    let _applies = (self.wrong)(&mut changed, i);
                }
            }
        }
        changed
    }
}

/// The evaluator against the evaluator with a fault.
struct Engines(Fault);

fn run(case: &Case, module: &Module) -> Option<Vec<Value>> {
    let verified: VerifiedModule = Case { module: module.clone(), inputs: Vec::new() }.verified()?;
    evaluate(&verified, &case.inputs).ok()
}

impl Oracle for Engines {
    fn is_interesting(&self, case: &Case) -> bool {
        match (run(case, &case.module), run(case, &self.0.apply(&case.module))) {
            (Some(right), Some(wrong)) => disagreement(&wrong, &right, 0.0).is_some(),
            _ => false,
        }
    }

    fn reference(&self, case: &Case) -> Option<Vec<Value>> {
        run(case, &case.module)
    }
}

fn program(seed: u64) -> Option<Case> {
    let mut choices = Choices::from_seed(seed).with_ordinary_numbers();
    let options = Options {
        max_instructions: 40 + choices.below(60),
        max_elements: 64,
        element_types: vec![ElementType::F32, ElementType::S32, ElementType::Pred],
        ..Options::runnable()
    };
    let module = generate(&mut choices, &options);
    let inputs = inputs(&module, 1, &mut choices).ok()?;
    Some(Case { module, inputs })
}

/// A generated program that shows the fault, among those from `seed` on.
fn showing(fault: Fault, seed: u64) -> Option<Case> {
    (seed..seed + 40).filter_map(program).find(|case| Engines(fault).is_interesting(case))
}

fn small(case: Case, oracle: &dyn Oracle) -> Case {
    let stop = AtomicBool::new(false);
    let mut steps = Vec::new();
    let mut on_better = |case: &Case, _: Progress| steps.push(case.size());
    let mut settings = Settings { workers: 2, stop: &stop, on_better: &mut on_better };
    let (found, progress) = reduce(case, oracle, &mut settings);
    assert!(steps.is_sorted_by(|a, b| a > b), "each is smaller than the one before: {steps:?}");
    assert_eq!(progress.better, steps.len());
    found
}

fn count() -> usize {
    let asked = std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok());
    asked.unwrap_or(12)
}

fn median(mut counts: Vec<usize>) -> usize {
    counts.sort_unstable();
    counts[counts.len() / 2]
}

#[test]
fn faults_in_engines_are_shown_by_a_few_instructions() {
    let mut counts = Vec::new();
    for n in 0..count() {
        let (fault, words) = Fault::number(n);
        let Some(case) = showing(fault, 1000 * n as u64) else { continue };
        let before = case.module.instruction_count();
        let found = small(case, &Engines(fault));
        assert!(Engines(fault).is_interesting(&found), "{words}");
        let after = found.module.instruction_count();
        assert!(after <= before, "{words}: {before} → {after}");
        counts.push(after);
    }
    assert!(counts.len() * 2 > count(), "few faults were shown by any program: {}", counts.len());
    assert!(median(counts.clone()) <= 5, "{counts:?}");
}

/// A module after the first `count` of some passes, of which the one at `faulty` is the fault.
fn after(case: &Case, passes: &[&str], faulty: usize, fault: Fault, count: usize) -> Option<Module> {
    let target = Target::named("cpu").ok()?;
    let mut module = case.module.clone();
    for (n, pass) in passes.iter().enumerate().take(count) {
        if n == faulty {
            module = fault.apply(&module);
            continue;
        }
        let list = Registry::own().list([*pass]).ok()?;
        let verified = Case { module, inputs: Vec::new() }.verified()?;
        module = optimize(verified, &list, &Context { info: &target }, None).ok()?.module.into_module();
    }
    Some(module)
}

#[test]
fn the_pass_at_fault_is_found_and_its_fault_shown() {
    const PASSES: [&str; 8] = ["dce", "faulty", "cse", "simplify-logic", "fold-constants", "sink-shapes", "cse", "dce"];
    let mut counts = Vec::new();
    for n in 0..count() {
        let (fault, words) = Fault::number(n);
        let faulty = n % PASSES.len();
        let mut passes = PASSES;
        passes.swap(1, faulty);
        let wrong_after = |case: &Case, count: usize| {
            let module = after(case, &passes, faulty, fault, count)?;
            let right = run(case, &case.module)?;
            Some(disagreement(&run(case, &module)?, &right, 0.0).is_some())
        };
        let mut programs = (7000 * n as u64..7000 * n as u64 + 40).filter_map(program);
        let Some(case) = programs.find(|case| wrong_after(case, passes.len()) == Some(true)) else { continue };
        let found = first_wrong(passes.len(), |step| wrong_after(&case, step + 1) == Some(true));
        assert_eq!(found, Some(faulty), "{words}");
        let Some(before) = after(&case, &passes, faulty, fault, faulty) else { panic!("{words}: it was made before") };
        let start = Case { module: before, inputs: case.inputs.clone() };
        counts.push(small(start, &Engines(fault)).module.instruction_count());
    }
    assert!(counts.len() * 2 > count(), "few faults were shown by any program: {}", counts.len());
    assert!(median(counts.clone()) <= 5, "{counts:?}");
}

#[test]
fn several_devices_become_one_and_shapes_small() {
    let text = "HloModule m, replica_count=4\nENTRY e {\n x = f32[64,32] parameter(0)\n y = f32[64,32] parameter(1)\n \
                s = f32[64,32] subtract(x, y)\n t = f32[64,32] tanh(s)\n u = f32[64,32] multiply(t, x)\n \
                ROOT r = (f32[64,32], f32[64,32]) tuple(u, t)\n}";
    let module = hloom_formats::hlo_text::read(text.as_bytes()).module.expect("it is a module");
    let mut choices = Choices::from_seed(5).with_ordinary_numbers();
    let inputs = inputs(&module, 4, &mut choices).expect("they fit in memory");
    let (fault, _) = Fault::number(0);
    let found = small(Case { module, inputs }, &Engines(fault));
    assert_eq!(found.inputs.len(), 1, "{}", found.text());
    let size = found.size();
    assert!(size.instructions <= 3 && size.elements <= 3, "{size:?}\n{}", found.text());
}

#[test]
fn a_search_can_be_stopped() {
    let (fault, _) = Fault::number(0);
    let case = (0..).find_map(|n| showing(fault, n * 100)).expect("some program subtracts");
    let stop = AtomicBool::new(true);
    let mut settings = Settings { workers: 1, stop: &stop, on_better: &mut |_, _| {} };
    let before = case.size();
    let (found, progress) = reduce(case, &Engines(fault), &mut settings);
    assert_eq!((found.size(), progress.tried), (before, 0));
}

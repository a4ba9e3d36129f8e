//! Places that were kept with a module fit it when it is read again.

mod common;

use hloom_formats::proto::{self, Container};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_plan::check::{Assignment, check};
use hloom_plan::copies::insert_copies;
use hloom_plan::flatten::flatten_call_graph;
use hloom_plan::saved::SavedPlan;
use hloom_plan::schedule::{Scheduler, schedule};
use hloom_plan::{Packer, Plan, plan_inside_results};
use hloom_target::Target;

/// Where each value lies, by the names of instructions.
fn places(plan: &Plan<'_>) -> Vec<(String, Vec<i64>, usize, i64, i64)> {
    let mut all = Vec::new();
    for (n, allocation) in plan.allocations.iter().enumerate() {
        for place in &allocation.places {
            let value = plan.dataflow.value(place.value).expect("it is one");
            let name = plan.dataflow.module()[plan.dataflow.instruction(value)].name().to_owned();
            let index = plan.dataflow.positions.index(value.position).to_vec();
            all.push((name, index, n, place.offset, place.size));
        }
    }
    all.sort();
    all
}

fn read_again(module: &VerifiedModule) -> Option<VerifiedModule> {
    let bytes = proto::write(module.module(), Container::Module).ok()?;
    verify(proto::read(&bytes).ok()?, &VerifyOptions { devices: None }).ok()
}

#[test]
fn places_are_found_again_after_a_module_was_written_and_read() {
    let target = Target::named("cpu").expect("it is described");
    let mut saved_plans = 0;
    for seed in 0..150 {
        let mut module =
            generate(&mut Choices::from_seed(seed), &Options { max_instructions: 120, ..Options::runnable() });
        let prepared = flatten_call_graph(&mut module).is_ok()
            && insert_copies(&mut module, &target).is_ok()
            && schedule(&mut module, Scheduler::Memory, &target).is_ok();
        let Some(module) = prepared.then(|| verify(module, &VerifyOptions { devices: None }).ok()).flatten() else {
            continue;
        };
        let Ok(plan) = plan_inside_results(&module, &target, Packer::Apart) else { continue };
        let (Some(saved), Some(again)) = (SavedPlan::new(&plan), read_again(&module)) else { continue };
        let restored = saved.restore(&again, &target).expect("it is of this module");
        assert_eq!(places(&plan), places(&restored), "seed {seed}");
        assert_eq!(check(&again, &target, &Assignment::from(&restored)), [], "seed {seed}");
        saved_plans += 1;
    }
    assert!(saved_plans > 100, "{saved_plans} plans");
}

#[test]
fn places_of_another_module_are_refused() {
    let target = Target::named("cpu").expect("it is described");
    let text = |n: usize| {
        let lines: String = (1..n).map(|i| format!("  v{i} = f32[8]{{0}} negate(v{})\n", i - 1)).collect();
        format!(
            "HloModule m, is_scheduled=true\n\nENTRY e {{\n  v0 = f32[8]{{0}} parameter(0)\n{lines}  \
             ROOT r = f32[8]{{0}} negate(v{})\n}}\n",
            n - 1
        )
    };
    let (long, short) = (common::parse(&text(9)), common::parse(&text(2)));
    let plan = plan_inside_results(&long, &target, Packer::Reference).expect("it has one");
    let saved = SavedPlan::new(&plan).expect("every value has a position");
    assert!(saved.restore(&long, &target).is_ok());
    let refused = saved.restore(&short, &target).expect_err("it is another");
    assert!(refused[0].message.contains("another module"), "{:?}", refused[0].message);
}

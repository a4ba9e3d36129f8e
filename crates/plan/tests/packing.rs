//! Packing temporaries: how much they take, and how little they could.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod common;

use common::parse;
use hloom_fuzz::choices::Choices;
use hloom_fuzz::generate::{Options, generate};
use hloom_fuzz::seeds::shared_folder;
use hloom_ir::module::Module;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_plan::check::{Assignment, check};
use hloom_plan::copies::insert_copies;
use hloom_plan::flatten::flatten_call_graph;
use hloom_plan::schedule::{Scheduler, schedule};
use hloom_plan::{Packer, Plan, plan, plan_inside_results, plan_with};
use hloom_target::Target;

#[test]
fn the_lower_bound_is_what_is_live_at_once_each_but_one_filled_up_to_the_alignment() {
    // At `c` three values are live: 40, 4 and 12 bytes; `b` needs most filling, so it lies last: 64 + 64 + 4.
    let module = parse(
        "HloModule m, is_scheduled=true\n\nENTRY e {
  p = f32[10]{0} parameter(0)
  q = f32[1]{0} parameter(1)
  s = f32[3]{0} parameter(2)
  a = f32[10]{0} reverse(p), dimensions={0}
  b = f32[1]{0} reverse(q), dimensions={0}
  c = f32[3]{0} reverse(s), dimensions={0}
  ROOT r = f32[14]{0} concatenate(a, b, c), dimensions={0}
}\n",
    );
    let plan = plan(&module, &Target::named("cpu").unwrap()).unwrap();
    assert_eq!(plan.lower_bound(0), 64 + 64 + 4);
    let heap = plan.heaps.first().unwrap();
    assert_eq!(plan.schedule.sequence.get(heap.time as usize), module.module().instruction_by_name("c").as_ref());
    assert!(plan.heap_bytes(0) >= plan.lower_bound(0));
}

#[test]
fn small_values_that_are_kept_apart_do_not_take_each_others_place() {
    let chain = |name: &str| {
        let steps = (0..4).map(|n| {
            let last = if n == 0 { "p".to_owned() } else { format!("{name}{}", n - 1) };
            format!("  {name}{n} = f32[64]{{0}} reverse({last}), dimensions={{0}}\n")
        });
        steps.collect::<String>()
    };
    let text = format!(
        "HloModule m, is_scheduled=true\n\nENTRY e {{\n  p = f32[64]{{0}} parameter(0)\n{}{}  \
         ROOT r = f32[64]{{0}} add(a3, b3)\n}}\n",
        chain("a"),
        chain("b")
    );
    let (module, target) = (parse(&text), Target::named("cpu").unwrap());
    let places = |packer: Packer| {
        let plan = plan_with(&module, &target, packer).unwrap();
        let places = plan.allocations.iter().filter(|a| a.is_temporary()).flat_map(|a| a.places.iter());
        places.map(|p| p.offset).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert!(places(Packer::Reference) <= 3, "two chains one after another need little");
    assert!(places(Packer::Apart) >= 7, "side by side each value has its own");
}

/// A large product is made of three small ones while the result is not yet there: they lie in its memory, side by side.
#[test]
fn a_result_that_is_not_needed_yet_holds_several_temporaries() {
    let module = parse(
        "HloModule m, is_scheduled=true\n\nENTRY e {\n  p = f32[64,64]{1,0} parameter(0)\n  \
         x = f32[64,128]{1,0} concatenate(p, p), dimensions={1}\n  \
         q = f32[64,32]{1,0} slice(x), slice={[0:64],[0:32]}\n  k = f32[64,32]{1,0} slice(x), slice={[0:64],[32:64]}\n  \
         v = f32[64,32]{1,0} slice(x), slice={[0:64],[64:96]}\n  \
         s = f32[64,256]{1,0} concatenate(q, k, v, q, k, v, q, k), dimensions={1}\n  ROOT r = f32[64,128]{1,0} slice(s), slice={[0:64],[0:128]}\n}\n",
    );
    let target = Target::named("cpu").unwrap();
    let (plain, inside) =
        (plan(&module, &target).unwrap(), plan_inside_results(&module, &target, Packer::Reference).unwrap());
    assert!(check(&module, &target, &Assignment::from(&inside)).is_empty());
    let saved = plain.heap_bytes(0) - inside.heap_bytes(0);
    assert!(saved >= 2 * 64 * 32 * 4, "{saved} bytes saved");
}

/// Made ready to be planned: one caller for each computation, the copies that it needs, and a schedule.
fn prepared(mut module: Module, target: &Target) -> Option<VerifiedModule> {
    flatten_call_graph(&mut module).ok()?;
    insert_copies(&mut module, target).ok()?;
    schedule(&mut module, Scheduler::Memory, target).ok()?;
    verify(module, &VerifyOptions { devices: None }).ok()
}

fn temporaries(plan: &Plan<'_>) -> i64 {
    plan.allocations.iter().filter(|a| a.is_temporary()).map(|a| a.size).sum()
}

/// Plans each way: all are right, the best is never larger, and none goes below its bound.
fn compare(module: &VerifiedModule, target: &Target, what: &str) -> Option<(i64, i64)> {
    let reference = plan(module, target).ok()?;
    let best = plan_with(module, target, Packer::Best).ok()?;
    let apart = plan_with(module, target, Packer::Apart).ok()?;
    let inside = plan_inside_results(module, target, Packer::Reference).ok()?;
    for plan in [&reference, &best, &apart, &inside] {
        let faults = check(module, target, &Assignment::from(plan));
        assert!(faults.is_empty(), "{what}: {:#?}", faults.first());
        assert!(plan.heaps.iter().all(|h| h.lower_bound <= h.bytes), "{what}: {:?}", plan.heaps);
    }
    let (a, b) = (temporaries(&reference), temporaries(&best));
    assert!(b <= a, "{what}: {b} bytes instead of {a}");
    let c = inside.heap_bytes(0);
    assert!(c <= reference.heap_bytes(0), "{what}: {c} bytes inside results");
    Some((a, b))
}

#[test]
fn generated_programs_are_packed_right_and_never_worse() {
    let (mut packed, mut reference, mut best) = (0, 0, 0);
    for seed in 0..200 {
        let module = generate(&mut Choices::from_seed(seed), &Options { max_instructions: 150, ..Options::runnable() });
        let target = Target::named(if seed % 2 == 0 { "cpu" } else { "tpu-v6e" }).unwrap();
        let Some(module) = prepared(module, &target) else { continue };
        if let Some((a, b)) = compare(&module, &target, &format!("seed {seed}")) {
            packed += 1;
            reference += a;
            best += b;
        }
    }
    assert!(packed > 150 && best < reference, "{packed} packed, {best} instead of {reference}");
}

#[test]
fn what_xla_compiled_is_packed_right_and_never_worse() {
    let Some(folder) = shared_folder() else {
        eprintln!("skipped: there is no folder `shared` beside the checkout, nor HLOOM_SHARED");
        return;
    };
    let mut count = 0;
    for case in std::fs::read_dir(folder.join("corpus/cpu_ba")).unwrap() {
        let path = case.unwrap().path().join("module.hlo");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let module = parse(&text);
        count += i32::from(compare(&module, &Target::named("cpu").unwrap(), &path.display().to_string()).is_some());
    }
    assert!(count > 10, "{count}");
}

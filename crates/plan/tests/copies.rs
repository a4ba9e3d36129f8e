//! Copy insertion: few copies, the same results, and memory that can be planned, whatever schedule is chosen after it.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use hloom_formats::hlo_text;
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{inputs, same_results};
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_plan::check::{Assignment, check};
use hloom_plan::copies::{Inserted, insert_copies};
use hloom_plan::flatten::flatten_call_graph;
use hloom_plan::plan;
use hloom_target::Target;
use std::path::{Path, PathBuf};

fn cpu() -> Target {
    Target::named("cpu").unwrap()
}

fn print(module: &Module) -> String {
    hlo_text::print(module, &hlo_text::PrintOptions::default())
}

fn read(text: &str) -> VerifiedModule {
    let result = hlo_text::read(text.as_bytes());
    verified(result.module.unwrap_or_else(|| panic!("{:?}", result.diagnostics)))
}

fn verified(module: Module) -> VerifiedModule {
    verify(module, &VerifyOptions { devices: None }).unwrap_or_else(|e| panic!("{:#?}", e.diagnostics))
}

/// The module with one caller for each computation and all copies that it needs, in the order that was chosen for it.
fn prepared(module: &VerifiedModule) -> (VerifiedModule, Inserted) {
    let mut module = module.module().clone();
    flatten_call_graph(&mut module).unwrap_or_else(|d| panic!("{d}"));
    let inserted = insert_copies(&mut module, &cpu()).unwrap_or_else(|d| panic!("{d:?}"));
    module.is_scheduled = true;
    (verified(module), inserted)
}

/// What the checker finds wrong with the plan of a module; what cannot be planned for its size is nothing wrong.
fn faults(module: &VerifiedModule) -> Vec<String> {
    match plan(module, &cpu()) {
        Ok(planned) => check(module, &cpu(), &Assignment::from(&planned)).iter().map(|d| d.to_string()).collect(),
        Err(diagnostics) => diagnostics.iter().filter(|d| d.code.number != 605).map(|d| d.to_string()).collect(),
    }
}

/// Another order of each computation that keeps to operands and control dependencies, as random as can be.
fn shuffled(module: &VerifiedModule, choices: &mut Choices<'_>) -> VerifiedModule {
    let mut module = module.module().clone();
    for computation in module.computations().to_vec() {
        let all = module[computation].instructions().to_vec();
        let mut needs = vec![0; module.instruction_slots()];
        let mut followers: Vec<Vec<InstructionId>> = vec![Vec::new(); module.instruction_slots()];
        for &id in &all {
            for &first in module[id].operands().iter().chain(module[id].common.control_predecessors()) {
                needs[id.index()] += 1;
                followers[first.index()].push(id);
            }
        }
        let mut ready: Vec<InstructionId> = all.iter().copied().filter(|id| needs[id.index()] == 0).collect();
        let mut order = Vec::new();
        while !ready.is_empty() {
            let id = ready.swap_remove(choices.below(ready.len()));
            order.push(id);
            for &follower in &followers[id.index()] {
                needs[follower.index()] -= 1;
                if needs[follower.index()] == 0 {
                    ready.push(follower);
                }
            }
        }
        module.reorder(computation, order).unwrap();
    }
    verified(module)
}

/// A `shared` folder beside the project, or wherever the environment says.
fn shared() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("HLOOM_SHARED") {
        return Some(folder.into());
    }
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|a| a.join("shared")).find(|s| s.is_dir())
}

#[track_caller]
fn copies(text: &str) -> usize {
    let module = read(text);
    let (after, inserted) = prepared(&module);
    let text = print(after.module());
    assert_eq!(faults(&after), Vec::<String>::new(), "{text}");
    let arguments = inputs(module.module(), 1, &mut Choices::from_seed(3)).unwrap();
    same_results(&module, &after, &arguments).unwrap_or_else(|e| panic!("{e}\n{text}"));
    inserted.copies
}

#[test]
fn results_are_memory_of_their_own() {
    let parameter = "HloModule m\nENTRY e { x = f32[4] parameter(0) ROOT t = (f32[4]) tuple(x) }";
    let constant = "HloModule m\nENTRY e { ROOT c = f32[2] constant({1,2}) }";
    let twice =
        "HloModule m\nENTRY e { x = f32[4] parameter(0) y = f32[4] negate(x) ROOT t = (f32[4], f32[4]) tuple(y, y) }";
    let whole = "HloModule m\nENTRY e { ROOT x = (f32[4], (f32[2])) parameter(0) }";
    let aliased = "HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }\nENTRY e { x = f32[4] parameter(0) ROOT t = (f32[4]) tuple(x) }";
    let crossed = "HloModule m, input_output_alias={ {0}: (1, {}, may-alias), {1}: (0, {}, may-alias) }\nENTRY e { x = f32[4] parameter(0) y = f32[4] parameter(1) ROOT t = (f32[4], f32[4]) tuple(x, y) }";
    let cases = [(parameter, 1), (constant, 1), (twice, 1), (whole, 2), (aliased, 0), (crossed, 3)];
    for (text, count) in cases {
        assert_eq!(copies(text), count, "{text}");
    }
}

#[test]
fn who_writes_in_place_waits_for_readers() {
    let update = |before: &str, after: &str| {
        format!(
            "HloModule m\nENTRY e {{
              x = f32[8] parameter(0)
              i = s32[] parameter(1)
              n = f32[8] negate(x)
              s = f32[1] slice(n), slice={{[0:1]}}
              u = f32[8] dynamic-update-slice(n, s, i)
              {before}
              ROOT t = (f32[8], f32[8]) tuple(u, r)
              {after} }}"
        )
    };
    assert_eq!(copies(&update("r = f32[8] exponential(n)", "")), 0, "the reader can come first");
    assert_eq!(copies(&update("r = f32[8] add(n, u)", "")), 1, "the reader needs both");
    let parameter = "HloModule m\nENTRY e { x = f32[8] parameter(0) i = s32[] constant(2) s = f32[1] constant({1}) ROOT u = f32[8] dynamic-update-slice(x, s, i) }";
    assert_eq!(copies(parameter), 1, "a parameter that is not donated may not be written");
    let donated = parameter.replace("HloModule m", "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }");
    assert_eq!(copies(&donated), 0);
}

/// A loop of three rounds over a count and what `state` says, which `body` turns into what `next` says.
fn looped(state: &str, init: &str, body: &str, next: &str) -> String {
    format!(
        "HloModule m
        cond {{ p = (s32[], {state}) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(3) ROOT lt = pred[] compare(i, n), direction=LT }}
        body {{ p = (s32[], {state}) parameter(0) i = s32[] get-tuple-element(p), index=0 one = s32[] constant(1) j = s32[] add(i, one) {body} ROOT t = (s32[], {state}) tuple(j, {next}) }}
        ENTRY e {{ x = f32[4,4] parameter(0) y = f32[4,4] parameter(1) zero = s32[] parameter(2) z = s32[] multiply(zero, zero) x1 = f32[4,4] negate(x) y1 = f32[4,4] negate(y) init = (s32[], {state}) tuple(z, {init}) ROOT w = (s32[], {state}) while(init), condition=cond, body=body }}"
    )
}

#[test]
fn loops_carry_in_place_where_they_can() {
    let a = "a = f32[4,4] get-tuple-element(p), index=1";
    let b = "b = f32[4,4] get-tuple-element(p), index=2";
    let one = "f32[4,4]";
    let two = "f32[4,4], f32[4,4]";
    let elementwise = looped(one, "x1", &format!("{a} c = f32[4,4] add(a, a)"), "c");
    assert_eq!(copies(&elementwise), 0);
    let product = format!("{a} c = f32[4,4] dot(a, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}");
    assert_eq!(copies(&looped(one, "x1", &product, "c")), 1, "a product cannot be written over its operands");
    let read_only = looped(two, "x1, y1", &format!("{a} {b} c = f32[4,4] add(a, b)"), "c, b");
    assert_eq!(copies(&read_only), 0, "what is handed on unchanged is not copied");
    assert_eq!(copies(&looped(one, "x", &format!("{a} c = f32[4,4] add(a, a)"), "c")), 1, "a parameter goes in");
    assert_eq!(
        copies(&looped(two, "x1, x1", &format!("{a} {b} c = f32[4,4] add(a, b) d = f32[4,4] negate(b)"), "c, d")),
        1
    );
    assert_eq!(copies(&looped(two, "x1, y1", &format!("{a} {b}"), "b, a")), 3, "a swap takes a third place");
    let update = format!(
        "{a} {b} k = s32[] constant(0) row = f32[1,4] dynamic-slice(b, i, k), dynamic_slice_sizes={{1,4}} c = f32[4,4] dynamic-update-slice(a, row, i, k)"
    );
    assert_eq!(copies(&looped(two, "x1, y1", &update, "c, b")), 0, "a row at a time, in place");
}

#[test]
fn branches_write_over_what_dies_in_them() {
    let conditional = |last: &str| {
        format!(
            "HloModule m
            f {{ x = f32[4] parameter(0) ROOT r = f32[4] negate(x) }}
            g {{ ROOT x = f32[4] parameter(0) }}
            ENTRY e {{ s = pred[] parameter(0) a = f32[4] parameter(1) b = f32[4] exponential(a)
              c = f32[4] conditional(s, b, b), true_computation=f, false_computation=g
              {last} }}"
        )
    };
    assert_eq!(copies(&conditional("ROOT r = f32[4] add(c, c)")), 0);
    assert_eq!(copies(&conditional("ROOT r = f32[4] add(c, b)")), 1);
}

#[test]
fn tables_of_asynchronous_results_are_no_operands() {
    let module = read(
        "HloModule m
        called {
          p0 = f32[4,4]{1,0} parameter(0)
          ROOT made = (f32[4,4]{0,1}) custom-call(p0), custom_call_target=\"made\"
        }
        ENTRY e {
          p = f32[4,4]{1,0} parameter(0)
          start = ((f32[4,4]{1,0}), (f32[4,4]{0,1}), s32[]) async-start(p), calls=called,
            output_to_operand_aliasing={{1}: (0, {})}
          update = ((f32[4,4]{1,0}), (f32[4,4]{0,1}), s32[]) async-update(start)
          ROOT done = (f32[4,4]{0,1}) async-done(update)
        }",
    );
    assert_eq!(faults(&prepared(&module).0), [""; 0]);
}

#[test]
fn each_caller_has_a_computation_of_its_own() {
    let text = "HloModule m
        h { x = f32[4] parameter(0) ROOT r = f32[4] negate(x) }
        f { x = f32[4] parameter(0) y = f32[4] call(x), to_apply=h ROOT r = f32[4] add(x, y) }
        sum { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] add(x, y) }
        ENTRY e { a = f32[4] parameter(0) zero = f32[] constant(0) b = f32[4] call(a), to_apply=f c = f32[4] call(b), to_apply=f
          d = f32[] reduce(c, zero), dimensions={0}, to_apply=sum e = f32[] reduce(b, zero), dimensions={0}, to_apply=sum
          g = f32[] call(d, e), to_apply=sum s = pred[] compare(d, e), direction=LT
          k = f32[4] conditional(s, b, c), true_computation=h, false_computation=h ROOT t = (f32[4], f32[]) tuple(k, g) }";
    assert_eq!(copies(text), 0);
    let mut module = read(text).module().clone();
    assert_eq!(flatten_call_graph(&mut module), Ok(5));
    let mut names: Vec<&str> = module.computations().iter().map(|&c| module[c].name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["e", "f", "f.clone", "h", "h.clone", "h.clone.1", "h.clone.2", "sum", "sum.clone"]);
}

#[test]
fn copies_of_copies_are_bounded() {
    let mut text = String::from("HloModule m\nf0 { x = f32[] parameter(0) ROOT r = f32[] negate(x) }\n");
    for n in 1..40 {
        let m = n - 1;
        text += &format!(
            "f{n} {{ x = f32[] parameter(0) y = f32[] call(x), to_apply=f{m} ROOT r = f32[] call(y), to_apply=f{m} }}\n"
        );
    }
    text += "ENTRY e { x = f32[] parameter(0) ROOT r = f32[] call(x), to_apply=f39 }";
    let refused = flatten_call_graph(&mut read(&text).module().clone()).unwrap_err();
    assert!(refused.message.contains("more instructions, and 1048576 are allowed"), "{refused}");
}

#[test]
fn generated_programs_keep_their_results_and_can_be_planned_in_any_order() {
    let mut copied = 0;
    for seed in 0..400u64 {
        let mut choices = Choices::from_seed(seed);
        let module = generate(&mut choices, &Options::runnable());
        let module = verified(module);
        let (after, inserted) = prepared(&module);
        copied += inserted.copies;
        let text = || format!("seed {seed}\n{}\n{}", print(module.module()), print(after.module()));
        assert_eq!(faults(&after), Vec::<String>::new(), "{}", text());
        let arguments = inputs(module.module(), 1, &mut choices).unwrap();
        same_results(&module, &after, &arguments).unwrap_or_else(|e| panic!("{e}\n{}", text()));
        for _ in 0..3 {
            let other = shuffled(&after, &mut choices);
            assert_eq!(faults(&other), Vec::<String>::new(), "{}\n{}", text(), print(other.module()));
        }
    }
    assert!(copied > 100, "these programs are too easy: {copied} copies");
}

/// Every program of the corpora, if they are there: as it is read, without a schedule of another's.
#[test]
fn programs_of_the_corpora_can_be_planned() {
    let Some(shared) = shared() else {
        eprintln!("skipped: no corpus beside the project; HLOOM_SHARED names one");
        return;
    };
    let (mut count, mut copied, mut wrong) = (0, 0, Vec::new());
    for folder in ["corpus/exec", "corpus/bench"] {
        let Ok(entries) = std::fs::read_dir(shared.join(folder)) else { continue };
        let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        files.retain(|f| f.extension().is_some_and(|e| e == "hlo"));
        files.sort();
        for file in files {
            let Some(module) = hlo_text::read(&std::fs::read(&file).unwrap()).module else { continue };
            let Ok(module) = verify(module, &VerifyOptions { devices: None }) else { continue };
            let (after, inserted) = prepared(&module);
            count += 1;
            copied += inserted.copies;
            let faults = faults(&after);
            if !faults.is_empty() {
                wrong.push(format!("{}: {faults:?}", file.display()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    eprintln!("{count} programs, {copied} copies");
}

//! The checker: right assignments pass, and each planted fault is found.

mod common;

use common::parse;
use hloom_fuzz::choices::Choices;
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::diagnostic::Code;
use hloom_ir::diagnostic::codes::plan as codes;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_plan::check::{Assignment, Piece, check};
use hloom_plan::dump::{Part, dump_a, dump_b};
use hloom_plan::plan;
use hloom_target::Target;

fn cpu() -> Target {
    Target::named("cpu").unwrap()
}

/// The module with its own plan, which is right.
fn planned(text: &str) -> (VerifiedModule, Assignment) {
    let module = parse(text);
    let assignment = Assignment::from(&plan(&module, &cpu()).unwrap());
    assert_eq!(check(&module, &cpu(), &assignment), []);
    (module, assignment)
}

/// The place of the value that `name` makes.
fn piece<'a>(module: &VerifiedModule, assignment: &'a mut Assignment, name: &str) -> (usize, &'a mut Piece) {
    let id = module.module().instruction_by_name(name).unwrap();
    let mut all =
        assignment.allocations.iter_mut().enumerate().flat_map(|(n, a)| a.pieces.iter_mut().map(move |p| (n, p)));
    all.find(|(_, p)| p.instruction == id && p.index.is_empty()).unwrap()
}

/// Moves the value that `name` makes to where `onto` lies.
fn put_onto(module: &VerifiedModule, assignment: &mut Assignment, name: &str, onto: &str) {
    let (from, moved) = piece(module, assignment, name);
    let moved = moved.clone();
    let (to, there) = piece(module, assignment, onto);
    let offset = there.offset;
    assignment.allocations[from].pieces.retain(|p| *p != moved);
    assignment.allocations[to].pieces.push(Piece { offset, ..moved });
}

#[track_caller]
fn finds(module: &VerifiedModule, assignment: &Assignment, code: &'static Code, words: &str) {
    let faults = check(module, &cpu(), assignment);
    let found = faults.iter().any(|f| f.code == code && f.message.contains(words));
    assert!(found, "expected {code} with `{words}`, not {faults:#?}");
}

const CHAIN: &str = "HloModule chain, is_scheduled=true

ENTRY e {
  x = f32[64]{0} parameter(0)
  w = f32[64,64]{1,0} parameter(1)
  a = f32[64]{0} dot(x, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  b = f32[64]{0} dot(a, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  c = f32[64]{0} dot(b, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  d = f32[64]{0} add(a, c)
  ROOT e = f32[64]{0} dot(d, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
";

#[test]
fn a_value_that_is_overwritten_before_its_last_use_is_found() {
    let (module, mut assignment) = planned(CHAIN);
    put_onto(&module, &mut assignment, "c", "a");
    finds(&module, &assignment, &codes::OVERLAP, "`d` reads `a`, but `c` was written over it");
}

#[test]
fn a_result_on_an_operand_that_cannot_be_written_over_is_found() {
    let (module, mut assignment) = planned(CHAIN);
    put_onto(&module, &mut assignment, "c", "b");
    finds(&module, &assignment, &codes::OVERLAP, "`c` is written over `b`, which it reads");
}

#[test]
fn sizes_bounds_and_alignments_are_checked() {
    let (module, right) = planned(CHAIN);
    let with = |change: fn(&mut Piece)| {
        let mut assignment = right.clone();
        change(piece(&module, &mut assignment, "a").1);
        assignment
    };
    finds(&module, &with(|p| p.size = 128), &codes::WRONG_SIZE, "`a` is given 128 bytes");
    finds(&module, &with(|p| p.offset += 1 << 20), &codes::OUT_OF_BOUNDS, "`a` takes 256 bytes");
    let mut misaligned = right.clone();
    let (number, moved) = piece(&module, &mut misaligned, "a");
    moved.offset += 4;
    misaligned.allocations[number].size += 4;
    finds(&module, &misaligned, &codes::MISALIGNED, "`a` begins at");
    let mut total = right.clone();
    total.stated_total = Some(1);
    finds(&module, &total, &codes::BAD_DUMP, "says that 1 bytes are used");
}

#[test]
fn parameters_and_results_need_their_own_kind_of_memory() {
    let (module, right) = planned(CHAIN);
    let mut intruder = right.clone();
    put_onto(&module, &mut intruder, "b", "x");
    finds(&module, &intruder, &codes::WRONG_KIND, "holds a parameter that is not donated, and `b` is written there");
    let mut lost = right.clone();
    let (number, _) = piece(&module, &mut lost, "e");
    lost.allocations[number].is_live_out = false;
    finds(&module, &lost, &codes::WRONG_KIND, "`e` is a result");
    let mut moved = right.clone();
    let (number, _) = piece(&module, &mut moved, "a");
    moved.allocations[number].memory_space = 1;
    finds(&module, &moved, &codes::WRONG_KIND, "belongs into memory space 0");
    let mut missing = right.clone();
    let id = module.module().instruction_by_name("a").unwrap();
    missing.allocations.iter_mut().for_each(|a| a.pieces.retain(|p| p.instruction != id));
    finds(&module, &missing, &codes::DUMP_NAMES, "`a` has no place");
}

const LOOP: &str = "HloModule loop, is_scheduled=true

body {
  p = (s32[], f32[64]{0}, f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = f32[64]{0} get-tuple-element(p), index=1
  k = f32[64]{0} get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  t = f32[64]{0} reverse(v), dimensions={0}
  u = f32[64]{0} reverse(t), dimensions={0}
  sum = f32[64]{0} add(u, k)
  ROOT out = (s32[], f32[64]{0}, f32[64]{0}) tuple(next, sum, k)
}

condition {
  q = (s32[], f32[64]{0}, f32[64]{0}) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  ten = s32[] constant(10)
  ROOT less = pred[] compare(j, ten), direction=LT
}

ENTRY e {
  x = f32[64]{0} parameter(0)
  zero = s32[] constant(0)
  start = s32[] copy(zero)
  y = f32[64]{0} copy(x)
  z = f32[64]{0} reverse(x), dimensions={0}
  init = (s32[], f32[64]{0}, f32[64]{0}) tuple(start, y, z)
  w = (s32[], f32[64]{0}, f32[64]{0}) while(init), condition=condition, body=body
  ROOT r = f32[64]{0} get-tuple-element(w), index=1
}
";

#[test]
fn what_a_loop_reads_again_must_survive_a_round() {
    let (module, mut assignment) = planned(LOOP);
    // `k` is read in every round; the first round's `t` would be on top of it in the second.
    put_onto(&module, &mut assignment, "u", "z");
    finds(&module, &assignment, &codes::OVERLAP, "reads `z`");
}

#[test]
fn what_a_loop_carries_must_stay_in_place() {
    let (module, mut assignment) = planned(LOOP);
    let (number, sum) = piece(&module, &mut assignment, "sum");
    let moved = Piece { offset: 4096, ..sum.clone() };
    *sum = moved;
    assignment.allocations[number].size = 8192;
    finds(&module, &assignment, &codes::SPLIT_ALIAS, "arrives at");
}

const BRANCHES: &str = "HloModule branches, is_scheduled=true

left {
  a = f32[64]{0} parameter(0)
  l = f32[64]{0} reverse(a), dimensions={0}
  ROOT m = f32[64]{0} negate(l)
}

right {
  b = f32[64]{0} parameter(0)
  ROOT n = f32[64]{0} reverse(b), dimensions={0}
}

ENTRY e {
  which = pred[] parameter(0)
  x = f32[64]{0} parameter(1)
  y = f32[64]{0} reverse(x), dimensions={0}
  z = f32[64]{0} negate(y)
  c = f32[64]{0} conditional(which, y, y), true_computation=left, false_computation=right
  s = f32[64]{0} add(c, y)
  ROOT r = f32[64]{0} dot-free(s, z)
}
";

#[test]
fn what_one_branch_overwrites_is_lost() {
    let text = BRANCHES.replace("dot-free", "add");
    let (module, mut assignment) = planned(&text);
    put_onto(&module, &mut assignment, "l", "z");
    finds(&module, &assignment, &codes::OVERLAP, "`r` reads `z`");
}

#[test]
fn aliased_parameters_and_in_place_updates_share_memory() {
    let text = "HloModule donated, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }

ENTRY e {
  x = f32[64]{0} parameter(0)
  y = f32[4]{0} parameter(1)
  i = s32[] parameter(2)
  ROOT u = f32[64]{0} dynamic-update-slice(x, y, i)
}
";
    let (module, mut assignment) = planned(text);
    let id = module.module().instruction_by_name("u").unwrap();
    let (from, u) = piece(&module, &mut assignment, "u");
    let apart = u.clone();
    assignment.allocations[from].pieces.retain(|p| p.instruction != id);
    let is_live_out = true;
    assignment.allocations.push(hloom_plan::check::Assigned {
        size: 256,
        is_live_out,
        pieces: vec![apart],
        ..Default::default()
    });
    finds(&module, &assignment, &codes::SPLIT_ALIAS, "are the same memory");
}

/// Lists of operands of asynchronous collectives have no tables; copies within a fusion leave elements where they are.
#[test]
fn what_is_right_in_odd_ways_is_right() {
    planned(
        "HloModule m, is_scheduled=true

ENTRY e {
  p0 = u32[2]{0} parameter(0)
  p1 = u32[2]{0} parameter(1)
  start = ((u32[2]{0}, u32[2]{0}), (u32[2]{0}, u32[2]{0})) collective-permute-start(p0, p1), source_target_pairs={{0,1}, {1,0}}
  ROOT done = (u32[2]{0}, u32[2]{0}) collective-permute-done(start)
}
",
    );
    planned(
        "HloModule m, is_scheduled=true

f {
  q = f32[64]{0} parameter(0)
  c = f32[64]{0} copy(q)
  ROOT r = f32[64]{0} negate(c)
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} reverse(p), dimensions={0}
  b = f32[64]{0} fusion(a), kind=kLoop, calls=f
  ROOT d = f32[64]{0} reverse(b), dimensions={0}
}
",
    );
}

#[test]
fn a_module_without_the_copy_it_needs_cannot_be_planned() {
    let module = parse(
        "HloModule m, is_scheduled=true

ENTRY e {
  x = f32[64]{0} parameter(0)
  y = f32[4]{0} parameter(1)
  i = s32[] parameter(2)
  c = f32[64]{0} negate(x)
  u = f32[64]{0} dynamic-update-slice(c, y, i)
  ROOT r = f32[64]{0} add(u, c)
}
",
    );
    let assignment = Assignment::from(&plan(&module, &cpu()).unwrap());
    finds(&module, &assignment, &codes::OVERLAP, "`r` reads `c`, but `u` was written over it");
}

/// Programs made up at random: whatever they are, planning ends with an answer, and where nothing has to share memory the
/// answer is right.
#[test]
fn generated_programs_are_planned_right() {
    let (mut right, mut lack_copies, mut refused) = (0, 0, 0);
    for seed in 0..400 {
        let module = generate(&mut Choices::from_seed(seed), &Options::runnable());
        let Ok(module) = verify(module, &VerifyOptions { devices: None }) else { continue };
        let target = Target::named(if seed % 2 == 0 { "cpu" } else { "tpu-v6e" }).unwrap();
        let plan = match plan(&module, &target) {
            Ok(plan) => plan,
            Err(faults) => {
                assert!(faults.iter().all(|f| (603..=605).contains(&f.code.number)), "seed {seed}: {faults:?}");
                refused += 1;
                continue;
            }
        };
        let alone = (0..plan.buffers.len() as u32).all(|b| plan.buffers.values(b).len() == 1);
        let faults = check(&module, &target, &Assignment::from(&plan));
        assert!(!alone || faults.is_empty(), "seed {seed}: {faults:#?}");
        let _ = (dump_a(&plan, &target), dump_b(&plan, &target, Part::LiveRange), dump_b(&plan, &target, Part::Values));
        if faults.is_empty() {
            right += 1;
        } else {
            lack_copies += 1;
        }
    }
    assert!(right > 100, "{right} right, {lack_copies} lack copies, {refused} refused");
}

/// A loop whose state is bf16 before it and f32 in it, as compilers leave it: one buffer, as large as its widest value.
#[test]
fn a_loop_of_mixed_precision_has_room_for_its_widest_state() {
    let module = parse(
        "HloModule m, is_scheduled=true

cond {
  p = (s32[]{:T(128)}, bf16[8,128]{1,0:T(8,128)(2,1)}) parameter(0)
  i = s32[]{:T(128)} get-tuple-element(p), index=0
  n = s32[]{:T(128)} constant(3)
  ROOT lt = pred[]{:T(512)} compare(i, n), direction=LT
}

body {
  p = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  i = s32[]{:T(128)} get-tuple-element(p), index=0
  x = f32[8,128]{1,0:T(8,128)} get-tuple-element(p), index=1
  one = s32[]{:T(128)} constant(1)
  i2 = s32[]{:T(128)} add(i, one)
  x2 = bf16[8,128]{1,0:T(8,128)(2,1)} add(x, x)
  x3 = bf16[8,128]{1,0:T(8,128)(2,1)} copy(x2)
  ROOT t = (s32[]{:T(128)}, bf16[8,128]{1,0:T(8,128)(2,1)}) tuple(i2, x3)
}

ENTRY e {
  x = bf16[8,128]{1,0:T(8,128)(2,1)} parameter(0)
  z = s32[]{:T(128)} constant(0)
  first = s32[]{:T(128)} copy(z)
  start = bf16[8,128]{1,0:T(8,128)(2,1)} negate(x)
  t = (s32[]{:T(128)}, bf16[8,128]{1,0:T(8,128)(2,1)}) tuple(first, start)
  w = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) while(t), condition=cond, body=body
  y = f32[8,128]{1,0:T(8,128)} get-tuple-element(w), index=1
  ROOT r = f32[8,128]{1,0:T(8,128)} negate(y)
}
",
    );
    let target = Target::named("tpu-v6e").unwrap();
    let plan = plan(&module, &target).unwrap_or_else(|d| panic!("{d:?}"));
    let assignment = Assignment::from(&plan);
    assert_eq!(check(&module, &target, &assignment), []);
    let pieces: Vec<&Piece> = assignment.allocations.iter().flat_map(|a| &a.pieces).collect();
    for name in ["start", "x3"] {
        let id = module.module().instruction_by_name(name).unwrap();
        let piece = pieces.iter().find(|p| p.instruction == id && p.index.is_empty()).unwrap();
        assert_eq!(piece.size, 4096, "{name} is a state of the loop, which has f32 in it");
    }
}

/// A softmax over rows of 100 elements of what a product makes, as one fusion, and a product of it.
fn softmax(rows: i64, over: &str, kept: &str, reduced: i64) -> String {
    format!(
        "HloModule softmax, is_scheduled=true

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}

rows {{
  p = f32[{rows},100]{{1,0}} parameter(0)
  e = f32[{rows},100]{{1,0}} exponential(p)
  z = f32[] constant(0)
  t = f32[{reduced}]{{0}} reduce(e, z), dimensions={{{over}}}, to_apply=add
  w = f32[{rows},100]{{1,0}} broadcast(t), dimensions={{{kept}}}
  ROOT d = f32[{rows},100]{{1,0}} divide(e, w)
}}

ENTRY e {{
  x = f32[{rows},8]{{1,0}} parameter(0)
  y = f32[8,100]{{1,0}} parameter(1)
  v = f32[100,8]{{1,0}} parameter(2)
  scores = f32[{rows},100]{{1,0}} dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  weights = f32[{rows},100]{{1,0}} fusion(scores), kind=kLoop, calls=rows
  ROOT r = f32[{rows},8]{{1,0}} dot(weights, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"
    )
}

#[test]
fn a_softmax_is_written_over_its_operand_where_no_row_is_shared_by_threads() {
    let shares = |text: &str| {
        let (module, mut assignment) = planned(text);
        let (from, place) = piece(&module, &mut assignment, "scores");
        let at = (from, place.offset);
        let (to, place) = piece(&module, &mut assignment, "weights");
        at == (to, place.offset)
    };
    assert!(shares(&softmax(64, "1", "0", 64)));
    // A few rows are shared out among threads.
    assert!(!shares(&softmax(8, "1", "0", 8)));
    // Columns are not done one after the other.
    assert!(!shares(&softmax(100, "0", "1", 100)));
}

#[test]
fn a_reduction_of_columns_over_its_operand_is_found() {
    let (module, mut assignment) = planned(&softmax(100, "0", "1", 100));
    put_onto(&module, &mut assignment, "weights", "scores");
    finds(&module, &assignment, &codes::OVERLAP, "`weights` is written over `scores`, which it reads");
}

/// Where a fusion is one loop, a result takes the place of what is read under two names; elsewhere another loop may still
/// read it.
#[test]
fn what_is_read_under_two_names_is_written_over_by_one_loop() {
    let text = "HloModule names, is_scheduled=true

fused {
  a = f32[8,128]{1,0} parameter(0)
  b = f32[1,8,128]{2,1,0} parameter(1)
  c = f32[8,128]{1,0} negate(a)
  d = f32[1,8,128]{2,1,0} sine(b)
  ROOT t = (f32[8,128]{1,0}, f32[1,8,128]{2,1,0}) tuple(c, d)
}

ENTRY e {
  p = f32[8,128]{1,0} parameter(0)
  x = f32[8,128]{1,0} reverse(p), dimensions={0}
  y = f32[1,8,128]{2,1,0} bitcast(x)
  f = (f32[8,128]{1,0}, f32[1,8,128]{2,1,0}) fusion(x, y), kind=kLoop, calls=fused
  g = f32[8,128]{1,0} get-tuple-element(f), index=0
  h = f32[1,8,128]{2,1,0} get-tuple-element(f), index=1
  r = f32[8,128]{1,0} reverse(g), dimensions={0}
  s = f32[1,8,128]{2,1,0} reverse(h), dimensions={2}
  ROOT t = (f32[8,128]{1,0}, f32[1,8,128]{2,1,0}) tuple(r, s)
}
";
    let module = parse(text);
    for (name, shares) in [("tpu-v5e", true), ("cpu", false)] {
        let target = Target::named(name).unwrap();
        let assignment = Assignment::from(&plan(&module, &target).unwrap());
        assert_eq!(check(&module, &target, &assignment), []);
        let place = |value: &str, index: &[i64]| {
            let mut all = assignment.allocations.iter().enumerate();
            all.find_map(|(n, a)| {
                let piece = a
                    .pieces
                    .iter()
                    .find(|p| module.module()[p.instruction].name() == value && p.index.as_slice() == index)?;
                Some((n, piece.offset))
            })
        };
        assert!(place("x", &[]).is_some());
        assert_eq!(place("x", &[]) == place("f", &[0]), shares, "{name}");
    }
}

#[test]
fn what_updates_bring_is_there_until_what_was_started_is_done() {
    let (module, assignment) = planned(
        "HloModule brought, is_scheduled=true

sums {
  a = f32[64]{0} parameter(0)
  b = f32[64]{0} parameter(1)
  c = f32[64]{0} parameter(2)
  ab = f32[64]{0} add(a, b)
  abc = f32[64]{0} add(ab, c)
  less = f32[64]{0} negate(c)
  ROOT t = (f32[64]{0}, f32[64]{0}) tuple(abc, less)
}, execution_thread=\"sparsecore\"

ENTRY e {
  x = f32[64]{0} parameter(0)
  w = f32[64,64]{1,0} parameter(1)
  start = ((f32[64]{0}), (), s32[]{:S(2)}) call-start(x), async_execution_thread=\"sparsecore\", to_apply=sums
  y = f32[64]{0} dot(x, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  first = ((f32[64]{0}, f32[64]{0}), (), s32[]{:S(2)}) call-update(start, y)
  z = f32[64]{0} negate(x)
  second = ((f32[64]{0}, f32[64]{0}, f32[64]{0}), (f32[64]{0}, f32[64]{0}), s32[]{:S(2)}) call-update(first, z)
  v = f32[64]{0} dot(x, w), lhs_contracting_dims={0}, rhs_contracting_dims={1}
  ROOT done = (f32[64]{0}, f32[64]{0}) call-done(second)
}",
    );
    for (moved, onto, reader) in [("z", "y", "ab"), ("v", "z", "done"), ("v", "y", "done"), ("ab", "z", "abc")] {
        let mut wrong = assignment.clone();
        put_onto(&module, &mut wrong, moved, onto);
        finds(&module, &wrong, &codes::OVERLAP, &format!("`{reader}` reads"));
    }
}

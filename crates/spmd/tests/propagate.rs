//! Propagation over small modules: what goes where, why, and how long it takes.

#![allow(clippy::print_stdout, reason = "tests say what they measured")]

use hloom_formats::hlo_text::{self, print_sharding};
use hloom_ir::module::Module;
use hloom_ir::verify::{self, VerifyOptions};
use hloom_spmd::{PropagationOptions, StepSource, propagate};
use std::fmt::Write;
use std::time::{Duration, Instant};

fn read(text: &str) -> Module {
    hlo_text::read(text.as_bytes()).module.expect("it can be read")
}

fn sharding(module: &Module, name: &str) -> String {
    let i = module.instruction_by_name(name).unwrap_or_else(|| panic!("there is no {name}"));
    print_sharding(module[i].common.sharding.as_deref().unwrap_or_else(|| panic!("{name} has no sharding")))
}

fn propagated(text: &str) -> Module {
    let mut module = read(text);
    propagate(&mut module, &PropagationOptions::default()).expect("it can be propagated");
    for &c in module.computations() {
        for &i in module[c].instructions() {
            let called = module.entry() != Some(c);
            assert!(called || module[i].common.sharding.is_some(), "{} has no sharding", module[i].name());
        }
    }
    verify::verify(module, &VerifyOptions::default()).expect("it is valid").into_module()
}

const MLP: &str = "HloModule mlp, num_partitions=8
ENTRY main {
  x = f32[16,32] parameter(0), sharding={mesh['dp'=2,'tp'=4], [{'dp'}, {}]}
  up = f32[32,64] parameter(1), sharding={mesh['dp'=2,'tp'=4], [{}, {'tp'}]}
  down = f32[64,32] parameter(2)
  h = f32[16,64] dot(x, up), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[16,64] tanh(h)
  ROOT y = f32[16,32] dot(t, down), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}";

#[test]
fn axes_go_through_products() {
    let module = propagated(MLP);
    assert_eq!(sharding(&module, "t"), "{mesh['dp'=2,'tp'=4], [{'dp'}, {'tp'}]}");
    assert_eq!(sharding(&module, "down"), "{mesh['dp'=2,'tp'=4], [{'tp'}, {}]}");
    assert_eq!(sharding(&module, "y"), "{mesh['dp'=2,'tp'=4], [{'dp'}, {}]}");
}

#[test]
fn meshes_of_one_device_say_nothing() {
    let module = propagated(
        "HloModule m, num_partitions=8
ENTRY main {
  x = f32[16,32] parameter(0), sharding={mesh['i'=8], [{'i'}, {}]}
  y = f32[16,32] custom-call(x), custom_call_target=\"Sharding\", sharding={mesh['i'=1], [{'i'}, {}]}
  ROOT z = f32[16,32] tanh(y)
}",
    );
    assert_eq!(sharding(&module, "z"), "{mesh['i'=8], [{'i'}, {}]}");
}

#[test]
fn results_may_come_as_the_tuple_of_a_loop_or_as_a_token() {
    let module = propagated(
        "HloModule m, num_partitions=8
body {
  s = (f32[16], s32[]) parameter(0)
  v = f32[16] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  w = f32[16] tanh(v)
  ROOT t = (f32[16], s32[]) tuple(w, n)
}
more {
  c = (f32[16], s32[]) parameter(0)
  k = s32[] get-tuple-element(c), index=1
  zero = s32[] constant(0)
  ROOT lt = pred[] compare(k, zero), direction=LT
}
ENTRY main {
  x = f32[16] parameter(0), sharding={mesh['i'=8], [{'i'}]}
  i = s32[] parameter(1)
  init = (f32[16], s32[]) tuple(x, i)
  ROOT loop = (f32[16], s32[]) while(init), condition=more, body=body
}",
    );
    assert_eq!(sharding(&module, "loop"), "{{mesh['i'=8], [{'i'}]}, {mesh['i'=8], replicated}}");
    propagated(
        "HloModule m, num_partitions=8
ENTRY main {
  x = f32[16] parameter(0), sharding={mesh['i'=8], [{'i'}]}
  t = token[] after-all()
  ROOT call = token[] custom-call(x, t), custom_call_target=\"f\", custom_call_has_side_effect=true
}",
    );
}

#[test]
fn every_sharding_is_explained_down_to_an_annotation() {
    let mut module = read(MLP);
    let report = propagate(&mut module, &PropagationOptions::default()).expect("it can be propagated");
    let down = module.instruction_by_name("down").expect("a parameter");
    let steps = report.explain(down, 0);
    let names: Vec<&str> = steps.iter().map(|s| module[s.instruction].name()).collect();
    assert_eq!(names, ["down", "t", "h", "up"]);
    assert_eq!(steps.last().map(|s| &s.source), Some(&StepSource::Annotation));
}

#[test]
fn loops_have_one_sharding_for_each_part_of_their_state() {
    let module = propagated(
        "HloModule loop, num_partitions=4
cond {
  p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT lt = pred[] compare(i, n), direction=LT
}
body {
  q = (s32[], f32[8,8]) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  one = s32[] constant(1)
  next = s32[] add(j, one)
  x = f32[8,8] get-tuple-element(q), index=1
  sum = f32[8,8] add(x, x)
  ROOT r = (s32[], f32[8,8]) tuple(next, sum)
}
ENTRY main {
  a = f32[8,8] parameter(0), sharding={mesh['x'=4], [{'x'}, {}]}
  zero = s32[] constant(0)
  init = (s32[], f32[8,8]) tuple(zero, a)
  loop = (s32[], f32[8,8]) while(init), condition=cond, body=body
  ROOT out = f32[8,8] get-tuple-element(loop), index=1
}",
    );
    assert_eq!(sharding(&module, "sum"), "{mesh['x'=4], [{'x'}, {}]}");
    assert_eq!(sharding(&module, "loop"), "{{mesh['x'=4], replicated}, {mesh['x'=4], [{'x'}, {}]}}");
}

#[test]
fn arguments_that_are_not_cut_equally_are_refused() {
    let mut module = read(
        "HloModule uneven, num_partitions=4
ENTRY main {
  a = f32[6,8] parameter(0), sharding={mesh['x'=4], [{'x'}, {}]}
  ROOT b = f32[6,8] negate(a)
}",
    );
    let errors = propagate(&mut module, &PropagationOptions::default()).expect_err("6 is not a multiple of 4");
    assert_eq!(errors[0].code.number, 1206);
    assert!(errors[0].message.contains("`a`"), "{}", errors[0].message);
}

/// Layers of a transformer's size in operations, one after the other.
fn layers(count: usize) -> String {
    let mut text = "HloModule layers, num_partitions=8\nENTRY main {\n".to_owned();
    let mesh = "mesh['dp'=2,'tp'=4]";
    writeln!(text, "  x.0 = f32[16,64] parameter(0), sharding={{{mesh}, [{{'dp'}}, {{}}]}}").expect("a string");
    for l in 0..count {
        let n = l + 1;
        let (u, d) = (2 * l + 1, 2 * l + 2);
        writeln!(text, "  up.{n} = f32[64,256] parameter({u}), sharding={{{mesh}, [{{}}, {{'tp'}}]}}")
            .expect("a string");
        writeln!(text, "  down.{n} = f32[256,64] parameter({d})").expect("a string");
        writeln!(
            text,
            "  h.{n} = f32[16,256] dot(x.{l}, up.{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        )
        .expect("a string");
        let mut last = format!("h.{n}");
        for k in 0..60 {
            writeln!(text, "  e.{n}.{k} = f32[16,256] multiply({last}, {last})").expect("a string");
            last = format!("e.{n}.{k}");
        }
        writeln!(
            text,
            "  y.{n} = f32[16,64] dot({last}, down.{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        )
        .expect("a string");
        writeln!(text, "  x.{n} = f32[16,64] add(x.{l}, y.{n})").expect("a string");
    }
    writeln!(text, "  ROOT out = f32[16,64] negate(x.{count})\n}}").expect("a string");
    text
}

#[test]
fn time_grows_with_the_size_of_the_program() {
    let time = |count: usize| -> Duration {
        let mut module = read(&layers(count));
        let started = Instant::now();
        propagate(&mut module, &PropagationOptions::default()).expect("it can be propagated");
        assert_eq!(sharding(&module, &format!("down.{count}")), "{mesh['dp'=2,'tp'=4], [{'tp'}, {}]}");
        started.elapsed()
    };
    let (small, large) = (time(20), time(80));
    println!("20 layers in {small:?}, 80 in {large:?}");
    assert!(large < small * 4 * 4 + Duration::from_millis(200), "20 layers in {small:?}, 80 in {large:?}");
}

#[test]
fn a_batch_of_rows_stays_a_batch_whatever_the_table_is_cut_along() {
    // Weights and the table are cut along their features over the devices that the tokens are cut over: in GSPMD's order
    // the batch arrives at the loop together with the weights, and is the larger operand of its product.
    let module = propagated(
        "HloModule fsdp, num_partitions=4
cond {
  p = (s32[], f32[16,64,32], f32[32,32]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT lt = pred[] compare(i, n), direction=LT
}
body {
  q = (s32[], f32[16,64,32], f32[32,32]) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  one = s32[] constant(1)
  next = s32[] add(j, one)
  x = f32[16,64,32] get-tuple-element(q), index=1
  w = f32[32,32] get-tuple-element(q), index=2
  y = f32[16,64,32] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  ROOT r = (s32[], f32[16,64,32], f32[32,32]) tuple(next, y, w)
}
ENTRY main {
  weights = f32[32,32] parameter(0), sharding={devices=[1,4]<=[4]}
  copied = f32[32,32] copy(weights)
  table = f32[512,32] parameter(1), sharding={devices=[1,4]<=[4]}
  tokens = s32[16,65] parameter(2), sharding={devices=[4,1]<=[4]}
  cut = s32[16,64] slice(tokens), slice={[0:16], [0:64]}
  column = s32[16,64,1] broadcast(cut), dimensions={0,1}
  rows = f32[16,64,32] gather(table, column), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, slice_sizes={1,32}
  zero = s32[] constant(0)
  start = (s32[], f32[16,64,32], f32[32,32]) tuple(zero, rows, copied)
  ROOT end = (s32[], f32[16,64,32], f32[32,32]) while(start), condition=cond, body=body
}",
    );
    assert_eq!(sharding(&module, "rows"), "{devices=[4,1,1]<=[4]}");
    assert_eq!(sharding(&module, "y"), "{devices=[4,1,1]<=[4]}");
}

#[test]
fn annotations_of_functions_that_a_manual_region_calls_are_inside_of_it() {
    let module = propagated(
        "HloModule m, num_partitions=4
ENTRY main {
  x = f32[4,4] parameter(0), sharding={mesh['x'=2,'y'=2], [{'x'}, {}]}
  placed = f32[4,4] custom-call(x), custom_call_target=\"Sharding\", sharding={mesh['x'=2,'y'=2], [{'x'}, {}]}
  inside = f32[2,4] custom-call(placed), custom_call_target=\"SPMDFullToShardShape\",
    sharding={mesh['x'=2,'y'=2], [{}, {}], manual={'x'}}
  t = f32[2,4] tanh(inside)
  called = f32[2,4] custom-call(t), custom_call_target=\"Sharding\", sharding={mesh['x'=2,'y'=2], [{?}, {?}]}
  zero = f32[] constant(0)
  zeros = f32[2,4] broadcast(zero), dimensions={}
  own = f32[2,4] custom-call(zeros), custom_call_target=\"Sharding\", sharding={mesh['x'=2,'y'=2], [{?}, {?}]}
  sum = f32[2,4] add(called, own)
  last = f32[2,4] custom-call(sum), custom_call_target=\"Sharding\",
    sharding={mesh['x'=2,'y'=2], [{}, {'y'}], manual={'x'}}
  ROOT y = f32[4,4] custom-call(last), custom_call_target=\"SPMDShardToFullShape\",
    sharding={mesh['x'=2,'y'=2], [{'x'}, {'y'}]}
}",
    );
    for name in ["called", "own", "sum"] {
        assert_eq!(sharding(&module, name), "{mesh['x'=2,'y'=2], [{}, {'y'}], manual={'x'}}", "{name}");
    }
}

#[test]
fn a_constant_of_a_manual_region_is_not_the_one_outside() {
    let named = "HloModule m, num_partitions=4
ENTRY main {
  x = f32[8] parameter(0), sharding={mesh['x'=4], [{'x'}]}
  two = f32[] constant(2)
  half = f32[] divide(two, two)
  inside = f32[2] custom-call(x), custom_call_target=\"SPMDFullToShardShape\",
    sharding={mesh['x'=4], [{}], manual={'x'}}
  scale = f32[2] broadcast(half), dimensions={}
  scaled = f32[2] multiply(inside, scale)
  last = f32[2] custom-call(scaled), custom_call_target=\"Sharding\",
    sharding={mesh['x'=4], [{}], manual={'x'}}
  y = f32[8] custom-call(last), custom_call_target=\"SPMDShardToFullShape\", sharding={mesh['x'=4], [{'x'}]}
  shift = f32[8] broadcast(half), dimensions={}
  ROOT sum = f32[8] add(y, shift), sharding={mesh['x'=4], [{'x'}]}
}";
    let tiles = "HloModule m, num_partitions=4
ENTRY main {
  x = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  two = f32[] constant(2)
  half = f32[] divide(two, two)
  inside = f32[2] custom-call(x), custom_call_target=\"SPMDFullToShardShape\", sharding={manual}
  scale = f32[2] broadcast(half), dimensions={}, sharding={manual}
  scaled = f32[2] multiply(inside, scale), sharding={manual}
  y = f32[8] custom-call(scaled), custom_call_target=\"SPMDShardToFullShape\", sharding={devices=[4]<=[4]}
  shift = f32[8] broadcast(half), dimensions={}, sharding={devices=[4]<=[4]}
  ROOT sum = f32[8] add(y, shift), sharding={devices=[4]<=[4]}
}";
    for text in [named, tiles] {
        let module = propagated(text);
        let made = hloom_spmd::partition(&module, 4).unwrap_or_else(|d| panic!("{}: {text}", d.message));
        let shape = |name| made.module[made.module.instruction_by_name(name).expect(name)].shape.without_layout();
        assert_eq!(shape("sum").to_string(), "f32[2]", "{text}");
        assert_eq!(shape("shift").to_string(), "f32[2]", "{text}");
    }
}

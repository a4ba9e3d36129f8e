//! Whatever the pipeline does to a program, it computes the same numbers: source and result, run by the evaluator on every
//! device. Every plan of what comes out is proved by the checker, and no program takes more fast memory than there is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use support::{Changed, LOOP, check_values, check_with};

#[test]
fn work_between_two_products_goes_to_the_second_or_to_the_first() {
    let text = "
HloModule mlp
ENTRY main {
  x = f32[2,16,32] parameter(0)
  up = f32[48,32] parameter(1)
  gate = f32[48,32] parameter(2)
  down = f32[32,48] parameter(3)
  a = f32[2,16,48] dot(x, up), lhs_contracting_dims={2}, rhs_contracting_dims={1}
  b = f32[2,16,48] dot(x, gate), lhs_contracting_dims={2}, rhs_contracting_dims={1}
  m = f32[2,16,48] multiply(a, b)
  s = f32[2,16,48] logistic(m)
  g = f32[2,16,48] multiply(m, s)
  ROOT y = f32[2,16,32] dot(g, down), lhs_contracting_dims={2}, rhs_contracting_dims={1}
}
";
    check_values(text, 1e-5, |name, printed| {
        let body = printed.split("\n\n").find(|b| b.contains(" logistic(")).unwrap();
        let with_product = body.contains(" convolution(");
        match name {
            "tpu-v6e" => assert!(!with_product, "the work is an operand of the third product: {printed}"),
            "tpu-v5e" => assert!(with_product, "the work ends the second product: {printed}"),
            _ => {}
        }
        assert!(printed.contains("dim_labels=0bf_oi0->0bf"), "{printed}");
    });
}

#[test]
fn dots_of_any_dimensions_are_convolutions() {
    let dots = [
        ("f32[5,7,3]", "f32[3,4,6]", "f32[5,7,4,6]", "lhs_contracting_dims={2}, rhs_contracting_dims={0}"),
        ("f32[5,7,4,3]", "f32[4,3,6]", "f32[5,7,6]", "lhs_contracting_dims={2,3}, rhs_contracting_dims={0,1}"),
        (
            "f32[3,5,4]",
            "f32[3,4,6]",
            "f32[3,5,6]",
            "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}",
        ),
        (
            "f32[2,5,3,4]",
            "f32[2,6,3,4]",
            "f32[2,3,5,6]",
            "lhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_batch_dims={0,2}, rhs_contracting_dims={3}",
        ),
        ("f32[4,5]", "f32[4,6]", "f32[5,6]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        ("f32[5]", "f32[5,6]", "f32[6]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        ("f32[5]", "f32[6]", "f32[5,6]", "lhs_contracting_dims={}, rhs_contracting_dims={}"),
        (
            "f32[1,5,4]",
            "f32[1,4,6]",
            "f32[1,5,6]",
            "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}",
        ),
    ];
    for (x, y, z, dims) in dots {
        let text = format!(
            "HloModule dot\nENTRY main {{\n  x = {x} parameter(0)\n  y = {y} parameter(1)\n  ROOT z = {z} dot(x, y), {dims}\n}}\n"
        );
        check_values(&text, 1e-5, |_, printed| assert!(!printed.contains(" dot("), "{printed}"));
    }
}

#[test]
fn transposes_around_a_product_are_part_of_it() {
    let text = "
HloModule transposed
ENTRY main {
  x = f32[6,16,8] parameter(0)
  y = f32[12,6,8] parameter(1)
  t = f32[16,6,8] transpose(x), dimensions={1,0,2}
  d = f32[6,16,12] dot(t, y), lhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_batch_dims={1}, rhs_contracting_dims={2}
  ROOT r = f32[16,6,12] transpose(d), dimensions={1,0,2}
}
";
    check_values(text, 1e-5, |_, printed| assert!(!printed.contains(" transpose("), "{printed}"));
}

/// A softmax between two products that sum over `depth`, of rows of 16.
fn attention(depth: usize) -> String {
    format!(
        "
HloModule softmax
max {{ x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT m = f32[] maximum(x, y) }}
sum {{ x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y) }}
ENTRY main {{
  q = f32[2,16,{depth}] parameter(0)
  k = f32[2,16,{depth}] parameter(1)
  v = f32[2,16,{depth}] parameter(2)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  s = f32[2,16,16] dot(q, k), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_batch_dims={{0}}, rhs_contracting_dims={{2}}
  m = f32[2,16] reduce(s, low), dimensions={{2}}, to_apply=max
  mb = f32[2,16,16] broadcast(m), dimensions={{0,1}}
  d = f32[2,16,16] subtract(s, mb)
  e = f32[2,16,16] exponential(d)
  t = f32[2,16] reduce(e, zero), dimensions={{2}}, to_apply=sum
  tb = f32[2,16,16] broadcast(t), dimensions={{0,1}}
  p = f32[2,16,16] divide(e, tb)
  ROOT o = f32[2,16,{depth}] dot(p, v), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}
}}
"
    )
}

#[test]
fn a_softmax_between_deep_products_is_cut_at_its_reductions() {
    check_values(&attention(512), 1e-5, |_, printed| {
        // No body reads what it reduces itself: the maximum leaves the fusion that makes it.
        for body in printed.split("\n\n").filter(|b| b.contains(" reduce(")) {
            let reduces = body.lines().filter(|l| l.contains(" reduce(")).count();
            assert!(reduces == 1, "{body}");
        }
    });
}

#[test]
fn a_softmax_between_shallow_products_is_part_of_them() {
    check_values(&attention(8), 1e-2, |name, printed| {
        let entry = printed.split("ENTRY").nth(1).unwrap();
        assert!(!entry.contains("reduce_fusion") && !entry.contains(" reduce("), "{name}: {printed}");
        assert_eq!(entry.matches("kind=kOutput").count(), 2, "{name}: {printed}");
    });
}

#[test]
fn loop_state_and_weights_stay_in_fast_memory() {
    let text = [
        LOOP,
        "ENTRY main {
  h = f32[16,128] parameter(0)
  w = f32[128,128] parameter(1)
  zero = s32[] constant(0)
  init = (s32[], f32[16,128], f32[128,128]) tuple(zero, h, w)
  l = (s32[], f32[16,128], f32[128,128]) while(init), condition=condition, body=body
  last = f32[16,128] get-tuple-element(l), index=1
  ROOT result = (f32[16,128]) tuple(last)
}
",
    ]
    .concat();
    check_values(&text, 1e-5, |name, printed| {
        if name == "tpu-v6e" {
            let line = printed.lines().find(|l| l.contains(" while(")).unwrap();
            assert!(line.contains("f32[128,128]{1,0:T(8,128)S(1)}"), "the weights are in fast memory: {line}");
            assert!(line.contains("f32[16,128]{1,0:T(8,128)S(1)}"), "so is the state: {line}");
        }
    });
}

#[test]
fn gathers_are_carried_through_products_and_rounded_before() {
    let text = "
HloModule fsdp, num_partitions=4
ENTRY main {
  x = f32[16,32] parameter(0)
  w1 = f32[16,32] parameter(1)
  w2 = f32[32,16] parameter(2)
  g1 = f32[64,32] all-gather(w1), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true
  a = f32[16,64] dot(x, g1), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  g2 = f32[32,64] all-gather(w2), channel_id=2, replica_groups={{0,1,2,3}}, dimensions={1}, use_global_device_ids=true
  t = f32[16,64] tanh(a)
  ROOT y = f32[16,32] dot(t, g2), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
";
    check_values(text, 1e-2, |name, printed| {
        let is_carried = printed.contains("AsyncCollectiveStart") && printed.contains("AsyncCollectiveDone");
        assert_eq!(is_carried, name != "tpu-v4", "v4 has no code for it: {printed}");
        assert!(printed.contains("bf16[64,32]"), "what is only multiplied is gathered as bf16: {printed}");
    });
}

#[test]
fn a_gathered_argument_that_is_updated_is_copied_first() {
    let text = "
HloModule fsdp, num_partitions=4, input_output_alias={ {1}: (1, {}, may-alias) }
ENTRY main {
  x = f32[16,32] parameter(0)
  w1 = f32[16,32] parameter(1)
  w2 = f32[32,16] parameter(2)
  d = f32[16,32] dot(x, w2), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name=\"first\"}
  g1 = f32[64,32] all-gather(w1), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true
  e = f32[16,32] tanh(d)
  a = f32[16,64] dot(e, g1), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  two = f32[] constant(2)
  twice = f32[16,32] broadcast(two), dimensions={}
  new = f32[16,32] multiply(w1, twice)
  ROOT y = (f32[16,64], f32[16,32]) tuple(a, new)
}
"
    .replace("f32[32,16] parameter(2)", "f32[32,32] parameter(2)");
    check_values(&text, 1e-2, |_, _| ());
}

#[test]
fn a_part_of_an_argument_is_fetched_at_the_start() {
    let text = "HloModule m

ENTRY e {
  p = ((f32[256,256], f32[256,256]), f32[256]) parameter(0)
  pair = (f32[256,256], f32[256,256]) get-tuple-element(p), index=0
  x = f32[256,256] get-tuple-element(pair), index=0
  w = f32[256,256] get-tuple-element(pair), index=1
  b = f32[256] get-tuple-element(p), index=1
  y = f32[256,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  wide = f32[256,256] broadcast(b), dimensions={1}
  z = f32[256,256] add(y, wide)
  v = f32[256,256] dot(z, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[256,256], f32[256,256], f32[256]) tuple(v, x, b)
}";
    check_values(text, 2e-2, |name, printed| {
        assert!(printed.contains("cross_program_prefetch_index=0"), "{name}:\n{printed}");
    });
}

#[test]
fn the_state_of_a_loop_that_is_the_result_is_worked_on_in_fast_memory() {
    let text = "
HloModule scan
body {
  p = (s32[], f32[64,128], f32[128,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  x = f32[64,128] get-tuple-element(p), index=1
  w = f32[128,128] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(n, one)
  d = f32[64,128] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[64,128] tanh(d)
  ROOT r = (s32[], f32[64,128], f32[128,128]) tuple(next, t, w)
}
condition {
  p = (s32[], f32[64,128], f32[128,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  five = s32[] constant(5)
  ROOT c = pred[] compare(n, five), direction=LT
}
ENTRY main {
  x = f32[64,128] parameter(0)
  w = f32[128,128] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[64,128], f32[128,128]) tuple(zero, x, w)
  loop = (s32[], f32[64,128], f32[128,128]) while(s), condition=condition, body=body
  ROOT y = f32[64,128] get-tuple-element(loop), index=1
}
";
    check_values(text, 1e-4, |_, printed| {
        let root = printed.lines().rev().find(|l| l.contains("ROOT")).unwrap();
        assert!(root.contains("copy-done"), "the result comes back from fast memory: {printed}");
    });
}

#[test]
fn scores_that_fill_fast_memory_are_made_again_for_each_pass() {
    let text = "
HloModule attention
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }
ENTRY main {
  q = f32[256,16] parameter(0)
  k = f32[256,16] parameter(1)
  v = f32[256,16] parameter(2)
  s = f32[256,256] dot(q, k), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  low = f32[] constant(-inf)
  m = f32[256] reduce(s, low), dimensions={1}, to_apply=max
  mb = f32[256,256] broadcast(m), dimensions={0}
  d = f32[256,256] subtract(s, mb)
  e = f32[256,256] exponential(d)
  zero = f32[] constant(0)
  t = f32[256] reduce(e, zero), dimensions={1}, to_apply=add
  tb = f32[256,256] broadcast(t), dimensions={0}
  w = f32[256,256] divide(e, tb)
  ROOT y = f32[256,16] dot(w, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
";
    let entry = |printed: &str| printed.split("ENTRY").nth(1).unwrap().to_owned();
    let changed = Changed { fast_bytes: Some(1 << 17), ..Changed::default() };
    check_with(text, 1e-2, &changed, |_, printed, _| assert!(!entry(printed).contains("[256,256]"), "{printed}"));
    check_values(text, 1e-2, |_, printed| assert!(entry(printed).contains("[256,256]"), "{printed}"));
}

#[test]
fn what_reads_nothing_is_fetched_after_it_is_made() {
    let text = "
HloModule sorts
before { a = f32[] parameter(0) b = f32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3) ROOT r = pred[] compare(a, b), direction=LT }
before.1 { a = s32[] parameter(0) b = s32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3) ROOT r = pred[] compare(a, b), direction=LT }
ENTRY main {
  keys = f32[4096] parameter(0)
  values = s32[4096] iota(), iota_dimension=0
  first = (f32[4096], s32[4096]) sort(keys, values), dimensions={0}, to_apply=before, is_stable=true
  order = s32[4096] get-tuple-element(first), index=1
  ROOT second = (s32[4096], s32[4096]) sort(order, values), dimensions={0}, to_apply=before.1, is_stable=true
}
";
    check_values(text, 0.0, |_, _| ());
}

#[test]
fn a_value_leaves_fast_memory_between_its_readers() {
    // A chain of products fills fast memory; what the last step reads was made before the first.
    let mut text = "
HloModule chain
ENTRY main {
  x = f32[256,256] parameter(0)
  w = f32[256,256] parameter(1)
  d0 = f32[256,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
"
    .to_owned();
    for n in 1..=6 {
        let before = n - 1;
        text += &format!(
            "  d{n} = f32[256,256] dot(d{before}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
        );
    }
    text += "  ROOT y = f32[256,256] add(d0, d6)\n}\n";
    let changed = Changed { fast_bytes: Some(870_000), ..Changed::default() };
    check_with(&text, 2e-2, &changed, |name, printed, _| {
        let far = "(f32[256,256]{1,0:T(8,128)}, f32[256,256]{1,0:T(8,128)S(";
        let is_evicted = printed.lines().any(|l| l.contains(" copy-start(") && l.contains(far));
        assert!(is_evicted, "{name}: {printed}");
    });
}

#[test]
fn a_product_works_shard_by_shard_where_that_hides_the_gather() {
    let text = "
HloModule fsdp, num_partitions=4
ENTRY main {
  x = f32[16,32] parameter(0)
  w1 = f32[16,32] parameter(1)
  w2 = f32[32,16] parameter(2)
  w3 = f32[2,32,128] parameter(3)
  w3b = bf16[2,32,128] convert(w3)
  g1 = f32[64,32] all-gather(w1), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true
  a = f32[16,64] dot(x, g1), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  g2 = f32[32,64] all-gather(w2), channel_id=2, replica_groups={{0,1,2,3}}, dimensions={1}, use_global_device_ids=true
  y = f32[16,32] dot(a, g2), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  c = bf16[16,32] convert(y)
  four = bf16[4,16,32] broadcast(c), dimensions={1,2}
  g3 = bf16[4,32,128] all-gather(w3b), channel_id=3, replica_groups={{0,1},{2,3}}, dimensions={0}, use_global_device_ids=true
  z = bf16[4,16,128] dot(four, g3), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}
  ROOT r = f32[4,16,128] convert(z)
}
";
    // Products take about as long as the exchange of what they multiply with.
    let settings = [("rate.bf16.matmul", "1e6"), ("rate.f32.matmul", "1e6"), ("link.ici.bandwidth", "1e4")];
    let changed = Changed { settings: &settings, ..Changed::default() };
    check_with(text, 3e-2, &changed, |name, printed, _| {
        let gathers = printed.matches(" all-gather(").count();
        if name == "tpu-v4" {
            assert_eq!(gathers, 0, "{printed}");
            // Once around each group, and one shard is there from the start.
            assert_eq!(printed.matches(" collective-permute-start(").count(), 3 + 3 + 1, "{printed}");
            assert!(printed.contains(" bf16[16,32]{1,0:T(8,128)(2,1)"), "weights travel as bf16: {printed}");
        } else {
            assert!(gathers >= 3, "{name}: {printed}");
        }
    });
}

#[test]
fn what_does_not_fit_into_main_memory_is_computed_again() {
    let text = "
HloModule long
ENTRY main {
  x = f32[256,256] parameter(0)
  w = f32[256,256] parameter(1)
  wide = f32[256,1024] parameter(2)
  narrow = f32[1024,256] parameter(3)
  a = f32[256,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d1 = f32[256,256] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d2 = f32[256,1024] dot(d1, wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d3 = f32[256,256] dot(d2, narrow), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d4 = f32[256,256] dot(d3, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[256,256] add(a, d4)
  v = f32[256,128] parameter(4)
  ROOT z = f32[256,128] dot(y, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
";
    check_values(text, 2e-2, |name, printed| assert!(!printed.contains(".remat"), "{name}: {printed}"));
    let changed = Changed { settings: &[("memory.0.bytes", "4530000")], ..Changed::default() };
    check_with(text, 2e-2, &changed, |name, printed, main| {
        assert!(printed.contains(".remat"), "{name}: {printed}");
        assert!(main <= 4_530_000 * 95 / 100, "{name}: {main}\n{printed}");
    });
}

#[test]
fn arrays_of_64_bit_integers_are_pairs_of_32_bit_ones() {
    let text = "
HloModule long
ENTRY main {
  x = s32[16,128] parameter(0)
  y = s32[16,128] parameter(1)
  a = s64[16,128] convert(x)
  two = s64[] constant(2)
  twos = s64[16,128] broadcast(two), dimensions={}
  b0 = s64[16,128] convert(y)
  b = s64[16,128] subtract(b0, twos)
  big = s64[] constant(-1311768467463790321)
  bigs = s64[16,128] broadcast(big), dimensions={}
  p = s64[16,128] multiply(a, bigs)
  q = s64[16,128] multiply(b, p)
  s = s64[16,128] add(p, q)
  n = s64[16,128] negate(s)
  m = s64[16,128] maximum(n, q)
  i = s64[16,128] iota(), iota_dimension=1
  r = s64[16,128] xor(m, i)
  lt = pred[16,128] compare(s, n), direction=LT
  u = u64[16,128] convert(r)
  v = u64[16,128] convert(q)
  ge = pred[16,128] compare(u, v), direction=GE
  both = pred[16,128] and(lt, ge)
  c = s64[16,128] select(both, r, b)
  t = s64[128,16] transpose(c), dimensions={1,0}
  k = s32[16,128] convert(m)
  ROOT o = (s64[128,16], s32[16,128], pred[16,128]) tuple(t, k, both)
}
";
    check_values(text, 0.0, |name, printed| {
        let entry = printed.split("ENTRY").nth(1).unwrap();
        let fused: String = printed.split("ENTRY").next().unwrap().lines().skip(1).collect();
        assert!(entry.contains("X64Combine") && !entry.contains("X64Split"), "{name}: {printed}");
        assert!(!fused.contains("64["), "{name}: nothing is computed with 64 bits: {printed}");
    });
}

#[test]
fn a_reduce_scatter_sends_what_it_says() {
    let program = |groups: &str| {
        format!(
            "
HloModule scattered, num_partitions=4
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY main {{
  x = f32[64,256] parameter(0)
  w = f32[256,128] parameter(1)
  y = f32[64,128] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, operand_precision={{highest,highest}}
  s = f32[32,128] reduce-scatter(y), channel_id=1, replica_groups={groups}, use_global_device_ids=true, dimensions={{0}}, to_apply=sum
  ROOT z = f32[32,128] negate(s)
}}
"
        )
    };
    for groups in ["{{0,1},{2,3}}", "{{2,0},{1,3}}"] {
        check_values(&program(groups), 1e-5, |name, printed| {
            assert!(printed.contains(" reduce-scatter(") && !printed.contains(" all-reduce("), "{name}: {printed}");
        });
    }
}

#[test]
fn what_has_no_room_as_a_whole_is_fetched_in_slices() {
    let text = include_str!("programs/fetched_in_slices.hlo");
    let changed = Changed { fast_bytes: Some(22 << 20), ..Changed::default() };
    check_with(text, 0.05, &changed, |name, printed, _| {
        // The others hide the copy after `z` has gone, or have no room for so much at all.
        if ["tpu-v5e", "tpu-v6e"].contains(&name) {
            assert_eq!(printed.matches("ConcatBitcast").count(), 1, "{name}: {printed}");
            // Slices are copied as a whole would be: with no windows noted, they are printed as one instruction each.
            assert_eq!(printed.matches(" slice-start(").count(), 4, "{name}: {printed}");
        }
    });
}

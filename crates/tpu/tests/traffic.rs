//! What goes through main memory: programs of which the pipeline keeps as much near as the machines' own compilers do.
//! Each is run and its plan is checked, as in `values.rs`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use support::{Changed, LOOP, check_values, check_with};

fn entry(printed: &str) -> &str {
    printed.split("ENTRY").nth(1).unwrap()
}

/// The bodies that contain such an instruction.
fn bodies<'t>(printed: &'t str, opcode: &str) -> Vec<&'t str> {
    printed.split("\n\n").filter(|b| b.contains(&format!(" {opcode}("))).collect()
}

#[test]
fn what_is_sent_to_a_neighbour_stays_in_fast_memory() {
    let text = "
HloModule halo, num_partitions=2
ENTRY main {
  x = f32[256,256] parameter(0)
  y = f32[256,256] multiply(x, x)
  z = f32[256,256] collective-permute(y), channel_id=1, source_target_pairs={{0,1},{1,0}}
  ROOT r = f32[256,256] subtract(z, y)
}
";
    check_values(text, 1e-5, |name, printed| {
        let line = entry(printed).lines().find(|l| l.contains(" collective-permute-start(")).unwrap();
        let near = if name == "tpu-v4" { "S(3)" } else { "S(1)" };
        assert_eq!(line.split(" collective-permute-start").next().unwrap().matches(near).count(), 2, "{name}: {line}");
    });
}

#[test]
fn a_parameter_of_a_loop_and_of_others_is_fetched_once() {
    let text = [
        LOOP,
        "ENTRY main {
  h = f32[16,128] parameter(0)
  w = f32[128,128] parameter(1)
  zero = s32[] constant(0)
  first = f32[16,128] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  s = (s32[], f32[16,128], f32[128,128]) tuple(zero, first, w)
  l = (s32[], f32[16,128], f32[128,128]) while(s), condition=condition, body=body
  ROOT o = f32[16,128] get-tuple-element(l), index=1
}
",
    ]
    .concat();
    check_values(&text, 1e-4, |name, printed| {
        let copies = entry(printed).lines().filter(|l| l.contains(" copy-start(") && l.contains("f32[128,128]"));
        assert_eq!(copies.count(), 1, "{name}: {printed}");
    });
}

#[test]
fn the_part_that_a_product_reads_is_seen_in_its_fusion() {
    let text = "
HloModule stacked
ENTRY main {
  h = f32[16,128] parameter(0)
  w = f32[4,128,128] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  part = f32[1,128,128] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={1,128,128}
  m = f32[128,128] reshape(part)
  ROOT d = f32[16,128] dot(h, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
";
    check_values(text, 1e-5, |name, printed| {
        let with_product = bodies(printed, "convolution");
        assert!(with_product.iter().all(|b| b.contains(" dynamic-slice(")), "{name}: {printed}");
    });
}

#[test]
fn an_update_in_place_reads_no_other_part_of_the_array() {
    let text = "
HloModule moved
ENTRY main {
  x = f32[64,128] parameter(0)
  i = s32[] parameter(1)
  j = s32[] parameter(2)
  zero = s32[] constant(0)
  from = f32[8,128] dynamic-slice(x, i, zero), dynamic_slice_sizes={8,128}
  twice = f32[8,128] add(from, from)
  ROOT u = f32[64,128] dynamic-update-slice(x, twice, j, zero)
}
";
    check_values(text, 0.0, |name, printed| {
        let updates = bodies(printed, "dynamic-update-slice");
        assert!(updates.iter().all(|b| b.contains("ENTRY") || !b.contains(" dynamic-slice(")), "{name}: {printed}");
    });
}

#[test]
fn of_a_product_only_what_is_read_is_computed() {
    let text = "
HloModule part
ENTRY main {
  x = f32[2,64,32] parameter(0)
  w = f32[32,128] parameter(1)
  d = f32[2,64,128] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  p = f32[2,63,100] slice(d), slice={[0:2], [0:63], [4:104]}
  ROOT r = f32[2,63,100] tanh(p)
}
";
    check_values(text, 1e-5, |name, printed| assert!(!printed.contains("[2,64,128]"), "{name}: {printed}"));
}

#[test]
fn a_transpose_behind_work_on_elements_is_part_of_the_product() {
    let text = "
HloModule step, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY main {
  p = f32[128,256] parameter(0)
  x = f32[64,128] parameter(1)
  g = f32[64,256] parameter(2)
  d = f32[256,128] dot(g, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  rate = f32[] constant(0.125)
  rates = f32[256,128] broadcast(rate), dimensions={}
  s = f32[256,128] multiply(d, rates)
  t = f32[128,256] transpose(s), dimensions={1,0}
  ROOT n = f32[128,256] subtract(p, t)
}
";
    // One fusion takes the step and writes over the weights.
    check_values(text, 1e-5, |name, printed| {
        assert!(!printed.contains(" transpose(") && !entry(printed).contains(" copy("), "{name}: {printed}");
        assert_eq!(entry(printed).matches(" fusion(").count(), 1, "{name}: {printed}");
    });
}

#[test]
fn of_a_product_and_its_rectification_one_is_stored() {
    let text = "
HloModule rectified
ENTRY main {
  x = f32[256,128] parameter(0)
  w = f32[128,512] parameter(1)
  v = f32[512,128] parameter(2)
  z = f32[256,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  zeros = f32[256,512] broadcast(zero), dimensions={}
  h = f32[256,512] maximum(z, zeros)
  y = f32[256,128] dot(h, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  dv = f32[512,128] dot(h, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  is = pred[256,512] compare(z, zeros), direction=GT
  dh = f32[256,512] dot(y, v), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  dz = f32[256,512] select(is, dh, zeros)
  dw = f32[128,512] dot(x, dz), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT r = (f32[512,128], f32[128,512]) tuple(dv, dw)
}
";
    let changed = Changed { fast_bytes: Some(2 << 20), ..Changed::default() };
    check_with(text, 1e-3, &changed, |name, printed, _| {
        let two = entry(printed).lines().filter(|l| l.contains(" fusion(") && l.matches("f32[256,512]").count() > 1);
        assert_eq!(two.count(), 0, "{name}: {printed}");
    });
}

#[test]
fn of_work_that_several_read_only_what_it_is_made_of_is_stored() {
    let text = "
HloModule smooth
ENTRY main {
  x = f32[256,128] parameter(0)
  w = f32[128,512] parameter(1)
  v = f32[512,128] parameter(2)
  z = f32[256,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[256,512] multiply(z, z)
  c = f32[256,512] multiply(s, z)
  t = f32[256,512] tanh(c)
  h = f32[256,512] multiply(z, t)
  y = f32[256,128] dot(h, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  dv = f32[512,128] dot(h, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  dh = f32[256,512] dot(y, v), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  dt = f32[256,512] multiply(dh, t)
  dz = f32[256,512] multiply(dt, s)
  dw = f32[128,512] dot(x, dz), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT r = (f32[512,128], f32[128,512]) tuple(dv, dw)
}
";
    let changed = Changed { fast_bytes: Some(2 << 20), ..Changed::default() };
    check_with(text, 1e-3, &changed, |name, printed, _| {
        let two = entry(printed).lines().filter(|l| l.contains(" fusion(") && l.matches("f32[256,512]").count() > 1);
        assert_eq!(two.count(), 0, "{name}: {printed}");
    });
}

#[test]
fn of_a_product_that_is_widened_the_narrow_one_is_stored() {
    let text = "
HloModule scores
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b) }
ENTRY main {
  a = f32[512,384] parameter(0)
  b = f32[512,384] parameter(1)
  q = bf16[512,384] convert(a)
  k = bf16[512,384] convert(b)
  low = f32[] constant(-inf)
  s = bf16[512,512] dot(q, k), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  w = f32[512,512] convert(s)
  scale = f32[] constant(0.25)
  scales = f32[512,512] broadcast(scale), dimensions={}
  p = f32[512,512] multiply(w, scales)
  m = f32[512] reduce(p, low), dimensions={1}, to_apply=max
  mb = f32[512,512] broadcast(m), dimensions={0}
  d = f32[512,512] subtract(p, mb)
  e = f32[512,512] exponential(d)
  n = bf16[512,512] convert(e)
  o = bf16[512,384] dot(n, k), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[512,384] convert(o)
}
";
    let changed = Changed { fast_bytes: Some(2 << 20), ..Changed::default() };
    check_with(text, 2e-2, &changed, |name, printed, _| {
        assert!(!entry(printed).contains("f32[512,512]"), "{name}: {printed}");
    });
}

#[test]
fn what_is_rounded_to_be_gathered_is_rounded_where_it_is_made() {
    let text = "
HloModule rounded, num_partitions=2
ENTRY main {
  w = f32[64,512] parameter(0)
  x = f32[256,128] parameter(1)
  s = f32[64,512] multiply(w, w)
  whole = f32[128,512] all-gather(s), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
  d = f32[256,512] dot(x, whole), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[256,512] negate(d)
  again = f32[64,512] add(w, w)
  rest = f32[128,512] all-gather(again), channel_id=2, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
  e = f32[256,128] dot(t, rest), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT r = f32[256,128] negate(e)
}
";
    check_values(text, 2e-2, |name, printed| {
        let rounds = |l: &&str| l.contains(" convert(") && l.contains("[64,512]");
        assert_eq!(entry(printed).lines().filter(rounds).count(), 0, "{name}: {printed}");
    });
}

#[test]
fn weights_that_a_step_overwrites_are_fetched_once() {
    let text = "
HloModule step, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }
ENTRY main {
  w = f32[256,256] parameter(0)
  v = f32[256,256] parameter(1)
  x = f32[128,256] parameter(2)
  y = f32[128,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[128,256] tanh(y)
  z = f32[128,256] dot(t, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  u = f32[128,256] tanh(z)
  dv = f32[256,256] dot(t, u), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  dt = f32[128,256] dot(u, v), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  dx = f32[128,256] dot(dt, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  dw = f32[256,256] dot(x, dx), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  nw = f32[256,256] subtract(w, dw)
  nv = f32[256,256] subtract(v, dv)
  ROOT r = (f32[256,256], f32[256,256]) tuple(nw, nv)
}
";
    check_values(text, 2e-2, |name, printed| {
        // Nothing but its copy reads the second layer's weight, and the result is written over it.
        let reads = entry(printed).lines().filter(|l| l.contains("(%v") || l.contains(" %v,") || l.contains(" %v)"));
        assert_eq!(reads.filter(|l| !l.contains(" copy-start(")).count(), 0, "{name}: {printed}");
    });
}

#[test]
fn a_row_that_lies_in_a_window_is_read_once() {
    let text = "
HloModule softmax
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b) }
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[2048,512] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[2048] reduce(x, low), dimensions={1}, to_apply=max
  ms = f32[2048,512] broadcast(m), dimensions={0}
  d = f32[2048,512] subtract(x, ms)
  e = f32[2048,512] exponential(d)
  s = f32[2048] reduce(e, zero), dimensions={1}, to_apply=sum
  ss = f32[2048,512] broadcast(s), dimensions={0}
  ROOT p = f32[2048,512] divide(e, ss)
}
";
    check_values(text, 1e-5, |name, printed| {
        assert_eq!(entry(printed).matches(" fusion(").count(), 1, "{name}: {printed}");
    });
}

#[test]
fn zeros_that_a_scatter_adds_to_are_not_stored() {
    let text = "
HloModule gradient
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY main {
  i = s32[64,1] parameter(0)
  g = f32[64,128] parameter(1)
  zero = f32[] constant(0)
  zeros = f32[512,128] broadcast(zero), dimensions={}
  ROOT s = f32[512,128] scatter(zeros, i, g), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum
}
";
    check_values(text, 1e-5, |name, printed| {
        assert!(!entry(printed).contains(" scatter(") && !entry(printed).contains("loop_fusion"), "{name}: {printed}");
    });
}

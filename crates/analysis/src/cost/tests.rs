//! Costs of small modules, worked out by hand beside each.

use super::*;
use hloom_formats::hlo_text;
use hloom_ir::verify::{VerifyOptions, verify};

fn read(text: &str) -> VerifiedModule {
    let result = hlo_text::read(text.as_bytes());
    let module = result.module.unwrap_or_else(|| panic!("{:?}", result.diagnostics));
    verify(module, &VerifyOptions::default()).unwrap_or_else(|invalid| panic!("{:?}", invalid.diagnostics))
}

/// The cost of a module that consists of these entry instructions.
fn entry(instructions: &str) -> Cost {
    total(&format!("HloModule m\n{ADD}\nENTRY e {{\n{instructions}\n}}\n"))
}

/// The total, which must be the sum over all instructions of what their executions cost.
fn total(text: &str) -> Cost {
    let verified = read(text);
    let result = cost(&verified);
    let module = verified.module();
    let all = module.computations().iter().flat_map(|&c| module.computation(c).instructions());
    let sum = all.fold(Cost::default(), |sum, &i| sum + result.all_runs(module, i));
    assert_eq!(sum, result.total, "the two ways of adding up differ");
    result.total
}

const ADD: &str = "add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b)\n}";

fn is(flops: u64, transcendentals: u64, bytes: u64) -> Cost {
    Cost { flops, transcendentals, bytes }
}

#[test]
fn element_wise_operations_count_once_per_element() {
    // Reads 2 × 12 f32, writes 12.
    let sum = "x = f32[3,4] parameter(0)\n ROOT y = f32[3,4] add(x, x)";
    assert_eq!(entry(sum), is(12, 0, 3 * 48));
    let exponential = "x = f32[3,4] parameter(0)\n ROOT y = f32[3,4] exponential(x)";
    assert_eq!(entry(exponential), is(0, 12, 2 * 48));
}

#[test]
fn a_dot_is_two_flops_per_product() {
    // 8 × 32 results of 16 products each.
    let dot = "x = f32[8,16] parameter(0)\n w = f32[16,32] parameter(1)
        ROOT y = f32[8,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}";
    assert_eq!(entry(dot), is(2 * 8 * 32 * 16, 0, 4 * (8 * 16 + 16 * 32 + 8 * 32)));
    // The batch dimension is one of the result's.
    let batch = "x = bf16[5,8,16] parameter(0)\n w = bf16[5,16,32] parameter(1)
        ROOT y = f32[5,8,32] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}";
    assert_eq!(entry(batch).flops, 2 * 5 * 8 * 32 * 16);
}

#[test]
fn a_convolution_leaves_out_products_with_padding() {
    // In each dimension the middle of the window meets all 6 inputs and its two ends meet 5: 16 positions.
    let conv = "x = f32[2,6,6,3] parameter(0)\n w = f32[3,3,3,4] parameter(1)
        ROOT y = f32[2,6,6,4] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f";
    assert_eq!(entry(conv).flops, 2 * 2 * 3 * 4 * 16 * 16);
}

#[test]
fn a_reduction_applies_its_computation_once_less_than_it_has_elements() {
    let reduce = "x = f32[8,16] parameter(0)\n z = f32[] constant(0)
        ROOT y = f32[8] reduce(x, z), dimensions={1}, to_apply=add";
    assert_eq!(entry(reduce), is(8 * 16 - 8, 0, 4 * (8 * 16 + 1 + 8)));
}

#[test]
fn slices_touch_what_they_take() {
    let slice = "x = f32[1000] parameter(0)\n ROOT y = f32[10] slice(x), slice={[0:10]}";
    assert_eq!(entry(slice).bytes, 2 * 40);
    let update = "x = f32[1000] parameter(0)\n u = f32[10] parameter(1)\n i = s32[] parameter(2)
        ROOT y = f32[1000] dynamic-update-slice(x, u, i)";
    assert_eq!(entry(update).bytes, 2 * 40 + 4);
}

#[test]
fn a_fusion_moves_bytes_at_its_borders_only() {
    let text = "HloModule m
f {
  x = f32[1000] parameter(0)
  i = s32[] parameter(1)
  s = f32[10] dynamic-slice(x, i), dynamic_slice_sizes={10}
  e = f32[10] exponential(s)
  ROOT n = f32[10] negate(e)
}
ENTRY e {
  x = f32[1000] parameter(0)
  i = s32[] parameter(1)
  ROOT y = f32[10] fusion(x, i), kind=kLoop, calls=f
}";
    // Ten elements and the index are read, ten are written.
    assert_eq!(total(text), is(10, 10, 40 + 4 + 40));
}

#[test]
fn a_loop_counts_as_often_as_it_is_known_to_run() {
    let text = |config: &str| {
        format!(
            "HloModule m
body {{
  p = (s32[], f32[10]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[10] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[10] multiply(x, x)
  ROOT t = (s32[], f32[10]) tuple(j, y)
}}
condition {{
  p = (s32[], f32[10]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(7)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  p = (s32[], f32[10]) parameter(0)
  ROOT w = (s32[], f32[10]) while(p), condition=condition, body=body{config}
}}"
        )
    };
    // The body: an add of scalars (12 bytes) and a product of ten (120 bytes). The condition: a comparison (9 bytes).
    let known = text(", backend_config={\"known_trip_count\":{\"n\":\"7\"}}");
    assert_eq!(total(&known), is(7 * 11 + 8, 0, 7 * 132 + 8 * 9));
    assert_eq!(total(&text("")), is(11 + 2, 0, 132 + 2 * 9));
    let unknown = |text: &str| cost(&read(text)).unknown_trip_counts.len();
    assert_eq!((unknown(&known), unknown(&text(""))), (0, 1));
}

#[test]
fn of_a_conditional_the_most_expensive_branch_counts() {
    let text = "HloModule m
small {
  x = f32[10] parameter(0)
  ROOT y = f32[10] negate(x)
}
large {
  x = f32[10] parameter(0)
  y = f32[10] multiply(x, x)
  ROOT z = f32[10] multiply(y, y)
}
ENTRY e {
  p = pred[] parameter(0)
  x = f32[10] parameter(1)
  ROOT c = f32[10] conditional(p, x, x), true_computation=small, false_computation=large
}";
    assert_eq!(total(text).flops, 20);
}

#[test]
fn packed_elements_take_their_bits() {
    let packed = "x = s4[100]{0:E(4)} parameter(0)\n ROOT y = s4[100]{0:E(4)} negate(x)";
    assert_eq!(entry(packed).bytes, 2 * 50);
    let loose = "x = s4[100] parameter(0)\n ROOT y = s4[100] negate(x)";
    assert_eq!(entry(loose).bytes, 2 * 100);
}

#[test]
fn absurd_sizes_saturate() {
    let huge = "x = f32[4000000000,4000000000] parameter(0)\n ROOT y = f32[4000000000,4000000000] multiply(x, x)";
    let huge = hlo_text::read(format!("HloModule m\nENTRY e {{\n{huge}\n}}\n").as_bytes());
    // The verifier may refuse what no machine can hold; if it does not, the count must not wrap.
    if let Some(verified) = huge.module.and_then(|m| verify(m, &VerifyOptions::default()).ok()) {
        assert_eq!(cost(&verified).total.bytes, u64::MAX);
    }
}

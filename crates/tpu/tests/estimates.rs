//! The cycles that are noted on a compiled module are those that the cost model finds in it again, with the windows that are
//! noted there.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use hloom_cost::CostModel;
use hloom_cost::dumped::estimated_cycles;
use hloom_formats::hlo_text;
use hloom_ir::verify::{VerifyOptions, verify};
use hloom_target::{Target, Topology};
use hloom_tpu::compile_to_schedule;

const PROGRAM: &str = "
HloModule several
greater { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=GE }
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = bf16[8,2048,2048] parameter(0)
  heads = bf16[2048,8,128] parameter(1)
  q = bf16[8,2048,8,128] dot(x, heads), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  k = bf16[8,2048,8,128] negate(q)
  scores = f32[8,8,2048,2048] dot(q, k), lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_contracting_dims={3}
  table = f32[32000,512] parameter(2)
  indices = s32[4096,1] parameter(3)
  rows = f32[4096,512] gather(table, indices), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,512}
  images = f32[32,64,64,64] parameter(4)
  pooled = f32[32,32,32,64] parameter(5)
  zero = f32[] constant(0)
  spread = f32[32,64,64,64] select-and-scatter(images, pooled, zero), window={size=1x2x2x1 stride=1x2x2x1}, select=greater, scatter=sum
  total = f32[64] reduce(images, zero), dimensions={0,1,2}, to_apply=sum
  ROOT all = (f32[8,8,2048,2048], f32[4096,512], f32[32,64,64,64], f32[64]) tuple(scores, rows, spread, total)
}
";

#[test]
fn noted_cycles_are_found_again() {
    let module = hlo_text::read(PROGRAM.as_bytes()).module.unwrap();
    let source = verify(module, &VerifyOptions::default()).unwrap_or_else(|i| panic!("{:?}", i.diagnostics));
    for name in ["tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e"] {
        let target = Target::named(name).unwrap();
        let compiled = compile_to_schedule(&source, &target, Topology::parse("1").unwrap()).unwrap();
        let module = compiled.module();
        let model = CostModel::new(module, &target).unwrap();
        let mut compared = 0;
        for &i in module[module.entry().unwrap()].instructions() {
            let Some(noted) = estimated_cycles(&module[i]) else { continue };
            let found = model.instruction(i).unwrap().cycles.unwrap();
            let ratio = found / noted as f64;
            assert!((0.95..1.05).contains(&ratio), "{name}: {}: {noted} noted, {found} found", module[i].name());
            compared += 1;
        }
        assert!(compared >= 4, "{name}: only {compared}");
    }
}

/// The windows of each array that an instruction named `made` holds while it runs on a v6e, and the bytes of all.
fn held(text: &str) -> (f64, f64) {
    let source = hlo_text::read(text.as_bytes()).module.unwrap();
    let target = Target::named("tpu-v6e").unwrap();
    let model = CostModel::new(&source, &target).unwrap();
    let cost = model.instruction(source.instruction_by_name("made").unwrap()).unwrap();
    (cost.held_bytes * cost.window_count / cost.bytes, cost.held_bytes)
}

#[test]
fn what_is_not_fused_holds_three_pairs_of_windows() {
    let program = |rows: i64, made: &str| {
        format!(
            "HloModule m
            body {{ p = f32[{rows},3584]{{1,0:T(8,128)}} parameter(0)
              ROOT r = bf16[{rows},3584]{{1,0:T(8,128)(2,1)}} convert(p) }}
            ENTRY e {{ p = f32[{rows},3584]{{1,0:T(8,128)}} parameter(0)
              ROOT made = bf16[{rows},3584]{{1,0:T(8,128)(2,1)}} {made} }}"
        )
    };
    assert_eq!(held(&program(4096, "convert(p)")), (6.0, 4_718_592.0));
    assert_eq!(held(&program(4096, "fusion(p), kind=kLoop, calls=body")).0, 2.0);
    // One window is not copied while another is in use.
    assert_eq!(held(&program(8, "convert(p)")).0, 1.0);
}

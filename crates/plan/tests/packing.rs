//! Packing temporaries: how much they take, and how little they could.

use hloom_formats::hlo_text;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_plan::plan;
use hloom_target::Target;

fn parse(text: &str) -> VerifiedModule {
    let result = hlo_text::read(text.as_bytes());
    let module = result.module.unwrap_or_else(|| panic!("{:?}", result.diagnostics.first()));
    verify(module, &VerifyOptions { devices: None }).unwrap_or_else(|e| panic!("{:?}", e.diagnostics.first()))
}

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

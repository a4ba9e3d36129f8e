//! Arrays that are fetched in slices: these lie side by side in the place of the whole, and nothing is moved to join them.

mod common;

use common::parse;
use hloom_ir::diagnostic::codes::plan::OVERLAP;
use hloom_ir::verify::VerifiedModule;
use hloom_plan::check::{Assignment, Piece, check};
use hloom_plan::{Packer, Plan, plan, plan_with};
use hloom_target::Target;

fn tpu() -> Target {
    Target::named("tpu-v6e").unwrap()
}

/// A matrix of 64 KiB that is fetched in two halves; `a` is made and read between their starts.
const FETCHED: &str = "HloModule m, is_scheduled=true

lower {
  p = f32[128,128]{1,0:T(8,128)} parameter(0)
  ROOT s = f32[64,128]{1,0:T(8,128)S(1)} slice(p), slice={[0:64], [0:128]}
}

upper {
  q = f32[128,128]{1,0:T(8,128)} parameter(0)
  ROOT t = f32[64,128]{1,0:T(8,128)S(1)} slice(q), slice={[64:128], [0:128]}
}

ENTRY e {
  w = f32[128,128]{1,0:T(8,128)} parameter(0)
  x = f32[64,128]{1,0:T(8,128)} parameter(1)
  first = ((f32[128,128]{1,0:T(8,128)}), f32[64,128]{1,0:T(8,128)S(1)}, u32[]{:S(2)}) async-start(w), calls=lower
  a = f32[64,128]{1,0:T(8,128)S(1)} reverse(x), dimensions={0}
  b = f32[64,128]{1,0:T(8,128)} reverse(a), dimensions={1}
  second = ((f32[128,128]{1,0:T(8,128)}), f32[64,128]{1,0:T(8,128)S(1)}, u32[]{:S(2)}) async-start(w), calls=upper
  c = f32[64,128]{1,0:T(8,128)} reverse(b), dimensions={0}
  first-done = f32[64,128]{1,0:T(8,128)S(1)} async-done(first)
  second-done = f32[64,128]{1,0:T(8,128)S(1)} async-done(second)
  whole = f32[128,128]{1,0:T(8,128)S(1)} custom-call(first-done, second-done), custom_call_target=\"ConcatBitcast\"
  ROOT r = f32[64,128]{1,0:T(8,128)} dot(c, whole), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
";

const HALF: i64 = 64 * 128 * 4;

fn place(module: &VerifiedModule, plan: &Plan<'_>, name: &str) -> (usize, i64, i64) {
    let id = module.module().instruction_by_name(name).unwrap();
    let value = plan.dataflow.at(plan.dataflow.positions.whole(id)).unwrap();
    let places = plan.allocations.iter().enumerate().flat_map(|(n, a)| a.places.iter().map(move |p| (n, p)));
    places.filter(|(_, p)| p.value == value).map(|(n, p)| (n, p.offset, p.size)).next().unwrap()
}

#[test]
fn slices_lie_in_the_place_of_what_they_are_joined_to() {
    let module = parse(FETCHED);
    for packer in [Packer::Reference, Packer::Best, Packer::Apart] {
        let plan = plan_with(&module, &tpu(), packer).unwrap();
        let (at, offset, size) = place(&module, &plan, "whole");
        assert_eq!(size, 2 * HALF);
        assert_eq!(place(&module, &plan, "first-done"), (at, offset, HALF));
        assert_eq!(place(&module, &plan, "second-done"), (at, offset + HALF, HALF));
        assert_eq!(check(&module, &tpu(), &Assignment::from(&plan)), []);
    }
}

#[test]
fn a_part_of_the_place_is_free_until_its_slice_is_fetched() {
    // `a` lies where the second half comes later: the block is no larger than the matrix.
    let module = parse(FETCHED);
    let plan = plan(&module, &tpu()).unwrap();
    assert_eq!((plan.heap_bytes(1), plan.lower_bound(1)), (2 * HALF, 2 * HALF));
    assert_eq!(place(&module, &plan, "a").1, place(&module, &plan, "second-done").1);
}

#[test]
fn slices_in_another_order_are_found() {
    let module = parse(&FETCHED.replace("S(1)} reverse(x)", "} reverse(x)"));
    let mut assignment = Assignment::from(&plan(&module, &tpu()).unwrap());
    let slice = |name: &str| module.module().instruction_by_name(name).unwrap();
    let mut pieces = |name: &str, by: i64| {
        let all = assignment.allocations.iter_mut().flat_map(|a| a.pieces.iter_mut());
        all.filter(|p: &&mut Piece| p.instruction == slice(name)).for_each(|p| p.offset += by);
    };
    pieces("s", HALF);
    pieces("t", -HALF);
    let faults = check(&module, &tpu(), &assignment);
    let is_found = faults.iter().any(|f| f.code == &OVERLAP && f.message.contains("`whole` is written over"));
    assert!(is_found, "{faults:#?}");
}

#[test]
fn a_slice_that_is_needed_after_the_joining_stays_where_it_is() {
    // The result has a place of its own then, and the call is a copy.
    let text = FETCHED.replace("  ROOT r = ", "  r = ").replace(
        "rhs_contracting_dims={0}\n}",
        "rhs_contracting_dims={0}\n  ROOT z = f32[64,128]{1,0:T(8,128)} add(r, first-done)\n}",
    );
    let module = parse(&text);
    let plan = plan(&module, &tpu()).unwrap();
    assert_eq!(check(&module, &tpu(), &Assignment::from(&plan)), []);
    let (whole, first) = (place(&module, &plan, "whole"), place(&module, &plan, "first-done"));
    assert!(whole.1 + whole.2 <= first.1 || first.1 + first.2 <= whole.1, "{whole:?} {first:?}");
}

//! What TPU compilers do in their small memories, and in the one that a pass of its own manages.

mod common;

use common::parse;
use hloom_plan::dump::dump_a;
use hloom_plan::plan;
use hloom_target::Target;

/// The allocations of a module in the form of a dump.
fn allocations(text: &str, target: &str) -> String {
    let (module, target) = (parse(text), Target::named(target).unwrap());
    let dump = dump_a(&plan(&module, &target).unwrap(), &target);
    dump.split_once("\nTotal bytes").unwrap().0.to_owned()
}

/// A scalar made of another one, in scalar memory, by an operation.
fn scalar(operation: &str) -> String {
    format!(
        "HloModule m, is_scheduled=true

ENTRY e {{
  p = s32[]{{:T(128)}} parameter(0)
  n = s32[]{{:T(128)}} constant(3)
  a = s32[]{{:T(128)S(6)}} copy(p)
  b = s32[]{{:T(128)S(6)}} {operation}(a, n)
  ROOT r = u32[]{{:T(128)}} bitcast-convert(b)
}}
"
    )
}

#[test]
fn a_shift_is_not_written_over_its_operand() {
    for operation in ["shift-left", "shift-right-logical", "shift-right-arithmetic", "power"] {
        let dump = allocations(&scalar(operation), "tpu-v6e");
        assert!(dump.contains("size 1024, color 6"), "{operation}: {dump}");
    }
    let dump = allocations(&scalar("add"), "tpu-v6e");
    assert!(dump.contains("size 512, color 6"), "{dump}");
}

#[test]
fn a_managed_memory_has_an_allocation_even_if_nothing_is_in_it() {
    let empty = |target: &str, memory_space: i64| {
        let dump = allocations(&scalar("add"), target);
        dump.contains(&format!(": size 0, color {memory_space}, preallocated-temp:"))
    };
    for target in ["tpu-v5e", "tpu-v5p", "tpu-v6e"] {
        assert!(empty(target, 1), "{target}");
    }
    assert!(empty("tpu-v4", 3));
    // These had no such pass.
    assert!(!empty("tpu-v2", 1) && !empty("tpu-v3", 1));
}

#[test]
fn what_is_in_vector_memory_begins_with_a_register() {
    let dump = allocations(
        "HloModule m, is_scheduled=true

ENTRY e {
  p = f32[64]{0:T(128)} parameter(0)
  a = f32[64]{0:T(128)S(1)} copy(p)
  b = f32[64]{0:T(128)S(1)} reverse(a), dimensions={0}
  ROOT r = f32[128]{0:T(128)} concatenate(a, b), dimensions={0}
}
",
        "tpu-v5e",
    );
    // A register is 8 rows of 128 lanes of 4 bytes; the last value takes no more than it needs.
    assert!(dump.contains("size 4608, color 1"), "{dump}");
}

/// A parameter copied into vector memory and read there, and then a value made there.
fn prefetched(attribute: &str, again: &str) -> String {
    format!(
        "HloModule m, is_scheduled=true

ENTRY e {{
  p = f32[8,128]{{1,0:T(8,128)}} parameter(0)
  s = (f32[8,128]{{1,0:T(8,128)S(1)}}, f32[8,128]{{1,0:T(8,128)}}, u32[]{{:S(2)}}) copy-start(p){attribute}
  q = f32[8,128]{{1,0:T(8,128)}} parameter(1)
  d = f32[8,128]{{1,0:T(8,128)S(1)}} copy-done(s)
  a = f32[8,128]{{1,0:T(8,128)}} reverse(d), dimensions={{0}}
  b = f32[8,128]{{1,0:T(8,128)S(1)}} reverse(q), dimensions={{1}}
{again}  ROOT r = f32[16,128]{{1,0:T(8,128)}} concatenate(a, b), dimensions={{0}}
}}
"
    )
}

#[test]
fn what_the_next_run_finds_in_vector_memory_keeps_its_place() {
    let vector = |text: &str| {
        let dump = allocations(text, "tpu-v6e");
        let from = dump.split_once("color 1").unwrap().0.rsplit_once("size ").unwrap().1.to_owned();
        from.trim_end_matches(", ").parse::<i64>().unwrap()
    };
    let ahead = ", cross_program_prefetch_index=0";
    assert_eq!(vector(&prefetched(ahead, "")), 2 * 4096);
    // A copy of this run leaves its place to others, and so does one that is made anew for the next run.
    assert_eq!(vector(&prefetched("", "")), 4096);
    let again = "  t = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(p)
  u = f32[8,128]{1,0:T(8,128)S(1)} copy-done(t)
";
    assert_eq!(vector(&prefetched(ahead, again)), 2 * 4096);
}

//! Schedules: `hloom opt --passes schedule`, and `hloom memory` of modules that have none.

use super::*;

/// Two large arrays that each come to a number, made before either is used.
const WIDE: &str = "HloModule wide

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[] parameter(0)
  zero = f32[] constant(0)
  big.0 = f32[1024] broadcast(x), dimensions={}
  big.1 = f32[1024] broadcast(zero), dimensions={}
  sum.0 = f32[] reduce(big.0, zero), dimensions={0}, to_apply=add
  sum.1 = f32[] reduce(big.1, zero), dimensions={0}, to_apply=add
  ROOT r = f32[] add(sum.0, sum.1)
}
";

#[test]
fn opt_writes_a_scheduled_module() {
    let folder = Folder::new("schedule-opt").with("m.hlo", WIDE);
    folder.hloom(&["opt", "m.hlo", "--passes", "schedule", "-o", "out.hlo"]).exits(0);
    folder.hloom(&["verify", "out.hlo"]).exits(0);
    let text = folder.hloom(&["fmt", "out.hlo"]).exits(0).stdout;
    assert!(text.starts_with("HloModule wide, is_scheduled=true"), "{text}");
    assert!(text.find("%sum.0 =") < text.find("%big.1 ="), "{text}");
}

#[test]
fn a_module_that_is_not_valid_is_not_scheduled() {
    let folder =
        Folder::new("schedule-invalid").with("m.hlo", WIDE.replace("f32[1024] broadcast(x)", "s32[9] broadcast(x)"));
    let ran = folder.hloom(&["opt", "m.hlo", "--passes", "schedule", "-o", "out.hlo"]).exits(1);
    assert!(ran.stderr.contains("error[H"), "{}", ran.stderr);
    assert!(ran.stderr.contains("m.hlo:12"), "{}", ran.stderr);
}

/// Whether one array is used up before the next is made, by the sequence in a dump.
fn takes_turns(dump: &str) -> bool {
    let at = |name: &str| dump.find(&format!(":{name}\n")).unwrap();
    at("sum.0") < at("big.1") || at("sum.1") < at("big.0")
}

#[test]
fn memory_schedules_what_has_no_schedule_and_says_so() {
    let folder = Folder::new("schedule-memory").with("m.hlo", WIDE);
    let ran = folder.hloom(&["memory", "m.hlo", "--part", "live-range"]).exits(0);
    let said = "warning[H0606]: the module has no schedule; it was scheduled for little memory";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    assert!(ran.stderr.contains("at most 4.01 KiB of temporaries and results are live at once"), "{}", ran.stderr);
    assert!(takes_turns(&ran.stdout), "{}", ran.stdout);
    let ran = folder.hloom(&["memory", "m.hlo", "--part", "live-range", "--schedule", "topological"]).exits(0);
    assert_eq!(ran.stderr, "");
}

#[test]
fn a_schedule_that_is_there_is_kept_unless_another_is_asked_for() {
    let text = WIDE.replace("HloModule wide", "HloModule wide, is_scheduled=true");
    let folder = Folder::new("schedule-kept").with("m.hlo", text);
    let ran = folder.hloom(&["memory", "m.hlo", "--part", "live-range"]).exits(0);
    assert_eq!(ran.stderr, "");
    assert!(!takes_turns(&ran.stdout), "{}", ran.stdout);
    let ran = folder.hloom(&["memory", "m.hlo", "--part", "live-range", "--schedule", "memory"]).exits(0);
    assert!(takes_turns(&ran.stdout), "{}", ran.stdout);
}

#[test]
fn another_packer_is_never_worse() {
    let folder = Folder::new("schedule-packer").with("m.hlo", WIDE);
    let total = |packer: &str| -> u64 {
        let json = folder.hloom(&["memory", "m.hlo", "--packer", packer, "--json"]).exits(0).stdout;
        let (_, rest) = json.split_once("\"total_bytes\":").unwrap();
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    };
    assert!(total("best") <= total("reference"));
}

//! Judging dumps: right ones pass in every form, and whatever is done to one, the first thing that does not fit is named.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod common;

use common::parse;
use hloom_fuzz::choices::Choices;
use hloom_ir::diagnostic::{Diagnostic, Place};
use hloom_ir::verify::VerifiedModule;
use hloom_plan::dump::{Part, dump_a, dump_b};
use hloom_plan::dump_checker::check_dump;
use hloom_plan::plan;
use hloom_target::Target;
use std::path::{Path, PathBuf};

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

plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[64]{0} parameter(0)
  zero = s32[] constant(0)
  start = s32[] copy(zero)
  y = f32[64]{0} copy(x)
  z = f32[64]{0} reverse(x), dimensions={0}
  init = (s32[], f32[64]{0}, f32[64]{0}) tuple(start, y, z)
  w = (s32[], f32[64]{0}, f32[64]{0}) while(init), condition=condition, body=body
  r = f32[64]{0} get-tuple-element(w), index=1
  nothing = f32[] constant(0)
  ROOT total = f32[] reduce(r, nothing), dimensions={0}, to_apply=plus
}
";

/// A dump with the module and the machine that it is of.
struct Case {
    name: String,
    module: VerifiedModule,
    target: Target,
    text: String,
}

/// Our own dumps, in all forms and for several machines.
fn own() -> Vec<Case> {
    let mut cases = Vec::new();
    for name in ["cpu", "tpu-v6e", "tpu-v4", "gpu-h100"] {
        let (module, target) = (parse(LOOP), Target::named(name).unwrap());
        let planned = plan(&module, &target).unwrap();
        let parts = [Part::Allocations, Part::Values, Part::LiveRange];
        let mut texts = vec![dump_a(&planned, &target)];
        texts.extend(parts.map(|part| dump_b(&planned, &target, part)));
        let texts = texts.into_iter().enumerate();
        cases.extend(texts.map(|(form, text)| {
            let (module, target) = (module.clone(), target.clone());
            Case { name: format!("{name}, form {form}"), module, target, text }
        }));
    }
    cases
}

/// XLA's dumps, if they are there.
fn theirs() -> Vec<Case> {
    let named = std::env::var_os("HLOOM_SHARED").map(PathBuf::from);
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|a| a.join("shared"));
    let Some(shared) = named.into_iter().chain(ancestors).find(|s| s.join("seeds").is_dir()) else {
        eprintln!("skipped: no folder `shared` beside the checkout, nor HLOOM_SHARED");
        return Vec::new();
    };
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let list = |folder: &str| {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(shared.join(folder)).unwrap().map(|f| f.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let mut cases = Vec::new();
    let seeds = list("seeds");
    for (module, dump) in [(0, 4), (1, 3)] {
        let (module, text) = (parse(&read(&seeds[module])), read(&seeds[dump]));
        cases.push(Case { name: format!("seed {dump}"), module, target: Target::named("tpu-v6e").unwrap(), text });
    }
    for folder in list("corpus/cpu_ba").iter().filter(|f| f.is_dir()) {
        for part in ["assignment.txt", "assignment-values.txt", "live-range.txt"] {
            let (module, text) = (parse(&read(&folder.join("module.hlo"))), read(&folder.join(part)));
            let name = folder.join(part).display().to_string();
            cases.push(Case { name, module, target: Target::named("cpu").unwrap(), text });
        }
    }
    cases
}

fn faults(case: &Case, text: &str) -> Vec<Diagnostic> {
    check_dump(&case.module, &case.target, text)
}

/// The text from the place of a diagnostic to the end of its line.
fn at<'t>(text: &'t str, fault: &Diagnostic) -> &'t str {
    let Place::Span(span) = fault.place else { panic!("{fault:?} has no place in the dump") };
    text[span.start as usize..].lines().next().unwrap_or("")
}

#[test]
fn right_dumps_pass() {
    for case in own().into_iter().chain(theirs()) {
        assert_eq!(faults(&case, &case.text), [], "{}", case.name);
    }
}

#[test]
fn a_peak_need_not_be_broken_down() {
    let case = &own()[3];
    let (listed, tree) = case.text.split_once("  Stack trace breakdown").unwrap();
    assert!(listed.contains(" (cumulative: ") && !tree.is_empty());
    assert_eq!(faults(case, listed), []);
    let cut = &listed[..listed.trim_end().rfind('\n').unwrap() + 1];
    assert_eq!(faults(case, cut)[0].message, "the dump ends here");
}

#[test]
fn the_first_thing_that_does_not_fit_is_named() {
    let case = &own()[4];
    let cases = [
        ("BufferAssignment:", "Assignment:", "this is not a dump", "Assignment:"),
        ("allocation 2:", "allocation 3:", "this is not as dumps are written", "3: size"),
        ("): f32[64]{0}\n", "): f32[65]{0}\n", "not the value's shape", "5]{0}"),
        (" x @0> (size", " xx @0> (size", "no instruction `xx`", "xx @0>"),
        (", preallocated-temp", "", "this is not as dumps are written", ":"),
        ("Total bytes used: ", "Total bytes used: 1", "bytes together", "1"),
        ("\n positions:\n  x\n", "\n positions:\n  y\n", "this is no position of the value", "y"),
        ("  sum, operand 1\n", "  sum, operand 2\n", "this is no use of the value", "sum, operand 2"),
        ("  sum, operand 1\n", "", "a use of the value is missing", " from instruction"),
        (
            "reverse(f32[64]{0} %t), dimensions={0}",
            "reverse(f32[64]{0} %t), dimensions={1}",
            "not the instruction",
            "1}",
        ),
        ("    17:u\n", "    17:sum\n", "`sum` runs before `u`, which it reads", "sum"),
        ("    t{}:", "    t{0}:", "no such value", "t{0}:"),
        (" (peak):\n    ", " (peak):\n     ", "this is no line of the value", " "),
    ];
    for (from, to, message, place) in cases {
        assert!(case.text.contains(from), "{from} is not in\n{}", case.text);
        let edited = case.text.replacen(from, to, 1);
        let faults = faults(case, &edited);
        assert!(faults[0].message.contains(message), "{from} → {to}: {:?}", faults[0]);
        assert!(at(&edited, &faults[0]).starts_with(place), "{from} → {to}: {:?}", at(&edited, &faults[0]));
    }
}

#[test]
fn a_fault_of_the_assignment_is_shown_at_its_value() {
    let case = &own()[0];
    // `z` is read in every round of the loop; `t` is put on top of it.
    let line = |name: &str| case.text.lines().find(|l| l.contains(&format!(" {name} @0> (size="))).unwrap();
    let offset = |line: &str| line.split("offset=").nth(1).unwrap().split(')').next().unwrap().to_owned();
    let (z, t) = (line("z"), line("t"));
    let moved = t.replace(&format!("offset={})", offset(t)), &format!("offset={})", offset(z)));
    assert_ne!(moved, t, "{}", case.text);
    let edited = case.text.replacen(t, &moved, 1);
    let faults = faults(case, &edited);
    assert!(faults.iter().any(|f| f.message.contains("was written over it")), "{faults:#?}");
    assert!(faults.iter().all(|f| !matches!(f.place, Place::Instruction(..))), "{faults:#?}");
}

#[test]
fn the_dump_of_another_module_is_found_out() {
    let other = parse("HloModule m, is_scheduled=true\nENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] negate(x) }");
    for case in own() {
        let faults = check_dump(&other, &case.target, &case.text);
        assert_eq!(faults.len(), 1, "{}: {faults:#?}", case.name);
        assert!([610, 611].contains(&faults[0].code.number), "{}: {faults:#?}", case.name);
    }
}

/// No part of a dump can be cut off without being missed, but for what ends it.
#[test]
fn what_is_cut_off_is_missed() {
    for case in own().into_iter().chain(theirs().into_iter().filter(|c| c.text.len() < 40_000)) {
        let mut choices = Choices::from_seed(case.text.len() as u64);
        let lines: Vec<usize> = case.text.match_indices('\n').map(|(at, _)| at + 1).collect();
        for _ in 0..60 {
            let at = match choices.chance(50) {
                true => *choices.pick(&lines),
                false => choices.below(case.text.len()),
            };
            if at + 1 >= case.text.len() || !case.text.is_char_boundary(at) {
                continue;
            }
            // Allocations alone are a part of dialect B; so are values that end after one of them, and a peak without its tree.
            let left = &case.text[case.text[..at].trim_end_matches('\n').len()..];
            // An allocation in which nothing is says nothing of the module.
            let empty = |line: &str| line.contains(": size 0, color ") && line.ends_with(", preallocated-temp:");
            let left = match left.trim_start_matches('\n').split_once('\n') {
                Some((line, "")) if empty(line) => continue,
                Some((line, after)) if empty(line) => &left[left.len() - after.len() - 1..],
                _ => left,
            };
            let is_part = case.text.starts_with("\nTotal") && left.trim_start_matches('\n').starts_with('<')
                || left.starts_with("\nTotal")
                || left.starts_with("\n\nTotal")
                || left.starts_with("\n  Stack trace breakdown");
            let faults = faults(&case, &case.text[..at]);
            assert!(
                is_part || !faults.is_empty(),
                "{}: {:?} was cut off and not missed",
                case.name,
                left.lines().next()
            );
        }
    }
}

/// A byte is changed: either it is found, or it changes nothing that is meant.
#[test]
fn changed_bytes_are_found() {
    let (mut planted, mut found) = (0, 0);
    for case in own().into_iter().chain(theirs().into_iter().filter(|c| c.text.len() < 40_000)) {
        let mut choices = Choices::from_seed(7 * case.text.len() as u64);
        for _ in 0..40 {
            let at = choices.below(case.text.len());
            let new = *choices.pick(b"0123456789abcxyz <>{}(),:=@\n%_-");
            let mut bytes = case.text.clone().into_bytes();
            if bytes[at] == new || !bytes[at].is_ascii() {
                continue;
            }
            bytes[at] = new;
            let edited = String::from_utf8(bytes).unwrap();
            planted += 1;
            let faults = faults(&case, &edited);
            found += usize::from(!faults.is_empty());
            let line = edited[..at].rfind('\n').map_or(0, |n| n + 1);
            let line = edited[line..].lines().next().unwrap_or("");
            assert!(!faults.is_empty() || may_be(&case, line), "{}: {line:?} was not found to be edited", case.name);
        }
    }
    assert!(found > 300 && found * 10 > planted * 9, "{found} of {planted} were found");
}

/// Whether an edited line may be right: numbers of values are the compiler's, and bytes that nobody needs can be given.
fn may_be(case: &Case, line: &str) -> bool {
    let is_alone = !case.text.contains("BufferAssignment:") || !case.text.contains("Used values:");
    let numbered = line.starts_with(" value: <") || line.starts_with('<');
    let sized =
        line.starts_with("allocation ") || line.starts_with(" value: <") || line.starts_with("Total bytes used");
    is_alone && (numbered || sized) || line.starts_with(" value: <")
}

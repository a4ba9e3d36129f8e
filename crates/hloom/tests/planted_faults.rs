//! `hloom bisect` finds faults that are planted in passes and in an engine, and shows each on a small program.
//!
//! Faults are asked for by `HLOOM_PLANTED_FAULT`, which only builds with debug assertions read. A few are tried here;
//! `HLOOM_CASES=200 cargo test -p hloom --test planted_faults -- --nocapture` tries that many (`HLOOM_WORKERS` at once) and
//! says what came of it.
#![cfg(debug_assertions)]
#![allow(clippy::print_stderr, reason = "how small reproducers are is said")]

use hloom::engine::backend_for;
use hloom::target::Target;
use hloom_fuzz::choices::Choices;
use hloom_passes::planted::{KINDS, VARIABLE};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Programs tried for a fault, until one shows it.
const TRIES: u64 = 12;
/// What the instructions of a reproducer may be at most, in the middle of all of them.
const MEDIAN: usize = 5;

/// A program of thirty or so operations on square matrices, of all the kinds that faults are about.
fn program(choices: &mut Choices<'_>) -> String {
    let n = *choices.pick(&[4i64, 6, 8]);
    let (square, mask) = (format!("f32[{n},{n}]"), format!("pred[{n},{n}]"));
    let mut body = String::new();
    let mut values = vec!["x".to_owned(), "y".to_owned(), "z".to_owned()];
    for (k, name) in values.iter().enumerate() {
        let _ = writeln!(body, "  {name} = {square} parameter({k})");
    }
    let _ = writeln!(body, "  zero = f32[] constant(0)\n  half = f32[] constant(0.5)");
    for k in 0..choices.between(20, 40) {
        let mut value = || choices.pick(&values).clone();
        let (a, b, c) = (value(), value(), value());
        let v = format!("v{k}");
        let line = |text: String| format!("  {v} = {square} {text}\n");
        body += &match choices.below(24) {
            0 => line(format!("add({a}, {b})")),
            1 => line(format!("subtract({a}, {b})")),
            2 => line(format!("multiply({a}, {b})")),
            3 => line(format!("maximum({a}, {b})")),
            4 => line(format!("minimum({a}, {b})")),
            5 => line(format!("negate({a})")),
            6 => format!("  t{k} = {square} tanh({a})\n  {v} = {square} exponential(t{k})\n"),
            7 => line(format!("tanh({a})")),
            8 => line(format!("sine({a})")),
            9 => line(format!("abs({a})")),
            10 => format!("  m{k} = {square} multiply({a}, {b})\n  {v} = {square} floor(m{k})\n"),
            11 => format!(
                "  less{k} = {mask} compare({a}, {b}), direction=LT\n  {v} = {square} select(less{k}, {b}, {c})\n"
            ),
            12 => format!(
                "  less{k} = {mask} compare({a}, {b}), direction=LT\n  d{k} = {mask} compare({b}, {c}), direction=GT\n  \
                 e{k} = {mask} {}(less{k}, d{k})\n  {v} = {square} convert(e{k})\n",
                choices.pick(&["and", "or"])
            ),
            13 => format!("  w{k} = {square} negate({b})\n  {v} = {square} clamp({b}, {a}, w{k})\n"),
            14 => format!(
                "  left{k} = f32[{},{n}] slice({a}), slice={{[0:{}], [0:{n}]}}\n  {v} = {square} pad(left{k}, half), \
                 padding=0_1x0_0\n",
                n - 1,
                n - 1
            ),
            15 => format!(
                "  left{k} = f32[{n},{h}] slice({a}), slice={{[0:{n}], [0:{h}]}}\n  right{k} = f32[{n},{h}] slice({b}), \
                 slice={{[0:{n}], [{h}:{n}]}}\n  {v} = {square} concatenate(left{k}, right{k}), dimensions={{1}}\n",
                h = n / 2
            ),
            16 => line(format!("reverse({a}), dimensions={{{}}}", choices.below(2))),
            17 => line(format!("transpose({a}), dimensions={{1,0}}")),
            18 => format!(
                "  r{k} = f32[{n}] reduce({a}, zero), dimensions={{1}}, to_apply=sum\n  b{k} = f32[{n},{n},{n}] \
                 broadcast({b}), dimensions={{0,2}}\n  q{k} = {square} reduce(b{k}, zero), dimensions={{1}}, \
                 to_apply=sum\n  o{k} = {square} broadcast(r{k}), dimensions={{0}}\n  {v} = {square} add(q{k}, o{k})\n"
            ),
            19 => format!("  i{k} = {square} iota(), iota_dimension=0\n  {v} = {square} multiply(i{k}, {a})\n"),
            20 => format!("  e{k} = {square} exponential({b})\n  {v} = {square} divide({a}, e{k})\n"),
            21 => line(format!("dot({a}, {b}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}")),
            22 => format!("  h{k} = {square} broadcast(half), dimensions={{}}\n  {v} = {square} multiply({a}, h{k})\n"),
            _ => line(format!("add({a}, {c})")),
        };
        // Values stay small.
        let _ = writeln!(body, "  k{k} = {square} tanh({v})");
        values.push(if choices.chance(70) { format!("k{k}") } else { v });
    }
    let results: Vec<&String> = values.iter().rev().take(3).collect();
    let [a, b, c] = results[..] else { return body };
    format!(
        "HloModule m\n\nsum {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}}\n\n\
         ENTRY e {{\n{body}  ROOT r = ({square}, {square}, {square}) tuple({a}, {b}, {c})\n}}\n"
    )
}

/// A fault, where it is planted, and what came of looking for it.
struct Sought {
    fault: String,
    /// Whether the place that was found is the right one.
    is_found: bool,
    instructions: usize,
    said: String,
}

fn hloom(folder: &Path, fault: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hloom"));
    command.args(args).current_dir(folder).env(VARIABLE, fault).env("NO_COLOR", "1");
    command.output().unwrap_or_else(|e| panic!("hloom does not start: {e}"))
}

/// Looks for a fault on programs until one shows it.
fn seek(folder: &Path, place: &str, kind: &str, seed: u64) -> Option<Sought> {
    let fault = format!("{place}:{kind}");
    let is_engine = place == "cpu";
    for attempt in 0..TRIES {
        let mut choices = Choices::from_seed(seed * 1000 + attempt);
        let text = program(&mut choices);
        if !text.contains(kind.split('-').next().unwrap_or_default()) {
            continue;
        }
        std::fs::write(folder.join("m.hlo"), text).unwrap_or_else(|e| panic!("{e}"));
        let question = if is_engine { &["--engine", "cpu", "--against", "eval"][..] } else { &["--passes"] };
        let args = [&["bisect", "m.hlo", "--seed", "1", "-o", "out.hlo", "--jobs", "2"][..], question].concat();
        let output = hloom(folder, &fault, &args);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.code() {
            Some(0) => {}
            // The program computes the same with the fault: another may show it.
            Some(1) => continue,
            other => panic!("{fault}: {other:?}: {}", String::from_utf8_lossy(&output.stderr)),
        }
        let named = if is_engine { "engine cpu ".to_owned() } else { format!("after pass {place} ") };
        let count = said.rsplit(": ").next().and_then(|t| t.split(' ').next()?.parse().ok());
        let instructions = count.unwrap_or_else(|| panic!("{said}"));
        return Some(Sought { fault, is_found: said.contains(&named), instructions, said });
    }
    None
}

/// The number in a variable of the environment.
fn number_of(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

#[test]
fn planted_faults_are_found_and_shown_small() {
    let wanted = number_of("HLOOM_CASES", 4);
    let target = Target::named("cpu").unwrap_or_else(|d| panic!("{d}"));
    let backend = backend_for(&target).unwrap_or_else(|d| panic!("{d}"));
    let mut places: Vec<&str> = vec!["cpu"];
    for &name in backend.pipeline().iter().flat_map(|s| s.names()) {
        if !places.contains(&name) {
            places.push(name);
        }
    }
    let mut pairs: Vec<(&str, &str)> = places.iter().flat_map(|&p| KINDS.iter().map(move |&k| (p, k))).collect();
    // One in eight or so is the engine's.
    let engine: Vec<(&str, &str)> = KINDS.iter().map(|&k| ("cpu", k)).collect();
    pairs.retain(|(p, _)| *p != "cpu");
    let mut choices = Choices::from_seed(7);
    choices.shuffle(&mut pairs);
    let order = pairs.chunks(8).zip(engine.iter().map(Some).chain(std::iter::repeat(None)));
    let order: Vec<(&str, &str)> = order.flat_map(|(some, e)| e.into_iter().chain(some)).copied().collect();

    let folder: PathBuf = std::env::temp_dir().join(format!("hloom-planted-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{e}"));
    let (next, sought) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let all = || sought.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        while all().len() < wanted {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some((place, kind)) = order.get(n) else { return };
            let own = folder.join(n.to_string());
            std::fs::create_dir_all(&own).unwrap_or_else(|e| panic!("{e}"));
            if let Some(found) = seek(&own, place, kind, n as u64) {
                let mut all = all();
                eprintln!("{:3} {:44} {:3} {}", all.len() + 1, found.fault, found.instructions, found.is_found);
                all.push(found);
            }
        }
    };
    let workers = number_of("HLOOM_WORKERS", 2);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let _ = std::fs::remove_dir_all(&folder);
    let mut sought = sought.into_inner().unwrap_or_else(PoisonError::into_inner);
    sought.truncate(wanted);
    assert_eq!(sought.len(), wanted, "too few faults can be shown");
    for found in &sought {
        assert!(found.is_found, "{}: {}", found.fault, found.said);
    }
    let mut sizes: Vec<usize> = sought.iter().map(|s| s.instructions).collect();
    sizes.sort_unstable();
    let median = sizes[sizes.len() / 2];
    eprintln!(
        "{wanted} faults: reproducers of {} to {} instructions, median {median}",
        sizes[0],
        sizes[sizes.len() - 1]
    );
    assert!(median <= MEDIAN, "{sizes:?}");
}

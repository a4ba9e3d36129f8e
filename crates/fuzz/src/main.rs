//! Runs the fuzz bodies for as long as asked; see the crate's documentation.
//!
//! Everything follows from the seed: case `n` of a run is the same in every run with that seed. A failing input is
//! written to a folder, and the way to run it alone is printed.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a command")]

use hloom_fuzz::bodies::{self, Verdict};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::generate::{Options, generate};
use hloom_fuzz::{memory, mutate, seeds};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: hloom-fuzz text|proto|mlir|mlirbc|run|memory|dump|generate [--seconds N] [--seed N] [--failures DIR]
       hloom-fuzz text|proto|mlir|mlirbc|run|memory|dump --file FILE
       hloom-fuzz generate --seed N --print

text      mutated HLO texts: reading, printing, verifying
proto     mutated protos: the same, and agreement with text
mlir      mutated StableHLO texts: reading, translating, writing
mlirbc    mutated StableHLO bytecode: the same
run       mutated HLO texts that are valid: the evaluator runs them or says why not
memory    mutated HLO texts that are valid: their memory is planned and proved right, or it is said why not
dump      mutated modules with dumps of their memory: these are judged
generate  generated modules: valid, and the same through text and protos";

/// No file larger than this is a seed.
const MAX_SEED_BYTES: u64 = 32 << 10;

/// How much of what went wrong tells kinds of failures apart.
const MAX_KIND: usize = 90;

/// No input grows beyond this.
const MAX_BYTES: usize = 256 << 10;

struct Arguments {
    body: String,
    seconds: u64,
    seed: u64,
    failures: PathBuf,
    file: Option<PathBuf>,
    print: bool,
}

fn arguments() -> Option<Arguments> {
    let mut words = std::env::args().skip(1);
    let mut arguments = Arguments {
        body: words
            .next()
            .filter(|b| ["text", "proto", "mlir", "mlirbc", "run", "memory", "dump", "generate"].contains(&&**b))?,
        seconds: 60,
        seed: 0,
        failures: "fuzz-failures".into(),
        file: None,
        print: false,
    };
    while let Some(word) = words.next() {
        match &*word {
            "--seconds" => arguments.seconds = words.next()?.parse().ok()?,
            "--seed" => arguments.seed = words.next()?.parse().ok()?,
            "--failures" => arguments.failures = words.next()?.into(),
            "--file" => arguments.file = Some(words.next()?.into()),
            "--print" => arguments.print = true,
            _ => return None,
        }
    }
    Some(arguments)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if arguments.print {
        let module = generate(&mut Choices::from_seed(arguments.seed), &Options::default());
        let options = hloom_formats::hlo_text::PrintOptions { elide_constants: false };
        print!("{}", hloom_formats::hlo_text::print(&module, &options));
        return ExitCode::SUCCESS;
    }
    if let Some(file) = &arguments.file {
        return run_file(&arguments.body, file);
    }
    // A panic is caught and reported with its input; the message of each would only scroll by.
    std::panic::set_hook(Box::new(|_| {}));
    let failures = run(&arguments);
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_file(body: &str, file: &Path) -> ExitCode {
    let data = match std::fs::read(file) {
        Ok(data) => data,
        Err(error) => {
            eprintln!("cannot read {}: {error}", file.display());
            return ExitCode::from(2);
        }
    };
    let result = run_body(body, &data);
    match result {
        Ok(verdict) => {
            println!("well: {verdict:?}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run_body(body: &str, data: &[u8]) -> Result<Verdict, String> {
    match body {
        "proto" => bodies::proto_reader(data),
        "run" => bodies::evaluator(data),
        "memory" => memory::planner(data),
        "dump" => memory::check_dump(data),
        "mlir" => bodies::stablehlo_text(data),
        "mlirbc" => bodies::stablehlo_bytecode(data),
        _ => bodies::text_reader(data),
    }
}

/// Runs cases until time is up; returns how many kinds of failures there were.
fn run(arguments: &Arguments) -> usize {
    let corpus = match &*arguments.body {
        "text" | "run" | "memory" => seeds::texts(200, MAX_SEED_BYTES),
        "dump" => memory::dumps(&seeds::texts(200, MAX_SEED_BYTES), MAX_SEED_BYTES as usize),
        "proto" => seeds::protos(200, MAX_SEED_BYTES),
        "mlir" => seeds::stablehlo_texts(MAX_SEED_BYTES),
        "mlirbc" => seeds::stablehlo_bytecode(MAX_SEED_BYTES),
        _ => Vec::new(),
    };
    println!("{} seeds; {} seconds from seed {}", corpus.len(), arguments.seconds, arguments.seed);
    let start = Instant::now();
    let mut shown = start;
    let mut cases = 0u64;
    let mut verdicts = [0u64; 3];
    // One of each kind of failure is kept: the first words of what went wrong tell kinds apart.
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    while start.elapsed() < Duration::from_secs(arguments.seconds) {
        let case = arguments.seed.wrapping_add(cases);
        let (input, result) = run_case(&arguments.body, &corpus, case);
        cases += 1;
        match result {
            Ok(verdict) => verdicts[verdict as usize] += 1,
            Err(error) => {
                let words = error.chars().filter(|c| !c.is_ascii_digit()).take(MAX_KIND);
                let kind: String = words.map(|c| if c == '\n' { ' ' } else { c }).collect();
                let times = kinds.entry(kind).or_default();
                *times += 1;
                if *times == 1 {
                    report(arguments, case, &input, &error);
                }
            }
        }
        if shown.elapsed() > Duration::from_secs(10) {
            shown = Instant::now();
            progress(start, cases, verdicts, &kinds);
        }
    }
    progress(start, cases, verdicts, &kinds);
    for (kind, times) in &kinds {
        println!("{times} times: {kind}");
    }
    kinds.len()
}

fn progress(start: Instant, cases: u64, [refused, read, verified]: [u64; 3], kinds: &BTreeMap<String, u64>) {
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{seconds:.0} s: {cases} cases ({:.0}/s): {refused} refused, {read} read, {verified} verified; {} failures of {} kinds",
        cases as f64 / seconds.max(1e-9),
        kinds.values().sum::<u64>(),
        kinds.len(),
    );
}

/// Makes the input of `case` and runs the body on it.
fn run_case(body: &str, corpus: &[Vec<u8>], case: u64) -> (Vec<u8>, Result<Verdict, String>) {
    let mut choices = Choices::from_seed(case);
    if body == "generate" {
        let result = caught(|| {
            let module = generate(&mut Choices::from_seed(case), &Options::default());
            bodies::generated(&module).map(|()| Verdict::Verified)
        });
        return (Vec::new(), result);
    }
    let input = mutate::mutate(&mut choices, choices_of(corpus, case), choices_of(corpus, case / 7 + 1), MAX_BYTES);
    let result = caught(|| run_body(body, &input));
    (input, result)
}

fn choices_of(corpus: &[Vec<u8>], n: u64) -> &[u8] {
    corpus.get((n % corpus.len().max(1) as u64) as usize).map_or(&[], |c| c)
}

fn caught(body: impl FnOnce() -> Result<Verdict, String>) -> Result<Verdict, String> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or(panic.downcast_ref::<&str>().copied()).unwrap_or("of an unknown kind");
        Err(format!("panic: {message}"))
    })
}

fn report(arguments: &Arguments, case: u64, input: &[u8], error: &str) {
    println!("FAILED, case {case}: {error}");
    let again = "run it alone: cargo run --release -p hloom-fuzz --";
    if arguments.body == "generate" {
        println!("{again} generate --seed {case} --seconds 1 (or --print to see the module)");
        return;
    }
    let name = arguments.failures.join(format!("{}-{case:016x}", arguments.body));
    let written = std::fs::create_dir_all(&arguments.failures).and_then(|()| std::fs::write(&name, input));
    match written {
        Ok(()) => println!("{again} {} --file {}", arguments.body, name.display()),
        Err(error) => println!("the input could not be written to {}: {error}", name.display()),
    }
}

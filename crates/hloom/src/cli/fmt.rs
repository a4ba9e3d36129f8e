//! `hloom fmt`: a module in XLA's own form; and how long reading and printing take.

use super::args::FmtArgs;
use super::{Outcome, Result, Stop, input, json, output, progress, usage_error};
use hloom::formats::hlo_text::{self, PrintOptions};
use hloom::{Format, load_bytes};
use serde::Serialize;
use std::time::Instant;

pub(crate) fn run(args: &FmtArgs) -> Result {
    let options = PrintOptions { elide_constants: args.elide_constants };
    if let Some(repeats) = args.bench {
        return bench(args, &options, repeats);
    }
    let loaded = input::load(&args.file, None)?;
    let text = {
        let _progress = progress::start(format!("printing {}", loaded.source.name));
        hlo_text::print(&loaded.module, &options)
    };
    if args.check {
        if loaded.source.format != Format::HloText {
            return Err(usage_error("--check is for HLO text, and this is a proto"));
        }
        return Ok(check(&loaded.source.name, &loaded.source.bytes, text.as_bytes()));
    }
    output::to_path(args.output.as_deref().unwrap_or("-"), text.as_bytes())?;
    Ok(Outcome::Well)
}

/// Whether the text is as it would be printed; white space at its end does not matter.
fn check(name: &str, is: &[u8], should_be: &[u8]) -> Outcome {
    let (is, should_be) = (is.trim_ascii_end(), should_be.trim_ascii_end());
    if is == should_be {
        return Outcome::Well;
    }
    let lines = |text| <[u8]>::split(text, |b: &u8| *b == b'\n');
    let same = lines(is).zip(lines(should_be)).take_while(|(a, b)| a == b).count();
    output::to_stderr(&format!("{name}:{}:1: from here on the text is not as `hloom fmt` prints it\n", same + 1));
    Outcome::InputAtFault
}

/// Milliseconds, the fastest of all repeats, in this process with the file in memory.
#[derive(Serialize)]
struct Times {
    read_ms: f64,
    verify_ms: f64,
    print_ms: f64,
}

fn bench(args: &FmtArgs, options: &PrintOptions, repeats: u32) -> Result {
    // Once before the clock runs, to say what is wrong with it; later repeats then cannot fail.
    let loaded = input::load(&args.file, None)?;
    let (name, bytes, format) = (loaded.source.name.clone(), loaded.source.bytes.clone(), loaded.source.format);
    input::verify(loaded, None).map_err(|r| input::show_rejected(&r))?;
    let mut times = Times { read_ms: f64::INFINITY, verify_ms: f64::INFINITY, print_ms: f64::INFINITY };
    for _ in 0..repeats {
        let bytes = bytes.clone();
        let loaded = clock(&mut times.read_ms, || load_bytes(&name, bytes, Some(format)));
        let loaded = loaded.map_err(|_| Stop(Outcome::Bug))?;
        let text = clock(&mut times.print_ms, || hlo_text::print(&loaded.module, options));
        let verified = clock(&mut times.verify_ms, || loaded.verify(None));
        drop((text, verified));
    }
    let text = if args.json {
        json::to_line(&times)
    } else {
        let Times { read_ms, verify_ms, print_ms } = times;
        format!("read {read_ms:.3} ms, verify {verify_ms:.3} ms, print {print_ms:.3} ms (fastest of {repeats})\n")
    };
    output::to_stdout(text.as_bytes())?;
    Ok(Outcome::Well)
}

/// Runs `work` and keeps the smaller of its time and `fastest`.
fn clock<T>(fastest: &mut f64, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = work();
    *fastest = fastest.min(begin.elapsed().as_secs_f64() * 1e3);
    result
}

//! Tells what of a GPU and its libraries works.
//!
//! `cargo run --release -p hloom-cuda --example device_check`

use std::io::Write;

fn main() {
    let mut failed = 0;
    hloom_cuda::check::run(&mut |name, finding| {
        let line = match &finding {
            Ok(found) => format!("ok    {name}: {found}\n"),
            Err(why) => format!("FAILS {name}: {why}\n"),
        };
        failed += i32::from(finding.is_err());
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    });
    std::process::exit(if failed == 0 { 0 } else { 4 });
}

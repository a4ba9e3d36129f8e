//! Runs every `.hlo` file beneath this folder as a test; the crate's documentation describes their format.

use libtest_mimic::{Arguments, Failed, Trial};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let bless = std::env::var_os("HLOOM_BLESS").is_some_and(|v| v == "1");
    let files = hloom_filetests::discover(&root).expect("the folder of this test can be read");
    let trials = files.into_iter().map(|path| {
        let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        Trial::test(name, move || {
            if bless {
                hloom_filetests::bless::bless(&path).map_err(Failed::from)?;
            }
            hloom_filetests::run::run(&path).map_err(Failed::from)
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

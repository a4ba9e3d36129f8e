//! The `hloom` command: parses the command line, runs the command, and turns its outcome into the exit status.

#![allow(unreachable_pub, reason = "nothing uses a binary's items from outside")]

mod cli;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::args::Cli::parse_from(std::env::args_os().map(hloom::paths::to_text));
    let outcome = cli::crash::guard(move || cli::run(cli));
    cli::interrupt::end_by_signal();
    outcome.into()
}

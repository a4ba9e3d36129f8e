//! The commands. Each is a function from its arguments to an [`Outcome`]; nothing else decides the exit status.

pub(crate) mod args;
mod bench;
mod bisect;
mod check;
mod compile;
mod convert;
pub(crate) mod crash;
mod diff;
mod explain;
mod fmt;
mod heap;
mod input;
pub(crate) mod interrupt;
mod json;
mod lines;
mod memory;
mod opt;
mod output;
mod partition;
mod partition_auto;
mod progress;
mod render;
mod report;
mod run;
mod sharding_passes;
mod simulate;
mod stats;
mod table;
mod verify;
mod watch;
mod whole;
mod words;

use args::{Cli, Command};
use clap::CommandFactory;
use hloom::ir::diagnostic::{Blame, Diagnostic};
use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Outcome {
    /// All is well.
    Well,
    /// The program or the data is at fault; what is wrong has been said.
    InputAtFault,
    /// The command line is at fault; what is wrong has been said.
    UsageAtFault,
    /// The machine is at fault: memory, a device, a library or a peer that is not there, a time limit.
    MachineAtFault,
    /// hloom is at fault.
    Bug,
}

impl Outcome {
    /// Whose fault the errors are.
    pub(crate) fn of(diagnostics: &[Diagnostic]) -> Outcome {
        let outcome = |d: &Diagnostic| match d.blame {
            Blame::Hloom => Outcome::Bug,
            Blame::Machine => Outcome::MachineAtFault,
            _ => Outcome::InputAtFault,
        };
        diagnostics.iter().map(outcome).max().unwrap_or(Outcome::InputAtFault)
    }

    /// The exit status.
    pub(crate) fn code(self) -> u8 {
        match self {
            Outcome::Well => 0,
            Outcome::InputAtFault => 1,
            Outcome::UsageAtFault => 2,
            Outcome::Bug => 3,
            Outcome::MachineAtFault => 4,
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        ExitCode::from(outcome.code())
    }
}

/// Why a command stopped before its end. What is wrong has been said already.
pub(crate) struct Stop(Outcome);

/// What a command gives: `?` stops it with the outcome of the part that failed.
type Result<T = Outcome> = std::result::Result<T, Stop>;

/// Runs the command.
pub(crate) fn run(cli: Cli) -> Outcome {
    let result = match cli.command {
        Command::Fmt(args) => fmt::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Compile(args) => compile::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Opt(args) => opt::run(&args),
        Command::Partition(args) => partition::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Bisect(args) => bisect::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Explain { code } => explain::run(code.as_deref()),
        Command::Completions { shell } => completions(shell),
    };
    result.unwrap_or_else(|stop| stop.0)
}

fn completions(shell: clap_complete::Shell) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "hloom", &mut script);
    output::to_stdout(&script)?;
    Ok(Outcome::Well)
}

/// Says that the command line is at fault, and how.
fn usage_error(message: &str) -> Stop {
    output::to_stderr(&format!("error: {message}\n\nFor more information, try 'hloom --help'.\n"));
    Stop(Outcome::UsageAtFault)
}

//! `hloom verify`: are these modules well formed?

use super::args::VerifyArgs;
use super::{Outcome, Result, input, json, output};
use hloom::Source;
use hloom::ir::diagnostic::Diagnostic;
use hloom::ir::module::Module;

pub(crate) fn run(args: &VerifyArgs) -> Result {
    let mut outcome = Outcome::Well;
    for file in &args.files {
        match input::read(file, None).and_then(|loaded| input::verify_as(loaded, args.devices, args.precision)) {
            Ok(verified) => show(args, &verified.source, Some(verified.module.module()), &verified.diagnostics)?,
            Err(rejected) => {
                outcome = Outcome::InputAtFault;
                show(args, &rejected.source, rejected.module.as_deref(), &rejected.diagnostics)?;
            }
        }
    }
    Ok(outcome)
}

/// With `--json` the diagnostics are the result; otherwise they are words about it.
fn show(args: &VerifyArgs, source: &Source, module: Option<&Module>, diagnostics: &[Diagnostic]) -> Result<()> {
    if args.json {
        return output::to_stdout(json::report(source, module, diagnostics).as_bytes());
    }
    output::show(source, module, diagnostics);
    Ok(())
}

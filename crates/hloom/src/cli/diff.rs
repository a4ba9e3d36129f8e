//! `hloom diff`: what differs in two modules, or in those of two dump folders, renaming and reordering set aside.
//!
//! The exit status is the answer: 0 when nothing differs, 1 when something does. So whatever keeps the command from
//! answering is 2, a file that cannot be read like a command line that makes no sense.

mod folders;

use super::args::DiffArgs;
use super::{Outcome, Result, Stop, input, json, output, progress};
use hloom::load::display_name;
use hloom::report::diff::{self, ModuleDiff};

pub(crate) fn run(args: &DiffArgs) -> Result {
    answer(args).map_err(|stop| match stop.0 {
        Outcome::InputAtFault => Stop(Outcome::UsageAtFault),
        other => Stop(other),
    })
}

fn answer(args: &DiffArgs) -> Result {
    if args.a == "-" && args.b == "-" {
        return Err(super::usage_error("standard input can be only one of the two modules"));
    }
    let is_folder = |path: &str| hloom::paths::to_path(path).is_dir();
    match (is_folder(&args.a), is_folder(&args.b)) {
        (true, true) => return folders::answer(args),
        (false, false) => {}
        (a_is, _) => {
            let (folder, file) = if a_is { (&args.a, &args.b) } else { (&args.b, &args.a) };
            let message = format!("`{folder}` is a folder and `{file}` is not: give two modules, or two dump folders");
            return Err(super::usage_error(&message));
        }
    }
    let (a, b) = (input::load_verified(&args.a)?, input::load_verified(&args.b)?);
    let found = {
        let _progress = progress::start("comparing".to_owned());
        diff::diff(&a.module, &b.module)
    };
    let names = (display_name(&args.a), display_name(&args.b));
    if let Some(path) = &args.html {
        output::to_path(path, diff::to_html(&found, names).as_bytes())?;
    }
    // A reader that has seen enough does not change the answer.
    match output::to_stdout(told(args, &found).as_bytes()) {
        Err(Stop(Outcome::Well)) | Ok(()) => {}
        Err(stop) => return Err(stop),
    }
    Ok(if found.is_equal() { Outcome::Well } else { Outcome::InputAtFault })
}

fn told(args: &DiffArgs, found: &ModuleDiff) -> String {
    match (args.json, &args.html) {
        (true, _) => json::to_line(&diff::to_json(found)),
        (false, Some(_)) => format!("{}\n", diff::summary(found)),
        (false, None) => diff::to_text(found),
    }
}

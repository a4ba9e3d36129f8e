//! `hloom run DIR`: a folder that XLA dumped into.

use super::super::table::{Align, Table};
use super::super::{Outcome, Result, usage_error};
use super::ranks::Ranks;
use super::{RunArgs, output, run_file};
use hloom::dump::{DumpFolder, DumpedModule, scan};
use hloom::load::plain_reason;
use hloom::paths::to_path;

/// Runs the module that is asked for, or the only one; otherwise says what is there.
pub(super) fn run(args: &RunArgs, ranks: Option<&Ranks>) -> Result {
    let folder = scan(&to_path(&args.file))
        .map_err(|e| usage_error(&format!("cannot list `{}`: {}", args.file, plain_reason(&e))))?;
    let runnable: Vec<&DumpedModule> = folder.modules.iter().filter(|m| m.to_run().is_some()).collect();
    let chosen = match (&args.module, runnable.as_slice()) {
        (Some(name), all) => {
            let named: Vec<&&DumpedModule> = all.iter().filter(|m| m.is_called(name)).collect();
            match named.as_slice() {
                [only] => **only,
                [] => return Err(usage_error(&format!("there is no module {name} in `{}`", args.file))),
                _ => return Err(usage_error(&format!("several modules are called {name}: name one by its number"))),
            }
        }
        (None, [only]) => *only,
        (None, []) => {
            output::to_stderr(&what_is_there(&folder));
            return Err(usage_error(&format!("there is no module in `{}` that could be run", args.file)));
        }
        (None, _) => {
            output::to_stdout(what_is_there(&folder).as_bytes())?;
            output::to_stderr("name the one to run with --module\n");
            return Ok(Outcome::Well);
        }
    };
    let Some(path) = chosen.to_run() else { return Ok(Outcome::Well) };
    output::to_stderr(&format!("{}: {}\nrunning {}\n", chosen.key, chosen.words(), path.display()));
    run_file(&RunArgs { file: path.display().to_string(), ..args.clone() }, ranks)
}

fn what_is_there(folder: &DumpFolder) -> String {
    let mut table = Table::new(&[("module", Align::Left), ("what there is of it", Align::Left)]);
    for module in &folder.modules {
        table.row([module.key.clone(), module.words()]);
    }
    let mut text = table.render();
    if !folder.foreign.is_empty() {
        text.push_str(&format!("{} files are not of a dump: {}\n", folder.foreign.len(), short(&folder.foreign)));
    }
    text
}

fn short(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let more = if names.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}

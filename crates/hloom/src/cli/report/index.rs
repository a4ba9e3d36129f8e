//! The index of many modules: a dump folder, or files that were named. What cannot be read is named with the reason.

use super::{with_simulation, write};
use crate::cli::args::ReportArgs;
use crate::cli::{Outcome, Result, Stop, input, output, progress};
use hloom::Rejected;
use hloom::dump::{DumpFolder, scan};
use hloom::load::plain_reason;
use hloom::report::index::{Entry, index};
use hloom::report::page;
use std::path::{Path, PathBuf};

/// Folders in folders are gone into so far.
const DEEPEST: usize = 8;
/// Modules have these endings in dumps; what has another is not taken for one.
const ENDINGS: [&str; 6] = ["hlo", "txt", "pb", "mlir", "mlirbc", "bc"];
/// Dumps hold these beside modules.
const BESIDE: [&str; 6] =
    ["buffer-assignment", "memory-usage-report", "live-range", "debug_options", "flagfile", "gpu_target_config"];

pub(super) fn run(args: &ReportArgs) -> Result {
    let mut files = Vec::new();
    for given in &args.files {
        if Path::new(given).is_dir() {
            list(Path::new(given), 0, &mut files).map_err(|error| {
                output::to_stderr(&format!("error: cannot read the folder `{given}`: {}\n", plain_reason(&error)));
                Stop(Outcome::InputAtFault)
            })?;
        } else {
            files.push(PathBuf::from(given));
        }
    }
    files.sort();
    let folder = args.pages.then(|| format!("{}_pages", args.output.trim_end_matches(".html")));
    if let Some(folder) = &folder {
        output::make_folder(folder)?;
    }
    let mut entries = Vec::new();
    for (number, path) in files.iter().enumerate() {
        entries.push(entry(args, path, number, folder.as_deref())?);
    }
    let title = args.files.first().map_or("", String::as_str);
    write(&args.output, &index(title, &entries))?;
    if folder.is_none() {
        output::to_stderr("--pages writes a page for each module, too\n");
    }
    let bad = entries.iter().filter(|e| e.problem.is_some()).count();
    if bad > 0 {
        output::to_stderr(&format!("{bad} of {} files could not be read; the page says why\n", entries.len()));
    }
    Ok(Outcome::Well)
}

/// The line of the index for a file; where there is a `folder` for it, its page is written too.
fn entry(args: &ReportArgs, path: &Path, number: usize, folder: Option<&str>) -> Result<Entry> {
    let name = path.to_string_lossy();
    let read = input::read(&name, None).and_then(|loaded| input::verify(loaded, None));
    let verified = match read {
        Ok(verified) => verified,
        Err(rejected) => return Ok(Entry::unreadable(&name, &reason(&rejected))),
    };
    let _progress = progress::start(format!("writing about {name}"));
    let mut entry = Entry::new(&name, &verified.module);
    if let Some(folder) = folder {
        let target = super::target(args, &verified)?;
        let html = with_simulation(verified, &target, None, page::report);
        let file = format!("{number:04}.html");
        output::to_path(&format!("{folder}/{file}"), html.as_bytes())?;
        let beside = Path::new(folder).file_name().unwrap_or_default().to_string_lossy();
        entry.page = Some(format!("{beside}/{file}"));
    }
    Ok(entry)
}

fn reason(rejected: &Rejected) -> String {
    rejected.diagnostics.first().map_or_else(String::new, |d| d.message.clone())
}

/// The files below a folder that may be modules. Of what a compiler dumped, those are the modules before and after
/// optimisation: the rest is about these.
fn list(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let DumpFolder { modules, foreign } = scan(folder)?;
    for module in modules {
        let after = module.after.map(|(path, _)| path);
        let found: Vec<PathBuf> = module.before.into_iter().chain(after).collect();
        // A run holds its program, too.
        let found = if found.is_empty() { module.snapshots } else { found };
        files.extend(if found.is_empty() { module.passes } else { found });
    }
    for name in foreign {
        let path = folder.join(&name);
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            // A folder inside that cannot be read is passed over; the one that was named is not.
            if depth < DEEPEST {
                let _ = list(&path, depth + 1, files);
            }
        } else if ENDINGS.contains(&&*ending) && !BESIDE.iter().any(|b| name.contains(b)) {
            files.push(path);
        }
    }
    Ok(())
}

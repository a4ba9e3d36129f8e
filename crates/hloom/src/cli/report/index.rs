//! The index of many modules: a dump folder, or files that were named. What cannot be read is named with the reason.
//! Buffer assignments are told by their names or by how they begin, and judged beside the module that they are of.

use super::{with_simulation, write};
use crate::cli::args::ReportArgs;
use crate::cli::{Outcome, Result, Stop, input, output, progress};
use hloom::dump::{DumpFolder, scan};
use hloom::load::plain_reason;
use hloom::plan::dump::ASSIGNMENT_HEAD;
use hloom::plan::dump_checker::{check_dump, read_dump, text_of};
use hloom::report::index::{DumpedAssignment, Entry, index};
use hloom::report::page;
use hloom::{Rejected, Verified};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Folders in folders are gone into so far.
const DEEPEST: usize = 8;
/// Modules have these endings in dumps; what has another is not taken for one.
const ENDINGS: [&str; 6] = ["hlo", "txt", "pb", "mlir", "mlirbc", "bc"];
/// Dumps hold these beside modules.
const BESIDE: [&str; 6] =
    ["buffer-assignment", "memory-usage-report", "live-range", "debug_options", "flagfile", "gpu_target_config"];

/// The files of an index.
#[derive(Default)]
struct Files {
    modules: Vec<PathBuf>,
    assignments: Vec<Assignment>,
}

/// A buffer assignment that was dumped.
struct Assignment {
    path: PathBuf,
    /// The module that it is of, where its name tells.
    of: Option<PathBuf>,
    is_judged: bool,
}

impl Assignment {
    fn new(path: PathBuf, of: Option<PathBuf>) -> Assignment {
        Assignment { path, of, is_judged: false }
    }
}

impl Files {
    /// A file that no dump's name explains.
    fn add(&mut self, path: PathBuf) {
        match begins_as_assignment(&path) {
            true => self.assignments.push(Assignment::new(path, None)),
            false => self.modules.push(path),
        }
    }
}

fn begins_as_assignment(path: &Path) -> bool {
    let mut head = [0; ASSIGNMENT_HEAD.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == *ASSIGNMENT_HEAD.as_bytes()
}

pub(super) fn run(args: &ReportArgs) -> Result {
    let mut files = Files::default();
    for given in &args.files {
        if Path::new(given).is_dir() {
            list(Path::new(given), 0, &mut files).map_err(|error| {
                output::to_stderr(&format!("error: cannot read the folder `{given}`: {}\n", plain_reason(&error)));
                Stop(Outcome::InputAtFault)
            })?;
        } else {
            files.add(PathBuf::from(given));
        }
    }
    files.modules.sort();
    let folder = args.pages.then(|| format!("{}_pages", args.output.trim_end_matches(".html")));
    if let Some(folder) = &folder {
        output::make_folder(folder)?;
    }
    let mut entries = Vec::new();
    let Files { modules, mut assignments } = files;
    for (number, path) in modules.iter().enumerate() {
        entries.push(entry(args, path, number, folder.as_deref(), &mut assignments)?);
    }
    let unknown = "a buffer assignment of a module that is not here; `hloom memory MODULE --check FILE` judges it";
    let left = assignments.iter().filter(|a| !a.is_judged && a.of.is_none());
    entries.extend(left.map(|a| Entry::unreadable(&a.path.to_string_lossy(), unknown)));
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
fn entry(
    args: &ReportArgs,
    path: &Path,
    number: usize,
    folder: Option<&str>,
    assignments: &mut [Assignment],
) -> Result<Entry> {
    let name = path.to_string_lossy();
    let read = input::read(&name, None).and_then(|loaded| input::verify(loaded, None));
    let verified = match read {
        Ok(verified) => verified,
        Err(rejected) => return Ok(Entry::unreadable(&name, &reason(&rejected))),
    };
    let _progress = progress::start(format!("writing about {name}"));
    let mut entry = Entry::new(&name, &verified.module);
    entry.assignment = assignment_of(args, path, &verified, assignments)?;
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

/// The dumped assignment of a module, judged.
fn assignment_of(
    args: &ReportArgs,
    path: &Path,
    verified: &Verified,
    assignments: &mut [Assignment],
) -> Result<Option<DumpedAssignment>> {
    if !verified.module.module().is_scheduled {
        return Ok(None);
    }
    for assignment in assignments.iter_mut().filter(|a| !a.is_judged) {
        if assignment.of.as_deref().is_some_and(|of| of != path) {
            continue;
        }
        let Ok(bytes) = std::fs::read(&assignment.path) else { continue };
        let Ok(text) = text_of(&bytes) else { continue };
        let read = read_dump(verified.module.module(), text);
        let fault = match (&read, &assignment.of) {
            (Ok(_), _) => {
                let target = super::target(args, verified)?;
                check_dump(&verified.module, &target, text).first().map(|fault| fault.message.clone())
            }
            (Err(fault), Some(_)) => Some(fault.message.clone()),
            // It is another module's.
            (Err(_), None) => continue,
        };
        assignment.is_judged = true;
        let allocations = read.ok().and_then(|dump| dump.assignment).map_or_else(Vec::new, |a| a.allocations);
        let bytes = allocations.iter().fold(0i64, |n, a| n.saturating_add(a.size));
        let file = assignment.path.to_string_lossy().into_owned();
        return Ok(Some(DumpedAssignment { file, bytes, fault }));
    }
    Ok(None)
}

fn reason(rejected: &Rejected) -> String {
    rejected.diagnostics.first().map_or_else(String::new, |d| d.message.clone())
}

/// The files below a folder that may be modules. Of what a compiler dumped, those are the modules before and after
/// optimisation: the rest is about these.
fn list(folder: &Path, depth: usize, files: &mut Files) -> std::io::Result<()> {
    let DumpFolder { modules, foreign } = scan(folder)?;
    for module in modules {
        let after = module.after.map(|(path, _)| path);
        if let Some(path) = module.buffer_assignment {
            files.assignments.push(Assignment::new(path, after.clone()));
        }
        let found: Vec<PathBuf> = module.before.into_iter().chain(after).collect();
        // A run holds its program, too.
        let found = if found.is_empty() { module.snapshots } else { found };
        files.modules.extend(if found.is_empty() { module.passes } else { found });
    }
    for name in foreign {
        let path = folder.join(&name);
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            // A folder inside that cannot be read is passed over; the one that was named is not.
            if depth < DEEPEST {
                let _ = list(&path, depth + 1, files);
            }
        } else if ENDINGS.contains(&&*ending)
            && (begins_as_assignment(&path) || !BESIDE.iter().any(|b| name.contains(b)))
        {
            files.add(path);
        }
    }
    Ok(())
}

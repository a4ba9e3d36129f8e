//! Where results and words go. The only place that writes: standard output, standard error and files.
//!
//! - A reader that went away (a closed pipe) is no error: what it did not want is not missed.
//! - A file is never lost or left half-written: output goes to a new file beside it, which takes its place when complete.

use super::{Outcome, Result, Stop, render};
use hloom::Source;
use hloom::ir::diagnostic::codes::io::CANNOT_WRITE;
use hloom::ir::diagnostic::{Blame, Diagnostic};
use hloom::ir::module::Module;
use hloom::load::plain_reason;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Writes a result to standard output.
pub(crate) fn to_stdout(bytes: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Stop(Outcome::Well)),
        Err(error) => Err(cannot_write("<stdout>", &error)),
    }
}

/// Says something beside the result. There is nobody left to tell when this fails.
pub(crate) fn to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Says something that every rank of a job would say: the first does.
pub(crate) fn inform(text: &str) {
    if hloom::comm::launched().is_none_or(|process| process.rank == 0) {
        to_stderr(text);
    }
}

/// Shows diagnostics to people.
pub(crate) fn show(source: &Source, module: Option<&Module>, diagnostics: &[Diagnostic]) {
    if let Some(bug) = diagnostics.iter().find(|d| d.blame == Blame::Hloom) {
        super::crash::remember_bug(&bug.message);
    }
    if !diagnostics.is_empty() {
        to_stderr(&render::report(source, module, diagnostics, render::colour_on_stderr()));
    }
}

/// Writes a result to the file `path`, or to standard output for `-`.
pub(crate) fn to_path(path: &str, bytes: &[u8]) -> Result<()> {
    if path == "-" {
        return to_stdout(bytes);
    }
    replace_file(&hloom::paths::to_path(path), bytes).map_err(|error| cannot_write(path, &error))
}

/// Makes the folder `path`, unless it is there.
pub(crate) fn make_folder(path: &str) -> Result<()> {
    fs::create_dir_all(hloom::paths::to_path(path)).map_err(|error| cannot_write(path, &error))
}

/// Gives the file at `path` the content `bytes`, all of it or none.
fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // What a link names is replaced, not the link; where nothing is yet, the path itself is meant.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match fs::metadata(&path) {
        // A device or a pipe cannot be replaced, and has nothing to lose.
        Ok(old) if !old.is_file() => return fs::OpenOptions::new().write(true).open(&path)?.write_all(bytes),
        Ok(old) if old.permissions().readonly() => return Err(ErrorKind::PermissionDenied.into()),
        _ => {}
    }
    let temporary = temporary_beside(&path);
    let written = write_new(&temporary, &path, bytes).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_new(temporary: &Path, old: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(temporary)?;
    if let Ok(old) = fs::metadata(old) {
        file.set_permissions(old.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

/// A name in the same folder (a rename works only within one file system) that nobody else uses.
fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

fn cannot_write(name: &str, error: &io::Error) -> Stop {
    let message = format!("cannot write `{name}`: {}", plain_reason(error));
    let diagnostic = Diagnostic::error(&CANNOT_WRITE, message).blame(Blame::Machine);
    to_stderr(&format!("{diagnostic}\n"));
    Stop(Outcome::InputAtFault)
}

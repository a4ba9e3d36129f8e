//! When hloom itself is at fault: say so, and leave a file that shows the bug again.
//!
//! A panic anywhere in a command ends here, and so does what a stage of the compiler should never have made. The reproducer of a text input is the input itself below a comment that
//! tells the command, the version and the panic; of a proto, the bytes, beside a text file with the same words.

use super::{Outcome, heap, output};
use hloom::Format;
use std::backtrace::Backtrace;
use std::fmt::Write;
use std::io;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What a command works on, kept for the reproducer.
struct Input {
    name: String,
    bytes: Arc<Vec<u8>>,
}

static LAST_INPUT: Mutex<Option<Input>> = Mutex::new(None);
/// All panics so far, the first one first.
static PANICS: Mutex<Option<String>> = Mutex::new(None);

/// Bytes of panics after which no more are told.
const MOST_TOLD: usize = 64 << 10;

/// Tells which input would be to blame for a panic from now on.
pub(crate) fn remember_input(name: &str, bytes: &Arc<Vec<u8>>) {
    *lock(&LAST_INPUT) = Some(Input { name: name.to_owned(), bytes: bytes.clone() });
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `command`; a panic in it becomes [`Outcome::Bug`], and a reproducer is written to the current folder, or to the
/// one for temporary files if that cannot be written to.
pub(crate) fn guard(command: impl FnOnce() -> Outcome + Send + 'static) -> Outcome {
    panic::set_hook(Box::new(|info| {
        let mut report = format!("{info}\n");
        let _ = write!(report, "{}", Backtrace::force_capture());
        // Threads that wait for one that has panicked panic as well: what came first is the cause.
        let mut panics = lock(&PANICS);
        match panics.as_mut() {
            Some(earlier) if earlier.len() < MOST_TOLD => earlier.push_str(&format!("\nand then {report}")),
            Some(_) => {}
            None => *panics = Some(report),
        }
    }));
    heap::grow_in_large_steps();
    let command = || {
        heap::use_huge_pages();
        command()
    };
    // Readers bound how deep they recurse; the room for that is not left to the environment's stack limit.
    let thread = std::thread::Builder::new().name("hloom".into()).stack_size(64 << 20).spawn(command);
    let thread = match thread {
        Ok(thread) => thread,
        Err(error) => {
            output::to_stderr(&format!("error: no thread can be started: {error}\n"));
            return Outcome::MachineAtFault;
        }
    };
    let outcome = thread.join().unwrap_or(Outcome::Bug);
    if outcome == Outcome::Bug {
        let folders = [PathBuf::from("."), std::env::temp_dir()];
        output::to_stderr(&say(folders.iter().map(PathBuf::as_path)));
    }
    outcome
}

/// Notes what is wrong with hloom itself, found without a panic.
pub(crate) fn remember_bug(message: &str) {
    lock(&PANICS).get_or_insert_with(|| message.to_owned());
}

/// Writes the reproducer and says what happened and where it is.
fn say<'a>(folders: impl Iterator<Item = &'a Path>) -> String {
    let panic = lock(&PANICS).take().unwrap_or_else(|| "nothing more is known".into());
    let input = lock(&LAST_INPUT).take();
    let first_lines: Vec<&str> = panic.lines().take(2).collect();
    let mut text =
        format!("error[H0890]: this is a bug in hloom, not in your input\n  = note: {}\n", first_lines.join(" "));
    for folder in folders {
        if let Ok(path) = write_reproducer(folder, &panic, input.as_ref()) {
            let _ = writeln!(text, "  = help: {} shows it again; please report it with this file", path.display());
            return text;
        }
    }
    text.push_str("  = note: no reproducer could be written\n");
    text
}

fn write_reproducer(folder: &Path, panic: &str, input: Option<&Input>) -> io::Result<PathBuf> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let command = words.collect::<Vec<_>>().join(" ");
    let mut words = format!("// hloom {} had a bug here.\n// command: {command}\n", env!("CARGO_PKG_VERSION"));
    if let Some(input) = input {
        let _ = writeln!(words, "// input: {}", input.name);
    }
    for line in panic.lines() {
        let _ = writeln!(words, "// {line}");
    }
    let stem = folder.join(format!("hloom-bug-{}", std::process::id()));
    let words_path = stem.with_extension("txt");
    // Never over a file, or through a link, that somebody else has put there.
    let write = |path: &Path, bytes: &[u8]| {
        let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
        file.and_then(|mut file| io::Write::write_all(&mut file, bytes))
    };
    match input {
        Some(input) if Format::of_bytes(&input.bytes) == Format::HloText => {
            let path = stem.with_extension("hlo");
            write(&path, &[words.as_bytes(), &input.bytes].concat())?;
            Ok(path)
        }
        Some(input) => {
            let path = stem.with_extension("pb");
            write(&words_path, words.as_bytes())?;
            write(&path, &input.bytes)?;
            Ok(path)
        }
        None => write(&words_path, words.as_bytes()).map(|()| words_path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_leaves_a_reproducer_that_holds_the_input() {
        let folder = std::env::temp_dir().join(format!("hloom-crash-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for temporary files");
        *lock(&PANICS) = Some("panicked at here\nindex out of bounds".into());
        remember_input("m.hlo", &Arc::new(b"HloModule m\n".to_vec()));
        let missing = folder.join("missing");
        let said = say([missing.as_path(), folder.as_path()].into_iter());
        let path = folder.join(format!("hloom-bug-{}.hlo", std::process::id()));
        assert!(said.contains(&path.display().to_string()), "{said}");
        assert!(said.contains("index out of bounds"), "{said}");
        let reproducer = std::fs::read_to_string(&path).expect("the reproducer is there");
        assert!(reproducer.ends_with("// index out of bounds\nHloModule m\n"), "{reproducer}");
        std::fs::remove_dir_all(&folder).expect("the folder can go");
    }
}

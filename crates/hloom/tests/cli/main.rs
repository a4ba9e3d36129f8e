//! The `hloom` command as its users meet it: what it prints where, and its exit status.

mod accessibility;
mod bad_input;
mod bench;
mod bisect;
mod browser;
mod check;
mod compile;
mod convert;
mod diff;
mod explain;
mod fmt;
mod memory;
mod memory_page;
mod opt;
mod partition;
mod replay;
mod report_page;
mod run;
mod run_inputs;
mod schedule;
mod simulate;
mod stats;
mod verify;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a run of the command gave.
struct Ran {
    status: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    /// Fails unless the exit status is that.
    #[track_caller]
    fn exits(self, status: i32) -> Ran {
        assert_eq!(self.status, status, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

/// Runs `hloom` with these arguments in `folder`.
fn hloom_in(folder: &Path, args: &[&str], stdin: &[u8]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hloom"))
        .args(args)
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("hloom starts");
    let mut pipe = child.stdin.take().expect("it has standard input");
    let input = stdin.to_vec();
    // In a thread of its own, since the command may write before it has read everything. It need not read at all.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&input)));
    let output = child.wait_with_output().expect("hloom ends");
    writer.join().expect("the writer ends");
    let text = |bytes| String::from_utf8(bytes).expect("hloom writes UTF-8");
    Ran { status: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A folder for the files of one test, which goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("hloom-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for temporary files");
        Folder(path)
    }
    /// Writes a file.
    fn with(self, name: &str, content: impl AsRef<[u8]>) -> Folder {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("it is in the folder")).expect("it can be made");
        std::fs::write(path, content).expect("it can be written");
        self
    }
    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("it can be listed");
        let mut names: Vec<String> =
            entries.map(|e| e.expect("it can be listed").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
    /// Runs `hloom` in the folder.
    fn hloom(&self, args: &[&str]) -> Ran {
        hloom_in(&self.0, args, b"")
    }
    /// The same with something on standard input.
    fn hloom_with(&self, args: &[&str], stdin: impl AsRef<[u8]>) -> Ran {
        hloom_in(&self.0, args, stdin.as_ref())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A small module as a person writes it.
const WRITTEN: &str = "HloModule m

ENTRY main {
  x = f32[2,3] parameter(0)
  y = f32[2,3] parameter(1)
  ROOT z = f32[2,3] add(x, y)
}
";

/// The same as it is printed.
const PRINTED: &str = "HloModule m, entry_computation_layout={(f32[2,3]{1,0}, f32[2,3]{1,0})->f32[2,3]{1,0}}

ENTRY %main (x: f32[2,3], y: f32[2,3]) -> f32[2,3] {
  %x = f32[2,3]{1,0} parameter(0)
  %y = f32[2,3]{1,0} parameter(1)
  ROOT %z = f32[2,3]{1,0} add(%x, %y)
}
";

/// A module whose root claims a shape that it does not have.
const WRONG_SHAPE: &str = "HloModule m

ENTRY main {
  x = f32[2,3] parameter(0)
  ROOT z = f32[2,4] negate(x), metadata={op_name=\"jit(f)/neg\" source_file=\"model.py\" source_line=7}
}
";

/// Every line of `text` as a JSON value.
fn json_lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect()
}

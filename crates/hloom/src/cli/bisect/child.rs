//! Candidates in processes of their own: whatever one does, crash, hang or take all memory, the search goes on.

use hloom::Engine;
use hloom::arrays;
use hloom::ir::verify::VerifiedModule;
use hloom::report::reduce::Case;
use hloom::value::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How processes are run.
pub(super) struct Runner<'r> {
    /// Where their files are.
    pub(super) folder: PathBuf,
    /// How long one may take.
    pub(super) time_limit: Duration,
    /// How much memory one may take, in bytes.
    pub(super) memory_limit: u64,
    /// Ends them.
    pub(super) stop: &'r AtomicBool,
    next: AtomicUsize,
}

/// How a process ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// With this status; what it said first.
    With(i32, String),
    /// By a signal.
    Killed,
    /// It took longer than it may.
    TimedOut,
    /// It could not be run, or the search was stopped.
    NotRun,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub(super) enum Ran {
    /// Results, by device.
    Results(Vec<Value>),
    /// None.
    Nothing(Ended),
}

/// The files of a case, gone when it is.
pub(super) struct CaseFiles {
    folder: PathBuf,
}

impl Drop for CaseFiles {
    fn drop(&mut self) {
        // What is left behind is in a folder of its own.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl CaseFiles {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl<'r> Runner<'r> {
    pub(super) fn new(folder: &Path, time_limit: Duration, memory_limit: u64, stop: &'r AtomicBool) -> Runner<'r> {
        Runner { folder: folder.to_owned(), time_limit, memory_limit, stop, next: AtomicUsize::new(0) }
    }

    /// Writes the program and its inputs for a process to read.
    pub(super) fn files(&self, case: &Case) -> Option<CaseFiles> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let files = CaseFiles { folder: self.folder.join(format!("candidate-{}-{number}", std::process::id())) };
        std::fs::create_dir_all(&files.folder).ok()?;
        std::fs::write(files.path("case.hlo"), case.text()).ok()?;
        std::fs::write(files.path("input.npz"), arrays::inputs_to_npz(&case.inputs)).ok()?;
        Some(files)
    }

    /// Runs `hloom` with these arguments.
    pub(super) fn hloom(&self, arguments: &[&str]) -> Ended {
        let Ok(program) = std::env::current_exe() else { return Ended::NotRun };
        let mut command = Command::new("sh");
        // A process that asks for more memory than there is must not take the machine with it.
        let limit = format!("ulimit -v {} 2>/dev/null; exec \"$@\"", self.memory_limit / 1024);
        command.arg("-c").arg(limit).arg("sh").arg(program).args(arguments);
        // What a crash leaves behind stays among the files of the search.
        command.current_dir(&self.folder);
        self.run(command)
    }

    /// Runs a command of the user's.
    pub(super) fn shell(&self, line: &str) -> Ended {
        let mut command = Command::new("sh");
        command.arg("-c").arg(line);
        self.run(command)
    }

    fn run(&self, mut command: Command) -> Ended {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let said = self.folder.join(format!("said-{}-{number}", std::process::id()));
        let Ok(file) = std::fs::File::create(&said) else { return Ended::NotRun };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        // A group of its own, so that what it starts ends with it.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let Ok(mut child) = command.spawn() else { return Ended::NotRun };
        let begun = Instant::now();
        let mut pause = Duration::from_millis(1);
        let ended = loop {
            match child.try_wait() {
                Ok(Some(status)) => break of_status(status, &said),
                Ok(None) if begun.elapsed() > self.time_limit => break Ended::TimedOut,
                Ok(None) if self.stop.load(Ordering::Relaxed) => break Ended::NotRun,
                Ok(None) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
                Err(_) => break Ended::NotRun,
            }
        };
        if matches!(ended, Ended::TimedOut | Ended::NotRun) {
            #[cfg(unix)]
            let _ = Command::new("kill").args(["-9", "--", &format!("-{}", child.id())]).stderr(Stdio::null()).status();
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(&said);
        ended
    }

    /// Runs a case by an engine.
    pub(super) fn engine(&self, case: &Case, files: &CaseFiles, engine: Engine) -> Ran {
        let Some(verified) = case.verified() else { return Ran::Nothing(Ended::NotRun) };
        self.engine_on(&verified, case.inputs.len(), files, "case.hlo", engine)
    }

    /// Runs the program in the file `name` by an engine; `module` is that program.
    pub(super) fn engine_on(
        &self,
        module: &VerifiedModule,
        devices: usize,
        files: &CaseFiles,
        name: &str,
        engine: Engine,
    ) -> Ran {
        let out = files.path(&format!("{name}.{}.npz", engine.name()));
        let (program, input) = (files.path(name), files.path("input.npz"));
        let text = |p: &Path| p.display().to_string();
        let (program, input, output) = (text(&program), text(&input), text(&out));
        let count = devices.to_string();
        let arguments = ["run", &program, "--engine", engine.name(), "--devices", &count, "--input", &input];
        let ended = self.hloom(&[&arguments[..], &["--output", &output]].concat());
        match ended {
            Ended::With(0, _) => match std::fs::read(&out).ok().and_then(|b| arrays::read_results(module, devices, &b))
            {
                Some(results) => Ran::Results(results),
                None => Ran::Nothing(Ended::NotRun),
            },
            ended => Ran::Nothing(ended),
        }
    }
}

fn of_status(status: ExitStatus, said: &Path) -> Ended {
    let Some(code) = status.code() else { return Ended::Killed };
    let text = std::fs::read(said).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    // The line that says what is wrong, without what it is about: that changes from one candidate to the next.
    let first = text.lines().find(|l| l.starts_with("error")).or_else(|| text.lines().next());
    Ended::With(code, first.unwrap_or_default().to_owned())
}

impl Ended {
    /// Whether two processes ended in the same way: the same status and code of diagnostic.
    pub(super) fn is_like(&self, other: &Ended) -> bool {
        let code = |said: &str| said.split(':').next().unwrap_or_default().to_owned();
        match (self, other) {
            (Ended::With(a, x), Ended::With(b, y)) => a == b && code(x) == code(y),
            (a, b) => a == b,
        }
    }

    /// In words.
    pub(super) fn words(&self) -> String {
        match self {
            Ended::With(0, _) => "ends well".into(),
            Ended::With(3, said) => format!("has a bug: {said}"),
            Ended::With(code, said) => format!("fails with status {code}: {said}"),
            Ended::Killed => "crashes".into(),
            Ended::TimedOut => "does not end in time".into(),
            Ended::NotRun => "could not be run".into(),
        }
    }
}

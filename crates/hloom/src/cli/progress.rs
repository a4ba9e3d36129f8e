//! A sign of life on the terminal while something takes long.
//!
//! Nothing appears for what takes less than [`PATIENCE`], nor when standard error is not a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

/// Shows that work is going on until it is dropped.
pub(crate) struct Progress(Option<(Sender<()>, JoinHandle<()>)>);

/// Where work is that takes long.
pub(crate) enum At {
    /// Not known.
    Unknown,
    /// At the thing of this name.
    Name(String),
    /// `done` of `total` is behind.
    Share { done: usize, total: usize },
}

/// Does `work`; if it takes long, shows `what` and where the work is, as `at` tells.
pub(crate) fn follow<T: Send>(what: &str, at: impl Fn() -> At + Sync, work: impl FnOnce() -> T + Send) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let begun = Instant::now();
    let (done, wait) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let wait = wait;
            if wait.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let bar = spinner(begun, what.to_owned());
            while wait.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                match at() {
                    At::Unknown => bar.tick(),
                    At::Name(name) => bar.set_message(format!("{what} {name}")),
                    At::Share { done, total } => {
                        if bar.length().is_none() {
                            bar.set_length(total as u64);
                            set_style(&bar, "{spinner} {msg} [{bar:40}] {percent} % [{elapsed}]");
                        }
                        bar.set_position(done as u64);
                    }
                }
            }
            bar.finish_and_clear();
        });
        let result = work();
        drop(done);
        result
    })
}

fn spinner(begun: Instant, what: String) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_elapsed(begun.elapsed()).with_message(what);
    set_style(&bar, "{spinner} {msg} [{elapsed}]");
    bar
}

fn set_style(bar: &ProgressBar, template: &str) {
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner()));
}

/// Begins to wait; `what` is what takes so long.
pub(crate) fn start(what: String) -> Progress {
    if !std::io::stderr().is_terminal() {
        return Progress(None);
    }
    let (done, wait) = channel();
    let begun = Instant::now();
    let ticker = std::thread::Builder::new().name("progress".into()).spawn(move || {
        if wait.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let bar = spinner(begun, what);
        while wait.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            bar.tick();
        }
        bar.finish_and_clear();
    });
    // A machine that cannot start one more thread still reads files.
    Progress(ticker.ok().map(|t| (done, t)))
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((done, ticker)) = self.0.take() {
            drop(done);
            // Waiting for it keeps the line it draws from mixing with what is said next.
            let _ = ticker.join();
        }
    }
}

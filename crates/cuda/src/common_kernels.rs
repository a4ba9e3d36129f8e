//! The kernels that programs are most likely to ask for, assembled before any does: once on a machine, in the background,
//! into the files that machine code is kept in.
//!
//! Where there are no such files nothing is done: it would have to be done again by every process. Processes that start at
//! the same time leave the work to one of them.

use crate::cubin::{Assembler, folder};
use hloom_cuda_kernels::{Architecture, common};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A process that began longer ago has not ended well.
const STALE: Duration = Duration::from_secs(120);
/// More threads than this wait for memory.
const MOST_THREADS: usize = 8;

/// Assembles what is not there yet, until `stop` says so.
pub(crate) fn assemble(assembler: &Assembler, architecture: Architecture, stop: &AtomicBool) {
    let Some(claim) = Claim::take(architecture) else { return };
    let texts = common::texts(architecture);
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(text) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
            if stop.load(Ordering::Relaxed) || assembler.keep_in_file(text, architecture).is_err() {
                return;
            }
        }
    };
    // Half of the processors: programs are compiled meanwhile.
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().div_ceil(2)).min(MOST_THREADS);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    if !stop.load(Ordering::Relaxed) && next.load(Ordering::Relaxed) >= texts.len() {
        claim.fulfil();
    }
}

/// What one process alone has: that it does the work. It is let go of when it is dropped.
struct Claim {
    file: PathBuf,
    done: PathBuf,
}

impl Claim {
    /// The claim to the work, if it is not done and no other process has it.
    fn take(architecture: Architecture) -> Option<Claim> {
        let folder = folder()?;
        let name = format!("common-{architecture}-{}", env!("HLOOM_SOURCES"));
        let (done, file) = (folder.join(format!("{name}.done")), folder.join(format!("{name}.claim")));
        if done.exists() {
            return None;
        }
        std::fs::create_dir_all(&folder).ok()?;
        let age = std::fs::metadata(&file).and_then(|m| m.modified()).ok().and_then(|m| m.elapsed().ok());
        if age.is_some_and(|age| age > STALE) {
            let _ = std::fs::remove_file(&file);
        }
        std::fs::File::options().write(true).create_new(true).open(&file).ok()?;
        Some(Claim { file, done })
    }

    /// Says that the work is done.
    fn fulfil(&self) {
        // Whoever does not find it does the work again.
        let _ = std::fs::write(&self.done, []);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

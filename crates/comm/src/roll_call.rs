//! Which ranks of this host have started, and which have died: what no message can tell.
//!
//! Every rank holds a lock on a file of its own as long as it lives, in a folder of the job; the system lets go of the lock
//! when the process is no more, however it ended. Its file says which process it is; a rank that ends by itself says so in
//! it first. No data go this way. Where ranks are on several hosts each sees those of its own.

use crate::launcher::LaunchedProcess;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// What a rank writes when it ends by itself.
const ENDED: &[u8] = b"ended";

/// The ranks of a job on this host.
#[derive(Debug)]
pub struct RollCall {
    folder: PathBuf,
    rank: usize,
    size: usize,
    /// Whether all ranks of the job are on this host.
    all_here: bool,
    /// Open, and so locked, until the process ends.
    _own: File,
}

impl RollCall {
    /// Says that this rank has started. `None` where the job cannot be told from others, or there is no place for files.
    pub fn join(process: LaunchedProcess) -> Option<RollCall> {
        // SAFETY: the function has no conditions.
        let user = unsafe { libc::geteuid() };
        let place = std::env::temp_dir().join(format!("hloom-ranks-{user}"));
        let number = |name: &str| std::env::var(name).ok()?.trim().parse::<usize>().ok();
        let here = number("OMPI_COMM_WORLD_LOCAL_SIZE").or_else(|| number("MPI_LOCALNRANKS"));
        let all_here = here == Some(process.size) || number("SLURM_STEP_NUM_NODES") == Some(1);
        let launcher = launcher_process()?;
        forget_old_jobs(&place);
        RollCall::join_in(&place.join(launcher), process, all_here)
    }

    fn join_in(folder: &Path, process: LaunchedProcess, all_here: bool) -> Option<RollCall> {
        let LaunchedProcess { rank, size } = process;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).ok()?;
        let mut own =
            File::options().read(true).write(true).create(true).truncate(true).open(file_of(folder, rank)).ok()?;
        own.write_all(std::process::id().to_string().as_bytes()).ok()?;
        lock(&own, libc::LOCK_EX).then_some(RollCall { folder: folder.to_owned(), rank, size, all_here, _own: own })
    }

    /// The ranks that have not started; none where some would start elsewhere.
    pub fn missing(&self) -> Vec<usize> {
        let has_started = |rank: &usize| file_of(&self.folder, *rank).exists();
        (0..self.size).filter(|rank| self.all_here && !has_started(rank)).collect()
    }

    /// The ranks of this host that ended without a word.
    pub fn dead(&self) -> Vec<usize> {
        let is_dead = |rank: &usize| {
            let Ok(file) = File::open(file_of(&self.folder, *rank)) else { return false };
            lock(&file, libc::LOCK_SH)
                && fs::read(file_of(&self.folder, *rank)).is_ok_and(|said| !said.starts_with(ENDED))
        };
        (0..self.size).filter(|&rank| rank != self.rank).filter(is_dead).collect()
    }

    /// The ranks of this host that are stopped: they neither go on nor end.
    pub fn stopped(&self) -> Vec<usize> {
        let is_stopped = |rank: &usize| {
            let said = fs::read_to_string(file_of(&self.folder, *rank)).ok();
            said.and_then(|id| id.parse().ok()).is_some_and(is_stopped)
        };
        (0..self.size).filter(|&rank| rank != self.rank).filter(is_stopped).collect()
    }

    /// Says that this rank ends by itself, or is told to.
    pub fn leave(&self) {
        if let Ok(mut file) = File::options().write(true).open(file_of(&self.folder, self.rank)) {
            let _ = file.write_all(ENDED);
        }
    }

    /// Takes this rank's file away; the job has ended well.
    pub fn end(&self) {
        let _ = fs::remove_file(file_of(&self.folder, self.rank));
        // The last one takes the folder.
        let _ = fs::remove_dir(&self.folder);
    }
}

fn file_of(folder: &Path, rank: usize) -> PathBuf {
    folder.join(rank.to_string())
}

/// Locks a file, if nobody else has.
fn lock(file: &File, how: i32) -> bool {
    // SAFETY: the file is open.
    unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) == 0 }
}

/// Whether a process is stopped, by a signal or by a debugger.
fn is_stopped(id: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    text.rsplit_once(')').is_some_and(|(_, after)| after.trim_start().starts_with(['T', 't']))
}

/// The name, parent and time of start of a process.
fn process_state(id: u32) -> Option<(String, u32, String)> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name is in parentheses, and may have some itself.
    let (before, after) = text.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    let mut fields = after.split_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    Some((name, parent, fields.nth(17)?.to_owned()))
}

/// The nearest process above this one that starts the ranks of a job, by number and time of start: no two jobs have it.
fn launcher_process() -> Option<String> {
    const LAUNCHERS: [&str; 8] = ["mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "hydra", "slurmstepd"];
    let mut id = std::process::id();
    for _ in 0..64 {
        let (name, parent, begun) = process_state(id)?;
        if LAUNCHERS.iter().any(|l| name.starts_with(l)) {
            return Some(format!("{id}-{begun}"));
        }
        id = parent;
    }
    None
}

/// Takes away what jobs have left whose launcher is no more.
fn forget_old_jobs(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let lives = name.split_once('-').is_some_and(|(id, begun)| {
            id.parse().ok().and_then(process_state).is_some_and(|(_, _, since)| since == begun)
        });
        if !lives {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(folder: &Path, rank: usize) -> RollCall {
        RollCall::join_in(folder, LaunchedProcess { rank, size: 3 }, true).unwrap()
    }

    #[test]
    fn who_has_not_come_and_who_is_gone_are_told_apart() {
        let folder = std::env::temp_dir().join(format!("hloom-roll-call-test-{}", std::process::id()));
        let first = rank(&folder, 0);
        assert_eq!((first.missing(), first.dead()), (vec![1, 2], vec![]));
        let (second, third) = (rank(&folder, 1), rank(&folder, 2));
        assert_eq!((first.missing(), first.dead()), (vec![], vec![]));
        // One ends by itself, the other without a word.
        third.leave();
        drop(third);
        drop(second);
        assert_eq!((first.missing(), first.dead()), (vec![], vec![1]));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn stopped_ranks_are_known() {
        let folder = std::env::temp_dir().join(format!("hloom-roll-call-stopped-{}", std::process::id()));
        let first = rank(&folder, 0);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        fs::write(file_of(&folder, 1), child.id().to_string()).unwrap();
        assert_eq!(first.stopped(), Vec::<usize>::new());
        // SAFETY: the process is the one that was started here.
        unsafe { libc::kill(child.id() as i32, libc::SIGSTOP) };
        let begun = std::time::Instant::now();
        while first.stopped().is_empty() && begun.elapsed().as_secs() < 20 {
            std::thread::yield_now();
        }
        assert_eq!(first.stopped(), [1]);
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn processes_are_known() {
        let (_, parent, begun) = process_state(std::process::id()).unwrap();
        assert!(parent > 0 && begun.parse::<u64>().is_ok());
    }
}

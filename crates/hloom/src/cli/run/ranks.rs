//! `hloom run` under mpirun or srun: ranks that own the program's devices in order, and what they tell each other.
//!
//! Every rank reads, partitions and compiles the same program, and runs its own devices. Before the first step the ranks
//! compare what they have compiled; results and records come together at rank 0. Whatever goes wrong on one rank ends the
//! others with an error that names it, within the time limit; nothing is written before all ranks have succeeded.

use super::super::args::RunArgs;
use super::super::{Outcome, Result, Stop, output, usage_error};
use super::{interrupted, run_path};
use hloom::arrays;
use hloom::comm::world::SilentRanks;
use hloom::comm::{Communicator, JoinError, LaunchedProcess, RollCall, World, mpi};
use hloom::compiler::CompiledModule;
use hloom::eval::DeviceGrid;
use hloom::formats::hlo_text;
use hloom::ir::diagnostic::codes::eval::{CANCELLED, RANKS};
use hloom::ir::diagnostic::{Blame, Diagnostic};
use hloom::value::{Array, ExecutionError, Value};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What ranks tell each other, by channel.
const THREADS: i64 = 1;
const PROGRAM: i64 = 2;
const RESULTS: i64 = 3;
const EVENTS: i64 = 4;
const MEETING: i64 = 5;
const END: i64 = 6;

/// How long a rank that has failed stays, so that the others hear of it before the launcher ends them.
const FAREWELL: Duration = Duration::from_secs(1);

/// The ranks of the job, as one of them sees it.
pub(super) struct Ranks {
    world: Arc<World>,
    time_limit: Duration,
    threads: usize,
    runs: AtomicU64,
    roll: Arc<Option<RollCall>>,
}

/// Runs the program on this rank, and ends together with the others.
pub(super) fn run(args: &RunArgs, process: LaunchedProcess) -> Result {
    let time_limit = Duration::from_secs(args.time_limit.unwrap_or(600));
    // From now on a signal of the launcher is noticed, not obeyed at once: the rank says what it was waiting for.
    interrupted();
    let roll = Arc::new(RollCall::join(process));
    let joined = join(process, time_limit, &roll);
    let leave = |stop| {
        roll.iter().for_each(RollCall::leave);
        stop
    };
    let world = Arc::new(joined.map_err(leave)?);
    watch_over(&world, &roll);
    let mut ranks = Ranks { world, time_limit, threads: 1, runs: AtomicU64::new(0), roll: roll.clone() };
    let result = ranks.agree_on_threads().and_then(|()| run_path(args, Some(&ranks)));
    let outcome = match result {
        Ok(outcome) => ranks.end(outcome),
        Err(Stop(outcome)) => Err(Stop(outcome)),
    };
    if let Err(Stop(outcome)) = &outcome
        && *outcome != Outcome::Well
    {
        roll.iter().for_each(RollCall::leave);
        let why = FIRST_FAULT.get().map_or_else(String::new, |why| format!(": {why}"));
        ranks.world.fail(&format!("rank {} ended early{why}", ranks.rank()));
        // A launcher that has told this rank to end waits for it no longer than a second.
        let until = Instant::now() + FAREWELL;
        while Instant::now() < until && !is_interrupted() {
            ranks.world.flush(Duration::from_millis(10));
            std::thread::sleep(Duration::from_millis(10));
        }
        if is_interrupted() {
            // It does not wait for this rank to put everything away either.
            World::leave(i32::from(outcome.code()));
        }
    } else {
        roll.iter().for_each(RollCall::end);
    }
    outcome
}

/// What is for one process only.
pub(super) fn check_supported(args: &RunArgs) -> Result<()> {
    let options = [
        ("--snapshot", args.snapshot.is_some()),
        ("--compare-with", args.compare_with.is_some()),
        ("--print-values", !args.print_values.is_empty()),
        ("--check-nan", args.check_nan),
    ];
    match options.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(usage_error(&format!("{name} is for runs in one process"))),
        None => Ok(()),
    }
}

/// Joins the job, if all its ranks come within the time limit.
fn join(process: LaunchedProcess, time_limit: Duration, roll: &Option<RollCall>) -> Result<World> {
    let (done, joined) = channel();
    // MPI waits for all ranks, for ever if need be; whoever gives up leaves it behind.
    std::thread::spawn(move || {
        let _ = done.send(mpi::init());
    });
    let begun = Instant::now();
    let LaunchedProcess { rank, size } = process;
    // A launcher that ends the job lets stopped ranks go on, so that they end: who was stopped until then is to be named.
    let (mut asked, mut was_stopped) = (begun, None);
    let transport = loop {
        if asked.elapsed() >= Duration::from_secs(1) {
            asked = Instant::now();
            let stopped = roll.as_ref().and_then(|roll| say(roll.stopped(), "was stopped", "were stopped"));
            was_stopped = stopped.or(was_stopped);
        }
        match joined.recv_timeout(Duration::from_millis(50)) {
            Ok(Ok(transport)) => break transport,
            Ok(Err(error)) => return Err(fault(format!("rank {rank} cannot join the job: {}", error.0), &[])),
            Err(RecvTimeoutError::Timeout) if begun.elapsed() < time_limit && !is_interrupted() => {}
            Err(_) if is_interrupted() => {
                let message = format!("rank {rank} was told to end before all {size} ranks had started");
                let missing = roll.as_ref().map_or_else(Vec::new, RollCall::missing);
                let late = (!missing.is_empty()).then(|| format!("{} had not started", words(&missing)));
                return Err(fault(message, &dead(roll).or(was_stopped).into_iter().chain(late).collect::<Vec<_>>()));
            }
            Err(_) => {
                let seconds = time_limit.as_secs();
                let missing = roll.as_ref().map_or_else(Vec::new, RollCall::missing);
                let message = match missing.is_empty() {
                    true => format!("not all of the {size} ranks have started within {seconds} s"),
                    false => format!("{} of {size} did not start within {seconds} s", words(&missing)),
                };
                let absent = dead(roll).or(was_stopped);
                let notes: Vec<String> = absent.into_iter().chain([format!("this is rank {rank}")]).collect();
                return Err(fault(message, &notes));
            }
        }
    };
    if transport.size() != size {
        let (found, variable) = (transport.size(), mpi::LIBRARY_VARIABLE);
        let message = format!("the launcher started {size} ranks, but the MPI library knows of {found}");
        let note = format!("the library must be that of the launcher: name it with {variable}");
        return Err(fault(message, &[note]));
    }
    Ok(World::new(transport, Some(interrupted())))
}

/// How long a rank may take to notice that it is to end, or that a wait is over.
const GRACE: Duration = Duration::from_millis(400);

/// Ends this rank where the MPI library keeps it: some never return from a call when a rank that they read from has died.
fn watch_over(world: &Arc<World>, roll: &Arc<Option<RollCall>>) {
    let (world, roll) = (Arc::downgrade(world), roll.clone());
    std::thread::spawn(move || {
        let mut told = None;
        while let Some(world) = world.upgrade() {
            std::thread::sleep(Duration::from_millis(50));
            if is_interrupted() && told.is_none() {
                roll.iter().for_each(RollCall::leave);
                told = Some(Instant::now());
            }
            let is_told = told.is_some_and(|when| when.elapsed() > GRACE);
            let waits = world.waits();
            let stuck = waits.iter().find(|w| is_told || w.until + GRACE * 4 < Instant::now());
            if let Some(wait) = stuck {
                let (name, whom, here) = (&wait.name, words(&wait.ranks), world.rank());
                let message = match is_told {
                    true => format!("{name} was waiting for {whom} when rank {here} was told to end"),
                    false => format!("{name} waits for {whom} on rank {here} after its time limit"),
                };
                let guess = || "the MPI library does not return: the rank has probably died".to_owned();
                fault(message, &[dead(&roll).unwrap_or_else(guess)]);
                World::leave(4);
            }
        }
    });
}

/// Names the ranks that have died or are stopped.
fn dead(roll: &Option<RollCall>) -> Option<String> {
    let roll = roll.as_ref()?;
    let said = [say(roll.dead(), "has died", "have died"), say(roll.stopped(), "is stopped", "are stopped")];
    said.into_iter().flatten().reduce(|a, b| format!("{a}, {b}"))
}

/// What is the matter with ranks, if there are any.
fn say(ranks: Vec<usize>, one: &str, many: &str) -> Option<String> {
    let verb = if ranks.len() == 1 { one } else { many };
    (!ranks.is_empty()).then(|| format!("{} {verb}", words(&ranks)))
}

fn is_interrupted() -> bool {
    interrupted().load(Ordering::Relaxed)
}

/// What this rank said first of what is wrong with the job: those that hear of its end only hear of this, too.
static FIRST_FAULT: OnceLock<String> = OnceLock::new();

/// Says what is wrong with the job.
fn fault(message: String, notes: &[String]) -> Stop {
    FIRST_FAULT.get_or_init(|| match notes.first() {
        Some(note) => format!("{message} ({note})"),
        None => message.clone(),
    });
    let mut diagnostic = Diagnostic::error(&RANKS, message).blame(Blame::Machine);
    for note in notes {
        diagnostic = diagnostic.note(note.clone());
    }
    let notes: String = diagnostic.notes.iter().map(|n| format!("  note: {}\n", n.message)).collect();
    output::to_stderr(&format!("{diagnostic}\n{notes}"));
    Stop(Outcome::MachineAtFault)
}

impl Ranks {
    pub(super) fn rank(&self) -> usize {
        self.world.rank()
    }

    pub(super) fn size(&self) -> usize {
        self.world.size()
    }

    /// Threads that may compute at once.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// The devices that this rank owns.
    pub(super) fn own_devices(&self, grid: DeviceGrid) -> Vec<usize> {
        let owners = self.world.owners(grid.devices());
        (0..grid.devices()).filter(|&d| owners[d] == self.rank()).collect()
    }

    /// How the devices of the next run meet.
    pub(super) fn communicator(&self, grid: DeviceGrid) -> Arc<dyn Communicator> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        self.world.communicator(run, self.world.owners(grid.devices()), self.time_limit)
    }

    /// The same with the rank that it happened on.
    pub(super) fn explain(&self, fault: ExecutionError) -> ExecutionError {
        let fault = match is_interrupted() && fault.diagnostic().code == &CANCELLED {
            true => ExecutionError::new(&RANKS, "the rank was told to end")
                .blame(Blame::Machine)
                .note("launchers end all ranks when one of them has died"),
            false => fault,
        };
        let of_machine = fault.diagnostic().blame == Blame::Machine;
        let fault = match dead(&self.roll).filter(|_| of_machine) {
            Some(dead) => fault.note(dead),
            None => fault,
        };
        fault.note(format!("on rank {} of {}", self.rank(), self.size()))
    }

    /// The ranks of one host share its processors; all ranks use as many threads, so that they compile the same program.
    fn agree_on_threads(&mut self) -> Result<()> {
        let available = hloom::runtime::pool::Pool::available_threads();
        let beside = hloom::comm::processes_beside().unwrap_or(1);
        // A rank that is bound has its processors for itself.
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        let bound = available < hloom::comm::world::online_processors().unwrap_or(all);
        let own = if bound { available } else { (available / beside).max(1) };
        let said = self.exchange(THREADS, &(own as u64).to_le_bytes())?;
        let number = |bytes: &Vec<u8>| <[u8; 8]>::try_from(&bytes[..]).map_or(1, u64::from_le_bytes) as usize;
        self.threads = said.iter().map(number).min().unwrap_or(1).max(1);
        Ok(())
    }

    /// Compares what the ranks have compiled.
    pub(super) fn check_same_program(&self, compiled: &CompiledModule) -> Result<()> {
        if compiled.grid.devices() < self.size() {
            let (devices, ranks) = (compiled.grid.devices(), self.size());
            return Err(usage_error(&format!("the program runs on {devices} devices, too few for {ranks} ranks")));
        }
        let text = hlo_text::print(compiled.module.module(), &hlo_text::PrintOptions::default());
        let mut said = checksum(text.as_bytes()).to_le_bytes().to_vec();
        said.extend(format!("{} ({} devices)", compiled.module.module().name, compiled.grid.devices()).into_bytes());
        let all = self.exchange(PROGRAM, &said)?;
        let others: Vec<usize> = (0..all.len()).filter(|&r| all[r] != all[0]).collect();
        if others.is_empty() {
            return Ok(());
        }
        let name = |r: usize| String::from_utf8_lossy(all[r].get(8..).unwrap_or_default()).into_owned();
        let verb = if others.len() == 1 { "runs" } else { "run" };
        let message = format!("{} {verb} another program than rank 0", words(&others));
        let mut notes = vec![format!("rank 0 runs {}", name(0))];
        notes.extend(others.iter().take(4).map(|&r| format!("rank {r} runs {}", name(r))));
        Err(fault(message, &notes))
    }

    /// The results of all devices at rank 0, in their order.
    pub(super) fn collect(&self, grid: DeviceGrid, results: Vec<Value>) -> Result<Option<Vec<Value>>> {
        if self.rank() != 0 {
            self.world.send(0, RESULTS, Value::Tuple(results).to_message());
            return Ok(None);
        }
        let mut all = results;
        for rank in 1..self.size() {
            let message = self.world.receive(rank, RESULTS, self.time_limit).map_err(|s| self.silent(s, "results"))?;
            let values = Value::from_message(&message).and_then(Value::into_tuple);
            all.extend(values.map_err(|_| fault(format!("the results of rank {rank} cannot be read"), &[]))?);
        }
        match all.len() == grid.devices() {
            true => Ok(Some(all)),
            false => Err(fault(format!("{} results came for {} devices", all.len(), grid.devices()), &[])),
        }
    }

    /// The results of this rank's devices with their names.
    pub(super) fn named(&self, grid: DeviceGrid, results: &[Value]) -> Vec<(String, Array)> {
        let each = self.own_devices(grid).into_iter().zip(results).flat_map(|(device, result)| {
            let leaves = arrays::outputs(std::slice::from_ref(result));
            let name = move |name: String| name.replacen("d0.", &format!("d{device}."), 1);
            leaves.into_iter().map(|(n, a)| (name(n), a.clone())).collect::<Vec<_>>()
        });
        each.collect()
    }

    /// Where this rank writes its own results: `out.npz` becomes `out.2.npz`.
    pub(super) fn own_path(&self, path: &str) -> String {
        match path.rsplit_once('.').filter(|(stem, end)| !stem.is_empty() && !end.contains('/')) {
            Some((stem, end)) => format!("{stem}.{}.{end}", self.rank()),
            None => format!("{path}.{}", self.rank()),
        }
    }

    /// The events of all ranks at rank 0.
    pub(super) fn collect_events(&self, own: Vec<serde_json::Value>) -> Result<Vec<serde_json::Value>> {
        if self.rank() != 0 {
            self.world.send(0, EVENTS, serde_json::Value::Array(own).to_string().into_bytes());
            return Ok(Vec::new());
        }
        let mut all = own;
        for rank in 1..self.size() {
            let message = self.world.receive(rank, EVENTS, self.time_limit).map_err(|s| self.silent(s, "record"))?;
            let events: std::result::Result<Vec<serde_json::Value>, _> = serde_json::from_slice(&message);
            all.extend(events.map_err(|_| fault(format!("the record of rank {rank} cannot be read"), &[]))?);
        }
        Ok(all)
    }

    /// Waits for all ranks.
    pub(super) fn meet(&self) -> Result<()> {
        self.exchange(MEETING, &[]).map(|_| ())
    }

    /// Ends together with the others; the outcome is the worst of all.
    fn end(&self, outcome: Outcome) -> Result {
        self.exchange(END, &[])?;
        // A rank that dies just now must not keep the others.
        let time_limit = self.time_limit;
        std::thread::spawn(move || {
            std::thread::sleep(time_limit);
            std::process::exit(0);
        });
        match self.world.finalize() {
            Ok(()) => Ok(outcome),
            Err(error) => Err(self.silent(SilentRanks { ranks: Vec::new(), why: error }, "end")),
        }
    }

    fn exchange(&self, channel: i64, message: &[u8]) -> Result<Vec<Vec<u8>>> {
        let what = match channel {
            THREADS => "number of threads",
            PROGRAM => "program",
            MEETING => "start",
            _ => "end",
        };
        self.world.exchange(channel, message, self.time_limit).map_err(|silent| self.silent(silent, what))
    }

    /// Says which ranks were waited for in vain.
    fn silent(&self, silent: SilentRanks, what: &str) -> Stop {
        let SilentRanks { ranks, why } = silent;
        let here = format!("this is rank {} of {}", self.rank(), self.size());
        let here = dead(&self.roll).map_or_else(|| here.clone(), |dead| format!("{dead}; {here}"));
        match why {
            JoinError::PeerFailed { rank, device, why } => {
                let of = device.map_or_else(String::new, |d| format!(" (device {d})"));
                fault(format!("rank {rank}{of} failed"), &[why, here])
            }
            JoinError::Transport(why) => fault(format!("rank {} cannot go on: {why}", self.rank()), &[here]),
            JoinError::Interrupted(_) => {
                let message = format!("told to end while waiting for the {what} of {}", words(&ranks));
                fault(message, &["launchers end all ranks when one of them has died".into(), here])
            }
            _ => {
                let seconds = self.time_limit.as_secs();
                fault(format!("the {what} of {} did not come within {seconds} s", words(&ranks)), &[here])
            }
        }
    }
}

/// `rank 3`, `ranks 1 and 2`, `ranks 1, 2 and 5`.
fn words(ranks: &[usize]) -> String {
    let numbers: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    match numbers.split_last() {
        None => "the ranks".to_owned(),
        Some((only, [])) => format!("rank {only}"),
        Some((last, others)) => format!("ranks {} and {last}", others.join(", ")),
    }
}

/// FNV-1a: the same on every rank, whatever the build.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_told_in_words() {
        assert_eq!(words(&[3]), "rank 3");
        assert_eq!(words(&[1, 2]), "ranks 1 and 2");
        assert_eq!(words(&[1, 2, 5]), "ranks 1, 2 and 5");
    }

    #[test]
    fn checksums_differ() {
        assert_eq!(checksum(b""), 0xcbf2_9ce4_8422_2325);
        assert_ne!(checksum(b"ab"), checksum(b"ba"));
    }
}

//! Steps beside each other: where a list forks, decided when the program is compiled, and the run of such a part.
//!
//! Steps that are worth all threads are shared among them one after another. What lies between two such steps runs beside
//! each other if that is estimated to pay: *tasks* (a chain of steps each) in an order in which none needs a later one.
//! Threads take tasks in that order and wait for those that theirs needs; since whoever has taken an earlier task is at
//! work on it, nobody waits for ever, however few threads come to help. Everything else stays a plain list.

use crate::dependence::{Footprint, dependencies};
use crate::executor::ThunkExecutor;
use crate::thunk::{Thunk, ThunkKind};
use hloom_cost::CoreCost;
use hloom_ir::entity::InstructionId;
use hloom_value::ExecutionError;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Steps of which some run beside each other.
#[derive(Debug)]
pub(crate) struct ConcurrentRegion {
    tasks: Vec<Task>,
}

/// Steps one after another.
#[derive(Debug)]
struct Task {
    steps: Vec<Thunk>,
    /// The tasks before it that must be done.
    after: Vec<u32>,
}

impl ConcurrentRegion {
    /// The thunks of each task, and the tasks before it that must be done.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = (&[Thunk], &[u32])> {
        self.tasks.iter().map(|t| (&t.steps[..], &t.after[..]))
    }
}

/// So many steps at most are looked at together.
const MAX_STEPS: usize = 4096;
/// A collective is waited for at the latest after so many steps.
const MAX_DISTANCE: usize = 1024;

/// What is known of a step's time.
#[derive(Clone, Copy, Debug)]
enum Weight {
    /// Runs alone: it is worth all threads, or must be done by the device's own.
    Alone,
    /// So many nanoseconds on one thread.
    Task(f64),
}

fn weight(step: &Thunk, lists: &[Vec<Thunk>], core: &CoreCost) -> Weight {
    let of_list = |list: usize| lists[list].iter().map(|s| weight(s, lists, core)).try_fold(0.0, together);
    let task = |time: Option<f64>, times: f64| time.map_or(Weight::Alone, |time| Weight::Task(time * times));
    let shared = |time: f64| if core.is_shared(time) { Weight::Alone } else { Weight::Task(time) };
    match &step.kind {
        ThunkKind::Copy { bytes } => Weight::Task(2.0 * *bytes as f64 * core.far_byte),
        ThunkKind::DeviceId { .. } => Weight::Task(0.0),
        ThunkKind::Kernel(kernel) if kernel.chunk < kernel.units => shared(kernel.nanoseconds),
        ThunkKind::Kernel(kernel) => Weight::Task(kernel.nanoseconds),
        ThunkKind::Library(call, None) => shared(call.nanoseconds(core)),
        ThunkKind::OutputFusion(fusion) => shared(fusion.nanoseconds(core)),
        ThunkKind::Region(region) => {
            let outside = region.outside.iter().map(|s| weight(s, lists, core)).try_fold(0.0, together);
            task(outside.map(|_| region.nanoseconds), 1.0)
        }
        ThunkKind::While(repeat) => {
            let iteration = of_list(repeat.condition).zip(of_list(repeat.body)).map(|(c, b)| c + b);
            task(iteration, repeat.trip_count as f64)
        }
        ThunkKind::Conditional { branches, .. } => {
            task(branches.iter().map(|&b| of_list(b)).try_fold(0.0, |most: f64, b| Some(most.max(b?))), 1.0)
        }
        ThunkKind::Pending(_)
        | ThunkKind::Library(..)
        | ThunkKind::Collective(_)
        | ThunkKind::Await
        | ThunkKind::Evaluate(_)
        | ThunkKind::Concurrent(_) => Weight::Alone,
    }
}

/// The time of steps one after another on one thread, if all of them can be a part of a task.
fn together(sum: f64, weight: Weight) -> Option<f64> {
    match weight {
        Weight::Alone => None,
        Weight::Task(nanoseconds) => Some(sum + nanoseconds),
    }
}

/// How long a program runs on one thread, in nanoseconds: as long as its loops do as is assumed of them. `None` where that is
/// not known, and for what is worth several threads. `is_small_call` says of calls of others' code, such as LAPACK's,
/// whether they are given so little that they are over soon.
pub(crate) fn expected_nanoseconds(
    lists: &[Vec<Thunk>],
    core: &CoreCost,
    is_small_call: impl Fn(InstructionId) -> bool,
) -> Option<f64> {
    let weighed = |step: &Thunk| match step.kind {
        ThunkKind::Evaluate(_) if is_small_call(step.instruction) => Weight::Task(core.thread),
        _ => weight(step, lists, core),
    };
    lists.first()?.iter().map(weighed).try_fold(0.0, together)
}

/// Decides which steps run beside each other on so many threads, and where collectives are waited for. `footprints` are
/// those of the steps. Returns how often the lists fork.
pub(crate) fn arrange(
    lists: &mut [Vec<Thunk>],
    footprints: Vec<Vec<Footprint>>,
    threads: usize,
    core: &CoreCost,
) -> usize {
    let mut forks = 0;
    for (list, footprints) in footprints.into_iter().enumerate() {
        let (mut steps, mut footprints) = (std::mem::take(&mut lists[list]), footprints);
        await_late(&mut steps, &mut footprints);
        if threads > 1 && steps.len() > 1 && steps.len() == footprints.len() {
            let weights: Vec<Weight> = steps.iter().map(|s| weight(s, lists, core)).collect();
            steps = fork(steps, &footprints, &weights, threads, core);
            forks += steps.iter().filter(|s| matches!(s.kind, ThunkKind::Concurrent(_))).count();
        }
        lists[list] = steps;
    }
    forks
}

/// Puts the wait for each collective before the first step that needs what it makes, or the memory that it uses.
fn await_late(steps: &mut Vec<Thunk>, footprints: &mut Vec<Footprint>) {
    let mut waits: Vec<(usize, usize)> = Vec::new();
    let count = steps.len();
    for (n, step) in steps.iter_mut().enumerate() {
        let ThunkKind::Collective(collective) = &mut step.kind else { continue };
        let end = count.min(n + 1 + MAX_DISTANCE);
        let place = (n + 1..end).find(|&m| footprints[n].conflicts(&footprints[m])).unwrap_or(end);
        if place == n + 1 {
            // There is nothing to do meanwhile: the step itself waits.
            continue;
        }
        collective.is_awaited = true;
        waits.push((place, n));
    }
    if waits.is_empty() {
        return;
    }
    waits.sort_unstable();
    let mut waits = waits.into_iter().peekable();
    let (old, old_footprints) = (std::mem::take(steps), std::mem::take(footprints));
    let collectives: Vec<_> = old.iter().map(|s| (s.instruction, s.arrays.clone())).collect();
    let all = old.into_iter().map(Some).chain([None]).enumerate();
    for (n, step) in all {
        while let Some((_, of)) = waits.next_if(|&(place, _)| place == n) {
            let (instruction, arrays) = collectives[of].clone();
            steps.push(Thunk { instruction, arrays, kind: ThunkKind::Await });
            footprints.push(old_footprints[of].clone());
        }
        if let Some(step) = step {
            steps.push(step);
            footprints.push(old_footprints[n].clone());
        }
    }
}

/// Makes sections of those parts of a list that are faster so.
fn fork(
    steps: Vec<Thunk>,
    footprints: &[Footprint],
    weights: &[Weight],
    threads: usize,
    core: &CoreCost,
) -> Vec<Thunk> {
    let mut result = Vec::with_capacity(steps.len());
    let mut steps = steps.into_iter();
    let mut begin = 0;
    while begin < weights.len() {
        let run = weights[begin..].iter().take(MAX_STEPS).take_while(|w| matches!(w, Weight::Task(..))).count();
        let end = begin + run.max(1);
        let mut part: Vec<Thunk> = steps.by_ref().take(end - begin).collect();
        match section(&footprints[begin..end], &weights[begin..end], threads, core) {
            Some(tasks) => {
                let (instruction, arrays) = (part[0].instruction, 0..0);
                let mut part: Vec<Option<Thunk>> = part.into_iter().map(Some).collect();
                let mut take = |steps: Vec<usize>| steps.into_iter().filter_map(|s| part[s].take()).collect();
                let tasks = tasks.into_iter().map(|t| Task { steps: take(t.steps), after: t.after }).collect();
                let kind = ThunkKind::Concurrent(Box::new(ConcurrentRegion { tasks }));
                result.push(Thunk { instruction, arrays, kind });
            }
            None => result.append(&mut part),
        }
        begin = end;
    }
    result
}

/// A task, by the numbers of its steps.
struct Outline {
    steps: Vec<usize>,
    after: Vec<u32>,
    nanoseconds: f64,
}

/// The tasks of steps, in their order, if it pays to run them beside each other.
fn section(footprints: &[Footprint], weights: &[Weight], threads: usize, core: &CoreCost) -> Option<Vec<Outline>> {
    let time = |w: &Weight| together(0.0, *w);
    let times: Vec<f64> = weights.iter().map(time).collect::<Option<_>>()?;
    let before: f64 = times.iter().sum();
    if footprints.len() < 2 || !core.is_shared(before) {
        return None;
    }
    let tasks = chains(&dependencies(footprints.iter()), &times);
    let tasks = joined(in_order(tasks, threads), core);
    let after = duration(&tasks, threads, core) + core.thread;
    (before - after >= core.worth_sharing()).then_some(tasks)
}

/// Tasks of steps that follow each other and nothing else, in the order of the steps.
fn chains(waits: &[Vec<u32>], times: &[f64]) -> Vec<Outline> {
    let mut followers = vec![0u32; waits.len()];
    waits.iter().flatten().for_each(|&w| followers[w as usize] += 1);
    let mut tasks: Vec<Outline> = Vec::new();
    let mut task_of: Vec<u32> = Vec::with_capacity(waits.len());
    for (n, after) in waits.iter().enumerate() {
        match after[..] {
            [only] if followers[only as usize] == 1 => {
                let task = task_of[only as usize];
                tasks[task as usize].steps.push(n);
                tasks[task as usize].nanoseconds += times[n];
                task_of.push(task);
            }
            _ => {
                let mut after: Vec<u32> = after.iter().map(|&w| task_of[w as usize]).collect();
                after.sort_unstable();
                after.dedup();
                task_of.push(tasks.len() as u32);
                tasks.push(Outline { steps: vec![n], after, nanoseconds: times[n] });
            }
        }
    }
    tasks
}

/// A time, to be compared.
#[derive(Clone, Copy, PartialEq)]
struct Time(f64);
impl Eq for Time {}
impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Time) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Time {
    fn cmp(&self, other: &Time) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The tasks in the order in which so many threads would begin them if each took, of those that can begin, the one after
/// which most is left to do.
fn in_order(tasks: Vec<Outline>, threads: usize) -> Vec<Outline> {
    let count = tasks.len();
    let mut followers: Vec<Vec<u32>> = vec![Vec::new(); count];
    for (n, task) in tasks.iter().enumerate() {
        task.after.iter().for_each(|&a| followers[a as usize].push(n as u32));
    }
    let mut left_after = vec![0.0f64; count];
    for n in (0..count).rev() {
        let most = followers[n].iter().map(|&f| left_after[f as usize]).fold(0.0, f64::max);
        left_after[n] = tasks[n].nanoseconds + most;
    }
    let mut missing: Vec<usize> = tasks.iter().map(|t| t.after.len()).collect();
    let mut begins: Vec<f64> = vec![0.0; count];
    let mut coming: BinaryHeap<Reverse<(Time, usize)>> =
        (0..count).filter(|&n| missing[n] == 0).map(|n| Reverse((Time(0.0), n))).collect();
    let mut ready: BinaryHeap<(Time, Reverse<usize>)> = BinaryHeap::new();
    let mut free: BinaryHeap<Reverse<Time>> = (0..threads).map(|_| Reverse(Time(0.0))).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse(now)) = free.pop() {
        let next = coming.peek().map(|&Reverse((time, _))| time);
        let now = if ready.is_empty() { next.map_or(now, |next| now.max(next)) } else { now };
        while let Some(&Reverse((time, n))) = coming.peek()
            && time <= now
        {
            coming.pop();
            ready.push((Time(left_after[n]), Reverse(n)));
        }
        let Some((_, Reverse(n))) = ready.pop() else { break };
        let end = Time(now.0 + tasks[n].nanoseconds);
        free.push(Reverse(end));
        order.push(n);
        for &f in &followers[n] {
            let f = f as usize;
            begins[f] = begins[f].max(end.0);
            missing[f] -= 1;
            if missing[f] == 0 {
                coming.push(Reverse((Time(begins[f]), f)));
            }
        }
    }
    debug_assert_eq!(order.len(), count, "every task has its turn");
    let mut place = vec![0u32; count];
    order.iter().enumerate().for_each(|(at, &n)| place[n] = at as u32);
    let mut tasks: Vec<Option<Outline>> = tasks.into_iter().map(Some).collect();
    let moved = |n: usize| {
        let mut task = tasks[n].take()?;
        task.after.iter_mut().for_each(|a| *a = place[*a as usize]);
        Some(task)
    };
    order.into_iter().filter_map(moved).collect()
}

/// Puts short tasks together with the ones after them.
fn joined(tasks: Vec<Outline>, core: &CoreCost) -> Vec<Outline> {
    let mut result: Vec<Outline> = Vec::with_capacity(tasks.len());
    let mut place = Vec::with_capacity(tasks.len());
    for mut task in tasks {
        task.after.iter_mut().for_each(|a| *a = place[*a as usize]);
        match result.last_mut() {
            Some(last) if last.nanoseconds + task.nanoseconds <= core.thread => {
                last.steps.append(&mut task.steps);
                last.after.append(&mut task.after);
                last.nanoseconds += task.nanoseconds;
            }
            _ => result.push(task),
        }
        place.push(result.len() as u32 - 1);
    }
    for (n, task) in (0u32..).zip(&mut result) {
        task.after.retain(|&a| a != n);
        task.after.sort_unstable();
        task.after.dedup();
    }
    result
}

/// How long so many threads take for tasks.
fn duration(tasks: &[Outline], threads: usize, core: &CoreCost) -> f64 {
    let mut free: BinaryHeap<Reverse<Time>> = (0..threads).map(|_| Reverse(Time(0.0))).collect();
    let mut ends: Vec<f64> = Vec::with_capacity(tasks.len());
    for task in tasks {
        let Some(Reverse(Time(mut begin))) = free.pop() else { break };
        begin = task.after.iter().map(|&a| ends[a as usize]).fold(begin, f64::max);
        let end = begin + task.nanoseconds + core.launch;
        ends.push(end);
        free.push(Reverse(Time(end)));
    }
    ends.into_iter().fold(0.0, f64::max)
}

/// How often a thread looks whether a task is done before it lets others have the processor.
const LOOKS: usize = 2000;

/// Runs a section.
pub(crate) fn run(executor: &mut ThunkExecutor<'_>, section: &ConcurrentRegion) -> Result<(), ExecutionError> {
    let tasks = &section.tasks;
    if executor.threads.min(executor.client.pool().threads()) < 2 {
        return tasks.iter().try_for_each(|task| executor.each_step(&task.steps));
    }
    let done: Vec<AtomicBool> = tasks.iter().map(|_| AtomicBool::new(false)).collect();
    let (failed, steps) = (Mutex::new(None::<(usize, ExecutionError)>), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let fork = executor.fork();
    executor.client.pool().each(tasks.len(), 1, executor.threads, &|begin, end| {
        for n in begin..end {
            // Also if a step panics those who wait for it must not wait for ever.
            let _done = Done(&done[n], &stop);
            for &earlier in &tasks[n].after {
                let mut looks = 0;
                while !done[earlier as usize].load(Ordering::Acquire) {
                    looks += 1;
                    if looks < LOOKS { std::hint::spin_loop() } else { std::thread::yield_now() }
                }
            }
            if stop.load(Ordering::Relaxed) {
                continue;
            }
            let mut executor = fork.executor();
            let before = executor.steps;
            let result = executor.each_step(&tasks[n].steps);
            steps.fetch_add(executor.steps - before, Ordering::Relaxed);
            if let Err(fault) = result {
                stop.store(true, Ordering::Relaxed);
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.as_ref().is_none_or(|(first, _)| n < *first) {
                    *failed = Some((n, fault));
                }
            }
        }
    });
    executor.steps += steps.into_inner();
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, fault)) => Err(fault),
        None => Ok(()),
    }
}

/// Says that a task is done when dropped, and that all is to stop if it ended by a panic.
struct Done<'d>(&'d AtomicBool, &'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.1.store(true, Ordering::Relaxed);
        }
        self.0.store(true, Ordering::Release);
    }
}

//! Memory-space assignment: which values lie in fast memory, and which are copied there before they are read.
//!
//! Buffers are looked at in the order of what they save. One that is made by the program is made in fast memory if it fits
//! there from its making to its last reader and is not kept waiting too long. Otherwise it is made there for its first
//! readers and evicted, copied to main memory for those that come later; or each reader gets a copy, started so early that
//! the work in between hides it, if that fits, as a whole or in slices that follow each other. One parameter is copied at the very start of the program, for which the run
//! before leaves time. Whether everything fits is decided by what is live at each time; where the packing of the plan needs
//! more, the assignment is made again with less.

mod apply;
mod candidates;
mod capacity;
mod prefetch;
pub(crate) mod scalars;
mod slices;
mod traffic;

use crate::elapsed::Elapsed;
use crate::policy::FastMemory;
use crate::stage::{StageContext, staged};
use candidates::{Candidate, Eviction, Read};
use capacity::Capacity;
use hloom_ir::diagnostic::codes::passes::BROKEN_MODULE;
use hloom_ir::diagnostic::{Blame, Diagnostic};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_passes::Pass;
use hloom_plan::Plan;
use hloom_plan::buffers::BufferId;
use hloom_plan::positions::Position;
use rustc_hash::{FxHashMap, FxHashSet};
use slices::Cut;

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "memory-spaces",
    statement: "puts values into fast memory, and copies there what is read from main memory, ahead of its readers",
    keeps_schedule: true,
    run: |module, context| staged(module, context, assign),
};

/// Nothing waits in fast memory for longer than it takes to fill all of it this often.
const MOST_OVERLAP: f64 = 8.0;
/// How often the assignment is made again with less memory, and in a program of how many instructions only until it fits.
const MAX_RETRIES: usize = 12;
const MANY_INSTRUCTIONS: usize = 20_000;

/// What is to be done.
#[derive(Default, Debug)]
struct Decisions {
    /// Positions that move to fast memory.
    pub(super) moved: Vec<Position>,
    pub(super) prefetches: Vec<Prefetch>,
    /// Parts of the result that are copied back from fast memory.
    evictions: Vec<Eviction>,
    /// Values that leave fast memory before their last readers.
    evicted: Vec<Evicted>,
    /// Bytes of main memory that are neither read nor written.
    saved: f64,
    /// The parameter that is fetched at the start.
    pub(super) first: Option<(InstructionId, Vec<Read>)>,
}

/// A copy to fast memory.
#[derive(Debug)]
struct Prefetch {
    pub(super) source: InstructionId,
    /// Started right before this instruction, and done right before the first reader.
    pub(super) before: InstructionId,
    /// Where it is fetched in slices: how it is cut, and before what the others start that come after the first.
    pub(super) slices: Option<(Cut, Vec<InstructionId>)>,
    pub(super) reads: Vec<Read>,
}

/// A copy from fast memory to main memory, started as soon as the value is there.
#[derive(Debug)]
struct Evicted {
    pub(super) source: InstructionId,
    /// Done right before this instruction.
    pub(super) before: InstructionId,
    /// Who reads the copy.
    pub(super) reads: Vec<Read>,
    pub(super) results: Vec<Eviction>,
}

/// The order in which buffers are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Priority {
    /// What saves most.
    Saved,
    /// What saves most for each byte that it takes.
    SavedPerByte,
    /// What saves most for each byte and cycle for which it takes it.
    SavedPerByteAndCycle,
}

/// Whether one place is counted for two buffers at the time at which one may be written over the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sharing {
    Places,
    Nothing,
}

/// The least that another order than the first has to save more than it, as a share.
const WORTH_ANOTHER_ORDER: f64 = 1.02;

/// The least that doing without a fetch at the start has to save more than with one, as a share.
const WORTH_NO_FIRST: f64 = 1.1;

/// Values in fast memory have gaps between them, which nobody knows before they are placed: what is decided may be less
/// than the memory that there is. The most that fits is found by trying.
fn assign(module: &mut Module, context: &StageContext<'_>) -> Result<usize, Diagnostic> {
    let Some(fast) = context.policy.fast_memory else { return Ok(0) };
    let source = verified(module.clone())?;
    let plan = first_error(hloom_plan::plan(&source, context.target))?;
    let elapsed = Elapsed::new(source.module(), context)?;
    let mut problem = Problem::new(&plan, source.module(), &elapsed, fast);
    problem.choose_order();
    let mut fitting: Option<(i64, usize, VerifiedModule)> = None;
    let mut too_much = fast.budget;
    let mut budget = fast.budget;
    let mut sharing = Sharing::Places;
    let is_large = source.module().instruction_count() > MANY_INSTRUCTIONS;
    // What the decisions before these took.
    let mut before: Option<i64> = None;
    for _ in 0..=MAX_RETRIES {
        let decisions = problem.decide(budget, sharing);
        let mut changed = source.module().clone();
        let changes = apply::apply(&source, &mut changed, &decisions, fast)?;
        if changes == 0 {
            break;
        }
        let changed = verified(changed)?;
        let taken = first_error(hloom_plan::plan(&changed, context.target))?.heap_bytes(fast.memory_space);
        if taken <= fast.budget {
            fitting = Some((budget, changes, changed));
            if budget == fast.budget || is_large {
                break;
            }
        } else if sharing == Sharing::Places && (is_large || before.replace(taken) == Some(taken)) {
            // The plan has not written over what could have been written over: a smaller budget does not help.
            (sharing, budget, too_much) = (Sharing::Nothing, fast.budget, fast.budget);
            continue;
        } else {
            too_much = budget;
        }
        budget = match &fitting {
            // Nearer to what was too much, as long as that is worth another plan.
            Some((fits, ..)) if too_much - fits > fast.budget / 32 => fits.midpoint(too_much),
            Some(_) => break,
            // Gaps grow with what is placed: less in the same proportion, and some of it besides.
            None => {
                let share = i128::from(budget) * i128::from(fast.budget) / i128::from(taken);
                i64::try_from(share).unwrap_or(0).min(budget - budget / 16)
            }
        };
    }
    let Some((_, changes, fitted)) = fitting else { return Ok(0) };
    *module = fitted.into_module();
    Ok(changes)
}

pub(crate) fn verified(module: Module) -> Result<VerifiedModule, Diagnostic> {
    verify(module, &VerifyOptions::default()).map_err(|invalid| {
        let found = invalid.diagnostics.into_iter().next();
        let why = found.map_or_else(String::new, |d| d.to_string());
        Diagnostic::error(&BROKEN_MODULE, format!("a stage left a module that is not valid: {why}")).blame(Blame::Hloom)
    })
}

pub(crate) fn first_error<T>(result: Result<T, Vec<Diagnostic>>) -> Result<T, Diagnostic> {
    result.map_err(|mut all| match all.is_empty() {
        true => Diagnostic::error(&BROKEN_MODULE, "no plan was made".to_owned()).blame(Blame::Hloom),
        false => all.swap_remove(0),
    })
}

/// The steps of a computation, and the cycles before each.
struct Timeline {
    steps: Vec<InstructionId>,
    before: Vec<f64>,
    place: FxHashMap<InstructionId, usize>,
}

impl Timeline {
    fn new(module: &Module, c: ComputationId, elapsed: &Elapsed<'_>) -> Timeline {
        let steps = module[c].instructions().to_vec();
        let mut before = vec![0.0];
        for &i in &steps {
            before.push(before[before.len() - 1] + elapsed.cycles(i));
        }
        let place = steps.iter().enumerate().map(|(n, &i)| (i, n)).collect();
        Timeline { steps, before, place }
    }

    /// Cycles of the steps from `start` up to `end`, the latter left out.
    fn between(&self, start: usize, end: usize) -> f64 {
        self.before[end] - self.before[start.min(end)]
    }
}

/// What there is to decide on.
struct Problem<'a, 'm> {
    plan: &'a Plan<'m>,
    module: &'m Module,
    elapsed: &'a Elapsed<'a>,
    /// In the order in which they are looked at.
    candidates: Vec<Candidate>,
    heirs: FxHashMap<BufferId, Vec<BufferId>>,
    /// Cycles before each time of the schedule.
    cycles: Vec<f64>,
    fast: FastMemory,
    /// Whether a parameter is fetched at the very start.
    fetches_first: bool,
}

impl<'a, 'm> Problem<'a, 'm> {
    fn new(plan: &'a Plan<'m>, module: &'m Module, elapsed: &'a Elapsed<'a>, fast: FastMemory) -> Problem<'a, 'm> {
        let candidates = candidates::candidates(plan, module, elapsed, fast.budget);
        let heirs = heirs(&candidates);
        let mut cycles = vec![0.0];
        for &i in &plan.schedule.sequence {
            cycles.push(cycles[cycles.len() - 1] + elapsed.cycles(i));
        }
        Problem { plan, module, elapsed, candidates, heirs, cycles, fast, fetches_first: true }
    }

    /// Takes the order of buffers that saves most.
    fn choose_order(&mut self) {
        self.sort(Priority::Saved);
        let first = self.decide(self.fast.budget, Sharing::Places).saved;
        let mut best = (Priority::Saved, first * WORTH_ANOTHER_ORDER);
        for priority in [Priority::SavedPerByte, Priority::SavedPerByteAndCycle] {
            self.sort(priority);
            let saved = self.decide(self.fast.budget, Sharing::Places).saved;
            if saved > best.1 {
                best = (priority, saved);
            }
        }
        self.sort(best.0);
        // What is fetched at the start keeps its place for all of the program, where others may have saved more.
        let with = self.decide(self.fast.budget, Sharing::Places).saved;
        self.fetches_first = false;
        let without = self.decide(self.fast.budget, Sharing::Places).saved;
        self.fetches_first = without <= with * WORTH_NO_FIRST;
    }

    fn sort(&mut self, priority: Priority) {
        let lived = |c: &Candidate| {
            let at = |time: u32| self.cycles.get(time as usize).copied().unwrap_or(0.0);
            (at(c.end + 1) - at(c.start)).max(1.0)
        };
        let key = |c: &Candidate| match priority {
            Priority::Saved => c.saved,
            Priority::SavedPerByte => c.saved_per_byte(),
            Priority::SavedPerByteAndCycle => c.saved_per_byte() / lived(c),
        };
        let mut keyed: Vec<(f64, Candidate)> = self.candidates.iter().map(|c| (key(c), c.clone())).collect();
        keyed.sort_by(|(a, x), (b, y)| b.total_cmp(a).then(x.start.cmp(&y.start)).then(x.buffer.cmp(&y.buffer)));
        self.candidates = keyed.into_iter().map(|(_, c)| c).collect();
    }

    /// What is to be done if values may take `budget` bytes at a time.
    fn decide(&self, budget: i64, sharing: Sharing) -> Decisions {
        let mut assigner = Assigner {
            plan: self.plan,
            module: self.module,
            elapsed: self.elapsed,
            taken: Capacity::new(self.plan.schedule.sequence.len() + 1),
            timelines: FxHashMap::default(),
            budget,
            memory_space: self.fast.memory_space,
            sharing,
            most: MOST_OVERLAP * self.fast.bytes as f64 / self.elapsed.bytes_per_cycle(),
            moved: FxHashSet::default(),
            heirs: &self.heirs,
            given: FxHashSet::default(),
            inherited: FxHashSet::default(),
            decisions: Decisions::default(),
        };
        let first = if self.fetches_first { assigner.fetch_first(&self.candidates) } else { None };
        for (n, candidate) in self.candidates.iter().enumerate() {
            if Some(n) != first && !assigner.move_whole(candidate) && !assigner.move_part(candidate) {
                assigner.prefetch(candidate);
            }
        }
        assigner.decisions
    }
}

/// For each buffer those that may be written over it.
fn heirs(candidates: &[Candidate]) -> FxHashMap<BufferId, Vec<BufferId>> {
    let mut heirs: FxHashMap<BufferId, Vec<BufferId>> = FxHashMap::default();
    for candidate in candidates {
        for &over in &candidate.writes_over {
            heirs.entry(over).or_default().push(candidate.buffer);
        }
    }
    heirs
}

struct Assigner<'a, 'm> {
    plan: &'a Plan<'m>,
    module: &'m Module,
    elapsed: &'a Elapsed<'a>,
    taken: Capacity,
    timelines: FxHashMap<usize, Timeline>,
    budget: i64,
    /// The number of the fast memory.
    memory_space: i64,
    sharing: Sharing,
    /// Cycles that something may wait in fast memory at most.
    most: f64,
    /// Buffers that are made in fast memory.
    moved: FxHashSet<BufferId>,
    heirs: &'a FxHashMap<BufferId, Vec<BufferId>>,
    /// Buffers there that another is written over, and those others.
    given: FxHashSet<BufferId>,
    inherited: FxHashSet<BufferId>,
    decisions: Decisions,
}

impl Assigner<'_, '_> {
    fn timeline(&mut self, c: ComputationId) -> &Timeline {
        let (module, elapsed) = (self.module, self.elapsed);
        self.timelines.entry(c.index()).or_insert_with(|| Timeline::new(module, c, elapsed))
    }

    fn fits(&self, start: u32, end: u32, bytes: i64) -> bool {
        self.taken.most(start as usize, end as usize).saturating_add(bytes) <= self.budget
    }

    fn take(&mut self, start: u32, end: u32, bytes: i64) {
        self.taken.add(start as usize, end as usize, bytes);
    }

    /// Chooses the parameter that is fetched at the very start: what saves most, of equals what is read last. Answers with
    /// its number among the candidates.
    fn fetch_first(&mut self, candidates: &[Candidate]) -> Option<usize> {
        // It is there before the program begins, and its place is for the next run when it ends.
        let end = self.plan.schedule.sequence.len() as u32;
        let mut best: Option<usize> = None;
        for (n, c) in candidates.iter().enumerate() {
            let saved =
                |c: &Candidate| (i128::from(c.bytes) * c.reads.len() as i128, c.reads.first().map_or(0, |r| r.time));
            let is_better = |b: &Candidate| saved(c) > saved(b);
            if c.is_parameter
                && !c.is_overwritten
                && !c.crosses_loops
                && c.source.is_some()
                && self.fits(0, end, c.bytes)
                && best.is_none_or(|b| is_better(&candidates[b]))
            {
                best = Some(n);
            }
        }
        let chosen = &candidates[best?];
        self.take(0, end, chosen.bytes);
        self.decisions.saved += chosen.reads.iter().skip(1).map(|r| r.bytes).sum::<f64>();
        self.decisions.first = Some((chosen.source?, chosen.reads.clone()));
        best
    }

    /// Has the buffer made in fast memory, if that is possible.
    fn move_whole(&mut self, candidate: &Candidate) -> bool {
        let Some(positions) = &candidate.positions else { return false };
        let (before, after) = self.shared_with(candidate);
        // One place serves both at the time at which one is written over the other.
        let start = candidate.start + u32::from(before.is_some());
        let end = candidate.end - u32::from(after.is_some());
        if start <= end && !self.fits(start, end, candidate.bytes) {
            return false;
        }
        if candidate.crosses_loops {
            self.take(candidate.start, candidate.end, candidate.bytes);
            self.decisions.moved.extend(positions);
            self.decisions.evictions.extend(&candidate.results);
            self.decisions.saved += candidate.saved;
            return true;
        }
        let made = self.plan.schedule.sequence.get(candidate.start as usize).copied();
        let most = self.most;
        let timeline = self.timeline(candidate.home);
        let Some(mut at) = made.and_then(|i| timeline.place.get(&i).copied()) else { return false };
        for read in &candidate.reads {
            let Some(&next) = timeline.place.get(&read.user) else { return false };
            if timeline.between(at + 1, next) > most {
                return false;
            }
            at = next;
        }
        if start <= end {
            self.take(start, end, candidate.bytes);
        }
        self.moved.insert(candidate.buffer);
        self.decisions.saved += candidate.saved;
        self.given.extend(before.into_iter().chain(after.map(|_| candidate.buffer)));
        self.inherited.extend(after.into_iter().chain(before.map(|_| candidate.buffer)));
        self.decisions.moved.extend(positions);
        true
    }

    /// The buffers in fast memory that this one is written over, and that are written over this one.
    fn shared_with(&self, candidate: &Candidate) -> (Option<BufferId>, Option<BufferId>) {
        if self.sharing == Sharing::Nothing || candidate.crosses_loops || candidate.start == candidate.end {
            return (None, None);
        }
        let is_free = |b: &BufferId| self.moved.contains(b) && !self.given.contains(b);
        let before = candidate.writes_over.iter().copied().find(is_free);
        let is_heir = |b: &BufferId| self.moved.contains(b) && !self.inherited.contains(b);
        let heirs = self.heirs.get(&candidate.buffer).map_or(&[][..], |h| h);
        (before, heirs.iter().copied().find(is_heir))
    }

    /// Has the buffer made in fast memory for its first readers, and copied to main memory for the others.
    fn move_part(&mut self, candidate: &Candidate) -> bool {
        let Some((positions, source)) = &candidate.evicted else { return false };
        let (module, copy, most) = (self.module, candidate.bytes as f64 / self.elapsed.bytes_per_cycle(), self.most);
        let far = candidate.far_reads.first().map_or(u32::MAX, |r| r.time);
        let timeline = self.timeline(candidate.home);
        let Some(&made) = timeline.place.get(source) else { return false };
        // When the copy can be done at the earliest.
        let Some(ready) = (made + 1..timeline.steps.len()).find(|&n| timeline.between(made + 1, n) >= copy) else {
            return false;
        };
        let mut near: Vec<Read> = Vec::new();
        let mut waited = made;
        for read in candidate.reads.iter().filter(|r| r.time < far) {
            let Some(&next) = timeline.place.get(&read.user) else { return false };
            if timeline.between(waited + 1, next) > most {
                break;
            }
            waited = next;
            near.push(*read);
        }
        while let Some(&last) = near.last() {
            let timeline = self.timeline(candidate.home);
            let leaves = ready.max(timeline.place[&last.user] + 1);
            let Some(&before) = timeline.steps.get(leaves) else { return false };
            let mut later: Vec<Read> = candidate.reads[near.len()..].to_vec();
            later.extend(&candidate.far_reads);
            later.sort_by_key(|r| r.time);
            let is_served = |r: &Read| timeline.place.get(&r.user).is_some_and(|&p| p >= leaves);
            let reads_it = |r: &Read| module[r.user].operands().get(r.operand) == Some(source);
            let is_needed = !later.is_empty() || !candidate.results.is_empty();
            if is_needed
                && later.iter().all(|r| is_served(r) && reads_it(r))
                && self.fits(candidate.start, self.time(before).saturating_sub(1), candidate.bytes)
            {
                self.take(candidate.start, self.time(before).saturating_sub(1), candidate.bytes);
                self.decisions.saved += near.iter().map(|r| r.bytes).sum::<f64>();
                self.decisions.moved.extend(positions);
                let results = candidate.results.clone();
                self.decisions.evicted.push(Evicted { source: *source, before, reads: later, results });
                return true;
            }
            near.retain(|r| r.time < last.time);
        }
        false
    }

    fn time(&self, i: InstructionId) -> u32 {
        self.plan.schedule.time(i).unwrap_or(0)
    }
}

//! Loops as one native function each: which loops become regions, and a region's run.
//!
//! A loop becomes a region if anything in it is a small kernel. Small kernels are written out in the region, larger ones
//! are called by it, and what is worth several threads, or no kernel at all, is done by the executor when the region asks for
//! it. A region asks from time to time whether to go on: it can be cancelled, steps are counted, and a loop whose state
//! no longer changes ends.
//!
//! Steps and conditionals outside of loops are no regions, however many and small they are: the executor takes about 8 ns for
//! each, tiny kernel and all (600 kernels that wait for each other on arrays of four elements take 5 µs, 300 conditionals
//! with two or three of them in each branch 14 µs). As one function they would share no code that is compiled once now,
//! which would cost more than all calls of most programs can save.

use crate::executor::ThunkExecutor;
use crate::kernel::{KernelLibrary, Kernels};
use crate::thunk::{ListId, Location, Thunk, ThunkKind, While};
use hloom_ir::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::op::Op;
use hloom_loops::abi::{KernelFn, LEAVE, RegionControl, STOP};
use hloom_loops::region::{Region, RegionArray, RegionStep, RegionWhile};
use hloom_plan::Plan;
use hloom_plan::dataflow::ValueId;
use hloom_plan::positions::Position;
use hloom_value::ExecutionError;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::ffi::c_void;
use std::ops::Range;

/// A region, ready to be called.
#[derive(Debug)]
pub(crate) struct RegionCall {
    /// The number of its function.
    number: u32,
    /// What the region leaves to the executor.
    pub(crate) outside: Vec<Thunk>,
    loops: Vec<LoopState>,
    /// The numbers of the kernels that it calls.
    kernels: Vec<u32>,
    /// About how long its kernels take.
    pub(crate) nanoseconds: f64,
}

/// What is to be known of a loop at run time.
#[derive(Debug)]
struct LoopState {
    instruction: InstructionId,
    /// The leaves of the state in the table, and their bytes.
    arrays: Range<u32>,
    bytes: Vec<usize>,
    /// Whether the state alone decides how it goes on.
    closed: bool,
}

/// Kernels of more code than this are called, not written out.
const MAX_INLINE: usize = 600;
/// So are those that were written out already, in all so much code.
const MAX_COPIES: usize = 120;
/// So are those that take longer than this, in nanoseconds: the call costs nothing then.
const MAX_INLINE_NANOSECONDS: f64 = 1000.0;
/// All that is written out in a region. A loop around others that would be more is none: the others are.
const MAX_REGION: usize = 1500;

/// Makes regions of loops, and compiles them and all kernels. A loop that became a region has no lists any more.
pub(crate) fn compile(
    plan: &Plan<'_>,
    table: &[Location],
    at: &[Position],
    lists: &mut [Vec<Thunk>],
    kernels: &Kernels,
) -> KernelLibrary {
    let mut found: Vec<(ListId, usize, Taken)> = Vec::new();
    let mut regions: Vec<Region> = Vec::new();
    let mut pending: Vec<ListId> = vec![0];
    while let Some(list) = pending.pop() {
        for (n, step) in lists[list].iter().enumerate() {
            match &step.kind {
                ThunkKind::While(repeat) => match Builder::new(plan, table, at, lists, kernels).region(step) {
                    Some((region, taken)) => {
                        found.push((list, n, taken));
                        regions.push(region);
                    }
                    None => pending.extend([repeat.condition, repeat.body]),
                },
                ThunkKind::Conditional { branches, .. } => pending.extend(branches),
                _ => {}
            }
        }
    }
    if regions.is_empty() {
        return kernels.compile(|_| true, &[]);
    }
    // Kernels that are written out wherever they are needed are no functions of their own.
    let inlined: FxHashSet<usize> = found.iter().flat_map(|(_, _, taken)| taken.inlined.iter().copied()).collect();
    let mut library = kernels.compile(|request| !inlined.contains(&request), &regions);
    let made = |(number, (_, _, taken)): (usize, &(ListId, usize, Taken))| {
        library.has_region(number) && taken.called.iter().all(|&request| library.has_kernel(request))
    };
    if !found.iter().enumerate().all(made) {
        // What LLVM cannot make is refused alone: without regions.
        return kernels.compile(|_| true, &[]);
    }
    for (number, (list, n, taken)) in found.into_iter().enumerate() {
        let called = taken.called.iter().filter_map(|&request| library.kernel(request).ok());
        let called = called.map(|kernel| kernel.number).collect();
        let Ok(number) = library.region(number) else { continue };
        let mut outside = Vec::with_capacity(taken.outside.len());
        for (list, n) in taken.outside {
            let step = &mut lists[list][n];
            let (instruction, arrays) = (step.instruction, step.arrays.clone());
            let kind = std::mem::replace(&mut step.kind, ThunkKind::Copy { bytes: 0 });
            outside.push(Thunk { instruction, arrays, kind });
        }
        taken.lists.into_iter().for_each(|list| lists[list].clear());
        let call = RegionCall { number, outside, loops: taken.loops, kernels: called, nanoseconds: taken.nanoseconds };
        lists[list][n].kind = ThunkKind::Region(Box::new(call));
    }
    library
}

/// What a region takes from the lists.
#[derive(Default)]
struct Taken {
    /// Steps that the executor does.
    outside: Vec<(ListId, usize)>,
    loops: Vec<LoopState>,
    /// The requests of the kernels that it calls.
    called: Vec<usize>,
    /// The requests of the kernels that are written out.
    inlined: Vec<usize>,
    /// The lists that are now part of the region.
    lists: Vec<ListId>,
    /// About how long its kernels take.
    nanoseconds: f64,
}

/// An array is the same as another if it is in the same place and of the same kind: values of different kinds in one
/// place are there one after another.
type Key = (Location, ElementType, i64);

/// Describes one region.
struct Builder<'b, 'm> {
    plan: &'b Plan<'m>,
    table: &'b [Location],
    at: &'b [Position],
    lists: &'b [Vec<Thunk>],
    kernels: &'b Kernels,
    arrays: Vec<RegionArray>,
    numbers: FxHashMap<Key, u32>,
    /// The kind by which each value was seen first.
    kinds: FxHashMap<ValueId, (ElementType, i64)>,
    /// Places that must be in memory: what lies there is seen by others, or as of several kinds.
    in_memory: FxHashSet<Location>,
    odd_values: FxHashSet<ValueId>,
    /// The values that were named, and their places.
    places: Vec<(ValueId, Location)>,
    taken: Taken,
    /// All that is written out so far.
    size: usize,
    /// Whether there was more to be written out.
    is_full: bool,
    /// How often each kernel was written out.
    copies: FxHashMap<usize, usize>,
    /// How often a step is about to be done at this place.
    trip_count: f64,
}

impl<'b, 'm> Builder<'b, 'm> {
    fn new(
        plan: &'b Plan<'m>,
        table: &'b [Location],
        at: &'b [Position],
        lists: &'b [Vec<Thunk>],
        kernels: &'b Kernels,
    ) -> Builder<'b, 'm> {
        Builder {
            plan,
            table,
            at,
            lists,
            kernels,
            arrays: Vec::new(),
            numbers: FxHashMap::default(),
            kinds: FxHashMap::default(),
            in_memory: FxHashSet::from_iter([Location::NOWHERE]),
            odd_values: FxHashSet::default(),
            places: Vec::new(),
            taken: Taken::default(),
            size: 0,
            is_full: false,
            copies: FxHashMap::default(),
            trip_count: 1.0,
        }
    }

    /// The region of the loop that is that step, if it is worth one.
    fn region(mut self, step: &Thunk) -> Option<(Region, Taken)> {
        let ThunkKind::While(repeat) = &step.kind else { return None };
        let code = self.repeat(step, repeat)?;
        if self.taken.inlined.is_empty() || self.is_full && self.taken.loops.len() > 1 {
            return None;
        }
        let odd = self.places.iter().filter(|(value, _)| self.odd_values.contains(value));
        self.in_memory.extend(odd.map(|&(_, location)| location));
        let state: FxHashSet<u32> = code.state.iter().copied().collect();
        for (number, array) in (0u32..).zip(&mut self.arrays) {
            let location = self.table[array.entry as usize];
            let is_constant = self.plan.allocations.get(location.allocation as usize).is_some_and(|a| a.is_constant);
            array.is_private = !self.in_memory.contains(&location);
            array.is_live_in = is_constant || state.contains(&number);
            array.is_live_out = state.contains(&number);
        }
        Some((Region { steps: vec![RegionStep::While(Box::new(code))], arrays: self.arrays }, self.taken))
    }

    fn kind(&self, position: Position) -> Option<(ElementType, i64)> {
        let array = self.plan.dataflow.positions.shape(position).as_array_or_buffer()?;
        Some((array.element_type, array.element_count()?))
    }

    /// Looks for values of a computation that are seen as of several kinds: these must be in memory.
    fn look_for_odd_values(&mut self, computation: ComputationId) {
        let (module, positions) = (self.plan.dataflow.module(), &self.plan.dataflow.positions);
        let mut pending = vec![computation];
        while let Some(computation) = pending.pop() {
            for &id in module[computation].instructions() {
                for position in positions.of(id) {
                    if let (Some(value), Some(kind)) = (self.plan.dataflow.at(position), self.kind(position))
                        && *self.kinds.entry(value).or_insert(kind) != kind
                    {
                        self.odd_values.insert(value);
                    }
                }
                match &module[id].op {
                    Op::Call { to_apply, .. } => pending.push(*to_apply),
                    Op::AsyncStart(start) => pending.push(start.calls),
                    _ => {}
                }
            }
        }
    }

    /// The number of the array in an entry of the table.
    fn array(&mut self, entry: u32) -> Option<u32> {
        let (location, position) = (self.table[entry as usize], self.at[entry as usize]);
        let (element_type, elements) = self.kind(position)?;
        if let Some(value) = self.plan.dataflow.at(position) {
            self.places.push((value, location));
        }
        let next = self.arrays.len() as u32;
        let number = *self.numbers.entry((location, element_type, elements)).or_insert(next);
        if number == next {
            let nothing_yet =
                RegionArray { entry, element_type, elements, is_private: false, is_live_in: false, is_live_out: false };
            self.arrays.push(nothing_yet);
        }
        Some(number)
    }

    fn arrays(&mut self, entries: Range<u32>) -> Option<Vec<u32>> {
        entries.map(|entry| self.array(entry)).collect()
    }

    fn repeat(&mut self, step: &Thunk, repeat: &While) -> Option<RegionWhile> {
        let module = self.plan.dataflow.module();
        if let Op::While { condition, body } = module[step.instruction].op {
            self.look_for_odd_values(condition);
            self.look_for_odd_values(body);
        }
        let number = self.taken.loops.len() as u32;
        let arrays = step.arrays.start + 1..step.arrays.end;
        self.taken.loops.push(LoopState {
            instruction: step.instruction,
            arrays: arrays.clone(),
            bytes: repeat.state.clone(),
            closed: repeat.closed,
        });
        let truth = self.array(step.arrays.start)?;
        // Tokens are no arrays, and no state.
        let state = arrays.filter_map(|entry| self.array(entry)).collect();
        let trip_count = self.trip_count;
        self.trip_count *= repeat.trip_count as f64;
        let (condition, body) = (self.list(repeat.condition)?, self.list(repeat.body)?);
        self.trip_count = trip_count;
        let cost = (condition.len() + body.len() + 1) as i64;
        Some(RegionWhile { number, condition, truth, body, cost, state })
    }

    fn list(&mut self, list: ListId) -> Option<Vec<RegionStep>> {
        self.taken.lists.push(list);
        let lists = self.lists;
        let mut steps = Vec::with_capacity(lists[list].len());
        for (n, step) in lists[list].iter().enumerate() {
            steps.push(match &step.kind {
                ThunkKind::Copy { .. } => {
                    let arrays = self.arrays(step.arrays.clone())?;
                    RegionStep::Copy { from: *arrays.first()?, to: *arrays.get(1)? }
                }
                ThunkKind::While(repeat) => RegionStep::While(Box::new(self.repeat(step, repeat)?)),
                ThunkKind::Conditional { branches, .. } => {
                    if let Op::Conditional { branches } = &self.plan.dataflow.module()[step.instruction].op {
                        branches.iter().for_each(|&b| self.look_for_odd_values(b));
                    }
                    let selector = self.array(step.arrays.start)?;
                    let branches = branches.iter().map(|&b| self.list(b)).collect::<Option<Vec<_>>>()?;
                    RegionStep::Conditional { selector, branches }
                }
                ThunkKind::Pending(request) => self.kernel(list, n, step, *request)?,
                _ => self.outside(list, n, step),
            });
        }
        Some(steps)
    }

    fn kernel(&mut self, list: ListId, n: usize, step: &Thunk, request: usize) -> Option<RegionStep> {
        let Some(facts) = self.kernels.facts(request).filter(|f| !self.kernels.core.is_shared(f.nanoseconds)) else {
            return Some(self.outside(list, n, step));
        };
        self.taken.nanoseconds += facts.nanoseconds * self.trip_count;
        let copies = self.copies.entry(facts.number).or_default();
        let fits = self.size + facts.size <= MAX_REGION;
        self.is_full |= !fits;
        if fits
            && facts.size.saturating_mul(*copies) <= MAX_COPIES
            && facts.size <= MAX_INLINE
            && facts.nanoseconds <= MAX_INLINE_NANOSECONDS
        {
            *copies += 1;
            self.size += facts.size;
            self.taken.inlined.push(request);
            return Some(RegionStep::Inline { request, arrays: self.arrays(step.arrays.clone())? });
        }
        self.in_memory.extend(&self.table[step.arrays.start as usize..step.arrays.end as usize]);
        let function = self.taken.called.len() as u32;
        self.taken.called.push(request);
        Some(RegionStep::Call { function, entry: step.arrays.start, units: facts.work_units })
    }

    /// Leaves a step to the executor.
    fn outside(&mut self, list: ListId, n: usize, step: &Thunk) -> RegionStep {
        self.in_memory.extend(&self.table[step.arrays.start as usize..step.arrays.end as usize]);
        self.taken.outside.push((list, n));
        RegionStep::Outside(self.taken.outside.len() as u32 - 1)
    }
}

/// So many steps are done between two questions whether to go on.
const STEPS_AT_A_TIME: u64 = 256;
/// After so many questions it is asked for the first time whether a loop's state still changes.
const FIRST_LOOK: u64 = 256;

/// A run of a region.
struct RegionRun<'w, 'r> {
    executor: &'w mut ThunkExecutor<'r>,
    region: &'w RegionCall,
    polls: u64,
    /// A loop, its state after some iteration, and how many more questions of other loops may come before its next
    /// iteration ends.
    watched: Option<(u32, Vec<Vec<u8>>, u64)>,
    fault: Option<ExecutionError>,
}

/// Runs a region.
pub(crate) fn run(executor: &mut ThunkExecutor<'_>, region: &RegionCall) -> Result<(), ExecutionError> {
    let left = executor.grant(STEPS_AT_A_TIME)? as i64;
    let table = executor.addresses.as_ptr();
    let functions: SmallVec<[KernelFn; 8]> =
        region.kernels.iter().map(|&k| executor.kernels.kernels[k as usize]).collect();
    let function = executor.kernels.regions[region.number as usize];
    let mut run = RegionRun { executor, region, polls: 0, watched: None, fault: None };
    let mut control = RegionControl {
        left,
        context: std::ptr::from_mut(&mut run).cast::<c_void>(),
        outside,
        poll,
        functions: functions.as_ptr(),
    };
    // SAFETY: the table and what the control leads to are those that the region was made for, and outlive the call; the
    // run is used by nobody else meanwhile.
    let stopped = unsafe { function(table, &raw mut control) };
    run.executor.steps = run.executor.steps.saturating_sub(u64::try_from(control.left).unwrap_or(0));
    match run.fault.take() {
        Some(fault) => Err(fault),
        None if stopped != 0 => Err(ExecutionError::bug("a region ended by itself")),
        None => Ok(()),
    }
}

/// Does `work` for native code, into which no panic may go; the default if it fails.
fn guarded<T>(
    run: &mut RegionRun<'_, '_>,
    failed: T,
    work: impl FnOnce(&mut RegionRun<'_, '_>) -> Result<T, ExecutionError>,
) -> T {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(run)));
    match result {
        Ok(Ok(value)) => value,
        Ok(Err(fault)) => {
            run.fault = Some(fault);
            failed
        }
        Err(_) => {
            run.fault = Some(ExecutionError::bug("a step of a region panicked"));
            failed
        }
    }
}

unsafe extern "C" fn outside(context: *mut c_void, number: u32) -> u32 {
    // SAFETY: the context is the run, and native code is within `run` now.
    let run = unsafe { &mut *context.cast::<RegionRun<'_, '_>>() };
    guarded(run, 1, |run| {
        let step =
            run.region.outside.get(number as usize).ok_or_else(|| ExecutionError::bug("a region has no such step"))?;
        run.executor.step(step).map_err(|fault| fault.at(step.instruction)).map(|()| 0)
    })
}

unsafe extern "C" fn poll(context: *mut c_void, number: u32) -> i64 {
    // SAFETY: the context is the run, and native code is within `run` now.
    let run = unsafe { &mut *context.cast::<RegionRun<'_, '_>>() };
    guarded(run, STOP, |run| run.poll(number))
}

impl RegionRun<'_, '_> {
    fn poll(&mut self, number: u32) -> Result<i64, ExecutionError> {
        let state =
            self.region.loops.get(number as usize).ok_or_else(|| ExecutionError::bug("a region has no such loop"))?;
        let at_loop = |fault: ExecutionError| fault.at(state.instruction);
        self.executor.grant(0).map_err(at_loop)?;
        match &mut self.watched {
            Some((watched, before, _)) if *watched == number => {
                // After a turn the state is as it was before: it will be so for ever. (Had the loop ended and begun
                // again meanwhile, with this state it would end again.)
                let same = before.iter().zip(self.executor.leaves(state)).all(|(a, b)| a == b);
                self.watched = None;
                if same {
                    return Ok(LEAVE);
                }
            }
            Some((_, _, patience)) if *patience > 0 => {
                *patience -= 1;
                return Ok(0);
            }
            _ => self.watched = None,
        }
        self.polls += 1;
        if state.closed && self.polls >= FIRST_LOOK && self.polls.is_power_of_two() {
            let before = self.executor.leaves(state).map(<[u8]>::to_vec).collect();
            self.watched = Some((number, before, self.polls));
            return Ok(0);
        }
        self.executor.grant(STEPS_AT_A_TIME).map(|granted| granted as i64).map_err(at_loop)
    }
}

impl ThunkExecutor<'_> {
    /// The leaves of a loop's state.
    fn leaves<'s>(&'s self, state: &'s LoopState) -> impl Iterator<Item = &'s [u8]> {
        let arrays = &self.addresses[state.arrays.start as usize..state.arrays.end as usize];
        let leaves = arrays.iter().zip(&state.bytes).filter(|(a, _)| !a.is_null());
        // SAFETY: the leaves of the state lie there, so long, and nothing writes to them between two iterations.
        leaves.map(|(&address, &bytes)| unsafe { std::slice::from_raw_parts(address, bytes) })
    }
}

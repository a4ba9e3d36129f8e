//! Collectives in a run: among devices on this GPU by copies and kernels, with devices on other GPUs by NCCL.
//!
//! A device that meets others by NCCL is the only one of its executor. Its collectives go on the same stream as all else, so
//! that what follows on the stream finds their results. What is on its way is watched while the host waits: a collective
//! that the stream has reached and that is not over within the time limit ends the run, and the GPU with it, since others
//! may still write to its memory.

use crate::collective::Collective;
use crate::driver::DevicePointer;
use crate::executor::Executor;
use crate::gpu::{Event, Gpu, Patience};
use crate::nccl::{At, Call, Limits, Meeting, Place, Schedule, Step, not_done};
use crate::thunk::Thunk;
use hloom_comm::{Communicator, JoinError};
use hloom_eval::collective_work::{key_of, name_of, purpose_of};
use hloom_eval::ops::collective::missed;
use hloom_ir::diagnostic::codes;
use hloom_ir::entity::InstructionId;
use hloom_value::ExecutionError;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a device is waited for where nobody says otherwise.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(600);

/// How a device meets those on other GPUs.
pub(crate) struct Exchange<'r> {
    /// How they meet on the host.
    communicator: Arc<dyn Communicator>,
    /// Memory that collectives work in, one after another.
    scratch: DevicePointer,
    time_limit: Duration,
    /// Raised when another device of this process has failed.
    failed: Option<&'r AtomicBool>,
    /// Collectives on the stream, the oldest first.
    in_flight: RefCell<VecDeque<InFlight<'r>>>,
}

/// A collective on the stream, between two marks.
struct InFlight<'r> {
    begin: Event<'r>,
    /// Nothing as long as not all of it is enqueued.
    end: Option<Event<'r>>,
    /// When it was seen that the stream has come to it.
    reached: Option<Instant>,
    instruction: InstructionId,
    group: Vec<usize>,
    communicator: usize,
}

impl<'r> Exchange<'r> {
    /// Devices that meet by `communicator` on the host.
    pub(crate) fn new(
        communicator: Arc<dyn Communicator>,
        scratch: DevicePointer,
        time_limit: Duration,
        failed: Option<&'r AtomicBool>,
    ) -> Exchange<'r> {
        Exchange { communicator, scratch, time_limit, failed, in_flight: RefCell::default() }
    }
}

impl Executor<'_> {
    /// Carries out a collective in each group.
    pub(crate) fn collective(
        &mut self,
        thunk: &Thunk,
        collective: &Collective,
        devices: &[usize],
    ) -> Result<(), ExecutionError> {
        if self.exchange.is_some() {
            let ordinal = self.ordinal(0);
            return match collective.groups.iter().find(|g| g.contains(&ordinal)) {
                None => Ok(()),
                Some(alone) if alone.len() == 1 => self.within(thunk, collective, &[0]),
                Some(group) => self.across(thunk, collective, group),
            };
        }
        for group in &collective.groups {
            let absent: Vec<String> = group.iter().filter(|d| !devices.contains(d)).map(|d| d.to_string()).collect();
            if absent.len() == group.len() {
                continue;
            }
            if !absent.is_empty() {
                let message = format!("devices {} do not come to a collective of {group:?}", absent.join(", "));
                return Err(ExecutionError::new(&codes::eval::COLLECTIVE, message));
            }
            self.within(thunk, collective, group)?;
        }
        Ok(())
    }

    /// Carries out a collective of a group whose devices are all on this GPU.
    fn within(&self, thunk: &Thunk, collective: &Collective, group: &[usize]) -> Result<(), ExecutionError> {
        let count = collective.operands();
        let mut scratch = self.arrays(thunk, group[0]).get(2 * count..).unwrap_or(&[]);
        for reducer in &collective.reducers {
            let of_group = |n: usize| group.iter().map(move |&d| (d, n));
            let at = |(d, n): (usize, usize)| self.arrays(thunk, d)[n];
            let operands: Vec<DevicePointer> = reducer.operands.clone().flat_map(of_group).map(at).collect();
            let results: Vec<DevicePointer> =
                reducer.operands.clone().flat_map(|n| of_group(count + n)).map(at).collect();
            self.kernels(reducer.sequence, &operands, &results, scratch)?;
            let used = self.loaded.program.sequence(reducer.sequence).map_or(0, |s| s.scratch.len());
            scratch = scratch.get(used..).unwrap_or(&[]);
        }
        for n in 0..count {
            for zeroed in collective.zeroed() {
                let to = self.arrays(thunk, group[zeroed])[count + n];
                self.gpu.zero(to, collective.operand_bytes(n))?;
            }
            for m in collective.moves(n) {
                let from = self.arrays(thunk, group[m.from.device])[m.from.array] + m.from.offset as u64;
                let to = self.arrays(thunk, group[m.to.device])[m.to.array] + m.to.offset as u64;
                copy(self.gpu, (to, m.to.pitch), (from, m.from.pitch), m.width, m.rows)?;
            }
        }
        Ok(())
    }

    /// Carries out a collective with devices on other GPUs.
    fn across(&self, thunk: &Thunk, collective: &Collective, group: &[usize]) -> Result<(), ExecutionError> {
        let (gpu, id, device) = (self.gpu, thunk.instruction, self.ordinal(0));
        let missing = || ExecutionError::bug("the device's way to others is not there");
        let exchange = self.exchange.as_ref().ok_or_else(missing)?;
        let evaluator = self.evaluators.first().ok_or_else(missing)?;
        let nccl = gpu.nccl()?;
        let module = evaluator.module();
        let (what, name) = (Arc::from(purpose_of(module, id)), Arc::from(name_of(module, id)));
        let meeting = Meeting { key: key_of(module, id), group, what: &what, name: &name };
        let stopped = || self.stopped();
        let limits = Limits { time_limit: exchange.time_limit, stopped: &stopped };
        let miss = |miss: JoinError| missed(evaluator, id, group, miss);
        let communicator = nccl.enter(&*exchange.communicator, device, &meeting, limits).map_err(miss)?;
        let me = group.iter().position(|&d| d == device).ok_or_else(missing)?;
        let arrays = self.arrays(thunk, 0);
        let at = |at: At| match at.place {
            Place::Array(n) => arrays[n] + at.offset as u64,
            Place::Scratch => exchange.scratch + at.offset as u64,
        };
        let begin = Event::new(gpu, false)?;
        begin.record()?;
        let (end, reached, of_group) = (None, None, group.to_vec());
        let in_flight = InFlight { begin, end, reached, instruction: id, group: of_group, communicator };
        exchange.in_flight.borrow_mut().push_back(in_flight);
        for step in &Schedule::new(collective, me).steps {
            match step {
                &Step::Copy { from, from_pitch, to, to_pitch, width, rows } => {
                    copy(gpu, (at(to), to_pitch), (at(from), from_pitch), width, rows)?;
                }
                &Step::Zero { at: to, bytes } => gpu.zero(at(to), bytes)?,
                Step::Exchange(calls) => {
                    let calls: Vec<Call<u64>> = calls.iter().map(|c| c.at(at)).collect();
                    // SAFETY: the arrays are the instruction's and the scratch memory, which stay until the run is over;
                    // where it fails, the GPU is not used any more.
                    unsafe { nccl.enqueue(communicator, gpu.stream(), &calls, limits) }.map_err(miss)?;
                }
                Step::Reduce { reducer, operands, results } => {
                    let addresses = |list: &[At]| list.iter().map(|&a| at(a)).collect::<Vec<_>>();
                    let used = |r: &crate::collective::Reducer| {
                        self.loaded.program.sequence(r.sequence).map_or(0, |s| s.scratch.len())
                    };
                    let before: usize = collective.reducers[..*reducer].iter().map(used).sum();
                    let scratch = arrays.get(2 * collective.operands() + before..).unwrap_or(&[]);
                    let sequence = collective.reducers[*reducer].sequence;
                    self.kernels(sequence, &addresses(operands), &addresses(results), scratch)?;
                }
            }
        }
        let end = Event::new(gpu, false)?;
        end.record()?;
        if let Some(last) = exchange.in_flight.borrow_mut().back_mut() {
            last.end = Some(end);
        }
        Ok(())
    }

    /// Why nobody waits for other devices any longer, if so.
    fn stopped(&self) -> Option<JoinError> {
        let is_raised = |flag: Option<&AtomicBool>| flag.is_some_and(|f| f.load(Ordering::Relaxed));
        let failed = self.exchange.as_ref().and_then(|e| e.failed);
        (is_raised(self.options.cancel) || is_raised(failed)).then_some(JoinError::Cancelled)
    }

    /// Waits until all work is done.
    pub(crate) fn wait(&self) -> Result<(), ExecutionError> {
        let check = || self.check_in_flight();
        let check: Option<&dyn Fn() -> Result<(), ExecutionError>> = match self.exchange {
            Some(_) => Some(&check),
            None => None,
        };
        self.gpu.wait(Patience { check, ..self.patience() })
    }

    /// Fails if the collective that the stream is at will not end, or takes too long.
    fn check_in_flight(&self) -> Result<(), ExecutionError> {
        let Some(exchange) = &self.exchange else { return Ok(()) };
        let mut in_flight = exchange.in_flight.borrow_mut();
        forget_what_is_over(&mut in_flight)?;
        let Some(first) = in_flight.front_mut() else { return Ok(()) };
        if first.reached.is_none() && first.begin.is_over()? {
            first.reached = Some(Instant::now());
        }
        let is_late = first.reached.is_some_and(|reached| reached.elapsed() > exchange.time_limit);
        let why = match self.gpu.nccl()?.check(first.communicator) {
            Err(why) => Some(why),
            Ok(()) if is_late => Some(not_done(exchange.time_limit)),
            Ok(()) => self.stopped(),
        };
        match (why, self.evaluators.first()) {
            (Some(why), Some(evaluator)) => Err(missed(evaluator, first.instruction, &first.group, why)),
            _ => Ok(()),
        }
    }

    /// Ends a run that has failed. Where a collective is on its way, others may still write to this GPU's memory: it is not
    /// used any more.
    pub(crate) fn abandon_exchange(&self, error: ExecutionError) -> ExecutionError {
        let Some(exchange) = &self.exchange else { return error };
        let mut in_flight = exchange.in_flight.borrow_mut();
        // What cannot be asked about is not over.
        let _ = forget_what_is_over(&mut in_flight);
        let (Some(first), Some(evaluator)) = (in_flight.front(), self.evaluators.first()) else { return error };
        let error = match error.diagnostic().code == &codes::eval::DEVICE_FAILED {
            true => {
                let why = JoinError::Transport(error.diagnostic().message.clone());
                missed(evaluator, first.instruction, &first.group, why)
            }
            false => error,
        };
        if let Ok(nccl) = self.gpu.nccl() {
            nccl.give_up();
        }
        self.gpu.mark_lost(&error);
        error
    }
}

fn forget_what_is_over(in_flight: &mut VecDeque<InFlight<'_>>) -> Result<(), ExecutionError> {
    while let Some(first) = in_flight.front()
        && first.end.as_ref().map_or(Ok(false), Event::is_over)?
    {
        in_flight.pop_front();
    }
    Ok(())
}

/// Enqueues a copy of rows, each at its pitch.
fn copy(
    gpu: &Gpu,
    to: (DevicePointer, usize),
    from: (DevicePointer, usize),
    width: usize,
    rows: usize,
) -> Result<(), ExecutionError> {
    match rows {
        1 => gpu.copy(to.0, from.0, width),
        _ => gpu.copy_rows(to, from, width, rows),
    }
}

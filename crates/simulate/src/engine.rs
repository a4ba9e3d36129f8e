//! The event-driven simulation: one device of each class goes through its program; kernels and movements run side by
//! side and share what they need.
//!
//! - A device runs one kernel at a time, in order. Movements that it starts go on beside, until it waits for them.
//! - Kernels and movements that use the same memory or link share it: nobody gets more than it can use, and what is left
//!   is divided evenly. Sharing changes only when something begins or ends, so time goes from event to event.
//! - A collective begins when every class that takes part has come to it. A device has few movements on their way at
//!   once; further ones queue.
//! - Of a loop the first rounds are simulated, until one begins and ends with nothing on its way; the rest take as long
//!   as the last of them.

mod movements;

use crate::devices::Classes;
use crate::program::{Action, Program};
use crate::timeline::{Event, Lane, Stall, Totals};
use hloom_cost::{Bound, CostModel, InstructionCost};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::simulate::WRONG_DEVICES;
use hloom_ir::diagnostic::{Blame, Part};
use hloom_ir::entity::{ComputationId, InstructionId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Movements of one device that go on at once.
const MOST_MOVING: usize = 8;
/// Rounds of a loop that are simulated at most.
const MOST_ROUNDS: u64 = 3;
/// Events beyond this are counted, not kept.
const MOST_EVENTS: usize = 2_000_000;
/// Work below this is done: a millionth of a nanosecond.
const NOTHING_LEFT: f64 = 1e-15;

/// Units of a device that kernels and movements share: the cores, the main memory, and then the links.
const CORES: usize = 0;
const MEMORY: usize = 1;
const LINKS: usize = 2;

type Uses = SmallVec<[(usize, f64); 6]>;

/// Something that takes time.
struct Task {
    /// Seconds left, at full speed.
    left: f64,
    speed: f64,
    uses: Uses,
    of: TaskOf,
}

#[derive(Clone, Copy)]
enum TaskOf {
    Kernel { class: usize, event: Option<usize> },
    Movement { instance: usize },
}

/// A movement that was started.
struct Instance {
    instruction: InstructionId,
    seconds: f64,
    uses: Uses,
    lane: Lane,
    bound: Bound,
    classes: SmallVec<[u32; 2]>,
    /// How many of them have come.
    came: usize,
    posted: f64,
    started: f64,
    ended: Option<f64>,
    event: Option<usize>,
    after: Option<usize>,
    wire_bytes: f64,
}

/// What a device does.
#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Ready,
    Computing,
    Waiting { instance: usize, since: f64 },
    Sleeping { until: f64 },
    Finished,
}

/// Where a device is in a computation, or in a loop.
enum Frame {
    Steps { computation: ComputationId, at: usize },
    Loop(Box<LoopFrame>),
}

struct LoopFrame {
    instruction: InstructionId,
    condition: ComputationId,
    body: ComputationId,
    trips: u64,
    least_round: f64,
    done: u64,
    stage: Stage,
    began: f64,
    /// Whether nothing was on its way when the round began.
    is_clean: bool,
    before: Totals,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Begin,
    Body,
    End,
}

/// One device of a class.
struct Device {
    state: State,
    frames: Vec<Frame>,
    totals: Totals,
    /// Movements that were started, by the instruction that did.
    moving: FxHashMap<InstructionId, VecDeque<usize>>,
    /// How many of them are not done yet.
    open: usize,
    queue: VecDeque<usize>,
    under_way: usize,
    /// How often it has come to each collective.
    met: FxHashMap<InstructionId, u64>,
    last: Option<usize>,
}

/// What a simulation comes to.
pub(crate) struct Outcome {
    /// When each class was done.
    pub(crate) ends: Vec<f64>,
    pub(crate) totals: Vec<Totals>,
    pub(crate) events: Vec<Event>,
    pub(crate) dropped_events: usize,
    pub(crate) stalls: Vec<Stall>,
    /// The last event of each class.
    pub(crate) last: Vec<Option<usize>>,
}

pub(crate) struct Engine<'a> {
    program: &'a Program,
    classes: &'a Classes,
    model: &'a CostModel<'a>,
    stride: usize,
    now: f64,
    devices: Vec<Device>,
    tasks: Vec<Task>,
    instances: Vec<Instance>,
    /// Collectives that not everyone has come to yet.
    meeting: FxHashMap<(InstructionId, u64, SmallVec<[u32; 2]>), usize>,
    events: Vec<Event>,
    dropped_events: usize,
    stalls: Vec<Stall>,
    is_changed: bool,
}

impl<'a> Engine<'a> {
    pub(crate) fn new(program: &'a Program, classes: &'a Classes, model: &'a CostModel<'a>, links: usize) -> Self {
        let dispatch = model.target().compute.dispatch_seconds;
        let device = || Device {
            state: State::Sleeping { until: dispatch },
            frames: vec![Frame::Steps { computation: program.entry, at: 0 }],
            totals: Totals::new(links),
            moving: FxHashMap::default(),
            open: 0,
            queue: VecDeque::new(),
            under_way: 0,
            met: FxHashMap::default(),
            last: None,
        };
        let devices = (0..classes.sizes.len()).map(|_| device()).collect();
        Engine {
            program,
            classes,
            model,
            stride: LINKS + links,
            now: 0.0,
            devices,
            tasks: Vec::new(),
            instances: Vec::new(),
            meeting: FxHashMap::default(),
            events: Vec::new(),
            dropped_events: 0,
            stalls: Vec::new(),
            is_changed: false,
        }
    }

    /// Goes from event to event until every device is done.
    pub(crate) fn run(mut self) -> Result<Outcome, Diagnostic> {
        let mut ends = vec![0.0; self.devices.len()];
        loop {
            for (class, end) in ends.iter_mut().enumerate() {
                if self.devices[class].state == State::Ready {
                    self.go_on(class)?;
                    if self.devices[class].state == State::Finished {
                        *end = self.now;
                    }
                }
            }
            if self.devices.iter().any(|d| d.state == State::Ready) {
                continue;
            }
            if self.devices.iter().all(|d| d.state == State::Finished) {
                break;
            }
            self.advance_to_next_event()?;
        }
        Ok(Outcome {
            ends,
            last: self.devices.iter().map(|d| d.last).collect(),
            totals: self.devices.into_iter().map(|d| d.totals).collect(),
            events: self.events,
            dropped_events: self.dropped_events,
            stalls: self.stalls,
        })
    }

    fn advance_to_next_event(&mut self) -> Result<(), Diagnostic> {
        if std::mem::take(&mut self.is_changed) {
            self.share();
        }
        let ending = self.tasks.iter().map(|t| t.left / t.speed).min_by(f64::total_cmp);
        let waking = self.devices.iter().filter_map(|d| match d.state {
            State::Sleeping { until } => Some((until - self.now).max(0.0)),
            _ => None,
        });
        let next = ending.into_iter().chain(waking).min_by(f64::total_cmp);
        let Some(passing) = next else { return Err(self.stuck()) };
        self.now += passing;
        for task in &mut self.tasks {
            task.left -= passing * task.speed;
        }
        let least = self.tasks.iter().map(|t| t.left).fold(f64::INFINITY, f64::min);
        // Rounding must not keep the task alive that this event is about.
        let limit = if ending == Some(passing) { least.max(NOTHING_LEFT) } else { NOTHING_LEFT };
        let mut n = 0;
        while n < self.tasks.len() {
            if self.tasks[n].left <= limit {
                let task = self.tasks.swap_remove(n);
                self.is_changed = true;
                self.end(&task);
            } else {
                n += 1;
            }
        }
        for device in &mut self.devices {
            if let State::Sleeping { until } = device.state
                && until <= self.now
            {
                device.state = State::Ready;
            }
        }
        Ok(())
    }

    /// Divides memories and links among those that use them.
    fn share(&mut self) {
        for task in &mut self.tasks {
            task.speed = 1.0;
        }
        if self.tasks.len() <= 1 {
            return;
        }
        let mut users: FxHashMap<usize, SmallVec<[(usize, f64); 8]>> = FxHashMap::default();
        for (n, task) in self.tasks.iter().enumerate() {
            for &(unit, demand) in &task.uses {
                users.entry(unit).or_default().push((n, demand));
            }
        }
        for demands in users.values_mut() {
            if demands.iter().map(|d| d.1).sum::<f64>() <= 1.0 {
                continue;
            }
            // Whoever wants less than an even part gets it; the others divide the rest.
            demands.sort_by(|a, b| a.1.total_cmp(&b.1));
            let (mut rest, mut among) = (1.0, demands.len() as f64);
            for &(n, demand) in demands.iter() {
                let given = demand.min(rest / among);
                rest -= given;
                among -= 1.0;
                let task = &mut self.tasks[n];
                task.speed = task.speed.min(given / demand).max(1e-6);
            }
        }
    }

    fn end(&mut self, task: &Task) {
        match task.of {
            TaskOf::Kernel { class, event } => {
                if let Some(event) = event {
                    self.events[event].end = self.now;
                    self.devices[class].last = Some(event);
                }
                self.devices[class].state = State::Ready;
            }
            TaskOf::Movement { instance } => self.end_movement(instance),
        }
    }

    /// Runs a device until it has to wait for something.
    fn go_on(&mut self, class: usize) -> Result<(), Diagnostic> {
        let program = self.program;
        while self.devices[class].state == State::Ready {
            let (computation, at) = match self.devices[class].frames.last_mut() {
                None => {
                    self.devices[class].state = State::Finished;
                    return Ok(());
                }
                Some(Frame::Loop(_)) => {
                    self.go_on_in_loop(class);
                    continue;
                }
                Some(Frame::Steps { computation, at }) => {
                    *at += 1;
                    (*computation, *at - 1)
                }
            };
            let Some(step) = program.steps(computation).get(at) else {
                self.devices[class].frames.pop();
                continue;
            };
            let id = step.instruction;
            match &step.action {
                Action::Compute(cost) => self.compute(class, id, cost),
                Action::Start(movement) => {
                    if let Some(instance) = self.start(class, id, movement)? {
                        self.devices[class].moving.entry(id).or_default().push_back(instance);
                    }
                }
                Action::Exchange(movement) => {
                    if let Some(instance) = self.start(class, id, movement)? {
                        self.wait(class, instance);
                    }
                }
                Action::Wait(start) => {
                    if let Some(instance) = self.oldest(class, *start) {
                        self.wait(class, instance);
                    }
                }
                Action::Call(callee) => {
                    self.devices[class].frames.push(Frame::Steps { computation: *callee, at: 0 });
                }
                Action::Loop { condition, body, trips, least_round } => {
                    let (condition, body, trips, least_round) = (*condition, *body, *trips, *least_round);
                    self.devices[class].frames.push(Frame::Loop(Box::new(LoopFrame {
                        instruction: id,
                        condition,
                        body,
                        trips,
                        least_round,
                        done: 0,
                        stage: Stage::Begin,
                        began: 0.0,
                        is_clean: false,
                        before: Totals::default(),
                    })));
                }
            }
        }
        Ok(())
    }

    /// The next stage of the loop that the device is in.
    fn go_on_in_loop(&mut self, class: usize) {
        let (now, many) = (self.now, self.devices.len() > 1);
        let device = &mut self.devices[class];
        let (is_idle, totals) = (device.open == 0, &mut device.totals);
        let Some(Frame::Loop(frame)) = device.frames.last_mut() else { return };
        let next = match frame.stage {
            Stage::Begin if frame.done >= frame.trips => {
                // The condition is asked once more than it says yes.
                let condition = frame.condition;
                device.frames.pop();
                condition
            }
            Stage::Begin => {
                (frame.began, frame.is_clean, frame.before) = (now, is_idle, totals.clone());
                frame.stage = Stage::Body;
                frame.condition
            }
            Stage::Body => {
                frame.stage = Stage::End;
                frame.body
            }
            Stage::End if now < frame.began + frame.least_round => {
                device.state = State::Sleeping { until: frame.began + frame.least_round };
                return;
            }
            Stage::End => {
                frame.done += 1;
                frame.stage = Stage::Begin;
                let left = frame.trips - frame.done;
                // Classes meet in every round, so all of them simulate the same rounds.
                let is_steady = frame.done >= MOST_ROUNDS || !many && frame.is_clean && is_idle;
                if left > 0 && is_steady {
                    let (lasted, instruction) = (now - frame.began, frame.instruction);
                    frame.done = frame.trips;
                    let before = std::mem::take(&mut frame.before);
                    totals.repeat_since(&before, left as f64);
                    let until = now + lasted * left as f64;
                    device.state = State::Sleeping { until };
                    let after = device.last;
                    let event = self.record(Event {
                        class,
                        lane: Lane::Repeat,
                        instruction,
                        start: now,
                        end: until,
                        bound: Bound::Latency,
                        cycles: None,
                        rounds: left,
                        after,
                    });
                    self.devices[class].last = event.or(after);
                }
                return;
            }
        };
        self.devices[class].frames.push(Frame::Steps { computation: next, at: 0 });
    }

    fn record(&mut self, event: Event) -> Option<usize> {
        if self.events.len() >= MOST_EVENTS {
            self.dropped_events += 1;
            return None;
        }
        self.events.push(event);
        Some(self.events.len() - 1)
    }

    fn compute(&mut self, class: usize, id: InstructionId, cost: &InstructionCost) {
        let after = self.devices[class].last;
        let event = self.record(Event {
            class,
            lane: Lane::Compute,
            instruction: id,
            start: self.now,
            end: self.now,
            bound: cost.bound(),
            cycles: cost.cycles,
            rounds: 1,
            after,
        });
        let totals = &mut self.devices[class].totals;
        totals.add_kernel(cost);
        let uses = self.kernel_uses(class, cost, true);
        self.tasks.push(Task { left: cost.seconds, speed: 1.0, uses, of: TaskOf::Kernel { class, event } });
        self.is_changed = true;
        self.devices[class].state = State::Computing;
    }

    /// The cores all the time, and the memory for as long as its traffic takes.
    fn kernel_uses(&self, class: usize, cost: &InstructionCost, has_cores: bool) -> Uses {
        let base = class * self.stride;
        let mut uses = Uses::new();
        if has_cores {
            uses.push((base + CORES, 1.0));
        }
        let memory = (cost.memory_seconds / cost.seconds.max(f64::MIN_POSITIVE)).min(1.0);
        if memory > 0.0 {
            uses.push((base + MEMORY, memory));
        }
        uses
    }

    /// Nothing can happen any more, and not everyone is done.
    fn stuck(&self) -> Diagnostic {
        let waiting = self.devices.iter().find_map(|d| match d.state {
            State::Waiting { instance, .. } => Some(self.instances[instance].instruction),
            _ => None,
        });
        let message = "devices wait for each other for ever: not all that a collective joins come to it";
        let fault = Diagnostic::error(&WRONG_DEVICES, message).blame(Blame::Program);
        match waiting {
            Some(id) => fault.at_instruction(id, Part::Whole),
            None => fault,
        }
    }
}

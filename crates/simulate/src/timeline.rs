//! What a simulation tells, as plain data: totals, what each instruction took, the timeline, the critical path, and
//! memory over time.

use hloom_cost::{Bound, InstructionCost};
use hloom_ir::InstructionId;
use hloom_ir::diagnostic::Diagnostic;
use rustc_hash::FxHashMap;

/// A run of a program, simulated.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// The target's name.
    pub target: String,
    /// How devices are joined.
    pub topology: String,
    /// How many devices.
    pub devices: usize,
    /// Classes of like devices, the slowest of which the rest is about.
    pub classes: Vec<DeviceClass>,
    /// From the call of the program to its end.
    pub step_seconds: f64,
    /// The same in cycles of the target.
    pub cycles: Option<f64>,
    /// What the slowest device did.
    pub totals: Totals,
    /// Share of the step in which the matrix units would have done the same products at their peak.
    pub mfu: f64,
    /// Share of the main memory's bandwidth that was used.
    pub memory_utilisation: f64,
    /// Of each kind of link its name and the share of the step in which it was in use.
    pub link_utilisation: Vec<(String, f64)>,
    /// What instructions took, in the order in which they first ran.
    pub instructions: Vec<InstructionTime>,
    /// What happened when, on one device of each class.
    pub events: Vec<Event>,
    /// Events beyond those kept.
    pub dropped_events: usize,
    /// When devices came to the end of a movement, and how long they waited for it; kept as long as events are.
    pub stalls: Vec<Stall>,
    /// The events that the end waited for, from the first to the last.
    pub critical_path: Vec<usize>,
    /// What devices waited for, the longest first.
    pub waits: Vec<Wait>,
    /// How much of each memory is in use, and when; empty where memory could not be planned.
    pub memory: Vec<SpaceUse>,
    /// What someone may want to know.
    pub warnings: Vec<Diagnostic>,
}

/// Devices that are alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeviceClass {
    /// How many.
    pub devices: usize,
    /// One of them.
    pub example: usize,
    /// When they are done.
    pub seconds: f64,
}

/// What an instruction took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct InstructionTime {
    /// Which one.
    pub instruction: InstructionId,
    /// When it began for the first time.
    pub start: f64,
    /// When that was over.
    pub end: f64,
    /// What it was busy with.
    pub bound: Bound,
    /// Cycles of one execution, for kernels.
    pub cycles: Option<f64>,
    /// How often it runs.
    pub runs: f64,
    /// Where it runs.
    pub lane: Lane,
}

/// Where something happens on a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    /// On its cores.
    Compute,
    /// Between its memories, or on its other threads.
    Copy,
    /// Between devices.
    Network,
    /// Further rounds of a loop, which are like the last one shown.
    Repeat,
}

impl Lane {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Lane::Compute => "compute",
            Lane::Copy => "copies",
            Lane::Network => "network",
            Lane::Repeat => "repeated",
        }
    }
}

/// Something that happened, on a device of a class.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Event {
    /// The class.
    pub class: usize,
    /// Where.
    pub lane: Lane,
    /// The instruction that did it; of a collective inside of a fusion, the fusion.
    pub instruction: InstructionId,
    /// From when.
    pub start: f64,
    /// Until when.
    pub end: f64,
    /// What it was busy with.
    pub bound: Bound,
    /// Cycles, for kernels.
    pub cycles: Option<f64>,
    /// Of [`Lane::Repeat`], how many rounds; otherwise one.
    pub rounds: u64,
    /// The event that it could not begin before.
    pub after: Option<usize>,
}

/// A device at the end of a movement: it goes on when that is complete.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stall {
    /// The class of the device.
    pub class: usize,
    /// The movement, as one of the events.
    pub movement: usize,
    /// When the device came.
    pub start: f64,
    /// When it went on: at once if the movement was complete.
    pub end: f64,
}

/// What devices waited for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wait {
    /// The movement.
    pub instruction: InstructionId,
    /// How long, all runs together.
    pub seconds: f64,
}

/// How much of a memory is in use.
#[derive(Clone, PartialEq, Debug)]
pub struct SpaceUse {
    /// Its memory space.
    pub memory_space: i64,
    /// Its name.
    pub name: String,
    /// How large it is, where that is known.
    pub capacity: Option<i64>,
    /// Bytes that the plan takes.
    pub planned_bytes: i128,
    /// From a time on, so many bytes are in use.
    pub samples: Vec<(f64, i128)>,
}

/// What a device did, all in all.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Totals {
    /// Kernels, one after another, as if nothing else used the memory.
    pub kernel_seconds: f64,
    /// Arithmetic alone.
    pub compute_seconds: f64,
    /// Traffic with main memory alone.
    pub memory_seconds: f64,
    /// Starting kernels.
    pub latency_seconds: f64,
    /// Exchange between devices, hidden or not.
    pub network_seconds: f64,
    /// Copies between memories, hidden or not.
    pub copy_seconds: f64,
    /// Waiting for an exchange.
    pub exposed_network_seconds: f64,
    /// Waiting for a copy.
    pub exposed_copy_seconds: f64,
    /// Of the waiting for exchanges, that for other devices to come.
    pub device_wait_seconds: f64,
    /// How long the products would take at the peak.
    pub peak_seconds: f64,
    /// Operations.
    pub flops: f64,
    /// Those of products and convolutions.
    pub matmul_flops: f64,
    /// Bytes to and from main memory.
    pub bytes: f64,
    /// Bytes sent to other devices.
    pub wire_bytes: f64,
    /// How long each kind of link was busy.
    pub link_seconds: Vec<f64>,
    /// How long was waited for each movement.
    pub waits: FxHashMap<InstructionId, f64>,
}

impl Totals {
    pub(crate) fn new(links: usize) -> Totals {
        Totals { link_seconds: vec![0.0; links], ..Totals::default() }
    }

    pub(crate) fn add_kernel(&mut self, cost: &InstructionCost) {
        self.kernel_seconds += cost.seconds;
        self.compute_seconds += cost.compute_seconds;
        self.memory_seconds += cost.memory_seconds;
        self.latency_seconds += cost.latency_seconds;
        self.peak_seconds += cost.peak_seconds;
        self.flops += cost.flops;
        self.matmul_flops += cost.matmul_flops;
        self.bytes += cost.bytes;
    }

    fn numbers(&mut self) -> [&mut f64; 14] {
        [
            &mut self.kernel_seconds,
            &mut self.compute_seconds,
            &mut self.memory_seconds,
            &mut self.latency_seconds,
            &mut self.network_seconds,
            &mut self.copy_seconds,
            &mut self.exposed_network_seconds,
            &mut self.exposed_copy_seconds,
            &mut self.device_wait_seconds,
            &mut self.peak_seconds,
            &mut self.flops,
            &mut self.matmul_flops,
            &mut self.bytes,
            &mut self.wire_bytes,
        ]
    }

    /// Adds what was done since `before` so many times again.
    pub(crate) fn repeat_since(&mut self, before: &Totals, times: f64) {
        let mut before = before.clone();
        for (now, before) in self.numbers().into_iter().zip(before.numbers()) {
            *now += (*now - *before) * times;
        }
        for (now, before) in self.link_seconds.iter_mut().zip(&before.link_seconds) {
            *now += (*now - before) * times;
        }
        for (id, now) in &mut self.waits {
            *now += (*now - before.waits.get(id).copied().unwrap_or(0.0)) * times;
        }
    }
}

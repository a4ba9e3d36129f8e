//! The cost model of a module on a target: ask it about instructions, or about kernels that do not exist yet.

use crate::custom_call::{self, CustomCost};
use crate::dumped::{WindowConfig, window_config};
use crate::fused::{Fused, fused_computations};
use crate::kernel::{Kernel, KernelKind, Placement};
use crate::processor::{self, Residence};
use crate::product::MatmulWindows;
use crate::roofline;
use crate::windows::Machine;
use crate::work::Work;
use hloom_ir::attributes::FusionKind;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_target::Target;
use rustc_hash::FxHashMap;

/// What a machine is busy with while an instruction runs, mostly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// Arithmetic.
    Compute,
    /// Copies between memories.
    Memory,
    /// Exchange between devices.
    Network,
    /// Starting: launches, filling of pipelines, hops.
    Latency,
}

impl Bound {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Compute => "compute",
            Bound::Memory => "memory",
            Bound::Network => "network",
            Bound::Latency => "latency",
        }
    }
}

/// What an instruction costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct InstructionCost {
    /// How long the device is busy with it.
    pub seconds: f64,
    /// The same in cycles, where the target's formulas are in cycles.
    pub cycles: Option<f64>,
    /// How long the arithmetic alone would take.
    pub compute_seconds: f64,
    /// How long its traffic with main memory alone would take.
    pub memory_seconds: f64,
    /// How long starting takes, without any work.
    pub latency_seconds: f64,
    /// How long its products and convolutions would take at the peak of the data sheet.
    pub peak_seconds: f64,
    /// Operations.
    pub flops: f64,
    /// Operations of products and convolutions among them.
    pub matmul_flops: f64,
    /// Bytes to and from main memory.
    pub bytes: f64,
    /// The windows that were chosen for a product.
    pub windows: Option<MatmulWindows>,
    /// How many windows the estimate is of; 1 where nothing is cut.
    pub window_count: f64,
    /// Bytes of fast memory that the windows of arrays in main memory take while it runs.
    pub held_bytes: f64,
}

impl InstructionCost {
    /// Nothing.
    pub fn free() -> InstructionCost {
        InstructionCost {
            seconds: 0.0,
            cycles: None,
            compute_seconds: 0.0,
            memory_seconds: 0.0,
            latency_seconds: 0.0,
            peak_seconds: 0.0,
            flops: 0.0,
            matmul_flops: 0.0,
            bytes: 0.0,
            windows: None,
            window_count: 1.0,
            held_bytes: 0.0,
        }
    }

    /// What a kernel takes, of which computing and moving its data would be so much by themselves.
    pub(crate) fn of_kernel(
        kernel: &Kernel,
        seconds: f64,
        compute: f64,
        memory: f64,
        target: &Target,
    ) -> Result<InstructionCost, Diagnostic> {
        Ok(InstructionCost {
            seconds,
            cycles: target.compute.clock_hz.map(|hz| seconds * hz),
            compute_seconds: compute,
            memory_seconds: memory,
            latency_seconds: seconds - compute.max(memory),
            peak_seconds: InstructionCost::at_peak(&kernel.work, target)?,
            flops: kernel.work.flops(),
            matmul_flops: kernel.work.matmul_flops(),
            bytes: kernel.bytes_in(0),
            ..InstructionCost::free()
        })
    }

    /// How long the products of `work` would take at the peak of the data sheet.
    pub(crate) fn at_peak(work: &Work, target: &Target) -> Result<f64, Diagnostic> {
        work.matmuls.iter().map(|m| Ok(m.flops / target.matmul_rate(m.lhs_type, false)?)).sum()
    }

    /// Nothing but time.
    pub fn of_seconds(seconds: f64) -> InstructionCost {
        InstructionCost { seconds, compute_seconds: seconds, ..InstructionCost::free() }
    }

    /// What it is busy with, mostly.
    pub fn bound(&self) -> Bound {
        let work = self.compute_seconds.max(self.memory_seconds);
        if self.latency_seconds > work {
            Bound::Latency
        } else if self.compute_seconds >= self.memory_seconds {
            Bound::Compute
        } else {
            Bound::Memory
        }
    }
}

/// What the instructions of a module cost on a target.
pub struct CostModel<'m> {
    module: &'m Module,
    target: &'m Target,
    fused: Vec<Option<Fused>>,
    machine: Option<Machine<'m>>,
    /// Whether windows that a compiler wrote down are used.
    uses_known_windows: bool,
    custom: FxHashMap<String, CustomCost>,
    /// Bytes that one run touches of the program's arguments, constants and results.
    footprint: f64,
}

impl<'m> CostModel<'m> {
    /// The model of `module` on `target`. Fails where the target lacks what every cost needs.
    pub fn new(module: &'m Module, target: &'m Target) -> Result<CostModel<'m>, Diagnostic> {
        target.bandwidth(0)?;
        let machine = target.windows.map(|windows| Machine::new(target, windows)).transpose()?;
        let fused = fused_computations(module);
        let custom = FxHashMap::default();
        let model = CostModel { module, target, fused, machine, uses_known_windows: true, custom, footprint: 0.0 };
        Ok(if model.is_processor() { model.with_footprint() } else { model })
    }

    /// The same with windows searched, whatever a compiler wrote down.
    pub fn with_searched_windows(mut self) -> CostModel<'m> {
        self.uses_known_windows = false;
        self
    }

    /// The same, with what custom calls cost: by their target, or by the name of the instruction.
    pub fn with_custom_costs(mut self, costs: impl IntoIterator<Item = (String, CustomCost)>) -> CostModel<'m> {
        self.custom.extend(costs);
        self
    }

    /// The machine.
    pub fn target(&self) -> &'m Target {
        self.target
    }

    /// The module.
    pub fn module(&self) -> &'m Module {
        self.module
    }

    /// What an instruction is to the model, where its arrays lie as their layouts say.
    pub fn kernel(&self, id: InstructionId) -> Kernel {
        Kernel::of(self.module, id, self.target, &self.fused, &Placement::default())
    }

    /// What an instruction costs. Collectives and copies between memories cost nothing here: [`crate::Communication`] and
    /// [`CostModel::copy_seconds`] know them. A custom call of which nothing is known is an error that names it.
    pub fn instruction(&self, id: InstructionId) -> Result<InstructionCost, Diagnostic> {
        self.placed(id, &Placement::default())
    }

    /// What an instruction costs if its arrays lie where `placement` says.
    pub fn placed(&self, id: InstructionId, placement: &Placement) -> Result<InstructionCost, Diagnostic> {
        let instruction = &self.module[id];
        if let Op::CustomCall(call) = &instruction.op {
            let given = self.custom.get(instruction.name()).or_else(|| self.custom.get(&*call.target));
            return custom_call::cost(self, id, call, given);
        }
        if let Some(given) = self.custom.get(instruction.name()) {
            return given.cost(self, id);
        }
        if self.is_outside(id) {
            return Ok(InstructionCost::free());
        }
        let kernel = Kernel::of(self.module, id, self.target, &self.fused, placement);
        let known = match self.uses_known_windows && placement == &Placement::default() {
            true => window_config(instruction),
            false => None,
        };
        match &self.machine {
            Some(machine) => machine.cost(&kernel, known.as_ref()),
            None if self.is_processor() => processor::cost(&kernel, self.residence(id, &kernel), self.target),
            None => roofline::cost(&kernel, self.target),
        }
    }

    /// What an instruction costs in such windows, on a target that has windows.
    pub fn in_windows(&self, id: InstructionId, windows: &WindowConfig) -> Result<InstructionCost, Diagnostic> {
        match &self.machine {
            Some(machine) => machine.cost(&self.kernel(id), Some(windows)),
            None => self.instruction(id),
        }
    }

    /// What a kernel costs that is no instruction (yet).
    pub fn kernel_cost(&self, kernel: &Kernel) -> Result<InstructionCost, Diagnostic> {
        match &self.machine {
            Some(machine) => machine.cost(kernel, None),
            None if self.is_processor() => processor::cost(kernel, Residence::default(), self.target),
            None => roofline::cost(kernel, self.target),
        }
    }

    /// Whether threads of an operating system compute.
    fn is_processor(&self) -> bool {
        self.target.compute.thread_seconds > 0.0
    }

    /// What was there before the program's run, of what an instruction reads.
    fn residence(&self, id: InstructionId, kernel: &Kernel) -> Residence {
        let is_outside = |index: u32| {
            let operand = self.module[id].operands().get(index as usize);
            operand.is_some_and(|&o| given(self.module, o).is_some())
        };
        let outside = kernel.operands.iter().filter(|a| a.space == 0 && is_outside(a.index));
        Residence { outside_bytes: outside.map(|a| a.bytes).sum(), footprint: self.footprint }
    }

    /// Bytes that one run touches of the program's arguments, constants and results.
    fn with_footprint(mut self) -> CostModel<'m> {
        let Some(entry) = self.module.entry() else { return self };
        let whole = |id: InstructionId| -> f64 {
            let leaves = self.module[id].shape.leaves();
            let bytes = leaves.iter().filter_map(|(_, s)| self.target.array_bytes(s.as_array_or_buffer()?));
            bytes.map(|b| b as f64).sum()
        };
        let mut read: FxHashMap<InstructionId, f64> = FxHashMap::default();
        for &id in self.module[entry].instructions() {
            let kernel = self.kernel(id);
            for (n, &operand) in self.module[id].operands().iter().enumerate() {
                let Some(given) = given(self.module, operand) else { continue };
                let own = kernel.operands.iter().filter(|a| a.index as usize == n).map(|a| a.bytes).sum();
                *read.entry(given).or_insert(0.0) += if matches!(self.module[id].op, Op::Bitcast) { 0.0 } else { own };
            }
        }
        let read: f64 = read.into_iter().map(|(id, bytes)| bytes.min(whole(id))).sum();
        self.footprint = read + self.module.root(entry).map_or(0.0, whole);
        self
    }

    /// Whether the instruction is a fusion that stands for a part of a collective, or a call to the outside.
    pub fn is_outside(&self, id: InstructionId) -> bool {
        let Op::Fusion(fusion) = &self.module[id].op else { return false };
        let fused = self.fused.get(fusion.calls.index()).and_then(Option::as_ref);
        // Around a collective as its root, or one of whose sum a part is kept; an output fusion may carry one along.
        let is_collective = |i: &InstructionId| self.module[*i].op.collective().is_some();
        let root = self.module.root(fusion.calls);
        let is_exchange = root.is_some_and(|r| is_collective(&r))
            || fusion.kind == FusionKind::Custom && self.module[fusion.calls].instructions().iter().any(is_collective);
        fused.is_some_and(|f| f.is_outside) || is_exchange
    }

    /// Whether the instruction does work that a compiler would estimate: everything but names, scalars, calls, halves of
    /// asynchronous operations and collectives.
    pub fn is_estimated(&self, id: InstructionId) -> bool {
        let is_custom = matches!(self.module[id].op, Op::CustomCall(_));
        !is_custom && !self.is_outside(id) && !matches!(self.kernel(id).kind, KernelKind::Free | KernelKind::Scalar)
    }

    /// Seconds that a copy of that many bytes between memories takes, and before its first byte arrives.
    pub fn copy_seconds(&self, bytes: f64) -> Result<(f64, f64), Diagnostic> {
        let latency = self.target.space(0).map_or(0.0, |s| s.latency_seconds);
        Ok((bytes / self.target.reached_bandwidth(0)?, latency))
    }
}

/// The argument or constant of the program that a value is, or is a part or another view of.
fn given(module: &Module, value: InstructionId) -> Option<InstructionId> {
    let mut at = value;
    loop {
        match module[at].op {
            Op::Parameter { .. } | Op::Constant(_) => {
                return (Some(module[at].parent()) == module.entry()).then_some(at);
            }
            Op::Bitcast | Op::GetTupleElement { .. } => at = *module[at].operands().first()?,
            _ => return None,
        }
    }
}

//! A memory assignment and what follows from it: what each memory space takes, what shares memory, and what would lower
//! a peak. Tables, JSON and the memory view of pages are made from it.

pub(crate) mod data;
pub mod describe;

use crate::words::count;
use describe::{index, instruction, label};
use hloom_analysis::cost::cost;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Op;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_plan::Plan;
use hloom_plan::assign::Allocation;
use hloom_plan::check::{Assignment, check};
use hloom_plan::dataflow::ValueId;
use hloom_plan::schedule::{Scheduler, schedule};
use hloom_plan::summary::{Advice, Change, Sharing, SpaceSummary, advise, sharings, summarise};
use hloom_target::Target;

/// So much advice is given.
const MOST_ADVICE: usize = 100;
/// Modules of so many instructions are scheduled and planned once more, to see what another order would bring.
const RESCHEDULED: usize = 10_000;

/// An assignment and what follows from it.
pub struct MemoryReport<'p, 'm> {
    /// The assignment.
    pub plan: &'p Plan<'m>,
    /// The machine that it is for.
    pub target: &'p Target,
    /// What each memory space takes.
    pub spaces: Vec<SpaceSummary>,
    /// Allocations that values share.
    pub sharings: Vec<Sharing>,
    /// What would lower a peak, the most first.
    pub advice: Vec<Suggestion>,
}

/// Something that would lower the peak of a memory space.
pub struct Suggestion {
    /// The kind of change, in one word.
    pub kind: &'static str,
    /// The memory space.
    pub memory_space: i64,
    /// By so much.
    pub bytes: i128,
    /// The value that it is about, if it is about one.
    pub value: Option<ValueId>,
    /// What to do, and why it can be done; names stand between backticks.
    pub text: String,
}

impl<'p, 'm> MemoryReport<'p, 'm> {
    /// What follows from the plan of `verified` on `target`.
    pub fn new(verified: &VerifiedModule, plan: &'p Plan<'m>, target: &'p Target) -> MemoryReport<'p, 'm> {
        let spaces = summarise(plan, target);
        let advice = advise(plan, target, &spaces, MOST_ADVICE);
        let again = advice.iter().any(|a| matches!(a.change, Change::Rematerialise { .. }));
        let costs = again.then(|| cost(verified));
        let flops = |id: InstructionId| costs.as_ref().map_or(0, |c| c.all_runs(plan.dataflow.module(), id).flops);
        let mut advice: Vec<Suggestion> = advice.iter().map(|a| suggestion(plan, a, flops)).collect();
        advice.extend(rescheduled(verified, target, &spaces));
        advice.sort_by_key(|a| std::cmp::Reverse(a.bytes));
        MemoryReport { plan, target, spaces, sharings: sharings(plan), advice }
    }
}

/// What another order of the whole module would bring, where it takes little time to find out.
fn rescheduled(verified: &VerifiedModule, target: &Target, spaces: &[SpaceSummary]) -> Vec<Suggestion> {
    let module = verified.module();
    if module.instruction_count() > RESCHEDULED {
        return Vec::new();
    }
    let peaks = || -> Option<Vec<SpaceSummary>> {
        let mut module = module.clone();
        schedule(&mut module, Scheduler::Memory, target).ok()?;
        let module = verify(module, &VerifyOptions { devices: None }).ok()?;
        let planned = hloom_plan::plan(&module, target).ok()?;
        check(&module, target, &Assignment::from(&planned)).is_empty().then(|| summarise(&planned, target))
    };
    let bytes = |space: &SpaceSummary| space.peak.as_ref().map_or(0, |p| p.bytes);
    let after = peaks().unwrap_or_default();
    let pairs = spaces.iter().filter_map(|s| Some((s, after.iter().find(|a| a.memory_space == s.memory_space)?)));
    if pairs.clone().any(|(before, after)| bytes(after) > bytes(before)) {
        return Vec::new();
    }
    let lower = pairs.filter(|(before, after)| bytes(after) < bytes(before));
    let suggestion = |(before, after): (&SpaceSummary, &SpaceSummary)| Suggestion {
        kind: "reschedule",
        memory_space: before.memory_space,
        bytes: bytes(before) - bytes(after),
        value: None,
        text: "order the whole module anew, for little memory, as --schedule memory does".to_owned(),
    };
    lower.map(suggestion).collect()
}

/// Says what to do, and why it can be done.
fn suggestion(plan: &Plan<'_>, advice: &Advice, flops: impl Fn(InstructionId) -> u64) -> Suggestion {
    let module = plan.dataflow.module();
    let step = |id: InstructionId| match plan.schedule.time(id) {
        Some(time) => format!("`{}` (step {time})", module[id].name()),
        None => format!("`{}`", module[id].name()),
    };
    let name = |value| format!("`{}`", label(plan, value));
    let (kind, text) = match advice.change {
        Change::Donate { parameter, result } => {
            let number = match instruction(plan, parameter).map(|id| &module[id].op) {
                Some(Op::Parameter { number, .. }) => number.to_string(),
                _ => String::new(),
            };
            let (part, parameter, result) = (index(plan, parameter), name(parameter), name(result));
            let why = format!("the result {result} can have its place, nothing reads it any more then");
            ("donate", format!("donate parameter {number}{part} {parameter}: {why}"))
        }
        Change::Later { value, before } => {
            ("later", format!("compute {} later, right before {}, the first to read it", name(value), step(before)))
        }
        Change::Earlier { value, after, frees } => {
            let why = format!("{} waits for nothing else", name(frees));
            ("earlier", format!("compute {} earlier, right after {}: {why}", name(value), step(after)))
        }
        Change::Rematerialise { value, before } => {
            let flops = instruction(plan, value).map_or(0, flops);
            let cost = if flops > 0 { format!(", for {} flops more", count(flops)) } else { String::new() };
            let text =
                format!("compute {} again right before {} instead of keeping it{cost}", name(value), step(before));
            ("rematerialise", text)
        }
    };
    Suggestion {
        kind,
        memory_space: advice.memory_space,
        bytes: advice.bytes,
        value: Some(advice.change.value()),
        text,
    }
}

/// What an allocation is for.
pub fn kind(allocation: &Allocation) -> &'static str {
    if allocation.parameter.is_some() {
        "parameter"
    } else if allocation.is_constant {
        "constant"
    } else if allocation.is_thread_local {
        "thread-local"
    } else if allocation.is_live_out {
        "result"
    } else {
        "temporaries"
    }
}

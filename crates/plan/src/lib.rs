//! Decisions about memory: from a scheduled module to the place of every value.
//!
//! The stages are plain functions from one result to the next:
//!
//! 1. [`dataflow`]: which value is at each position, and who uses it;
//! 2. [`buffers`]: which values must share memory;
//! 3. [`live_range`]: when each value is needed, by the flattened schedule;
//! 4. [`assign`]: allocations, and where each value lies in them.
//!
//! [`plan()`] does all of it; [`schedule()`](schedule::schedule) orders a module that has no schedule yet. [`dump`] writes
//! the result as XLA's compilers do; [`check`] proves an assignment right, ours or another's, from the module alone, and
//! shares no code with the stages that make one; [`saved`] keeps the places of a plan in a file; [`summary`] says what the
//! numbers mean.

pub mod assign;
mod backend_config;
pub mod buffers;
pub mod calls;
pub mod check;
pub mod copies;
pub mod dataflow;
pub mod dump;
pub mod dump_checker;
pub mod fingerprint;
pub mod flatten;
pub mod heap;
pub mod in_place;
mod intervals;
pub mod live_range;
pub mod order;
pub mod overwrite;
mod pack;
pub mod positions;
mod range_max;
mod reuse;
pub mod saved;
pub mod schedule;
mod side_by_side;
pub mod summary;
pub mod uses;

use assign::{Allocation, Assigned, Facts, PackedHeap};
use buffers::Buffers;
use calls::Calls;
use dataflow::{Dataflow, ValueId};
use hloom_ir::diagnostic::codes::plan::TOO_LARGE;
use hloom_ir::diagnostic::{Diagnostic, Part};
use hloom_ir::verify::VerifiedModule;
use hloom_target::Target;
use in_place::InPlace;
use live_range::{LiveRanges, Schedule};
use order::Orders;
use overwrite::Overwrite;
pub use pack::Packer;

/// The memory of a program.
#[derive(Debug)]
pub struct Plan<'m> {
    /// The values.
    pub dataflow: Dataflow<'m>,
    /// Which of them share memory.
    pub buffers: Buffers,
    /// The order in which everything runs.
    pub schedule: Schedule,
    /// When each value is needed.
    pub live: LiveRanges,
    /// Which operands and results are the same memory.
    pub in_place: InPlace<'m>,
    /// Where each value lies.
    pub allocations: Vec<Allocation>,
    /// The blocks that temporaries were packed into, and the least that each could take.
    pub heaps: Vec<PackedHeap>,
    /// Whether values that collectives send are kept until these are over.
    pub beside_collectives: bool,
}

/// Plans the memory of `module` on `target` as XLA does.
pub fn plan<'m>(module: &'m VerifiedModule, target: &Target) -> Result<Plan<'m>, Vec<Diagnostic>> {
    plan_with(module, target, Packer::Reference)
}

/// Plans the memory of `module` on `target`, with temporaries packed in that way.
pub fn plan_with<'m>(module: &'m VerifiedModule, target: &Target, packer: Packer) -> Result<Plan<'m>, Vec<Diagnostic>> {
    plan_live(module, target, packer, false, |facts| sized(assign::assign(facts)))
}

/// As [`plan_with`], but results that nothing needs yet hold temporaries side by side, where that makes the block of
/// temporaries smaller. XLA puts one at a time there.
pub fn plan_inside_results<'m>(
    module: &'m VerifiedModule,
    target: &Target,
    packer: Packer,
) -> Result<Plan<'m>, Vec<Diagnostic>> {
    plan_live(module, target, packer, false, |facts| sized(assign::assign_inside_results(facts)))
}

/// What a program may take more, as a part of all that it holds, so that collectives run beside computations: where a shard
/// of a weight is converted and gathered, the place of the converted one is wanted for the next at once, and each gather
/// would be waited for where it begins.
const GROWTH: i64 = 8;

/// As [`plan_inside_results`], for a machine that goes on while a collective is under way and waits for it where its
/// result is first needed: what it sends stays until then, where that takes at most an eighth more memory.
pub fn plan_beside_collectives<'m>(
    module: &'m VerifiedModule,
    target: &Target,
    packer: Packer,
) -> Result<Plan<'m>, Vec<Diagnostic>> {
    let plain = plan_inside_results(module, target, packer)?;
    let all = module.module().computations().iter().flat_map(|&c| module.module()[c].instructions());
    if !all.into_iter().any(|&i| live_range::is_kept_for(&module.module()[i].op)) {
        return Ok(plain);
    }
    let beside = plan_live(module, target, packer, true, |facts| sized(assign::assign_inside_results(facts)))?;
    let bytes = |plan: &Plan<'_>| plan.allocations.iter().map(|a| a.size).fold(0, i64::saturating_add);
    let whole = bytes(&plain);
    Ok(if bytes(&beside) <= whole.saturating_add(whole / GROWTH) { beside } else { plain })
}

fn too_large(what: &str) -> Vec<Diagnostic> {
    vec![Diagnostic::error(&TOO_LARGE, what.to_owned())]
}

fn sized(assigned: Option<Assigned>) -> Result<Assigned, Vec<Diagnostic>> {
    assigned.ok_or_else(|| too_large("all values together take more than 2^63 bytes"))
}

fn plan_live<'m>(
    module: &'m VerifiedModule,
    target: &Target,
    packer: Packer,
    beside_collectives: bool,
    assign: impl FnOnce(&Facts<'_, '_>) -> Result<Assigned, Vec<Diagnostic>>,
) -> Result<Plan<'m>, Vec<Diagnostic>> {
    let module = module.module();
    let calls = Calls::new(module, target)?;
    let orders = Orders::new(module, &calls, target);
    let dataflow = Dataflow::new(module, &calls, &orders)
        .ok_or_else(|| too_large("the module's results have more than 2^32 parts"))?;
    let in_place = InPlace::new(module, calls.post_order());
    let buffers = Buffers::new(&dataflow, &calls, &in_place);
    let schedule = Schedule::new(module);
    let live = match beside_collectives {
        true => LiveRanges::beside_collectives(&dataflow, &buffers, &schedule),
        false => LiveRanges::new(&dataflow, &buffers, &schedule),
    };
    let sizes = buffer_sizes(&dataflow, &buffers, &calls, target)?;
    let overwrite = Overwrite::new(&dataflow, &in_place, target);
    let facts = Facts {
        dataflow: &dataflow,
        buffers: &buffers,
        live: &live,
        calls: &calls,
        orders: &orders,
        overwrite: &overwrite,
        target,
        packer,
        sizes: &sizes,
    };
    let (allocations, heaps) = assign(&facts)?;
    Ok(Plan { dataflow, buffers, schedule, live, in_place, allocations, heaps, beside_collectives })
}

/// The size of each buffer that needs memory: that of its largest value.
fn buffer_sizes(
    dataflow: &Dataflow<'_>,
    buffers: &Buffers,
    calls: &Calls,
    target: &Target,
) -> Result<Vec<i64>, Vec<Diagnostic>> {
    let mut sizes = vec![0; buffers.len()];
    for (id, value) in dataflow.values() {
        let home = dataflow.module()[dataflow.instruction(value)].parent();
        if !calls.is_global(home) && !calls.is_thread_local(home) {
            // Within a fusion nothing has a place in memory.
            continue;
        }
        let shape = dataflow.positions.shape(value.position);
        let Some(size) = target.byte_size(shape) else {
            let instruction = dataflow.instruction(value);
            let message = format!("`{}` has no size: {shape}", dataflow.module()[instruction].name());
            return Err(vec![Diagnostic::error(&TOO_LARGE, message).at_instruction(instruction, Part::Shape)]);
        };
        let slot: &mut i64 = &mut sizes[buffers.of(id) as usize];
        *slot = size.max(*slot);
    }
    Ok(sizes)
}

impl Plan<'_> {
    /// Bytes of all allocations of all memory spaces together.
    pub fn total_bytes(&self) -> i128 {
        self.allocations.iter().map(|a| i128::from(a.size)).sum()
    }

    /// The bytes that temporaries of a memory space were packed into. Tables of tuples are among them only where they are
    /// packed, too ([`Packer::Best`]).
    pub fn heap_bytes(&self, memory_space: i64) -> i64 {
        self.heaps.iter().filter(|h| h.memory_space == memory_space).map(|h| h.bytes).sum()
    }

    /// What [`Plan::heap_bytes`] is at least, by this schedule, however the temporaries are packed: the most of them that
    /// is live at once, each beginning at a multiple of the alignment. A plan that reaches it cannot be packed better.
    pub fn lower_bound(&self, memory_space: i64) -> i64 {
        self.heaps.iter().filter(|h| h.memory_space == memory_space).map(|h| h.lower_bound).sum()
    }

    /// The values that have a place, by number.
    pub fn placed_values(&self) -> Vec<ValueId> {
        let mut values: Vec<ValueId> = self.allocations.iter().flat_map(|a| a.places.iter().map(|p| p.value)).collect();
        values.sort_unstable();
        values
    }
}

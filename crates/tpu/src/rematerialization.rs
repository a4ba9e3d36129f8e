//! Rematerialisation: where a program needs more main memory than there is, values are computed again instead of being kept.
//!
//! The plan says at what time most memory is taken. Of what is live then, made before it and read only before and after it,
//! what takes few cycles for its bytes is made once more right before its first reader after that time, from operands that
//! are live there anyway. This is repeated until the program fits or nothing is left that helps.

use crate::edit::flow_computations;
use crate::elapsed::Elapsed;
use crate::spaces::{first_error, verified};
use crate::stage::{StageContext, staged};
use hloom_analysis::effects::has_side_effect;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::passes::BROKEN_MODULE;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::Op;
use hloom_ir::verify::VerifiedModule;
use hloom_passes::Pass;
use hloom_plan::Plan;
use hloom_plan::dataflow::{Value, ValueId};
use hloom_plan::live_range::Time;
use hloom_target::Target;
use rustc_hash::{FxHashMap, FxHashSet};

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "rematerialize",
    statement: "computes values again where keeping them takes more main memory than there is",
    keeps_schedule: true,
    run: |module, context| staged(module, context, rematerialize),
};

/// The share of main memory that a program may take.
const LIMIT: f64 = 0.95;
/// How often the plan is made again.
const MAX_ROUNDS: usize = 8;

fn rematerialize(module: &mut Module, context: &StageContext<'_>) -> Result<usize, Diagnostic> {
    let Some(bytes) = context.target.space(0).and_then(|s| s.bytes) else { return Ok(0) };
    let limit = (bytes as f64 * LIMIT) as i64;
    if all_values(module, context.target) <= limit {
        return Ok(0);
    }
    let mut changes = 0;
    let mut best: Option<i64> = None;
    for _ in 0..MAX_ROUNDS {
        let source = verified(module.clone())?;
        let plan = first_error(hloom_plan::plan(&source, context.target))?;
        let taken = taken(&plan);
        // A round that did not help shows that another would not.
        if taken <= limit || best.is_some_and(|b| taken >= b) {
            break;
        }
        best = Some(taken);
        let again = choose(&source, &plan, context, taken - limit)?;
        if again.is_empty() {
            break;
        }
        changes += again.len();
        apply(module, &again)?;
    }
    Ok(changes)
}

/// Bytes of all values together, as if none could take the place of another: what fits so needs no plan.
fn all_values(module: &Module, target: &Target) -> i64 {
    let mut sum: i64 = 0;
    for c in flow_computations(module) {
        for &i in module[c].instructions() {
            let leaves = module[i].shape.leaves();
            let bytes = leaves.iter().filter_map(|(_, s)| target.byte_size(s)).fold(0i64, i64::saturating_add);
            sum = sum.saturating_add(bytes);
        }
    }
    sum
}

/// Bytes of main memory.
fn taken(plan: &Plan<'_>) -> i64 {
    plan.allocations.iter().filter(|a| a.memory_space == 0 && !a.is_thread_local).map(|a| a.size).sum()
}

/// A value that is made again.
struct Again {
    instruction: InstructionId,
    /// Right before this one, the first of its late readers.
    before: InstructionId,
    /// Who reads it then: the instruction and which operand.
    readers: Vec<(InstructionId, usize)>,
    bytes: i64,
    cycles: f64,
}

/// What is to be made again so that `excess` bytes less are live at the worst time.
fn choose(
    source: &VerifiedModule,
    plan: &Plan<'_>,
    context: &StageContext<'_>,
    excess: i64,
) -> Result<Vec<Again>, Diagnostic> {
    let module = source.module();
    let Some(heap) = plan.heaps.iter().find(|h| h.memory_space == 0) else { return Ok(Vec::new()) };
    let elapsed = Elapsed::new(module, context)?;
    let mut found: Vec<Again> = Vec::new();
    for (id, value) in plan.dataflow.values() {
        found.extend(made_again(plan, module, &elapsed, (id, value), heap.time));
    }
    found.sort_by(|a, b| {
        let per_cycle = |x: &Again| x.bytes as f64 / x.cycles.max(1.0);
        per_cycle(b).total_cmp(&per_cycle(a)).then(a.instruction.index().cmp(&b.instruction.index()))
    });
    let mut chosen = Vec::new();
    let mut left = excess;
    let mut touched: FxHashSet<InstructionId> = FxHashSet::default();
    for again in found {
        if left <= 0 {
            break;
        }
        // What is made of a value that is itself made again would keep that one alive.
        if module[again.instruction].operands().iter().any(|o| touched.contains(o)) {
            continue;
        }
        left -= again.bytes;
        touched.insert(again.instruction);
        chosen.push(again);
    }
    Ok(chosen)
}

fn made_again(
    plan: &Plan<'_>,
    module: &Module,
    elapsed: &Elapsed<'_>,
    (id, value): (ValueId, Value),
    peak: Time,
) -> Option<Again> {
    let dataflow = &plan.dataflow;
    let range = plan.live.of(id)?;
    let i = dataflow.instruction(value);
    let is_alone = plan.buffers.values(plan.buffers.of(id)).len() == 1;
    // By one name only, so that all who read it are found.
    let is_one = dataflow.positions.is_whole(value.position) && dataflow.positions_of(id).len() == 1;
    if range.start >= peak || range.end <= peak || value.is_phi || !is_alone || !is_one || !can_run_again(module, i) {
        return None;
    }
    let shape = dataflow.positions.shape(value.position);
    let bytes = elapsed.target().byte_size(shape)?;
    if Target::memory_space(shape) != 0 || module.root(module[i].parent()) == Some(i) {
        return None;
    }
    let mut readers = Vec::new();
    let mut first: Option<(Time, InstructionId)> = None;
    for used in dataflow.uses_of(id) {
        let time = plan.schedule.time(used.user)?;
        if time < peak {
            continue;
        }
        if time == peak || module[used.user].parent() != module[i].parent() {
            return None;
        }
        first = first.filter(|f| f.0 <= time).or(Some((time, used.user)));
        readers.push((used.user, used.operand as usize));
    }
    let (time, before) = first?;
    // Its operands are there when it is made again, without being kept for it.
    let is_there = |&o: &InstructionId| {
        let value = dataflow.at(dataflow.positions.whole(o));
        module[o].shape.is_array() && value.and_then(|v| plan.live.of(v)).is_some_and(|r| r.end >= time)
    };
    module[i].operands().iter().all(is_there).then_some(())?;
    Some(Again { instruction: i, before, readers, bytes, cycles: elapsed.cycles(i) })
}

/// Whether an instruction gives the same when it runs once more, and nobody notices.
fn can_run_again(module: &Module, i: InstructionId) -> bool {
    let op = &module[i].op;
    let is_plain = match op {
        Op::Fusion(fusion) => {
            let inside = module[fusion.calls].instructions();
            fusion.output_operand_aliasing.is_empty()
                && inside.iter().all(|&x| module[x].op.collective().is_none() && !has_side_effect(&module[x].op))
                && !inside.iter().any(|&x| matches!(module[x].op, Op::Rng { .. } | Op::DynamicUpdateSlice))
        }
        Op::Convolution(_) | Op::Dot(_) | Op::Reduce { .. } | Op::Broadcast { .. } | Op::Iota { .. } => true,
        Op::Transpose { .. } | Op::Reshape { .. } | Op::Slice { .. } | Op::Pad { .. } | Op::Concatenate { .. } => true,
        op => op.is_elementwise(),
    };
    is_plain && module[i].common.control_predecessors().is_empty()
}

fn apply(module: &mut Module, chosen: &[Again]) -> Result<(), Diagnostic> {
    let mut before: FxHashMap<InstructionId, Vec<InstructionId>> = FxHashMap::default();
    let mut homes = FxHashSet::default();
    for again in chosen {
        let i = again.instruction;
        let home = module[i].parent();
        homes.insert(home);
        let mut op = module[i].op.clone();
        if let Op::Fusion(fusion) = &mut op {
            let name = module[fusion.calls].name().to_owned();
            fusion.calls = module.clone_computation(fusion.calls, &name);
        }
        let new = NewInstruction {
            name: format!("{}.remat", module[i].name()).as_str().into(),
            op,
            shape: module[i].shape.clone(),
            operands: Operands::from_slice(module[i].operands()),
            common: Common { metadata: module[i].common.metadata.clone(), ..Common::default() },
        };
        if let Some(root) = module.root(home) {
            module.set_root(root);
        }
        let made = module.add_instruction(home, new);
        for &(user, operand) in &again.readers {
            module.replace_operand(user, operand, made).map_err(|_| refused())?;
        }
        before.entry(again.before).or_default().push(made);
    }
    for home in homes {
        let added: FxHashSet<InstructionId> = before.values().flatten().copied().collect();
        let old = module[home].instructions().to_vec();
        let mut order = Vec::with_capacity(old.len());
        for i in old.into_iter().filter(|i| !added.contains(i)) {
            order.extend(before.get(&i).into_iter().flatten());
            order.push(i);
        }
        module.reorder(home, order).map_err(|_| refused())?;
    }
    Ok(())
}

fn refused() -> Diagnostic {
    let message = format!("the stage `{}` made an edit that is not one", STAGE.name);
    Diagnostic::error(&BROKEN_MODULE, message).blame(hloom_ir::diagnostic::Blame::Hloom)
}

//! What costs most in a module, and what would help.
//!
//! Instructions that do the same (one opcode, one shape, one source line: the layers of a network) count as one. They are
//! ranked by their share of the time, measured or simulated; where no time is known, by the largest share that they have of
//! the module's flops, of its memory traffic or of what devices exchange.

use crate::collectives::collectives;
use crate::module_data::Numbering;
use crate::words::{count, duration, size, source_line};
use hloom_analysis::cost::{Cost, ModuleCost};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::FxHashMap;
use serde::Serialize;

/// So many are told.
const MOST: usize = 5;
/// Operations for each byte below which memory is what an operation waits for, on all machines of today.
const MEMORY_BOUND: f64 = 50.0;
/// Matrix units take so many elements at a time.
const MATRIX_UNIT: i64 = 128;

/// One of the things that cost most.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Highlight {
    /// The instructions that are meant, the most expensive first.
    pub(crate) instructions: Vec<u32>,
    /// What the share is of: `time`, or the largest of `flops`, `bytes` and `collective`.
    pub(crate) metric: &'static str,
    /// That share.
    pub(crate) share: f64,
    /// How much that is, in words.
    pub(crate) amount: String,
    /// What would help.
    pub(crate) help: String,
}

/// What instructions that do the same cost together.
struct Together {
    ids: Vec<InstructionId>,
    cost: Cost,
    exchanged: u64,
    /// Whether what is exchanged goes on beside other work.
    is_async: bool,
    /// Microseconds, and how many of them they only waited for other devices.
    time_us: f64,
    waited_us: f64,
}

impl Together {
    fn new() -> Together {
        Together { ids: Vec::new(), cost: Cost::default(), exchanged: 0, is_async: true, time_us: 0.0, waited_us: 0.0 }
    }

    /// How much of what they cost: the arithmetic, the memory traffic and what is sent, without what is nothing.
    fn amounts(&self) -> String {
        let flops = (self.cost.flops > 0).then(|| format!("{} flops", count(self.cost.flops)));
        let bytes = (self.cost.bytes > 0).then(|| format!("{} through memory", size(self.cost.bytes)));
        let sent = (self.exchanged > 0).then(|| format!("{} sent by each device", size(self.exchanged)));
        [flops, bytes, sent].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Microseconds of each instruction, and how many of them it only waited for other devices.
type Times = FxHashMap<InstructionId, (f64, f64)>;

/// The things that cost most in `module`; `times` is empty where none are known.
pub(crate) fn highlights(module: &Module, costs: &ModuleCost, numbers: &Numbering, times: &Times) -> Vec<Highlight> {
    let fused = fused_flops(module, costs);
    let sent = sent_bytes(module, costs, numbers);
    let mut groups: FxHashMap<(String, String, String), Together> = FxHashMap::default();
    let mut order = Vec::new();
    let mut total = Together::new();
    for &computation in module.computations() {
        let runs = costs.runs(computation).in_memory;
        if runs == 0 {
            continue;
        }
        for &id in module[computation].instructions() {
            let instruction = &module[id];
            let mut cost = costs.own(id) * runs;
            if let Op::Fusion(fusion) = &instruction.op {
                let inside = fused.get(&fusion.calls).copied().unwrap_or_default();
                cost += Cost { bytes: 0, ..inside } * runs;
            }
            let (exchanged, is_async) = sent.get(&id).copied().unwrap_or((0, true));
            total.cost += cost;
            total.exchanged = total.exchanged.saturating_add(exchanged);
            let (time_us, waited_us) = times.get(&id).copied().unwrap_or_default();
            total.time_us += time_us;
            if cost == Cost::default() && exchanged == 0 && time_us == 0.0 {
                continue;
            }
            let key = (instruction.opcode().name().to_owned(), instruction.shape.to_string(), source_line(module, id));
            let group = groups.entry(key.clone()).or_insert_with(|| {
                order.push(key);
                Together::new()
            });
            group.ids.push(id);
            group.cost += cost;
            group.exchanged = group.exchanged.saturating_add(exchanged);
            group.is_async &= is_async;
            group.time_us += time_us;
            group.waited_us += waited_us;
        }
    }
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let mut ranked: Vec<(f64, &'static str, String, &Together)> = order
        .iter()
        .filter_map(|key| groups.get(key))
        .map(|g| {
            if total.time_us > 0.0 {
                let amounts = g.amounts();
                let rest = if amounts.is_empty() { String::new() } else { format!(": {amounts}") };
                return (g.time_us / total.time_us, "time", format!("{}{rest}", duration(g.time_us)), g);
            }
            let flops = share(g.cost.flops, total.cost.flops);
            let bytes = share(g.cost.bytes, total.cost.bytes);
            let exchanged = share(g.exchanged, total.exchanged);
            if exchanged > 0.0 && exchanged >= bytes.max(flops) {
                (exchanged, "collective", format!("{} sent by each device", size(g.exchanged)), g)
            } else if flops >= bytes {
                (flops, "flops", format!("{} flops", count(g.cost.flops)), g)
            } else {
                (bytes, "bytes", format!("{} through memory", size(g.cost.bytes)), g)
            }
        })
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    ranked.truncate(MOST);
    ranked.retain(|(share, ..)| *share > 0.0);
    ranked
        .into_iter()
        .map(|(share, metric, amount, group)| {
            let mut ids = group.ids.clone();
            let time_us = |id: &InstructionId| times.get(id).map_or(0.0, |t| t.0);
            ids.sort_by_key(|&id| std::cmp::Reverse(costs.all_runs(module, id).bytes));
            ids.sort_by(|a, b| time_us(b).total_cmp(&time_us(a)));
            Highlight {
                help: help(module, ids[0], group, costs),
                instructions: ids.iter().map(|&id| numbers.of(id)).collect(),
                metric,
                share,
                amount,
            }
        })
        .collect()
}

/// What one run of each fused computation costs, fusions inside it included.
fn fused_flops(module: &Module, costs: &ModuleCost) -> FxHashMap<ComputationId, Cost> {
    let mut flops: FxHashMap<ComputationId, Cost> = FxHashMap::default();
    // What is called is in most modules listed before what calls it; where it is not, the inner part is left out.
    for &computation in module.computations() {
        let sum = module[computation].instructions().iter().fold(Cost::default(), |sum, &id| {
            let inside = match &module[id].op {
                Op::Fusion(fusion) => flops.get(&fusion.calls).copied().unwrap_or_default(),
                _ => Cost::default(),
            };
            sum + costs.own(id) + inside
        });
        flops.insert(computation, sum);
    }
    flops
}

/// What a device sends because of an instruction, a collective or a fusion with one inside, and whether that goes on beside
/// other work. Of the positions of one collective the first counts.
fn sent_bytes(module: &Module, costs: &ModuleCost, numbers: &Numbering) -> FxHashMap<InstructionId, (u64, bool)> {
    let all = collectives(module, costs, &|id| numbers.of(id)).all;
    let by_number: FxHashMap<u32, (u64, bool)> = all.iter().map(|c| (c.instruction, (c.wire, c.is_async))).collect();
    let mut callers: FxHashMap<ComputationId, InstructionId> = FxHashMap::default();
    let instructions = || module.computations().iter().flat_map(|&c| module[c].instructions().iter().copied());
    for id in instructions() {
        if let Op::Fusion(fusion) = &module[id].op {
            callers.insert(fusion.calls, id);
        }
    }
    let mut sent: FxHashMap<InstructionId, (u64, bool)> = FxHashMap::default();
    for id in instructions() {
        let Some(&(bytes, is_async)) = by_number.get(&numbers.of(id)) else { continue };
        // Fusions nest a few deep.
        let mut outermost = id;
        while let Some(&caller) = callers.get(&module[outermost].parent()) {
            outermost = caller;
        }
        let entry = sent.entry(outermost).or_insert((0, true));
        *entry = (entry.0.saturating_add(bytes), entry.1 && is_async);
    }
    sent
}

/// The instruction of a fusion that takes most arithmetic; any other is that itself.
fn heaviest(module: &Module, id: InstructionId, costs: &ModuleCost) -> InstructionId {
    let Op::Fusion(fusion) = &module[id].op else { return id };
    let inside = module[fusion.calls].instructions().iter().copied();
    inside.max_by_key(|&i| costs.own(i).flops).unwrap_or(id)
}

/// What would make this cost less.
fn help(module: &Module, id: InstructionId, group: &Together, costs: &ModuleCost) -> String {
    let inner = heaviest(module, id, costs);
    let id = if matches!(module[inner].op, Op::Dot(_) | Op::Convolution(_)) { inner } else { id };
    let instruction = &module[id];
    let op = &instruction.op;
    let operand_type = instruction.operands().first().and_then(|&o| module[o].shape.element_type());
    let intensity = group.cost.flops as f64 / group.cost.bytes.max(1) as f64;
    // With times known, a fusion that begins an exchange and then computes is judged by what it computes.
    if group.exchanged > 0 && (group.time_us == 0.0 || 2.0 * group.waited_us > group.time_us) {
        return match group.is_async {
            true if group.waited_us > 0.0 => "It is asynchronous, and waited for all the same: more independent work \
                 between its start and its done, a smaller type or another sharding would help."
                .into(),
            true => "It is asynchronous: as much other work as takes as long must stand between its start and its \
                 done."
                .into(),
            false => "It is not asynchronous: nothing is computed meanwhile. A start and a done around \
                 independent work, a smaller type or another sharding would help."
                .into(),
        };
    }
    match op {
        Op::Dot(_) | Op::ScaledDot(_) | Op::RaggedDot(_) | Op::Convolution(_) => {
            if intensity < MEMORY_BOUND {
                return format!(
                    "Only {intensity:.1} flops for each byte: it waits for memory. A larger batch or narrower \
                         weights would help."
                );
            }
            let narrow = narrowest(module, id).filter(|&n| n < MATRIX_UNIT);
            match (operand_type, narrow) {
                (Some(ElementType::F32 | ElementType::F64), _) => {
                    let name = operand_type.map_or("", |t| t.name());
                    format!(
                        "Its operands are {name}: in bf16 matrix units are several times as fast, and it \
                         reads half as much or less."
                    )
                }
                (_, Some(n)) => format!(
                    "One of its dimensions has {n} elements: matrix units of {MATRIX_UNIT} × \
                     {MATRIX_UNIT} are not filled."
                ),
                _ => format!(
                    "{intensity:.0} flops for each byte: arithmetic decides. Fewer flops, a narrower \
                     type or more devices would help."
                ),
            }
        }
        Op::Copy | Op::Transpose { .. } => {
            "It only moves data. If what makes it and what reads it agreed on a layout, it would not be needed.".into()
        }
        Op::Fusion(_) if intensity < MEMORY_BOUND => {
            format!(
                "{intensity:.1} flops for each byte: it waits for memory. Fusing it with what makes or reads \
                 its arrays, or a narrower type, would help."
            )
        }
        Op::Fusion(_) => "Arithmetic decides: look inside it for what costs most.".into(),
        Op::Gather(_) | Op::Scatter(_) | Op::DynamicSlice { .. } | Op::DynamicUpdateSlice => {
            "Single elements or slices are fetched from all over memory: sorted indices or larger slices would \
                 help."
                .into()
        }
        Op::Sort { .. } => "Sorting reads the array many times: top-k, or fewer elements, may do.".into(),
        Op::While { .. } | Op::Call { .. } | Op::Conditional { .. } => {
            "What it carries is read and written around it: values that do not change could stay outside.".into()
        }
        Op::CustomCall(_) => "What a custom call does is not known here.".into(),
        _ => "It stands alone: fused with its neighbours (`hloom opt` does that), its arrays would not go through \
             memory."
            .into(),
    }
}

/// The least dimension of a matrix product's result and of what it sums over, batch dimensions apart.
fn narrowest(module: &Module, id: InstructionId) -> Option<i64> {
    let Op::Dot(dot) = &module[id].op else { return None };
    let operands = module[id].operands();
    let (lhs, rhs) = (module[*operands.first()?].shape.as_array()?, module[*operands.get(1)?].shape.as_array()?);
    let product = |dims: &[i64], skip: &dyn Fn(i64) -> bool| {
        let kept = dims.iter().enumerate().filter(|(d, _)| !skip(*d as i64));
        kept.fold(1i64, |n, (_, &size)| n.saturating_mul(size))
    };
    let dims = &dot.dims;
    let rows = product(lhs.dims(), &|d| dims.lhs_batch.contains(&d) || dims.lhs_contracting.contains(&d));
    let columns = product(rhs.dims(), &|d| dims.rhs_batch.contains(&d) || dims.rhs_contracting.contains(&d));
    let depth = product(lhs.dims(), &|d| !dims.lhs_contracting.contains(&d));
    Some(rows.min(columns).min(depth))
}

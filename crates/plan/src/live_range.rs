//! When values are needed: the flattened schedule, and for each value the times from its making to its last use.
//!
//! Times count instructions. What an instruction calls stands right before it; fusions and reducers are not entered. A
//! range includes both ends. Values of computations that are applied to elements have no times and no range.

use crate::buffers::{Buffers, aliased_parameters, is_entry_parameter};
use crate::calls::{AsyncChains, async_start};
use crate::dataflow::{Dataflow, ValueId};
use crate::order::flow_callees;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use rustc_hash::FxHashMap;

/// A time: the number of instructions before it.
pub type Time = u32;

const NEVER: Time = Time::MAX;

/// The order in which everything runs.
#[derive(Debug)]
pub struct Schedule {
    /// Every instruction that has a time, in order.
    pub sequence: Vec<InstructionId>,
    time: Vec<Time>,
    span: Vec<(Time, Time)>,
    /// For computations that run asynchronously, the async-start around them.
    around: Vec<Option<InstructionId>>,
}

impl Schedule {
    /// Flattens the order of the module.
    pub fn new(module: &Module) -> Schedule {
        let mut schedule = Schedule {
            sequence: Vec::new(),
            time: vec![NEVER; module.instruction_slots()],
            span: vec![(NEVER, NEVER); module.computation_slots()],
            around: vec![None; module.computation_slots()],
        };
        let Some(entry) = module.entry() else { return schedule };
        let mut stack: Vec<(ComputationId, usize, bool)> = vec![(entry, 0, false)];
        schedule.span[entry.index()].0 = 0;
        while let Some(&mut (computation, ref mut at, ref mut entered)) = stack.last_mut() {
            let Some(&id) = module[computation].instructions().get(*at) else {
                schedule.span[computation.index()].1 = schedule.now();
                stack.pop();
                // What was pushed with it begins only now.
                if let Some(&(next, 0, false)) = stack.last() {
                    schedule.span[next.index()].0 = schedule.now();
                }
                continue;
            };
            if !*entered {
                *entered = true;
                let callees = flow_callees(module, id);
                let around = match module[id].op {
                    Op::AsyncStart(_) | Op::AsyncUpdate { .. } => Some(async_start(module, id)),
                    _ => schedule.around[computation.index()],
                };
                for &callee in callees.iter().rev() {
                    if schedule.span[callee.index()].0 == NEVER {
                        let now = schedule.now();
                        schedule.span[callee.index()].0 = now;
                        schedule.around[callee.index()] = around;
                        stack.push((callee, 0, false));
                    }
                }
                continue;
            }
            *entered = false;
            *at += 1;
            schedule.time[id.index()] = schedule.now();
            schedule.sequence.push(id);
        }
        schedule
    }

    fn now(&self) -> Time {
        self.sequence.len() as Time
    }

    /// The time after the last instruction.
    pub fn end(&self) -> Time {
        self.now()
    }

    /// When an instruction runs.
    pub fn time(&self, id: InstructionId) -> Option<Time> {
        Some(self.time[id.index()]).filter(|&t| t != NEVER)
    }

    /// From when to when a computation runs; the end is that after its last instruction.
    pub fn span(&self, computation: ComputationId) -> Option<(Time, Time)> {
        Some(self.span[computation.index()]).filter(|s| s.1 != NEVER)
    }

    /// The async-start within which a computation runs.
    pub fn around(&self, computation: ComputationId) -> Option<InstructionId> {
        self.around[computation.index()]
    }
}

/// From a value's making to its last use, both included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct LiveRange {
    pub start: Time,
    pub end: Time,
}

/// The live ranges of a module's values.
#[derive(Debug)]
pub struct LiveRanges {
    ranges: Vec<Option<LiveRange>>,
}

/// Whether what an operation reads is kept until what it makes is first needed, where collectives are under way beside
/// computations. What an all-reduce sends is not, since its result takes the place.
pub(crate) fn is_kept_for(op: &Op) -> bool {
    !matches!(op, Op::AllReduce(_)) && (op.collective().is_some() || matches!(op, Op::CollectivePermute(_)))
}

impl LiveRanges {
    /// The range of each value.
    pub fn new(dataflow: &Dataflow<'_>, buffers: &Buffers, schedule: &Schedule) -> LiveRanges {
        let aliased = aliased_parameters(dataflow);
        let dones = async_dones(dataflow.module());
        let mut ranges: Vec<Option<LiveRange>> = vec![None; dataflow.value_slots()];
        for (id, _) in dataflow.values() {
            ranges[id as usize] = range(dataflow, schedule, &aliased, &dones, id);
        }
        share_in_turn(dataflow, buffers, &mut ranges);
        LiveRanges { ranges }
    }

    /// The same for machines that go on while a collective is under way: what it sends is kept until what it makes is
    /// first needed.
    pub fn beside_collectives(dataflow: &Dataflow<'_>, buffers: &Buffers, schedule: &Schedule) -> LiveRanges {
        let mut live = LiveRanges::new(dataflow, buffers, schedule);
        let module = dataflow.module();
        let lasts = |i: InstructionId| is_kept_for(&module[i].op);
        let mut first_need: FxHashMap<InstructionId, Time> = FxHashMap::default();
        for (id, value) in dataflow.values() {
            let maker = dataflow.instruction(value);
            if lasts(maker) {
                let times = dataflow.uses_of(id).iter().filter_map(|u| schedule.time(u.user));
                let first = times.min().or_else(|| schedule.span(module[maker].parent()).map(|s| s.1));
                let known = first_need.entry(maker).or_insert(NEVER);
                *known = first.map_or(*known, |f| f.min(*known));
            }
        }
        if first_need.is_empty() {
            return live;
        }
        for (id, _) in dataflow.values() {
            let users = dataflow.uses_of(id).iter().map(|u| u.user);
            let until = users.filter_map(|u| first_need.get(&u)).filter(|&&t| t != NEVER).max();
            if let (Some(range), Some(&until)) = (&mut live.ranges[id as usize], until) {
                range.end = range.end.max(until.saturating_sub(1));
            }
        }
        share_in_turn(dataflow, buffers, &mut live.ranges);
        live
    }

    /// The range of a value, if it is one that has times.
    pub fn of(&self, value: ValueId) -> Option<LiveRange> {
        self.ranges[value as usize]
    }
}

/// The async-done of each async-start, by the start's index.
fn async_dones(module: &Module) -> Vec<Option<InstructionId>> {
    let chains = AsyncChains::new(module);
    let mut dones = vec![None; module.instruction_slots()];
    for &computation in module.computations() {
        for &id in module[computation].instructions() {
            let mut followers = chains.followers(id).iter().copied();
            dones[id.index()] = followers.rfind(|&f| matches!(module[f].op, Op::AsyncDone));
        }
    }
    dones
}

fn range(
    dataflow: &Dataflow<'_>,
    schedule: &Schedule,
    aliased: &[bool],
    dones: &[Option<InstructionId>],
    id: ValueId,
) -> Option<LiveRange> {
    let module = dataflow.module();
    let value = dataflow.value(id)?;
    let instruction = dataflow.instruction(value);
    let own = schedule.time(instruction)?;
    let parent = module[instruction].parent();
    let span = schedule.span(parent)?;
    let is_root = |i: InstructionId| module.root(module[i].parent()) == Some(i);
    let start = if matches!(module[instruction].op, Op::Parameter { .. }) { span.0 } else { own };
    if is_entry_parameter(dataflow, instruction) && !aliased[value.position as usize] {
        return Some(LiveRange { start, end: schedule.end() });
    }
    let mut end = if is_root(instruction) { span.1 } else { own };
    if let Some(around) = schedule.around(parent) {
        let done = dones[around.index()].and_then(|d| schedule.time(d));
        end = end.max(done.unwrap_or(span.1));
    }
    Some(LiveRange { start, end: end.max(last_need(dataflow, schedule, id)) })
}

/// The last time at which a value is read or passed on; 0 if that never happens.
pub(crate) fn last_need(dataflow: &Dataflow<'_>, schedule: &Schedule, id: ValueId) -> Time {
    let module = dataflow.module();
    let is_root = |i: InstructionId| module.root(module[i].parent()) == Some(i);
    let mut end = 0;
    for &position in dataflow.positions_of(id).iter().skip(1) {
        let at = dataflow.positions.instruction(position);
        let time = if is_root(at) { schedule.span(module[at].parent()).map(|s| s.1) } else { schedule.time(at) };
        end = end.max(time.unwrap_or(0));
    }
    for usage in dataflow.uses_of(id) {
        let time = match &module[usage.user].op {
            // Inside the call the value has positions, and times, of its own.
            Op::Call { .. } => None,
            Op::While { body, .. } => module.parameters(*body).first().and_then(|&p| schedule.time(p)),
            _ => schedule.time(usage.user),
        };
        end = end.max(time.unwrap_or(0));
    }
    end
}

/// Values of one buffer take turns: each ends where the next begins, and the last lasts as long as any.
fn share_in_turn(dataflow: &Dataflow<'_>, buffers: &Buffers, ranges: &mut [Option<LiveRange>]) {
    for buffer in 0..buffers.len() as u32 {
        let mut turn: Vec<(LiveRange, ValueId)> =
            buffers.values(buffer).iter().filter_map(|&v| Some((ranges[v as usize]?, v))).collect();
        if turn.len() < 2 {
            continue;
        }
        turn.sort_unstable();
        for i in 1..turn.len() {
            let (before, after) = turn.split_at_mut(i);
            let (Some((a, _)), Some((b, _))) = (before.last_mut(), after.first_mut()) else { continue };
            b.end = b.end.max(a.end);
            a.end = a.end.min(b.start);
        }
        for (range, value) in turn {
            ranges[value as usize] = Some(range);
        }
    }
    debug_assert_eq!(ranges.len(), dataflow.value_slots());
}

/// The moment at which most is needed at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peak {
    /// The time.
    pub time: Time,
    /// The values needed then, by number.
    pub values: Vec<ValueId>,
}

/// Finds the peak as XLA does: a value counts with the plain bytes of its instruction's whole shape, and values that
/// begin at a time are added before those that ended just before it are taken away.
pub fn peak(dataflow: &Dataflow<'_>, live: &LiveRanges) -> Option<Peak> {
    let mut events: Vec<(Time, bool, ValueId)> = Vec::new();
    for (id, _) in dataflow.values() {
        if let Some(range) = live.of(id) {
            events.push((range.start, false, id));
            events.push((range.end.saturating_add(1), true, id));
        }
    }
    events.sort_unstable();
    let (mut now, mut most, mut time) = (0i128, 0i128, None);
    for &(at, is_end, id) in &events {
        let bytes = i128::from(instruction_bytes(dataflow, id));
        now += if is_end { -bytes } else { bytes };
        if now > most {
            most = now;
            time = Some(at);
        }
    }
    let time = time?;
    let is_live = |id: &ValueId| live.of(*id).is_some_and(|r| r.start <= time && r.end >= time);
    Some(Peak { time, values: dataflow.values().map(|(id, _)| id).filter(is_live).collect() })
}

/// The plain bytes of the whole shape of the instruction that makes a value.
pub fn instruction_bytes(dataflow: &Dataflow<'_>, id: ValueId) -> i64 {
    let Some(value) = dataflow.value(id) else { return 0 };
    plain_bytes(&dataflow.module()[dataflow.instruction(value)].shape)
}

/// Bytes without padding; a tuple is a table of pointers of eight bytes.
pub fn plain_bytes(shape: &Shape) -> i64 {
    match shape {
        Shape::Tuple(elements) => 8 * elements.len() as i64,
        other => other.byte_size().unwrap_or(i64::MAX),
    }
}

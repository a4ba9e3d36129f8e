//! What would lower the peak of a memory space, and by how much: parameters to donate, and instructions to move or to
//! compute again.
//!
//! Each change is judged alone. The bytes in use are computed anew with the live ranges that it would bring, over the whole
//! schedule and for every memory space it touches, so that what merely moves the peak to another step does not count. A
//! change that raises the peak of another space is left out. One thing is taken to stay as it is: which values are written
//! over their operands. That is a choice of the plan, and if it chooses otherwise after the change, the estimate is off by
//! such a value.
//!
//! Only what is in use at the peak is looked at, each value and each instruction once; judging a change costs its
//! operands and a logarithm.

use super::level::{Edit, Level, stays};
use super::moves::Moves;
use super::{SpaceSummary, values_at};
use crate::Plan;
use crate::buffers::{aliased_parameters, is_entry_parameter};
use crate::calls::Calls;
use crate::dataflow::ValueId;
use crate::in_place::InPlace;
use crate::live_range::{Time, last_need};
use crate::overwrite::Overwrite;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use hloom_target::Target;
use rustc_hash::{FxHashMap, FxHashSet};

/// A change that lowers a peak.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// Give the memory of a parameter to a result, which is made when the parameter is not needed any more.
    Donate {
        /// The parameter, or the part of it.
        parameter: ValueId,
        /// The result that can have its place.
        result: ValueId,
    },
    /// Compute a value later: right before that instruction, the first to need it.
    Later {
        /// The value.
        value: ValueId,
        /// What comes after it then.
        before: InstructionId,
    },
    /// Compute a value earlier, right after that instruction, so that an operand need not wait for it.
    Earlier {
        /// The value.
        value: ValueId,
        /// What comes before it then.
        after: InstructionId,
        /// The largest operand that is free then.
        frees: ValueId,
    },
    /// Compute a value again right before that instruction, instead of keeping it.
    Rematerialise {
        /// The value.
        value: ValueId,
        /// The first to read the second copy.
        before: InstructionId,
    },
}

impl Change {
    /// The value that it is about.
    pub fn value(&self) -> ValueId {
        match *self {
            Change::Donate { parameter: value, .. }
            | Change::Later { value, .. }
            | Change::Earlier { value, .. }
            | Change::Rematerialise { value, .. } => value,
        }
    }
}

/// What a change would bring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advice {
    /// The memory space whose peak is lower.
    pub memory_space: i64,
    /// What to do.
    pub change: Change,
    /// How many bytes the peak is lower then.
    pub bytes: i128,
}

/// Changes that lower the peak of a memory space, those that lower it most first, at most `most` of them.
pub fn advise(plan: &Plan<'_>, target: &Target, spaces: &[SpaceSummary], most: usize) -> Vec<Advice> {
    let module = plan.dataflow.module();
    // What has been planned for the target has calls that can be planned.
    let Ok(calls) = Calls::new(module, target) else { return Vec::new() };
    let in_place = InPlace::new(module, calls.post_order());
    let overwrite = Overwrite::new(&plan.dataflow, &in_place, target);
    let adviser = Adviser::new(plan, spaces);
    let mut advice = adviser.donations(&overwrite);
    for space in spaces {
        adviser.moves(space, &mut advice);
    }
    advice.sort_unstable_by_key(|a| (std::cmp::Reverse(a.bytes), a.memory_space, a.change));
    advice.truncate(most);
    advice
}

/// For instructions with more operands, or more results, it is not asked whether a result may be written over an operand:
/// asking goes through all of them.
const WIDE: usize = 256;

/// Where a value lies, and when.
#[derive(Clone, Copy)]
struct Home {
    memory_space: i64,
    place: (usize, i64),
    bytes: i128,
    start: Time,
    end: Time,
}

struct Adviser<'p, 'm> {
    plan: &'p Plan<'m>,
    moves: Moves<'p, 'm>,
    levels: Vec<Level>,
    homes: Vec<Option<Home>>,
    /// Where some value begins, and when.
    beginnings: FxHashMap<((usize, i64), Time), ValueId>,
}

impl<'p, 'm> Adviser<'p, 'm> {
    fn new(plan: &'p Plan<'m>, spaces: &[SpaceSummary]) -> Adviser<'p, 'm> {
        let stays = stays(plan);
        let end = plan.schedule.end();
        let levels = spaces.iter().map(|s| Level::new(&stays, s.memory_space, end)).collect();
        let mut homes = vec![None; plan.dataflow.value_slots()];
        let mut beginnings = FxHashMap::default();
        for (number, allocation) in plan.allocations.iter().enumerate() {
            for place in &allocation.places {
                let Some(range) = plan.live.of(place.value) else { continue };
                let at = (number, place.offset);
                beginnings.insert((at, range.start), place.value);
                homes[place.value as usize] = Some(Home {
                    memory_space: allocation.memory_space,
                    place: at,
                    bytes: i128::from(place.size),
                    start: range.start,
                    end: range.end,
                });
            }
        }
        Adviser { plan, moves: Moves::new(plan), levels, homes, beginnings }
    }

    fn home(&self, value: ValueId) -> Option<Home> {
        self.homes.get(value as usize).copied().flatten().filter(|h| h.bytes > 0)
    }

    fn level(&self, memory_space: i64) -> Option<&Level> {
        self.levels.iter().find(|l| l.memory_space == memory_space)
    }

    /// Whether another value has the place from the moment on at which this one ends.
    fn is_taken_over(&self, value: ValueId, home: &Home) -> bool {
        let next = self.beginnings.get(&(home.place, home.end));
        next.is_some_and(|&n| n != value && home.end > home.start)
    }

    /// How much lower the peak of `memory_space` is with those edits, each of a memory space; the new step, if one is made, has
    /// that level in each space. Nothing if it is not lower, or if that of another space is higher.
    fn gain(
        &self,
        memory_space: i64,
        edits: &[(i64, Edit)],
        without: Option<Time>,
        new_step: &[(i64, i128)],
    ) -> Option<i128> {
        let mut gain = None;
        let mut touched: Vec<i64> = edits.iter().map(|e| e.0).chain([memory_space]).collect();
        touched.sort_unstable();
        touched.dedup();
        for space in touched {
            let level = self.level(space)?;
            let own: Vec<Edit> = edits.iter().filter(|e| e.0 == space).map(|e| e.1).collect();
            let there = new_step.iter().find(|s| s.0 == space).map_or(0, |s| s.1);
            let lower = level.peak() - level.peak_with(&own, without).max(there);
            if lower < 0 {
                return None;
            }
            if space == memory_space {
                gain = Some(lower).filter(|&l| l > 0);
            }
        }
        gain
    }

    /// Parameters whose memory a result can have.
    fn donations(&self, overwrite: &Overwrite<'_, '_>) -> Vec<Advice> {
        let Plan { dataflow, buffers, schedule, .. } = self.plan;
        let module = dataflow.module();
        let aliased = aliased_parameters(dataflow);
        let Some(entry) = module.entry() else { return Vec::new() };
        let mut results: FxHashMap<&Shape, Vec<(Time, ValueId)>> = FxHashMap::default();
        let mut seen = FxHashSet::default();
        for position in module.root(entry).into_iter().flat_map(|root| dataflow.positions.of(root)) {
            let Some(value) = dataflow.at(position).filter(|&v| seen.insert(v)) else { continue };
            let (Some(home), Some(definition)) = (self.home(value), dataflow.value(value)) else { continue };
            let is_parameter = is_entry_parameter(dataflow, dataflow.instruction(definition));
            let is_free =
                self.moves.is_alone(value) && !is_parameter && !dataflow.positions.is_tuple(definition.position);
            if is_free {
                results.entry(dataflow.positions.shape(definition.position)).or_default().push((home.start, value));
            }
        }
        results.values_mut().for_each(|r| r.sort_unstable());
        let mut advice = Vec::new();
        for parameter in module.parameters(entry) {
            for position in dataflow.positions.of(parameter).filter(|&p| !aliased[p as usize]) {
                let Some(value) = dataflow.at(position) else { continue };
                let Some(home) = self.home(value).filter(|_| self.moves.is_alone(value)) else { continue };
                if buffers.is_live_out(buffers.of(value)) || dataflow.positions.is_tuple(position) {
                    continue;
                }
                let Some(fitting) = results.get(dataflow.positions.shape(position)) else { continue };
                let last = last_need(dataflow, schedule, value).max(home.start);
                let first = fitting.partition_point(|r| r.0 < last);
                // One that is made by the last to read the parameter fits too, if it may be written over it.
                let takes_over = |result: ValueId| {
                    let made = dataflow.value(result).map(|v| v.position);
                    let reads = |m| {
                        let operands = module[dataflow.positions.instruction(m)].operands();
                        operands.len() <= WIDE && operands.contains(&parameter)
                    };
                    made.is_some_and(|m| reads(m) && overwrite.may(position, m))
                };
                let now = fitting[first..].iter().take_while(|r| r.0 == last).take(WIDE).find(|r| takes_over(r.1));
                let later = &fitting[fitting.partition_point(|r| r.0 <= last)..];
                let Some((&(_, result), from)) = now.map(|r| (r, last)).or(later.first().map(|r| (r, last + 1))) else {
                    continue;
                };
                let edit = (home.memory_space, (from, schedule.end(), -home.bytes));
                if let Some(bytes) = self.gain(home.memory_space, &[edit], None, &[]) {
                    let change = Change::Donate { parameter: value, result };
                    advice.push(Advice { memory_space: home.memory_space, change, bytes });
                }
            }
        }
        advice
    }

    /// Instructions to move or to repeat.
    fn moves(&self, space: &SpaceSummary, advice: &mut Vec<Advice>) {
        let Some(peak) = &space.peak else { return };
        let dataflow = &self.plan.dataflow;
        let mut users = FxHashSet::default();
        let mut there: Vec<ValueId> = values_at(self.plan, peak.time).into_values().map(|(_, v)| v).collect();
        there.sort_unstable();
        for value in there {
            let Some(home) = self.home(value).filter(|h| h.memory_space == space.memory_space) else { continue };
            let Some(definition) = dataflow.value(value) else { continue };
            if self.moves.made_by(dataflow.instruction(definition)) == Some(value) {
                advice.extend(self.later_or_again(value, &home, peak.time));
            }
            if self.moves.is_alone(value) && home.end > peak.time {
                let last = self.moves.needs(value).into_iter().max_by_key(|n| n.last).map(|n| n.user);
                if let Some(user) = last.filter(|&u| users.insert(u)) {
                    advice.extend(self.earlier(user, space.memory_space, peak.time));
                }
            }
        }
    }

    /// Judges making a value, or making it again, right before it is needed next.
    fn later_or_again(&self, value: ValueId, home: &Home, peak: Time) -> Option<Advice> {
        let needs = self.moves.needs(value);
        if needs.iter().any(|n| n.first <= peak && peak <= n.last) {
            return None;
        }
        let next = needs.iter().filter(|n| n.first > peak).min_by_key(|n| n.first)?;
        let before = needs.iter().filter(|n| n.last < peak).map(|n| n.last).max();
        let instruction = self.plan.dataflow.instruction(self.plan.dataflow.value(value)?);
        // Copies are made for a reason: a second one, or one of a later state, is not the same.
        if matches!(self.plan.dataflow.module()[instruction].op, Op::Copy) {
            return None;
        }
        let last = next.first.checked_sub(1)?;
        let free_from = before.unwrap_or(home.start) + 1;
        let mut edits = vec![(home.memory_space, (free_from, last, -home.bytes))];
        let mut new_step: Vec<(i64, i128)> =
            self.levels.iter().map(|l| (l.memory_space, l.across(next.first))).collect();
        for operand in self.moves.read_by(instruction) {
            let Some(at) = self.home(operand).filter(|h| h.end < next.first) else { continue };
            if !self.moves.is_alone(operand) {
                // Something else is written there by then.
                return None;
            }
            // Whoever has its place from its end on needs another one now.
            let own = before.is_none() && at.end == home.start;
            let from = if self.is_taken_over(operand, &at) && !own { at.end } else { at.end + 1 };
            edits.push((at.memory_space, (from, last, at.bytes)));
            if own && at.place == home.place {
                continue;
            }
            if let Some(level) = new_step.iter_mut().find(|s| s.0 == at.memory_space) {
                level.1 += at.bytes;
            }
        }
        let without = before.is_none().then_some(home.start);
        let bytes = self.gain(home.memory_space, &edits, without, &new_step)?;
        let change = match before {
            None => Change::Later { value, before: next.user },
            Some(_) => Change::Rematerialise { value, before: next.user },
        };
        Some(Advice { memory_space: home.memory_space, change, bytes })
    }

    /// Judges running an instruction as soon as it can run and what only waits for it is not needed otherwise.
    fn earlier(&self, id: InstructionId, memory_space: i64, peak: Time) -> Option<Advice> {
        let Plan { dataflow, schedule, .. } = self.plan;
        let module = dataflow.module();
        let value = self.moves.made_by(id)?;
        let made = self.home(value)?;
        let time = schedule.time(id)?;
        let operands = module[id].operands().iter();
        let mut after = operands.filter_map(|&o| Some((schedule.time(o)?, o))).max()?;
        let mut waiting = Vec::new();
        for operand in self.moves.read_by(id) {
            let Some(home) = self.home(operand).filter(|h| h.end == time) else { continue };
            let Some(definition) = dataflow.value(operand) else { continue };
            let source = dataflow.instruction(definition);
            if !self.moves.is_alone(operand) || module[source].parent() != module[id].parent() {
                continue;
            }
            let needs = self.moves.needs(operand);
            let other = needs.iter().filter(|n| n.user != id).max_by_key(|n| n.last);
            let until = other.map_or((home.start, source), |n| (n.last, n.user));
            if until.0 < peak {
                after = after.max(until);
            }
            waiting.push((operand, home, until.0));
        }
        if after.0 >= peak {
            return None;
        }
        let mut edits = Vec::new();
        if made.end > time {
            // What nothing reads is gone at once, wherever it is made.
            edits.push((made.memory_space, (after.0 + 1, time.checked_sub(1)?, made.bytes)));
        }
        let mut takes_over = false;
        for &(_, home, until) in &waiting {
            edits.push((home.memory_space, (until.max(after.0) + 1, time.checked_sub(1)?, -home.bytes)));
            takes_over |= home.place == made.place && until <= after.0;
        }
        let across = |l: &Level| {
            l.across(after.0 + 1) + if l.memory_space == made.memory_space && !takes_over { made.bytes } else { 0 }
        };
        let new_step: Vec<(i64, i128)> = self.levels.iter().map(|l| (l.memory_space, across(l))).collect();
        let bytes = self.gain(memory_space, &edits, Some(time), &new_step)?;
        let freed = waiting.iter().filter(|w| w.1.memory_space == memory_space && w.2 < peak);
        let frees = freed.max_by_key(|w| (w.1.bytes, std::cmp::Reverse(w.0)))?.0;
        Some(Advice { memory_space, change: Change::Earlier { value, after: after.1, frees }, bytes })
    }
}

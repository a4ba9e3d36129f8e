//! Buffer assignment: which allocation each value lies in, and where.
//!
//! Parameters, constants, tuples and results get allocations of their own; a buffer may join one that is free while the
//! buffer is needed; what is left is temporary and packed into one block per memory space. Last, the temporaries of a
//! memory space are put behind each other into one allocation. Every step and every order is that of XLA, so that the
//! result is that of its compilers.

mod inside;

use crate::buffers::{BufferId, Buffers, aliased_parameters, is_entry_parameter};
use crate::calls::Calls;
use crate::dataflow::{Dataflow, ValueId};
use crate::heap::{self, Heap};
use crate::live_range::{LiveRange, LiveRanges, Time};
use crate::order::Orders;
use crate::overwrite::Overwrite;
use crate::pack::Packer;
use crate::positions::Position;
use crate::reuse::{ReuseList, ReusePool};
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::op::Op;
use hloom_target::Target;
use hloom_target::size::round_up;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A piece of memory.
#[derive(Clone, Debug, Default)]
pub struct Allocation {
    /// Bytes.
    pub size: i64,
    /// The memory space.
    pub memory_space: i64,
    /// The entry parameter's part that is handed over here, if one is.
    pub parameter: Option<Position>,
    /// Whether that parameter is aliased with a result, so that it may be written.
    pub is_aliased: bool,
    /// Whether it holds a constant.
    pub is_constant: bool,
    /// Whether each thread has its own.
    pub is_thread_local: bool,
    /// Whether a part of the result may be here after the run.
    pub is_live_out: bool,
    /// Whether it holds the table of a tuple.
    pub is_tuple: bool,
    /// What lies in it.
    pub places: Vec<Place>,
}

/// A value in an allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Place {
    pub value: ValueId,
    pub offset: i64,
    pub size: i64,
}

impl Allocation {
    /// Whether it is needed during the run only.
    pub fn is_temporary(&self) -> bool {
        self.parameter.is_none() && !self.is_constant && !self.is_thread_local && !self.is_live_out
    }

    fn is_read_only(&self) -> bool {
        self.is_constant || self.parameter.is_some() && !self.is_aliased
    }

    fn is_reusable(&self) -> bool {
        !self.is_read_only() && !self.is_thread_local && !self.is_tuple
    }
}

/// Allocations that may be tried in vain before only the last [`FEW_TRIES`] are tried for each buffer: XLA tries them all,
/// which is quadratic where thousands of results have thousands of gaps in time.
const MANY_TRIES: u32 = 2_000_000;
const FEW_TRIES: u32 = 32;

/// A block that temporaries of a memory space were packed into, and how well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PackedHeap {
    /// The memory space.
    pub memory_space: i64,
    /// Bytes that it takes.
    pub bytes: i64,
    /// The bytes that it takes at least, however it is packed: those live at once at the worst moment.
    pub lower_bound: i64,
    /// The first such moment, as a time in the schedule.
    pub time: Time,
}

/// The allocations, and how well temporaries were packed.
pub(crate) type Assigned = (Vec<Allocation>, Vec<PackedHeap>);

/// All that assignment needs to know.
pub(crate) struct Facts<'a, 'm> {
    pub(crate) dataflow: &'a Dataflow<'m>,
    pub(crate) buffers: &'a Buffers,
    pub(crate) live: &'a LiveRanges,
    pub(crate) calls: &'a Calls,
    pub(crate) orders: &'a Orders,
    pub(crate) overwrite: &'a Overwrite<'a, 'm>,
    pub(crate) target: &'a Target,
    pub(crate) packer: Packer,
    /// The size of each buffer.
    pub(crate) sizes: &'a [i64],
}

struct Assigner<'a, 'm> {
    facts: &'a Facts<'a, 'm>,
    aliased: Vec<bool>,
    allocations: Vec<Allocation>,
    of_buffer: Vec<Option<u32>>,
    /// When the allocations that may be joined are in use.
    in_use: Vec<BTreeSet<(u32, u32, ValueId)>>,
    /// Allocations to reuse, by memory space, and where each allocation stands in its list.
    reuse: BTreeMap<i64, (ReuseList, Vec<u32>)>,
    in_list: Vec<Option<usize>>,
    /// Allocations to reuse where buffers are assigned in the order in which they begin.
    pool: ReusePool,
    put_off: BTreeMap<i64, Vec<(ValueId, i64)>>,
    heaps: Vec<PackedHeap>,
    /// The first allocations are packed for another pass: nothing joins them.
    presets: usize,
    /// How many allocations were tried in vain.
    tries: u32,
    /// What goes inside results before anything else does, if something should.
    inside: Option<inside::Inside>,
}

/// Assigns every buffer of the flow and of what is local to threads; tells of the heaps too. `None` when a size does not
/// fit.
pub(crate) fn assign(facts: &Facts<'_, '_>) -> Option<Assigned> {
    assign_first(facts, None)
}

/// As [`assign`], but where results are idle when temporaries take most, what is needed then goes inside them, several
/// side by side, before anything else does; only where the block of temporaries becomes smaller by it.
pub(crate) fn assign_inside_results(facts: &Facts<'_, '_>) -> Option<Assigned> {
    let plain = assign(facts)?;
    let Some(inside) = inside::Inside::new(facts, &plain.0, &plain.1) else { return Some(plain) };
    let bytes = |heaps: &[PackedHeap]| heaps.iter().map(|h| i128::from(h.bytes)).sum::<i128>();
    let other = assign_first(facts, Some(inside))?;
    Some(if bytes(&other.1) < bytes(&plain.1) { other } else { plain })
}

fn assign_first(facts: &Facts<'_, '_>, inside: Option<inside::Inside>) -> Option<Assigned> {
    let mut assigner = Assigner {
        facts,
        aliased: aliased_parameters(facts.dataflow),
        allocations: Vec::new(),
        of_buffer: vec![None; facts.buffers.len()],
        in_use: Vec::new(),
        reuse: BTreeMap::new(),
        in_list: Vec::new(),
        pool: ReusePool::default(),
        put_off: BTreeMap::new(),
        heaps: Vec::new(),
        presets: 0,
        tries: 0,
        inside,
    };
    assigner.presets()?;
    assigner.presets = assigner.allocations.len();
    for buffer in assigner.sorted(false) {
        assigner.global(buffer);
    }
    assigner.pack_temporaries()?;
    for buffer in assigner.sorted(true) {
        let is_constant = assigner.is_constant(buffer);
        let allocation = assigner.new_allocation(buffer);
        assigner.allocations[allocation].is_constant = is_constant;
        assigner.allocations[allocation].is_thread_local = !is_constant;
    }
    Some((combine(assigner.allocations, facts.target)?, assigner.heaps))
}

impl Assigner<'_, '_> {
    fn memory_space(&self, value: ValueId) -> i64 {
        let positions = &self.facts.dataflow.positions;
        self.facts.dataflow.value(value).map_or(0, |v| Target::memory_space(positions.shape(v.position)))
    }

    fn buffer_memory_space(&self, buffer: BufferId) -> i64 {
        self.facts.buffers.values(buffer).first().map_or(0, |&v| self.memory_space(v))
    }

    fn instruction(&self, value: ValueId) -> Option<InstructionId> {
        Some(self.facts.dataflow.instruction(self.facts.dataflow.value(value)?))
    }

    fn is_constant(&self, buffer: BufferId) -> bool {
        let module = self.facts.dataflow.module();
        let values = self.facts.buffers.values(buffer).iter();
        values.filter_map(|&v| self.instruction(v)).any(|i| matches!(module[i].op, Op::Constant(_)))
    }

    fn home(&self, buffer: BufferId) -> Option<hloom_ir::ComputationId> {
        let first = *self.facts.buffers.values(buffer).first()?;
        Some(self.facts.dataflow.module()[self.instruction(first)?].parent())
    }

    /// The buffers of the flow, or of what is local to threads, in the order in which they are assigned: large ones
    /// first, then those that live out, then by where they are first made, callers before callees. Newer compilers put
    /// when they begin before all that; what is local to threads has no times.
    fn sorted(&self, thread_local: bool) -> Vec<BufferId> {
        let Facts { dataflow, buffers, calls, orders, sizes, .. } = self.facts;
        let by_start = self.facts.target.spaces.iter().any(|s| self.facts.target.assigns_by_start(s.memory_space));
        let mut rank = vec![u32::MAX; dataflow.module().instruction_slots()];
        let mut next = 0;
        let mine = |c| if thread_local { calls.is_thread_local(c) } else { calls.is_global(c) };
        for &computation in calls.post_order().iter().rev().filter(|&&c| mine(c)) {
            for id in &orders.instructions[computation.index()] {
                rank[id.index()] = next;
                next += 1;
            }
        }
        let mut sorted: Vec<_> = (0..buffers.len() as BufferId)
            .filter(|&b| self.of_buffer[b as usize].is_none() && self.home(b).is_some_and(mine))
            .map(|b| {
                let first =
                    buffers.values(b).iter().filter_map(|&v| self.instruction(v)).map(|i| rank[i.index()]).min();
                let first = first.unwrap_or(u32::MAX);
                let (start, size, first) = match by_start {
                    true if thread_local => (Time::MAX, 0, 0),
                    true => (self.span(b).map_or(Time::MAX, |s| s.start), sizes[b as usize], 0),
                    false => (0, sizes[b as usize], first),
                };
                (self.turn(b), start, std::cmp::Reverse(size), !buffers.is_live_out(b), first, b)
            })
            .collect();
        sorted.sort_unstable();
        sorted.into_iter().map(|(.., b)| b).collect()
    }

    /// From when the first value of a buffer is there until when the last one is needed.
    fn span(&self, buffer: BufferId) -> Option<LiveRange> {
        let ranges = || self.facts.buffers.values(buffer).iter().filter_map(|&v| self.facts.live.of(v));
        let start = ranges().map(|r| r.start).min()?;
        Some(LiveRange { start, end: ranges().map(|r| r.end).max()? })
    }

    /// What lies in memories that a pass of its own manages. Its decisions are in the module's layouts; where it put
    /// things is not, and is taken to be a plain packing. Each such memory has its allocation, be it empty: the pass ran.
    fn presets(&mut self) -> Option<()> {
        let Facts { dataflow, buffers, live, calls, overwrite, target, sizes, .. } = self.facts;
        for space in target.spaces.iter().filter(|s| s.preset) {
            let mine: Vec<BufferId> = (0..buffers.len() as BufferId)
                .filter(|&b| {
                    self.buffer_memory_space(b) == space.memory_space
                        && self.home(b).is_some_and(|c| calls.is_global(c))
                })
                .filter(|&b| buffers.values(b).iter().all(|&v| live.of(v).is_some() && !self.is_parameter(v)))
                .filter(|&b| !self.is_constant(b) && !buffers.is_live_out(b))
                .collect();
            if mine.is_empty() {
                self.push(Allocation { memory_space: space.memory_space, ..Allocation::default() });
                continue;
            }
            let size = |b: BufferId| sizes[b as usize];
            let values: Vec<(ValueId, i64)> =
                mine.iter().flat_map(|&b| buffers.values(b).iter().map(move |&v| (v, size(b)))).collect();
            let mut heap = Heap::new(dataflow, buffers, live, overwrite, &values, space.alignment);
            let allocation = self.allocations.len() as u32;
            let packer = match self.facts.packer {
                Packer::Reference => {
                    heap.keep(|v| self.outlives_program(v));
                    Packer::ReferencePreset
                }
                other => other,
            };
            self.pack(&heap, &values, space.memory_space, packer)?;
            for buffer in mine {
                self.of_buffer[buffer as usize] = Some(allocation);
            }
        }
        Some(())
    }

    /// Whether the value is there before the program begins, and stays for its next run: a parameter that is copied ahead
    /// once. One that is copied again at the end is not kept in between.
    fn outlives_program(&self, value: ValueId) -> bool {
        let module = self.facts.dataflow.module();
        let Some(i) = self.instruction(value) else { return false };
        let is_copied = |&u: &InstructionId| matches!(module[u].op, Op::CopyStart { .. });
        let once = |o: InstructionId| module[o].users().iter().filter(|&u| is_copied(u)).count() == 1;
        matches!(module[i].op, Op::CopyStart { cross_program_prefetch_index: Some(_) })
            && module[i].operands().first().is_some_and(|&o| once(o))
    }

    fn is_parameter(&self, value: ValueId) -> bool {
        self.instruction(value).is_some_and(|i| is_entry_parameter(self.facts.dataflow, i))
    }

    fn push(&mut self, allocation: Allocation) -> usize {
        self.allocations.push(allocation);
        self.in_use.push(BTreeSet::new());
        self.in_list.push(None);
        self.allocations.len() - 1
    }

    fn new_allocation(&mut self, buffer: BufferId) -> usize {
        let size = self.facts.sizes[buffer as usize];
        let memory_space = self.buffer_memory_space(buffer);
        let at = self.push(Allocation { size, memory_space, ..Allocation::default() });
        self.put(buffer, at, 0);
        at
    }

    fn put(&mut self, buffer: BufferId, at: usize, offset: i64) {
        let size = self.facts.sizes[buffer as usize];
        self.of_buffer[buffer as usize] = Some(at as u32);
        let allocation = &mut self.allocations[at];
        allocation.is_live_out |= self.facts.buffers.is_live_out(buffer);
        for &value in self.facts.buffers.values(buffer) {
            allocation.places.push(Place { value, offset, size });
            let Some(range) = self.facts.live.of(value) else { continue };
            self.in_use[at].insert((range.start, range.end, value));
            if let Some(place) = self.in_list[at]
                && let Some((list, _)) = self.reuse.get_mut(&allocation.memory_space)
            {
                list.take(place, range);
            }
        }
    }

    fn offer(&mut self, at: usize) {
        let (list, allocations) = self.reuse.entry(self.allocations[at].memory_space).or_default();
        let ranges = self.in_use[at].iter().map(|&(start, end, _)| LiveRange { start, end });
        self.in_list[at] = Some(list.add(ranges));
        allocations.push(at as u32);
    }

    fn global(&mut self, buffer: BufferId) {
        let values = self.facts.buffers.values(buffer);
        if self.is_constant(buffer) {
            let at = self.new_allocation(buffer);
            self.allocations[at].is_constant = true;
            return;
        }
        if let Some(&parameter) = values.iter().find(|&&v| self.is_parameter(v))
            && let Some(value) = self.facts.dataflow.value(parameter)
        {
            let at = self.new_allocation(buffer);
            let is_aliased = self.aliased[value.position as usize];
            self.allocations[at].parameter = Some(value.position);
            self.allocations[at].is_aliased = is_aliased;
            // Where buffers come in the order in which they begin, only results offer their memory to all.
            if is_aliased && !self.facts.target.assigns_by_start(self.allocations[at].memory_space) {
                self.offer(at);
            }
            return;
        }
        let is_tuple = |v: &ValueId| {
            self.facts.dataflow.value(*v).is_some_and(|v| self.facts.dataflow.positions.is_tuple(v.position))
        };
        let has_table = values.iter().any(is_tuple);
        // XLA keeps tables of tuples for themselves; they can be packed like any other temporary.
        let is_packed = self.facts.packer == Packer::Best && !self.facts.buffers.is_live_out(buffer);
        if has_table && !is_packed {
            let at = self.new_allocation(buffer);
            self.allocations[at].is_tuple = true;
            return;
        }
        let memory_space = self.buffer_memory_space(buffer);
        let by_start = self.facts.target.assigns_by_start(memory_space);
        let reuse = if by_start { Self::join_pooled } else { Self::join_reusable };
        let size = self.facts.sizes[buffer as usize];
        let is_apart =
            self.facts.packer == Packer::Apart && size <= heap::SMALL && !self.facts.buffers.is_live_out(buffer);
        if !has_table && (self.join_operand(buffer) || !is_apart && (self.join_inside(buffer) || reuse(self, buffer))) {
            return;
        }
        if self.facts.buffers.is_live_out(buffer) {
            let at = self.new_allocation(buffer);
            match self.span(buffer) {
                Some(span) if by_start => self.pool.lend(at, span.end),
                _ => self.offer(at),
            }
            return;
        }
        self.put_off.entry(memory_space).or_default().extend(values.iter().map(|&v| (v, size)));
    }

    fn join_operand(&mut self, buffer: BufferId) -> bool {
        let Facts { dataflow, buffers, .. } = self.facts;
        for &value in buffers.values(buffer) {
            let Some(definition) = dataflow.value(value) else { continue };
            if !dataflow.positions.is_whole(definition.position) {
                continue;
            }
            for &operand in dataflow.module()[dataflow.instruction(definition)].operands() {
                let at =
                    dataflow.at(dataflow.positions.whole(operand)).and_then(|v| self.of_buffer[buffers.of(v) as usize]);
                if at.is_some_and(|at| self.join(buffer, at as usize)) {
                    return true;
                }
            }
        }
        false
    }

    fn join_reusable(&mut self, buffer: BufferId) -> bool {
        let Facts { buffers, live, .. } = self.facts;
        let ranges = buffers.values(buffer).iter().filter_map(|&v| live.of(v));
        let Some(longest) = ranges.max_by_key(|r| r.end - r.start) else { return false };
        let memory_space = self.buffer_memory_space(buffer);
        let Some((list, _)) = self.reuse.get(&memory_space) else { return false };
        let mut before = list.len();
        let mut tried = 0;
        while let Some((list, allocations)) = self.reuse.get(&memory_space)
            && let Some(place) = list.last_with_room(longest, before)
        {
            let Some(&at) = allocations.get(place) else { return false };
            if self.join(buffer, at as usize) {
                return true;
            }
            before = place;
            tried += 1;
            self.tries = self.tries.saturating_add(1);
            if self.tries > MANY_TRIES && tried >= FEW_TRIES {
                return false;
            }
        }
        false
    }

    /// Joins the smallest allocation that is large enough of those that nothing needs any more when the buffer begins.
    fn join_pooled(&mut self, buffer: BufferId) -> bool {
        let Some(span) = self.span(buffer) else { return false };
        let memory_space = self.buffer_memory_space(buffer);
        let allocations = &self.allocations;
        self.pool.advance(span.start, |at| (allocations[at].memory_space, allocations[at].size));
        let mut place = (self.facts.sizes[buffer as usize], 0);
        let mut tried = 0;
        while let Some(next @ (size, at)) = self.pool.at_least(memory_space, place) {
            if self.join(buffer, at) {
                self.pool.take(memory_space, next);
                self.pool.lend(at, span.end);
                return true;
            }
            place = (size, at + 1);
            tried += 1;
            self.tries = self.tries.saturating_add(1);
            if self.tries > MANY_TRIES && tried >= FEW_TRIES {
                return false;
            }
        }
        false
    }

    /// Puts the buffer into the allocation if it may be there.
    fn join(&mut self, buffer: BufferId, at: usize) -> bool {
        let Facts { buffers, sizes, target, .. } = self.facts;
        let size = sizes[buffer as usize];
        let allocation = &self.allocations[at];
        let live_out = buffers.is_live_out(buffer);
        let fits = allocation.memory_space == self.buffer_memory_space(buffer)
            && size <= allocation.size
            && (!live_out || size == allocation.size)
            && allocation.is_reusable()
            && at >= self.presets;
        if !fits {
            return false;
        }
        if target.collectives_stay_inside {
            let gathers = |v: ValueId| self.is_collective_destination(v);
            if allocation.is_live_out && buffers.values(buffer).iter().any(|&v| gathers(v)) {
                return false;
            }
            if live_out && allocation.places.iter().any(|p| gathers(p.value)) {
                return false;
            }
        }
        if buffers.values(buffer).iter().any(|&v| self.interferes(v, at) || self.copies_from(v, at)) {
            return false;
        }
        self.put(buffer, at, 0);
        true
    }

    /// Whether a value in the allocation is needed at the same time.
    fn interferes(&self, value: ValueId, at: usize) -> bool {
        let Some(range) = self.facts.live.of(value) else { return true };
        if self.is_divided(at) {
            return self.needed_beside(range, at).next().is_some();
        }
        let until = (range.end, u32::MAX, ValueId::MAX);
        for &(start, end, other) in self.in_use[at].range(..=until).rev() {
            if end < range.start {
                // Those before it ended earlier still: they take turns.
                return false;
            }
            let touches = if range.end == start {
                self.may_take_over(value, other)
            } else if end == range.start {
                self.may_take_over(other, value)
            } else {
                false
            };
            if !touches {
                return true;
            }
        }
        false
    }

    /// Whether `next`, which begins where `old` ends, may be written over it.
    fn may_take_over(&self, old: ValueId, next: ValueId) -> bool {
        let Facts { dataflow, overwrite, .. } = self.facts;
        let Some(definition) = dataflow.value(next) else { return false };
        let user = &dataflow.module()[dataflow.instruction(definition)];
        if let Op::Copy = user.op {
            return false;
        }
        dataflow.positions_of(old).iter().any(|&position| {
            let holder = dataflow.positions.instruction(position);
            user.operands().contains(&holder) && overwrite.may(position, definition.position)
        })
    }

    /// Whether the value is a copy of something in the allocation.
    fn copies_from(&self, value: ValueId, at: usize) -> bool {
        let Facts { dataflow, buffers, .. } = self.facts;
        let Some(instruction) = self.instruction(value) else { return false };
        let instruction = &dataflow.module()[instruction];
        matches!(instruction.op, Op::Copy)
            && instruction.operands().iter().any(|&operand| {
                let mut values = dataflow.positions.of(operand).filter_map(|p| dataflow.at(p));
                values.any(|v| self.of_buffer[buffers.of(v) as usize] == Some(at as u32))
            })
    }

    /// Whether other devices write the value: what is gathered, and what a permute receives.
    fn is_collective_destination(&self, value: ValueId) -> bool {
        let Facts { dataflow, .. } = self.facts;
        let Some(definition) = dataflow.value(value) else { return false };
        let module = dataflow.module();
        let mut index = dataflow.positions.index(definition.position);
        let mut id = dataflow.instruction(definition);
        // Asynchronous collectives are fusions whose results are the collective's, named by custom calls.
        if let Op::Fusion(fusion) = &module[id].op {
            let Some(root) = module.root(fusion.calls) else { return false };
            id = root;
            while let (Op::Tuple, Some(&first)) = (&module[id].op, index.first()) {
                let Some(&operand) = usize::try_from(first).ok().and_then(|i| module[id].operands().get(i)) else {
                    return false;
                };
                id = operand;
                index.remove(0);
            }
        }
        match &module[id].op {
            Op::AllGather(_) => true,
            Op::CollectivePermuteStart(_) => index.first() == Some(&1),
            Op::CustomCall(call) => match &*call.target {
                "AsyncCollectiveStart" => *index == [1],
                "AsyncCollectiveDone" => true,
                _ => false,
            },
            _ => false,
        }
    }

    fn pack_temporaries(&mut self) -> Option<()> {
        let Facts { dataflow, buffers, live, overwrite, target, .. } = self.facts;
        for (memory_space, values) in std::mem::take(&mut self.put_off) {
            let heap = Heap::new(dataflow, buffers, live, overwrite, &values, target.alignment(memory_space));
            let packer = match self.facts.packer {
                Packer::Reference if target.assigns_by_start(memory_space) => Packer::ReferenceByStart,
                other => other,
            };
            self.pack(&heap, &values, memory_space, packer)?;
        }
        Some(())
    }

    /// Packs a heap into an allocation of its own.
    fn pack(&mut self, heap: &Heap, values: &[(ValueId, i64)], memory_space: i64, packer: Packer) -> Option<()> {
        let packed = match packer {
            Packer::Apart => heap.apart().pack(Packer::Reference)?,
            packer => heap.pack(packer)?,
        };
        let bound = heap.lower_bound()?;
        self.heaps.push(PackedHeap { memory_space, bytes: packed.size, lower_bound: bound.bytes, time: bound.time });
        let place = |&(value, size): &(ValueId, i64)| Place {
            value,
            size,
            offset: packed.offsets.get(&value).copied().unwrap_or(0),
        };
        let places = values.iter().map(place).collect();
        self.push(Allocation { size: packed.size, memory_space, places, ..Allocation::default() });
        Some(())
    }
}

/// Puts the temporaries last and those of one memory space into one allocation.
fn combine(mut allocations: Vec<Allocation>, target: &Target) -> Option<Vec<Allocation>> {
    let (mut left, mut right) = (0, allocations.len());
    loop {
        while left < right && !allocations[left].is_temporary() {
            left += 1;
        }
        while left < right && allocations[right - 1].is_temporary() {
            right -= 1;
        }
        if left >= right {
            break;
        }
        allocations.swap(left, right - 1);
    }
    let temporaries = allocations.split_off(left);
    let mut of_memory_space: BTreeMap<i64, usize> = BTreeMap::new();
    for temporary in temporaries {
        let Some(&into) = of_memory_space.get(&temporary.memory_space) else {
            of_memory_space.insert(temporary.memory_space, allocations.len());
            allocations.push(temporary);
            continue;
        };
        let whole = &mut allocations[into];
        let base = round_up(whole.size, target.alignment(temporary.memory_space))?;
        whole.size = base.checked_add(temporary.size)?;
        for place in temporary.places {
            whole.places.push(Place { offset: place.offset.checked_add(base)?, ..place });
        }
        whole.is_tuple = false;
    }
    for allocation in &mut allocations {
        allocation.places.sort_unstable();
    }
    Some(allocations)
}

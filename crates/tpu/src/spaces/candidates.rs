//! What could lie in fast memory: buffers with where they are made and where they are read.
//!
//! A buffer is a set of values that must share memory, so it moves as a whole or is copied for single readers. Left out are
//! results and loop state (they stay where the caller expects them), constants, tables of tuples, and what is read or
//! written by something that cannot use fast memory.

use super::traffic::Traffic;
use crate::edit::array_of;
use crate::elapsed::Elapsed;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_plan::Plan;
use hloom_plan::buffers::{BufferId, aliased_parameters, is_entry_parameter};
use hloom_plan::dataflow::ValueId;
use hloom_plan::live_range::Time;
use hloom_plan::overwrite::Overwrite;
use hloom_plan::positions::Position;
use hloom_target::Target;

/// A reader of a buffer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Read {
    pub(super) time: Time,
    pub(super) user: InstructionId,
    pub(super) operand: usize,
    /// Bytes that it reads of the buffer in all of its runs.
    pub(super) bytes: f64,
}

/// A part of the program's result that is copied back from fast memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Eviction {
    /// An operand of the tuple that is the result.
    Element(InstructionId, usize),
    /// The instruction whose value is all of the result.
    Whole(InstructionId),
}

/// A buffer that could lie in fast memory, or whose readers could have a copy there.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) buffer: BufferId,
    pub(super) bytes: i64,
    /// The computation that makes and reads it.
    pub(super) home: ComputationId,
    /// When it is made, and until when it is needed.
    pub(super) start: Time,
    pub(super) end: Time,
    /// Its readers that can read from fast memory, by time.
    pub(super) reads: Vec<Read>,
    /// Its readers that cannot, by time.
    pub(super) far_reads: Vec<Read>,
    /// Where it is seen, if it may be made in fast memory.
    pub(super) positions: Option<Vec<Position>>,
    /// Where it is seen besides in results, and the instruction whose whole result it is, if it may be made in fast memory
    /// and copied from there to main memory for later readers.
    pub(super) evicted: Option<(Vec<Position>, InstructionId)>,
    /// The instruction whose whole result it is, to be copied from.
    pub(super) source: Option<InstructionId>,
    /// Where the values are seen that the first reader hands on in the same memory: they go with a copy for that reader.
    pub(super) handed_on: Vec<Position>,
    pub(super) is_parameter: bool,
    /// Whether it is a parameter whose memory a result takes over.
    pub(super) is_overwritten: bool,
    /// Where it is in the program's result: it is copied back from fast memory.
    pub(super) results: Vec<Eviction>,
    /// Whether it is made or read in several computations, as the state of a loop is.
    pub(super) crosses_loops: bool,
    /// Buffers that are needed for the last time when this one is made, and that it may be written over.
    pub(super) writes_over: Vec<BufferId>,
    /// Bytes of main memory that are neither read nor written if it is in fast memory from its making on.
    pub(super) saved: f64,
}

impl Candidate {
    /// The same as bytes for each that it takes.
    pub(super) fn saved_per_byte(&self) -> f64 {
        self.saved / self.bytes.max(1) as f64
    }
}

/// All candidates of at most `limit` bytes.
pub(super) fn candidates(plan: &Plan<'_>, module: &Module, elapsed: &Elapsed<'_>, limit: i64) -> Vec<Candidate> {
    let facts = Facts {
        aliased: aliased_parameters(&plan.dataflow),
        traffic: Traffic::new(module, elapsed.target()),
        overwrite: Overwrite::new(&plan.dataflow, &plan.in_place, elapsed.target()),
    };
    let mut all: Vec<Candidate> = Vec::new();
    for buffer in 0..plan.buffers.len() as BufferId {
        all.extend(candidate(plan, module, elapsed, limit, buffer, &facts));
    }
    all
}

/// What is known of all buffers together.
struct Facts<'a, 'm> {
    aliased: Vec<bool>,
    traffic: Traffic<'a>,
    overwrite: Overwrite<'a, 'm>,
}

fn candidate(
    plan: &Plan<'_>,
    module: &Module,
    elapsed: &Elapsed<'_>,
    limit: i64,
    buffer: BufferId,
    facts: &Facts<'_, '_>,
) -> Option<Candidate> {
    let dataflow = &plan.dataflow;
    let all = plan.buffers.values(buffer);
    // A parameter that a result takes over is copied as others are: what is written there is another value.
    let is_taken_over = |&&v: &&ValueId| {
        let value = dataflow.value(v);
        value.is_some_and(|v| !v.is_phi && facts.aliased.get(v.position as usize).copied().unwrap_or(false))
    };
    let taken_over = all.iter().find(is_taken_over);
    // What a loop carries on in that memory is the loop's.
    if taken_over.is_some() && all.iter().any(|&v| dataflow.value(v).is_some_and(|v| v.is_phi)) {
        return None;
    }
    let values = taken_over.map_or(all, std::slice::from_ref);
    let traffic = &facts.traffic;
    let mut candidate = Candidate {
        buffer,
        bytes: 0,
        home: module.entry()?,
        start: Time::MAX,
        end: 0,
        reads: Vec::new(),
        far_reads: Vec::new(),
        positions: None,
        evicted: None,
        source: None,
        handed_on: Vec::new(),
        is_parameter: false,
        is_overwritten: taken_over.is_some(),
        results: Vec::new(),
        crosses_loops: false,
        writes_over: Vec::new(),
        saved: 0.0,
    };
    let root = module.root(candidate.home)?;
    let mut positions: Vec<Position> = Vec::new();
    let mut may_move = true;
    let mut is_made_fast = true;
    let mut reads_are_fast = true;
    let mut is_sent = false;
    // Bytes of main memory that are not read, and not written, in fast memory.
    let (mut read, mut written) = (0.0, 0.0);
    for (n, &id) in values.iter().enumerate() {
        let value = dataflow.value(id)?;
        let shape = dataflow.positions.shape(value.position);
        let array = shape.as_array()?;
        // A scalar is the scalar unit's, and what is in another memory already is there for a reason.
        if array.is_scalar() || Target::memory_space(shape) != 0 {
            return None;
        }
        let made_by = dataflow.instruction(value);
        let home = module[made_by].parent();
        plan.schedule.time(made_by)?;
        candidate.crosses_loops |= n > 0 && home != candidate.home;
        candidate.home = if n == 0 { home } else { candidate.home };
        let range = plan.live.of(id)?;
        (candidate.start, candidate.end) = (candidate.start.min(range.start), candidate.end.max(range.end));
        candidate.bytes = candidate.bytes.max(elapsed.target().byte_size(shape)?);
        let is_parameter = !value.is_phi && matches!(module[made_by].op, Op::Parameter { .. });
        candidate.is_parameter |= is_parameter;
        if is_parameter && (!is_entry_parameter(dataflow, made_by) || values.len() > 1) {
            return None;
        }
        if !is_parameter && !value.is_phi {
            let bytes = traffic.written(made_by, &dataflow.positions.index(value.position));
            written += bytes as f64 * traffic.runs(home);
        }
        is_made_fast &= !is_parameter && !value.is_phi && writes_fast(&module[made_by].op);
        may_move &= !is_parameter && (value.is_phi || writes_fast(&module[made_by].op));
        for &position in dataflow.positions_of(id) {
            let at = dataflow.positions.instruction(position);
            candidate.crosses_loops |= module[at].parent() != home;
            if at == root {
                let index = dataflow.positions.index(position);
                match (&module[at].op, index.as_slice()) {
                    (Op::Tuple, &[n]) => candidate.results.push(Eviction::Element(at, usize::try_from(n).ok()?)),
                    (Op::GetTupleElement { .. }, []) => {
                        candidate.results.push(Eviction::Whole(at));
                        positions.push(position);
                    }
                    _ => return None,
                }
            } else {
                positions.push(position);
            }
        }
        for used in dataflow.uses_of(id) {
            let op = &module[used.user].op;
            if names_only(op) || matches!(op, Op::While { .. }) {
                continue;
            }
            let time = plan.schedule.time(used.user)?;
            let whole = dataflow.positions.is_whole(used.position);
            let operand = used.operand as usize;
            let bytes = traffic.read(used.user, operand) as f64 * traffic.runs(module[used.user].parent());
            let reading = Read { time, user: used.user, operand, bytes };
            if sends(op) && whole {
                // What is sent is the start's own name for it: it moves with the buffer, and no copy is sent instead.
                is_sent = true;
                read += bytes;
                candidate.far_reads.push(reading);
                continue;
            }
            // Who writes into it reads it where it is.
            let is_updated =
                candidate.is_overwritten && plan.in_place.pairs(used.user).iter().any(|p| p.operand == operand);
            if !reads_fast(module, used.user) || !whole || is_updated {
                may_move = false;
                reads_are_fast = false;
                candidate.far_reads.push(reading);
                continue;
            }
            read += bytes;
            candidate.reads.push(reading);
        }
    }
    let is_read = !candidate.reads.is_empty() || is_sent && may_move && !candidate.is_parameter;
    if candidate.bytes == 0 || candidate.bytes > limit || !is_read {
        return None;
    }
    candidate.reads.sort_by_key(|r| (r.time, r.operand));
    candidate.far_reads.sort_by_key(|r| (r.time, r.operand));
    if let ([only], true, false) = (values, is_made_fast && !is_sent, candidate.crosses_loops) {
        let is_seen_by_name = |r: &Eviction| matches!(r, Eviction::Element(..));
        let named = named(plan, *only).filter(|_| candidate.results.iter().all(is_seen_by_name));
        candidate.evicted = named.map(|i| (positions.clone(), i));
    }
    if !candidate.crosses_loops && is_sent {
        candidate.source = None;
    } else if !candidate.crosses_loops {
        (candidate.source, candidate.handed_on) = source(plan, values)?;
    } else if candidate.is_parameter && candidate.results.is_empty() && reads_are_fast {
        // Handed to a loop: the copy is made before, and everything in the loop is in its memory.
        let own = positions.iter().copied().find(|&p| is_own(plan, module, p));
        candidate.source = own.map(|p| dataflow.positions.instruction(p));
        candidate.handed_on = positions.iter().copied().filter(|&p| Some(p) != own).collect();
    }
    // Only what a loop works on is worth the way back.
    may_move &= candidate.results.is_empty() || candidate.crosses_loops;
    // What goes back as a result is written after all, and what a loop is handed is read once.
    let results = if candidate.results.is_empty() { 0.0 } else { candidate.bytes as f64 };
    let handed = if candidate.crosses_loops && candidate.is_parameter { candidate.bytes as f64 } else { 0.0 };
    let written = if may_move { written } else { 0.0 };
    candidate.saved = read + written - results - handed;
    if candidate.crosses_loops && candidate.saved <= 0.0 {
        return None;
    }
    if may_move && !candidate.crosses_loops {
        candidate.writes_over = writes_over(plan, module, facts, &candidate, values);
    }
    candidate.positions = may_move.then_some(positions);
    Some(candidate)
}

/// The buffers that what makes this one may write it over.
fn writes_over(
    plan: &Plan<'_>,
    module: &Module,
    facts: &Facts<'_, '_>,
    candidate: &Candidate,
    values: &[ValueId],
) -> Vec<BufferId> {
    let dataflow = &plan.dataflow;
    let starts_it = |&&v: &&ValueId| plan.live.of(v).is_some_and(|r| r.start == candidate.start);
    let Some(value) = values.iter().find(starts_it).and_then(|&v| dataflow.value(v)) else { return Vec::new() };
    let mut found = Vec::new();
    for &operand in module[dataflow.instruction(value)].operands() {
        for position in dataflow.positions.of(operand) {
            let Some(id) = dataflow.at(position) else { continue };
            let buffer = plan.buffers.of(id);
            let ends = |&v: &ValueId| plan.live.of(v).is_none_or(|r| r.end <= candidate.start);
            if buffer != candidate.buffer
                && !found.contains(&buffer)
                && facts.overwrite.may(position, value.position)
                && plan.buffers.values(buffer).iter().all(ends)
            {
                found.push(buffer);
            }
        }
    }
    found
}

/// Whether a position is the whole of an entry parameter.
fn is_own(plan: &Plan<'_>, module: &Module, position: Position) -> bool {
    let at = plan.dataflow.positions.instruction(position);
    matches!(module[at].op, Op::Parameter { .. }) && Some(module[at].parent()) == module.entry()
}

/// The instruction that a copy would be made of, and what is then in the copy's memory besides: either the buffer is one
/// value, or its first value has one reader, which hands it on.
fn source(plan: &Plan<'_>, values: &[ValueId]) -> Option<(Option<InstructionId>, Vec<Position>)> {
    let dataflow = &plan.dataflow;
    let first = values.iter().copied().min_by_key(|&v| plan.live.of(v).map_or(Time::MAX, |r| r.start))?;
    let value = dataflow.value(first)?;
    let hands_on = dataflow.uses_of(first).len() == 1 && dataflow.positions_of(first).len() == 1;
    if values.len() == 1 {
        return Some((named(plan, first), Vec::new()));
    }
    if !dataflow.positions.is_whole(value.position) || !hands_on {
        return Some((None, Vec::new()));
    }
    let rest = values.iter().filter(|&&v| v != first).flat_map(|&v| dataflow.positions_of(v).to_vec());
    Some((Some(dataflow.instruction(value)), rest.collect()))
}

/// The first instruction whose whole result a value is: what makes it, or what takes it out of a tuple.
fn named(plan: &Plan<'_>, value: ValueId) -> Option<InstructionId> {
    let dataflow = &plan.dataflow;
    let made = dataflow.value(value)?.position;
    if dataflow.positions.is_whole(made) {
        return Some(dataflow.positions.instruction(made));
    }
    let is_taken_out = |&&p: &&Position| {
        let at = dataflow.positions.instruction(p);
        let op = &dataflow.module()[at].op;
        dataflow.positions.is_whole(p) && matches!(op, Op::GetTupleElement { .. })
    };
    dataflow.positions_of(value).iter().find(is_taken_out).map(|&p| dataflow.positions.instruction(p))
}

/// Whether it only gives a value another name.
fn names_only(op: &Op) -> bool {
    matches!(
        op,
        Op::GetTupleElement { .. }
            | Op::Bitcast
            | Op::Tuple
            | Op::AddDependency
            | Op::OptBarrier
            | Op::CollectivePermuteDone
    )
}

/// Whether it begins to send its operand, which it names among its results.
fn sends(op: &Op) -> bool {
    matches!(op, Op::CollectivePermuteStart(_))
}

/// Whether what an instruction makes may lie in fast memory.
fn writes_fast(op: &Op) -> bool {
    match op {
        Op::Fusion(_) | Op::AllReduce(_) | Op::AllGather(_) | Op::Convolution(_) | Op::Copy | Op::Reduce { .. } => true,
        Op::ReduceWindow { .. } | Op::Transpose { .. } | Op::Gather(_) | Op::Scatter(_) | Op::Concatenate { .. } => {
            true
        }
        Op::Slice { .. } | Op::Pad { .. } | Op::DynamicSlice { .. } | Op::DynamicUpdateSlice => true,
        Op::SelectAndScatter { .. } | Op::Sort { .. } | Op::ReduceScatter(_) | Op::AllToAll { .. } => true,
        Op::Broadcast { .. } | Op::Iota { .. } | Op::Reshape { .. } | Op::Reverse { .. } | Op::Fft { .. } => true,
        Op::Dot(_) | Op::TriangularSolve { .. } | Op::Cholesky { .. } | Op::TopK { .. } => true,
        // With the sizes of messages the arrays that it writes into are its operands.
        Op::CollectivePermuteStart(permute) => permute.slice_sizes.is_empty(),
        Op::CustomCall(call) => matches!(&*call.target, "X64SplitLow" | "X64SplitHigh" | "X64Combine"),
        op => op.is_elementwise(),
    }
}

/// Whether an instruction can read operands in fast memory. A single operation on elements reads by windows from main
/// memory only.
fn reads_fast(module: &Module, user: InstructionId) -> bool {
    let op = &module[user].op;
    let is_result = module.root(module[user].parent()) == Some(user) && matches!(op, Op::Tuple);
    writes_fast(op) && !op.is_elementwise() && !is_result && array_or_tuple(module, user)
}

fn array_or_tuple(module: &Module, i: InstructionId) -> bool {
    array_of(module, i).is_some() || module[i].shape.is_tuple()
}

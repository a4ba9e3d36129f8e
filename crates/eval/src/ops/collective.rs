//! Devices meeting and data moving between them.
//!
//! A device brings its operands by their addresses and finds its results written when it has met the others
//! ([`hloom_comm::Communicator`]). What takes more than moving and reducing bytes gathers what all devices have, and each
//! works out its own result. Asynchronous forms happen at their start.

use crate::collective_work::{key_of, name_of, purpose_of, whole, work_of};
use crate::fold::Fold;
use crate::interpreter::{Device, OperandValues};
use crate::mixed_precision::rounded;
use crate::ops::data_movement::{dynamic_slice, dynamic_update_slice};
use crate::ops::transfer;
use crate::scalar::Scalar;
use hloom_analysis::devices::{group_of, plane_of};
use hloom_comm::{
    Collective, CollectiveKind, CollectiveRequest, JoinError, ParticipantMemory, Purpose, Serial, Whereabouts,
};
use hloom_ir::diagnostic::{Blame, codes};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::layout::DimVec;
use hloom_ir::op::{CollectivePermute, Op};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let mut value = evaluate_unchecked(device, i, operands)?;
    let instruction = &device.module()[i];
    if !value.fits(&instruction.shape) {
        value = rounded(value, &instruction.shape)?;
    }
    // A program for more devices than there are meets in smaller groups, and may not get what it counts on.
    if !value.fits(&instruction.shape) {
        let (name, given) = (instruction.name(), value.description());
        let message = format!("{name} gives {given} on device {}, not {}", device.ordinal, instruction.shape);
        let fault = ExecutionError::new(&codes::eval::COLLECTIVE, message);
        return Err(fault.help("the program may be for another number of devices: see --devices"));
    }
    Ok(value)
}

fn evaluate_unchecked(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
) -> Result<Value, ExecutionError> {
    let module = device.module();
    let instruction = &module[i];
    let shape = &instruction.shape;
    match &instruction.op {
        Op::ReplicaId => Array::scalar(ElementType::U32, device.replica() as u32).map(Value::Array),
        Op::PartitionId => Array::scalar(ElementType::U32, device.partition() as u32).map(Value::Array),
        Op::AllReduce(a) | Op::AllReduceStart(a) => {
            let held = operands.clone();
            let results = reduced(device, i, operands, a.to_apply)?;
            // Some GPU programs write the start like that of other collectives, which holds its operands as well.
            if shape.as_tuple().is_some_and(|t| t.len() == 2 * results.len()) {
                return Ok(Value::Tuple(held.into_iter().chain(values(results)).collect()));
            }
            Ok(as_shaped(shape, values(results)))
        }
        Op::CollectiveReduce(r) => {
            let group = group(device, i)?;
            let mut results = reduced(device, i, operands, r.to_apply)?;
            // The first device of the group gets the results, the others nothing but zeros.
            if group.first() != Some(&device.ordinal) {
                let zeros = results.iter().map(|a| Array::zeroed(a.element_type(), a.dims()));
                results = zeros.collect::<Result<_, _>>()?;
            }
            Ok(as_shaped(shape, values(results)))
        }
        Op::ReduceScatter(r) => {
            let results = scattered(device, i, operands, r.to_apply, r.dimension as usize)?;
            Ok(as_shaped(shape, values(results)))
        }
        Op::AllGather(a) => {
            let results = gathered(device, i, operands, a.dimension as usize)?;
            Ok(as_shaped(shape, values(results)))
        }
        Op::AllGatherStart(a) => {
            let results = gathered(device, i, operands.clone(), a.dimension as usize)?;
            Ok(start_state(shape, operands, values(results)))
        }
        Op::AllToAll { .. } => {
            let (group, operands) = (group(device, i)?, arrays(operands)?);
            // Where operand `k` goes to device `k`, what comes is like the operand of this device's own number.
            let own = group.iter().position(|&d| d == device.ordinal).and_then(|n| operands.get(n));
            let like = |a: &Array| match &instruction.op {
                Op::AllToAll { split_dimension: None, .. } => own.unwrap_or(a).shape(),
                _ => a.shape(),
            };
            let results: Vec<ArrayShape> = operands.iter().map(like).collect();
            Ok(as_shaped(shape, values(meet_by_op(device, i, &group, operands, results)?)))
        }
        Op::RaggedAllToAll { .. } => {
            let group = group(device, i)?;
            let brought = gather_from_all(device, i, &group, arrays(operands)?)?;
            let own = group.iter().position(|&d| d == device.ordinal).unwrap_or(0);
            Ok(as_shaped(shape, vec![Value::Array(ragged_exchanged(&brought, own)?)]))
        }
        Op::CollectiveBroadcast { has_dynamic_root, .. } => {
            let Some(group) = group_of(&instruction.op, device.shared.grid, device.ordinal) else {
                return Value::zeroed(shape);
            };
            let mut operands = arrays(operands)?;
            let root = if *has_dynamic_root { dynamic_root(device, i, &group, &mut operands)? } else { 0 };
            let results: Vec<ArrayShape> = operands.iter().map(Array::shape).collect();
            let arrays = results.iter().map(|a| whole(a.element_type, a.dims())).collect::<Option<_>>();
            let arrays = arrays.ok_or_else(|| ExecutionError::bug("an operand has no size"))?;
            let work = Collective { kind: CollectiveKind::Broadcast(root), arrays };
            Ok(as_shaped(shape, values(meet(device, i, &group, work, operands, results)?)))
        }
        Op::CollectivePermute(permute) => {
            let results = permuted(device, i, operands, permute)?;
            Ok(as_shaped(shape, results))
        }
        Op::CollectivePermuteStart(permute) => {
            let mut held = operands.clone();
            let results = permuted(device, i, operands, permute)?;
            // One that writes into its second operand holds the first, but not the places in both.
            if !permute.slice_sizes.is_empty() {
                held.truncate(1);
            }
            Ok(start_state(shape, held, results))
        }
        Op::AllReduceDone => {
            let started = operands.into_iter().next().ok_or_else(|| ExecutionError::bug("a done has no start"))?;
            match started {
                Value::Tuple(mut held) if shape.leaf_count() * 2 == held.len() => {
                    Ok(as_shaped(shape, held.split_off(held.len() / 2)))
                }
                result => Ok(result),
            }
        }
        Op::AllGatherDone | Op::CollectivePermuteDone => {
            let state = operands.into_iter().next().ok_or_else(|| ExecutionError::bug("a done has no start"))?;
            state.into_tuple()?.into_iter().nth(1).ok_or_else(|| ExecutionError::bug("a start has no result"))
        }
        _ => transfer::evaluate(device, i, operands),
    }
}

fn arrays(values: OperandValues) -> Result<Vec<Array>, ExecutionError> {
    values.into_iter().map(Value::into_array).collect()
}

fn values(arrays: Vec<Array>) -> Vec<Value> {
    arrays.into_iter().map(Value::Array).collect()
}

fn as_shaped(shape: &Shape, mut results: Vec<Value>) -> Value {
    if shape.is_tuple() || results.len() != 1 { Value::Tuple(results) } else { results.swap_remove(0) }
}

/// The state of a start: its operands and its results, then whatever else the shape has, made up.
fn start_state(shape: &Shape, operands: OperandValues, results: Vec<Value>) -> Value {
    let elements = shape.as_tuple().unwrap_or_default();
    let grouped = |n: usize, values: Vec<Value>| match elements.get(n) {
        Some(s) => as_shaped(s, values),
        None => Value::Tuple(values),
    };
    let mut state = vec![grouped(0, operands.into_vec()), grouped(1, results)];
    // Contexts are small and never computed with; one that cannot be had is a token.
    state.extend(elements.iter().skip(2).map(|s| Value::zeroed(s).unwrap_or(Value::Token)));
    Value::Tuple(state)
}

/// The devices that meet this one, in the group's order.
fn group(device: &Device<'_>, i: InstructionId) -> Result<Vec<usize>, ExecutionError> {
    group_of(&device.module()[i].op, device.shared.grid, device.ordinal).ok_or_else(|| {
        let name = device.module()[i].name();
        ExecutionError::new(&codes::eval::COLLECTIVE, format!("device {} is in no group of {name}", device.ordinal))
    })
}

/// Meets the group for what the instruction says.
fn meet_by_op(
    device: &mut Device<'_>,
    i: InstructionId,
    group: &[usize],
    operands: Vec<Array>,
    results: Vec<ArrayShape>,
) -> Result<Vec<Array>, ExecutionError> {
    let module = device.module();
    let from: Vec<ArrayShape> = operands.iter().map(Array::shape).collect();
    let work = work_of(module, &module[i].op, &from, &results).ok_or_else(|| unfit(device, i, group))?;
    meet(device, i, group, work, operands, results)
}

/// Meets the group, and gives this device's results.
#[allow(unsafe_code, reason = "devices know each other's arrays by their addresses")]
fn meet(
    device: &mut Device<'_>,
    i: InstructionId,
    group: &[usize],
    work: Collective,
    operands: Vec<Array>,
    results: Vec<ArrayShape>,
) -> Result<Vec<Array>, ExecutionError> {
    let mut made = results.iter().map(|r| Array::zeroed(r.element_type, r.dims())).collect::<Result<Vec<_>, _>>()?;
    let has_size = |(n, a): (usize, &Array)| a.bytes().len() == work.result_bytes(n, group.len());
    let sizes_fit = operands.iter().zip(&work.arrays).all(|(a, g)| a.bytes().len() == g.bytes);
    if !work.fits(group.len()) || !sizes_fit || !made.iter().enumerate().all(has_size) {
        return Err(unfit(device, i, group));
    }
    let (what, name) = (purpose_of(device.module(), i), name_of(device.module(), i));
    let memory = ParticipantMemory {
        operands: operands.iter().map(|a| a.bytes().as_ptr() as usize).collect(),
        results: made.iter_mut().map(|a| a.bytes_mut().as_mut_ptr() as usize).collect(),
    };
    let request = CollectiveRequest {
        key: key_of(device.module(), i),
        participants: group,
        purpose: &Purpose::new(what.into(), name.into(), work),
        memory,
        parallel: &Serial,
        waits: true,
    };
    let communicator = &device.shared.communicator;
    // SAFETY: the arrays are as long as the collective says (checked above), and nothing touches them before the wait has
    // ended; where it fails and they may still be written to, they are kept for ever.
    let met = unsafe { communicator.start(device.ordinal, &request) };
    match met.and_then(|arrival| communicator.wait(device.ordinal, arrival)) {
        Ok(()) => Ok(made),
        Err(miss) => {
            if !communicator.abandon(device.ordinal) {
                std::mem::forget((operands, made));
            }
            Err(missed(device, i, group, miss))
        }
    }
}

/// What each device of the group brings, for all of them.
fn gather_from_all(
    device: &mut Device<'_>,
    i: InstructionId,
    group: &[usize],
    operands: Vec<Array>,
) -> Result<Vec<Vec<Array>>, ExecutionError> {
    let shapes: Vec<ArrayShape> = operands.iter().map(Array::shape).collect();
    let arrays = shapes.iter().map(|s| whole(s.element_type, s.dims())).collect::<Option<_>>();
    let arrays = arrays.ok_or_else(|| ExecutionError::bug("an operand has no size"))?;
    let work = Collective { kind: CollectiveKind::AllGather, arrays };
    let beside = |s: &ArrayShape| {
        let dims: DimVec = [group.len() as i64].into_iter().chain(s.dims().iter().copied()).collect();
        ArrayShape::new(s.element_type, dims)
    };
    let gathered = meet(device, i, group, work, operands, shapes.iter().map(beside).collect())?;
    let of_member = |k: usize| {
        let one = |(all, s): (&Array, &ArrayShape)| {
            let bytes = all.bytes().len() / group.len();
            Array::from_bytes(s.element_type, s.dims(), &all.bytes()[k * bytes..(k + 1) * bytes])
        };
        gathered.iter().zip(&shapes).map(one).collect::<Result<Vec<_>, _>>()
    };
    (0..group.len()).map(of_member).collect()
}

fn unfit(device: &Device<'_>, i: InstructionId, group: &[usize]) -> ExecutionError {
    let name = device.module()[i].name();
    let message = format!("the arrays of {name} do not fit a group of {} devices", group.len());
    let fault = ExecutionError::new(&codes::eval::COLLECTIVE, message).note(format!("the group is {group:?}"));
    fault.help("the program may be for another number of devices: see --devices")
}

/// A meeting that did not come about, in words.
pub fn missed(device: &Device<'_>, i: InstructionId, group: &[usize], miss: JoinError) -> ExecutionError {
    let instruction = &device.module()[i];
    let (name, here) = (instruction.name(), device.ordinal);
    // Among several processes the program has been compared already: what differs is the machine.
    let across = device.shared.options.communicator.is_some();
    let error = |blame: Blame, message: String| {
        let error = ExecutionError::new(&codes::eval::COLLECTIVE, message).blame(blame);
        error.note(format!("the group is {group:?}"))
    };
    let of_program = if across { Blame::Machine } else { Blame::Program };
    let list = |absent: Vec<(usize, Whereabouts)>| {
        let each = absent.into_iter().map(|(d, doing)| match doing {
            Whereabouts::Running => format!("device {d} is still computing"),
            Whereabouts::Waiting(what) => format!("device {d} waits for {what}"),
            Whereabouts::Finished => format!("device {d} has finished its program"),
            Whereabouts::Elsewhere { rank } => format!("device {d} on rank {rank} has not come"),
        });
        each.collect::<Vec<_>>().join(", ")
    };
    match miss {
        JoinError::Absent(absent) => {
            error(of_program, format!("{name} cannot complete on device {here}: {}", list(absent)))
        }
        JoinError::TimedOut(limit, absent) => {
            error(Blame::Machine, format!("{name} waited {} s on device {here}: {}", limit.as_secs(), list(absent)))
        }
        JoinError::Disagree { device: other, what } => error(
            of_program,
            format!(
                "devices disagree: device {here} comes to {name} for {} of {}, device {other} for {what}",
                instruction.opcode(),
                instruction.shape.without_layout()
            ),
        ),
        JoinError::NotAParticipant => error(Blame::Program, format!("{name} names a device that does not exist")),
        JoinError::Unfit => unfit(device, i, group),
        JoinError::PeerFailed { rank, device: Some(other), why } => {
            let message = format!("{name} cannot complete on device {here}: device {other} on rank {rank} failed");
            error(Blame::Machine, message).note(why)
        }
        JoinError::PeerFailed { rank, device: None, why } => {
            error(Blame::Machine, format!("{name} cannot complete on device {here}: rank {rank} failed")).note(why)
        }
        JoinError::Interrupted(absent) => {
            let message =
                format!("{name} was waiting on device {here} when the process was told to end: {}", list(absent));
            error(Blame::Machine, message).note("launchers end all ranks when one of them has died")
        }
        JoinError::Transport(why) => error(Blame::Machine, format!("{name} cannot complete on device {here}: {why}")),
        JoinError::Cancelled => ExecutionError::new(&codes::eval::CANCELLED, "the run was cancelled"),
    }
}

/// Each operand folded over all devices, in the group's order.
fn reduced(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
    function: ComputationId,
) -> Result<Vec<Array>, ExecutionError> {
    let (module, group, operands) = (device.module(), group(device, i)?, arrays(operands)?);
    let shapes: Vec<ArrayShape> = operands.iter().map(Array::shape).collect();
    match work_of(module, &module[i].op, &shapes, &shapes) {
        Some(work) => meet(device, i, &group, work, operands, shapes),
        None => {
            let brought = gather_from_all(device, i, &group, operands)?;
            folded(device, function, brought)
        }
    }
}

/// As [`reduced`]; the device gets its part of each along `dimension`.
fn scattered(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
    function: ComputationId,
    dimension: usize,
) -> Result<Vec<Array>, ExecutionError> {
    let (module, group, operands) = (device.module(), group(device, i)?, arrays(operands)?);
    let parts = group.len() as i64;
    let mut results = Vec::with_capacity(operands.len());
    for operand in &operands {
        let mut dims: DimVec = operand.dims().into();
        let size = dims.get_mut(dimension).filter(|size| **size % parts == 0);
        *size.ok_or_else(|| unfit(device, i, &group))? /= parts;
        results.push(ArrayShape::new(operand.element_type(), dims));
    }
    let shapes: Vec<ArrayShape> = operands.iter().map(Array::shape).collect();
    if let Some(work) = work_of(module, &module[i].op, &shapes, &results) {
        return meet(device, i, &group, work, operands, results);
    }
    let brought = gather_from_all(device, i, &group, operands)?;
    let own = group.iter().position(|&d| d == device.ordinal).unwrap_or(0) as i64;
    let sums = folded(device, function, brought)?;
    let part = |(sum, result): (&Array, &ArrayShape)| {
        let mut starts = DimVec::from_elem(0, sum.rank());
        starts[dimension] = own * result.dims()[dimension];
        dynamic_slice(sum, &starts, result.dims())
    };
    sums.iter().zip(&results).map(part).collect()
}

/// What all devices brought, combined element by element by a function of the program.
fn folded(
    device: &mut Device<'_>,
    function: ComputationId,
    brought: Vec<Vec<Array>>,
) -> Result<Vec<Array>, ExecutionError> {
    let mut devices = brought.into_iter();
    let mut sums = devices.next().ok_or_else(|| ExecutionError::bug("nobody brought anything"))?;
    for arrays in devices {
        for (a, b) in sums.iter_mut().zip(arrays) {
            let mut fold = Fold::new(device, function, &[a.element_type(), b.element_type()], &[a.element_type()])?;
            let width = a.element_type().bytes();
            for n in 0..a.len() {
                let combined = fold.apply(device, &[Scalar::load(a, n), Scalar::load(&b, n)])?[0];
                combined.store(&mut a.bytes_mut()[n * width..(n + 1) * width]);
            }
        }
    }
    Ok(sums)
}

/// The operands of all devices side by side along `dimension`.
fn gathered(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
    dimension: usize,
) -> Result<Vec<Array>, ExecutionError> {
    let (group, operands) = (group(device, i)?, arrays(operands)?);
    let mut results = Vec::with_capacity(operands.len());
    for operand in &operands {
        let mut dims: DimVec = operand.dims().into();
        *dims.get_mut(dimension).ok_or_else(|| unfit(device, i, &group))? *= group.len() as i64;
        results.push(ArrayShape::new(operand.element_type(), dims));
    }
    // Where there is nothing to gather, sizes do not say how many devices bring it.
    if operands.iter().all(|a| a.is_empty()) {
        return results.iter().map(|r| Array::zeroed(r.element_type, r.dims())).collect();
    }
    meet_by_op(device, i, &group, operands, results)
}

/// Ragged all-to-all: operands are input, output, input offsets, send sizes, output offsets, receive sizes. Device `s`
/// sends rows `input_offsets[t] .. + send_sizes[t]` to rows `output_offsets[t]` of device `t`'s output. With more than one
/// update per device the lists hold those of device 0 first. The result is that of the device at the place `own`.
fn ragged_exchanged(brought: &[Vec<Array>], own: usize) -> Result<Array, ExecutionError> {
    let wrong = || ExecutionError::bug("ragged-all-to-all lacks an operand");
    let devices = brought.len();
    let mut output = brought.get(own).and_then(|a| a.get(1)).cloned().ok_or_else(wrong)?;
    for arrays in brought {
        let [input, _, input_offsets, send_sizes, output_offsets, _] = &arrays[..] else { return Err(wrong()) };
        if input.rank() == 0 || input.rank() != arrays[1].rank() {
            return Err(ExecutionError::new(
                &codes::eval::COLLECTIVE,
                "ragged-all-to-all moves rows of arrays, not scalars",
            ));
        }
        let per_device = send_sizes.len() / devices.max(1);
        for n in 0..per_device * devices {
            let (from, size) = (input_offsets.integer_at(n)?, send_sizes.integer_at(n)?);
            let to = output_offsets.integer_at(n)?;
            let inside =
                |start: i64, a: &Array| start >= 0 && start.checked_add(size).is_some_and(|end| end <= a.dims()[0]);
            if size < 0 || !inside(from, input) || !inside(to, &output) {
                return Err(ExecutionError::new(
                    &codes::eval::COLLECTIVE,
                    format!("ragged-all-to-all moves {size} rows from {from} to {to}, outside the arrays"),
                ));
            }
            if n / per_device != own {
                continue;
            }
            let mut sizes: DimVec = input.dims().into();
            sizes[0] = size;
            let mut starts = DimVec::from_elem(0, input.rank());
            starts[0] = from;
            let rows = dynamic_slice(input, &starts, &sizes)?;
            starts[0] = to;
            output = dynamic_update_slice(output, &rows, &starts)?;
        }
    }
    Ok(output)
}

/// Which device of the group gives its value to all, as the last operand of the first says.
fn dynamic_root(
    device: &mut Device<'_>,
    i: InstructionId,
    group: &[usize],
    operands: &mut Vec<Array>,
) -> Result<usize, ExecutionError> {
    let index = operands.pop().ok_or_else(|| ExecutionError::bug("no root is given"))?;
    let roots = gather_from_all(device, i, group, vec![index])?;
    let root = roots.first().and_then(|r| r.first()).ok_or_else(|| ExecutionError::bug("nobody names a root"))?;
    let root = usize::try_from(root.to_i64()?).ok().filter(|&r| r < group.len());
    root.ok_or_else(|| ExecutionError::bug("there is no such root"))
}

/// Each source's value goes to its target; a device that is no target gets zeros. The form with four operands copies
/// slices of the first into the second.
fn permuted(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
    permute: &CollectivePermute,
) -> Result<Vec<Value>, ExecutionError> {
    let plane = plane_of(permute.channel_id.is_some(), device.shared.grid, device.ordinal);
    let mut source_of = vec![None; plane.len()];
    for &(source, target) in &permute.source_target_pairs {
        let position = |id: i64| usize::try_from(id).ok().filter(|&n| n < plane.len());
        let (Some(source), Some(target)) = (position(source), position(target)) else {
            return Err(ExecutionError::new(
                &codes::eval::COLLECTIVE,
                format!("the pair {{{source},{target}}} names no device"),
            ));
        };
        source_of[target] = Some(source);
    }
    if operands.len() == 4 && !permute.slice_sizes.is_empty() {
        return transfer::permute_slices(device, i, &plane, operands, permute, &source_of);
    }
    exchange(device, i, &plane, operands, &source_of)
}

/// Meets the whole plane; position `k` takes what position `source_of[k]` brought, or zeros.
pub fn exchange(
    device: &mut Device<'_>,
    i: InstructionId,
    plane: &[usize],
    operands: OperandValues,
    source_of: &[Option<usize>],
) -> Result<Vec<Value>, ExecutionError> {
    let operands = arrays(operands)?;
    let results: Vec<ArrayShape> = operands.iter().map(Array::shape).collect();
    let arrays = results.iter().map(|a| whole(a.element_type, a.dims())).collect::<Option<_>>();
    let arrays = arrays.ok_or_else(|| ExecutionError::bug("an operand has no size"))?;
    let pairs = source_of.iter().enumerate().filter_map(|(target, source)| Some(((*source)?, target))).collect();
    let work = Collective { kind: CollectiveKind::Permute(pairs), arrays };
    Ok(values(meet(device, i, plane, work, operands, results)?))
}

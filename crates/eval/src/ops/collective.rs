//! Devices meeting and data moving between them.
//!
//! A collective is a pure function from what every device of the group brings to what every device takes away; the last
//! to arrive computes it ([`hloom_comm::Rendezvous`]). Asynchronous forms happen at their start.

use crate::fold::Fold;
use crate::interpreter::{Device, OperandValues};
use crate::ops::data_movement::{concatenate, dynamic_slice, dynamic_update_slice};
use crate::ops::elementwise;
use crate::ops::transfer;
use crate::scalar::Scalar;
use hloom_analysis::devices::{group_of, plane_of};
use hloom_comm::{JoinError, JoinRequest, RendezvousKey, Whereabouts};
use hloom_ir::diagnostic::codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::layout::DimVec;
use hloom_ir::op::{BinaryOp, CollectivePermute, Op};
use hloom_ir::shape::Shape;
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let value = evaluate_unchecked(device, i, operands)?;
    let instruction = &device.module()[i];
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
            let reduce = |d: &mut Device<'_>, brought| same_for_all(reduced(d, brought, a.to_apply)?);
            let held = operands.clone();
            let results = meet(device, i, operands, reduce)?;
            // Some GPU programs write the start like that of other collectives, which holds its operands as well.
            if shape.as_tuple().is_some_and(|t| t.len() == 2 * results.len()) {
                return Ok(Value::Tuple(held.into_iter().chain(results).collect()));
            }
            Ok(as_shaped(shape, results))
        }
        Op::AllGather(a) => {
            let gather = |_: &mut Device<'_>, brought| gathered(brought, a.dimension as usize);
            Ok(as_shaped(shape, meet(device, i, operands, gather)?))
        }
        Op::AllGatherStart(a) => {
            let gather = |_: &mut Device<'_>, brought| gathered(brought, a.dimension as usize);
            let results = meet(device, i, operands.clone(), gather)?;
            Ok(start_state(shape, operands, results))
        }
        Op::ReduceScatter(r) => {
            let scatter = |d: &mut Device<'_>, brought: Brought| {
                let parts = brought.len();
                scattered(reduced(d, brought, r.to_apply)?, r.dimension as usize, parts)
            };
            Ok(as_shaped(shape, meet(device, i, operands, scatter)?))
        }
        Op::CollectiveReduce(r) => {
            let reduce = |d: &mut Device<'_>, brought: Brought| {
                let count = brought.len();
                only_first(reduced(d, brought, r.to_apply)?, count)
            };
            Ok(as_shaped(shape, meet(device, i, operands, reduce)?))
        }
        Op::AllToAll { split_dimension, .. } => {
            let exchange = |_: &mut Device<'_>, brought| exchanged(brought, *split_dimension);
            Ok(as_shaped(shape, meet(device, i, operands, exchange)?))
        }
        Op::RaggedAllToAll { .. } => {
            let exchange = |_: &mut Device<'_>, brought| ragged_exchanged(brought);
            Ok(as_shaped(shape, meet(device, i, operands, exchange)?))
        }
        Op::CollectiveBroadcast { has_dynamic_root, .. } => {
            let dynamic = *has_dynamic_root;
            if group_of(&instruction.op, device.shared.grid, device.ordinal).is_none() {
                return Value::zeroed(shape);
            }
            let broadcast = |_: &mut Device<'_>, brought| broadcast_from_root(brought, dynamic);
            Ok(as_shaped(shape, meet(device, i, operands, broadcast)?))
        }
        Op::CollectivePermute(permute) => {
            let results = permuted(device, i, operands, permute)?;
            Ok(as_shaped(shape, results))
        }
        Op::CollectivePermuteStart(permute) => {
            let results = permuted(device, i, operands.clone(), permute)?;
            Ok(start_state(shape, operands, results))
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

/// What each participant brings: its operands.
type Brought = Vec<Vec<Array>>;

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

/// Meets the devices of the collective's group and works out what this one takes away.
fn meet(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
    finish: impl FnOnce(&mut Device<'_>, Brought) -> Result<Outcome, ExecutionError>,
) -> Result<Vec<Value>, ExecutionError> {
    let op = &device.module()[i].op;
    let group = group_of(op, device.shared.grid, device.ordinal).ok_or_else(|| {
        let name = device.module()[i].name();
        ExecutionError::new(&codes::eval::COLLECTIVE, format!("device {} is in no group of {name}", device.ordinal))
    })?;
    meet_group(device, i, &group, operands, finish)
}

/// What the participants take away.
enum Outcome {
    /// All the same.
    Same(Vec<Value>),
    /// Each its own.
    Each(Vec<Vec<Value>>),
}

fn same_for_all(arrays: Vec<Array>) -> Result<Outcome, ExecutionError> {
    Ok(Outcome::Same(arrays.into_iter().map(Value::Array).collect()))
}

/// The first device of the group gets the results, the others nothing but zeros.
fn only_first(arrays: Vec<Array>, count: usize) -> Result<Outcome, ExecutionError> {
    let nothing = arrays.iter().map(|a| Array::zeroed(a.element_type(), a.dims()).map(Value::Array));
    let nothing: Vec<Value> = nothing.collect::<Result<_, _>>()?;
    let first = arrays.into_iter().map(Value::Array).collect();
    let others = std::iter::repeat_n(nothing, count.saturating_sub(1));
    Ok(Outcome::Each([first].into_iter().chain(others).collect()))
}

fn meet_group(
    device: &mut Device<'_>,
    i: InstructionId,
    group: &[usize],
    operands: OperandValues,
    finish: impl FnOnce(&mut Device<'_>, Brought) -> Result<Outcome, ExecutionError>,
) -> Result<Vec<Value>, ExecutionError> {
    let instruction = &device.module()[i];
    // Devices at the same key must do the same; a name is not part of that, since branches may differ in it.
    let what = format!("{} of {}", instruction.opcode(), instruction.shape.without_layout());
    let key = match instruction.op.channel_id() {
        Some(channel) => RendezvousKey::Channel(channel),
        None => RendezvousKey::Instruction(i.index()),
    };
    let meeting = JoinRequest { key, participants: group, what: &what };
    let (world, ordinal) = (&device.shared.rendezvous, device.ordinal);
    let brings = Value::Tuple(operands.into_vec());
    let met = world.join(ordinal, &meeting, brings, |brought: Vec<Value>| {
        let arrays =
            |v: Value| v.into_tuple()?.into_iter().map(Value::into_array).collect::<Result<Vec<_>, ExecutionError>>();
        let brought = brought.into_iter().map(arrays).collect::<Result<Brought, _>>()?;
        let count = brought.len();
        Ok(match finish(device, brought)? {
            Outcome::Same(values) => vec![Value::Tuple(values); count],
            Outcome::Each(each) => each.into_iter().map(Value::Tuple).collect(),
        })
    });
    met.map_err(|miss| missed(device, i, group, miss))??.into_tuple()
}

/// A meeting that did not come about, in words.
pub fn missed(device: &Device<'_>, i: InstructionId, group: &[usize], miss: JoinError) -> ExecutionError {
    let name = device.module()[i].name();
    let error = |message: String| {
        ExecutionError::new(&codes::eval::COLLECTIVE, message).note(format!("the group is {group:?}"))
    };
    let list = |absent: Vec<(usize, Whereabouts)>| {
        let each = absent.into_iter().map(|(d, doing)| match doing {
            Whereabouts::Running => format!("device {d} is still computing"),
            Whereabouts::Waiting(what) => format!("device {d} waits for {what}"),
            Whereabouts::Finished => format!("device {d} has finished its program"),
        });
        each.collect::<Vec<_>>().join(", ")
    };
    match miss {
        JoinError::Absent(absent) => {
            error(format!("{name} cannot complete on device {}: {}", device.ordinal, list(absent)))
        }
        JoinError::TimedOut(limit, absent) => {
            error(format!("{name} waited {} s on device {}: {}", limit.as_secs(), device.ordinal, list(absent)))
        }
        JoinError::Disagree { device: other, what } => {
            let mine = &device.module()[i];
            error(format!(
                "devices disagree: device {} comes to {name} for {} of {}, device {other} for {what}",
                device.ordinal,
                mine.opcode(),
                mine.shape.without_layout()
            ))
        }
        JoinError::NotAParticipant => error(format!("{name} names a device that does not exist")),
        JoinError::Cancelled => ExecutionError::new(&codes::eval::CANCELLED, "the run was cancelled"),
    }
}

/// Each operand folded over all devices, in the group's order.
fn reduced(device: &mut Device<'_>, brought: Brought, function: ComputationId) -> Result<Vec<Array>, ExecutionError> {
    let mut devices = brought.into_iter();
    let mut sums = devices.next().ok_or_else(|| ExecutionError::bug("nobody brought anything"))?;
    let types: Vec<ElementType> = sums.iter().map(Array::element_type).collect();
    // Each operand is folded on its own by a function of two scalars.
    let known = Fold::known_operation(device.module(), function);
    let wide = |op: Option<BinaryOp>, a: Array| match a.element_type() {
        ElementType::F16 | ElementType::Bf16 if op.is_some() => elementwise::convert(a, ElementType::F32),
        _ => Ok(a),
    };
    sums = sums.into_iter().map(|a| wide(known, a)).collect::<Result<_, _>>()?;
    for arrays in devices {
        for (sum, array) in sums.iter_mut().zip(arrays) {
            let so_far = std::mem::replace(sum, Array::zeroed(ElementType::Pred, &[0])?);
            let array = wide(known, array)?;
            *sum = match known {
                Some(op) => {
                    let to = so_far.element_type();
                    elementwise::binary(op, so_far, array, to)?
                }
                None => folded(device, function, so_far, &array)?,
            };
        }
    }
    sums.into_iter()
        .zip(types)
        .map(|(a, t)| if a.element_type() == t { Ok(a) } else { elementwise::convert(a, t) })
        .collect()
}

/// Two arrays combined element by element by a function of the program.
fn folded(device: &mut Device<'_>, function: ComputationId, mut a: Array, b: &Array) -> Result<Array, ExecutionError> {
    let mut fold = Fold::new(device, function, &[a.element_type(), b.element_type()], &[a.element_type()])?;
    let width = a.element_type().bytes();
    for n in 0..a.len() {
        let combined = fold.apply(device, &[Scalar::load(&a, n), Scalar::load(b, n)])?[0];
        combined.store(&mut a.bytes_mut()[n * width..(n + 1) * width]);
    }
    Ok(a)
}

fn gathered(brought: Brought, dimension: usize) -> Result<Outcome, ExecutionError> {
    let operands = brought.first().map_or(0, Vec::len);
    let nth = |n: usize| brought.iter().filter_map(|arrays| arrays.get(n).cloned()).collect::<Vec<_>>();
    same_for_all((0..operands).map(|n| concatenate(&nth(n), dimension)).collect::<Result<_, _>>()?)
}

/// Part `k` of `parts` of each array along `dimension`.
fn part(array: &Array, dimension: usize, k: usize, parts: usize) -> Result<Array, ExecutionError> {
    let mut sizes: DimVec = array.dims().into();
    let wrong = || ExecutionError::bug("an array cannot be cut into as many parts as there are devices");
    let size = sizes.get_mut(dimension).ok_or_else(wrong)?;
    if *size % parts as i64 != 0 {
        return Err(wrong());
    }
    *size /= parts as i64;
    let mut starts = DimVec::from_elem(0, array.rank());
    starts[dimension] = k as i64 * *size;
    dynamic_slice(array, &starts, &sizes)
}

fn scattered(sums: Vec<Array>, dimension: usize, parts: usize) -> Result<Outcome, ExecutionError> {
    let each = |k: usize| sums.iter().map(|a| part(a, dimension, k, parts).map(Value::Array)).collect();
    Ok(Outcome::Each((0..parts).map(each).collect::<Result<_, ExecutionError>>()?))
}

/// All-to-all: with a dimension, each array is cut along it and the parts from all devices are joined; without one,
/// operand `k` goes to device `k`.
fn exchanged(brought: Brought, split_dimension: Option<i64>) -> Result<Outcome, ExecutionError> {
    let devices = brought.len();
    let mut each = Vec::with_capacity(devices);
    for k in 0..devices {
        let mut takes = Vec::new();
        if let Some(dimension) = split_dimension {
            for n in 0..brought[0].len() {
                let from_all = |arrays: &Vec<Array>| part(&arrays[n], dimension as usize, k, devices);
                let parts = brought.iter().map(from_all).collect::<Result<Vec<_>, _>>()?;
                takes.push(Value::Array(concatenate(&parts, dimension as usize)?));
            }
        } else {
            let missing = || ExecutionError::bug("all-to-all needs an operand for each device");
            for arrays in &brought {
                takes.push(Value::Array(arrays.get(k).ok_or_else(missing)?.clone()));
            }
        }
        each.push(takes);
    }
    Ok(Outcome::Each(each))
}

/// Ragged all-to-all: operands are input, output, input offsets, send sizes, output offsets, receive sizes. Device `s`
/// sends rows `input_offsets[t] .. + send_sizes[t]` to rows `output_offsets[t]` of device `t`'s output. With more than one
/// update per device the lists hold those of device 0 first.
fn ragged_exchanged(brought: Brought) -> Result<Outcome, ExecutionError> {
    let wrong = || ExecutionError::bug("ragged-all-to-all lacks an operand");
    let mut outputs = brought.iter().map(|a| a.get(1).cloned().ok_or_else(wrong)).collect::<Result<Vec<_>, _>>()?;
    let devices = brought.len();
    for arrays in &brought {
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
            let target = &mut outputs[n / per_device];
            let inside =
                |start: i64, a: &Array| start >= 0 && start.checked_add(size).is_some_and(|end| end <= a.dims()[0]);
            if size < 0 || !inside(from, input) || !inside(to, target) {
                return Err(ExecutionError::new(
                    &codes::eval::COLLECTIVE,
                    format!("ragged-all-to-all moves {size} rows from {from} to {to}, outside the arrays"),
                ));
            }
            let mut sizes: DimVec = input.dims().into();
            sizes[0] = size;
            let mut starts = DimVec::from_elem(0, input.rank());
            starts[0] = from;
            let rows = dynamic_slice(input, &starts, &sizes)?;
            starts[0] = to;
            let so_far = std::mem::replace(target, rows.clone());
            *target = dynamic_update_slice(so_far, &rows, &starts)?;
        }
    }
    Ok(Outcome::Each(outputs.into_iter().map(|o| vec![Value::Array(o)]).collect()))
}

/// The first of the group gives its value to all; with a dynamic root the last operand says which one does.
fn broadcast_from_root(brought: Brought, has_dynamic_root: bool) -> Result<Outcome, ExecutionError> {
    let mut root = 0;
    if has_dynamic_root {
        let index = brought.first().and_then(|a| a.last()).ok_or_else(|| ExecutionError::bug("no root is given"))?;
        root = usize::try_from(index.to_i64()?).unwrap_or(usize::MAX);
    }
    let mut arrays = brought.into_iter().nth(root).ok_or_else(|| ExecutionError::bug("there is no such root"))?;
    if has_dynamic_root {
        arrays.pop();
    }
    same_for_all(arrays)
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
    meet_group(device, i, plane, operands, |_, brought| {
        let zeros = |a: &Array| Array::zeroed(a.element_type(), a.dims());
        let take = |(k, source): (usize, &Option<usize>)| match source {
            Some(s) => Ok(brought[*s].iter().cloned().map(Value::Array).collect()),
            None => brought[k].iter().map(|a| zeros(a).map(Value::Array)).collect(),
        };
        Ok(Outcome::Each(source_of.iter().enumerate().map(take).collect::<Result<_, ExecutionError>>()?))
    })
}

//! Point-to-point transfers (send, recv), the world outside (infeed, outfeed), and the in-place form of
//! collective-permute.
//!
//! A send puts its value into a mailbox and goes on; the receiver waits at recv-done, so that the usual order recv, send,
//! recv-done cannot block. A recv that nothing finishes, as in a group of transfers that an async-done finishes as a whole,
//! waits itself. Which devices are joined is said by `_xla_send_recv_source_target_pairs`; without it a device
//! sends to itself.

use crate::interpreter::{Device, OperandValues};
use crate::ops::collective::{exchange, missed};
use crate::ops::data_movement::{dynamic_slice, dynamic_update_slice};
use hloom_analysis::devices::{plane_of, transfer_pairs};
use hloom_ir::diagnostic::codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::{CollectivePermute, Op};
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};
use smallvec::smallvec;

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let shape = &module[i].shape;
    let mut operands = operands.into_iter();
    let mut next = || operands.next().ok_or_else(|| ExecutionError::bug("an operand is missing"));
    match &module[i].op {
        Op::Send(transfer) => {
            let data = next()?;
            if transfer.is_host_transfer {
                return Err(outside(module, i, "sends to the host"));
            }
            let route = Route::new(device, i);
            for target in route.targets(device) {
                let sent = device.shared.communicator.send(route.channel, device.ordinal, target, data.to_message());
                sent.map_err(|miss| missed(device, i, &[device.ordinal, target], miss))?;
            }
            let state = match Value::zeroed(shape)? {
                Value::Tuple(mut state) if !state.is_empty() => {
                    state[0] = data;
                    Value::Tuple(state)
                }
                other => other,
            };
            Ok(state)
        }
        Op::SendDone(_) => Ok(Value::Token),
        Op::Recv(transfer) => {
            if transfer.is_host_transfer {
                return Err(outside(module, i, "receives from the host"));
            }
            let state = Value::zeroed(shape)?;
            match state {
                Value::Tuple(mut state) if !is_finished(module, i) && !state.is_empty() => {
                    if let Some(data) = received(device, i)? {
                        state[0] = data;
                    }
                    Ok(Value::Tuple(state))
                }
                state => Ok(state),
            }
        }
        Op::RecvDone(_) => match received(device, i)? {
            Some(data) => Ok(Value::Tuple(vec![data, Value::Token])),
            None => Value::zeroed(shape),
        },
        Op::Infeed { .. } => match device.shared.infeed(device.ordinal) {
            Some(value) => {
                let fed = Value::Tuple(vec![value, Value::Token]);
                match fed.fits(shape) {
                    true => Ok(fed),
                    false => Err(outside(module, i, &format!("is fed {}", fed.description()))),
                }
            }
            None => Err(outside(module, i, "takes data from the host, and none is left")),
        },
        Op::Outfeed { .. } => {
            device.shared.outfeed(device.ordinal, next()?);
            Ok(Value::Token)
        }
        other => Err(ExecutionError::bug(format!("{} is not a transfer", other.opcode()))),
    }
}

/// What was sent to this device; `None` if nobody sends to it.
fn received(device: &Device<'_>, i: InstructionId) -> Result<Option<Value>, ExecutionError> {
    let route = Route::new(device, i);
    let Some(source) = route.source(device) else { return Ok(None) };
    let what = format!("{} on channel {}", device.module()[i].opcode(), route.channel);
    let taken = device.shared.communicator.receive(route.channel, source, device.ordinal, &what);
    let message = taken.map_err(|miss| missed(device, i, &[source, device.ordinal], miss))?;
    Value::from_message(&message).map(Some)
}

/// Whether there is a recv-done for a recv: it takes it, or, where loops are between them, has its channel.
fn is_finished(module: &Module, recv: InstructionId) -> bool {
    let channel = module[recv].op.channel_id();
    let is_done = |i: InstructionId| matches!(module[i].op, Op::RecvDone(_)) && module[i].op.channel_id() == channel;
    module[recv].users().iter().any(|&u| is_done(u))
        || module.computations().iter().flat_map(|&c| module[c].instructions()).any(|&i| is_done(i))
}

fn outside(module: &Module, i: InstructionId, what: &str) -> ExecutionError {
    ExecutionError::new(&codes::eval::UNSUPPORTED, format!("{} {what}", module[i].name()))
        .note("hloom runs a program in one process; infeed data can be given in Rust with Options::infeed")
}

/// Which devices a send and its recv join.
struct Route {
    channel: i64,
    /// The devices whose positions the pairs name.
    plane: Vec<usize>,
    pairs: Option<Vec<(i64, i64)>>,
}

impl Route {
    /// The route of a send, recv or one of their dones. A done in a loop may not see its start, but carries the channel;
    /// then the start with that channel is asked.
    fn new(device: &Device<'_>, i: InstructionId) -> Route {
        let module = device.module();
        let channel = module[i].op.channel_id();
        let own = transfer_pairs(module, i);
        let of_start = || {
            let all = module.computations().iter().flat_map(|&c| module[c].instructions());
            let mut starts = all.filter(|&&s| {
                matches!(module[s].op, Op::Send(_) | Op::Recv(_)) && module[s].op.channel_id() == channel
            });
            starts.find_map(|&s| transfer_pairs(module, s))
        };
        let pairs = own.or_else(of_start);
        let grid = device.shared.grid;
        Route { channel: channel.unwrap_or(0), plane: plane_of(grid.partitions > 1, grid, device.ordinal), pairs }
    }

    fn position(&self, device: &Device<'_>) -> Option<usize> {
        self.plane.iter().position(|&d| d == device.ordinal)
    }

    fn targets(&self, device: &Device<'_>) -> Vec<usize> {
        let Some(pairs) = &self.pairs else { return vec![device.ordinal] };
        let Some(me) = self.position(device) else { return Vec::new() };
        let at = |target: i64| usize::try_from(target).ok().and_then(|n| self.plane.get(n)).copied();
        pairs.iter().filter(|p| usize::try_from(p.0) == Ok(me)).filter_map(|p| at(p.1)).collect()
    }

    fn source(&self, device: &Device<'_>) -> Option<usize> {
        let Some(pairs) = &self.pairs else { return Some(device.ordinal) };
        let me = self.position(device)?;
        let (source, _) = pairs.iter().find(|p| usize::try_from(p.1) == Ok(me))?;
        usize::try_from(*source).ok().and_then(|n| self.plane.get(n)).copied()
    }
}
/// The form of collective-permute that copies slices: operands are the input, the output, and for each slice a start in
/// either. Inputs may be a tuple; then so are the others, an element for each, and the sizes are those of all slices.
pub fn permute_slices(
    device: &mut Device<'_>,
    i: InstructionId,
    plane: &[usize],
    operands: OperandValues,
    permute: &CollectivePermute,
    source_of: &[Option<usize>],
) -> Result<Vec<Value>, ExecutionError> {
    let mut operands = operands.into_iter();
    let mut next = || operands.next().ok_or_else(|| ExecutionError::bug("an operand is missing"));
    let (input, output, from, to) = (next()?, next()?, next()?, next()?);
    let moves = match (input, output) {
        (Value::Array(input), Value::Array(output)) => vec![(input, output, from, to)],
        (Value::Tuple(inputs), Value::Tuple(outputs)) => {
            let starts = from.into_tuple()?.into_iter().zip(to.into_tuple()?);
            let arrays = inputs.into_iter().zip(outputs).zip(starts);
            let each = arrays.map(|((a, b), (from, to))| Ok((a.into_array()?, b.into_array()?, from, to)));
            each.collect::<Result<Vec<_>, ExecutionError>>()?
        }
        _ => return Err(slices_do_not_fit()),
    };
    let mut sizes = permute.slice_sizes.iter();
    let mut results = Vec::new();
    for (input, mut output, from, to) in moves {
        let (from, to) = (slice_starts(&from, input.rank())?, slice_starts(&to, output.rank())?);
        if from.len() != to.len() {
            return Err(slices_do_not_fit());
        }
        for (from, to) in from.iter().zip(&to) {
            let sizes = sizes.next().ok_or_else(slices_do_not_fit)?;
            if !lies_inside(&input, from, sizes) || !lies_inside(&output, to, sizes) {
                return Err(slices_do_not_fit());
            }
            let slice = dynamic_slice(&input, from, sizes)?;
            let taken = exchange(device, i, plane, smallvec![Value::Array(slice)], source_of)?;
            let is_target = plane.iter().position(|&d| d == device.ordinal).is_some_and(|k| source_of[k].is_some());
            if let (true, Some(Value::Array(slice))) = (is_target, taken.first()) {
                output = dynamic_update_slice(output, slice, to)?;
            }
        }
        results.push(Value::Array(output));
    }
    Ok(results)
}

fn slices_do_not_fit() -> ExecutionError {
    ExecutionError::new(&codes::eval::COLLECTIVE, "the slices of a collective-permute do not lie inside its arrays")
}

fn lies_inside(array: &Array, starts: &[i64], sizes: &[i64]) -> bool {
    let mut all = starts.iter().zip(sizes).zip(array.dims());
    starts.len() == array.rank()
        && sizes.len() == array.rank()
        && all.all(|((&start, &size), &n)| start >= 0 && start.checked_add(size).is_some_and(|end| end <= n))
}

/// One start per slice: a tuple of scalars is one, a tuple of such tuples is several.
fn slice_starts(value: &Value, rank: usize) -> Result<Vec<DimVec>, ExecutionError> {
    let scalars = value.leaves().into_iter().map(|v| v.as_array().and_then(Array::to_i64));
    let scalars = scalars.collect::<Result<Vec<_>, _>>()?;
    Ok(scalars.chunks(rank.max(1)).map(DimVec::from).collect())
}

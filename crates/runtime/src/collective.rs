//! Collectives in the memory of the devices: sums and gathers without a copy of anything.
//!
//! Each device brings the addresses of its arrays to the meeting; the last to come reads what all have and writes what all
//! get, on as many threads as there are, while the others wait. A device that gives up waiting says so before it goes
//! (`Controls::gone`): nobody touches the memory of one that is gone.

use crate::library::slice_mut;
use crate::program::{Evaluate, Step};
use crate::run::Walk;
use half::{bf16, f16};
use hloom_analysis::devices::group_of;
use hloom_collectives::{Meeting, Spot};
use hloom_eval::fold::Fold;
use hloom_eval::ops::collective::missed;
use hloom_eval::{Array, Fault, Value};
use hloom_ir::diagnostic::codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op};
use std::ops::AddAssign;
use std::sync::PoisonError;

/// A collective. Its arrays are the operands, then as many results.
#[derive(Debug)]
pub(crate) struct Collective {
    arrays: Vec<Exchange>,
    /// For groups that it cannot serve.
    otherwise: Evaluate,
}

/// What is done with one operand of every device.
#[derive(Clone, Copy, Debug)]
enum Exchange {
    /// All are added up, in the order of the group.
    Sum { element_type: ElementType, bytes: usize },
    /// Blocks of so many bytes, one of each device in turn, so often; for so many devices.
    Gather { blocks: usize, bytes: usize, devices: usize },
}

impl Collective {
    /// The collective that an instruction is, if it is one of these.
    pub(crate) fn new(module: &Module, id: InstructionId, otherwise: Evaluate) -> Option<Collective> {
        let instruction = &module[id];
        let results = instruction.shape.leaves();
        let operands = instruction.operands();
        let has_places = otherwise.stored.len() == operands.len() && otherwise.stored.iter().all(|&s| s);
        if results.len() != operands.len() || !has_places {
            return None;
        }
        let mut arrays = Vec::new();
        for (&operand, (_, result)) in operands.iter().zip(results) {
            let (from, to) = (module[operand].shape.as_array()?, result.as_array()?);
            let bytes = usize::try_from(from.byte_size()?).ok()?;
            arrays.push(match &instruction.op {
                Op::AllReduce(reduce) => {
                    use ElementType::{Bf16, F16, F32, F64};
                    let adds = Fold::known_operation(module, reduce.to_apply) == Some(BinaryOp::Add);
                    let element_type = from.element_type;
                    if !adds || !matches!(element_type, F32 | F64 | Bf16 | F16) || to.dims() != from.dims() {
                        return None;
                    }
                    Exchange::Sum { element_type, bytes }
                }
                Op::AllGather(gather) => {
                    let dimension = usize::try_from(gather.dimension).ok()?;
                    let (size, all) = (*from.dims().get(dimension)?, *to.dims().get(dimension)?);
                    if size <= 0 || all % size != 0 || bytes == 0 {
                        return None;
                    }
                    let blocks = usize::try_from(from.dims()[..dimension].iter().product::<i64>()).ok()?;
                    Exchange::Gather { blocks, bytes: bytes / blocks, devices: usize::try_from(all / size).ok()? }
                }
                _ => return None,
            });
        }
        Some(Collective { arrays, otherwise })
    }

    /// Whether it can be done in a group of so many.
    fn fits(&self, devices: usize) -> bool {
        self.arrays.iter().all(|e| !matches!(e, Exchange::Gather { devices: needed, .. } if *needed != devices))
    }
}

/// Bytes that a thread works on at a time.
const CHUNK: usize = 1 << 16;
/// Elements that are summed up before they are written: they stay in the nearest cache.
const AT_ONCE: usize = 1024;

/// Meets the other devices for a collective.
pub(crate) fn run(walk: &mut Walk<'_>, step: &Step, collective: &Collective) -> Result<(), Fault> {
    let shared = walk.device.as_ref().ok_or_else(|| Fault::bug("the evaluator is not there"))?.shared;
    let i = step.instruction;
    let instruction = &shared.module[i];
    let group = group_of(&instruction.op, shared.grid, walk.ordinal).filter(|g| collective.fits(g.len()));
    let Some(group) = group else { return walk.evaluate(step, &collective.otherwise) };
    let spot = match instruction.op.channel_id() {
        Some(channel) => Spot::Channel(channel),
        None => Spot::Instruction(i.index()),
    };
    let what = format!("{} of {}", instruction.opcode(), instruction.shape.without_layout());
    let meeting = Meeting { spot, participants: &group, what: &what };
    let arrays = &walk.addresses[step.arrays.start as usize..step.arrays.end as usize];
    let addresses: Vec<u64> = arrays.iter().map(|&a| a as u64).collect();
    let brings = Value::Array(
        Array::new(&[addresses.len() as i64], &addresses)
            .ok_or_else(|| Fault::bug("a list of addresses is an array"))?,
    );
    let (ordinal, gone) = (walk.ordinal, walk.controls.gone);
    let (pool, threads) = (walk.client.pool(), walk.controls.threads);
    let finish = |brought: Vec<Value>| {
        let gone = gone.read().unwrap_or_else(PoisonError::into_inner);
        if group.iter().any(|d| gone.contains(d)) {
            return Err(Fault::new(&codes::eval::CANCELLED, "the run was cancelled"));
        }
        let mut devices: Vec<Vec<u64>> = Vec::new();
        for value in &brought {
            devices.push(value.as_array()?.elements::<u64>().to_vec());
        }
        let count = collective.arrays.len();
        for (n, exchange) in collective.arrays.iter().enumerate() {
            let from: Vec<usize> = devices.iter().filter_map(|d| d.get(n).map(|&a| a as usize)).collect();
            let to: Vec<usize> = devices.iter().filter_map(|d| d.get(count + n).map(|&a| a as usize)).collect();
            if from.len() != devices.len() || to.len() != devices.len() {
                return Err(Fault::bug("a device brings too few arrays"));
            }
            let (units, chunk) = exchange.units(devices.len());
            // SAFETY: the addresses are those of the instruction's arrays on each device, all of which wait for this to
            // end, and parts are apart from each other.
            pool.each(units, chunk, threads, &|begin, end| unsafe { exchange.part(&from, &to, begin, end) });
        }
        Ok(vec![Value::Token; brought.len()])
    };
    match walk.permit.without(|| shared.world.meet(ordinal, &meeting, brings, finish)) {
        Ok(done) => done.map(drop),
        Err(miss) => {
            gone.write().unwrap_or_else(PoisonError::into_inner).push(ordinal);
            let device = walk.device.as_ref().ok_or_else(|| Fault::bug("the evaluator is not there"))?;
            Err(missed(device, i, &group, miss))
        }
    }
}

impl Exchange {
    /// The units of work, and how many a thread takes at a time.
    fn units(&self, devices: usize) -> (usize, usize) {
        match *self {
            Exchange::Sum { bytes, element_type } => (bytes / element_type.bytes(), CHUNK / element_type.bytes()),
            // A unit is one block of one device, brought to all.
            Exchange::Gather { blocks, bytes, .. } => (blocks * devices, (CHUNK / bytes.max(1)).max(1)),
        }
    }

    /// # Safety
    /// The arrays must be there, each as long as the exchange says, and nobody else may use the part meanwhile.
    unsafe fn part(&self, from: &[usize], to: &[usize], begin: usize, end: usize) {
        // SAFETY (all): the caller's promise.
        unsafe {
            match *self {
                Exchange::Sum { element_type: ElementType::F64, .. } => {
                    sum::<f64, f64>(from, to, begin..end, |x| x, |x| x)
                }
                Exchange::Sum { element_type: ElementType::Bf16, .. } => {
                    sum::<bf16, f32>(from, to, begin..end, bf16::to_f32, bf16::from_f32)
                }
                Exchange::Sum { element_type: ElementType::F16, .. } => {
                    sum::<f16, f32>(from, to, begin..end, f16::to_f32, f16::from_f32)
                }
                Exchange::Sum { .. } => sum::<f32, f32>(from, to, begin..end, |x| x, |x| x),
                Exchange::Gather { bytes, .. } => {
                    for unit in begin..end {
                        let (block, device) = (unit / from.len(), unit % from.len());
                        let source = (from[device] as *const u8).add(block * bytes);
                        for &address in to {
                            std::ptr::copy_nonoverlapping(source, (address as *mut u8).add(unit * bytes), bytes);
                        }
                    }
                }
            }
        }
    }
}

/// Adds up a range of elements of all devices, and gives all of them the sums.
///
/// # Safety
/// As for [`Exchange::part`]; results may take the place of operands.
unsafe fn sum<T: Copy, C: Copy + Default + AddAssign>(
    from: &[usize],
    to: &[usize],
    range: std::ops::Range<usize>,
    load: impl Fn(T) -> C,
    store: impl Fn(C) -> T,
) {
    let mut sums = [C::default(); AT_ONCE];
    for first in range.clone().step_by(AT_ONCE) {
        let count = AT_ONCE.min(range.end - first);
        // SAFETY (all): the caller's promise.
        let part =
            |address: usize| unsafe { slice_mut::<T>((address as *mut T).add(first).cast(), count * size_of::<T>()) };
        for (n, &address) in from.iter().enumerate() {
            let elements = part(address);
            match n {
                0 => sums.iter_mut().zip(elements).for_each(|(s, x)| *s = load(*x)),
                _ => sums.iter_mut().zip(elements).for_each(|(s, x)| *s += load(*x)),
            }
        }
        for &address in to {
            part(address).iter_mut().zip(&sums).for_each(|(x, s)| *x = store(*s));
        }
    }
}

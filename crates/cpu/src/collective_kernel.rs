//! What a collective does with the arrays of all devices, given their addresses.

use crate::library_call::slice_mut;
use half::{bf16, f16};
use hloom_eval::fold::Fold;
use hloom_eval::ops::elementwise::{binary_function, convert_function};
use hloom_eval::scalar::Scalar;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op};
use hloom_ir::shape::ArrayShape;
use hloom_runtime::pool::Pool;
use std::ops::Range;

/// A collective's work: for each operand, what becomes of it.
#[derive(Debug)]
pub(crate) struct CollectiveKernel {
    kind: Kind,
    arrays: Vec<Geometry>,
}

/// What is done with the operands of the same number of all devices.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    /// All are reduced by an operation, in the order of the group; everyone gets the results.
    Reduce(BinaryOp),
    /// All are reduced; everyone gets its own block of every row.
    ReduceBlocks(BinaryOp),
    /// Everyone gets the blocks of all, side by side.
    Gather,
    /// Block `t` of every row goes to device `t`, to the place of the sender.
    ExchangeBlocks,
    /// Operand `t` goes to device `t`, to the result of the sender.
    ExchangeArrays,
    /// Everyone gets what the first has.
    Broadcast,
    /// Each pair's second gets what its first has; others get zeros.
    Permute(Vec<(usize, usize)>),
}

/// An operand: rows of blocks.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    element_type: ElementType,
    bytes: usize,
    /// The bytes of a block: what lies side by side and goes to or comes from one device.
    block: usize,
    devices: Devices,
}

/// How many devices an operand can be for.
#[derive(Clone, Copy, Debug)]
enum Devices {
    Any,
    Exactly(usize),
    /// So many elements are cut into as many blocks as there are devices.
    Cutting(usize),
}

/// Bytes that a thread works on at a time.
const CHUNK: usize = 1 << 16;
/// Elements that are summed up before they are written: they stay in the nearest cache.
const AT_ONCE: usize = 1024;

impl CollectiveKernel {
    /// The work of a collective, if it is one of these.
    pub(crate) fn new(module: &Module, id: InstructionId) -> Option<CollectiveKernel> {
        let instruction = &module[id];
        let (results, operands) = (instruction.shape.leaves(), instruction.operands());
        if results.len() != operands.len() {
            return None;
        }
        let (kind, dimension) = match &instruction.op {
            Op::AllReduce(reduce) => (Kind::Reduce(Fold::known_operation(module, reduce.to_apply)?), None),
            Op::ReduceScatter(reduce) => {
                let op = Fold::known_operation(module, reduce.to_apply)?;
                (Kind::ReduceBlocks(op), Some(reduce.dimension))
            }
            Op::AllGather(gather) => (Kind::Gather, Some(gather.dimension)),
            Op::AllToAll { split_dimension: Some(dimension), .. } => (Kind::ExchangeBlocks, Some(*dimension)),
            Op::AllToAll { .. } => (Kind::ExchangeArrays, None),
            Op::CollectiveBroadcast { has_dynamic_root: false, .. } => (Kind::Broadcast, None),
            Op::CollectivePermute(permute) if permute.slice_sizes.is_empty() => {
                let pair = |&(s, t): &(i64, i64)| Some((usize::try_from(s).ok()?, usize::try_from(t).ok()?));
                (Kind::Permute(permute.source_target_pairs.iter().map(pair).collect::<Option<_>>()?), None)
            }
            _ => return None,
        };
        let mut arrays = Vec::new();
        for (&operand, (_, result)) in operands.iter().zip(&results) {
            let (from, to) = (module[operand].shape.as_array()?, result.as_array()?);
            arrays.push(geometry(&kind, from, to, dimension, operands.len())?);
        }
        Some(CollectiveKernel { kind, arrays })
    }

    /// Whether all devices get the same.
    pub(crate) fn gives_all_the_same(&self) -> bool {
        matches!(self.kind, Kind::Reduce(_) | Kind::Gather)
    }

    /// Whether it can be done in a group of so many.
    pub(crate) fn fits(&self, devices: usize) -> bool {
        let known = match &self.kind {
            Kind::Permute(pairs) => pairs.iter().all(|&(s, t)| s < devices && t < devices),
            _ => true,
        };
        let fits = |a: &Geometry| match a.devices {
            Devices::Any => true,
            Devices::Exactly(needed) => needed == devices,
            Devices::Cutting(size) => devices > 0 && size % devices == 0,
        };
        known && self.arrays.iter().all(fits)
    }

    /// Does it on at most so many threads.
    ///
    /// # Safety
    /// For each device the addresses of its operands, then of as many results, each as long as `new` has found; nobody
    /// else may use them meanwhile. Only the results of sums may take the place of their operands.
    pub(crate) unsafe fn run(&self, devices: &[Vec<usize>], pool: &Pool, threads: usize) {
        let count = self.arrays.len();
        for (n, geometry) in self.arrays.iter().enumerate() {
            let geometry = &match geometry.devices {
                Devices::Cutting(_) => Geometry { block: geometry.block / devices.len().max(1), ..*geometry },
                _ => *geometry,
            };
            let from: Vec<usize> = devices.iter().map(|d| d[n]).collect();
            let mut to: Vec<usize> = match self.kind {
                Kind::ExchangeArrays => devices[n][count..].to_vec(),
                _ => devices.iter().map(|d| d[count + n]).collect(),
            };
            if self.gives_all_the_same() {
                // What they have in common is written once.
                to.dedup();
            }
            let (units, chunk) = self.units(geometry, devices.len());
            // SAFETY: the caller's promise; parts are apart from each other.
            pool.each(units, chunk, threads, &|begin, end| unsafe { self.part(geometry, &from, &to, begin..end) });
        }
    }

    /// The units of work with an operand, and how many a thread takes at a time: elements of sums, otherwise pieces of
    /// blocks.
    fn units(&self, geometry: &Geometry, devices: usize) -> (usize, usize) {
        let bytes = geometry.element_type.bytes();
        let moves = match self.kind {
            Kind::Reduce(_) | Kind::ReduceBlocks(_) => return (geometry.bytes / bytes, CHUNK / bytes),
            Kind::Gather | Kind::ExchangeBlocks => geometry.bytes / geometry.block.max(1) * devices,
            Kind::ExchangeArrays | Kind::Broadcast | Kind::Permute(_) => devices,
        };
        (moves * pieces(geometry), (CHUNK / geometry.block.max(1)).max(1))
    }

    /// # Safety
    /// As for [`CollectiveKernel::run`].
    unsafe fn part(&self, geometry: &Geometry, from: &[usize], to: &[usize], range: Range<usize>) {
        if let Kind::Reduce(op) | Kind::ReduceBlocks(op) = self.kind {
            // SAFETY: the caller's promise.
            return unsafe { self.reductions(op, geometry, from, to, range) };
        }
        let (pieces, block, devices) = (pieces(geometry), geometry.block, from.len());
        for unit in range {
            let (unit, first) = (unit / pieces, unit % pieces * CHUNK);
            let bytes = CHUNK.min(block - first);
            // SAFETY (all): the caller's promise; offsets are within the arrays.
            let copy = |source: usize, target: usize| unsafe {
                let (source, target) = ((source + first) as *const u8, (target + first) as *mut u8);
                std::ptr::copy_nonoverlapping(source, target, bytes);
            };
            match &self.kind {
                Kind::Gather => {
                    let (row, device) = (unit / devices, unit % devices);
                    to.iter().for_each(|&t| copy(from[device] + row * block, t + unit * block));
                }
                Kind::ExchangeBlocks => {
                    let (block_of, sender) = (unit / devices, unit % devices);
                    let (row, receiver) = (block_of / devices, block_of % devices);
                    copy(from[sender] + block_of * block, to[receiver] + (row * devices + sender) * block);
                }
                Kind::ExchangeArrays => copy(from[unit], to[unit]),
                Kind::Broadcast => copy(from[0], to[unit]),
                Kind::Permute(pairs) => match pairs.iter().rev().find(|&&(_, t)| t == unit) {
                    Some(&(source, _)) => copy(from[source], to[unit]),
                    // SAFETY: the caller's promise.
                    None => unsafe { std::ptr::write_bytes((to[unit] + first) as *mut u8, 0, bytes) },
                },
                Kind::Reduce(_) | Kind::ReduceBlocks(_) => {}
            }
        }
    }

    /// # Safety
    /// As for [`CollectiveKernel::run`].
    unsafe fn reductions(&self, op: BinaryOp, geometry: &Geometry, from: &[usize], to: &[usize], range: Range<usize>) {
        let t = geometry.element_type;
        if matches!(self.kind, Kind::Reduce(_)) {
            // SAFETY: the caller's promise.
            return unsafe { reduce(op, t, from, to, 0, range) };
        }
        let (block, devices) = (geometry.block / t.bytes(), from.len());
        let mut first = range.start;
        while first < range.end {
            // The elements of one block.
            let (block_of, end) = (first / block, range.end.min((first / block + 1) * block));
            let (row, receiver) = (block_of / devices, block_of % devices);
            let moved = (block_of - row) * block;
            // SAFETY: the caller's promise.
            unsafe { reduce(op, t, from, &to[receiver..=receiver], moved, first..end) };
            first = end;
        }
    }
}

/// The pieces that a block is moved in.
fn pieces(geometry: &Geometry) -> usize {
    geometry.block.div_ceil(CHUNK).max(1)
}

fn geometry(
    kind: &Kind,
    from: &ArrayShape,
    to: &ArrayShape,
    dimension: Option<i64>,
    operands: usize,
) -> Option<Geometry> {
    let bytes = usize::try_from(from.byte_size()?).ok().filter(|&n| n > 0)?;
    let t = from.element_type;
    if let Kind::Reduce(op) | Kind::ReduceBlocks(op) = kind {
        binary_function(*op, carried(t))?;
    }
    if to.element_type != t {
        return None;
    }
    let whole = Geometry { element_type: t, bytes, block: bytes, devices: Devices::Any };
    let Some(dimension) = dimension else {
        let devices = if *kind == Kind::ExchangeArrays { Devices::Exactly(operands) } else { Devices::Any };
        return (to.dims() == from.dims()).then_some(Geometry { devices, ..whole });
    };
    let dimension = usize::try_from(dimension).ok()?;
    let (size, other) = (*from.dims().get(dimension)?, *to.dims().get(dimension)?);
    let rows = usize::try_from(from.dims()[..dimension].iter().product::<i64>()).ok()?;
    let same = |n: usize| n == dimension || from.dims().get(n) == to.dims().get(n);
    if from.rank() != to.rank() || !(0..from.rank()).all(same) {
        return None;
    }
    let times = |many: i64, few: i64| (few > 0 && many % few == 0).then(|| usize::try_from(many / few).ok()).flatten();
    Some(match kind {
        Kind::Gather => Geometry { block: bytes / rows, devices: Devices::Exactly(times(other, size)?), ..whole },
        Kind::ReduceBlocks(_) => {
            let devices = times(size, other)?;
            Geometry { block: bytes / rows / devices, devices: Devices::Exactly(devices), ..whole }
        }
        // A row, to be cut.
        _ => Geometry {
            block: bytes / rows,
            devices: Devices::Cutting(usize::try_from(size).ok().filter(|_| size == other)?),
            ..whole
        },
    })
}

/// The type in which elements are reduced: f16 and bf16 are rounded once, at the end.
fn carried(t: ElementType) -> ElementType {
    if matches!(t, ElementType::F16 | ElementType::Bf16) { ElementType::F32 } else { t }
}

/// Reduces a range of elements of all devices into the results, whose elements lie `moved` before those of the operands.
///
/// # Safety
/// As for [`CollectiveKernel::run`].
unsafe fn reduce(op: BinaryOp, t: ElementType, from: &[usize], to: &[usize], moved: usize, range: Range<usize>) {
    use ElementType::{Bf16, F16, F32, F64, S32, S64, U32, U64};
    // SAFETY (all): the caller's promise.
    unsafe {
        match (op, t) {
            (BinaryOp::Add, F64) => sum(from, to, moved, range, |x: f64| x, |a, b| a + b, |x| x),
            (BinaryOp::Add, Bf16) => sum(from, to, moved, range, bf16::to_f32, |a, b| a + b, bf16::from_f32),
            (BinaryOp::Add, F16) => sum(from, to, moved, range, f16::to_f32, |a, b| a + b, f16::from_f32),
            // Sums that wrap round are the same with and without a sign.
            (BinaryOp::Add, S32 | U32) => sum(from, to, moved, range, |x: u32| x, u32::wrapping_add, |x| x),
            (BinaryOp::Add, S64 | U64) => sum(from, to, moved, range, |x: u64| x, u64::wrapping_add, |x| x),
            (BinaryOp::Add, F32) => sum(from, to, moved, range, |x: f32| x, |a, b| a + b, |x| x),
            _ => reduce_each(op, t, from, to, moved, range),
        }
    }
}

/// The rarer operations and types, one element after another.
///
/// # Safety
/// As for [`CollectiveKernel::run`]; results may take the place of operands.
unsafe fn reduce_each(op: BinaryOp, t: ElementType, from: &[usize], to: &[usize], moved: usize, range: Range<usize>) {
    let (wide, bytes) = (carried(t), t.bytes());
    // `geometry` has found that they are there.
    let Some(combine) = binary_function(op, wide) else { return };
    let (Some(widen), Some(narrow)) = (convert_function(t, wide), convert_function(wide, t)) else { return };
    for n in range {
        // SAFETY (all): the caller's promise.
        let element = |address: usize, n: usize| unsafe { slice_mut::<u8>((address + n * bytes) as *mut u8, bytes) };
        let load = |&address: &usize| {
            let mut wide = [0; 16];
            wide[..bytes].copy_from_slice(element(address, n));
            widen(Scalar(u128::from_le_bytes(wide)))
        };
        let Some(reduced) = from.iter().map(load).reduce(combine) else { return };
        to.iter().for_each(|&address| narrow(reduced).store(element(address, n - moved)));
    }
}

/// # Safety
/// As for [`CollectiveKernel::run`]; results may take the place of operands.
unsafe fn sum<T: Copy, C: Copy + Default>(
    from: &[usize],
    to: &[usize],
    moved: usize,
    range: Range<usize>,
    load: impl Fn(T) -> C,
    add: impl Fn(C, C) -> C,
    store: impl Fn(C) -> T,
) {
    let mut sums = [C::default(); AT_ONCE];
    for first in range.clone().step_by(AT_ONCE) {
        let count = AT_ONCE.min(range.end - first);
        // SAFETY (all): the caller's promise.
        let part = |address: usize, at: usize| unsafe {
            slice_mut::<T>((address as *mut T).add(at).cast(), count * size_of::<T>())
        };
        for (n, &address) in from.iter().enumerate() {
            let elements = part(address, first);
            match n {
                0 => sums.iter_mut().zip(elements).for_each(|(s, x)| *s = load(*x)),
                _ => sums.iter_mut().zip(elements).for_each(|(s, x)| *s = add(*s, load(*x))),
            }
        }
        for &address in to {
            part(address, first - moved).iter_mut().zip(&sums).for_each(|(x, s)| *x = store(*s));
        }
    }
}

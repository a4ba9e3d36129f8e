//! Collectives among virtual devices of one GPU: kernels that reduce the arrays of a group, and copies between devices.
//!
//! All devices' memory is that of one GPU, and their thunks follow each other on one stream, so that when a collective is
//! reached every device has reached it. What it does is worked out when the program is compiled: kernels that reduce the
//! operands of all devices and write every device's results ([`Reducer`]), or a list of [`Move`]s.

use crate::kernels::{ReducedArray, Reduction};
use hloom_analysis::devices::{DeviceGrid, group_of, plane_of};
use hloom_eval::fold::Fold;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op};
use hloom_ir::shape::ArrayShape;
use std::ops::Range;

/// An exchange between the devices of each group. The arrays of its thunk are the operands, as many results, and the scratch
/// memory of its kernels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Collective {
    pub(crate) kind: Kind,
    pub(crate) arrays: Vec<Geometry>,
    /// The devices of each group, in its order.
    pub(crate) groups: Vec<Vec<usize>>,
    /// What reduces the operands, some by each.
    pub(crate) reducers: Vec<Reducer>,
}

/// Kernels that reduce some of the operands of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reducer {
    pub(crate) operands: Range<usize>,
    /// The number of the kernels.
    pub(crate) sequence: usize,
}

/// The most arrays of a kernel: their addresses are parameters, of which there may be 4096 bytes.
const MAX_ARRAYS: usize = 256;

/// What is done with the operands of the same number of all devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
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

/// An operand: rows of a run of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    pub(crate) element_type: ElementType,
    pub(crate) bytes: usize,
    pub(crate) rows: usize,
}

/// A rectangle of bytes from one device's array to another's. Devices are numbered within their group, arrays as in the
/// thunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Move {
    pub(crate) from: Place,
    pub(crate) to: Place,
    pub(crate) rows: usize,
    /// Bytes of a row.
    pub(crate) width: usize,
}

/// The beginning of a rectangle, and the bytes from one of its rows to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) device: usize,
    pub(crate) array: usize,
    pub(crate) offset: usize,
    pub(crate) pitch: usize,
}

impl Collective {
    /// The collective that an instruction is on the devices of `grid`, if it is one of these.
    pub(crate) fn new(module: &Module, id: InstructionId, grid: DeviceGrid) -> Option<Collective> {
        let instruction = &module[id];
        let (results, operands) = (instruction.shape.leaves(), instruction.operands());
        if results.len() != operands.len() {
            return None;
        }
        let (kind, dimension) = match &instruction.op {
            Op::AllReduce(reduce) => (Kind::Reduce(Fold::known_operation(module, reduce.to_apply)?), None),
            Op::ReduceScatter(reduce) => {
                (Kind::ReduceBlocks(Fold::known_operation(module, reduce.to_apply)?), Some(reduce.dimension))
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
        let groups = groups(&instruction.op, grid)?;
        let size = groups.first()?.len();
        if 2 * size > MAX_ARRAYS && matches!(kind, Kind::Reduce(_) | Kind::ReduceBlocks(_)) {
            return None;
        }
        if groups.iter().any(|g| g.len() != size) {
            return None;
        }
        if let Kind::Permute(pairs) = &kind
            && pairs.iter().any(|&(s, t)| s >= size || t >= size)
        {
            return None;
        }
        let mut arrays = Vec::new();
        for (&operand, (_, result)) in operands.iter().zip(&results) {
            let (from, to) = (module[operand].shape.as_array()?, result.as_array()?);
            arrays.push(geometry(&kind, from, to, dimension, size)?);
        }
        if kind == Kind::ExchangeArrays && arrays.len() != size {
            return None;
        }
        Some(Collective { kind, arrays, groups, reducers: Vec::new() })
    }

    /// The reductions of the operands over a group, several at once, for collectives that reduce.
    pub(crate) fn reductions(&self) -> Vec<(Range<usize>, Reduction)> {
        let (op, in_blocks) = match self.kind {
            Kind::Reduce(op) => (op, false),
            Kind::ReduceBlocks(op) => (op, true),
            _ => return Vec::new(),
        };
        let devices = self.groups.first().map_or(1, Vec::len);
        let at_once = (MAX_ARRAYS / (2 * devices)).max(1);
        let rows = |g: &Geometry| {
            let elements = (g.bytes / g.element_type.bytes().max(1)) as i64;
            let rows = if in_blocks { g.rows.max(1) as i64 } else { 1 };
            ReducedArray { element_type: g.element_type, rows, columns: elements / rows }
        };
        let reduction = |(n, arrays): (usize, &[Geometry])| {
            let first = n * at_once;
            let arrays = arrays.iter().map(rows).collect::<Vec<_>>();
            (first..first + arrays.len(), Reduction { op, arrays, devices, in_blocks })
        };
        self.arrays.chunks(at_once).enumerate().map(reduction).collect()
    }

    /// How many operands there are.
    pub(crate) fn operands(&self) -> usize {
        self.arrays.len()
    }

    /// The bytes of an operand.
    pub(crate) fn operand_bytes(&self, n: usize) -> usize {
        self.arrays.get(n).map_or(0, |g| g.bytes)
    }

    /// The devices, numbered within their group, whose results are zero.
    pub(crate) fn zeroed(&self) -> Vec<usize> {
        let Kind::Permute(pairs) = &self.kind else { return Vec::new() };
        let size = self.groups.first().map_or(0, Vec::len);
        (0..size).filter(|d| !pairs.iter().any(|&(_, t)| t == *d)).collect()
    }

    /// What is copied in a group for operand `n`.
    pub(crate) fn moves(&self, n: usize) -> Vec<Move> {
        let (Some(&Geometry { bytes, rows, .. }), Some(group)) = (self.arrays.get(n), self.groups.first()) else {
            return Vec::new();
        };
        let (count, size) = (self.arrays.len(), group.len());
        let whole = |device: usize, array: usize| Place { device, array, offset: 0, pitch: bytes };
        let all = |from: Place, to: Place| Move { from, to, rows: 1, width: bytes };
        let row = bytes / rows.max(1);
        match &self.kind {
            Kind::Reduce(_) | Kind::ReduceBlocks(_) => Vec::new(),
            Kind::Gather => {
                let block = |s: usize, d: usize| Move {
                    from: Place { device: s, array: n, offset: 0, pitch: row },
                    to: Place { device: d, array: count + n, offset: s * row, pitch: row * size },
                    rows,
                    width: row,
                };
                (0..size).flat_map(|d| (0..size).map(move |s| block(s, d))).collect()
            }
            Kind::ExchangeBlocks => {
                let width = row / size;
                let block = |s: usize, d: usize| Move {
                    from: Place { device: s, array: n, offset: d * width, pitch: row },
                    to: Place { device: d, array: count + n, offset: s * width, pitch: row },
                    rows,
                    width,
                };
                (0..size).flat_map(|d| (0..size).map(move |s| block(s, d))).collect()
            }
            Kind::ExchangeArrays => (0..size).map(|s| all(whole(s, n), whole(n, count + s))).collect(),
            Kind::Broadcast => (0..size).map(|d| all(whole(0, n), whole(d, count + n))).collect(),
            Kind::Permute(pairs) => pairs.iter().map(|&(s, t)| all(whole(s, n), whole(t, count + n))).collect(),
        }
    }
}

impl std::fmt::Display for Collective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.kind {
            Kind::Reduce(_) => "reduce",
            Kind::ReduceBlocks(_) => "reduce and scatter",
            Kind::Gather => "gather",
            Kind::ExchangeBlocks | Kind::ExchangeArrays => "exchange",
            Kind::Broadcast => "broadcast",
            Kind::Permute(_) => "permute",
        };
        let size = self.groups.first().map_or(0, Vec::len);
        write!(f, "{what} among {size} devices in {} groups", self.groups.len())
    }
}

/// The groups of devices that meet.
fn groups(op: &Op, grid: DeviceGrid) -> Option<Vec<Vec<usize>>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut has_group = vec![false; grid.devices()];
    for device in 0..grid.devices() {
        if has_group[device] {
            continue;
        }
        let group = match op {
            Op::CollectivePermute(permute) => plane_of(permute.channel_id.is_some(), grid, device),
            _ => group_of(op, grid, device)?,
        };
        for &d in &group {
            *has_group.get_mut(d)? = true;
        }
        groups.push(group);
    }
    Some(groups)
}

/// How an operand lies in rows, if the sizes are those of a group of so many devices.
fn geometry(
    kind: &Kind,
    from: &ArrayShape,
    to: &ArrayShape,
    dimension: Option<i64>,
    devices: usize,
) -> Option<Geometry> {
    let bytes = usize::try_from(from.byte_size()?).ok().filter(|&n| n > 0)?;
    if to.element_type != from.element_type {
        return None;
    }
    let whole = Geometry { element_type: from.element_type, bytes, rows: 1 };
    let Some(dimension) = dimension else { return (to.dims() == from.dims()).then_some(whole) };
    let dimension = usize::try_from(dimension).ok()?;
    let (size, other) = (*from.dims().get(dimension)?, *to.dims().get(dimension)?);
    let same = |n: usize| n == dimension || from.dims().get(n) == to.dims().get(n);
    if from.rank() != to.rank() || !(0..from.rank()).all(same) {
        return None;
    }
    let devices = i64::try_from(devices).ok()?;
    let fits = match kind {
        Kind::Gather => other == size.checked_mul(devices)?,
        Kind::ReduceBlocks(_) => size == other.checked_mul(devices)?,
        _ => size == other && size % devices == 0,
    };
    let rows = usize::try_from(from.dims()[..dimension].iter().product::<i64>()).ok()?;
    fits.then_some(Geometry { rows, ..whole })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text;

    fn collective(body: &str, devices: usize) -> Option<Collective> {
        let text = format!(
            "HloModule m\n\nadd {{\na = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT s = f32[] add(a, b)\n}}\n\nENTRY e {{\n{body}\n}}\n"
        );
        let module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        let root = module.root(module.entry()?)?;
        Collective::new(&module, root, DeviceGrid { replicas: devices, partitions: 1 })
    }

    /// Carries the moves out on bytes, as the device would.
    fn moved(c: &Collective, operands: &[Vec<u8>], result_bytes: usize) -> Vec<Vec<u8>> {
        let mut results = vec![vec![0u8; result_bytes]; operands.len()];
        for m in c.moves(0) {
            assert_eq!((m.from.array, m.to.array), (0, 1));
            for r in 0..m.rows {
                let (f, t) = (m.from.offset + r * m.from.pitch, m.to.offset + r * m.to.pitch);
                let row = operands[m.from.device][f..f + m.width].to_vec();
                results[m.to.device][t..t + m.width].copy_from_slice(&row);
            }
        }
        results
    }

    #[test]
    fn a_gather_along_the_second_dimension_puts_rows_side_by_side() {
        let c = collective(
            "x = u8[2,2] parameter(0)\nROOT g = u8[2,4] all-gather(x), dimensions={1}, replica_groups={{0,1}}",
            2,
        )
        .unwrap();
        let results = moved(&c, &[vec![1, 2, 3, 4], vec![5, 6, 7, 8]], 8);
        assert_eq!(results, vec![vec![1, 2, 5, 6, 3, 4, 7, 8]; 2]);
    }

    #[test]
    fn an_exchange_gives_each_device_its_block_of_all() {
        let c = collective(
            "x = u8[4] parameter(0)\nROOT g = u8[4] all-to-all(x), dimensions={0}, replica_groups={{0,1}}",
            2,
        )
        .unwrap();
        let results = moved(&c, &[vec![1, 2, 3, 4], vec![5, 6, 7, 8]], 4);
        assert_eq!(results, [vec![1, 2, 5, 6], vec![3, 4, 7, 8]]);
    }

    #[test]
    fn who_is_sent_nothing_gets_zeros() {
        let c = collective(
            "x = u8[2] parameter(0)\nROOT p = u8[2] collective-permute(x), source_target_pairs={{0,1},{1,2}}",
            3,
        )
        .unwrap();
        assert_eq!(c.zeroed(), [0]);
        assert_eq!(moved(&c, &[vec![1, 2], vec![3, 4], vec![5, 6]], 2), [vec![0, 0], vec![1, 2], vec![3, 4]]);
    }

    #[test]
    fn a_sum_is_made_for_all_at_once() {
        let c = collective(
            "x = f32[8] parameter(0)\nROOT s = f32[8] all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=add",
            4,
        )
        .unwrap();
        assert_eq!(c.groups, [vec![0, 1], vec![2, 3]]);
        let (operands, reduction) = c.reductions().remove(0);
        assert_eq!((operands, reduction.op, reduction.devices), (0..1, BinaryOp::Add, 2));
        assert_eq!(reduction.arrays, [ReducedArray { element_type: ElementType::F32, rows: 1, columns: 8 }]);
        assert_eq!(c.moves(0), []);
    }
}

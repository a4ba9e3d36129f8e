//! Programs of several partitions, the simple way: every device computes all of what is global.
//!
//! A parameter that is spread over the devices is gathered, a result that is to be spread is cut, and where the program
//! takes care of its part itself (the body of a manual computation) values are cut on the way in and gathered on the way
//! out. What was gathered is not cut again if the parts are the same, so a program that is all manual stays as it is.
//! It is right for every program, at the price of memory and of work done on all devices.

use hloom_ir::builder::Builder;
use hloom_ir::device_list::ReplicaGroups;
use hloom_ir::diagnostic::{Diagnostic, codes::passes as codes};
use hloom_ir::edit::EditError;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::infer::ShapeError;
use hloom_ir::module::Module;
use hloom_ir::op::{AllGather, AllReduce, BinaryOp, Collective};
use hloom_ir::order::PostOrder;
use hloom_ir::shape::ArrayShape;
use hloom_ir::sharding::{LeafSharding, Sharding, ShardingKind, SubgroupType, Subgroups, TileDevices};
use hloom_ir::{Op, Shape};
use rustc_hash::FxHashMap;

mod axes;
mod spread;

/// How an array is cut: into how many parts along each dimension, and which of them each device has.
#[derive(Clone, Debug)]
pub(crate) struct Tiling {
    parts: Vec<i64>,
    /// For each device, the number of its part along each dimension.
    index: Vec<Vec<i64>>,
    /// Into how many summands: the whole is their sum.
    summands: i64,
    /// For each device, the number of its summand.
    summand: Vec<i64>,
    /// For each device, where it is in what does not matter for this array. Devices that are at the same place there have
    /// all parts between them; inside a manual computation others may have other values.
    rest: Vec<i64>,
}

type Replicate<T> = Result<T, Diagnostic>;

fn error(message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(&codes::CANNOT_PARTITION, message)
}

fn broken(e: EditError) -> Diagnostic {
    error(format!("an edit of the program failed: {e:?}"))
}

fn from_shape(e: ShapeError) -> Diagnostic {
    Diagnostic::error(e.code, e.message)
}

impl Tiling {
    /// Every device has it all.
    fn whole(rank: usize, devices: usize) -> Tiling {
        Tiling {
            parts: vec![1; rank],
            index: vec![vec![0; rank]; devices],
            summands: 1,
            summand: vec![0; devices],
            rest: (0..devices as i64).collect(),
        }
    }

    /// Whether each device has the same of it.
    fn cuts_as(&self, other: &Tiling) -> bool {
        (&self.parts, &self.index, self.summands, &self.summand)
            == (&other.parts, &other.index, other.summands, &other.summand)
    }

    fn is_cut(&self) -> bool {
        self.parts.iter().any(|&n| n != 1)
    }

    fn is_whole(&self) -> bool {
        !self.is_cut() && self.summands == 1
    }

    /// Groups of devices that have all summands of the same part between them.
    fn sums(&self) -> Vec<Vec<i64>> {
        self.groups(|device| (&self.index[device], self.rest[device]), |device| self.summand[device])
    }

    /// Groups of devices that have all parts between them, in the order of the parts.
    fn wholes(&self) -> Vec<Vec<i64>> {
        let number =
            |device: usize| self.index[device].iter().zip(&self.parts).fold(0, |n, (&i, &parts)| n * parts + i);
        self.groups(|device| self.rest[device], number)
    }

    fn groups<K: Ord>(&self, key: impl Fn(usize) -> K, order: impl Fn(usize) -> i64) -> Vec<Vec<i64>> {
        let mut groups: std::collections::BTreeMap<K, Vec<usize>> = std::collections::BTreeMap::new();
        for device in 0..self.index.len() {
            groups.entry(key(device)).or_default().push(device);
        }
        let sorted = |mut group: Vec<usize>| {
            group.sort_by_key(|&device| order(device));
            group.into_iter().map(|device| device as i64).collect()
        };
        groups.into_values().map(sorted).collect()
    }

    /// The sizes of a part.
    fn local(&self, dims: &[i64]) -> Replicate<Vec<i64>> {
        if dims.len() != self.parts.len() {
            return Err(error(format!(
                "a sharding of {} dimensions is on an array of {}",
                self.parts.len(),
                dims.len()
            )));
        }
        let cut = |(&size, &parts): (&i64, &i64)| match parts > 0 && size % parts == 0 {
            true => Ok(size / parts),
            false => Err(error(format!("a dimension of {size} cannot be cut into {parts} equal parts"))),
        };
        dims.iter().zip(&self.parts).map(cut).collect()
    }

    /// How a sharding cuts an array of that rank over `devices`.
    fn of(sharding: &LeafSharding, rank: usize, devices: usize) -> Replicate<Tiling> {
        let whole = Tiling::whole(rank, devices);
        let kind = sharding.kind.without_names().ok_or_else(|| error("a sharding does not fit its mesh"))?;
        let tiles = match &kind {
            ShardingKind::Replicated | ShardingKind::Unknown | ShardingKind::Manual | ShardingKind::Maximal { .. } => {
                return Ok(whole);
            }
            ShardingKind::Tiled(tiles) => tiles,
            ShardingKind::Unreduced => {
                let summand = (0..devices as i64).collect();
                return Ok(Tiling { summands: devices as i64, summand, rest: vec![0; devices], ..whole });
            }
            ShardingKind::Named(_) => return Ok(whole),
        };
        let devices_of = match &tiles.devices {
            TileDevices::Explicit(list) => Some(list.clone()),
            TileDevices::Iota(iota) => iota.expand(1 << 20),
        };
        let devices_of = devices_of.filter(|d| d.len() == devices);
        let devices_of = devices_of.ok_or_else(|| error("a sharding is over another number of devices"))?;
        let data = match &tiles.subgroups {
            Subgroups::None => tiles.dims.len(),
            Subgroups::ReplicateLast => tiles.dims.len().saturating_sub(1),
            Subgroups::Types(types) => tiles.dims.len().saturating_sub(types.len()),
        };
        if data != rank || tiles.dims.iter().any(|&d| d < 1) {
            return Err(error("a sharding does not fit its array"));
        }
        let is_unreduced = |d: usize| match &tiles.subgroups {
            Subgroups::Types(types) => types.get(d - rank) == Some(&SubgroupType::Unreduced),
            _ => false,
        };
        let unreduced: Vec<usize> = (rank..tiles.dims.len()).filter(|&d| is_unreduced(d)).collect();
        let mut index = vec![Vec::new(); devices];
        let (mut summand, mut rest_of) = (vec![0; devices], vec![0; devices]);
        for (position, &device) in devices_of.iter().enumerate() {
            let mut rest = position as i64;
            let mut at = vec![0; tiles.dims.len()];
            for d in (0..at.len()).rev() {
                at[d] = rest % tiles.dims[d];
                rest /= tiles.dims[d];
            }
            let number = unreduced.iter().fold(0, |n, &d| n * tiles.dims[d] + at[d]);
            let others = (rank..at.len()).filter(|d| !unreduced.contains(d));
            let place = others.fold(0, |n, d| n * tiles.dims[d] + at[d]);
            at.truncate(rank);
            let slot = usize::try_from(device).ok().filter(|&d| d < devices);
            let slot = slot.ok_or_else(|| error(format!("a sharding names device {device}, of {devices}")))?;
            (index[slot], summand[slot], rest_of[slot]) = (at, number, place);
        }
        if index.iter().any(|i| i.len() != rank) {
            return Err(error("a sharding leaves a device without a part"));
        }
        let summands = unreduced.iter().map(|&d| tiles.dims[d]).product();
        Ok(Tiling { parts: tiles.dims[..rank].to_vec(), index, summands, summand, rest: rest_of })
    }
}

/// Says of those results that are `open` (one for each, or one for all) how they are best spread over the devices.
pub fn spread_results(module: &mut Module, devices: usize, open: &[bool]) -> Replicate<()> {
    spread::spread_results(module, devices, open)
}

/// Makes of a program of global arrays one that each of `devices` partitions runs on its parts.
pub fn replicate(module: &mut Module, devices: usize) -> Replicate<()> {
    let mut work = Work { devices, gathered: FxHashMap::default(), made: Vec::new() };
    let entry = module.entry();
    let computations: Vec<ComputationId> = module.computations().to_vec();
    for computation in computations {
        work.gathered.clear();
        work.made.clear();
        let is_entry = Some(computation) == entry;
        let mut changed = false;
        // What is said of the result is on the root, which may be one of those that are replaced.
        let result = module.root(computation).and_then(|root| module[root].common.sharding.as_deref().cloned());
        if is_entry {
            changed |= work.parameters(module, computation)?;
        }
        changed |= work.boundaries(module, computation)?;
        if is_entry {
            if let Some(sharding) = result {
                work.results(module, computation, &sharding)?;
                changed = true;
            }
            module.config.entry_layout = None;
        }
        if changed {
            work.sweep(module)?;
            let order = PostOrder::new(module).instructions(computation);
            module.reorder(computation, order).map_err(broken)?;
        }
    }
    Ok(())
}

struct Work {
    devices: usize,
    /// What each whole was gathered from.
    gathered: FxHashMap<InstructionId, (InstructionId, Tiling)>,
    made: Vec<InstructionId>,
}

impl Work {
    fn array(module: &Module, x: InstructionId) -> Replicate<ArrayShape> {
        let shape = module[x].shape.as_array().map(|a| ArrayShape::new(a.element_type, a.dims().iter().copied()));
        shape.ok_or_else(|| error(format!("{} is no array, and cannot be cut", module[x].name())))
    }

    /// The part of the device at hand.
    fn cut(&mut self, module: &mut Module, x: InstructionId, tiling: &Tiling) -> Replicate<InstructionId> {
        if tiling.is_whole() {
            return Ok(x);
        }
        if let Some((local, of)) = self.gathered.get(&x)
            && of.cuts_as(tiling)
        {
            return Ok(*local);
        }
        let shape = Work::array(module, x)?;
        let local = tiling.local(shape.dims())?;
        let parent = module[x].parent();
        let first = module[parent].instructions().len();
        let mut b = Builder::resume(module, parent);
        let mut build = || {
            let id = b.push(Op::PartitionId, &[])?;
            let id = b.convert(id, hloom_ir::ElementType::S32)?;
            let mut x = x;
            if tiling.summands > 1 {
                // The first summand is all of it, the others nothing.
                let table: Vec<bool> = tiling.summand.iter().map(|&n| n == 0).collect();
                let table = b.constant_array([table.len() as i64], &table)?;
                let has = b.dynamic_slice(table, &[id], [1])?;
                let has = b.reshape(has, [])?;
                let has = b.broadcast(has, shape.dims().iter().copied(), [])?;
                let zero = b.literal(hloom_ir::literal::Literal::zero(shape.element_type))?;
                let nothing = b.broadcast(zero, shape.dims().iter().copied(), [])?;
                x = b.select(has, x, nothing)?;
            }
            if !tiling.is_cut() {
                return Ok(x);
            }
            let mut starts = Vec::new();
            for (d, &size) in local.iter().enumerate() {
                let table: Vec<i32> = tiling.index.iter().map(|at| (at[d] * size) as i32).collect();
                let table = b.constant_array([table.len() as i64], &table)?;
                let start = b.dynamic_slice(table, &[id], [1])?;
                starts.push(b.reshape(start, [])?);
            }
            b.dynamic_slice(x, &starts, local.iter().copied())
        };
        let part = build().map_err(from_shape)?;
        self.note(module, parent, first);
        Ok(part)
    }

    /// The whole of which each device has a part.
    fn gather(&mut self, module: &mut Module, x: InstructionId, tiling: &Tiling) -> Replicate<InstructionId> {
        if tiling.is_whole() {
            return Ok(x);
        }
        let local = Work::array(module, x)?.dims().to_vec();
        if local.len() != tiling.parts.len() {
            return Err(error("a sharding does not fit its array"));
        }
        let parent = module[x].parent();
        let first = module[parent].instructions().len();
        if tiling.summands > 1 {
            let sum = self.sum(module, x, tiling.sums())?;
            let places = tiling.rest.iter().zip(&tiling.summand);
            let rest = places.map(|(rest, summand)| rest * tiling.summands + summand).collect();
            let parts = Tiling { summands: 1, summand: vec![0; self.devices], rest, ..tiling.clone() };
            let whole = self.gather(module, sum, &parts)?;
            self.gathered.insert(whole, (x, tiling.clone()));
            return Ok(whole);
        }
        let channel = module[parent].instructions().len() as i64 + 1_000_000;
        let count: i64 = tiling.parts.iter().product();
        let groups = tiling.wholes();
        if groups.iter().any(|group| group.len() as i64 != count) {
            return Err(error("a part of an array is on no device"));
        }
        let mut b = Builder::resume(module, parent);
        let build = || {
            let with_device: Vec<i64> = [1].into_iter().chain(local.iter().copied()).collect();
            let row = b.reshape(x, with_device)?;
            let collective = Collective {
                channel_id: Some(channel),
                replica_groups: ReplicaGroups::Explicit(groups),
                constrain_layout: false,
                use_global_device_ids: true,
                mode: None,
            };
            let all = b.push(Op::AllGather(Box::new(AllGather { collective, dimension: 0 })), &[row])?;
            // From [parts…, local…] to [part, local, part, local…], which lies as the whole does.
            let rank = local.len() as i64;
            let split = b.reshape(all, tiling.parts.iter().chain(&local).copied())?;
            let turned = b.transpose(split, (0..rank).flat_map(|d| [d, rank + d]))?;
            b.reshape(turned, local.iter().zip(&tiling.parts).map(|(n, parts)| n * parts))
        };
        let whole = build().map_err(from_shape)?;
        self.note(module, parent, first);
        self.gathered.insert(whole, (x, tiling.clone()));
        Ok(whole)
    }

    /// The sum over each group of devices.
    fn sum(&mut self, module: &mut Module, x: InstructionId, groups: Vec<Vec<i64>>) -> Replicate<InstructionId> {
        let element_type = Work::array(module, x)?.element_type;
        let parent = module[x].parent();
        let first = module[parent].instructions().len();
        let mut b = Builder::resume(module, parent);
        let build = || {
            let to_apply = b.reducer(BinaryOp::Add, element_type)?;
            let collective = Collective {
                channel_id: Some(first as i64 + 2_000_000),
                replica_groups: ReplicaGroups::Explicit(groups),
                constrain_layout: false,
                use_global_device_ids: true,
                mode: None,
            };
            b.push(Op::AllReduce(Box::new(AllReduce { collective, to_apply })), &[x])
        };
        let sum = build().map_err(from_shape)?;
        self.note(module, parent, first);
        Ok(sum)
    }

    fn note(&mut self, module: &Module, computation: ComputationId, first: usize) {
        self.made.extend(&module[computation].instructions()[first..]);
    }

    fn parameters(&mut self, module: &mut Module, entry: ComputationId) -> Replicate<bool> {
        let mut changed = false;
        for p in module.parameters(entry) {
            let Some(Sharding::Leaf(leaf)) = module[p].common.sharding.as_deref().cloned() else { continue };
            let Ok(shape) = Work::array(module, p) else { continue };
            let tiling = Tiling::of(&leaf, shape.rank(), self.devices)?;
            if tiling.is_whole() {
                continue;
            }
            let local = ArrayShape::new(shape.element_type, tiling.local(shape.dims())?);
            let users: Vec<InstructionId> = module[p].users().to_vec();
            let is_root = module.root(entry) == Some(p);
            module.instruction_mut(p).shape = Shape::from(local).with_default_layout();
            let whole = self.gather(module, p, &tiling)?;
            for user in users {
                for n in 0..module[user].operands().len() {
                    if module[user].operands()[n] == p {
                        module.replace_operand(user, n, whole).map_err(broken)?;
                    }
                }
            }
            if is_root {
                module.set_root(whole);
            }
            changed = true;
        }
        Ok(changed)
    }

    /// Where manual computations begin and end.
    fn boundaries(&mut self, module: &mut Module, c: ComputationId) -> Replicate<bool> {
        let mut dead = Vec::new();
        for i in module[c].instructions().to_vec() {
            let Some(edge) = axes::Edge::of(module, i) else { continue };
            let x = module[i].operands()[0];
            let tiling = edge.tiling(self.devices, true)?;
            let value = if edge.inward { self.cut(module, x, &tiling)? } else { self.gather(module, x, &tiling)? };
            module.replace_all_uses(i, value).map_err(broken)?;
            dead.push(i);
        }
        let changed = !dead.is_empty();
        module.remove_instructions(&dead).map_err(broken)?;
        Ok(changed)
    }

    fn results(&mut self, module: &mut Module, entry: ComputationId, sharding: &Sharding) -> Replicate<()> {
        let Some(root) = module.root(entry) else { return Ok(()) };
        let leaves = sharding.leaves();
        if !module[root].shape.is_tuple() {
            let Some(leaf) = leaves.first() else { return Ok(()) };
            let rank = Work::array(module, root)?.rank();
            // A single result is taken out of a tuple that holds it, only to say how it is spread.
            let value = match (&module[root].op, module[root].operands()) {
                (Op::GetTupleElement { index: 0 }, &[tuple]) if matches!(module[tuple].op, Op::Tuple) => {
                    module[tuple].operands()[0]
                }
                _ => root,
            };
            let tiling = Tiling::of(leaf, rank, self.devices)?;
            let part = self.cut(module, value, &tiling)?;
            module.set_root(part);
            return Ok(());
        }
        if !matches!(module[root].op, Op::Tuple) {
            return Err(error("the results of a program are not written out as a tuple"));
        }
        let operands: Vec<InstructionId> = module[root].operands().to_vec();
        let mut shapes = Vec::new();
        for (n, (&x, leaf)) in operands.iter().zip(leaves).enumerate() {
            let mut part = x;
            if let Ok(shape) = Work::array(module, x) {
                part = self.cut(module, x, &Tiling::of(leaf, shape.rank(), self.devices)?)?;
            }
            module.replace_operand(root, n, part).map_err(broken)?;
            shapes.push(module[part].shape.clone());
        }
        if shapes.len() == operands.len() {
            module.instruction_mut(root).shape = Shape::tuple(shapes);
        }
        Ok(())
    }

    /// Removes what was made and is not needed after all.
    fn sweep(&mut self, module: &mut Module) -> Replicate<()> {
        let mut dead = Vec::new();
        let mut is_dead = rustc_hash::FxHashSet::default();
        for &i in self.made.iter().rev() {
            let unused = module[i].users().iter().all(|u| is_dead.contains(u));
            if unused && module.root(module[i].parent()) != Some(i) && is_dead.insert(i) {
                dead.push(i);
            }
        }
        module.remove_instructions(&dead).map_err(broken)
    }
}

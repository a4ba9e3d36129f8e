//! How results whose sharding is left open are spread: as the values that they are made of.
//!
//! Shardings are carried forward through the entry computation and what it calls, dimension by dimension. It is a
//! suggestion only: whatever is said of a result, it is cut so.

use super::axes::Edge;
use super::{Replicate, Tiling, error};
use hloom_ir::Op;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Dot;
use hloom_ir::sharding::{LeafSharding, Sharding, ShardingKind, SubgroupType, Subgroups, TileAssignment, TileDevices};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// Calls nest no deeper than this; what is deeper says nothing.
const MAX_DEPTH: usize = 64;

/// Instructions that are looked at, called computations counted each time.
const MAX_STEPS: usize = 1 << 21;

/// How one dimension is cut: into how many parts, and the part of each device.
#[derive(PartialEq, Eq, Debug)]
struct Cut {
    parts: i64,
    of: Vec<i64>,
}

impl Cut {
    /// Whether devices at the same place have the same part.
    fn follows(&self, places: &[i64]) -> bool {
        let mut part_at: FxHashMap<i64, i64> = FxHashMap::default();
        places.iter().zip(&self.of).all(|(&place, &part)| *part_at.entry(place).or_insert(part) == part)
    }
}

/// How an array is spread: the cut of each dimension, and which summand each device has.
#[derive(Clone, PartialEq, Debug)]
struct Spread {
    dims: Vec<Option<Rc<Cut>>>,
    summands: Option<Rc<Cut>>,
}

/// One for each leaf of a value; `None` where nothing is known.
type Leaves = Vec<Option<Spread>>;

impl Spread {
    fn of(tiling: &Tiling) -> Option<Spread> {
        let cut = |parts: i64, of: &dyn Fn(usize) -> i64| {
            (parts > 1).then(|| Rc::new(Cut { parts, of: (0..tiling.index.len()).map(of).collect() }))
        };
        let dims = (0..tiling.parts.len()).map(|d| cut(tiling.parts[d], &|device| tiling.index[device][d])).collect();
        let summands = cut(tiling.summands, &|device| tiling.summand[device]);
        let spread = Spread { dims, summands };
        (!spread.is_whole()).then_some(spread)
    }

    fn is_whole(&self) -> bool {
        self.dims.iter().all(Option::is_none) && self.summands.is_none()
    }

    /// Whether every combination of parts is on equally many devices.
    fn fits(&self, devices: usize) -> bool {
        let cuts: Vec<&Rc<Cut>> = self.dims.iter().flatten().chain(&self.summands).collect();
        let count: i64 = cuts.iter().fold(1, |n, c| n.saturating_mul(c.parts));
        let Some(count) = usize::try_from(count).ok().filter(|&n| n <= devices && devices.is_multiple_of(n)) else {
            return false;
        };
        let mut holders = vec![0; count];
        for device in 0..devices {
            let number = cuts.iter().fold(0, |n, c| n * c.parts + c.of.get(device).copied().unwrap_or(0));
            match usize::try_from(number).ok().and_then(|n| holders.get_mut(n)) {
                Some(holder) => *holder += 1,
                None => return false,
            }
        }
        holders.iter().all(|&n| n == devices / count)
    }

    /// Without the dimensions that cannot be cut equally, and without those that do not go together with earlier ones.
    fn fitted(self, sizes: &[i64], devices: usize) -> Option<Spread> {
        let mut fitted = Spread { dims: vec![None; sizes.len()], summands: self.summands };
        for (d, cut) in self.dims.into_iter().enumerate().take(sizes.len()) {
            let Some(cut) = cut.filter(|c| sizes[d] > 0 && sizes[d] % c.parts == 0) else { continue };
            fitted.dims[d] = Some(cut);
            if !fitted.fits(devices) {
                fitted.dims[d] = None;
            }
        }
        (!fitted.is_whole() && fitted.fits(devices)).then_some(fitted)
    }

    /// The sharding of HLO.
    fn sharding(&self, devices: usize) -> LeafSharding {
        let cuts: Vec<Option<&Rc<Cut>>> =
            self.dims.iter().map(Option::as_ref).chain([self.summands.as_ref()]).collect();
        let key = |device: usize| -> Vec<i64> {
            cuts.iter().map(|c| c.and_then(|c| c.of.get(device)).copied().unwrap_or(0)).collect()
        };
        let mut order: Vec<usize> = (0..devices).collect();
        order.sort_by_cached_key(|&device| key(device));
        let parts = |cut: &Option<&Rc<Cut>>| cut.map_or(1, |c| c.parts);
        let mut dims: smallvec::SmallVec<[i64; 4]> = cuts[..self.dims.len()].iter().map(parts).collect();
        let mut types = Vec::new();
        if let Some(summands) = &self.summands {
            dims.push(summands.parts);
            types.push(SubgroupType::Unreduced);
        }
        let copies = devices as i64 / dims.iter().product::<i64>().max(1);
        if copies > 1 {
            dims.push(copies);
            types.push(SubgroupType::Replicated);
        }
        let subgroups = match types[..] {
            [] => Subgroups::None,
            [SubgroupType::Replicated] => Subgroups::ReplicateLast,
            _ => Subgroups::Types(types),
        };
        let devices = TileDevices::Explicit(order.into_iter().map(|d| d as i64).collect());
        ShardingKind::Tiled(TileAssignment { dims, devices, subgroups }).canonical().into()
    }
}

/// Says of the results of the entry that are `open` how they are spread.
pub(super) fn spread_results(module: &mut Module, devices: usize, open: &[bool]) -> Replicate<()> {
    let Some(entry) = module.entry() else { return Ok(()) };
    let Some(root) = module.root(entry) else { return Ok(()) };
    let leaves = module[root].shape.leaves().len();
    let is_open = |n: usize| if open.len() == 1 { open[0] } else { open.get(n).copied().unwrap_or(false) };
    if !(0..leaves).any(is_open) {
        return Ok(());
    }
    let mut flow = Flow { module, devices, steps: 0 };
    let arguments: Vec<Leaves> = module.parameters(entry).iter().map(|&p| flow.annotated(p)).collect();
    let found = flow.computation(entry, &arguments, 0)?;
    let said: Vec<LeafSharding> = match module[root].common.sharding.as_deref() {
        Some(sharding) if sharding.leaves().len() == leaves => sharding.leaves().to_vec(),
        _ => vec![ShardingKind::Replicated.into(); leaves],
    };
    let leaf = |(n, said): (usize, LeafSharding)| match found.get(n) {
        Some(Some(spread)) if is_open(n) => spread.sharding(devices),
        _ => said,
    };
    let mut shardings: Vec<LeafSharding> = said.into_iter().enumerate().map(leaf).collect();
    let sharding = match module[root].shape.is_tuple() {
        true => Sharding::Tuple(shardings),
        false if shardings.len() == 1 => Sharding::Leaf(Box::new(shardings.remove(0))),
        false => return Err(error("a result has several shardings")),
    };
    module.instruction_mut(root).common.sharding = Some(Box::new(sharding));
    Ok(())
}

struct Flow<'m> {
    module: &'m Module,
    devices: usize,
    steps: usize,
}

impl Flow<'_> {
    /// What an instruction's own sharding says.
    fn annotated(&self, i: InstructionId) -> Leaves {
        let shapes = self.module[i].shape.leaves();
        let leaves = self.module[i].common.sharding.as_deref().map_or(&[][..], Sharding::leaves);
        let spread = |(n, rank): (usize, Option<usize>)| {
            let leaf = leaves.get(n)?;
            Spread::of(&Tiling::of(leaf, rank?, self.devices).ok()?)
        };
        shapes.iter().map(|(_, s)| s.as_array().map(|a| a.rank())).enumerate().map(spread).collect()
    }

    fn computation(&mut self, c: ComputationId, arguments: &[Leaves], depth: usize) -> Replicate<Leaves> {
        let mut known: FxHashMap<InstructionId, Leaves> = FxHashMap::default();
        for &i in self.module[c].instructions() {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Ok(Vec::new());
            }
            let leaves = self.instruction(i, arguments, &known, depth)?;
            if leaves.iter().any(Option::is_some) {
                known.insert(i, leaves);
            }
        }
        let root = self.module.root(c);
        Ok(root.and_then(|root| known.remove(&root)).unwrap_or_default())
    }

    fn instruction(
        &mut self,
        i: InstructionId,
        arguments: &[Leaves],
        known: &FxHashMap<InstructionId, Leaves>,
        depth: usize,
    ) -> Replicate<Leaves> {
        let module = self.module;
        let operands = module[i].operands();
        let leaves = |n: usize| operands.get(n).and_then(|x| known.get(x));
        let one = |n: usize| leaves(n).and_then(|l| l.first()).and_then(Option::as_ref);
        let sizes = |x: InstructionId| module[x].shape.as_array().map_or(&[][..], |a| a.dims());
        let operand_sizes = |n: usize| operands.get(n).map_or(&[][..], |&x| sizes(x));
        let out = sizes(i);
        match &module[i].op {
            Op::Parameter { number, .. } => {
                return Ok(usize::try_from(*number).ok().and_then(|n| arguments.get(n)).cloned().unwrap_or_default());
            }
            Op::Tuple | Op::OptBarrier | Op::While { .. } => {
                let count = |x: &InstructionId| module[*x].shape.leaves().len();
                let all = operands.iter().flat_map(|x| {
                    let mut of = known.get(x).cloned().unwrap_or_default();
                    of.resize(count(x), None);
                    of
                });
                return Ok(all.collect());
            }
            Op::GetTupleElement { index } => {
                let Some(of) = leaves(0) else { return Ok(Vec::new()) };
                let elements = operands.first().and_then(|&x| module[x].shape.as_tuple());
                let (Some(elements), Ok(index)) = (elements, usize::try_from(*index)) else { return Ok(Vec::new()) };
                let first: usize = elements.iter().take(index).map(|e| e.leaves().len()).sum();
                let count = elements.get(index).map_or(0, |e| e.leaves().len());
                return Ok(of.iter().skip(first).take(count).cloned().collect());
            }
            Op::Call { to_apply, .. } if depth < MAX_DEPTH => {
                let given: Vec<Leaves> = operands.iter().map(|x| known.get(x).cloned().unwrap_or_default()).collect();
                return self.computation(*to_apply, &given, depth + 1);
            }
            Op::CustomCall(call) => match &*call.target {
                // Into a manual computation and out of it, what others than its own axes cut stays so.
                "SPMDFullToShardShape" | "SPMDShardToFullShape" => {
                    let Some(edge) = Edge::of(module, i) else { return Ok(Vec::new()) };
                    if !edge.inward {
                        let said = Spread::of(&edge.tiling(self.devices, false)?);
                        let free = one(0).map(|of| Spread { summands: None, ..of.clone() });
                        return Ok(vec![self.joined(said.iter().chain(&free))]);
                    }
                    let Some(mut of) = one(0).cloned() else { return Ok(vec![None]) };
                    let own = edge.tiling(self.devices, true)?;
                    let places = edge.free_places(self.devices)?;
                    of.summands = None;
                    for (cut, &parts) in of.dims.iter_mut().zip(&own.parts) {
                        *cut = cut.take().filter(|c| parts == 1 && c.follows(&places));
                    }
                    return Ok(vec![Some(of).filter(|s| !s.is_whole())]);
                }
                "Sharding" => {
                    let said = self.annotated(i);
                    return Ok(if said.iter().any(Option::is_some) { said } else { Vec::new() });
                }
                _ => return Ok(Vec::new()),
            },
            _ => {}
        }
        if operands.iter().all(|x| !known.contains_key(x)) {
            return Ok(Vec::new());
        }
        let kept = |dims: Vec<Option<Rc<Cut>>>| Spread { dims, summands: None };
        let spread = match &module[i].op {
            op if op.is_elementwise() || matches!(op, Op::Copy | Op::AddDependency | Op::Scatter(_)) => {
                let same = |n: &usize| operand_sizes(*n) == out;
                self.joined((0..operands.len()).filter(same).filter_map(one))
            }
            Op::Broadcast { dimensions } => one(0).map(|x| {
                let mut dims = vec![None; out.len()];
                for (&d, cut) in dimensions.iter().zip(&x.dims) {
                    if let Some(slot) = usize::try_from(d).ok().and_then(|d| dims.get_mut(d)) {
                        slot.clone_from(cut);
                    }
                }
                kept(dims)
            }),
            Op::Transpose { dimensions } => one(0).map(|x| {
                kept(dimensions.iter().map(|&d| x.dims.get(usize::try_from(d).ok()?).cloned().flatten()).collect())
            }),
            Op::Reshape { .. } | Op::Bitcast => one(0).map(|x| kept(reshaped(x, operand_sizes(0), out))),
            Op::Reduce { dimensions, .. } => one(0).map(|x| {
                let stays = |(d, _): &(usize, &Option<Rc<Cut>>)| !dimensions.contains(&(*d as i64));
                kept(x.dims.iter().enumerate().filter(stays).map(|(_, c)| c.clone()).collect())
            }),
            Op::Dot(dot) => Some(product(dot, one(0), one(1), operand_sizes(0).len(), operand_sizes(1).len())),
            // Of these, the dimensions whose size stays are those that are not touched.
            Op::Slice { .. }
            | Op::DynamicSlice { .. }
            | Op::Pad { .. }
            | Op::Concatenate { .. }
            | Op::ReduceWindow { .. }
            | Op::DynamicUpdateSlice
            | Op::Reverse { .. }
            | Op::Sort { .. } => one(0).map(|x| {
                let stays =
                    |(d, c): (usize, &Option<Rc<Cut>>)| c.clone().filter(|_| operand_sizes(0).get(d) == out.get(d));
                kept(x.dims.iter().enumerate().map(stays).collect())
            }),
            _ => None,
        };
        Ok(vec![spread.and_then(|s| s.fitted(out, self.devices))])
    }

    /// Of arrays of one shape that are worked on together, the first that is cut decides on each dimension.
    fn joined<'s>(&self, all: impl Iterator<Item = &'s Spread>) -> Option<Spread> {
        let mut joined: Option<Spread> = None;
        for spread in all {
            let Some(so_far) = &mut joined else {
                joined = Some(spread.clone());
                continue;
            };
            for d in 0..so_far.dims.len().min(spread.dims.len()) {
                if so_far.dims[d].is_none() && spread.dims[d].is_some() {
                    so_far.dims[d].clone_from(&spread.dims[d]);
                    if !so_far.fits(self.devices) {
                        so_far.dims[d] = None;
                    }
                }
            }
        }
        joined
    }
}

/// The cuts after a reshape: dimensions that stay keep theirs, and of those that are joined or split the first does.
fn reshaped(x: &Spread, from: &[i64], to: &[i64]) -> Vec<Option<Rc<Cut>>> {
    let mut dims = vec![None; to.len()];
    if from.contains(&0) || to.contains(&0) {
        return dims;
    }
    let (mut f, mut t) = (0, 0);
    while f < from.len() && t < to.len() {
        let (first_f, first_t) = (f, t);
        let (mut of_f, mut of_t) = (from[f], to[t]);
        (f, t) = (f + 1, t + 1);
        while of_f != of_t {
            if of_f < of_t && f < from.len() {
                of_f = of_f.saturating_mul(from[f]);
                f += 1;
            } else if t < to.len() {
                of_t = of_t.saturating_mul(to[t]);
                t += 1;
            } else {
                return dims;
            }
        }
        // Dimensions of one element are in nobody's way.
        let significant = |sizes: &[i64], first: usize, end: usize| (first..end).find(|&d| sizes[d] > 1);
        let (Some(a), Some(b)) = (significant(from, first_f, f), significant(to, first_t, t)) else { continue };
        if let Some(Some(cut)) = x.dims.get(a)
            && to[b] % cut.parts == 0
        {
            dims[b] = Some(cut.clone());
        }
    }
    dims
}

/// The cuts of a product: those of the batch, then of what is left of either side.
fn product(dot: &Dot, a: Option<&Spread>, b: Option<&Spread>, rank_a: usize, rank_b: usize) -> Spread {
    let at = |x: Option<&Spread>, d: i64| usize::try_from(d).ok().and_then(|d| x?.dims.get(d).cloned()).flatten();
    let n = &dot.dims;
    let mut dims: Vec<Option<Rc<Cut>>> =
        n.lhs_batch.iter().zip(&n.rhs_batch).map(|(&l, &r)| at(a, l).or_else(|| at(b, r))).collect();
    let free = |rank: usize, batch: &[i64], contracting: &[i64]| -> Vec<i64> {
        (0..rank as i64).filter(|d| !batch.contains(d) && !contracting.contains(d)).collect()
    };
    dims.extend(free(rank_a, &n.lhs_batch, &n.lhs_contracting).into_iter().map(|d| at(a, d)));
    dims.extend(free(rank_b, &n.rhs_batch, &n.rhs_contracting).into_iter().map(|d| at(b, d)));
    Spread { dims, summands: None }
}

//! Windowed einsum: a product with a gathered operand works on one shard after another while the next is on its way.
//!
//! Where an all-gather would keep everybody waiting, each device multiplies with the shard that it has, passes it to its
//! neighbour and goes on with the one that it is passed, once around the group. What each shard gives is a part of the
//! result if the gathered dimension is one of the result's, and a summand of it if the product sums over that dimension;
//! summands are added in f32. Where the machine can carry an all-gather through other fusions, those hide it instead.
//!
//! It is done where the cost model says that it pays: the permutes hide behind the products of the shards, and the result is
//! put together in memory instead.

use crate::edit::{add, array_of, flow_computations, remove_dead};
use crate::stage::{StageContext, staged};
use hloom_analysis::devices::{DeviceGrid, group_of};
use hloom_cost::{CollectiveKind, Communication, CostModel};
use hloom_ir::attributes::{DotAlgorithm, Precision};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::Common;
use hloom_ir::layout::DimVec;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, CollectivePermute, Dot, Op};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_passes::Pass;

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "windowed-einsum",
    statement: "multiplies with a gathered operand shard by shard, where that hides the gather",
    keeps_schedule: false,
    run: |module, context| staged(module, context, window_module),
};

/// More shards than this are not written out one after another.
const MAX_SHARDS: usize = 8;

fn window_module(module: &mut Module, context: &StageContext<'_>) -> Result<usize, Diagnostic> {
    if context.policy.carries_collectives || module.config.replica_count > 1 {
        return Ok(0);
    }
    let mut found = Vec::new();
    {
        let mut model = None;
        for c in flow_computations(module) {
            for &i in module[c].instructions() {
                let Some(einsum) = Einsum::of(module, i) else { continue };
                let model = match &mut model {
                    Some(model) => model,
                    none => none.insert(CostModel::new(module, context.target)?),
                };
                if pays(&einsum, module, model, context)? {
                    found.push(einsum);
                }
            }
        }
    }
    for (channel, einsum) in (next_channel(module)..).zip(&found) {
        einsum.rewrite(module, channel);
    }
    remove_dead(module, context.target)?;
    Ok(found.len())
}

/// What the gathered dimension is to the product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gathered {
    /// A dimension of the result, of no other operand.
    Free { result: i64 },
    /// A dimension of the result and of the other operand.
    Batch { result: i64, other: i64 },
    /// Summed over; the dimension of the other operand.
    Contracting { other: i64 },
}

/// A dot with an operand that is gathered for it alone.
struct Einsum {
    dot: InstructionId,
    /// Which operand is gathered.
    side: usize,
    gather: InstructionId,
    gathered: Gathered,
    /// The size of a shard along the gathered dimension.
    shard: i64,
    /// The group of each device.
    groups: Vec<Vec<usize>>,
    /// Whether the operand is rounded to bf16 for the product anyway.
    rounds: bool,
}

impl Einsum {
    fn of(module: &Module, dot: InstructionId) -> Option<Einsum> {
        let Op::Dot(attributes) = &module[dot].op else { return None };
        let is_gather = |i: &InstructionId| matches!(module[*i].op, Op::AllGather(_));
        let side = module[dot].operands().iter().position(is_gather)?;
        let gather = module[dot].operands()[side];
        let (Op::AllGather(all_gather), &[source]) = (&module[gather].op, module[gather].operands()) else {
            return None;
        };
        let is_root = module.root(module[gather].parent()) == Some(gather);
        let times = module[dot].operands().iter().filter(|&&o| o == gather).count();
        if module[gather].users() != [dot] || is_root || times != 1 {
            return None;
        }
        let (from, to) = (array_of(module, source)?, array_of(module, gather)?);
        if from.is_dynamic() || array_of(module, dot)?.is_dynamic() || !from.element_type.is_float() {
            return None;
        }
        let shard = *from.dims().get(usize::try_from(all_gather.dimension).ok()?)?;
        let partitions = usize::try_from(module.config.num_partitions).ok()?;
        let grid = DeviceGrid { replicas: 1, partitions };
        let groups: Option<Vec<Vec<usize>>> = (0..partitions).map(|d| group_of(&module[gather].op, grid, d)).collect();
        let groups = groups?;
        let size = groups.first()?.len();
        let whole = *to.dims().get(usize::try_from(all_gather.dimension).ok()?)?;
        let is_even = groups.iter().all(|g| g.len() == size) && shard > 0 && whole == shard * size as i64;
        if !is_even || !(2..=MAX_SHARDS).contains(&size) {
            return None;
        }
        let gathered = gathered(module, dot, side, all_gather.dimension)?;
        let precision = &attributes.precision;
        let rounds = from.element_type == ElementType::F32
            && precision.algorithm == DotAlgorithm::Unset
            && precision.operand_precision.iter().all(|&p| p == Precision::Default);
        Some(Einsum { dot, side, gather, gathered, shard, groups, rounds })
    }

    fn shards(&self) -> usize {
        self.groups[0].len()
    }

    /// The type that summands are added in.
    fn sum_type(&self, result: ElementType) -> ElementType {
        match self.gathered {
            Gathered::Contracting { .. } if result.is_float() && result.bits() < 32 => ElementType::F32,
            _ => result,
        }
    }

    fn rewrite(&self, module: &mut Module, channel: i64) -> Option<()> {
        let Op::Dot(attributes) = module[self.dot].op.clone() else { return None };
        let result = array_of(module, self.dot)?.clone();
        let other = module[self.dot].operands()[1 - self.side];
        let metadata = module[self.dot].common.metadata.clone();
        let mut build = Build { module, beside: self.dot };
        let mut shard = build.module[self.gather].operands()[0];
        if self.rounds {
            let narrow = array_of(build.module, shard)?.with_element_type(ElementType::Bf16);
            shard = build.add("convert", Op::Convert, narrow, &[shard]);
        }
        let device = build.device();
        let mut sum: Option<InstructionId> = None;
        for step in 0..self.shards() {
            let offset = build.lookup(&self.offsets(step)?, device)?;
            let part = match self.gathered {
                Gathered::Free { .. } => other,
                Gathered::Batch { other: d, .. } | Gathered::Contracting { other: d } => {
                    build.slice(other, d, offset, self.shard)?
                }
            };
            let operands = if self.side == 0 { [shard, part] } else { [part, shard] };
            let dims = match self.gathered {
                Gathered::Contracting { .. } => result.dims().into(),
                Gathered::Free { result: d } | Gathered::Batch { result: d, .. } => resized(&result, d, self.shard),
            };
            let shape = array(self.sum_type(result.element_type), dims);
            let common = Common { metadata: metadata.clone(), ..Common::default() };
            let dot = Op::Dot(Box::new(Dot { ..(*attributes).clone() }));
            let product = add(build.module, self.dot, "dot", dot, shape, &operands, common);
            sum = Some(match (self.gathered, sum) {
                (Gathered::Contracting { .. }, None) => product,
                (Gathered::Contracting { .. }, Some(sum)) => {
                    let shape = array_of(build.module, product)?.clone();
                    build.add("add", Op::Binary(BinaryOp::Add), shape, &[sum, product])
                }
                (Gathered::Free { result: d } | Gathered::Batch { result: d, .. }, so_far) => {
                    let so_far = match so_far {
                        Some(so_far) => so_far,
                        None => build.zeros(&result)?,
                    };
                    build.update(so_far, product, d, offset)?
                }
            });
            if step + 1 < self.shards() {
                shard = build.permute(shard, self.pairs(), channel)?;
            }
        }
        let mut made = sum?;
        if array_of(build.module, made)?.element_type != result.element_type {
            made = build.add("convert", Op::Convert, result.clone(), &[made]);
        }
        module.replace_all_uses(self.dot, made).ok()
    }

    /// For each device where the shard begins that it has after so many steps.
    fn offsets(&self, step: usize) -> Option<Vec<i32>> {
        let at = |(device, group): (usize, &Vec<usize>)| {
            let own = group.iter().position(|&d| d == device)?;
            i32::try_from(((own + step) % group.len()) as i64 * self.shard).ok()
        };
        self.groups.iter().enumerate().map(at).collect()
    }

    /// Everybody passes its shard to the one before it in its group.
    fn pairs(&self) -> Vec<(i64, i64)> {
        let pair = |(device, group): (usize, &Vec<usize>)| {
            let own = group.iter().position(|&d| d == device).unwrap_or(0);
            (device as i64, group[(own + group.len() - 1) % group.len()] as i64)
        };
        self.groups.iter().enumerate().map(pair).collect()
    }
}

/// What dimension `dim` of operand `side` is to the dot.
fn gathered(module: &Module, dot: InstructionId, side: usize, dim: i64) -> Option<Gathered> {
    let Op::Dot(attributes) = &module[dot].op else { return None };
    let d = &attributes.dims;
    let (own, other) = match side {
        0 => ((&d.lhs_batch, &d.lhs_contracting), (&d.rhs_batch, &d.rhs_contracting)),
        _ => ((&d.rhs_batch, &d.rhs_contracting), (&d.lhs_batch, &d.lhs_contracting)),
    };
    if let Some(n) = own.0.iter().position(|&b| b == dim) {
        return Some(Gathered::Batch { result: n as i64, other: *other.0.get(n)? });
    }
    if let Some(n) = own.1.iter().position(|&c| c == dim) {
        return Some(Gathered::Contracting { other: *other.1.get(n)? });
    }
    let before = (0..dim).filter(|b| !own.0.contains(b) && !own.1.contains(b)).count();
    let lhs_free = array_of(module, module[dot].operands()[0])?.rank() - d.lhs_batch.len() - d.lhs_contracting.len();
    let first = d.lhs_batch.len() + if side == 0 { 0 } else { lhs_free };
    Some(Gathered::Free { result: (first + before) as i64 })
}

/// Whether the shards one after another take less time than the gather and the product.
fn pays(
    einsum: &Einsum,
    module: &Module,
    model: &CostModel<'_>,
    context: &StageContext<'_>,
) -> Result<bool, Diagnostic> {
    let communication = Communication::new(context.target, context.topology.clone())?;
    let bandwidth = context.target.reached_bandwidth(0)?;
    let n = einsum.shards() as f64;
    let narrowed = if einsum.rounds { 0.5 } else { 1.0 };
    let bytes = |i: InstructionId| module[i].shape.byte_size().unwrap_or(0) as f64;
    let whole = bytes(einsum.gather) * narrowed;
    let group = communication.shape_of(&einsum.groups[0]);
    let gather = communication.collective(CollectiveKind::AllGather, whole, &group).seconds;
    let device = |d: i64| usize::try_from(d).unwrap_or(0);
    let pairs: Vec<(usize, usize)> = einsum.pairs().into_iter().map(|(a, b)| (device(a), device(b))).collect();
    let permute = communication.permute(&pairs, whole / n).seconds;
    let Ok(product) = model.instruction(einsum.dot) else { return Ok(false) };
    // Each further product starts its windows anew.
    let (product, start) = (product.seconds, product.latency_seconds);
    let result = array_of(module, einsum.dot);
    let wide = result.map_or(0.0, |r| r.element_count().unwrap_or(0) as f64 * 4.0);
    let put_together = match einsum.gathered {
        Gathered::Contracting { .. } => (n - 1.0) * 2.0 * wide,
        _ => 2.0 * bytes(einsum.dot),
    };
    let shards = product.max((n - 1.0) * permute + product / n);
    let after = shards + put_together / bandwidth + (n - 1.0) * start;
    Ok(after < gather + product)
}

fn resized(whole: &ArrayShape, dim: i64, size: i64) -> DimVec {
    let of = |(n, &d): (usize, &i64)| if n as i64 == dim { size } else { d };
    whole.dims().iter().enumerate().map(of).collect()
}

fn array(element_type: ElementType, dims: impl IntoIterator<Item = i64>) -> ArrayShape {
    ArrayShape::new(element_type, dims).with_default_layout()
}

/// A channel that no collective has.
fn next_channel(module: &Module) -> i64 {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    let channel = |&i: &InstructionId| match &module[i].op {
        Op::CollectivePermute(permute) => permute.channel_id,
        op => op.collective().and_then(|c| c.channel_id),
    };
    all.filter_map(channel).max().unwrap_or(0) + 1
}

/// Adds instructions beside another.
struct Build<'m> {
    module: &'m mut Module,
    beside: InstructionId,
}

impl Build<'_> {
    fn add(&mut self, name: &str, op: Op, shape: impl Into<Shape>, operands: &[InstructionId]) -> InstructionId {
        add(self.module, self.beside, name, op, shape, operands, Common::default())
    }

    /// The number of this device.
    fn device(&mut self) -> InstructionId {
        let id = self.add("partition-id", Op::PartitionId, array(ElementType::U32, []), &[]);
        self.add("convert", Op::Convert, array(ElementType::S32, []), &[id])
    }

    /// Element `index` of a table.
    fn lookup(&mut self, table: &[i32], index: InstructionId) -> Option<InstructionId> {
        let literal = Literal::array([table.len() as i64], table).ok()?;
        let shape = array(ElementType::S32, [table.len() as i64]);
        let table = self.add("constant", Op::constant(literal), shape, &[]);
        let one = array(ElementType::S32, [1]);
        let slice =
            self.add("dynamic-slice", Op::DynamicSlice { sizes: DimVec::from_elem(1, 1) }, one, &[table, index]);
        Some(self.add("reshape", Op::Reshape { inferred_dimension: None }, array(ElementType::S32, []), &[slice]))
    }

    /// Where a part begins that is at `offset` along one dimension.
    fn indices(&mut self, rank: usize, dim: i64, offset: InstructionId) -> Vec<InstructionId> {
        let zero = self.add("constant", Op::constant(Literal::scalar(0i32)), array(ElementType::S32, []), &[]);
        (0..rank as i64).map(|d| if d == dim { offset } else { zero }).collect()
    }

    fn slice(&mut self, of: InstructionId, dim: i64, offset: InstructionId, size: i64) -> Option<InstructionId> {
        let whole = array_of(self.module, of)?.clone();
        let sizes = resized(&whole, dim, size);
        let mut operands = vec![of];
        operands.extend(self.indices(whole.rank(), dim, offset));
        let shape = array(whole.element_type, sizes.clone());
        Some(self.add("dynamic-slice", Op::DynamicSlice { sizes }, shape, &operands))
    }

    fn update(
        &mut self,
        of: InstructionId,
        part: InstructionId,
        dim: i64,
        offset: InstructionId,
    ) -> Option<InstructionId> {
        let whole = array_of(self.module, of)?.clone();
        let mut operands = vec![of, part];
        operands.extend(self.indices(whole.rank(), dim, offset));
        Some(self.add("dynamic-update-slice", Op::DynamicUpdateSlice, whole, &operands))
    }

    fn zeros(&mut self, like: &ArrayShape) -> Option<InstructionId> {
        let scalar = array(like.element_type, []);
        let zero = self.add("constant", Op::constant(Literal::zero(like.element_type)), scalar, &[]);
        Some(self.add("broadcast", Op::Broadcast { dimensions: DimVec::new() }, like.clone(), &[zero]))
    }

    fn permute(&mut self, x: InstructionId, pairs: Vec<(i64, i64)>, channel: i64) -> Option<InstructionId> {
        let shape = self.module[x].shape.clone();
        let permute =
            CollectivePermute { channel_id: Some(channel), source_target_pairs: pairs, slice_sizes: Vec::new() };
        Some(self.add("collective-permute", Op::CollectivePermute(Box::new(permute)), shape, &[x]))
    }
}

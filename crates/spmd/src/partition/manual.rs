//! What the program takes care of itself: manual regions and their edges, collectives in them, and custom calls.

use super::Emit;
use super::axes::{AxisList, AxisSet};
use super::body::{Body, Part, Val};
use super::one_device::only_device;
use super::spec::Spec;
use super::whole::{any_leaf, leaf_specs};
use hloom_ir::Op;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::CustomCall;

/// Calls back into Python, where the program asks for one call per shard.
const PARTITIONED_CALLBACK: &str = "xla_ffi_partitioned_python_cpu_callback";

impl Body<'_, '_> {
    /// An instruction of a region that is manual over all devices, as it is.
    pub(crate) fn all_manual(&mut self, at: InstructionId) -> Emit<Option<Val>> {
        let source = self.p.source;
        let all = self.axes().all();
        let edge = match &source[at].op {
            Op::CustomCall(call) => &*call.target == "SPMDFullToShardShape" || &*call.target == "SPMDShardToFullShape",
            Op::Tuple | Op::GetTupleElement { .. } | Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } => {
                true
            }
            Op::Parameter { .. } | Op::Constant(_) | Op::Iota { .. } => true,
            _ => false,
        };
        if all.is_empty() || edge {
            return Ok(None);
        }
        let leaves = &self.p.annotations;
        let mut manual = leaves.leaves(at).len() > 0 && leaves.leaves(at).all(|s| s.manual == all);
        for &o in source[at].operands() {
            manual |= any_leaf(self.value(o)?, &|s| s.manual == all);
        }
        if !manual {
            return Ok(None);
        }
        let wanted = self.p.annotated_leaves(at);
        let mut values = Vec::new();
        for &o in source[at].operands() {
            let value = self.value(o)?.clone();
            let mut specs = Vec::new();
            leaf_specs(&value, &mut specs);
            values.push((value, specs));
        }
        // Inside, an annotation says what is so already.
        if let (Op::CustomCall(call), [(value, specs)]) = (&source[at].op, values.as_slice())
            && &*call.target == "Sharding"
            && specs.iter().all(|s| s.manual == all)
        {
            return Ok(Some(value.clone()));
        }
        let op = self.local_op(&source[at].op)?;
        let mut ids = Vec::new();
        for (value, specs) in values {
            ids.push(self.pack(&value, &mut specs.into_iter())?);
        }
        let id = self.add_shaped(op, &ids, Some(source[at].shape.without_layout()))?;
        self.inherit(id, at);
        let mut specs = wanted.into_iter().map(|s| Spec { manual: all, ..Spec::replicated(s.dims.len()) });
        Ok(Some(self.unpack(id, &source[at].shape, &mut specs)?))
    }

    /// Into a manual region: the shard of each device becomes an array of its own.
    fn full_to_shard(&mut self, at: InstructionId) -> Emit<Val> {
        let operand = self.p.source[at].operands()[0];
        let shape = self.array_shape(at)?;
        let part = self.raw_part(operand)?;
        let inside = self.annotated_array(at);
        let manual = inside.manual;
        let annotated = self.annotated_array(operand);
        // Parts of a sum go in as they are where the region takes care of their axes.
        let parts = annotated.partial.intersection(manual);
        let outside = Spec { manual: part.spec.manual, ..annotated.clone() }.with_partial(parts, annotated.reduction);
        let outside = self.nested(outside, manual, shape.dims());
        let part = self.resharded(&part, &outside)?;
        let rest = |list: &AxisList| list.iter().copied().filter(|&a| !manual.has(a)).collect::<AxisList>();
        let spec = Spec { manual, ..Spec::tiled(outside.dims.iter().map(rest)) };
        if spec.local_dims(self.axes(), shape.dims())[..] != self.dims(part.id)[..] {
            return Err(self.error(format!(
                "a shard of {:?} does not make the array {:?} of a manual region",
                self.dims(part.id),
                shape.dims()
            )));
        }
        Ok(self.array(part.id, shape, spec))
    }

    /// How an array lies outside a region, where its shards are arrays of those sizes inside: axes that do not cut these
    /// into equal parts would cut the whole elsewhere, and are left out.
    fn nested(&self, mut outside: Spec, manual: AxisSet, inside: &[i64]) -> Spec {
        for (list, &n) in outside.dims.iter_mut().zip(inside) {
            let rest: AxisList = list.iter().copied().filter(|&a| !manual.has(a)).collect();
            if n % self.axes().product(&rest) != 0 {
                list.retain(|a| manual.has(a));
            }
        }
        outside
    }

    /// Out of a manual region.
    fn shard_to_full(&mut self, at: InstructionId) -> Emit<Val> {
        let operand = self.p.source[at].operands()[0];
        let shape = self.array_shape(at)?;
        let part = self.raw_part(operand)?;
        let outside = self.annotated_array(at);
        let leaving = part.spec.manual.without(outside.manual);
        let outside = self.nested(outside, leaving, part.shape.dims());
        let rest = |list: &AxisList| list.iter().copied().filter(|&a| !leaving.has(a)).collect::<AxisList>();
        let inside = Spec { manual: part.spec.manual, ..Spec::tiled(outside.dims.iter().map(rest)) };
        let id = self.reshard(&part, &inside)?;
        if outside.local_dims(self.axes(), shape.dims())[..] != self.dims(id)[..] {
            return Err(self.error(format!(
                "an array {:?} of a manual region is not a shard of {:?}",
                self.dims(id),
                shape.dims()
            )));
        }
        Ok(self.array(id, shape, outside))
    }

    /// A collective of the program itself, where some axes are not manual.
    pub(crate) fn manual_collective(&mut self, at: InstructionId) -> Emit<Val> {
        let source = self.p.source;
        // Outside manual regions a program is about one logical device, which has nobody to meet.
        if let (Op::AllReduce(_), [operand]) = (&source[at].op, source[at].operands())
            && self.raw_part(*operand)?.spec.manual.is_empty()
        {
            return self.value(*operand).cloned();
        }
        let op = self.local_op(&source[at].op)?;
        let touched: Option<usize> = match &op {
            Op::AllGather(g) => Some(g.dimension as usize),
            Op::ReduceScatter(r) => Some(r.dimension as usize),
            Op::AllToAll { split_dimension, .. } => split_dimension.map(|d| d as usize),
            _ => None,
        };
        let mut specs = Vec::new();
        let mut ids = Vec::new();
        for &o in source[at].operands() {
            let part = self.part(o)?;
            let mut spec = part.spec.complete();
            if let Some(d) = touched
                && d < spec.dims.len()
            {
                spec.dims[d].clear();
            }
            ids.push(self.reshard(&part, &spec)?);
            specs.push(spec);
        }
        let leaves = source[at].shape.leaf_count();
        let specs: Vec<Spec> = (0..leaves).filter_map(|i| specs.get(i).or(specs.first()).cloned()).collect();
        let shape = self.local_shape(&source[at].shape.without_layout(), &specs);
        let id = self.add_shaped(op, &ids, Some(shape))?;
        self.inherit(id, at);
        self.unpack(id, &source[at].shape, &mut specs.into_iter())
    }

    /// Infeed, outfeed and transfers: every device does its own.
    pub(crate) fn transfer(&mut self, at: InstructionId) -> Emit<Val> {
        self.compute_whole(at)
    }

    pub(crate) fn custom_call(&mut self, at: InstructionId, call: &CustomCall) -> Emit<Val> {
        let source = self.p.source;
        match &*call.target {
            "Sharding" | "xla.sdy.FuncResultSharding" => return self.copied(at),
            "SPMDFullToShardShape" => return self.full_to_shard(at),
            "SPMDShardToFullShape" => return self.shard_to_full(at),
            // What it says was for propagation.
            "xla.sdy.ShardingGroup" => return Ok(Val::Tuple(Vec::new())),
            "xla.sdy.PropagationBarrier" => return self.copied(at),
            "MoveToHost" | "MoveToDevice" | "LayoutConstraint" | "annotate_device_placement" => {
                return self.elementwise(at);
            }
            "TopK" => return self.top_k_call(at),
            "_SPMDInternalOp_RotateRight" => return self.rotated(at),
            "__op$block_scaled_dot" => return self.block_scaled_dot(at),
            _ => {}
        }
        if let Some(value) = self.custom_partitioned(at, call)? {
            return Ok(value);
        }
        if &*call.target == PARTITIONED_CALLBACK && !source[at].shape.leaves().iter().any(|(_, s)| s.is_array()) {
            return self.on_shards(at);
        }
        if let Some(device) = only_device(source, at)
            && !self.is_in_region(at)?
        {
            return self.on_one_device(at, device);
        }
        let batch = source[at].common.frontend_attribute("num_batch_dims").and_then(|n| n.parse::<usize>().ok());
        if let Some(batch) = batch {
            return self.leading_batch(at, batch);
        }
        self.compute_whole(at)
    }

    /// A call without results that each device makes with its own shards.
    fn on_shards(&mut self, at: InstructionId) -> Emit<Val> {
        let source = self.p.source;
        let op = self.local_op(&source[at].op)?;
        let ids = self.complete_operands(at)?;
        let id = self.add_shaped(op, &ids, Some(source[at].shape.without_layout()))?;
        self.inherit(id, at);
        self.unpack(id, &source[at].shape, &mut std::iter::empty())
    }

    /// Whether an instruction works on values of a manual region, where every device speaks for itself.
    fn is_in_region(&self, at: InstructionId) -> Emit<bool> {
        let mut specs = self.p.annotated_leaves(at);
        for &o in self.p.source[at].operands() {
            leaf_specs(self.value(o)?, &mut specs);
        }
        Ok(specs.iter().any(|s| !s.manual.is_empty()))
    }

    /// A call that treats the first `batch` dimensions of all its arrays one by one.
    fn leading_batch(&mut self, at: InstructionId, batch: usize) -> Emit<Val> {
        use super::rule::{FactorDims, FactorKind, Rule};
        let source = self.p.source;
        let op = self.local_op(&source[at].op)?;
        let parts: Vec<Part> = self.parts(source[at].operands())?;
        let leaves = source[at].shape.leaves();
        let mut rule = Rule::default();
        let sizes: Vec<i64> =
            parts.iter().find(|p| p.shape.rank() >= batch).map_or_else(Vec::new, |p| p.shape.dims()[..batch].to_vec());
        let leading: Vec<Option<u8>> = sizes.iter().map(|&n| rule.factor(n, FactorKind::Pass)).collect();
        let factors = |dims: &[i64]| -> FactorDims {
            (0..dims.len()).map(|d| leading.get(d).copied().flatten().filter(|_| dims[d] == sizes[d])).collect()
        };
        let even = |b: &Body<'_, '_>, a: &super::rule::Assignment| {
            let fits = a.iter().zip(&sizes).all(|(l, n)| n % b.axes().product(l) == 0);
            fits.then_some(0.0)
        };
        for part in &parts {
            rule.operands.push(factors(part.shape.dims()));
        }
        for (_, leaf) in &leaves {
            let Some(array) = leaf.as_array() else { return self.compute_whole(at) };
            rule.results.push(factors(array.dims()));
        }
        let wanted = self.p.annotated_leaves(at);
        let assignment = self.choose(&rule, &parts, &wanted, &even);
        let manual = wanted.iter().fold(AxisSet::EMPTY, |m, s| m.union(s.manual));
        let mut ids = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            ids.push(self.reshard(part, &rule.operand(i, &assignment, manual))?);
        }
        let specs: Vec<Spec> = (0..rule.results.len()).map(|i| rule.result(i, &assignment, manual)).collect();
        let shape = self.local_shape(&source[at].shape.without_layout(), &specs);
        let id = self.add_shaped(op, &ids, Some(shape))?;
        self.inherit(id, at);
        self.unpack(id, &source[at].shape, &mut specs.into_iter())
    }
}

//! Calls that somebody else knows how to cut: a [`CustomPartitioner`] gives the program of one device for them.

use super::body::{Body, Val};
use super::spec::Spec;
use super::{Emit, error};
use hloom_ir::diagnostic::{Diagnostic, Part};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{Collective, CustomCall};
use hloom_ir::order::computations;
use hloom_ir::sharding::{LeafSharding, ShardingKind};
use hloom_ir::{Op, Shape};
use rustc_hash::FxHashMap;

/// A call as a partitioner is asked about it.
#[derive(Debug)]
pub struct CallToPartition<'a> {
    /// What is called.
    pub target: &'a str,
    /// What the call says besides.
    pub backend_config: &'a [u8],
    /// The whole operands and how they lie.
    pub operands: Vec<(Shape, ShardingKind)>,
    /// The whole result.
    pub result: &'a Shape,
    /// How its leaves are to lie.
    pub results: Vec<ShardingKind>,
}

/// How a call is cut.
#[derive(Debug)]
pub struct CustomPartition {
    /// What each device computes.
    pub program: Module,
    /// How the operands must lie for it.
    pub operands: Vec<ShardingKind>,
    /// How the leaves of the result lie after it.
    pub results: Vec<ShardingKind>,
}

/// Who knows how to cut calls.
pub trait CustomPartitioner {
    /// How to cut a call; nothing if it is none of those it knows.
    fn partition(&self, call: &CallToPartition<'_>) -> Result<Option<CustomPartition>, Diagnostic>;
}

/// Who knows of no calls.
#[derive(Clone, Copy, Debug)]
pub struct NoCustomPartitioner;

impl CustomPartitioner for NoCustomPartitioner {
    fn partition(&self, _: &CallToPartition<'_>) -> Result<Option<CustomPartition>, Diagnostic> {
        Ok(None)
    }
}

impl Body<'_, '_> {
    /// A call that the caller's partitioner knows.
    pub(crate) fn custom_partitioned(&mut self, at: InstructionId, call: &CustomCall) -> Emit<Option<Val>> {
        let source = self.p.source;
        let mut operands = Vec::new();
        for &o in source[at].operands() {
            let Ok(part) = self.raw_part(o) else { return Ok(None) };
            let kind = part.spec.complete().to_sharding(self.axes());
            operands.push((Shape::Array(part.shape.clone()).without_layout(), kind));
        }
        let results = self.p.annotated_leaves(at);
        let asked = CallToPartition {
            target: &call.target,
            backend_config: source[at].common.backend_config.as_deref().unwrap_or(&[]),
            operands,
            result: &source[at].shape,
            results: results.iter().map(|s| s.complete().to_sharding(self.axes())).collect(),
        };
        let custom = self.p.custom;
        let Some(answer) = custom.partition(&asked).map_err(|d| d.at_instruction(at, Part::Whole))? else {
            return Ok(None);
        };
        let leaves = source[at].shape.leaf_count();
        if answer.operands.len() != source[at].operands().len() || answer.results.len() != leaves {
            return Err(self.error("a partitioner answers with another number of shardings than the call has arrays"));
        }
        let mut ids = Vec::new();
        for (&o, kind) in source[at].operands().iter().zip(&answer.operands) {
            let part = self.part(o)?;
            let spec = self.answered(kind, part.shape.rank(), &part.spec)?;
            ids.push(self.reshard(&part, &spec)?);
        }
        let mut specs = Vec::new();
        for ((kind, asked), (_, leaf)) in answer.results.iter().zip(&results).zip(source[at].shape.leaves()) {
            let rank = leaf.as_array().map_or(0, |a| a.rank());
            specs.push(self.answered(kind, rank, asked)?);
        }
        let callee = self.import(&answer.program)?;
        let shape = self.local_shape(&source[at].shape.without_layout(), &specs);
        let made = self.p.target.root(callee).map(|r| self.p.target[r].shape.without_layout());
        if made.as_ref() != Some(&shape) {
            return Err(self.error(format!(
                "a partitioner answers with a program of {}, where {shape} is due",
                made.map_or("nothing".into(), |m| m.to_string())
            )));
        }
        let id = self.add_shaped(Op::Call { to_apply: callee, is_composite: false }, &ids, Some(shape))?;
        Ok(Some(self.unpack(id, &source[at].shape, &mut specs.into_iter())?))
    }

    fn answered(&self, kind: &ShardingKind, rank: usize, like: &Spec) -> Emit<Spec> {
        let spec = Spec::from_sharding(self.axes(), &LeafSharding::from(kind.clone()), rank);
        let spec = spec.ok_or_else(|| self.error("a partitioner answers with a sharding that does not fit"))?;
        Ok(Spec { manual: like.manual, ..spec })
    }

    /// The program of another module as a computation of this one, its channels made new.
    fn import(&mut self, program: &Module) -> Emit<ComputationId> {
        let entry = program.entry().ok_or_else(|| self.error("a partitioner answers with an empty program"))?;
        let mut copies: FxHashMap<ComputationId, ComputationId> = FxHashMap::default();
        let mut channels: FxHashMap<i64, i64> = FxHashMap::default();
        for c in computations(program) {
            let copy = self.p.copy_from(program, c, &mut copies)?;
            for i in self.p.target[copy].instructions().to_vec() {
                if let Some(old) = self.p.target[i].op.channel_id() {
                    let new = *channels.entry(old).or_insert_with(|| self.p.next_channel());
                    set_channel(&mut self.p.target.instruction_mut(i).op, new);
                }
            }
        }
        copies.get(&entry).copied().ok_or_else(|| error("a partitioner answers with an empty program"))
    }
}

fn set_channel(op: &mut Op, channel: i64) {
    let collective: &mut Collective = match op {
        Op::AllReduce(a) | Op::AllReduceStart(a) => &mut a.collective,
        Op::AllGather(a) | Op::AllGatherStart(a) => &mut a.collective,
        Op::ReduceScatter(r) => &mut r.collective,
        Op::AllToAll { collective, .. }
        | Op::RaggedAllToAll { collective, .. }
        | Op::CollectiveBroadcast { collective, .. } => collective,
        Op::CollectivePermute(p) | Op::CollectivePermuteStart(p) => {
            p.channel_id = Some(channel);
            return;
        }
        _ => return,
    };
    collective.channel_id = Some(channel);
}

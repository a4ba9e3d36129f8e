//! Values that change places among the devices, without sending what can be had otherwise.
//!
//! What a device is to get may be what it has already, may be computed there from what every device has, or may come from
//! where it was before the last change of places. Only the rest is sent.

use super::Emit;
use super::body::Body;
use hloom_ir::device_list::ReplicaGroups;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::NewInstruction;
use hloom_ir::{ElementType, Op};
use rustc_hash::FxHashMap;

/// How many instructions are looked at for one value, and how deep.
const MOST_INSTRUCTIONS: usize = 512;
const MOST_LEVELS: usize = 48;

/// One change of places.
struct Relocation<'m> {
    /// By device, the one whose value it is to have.
    sources: &'m [i64],
    found: FxHashMap<InstructionId, Option<InstructionId>>,
}

impl Body<'_, '_> {
    /// `x` as another device has it: device `d` gets what `sources[d]` has.
    pub(crate) fn relocate(&mut self, x: InstructionId, sources: &[i64]) -> Emit<InstructionId> {
        let mut relocation = Relocation { sources, found: FxHashMap::default() };
        if let Some(id) = self.had_there(x, &mut relocation, 0)? {
            return Ok(id);
        }
        let (x, sources) = match self.composed(x, sources) {
            Some((before, sources)) => (before, sources),
            None => (x, sources.to_vec()),
        };
        let pairs = sources.iter().zip(0..).map(|(&from, to)| (from, to)).collect();
        let all = self.axes().all().list();
        self.permute(x, pairs, &all)
    }

    /// What a permute gave to whom, and from where it comes when places change once more.
    fn composed(&self, x: InstructionId, sources: &[i64]) -> Option<(InstructionId, Vec<i64>)> {
        let Op::CollectivePermute(permute) = &self.p.target[x].op else { return None };
        let [operand] = *self.p.target[x].operands() else { return None };
        let from: FxHashMap<i64, i64> = permute.source_target_pairs.iter().map(|&(from, to)| (to, from)).collect();
        let sources: Option<Vec<i64>> = sources.iter().map(|s| from.get(s).copied()).collect();
        Some((operand, sources?))
    }

    /// The same without sending anything, if that is possible.
    fn had_there(&mut self, x: InstructionId, to: &mut Relocation<'_>, level: usize) -> Emit<Option<InstructionId>> {
        if let Some(&found) = to.found.get(&x) {
            return Ok(found);
        }
        if level > MOST_LEVELS || to.found.len() > MOST_INSTRUCTIONS {
            return Ok(None);
        }
        let found = self.found_there(x, to, level)?;
        to.found.insert(x, found);
        Ok(found)
    }

    fn found_there(&mut self, x: InstructionId, to: &mut Relocation<'_>, level: usize) -> Emit<Option<InstructionId>> {
        let op = self.p.target[x].op.clone();
        if let Some(collective) = op.collective() {
            let alike = matches!(op, Op::AllReduce(_) | Op::AllGather(_)) && within(&collective.replica_groups, to);
            return Ok(alike.then_some(x));
        }
        match op {
            Op::Parameter { .. } | Op::GetTupleElement { .. } => {
                let of = |shards: &[i64], d: i64| usize::try_from(d).ok().and_then(|d| shards.get(d).copied());
                let alike = |shards: &Vec<i64>| (0..).zip(to.sources).all(|(d, &s)| of(shards, d) == of(shards, s));
                return Ok(self.entries.get(&x).is_some_and(alike).then_some(x));
            }
            Op::PartitionId => {
                let number = self.convert(x, ElementType::S32)?;
                let table: Vec<i32> = to.sources.iter().map(|&s| s as i32).collect();
                let there = self.lookup(&table, number)?;
                return Ok(Some(self.convert(there, ElementType::U32)?));
            }
            Op::CollectivePermute(_) => {
                let before = self.composed(x, to.sources);
                return Ok(before.filter(|(_, sources)| sources.iter().zip(0..).all(|(&s, d)| s == d)).map(|b| b.0));
            }
            Op::Constant(_) => return Ok(Some(x)),
            _ if !hloom_analysis::effects::only_computes(&op) => return Ok(None),
            _ => {}
        }
        let operands = self.p.target[x].operands().to_vec();
        let mut there = Vec::with_capacity(operands.len());
        for &operand in &operands {
            match self.had_there(operand, to, level + 1)? {
                Some(id) => there.push(id),
                None => return Ok(None),
            }
        }
        if there == operands {
            return Ok(Some(x));
        }
        // Work is not done twice to save a message.
        if !is_cheap(&op) {
            return Ok(None);
        }
        let instruction = &self.p.target[x];
        let new = NewInstruction {
            name: instruction.name().into(),
            op,
            shape: instruction.shape.clone(),
            operands: there.into(),
            common: instruction.common.clone(),
        };
        Ok(Some(self.p.target.add_instruction(self.computation, new)))
    }
}

/// Whether every device is in one group with the one whose value it is to have.
fn within(groups: &ReplicaGroups, to: &Relocation<'_>) -> bool {
    let Some(groups) = groups.expand() else { return false };
    let mut group_of = vec![usize::MAX; to.sources.len()];
    for (n, group) in groups.iter().enumerate() {
        for &device in group {
            if let Some(of) = usize::try_from(device).ok().and_then(|d| group_of.get_mut(d)) {
                *of = n;
            }
        }
    }
    let of = |d: i64| usize::try_from(d).ok().and_then(|d| group_of.get(d)).copied();
    (0..).zip(to.sources).all(|(d, &s)| of(d).is_some_and(|g| g != usize::MAX) && of(d) == of(s))
}

/// Whether an operation does little for each element that it makes.
fn is_cheap(op: &Op) -> bool {
    let heavy = matches!(
        op,
        Op::Dot(_)
            | Op::Convolution(_)
            | Op::Reduce { .. }
            | Op::ReduceWindow { .. }
            | Op::Sort { .. }
            | Op::Fft { .. }
            | Op::Cholesky { .. }
            | Op::TriangularSolve { .. }
    );
    !heavy
}

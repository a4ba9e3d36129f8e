//! Operations that write into an operand's memory: which operand part and which result part are the same memory.

use hloom_ir::attributes::OutputOperandAlias;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::{Shape, ShapeIndex};

/// An operand part and the result part that is the same memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pair {
    /// Which operand.
    pub operand: usize,
    /// Which part of it.
    pub operand_index: ShapeIndex,
    /// Which part of the result.
    pub output_index: ShapeIndex,
}

impl Pair {
    fn new(operand: usize, operand_index: &[i64], output_index: &[i64]) -> Pair {
        Pair { operand, operand_index: operand_index.into(), output_index: output_index.into() }
    }
}

/// The pairs of every instruction.
#[derive(Debug)]
pub struct InPlace<'m> {
    module: &'m Module,
    /// What the bodies of fusions do in place, by the computation's index.
    bodies: Vec<Vec<Pair>>,
}

impl<'m> InPlace<'m> {
    /// For `module`, whose computations are given callees first.
    pub fn new(module: &'m Module, callees_first: &[ComputationId]) -> InPlace<'m> {
        let mut fused = vec![false; module.computation_slots()];
        for &computation in module.computations() {
            for &id in module[computation].instructions() {
                if let Op::Fusion(fusion) = &module[id].op {
                    fused[fusion.calls.index()] = true;
                }
            }
        }
        let mut in_place = InPlace { module, bodies: vec![Vec::new(); module.computation_slots()] };
        for &computation in callees_first.iter().filter(|c| fused[c.index()]) {
            in_place.bodies[computation.index()] = in_place.body(computation);
        }
        in_place
    }

    /// The pairs of an instruction.
    pub fn pairs(&self, id: InstructionId) -> Vec<Pair> {
        let instruction = &self.module[id];
        let operands = instruction.operands();
        match &instruction.op {
            Op::DynamicUpdateSlice | Op::SetDimensionSize { .. } => vec![Pair::new(0, &[], &[])],
            Op::Scatter(_) => same_place(operands.len().saturating_sub(1) / 2),
            Op::AllReduceStart(_) => same_place(operands.len()),
            Op::CollectivePermute(p) if !p.slice_sizes.is_empty() => self.permuted(operands.get(1), &[]),
            Op::CollectivePermuteStart(p) if !p.slice_sizes.is_empty() => self.permuted(operands.get(1), &[1]),
            Op::RaggedAllToAll { .. } => vec![Pair::new(1, &[], &[])],
            Op::CustomCall(call) => stated(&call.output_operand_aliasing),
            Op::Fusion(fusion) => {
                let mut pairs = self.bodies[fusion.calls.index()].clone();
                pairs.extend(stated(&fusion.output_operand_aliasing));
                pairs
            }
            Op::AsyncStart(start) => tables_aside(&instruction.shape, stated(&start.output_operand_aliasing)),
            Op::AsyncUpdate { output_operand_aliasing } => {
                tables_aside(&instruction.shape, stated(output_operand_aliasing))
            }
            _ => Vec::new(),
        }
    }

    fn permuted(&self, destination: Option<&InstructionId>, output: &[i64]) -> Vec<Pair> {
        let Some(&destination) = destination else { return Vec::new() };
        let mut pairs = vec![Pair::new(1, &[], output)];
        if let Some(elements) = self.module[destination].shape.as_tuple() {
            for i in 0..elements.len() as i64 {
                let output: ShapeIndex = output.iter().copied().chain([i]).collect();
                pairs.push(Pair::new(1, &[i], &output));
            }
        }
        pairs
    }

    /// What a fusion's body does in place on its parameters.
    fn body(&self, computation: ComputationId) -> Vec<Pair> {
        let Some(root) = self.module.root(computation) else { return Vec::new() };
        let mut pairs = Vec::new();
        for (index, _) in self.module[root].shape.leaves() {
            if let Some((parameter, part)) = self.source(root, index.clone())
                && let Op::Parameter { number, .. } = self.module[parameter].op
                && let Ok(operand) = usize::try_from(number)
            {
                pairs.push(Pair { operand, operand_index: part, output_index: index });
            }
        }
        pairs
    }

    /// What the in-place operation that makes a part of a body's result writes into.
    fn source(&self, id: InstructionId, index: ShapeIndex) -> Option<(InstructionId, ShapeIndex)> {
        let (made_by, index) = self.follow(id, index);
        let found = self.through(made_by, &index)?;
        let (source, part) = self.follow(found.0, found.1);
        match self.module[source].op {
            Op::Fusion(_) => Some(self.through(source, &part).map_or((source, part), |(s, p)| self.follow(s, p))),
            _ => Some((source, part)),
        }
    }

    /// The operand part that `id` writes its part `index` into.
    fn through(&self, id: InstructionId, index: &[i64]) -> Option<(InstructionId, ShapeIndex)> {
        let pairs = match &self.module[id].op {
            Op::Fusion(fusion) => self.bodies[fusion.calls.index()].clone(),
            // A wide in-place operation has a pair for each operand, and is asked once for each of them.
            Op::Scatter(_) if index.len() == 1 => {
                let i = usize::try_from(index[0]).ok()?;
                vec![Pair::new(i, &[], index)]
            }
            _ => self.pairs(id),
        };
        let pair = pairs.into_iter().find(|p| *p.output_index == *index)?;
        let operand = self.module[id].operands().get(pair.operand)?;
        Some((*operand, pair.operand_index))
    }

    /// Goes back through tuples, element-takers and bitcasts.
    fn follow(&self, mut id: InstructionId, mut index: ShapeIndex) -> (InstructionId, ShapeIndex) {
        loop {
            let instruction = &self.module[id];
            match &instruction.op {
                Op::Tuple if !index.is_empty() => {
                    let operand = usize::try_from(index[0]).ok().and_then(|i| instruction.operands().get(i));
                    let Some(&operand) = operand else { return (id, index) };
                    id = operand;
                    index.remove(0);
                }
                Op::GetTupleElement { index: element } => {
                    let Some(&operand) = instruction.operands().first() else { return (id, index) };
                    index.insert(0, *element);
                    id = operand;
                }
                Op::Bitcast if index.is_empty() => {
                    let Some(&operand) = instruction.operands().first() else { return (id, index) };
                    id = operand;
                }
                _ => return (id, index),
            }
        }
    }
}

/// Operand i and result i; a single one is the whole result.
fn same_place(count: usize) -> Vec<Pair> {
    match count {
        1 => vec![Pair::new(0, &[], &[])],
        n => (0..n).map(|i| Pair::new(i, &[], &[i as i64])).collect(),
    }
}

fn stated(aliases: &[OutputOperandAlias]) -> Vec<Pair> {
    let pair = |a: &OutputOperandAlias| {
        let operand = usize::try_from(a.operand).ok()?;
        Some(Pair { operand, operand_index: a.operand_index.clone(), output_index: a.output_index.clone() })
    };
    aliases.iter().filter_map(pair).collect()
}

/// The tables in the result of an async operation are its own, whatever is said of what they lead to.
fn tables_aside(shape: &Shape, mut pairs: Vec<Pair>) -> Vec<Pair> {
    pairs.retain(|p| shape.at(&p.output_index).is_some_and(|part| !part.is_tuple()));
    pairs
}

//! What the dimensions of a program's parameters are for, told from how they go together.
//!
//! Dimensions that an operation cuts alike are one thing: the batch goes from the data through all activations, the width
//! of the model stands in nearly every weight, and what is left (heads, hidden features, the vocabulary) belongs to the
//! weights of one layer. No names are looked at.

use crate::factors::ValueRef;
use crate::propagate::{HloGraph, sequential};
use crate::rules::FactorKind;
use hloom_ir::Op;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::BinaryOp;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// What a dimension of a parameter is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Role {
    /// It goes through the whole program, and each of its elements is computed by itself.
    Batch,
    /// The one that most weights share.
    Width,
    /// Whatever else.
    Inner,
}

/// A parameter: its sizes, and what its dimensions are for.
#[derive(Clone, Debug)]
pub struct ParameterRoles {
    /// Sizes.
    pub dims: Vec<i64>,
    /// One for each dimension.
    pub roles: Vec<Role>,
    /// Whether it is data rather than a weight: a dimension of it is the batch.
    pub is_data: bool,
}

/// Like values between the operations of a program that have a batch dimension: those of repeated layers are one class.
#[derive(Clone, Debug)]
pub struct ActivationClass {
    /// The operation that makes them.
    pub opcode: &'static str,
    /// Their sizes.
    pub dims: Vec<i64>,
    /// Which dimension is the batch.
    pub batch: usize,
    /// The instructions, of the prepared program.
    pub members: Vec<InstructionId>,
}

impl ActivationClass {
    /// Whether they are what layers hand on: sums that more than the next operation needs.
    pub(super) fn is_residual(&self) -> bool {
        self.opcode == "add"
    }
}

/// What a program's arrays are for.
#[derive(Debug)]
pub(super) struct ProgramRoles {
    pub parameters: Vec<ParameterRoles>,
    pub activations: Vec<ActivationClass>,
}

struct Sets {
    parent: Vec<u32>,
}

impl Sets {
    fn find(&mut self, mut x: u32) -> u32 {
        while self.parent[x as usize] != x {
            let up = self.parent[self.parent[x as usize] as usize];
            self.parent[x as usize] = up;
            x = up;
        }
        x
    }
    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.find(a), self.find(b));
        self.parent[a.max(b) as usize] = a.min(b);
    }
}

/// The roles of the entry's parameters, in their order, and of what is between; the module is prepared: no calls, a
/// computation for each loop. A parameter that is no array has no dimensions.
pub(super) fn program_roles(module: &Module) -> ProgramRoles {
    let graph = HloGraph::new(module, &sequential(module));
    let mut starts = Vec::with_capacity(graph.graph.values.len());
    let mut count = 0u32;
    for value in &graph.graph.values {
        starts.push(count);
        count += value.dims.len() as u32;
    }
    let at = |v: ValueRef, d: usize| starts[v.index()] + d as u32;
    let mut sets = Sets { parent: (0..count).collect() };
    for op in &graph.graph.ops {
        let mut first: FxHashMap<u16, u32> = FxHashMap::default();
        for (tensor, factors) in op.tensors.iter().zip(&op.rule.tensors) {
            let Some(value) = tensor.value else { continue };
            for (d, dim) in factors.iter().enumerate() {
                // The major factor stands for the dimension.
                let Some(&factor) = dim.first() else { continue };
                if op.rule.factors[usize::from(factor)].size < 2 {
                    continue;
                }
                match first.get(&factor) {
                    Some(&other) => sets.join(other, at(value, d)),
                    None => {
                        first.insert(factor, at(value, d));
                    }
                }
            }
        }
    }
    let Some(entry) = module.entry() else {
        return ProgramRoles { parameters: Vec::new(), activations: Vec::new() };
    };
    let parameters = module.parameters(entry);
    let mut components: Vec<Vec<u32>> = Vec::new();
    for &p in &parameters {
        let value = graph.values(module, p).first().copied().flatten();
        let rank = module[p].shape.as_array().map_or(0, |a| a.rank());
        components.push(match value {
            Some(v) => (0..rank).map(|d| sets.find(at(v, d))).collect(),
            None => Vec::new(),
        });
    }
    // In how many products each is a free or batch dimension, in how many it is summed over, in how many parameters it is.
    let mut kept: FxHashMap<u32, i64> = FxHashMap::default();
    let mut summed: FxHashMap<u32, i64> = FxHashMap::default();
    for (op, &i) in graph.graph.ops.iter().zip(&graph.instructions) {
        if !matches!(module[i].op, Op::Dot(_) | Op::Convolution(_)) {
            continue;
        }
        let mut seen: FxHashSet<(u32, bool)> = FxHashSet::default();
        for (tensor, factors) in op.tensors.iter().zip(&op.rule.tensors) {
            let Some(value) = tensor.value else { continue };
            for (d, dim) in factors.iter().enumerate() {
                let Some(&factor) = dim.first() else { continue };
                let is_sum = op.rule.factors[usize::from(factor)].kind == FactorKind::Reduction;
                if seen.insert((sets.find(at(value, d)), is_sum)) {
                    let table = if is_sum { &mut summed } else { &mut kept };
                    *table.entry(sets.find(at(value, d))).or_default() += 1;
                }
            }
        }
    }
    let mut owners: FxHashMap<u32, i64> = FxHashMap::default();
    for list in &components {
        for c in list.iter().copied().collect::<FxHashSet<u32>>() {
            *owners.entry(c).or_default() += 1;
        }
    }
    let of = |table: &FxHashMap<u32, i64>, c: u32| table.get(&c).copied().unwrap_or(0);
    // The batch is in most products, and in few parameters for that.
    let batch = owners
        .iter()
        .map(|(&c, &n)| (c, of(&kept, c) as f64 / (n * n) as f64, of(&summed, c)))
        .filter(|b| b.1 > 0.0)
        .max_by(|a, b| a.1.total_cmp(&b.1).then(b.2.cmp(&a.2)).then(b.0.cmp(&a.0)))
        .map(|b| b.0);
    let width = owners
        .iter()
        .filter(|&(&c, &n)| Some(c) != batch && n > 1)
        .max_by_key(|&(&c, &n)| (n, of(&summed, c), std::cmp::Reverse(c)))
        .map(|(&c, _)| c);
    let role = |&c: &u32| match c {
        c if Some(c) == batch => Role::Batch,
        c if Some(c) == width => Role::Width,
        _ => Role::Inner,
    };
    let describe = |(&p, list): (&InstructionId, &Vec<u32>)| {
        let roles: Vec<Role> = list.iter().map(role).collect();
        let dims = module[p].shape.as_array().filter(|_| !list.is_empty()).map_or(Vec::new(), |a| a.dims().to_vec());
        ParameterRoles { dims, is_data: roles.contains(&Role::Batch), roles }
    };
    let parameters = parameters.iter().zip(&components).map(describe).collect();
    let mut activations: BTreeMap<(&'static str, Vec<i64>, usize), Vec<InstructionId>> = BTreeMap::new();
    for &i in sequential(module).iter().flat_map(|&c| module[c].instructions()) {
        let is_meant = match module[i].op {
            Op::Dot(_) | Op::Convolution(_) | Op::Gather(_) => true,
            Op::Binary(BinaryOp::Add) => module[i].users().len() > 1,
            _ => false,
        };
        let Some(array) = module[i].shape.as_array().filter(|_| is_meant) else { continue };
        let Some(value) = graph.values(module, i).first().copied().flatten() else { continue };
        let is_batch = |d: &usize| Some(sets.find(at(value, *d))) == batch;
        if let Some(d) = (0..array.rank()).find(is_batch) {
            activations.entry((module[i].opcode().name(), array.dims().to_vec(), d)).or_default().push(i);
        }
    }
    let class = |((opcode, dims, batch), members)| ActivationClass { opcode, dims, batch, members };
    ProgramRoles { parameters, activations: activations.into_iter().map(class).collect() }
}

//! How the parameters and results of each computation are to lie, before any of them is written.

use super::axes::AxisSet;
use super::placement::Placement;
use super::spec::Spec;
use super::{Partitioner, Signature};
use hloom_ir::Op;
use hloom_ir::entity::{ComputationId, InstructionId};
use rustc_hash::{FxHashMap, FxHashSet};

impl Partitioner<'_> {
    /// The computations that are called, callees first, and conditions after the bodies of their loops: how these carry
    /// their state is found out on the way.
    pub(crate) fn bodies_first(&self, called: &FxHashSet<ComputationId>) -> Vec<ComputationId> {
        let all: Vec<ComputationId> =
            hloom_ir::order::computations(self.source).into_iter().filter(|c| called.contains(c)).collect();
        let mut body_of: FxHashMap<ComputationId, ComputationId> = FxHashMap::default();
        body_of.extend(self.loops.iter().map(|(&body, &condition)| (condition, body)));
        let mut order = Vec::with_capacity(all.len());
        let (mut written, mut waiting) = (FxHashSet::default(), FxHashSet::default());
        for c in all {
            if body_of.get(&c).is_some_and(|body| !written.contains(body)) {
                waiting.insert(c);
                continue;
            }
            order.push(c);
            written.insert(c);
            if let Some(condition) = self.loops.get(&c)
                && waiting.remove(condition)
            {
                order.push(*condition);
                written.insert(*condition);
            }
        }
        order
    }

    /// How each leaf of an instruction's value is to lie; nothing if nothing is said of it.
    pub(crate) fn annotated_leaves(&self, i: InstructionId) -> Vec<Spec> {
        self.annotations.leaves(i).cloned().collect()
    }

    /// How an array of the source is to lie.
    pub(crate) fn annotated_array(&self, i: InstructionId) -> Spec {
        self.annotations.leaves(i).next().cloned().unwrap_or_default()
    }

    pub(crate) fn find_signatures(&mut self, entry: ComputationId, called: &FxHashSet<ComputationId>) {
        let source = self.source;
        let own = |p: &Self, c: ComputationId| Signature {
            parameters: source.parameters(c).iter().map(|&i| p.annotated_leaves(i)).collect(),
            result: source.root(c).map_or_else(Vec::new, |r| p.annotated_leaves(r)),
        };
        let signature = own(self, entry);
        self.parameters = (0..)
            .zip(source.parameters(entry))
            .map(|(n, i)| self.placements(i, signature.parameters.get::<usize>(n).map_or(&[], |s| &s[..])))
            .collect();
        self.results = source.root(entry).map_or_else(Vec::new, |r| self.placements(r, &signature.result));
        self.signatures.insert(entry, signature);
        for &c in source.computations().iter().filter(|c| called.contains(c)) {
            for &i in source[c].instructions() {
                match &source[i].op {
                    Op::While { condition, body } => {
                        let has = source[i].common.sharding.is_some();
                        let root = source.root(*body);
                        let parameter = source.parameters(*body).first().copied();
                        let stated = |i: Option<InstructionId>| i.filter(|&i| source[i].common.sharding.is_some());
                        let from = if has { Some(i) } else { stated(parameter).or(stated(root)) };
                        let mut leaves = self.annotated_leaves(from.unwrap_or(i));
                        self.leave_stated_sums(*body, &mut leaves);
                        let boolean = vec![Spec {
                            manual: leaves.iter().fold(AxisSet::EMPTY, |m, s| m.union(s.manual)),
                            ..Spec::replicated(0)
                        }];
                        let body_signature = Signature { parameters: vec![leaves.clone()], result: leaves.clone() };
                        let condition_signature = Signature { parameters: vec![leaves], result: boolean };
                        self.loops.insert(*body, *condition);
                        self.signatures.entry(*body).or_insert(body_signature);
                        self.signatures.entry(*condition).or_insert(condition_signature);
                    }
                    Op::Conditional { branches } => {
                        for (n, &branch) in branches.iter().enumerate() {
                            let mut signature = own(self, branch);
                            let parameter = source.parameters(branch).first().copied();
                            if parameter.is_some_and(|p| source[p].common.sharding.is_none())
                                && let Some(&operand) = source[i].operands().get(n + 1)
                            {
                                signature.parameters = vec![self.annotated_leaves(operand)];
                            }
                            signature.result = self.annotated_leaves(i);
                            self.signatures.entry(branch).or_insert(signature);
                        }
                    }
                    Op::Call { to_apply, .. } => {
                        let mut signature = own(self, *to_apply);
                        for (n, &p) in source.parameters(*to_apply).iter().enumerate() {
                            if source[p].common.sharding.is_none()
                                && let Some(&operand) = source[i].operands().get(n)
                            {
                                signature.parameters[n] = self.annotated_leaves(operand);
                            }
                        }
                        signature.result = self.annotated_leaves(i);
                        self.signatures.entry(*to_apply).or_insert(signature);
                    }
                    _ => {}
                }
            }
        }
    }

    /// How the leaves of an argument or a result lie, in the order of devices that is stated of it.
    fn placements(&self, i: InstructionId, specs: &[Spec]) -> Vec<Placement> {
        let stated = self.source[i].common.sharding.as_deref().map_or(&[][..], |s| s.leaves());
        let leaf = |n: usize| if stated.len() == 1 { stated.first() } else { stated.get(n) };
        specs.iter().enumerate().map(|(n, spec)| Placement::new(&self.axes, leaf(n), spec.clone())).collect()
    }
}

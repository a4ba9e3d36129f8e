//! How the parameters and results of each computation are to lie, before any of them is written.

use super::axes::AxisSet;
use super::placement::Placement;
use super::spec::Spec;
use super::{Emit, Partitioner, Signature, error};
use hloom_ir::diagnostic::Part as DiagnosticPart;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::shape::ArrayShape;
use hloom_ir::{Op, Shape};
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

    /// Shardings that no array can have.
    pub(crate) fn check_shardings(&self) -> Emit<()> {
        let devices = self.axes.devices();
        for &c in self.source.computations() {
            for &i in self.source[c].instructions() {
                let Some(sharding) = self.source[i].common.sharding.as_deref() else { continue };
                for leaf in sharding.leaves() {
                    let Some(tiles) = super::axes::tiles_of(&leaf.kind) else { continue };
                    let tiles = tiles.dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
                    if tiles != Some(devices) {
                        let tiles = tiles.map_or("too many".into(), |t| t.to_string());
                        return Err(error(format!("a sharding is for {tiles} devices, the program for {devices}"))
                            .at_instruction(i, DiagnosticPart::Attribute("sharding")));
                    }
                }
            }
        }
        Ok(())
    }

    /// How each leaf of an instruction's value is to lie; nothing if nothing is said of it.
    pub(crate) fn annotated_leaves(&self, i: InstructionId) -> Vec<Spec> {
        let instruction = &self.source[i];
        let leaves = instruction.shape.leaves();
        let sharding = instruction.common.sharding.as_deref();
        let given = sharding.map_or(&[][..], |s| s.leaves());
        let rank = |shape: &Shape| shape.as_array_or_buffer().map_or(0, ArrayShape::rank);
        let spec = |(n, (_, shape)): (usize, &(_, &Shape))| {
            let leaf = if given.len() == 1 { given.first() } else { given.get(n) };
            let mut spec = leaf
                .and_then(|leaf| Spec::from_sharding(&self.axes, leaf, rank(shape)))
                .unwrap_or_else(|| Spec::replicated(rank(shape)));
            // Arrays without elements are whole everywhere.
            if shape.as_array().is_some_and(|a| a.element_count() == Some(0)) {
                spec.dims.iter_mut().for_each(|d| d.clear());
            }
            spec
        };
        leaves.iter().enumerate().map(spec).collect()
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

//! Computations one by one, callees first: their parameters and results as signatures say, their instructions by opcode.

use super::axes::AxisSet;
use super::body::{Body, Free, Part, Val};
use super::placement::Placement;
use super::spec::Spec;
use super::{Emit, PARTITIONED_MARK, Partitioner, Reason, Signature, error};
use hloom_ir::diagnostic::Part as DiagnosticPart;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::order::PostOrder;
use hloom_ir::shape::{ArrayShape, ProgramShape};
use hloom_ir::{Op, Shape};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The entry and whatever it calls, directly or not.
fn called_from(module: &Module, entry: ComputationId) -> FxHashSet<ComputationId> {
    let mut called = FxHashSet::from_iter([entry]);
    let mut pending = vec![entry];
    while let Some(c) = pending.pop() {
        for &i in module[c].instructions() {
            pending.extend(module[i].op.called_computations().iter().copied().filter(|&callee| called.insert(callee)));
        }
    }
    called
}

impl Partitioner<'_> {
    pub(crate) fn run(&mut self) -> Emit<()> {
        let source = self.source;
        let entry = source.entry().ok_or_else(|| error("the module has no entry computation"))?;
        self.check_shardings()?;
        // What nothing calls any more, since calls were put in place, is left out.
        let called = called_from(source, entry);
        self.find_signatures(entry, &called);
        let (effects, _) = hloom_analysis::effects::instructions_with(source, hloom_analysis::effects::has_side_effect);
        let mut post_order = PostOrder::new(source);
        for c in self.bodies_first(&called) {
            if self.signatures.contains_key(&c) {
                let order = post_order.instructions(c);
                let mut live = vec![false; order.len()];
                let position: FxHashMap<InstructionId, usize> =
                    order.iter().enumerate().map(|(n, &i)| (i, n)).collect();
                for (n, &i) in order.iter().enumerate().rev() {
                    let kept = live[n] || source.root(c) == Some(i) || effects[i];
                    let kept = kept || matches!(source[i].op, Op::Parameter { .. });
                    live[n] = kept;
                    if kept {
                        for o in source[i].operands().iter().chain(source[i].common.control_predecessors()) {
                            live[position[o]] = true;
                        }
                    }
                }
                let order: Vec<InstructionId> =
                    order.iter().enumerate().filter(|&(n, _)| live[n]).map(|(_, &i)| i).collect();
                self.predict(&order);
                self.find_accumulators(c);
                self.write_computation(c, &order)?;
            } else {
                self.copy_computation(c)?;
            }
        }
        self.target.set_entry(self.computations[&entry]);
        self.finish_header(entry)
    }

    /// The computations that are called, callees first, and conditions after the bodies of their loops: how these carry
    /// their state is found out on the way.
    fn bodies_first(&self, called: &FxHashSet<ComputationId>) -> Vec<ComputationId> {
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
    fn check_shardings(&self) -> Emit<()> {
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

    fn find_signatures(&mut self, entry: ComputationId, called: &FxHashSet<ComputationId>) {
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

    /// A computation of scalars, such as a reducer, as it is.
    fn copy_computation(&mut self, c: ComputationId) -> Emit<()> {
        let mut computations = std::mem::take(&mut self.computations);
        let copied = self.copy_from(self.source, c, &mut computations);
        self.computations = computations;
        copied.map(|_| ())
    }

    /// A computation of a module as it is; `computations` has what stands for those that it calls.
    pub(crate) fn copy_from(
        &mut self,
        module: &Module,
        c: ComputationId,
        computations: &mut FxHashMap<ComputationId, ComputationId>,
    ) -> Emit<ComputationId> {
        let copy = self.target.add_unlisted_computation(module[c].name());
        let mut copies: FxHashMap<InstructionId, InstructionId> = FxHashMap::default();
        for i in PostOrder::new(module).instructions(c) {
            let instruction = &module[i];
            let mut op = instruction.op.clone();
            for called in op.called_computations_mut() {
                *called = computations[called];
            }
            let mut common = instruction.common.clone();
            common.sharding = None;
            if let Some(rare) = &mut common.rare {
                rare.control_predecessors = rare.control_predecessors.iter().map(|p| copies[p]).collect();
            }
            let new = NewInstruction {
                name: instruction.name().into(),
                op,
                shape: instruction.shape.clone(),
                operands: instruction.operands().iter().map(|o| copies[o]).collect(),
                common,
            };
            copies.insert(i, self.target.add_instruction(copy, new));
        }
        let root = module.root(c).ok_or_else(|| error("a computation is empty"))?;
        self.target.set_root(copies[&root]);
        self.target.list_computation(copy);
        self.target.computation_mut(copy).execution_thread = module[c].execution_thread.clone();
        computations.insert(c, copy);
        Ok(copy)
    }

    fn write_computation(&mut self, c: ComputationId, order: &[InstructionId]) -> Emit<()> {
        let is_loop = self.loops.contains_key(&c);
        self.write_signed(c, order, is_loop)
    }

    /// Writes a computation by its signature; `again` if another signature may be found better on the way.
    fn write_signed(&mut self, c: ComputationId, order: &[InstructionId], again: bool) -> Emit<()> {
        let source = self.source;
        let (notes, gathered) = (self.notes.len(), self.gathered.len());
        let signature = self.signatures[&c].clone();
        let mut body = Body::new(self, source[c].name());
        body.root = source.root(c);
        body.result = signature.result.clone();
        let is_entry = source.entry() == Some(c);
        for (n, (parameter, specs)) in source.parameters(c).into_iter().zip(&signature.parameters).enumerate() {
            body.at = Some(parameter);
            let shape = body.local_shape(&source[parameter].shape, specs);
            let id = body.add_shaped(source[parameter].op.clone(), &[], Some(shape))?;
            body.p.target.rename(id, source[parameter].name());
            body.p.target.instruction_mut(id).common.rare = source[parameter].common.rare.clone();
            let mut value = body.unpack(id, &source[parameter].shape, &mut specs.iter().cloned())?;
            if is_entry && let Some(placements) = body.p.parameters.get(n).cloned() {
                value = body.entered(value, &mut placements.iter())?;
            }
            body.values.insert(parameter, value);
        }
        for &i in order {
            if matches!(source[i].op, Op::Parameter { .. }) {
                continue;
            }
            body.at = Some(i);
            body.reason = Reason::Reshard;
            let value = body.instruction(i)?;
            if source[i].users().len() > 1
                && let Val::Array(part) = &value
            {
                body.p.shared.insert(part.id);
            }
            body.values.insert(i, value);
        }
        let root = source.root(c).ok_or_else(|| error("a computation is empty"))?;
        body.at = Some(root);
        body.reason = Reason::Reshard;
        let value = body.value(root)?;
        if again && let Some(better) = body.better_carries(c, &value, &signature) {
            // What was written is not listed, and so is not part of the module.
            let condition = self.loops[&c];
            if let Some(of) = self.signatures.get_mut(&condition) {
                of.parameters = better.parameters.clone();
            }
            self.signatures.insert(c, better);
            self.notes.truncate(notes);
            self.gathered.truncate(gathered);
            return self.write_signed(c, order, false);
        }
        let placements = if is_entry { body.p.results.clone() } else { Vec::new() };
        let value = body.left(value, &mut placements.iter())?;
        let id = body.pack(&value, &mut signature.result.iter().cloned())?;
        let computation = body.computation;
        self.target.set_root(id);
        self.target.list_computation(computation);
        self.remove_dead(computation)?;
        self.target.computation_mut(computation).execution_thread = source[c].execution_thread.clone();
        self.computations.insert(c, computation);
        Ok(())
    }

    /// Removes what nothing needs: forms of values that another form made superfluous, with their collectives.
    fn remove_dead(&mut self, computation: ComputationId) -> Emit<()> {
        let target = &self.target;
        let effects = hloom_analysis::effects::has_side_effect;
        let listed = target[computation].instructions();
        let mut live: FxHashSet<InstructionId> = FxHashSet::default();
        for &i in listed.iter().rev() {
            let instruction = &target[i];
            let kept = live.contains(&i)
                || target.root(computation) == Some(i)
                || matches!(instruction.op, Op::Parameter { .. })
                || effects(&instruction.op)
                || instruction.op.called_computations().iter().any(|c| self.effects.contains(c));
            if kept {
                live.insert(i);
                live.extend(instruction.operands());
            }
        }
        let dead: Vec<InstructionId> = listed.iter().copied().filter(|i| !live.contains(i)).collect();
        if listed.iter().any(|&i| {
            let op = &target[i].op;
            live.contains(&i) && (effects(op) || op.called_computations().iter().any(|c| self.effects.contains(c)))
        }) {
            self.effects.insert(computation);
        }
        let gone: FxHashSet<InstructionId> = dead.iter().copied().collect();
        self.notes.retain(|n| !gone.contains(&n.instruction));
        self.target.remove_instructions(&dead).map_err(|e| error(format!("an edit of the program failed: {e:?}")))
    }

    fn finish_header(&mut self, entry: ComputationId) -> Emit<()> {
        let source = self.source;
        let config = &mut self.target.config;
        *config = source.config.clone();
        config.num_partitions = self.axes.devices();
        config.allow_spmd_sharding_propagation_to_output.clear();
        config.allow_spmd_sharding_propagation_to_parameters.clear();
        config.frontend_attributes.retain(|name, _| !name.starts_with("xla.sdy"));
        config.frontend_attributes.insert(PARTITIONED_MARK.into(), "true".into());
        config.entry_layout = None;
        let entry_target = self.computations[&entry];
        let shape: Option<ProgramShape> = self.target.program_shape(entry_target);
        // Parts lie as the whole is to lie.
        self.target.config.entry_layout = match (shape, &source.config.entry_layout) {
            (Some(shape), Some(whole)) => Some(shape.with_layouts_of(whole)),
            (shape, _) => shape,
        };
        self.target.stack_frames = source.stack_frames.clone();
        Ok(())
    }
}

impl Body<'_, '_> {
    /// What stands for an instruction of the source.
    pub(crate) fn value(&self, i: InstructionId) -> Emit<Val> {
        self.values.get(&i).cloned().ok_or_else(|| self.error(format!("operand {} has no value", i.index())))
    }

    /// How many instructions of the source use `i`.
    pub(crate) fn uses(&self, i: InstructionId) -> usize {
        self.p.source[i].users().len()
    }

    /// An operand that is an array, as it lies.
    pub(crate) fn raw_part(&self, i: InstructionId) -> Emit<Part> {
        match self.value(i)? {
            Val::Array(part) => Ok(part),
            _ => Err(self.error("an array is expected, not a tuple")),
        }
    }

    /// An operand that is an array; parts that several users would complete each for itself are completed here.
    pub(crate) fn part(&mut self, i: InstructionId) -> Emit<Part> {
        let part = self.raw_part(i)?;
        if part.spec.partial.is_empty() || self.uses(i) <= 1 {
            return Ok(part);
        }
        let annotated = self.annotated_array(i);
        // The program itself wants it so.
        if part.spec.partial.without(annotated.partial).is_empty() {
            return Ok(part);
        }
        let complete = self.resharded(&part, &Spec { manual: part.spec.manual, ..annotated.complete() })?;
        self.p.shared.insert(complete.id);
        self.values.insert(i, Val::Array(complete.clone()));
        Ok(complete)
    }

    /// An operand of an operation through which sums may stay in parts.
    pub(crate) fn linear_part(&mut self, i: InstructionId) -> Emit<Part> {
        let part = self.part(i)?;
        if part.spec.partial.is_empty() || part.spec.reduction == super::spec::Reduction::Sum {
            return Ok(part);
        }
        let complete = part.spec.complete();
        self.resharded(&part, &complete)
    }

    pub(crate) fn parts(&mut self, operands: &[InstructionId]) -> Emit<Vec<Part>> {
        operands.iter().map(|&o| self.part(o)).collect()
    }

    /// The whole shape of an instruction of the source that is an array.
    pub(crate) fn array_shape(&self, i: InstructionId) -> Emit<Arc<ArrayShape>> {
        match self.p.source[i].shape.as_array_or_buffer() {
            Some(array) => Ok(Arc::new(array.without_layout())),
            None => Err(self.error("an array is expected")),
        }
    }

    /// How an array of the source is to lie.
    pub(crate) fn annotated_array(&self, i: InstructionId) -> Spec {
        self.p.annotated_leaves(i).into_iter().next().unwrap_or_default()
    }

    /// How an array of the source is needed: as its only user needs it, where that is a mere change of form or the result
    /// of the computation; otherwise as its own sharding says.
    pub(crate) fn wanted_array(&self, i: InstructionId) -> Spec {
        let source = self.p.source;
        let own = self.annotated_array(i);
        let mut at = i;
        let mut element: Option<usize> = None;
        for _ in 0..8 {
            if self.root == Some(at) {
                let flat = source[at].shape.as_tuple().is_none_or(|t| t.iter().all(Shape::is_array));
                let spec = self.result.get(element.unwrap_or(0)).filter(|s| flat && s.dims.len() == own.dims.len());
                return spec.map_or(own.clone(), |s| Spec { manual: own.manual, ..s.clone() });
            }
            let [user] = source[at].users() else { return own };
            let operands = source[*user].operands();
            match &source[*user].op {
                Op::Copy if element.is_none() && source[*user].common.sharding.is_some() => {
                    return Spec { manual: own.manual, ..self.annotated_array(*user) };
                }
                Op::CustomCall(call) if element.is_none() && &*call.target == "Sharding" => {
                    return Spec { manual: own.manual, ..self.annotated_array(*user) };
                }
                Op::Tuple if element.is_none() && operands.iter().filter(|&&o| o == at).count() == 1 => {
                    element = operands.iter().position(|&o| o == at);
                }
                Op::GetTupleElement { index } if element == Some(*index as usize) => element = None,
                _ => return own,
            }
            at = *user;
        }
        own
    }

    pub(crate) fn manual_of(&self, parts: &[Part], wanted: &Spec) -> AxisSet {
        parts.iter().fold(wanted.manual, |m, p| m.union(p.spec.manual))
    }

    pub(crate) fn array(&self, id: InstructionId, shape: Arc<ArrayShape>, spec: Spec) -> Val {
        Val::Array(Part { id, shape, spec, free: None })
    }

    /// The operation with the computations it calls replaced by those of the target.
    pub(crate) fn local_op(&self, op: &Op) -> Emit<Op> {
        let mut op = op.clone();
        for called in op.called_computations_mut() {
            let target = self.p.computations.get(called).copied();
            *called = target.ok_or_else(|| self.error("a called computation is not written yet"))?;
        }
        // Layouts that a call asks for are of whole arrays; `inherit` gives it those of shards.
        if let Op::CustomCall(call) = &mut op {
            call.operand_layouts = None;
        }
        Ok(op)
    }

    /// The shape of a value whose leaves lie in those ways.
    pub(crate) fn local_shape(&self, shape: &Shape, specs: &[Spec]) -> Shape {
        fn walk(axes: &super::axes::DeviceAxes, shape: &Shape, specs: &mut std::slice::Iter<'_, Spec>) -> Shape {
            match shape {
                Shape::Tuple(elements) => Shape::tuple(elements.iter().map(|e| walk(axes, e, specs))),
                Shape::Array(a) => match specs.next() {
                    Some(spec) => Shape::array(a.element_type, spec.local_dims(axes, a.dims())),
                    None => shape.clone(),
                },
                other => {
                    specs.next();
                    other.clone()
                }
            }
        }
        walk(self.axes(), shape, &mut specs.iter())
    }

    /// An instruction of the target as a value, its elements taken out of tuples.
    pub(crate) fn unpack(
        &mut self,
        id: InstructionId,
        shape: &Shape,
        specs: &mut impl Iterator<Item = Spec>,
    ) -> Emit<Val> {
        match shape {
            Shape::Tuple(elements) => {
                let mut values = Vec::new();
                for (n, element) in elements.iter().enumerate() {
                    let id = self.add(Op::GetTupleElement { index: n as i64 }, &[id])?;
                    values.push(self.unpack(id, element, specs)?);
                }
                Ok(Val::Tuple(values))
            }
            Shape::Array(a) => {
                let spec = specs.next().unwrap_or_else(|| Spec::replicated(a.rank()));
                Ok(Val::Array(Part { id, shape: Arc::new(a.without_layout()), spec, free: None }))
            }
            _ => {
                specs.next();
                Ok(Val::Other(id))
            }
        }
    }

    /// A value as an instruction of the target, its leaves in those forms.
    pub(crate) fn pack(&mut self, value: &Val, specs: &mut impl Iterator<Item = Spec>) -> Emit<InstructionId> {
        match value {
            Val::Array(part) => {
                let spec = specs.next().unwrap_or_else(|| part.spec.complete());
                let spec = Spec { manual: part.spec.manual, ..spec };
                self.reshard(part, &spec)
            }
            Val::Tuple(elements) => {
                let mut ids = Vec::new();
                for element in elements {
                    ids.push(self.pack(element, specs)?);
                }
                self.add(Op::Tuple, &ids)
            }
            Val::Other(id) => {
                specs.next();
                Ok(*id)
            }
        }
    }

    /// Writes one instruction of the source.
    fn instruction(&mut self, at: InstructionId) -> Emit<Val> {
        let source = self.p.source;
        let operands = source[at].operands();
        if let Some(value) = self.all_manual(at)? {
            return Ok(value);
        }
        if let Some(value) = self.nothing(at)? {
            return Ok(value);
        }
        match &source[at].op {
            Op::Constant(value) => self.constant(at, value),
            Op::Iota { dimension } => {
                let shape = self.array_shape(at)?;
                let spec = self.annotated_array(at).complete();
                let dimension = *dimension as usize;
                let whole = Spec { manual: spec.manual, ..Spec::replicated(shape.rank()) };
                let id = self.iota(shape.element_type, shape.dims(), dimension)?;
                let part = Part { id, shape, spec: whole, free: Some(Free::Iota(dimension)) };
                Ok(Val::Array(self.resharded(&part, &spec)?))
            }
            Op::Tuple => Ok(Val::Tuple(operands.iter().map(|&o| self.value(o)).collect::<Emit<_>>()?)),
            Op::GetTupleElement { index } => match self.value(operands[0])? {
                Val::Tuple(elements) => {
                    elements.get(*index as usize).cloned().ok_or_else(|| self.error("a tuple has fewer elements"))
                }
                _ => Err(self.error("an element is taken of what is not a tuple")),
            },
            Op::Copy | Op::Domain(_) => self.copied(at),
            Op::OptBarrier => self.barrier(at),
            Op::AfterAll | Op::AddDependency => self.ordering(at),
            Op::Unary { .. }
            | Op::Binary(_)
            | Op::Compare { .. }
            | Op::Select
            | Op::Clamp
            | Op::Convert
            | Op::ReducePrecision { .. }
            | Op::StochasticConvert
            | Op::Map { .. } => self.elementwise(at),
            Op::BitcastConvert => self.bitcast_converted(at),
            Op::Transpose { dimensions } => self.transposed(at, dimensions),
            Op::Broadcast { dimensions } => self.broadcasted(at, dimensions),
            Op::Reshape { .. } | Op::Bitcast => self.reshaped(at),
            Op::Dot(dot) => self.dot(at, dot),
            Op::RaggedDot(dot) => self.ragged_dot(at, dot),
            Op::Reduce { dimensions, to_apply } => self.reduced(at, dimensions, *to_apply),
            Op::Slice { dims } => self.sliced(at, dims),
            Op::Pad { padding } => self.padded(at, padding),
            Op::Concatenate { dimension } => self.concatenated(at, *dimension as usize),
            Op::Reverse { dimensions } => self.reversed(at, dimensions),
            Op::DynamicSlice { sizes } => self.dynamic_sliced(at, sizes),
            Op::DynamicUpdateSlice => self.dynamic_updated(at),
            Op::Gather(gather) => self.gathered(at, gather),
            Op::Scatter(scatter) => self.scattered(at, scatter),
            Op::Convolution(convolution) => self.convolved(at, convolution),
            Op::ReduceWindow { window, .. } => self.reduce_window(at, window),
            Op::SelectAndScatter { window, .. } => self.select_and_scatter(at, window),
            Op::Sort { dimension, .. } => self.sorted(at, *dimension as usize),
            Op::TopK { k, largest, .. } => self.top_k(at, *k, *largest),
            Op::Fft { length, .. } => self.batched(at, length.len()),
            Op::Cholesky { .. } => self.batched(at, 2),
            Op::TriangularSolve { left_side, .. } => self.triangular_solve(at, *left_side),
            Op::While { body, .. } => self.while_loop(at, *body),
            Op::Conditional { branches } => self.conditional(at, branches),
            Op::Call { to_apply, .. } => self.call(at, *to_apply),
            Op::CustomCall(call) => self.custom_call(at, call),
            op if op.collective().is_some() => self.manual_collective(at),
            Op::CollectivePermute(_) => self.manual_collective(at),
            Op::Infeed { .. } | Op::Outfeed { .. } | Op::Send(_) | Op::Recv(_) | Op::SendDone(_) | Op::RecvDone(_) => {
                self.transfer(at)
            }
            _ => self.compute_whole(at),
        }
    }
}

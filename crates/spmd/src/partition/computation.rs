//! Computations one by one, callees first: their parameters and results as signatures say, their instructions by opcode.

use super::body::{Body, Free, Part, Val};
use super::spec::Spec;
use super::values::Values;
use super::{Emit, PARTITIONED_MARK, Partitioner, Reason, error};
use hloom_ir::Op;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId, SideTable};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::order::PostOrder;
use hloom_ir::shape::ProgramShape;
use rustc_hash::{FxHashMap, FxHashSet};

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
        // What nothing calls any more, since calls were put in place, is left out.
        let called = called_from(source, entry);
        self.target.reserve_instructions(source.instruction_count() + source.instruction_count() / 4);
        self.find_signatures(entry, &called);
        let (effects, _) = hloom_analysis::effects::instructions_with(source, hloom_analysis::effects::has_side_effect);
        let mut post_order = PostOrder::new(source);
        let mut live = SideTable::with_len(source.instruction_slots(), false);
        for c in self.bodies_first(&called) {
            if self.signatures.contains_key(&c) {
                let mut order = post_order.instructions(c);
                for &i in order.iter().rev() {
                    let kept = live[i] || source.root(c) == Some(i) || effects[i];
                    if kept || matches!(source[i].op, Op::Parameter { .. }) {
                        live.set(i, true);
                        for &o in source[i].operands().iter().chain(source[i].common.control_predecessors()) {
                            live.set(o, true);
                        }
                    }
                }
                order.retain(|&i| live[i]);
                self.predict(&order);
                self.find_elements(&order);
                self.find_accumulators(c);
                self.write_computation(c, &order)?;
            } else {
                self.copy_computation(c)?;
            }
        }
        self.target.set_entry(self.computations[&entry]);
        self.finish_header(entry)
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
        body.values = Values::with_capacity(order.len());
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
                body.remember_entry(&value, &mut placements.iter());
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
        let value = body.value(root)?.clone();
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
        let listed = target[computation].instructions();
        let Some(base) = listed.first().map(|i| i.index()) else { return Ok(()) };
        let root = target.root(computation);
        // What was added since the computation was begun is its own, but for computations made on the way.
        let mut live = vec![false; target.instruction_slots() - base];
        let mut dead = Vec::new();
        let mut does_more = false;
        for &i in listed.iter().rev() {
            let instruction = &target[i];
            let has_effect = hloom_analysis::effects::has_side_effect(&instruction.op)
                || instruction.op.called_computations().iter().any(|c| self.effects.contains(c));
            does_more |= has_effect;
            let is_live = live[i.index() - base];
            if is_live || has_effect || root == Some(i) || matches!(instruction.op, Op::Parameter { .. }) {
                instruction.operands().iter().for_each(|o| live[o.index() - base] = true);
            } else {
                dead.push(i);
            }
        }
        dead.reverse();
        if does_more {
            self.effects.insert(computation);
        }
        self.notes.retain(|n| dead.binary_search(&n.instruction).is_err());
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
            Op::Tuple => Ok(Val::Tuple(operands.iter().map(|&o| self.value(o).cloned()).collect::<Emit<_>>()?)),
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

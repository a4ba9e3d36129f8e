//! Loops, conditionals, calls, and what only orders or carries values.

use super::Emit;
use super::body::{Body, Part, Val};
use super::spec::Spec;
use super::whole::leaf_specs;
use hloom_ir::Op;
use hloom_ir::entity::{ComputationId, InstructionId};

impl Body<'_, '_> {
    pub(crate) fn while_loop(&mut self, at: InstructionId, body: ComputationId) -> Emit<Val> {
        let source = self.p.source;
        let op = self.local_op(&source[at].op)?;
        let specs = self.p.signatures[&body].result.clone();
        let init = self.value(source[at].operands()[0])?.clone();
        let init = self.pack(&init, &mut specs.iter().cloned())?;
        let id = self.add(op, &[init])?;
        self.inherit(id, at);
        // How often it runs is seen more easily in the source than in what a device does.
        if self.p.target[id].common.backend_config.is_none()
            && let Some(n) = hloom_analysis::trip_count::trip_count(source, at)
        {
            let config = format!("{{\"known_trip_count\":{{\"n\":\"{n}\"}}}}");
            self.p.target.instruction_mut(id).common.backend_config = Some(config.into_bytes().into());
        }
        self.unpack(id, &source[at].shape, &mut specs.into_iter())
    }

    pub(crate) fn conditional(&mut self, at: InstructionId, branches: &[ComputationId]) -> Emit<Val> {
        let source = self.p.source;
        let op = self.local_op(&source[at].op)?;
        let operands = source[at].operands();
        let index = self.part(operands[0])?;
        let mut ids = vec![self.reshard(&index, &index.spec.complete())?];
        for (&operand, branch) in operands[1..].iter().zip(branches) {
            let specs = self.p.signatures[branch].parameters.first().cloned().unwrap_or_default();
            let value = self.value(operand)?.clone();
            ids.push(self.pack(&value, &mut specs.into_iter())?);
        }
        let specs = self.p.signatures[&branches[0]].result.clone();
        if branches.iter().any(|b| self.p.signatures[b].result != specs) {
            return Err(self.error("a computation is a branch of conditionals whose results lie differently"));
        }
        let id = self.add(op, &ids)?;
        self.inherit(id, at);
        self.unpack(id, &source[at].shape, &mut specs.into_iter())
    }

    pub(crate) fn call(&mut self, at: InstructionId, callee: ComputationId) -> Emit<Val> {
        let source = self.p.source;
        let op = self.local_op(&source[at].op)?;
        let signature = self.p.signatures[&callee].clone();
        let mut ids = Vec::new();
        for (&operand, specs) in source[at].operands().iter().zip(&signature.parameters) {
            let value = self.value(operand)?.clone();
            ids.push(self.pack(&value, &mut specs.iter().cloned())?);
        }
        let id = self.add(op, &ids)?;
        self.inherit(id, at);
        self.unpack(id, &source[at].shape, &mut signature.result.into_iter())
    }

    /// A copy: where its sharding is another than its operand's, this is where the value is brought into it.
    pub(crate) fn copied(&mut self, at: InstructionId) -> Emit<Val> {
        let source = self.p.source;
        let operand = source[at].operands()[0];
        let value = self.value(operand)?.clone();
        if source[at].common.sharding.is_none() {
            return Ok(value);
        }
        let mut specs = self.p.annotated_leaves(at).into_iter();
        self.placed(value, &mut specs)
    }

    fn placed(&mut self, value: Val, specs: &mut impl Iterator<Item = Spec>) -> Emit<Val> {
        Ok(match value {
            Val::Array(part) => match specs.next() {
                Some(spec) => Val::Array(self.resharded(&part, &Spec { manual: part.spec.manual, ..spec })?),
                None => Val::Array(part),
            },
            Val::Tuple(elements) => {
                Val::Tuple(elements.into_iter().map(|e| self.placed(e, specs)).collect::<Emit<Vec<_>>>()?)
            }
            Val::Other(id) => {
                specs.next();
                Val::Other(id)
            }
        })
    }

    pub(crate) fn barrier(&mut self, at: InstructionId) -> Emit<Val> {
        let source = self.p.source;
        let value = self.value(source[at].operands()[0])?.clone();
        let mut specs = Vec::new();
        leaf_specs(&value, &mut specs);
        specs.iter_mut().for_each(|s| *s = s.complete());
        let id = self.pack(&value, &mut specs.iter().cloned())?;
        let id = self.add(Op::OptBarrier, &[id])?;
        self.unpack(id, &source[at].shape, &mut specs.into_iter())
    }

    /// The operands of an instruction, as they lie but for sums, which are made.
    pub(crate) fn complete_operands(&mut self, at: InstructionId) -> Emit<Vec<InstructionId>> {
        let source = self.p.source;
        let mut ids = Vec::new();
        for &o in source[at].operands() {
            let value = self.value(o)?.clone();
            let mut specs = Vec::new();
            leaf_specs(&value, &mut specs);
            ids.push(self.pack(&value, &mut specs.into_iter().map(|s| s.complete()))?);
        }
        Ok(ids)
    }

    /// Tokens, and values that wait for one.
    pub(crate) fn ordering(&mut self, at: InstructionId) -> Emit<Val> {
        let source = self.p.source;
        let ids = self.complete_operands(at)?;
        let id = self.add(source[at].op.clone(), &ids)?;
        let first = source[at].operands().first().map(|&o| self.value(o).cloned()).transpose()?;
        match first {
            Some(Val::Array(part)) if matches!(source[at].op, Op::AddDependency) => {
                Ok(Val::Array(Part { id, spec: part.spec.complete(), free: None, ..part }))
            }
            _ => Ok(Val::Other(id)),
        }
    }
}

//! Copies of instructions into other computations: cloning, inlining and outlining.
//!
//! Each is linear in what is copied and in the users of what is replaced. What has been copied stays where it was, so that
//! an edit of many places removes it all at once.

use super::EditError;
use crate::entity::{ComputationId, InstructionId};
use crate::instruction::{Common, Operands};
use crate::module::{Module, NewInstruction};
use crate::op::Op;
use crate::shape::Shape;
use rustc_hash::FxHashMap;

/// Which copy stands for an instruction.
type Copies = FxHashMap<InstructionId, InstructionId>;

/// What was outlined.
#[derive(Clone, Debug)]
pub struct Outlined {
    /// The instruction that calls the new computation.
    pub call: InstructionId,
    /// Each of the results, and what has its value now.
    pub values: Vec<(InstructionId, InstructionId)>,
}

impl Module {
    /// A copy of `computation` under a name like `name`; computations it calls are shared.
    pub fn clone_computation(&mut self, computation: ComputationId, name: &str) -> ComputationId {
        let copy = self.add_computation(name);
        let mut copies = Copies::default();
        let originals = self[computation].instructions().to_vec();
        self.copy_instructions(&originals, copy, &mut copies);
        self.computations[copy].root = self.computations[computation].root.and_then(|r| copies.get(&r).copied());
        self.computations[copy].execution_thread = self.computations[computation].execution_thread.clone();
        copy
    }

    /// Copies the instructions of `callee` to the end of `into`, with `arguments` in place of its parameters, and returns
    /// what stands for its root; `None` if the callee is empty or takes more arguments than there are.
    pub fn inline_computation(
        &mut self,
        into: ComputationId,
        callee: ComputationId,
        arguments: &[InstructionId],
    ) -> Option<InstructionId> {
        let root = self.root(callee)?;
        let parameters = self.parameters(callee);
        if parameters.len() > arguments.len() || arguments.iter().any(|&a| self[a].parent() != into) {
            return None;
        }
        // An empty list of instructions has the last one as its root; the copies must not become it.
        self.computations[into].root = self.root(into);
        let mut copies: Copies = parameters.iter().copied().zip(arguments.iter().copied()).collect();
        let body: Vec<InstructionId> =
            self[callee].instructions().iter().copied().filter(|i| !copies.contains_key(i)).collect();
        self.copy_instructions(&body, into, &mut copies);
        copies.get(&root).copied()
    }

    /// Makes a computation of `members`, which are instructions of one computation, and an instruction that calls it, by
    /// the operation that `call` makes. What the members read from outside becomes its parameters, in the order in which
    /// they read it; `results`, which are members, become its result: as they are if there is one, otherwise a tuple.
    /// Users of the results use the call from then on. The members are left for the caller to remove, or to keep where
    /// others still use them.
    pub fn outline(
        &mut self,
        members: &[InstructionId],
        results: &[InstructionId],
        name: &str,
        call: impl FnOnce(ComputationId) -> Op,
    ) -> Result<InstructionId, EditError> {
        let outlined = self.outline_beside(members, results, name, call)?;
        for &(result, value) in &outlined.values {
            self.replace_all_uses(result, value)?;
        }
        Ok(outlined.call)
    }

    /// As [`Module::outline`], but users of the results still use the members: of several sets of members that have some
    /// in common each reads its own only if all are outlined before users change.
    pub fn outline_beside(
        &mut self,
        members: &[InstructionId],
        results: &[InstructionId],
        name: &str,
        call: impl FnOnce(ComputationId) -> Op,
    ) -> Result<Outlined, EditError> {
        let (Some(&first), Some(&lead)) = (members.first(), results.last()) else {
            return Err(EditError::NoSuchOperand);
        };
        let home = self[first].parent();
        if members.iter().chain(results).any(|&m| self[m].parent() != home) {
            return Err(EditError::OtherComputation);
        }
        let mut copies: Copies = members.iter().map(|&m| (m, m)).collect();
        let computation = self.add_computation(name);
        let mut arguments = Operands::new();
        for &member in members {
            for operand in self[member].operands.clone() {
                if copies.contains_key(&operand) {
                    continue;
                }
                let parameter = NewInstruction {
                    name: format!("param_{}", arguments.len()).into(),
                    op: Op::parameter(arguments.len() as i64),
                    shape: self[operand].shape.clone(),
                    operands: Operands::new(),
                    common: Common::default(),
                };
                copies.insert(operand, self.add_instruction(computation, parameter));
                arguments.push(operand);
            }
        }
        self.copy_instructions(members, computation, &mut copies);
        let result_of = |m: &InstructionId| copies.get(m).copied().ok_or(EditError::NoSuchOperand);
        let roots = results.iter().map(result_of).collect::<Result<Operands, _>>()?;
        let shape = match results {
            [only] => self[*only].shape.clone(),
            many => Shape::tuple(many.iter().map(|&m| self[m].shape.clone())),
        };
        let root = match roots.as_slice() {
            [only] => *only,
            _ => {
                let tuple = NewInstruction {
                    name: "tuple".into(),
                    op: Op::Tuple,
                    shape: shape.clone(),
                    operands: roots,
                    common: Common::default(),
                };
                self.add_instruction(computation, tuple)
            }
        };
        self.computations[computation].root = Some(root);
        self.computations[home].root = self.root(home);
        let metadata = self[lead].common.metadata.clone();
        let common = Common { metadata, ..Common::default() };
        let new = NewInstruction { name: name.into(), op: call(computation), shape, operands: arguments, common };
        let caller = self.add_instruction(home, new);
        let mut values = Vec::with_capacity(results.len());
        for (n, &result) in results.iter().enumerate() {
            let value = match results {
                [_] => caller,
                _ => {
                    let element = NewInstruction {
                        name: "get-tuple-element".into(),
                        op: Op::GetTupleElement { index: n as i64 },
                        shape: self[result].shape.clone(),
                        operands: Operands::from_slice(&[caller]),
                        common: Common::default(),
                    };
                    self.add_instruction(home, element)
                }
            };
            values.push((result, value));
        }
        Ok(Outlined { call: caller, values })
    }

    /// Copies `originals` to the end of `into`. Operands that have a copy already are replaced by it; operands without
    /// one are left out, which only an unsound module has.
    fn copy_instructions(&mut self, originals: &[InstructionId], into: ComputationId, copies: &mut Copies) {
        copies.reserve(originals.len());
        for &i in originals {
            let original = &self.instructions[i];
            let new = NewInstruction {
                name: self.instruction_names.register(&original.name),
                op: original.op.clone(),
                shape: original.shape.clone(),
                operands: Operands::new(),
                common: original.common.clone(),
            };
            copies.insert(i, self.push_instruction(into, new));
        }
        // Operands come second, so that the order of the list does not matter.
        for &i in originals {
            let of_copy = |o: &InstructionId| copies.get(o).copied();
            let operands: Operands = self[i].operands.iter().filter_map(of_copy).collect();
            let Some(new) = of_copy(&i) else { continue };
            for operand in super::distinct(&operands) {
                self.instructions[operand].users.push(new);
            }
            self.instructions[new].operands = operands;
            if let Some(rare) = &mut self.instructions[new].common.rare {
                rare.control_predecessors = rare.control_predecessors.iter().filter_map(of_copy).collect();
            }
        }
    }
}

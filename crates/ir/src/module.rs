//! Modules and computations.
//!
//! Invariants kept by every method here (and by [`crate::edit`]):
//! - names are unique, instructions and computations each in their own name space;
//! - `users` lists exactly the instructions that have it as an operand, each once;
//! - an instruction is listed once, in the computation that is its parent; operands are of the same computation;
//! - an operand is listed before its users as long as instructions are only added; edits that break this order are
//!   the verifier's to find;
//! - in a scheduled module the order of a computation's list *is* the schedule.

use crate::attributes::AliasKind;
use crate::entity::{Arena, ComputationId, InstructionId};
use crate::instruction::{Common, FrontendAttributes, Instruction, Operands, OriginalArray};
use crate::metadata::StackFrames;
use crate::names::UniqueNames;
use crate::op::Op;
use crate::shape::{ProgramShape, Shape, ShapeIndex};
use std::borrow::Cow;
use std::ops::Index;

/// A program: computations, of which one is the entry.
#[derive(Clone, Debug)]
pub struct Module {
    /// The module's name.
    pub name: Box<str>,
    pub(crate) instructions: Arena<InstructionId, Instruction>,
    pub(crate) computations: Arena<ComputationId, Computation>,
    /// Computations that are still part of the module, in the order in which they were read.
    pub(crate) order: Vec<ComputationId>,
    pub(crate) entry: Option<ComputationId>,
    pub(crate) instruction_names: UniqueNames,
    pub(crate) computation_names: UniqueNames,
    pub(crate) wide_users: crate::edit::WideUsers,
    /// Whether the order of instructions is a schedule.
    pub is_scheduled: bool,
    /// What the header says of the module as a whole.
    pub config: ModuleConfig,
    /// The table that `stack_frame_id` refers to.
    pub stack_frames: StackFrames,
}

/// A function of the module: instructions, of which one is the root.
#[derive(Clone, Debug)]
pub struct Computation {
    pub(crate) name: Box<str>,
    pub(crate) instructions: Vec<InstructionId>,
    /// Those of the instructions that are parameters, in the order in which they were added: known without a walk,
    /// since a computation can be called from many places.
    pub(crate) parameters: Vec<InstructionId>,
    pub(crate) root: Option<InstructionId>,
    /// `execution_thread="…"`; the main thread when absent.
    pub execution_thread: Option<Box<str>>,
    /// The computation's id in the proto it was read from.
    pub proto_id: Option<i64>,
    /// Fields of a proto that have no place here, encoded as they were.
    pub unknown_fields: Box<[u8]>,
}

/// What the header says of a module as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleConfig {
    /// Copies of the program that run side by side.
    pub replica_count: i64,
    /// Parts that the program is cut into.
    pub num_partitions: i64,
    /// Results that share memory with parameters.
    pub input_output_alias: Vec<InputOutputAlias>,
    /// Parameters whose memory may be taken for results.
    pub buffer_donors: Vec<BufferDonor>,
    /// Parameters and result of the entry with their layouts, where the header says so.
    pub entry_layout: Option<ProgramShape>,
    /// `alias_passthrough_params=true`.
    pub alias_passthrough_params: bool,
    /// `allow_spmd_sharding_propagation_to_parameters={…}`; empty when not said.
    pub allow_spmd_sharding_propagation_to_parameters: Vec<bool>,
    /// `allow_spmd_sharding_propagation_to_output={…}`; empty when not said.
    pub allow_spmd_sharding_propagation_to_output: Vec<bool>,
    /// `frontend_attributes={…}` of the module.
    pub frontend_attributes: FrontendAttributes,
    /// `origin_recovery_table={…}`.
    pub origin_recovery_table: Vec<OriginRecovery>,
    /// `debug_attributes={…}` as written, without the braces.
    pub debug_attributes: Option<Box<str>>,
    /// Fields of a proto that have no place here, encoded as they were.
    pub unknown_fields: Box<[u8]>,
}

impl Default for ModuleConfig {
    fn default() -> Self {
        ModuleConfig {
            replica_count: 1,
            num_partitions: 1,
            input_output_alias: Vec::new(),
            buffer_donors: Vec::new(),
            entry_layout: None,
            alias_passthrough_params: false,
            allow_spmd_sharding_propagation_to_parameters: Vec::new(),
            allow_spmd_sharding_propagation_to_output: Vec::new(),
            frontend_attributes: FrontendAttributes::new(),
            origin_recovery_table: Vec::new(),
            debug_attributes: None,
            unknown_fields: Box::default(),
        }
    }
}

/// `{0}: (1, {}, may-alias)`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct InputOutputAlias {
    pub output_index: ShapeIndex,
    pub parameter: i64,
    pub parameter_index: ShapeIndex,
    pub kind: AliasKind,
}

/// `(2, {0})`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct BufferDonor {
    pub parameter: i64,
    pub parameter_index: ShapeIndex,
}

/// How a source value that was replaced can be had from its replacement.
#[derive(Clone, Debug)]
pub struct OriginRecovery {
    /// The value that is gone.
    pub old: OriginalArray,
    /// The value that stands for it.
    pub new: OriginalArray,
    /// The program that makes the old from the new; the identity when absent.
    pub recovery: Option<Box<Module>>,
}

impl PartialEq for OriginRecovery {
    fn eq(&self, other: &Self) -> bool {
        self.old == other.old && self.new == other.new && self.recovery.is_some() == other.recovery.is_some()
    }
}

/// An instruction about to be added to a computation.
#[derive(Clone, Debug)]
pub struct NewInstruction {
    /// The wanted name; a number is appended if it is taken.
    pub name: Box<str>,
    /// What it does.
    pub op: Op,
    /// The shape of its result.
    pub shape: Shape,
    /// What it reads: instructions of the same computation.
    pub operands: Operands,
    /// What every instruction may have.
    pub common: Common,
}

impl Module {
    /// An empty module. It needs an entry computation before anything else can be done with it.
    pub fn new(name: impl Into<Box<str>>) -> Module {
        Module {
            name: name.into(),
            instructions: Arena::new(),
            computations: Arena::new(),
            order: Vec::new(),
            entry: None,
            instruction_names: UniqueNames::default(),
            computation_names: UniqueNames::default(),
            wide_users: Default::default(),
            is_scheduled: false,
            config: ModuleConfig::default(),
            stack_frames: StackFrames::default(),
        }
    }

    /// Adds an empty computation.
    pub fn add_computation(&mut self, name: &str) -> ComputationId {
        let id = self.add_unlisted_computation(name);
        self.list_computation(id);
        id
    }

    /// Makes a computation that is not part of the module until it is listed.
    pub fn add_unlisted_computation(&mut self, name: &str) -> ComputationId {
        let name = self.computation_names.register(name);
        self.start_computation(name)
    }

    /// Puts a computation made by [`Module::add_unlisted_computation`] after those that are there.
    pub fn list_computation(&mut self, id: ComputationId) {
        self.order.push(id);
    }

    /// Starts a computation that is not part of the module, nor its instructions named for good, before
    /// [`Module::finish_computation`]. XLA names what it reads computation by computation, in the order in which they
    /// end; a computation written inside another ends first.
    pub fn start_computation(&mut self, name: impl Into<Box<str>>) -> ComputationId {
        self.computations.push(Computation {
            name: name.into(),
            instructions: Vec::new(),
            parameters: Vec::new(),
            root: None,
            execution_thread: None,
            proto_id: None,
            unknown_fields: Box::default(),
        })
    }

    /// Makes a started computation part of the module and its names unique.
    pub fn finish_computation(&mut self, id: ComputationId) {
        let computation = &mut self.computations[id];
        let name = crate::names::sanitize(&computation.name);
        computation.name = self.computation_names.register_owned(name);
        for &i in &computation.instructions {
            let name = &mut self.instructions[i].name;
            *name = self.instruction_names.register_owned(std::mem::take(name));
        }
        self.order.push(id);
    }

    /// Adds an instruction at the end of `computation`. The last one added is the root until another is set.
    pub fn add_instruction(&mut self, computation: ComputationId, mut new: NewInstruction) -> InstructionId {
        new.name = self.instruction_names.register_owned(new.name);
        self.push_instruction(computation, new)
    }

    /// A name for an instruction that none has yet: `wanted` if it is free.
    pub fn unique_name(&mut self, wanted: &str) -> Box<str> {
        self.instruction_names.register(wanted)
    }

    /// Adds an instruction at the end of a computation that was started, or under a [`Module::unique_name`]: its name is as
    /// wanted.
    pub fn push_instruction(&mut self, computation: ComputationId, new: NewInstruction) -> InstructionId {
        let NewInstruction { name, op, shape, operands, common } = new;
        let id = self.instructions.next_id();
        for &operand in &operands {
            let users = &mut self.instructions[operand].users;
            // An instruction is added after everything it reads, so a repeated operand finds it last in the list.
            if users.last() != Some(&id) {
                users.push(id);
            }
        }
        if matches!(op, Op::Parameter { .. }) {
            self.computations[computation].parameters.push(id);
        }
        self.instructions.push(Instruction {
            name,
            op,
            shape,
            operands,
            users: Operands::new(),
            parent: computation,
            common,
        });
        self.computations[computation].instructions.push(id);
        id
    }

    /// Makes room for `additional` more instructions.
    pub fn reserve_instructions(&mut self, additional: usize) {
        self.instructions.reserve(additional);
    }

    /// Makes `computation` the entry.
    pub fn set_entry(&mut self, computation: ComputationId) {
        self.entry = Some(computation);
    }

    /// Makes `root` the result of its computation.
    pub fn set_root(&mut self, root: InstructionId) {
        let parent = self.instructions[root].parent;
        self.computations[parent].root = Some(root);
    }

    /// The entry computation, if one is set. A verified module has one.
    pub fn entry(&self) -> Option<ComputationId> {
        self.entry
    }

    /// Computations in the order in which they were added; those removed are not among them.
    pub fn computations(&self) -> &[ComputationId] {
        &self.order
    }

    /// The computation `id`.
    pub fn computation(&self, id: ComputationId) -> &Computation {
        &self.computations[id]
    }

    /// The computation `id`, to change what may be changed freely.
    pub fn computation_mut(&mut self, id: ComputationId) -> &mut Computation {
        &mut self.computations[id]
    }

    /// The instruction `id`.
    pub fn instruction(&self, id: InstructionId) -> &Instruction {
        &self.instructions[id]
    }

    /// The instruction `id`, to change what may be changed freely (operation, shape, common attributes). Nothing is to
    /// be made a parameter, or cease to be one, this way.
    pub fn instruction_mut(&mut self, id: InstructionId) -> &mut Instruction {
        &mut self.instructions[id]
    }

    /// One more than the largest index of an instruction: the length of a side table.
    pub fn instruction_slots(&self) -> usize {
        self.instructions.len()
    }

    /// One more than the largest index of a computation: the length of a side table.
    pub fn computation_slots(&self) -> usize {
        self.computations.len()
    }

    /// The number of instructions in all computations.
    pub fn instruction_count(&self) -> usize {
        self.order.iter().map(|&c| self.computations[c].instructions.len()).sum()
    }

    /// The result of `computation`: the root that was set, or the last instruction; `None` if it is empty.
    pub fn root(&self, computation: ComputationId) -> Option<InstructionId> {
        let c = &self.computations[computation];
        c.root.or_else(|| c.instructions.last().copied())
    }

    /// The parameters of `computation` in the order of their numbers. Numbers that are missing, repeated or out of
    /// range are the verifier's to report; here they are passed over.
    pub fn parameters(&self, computation: ComputationId) -> Vec<InstructionId> {
        self.parameters_in_order(computation).into_owned()
    }

    /// As [`Module::parameters`], borrowed where they were added in order, as they almost always are.
    pub(crate) fn parameters_in_order(&self, computation: ComputationId) -> Cow<'_, [InstructionId]> {
        let listed = &self.computations[computation].parameters;
        let number = |&i: &InstructionId| match self.instructions[i].op {
            Op::Parameter { number, .. } => number,
            _ => i64::MAX,
        };
        if listed.is_sorted_by_key(number) {
            return Cow::Borrowed(listed);
        }
        let mut sorted = listed.clone();
        sorted.sort_by_key(number);
        Cow::Owned(sorted)
    }

    /// Parameter and result shapes of `computation`; `None` if it is empty.
    pub fn program_shape(&self, computation: ComputationId) -> Option<ProgramShape> {
        Some(ProgramShape {
            parameters: self.parameters(computation).iter().map(|&p| self.instructions[p].shape.clone()).collect(),
            result: self.instructions[self.root(computation)?].shape.clone(),
        })
    }

    /// The computation of that name.
    pub fn computation_by_name(&self, name: &str) -> Option<ComputationId> {
        self.order.iter().copied().find(|&c| &*self.computations[c].name == name)
    }

    /// The instruction of that name. Linear in the size of the module: for tests and for single questions.
    pub fn instruction_by_name(&self, name: &str) -> Option<InstructionId> {
        let mut all = self.order.iter().flat_map(|&c| &self.computations[c].instructions);
        all.find(|&&i| &*self.instructions[i].name == name).copied()
    }
}

impl Computation {
    /// Its name, unique among the computations of the module.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Its instructions, in schedule order if the module is scheduled, otherwise in the order in which they were added.
    pub fn instructions(&self) -> &[InstructionId] {
        &self.instructions
    }
    /// The root, where one was set explicitly; see [`Module::root`].
    pub fn explicit_root(&self) -> Option<InstructionId> {
        self.root
    }
}

impl Index<InstructionId> for Module {
    type Output = Instruction;
    fn index(&self, id: InstructionId) -> &Instruction {
        &self.instructions[id]
    }
}

impl Index<ComputationId> for Module {
    type Output = Computation;
    fn index(&self, id: ComputationId) -> &Computation {
        &self.computations[id]
    }
}

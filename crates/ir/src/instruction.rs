//! An instruction: an operation, its operands and its shape, and what every instruction may have besides.
//!
//! Operands, users, name and parent are kept consistent by [`crate::module::Module`] and can be changed only through it.

use crate::entity::{ComputationId, InstructionId};
use crate::metadata::Metadata;
use crate::op::Op;
use crate::opcode::Opcode;
use crate::shape::{Shape, ShapeIndex};
use crate::sharding::Sharding;
use smallvec::SmallVec;
use std::sync::Arc;

/// The operands of an instruction.
pub type Operands = SmallVec<[InstructionId; 4]>;

/// One operation of a computation.
#[derive(Clone, Debug)]
pub struct Instruction {
    pub(crate) name: Box<str>,
    /// What it does.
    pub op: Op,
    /// The shape of its result.
    pub shape: Shape,
    pub(crate) operands: Operands,
    /// Instructions that use the result, each once, in the order in which they came to use it.
    pub(crate) users: Operands,
    pub(crate) parent: ComputationId,
    /// What every instruction may have.
    pub common: Common,
}

/// What every instruction may have, whatever its opcode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Common {
    /// Where it came from.
    pub metadata: Option<Box<Metadata>>,
    /// How its result is spread over devices; many instructions of a program share one.
    pub sharding: Option<Arc<Sharding>>,
    /// Configuration for a compiler, kept byte for byte: JSON text, or any string.
    pub backend_config: Option<Box<[u8]>>,
    /// What few instructions have; `None` when all of it is empty.
    pub rare: Option<Box<RareCommon>>,
}

/// What few instructions have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RareCommon {
    /// Instructions of the same computation that must come first.
    pub control_predecessors: Vec<InstructionId>,
    /// `frontend_attributes={k="v"}`, sorted by key.
    pub frontend_attributes: FrontendAttributes,
    /// `statistics={visualizing_index=0,s=1.5}`.
    pub statistics: Option<Statistics>,
    /// `origin={…}`: which value of the source program this is.
    pub origin: Option<OriginalValue>,
    /// The instruction's id in the proto it was read from.
    pub proto_id: Option<i64>,
    /// Fields of a proto that have no place here, encoded as they were.
    pub unknown_fields: Box<[u8]>,
}

/// A map from names to values, sorted by name.
pub type FrontendAttributes = std::collections::BTreeMap<Box<str>, Box<str>>;

/// Numbers to show beside an instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// Which of them to show.
    pub visualizing_index: i64,
    /// Names and values.
    pub values: Vec<(Box<str>, f64)>,
}

/// Which values of the source program the leaves of a result are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OriginalValue {
    /// `[synthetic_call]`: a call that the compiler made up.
    SyntheticCall,
    /// One entry per leaf.
    Tree(OriginTree),
}

/// A tree of source values in the form of a shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OriginTree {
    /// An array, if its origin is known.
    Leaf(Option<OriginalArray>),
    /// A tuple.
    Tuple(Vec<OriginTree>),
}

/// `{"name" {1}}`: an array of the source program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginalArray {
    /// The instruction there.
    pub instruction_name: Box<str>,
    /// The part of its result.
    pub index: ShapeIndex,
}

impl Common {
    /// The rare parts, to set.
    pub fn rare_mut(&mut self) -> &mut RareCommon {
        self.rare.get_or_insert_default()
    }
    /// Instructions that must come first.
    pub fn control_predecessors(&self) -> &[InstructionId] {
        self.rare.as_ref().map_or(&[], |r| &r.control_predecessors)
    }
    /// The frontend attribute of that name.
    pub fn frontend_attribute(&self, name: &str) -> Option<&str> {
        self.rare.as_ref()?.frontend_attributes.get(name).map(|v| &**v)
    }
}

impl Instruction {
    /// Its name, unique among the instructions of the module.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Which operation it is.
    pub fn opcode(&self) -> Opcode {
        self.op.opcode()
    }
    /// What it reads.
    pub fn operands(&self) -> &[InstructionId] {
        &self.operands
    }
    /// Which instructions read it, each once.
    pub fn users(&self) -> &[InstructionId] {
        &self.users
    }
    /// The computation it belongs to.
    pub fn parent(&self) -> ComputationId {
        self.parent
    }
}

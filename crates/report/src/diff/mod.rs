//! The semantic difference of two modules.
//!
//! Instructions are matched by structure: names, ids, channel numbers, metadata, the order of independent instructions,
//! the order of operands where it means nothing, and whether a computation is shared or copied for each caller are set
//! aside. What remains is told as itself, once:
//! - a changed constant, layout, shape, attribute or operand is a difference of that instruction, and of none
//!   downstream;
//! - what was put in or taken out is a difference, and that its neighbours now read it is not another;
//! - what changed inside a fusion or a reducer is told with the instruction that calls it.
//!
//! Two modules are equal ([`ModuleDiff::is_equal`]) only if every instruction of one has its match in the other with
//! nothing different in them.

mod compare;
mod fingerprint;
mod json;
mod matching;
mod page;
mod text;
mod walk;

#[cfg(test)]
mod tests;

pub use json::to_json;
pub use page::to_html;
pub use text::{headline, summary, to_text};

use hloom_analysis::cost::Cost;
use hloom_ir::verify::VerifiedModule;

/// What differs in two modules.
#[derive(Clone, Debug)]
pub struct ModuleDiff {
    /// The first.
    pub a: ModuleFigures,
    /// The second.
    pub b: ModuleFigures,
    /// What the headers say differently, in words.
    pub header: Vec<String>,
    /// The differences, those that matter most first.
    pub differences: Vec<Difference>,
    /// Constants that could not be compared, since a dump leaves their values out.
    pub unknown_constants: usize,
}

/// What one of the two modules is as a whole.
#[derive(Clone, Debug)]
pub struct ModuleFigures {
    /// The module's name.
    pub name: String,
    /// All its instructions.
    pub instructions: usize,
    /// One run of it.
    pub cost: Cost,
}

/// One difference.
#[derive(Clone, Debug)]
pub struct Difference {
    /// What became of the instruction.
    pub change: Change,
    /// What differs, where it is in both modules.
    pub aspects: Vec<Aspect>,
    /// The instruction in the first module.
    pub a: Option<InstructionFigures>,
    /// The instruction in the second module.
    pub b: Option<InstructionFigures>,
    /// What differs in the computation that it applies or fuses.
    pub inside: Vec<Difference>,
    /// How many times it is there: computations that are the same in each module and differ in the same way are told once.
    pub times: usize,
}

/// What became of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// Only the second module has it.
    Added,
    /// Only the first module has it.
    Removed,
    /// Both have it, and it is not the same.
    Changed,
}

/// In what an instruction differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Aspect {
    /// The kind.
    pub kind: AspectKind,
    /// What exactly, in a few words; may be empty where the two texts show it.
    pub detail: String,
}

/// The kinds of things in which instructions differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "each is what its name says")]
pub enum AspectKind {
    Opcode,
    Constant,
    Collective,
    Fusion,
    /// The computation it applies: a reducer, a comparator.
    Computation,
    Shape,
    Layout,
    Operands,
    /// Which instruction is the result of the computation.
    Root,
    Attributes,
    Sharding,
    BackendConfig,
    FrontendAttributes,
    ControlDependencies,
    /// Which instructions share a channel.
    Channel,
}

impl AspectKind {
    /// Its name, as in JSON and text.
    pub fn name(self) -> &'static str {
        match self {
            AspectKind::Opcode => "opcode",
            AspectKind::Constant => "constant",
            AspectKind::Collective => "collective",
            AspectKind::Fusion => "fusion",
            AspectKind::Computation => "computation",
            AspectKind::Shape => "shape",
            AspectKind::Layout => "layout",
            AspectKind::Operands => "operands",
            AspectKind::Root => "root",
            AspectKind::Attributes => "attributes",
            AspectKind::Sharding => "sharding",
            AspectKind::BackendConfig => "backend_config",
            AspectKind::FrontendAttributes => "frontend_attributes",
            AspectKind::ControlDependencies => "control dependencies",
            AspectKind::Channel => "channel_id",
        }
    }
}

/// An instruction as a difference shows it.
#[derive(Clone, Debug)]
pub struct InstructionFigures {
    /// Its name.
    pub name: String,
    /// Its opcode.
    pub opcode: &'static str,
    /// The computation it is in.
    pub computation: String,
    /// Its text.
    pub text: String,
    /// The file and line of the user's program, as `file:line`; empty if unknown.
    pub source: String,
    /// The path of scopes that made it; empty if unknown.
    pub op_name: String,
    /// All its runs in one run of the module, with what it fuses.
    pub cost: Cost,
}

impl ModuleDiff {
    /// Whether nothing differs.
    pub fn is_equal(&self) -> bool {
        self.header.is_empty() && self.differences.is_empty()
    }

    /// How many differences there are, those of the header among them.
    pub fn count(&self) -> usize {
        self.header.len() + self.differences.len()
    }
}

impl Difference {
    /// Its cost in the first and in the second module.
    pub fn costs(&self) -> (Cost, Cost) {
        let cost = |side: &Option<InstructionFigures>| side.as_ref().map_or_else(Cost::default, |i| i.cost);
        (cost(&self.a), cost(&self.b))
    }

    /// The kind under which it is counted: the first of its aspects, or that it was added or removed.
    pub fn kind(&self) -> &'static str {
        match (self.change, self.aspects.iter().map(|a| a.kind).min()) {
            (Change::Added, _) => "added",
            (Change::Removed, _) => "removed",
            (Change::Changed, Some(kind)) => kind.name(),
            (Change::Changed, None) => "changed",
        }
    }
}

/// What differs in two modules.
pub fn diff(a: &VerifiedModule, b: &VerifiedModule) -> ModuleDiff {
    walk::diff(a, b)
}

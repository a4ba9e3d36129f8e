//! The verifier: what makes a module valid.
//!
//! [`verify`] turns a [`Module`] into a [`VerifiedModule`], which is all that later stages take: once verified, they may
//! return errors, but never panic. This page is the normative list of what it checks; each rule has its own code in
//! [`crate::diagnostic::codes::verify`] (what an operation makes of its operands: [`crate::diagnostic::codes::infer`]).
//!
//! **Structure** (`structure`, `callers`)
//! - The module has an entry computation. Every computation has an instruction.
//! - Operands and control predecessors are instructions of the same computation. Together they form no cycle.
//! - Every opcode with a fixed number of operands has that many.
//! - Called computations exist, and none calls itself, directly or through others.
//! - The parameters of a computation are numbered 0, 1, …, each number once.
//! - A computation called by an asynchronous start is called by nothing else (nor should one called by a fusion: a
//!   warning); the entry is neither.
//! - In a scheduled module an instruction comes after its operands and control predecessors, but for the bodies of
//!   fusions, which have no schedule of their own.
//! - Users are exactly the instructions that have a value as an operand. (Names are unique by construction: there is no
//!   way to give a module two equal ones.)
//!
//! **Shapes and layouts** (`shapes`)
//! - Sizes are not negative, arrays have fewer than 2⁶³ elements and bytes, tuples nest at most
//!   [`crate::shape::Shape::MAX_DEPTH`] deep.
//! - A layout orders each dimension of its array once; tile sizes, element size, memory space, padding and splits are
//!   numbers that can be.
//! - Every instruction's shape is the one that [`crate::infer`] derives from its operands and attributes, which are in
//!   range; dynamic dimensions and layouts are set aside. In modules that a compiler has optimised
//!   ([`looks_optimized`]) floating-point types may be mixed, as in XLA's verifier when it checks such modules.
//!
//! **Other attributes** (`attributes`)
//! - `parameter_replication` has an entry per leaf; `result_accuracy` is given only to operations that round, and its
//!   tolerances are not negative. Warning: a comparison type that is not for the operands' type.
//!
//! **Calls** (`calls`)
//! - What is passed fits the parameters of called computations, and their results fit the caller ([`crate::infer`]).
//! - Fusions, loops, branches and asynchronous operations run their computations on the thread they say.
//! - Results said to share memory with operands name parts that exist and have the same shape.
//! - Layouts that a custom call asks for are sound.
//!
//! **Asynchronous pairs** (`async_pairs`)
//! - Every start is used, and by one done of its kind; every done and update takes a start of its kind. Values may pass
//!   through tuples, copies, barriers and loops on the way.
//! - The two ends of a transfer agree on the channel and on whether the host is meant.
//!
//! **The header** (`header`)
//! - `replica_count` and `num_partitions` are at least 1.
//! - `entry_computation_layout` has the shapes of the entry's parameters and root.
//! - Aliases and donors name arrays that exist; no result and no parameter is aliased twice, a donor is not aliased
//!   besides, and what shares memory has the same size.
//! - Warnings: stack frames beyond the table, origins that do not have the form of the shape.
//!
//! **Devices** (`devices`), where the number of devices matters only as far as it is known
//! - Replica groups have no empty group, name no device twice, are of one size where the operation needs that, and name
//!   every device there is; `use_global_device_ids` needs a channel and groups.
//! - all-gather and reduce-scatter grow or shrink their dimension by the size of a group; all-to-all splits into it.
//! - A collective-permute has each source and each target once, in range.
//!
//! **Shardings** (`shardings`)
//! - One part per leaf of a tuple; as many tile dimensions as the array has; as many devices as tiles, none twice, in
//!   range where the number of partitions is known; axes of meshes that exist.
//!
//! Later checks rely on earlier ones, so a module whose structure or sizes are wrong is told that alone.

mod async_pairs;
mod attributes;
mod callers;
mod calls;
mod devices;
mod header;
mod shapes;
mod shardings;
mod structure;
#[cfg(test)]
mod tests;

use crate::diagnostic::{Diagnostic, Part, Place, Severity};
use crate::entity::{ComputationId, InstructionId};
use crate::infer::{self, MixedPrecision};
use crate::module::Module;
use crate::op::Op;
use crate::shape::Shape;
use std::cell::OnceCell;
use structure::Facts;

/// A module that passed the verifier: later stages take only this, and return errors but never panic on it.
#[derive(Clone, Debug)]
pub struct VerifiedModule {
    module: Module,
    warnings: Vec<Diagnostic>,
}

/// A module that did not pass, with the reasons.
#[derive(Debug)]
pub struct Invalid {
    /// The module as it was given.
    pub module: Box<Module>,
    /// What is wrong with it: at most [`MAX_DIAGNOSTICS`] errors, then as many warnings.
    pub diagnostics: Vec<Diagnostic>,
}

/// What the verifier is told about the world.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// The number of devices the program is to run on, where known; the header's counts otherwise.
    pub devices: Option<i64>,
}

/// More errors than this are not kept, nor more warnings: a module of a million instructions may be wrong in all of them.
pub const MAX_DIAGNOSTICS: usize = 100;

/// Checks `module`. Whether floating-point types may be mixed depends on whether it looks as if a compiler had optimised it
/// ([`looks_optimized`]).
pub fn verify(module: Module, options: &VerifyOptions) -> Result<VerifiedModule, Invalid> {
    let diagnostics = check(&module, options);
    verdict(module, diagnostics)
}

/// As [`verify`], with floating-point types mixed or not as `mixed_precision` says, whatever the module looks like.
pub fn verify_precision(
    module: Module,
    options: &VerifyOptions,
    mixed_precision: MixedPrecision,
) -> Result<VerifiedModule, Invalid> {
    let diagnostics = check_all(&module, options, OnceCell::from(mixed_precision));
    verdict(module, diagnostics)
}

fn verdict(module: Module, diagnostics: Vec<Diagnostic>) -> Result<VerifiedModule, Invalid> {
    if diagnostics.iter().any(|d| d.severity == Severity::Error) {
        return Err(Invalid { module: Box::new(module), diagnostics });
    }
    Ok(VerifiedModule { module, warnings: diagnostics })
}

/// All that is wrong with `module`: at most [`MAX_DIAGNOSTICS`] errors, then as many warnings. Without an error the
/// module is valid.
pub fn check(module: &Module, options: &VerifyOptions) -> Vec<Diagnostic> {
    check_all(module, options, OnceCell::new())
}

fn check_all(module: &Module, options: &VerifyOptions, mixed_precision: OnceCell<MixedPrecision>) -> Vec<Diagnostic> {
    let mut report = Report::default();
    let Some(facts) = structure::check(module, &mut report) else { return report.into_findings() };
    let context = Context { module, facts: &facts, counts: Counts::of(module, options), mixed_precision };
    header::check(&context, options, &mut report);
    for &computation in module.computations() {
        for &id in module[computation].instructions() {
            check_instruction(&context, id, &mut report);
        }
    }
    report.into_findings()
}

/// Whether a compiler seems to have optimised the module for a machine: it is scheduled, or has fusions, tiles, values in
/// memories other than the default one, or copies between memories. Such modules may mix floating-point types.
pub fn looks_optimized(module: &Module) -> bool {
    fn placed(shape: &Shape) -> bool {
        match shape {
            Shape::Array(a) | Shape::Buffer(a) => {
                a.layout.as_ref().is_some_and(|l| !l.tiles.is_empty() || l.memory_space != 0)
            }
            Shape::Tuple(elements) => elements.iter().any(placed),
            Shape::Token | Shape::Opaque => false,
        }
    }
    let mut all = module.computations().iter().flat_map(|&c| module[c].instructions());
    module.is_scheduled
        || all.any(|&i| matches!(module[i].op, Op::Fusion(_) | Op::CopyStart { .. }) || placed(&module[i].shape))
}

/// The rules for one instruction of a module whose structure and sizes are sound.
fn check_instruction(context: &Context, id: InstructionId, report: &mut Report) {
    let instruction = &context.module[id];
    let (op, operands) = (&instruction.op, instruction.operands());
    let shape = |mixed| infer::check_shape(context.module, op, operands, &instruction.shape, mixed);
    // Few instructions mix types; only for them it is asked whether they may.
    let checked = shape(MixedPrecision::Refused).or_else(|e| {
        if context.mixed_precision() == MixedPrecision::Allowed { shape(MixedPrecision::Allowed) } else { Err(e) }
    });
    if let Err(e) = checked {
        let mut finding = Diagnostic::error(e.code, e.message).at_instruction(id, e.part);
        if let Part::Attribute(attribute) = e.part
            && let Some(callee) = calls::named_by(op, attribute)
        {
            finding = finding.note_at("the computation is defined here", Place::Computation(callee));
        }
        // The other rules for this instruction may rely on its shape.
        return report.add(finding);
    }
    calls::check(context, id, report);
    async_pairs::check(context, id, report);
    devices::check(context, id, report);
    attributes::check(context, id, report);
    header::check_provenance(context, id, report);
}

impl VerifiedModule {
    /// The module.
    pub fn module(&self) -> &Module {
        &self.module
    }
    /// The module, to change; it has to be verified again.
    pub fn into_module(self) -> Module {
        self.module
    }
    /// What is probably not meant, though valid.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }
}

/// What every rule may ask.
struct Context<'m> {
    module: &'m Module,
    facts: &'m Facts,
    counts: Counts,
    mixed_precision: OnceCell<MixedPrecision>,
}

impl<'m> Context<'m> {
    fn mixed_precision(&self) -> MixedPrecision {
        *self.mixed_precision.get_or_init(|| match looks_optimized(self.module) {
            true => MixedPrecision::Allowed,
            false => MixedPrecision::Refused,
        })
    }
    fn name(&self, id: InstructionId) -> &'m str {
        self.module[id].name()
    }
    fn computation_name(&self, id: ComputationId) -> &'m str {
        self.module[id].name()
    }
}

/// The devices of a run; 1 where nothing is known, as in XLA's headers.
#[derive(Clone, Copy)]
struct Counts {
    replicas: i64,
    partitions: i64,
}

impl Counts {
    /// The header's counts; a number of devices that was given makes replicas of a module whose header names none.
    fn of(module: &Module, options: &VerifyOptions) -> Counts {
        let (replicas, partitions) = (module.config.replica_count, module.config.num_partitions);
        match options.devices {
            Some(devices) if replicas == 1 && partitions == 1 => Counts { replicas: devices.max(1), partitions: 1 },
            _ => Counts { replicas, partitions },
        }
    }
    fn total(self) -> i64 {
        self.replicas.saturating_mul(self.partitions)
    }
}

/// What was found so far. Warnings are kept apart, so that any number of them leaves room for errors.
#[derive(Default)]
struct Report {
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

impl Report {
    fn add(&mut self, diagnostic: Diagnostic) {
        let findings = match diagnostic.severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        if findings.len() < MAX_DIAGNOSTICS {
            findings.push(diagnostic);
        }
    }
    fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }
    fn into_findings(mut self) -> Vec<Diagnostic> {
        self.errors.append(&mut self.warnings);
        self.errors
    }
}

/// The place of a whole instruction.
fn at(id: InstructionId) -> Place {
    Place::Instruction(id, Part::Whole)
}

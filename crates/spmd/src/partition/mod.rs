//! The partitioner: from a module whose instructions carry shardings to the program of one device.
//!
//! Devices are a grid of axes ([`axes`]); how an array lies on them is a list of axes per dimension and, for sums that are
//! still to be completed, a set of axes along which the parts lie ([`spec`]). Each operation is brought, by the cheapest
//! choice of axes for its factors ([`rule`]), to a local operation; what does not lie as it is needed is resharded
//! ([`plan`], [`reshard`]). What has no rule is gathered and computed whole on every device, and reported.
//!
//! Kept true: what a device holds of a value is described by the value's [`spec::Spec`] at every step; padding in shards
//! that are not full never reaches a result.

mod annotations;
pub mod axes;
mod axis_list;
mod body;
mod computation;
mod constants;
mod control;
mod convolution;
pub mod custom;
mod dot;
mod dynamic;
mod elementwise;
mod gather;
mod known_choices;
mod known_plans;
mod loops;
mod manual;
mod moving;
mod narrow;
mod one_device;
pub mod placement;
pub mod plan;
mod predict;
mod prices;
mod product_convolution;
mod reduce;
mod relocate;
mod reshape;
mod reshard;
mod rule;
mod scatter;
mod signatures;
mod sort;
pub mod spec;
mod values;
mod variants;
mod whole;
mod windowed;
mod windows;

use annotations::{Annotations, Stated};
use axes::{AxisList, AxisSet, DeviceAxes};
use custom::{CustomPartitioner, NoCustomPartitioner};
use hloom_ir::ElementType;
use hloom_ir::diagnostic::{Diagnostic, codes::passes as codes};
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::laid_out::LaidOutShapes;
use hloom_ir::module::Module;
use hloom_ir::sharding::TileAssignment;
use known_choices::KnownChoices;
use known_plans::KnownPlans;
use placement::Placement;
use rustc_hash::{FxHashMap, FxHashSet};
use spec::{Reduction, Spec};
use values::Element;

/// What writing the program answers.
pub(crate) type Emit<T> = Result<T, Diagnostic>;

pub(crate) fn error(message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(&codes::CANNOT_PARTITION, message)
}

/// Why a collective is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A value is needed in another form than it has.
    Reshard,
    /// Neighbouring shards' elements are needed.
    Halo,
    /// Parts of a result are combined.
    Combine,
    /// The operation has no rule for what is sharded: operands are gathered.
    NoRule,
}

/// A collective that was written, and why.
#[derive(Clone, Debug)]
pub struct Note {
    /// The collective.
    pub instruction: InstructionId,
    /// The instruction of the source for which it was written.
    pub source: Option<InstructionId>,
    /// The axes that its groups run along.
    pub axes: AxisList,
    /// Why.
    pub reason: Reason,
    /// The change of form that it is a step of.
    pub change: Option<Box<Change>>,
}

/// A value that is needed in another form than it has.
#[derive(Clone, Debug)]
pub struct Change {
    /// The value, where it is one of the source.
    pub value: Option<InstructionId>,
    /// How it lies.
    pub from: Spec,
    /// How it is needed.
    pub to: Spec,
}

/// The program of one device.
#[derive(Debug)]
pub struct Partitioned {
    /// The program.
    pub module: Module,
    /// The device grid.
    pub axes: DeviceAxes,
    /// Its collectives.
    pub notes: Vec<Note>,
    /// How the leaves of each parameter lie.
    pub parameters: Vec<Vec<Placement>>,
    /// How the leaves of the result lie.
    pub results: Vec<Placement>,
    /// Instructions of the source that were computed whole on every device though something of theirs was sharded.
    pub gathered: Vec<InstructionId>,
}

/// Specs of the leaves of each parameter and of the result of a computation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signature {
    pub parameters: Vec<Vec<Spec>>,
    pub result: Vec<Spec>,
}

/// The work as a whole.
pub(crate) struct Partitioner<'s> {
    pub source: &'s Module,
    pub custom: &'s dyn CustomPartitioner,
    pub target: Module,
    pub axes: DeviceAxes,
    pub annotations: Annotations,
    pub plans: KnownPlans,
    pub choices: KnownChoices,
    pub signatures: FxHashMap<ComputationId, Signature>,
    /// What stands for each computation of the source.
    pub computations: FxHashMap<ComputationId, ComputationId>,
    pub reducers: FxHashMap<(Reduction, ElementType), ComputationId>,
    /// The shapes of the target.
    pub shapes: LaidOutShapes,
    /// Instructions of the target that several instructions of the source use.
    pub shared: FxHashSet<InstructionId>,
    /// Axes along which a value is expected to come out in parts.
    pub predicted: SideTable<InstructionId, AxisSet>,
    /// Which elements of tuples values are.
    pub elements: SideTable<InstructionId, Element>,
    pub notes: Vec<Note>,
    pub gathered: Vec<InstructionId>,
    /// How the leaves of the program's parameters lie.
    pub parameters: Vec<Vec<Placement>>,
    /// How the leaves of its result lie.
    pub results: Vec<Placement>,
    /// The condition of each loop, by its body.
    pub loops: FxHashMap<ComputationId, ComputationId>,
    /// Instructions of the source that end a sum carried by a loop.
    pub accumulators: FxHashSet<InstructionId>,
    /// Computations of the target that do more than make their value.
    pub effects: FxHashSet<ComputationId>,
    channel: i64,
}

impl Partitioner<'_> {
    pub(crate) fn next_channel(&mut self) -> i64 {
        self.channel += 1;
        self.channel
    }
}

/// The mark in a module's frontend attributes that it is a program of one device.
pub const PARTITIONED_MARK: &str = "hloom.partitioned";

/// Writes the program of one of `devices` devices. Every instruction's sharding says how its value is to lie; one without
/// is whole on every device.
pub fn partition(source: &Module, devices: i64) -> Result<Partitioned, Diagnostic> {
    partition_with(source, devices, &NoCustomPartitioner)
}

/// The tiles stated of the program's arguments and results, and the bytes of each.
fn arguments_and_results<'s>(source: &Module, stated: &'s Stated<'_>) -> Vec<(&'s TileAssignment, f64)> {
    let Some(entry) = source.entry() else { return Vec::new() };
    let mut edges = Vec::new();
    for i in source.parameters(entry).into_iter().chain(source.root(entry)) {
        let leaves = source[i].common.sharding.as_deref().map_or(&[][..], |s| s.leaves());
        for (n, (_, shape)) in source[i].shape.leaves().into_iter().enumerate() {
            let leaf = if leaves.len() == 1 { leaves.first() } else { leaves.get(n) };
            if let (Some(tiles), Some(array)) = (leaf.and_then(|l| stated.tiles(l)), shape.as_array()) {
                let bits = array.element_count().unwrap_or(0) as f64 * array.element_type.bits() as f64;
                edges.push((tiles, bits / 8.0));
            }
        }
    }
    edges
}

/// The same, with a partitioner for calls that it knows.
pub fn partition_with(
    source: &Module,
    devices: i64,
    custom: &dyn CustomPartitioner,
) -> Result<Partitioned, Diagnostic> {
    if devices < 1 {
        return Err(error(format!("a program cannot be partitioned for {devices} devices")));
    }
    if DeviceAxes::count(devices) > AxisList::CAPACITY {
        return Err(error(format!("{devices} devices make a grid of too many axes")));
    }
    let stated = Stated::new(source);
    stated.check(devices)?;
    let axes =
        DeviceAxes::new(devices, stated.all.iter().filter_map(|s| s.tiles()), &arguments_and_results(source, &stated));
    let annotations = Annotations::new(source, &axes, &stated);
    let all = source.computations().iter().flat_map(|&c| source[c].instructions());
    let channel = all.filter_map(|&i| source[i].op.channel_id()).max().unwrap_or(0).max(0);
    let mut partitioner = Partitioner {
        source,
        custom,
        target: Module::new(source.name.clone()),
        axes,
        annotations,
        plans: KnownPlans::default(),
        choices: KnownChoices::default(),
        signatures: FxHashMap::default(),
        computations: FxHashMap::default(),
        reducers: FxHashMap::default(),
        shapes: LaidOutShapes::default(),
        shared: FxHashSet::default(),
        predicted: SideTable::with_len(source.instruction_slots(), AxisSet::EMPTY),
        elements: SideTable::with_len(source.instruction_slots(), Element::None),
        notes: Vec::new(),
        gathered: Vec::new(),
        parameters: Vec::new(),
        results: Vec::new(),
        loops: FxHashMap::default(),
        accumulators: FxHashSet::default(),
        effects: FxHashSet::default(),
        channel,
    };
    partitioner.run()?;
    let Partitioner { target, axes, notes, gathered, parameters, results, .. } = partitioner;
    Ok(Partitioned { module: target, axes, notes, parameters, results, gathered })
}

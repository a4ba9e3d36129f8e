//! Where the values of a planned program lie when it runs: which allocation each is in, and where that comes from.
//!
//! Every backend that runs thunks over a [`Plan`] asks here. Arrays are stored row-major and unpacked; a plan that leaves
//! no room for that is an error, not a wrong result.

use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_plan::Plan;
use hloom_plan::positions::Position;
use hloom_value::ExecutionError;
use std::collections::HashMap;

/// Where an array lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// Which allocation.
    pub allocation: u32,
    /// Bytes from its start.
    pub offset: usize,
}

impl Location {
    /// The place of what has no memory: a token, or a value that nothing made.
    pub const NOWHERE: Location = Location { allocation: u32::MAX, offset: 0 };
}

/// Where an allocation's memory comes from.
#[derive(Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub enum AllocationSource {
    /// Nothing of the run lies in it.
    Unused,
    /// Given by the caller: the leaf of that number. It is written only if it is `owned` by the run.
    Argument { leaf: usize, owned: bool },
    /// A constant: the leaf of that number of an instruction.
    Constant { instruction: InstructionId, leaf: usize, bytes: usize },
    /// Made for the run, and given to the caller after it.
    Result { bytes: usize },
    /// A part of the block of temporaries.
    Temporary { offset: usize },
    /// What the devices of a group have in common, by number.
    SharedBuffer { number: usize },
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Location::NOWHERE => f.write_str("-"),
            Location { allocation, offset } => write!(f, "a{allocation}+{offset}"),
        }
    }
}

/// The allocations as text, a line each, and the bytes of temporaries; `module` is what was planned.
pub fn display_allocations(module: &Module, allocations: &[AllocationSource], temporary_bytes: usize) -> String {
    let mut text = String::from("allocations:\n");
    for (n, source) in allocations.iter().enumerate() {
        let what = match source {
            AllocationSource::Unused => continue,
            AllocationSource::Argument { leaf, owned: false } => format!("argument {leaf}"),
            AllocationSource::Argument { leaf, owned: true } => format!("argument {leaf}, written"),
            AllocationSource::Constant { instruction, bytes, .. } => {
                format!("constant {}, {bytes} bytes", module[*instruction].name())
            }
            AllocationSource::Result { bytes } => format!("result, {bytes} bytes"),
            AllocationSource::Temporary { offset } => format!("temporary at {offset}"),
            AllocationSource::SharedBuffer { number } => format!("shared buffer {number}"),
        };
        text += &format!("  a{n}: {what}\n");
    }
    text + &format!("{temporary_bytes} bytes of temporaries\n")
}

/// Where each position's value lies.
pub fn locations(plan: &Plan<'_>) -> Result<Vec<Location>, ExecutionError> {
    let dataflow = &plan.dataflow;
    let mut of_value = vec![Location::NOWHERE; dataflow.value_slots()];
    for (number, allocation) in plan.allocations.iter().enumerate() {
        for place in &allocation.places {
            let offset =
                usize::try_from(place.offset).map_err(|_| ExecutionError::bug("a place before its allocation"))?;
            if let Some(slot) = of_value.get_mut(place.value as usize) {
                *slot = Location { allocation: number as u32, offset };
            }
            // What the run stores is row-major and unpacked, whatever the layout says; there must be room for that.
            let Some(value) = dataflow.value(place.value) else { continue };
            let shape = dataflow.positions.shape(value.position);
            if !shape.is_tuple() && shape.byte_size().is_none_or(|n| n > place.size) {
                return Err(ExecutionError::bug(format!("{shape} is stored packed")));
            }
        }
    }
    let at = |p: usize| dataflow.at(p as Position).map_or(Location::NOWHERE, |v| of_value[v as usize]);
    Ok((0..dataflow.positions.len()).map(at).collect())
}

/// Where the memory of each allocation comes from, and the bytes of all temporaries, each at a multiple of `alignment`.
pub fn sources(plan: &Plan<'_>, alignment: usize) -> Result<(Vec<AllocationSource>, usize), ExecutionError> {
    let (dataflow, module) = (&plan.dataflow, plan.dataflow.module());
    let leaf_of_parameter: HashMap<Position, usize> =
        argument_leaves(plan).into_iter().enumerate().map(|(leaf, position)| (position, leaf)).collect();
    let mut temporary_bytes = 0usize;
    let mut sources = Vec::with_capacity(plan.allocations.len());
    for allocation in &plan.allocations {
        let bytes = usize::try_from(allocation.size).map_err(|_| ExecutionError::out_of_memory(usize::MAX))?;
        sources.push(if allocation.is_tuple || allocation.is_thread_local {
            AllocationSource::Unused
        } else if let Some(position) = allocation.parameter {
            match leaf_of_parameter.get(&position) {
                Some(&leaf) => AllocationSource::Argument { leaf, owned: allocation.is_aliased },
                None => AllocationSource::Unused,
            }
        } else if allocation.is_constant {
            let constant = allocation.places.iter().find_map(|place| {
                let value = dataflow.value(place.value)?;
                let id = dataflow.instruction(value);
                matches!(module[id].op, Op::Constant(_)).then_some((id, value.position))
            });
            let Some((id, position)) = constant else {
                sources.push(AllocationSource::Unused);
                continue;
            };
            let mut leaves = dataflow.positions.of(id).filter(|&p| !dataflow.positions.is_tuple(p));
            let Some(leaf) = leaves.position(|p| p == position) else {
                sources.push(AllocationSource::Unused);
                continue;
            };
            AllocationSource::Constant { instruction: id, leaf, bytes }
        } else if allocation.is_live_out {
            AllocationSource::Result { bytes }
        } else {
            let offset = temporary_bytes;
            temporary_bytes = bytes
                .checked_next_multiple_of(alignment)
                .and_then(|bytes| offset.checked_add(bytes))
                .ok_or_else(|| ExecutionError::out_of_memory(usize::MAX))?;
            AllocationSource::Temporary { offset }
        });
    }
    Ok((sources, temporary_bytes))
}

/// The positions of the leaves of the entry's parameters, in order.
pub fn argument_leaves(plan: &Plan<'_>) -> Vec<Position> {
    let (positions, module) = (&plan.dataflow.positions, plan.dataflow.module());
    let parameters = module.entry().map_or_else(Vec::new, |entry| module.parameters(entry));
    let leaves = parameters.iter().flat_map(|&p| positions.of(p)).filter(|&p| !positions.is_tuple(p));
    leaves.collect()
}

/// The bytes of arguments, results and temporaries of a device, those that share memory once.
pub fn peak_bytes(plan: &Plan<'_>, temporary_bytes: usize) -> usize {
    let lasting = plan.allocations.iter().filter(|a| a.parameter.is_some() || a.is_live_out);
    let lasting = lasting.filter(|a| !a.is_tuple && !a.is_thread_local);
    lasting.map(|a| usize::try_from(a.size).unwrap_or(0)).fold(temporary_bytes, usize::saturating_add)
}

/// The number of instructions that do work: neither parameters and constants, nor what merely hands values on.
pub fn working_instructions(module: &Module) -> usize {
    let works = |op: &Op| !matches!(op, Op::Parameter { .. } | Op::Constant(_) | Op::Fusion(_)) && !hands_on(op);
    let mut pending = hloom_passes::facts::flow_computations(module);
    let mut count = 0;
    while let Some(computation) = pending.pop() {
        for &id in module[computation].instructions() {
            let op = &module[id].op;
            count += usize::from(works(op));
            if let Op::Fusion(fusion) = op {
                pending.push(fusion.calls);
            }
        }
    }
    count
}

/// Whether an instruction merely hands values on: it makes none of its own.
pub fn hands_on(op: &Op) -> bool {
    matches!(
        op,
        Op::Tuple
            | Op::GetTupleElement { .. }
            | Op::AfterAll
            | Op::AddDependency
            | Op::OptBarrier
            | Op::Domain(_)
            | Op::Bitcast
            | Op::AsyncUpdate { .. }
            | Op::AsyncDone
            | Op::CopyDone
    )
}

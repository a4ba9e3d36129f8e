//! Global programs: programs over whole arrays that run on several devices.
//!
//! [`is_global`] tells one by what it carries; [`Global::partition`] makes the program of one device of it; whole arrays
//! are cut into shards on the way in and put together on the way out.

use crate::arrays::Inputs;
use hloom_formats::hlo_text::print_sharding;
use hloom_ir::Op;
use hloom_ir::diagnostic::codes::spmd::BAD_SHARDING;
use hloom_ir::diagnostic::{Blame, Diagnostic, Part, Place};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::sharding::{Sharding, ShardingKind, TileAssignment, TileDevices};
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_spmd::partition::placement::Placement;
use hloom_spmd::partition::{PARTITIONED_MARK, Partitioned};
use hloom_spmd::propagate::{PropagationOptions, PropagationReport};
use hloom_spmd::shards::{cut, paste, shard_of};
use hloom_value::{Array, ExecutionError, Value};
use std::time::{Duration, Instant};

/// A global program and what was made of it.
#[derive(Debug)]
pub struct Global {
    /// The program, every instruction with its sharding.
    pub source: Module,
    /// How each sharding came about.
    pub propagation: PropagationReport,
    /// What was made of it; its module is `program`.
    pub partitioned: Partitioned,
    /// The program of one device.
    pub program: VerifiedModule,
    /// The time that propagation took.
    pub propagate: Duration,
    /// The time that partitioning took.
    pub partition: Duration,
}

/// How many devices a program's shardings are for, if they say.
pub fn sharded_devices(module: &Module) -> Option<i64> {
    shardings(module).find_map(|(_, sharding)| {
        sharding.leaves().iter().find_map(|leaf| match &leaf.kind {
            ShardingKind::Tiled(tiles) => tiles.num_tiles(),
            ShardingKind::Named(named) => named.mesh.size().filter(|&n| n > 1),
            _ => None,
        })
    })
}

fn shardings(module: &Module) -> impl Iterator<Item = (InstructionId, &Sharding)> {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    all.filter_map(|&i| Some((i, module[i].common.sharding.as_deref()?)))
}

/// Refuses tiles that lie on devices which are not there.
fn devices_exist(module: &Module, devices: i64) -> Result<(), Vec<Diagnostic>> {
    let mut errors = Vec::new();
    for (i, sharding) in shardings(module) {
        let absent = sharding.leaves().iter().find_map(|leaf| match &leaf.kind {
            ShardingKind::Tiled(TileAssignment { devices: TileDevices::Explicit(ids), .. }) => {
                ids.iter().copied().find(|&id| id < 0 || id >= devices)
            }
            _ => None,
        });
        if let Some(absent) = absent {
            let message = format!("the sharding names device {absent}: there are {devices}, counted from 0");
            errors.push(
                Diagnostic::error(&BAD_SHARDING, message)
                    .at_instruction(i, Part::Attribute("sharding"))
                    .note(format!("`{}` has {}", module[i].name(), print_sharding(sharding)))
                    .help("tiles lie on all devices of the program, each on one or more of them"),
            );
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Whether a program for several devices is about whole arrays: it says how they lie on the devices, and nothing shows
/// that it is a program of one device already.
pub fn is_global(module: &Module) -> bool {
    let marked = module.config.frontend_attributes.contains_key(PARTITIONED_MARK);
    if marked || module.is_scheduled {
        return false;
    }
    let enters = |op: &Op| matches!(op, Op::CustomCall(call) if &*call.target == "SPMDFullToShardShape");
    if module.computations().iter().flat_map(|&c| module[c].instructions()).any(|&i| enters(&module[i].op)) {
        return true;
    }
    let mut says = false;
    for &c in module.computations() {
        for &i in module[c].instructions() {
            let sharding = module[i].common.sharding.as_deref();
            says |= sharding.is_some();
            let by_program = |kind: &ShardingKind| match kind {
                ShardingKind::Manual => true,
                ShardingKind::Named(named) => !named.manual.is_empty(),
                ShardingKind::Tiled(tiles) => match &tiles.subgroups {
                    hloom_ir::sharding::Subgroups::Types(types) => {
                        types.contains(&hloom_ir::sharding::SubgroupType::Manual)
                    }
                    _ => false,
                },
                _ => false,
            };
            let manual = sharding.is_some_and(|s| s.leaves().iter().any(|l| by_program(&l.kind)));
            match &module[i].op {
                Op::PartitionId | Op::CollectivePermute(_) | Op::CollectivePermuteStart(_) if !manual => return false,
                op if op.collective().is_some() && !manual => return false,
                _ => {}
            }
        }
    }
    says
}

impl Global {
    /// Decides the shardings that are open and makes the program of one of `devices` devices.
    pub fn partition(module: VerifiedModule, devices: i64) -> Result<Global, Vec<Diagnostic>> {
        let mut source = module.into_module();
        source.config.num_partitions = devices;
        devices_exist(&source, devices)?;
        let mut options = PropagationOptions::default();
        let config = &source.config;
        if !config.allow_spmd_sharding_propagation_to_output.is_empty() {
            options.allow_propagation_to_output = config.allow_spmd_sharding_propagation_to_output.clone();
        }
        if !config.allow_spmd_sharding_propagation_to_parameters.is_empty() {
            options.allow_propagation_to_parameters = config.allow_spmd_sharding_propagation_to_parameters.clone();
        }
        let begun = Instant::now();
        let propagation = hloom_spmd::propagate(&mut source, &options)?;
        let propagate = begun.elapsed();
        let begun = Instant::now();
        let mut partitioned = hloom_spmd::partition(&source, devices).map_err(|d| vec![d])?;
        let partition = begun.elapsed();
        let made = std::mem::replace(&mut partitioned.module, Module::new("moved"));
        // Every replica of the program has as many.
        let all = devices.saturating_mul(source.config.replica_count.max(1));
        let program = verify(made, &VerifyOptions { devices: Some(all) }).map_err(|invalid| {
            // What is wrong with it is ours to answer for, whatever the program was; its places are none of the source's.
            let ours = |d: Diagnostic| {
                let at = match d.place {
                    Place::Instruction(i, _) => format!("in {} of the partitioned program", invalid.module[i].name()),
                    _ => "in the partitioned program".to_owned(),
                };
                let notes = Vec::new();
                Diagnostic { notes, ..d }.at_place(Place::None).blame(Blame::Hloom).note(at)
            };
            invalid.diagnostics.into_iter().map(ours).collect::<Vec<_>>()
        })?;
        Ok(Global { source, propagation, partitioned, program, propagate, partition })
    }

    /// The shards of whole arguments, for every device; replicas of the program get the same.
    pub fn cut_inputs(&self, whole: &[Value]) -> Result<Inputs, ExecutionError> {
        let axes = &self.partitioned.axes;
        let devices = axes.devices();
        let mut inputs: Inputs = vec![Vec::new(); devices as usize];
        // Which shard each device has is stated leaf by leaf.
        for device in 0..devices {
            for (value, placements) in whole.iter().zip(&self.partitioned.parameters) {
                inputs[device as usize].push(self.cut_value(value, &mut placements.iter(), device)?);
            }
        }
        let replicas = usize::try_from(self.source.config.replica_count.max(1)).unwrap_or(1);
        Ok(std::iter::repeat_n(inputs, replicas).flatten().collect())
    }

    fn cut_value(
        &self,
        value: &Value,
        placements: &mut std::slice::Iter<'_, Placement>,
        device: i64,
    ) -> Result<Value, ExecutionError> {
        match value {
            Value::Array(array) => {
                let Some(placement) = placements.next() else { return Ok(value.clone()) };
                let axes = &self.partitioned.axes;
                let logical = placement.logical(axes, device);
                let shard = shard_of(axes, &placement.spec, array.dims(), logical);
                let bytes = cut(array.bytes(), array.dims(), array.element_type().bytes(), &shard);
                Ok(Value::Array(Array::from_bytes(array.element_type(), &shard.dims, &bytes)?))
            }
            Value::Tuple(elements) => {
                let parts = elements.iter().map(|e| self.cut_value(e, placements, device));
                Ok(Value::Tuple(parts.collect::<Result<_, _>>()?))
            }
            other => {
                placements.next();
                Ok(other.clone())
            }
        }
    }

    /// The whole results, leaf by leaf with their numbers, from those of the devices.
    pub fn join_outputs(&self, results: &[Value]) -> Result<Vec<(usize, Array)>, ExecutionError> {
        let axes = &self.partitioned.axes;
        let root = self.source.entry().and_then(|e| self.source.root(e));
        let Some(root) = root else { return Ok(Vec::new()) };
        let mut wholes = Vec::new();
        for (n, (_, leaf)) in self.source[root].shape.leaves().into_iter().enumerate() {
            let (Some(shape), Some(placement)) = (leaf.as_array(), self.partitioned.results.get(n)) else { continue };
            let width = shape.element_type.bytes();
            let mut whole = Array::zeroed(shape.element_type, shape.dims())?;
            for logical in 0..axes.devices() {
                let device = placement.device(axes, logical) as usize;
                let Some(Value::Array(part)) = results.get(device).and_then(|r| r.leaves().get(n).copied()) else {
                    continue;
                };
                let shard = shard_of(axes, &placement.spec, shape.dims(), logical);
                if shard.dims == part.dims() {
                    paste(whole.bytes_mut(), shape.dims(), width, &shard, part.bytes());
                }
            }
            wholes.push((n, whole));
        }
        Ok(wholes)
    }
}

//! Which devices a program runs on, and which of them are alike.
//!
//! Every device runs the same program; what differs is whom it meets in collectives, and over which links. Devices that
//! meet groups of the same form, made up of like devices, are of one class, and one of each class is simulated.

use crate::program::{Action, Movement, Program, Step};
use hloom_analysis::devices::{DeviceGrid, grid_of, implied_devices};
use hloom_cost::{Communication, GroupShape, Transfer};
use hloom_ir::attributes::CollectiveGroupMode;
use hloom_ir::diagnostic::codes::simulate::WRONG_DEVICES;
use hloom_ir::diagnostic::{Blame, Diagnostic, Part, Place};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_target::{Target, Topology};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Programs with more classes than this are simulated as if all devices were like the first.
const MOST_CLASSES: usize = 32;

/// The devices of a program, and how they are joined: as the topology says, or as the program needs.
pub fn grid_and_topology(
    module: &Module,
    target: &Target,
    topology: Option<&Topology>,
) -> Result<(DeviceGrid, Topology), Diagnostic> {
    let count = |n: i64| usize::try_from(n).unwrap_or(1).max(1);
    let (replicas, partitions) = (count(module.config.replica_count), count(module.config.num_partitions));
    let named = DeviceGrid { replicas, partitions };
    let is_named = named.devices() > 1;
    let implied = implied_devices(module);
    let needed = if is_named { named.devices() } else { implied.map_or(1, |i| i.grid.devices()) };
    let devices = topology.map_or(needed, Topology::devices);
    let wrong = |said: String| {
        let topology = topology.map_or_else(String::new, Topology::to_string);
        let message = format!("the topology {topology} has {devices} devices, but {said}");
        Diagnostic::error(&WRONG_DEVICES, message).blame(Blame::Data)
    };
    if is_named && devices != named.devices() {
        let said = format!("the module is for {replicas} replicas × {partitions} partitions");
        return Err(wrong(said).at_place(Place::Header));
    }
    if let Some(implied) = implied.filter(|_| !is_named && devices < needed) {
        let name = module[implied.named_by].name();
        let fault = wrong(format!("`{name}` names device {}", needed - 1));
        return Err(fault.at_instruction(implied.named_by, Part::Whole));
    }
    let topology = topology.cloned().unwrap_or_else(|| target.usual_topology(devices));
    target.check_topology(&topology)?;
    Ok((if is_named { named } else { grid_of(module, devices) }, topology))
}

/// A movement between devices, for one class.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    /// How long it takes and over which links.
    pub(crate) transfer: Transfer,
    /// The classes that take part, in order.
    pub(crate) classes: SmallVec<[u32; 2]>,
}

/// The classes of devices.
pub(crate) struct Classes {
    /// How many devices are of each.
    pub(crate) sizes: Vec<usize>,
    /// The first device of each.
    pub(crate) examples: Vec<usize>,
    meetings: FxHashMap<InstructionId, Vec<Meeting>>,
}

/// Groups that collectives meet in: of every device the number of its group, and the forms of groups.
struct Structure {
    group_of: Vec<u32>,
    groups: Vec<Vec<usize>>,
    shapes: Vec<GroupShape>,
}

const NO_GROUP: u32 = u32::MAX;

impl Classes {
    /// What a movement is to a class of devices; `None` for one that takes no part.
    pub(crate) fn meeting(&self, of: InstructionId, class: usize) -> Option<&Meeting> {
        self.meetings.get(&of)?.get(class).filter(|m| m.transfer.seconds > 0.0)
    }

    pub(crate) fn new(module: &Module, program: &Program, grid: DeviceGrid, links: &Communication<'_>) -> Classes {
        let movements = movements(module, program);
        let mut structures: Vec<Structure> = Vec::new();
        let mut known: FxHashMap<(Vec<Vec<i64>>, Option<CollectiveGroupMode>), usize> = FxHashMap::default();
        let mut structure_of: FxHashMap<InstructionId, usize> = FxHashMap::default();
        for (id, _) in &movements {
            let op = &module[*id].op;
            let Some(collective) = op.collective() else { continue };
            let groups = collective.replica_groups.expand().unwrap_or_default();
            let key = (groups, op.group_mode());
            let number = *known.entry(key).or_insert_with_key(|(groups, mode)| {
                structures.push(Structure::new(groups, *mode, grid, links));
                structures.len() - 1
            });
            structure_of.insert(*id, number);
        }
        let class_of = classes(&structures, grid.devices());
        let count = class_of.iter().copied().max().map_or(1, |m| m as usize + 1);
        let mut sizes = vec![0; count];
        let mut examples = vec![usize::MAX; count];
        for (device, &class) in class_of.iter().enumerate() {
            sizes[class as usize] += 1;
            examples[class as usize] = examples[class as usize].min(device);
        }
        let everyone: SmallVec<[u32; 2]> = (0..count as u32).collect();
        let mut meetings = FxHashMap::default();
        for (id, movement) in &movements {
            let each = |class: usize| match movement {
                Movement::Collective { kind, bytes, .. } => {
                    let structure = &structures[structure_of[id]];
                    structure.meeting(examples[class], &class_of, |shape| links.collective(*kind, *bytes, shape))
                }
                Movement::Permute { bytes, .. } => {
                    let pairs = pairs(&module[*id].op, grid);
                    Meeting { transfer: links.permute(&pairs, *bytes), classes: everyone.clone() }
                }
                _ => Meeting { transfer: Transfer::default(), classes: SmallVec::new() },
            };
            let of_first = each(0);
            let is_same = matches!(movement, Movement::Permute { .. }) || count == 1;
            let all = match is_same {
                true => vec![of_first; count],
                false => std::iter::once(of_first).chain((1..count).map(each)).collect(),
            };
            meetings.insert(*id, all);
        }
        Classes { sizes, examples, meetings }
    }
}

/// The movements between devices that the program makes, each with the instruction whose groups it has.
fn movements(module: &Module, program: &Program) -> Vec<(InstructionId, Movement)> {
    let steps = module.computations().iter().flat_map(|&c| program.steps(c));
    let moving = |step: &Step| match &step.action {
        Action::Start(m) | Action::Exchange(m) => match m {
            Movement::Collective { of, .. } | Movement::Permute { of, .. } => Some((*of, m.clone())),
            _ => None,
        },
        _ => None,
    };
    steps.filter_map(moving).collect()
}

/// The devices of a permute's pairs.
fn pairs(op: &Op, grid: DeviceGrid) -> Vec<(usize, usize)> {
    let (Op::CollectivePermute(permute) | Op::CollectivePermuteStart(permute)) = op else { return Vec::new() };
    let across_partitions = permute.channel_id.is_some() && grid.partitions > 1;
    let (ids, planes) = match across_partitions {
        true => (grid.partitions, grid.replicas),
        false => (grid.replicas, grid.partitions),
    };
    let device = |plane: usize, id: usize| match across_partitions {
        true => grid.device(plane, id),
        false => grid.device(id, plane),
    };
    let known = |&(a, b): &(i64, i64)| {
        let (a, b) = (usize::try_from(a).ok()?, usize::try_from(b).ok()?);
        (a < ids && b < ids).then_some((a, b))
    };
    let pairs: Vec<(usize, usize)> = permute.source_target_pairs.iter().filter_map(known).collect();
    (0..planes).flat_map(|p| pairs.iter().map(move |&(a, b)| (device(p, a), device(p, b)))).collect()
}

impl Structure {
    fn new(
        ids: &[Vec<i64>],
        mode: Option<CollectiveGroupMode>,
        grid: DeviceGrid,
        links: &Communication<'_>,
    ) -> Structure {
        use CollectiveGroupMode::*;
        let mode = mode.unwrap_or(FlattenedId);
        let all = match mode {
            CrossReplica | CrossReplicaAndPartition => grid.replicas,
            CrossPartition => grid.partitions,
            FlattenedId => grid.devices(),
        };
        let whole = [(0..all as i64).collect::<Vec<i64>>()];
        let ids = if ids.is_empty() { &whole[..] } else { ids };
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for group in ids {
            let known: Vec<usize> =
                group.iter().filter_map(|&i| usize::try_from(i).ok().filter(|&i| i < all)).collect();
            match mode {
                FlattenedId => groups.push(known),
                CrossReplica => {
                    groups.extend((0..grid.partitions).map(|p| known.iter().map(|&r| grid.device(r, p)).collect()));
                }
                CrossPartition => {
                    groups.extend((0..grid.replicas).map(|r| known.iter().map(|&p| grid.device(r, p)).collect()));
                }
                CrossReplicaAndPartition => {
                    let of = |r: &usize| (0..grid.partitions).map(|p| grid.device(*r, p)).collect::<Vec<_>>();
                    groups.push(known.iter().flat_map(of).collect());
                }
            }
        }
        let mut group_of = vec![NO_GROUP; grid.devices()];
        for (number, group) in groups.iter().enumerate() {
            group.iter().for_each(|&device| group_of[device] = number as u32);
        }
        let shapes = groups.iter().map(|g| links.shape_of(g)).collect();
        Structure { group_of, groups, shapes }
    }

    fn meeting(&self, device: usize, class_of: &[u32], transfer: impl Fn(&GroupShape) -> Transfer) -> Meeting {
        let Some(&group) = self.group_of.get(device).filter(|&&g| g != NO_GROUP) else {
            return Meeting { transfer: Transfer::default(), classes: SmallVec::new() };
        };
        let mut classes: SmallVec<[u32; 2]> = self.groups[group as usize].iter().map(|&d| class_of[d]).collect();
        classes.sort_unstable();
        classes.dedup();
        Meeting { transfer: transfer(&self.shapes[group as usize]), classes }
    }
}

/// The class of each device: refined until devices of one class meet groups of the same forms and classes.
fn classes(structures: &[Structure], devices: usize) -> Vec<u32> {
    let mut class_of = vec![0u32; devices];
    let mut count = 1;
    loop {
        // What a group looks like from outside: its form and how many of each class are in it.
        let views: Vec<Vec<usize>> = structures
            .iter()
            .map(|s| {
                let mut seen: FxHashMap<(&GroupShape, BTreeMap<u32, usize>), usize> = FxHashMap::default();
                let view = |(group, shape)| {
                    let mut members = BTreeMap::new();
                    for &device in group {
                        let device: usize = device;
                        *members.entry(class_of[device]).or_insert(0usize) += 1;
                    }
                    let next = seen.len();
                    *seen.entry((shape, members)).or_insert(next)
                };
                let groups: Vec<(&Vec<usize>, &GroupShape)> = s.groups.iter().zip(&s.shapes).collect();
                groups.into_iter().map(view).collect()
            })
            .collect();
        let mut numbers: FxHashMap<Vec<usize>, u32> = FxHashMap::default();
        let refined: Vec<u32> = (0..devices)
            .map(|device| {
                let mut key = vec![class_of[device] as usize];
                key.extend(structures.iter().zip(&views).map(|(s, v)| {
                    let group = s.group_of[device];
                    if group == NO_GROUP { usize::MAX } else { v[group as usize] }
                }));
                let next = numbers.len() as u32;
                *numbers.entry(key).or_insert(next)
            })
            .collect();
        if numbers.len() > MOST_CLASSES {
            return vec![0; devices];
        }
        if numbers.len() == count {
            return refined;
        }
        count = numbers.len();
        class_of = refined;
    }
}

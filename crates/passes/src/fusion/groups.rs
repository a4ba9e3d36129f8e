//! Which instructions of a computation are computed together.
//!
//! One sweep from the results to the parameters: when an instruction is looked at, all its users have their groups. It
//! joins them if every user can make its value where it is needed; otherwise it starts a group of its own, and its value
//! goes through memory. A cheap value is made again in each of several groups; an expensive one is not.
//!
//! A group has one result, from which all its members are reached; so what is an order of the instructions is an order of
//! the groups.

use super::cost::{Role, elements, is_elementwise, own_cost, plain_array, role, times_made};
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order::PostOrder;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// Instructions that are computed together.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// The members, each after those of its operands that are members.
    pub(super) members: Vec<InstructionId>,
    /// The members whose values others need.
    pub(super) results: Vec<InstructionId>,
}

/// A member's place in a group.
#[derive(Clone, Copy, Debug)]
struct Place {
    group: u32,
    /// How often each of its elements is made.
    times: f32,
    /// Whether it is needed just at the index at which the group's result is made.
    at_result: bool,
}

type Places = SmallVec<[Place; 1]>;

/// More members than this make kernels that are slow to compile and run out of registers.
const MAX_MEMBERS: usize = 96;
/// What may be made again in each of several groups: a few additions per element.
const CHEAP: f32 = 6.0;
/// In how many groups at most.
const MAX_COPIES: usize = 4;

/// The groups of a computation, and in which each instruction is.
pub(super) struct Groups {
    pub(super) groups: Vec<Group>,
    /// The position of each instruction in an order in which operands come first.
    pub(super) position: SideTable<InstructionId, u32>,
    /// The order itself.
    pub(super) order: Vec<InstructionId>,
}

/// Groups the instructions of `computation`.
pub(super) fn group(module: &Module, computation: ComputationId) -> Groups {
    let order = PostOrder::new(module).instructions(computation);
    let mut position = SideTable::with_len(module.instruction_slots(), 0);
    order.iter().enumerate().for_each(|(n, &i)| position.set(i, n as u32));
    let pinned = crate::facts::pinned(module);
    let mut roles = SideTable::with_len(module.instruction_slots(), Role::None);
    let mut cost = SideTable::with_len(module.instruction_slots(), 0f32);
    for &i in &order {
        if pinned[i] {
            continue;
        }
        roles.set(i, role(module, i));
        if matches!(roles[i], Role::Value) {
            let once = |&&o: &&InstructionId| roles[o] == Role::Value && module[o].users().len() == 1;
            let made_with_it: f32 = module[i].operands().iter().filter(once).map(|&o| cost[o]).sum();
            cost.set(i, own_cost(module, i) + made_with_it);
        } else if matches!(roles[i], Role::Reduce | Role::Last) {
            cost.set(i, own_cost(module, i));
        }
    }
    let root = module.root(computation);
    let mut sweep = Sweep {
        module,
        roles: &roles,
        cost: &cost,
        places: SideTable::with_len(module.instruction_slots(), Places::new()),
        groups: Vec::new(),
    };
    for &i in order.iter().rev() {
        if roles[i] != Role::None {
            sweep.place(i, root == Some(i));
        }
    }
    let groups = sweep.groups.into_iter().map(|g| finish(module, g)).collect();
    Groups { groups, position, order }
}

struct Sweep<'m> {
    module: &'m Module,
    roles: &'m SideTable<InstructionId, Role>,
    cost: &'m SideTable<InstructionId, f32>,
    places: SideTable<InstructionId, Places>,
    /// Members users first, for now.
    groups: Vec<Group>,
}

impl Sweep<'_> {
    /// Puts `i` into groups of its users, or into one of its own.
    fn place(&mut self, i: InstructionId, is_root: bool) {
        let mut joined = Places::new();
        let mut refused: SmallVec<[u32; 4]> = SmallVec::new();
        let mut escapes = is_root || self.module[i].users().is_empty();
        for &user in self.module[i].users() {
            escapes |= self.places[user].is_empty();
            for &place in &self.places[user] {
                match self.join(i, user, place) {
                    Some(new) => match joined.iter_mut().find(|p| p.group == new.group) {
                        Some(known) => {
                            known.times = known.times.max(new.times);
                            known.at_result &= new.at_result;
                        }
                        None => joined.push(new),
                    },
                    None => refused.push(place.group),
                }
            }
        }
        joined.retain(|p| !refused.contains(&p.group));
        let everywhere = !escapes && refused.is_empty();
        let joins = match self.roles[i] {
            Role::Free => true,
            Role::Value => {
                let cost = self.cost[i];
                let few = joined.len() <= MAX_COPIES || cost <= 1.0 && joined.len() <= 4 * MAX_COPIES;
                everywhere && (joined.len() == 1 || cost <= CHEAP && few)
            }
            Role::Reduce => everywhere && joined.len() == 1,
            Role::Last | Role::None => false,
        };
        if !joins {
            joined.clear();
        }
        if !(joins && everywhere) {
            let group = self.groups.len() as u32;
            self.groups.push(Group { members: Vec::new(), results: vec![i] });
            joined.push(Place { group, times: 1.0, at_result: true });
        }
        for place in &joined {
            self.groups[place.group as usize].members.push(i);
        }
        self.places.set(i, joined);
    }

    /// The place of `i` in the group in which `user` has `place`, if it can be made there.
    fn join(&self, i: InstructionId, user: InstructionId, place: Place) -> Option<Place> {
        let module = self.module;
        let group = &self.groups[place.group as usize];
        let role = self.roles[i];
        if group.members.len() >= MAX_MEMBERS || role == Role::Last {
            return None;
        }
        let times = place.times * times_made(module, i, user)?;
        let at_result = place.at_result && is_elementwise(&module[user].op) && same_dims(module, i, user);
        match role {
            Role::Free => {}
            Role::Reduce if !at_result || is_large_total(module, i) => return None,
            _ if times > 1.0 && self.cost[i] > 1.0 => return None,
            _ => {}
        }
        if let Some(&result) = group.results.first()
            && matches!(module[result].op, Op::DynamicUpdateSlice)
            && !is_safe_beside_update(module, i, result)
        {
            return None;
        }
        Some(Place { group: place.group, times, at_result })
    }
}

fn same_dims(module: &Module, a: InstructionId, b: InstructionId) -> bool {
    let dims = |i: InstructionId| plain_array(module, i).map(|a| a.dims());
    dims(a) == dims(b)
}

/// Whether `reduce` makes few values of many: threads share that work among themselves, but not what comes after it.
fn is_large_total(module: &Module, reduce: InstructionId) -> bool {
    let read = module[reduce].operands().first().map_or(0, |&o| elements(module, o));
    elements(module, reduce) < 16 && read > 1 << 14
}

/// Whether `i` may be made in the loop that writes `update` over its first operand: it must not read what may have been
/// overwritten already. A slice at the very place of the update is read just before it is written.
fn is_safe_beside_update(module: &Module, i: InstructionId, update: InstructionId) -> bool {
    let [buffer, new, starts @ ..] = module[update].operands() else { return false };
    if !module[i].operands().contains(buffer) {
        return true;
    }
    let same_place = matches!(module[i].op, Op::DynamicSlice { .. })
        && same_dims(module, i, *new)
        && module[i].operands().first() == Some(buffer)
        && module[i].operands().get(1..) == Some(starts);
    // It must also be needed at the index of the update only.
    same_place && module[i].users().iter().all(|&u| u == update || is_elementwise(&module[u].op))
}

/// Puts members in order and takes reshapes off the edges of a group: in memory they cost nothing.
fn finish(module: &Module, mut group: Group) -> Group {
    let is_reshape = |i: InstructionId| matches!(module[i].op, Op::Reshape { .. });
    group.members.reverse();
    let mut inside: FxHashSet<InstructionId> = group.members.iter().copied().collect();
    group.members.retain(|&m| {
        let at_edge = is_reshape(m) && !module[m].operands().iter().any(|o| inside.contains(o));
        if at_edge {
            inside.remove(&m);
        }
        !at_edge
    });
    while let (Some(&last), [result]) = (group.members.last(), group.results.as_mut_slice())
        && last == *result
        && is_reshape(last)
        && let &[operand] = module[last].operands()
        && module[operand].users() == [last]
        && inside.contains(&operand)
    {
        *result = operand;
        inside.remove(&last);
        group.members.pop();
        // The operand is the last of what is left: everything else in the group was made for it.
        if let Some(at) = group.members.iter().position(|&m| m == operand) {
            let operand = group.members.remove(at);
            group.members.push(operand);
        }
    }
    if group.results.first().is_some_and(|r| !inside.contains(r)) {
        group.results.clear();
        group.members.clear();
    }
    group
}

//! Which instructions of a computation are computed together.
//!
//! One sweep from the results to the parameters: when an instruction is looked at, all its users have their groups. It
//! joins them if every user can make its value where it is needed; otherwise it starts a group of its own, and its value
//! goes through memory. A cheap value is made again in each of several groups; an expensive one is not. A reduction of
//! short rows may be made within a loop over these rows: softmax and layer normalisation are one group.
//!
//! A group has one result, from which all its members are reached; so what is an order of the instructions is an order of
//! the groups.

#[cfg(test)]
mod tests;

use super::cost::{Role, elements, own_cost, plain_array, role, times_made};
use hloom_cost::element;
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_passes::FusionLimits;
use rustc_hash::{FxBuildHasher, FxHashSet};
use smallvec::SmallVec;
use std::hash::BuildHasher;

/// Instructions that are computed together.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// The members, each after those of its operands that are members.
    pub(super) members: Vec<InstructionId>,
    /// The members whose values others need.
    pub(super) results: Vec<InstructionId>,
    /// How many of the members are more than constants and the like, which are no code of their own.
    computed: usize,
}

impl Group {
    /// A group that is complete.
    pub(super) fn new(members: Vec<InstructionId>, results: Vec<InstructionId>) -> Group {
        Group { computed: members.len(), members, results }
    }
}

/// A member's place in a group.
#[derive(Clone, Debug)]
struct Place {
    group: u32,
    /// How often each of its elements is made.
    times: f64,
    /// Whether it is needed just at the index at which the group's result is made.
    at_result: bool,
    /// Whether its dimensions are the outermost ones of the group's result, so that it is made in the loops over these.
    is_outer: bool,
    /// How far apart the elements are that are made next to each other: farther by every slice with a stride.
    stride: i64,
    /// The loops in which it is needed: that of the result, or those of reductions within. In each it is made anew.
    loops: SmallVec<[Site; 2]>,
}

/// A loop in which a member is needed, and how it got there: parts of concatenations of parts of concatenations are as
/// many as there are ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Site {
    at: InstructionId,
    way: u64,
}

impl Site {
    fn new(at: InstructionId) -> Site {
        Site { at, way: 0 }
    }

    /// The site of a part of the concatenation that is made here.
    fn part(self, part: InstructionId) -> Site {
        Site { at: part, way: FxBuildHasher.hash_one((self.way, self.at)) }
    }
}

type Places = SmallVec<[Place; 1]>;

/// What is cheap may be made again in each of so many groups at most.
const MAX_COPIES: usize = 4;
/// One cheap value after another, each used twice, is made again up to so many additions: not the whole of a long chain.
const MAX_COPIED: f64 = 2.0 * element::CHEAP;
/// Additions that are done again, for an element that several parts of a concatenation need.
const MAX_RECOMPUTED: f64 = 48.0;
/// So many sites of a member are told apart.
const MAX_SITES: usize = 32;
/// What costs so much is better made by whole vectors than for each of many rows of at most so many elements.
const EXPENSIVE: f64 = 8.0;
const SHORT_ROW: i64 = 48;
/// What costs so much is so even where the rows have to be read once more for it: the functions of angles.
const WORTH_READING_AGAIN: f64 = 40.0;
/// Arrays of at most so many bytes may be read in any order: they are cache-resident.
const MAX_TRANSPOSED_BYTES: i64 = 1 << 18;
/// Of the updates of an array one after another, as many are looked at.
const MAX_UPDATES: usize = 8;
/// A reduction within a group is of at least so many rows, to share among threads.
const MIN_ROWS: i64 = 16;

/// What is known of the instructions of a module while it is fused.
pub(super) struct Facts {
    /// The position of each instruction in an order in which operands come first.
    pub(super) position: SideTable<InstructionId, u32>,
    roles: SideTable<InstructionId, Role>,
    /// What it costs to make each, with what would be made along with it.
    cost: SideTable<InstructionId, f64>,
    /// How many arrays as large as itself are read to make each.
    reads: SideTable<InstructionId, u32>,
    places: SideTable<InstructionId, Places>,
    /// What it costs to make each in further groups, with what is made of it there; 0 if it is in one only.
    copied: SideTable<InstructionId, f64>,
    pinned: SideTable<InstructionId, bool>,
}

impl Facts {
    /// Nothing is known yet.
    pub(super) fn new(module: &Module) -> Facts {
        let slots = module.instruction_slots();
        Facts {
            position: SideTable::with_len(slots, 0),
            roles: SideTable::with_len(slots, Role::None),
            cost: SideTable::with_len(slots, 0.0),
            reads: SideTable::with_len(slots, 0),
            places: SideTable::with_len(slots, Places::new()),
            copied: SideTable::with_len(slots, 0.0),
            pinned: hloom_passes::facts::pinned(module),
        }
    }

    /// Whether an instruction is made wherever it is needed: it costs nothing, or is cheap and in several groups.
    pub(super) fn is_made_again(&self, i: InstructionId) -> bool {
        self.roles[i] == Role::Free || self.places[i].len() > 1
    }

    /// Whether a control dependency names an instruction.
    pub(super) fn is_pinned(&self, i: InstructionId) -> bool {
        self.pinned[i]
    }
}

/// Groups the instructions of `computation`, which are `order`, operands first.
pub(super) fn group(
    module: &Module,
    computation: ComputationId,
    order: &[InstructionId],
    facts: &mut Facts,
    limits: FusionLimits,
) -> Vec<Group> {
    let Facts { position, roles, cost, reads, places, copied, pinned } = facts;
    for (n, &i) in order.iter().enumerate() {
        position.set(i, n as u32);
        if pinned[i] {
            continue;
        }
        roles.set(i, role(module, i, limits));
        if matches!(roles[i], Role::Value) {
            let once = |&&o: &&InstructionId| roles[o] == Role::Value && module[o].users().len() == 1;
            let made_with_it: f64 = module[i].operands().iter().filter(once).map(|&o| cost[o]).sum();
            cost.set(i, own_cost(module, i) + made_with_it);
            let large = elements(module, i) / 4;
            let read = |&o: &InstructionId| match roles[o] {
                Role::Free => 0,
                Role::Value if module[o].users().len() == 1 => reads[o],
                _ => u32::from(elements(module, o) >= large),
            };
            let read: u32 = module[i].operands().iter().map(read).fold(0, u32::saturating_add);
            reads.set(i, read);
        } else if matches!(roles[i], Role::Reduce | Role::Last) {
            cost.set(i, own_cost(module, i));
        }
    }
    let root = module.root(computation);
    let mut sweep = Sweep { module, roles, cost, reads, places, copied, limits, groups: Vec::new() };
    for &i in order.iter().rev() {
        if sweep.roles[i] != Role::None {
            sweep.place(i, root == Some(i));
        }
    }
    sweep.groups.into_iter().map(|g| finish(module, g)).collect()
}

struct Sweep<'m> {
    module: &'m Module,
    roles: &'m SideTable<InstructionId, Role>,
    cost: &'m SideTable<InstructionId, f64>,
    reads: &'m SideTable<InstructionId, u32>,
    places: &'m mut SideTable<InstructionId, Places>,
    copied: &'m mut SideTable<InstructionId, f64>,
    limits: FusionLimits,
    /// Members users first, for now.
    groups: Vec<Group>,
}

impl Sweep<'_> {
    /// Puts `i` into groups of its users, or into one of its own.
    fn place(&mut self, i: InstructionId, is_root: bool) {
        let module = self.module;
        let mut joined = Places::new();
        let mut refused: SmallVec<[u32; 4]> = SmallVec::new();
        let mut escapes = is_root || self.module[i].users().is_empty();
        for &user in self.module[i].users() {
            escapes |= self.places[user].is_empty();
            for place in &self.places[user] {
                match self.join(i, user, place) {
                    Some(new) => match joined.iter_mut().find(|p| p.group == new.group) {
                        Some(known) => known.also(new),
                        None => joined.push(new),
                    },
                    None => refused.push(place.group),
                }
            }
        }
        joined.iter().filter(|p| !self.is_affordable(i, p)).for_each(|p| refused.push(p.group));
        joined.retain(|p| !refused.contains(&p.group));
        let everywhere = !escapes && refused.is_empty();
        let joins = match self.roles[i] {
            Role::Free => true,
            Role::Value => {
                let cost = self.cost[i];
                let few = joined.len() <= MAX_COPIES || cost <= 1.0 && joined.len() <= 4 * MAX_COPIES;
                let again = cost <= self.limits.recomputed && self.reads[i] <= 1 && joined.len() == 2;
                let is_cheap = cost <= element::CHEAP && self.cost_of_copy(i) <= MAX_COPIED;
                let once = joined.len() == 1 && joined.iter().all(|p| p.loops.len() <= 1);
                let apart = !once && self.is_made_far_apart(i, &joined);
                everywhere && !apart && (joined.len() == 1 || is_cheap && few || again)
            }
            Role::Reduce => everywhere && joined.len() == 1,
            Role::Last | Role::None => false,
        };
        if !joins {
            joined.clear();
        }
        if !(joins && everywhere) {
            let group = self.groups.len() as u32;
            self.groups.push(Group { members: Vec::new(), results: vec![i], computed: 0 });
            let loops = SmallVec::from_slice(&[Site::new(i)]);
            joined.push(Place { group, times: 1.0, at_result: true, is_outer: true, stride: 1, loops });
        }
        // Of constants in every element only one is ever made.
        let repeats_one = matches!(module[i].op, Op::Broadcast { .. })
            && module[i].operands().first().is_some_and(|&o| elements(module, o) == 1);
        let is_no_code = self.roles[i] == Role::Free || repeats_one;
        for place in &joined {
            let group = &mut self.groups[place.group as usize];
            group.members.push(i);
            group.computed += usize::from(!is_no_code);
        }
        let copied = if joined.len() > 1 { self.cost_of_copy(i) } else { 0.0 };
        self.copied.set(i, copied);
        self.places.set(i, joined);
    }

    /// Whether `i` would be made of elements that lie apart, for elements that lie apart themselves: each time that such a
    /// chain is made again it reads the farther apart, while its own values would lie side by side.
    fn is_made_far_apart(&self, i: InstructionId, places: &[Place]) -> bool {
        let reads_apart = |&o: &InstructionId| slice_stride(self.module, o) > 1;
        places.iter().any(|p| p.stride > 1) && self.module[i].operands().iter().any(reads_apart)
    }

    /// What is made again where `i` is made in several groups: itself, and what is made of it there.
    fn cost_of_copy(&self, i: InstructionId) -> f64 {
        let after = self.module[i].users().iter().map(|&u| self.copied[u]).fold(0.0, f64::max);
        after + own_cost(self.module, i)
    }

    /// The place of `i` in the group in which `user` has `place`, if it can be made there.
    fn join(&self, i: InstructionId, user: InstructionId, place: &Place) -> Option<Place> {
        let module = self.module;
        let group = &self.groups[place.group as usize];
        let is_full = group.computed >= self.limits.members && self.roles[i] != Role::Free;
        if is_full || self.roles[i] == Role::Last {
            return None;
        }
        let times = place.times * times_made(module, i, user, self.limits)?;
        let element_by_element = module[user].op.is_elementwise() && same_dims(module, i, user);
        let is_outer = place.is_outer && (element_by_element || keeps_outer_dims(module, i, user));
        if self.roles[i] == Role::Value && (self.loses_lanes(i, user, is_outer) || self.turns_rows(i, user, place)) {
            return None;
        }
        if let Some(&result) = group.results.first()
            && is_update(module, result)
            && (!is_safe_beside_update(module, i, result) || is_changed_before(module, i, result))
        {
            return None;
        }
        Some(Place {
            group: place.group,
            times,
            at_result: place.at_result && element_by_element,
            is_outer,
            stride: place.stride.saturating_mul(slice_stride(module, user)),
            loops: match &module[user].op {
                Op::Reduce { .. } => SmallVec::from_slice(&[Site::new(user)]),
                // The parts of a concatenation are loops of their own, and share nothing.
                Op::Concatenate { .. } => place.loops.iter().take(MAX_SITES).map(|s| s.part(i)).collect(),
                _ => place.loops.clone(),
            },
        })
    }

    /// Whether it is no loss to make `i` there.
    fn is_affordable(&self, i: InstructionId, place: &Place) -> bool {
        let module = self.module;
        let cost = self.cost[i];
        let Some(&result) = self.groups[place.group as usize].results.first() else { return false };
        match self.roles[i] {
            Role::Free => true,
            Role::Reduce if is_large_total(module, i) => false,
            Role::Reduce if self.hinders_lanes(i, result, &self.groups[place.group as usize]) => false,
            Role::Reduce => {
                place.at_result
                    || place.is_outer && place.times == 1.0 && is_row_reduction(module, i, result, self.limits)
            }
            _ if place.times > 1.0 => {
                let is_little = elements(module, i).saturating_mul(16) <= elements(module, result);
                cost <= self.limits.repeated || place.times <= 2.0 && is_little && cost <= self.limits.recomputed
            }
            // What is made once for a whole row costs next to nothing.
            _ if elements(module, i).saturating_mul(16) <= elements(module, result) => true,
            _ => {
                let is_along_row = |s: &Site| s.at == result || matches!(module[s.at].op, Op::Reduce { .. });
                match place.loops.len() {
                    1 => true,
                    _ if place.loops.iter().all(is_along_row) => cost <= self.limits.recomputed_in_row,
                    // The parts of a concatenation share nothing.
                    loops => cost * (loops - 1) as f64 <= MAX_RECOMPUTED,
                }
            }
        }
    }
}

impl Sweep<'_> {
    /// Whether `reduce` sums up short rows, and what follows it in the group is expensive: a sum along rows leaves one number
    /// at a time, so that what follows has no vectors to work on.
    fn hinders_lanes(&self, reduce: InstructionId, result: InstructionId, group: &Group) -> bool {
        let module = self.module;
        let rows = elements(module, reduce);
        if rows != elements(module, result) {
            return false;
        }
        let read = module[reduce].operands().first().map_or(0, |&o| elements(module, o));
        let expense =
            |&m: &InstructionId| if elements(module, m) == rows { own_cost(module, m).min(100.0) } else { 0.0 };
        let after: f64 = group.members.iter().map(expense).sum();
        rows >= 8 && after >= 8.0 && ((read / rows.max(1)) as f64) < 16.0 * after && is_along_rows(module, reduce)
    }
}

impl Sweep<'_> {
    /// Whether `i` is expensive and `user` repeats it along short rows: within the loop over these it is made one number at a
    /// time, in a loop of its own by whole vectors. What is made of reductions of the group's own rows stays with them if it
    /// is not very expensive, as the rows would have to be read once more.
    fn loses_lanes(&self, i: InstructionId, user: InstructionId, is_outer: bool) -> bool {
        let module = self.module;
        let (Op::Broadcast { dimensions }, Some(to)) = (&module[user].op, plain_array(module, user)) else {
            return false;
        };
        let innermost = dimensions.last().map_or(-1, |&d| d) as usize;
        let row: i64 = to.dims().iter().skip(innermost.wrapping_add(1)).product();
        let is_expensive = self.cost[i] >= EXPENSIVE && (2..=SHORT_ROW).contains(&row);
        is_expensive && (self.cost[i] >= WORTH_READING_AGAIN || !(is_outer && self.is_made_of_reduction(i)))
    }

    /// Whether `i` is a transpose that would have each row of a reduction inside of the group gathered from all over the
    /// operand, as in a normalisation of what was transposed: on its own it is made in tiles, and the rows are then read
    /// along the memory. A reduction that is the group's result goes along its operand, whichever way that is, unless it
    /// reads others that lie the other way.
    fn turns_rows(&self, i: InstructionId, user: InstructionId, place: &Place) -> bool {
        let module = self.module;
        let group = &self.groups[place.group as usize];
        let is_read_by = |&r: &InstructionId| {
            let rows = module[r].operands().first().map_or(0, |&o| elements(module, o));
            matches!(module[r].op, Op::Reduce { .. })
                && elements(module, i) >= rows
                && (!group.results.contains(&r) || reads_both_ways(module, r))
        };
        moves_rows(module, i) && (is_read_by(&user) || place.loops.iter().any(|s| is_read_by(&s.at)))
    }

    /// Whether a reduction is among what `i` is made of, as far as it is worth looking.
    fn is_made_of_reduction(&self, i: InstructionId) -> bool {
        let mut pending: SmallVec<[InstructionId; 8]> = SmallVec::from_slice(&[i]);
        let mut looked_at = 0;
        while let (Some(i), true) = (pending.pop(), looked_at < 32) {
            looked_at += 1;
            match self.roles[i] {
                Role::Reduce => return true,
                Role::Value => pending.extend(self.module[i].operands().iter().copied()),
                Role::Free | Role::Last | Role::None => {}
            }
        }
        false
    }
}

impl Place {
    /// The same member in the same group is needed there as well.
    fn also(&mut self, other: Place) {
        self.times = self.times.max(other.times);
        self.at_result &= other.at_result;
        self.is_outer &= other.is_outer;
        self.stride = self.stride.max(other.stride);
        for l in other.loops {
            if !self.loops.contains(&l) {
                self.loops.push(l);
            }
        }
    }
}

/// Whether the dimensions of `i`, but for those of size 1, are the outermost ones of `user`, in order.
fn keeps_outer_dims(module: &Module, i: InstructionId, user: InstructionId) -> bool {
    let (Some(inner), Some(outer)) = (plain_array(module, i), plain_array(module, user)) else { return false };
    let large = |dims: &[i64]| dims.iter().copied().filter(|&n| n != 1).collect::<SmallVec<[i64; 4]>>();
    let (of_value, of_user) = (large(inner.dims()), large(outer.dims()));
    match &module[user].op {
        Op::Broadcast { dimensions } => {
            let mapped = dimensions.iter().zip(inner.dims()).filter(|&(_, &n)| n != 1).map(|(&d, _)| d);
            let outermost = outer.dims().iter().enumerate().filter(|&(_, &n)| n != 1).map(|(d, _)| d as i64);
            of_user.starts_with(&of_value) && mapped.eq(outermost.take(of_value.len()))
        }
        Op::Reshape { .. } => of_value == of_user,
        // What is reduced is inside of what is not.
        Op::Reduce { dimensions, .. } => {
            let first = inner.rank() as i64 - dimensions.len() as i64;
            dimensions.iter().all(|&d| d >= first)
        }
        _ => false,
    }
}

/// Whether `reduce` makes one value of each of many short rows, and the result is made row by row.
fn is_row_reduction(module: &Module, reduce: InstructionId, result: InstructionId, limits: FusionLimits) -> bool {
    let Op::Reduce { dimensions, .. } = &module[reduce].op else { return false };
    let Some(read) = module[reduce].operands().first().and_then(|&o| plain_array(module, o)) else { return false };
    let first = read.rank() as i64 - dimensions.len() as i64;
    let rows = elements(module, reduce);
    let row_bytes = read.byte_size().unwrap_or(i64::MAX) / rows.max(1);
    let ends_in_loops = !matches!(
        module[result].op,
        Op::DynamicUpdateSlice
            | Op::Scatter(_)
            | Op::ReduceWindow { .. }
            | Op::Concatenate { .. }
            | Op::Transpose { .. }
    );
    ends_in_loops
        && dimensions.iter().all(|&d| d >= first)
        && rows >= MIN_ROWS
        && row_bytes <= limits.row_bytes
        && elements(module, result) >= rows
}

/// Whether `reduce` goes along the innermost dimensions of all that it reads.
fn is_along_rows(module: &Module, reduce: InstructionId) -> bool {
    let Op::Reduce { dimensions, .. } = &module[reduce].op else { return false };
    let Some(&read) = module[reduce].operands().first() else { return false };
    let rank = plain_array(module, read).map_or(0, |a| a.rank()) as i64;
    let first = rank - dimensions.len() as i64;
    let mut pending: SmallVec<[InstructionId; 8]> = SmallVec::from_slice(&[read]);
    let mut looked_at = 0;
    while let Some(i) = pending.pop() {
        looked_at += 1;
        match &module[i].op {
            Op::Transpose { .. } => return false,
            op if looked_at < 16
                && (op.is_elementwise() || matches!(op, Op::Broadcast { .. } | Op::Reshape { .. })) =>
            {
                pending.extend(module[i].operands().iter().copied());
            }
            _ => {}
        }
    }
    dimensions.iter().all(|&d| d >= first)
}

/// Whether `reduce` reads large arrays along their rows and, transposed, others across them; as far as it is worth looking.
fn reads_both_ways(module: &Module, reduce: InstructionId) -> bool {
    let Some(&read) = module[reduce].operands().first() else { return false };
    let mut pending: SmallVec<[InstructionId; 8]> = SmallVec::from_slice(&[read]);
    let (mut looked_at, mut along, mut across) = (0, false, false);
    while let (Some(i), true) = (pending.pop(), looked_at < 32) {
        looked_at += 1;
        match &module[i].op {
            op if op.is_elementwise() && !module[i].operands().is_empty() => {
                pending.extend(module[i].operands().iter().copied());
            }
            Op::Transpose { .. } if moves_rows(module, i) => across = true,
            Op::Broadcast { .. } | Op::Iota { .. } | Op::Constant(_) => {}
            _ => along |= elements(module, i) >= elements(module, read),
        }
    }
    along && across
}

/// Whether `i` is a transpose of more than the caches hold, and its rows are not rows of its operand.
pub(super) fn moves_rows(module: &Module, i: InstructionId) -> bool {
    let (Op::Transpose { dimensions }, Some(to)) = (&module[i].op, plain_array(module, i)) else { return false };
    let large = || dimensions.iter().zip(to.dims()).filter(|&(_, &n)| n != 1).map(|(&d, _)| d);
    large().next_back() != large().max() && to.byte_size().is_some_and(|bytes| bytes > MAX_TRANSPOSED_BYTES)
}

/// The stride of a slice along the innermost dimension; 1 for all else.
fn slice_stride(module: &Module, i: InstructionId) -> i64 {
    match &module[i].op {
        Op::Slice { dims } => dims.last().map_or(1, |d| d.stride),
        _ => 1,
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

/// Whether `i` may be written over its first operand, which is then the same memory.
fn is_update(module: &Module, i: InstructionId) -> bool {
    matches!(module[i].op, Op::DynamicUpdateSlice | Op::Scatter(_))
}

/// What `i` is under another shape.
fn reshaped(module: &Module, mut i: InstructionId) -> InstructionId {
    while let (Op::Reshape { .. } | Op::Bitcast, &[operand]) = (&module[i].op, module[i].operands()) {
        i = operand;
    }
    i
}

/// Whether `i` may be made in the loop that writes `update` over its first operand: it must not read what may have been
/// overwritten already. A slice at the very place of the update is read just before it is written.
fn is_safe_beside_update(module: &Module, i: InstructionId, update: InstructionId) -> bool {
    let [buffer, new, starts @ ..] = module[update].operands() else { return false };
    let memory = reshaped(module, *buffer);
    if !module[i].operands().iter().any(|&o| reshaped(module, o) == memory) {
        return true;
    }
    let same_place = matches!((&module[i].op, &module[update].op), (Op::DynamicSlice { .. }, Op::DynamicUpdateSlice))
        && same_dims(module, i, *new)
        && module[i].operands().first() == Some(buffer)
        && module[i].operands().get(1..) == Some(starts);
    // It must also be needed at the index of the update only.
    same_place && module[i].users().iter().all(|&u| u == update || module[u].op.is_elementwise())
}

/// Whether `i` reads an array that updates before `update` change in place: if it were read with `update`, what it was
/// before them would have to be kept.
fn is_changed_before(module: &Module, i: InstructionId, update: InstructionId) -> bool {
    let mut buffer = module[update].operands().first().copied();
    for _ in 0..MAX_UPDATES {
        let Some(earlier) = buffer.filter(|&b| is_update(module, b)) else { return false };
        buffer = module[earlier].operands().first().copied();
        if buffer.is_some_and(|b| module[i].operands().contains(&b)) {
            return true;
        }
    }
    false
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

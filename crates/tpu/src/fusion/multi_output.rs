//! Groups with several results: a group and one that reads it, or two that read the same, in one loop.
//!
//! Two groups become one only if neither waits for the other through a third, which a bounded search tells: where it would
//! have to look at more, they stay apart.

use super::classify::{Role, Roles};
use super::group::{GroupId, Groups, MAX_MEMBERS, Side, reads_what_is_updated};
use crate::edit::array_of;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::{FxHashMap, FxHashSet};

/// More arrays than this are not read and written by one fusion with several results.
const MAX_OPERANDS: usize = 19;
/// How many instructions the search for a way from one group to another looks at.
const MAX_SEARCH: usize = 2000;
/// How many readers of one value are tried with each other.
const MAX_SIBLINGS: usize = 16;

/// Merges groups of `groups` where that saves reading an array twice.
pub(super) fn merge(module: &Module, order: &[InstructionId], roles: &Roles, groups: &mut Groups) {
    let rank: FxHashMap<InstructionId, usize> = order.iter().enumerate().map(|(n, &i)| (i, n)).collect();
    let mut merger = Merger { module, roles, rank, into: (0..groups.groups.len()).collect(), groups };
    merger.with_readers(order);
    merger.siblings(order);
    merger.drop_inner_roots();
    for (g, group) in merger.groups.groups.iter_mut().enumerate() {
        if merger.into[g] != g {
            group.members.clear();
            group.roots.clear();
        }
    }
}

struct Merger<'a> {
    module: &'a Module,
    roles: &'a Roles,
    rank: FxHashMap<InstructionId, usize>,
    /// The group that a group has become part of; itself if none.
    into: Vec<GroupId>,
    groups: &'a mut Groups,
}

impl Merger<'_> {
    fn group_of(&mut self, i: InstructionId) -> Option<(GroupId, Side)> {
        let (g, side) = *self.groups.of.get(&i)?;
        let mut at = g;
        while self.into[at] != at {
            at = self.into[at];
        }
        self.into[g] = at;
        Some((at, side))
    }

    /// What a group reads from outside, seen through cheap instructions.
    fn reads(&mut self, g: GroupId) -> Vec<InstructionId> {
        let mut seen = FxHashSet::default();
        let mut found = Vec::new();
        let members = self.groups.groups[g].members.clone();
        let mut stack: Vec<InstructionId> = members.iter().flat_map(|&m| self.module[m].operands().to_vec()).collect();
        while let Some(i) = stack.pop() {
            if !seen.insert(i) || self.group_of(i).is_some_and(|(other, _)| other == g) {
                continue;
            }
            match self.roles.of(i) {
                Role::Cheap => stack.extend(self.module[i].operands()),
                _ => found.push(i),
            }
        }
        found
    }

    /// Whether group `later` waits for group `earlier` through a third; true as well where that is not found out.
    fn waits_through_others(&mut self, later: GroupId, earlier: GroupId) -> bool {
        let first = self.groups.groups[earlier].roots.iter().map(|r| self.rank[r]).min().unwrap_or(0);
        let mut stack: Vec<InstructionId> = self.reads(later);
        stack.retain(|&i| self.group_of(i).is_none_or(|(g, _)| g != earlier));
        let mut seen_groups = FxHashSet::default();
        let mut seen = FxHashSet::default();
        let mut looked = 0;
        while let Some(i) = stack.pop() {
            looked += 1;
            if looked > MAX_SEARCH {
                return true;
            }
            match self.group_of(i) {
                Some((g, _)) if g == earlier || g == later => return true,
                Some((g, _)) => {
                    if seen_groups.insert(g) {
                        // Any member of a group may be what waits.
                        let last = self.groups.groups[g].members.iter().map(|m| self.rank[m]).max().unwrap_or(0);
                        if last > first {
                            looked += self.groups.groups[g].members.len();
                            stack.extend(self.reads(g));
                        }
                    }
                }
                None => {
                    if self.rank[&i] > first && seen.insert(i) {
                        stack.extend(self.module[i].operands());
                    }
                }
            }
        }
        false
    }

    /// Whether all that `later` reads of `earlier` is there element by element as the loop runs: what a reduction or an
    /// update makes is there only at its end.
    fn reads_along(&mut self, later: GroupId, earlier: GroupId) -> bool {
        let reads = self.reads(later);
        reads.into_iter().all(|i| {
            self.group_of(i).is_none_or(|(g, _)| g != earlier)
                || !matches!(self.module[i].op, Op::Reduce { .. } | Op::DynamicUpdateSlice)
        })
    }

    /// Results that only the group itself reads are none.
    fn drop_inner_roots(&mut self) {
        for g in 0..self.groups.groups.len() {
            if self.groups.groups[g].roots.len() < 2 {
                continue;
            }
            let roots = std::mem::take(&mut self.groups.groups[g].roots);
            let (read, _): (Vec<_>, Vec<_>) = roots.into_iter().partition(|&r| self.is_read_outside(g, r));
            self.groups.groups[g].roots = read;
        }
    }

    fn is_read_outside(&mut self, g: GroupId, root: InstructionId) -> bool {
        if self.module.root(self.module[root].parent()) == Some(root) {
            return true;
        }
        let mut stack: Vec<InstructionId> = self.module[root].users().to_vec();
        let mut seen = FxHashSet::default();
        while let Some(user) = stack.pop() {
            if !seen.insert(user) {
                continue;
            }
            match self.group_of(user) {
                Some((other, _)) if other == g => {}
                Some(_) => return true,
                None if self.roles.of(user) == Role::Cheap => stack.extend(self.module[user].users()),
                None => return true,
            }
        }
        false
    }

    fn is_plain_loop(&self, g: GroupId) -> bool {
        self.groups.groups[g].convolution.is_none()
    }

    fn fits(&mut self, a: GroupId, b: GroupId) -> bool {
        let (x, y) = (&self.groups.groups[a], &self.groups.groups[b]);
        let is_updated = |roots: &[InstructionId], members: &[InstructionId]| {
            members.iter().any(|&m| reads_what_is_updated(self.module, roots, m))
        };
        if x.dims != y.dims
            || x.members.len() + y.members.len() > MAX_MEMBERS
            || is_updated(&x.roots, &y.members)
            || is_updated(&y.roots, &x.members)
        {
            return false;
        }
        let results = x.roots.len() + y.roots.len();
        let mut reads = self.reads(a);
        reads.extend(self.reads(b));
        reads.sort_unstable();
        reads.dedup();
        results + reads.len() <= MAX_OPERANDS
    }

    fn join(&mut self, into: GroupId, from: GroupId) {
        let group = std::mem::take(&mut self.groups.groups[from]);
        self.into[from] = into;
        let target = &mut self.groups.groups[into];
        target.members.extend(group.members);
        target.roots.extend(group.roots);
    }

    /// Groups that read what another makes, of the same size, join it.
    fn with_readers(&mut self, order: &[InstructionId]) {
        for &i in order {
            let Some((earlier, _)) = self.group_of(i) else { continue };
            // Elements of the loop itself can be handed on; what a reduction or an update makes cannot.
            let is_handed_on = self.groups.groups[earlier].roots.contains(&i)
                && !matches!(self.module[i].op, Op::Reduce { .. } | Op::DynamicUpdateSlice)
                && array_of(self.module, i).is_some_and(|a| *a.dims() == *self.groups.groups[earlier].dims);
            if !is_handed_on {
                continue;
            }
            for &user in self.module[i].users().iter().take(MAX_SIBLINGS) {
                let Some((later, _)) = self.group_of(user) else { continue };
                if later != earlier
                    && self.is_plain_loop(later)
                    && self.fits(earlier, later)
                    && self.reads_along(later, earlier)
                    && (self.is_plain_loop(earlier) || !self.groups.updates_in_place(self.module, later))
                    && !self.waits_through_others(later, earlier)
                {
                    self.join(earlier, later);
                }
            }
        }
    }

    /// Loops over the same array become one.
    fn siblings(&mut self, order: &[InstructionId]) {
        for &i in order {
            if array_of(self.module, i).is_none_or(|a| a.is_scalar()) || self.roles.of(i) == Role::Cheap {
                continue;
            }
            let mut readers: Vec<GroupId> = Vec::new();
            for &user in self.module[i].users().iter().take(MAX_SIBLINGS) {
                let Some((g, Side::Main)) = self.group_of(user) else { continue };
                if !self.is_plain_loop(g) || readers.contains(&g) {
                    continue;
                }
                let same = readers.iter().copied().find(|&r| {
                    self.fits(r, g)
                        && !self.waits_through_others(g, r)
                        && !self.waits_through_others(r, g)
                        && !self.reads_from(g, r)
                        && !self.reads_from(r, g)
                });
                match same {
                    Some(r) => self.join(r, g),
                    None => readers.push(g),
                }
            }
        }
    }

    fn reads_from(&mut self, later: GroupId, earlier: GroupId) -> bool {
        let reads = self.reads(later);
        reads.into_iter().any(|i| self.group_of(i).is_some_and(|(g, _)| g == earlier))
    }
}

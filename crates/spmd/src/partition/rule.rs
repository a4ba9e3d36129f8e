//! Operations as products over factors, and the choice of the axes that each factor is cut along.
//!
//! A dimension of an operand or result is one factor, which it may share with dimensions of the others. Cutting a factor
//! cuts all of them alike; cutting a factor that is summed over makes parts of the result that are still to be combined.
//! The choice takes candidates from how operands lie and how the results are wanted, and is by the bytes that a device
//! sends, with the work that it does weighed in.

use super::Emit;
use super::axes::{AxisList, AxisSet};
use super::body::{Body, Part};
use super::prices::{Extra, Prices};
use super::spec::{Reduction, Spec};
use hloom_ir::entity::InstructionId;
use smallvec::SmallVec;

/// What cutting a factor does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum FactorKind {
    /// Each shard is computed by itself.
    Pass,
    /// Shards give parts to be combined.
    Reduce(Reduction),
    /// It must be whole.
    Whole,
}

/// The factor of each dimension of an array, if it has one; a dimension without is whole.
pub(crate) type FactorDims = SmallVec<[Option<u8>; 4]>;

/// How an operation's operands and results share factors.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rule {
    pub factors: SmallVec<[(i64, FactorKind); 6]>,
    pub operands: SmallVec<[FactorDims; 3]>,
    pub results: SmallVec<[FactorDims; 1]>,
    /// Operations that cutting divides among the devices; sharing them comes before sending less.
    pub flops: f64,
}

/// The axes of each factor.
pub(crate) type Assignment = SmallVec<[AxisList; 6]>;

/// The axes along which an array lies in parts that are still to be combined, and how.
pub(super) type Parts = (AxisSet, Reduction);

/// How an array lies or is wanted, with its factors: where axes of an assignment come from.
type Seed<'a> = (&'a FactorDims, &'a Spec);

/// What becomes of a list in which an axis is in use for another factor already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// It ends before it.
    Ends,
    /// It goes on without it.
    LeftOut,
}

impl Rule {
    /// A new factor.
    pub(crate) fn factor(&mut self, size: i64, kind: FactorKind) -> Option<u8> {
        self.factors.push((size, kind));
        Some((self.factors.len() - 1) as u8)
    }

    /// How an array with those factors lies.
    pub(super) fn project(&self, dims: &FactorDims, assignment: &Assignment, manual: AxisSet, parts: Parts) -> Spec {
        let mut lists: SmallVec<[AxisList; 4]> = SmallVec::from_elem(AxisList::new(), dims.len());
        for (list, f) in lists.iter_mut().zip(dims) {
            if let Some(f) = f {
                *list = assignment[usize::from(*f)];
            }
        }
        Spec { dims: lists, partial: parts.0, reduction: parts.1, manual }
    }

    /// Whether that is how it lies.
    pub(super) fn projects_to(
        &self,
        dims: &FactorDims,
        assignment: &Assignment,
        manual: AxisSet,
        parts: Parts,
        spec: &Spec,
    ) -> bool {
        let lies = |(f, list): (&Option<u8>, &AxisList)| match f {
            Some(f) => assignment[usize::from(*f)] == *list,
            None => list.is_empty(),
        };
        spec.manual == manual
            && (spec.partial, spec.reduction) == parts
            && spec.dims.len() == dims.len()
            && dims.iter().zip(&spec.dims).all(lies)
    }

    /// The parts that results come out in.
    pub(super) fn parts(&self, assignment: &Assignment) -> Parts {
        let mut parts = Parts::default();
        for ((_, kind), list) in self.factors.iter().zip(assignment) {
            if let FactorKind::Reduce(reduction) = kind
                && !list.is_empty()
            {
                parts = (parts.0.union(AxisSet::of(list)), *reduction);
            }
        }
        parts
    }

    /// How operand `i` must lie.
    pub(crate) fn operand(&self, i: usize, assignment: &Assignment, manual: AxisSet) -> Spec {
        self.project(&self.operands[i], assignment, manual, Parts::default())
    }

    /// How result `i` comes out.
    pub(crate) fn result(&self, i: usize, assignment: &Assignment, manual: AxisSet) -> Spec {
        self.project(&self.results[i], assignment, manual, self.parts(assignment))
    }
}

impl Body<'_, '_> {
    /// Operand `i` of an operation, which is `part`, as an assignment has it.
    pub(crate) fn operand(
        &mut self,
        rule: &Rule,
        i: usize,
        assignment: &Assignment,
        manual: AxisSet,
        part: &Part,
    ) -> Emit<InstructionId> {
        if rule.projects_to(&rule.operands[i], assignment, manual, Parts::default(), &part.spec) {
            return Ok(part.id);
        }
        self.reshard(part, &rule.operand(i, assignment, manual))
    }

    /// The best assignment. `extra` gives what else an assignment costs, or refuses it.
    pub(crate) fn choose(&self, rule: &Rule, operands: &[Part], wanted: &[Spec], extra: &Extra<'_>) -> Assignment {
        self.choose_priced(rule, operands, wanted, extra).1
    }

    /// The best assignment and its cost.
    pub(crate) fn choose_priced(
        &self,
        rule: &Rule,
        operands: &[Part],
        wanted: &[Spec],
        extra: &Extra<'_>,
    ) -> (f64, Assignment) {
        let none: Assignment = SmallVec::from_elem(AxisList::new(), rule.factors.len());
        let prices = Prices::new(self, rule, operands, wanted, extra);
        let manual = prices.manual;
        let mut seeds: SmallVec<[Seed<'_>; 6]> = SmallVec::new();
        for (dims, spec) in rule.results.iter().zip(wanted) {
            seeds.push((dims, spec));
        }
        let mut by_size: SmallVec<[usize; 4]> = (0..rule.operands.len().min(operands.len())).collect();
        by_size.sort_by_key(|&i| std::cmp::Reverse(operands[i].shape.element_count().unwrap_or(0)));
        for &i in &by_size {
            if operands[i].free.is_none() {
                seeds.push((&rule.operands[i], &operands[i].spec));
                for (spec, _) in self.variants.of(&operands[i]) {
                    seeds.push((&rule.operands[i], spec));
                }
            }
        }
        seeds.truncate(12);
        let free = rule.flops == 0.0;
        let mut best: Option<(f64, Assignment)> = None;
        let mut tried: SmallVec<[Assignment; 4]> = SmallVec::new();
        // Mostly everything lies as it is wanted already.
        if free {
            let mut candidate = Assignment::from_slice(&none);
            seeds.iter().for_each(|seed| self.merge(rule, &mut candidate, seed, manual, Taken::Ends));
            let cost = prices.of(&candidate, f64::INFINITY);
            if cost == Some(0.0) {
                return (0.0, candidate);
            }
            tried.push(Assignment::from_slice(&candidate));
            best = cost.map(|cost| (cost, candidate));
        }
        // What lies alike gives the same candidates.
        let mut distinct: SmallVec<[Seed<'_>; 6]> = SmallVec::new();
        for seed in seeds {
            if !distinct.contains(&seed) {
                distinct.push(seed);
            }
        }
        let seeds = distinct;
        let mut consider = |candidate: Assignment| -> bool {
            if tried.contains(&candidate) {
                return false;
            }
            let least = best.as_ref().map_or(f64::INFINITY, |(b, _)| *b * 0.999_999 - 1e-9);
            let cost = prices.of(&candidate, least);
            tried.push(Assignment::from_slice(&candidate));
            let Some(cost) = cost else { return false };
            if cost < least {
                best = Some((cost, candidate));
            }
            cost == 0.0
        };
        for first in 0..seeds.len() {
            let mut candidate = Assignment::from_slice(&none);
            self.merge(rule, &mut candidate, &seeds[first], manual, Taken::Ends);
            let alone = Assignment::from_slice(&candidate);
            let mut without_taken = if free { Assignment::new() } else { Assignment::from_slice(&alone) };
            for (i, seed) in seeds.iter().enumerate() {
                if i != first {
                    self.merge(rule, &mut candidate, seed, manual, Taken::Ends);
                    if !free {
                        self.merge(rule, &mut without_taken, seed, manual, Taken::LeftOut);
                    }
                }
            }
            if consider(candidate) && free {
                break;
            }
            // Where work is shared out, a dimension's other axes may share it though its first is in use elsewhere.
            if !free {
                consider(without_taken);
            }
            if consider(alone.clone()) && free {
                break;
            }
            // Axes on dimensions that must be whole may stay in use on others.
            if rule.factors.iter().any(|f| f.1 == FactorKind::Whole) {
                let moved = self.moved(rule, alone, &seeds[first], manual);
                consider(moved);
            }
        }
        consider(none.clone());
        // Operands that want the same axes for different factors leave others idle, which may take over some of the work.
        if rule.flops > 0.0 && clash(&seeds) {
            let mut visited: Vec<Assignment> = Vec::new();
            for base in tried.into_iter().take(8) {
                if let Some(found) = self.with_idle_axes(base, &prices, &mut visited)
                    && best.as_ref().is_none_or(|(b, _)| found.0 < *b * 0.999_999 - 1e-9)
                {
                    best = Some(found);
                }
            }
        }
        best.unwrap_or((f64::INFINITY, none))
    }

    /// An assignment with axes added that it does not use, one by one, as long as that makes it better; `None` if that
    /// comes to one of those `visited` before, from which it would go the same way.
    fn with_idle_axes(
        &self,
        base: Assignment,
        prices: &Prices<'_, '_, '_>,
        visited: &mut Vec<Assignment>,
    ) -> Option<(f64, Assignment)> {
        let (rule, manual) = (prices.rule, prices.manual);
        let mut current = (prices.of(&base, f64::INFINITY)?, base);
        loop {
            if visited.contains(&current.1) {
                return None;
            }
            visited.push(Assignment::from_slice(&current.1));
            let used = current.1.iter().fold(manual, |u, l| u.union(AxisSet::of(l)));
            let mut better: Option<(f64, Assignment)> = None;
            for &axis in &self.axes().all().without(used).list() {
                for (f, &(size, kind)) in rule.factors.iter().enumerate() {
                    let pieces = self.axes().product(&current.1[f]) * self.axes().size(axis);
                    if kind == FactorKind::Whole || size % pieces != 0 {
                        continue;
                    }
                    let most = better.as_ref().map_or(current.0, |b| b.0);
                    current.1[f].push(axis);
                    if let Some(cost) = prices.of(&current.1, most) {
                        better = Some((cost, Assignment::from_slice(&current.1)));
                    }
                    let before = current.1[f].len() - 1;
                    current.1[f].truncate(before);
                }
            }
            match better {
                Some(found) => current = found,
                None => return Some(current),
            }
        }
    }

    /// Adds a seed's axes to a candidate where they do not conflict.
    fn merge(&self, rule: &Rule, candidate: &mut Assignment, (dims, spec): &Seed<'_>, manual: AxisSet, taken: Taken) {
        let mut used = candidate.iter().fold(manual, |u, l| u.union(AxisSet::of(l)));
        for (factor, list) in dims.iter().zip(&spec.dims) {
            let Some(factor) = *factor else { continue };
            if rule.factors[factor as usize].1 == FactorKind::Whole {
                continue;
            }
            let have = &mut candidate[factor as usize];
            if list.len() <= have.len() || list[..have.len()] != have[..] {
                continue;
            }
            for &axis in &list[have.len()..] {
                match (used.has(axis), taken) {
                    (true, Taken::Ends) => break,
                    (true, Taken::LeftOut) => continue,
                    (false, _) => {}
                }
                used.insert(axis);
                have.push(axis);
            }
        }
    }

    /// A seed's axes on dimensions that must be whole, put on others that they divide.
    fn moved(&self, rule: &Rule, mut candidate: Assignment, (dims, spec): &Seed<'_>, manual: AxisSet) -> Assignment {
        let mut used = candidate.iter().fold(manual, |u, l| u.union(AxisSet::of(l)));
        for (factor, list) in dims.iter().zip(&spec.dims) {
            let whole = factor.is_none_or(|f| rule.factors[f as usize].1 == FactorKind::Whole);
            if !whole {
                continue;
            }
            for &axis in list {
                if used.has(axis) {
                    continue;
                }
                let fits = |&f: &usize| {
                    let (size, kind) = rule.factors[f];
                    kind == FactorKind::Pass
                        && size % (self.axes().product(&candidate[f]) * self.axes().size(axis)) == 0
                        && dims.contains(&Some(f as u8))
                };
                if let Some(f) = (0..rule.factors.len()).find(fits) {
                    candidate[f].push(axis);
                    used.insert(axis);
                }
            }
        }
        candidate
    }
}

/// Whether an axis is wanted for two factors.
fn clash(seeds: &[Seed<'_>]) -> bool {
    let mut of = [None; 64];
    seeds.iter().any(|(dims, spec)| {
        dims.iter().zip(&spec.dims).any(|(&factor, list)| {
            let Some(factor) = factor else { return false };
            list.iter().any(|&a| *of[usize::from(a)].get_or_insert(factor) != factor)
        })
    })
}

//! Operations as products over factors, and the choice of the axes that each factor is cut along.
//!
//! A dimension of an operand or result is one factor, which it may share with dimensions of the others. Cutting a factor
//! cuts all of them alike; cutting a factor that is summed over makes parts of the result that are still to be combined.
//! The choice takes candidates from how operands lie and how the results are wanted, and is by the bytes that a device
//! sends, with the work that it does weighed in.

use super::axes::{AxisList, AxisSet};
use super::body::{Body, Part};
use super::spec::{Reduction, Spec};
use smallvec::SmallVec;

/// What cutting a factor does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    pub(crate) fn project(&self, dims: &FactorDims, assignment: &Assignment, manual: AxisSet) -> Spec {
        let list = |f: &Option<u8>| f.map_or_else(AxisList::new, |f| assignment[f as usize]);
        Spec { manual, ..Spec::tiled(dims.iter().map(list)) }
    }

    /// How operand `i` must lie.
    pub(crate) fn operand(&self, i: usize, assignment: &Assignment, manual: AxisSet) -> Spec {
        self.project(&self.operands[i], assignment, manual)
    }

    /// How result `i` comes out.
    pub(crate) fn result(&self, i: usize, assignment: &Assignment, manual: AxisSet) -> Spec {
        let mut spec = self.project(&self.results[i], assignment, manual);
        for ((_, kind), list) in self.factors.iter().zip(assignment) {
            if let FactorKind::Reduce(reduction) = kind
                && !list.is_empty()
            {
                spec.partial = spec.partial.union(AxisSet::of(list));
                spec.reduction = *reduction;
            }
        }
        spec
    }
}

impl Body<'_, '_> {
    /// The best assignment. `extra` gives what else an assignment costs, or refuses it.
    pub(crate) fn choose(
        &self,
        rule: &Rule,
        operands: &[Part],
        wanted: &[Spec],
        extra: &dyn Fn(&Body<'_, '_>, &Assignment) -> Option<f64>,
    ) -> Assignment {
        self.choose_priced(rule, operands, wanted, extra).1
    }

    /// The best assignment and its cost.
    pub(crate) fn choose_priced(
        &self,
        rule: &Rule,
        operands: &[Part],
        wanted: &[Spec],
        extra: &dyn Fn(&Body<'_, '_>, &Assignment) -> Option<f64>,
    ) -> (f64, Assignment) {
        let none: Assignment = SmallVec::from_elem(AxisList::new(), rule.factors.len());
        let manual = operands.iter().fold(AxisSet::EMPTY, |m, o| m.union(o.spec.manual));
        let manual = wanted.iter().fold(manual, |m, w| m.union(w.manual));
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
        // What lies alike gives the same candidates.
        let mut distinct: SmallVec<[Seed<'_>; 6]> = SmallVec::new();
        for seed in seeds {
            if !distinct.contains(&seed) {
                distinct.push(seed);
            }
        }
        let seeds = distinct;
        let free = rule.flops == 0.0;
        let mut best: Option<(f64, Assignment)> = None;
        let mut tried: Vec<Assignment> = Vec::new();
        let mut consider = |candidate: Assignment| -> bool {
            if tried.contains(&candidate) {
                return false;
            }
            let least = best.as_ref().map_or(f64::INFINITY, |(b, _)| *b * 0.999_999 - 1e-9);
            let cost = self.assignment_cost(rule, operands, wanted, &candidate, manual, extra, least);
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
            let bases = tried.clone();
            for base in bases.into_iter().take(8) {
                let price =
                    |a: &Assignment, most: f64| self.assignment_cost(rule, operands, wanted, a, manual, extra, most);
                if let Some(found) = self.with_idle_axes(rule, base, manual, &price)
                    && best.as_ref().is_none_or(|(b, _)| found.0 < *b * 0.999_999 - 1e-9)
                {
                    best = Some(found);
                }
            }
        }
        best.unwrap_or((f64::INFINITY, none))
    }

    /// An assignment with axes added that it does not use, one by one, as long as that makes it better.
    fn with_idle_axes(
        &self,
        rule: &Rule,
        base: Assignment,
        manual: AxisSet,
        price: &dyn Fn(&Assignment, f64) -> Option<f64>,
    ) -> Option<(f64, Assignment)> {
        let mut current = (price(&base, f64::INFINITY)?, base);
        loop {
            let used = current.1.iter().fold(manual, |u, l| u.union(AxisSet::of(l)));
            let mut better: Option<(f64, Assignment)> = None;
            for &axis in &self.axes().all().without(used).list() {
                for (f, &(size, kind)) in rule.factors.iter().enumerate() {
                    let pieces = self.axes().product(&current.1[f]) * self.axes().size(axis);
                    if kind == FactorKind::Whole || size % pieces != 0 {
                        continue;
                    }
                    let mut more = Assignment::from_slice(&current.1);
                    more[f].push(axis);
                    let most = better.as_ref().map_or(current.0, |b| b.0);
                    if let Some(cost) = price(&more, most) {
                        better = Some((cost, more));
                    }
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

    /// What an assignment costs; `None` if it is refused, or costs `most` or more.
    #[allow(clippy::too_many_arguments, reason = "all that an operation is chosen by")]
    fn assignment_cost(
        &self,
        rule: &Rule,
        operands: &[Part],
        wanted: &[Spec],
        assignment: &Assignment,
        manual: AxisSet,
        extra: &dyn Fn(&Body<'_, '_>, &Assignment) -> Option<f64>,
        most: f64,
    ) -> Option<f64> {
        let mut cost = extra(self, assignment)?;
        let share = assignment.iter().map(|list| self.axes().product(list)).product();
        let work = work_penalty(rule.flops, share, self.axes().devices());
        for (i, operand) in operands.iter().enumerate().take(rule.operands.len()) {
            if cost + work >= most {
                return None;
            }
            cost += self.reshard_cost(operand, &rule.operand(i, assignment, manual)) / self.sharing(operand);
        }
        for (i, wanted) in wanted.iter().enumerate() {
            let made = rule.result(i, assignment, manual);
            if made == *wanted {
                continue;
            }
            if cost + work >= most {
                return None;
            }
            let Some(shape) = self.result_shape(i) else { continue };
            cost += self.plan_cost(shape.dims(), shape.element_type.bits(), &made, wanted).wire;
        }
        Some(cost + work).filter(|&c| c < most)
    }

    /// The whole shape of result `i` of the instruction at hand.
    fn result_shape(&self, i: usize) -> Option<&hloom_ir::shape::ArrayShape> {
        let shape = &self.p.source[self.at?].shape;
        match shape.as_tuple() {
            Some(elements) => elements.get(i)?.as_array(),
            None => shape.as_array(),
        }
    }

    /// Among how many users the cost of bringing an operand into another form is likely to be shared.
    fn sharing(&self, operand: &Part) -> f64 {
        if self.p.shared.contains(&operand.id) { 1.25 } else { 1.0 }
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

/// The bytes that work is worth: as many as a device does more operations than it would if all shared them.
fn work_penalty(flops: f64, share: i64, devices: i64) -> f64 {
    let least = flops / devices as f64;
    let excess = devices as f64 / share as f64 - 1.0;
    least * excess
}

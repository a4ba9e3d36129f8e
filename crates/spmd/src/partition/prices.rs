//! What the candidates for cutting an operation cost: bytes that a device sends, and work that it does more than its share.

use super::axes::AxisSet;
use super::body::{Body, Part};
use super::rule::{Assignment, Parts, Rule};
use super::spec::Spec;
use hloom_ir::shape::ArrayShape;

/// What else an assignment costs; `None` where it is refused.
pub(crate) type Extra<'a> = dyn Fn(&Body<'_, '_>, &Assignment) -> Option<f64> + 'a;

/// The prices of one operation's assignments.
pub(super) struct Prices<'a, 'p, 's> {
    pub body: &'a Body<'p, 's>,
    pub rule: &'a Rule,
    pub operands: &'a [Part],
    pub wanted: &'a [Spec],
    /// Axes that the program itself takes care of.
    pub manual: AxisSet,
    pub extra: &'a Extra<'a>,
}

impl<'a, 'p, 's> Prices<'a, 'p, 's> {
    pub(super) fn new(
        body: &'a Body<'p, 's>,
        rule: &'a Rule,
        operands: &'a [Part],
        wanted: &'a [Spec],
        extra: &'a Extra<'a>,
    ) -> Prices<'a, 'p, 's> {
        let specs = operands.iter().map(|o| &o.spec).chain(wanted);
        let manual = specs.fold(AxisSet::EMPTY, |m, s| m.union(s.manual));
        Prices { body, rule, operands, wanted, manual, extra }
    }

    /// What an assignment costs; `None` if it is refused, or costs `most` or more.
    pub(super) fn of(&self, assignment: &Assignment, most: f64) -> Option<f64> {
        let mut cost = (self.extra)(self.body, assignment)?;
        let axes = self.body.axes();
        let share = assignment.iter().map(|list| axes.product(list)).product();
        let work = work_penalty(self.rule.flops, share, axes.devices());
        for i in 0..self.operands.len().min(self.rule.operands.len()) {
            if cost + work >= most {
                return None;
            }
            cost += self.operand(i, assignment);
        }
        let parts = self.rule.parts(assignment);
        for i in 0..self.wanted.len() {
            if cost + work >= most {
                return None;
            }
            cost += self.result(i, assignment, parts);
        }
        Some(cost + work).filter(|&c| c < most)
    }

    /// What it costs to bring an operand into the form that it is to have.
    fn operand(&self, i: usize, assignment: &Assignment) -> f64 {
        let (dims, part) = (&self.rule.operands[i], &self.operands[i]);
        let parts = Parts::default();
        if part.free.is_some() || self.rule.projects_to(dims, assignment, self.manual, parts, &part.spec) {
            return 0.0;
        }
        let form = self.rule.project(dims, assignment, self.manual, parts);
        self.body.reshard_cost(part, &form) / self.sharing(part)
    }

    /// What it costs to bring a result into the form that is wanted.
    fn result(&self, i: usize, assignment: &Assignment, parts: Parts) -> f64 {
        let (dims, wanted) = (&self.rule.results[i], &self.wanted[i]);
        if self.rule.projects_to(dims, assignment, self.manual, parts, wanted) {
            return 0.0;
        }
        let Some(shape) = self.result_shape(i) else { return 0.0 };
        let form = self.rule.project(dims, assignment, self.manual, parts);
        self.body.plan_cost(shape.dims(), shape.element_type.bits(), &form, wanted).wire
    }

    /// The whole shape of result `i` of the instruction at hand.
    fn result_shape(&self, i: usize) -> Option<&ArrayShape> {
        let shape = &self.body.p.source[self.body.at?].shape;
        match shape.as_tuple() {
            Some(elements) => elements.get(i)?.as_array(),
            None => shape.as_array(),
        }
    }

    /// Among how many users the cost of bringing an operand into another form is likely to be shared.
    fn sharing(&self, operand: &Part) -> f64 {
        if self.body.p.shared.contains(&operand.id) { 1.25 } else { 1.0 }
    }
}

/// The bytes that work is worth: as many as a device does more operations than it would if all shared them.
fn work_penalty(flops: f64, share: i64, devices: i64) -> f64 {
    let least = flops / devices as f64;
    let excess = devices as f64 / share as f64 - 1.0;
    least * excess
}

//! Plans of resharding that have been made before.
//!
//! Choosing how an operation is cut asks what the plans of every candidate cost, and the layers of a model ask for the same
//! ones over and over. Kept true: an answer is what [`plan`] would give; what is remembered is bounded.

use super::axes::DeviceAxes;
use super::plan::{PlanCost, ReshardPlan, plan, plan_cost};
use super::spec::Spec;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::hash::BuildHasher;
use std::rc::Rc;

/// How many plans are remembered: a program of more kinds than that forgets them and begins anew.
const MOST_PLANS: usize = 1 << 16;

/// Room for so many is made at once.
const USUAL_PLANS: usize = 512;

/// An array of which sizes and elements is brought from which form into which.
#[derive(Clone, Copy, Hash, PartialEq, Eq)]
pub(crate) struct Question<'q> {
    pub sizes: &'q [i64],
    pub element_bits: u32,
    pub from: &'q Spec,
    pub to: &'q Spec,
}

struct Known {
    sizes: SmallVec<[i64; 4]>,
    element_bits: u32,
    from: Spec,
    to: Spec,
    cost: PlanCost,
    /// The plan, once it has been carried out.
    plan: Option<Rc<ReshardPlan>>,
    /// Another question of the same hash.
    other: Option<u32>,
}

impl Known {
    fn answers(&self, question: &Question<'_>) -> bool {
        let Known { sizes, element_bits, from, to, .. } = self;
        Question { sizes, element_bits: *element_bits, from, to } == *question
    }
}

#[derive(Default)]
struct Memory {
    all: Vec<Known>,
    /// By the hash of the question, so that one can be asked without being copied.
    last: FxHashMap<u64, u32>,
}

impl Memory {
    /// What is known in answer to a question.
    fn answer(&mut self, axes: &DeviceAxes, question: Question<'_>) -> &mut Known {
        let hash = FxBuildHasher.hash_one(question);
        let mut at = self.last.get(&hash).copied();
        while let Some(n) = at {
            let known = &self.all[n as usize];
            if known.answers(&question) {
                return &mut self.all[n as usize];
            }
            at = known.other;
        }
        if self.all.len() >= MOST_PLANS {
            *self = Memory::default();
        }
        if self.all.is_empty() {
            self.all.reserve(USUAL_PLANS);
            self.last.reserve(USUAL_PLANS);
        }
        let Question { sizes, element_bits, from, to } = question;
        let cost = plan_cost(axes, sizes, element_bits, from, to);
        let other = self.last.insert(hash, self.all.len() as u32);
        let (sizes, from, to) = (SmallVec::from_slice(sizes), from.clone(), to.clone());
        self.all.push(Known { sizes, element_bits, from, to, cost, plan: None, other });
        let last = self.all.len() - 1;
        &mut self.all[last]
    }
}

/// The plans made so far for one grid of devices.
#[derive(Default)]
pub(crate) struct KnownPlans {
    memory: RefCell<Memory>,
}

impl KnownPlans {
    /// What the plan costs; all questions must be of the same `axes`.
    pub(crate) fn cost(&self, axes: &DeviceAxes, question: Question<'_>) -> PlanCost {
        if question.from == question.to {
            return PlanCost::default();
        }
        self.memory.borrow_mut().answer(axes, question).cost
    }

    /// What [`plan`] answers.
    pub(crate) fn plan(&self, axes: &DeviceAxes, question: Question<'_>) -> Rc<ReshardPlan> {
        let mut memory = self.memory.borrow_mut();
        let known = memory.answer(axes, question);
        let made = || Rc::new(plan(axes, question.sizes, question.element_bits, question.from, question.to));
        known.plan.get_or_insert_with(made).clone()
    }
}

//! Plans of resharding that have been made before.
//!
//! Choosing how an operation is cut asks for the plans of every candidate, and the layers of a model ask for the same ones
//! over and over. Kept true: an answer is what [`plan`] would give; what is remembered is bounded.

use super::axes::DeviceAxes;
use super::plan::{ReshardPlan, plan};
use super::spec::Spec;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::hash::BuildHasher;
use std::rc::Rc;

/// How many plans are remembered: a program of more kinds than that forgets them and begins anew.
const MOST_PLANS: usize = 1 << 16;

/// An array of which sizes and elements is brought from which form into which.
#[derive(Hash, PartialEq, Eq)]
struct Question<'q> {
    sizes: &'q [i64],
    element_bits: u32,
    from: &'q Spec,
    to: &'q Spec,
}

struct Known {
    sizes: SmallVec<[i64; 4]>,
    element_bits: u32,
    from: Spec,
    to: Spec,
    plan: Rc<ReshardPlan>,
}

impl Known {
    fn answers(&self, question: &Question<'_>) -> bool {
        let Known { sizes, element_bits, from, to, .. } = self;
        Question { sizes, element_bits: *element_bits, from, to } == *question
    }
}

/// The plans made so far for one grid of devices.
#[derive(Default)]
pub(crate) struct KnownPlans {
    /// By the hash of the question, so that one can be asked without being copied.
    plans: RefCell<FxHashMap<u64, SmallVec<[Box<Known>; 1]>>>,
    /// That of what lies as it is to lie.
    nothing: Rc<ReshardPlan>,
}

impl KnownPlans {
    /// What [`plan`] answers; all questions must be of the same `axes`.
    pub(crate) fn plan(
        &self,
        axes: &DeviceAxes,
        sizes: &[i64],
        element_bits: u32,
        from: &Spec,
        to: &Spec,
    ) -> Rc<ReshardPlan> {
        if from == to {
            return self.nothing.clone();
        }
        let question = Question { sizes, element_bits, from, to };
        let mut plans = self.plans.borrow_mut();
        let hash = FxBuildHasher.hash_one(&question);
        if let Some(known) = plans.get(&hash).and_then(|all| all.iter().find(|k| k.answers(&question))) {
            return known.plan.clone();
        }
        let plan = Rc::new(plan(axes, sizes, element_bits, from, to));
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        let sizes = SmallVec::from_slice(sizes);
        let known = Known { sizes, element_bits, from: from.clone(), to: to.clone(), plan: plan.clone() };
        plans.entry(hash).or_default().push(Box::new(known));
        plan
    }
}

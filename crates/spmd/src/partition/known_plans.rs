//! Plans of resharding that have been made before.
//!
//! Choosing how an operation is cut asks for the plans of every candidate, and the layers of a model ask for the same ones
//! over and over. Kept true: an answer is what [`plan`] would give; what is remembered is bounded.

use super::axes::DeviceAxes;
use super::plan::{ReshardPlan, plan};
use super::spec::Spec;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;

/// How many plans are remembered: a program of more kinds than that forgets them and begins anew.
const MOST_PLANS: usize = 1 << 16;

#[derive(PartialEq, Eq, Hash)]
struct Question {
    sizes: SmallVec<[i64; 4]>,
    element_bits: u32,
    from: Spec,
    to: Spec,
}

/// The plans made so far for one grid of devices.
#[derive(Default)]
pub(crate) struct KnownPlans {
    plans: RefCell<FxHashMap<Box<Question>, Rc<ReshardPlan>>>,
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
        let question =
            Question { sizes: SmallVec::from_slice(sizes), element_bits, from: from.clone(), to: to.clone() };
        if let Some(known) = self.plans.borrow().get(&question) {
            return known.clone();
        }
        let made = Rc::new(plan(axes, sizes, element_bits, from, to));
        let mut plans = self.plans.borrow_mut();
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        plans.insert(Box::new(question), made.clone());
        made
    }
}

//! Cuts of products that have been chosen before.
//!
//! The layers of a model multiply arrays of the same sizes that lie alike, and choosing how a product is cut is most of the
//! work of partitioning it. Kept true: an answer is what [`Body::choose`] would give; what is remembered is bounded.

use super::body::{Body, Part};
use super::rule::{Assignment, FactorDims, FactorKind, Rule};
use super::spec::Spec;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// How many choices are remembered: a program of more kinds of products than that forgets them and begins anew.
const MOST_CHOICES: usize = 1 << 12;

/// All that a choice depends on: sizes are the factors'.
#[derive(PartialEq, Eq, Hash)]
struct Question {
    factors: SmallVec<[(i64, FactorKind); 6]>,
    dims: SmallVec<[FactorDims; 3]>,
    flops: u64,
    operands: SmallVec<[Given; 2]>,
    wanted: Spec,
    /// The bits of an element of the result.
    bits: u32,
}

/// An operand, as it lies.
#[derive(PartialEq, Eq, Hash)]
struct Given {
    forms: SmallVec<[Spec; 2]>,
    /// The bits of an element that are sent.
    bits: u32,
    is_free: bool,
    is_shared: bool,
}

/// The choices made so far for one grid of devices.
#[derive(Default)]
pub(crate) struct KnownChoices(FxHashMap<Question, Assignment>);

impl Body<'_, '_> {
    fn given(&self, part: &Part) -> Given {
        let forms = std::iter::once(&part.spec).chain(self.variants.of(part).iter().map(|(spec, _)| spec)).cloned();
        // Operands are never asked for in parts, whatever the assignment.
        let bits = self.bits_sent(part, &part.spec.complete());
        Given {
            forms: forms.collect(),
            bits,
            is_free: part.free.is_some(),
            is_shared: self.p.shared.contains(&part.id),
        }
    }

    /// What [`Body::choose`] answers for a product that nothing else is asked of, whose result has elements of `bits`.
    pub(crate) fn choose_product(&mut self, rule: &Rule, operands: &[Part], wanted: &Spec, bits: u32) -> Assignment {
        let question = Question {
            factors: rule.factors.clone(),
            dims: rule.operands.iter().chain(&rule.results).cloned().collect(),
            flops: rule.flops.to_bits(),
            operands: operands.iter().map(|o| self.given(o)).collect(),
            wanted: wanted.clone(),
            bits,
        };
        if let Some(known) = self.p.choices.0.get(&question) {
            return known.clone();
        }
        let chosen = self.choose(rule, operands, std::slice::from_ref(wanted), &|_, _| Some(0.0));
        let known = &mut self.p.choices.0;
        if known.len() >= MOST_CHOICES {
            known.clear();
        }
        known.insert(question, chosen.clone());
        chosen
    }
}

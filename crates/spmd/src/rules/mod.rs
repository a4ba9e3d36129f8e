//! Sharding rules: which dimensions of an operation's operands and results go together.
//!
//! A rule is an einsum over factors. Each dimension of each array is a list of factors, major first, nearly always one; a
//! factor that stands in several arrays is cut alike in all of them. [`ops`] has the rule of every operation.

mod gather;
mod linear_algebra;
pub(crate) mod ops;
mod parse;
mod print;
mod reshape;

pub(crate) use parse::parse;
pub(crate) use reshape::gcd;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// The sizes of the dimensions of an array.
pub(crate) type Dims = SmallVec<[i64; 4]>;

/// What it takes to compute with a cut factor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum FactorKind {
    /// Nothing: every device computes its part.
    PassThrough,
    /// The results are partial and must be reduced.
    Reduction,
    /// The arrays must be gathered along it.
    NeedReplication,
    /// Devices exchange what lies at the edges of their parts.
    Permutation,
}

/// One factor of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Factor {
    /// Its size.
    pub size: i64,
    /// What it takes to compute with it cut.
    pub kind: FactorKind,
    /// Whether shardings do not go along it.
    pub blocked: bool,
}

/// The factors of one dimension, major first.
pub(crate) type DimFactors = SmallVec<[u16; 2]>;

/// The factors of an array's dimensions.
pub(crate) type TensorFactors = SmallVec<[DimFactors; 4]>;

/// The rule of one operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Rule {
    /// All factors.
    pub factors: SmallVec<[Factor; 4]>,
    /// Those of the operands and then of the results.
    pub tensors: SmallVec<[TensorFactors; 3]>,
    /// How many of `tensors` are operands.
    pub operands: usize,
    /// Whether the program itself gave it.
    pub custom: bool,
    /// The array whose axes go first where factors want the same, however small it is.
    pub leading: Option<usize>,
}

/// Builds a rule factor by factor.
pub(crate) struct RuleBuilder {
    rule: Rule,
}

/// A dimension of each of several arrays, or none.
pub(crate) type Places<'a> = &'a [Option<usize>];

impl RuleBuilder {
    /// For arrays of those ranks.
    pub(crate) fn new<'d>(operands: &'d [Dims], results: impl IntoIterator<Item = &'d Dims>) -> RuleBuilder {
        let ranks = operands.iter().chain(results).map(|d| d.len());
        RuleBuilder::of_ranks(ranks, operands.len())
    }

    /// For arrays of those ranks, of which the first `operands` are operands.
    fn of_ranks(ranks: impl Iterator<Item = usize>, operands: usize) -> RuleBuilder {
        let tensors = ranks.map(|rank| SmallVec::from_elem(DimFactors::new(), rank)).collect();
        RuleBuilder { rule: Rule { factors: SmallVec::new(), tensors, operands, custom: false, leading: None } }
    }

    fn reserve(&mut self, size: i64, kind: FactorKind, blocked: bool) -> u16 {
        self.rule.factors.push(Factor { size, kind, blocked });
        (self.rule.factors.len() - 1) as u16
    }

    /// A factor at those dimensions of the operands and results; a list may be shorter than there are arrays.
    pub(crate) fn factor(
        &mut self,
        operands: Places<'_>,
        results: Places<'_>,
        size: i64,
        kind: FactorKind,
        blocked: bool,
    ) {
        let factor = self.reserve(size, kind, blocked);
        let first = self.rule.operands;
        let places = operands.iter().enumerate().chain(results.iter().enumerate().map(|(i, p)| (first + i, p)));
        for (tensor, place) in places {
            let Some(dim) = place.and_then(|d| self.rule.tensors.get_mut(tensor)?.get_mut(d)) else { continue };
            if size != 1 || dim.is_empty() {
                dim.push(factor);
            }
        }
    }

    /// A factor that passes through.
    pub(crate) fn pass(&mut self, operands: Places<'_>, results: Places<'_>, size: i64) {
        self.factor(operands, results, size, FactorKind::PassThrough, false);
    }

    /// A factor at the same dimension of all arrays that have dimensions.
    pub(crate) fn everywhere(&mut self, dim: usize, size: i64, kind: FactorKind, blocked: bool) {
        let factor = self.reserve(size, kind, blocked);
        for tensor in &mut self.rule.tensors {
            if let Some(d) = tensor.get_mut(dim) {
                d.push(factor);
            }
        }
    }

    /// A factor at the same dimension of all operands, or of all results.
    pub(crate) fn on_side(&mut self, of_operands: bool, dim: usize, size: i64, kind: FactorKind) {
        let factor = self.reserve(size, kind, false);
        let (operands, results) = self.rule.tensors.split_at_mut(self.rule.operands);
        for tensor in if of_operands { operands } else { results } {
            if let Some(d) = tensor.get_mut(dim) {
                d.push(factor);
            }
        }
    }

    /// A factor that passes through for each of those dimensions, everywhere.
    pub(crate) fn pointwise(&mut self, dims: &[i64]) {
        for (d, &size) in dims.iter().enumerate() {
            self.everywhere(d, size, FactorKind::PassThrough, false);
        }
    }

    /// The rule; dimensions without a factor get one of their own.
    pub(crate) fn build(mut self) -> Rule {
        for tensor in 0..self.rule.tensors.len() {
            for dim in 0..self.rule.tensors[tensor].len() {
                if self.rule.tensors[tensor][dim].is_empty() {
                    let factor = self.reserve(1, FactorKind::PassThrough, false);
                    self.rule.tensors[tensor][dim].push(factor);
                }
            }
        }
        self.rule
    }
}

/// The ranks of an operation's arrays, operands first.
pub(crate) type Ranks = SmallVec<[u32; 4]>;

/// The rules of a program's operations, equal ones shared: there are few.
#[derive(Default, Debug)]
pub(crate) struct Rules {
    /// Those with one factor for each dimension, at its place in all arrays, by what they are made of.
    pointwise: FxHashMap<(Dims, Ranks, usize), Arc<Rule>>,
    others: FxHashSet<Arc<Rule>>,
}

impl Rules {
    /// The rule with one factor for each dimension of those sizes, at its place in all arrays. The arrays have those ranks;
    /// the first `operands` are operands.
    pub(crate) fn pointwise(&mut self, dims: Dims, ranks: Ranks, operands: usize) -> Arc<Rule> {
        match self.pointwise.entry((dims, ranks, operands)) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => {
                let (dims, ranks, operands) = place.key();
                let mut b = RuleBuilder::of_ranks(ranks.iter().map(|&r| r as usize), *operands);
                b.pointwise(dims);
                place.insert(Arc::new(b.build())).clone()
            }
        }
    }

    /// That rule.
    pub(crate) fn shared(&mut self, rule: Rule) -> Arc<Rule> {
        if let Some(known) = self.others.get(&rule) {
            return known.clone();
        }
        let rule = Arc::new(rule);
        self.others.insert(rule.clone());
        rule
    }
}

/// The rule of something that hands its operands on: one factor for each dimension, in all arrays.
pub(crate) fn identity(dims: &[i64], operands: usize, results: usize) -> Rule {
    let shape = Dims::from_slice(dims);
    let operands = vec![shape.clone(); operands];
    let mut b = RuleBuilder::new(&operands, std::iter::repeat_n(&shape, results));
    b.pointwise(dims);
    b.build()
}

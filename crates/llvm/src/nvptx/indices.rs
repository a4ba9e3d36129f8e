//! Indices of a thread's points as integers of the type they fit: 32 bits wherever that is known.

use super::points::{At, Points};
use crate::emit::ir::{Repr, Val};
use hloom_loops::affine::{Affine, Term, VarId};
use smallvec::{SmallVec, smallvec};

/// The loops along which the points of a thread are neighbours, the innermost first: for each how many lanes apart its
/// neighbours are, and how many of them there are.
pub(super) struct Lanes {
    along: SmallVec<[(VarId, u32, u32); 2]>,
}

impl Lanes {
    /// So many neighbours along one loop.
    pub(super) fn along(var: Option<VarId>, count: u32) -> Lanes {
        Lanes { along: var.filter(|_| count > 1).map_or_else(SmallVec::new, |v| smallvec![(v, 1, count)]) }
    }

    /// All of one loop, and so many neighbours along another.
    pub(super) fn along_two(inner: (VarId, u32), outer: (VarId, u32)) -> Lanes {
        Lanes { along: smallvec![(inner.0, 1, inner.1), (outer.0, inner.1, outer.1)] }
    }

    /// How many lanes there are.
    pub(super) fn count(&self) -> u32 {
        self.along.iter().map(|l| l.2).product()
    }

    /// Whether a loop is one of theirs.
    pub(super) fn has(&self, var: VarId) -> bool {
        self.along.iter().any(|l| l.0 == var)
    }

    /// What an index is more at a lane than at the first.
    pub(super) fn offset(&self, affine: &Affine, lane: u32) -> i64 {
        let of = |&(var, apart, count): &(VarId, u32, u32)| {
            affine.factor(Term::Var(var)).wrapping_mul(i64::from(lane / apart % count))
        };
        self.along.iter().map(of).fold(0, i64::wrapping_add)
    }

    /// Whether an index counts the lanes.
    pub(super) fn are_counted_by(&self, affine: &Affine) -> bool {
        !self.along.is_empty() && self.along.iter().all(|l| affine.factor(Term::Var(l.0)) == i64::from(l.1))
    }
}

impl<'c> Points<'_, 'c> {
    /// An index without its constant, in that type.
    pub(super) fn sum(&mut self, affine: &Affine, at: At, repr: Repr) -> Val<'c> {
        let key_at = At {
            chunk: if self.affine_varies(affine).0 { at.chunk } else { 0 },
            lane: if self.affine_varies(affine).1 { at.lane } else { 0 },
        };
        let key = (affine.clone(), key_at, repr);
        if let Some(&sum) = self.sums.get(&key) {
            return sum;
        }
        let mut sum: Option<Val<'c>> = None;
        let lane_offset = self.lanes_along.offset(affine, at.lane);
        for &(term, factor) in &affine.terms {
            let value = match term {
                Term::Var(v) => {
                    let chunk = if self.chunk_vars.contains(&v) { at.chunk } else { 0 };
                    let value = *self.vars.get(&(v, chunk)).expect("a loop variable is used inside its loop");
                    self.to_repr(value, repr)
                }
                Term::Item(i) => self.to_repr(self.known(i, at).re, repr),
            };
            let scaled = if factor == 1 { value } else { self.ir.mul(value, self.ir.int(repr, factor)) };
            sum = Some(sum.map_or(scaled, |s| self.ir.add(s, scaled)));
        }
        let sum = sum.unwrap_or_else(|| self.ir.int(repr, 0));
        let sum = if lane_offset == 0 { sum } else { self.ir.add(sum, self.ir.int(repr, lane_offset)) };
        self.sums.insert(key, sum);
        sum
    }

    pub(super) fn affine_varies(&self, affine: &Affine) -> (bool, bool) {
        let mut varies = (false, false);
        for &(term, _) in &affine.terms {
            let (chunk, lane) = match term {
                Term::Var(v) => (self.chunk_vars.contains(&v), self.lanes_along.has(v)),
                Term::Item(i) => self.varies[i as usize],
            };
            varies = (varies.0 || chunk, varies.1 || lane);
        }
        varies
    }

    pub(super) fn to_repr(&self, value: Val<'c>, repr: Repr) -> Val<'c> {
        if self.ir.repr(value).bits() > repr.bits() { self.ir.trunc(value, repr) } else { self.ir.sext(value, repr) }
    }

    /// An index as a whole, in that type.
    pub(super) fn index_of(&mut self, affine: &Affine, at: At, repr: Repr) -> Val<'c> {
        let sum = self.sum(affine, at, repr);
        match affine.constant {
            0 => sum,
            constant => self.ir.add(sum, self.ir.int(repr, constant)),
        }
    }

    /// The type in which an index is computed so that it does not overflow.
    pub(super) fn safe(&self, affine: &Affine) -> Repr {
        let of = |t| match t {
            Term::Var(v) => (0, self.program.extents[v as usize] - 1),
            Term::Item(_) => (i64::MIN, i64::MAX),
        };
        let (low, high) = affine.range(of);
        let fits = low > i128::from(i32::MIN) && high < i128::from(i32::MAX);
        if fits { self.index } else { Repr::I64 }
    }

    pub(super) fn divided(&mut self, affine: &Affine, divisor: i64, at: At, rest: bool) -> Val<'c> {
        let repr = match self.program.most(affine) {
            Some(most) if most < 1 << 31 && divisor < 1 << 31 => Repr::I32,
            _ => Repr::I64,
        };
        let index = self.index_of(affine, at, repr);
        let divisor = self.ir.int(repr, divisor);
        let result = if rest { self.ir.urem(index, divisor) } else { self.ir.udiv(index, divisor) };
        self.ir.sext(result, Repr::I64)
    }
}

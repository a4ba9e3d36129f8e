//! Indices of a thread's points as integers of the type they fit: 32 bits wherever that is known.

use super::points::{At, Points};
use crate::emit::ir::{Repr, Val};
use hloom_loops::affine::{Affine, Term};

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
        let mut lane_offset = 0;
        for &(term, factor) in &affine.terms {
            let value = match term {
                Term::Var(v) => {
                    if Some(v) == self.lane_var {
                        lane_offset = factor.wrapping_mul(i64::from(at.lane));
                    }
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
                Term::Var(v) => (self.chunk_vars.contains(&v), Some(v) == self.lane_var),
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

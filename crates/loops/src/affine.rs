//! Index expressions: a constant plus whole multiples of loop variables and of index values known at run time.
//!
//! Terms are sorted, each occurs once, and none has the factor zero, so that equal expressions are equal values.

use smallvec::SmallVec;

/// The number of a loop variable.
pub type VarId = u32;
/// The number of an item of a [`crate::program::LoopProgram`].
pub type ItemId = u32;

/// What an index can vary with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Term {
    /// A loop variable.
    Var(VarId),
    /// An s64 item.
    Item(ItemId),
}

/// A sum of multiples of terms.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Affine {
    /// The terms with their factors.
    pub terms: SmallVec<[(Term, i64); 3]>,
    /// What is added to them.
    pub constant: i64,
}

impl Affine {
    /// A constant index.
    pub fn constant(constant: i64) -> Affine {
        Affine { terms: SmallVec::new(), constant }
    }
    /// A term alone.
    pub fn term(term: Term) -> Affine {
        Affine { terms: SmallVec::from_slice(&[(term, 1)]), constant: 0 }
    }
    /// The factor of a term; zero if it does not occur.
    pub fn factor(&self, term: Term) -> i64 {
        self.terms.iter().find(|t| t.0 == term).map_or(0, |t| t.1)
    }
    /// The same without a term.
    pub fn without(&self, term: Term) -> Affine {
        Affine { terms: self.terms.iter().copied().filter(|t| t.0 != term).collect(), constant: self.constant }
    }
    /// `self + factor × other`. Sizes of arrays fit in 63 bits and so do positions in them; what wraps is never read.
    pub fn plus(&self, other: &Affine, factor: i64) -> Affine {
        let mut sum = self.clone();
        sum.constant = sum.constant.wrapping_add(other.constant.wrapping_mul(factor));
        for &(term, f) in &other.terms {
            let f = f.wrapping_mul(factor);
            match sum.terms.binary_search_by_key(&term, |t| t.0) {
                Ok(at) => sum.terms[at].1 = sum.terms[at].1.wrapping_add(f),
                Err(at) => sum.terms.insert(at, (term, f)),
            }
        }
        sum.terms.retain(|t| t.1 != 0);
        sum
    }
    /// The same with a constant added.
    pub fn plus_constant(&self, constant: i64) -> Affine {
        Affine { terms: self.terms.clone(), constant: self.constant.wrapping_add(constant) }
    }
    /// The same multiplied by a constant.
    pub fn times(&self, factor: i64) -> Affine {
        Affine::default().plus(self, factor)
    }
    /// The least and the greatest value, where `bounds` gives those of each term.
    pub fn range(&self, bounds: impl Fn(Term) -> (i64, i64)) -> (i128, i128) {
        let mut range = (i128::from(self.constant), i128::from(self.constant));
        for &(term, factor) in &self.terms {
            let (low, high) = bounds(term);
            let ends = [i128::from(low) * i128::from(factor), i128::from(high) * i128::from(factor)];
            range = (range.0 + ends[0].min(ends[1]), range.1 + ends[0].max(ends[1]));
        }
        range
    }
    /// Quotient and remainder by `divisor`, where the terms can be dealt out between the two without a division at run
    /// time: those whose factors are multiples of it, and the others if their sum stays within `0..divisor`.
    pub fn divide(&self, divisor: i64, bounds: impl Fn(Term) -> (i64, i64)) -> Option<(Affine, Affine)> {
        if divisor <= 0 {
            return None;
        }
        let mut quotient = Affine::constant(self.constant.div_euclid(divisor));
        let mut remainder = Affine::constant(self.constant.rem_euclid(divisor));
        for &(term, factor) in &self.terms {
            if factor % divisor == 0 {
                quotient.terms.push((term, factor / divisor));
            } else {
                remainder.terms.push((term, factor));
            }
        }
        let (low, high) = remainder.range(bounds);
        (low >= 0 && high < i128::from(divisor)).then_some((quotient, remainder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_dealt_out_between_quotient_and_remainder() {
        // i in 0..4, j in 0..6: (6i + j + 12) by 6 is (i + 2, j); by 4 it cannot be dealt out.
        let (i, j) = (Term::Var(0), Term::Var(1));
        let bounds = |t| if t == i { (0, 3) } else { (0, 5) };
        let sum = Affine::term(i).times(6).plus(&Affine::term(j), 1).plus_constant(12);
        let expected = (Affine::term(i).plus_constant(2), Affine::term(j));
        assert_eq!(sum.divide(6, bounds), Some(expected));
        assert_eq!(sum.divide(4, bounds), None);
        assert_eq!(sum.range(bounds), (12, 12 + 18 + 5));
    }

    #[test]
    fn equal_sums_are_equal() {
        let (i, j) = (Affine::term(Term::Var(0)), Affine::term(Term::Var(1)));
        assert_eq!(i.plus(&j, 2).plus(&i, -1), j.times(2));
        assert_eq!(i.plus(&i, -1), Affine::constant(0));
    }
}

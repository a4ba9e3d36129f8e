//! Small matrices of a batch side by side (an interleaved batch): each has a lane of the vectors, which rows as short as theirs would not fill.

use super::Scalar;

/// How many matrices are worked on at once.
pub(super) const LANES: usize = 16;
/// Rows of larger matrices fill vectors by themselves.
const MOST_ROWS: usize = 32;

/// How many groups of matrices of so many rows a batch is worked on by; what is left of the batch is done one by one.
pub(super) fn groups(batch: usize, rows: usize) -> usize {
    if (2..=MOST_ROWS).contains(&rows) { batch / LANES } else { 0 }
}

/// An element of each matrix of a group.
pub(super) type Lanes<T> = [T; LANES];

/// The elements at one place of matrices of so many elements.
#[inline(always)]
pub(super) fn gather<T: Scalar>(matrices: &[T], elements: usize, at: usize) -> Lanes<T> {
    let mut values = [T::default(); LANES];
    for (lane, value) in values.iter_mut().enumerate() {
        *value = matrices[lane * elements + at];
    }
    values
}

/// Takes a product from each of `to`.
#[inline(always)]
pub(super) fn subtract<T: Scalar>(to: &mut Lanes<T>, factor: &Lanes<T>, from: &Lanes<T>) {
    for (to, (&factor, &from)) in to.iter_mut().zip(factor.iter().zip(from)) {
        *to = *to - factor * from;
    }
}

/// Divides each of `to`.
#[inline(always)]
pub(super) fn divide<T: Scalar>(to: &mut Lanes<T>, by: &Lanes<T>) {
    for (to, &by) in to.iter_mut().zip(by) {
        *to = *to / by;
    }
}

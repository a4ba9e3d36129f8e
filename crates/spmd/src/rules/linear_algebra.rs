//! The rules of factorisations and triangular systems: batch dimensions pass through.

use super::FactorKind::NeedReplication;
use super::Rule;
use super::ops::Shapes;

/// Two matrix dimensions of an array of that rank.
fn matrix(rank: usize) -> Option<(usize, usize)> {
    Some((rank.checked_sub(2)?, rank.checked_sub(1)?))
}

/// Eigenvectors and eigenvalues.
pub(crate) fn eigh(s: Shapes<'_>) -> Rule {
    let mut b = s.builder();
    let dims = s.operand(0);
    if let Some((row, column)) = matrix(dims.len()) {
        b.pointwise(&dims[..row]);
        b.pass(&[Some(row)], &[Some(row), None], dims[row]);
        b.pass(&[Some(column)], &[Some(column), Some(row)], dims[column]);
    }
    b.build()
}

/// Reflectors and their scalars.
pub(crate) fn qr(s: Shapes<'_>) -> Rule {
    let mut b = s.builder();
    let dims = s.operand(0);
    if let Some((row, column)) = matrix(dims.len()) {
        b.pointwise(&dims[..row]);
        b.factor(&[Some(row)], &[Some(row), None], dims[row], NeedReplication, false);
        b.factor(&[Some(column)], &[Some(column), None], dims[column], NeedReplication, false);
        let scalars = s.result(1).get(row).copied().unwrap_or(1);
        b.factor(&[], &[None, Some(row)], scalars, NeedReplication, false);
    }
    b.build()
}

/// The matrix that reflectors make.
pub(crate) fn householder_product(s: Shapes<'_>) -> Rule {
    let mut b = s.builder();
    let dims = s.operand(0);
    if let Some((row, column)) = matrix(dims.len()) {
        b.pointwise(&dims[..row]);
        b.factor(&[Some(row)], &[Some(row)], dims[row], NeedReplication, false);
        b.factor(&[Some(column)], &[Some(column)], dims[column], NeedReplication, false);
        let scalars = s.operand(1).get(row).copied().unwrap_or(1);
        b.factor(&[None, Some(row)], &[], scalars, NeedReplication, false);
    }
    b.build()
}

/// `a x = b`, or `x a = b` if not `left`.
pub(crate) fn triangular_solve(s: Shapes<'_>, left: bool, transposed: bool) -> Rule {
    let mut b = s.builder();
    let (a, rhs) = (s.operand(0), s.operand(1));
    let Some((row, column)) = matrix(a.len()) else { return b.build() };
    b.pointwise(&a[..row]);
    let (kept, summed) = if left != transposed { (row, column) } else { (column, row) };
    let size = |d: usize| rhs.get(d).copied().unwrap_or(1);
    let known = [Some(kept), Some(if left { row } else { column })];
    let (own, solved) = if left { (column, row) } else { (row, column) };
    if left {
        b.factor(&known, &[], a[kept], NeedReplication, false);
        b.factor(&[None, Some(own)], &[Some(own)], size(own), NeedReplication, false);
    } else {
        b.factor(&[None, Some(own)], &[Some(own)], size(own), NeedReplication, false);
        b.factor(&known, &[], a[kept], NeedReplication, false);
    }
    b.factor(&[Some(summed)], &[Some(solved)], a[summed], NeedReplication, false);
    b.build()
}

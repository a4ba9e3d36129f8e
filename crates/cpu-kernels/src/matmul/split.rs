//! Products with few results that are long sums: the sums are cut into parts, which threads can compute at the same time,
//! and the parts are added in order. How they are cut depends on the sizes alone, and so do the results.

use super::{BatchDim, Matmul, vector};
use crate::number::{Real, Stored};
use crate::parallel::{Parallel, Shared, grain};
use crate::tiles::scratch;
use crate::vectors::with_vectors;

/// With so many independent parts a product is not cut.
const ENOUGH: usize = 8;
/// A sum is cut into so many parts at most.
const MOST_PARTS: usize = 16;
/// Sums of rows are cut into parts of so many multiplications: a row is then read as a whole, one after the other.
const WORTH_ROWS: usize = grain::STREAMED;
/// Other sums are cut into parts so long at least, if there are so many multiplications.
const SHORTEST: usize = 1024;
const WORTH_CUTTING: usize = 4 * grain::MULTIPLICATIONS;

/// The length of the parts of each sum, if it is worth cutting: all parts are so long, and the rest is shorter.
pub(super) fn part(matmul: &Matmul) -> Option<usize> {
    let turned = matmul.transposed();
    let few = [(matmul, vector::FEW), (&turned, vector::FEW_COLUMNS)];
    let few = few.into_iter().find(|(product, few)| product.m <= *few && vector::can_read(product));
    let Matmul { m, n, k, .. } = *matmul;
    let work = m.saturating_mul(n).saturating_mul(k);
    let (blocks, parts) = match few {
        Some((product, _)) if product.sums_rows() => (product.n.div_ceil(vector::columns(m)), work / WORTH_ROWS),
        Some((product, _)) => (product.n, k / SHORTEST),
        None => (m.div_ceil(64) * n.div_ceil(64), k / SHORTEST),
    };
    let is_large = work >= WORTH_CUTTING || matches!(few, Some((product, _)) if product.sums_rows());
    let parts = parts.min(MOST_PARTS).min(k / 16);
    let pays = matmul.groups().saturating_mul(blocks) < ENOUGH && is_large && parts > 1;
    pays.then(|| k / parts / 4 * 4)
}

/// Multiplies, with sums that are cut into parts of that length.
pub(super) fn run<S: Stored, O: Stored<Compute = S::Compute>>(
    matmul: &Matmul,
    part: usize,
    [lhs, rhs]: [&[S]; 2],
    output: &Shared<'_, O>,
    parallel: &dyn Parallel,
) -> Option<()> {
    let (parts, rest) = (matmul.k / part, matmul.k % part);
    let dim = BatchDim { size: parts, lhs: part * matmul.lhs_column, rhs: part * matmul.rhs_row };
    let whole = Matmul { batch: [&[dim], &matmul.batch[..]].concat(), k: part, ..matmul.clone() };
    let last = Matmul { k: rest, ..matmul.clone() };
    let results = matmul.groups() * matmul.m * matmul.n;
    let stored = parts + usize::from(rest > 0);
    scratch::with_two::<S::Compute, _>(stored * results, results, |sums, total| {
        // SAFETY: there is room for both; all of it is set before it is read, and floats can have any bits.
        let (sums, total) = unsafe {
            (std::slice::from_raw_parts_mut(sums, stored * results), std::slice::from_raw_parts_mut(total, results))
        };
        let (of_whole, of_rest) = sums.split_at_mut(parts * results);
        whole.multiply::<S, S::Compute>(lhs, rhs, &Shared::new(of_whole), parallel, None);
        if rest > 0 {
            let lhs = lhs.get(parts * dim.lhs..)?;
            let rhs = rhs.get(parts * dim.rhs..)?;
            last.multiply::<S, S::Compute>(lhs, rhs, &Shared::new(of_rest), parallel, None);
        }
        total.copy_from_slice(&sums[..results]);
        for sums in sums[results..].chunks_exact(results) {
            add(total, sums);
        }
        // SAFETY: nobody else uses the output, as for all products.
        O::store_all(total, unsafe { output.slice(0, results) });
        Some(())
    })
}

/// Adds to all.
fn add<C: Real>(to: &mut [C], more: &[C]) {
    with_vectors!(to.iter_mut().zip(more).for_each(|(to, &x)| *to = *to + x));
}

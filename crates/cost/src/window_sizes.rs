//! The sizes of windows that are tried for a product.
//!
//! Windows are counted in tiles. Columns and the innermost rows are cut into any number of windows as equal as tiles allow,
//! the last of which may reach over the edge. What is summed is cut evenly, as what lies behind its edge would be summed
//! too, and so are the outer dimensions of rows.

use crate::matmul::Matmul;

/// Rows and columns of a tile.
pub(crate) const SUBLANES: f64 = 8.0;
pub(crate) const LANES: f64 = 128.0;

/// A cut of a product's rows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct RowCut {
    /// How many windows there are.
    pub(crate) count: f64,
    /// Rows of a window.
    pub(crate) rows: f64,
    /// How many of them are along the innermost dimension.
    pub(crate) inner: f64,
}

/// The cuts of rows that are worth trying: of as many windows the smallest, in the order of their number, so that each has
/// smaller windows than the one before.
pub(crate) struct RowCuts(Vec<RowCut>);

impl RowCuts {
    pub(crate) fn new(p: &Matmul) -> RowCuts {
        let outer = (p.rows / p.inner_rows).round().max(1.0) as u64;
        let inner = tiles(p.inner_rows, SUBLANES);
        let mut all: Vec<RowCut> = Vec::new();
        for around in divisors(outer) {
            for along in shares(inner) {
                let taken = (along as f64 * SUBLANES).min(p.inner_rows);
                let count = (outer / around * inner.div_ceil(along)) as f64;
                all.push(RowCut { count, rows: around as f64 * taken, inner: taken });
            }
        }
        all.sort_by(|a, b| a.count.total_cmp(&b.count).then(a.rows.total_cmp(&b.rows)));
        let mut kept: Vec<RowCut> = Vec::new();
        for cut in all {
            if kept.last().is_none_or(|last| cut.rows < last.rows) {
                kept.push(cut);
            }
        }
        RowCuts(kept)
    }

    /// The cuts into windows of at most so many rows, the fewest windows first.
    pub(crate) fn no_larger(&self, rows: f64) -> impl Iterator<Item = RowCut> + '_ {
        self.0.iter().skip(self.0.partition_point(|cut| cut.rows > rows)).copied()
    }
}

/// The columns that a window may have.
pub(crate) fn columns(p: &Matmul) -> Vec<f64> {
    shares(tiles(p.columns, LANES)).into_iter().map(|n| (n as f64 * LANES).min(p.columns)).collect()
}

/// How many elements may be summed in a window.
pub(crate) fn contracted(p: &Matmul) -> Vec<f64> {
    divisors(tiles(p.contracted, LANES)).into_iter().map(|n| (n as f64 * LANES).min(p.contracted)).collect()
}

fn tiles(size: f64, tile: f64) -> u64 {
    (size / tile).ceil().max(1.0) as u64
}

/// The most that one has if `n` are divided as equally as possible, among one, two, three and so on.
fn shares(n: u64) -> Vec<u64> {
    let mut all = vec![n];
    let mut share = n;
    while share > 1 {
        // The fewest among whom less is left for each.
        share = n.div_ceil(n.div_ceil(share - 1));
        all.push(share);
    }
    all
}

pub(crate) fn divisors(n: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (1..).take_while(|d| d * d <= n).filter(|d| n.is_multiple_of(*d)).collect();
    let others: Vec<u64> = all.iter().rev().map(|d| n / d).filter(|d| d * d > n).collect();
    all.extend(others);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_divisors() {
        assert_eq!(shares(1), [1]);
        assert_eq!(shares(10), [10, 5, 4, 3, 2, 1]);
        assert_eq!(divisors(1), [1]);
        assert_eq!(divisors(12), [1, 2, 3, 4, 6, 12]);
        assert_eq!(divisors(16), [1, 2, 4, 8, 16]);
    }
}

//! Concatenations of many arrays: each is copied to its places, so that the work grows with the bytes and not with the
//! number of arrays times the bytes.

use crate::parallel::{Parallel, Shared, grain};

/// A concatenation of row-major arrays along one dimension.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Concatenate {
    /// Points of the dimensions outside of that one.
    outer: usize,
    /// For each array the bytes that it has at each of these points, which lie side by side.
    runs: Vec<usize>,
    /// For each array where its bytes begin among those of the result at a point.
    starts: Vec<usize>,
    /// The bytes of the result at each point.
    stride: usize,
}

impl Concatenate {
    /// The concatenation of arrays that have, at each of `outer` points, `runs` bytes each; `None` if that is too much.
    pub fn new(outer: usize, runs: Vec<usize>) -> Option<Concatenate> {
        let mut stride = 0usize;
        let mut starts = Vec::with_capacity(runs.len());
        for &run in &runs {
            starts.push(stride);
            stride = stride.checked_add(run)?;
        }
        outer.checked_mul(stride)?;
        Some(Concatenate { outer, runs, starts, stride })
    }

    /// Copies all arrays. `None`, and nothing is done, if their number is another or a slice is too short.
    pub fn run(&self, from: &[&[u8]], to: &mut [u8], parallel: &dyn Parallel) -> Option<()> {
        let long_enough = |(from, &run): (&&[u8], &usize)| from.len() >= run * self.outer;
        let fits = from.len() == self.runs.len() && from.iter().zip(&self.runs).all(long_enough);
        if !fits || to.len() < self.outer * self.stride {
            return None;
        }
        let (count, to) = (self.runs.len(), Shared::new(to));
        let units = self.outer * count;
        let unit_bytes = (self.outer * self.stride).div_ceil(units.max(1)).max(1);
        parallel.each(units, grain::BYTES.div_ceil(unit_bytes), &|begin, end| {
            for unit in begin..end {
                let (point, array) = (unit / count, unit % count);
                let run = self.runs[array];
                let run_of = &from[array][point * run..][..run];
                let target = to.address(point * self.stride + self.starts[array], run);
                // SAFETY: the run is inside the result and belongs to this unit alone.
                unsafe { std::ptr::copy_nonoverlapping(run_of.as_ptr(), target, run) };
            }
        });
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;

    #[test]
    fn arrays_lie_side_by_side_at_each_point() {
        let concatenate = Concatenate::new(2, vec![1, 0, 3]).expect("it is small");
        let mut to = [0; 8];
        concatenate.run(&[&[1, 2], &[], &[3, 4, 5, 6, 7, 8]], &mut to, &Serial).expect("all fits");
        assert_eq!(to, [1, 3, 4, 5, 2, 6, 7, 8]);
    }

    #[test]
    fn what_is_too_short_or_too_few_is_refused() {
        let concatenate = Concatenate::new(2, vec![1, 1]).expect("it is small");
        assert_eq!(concatenate.run(&[&[1, 2], &[3]], &mut [0; 4], &Serial), None);
        assert_eq!(concatenate.run(&[&[1, 2]], &mut [0; 4], &Serial), None);
        assert_eq!(concatenate.run(&[&[1, 2], &[3, 4]], &mut [0; 3], &Serial), None);
        assert_eq!(Concatenate::new(usize::MAX, vec![2]), None);
    }

    #[test]
    fn nothing_is_concatenated_to_nothing() {
        let concatenate = Concatenate::new(0, vec![4, 4]).expect("it is small");
        assert_eq!(concatenate.run(&[&[], &[]], &mut [], &Serial), Some(()));
    }
}

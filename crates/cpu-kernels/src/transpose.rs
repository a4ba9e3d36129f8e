//! Transposes of whole arrays: what lies innermost before and after is turned in squares, so that lines of memory are read
//! and written as a whole. For elements of four bytes on processors with vectors of 512 bits; where the innermost
//! dimension stays, whole runs are copied, whatever the elements are.

use crate::parallel::{Parallel, Shared, grain};
use crate::tiles::pack::turn_square;

/// A transpose of a row-major array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transpose {
    /// The dimensions of the result, outermost first: size, and the distance from one to the next in the operand, in
    /// elements. Dimensions that stay side by side are one.
    dims: Vec<(usize, usize)>,
    elements: usize,
    element_bytes: usize,
}

/// Squares of larger arrays lie on too many pages: loops that look further ahead are faster.
const MOST: usize = 1 << 18;
/// Of dimensions that are no longer loops make vectors that gather or scatter, while most of a square would be empty.
const SHORT: usize = 4;
/// A square of elements that is turned at once.
const SQUARE: usize = 16;
/// Squares that are turned one after the other along the result, so that it is written by several lines of memory.
const ALONG: usize = 4;

impl Transpose {
    /// The transpose to dimensions `order` of an array of these sizes, if there is a way for it.
    pub fn new(sizes: &[usize], order: &[usize], element_bytes: usize) -> Option<Transpose> {
        let elements = sizes.iter().try_fold(1usize, |n, &size| n.checked_mul(size))?;
        elements.checked_mul(element_bytes)?;
        let mut strides = vec![1; sizes.len()];
        for d in (1..sizes.len()).rev() {
            strides[d - 1] = strides[d] * sizes[d];
        }
        let mut dims: Vec<(usize, usize)> = Vec::new();
        for &d in order {
            let (size, stride) = (*sizes.get(d)?, *strides.get(d)?);
            match dims.last_mut() {
                _ if size == 1 => {}
                Some((outer, outer_stride)) if *outer_stride == stride * size => {
                    *outer *= size;
                    *outer_stride = stride;
                }
                _ => dims.push((size, stride)),
            }
        }
        let innermost_stays = dims.last().is_none_or(|d| d.1 == 1);
        let turned = dims.iter().find(|d| d.1 == 1).zip(dims.last()).map(|(down, across)| [down.0, across.0]);
        let fills_squares = turned.is_some_and(|ends| ends.iter().all(|&n| n > SHORT));
        let turns = element_bytes == 4 && elements <= MOST && turn_square().is_some() && fills_squares;
        // Short runs are better gathered.
        let long_runs = dims.last().is_none_or(|d| d.0 * element_bytes >= 64);
        (elements > 0 && element_bytes > 0 && if innermost_stays { long_runs } else { turns }).then_some(Transpose {
            dims,
            elements,
            element_bytes,
        })
    }

    /// Transposes. `None`, and nothing is done, if a slice is too short.
    pub fn run(&self, from: &[u8], to: &mut [u8], parallel: &dyn Parallel) -> Option<()> {
        let bytes = self.elements * self.element_bytes;
        if from.len() < bytes || to.len() < bytes {
            return None;
        }
        let Some((&(inner, stride), outer)) = self.dims.split_last() else {
            to[..bytes].copy_from_slice(&from[..bytes]);
            return Some(());
        };
        let to = Shared::new(to);
        if stride == 1 {
            self.copy(inner, outer, from, &to, parallel);
            return Some(());
        }
        let at = self.dims.iter().position(|d| d.1 == 1)?;
        self.turn(at, from, &to, parallel)
    }

    /// Copies runs of `inner` elements.
    fn copy(&self, inner: usize, outer: &[(usize, usize)], from: &[u8], to: &Shared<'_, u8>, parallel: &dyn Parallel) {
        let run = inner * self.element_bytes;
        let (&(line, stride), outer) = outer.split_last().unwrap_or((&(1, 0), &[]));
        parallel.each(self.elements / inner, grain::BYTES.div_ceil(run), &|begin, end| {
            let mut at = begin;
            while at < end {
                // As many as lie along one dimension, whose place is worked out once.
                let count = (line - at % line).min(end - at);
                let start = (offset(outer, at / line) + at % line * stride) * self.element_bytes;
                // SAFETY: these runs are this thread's.
                let to = unsafe { to.slice(at * run, (at + count) * run) };
                copy_runs(&from[start..], stride * self.element_bytes, to, run);
                at += count;
            }
        });
    }

    /// Turns squares of the dimension `at`, which is innermost in the operand, and the last one.
    fn turn(&self, at: usize, from: &[u8], to: &Shared<'_, u8>, parallel: &dyn Parallel) -> Option<()> {
        let turn = turn_square()?;
        let &(across, across_stride) = self.dims.last()?;
        let down = self.dims.get(at)?.0;
        let mut to_strides = vec![1usize; self.dims.len()];
        for d in (1..self.dims.len()).rev() {
            to_strides[d - 1] = to_strides[d] * self.dims[d].0;
        }
        let to_stride = to_strides[at];
        let others: Vec<usize> = (0..self.dims.len() - 1).filter(|&d| d != at).collect();
        let planes: usize = others.iter().map(|&d| self.dims[d].0).product();
        let strips = across.div_ceil(SQUARE * ALONG);
        let strip_bytes = across.min(SQUARE * ALONG) * down * self.element_bytes;
        parallel.each(planes * strips, grain::BYTES.div_ceil(strip_bytes.max(1)), &|begin, end| {
            for unit in begin..end {
                let (mut plane, strip) = (unit / strips, unit % strips * SQUARE * ALONG);
                let (mut source, mut target) = (0, 0);
                for &d in others.iter().rev() {
                    let index = plane % self.dims[d].0;
                    plane /= self.dims[d].0;
                    source += index * self.dims[d].1;
                    target += index * to_strides[d];
                }
                let end = across.min(strip + SQUARE * ALONG);
                for row in (0..down).step_by(SQUARE) {
                    let height = SQUARE.min(down - row);
                    for column in (strip..end).step_by(SQUARE) {
                        let width = SQUARE.min(end - column);
                        let first = source + column * across_stride + row;
                        let reach = (width - 1) * across_stride + height;
                        let square = &from[first * 4..(first + reach) * 4];
                        let place = target + row * to_stride + column;
                        let to = to.address(place * 4, ((height - 1) * to_stride + width) * 4);
                        // SAFETY: the square is there, and so is the room for it, which is this thread's.
                        unsafe { turn(square.as_ptr(), across_stride, [width, height], to, to_stride) };
                    }
                }
            }
        });
        Some(())
    }
}

/// Copies runs that lie `stride` bytes apart to `to`, one after another. Short ones of usual lengths are moved by a few
/// instructions each, where a call would take longer than the copy.
fn copy_runs(from: &[u8], stride: usize, to: &mut [u8], run: usize) {
    #[inline(always)]
    fn of_length(from: &[u8], stride: usize, to: &mut [u8], run: usize) {
        for (n, to) in to.chunks_exact_mut(run).enumerate() {
            to.copy_from_slice(&from[n * stride..n * stride + run]);
        }
    }
    match run {
        64 => of_length(from, stride, to, 64),
        128 => of_length(from, stride, to, 128),
        256 => of_length(from, stride, to, 256),
        run => of_length(from, stride, to, run),
    }
}

/// Where the run number `at` of the outer dimensions begins.
fn offset(outer: &[(usize, usize)], mut at: usize) -> usize {
    let mut offset = 0;
    for &(size, stride) in outer.iter().rev() {
        offset += at % size * stride;
        at /= size;
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;

    /// The transpose, element by element.
    fn plainly<const N: usize>(sizes: &[usize], order: &[usize], from: &[[u8; N]]) -> Vec<[u8; N]> {
        let to_sizes: Vec<usize> = order.iter().map(|&d| sizes[d]).collect();
        let mut strides = vec![1; sizes.len()];
        for d in (1..sizes.len()).rev() {
            strides[d - 1] = strides[d] * sizes[d];
        }
        let dims: Vec<(usize, usize)> = to_sizes.iter().zip(order).map(|(&n, &d)| (n, strides[d])).collect();
        (0..from.len()).map(|at| from[offset(&dims, at)]).collect()
    }

    fn check<const N: usize>(sizes: &[usize], order: &[usize]) -> bool {
        let count: usize = sizes.iter().product();
        let from: Vec<[u8; N]> =
            (0..count).map(|n| std::array::from_fn(|b| (n * 31 + n / 256 * 7 + b) as u8)).collect();
        let Some(transpose) = Transpose::new(sizes, order, N) else { return false };
        let mut to = vec![[0; N]; count];
        transpose.run(from.as_flattened(), to.as_flattened_mut(), &Serial).unwrap();
        assert_eq!(to, plainly(sizes, order, &from), "{sizes:?} to {order:?}, {N} bytes");
        true
    }

    #[test]
    fn elements_come_where_they_belong() {
        let able = turn_square().is_some();
        for (sizes, order) in [
            (&[5, 7][..], &[1, 0][..]),
            (&[64, 100], &[1, 0]),
            (&[2, 33, 17, 7], &[0, 3, 1, 2]),
            (&[3, 3, 20, 18], &[3, 2, 0, 1]),
            (&[2, 1, 40, 5], &[3, 1, 0, 2]),
        ] {
            assert_eq!(check::<4>(sizes, order), able);
            assert!(!check::<2>(sizes, order));
        }
        assert!(check::<4>(&[3, 5, 2, 16], &[0, 2, 1, 3]) && check::<2>(&[4, 6, 32], &[1, 0, 2]));
        assert!(check::<8>(&[4, 1, 32], &[1, 0, 2]));
        // Squares that would be nearly empty.
        assert!(!check::<4>(&[20, 30, 4], &[2, 0, 1]));
        // Runs too short to be copied one by one.
        assert!(!check::<4>(&[30, 50, 2], &[1, 0, 2]));
    }

    #[test]
    fn short_slices_are_refused() {
        let transpose = Transpose::new(&[4, 8, 16], &[1, 0, 2], 4).unwrap();
        assert_eq!(transpose.run(&[0; 2047], &mut [0; 2048], &Serial), None);
        assert_eq!(transpose.run(&[0; 2048], &mut [0; 2047], &Serial), None);
    }
}

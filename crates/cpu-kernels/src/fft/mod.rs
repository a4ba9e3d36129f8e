//! Fourier transforms over the last dimensions of an array: of complex numbers either way, of real numbers to the half of
//! their spectrum that says all, and back.
//!
//! Lines along the last dimension are transformed where they lie; along the others several neighbouring lines are
//! gathered at a time, so that whole cache lines are used.

mod real;

use crate::parallel::{Parallel, Shared};
use crate::vectors::with_vectors;
use bytemuck::Pod;
use num_complex::Complex;
use real::{Buffers, Lines, LinesTo};
use rustfft::{FftNum, FftPlanner};
use std::ops::Range;
use std::sync::Arc;

/// What is transformed into what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FftKind {
    /// Complex numbers to their spectrum.
    Forward,
    /// A spectrum to complex numbers, divided by their count.
    Inverse,
    /// Real numbers to the first half of their spectrum.
    RealForward,
    /// The first half of a spectrum to real numbers, divided by their count.
    RealInverse,
}

/// How many lines are gathered at a time.
const LINES: usize = 8;
/// Into how many parts each thread's share is cut.
const PARTS: usize = 4;
const PAGE: usize = 4096;

/// A transform over the last dimensions, of f32 or f64. (Not generic, so that the transforms themselves are compiled here
/// and nowhere else.)
#[derive(Debug)]
pub enum Transform {
    /// Of f32, and complex numbers of two.
    Single(Fft<f32>),
    /// Of f64, and complex numbers of two.
    Double(Fft<f64>),
}

impl Transform {
    /// The transform of `batch` arrays of those sizes; `None` if there is nothing to transform.
    pub fn new(kind: FftKind, is_double: bool, batch: usize, lengths: &[usize]) -> Option<Transform> {
        Some(match is_double {
            true => Transform::Double(Fft::new(kind, batch, lengths)?),
            false => Transform::Single(Fft::new(kind, batch, lengths)?),
        })
    }

    /// Transforms the numbers in `input`. `None`, and nothing is done, if the arrays have not the sizes that the transform
    /// says, or are not where such numbers can be.
    pub fn run(&self, input: &[u8], output: &mut [u8], parallel: &dyn Parallel) -> Option<()> {
        match self {
            Transform::Single(fft) => fft.run(input, output, parallel),
            Transform::Double(fft) => fft.run(input, output, parallel),
        }
    }
}

/// A transform over the last dimensions.
pub struct Fft<T: FftNum> {
    kind: FftKind,
    batch: usize,
    /// The sizes of the transformed dimensions, of real numbers where there are such.
    lengths: Vec<usize>,
    /// For each dimension its transform; the last one is not used for real numbers.
    complex: Vec<Arc<dyn rustfft::Fft<T>>>,
    real: Option<Lines<T>>,
}

impl<T: FftNum> std::fmt::Debug for Fft<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fft")
            .field("kind", &self.kind)
            .field("batch", &self.batch)
            .field("lengths", &self.lengths)
            .finish()
    }
}

impl<T: FftNum + Default> Fft<T> {
    /// The transform of `batch` arrays of those sizes; `None` if there is nothing to transform.
    fn new(kind: FftKind, batch: usize, lengths: &[usize]) -> Option<Fft<T>> {
        let &last = lengths.last()?;
        if lengths.contains(&0) {
            return None;
        }
        let mut planner = FftPlanner::new();
        let inverse = matches!(kind, FftKind::Inverse | FftKind::RealInverse);
        let complex =
            lengths.iter().map(|&n| if inverse { planner.plan_fft_inverse(n) } else { planner.plan_fft_forward(n) });
        let complex = complex.collect();
        let is_real = matches!(kind, FftKind::RealForward | FftKind::RealInverse);
        let real = if is_real { Some(Lines::new(last, inverse, &mut planner)?) } else { None };
        Some(Fft { kind, batch, lengths: lengths.to_vec(), complex, real })
    }

    fn run(&self, input: &[u8], output: &mut [u8], parallel: &dyn Parallel) -> Option<()>
    where
        T: Pod,
    {
        match self.kind {
            FftKind::Forward | FftKind::Inverse => self.complex(numbers(input)?, numbers_mut(output)?, parallel),
            FftKind::RealForward => self.real_forward(numbers(input)?, numbers_mut(output)?, parallel),
            FftKind::RealInverse => self.real_inverse(numbers(input)?, numbers_mut(output)?, parallel),
        }
    }

    fn last(&self) -> usize {
        self.lengths.last().copied().unwrap_or(1)
    }

    /// Lines along the last dimension.
    fn rows(&self) -> usize {
        self.batch * self.lengths[..self.lengths.len() - 1].iter().product::<usize>()
    }

    /// Rows that one thread takes at a time.
    fn chunk(&self) -> usize {
        (4096 / self.last()).max(1)
    }

    /// Complex to complex. `None`, and nothing is done, if the arrays have not the sizes that the transform says.
    fn complex(&self, input: &[Complex<T>], output: &mut [Complex<T>], parallel: &dyn Parallel) -> Option<()> {
        let is_complex = matches!(self.kind, FftKind::Forward | FftKind::Inverse);
        let (n, count) = (self.last(), self.rows() * self.last());
        if !is_complex || input.len() != count || output.len() != count {
            return None;
        }
        let plan = self.complex.last()?;
        let scale = self.scale(n);
        let all = Shared::new(output);
        parallel.each(self.rows(), self.chunk(), &|begin, end| {
            let mut scratch = vec![Complex::default(); plan.get_immutable_scratch_len()];
            // SAFETY: the rows are this call's.
            let rows = unsafe { all.slice(begin * n, end * n) };
            plan.process_immutable_with_scratch(&input[begin * n..end * n], rows, &mut scratch);
            if let Some(scale) = scale {
                rows.iter_mut().for_each(|x| *x = *x * scale);
            }
        });
        self.outer(output, n, parallel);
        Some(())
    }

    /// Real to complex.
    fn real_forward(&self, input: &[T], output: &mut [Complex<T>], parallel: &dyn Parallel) -> Option<()>
    where
        T: Pod,
    {
        let lines = self.real.as_ref()?;
        let (n, half) = (self.last(), lines.half());
        if input.len() != self.rows() * n || output.len() != self.rows() * half {
            return None;
        }
        let all = Shared::new(output);
        parallel.each(self.rows(), self.chunk(), &|begin, end| {
            let mut buffers = Buffers::default();
            for rows in parts(begin, end, self.chunk()) {
                let from = &input[rows.start * n..rows.end * n];
                let pairs = n.is_multiple_of(2).then(|| bytemuck::cast_slice(from));
                // SAFETY: the rows are this call's.
                let to = unsafe { all.slice(rows.start * half, rows.end * half) };
                with_vectors!(lines.forward(from, pairs, to, &mut buffers));
            }
        });
        self.outer(output, half, parallel);
        Some(())
    }

    /// Complex to real.
    fn real_inverse(&self, input: &[Complex<T>], output: &mut [T], parallel: &dyn Parallel) -> Option<()>
    where
        T: Pod,
    {
        let lines = self.real.as_ref()?;
        let (n, half) = (self.last(), lines.half());
        if input.len() != self.rows() * half || output.len() != self.rows() * n {
            return None;
        }
        let mut changed = Vec::new();
        let mut input = input;
        if self.lengths.len() > 1 {
            changed.extend_from_slice(input);
            self.outer(&mut changed, half, parallel);
            input = &changed;
        }
        let scale = self.scale(n)?;
        let all = Shared::new(output);
        parallel.each(self.rows(), self.chunk(), &|begin, end| {
            let mut buffers = Buffers::default();
            for rows in parts(begin, end, self.chunk()) {
                let from = &input[rows.start * half..rows.end * half];
                // SAFETY: the rows are this call's.
                let to = unsafe { all.slice(rows.start * n, rows.end * n) };
                let to = if n.is_multiple_of(2) {
                    LinesTo::Pairs(bytemuck::cast_slice_mut(to))
                } else {
                    LinesTo::Numbers(to)
                };
                with_vectors!(lines.inverse(from, scale, to, &mut buffers));
            }
        });
        Some(())
    }

    /// What a dimension's elements are multiplied with.
    fn scale(&self, n: usize) -> Option<T> {
        let inverse = matches!(self.kind, FftKind::Inverse | FftKind::RealInverse);
        if inverse { Some(T::one() / T::from_usize(n)?) } else { None }
    }

    /// Transforms along all dimensions but the last, which has `last` elements.
    fn outer(&self, data: &mut [Complex<T>], last: usize, parallel: &dyn Parallel) {
        let dims = self.lengths.len() - 1;
        for d in 0..dims {
            let n = self.lengths[d];
            let inner = self.lengths[d + 1..dims].iter().product::<usize>() * last;
            let outer = self.batch * self.lengths[..d].iter().product::<usize>();
            if n == 1 || inner == 0 {
                continue;
            }
            let (plan, scale) = (&self.complex[d], self.scale(n));
            // Lines whole pages apart all want the same places of a cache, which has few of each.
            let together = if (n * size_of::<Complex<T>>()).is_multiple_of(PAGE) { LINES / 2 } else { LINES };
            let blocks = inner.div_ceil(together);
            let (units, threads) = (outer * blocks, parallel.threads().max(1));
            let all = Shared::new(data);
            parallel.each(units, units.div_ceil(PARTS * threads), &|begin, end| {
                let mut scratch = vec![Complex::default(); plan.get_inplace_scratch_len()];
                let mut lines = vec![Complex::default(); n * together];
                for unit in begin..end {
                    let (first, column) = (unit / blocks * n * inner, unit % blocks * together);
                    let count = together.min(inner - column);
                    for k in 0..n {
                        let at = first + k * inner + column;
                        // SAFETY: these columns are this call's.
                        let from = unsafe { all.slice(at, at + count) };
                        for (c, &x) in from.iter().enumerate() {
                            lines[c * n + k] = x;
                        }
                    }
                    plan.process_with_scratch(&mut lines[..count * n], &mut scratch);
                    for k in 0..n {
                        let at = first + k * inner + column;
                        // SAFETY: as above.
                        let to = unsafe { all.slice(at, at + count) };
                        match scale {
                            None => to.iter_mut().enumerate().for_each(|(c, x)| *x = lines[c * n + k]),
                            Some(s) => to.iter_mut().enumerate().for_each(|(c, x)| *x = lines[c * n + k] * s),
                        }
                    }
                }
            });
        }
    }
}

/// The rows from `begin` to `end`, so many at a time.
fn parts(begin: usize, end: usize, count: usize) -> impl Iterator<Item = Range<usize>> {
    (begin..end).step_by(count).map(move |first| first..end.min(first + count))
}

fn numbers<N: Pod>(bytes: &[u8]) -> Option<&[N]> {
    bytemuck::try_cast_slice(bytes).ok()
}

fn numbers_mut<N: Pod>(bytes: &mut [u8]) -> Option<&mut [N]> {
    bytemuck::try_cast_slice_mut(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;

    type C = Complex<f64>;

    fn some(count: usize) -> Vec<C> {
        (0..count).map(|n| C::new((n * 7 % 11) as f64 - 5.0, (n * 5 % 13) as f64 - 6.0)).collect()
    }

    /// One element of the transform, by its definition.
    fn defined(x: &[C], dims: &[usize], at: &[usize]) -> C {
        let mut sum = C::default();
        for (p, &value) in x.iter().enumerate() {
            let (mut rest, mut turns) = (p, 0.0);
            for d in (0..dims.len()).rev() {
                turns += (rest % dims[d] * at[d]) as f64 / dims[d] as f64;
                rest /= dims[d];
            }
            sum += value * C::from_polar(1.0, -std::f64::consts::TAU * turns);
        }
        sum
    }

    fn near(a: C, b: C) -> bool {
        (a - b).norm() < 1e-9
    }

    #[test]
    fn three_dimensions_as_defined_and_back() {
        let dims = [3, 4, 5];
        let x = some(2 * 60);
        let (mut y, mut z) = (vec![C::default(); 120], vec![C::default(); 120]);
        Fft::new(FftKind::Forward, 2, &dims).and_then(|f| f.complex(&x, &mut y, &Serial)).expect("it fits");
        for (at, place) in [([0, 0, 0], 0), ([1, 2, 3], 33), ([2, 3, 4], 59)] {
            assert!(near(y[60 + place], defined(&x[60..], &dims, &at)), "{at:?}");
        }
        Fft::new(FftKind::Inverse, 2, &dims).and_then(|f| f.complex(&y, &mut z, &Serial)).expect("it fits");
        assert!(x.iter().zip(&z).all(|(&a, &b)| near(a, b)));
    }

    #[test]
    fn real_numbers_are_half_of_the_complex_spectrum_and_come_back() {
        for last in [1, 2, 6, 7, 8, 50, 64] {
            let dims = [3, last];
            let real: Vec<f64> = some(2 * 3 * last).iter().map(|c| c.re).collect();
            let whole: Vec<C> = real.iter().map(|&re| C::new(re, 0.0)).collect();
            let half = last / 2 + 1;
            let mut spectrum = vec![C::default(); 2 * 3 * half];
            let forward = Fft::new(FftKind::RealForward, 2, &dims).expect("there is something");
            forward.real_forward(&real, &mut spectrum, &Serial).expect("it fits");
            for row in 0..3 {
                for k in 0..half {
                    let expected = defined(&whole[..3 * last], &dims, &[row, k]);
                    assert!(near(spectrum[row * half + k], expected), "{last}: {row} {k}");
                }
            }
            let mut back = vec![0.0; real.len()];
            let inverse = Fft::new(FftKind::RealInverse, 2, &dims).expect("there is something");
            inverse.real_inverse(&spectrum, &mut back, &Serial).expect("it fits");
            assert!(real.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-9), "{last}");
        }
    }

    #[test]
    fn other_sizes_are_refused() {
        let fft = Fft::<f64>::new(FftKind::Forward, 1, &[4]).expect("there is something");
        assert!(fft.complex(&some(4), &mut some(3), &Serial).is_none());
        assert!(Fft::<f64>::new(FftKind::Forward, 1, &[0]).is_none());
    }
}

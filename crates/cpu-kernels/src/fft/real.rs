//! Lines of real numbers and the halves of their spectra.
//!
//! A line of even length is half as many complex numbers, of which one transform makes all rows of a block. What becomes of
//! their spectrum Z is, with m = n/2 and Q(k) = conj(Z(m − k)): X(k) = Q(k) + a(k)·(Z(k) − Q(k)), where
//! a(k) = (1 − sin(τk/n))/2 − i·cos(τk/n)/2; and back, with the conjugate of a, the same formula makes Z of X. A line of odd
//! length is as many complex numbers.

use num_complex::Complex;
use rustfft::{Fft, FftNum, FftPlanner};
use std::f64::consts::TAU;
use std::sync::Arc;

/// Elements that are combined at once, as vectors.
const BLOCK: usize = 8;

/// The transform of lines of real numbers, one way.
pub(super) struct Lines<T: FftNum> {
    length: usize,
    /// Of half the length if that is even.
    complex: Arc<dyn Fft<T>>,
    /// The real and the imaginary parts of a.
    factors: [Vec<T>; 2],
}

impl<T: FftNum + Default> Lines<T> {
    /// The transform of lines of that length.
    pub(super) fn new(length: usize, inverse: bool, planner: &mut FftPlanner<T>) -> Option<Lines<T>> {
        let is_even = length.is_multiple_of(2);
        let count = if is_even { length / 2 } else { length };
        let complex = if inverse { planner.plan_fft_inverse(count) } else { planner.plan_fft_forward(count) };
        let half = |x: f64| T::from_f64(x / 2.0);
        let angle = |k: usize| TAU * k as f64 / length as f64;
        let sign = if inverse { 1.0 } else { -1.0 };
        let places = if is_even { count } else { 0 };
        let re = (0..places).map(|k| half(1.0 - angle(k).sin())).collect::<Option<_>>()?;
        let im = (0..places).map(|k| half(sign * angle(k).cos())).collect::<Option<_>>()?;
        Some(Lines { length, complex, factors: [re, im] })
    }

    /// Numbers of a half spectrum.
    pub(super) fn half(&self) -> usize {
        self.length / 2 + 1
    }

    /// The half spectra of the lines in `from`. Without `pairs`, which are the same numbers two by two, the length is odd.
    #[inline(always)]
    pub(super) fn forward(
        &self,
        from: &[T],
        pairs: Option<&[Complex<T>]>,
        to: &mut [Complex<T>],
        buffers: &mut Buffers<T>,
    ) {
        let Buffers { scratch, spectra, lines } = buffers;
        scratch.resize(self.complex.get_immutable_scratch_len(), Complex::default());
        spectra.resize(pairs.map_or(from.len(), <[_]>::len), Complex::default());
        let Some(pairs) = pairs else {
            lines.clear();
            lines.extend(from.iter().map(|&x| Complex::new(x, T::default())));
            self.complex.process_immutable_with_scratch(lines, spectra, scratch);
            for (to, from) in to.chunks_exact_mut(self.half()).zip(spectra.chunks_exact(self.length)) {
                to.copy_from_slice(&from[..to.len()]);
            }
            return;
        };
        self.complex.process_immutable_with_scratch(pairs, spectra, scratch);
        let m = self.length / 2;
        for (to, z) in to.chunks_exact_mut(m + 1).zip(spectra.chunks_exact(m)) {
            let zero = T::default();
            to[0] = Complex::new(z[0].re + z[0].im, zero);
            to[m] = Complex::new(z[0].re - z[0].im, zero);
            let factors = [&self.factors[0][1..], &self.factors[1][1..]];
            combine(&z[1..], factors, T::one(), &mut to[1..m]);
        }
    }

    /// The lines of the half spectra in `from`, times `scale`. Without `pairs`, as which the lines are written, the length is
    /// odd, and they are written to `to`.
    #[inline(always)]
    pub(super) fn inverse(&self, from: &[Complex<T>], scale: T, to: LinesTo<'_, T>, buffers: &mut Buffers<T>) {
        let Buffers { scratch, spectra, lines } = buffers;
        scratch.resize(self.complex.get_immutable_scratch_len(), Complex::default());
        let (n, zero) = (self.length, T::default());
        match to {
            LinesTo::Numbers(to) => {
                spectra.resize(to.len(), Complex::default());
                lines.resize(to.len(), Complex::default());
                for (whole, half) in spectra.chunks_exact_mut(n).zip(from.chunks_exact(self.half())) {
                    whole[0] = Complex::new(half[0].re * scale, zero);
                    for (k, &x) in half.iter().enumerate().skip(1) {
                        whole[k] = x * scale;
                        whole[n - k] = x.conj() * scale;
                    }
                }
                self.complex.process_immutable_with_scratch(spectra, lines, scratch);
                to.iter_mut().zip(lines).for_each(|(to, from)| *to = from.re);
            }
            LinesTo::Pairs(to) => {
                let m = n / 2;
                spectra.resize(to.len(), Complex::default());
                // Twice as much is divided by in a transform of half the length.
                let scale = scale + scale;
                let factors = [&self.factors[0][1..], &self.factors[1][1..]];
                let half = T::one() / (T::one() + T::one());
                for (z, x) in spectra.chunks_exact_mut(m).zip(from.chunks_exact(m + 1)) {
                    // What must be real for a real signal is taken as real.
                    let (first, last) = (x[0].re * scale * half, x[m].re * scale * half);
                    z[0] = Complex::new(first + last, first - last);
                    combine(&x[1..m], factors, scale, &mut z[1..]);
                }
                self.complex.process_immutable_with_scratch(spectra, to, scratch);
            }
        }
    }
}

/// What lines are transformed in.
#[derive(Default)]
pub(super) struct Buffers<T> {
    scratch: Vec<Complex<T>>,
    spectra: Vec<Complex<T>>,
    lines: Vec<Complex<T>>,
}

/// Where lines of real numbers go.
pub(super) enum LinesTo<'a, T> {
    /// They are of odd length.
    Numbers(&'a mut [T]),
    /// Two numbers at a time.
    Pairs(&'a mut [Complex<T>]),
}

/// `to[k] = scale · (Q + a[k]·(P − Q))`, where P is `from[k]` and Q the conjugate of its counterpart from the end. As the
/// counterpart of `a[k]` is its conjugate, that of `to[k]` is made of the same product.
#[inline(always)]
fn combine<T: FftNum>(from: &[Complex<T>], [re, im]: [&[T]; 2], scale: T, to: &mut [Complex<T>]) {
    let n = to.len();
    assert!(from.len() == n && re.len() >= n && im.len() >= n, "halves of other lengths");
    let pairs = n / 2;
    let (front, back) = to.split_at_mut(n - pairs);
    let (first, last) = from.split_at(n - pairs);
    let both = |k: usize, p: Complex<T>, q: Complex<T>| {
        let (x, y) = (p.re - q.re, p.im + q.im);
        let (u, v) = (re[k] * x - im[k] * y, re[k] * y + im[k] * x);
        let front = Complex::new((q.re + u) * scale, (v - q.im) * scale);
        (front, Complex::new((p.re - u) * scale, (v - p.im) * scale))
    };
    let blocks = pairs / BLOCK * BLOCK;
    for start in (0..blocks).step_by(BLOCK) {
        let end = pairs - start;
        let (front, back) = (&mut front[start..start + BLOCK], &mut back[end - BLOCK..end]);
        let (first, last) = (&first[start..start + BLOCK], &last[end - BLOCK..end]);
        for k in 0..BLOCK {
            (front[k], back[BLOCK - 1 - k]) = both(start + k, first[k], last[BLOCK - 1 - k]);
        }
    }
    for k in blocks..pairs {
        (front[k], back[pairs - 1 - k]) = both(k, first[k], last[pairs - 1 - k]);
    }
    if let (Some(middle), Some(&p)) = (front.get_mut(pairs), first.get(pairs)) {
        *middle = both(pairs, p, p).0;
    }
}

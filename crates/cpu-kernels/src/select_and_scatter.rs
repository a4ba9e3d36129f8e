//! The gradient of pooling: of each window one element is selected, and gets what is scattered to the window.
//!
//! Dimensions that windows leave alone are split off: those before the others are independent arrays, and so are the
//! elements behind them, which are worked on side by side.

use crate::number::Stored;
use crate::parallel::{Parallel, Shared};

/// A dimension with windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowDim {
    /// Elements of the operand.
    pub operand: usize,
    /// Windows, and so elements of the source.
    pub source: usize,
    /// Elements of a window.
    pub size: usize,
    /// From one window to the next.
    pub stride: usize,
    /// From one element of a window to the next.
    pub dilation: usize,
    /// How far the first window begins before the first element.
    pub padding_low: isize,
}

/// Whether the element selected so far stays when the next is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names of the comparisons")]
pub enum Keep {
    Ge,
    Gt,
    Le,
    Lt,
}

/// A selection from windows of `outer` × `dims` × `inner` elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SelectAndScatter {
    /// Elements before the dimensions with windows.
    pub outer: usize,
    /// The dimensions with windows.
    pub dims: Vec<WindowDim>,
    /// Elements behind them.
    pub inner: usize,
    /// What is selected.
    pub keep: Keep,
}

/// Elements behind the windows that are worked on together.
const SIDE_BY_SIDE: usize = 256;

impl SelectAndScatter {
    /// Adds each element of `source` to the selected one of its window, where `output` holds `init` otherwise. `None`,
    /// and nothing is done, if the arrays have not the sizes that this says.
    pub fn run<S: Stored>(
        &self,
        operand: &[S],
        source: &[S],
        init: S,
        output: &mut [S],
        parallel: &dyn Parallel,
    ) -> Option<()>
    where
        S::Compute: PartialOrd,
    {
        let count = |of: fn(&WindowDim) -> usize| self.dims.iter().try_fold(1usize, |n, d| n.checked_mul(of(d)));
        let (elements, windows) = (count(|d| d.operand)?, count(|d| d.source)?);
        let whole = |n: usize| n.checked_mul(self.outer)?.checked_mul(self.inner);
        if whole(elements)? != operand.len() || operand.len() != output.len() || whole(windows)? != source.len() {
            return None;
        }
        u32::try_from(elements).ok()?;
        if operand.is_empty() {
            return Some(());
        }
        let blocks = self.inner.div_ceil(SIDE_BY_SIDE);
        let all = Shared::new(output);
        parallel.each(self.outer * blocks, 1, &|begin, end| {
            let mut scratch = Scratch::default();
            for unit in begin..end {
                let (outer, column) = (unit / blocks, unit % blocks * SIDE_BY_SIDE);
                let width = SIDE_BY_SIDE.min(self.inner - column);
                let base = outer * elements * self.inner + column;
                let lines = |n: usize| base + n * self.inner;
                let whole = all.address(base, (elements - 1) * self.inner + width);
                for n in 0..elements {
                    // SAFETY: these columns are this call's.
                    unsafe { all.slice(lines(n), lines(n) + width) }.fill(init);
                }
                for window in 0..windows {
                    self.places(window, &mut scratch.places);
                    let at = (outer * windows + window) * self.inner + column;
                    let given = &source[at..at + width];
                    self.select(|n| &operand[lines(n)..lines(n) + width], &mut scratch);
                    for (c, (&n, &x)) in scratch.at.iter().zip(given).enumerate() {
                        // SAFETY: the line is one of the elements, the column within the width.
                        unsafe {
                            let to = whole.add(n as usize * self.inner + c);
                            to.write(S::store(to.read().load() + x.load()));
                        }
                    }
                }
            }
        });
        Some(())
    }

    /// For each column the line that is selected.
    fn select<'a, S: Stored>(&self, line: impl Fn(usize) -> &'a [S], scratch: &mut Scratch<S::Compute>)
    where
        S::Compute: PartialOrd,
    {
        scratch.best.clear();
        scratch.at.clear();
        let Some(&first) = scratch.places.first() else { return };
        scratch.best.extend(line(first as usize).iter().map(|x| x.load()));
        scratch.at.resize(scratch.best.len(), first);
        for k in 1..scratch.places.len() {
            let n = scratch.places[k];
            let next = line(n as usize);
            match self.keep {
                Keep::Ge => scratch.choose(next, n, |b, x| b >= x),
                Keep::Gt => scratch.choose(next, n, |b, x| b > x),
                Keep::Le => scratch.choose(next, n, |b, x| b <= x),
                Keep::Lt => scratch.choose(next, n, |b, x| b < x),
            }
        }
    }

    /// The elements of a window that are in the operand, in order.
    fn places(&self, window: usize, places: &mut Vec<u32>) {
        places.clear();
        places.push(0);
        // Windows and elements are counted with the last dimension fastest.
        let mut divisor: usize = self.dims.iter().map(|d| d.source).product();
        for d in &self.dims {
            divisor /= d.source.max(1);
            let start = (window / divisor.max(1) % d.source.max(1) * d.stride) as isize - d.padding_low;
            let before = std::mem::take(places);
            for p in before {
                for k in 0..d.size {
                    let at = start + (k * d.dilation) as isize;
                    if at >= 0 && (at as usize) < d.operand {
                        places.push(p * d.operand as u32 + at as u32);
                    }
                }
            }
        }
    }
}

/// Memory that one window after another uses.
#[derive(Default)]
struct Scratch<C> {
    /// For each column the element selected so far, and its line.
    best: Vec<C>,
    at: Vec<u32>,
    /// What they are made anew in: what is written to where it is read from becomes a jump for each element.
    new_best: Vec<C>,
    new_at: Vec<u32>,
    /// The lines of the window.
    places: Vec<u32>,
}

impl<C: Copy> Scratch<C> {
    /// Takes the next line where the one so far does not stay.
    #[inline(always)]
    fn choose<S: Stored<Compute = C>>(&mut self, next: &[S], n: u32, stays: impl Fn(C, C) -> bool) {
        self.new_best.clear();
        self.new_at.clear();
        let pair = |(&b, x): (&C, &S)| {
            let x = x.load();
            if stays(b, x) { b } else { x }
        };
        self.new_best.extend(self.best.iter().zip(next).map(pair));
        let place = |((&b, x), &a): ((&C, &S), &u32)| if stays(b, x.load()) { a } else { n };
        self.new_at.extend(self.best.iter().zip(next).zip(&self.at).map(place));
        std::mem::swap(&mut self.best, &mut self.new_best);
        std::mem::swap(&mut self.at, &mut self.new_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;

    #[test]
    fn the_greatest_of_each_window_gets_its_share() {
        // One dimension, windows of 3 every 2, one element of padding before: {-, 5, 1}, {1, 7, 7}, {7, 0, -}.
        let dim = WindowDim { operand: 5, source: 3, size: 3, stride: 2, dilation: 1, padding_low: 1 };
        let operand = [5.0f32, 1.0, 7.0, 7.0, 0.0];
        let selection = |keep| SelectAndScatter { outer: 1, dims: vec![dim], inner: 1, keep };
        let mut output = [0.0; 5];
        selection(Keep::Ge).run(&operand, &[10.0, 20.0, 30.0], 0.5, &mut output, &Serial).expect("it fits");
        assert_eq!(output, [10.5, 0.5, 20.5, 30.5, 0.5]);
        selection(Keep::Gt).run(&operand, &[10.0, 20.0, 30.0], 0.0, &mut output, &Serial).expect("it fits");
        assert_eq!(output, [10.0, 0.0, 0.0, 50.0, 0.0]);
        selection(Keep::Lt).run(&operand, &[10.0, 20.0, 30.0], 0.0, &mut output, &Serial).expect("it fits");
        assert_eq!(output, [0.0, 30.0, 0.0, 0.0, 30.0]);
    }

    #[test]
    fn elements_before_and_behind_are_on_their_own() {
        let dim = WindowDim { operand: 2, source: 1, size: 2, stride: 2, dilation: 1, padding_low: 0 };
        let selection = SelectAndScatter { outer: 2, dims: vec![dim], inner: 2, keep: Keep::Ge };
        let operand = [1.0f64, 4.0, 2.0, 3.0, 6.0, 7.0, 5.0, 8.0];
        let mut output = [0.0; 8];
        selection.run(&operand, &[1.0, 2.0, 3.0, 4.0], 0.0, &mut output, &Serial).expect("it fits");
        assert_eq!(output, [0.0, 2.0, 1.0, 0.0, 3.0, 0.0, 0.0, 4.0]);
        assert!(selection.run(&operand, &[1.0; 3], 0.0, &mut output, &Serial).is_none());
    }
}

//! What a convolution sums over, cut into runs: numbers that lie evenly spaced in the input and in the kernel.
//!
//! A run goes over the input features under one tap, or, where these are few, under all taps of a row of the window, as they
//! lie side by side; or over one feature under the taps of such a row, where images lie side by side.

use super::parts::{Part, PartAxis, Tap};
use super::{Convolution, for_each_index};
use std::ops::Range;

/// Features under one tap that are too few for a run.
const FEW_FEATURES: usize = 16;

/// What is summed over.
pub(super) struct Runs {
    pub(super) list: Vec<Run>,
    /// Numbers of a run, and how many it is taken to have, so that each begins with a unit.
    pub(super) len: usize,
    pub(super) padded: usize,
    pub(super) kind: Kind,
    /// From number to number in the input and in the kernel.
    pub(super) along: usize,
    pub(super) weights_along: usize,
}

/// What a run goes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The features under one tap.
    Features,
    /// So many features under each tap of the last dimension, all side by side.
    Window(usize),
    /// One feature under each tap of the last dimension; indices into the input are so far apart.
    Taps(usize),
}

/// One run.
pub(super) struct Run {
    /// For each axis the index into the input at the first position (of the first tap, for a run over several).
    pub(super) at: Vec<isize>,
    /// Where its weights begin.
    pub(super) weight: usize,
    /// What `at` and the feature, if it is of one, add to an address; of `at`, the last axis of a run over several taps
    /// aside.
    pub(super) offset: isize,
}

impl Runs {
    /// `rows`: whether positions are rows, so that a run may go over several taps.
    pub(super) fn new(c: &Convolution, part: &Part, unit: usize, rows: bool) -> Runs {
        let features = c.input_features;
        let mut kind = Kind::Features;
        let (mut along, mut weights_along) = (c.input_feature_stride, c.kernel_input_stride);
        // The distances from tap to tap of the last dimension, in indices and in weights, if they are the same for all.
        let last = part.axes.last().filter(|a| rows && a.taps.len() > 1);
        let even = last.and_then(|a| {
            let distance =
                |t: &[Tap]| Some((usize::try_from(t[1].at - t[0].at).ok()?, t[1].weight.checked_sub(t[0].weight)?));
            let first = distance(&a.taps)?;
            a.taps.windows(2).all(|t| distance(t) == Some(first)).then_some((a, first))
        });
        if let Some((axis, (step, weight))) = even {
            let side_by_side = c.input_feature_stride == 1 && axis.input_stride == features;
            let in_order = step == 1 && weight == features * c.kernel_input_stride;
            let images_last = c.input_batch_stride == 1 && c.batch > 1 && c.input_feature_stride != 1;
            if features < FEW_FEATURES && side_by_side && in_order {
                kind = Kind::Window(features);
            } else if images_last && axis.taps.len() > features {
                kind = Kind::Taps(step);
                (along, weights_along) = (step * axis.input_stride, weight);
            }
        }
        let taps = last.map_or(1, |a| a.taps.len());
        let (len, times) = match kind {
            Kind::Features => (features, 1),
            Kind::Window(features) => (features * taps, 1),
            Kind::Taps(_) => (taps, features),
        };
        let mut sizes: Vec<usize> = part.axes.iter().map(|a| a.taps.len()).collect();
        if kind != Kind::Features
            && let Some(size) = sizes.last_mut()
        {
            *size = 1;
        }
        let looked_at = looked_at(part, kind);
        let mut list = Vec::new();
        for_each_index(if features > 0 { &sizes } else { &[0] }, |index| {
            let taps = index.iter().zip(&part.axes).map(|(&i, a)| a.taps[i]);
            let weight: usize = taps.clone().map(|t| t.weight).sum();
            for n in 0..times {
                let at: Vec<isize> = taps.clone().map(|t| t.at).collect();
                let (weight, feature) = (weight + n * c.kernel_input_stride, n * c.input_feature_stride);
                let offset = feature as isize + address(&at, &part.axes[..looked_at]);
                list.push(Run { at, weight, offset });
            }
        });
        Runs { list, len, padded: len.next_multiple_of(unit).max(1), kind, along, weights_along }
    }

    /// The runs that `depth` goes over: each with the part of it, in numbers, and the place in units from the beginning.
    pub(super) fn within(&self, depth: Range<usize>, unit: usize) -> impl Iterator<Item = (&Run, Range<usize>, usize)> {
        let first = depth.start / self.padded;
        self.list.iter().enumerate().skip(first).map_while(move |(n, run)| {
            let start = n * self.padded;
            (start < depth.end).then(|| {
                let begin = depth.start.saturating_sub(start);
                let end = (depth.end - start).min(self.len);
                (run, begin..end.max(begin), (start + begin - depth.start) / unit)
            })
        })
    }
}

/// How many axes decide whether there is a value under a run, all in all: not the last one, if the run goes along it.
pub(super) fn looked_at(part: &Part, kind: Kind) -> usize {
    part.axes.len() - usize::from(kind != Kind::Features)
}

/// What indices along some axes add to an address.
pub(super) fn address(at: &[isize], axes: &[PartAxis]) -> isize {
    at.iter().zip(axes).map(|(&at, axis)| at * axis.input_stride as isize).sum()
}

//! What a bitcast between two layouts moves: the cases that are reshapes and transposes.
//!
//! A bitcast reads the memory of one array as another. Each dimension of an array is taken apart into *digits*, the
//! pieces into which tiles cut it, each with its stride in memory. Where the digits of both arrays are the same pieces of
//! memory, the bitcast only puts them into another order: a reshape, a transpose and a reshape ([`Moves`]). Where they
//! are not (padding that is read, pieces that do not fit each other), the answer is `None`, and the memory itself has to
//! be written out as [`MemoryForm`] says.

use super::memory::{MemoryForm, element_bits};
use crate::element_type::ElementType;
use crate::layout::{DimVec, Tile};
use crate::shape::ArrayShape;
use smallvec::SmallVec;

/// A bitcast as operations on values. The operand becomes elements of `unit` (with one more dimension, its last, if those
/// are narrower), then is reshaped to `split`, transposed by `order` and reshaped to the result's dimensions (with one
/// more if those elements are wider, which then are put together).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moves {
    /// The type of the elements that are moved: the narrower of the two, and of equally wide ones the result's.
    pub unit: ElementType,
    /// The sizes of the pieces, in the operand's order.
    pub split: DimVec,
    /// Piece `k` of the result is piece `order[k]` of the operand.
    pub order: DimVec,
    /// The result's sizes in elements of `unit`: one more than the result has if those are narrower.
    pub joined: DimVec,
}

impl Moves {
    /// What a bitcast from `from` to `to` moves, dynamic sizes at their bounds; `None` if it is no reordering of pieces, if
    /// sizes are not known, or if an element of one of them takes more or fewer bits than its type has while the types
    /// differ.
    pub fn of(from: &ArrayShape, to: &ArrayShape) -> Option<Moves> {
        let (from_bits, to_bits) = (element_bits(from), element_bits(to));
        let unit_bits = from_bits.min(to_bits);
        let same = from.element_type == to.element_type && from_bits == to_bits;
        if !(same || is_exact(from) && is_exact(to)) || from_bits % unit_bits != 0 || to_bits % unit_bits != 0 {
            return None;
        }
        let unit = if from_bits < to_bits { from.element_type } else { to.element_type };
        let mut joined: DimVec = to.dims().into();
        if to_bits > unit_bits {
            joined.push(to_bits / unit_bits);
        }
        let source = pieces(from, from_bits / unit_bits)?;
        let target = pieces(to, to_bits / unit_bits)?;
        let (source, target) = matched(source, target)?;
        // The pieces of both sides are the same, in the order of memory; each knows its place among the dimensions.
        let (from_order, to_order) = (array_order(&source), array_order(&target));
        let split: DimVec = from_order.iter().map(|&k| source[k].size).collect();
        let mut place = vec![0i64; source.len()];
        for (n, &k) in from_order.iter().enumerate() {
            place[k] = n as i64;
        }
        let order: DimVec = to_order.iter().map(|&k| place[k]).collect();
        Some(Moves { unit, split, order, joined }.simplified())
    }

    /// Whether the elements stay in their row-major order.
    pub fn is_reshape(&self) -> bool {
        self.order.iter().enumerate().all(|(k, &d)| k as i64 == d)
    }

    /// Pieces that stay together, next to each other, are one.
    fn simplified(self) -> Moves {
        let Moves { unit, split, order, joined } = self;
        // Runs of the transpose: piece numbers that follow each other on both sides.
        let mut runs: Vec<(i64, i64, i64)> = Vec::new();
        for &d in &order {
            match runs.last_mut() {
                Some((first, len, size)) if *first + *len == d => {
                    *len += 1;
                    *size *= split[d as usize];
                }
                _ => runs.push((d, 1, split[d as usize])),
            }
        }
        let mut by_source: Vec<usize> = (0..runs.len()).collect();
        by_source.sort_by_key(|&k| runs[k].0);
        let split = by_source.iter().map(|&k| runs[k].2).collect();
        let mut order = DimVec::from_elem(0, runs.len());
        for (n, &k) in by_source.iter().enumerate() {
            order[k] = n as i64;
        }
        Moves { unit, split, order, joined }
    }
}

/// Whether elements take as many bits as their type has, so that their bits are all there is in memory.
fn is_exact(array: &ArrayShape) -> bool {
    element_bits(array) == i64::from(array.element_type.bits())
}

/// A part of a dimension that has a place of its own in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Piece {
    /// Its order among all pieces of the array, slowest first: the dimension, then the piece of it.
    at: (usize, usize),
    size: i64,
    form: Form,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Form {
    /// Its elements lie that far from each other.
    Strided(i64),
    /// It is cut into digits that do not divide it, which hold together.
    Ragged(Digits),
}

impl Form {
    fn least_stride(&self) -> i64 {
        match self {
            Form::Strided(stride) => *stride,
            Form::Ragged(digits) => digits.iter().map(|d| d.stride).min().unwrap_or(0),
        }
    }
}

/// One digit of an index `i`: `(i mod modulus) / divisor`, and what it counts for in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Digit {
    modulus: i64,
    divisor: i64,
    stride: i64,
}

type Digits = SmallVec<[Digit; 3]>;

/// A physical dimension while tiles are applied: a digit of the index of `source`, a run of the array's dimensions in
/// physical order.
#[derive(Clone, Debug)]
struct Axis {
    source: Option<(usize, usize)>,
    modulus: i64,
    divisor: i64,
    /// Its size in memory, padding included.
    size: i64,
}

/// The pieces of an array in the order of memory, fastest first, with elements taken apart into `ratio` each; those of
/// size one are left out. `None` if the layout cannot be taken apart so.
fn pieces(array: &ArrayShape, ratio: i64) -> Option<Vec<Piece>> {
    let form = MemoryForm::of(array)?;
    if array.element_count()? == 0 {
        return None;
    }
    let mut axes: Vec<Axis> = form
        .physical
        .iter()
        .enumerate()
        .map(|(p, &n)| Axis { source: Some((p, p + 1)), modulus: n, divisor: 1, size: n })
        .collect();
    for tile in array.layout.iter().flat_map(|l| &l.tiles) {
        axes = tiled(axes, tile, &form.physical)?;
    }
    let mut stride = ratio;
    let mut strides = vec![0i64; axes.len()];
    for (s, axis) in strides.iter_mut().zip(&axes).rev() {
        *s = stride;
        stride = stride.checked_mul(axis.size)?;
    }
    let mut pieces = Vec::new();
    let mut first = 0;
    while first < form.physical.len() {
        // All axes of one source, which may be several dimensions that a tile has joined.
        let longer = axes.iter().filter(|a| a.size > 1).filter_map(|a| a.source).filter(|s| s.0 == first);
        let end = longer.map(|s| s.1).max().unwrap_or(first + 1);
        let dims: DimVec = form.order[first..end].into();
        // Joined dimensions are one index only if they follow each other in the array, too.
        if !dims.windows(2).all(|w| w[0] + 1 == w[1]) {
            return None;
        }
        let extent: i64 = form.physical[first..end].iter().product();
        let mut digits: Digits = axes
            .iter()
            .zip(&strides)
            .filter(|(a, _)| a.source == Some((first, end)))
            .map(|(a, &stride)| Digit { modulus: a.modulus, divisor: a.divisor, stride })
            .collect();
        digits.sort_by_key(|d| std::cmp::Reverse((d.divisor, d.modulus)));
        add_pieces(&mut pieces, dims[0] as usize, extent, digits);
        first = end;
    }
    if ratio > 1 {
        pieces.push(Piece { at: (array.rank(), 0), size: ratio, form: Form::Strided(1) });
    }
    pieces.sort_by_key(|p| p.form.least_stride());
    Some(pieces)
}

/// Adds the pieces of one dimension of `extent` elements whose digits are given, slowest first.
fn add_pieces(pieces: &mut Vec<Piece>, dimension: usize, extent: i64, digits: Digits) {
    if extent == 1 {
        return;
    }
    let mut kept: Digits = SmallVec::new();
    for mut digit in digits.into_iter().filter(|d| d.divisor < extent && d.divisor < d.modulus) {
        digit.modulus = digit.modulus.min(extent);
        match kept.last_mut() {
            // Two digits whose strides go on from one to the other are one, however often they are cut.
            Some(upper)
                if upper.divisor == digit.modulus
                    && digit.modulus % digit.divisor == 0
                    && digit.stride.checked_mul(digit.modulus / digit.divisor) == Some(upper.stride) =>
            {
                *upper = Digit { modulus: upper.modulus, ..digit };
            }
            _ => kept.push(digit),
        }
    }
    if kept.iter().all(|d| d.modulus % d.divisor == 0) {
        for (n, d) in kept.iter().enumerate() {
            let size = d.modulus / d.divisor;
            pieces.push(Piece { at: (dimension, n), size, form: Form::Strided(d.stride) });
        }
    } else {
        pieces.push(Piece { at: (dimension, 0), size: extent, form: Form::Ragged(kept) });
    }
}

/// The axes after `tile`; `None` where digits would have to be joined or cut again in a way that is no digit.
fn tiled(axes: Vec<Axis>, tile: &Tile, physical: &[i64]) -> Option<Vec<Axis>> {
    let sizes = &tile.0;
    let unit = Axis { source: None, modulus: 1, divisor: 1, size: 1 };
    let mut all = vec![unit.clone(); sizes.len().saturating_sub(axes.len())];
    all.extend(axes);
    let tail = all.split_off(all.len() - sizes.len());
    let (mut numbers, mut places) = (Vec::new(), Vec::new());
    let mut carried = unit.clone();
    for (k, (axis, &size)) in tail.into_iter().zip(sizes).enumerate() {
        let axis = join(std::mem::replace(&mut carried, unit.clone()), axis, physical)?;
        if size == Tile::COMBINE && k + 1 < sizes.len() {
            carried = axis;
            continue;
        }
        let t = size.max(1);
        let count = axis.size / t + i64::from(axis.size % t != 0);
        let Axis { source, modulus, divisor, .. } = axis;
        let step = divisor.checked_mul(t)?;
        let whole = source.is_none_or(|(a, b)| modulus >= physical[a..b].iter().product());
        // A digit that is cut by what does not divide it leaves no digits, unless nothing of it is above the cut.
        if !whole && step < modulus && modulus % step != 0 {
            return None;
        }
        numbers.push(Axis { source, modulus: modulus.max(step), divisor: step, size: count });
        places.push(Axis { source, modulus: step.min(modulus), divisor, size: t });
    }
    all.extend(numbers);
    all.extend(places);
    Some(all)
}

/// Two axes as one, the first the slower.
fn join(major: Axis, minor: Axis, physical: &[i64]) -> Option<Axis> {
    // The index of an axis of size one is always 0.
    if major.size == 1 {
        return Some(minor);
    }
    if minor.size == 1 {
        return Some(major);
    }
    let whole = |a: &Axis| {
        let (first, end) = a.source?;
        let extent: i64 = physical[first..end].iter().product();
        (a.divisor == 1 && a.modulus == extent && a.size == extent).then_some((first, end, extent))
    };
    let ((first, middle, a), (from, end, b)) = (whole(&major)?, whole(&minor)?);
    // Between the two only dimensions of size one may stand, which were left out.
    if physical[middle..from.max(middle)].iter().any(|&n| n != 1) || from < middle {
        return None;
    }
    let size = a.checked_mul(b)?;
    Some(Axis { source: Some((first, end)), modulus: size, divisor: 1, size })
}

/// Both lists, in the order of memory, cut so finely that they have the same pieces in the same places; `None` if there
/// are no such cuts.
fn matched(source: Vec<Piece>, target: Vec<Piece>) -> Option<(Vec<Piece>, Vec<Piece>)> {
    let (mut source, mut target) = (source.into_iter(), target.into_iter());
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let (mut x, mut y) = (source.next(), target.next());
    loop {
        let (a, b) = match (x, y) {
            (None, None) => return Some((left, right)),
            (Some(a), Some(b)) => (a, b),
            _ => return None,
        };
        if let (Form::Strided(s), Form::Strided(t)) = (&a.form, &b.form) {
            let common = a.size.min(b.size);
            if s != t || a.size % common != 0 || b.size % common != 0 {
                return None;
            }
            let above = s.checked_mul(common)?;
            let rest = |p: &Piece| {
                let rest = Piece { size: p.size / common, form: Form::Strided(above), ..p.clone() };
                Some(rest).filter(|r| r.size > 1)
            };
            (x, y) = (rest(&a).or_else(|| source.next()), rest(&b).or_else(|| target.next()));
            left.push(Piece { size: common, ..a });
            right.push(Piece { size: common, ..b });
        } else {
            if a.size != b.size || a.form != b.form {
                return None;
            }
            (x, y) = (source.next(), target.next());
            left.push(a);
            right.push(b);
        }
    }
}

/// The numbers of the pieces, given in the order of memory, in the order of the array: of those that were cut from one,
/// the slowest comes first.
fn array_order(pieces: &[Piece]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by_key(|&k| (pieces[k].at, std::cmp::Reverse(k)));
    order
}

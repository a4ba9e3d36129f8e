//! Convolutions as products of matrices that are never made: what the kernels of products read of the matrix of patches is
//! laid out from the input when they need it.
//!
//! Where the features of the result lie side by side, positions are rows and features columns; otherwise features are
//! rows and positions columns. What is summed over is cut into [`runs`](super::runs).

use super::Convolution;
use super::parts::{Part, PartAxis, parts};
use super::runs::{Kind, Run, Runs, address, looked_at};
use super::target::{Target, position_stride};
use crate::parallel::{Epilogue, Parallel, Shared, grain};
use crate::tiles::pack::{Lines, Way};
use crate::tiles::packed::Source;
use crate::tiles::{Columns, Finish, Gemm, Placed, ROW, Rows, cut};
use std::marker::PhantomData;
use std::ops::Range;

/// A convolution that is to be computed.
pub(super) struct Call<'a, O> {
    pub(super) convolution: &'a Convolution,
    pub(super) output: &'a Shared<'a, O>,
    pub(super) parallel: &'a dyn Parallel,
    /// What gets the rows of the result, which are nowhere else then.
    pub(super) epilogue: Option<&'a Epilogue<'a>>,
}

impl<O: Copy + Default + Send + Sync> Call<'_, O> {
    /// Convolves; without `finish` the result is of the type that is summed in.
    pub(super) fn run<S: Copy + Send + Sync + 'static, W: Way<S>>(
        &self,
        input: &[S],
        kernel: &[S],
        finish: Option<Finish<W::Sum, O>>,
    ) {
        let Call { convolution: c, output, parallel, epilogue } = *self;
        let micro = W::micro();
        let features_are_columns = features_are_columns(c);
        let parts = parts(c);
        let pieces: Vec<Piece> = parts.iter().map(|part| Piece::new::<S, W>(c, part, features_are_columns)).collect();
        let weights: Vec<Weights<S, W>> = pieces
            .iter()
            .flat_map(|piece| (0..c.groups).map(move |group| (piece, group)))
            .map(|(piece, group)| {
                let first = group * c.output_features * c.kernel_output_stride;
                let kernel = &kernel[first.min(kernel.len())..];
                Weights { kernel, runs: &piece.runs, output_stride: c.kernel_output_stride, way: PhantomData }
            })
            .collect();
        // The tiles of all parts: sizes of a tile, how many tiles down and across, and those of the parts before.
        let products: usize = pieces.iter().map(|p| c.groups * (c.batch / p.images)).sum();
        let panel = epilogue.zip(pieces.first()).map(|(epilogue, p)| {
            let tile = cut(micro, [p.m, p.n, p.k], products, parallel.threads());
            (epilogue.panel([p.m, p.n], products, tile, micro.rows, parallel.threads()), epilogue)
        });
        let mut tiles = Vec::with_capacity(pieces.len());
        let mut count = 0;
        for p in &pieces {
            let (tile_m, tile_n) = match panel {
                Some((rows, _)) => (rows, p.n),
                None => cut(micro, [p.m, p.n, p.k], products, parallel.threads()),
            };
            let (down, across) = (p.m.div_ceil(tile_m), p.n.div_ceil(tile_n));
            tiles.push((tile_m, tile_n, down, across, count));
            count += c.groups * (c.batch / p.images) * down * across;
        }
        let tile = |weights: &[&dyn Columns<W::Unit>], rows_of: &[Weights<S, W>], at: usize| {
            let piece = tiles.partition_point(|t| t.4 <= at) - 1;
            let (p, (tile_m, tile_n, down, across, before)) = (&pieces[piece], tiles[piece]);
            let (product, at) = ((at - before) / (down * across), (at - before) % (down * across));
            let (group, image) = (product / (c.batch / p.images), product % (c.batch / p.images));
            let (row, column) = (at / across * tile_m, at % across * tile_n);
            let (rows, columns) = (row..p.m.min(row + tile_m), column..p.n.min(column + tile_n));
            let first = group * c.input_group_stride + image * c.input_batch_stride;
            let input = &input[first.min(input.len())..];
            let patches = Patches::<S, W> { input, part: p.part, runs: &p.runs, dims: &p.dims, way: PhantomData };
            let start =
                p.part.output + group * c.output_features * c.output_feature_stride + image * c.output_batch_stride;
            let to = Target { start, dims: &p.dims, feature_stride: c.output_feature_stride, output, finish };
            let number = piece * c.groups + group;
            let product = match features_are_columns {
                true => Gemm { micro, k: p.k, unit: W::DEPTH, rows: &patches, columns: weights[number] },
                false => Gemm { micro, k: p.k, unit: W::DEPTH, rows: &rows_of[number], columns: &patches },
            };
            let Some((_, epilogue)) = panel else { return to.tile(&product, rows, columns, features_are_columns) };
            epilogue.block(image * p.m + rows.start..image * p.m + rows.end, p.n, |to| {
                // SAFETY: there is room for the block, which is nobody else's; without `finish` it is of the type that is
                // summed in.
                unsafe { product.finished_tile(rows, columns, finish, to, p.n) }
            });
        };
        let largest = pieces.iter().zip(&tiles).map(|(p, t)| t.0.saturating_mul(t.1).saturating_mul(p.k)).max();
        let chunk = grain::MULTIPLICATIONS.div_ceil(largest.unwrap_or(1).max(1));
        let columns: Vec<&dyn Columns<W::Unit>> = weights.iter().map(|w| w as &dyn Columns<W::Unit>).collect();
        // Features that are rows are laid out by the tiles themselves.
        let down = tiles.iter().map(|t| t.2).max().filter(|_| features_are_columns).unwrap_or(0);
        let source = Source {
            columns: &columns,
            k: pieces.iter().flat_map(|p| std::iter::repeat_n(p.k, c.groups)).collect(),
            n: c.output_features,
            unit: W::DEPTH,
            width: micro.columns,
        };
        source.with_packed(down, parallel, |columns| {
            parallel.each_in_turn(count, chunk, &|begin, end| (begin..end).for_each(|at| tile(columns, &weights, at)));
        });
    }
}

/// Where the features of the result lie side by side they are columns.
fn features_are_columns(c: &Convolution) -> bool {
    c.output_feature_stride == 1 || c.output_features == 1
}

/// How many images are one product: all, where their positions are its rows.
fn images(c: &Convolution, features_are_columns: bool) -> usize {
    if features_are_columns { c.batch } else { 1 }
}

/// The rows and columns of each product and how many there are, if the result is their rows one after another: the
/// features of each position, or the positions of each feature.
pub(super) fn rows(c: &Convolution) -> Option<([usize; 2], usize)> {
    let parts = parts(c);
    let ([part], 1) = (&parts[..], c.groups) else { return None };
    let (positions, features) = (c.positions(), c.output_features);
    let features_are_columns = features_are_columns(c);
    let images = images(c, features_are_columns);
    let stride = position_stride(&dims(c, part, images));
    if features_are_columns {
        return (stride == Some(features)).then_some(([c.batch * positions, features], 1));
    }
    let dense = stride == Some(1) && c.output_feature_stride == positions;
    let in_order = images == 1 && (c.batch == 1 || c.output_batch_stride == positions * features);
    (dense && in_order).then_some(([features, positions], c.batch))
}

/// The products that one part of a convolution is.
struct Piece<'a> {
    part: &'a Part,
    runs: Runs,
    dims: Vec<Dim>,
    /// Images of one product.
    images: usize,
    m: usize,
    n: usize,
    k: usize,
}

impl<'a> Piece<'a> {
    fn new<S: Copy, W: Way<S>>(c: &Convolution, part: &'a Part, features_are_columns: bool) -> Piece<'a> {
        let positions: usize = part.axes.iter().map(|a| a.outputs).product();
        let images = images(c, features_are_columns);
        let runs = Runs::new(c, part, W::DEPTH, features_are_columns);
        let (many, k) = (positions * images, runs.list.len() * runs.padded);
        let (m, n) = if features_are_columns { (many, c.output_features) } else { (c.output_features, many) };
        Piece { part, runs, dims: dims(c, part, images), images, m, n, k }
    }
}

/// A dimension of the positions: size, strides of the input's memory and of the result's; which of the axes it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dim {
    pub(super) size: usize,
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) axis: Option<usize>,
}

/// The dimensions of the positions, images included, the last fastest: so that neighbours lie side by side.
fn dims(c: &Convolution, part: &Part, images: usize) -> Vec<Dim> {
    let axis = |(n, a): (usize, &PartAxis)| Dim {
        size: a.outputs,
        input: a.step * a.input_stride,
        output: a.output_stride,
        axis: Some(n),
    };
    let image = Dim { size: images, input: c.input_batch_stride, output: c.output_batch_stride, axis: None };
    let axes = part.axes.iter().enumerate().map(axis);
    match c.input_batch_stride == 1 && images > 1 {
        true => axes.chain([image]).collect(),
        false => std::iter::once(image).chain(axes).collect(),
    }
}

/// The values under the windows.
struct Patches<'a, S, W> {
    input: &'a [S],
    part: &'a Part,
    runs: &'a Runs,
    dims: &'a [Dim],
    way: PhantomData<W>,
}

/// Positions: for each its indices times the steps, and what these and its image add to an address.
struct Positions {
    offsets: Vec<isize>,
    at: Vec<isize>,
    axes: usize,
}

impl Positions {
    fn at(&self, line: usize) -> &[isize] {
        &self.at[line * self.axes..][..self.axes]
    }
}

impl<S: Copy + Sync, W: Way<S>> Patches<'_, S, W> {
    fn positions(&self, lines: Range<usize>) -> Positions {
        let axes = self.part.axes.len();
        let mut positions =
            Positions { offsets: Vec::with_capacity(lines.len()), at: vec![0; lines.len() * axes], axes };
        for (n, mut line) in lines.enumerate() {
            let mut offset = 0isize;
            for dim in self.dims.iter().rev() {
                let index = line % dim.size;
                line /= dim.size;
                match dim.axis {
                    Some(axis) => positions.at[n * axes + axis] = (index * self.part.axes[axis].step) as isize,
                    None => offset = (index * dim.input) as isize,
                }
            }
            let looked_at = looked_at(self.part, self.runs.kind);
            positions.offsets.push(offset + address(positions.at(n), &self.part.axes[..looked_at]));
        }
        positions
    }

    /// Where the values of a run begin at a position; `None` in the padding. The last axis of a run over several taps is
    /// not looked at.
    fn start(&self, positions: &Positions, line: usize, run: &Run) -> Option<usize> {
        let looked_at = looked_at(self.part, self.runs.kind);
        let axes = self.part.axes[..looked_at].iter().zip(positions.at(line).iter().zip(&run.at));
        for (axis, (at, tap)) in axes {
            if !axis.has(at + tap) {
                return None;
            }
        }
        Some((positions.offsets[line] + run.offset) as usize)
    }

    /// Rows one after the other: values that are summed over lie side by side.
    ///
    /// # Safety
    /// As for [`Rows::place`].
    unsafe fn copy_rows(&self, rows: Range<usize>, depth: Range<usize>, to: *mut W::Unit) {
        let positions = self.positions(rows);
        let mut partly = Vec::new();
        for (run, numbers, unit) in self.runs.within(depth, W::DEPTH) {
            let units = numbers.len().div_ceil(W::DEPTH);
            for row in 0..positions.offsets.len() {
                let to = to.wrapping_add(row * ROW + unit);
                // SAFETY: there is room for the row.
                let nothing = || unsafe { std::slice::from_raw_parts_mut(to, units) }.fill(W::Unit::default());
                let Some(start) = self.start(&positions, row, run) else {
                    nothing();
                    continue;
                };
                let mut whole = start + numbers.start..start + numbers.end;
                if let (Kind::Window(features), Some(axis), Some((at, tap))) =
                    (self.runs.kind, self.part.axes.last(), positions.at(row).last().zip(run.at.last()))
                {
                    // Of the taps of a row of the window those within the input are one range.
                    let first = at + tap;
                    let low = (-first).max(0) as usize * features;
                    let high = (axis.input as isize - first).max(0) as usize * features;
                    let there = numbers.start.max(low)..numbers.end.min(high);
                    let shift = start as isize + first * (axis.input_stride as isize);
                    whole = (shift + numbers.start as isize) as usize..(shift + numbers.end as isize) as usize;
                    if there != numbers {
                        partly.clear();
                        partly.resize(numbers.len(), W::nothing());
                        if there.start < there.end {
                            let from = (shift + there.start as isize) as usize;
                            let from = &self.input[from..from + there.len()];
                            partly[there.start - numbers.start..][..there.len()].copy_from_slice(from);
                        }
                        // SAFETY: there is room for the row.
                        unsafe { W::copy(partly.as_ptr(), partly.len(), to) };
                        continue;
                    }
                }
                let from = &self.input[whole];
                // SAFETY: there is room for the row.
                unsafe { W::copy(from.as_ptr(), from.len(), to) };
            }
        }
    }

    /// A panel: lines that lie evenly spaced are taken together.
    ///
    /// # Safety
    /// There must be room for the panel and what may be overwritten behind it.
    unsafe fn pack_panel(&self, lines: Range<usize>, depth: Range<usize>, width: usize, to: *mut W::Unit) {
        let positions = self.positions(lines.clone());
        // Lines that follow each other along the last dimension.
        let last = self.dims.last().copied().unwrap_or(Dim { size: 1, input: 1, output: 1, axis: None });
        let mut segments = Vec::new();
        let mut partly = Vec::new();
        let mut line = lines.start;
        while line < lines.end {
            let end = (line / last.size * last.size + last.size).min(lines.end);
            segments.push((line - lines.start, end - line));
            line = end;
        }
        for (run, numbers, unit) in self.runs.within(depth, W::DEPTH) {
            let units = numbers.len().div_ceil(W::DEPTH);
            for &(first, count) in &segments {
                // The lines of the segment that are not in the padding are one range.
                let (mut low, mut high) = (0, count);
                let mut probe = first;
                if let Some(axis) = last.axis {
                    let (at, axis) = (positions.at(first)[axis] + run.at[axis], &self.part.axes[axis]);
                    if axis.step > 0 {
                        let step = axis.step as isize;
                        low = ((-at).max(0) as usize).div_ceil(axis.step).min(count);
                        high = ((axis.input as isize - at + step - 1).div_euclid(step).max(0) as usize).min(count);
                    }
                    probe = first + low.min(count - 1);
                }
                let start = if low < high { self.start(&positions, probe, run) } else { None };
                let (low, high) = if start.is_some() { (low, high) } else { (count, count) };
                for u in 0..units {
                    let at = to.wrapping_add((unit + u) * width + first);
                    // SAFETY: there is room for the lines.
                    unsafe {
                        std::slice::from_raw_parts_mut(at, low).fill(W::Unit::default());
                        std::slice::from_raw_parts_mut(at.add(high), count - high).fill(W::Unit::default());
                    }
                }
                let Some(start) = start else { continue };
                let to = to.wrapping_add(unit * width + first + low);
                let count = high - low;
                let mut there = numbers.clone();
                let mut shift = start as isize;
                if let (Kind::Taps(step), Some(axis), Some((at, tap))) =
                    (self.runs.kind, self.part.axes.last(), positions.at(first).last().zip(run.at.last()))
                {
                    // The taps that are not in the padding, the same for all lines of the segment, are one range.
                    let at = at + tap;
                    let low = ((-at).max(0) as usize).div_ceil(step.max(1));
                    let high = ((axis.input as isize - at).max(0) as usize).div_ceil(step.max(1));
                    there = numbers.start.max(low)..numbers.end.min(high);
                    shift += at * axis.input_stride as isize;
                }
                if there.is_empty() {
                    for u in 0..units {
                        // SAFETY: there is room for the lines.
                        unsafe { std::slice::from_raw_parts_mut(to.add(u * width), count) }.fill(W::Unit::default());
                    }
                    continue;
                }
                let from = (shift + (there.start * self.runs.along) as isize) as usize;
                let reach = (count - 1) * last.input + (there.len() - 1) * self.runs.along + 1;
                let from = &self.input[from..from + reach];
                if there == numbers {
                    let values = Lines { first: from.as_ptr(), line: last.input, along: self.runs.along };
                    // SAFETY: the values lie within the slice; there is room for the panel.
                    unsafe { values.pack_exactly::<W>(count, numbers.len(), width, to) };
                    continue;
                }
                partly.clear();
                partly.resize(numbers.len() * count, W::nothing());
                for (n, to) in
                    partly.chunks_exact_mut(count).skip(there.start - numbers.start).enumerate().take(there.len())
                {
                    for (line, to) in to.iter_mut().enumerate() {
                        *to = from[n * self.runs.along + line * last.input];
                    }
                }
                let values = Lines { first: partly.as_ptr(), line: 1, along: count };
                // SAFETY: the values lie in `partly`; there is room for the panel.
                unsafe { values.pack_exactly::<W>(count, numbers.len(), width, to) };
            }
        }
    }
}

impl<S: Copy + Sync, W: Way<S>> Rows<W::Unit> for Patches<'_, S, W> {
    unsafe fn place(&self, rows: Range<usize>, depth: Range<usize>, to: *mut W::Unit) -> Placed<W::Unit> {
        // What lies side by side is copied; taps never do, but where the axis has one element, whose stride is any number.
        let is_side_by_side = self.runs.along == 1 && !matches!(self.runs.kind, Kind::Taps(_));
        // SAFETY (both): the caller's promise.
        if is_side_by_side && self.runs.len > 1 {
            unsafe { self.copy_rows(rows, depth, to) };
            return Placed { at: to, row: ROW, step: 1 };
        }
        let width = rows.len();
        unsafe { self.pack_panel(rows, depth, width, to) };
        Placed { at: to, row: 1, step: width }
    }
}

impl<S: Copy + Sync, W: Way<S>> Columns<W::Unit> for Patches<'_, S, W> {
    unsafe fn pack(&self, columns: Range<usize>, depth: Range<usize>, width: usize, to: *mut W::Unit) {
        // SAFETY: the caller's promise.
        unsafe { self.pack_panel(columns, depth, width, to) };
    }
}

/// The kernel of one group.
struct Weights<'a, S, W> {
    kernel: &'a [S],
    runs: &'a Runs,
    output_stride: usize,
    way: PhantomData<W>,
}

impl<S: Copy + Sync, W: Way<S>> Weights<'_, S, W> {
    /// The weights of a part of a run, of so many features.
    fn lines(&self, features: &Range<usize>, run: &Run, numbers: &Range<usize>) -> Lines<S> {
        let first = run.weight + features.start * self.output_stride + numbers.start * self.runs.weights_along;
        let reach = (features.len().max(1) - 1) * self.output_stride
            + (numbers.len().max(1) - 1) * self.runs.weights_along
            + usize::from(!numbers.is_empty());
        let values = &self.kernel[first..first + reach];
        Lines { first: values.as_ptr(), line: self.output_stride, along: self.runs.weights_along }
    }
}

impl<S: Copy + Sync, W: Way<S>> Rows<W::Unit> for Weights<'_, S, W> {
    unsafe fn place(&self, rows: Range<usize>, depth: Range<usize>, to: *mut W::Unit) -> Placed<W::Unit> {
        let width = rows.len();
        for (run, numbers, unit) in self.runs.within(depth, W::DEPTH) {
            let lines = self.lines(&rows, run, &numbers);
            // SAFETY (all): the weights are there, as `lines` has made sure of; the caller promises the room.
            if self.runs.weights_along == 1 {
                for row in 0..width {
                    unsafe {
                        W::copy(lines.first.add(row * lines.line), numbers.len(), to.add(row * ROW + unit));
                    }
                }
            } else {
                unsafe { lines.pack_exactly::<W>(width, numbers.len(), width, to.add(unit * width)) };
            }
        }
        match self.runs.weights_along {
            1 => Placed { at: to, row: ROW, step: 1 },
            _ => Placed { at: to, row: 1, step: width },
        }
    }
}

impl<S: Copy + Sync, W: Way<S>> Columns<W::Unit> for Weights<'_, S, W> {
    unsafe fn pack(&self, columns: Range<usize>, depth: Range<usize>, width: usize, to: *mut W::Unit) {
        for (run, numbers, unit) in self.runs.within(depth, W::DEPTH) {
            let lines = self.lines(&columns, run, &numbers);
            // SAFETY: the weights are there, as `lines` has made sure of; the caller promises the room.
            unsafe { lines.pack::<W>(columns.len(), numbers.len(), width, to.add(unit * width)) };
        }
    }
}

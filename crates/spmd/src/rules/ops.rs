//! The rules of operations, each from the shapes of its operands and results and what little else it depends on.
//!
//! The functions are told shapes that belong together (the caller has a verified operation), and still never panic on
//! others: dimensions that are not there have no factor.

use super::{Dims, FactorKind, Rule, RuleBuilder};
use FactorKind::{NeedReplication, PassThrough, Permutation, Reduction};

pub(crate) use super::gather::{IndexedDims, gather, scatter};
pub(crate) use super::linear_algebra::{eigh, householder_product, qr, triangular_solve};
pub(crate) use super::reshape::reshape;

/// The shapes of an operation's operands and results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shapes<'a> {
    /// Of its operands; no dimensions for what is no array.
    pub operands: &'a [Dims],
    /// Of its results.
    pub results: &'a [Dims],
}

impl Shapes<'_> {
    pub(super) fn builder(self) -> RuleBuilder {
        RuleBuilder::new(self.operands, self.results)
    }
    pub(super) fn operand(&self, n: usize) -> &[i64] {
        self.operands.get(n).map_or(&[], |d| d)
    }
    pub(super) fn result(&self, n: usize) -> &[i64] {
        self.results.get(n).map_or(&[], |d| d)
    }
}

/// Element by element; operands without dimensions have no part in it.
pub(crate) fn elementwise(s: Shapes<'_>) -> Rule {
    let mut b = s.builder();
    b.pointwise(s.result(0));
    b.build()
}

/// Dimension by dimension, of `kind` where sizes differ.
pub(crate) fn resized(s: Shapes<'_>, kind: FactorKind, blocked: bool) -> Rule {
    let mut b = s.builder();
    for (d, (&from, &to)) in s.operand(0).iter().zip(s.result(0)).enumerate() {
        match from == to {
            true => b.everywhere(d, from, PassThrough, false),
            false => b.everywhere(d, from, kind, blocked),
        }
    }
    b.build()
}

/// Dimension by dimension, each of the kind that `kind` says.
pub(crate) fn along(s: Shapes<'_>, kind: impl Fn(usize) -> FactorKind) -> Rule {
    let mut b = s.builder();
    for (d, &size) in s.result(0).iter().enumerate() {
        b.everywhere(d, size, kind(d), false);
    }
    b.build()
}

/// `dims[i]` is the dimension of the result that dimension `i` of the operand becomes.
pub(crate) fn broadcast(s: Shapes<'_>, dims: &[i64]) -> Rule {
    let mut b = s.builder();
    for (out, &size) in s.result(0).iter().enumerate() {
        let mut from = dims.iter().position(|&d| d == out as i64);
        if let Some(d) = from
            && s.operand(0).get(d) == Some(&1)
            && size != 1
        {
            b.pass(&[Some(d)], &[], 1);
            from = None;
        }
        b.pass(&[from], &[Some(out)], size);
    }
    b.build()
}

/// Dimension `perm[i]` of the operand is dimension `i` of the result.
pub(crate) fn transpose(s: Shapes<'_>, perm: &[i64]) -> Rule {
    let mut b = s.builder();
    for (out, &d) in perm.iter().enumerate() {
        let d = usize::try_from(d).ok();
        let size = d.and_then(|d| s.operand(0).get(d)).copied().unwrap_or(1);
        b.pass(&[d], &[Some(out)], size);
    }
    b.build()
}

/// The dimensions of a dot.
pub(crate) struct DotDims<'a> {
    pub lhs_batch: &'a [i64],
    pub rhs_batch: &'a [i64],
    pub lhs_contracting: &'a [i64],
    pub rhs_contracting: &'a [i64],
}

/// A product of two arrays.
pub(crate) fn dot(s: Shapes<'_>, dims: &DotDims<'_>) -> Rule {
    let mut b = s.builder();
    let at = |d: i64| usize::try_from(d).ok();
    let size = |n: usize, d: i64| at(d).and_then(|d| s.operand(n).get(d)).copied().unwrap_or(1);
    let mut out = 0..;
    for (&l, &r) in dims.lhs_batch.iter().zip(dims.rhs_batch) {
        b.pass(&[at(l), at(r)], &[out.next()], size(0, l));
    }
    for (n, batch, contracting) in
        [(0, dims.lhs_batch, dims.lhs_contracting), (1, dims.rhs_batch, dims.rhs_contracting)]
    {
        for (d, &size) in s.operand(n).iter().enumerate() {
            if !batch.contains(&(d as i64)) && !contracting.contains(&(d as i64)) {
                let mut places = [None, None];
                places[n] = Some(d);
                b.pass(&places, &[out.next()], size);
            }
        }
    }
    for (&l, &r) in dims.lhs_contracting.iter().zip(dims.rhs_contracting) {
        b.factor(&[at(l), at(r)], &[], size(0, l), Reduction, false);
    }
    b.build()
}

/// How a ragged dot goes over its groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RaggedMode {
    /// The ragged dimension is one of the left side's own.
    NonContracting,
    /// It is contracted.
    Contracting,
    /// It is a batch dimension.
    Batch,
}

/// A product whose ragged dimension is cut into groups, each with its own right side.
pub(crate) fn ragged_dot(
    s: Shapes<'_>,
    dims: &DotDims<'_>,
    ragged: i64,
    rhs_group: Option<i64>,
    mode: RaggedMode,
) -> Rule {
    let mut b = s.builder();
    let at = |d: i64| usize::try_from(d).ok();
    let size = |n: usize, d: i64| at(d).and_then(|d| s.operand(n).get(d)).copied().unwrap_or(1);
    let groups = s.operand(2);
    // Dimensions of the group sizes come in the order of those that lead up to the ragged one; the last is the group.
    let mut of_groups = 0..groups.len().saturating_sub(1);
    let mut out = if mode == RaggedMode::Contracting { 1.. } else { 0.. };
    for (&l, &r) in dims.lhs_batch.iter().zip(dims.rhs_batch) {
        let group = if mode == RaggedMode::Batch { None } else { of_groups.next() };
        b.pass(&[at(l), at(r), group], &[out.next()], size(0, l));
    }
    let mut leads = mode == RaggedMode::NonContracting;
    for (d, &size) in s.operand(0).iter().enumerate() {
        let dim = d as i64;
        if !dims.lhs_batch.contains(&dim) && !dims.lhs_contracting.contains(&dim) {
            leads &= dim != ragged;
            let kind = if dim == ragged { NeedReplication } else { PassThrough };
            let group = if leads { of_groups.next() } else { None };
            b.factor(&[Some(d), None, group], &[out.next()], size, kind, false);
        }
    }
    for (d, &size) in s.operand(1).iter().enumerate() {
        let dim = d as i64;
        if !dims.rhs_batch.contains(&dim) && !dims.rhs_contracting.contains(&dim) && rhs_group != Some(dim) {
            b.pass(&[None, Some(d)], &[out.next()], size);
        }
    }
    let mut leads = mode == RaggedMode::Contracting;
    for (&l, &r) in dims.lhs_contracting.iter().zip(dims.rhs_contracting) {
        leads &= l != ragged;
        let kind = if l == ragged { NeedReplication } else { Reduction };
        let group = if leads { of_groups.next() } else { None };
        b.factor(&[at(l), at(r), group], &[], size(0, l), kind, false);
    }
    let group = groups.len().checked_sub(1);
    match (mode, rhs_group) {
        (RaggedMode::NonContracting, Some(d)) => {
            b.factor(&[None, at(d), group], &[], size(1, d), NeedReplication, false);
        }
        (RaggedMode::Contracting, _) => {
            let count = groups.last().copied().unwrap_or(1);
            b.factor(&[None, None, group], &[Some(0)], count, NeedReplication, false);
        }
        _ => {}
    }
    b.build()
}

/// The dimensions of a convolution.
pub(crate) struct ConvolutionDims<'a> {
    pub input_batch: i64,
    pub input_feature: i64,
    pub input_spatial: &'a [i64],
    pub kernel_input_feature: i64,
    pub kernel_output_feature: i64,
    pub kernel_spatial: &'a [i64],
    pub output_batch: i64,
    pub output_feature: i64,
    pub output_spatial: &'a [i64],
    pub feature_group_count: i64,
    pub batch_group_count: i64,
    /// Whether it is as GSPMD sees it: spatial dimensions of one element are of the batch, and through a kernel that is
    /// larger than the result only the batch goes.
    pub tiles: bool,
}

impl ConvolutionDims<'_> {
    /// Whether windows are smaller than the result, or small at all.
    fn has_small_kernel(&self, kernel: &[i64], result: &[i64]) -> bool {
        let of = |dims: &[i64], d: i64| usize::try_from(d).ok().and_then(|d| dims.get(d)).copied().unwrap_or(1);
        let (mut window, mut windows) = (1i64, 1i64);
        self.kernel_spatial.iter().zip(self.output_spatial).enumerate().all(|(n, (&k, &o))| {
            let (size, count) = (of(kernel, k), of(result, o));
            (window, windows) = (window.saturating_mul(size), windows.saturating_mul(count));
            size < count || n >= 2 && size <= 3 && window < windows
        })
    }

    /// Whether some spatial dimension is one of a dot: contracted, or of one operand only.
    fn is_dot(&self, lhs: &[i64], kernel: &[i64]) -> bool {
        let of = |dims: &[i64], d: i64| usize::try_from(d).ok().and_then(|d| dims.get(d)).copied().unwrap_or(1);
        self.input_spatial.iter().zip(self.kernel_spatial).all(|(&i, &k)| {
            let (n, size) = (of(lhs, i), of(kernel, k));
            n == size || n == 1 || size == 1
        })
    }
}

/// A convolution: batch and features as in a dot, along the spatial dimensions windows and what is in them.
pub(crate) fn convolution(s: Shapes<'_>, c: &ConvolutionDims<'_>) -> Rule {
    let mut b = s.builder();
    let at = |d: i64| usize::try_from(d).ok();
    let of = |dims: &[i64], d: i64| at(d).and_then(|d| dims.get(d)).copied().unwrap_or(1);
    let (lhs, rhs, out) = (s.operand(0), s.operand(1), s.result(0));
    if c.batch_group_count > 1 {
        b.pass(&[at(c.input_batch), at(c.kernel_output_feature)], &[at(c.output_feature)], c.batch_group_count);
    }
    b.pass(&[at(c.input_batch)], &[at(c.output_batch)], of(out, c.output_batch));
    if c.tiles && !c.is_dot(lhs, rhs) && !c.has_small_kernel(rhs, out) {
        return b.build();
    }
    for ((&i, &k), &o) in c.input_spatial.iter().zip(c.kernel_spatial).zip(c.output_spatial) {
        let (windows, window) = (of(out, o), of(rhs, k));
        let mut left = of(lhs, i);
        if c.tiles && (left, window, windows) == (1, 1, 1) {
            b.pass(&[at(i), at(k)], &[at(o)], 1);
            continue;
        }
        let mut order = [(windows, false), (window, true)];
        if windows < window {
            order.reverse();
        }
        for (size, contracted) in order {
            let size = size.min(left);
            if size > 1 {
                match contracted {
                    true => b.factor(&[at(i), at(k)], &[], size, Reduction, false),
                    false => b.factor(&[at(i), None], &[at(o)], size, Permutation, false),
                }
                left /= size;
            }
        }
    }
    if c.feature_group_count > 1 {
        let places = [at(c.input_feature), at(c.kernel_output_feature)];
        b.pass(&places, &[at(c.output_feature)], c.feature_group_count);
    }
    let places = [at(c.input_feature), at(c.kernel_input_feature)];
    b.factor(&places, &[], of(rhs, c.kernel_input_feature), Reduction, false);
    let groups = c.batch_group_count.max(1).saturating_mul(c.feature_group_count.max(1));
    let features = of(out, c.output_feature) / groups;
    if features > 1 {
        b.pass(&[None, at(c.kernel_output_feature)], &[at(c.output_feature)], features);
    }
    b.build()
}

/// A reduction of the first `inputs` operands.
pub(crate) fn reduce(s: Shapes<'_>, dims: &[i64]) -> Rule {
    let mut b = s.builder();
    let inputs = s.results.len();
    let mut out = 0..;
    for (d, &size) in s.operand(0).iter().enumerate() {
        let operands = vec![Some(d); inputs];
        match dims.contains(&(d as i64)) {
            true => b.factor(&operands, &[], size, Reduction, false),
            false => b.pass(&operands, &vec![out.next(); inputs], size),
        }
    }
    b.build()
}

/// Windows; `trivial` says of which dimensions they have one element and no padding.
pub(crate) fn reduce_window(s: Shapes<'_>, trivial: impl Fn(usize) -> bool) -> Rule {
    along(s, |d| if trivial(d) { PassThrough } else { Permutation })
}

/// What windows selected is scattered back: operand, source, initial value.
pub(crate) fn select_and_scatter(s: Shapes<'_>, trivial: impl Fn(usize) -> bool) -> Rule {
    let mut b = s.builder();
    for (d, &size) in s.result(0).iter().enumerate() {
        if trivial(d) {
            b.everywhere(d, size, PassThrough, false);
            continue;
        }
        let source = s.operand(1).get(d).copied().unwrap_or(1);
        b.factor(&[None, Some(d)], &[], source, NeedReplication, false);
        b.factor(&[Some(d)], &[Some(d)], size, Permutation, false);
    }
    b.build()
}

/// Arrays one after the other; `is_rotation` if they are slices that exchange places.
pub(crate) fn concatenate(s: Shapes<'_>, dim: i64, is_rotation: bool) -> Rule {
    along(s, |d| match (d as i64 == dim, is_rotation) {
        (false, _) => PassThrough,
        (true, true) => Permutation,
        (true, false) => NeedReplication,
    })
}

/// An update written into an operand at a place that is computed.
pub(crate) fn dynamic_update_slice(s: Shapes<'_>, constant_indices: bool) -> Rule {
    let mut b = s.builder();
    for (d, (&whole, &part)) in s.operand(0).iter().zip(s.operand(1)).enumerate() {
        if whole == part {
            b.everywhere(d, whole, PassThrough, false);
            continue;
        }
        b.pass(&[Some(d), None], &[Some(d)], whole);
        let kind = if constant_indices { PassThrough } else { NeedReplication };
        b.factor(&[None, Some(d)], &[], part, kind, false);
    }
    b.build()
}

/// Sorting along `dim`.
pub(crate) fn sort(s: Shapes<'_>, dim: i64) -> Rule {
    let mut b = s.builder();
    let dims = s.operand(0);
    let alone = dims.iter().enumerate().all(|(d, &size)| d as i64 == dim || size == 1);
    for (d, &size) in dims.iter().enumerate() {
        match d as i64 == dim {
            true => b.everywhere(d, size, NeedReplication, alone),
            false => b.everywhere(d, size, PassThrough, false),
        }
    }
    b.build()
}

/// A Fourier transform of the last `rank` dimensions.
pub(crate) fn fft(s: Shapes<'_>, rank: usize) -> Rule {
    let mut b = s.builder();
    let dims = s.operand(0);
    let changed = dims.last() != s.result(0).last();
    for (d, &size) in dims.iter().enumerate() {
        if d + rank < dims.len() {
            b.everywhere(d, size, PassThrough, false);
        } else {
            b.everywhere(d, size, NeedReplication, d + 1 == dims.len() && changed);
        }
    }
    b.build()
}

/// The last two dimensions of each matrix are needed whole.
pub(crate) fn cholesky(s: Shapes<'_>) -> Rule {
    let batch = s.operand(0).len().saturating_sub(2);
    along(s, |d| if d < batch { PassThrough } else { NeedReplication })
}

/// Random bits: the state is needed whole, the output may be cut anyhow.
pub(crate) fn rng_bit_generator(s: Shapes<'_>) -> Rule {
    let mut b = s.builder();
    for (d, &size) in s.operand(0).iter().enumerate() {
        b.factor(&[Some(d)], &[Some(d), None], size, NeedReplication, true);
    }
    for (d, &size) in s.result(1).iter().enumerate() {
        b.pass(&[], &[None, Some(d)], size);
    }
    b.build()
}

/// The same bits as other numbers: one dimension more or less where their widths differ.
pub(crate) fn bitcast_convert(s: Shapes<'_>) -> Rule {
    let mut b = s.builder();
    let (from, to) = (s.operand(0), s.result(0));
    b.pointwise(if from.len() < to.len() { from } else { to });
    if from.len() < to.len() {
        b.factor(&[], &[Some(to.len() - 1)], to.last().copied().unwrap_or(1), NeedReplication, false);
    } else if from.len() > to.len() {
        b.factor(&[Some(from.len() - 1)], &[], from.last().copied().unwrap_or(1), NeedReplication, false);
    }
    b.build()
}

/// A collective that changes the size of `dims`, on each side whole.
pub(crate) fn reshaping_collective(s: Shapes<'_>, dims: &[i64]) -> Rule {
    let mut b = s.builder();
    let changed = |d: usize| dims.contains(&(d as i64));
    for (d, &size) in s.operand(0).iter().enumerate().filter(|&(d, _)| !changed(d)) {
        b.everywhere(d, size, PassThrough, false);
    }
    let mut seen: Vec<i64> = Vec::new();
    for &d in dims {
        let Ok(at) = usize::try_from(d) else { continue };
        if !seen.contains(&d) {
            b.on_side(true, at, s.operand(0).get(at).copied().unwrap_or(1), NeedReplication);
            b.on_side(false, at, s.result(0).get(at).copied().unwrap_or(1), NeedReplication);
            seen.push(d);
        }
    }
    b.build()
}

/// Statistics for each feature, applied to every element.
pub(crate) fn batch_norm_inference(s: Shapes<'_>, feature: i64) -> Rule {
    let mut b = s.builder();
    for (d, &size) in s.operand(0).iter().enumerate() {
        let of_statistics = if d as i64 == feature { Some(0) } else { None };
        let mut places = vec![of_statistics; s.operands.len()];
        if let Some(first) = places.first_mut() {
            *first = Some(d);
        }
        b.pass(&places, &[Some(d)], size);
    }
    b.build()
}

/// The leading `batch` dimensions of all operands and results go together, the others are needed whole.
pub(crate) fn batched(s: Shapes<'_>, batch: usize) -> Rule {
    let mut b = s.builder();
    b.pointwise(s.operand(0).get(..batch).unwrap_or(&[]));
    for n in 0..s.operands.len() {
        let mut places = vec![None; s.operands.len()];
        for (d, &size) in s.operand(n).iter().enumerate().skip(batch) {
            places[n] = Some(d);
            b.factor(&places, &[], size, NeedReplication, true);
        }
    }
    for n in 0..s.results.len() {
        let mut places = vec![None; s.results.len()];
        for (d, &size) in s.result(n).iter().enumerate().skip(batch) {
            places[n] = Some(d);
            b.factor(&[], &places, size, NeedReplication, true);
        }
    }
    b.build()
}

/// The rule of a custom call that is known by its name.
pub(crate) fn custom_call(s: Shapes<'_>, target: &str) -> Option<Rule> {
    Some(match target {
        "annotate_device_placement"
        | "Cholesky"
        | "CompactWyHelper"
        | "InspectSharding"
        | "InvertDiagBlocksLowerTriangular"
        | "InvertDiagBlocksUpperTriangular"
        | "LayoutConstraint"
        | "mhlo.erf"
        | "MoveToDevice"
        | "MoveToHost"
        | "PinToDevice"
        | "PinToDeviceSram"
        | "PinToVmem"
        | "X64SplitHigh"
        | "X64SplitLow"
        | "X64Combine"
        | "xla.megascale.provide_metadata"
        | "_SPMDInternalOp_MultiPad"
        | "_SPMDInternalOp_RotateRight"
        | "_SPMDInternalOp_MultiRotate"
        | "_SPMDInternalOp_MultiSlice"
        | "_SPMDInternalOp_Wrap" => {
            if s.results.is_empty() {
                return None;
            }
            elementwise(s)
        }
        "Eigh" => eigh(s),
        "Qr" | "QrDecompositionBlock" => qr(s),
        "ProductOfElementaryHouseholderReflectors" => householder_product(s),
        "mhlo.topk" => resized(s, NeedReplication, true),
        "ApproxTopK" | "PartialReduce" => approx_top_k(s),
        _ => return None,
    })
}

fn approx_top_k(s: Shapes<'_>) -> Rule {
    let mut b = s.builder();
    for (d, (&from, &to)) in s.operand(0).iter().zip(s.result(0)).enumerate() {
        if from == to {
            b.everywhere(d, from, PassThrough, false);
        } else {
            b.pass(&[Some(d), Some(d)], &[], from);
            b.factor(&[], &[Some(d), Some(d)], to, NeedReplication, true);
        }
    }
    b.build()
}

//! The rules of gather and scatter.

use super::Rule;
use super::ops::Shapes;
use super::{FactorKind, FactorKind::*};

/// The dimensions of a gather, or of a scatter under the names of a gather.
pub(crate) struct IndexedDims<'a> {
    /// Where the slices' own dimensions are in the result.
    pub offset: &'a [i64],
    /// Dimensions of the operand whose slices have one element and that the result lacks.
    pub collapsed: &'a [i64],
    /// Batch dimensions of the operand.
    pub operand_batching: &'a [i64],
    /// The dimensions of the indices that go with them.
    pub indices_batching: &'a [i64],
    /// The dimension of the indices that holds one index.
    pub index_vector: i64,
}

/// The places of a factor: in the operand, the indices and the slices.
struct IndexedFactor {
    operand: Option<usize>,
    indices: Option<usize>,
    slices: Option<usize>,
    size: i64,
    kind: FactorKind,
    blocked: bool,
}

fn factors(
    operand: &[i64],
    indices: &[i64],
    slices: &[i64],
    dims: &IndexedDims<'_>,
    scatter: Option<FactorKind>,
) -> Vec<IndexedFactor> {
    let mut all = Vec::new();
    let mut add = |operand, indices, slices, size, kind, blocked| {
        all.push(IndexedFactor { operand, indices, slices, size, kind, blocked });
    };
    let (mut next_operand, mut batch_place) = (0usize, 0i64);
    for (out, &size) in slices.iter().enumerate() {
        if dims.offset.contains(&(out as i64)) {
            let skipped = |d: usize| {
                let d = d as i64;
                dims.collapsed.contains(&d) || dims.operand_batching.contains(&d)
            };
            while next_operand < operand.len() && skipped(next_operand) {
                next_operand += 1;
            }
            let Some(&whole) = operand.get(next_operand) else { break };
            let d = Some(next_operand);
            if whole == size {
                add(d, None, Some(out), whole, PassThrough, false);
            } else if scatter.is_some() {
                add(d, None, None, whole, NeedReplication, false);
                add(None, None, Some(out), size, NeedReplication, false);
            } else if size == 1 {
                add(d, None, None, whole, Reduction, false);
                add(None, None, Some(out), size, NeedReplication, false);
            } else {
                add(d, None, Some(out), whole, NeedReplication, true);
            }
            next_operand += 1;
        } else {
            let of_indices = if batch_place < dims.index_vector { batch_place } else { batch_place + 1 };
            let batching = dims.indices_batching.iter().position(|&d| d == of_indices);
            let of_operand = batching.and_then(|i| usize::try_from(*dims.operand_batching.get(i)?).ok());
            let kind = match scatter {
                Some(kind) if batching.is_none() => kind,
                _ => PassThrough,
            };
            add(of_operand, usize::try_from(of_indices).ok(), Some(out), size, kind, false);
            batch_place += 1;
        }
    }
    for &d in dims.collapsed {
        let Some(&size) = usize::try_from(d).ok().and_then(|d| operand.get(d)) else { continue };
        let kind = match (scatter.is_some(), size) {
            (true, _) => PassThrough,
            (false, 1) => NeedReplication,
            (false, _) => Reduction,
        };
        add(usize::try_from(d).ok(), None, None, size, kind, false);
    }
    if let Some(&size) = usize::try_from(dims.index_vector).ok().and_then(|d| indices.get(d)) {
        add(None, usize::try_from(dims.index_vector).ok(), None, size, NeedReplication, false);
    }
    all
}

/// Slices of the first operand at the indices in the second.
pub(crate) fn gather(s: Shapes<'_>, dims: &IndexedDims<'_>) -> Rule {
    let mut b = s.builder();
    for f in factors(s.operand(0), s.operand(1), s.result(0), dims, None) {
        b.factor(&[f.operand, f.indices], &[f.slices], f.size, f.kind, f.blocked);
    }
    b.build()
}

/// Updates written at indices: as many inputs, the indices, as many updates. `reduces` if the order of the updates does
/// not matter.
pub(crate) fn scatter(s: Shapes<'_>, dims: &IndexedDims<'_>, reduces: bool) -> Rule {
    let mut b = s.builder();
    let inputs = s.results.len();
    let batch = if reduces { Reduction } else { NeedReplication };
    for f in factors(s.operand(0), s.operand(inputs), s.operand(inputs + 1), dims, Some(batch)) {
        let mut operands = vec![f.operand; inputs];
        operands.push(f.indices);
        operands.extend(std::iter::repeat_n(f.slices, inputs));
        b.factor(&operands, &vec![f.operand; inputs], f.size, f.kind, f.blocked);
    }
    b.build()
}

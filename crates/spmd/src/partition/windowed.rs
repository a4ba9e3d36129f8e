//! Windows over shards: reductions in windows, and scans written as such.
//!
//! A shard reads what its windows reach of its neighbours. Where every window goes back to the beginning (a cumulative sum
//! written as a reduction in windows), each shard scans its own, and the shards before it count as one number each.

use super::axes::AxisSet;
use super::body::{Body, Part, Val};
use super::reduce::reduction_of;
use super::rule::{FactorDims, FactorKind, Rule};
use super::spec::{Reduction, Spec, shard_size};
use super::windows::window_needs;
use super::{Emit, Reason};
use hloom_ir::attributes::{ComparisonDirection, Window, WindowDim};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::{ElementType, Op};
use smallvec::smallvec;
use std::sync::Arc;

/// What a window does along a dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// Each element by itself.
    Element,
    /// Some neighbours.
    Neighbours,
    /// All before, or all after.
    Cumulative { reverse: bool },
    /// What shards cannot do.
    Other,
}

fn reach(w: &WindowDim, n: i64, out: i64) -> Reach {
    let plain = w.stride == 1 && w.window_dilation == 1 && w.base_dilation == 1;
    if plain && w.size == 1 && w.padding_low == 0 && w.padding_high == 0 {
        return Reach::Element;
    }
    if plain && w.size == n && out == n && n > 1 {
        if (w.padding_low, w.padding_high) == (n - 1, 0) {
            return Reach::Cumulative { reverse: false };
        }
        if (w.padding_low, w.padding_high) == (0, n - 1) {
            return Reach::Cumulative { reverse: true };
        }
    }
    if w.base_dilation == 1 { Reach::Neighbours } else { Reach::Other }
}

/// Where the window of a result's shard begins in the whole, and how long it is.
fn shard_windows(w: &WindowDim, out: i64, shards: i64) -> (Vec<i64>, i64) {
    let size = shard_size(out, shards);
    let starts = (0..shards).map(|i| i * size * w.stride - w.padding_low).collect();
    (starts, (size - 1) * w.stride + (w.size - 1) * w.window_dilation + 1)
}

impl Body<'_, '_> {
    pub(crate) fn reduce_window(&mut self, at: InstructionId, window: &Window) -> Emit<Val> {
        let source = self.p.source;
        let Op::ReduceWindow { to_apply, .. } = source[at].op else { return self.compute_whole(at) };
        let operands = source[at].operands().to_vec();
        let count = operands.len() / 2;
        let parts = self.parts(&operands[..count])?;
        let shape = parts[0].shape.clone();
        let Some((_, out)) = source[at].shape.leaves().first().cloned() else { return self.compute_whole(at) };
        let Some(out) = out.as_array().map(|a| Arc::new(a.without_layout())) else { return self.compute_whole(at) };
        if out.element_count() == Some(0) || shape.element_count() == Some(0) {
            return self.compute_whole(at);
        }
        let reaches: Vec<Reach> =
            window.dims.iter().enumerate().map(|(d, w)| reach(w, shape.dims()[d], out.dims()[d])).collect();
        let mut rule = Rule::default();
        let dims: FactorDims = reaches
            .iter()
            .zip(shape.dims())
            .map(|(r, &n)| rule.factor(n, if *r == Reach::Other { FactorKind::Whole } else { FactorKind::Pass }))
            .collect();
        rule.operands = smallvec![dims.clone(); count];
        rule.results = smallvec![dims; count];
        let wanted = self.p.annotated_leaves(at);
        let assignment = self.choose(&rule, &parts, &wanted, &|b, a| {
            let spec = rule.operand(0, a, AxisSet::EMPTY);
            let mut cost = 0.0;
            for part in &parts {
                for (d, r) in reaches.iter().enumerate().filter(|&(d, _)| !spec.dims[d].is_empty()) {
                    let shards = b.axes().product(&spec.dims[d]);
                    let local = spec.local_dims(b.axes(), part.shape.dims());
                    match r {
                        Reach::Neighbours => {
                            let (starts, size) = shard_windows(&window.dims[d], out.dims()[d], shards);
                            cost += b.needs_cost(part, &spec, d, &window_needs(&starts, size, part.shape.dims()[d]));
                        }
                        Reach::Cumulative { .. } => {
                            let row = spec.local_bytes(b.axes(), &part.shape) / local[d].max(1) as f64;
                            cost += (shards - 1) as f64 * row;
                        }
                        _ => {}
                    }
                }
            }
            Some(cost)
        });
        let manual = self.manual_of(&parts, &wanted[0]);
        let spec = rule.operand(0, &assignment, manual);
        let mut inits = Vec::new();
        for &init in &operands[count..] {
            let part = self.part(init)?;
            inits.push(self.reshard(&part, &part.spec.complete())?);
        }
        let mut local_window = window.clone();
        let mut arrays = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            let mut local = Part { free: None, ..self.resharded(part, &spec)? };
            for (d, r) in reaches.iter().enumerate().filter(|&(d, _)| !spec.dims[d].is_empty()) {
                let list = spec.dims[d];
                let w = &mut local_window.dims[d];
                match r {
                    Reach::Neighbours => {
                        let (starts, size) = shard_windows(&window.dims[d], out.dims()[d], self.axes().product(&list));
                        local.id = self.read_window(&local, d, &list, &starts, size, inits[i])?;
                        (w.padding_low, w.padding_high) = (0, 0);
                    }
                    Reach::Cumulative { reverse } => {
                        local.id = self.mask_dim(local.id, d, &list, shape.dims()[d], inits[i])?;
                        let shard = self.dims(local.id)[d];
                        w.size = shard;
                        (w.padding_low, w.padding_high) = if *reverse { (0, shard - 1) } else { (shard - 1, 0) };
                    }
                    _ => {}
                }
            }
            arrays.push(local.id);
        }
        let target = self.p.computations[&to_apply];
        let all: Vec<InstructionId> = arrays.iter().chain(&inits).copied().collect();
        let made = self.add(Op::ReduceWindow { window: Box::new(local_window), to_apply: target }, &all)?;
        let tuple = source[at].shape.is_tuple();
        let mut results = Vec::new();
        for index in 0..count {
            results.push(if tuple { self.add(Op::GetTupleElement { index: index as i64 }, &[made])? } else { made });
        }
        for (d, r) in reaches.iter().enumerate() {
            if let Reach::Cumulative { reverse } = *r
                && !spec.dims[d].is_empty()
            {
                results = self.carry(&results, &inits, d, &spec, reverse, to_apply)?;
            }
        }
        let mut values = Vec::new();
        for (i, (&id, (_, leaf))) in results.iter().zip(source[at].shape.leaves()).enumerate() {
            let leaf = leaf.as_array().ok_or_else(|| self.error("an array is expected"))?;
            values.push(self.array(id, Arc::new(leaf.without_layout()), rule.result(i, &assignment, manual)));
        }
        Ok(if tuple { Val::Tuple(values) } else { values.remove(0) })
    }

    /// Adds to each shard's scan along `dim` what the shards before it come to.
    fn carry(
        &mut self,
        scans: &[InstructionId],
        inits: &[InstructionId],
        dim: usize,
        spec: &Spec,
        reverse: bool,
        to_apply: ComputationId,
    ) -> Emit<Vec<InstructionId>> {
        let list = spec.dims[dim];
        let shards = self.axes().product(&list);
        let reason = std::mem::replace(&mut self.reason, Reason::Combine);
        let mut gathered = Vec::new();
        for (&scan, &init) in scans.iter().zip(inits) {
            let size = self.dims(scan)[dim];
            let at = if reverse { 0 } else { size - 1 };
            let total = self.slice_dim(scan, dim, at, at + 1, 1)?;
            let totals = self.all_gather(total, dim, &list)?;
            let dims = self.dims(totals);
            let index = self.iota(ElementType::S32, &dims, dim)?;
            let own = self.coordinate(&list)?;
            let own = self.broadcast(own, &dims, &[])?;
            let direction = if reverse { ComparisonDirection::Gt } else { ComparisonDirection::Lt };
            let before = self.compare(direction, index, own)?;
            let none = self.broadcast(init, &dims, &[])?;
            gathered.push(self.select(before, totals, none)?);
        }
        self.reason = reason;
        debug_assert!(shards > 1);
        let target = self.p.computations[&to_apply];
        let mut operands = gathered;
        operands.extend(inits);
        let prefix =
            self.add(Op::Reduce { dimensions: [dim as i64].into_iter().collect(), to_apply: target }, &operands)?;
        let mut prefixes = Vec::new();
        for (index, &scan) in scans.iter().enumerate() {
            let one = if scans.len() == 1 {
                prefix
            } else {
                self.add(Op::GetTupleElement { index: index as i64 }, &[prefix])?
            };
            let dims = self.dims(scan);
            let kept: Vec<i64> = (0..dims.len() as i64).filter(|&d| d != dim as i64).collect();
            prefixes.push(self.broadcast(one, &dims, &kept)?);
        }
        match reduction_of(self.p.source, to_apply) {
            Some(reduction) if scans.len() == 1 => Ok(vec![self.binary(reduction.op(), prefixes[0], scans[0])?]),
            _ => {
                // By the reduction itself, over pairs.
                let mut pairs = Vec::new();
                for (&prefix, &scan) in prefixes.iter().zip(scans) {
                    let (first, second) = if reverse { (scan, prefix) } else { (prefix, scan) };
                    let mut dims = self.dims(scan);
                    dims.insert(0, 1);
                    let first = self.reshape(first, &dims)?;
                    let second = self.reshape(second, &dims)?;
                    pairs.push(self.add(Op::Concatenate { dimension: 0 }, &[first, second])?);
                }
                pairs.extend(inits);
                let both = self.add(Op::Reduce { dimensions: [0].into_iter().collect(), to_apply: target }, &pairs)?;
                if scans.len() == 1 {
                    return Ok(vec![both]);
                }
                (0..scans.len()).map(|i| self.add(Op::GetTupleElement { index: i as i64 }, &[both])).collect()
            }
        }
    }

    /// The gradient of a pooling by the largest: windows that reach into a shard are looked at again by it.
    pub(crate) fn select_and_scatter(&mut self, at: InstructionId, window: &Window) -> Emit<Val> {
        let source = self.p.source;
        let Op::SelectAndScatter { select, scatter, .. } = source[at].op else { return self.compute_whole(at) };
        let operands = source[at].operands().to_vec();
        let parts = self.parts(&operands[..2])?;
        let init = self.part(operands[2])?;
        let init = self.reshard(&init, &init.spec.complete())?;
        let shape = self.array_shape(at)?;
        let element_type = shape.element_type;
        let largest = self.selects_largest(select)
            && element_type.is_float()
            && reduction_of(source, scatter) == Some(Reduction::Sum)
            && self.is_zero(operands[2]);
        let mut rule = Rule::default();
        let mut from = FactorDims::new();
        let mut of = FactorDims::new();
        let mut halo: Vec<usize> = Vec::new();
        for (d, w) in window.dims.iter().enumerate() {
            let (n, m) = (parts[0].shape.dims()[d], parts[1].shape.dims()[d]);
            match reach(w, n, m) {
                Reach::Element => {
                    let factor = rule.factor(n, FactorKind::Pass);
                    from.push(factor);
                    of.push(factor);
                }
                _ if largest && w.window_dilation == 1 && w.base_dilation == 1 => {
                    let factor = rule.factor(n, FactorKind::Pass);
                    from.push(factor);
                    of.push(factor);
                    halo.push(d);
                }
                _ => {
                    from.push(rule.factor(n, FactorKind::Whole));
                    of.push(None);
                }
            }
        }
        rule.operands = smallvec![from.clone(), of];
        rule.results = smallvec![from];
        // Sources whose windows reach shard `i`, and the elements of those windows.
        let reads = |shards: i64, d: usize| {
            let w = &window.dims[d];
            let n = parts[0].shape.dims()[d];
            let size = shard_size(n, shards);
            let first = |i: i64| -(-(i * size + w.padding_low - (w.size - 1))).div_euclid(w.stride);
            let last = |i: i64| (i * size + size - 1 + w.padding_low).div_euclid(w.stride);
            let count = (0..shards).map(|i| last(i) - first(i) + 1).max().unwrap_or(1).max(1);
            let sources: Vec<i64> = (0..shards).map(first).collect();
            let elements: Vec<i64> = sources.iter().map(|s| s * w.stride - w.padding_low).collect();
            (sources, count, elements, (count - 1) * w.stride + w.size, size)
        };
        let wanted = self.wanted_array(at);
        let assignment = self.choose(&rule, &parts, std::slice::from_ref(&wanted), &|b, a| {
            let mut cost = 0.0;
            for &d in &halo {
                let (first, second) = (rule.operand(0, a, AxisSet::EMPTY), rule.operand(1, a, AxisSet::EMPTY));
                if !first.dims[d].is_empty() {
                    let (sources, count, elements, length, _) = reads(b.axes().product(&first.dims[d]), d);
                    let needs = window_needs(&elements, length, parts[0].shape.dims()[d]);
                    cost += b.needs_cost(&parts[0], &first, d, &needs);
                    let needs = window_needs(&sources, count, parts[1].shape.dims()[d]);
                    cost += b.needs_cost(&parts[1], &second, d, &needs);
                }
            }
            Some(cost)
        });
        let manual = self.manual_of(&parts, &wanted);
        let spec = rule.operand(0, &assignment, manual);
        let mut operand = Part { free: None, ..self.resharded(&parts[0], &spec)? };
        let mut updates = Part { free: None, ..self.resharded(&parts[1], &rule.operand(1, &assignment, manual))? };
        let mut local_window = window.clone();
        let lowest = self.scalar(f32::NEG_INFINITY)?;
        let lowest = self.convert(lowest, element_type)?;
        let mut back: Vec<(usize, Vec<i32>, i64)> = Vec::new();
        for &d in halo.iter().filter(|&&d| !spec.dims[d].is_empty()) {
            let list = spec.dims[d];
            let (sources, count, elements, length, size) = reads(self.axes().product(&list), d);
            operand.id = self.read_window(&operand, d, &list, &elements, length, lowest)?;
            updates.id = self.read_window(&updates, d, &list, &sources, count, init)?;
            let w = &mut local_window.dims[d];
            (w.padding_low, w.padding_high) = (0, 0);
            let starts = elements.iter().enumerate().map(|(i, &e)| (i as i64 * size - e) as i32).collect();
            back.push((d, starts, size));
        }
        let op = Op::SelectAndScatter {
            window: Box::new(local_window),
            select: self.p.computations[&select],
            scatter: self.p.computations[&scatter],
        };
        let mut id = self.add(op, &[operand.id, updates.id, init])?;
        for (d, starts, size) in back {
            // Room for shards whose windows end before they do.
            let most = i64::from(starts.iter().copied().max().unwrap_or(0)).max(0) + size;
            let have = self.dims(id)[d];
            id = self.pad_dim(id, d, 0, (most - have).max(0), None)?;
            let low = i64::from(-starts.iter().copied().min().unwrap_or(0)).max(0);
            id = self.pad_dim(id, d, low, 0, None)?;
            let starts: Vec<i32> = starts.iter().map(|s| s + low as i32).collect();
            let index = self.coordinate(&spec.dims[d])?;
            let start = self.lookup(&starts, index)?;
            id = self.dynamic_slice_dim(id, d, start, size)?;
        }
        Ok(self.array(id, shape, spec))
    }

    /// Whether a computation keeps the larger of two, the first if they are equal.
    fn selects_largest(&self, computation: ComputationId) -> bool {
        let source = self.p.source;
        let Some(root) = source.root(computation) else { return false };
        let number = |i: InstructionId| match source[i].op {
            Op::Parameter { number, .. } => number,
            _ => -1,
        };
        let operands = source[root].operands();
        matches!(source[root].op, Op::Compare { direction: ComparisonDirection::Ge, .. })
            && number(operands[0]) == 0
            && number(operands[1]) == 1
    }
}

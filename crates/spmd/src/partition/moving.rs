//! Slices, pads, concatenations and reversals: shards read what they need of their neighbours.

use super::Emit;
use super::axes::{AxisList, AxisSet};
use super::body::{Body, Part, Val};
use super::rule::{Assignment, FactorDims, FactorKind, Rule};
use super::spec::{Reduction, Spec, shard_size};
use super::windows::{Need, window_needs};
use hloom_ir::Op;
use hloom_ir::attributes::{PaddingDim, SliceDim};
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use smallvec::smallvec;

impl Body<'_, '_> {
    pub(crate) fn sliced(&mut self, at: InstructionId, slices: &[SliceDim]) -> Emit<Val> {
        let operand = self.p.source[at].operands()[0];
        // A slice of a pad is a pad that takes away as well.
        if let Op::Pad { padding } = &self.p.source[operand].op
            && slices.iter().zip(padding).all(|(s, p)| s.stride == 1 && p.interior == 0)
        {
            let sizes = self.array_shape(operand)?;
            let both = padding.iter().zip(slices).zip(sizes.dims()).map(|((p, s), &n)| PaddingDim {
                low: p.low - s.start,
                high: p.high - (n - s.limit),
                interior: 0,
            });
            let both: Vec<PaddingDim> = both.collect();
            let operands = self.p.source[operand].operands().to_vec();
            return self.padded_from(at, &operands, &both);
        }
        let part = self.linear_part(operand)?;
        let shape = self.array_shape(at)?;
        if shape.element_count() == Some(0) {
            return self.compute_whole(at);
        }
        let mut rule = Rule::default();
        let dims: FactorDims = part.shape.dims().iter().map(|&n| rule.factor(n, FactorKind::Pass)).collect();
        rule.operands = smallvec![dims.clone()];
        rule.results = smallvec![dims];
        let changed: Vec<usize> = (0..slices.len()).filter(|&d| part.shape.dims()[d] != shape.dims()[d]).collect();
        // Shard `i` of the result begins there, and is as long.
        let window = |shards: i64, d: usize| {
            let size = shard_size(shape.dims()[d], shards);
            let SliceDim { start, stride, .. } = slices[d];
            let starts: Vec<i64> = (0..shards).map(|i| start + i * size * stride).collect();
            (starts, (size - 1) * stride + 1, size)
        };
        let wanted = self.wanted_array(at);
        let keep = self.keep_for(&part, &wanted);
        let (chosen, goal) = self.set_aside(&part, &wanted, keep);
        let assignment = self.choose(&rule, &[chosen], &[goal], &|b, a| {
            b.windows_cost(&rule, a, &part, &changed, keep, &|shards, d| {
                let (starts, size, _) = window(shards, d);
                window_needs(&starts, size, part.shape.dims()[d])
            })
        });
        let manual = self.manual_of(std::slice::from_ref(&part), &wanted);
        let spec = rule.operand(0, &assignment, manual).with_partial(keep, part.spec.reduction);
        let mut local = self.resharded(&part, &spec)?;
        local.free = None;
        let zero = self.zero(shape.element_type)?;
        for &d in &changed {
            let list = spec.dims[d];
            if list.is_empty() {
                let SliceDim { start, limit, stride } = slices[d];
                local.id = self.slice_dim(local.id, d, start, limit, stride)?;
                continue;
            }
            let (starts, size, count) = window(self.axes().product(&list), d);
            local.id = self.read_window(&local, d, &list, &starts, size, zero)?;
            local.id = self.slice_dim(local.id, d, 0, size, slices[d].stride)?;
            debug_assert_eq!(self.dims(local.id)[d], count);
        }
        Ok(self.array(local.id, shape, spec))
    }

    /// The axes along which `part` may stay in parts when the result is wanted so.
    pub(crate) fn keep_for(&self, part: &Part, wanted: &Spec) -> AxisSet {
        let keep = part.spec.partial;
        if keep.intersection(wanted.used()).is_empty() { keep } else { AxisSet::EMPTY }
    }

    /// A part and the wanted form with the parts that are kept left out of account.
    pub(crate) fn set_aside(&self, part: &Part, wanted: &Spec, keep: AxisSet) -> (Part, Spec) {
        match keep.is_empty() {
            true => (part.clone(), wanted.clone()),
            false => (Part { spec: part.spec.complete(), ..part.clone() }, wanted.complete()),
        }
    }

    /// What reading windows of the changed dimensions costs; nothing fits that uses axes of kept parts.
    fn windows_cost(
        &self,
        rule: &Rule,
        assignment: &Assignment,
        part: &Part,
        changed: &[usize],
        keep: AxisSet,
        needs: &dyn Fn(i64, usize) -> Vec<Vec<Need>>,
    ) -> Option<f64> {
        if assignment.iter().any(|l| !AxisSet::of(l).intersection(keep).is_empty()) {
            return None;
        }
        let spec = rule.operand(0, assignment, AxisSet::EMPTY);
        let mut cost = 0.0;
        for &d in changed {
            if !spec.dims[d].is_empty() {
                let shards = self.axes().product(&spec.dims[d]);
                cost += self.needs_cost(part, &spec, d, &needs(shards, d));
            }
        }
        Some(cost)
    }

    pub(crate) fn padded(&mut self, at: InstructionId, padding: &[PaddingDim]) -> Emit<Val> {
        let operands = self.p.source[at].operands().to_vec();
        self.padded_from(at, &operands, padding)
    }

    /// The array and value of `operands`, padded, as the value of `at`.
    fn padded_from(&mut self, at: InstructionId, operands: &[InstructionId], padding: &[PaddingDim]) -> Emit<Val> {
        let shape = self.array_shape(at)?;
        let zero_padding = self.is_zero(operands[1]);
        let part = if zero_padding { self.linear_part(operands[0])? } else { self.part(operands[0])? };
        let value = self.part(operands[1])?;
        let value = self.reshard(&value, &value.spec.complete())?;
        if shape.element_count() == Some(0) || part.shape.element_count() == Some(0) {
            return self.compute_whole(at);
        }
        let mut rule = Rule::default();
        let dims: FactorDims = part.shape.dims().iter().map(|&n| rule.factor(n, FactorKind::Pass)).collect();
        rule.operands = smallvec![dims.clone()];
        rule.results = smallvec![dims];
        let changed: Vec<usize> = (0..padding.len()).filter(|&d| padding[d] != PaddingDim::default()).collect();
        let window = |shards: i64, d: usize| {
            let size = shard_size(shape.dims()[d], shards);
            let PaddingDim { low, interior, .. } = padding[d];
            let step = interior + 1;
            let starts: Vec<i64> = (0..shards).map(|i| -(low - i * size).div_euclid(step)).collect();
            (starts, (size - 1) / step + 1, size)
        };
        let wanted = self.wanted_array(at);
        let keep = if zero_padding { self.keep_for(&part, &wanted) } else { AxisSet::EMPTY };
        let (chosen, goal) = self.set_aside(&part, &wanted, keep);
        let assignment = self.choose(&rule, &[chosen], &[goal], &|b, a| {
            b.windows_cost(&rule, a, &part, &changed, keep, &|shards, d| {
                let (starts, size, _) = window(shards, d);
                window_needs(&starts, size, part.shape.dims()[d])
            })
        });
        let manual = self.manual_of(std::slice::from_ref(&part), &wanted);
        let spec = rule.operand(0, &assignment, manual).with_partial(keep, part.spec.reduction);
        let mut local = self.resharded(&part, &spec)?;
        local.free = None;
        let mut rest: Vec<PaddingDim> = vec![PaddingDim::default(); padding.len()];
        for &d in &changed {
            let list = spec.dims[d];
            if list.is_empty() {
                rest[d] = padding[d];
                continue;
            }
            let (starts, size, count) = window(self.axes().product(&list), d);
            local.id = self.read_window(&local, d, &list, &starts, size, value)?;
            let step = padding[d].interior + 1;
            if step > 1 {
                let mut between = vec![PaddingDim::default(); padding.len()];
                between[d] = PaddingDim { low: step - 1, high: step, interior: step - 1 };
                let spread = self.add(Op::Pad { padding: between.into() }, &[local.id, value])?;
                let first = starts.iter().enumerate().map(|(i, s)| {
                    let position = padding[d].low + s * step - i as i64 * count;
                    (step - 1 - position) as i32
                });
                let first: Vec<i32> = first.collect();
                let index = self.coordinate(&list)?;
                let start = self.lookup(&first, index)?;
                local.id = self.dynamic_slice_dim(spread, d, start, count)?;
            }
        }
        if rest.iter().any(|p| *p != PaddingDim::default()) {
            local.id = self.add(Op::Pad { padding: rest.into() }, &[local.id, value])?;
        }
        Ok(self.array(local.id, shape, spec))
    }

    pub(crate) fn concatenated(&mut self, at: InstructionId, dim: usize) -> Emit<Val> {
        let source = self.p.source;
        let operands = source[at].operands().to_vec();
        let shape = self.array_shape(at)?;
        if operands.len() == 1 {
            return self.value(operands[0]).cloned();
        }
        if shape.element_count() == Some(0) {
            return self.compute_whole(at);
        }
        // Each piece: what it is read from, where it begins there, where it goes, and its length.
        let mut pieces: Vec<(InstructionId, i64, i64, i64)> = Vec::new();
        let mut position = 0;
        for &o in &operands {
            let size = source[o].shape.as_array().map_or(0, |a| a.dims()[dim]);
            let through = match &source[o].op {
                Op::Slice { dims } if self.slices_only(o, dims, dim) => {
                    Some((source[o].operands()[0], dims[dim].start))
                }
                _ => None,
            };
            let (from, start) = through.unwrap_or((o, 0));
            pieces.push((from, start, position, size));
            position += size;
        }
        let mut sources: Vec<InstructionId> = Vec::new();
        for piece in &pieces {
            if !sources.contains(&piece.0) {
                sources.push(piece.0);
            }
        }
        // Slices are read through only where they are of one array: a shift, a rotation.
        if sources.len() == operands.len() {
            for (piece, &o) in pieces.iter_mut().zip(&operands) {
                (piece.0, piece.1) = (o, 0);
            }
            sources = operands.clone();
            sources.dedup();
        }
        self.joined_pieces(at, dim, &pieces, &sources)
    }

    /// XLA's own call for a rotation: the last `amount` elements come first.
    pub(crate) fn rotated(&mut self, at: InstructionId) -> Emit<Val> {
        let operand = self.p.source[at].operands()[0];
        let shape = self.array_shape(at)?;
        let config = self.p.source[at].common.backend_config.as_deref().unwrap_or(&[]);
        let config = std::str::from_utf8(config).unwrap_or("");
        let number = |name: &str| {
            let fields = config.split(',').filter_map(|f| f.split_once('='));
            fields.filter(|f| f.0.trim() == name).find_map(|f| f.1.trim().parse::<i64>().ok())
        };
        let dim = number("dimension").and_then(|d| usize::try_from(d).ok()).filter(|&d| d < shape.rank());
        let (Some(dim), Some(amount)) = (dim, number("amount")) else { return self.compute_whole(at) };
        let n = shape.dims()[dim];
        let amount = amount.rem_euclid(n.max(1));
        if amount == 0 {
            return self.copied(at);
        }
        let pieces = [(operand, n - amount, 0, amount), (operand, 0, amount, n - amount)];
        self.joined_pieces(at, dim, &pieces, &[operand])
    }

    /// Pieces of arrays one after the other along `dim`.
    fn joined_pieces(
        &mut self,
        at: InstructionId,
        dim: usize,
        pieces: &[(InstructionId, i64, i64, i64)],
        sources: &[InstructionId],
    ) -> Emit<Val> {
        let shape = self.array_shape(at)?;
        let parts: Vec<Part> = sources.iter().map(|&s| self.part(s)).collect::<Emit<_>>()?;
        let mut rule = Rule::default();
        let dims: FactorDims = shape.dims().iter().map(|&n| rule.factor(n, FactorKind::Pass)).collect();
        rule.operands = smallvec![dims.clone(); parts.len()];
        rule.results = smallvec![dims];
        let needs = |shards: i64, from: InstructionId| -> Vec<Vec<Need>> {
            let size = shard_size(shape.dims()[dim], shards);
            let of = |i: i64| {
                let (low, high) = (i * size, (i + 1) * size);
                let piece = |&&(_, start, position, length): &&(InstructionId, i64, i64, i64)| {
                    let (a, b) = (position.max(low), (position + length).min(high));
                    (a < b).then_some(Need { start: start + a - position, length: b - a, position: a - low })
                };
                pieces.iter().filter(|p| p.0 == from).collect::<Vec<_>>().iter().filter_map(piece).collect()
            };
            (0..shards).map(of).collect()
        };
        let wanted = self.wanted_array(at);
        let assignment = self.choose(&rule, &parts, std::slice::from_ref(&wanted), &|b, a| {
            let mut cost = 0.0;
            for (i, part) in parts.iter().enumerate() {
                let spec = rule.operand(i, a, AxisSet::EMPTY);
                if !spec.dims[dim].is_empty() && !part.spec.dims[dim].is_empty() {
                    cost += b.needs_cost(part, &spec, dim, &needs(b.axes().product(&spec.dims[dim]), sources[i]));
                }
            }
            Some(cost)
        });
        let manual = self.manual_of(&parts, &wanted);
        let spec = rule.result(0, &assignment, manual);
        let list: AxisList = spec.dims[dim];
        if list.is_empty() {
            let mut ids = Vec::new();
            for &(from, start, _, length) in pieces {
                let n = sources.iter().position(|&s| s == from).unwrap_or(0);
                let id = self.reshard(&parts[n], &rule.operand(n, &assignment, manual))?;
                ids.push(self.slice_dim(id, dim, start, start + length, 1)?);
            }
            let id = self.add(Op::Concatenate { dimension: dim as i64 }, &ids)?;
            return Ok(self.array(id, shape, spec));
        }
        let zero = self.zero(shape.element_type)?;
        let shards = self.axes().product(&list);
        let size = shard_size(shape.dims()[dim], shards);
        let mut result: Option<InstructionId> = None;
        for (n, part) in parts.iter().enumerate() {
            let mut form = rule.operand(n, &assignment, manual);
            // What every device has is read without sending.
            if part.spec.dims[dim].is_empty() && part.free.is_none() {
                form.dims[dim].clear();
            }
            let local = Part { free: None, ..self.resharded(part, &form)? };
            let needed = needs(shards, sources[n]);
            let window = self.read_needs(&local, dim, &list, &needed, size, zero)?;
            result = Some(match result {
                None => window,
                Some(before) => self.merge_windows(before, window, dim, &list, &needed)?,
            });
        }
        let id = result.ok_or_else(|| self.error("a concatenation of nothing"))?;
        Ok(self.array(id, shape, spec))
    }

    /// `window` where it has what was needed, `before` elsewhere.
    fn merge_windows(
        &mut self,
        before: InstructionId,
        window: InstructionId,
        dim: usize,
        list: &[u8],
        needs: &[Vec<Need>],
    ) -> Emit<InstructionId> {
        use hloom_ir::attributes::ComparisonDirection::{Ge, Lt};
        let dims = self.dims(window);
        let index = self.coordinate(list)?;
        let position = self.iota(hloom_ir::ElementType::S32, &dims, dim)?;
        let most = needs.iter().map(Vec::len).max().unwrap_or(0);
        let mut result = before;
        for n in 0..most {
            let at = |f: &dyn Fn(&Need) -> i64| -> Vec<i32> {
                needs.iter().map(|l| l.get(n).map_or(0, |need| f(need) as i32)).collect()
            };
            let begin = self.lookup(&at(&|n| n.position), index)?;
            let begin = self.broadcast(begin, &dims, &[])?;
            let end = self.lookup(&at(&|n| n.position + n.length), index)?;
            let end = self.broadcast(end, &dims, &[])?;
            let after = self.compare(Ge, position, begin)?;
            let before = self.compare(Lt, position, end)?;
            let inside = self.binary(hloom_ir::op::BinaryOp::And, after, before)?;
            result = self.select(inside, window, result)?;
        }
        Ok(result)
    }

    /// Whether a slice takes a range of `dim` and all of the others.
    fn slices_only(&self, at: InstructionId, slices: &[SliceDim], dim: usize) -> bool {
        let operand = self.p.source[at].operands()[0];
        let Some(array) = self.p.source[operand].shape.as_array() else { return false };
        slices
            .iter()
            .zip(array.dims())
            .enumerate()
            .all(|(d, (s, &n))| s.stride == 1 && (d == dim || (s.start == 0 && s.limit == n)))
    }

    pub(crate) fn reversed(&mut self, at: InstructionId, dimensions: &DimVec) -> Emit<Val> {
        let operand = self.p.source[at].operands()[0];
        let part = self.linear_part(operand)?;
        let shape = self.array_shape(at)?;
        if shape.element_count() == Some(0) {
            return self.compute_whole(at);
        }
        let mut rule = Rule::default();
        let dims: FactorDims = part.shape.dims().iter().map(|&n| rule.factor(n, FactorKind::Pass)).collect();
        rule.operands = smallvec![dims.clone()];
        rule.results = smallvec![dims];
        let changed: Vec<usize> = dimensions.iter().map(|&d| d as usize).collect();
        let window = |shards: i64, d: usize| {
            let n = shape.dims()[d];
            let size = shard_size(n, shards);
            ((0..shards).map(|i| n - (i + 1) * size).collect::<Vec<i64>>(), size)
        };
        let wanted = self.wanted_array(at);
        let keep = self.keep_for(&part, &wanted);
        let (chosen, goal) = self.set_aside(&part, &wanted, keep);
        let assignment = self.choose(&rule, &[chosen], &[goal], &|b, a| {
            b.windows_cost(&rule, a, &part, &changed, keep, &|shards, d| {
                let (starts, size) = window(shards, d);
                window_needs(&starts, size, shape.dims()[d])
            })
        });
        let manual = self.manual_of(std::slice::from_ref(&part), &wanted);
        let spec = rule.operand(0, &assignment, manual).with_partial(keep, Reduction::Sum);
        let mut local = self.resharded(&part, &spec)?;
        local.free = None;
        let zero = self.zero(shape.element_type)?;
        // Where another order of devices is stated, it may be the mirrored one: elements are put right within the shards
        // as they lie, and then the shards change places, or do not. Along several dimensions in whole shards, these change
        // places once, instead of once for each.
        let is_whole = |d: usize| {
            let shards = self.axes().product(&spec.dims[d]);
            shards > 1 && shape.dims()[d] % shards == 0
        };
        let off_grid = self.is_off_grid(at);
        let several = changed.iter().filter(|&&d| is_whole(d)).count() > 1;
        let mirrored: Vec<usize> = changed.iter().copied().filter(|&d| off_grid || several && is_whole(d)).collect();
        for &d in &changed {
            let list = spec.dims[d];
            if !list.is_empty() {
                let (mut starts, size) = window(self.axes().product(&list), d);
                if mirrored.contains(&d) {
                    starts.reverse();
                }
                local.id = self.read_window(&local, d, &list, &starts, size, zero)?;
            }
        }
        let mut id = self.add(Op::Reverse { dimensions: dimensions.clone() }, &[local.id])?;
        let lists: Vec<AxisList> = mirrored.iter().map(|&d| spec.dims[d]).filter(|l| !l.is_empty()).collect();
        if !lists.is_empty() {
            let axes = self.axes();
            let mirror = |logical: i64| {
                lists
                    .iter()
                    .fold(logical, |n, l| axes.with_coordinate(n, l, axes.product(l) - 1 - axes.coordinate(n, l)))
            };
            let pairs = (0..axes.devices()).map(|n| (axes.device(n), axes.device(mirror(n)))).collect();
            id = self.permute(id, pairs, &lists.iter().flatten().copied().collect::<AxisList>())?;
        }
        Ok(self.array(id, shape, spec))
    }
}

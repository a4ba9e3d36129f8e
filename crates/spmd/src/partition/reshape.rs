//! Reshapes: which ways of lying on the devices survive a change of dimensions.
//!
//! Both shapes are read from the most significant dimension as products of common factors. The axes of a dimension cut
//! its factors from the first on; they survive where the other shape's dimensions are cut from their first factor on, too.

use super::Emit;
use super::axes::{AxisList, AxisSet, DeviceAxes};
use super::body::{Body, Val};
use super::spec::Spec;
use super::windows::Recut;
use hloom_ir::entity::InstructionId;
use hloom_ir::shape::ArrayShape;
use hloom_ir::{ElementType, Op};
use smallvec::SmallVec;
use std::sync::Arc;

/// The factors of each dimension of two shapes of as many elements; a factor is a number into the list of sizes.
struct Factoring {
    sizes: SmallVec<[i64; 8]>,
    from: SmallVec<[Factors; 4]>,
    to: SmallVec<[Factors; 4]>,
}

/// The factors of a dimension.
type Factors = SmallVec<[usize; 2]>;

fn factoring(from: &[i64], to: &[i64]) -> Factoring {
    let none = |dims: &[i64]| dims.iter().map(|_| Factors::new()).collect();
    let mut result = Factoring { sizes: SmallVec::new(), from: none(from), to: none(to) };
    let (mut i, mut j) = (0, 0);
    // What is left of the dimensions at hand; 1 when a new one is due.
    let (mut a, mut b) = (1, 1);
    loop {
        // Dimensions of size 1 have no factors.
        while a == 1 && i < from.len() {
            a = from[i];
            i += 1;
        }
        while b == 1 && j < to.len() {
            b = to[j];
            j += 1;
        }
        if a == 1 && b == 1 {
            return result;
        }
        let small = a.min(b);
        if a % small == 0 && b % small == 0 {
            result.sizes.push(small);
            let f = result.sizes.len() - 1;
            result.from[i - 1].push(f);
            result.to[j - 1].push(f);
            a /= small;
            b /= small;
            continue;
        }
        // They go apart: what is common first, then each side by itself until the products meet again.
        let common = gcd(a, b);
        if common > 1 {
            result.sizes.push(common);
            let f = result.sizes.len() - 1;
            result.from[i - 1].push(f);
            result.to[j - 1].push(f);
            a /= common;
            b /= common;
        }
        let (mut left, mut right) = (a, b);
        result.sizes.push(a);
        result.from[i - 1].push(result.sizes.len() - 1);
        result.sizes.push(b);
        result.to[j - 1].push(result.sizes.len() - 1);
        while left != right {
            if left < right && i < from.len() {
                left = left.saturating_mul(from[i]);
                result.sizes.push(from[i]);
                result.from[i].push(result.sizes.len() - 1);
                i += 1;
            } else if j < to.len() {
                right = right.saturating_mul(to[j]);
                result.sizes.push(to[j]);
                result.to[j].push(result.sizes.len() - 1);
                j += 1;
            } else {
                break;
            }
        }
        (a, b) = (1, 1);
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The part of `spec` that survives, on both sides of the reshape.
pub(crate) fn map_spec(axes: &DeviceAxes, from: &[i64], to: &[i64], spec: &Spec) -> (Spec, Spec) {
    let factors = factoring(from, to);
    let shared: SmallVec<[bool; 8]> = (0..factors.sizes.len())
        .map(|f| factors.from.iter().any(|d| d.contains(&f)) && factors.to.iter().any(|d| d.contains(&f)))
        .collect();
    let mut cut: SmallVec<[AxisList; 8]> = SmallVec::from_elem(AxisList::new(), factors.sizes.len());
    for (d, list) in spec.dims.iter().enumerate() {
        let mut rest = list.iter().copied();
        let mut next = rest.next();
        let dim = &factors.from[d];
        // One dimension to one: it may be cut unevenly.
        let alone = dim.len() == 1 && shared[dim[0]] && factors.to.iter().any(|t| t[..] == dim[..]);
        for &f in dim {
            if !shared[f] {
                break;
            }
            while let Some(axis) = next {
                let product = axes.product(&cut[f]) * axes.size(axis);
                if !alone && factors.sizes[f] % product != 0 {
                    break;
                }
                cut[f].push(axis);
                next = rest.next();
            }
            if axes.product(&cut[f]) != factors.sizes[f] {
                break;
            }
        }
    }
    // On either side a factor may be cut only if those before it in its dimension are cut up.
    loop {
        let mut changed = false;
        for dims in [&factors.from, &factors.to] {
            for dim in dims {
                let mut open = true;
                for &f in dim {
                    if !open && !cut[f].is_empty() {
                        cut[f].clear();
                        changed = true;
                    }
                    open &= axes.product(&cut[f]) == factors.sizes[f];
                }
            }
        }
        if !changed {
            break;
        }
    }
    let side = |dims: &[Factors]| {
        let list = |dim: &Factors| dim.iter().flat_map(|&f| cut[f].iter().copied()).collect::<AxisList>();
        Spec { dims: dims.iter().map(list).collect::<SmallVec<[AxisList; 4]>>(), ..spec.clone() }
    };
    (side(&factors.from), side(&factors.to))
}

/// A run of dimensions before and after a reshape: how it is cut, and the elements of a shard.
struct Exchange {
    before: AxisList,
    now: i64,
    after: AxisList,
    then: i64,
    elements: i64,
}

impl Exchange {
    /// Whether devices have what they need.
    fn is_local(&self) -> bool {
        self.before == self.after && self.now == self.then
    }
}

/// Dimensions of two shapes that hold the same elements between them, as few at a time as may be.
struct Run {
    from: Vec<usize>,
    to: Vec<usize>,
    elements: i64,
}

fn runs(from: &[i64], to: &[i64]) -> Vec<Run> {
    let mut result = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < from.len() || j < to.len() {
        let mut run = Run { from: Vec::new(), to: Vec::new(), elements: 1 };
        let (mut left, mut right) = (1i64, 1i64);
        loop {
            if i < from.len() && (run.from.is_empty() || left < right) {
                left = left.saturating_mul(from[i]);
                run.from.push(i);
                i += 1;
            } else if j < to.len() && (run.to.is_empty() || right < left) {
                right = right.saturating_mul(to[j]);
                run.to.push(j);
                j += 1;
            } else {
                break;
            }
        }
        run.elements = left.max(right);
        result.push(run);
    }
    result
}

/// The axes that cut a run of dimensions, and the elements of a shard, if only its first dimension of more than one
/// element is cut: then shards are ranges of the run.
fn range_of(axes: &DeviceAxes, sizes: &[i64], run: &[usize], spec: &Spec) -> Option<(AxisList, i64)> {
    let mut real = run.iter().copied().filter(|&d| sizes[d] != 1);
    let cut = run.iter().copied().filter(|&d| !spec.dims[d].is_empty());
    let first = real.next();
    if cut.clone().any(|d| Some(d) != first) {
        return None;
    }
    let Some(first) = first else { return Some((AxisList::new(), 1)) };
    let inner: i64 = real.map(|d| sizes[d]).product();
    let list = spec.dims[first];
    Some((list, super::spec::shard_size(sizes[first], axes.product(&list)) * inner))
}

impl Body<'_, '_> {
    /// How to get from one form to another across a reshape by sending each device the elements that it lacks, and the
    /// bytes that this sends. Every run of dimensions is cut in ranges, on both sides.
    fn exchanged(&self, from: &[i64], to: &[i64], spec: &Spec, goal: &Spec, bits: u32) -> Option<(f64, Vec<Exchange>)> {
        let mut steps = Vec::new();
        let mut wire = 0.0;
        let mut local: Vec<i64> = Vec::new();
        for run in runs(from, to) {
            let (before, now) = range_of(self.axes(), from, &run.from, spec)?;
            let (after, then) = range_of(self.axes(), to, &run.to, goal)?;
            local.push(now);
            steps.push(Exchange { before, now, after, then, elements: run.elements });
        }
        for k in 0..steps.len() {
            let step = &steps[k];
            if step.is_local() {
                continue;
            }
            // Devices that differ along axes of another run have other elements of it.
            let others = (0..steps.len()).filter(|&o| o != k);
            let taken = others.fold(spec.partial.union(spec.manual), |set, o| {
                set.union(AxisSet::of(&steps[o].before)).union(AxisSet::of(&steps[o].after))
            });
            if !AxisSet::of(&step.after).intersection(taken).is_empty() {
                return None;
            }
            let row: f64 = local.iter().enumerate().filter(|&(o, _)| o != k).map(|(_, &n)| n as f64).product();
            let recut = Recut::ranges(self.axes(), step.elements, &step.before, &step.after, step.then);
            wire += recut.sent_of(self.axes(), step.now, &step.before) as f64 * row * f64::from(bits) / 8.0;
            local[k] = step.then;
        }
        Some((wire, steps))
    }

    /// The shards of a reshape's result, by sending what devices lack.
    fn exchange(
        &mut self,
        part: &super::body::Part,
        spec: &Spec,
        steps: &[Exchange],
        goal: &Spec,
        shape: &Arc<ArrayShape>,
    ) -> Emit<InstructionId> {
        let id = self.reshard(part, spec)?;
        let mut dims: Vec<i64> = steps.iter().map(|s| s.now).collect();
        let mut id = self.reshape(id, &dims)?;
        let zero = self.zero(shape.element_type)?;
        for (k, step) in steps.iter().enumerate() {
            if step.is_local() {
                continue;
            }
            let recut = Recut::ranges(self.axes(), step.elements, &step.before, &step.after, step.then);
            let whole = Arc::new(ArrayShape::new(shape.element_type, steps.iter().map(|s| s.elements)));
            let lists = steps.iter().map(|s| s.before);
            let flat = super::body::Part { id, shape: whole, spec: Spec::tiled(lists), free: None };
            id = self.read_needs(&flat, k, &recut.list, &recut.needs, step.then, zero)?;
            dims[k] = step.then;
        }
        let local = goal.local_dims(self.axes(), shape.dims());
        self.reshape(id, &local)
    }

    /// The same elements under other dimensions.
    pub(crate) fn reshaped(&mut self, at: InstructionId) -> Emit<Val> {
        let operand = self.p.source[at].operands()[0];
        let shape = self.array_shape(at)?;
        let part = self.linear_part(operand)?;
        let same = part.shape.element_type == shape.element_type && part.shape.element_count() == shape.element_count();
        if !same || shape.element_count() == Some(0) {
            return self.compute_whole(at);
        }
        let wanted = self.wanted_array(at);
        let keep = part.spec.partial;
        let keep = if keep.intersection(wanted.used()).is_empty() { keep } else { AxisSet::EMPTY };
        let reduction = part.spec.reduction;
        let (from, to) = (part.shape.dims().to_vec(), shape.dims().to_vec());
        let mut candidates: Vec<(Spec, Spec)> = Vec::new();
        let forms: Vec<Spec> =
            [part.spec.clone()].into_iter().chain(self.variants.of(&part).iter().map(|v| v.0.clone())).collect();
        let (after, before) = map_spec(self.axes(), &to, &from, &wanted.complete());
        candidates.push((before, after));
        for form in forms {
            candidates.push(map_spec(self.axes(), &from, &to, &form.complete()));
        }
        let mut best: Option<(f64, Spec, Spec)> = None;
        for (before, after) in candidates {
            let before = Spec { manual: part.spec.manual, ..before }.with_partial(keep, reduction);
            let after = Spec { manual: part.spec.manual, ..after }.with_partial(keep, reduction);
            if !before.used().intersection(keep).is_empty() {
                continue;
            }
            let bits = shape.element_type.bits();
            let goal = if keep.is_empty() { wanted.clone() } else { wanted.complete().with_partial(keep, reduction) };
            let goal = Spec { manual: part.spec.manual, ..goal };
            let cost = self.reshard_cost(&part, &before) + self.plan_cost(&to, bits, &after, &goal).wire;
            if best.as_ref().is_none_or(|b| cost < b.0) {
                best = Some((cost, before, after));
            }
        }
        let Some((cost, before, after)) = best else { return self.compute_whole(at) };
        if cost > 0.0 && keep.is_empty() {
            let goal = Spec { manual: part.spec.manual, ..wanted.complete() };
            let start = part.spec.complete();
            let found = self.exchanged(&from, &to, &start, &goal, shape.element_type.bits());
            let extra = self.reshard_cost(&part, &start);
            if let Some((_, steps)) = found.filter(|(wire, _)| wire + extra < cost) {
                let id = self.exchange(&part, &start, &steps, &goal, &shape)?;
                return Ok(self.array(id, shape, goal));
            }
        }
        let id = self.reshard(&part, &before)?;
        let dims = after.local_dims(self.axes(), &to);
        let id = self.reshape(id, &dims)?;
        Ok(self.array(id, shape, after))
    }

    /// The same bits under another type.
    pub(crate) fn bitcast_converted(&mut self, at: InstructionId) -> Emit<Val> {
        let operand = self.p.source[at].operands()[0];
        let shape = self.array_shape(at)?;
        let part = self.part(operand)?;
        if part.shape.rank() == shape.rank() {
            return self.elementwise(at);
        }
        let mut rule = super::rule::Rule::default();
        let common = part.shape.rank().min(shape.rank());
        let dims: super::rule::FactorDims =
            shape.dims()[..common].iter().map(|&n| rule.factor(n, super::rule::FactorKind::Pass)).collect();
        let extend = |rank: usize| {
            let mut dims = dims.clone();
            dims.resize(rank, None);
            dims
        };
        rule.operands.push(extend(part.shape.rank()));
        rule.results.push(extend(shape.rank()));
        let complete = part.spec.complete();
        let part = self.resharded(&part, &complete)?;
        self.one_operand(at, &rule, part, AxisSet::EMPTY, shape, Op::BitcastConvert)
    }

    /// Whether a value of that type can hold a sum in parts.
    pub(crate) fn sums(element_type: ElementType) -> bool {
        element_type != ElementType::Pred
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(spec: &Spec) -> Vec<Vec<u8>> {
        spec.dims.iter().map(|l| l.to_vec()).collect()
    }

    fn grid() -> DeviceAxes {
        DeviceAxes::new(8, std::iter::empty(), &[])
    }

    fn spec(dims: &[&[u8]]) -> Spec {
        Spec::tiled(dims.iter().map(|l| AxisList::from_slice(l)))
    }

    #[test]
    fn a_split_keeps_the_major_part_and_a_merge_the_first_dimension() {
        let (before, after) = map_spec(&grid(), &[16, 6], &[4, 4, 6], &spec(&[&[0, 1, 2], &[]]));
        assert_eq!(lists(&after), [vec![0, 1], vec![2], vec![]]);
        assert_eq!(lists(&before), [vec![0, 1, 2], vec![]]);
        let (before, after) = map_spec(&grid(), &[4, 6], &[24], &spec(&[&[0], &[1]]));
        assert_eq!(lists(&after), [vec![0]], "the second is cut inside a block of the first");
        assert_eq!(lists(&before), [vec![0], vec![]]);
        let (_, after) = map_spec(&grid(), &[2, 6], &[12], &spec(&[&[0], &[1]]));
        assert_eq!(lists(&after), [vec![0, 1]]);
    }

    #[test]
    fn sizes_that_do_not_divide_keep_only_whole_dimensions() {
        let (_, after) = map_spec(&grid(), &[7, 4], &[7, 2, 2], &spec(&[&[0], &[1]]));
        assert_eq!(lists(&after), [vec![0], vec![1], vec![]]);
        let (_, after) = map_spec(&grid(), &[6, 4], &[4, 6], &spec(&[&[0], &[]]));
        assert_eq!(lists(&after), [vec![0], vec![]], "what they have in common is 2");
    }
}

//! Plans of resharding: from one way of lying on the devices to another, axis by axis.
//!
//! An axis of the target that the value is replicated over is sliced off first, which is free; parts are combined next, by
//! reduce-scatter where the target has tiles along their axes; then the device order is set right by one permute where it
//! must be, axes move between dimensions by all-to-all, and what the target is replicated over is gathered last. The
//! shards of a dimension nest in those along more axes where each of the larger divides into the smaller; a dimension in
//! which they do not is cut anew by sending the pieces that devices lack, or gathered whole, whichever sends less.

use super::axes::{AxisList, AxisSet, DeviceAxes};
use super::spec::{Reduction, Spec, shard_size};
use super::windows::Recut;
use smallvec::SmallVec;
use std::borrow::Cow;

/// One step of a plan.
#[derive(Clone, PartialEq, Debug)]
pub enum ReshardStep {
    /// Each device keeps its piece of dimension `dim` along `axes`, which are appended to its list.
    Slice {
        /// The dimension.
        dim: usize,
        /// The axes.
        axes: AxisList,
    },
    /// Parts are combined.
    AllReduce {
        /// Over these axes.
        axes: AxisList,
        /// In this way.
        reduction: Reduction,
    },
    /// Parts are combined, and each device keeps its piece of dimension `dim`.
    ReduceScatter {
        /// The dimension.
        dim: usize,
        /// The axes.
        axes: AxisList,
        /// The way of combining.
        reduction: Reduction,
    },
    /// Devices exchange their shards; the tiles are as many in each dimension as before.
    Permute {
        /// The new lists.
        to: SmallVec<[AxisList; 4]>,
    },
    /// The last axes of dimension `from` become the last of dimension `to`.
    AllToAll {
        /// Where they are.
        from: usize,
        /// Where they go.
        to: usize,
        /// The axes.
        axes: AxisList,
    },
    /// The last axes of dimension `dim` vanish.
    AllGather {
        /// The dimension.
        dim: usize,
        /// The axes.
        axes: AxisList,
    },
    /// The last axes of dimension `dim` become axes along which a sum lies: each device has its shard, and zeros.
    ToPartial {
        /// The dimension.
        dim: usize,
        /// The axes.
        axes: AxisList,
    },
    /// Dimension `dim` is cut along other axes, each device being sent what it lacks.
    Recut {
        /// The dimension.
        dim: usize,
        /// The new list.
        to: AxisList,
    },
}

/// The steps of a resharding, and what a device sends for them.
#[derive(Clone, Debug, Default)]
pub struct ReshardPlan {
    /// In order.
    pub steps: Vec<ReshardStep>,
    /// Bytes that a device sends, in a ring.
    pub wire: f64,
}

/// What a plan comes to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct PlanCost {
    /// Bytes that a device sends, in a ring.
    pub wire: f64,
    /// How many steps there are.
    pub steps: usize,
}

#[derive(Clone)]
struct Planner<'a> {
    axes: &'a DeviceAxes,
    sizes: &'a [i64],
    element_bytes: f64,
    current: Spec,
    cost: PlanCost,
    /// Whether a step is a permute.
    permutes: bool,
    /// The steps, where more is asked than what they cost: most plans are only compared with others.
    steps: Option<Vec<ReshardStep>>,
    /// A plan that sends as much is of no use, and is left unfinished.
    most: f64,
}

/// What is done about dimensions whose shards do not nest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stuck {
    /// Pieces are sent.
    Recut,
    /// They are gathered before axes move.
    GatherFirst,
    /// They are gathered after axes have moved.
    GatherLast,
}

/// The plan from `from` to `to` for an array of those sizes. What `to` leaves partial stays so.
pub fn plan(axes: &DeviceAxes, sizes: &[i64], element_bits: u32, from: &Spec, to: &Spec) -> ReshardPlan {
    let best = best(axes, sizes, element_bits, from, to, Some(Vec::new()));
    ReshardPlan { steps: best.steps.unwrap_or_default(), wire: best.cost.wire }
}

/// What that plan costs.
pub(crate) fn plan_cost(axes: &DeviceAxes, sizes: &[i64], element_bits: u32, from: &Spec, to: &Spec) -> PlanCost {
    best(axes, sizes, element_bits, from, to, None).cost
}

/// The planner that has come to `to` for the least, with the steps added to `steps` where these are kept.
fn best<'a>(
    axes: &'a DeviceAxes,
    sizes: &'a [i64],
    element_bits: u32,
    from: &Spec,
    to: &Spec,
    steps: Option<Vec<ReshardStep>>,
) -> Planner<'a> {
    let start = |most| Planner {
        axes,
        sizes,
        element_bytes: f64::from(element_bits) / 8.0,
        current: from.clone(),
        cost: PlanCost::default(),
        permutes: false,
        steps: steps.clone(),
        most,
    };
    let mut best = start(f64::INFINITY);
    if best.run(to, Stuck::GatherLast) {
        for stuck in [Stuck::GatherFirst, Stuck::Recut] {
            let mut other = start(best.cost.wire);
            other.run(to, stuck);
            if other.cost.wire < best.cost.wire {
                best = other;
            }
        }
    }
    if from.partial.is_empty() && best.permutes {
        start(best.cost.wire).slice_elsewhere(to, &mut best, 2);
    }
    best
}

impl<'a> Planner<'a> {
    fn bytes(&self) -> f64 {
        let local = self.sizes.iter().zip(&self.current.dims).map(|(&n, l)| shard_size(n, self.axes.product(l)) as f64);
        local.product::<f64>() * self.element_bytes
    }

    /// Whether shards of dimension `d` along `list` divide into shards along it and `more`.
    fn divides_on(&self, d: usize, list: &[u8], more: &[u8]) -> bool {
        list.is_empty() || shard_size(self.sizes[d], self.axes.product(list)) % self.axes.product(more) == 0
    }

    /// Whether dimension `d` gets from one list to the other by cutting and joining shards, in whatever order.
    fn nests(&self, d: usize, from: &[u8], to: &[u8]) -> bool {
        if from.is_empty() || to.is_empty() || from == to {
            return true;
        }
        let common = common_prefix(from, to);
        let set = AxisSet::of(from).union(AxisSet::of(to));
        self.sizes[d] % self.axes.set_product(set).max(1) == 0
            || (common == from.len() && self.divides_on(d, from, &to[common..]))
            || (common == to.len() && self.divides_on(d, to, &from[common..]))
    }

    /// By how much padding makes dimension `d` larger before it is cut along `list`.
    fn padded(&self, d: usize, list: &[u8]) -> f64 {
        let now = shard_size(self.sizes[d], self.axes.product(&self.current.dims[d])).max(1);
        let pieces = self.axes.product(list);
        (shard_size(now, pieces) * pieces) as f64 / now as f64
    }

    fn push(&mut self, step: ReshardStep) {
        let axes = self.axes;
        let before = if matches!(step, ReshardStep::Slice { .. }) { 0.0 } else { self.bytes() };
        match &step {
            ReshardStep::Slice { dim, axes: list } => self.current.dims[*dim].extend_from_slice(list),
            ReshardStep::AllReduce { axes: list, .. } => {
                let g = axes.product(list) as f64;
                self.cost.wire += 2.0 * (g - 1.0) / g * before;
                self.current.partial = self.current.partial.without(AxisSet::of(list));
            }
            ReshardStep::ReduceScatter { dim, axes: list, .. } => {
                let g = axes.product(list) as f64;
                self.cost.wire += (g - 1.0) / g * before * self.padded(*dim, list);
                self.current.partial = self.current.partial.without(AxisSet::of(list));
                self.current.dims[*dim].extend_from_slice(list);
            }
            ReshardStep::Permute { to } => {
                self.permutes = true;
                self.cost.wire += before;
                self.current.dims = SmallVec::from_slice(to);
            }
            ReshardStep::AllToAll { from, to, axes: list } => {
                let g = axes.product(list) as f64;
                self.cost.wire += (g - 1.0) / g * before * self.padded(*to, list);
                let keep = self.current.dims[*from].len() - list.len();
                self.current.dims[*from].truncate(keep);
                self.current.dims[*to].extend_from_slice(list);
            }
            ReshardStep::AllGather { dim, axes: list } => {
                let g = axes.product(list) as f64;
                self.cost.wire += (g - 1.0) * before;
                let keep = self.current.dims[*dim].len() - list.len();
                self.current.dims[*dim].truncate(keep);
            }
            ReshardStep::ToPartial { dim, axes: list } => {
                let keep = self.current.dims[*dim].len() - list.len();
                self.current.dims[*dim].truncate(keep);
                list.iter().for_each(|&a| self.current.partial.insert(a));
            }
            ReshardStep::Recut { dim, to } => {
                let (n, from) = (self.sizes[*dim], &self.current.dims[*dim]);
                let shard = shard_size(n, axes.product(from));
                let sent = Recut::new(axes, n, from, to).sent_of(axes, shard, from);
                self.cost.wire += sent as f64 * before / shard.max(1) as f64;
                self.current.dims[*dim] = *to;
            }
        }
        if self.current.partial.is_empty() {
            self.current.reduction = Reduction::Sum;
        }
        self.cost.steps += 1;
        if let Some(steps) = &mut self.steps {
            steps.push(step);
        }
    }

    /// Whether as much is sent already as the plan is not to.
    fn is_futile(&self) -> bool {
        self.cost.wire >= self.most
    }

    /// Plans the way to `to`; returns whether shards of a dimension do not nest, so that there are other ways.
    fn run(&mut self, to: &Spec, stuck: Stuck) -> bool {
        if self.current == *to {
            return false;
        }
        let rank = self.sizes.len();
        if self.current.partial.is_empty() && to.partial.is_empty() && self.same_counts(to) {
            self.push(ReshardStep::Permute { to: SmallVec::from_slice(&to.dims) });
            return false;
        }
        self.leave_partial(to);
        let mut apart: SmallVec<[bool; 8]> = SmallVec::from_elem(false, rank);
        let mut any_apart = false;
        for (d, apart) in apart.iter_mut().enumerate() {
            *apart = !self.nests(d, &self.current.dims[d], &to.dims[d]);
            any_apart |= *apart;
        }
        let mut target = Cow::Borrowed(to);
        for d in (0..rank).filter(|&d| apart[d]) {
            target.to_mut().dims[d].clear();
        }
        // What is replaced one for one is only permuted.
        let is_other = any_apart || !to.partial.is_empty();
        if is_other && self.current.partial.is_empty() && self.same_counts(&target) && self.current.dims != target.dims
        {
            self.push(ReshardStep::Permute { to: SmallVec::from_slice(&target.dims) });
        }
        self.slice(&target, to, &apart);
        self.reduce(&target);
        if self.is_futile() {
            return false;
        }
        for d in (0..rank).filter(|&d| apart[d]) {
            match stuck {
                Stuck::Recut if self.is_free_for(d, to) => {
                    self.push(ReshardStep::Recut { dim: d, to: to.dims[d] });
                    target.to_mut().dims[d] = to.dims[d];
                }
                Stuck::GatherLast => {}
                _ => {
                    let axes = self.current.dims[d];
                    if !axes.is_empty() {
                        self.push(ReshardStep::AllGather { dim: d, axes });
                    }
                    target.to_mut().dims[d] = to.dims[d];
                }
            }
        }
        if any_apart && stuck != Stuck::GatherLast {
            self.slice(&target, to, &[]);
        }
        self.rearrange(&target);
        for d in (0..rank).filter(|&d| apart[d]) {
            // Sliced last: the dimension is whole by now.
            if !to.dims[d].is_empty() && self.current.dims[d] != to.dims[d] {
                self.push(ReshardStep::Slice { dim: d, axes: to.dims[d] });
            }
        }
        any_apart
    }

    /// Shards become parts of a sum where one is wanted along their axes.
    fn leave_partial(&mut self, to: &Spec) {
        let fresh = to.partial.without(self.current.partial);
        if to.reduction != Reduction::Sum || fresh.is_empty() {
            return;
        }
        for d in 0..self.sizes.len() {
            let now = &self.current.dims[d];
            let tail = now.iter().rev().take_while(|&&a| fresh.has(a)).count();
            let (kept, gone) = now.split_at(now.len() - tail);
            if tail > 0 && self.divides_on(d, kept, gone) {
                let axes = AxisList::from_slice(gone);
                self.push(ReshardStep::ToPartial { dim: d, axes });
            }
        }
    }

    /// Whether no other dimension, and no sum, is along the axes that dimension `d` is to be cut along.
    fn is_free_for(&self, d: usize, to: &Spec) -> bool {
        let wanted = AxisSet::of(&to.dims[d]);
        let others = (0..self.sizes.len()).filter(|&o| o != d);
        let taken = others.fold(self.current.partial.union(to.partial).union(self.current.manual), |set, o| {
            set.union(AxisSet::of(&self.current.dims[o]))
        });
        wanted.intersection(taken).is_empty()
    }

    /// Better plans that begin by slicing other dimensions than the target's: what a permute exchanges anyway may come from
    /// wherever it makes shards as small and as many as they are to be. Up to `most` axes are tried elsewhere.
    fn slice_elsewhere(&self, to: &Spec, best: &mut Planner<'a>, most: usize) {
        let taken = self.current.used().union(self.current.manual).union(to.partial);
        let fresh = to.used().without(taken).list();
        for &axis in &fresh {
            for dim in (0..self.sizes.len()).filter(|&d| !to.dims[d].contains(&axis)) {
                let pieces = self.axes.product(&self.current.dims[dim]) * self.axes.size(axis);
                if self.sizes[dim] % pieces != 0 {
                    continue;
                }
                let mut sliced = self.clone();
                sliced.push(ReshardStep::Slice { dim, axes: AxisList::from_slice(&[axis]) });
                if most > 1 && fresh.len() > 1 {
                    sliced.slice_elsewhere(to, best, most - 1);
                }
                sliced.most = best.cost.wire;
                sliced.run(to, Stuck::GatherLast);
                if sliced.cost.wire < best.cost.wire && sliced.current == *to {
                    *best = sliced;
                }
            }
        }
    }

    fn same_counts(&self, target: &Spec) -> bool {
        // Axes have prime sizes: as many tiles are cut along axes of the same sizes.
        let count = |list: &AxisList| self.axes.product(list);
        self.current.dims.iter().zip(&target.dims).all(|(a, b)| count(a) == count(b))
    }

    /// Slices along the axes that are free, but for dimensions whose shards lie `apart`.
    fn slice(&mut self, target: &Spec, to: &Spec, apart: &[bool]) {
        let taken = self.current.used().union(self.current.partial).union(to.partial);
        if target.used().without(taken).is_empty() {
            return;
        }
        for d in (0..self.sizes.len()).filter(|&d| !apart.get(d).is_some_and(|&a| a)) {
            let fresh: AxisList = target.dims[d].iter().copied().filter(|&a| !taken.has(a)).collect();
            if !fresh.is_empty() && self.may_append(d, &fresh, target) {
                self.push(ReshardStep::Slice { dim: d, axes: fresh });
            }
        }
    }

    /// Whether dimension `d` may be cut along `more` on the way to the target: its shards nest in whatever order the axes
    /// come, or these are the next that it wants and the shards along them divide into what is wanted after them.
    fn may_append(&self, d: usize, more: &[u8], target: &Spec) -> bool {
        let (now, wanted) = (&self.current.dims[d], &target.dims[d]);
        let all = AxisSet::of(now).union(AxisSet::of(wanted));
        if self.sizes[d] % self.axes.set_product(all).max(1) == 0 {
            return true;
        }
        let list: AxisList = now.iter().chain(more).copied().collect();
        self.divides_on(d, now, more)
            && common_prefix(&list, wanted) == list.len()
            && self.divides_on(d, &list, &wanted[list.len()..])
    }

    /// Combines the parts.
    fn reduce(&mut self, target: &Spec) {
        let reduction = self.current.reduction;
        let due = self.current.partial.without(target.partial);
        if due.is_empty() {
            return;
        }
        for d in 0..self.sizes.len() {
            let scatter: AxisList = target.dims[d].iter().copied().filter(|&a| due.has(a)).collect();
            if !scatter.is_empty() && self.may_append(d, &scatter, target) {
                self.push(ReshardStep::ReduceScatter { dim: d, axes: scatter, reduction });
            }
        }
        let rest = self.current.partial.without(target.partial).list();
        if !rest.is_empty() {
            self.push(ReshardStep::AllReduce { axes: rest, reduction });
        }
    }

    /// Moves and gathers until the lists are the target's.
    fn rearrange(&mut self, target: &Spec) {
        if self.settle(target) {
            return;
        }
        let to = self.ordered(target);
        if to != self.current.dims {
            self.push(ReshardStep::Permute { to });
        }
        if self.is_futile() || self.settle(target) {
            return;
        }
        // Sizes that do not pair up: gather what is not in its place, and cut anew.
        for d in 0..self.sizes.len() {
            let (now, wanted) = (&self.current.dims[d], &target.dims[d]);
            let keep = common_prefix(now, wanted);
            let nested =
                self.divides_on(d, &now[..keep], &now[keep..]) && self.divides_on(d, &wanted[..keep], &wanted[keep..]);
            let keep = if nested { keep } else { 0 };
            let rest: AxisList = self.current.dims[d][keep..].iter().copied().collect();
            if !rest.is_empty() {
                self.push(ReshardStep::AllGather { dim: d, axes: rest });
            }
        }
        for d in 0..self.sizes.len() {
            let have = self.current.dims[d].len();
            let rest: AxisList = target.dims[d][have..].iter().copied().collect();
            if !rest.is_empty() {
                self.push(ReshardStep::Slice { dim: d, axes: rest });
            }
        }
    }

    /// Moves by all-to-all and gathers as long as that leads on without a permute; nothing is done if it does not.
    fn settle(&mut self, target: &Spec) -> bool {
        // From which dimension axes go, and to which, if to one.
        let mut steps: SmallVec<[(usize, Option<usize>, AxisList); 4]> = SmallVec::new();
        let mut dims: SmallVec<[AxisList; 4]> = SmallVec::from_slice(&self.current.dims);
        let used = target.used();
        loop {
            if dims == target.dims {
                break;
            }
            if let Some((from, to, axes)) = self.movable(&dims, target) {
                let keep = dims[from].len() - axes.len();
                dims[from].truncate(keep);
                dims[to].extend_from_slice(&axes);
                steps.push((from, Some(to), axes));
                continue;
            }
            let gathered = (0..dims.len()).find_map(|d| {
                let tail = dims[d].iter().rev().take_while(|&&a| !used.has(a)).count();
                let (kept, gone) = dims[d].split_at(dims[d].len() - tail);
                (tail > 0 && self.divides_on(d, kept, gone))
                    .then(|| (d, AxisList::from_slice(&dims[d][dims[d].len() - tail..])))
            });
            let Some((dim, axes)) = gathered else { return false };
            let keep = dims[dim].len() - axes.len();
            dims[dim].truncate(keep);
            steps.push((dim, None, axes));
        }
        // Gathers of a dimension's axes one after another are one.
        for (from, to, axes) in steps {
            self.push(match to {
                Some(to) => ReshardStep::AllToAll { from, to, axes },
                None => ReshardStep::AllGather { dim: from, axes },
            });
        }
        true
    }

    /// The last axes of a dimension that are the next of another.
    fn movable(&self, dims: &[AxisList], target: &Spec) -> Option<(usize, usize, AxisList)> {
        for to in 0..dims.len() {
            let have = dims[to].len();
            if target.dims[to].len() <= have || target.dims[to][..have] != dims[to][..] {
                continue;
            }
            let wanted = &target.dims[to][have..];
            for from in (0..dims.len()).filter(|&from| from != to) {
                for n in (1..=wanted.len().min(dims[from].len())).rev() {
                    let tail = &dims[from][dims[from].len() - n..];
                    if tail != &wanted[..n] {
                        continue;
                    }
                    let staying = AxisSet::of(&target.dims[from]).intersection(AxisSet::of(tail)).is_empty();
                    let nested = self.divides_on(from, &dims[from][..dims[from].len() - n], tail)
                        && self.divides_on(to, &dims[to], tail)
                        && (n == wanted.len() || self.divides_on(to, &target.dims[to][..have + n], &wanted[n..]));
                    if staying && nested {
                        return Some((from, to, AxisList::from_slice(tail)));
                    }
                }
            }
        }
        None
    }

    /// Lists with as many tiles per dimension as now, from which the target is reached without another permute.
    fn ordered(&self, target: &Spec) -> SmallVec<[AxisList; 4]> {
        let count = |list: &[u8]| self.axes.product(list);
        let mut placed = AxisSet::EMPTY;
        let mut lists: SmallVec<[AxisList; 4]> = SmallVec::new();
        for (now, wanted) in self.current.dims.iter().zip(&target.dims) {
            let capacity = count(now);
            let mut list = AxisList::new();
            for &a in wanted {
                if capacity % (count(&list) * self.axes.size(a)) != 0 {
                    break;
                }
                list.push(a);
                placed.insert(a);
            }
            lists.push(list);
        }
        // The rest fills up: first what vanishes, then what moves on, in the order in which it is wanted.
        let used = target.used();
        let mut rest: SmallVec<[u8; 16]> = SmallVec::new();
        let here = self.current.used();
        rest.extend(here.list().iter().copied().filter(|&a| !used.has(a)));
        for wanted in &target.dims {
            rest.extend(wanted.iter().copied().filter(|&a| !placed.has(a) && here.has(a)));
        }
        for (d, now) in self.current.dims.iter().enumerate() {
            let capacity = count(now);
            // Those that are here already, if they fit, else the first that fits.
            while count(&lists[d]) < capacity {
                let fits = |a: u8, list: &AxisList| capacity % (count(list) * self.axes.size(a)) == 0;
                let at = rest
                    .iter()
                    .position(|&a| now.contains(&a) && fits(a, &lists[d]))
                    .or_else(|| rest.iter().position(|&a| fits(a, &lists[d])));
                let Some(at) = at else { return self.current.dims.clone() };
                let axis = rest.remove(at);
                lists[d].push(axis);
            }
        }
        lists
    }
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

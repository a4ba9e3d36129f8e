//! Plans of resharding: from one way of lying on the devices to another, axis by axis.
//!
//! An axis of the target that the value is replicated over is sliced off first, which is free; parts are combined next, by
//! reduce-scatter where the target has tiles along their axes; then the device order is set right by one permute where it
//! must be, axes move between dimensions by all-to-all, and what the target is replicated over is gathered last. A
//! dimension whose size the tiles do not divide is gathered whole and cut anew: its shards do not nest.

use super::axes::{AxisList, AxisSet, DeviceAxes};
use super::spec::{Reduction, Spec, shard_size};
use smallvec::SmallVec;

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
}

/// The steps of a resharding, and what a device sends for them.
#[derive(Clone, Debug, Default)]
pub struct ReshardPlan {
    /// In order.
    pub steps: Vec<ReshardStep>,
    /// Bytes that a device sends, in a ring.
    pub wire: f64,
}

struct Planner<'a> {
    axes: &'a DeviceAxes,
    sizes: &'a [i64],
    element_bytes: f64,
    current: Spec,
    plan: ReshardPlan,
}

/// The plan from `from` to `to` for an array of those sizes. What `to` leaves partial stays so.
pub fn plan(axes: &DeviceAxes, sizes: &[i64], element_bits: u32, from: &Spec, to: &Spec) -> ReshardPlan {
    let element_bytes = f64::from(element_bits) / 8.0;
    let mut planner = Planner { axes, sizes, element_bytes, current: from.clone(), plan: ReshardPlan::default() };
    planner.run(to);
    planner.plan
}

impl Planner<'_> {
    fn bytes(&self) -> f64 {
        let local = self.current.local_dims(self.axes, self.sizes);
        local.iter().map(|&n| n as f64).product::<f64>() * self.element_bytes
    }

    /// Whether dimension `d` can be cut along any of these axes in nested shards.
    fn nests(&self, d: usize, lists: [&[u8]; 2]) -> bool {
        let set = AxisSet::of(lists[0]).union(AxisSet::of(lists[1]));
        self.sizes[d] % self.axes.set_product(set).max(1) == 0
    }

    fn divides(&self, d: usize, list: &[u8]) -> bool {
        self.sizes[d] % self.axes.product(list) == 0
    }

    fn push(&mut self, step: ReshardStep) {
        let before = self.bytes();
        let axes = self.axes;
        match &step {
            ReshardStep::Slice { dim, axes: list } => self.current.dims[*dim].extend_from_slice(list),
            ReshardStep::AllReduce { axes: list, .. } => {
                let g = axes.product(list) as f64;
                self.plan.wire += 2.0 * (g - 1.0) / g * before;
                self.current.partial = self.current.partial.without(AxisSet::of(list));
            }
            ReshardStep::ReduceScatter { dim, axes: list, .. } => {
                let g = axes.product(list) as f64;
                self.plan.wire += (g - 1.0) / g * before;
                self.current.partial = self.current.partial.without(AxisSet::of(list));
                self.current.dims[*dim].extend_from_slice(list);
            }
            ReshardStep::Permute { to } => {
                self.plan.wire += before;
                self.current.dims = to.clone();
            }
            ReshardStep::AllToAll { from, to, axes: list } => {
                let g = axes.product(list) as f64;
                self.plan.wire += (g - 1.0) / g * before;
                let keep = self.current.dims[*from].len() - list.len();
                self.current.dims[*from].truncate(keep);
                self.current.dims[*to].extend_from_slice(list);
            }
            ReshardStep::AllGather { dim, axes: list } => {
                let g = axes.product(list) as f64;
                self.plan.wire += (g - 1.0) * before;
                let keep = self.current.dims[*dim].len() - list.len();
                self.current.dims[*dim].truncate(keep);
            }
        }
        if self.current.partial.is_empty() {
            self.current.reduction = Reduction::Sum;
        }
        self.plan.steps.push(step);
    }

    fn run(&mut self, to: &Spec) {
        if self.current == *to {
            return;
        }
        let rank = self.sizes.len();
        if self.current.partial.is_empty() && to.partial.is_empty() && self.same_counts(to) {
            self.push(ReshardStep::Permute { to: to.dims.clone() });
            return;
        }
        // Dimensions whose shards do not nest can only be gathered whole.
        let whole: Vec<bool> = (0..rank)
            .map(|d| self.current.dims[d] != to.dims[d] && !self.nests(d, [&self.current.dims[d], &to.dims[d]]))
            .collect();
        let mut target = to.clone();
        for d in (0..rank).filter(|&d| whole[d]) {
            target.dims[d].clear();
        }
        // What is replaced one for one is only permuted.
        if self.current.partial.is_empty() && self.same_counts(&target) && self.current.dims != target.dims {
            self.push(ReshardStep::Permute { to: target.dims.clone() });
        }
        self.slice(&target, to, &whole);
        self.reduce(&target);
        self.rearrange(&target);
        for d in (0..rank).filter(|&d| whole[d]) {
            // Sliced last: the dimension is whole by now.
            if !to.dims[d].is_empty() {
                self.push(ReshardStep::Slice { dim: d, axes: to.dims[d].clone() });
            }
        }
    }

    fn same_counts(&self, target: &Spec) -> bool {
        let count = |list: &AxisList| self.axes.product(list);
        let sizes = |spec: &Spec| {
            let mut sizes: Vec<i64> = spec.used().list().iter().map(|&a| self.axes.size(a)).collect();
            sizes.sort_unstable();
            sizes
        };
        self.current.dims.iter().zip(&target.dims).all(|(a, b)| count(a) == count(b))
            && sizes(&self.current) == sizes(target)
    }

    /// Slices along the axes that are free.
    fn slice(&mut self, target: &Spec, to: &Spec, whole: &[bool]) {
        let taken = self.current.used().union(self.current.partial).union(to.partial);
        for d in (0..self.sizes.len()).filter(|&d| !whole[d]) {
            let fresh: AxisList = target.dims[d].iter().copied().filter(|&a| !taken.has(a)).collect();
            if !fresh.is_empty() {
                self.push(ReshardStep::Slice { dim: d, axes: fresh });
            }
        }
    }

    /// Combines the parts.
    fn reduce(&mut self, target: &Spec) {
        let reduction = self.current.reduction;
        let due = self.current.partial.without(target.partial);
        for d in 0..self.sizes.len() {
            let scatter: AxisList = target.dims[d].iter().copied().filter(|&a| due.has(a)).collect();
            if !scatter.is_empty() {
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
        if self.settle(target) {
            return;
        }
        // Sizes that do not pair up: gather what is not in its place, and cut anew.
        for d in 0..self.sizes.len() {
            let nested = self.divides(d, &self.current.dims[d]) || self.current.dims[d] == target.dims[d];
            let keep = if nested { common_prefix(&self.current.dims[d], &target.dims[d]) } else { 0 };
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
        let mut steps = Vec::new();
        let mut dims = self.current.dims.clone();
        loop {
            if dims == target.dims {
                break;
            }
            if let Some((from, to, axes)) = self.movable(&dims, target) {
                let keep = dims[from].len() - axes.len();
                dims[from].truncate(keep);
                dims[to].extend_from_slice(&axes);
                steps.push(ReshardStep::AllToAll { from, to, axes });
                continue;
            }
            let used = target.used();
            let gathered = (0..dims.len()).find_map(|d| {
                let tail = dims[d].iter().rev().take_while(|&&a| !used.has(a)).count();
                (tail > 0 && (tail == dims[d].len() || self.divides(d, &dims[d])))
                    .then(|| (d, AxisList::from_slice(&dims[d][dims[d].len() - tail..])))
            });
            let Some((dim, axes)) = gathered else { return false };
            let keep = dims[dim].len() - axes.len();
            dims[dim].truncate(keep);
            steps.push(ReshardStep::AllGather { dim, axes });
        }
        // Gathers of a dimension's axes one after another are one.
        for step in steps {
            self.push(step);
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
                    let staying = AxisSet::of(&target.dims[from]).intersection(AxisSet::of(tail)).is_empty();
                    let local = shard_size(self.sizes[to], self.axes.product(&dims[to]));
                    let nested = n == dims[from].len() || self.divides(from, &dims[from]);
                    if tail == &wanted[..n] && staying && nested && local % self.axes.product(tail) == 0 {
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
        let mut rest: Vec<u8> = Vec::new();
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

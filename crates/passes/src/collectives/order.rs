//! An order in which collectives run beside computations: begun as soon as what they send is there, needed late.
//!
//! For machines that come to a collective where it stands in the list and wait for it before the first step that needs it.
//! The list is made by going through the program as such a machine would, with rough times: of what is ready, a collective
//! is begun first, the one with most to do behind it before others; then comes the next step in the program's own order
//! whose values have arrived, those that would be the first to need a collective after some others, since nobody knows how
//! long it takes. Steps leave their places by a limited distance only, and few collectives are under way at once; an
//! order that takes noticeably more memory than the program's own is not taken. It applies to modules without a schedule
//! whose control dependencies say all that an order must keep (after `copy-insertion`); what talks to the world outside
//! stays in its order.

use crate::pass::{Context, Pass};
use hloom_analysis::cost::shape_bytes;
use hloom_analysis::effects::{has_side_effect, instructions_with};
use hloom_cost::CostModel;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_target::Target;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The pass.
pub static PASS: Pass = Pass {
    name: "order-collectives",
    statement: "puts collectives early and what needs them late, so that they run beside computations",
    keeps_schedule: true,
    run: |module: &mut Module, context: &Context<'_>| {
        Ok(order_all(module, context.target())) as Result<usize, Diagnostic>
    },
};

/// How far a step may come before one that stands before it.
const WINDOW: usize = 64;
/// How many places a step is put off that would be the first to need a collective.
const PUT_OFF: u32 = 16;
/// Collectives that are under way at once, at most.
const UNDER_WAY: usize = 4;
/// And their bytes, if there is more than one.
const BYTES_UNDER_WAY: u64 = 64 << 20;
/// By how much the memory of what lies between instructions may grow.
const GROWTH: f64 = 1.02;
/// Seconds of what runs other computations: long enough for anything.
const CALL: f64 = 1e-3;

fn order_all(module: &mut Module, target: &Target) -> usize {
    if module.is_scheduled {
        return 0;
    }
    let computations = module.computations().iter().copied().filter(|&c| has_collectives(module, c));
    let computations: Vec<ComputationId> = computations.collect();
    if computations.is_empty() {
        return 0;
    }
    let Some(seconds) = seconds(module, target) else { return 0 };
    let (effects, _) = instructions_with(module, has_side_effect);
    let mut changes = 0;
    for c in computations {
        let order = List::new(module, c, &effects, &seconds).and_then(|list| list.order());
        let listed = module[c].instructions();
        let most = GROWTH * peak_bytes(module, listed) as f64;
        let fits = |o: &Vec<InstructionId>| o.as_slice() != listed && peak_bytes(module, o) as f64 <= most;
        let Some(order) = order.filter(fits) else { continue };
        changes += usize::from(module.reorder(c, order).is_ok());
    }
    changes
}

/// Bytes of values between instructions that are live at once, at most, in that order.
fn peak_bytes(module: &Module, order: &[InstructionId]) -> u64 {
    let place: FxHashMap<InstructionId, usize> = order.iter().copied().zip(0..).collect();
    let is_counted = |i: InstructionId| {
        let op = &module[i].op;
        !matches!(op, Op::Parameter { .. } | Op::Constant(_) | Op::Tuple | Op::GetTupleElement { .. } | Op::Bitcast)
    };
    // What another name is used by uses the value itself.
    let mut last: Vec<usize> = (0..order.len()).collect();
    for (n, &i) in order.iter().enumerate().rev() {
        let until = if is_counted(i) { n } else { last[n] };
        for p in module[i].operands().iter().filter_map(|o| place.get(o)) {
            last[*p] = last[*p].max(until);
        }
    }
    let mut ends: Vec<u64> = vec![0; order.len()];
    let (mut live, mut peak) = (0u64, 0u64);
    for (n, &i) in order.iter().enumerate() {
        if is_counted(i) {
            let bytes = shape_bytes(&module[i].shape);
            live = live.saturating_add(bytes);
            ends[last[n]] = ends[last[n]].saturating_add(bytes);
        }
        peak = peak.max(live);
        live = live.saturating_sub(ends[n]);
    }
    peak
}

fn is_collective(op: &Op) -> bool {
    op.collective().is_some() || matches!(op, Op::CollectivePermute(_))
}

/// Seconds of every instruction of the computations that have collectives; nothing where the machine has no rates.
fn seconds(module: &Module, target: &Target) -> Option<SideTable<InstructionId, f64>> {
    let model = CostModel::new(module, target).ok()?;
    let link = target.links.first()?;
    let mut seconds = SideTable::with_len(module.instruction_slots(), 0.0);
    for &c in module.computations().iter().filter(|&&c| has_collectives(module, c)) {
        for &i in module[c].instructions() {
            let op = &module[i].op;
            let time = match op {
                op if is_collective(op) => {
                    let sent = shape_bytes(&module[i].shape) as f64 / (link.bandwidth * link.efficiency);
                    link.start_seconds + link.latency_seconds + sent
                }
                Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } => CALL,
                _ => model.instruction(i).map_or(0.0, |cost| cost.seconds),
            };
            seconds.set(i, time);
        }
    }
    Some(seconds)
}

fn has_collectives(module: &Module, c: ComputationId) -> bool {
    module[c].instructions().iter().any(|&i| is_collective(&module[i].op))
}

/// The instructions of a computation by their places in its list.
struct List<'m> {
    module: &'m Module,
    instructions: Vec<InstructionId>,
    followers: Vec<Vec<u32>>,
    /// The collectives that each has operands from.
    exchanged: Vec<Vec<u32>>,
    /// How many each waits for.
    needs: Vec<u32>,
    seconds: Vec<f64>,
    /// Seconds from the beginning of each to the end of all that follow from it.
    behind: Vec<f64>,
}

/// What is to come next first: of collectives those with most behind them, else those that stand first.
type Heap<T> = BinaryHeap<(T, Reverse<u32>)>;

/// A time, to be compared.
#[derive(Clone, Copy, PartialEq)]
struct Time(f64);
impl Eq for Time {}
impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Time) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Time {
    fn cmp(&self, other: &Time) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl<'m> List<'m> {
    /// `None` where the list is not one in which everything comes after what it needs.
    fn new(
        module: &'m Module,
        c: ComputationId,
        effects: &SideTable<InstructionId, bool>,
        seconds: &SideTable<InstructionId, f64>,
    ) -> Option<List<'m>> {
        let instructions = module[c].instructions().to_vec();
        let place: FxHashMap<InstructionId, u32> = instructions.iter().copied().zip(0..).collect();
        let (mut followers, mut needs) = (vec![Vec::new(); instructions.len()], vec![0; instructions.len()]);
        let mut exchanged = vec![Vec::new(); instructions.len()];
        let mut last_effect = None;
        for (n, &i) in (0u32..).zip(&instructions) {
            let operands = module[i].operands().iter().chain(module[i].common.control_predecessors());
            let mut before = operands.map(|o| place.get(o).copied()).collect::<Option<Vec<u32>>>()?;
            if effects[i] {
                before.extend(last_effect.replace(n));
            }
            before.sort_unstable();
            before.dedup();
            if before.last().is_some_and(|&b| b >= n) {
                return None;
            }
            let is_exchanged = |&&b: &&u32| is_collective(&module[instructions[b as usize]].op);
            exchanged[n as usize] = before.iter().filter(is_exchanged).copied().collect();
            needs[n as usize] = before.len() as u32;
            before.iter().for_each(|&b| followers[b as usize].push(n));
        }
        let seconds: Vec<f64> = instructions.iter().map(|&i| seconds[i]).collect();
        let mut behind = seconds.clone();
        for n in (0..instructions.len()).rev() {
            behind[n] += followers[n].iter().map(|&f| behind[f as usize]).fold(0.0, f64::max);
        }
        Some(List { module, instructions, followers, exchanged, needs, seconds, behind })
    }

    fn is_collective(&self, n: u32) -> bool {
        is_collective(&self.module[self.instructions[n as usize]].op)
    }

    fn bytes(&self, n: u32) -> u64 {
        shape_bytes(&self.module[self.instructions[n as usize]].shape)
    }

    /// Goes through the program; `None` if something is left over.
    fn order(mut self) -> Option<Vec<InstructionId>> {
        let count = self.instructions.len();
        let mut run = Run::new(count);
        for n in (0..count as u32).filter(|&n| self.needs[n as usize] == 0) {
            run.waiting.push(Reverse((Time(0.0), n)));
        }
        while run.order.len() < count {
            run.look(&self);
            let n = run.next(&self)?;
            run.take(&self, n);
            for &f in &self.followers[n as usize] {
                let needs = &mut self.needs[f as usize];
                *needs -= 1;
                let arrives = &mut run.arrives[f as usize];
                *arrives = arrives.max(run.done[n as usize]);
                if *needs == 0 {
                    run.waiting.push(Reverse((Time(*arrives), f)));
                }
            }
        }
        Some(run.order.iter().map(|&n| self.instructions[n as usize]).collect())
    }
}

/// A device on its way through the list.
struct Run {
    order: Vec<u32>,
    now: f64,
    network_is_free: f64,
    /// What has all it needs, or will have when collectives are done, by when.
    waiting: BinaryHeap<Reverse<(Time, u32)>>,
    /// What can be begun without a wait.
    steps: Heap<()>,
    /// The same, but the first to need a collective.
    first_users: Heap<()>,
    collectives: Heap<Time>,
    /// When what each needs has arrived, and when what it makes is there.
    arrives: Vec<f64>,
    done: Vec<f64>,
    is_taken: Vec<bool>,
    /// The first that has not been taken.
    low: usize,
    /// Collectives whose results nobody has taken yet, and their bytes.
    under_way: usize,
    bytes_under_way: u64,
    is_under_way: Vec<bool>,
}

/// Takes away what has been taken out of its turn.
fn drop_taken<T: Ord>(heap: &mut Heap<T>, is_taken: &[bool]) {
    while heap.peek().is_some_and(|&(_, Reverse(n))| is_taken[n as usize]) {
        heap.pop();
    }
}

impl Run {
    fn new(count: usize) -> Run {
        Run {
            order: Vec::with_capacity(count),
            now: 0.0,
            network_is_free: 0.0,
            waiting: BinaryHeap::new(),
            steps: BinaryHeap::new(),
            first_users: BinaryHeap::new(),
            collectives: BinaryHeap::new(),
            arrives: vec![0.0; count],
            done: vec![0.0; count],
            is_taken: vec![false; count],
            low: 0,
            under_way: 0,
            bytes_under_way: 0,
            is_under_way: vec![false; count],
        }
    }

    /// Sorts what has arrived by now.
    fn look(&mut self, list: &List<'_>) {
        while let Some(&Reverse((Time(arrives), n))) = self.waiting.peek() {
            if arrives > self.now {
                return;
            }
            self.waiting.pop();
            let at = n as usize;
            if list.is_collective(n) {
                self.collectives.push((Time(list.behind[at]), Reverse(n)));
            } else if list.exchanged[at].iter().any(|&c| self.is_under_way[c as usize]) {
                self.first_users.push(((), Reverse(n)));
            } else {
                self.steps.push(((), Reverse(n)));
            }
        }
    }

    /// What comes next.
    fn next(&mut self, list: &List<'_>) -> Option<u32> {
        while self.is_taken.get(self.low) == Some(&true) {
            self.low += 1;
        }
        let most = (self.low + WINDOW) as u32;
        let is_far = |n: u32| n > most;
        drop_taken(&mut self.collectives, &self.is_taken);
        drop_taken(&mut self.steps, &self.is_taken);
        drop_taken(&mut self.first_users, &self.is_taken);
        if let Some(&(_, Reverse(n))) = self.collectives.peek() {
            let fits = self.under_way == 0
                || (self.under_way < UNDER_WAY && self.bytes_under_way + list.bytes(n) <= BYTES_UNDER_WAY);
            if fits && !is_far(n) {
                self.collectives.pop();
                return Some(n);
            }
        }
        let first = |heap: &Heap<()>| heap.peek().map(|&(_, Reverse(n))| n).filter(|&n| !is_far(n));
        let (step, user) = (first(&self.steps), first(&self.first_users));
        if let Some(n) = step.filter(|&s| user.is_none_or(|u| s < u.saturating_add(PUT_OFF))) {
            self.steps.pop();
            return Some(n);
        }
        if let Some(n) = user {
            self.first_users.pop();
            return Some(n);
        }
        // Everything near waits: for what arrives next, or because enough is under way. The first that is left has all that
        // it needs, since that stands before it.
        let arrives_first = self.waiting.peek().map(|Reverse((_, n))| *n).filter(|&n| !is_far(n));
        let low = self.low as u32;
        let n = match arrives_first {
            Some(n) if !self.is_taken[n as usize] && !list.is_collective(n) => n,
            _ => low,
        };
        (list.needs.get(n as usize) == Some(&0)).then_some(n)
    }

    fn take(&mut self, list: &List<'_>, n: u32) {
        let at = n as usize;
        self.is_taken[at] = true;
        self.order.push(n);
        self.now = self.now.max(self.arrives[at]);
        for &c in &list.exchanged[at] {
            if std::mem::replace(&mut self.is_under_way[c as usize], false) {
                self.under_way -= 1;
                self.bytes_under_way -= list.bytes(c);
            }
        }
        if list.is_collective(n) {
            self.network_is_free = self.network_is_free.max(self.now) + list.seconds[at];
            self.done[at] = self.network_is_free;
            if !list.followers[at].is_empty() {
                self.is_under_way[at] = true;
                self.under_way += 1;
                self.bytes_under_way += list.bytes(n);
            }
        } else {
            self.now += list.seconds[at];
            self.done[at] = self.now;
        }
    }
}

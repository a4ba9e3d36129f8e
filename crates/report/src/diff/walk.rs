//! The walk over two modules: entry against entry, then whatever matched instructions call, each pair of computations
//! once.

use super::compare::{self, same_shape};
use super::fingerprint::{Fingerprints, OperandOrder, operand_order};
use super::matching::{Pairing, Side, pair};
use super::{Aspect, AspectKind, Change, Difference, InstructionFigures, ModuleDiff, ModuleFigures};
use crate::source::source_position;
use hloom_analysis::cost::{Cost, ModuleCost, cost};
use hloom_formats::hlo_text::{PrintOptions, print_instruction};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::{Module, ModuleConfig};
use hloom_ir::op::Op;
use hloom_ir::shape::ProgramShape;
use hloom_ir::verify::VerifiedModule;
use rustc_hash::{FxHashMap, FxHashSet};

/// The most operands that are named where they differ.
const OPERANDS_NAMED: usize = 4;
/// How deep differences are told inside others.
const NESTING: usize = 16;
/// The most bytes of an instruction's text that are kept.
const TEXT: usize = 4000;

/// A module with what is known of it.
struct Known<'m> {
    module: &'m Module,
    prints: Fingerprints,
    cost: ModuleCost,
    /// What the instructions of each computation cost in arithmetic, all runs together.
    fused: Vec<Cost>,
}

impl<'m> Known<'m> {
    fn new(verified: &'m VerifiedModule) -> Known<'m> {
        let module = verified.module();
        let cost = cost(verified);
        let mut fused = vec![Cost::default(); module.computation_slots()];
        for &c in module.computations() {
            for &i in module[c].instructions() {
                fused[c.index()] += Cost { bytes: 0, ..cost.all_runs(module, i) };
            }
        }
        Known { module, prints: Fingerprints::new(module), cost, fused }
    }

    fn side(&self, computation: ComputationId) -> Side<'_> {
        Side { module: self.module, prints: &self.prints, computation }
    }

    fn figures(&self) -> ModuleFigures {
        let (name, instructions) = (self.module.name.to_string(), self.module.instruction_count());
        ModuleFigures { name, instructions, cost: self.cost.total }
    }

    fn instruction(&self, i: InstructionId) -> InstructionFigures {
        let instruction = &self.module[i];
        let metadata = instruction.common.metadata.as_deref();
        let source = metadata.map_or(("", 0), |m| source_position(self.module, m));
        let mut cost = self.cost.all_runs(self.module, i);
        if let Op::Fusion(fusion) = &instruction.op {
            cost += self.fused[fusion.calls.index()];
        }
        let mut text = print_instruction(self.module, i, &PrintOptions { elide_constants: true });
        if text.len() > TEXT {
            let end = (0..=TEXT).rev().find(|&n| text.is_char_boundary(n)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
        InstructionFigures {
            name: instruction.name().to_owned(),
            opcode: instruction.opcode().name(),
            computation: self.module[instruction.parent()].name().to_owned(),
            text,
            source: match source {
                ("", _) => String::new(),
                (file, 0) => file.to_owned(),
                (file, line) => format!("{file}:{line}"),
            },
            op_name: metadata.map_or_else(String::new, |m| m.op_name.to_string()),
            cost,
        }
    }
}

/// Two computations to compare.
struct Task {
    a: ComputationId,
    b: ComputationId,
    /// The instructions that call them.
    callers: Option<(InstructionId, InstructionId)>,
    /// The difference that holds what is found, where the computation is part of its caller.
    within: Option<usize>,
}

struct Walk<'m> {
    a: Known<'m>,
    b: Known<'m>,
    tasks: Vec<Task>,
    /// Pairs of computations by what they do, and the difference under which they are told, if they are part of one.
    seen: FxHashMap<(u64, u64), Option<usize>>,
    found: Vec<Difference>,
    /// The difference under which each was found.
    within: Vec<Option<usize>>,
    unknown_constants: usize,
    /// Which channel of the second module each of the first is, and the other way round.
    channels: [FxHashMap<i64, i64>; 2],
}

pub(super) fn diff(a: &VerifiedModule, b: &VerifiedModule) -> ModuleDiff {
    let mut walk = Walk {
        a: Known::new(a),
        b: Known::new(b),
        tasks: Vec::new(),
        seen: FxHashMap::default(),
        found: Vec::new(),
        within: Vec::new(),
        unknown_constants: 0,
        channels: Default::default(),
    };
    let header = header(walk.a.module, walk.b.module);
    if let (Some(a), Some(b)) = (walk.a.module.entry(), walk.b.module.entry()) {
        walk.call(a, b, None, None);
    }
    while let Some(task) = walk.tasks.pop() {
        walk.computations(&task);
    }
    let (figures_a, figures_b) = (walk.a.figures(), walk.b.figures());
    let unknown_constants = walk.unknown_constants;
    ModuleDiff { a: figures_a, b: figures_b, header, differences: walk.differences(), unknown_constants }
}

impl Walk<'_> {
    /// Puts two computations down to be compared, unless they do the same or such a pair has been met.
    fn call(
        &mut self,
        a: ComputationId,
        b: ComputationId,
        callers: Option<(InstructionId, InstructionId)>,
        within: Option<usize>,
    ) {
        let key = (self.a.prints.computation[a.index()], self.b.prints.computation[b.index()]);
        self.seen.insert(key, within);
        // What does the same is walked too: which instructions share a channel shows only there.
        self.tasks.push(Task { a, b, callers, within });
    }

    fn differ(&self, a: ComputationId, b: ComputationId) -> bool {
        self.a.prints.computation[a.index()] != self.b.prints.computation[b.index()]
    }

    fn computations(&mut self, task: &Task) {
        let (list_a, list_b) =
            (self.a.module[task.a].instructions().to_vec(), self.b.module[task.b].instructions().to_vec());
        let pairs = pair(self.a.side(task.a), self.b.side(task.b));
        let links = self.links(&pairs, &list_a, &list_b);
        for (place, &x) in list_a.iter().enumerate() {
            match pairs.of_a[place] {
                Some(other) => self.instructions(x, list_b[other as usize], task, &pairs, &links),
                None => self.push(Change::Removed, Vec::new(), Some(x), None, task.within),
            }
        }
        for (&y, paired) in list_b.iter().zip(&pairs.of_b) {
            if paired.is_none() {
                self.push(Change::Added, Vec::new(), None, Some(y), task.within);
            }
        }
        if let (Some(r), Some(s)) = (self.a.module.root(task.a), self.b.module.root(task.b))
            && self.both_paired(&pairs, r, s)
            && !self.is_same(&links, r, s)
        {
            let detail = format!("{} → {}", self.a.module[r].name(), self.b.module[s].name());
            let aspect = Aspect { kind: AspectKind::Root, detail };
            self.push(Change::Changed, vec![aspect], Some(r), Some(s), task.within);
        }
    }

    /// Values of the first computation that a value of the second stands for. Several instructions may compute one value;
    /// which of them is read does not matter.
    fn links(&self, pairs: &Pairing, list_a: &[InstructionId], list_b: &[InstructionId]) -> FxHashSet<(u64, u64)> {
        let linked =
            pairs.of_a.iter().enumerate().filter_map(|(p, other)| Some((list_a[p], list_b[(*other)? as usize])));
        linked.map(|(x, y)| (self.a.prints.value[x.index()], self.b.prints.value[y.index()])).collect()
    }

    fn is_same(&self, links: &FxHashSet<(u64, u64)>, x: InstructionId, y: InstructionId) -> bool {
        let (v, w) = (self.a.prints.value[x.index()], self.b.prints.value[y.index()]);
        v == w || links.contains(&(v, w))
    }

    /// Whether both have a match. What has none is told by itself, and who reads it is part of that.
    fn both_paired(&self, pairs: &Pairing, x: InstructionId, y: InstructionId) -> bool {
        let place = |prints: &Fingerprints, i: InstructionId| prints.place[i.index()] as usize;
        pairs.of_a[place(&self.a.prints, x)].is_some() && pairs.of_b[place(&self.b.prints, y)].is_some()
    }

    fn instructions(
        &mut self,
        x: InstructionId,
        y: InstructionId,
        task: &Task,
        pairs: &Pairing,
        links: &FxHashSet<(u64, u64)>,
    ) {
        let own = compare::own(&self.a.side(task.a), x, &self.b.side(task.b), y, self.inherits(x, y, task));
        self.unknown_constants += usize::from(own.unknown_constant);
        let mut aspects = own.aspects;
        self.compare_operands(x, y, pairs, links, &mut aspects);
        self.compare_control(x, y, pairs, links, &mut aspects);
        self.compare_channels(x, y, &mut aspects);
        let (op_a, op_b) = (&self.a.module[x].op, &self.b.module[y].op);
        let whole = runs_whole(op_a) && runs_whole(op_b);
        let (callees_a, callees_b) = (op_a.called_computations(), op_b.called_computations());
        let same_kind = op_a.opcode() == op_b.opcode();
        let callees: Vec<_> = callees_a.into_iter().zip(callees_b).filter(|_| same_kind).collect();
        let mut apply = Vec::new();
        for (c, d) in callees {
            let differ = self.differ(c, d);
            let key = (self.a.prints.computation[c.index()], self.b.prints.computation[d.index()]);
            match self.seen.get(&key) {
                Some(Some(first)) if differ => self.found[*first].times += 1,
                Some(_) => {}
                None if whole || !differ => self.call(c, d, Some((x, y)), None),
                None => apply.push((c, d)),
            }
        }
        if !apply.is_empty() {
            let kind = match self.a.module[x].op {
                Op::Fusion(_) => AspectKind::Fusion,
                _ => AspectKind::Computation,
            };
            if !aspects.iter().any(|a| a.kind == kind) {
                aspects.push(Aspect { kind, detail: String::new() });
            }
        }
        if aspects.is_empty() {
            return;
        }
        self.push(Change::Changed, aspects, Some(x), Some(y), task.within);
        let difference = self.found.len() - 1;
        let mut depth = 0;
        let mut outer = task.within;
        while let Some(o) = outer.filter(|_| depth < NESTING) {
            (outer, depth) = (self.within[o], depth + 1);
        }
        for (c, d) in apply {
            self.call(c, d, Some((x, y)), Some(difference).filter(|_| depth < NESTING));
        }
    }

    /// Whether a parameter has in both modules the shape of what its caller passes.
    fn inherits(&self, x: InstructionId, y: InstructionId, task: &Task) -> bool {
        let Some((caller_a, caller_b)) = task.callers else { return false };
        let passed = |known: &Known<'_>, caller: InstructionId, i: InstructionId| {
            let Op::Parameter { number, .. } = known.module[i].op else { return false };
            let caller = &known.module[caller];
            let operand = match caller.op {
                Op::While { .. } => Some(0),
                Op::Conditional { ref branches } => {
                    let parent = known.module[i].parent();
                    branches.iter().position(|&b| b == parent).map(|n| n + 1)
                }
                _ => usize::try_from(number).ok(),
            };
            let operand = operand.and_then(|n| caller.operands().get(n));
            operand.is_some_and(|&o| same_shape(&known.module[o].shape, &known.module[i].shape))
        };
        passed(&self.a, caller_a, x) && passed(&self.b, caller_b, y)
    }

    fn compare_operands(
        &self,
        x: InstructionId,
        y: InstructionId,
        pairs: &Pairing,
        links: &FxHashSet<(u64, u64)>,
        aspects: &mut Vec<Aspect>,
    ) {
        let (p, q) = (&self.a.module[x], &self.b.module[y]);
        let (mut xs, mut ys) = (p.operands().to_vec(), q.operands().to_vec());
        match (operand_order(&p.op), operand_order(&q.op)) {
            (OperandOrder::Free, OperandOrder::Free) => {
                if xs.len() > 2 {
                    let place = |prints: &Fingerprints, i: &InstructionId| prints.place[i.index()];
                    xs.sort_by_key(|x| pairs.of_a[place(&self.a.prints, x) as usize].unwrap_or(u32::MAX));
                    let unpaired = |y: &InstructionId| pairs.of_b[place(&self.b.prints, y) as usize].is_none();
                    ys.sort_by_key(|y| (unpaired(y), place(&self.b.prints, y)));
                }
                // What has its match on the other side goes; the rest is compared in order. Sorted, it is at the front.
                let mut left = Vec::new();
                for x in xs {
                    match ys.iter().position(|&y| self.is_same(links, x, y)) {
                        Some(at) => _ = ys.remove(at),
                        None => left.push(x),
                    }
                }
                xs = left;
            }
            (OperandOrder::Swapped, OperandOrder::Fixed) => xs.reverse(),
            (OperandOrder::Fixed, OperandOrder::Swapped) => ys.reverse(),
            _ => {}
        }
        let unpaired_a = |x: InstructionId| pairs.of_a[self.a.prints.place[x.index()] as usize].is_none();
        let unpaired_b = |y: InstructionId| pairs.of_b[self.b.prints.place[y.index()] as usize].is_none();
        if xs.len() != ys.len() {
            // Operands that came or went shift the others: they are compared in order without them.
            xs.retain(|&x| !unpaired_a(x));
            ys.retain(|&y| !unpaired_b(y));
        }
        let name_a = |x: &InstructionId| self.a.module[*x].name();
        let name_b = |y: &InstructionId| self.b.module[*y].name();
        let mut words = Vec::new();
        if xs.len() != ys.len() {
            words.push(format!("{} operands → {}", p.operands().len(), q.operands().len()));
        } else {
            for (n, (x, y)) in xs.iter().zip(&ys).enumerate() {
                if !self.is_same(links, *x, *y) && !unpaired_a(*x) && !unpaired_b(*y) {
                    words.push(format!("operand {n}: {} → {}", name_a(x), name_b(y)));
                }
            }
        }
        if !words.is_empty() {
            let more = words.len().saturating_sub(OPERANDS_NAMED);
            words.truncate(OPERANDS_NAMED);
            let tail = if more > 0 { format!(", and {more} more") } else { String::new() };
            aspects.push(Aspect { kind: AspectKind::Operands, detail: format!("{}{tail}", words.join(", ")) });
        }
    }

    fn compare_control(
        &self,
        x: InstructionId,
        y: InstructionId,
        pairs: &Pairing,
        links: &FxHashSet<(u64, u64)>,
        aspects: &mut Vec<Aspect>,
    ) {
        let before_a = self.a.module[x].common.control_predecessors();
        let before_b = self.b.module[y].common.control_predecessors();
        if before_a.is_empty() && before_b.is_empty() {
            return;
        }
        let values_a: FxHashSet<u64> = before_a.iter().map(|p| self.a.prints.value[p.index()]).collect();
        let values_b: FxHashSet<u64> = before_b.iter().map(|p| self.b.prints.value[p.index()]).collect();
        if values_a == values_b {
            return;
        }
        let place = |i: &InstructionId, prints: &Fingerprints| prints.place[i.index()] as usize;
        // By the matches: each predecessor's match is among the other's, or it has none and is told by itself.
        let matched_b: FxHashSet<usize> = before_b.iter().map(|p| place(p, &self.b.prints)).collect();
        let matched_a: FxHashSet<usize> = before_a.iter().map(|p| place(p, &self.a.prints)).collect();
        let gone = before_a.iter().filter(|p| {
            pairs.of_a[place(p, &self.a.prints)].is_some_and(|o| !matched_b.contains(&(o as usize)))
                && !before_b.iter().any(|q| self.is_same(links, **p, *q))
        });
        let new = before_b.iter().filter(|q| {
            pairs.of_b[place(q, &self.b.prints)].is_some_and(|o| !matched_a.contains(&(o as usize)))
                && !before_a.iter().any(|p| self.is_same(links, *p, **q))
        });
        let gone: Vec<_> = gone.map(|p| format!("no longer after {}", self.a.module[*p].name())).collect();
        let new: Vec<_> = new.map(|q| format!("now after {}", self.b.module[*q].name())).collect();
        let words = [gone, new].concat();
        if !words.is_empty() {
            aspects.push(Aspect { kind: AspectKind::ControlDependencies, detail: words.join(", ") });
        }
    }

    /// Channels may be numbered differently, as long as what meets in one module meets in the other.
    fn compare_channels(&mut self, x: InstructionId, y: InstructionId, aspects: &mut Vec<Aspect>) {
        let (a, b) = (self.a.module[x].op.channel_id(), self.b.module[y].op.channel_id());
        let (Some(a), Some(b)) = (a, b) else { return };
        let [forth, back] = &mut self.channels;
        let (known_b, known_a) = (*forth.entry(a).or_insert(b), *back.entry(b).or_insert(a));
        if known_b != b || known_a != a {
            let detail = format!("{a} → {b}, elsewhere {known_a} → {known_b}");
            aspects.push(Aspect { kind: AspectKind::Channel, detail });
        }
    }

    fn push(
        &mut self,
        change: Change,
        aspects: Vec<Aspect>,
        a: Option<InstructionId>,
        b: Option<InstructionId>,
        within: Option<usize>,
    ) {
        let a = a.map(|i| self.a.instruction(i));
        let b = b.map(|i| self.b.instruction(i));
        self.found.push(Difference { change, aspects, a, b, inside: Vec::new(), times: 1 });
        self.within.push(within);
    }

    /// What was found, with what is inside others put there, the most expensive first.
    fn differences(self) -> Vec<Difference> {
        let mut slots: Vec<Option<Difference>> = self.found.into_iter().map(Some).collect();
        // What is inside was found after what it is in, so that going back moves whole trees.
        for n in (0..slots.len()).rev() {
            if let Some(slot) = &mut slots[n] {
                slot.inside.reverse();
            }
            if let Some(outer) = self.within[n]
                && let Some(inner) = slots[n].take()
                && let Some(outer) = &mut slots[outer]
            {
                outer.inside.push(inner);
            }
        }
        let mut differences: Vec<Difference> = slots.into_iter().flatten().collect();
        let weight = |d: &Difference| {
            let (a, b) = d.costs();
            (a.bytes.abs_diff(b.bytes), a.flops.abs_diff(b.flops), a.bytes.max(b.bytes), a.flops.max(b.flops))
        };
        differences.sort_by_cached_key(|d| std::cmp::Reverse(weight(d)));
        differences
    }
}

/// Whether what the operation calls is a part of the program of its own: a loop's body, a branch.
fn runs_whole(op: &Op) -> bool {
    matches!(op, Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } | Op::AsyncStart(_) | Op::CustomCall(_))
}

/// What two headers say differently.
fn header(a: &Module, b: &Module) -> Vec<String> {
    let (p, q): (&ModuleConfig, &ModuleConfig) = (&a.config, &b.config);
    let mut words = Vec::new();
    let mut number = |what: &str, x: i64, y: i64| {
        if x != y {
            words.push(format!("{what}: {x} → {y}"));
        }
    };
    number("replica_count", p.replica_count, q.replica_count);
    number("num_partitions", p.num_partitions, q.num_partitions);
    if a.is_scheduled != b.is_scheduled {
        words.push(format!("is_scheduled: {} → {}", a.is_scheduled, b.is_scheduled));
    }
    let sorted = |config: &ModuleConfig| {
        let mut aliases: Vec<String> = config.input_output_alias.iter().map(|a| format!("{a:?}")).collect();
        let mut donors: Vec<String> = config.buffer_donors.iter().map(|d| format!("{d:?}")).collect();
        aliases.sort_unstable();
        donors.sort_unstable();
        (aliases, donors)
    };
    let ((alias_a, donor_a), (alias_b, donor_b)) = (sorted(p), sorted(q));
    if alias_a != alias_b {
        words.push(format!("input_output_alias: {} → {} aliases", alias_a.len(), alias_b.len()));
    }
    if donor_a != donor_b {
        words.push(format!("buffer_donor: {} → {} donors", donor_a.len(), donor_b.len()));
    }
    let layout = |m: &Module| -> Option<ProgramShape> {
        m.config.entry_layout.clone().or_else(|| m.entry().and_then(|e| m.program_shape(e)))
    };
    if let (Some(x), Some(y)) = (layout(a), layout(b)) {
        words.extend(entry_layouts(&x, &y));
    }
    if p.alias_passthrough_params != q.alias_passthrough_params {
        words
            .push(format!("alias_passthrough_params: {} → {}", p.alias_passthrough_params, q.alias_passthrough_params));
    }
    if p.frontend_attributes != q.frontend_attributes {
        words.push("frontend_attributes of the module".to_owned());
    }
    words
}

/// Layouts of parameters and result. Shapes are the instructions' to tell.
fn entry_layouts(x: &ProgramShape, y: &ProgramShape) -> Vec<String> {
    let mut words = Vec::new();
    let mut compare = |what: String, s: &hloom_ir::shape::Shape, t: &hloom_ir::shape::Shape| {
        if s.equal_ignoring_layout(t) && !same_shape(s, t) {
            words.push(format!("layout of {what}: {s} → {t}"));
        }
    };
    for (n, (s, t)) in x.parameters.iter().zip(&y.parameters).enumerate() {
        compare(format!("parameter {n}"), s, t);
    }
    compare("the result".to_owned(), &x.result, &y.result);
    words
}

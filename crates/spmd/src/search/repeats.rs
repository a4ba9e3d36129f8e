//! Repeated layers: a program that has few of them stands for one that has many.
//!
//! Unrolled layers are stretches of instructions that follow one another in the same order: forward, backward and update
//! each have theirs. Of every such run the first and last periods are kept; who used a value of a removed period uses its
//! counterpart in the last period before. The price of a whole step is then a line through the prices of two such
//! programs. Kept true: instructions that stay keep their ids, parameters all stay, and so does the result's shape.

use hloom_ir::Op;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

/// Fewer layers are priced as they are.
const LEAST_LAYERS: usize = 8;
/// Distances between like instructions that are looked at as periods, the most frequent first.
const MOST_PERIODS: usize = 16;
/// Runs with periods of their own: forward, backward, updates, and as many again.
const MOST_KINDS: usize = 6;

/// Instructions `start..start + period * count` of the entry but for its parameters: the same ones `count` times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    start: usize,
    period: usize,
    count: usize,
}

impl Run {
    fn len(self) -> usize {
        self.period * self.count
    }
}

/// The repeated layers of a program's entry.
#[derive(Debug)]
pub(super) struct Repeats {
    runs: Vec<Run>,
    /// How many layers there are.
    pub layers: usize,
}

/// The entry's instructions but for its parameters, in their order.
fn steps(module: &Module) -> Option<Vec<InstructionId>> {
    let is_parameter = |i: &InstructionId| matches!(module[*i].op, Op::Parameter { .. });
    Some(module[module.entry()?].instructions().iter().copied().filter(|i| !is_parameter(i)).collect())
}

/// What like instructions have in common.
fn signatures(module: &Module, listed: &[InstructionId]) -> Vec<u64> {
    let of = |&i: &InstructionId| {
        let instruction = &module[i];
        let mut hasher = FxHasher::default();
        instruction.op.opcode().name().hash(&mut hasher);
        instruction.shape.hash(&mut hasher);
        for &o in instruction.operands() {
            module[o].op.opcode().name().hash(&mut hasher);
            module[o].shape.hash(&mut hasher);
        }
        hasher.finish()
    };
    listed.iter().map(of).collect()
}

/// The runs of one period in what is not taken yet.
fn runs_of(signatures: &[u64], taken: &[bool], period: usize) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut start = 0;
    while start + period < signatures.len() {
        let mut end = start;
        let repeats = |at: usize| signatures[at] == signatures[at + period] && !taken[at] && !taken[at + period];
        while end + period < signatures.len() && repeats(end) {
            end += 1;
        }
        let count = (end - start + period) / period;
        if end > start && count >= LEAST_LAYERS {
            runs.push(Run { start, period, count });
        }
        start = end + 1;
    }
    runs
}

/// The most frequent distances from an instruction to the next like it.
fn periods(signatures: &[u64], taken: &[bool]) -> Vec<usize> {
    let mut last: FxHashMap<u64, usize> = FxHashMap::default();
    let mut votes: FxHashMap<usize, usize> = FxHashMap::default();
    for (n, &signature) in signatures.iter().enumerate().filter(|&(n, _)| !taken[n]) {
        if let Some(before) = last.insert(signature, n) {
            *votes.entry(n - before).or_default() += n - before;
        }
    }
    let mut periods: Vec<(usize, usize)> = votes.into_iter().collect();
    periods.sort_by_key(|&(period, votes)| (std::cmp::Reverse(votes), period));
    periods.truncate(MOST_PERIODS);
    periods.into_iter().map(|(period, _)| period).collect()
}

impl Repeats {
    /// The repeated layers; nothing if there are few.
    pub(super) fn find(module: &Module) -> Option<Repeats> {
        let listed = steps(module)?;
        let place: FxHashMap<InstructionId, usize> = listed.iter().enumerate().map(|(n, &i)| (i, n)).collect();
        let is_ordered = listed.iter().enumerate().all(|(n, &i)| {
            // Parameters have no place: they come before everything.
            let before = |o: &InstructionId| place.get(o).is_none_or(|&p| p < n);
            module[i].operands().iter().all(before) && module[i].common.control_predecessors().is_empty()
        });
        if !is_ordered {
            return None;
        }
        let signatures = signatures(module, &listed);
        let mut taken = vec![false; listed.len()];
        let mut found = Repeats { runs: Vec::new(), layers: 0 };
        for _ in 0..MOST_KINDS {
            let candidates = periods(&signatures, &taken).into_iter().map(|period| {
                let mut runs = runs_of(&signatures, &taken, period);
                found.keep_layers(&mut runs);
                runs
            });
            let weight = |runs: &Vec<Run>| runs.iter().map(|r| r.len()).sum::<usize>();
            let Some(best) = candidates.max_by_key(weight).filter(|runs| !runs.is_empty()) else { break };
            for run in &best {
                taken[run.start..run.start + run.len()].fill(true);
                // The longest run says how many layers there are.
                found.layers = if found.layers == 0 { run.count } else { found.layers };
            }
            found.runs.extend(best);
        }
        (found.layers >= LEAST_LAYERS).then_some(found)
    }

    /// Leaves the runs that go once through the layers; one that has several like parts in a layer is one of longer ones.
    fn keep_layers(&self, runs: &mut Vec<Run>) {
        runs.sort_by_key(|run| std::cmp::Reverse(run.len()));
        let layers = match self.layers {
            0 => runs.first().map_or(0, |run| run.count),
            layers => layers,
        };
        for run in runs.iter_mut() {
            let parts = (run.count + layers / 2) / layers.max(1);
            if parts > 1 {
                *run = Run { period: run.period * parts, count: run.count / parts, ..*run };
            }
        }
        runs.retain(|run| run.count + 2 >= layers && run.count <= layers + 2);
    }

    /// The program with `ends` layers at its beginning and as many at its end.
    pub(super) fn shortened(&self, module: &Module, ends: usize) -> Option<Module> {
        let listed = steps(module)?;
        let removed = self.layers.checked_sub(2 * ends)?;
        let mut counterpart: FxHashMap<InstructionId, InstructionId> = FxHashMap::default();
        for run in self.runs.iter().filter(|run| run.count >= removed + ends) {
            let first = run.start + ends * run.period;
            for at in first..first + removed * run.period {
                let kept = first - run.period + (at - first) % run.period;
                counterpart.insert(listed[at], listed[kept]);
            }
        }
        let mut short = module.clone();
        for &user in listed.iter().filter(|i| !counterpart.contains_key(i)) {
            if module[user].operands().iter().any(|o| counterpart.contains_key(o)) {
                let operands = module[user].operands().iter().map(|o| *counterpart.get(o).unwrap_or(o)).collect();
                short.set_operands(user, operands).ok()?;
            }
        }
        let dead: Vec<InstructionId> = listed.iter().copied().filter(|i| counterpart.contains_key(i)).collect();
        short.remove_instructions(&dead).ok()?;
        Some(short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_ir::verify::{VerifyOptions, verify};

    /// Layers forward and back, and the updates of their weights.
    fn training(layers: usize) -> Module {
        let mut text = String::from("HloModule training\n\nENTRY %main {\n");
        for n in 0..layers {
            text += &format!("  %w{n} = f32[8,8] parameter({n})\n");
        }
        text += &format!("  %x0 = f32[4,8] parameter({layers})\n");
        let dot = "lhs_contracting_dims={1}, rhs_contracting_dims";
        for n in 0..layers {
            text += &format!("  %y{n} = f32[4,8] dot(%x{n}, %w{n}), {dot}={{0}}\n");
            text += &format!("  %x{} = f32[4,8] tanh(%y{n})\n", n + 1);
        }
        text += &format!("  %g{layers} = f32[4,8] negate(%x{layers})\n");
        for n in (0..layers).rev() {
            let next = n + 1;
            text += &format!("  %h{n} = f32[4,8] multiply(%g{next}, %x{next})\n");
            text += &format!(
                "  %d{n} = f32[8,8] dot(%x{n}, %h{n}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}\n"
            );
            text += &format!("  %g{n} = f32[4,8] dot(%h{n}, %w{n}), {dot}={{1}}\n");
        }
        for n in 0..layers {
            text += &format!("  %new{n} = f32[8,8] subtract(%w{n}, %d{n})\n");
        }
        let updates: Vec<String> = (0..layers).map(|n| format!("%new{n}")).collect();
        let shapes = vec!["f32[8,8]"; layers].join(", ");
        text += &format!("  ROOT %r = ({shapes}) tuple({})\n}}\n", updates.join(", "));
        let read = hloom_formats::hlo_text::read(text.as_bytes());
        read.module.unwrap_or_else(|| panic!("{:?}", read.diagnostics))
    }

    #[test]
    fn forward_backward_and_updates_are_runs_of_the_same_layers() {
        let found = Repeats::find(&training(20)).expect("there are twenty");
        assert!((18..=20).contains(&found.layers), "{found:?}");
        assert_eq!(found.runs.len(), 3, "{found:?}");
    }

    #[test]
    fn a_program_of_few_layers_is_left_alone() {
        assert!(Repeats::find(&training(5)).is_none());
    }

    #[test]
    fn what_is_shortened_is_a_program_of_the_same_signature() {
        let module = training(20);
        let found = Repeats::find(&module).expect("there are twenty");
        let mut sizes = Vec::new();
        for ends in [1, 2] {
            let short = found.shortened(&module, ends).expect("it can be");
            let entry = short.entry().expect("one");
            assert_eq!(short.parameters(entry).len(), 21);
            let dots = short[entry].instructions().iter().filter(|&&i| matches!(short[i].op, Op::Dot(_))).count();
            sizes.push(dots);
            verify(short, &VerifyOptions::default()).unwrap_or_else(|e| panic!("{:?}", e.diagnostics));
        }
        // Three products for each layer, but for what is special at the ends.
        assert_eq!(sizes[1] - sizes[0], 6, "{sizes:?}");
        assert!((6..=10).contains(&sizes[0]), "{sizes:?}");
    }
}

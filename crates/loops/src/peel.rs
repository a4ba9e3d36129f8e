//! Loops cut where the answer to a question about their index changes: inside and outside of a padded array, the parts of
//! a concatenation, windows that reach over an edge.
//!
//! A loop that asks for every element whether it is inside reads and computes under a mask, and chooses. Where the
//! answer is the same for a whole range of iterations, the range gets a nest of its own in which nothing is asked.

use crate::affine::{ItemId, Term, VarId};
use crate::graph::ScalarOp;
use crate::program::{Item, LoopProgram};
use crate::schedule::natural_lanes;
use crate::simd::Simd;
use hloom_cost::CoreCost;
use hloom_ir::ElementType;
use hloom_ir::op::BinaryOp;
use smallvec::{SmallVec, smallvec};

/// The most nests that a program is cut into: each is code to be compiled.
const MAX_PARTS: usize = 9;
/// Programs of more items are left whole, for the same reason.
const MAX_ITEMS: usize = 160;
/// A program that takes less than so many starts of a kernel is over before it matters.
const WORTH_STARTS: f64 = 50.0;

/// The same work as `program`, as one program or several.
pub fn peel(program: LoopProgram, simd: &Simd, core: &CoreCost) -> Vec<LoopProgram> {
    let asks = program.items.iter().any(|i| matches!(i.item, Item::InRange { .. }));
    let is_plain = !program.is_sequential
        && program.copy_first.is_none()
        && program.before.is_none()
        && program.scan().is_none()
        && program.items.len() <= MAX_ITEMS;
    if !asks || !is_plain || program.nanoseconds(core) < WORTH_STARTS * core.launch {
        return vec![program];
    }
    let mut pending = vec![program];
    let mut done = Vec::new();
    while let Some(program) = pending.pop() {
        let room = MAX_PARTS.saturating_sub(done.len() + pending.len());
        let Some((var, parts)) = find_split(&program, simd).filter(|(_, parts)| parts.len() <= room) else {
            done.push(program);
            continue;
        };
        // In reverse, so that the parts are looked at and written in order.
        for part in parts.iter().rev() {
            let mut smaller = program.restricted(var, part.low, part.high);
            smaller.settle();
            if part.is_settled { pending.push(smaller) } else { done.push(smaller) }
        }
    }
    done
}

/// A range of iterations.
struct Part {
    low: i64,
    high: i64,
    /// Whether the answer is the same in all of it.
    is_settled: bool,
}

/// The outermost loop of the nest that can be cut, and where.
fn find_split(program: &LoopProgram, simd: &Simd) -> Option<(VarId, SmallVec<[Part; 4]>)> {
    let place = |v: VarId| program.nest.iter().position(|&n| n == v);
    let questions = program.items.iter().filter_map(|data| {
        let Item::InRange { index, low, high } = &data.item else { return None };
        let mut var = None;
        for &(term, factor) in &index.terms {
            let Term::Var(v) = term else { return None };
            if place(v).is_some() {
                // One loop of the nest; the others are those of reductions.
                if var.is_some() || factor <= 0 {
                    return None;
                }
                var = Some((v, factor));
            }
        }
        let (var, factor) = var?;
        let level = place(var)?;
        let extent = program.extents[var as usize];
        // Rows shorter than a vector are better done under a mask.
        let is_innermost = level + 1 == program.nest.len();
        if is_innermost && extent < i64::from(natural_lanes(program, simd, var)) {
            return None;
        }
        let rest = index.without(Term::Var(var)).range(|t| match t {
            Term::Var(v) => (0, program.extents[v as usize] - 1),
            Term::Item(_) => (i64::MIN / 4, i64::MAX / 4),
        });
        let parts = parts(i128::from(factor), rest, (i128::from(*low), i128::from(*high)), i128::from(extent));
        (parts.len() > 1).then_some((level, var, parts))
    });
    questions.min_by_key(|q| q.0).map(|(_, var, parts)| (var, parts))
}

/// The ranges of `0..extent` in which `low <= factor·v + rest < high` holds for all that `rest` can be, for none, or for
/// some.
fn parts(factor: i128, rest: (i128, i128), (low, high): (i128, i128), extent: i128) -> SmallVec<[Part; 4]> {
    let first = |n: i128| (n.div_euclid(factor) + i128::from(n.rem_euclid(factor) != 0)).clamp(0, extent);
    let (some_from, all_from) = (first(low - rest.1), first(low - rest.0));
    let (all_to, some_to) = (first(high - rest.1), first(high - rest.0));
    let mut parts: SmallVec<[Part; 4]> = SmallVec::new();
    let mut push = |low: i128, high: i128, is_settled: bool| {
        if low < high {
            parts.push(Part { low: low as i64, high: high as i64, is_settled });
        }
    };
    push(0, some_from, true);
    match all_from < all_to {
        true => {
            push(some_from, all_from, false);
            push(all_from, all_to, true);
            push(all_to, some_to.max(all_to), false);
            push(some_to.max(all_to), extent, true);
        }
        false => {
            push(some_from, some_to.max(some_from), false);
            push(some_to.max(some_from), extent, true);
        }
    }
    parts
}

impl LoopProgram {
    /// Takes out the questions whose answers are known, and what hangs on them.
    fn settle(&mut self) {
        let extents = self.extents.clone();
        let bounds = |t: Term| match t {
            Term::Var(v) => (0, extents[v as usize] - 1),
            Term::Item(_) => (i64::MIN / 4, i64::MAX / 4),
        };
        let mut known: Vec<Option<bool>> = vec![None; self.items.len()];
        let mut same: Vec<ItemId> = (0..self.items.len() as ItemId).collect();
        for id in 0..self.items.len() {
            let mut data = self.items[id].clone();
            data.item.map_operands(|o| same[o as usize]);
            let answer = |i: ItemId| known[i as usize];
            let truth = |yes: bool| Item::Constant(ElementType::Pred, smallvec![u8::from(yes)]);
            match &mut data.item {
                Item::Constant(ElementType::Pred, bytes) => known[id] = bytes.first().map(|&b| b != 0),
                Item::InRange { index, low, high } => {
                    let (least, greatest) = index.range(bounds);
                    let (low, high) = (i128::from(*low), i128::from(*high));
                    known[id] = match () {
                        () if least >= low && greatest < high => Some(true),
                        () if greatest < low || least >= high => Some(false),
                        () => None,
                    };
                    if let Some(yes) = known[id] {
                        data.item = truth(yes);
                    }
                }
                Item::Scalar(ScalarOp::Binary(BinaryOp::And), operands) if data.element_type == ElementType::Pred => {
                    let (a, b) = (operands[0], operands[1]);
                    match (answer(a), answer(b)) {
                        (Some(false), _) | (_, Some(false)) => {
                            data.item = truth(false);
                            known[id] = Some(false);
                        }
                        (Some(true), _) => same[id] = b,
                        (_, Some(true)) => same[id] = a,
                        _ => {}
                    }
                }
                Item::Scalar(ScalarOp::Select, operands) => {
                    if let Some(yes) = answer(operands[0]) {
                        same[id] = if yes { operands[1] } else { operands[2] };
                    }
                }
                Item::Load { guard, .. } => match guard.and_then(answer) {
                    Some(true) => *guard = None,
                    // It is never used.
                    Some(false) => {
                        let zero = smallvec![0; data.element_type.bytes()];
                        data.item = Item::Constant(data.element_type, zero);
                    }
                    None => {}
                },
                Item::Reduce(reduce) if reduce.condition.and_then(answer) == Some(true) => reduce.condition = None,
                Item::ReduceResult(reduce, result) => {
                    if let Item::Reduce(of) = &self.items[*reduce as usize].item
                        && of.condition.and_then(answer) == Some(false)
                    {
                        same[id] = of.inits[*result as usize];
                    }
                }
                _ => {}
            }
            if same[id] != id as ItemId {
                known[id] = known[same[id] as usize];
            }
            self.items[id] = data;
        }
        for store in &mut self.stores {
            store.item = same[store.item as usize];
            store.condition = store.condition.map(|c| same[c as usize]);
            crate::program::rename_terms(&mut store.offset, &|i| same[i as usize]);
            if store.condition.is_some_and(|c| known[c as usize] == Some(true)) {
                store.condition = None;
            }
        }
        self.stores.retain(|s| s.condition.is_none_or(|c| known[c as usize] != Some(false)));
        self.remove_dead();
        self.find_vars();
        self.collapse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(parts: &[Part]) -> Vec<(i64, i64, bool)> {
        parts.iter().map(|p| (p.low, p.high, p.is_settled)).collect()
    }

    #[test]
    fn ranges_with_one_answer() {
        // v - 2 in 0..5, of ten iterations: outside, inside, outside.
        assert_eq!(shown(&parts(1, (-2, -2), (0, 5), 10)), [(0, 2, true), (2, 7, true), (7, 10, true)]);
        // 2v + w - 1 in 0..9 with w in 0..3: the first window and the last reach over the edge.
        assert_eq!(shown(&parts(2, (-1, 1), (0, 9), 5)), [(0, 1, false), (1, 4, true), (4, 5, false)]);
        // Never, and always.
        assert_eq!(shown(&parts(1, (20, 20), (0, 9), 5)), [(0, 5, true)]);
        assert_eq!(shown(&parts(3, (0, 2), (0, 15), 5)), [(0, 5, true)]);
    }

    #[test]
    fn every_turn_is_in_one_range_with_its_answer() {
        for factor in 1..4i128 {
            for (low, high) in [(0, 6), (2, 3), (-4, 0), (5, 30)] {
                for rest in [(-3, -3), (-1, 2), (0, 4)] {
                    let extent = 11;
                    let mut next = 0;
                    for part in parts(factor, rest, (low, high), extent) {
                        assert_eq!(part.low, next);
                        next = part.high;
                        for v in part.low..part.high {
                            let at = |r: i128| (low..high).contains(&(factor * i128::from(v) + r));
                            let answers: Vec<bool> = (rest.0..=rest.1).map(at).collect();
                            let one = answers.iter().all(|&a| a == answers[0]);
                            assert!(!part.is_settled || one, "{factor} {rest:?} {low}..{high} at {v}");
                        }
                    }
                    assert_eq!(i128::from(next), extent);
                }
            }
        }
    }
}

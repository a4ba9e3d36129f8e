//! Which instruction of one computation is which of another.
//!
//! Evidence is used from the strongest to the weakest:
//! 1. parameters by number, then what computes the same and is used alike;
//! 2. what computes the same; what is used alike and has the same label, then the same opcode;
//! 3. neighbours of pairs: operands at the same position, users that read a pair at the same position, first those of
//!    the same label, then of the same opcode, at last what takes the other's place between equal neighbours;
//! 4. what is left and has the same value, or the same place in the source.
//!
//! Constants are told apart by who uses them, not by what they hold: they come after everything that depends on a
//! parameter. Each round takes time linear in the instructions and their edges, and the number of rounds is bounded.

use super::fingerprint::{Fingerprints, OperandOrder, operand_order};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::instruction::Instruction;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Rounds of looking at neighbours; each finds what became clear in the one before.
const ROUNDS: usize = 6;
/// Users with more operands than this are matched without asking at which position they read a value.
const MANY_OPERANDS: usize = 64;

/// One of the two computations.
#[derive(Clone, Copy)]
pub(super) struct Side<'m> {
    pub(super) module: &'m Module,
    pub(super) prints: &'m Fingerprints,
    pub(super) computation: ComputationId,
}

impl<'m> Side<'m> {
    fn list(&self) -> &'m [InstructionId] {
        self.module[self.computation].instructions()
    }

    fn at(&self, place: usize) -> &'m Instruction {
        &self.module[self.list()[place]]
    }

    fn place(&self, i: InstructionId) -> usize {
        self.prints.place[i.index()] as usize
    }

    fn label(&self, place: usize) -> u64 {
        self.prints.label[self.list()[place].index()]
    }

    fn value(&self, place: usize) -> u64 {
        self.prints.value[self.list()[place].index()]
    }

    fn uses(&self, place: usize) -> u64 {
        self.prints.uses[self.list()[place].index()]
    }

    fn grounded(&self, place: usize) -> bool {
        self.prints.grounded[self.list()[place].index()]
    }

    /// The places of the operands, in the order that counts.
    fn operands(&self, place: usize) -> Vec<usize> {
        let instruction = self.at(place);
        let mut places: Vec<usize> = instruction.operands().iter().map(|&o| self.place(o)).collect();
        if operand_order(&instruction.op) == OperandOrder::Swapped {
            places.reverse();
        }
        places
    }

    fn op_name(&self, place: usize) -> &'m str {
        self.at(place).common.metadata.as_ref().map_or("", |m| &m.op_name)
    }
}

/// Pairs of places in the lists of two computations.
pub(super) struct Pairing {
    /// By places in the first, places in the second.
    pub(super) of_a: Vec<Option<u32>>,
    /// By places in the second, places in the first.
    pub(super) of_b: Vec<Option<u32>>,
}

/// How much two instructions must have in common to be taken for one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    /// The same label.
    Label,
    /// The same opcode.
    Opcode,
    /// The same place between equal neighbours.
    Neighbours,
}

struct Matcher<'m> {
    a: Side<'m>,
    b: Side<'m>,
    pairs: Pairing,
    /// All pairs, in the order in which they were found.
    found: Vec<(usize, usize)>,
    /// Whether it says something who reads a constant. Constants are everywhere: other evidence comes first.
    constants_tell: bool,
}

/// Matches the instructions of two computations.
pub(super) fn pair(a: Side<'_>, b: Side<'_>) -> Pairing {
    let pairs = Pairing { of_a: vec![None; a.list().len()], of_b: vec![None; b.list().len()] };
    let mut matcher = Matcher { a, b, pairs, found: Vec::new(), constants_tell: false };
    matcher.parameters();
    matcher.alike(|s, p| Some((s.value(p), s.uses(p))), Ambiguous::InOrder);
    matcher.alike(|s, p| s.grounded(p).then(|| s.value(p)), Ambiguous::Skip);
    matcher.alike(|s, p| Some((s.uses(p), s.label(p))), Ambiguous::Skip);
    matcher.roots(Likeness::Label);
    matcher.spread(0);
    matcher.alike(|s, p| Some((s.uses(p), s.at(p).opcode())), Ambiguous::Skip);
    matcher.roots(Likeness::Opcode);
    matcher.neighbours(&[Likeness::Opcode]);
    matcher.alike(|s, p| Some(s.value(p)), Ambiguous::InOrder);
    matcher.constants_tell = true;
    matcher.neighbours(&[Likeness::Opcode]);
    let named = |s: &Side<'_>, p: usize| (!s.op_name(p).is_empty()).then(|| s.op_name(p).to_owned());
    matcher.alike(|s, p| Some((named(s, p)?, s.label(p))), Ambiguous::Skip);
    matcher.alike(|s, p| Some((named(s, p)?, s.at(p).opcode())), Ambiguous::Skip);
    matcher.alike(|s, p| Some(s.label(p)), Ambiguous::Skip);
    matcher.alike(|s, p| Some((s.uses(p), s.at(p).opcode())), Ambiguous::Skip);
    matcher.neighbours(&[Likeness::Opcode]);
    matcher.roots(Likeness::Neighbours);
    matcher.neighbours(&[Likeness::Opcode, Likeness::Neighbours]);
    matcher.pairs
}

/// What becomes of several instructions with one key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ambiguous {
    /// They wait for other evidence.
    Skip,
    /// They are interchangeable.
    InOrder,
}

impl Matcher<'_> {
    fn join(&mut self, a: usize, b: usize) {
        self.pairs.of_a[a] = Some(b as u32);
        self.pairs.of_b[b] = Some(a as u32);
        self.found.push((a, b));
    }

    fn both_free(&self, a: usize, b: usize) -> bool {
        self.pairs.of_a[a].is_none() && self.pairs.of_b[b].is_none()
    }

    fn parameters(&mut self) {
        let by_number = |s: &Side<'_>, p: usize| match s.at(p).op {
            Op::Parameter { number, .. } => Some(number),
            _ => None,
        };
        self.alike(by_number, Ambiguous::Skip);
    }

    fn roots(&mut self, likeness: Likeness) {
        let root = |s: &Side<'_>| s.module.root(s.computation).map(|r| s.place(r));
        if let (Some(a), Some(b)) = (root(&self.a), root(&self.b)) {
            self.try_join(a, b, likeness);
        }
    }

    /// Joins what has the same key and is not paired yet.
    fn alike<K: Hash + Eq>(&mut self, key: impl Fn(&Side<'_>, usize) -> Option<K>, ambiguous: Ambiguous) {
        let mut groups: FxHashMap<K, (Vec<usize>, Vec<usize>)> = FxHashMap::default();
        let mut order = Vec::new();
        for p in (0..self.pairs.of_a.len()).filter(|&p| self.pairs.of_a[p].is_none()) {
            if let Some(k) = key(&self.a, p) {
                groups.entry(k).or_default().0.push(p);
                order.push(p);
            }
        }
        for p in (0..self.pairs.of_b.len()).filter(|&p| self.pairs.of_b[p].is_none()) {
            if let Some(group) = key(&self.b, p).and_then(|k| groups.get_mut(&k)) {
                group.1.push(p);
            }
        }
        // In the order of the first computation: what is found does not depend on how a table is laid out.
        for p in order {
            let Some((from, to)) = key(&self.a, p).and_then(|k| groups.remove(&k)) else { continue };
            if ambiguous == Ambiguous::Skip && (from.len() != 1 || to.len() != 1) {
                continue;
            }
            for (a, b) in from.into_iter().zip(to) {
                self.join(a, b);
            }
        }
    }

    /// Goes from the pairs to what stands next to them, until nothing more is found.
    fn neighbours(&mut self, likenesses: &[Likeness]) {
        for _ in 0..ROUNDS {
            let before = self.found.len();
            self.spread(0);
            for &likeness in likenesses {
                let mut next = 0;
                while next < self.found.len() {
                    let (a, b) = self.found[next];
                    let from = self.found.len();
                    self.look_around(a, b, likeness);
                    self.spread(from);
                    next += 1;
                }
            }
            if self.found.len() == before {
                return;
            }
        }
    }

    /// Joins neighbours of the same label, from the pair at `next` on.
    fn spread(&mut self, mut next: usize) {
        while let Some(&(a, b)) = self.found.get(next) {
            self.look_around(a, b, Likeness::Label);
            next += 1;
        }
    }

    fn look_around(&mut self, a: usize, b: usize, likeness: Likeness) {
        let (x, y) = (self.a.at(a), self.b.at(b));
        if x.opcode() == y.opcode() || x.operands().len() == y.operands().len() {
            match operand_order(&x.op) == OperandOrder::Free && operand_order(&y.op) == OperandOrder::Free {
                true => self.free_operands(a, b, likeness),
                false => self.fixed_operands(a, b, likeness),
            }
        }
        if self.constants_tell || self.a.grounded(a) && self.b.grounded(b) {
            self.users(a, b, likeness);
        }
    }

    /// Operands by position; where one has more than the other, by position between those paired already.
    fn fixed_operands(&mut self, a: usize, b: usize, likeness: Likeness) {
        let (xs, ys) = (self.a.operands(a), self.b.operands(b));
        if xs.len() == ys.len() {
            xs.into_iter().zip(ys).for_each(|(x, y)| self.try_join(x, y, likeness));
            return;
        }
        let (mut from_x, mut from_y) = (0, 0);
        let place_in_b: FxHashMap<usize, usize> = ys.iter().enumerate().map(|(n, &y)| (y, n)).collect();
        let anchor = |pairs: &Pairing, x: usize| pairs.of_a[x].and_then(|y| place_in_b.get(&(y as usize)).copied());
        for n in 0..=xs.len() {
            let (end_x, end_y) = match xs.get(n) {
                None => (xs.len(), ys.len()),
                Some(&x) => match anchor(&self.pairs, x) {
                    Some(at) if at >= from_y => (n, at),
                    _ => continue,
                },
            };
            let (gap_x, gap_y) = (from_x..end_x, from_y..end_y);
            if gap_x.len() == gap_y.len() {
                for (n, m) in gap_x.zip(gap_y) {
                    self.try_join(xs[n], ys[m], likeness);
                }
            }
            (from_x, from_y) = (end_x + 1, end_y + 1);
        }
    }

    /// Operands whose order means nothing: what is left of them after those paired already.
    fn free_operands(&mut self, a: usize, b: usize, likeness: Likeness) {
        let mut xs = self.a.operands(a);
        let mut ys = self.b.operands(b);
        xs.retain(|&x| self.pairs.of_a[x].is_none());
        ys.retain(|&y| self.pairs.of_b[y].is_none());
        match (xs.as_slice(), ys.as_slice()) {
            (&[x], &[y]) => self.try_join(x, y, likeness),
            (&[x0, x1], &[y0, y1]) => {
                let like = |x, y| self.is_like(x, y, likeness);
                let (straight, crossed) = (like(x0, y0) && like(x1, y1), like(x0, y1) && like(x1, y0));
                if straight {
                    self.try_join(x0, y0, likeness);
                    self.try_join(x1, y1, likeness);
                } else if crossed {
                    self.try_join(x0, y1, likeness);
                    self.try_join(x1, y0, likeness);
                }
            }
            _ => {}
        }
    }

    fn try_join(&mut self, x: usize, y: usize, likeness: Likeness) {
        if self.both_free(x, y) && self.is_like(x, y, likeness) {
            self.join(x, y);
        }
    }

    fn is_like(&self, x: usize, y: usize, likeness: Likeness) -> bool {
        let (p, q) = (self.a.at(x), self.b.at(y));
        match likeness {
            Likeness::Label => self.a.label(x) == self.b.label(y),
            Likeness::Opcode => p.opcode() == q.opcode(),
            // One takes the place of the other: of the same form, from operands of which one at least is the same.
            Likeness::Neighbours => {
                let (xs, ys) = (self.a.operands(x), self.b.operands(y));
                let is_read = |x: &usize| self.pairs.of_a[*x].is_some_and(|y| ys.contains(&(y as usize)));
                let is_parameter = |op: &Op| matches!(op, Op::Parameter { .. });
                let reads_alike = xs.is_empty() && ys.is_empty() || xs.iter().take(MANY_OPERANDS).any(is_read);
                let same_form = xs.len() == ys.len() && p.shape.equal_ignoring_layout(&q.shape);
                !is_parameter(&p.op) && !is_parameter(&q.op) && same_form && reads_alike
            }
        }
    }

    /// Users that read the pair at the same position, where there is one of a kind on both sides.
    fn users(&mut self, a: usize, b: usize, likeness: Likeness) {
        let mut kinds: FxHashMap<(u64, usize), [Vec<usize>; 2]> = FxHashMap::default();
        let mut order = Vec::new();
        let sides = [(&self.a, a, &self.pairs.of_a), (&self.b, b, &self.pairs.of_b)];
        for (n, (side, place, paired)) in sides.into_iter().enumerate() {
            let this = side.list()[place];
            for &user in side.at(place).users() {
                let user = side.place(user);
                if paired[user].is_some() {
                    continue;
                }
                let instruction = side.at(user);
                let count = instruction.operands().len();
                let position = match operand_order(&instruction.op) {
                    _ if count > MANY_OPERANDS => 0,
                    OperandOrder::Free => 0,
                    OperandOrder::Fixed => instruction.operands().iter().position(|&o| o == this).unwrap_or(0),
                    OperandOrder::Swapped => {
                        count - 1 - instruction.operands().iter().rposition(|&o| o == this).unwrap_or(0)
                    }
                };
                let kind = match likeness {
                    Likeness::Label => side.label(user),
                    Likeness::Opcode => instruction.opcode() as u64,
                    Likeness::Neighbours => count as u64,
                };
                let entry = kinds.entry((kind, position)).or_default();
                if n == 0 {
                    order.push((kind, position));
                }
                if entry[n].len() < 2 {
                    entry[n].push(user);
                }
            }
        }
        for kind in order {
            if let Some([xs, ys]) = kinds.remove(&kind)
                && let (&[x], &[y]) = (xs.as_slice(), ys.as_slice())
            {
                self.try_join(x, y, likeness);
            }
        }
    }
}

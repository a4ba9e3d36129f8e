//! Puts the copies into the module.
//!
//! The copies of one site happen at once in thought: each reads before any writes. In a sequence, one that writes memory
//! comes after those that read it; where that goes round in a circle, one of them is read into memory of its own first.

use super::classes::{Cuts, Kept};
use super::sites::Site;
use super::{Inserted, Order};
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use rustc_hash::{FxHashMap, FxHashSet};

struct Placer<'m> {
    module: &'m mut Module,
    inserted: Inserted,
    /// What is to stand before an instruction.
    before: FxHashMap<InstructionId, Vec<InstructionId>>,
    /// What is to stand at the end of a computation, by its index.
    at_end: FxHashMap<usize, Vec<InstructionId>>,
    /// Tuples that have a new place.
    moved: FxHashSet<InstructionId>,
}

/// Adds the copies of `cuts` and puts every computation into `order`, the copies in their places.
pub(super) fn place(module: &mut Module, order: Order, cuts: &Cuts) -> Inserted {
    let mut placer = Placer {
        module,
        inserted: Inserted::default(),
        before: FxHashMap::default(),
        at_end: FxHashMap::default(),
        moved: FxHashSet::default(),
    };
    for (&site, kept) in cuts {
        placer.site(site, kept);
    }
    let Placer { module, inserted, mut before, mut at_end, moved } = placer;
    for computation in module.computations().to_vec() {
        let old = &order[computation.index()];
        let mut new = Vec::with_capacity(old.len());
        for &id in old {
            new.extend(before.remove(&id).unwrap_or_default());
            if !moved.contains(&id) {
                new.push(id);
            }
        }
        new.extend(at_end.remove(&computation.index()).unwrap_or_default());
        if module[computation].instructions() != new {
            let done = module.reorder(computation, new);
            debug_assert_eq!(done, Ok(()));
        }
    }
    inserted
}

/// The parts of a tuple that are to be made anew.
#[derive(Default)]
struct Renewed {
    by_part: FxHashMap<u32, InstructionId>,
}

impl Placer<'_> {
    fn site(&mut self, site: Site, kept: &[Kept]) {
        let (old, is_owned) = match site {
            Site::Operand(user, operand) => {
                let Some(&old) = self.module[user].operands().get(operand as usize) else { return };
                let slots = self.module[user].operands().iter().filter(|&&o| o == old).count();
                (old, self.module[old].users() == [user] && slots == 1)
            }
            Site::Root(computation) => {
                let Some(old) = self.module.root(computation) else { return };
                (old, self.module[old].users().is_empty())
            }
        };
        let is_root = self.module.root(self.module[old].parent()) == Some(old);
        let is_owned =
            is_owned && (is_root == matches!(site, Site::Root(_))) && matches!(self.module[old].op, Op::Tuple);
        let mut emitted = Vec::new();
        let mut elements = FxHashMap::default();
        let mut renewed = Renewed::default();
        self.copies(old, kept, &mut emitted, &mut elements, &mut renewed);
        let parts: FxHashSet<u32> = kept.iter().map(|k| k.nth).collect();
        let shape = self.module[old].shape.clone();
        let owned = is_owned.then_some(old);
        let new = self.renew(old, &shape, 0, &parts, owned, &renewed, &mut emitted, &mut elements);
        match site {
            Site::Operand(user, operand) => {
                if new != old {
                    let done = self.module.replace_operand(user, operand as usize, new);
                    debug_assert_eq!(done, Ok(()));
                }
                self.before.entry(user).or_default().extend(emitted);
            }
            Site::Root(computation) => {
                self.module.set_root(new);
                self.at_end.entry(computation.index()).or_default().extend(emitted);
            }
        }
    }

    /// Copies the arrays among the parts, in a sequence in which nothing is written before it is read.
    fn copies(
        &mut self,
        whole: InstructionId,
        kept: &[Kept],
        emitted: &mut Vec<InstructionId>,
        elements: &mut FxHashMap<(InstructionId, i64), InstructionId>,
        renewed: &mut Renewed,
    ) {
        struct Copy {
            nth: u32,
            source: InstructionId,
            from: Option<u32>,
            to: u32,
        }
        let mut copies: Vec<Copy> = Vec::new();
        let paths = paths(&self.module[whole].shape, kept);
        for (k, path) in kept.iter().zip(paths) {
            let mut source = whole;
            for index in path {
                source = self.element(source, index, emitted, elements);
            }
            if !self.module[source].shape.is_tuple() {
                copies.push(Copy { nth: k.nth, source, from: Some(k.from), to: k.to });
            }
        }
        // How many still read each piece of memory, and which copy writes it.
        let mut readers: FxHashMap<u32, u32> = FxHashMap::default();
        let mut writer: FxHashMap<u32, usize> = FxHashMap::default();
        for (at, copy) in copies.iter().enumerate() {
            *readers.entry(copy.from.unwrap_or(copy.to)).or_default() += 1;
            writer.insert(copy.to, at);
        }
        let is_free = |readers: &FxHashMap<u32, u32>, memory: u32| readers.get(&memory).is_none_or(|&n| n == 0);
        let mut ready: Vec<usize> = (0..copies.len()).rev().filter(|&c| is_free(&readers, copies[c].to)).collect();
        let mut is_done = vec![false; copies.len()];
        let mut next = 0;
        loop {
            if let Some(at) = ready.pop() {
                if std::mem::replace(&mut is_done[at], true) {
                    continue;
                }
                let new = self.copy(copies[at].source, emitted);
                renewed.by_part.insert(copies[at].nth, new);
                let Some(from) = copies[at].from else { continue };
                let left = readers.entry(from).or_default();
                *left = left.saturating_sub(1);
                if *left == 0
                    && let Some(&freed) = writer.get(&from)
                {
                    ready.push(freed);
                }
                continue;
            }
            // A circle: what one of it reads is put aside, and that memory may then be written.
            while next < copies.len() && (is_done[next] || copies[next].from.is_none()) {
                next += 1;
            }
            let Some(copy) = copies.get_mut(next) else { break };
            let Some(from) = copy.from.take() else { break };
            let source = copy.source;
            let aside = self.copy(source, emitted);
            copies[next].source = aside;
            let left = readers.entry(from).or_default();
            *left = left.saturating_sub(1);
            if *left == 0
                && let Some(&freed) = writer.get(&from)
            {
                ready.push(freed);
            }
        }
    }

    /// The element of a tuple: what the tuple is made of, or one that takes it.
    fn element(
        &mut self,
        tuple: InstructionId,
        index: i64,
        emitted: &mut Vec<InstructionId>,
        elements: &mut FxHashMap<(InstructionId, i64), InstructionId>,
    ) -> InstructionId {
        let part = usize::try_from(index).unwrap_or(usize::MAX);
        if let Op::Tuple = self.module[tuple].op
            && let Some(&operand) = self.module[tuple].operands().get(part)
        {
            return operand;
        }
        if let Some(&known) = elements.get(&(tuple, index)) {
            return known;
        }
        let Some(shape) = self.module[tuple].shape.at(&[index]).cloned() else { return tuple };
        let new = self.add("get-tuple-element", Op::GetTupleElement { index }, shape, &[tuple], tuple, emitted);
        elements.insert((tuple, index), new);
        new
    }

    fn copy(&mut self, source: InstructionId, emitted: &mut Vec<InstructionId>) -> InstructionId {
        self.inserted.copies += 1;
        let shape = self.module[source].shape.clone();
        self.add("copy", Op::Copy, shape, &[source], source, emitted)
    }

    fn add(
        &mut self,
        name: &str,
        op: Op,
        shape: Shape,
        operands: &[InstructionId],
        like: InstructionId,
        emitted: &mut Vec<InstructionId>,
    ) -> InstructionId {
        let computation = self.module[like].parent();
        let common = Common { metadata: self.module[like].common.metadata.clone(), ..Common::default() };
        let operands = Operands::from_slice(operands);
        let root = self.module.root(computation);
        let id =
            self.module.add_instruction(computation, NewInstruction { name: name.into(), op, shape, operands, common });
        // The last instruction is the root by default.
        root.into_iter().for_each(|r| self.module.set_root(r));
        emitted.push(id);
        id
    }

    /// The value at part `first` and all that is in it, with its renewed parts in place.
    #[allow(clippy::too_many_arguments, reason = "a recursion over a shape, with what it needs at each level")]
    fn renew(
        &mut self,
        old: InstructionId,
        shape: &Shape,
        first: u32,
        parts: &FxHashSet<u32>,
        owned: Option<InstructionId>,
        renewed: &Renewed,
        emitted: &mut Vec<InstructionId>,
        elements: &mut FxHashMap<(InstructionId, i64), InstructionId>,
    ) -> InstructionId {
        if let Some(&new) = renewed.by_part.get(&first) {
            return new;
        }
        let Shape::Tuple(children) = shape else { return old };
        let count = part_count(shape);
        if !(first..first + count).any(|p| parts.contains(&p)) {
            return old;
        }
        let mut at = first + 1;
        let mut operands = Operands::new();
        for (i, child) in children.iter().enumerate() {
            let element = self.element(old, i as i64, emitted, elements);
            operands.push(self.renew(element, child, at, parts, None, renewed, emitted, elements));
            at += part_count(child);
        }
        self.inserted.tuples += 1;
        if owned == Some(old) {
            let done = self.module.set_operands(old, operands);
            debug_assert_eq!(done, Ok(()));
            self.moved.insert(old);
            emitted.push(old);
            return old;
        }
        self.add("tuple", Op::Tuple, shape.clone(), &operands, old, emitted)
    }
}

fn part_count(shape: &Shape) -> u32 {
    match shape {
        Shape::Tuple(elements) => 1 + elements.iter().map(part_count).sum::<u32>(),
        _ => 1,
    }
}

/// The indices that lead to each of the parts, which are in ascending order.
fn paths(shape: &Shape, kept: &[Kept]) -> Vec<Vec<i64>> {
    fn walk(shape: &Shape, at: &mut u32, path: &mut Vec<i64>, wanted: &mut &[Kept], found: &mut Vec<Vec<i64>>) {
        if let Some((first, rest)) = wanted.split_first()
            && first.nth == *at
        {
            found.push(path.clone());
            *wanted = rest;
        }
        *at += 1;
        for (i, element) in shape.as_tuple().unwrap_or(&[]).iter().enumerate() {
            path.push(i as i64);
            walk(element, at, path, wanted, found);
            path.pop();
        }
    }
    let (mut wanted, mut found) = (kept, Vec::with_capacity(kept.len()));
    walk(shape, &mut 0, &mut Vec::new(), &mut wanted, &mut found);
    found
}

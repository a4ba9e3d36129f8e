//! Loop programs: what is left of a graph when every index has been worked out.
//!
//! A program is a nest of loops with stores in the innermost. Its *items* are the values at one point of the nest, in
//! terms of loop variables: a load at an affine offset, an operation on other items, a reduce over loops of its own. An
//! item that two others need at the same index is one item. An item stands after those it is made of.

use crate::affine::{Affine, ItemId, Term, VarId};
use crate::cost::WAITING;
use crate::graph::{Data, Function, ScalarOp};
use crate::row_cache::ScratchRow;
use crate::row_tiles::RowTiles;
use hloom_cost::CoreCost;
use hloom_ir::ElementType;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Where a load reads.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LoadSource {
    /// An array of the caller.
    Buffer(u32),
    /// A constant array that belongs to the kernel.
    Constant(Data),
    /// A tile of a transpose, on the stack.
    Tile(u32),
    /// A row that is kept, on the stack.
    Row(u32),
}

/// A square part of an array that is read the other way round.
#[derive(Clone, Debug)]
pub struct Tile {
    /// The array.
    pub source: LoadSource,
    /// Where its first element is.
    pub offset: Affine,
    /// The distance of its lines in memory; within a line elements stand one after another.
    pub stride: i64,
    /// The elements along each side.
    pub side: i64,
    /// The type of its elements.
    pub element_type: ElementType,
    /// The loop in which the tile changes.
    pub inside: VarId,
}

/// A value at one point of the loops.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Item {
    /// A constant, by its bytes.
    Constant(ElementType, SmallVec<[u8; 16]>),
    /// An element; where `guard` is false the offset may be anywhere and the value is never used.
    Load {
        /// The array.
        source: LoadSource,
        /// The element.
        offset: Affine,
        /// Where this is false the element is not used.
        guard: Option<ItemId>,
    },
    /// An index as an s64.
    Index(Affine),
    /// The floor of an index that is not negative, divided by a constant.
    Quotient(Affine, i64),
    /// What is left of an index that is not negative, divided by a constant.
    Remainder(Affine, i64),
    /// Whether `low <= index < high`.
    InRange {
        /// The index.
        index: Affine,
        /// The least value that is in range.
        low: i64,
        /// The first value that is not.
        high: i64,
    },
    /// An operation on items.
    Scalar(ScalarOp, SmallVec<[ItemId; 3]>),
    /// A function of items.
    Apply(Function, SmallVec<[ItemId; 3]>),
    /// A reduction.
    Reduce(Box<Reduce>),
    /// What a reduce has come to at this iteration of the innermost loop of the nest, which it runs along; it has no
    /// loops of its own. A program has at most one.
    Scan(Box<Reduce>),
    /// One of the results of a reduce or scan.
    ReduceResult(ItemId, u32),
}

/// A reduce over loops of its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reduce {
    /// The loops, outermost first.
    pub vars: SmallVec<[VarId; 2]>,
    /// What each result starts with.
    pub inits: SmallVec<[ItemId; 1]>,
    /// What is reduced.
    pub inputs: SmallVec<[ItemId; 1]>,
    /// Where it is false the inputs are left out.
    pub condition: Option<ItemId>,
    /// The function of the results so far and the inputs.
    pub function: Function,
}

/// An item with what is known about it.
#[derive(Clone, Debug)]
pub struct ItemData {
    /// The item.
    pub item: Item,
    /// The type of its value.
    pub element_type: ElementType,
    /// The loop variables it changes with, sorted.
    pub vars: SmallVec<[VarId; 4]>,
}

/// A value that the innermost loop writes.
#[derive(Clone, Debug)]
pub struct Store {
    /// The number of the buffer.
    pub buffer: u32,
    /// The element that is written.
    pub offset: Affine,
    /// What is written.
    pub item: ItemId,
    /// The type of the element.
    pub element_type: ElementType,
    /// The value there is combined with the item instead of replaced by it.
    pub combine: Option<Function>,
    /// Where it is false nothing is written.
    pub condition: Option<ItemId>,
}

/// A nest of loops.
#[derive(Clone, Debug, Default)]
pub struct LoopProgram {
    /// The sizes of all loops, by variable.
    pub extents: Vec<i64>,
    /// The variables of the nest, outermost first.
    pub nest: SmallVec<[VarId; 4]>,
    /// The items, each after those it is made of.
    pub items: Vec<ItemData>,
    /// What the innermost loop writes.
    pub stores: Vec<Store>,
    /// Whether two points of the nest may write the same element, so that their order counts.
    pub is_sequential: bool,
    /// In that case, how many of the outermost loops are parts of the result that have nothing to do with each other.
    pub apart: usize,
    /// And whether two points that differ in a loop that moves what they write may write the same element even so: what they
    /// write is moved by other things as well.
    pub overlapping: bool,
    /// Buffers (from, to) and bytes to copy first, if they are not the same memory.
    pub copy_first: Option<(u32, u32, i64)>,
    /// The tiles of transposes.
    pub tiles: Vec<Tile>,
    /// The rows that are kept.
    pub rows: Vec<ScratchRow>,
    /// How many of the innermost loops of the nest walk along rows that are kept: they are done in one piece.
    pub uncut: usize,
    /// What is to be done first, in the same unit; only of sequential programs.
    pub before: Option<Box<LoopProgram>>,
    /// How its units are whole rows, if they are to be that.
    pub row_tiles: Option<RowTiles>,
}

impl LoopProgram {
    /// The item of that number.
    pub fn item(&self, id: ItemId) -> &ItemData {
        &self.items[id as usize]
    }

    /// What an index is at most, if that is known and it is never negative.
    pub fn most(&self, index: &Affine) -> Option<i64> {
        self.most_of(index, 0)
    }

    fn most_of(&self, index: &Affine, depth: usize) -> Option<i64> {
        const MAX_DEPTH: usize = 8;
        let mut most = Some(index.constant).filter(|&c| c >= 0 && depth < MAX_DEPTH)?;
        for &(term, factor) in &index.terms {
            let greatest = match term {
                Term::Var(v) => self.extents[v as usize] - 1,
                Term::Item(i) => match &self.item(i).item {
                    Item::Remainder(_, divisor) => divisor - 1,
                    Item::Quotient(of, divisor) => self.most_of(of, depth + 1)? / divisor,
                    _ => return None,
                },
            };
            most = most.checked_add(Some(factor).filter(|&f| f >= 0)?.checked_mul(greatest)?)?;
        }
        Some(most)
    }

    /// The type in which a load finds its element.
    pub fn loaded_type(&self, data: &ItemData) -> ElementType {
        match &data.item {
            Item::Load { source: LoadSource::Row(n), .. } => self.rows[*n as usize].element_type,
            _ => data.element_type,
        }
    }

    /// The scan, if there is one.
    pub fn scan(&self) -> Option<(ItemId, &Reduce)> {
        self.items.iter().enumerate().find_map(|(n, i)| match &i.item {
            Item::Scan(scan) => Some((n as ItemId, &**scan)),
            _ => None,
        })
    }

    /// Whether what a scan makes for neighbours of the next loop around lies side by side.
    fn scans_side_by_side(&self) -> bool {
        let Some(&beside) = self.nest.iter().rev().nth(1) else { return false };
        self.stores.iter().all(|s| s.offset.factor(Term::Var(beside)) == 1)
    }

    /// The buffer that is written, if all that is done is to copy an array too large to be found in a cache later.
    pub fn copied_whole(&self) -> Option<u32> {
        const MIN_BYTES: i64 = 8 << 20;
        let (&[var], [store], [data]) = (&self.nest[..], &self.stores[..], &self.items[..]) else { return None };
        let Item::Load { source: LoadSource::Buffer(_), offset, guard: None } = &data.item else { return None };
        let along = Affine::term(Term::Var(var));
        let bytes = self.extents[var as usize].checked_mul(store.element_type.bytes() as i64)?;
        let plain = store.combine.is_none() && store.condition.is_none() && !store.element_type.is_complex();
        (plain && store.offset == along && *offset == along && bytes >= MIN_BYTES).then_some(store.buffer)
    }

    /// About how long all points of the nest take on such a core.
    pub fn nanoseconds(&self, core: &CoreCost) -> f64 {
        let points = |vars: &[VarId]| vars.iter().map(|&v| self.extents[v as usize] as f64).product::<f64>();
        let bytes = |t: ElementType| t.bytes() as f64 * core.near_byte;
        let mut time = 0.0;
        for data in &self.items {
            let each = match &data.item {
                Item::Load { .. } => bytes(data.element_type),
                Item::Scan(_) if !self.scans_side_by_side() => {
                    WAITING * data.item.additions(data.element_type).max(1.0) * core.addition
                }
                // Vectors hold fewer of what is wider.
                item => {
                    let width = data.element_type.bytes().max(4) as f64 / 4.0;
                    item.additions(data.element_type) * width * core.addition
                }
            };
            time += points(&data.vars) * each;
        }
        // What is written is read first.
        let stored: f64 = self.stores.iter().map(|s| 2.0 * bytes(s.element_type)).sum();
        let copied = self.copy_first.map_or(0.0, |c| 2.0 * c.2 as f64 * core.near_byte);
        time + copied + points(&self.nest) * stored
    }

    /// The affine expressions of an item.
    pub fn affine_mut(item: &mut Item) -> Option<&mut Affine> {
        match item {
            Item::Load { offset: index, .. }
            | Item::Index(index)
            | Item::Quotient(index, _)
            | Item::Remainder(index, _)
            | Item::InRange { index, .. } => Some(index),
            _ => None,
        }
    }

    /// Makes one loop of each two neighbours that every index sees only together.
    pub fn collapse(&mut self) {
        let reductions: Vec<SmallVec<[VarId; 2]>> = self
            .items
            .iter()
            .filter_map(|i| if let Item::Reduce(f) = &i.item { Some(f.vars.clone()) } else { None })
            .collect();
        let mut dropped: SmallVec<[VarId; 8]> = SmallVec::new();
        // The loop that a scan runs along stays as it is.
        let free = self.nest.len() - self.scan().iter().len();
        for chain in std::iter::once(SmallVec::from_slice(&self.nest[..free])).chain(reductions) {
            // From the inside out: what is merged so far is `inner`.
            let mut inner = match chain.last() {
                Some(&v) => v,
                None => continue,
            };
            for &outer in chain.iter().rev().skip(1) {
                if self.can_merge(outer, inner) {
                    let merged = self.extents[outer as usize].checked_mul(self.extents[inner as usize]);
                    let Some(merged) = merged else { continue };
                    self.extents[inner as usize] = merged;
                    self.drop_var(outer);
                    dropped.push(outer);
                } else {
                    inner = outer;
                }
            }
        }
        self.nest.retain(|v| !dropped.contains(v));
        for item in &mut self.items {
            if let Item::Reduce(reduce) = &mut item.item {
                reduce.vars.retain(|v| !dropped.contains(v));
            }
        }
    }

    fn can_merge(&mut self, outer: VarId, inner: VarId) -> bool {
        let size = self.extents[inner as usize];
        let fits = |a: &Affine| {
            let (o, i) = (a.factor(Term::Var(outer)), a.factor(Term::Var(inner)));
            i.checked_mul(size) == Some(o)
        };
        self.stores.iter().all(|s| fits(&s.offset))
            && self.items.iter_mut().all(|i| Self::affine_mut(&mut i.item).is_none_or(|a| fits(a)))
    }

    /// All affine expressions.
    fn for_each_affine(&mut self, mut f: impl FnMut(&mut Affine)) {
        self.stores.iter_mut().for_each(|s| f(&mut s.offset));
        self.items.iter_mut().filter_map(|i| Self::affine_mut(&mut i.item)).for_each(f);
    }

    /// The part of the program in which `var` runs over `low..high`.
    pub fn restricted(&self, var: VarId, low: i64, high: i64) -> LoopProgram {
        let mut part = self.clone();
        part.extents[var as usize] = high - low;
        part.for_each_affine(|a| *a = a.plus_constant(a.factor(Term::Var(var)).wrapping_mul(low)));
        part
    }

    /// Cuts the loop of `var` into parts of `size`, which divides it: `var` is then the loop inside of a part, and the
    /// result the loop over the parts.
    pub fn split(&mut self, var: VarId, size: i64) -> VarId {
        let parts = self.extents.len() as VarId;
        self.extents.push(self.extents[var as usize] / size);
        self.extents[var as usize] = size;
        self.for_each_affine(|a| {
            let factor = a.factor(Term::Var(var)).wrapping_mul(size);
            *a = a.plus(&Affine::term(Term::Var(parts)), factor);
        });
        for item in self.items.iter_mut().filter(|i| i.vars.contains(&var)) {
            item.vars.push(parts);
        }
        parts
    }

    fn drop_var(&mut self, var: VarId) {
        let drop = |a: &mut Affine| *a = a.without(Term::Var(var));
        self.stores.iter_mut().for_each(|s| drop(&mut s.offset));
        for item in &mut self.items {
            if let Some(a) = Self::affine_mut(&mut item.item) {
                drop(a);
            }
            item.vars.retain(|v| *v != var);
        }
    }

    /// Finds out again which loops each item changes with.
    pub fn find_vars(&mut self) {
        for id in 0..self.items.len() {
            let mut vars: SmallVec<[VarId; 4]> = SmallVec::new();
            let mut item = self.items[id].item.clone();
            if let Some(affine) = Self::affine_mut(&mut item) {
                vars.extend(affine.terms.iter().filter_map(|t| match t.0 {
                    Term::Var(v) => Some(v),
                    Term::Item(_) => None,
                }));
            }
            item.for_each_operand(|o| vars.extend_from_slice(&self.items[o as usize].vars));
            if let Item::Reduce(reduce) = &item {
                vars.retain(|v| !reduce.vars.contains(v));
            }
            vars.sort_unstable();
            vars.dedup();
            self.items[id].vars = vars;
        }
    }

    /// Drops the items that nothing needs.
    pub fn remove_dead(&mut self) {
        let mut live = vec![false; self.items.len()];
        for store in &self.stores {
            live[store.item as usize] = true;
            store.condition.iter().for_each(|&c| live[c as usize] = true);
            for &(term, _) in &store.offset.terms {
                if let Term::Item(i) = term {
                    live[i as usize] = true;
                }
            }
        }
        for id in (0..self.items.len()).rev() {
            if live[id] {
                self.for_each_needed(id as ItemId, |o| live[o as usize] = true);
            }
        }
        let mut new_id: FxHashMap<ItemId, ItemId> = FxHashMap::default();
        let mut kept = Vec::new();
        for (id, mut data) in std::mem::take(&mut self.items).into_iter().enumerate() {
            if live[id] {
                data.item.map_operands(|o| new_id[&o]);
                new_id.insert(id as ItemId, kept.len() as ItemId);
                kept.push(data);
            }
        }
        self.items = kept;
        self.rename_stored(|i| new_id.get(&i).copied().unwrap_or(i));
    }

    /// Calls `f` with all that must be computed before an item: what it is made of, and the row it is read from.
    pub fn for_each_needed(&self, id: ItemId, mut f: impl FnMut(ItemId)) {
        let item = &self.items[id as usize].item;
        item.for_each_operand(&mut f);
        if let Item::Load { source: LoadSource::Row(n), .. } = item {
            let row = &self.rows[*n as usize];
            f(row.item);
            f(row.reduce);
        }
    }

    /// Gives the items that stores and rows name their new numbers.
    pub fn rename_stored(&mut self, new: impl Fn(ItemId) -> ItemId) {
        for store in &mut self.stores {
            store.item = new(store.item);
            store.condition = store.condition.map(&new);
            rename_terms(&mut store.offset, &new);
        }
        for row in &mut self.rows {
            (row.item, row.reduce) = (new(row.item), new(row.reduce));
        }
    }
}

/// Gives the items in an index new numbers.
pub fn rename_terms(affine: &mut Affine, new: &impl Fn(ItemId) -> ItemId) {
    for (term, _) in &mut affine.terms {
        if let Term::Item(i) = term {
            *i = new(*i);
        }
    }
    affine.terms.sort();
}

impl Item {
    /// Calls `f` with each item that this one is made of.
    pub fn for_each_operand(&self, mut f: impl FnMut(ItemId)) {
        let mut of = |a: &Affine| {
            for &(term, _) in &a.terms {
                if let Term::Item(i) = term {
                    f(i);
                }
            }
        };
        match self {
            Item::Constant(..) => {}
            Item::Load { offset, guard, .. } => {
                of(offset);
                guard.iter().for_each(|&g| f(g));
            }
            Item::Index(a) | Item::Quotient(a, _) | Item::Remainder(a, _) | Item::InRange { index: a, .. } => of(a),
            Item::Scalar(_, operands) | Item::Apply(_, operands) => operands.iter().for_each(|&o| f(o)),
            Item::Reduce(reduce) | Item::Scan(reduce) => {
                let all = reduce.inits.iter().chain(&reduce.inputs).chain(&reduce.condition);
                all.for_each(|&o| f(o));
            }
            Item::ReduceResult(reduce, _) => f(*reduce),
        }
    }

    /// Gives the operands of an item new numbers.
    pub fn map_operands(&mut self, new: impl Fn(ItemId) -> ItemId) {
        match self {
            Item::Constant(..) => {}
            Item::Load { offset, guard, .. } => {
                rename_terms(offset, &new);
                *guard = guard.map(&new);
            }
            Item::Index(a) | Item::Quotient(a, _) | Item::Remainder(a, _) | Item::InRange { index: a, .. } => {
                rename_terms(a, &new);
            }
            Item::Scalar(_, operands) | Item::Apply(_, operands) => operands.iter_mut().for_each(|o| *o = new(*o)),
            Item::Reduce(reduce) | Item::Scan(reduce) => {
                let all = reduce.inits.iter_mut().chain(&mut reduce.inputs).chain(&mut reduce.condition);
                all.for_each(|o| *o = new(*o));
            }
            Item::ReduceResult(reduce, _) => *reduce = new(*reduce),
        }
    }
}

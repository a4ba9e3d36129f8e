//! Several passes over the same rows with one set of loops, for machines whose threads walk rows together.
//!
//! A softmax reduces each row twice and then writes it; as nests of loops each pass has loop variables of its own. Here
//! all of them get the same ones: first the *kept* loops, which count the rows, then the loops *along* a row. Reductions
//! along rows have these very loops, so that an element which two passes need is one item, and may stay in a register from
//! the one to the other. Nests of different results over the same rows become one.
//!
//! Which element of one pass is paired with which of another is a matter of speed only: a reduction takes all of a row.

use crate::affine::{Affine, ItemId, Term, VarId};
use crate::program::{Item, ItemData, LoopProgram, Store};
use hloom_ir::ElementType;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// Passes over rows.
#[derive(Clone, Debug)]
pub struct RowPasses {
    /// The kept loops and those along a row are its nest; a store whose offset does not vary along the row is one a row.
    pub program: LoopProgram,
    /// How many loops of the nest are kept ones.
    pub kept: usize,
}

/// A list of loop variables, outermost first.
type Vars = SmallVec<[VarId; 4]>;

/// Which loops of a program count rows and which run along them.
struct Division {
    kept: Vars,
    /// Empty where the program has a value for each row only.
    along: Vars,
}

impl RowPasses {
    /// The passes over rows that `programs` have in common, where they have reductions of at least `least` elements, and
    /// the numbers of the programs that are not among them.
    pub fn of(programs: &[LoopProgram], least: i64) -> Option<(RowPasses, Vec<usize>)> {
        let length = programs.iter().flat_map(|p| p.row_reductions().map(|(_, size)| size)).max()?;
        if length < least.max(2) {
            return None;
        }
        let mut divided: Vec<(usize, LoopProgram, Division)> = Vec::new();
        for (n, program) in programs.iter().enumerate() {
            if let Some(division) = program.divide_rows(length) {
                divided.push((n, program.clone(), division));
            }
        }
        let rows = |p: &LoopProgram, d: &Division| p.size_of(&d.kept);
        let (_, first, division) = divided.first()?;
        let count = rows(first, division);
        divided.retain(|(_, p, d)| rows(p, d) == count);
        let (kept, along) = common_factors(&divided)?;
        let mut merged = Merger::new(&kept, &along);
        let mut taken: FxHashSet<usize> = FxHashSet::default();
        for (n, mut program, division) in divided {
            merged.add_divided(&mut program, &division, length)?;
            taken.insert(n);
        }
        // Nests without a reduction over rows join if they have something in common with those that have one.
        for (n, program) in programs.iter().enumerate().filter(|(n, _)| !taken.contains(n)).collect::<Vec<_>>() {
            if program.row_reductions().next().is_none() && merged.add_plain(program) {
                taken.insert(n);
            }
        }
        let rest = (0..programs.len()).filter(|n| !taken.contains(n)).collect();
        let kept = kept.len();
        Some((RowPasses { program: merged.finish(), kept }, rest))
    }

    /// The loops along a row.
    pub fn along(&self) -> &[VarId] {
        &self.program.nest[self.kept..]
    }

    /// The elements of a row.
    pub fn length(&self) -> i64 {
        self.program.size_of(self.along())
    }

    /// How many rows there are.
    pub fn rows(&self) -> i64 {
        self.program.size_of(&self.program.nest[..self.kept])
    }

    /// Whether a reduction is one along the rows.
    pub fn is_along(&self, item: &Item) -> bool {
        matches!(item, Item::Reduce(reduce) if reduce.vars[..] == *self.along())
    }

    /// The reductions along rows by the number of the pass in which each is made: those of one pass need only the results
    /// of passes before.
    pub fn passes(&self) -> Vec<Vec<ItemId>> {
        let program = &self.program;
        let mut level = vec![0usize; program.items.len()];
        let mut passes: Vec<Vec<ItemId>> = Vec::new();
        for (id, data) in program.items.iter().enumerate() {
            let mut needed = 0;
            data.item.for_each_operand(|o| needed = needed.max(level[o as usize]));
            if self.is_along(&data.item) {
                if passes.len() <= needed {
                    passes.resize(needed + 1, Vec::new());
                }
                passes[needed].push(id as ItemId);
                needed += 1;
            }
            level[id] = needed;
        }
        passes
    }
}

impl LoopProgram {
    /// How many points loops of those variables have.
    pub fn size_of(&self, vars: &[VarId]) -> i64 {
        vars.iter().fold(1, |size, &v| size.saturating_mul(self.extents[v as usize]))
    }

    /// The reductions whose results vary with the nest only, and how many elements each takes.
    pub fn row_reductions(&self) -> impl Iterator<Item = (ItemId, i64)> + '_ {
        self.items.iter().enumerate().filter_map(|(id, data)| match &data.item {
            Item::Reduce(r) if !r.vars.is_empty() && data.vars.iter().all(|v| self.nest.contains(v)) => {
                Some((id as ItemId, self.size_of(&r.vars)))
            }
            _ => None,
        })
    }

    /// The loops that count rows of `length`, if the program reduces such.
    fn divide_rows(&self, length: i64) -> Option<Division> {
        if self.is_sequential || self.scan().is_some() {
            return None;
        }
        let mut reductions = self.row_reductions();
        if reductions.any(|(_, size)| size != length && size > MAX_LOCAL) {
            return None;
        }
        let rows: Vec<ItemId> = self.row_reductions().filter(|r| r.1 == length).map(|r| r.0).collect();
        if rows.is_empty() {
            return None;
        }
        let varies = |v: &VarId| rows.iter().any(|&r| self.item(r).vars.contains(v));
        let (kept, along): (Vars, Vars) = self.nest.iter().copied().partition(varies);
        (along.is_empty() || self.size_of(&along) == length).then_some(Division { kept, along })
    }

    /// Makes loops of `vars` into loops of those sizes, which have the same product; the new variables.
    fn refine(&mut self, vars: &[VarId], sizes: &[i64]) -> Option<Vars> {
        let mut refined = Vars::new();
        let mut sizes = sizes.iter().rev();
        for &var in vars.iter().rev() {
            let mut var = var;
            loop {
                let &size = sizes.next()?;
                match self.extents[var as usize] {
                    extent if extent == size => {
                        refined.insert(0, var);
                        break;
                    }
                    extent if size > 0 && extent % size == 0 => {
                        let outer = self.split(var, size);
                        for data in &mut self.items {
                            if let Item::Reduce(reduce) = &mut data.item
                                && let Some(at) = reduce.vars.iter().position(|&v| v == var)
                            {
                                reduce.vars.insert(at, outer);
                            }
                        }
                        refined.insert(0, var);
                        var = outer;
                    }
                    _ => return None,
                }
            }
        }
        sizes.next().is_none().then_some(refined)
    }
}

/// Reductions of so few elements are made by each thread for itself.
const MAX_LOCAL: i64 = 32;

/// The sizes of loops of which all lists of loops are made, for kept loops and for those along rows.
fn common_factors(divided: &[(usize, LoopProgram, Division)]) -> Option<(Vec<i64>, Vec<i64>)> {
    let (mut kept, mut along) = (Vec::new(), Vec::new());
    for (_, program, division) in divided {
        let extents = |vars: &[VarId]| vars.iter().map(|&v| program.extents[v as usize]).collect::<Vec<i64>>();
        kept.push(extents(&division.kept));
        if !division.along.is_empty() {
            along.push(extents(&division.along));
        }
        let length = program.row_reductions().map(|r| r.1).max()?;
        for (id, _) in program.row_reductions().filter(|r| r.1 == length) {
            if let Item::Reduce(reduce) = &program.item(id).item {
                along.push(extents(&reduce.vars));
            }
        }
    }
    Some((refinement(&kept)?, refinement(&along)?))
}

/// The coarsest sizes from which the sizes of each list can be multiplied together, in order.
fn refinement(lists: &[Vec<i64>]) -> Option<Vec<i64>> {
    let mut products: Vec<i64> = vec![1];
    for list in lists {
        let mut product = 1i64;
        for &size in list.iter().rev() {
            product = product.checked_mul(size)?;
            products.push(product);
        }
    }
    products.sort_unstable();
    products.dedup();
    let mut sizes = Vec::new();
    for pair in products.windows(2) {
        if pair[0] == 0 || pair[1] % pair[0] != 0 {
            return None;
        }
        sizes.push(pair[1] / pair[0]);
    }
    sizes.reverse();
    Some(sizes)
}

/// Programs being put together.
struct Merger {
    program: LoopProgram,
    interned: FxHashMap<(Item, ElementType), ItemId>,
    kept: usize,
}

impl Merger {
    fn new(kept: &[i64], along: &[i64]) -> Merger {
        let extents: Vec<i64> = kept.iter().chain(along).copied().collect();
        let nest = (0..extents.len() as VarId).collect();
        let program = LoopProgram { extents, nest, ..LoopProgram::default() };
        Merger { program, interned: FxHashMap::default(), kept: kept.len() }
    }

    fn sizes(&self) -> (Vec<i64>, Vec<i64>) {
        let (kept, along) = self.program.extents[..self.program.nest.len()].split_at(self.kept);
        (kept.to_vec(), along.to_vec())
    }

    fn add_divided(&mut self, program: &mut LoopProgram, division: &Division, length: i64) -> Option<()> {
        let (kept, along) = self.sizes();
        let rows: Vec<ItemId> = program.row_reductions().filter(|r| r.1 == length).map(|r| r.0).collect();
        let mut renamed: FxHashMap<VarId, VarId> = FxHashMap::default();
        let mut rename = |vars: &[VarId], first: usize| {
            renamed.extend(vars.iter().enumerate().map(|(n, &v)| (v, (first + n) as VarId)));
        };
        rename(&program.refine(&division.kept, &kept)?, 0);
        if !division.along.is_empty() {
            rename(&program.refine(&division.along, &along)?, kept.len());
        }
        for id in rows {
            let Item::Reduce(reduce) = &program.item(id).item else { continue };
            // Two reductions may share their loops already.
            let vars = reduce.vars.clone();
            if vars.len() != along.len() || vars.iter().any(|v| !renamed.contains_key(v)) {
                let refined = program.refine(&vars, &along)?;
                renamed.extend(refined.iter().enumerate().map(|(n, &v)| (v, (kept.len() + n) as VarId)));
            }
        }
        self.add(program, &renamed);
        Some(())
    }

    /// Adds a nest over all elements, or over rows, if any of its items is there already.
    fn add_plain(&mut self, program: &LoopProgram) -> bool {
        if program.is_sequential || program.scan().is_some() || program.items.iter().any(|i| i.item.is_loop()) {
            return false;
        }
        let (kept, along) = self.sizes();
        let numbers = |from: usize, count: usize| (from..from + count).map(|n| n as VarId).collect::<Vec<VarId>>();
        let (rows, elements) = (numbers(0, kept.len()), numbers(kept.len(), along.len()));
        let orders = [
            ([&kept[..], &along].concat(), [&rows[..], &elements].concat()),
            ([&along[..], &kept].concat(), [&elements[..], &rows].concat()),
            (kept.clone(), rows),
        ];
        for (sizes, names) in orders {
            let mut program = program.clone();
            let nest = program.nest.clone();
            let product = |s: &[i64]| s.iter().fold(1i64, |a, &b| a.saturating_mul(b));
            if program.size_of(&nest) != product(&sizes) {
                continue;
            }
            let Some(vars) = program.refine(&nest, &sizes) else { continue };
            let renamed = vars.iter().copied().zip(names).collect();
            if self.shares(&program, &renamed) {
                self.add(&program, &renamed);
                return true;
            }
        }
        false
    }

    /// Whether a load of the program is one that is there already.
    fn shares(&self, program: &LoopProgram, renamed: &FxHashMap<VarId, VarId>) -> bool {
        program.items.iter().any(|data| match &data.item {
            Item::Load { source, offset, guard: None } if offset.terms.iter().all(|t| matches!(t.0, Term::Var(_))) => {
                let offset = rename(offset, renamed, &[]);
                let item = Item::Load { source: source.clone(), offset, guard: None };
                self.interned.contains_key(&(item, data.element_type))
            }
            _ => false,
        })
    }

    fn add(&mut self, program: &LoopProgram, renamed: &FxHashMap<VarId, VarId>) {
        let mut renamed = renamed.clone();
        // Loops of reductions that are made by each thread keep loops of their own.
        for data in &program.items {
            if let Item::Reduce(reduce) = &data.item {
                for &v in &reduce.vars {
                    renamed.entry(v).or_insert_with(|| {
                        self.program.extents.push(program.extents[v as usize]);
                        self.program.extents.len() as VarId - 1
                    });
                }
            }
        }
        let mut new_id: Vec<ItemId> = Vec::with_capacity(program.items.len());
        for data in &program.items {
            let mut item = data.item.clone();
            item.map_operands(|o| new_id[o as usize]);
            if let Some(affine) = LoopProgram::affine_mut(&mut item) {
                *affine = rename(affine, &renamed, &[]);
            }
            if let Item::Reduce(reduce) = &mut item {
                reduce.vars.iter_mut().for_each(|v| *v = renamed[v]);
            }
            let key = (item, data.element_type);
            let items = &mut self.program.items;
            let id = *self.interned.entry(key).or_insert_with_key(|(item, element_type)| {
                items.push(ItemData { item: item.clone(), element_type: *element_type, vars: SmallVec::new() });
                items.len() as ItemId - 1
            });
            new_id.push(id);
        }
        for store in &program.stores {
            let offset = rename(&store.offset, &renamed, &new_id);
            let (item, condition) = (new_id[store.item as usize], store.condition.map(|c| new_id[c as usize]));
            self.program.stores.push(Store { offset, item, condition, ..store.clone() });
        }
    }

    fn finish(mut self) -> LoopProgram {
        self.program.find_vars();
        self.program
    }
}

/// An index with other names of its loops, and of its items where there are new numbers of them.
fn rename(affine: &Affine, vars: &FxHashMap<VarId, VarId>, items: &[ItemId]) -> Affine {
    let mut renamed = Affine::constant(affine.constant);
    for &(term, factor) in &affine.terms {
        let term = match term {
            Term::Var(v) => Term::Var(vars.get(&v).copied().unwrap_or(v)),
            Term::Item(i) => Term::Item(items.get(i as usize).copied().unwrap_or(i)),
        };
        renamed = renamed.plus(&Affine::term(term), factor);
    }
    renamed
}

impl Item {
    /// Whether it runs loops of its own.
    pub fn is_loop(&self) -> bool {
        matches!(self, Item::Reduce(_) | Item::Scan(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_cut_into_the_coarsest_that_all_lists_have() {
        assert_eq!(refinement(&[vec![6, 20], vec![120]]), Some(vec![6, 20]));
        assert_eq!(refinement(&[vec![6, 20], vec![24, 5]]), Some(vec![6, 4, 5]));
        assert_eq!(refinement(&[vec![]]), Some(vec![]));
        // 6 is no multiple of 4: neither list can be cut into parts of the other.
        assert_eq!(refinement(&[vec![2, 4], vec![6, 2]]), None);
    }
}

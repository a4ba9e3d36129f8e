//! Rows that are kept: what one pass over a row computes, and a later pass over the same row needs again, is put into a
//! small array on the stack instead of being computed twice.
//!
//! A softmax is three passes over each row: the greatest, the sum of exponentials, and the quotients. As loops, the first
//! two are reductions and the last is the innermost of the nest; the exponential stands in the second and again in the third.
//! Items of two such loops are the same if they are equal once the loop variables are. Kept is what would cost more to
//! compute again than to store and load.

use crate::affine::{Affine, ItemId, Term, VarId};
use crate::program::{Item, LoadSource, LoopProgram};
use hloom_cost::{CoreCost, element};
use hloom_ir::ElementType;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// What is kept of a row.
#[derive(Clone, Debug)]
pub struct ScratchRow {
    /// The item that is kept, inside the loops of a reduce.
    pub item: ItemId,
    /// The reduction.
    pub reduce: ItemId,
    /// Where in the row an iteration of those loops is.
    pub offset: Affine,
    /// The type in which it is kept: that in which it is computed with.
    pub element_type: ElementType,
    /// Where the row begins among all that are kept, in bytes.
    pub start: u32,
}

/// Room for all rows of a program: they are to stay in a core's own caches, and the stacks of helpers are small.
pub const MAX_BYTES: u32 = 256 << 10;
/// Larger programs are left as they are.
const MAX_ITEMS: usize = 2000;

/// Loops that walk along a row: those of a reduce, or the innermost of the nest.
struct Pass {
    vars: SmallVec<[VarId; 2]>,
    /// The reduce, unless it is the nest.
    reduce: Option<ItemId>,
    /// The items that change along the row, in order.
    items: Vec<ItemId>,
}

/// What two items have in common that are the same at the same place of a row: all but the names of the loops, of which
/// only the sizes count.
type Kind = (Item, ElementType, SmallVec<[i64; 2]>);

impl LoopProgram {
    /// Keeps rows where that is better than to compute them again.
    pub fn cache_rows(&mut self, core: &CoreCost) {
        let is_plain = !self.is_sequential && self.tiles.is_empty() && self.before.is_none() && self.scan().is_none();
        if !is_plain || self.items.len() > MAX_ITEMS {
            return;
        }
        let passes = self.passes();
        if passes.len() < 2 {
            return;
        }
        let first = self.first_of_its_kind(&passes);
        let is_again = |i: ItemId| first[i as usize].0 != i;
        let mut is_needed = vec![false; self.items.len()];
        for (id, data) in self.items.iter().enumerate() {
            if !is_again(id as ItemId) {
                data.item.for_each_operand(|o| is_needed[o as usize] = true);
            }
        }
        for store in &self.stores {
            is_needed[store.item as usize] = true;
            store.condition.iter().for_each(|&c| is_needed[c as usize] = true);
        }
        let mut row_of: FxHashMap<ItemId, u32> = FxHashMap::default();
        for pass in &passes {
            for &id in &pass.items {
                let (from, in_pass) = first[id as usize];
                if from == id || !is_needed[id as usize] || !self.is_better_kept(id, pass, core) {
                    continue;
                }
                let row = match row_of.get(&from) {
                    Some(&row) => row,
                    None => {
                        let Some(row) = self.new_row(from, &passes[in_pass]) else { continue };
                        row_of.insert(from, row);
                        row
                    }
                };
                let offset = self.place_in_row(&pass.vars);
                self.items[id as usize].item = Item::Load { source: LoadSource::Row(row), offset, guard: None };
                if pass.reduce.is_none() {
                    self.uncut = self.uncut.max(pass.vars.len());
                }
            }
        }
        if !self.rows.is_empty() {
            self.put_in_order();
            self.remove_dead();
        }
    }

    /// All passes over rows, in the order in which they run.
    fn passes(&self) -> Vec<Pass> {
        let mut passes: Vec<Pass> = Vec::new();
        let is_outer = |v: &VarId, inner: usize| self.nest[..self.nest.len() - inner].contains(v);
        let depth = |vars: &[VarId]| self.nest.iter().rposition(|v| vars.contains(v)).map_or(0, |n| n + 1);
        for (id, data) in self.items.iter().enumerate() {
            let Item::Reduce(reduce) = &data.item else { continue };
            // The reduce stands outside of the loops that may have lanes.
            let inner = reduce.vars.len().min(self.nest.len());
            if !reduce.vars.is_empty() && inner > 0 && data.vars.iter().all(|v| is_outer(v, inner)) {
                passes.push(Pass { vars: reduce.vars.clone(), reduce: Some(id as ItemId), items: Vec::new() });
            }
        }
        passes.sort_by_key(|p| p.reduce.map(|f| depth(&self.item(f).vars)));
        let extents = |vars: &[VarId]| vars.iter().map(|&v| self.extents[v as usize]).collect::<SmallVec<[i64; 2]>>();
        let mut lengths: SmallVec<[usize; 2]> = passes.iter().map(|p| p.vars.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        for inner in lengths {
            let vars = &self.nest[self.nest.len() - inner.min(self.nest.len())..];
            if passes.iter().any(|p| extents(&p.vars) == extents(vars)) {
                passes.push(Pass { vars: vars.into(), reduce: None, items: Vec::new() });
            }
        }
        for pass in &mut passes {
            let is_known = |v: &VarId| pass.vars.contains(v) || is_outer(v, pass.vars.len());
            let along = |vars: &[VarId]| vars.iter().any(|v| pass.vars.contains(v)) && vars.iter().all(is_known);
            let items = self.items.iter().enumerate().filter(|(_, data)| along(&data.vars));
            let items = items.map(|(id, _)| id as ItemId).collect();
            pass.items = items;
        }
        passes
    }

    /// For each item the first that is the same at the same place of a row, and the pass that one is in.
    fn first_of_its_kind(&self, passes: &[Pass]) -> Vec<(ItemId, usize)> {
        let mut first: Vec<(ItemId, usize)> = (0..self.items.len()).map(|n| (n as ItemId, 0)).collect();
        let mut known: FxHashMap<Kind, (ItemId, usize)> = FxHashMap::default();
        for (number, pass) in passes.iter().enumerate() {
            let extents: SmallVec<[i64; 2]> = pass.vars.iter().map(|&v| self.extents[v as usize]).collect();
            for &id in &pass.items {
                if first[id as usize].0 != id {
                    continue;
                }
                let data = self.item(id);
                let mut item = data.item.clone();
                // Loops of rows have common names, behind those that there are.
                LoopProgram::affine_mut(&mut item).into_iter().for_each(|affine| {
                    for (n, &v) in pass.vars.iter().enumerate() {
                        let common = Term::Var((self.extents.len() + n) as VarId);
                        *affine = affine.without(Term::Var(v)).plus(&Affine::term(common), affine.factor(Term::Var(v)));
                    }
                });
                item.map_operands(|o| first[o as usize].0);
                let here = (id, number);
                let found = *known.entry((item, data.element_type, extents.clone())).or_insert(here);
                // The nest has no place of its own to be kept from.
                first[id as usize] = if passes[found.1].reduce.is_some() { found } else { here };
            }
        }
        first
    }

    /// Whether it takes longer to compute an item of a pass, with all that it needs and that changes along the row, than to
    /// store and load it.
    fn is_better_kept(&self, id: ItemId, pass: &Pass, core: &CoreCost) -> bool {
        let moved = 2.0 * self.item(id).element_type.bytes().max(4) as f64 * core.near_byte / core.addition;
        let (mut cost, mut pending, mut seen) = (0.0, vec![id], vec![id]);
        while let Some(id) = pending.pop() {
            let data = self.item(id);
            cost += match &data.item {
                Item::Load { offset, .. } => {
                    let last = pass.vars.last().map_or(0, |&v| offset.factor(Term::Var(v)));
                    let is_gathered = offset.terms.iter().any(|t| matches!(t.0, Term::Item(_)));
                    if is_gathered || !matches!(last, -1..=1) { element::GATHER } else { 0.0 }
                }
                item => item.additions(data.element_type),
            };
            data.item.for_each_operand(|o| {
                if self.item(o).vars.iter().any(|v| pass.vars.contains(v)) && !seen.contains(&o) {
                    seen.push(o);
                    pending.push(o);
                }
            });
            if cost >= moved {
                return true;
            }
        }
        false
    }

    fn new_row(&mut self, item: ItemId, pass: &Pass) -> Option<u32> {
        let element_type = match self.item(item).element_type {
            ElementType::F16 | ElementType::Bf16 => ElementType::F32,
            t if t.is_complex() => return None,
            t => t,
        };
        let elements = pass.vars.iter().try_fold(1i64, |n, &v| n.checked_mul(self.extents[v as usize]))?;
        let bytes =
            u32::try_from(elements.checked_mul(element_type.bytes() as i64)?).ok()?.checked_next_multiple_of(64)?;
        let start = self.rows.last().map_or(0, |r| r.start + self.row_bytes(r));
        if start.checked_add(bytes)? > MAX_BYTES {
            return None;
        }
        let offset = self.place_in_row(&pass.vars);
        self.rows.push(ScratchRow { item, reduce: pass.reduce?, offset, element_type, start });
        Some(self.rows.len() as u32 - 1)
    }

    fn row_bytes(&self, row: &ScratchRow) -> u32 {
        let vars = row.offset.terms.iter().filter_map(|t| if let Term::Var(v) = t.0 { Some(v) } else { None });
        let elements: i64 = vars.map(|v| self.extents[v as usize]).product();
        (elements as u32 * row.element_type.bytes() as u32).next_multiple_of(64)
    }

    /// The position in a row, of an iteration of loops.
    fn place_in_row(&self, vars: &[VarId]) -> Affine {
        let along = |at: Affine, &v: &VarId| at.times(self.extents[v as usize]).plus(&Affine::term(Term::Var(v)), 1);
        vars.iter().fold(Affine::default(), along)
    }

    /// Puts what is read of a row behind the reduce that computes it, and all else where it can stay.
    fn put_in_order(&mut self) {
        let mut new_id: Vec<Option<ItemId>> = vec![None; self.items.len()];
        let mut order: Vec<ItemId> = Vec::with_capacity(self.items.len());
        for id in 0..self.items.len() as ItemId {
            let mut pending = vec![id];
            while let Some(&top) = pending.last() {
                if new_id[top as usize].is_some() {
                    pending.pop();
                    continue;
                }
                let before = pending.len();
                self.for_each_needed(top, |o| {
                    if new_id[o as usize].is_none() {
                        pending.push(o);
                    }
                });
                if pending.len() == before {
                    new_id[top as usize] = Some(order.len() as ItemId);
                    order.push(top);
                    pending.pop();
                }
            }
        }
        let new = |i: ItemId| new_id[i as usize].unwrap_or(i);
        let mut items: Vec<_> = order.iter().map(|&i| self.items[i as usize].clone()).collect();
        items.iter_mut().for_each(|data| data.item.map_operands(new));
        self.items = items;
        self.rename_stored(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Graph, ScalarOp};
    use crate::nests::programs;
    use hloom_ir::op::UnaryOp;

    /// The only program of the fusion that is the root of the entry.
    fn only_program(text: &str) -> LoopProgram {
        let module = hloom_formats::hlo_text::read(text.as_bytes()).module.expect("it can be read");
        let root = module.entry().and_then(|e| module.root(e)).expect("there is a root");
        let graph = Graph::of(&module, root, None).expect("it is supported");
        programs(&graph, false).expect("it is supported").remove(0)
    }

    fn softmax(row: i64) -> String {
        format!(
            "HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
body {{
  x = f32[64,{row}] parameter(0)
  zero = f32[] constant(0)
  e = f32[64,{row}] exponential(x)
  s = f32[64] reduce(e, zero), dimensions={{1}}, to_apply=add
  sums = f32[64,{row}] broadcast(s), dimensions={{0}}
  ROOT r = f32[64,{row}] divide(e, sums)
}}
ENTRY entry {{
  x = f32[64,{row}] parameter(0)
  ROOT f = f32[64,{row}] fusion(x), kind=kLoop, calls=body
}}
"
        )
    }

    fn exponentials(program: &LoopProgram) -> usize {
        let is_exp =
            |i: &&crate::program::ItemData| matches!(i.item, Item::Scalar(ScalarOp::Unary(UnaryOp::Exponential), _));
        program.items.iter().filter(is_exp).count()
    }

    #[test]
    fn an_exponential_is_computed_once_if_its_row_is_not_too_long() {
        for (row, kept) in [(10, true), (1000, true), (100_000, false)] {
            let mut program = only_program(&softmax(row));
            assert_eq!(exponentials(&program), 2);
            program.cache_rows(&CoreCost::default());
            assert_eq!((exponentials(&program), program.rows.len()), if kept { (1, 1) } else { (2, 0) });
            // Whole rows are done by one thread.
            assert_eq!(program.uncut, usize::from(kept));
        }
    }

    #[test]
    fn what_costs_little_is_computed_again() {
        let mut program = only_program(&softmax(100).replace("exponential(x)", "negate(x)"));
        program.cache_rows(&CoreCost::default());
        assert!(program.rows.is_empty());
    }
}

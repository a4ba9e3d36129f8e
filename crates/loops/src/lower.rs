//! From graphs to loop programs: the value of every node at every index at which it is needed.
//!
//! Indices are affine in the loop variables. Moving data (slices, transposes, reshapes, pads …) is then only a change of
//! index, and costs nothing at run time. A reshape that would need a division makes the loops be split instead, where
//! that helps: the lowering starts again with smaller loops ([`Splits`]).

use crate::affine::{Affine, ItemId, Term, VarId};
use crate::graph::{Graph, Node, NodeOp, ScalarOp, ValueRef};
use crate::program::{Item, ItemData, LoadSource, LoopProgram, Store};
use crate::unsupported::Unsupported;
use hloom_ir::ElementType;
use hloom_ir::op::BinaryOp;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

/// The most items of a program, for each node of its graph and at all: a graph whose nodes are needed at very many indices
/// is refused, since LLVM would take very long over it.
const MAX_ITEMS_PER_NODE: usize = 8;
const MAX_ITEMS: usize = 30_000;
/// That many are always allowed.
const FEW_ITEMS: usize = 1_000;
/// How often the loops are split before what is left is done by division.
const MAX_ATTEMPTS: usize = 12;

/// An index into an array, one expression per dimension.
pub type Index = SmallVec<[Affine; 4]>;

/// Which loop a variable is: of the nest, or of a reduce.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Origin {
    Nest(usize),
    Reduce { node: u32, dimension: usize },
}

/// The variables that a loop was cut into, and the index they make together.
pub type Loop = (SmallVec<[VarId; 2]>, Affine);

/// Adds the stores at an index of the nest.
pub type MakeStores<'b> = &'b dyn Fn(&mut Lowerer<'_>, &[Affine]) -> Result<(), Unsupported>;

/// Sizes into which loops are cut, the innermost last.
type Splits = FxHashMap<Origin, SmallVec<[i64; 4]>>;

/// A value that is wanted at an index.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ValueRequest {
    /// The value.
    pub value: ValueRef,
    /// The index.
    pub index: Index,
    /// Where this is false the value is never used.
    pub guard: Option<ItemId>,
}

/// A lowering at work.
pub struct Lowerer<'g> {
    /// What is lowered.
    pub graph: &'g Graph,
    /// What has come of it.
    pub program: LoopProgram,
    interned: FxHashMap<(Item, ElementType), ItemId>,
    memo: FxHashMap<ValueRequest, ItemId>,
    /// Requests that must be answered before the one at hand.
    missing: Vec<ValueRequest>,
    /// The loops of reductions, made when a request is first looked at.
    reduce_indices: FxHashMap<ValueRequest, Vec<Loop>>,
    /// Bounds of the s64 items that occur in indices.
    bounds: FxHashMap<ItemId, (i64, i64)>,
    /// Where each variable comes from, and which part of its loop it is.
    origins: Vec<(Origin, usize)>,
    splits: Splits,
    /// A split that would have saved a division.
    wish: Option<(Origin, SmallVec<[i64; 4]>)>,
}

/// What a program writes: one output at the whole of its index space, or at a part of it.
pub struct NestOutputs {
    /// The sizes of the nest.
    pub dims: SmallVec<[i64; 4]>,
    /// The outputs that are written: the buffer, the value, and by what the offset is shifted.
    pub outputs: Vec<(u32, ValueRef)>,
}

/// Lowers the writing of `target`.
pub fn lower(graph: &Graph, target: &NestOutputs) -> Result<LoopProgram, Unsupported> {
    lower_with(graph, &target.dims, &|lowerer, index| lowerer.store(&target.outputs, index))
}

impl Lowerer<'_> {
    /// Writes the outputs at one index.
    pub(crate) fn store(&mut self, outputs: &[(u32, ValueRef)], index: &[Affine]) -> Result<(), Unsupported> {
        for &(buffer, value) in outputs {
            let item = self.value(value, index, None)?;
            let offset = linear(index, self.graph.dims(value));
            let element_type = self.graph.element_type(value);
            self.program.stores.push(Store { buffer, offset, item, element_type, combine: None, condition: None });
        }
        Ok(())
    }
}

/// Lowers a nest of those sizes, whose stores are made by `body`, until no more loops need splitting.
pub fn lower_with(graph: &Graph, dims: &[i64], body: MakeStores<'_>) -> Result<LoopProgram, Unsupported> {
    let mut splits = Splits::default();
    for attempt in 0.. {
        let mut lowerer = Lowerer {
            graph,
            program: LoopProgram::default(),
            interned: FxHashMap::default(),
            memo: FxHashMap::default(),
            missing: Vec::new(),
            reduce_indices: FxHashMap::default(),
            bounds: FxHashMap::default(),
            origins: Vec::new(),
            splits: std::mem::take(&mut splits),
            wish: None,
        };
        let mut index = Index::new();
        for (d, &size) in dims.iter().enumerate() {
            let (vars, expression) = lowerer.new_loop(Origin::Nest(d), size);
            lowerer.program.nest.extend(vars);
            index.push(expression);
        }
        body(&mut lowerer, &index)?;
        if let (Some((origin, sizes)), true) = (lowerer.wish.take(), attempt < MAX_ATTEMPTS) {
            splits = lowerer.splits;
            splits.insert(origin, sizes);
            continue;
        }
        let mut program = lowerer.program;
        program.remove_dead();
        program.collapse();
        return Ok(program);
    }
    unreachable!("the loop above ends by returning")
}

/// The row-major position of an index.
pub fn linear(index: &[Affine], dims: &[i64]) -> Affine {
    let mut sum = Affine::default();
    for (i, &size) in index.iter().zip(dims) {
        sum = sum.times(size).plus(i, 1);
    }
    sum
}

impl Lowerer<'_> {
    /// The loop over `size` elements, cut where it was found useful: its variables and their sum.
    fn new_loop(&mut self, origin: Origin, size: i64) -> Loop {
        let parts = self.splits.get(&origin).cloned().unwrap_or_else(|| smallvec![size]);
        let (mut vars, mut sum) = (SmallVec::new(), Affine::default());
        for (part, &extent) in parts.iter().enumerate() {
            sum = sum.times(extent);
            let var = self.program.extents.len() as VarId;
            self.program.extents.push(extent);
            self.origins.push((origin, part));
            if extent != 1 {
                vars.push(var);
                sum = sum.plus(&Affine::term(Term::Var(var)), 1);
            }
        }
        (vars, sum)
    }

    /// The item of `value` at `index`.
    pub fn value(&mut self, value: ValueRef, index: &[Affine], guard: Option<ItemId>) -> Result<ItemId, Unsupported> {
        let request = ValueRequest { value, index: index.into(), guard };
        let mut stack = vec![request.clone()];
        while let Some(top) = stack.last() {
            if self.memo.contains_key(top) {
                stack.pop();
                continue;
            }
            let top = top.clone();
            self.missing.clear();
            match self.expand(&top)? {
                Some(item) => {
                    self.memo.insert(top, item);
                    stack.pop();
                }
                None => stack.append(&mut self.missing),
            }
            let most = (self.graph.nodes.len() * MAX_ITEMS_PER_NODE).clamp(FEW_ITEMS, MAX_ITEMS);
            if stack.len() > MAX_ITEMS || self.program.items.len() > most {
                return Err(Unsupported::new("a fusion that computes too much again and again"));
            }
        }
        self.memo.get(&request).copied().ok_or_else(|| Unsupported::new("a value that has no index"))
    }

    /// The item for a request, or `None` with what is missing noted.
    pub fn get(&mut self, value: ValueRef, index: &[Affine], guard: Option<ItemId>) -> Option<ItemId> {
        let request = ValueRequest { value, index: index.into(), guard };
        let found = self.memo.get(&request).copied();
        if found.is_none() {
            self.missing.push(request);
        }
        found
    }

    /// The item, the one that is there already if it is the same.
    pub fn add(&mut self, item: Item, element_type: ElementType) -> ItemId {
        let key = (item, element_type);
        if let Some(&id) = self.interned.get(&key) {
            return id;
        }
        let mut vars: SmallVec<[VarId; 4]> = SmallVec::new();
        let item = &key.0;
        let affine = match item {
            Item::Load { offset: a, .. }
            | Item::Index(a)
            | Item::Quotient(a, _)
            | Item::Remainder(a, _)
            | Item::InRange { index: a, .. } => Some(a),
            _ => None,
        };
        vars.extend(affine.iter().flat_map(|a| &a.terms).filter_map(|t| match t.0 {
            Term::Var(v) => Some(v),
            Term::Item(_) => None,
        }));
        item.for_each_operand(|o| vars.extend_from_slice(&self.program.items[o as usize].vars));
        if matches!(item, Item::Scan(_)) {
            // It changes with each iteration of the loop it runs along, even if what it takes in does not.
            vars.extend(self.program.nest.last().copied());
        }
        if let Item::Reduce(reduce) = item {
            vars.retain(|v| !reduce.vars.contains(v));
        }
        vars.sort_unstable();
        vars.dedup();
        let id = self.program.items.len() as ItemId;
        self.program.items.push(ItemData { item: item.clone(), element_type, vars });
        self.interned.insert(key, id);
        id
    }

    /// An operation on items.
    pub fn scalar(&mut self, op: ScalarOp, operands: &[ItemId], element_type: ElementType) -> ItemId {
        self.add(Item::Scalar(op, operands.into()), element_type)
    }

    /// The item as one of that type.
    pub fn converted(&mut self, item: ItemId, to: ElementType) -> ItemId {
        if self.program.item(item).element_type == to { item } else { self.scalar(ScalarOp::Convert, &[item], to) }
    }

    /// Both, where there are two.
    pub fn and(&mut self, a: Option<ItemId>, b: Option<ItemId>) -> Option<ItemId> {
        match (a, b) {
            (Some(a), Some(b)) if a != b => {
                Some(self.scalar(ScalarOp::Binary(BinaryOp::And), &[a.min(b), a.max(b)], ElementType::Pred))
            }
            (a, b) => a.or(b),
        }
    }

    /// The least and the greatest value of a term.
    pub fn bounds_of(&self, term: Term) -> (i64, i64) {
        match term {
            Term::Var(v) => (0, self.program.extents[v as usize] - 1),
            Term::Item(i) => self.bounds.get(&i).copied().unwrap_or((i64::MIN / 4, i64::MAX / 4)),
        }
    }

    /// Notes the least and the greatest value of an item.
    pub fn set_bounds(&mut self, item: ItemId, low: i64, high: i64) {
        self.bounds.insert(item, (low, high));
    }

    /// Whether `low <= index < high`: `Ok` where that is known, else the item that says so.
    pub fn in_range(&mut self, index: &Affine, low: i64, high: i64) -> Result<bool, ItemId> {
        let range = index.range(|t| self.bounds_of(t));
        if low < high && range.0 >= i128::from(low) && range.1 < i128::from(high) {
            return Ok(true);
        }
        if high <= low || range.1 < i128::from(low) || range.0 >= i128::from(high) {
            return Ok(false);
        }
        Err(self.add(Item::InRange { index: index.clone(), low, high }, ElementType::Pred))
    }

    /// `position` taken apart into an index of an array with those sizes.
    pub fn delinearize(&mut self, position: Affine, dims: &[i64]) -> Index {
        let mut index: Index = smallvec![Affine::default(); dims.len()];
        let mut rest = position;
        // Of an empty array nothing is ever read.
        let first = dims.iter().position(|&d| d != 1).filter(|_| !dims.contains(&0));
        let Some(first) = first else { return index };
        for d in (first..dims.len()).rev() {
            if d == first {
                index[d] = rest;
                break;
            }
            if dims[d] == 1 {
                continue;
            }
            let (quotient, remainder) = self.divide(&rest, dims[d]);
            index[d] = remainder;
            rest = quotient;
        }
        index
    }

    /// Quotient and remainder of a position that is not negative.
    pub fn divide(&mut self, position: &Affine, divisor: i64) -> (Affine, Affine) {
        if let Some(result) = position.divide(divisor, |t| self.bounds_of(t)) {
            return result;
        }
        self.wish_for(position, divisor);
        let (low, high) = position.range(|t| self.bounds_of(t));
        let bounded = |n: i128| i64::try_from(n).unwrap_or(i64::MAX / 4);
        let quotient = self.add(Item::Quotient(position.clone(), divisor), ElementType::S64);
        self.set_bounds(quotient, bounded(low / i128::from(divisor)), bounded(high / i128::from(divisor)));
        let remainder = self.add(Item::Remainder(position.clone(), divisor), ElementType::S64);
        self.set_bounds(remainder, 0, divisor - 1);
        (Affine::term(Term::Item(quotient)), Affine::term(Term::Item(remainder)))
    }

    /// Notes by which split of a loop the division would not be needed.
    fn wish_for(&mut self, position: &Affine, divisor: i64) {
        for &(term, factor) in &position.terms {
            let Term::Var(var) = term else { continue };
            if factor <= 0 || factor % divisor == 0 || divisor % factor != 0 {
                continue;
            }
            let (extent, inner) = (self.program.extents[var as usize], divisor / factor);
            if inner <= 1 || inner >= extent || extent % inner != 0 || self.wish.is_some() {
                continue;
            }
            let (origin, part) = self.origins[var as usize];
            let whole = self.splits.get(&origin).cloned();
            let mut sizes = whole.unwrap_or_else(|| smallvec![extent]);
            sizes[part] = inner;
            sizes.insert(part, extent / inner);
            self.wish = Some((origin, sizes));
        }
    }

    /// Loads an element of a parameter or constant array.
    pub fn load(&mut self, source: LoadSource, node: &Node, index: &[Affine], guard: Option<ItemId>) -> ItemId {
        if node.dims.contains(&0) {
            // Never used, and there is nothing to read.
            let zero = smallvec![0; node.types[0].bytes()];
            return self.add(Item::Constant(node.types[0], zero), node.types[0]);
        }
        let offset = linear(index, &node.dims);
        self.add(Item::Load { source, offset, guard }, node.types[0])
    }

    /// A constant index.
    pub fn constant_s64(&mut self, value: i64) -> ItemId {
        self.add(Item::Constant(ElementType::S64, value.to_le_bytes()[..].into()), ElementType::S64)
    }

    /// The loops of a reduce over those sizes for a request; the same ones however often it is looked at.
    pub fn reduce_loops(&mut self, request: &ValueRequest, loops: impl Iterator<Item = (usize, i64)>) -> Vec<Loop> {
        if let Some(found) = self.reduce_indices.get(request) {
            return found.clone();
        }
        let node = request.value.node;
        let made: Vec<_> = loops.map(|(d, size)| self.new_loop(Origin::Reduce { node, dimension: d }, size)).collect();
        self.reduce_indices.insert(request.clone(), made.clone());
        made
    }

    fn expand(&mut self, request: &ValueRequest) -> Result<Option<ItemId>, Unsupported> {
        let graph = self.graph;
        let node = graph.node(request.value);
        let element_type = graph.element_type(request.value);
        let (index, guard) = (&request.index, request.guard);
        let operand = |n: usize| node.operands.get(n).copied().ok_or_else(|| Unsupported::new("a missing operand"));
        Ok(match &node.op {
            NodeOp::Parameter(buffer) => Some(self.load(LoadSource::Buffer(*buffer), node, index, guard)),
            NodeOp::Constant(data) => {
                let width = element_type.bytes();
                let mut elements = data.bytes().chunks_exact(width);
                match elements.next() {
                    Some(first) if elements.all(|e| e == first) => {
                        Some(self.add(Item::Constant(element_type, first.into()), element_type))
                    }
                    Some(_) => Some(self.load(LoadSource::Constant(data.clone()), node, index, guard)),
                    None => Some(self.add(Item::Constant(element_type, smallvec![0; width]), element_type)),
                }
            }
            NodeOp::Iota { dimension } => {
                let at = index.get(*dimension).cloned().unwrap_or_default();
                let number = self.add(Item::Index(at), ElementType::S64);
                Some(match element_type {
                    ElementType::S64 => number,
                    _ => self.scalar(ScalarOp::Convert, &[number], element_type),
                })
            }
            NodeOp::Scalar(op) => self.operands(node, index, guard).map(|o| self.scalar(*op, &o, element_type)),
            NodeOp::Map(function) => {
                self.operands(node, index, guard).map(|o| self.add(Item::Apply(function.clone(), o), element_type))
            }
            _ => return self.expand_moving(request, node, operand(0)?),
        })
    }

    /// All operands at the same index; scalars are the same everywhere.
    fn operands(&mut self, node: &Node, index: &[Affine], guard: Option<ItemId>) -> Option<SmallVec<[ItemId; 3]>> {
        let all: SmallVec<[Option<ItemId>; 3]> = node
            .operands
            .iter()
            .map(|&o| self.get(o, if self.graph.dims(o).is_empty() { &[] } else { index }, guard))
            .collect();
        all.into_iter().collect()
    }
}

impl Lowerer<'_> {
    /// Notes the item of a request.
    pub fn answer(&mut self, request: ValueRequest, item: ItemId) {
        self.memo.insert(request, item);
    }
    /// The item of a request, if it is known.
    pub fn answered(&self, request: &ValueRequest) -> Option<ItemId> {
        self.memo.get(request).copied()
    }
}

//! The values of a loop program at points of its loops, as scalar code of one thread.
//!
//! A thread is at several points: at some *chunks* of the loops that it walks (those along a row), and in each at some
//! *lanes*, which are neighbours along one loop. Items are computed once for each chunk and lane they vary with. Lanes that
//! lie next to each other in memory are loaded and stored together, up to 16 bytes at once.

use super::constants::Constants;
use super::indices::Lanes;
use crate::emit::ir::{Ir, Repr, Val};
use crate::emit::value::V;
use hloom_ir::ElementType;
use hloom_ir::op::BinaryOp;
use hloom_loops::affine::{Affine, ItemId, Term, VarId};
use hloom_loops::graph::ScalarOp;
use hloom_loops::precision::rough;
use hloom_loops::program::{Item, LoadSource, LoopProgram, Reduce};
use inkwell::IntPredicate::{SLT, ULT};
use inkwell::basic_block::BasicBlock;
use inkwell::values::{FunctionValue, PointerValue};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Writes the inside of a loop: from the number of the iteration and what is carried to what is carried on.
type LoopBody<'b, E, I, V> = &'b mut dyn FnMut(&mut E, I, &[V]) -> Vec<V>;

/// Writes the inside of a loop: from what is carried to what is carried on, and whether to go on.
type WhileBody<'b, E, I, V> = &'b mut dyn FnMut(&mut E, &[V]) -> (Vec<V>, I);

/// Loops of reductions that each thread makes alone are written out up to so many iterations.
const MAX_UNROLLED: i64 = 9;

/// A point of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct At {
    pub(super) chunk: u32,
    pub(super) lane: u32,
}

/// What all parts of a kernel share.
pub(super) struct Place<'p, 'c> {
    pub(super) ir: &'p Ir<'c>,
    pub(super) function: FunctionValue<'c>,
    /// The buffers by their numbers.
    pub(super) buffers: &'p FxHashMap<u32, PointerValue<'c>>,
    pub(super) constants: &'p mut Constants<'c>,
}

/// The points of a thread, and what is known at them so far.
pub(super) struct Points<'e, 'c> {
    pub(super) ir: &'e Ir<'c>,
    pub(super) program: &'e LoopProgram,
    function: FunctionValue<'c>,
    pub(super) buffers: &'e FxHashMap<u32, PointerValue<'c>>,
    constants: &'e mut Constants<'c>,
    /// Which values are rounded to a few bits in the end.
    rough: Vec<bool>,
    /// The type of indices: 32 bits where all arrays are small enough.
    pub(super) index: Repr,
    /// The loops whose neighbours are lanes, and how many there are.
    pub(super) lanes_along: Lanes,
    pub(super) lanes: u32,
    /// For each item whether it varies with the chunk, and with the lane.
    pub(super) varies: Vec<(bool, bool)>,
    pub(super) chunk_vars: Vec<VarId>,
    pub(super) vars: FxHashMap<(VarId, u32), Val<'c>>,
    values: FxHashMap<(ItemId, At), V<'c>>,
    pub(super) reductions: FxHashMap<(ItemId, At), Vec<V<'c>>>,
    /// What is needed to divide by an item that is the same at all points.
    reciprocals: FxHashMap<ItemId, [Val<'c>; 4]>,
    pub(super) sums: FxHashMap<(Affine, At, Repr), Val<'c>>,
    /// Loads that are served from tiles in shared memory: where the elements of the first lane of each chunk are.
    pub(super) tiles: FxHashMap<ItemId, Vec<PointerValue<'c>>>,
}

impl<'e, 'c> Points<'e, 'c> {
    pub(super) fn new(
        place: &'e mut Place<'_, 'c>,
        program: &'e LoopProgram,
        index: Repr,
        lanes: Lanes,
        chunk_vars: &[VarId],
    ) -> Points<'e, 'c>
    where
        'c: 'e,
    {
        let Place { ir, function, buffers, constants } = place;
        let is_lane = |v: &VarId| lanes.has(*v);
        let varies = |d: &hloom_loops::program::ItemData| {
            (d.vars.iter().any(|v| chunk_vars.contains(v)), d.vars.iter().any(is_lane))
        };
        let varies = program.items.iter().map(varies).collect();
        Points {
            ir,
            program,
            function: *function,
            buffers,
            constants,
            rough: rough(program),
            index,
            lanes: lanes.count(),
            lanes_along: lanes,
            varies,
            chunk_vars: chunk_vars.to_vec(),
            vars: FxHashMap::default(),
            values: FxHashMap::default(),
            reductions: FxHashMap::default(),
            reciprocals: FxHashMap::default(),
            sums: FxHashMap::default(),
            tiles: FxHashMap::default(),
        }
    }

    /// Says what a loop variable is in a chunk, at the first lane.
    pub(super) fn set_var(&mut self, var: VarId, chunk: u32, value: Val<'c>) {
        let chunk = if self.chunk_vars.contains(&var) { chunk } else { 0 };
        self.vars.insert((var, chunk), value);
    }

    /// Forgets all that was computed: what follows may run without it.
    pub(super) fn forget_all(&mut self) {
        self.values.clear();
        self.sums.clear();
        self.reciprocals.clear();
    }

    /// Forgets all that varies along the chunks: they are other elements from now on.
    pub(super) fn forget_chunks(&mut self) {
        let varies = &self.varies;
        self.values.retain(|(id, _), _| !varies[*id as usize].0);
        self.reductions.retain(|(id, _), _| !varies[*id as usize].0);
        let chunk_vars = &self.chunk_vars;
        self.sums.retain(|(affine, ..), _| {
            affine.terms.iter().all(|t| match t.0 {
                Term::Var(v) => !chunk_vars.contains(&v),
                Term::Item(i) => !varies[i as usize].0,
            })
        });
    }

    pub(super) fn block(&self, name: &str) -> BasicBlock<'c> {
        self.ir.context.append_basic_block(self.function, name)
    }
    pub(super) fn here(&self) -> BasicBlock<'c> {
        self.ir.builder.get_insert_block().expect("the builder is positioned")
    }
    pub(super) fn jump(&self, to: BasicBlock<'c>) {
        self.ir.builder.build_unconditional_branch(to).expect("the builder is positioned");
    }
    pub(super) fn branch(&self, condition: Val<'c>, yes: BasicBlock<'c>, no: BasicBlock<'c>) {
        let condition = condition.into_int_value();
        self.ir.builder.build_conditional_branch(condition, yes, no).expect("the builder is positioned");
    }
    pub(super) fn continue_at(&self, block: BasicBlock<'c>) {
        self.ir.builder.position_at_end(block);
    }

    /// Writes `body` for threads where `condition` is true.
    pub(super) fn when(&mut self, condition: Option<Val<'c>>, body: impl FnOnce(&mut Self)) {
        let Some(condition) = condition else { return body(self) };
        let (inside, after) = (self.block("active"), self.block("after"));
        self.branch(condition, inside, after);
        self.continue_at(inside);
        body(self);
        self.jump(after);
        self.continue_at(after);
    }

    /// `for i in (low..high).step_by(step)`, at least once, handing `carried` from one iteration to the next.
    pub(super) fn for_loop(
        &mut self,
        (low, high, step): (Val<'c>, Val<'c>, Val<'c>),
        carried: &[V<'c>],
        body: LoopBody<'_, Self, Val<'c>, V<'c>>,
    ) -> Vec<V<'c>> {
        let all: Vec<V<'c>> = [low.into()].into_iter().chain(carried.iter().copied()).collect();
        let mut results = self.do_while(&all, &mut |points, state| {
            let mut next = vec![points.ir.add(state[0].re, step).into()];
            next.extend(body(points, state[0].re, &state[1..]));
            let more = points.ir.icmp(SLT, next[0].re, high);
            (next, more)
        });
        results.remove(0);
        results
    }

    /// Does `body`, and does it again with what it hands on as long as it says so.
    pub(super) fn do_while(&mut self, carried: &[V<'c>], body: WhileBody<'_, Self, Val<'c>, V<'c>>) -> Vec<V<'c>> {
        let (before, start, after) = (self.here(), self.block("loop"), self.block("after"));
        self.jump(start);
        self.continue_at(start);
        let phi = |t| self.ir.builder.build_phi(t, "").expect("the builder is positioned");
        let phis: Vec<_> = carried.iter().map(|v| (phi(v.re.get_type()), v.im.map(|im| phi(im.get_type())))).collect();
        let inside: Vec<V<'c>> =
            phis.iter().map(|(re, im)| V { re: re.as_basic_value(), im: im.map(|im| im.as_basic_value()) }).collect();
        let (results, more) = body(self, &inside);
        let end = self.here();
        self.branch(more, start, after);
        for (((re, im), first), last) in phis.iter().zip(carried).zip(&results) {
            re.add_incoming(&[(&first.re, before), (&last.re, end)]);
            if let (Some(im), Some(first), Some(last)) = (im, first.im, last.im) {
                im.add_incoming(&[(&first, before), (&last, end)]);
            }
        }
        self.continue_at(after);
        results
    }

    /// The chunk and lane of an item, as far as it varies with them.
    pub(super) fn key(&self, id: ItemId, at: At) -> (ItemId, At) {
        let (chunk, lane) = self.varies[id as usize];
        (id, At { chunk: if chunk { at.chunk } else { 0 }, lane: if lane { at.lane } else { 0 } })
    }

    /// Loads what can be loaded of all chunks before anything is done with it, so that all loads are under way at once.
    pub(super) fn load_ahead(&mut self, chunks: u32) {
        let program = self.program;
        let is_plain = |item: &Item| match item {
            Item::Load { offset, guard: None, .. } => offset.terms.iter().all(|t| matches!(t.0, Term::Var(_))),
            _ => false,
        };
        let loads: Vec<ItemId> =
            (0..program.items.len() as ItemId).filter(|&id| is_plain(&program.item(id).item)).collect();
        let outside = |id: &ItemId| program.item(*id).vars.iter().all(|v| program.nest.contains(v));
        let loads: Vec<ItemId> = loads.into_iter().filter(outside).collect();
        for chunk in 0..chunks {
            for lane in 0..self.lanes {
                self.compute(&loads, At { chunk, lane });
            }
        }
    }

    /// The value of an item.
    pub(super) fn value(&mut self, id: ItemId, at: At) -> V<'c> {
        let key = self.key(id, at);
        if let Some(&v) = self.values.get(&key) {
            return v;
        }
        self.compute(&[id], at);
        self.known(id, at)
    }

    pub(super) fn known(&self, id: ItemId, at: At) -> V<'c> {
        *self.values.get(&self.key(id, at)).expect("an item is computed before what is made of it")
    }

    pub(super) fn set_value(&mut self, id: ItemId, at: At, value: V<'c>) {
        let key = self.key(id, at);
        self.values.insert(key, value);
    }

    fn is_known(&self, id: ItemId, at: At) -> bool {
        let key = self.key(id, at);
        match self.program.item(id).item.is_loop() {
            true => self.reductions.contains_key(&key),
            false => self.values.contains_key(&key),
        }
    }

    /// Computes items and all they are made of, in order.
    pub(super) fn compute(&mut self, wanted: &[ItemId], at: At) {
        let mut needed: Vec<ItemId> = Vec::new();
        let mut stack: Vec<ItemId> = wanted.iter().copied().filter(|&i| !self.is_known(i, at)).collect();
        let mut seen: rustc_hash::FxHashSet<ItemId> = stack.iter().copied().collect();
        while let Some(id) = stack.pop() {
            needed.push(id);
            self.for_each_outside(id, |o| {
                if !self.is_known(o, at) && seen.insert(o) {
                    stack.push(o);
                }
            });
        }
        needed.sort_unstable();
        for id in needed {
            if self.is_known(id, at) {
                continue;
            }
            if let Item::Reduce(reduce) = &self.program.item(id).item {
                self.reduce_alone(id, reduce, at);
                continue;
            }
            if self.compute_pair(id, at) {
                continue;
            }
            if let Some(value) = self.item(id, at) {
                self.set_value(id, at, value);
            }
        }
    }

    /// What an item is made of, but for what changes in loops of its own.
    pub(super) fn for_each_outside(&self, id: ItemId, f: impl FnMut(ItemId)) {
        match &self.program.item(id).item {
            Item::Reduce(reduce) => self.outside_of(reduce).into_iter().for_each(f),
            item => item.for_each_operand(f),
        }
    }

    /// What a reduction needs that does not change in its loops, nor in those of reductions inside of it.
    pub(super) fn outside_of(&self, reduce: &Reduce) -> Vec<ItemId> {
        let program = self.program;
        let mut inside: SmallVec<[VarId; 4]> = SmallVec::from_slice(&reduce.vars);
        let mut outside: Vec<ItemId> = reduce.inits.to_vec();
        let mut stack: Vec<ItemId> = reduce.inputs.iter().chain(&reduce.condition).copied().collect();
        let mut seen: rustc_hash::FxHashSet<ItemId> = stack.iter().copied().collect();
        while let Some(id) = stack.pop() {
            let data = program.item(id);
            if !data.vars.iter().any(|v| inside.contains(v)) {
                outside.push(id);
                continue;
            }
            // Only by way of a reduction is there anything that changes in its loops.
            if let Item::Reduce(nested) = &data.item {
                inside.extend_from_slice(&nested.vars);
            }
            data.item.for_each_operand(|o| {
                if seen.insert(o) {
                    stack.push(o);
                }
            });
        }
        outside
    }

    /// What stores need that does not vary along the chunks: it is computed before the loops over them.
    pub(super) fn invariants(&self, stores: &[&hloom_loops::program::Store]) -> Vec<ItemId> {
        let mut invariants = Vec::new();
        let mut stack: Vec<ItemId> = Vec::new();
        for store in stores {
            stack.push(store.item);
            stack.extend(store.condition);
        }
        let mut seen: rustc_hash::FxHashSet<ItemId> = stack.iter().copied().collect();
        while let Some(id) = stack.pop() {
            if !self.varies[id as usize].0 {
                invariants.push(id);
                continue;
            }
            self.for_each_outside(id, |o| {
                if seen.insert(o) {
                    stack.push(o);
                }
            });
        }
        invariants
    }

    /// A reduction that this thread makes alone, for all lanes at once.
    fn reduce_alone(&mut self, id: ItemId, reduce: &Reduce, at: At) {
        let lanes = if self.varies[id as usize].1 { self.lanes } else { 1 };
        let points: Vec<At> = (0..lanes).map(|lane| At { lane, ..at }).collect();
        let outside = self.outside_of(reduce);
        let mut state = Vec::new();
        for &at in &points {
            self.compute(&outside, at);
            for &init in &reduce.inits {
                state.push(self.value(init, at));
            }
        }
        let extents: Vec<i64> = reduce.vars.iter().map(|&v| self.program.extents[v as usize]).collect();
        let total = extents.iter().fold(1i64, |a, &b| a.saturating_mul(b));
        let before: Vec<_> = self.values.keys().copied().collect();
        let state = if total <= MAX_UNROLLED {
            let known: rustc_hash::FxHashSet<_> = before.into_iter().collect();
            for position in 0..total {
                let mut rest = position;
                for (&v, &extent) in reduce.vars.iter().zip(&extents).rev() {
                    let value = self.ir.int(self.index, rest % extent);
                    self.set_var(v, 0, value);
                    rest /= extent;
                }
                state = self.reduce_step(reduce, &state, &points);
                self.leave(&known, &reduce.vars);
            }
            state
        } else {
            let known: rustc_hash::FxHashSet<_> = before.into_iter().collect();
            let state = self.reduce_loops(reduce, 0, &state, &points);
            self.leave(&known, &reduce.vars);
            state
        };
        let count = reduce.inits.len();
        for (at, results) in points.into_iter().zip(state.chunks(count)) {
            let key = self.key(id, at);
            self.reductions.insert(key, results.to_vec());
        }
    }

    /// Forgets what was computed inside of loops.
    fn leave(&mut self, known: &rustc_hash::FxHashSet<(ItemId, At)>, vars: &[VarId]) {
        self.reciprocals.clear();
        self.values.retain(|key, _| known.contains(key));
        let program = self.program;
        self.reductions.retain(|(id, _), _| !program.item(*id).vars.iter().any(|v| vars.contains(v)));
        self.sums.clear();
    }

    fn reduce_loops(&mut self, reduce: &Reduce, level: usize, state: &[V<'c>], points: &[At]) -> Vec<V<'c>> {
        let Some(&var) = reduce.vars.get(level) else { return self.reduce_step(reduce, state, points) };
        let int = |n: i64| self.ir.int(self.index, n);
        let range = (int(0), int(self.program.extents[var as usize]), int(1));
        self.for_loop(range, state, &mut |e, i, state| {
            e.sums.clear();
            e.set_var(var, 0, i);
            e.reduce_loops(reduce, level + 1, state, points)
        })
    }

    /// One element of a reduction, for each of the points.
    pub(super) fn reduce_step(&mut self, reduce: &Reduce, state: &[V<'c>], points: &[At]) -> Vec<V<'c>> {
        let count = reduce.inits.len();
        let mut next = Vec::new();
        for (&at, old) in points.iter().zip(state.chunks(count)) {
            let inputs: Vec<V<'c>> = reduce.inputs.iter().map(|&i| self.value(i, at)).collect();
            let mut new = self.ir.apply(&reduce.function, &[old, &inputs].concat());
            if let Some(condition) = reduce.condition {
                let condition = self.value(condition, at).re;
                new = old.iter().zip(new).map(|(o, n)| n.map2(*o, |n, o| self.ir.select(condition, n, o))).collect();
            }
            next.extend(new);
        }
        next
    }

    /// The value of an item whose operands are known. A load may make those of other lanes known, too.
    fn item(&mut self, id: ItemId, at: At) -> Option<V<'c>> {
        let program = self.program;
        let data = program.item(id);
        Some(match &data.item {
            Item::Constant(t, bytes) => self.ir.constant(*t, bytes),
            Item::Load { source, offset, guard } => self.load_item(id, source, offset, *guard, at),
            Item::Index(affine) => {
                let repr = self.safe(affine);
                let index = self.index_of(affine, at, repr);
                self.ir.sext(index, Repr::I64).into()
            }
            Item::Quotient(affine, divisor) => self.divided(affine, *divisor, at, false).into(),
            Item::Remainder(affine, divisor) => self.divided(affine, *divisor, at, true).into(),
            Item::InRange { index, low, high } => {
                // One comparison: what is below the range is very large without a sign.
                let repr = self.safe(index);
                let from_low = self.index_of(&index.plus_constant(low.wrapping_neg()), at, repr);
                let size = self.ir.int(repr, high.wrapping_sub(*low));
                self.ir.icmp(ULT, from_low, size).into()
            }
            Item::Scalar(op, operands) => self.scalar(id, *op, operands, false, at),
            Item::Apply(function, operands) => {
                let values: Vec<V<'c>> = operands.iter().map(|&o| self.known(o, at)).collect();
                self.ir.apply(function, &values).first().copied()?
            }
            Item::ReduceResult(reduce, result) => {
                *self.reductions.get(&self.key(*reduce, at))?.get(*result as usize)?
            }
            Item::Reduce(_) | Item::Scan(_) => return None,
        })
    }

    pub(super) fn scalar(
        &mut self,
        id: ItemId,
        op: ScalarOp,
        operands: &[ItemId],
        is_unrounded: bool,
        at: At,
    ) -> V<'c> {
        let program = self.program;
        let to = program.item(id).element_type;
        if op == ScalarOp::Convert
            && to.is_integer()
            && (8..=32).contains(&to.bits())
            && let Item::Index(affine) = &program.item(operands[0]).item
        {
            // What is left of an index in fewer bits is computed in fewer bits.
            return self.index_of(affine, at, Repr::of(to)).into();
        }
        let values: Vec<V<'c>> = operands.iter().map(|&o| self.known(o, at)).collect();
        let as_computed = |t| if is_unrounded && t == ElementType::Bf16 { ElementType::F32 } else { t };
        let types: Vec<_> = operands.iter().map(|&o| as_computed(program.item(o).element_type)).collect();
        let varies = |v: (bool, bool)| v.0 || v.1;
        if op == ScalarOp::Binary(BinaryOp::Divide)
            && as_computed(to) == ElementType::F32
            && !self.rough[id as usize]
            && varies(self.varies[id as usize])
            && !varies(self.varies[operands[1] as usize])
        {
            let key = operands[1];
            let ir = self.ir;
            let known = *self.reciprocals.entry(key).or_insert_with(|| ir.reciprocal(values[1].re));
            return ir.divide_by(values[0].re, known).into();
        }
        self.ir.is_rough.set(self.rough[id as usize]);
        let value = self.ir.scalar_op(op, &values, &types, as_computed(to));
        self.ir.is_rough.set(false);
        value
    }

    /// The value of an item that is only stored: in f32 and not rounded yet where it is a bf16 (true).
    pub(super) fn value_to_store(&mut self, id: ItemId, at: At) -> (V<'c>, bool) {
        let data = self.program.item(id);
        let is_known = self.values.contains_key(&self.key(id, at));
        if data.element_type != ElementType::Bf16 || is_known || self.pair_instruction(id).is_some() {
            return (self.value(id, at), false);
        }
        match &data.item {
            Item::Scalar(ScalarOp::Convert, operands)
                if self.program.item(operands[0]).element_type == ElementType::F32 =>
            {
                (self.value(operands[0], at), true)
            }
            Item::Scalar(op @ (ScalarOp::Unary(_) | ScalarOp::Binary(_)), operands) => {
                self.compute(operands, at);
                (self.scalar(id, *op, operands, true, at), true)
            }
            _ => (self.value(id, at), false),
        }
    }

    /// How many lanes that begin at a multiple of as many lie next to each other at a multiple of as many elements.
    pub(super) fn together(&self, offset: &Affine) -> u32 {
        if !self.lanes_along.are_counted_by(offset) {
            return 1;
        }
        let mut together = i64::from(self.lanes);
        for &(term, factor) in &offset.terms {
            match term {
                Term::Var(v) if self.lanes_along.has(v) => {}
                Term::Item(i) if self.varies[i as usize].1 => return 1,
                _ => together = gcd(together, factor),
            }
        }
        gcd(together, offset.constant) as u32
    }

    fn load_item(&mut self, id: ItemId, source: &LoadSource, offset: &Affine, guard: Option<ItemId>, at: At) -> V<'c> {
        let t = self.program.item(id).element_type;
        if let Some(tile) = self.tiles.get(&id) {
            let along = self.ir.i64(i64::from(at.lane) * t.bytes() as i64);
            let pointer = self.ir.offset(tile[at.chunk as usize], along);
            return self.ir.load_lanes(pointer, t, 1)[0];
        }
        let base = match source {
            LoadSource::Buffer(n) => *self.buffers.get(n).expect("a kernel is given the buffers it reads"),
            LoadSource::Constant(data) => self.constants.pointer(self.ir, data),
            LoadSource::Tile(_) | LoadSource::Row(_) => unreachable!("rows and tiles are made for other machines"),
        };
        let guard_varies = guard.is_some_and(|g| self.varies[g as usize].1);
        let together = if guard_varies { 1 } else { self.together(offset) };
        let first = At { lane: at.lane - at.lane % together, ..at };
        let pointer = self.address(base, offset, guard.map(|g| (g, at)), t, first);
        let values = self.ir.load_lanes(pointer, t, together);
        for (n, &value) in values.iter().enumerate() {
            let key = self.key(id, At { lane: first.lane + n as u32, ..at });
            self.values.insert(key, value);
        }
        values[(at.lane - first.lane) as usize % values.len()]
    }

    /// The address of an element; of the first of the array where the guard is false.
    pub(super) fn address(
        &mut self,
        base: PointerValue<'c>,
        offset: &Affine,
        guard: Option<(ItemId, At)>,
        t: ElementType,
        at: At,
    ) -> PointerValue<'c> {
        let size = t.bytes() as i64;
        let lane = self.lanes_along.offset(offset, at.lane);
        let varies_by_item = offset.terms.iter().any(|t| matches!(t.0, Term::Item(i) if self.varies[i as usize].1));
        // What is the same for all lanes is computed once; the rest is a constant in the instruction.
        let (sum, constant) = match varies_by_item {
            true => (self.sum(offset, at, self.index), offset.constant),
            false => (self.sum(offset, At { lane: 0, ..at }, self.index), offset.constant.wrapping_add(lane)),
        };
        let bytes = |ir: &Ir<'c>, n: Val<'c>| ir.mul(ir.sext(n, Repr::I64), ir.i64(size).into()).into_int_value();
        match guard {
            None => {
                let moved = self.ir.offset(base, bytes(self.ir, sum));
                self.ir.offset(moved, self.ir.i64(constant.wrapping_mul(size)))
            }
            Some((guard, at)) => {
                let guard = self.known(guard, at).re;
                let whole = self.ir.add(self.ir.sext(sum, Repr::I64), self.ir.i64(constant).into());
                let inside = self.ir.select(guard, whole, self.ir.i64(0).into());
                self.ir.offset(base, bytes(self.ir, inside))
            }
        }
    }
}

pub(super) fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}

//! Rows that threads walk together: reductions first in each thread, then among the threads of a row, then what is written
//! of each element with their results.
//!
//! Where a thread takes all of its elements at once they stay in registers from one pass to the next, and memory is read
//! once. Threads of a warp exchange by shuffles, warps through shared memory. Every thread of a row ends up with the same
//! results, bit by bit, and two runs give the same.

use super::RowGrid;
use super::exchange::{get, put};
use super::indices::Lanes;
use super::points::{At, Place, Points};
use crate::emit::ir::{Ir, Repr, Val};
use crate::emit::value::V;
use hloom_loops::affine::ItemId;
use hloom_loops::arg_reduce::is_arg_reduce;
use hloom_loops::program::{Item, Reduce, Store};
use inkwell::IntPredicate::{EQ, NE, SLT, ULT};
use inkwell::values::PointerValue;

/// Threads of a warp.
pub(super) const WARP: u32 = 32;
/// Operations of a function that is not written out for every exchange.
const LONG_FUNCTION: usize = 4;

/// What is done with chunks of a row: from the accumulators before to those after.
type WalkBody<'b, R, P, V> = &'b mut dyn FnMut(&mut R, &mut P, &[V]) -> Vec<V>;

/// Writes the threads of a grid over rows.
pub(super) fn write_rows<'c>(place: &mut Place<'_, 'c>, grid: &RowGrid, block: Val<'c>, index: Repr) {
    let program = &grid.passes.program;
    let along = grid.passes.along();
    let lane_var = match grid.by_column {
        true => program.nest[..grid.passes.kept].last(),
        false => along.last(),
    };
    let ir = place.ir;
    let lanes = Lanes::along(lane_var.copied(), grid.lanes);
    let mut points = Points::new(place, program, index, lanes, along);
    let int32 = |n: u32| ir.int(Repr::I32, n.into());
    let thread = ir.special_register("tid");
    let (row, slot) = match grid.by_column {
        true => (ir.urem(thread, int32(grid.rows)), ir.udiv(thread, int32(grid.rows))),
        false => (ir.udiv(thread, int32(grid.slots)), ir.urem(thread, int32(grid.slots))),
    };
    let (block, part) = match &grid.partial {
        None => (block, None),
        Some(partial) => (ir.udiv(block, int32(partial.parts)), Some(ir.urem(block, int32(partial.parts)))),
    };
    let lanes_of_rows = if grid.by_column { grid.lanes } else { 1 };
    let groups = grid.passes.rows() / i64::from(lanes_of_rows);
    let number = ir.add(ir.mul(ir.zext(block, index), ir.int(index, grid.rows.into())), ir.zext(row, index));
    let active = (groups % i64::from(grid.rows) != 0).then(|| ir.icmp(ULT, number, ir.int(index, groups)));
    let number = active.map_or(number, |a| ir.select(a, number, ir.int(index, groups - 1)));
    let kept = &program.nest[..grid.passes.kept];
    let mut sizes: Vec<i64> = kept.iter().map(|&v| program.extents[v as usize]).collect();
    if let Some(last) = sizes.last_mut() {
        *last /= i64::from(lanes_of_rows);
    }
    for (n, (&var, value)) in kept.iter().zip(ir.positions(number, &sizes)).enumerate() {
        let is_lane = n + 1 == kept.len() && lanes_of_rows > 1;
        let value = if is_lane { ir.mul(value, ir.int(index, lanes_of_rows.into())) } else { value };
        points.set_var(var, 0, value);
    }
    let slot = ir.zext(slot, index);
    let mut rows = Rows { grid, thread, slot, row, number, part, active, valid: vec![None; grid.chunks as usize] };
    rows.write(&mut points);
}

/// A thread among those of its row.
struct Rows<'g, 'c> {
    grid: &'g RowGrid,
    thread: Val<'c>,
    /// Which thread of the row it is.
    slot: Val<'c>,
    /// Which row of the block, and of all, in groups of lanes.
    row: Val<'c>,
    number: Val<'c>,
    part: Option<Val<'c>>,
    /// Whether there is such a row.
    active: Option<Val<'c>>,
    /// Whether each chunk is inside of the row, if that is not known.
    valid: Vec<Option<Val<'c>>>,
}

/// What a reduction starts from in each thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Start {
    /// What changes nothing; the initial value comes in at the end.
    Identity,
    /// The initial value: the result is one of those that are reduced, however often it is among them.
    Initial,
    /// Nothing: the accumulators have a flag before them that says whether there is something in them.
    Nothing,
}

impl Start {
    fn of(ir: &Ir<'_>, reduce: &Reduce) -> Start {
        if is_arg_reduce(&reduce.function) {
            return Start::Initial;
        }
        let has_identity = |n: usize| {
            let part = reduce.function.part(n)?;
            ir.identity(part.single_operation()?, part.parameters[0])
        };
        match (0..reduce.inits.len()).all(|n| has_identity(n).is_some()) {
            true => Start::Identity,
            false => Start::Nothing,
        }
    }
}

impl<'c> Rows<'_, 'c> {
    /// The elements that all threads of a row take at once.
    fn step(&self) -> i64 {
        let lanes = if self.grid.by_column { 1 } else { self.grid.lanes };
        i64::from(self.grid.slots) * i64::from(lanes)
    }

    /// The elements of a part of a row.
    fn length(&self) -> i64 {
        self.grid.partial.as_ref().map_or(self.grid.passes.length(), |p| p.length)
    }

    /// The elements of the shortest part.
    fn shortest(&self) -> i64 {
        let all = self.grid.passes.length();
        self.grid.partial.as_ref().map_or(all, |p| all - p.length * i64::from(p.parts - 1))
    }

    /// Whether all elements of a thread are taken at once.
    fn is_at_once(&self) -> bool {
        self.step() * i64::from(self.grid.chunks) >= self.length()
    }

    fn write(&mut self, points: &mut Points<'_, 'c>) {
        let passes = self.grid.passes.passes();
        let program = points.program;
        let along = self.grid.passes.along().to_vec();
        if self.is_at_once() {
            self.enter(points, points.ir.int(points.index, 0));
            self.load_first(points, passes.first().map_or(&[][..], |p| &p[..]));
        }
        for pass in &passes {
            self.pass(points, pass);
            if self.grid.partial.is_some() {
                return;
            }
        }
        let (elements, rows): (Vec<&Store>, Vec<&Store>) =
            program.stores.iter().partition(|s| points.varies_along(s, &along));
        if !elements.is_empty() {
            self.write_elements(points, &elements);
        }
        if !rows.is_empty() {
            points.forget_chunks();
            let ir = points.ir;
            let first = ir.icmp(EQ, self.slot, ir.int(points.index, 0));
            let writes = self.active.map_or(first, |a| ir.and(a, first));
            let lanes = points.lanes;
            if !self.grid.by_column {
                points.lanes = 1;
            }
            points.write_stores(&rows, 0, Some(writes));
            points.lanes = lanes;
        }
    }

    /// Says where the chunks of this thread are, those from `begin` on.
    fn enter(&mut self, points: &mut Points<'_, 'c>, begin: Val<'c>) {
        let (ir, index) = (points.ir, points.index);
        let int = |n: i64| ir.int(index, n);
        let along = self.grid.passes.along();
        let program = points.program;
        let lanes = if self.grid.by_column { 1 } else { i64::from(self.grid.lanes) };
        let mut sizes: Vec<i64> = along.iter().map(|&v| program.extents[v as usize]).collect();
        if let Some(last) = sizes.last_mut() {
            *last /= lanes;
        }
        let (length, step) = (self.length(), self.step());
        for chunk in 0..self.grid.chunks {
            // In groups of lanes.
            let first = ir.add(self.slot, int(i64::from(chunk) * i64::from(self.grid.slots)));
            let group = ir.add(first, begin);
            let at_once = self.is_at_once();
            let is_inside = at_once && (i64::from(chunk) + 1) * step <= self.shortest();
            let is_inside =
                is_inside || (self.shortest() == length && length % (step * i64::from(self.grid.chunks)) == 0);
            let (mut position, mut end) = (group, int(length / lanes));
            if let (Some(part), Some(partial)) = (self.part, &self.grid.partial) {
                let start = ir.mul(ir.zext(part, index), int(partial.length / lanes));
                position = ir.add(group, start);
                if self.shortest() != length {
                    let rest = ir.sub(int(self.grid.passes.length() / lanes), start);
                    end = ir.select(ir.icmp(SLT, rest, end), rest, end);
                }
            }
            let valid = (!is_inside).then(|| ir.icmp(ULT, group, end));
            let position = valid.map_or(position, |v| ir.select(v, position, int(0)));
            self.valid[chunk as usize] = valid;
            for (n, (&var, value)) in along.iter().zip(ir.positions(position, &sizes)).enumerate() {
                let is_lane = n + 1 == along.len() && lanes > 1;
                let value = if is_lane { ir.mul(value, int(lanes)) } else { value };
                points.set_var(var, chunk, value);
            }
        }
    }

    /// Loads what the first pass needs before anything is done with it, so that all loads are under way at once.
    fn load_first(&self, points: &mut Points<'_, 'c>, pass: &[ItemId]) {
        let program = points.program;
        let mut wanted = Vec::new();
        let mut seen = vec![false; program.items.len()];
        let mut stack: Vec<ItemId> = pass.to_vec();
        while let Some(id) = stack.pop() {
            if std::mem::replace(&mut seen[id as usize], true) {
                continue;
            }
            match &program.item(id).item {
                Item::Load { .. } => wanted.push(id),
                // Of this pass: its loops are those of the chunks.
                item if pass.contains(&id) => item.for_each_operand(|o| stack.push(o)),
                _ => points.for_each_outside(id, |o| stack.push(o)),
            }
        }
        wanted.sort_unstable();
        for chunk in 0..self.grid.chunks {
            for lane in 0..points.lanes {
                points.compute(&wanted, At { chunk, lane });
            }
        }
    }

    /// Runs `body` for all chunks of this thread: at once, or some at a time.
    fn walk<'e>(
        &mut self,
        points: &mut Points<'e, 'c>,
        state: &[V<'c>],
        body: WalkBody<'_, Self, Points<'e, 'c>, V<'c>>,
    ) -> Vec<V<'c>> {
        if self.is_at_once() {
            return body(self, points, state);
        }
        let (ir, index) = (points.ir, points.index);
        let lanes = if self.grid.by_column { 1 } else { i64::from(self.grid.lanes) };
        let step = i64::from(self.grid.slots) * i64::from(self.grid.chunks);
        let range = (ir.int(index, 0), ir.int(index, self.length() / lanes), ir.int(index, step));
        points.for_loop(range, state, &mut |points, begin, state| {
            points.forget_chunks();
            self.enter(points, begin);
            let next = body(self, points, state);
            points.forget_chunks();
            next
        })
    }

    /// The rows of a thread: its lanes by columns, one by rows.
    fn lanes_of_rows(&self) -> u32 {
        if self.grid.by_column { self.grid.lanes } else { 1 }
    }

    /// Makes reductions that need only what is there.
    fn pass(&mut self, points: &mut Points<'_, 'c>, pass: &[ItemId]) {
        let program = points.program;
        let reductions: Vec<(ItemId, &Reduce, Start)> = pass
            .iter()
            .filter_map(|&id| match &program.item(id).item {
                Item::Reduce(reduce) => Some((id, &**reduce, Start::of(points.ir, reduce))),
                _ => None,
            })
            .collect();
        let outside: Vec<ItemId> = reductions.iter().flat_map(|r| points.outside_of(r.1)).collect();
        for lane in 0..self.lanes_of_rows() {
            points.compute(&outside, At { chunk: 0, lane });
        }
        let mut state: Vec<V<'c>> = Vec::new();
        for (_, reduce, start) in &reductions {
            for lane in 0..self.lanes_of_rows() {
                state.extend(self.start(points, reduce, *start, lane));
            }
        }
        let state = self.walk(points, &state, &mut |rows, points, state| rows.accumulate(points, &reductions, state));
        let mut state = state.into_iter();
        let mut results: Vec<Vec<V<'c>>> = Vec::new();
        for (_, reduce, start) in &reductions {
            let width = reduce.inits.len() + usize::from(*start == Start::Nothing);
            for _ in 0..self.lanes_of_rows() {
                results.push(state.by_ref().take(width).collect());
            }
        }
        let results = self.among_threads(points, &reductions, results);
        let mut results = results.into_iter();
        let mut buffer = 0;
        for (id, reduce, start) in &reductions {
            let lanes: Vec<Vec<V<'c>>> = results.by_ref().take(self.lanes_of_rows() as usize).collect();
            if self.grid.partial.is_some() {
                self.write_partial(points, reduce, *start, &lanes, buffer);
                buffer += reduce.inits.len();
                continue;
            }
            for (lane, state) in lanes.into_iter().enumerate() {
                let at = At { chunk: 0, lane: lane as u32 };
                let inits: Vec<V<'c>> = reduce.inits.iter().map(|&i| points.value(i, at)).collect();
                let ir = points.ir;
                let finished = match start {
                    Start::Identity => ir.apply(&reduce.function, &[inits, state].concat()),
                    Start::Initial => state,
                    Start::Nothing => {
                        let whole = ir.apply(&reduce.function, &[&inits[..], &state[1..]].concat());
                        let pick = |(w, i): (&V<'c>, &V<'c>)| w.map2(*i, |w, i| ir.select(state[0].re, w, i));
                        whole.iter().zip(&inits).map(pick).collect()
                    }
                };
                let key = points.key(*id, at);
                points.reductions.insert(key, finished);
            }
        }
    }

    /// What a thread starts a reduction with.
    fn start(&self, points: &mut Points<'_, 'c>, reduce: &Reduce, start: Start, lane: u32) -> Vec<V<'c>> {
        let ir = points.ir;
        match start {
            Start::Identity => (0..reduce.inits.len())
                .filter_map(|n| {
                    let part = reduce.function.part(n)?;
                    ir.identity(part.single_operation()?, part.parameters[0])
                })
                .collect(),
            Start::Initial => reduce.inits.iter().map(|&i| points.value(i, At { chunk: 0, lane })).collect(),
            Start::Nothing => {
                let nothing: V<'c> = ir.int(Repr::I1, 0).into();
                let inits = reduce.inits.iter().map(|&i| points.value(i, At { chunk: 0, lane }));
                std::iter::once(nothing).chain(inits).collect()
            }
        }
    }

    /// Takes the elements of the chunks into the accumulators.
    fn accumulate(
        &mut self,
        points: &mut Points<'_, 'c>,
        reductions: &[(ItemId, &Reduce, Start)],
        state: &[V<'c>],
    ) -> Vec<V<'c>> {
        let mut state = state.to_vec();
        let ir = points.ir;
        for chunk in 0..self.grid.chunks {
            let valid = self.valid[chunk as usize];
            let mut first = 0;
            for (_, reduce, start) in reductions {
                let width = reduce.inits.len() + usize::from(*start == Start::Nothing);
                for lane in 0..points.lanes {
                    let at = At { chunk, lane };
                    let begin = first + if self.grid.by_column { lane as usize * width } else { 0 };
                    let old = state[begin..begin + width].to_vec();
                    let inputs: Vec<V<'c>> = reduce.inputs.iter().map(|&i| points.value(i, at)).collect();
                    let condition = reduce.condition.map(|c| points.value(c, at).re);
                    let counts = match (valid, condition) {
                        (Some(a), Some(b)) => Some(ir.and(a, b)),
                        (a, b) => a.or(b),
                    };
                    let mut new = match start {
                        Start::Nothing => {
                            let some: Vec<V<'c>> = std::iter::once(ir.int(Repr::I1, 1).into()).chain(inputs).collect();
                            self.join(ir, reduce, *start, &old, &some)
                        }
                        _ => ir.apply(&reduce.function, &[&old[..], &inputs].concat()),
                    };
                    if let Some(counts) = counts {
                        let pick = |(n, o): (&V<'c>, &V<'c>)| n.map2(*o, |n, o| ir.select(counts, n, o));
                        new = new.iter().zip(&old).map(pick).collect();
                    }
                    state[begin..begin + width].copy_from_slice(&new);
                }
                first += width * self.lanes_of_rows() as usize;
            }
        }
        state
    }

    /// Two sets of accumulators as one, the first of which stands before the second.
    fn join(&self, ir: &Ir<'c>, reduce: &Reduce, start: Start, a: &[V<'c>], b: &[V<'c>]) -> Vec<V<'c>> {
        match start {
            Start::Identity => ir.apply(&reduce.function, &[a, b].concat()),
            Start::Initial => ir.combine(&reduce.function, a.to_vec(), b.to_vec()),
            Start::Nothing => {
                let both = ir.apply(&reduce.function, &[&a[1..], &b[1..]].concat());
                let (has_a, has_b) = (a[0].re, b[0].re);
                let mut joined = vec![ir.or(has_a, has_b).into()];
                for ((both, x), y) in both.iter().zip(&a[1..]).zip(&b[1..]) {
                    let one = x.map2(*y, |x, y| ir.select(has_a, x, y));
                    joined.push(both.map2(one, |both, one| ir.select(ir.and(has_a, has_b), both, one)));
                }
                joined
            }
        }
    }

    /// Brings what the threads of a row have together; all of them get all of it.
    fn among_threads(
        &self,
        points: &mut Points<'_, 'c>,
        reductions: &[(ItemId, &Reduce, Start)],
        mut states: Vec<Vec<V<'c>>>,
    ) -> Vec<Vec<V<'c>>> {
        let ir = points.ir;
        let (slots, lanes) = (self.grid.slots, self.lanes_of_rows() as usize);
        let of = |n: usize| (reductions[n / lanes].1, reductions[n / lanes].2);
        if slots == 1 {
            return states;
        }
        let int32 = |n: u32| ir.int(Repr::I32, n.into());
        if !self.grid.by_column {
            let lane = ir.and(self.thread, int32(WARP - 1));
            for (n, state) in states.iter_mut().enumerate() {
                *state = self.shuffled(points, of(n), state, lane, slots.min(WARP));
            }
            if slots <= WARP {
                return states;
            }
            let warps = slots / WARP;
            let slot = ir.trunc(self.slot, Repr::I32);
            let warp = ir.udiv(slot, int32(WARP));
            let is_first = ir.icmp(EQ, lane, int32(0));
            let place = ir.add(ir.mul(self.row, int32(warps)), warp);
            let shared: Vec<Vec<PointerValue<'c>>> =
                states.iter().map(|s| self.shared_for(ir, s, self.grid.rows * warps)).collect();
            points.when(Some(is_first), |_| {
                for (state, shared) in states.iter().zip(&shared) {
                    put(ir, state, shared, place);
                }
            });
            ir.barrier();
            let from = ir.add(ir.mul(self.row, int32(warps)), ir.and(lane, int32(warps - 1)));
            for (n, (state, shared)) in states.iter_mut().zip(&shared).enumerate() {
                let read = get(ir, state, shared, from);
                *state = self.shuffled(points, of(n), &read, lane, warps);
            }
            return states;
        }
        // By columns: the accumulators of a block lie in shared memory, and half of those that are left take in the other
        // half, until those of the first threads are left.
        let groups = self.grid.rows;
        let shared: Vec<Vec<PointerValue<'c>>> =
            states.iter().map(|s| self.shared_for(ir, s, groups * slots)).collect();
        for (state, shared) in states.iter().zip(&shared) {
            put(ir, state, shared, self.thread);
        }
        ir.barrier();
        let slot = ir.trunc(self.slot, Repr::I32);
        let mut left = slots / 2;
        while left > 0 {
            let from = ir.add(self.thread, int32(left * groups));
            points.when(Some(ir.icmp(ULT, slot, int32(left))), |_| {
                for (n, (state, shared)) in states.iter().zip(&shared).enumerate() {
                    let (reduce, start) = of(n);
                    let mine = get(ir, state, shared, self.thread);
                    let other = get(ir, state, shared, from);
                    put(ir, &self.join(ir, reduce, start, &mine, &other), shared, self.thread);
                }
            });
            ir.barrier();
            left /= 2;
        }
        for (state, shared) in states.iter_mut().zip(&shared) {
            *state = get(ir, state, shared, self.row);
        }
        states
    }

    /// The accumulators of `count` neighbouring threads of a warp as one, in each of them.
    fn shuffled(
        &self,
        points: &mut Points<'_, 'c>,
        of: (&Reduce, Start),
        state: &[V<'c>],
        lane: Val<'c>,
        count: u32,
    ) -> Vec<V<'c>> {
        let ir = points.ir;
        let int32 = |n: u32| ir.int(Repr::I32, n.into());
        // A long function is written once: five copies of it would take the assembler longer than they save.
        if of.0.function.code.len() >= LONG_FUNCTION && count > 2 {
            let all: Vec<V<'c>> = [int32(count / 2).into()].into_iter().chain(state.iter().copied()).collect();
            // By halving, so that the assembler does not see how often, and leaves the loop as it is.
            let mut joined = points.do_while(&all, &mut |_, all| {
                let distance = all[0].re;
                let mut next = vec![ir.lshr(distance, int32(1)).into()];
                next.extend(self.joined_with_other(ir, of, &all[1..], lane, distance));
                let more = ir.icmp(NE, next[0].re, int32(0));
                (next, more)
            });
            joined.remove(0);
            return joined;
        }
        let mut state = state.to_vec();
        let mut distance = count / 2;
        while distance > 0 {
            state = self.joined_with_other(ir, of, &state, lane, int32(distance));
            distance /= 2;
        }
        state
    }

    /// The accumulators of this thread and of the one at that distance as one.
    fn joined_with_other(
        &self,
        ir: &Ir<'c>,
        (reduce, start): (&Reduce, Start),
        state: &[V<'c>],
        lane: Val<'c>,
        distance: Val<'c>,
    ) -> Vec<V<'c>> {
        let other: Vec<V<'c>> = state.iter().map(|v| v.map(|p| ir.shuffle_xor(p, distance))).collect();
        match start {
            Start::Nothing => {
                // The function may tell its arguments apart: what stands before comes first.
                let is_first = ir.icmp(EQ, ir.and(lane, distance), ir.int(Repr::I32, 0));
                let pick = |a: &[V<'c>], b: &[V<'c>]| -> Vec<V<'c>> {
                    a.iter().zip(b).map(|(a, b)| a.map2(*b, |a, b| ir.select(is_first, a, b))).collect()
                };
                let (a, b) = (pick(state, &other), pick(&other, state));
                self.join(ir, reduce, start, &a, &b)
            }
            _ => self.join(ir, reduce, start, state, &other),
        }
    }

    fn shared_for(&self, ir: &Ir<'c>, state: &[V<'c>], count: u32) -> Vec<PointerValue<'c>> {
        state.iter().flat_map(|v| v.parts()).map(|p| ir.shared(count * ir.repr(p).bits().max(8) / 8)).collect()
    }

    /// Leaves the accumulators of a part of a row for who finishes them.
    fn write_partial(
        &self,
        points: &mut Points<'_, 'c>,
        reduce: &Reduce,
        start: Start,
        lanes: &[Vec<V<'c>>],
        first_buffer: usize,
    ) {
        let (Some(partial), Some(part)) = (&self.grid.partial, self.part) else { return };
        let (ir, index) = (points.ir, points.index);
        let part = ir.zext(part, index);
        let int = |n: i64| ir.int(index, n);
        let place = match self.grid.by_column {
            true => {
                let row = ir.mul(self.number, int(self.grid.lanes.into()));
                ir.add(ir.mul(part, int(self.grid.passes.rows())), row)
            }
            false => ir.add(ir.mul(self.number, int(partial.parts.into())), part),
        };
        let first = ir.icmp(EQ, self.slot, int(0));
        let writes = self.active.map_or(first, |a| ir.and(a, first));
        points.when(Some(writes), |points| {
            for n in 0..reduce.inits.len() {
                let t = reduce.function.parameters[n];
                let buffer = points.buffers[&partial.buffers[first_buffer + n]];
                let bytes = ir.mul(ir.sext(place, Repr::I64), ir.i64(t.bytes() as i64).into()).into_int_value();
                let pointer = ir.offset(buffer, bytes);
                let skip = usize::from(start == Start::Nothing);
                let values: Vec<V<'c>> = lanes.iter().map(|l| l[n + skip]).collect();
                ir.store_lanes(pointer, &values, t, false);
            }
        });
    }

    /// Writes what there is of each element.
    fn write_elements(&mut self, points: &mut Points<'_, 'c>, stores: &[&Store]) {
        let outside: Vec<ItemId> = points.invariants(stores);
        for lane in 0..self.lanes_of_rows() {
            points.compute(&outside, At { chunk: 0, lane });
        }
        self.walk(points, &[], &mut |rows, points, _| {
            for chunk in 0..rows.grid.chunks {
                let valid = match (rows.valid[chunk as usize], rows.active) {
                    (Some(a), Some(b)) => Some(points.ir.and(a, b)),
                    (a, b) => a.or(b),
                };
                points.write_stores(stores, chunk, valid);
            }
            Vec::new()
        });
    }
}

//! Reductions: accumulators carried through loops.
//!
//! Where the innermost loop has lanes, each lane reduces its share and the lanes are reduced into one at the end. The
//! lanes start from the operation's identity; the initial value is reduced in once, at the end.

use super::ir::{Ir, Repr, Val};
use super::kernel::Emitter;
use super::value::V;
use hloom_ir::ElementType;
use hloom_ir::op::BinaryOp;
use hloom_loops::affine::{ItemId, VarId};
use hloom_loops::graph::{Function, ScalarOp};
use hloom_loops::program::{Item, Reduce};

impl<'c> Emitter<'_, 'c> {
    pub(crate) fn reduce(&mut self, reduce: &Reduce) -> Vec<V<'c>> {
        let inits: Vec<V<'c>> = reduce.inits.iter().map(|&i| self.value(i)).collect();
        let lanes = reduce.vars.last().map_or(1, |&v| self.schedule.lanes[v as usize]);
        let around = self.lanes_around(reduce);
        if lanes.max(around) > 1
            && let Some(order) = self.order_of(reduce)
        {
            return vec![self.reduce_in_order(reduce, order, lanes, around)];
        }
        let identity =
            reduce.function.single_operation().and_then(|op| self.ir.identity(op, reduce.function.parameters[0]));
        if lanes == 1 {
            let start: Vec<V<'c>> = inits.iter().map(|v| v.map(|p| self.ir.splat(p, around))).collect();
            return self.reduce_loops(reduce, 0, &start, None);
        }
        let outer_mask = self.mask.take();
        // Without an identity it is a choice, and may have the initial value in every lane.
        let splat = |v: V<'c>| v.map(|p| self.ir.splat(p, lanes));
        let start: Vec<V<'c>> = match identity {
            Some(identity) => vec![splat(identity)],
            None => inits.iter().map(|&v| splat(v)).collect(),
        };
        let mut state = self.reduce_loops(reduce, 0, &start, None);
        if let Some(&v) = reduce.vars.last() {
            self.lanes_now[v as usize] = 1;
        }
        let mut count = lanes;
        while count > 1 {
            count /= 2;
            let half = |first: u32| (first..first + count).collect::<Vec<u32>>();
            let low: Vec<V<'c>> = state.iter().map(|v| v.map(|p| self.ir.pick(p, &half(0)))).collect();
            let high: Vec<V<'c>> = state.iter().map(|v| v.map(|p| self.ir.pick(p, &half(count)))).collect();
            state = self.ir.combine(&reduce.function, low, high);
        }
        self.mask = outer_mask;
        if identity.is_none() {
            return state;
        }
        self.ir.apply(&reduce.function, &[inits, state].concat())
    }

    /// The order in which a reduce looks for the greatest or the least of floats, if it does that.
    fn order_of(&self, reduce: &Reduce) -> Option<Order> {
        let is_bf16 = |&i: &ItemId| match &self.program.item(i).item {
            Item::Scalar(ScalarOp::Convert, of) => {
                of.iter().all(|&o| self.program.item(o).element_type == ElementType::Bf16)
            }
            _ => false,
        };
        let numbers = match reduce.function.parameters[0] {
            t if !t.is_float() => return None,
            // Reductions carry them converted to f32.
            _ if reduce.inputs.iter().chain(&reduce.inits).all(is_bf16) => Numbers::Bf16,
            t => match Repr::of(t) {
                Repr::F32 => Numbers::F32,
                Repr::F64 if self.machine.simd.has_masks => Numbers::F64,
                _ => return None,
            },
        };
        let is_greatest = match reduce.function.single_operation()? {
            BinaryOp::Maximum => true,
            BinaryOp::Minimum => false,
            _ => return None,
        };
        Some(Order { numbers, is_greatest })
    }

    /// The greatest or least of floats, as integers in the same order: that takes one short instruction for each, where
    /// floats with their NaN and two zeros take several, one waiting for the other.
    fn reduce_in_order(&mut self, reduce: &Reduce, order: Order, lanes: u32, around: u32) -> V<'c> {
        let init = self.value(reduce.inits[0]).re;
        let init = self.ir.ordered(order, init);
        let outer_mask = if lanes > 1 { self.mask.take() } else { None };
        let start = self.ir.splat(init, lanes.max(around)).into();
        let mut state = self.reduce_loops(reduce, 0, &[start], Some(order))[0].re;
        if lanes > 1 {
            self.lanes_now[reduce.vars[reduce.vars.len() - 1] as usize] = 1;
            let mut count = lanes;
            while count > 1 {
                count /= 2;
                let half = |first: u32| (first..first + count).collect::<Vec<u32>>();
                state = self.ir.further(order, self.ir.pick(state, &half(0)), self.ir.pick(state, &half(count)));
            }
            self.mask = outer_mask;
        }
        self.ir.unordered(order, state).into()
    }

    /// Lanes of the loops around: the accumulators have them from the start.
    fn lanes_around(&self, reduce: &Reduce) -> u32 {
        let vars = reduce.inputs.iter().chain(&reduce.condition).flat_map(|&i| self.program.item(i).vars.iter());
        vars.filter(|v| !reduce.vars.contains(v)).map(|&v| self.lanes_now[v as usize]).max().unwrap_or(1)
    }

    /// The loop that a scan runs along, with all that is written there.
    pub(crate) fn scan_loop(&mut self, var: VarId, id: ItemId, scan: &Reduce) {
        let around = self.lanes_around(scan);
        let start: Vec<V<'c>> = scan.inits.iter().map(|&i| self.value(i).map(|p| self.ir.splat(p, around))).collect();
        let range = (self.ir.i64(0), self.ir.i64(self.program.extents[var as usize]), 1);
        let scope = self.schedule.scope_of_var[var as usize];
        self.for_loop(range, &start, &mut |e, i, state| {
            e.vars[var as usize] = Some(i);
            e.scanned = state.to_vec();
            e.scope(scope);
            e.write_stores();
            e.reductions.get(&id).cloned().unwrap_or_default()
        });
    }

    fn reduce_loops(&mut self, reduce: &Reduce, level: usize, state: &[V<'c>], order: Option<Order>) -> Vec<V<'c>> {
        let Some(&var) = reduce.vars.get(level) else { return self.reduce_iteration(reduce, state, order) };
        let high = self.ir.i64(self.program.extents[var as usize]);
        let low = self.ir.i64(0);
        self.lane_loop(var, (low, high), state, &mut |e, state| e.reduce_loops(reduce, level + 1, state, order))
    }

    pub(super) fn reduce_step(&mut self, reduce: &Reduce, state: &[V<'c>]) -> Vec<V<'c>> {
        self.reduce_iteration(reduce, state, None)
    }

    fn reduce_iteration(&mut self, reduce: &Reduce, state: &[V<'c>], order: Option<Order>) -> Vec<V<'c>> {
        let inputs: Vec<V<'c>> = reduce.inputs.iter().map(|&i| self.value(i)).collect();
        let results = match order {
            Some(order) => vec![self.ir.further(order, state[0].re, self.ir.ordered(order, inputs[0].re)).into()],
            None => self.ir.apply(&reduce.function, &[state, &inputs[..]].concat()),
        };
        // A function that drops its accumulator may have lost the lanes.
        let spread = |(r, s): (&V<'c>, &V<'c>)| r.map(|p| self.ir.splat(p, s.lanes()));
        let results: Vec<V<'c>> = results.iter().zip(state).map(spread).collect();
        let Some(condition) = reduce.condition.map(|c| self.value(c).re) else { return results };
        let choose = |n: Val<'c>, o: Val<'c>| self.ir.select(condition, n, o);
        results.iter().zip(state).map(|(new, old)| new.map2(*old, choose)).collect()
    }
}

impl<'c> Ir<'c> {
    /// Two parts of a reduce as one. Where a place is looked for, in the order of the places.
    pub(crate) fn combine(&self, function: &Function, low: Vec<V<'c>>, high: Vec<V<'c>>) -> Vec<V<'c>> {
        let (Some(a), Some(b)) = (low.get(1), high.get(1)) else {
            return self.apply(function, &[low, high].concat());
        };
        let in_order = self.icmp(inkwell::IntPredicate::SLE, a.re, b.re);
        let choose = |x: &V<'c>, y: &V<'c>| x.map2(*y, |x, y| self.select(in_order, x, y));
        let first: Vec<V<'c>> = low.iter().zip(&high).map(|(l, h)| choose(l, h)).collect();
        let second: Vec<V<'c>> = low.iter().zip(&high).map(|(l, h)| choose(h, l)).collect();
        self.apply(function, &[first, second].concat())
    }

    /// The value that changes nothing.
    pub(crate) fn identity(&self, op: BinaryOp, t: ElementType) -> Option<V<'c>> {
        if !hloom_loops::schedule::has_identity(op, t) {
            return None;
        }
        let repr = Repr::of(t);
        let bits = repr.bits();
        let float = t.is_float() || t.is_complex();
        let (least, greatest) = match (t.is_signed_integer(), t) {
            (true, _) => (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits)),
            _ => (0, -1),
        };
        let value = match op {
            BinaryOp::Add if float => self.float(repr, -0.0),
            BinaryOp::Multiply if float => self.float(repr, 1.0),
            BinaryOp::Maximum if float => self.float(repr, f64::NEG_INFINITY),
            BinaryOp::Minimum if float => self.float(repr, f64::INFINITY),
            _ if float => return None,
            BinaryOp::Add | BinaryOp::Or | BinaryOp::Xor => self.int(repr, 0),
            BinaryOp::Multiply if t == ElementType::Pred => self.int(repr, 1),
            BinaryOp::Multiply => self.int(repr, 1),
            BinaryOp::And => self.int(repr, -1),
            BinaryOp::Maximum => self.int(repr, least),
            BinaryOp::Minimum => self.int(repr, greatest),
            _ => return None,
        };
        Some(V { re: value, im: t.is_complex().then_some(value) })
    }
}

/// Floats as integers in the same order; NaN comes before all others, whatever is looked for.
#[derive(Clone, Copy)]
struct Order {
    numbers: Numbers,
    is_greatest: bool,
}

/// Which floats are put in order. Those of bf16, which are computed as f32, are integers of their own 16 bits.
#[derive(Clone, Copy)]
enum Numbers {
    Bf16,
    F32,
    F64,
}

impl Numbers {
    fn integers(self) -> Repr {
        match self {
            Numbers::Bf16 => Repr::I16,
            Numbers::F32 => Repr::I32,
            Numbers::F64 => Repr::I64,
        }
    }
}

impl<'c> Ir<'c> {
    /// The integer that stands for a float: of a negative one the bits below the sign are turned round.
    fn ordered(&self, order: Order, v: Val<'c>) -> Val<'c> {
        let int = order.numbers.integers();
        let largest = i64::MAX >> (64 - int.bits());
        let first = if order.is_greatest { largest } else { !largest };
        let (bits, is_nan) = match order.numbers {
            // By the bits alone, so that what was loaded need not become f32 at all.
            Numbers::Bf16 => {
                let bits = self.trunc(self.lshr(self.bitcast(v, Repr::I32), self.int(Repr::I32, 16)), int);
                let infinity = i64::from(f32::INFINITY.to_bits() >> 16);
                let magnitude = self.and(bits, self.int(int, largest));
                (bits, self.icmp(inkwell::IntPredicate::UGT, magnitude, self.int(int, infinity)))
            }
            Numbers::F32 | Numbers::F64 => (self.bitcast(v, int), self.fcmp(inkwell::FloatPredicate::UNO, v, v)),
        };
        self.select(is_nan, self.int(int, first), self.turned(order, bits))
    }

    fn unordered(&self, order: Order, v: Val<'c>) -> Val<'c> {
        let bits = self.turned(order, v);
        match order.numbers {
            Numbers::Bf16 => {
                let wide = self.shl(self.zext(bits, Repr::I32), self.int(Repr::I32, 16));
                self.bitcast(wide, Repr::F32)
            }
            Numbers::F32 => self.bitcast(bits, Repr::F32),
            Numbers::F64 => self.bitcast(bits, Repr::F64),
        }
    }

    fn turned(&self, order: Order, bits: Val<'c>) -> Val<'c> {
        let int = order.numbers.integers();
        let width = i64::from(int.bits());
        let sign = self.ashr(bits, self.int(int, width - 1));
        self.xor(bits, self.and(sign, self.int(int, i64::MAX >> (64 - width))))
    }

    /// The one of two that is looked for.
    fn further(&self, order: Order, a: Val<'c>, b: Val<'c>) -> Val<'c> {
        self.call2(if order.is_greatest { "llvm.smax" } else { "llvm.smin" }, a, b)
    }
}

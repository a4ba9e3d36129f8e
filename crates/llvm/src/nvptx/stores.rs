//! What threads write: lanes together, one by one, or combined with what is there by atomic operations.

use super::points::{At, Points};
use crate::emit::ir::{Repr, Val};
use crate::emit::value::{V, memory_repr};
use hloom_ir::ElementType;
use hloom_ir::op::BinaryOp;
use hloom_loops::affine::{Term, VarId};
use hloom_loops::graph::Function;
use hloom_loops::program::Store;
use inkwell::values::PointerValue;
use inkwell::{AtomicOrdering, AtomicRMWBinOp};

/// What is to be written at one place.
struct Pending<'s, 'c> {
    store: &'s Store,
    at: At,
    values: Vec<V<'c>>,
    unrounded: bool,
    condition: Option<Val<'c>>,
    pointer: PointerValue<'c>,
}

impl<'c> Points<'_, 'c> {
    /// Whether a store varies along the chunks.
    pub(super) fn varies_along(&self, store: &Store, along: &[u32]) -> bool {
        store.offset.terms.iter().any(|t| match t.0 {
            Term::Var(v) => along.contains(&v),
            Term::Item(i) => self.program.item(i).vars.iter().any(|v| along.contains(v)),
        })
    }

    /// Writes all stores at the lanes of a chunk.
    pub(super) fn write_points(&mut self, chunk: u32) {
        let stores: Vec<&Store> = self.program.stores.iter().collect();
        self.write_stores(&stores, chunk, None);
    }

    /// Writes stores at the lanes of a chunk, where `active`. All values are there before the first is written: a result
    /// may take the place of an operand.
    pub(super) fn write_stores(&mut self, stores: &[&Store], chunk: u32, active: Option<Val<'c>>) {
        let mut pending = Vec::new();
        for lane in 0..self.lanes {
            for &store in stores {
                let terms = store.offset.terms.iter().filter_map(|t| match t.0 {
                    Term::Item(i) => Some(i),
                    Term::Var(_) => None,
                });
                let wanted: Vec<u32> = terms.chain(store.condition).collect();
                self.compute(&wanted, At { chunk, lane });
            }
        }
        for &store in stores {
            let varies = self.store_varies_by_lane(store);
            let lanes = if varies { self.lanes } else { 1 };
            let condition_varies = store.condition.is_some_and(|c| self.key(c, At { chunk, lane: 1 }).1.lane == 1);
            let combines_apart = store.combine.as_ref().is_some_and(|f| !self.adds_lanes(f, store.element_type));
            let together = match combines_apart || condition_varies {
                true => 1,
                false => self.together(&store.offset).min(lanes),
            };
            for first in (0..lanes).step_by(together as usize) {
                let at = At { chunk, lane: first };
                let mut values = Vec::new();
                let mut unrounded = false;
                for lane in first..first + together {
                    let (value, raw) = match store.combine.is_some() {
                        true => (self.value(store.item, At { chunk, lane }), false),
                        false => self.value_to_store(store.item, At { chunk, lane }),
                    };
                    values.push(value);
                    unrounded |= raw;
                }
                let condition = store.condition.map(|c| self.value(c, at).re);
                let base = self.buffers[&store.buffer];
                let pointer = self.address(base, &store.offset, None, store.element_type, at);
                pending.push(Pending { store, at, values, unrounded, condition, pointer });
            }
        }
        self.when(active, |points| {
            for p in pending {
                points.when(p.condition, |points| match &p.store.combine {
                    Some(function) if points.adds_lanes(function, p.store.element_type) => {
                        points.ir.add_lanes(p.pointer, &p.values, p.store.element_type);
                    }
                    Some(function) => points.combine_at(p.pointer, p.values[0], p.store.element_type, function),
                    None => points.ir.store_lanes(p.pointer, &p.values, p.store.element_type, p.unrounded),
                });
                debug_assert!(p.at.chunk == chunk);
            }
        });
    }

    fn store_varies_by_lane(&self, store: &Store) -> bool {
        let of_item = |i: u32| self.key(i, At { chunk: 0, lane: 1 }).1.lane == 1;
        of_item(store.item)
            || store.condition.is_some_and(of_item)
            || store.offset.terms.iter().any(|t| match t.0 {
                Term::Var(v) => self.lanes_along.has(v),
                Term::Item(i) => of_item(i),
            })
    }

    /// Whether there is an instruction that adds neighbouring elements of the type to those in memory.
    fn adds_lanes(&self, function: &Function, t: ElementType) -> bool {
        self.ir.adds_vectors
            && function.single_operation() == Some(BinaryOp::Add)
            && matches!(t, ElementType::F32 | ElementType::F16 | ElementType::Bf16)
    }

    /// Combines a value with what is in memory, whoever else does so at the same time.
    fn combine_at(&mut self, pointer: PointerValue<'c>, value: V<'c>, t: ElementType, function: &Function) {
        let whole = function.single_operation();
        let repr = memory_repr(t);
        let operation = match (whole, t) {
            (Some(BinaryOp::Add), _) if t.is_complex() || matches!(t, ElementType::F32 | ElementType::F64) => {
                Some(AtomicRMWBinOp::FAdd)
            }
            _ if !matches!(repr, Repr::I32 | Repr::I64) || t.is_float() => None,
            (Some(BinaryOp::Add), _) => Some(AtomicRMWBinOp::Add),
            (Some(BinaryOp::And), _) => Some(AtomicRMWBinOp::And),
            (Some(BinaryOp::Or), _) => Some(AtomicRMWBinOp::Or),
            (Some(BinaryOp::Xor), _) => Some(AtomicRMWBinOp::Xor),
            (Some(BinaryOp::Maximum), t) if t.is_signed_integer() => Some(AtomicRMWBinOp::Max),
            (Some(BinaryOp::Minimum), t) if t.is_signed_integer() => Some(AtomicRMWBinOp::Min),
            (Some(BinaryOp::Maximum), _) => Some(AtomicRMWBinOp::UMax),
            (Some(BinaryOp::Minimum), _) => Some(AtomicRMWBinOp::UMin),
            _ => None,
        };
        let Some(operation) = operation else { return self.exchange_at(pointer, value, t, function) };
        for (n, part) in value.parts().enumerate() {
            let at = self.ir.offset(pointer, self.ir.i64(n as i64 * i64::from(repr.bits() / 8)));
            // inkwell's own function takes integers only.
            // SAFETY: the values are of this builder's context, and the builder is positioned.
            unsafe {
                use inkwell::values::AsValueRef;
                llvm_sys::core::LLVMBuildAtomicRMW(
                    self.ir.builder.as_mut_ptr(),
                    operation.into(),
                    at.as_value_ref(),
                    part.as_value_ref(),
                    AtomicOrdering::Monotonic.into(),
                    0,
                );
            }
        }
    }

    /// Reads, combines, and writes if nobody else has written meanwhile; else again.
    fn exchange_at(&mut self, pointer: PointerValue<'c>, value: V<'c>, t: ElementType, function: &Function) {
        let ir = self.ir;
        let bits = (t.bytes() as u32 * 8).min(64);
        let repr = match bits {
            8 => Repr::I8,
            16 => Repr::I16,
            32 => Repr::I32,
            _ => Repr::I64,
        };
        let (before, again, after) = (self.here(), self.block("again"), self.block("exchanged"));
        let first = ir.load(ir.ty(repr, 1), pointer, bits / 8);
        self.jump(again);
        self.continue_at(again);
        let old = ir.builder.build_phi(ir.ty(repr, 1), "").expect("the builder is positioned");
        let old_bits = old.as_basic_value();
        let old_value = match t {
            ElementType::C64 => {
                let part = |n: i64| {
                    let bits = ir.trunc(ir.lshr(old_bits, ir.int(Repr::I64, 32 * n)), Repr::I32);
                    ir.bitcast(bits, Repr::F32)
                };
                V::complex(part(0), part(1))
            }
            _ => ir.of_memory(ir.bitcast(old_bits, memory_repr(t)), t).into(),
        };
        let new = ir.apply(function, &[old_value, value])[0];
        let new_bits = match (t, new.im) {
            (ElementType::C64, Some(im)) => {
                let wide = |v: Val<'c>| ir.zext(ir.bitcast(v, Repr::I32), Repr::I64);
                ir.or(wide(new.re), ir.shl(wide(im), ir.int(Repr::I64, 32)))
            }
            _ => ir.bitcast(ir.as_memory(new.re, t), repr),
        };
        let exchanged = ir
            .builder
            .build_cmpxchg(
                pointer,
                old_bits.into_int_value(),
                new_bits.into_int_value(),
                AtomicOrdering::Monotonic,
                AtomicOrdering::Monotonic,
            )
            .expect("the types fit");
        let found = ir.builder.build_extract_value(exchanged, 0, "").expect("there are two values");
        let done = ir.builder.build_extract_value(exchanged, 1, "").expect("there are two values");
        let end = self.here();
        self.branch(done, after, again);
        old.add_incoming(&[(&first, before), (&found, end)]);
        self.continue_at(after);
    }

    /// All that is written at the points of these loops, one after another.
    pub(super) fn write_in_order(&mut self, loops: &[VarId]) {
        let sizes: Vec<i64> = loops.iter().map(|&v| self.program.extents[v as usize]).collect();
        let int = |n: i64| self.ir.int(self.index, n);
        let range = (int(0), int(sizes.iter().product()), int(1));
        self.for_loop(range, &[], &mut |e, i, _| {
            e.forget_all();
            e.reductions.clear();
            for (&var, value) in loops.iter().zip(e.ir.positions(i, &sizes)) {
                e.set_var(var, 0, value);
            }
            e.write_points(0);
            Vec::new()
        });
    }

    /// The loop that a scan runs along, with all that is written there.
    pub(super) fn write_scan(&mut self) {
        let program = self.program;
        let (Some((id, scan)), Some(&var)) = (program.scan(), program.nest.last()) else { return };
        let points: Vec<At> = (0..self.lanes).map(|lane| At { chunk: 0, lane }).collect();
        let mut start = Vec::new();
        for &at in &points {
            for &init in &scan.inits {
                start.push(self.value(init, at));
            }
        }
        let int = |n: i64| self.ir.int(self.index, n);
        let range = (int(0), int(program.extents[var as usize]), int(1));
        self.for_loop(range, &start, &mut |e, i, state| {
            e.forget_all();
            e.set_var(var, 0, i);
            let next = e.reduce_step(scan, state, &points);
            for (&at, results) in points.iter().zip(next.chunks(scan.inits.len())) {
                let key = e.key(id, at);
                e.reductions.insert(key, results.to_vec());
            }
            e.write_points(0);
            next
        });
    }
}

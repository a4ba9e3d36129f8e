//! Small arrays in registers: inside a region a scalar or a short vector need not go through memory.
//!
//! A register holds all elements of an array, in a vector of the next power of two of lanes (a scalar for one element).
//! Truth values are bytes there, as in memory; all else is as it is computed with. Elements are picked by numbers known
//! when the code is written: [`Straight`] says which buffers of a program are read and written only in this way, once
//! its short loops are written out.

use super::ir::{Ir, Repr, Val};
use super::kernel::{Emitter, Slot};
use super::value::V;
use crate::machine::Machine;
use hloom_ir::ElementType;
use hloom_loops::affine::{Affine, Term, VarId};
use hloom_loops::program::{Item, LoadSource, LoopProgram, Store};
use hloom_loops::schedule::Schedule;
use inkwell::IntPredicate::NE;
use inkwell::types::BasicTypeEnum;

/// Loops of so many iterations are written out.
const MAX_ITERATIONS: i64 = 8;
/// But not if all loops together make more iterations than this.
const MAX_ALL_ITERATIONS: i64 = 16;
/// The widest register, in bytes.
const MAX_BYTES: u32 = 64;

/// The lanes of a register for so many elements, if there is a register for them.
pub(crate) fn register_lanes(t: ElementType, elements: i64) -> Option<u32> {
    let lanes = u32::try_from(elements).ok().filter(|&n| n > 0)?.checked_next_power_of_two()?;
    let bits = register_repr(t).bits().max(8);
    (!t.is_complex() && lanes.checked_mul(bits / 8)? <= MAX_BYTES).then_some(lanes)
}

fn register_repr(t: ElementType) -> Repr {
    match t {
        ElementType::Pred => Repr::I8,
        _ => Repr::of(t),
    }
}

/// How the loops of a program are written where its buffers may be in registers.
pub(crate) struct Straight {
    /// Loops of at most so many iterations are written out.
    pub(crate) unroll: i64,
    /// Buffers that must be in memory.
    pub(crate) in_memory: Vec<u32>,
}

impl Straight {
    pub(crate) fn of(program: &LoopProgram, schedule: &Schedule, machine: &Machine) -> Straight {
        let trip_count = |var: usize| {
            let (extent, lanes) = (program.extents[var], i64::from(schedule.lanes[var]));
            let rest = extent % lanes;
            // Where there are no masks the rest goes one by one.
            let rest = if machine.simd.has_masks { rest.min(1) } else { rest };
            (extent / lanes).max(rest)
        };
        let all: i64 = (0..program.extents.len()).map(|v| trip_count(v).max(1)).fold(1, i64::saturating_mul);
        let unroll = if all <= MAX_ALL_ITERATIONS { MAX_ITERATIONS } else { 1 };
        let is_known = |var: VarId| trip_count(var as usize) <= unroll;
        let known_offset = |offset: &Affine| {
            let known = |t: &(Term, i64)| matches!(t.0, Term::Var(v) if is_known(v));
            offset.terms.iter().all(known)
        };
        let odd = program.is_sequential
            || program.before.is_some()
            || program.copy_first.is_some()
            || !program.tiles.is_empty();
        let mut in_memory: Vec<u32> = Vec::new();
        for data in &program.items {
            if let Item::Load { source: LoadSource::Buffer(b), offset, .. } = &data.item
                && (odd || !known_offset(offset))
            {
                in_memory.push(*b);
            }
        }
        let straight = program.nest.iter().all(|&v| is_known(v));
        for store in &program.stores {
            let plain = store.combine.is_none() && store.condition.is_none();
            if odd || !plain || !straight || !known_offset(&store.offset) {
                in_memory.push(store.buffer);
            }
        }
        if let Some((from, to, _)) = program.copy_first {
            in_memory.extend([from, to]);
        }
        Straight { unroll, in_memory }
    }
}

impl<'c> Emitter<'_, 'c> {
    /// The register that a source is in, and its elements.
    pub(crate) fn register_of(&self, source: &LoadSource) -> Option<(u32, u32)> {
        match source {
            LoadSource::Buffer(n) => match self.buffers[*n as usize] {
                Slot::Register { number, elements } => Some((number, elements)),
                Slot::Memory(_) => None,
            },
            _ => None,
        }
    }

    /// The element that the first lane is at, the distance of the lanes, their number, and how many are in the loop.
    fn known_place(&self, offset: &Affine) -> (i64, i64, u32, i64) {
        let (mut first, mut stride, mut lanes, mut inside) = (offset.constant, 0, 1, 1);
        for &(term, factor) in &offset.terms {
            let Term::Var(v) = term else { continue };
            let value = self.vars[v as usize].and_then(|i| i.get_sign_extended_constant()).unwrap_or(0);
            first += factor * value;
            if self.lanes_now[v as usize] > 1 {
                (stride, lanes) = (factor, self.lanes_now[v as usize]);
                inside = (self.program.extents[v as usize] - value).min(i64::from(lanes));
            }
        }
        (first, stride, lanes, inside)
    }

    /// Elements of an array in a register.
    pub(crate) fn load_register(&mut self, offset: &Affine, number: u32, elements: u32, t: ElementType) -> V<'c> {
        let whole = self.registers[number as usize];
        let whole = whole.map_or_else(|| self.ir.register_type(t, elements).const_zero(), |v| v.re);
        let (first, stride, lanes, _) = self.known_place(offset);
        // Lanes outside of the loop, and what a guard leaves out, may be anything.
        let at = |lane: u32| (first + stride * i64::from(lane)).clamp(0, i64::from(elements) - 1) as u32;
        let picked = match (whole, lanes) {
            (Val::VectorValue(v), _) => {
                let wanted: Vec<u32> = (0..lanes).map(at).collect();
                let is_all = lanes == v.get_type().get_size() && (0..elements).all(|n| wanted[n as usize] == n);
                if is_all { whole } else { self.ir.pick(whole, &wanted) }
            }
            (scalar, _) => scalar,
        };
        match t {
            ElementType::Pred => self.ir.icmp(NE, picked, self.ir.int(Repr::I8, 0)).into(),
            _ => picked.into(),
        }
    }

    /// Writes elements of an array in a register.
    pub(crate) fn store_register(&mut self, store: &Store, number: u32, elements: u32) {
        let (first, _, lanes, inside) = self.known_place(&store.offset);
        let value = self.value(store.item).re;
        let value = match store.element_type {
            ElementType::Pred => self.ir.zext(value, Repr::I8),
            _ => value,
        };
        let new = match self.ir.register_type(store.element_type, elements) {
            BasicTypeEnum::VectorType(t) => {
                let size = t.get_size();
                let value = self.ir.splat(value, lanes);
                let covers = first == 0 && inside >= i64::from(elements);
                let old = self.registers[number as usize].map(|v| v.re);
                match old {
                    _ if covers && lanes == size => value,
                    // Lanes beyond the elements may be anything.
                    _ if covers => self.ir.resized(value, size),
                    old => {
                        let old = old.unwrap_or_else(|| t.const_zero().into());
                        let value = self.ir.resized(value, size);
                        let from = |lane: i64| match lane - first {
                            n if (0..inside).contains(&n) => size + n as u32,
                            _ => lane as u32,
                        };
                        self.ir.shuffle(old, value, &(0..i64::from(size)).map(from).collect::<Vec<u32>>())
                    }
                }
            }
            _ if lanes > 1 => self.ir.pick(value, &[0]),
            _ => value,
        };
        self.registers[number as usize] = Some(new.into());
    }
}

impl<'c> Ir<'c> {
    /// The type of a register.
    pub(crate) fn register_type(&self, t: ElementType, elements: u32) -> BasicTypeEnum<'c> {
        self.ty(register_repr(t), elements.next_power_of_two())
    }

    /// A vector of so many lanes that begins with those of `value`.
    fn resized(&self, value: Val<'c>, lanes: u32) -> Val<'c> {
        match value {
            Val::VectorValue(v) => {
                let last = v.get_type().get_size() - 1;
                self.pick(value, &(0..lanes).map(|n| n.min(last)).collect::<Vec<u32>>())
            }
            _ => self.splat(value, lanes),
        }
    }

    /// An array in memory as a register.
    pub(crate) fn register_of_memory(
        &self,
        pointer: inkwell::values::PointerValue<'c>,
        t: ElementType,
        elements: u32,
    ) -> Val<'c> {
        let computed = |v: Val<'c>| if t == ElementType::Pred { v } else { self.of_memory(v, t) };
        let memory = super::value::memory_repr(t);
        let bytes = memory.bits() / 8;
        if elements.is_power_of_two() {
            return computed(self.load(self.ty(memory, elements), pointer, bytes));
        }
        let mut vector = self.ty(memory, elements.next_power_of_two()).const_zero();
        for n in 0..elements {
            let at = self.offset(pointer, self.i64(i64::from(n * bytes)));
            vector = self.insert(vector, self.load(self.ty(memory, 1), at, bytes), n);
        }
        computed(vector)
    }

    /// Writes a register to memory.
    pub(crate) fn register_to_memory(
        &self,
        value: Val<'c>,
        pointer: inkwell::values::PointerValue<'c>,
        t: ElementType,
        elements: u32,
    ) {
        let value = if t == ElementType::Pred { value } else { self.as_memory(value, t) };
        let bytes = super::value::memory_repr(t).bits() / 8;
        match value {
            Val::VectorValue(v) if !elements.is_power_of_two() => {
                for n in 0..elements {
                    let at = self.offset(pointer, self.i64(i64::from(n * bytes)));
                    self.store(at, self.extract(v, n), bytes);
                }
            }
            _ => self.store(pointer, value, bytes),
        }
    }
}

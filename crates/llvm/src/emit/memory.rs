//! Loads and stores, with lanes and without.
//!
//! Lanes that are next to each other are one vector access; others are gathered. In the rest of a loop a mask keeps the
//! lanes outside of it from being touched.

use super::ir::{Repr, Val, lanes};
use super::kernel::Emitter;
use super::value::{V, memory_repr};
use hloom_ir::ElementType;
use hloom_ir::op::BinaryOp;
use hloom_loops::affine::{Affine, ItemId, Term};
use hloom_loops::graph::ScalarOp;
use hloom_loops::program::{Item, LoadSource, Store};
use hloom_loops::schedule::{Access, MAX_CLOSE};
use inkwell::FloatPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::values::PointerValue;

/// How the lanes of an access lie.
enum Spread<'c> {
    /// All at one place.
    One,
    /// That many elements apart, in so many lanes.
    Stride(i64, u32),
    /// Offsets in bytes from the address.
    Offsets(Val<'c>),
}

impl<'c> Emitter<'_, 'c> {
    fn spread(&self, access: &Access, bytes: i64) -> Spread<'c> {
        let mut stride = (0, 1);
        for &(term, factor) in &access.offset.terms {
            if let Term::Var(v) = term
                && self.lanes_now[v as usize] > 1
            {
                stride = (factor, self.lanes_now[v as usize]);
            }
        }
        if let Some(offsets) = self.narrow_offsets(access, stride, bytes) {
            return Spread::Offsets(offsets);
        }
        let mut offsets: Option<Val<'c>> = None;
        for &(item, factor) in &access.varying {
            let part = self.ir.mul(self.value(item).re, self.ir.i64(factor).into());
            offsets = Some(offsets.map_or(part, |o| self.ir.add(o, part)));
        }
        match (offsets, stride) {
            (None, (_, 1)) => Spread::One,
            (None, (stride, lanes)) => Spread::Stride(stride, lanes),
            (Some(offsets), (0, _)) => Spread::Offsets(offsets),
            (Some(offsets), (stride, lanes)) => {
                let numbers = self.ir.lane_numbers(Repr::I64, lanes);
                let own = self.ir.mul(numbers, self.ir.i64(stride.wrapping_mul(bytes)).into());
                Spread::Offsets(self.ir.add(offsets, own))
            }
        }
    }

    /// The offsets in 32 bits, where they are made of numbers of 32 bits and known to fit.
    fn narrow_offsets(&self, access: &Access, (stride, lanes): (i64, u32), bytes: i64) -> Option<Val<'c>> {
        let program = self.program;
        let own = stride.checked_mul(bytes)?;
        let mut reach = own.checked_abs()?.checked_mul(lanes.into())?;
        let mut sum: Option<Val<'c>> = None;
        for &(item, factor) in &access.varying {
            let Item::Scalar(ScalarOp::Convert, of) = &program.item(item).item else { return None };
            let narrow = program.item(*of.first()?);
            let (ElementType::S32, Item::Scalar(ScalarOp::Clamp, limits)) = (narrow.element_type, &narrow.item) else {
                return None;
            };
            let Item::Constant(_, high) = &program.item(*limits.get(2)?).item else { return None };
            let high = i32::from_le_bytes(high.get(..4)?.try_into().ok()?);
            reach = reach.checked_add(factor.checked_abs()?.checked_mul(high.into())?)?;
            let part = self.ir.mul(self.value(of[0]).re, self.ir.int(Repr::I32, factor));
            sum = Some(sum.map_or(part, |s| self.ir.add(s, part)));
        }
        let sum = sum.filter(|_| reach < i64::from(i32::MAX))?;
        if own == 0 || lanes == 1 {
            return Some(sum);
        }
        let numbers = self.ir.mul(self.ir.lane_numbers(Repr::I32, lanes), self.ir.int(Repr::I32, own));
        Some(self.ir.add(sum, numbers))
    }

    pub(crate) fn load(&mut self, id: ItemId, source: &LoadSource, guard: Option<ItemId>, t: ElementType) -> V<'c> {
        let schedule = self.schedule;
        let access = &schedule.loads[&id];
        if let LoadSource::Row(n) = source
            && let Some(row) = self.rows[*n as usize]
        {
            return row;
        }
        if let Some((number, elements)) = self.register_of(source) {
            return self.load_register(&access.offset, number, elements, t);
        }
        let mut pointer = self.addresses[access.address as usize].expect("addresses come before loads");
        let condition = guard;
        let guard = guard.map(|g| self.value(g).re);
        let spread = self.spread(access, t.bytes() as i64);
        if let (Spread::Stride(1, _), Some(condition), false) = (&spread, condition, t.is_complex()) {
            // How far outside of the array lanes can be.
            let along = |&(term, _): &(Term, i64)| match term {
                Term::Var(v) if self.lanes_now[v as usize] > 1 => self.program.extents[v as usize] * t.bytes() as i64,
                _ => 0,
            };
            let reach = access.offset.terms.iter().map(along).sum();
            pointer = self.pointer_if(condition, reach, pointer, source);
        }
        match spread {
            Spread::One => self.load_one(pointer, source, guard, t),
            Spread::Offsets(offsets) if lanes(offsets) == 1 => {
                let offset = self.ir.sext(offsets, Repr::I64);
                let pointer = self.ir.offset(pointer, offset.into_int_value());
                self.load_one(pointer, source, guard, t)
            }
            Spread::Stride(0, _) => self.load_one(pointer, source, guard, t),
            Spread::Stride(1, count) if !t.is_complex() => {
                let memory = self.ir.ty(memory_repr(t), count);
                let align = t.bytes() as u32;
                let value = match self.all_of(guard, count) {
                    None => self.ir.load(memory, pointer, align),
                    Some(mask) => self.masked_load(memory, pointer, align, mask),
                };
                self.ir.of_memory(value, t).into()
            }
            Spread::Stride(-1, count) if !t.is_complex() && guard.is_none() && self.mask.is_none() => {
                let memory = self.ir.ty(memory_repr(t), count);
                let back = self.ir.i64(-(i64::from(count) - 1) * t.bytes() as i64);
                let value = self.ir.load(memory, self.ir.offset(pointer, back), t.bytes() as u32);
                let mask: Vec<u32> = (0..count).rev().collect();
                self.ir.of_memory(self.ir.pick(value, &mask), t).into()
            }
            Spread::Stride(stride @ 2..=MAX_CLOSE, count)
                if !t.is_complex() && guard.is_none() && self.mask.is_none() && i64::from(count) >= stride =>
            {
                self.load_every(stride as u32, count, pointer, t)
            }
            Spread::Stride(1, count) if guard.is_none() && self.mask.is_none() => {
                let memory = self.ir.ty(memory_repr(t), 2 * count);
                let pairs = self.ir.load(memory, pointer, t.bytes() as u32 / 2);
                let part = |first: u32| self.ir.pick(pairs, &(0..count).map(|n| 2 * n + first).collect::<Vec<u32>>());
                V::complex(part(0), part(1))
            }
            Spread::Stride(stride, count) => {
                let numbers = self.ir.lane_numbers(Repr::I64, count);
                let offsets = self.ir.mul(numbers, self.ir.i64(stride.wrapping_mul(t.bytes() as i64)).into());
                self.gather(pointer, offsets, guard, t)
            }
            Spread::Offsets(offsets) => self.gather(pointer, offsets, guard, t),
        }
    }

    /// Every `stride`-th of elements that stand close together: they are all loaded, and the wanted ones picked. The last
    /// vector ends with the last that is wanted, since nothing may be read behind it.
    fn load_every(&self, stride: u32, count: u32, pointer: PointerValue<'c>, t: ElementType) -> V<'c> {
        let memory = self.ir.ty(memory_repr(t), count);
        let reach = (count - 1) * stride + 1;
        let mut value: Option<Val<'c>> = None;
        for part in 0..stride {
            let start = (part * count).min(reach - count);
            let at = self.ir.offset(pointer, self.ir.i64(i64::from(start) * t.bytes() as i64));
            let loaded = self.ir.load(memory, at, t.bytes() as u32);
            let is_here = |lane: u32| (part * count..(part + 1) * count).contains(&(lane * stride));
            // Lanes of what is loaded come after those that were picked before.
            let lane = |lane: u32| if is_here(lane) { count + lane * stride - start } else { lane };
            let order: Vec<u32> = (0..count).map(lane).collect();
            value = Some(self.ir.shuffle(value.unwrap_or(loaded), loaded, &order));
        }
        self.ir.of_memory(value.unwrap_or_else(|| memory.const_zero()), t).into()
    }

    /// The guard and the mask together, in as many lanes.
    fn all_of(&self, guard: Option<Val<'c>>, count: u32) -> Option<Val<'c>> {
        let both = match (guard, self.mask.filter(|&m| lanes(m) == count)) {
            (Some(guard), Some(mask)) => self.ir.and(guard, mask),
            (one, other) => one.or(other)?,
        };
        Some(self.ir.splat(both, count))
    }

    fn masked_load(
        &self,
        memory: inkwell::types::BasicTypeEnum<'c>,
        pointer: PointerValue<'c>,
        align: u32,
        mask: Val<'c>,
    ) -> Val<'c> {
        let other = memory.const_zero();
        let types = [memory, self.ir.pointer_type().into()];
        let arguments = [pointer.into(), self.ir.int(Repr::I32, align.into()), mask, other];
        self.ir.intrinsic("llvm.masked.load", &types, &arguments).expect("the intrinsic has a result")
    }

    /// The address of a vector to be read under a mask, or, where no lane is wanted, that of the array: to read none of the
    /// lanes of a vector takes a processor hundreds of cycles where there is no memory.
    fn pointer_if(
        &mut self,
        guard: ItemId,
        reach: i64,
        pointer: PointerValue<'c>,
        source: &LoadSource,
    ) -> PointerValue<'c> {
        /// So near an array there nearly always is memory: a page.
        const NEAR: i64 = 4096;
        // A part of the condition that holds for all lanes or none is asked for less.
        let mut for_all: Option<Val<'c>> = None;
        let mut pending = vec![guard];
        while let Some(part) = pending.pop() {
            let value = self.value(part).re;
            match &self.program.item(part).item {
                _ if lanes(value) == 1 => for_all = Some(for_all.map_or(value, |all| self.ir.and(all, value))),
                Item::Scalar(ScalarOp::Binary(BinaryOp::And), operands) => pending.extend(operands.iter().copied()),
                _ => {}
            }
        }
        let condition = match for_all {
            Some(condition) => condition,
            None if reach <= NEAR => return pointer,
            None => self.ir.any(self.value(guard).re),
        };
        let start = self.source(source);
        self.ir.select_pointer(condition, pointer, start)
    }

    /// A single element; where the guard is false the first of the array is read instead.
    fn load_one(
        &mut self,
        pointer: PointerValue<'c>,
        source: &LoadSource,
        guard: Option<Val<'c>>,
        t: ElementType,
    ) -> V<'c> {
        let pointer = match guard {
            Some(guard) if lanes(guard) == 1 => {
                let start = self.source(source);
                self.ir.select_pointer(guard, pointer, start)
            }
            Some(guard) => {
                return self.gather(pointer, self.ir.splat(self.ir.i64(0).into(), lanes(guard)), Some(guard), t);
            }
            None => pointer,
        };
        let memory = self.ir.ty(memory_repr(t), 1);
        let align = memory_repr(t).bits() / 8;
        let part = |n: i64| {
            let at = self.ir.offset(pointer, self.ir.i64(n * i64::from(align)));
            self.ir.of_memory(self.ir.load(memory, at, align), t)
        };
        if t.is_complex() { V::complex(part(0), part(1)) } else { part(0).into() }
    }

    fn gather(&self, pointer: PointerValue<'c>, offsets: Val<'c>, guard: Option<Val<'c>>, t: ElementType) -> V<'c> {
        let count = lanes(offsets);
        let memory = self.ir.ty(memory_repr(t), count);
        let align = memory_repr(t).bits() / 8;
        let mask = self.all_of(guard, count).unwrap_or_else(|| self.ir.splat(self.ir.int(Repr::I1, 1), count));
        let part = |n: i64| {
            let at = self.ir.offset(pointer, self.ir.i64(n * i64::from(align)));
            let pointers = self.ir.pointers(at, offsets);
            let types = [memory, pointers.get_type()];
            let arguments = [pointers, self.ir.int(Repr::I32, align.into()), mask, memory.const_zero()];
            let value =
                self.ir.intrinsic("llvm.masked.gather", &types, &arguments).expect("the intrinsic has a result");
            self.ir.of_memory(value, t)
        };
        if t.is_complex() { V::complex(part(0), part(1)) } else { part(0).into() }
    }

    /// Writes what the innermost loop writes.
    pub(crate) fn write_stores(&mut self) {
        let (program, schedule) = (self.program, self.schedule);
        // All values are there before the first is written: a result may take the place of an operand.
        for (store, access) in program.stores.iter().zip(&schedule.stores) {
            let t = store.element_type;
            if let Some((number, elements)) = self.register_of(&LoadSource::Buffer(store.buffer)) {
                self.store_register(store, number, elements);
                continue;
            }
            let mut pointer = self.addresses[access.address as usize].expect("addresses come before stores");
            let value = self.value(store.item);
            let condition = store.condition.map(|c| self.value(c).re);
            let count = match self.spread(access, t.bytes() as i64) {
                Spread::Stride(1, count) => count,
                Spread::Offsets(offsets) if lanes(offsets) > 1 => {
                    self.store_apart((pointer, offsets), value, condition, store);
                    continue;
                }
                // The rest of a loop with lanes, on a machine without masks.
                Spread::Offsets(offset) => {
                    let offset = self.ir.sext(offset, Repr::I64);
                    pointer = self.ir.offset(pointer, offset.into_int_value());
                    1
                }
                Spread::Stride(stride @ 2..=MAX_CLOSE, count) => {
                    self.store_every(stride as u32, count, pointer, value.re, condition, t);
                    continue;
                }
                _ => 1,
            };
            if count == 1 {
                self.store_one(pointer, value, condition, t, store.combine.as_ref());
                continue;
            }
            // What holds for all lanes is asked once: a store that writes none of its lanes is slow where there is no memory.
            let (once, each) = match condition {
                Some(c) if lanes(c) == 1 => (Some(c), None),
                each => (None, each),
            };
            let after = once.map(|condition| self.enter_if(condition));
            self.store_lanes(pointer, value, self.all_of(each, count), count, store);
            if let Some(after) = after {
                self.jump(after);
                self.continue_at(after);
            }
        }
    }

    /// Goes on where `condition` is true; what comes after that is the result.
    fn enter_if(&self, condition: Val<'c>) -> BasicBlock<'c> {
        let (inside, after) = (self.block("write"), self.block("written"));
        self.branch(condition, inside, after);
        self.continue_at(inside);
        after
    }

    /// Writes lanes that lie next to each other.
    fn store_lanes(
        &mut self,
        pointer: PointerValue<'c>,
        value: V<'c>,
        mask: Option<Val<'c>>,
        count: u32,
        store: &Store,
    ) {
        let (t, mut value) = (store.element_type, value);
        let memory = self.ir.ty(memory_repr(t), count);
        let align = t.bytes() as u32;
        if let Some(function) = &store.combine {
            let old = match mask {
                None => self.ir.load(memory, pointer, align),
                Some(mask) => self.masked_load(memory, pointer, align, mask),
            };
            let old = self.ir.of_memory(old, t).into();
            value = self.ir.apply(function, &[old, value])[0];
        }
        let value = value.map(|v| self.ir.splat(v, count));
        if let Some(im) = value.im {
            return self.store_complex(pointer, value.re, im, mask, t);
        }
        let value = self.ir.as_memory(value.re, t);
        match self.streams && mask.is_none() {
            true => self.ir.store_past_caches(pointer, value, align * count),
            false => self.store_vector(pointer, value, align, mask),
        }
    }

    /// Writes lanes that are to stand so close together, with others between them: vectors that have them at their places,
    /// and masks that leave the others alone.
    fn store_every(
        &self,
        stride: u32,
        count: u32,
        pointer: PointerValue<'c>,
        value: Val<'c>,
        condition: Option<Val<'c>>,
        t: ElementType,
    ) {
        let value = self.ir.as_memory(self.ir.splat(value, count), t);
        let all = self.ir.splat(self.ir.int(Repr::I1, 1), count);
        let none = self.ir.splat(self.ir.int(Repr::I1, 0), count);
        let mask = self.all_of(condition, count).unwrap_or(all);
        for part in 0..stride {
            let places = part * count..(part + 1) * count;
            let lanes: Vec<u32> = places.clone().map(|place| place / stride).collect();
            let wanted = |place: u32| if place.is_multiple_of(stride) { place / stride } else { count };
            let mask = self.ir.shuffle(mask, none, &places.map(wanted).collect::<Vec<u32>>());
            let at = self.ir.offset(pointer, self.ir.i64(i64::from(part * count) * t.bytes() as i64));
            self.store_vector(at, self.ir.pick(value, &lanes), t.bytes() as u32, Some(mask));
        }
    }

    /// Puts what was computed into the row that is kept of it.
    pub(crate) fn keep(&mut self, number: u32) {
        let (program, schedule) = (self.program, self.schedule);
        let row = &program.rows[number as usize];
        let (value, t) = (self.value(row.item), row.element_type);
        if self.is_one_vector(number) {
            self.rows[number as usize] = Some(value);
            return;
        }
        let access = schedule.rows[number as usize].as_ref().expect("rows are scheduled with their items");
        let pointer = self.addresses[access.address as usize].expect("addresses come before stores");
        let Spread::Stride(1, count) = self.spread(access, t.bytes() as i64) else {
            return self.store_one(pointer, value, None, t, None);
        };
        let value = self.ir.as_memory(self.ir.splat(value.re, count), t);
        self.store_vector(pointer, value, t.bytes() as u32, self.all_of(None, count));
    }

    /// Whether a row is one vector, as wide where it is computed as wherever it is read.
    fn is_one_vector(&self, number: u32) -> bool {
        let (program, lanes) = (self.program, &self.schedule.lanes);
        let width = |offset: &Affine| {
            let [(Term::Var(v), 1)] = offset.terms[..] else { return 1 };
            let (extent, lanes) = (program.extents[v as usize], lanes[v as usize]);
            let is_one = if self.machine.simd.has_masks { extent <= lanes.into() } else { extent == lanes.into() };
            if is_one { lanes } else { 1 }
        };
        let written = width(&program.rows[number as usize].offset);
        let is_as_wide = |data: &hloom_loops::program::ItemData| match &data.item {
            Item::Load { source: LoadSource::Row(n), offset, .. } if *n == number => width(offset) == written,
            _ => true,
        };
        written > 1 && program.items.iter().all(is_as_wide)
    }

    fn store_vector(&self, pointer: PointerValue<'c>, value: Val<'c>, align: u32, mask: Option<Val<'c>>) {
        match mask {
            None => self.ir.store(pointer, value, align),
            Some(mask) => {
                let types = [value.get_type(), self.ir.pointer_type().into()];
                let arguments = [value, pointer.into(), self.ir.int(Repr::I32, align.into()), mask];
                self.ir.intrinsic("llvm.masked.store", &types, &arguments);
            }
        }
    }

    fn store_complex(
        &self,
        pointer: PointerValue<'c>,
        re: Val<'c>,
        im: Val<'c>,
        mask: Option<Val<'c>>,
        t: ElementType,
    ) {
        let count = lanes(re);
        let order: Vec<u32> = (0..count).flat_map(|n| [n, count + n]).collect();
        let pairs = self.ir.shuffle(re, im, &order);
        let twice: Vec<u32> = (0..count).flat_map(|n| [n, n]).collect();
        let mask = mask.map(|m| self.ir.pick(m, &twice));
        self.store_vector(pointer, pairs, t.bytes() as u32 / 2, mask);
    }

    /// Writes lanes that lie anywhere, one after another in their order: two of them may be at the same place.
    fn store_apart(
        &mut self,
        (pointer, offsets): (PointerValue<'c>, Val<'c>),
        value: V<'c>,
        condition: Option<Val<'c>>,
        store: &Store,
    ) {
        let (count, t) = (lanes(offsets), store.element_type);
        let offsets = self.ir.sext(offsets, Repr::I64);
        let value = value.map(|v| self.ir.splat(v, count));
        let chosen = chosen_by(store);
        let write = |e: &mut Self, mask: Option<Val<'c>>, chosen: Option<FloatPredicate>| {
            for lane in 0..count {
                let of = |v: Val<'c>| e.ir.extract(v.into_vector_value(), lane);
                let place = e.ir.offset(pointer, of(offsets).into_int_value());
                let (value, condition) = (value.map(of), mask.map(of));
                let Some(predicate) = chosen else {
                    e.store_one(place, value, condition, t, store.combine.as_ref());
                    continue;
                };
                let align = memory_repr(t).bits() / 8;
                let old = e.ir.load(e.ir.ty(memory_repr(t), 1), place, align);
                let new = e.ir.select(e.ir.fcmp(predicate, value.re, old), value.re, old);
                e.ir.store(place, new, align);
            }
        };
        let mask = self.all_of(condition, count);
        // A float that is neither NaN nor zero is chosen by one comparison, whatever it is compared with.
        let is_plain = chosen.map(|_| {
            let zero = self.ir.splat(self.ir.float(Repr::of(t), 0.0), count);
            self.ir.fcmp(FloatPredicate::ONE, value.re, zero)
        });
        let usual = match (mask, is_plain) {
            (Some(mask), Some(plain)) => Some(self.ir.and(mask, plain)),
            (one, other) => one.or(other),
        };
        let Some(usual) = usual.filter(|_| self.mask.is_none()) else { return write(self, mask, None) };
        // Nearly always all are to be written, and then each need not be asked for.
        let (all, some, after) = (self.block("all"), self.block("some"), self.block("written"));
        let is_all = self.ir.intrinsic("llvm.vector.reduce.and", &[usual.get_type()], &[usual]);
        self.branch(is_all.expect("the intrinsic has a result"), all, some);
        for (block, mask, chosen) in [(all, None, chosen), (some, mask, None)] {
            self.continue_at(block);
            write(self, mask, chosen);
            self.jump(after);
        }
        self.continue_at(after);
    }

    fn store_one(
        &mut self,
        pointer: PointerValue<'c>,
        mut value: V<'c>,
        condition: Option<Val<'c>>,
        t: ElementType,
        combine: Option<&hloom_loops::graph::Function>,
    ) {
        let after = condition.map(|condition| self.enter_if(condition));
        let memory = self.ir.ty(memory_repr(t), 1);
        let align = memory_repr(t).bits() / 8;
        let place = |e: &Self, n: usize| e.ir.offset(pointer, e.ir.i64(n as i64 * i64::from(align)));
        if let Some(function) = combine {
            let part = |n: usize| self.ir.of_memory(self.ir.load(memory, place(self, n), align), t);
            let old = if t.is_complex() { V::complex(part(0), part(1)) } else { part(0).into() };
            value = self.ir.apply(function, &[old, value])[0];
        }
        for (n, part) in value.parts().enumerate() {
            self.ir.store(place(self, n), self.ir.as_memory(part, t), align);
        }
        if let Some(after) = after {
            self.jump(after);
            self.continue_at(after);
        }
    }
}

/// The comparison by which a store takes the lesser or the greater of two floats, if that is what it does.
fn chosen_by(store: &Store) -> Option<FloatPredicate> {
    let is_float = matches!(store.element_type, ElementType::F32 | ElementType::F64);
    match store.combine.as_ref().filter(|_| is_float)?.single_operation()? {
        BinaryOp::Minimum => Some(FloatPredicate::OLT),
        BinaryOp::Maximum => Some(FloatPredicate::OGT),
        _ => None,
    }
}

//! Kernels: a function over a range of work units for each nest of loops, one nest after another.
//!
//! The units of a kernel are those of its nests in order. A unit is a point of the outermost loops, as many of them as
//! give enough units, and where those are too few a chunk of the next loop.

use super::ir::{Ir, Repr, Val, lanes};
use super::register::Straight;
use super::value::V;
use crate::machine::Machine;
use hloom_loops::affine::{Affine, ItemId, Term, VarId};
use hloom_loops::graph::ScalarOp;
use hloom_loops::program::{Item, LoadSource, LoopProgram};
use hloom_loops::schedule::{AddressBase, Schedule, ScheduleStep};
use hloom_loops::units::Units;
use inkwell::IntPredicate::{SGE, SLT};
use inkwell::basic_block::BasicBlock;
use inkwell::types::BasicTypeEnum;
use inkwell::values::{FunctionValue, IntValue, PhiValue, PointerValue};
use rustc_hash::FxHashMap;

/// Writes the inside of a loop: from the number of the iteration and what is carried to what is carried on.
type LoopBody<'b, E, I, V> = &'b mut dyn FnMut(&mut E, I, &[V]) -> Vec<V>;

/// Where a buffer is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot<'c> {
    Memory(PointerValue<'c>),
    /// An array of so many elements in the register of that number.
    Register {
        number: u32,
        elements: u32,
    },
}

/// A function that nests are written into.
pub(crate) struct Place<'p, 'c> {
    pub(crate) ir: &'p Ir<'c>,
    pub(crate) machine: &'p Machine,
    pub(crate) function: FunctionValue<'c>,
    pub(crate) buffers: &'p [Slot<'c>],
    pub(crate) constants: &'p mut Constants<'c>,
    /// What registers hold.
    pub(crate) registers: &'p mut [Option<V<'c>>],
}

impl<'c> Place<'_, 'c> {
    /// Writes the units `begin..end` of a program.
    pub(crate) fn nest(&mut self, program: &LoopProgram, begin: IntValue<'c>, end: IntValue<'c>) {
        let schedule = Schedule::new(program, &self.machine.simd);
        let units = Units::of(program, &schedule, &self.machine.core);
        self.emitter(program, &schedule, 1).nest(units, begin, end);
    }

    /// Writes all of a program, with its short loops written out.
    pub(crate) fn whole(&mut self, program: &LoopProgram) {
        let schedule = Schedule::new(program, &self.machine.simd);
        let unroll = Straight::of(program, &schedule, self.machine).unroll;
        self.emitter(program, &schedule, unroll).whole_nest();
    }

    fn emitter<'e>(&'e mut self, program: &'e LoopProgram, schedule: &'e Schedule, unroll: i64) -> Emitter<'e, 'c> {
        Emitter {
            ir: self.ir,
            machine: self.machine,
            program,
            schedule,
            function: self.function,
            buffers: self.buffers,
            registers: self.registers,
            unroll,
            constants: self.constants,
            values: vec![None; program.items.len()],
            reductions: FxHashMap::default(),
            addresses: vec![None; schedule.addresses.len()],
            tiles: vec![None; program.tiles.len()],
            rows: vec![None; program.rows.len()],
            vars: vec![None; program.extents.len()],
            lanes_now: vec![1; program.extents.len()],
            mask: None,
            scanned: Vec::new(),
            streams: false,
        }
    }
}

/// Writes one nest into a function.
pub(crate) struct Emitter<'e, 'c> {
    pub(crate) ir: &'e Ir<'c>,
    pub(crate) machine: &'e Machine,
    pub(crate) program: &'e LoopProgram,
    pub(crate) schedule: &'e Schedule,
    pub(crate) function: FunctionValue<'c>,
    /// Where the buffers are.
    pub(crate) buffers: &'e [Slot<'c>],
    /// What registers hold, where some buffers are in registers.
    pub(crate) registers: &'e mut [Option<V<'c>>],
    /// Loops of at most so many iterations are written out, iteration after iteration.
    pub(crate) unroll: i64,
    pub(crate) constants: &'e mut Constants<'c>,
    pub(crate) values: Vec<Option<V<'c>>>,
    pub(crate) reductions: FxHashMap<ItemId, Vec<V<'c>>>,
    pub(crate) addresses: Vec<Option<PointerValue<'c>>>,
    /// The stack arrays of the tiles.
    pub(crate) tiles: Vec<Option<PointerValue<'c>>>,
    /// RowTiles that are a single vector, and in a register.
    pub(crate) rows: Vec<Option<V<'c>>>,
    /// The values of the loop variables; of one with lanes, that of its first lane.
    pub(crate) vars: Vec<Option<IntValue<'c>>>,
    /// The lanes that each loop has now: none in the rest of a vector loop without masks.
    pub(crate) lanes_now: Vec<u32>,
    /// The lanes that are inside the loop, in the rest of one.
    pub(crate) mask: Option<Val<'c>>,
    /// What the scan has come to before this iteration.
    pub(crate) scanned: Vec<V<'c>>,
    /// Whether what is written goes past the caches.
    pub(crate) streams: bool,
}

/// The constant arrays of a module, by their data.
#[derive(Default)]
pub(crate) struct Constants<'c> {
    globals: FxHashMap<hloom_loops::graph::Data, PointerValue<'c>>,
    /// Data that is not copied into the module, by the names of their symbols: whoever loads the code provides it.
    pub(crate) external: Vec<(String, hloom_loops::graph::Data)>,
}

/// Up to this size constants become part of the code.
const MAX_EMBEDDED: usize = 4096;

impl<'c> Constants<'c> {
    fn pointer(&mut self, ir: &Ir<'c>, data: &hloom_loops::graph::Data) -> PointerValue<'c> {
        if let Some(&p) = self.globals.get(data) {
            return p;
        }
        let bytes = data.bytes();
        let pointer = if bytes.len() <= MAX_EMBEDDED {
            let array = ir.context.const_string(bytes, false);
            let global = ir.module.add_global(array.get_type(), None, "");
            global.set_initializer(&array);
            global.set_constant(true);
            global.set_linkage(inkwell::module::Linkage::Private);
            global.set_alignment(64);
            global.as_pointer_value()
        } else {
            let name = format!("constant{}", self.external.len());
            let global = ir.module.add_global(ir.context.i8_type(), None, &name);
            global.set_constant(true);
            self.external.push((name, data.clone()));
            global.as_pointer_value()
        };
        self.globals.insert(data.clone(), pointer);
        pointer
    }
}

impl<'c> Emitter<'_, 'c> {
    pub(crate) fn block(&self, name: &str) -> BasicBlock<'c> {
        self.ir.context.append_basic_block(self.function, name)
    }
    pub(crate) fn here(&self) -> BasicBlock<'c> {
        self.ir.builder.get_insert_block().expect("the builder is positioned")
    }
    pub(crate) fn jump(&self, to: BasicBlock<'c>) {
        self.ir.builder.build_unconditional_branch(to).expect("the builder is positioned");
    }
    pub(crate) fn branch(&self, condition: Val<'c>, yes: BasicBlock<'c>, no: BasicBlock<'c>) {
        let condition = condition.into_int_value();
        self.ir.builder.build_conditional_branch(condition, yes, no).expect("the builder is positioned");
    }
    pub(crate) fn continue_at(&self, block: BasicBlock<'c>) {
        self.ir.builder.position_at_end(block);
    }
    fn phi(&self, t: BasicTypeEnum<'c>) -> PhiValue<'c> {
        self.ir.builder.build_phi(t, "").expect("the builder is positioned")
    }

    /// `for i in (low..high).step_by(step)`, handing `carried` from one iteration to the next; what the last one
    /// leaves.
    pub(crate) fn for_loop(
        &mut self,
        (low, high, step): (IntValue<'c>, IntValue<'c>, i64),
        carried: &[V<'c>],
        body: LoopBody<'_, Self, IntValue<'c>, V<'c>>,
    ) -> Vec<V<'c>> {
        let known = low.get_sign_extended_constant().zip(high.get_sign_extended_constant());
        let runs = known.map(|(l, h)| l < h);
        if runs == Some(false) {
            return carried.to_vec();
        }
        if let Some((l, h)) = known.filter(|(l, h)| h - l <= step.saturating_mul(self.unroll)) {
            let mut state = carried.to_vec();
            for i in (l..h).step_by(step as usize) {
                state = body(self, self.ir.i64(i), &state);
            }
            return state;
        }
        let (before, start, after) = (self.here(), self.block("loop"), self.block("after"));
        match runs {
            Some(_) => self.jump(start),
            None => self.branch(self.ir.icmp(SLT, low.into(), high.into()), start, after),
        }
        self.continue_at(start);
        let i = self.phi(self.ir.ty(Repr::I64, 1));
        let phis: Vec<(PhiValue<'c>, Option<PhiValue<'c>>)> =
            carried.iter().map(|v| (self.phi(v.re.get_type()), v.im.map(|im| self.phi(im.get_type())))).collect();
        let inside: Vec<V<'c>> =
            phis.iter().map(|(re, im)| V { re: re.as_basic_value(), im: im.map(|im| im.as_basic_value()) }).collect();
        let i_now = i.as_basic_value().into_int_value();
        let results = body(self, i_now, &inside);
        let next = self.ir.add(i_now.into(), self.ir.i64(step).into());
        let more = self.ir.icmp(SLT, next, high.into());
        let end = self.here();
        self.branch(more, start, after);
        i.add_incoming(&[(&low, before), (&next, end)]);
        for (((re, im), first), last) in phis.iter().zip(carried).zip(&results) {
            re.add_incoming(&[(&first.re, before), (&last.re, end)]);
            if let (Some(im), Some(first), Some(last)) = (im, first.im, last.im) {
                im.add_incoming(&[(&first, before), (&last, end)]);
            }
        }
        self.continue_at(after);
        if runs.is_some() {
            return results;
        }
        let merged = |a: Val<'c>, b: Val<'c>| {
            let phi = self.phi(a.get_type());
            phi.add_incoming(&[(&a, before), (&b, end)]);
            phi.as_basic_value()
        };
        carried.iter().zip(&results).map(|(a, b)| a.map2(*b, merged)).collect()
    }

    /// Writes the loops over units `begin..end` of this nest.
    pub(crate) fn nest(&mut self, units: Units, begin: IntValue<'c>, end: IntValue<'c>) {
        if units.count == 0 {
            return;
        }
        let (work, after) = (self.block("nest"), self.block("after_nest"));
        self.branch(self.ir.icmp(SLT, begin.into(), end.into()), work, after);
        self.continue_at(work);
        if let Some(buffer) = self.program.copied_whole().filter(|_| self.machine.simd.has_masks) {
            // Vectors that go past the caches must lie on whole lines.
            let start = self.source(&LoadSource::Buffer(buffer));
            let (streamed, plain) = (self.block("streamed"), self.block("plain"));
            self.branch(self.ir.is_aligned(start, 64), streamed, plain);
            self.continue_at(streamed);
            self.streams = true;
            self.units(units, begin, end);
            self.ir.intrinsic("llvm.x86.sse.sfence", &[], &[]);
            self.streams = false;
            self.jump(after);
            self.continue_at(plain);
        }
        self.units(units, begin, end);
        self.jump(after);
        self.continue_at(after);
    }

    fn units(&mut self, units: Units, begin: IntValue<'c>, end: IntValue<'c>) {
        self.copy_first();
        self.scope(0);
        if units.count == 1 {
            self.level(0, None);
        } else {
            let nest = self.program.nest.clone();
            self.for_loop((begin, end, 1), &[], &mut |e, unit, _| {
                let mut rest: Val<'c> = unit.into();
                let mut range = None;
                if let Some((chunk, chunks)) = units.chunk {
                    let extent = e.program.extents[nest[units.loops] as usize];
                    let number = if units.loops == 0 { rest } else { e.ir.urem(rest, e.ir.i64(chunks).into()) };
                    rest = e.ir.udiv(rest, e.ir.i64(chunks).into());
                    let low = e.ir.mul(number, e.ir.i64(chunk).into());
                    let high = e.ir.add(low, e.ir.i64(chunk).into());
                    let high = e.ir.call2("llvm.smin", high, e.ir.i64(extent).into());
                    range = Some((low.into_int_value(), high.into_int_value()));
                }
                // The last of the outer loops varies fastest.
                for level in (0..units.loops).rev() {
                    let var = nest[level];
                    let extent: Val<'c> = e.ir.i64(e.program.extents[var as usize]).into();
                    let value = if level == 0 { rest } else { e.ir.urem(rest, extent) };
                    rest = if level == 0 { rest } else { e.ir.udiv(rest, extent) };
                    e.vars[var as usize] = Some(value.into_int_value());
                }
                for &var in &nest[..units.loops] {
                    e.scope(e.schedule.scope_of_var[var as usize]);
                }
                e.level(units.loops, range);
                Vec::new()
            });
        }
    }

    /// Writes the loops over all units of this nest.
    pub(crate) fn whole_nest(&mut self) {
        let is_empty = |&v: &VarId| self.program.extents[v as usize] == 0;
        if self.program.nest.iter().any(is_empty) {
            return;
        }
        self.copy_first();
        self.scope(0);
        self.level(0, None);
    }

    /// Copies the array that is changed, unless the result is written in its place.
    fn copy_first(&mut self) {
        let Some((from, to, bytes)) = self.program.copy_first else { return };
        let (from, to) = (self.source(&LoadSource::Buffer(from)), self.source(&LoadSource::Buffer(to)));
        let (copy, after) = (self.block("copy"), self.block("copied"));
        let same = self.ir.same_pointer(from, to);
        self.branch(same, after, copy);
        self.continue_at(copy);
        let size = self.ir.i64(bytes);
        self.ir.builder.build_memcpy(to, 1, from, 1, size).expect("the builder is positioned");
        self.jump(after);
        self.continue_at(after);
    }

    /// Writes the loops of the nest from `level` inwards; `range` bounds the first of them.
    fn level(&mut self, level: usize, range: Option<(IntValue<'c>, IntValue<'c>)>) {
        let Some(&var) = self.program.nest.get(level) else {
            return self.write_stores();
        };
        let extent = self.program.extents[var as usize];
        if level + 1 == self.program.nest.len()
            && let Some((id, scan)) = self.program.scan()
        {
            return self.scan_loop(var, id, scan);
        }
        let (low, high) = range.unwrap_or((self.ir.i64(0), self.ir.i64(extent)));
        self.lane_loop(var, (low, high), &[], &mut |e, _| {
            e.level(level + 1, None);
            Vec::new()
        });
    }

    /// The loop of `var` over `low..high` with the lanes it is given; the rest, which does not fill the lanes, follows:
    /// with a mask where the machine has masks, else one by one. `carried` has lanes.
    pub(crate) fn lane_loop(
        &mut self,
        var: VarId,
        (low, high): (IntValue<'c>, IntValue<'c>),
        carried: &[V<'c>],
        body: &mut dyn FnMut(&mut Self, &[V<'c>]) -> Vec<V<'c>>,
    ) -> Vec<V<'c>> {
        let lanes = self.schedule.lanes[var as usize];
        let scope = self.schedule.scope_of_var[var as usize];
        let mut run = |e: &mut Self, i: IntValue<'c>, carried: &[V<'c>]| {
            e.vars[var as usize] = Some(i);
            e.scope(scope);
            body(e, carried)
        };
        if lanes == 1 {
            return self.for_loop((low, high, 1), carried, &mut run);
        }
        let extent = self.program.extents[var as usize];
        // Chunks are multiples of the lanes, so that only the last can leave a rest.
        let has_rest = extent % i64::from(lanes) != 0;
        let step = i64::from(lanes);
        let (full, size) = match low.get_sign_extended_constant().zip(high.get_sign_extended_constant()) {
            Some((l, h)) => (self.ir.i64(l + (h - l) / step * step), Some(h - l)),
            None if !has_rest => (high, None),
            None => {
                let size = self.ir.sub(high.into(), low.into());
                let whole = self.ir.and(size, self.ir.i64(-step).into());
                (self.ir.add(low.into(), whole).into_int_value(), None)
            }
        };
        self.lanes_now[var as usize] = lanes;
        let mut state = carried.to_vec();
        if size.is_none_or(|s| s >= step) {
            state = self.for_loop((low, full, step), &state, &mut run);
        }
        if !has_rest || size.is_some_and(|s| s % step == 0) {
            return state;
        }
        // A single iteration has no use for lanes. (And a constant mask of one lane makes LLVM 19 fail.)
        if self.machine.simd.has_masks && size.is_none_or(|s| s % step != 1) {
            let (rest, after) = (self.block("rest"), self.block("after_rest"));
            let before = self.here();
            match size {
                Some(_) => self.jump(rest),
                None => self.branch(self.ir.icmp(SGE, full.into(), high.into()), after, rest),
            }
            self.continue_at(rest);
            let left = self.ir.trunc(self.ir.sub(high.into(), full.into()), Repr::I32);
            let outer = self.mask.replace(self.ir.icmp(SLT, self.ir.lane_numbers(Repr::I32, lanes), left));
            let results = run(self, full, &state);
            let kept: Vec<V<'c>> = state
                .iter()
                .zip(&results)
                .map(|(&old, &new)| new.map2(old, |n, o| self.ir.select(self.mask.unwrap_or(n), n, o)))
                .collect();
            self.mask = outer;
            let end = self.here();
            self.jump(after);
            self.continue_at(after);
            if size.is_some() {
                return kept;
            }
            let merged = |a: Val<'c>, b: Val<'c>| {
                let phi = self.phi(a.get_type());
                phi.add_incoming(&[(&a, before), (&b, end)]);
                phi.as_basic_value()
            };
            return state.iter().zip(&kept).map(|(a, b)| a.map2(*b, merged)).collect();
        }
        self.lanes_now[var as usize] = 1;
        if state.is_empty() {
            return self.for_loop((full, high, 1), &[], &mut run);
        }
        // The rest goes into the first lane.
        let first: Vec<V<'c>> = state.iter().map(|v| v.map(|p| self.ir.extract(p.into_vector_value(), 0))).collect();
        let first = self.for_loop((full, high, 1), &first, &mut run);
        state.iter().zip(&first).map(|(v, f)| v.map2(*f, |v, f| self.ir.insert(v, f, 0))).collect()
    }

    /// Computes what belongs to a scope.
    pub(crate) fn scope(&mut self, scope: u32) {
        let schedule = self.schedule;
        for step in &schedule.steps[scope as usize] {
            match *step {
                ScheduleStep::Address(id) => {
                    let address = &schedule.addresses[id as usize];
                    let base = match &address.base {
                        // What is in a register has no address.
                        AddressBase::LoadSource(source) if self.register_of(source).is_some() => None,
                        AddressBase::LoadSource(source) => Some(self.source(source)),
                        AddressBase::Address(id) => self.addresses[*id as usize],
                    };
                    self.addresses[id as usize] =
                        base.map(|base| self.ir.offset(base, self.affine(&address.part).into_int_value()));
                }
                ScheduleStep::Tile(n) => {
                    let address = schedule.tiles[n as usize].address;
                    let from = self.addresses[address as usize].expect("addresses come before tiles");
                    let program = self.program;
                    self.fill_tile(n as usize, &program.tiles[n as usize], from);
                }
                ScheduleStep::Item(id) => {
                    let value = self.item(id);
                    self.values[id as usize] = value;
                }
                ScheduleStep::Row(n) => self.keep(n),
            }
        }
    }

    pub(crate) fn source(&mut self, source: &LoadSource) -> PointerValue<'c> {
        match source {
            LoadSource::Buffer(n) => match self.buffers[*n as usize] {
                Slot::Memory(pointer) => pointer,
                Slot::Register { .. } => unreachable!("registers are read and written by value"),
            },
            LoadSource::Constant(data) => self.constants.pointer(self.ir, data),
            LoadSource::Tile(n) => {
                let program = self.program;
                self.tile_slot(*n as usize, &program.tiles[*n as usize])
            }
            LoadSource::Row(n) => {
                let start = self.program.rows[*n as usize].start;
                self.ir.offset(self.ir.rows(), self.ir.i64(start.into()))
            }
        }
    }

    pub(crate) fn value(&self, id: ItemId) -> V<'c> {
        self.values[id as usize].expect("an item is computed before what is made of it")
    }

    /// An index, without what differs between the lanes of its loop variables.
    fn affine(&self, affine: &Affine) -> Val<'c> {
        let mut sum: Option<Val<'c>> = (affine.constant != 0).then(|| self.ir.i64(affine.constant).into());
        for &(term, factor) in &affine.terms {
            let value = match term {
                Term::Var(v) => self.vars[v as usize].expect("a loop variable is used inside its loop").into(),
                Term::Item(i) => self.value(i).re,
            };
            let scaled = if factor == 1 { value } else { self.ir.mul(value, self.ir.i64(factor).into()) };
            sum = Some(sum.map_or(scaled, |s| self.ir.add(s, scaled)));
        }
        sum.unwrap_or_else(|| self.ir.i64(0).into())
    }

    /// An index, with lanes if it changes along them.
    pub(crate) fn index(&self, affine: &Affine) -> Val<'c> {
        self.index_of(affine, Repr::I64)
    }

    /// The lower bits of an index.
    fn index_of(&self, affine: &Affine, repr: Repr) -> Val<'c> {
        let mut sum = self.ir.trunc(self.affine(affine), repr);
        for &(term, factor) in &affine.terms {
            if let Term::Var(v) = term
                && self.lanes_now[v as usize] > 1
            {
                let numbers = self.ir.lane_numbers(repr, self.lanes_now[v as usize]);
                sum = self.ir.add(sum, self.ir.mul(numbers, self.ir.int(repr, factor)));
            }
        }
        sum
    }

    /// An index divided. Vectors of 32 bits are divided several times as fast as those of 64.
    fn divided(&self, affine: &Affine, divisor: i64, divide: fn(&Ir<'c>, Val<'c>, Val<'c>) -> Val<'c>) -> Val<'c> {
        let fits = |n: i64| n < 1 << 31;
        let index = self.index(affine);
        if lanes(index) > 1 && fits(divisor) && self.program.most(affine).is_some_and(fits) {
            let narrow = self.index_of(affine, Repr::I32);
            return self.ir.sext(divide(self.ir, narrow, self.ir.int(Repr::I32, divisor)), Repr::I64);
        }
        divide(self.ir, index, self.ir.i64(divisor).into())
    }

    fn item(&mut self, id: ItemId) -> Option<V<'c>> {
        let program = self.program;
        let data = program.item(id);
        Some(match &data.item {
            Item::Constant(t, bytes) => self.ir.constant(*t, bytes),
            Item::Load { source, guard, .. } => self.load(id, source, *guard, program.loaded_type(data)),
            Item::Index(affine) => self.index(affine).into(),
            Item::Quotient(affine, divisor) => self.divided(affine, *divisor, |ir, x, by| ir.udiv(x, by)).into(),
            Item::Remainder(affine, divisor) => self.divided(affine, *divisor, |ir, x, by| ir.urem(x, by)).into(),
            Item::InRange { index, low, high } => {
                // One comparison: what is below the range is very large without a sign.
                let from_low = self.index(&index.plus_constant(low.wrapping_neg()));
                let size: Val<'c> = self.ir.i64(high.wrapping_sub(*low)).into();
                self.ir.icmp(inkwell::IntPredicate::ULT, from_low, size).into()
            }
            Item::Scalar(ScalarOp::Convert, operands)
                if data.element_type.is_integer()
                    && (8..=32).contains(&data.element_type.bits())
                    && let Item::Index(affine) = &program.item(operands[0]).item =>
            {
                // What is left of an index in fewer bits is computed in fewer bits.
                self.index_of(affine, Repr::of(data.element_type)).into()
            }
            Item::Scalar(op, operands) => {
                let values: Vec<V<'c>> = operands.iter().map(|&o| self.value(o)).collect();
                let types: Vec<_> = operands.iter().map(|&o| program.item(o).element_type).collect();
                self.ir.scalar_op(*op, &values, &types, data.element_type)
            }
            Item::Apply(function, operands) => {
                let values: Vec<V<'c>> = operands.iter().map(|&o| self.value(o)).collect();
                self.ir.apply(function, &values).first().copied()?
            }
            Item::Reduce(reduce) => {
                let results = self.reduce(reduce);
                self.reductions.insert(id, results);
                return None;
            }
            Item::Scan(scan) => {
                let results = self.reduce_step(scan, &self.scanned.clone());
                self.reductions.insert(id, results);
                return None;
            }
            Item::ReduceResult(reduce, result) => *self.reductions.get(reduce)?.get(*result as usize)?,
        })
    }
}

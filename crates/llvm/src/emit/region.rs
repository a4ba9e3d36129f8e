//! The function of a region: kernels one after another, loops and branches around them.
//!
//! What is kept in registers is carried through loops and branches as LLVM's values, by phis made here; no pass of LLVM
//! has to find it.

use super::ir::{Ir, Repr, Val};
use super::kernel::{Constants, Place, Slot};
use super::register::{Straight, register_lanes};
use super::value::V;
use crate::machine::Machine;
use hloom_ir::ElementType;
use hloom_loops::abi::{RegionControl, STOP};
use hloom_loops::kernel::KernelLoops;
use hloom_loops::program::LoopProgram;
use hloom_loops::region::{Region, RegionStep, RegionWhile};
use hloom_loops::schedule::Schedule;
use inkwell::IntPredicate::{EQ, NE, SGE, SLT};
use inkwell::basic_block::BasicBlock;
use inkwell::values::{BasicValueEnum, FunctionValue, IntValue, PhiValue, PointerValue};
use rustc_hash::FxHashMap;
use std::mem::offset_of;

/// Writes the function of a region. `work` gives the kernel of a request.
pub(crate) fn emit_region<'c, 'w>(
    ir: &Ir<'c>,
    machine: &Machine,
    region: &Region,
    work: &dyn Fn(usize) -> Option<&'w KernelLoops>,
    name: &str,
    constants: &mut Constants<'c>,
) {
    let context = ir.context;
    let (pointer, int) = (ir.pointer_type(), context.i32_type());
    let function = ir.module.add_function(name, int.fn_type(&[pointer.into(), pointer.into()], false), None);
    let nounwind = inkwell::attributes::Attribute::get_named_enum_kind_id("nounwind");
    let attribute = context.create_enum_attribute(nounwind, 0);
    function.add_attribute(inkwell::attributes::AttributeLoc::Function, attribute);
    ir.builder.position_at_end(context.append_basic_block(function, "entry"));
    let parameter = |n| function.get_nth_param(n).expect("there are two").into_pointer_value();
    let stop = context.append_basic_block(function, "stop");
    let inputs = |request: usize| work(request).map_or(0, |w| w.graph.inputs as usize);
    let slots = in_registers(machine, region, work);
    let mut emission = Emission {
        ir,
        machine,
        region,
        work,
        inputs: &inputs,
        function,
        table: parameter(0),
        control: parameter(1),
        stop,
        slots: Vec::new(),
        registers: vec![None; region.arrays.len() + 1],
        left: region.arrays.len(),
        constants,
    };
    emission.enter(&slots);
    emission.steps(&region.steps);
    emission.leave();
    ir.builder.position_at_end(stop);
    ir.builder.build_return(Some(&int.const_int(1, false))).expect("the builder is positioned");
}

/// For each array whether it is kept in a register.
fn in_registers<'w>(machine: &Machine, region: &Region, work: &dyn Fn(usize) -> Option<&'w KernelLoops>) -> Vec<bool> {
    let fits =
        |a: &hloom_loops::region::RegionArray| a.is_private && register_lanes(a.element_type, a.elements).is_some();
    let mut kept: Vec<bool> = region.arrays.iter().map(fits).collect();
    // Kernels, each with what it wants in memory.
    let mut known: FxHashMap<*const KernelLoops, Vec<u32>> = FxHashMap::default();
    let mut pending: Vec<&RegionStep> = region.steps.iter().collect();
    while let Some(step) = pending.pop() {
        match step {
            RegionStep::Inline { request, arrays } => {
                let Some(work) = work(*request) else { continue };
                let in_memory = known.entry(std::ptr::from_ref(work)).or_insert_with(|| {
                    let of = |p: &LoopProgram| Straight::of(p, &Schedule::new(p, &machine.simd), machine).in_memory;
                    let all = work.programs.iter().flat_map(|p| p.before.as_deref().into_iter().chain([p]));
                    all.flat_map(of).collect()
                });
                in_memory.iter().for_each(|&b| kept[arrays[b as usize] as usize] = false);
            }
            RegionStep::Copy { from, to } => {
                let kind = |n: u32| (region.arrays[n as usize].element_type, region.arrays[n as usize].elements);
                if kind(*from) != kind(*to) {
                    kept[*from as usize] = false;
                    kept[*to as usize] = false;
                }
            }
            RegionStep::While(repeat) => pending.extend(repeat.condition.iter().chain(&repeat.body)),
            RegionStep::Conditional { branches, .. } => pending.extend(branches.iter().flatten()),
            RegionStep::Call { .. } | RegionStep::Outside(_) => {}
        }
    }
    kept
}

struct Emission<'e, 'w, 'c> {
    ir: &'e Ir<'c>,
    machine: &'e Machine,
    region: &'e Region,
    work: &'e dyn Fn(usize) -> Option<&'w KernelLoops>,
    inputs: &'e dyn Fn(usize) -> usize,
    function: FunctionValue<'c>,
    table: PointerValue<'c>,
    control: PointerValue<'c>,
    stop: BasicBlock<'c>,
    slots: Vec<Slot<'c>>,
    /// What the registers hold now; the last is the number of steps left.
    registers: Vec<Option<V<'c>>>,
    left: usize,
    constants: &'e mut Constants<'c>,
}

impl<'c> Emission<'_, '_, 'c> {
    fn block(&self, name: &str) -> BasicBlock<'c> {
        self.ir.context.append_basic_block(self.function, name)
    }
    fn here(&self) -> BasicBlock<'c> {
        self.ir.builder.get_insert_block().expect("the builder is positioned")
    }
    fn jump(&self, to: BasicBlock<'c>) {
        self.ir.builder.build_unconditional_branch(to).expect("the builder is positioned");
    }
    fn branch(&self, condition: Val<'c>, yes: BasicBlock<'c>, no: BasicBlock<'c>) {
        let condition = condition.into_int_value();
        self.ir.builder.build_conditional_branch(condition, yes, no).expect("the builder is positioned");
    }
    fn phi(&self, like: Val<'c>) -> PhiValue<'c> {
        self.ir.builder.build_phi(like.get_type(), "").expect("the builder is positioned")
    }
    fn number(&self, n: u32) -> IntValue<'c> {
        self.ir.context.i32_type().const_int(n.into(), false)
    }

    /// A field of the control.
    fn field(&self, offset: usize) -> PointerValue<'c> {
        self.ir.offset(self.control, self.ir.i64(offset as i64))
    }
    fn pointer_at(&self, at: PointerValue<'c>) -> PointerValue<'c> {
        self.ir.load(self.ir.pointer_type().into(), at, 8).into_pointer_value()
    }
    /// The address in an entry of the table.
    fn entry(&self, entry: u32) -> PointerValue<'c> {
        self.pointer_at(self.ir.offset(self.table, self.ir.i64(i64::from(entry) * 8)))
    }

    /// Finds the arrays in memory, and brings into registers what is there already.
    fn enter(&mut self, in_registers: &[bool]) {
        for (number, (array, &in_register)) in self.region.arrays.iter().zip(in_registers).enumerate() {
            let elements = array.elements as u32;
            if !in_register {
                self.slots.push(Slot::Memory(self.entry(array.entry)));
                continue;
            }
            self.slots.push(Slot::Register { number: number as u32, elements });
            if array.is_live_in {
                let value = self.ir.register_of_memory(self.entry(array.entry), array.element_type, elements);
                self.registers[number] = Some(value.into());
            }
        }
        let left = self.ir.load(self.ir.ty(Repr::I64, 1), self.field(offset_of!(RegionControl, left)), 8);
        self.registers[self.left] = Some(left.into());
    }

    /// Brings to memory what is needed there afterwards.
    fn leave(&mut self) {
        let mut written = vec![false; self.region.arrays.len()];
        self.mark_written(&self.region.steps, &mut written);
        for (n, array) in self.region.arrays.iter().enumerate() {
            if array.is_live_out && written[n] {
                self.flush(n as u32);
            }
        }
        if let Some(left) = self.registers[self.left] {
            self.ir.store(self.field(offset_of!(RegionControl, left)), left.re, 8);
        }
        let done = self.number(0);
        self.ir.builder.build_return(Some(&done)).expect("the builder is positioned");
    }

    /// Writes an array that is in a register to its memory.
    fn flush(&self, array: u32) {
        let facts = &self.region.arrays[array as usize];
        if let (Slot::Register { elements, .. }, Some(value)) =
            (self.slots[array as usize], self.registers[array as usize])
        {
            self.ir.register_to_memory(value.re, self.entry(facts.entry), facts.element_type, elements);
        }
    }

    fn mark_written(&self, steps: &[RegionStep], written: &mut [bool]) {
        for step in steps {
            step.for_each_array(self.inputs, &mut |array, is_written| written[array as usize] |= is_written);
        }
    }

    /// The registers that steps write, with the number of steps left.
    fn written(&self, steps: &[&[RegionStep]]) -> Vec<usize> {
        let mut written = vec![false; self.region.arrays.len()];
        steps.iter().for_each(|s| self.mark_written(s, &mut written));
        let in_register = |&n: &usize| written[n] && matches!(self.slots[n], Slot::Register { .. });
        (0..written.len()).filter(in_register).chain([self.left]).collect()
    }

    fn steps(&mut self, steps: &[RegionStep]) {
        for step in steps {
            match step {
                RegionStep::Inline { request, arrays } => self.inline(*request, arrays),
                RegionStep::Copy { from, to } => self.copy(*from, *to),
                RegionStep::Call { function, entry, units } => self.call(*function, *entry, *units),
                RegionStep::Outside(number) => self.outside(*number),
                RegionStep::While(repeat) => self.repeat(repeat),
                RegionStep::Conditional { selector, branches } => self.conditional(*selector, branches),
            }
        }
    }

    fn inline(&mut self, request: usize, arrays: &[u32]) {
        let Some(work) = (self.work)(request) else { return };
        let buffers: Vec<Slot<'c>> = arrays.iter().map(|&a| self.slots[a as usize]).collect();
        let mut place = Place {
            ir: self.ir,
            machine: self.machine,
            function: self.function,
            buffers: &buffers,
            constants: self.constants,
            registers: &mut self.registers,
        };
        for program in &work.programs {
            program.before.iter().for_each(|first| place.whole(first));
            place.whole(program);
        }
    }

    fn copy(&mut self, from: u32, to: u32) {
        let array = &self.region.arrays[from as usize];
        let (t, elements) = (array.element_type, array.elements as u32);
        match (self.slots[from as usize], self.slots[to as usize]) {
            (Slot::Register { .. }, Slot::Register { .. }) => {
                self.registers[to as usize] = self.registers[from as usize];
            }
            (Slot::Register { .. }, Slot::Memory(pointer)) => {
                if let Some(value) = self.registers[from as usize] {
                    self.ir.register_to_memory(value.re, pointer, t, elements);
                }
            }
            (Slot::Memory(pointer), Slot::Register { .. }) => {
                self.registers[to as usize] = Some(self.ir.register_of_memory(pointer, t, elements).into());
            }
            (Slot::Memory(from), Slot::Memory(to)) => {
                let bytes = self.ir.i64(array.elements * t.bytes() as i64);
                self.ir.builder.build_memmove(to, 1, from, 1, bytes).expect("the builder is positioned");
            }
        }
    }

    fn call(&mut self, function: u32, entry: u32, units: i64) {
        let functions = self.pointer_at(self.field(offset_of!(RegionControl, functions)));
        let code = self.pointer_at(self.ir.offset(functions, self.ir.i64(i64::from(function) * 8)));
        let arrays = self.ir.offset(self.table, self.ir.i64(i64::from(entry) * 8));
        let long = self.ir.context.i64_type();
        let pointer = self.ir.pointer_type();
        let signature = self.ir.context.void_type().fn_type(&[pointer.into(), long.into(), long.into()], false);
        let arguments = [arrays.into(), self.ir.i64(0).into(), self.ir.i64(units).into()];
        self.ir.builder.build_indirect_call(signature, code, &arguments, "").expect("the builder is positioned");
    }

    /// Calls a function of the control with a number.
    fn ask(&self, offset: usize, result: Repr, number: u32) -> Val<'c> {
        let code = self.pointer_at(self.field(offset));
        let context = self.pointer_at(self.field(offset_of!(RegionControl, context)));
        let (pointer, int) = (self.ir.pointer_type(), self.ir.context.i32_type());
        let signature = self.ir.ty(result, 1).into_int_type().fn_type(&[pointer.into(), int.into()], false);
        let arguments = [context.into(), self.number(number).into()];
        let call = self.ir.builder.build_indirect_call(signature, code, &arguments, "");
        let call = call.expect("the builder is positioned");
        call.try_as_basic_value().basic().unwrap_or_else(|| self.ir.int(result, 0))
    }

    fn outside(&mut self, number: u32) {
        let failed = self.ask(offset_of!(RegionControl, outside), Repr::I32, number);
        let after = self.block("done");
        self.branch(self.ir.icmp(NE, failed, self.ir.int(Repr::I32, 0)), self.stop, after);
        self.ir.builder.position_at_end(after);
    }

    /// A pred or integer scalar as it is in memory.
    fn scalar(&self, array: u32) -> Val<'c> {
        let facts = &self.region.arrays[array as usize];
        match self.slots[array as usize] {
            Slot::Register { .. } => match self.registers[array as usize] {
                Some(value) => value.re,
                None => self.ir.register_type(facts.element_type, 1).const_zero(),
            },
            Slot::Memory(pointer) => self.ir.register_of_memory(pointer, facts.element_type, 1),
        }
    }

    fn repeat(&mut self, repeat: &RegionWhile) {
        let carried = self.written(&[&repeat.condition, &repeat.body]);
        let (before, header) = (self.here(), self.block("while"));
        self.jump(header);
        self.ir.builder.position_at_end(header);
        // What has no value yet is made anew in each iteration.
        let mut phis: Vec<(usize, Val<'c>, PhiValue<'c>)> = Vec::new();
        for n in carried {
            if let Some(value) = self.registers[n] {
                let phi = self.phi(value.re);
                phis.push((n, value.re, phi));
                self.registers[n] = Some(phi.as_basic_value().into());
            }
        }
        self.steps(&repeat.condition);
        let truth = self.ir.icmp(NE, self.scalar(repeat.truth), self.ir.int(Repr::I8, 0));
        // After `LEAVE` the number of steps left is negative.
        let may_go_on = self.ir.icmp(SGE, self.value(self.left), self.ir.i64(0).into());
        let (body, after) = (self.block("body"), self.block("after_while"));
        self.branch(self.ir.and(truth, may_go_on), body, after);
        let at_end = self.registers.clone();
        self.ir.builder.position_at_end(body);
        self.steps(&repeat.body);
        let left = self.ir.sub(self.value(self.left), self.ir.i64(repeat.cost).into());
        let (poll, go_on, next) = (self.block("poll"), self.block("go_on"), self.block("next"));
        self.branch(self.ir.icmp(SLT, left, self.ir.i64(0).into()), poll, next);
        let quick = self.ir.builder.get_insert_block().expect("the builder is positioned");
        self.ir.builder.position_at_end(poll);
        repeat.state.iter().for_each(|&array| self.flush(array));
        let given = self.ask(offset_of!(RegionControl, poll), Repr::I64, repeat.number);
        self.branch(self.ir.icmp(EQ, given, self.ir.i64(STOP).into()), self.stop, go_on);
        self.ir.builder.position_at_end(go_on);
        self.jump(next);
        self.ir.builder.position_at_end(next);
        let phi = self.phi(left);
        phi.add_incoming(&[(&left, quick), (&given, go_on)]);
        self.registers[self.left] = Some(phi.as_basic_value().into());
        let end = self.here();
        self.jump(header);
        for (n, first, phi) in phis {
            let last = self.registers[n].map_or(first, |v| v.re);
            phi.add_incoming(&[(&first, before), (&last, end)]);
        }
        self.registers = at_end;
        self.ir.builder.position_at_end(after);
        let left = self.ir.call2("llvm.smax", self.value(self.left), self.ir.i64(0).into());
        self.registers[self.left] = Some(left.into());
    }

    fn value(&self, register: usize) -> Val<'c> {
        self.registers[register].map_or_else(|| self.ir.i64(0).into(), |v| v.re)
    }

    fn conditional(&mut self, selector: u32, branches: &[Vec<RegionStep>]) {
        let value = self.scalar(selector);
        let after = self.block("after_branches");
        let blocks: Vec<BasicBlock<'c>> = branches.iter().map(|_| self.block("branch")).collect();
        let Some((&last, others)) = blocks.split_last() else { return };
        let is_truth = self.region.arrays[selector as usize].element_type == ElementType::Pred;
        if is_truth && blocks.len() == 2 {
            self.branch(self.ir.icmp(NE, value, self.ir.int(Repr::I8, 0)), blocks[0], last);
        } else {
            let value: IntValue<'c> = value.into_int_value();
            let cases: Vec<(IntValue<'c>, BasicBlock<'c>)> = (0u64..)
                .zip(others)
                .map(|(n, &b)| (value.get_type().const_int(if is_truth { 1 - n.min(1) } else { n }, false), b))
                .collect();
            self.ir.builder.build_switch(value, last, &cases).expect("the builder is positioned");
        }
        let lists: Vec<&[RegionStep]> = branches.iter().map(|b| &b[..]).collect();
        let carried = self.written(&lists);
        let before = self.registers.clone();
        let mut ends: Vec<(Vec<Option<V<'c>>>, BasicBlock<'c>)> = Vec::new();
        for (steps, block) in branches.iter().zip(blocks) {
            self.registers.clone_from(&before);
            self.ir.builder.position_at_end(block);
            self.steps(steps);
            ends.push((self.registers.clone(), self.here()));
            self.jump(after);
        }
        self.ir.builder.position_at_end(after);
        self.registers = before;
        for n in carried {
            let values: Option<Vec<Val<'c>>> = ends.iter().map(|(r, _)| r[n].map(|v| v.re)).collect();
            // What only some branches make nobody reads afterwards.
            self.registers[n] = values.and_then(|values| {
                let phi = self.phi(*values.first()?);
                for (value, (_, block)) in values.iter().zip(&ends) {
                    let value: &BasicValueEnum<'c> = value;
                    phi.add_incoming(&[(value, *block)]);
                }
                Some(phi.as_basic_value().into())
            });
        }
    }
}

//! Regions: functions per element, loops and branches, and the values that these capture.
//!
//! A computation of HLO sees its parameters only. What a loop captures becomes part of its state, passed on unchanged;
//! what a branch captures becomes its argument. Constants are not passed but made again inside. Functions per element
//! (reducers, comparators) may capture constants only.

use super::{Translate, Translator};
use crate::mlir::{OpId, RegionId, ValueId};
use hloom_ir::attributes::{Window, WindowDim};
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::Operands;
use hloom_ir::{ArrayShape, Op, Shape};
use std::rc::Rc;

/// What values were mapped to before a region was entered.
type Saved = Vec<(ValueId, Option<InstructionId>)>;

impl<'m> Translator<'m, '_> {
    /// The values that a region uses and does not define, in the order of their first use.
    fn captures(&mut self, region: RegionId) -> Rc<[ValueId]> {
        if let Some(known) = &self.captures[region.index()] {
            return known.clone();
        }
        let m = self.m;
        let own = m.region(region).values.clone();
        let mut found: Vec<ValueId> = Vec::new();
        // What is nested is worked out first, each region once.
        for block in &m.region(region).blocks {
            for &op in &block.ops {
                let operation = m.op(op);
                let outside = |v: &&ValueId| !own.contains(&v.0);
                found.extend(operation.operands.iter().filter(outside));
                for &inner in &operation.regions {
                    let inner = self.captures(inner);
                    found.extend(inner.iter().filter(outside));
                }
            }
        }
        self.dedup(&mut found);
        let found: Rc<[ValueId]> = found.into();
        self.captures[region.index()] = Some(found.clone());
        found
    }

    fn dedup(&mut self, values: &mut Vec<ValueId>) {
        self.searches += 1;
        let (seen, search) = (&mut self.seen, self.searches);
        values.retain(|v| std::mem::replace(&mut seen[v.index()], search) != search);
    }

    /// Whether an instruction is a constant, or one number repeated: what is made again rather than passed.
    fn is_constant(&self, id: InstructionId) -> bool {
        match &self.out[id].op {
            Op::Constant(_) => true,
            Op::Broadcast { dimensions } if dimensions.is_empty() => {
                self.out[id].operands().first().is_some_and(|&x| matches!(self.out[x].op, Op::Constant(_)))
            }
            _ => false,
        }
    }

    /// The captured values that must be passed, and those that are constants.
    fn split_captures(&self, captured: &[ValueId]) -> Translate<(Vec<ValueId>, Vec<ValueId>)> {
        let (mut passed, mut constants) = (Vec::new(), Vec::new());
        for &value in captured {
            if self.is_constant(self.value(value)?) { constants.push(value) } else { passed.push(value) }
        }
        Ok((passed, constants))
    }

    /// Maps `value` to `id`, remembering what it was mapped to.
    fn remap(&mut self, saved: &mut Saved, value: ValueId, id: InstructionId) {
        saved.push((value, self.map[value.index()].replace(id)));
    }

    fn restore(&mut self, saved: Saved) {
        for (value, id) in saved.into_iter().rev() {
            self.map[value.index()] = id;
        }
    }

    /// Makes constants of the computation around again in this one.
    fn copy_constants(&mut self, saved: &mut Saved, constants: &[ValueId]) -> Translate<()> {
        for &value in constants {
            let id = self.value(value)?;
            let (op, shape) = (self.out[id].op.clone(), self.out[id].shape.clone());
            let operands: Operands = match self.out[id].operands() {
                [] => Operands::new(),
                [scalar, ..] => {
                    let scalar = *scalar;
                    let (op, shape) = (self.out[scalar].op.clone(), self.out[scalar].shape.clone());
                    [self.emit(op, [].as_slice(), shape)?].as_slice().into()
                }
            };
            let copy = self.emit(op, operands, shape)?;
            self.remap(saved, value, copy);
        }
        Ok(())
    }

    /// The operations of a region's only block.
    fn region_ops(&self, region: RegionId) -> Translate<&'m [OpId]> {
        let m = self.m;
        match &m.region(region).blocks[..] {
            [block] => Ok(&block.ops),
            _ => Err(self.error(&codes::NO_HLO_FORM, format!("a region of {} has not one block", self.op_name()))),
        }
    }

    fn region_name(&mut self) -> String {
        self.region_count += 1;
        format!("region_{}", self.region_count - 1)
    }

    /// A computation of a region that sees its arguments, one parameter each, and constants.
    pub(super) fn scalar_function(&mut self, region: RegionId) -> Translate<ComputationId> {
        let m = self.m;
        let ops = self.region_ops(region)?;
        let captured = self.captures(region);
        let (passed, constants) = self.split_captures(&captured)?;
        if !passed.is_empty() {
            let message = format!("the function per element of {} uses a value from outside", self.op_name());
            return Err(self.error(&codes::CAPTURED_VALUE, message));
        }
        let name = self.region_name();
        let outer = self.begin(&name);
        let mut saved = Saved::new();
        for (i, value) in m.arguments(region).enumerate() {
            let shape = self.type_shape(m.value_type(ValueId(value)))?;
            let id = self.emit(Op::parameter(i as i64), [].as_slice(), shape)?;
            self.remap(&mut saved, ValueId(value), id);
        }
        self.copy_constants(&mut saved, &constants)?;
        let results = self.block(ops)?;
        let root = self.packed(&results)?;
        self.restore(saved);
        Ok(self.end(outer, root))
    }

    pub(super) fn while_op(&mut self) -> Translate<()> {
        let (cond, body) = (self.region(0)?, self.region(1)?);
        let initial = self.operands()?;
        let mut captured = self.captures(cond).to_vec();
        captured.extend_from_slice(&self.captures(body));
        self.dedup(&mut captured);
        let (passed, constants) = self.split_captures(&captured)?;
        let mut state = initial.to_vec();
        for &value in &passed {
            state.push(self.value(value)?);
        }
        let shapes: Vec<Shape> = state.iter().map(|&s| self.shape(s).clone()).collect();
        let condition = self.loop_part(cond, &shapes, &passed, &constants, true)?;
        let body = self.loop_part(body, &shapes, &passed, &constants, false)?;
        let start = self.packed(&state)?;
        let shape = self.shape(start).clone();
        let id = self.emit(Op::While { condition, body }, [start].as_slice(), shape)?;
        let count = self.m.op(self.at).result_count as usize;
        if count != initial.len() {
            let message = format!("a loop over {} values gives {count}", initial.len());
            return Err(self.error(&codes::BAD_OPERANDS, message));
        }
        if state.len() == 1 && count == 1 {
            return self.bind(id);
        }
        if state.len() == 1 {
            return Ok(());
        }
        self.bind_tuple(id)
    }

    /// The condition or the body of a loop.
    fn loop_part(
        &mut self,
        region: RegionId,
        state: &[Shape],
        passed: &[ValueId],
        constants: &[ValueId],
        is_condition: bool,
    ) -> Translate<ComputationId> {
        let m = self.m;
        let ops = self.region_ops(region)?;
        let arguments: Vec<ValueId> = m.arguments(region).map(ValueId).collect();
        if arguments.len() + passed.len() != state.len() {
            let message = format!("a region of {} takes {} arguments", self.op_name(), arguments.len());
            return Err(self.error(&codes::BAD_OPERANDS, message));
        }
        let name = self.region_name();
        let outer = self.begin(&name);
        self.info = Rc::default();
        let mut saved = Saved::new();
        let mut parts = Operands::new();
        if let [shape] = state {
            parts.push(self.emit(Op::parameter(0), [].as_slice(), shape.clone())?);
        } else {
            self.default_name("arg_tuple");
            let tuple = self.emit(Op::parameter(0), [].as_slice(), Shape::tuple(state.iter().cloned()))?;
            self.info = Rc::default();
            for i in 0..state.len() {
                parts.push(self.element(tuple, i)?);
            }
        }
        for (&value, &part) in arguments.iter().chain(passed).zip(&parts) {
            self.remap(&mut saved, value, part);
        }
        self.copy_constants(&mut saved, constants)?;
        let mut results = self.block(ops)?;
        let root = if is_condition {
            match results[..] {
                [one] => one,
                _ => return Err(self.error(&codes::BAD_OPERANDS, "the condition of a loop gives one value")),
            }
        } else {
            results.extend_from_slice(&parts[arguments.len()..]);
            self.packed(&results)?
        };
        self.restore(saved);
        Ok(self.end(outer, root))
    }

    pub(super) fn if_op(&mut self) -> Translate<()> {
        let regions = [self.region(0)?, self.region(1)?];
        self.conditional(&regions)
    }

    pub(super) fn case_op(&mut self) -> Translate<()> {
        let regions = self.m.op(self.at).regions.clone();
        self.conditional(&regions)
    }

    fn conditional(&mut self, regions: &[RegionId]) -> Translate<()> {
        self.expect_operands(1)?;
        let mut operands: Operands = [self.operand(0)?].as_slice().into();
        let mut branches = Vec::with_capacity(regions.len());
        for &region in regions {
            let captured = self.captures(region);
            let (passed, constants) = self.split_captures(&captured)?;
            let values = passed.iter().map(|&v| self.value(v)).collect::<Translate<Operands>>()?;
            let argument = self.packed(&values)?;
            operands.push(argument);
            branches.push(self.branch(region, &values, &passed, &constants)?);
        }
        self.emit_results(Op::Conditional { branches: branches.into() }, operands)
    }

    fn branch(
        &mut self,
        region: RegionId,
        values: &[InstructionId],
        passed: &[ValueId],
        constants: &[ValueId],
    ) -> Translate<ComputationId> {
        let ops = self.region_ops(region)?;
        let shapes: Vec<Shape> = values.iter().map(|&v| self.shape(v).clone()).collect();
        let name = self.region_name();
        let outer = self.begin(&name);
        self.info = Rc::default();
        let mut saved = Saved::new();
        match (&shapes[..], passed) {
            ([shape], [value]) => {
                self.default_name("Arg_");
                let id = self.emit(Op::parameter(0), [].as_slice(), shape.clone())?;
                self.remap(&mut saved, *value, id);
            }
            _ => {
                self.default_name("arg_tuple");
                let tuple = self.emit(Op::parameter(0), [].as_slice(), Shape::tuple(shapes))?;
                self.info = Rc::default();
                for (i, &value) in passed.iter().enumerate() {
                    let id = self.element(tuple, i)?;
                    self.remap(&mut saved, value, id);
                }
            }
        }
        self.copy_constants(&mut saved, constants)?;
        let results = self.block(ops)?;
        let root = self.packed(&results)?;
        self.restore(saved);
        Ok(self.end(outer, root))
    }

    pub(super) fn reduce(&mut self) -> Translate<()> {
        let region = self.region(0)?;
        let to_apply = self.scalar_function(region)?;
        let dimensions = self.ints("dimensions")?;
        let operands = self.operands()?;
        self.expect_pairs(operands.len())?;
        self.emit_results(Op::Reduce { dimensions, to_apply }, operands)
    }

    fn expect_pairs(&self, operands: usize) -> Translate<()> {
        if operands == 0 || !operands.is_multiple_of(2) {
            let message = format!("{} takes as many initial values as inputs", self.op_name());
            return Err(self.error(&codes::BAD_OPERANDS, message));
        }
        Ok(())
    }

    pub(super) fn reduce_window(&mut self) -> Translate<()> {
        let region = self.region(0)?;
        let to_apply = self.scalar_function(region)?;
        let sizes = self.needed_ints("window_dimensions")?;
        let strides = self.ints_or("window_strides", sizes.len(), 1)?;
        let base = self.ints_or("base_dilations", sizes.len(), 1)?;
        let dilation = self.ints_or("window_dilations", sizes.len(), 1)?;
        let padding = self.pairs("padding", sizes.len())?;
        let dim = |i: usize| WindowDim {
            size: sizes[i],
            stride: strides[i],
            padding_low: padding[i].0,
            padding_high: padding[i].1,
            window_dilation: dilation[i],
            base_dilation: base[i],
            window_reversal: false,
        };
        let window = Box::new(Window { dims: (0..sizes.len()).map(dim).collect() });
        let operands = self.operands()?;
        self.expect_pairs(operands.len())?;
        self.emit_results(Op::ReduceWindow { window, to_apply }, operands)
    }

    pub(super) fn select_and_scatter(&mut self) -> Translate<()> {
        self.expect_operands(3)?;
        let (select, scatter) = (self.region(0)?, self.region(1)?);
        let select = self.scalar_function(select)?;
        let scatter = self.scalar_function(scatter)?;
        let x = self.operand(0)?;
        let rank = self.shape(x).as_array().map_or(0, ArrayShape::rank);
        let sizes = self.ints_or("window_dimensions", rank, 1)?;
        let strides = self.ints_or("window_strides", rank, 1)?;
        let padding = self.pairs("padding", rank)?;
        let dim = |i: usize| WindowDim {
            stride: strides[i],
            padding_low: padding[i].0,
            padding_high: padding[i].1,
            ..WindowDim::of_size(sizes[i])
        };
        let window = Box::new(Window { dims: (0..rank).map(dim).collect() });
        self.plain(3, Op::SelectAndScatter { window, select, scatter })
    }

    pub(super) fn sort(&mut self) -> Translate<()> {
        let region = self.region(0)?;
        let to_apply = self.scalar_function(region)?;
        let operands = self.operands()?;
        let rank = operands.first().and_then(|&x| self.shape(x).as_array()).map_or(0, ArrayShape::rank) as i64;
        let dimension = self.int_or("dimension", -1)?;
        let dimension = if dimension < 0 { dimension + rank } else { dimension };
        let is_stable = self.flag("is_stable")?;
        self.emit_results(Op::Sort { dimension, is_stable, to_apply }, operands)
    }

    pub(super) fn map_op(&mut self) -> Translate<()> {
        let region = self.region(0)?;
        let to_apply = self.scalar_function(region)?;
        let dimensions = self.ints("dimensions")?;
        self.variadic(Op::Map { to_apply, dimensions })
    }

    /// The region's computation called with these values in place.
    pub(super) fn inline_region(&mut self, region: RegionId, arguments: &[InstructionId]) -> Translate<Operands> {
        let m = self.m;
        let ops = self.region_ops(region)?;
        if m.arguments(region).len() != arguments.len() {
            let message = format!("a region of {} takes other arguments than it is given", self.op_name());
            return Err(self.error(&codes::BAD_OPERANDS, message));
        }
        for (value, &argument) in m.arguments(region).zip(arguments) {
            self.map[value as usize] = Some(argument);
        }
        let at = self.at;
        let results = self.block(ops)?;
        self.enter(at);
        Ok(results)
    }
}

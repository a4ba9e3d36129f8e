//! May an instruction write its result over an operand that nothing needs any more?
//!
//! It may if it reads each element of the operand before it writes the element of the result that lies there: element by
//! element, in place, or as a loop that carries it. What a backend knows beyond that is in the target's description.

use crate::backend_config::shared_places;
use crate::dataflow::Dataflow;
use crate::in_place::InPlace;
use crate::positions::Position;
use hloom_ir::attributes::{FusionKind, Window, WindowDim};
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Fusion, Op};
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::Shape;
use hloom_target::Target;
use rustc_hash::FxHashMap;
use std::cell::RefCell;

/// Shorter rows are not written over: a vector that is read there reaches into the row just written, and waits for it.
const MIN_ROW_BYTES: i64 = 256;

/// Answers, and remembers what it found out about the bodies of fusions.
#[derive(Debug)]
pub struct Overwrite<'a, 'm> {
    dataflow: &'a Dataflow<'m>,
    in_place: &'a InPlace<'m>,
    target: &'a Target,
    /// Whether everything that a fusion's parameter leads to is done element by element, by the parameter.
    elementwise: RefCell<FxHashMap<(InstructionId, bool), bool>>,
}

impl<'a, 'm> Overwrite<'a, 'm> {
    /// For the values of `dataflow` on `target`.
    pub fn new(dataflow: &'a Dataflow<'m>, in_place: &'a InPlace<'m>, target: &'a Target) -> Overwrite<'a, 'm> {
        Overwrite { dataflow, in_place, target, elementwise: RefCell::default() }
    }

    /// Whether the result at `output` may be written over what is at `operand`. The instruction of `output` reads the
    /// instruction of `operand`.
    pub fn may(&self, operand: Position, output: Position) -> bool {
        let module = self.dataflow.module();
        let positions = &self.dataflow.positions;
        let (from, user) = (positions.instruction(operand), positions.instruction(output));
        if let Op::Constant(_) = module[from].op {
            return false;
        }
        if positions.shape(operand) != positions.shape(output) {
            return false;
        }
        if self.is_in_place(operand, user, output) {
            return true;
        }
        let slots: Vec<usize> =
            (0..module[user].operands().len()).filter(|&i| module[user].operands()[i] == from).collect();
        let Some(&slot) = slots.first() else { return false };
        if let Some(config) = module[user].common.backend_config.as_deref()
            && let Some(places) = shared_places(config, module[user].operands().len())
        {
            let leaf = || positions.of(user).take_while(|&p| p != output).filter(|&p| !positions.is_tuple(p)).count();
            return !places.is_empty() && {
                let leaf = leaf();
                slots.iter().all(|&slot| places.contains(&(slot, leaf)))
            };
        }
        let index = positions.index(output);
        match &module[user].op {
            Op::AllReduce(_) if self.target.all_reduce_overwrites => match *index {
                [] => true,
                [i] => usize::try_from(i).is_ok_and(|i| slots.contains(&i)),
                _ => false,
            },
            Op::Binary(BinaryOp::Power) => self.target.power_overwrites,
            // Out of range it is zeros or signs: which, is asked again once the shifted bits are there.
            Op::Binary(BinaryOp::ShiftLeft | BinaryOp::ShiftRightLogical | BinaryOp::ShiftRightArithmetic)
                if !self.target.shift_overwrites =>
            {
                false
            }
            Op::ReduceWindow { window, .. } => {
                let dims = positions.shape(output).as_array().map_or(&[][..], |a| a.dims());
                self.target.scan_overwrites && slots == [0] && index.is_empty() && is_prefix_scan(window, dims)
            }
            // What is read once more under another name, as by a bitcast, is read from the same memory; with other
            // dimensions it is read by another loop, which may come later, unless a fusion is one loop.
            Op::Fusion(fusion) => {
                let value = self.dataflow.at(operand);
                let is_same = |o: InstructionId| o == from || self.dataflow.at(positions.whole(o)) == value;
                let dims = |s: &Shape| s.as_array().map(|a| DimVec::from(a.dims()));
                let in_this_loop = |o: InstructionId| {
                    self.target.one_loop_per_fusion || dims(&module[o].shape) == dims(positions.shape(output))
                };
                let mut slots = (0..).zip(module[user].operands()).filter(|&(_, &o)| is_same(o));
                slots.all(|(slot, &o)| (o == from || in_this_loop(o)) && self.fusion(fusion, slot))
            }
            Op::While { .. } | Op::Conditional { .. } => true,
            Op::DynamicUpdateSlice | Op::Scatter(_) | Op::SetDimensionSize { .. } => slots == [0],
            Op::TriangularSolve { .. } => slots == [1],
            Op::Sort { .. } => {
                let alone = module[from].users().len() == 1;
                let same = index.first().is_none_or(|&i| usize::try_from(i) == Ok(slot));
                alone && (module[user].operands().len() == 1 || slots.len() == 1 && same)
            }
            Op::Call { to_apply, .. } => {
                let uses = self.dataflow.at(operand).map_or(&[][..], |v| self.dataflow.uses_of(v));
                let root = module.root(*to_apply);
                let elementwise = |u: &&crate::dataflow::Use| {
                    Some(u.user) == root && is_elementwise(module, u.user, u.operand as usize)
                };
                uses.len() == 2 && uses.iter().any(|u| u.user == user) && uses.iter().any(|u| elementwise(&u))
            }
            _ => is_elementwise(module, user, slot),
        }
    }

    fn is_in_place(&self, operand: Position, user: InstructionId, output: Position) -> bool {
        let index = self.dataflow.positions.index(output);
        let value = self.dataflow.at(operand);
        self.in_place.pairs(user).iter().filter(|p| p.output_index == index).any(|pair| {
            let read = self.dataflow.module()[user].operands().get(pair.operand);
            let read = read.and_then(|&o| self.dataflow.positions.part(o, &pair.operand_index));
            read.is_some_and(|r| value.is_some() && self.dataflow.at(r.start) == value)
        })
    }

    fn fusion(&self, fusion: &Fusion, slot: usize) -> bool {
        let module = self.dataflow.module();
        let parameters = module.parameters(fusion.calls);
        let (Some(&parameter), Some(root)) = (parameters.get(slot), module.root(fusion.calls)) else { return false };
        match fusion.kind {
            FusionKind::Loop => self.all_elementwise(parameter, true) || self.row_by_row(parameter, root),
            FusionKind::Input => self.all_elementwise(parameter, true),
            FusionKind::Output if self.target.output_fusion_overwrites => self.all_elementwise(parameter, true),
            FusionKind::Output if module[root].opcode() == Opcode::Add => {
                let is_product = |&&o: &&InstructionId| matches!(module[o].opcode(), Opcode::Convolution | Opcode::Dot);
                let operands = module[root].operands();
                let Some(&product) = operands.iter().find(is_product) else { return false };
                let other = usize::from(operands.first() == Some(&product));
                let slots = self.dataflow.slots.of(parameter);
                matches!(slots, [only] if only.user == root && only.operand as usize == other)
            }
            _ => self.all_elementwise(parameter, false),
        }
    }

    /// Whether each row of the result needs the same row of the parameter only, as in a softmax, and the loops go row by
    /// row: nothing in the fusion makes them go otherwise.
    fn row_by_row(&self, parameter: InstructionId, root: InstructionId) -> bool {
        let module = self.dataflow.module();
        let (Some(least), Some(whole)) = (self.target.row_fusion_overwrites, module[root].shape.as_array()) else {
            return false;
        };
        let row_major = |id: InstructionId| {
            module[id].shape.as_array().and_then(|a| a.layout.as_ref()).is_none_or(|l| l.is_descending())
        };
        let body = module[module[root].parent()].instructions();
        let is_plain = |&id: &InstructionId| match &module[id].op {
            Op::Parameter { .. } | Op::Constant(_) | Op::Iota { .. } | Op::Reduce { .. } => row_major(id),
            Op::Broadcast { dimensions } => row_major(id) && dimensions.is_sorted(),
            op => row_major(id) && op.is_elementwise(),
        };
        if !body.iter().all(is_plain) {
            return false;
        }
        let dims = whole.dims();
        // How many of the major dimensions say where a value belongs: all of them, or those of its row.
        let mut kept: FxHashMap<InstructionId, usize> = FxHashMap::default();
        kept.insert(parameter, dims.len());
        let (mut stack, mut least_kept) = (vec![parameter], dims.len());
        while let Some(id) = stack.pop() {
            let have = kept[&id];
            for slot in self.dataflow.slots.of(id) {
                let user = slot.user;
                let gets = match &module[user].op {
                    Op::Reduce { dimensions, .. } => {
                        let rank = have.checked_sub(dimensions.len()).filter(|&r| r > 0);
                        rank.filter(|&r| dimensions.iter().all(|&d| d >= r as i64) && slot.operand == 0)
                    }
                    Op::Broadcast { dimensions } => {
                        let same = module[user].shape.as_array().is_some_and(|a| a.dims() == dims);
                        (same && dimensions.iter().copied().eq(0..have as i64)).then_some(dims.len())
                    }
                    _ => Some(have),
                };
                let Some(gets) = gets.filter(|_| module[user].shape.is_array()) else { return false };
                least_kept = least_kept.min(gets);
                match kept.insert(user, gets) {
                    None => stack.push(user),
                    Some(before) if before != gets => return false,
                    Some(_) => {}
                }
            }
        }
        let count = |dims: &[i64]| dims.iter().fold(1i64, |n, &d| n.saturating_mul(d));
        let row = count(&dims[least_kept..]).saturating_mul(whole.element_type.bytes() as i64);
        count(&dims[..least_kept]) >= least && row >= MIN_ROW_BYTES
    }

    /// Whether everything that reads `from`, directly or not, is done element by element (or makes tuples, where those
    /// are allowed).
    fn all_elementwise(&self, from: InstructionId, tuples: bool) -> bool {
        if let Some(&known) = self.elementwise.borrow().get(&(from, tuples)) {
            return known;
        }
        let module = self.dataflow.module();
        let mut seen = rustc_hash::FxHashSet::default();
        let mut stack = vec![from];
        let mut answer = true;
        'walk: while let Some(id) = stack.pop() {
            for slot in self.dataflow.slots.of(id) {
                let is_tuple = tuples && matches!(module[slot.user].op, Op::Tuple);
                if !is_tuple && !is_elementwise(module, slot.user, slot.operand as usize) {
                    answer = false;
                    break 'walk;
                }
                if seen.insert(slot.user.index()) {
                    stack.push(slot.user);
                }
            }
        }
        self.elementwise.borrow_mut().insert((from, tuples), answer);
        answer
    }
}

/// Whether windows reach from each element to an end of one dimension.
fn is_prefix_scan(window: &Window, dims: &[i64]) -> bool {
    let mut scanned = 0;
    let each = |(w, &size): (&WindowDim, &i64)| {
        let reaches = w.size == size && [(size - 1, 0), (0, size - 1)].contains(&(w.padding_low, w.padding_high));
        let is_single = w.size == 1 && w.padding_low == 0 && w.padding_high == 0;
        scanned += usize::from(!is_single);
        w.stride == 1 && w.window_dilation == 1 && w.base_dilation == 1 && (is_single || reaches)
    };
    window.dims.len() == dims.len() && window.dims.iter().zip(dims).all(each) && scanned == 1
}

/// Whether each element of the result depends on the corresponding element of that operand only. A fusion within a fusion
/// is not looked into.
pub(crate) fn is_elementwise(module: &Module, id: InstructionId, operand: usize) -> bool {
    let instruction = &module[id];
    match &instruction.op {
        Op::Copy | Op::StochasticConvert | Op::Rng { .. } => true,
        Op::Map { dimensions, .. } => {
            let rank = instruction.shape.as_array().map_or(0, |a| a.rank());
            dimensions.len() == rank
        }
        Op::DynamicUpdateSlice => operand == 0,
        Op::BitcastConvert => {
            let from = instruction.operands().first().and_then(|&o| module[o].shape.as_array());
            match (from, instruction.shape.as_array()) {
                (Some(from), Some(to)) => from.element_type.bits() == to.element_type.bits(),
                _ => false,
            }
        }
        // The bounds of a clamp and what a select asks may be one element, read for each of the result.
        Op::Clamp | Op::Select => {
            let dims = |id: InstructionId| module[id].shape.as_array().map(|a| a.dims());
            instruction.operands().get(operand).is_some_and(|&o| dims(o) == dims(id))
        }
        op => op.is_elementwise(),
    }
}

//! Whether a program's result depends on what the padding of tiles holds, found before it runs.
//!
//! A bitcast may read places that belong to no element: a matrix seen as bytes shows the padding of its last tiles. That
//! is well as long as those bytes are only moved on and end in padding again. So undefined bytes are followed through the
//! operations that move data, by doing with *masks* (arrays whose undefined bytes are 0xff and whose others are 0) what
//! those do with values; whatever else meets an undefined byte computes with it, which is an error.
//!
//! A program without such bitcasts, as nearly all are, costs no more than a look at each bitcast.

use crate::ops::bitcast;
use crate::ops::data_movement::{concatenate, slice, transpose};
use hloom_analysis::effects::{has_side_effect, instructions_with};
use hloom_ir::diagnostic::codes;
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::layout::bitcast::Moves;
use hloom_ir::layout::memory::{MemoryForm, element_bits};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::ArrayShape;
use hloom_value::{Array, ExecutionError};
use rustc_hash::FxHashMap;

/// Which bytes of a value are undefined.
#[derive(Clone, Debug)]
enum Undefined {
    Nothing,
    Bytes(Array),
    Elements(Vec<Undefined>),
}

impl Undefined {
    fn is_nothing(&self) -> bool {
        match self {
            Undefined::Nothing => true,
            Undefined::Bytes(mask) => mask.bytes().iter().all(|&b| b == 0),
            Undefined::Elements(elements) => elements.iter().all(Undefined::is_nothing),
        }
    }

    fn element(&self, n: usize) -> Undefined {
        match self {
            Undefined::Elements(elements) => elements.get(n).cloned().unwrap_or(Undefined::Nothing),
            _ => Undefined::Nothing,
        }
    }

    /// Adds what is undefined in `other`; whether that was new.
    fn add(&mut self, other: Undefined) -> bool {
        match (&mut *self, other) {
            (_, Undefined::Nothing) => false,
            (Undefined::Bytes(mine), Undefined::Bytes(more)) if mine.bytes().len() == more.bytes().len() => {
                if mine.bytes().iter().zip(more.bytes()).all(|(m, b)| m | b == *m) {
                    return false;
                }
                mine.bytes_mut().iter_mut().zip(more.bytes()).for_each(|(m, b)| *m |= b);
                true
            }
            (Undefined::Elements(mine), Undefined::Elements(more)) => {
                mine.resize(mine.len().max(more.len()), Undefined::Nothing);
                let added = mine.iter_mut().zip(more).map(|(m, b)| m.add(b));
                added.fold(false, |any, new| any | new)
            }
            (mine, more) => {
                *mine = more;
                !mine.is_nothing()
            }
        }
    }
}

/// Fails if what `module` computes depends on padding.
pub fn check(module: &Module) -> Result<(), ExecutionError> {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    let reading: Vec<InstructionId> = all.copied().filter(|&i| reads_padding(module, i)).collect();
    if reading.is_empty() {
        return Ok(());
    }
    let mut callers: FxHashMap<ComputationId, Vec<InstructionId>> = FxHashMap::default();
    for &i in module.computations().iter().flat_map(|&c| module[c].instructions()) {
        module[i].op.called_computations().iter().for_each(|&c| callers.entry(c).or_default().push(i));
    }
    let live = live_instructions(module);
    Search { module, live, callers, masks: FxHashMap::default(), work: reading }.run()
}

/// Whether instruction `i` may give padding out as elements.
fn reads_padding(module: &Module, i: InstructionId) -> bool {
    let is_dense = |a: &ArrayShape| a.element_count() == Some(0) || MemoryForm::of(a).is_some_and(|f| f.is_dense());
    match &module[i].op {
        Op::Bitcast => bitcast::shapes(module, i).is_some_and(|(from, to)| {
            (is_tiled(from) || is_tiled(to))
                && !(is_dense(from) && memory_bits(from) >= memory_bits(to))
                && Moves::of(from, to).is_none()
        }),
        Op::CustomCall(call) if &*call.target == CONCAT_BITCAST => {
            let parts = module[i].operands().iter().filter_map(|&o| module[o].shape.as_array());
            let bits = parts.clone().try_fold(0i64, |bits, a| bits.checked_add(memory_bits(a)?));
            !parts.clone().all(is_dense) || bits < module[i].shape.as_array().and_then(memory_bits)
        }
        _ => false,
    }
}

fn is_tiled(array: &ArrayShape) -> bool {
    array.layout.as_ref().is_some_and(|l| !l.tiles.is_empty())
}

fn memory_bits(array: &ArrayShape) -> Option<i64> {
    MemoryForm::of(array)?.count.checked_mul(element_bits(array))
}

/// The call that reads the memory of its operands, one after another, as its result.
pub(crate) const CONCAT_BITCAST: &str = "ConcatBitcast";

/// The instructions that a run evaluates, as far as their own computations tell.
fn live_instructions(module: &Module) -> SideTable<InstructionId, bool> {
    let (effects, _) = instructions_with(module, has_side_effect);
    let mut live = SideTable::with_len(module.instruction_slots(), false);
    let mut stack: Vec<InstructionId> = Vec::new();
    for &c in module.computations() {
        let root = module.root(c);
        stack.extend(module[c].instructions().iter().copied().filter(|&i| effects[i] || Some(i) == root));
    }
    stack.iter().for_each(|&i| live.set(i, true));
    while let Some(i) = stack.pop() {
        for &o in module[i].operands() {
            if !std::mem::replace(live.get_mut(o), true) {
                stack.push(o);
            }
        }
    }
    live
}

/// Undefined bytes on their way.
struct Search<'m> {
    module: &'m Module,
    live: SideTable<InstructionId, bool>,
    callers: FxHashMap<ComputationId, Vec<InstructionId>>,
    masks: FxHashMap<InstructionId, Undefined>,
    work: Vec<InstructionId>,
}

impl Search<'_> {
    fn run(&mut self) -> Result<(), ExecutionError> {
        while let Some(i) = self.work.pop() {
            if !self.live[i] {
                continue;
            }
            // What is undefined in a parameter is known from its callers, and comes here when it has changed.
            if !matches!(self.module[i].op, Op::Parameter { .. }) {
                let mask = self.moved(i).map_err(|e| e.at(i))?;
                if !self.masks.entry(i).or_insert(Undefined::Nothing).add(mask) {
                    continue;
                }
            }
            self.pass_on(i)?;
        }
        Ok(())
    }

    fn mask(&self, i: InstructionId) -> Undefined {
        self.masks.get(&i).cloned().unwrap_or(Undefined::Nothing)
    }

    fn operand(&self, i: InstructionId, n: usize) -> Undefined {
        self.module[i].operands().get(n).map_or(Undefined::Nothing, |&o| self.mask(o))
    }

    /// Looks again at whatever uses the value of `i`.
    fn pass_on(&mut self, i: InstructionId) -> Result<(), ExecutionError> {
        let module = self.module;
        self.work.extend(module[i].users());
        let computation = module[i].parent();
        if module.root(computation) != Some(i) {
            return Ok(());
        }
        if module.entry() == Some(computation) {
            return Err(depends(module, i).at(i));
        }
        self.work.extend(self.callers.get(&computation).into_iter().flatten());
        Ok(())
    }

    /// What is undefined in the value of `i`, as far as is known of its operands.
    fn moved(&mut self, i: InstructionId) -> Result<Undefined, ExecutionError> {
        let module = self.module;
        let defined = (0..module[i].operands().len()).all(|n| self.operand(i, n).is_nothing());
        let shape = |i: InstructionId| module[i].shape.as_array_or_buffer();
        Ok(match &module[i].op {
            Op::Bitcast => match bitcast::shapes(module, i) {
                Some((from, to)) => {
                    let mask = self.bytes(self.operand(i, 0), from)?;
                    Undefined::Bytes(bitcast::bitcast(mask, from, to, 0xff)?)
                }
                None => self.operand(i, 0),
            },
            Op::CustomCall(call) if &*call.target == CONCAT_BITCAST => {
                let Some(to) = shape(i) else { return Ok(Undefined::Nothing) };
                let mut parts = Vec::new();
                for (n, &o) in module[i].operands().iter().enumerate() {
                    let Some(from) = shape(o) else { return Ok(Undefined::Nothing) };
                    parts.push((self.bytes(self.operand(i, n), from)?, from));
                }
                Undefined::Bytes(bitcast::concat_bitcast(parts, to, 0xff)?)
            }
            Op::Fusion(fusion) => self.call(fusion.calls, i, 0),
            Op::Call { to_apply, .. } => self.call(*to_apply, i, 0),
            Op::AsyncStart(start) => {
                let operands = (0..module[i].operands().len()).map(|n| self.operand(i, n)).collect();
                Undefined::Elements(vec![Undefined::Elements(operands), self.call(start.calls, i, 0)])
            }
            Op::Conditional { branches } => {
                let mut result = Undefined::Nothing;
                for (n, &branch) in branches.iter().enumerate() {
                    result.add(self.call(branch, i, n + 1));
                }
                result
            }
            Op::While { condition, body } => {
                let mut state = self.operand(i, 0);
                state.add(module.root(*body).map_or(Undefined::Nothing, |r| self.mask(r)));
                for &computation in [condition, body] {
                    for &p in &module.parameters(computation) {
                        self.hand_in(p, state.clone());
                    }
                }
                state
            }
            _ if defined => Undefined::Nothing,
            Op::Copy | Op::OptBarrier | Op::Domain(_) | Op::AddDependency | Op::AsyncUpdate { .. } => {
                self.operand(i, 0)
            }
            Op::Tuple => Undefined::Elements((0..module[i].operands().len()).map(|n| self.operand(i, n)).collect()),
            Op::GetTupleElement { index } => self.operand(i, 0).element(*index as usize),
            Op::CopyStart { .. } => Undefined::Elements(vec![self.operand(i, 0), self.operand(i, 0)]),
            Op::CopyDone => self.operand(i, 0).element(0),
            Op::AsyncDone => self.operand(i, 0).element(1),
            Op::Slice { dims } => self.rearranged(i, |mask, _| slice(&mask, dims))?,
            Op::Reshape { .. } => self.rearranged(i, |mask, to| mask.reshaped(to.dims()))?,
            Op::Transpose { dimensions } => self.rearranged(i, |mask, _| transpose(mask, dimensions))?,
            Op::Concatenate { dimension } => {
                let mut parts = Vec::new();
                for (n, &o) in module[i].operands().iter().enumerate() {
                    let Some(from) = shape(o) else { return Ok(Undefined::Nothing) };
                    parts.push(self.bytes(self.operand(i, n), from)?);
                }
                Undefined::Bytes(concatenate(&parts, *dimension as usize)?)
            }
            _ => return Err(depends(module, i)),
        })
    }

    /// What `change` makes of the mask of operand 0.
    fn rearranged(
        &self,
        i: InstructionId,
        change: impl FnOnce(Array, &ArrayShape) -> Result<Array, ExecutionError>,
    ) -> Result<Undefined, ExecutionError> {
        let module = self.module;
        let from = module[i].operands().first().and_then(|&o| module[o].shape.as_array());
        let (Some(from), Some(to)) = (from, module[i].shape.as_array()) else { return Ok(Undefined::Nothing) };
        change(self.bytes(self.operand(i, 0), from)?, to).map(Undefined::Bytes)
    }

    /// Hands what is undefined in the operands from `first` on to `computation`, and takes what it gives.
    fn call(&mut self, computation: ComputationId, i: InstructionId, first: usize) -> Undefined {
        for (n, p) in self.module.parameters(computation).into_iter().enumerate() {
            self.hand_in(p, self.operand(i, first + n));
        }
        self.module.root(computation).map_or(Undefined::Nothing, |r| self.mask(r))
    }

    fn hand_in(&mut self, parameter: InstructionId, mask: Undefined) {
        if self.masks.entry(parameter).or_insert(Undefined::Nothing).add(mask) {
            self.work.push(parameter);
        }
    }

    /// The mask of an array of that shape.
    fn bytes(&self, mask: Undefined, shape: &ArrayShape) -> Result<Array, ExecutionError> {
        match mask {
            Undefined::Bytes(mask) => Ok(mask),
            _ => Array::zeroed(shape.element_type, shape.dims()),
        }
    }
}

fn depends(module: &Module, i: InstructionId) -> ExecutionError {
    let instruction = &module[i];
    let message =
        format!("{} `{}` depends on what the padding of a tiled array holds", instruction.opcode(), instruction.name());
    ExecutionError::new(&codes::eval::PADDING, message)
        .note("padding belongs to no element, and what it holds is not defined: the program has no defined result")
}

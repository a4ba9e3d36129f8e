//! What reads an array's memory, written out: bitcasts between layouts, and the call that reads several arrays as one.
//!
//! Most bitcasts move pieces ([`Moves`]). The others become what [`MemoryForm`] says: transposes, paddings and reshapes
//! into the memory, and back out of it under the other layout. Padding is filled with zeros; that nothing depends on it
//! has been found before ([`hloom_eval::padding`]).

use super::slices::common_source;
use hloom_ir::Builder;
use hloom_ir::attributes::{PaddingDim, SliceDim};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::infer::ShapeError;
use hloom_ir::layout::DimVec;
use hloom_ir::layout::bitcast::Moves;
use hloom_ir::layout::memory::{MemoryForm, element_bits};
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::ArrayShape;

/// What an instruction that reads memory does, in steps that do not ask for layouts.
pub(super) enum Reading {
    /// It gives its operand.
    Identity(InstructionId),
    /// It moves pieces of its operand.
    Moves(InstructionId, Moves),
    /// It reads the memory of these values, one after another; what they were is kept, since their shapes change.
    Memory(Vec<(InstructionId, ArrayShape)>),
}

/// The call that reads the memory of its operands as one array.
const CONCAT_BITCAST: &str = "ConcatBitcast";

/// Whether `i` reads memory.
pub(super) fn reads_memory(module: &Module, i: InstructionId) -> bool {
    match &module[i].op {
        Op::Bitcast => true,
        Op::CustomCall(call) => &*call.target == CONCAT_BITCAST,
        _ => false,
    }
}

impl Reading {
    /// What `i`, which reads memory, does; `None` if that is not known.
    pub(super) fn of(module: &Module, i: InstructionId) -> Option<Reading> {
        let to = module[i].shape.as_array()?;
        let source = if module[i].op == Op::Bitcast { None } else { common_source(module, i) };
        let read = source.as_ref().map_or(module[i].operands(), std::slice::from_ref);
        let from: Vec<(InstructionId, ArrayShape)> =
            read.iter().map(|&o| Some((o, module[o].shape.as_array()?.clone()))).collect::<Option<_>>()?;
        if to.is_dynamic() || from.iter().any(|(_, a)| a.is_dynamic()) {
            return None;
        }
        if let [(value, from)] = &from[..] {
            // Before a module is scheduled its layouts are proposals, and a bitcast to the same shape is no transpose.
            if module[i].op == Op::Bitcast && from.same_dims_and_type(to) && !module.is_scheduled {
                return Some(Reading::Identity(*value));
            }
            if let Some(moves) = Moves::of(from, to) {
                return Some(Reading::Moves(*value, moves));
            }
        }
        let known = |a: &ArrayShape| MemoryForm::of(a).is_some();
        let fits = |a: &ArrayShape| retypes(a, to);
        (known(to) && from.iter().all(|(_, a)| known(a) && fits(a))).then_some(Reading::Memory(from))
    }

    /// The same of what stands now for the values that it reads.
    pub(super) fn of_current(mut self, current: impl Fn(InstructionId) -> InstructionId) -> Reading {
        match &mut self {
            Reading::Identity(value) | Reading::Moves(value, _) => *value = current(*value),
            Reading::Memory(values) => values.iter_mut().for_each(|(value, _)| *value = current(*value)),
        }
        self
    }

    /// Adds the value of shape `to` that is read.
    pub(super) fn write_out(&self, b: &mut Builder<'_>, to: &ArrayShape) -> Result<InstructionId, ShapeError> {
        match self {
            Reading::Identity(operand) => Ok(*operand),
            Reading::Moves(operand, moves) => moved(b, *operand, moves, to),
            Reading::Memory(values) => {
                let mut memories = Vec::with_capacity(values.len());
                for (value, from) in values {
                    let memory = store(b, *value, from)?;
                    memories.push(retyped(b, memory, from, to)?);
                }
                let memory = if let [one] = memories[..] { one } else { b.concatenate(&memories, 0)? };
                load(b, memory, to)
            }
        }
    }
}

fn dims(b: &Builder<'_>, value: InstructionId) -> DimVec {
    b.shape(value).as_array().map(|a| a.dims().into()).unwrap_or_default()
}

fn reshape(b: &mut Builder<'_>, value: InstructionId, to: &[i64]) -> Result<InstructionId, ShapeError> {
    if dims(b, value).as_slice() == to { Ok(value) } else { b.reshape(value, to.iter().copied()) }
}

fn transpose(b: &mut Builder<'_>, value: InstructionId, order: &[i64]) -> Result<InstructionId, ShapeError> {
    let identity = order.iter().enumerate().all(|(k, &d)| d == k as i64);
    if identity { Ok(value) } else { b.transpose(value, order.iter().copied()) }
}

/// The bits of each element as elements of another type; a row-major array of one is a row-major array of the other.
fn bits(b: &mut Builder<'_>, mut value: InstructionId, to: ElementType) -> Result<InstructionId, ShapeError> {
    let Some(array) = b.shape(value).as_array() else { return Ok(value) };
    let from = array.element_type;
    if from == to {
        return Ok(value);
    }
    let mut dims: DimVec = array.dims().into();
    if from.is_complex() && from.component() != to {
        // Its two parts lie beside each other; bits of complex numbers are not asked for.
        let parts = bits(b, value, from.component())?;
        let wide = from.component().bits();
        if to.bits() <= wide {
            let bits = bits(b, parts, to)?;
            dims.push(i64::from(from.bits() / to.bits()));
            return reshape(b, bits, &dims);
        }
        // Complex numbers of wider parts: what makes one stands in one dimension.
        if to.is_complex() && from.bits() < to.bits() {
            dims.pop();
            dims.push(i64::from(to.bits() / wide));
            let parts = reshape(b, parts, &dims)?;
            return bits(b, parts, to);
        }
        return bits(b, parts, to);
    }
    if from.is_complex() {
        let (re, im) = (b.real(value)?, b.imag(value)?);
        let last = dims.len() as i64;
        dims.push(1);
        let parts = [reshape(b, re, &dims)?, reshape(b, im, &dims)?];
        return b.concatenate(&parts, last);
    }
    if to.is_complex() {
        let part = to.component();
        if from.bits() < part.bits() {
            dims.pop();
            dims.extend([2, i64::from(part.bits() / from.bits())]);
            value = reshape(b, value, &dims)?;
        }
        let parts = bits(b, value, part)?;
        return complex(b, parts);
    }
    if from.bits() > to.bits() {
        dims.push(i64::from(from.bits() / to.bits()));
    } else if from.bits() < to.bits() {
        dims.pop();
    }
    b.push_shaped(Op::BitcastConvert, &[value], ArrayShape::new(to, dims).with_default_layout())
}

/// Complex numbers of pairs of numbers along the last dimension.
fn complex(b: &mut Builder<'_>, pairs: InstructionId) -> Result<InstructionId, ShapeError> {
    let mut dims = dims(b, pairs);
    let all: Vec<SliceDim> = dims.iter().map(|&limit| SliceDim { start: 0, limit, stride: 1 }).collect();
    dims.pop();
    let mut part = |n: i64| {
        let mut cut = all.clone();
        if let Some(last) = cut.last_mut() {
            (last.start, last.limit) = (n, n + 1);
        }
        let one = b.slice(pairs, cut)?;
        reshape(b, one, &dims)
    };
    let (re, im) = (part(0)?, part(1)?);
    b.complex(re, im)
}

fn moved(
    b: &mut Builder<'_>,
    value: InstructionId,
    moves: &Moves,
    to: &ArrayShape,
) -> Result<InstructionId, ShapeError> {
    let wide = b.shape(value).element_type().is_some_and(|t| t.bits() > to.element_type.bits());
    let mut value = if wide { bits(b, value, moves.unit)? } else { value };
    if !moves.is_reshape() {
        value = reshape(b, value, &moves.split)?;
        value = transpose(b, value, &moves.order)?;
    }
    value = reshape(b, value, &moves.joined)?;
    bits(b, value, to.element_type)
}

/// The memory of a value of that shape, place by place.
fn store(b: &mut Builder<'_>, value: InstructionId, shape: &ArrayShape) -> Result<InstructionId, ShapeError> {
    let Some(form) = MemoryForm::of(shape) else { return Ok(value) };
    let mut value = transpose(b, value, &form.order)?;
    for stage in &form.stages {
        value = reshape(b, value, &stage.joined)?;
        value = padded(b, value, &stage.padded)?;
        value = reshape(b, value, &stage.split)?;
        value = transpose(b, value, &stage.order)?;
    }
    reshape(b, value, &[form.count])
}

fn padded(b: &mut Builder<'_>, value: InstructionId, sizes: &[i64]) -> Result<InstructionId, ShapeError> {
    let have = dims(b, value);
    let Some(element_type) = b.shape(value).element_type().filter(|_| have.as_slice() != sizes) else {
        return Ok(value);
    };
    let zero = b.literal(Literal::zero(element_type))?;
    let padding = have.iter().zip(sizes).map(|(n, size)| PaddingDim { low: 0, high: size - n, interior: 0 });
    let padding: Vec<PaddingDim> = padding.collect();
    b.pad(value, zero, padding)
}

fn cut(b: &mut Builder<'_>, value: InstructionId, sizes: &[i64]) -> Result<InstructionId, ShapeError> {
    if dims(b, value).as_slice() == sizes {
        return Ok(value);
    }
    b.slice(value, sizes.iter().map(|&limit| SliceDim { start: 0, limit, stride: 1 }))
}

/// The value of that shape out of its memory, which need not have all of it.
fn load(b: &mut Builder<'_>, memory: InstructionId, shape: &ArrayShape) -> Result<InstructionId, ShapeError> {
    let Some(form) = MemoryForm::of(shape) else { return Ok(memory) };
    let have = dims(b, memory).first().copied().unwrap_or(0);
    let memory = padded(b, memory, &[have.max(form.count)])?;
    let mut value = cut(b, memory, &[form.count])?;
    for stage in form.stages.iter().rev() {
        value = reshape(b, value, &stage.dims())?;
        value = transpose(b, value, &inverse(&stage.order))?;
        value = reshape(b, value, &stage.padded)?;
        value = cut(b, value, &stage.joined)?;
    }
    value = reshape(b, value, &form.physical)?;
    transpose(b, value, &inverse(&form.order))
}

fn inverse(order: &[i64]) -> DimVec {
    let mut inverse: DimVec = order.into();
    for (k, &d) in order.iter().enumerate() {
        inverse[d as usize] = k as i64;
    }
    inverse
}

/// Whether places of `from` can be read as places of `to`: as they are, or with all bits of both being elements.
fn retypes(from: &ArrayShape, to: &ArrayShape) -> bool {
    let exact = |a: &ArrayShape| element_bits(a) == i64::from(a.element_type.bits());
    let (a, b) = (element_bits(from), element_bits(to));
    from.element_type == to.element_type && a == b || exact(from) && exact(to) && a.max(b) % a.min(b) == 0
}

/// Places of one type as places of another.
fn retyped(
    b: &mut Builder<'_>,
    memory: InstructionId,
    from: &ArrayShape,
    to: &ArrayShape,
) -> Result<InstructionId, ShapeError> {
    let (from_bits, to_bits) = (element_bits(from), element_bits(to));
    let mut memory = memory;
    let mut count = dims(b, memory).first().copied().unwrap_or(0);
    if from_bits < to_bits {
        let ratio = to_bits / from_bits;
        count = count / ratio + i64::from(count % ratio != 0);
        memory = padded(b, memory, &[count * ratio])?;
        memory = reshape(b, memory, &[count, ratio])?;
    } else {
        count *= from_bits / to_bits;
    }
    memory = bits(b, memory, to.element_type)?;
    reshape(b, memory, &[count])
}

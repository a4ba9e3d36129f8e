//! Values fetched in slices of their memory and put together again, as sliced prefetches do: that is the value itself.
//!
//! A call that reads several arrays as one is one bitcast where these are slices of one array along its slowest dimension,
//! one behind the other, whose memories together are the memory of that array.

use hloom_ir::entity::InstructionId;
use hloom_ir::layout::Layout;
use hloom_ir::layout::memory::{MemoryForm, element_bits};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::ArrayShape;

/// The array whose memory, from beginning to end, the operands of `i` are; `None` if they are not of one array.
pub(super) fn common_source(module: &Module, i: InstructionId) -> Option<InstructionId> {
    let mut whole = None;
    let (mut from, mut place) = (0, 0);
    for &operand in module[i].operands() {
        let (source, slice) = sliced(module, operand)?;
        let array = module[source].shape.as_array()?;
        let part = module[operand].shape.as_array()?;
        if *whole.get_or_insert(source) != source || !same_order(array, part) {
            return None;
        }
        let form = MemoryForm::of(array)?;
        let Op::Slice { dims } = &module[slice].op else { return None };
        for (d, (dim, &size)) in dims.iter().zip(array.dims()).enumerate() {
            let start = if form.order.first() == Some(&(d as i64)) { from } else { 0 };
            let limit = if form.order.first() == Some(&(d as i64)) { dim.limit } else { size };
            if (dim.start, dim.limit, dim.stride) != (start, limit, 1) || dim.limit <= dim.start {
                return None;
            }
        }
        let first: Vec<i64> = dims.iter().map(|d| d.start).collect();
        if form.position(&first) != place {
            return None;
        }
        place += MemoryForm::of(part)?.count;
        let &slowest = form.order.first()?;
        from = dims.get(slowest as usize)?.limit;
    }
    let source = whole?;
    (MemoryForm::of(module[source].shape.as_array()?)?.count == place).then(|| beginning(module, source))
}

/// What `value` is a slice of, and the instruction that says which: a slice, or one in an asynchronous computation.
fn sliced(module: &Module, value: InstructionId) -> Option<(InstructionId, InstructionId)> {
    match &module[value].op {
        Op::Slice { .. } => Some((*module[value].operands().first()?, value)),
        Op::AsyncDone => {
            let &start = module[value].operands().first()?;
            let Op::AsyncStart(computation) = &module[start].op else { return None };
            let root = module.root(computation.calls)?;
            let &parameter = module[root].operands().first()?;
            let is_slice = matches!(module[root].op, Op::Slice { .. })
                && matches!(module[parameter].op, Op::Parameter { number: 0, .. });
            match module[start].operands() {
                &[source] if is_slice => Some((source, root)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether a part of an array lies in memory as the array does, wherever that memory is.
fn same_order(array: &ArrayShape, part: &ArrayShape) -> bool {
    let apart = |shape: &ArrayShape| Layout { memory_space: 0, ..shape.layout.clone().unwrap_or_default() };
    array.element_type == part.element_type && array.layout.is_some() && apart(array) == apart(part)
}

/// The value that `source` is other views of, of the same size in memory.
fn beginning(module: &Module, source: InstructionId) -> InstructionId {
    let bits = |i: InstructionId| {
        let array = module[i].shape.as_array()?;
        MemoryForm::of(array)?.count.checked_mul(element_bits(array))
    };
    let mut value = source;
    while let (Op::Bitcast, &[operand]) = (&module[value].op, module[value].operands())
        && bits(operand).is_some()
        && bits(operand) == bits(value)
    {
        value = operand;
    }
    value
}

//! Instructions for which there are kernels by hand: attention, sorts by one key, top-k, and prefix scans.

use hloom_cuda_attention::attention_kernels;
use hloom_cuda_kernels::number::Number;
use hloom_cuda_kernels::order::{FloatOrder, KeyOrder};
use hloom_cuda_kernels::scan::{ScanOperation, ScanShape, prefix_scan};
use hloom_cuda_kernels::sort::{SortShape, SortValue, radix_sort, sorts_in_place};
use hloom_cuda_kernels::top_k::{TopKShape, top_k};
use hloom_cuda_kernels::{Architecture, KernelArgument, KernelSequence};
use hloom_eval::comparator::keys_of;
use hloom_eval::fold::Fold;
use hloom_ir::attributes::{ComparisonDirection, Window};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};
use hloom_ir::shape::ArrayShape;

/// The kernels of an instruction, if there are any by hand.
pub(crate) fn kernels(module: &Module, id: InstructionId, architecture: Architecture) -> Option<KernelSequence> {
    match &module[id].op {
        Op::Sort { .. } => sort(module, id, architecture),
        Op::TopK { .. } => largest(module, id, architecture),
        Op::ReduceWindow { .. } => scan(module, id, architecture),
        Op::Fusion(_) => attention_kernels(module, id, architecture)?.ok(),
        _ => None,
    }
}

fn array(module: &Module, id: InstructionId) -> Option<&ArrayShape> {
    module[id].shape.as_array().filter(|a| !a.is_dynamic())
}

fn number(element_type: ElementType) -> Option<Number> {
    Some(match element_type {
        // Narrower integers are stored in bytes, with their sign.
        ElementType::U8 | ElementType::Pred | ElementType::U4 | ElementType::U2 | ElementType::U1 => Number::U8,
        ElementType::S8 | ElementType::S4 | ElementType::S2 | ElementType::S1 => Number::S8,
        ElementType::U16 => Number::U16,
        ElementType::S16 => Number::S16,
        ElementType::U32 => Number::U32,
        ElementType::S32 => Number::S32,
        ElementType::U64 => Number::U64,
        ElementType::S64 => Number::S64,
        ElementType::F16 => Number::F16,
        ElementType::Bf16 => Number::Bf16,
        ElementType::F32 => Number::F32,
        ElementType::F64 => Number::F64,
        _ => return None,
    })
}

fn product(sizes: &[i64]) -> Option<u64> {
    sizes.iter().try_fold(1u64, |n, &size| n.checked_mul(u64::try_from(size).ok()?))
}

/// A sort of rows by one key. Where keys are compared so that a NaN has no place, NaNs come last (first, if the order is
/// descending): any place is right for them.
fn sort(module: &Module, id: InstructionId, architecture: Architecture) -> Option<KernelSequence> {
    let (shape, order) = sort_shape(module, id)?;
    let mut sequence = radix_sort(&shape, architecture).ok()?;
    for argument in sequence.kernels.iter_mut().flat_map(|k| &mut k.arguments) {
        if let KernelArgument::Operand(n) | KernelArgument::Result(n) = argument {
            *n = u32::try_from(*order.get(*n as usize)?).ok()?;
        }
    }
    Some(sequence)
}

/// What a sort sorts, and which operands these are: the keys first, then the others in their order.
fn sort_shape(module: &Module, id: InstructionId) -> Option<(SortShape, Vec<usize>)> {
    let Op::Sort { dimension, to_apply, .. } = module[id].op else { return None };
    let [key] = keys_of(module, to_apply)?[..] else { return None };
    let operands = module[id].operands();
    let keys = array(module, *operands.get(key.column)?)?;
    let rank = keys.rank();
    if usize::try_from(dimension).ok()? + 1 != rank {
        return None;
    }
    let (&length, outer) = keys.dims().split_last()?;
    let order: Vec<usize> = [key.column].into_iter().chain((0..operands.len()).filter(|&n| n != key.column)).collect();
    let value = |&n: &usize| {
        Some(SortValue::Array { bytes: u32::try_from(array(module, operands[n])?.element_type.bytes()).ok()? })
    };
    let shape = SortShape {
        order: KeyOrder {
            key: number(keys.element_type)?,
            floats: if key.total { FloatOrder::Total } else { FloatOrder::Canonical },
            descending: key.descending,
        },
        rows: product(outer)?,
        length: u64::try_from(length).ok()?,
        values: order[1..].iter().map(value).collect::<Option<_>>()?,
    };
    Some((shape, order))
}

/// The first of each row.
fn largest(module: &Module, id: InstructionId, architecture: Architecture) -> Option<KernelSequence> {
    let (&Op::TopK { k, largest, .. }, &[operand]) = (&module[id].op, module[id].operands()) else { return None };
    let from = array(module, operand)?;
    let leaves = module[id].shape.leaves();
    if leaves.len() != 2 || leaves[1].1.element_type() != Some(ElementType::S32) {
        return None;
    }
    let (&length, outer) = from.dims().split_last()?;
    let order = KeyOrder { key: number(from.element_type)?, floats: FloatOrder::Total, descending: largest };
    let (rows, length, k) = (product(outer)?, u64::try_from(length).ok()?, u64::try_from(k).ok()?);
    top_k(&TopKShape { order, rows, length, k }, architecture).ok()
}

/// Windows that reach from each element to an end of its dimension.
fn scan(module: &Module, id: InstructionId, architecture: Architecture) -> Option<KernelSequence> {
    prefix_scan(&scan_shape(module, id)?, architecture).ok()
}

/// Whether the kernels of an instruction have read all of an operand's elements before the first is written over.
pub(crate) fn works_in_place(module: &Module, id: InstructionId) -> bool {
    match module[id].op {
        Op::Sort { .. } => sort_shape(module, id).is_some_and(|(shape, _)| sorts_in_place(&shape)),
        Op::ReduceWindow { .. } => scan_shape(module, id).is_some(),
        _ => true,
    }
}

fn scan_shape(module: &Module, id: InstructionId) -> Option<ScanShape> {
    let (Op::ReduceWindow { window, to_apply }, &[operand, init]) = (&module[id].op, module[id].operands()) else {
        return None;
    };
    let (from, to) = (array(module, operand)?, array(module, id)?);
    if from.dims() != to.dims() || from.element_type != to.element_type {
        return None;
    }
    let (dimension, reverse) = scanned(window, from.dims())?;
    let operation = match Fold::known_operation(module, *to_apply) {
        Some(BinaryOp::Add) => ScanOperation::Sum,
        Some(BinaryOp::Multiply) => ScanOperation::Product,
        Some(BinaryOp::Maximum) => ScanOperation::Max,
        Some(BinaryOp::Minimum) => ScanOperation::Min,
        None if adds_exponentials(module, *to_apply) => ScanOperation::LogSumExp,
        _ => return None,
    };
    if !changes_nothing(module, init, operation) {
        return None;
    }
    Some(ScanShape {
        element: number(from.element_type)?,
        operation,
        outer: product(&from.dims()[..dimension])?,
        length: u64::try_from(from.dims()[dimension]).ok()?,
        inner: product(&from.dims()[dimension + 1..])?,
        reverse,
    })
}

/// Whether a function is `log(exp(a) + exp(b))` as it is written to keep its digits: the larger of both, and what the
/// other adds to it, `log1p(exp(-|a - b|))`. Where the difference is no number the sum of both is taken.
fn adds_exponentials(module: &Module, function: ComputationId) -> bool {
    let unary = |i: InstructionId, wanted: UnaryOp| match (&module[i].op, module[i].operands()) {
        (Op::Unary { op, .. }, &[of]) if *op == wanted => Some(of),
        _ => None,
    };
    let binary = |i: InstructionId, wanted: BinaryOp| match (&module[i].op, module[i].operands()) {
        (Op::Binary(op), &[a, b]) if *op == wanted => Some([a, b]),
        _ => None,
    };
    let parts = || {
        let [a, b] = module.parameters(function)[..] else { return None };
        let is_both = |of: [InstructionId; 2]| of == [a, b] || of == [b, a];
        let mut sum = module.root(function)?;
        if let (Op::Select, &[test, both, usual]) = (&module[sum].op, module[sum].operands()) {
            let (Op::Compare { direction: ComparisonDirection::Ne, .. }, &[x, y]) =
                (&module[test].op, module[test].operands())
            else {
                return None;
            };
            let difference = binary(x, BinaryOp::Subtract)?;
            (x == y && is_both(difference) && is_both(binary(both, BinaryOp::Add)?)).then_some(())?;
            sum = usual;
        }
        let terms = binary(sum, BinaryOp::Add)?;
        [terms, [terms[1], terms[0]]].into_iter().find_map(|[larger, more]| {
            is_both(binary(larger, BinaryOp::Maximum)?).then_some(())?;
            let power = unary(unary(more, UnaryOp::LogPlusOne)?, UnaryOp::Exponential)?;
            let distance = unary(unary(power, UnaryOp::Negate)?, UnaryOp::Abs)?;
            is_both(binary(distance, BinaryOp::Subtract)?).then_some(())
        })
    };
    parts().is_some()
}

/// The dimension along which every window reaches to an end, and whether that is the last element.
fn scanned(window: &Window, dims: &[i64]) -> Option<(usize, bool)> {
    let mut found = None;
    for (d, (w, &size)) in window.dims.iter().zip(dims).enumerate() {
        if w.stride != 1 || w.window_dilation != 1 || w.base_dilation != 1 {
            return None;
        }
        if w.size == 1 && w.padding_low == 0 && w.padding_high == 0 {
            continue;
        }
        let ends = (w.padding_low, w.padding_high);
        let reverse = match ends {
            (low, 0) if low == size - 1 => false,
            (0, high) if high == size - 1 => true,
            _ => return None,
        };
        if found.is_some() || w.size != size {
            return None;
        }
        found = Some((d, reverse));
    }
    found
}

/// Whether an initial value is the one that leaves every number as it is.
fn changes_nothing(module: &Module, init: InstructionId, operation: ScanOperation) -> bool {
    let Op::Constant(hloom_ir::op::ConstantValue::Literal(literal)) = &module[init].op else { return false };
    let Some(array) = literal.as_array() else { return false };
    let Ok(value) = hloom_value::Array::from_literal(array) else { return false };
    let is_float = array.element_type().is_float();
    let wide = if is_float { ElementType::F64 } else { ElementType::S64 };
    let Ok(value) = hloom_eval::ops::elementwise::convert(value, wide) else { return false };
    let (float, integer) =
        (value.as_slice::<f64>().and_then(<[f64]>::first), value.as_slice::<i64>().and_then(<[i64]>::first));
    match operation {
        ScanOperation::Sum => float == Some(&0.0) || integer == Some(&0),
        ScanOperation::Product => float == Some(&1.0) || integer == Some(&1),
        ScanOperation::Max if is_float => float == Some(&f64::NEG_INFINITY),
        ScanOperation::Min if is_float => float == Some(&f64::INFINITY),
        ScanOperation::Max | ScanOperation::Min => {
            let (t, n) = (array.element_type(), integer.copied());
            let bits = t.bits().min(64);
            let (least, most) = match t.is_signed_integer() {
                true => (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits)),
                // The largest of 64 bits without a sign reads as -1.
                false => (0, if bits == 64 { -1 } else { (1i64 << bits) - 1 }),
            };
            n == Some(if operation == ScanOperation::Max { least } else { most })
        }
        ScanOperation::LogSumExp => float == Some(&f64::NEG_INFINITY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text;

    const HOPPER: Architecture = Architecture { capability: 90, accelerated: true };

    fn found(text: &str) -> Option<KernelSequence> {
        let module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        kernels(&module, module.root(module.entry()?)?, HOPPER)
    }

    #[test]
    fn keys_that_are_not_the_first_operand_are_found() {
        let sort = found(
            "HloModule m

             lt {
               i = s32[] parameter(0)
               j = s32[] parameter(1)
               a = f32[] parameter(2)
               b = f32[] parameter(3)
               ROOT c = pred[] compare(a, b), direction=LT, type=TOTALORDER
             }

             ENTRY e {
               i = s32[8,100] parameter(0)
               x = f32[8,100] parameter(1)
               ROOT s = (s32[8,100], f32[8,100]) sort(i, x), dimensions={1}, to_apply=lt
             }",
        )
        .unwrap();
        let first = &sort.kernels[0].arguments;
        assert!(first.contains(&KernelArgument::Operand(1)), "{first:?}");
    }

    #[test]
    fn running_sums_are_scans_and_other_windows_are_not() {
        let of = |window: &str, init: &str| {
            found(&format!(
                "HloModule m

                 add {{
                   a = f32[] parameter(0)
                   b = f32[] parameter(1)
                   ROOT c = f32[] add(a, b)
                 }}

                 ENTRY e {{
                   x = f32[16,100] parameter(0)
                   i = f32[] constant({init})
                   ROOT s = f32[16,100] reduce-window(x, i), window={{{window}}}, to_apply=add
                 }}"
            ))
            .is_some()
        };
        assert!(of("size=1x100 pad=0_0x99_0", "0"));
        assert!(of("size=1x100 pad=0_0x0_99", "0"));
        assert!(!of("size=1x100 pad=0_0x99_0", "1"));
        assert!(!of("size=1x3 pad=0_0x1_1", "0"));
    }
}

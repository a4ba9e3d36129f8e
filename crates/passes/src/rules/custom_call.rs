//! Custom calls of other machines' compilers, written out as what they compute.

use super::{array, beside, operand};
use crate::rewrite::Rule;
use hloom_eval::comparator::keys_of;
use hloom_eval::custom_call::async_collective::one_by_one;
use hloom_ir::attributes::{DotDimensionNumbers, PrecisionConfig};
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Dot, Op};
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::{ArrayShape, Shape};
use serde_json::Value as Json;

/// The rules.
pub(super) static RULES: [Rule; 9] = [
    Rule {
        name: "sharding-call",
        statement: "a call that says how a value is spread, where there is one partition → the value",
        opcodes: &[Opcode::CustomCall],
        apply: sharding,
    },
    Rule {
        name: "gemm-call",
        statement: "a call of cuBLAS → dot, scaled, with what is added and the activation",
        opcodes: &[Opcode::CustomCall],
        apply: gemm,
    },
    Rule {
        name: "top-k-call",
        statement: "a call of TopK, whose comparator if any asks for the largest or the smallest → topk",
        opcodes: &[Opcode::CustomCall],
        apply: top_k,
    },
    Rule {
        name: "index-promise-call",
        statement: "a call that promises something of indices, or says how they are packed → the indices",
        opcodes: &[Opcode::CustomCall],
        apply: index_promise,
    },
    Rule {
        name: "allocate-call",
        statement: "a call that gives memory whose content does not matter → zeros",
        opcodes: &[Opcode::CustomCall],
        apply: allocate,
    },
    Rule {
        name: "x64-split-call",
        statement: "a call that gives one half of 64-bit numbers → a shift and a convert, or what a convert leaves",
        opcodes: &[Opcode::CustomCall],
        apply: split_wide,
    },
    Rule {
        name: "x64-combine-call",
        statement: "a call that makes 64-bit numbers of their halves → converts, and a shift and an or, or a sum",
        opcodes: &[Opcode::CustomCall],
        apply: combine_wide,
    },
    Rule {
        name: "async-collective-start",
        statement: "the start of a collective elsewhere → its operands, the collective's result, and flags",
        opcodes: &[Opcode::CustomCall],
        apply: collective_start,
    },
    Rule {
        name: "async-collective-done",
        statement: "the end of a collective elsewhere → the result that its start gave",
        opcodes: &[Opcode::CustomCall],
        apply: collective_done,
    },
];

pub(super) fn target(module: &Module, i: InstructionId) -> Option<&str> {
    match &module[i].op {
        Op::CustomCall(call) => Some(&call.target),
        _ => None,
    }
}

/// A number of a configuration, which protos in JSON may write as a string.
pub(super) fn number(options: &Json, key: &str, default: f64) -> Option<f64> {
    match options.get(key) {
        Some(Json::String(s)) => s.parse().ok(),
        Some(n) => n.as_f64(),
        None => Some(default),
    }
}

fn sharding(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[value] = module[i].operands() else { return None };
    let alone = module.config.num_partitions <= 1 && target(module, i)? == "Sharding";
    (alone && module[i].shape.equal_ignoring_layout(&module[value].shape)).then_some(value)
}

fn index_promise(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[indices] = module[i].operands() else { return None };
    let promises = matches!(
        target(module, i)?,
        "AssumeGatherIndicesInBound" | "AssumeScatterIndicesInBound" | "GatherScatterIndicesBitpacked"
    );
    (promises && module[i].shape.equal_ignoring_layout(&module[indices].shape)).then_some(indices)
}

fn top_k(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (&[operand], "TopK") = (module[i].operands(), target(module, i)?) else { return None };
    // A comparator of its own may take the smallest, or compare something else of the elements.
    let order = match *module[i].op.called_computations() {
        [] => None,
        [comparator] => match keys_of(module, comparator)?[..] {
            [key] if key.column == 0 && (key.total || key.without_nan || !key.element_type.is_float()) => {
                Some(key.descending)
            }
            _ => return None,
        },
        _ => return None,
    };
    let shape = module[i].shape.clone();
    let k = shape.as_tuple()?.first()?.as_array()?.dims().last().copied()?;
    let config = module[i].common.backend_config.as_deref();
    let options: Option<Json> = config.and_then(|text| serde_json::from_slice(text).ok());
    let largest = order.or_else(|| options?.get("largest")?.as_bool()).unwrap_or(true);
    let mut b = beside(module, i);
    let made = b.push(Op::TopK { k, largest, is_stable: true }, &[operand]).ok()?;
    b.shape(made).equal_ignoring_layout(&shape).then_some(made)
}

fn allocate(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    if !matches!(target(module, i)?, "AllocateBuffer" | "CreateBuffer") || !module[i].operands().is_empty() {
        return None;
    }
    let memory = array(module, i).filter(|a| !a.is_dynamic())?.clone();
    let mut b = beside(module, i);
    let zero = b.literal(Literal::zero(memory.element_type)).ok()?;
    b.broadcast(zero, memory.dims().iter().copied(), []).ok()
}

fn split_wide(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let is_high = match target(module, i)? {
        "X64SplitLow" => false,
        "X64SplitHigh" => true,
        _ => return None,
    };
    let whole = operand(module, i, 0)?;
    let (from, half) = (array(module, whole)?.element_type, array(module, i)?.element_type);
    if array(module, whole)?.dims() != array(module, i)?.dims() {
        return None;
    }
    let mut b = beside(module, i);
    match (from, half) {
        (ElementType::S64 | ElementType::U64, ElementType::S32 | ElementType::U32) => {
            let mut bits = converted(&mut b, whole, ElementType::U64)?;
            if is_high {
                let places = places_of_half(&mut b, whole)?;
                bits = b.push(Op::Binary(BinaryOp::ShiftRightLogical), &[bits, places]).ok()?;
            }
            b.convert(bits, half).ok()
        }
        (ElementType::F64, ElementType::F32) => {
            let high = b.convert(whole, half).ok()?;
            if is_high {
                return Some(high);
            }
            // Infinities and NaNs are in the high half alone.
            let nearest = b.convert(high, from).ok()?;
            let rest = b.subtract(whole, nearest).ok()?;
            let rest = b.convert(rest, half).ok()?;
            let dims: DimVec = b.shape(whole).as_array()?.dims().into();
            let (finite, zero) = (b.is_finite(high).ok()?, spread(&mut b, half, 0.0, &dims)?);
            b.select(finite, rest, zero).ok()
        }
        _ => None,
    }
}

fn combine_wide(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[low, high] = module[i].operands() else { return None };
    if target(module, i)? != "X64Combine" {
        return None;
    }
    let (whole, low_type) = (array(module, i)?, array(module, low)?.element_type);
    let (to, high_type) = (whole.element_type, array(module, high)?.element_type);
    if [low, high].iter().any(|&half| array(module, half).is_none_or(|a| a.dims() != whole.dims())) {
        return None;
    }
    let is_half = |t: ElementType| matches!(t, ElementType::S32 | ElementType::U32);
    let mut b = beside(module, i);
    match to {
        ElementType::S64 | ElementType::U64 if is_half(low_type) && is_half(high_type) => {
            // As a number without a sign, lest the sign of the low half gets into the high one.
            let low = converted(&mut b, low, ElementType::U32)?;
            let (low, high) = (converted(&mut b, low, ElementType::U64)?, converted(&mut b, high, ElementType::U64)?);
            let places = places_of_half(&mut b, high)?;
            let high = b.push(Op::Binary(BinaryOp::ShiftLeft), &[high, places]).ok()?;
            let bits = b.push(Op::Binary(BinaryOp::Or), &[low, high]).ok()?;
            converted(&mut b, bits, to)
        }
        ElementType::F64 if (low_type, high_type) == (ElementType::F32, ElementType::F32) => {
            let (low, high) = (b.convert(low, to).ok()?, b.convert(high, to).ok()?);
            b.add(high, low).ok()
        }
        _ => None,
    }
}

/// By how many places the high half of a 64-bit integer stands above the low one, for every element of `like`.
fn places_of_half(b: &mut Builder<'_>, like: InstructionId) -> Option<InstructionId> {
    let dims: DimVec = b.shape(like).as_array()?.dims().into();
    let places = b.constant(32u64).ok()?;
    b.broadcast(places, dims.iter().copied(), []).ok()
}

fn gemm(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let is_f8 = match target(module, i)? {
        "__cublas$gemm" | "__cublas$lt$matmul" => false,
        "__cublas$lt$matmul$f8" => true,
        _ => return None,
    };
    let whole: Json = serde_json::from_slice(module[i].common.backend_config.as_deref()?).ok()?;
    // Newer dumps wrap the configuration in one that is shared by all GPU operations.
    let options = whole.get("gemm_backend_config").unwrap_or(&whole);
    let (alpha, beta) = (number(options, "alpha_real", 1.0)?, number(options, "beta", 0.0)?);
    let epilogue = options.get("epilogue").and_then(Json::as_str).unwrap_or("DEFAULT");
    let (has_bias, activation) = match epilogue {
        "DEFAULT" | "" => (false, Activation::None),
        "BIAS" => (true, Activation::None),
        "RELU" => (false, Activation::Relu),
        "BIAS_RELU" => (true, Activation::Relu),
        "GELU" | "GELU_AUX" => (false, Activation::Gelu),
        "BIAS_GELU" | "BIAS_GELU_AUX" => (true, Activation::Gelu),
        "SILU" => (false, Activation::Silu),
        "BIAS_SILU" => (true, Activation::Silu),
        _ => return None,
    };
    let shape = module[i].shape.clone();
    let result = match &shape {
        Shape::Tuple(t) => t.first()?.as_array()?.clone(),
        single => single.as_array()?.clone(),
    };
    let mut operands = module[i].operands().to_vec();
    // Single numbers scale the operands of the f8 form; those after the first two are of results in f8, or of no use.
    let mut scales = Vec::new();
    if is_f8 {
        let is_scale = |o: InstructionId| array(module, o).is_some_and(|a| a.rank() == 0);
        scales = operands.iter().copied().skip(2).filter(|&o| is_scale(o)).collect();
        operands.retain(|o| !scales.contains(o));
        scales.truncate(2);
        if options.get("damax_output").and_then(Json::as_bool) == Some(true) {
            return None;
        }
    }
    let wanted = 2 + usize::from(beta != 0.0) + usize::from(has_bias);
    let is_float =
        |t: ElementType| matches!(t, ElementType::F16 | ElementType::Bf16 | ElementType::F32 | ElementType::F64);
    let is_operand = |(n, &o): (usize, &InstructionId)| {
        let t = array(module, o).map(|a| a.element_type);
        t.is_some_and(|t| is_float(t) || is_f8 && n < 2 && t.is_small_float())
    };
    let all_floats = operands.iter().enumerate().all(is_operand);
    if operands.len() != wanted
        || !all_floats
        || !is_float(result.element_type)
        || number(options, "alpha_imag", 0.0)? != 0.0
    {
        return None;
    }
    let list = |key: &str| -> Option<DimVec> {
        let entry = |n: &Json| n.as_i64().or_else(|| n.as_str()?.parse().ok());
        let Some(all) = options.get("dot_dimension_numbers")?.get(key) else { return Some(DimVec::new()) };
        all.as_array()?.iter().map(entry).collect()
    };
    let dims = DotDimensionNumbers {
        lhs_contracting: list("lhs_contracting_dimensions")?,
        rhs_contracting: list("rhs_contracting_dimensions")?,
        lhs_batch: list("lhs_batch_dimensions")?,
        rhs_batch: list("rhs_batch_dimensions")?,
    };
    let wide = match result.element_type {
        ElementType::F64 => ElementType::F64,
        _ if operands.iter().any(|&o| array(module, o).is_some_and(|a| a.element_type == ElementType::F64)) => {
            return None;
        }
        _ => ElementType::F32,
    };
    let mut operands = operands.into_iter();
    let (lhs, rhs) = (operands.next()?, operands.next()?);
    let mut b = beside(module, i);
    // Its numbers were not verified as part of the module: the builder does that now.
    let plain = b.dot(lhs, rhs, dims.clone()).ok()?;
    let product = ArrayShape::new(wide, b.shape(plain).as_array()?.dims().iter().copied()).with_default_layout();
    let sizes: DimVec = product.dims().into();
    if sizes.iter().product::<i64>() != result.dims().iter().product::<i64>() {
        return None;
    }
    let op = Op::Dot(Box::new(Dot { dims, precision: PrecisionConfig::default() }));
    let mut value = b.push_shaped(op, &[lhs, rhs], product).ok()?;
    if alpha != 1.0 {
        let factor = spread(&mut b, wide, alpha, &sizes)?;
        value = b.multiply(value, factor).ok()?;
    }
    for scale in scales {
        let scale = converted(&mut b, scale, wide)?;
        let factor = b.broadcast(scale, sizes.iter().copied(), []).ok()?;
        value = b.multiply(value, factor).ok()?;
    }
    if beta != 0.0 {
        let added = operands.next()?;
        let mut added = converted(&mut b, added, wide)?;
        if b.shape(added).as_array()?.dims() != &sizes[..] {
            added = b.reshape(added, sizes.iter().copied()).ok()?;
        }
        if beta != 1.0 {
            let factor = spread(&mut b, wide, beta, &sizes)?;
            added = b.multiply(added, factor).ok()?;
        }
        value = b.add(value, added).ok()?;
    }
    if has_bias {
        let bias = operands.next()?;
        let bias = converted(&mut b, bias, wide)?;
        let last = sizes.len().checked_sub(1)?;
        if b.shape(bias).as_array()?.dims() != &sizes[last..] {
            return None;
        }
        let bias = b.broadcast(bias, sizes.iter().copied(), [last as i64]).ok()?;
        value = b.add(value, bias).ok()?;
    }
    let mut values = vec![activated(&mut b, value, activation, &sizes)?];
    // What went into the activation comes out beside it.
    values.extend(epilogue.ends_with("_AUX").then_some(value));
    for value in &mut values {
        *value = converted(&mut b, *value, result.element_type)?;
        if sizes[..] != *result.dims() {
            *value = b.reshape(*value, result.dims().iter().copied()).ok()?;
        }
    }
    tuple_like(&mut b, &shape, values)
}

/// What a product goes through in the end.
#[derive(Clone, Copy)]
enum Activation {
    None,
    Relu,
    /// By tanh, as cuBLAS has it.
    Gelu,
    Silu,
}

fn activated(b: &mut Builder<'_>, x: InstructionId, activation: Activation, sizes: &[i64]) -> Option<InstructionId> {
    let t = b.shape(x).element_type()?;
    match activation {
        Activation::None => Some(x),
        Activation::Relu => {
            let zero = spread(b, t, 0.0, sizes)?;
            b.maximum(x, zero).ok()
        }
        // x / 2 × (1 + tanh(√(2/π) × (x + 0.044715 x³)))
        Activation::Gelu => {
            let square = b.multiply(x, x).ok()?;
            let cube = b.multiply(square, x).ok()?;
            let factor = spread(b, t, 0.044715, sizes)?;
            let cube = b.multiply(cube, factor).ok()?;
            let sum = b.add(x, cube).ok()?;
            let factor = spread(b, t, (2.0 / std::f64::consts::PI).sqrt(), sizes)?;
            let inner = b.multiply(sum, factor).ok()?;
            let tanh = b.tanh(inner).ok()?;
            let half = spread(b, t, 0.5, sizes)?;
            let half = b.multiply(x, half).ok()?;
            let rest = b.multiply(half, tanh).ok()?;
            b.add(half, rest).ok()
        }
        Activation::Silu => {
            let gate = b.logistic(x).ok()?;
            b.multiply(x, gate).ok()
        }
    }
}

pub(super) fn spread(b: &mut Builder<'_>, t: ElementType, value: f64, dims: &[i64]) -> Option<InstructionId> {
    let literal = if t == ElementType::F64 { Literal::scalar(value) } else { Literal::scalar(value as f32) };
    let number = b.literal(literal).ok()?;
    b.broadcast(number, dims.iter().copied(), []).ok()
}

pub(super) fn converted(b: &mut Builder<'_>, x: InstructionId, to: ElementType) -> Option<InstructionId> {
    if b.shape(x).element_type() == Some(to) { Some(x) } else { b.convert(x, to).ok() }
}

/// The values in the form of `shape`: alone, or followed by zeros for what the shape has more (workspaces, flags).
pub(super) fn tuple_like(b: &mut Builder<'_>, shape: &Shape, mut values: Vec<InstructionId>) -> Option<InstructionId> {
    let Shape::Tuple(elements) = shape else { return values.first().copied() };
    for (n, element) in elements.iter().enumerate() {
        match values.get(n) {
            Some(&value) if b.shape(value).equal_ignoring_layout(element) => {}
            Some(_) => return None,
            None => {
                let array = element.as_array()?;
                let zero = b.literal(Literal::zero(array.element_type)).ok()?;
                values.push(b.broadcast(zero, array.dims().iter().copied(), []).ok()?);
            }
        }
    }
    b.tuple(&values).ok()
}

fn is_collective(module: &Module, i: InstructionId) -> bool {
    let op = &module[i].op;
    op.collective().is_some() || matches!(op, Op::CollectivePermute(_))
}

fn collective_start(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    if target(module, i)? != "AsyncCollectiveStart" {
        return None;
    }
    let collective = operand(module, i, 0).filter(|&c| is_collective(module, c))?;
    let shape = module[i].shape.clone();
    let mut values: Vec<InstructionId> = module[collective].operands().to_vec();
    let is_tuple = shape.as_tuple().and_then(|elements| elements.get(values.len())).is_some_and(Shape::is_tuple);
    let results = module[collective].shape.as_tuple().map_or(0, <[Shape]>::len);
    let mut b = beside(module, i);
    match results {
        0 => values.push(collective),
        _ if is_tuple => values.push(collective),
        _ => {
            for n in 0..results as i64 {
                values.push(b.get_tuple_element(collective, n).ok()?);
            }
        }
    }
    tuple_like(&mut b, &shape, values)
}

fn collective_done(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    if target(module, i)? != "AsyncCollectiveDone" {
        return None;
    }
    // The result comes after the collective's own operands, which may have its shape, and before its repetition.
    let operands = module[i].operands();
    let repetition = operands.iter().position(|&o| is_collective(module, o)).unwrap_or(operands.len());
    let fits = |&&o: &&InstructionId| module[o].shape.equal_ignoring_layout(&module[i].shape);
    if let Some(&result) = operands[..repetition].iter().rev().find(fits) {
        return Some(result);
    }
    let first = one_by_one(module, &module[i].shape, &operands[..repetition])?;
    let results = operands[first..first + module[i].shape.leaf_count()].to_vec();
    beside(module, i).tuple(&results).ok()
}

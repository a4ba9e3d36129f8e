//! Convolutions that are products of matrices.
//!
//! Compilers for other machines write products as convolutions: each spatial dimension of such a convolution belongs to
//! the rows of the result, to its columns, to what is summed over, or to a batch, and the window says to which.

use super::{array, beside, dims, inverse, operand};
use crate::rewrite::Rule;
use hloom_ir::attributes::{ConvolutionKind, DotDimensionNumbers, WindowDim};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::{Convolution, Dot, Op};
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::ArrayShape;

/// convolution → dot.
pub(super) const AS_DOT: Rule = Rule {
    name: "convolution-as-dot",
    statement: "a convolution whose windows move along nothing → dot, with reshapes and a transpose around it",
    opcodes: &[Opcode::Convolution],
    apply: as_dot,
};

/// Operands of one type.
pub(super) const OF_ONE_TYPE: Rule = Rule {
    name: "dot-of-one-type",
    statement: "a dot of operands of two types of floats → the narrower converted to the wider",
    opcodes: &[Opcode::Dot],
    apply: of_one_type,
};

/// What a spatial dimension is in the product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// Of the first operand; the window is one element.
    Row,
    /// Of the second operand; the base is one element.
    Column,
    /// Summed over: the window is the base.
    Summed,
    /// In both operands: window `i` sees element `i` of the base through its own element `i` alone.
    Batch,
}

impl Role {
    fn of(window: &WindowDim, base: i64, kernel: i64, output: i64) -> Option<Role> {
        let unpadded = window.padding_low == 0 && window.padding_high == 0;
        let undilated = window.base_dilation == 1 && window.window_dilation == 1;
        let plain = unpadded && undilated && (window.stride == 1 || output == 1);
        if kernel == 1 && plain && output == base {
            return Some(Role::Row);
        }
        if plain && base == kernel && output == 1 && !window.window_reversal {
            return Some(Role::Summed);
        }
        let around = kernel - 1;
        if base == 1
            && output == kernel
            && undilated
            && window.stride == 1
            && window.window_reversal
            && (window.padding_low, window.padding_high) == (around, around)
        {
            return Some(Role::Column);
        }
        let apart = window.base_dilation == base && window.stride == (base - 1).max(1) && window.window_dilation == 1;
        let same = base == kernel && base == output;
        (same && apart && unpadded && !window.window_reversal).then_some(Role::Batch)
    }
}

fn as_dot(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Convolution(convolution) = &module[i].op else { return None };
    let is_plain = convolution.feature_group_count == 1
        && convolution.batch_group_count == 1
        && convolution.lhs_sparsity.is_none()
        && convolution.rhs_sparsity.is_none()
        && matches!(convolution.kind, ConvolutionKind::Unset | ConvolutionKind::Fprop);
    if !is_plain {
        return None;
    }
    let (convolution, result) = (convolution.clone(), array(module, i)?.clone());
    let (lhs, rhs) = (operand(module, i, 0)?, operand(module, i, 1)?);
    let (base, kernel) = (DimVec::from(dims(module, lhs)?), DimVec::from(dims(module, rhs)?));
    let product = EquivalentDot::new(&convolution, &base, &kernel, result.dims())?;
    let sizes = |list: &DimVec| list.iter().map(|&d| result.dims()[d as usize]).collect::<DimVec>();
    // Which dimension of the result each dimension of the product is; those of one element come last.
    let (made, all) = (sizes(&product.made), sizes(&product.all));
    let order = inverse(&product.all)?;
    let moved: Vec<i64> = order.iter().copied().filter(|&d| all[d as usize] != 1).collect();
    let is_sorted = moved.is_sorted();
    // An ordinary convolution by windows of one element whose result lies in another order is better done as such.
    if !is_sorted && !product.is_disguised {
        return None;
    }
    let mut b = beside(module, i);
    let without = |dropped: &[i64], dims: &DimVec| -> DimVec {
        (0..dims.len()).filter(|&d| !dropped.contains(&(d as i64))).map(|d| dims[d]).collect()
    };
    let lhs = b.reshape(lhs, without(&product.lhs_dropped, &base)).ok()?;
    let rhs = b.reshape(rhs, without(&product.rhs_dropped, &kernel)).ok()?;
    let op = Op::Dot(Box::new(Dot { dims: product.numbers, precision: convolution.precision }));
    let value =
        b.push_shaped(op, &[lhs, rhs], ArrayShape::new(result.element_type, made).with_default_layout()).ok()?;
    if is_sorted {
        return b.reshape(value, result.dims().iter().copied()).ok();
    }
    let value = b.reshape(value, all).ok()?;
    b.transpose(value, order).ok()
}

/// The product that a convolution is.
struct EquivalentDot {
    numbers: DotDimensionNumbers,
    /// Dimensions of one element that the product's operands have not.
    lhs_dropped: Vec<i64>,
    rhs_dropped: Vec<i64>,
    /// The dimensions of the convolution's result in the order in which the product makes them.
    made: DimVec,
    /// The same, and those of one element that it does not make.
    all: DimVec,
    /// Whether it is nothing that a program would call a convolution.
    is_disguised: bool,
}

impl EquivalentDot {
    fn new(convolution: &Convolution, base: &[i64], kernel: &[i64], output: &[i64]) -> Option<EquivalentDot> {
        let dims = &convolution.dims;
        // For each dimension of an operand the dimension of the result that it becomes.
        let mut lhs_free: Vec<(i64, i64)> = vec![(dims.input_batch, dims.output_batch)];
        let mut rhs_free: Vec<(i64, i64)> = vec![(dims.kernel_output_feature, dims.output_feature)];
        let mut summed: Vec<(i64, i64)> = vec![(dims.input_feature, dims.kernel_input_feature)];
        let (mut lhs_dropped, mut rhs_dropped) = (Vec::new(), Vec::new());
        let mut batch: Vec<(i64, i64, i64)> = Vec::new();
        let mut ones: Vec<i64> = Vec::new();
        let mut is_disguised = false;
        for (n, window) in convolution.window.dims.iter().enumerate() {
            let (l, r) = (*dims.input_spatial.get(n)?, *dims.kernel_spatial.get(n)?);
            let o = *dims.output_spatial.get(n)?;
            let size = |list: &[i64], d: i64| list.get(usize::try_from(d).ok()?).copied();
            match Role::of(window, size(base, l)?, size(kernel, r)?, size(output, o)?)? {
                Role::Row => {
                    lhs_free.push((l, o));
                    rhs_dropped.push(r);
                }
                Role::Column => {
                    rhs_free.push((r, o));
                    lhs_dropped.push(l);
                    is_disguised = true;
                }
                Role::Summed => {
                    summed.push((l, r));
                    ones.push(o);
                }
                Role::Batch => {
                    batch.push((l, r, o));
                    is_disguised = true;
                }
            }
        }
        lhs_free.sort_unstable();
        rhs_free.sort_unstable();
        let made: DimVec = batch.iter().map(|b| b.2).chain(lhs_free.iter().chain(&rhs_free).map(|f| f.1)).collect();
        let all: DimVec = made.iter().copied().chain(ones).collect();
        let after = |dropped: &[i64], d: i64| d - dropped.iter().filter(|&&x| x < d).count() as i64;
        let numbers = DotDimensionNumbers {
            lhs_contracting: summed.iter().map(|s| after(&lhs_dropped, s.0)).collect(),
            rhs_contracting: summed.iter().map(|s| after(&rhs_dropped, s.1)).collect(),
            lhs_batch: batch.iter().map(|b| after(&lhs_dropped, b.0)).collect(),
            rhs_batch: batch.iter().map(|b| after(&rhs_dropped, b.1)).collect(),
        };
        Some(EquivalentDot { numbers, lhs_dropped, rhs_dropped, made, all, is_disguised })
    }
}

fn of_one_type(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Dot(dot) = &module[i].op else { return None };
    let (dot, shape) = (dot.clone(), module[i].shape.clone());
    let &[lhs, rhs] = module[i].operands() else { return None };
    let (from, other) = (array(module, lhs)?.element_type, array(module, rhs)?.element_type);
    let rank = |t: ElementType| match t {
        ElementType::Bf16 | ElementType::F16 => Some(16),
        ElementType::F32 => Some(32),
        ElementType::F64 => Some(64),
        _ => None,
    };
    let (a, b) = (rank(from)?, rank(other)?);
    if a == b {
        return None;
    }
    let wide = if a > b { from } else { other };
    let mut builder = beside(module, i);
    let mut converted = |x: InstructionId, t: ElementType| match t == wide {
        true => Some(x),
        false => builder.convert(x, wide).ok(),
    };
    let (lhs, rhs) = (converted(lhs, from)?, converted(rhs, other)?);
    builder.push_shaped(Op::Dot(dot), &[lhs, rhs], shape).ok()
}

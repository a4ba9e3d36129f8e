//! The order of dimensions of convolutions.
//!
//! Kernels run along the innermost dimension of their operands. For most convolutions it matters little whether that is
//! one of features or a spatial one, and they take what is there. Two kinds are several times faster in one of them:
//! - Sums over large windows for few positions, as gradients of kernels are: with spatial dimensions innermost there are
//!   only runs of a few positions to work on; with images and features innermost they are nearly a product.
//! - Groups of a few features, or a few features of results: vectors of features would be almost empty, those of positions
//!   are full. Only where many features of the input lie side by side can vectors go along these.

use crate::rewrite::Rule;
use crate::rules::{array, beside, dims, inverse, is_identity, operand};
use hloom_ir::attributes::ConvDimensionNumbers;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::{Convolution, Op};
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::ArrayShape;

/// The rules.
pub(super) static RULES: &[Rule] = &[
    Rule {
        name: "convolution-of-transpose",
        statement: "convolution(transpose(x), transpose(k)) → convolution(x, k), in another order",
        opcodes: &[Opcode::Convolution],
        apply: of_transpose,
    },
    Rule {
        name: "transpose-of-convolution",
        statement: "transpose(convolution(x, k)) → convolution(x, k), in another order",
        opcodes: &[Opcode::Transpose],
        apply: transposed,
    },
    Rule {
        name: "convolution-in-best-order",
        statement: "convolution(x, k) → transpose(convolution(transpose(x), transpose(k))), in the order that suits it",
        opcodes: &[Opcode::Convolution],
        apply: in_best_order,
    },
];

/// What lies innermost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Innermost {
    /// A batch or feature dimension.
    Features,
    /// A spatial dimension.
    Spatial,
}

/// A window of so many taps sums over more than features.
const LARGE_WINDOW: i64 = 64;
/// Groups of more features fill vectors well enough.
const FEW_IN_GROUP: i64 = 8;
/// Features of the result that leave most of a vector empty, if so many features are summed for each.
const FEW_RESULTS: i64 = 4;
const MANY_SUMMED: i64 = 16;
/// Numbers side by side under a row of the window that fill vectors, in so many spatial dimensions at most.
const LONG_SUM: i64 = 48;
const MOST_SPATIAL: usize = 2;
/// Positions of an image that fill vectors.
const MANY_POSITIONS: i64 = 64;

/// The order in which a convolution is much faster, if there is one.
fn wanted(module: &Module, i: InstructionId, convolution: &Convolution) -> Option<Innermost> {
    use ElementType::{Bf16, F16, F32, F64};
    let (kernel, output) = (dims(module, operand(module, i, 1)?)?, array(module, i)?);
    matches!(output.element_type, F32 | F64 | Bf16 | F16).then_some(())?;
    let numbers = &convolution.dims;
    let size = |dims: &[i64], d: i64| dims.get(usize::try_from(d).ok()?).copied();
    let product =
        |dims: &[i64], list: &[i64]| list.iter().try_fold(1i64, |n, &d| Some(n.saturating_mul(size(dims, d)?)));
    let taps = product(kernel, &numbers.kernel_spatial)?;
    let positions = product(output.dims(), &numbers.output_spatial)?;
    if taps >= LARGE_WINDOW && taps >= positions.saturating_mul(4) {
        return Some(Innermost::Features);
    }
    let groups = convolution.feature_group_count.max(convolution.batch_group_count).max(1);
    let summed = size(kernel, numbers.kernel_input_feature)?;
    let results = size(kernel, numbers.kernel_output_feature)? / groups;
    let small_groups = groups > 1 && summed.max(results) <= FEW_IN_GROUP && summed.max(results) > 1;
    let spatial = numbers.input_spatial.len();
    // Kernels that sum along vectors go over all taps of a row at once, unless these are apart.
    let row = match convolution.window.dims.last() {
        Some(last) if last.window_dilation == 1 => last.size.saturating_mul(summed),
        _ => summed,
    };
    let along_sums = row >= LONG_SUM && spatial <= MOST_SPATIAL && numbers.input_feature == spatial as i64 + 1;
    let few_results = groups == 1 && results <= FEW_RESULTS && summed >= MANY_SUMMED && taps > 1 && !along_sums;
    (positions >= MANY_POSITIONS && (small_groups || few_results)).then_some(Innermost::Spatial)
}

/// What is innermost in the input, the kernel and the result.
fn innermost(numbers: &ConvDimensionNumbers) -> [Innermost; 3] {
    [&numbers.input_spatial, &numbers.kernel_spatial, &numbers.output_spatial].map(|spatial| {
        // As many spatial dimensions as there are, and two more.
        match spatial.contains(&(spatial.len() as i64 + 1)) {
            true => Innermost::Spatial,
            false => Innermost::Features,
        }
    })
}

/// Whether a convolution that wants `wanted` is fast in the order of `numbers`.
fn is_fine(numbers: &ConvDimensionNumbers, wanted: Option<Innermost>) -> bool {
    let [input, kernel, output] = innermost(numbers);
    match wanted {
        None => true,
        Some(Innermost::Features) => input == Innermost::Features && kernel == Innermost::Features,
        Some(Innermost::Spatial) => input == Innermost::Spatial && output == Innermost::Spatial,
    }
}

fn of_transpose(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Convolution(convolution) = &module[i].op else { return None };
    let wanted = wanted(module, i, convolution);
    let mut new = convolution.clone();
    let mut operands = [operand(module, i, 0)?, operand(module, i, 1)?];
    let numbers = &mut new.dims;
    let mut changed = false;
    for (n, value) in operands.iter_mut().enumerate() {
        let Op::Transpose { dimensions } = &module[*value].op else { continue };
        let before = numbers.clone();
        match n {
            0 => {
                permute(&mut numbers.input_spatial, [&mut numbers.input_batch, &mut numbers.input_feature], dimensions)?
            }
            _ => permute(
                &mut numbers.kernel_spatial,
                [&mut numbers.kernel_input_feature, &mut numbers.kernel_output_feature],
                dimensions,
            )?,
        }
        // Kernels whose features lie side by side are read faster; a loop may have its kernel transposed beforehand.
        let slower = n == 1 && innermost(numbers)[1] == Innermost::Spatial;
        if slower || !is_fine(numbers, wanted) && is_fine(&before, wanted) {
            *numbers = before;
            continue;
        }
        *value = operand(module, *value, 0)?;
        changed = true;
    }
    changed.then_some(())?;
    let shape = array(module, i)?.clone();
    beside(module, i).push_shaped(Op::Convolution(new), &operands, shape).ok()
}

fn transposed(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let (Op::Transpose { dimensions }, Op::Convolution(convolution)) = (&module[i].op, &module[inner].op) else {
        return None;
    };
    (module[inner].users() == [i]).then_some(())?;
    let wanted = wanted(module, inner, convolution);
    let to = inverse(dimensions)?;
    let mut new = convolution.clone();
    permute(&mut new.dims.output_spatial, [&mut new.dims.output_batch, &mut new.dims.output_feature], &to)?;
    // A kernel that reads features and writes positions side by side does neither well.
    let [input, _, output] = innermost(&new.dims);
    let turns = input == Innermost::Features && output == Innermost::Spatial;
    ((is_fine(&new.dims, wanted) || !is_fine(&convolution.dims, wanted)) && !turns).then_some(())?;
    let operands = [operand(module, inner, 0)?, operand(module, inner, 1)?];
    let shape = array(module, i)?.clone().with_default_layout();
    beside(module, i).push_shaped(Op::Convolution(new), &operands, shape).ok()
}

fn in_best_order(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Convolution(convolution) = &module[i].op else { return None };
    let wanted = wanted(module, i, convolution)?;
    (!is_fine(&convolution.dims, Some(wanted))).then_some(())?;
    let mut new = convolution.clone();
    let d = &convolution.dims;
    let order = |first: &[i64], spatial: &[i64], last: &[i64]| -> DimVec { [first, spatial, last].concat().into() };
    let (input, kernel, output) = match wanted {
        Innermost::Features => (
            order(&[d.input_feature], &d.input_spatial, &[d.input_batch]),
            order(&[d.kernel_input_feature], &d.kernel_spatial, &[d.kernel_output_feature]),
            order(&[], &d.output_spatial, &[d.output_batch, d.output_feature]),
        ),
        Innermost::Spatial => (
            order(&[d.input_batch, d.input_feature], &d.input_spatial, &[]),
            order(&[d.kernel_output_feature, d.kernel_input_feature], &d.kernel_spatial, &[]),
            order(&[d.output_batch, d.output_feature], &d.output_spatial, &[]),
        ),
    };
    let n = &mut new.dims;
    permute(&mut n.input_spatial, [&mut n.input_batch, &mut n.input_feature], &inverse(&input)?)?;
    permute(&mut n.kernel_spatial, [&mut n.kernel_input_feature, &mut n.kernel_output_feature], &inverse(&kernel)?)?;
    permute(&mut n.output_spatial, [&mut n.output_batch, &mut n.output_feature], &inverse(&output)?)?;
    let result = array(module, i)?;
    let made: DimVec = output.iter().map(|&d| result.dims().get(d as usize).copied()).collect::<Option<_>>()?;
    let shape = ArrayShape::new(result.element_type, made).with_default_layout();
    let (x, k) = (operand(module, i, 0)?, operand(module, i, 1)?);
    let mut b = beside(module, i);
    let mut in_order = |value: InstructionId, order: DimVec| match is_identity(&order) {
        true => Some(value),
        false => b.transpose(value, order).ok(),
    };
    let (x, k) = (in_order(x, input)?, in_order(k, kernel)?);
    let value = b.push_shaped(Op::Convolution(new), &[x, k], shape).ok()?;
    match is_identity(&output) {
        true => Some(value),
        false => b.transpose(value, inverse(&output)?).ok(),
    }
}

/// Dimension `d` becomes `to[d]`.
fn permute(spatial: &mut DimVec, others: [&mut i64; 2], to: &[i64]) -> Option<()> {
    for d in others.into_iter().chain(spatial.iter_mut()) {
        *d = *to.get(usize::try_from(*d).ok()?)?;
    }
    Some(())
}

//! Arithmetic of one instruction.

use super::Cost;
use super::positions::window_positions;
use hloom_ir::attributes::{ConvDimensionNumbers, Window};
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::instruction::Instruction;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Convolution, Op, UnaryOp};
use hloom_ir::shape::{ArrayShape, Shape};

/// A multiply and an add.
const MULTIPLY_ADD: u64 = 2;
/// Multiply-adds in the product of two complex numbers.
const COMPLEX_PRODUCT: u64 = 4;

/// Flops and transcendentals of one execution; `whole` knows what the computations it applies cost.
pub(super) fn own(module: &Module, id: InstructionId, whole: &SideTable<ComputationId, Cost>) -> Cost {
    let instruction = module.instruction(id);
    let results = elements_of_first(&instruction.shape);
    let operand = |n: usize| instruction.operands().get(n).map(|&o| &module.instruction(o).shape);
    let operand_elements = |n: usize| operand(n).map_or(0, elements_of_first);
    let applied = |computation: &ComputationId, times: u64| whole[*computation].in_registers() * times;
    let flops = |flops: u64| Cost { flops, ..Cost::default() };
    let transcendentals = |transcendentals: u64| Cost { transcendentals, ..Cost::default() };
    match &instruction.op {
        Op::Unary { op, .. } if is_transcendental(*op) => transcendentals(results),
        // The parts of a complex number are there already.
        Op::Unary { op: UnaryOp::Real | UnaryOp::Imag, .. } | Op::Binary(BinaryOp::Complex) => Cost::default(),
        Op::Binary(BinaryOp::Power | BinaryOp::Atan2) => transcendentals(results),
        Op::Unary { .. }
        | Op::Binary(_)
        | Op::Compare { .. }
        | Op::Select
        | Op::Clamp
        | Op::Convert
        | Op::StochasticConvert
        | Op::ReducePrecision { .. } => flops(results),
        Op::Map { to_apply, .. } => applied(to_apply, results),
        Op::Dot(dot) | Op::ScaledDot(dot) => flops(products(results, operand(0), &dot.dims.lhs_contracting)),
        Op::RaggedDot(dot) => flops(products(results, operand(0), &dot.dims.lhs_contracting)),
        Op::Convolution(c) => flops(convolution(instruction, operand(0), operand(1), c)),
        Op::Reduce { to_apply, .. } => applied(to_apply, operand_elements(0).saturating_sub(results)),
        Op::ReduceWindow { window, to_apply } => {
            applied(to_apply, results.saturating_mul(window_size(window).saturating_sub(1)))
        }
        Op::SelectAndScatter { window, select, scatter } => {
            let sources = operand_elements(1);
            applied(select, sources.saturating_mul(window_size(window).saturating_sub(1))) + applied(scatter, sources)
        }
        Op::Scan(scan) => {
            let steps = operand(0).and_then(Shape::as_array).and_then(|a| dim(a, scan.dimension)).unwrap_or(0);
            applied(&scan.to_apply, steps)
        }
        Op::Scatter(scatter) => {
            // N operands, the indices, N updates.
            let updates = instruction.operands().len() / 2 + 1;
            applied(&scatter.to_apply, operand_elements(updates))
        }
        Op::Sort { to_apply, .. } => {
            applied(to_apply, operand_elements(0).saturating_mul(log2_ceiling(operand_elements(0))))
        }
        Op::TopK { .. } => flops(operand_elements(0)),
        Op::Fft { length, .. } => {
            let logs: u64 = length.iter().map(|&n| log2_ceiling(u64::try_from(n).unwrap_or(0))).sum();
            flops(operand_elements(0).saturating_mul(logs).saturating_mul(MULTIPLY_ADD * COMPLEX_PRODUCT))
        }
        Op::Cholesky { .. } => flops(operand_elements(0).saturating_mul(last_dim(operand(0))) / 3),
        Op::TriangularSolve { .. } => {
            flops(operand_elements(1).saturating_mul(last_dim(operand(0))).saturating_mul(MULTIPLY_ADD) / 2)
        }
        // Mean and variance, or the two gradients, and the normalisation: a few passes over the data.
        Op::BatchNormTraining { .. } | Op::BatchNormGrad { .. } => flops(operand_elements(0).saturating_mul(8)),
        Op::BatchNormInference { .. } => flops(operand_elements(0).saturating_mul(4)),
        Op::Rng { .. } | Op::RngBitGenerator { .. } => transcendentals(elements_of_all(&instruction.shape)),
        Op::AllReduce(a) | Op::AllReduceStart(a) => applied(&a.to_apply, elements_of_operands(module, instruction)),
        Op::ReduceScatter(r) => applied(&r.to_apply, elements_of_operands(module, instruction)),
        Op::CollectiveReduce(r) => applied(&r.to_apply, elements_of_operands(module, instruction)),
        _ => Cost::default(),
    }
}

fn is_transcendental(op: UnaryOp) -> bool {
    // What may be asked for more or less exactly is what takes a series or a table.
    op.takes_result_accuracy()
}

/// The elements of an array; more than can be counted where they do not fit.
fn elements(shape: &ArrayShape) -> u64 {
    if shape.is_unbounded() {
        return 0;
    }
    shape.element_count().map_or(u64::MAX, |n| u64::try_from(n).unwrap_or(0))
}

/// The elements of an array or of the first array in a tuple: operations over several arrays work on them in step.
fn elements_of_first(shape: &Shape) -> u64 {
    match shape {
        Shape::Array(a) | Shape::Buffer(a) => elements(a),
        Shape::Tuple(t) => t.first().map_or(0, elements_of_first),
        Shape::Token | Shape::Opaque => 0,
    }
}

fn elements_of_all(shape: &Shape) -> u64 {
    match shape {
        Shape::Tuple(t) => t.iter().fold(0, |n, s| n.saturating_add(elements_of_all(s))),
        other => elements_of_first(other),
    }
}

fn elements_of_operands(module: &Module, instruction: &Instruction) -> u64 {
    let shapes = instruction.operands().iter().map(|&o| &module.instruction(o).shape);
    shapes.fold(0, |n, s| n.saturating_add(elements_of_all(s)))
}

fn dim(shape: &ArrayShape, d: i64) -> Option<u64> {
    let size = *shape.dims().get(usize::try_from(d).ok()?)?;
    u64::try_from(size).ok()
}

fn last_dim(shape: Option<&Shape>) -> u64 {
    let last = shape.and_then(Shape::as_array).and_then(|a| a.dims().last().copied());
    last.and_then(|d| u64::try_from(d).ok()).unwrap_or(0)
}

/// Multiply-adds of a dot: for each result as many as there are elements along the contracted dimensions.
fn products(results: u64, lhs: Option<&Shape>, contracting: &[i64]) -> u64 {
    let Some(lhs) = lhs.and_then(Shape::as_array) else { return 0 };
    let width = contracting.iter().fold(1u64, |n, &d| n.saturating_mul(dim(lhs, d).unwrap_or(0)));
    results.saturating_mul(width).saturating_mul(MULTIPLY_ADD)
}

fn window_size(window: &Window) -> u64 {
    window.dims.iter().fold(1, |n, d| n.saturating_mul(u64::try_from(d.size).unwrap_or(0)))
}

/// Multiply-adds of a convolution, of which those with padding and holes are left out.
fn convolution(instruction: &Instruction, lhs: Option<&Shape>, rhs: Option<&Shape>, c: &Convolution) -> u64 {
    let arrays = (lhs.and_then(Shape::as_array), rhs.and_then(Shape::as_array), instruction.shape.as_array());
    let (Some(lhs), Some(rhs), Some(result)) = arrays else { return 0 };
    let ConvDimensionNumbers {
        input_batch, input_spatial, kernel_input_feature, output_spatial, output_feature, ..
    } = &c.dims;
    let mut products = dim(rhs, *kernel_input_feature).unwrap_or(0);
    let batches = dim(lhs, *input_batch).unwrap_or(0) / u64::try_from(c.batch_group_count).unwrap_or(1).max(1);
    products = products.saturating_mul(dim(result, *output_feature).unwrap_or(0)).saturating_mul(batches);
    for (i, window) in c.window.dims.iter().enumerate() {
        let spatial = |dims: &[i64], shape| dims.get(i).and_then(|&d| dim(shape, d)).unwrap_or(0);
        let (input, output) = (spatial(input_spatial, lhs), spatial(output_spatial, result));
        products = products.saturating_mul(window_positions(window, input, output));
    }
    products.saturating_mul(MULTIPLY_ADD)
}

fn log2_ceiling(n: u64) -> u64 {
    u64::from(n.max(1).next_power_of_two().trailing_zeros())
}

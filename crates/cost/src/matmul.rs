//! Products and convolutions as what they are to a matrix unit: rows, columns, contracted elements, and a batch of them.
//!
//! TPU compilers write every dot as a convolution, batch and further output dimensions as spatial ones with odd windows;
//! [`Matmul::of`] finds them again, so that a convolution's flops are those of the dot that it stands for.

use crate::work::{Elementwise, elements};
use hloom_analysis::cost::window_positions;
use hloom_ir::ElementType;
use hloom_ir::attributes::{ConvDimensionNumbers, DotAlgorithm, Precision, PrecisionConfig, Window};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::ArrayShape;
use smallvec::SmallVec;

/// A product of matrices, or a batch of them.
#[derive(Clone, PartialEq, Debug)]
pub struct Matmul {
    /// Rows of each result.
    pub rows: f64,
    /// Those along the innermost dimension that rows are counted over.
    pub inner_rows: f64,
    /// Columns of each result.
    pub columns: f64,
    /// Elements that are summed for each.
    pub contracted: f64,
    /// How many such products.
    pub batch: f64,
    /// Among how many groups of features the columns are divided: those of a group share no input with another.
    pub groups: f64,
    /// Whether the elements that are summed lie side by side in the second operand, and those of a row do not.
    pub is_rhs_by_columns: bool,
    /// Whether it is a convolution.
    pub is_convolution: bool,
    /// Whether it is one of arrays whose features do not lie side by side.
    pub has_features_apart: bool,
    /// Elements that matrix units are fed for each result: those that are summed, and those where a window meets nothing.
    pub fed: f64,
    /// Input features that are summed at each position.
    pub inputs: f64,
    /// Columns along the dimension of output features; the others are along spatial ones.
    pub features: f64,
    /// Whether a window of several positions slides over rows.
    pub has_taps: bool,
    /// Whether there are zeros between the elements of the first operand.
    pub has_holes: bool,
    /// Positions of that window, each of its sizes filled up to eight.
    pub taps: f64,
    /// Whether the elements that are summed do not lie side by side in the first operand.
    pub is_lhs_across: bool,
    /// Whether they do not in the second.
    pub is_rhs_across: bool,
    /// What the dimensions of the result count, the slowest first.
    pub result_parts: SmallVec<[(Part, f64); 5]>,
    /// Multiplications and additions.
    pub flops: f64,
    /// The type of the first operand.
    pub lhs_type: ElementType,
    /// The type of the second operand.
    pub rhs_type: ElementType,
    /// The type of the result.
    pub result_type: ElementType,
    /// Whether the highest precision is asked for.
    pub is_highest: bool,
    /// What is fused in front of the first operand.
    pub lhs: Producer,
    /// What is fused in front of the second operand.
    pub rhs: Producer,
}

/// What a dimension of a product's result counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Products.
    Batch,
    /// Rows of each.
    Rows,
    /// Columns of each.
    Columns,
}

/// What is fused in front of an operand of a product.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Producer {
    /// The work, done again whenever the operand's window is read again.
    pub work: Elementwise,
    /// Which parameters of the fusion it reads; none for a product on its own.
    pub parameters: SmallVec<[u32; 2]>,
    /// Whether another product is among it.
    pub has_product: bool,
}

impl Matmul {
    /// The product that a dot or convolution is.
    pub fn of(module: &Module, id: InstructionId) -> Option<Matmul> {
        let instruction = &module[id];
        let operand = |i: usize| module[*instruction.operands().get(i)?].shape.as_array();
        let (lhs, rhs, result) = (operand(0)?, operand(1)?, instruction.shape.as_array()?);
        match &instruction.op {
            Op::Dot(dot) | Op::ScaledDot(dot) => {
                let dims = &dot.dims;
                let contracted = product(lhs, &dims.lhs_contracting);
                let fastest = rhs.minor_to_major().first().copied();
                let product = Matmul::dot(lhs, rhs, result, contracted, product(lhs, &dims.lhs_batch), &dot.precision);
                let is_rhs_by_columns = fastest.is_some_and(|d| dims.rhs_contracting.contains(&d));
                let is_lhs_across = !dims.lhs_contracting.iter().any(|&d| Some(d) == fastest_of(lhs));
                let is_free = |d: &i64| !dims.lhs_batch.contains(d) && !dims.lhs_contracting.contains(d);
                let innermost = (0..lhs.rank() as i64).rev().find(is_free);
                let inner_rows = innermost.map_or(1.0, |d| self::product(lhs, &[d])).max(1.0);
                // The result's dimensions are the batch, then rows, then columns.
                let (batches, rank) = (dims.lhs_batch.len(), result.rank());
                let rows = lhs.rank() - dims.lhs_contracting.len();
                let part = |d: usize| match d {
                    _ if d < batches => Part::Batch,
                    _ if d < rows => Part::Rows,
                    _ => Part::Columns,
                };
                let parts: SmallVec<[Part; 5]> = (0..rank).map(part).collect();
                let product = product.with_parts(result, &parts);
                let is_rhs_across = !is_rhs_by_columns;
                Some(Matmul { is_rhs_by_columns, inner_rows, is_lhs_across, is_rhs_across, ..product })
            }
            Op::RaggedDot(dot) => {
                let dims = &dot.dims;
                let contracted = product(lhs, &dims.lhs_contracting);
                Some(Matmul::dot(lhs, rhs, result, contracted, product(lhs, &dims.lhs_batch), &dot.precision))
            }
            Op::Convolution(c) => {
                let batch_groups = c.batch_group_count.max(1) as f64;
                let product = Matmul::convolution(lhs, rhs, result, &c.window, &c.dims, batch_groups, &c.precision);
                let is_lhs_across = fastest_of(lhs) != Some(c.dims.input_feature);
                let is_rhs_across = fastest_of(rhs) != Some(c.dims.kernel_input_feature);
                let is_apart = is_lhs_across || fastest_of(result) != Some(c.dims.output_feature);
                let groups = c.feature_group_count.max(1) as f64;
                let product = Matmul { groups, is_convolution: true, has_features_apart: is_apart, ..product };
                Some(Matmul { is_lhs_across, is_rhs_across, ..product })
            }
            _ => None,
        }
    }

    /// A dot of these arrays.
    pub(crate) fn dot(
        lhs: &ArrayShape,
        rhs: &ArrayShape,
        result: &ArrayShape,
        contracted: f64,
        batch: f64,
        precision: &PrecisionConfig,
    ) -> Matmul {
        let (batch, contracted) = (batch.max(1.0), contracted.max(1.0));
        let rows = (elements(lhs) / contracted / batch).max(1.0);
        let columns = (elements(result) / rows / batch).max(1.0);
        let flops = 2.0 * elements(result) * contracted;
        Matmul::new([rows, columns, contracted, batch, flops], [lhs, rhs, result], precision)
    }

    /// A convolution of these arrays.
    pub(crate) fn convolution(
        lhs: &ArrayShape,
        rhs: &ArrayShape,
        result: &ArrayShape,
        window: &Window,
        dims: &ConvDimensionNumbers,
        batch_groups: f64,
        precision: &PrecisionConfig,
    ) -> Matmul {
        let size = |a: &ArrayShape, d: i64| usize::try_from(d).ok().and_then(|d| a.dims().get(d).copied()).unwrap_or(1);
        let mut contracted = size(rhs, dims.kernel_input_feature).max(1) as f64;
        let mut columns = size(result, dims.output_feature).max(1) as f64;
        let inner_rows = size(result, dims.output_batch).max(1) as f64;
        let mut rows = inner_rows;
        let (features, inputs, mut fed) = (columns, contracted, contracted);
        let (mut batch, mut pairs, mut has_taps, mut has_holes, mut taps) = (1.0, 1.0, false, false, 1.0);
        let mut parts: SmallVec<[Part; 5]> = smallvec::smallvec![Part::Rows; result.rank()];
        let mut count = |dimension: Option<&i64>, part: Part| {
            let at = dimension.and_then(|&d| usize::try_from(d).ok()).and_then(|d| parts.get_mut(d));
            if let Some(at) = at {
                *at = part;
            }
        };
        count(Some(&dims.output_feature), Part::Columns);
        for (i, w) in window.dims.iter().enumerate() {
            let at = |d: &[i64], a: &ArrayShape| d.get(i).map_or(1, |&d| size(a, d)).max(0);
            let (input, output) = (at(&dims.input_spatial, lhs), at(&dims.output_spatial, result));
            let met = window_positions(w, input as u64, output as u64) as f64;
            pairs *= met;
            let is_one_to_one = met == output as f64 && w.size == output && w.size > 1;
            if is_one_to_one && w.size == input {
                batch *= w.size as f64;
                count(dims.output_spatial.get(i), Part::Batch);
            } else if is_one_to_one && input == 1 {
                columns *= w.size as f64;
                count(dims.output_spatial.get(i), Part::Columns);
            } else {
                rows *= output.max(1) as f64;
                contracted *= (met / output.max(1) as f64).round().max(1.0);
                fed *= if output <= 1 { met.max(1.0) } else { w.size.max(1) as f64 };
                has_taps |= output > 1 && w.size > 1;
                has_holes |= w.base_dilation > 1;
                taps *= if w.size > 1 { (w.size as f64 / 8.0).ceil() * 8.0 } else { 1.0 };
            }
        }
        let met = size(rhs, dims.kernel_input_feature).max(0) as f64 * size(result, dims.output_feature) as f64;
        let flops = 2.0 * met * size(lhs, dims.input_batch) as f64 / batch_groups * pairs;
        let product = Matmul::new([rows, columns, contracted, batch, flops], [lhs, rhs, result], precision);
        Matmul { inner_rows, features, inputs, fed, has_taps, has_holes, taps, ..product }.with_parts(result, &parts)
    }

    /// The same, with what each dimension of the result counts.
    fn with_parts(mut self, result: &ArrayShape, parts: &[Part]) -> Matmul {
        let slowest_first = result.minor_to_major().into_iter().rev().filter_map(|d| usize::try_from(d).ok());
        let of = |d: usize| Some((*parts.get(d)?, result.dims().get(d).copied()?.max(1) as f64));
        self.result_parts = slowest_first.filter_map(of).collect();
        self
    }

    /// Whether the result's fastest dimension is one of rows.
    pub fn has_rows_fastest(&self) -> bool {
        self.result_parts.last().is_some_and(|&(part, _)| part == Part::Rows)
    }

    fn new(sizes: [f64; 5], arrays: [&ArrayShape; 3], precision: &PrecisionConfig) -> Matmul {
        let [rows, columns, contracted, batch, flops] = sizes;
        let [lhs_type, rhs_type, result_type] = arrays.map(|a| a.element_type);
        // The product of two complex numbers is four of real ones.
        let flops = if lhs_type.is_complex() { 4.0 * flops } else { flops };
        let is_highest = match precision.algorithm {
            DotAlgorithm::Unset => precision.operand_precision.contains(&Precision::Highest),
            DotAlgorithm::F32F32F32 | DotAlgorithm::Bf16Bf16F32X6 | DotAlgorithm::Bf16Bf16F32X9 => true,
            _ => false,
        };
        let (lhs, rhs) = (Producer::default(), Producer::default());
        Matmul {
            rows,
            inner_rows: rows,
            columns,
            contracted,
            batch,
            groups: 1.0,
            is_rhs_by_columns: false,
            is_convolution: false,
            has_features_apart: false,
            fed: contracted,
            inputs: contracted,
            features: columns,
            has_taps: false,
            has_holes: false,
            taps: 1.0,
            is_lhs_across: false,
            is_rhs_across: true,
            result_parts: SmallVec::new(),
            flops,
            lhs_type,
            rhs_type,
            result_type,
            is_highest,
            lhs,
            rhs,
        }
    }
}

/// The dimension along which elements lie side by side.
fn fastest_of(shape: &ArrayShape) -> Option<i64> {
    shape.minor_to_major().into_iter().next()
}

fn product(shape: &ArrayShape, dims: &[i64]) -> f64 {
    let size = |&d: &i64| usize::try_from(d).ok().and_then(|d| shape.dims().get(d).copied()).unwrap_or(1);
    dims.iter().map(size).map(|n| n.max(0) as f64).product()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text;

    fn matmul(text: &str) -> Matmul {
        let module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        let entry = module.entry().expect("there is one");
        Matmul::of(&module, module.root(entry).expect("there is one")).expect("it is a product")
    }

    fn sizes(m: &Matmul) -> [f64; 4] {
        [m.rows, m.columns, m.contracted, m.batch]
    }

    #[test]
    fn a_dot_has_rows_columns_and_a_batch() {
        let m = matmul(
            "HloModule m\nENTRY e {\n x = bf16[5,8,16] parameter(0)\n w = bf16[5,16,32] parameter(1)
            ROOT y = f32[5,8,32] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n}",
        );
        assert_eq!((sizes(&m), m.flops), ([8.0, 32.0, 16.0, 5.0], 2.0 * 5.0 * 8.0 * 32.0 * 16.0));
    }

    #[test]
    fn a_dot_written_as_a_convolution_is_found_again() {
        // One more dimension of rows, as a spatial dimension with a window of one.
        let rows = matmul(
            "HloModule m\nENTRY e {\n x = f32[8,128,3584] parameter(0)\n w = f32[4096,3584,1] parameter(1)
            ROOT y = f32[8,128,4096] convolution(x, w), window={size=1}, dim_labels=0bf_oi0->0bf\n}",
        );
        assert_eq!(sizes(&rows), [1024.0, 4096.0, 3584.0, 1.0]);
        assert_eq!(rows.flops, 2.0 * 1024.0 * 4096.0 * 3584.0);
        // A batch of four: exactly one position of the window is inside for each output.
        let batch = matmul(
            "HloModule m\nENTRY e {\n x = bf16[4,16,32] parameter(0)\n w = bf16[4,32,64] parameter(1)
            ROOT y = bf16[4,16,64] convolution(x, w), window={size=4 stride=3 lhs_dilate=4}, dim_labels=0bf_0io->0bf\n}",
        );
        assert_eq!((sizes(&batch), batch.flops), ([16.0, 64.0, 32.0, 4.0], 2.0 * 4.0 * 16.0 * 64.0 * 32.0));
        // Columns over two dimensions, one of them as a window of eight that is padded by seven.
        let heads = matmul(
            "HloModule m\nENTRY e {\n x = bf16[1,16,32] parameter(0)\n w = bf16[8,32,64] parameter(1)
            ROOT y = bf16[8,16,64] convolution(x, w), window={size=8 pad=7_7 rhs_reversal=1}, dim_labels=0bf_0io->0bf\n}",
        );
        assert_eq!((sizes(&heads), heads.flops), ([16.0, 512.0, 32.0, 1.0], 2.0 * 8.0 * 16.0 * 64.0 * 32.0));
    }

    #[test]
    fn a_convolution_contracts_its_window() {
        let m = matmul(
            "HloModule m\nENTRY e {\n x = f32[2,6,6,3] parameter(0)\n w = f32[3,3,3,4] parameter(1)
            ROOT y = f32[2,6,6,4] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f\n}",
        );
        assert_eq!((m.rows, m.columns), (72.0, 4.0));
        assert_eq!(m.flops, 2.0 * 2.0 * 3.0 * 4.0 * 16.0 * 16.0);
        let by_channel = matmul(
            "HloModule m\nENTRY e {\n x = f32[2,6,6,8] parameter(0)\n w = f32[3,3,1,8] parameter(1)
            ROOT y = f32[2,6,6,8] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=8\n}",
        );
        assert_eq!((by_channel.columns, by_channel.groups), (8.0, 8.0));
    }
}

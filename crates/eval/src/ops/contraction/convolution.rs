//! Convolution with every window, dilation, reversal, grouping and order of dimensions.
//!
//! For each group the input's patches under the window are written out as rows of a matrix, which is multiplied by the
//! kernel's matrix. Patches are made for a bounded number of rows at a time, so that memory stays in bounds.

use super::{compute_type, converted, matrix_products};
use crate::interpreter::Device;
use crate::ops::data_movement::{dynamic_slice, transpose};
use crate::window::window_count;
use hloom_ir::diagnostic::codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::layout::DimVec;
use hloom_ir::op::Convolution;
use hloom_value::Array;
use hloom_value::ExecutionError;
use hloom_value::strided::Indices;

/// Elements of patches that are made at a time.
const PATCH_ELEMENTS: usize = 1 << 24;

/// The convolution of `input` with `kernel`.
pub fn convolution(
    device: &Device<'_>,
    input: Array,
    kernel: Array,
    attributes: &Convolution,
    to: ElementType,
) -> Result<Array, ExecutionError> {
    let dims = &attributes.dims;
    let compute = compute_type(input.element_type(), kernel.element_type(), to);
    // Plain forms: batch, space, feature; space, input feature, output feature.
    let input_order: DimVec = [&[dims.input_batch], &dims.input_spatial[..], &[dims.input_feature]].concat().into();
    let kernel_order: DimVec =
        [&dims.kernel_spatial[..], &[dims.kernel_input_feature, dims.kernel_output_feature]].concat().into();
    let input = transpose(converted(input, compute)?, &input_order)?;
    let kernel = transpose(converted(kernel, compute)?, &kernel_order)?;
    let plan = Plan::new(&input, &kernel, attributes)?;
    let result = plan.run(device, &input, &kernel)?;
    // The result is batch, space, feature; put its dimensions where they belong.
    let mut order = DimVec::from_elem(0, result.rank());
    order[dims.output_batch as usize] = 0;
    for (n, &d) in dims.output_spatial.iter().enumerate() {
        order[d as usize] = 1 + n as i64;
    }
    order[dims.output_feature as usize] = result.rank() as i64 - 1;
    converted(transpose(result, &order)?, to)
}

/// The sizes of a convolution in plain form.
struct Plan<'a> {
    attributes: &'a Convolution,
    /// Feature groups × batch groups; at most one of the two is more than one.
    groups: i64,
    batch: i64,
    input_space: DimVec,
    kernel_space: DimVec,
    output_space: DimVec,
    /// Input features that one group sees.
    features: i64,
    /// Output features that one group makes.
    outputs: i64,
}

/// Adds each element to zero, which a negative zero does not survive: where a window may see padding alone, its sum
/// begins with zero, as that of a larger window does.
fn add_to_zero(sums: &mut Array) {
    match sums.element_type() {
        ElementType::F32 | ElementType::C64 => sums.elements_mut::<f32>().iter_mut().for_each(|x| *x += 0.0),
        ElementType::F64 | ElementType::C128 => sums.elements_mut::<f64>().iter_mut().for_each(|x| *x += 0.0),
        _ => {}
    }
}

impl<'a> Plan<'a> {
    fn new(input: &Array, kernel: &Array, attributes: &'a Convolution) -> Result<Plan<'a>, ExecutionError> {
        // A library call, which nobody has verified, or sizes that only the run knows.
        let message = "a convolution's operands do not fit its attributes";
        let wrong = || ExecutionError::new(&codes::eval::UNSUPPORTED, message);
        let (feature_groups, batch_groups) =
            (attributes.feature_group_count.max(1), attributes.batch_group_count.max(1));
        let space = attributes.window.dims.len();
        if input.rank() != space + 2 || kernel.rank() != space + 2 {
            return Err(wrong());
        }
        let (input_dims, kernel_dims) = (input.dims(), kernel.dims());
        let groups = feature_groups.checked_mul(batch_groups).ok_or_else(wrong)?;
        let (features, outputs) = (kernel_dims[space], kernel_dims[space + 1]);
        if features.checked_mul(feature_groups) != Some(input_dims[space + 1])
            || outputs % groups != 0
            || input_dims[0] % batch_groups != 0
        {
            return Err(wrong());
        }
        let mut output_space = DimVec::new();
        for (d, w) in attributes.window.dims.iter().enumerate() {
            if w.stride < 1 || w.base_dilation < 1 || w.window_dilation < 1 {
                return Err(wrong());
            }
            output_space.push(window_count(input_dims[1 + d], kernel_dims[d], w).ok_or_else(wrong)?);
        }
        Ok(Plan {
            attributes,
            groups,
            batch: input_dims[0] / batch_groups,
            input_space: input_dims[1..=space].into(),
            kernel_space: kernel_dims[..space].into(),
            output_space,
            features,
            outputs: outputs / groups,
        })
    }

    fn run(&self, device: &Device<'_>, input: &Array, kernel: &Array) -> Result<Array, ExecutionError> {
        let result_dims: DimVec =
            [&[self.batch], &self.output_space[..], &[self.outputs * self.groups]].concat().into();
        let mut result = Array::zeroed(input.element_type(), &result_dims)?;
        // Without input features there is nothing to add up, and the kernel's space may be of any size.
        if result.is_empty() || self.features == 0 {
            return Ok(result);
        }
        let positions = self.output_space.iter().product::<i64>();
        let inner = (self.kernel_space.iter().product::<i64>() * self.features) as usize;
        let rows = self.batch * positions;
        let chunk = (PATCH_ELEMENTS / inner.max(1)).max(1) as i64;
        let width = result.element_type().bytes();
        let total = (self.outputs * self.groups) as usize * width;
        let run = self.outputs as usize * width;
        for group in 0..self.groups {
            let weights = self.kernel_matrix(kernel, group)?;
            for first in (0..rows).step_by(chunk as usize) {
                device.check_cancelled()?;
                let count = chunk.min(rows - first);
                let patches = self.patches(input, group, first, count, inner)?;
                let mut made = matrix_products(1, count as usize, self.outputs as usize, inner, &patches, &weights)?;
                if inner == 1 && self.pads() {
                    add_to_zero(&mut made);
                }
                let bytes = result.bytes_mut();
                for (row, line) in made.bytes().chunks_exact(run).enumerate() {
                    let at = (first as usize + row) * total + group as usize * run;
                    bytes[at..at + run].copy_from_slice(line);
                }
            }
        }
        Ok(result)
    }

    /// Whether the window may see padding, or holes between the input's elements.
    fn pads(&self) -> bool {
        let mut dims = self.attributes.window.dims.iter();
        dims.any(|w| w.padding_low != 0 || w.padding_high != 0 || w.base_dilation > 1)
    }

    /// The kernel of one group as a matrix: (space × features) by outputs.
    fn kernel_matrix(&self, kernel: &Array, group: i64) -> Result<Array, ExecutionError> {
        let mut starts = DimVec::from_elem(0, kernel.rank());
        let mut sizes: DimVec = kernel.dims().into();
        let last = kernel.rank() - 1;
        starts[last] = group * self.outputs;
        sizes[last] = self.outputs;
        dynamic_slice(kernel, &starts, &sizes)
    }

    /// Rows `first .. first + count` of the matrix of patches: what the window sees at each output position, in the order
    /// of the kernel's matrix; zeros where it sees padding.
    fn patches(
        &self,
        input: &Array,
        group: i64,
        first: i64,
        count: i64,
        inner: usize,
    ) -> Result<Array, ExecutionError> {
        let mut patches = Array::zeroed(input.element_type(), &[count, inner as i64])?;
        let positions = self.output_space.iter().product::<i64>();
        let width = input.element_type().bytes();
        let run = self.features as usize * width;
        let strides = input.strides();
        // A feature group sees its own features of every batch; a batch group sees all features of its own batches.
        let (feature_start, batch_start) = match self.attributes.batch_group_count > 1 {
            true => (0, group * self.batch),
            false => (group * self.features, 0),
        };
        let output_strides = hloom_value::array::strides(&self.output_space);
        let taps: Vec<DimVec> = Indices::new(&self.kernel_space).collect();
        let source = input.bytes();
        let target = patches.bytes_mut();
        for row in 0..count {
            let (batch, position) = ((first + row) / positions, (first + row) % positions);
            for (t, tap) in taps.iter().enumerate() {
                let at = self.input_position(position, &output_strides, tap, &strides);
                let Some(at) = at else { continue };
                let from = ((batch_start + batch) * strides[0] + at + feature_start) as usize * width;
                let to = row as usize * inner * width + t * run;
                target[to..to + run].copy_from_slice(&source[from..from + run]);
            }
        }
        Ok(patches)
    }

    /// Where in the input's space the kernel's element `tap` falls at an output position; `None` on padding.
    fn input_position(&self, position: i64, output_strides: &[i64], tap: &[i64], strides: &[i64]) -> Option<i64> {
        let mut at = 0;
        for (d, w) in self.attributes.window.dims.iter().enumerate() {
            let output = position / output_strides[d] % self.output_space[d];
            let k = if w.window_reversal { self.kernel_space[d] - 1 - tap[d] } else { tap[d] };
            let dilated = i128::from(output) * i128::from(w.stride) + i128::from(k) * i128::from(w.window_dilation)
                - i128::from(w.padding_low);
            let (base_dilation, size) = (i128::from(w.base_dilation), i128::from(self.input_space[d]));
            if dilated < 0 || dilated % base_dilation != 0 || dilated / base_dilation >= size {
                return None;
            }
            at += (dilated / base_dilation) as i64 * strides[1 + d];
        }
        Some(at)
    }
}

//! Convolutions that are products of matrices written with windows: each spatial dimension is summed over whole, or is one
//! of the input's or of the kernel's alone. They are cut as products are, and nothing is read of neighbours.

use super::Emit;
use super::body::{Body, Part, Val};
use super::rule::{FactorDims, FactorKind, Rule};
use super::spec::Reduction;
use hloom_ir::Op;
use hloom_ir::attributes::WindowDim;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Convolution;
use smallvec::{SmallVec, smallvec};

/// What a spatial dimension of such a convolution is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    /// Input and kernel are multiplied along it and summed.
    Contracting,
    /// Only the input has it.
    Input,
    /// Only the kernel has it.
    Kernel,
}

fn side(w: &WindowDim, input: i64, out: i64) -> Option<Side> {
    let plain = w.stride == 1 && w.window_dilation == 1 && w.base_dilation == 1;
    let padding = (w.padding_low, w.padding_high);
    if !plain {
        return None;
    }
    if w.size == 1 && padding == (0, 0) && out == input {
        return Some(Side::Input);
    }
    if w.size == input && padding == (0, 0) && out == 1 && !w.window_reversal {
        return Some(Side::Contracting);
    }
    // Every window has the one element of the input, at the place of the output counted from the end.
    (input == 1 && padding == (w.size - 1, w.size - 1) && out == w.size && w.window_reversal).then_some(Side::Kernel)
}

impl Body<'_, '_> {
    /// A convolution that is a product; nothing if it is none, or has no space to be one in.
    pub(crate) fn product_convolution(
        &mut self,
        at: InstructionId,
        convolution: &Convolution,
        parts: &[Part; 2],
    ) -> Emit<Option<Val>> {
        let shape = self.array_shape(at)?;
        let numbers = &convolution.dims;
        let (l, r) = (parts[0].shape.dims(), parts[1].shape.dims());
        let out = |n: usize| shape.dims()[numbers.output_spatial[n] as usize];
        let input = |n: usize| l[numbers.input_spatial[n] as usize];
        let windows = convolution.window.dims.iter().enumerate();
        let sides: Option<Vec<Side>> = windows.map(|(n, w)| side(w, input(n), out(n))).collect();
        let Some(sides) = sides.filter(|s| s.iter().any(|&s| s != Side::Input)) else { return Ok(None) };
        if convolution.feature_group_count != 1 || convolution.batch_group_count != 1 {
            return Ok(None);
        }
        let mut rule = Rule::default();
        let mut lhs: FactorDims = SmallVec::from_elem(None, l.len());
        let mut rhs: FactorDims = SmallVec::from_elem(None, r.len());
        let mut result: FactorDims = SmallVec::from_elem(None, shape.rank());
        let (batch, out_batch) = (numbers.input_batch as usize, numbers.output_batch as usize);
        lhs[batch] = rule.factor(l[batch], FactorKind::Pass);
        result[out_batch] = lhs[batch];
        let (kernel_out, out_feature) = (numbers.kernel_output_feature as usize, numbers.output_feature as usize);
        rhs[kernel_out] = rule.factor(r[kernel_out], FactorKind::Pass);
        result[out_feature] = rhs[kernel_out];
        let mut contracted = vec![(numbers.input_feature as usize, numbers.kernel_input_feature as usize)];
        for (n, &side) in sides.iter().enumerate() {
            let (d, k) = (numbers.input_spatial[n] as usize, numbers.kernel_spatial[n] as usize);
            let o = numbers.output_spatial[n] as usize;
            match side {
                Side::Contracting => contracted.push((d, k)),
                Side::Input => {
                    lhs[d] = rule.factor(l[d], FactorKind::Pass);
                    result[o] = lhs[d];
                }
                Side::Kernel => {
                    rhs[k] = rule.factor(r[k], FactorKind::Pass);
                    result[o] = rhs[k];
                }
            }
        }
        for &(d, k) in &contracted {
            lhs[d] = rule.factor(l[d], FactorKind::Reduce(Reduction::Sum));
            rhs[k] = lhs[d];
        }
        let depth: f64 = contracted.iter().map(|&(d, _)| l[d] as f64).product();
        rule.flops = 2.0 * shape.element_count().unwrap_or(i64::MAX) as f64 * depth;
        rule.operands = smallvec![lhs, rhs];
        rule.results = smallvec![result];
        let wanted = self.wanted_array(at);
        let assignment = self.choose(&rule, parts, std::slice::from_ref(&wanted), &|_, _| Some(0.0));
        let manual = self.manual_of(parts, &wanted);
        let mut ids = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            let spec = rule.operand(i, &assignment, manual);
            let mut id = self.reshard(part, &spec)?;
            let zero = self.zero(part.shape.element_type)?;
            for &(d, k) in &contracted {
                // Padding would be summed.
                let d = if i == 0 { d } else { k };
                id = self.mask_dim(id, d, &spec.dims[d], part.shape.dims()[d], zero)?;
            }
            ids.push(id);
        }
        let mut local = convolution.clone();
        let kernel = self.dims(ids[1]);
        for (n, &side) in sides.iter().enumerate() {
            let size = kernel[numbers.kernel_spatial[n] as usize];
            let w = &mut local.window.dims[n];
            w.size = size;
            if side == Side::Kernel {
                (w.padding_low, w.padding_high) = (size - 1, size - 1);
            }
        }
        let spec = rule.result(0, &assignment, manual);
        let id = self.add_local(Op::Convolution(Box::new(local)), &ids, &shape, &spec)?;
        Ok(Some(self.array(id, shape, spec)))
    }
}

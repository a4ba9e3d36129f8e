//! Convolutions: batches, features and groups by shards, sums over input features and kernels in parts, and space by
//! shards that read what their windows reach of their neighbours.

use super::Emit;
use super::axes::AxisSet;
use super::body::{Body, Part, Val};
use super::rule::{Assignment, FactorDims, FactorKind, Rule};
use super::spec::{Reduction, Spec, shard_size};
use super::windows::window_needs;
use hloom_ir::attributes::WindowDim;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Convolution;
use hloom_ir::{Op, Shape};
use smallvec::{SmallVec, smallvec};

/// What a shard reads of the input along one spatial dimension, and the window that is left to do.
struct Reading {
    starts: Vec<i64>,
    size: i64,
    window: WindowDim,
    /// How many outputs before its own each shard computes, and how many are its own.
    before: Option<(Vec<i32>, i64)>,
}

/// Output shards: `None` if their windows cannot be made to begin alike.
fn output_reading(w: &WindowDim, out: i64, shards: i64) -> Option<Reading> {
    let own = shard_size(out, shards);
    // Between the elements of a dilated input a window begins in one of several phases: shards go back to the same.
    let phase = |i: i64, back: i64| ((i * own - back) * w.stride - w.padding_low).rem_euclid(w.base_dilation);
    let back = |i: i64| (0..w.base_dilation).find(|&b| phase(i, b) == phase(0, 0));
    let backs: Vec<i64> = (0..shards).map(back).collect::<Option<_>>()?;
    let most = backs.iter().copied().max().unwrap_or(0);
    let size = own + most;
    let before = (most > 0).then(|| (backs.iter().map(|&b| b as i32).collect(), own));
    let reach = (size - 1) * w.stride + (w.size - 1) * w.window_dilation + 1;
    let begin = |i: i64| (i * own - backs[i as usize]) * w.stride - w.padding_low;
    let starts: Vec<i64> = (0..shards).map(|i| -(-begin(i)).div_euclid(w.base_dilation)).collect();
    let low = starts[0] * w.base_dilation - begin(0);
    if (0..shards).any(|i| starts[i as usize] * w.base_dilation - begin(i) != low) {
        return None;
    }
    let count = (reach - 1) / w.base_dilation + 1;
    let high = reach - ((count - 1) * w.base_dilation + 1) - low;
    Some(Reading { starts, size: count, window: WindowDim { padding_low: low, padding_high: high, ..*w }, before })
}

/// Kernel shards: each sums over its part of the window.
fn kernel_reading(w: &WindowDim, out: i64, shards: i64) -> Option<Reading> {
    if w.base_dilation != 1 || w.window_reversal {
        return None;
    }
    let size = shard_size(w.size, shards);
    let starts = (0..shards).map(|i| i * size * w.window_dilation - w.padding_low).collect();
    let reach = (out - 1) * w.stride + (size - 1) * w.window_dilation + 1;
    let window = WindowDim { size, padding_low: 0, padding_high: 0, ..*w };
    Some(Reading { starts, size: reach, window, before: None })
}

/// Which side of a convolution's space is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    Output,
    Kernel,
}

impl Body<'_, '_> {
    pub(crate) fn convolved(&mut self, at: InstructionId, convolution: &Convolution) -> Emit<Val> {
        let operands = self.p.source[at].operands().to_vec();
        let parts = [self.part(operands[0])?, self.part(operands[1])?];
        let shape = self.array_shape(at)?;
        if operands.len() != 2 || shape.element_count() == Some(0) {
            return self.compute_whole(at);
        }
        if let Some(value) = self.product_convolution(at, convolution, &parts)? {
            return Ok(value);
        }
        let wanted = self.wanted_array(at);
        let mut best: Option<(f64, Assignment, Rule, Space)> = None;
        let numbers = &convolution.dims;
        let kernel_cut = numbers.kernel_spatial.iter().any(|&d| !parts[1].spec.dims[d as usize].is_empty());
        for space in [Space::Output, Space::Kernel] {
            if space == Space::Kernel && !kernel_cut {
                continue;
            }
            let rule = convolution_rule(convolution, &parts, shape.dims(), space);
            let (cost, assignment) = self.choose_priced(&rule, &parts, std::slice::from_ref(&wanted), &|b, a| {
                b.convolution_cost(convolution, &rule, a, &parts, shape.dims(), space)
            });
            if best.as_ref().is_none_or(|b| cost < b.0) {
                best = Some((cost, assignment, rule, space));
            }
        }
        let Some((_, assignment, rule, space)) = best else { return self.compute_whole(at) };
        let manual = self.manual_of(&parts, &wanted);
        let specs = [rule.operand(0, &assignment, manual), rule.operand(1, &assignment, manual)];
        let mut lhs = Part { free: None, ..self.resharded(&parts[0], &specs[0])? };
        let mut rhs = Part { free: None, ..self.resharded(&parts[1], &specs[1])? };
        let mut local = convolution.clone();
        let zero = self.zero(parts[0].shape.element_type)?;
        let rhs_zero = self.zero(parts[1].shape.element_type)?;
        let mut trims = Vec::new();
        for (n, w) in convolution.window.dims.iter().enumerate() {
            let d = numbers.input_spatial[n] as usize;
            let k = numbers.kernel_spatial[n] as usize;
            let list = specs[0].dims[d];
            if list.is_empty() {
                continue;
            }
            let out = shape.dims()[numbers.output_spatial[n] as usize];
            let shards = self.axes().product(&list);
            let reading = match space {
                Space::Output => output_reading(w, out, shards),
                Space::Kernel => kernel_reading(w, out, shards),
            };
            let Some(reading) = reading else { return self.compute_whole(at) };
            lhs.id = self.read_window(&lhs, d, &list, &reading.starts, reading.size, zero)?;
            if space == Space::Kernel {
                rhs.id = self.mask_dim(rhs.id, k, &list, parts[1].shape.dims()[k], rhs_zero)?;
            }
            local.window.dims[n] = reading.window;
            if let Some((before, own)) = reading.before {
                trims.push((numbers.output_spatial[n] as usize, list, before, own));
            }
        }
        let feature = numbers.input_feature as usize;
        let kernel_feature = numbers.kernel_input_feature as usize;
        if convolution.feature_group_count == 1 {
            lhs.id = self.mask_dim(lhs.id, feature, &specs[0].dims[feature], parts[0].shape.dims()[feature], zero)?;
            let (list, n) = (&specs[1].dims[kernel_feature], parts[1].shape.dims()[kernel_feature]);
            rhs.id = self.mask_dim(rhs.id, kernel_feature, list, n, rhs_zero)?;
        } else {
            local.feature_group_count /= self.axes().product(&specs[0].dims[feature]);
        }
        if convolution.batch_group_count > 1 {
            local.batch_group_count /= self.axes().product(&specs[0].dims[numbers.input_batch as usize]);
        }
        let spec = rule.result(0, &assignment, manual);
        let mut dims = spec.local_dims(self.axes(), shape.dims());
        for (d, _, before, own) in &trims {
            dims[*d] = own + i64::from(before.iter().copied().max().unwrap_or(0));
        }
        let made = Shape::array(shape.element_type, dims);
        let mut id = self.add_shaped(Op::Convolution(Box::new(local)), &[lhs.id, rhs.id], Some(made))?;
        for (d, list, before, own) in trims {
            let index = self.coordinate(&list)?;
            let start = self.lookup(&before, index)?;
            id = self.dynamic_slice_dim(id, d, start, own)?;
        }
        Ok(self.array(id, shape, spec))
    }

    fn convolution_cost(
        &self,
        convolution: &Convolution,
        rule: &Rule,
        assignment: &Assignment,
        parts: &[Part; 2],
        out: &[i64],
        space: Space,
    ) -> Option<f64> {
        let numbers = &convolution.dims;
        let spec: Spec = rule.operand(0, assignment, AxisSet::EMPTY);
        let mut cost = 0.0;
        for (n, w) in convolution.window.dims.iter().enumerate() {
            let d = numbers.input_spatial[n] as usize;
            if spec.dims[d].is_empty() {
                continue;
            }
            let shards = self.axes().product(&spec.dims[d]);
            let size = out[numbers.output_spatial[n] as usize];
            let reading = match space {
                Space::Output => output_reading(w, size, shards)?,
                Space::Kernel => kernel_reading(w, size, shards)?,
            };
            let needs = window_needs(&reading.starts, reading.size, parts[0].shape.dims()[d]);
            cost += self.needs_cost(&parts[0], &spec, d, &needs);
        }
        // Groups are cut between them only.
        let cut = |d: i64| self.axes().product(&spec.dims[d as usize]);
        let features =
            convolution.feature_group_count == 1 || convolution.feature_group_count % cut(numbers.input_feature) == 0;
        let batches =
            convolution.batch_group_count == 1 || convolution.batch_group_count % cut(numbers.input_batch) == 0;
        (features && batches).then_some(cost)
    }
}

fn convolution_rule(convolution: &Convolution, parts: &[Part; 2], out: &[i64], space: Space) -> Rule {
    let numbers = &convolution.dims;
    let (l, r) = (parts[0].shape.dims(), parts[1].shape.dims());
    let mut rule = Rule::default();
    let mut lhs: FactorDims = SmallVec::from_elem(None, l.len());
    let mut rhs: FactorDims = SmallVec::from_elem(None, r.len());
    let mut result: FactorDims = SmallVec::from_elem(None, out.len());
    let (batch, feature) = (numbers.input_batch as usize, numbers.input_feature as usize);
    let (kernel_in, kernel_out) = (numbers.kernel_input_feature as usize, numbers.kernel_output_feature as usize);
    let (out_batch, out_feature) = (numbers.output_batch as usize, numbers.output_feature as usize);
    if convolution.batch_group_count > 1 {
        let factor = rule.factor(convolution.batch_group_count, FactorKind::Pass);
        lhs[batch] = factor;
        rhs[kernel_out] = factor;
        result[out_feature] = factor;
    } else {
        let factor = rule.factor(l[batch], FactorKind::Pass);
        lhs[batch] = factor;
        result[out_batch] = factor;
    }
    if convolution.feature_group_count > 1 {
        let factor = rule.factor(convolution.feature_group_count, FactorKind::Pass);
        lhs[feature] = factor;
        rhs[kernel_out] = factor;
        result[out_feature] = factor;
    } else {
        let factor = rule.factor(l[feature], FactorKind::Reduce(Reduction::Sum));
        lhs[feature] = factor;
        rhs[kernel_in] = factor;
        if convolution.batch_group_count == 1 {
            let factor = rule.factor(r[kernel_out], FactorKind::Pass);
            rhs[kernel_out] = factor;
            result[out_feature] = factor;
        }
    }
    for (n, w) in convolution.window.dims.iter().enumerate() {
        let d = numbers.input_spatial[n] as usize;
        let k = numbers.kernel_spatial[n] as usize;
        let o = numbers.output_spatial[n] as usize;
        match space {
            Space::Output => {
                let factor = rule.factor(out[o], FactorKind::Pass);
                lhs[d] = factor;
                result[o] = factor;
            }
            Space::Kernel => {
                let factor = rule.factor(w.size, FactorKind::Reduce(Reduction::Sum));
                lhs[d] = factor;
                rhs[k] = factor;
            }
        }
    }
    let window: f64 = convolution.window.dims.iter().map(|w| w.size as f64).product();
    rule.flops = 2.0 * out.iter().map(|&n| n as f64).product::<f64>() * r[kernel_in] as f64 * window;
    rule.operands = smallvec![lhs, rhs];
    rule.results = smallvec![result];
    rule
}

//! Batch normalisation: training, inference and gradient. Everything is computed in f64 and rounded once.

use crate::interpreter::{Device, OperandValues};
use crate::ops::elementwise::convert;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Op;
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let (epsilon, feature) = match module[i].op {
        Op::BatchNormTraining { epsilon, feature_index }
        | Op::BatchNormInference { epsilon, feature_index }
        | Op::BatchNormGrad { epsilon, feature_index } => (f64::from(epsilon.get()), feature_index as usize),
        _ => return Err(ExecutionError::bug("not a batch normalisation")),
    };
    let types: Vec<ElementType> = module[i].shape.leaves().iter().filter_map(|(_, s)| s.element_type()).collect();
    let wide = operands.into_iter().map(|v| convert(v.into_array()?, ElementType::F64));
    let wide = wide.collect::<Result<Vec<_>, _>>()?;
    let features = Features::new(wide.first().ok_or_else(|| ExecutionError::bug("no operand"))?, feature)?;
    let results = match (&module[i].op, &wide[..]) {
        (Op::BatchNormTraining { .. }, [x, scale, offset]) => {
            let mean = features.means(x, |x, _| x)?;
            let variance = features.means(x, |x, f| (x - mean.elements::<f64>()[f]).powi(2))?;
            let y = features.normalised(x, scale, offset, &mean, &variance, epsilon)?;
            vec![y, mean, variance]
        }
        (Op::BatchNormInference { .. }, [x, scale, offset, mean, variance]) => {
            vec![features.normalised(x, scale, offset, mean, variance, epsilon)?]
        }
        (Op::BatchNormGrad { .. }, [x, scale, mean, variance, gradient]) => {
            features.gradients(x, scale, mean, variance, gradient, epsilon)?
        }
        _ => return Err(ExecutionError::bug("wrong operands of a batch normalisation")),
    };
    let mut values = results.into_iter().zip(types).map(|(a, t)| convert(a, t).map(Value::Array));
    match module[i].shape.is_tuple() {
        true => Ok(Value::Tuple(values.collect::<Result<_, _>>()?)),
        false => values.next().ok_or_else(|| ExecutionError::bug("no result"))?,
    }
}

/// How the features of an array lie in it.
struct Features {
    count: usize,
    /// Elements between neighbours along the feature dimension.
    stride: usize,
    /// Elements per feature.
    per_feature: f64,
}

impl Features {
    fn new(x: &Array, feature: usize) -> Result<Features, ExecutionError> {
        let missing = || ExecutionError::bug("there is no such feature dimension");
        let count = *x.dims().get(feature).ok_or_else(missing)? as usize;
        let stride = x.strides()[feature] as usize;
        Ok(Features { count, stride, per_feature: x.len() as f64 / count.max(1) as f64 })
    }

    fn of(&self, n: usize) -> usize {
        n / self.stride % self.count
    }

    /// For each feature the sum of `f(element, feature)`.
    fn sums(&self, x: &Array, f: impl Fn(usize, f64, usize) -> f64) -> Result<Vec<f64>, ExecutionError> {
        let mut sums = vec![0.0; self.count];
        for (n, &e) in x.elements::<f64>().iter().enumerate() {
            let feature = self.of(n);
            sums[feature] += f(n, e, feature);
        }
        Ok(sums)
    }

    fn means(&self, x: &Array, f: impl Fn(f64, usize) -> f64) -> Result<Array, ExecutionError> {
        let sums = self.sums(x, |_, e, feature| f(e, feature))?;
        let means: Vec<f64> = sums.iter().map(|s| s / self.per_feature).collect();
        Array::from_elements(ElementType::F64, &[self.count as i64], &means)
    }

    fn normalised(
        &self,
        x: &Array,
        scale: &Array,
        offset: &Array,
        mean: &Array,
        variance: &Array,
        epsilon: f64,
    ) -> Result<Array, ExecutionError> {
        let [scale, offset, mean, variance] = [scale, offset, mean, variance].map(|a| a.elements::<f64>());
        let mut y = x.clone();
        for (n, e) in y.elements_mut::<f64>().iter_mut().enumerate() {
            let f = self.of(n);
            *e = (*e - mean[f]) / (variance[f] + epsilon).sqrt() * scale[f] + offset[f];
        }
        Ok(y)
    }

    /// The gradients with respect to the operand, the scale and the offset.
    fn gradients(
        &self,
        x: &Array,
        scale: &Array,
        mean: &Array,
        variance: &Array,
        gradient: &Array,
        epsilon: f64,
    ) -> Result<Vec<Array>, ExecutionError> {
        let [scale, mean, variance] = [scale, mean, variance].map(|a| a.elements::<f64>());
        let g = gradient.elements::<f64>();
        let inverse: Vec<f64> = variance.iter().map(|v| 1.0 / (v + epsilon).sqrt()).collect();
        let offset_gradient = self.sums(gradient, |_, e, _| e)?;
        let scale_gradient = self.sums(x, |n, e, f| g[n] * (e - mean[f]) * inverse[f])?;
        let mut operand_gradient = x.clone();
        for (n, e) in operand_gradient.elements_mut::<f64>().iter_mut().enumerate() {
            let f = self.of(n);
            let centred = (*e - mean[f]) * inverse[f];
            let mean_terms = (offset_gradient[f] + centred * scale_gradient[f]) / self.per_feature;
            *e = scale[f] * inverse[f] * (g[n] - mean_terms);
        }
        let vector = |v: &[f64]| Array::from_elements(ElementType::F64, &[self.count as i64], v);
        Ok(vec![operand_gradient, vector(&scale_gradient)?, vector(&offset_gradient)?])
    }
}

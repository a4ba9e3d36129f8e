//! Operations written out in simpler ones: what kernels need not know.

use super::functions::applied;
use super::numbers::{Number, filled, type_bounds};
use super::{
    array, beside, bits, convolution_call, custom_call, dims, factor_call, operand, pooling, random, scan,
    scatter_loop, sorts,
};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::attributes::{ComparisonDirection, ResultAccuracy};
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{Op, UnaryOp};
use hloom_ir::opcode::Opcode;

/// The pass.
pub static PASS: Pass = Pass {
    name: "expand",
    statement: "writes out logistic, batch normalisation, map, scan, stochastic-convert, bitcasts between widths, random bits, select-and-scatter, scatters of arrays that depend on each other, sorts by functions and calls of other machines' libraries in simpler operations",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| {
        Ok(rewrite(
            module,
            &[
                RULES,
                &custom_call::RULES,
                &convolution_call::RULES,
                factor_call::RULES,
                pooling::RULES,
                random::RULES,
                scan::RULES,
                scatter_loop::RULES,
                sorts::RULES,
                bits::RULES,
            ],
        ))
    },
};

/// The rules.
pub static RULES: &[Rule] = &[
    Rule {
        name: "logistic",
        statement: "logistic(x) → 1 / (1 + exponential(-x))",
        opcodes: &[Opcode::Logistic],
        apply: logistic,
    },
    Rule {
        name: "map",
        statement: "map(x, y), to_apply=f → the operations of f on arrays",
        opcodes: &[Opcode::Map],
        apply: map,
    },
    Rule {
        name: "stochastic-convert",
        statement: "stochastic-convert(x, random) → whole(x), and one more where the fraction exceeds the random number",
        opcodes: &[Opcode::StochasticConvert],
        apply: stochastic_convert,
    },
    Rule {
        name: "batch-norm-inference",
        statement: "→ (x - mean) · scale / sqrt(variance + epsilon) + offset",
        opcodes: &[Opcode::BatchNormInference],
        apply: batch_norm_inference,
    },
    Rule {
        name: "batch-norm-training",
        statement: "→ means and variances of the features, and the normalised operand",
        opcodes: &[Opcode::BatchNormTraining],
        apply: batch_norm_training,
    },
    Rule {
        name: "batch-norm-grad",
        statement: "→ the gradients of the operand, the scale and the offset",
        opcodes: &[Opcode::BatchNormGrad],
        apply: batch_norm_grad,
    },
];

/// The type to compute in: that of the values, but at least f32.
fn wide(element_type: ElementType) -> Option<ElementType> {
    match element_type {
        ElementType::F64 => Some(ElementType::F64),
        t if t.is_float() => Some(ElementType::F32),
        _ => None,
    }
}

/// A number in f32 or f64.
fn number(b: &mut Builder<'_>, element_type: ElementType, value: f64) -> Option<InstructionId> {
    let literal = if element_type == ElementType::F64 { Literal::scalar(value) } else { Literal::scalar(value as f32) };
    b.literal(literal).ok()
}

/// `x` in the type `to`.
fn converted(b: &mut Builder<'_>, x: InstructionId, to: ElementType) -> Option<InstructionId> {
    if b.shape(x).element_type() == Some(to) { Some(x) } else { b.convert(x, to).ok() }
}

fn logistic(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Unary { op: UnaryOp::Logistic, accuracy: ResultAccuracy::Default } = module[i].op else { return None };
    let x = operand(module, i, 0)?;
    let element_type = array(module, i)?.element_type;
    let (wide, dims) = (wide(element_type)?, DimVec::from(dims(module, i)?));
    let mut b = beside(module, i);
    let one = number(&mut b, wide, 1.0)?;
    let ones = if dims.is_empty() { one } else { b.broadcast(one, dims, []).ok()? };
    let x = converted(&mut b, x, wide)?;
    let minus = b.negate(x).ok()?;
    let power = b.exponential(minus).ok()?;
    let sum = b.add(ones, power).ok()?;
    let result = b.divide(ones, sum).ok()?;
    converted(&mut b, result, element_type)
}

fn map(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Map { to_apply, .. } = module[i].op else { return None };
    let to = DimVec::from(dims(module, i)?);
    let operands = module[i].operands().to_vec();
    match applied(module, i, to_apply, &operands, &to)?.as_slice() {
        &[only] => Some(only),
        _ => None,
    }
}

fn stochastic_convert(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let (Op::StochasticConvert, &[x, random]) = (&module[i].op, module[i].operands()) else { return None };
    let (to, from) = (array(module, i)?.element_type, array(module, x)?.element_type);
    let (wide, unsigned) = (wide(from)?, array(module, random)?.element_type);
    (to.is_signed_integer() && unsigned.is_unsigned_integer()).then_some(())?;
    let dims = DimVec::from(dims(module, i)?);
    let (least, most) = type_bounds(to)?;
    let mut b = beside(module, i);
    let float = |b: &mut Builder<'_>, value: f64| filled(b, wide, &dims, Number::Float(value));
    let integer = |b: &mut Builder<'_>, value: i128| filled(b, to, &dims, Number::Int(value));
    let x = converted(&mut b, x, wide)?;
    let size = b.abs(x).ok()?;
    let whole = b.floor(size).ok()?;
    let fraction = b.subtract(size, whole).ok()?;
    // All of this is exact: the fraction has no more digits than the number, and is multiplied by a power of two.
    let range = float(&mut b, 2f64.powi(unsigned.bits() as i32))?;
    let scaled = b.multiply(fraction, range).ok()?;
    let threshold = b.convert(scaled, unsigned).ok()?;
    let is_more = b.compare(ComparisonDirection::Lt, random, threshold).ok()?;
    let (one, zero) = (integer(&mut b, 1)?, integer(&mut b, 0)?);
    let more = b.select(is_more, one, zero).ok()?;
    let whole = b.convert(whole, to).ok()?;
    let magnitude = b.add(whole, more).ok()?;
    let negated = b.negate(magnitude).ok()?;
    let zeros = float(&mut b, 0.0)?;
    let is_negative = b.compare(ComparisonDirection::Lt, x, zeros).ok()?;
    let mut result = b.select(is_negative, negated, magnitude).ok()?;
    for (bound, direction) in [(most, ComparisonDirection::Ge), (least, ComparisonDirection::Le)] {
        let limit = float(&mut b, bound as f64)?;
        let is_beyond = b.compare(direction, x, limit).ok()?;
        let bound = integer(&mut b, bound)?;
        result = b.select(is_beyond, bound, result).ok()?;
    }
    let is_nan = b.compare(ComparisonDirection::Ne, x, x).ok()?;
    b.select(is_nan, zero, result).ok()
}

/// A batch normalisation being written out.
struct BatchNorm<'m> {
    b: Builder<'m>,
    /// The type to compute in, and the type of the values.
    wide: ElementType,
    narrow: ElementType,
    dims: DimVec,
    feature: i64,
    epsilon: f64,
    /// Elements per feature.
    count: f64,
}

impl<'m> BatchNorm<'m> {
    fn new(module: &'m mut Module, i: InstructionId) -> Option<BatchNorm<'m>> {
        let (Op::BatchNormTraining { epsilon, feature_index }
        | Op::BatchNormInference { epsilon, feature_index }
        | Op::BatchNormGrad { epsilon, feature_index }) = module[i].op
        else {
            return None;
        };
        let x = operand(module, i, 0)?;
        let narrow = array(module, x)?.element_type;
        let dims = DimVec::from(dims(module, x)?);
        let features = *dims.get(usize::try_from(feature_index).ok()?)?;
        let count = array(module, x)?.element_count()? / features.max(1);
        // All operands are of one type, or it is not one of the simple cases.
        let same = |&o: &InstructionId| array(module, o).is_some_and(|a| a.element_type == narrow);
        module[i].operands().iter().all(same).then_some(())?;
        (count > 0).then_some(())?;
        let epsilon = f64::from(epsilon.get());
        let b = beside(module, i);
        Some(BatchNorm { b, wide: wide(narrow)?, narrow, dims, feature: feature_index, epsilon, count: count as f64 })
    }

    fn widen(&mut self, x: InstructionId) -> Option<InstructionId> {
        converted(&mut self.b, x, self.wide)
    }

    fn narrow(&mut self, x: InstructionId) -> Option<InstructionId> {
        converted(&mut self.b, x, self.narrow)
    }

    /// One value per feature, repeated over the array.
    fn repeat(&mut self, per_feature: InstructionId) -> Option<InstructionId> {
        self.b.broadcast(per_feature, self.dims.iter().copied(), [self.feature]).ok()
    }

    /// `value` for each feature.
    fn per_feature(&mut self, value: f64) -> Option<InstructionId> {
        let scalar = number(&mut self.b, self.wide, value)?;
        let features = *self.dims.get(self.feature as usize)?;
        self.b.broadcast(scalar, [features], []).ok()
    }

    /// The sum over each feature.
    fn sum(&mut self, x: InstructionId) -> Option<InstructionId> {
        let others: DimVec = (0..self.dims.len() as i64).filter(|&d| d != self.feature).collect();
        self.b.sum(x, others).ok()
    }

    fn mean(&mut self, x: InstructionId) -> Option<InstructionId> {
        let sum = self.sum(x)?;
        let count = self.per_feature(self.count)?;
        self.b.divide(sum, count).ok()
    }

    /// `x - mean`.
    fn centred(&mut self, x: InstructionId, mean: InstructionId) -> Option<InstructionId> {
        let mean = self.repeat(mean)?;
        self.b.subtract(x, mean).ok()
    }

    /// `sqrt(variance + epsilon)`.
    fn deviation(&mut self, variance: InstructionId) -> Option<InstructionId> {
        let epsilon = self.per_feature(self.epsilon)?;
        let sum = self.b.add(variance, epsilon).ok()?;
        self.b.sqrt(sum).ok()
    }

    /// `centred · scale / deviation + offset`.
    fn normalised(
        &mut self,
        centred: InstructionId,
        [scale, offset, variance]: [InstructionId; 3],
    ) -> Option<InstructionId> {
        let deviation = self.deviation(variance)?;
        let factor = self.b.divide(scale, deviation).ok()?;
        let (factor, offset) = (self.repeat(factor)?, self.repeat(offset)?);
        let scaled = self.b.multiply(centred, factor).ok()?;
        let sum = self.b.add(scaled, offset).ok()?;
        self.narrow(sum)
    }
}

fn batch_norm_inference(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, scale, offset, mean, variance] = module[i].operands() else { return None };
    let mut n = BatchNorm::new(module, i)?;
    let x = n.widen(x)?;
    let [scale, offset, mean, variance] = [n.widen(scale)?, n.widen(offset)?, n.widen(mean)?, n.widen(variance)?];
    let centred = n.centred(x, mean)?;
    n.normalised(centred, [scale, offset, variance])
}

fn batch_norm_training(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, scale, offset] = module[i].operands() else { return None };
    let mut n = BatchNorm::new(module, i)?;
    let [x, scale, offset] = [n.widen(x)?, n.widen(scale)?, n.widen(offset)?];
    let mean = n.mean(x)?;
    let centred = n.centred(x, mean)?;
    let squares = n.b.multiply(centred, centred).ok()?;
    let variance = n.mean(squares)?;
    let y = n.normalised(centred, [scale, offset, variance])?;
    let results = [y, n.narrow(mean)?, n.narrow(variance)?];
    n.b.tuple(&results).ok()
}

fn batch_norm_grad(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, scale, mean, variance, gradient] = module[i].operands() else { return None };
    let mut n = BatchNorm::new(module, i)?;
    let [x, gradient] = [n.widen(x)?, n.widen(gradient)?];
    let [scale, mean, variance] = [n.widen(scale)?, n.widen(mean)?, n.widen(variance)?];
    let deviation = n.deviation(variance)?;
    let centred = n.centred(x, mean)?;
    let wide_deviation = n.repeat(deviation)?;
    let normalised = n.b.divide(centred, wide_deviation).ok()?;
    let of_offset = n.sum(gradient)?;
    let products = n.b.multiply(gradient, normalised).ok()?;
    let of_scale = n.sum(products)?;
    let count = n.per_feature(n.count)?;
    let mean_of_gradient = n.b.divide(of_offset, count).ok()?;
    let mean_of_products = n.b.divide(of_scale, count).ok()?;
    let (a, c) = (n.repeat(mean_of_gradient)?, n.repeat(mean_of_products)?);
    let along = n.b.multiply(normalised, c).ok()?;
    let taken = n.b.add(a, along).ok()?;
    let left = n.b.subtract(gradient, taken).ok()?;
    let factor = n.b.divide(scale, deviation).ok()?;
    let factor = n.repeat(factor)?;
    let of_x = n.b.multiply(left, factor).ok()?;
    let results = [n.narrow(of_x)?, n.narrow(of_scale)?, n.narrow(of_offset)?];
    n.b.tuple(&results).ok()
}

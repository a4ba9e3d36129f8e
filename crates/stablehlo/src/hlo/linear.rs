//! Products, convolutions, transforms, normalisation and random numbers.

use super::{Translate, Translator};
use crate::mlir::{Attr, FloatKind, Type};
use hloom_ir::attributes::*;
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::{Convolution, Dot};
use hloom_ir::{ArrayShape, ElementType, Op, Shape};
use smallvec::SmallVec;

impl Translator<'_, '_> {
    pub(super) fn precision(&self) -> Translate<SmallVec<[Precision; 2]>> {
        let Some(id) = self.attr("precision_config") else { return Ok(SmallVec::new()) };
        let one = |&p: &crate::mlir::AttrId| match self.m.as_str(p) {
            Some("DEFAULT") => Ok(Precision::Default),
            Some("HIGH") => Ok(Precision::High),
            Some("HIGHEST") => Ok(Precision::Highest),
            _ => Err(self.bad_attribute("precision_config", "a list of DEFAULT, HIGH or HIGHEST")),
        };
        let list = self.m.list(id).iter().map(one).collect::<Translate<SmallVec<[Precision; 2]>>>()?;
        Ok(if list.iter().all(|&p| p == Precision::Default) { SmallVec::new() } else { list })
    }

    fn algorithm(&self) -> Translate<DotAlgorithm> {
        use FloatKind as F;
        let kind = |name: &str| match self.attr(name).map(|id| self.m.attr(id)) {
            Some(Attr::Type(t)) => match self.m.ty(*t) {
                Type::Float(kind) => Some(*kind),
                _ => None,
            },
            _ => None,
        };
        let (lhs, rhs, sum) = (kind("lhs_precision_type"), kind("rhs_precision_type"), kind("accumulation_type"));
        let (Some(lhs), Some(rhs), Some(sum)) = (lhs, rhs, sum) else { return Ok(DotAlgorithm::Unset) };
        let count = |name| self.attr(name).and_then(|id| self.m.as_int(id)).unwrap_or(1);
        let products = count("num_primitive_operations");
        let fast = self.flag("allow_imprecise_accumulation").unwrap_or(false);
        let small = |k: FloatKind| k.bits() == 8;
        Ok(match (lhs, rhs, sum, products) {
            (l, r, F::F32, 1) if small(l) && small(r) && fast => DotAlgorithm::AnyF8AnyF8F32FastAccum,
            (l, r, F::F32, 1) if small(l) && small(r) => DotAlgorithm::AnyF8AnyF8F32,
            (F::F16, F::F16, F::F16, 1) => DotAlgorithm::F16F16F16,
            (F::F16, F::F16, F::F32, 1) => DotAlgorithm::F16F16F32,
            (F::Bf16, F::Bf16, F::Bf16, 1) => DotAlgorithm::Bf16Bf16Bf16,
            (F::Bf16, F::Bf16, F::F32, 1) => DotAlgorithm::Bf16Bf16F32,
            (F::Bf16, F::Bf16, F::F32, 3) => DotAlgorithm::Bf16Bf16F32X3,
            (F::Bf16, F::Bf16, F::F32, 6) => DotAlgorithm::Bf16Bf16F32X6,
            (F::Bf16, F::Bf16, F::F32, 9) => DotAlgorithm::Bf16Bf16F32X9,
            (F::Tf32, F::Tf32, F::F32, 1) => DotAlgorithm::Tf32Tf32F32,
            (F::Tf32, F::Tf32, F::F32, 3) => DotAlgorithm::Tf32Tf32F32X3,
            (F::F32, F::F32, F::F32, 1) => DotAlgorithm::F32F32F32,
            (F::F64, F::F64, F::F64, 1) => DotAlgorithm::F64F64F64,
            _ => return Err(self.error(&codes::NO_HLO_FORM, "HLO has no dot algorithm of that kind")),
        })
    }

    pub(super) fn dot_general(&mut self) -> Translate<()> {
        let dims = DotDimensionNumbers {
            lhs_contracting: self.ints("lhs_contracting_dimensions")?,
            rhs_contracting: self.ints("rhs_contracting_dimensions")?,
            lhs_batch: self.ints("lhs_batching_dimensions")?,
            rhs_batch: self.ints("rhs_batching_dimensions")?,
        };
        let precision = PrecisionConfig { operand_precision: self.precision()?, algorithm: self.algorithm()? };
        self.plain(2, Op::Dot(Box::new(Dot { dims, precision })))
    }

    pub(super) fn dot(&mut self) -> Translate<()> {
        let lhs = self.operand(0)?;
        let rank = self.shape(lhs).as_array().map_or(0, ArrayShape::rank) as i64;
        let dims = DotDimensionNumbers {
            lhs_contracting: DimVec::from_slice(&[rank - 1]),
            rhs_contracting: DimVec::from_slice(&[0]),
            ..DotDimensionNumbers::default()
        };
        let precision = PrecisionConfig { operand_precision: self.precision()?, algorithm: DotAlgorithm::Unset };
        self.plain(2, Op::Dot(Box::new(Dot { dims, precision })))
    }

    /// `ab,bc->ac`: labels shared by both sides and the result are batched, those shared by both sides alone summed.
    pub(super) fn einsum(&mut self) -> Translate<()> {
        self.expect_operands(2)?;
        let config = self.text("einsum_config")?;
        let bad = |t: &Self| t.bad_attribute("einsum_config", "of the form ab,bc->ac");
        let (inputs, output) = config.split_once("->").ok_or_else(|| bad(self))?;
        let (lhs_labels, rhs_labels) = inputs.split_once(',').ok_or_else(|| bad(self))?;
        let (l, r, o) = (lhs_labels.trim().as_bytes(), rhs_labels.trim().as_bytes(), output.trim().as_bytes());
        let (lhs, rhs) = (self.operand(0)?, self.operand(1)?);
        let rank = |t: &Self, x: InstructionId| t.shape(x).as_array().map_or(0, ArrayShape::rank);
        if rank(self, lhs) != l.len() || rank(self, rhs) != r.len() {
            return Err(bad(self));
        }
        let mut dims = DotDimensionNumbers::default();
        let mut labels: Vec<u8> = Vec::new();
        for (i, label) in l.iter().enumerate() {
            if let Some(j) = r.iter().position(|x| x == label) {
                if o.contains(label) {
                    dims.lhs_batch.push(i as i64);
                    dims.rhs_batch.push(j as i64);
                    labels.push(*label);
                } else {
                    dims.lhs_contracting.push(i as i64);
                    dims.rhs_contracting.push(j as i64);
                }
            }
        }
        labels.extend(l.iter().filter(|x| !r.contains(x)));
        labels.extend(r.iter().filter(|x| !l.contains(x)));
        let permutation: Option<DimVec> =
            o.iter().map(|x| labels.iter().position(|y| y == x).map(|p| p as i64)).collect();
        let permutation = permutation.filter(|p| p.len() == labels.len()).ok_or_else(|| bad(self))?;
        let shape = self.result_shape(0)?;
        let Some(result) = shape.as_array().filter(|a| a.rank() == o.len()) else { return Err(bad(self)) };
        let mut sizes: DimVec = smallvec::smallvec![0; labels.len()];
        for (i, &p) in permutation.iter().enumerate() {
            sizes[p as usize] = result.dims()[i];
        }
        let before = ArrayShape::new(result.element_type, sizes).with_default_layout();
        let precision = PrecisionConfig { operand_precision: self.precision()?, algorithm: DotAlgorithm::Unset };
        let product = self.emit(Op::Dot(Box::new(Dot { dims, precision })), [lhs, rhs].as_slice(), before.into())?;
        let id = self.emit(Op::Transpose { dimensions: permutation }, [product].as_slice(), shape)?;
        self.bind(id)
    }

    /// `ab->a`: labels that the result lacks are summed over.
    pub(super) fn unary_einsum(&mut self) -> Translate<()> {
        let config = self.text("einsum_config")?;
        let bad = |t: &Self| t.bad_attribute("einsum_config", "of the form ab->a");
        let (input, output) = config.split_once("->").ok_or_else(|| bad(self))?;
        let (l, o) = (input.trim().as_bytes(), output.trim().as_bytes());
        let x = self.operand(0)?;
        let Some(from) = self.shape(x).as_array().filter(|a| a.rank() == l.len()).cloned() else {
            return Err(bad(self));
        };
        let summed: DimVec = (0..l.len()).filter(|&i| !o.contains(&l[i])).map(|i| i as i64).collect();
        let kept: Vec<u8> = l.iter().copied().filter(|x| o.contains(x)).collect();
        let permutation: Option<DimVec> =
            o.iter().map(|x| kept.iter().position(|y| y == x).map(|p| p as i64)).collect();
        let permutation = permutation.filter(|p| p.len() == kept.len()).ok_or_else(|| bad(self))?;
        let zero = self.number(from.element_type, 0.0)?;
        let add = self.named_reducer(hloom_ir::op::BinaryOp::Add, from.element_type)?;
        let sizes = (0..l.len()).filter(|&i| o.contains(&l[i])).map(|i| from.dims()[i]);
        let reduced: Shape = ArrayShape::new(from.element_type, sizes).with_default_layout().into();
        let sum = self.emit(Op::Reduce { dimensions: summed, to_apply: add }, [x, zero].as_slice(), reduced)?;
        let shape = self.result_shape(0)?;
        let id = self.emit(Op::Transpose { dimensions: permutation }, [sum].as_slice(), shape)?;
        self.bind(id)
    }

    pub(super) fn convolution(&mut self) -> Translate<()> {
        self.expect_operands(2)?;
        let kernel = self.needed_ints("kernel_spatial_dimensions")?;
        let padding = self.pairs("padding", kernel.len())?;
        self.convolution_padded(&padding)
    }

    pub(super) fn convolution_padded(&mut self, padding: &[(i64, i64)]) -> Translate<()> {
        let dims = ConvDimensionNumbers {
            input_batch: self.int("input_batch_dimension")?,
            input_feature: self.int("input_feature_dimension")?,
            input_spatial: self.needed_ints("input_spatial_dimensions")?,
            kernel_input_feature: self.int("kernel_input_feature_dimension")?,
            kernel_output_feature: self.int("kernel_output_feature_dimension")?,
            kernel_spatial: self.needed_ints("kernel_spatial_dimensions")?,
            output_batch: self.int("output_batch_dimension")?,
            output_feature: self.int("output_feature_dimension")?,
            output_spatial: self.needed_ints("output_spatial_dimensions")?,
        };
        let count = dims.kernel_spatial.len();
        let strides = self.ints_or("window_strides", count, 1)?;
        let lhs_dilation = self.ints_or("lhs_dilation", count, 1)?;
        let rhs_dilation = self.ints_or("rhs_dilation", count, 1)?;
        let reversal = self.ints_or("window_reversal", count, 0)?;
        let (lhs, rhs) = (self.operand(0)?, self.operand(1)?);
        let size = |d: i64| {
            let a = self.shape(rhs).as_array()?;
            usize::try_from(d).ok().and_then(|d| a.dims().get(d).copied())
        };
        let mut window = Window::default();
        for (i, &d) in dims.kernel_spatial.iter().enumerate() {
            let Some(size) = size(d) else {
                return Err(self.bad_attribute("kernel_spatial_dimensions", "a list of the kernel's dimensions"));
            };
            window.dims.push(WindowDim {
                size,
                stride: strides[i],
                padding_low: padding[i].0,
                padding_high: padding[i].1,
                window_dilation: rhs_dilation[i],
                base_dilation: lhs_dilation[i],
                window_reversal: reversal[i] != 0,
            });
        }
        let convolution = Convolution {
            window,
            dims,
            feature_group_count: self.int_or("feature_group_count", 1)?,
            batch_group_count: self.int_or("batch_group_count", 1)?,
            precision: PrecisionConfig { operand_precision: self.precision()?, algorithm: DotAlgorithm::Unset },
            kind: ConvolutionKind::Unset,
            lhs_sparsity: None,
            rhs_sparsity: None,
        };
        let shape = self.result_shape(0)?;
        let id = self.emit(Op::Convolution(Box::new(convolution)), [lhs, rhs].as_slice(), shape)?;
        self.bind(id)
    }

    pub(super) fn fft(&mut self) -> Translate<()> {
        let Some(kind) = FftType::from_text(self.text("fft_type")?) else {
            return Err(self.bad_attribute("fft_type", "one of FFT, IFFT, RFFT, IRFFT"));
        };
        let length = self.needed_ints("fft_length")?;
        self.plain(1, Op::Fft { kind, length })
    }

    pub(super) fn triangular_solve(&mut self) -> Translate<()> {
        let transpose_a = match self.text_opt("transpose_a") {
            None => TransposeA::None,
            Some(text) => match TransposeA::from_text(text) {
                Some(t) => t,
                None => return Err(self.bad_attribute("transpose_a", "NO_TRANSPOSE, TRANSPOSE or ADJOINT")),
            },
        };
        let op = Op::TriangularSolve {
            left_side: self.flag("left_side")?,
            lower: self.flag("lower")?,
            unit_diagonal: self.flag("unit_diagonal")?,
            transpose_a,
        };
        self.plain(2, op)
    }

    pub(super) fn batch_norm(&mut self) -> Translate<()> {
        use crate::mlir::OpKind as K;
        let epsilon = (self.float("epsilon")? as f32).into();
        let feature_index = self.int("feature_index")?;
        let operands = self.operands()?;
        match self.m.kind(self.at) {
            K::BatchNormTraining => {
                self.expect_operands(3)?;
                self.emit_results(Op::BatchNormTraining { epsilon, feature_index }, operands)
            }
            K::BatchNormGrad => {
                self.expect_operands(5)?;
                self.emit_results(Op::BatchNormGrad { epsilon, feature_index }, operands)
            }
            _ => self.plain(5, Op::BatchNormInference { epsilon, feature_index }),
        }
    }

    pub(super) fn rng(&mut self) -> Translate<()> {
        let distribution = match self.text("rng_distribution")? {
            "UNIFORM" => RngDistribution::Uniform,
            "NORMAL" => RngDistribution::Normal,
            _ => return Err(self.bad_attribute("rng_distribution", "UNIFORM or NORMAL")),
        };
        let (a, b) = (self.operand(0)?, self.operand(1)?);
        let shape = self.result_shape(0)?;
        let id = self.emit(Op::Rng { distribution }, [a, b].as_slice(), shape)?;
        self.bind(id)
    }

    pub(super) fn rng_bit_generator(&mut self) -> Translate<()> {
        let algorithm = match self.text("rng_algorithm")? {
            "DEFAULT" => RngAlgorithm::Default,
            "THREE_FRY" => RngAlgorithm::ThreeFry,
            "PHILOX" => RngAlgorithm::Philox,
            _ => return Err(self.bad_attribute("rng_algorithm", "DEFAULT, THREE_FRY or PHILOX")),
        };
        let operands = self.operands()?;
        self.emit_results(Op::RngBitGenerator { algorithm }, operands)
    }

    /// A computation that applies `op` to two scalars.
    pub(super) fn named_reducer(
        &mut self,
        op: hloom_ir::op::BinaryOp,
        element: ElementType,
    ) -> Translate<hloom_ir::entity::ComputationId> {
        let outer = self.begin("region");
        let scalar = Shape::scalar(element).with_default_layout();
        let x = self.emit(Op::parameter(0), [].as_slice(), scalar.clone())?;
        let y = self.emit(Op::parameter(1), [].as_slice(), scalar.clone())?;
        let root = self.emit(Op::Binary(op), [x, y].as_slice(), scalar)?;
        Ok(self.end(outer, root))
    }
}

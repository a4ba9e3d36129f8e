//! Operations that take sizes as operands. HLO has none of them: where the sizes are known, the static operation stands
//! for them.

use super::{Translate, Translator};
use hloom_ir::attributes::{PaddingDim, SliceDim, Window, WindowDim};
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::Gather;
use hloom_ir::{ArrayShape, ElementType, Op, Shape};

impl Translator<'_, '_> {
    /// Operand `i`, whose elements must be known.
    fn known_sizes(&mut self, i: usize) -> Translate<Vec<i64>> {
        let id = self.operand(i)?;
        match self.fold(id) {
            Some(folded) => Ok(folded.values),
            None => {
                let message = format!("operand {i} of {} is not known before the program runs", self.op_name());
                Err(self.error(&codes::DYNAMIC_SHAPE, message))
            }
        }
    }

    /// The result's shape: as the program writes it, or with the sizes that operand `i` holds.
    fn target_shape(&mut self, i: usize) -> Translate<Shape> {
        let declared = self.result_shape(0)?;
        let Some(array) = declared.as_array().filter(|a| a.is_dynamic()) else { return Ok(declared) };
        let element = array.element_type;
        let sizes = self.known_sizes(i)?;
        if sizes.len() != array.rank() || sizes.iter().any(|&s| s < 0) {
            return Err(self.error(&codes::BAD_OPERANDS, "sizes are given that no array has"));
        }
        Ok(ArrayShape::new(element, sizes).with_default_layout().into())
    }

    pub(super) fn dynamic_reshape(&mut self) -> Translate<()> {
        let x = self.operand(0)?;
        let shape = self.target_shape(1)?;
        let id = self.emit(Op::Reshape { inferred_dimension: None }, [x].as_slice(), shape)?;
        self.bind(id)
    }

    pub(super) fn dynamic_broadcast_in_dim(&mut self) -> Translate<()> {
        let x = self.operand(0)?;
        let shape = self.target_shape(1)?;
        let dimensions = self.ints("broadcast_dimensions")?;
        let id = self.broadcast_to(x, shape, &dimensions)?;
        self.bind(id)
    }

    pub(super) fn dynamic_iota(&mut self) -> Translate<()> {
        let shape = self.target_shape(0)?;
        let dimension = self.int("iota_dimension")?;
        let id = self.emit(Op::Iota { dimension }, [].as_slice(), shape)?;
        self.bind(id)
    }

    pub(super) fn dynamic_pad(&mut self) -> Translate<()> {
        let (x, value) = (self.operand(0)?, self.operand(1)?);
        let (low, high, interior) = (self.known_sizes(2)?, self.known_sizes(3)?, self.known_sizes(4)?);
        if low.len() != high.len() || low.len() != interior.len() {
            return Err(self.error(&codes::BAD_OPERANDS, "paddings are given for other numbers of dimensions"));
        }
        let dims = (0..low.len()).map(|i| PaddingDim { low: low[i], high: high[i], interior: interior[i] });
        let padding = dims.collect();
        let shape = self.result_shape(0)?;
        let id = self.emit(Op::Pad { padding }, [x, value].as_slice(), shape)?;
        self.bind(id)
    }

    pub(super) fn real_dynamic_slice(&mut self) -> Translate<()> {
        let x = self.operand(0)?;
        let folded = [1, 2, 3].map(|i| self.operand(i).ok().and_then(|id| self.fold(id)).map(|f| f.values));
        if let [Some(start), Some(limit), Some(strides)] = &folded {
            if start.len() != limit.len() || start.len() != strides.len() {
                return Err(self.error(&codes::BAD_OPERANDS, "bounds are given for other numbers of dimensions"));
            }
            let dim = |i: usize| SliceDim { start: start[i], limit: limit[i], stride: strides[i] };
            let dims = (0..start.len()).map(dim).collect();
            let shape = self.result_shape(0)?;
            let id = self.emit(Op::Slice { dims }, [x].as_slice(), shape)?;
            return self.bind(id);
        }
        // A part of known size at an unknown place is a dynamic slice.
        let shape = self.result_shape(0)?;
        let unit = folded[2].as_ref().is_some_and(|s| s.iter().all(|&n| n == 1));
        let (Some(array), true) = (shape.as_array().filter(|a| !a.is_dynamic()), unit) else {
            let message = format!("the bounds of {} are not known before the program runs", self.op_name());
            return Err(self.error(&codes::DYNAMIC_SHAPE, message));
        };
        let sizes: DimVec = array.dims().into();
        let starts = self.operand(1)?;
        let element = self.shape(starts).element_type().unwrap_or(ElementType::S64);
        let mut operands = vec![x];
        for d in 0..sizes.len() as i64 {
            let one = ArrayShape::new(element, [1]).with_default_layout();
            let dims = [SliceDim { start: d, limit: d + 1, stride: 1 }].into();
            let part = self.emit(Op::Slice { dims }, [starts].as_slice(), one.into())?;
            let scalar = Shape::scalar(element).with_default_layout();
            operands.push(self.emit(Op::Reshape { inferred_dimension: None }, [part].as_slice(), scalar)?);
        }
        let id = self.emit(Op::DynamicSlice { sizes }, operands.as_slice(), shape)?;
        self.bind(id)
    }

    pub(super) fn dynamic_gather(&mut self) -> Translate<()> {
        let (x, indices) = (self.operand(0)?, self.operand(1)?);
        let slice_sizes: DimVec = self.known_sizes(2)?.into();
        let dims = self.gather_dims()?;
        let indices_are_sorted = self.flag("indices_are_sorted")?;
        let shape = self.result_shape(0)?;
        let gather = Gather { dims, slice_sizes, indices_are_sorted };
        let id = self.emit(Op::Gather(Box::new(gather)), [x, indices].as_slice(), shape)?;
        self.bind(id)
    }

    pub(super) fn dynamic_conv(&mut self) -> Translate<()> {
        let padding = self.known_sizes(2)?;
        let count = self.needed_ints("kernel_spatial_dimensions")?.len();
        if padding.len() != 2 * count {
            return Err(self.error(&codes::BAD_OPERANDS, "the padding has other numbers of dimensions"));
        }
        let padding: Vec<(i64, i64)> = padding.chunks_exact(2).map(|p| (p[0], p[1])).collect();
        self.convolution_padded(&padding)
    }

    /// Custom calls by which front ends write dynamic forms of operations that have none.
    pub(super) fn dynamic_call(&mut self, target: &str) -> Translate<bool> {
        match target {
            "stablehlo.dynamic_reduce_window" => self.dynamic_reduce_window()?,
            "stablehlo.dynamic_rng_bit_generator" => {
                let state = self.operand(0)?;
                let algorithm = match self.text_opt("rng_algorithm") {
                    Some("THREE_FRY") => hloom_ir::attributes::RngAlgorithm::ThreeFry,
                    Some("PHILOX") => hloom_ir::attributes::RngAlgorithm::Philox,
                    _ => hloom_ir::attributes::RngAlgorithm::Default,
                };
                let shapes = self.result_shapes()?;
                let sizes = self.known_sizes(1)?;
                let element = shapes.get(1).and_then(Shape::element_type).unwrap_or(ElementType::U32);
                let bits: Shape = ArrayShape::new(element, sizes).with_default_layout().into();
                let shape = Shape::tuple([self.shape(state).clone(), bits]);
                let id = self.emit(Op::RngBitGenerator { algorithm }, [state].as_slice(), shape)?;
                self.bind_tuple(id)?;
            }
            "stablehlo.dynamic_top_k" => {
                let x = self.operand(0)?;
                let k = self.known_sizes(1)?.first().copied().unwrap_or(0);
                let id = self.top_k(x, k)?;
                self.bind_tuple(id)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The largest `k` along the last dimension, with their places.
    pub(super) fn top_k(&mut self, x: InstructionId, k: i64) -> Translate<InstructionId> {
        let Some(array) = self.shape(x).as_array().filter(|a| !a.is_scalar()) else {
            return Err(self.error(&codes::BAD_OPERANDS, "top_k takes an array with a dimension"));
        };
        let mut dims: Vec<i64> = array.dims().to_vec();
        let last = dims.len() - 1;
        dims[last] = k;
        let values: Shape = ArrayShape::new(array.element_type, dims.iter().copied()).with_default_layout().into();
        let places: Shape = ArrayShape::new(ElementType::S32, dims).with_default_layout().into();
        let op = Op::TopK { k, largest: true, is_stable: true };
        self.emit(op, [x].as_slice(), Shape::tuple([values, places]))
    }

    fn dynamic_reduce_window(&mut self) -> Translate<()> {
        let operands = self.operands()?;
        let inputs = operands.len().checked_sub(5).filter(|n| n % 2 == 0 && *n > 0);
        let Some(inputs) = inputs else {
            return Err(self.error(&codes::BAD_OPERANDS, "a dynamic reduce_window takes five lists after its values"));
        };
        let [sizes, strides, base, dilation, padding] = [0, 1, 2, 3, 4].map(|i| self.known_sizes(inputs + i));
        let (sizes, strides, base, dilation, padding) = (sizes?, strides?, base?, dilation?, padding?);
        let rank = sizes.len();
        if [&strides, &base, &dilation].iter().any(|l| l.len() != rank) || padding.len() != 2 * rank {
            return Err(self.error(&codes::BAD_OPERANDS, "lists are given for other numbers of dimensions"));
        }
        let callee = self.attr("called_computations").and_then(|id| self.m.list(id).first().copied());
        let function = callee.and_then(|c| self.m.as_str(c)).and_then(|name| self.functions.get(name));
        let Some(&to_apply) = function.and_then(|f| self.translated.get(f)) else {
            return Err(self.bad_attribute("called_computations", "a list of one function"));
        };
        let dim = |i: usize| WindowDim {
            size: sizes[i],
            stride: strides[i],
            padding_low: padding[2 * i],
            padding_high: padding[2 * i + 1],
            window_dilation: dilation[i],
            base_dilation: base[i],
            window_reversal: false,
        };
        let window = Box::new(Window { dims: (0..rank).map(dim).collect() });
        self.emit_results(Op::ReduceWindow { window, to_apply }, &operands[..inputs])
    }
}

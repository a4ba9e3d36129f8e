//! The same elements elsewhere: broadcasts, slices, pads, gathers and scatters.

use super::{Translate, Translator};
use hloom_ir::attributes::{GatherDimensionNumbers, PaddingDim, ScatterDimensionNumbers, SliceDim};
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::{Gather, Scatter};
use hloom_ir::{ArrayShape, ElementType, Op, Shape};

impl Translator<'_, '_> {
    pub(super) fn broadcast_in_dim(&mut self) -> Translate<()> {
        self.expect_operands(1)?;
        let x = self.operand(0)?;
        let dimensions = self.ints("broadcast_dimensions")?;
        let shape = self.result_shape(0)?;
        let id = self.broadcast_to(x, shape, &dimensions)?;
        self.bind(id)
    }

    /// `x` repeated to `shape`. HLO does not repeat along dimensions of size one, so those are dropped first.
    pub(super) fn broadcast_to(
        &mut self,
        x: InstructionId,
        shape: Shape,
        dimensions: &[i64],
    ) -> Translate<InstructionId> {
        let (Some(from), Some(to)) = (self.shape(x).as_array(), shape.as_array()) else {
            return Err(self.error(&codes::BAD_OPERANDS, "only arrays are broadcast"));
        };
        if from.rank() != dimensions.len() {
            let message = format!("{} dimensions are named for {} of the operand", dimensions.len(), from.rank());
            return Err(self.error(&codes::BAD_ATTRIBUTE, message));
        }
        let size = |d: i64| usize::try_from(d).ok().and_then(|d| to.dims().get(d).copied());
        let expands = |(&n, &d): (&i64, &i64)| n == 1 && size(d).is_some_and(|m| m != 1);
        if !from.dims().iter().zip(dimensions).any(expands) {
            return self.emit(Op::Broadcast { dimensions: dimensions.into() }, [x].as_slice(), shape);
        }
        let kept: Vec<usize> = (0..dimensions.len()).filter(|&i| !expands((&from.dims()[i], &dimensions[i]))).collect();
        let sizes: DimVec = kept.iter().map(|&i| from.dims()[i]).collect();
        let dimensions: DimVec = kept.iter().map(|&i| dimensions[i]).collect();
        let narrow = ArrayShape::new(from.element_type, sizes).with_default_layout();
        let x = self.emit(Op::Reshape { inferred_dimension: None }, [x].as_slice(), narrow.into())?;
        self.emit(Op::Broadcast { dimensions }, [x].as_slice(), shape)
    }

    pub(super) fn broadcast(&mut self) -> Translate<()> {
        let x = self.operand(0)?;
        let added = self.ints("broadcast_sizes")?.len();
        let rank = self.shape(x).as_array().map_or(0, ArrayShape::rank);
        let dimensions = (added..added + rank).map(|d| d as i64).collect();
        self.plain(1, Op::Broadcast { dimensions })
    }

    pub(super) fn concatenate(&mut self) -> Translate<()> {
        let dimension = self.int("dimension")?;
        let operands = self.operands()?;
        if let [one] = operands[..] {
            return self.bind(one);
        }
        self.variadic(Op::Concatenate { dimension })
    }

    pub(super) fn slice(&mut self) -> Translate<()> {
        let start = self.needed_ints("start_indices")?;
        let limit = self.needed_ints("limit_indices")?;
        let strides = self.ints_or("strides", start.len(), 1)?;
        if limit.len() != start.len() {
            return Err(self.bad_attribute("limit_indices", "a list as long as start_indices"));
        }
        let dims = (0..start.len()).map(|i| SliceDim { start: start[i], limit: limit[i], stride: strides[i] });
        let dims = dims.collect();
        self.plain(1, Op::Slice { dims })
    }

    pub(super) fn pad(&mut self) -> Translate<()> {
        let low = self.needed_ints("edge_padding_low")?;
        let high = self.needed_ints("edge_padding_high")?;
        let interior = self.ints_or("interior_padding", low.len(), 0)?;
        if high.len() != low.len() {
            return Err(self.bad_attribute("edge_padding_high", "a list as long as edge_padding_low"));
        }
        let padding = (0..low.len()).map(|i| PaddingDim { low: low[i], high: high[i], interior: interior[i] });
        let padding = padding.collect();
        self.plain(2, Op::Pad { padding })
    }

    pub(super) fn gather_dims(&self) -> Translate<GatherDimensionNumbers> {
        Ok(GatherDimensionNumbers {
            offset_dims: self.ints("offset_dims")?,
            collapsed_slice_dims: self.ints("collapsed_slice_dims")?,
            start_index_map: self.ints("start_index_map")?,
            operand_batching_dims: self.ints("operand_batching_dims")?,
            start_indices_batching_dims: self.ints("start_indices_batching_dims")?,
            index_vector_dim: self.int_or("index_vector_dim", 0)?,
        })
    }

    pub(super) fn gather(&mut self) -> Translate<()> {
        let gather = Gather {
            dims: self.gather_dims()?,
            slice_sizes: self.needed_ints("slice_sizes")?,
            indices_are_sorted: self.flag("indices_are_sorted")?,
        };
        self.plain(2, Op::Gather(Box::new(gather)))
    }

    pub(super) fn scatter(&mut self) -> Translate<()> {
        let region = self.region(0)?;
        let to_apply = self.scalar_function(region)?;
        let scatter = Scatter {
            dims: ScatterDimensionNumbers {
                update_window_dims: self.ints("update_window_dims")?,
                inserted_window_dims: self.ints("inserted_window_dims")?,
                scatter_dims_to_operand_dims: self.ints("scatter_dims_to_operand_dims")?,
                input_batching_dims: self.ints("input_batching_dims")?,
                scatter_indices_batching_dims: self.ints("scatter_indices_batching_dims")?,
                index_vector_dim: self.int_or("index_vector_dim", 0)?,
            },
            indices_are_sorted: self.flag("indices_are_sorted")?,
            unique_indices: self.flag("unique_indices")?,
            to_apply,
        };
        let operands = self.operands()?;
        self.emit_results(Op::Scatter(Box::new(scatter)), operands)
    }

    /// `operand` at `index` along `dim`: a gather.
    pub(super) fn torch_index_select(&mut self) -> Translate<()> {
        self.expect_operands(2)?;
        let (operand, index) = (self.operand(0)?, self.operand(1)?);
        let (dim, batch) = (self.int("dim")?, self.int_or("batch_dims", 0)?);
        let (Some(from), Some(indices)) = (self.shape(operand).as_array(), self.shape(index).as_array()) else {
            return Err(self.error(&codes::BAD_OPERANDS, "only arrays are selected from"));
        };
        let (rank, index_rank) = (from.rank() as i64, indices.rank() as i64);
        if !(0..rank).contains(&dim) || !(0..=dim.min(index_rank)).contains(&batch) {
            return Err(self.error(&codes::BAD_ATTRIBUTE, "dim or batch_dims is out of range"));
        }
        // Result dimensions: operand's before dim, the index's beyond the batch, operand's after dim.
        let shift = index_rank - batch;
        let offset_dims = (batch..dim).chain(dim + shift..rank - 1 + shift).collect();
        let dims = GatherDimensionNumbers {
            offset_dims,
            collapsed_slice_dims: DimVec::from_slice(&[dim]),
            start_index_map: DimVec::from_slice(&[dim]),
            operand_batching_dims: (0..batch).collect(),
            start_indices_batching_dims: (0..batch).collect(),
            index_vector_dim: index_rank,
        };
        let sizes = from.dims().iter().enumerate();
        let slice_sizes = sizes.map(|(d, &n)| if (d as i64) < batch || d as i64 == dim { 1 } else { n }).collect();
        self.variadic(Op::Gather(Box::new(Gather { dims, slice_sizes, indices_are_sorted: false })))
    }

    pub(super) fn get_dimension_size(&mut self) -> Translate<()> {
        let dimension = self.int("dimension")?;
        let x = self.operand(0)?;
        let size = usize::try_from(dimension).ok().and_then(|d| {
            let a = self.shape(x).as_array()?;
            a.dims().get(d).copied().filter(|_| !a.is_dynamic_dim(d))
        });
        // A size that is known is a number like any other.
        if let Some(size) = size {
            let id = self.number(ElementType::S32, size as f64)?;
            return self.bind(id);
        }
        self.plain(1, Op::GetDimensionSize { dimension })
    }
}

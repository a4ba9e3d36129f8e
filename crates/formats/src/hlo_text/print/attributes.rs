//! The attributes of each opcode, in XLA's order; what has its default value is left out.
//!
//! Computations that an instruction calls come after its other attributes.

use super::Printer;
use hloom_ir::attributes::{
    ComparisonType, ConvDimensionNumbers, ConvolutionKind, CustomCallApiVersion, CustomCallSchedule, DotAlgorithm,
    DotDimensionNumbers, OutputOperandAlias, PaddingDim, PaddingType, Precision, PrecisionConfig, SliceDim, Sparsity,
    Window, WindowDim,
};
use hloom_ir::display::{ShapeStyle, write_int};
use hloom_ir::element_type::ElementType;
use hloom_ir::instruction::Instruction;
use hloom_ir::layout::DimVec;
use hloom_ir::op::{
    Collective, CollectivePermute, Convolution, CustomCall, Domain, Gather, Op, RaggedDot, Scan, Scatter, Transfer,
};

impl Printer<'_> {
    /// All attributes that belong to the opcode, but for async-start.
    pub(super) fn op_attributes(&mut self, instruction: &Instruction) {
        match &instruction.op {
            Op::Parameter { replication, .. } => {
                if let Some(replication) = replication {
                    self.text(", parameter_replication={");
                    self.bools(replication);
                    self.out.push('}');
                }
            }
            Op::Iota { dimension } => self.int_attribute(", iota_dimension=", *dimension),
            Op::Compare { direction, kind } => {
                self.text(", direction=");
                self.text(direction.text());
                if let Some(kind) = kind.filter(|&k| Some(k) != self.default_comparison(instruction)) {
                    self.text(", type=");
                    self.text(kind.text());
                }
            }
            Op::ReducePrecision { exponent_bits, mantissa_bits } => {
                self.int_attribute(", exponent_bits=", (*exponent_bits).into());
                self.int_attribute(", mantissa_bits=", (*mantissa_bits).into());
            }
            Op::Map { to_apply, dimensions } | Op::Reduce { to_apply, dimensions } => {
                self.list_attribute(", dimensions=", dimensions);
                self.computation_attribute(", to_apply=", *to_apply);
            }
            Op::Reshape { inferred_dimension: Some(dimension) } => {
                self.int_attribute(", inferred_dimension=", *dimension);
            }
            Op::Broadcast { dimensions } | Op::Transpose { dimensions } | Op::Reverse { dimensions } => {
                self.list_attribute(", dimensions=", dimensions);
            }
            Op::Concatenate { dimension } | Op::GetDimensionSize { dimension } | Op::SetDimensionSize { dimension } => {
                self.list_attribute(", dimensions=", &[*dimension]);
            }
            Op::Slice { dims } => self.slice(dims),
            Op::DynamicSlice { sizes } => self.list_attribute(", dynamic_slice_sizes=", sizes),
            Op::Pad { padding } => self.padding(padding),
            Op::Gather(gather) => self.gather(gather),
            Op::Scatter(scatter) => self.scatter(scatter),
            Op::Dot(dot) | Op::ScaledDot(dot) => {
                self.dot_dims(&dot.dims);
                self.precision(&dot.precision);
            }
            Op::RaggedDot(dot) => self.ragged_dot(dot),
            Op::Convolution(convolution) => self.convolution(convolution),
            Op::ReduceWindow { window, to_apply } => {
                self.window(window);
                self.computation_attribute(", to_apply=", *to_apply);
            }
            Op::SelectAndScatter { window, select, scatter } => {
                self.window(window);
                self.computation_attribute(", select=", *select);
                self.computation_attribute(", scatter=", *scatter);
            }
            Op::Scan(scan) => self.scan(scan),
            Op::Sort { dimension, is_stable, to_apply } => {
                self.list_attribute(", dimensions=", &[*dimension]);
                self.flag(", is_stable=true", *is_stable);
                self.computation_attribute(", to_apply=", *to_apply);
            }
            Op::TopK { k, largest, is_stable } => {
                self.int_attribute(", k=", *k);
                self.bool_attribute(", largest=", *largest);
                self.flag(", is_stable=false", !*is_stable);
            }
            Op::Fft { kind, length } => {
                self.text(", fft_type=");
                self.text(kind.text());
                self.list_attribute(", fft_length=", length);
            }
            Op::Cholesky { lower } => self.flag(", lower=true", *lower),
            Op::TriangularSolve { left_side, lower, unit_diagonal, transpose_a } => {
                self.flag(", left_side=true", *left_side);
                self.flag(", lower=true", *lower);
                self.flag(", unit_diagonal=true", *unit_diagonal);
                self.text(", transpose_a=");
                self.text(transpose_a.text());
            }
            Op::BatchNormTraining { epsilon, feature_index }
            | Op::BatchNormInference { epsilon, feature_index }
            | Op::BatchNormGrad { epsilon, feature_index } => {
                self.text(", epsilon=");
                self.attribute_f32(epsilon.get());
                self.int_attribute(", feature_index=", *feature_index);
            }
            Op::Rng { distribution } => {
                self.text(", distribution=");
                self.text(distribution.text());
            }
            Op::RngBitGenerator { algorithm } => {
                self.text(", algorithm=");
                self.text(algorithm.text());
            }
            Op::RngGetAndUpdateState { delta } => self.int_attribute(", delta=", *delta),
            Op::GetTupleElement { index } => self.int_attribute(", index=", *index),
            Op::Domain(domain) => self.domain(domain),
            Op::While { condition, body } => {
                self.computation_attribute(", condition=", *condition);
                self.computation_attribute(", body=", *body);
            }
            Op::Conditional { branches } => match branches.as_slice() {
                [on_true, on_false] if self.first_operand_type(instruction) == Some(ElementType::Pred) => {
                    self.computation_attribute(", true_computation=", *on_true);
                    self.computation_attribute(", false_computation=", *on_false);
                }
                branches => self.computations_attribute(", branch_computations={", branches),
            },
            Op::Call { to_apply, is_composite } => {
                self.computation_attribute(", to_apply=", *to_apply);
                self.flag(", is_composite=true", *is_composite);
            }
            Op::Fusion(fusion) => {
                self.text(", kind=");
                self.text(fusion.kind.text());
                self.output_operand_aliasing(&fusion.output_operand_aliasing);
                self.computation_attribute(", calls=", fusion.calls);
            }
            Op::CustomCall(call) => self.custom_call(call),
            Op::AsyncUpdate { output_operand_aliasing } => self.output_operand_aliasing(output_operand_aliasing),
            Op::AllReduce(reduce) | Op::AllReduceStart(reduce) => {
                self.collective(&reduce.collective);
                self.global_device_ids(&reduce.collective);
                self.computation_attribute(", to_apply=", reduce.to_apply);
            }
            Op::AllGather(gather) | Op::AllGatherStart(gather) => {
                self.collective(&gather.collective);
                self.list_attribute(", dimensions=", &[gather.dimension]);
                self.global_device_ids(&gather.collective);
            }
            Op::ReduceScatter(scatter) => {
                self.collective(&scatter.collective);
                self.global_device_ids(&scatter.collective);
                self.list_attribute(", dimensions=", &[scatter.dimension]);
                self.computation_attribute(", to_apply=", scatter.to_apply);
            }
            Op::CollectiveReduce(reduce) => {
                self.collective(&reduce.collective);
                self.global_device_ids(&reduce.collective);
                self.flag(", has_dynamic_root=true", reduce.has_dynamic_root);
                self.computation_attribute(", to_apply=", reduce.to_apply);
            }
            Op::AllToAll { collective, split_dimension } => {
                self.collective(collective);
                self.split_dimension(*split_dimension);
            }
            Op::RaggedAllToAll { collective, split_dimension } => {
                self.collective(collective);
                // XLA reads the dimension but does not print it.
                self.split_dimension(split_dimension.filter(|_| !self.options.elide_constants));
            }
            Op::CollectiveBroadcast { collective, has_dynamic_root } => {
                self.collective(collective);
                self.flag(", has_dynamic_root=true", *has_dynamic_root);
            }
            Op::CollectivePermute(permute) | Op::CollectivePermuteStart(permute) => self.permute(permute),
            Op::CopyStart { cross_program_prefetch_index: Some(index) } => {
                self.int_attribute(", cross_program_prefetch_index=", (*index).into());
            }
            Op::Send(transfer) | Op::SendDone(transfer) | Op::Recv(transfer) | Op::RecvDone(transfer) => {
                self.transfer(transfer);
            }
            Op::Infeed { config } => self.config(", infeed_config=", config),
            Op::Outfeed { config, shape } => {
                self.text(", outfeed_shape=");
                shape.write(&mut self.out, ShapeStyle::FULL);
                self.config(", outfeed_config=", config);
            }
            Op::Constant(_)
            | Op::ReplicaId
            | Op::PartitionId
            | Op::Unary { .. }
            | Op::Binary(_)
            | Op::Select
            | Op::Clamp
            | Op::Convert
            | Op::BitcastConvert
            | Op::StochasticConvert
            | Op::Bitcast
            | Op::Copy
            | Op::Reshape { inferred_dimension: None }
            | Op::DynamicReshape
            | Op::DynamicUpdateSlice
            | Op::Tuple
            | Op::AfterAll
            | Op::AddDependency
            | Op::OptBarrier
            | Op::AsyncStart(_)
            | Op::AsyncDone
            | Op::AllReduceDone
            | Op::AllGatherDone
            | Op::CollectivePermuteDone
            | Op::CopyStart { cross_program_prefetch_index: None }
            | Op::CopyDone => {}
        }
    }

    /// `attribute`, if it holds.
    fn flag(&mut self, attribute: &str, holds: bool) {
        if holds {
            self.text(attribute);
        }
    }

    fn bool_attribute(&mut self, name: &str, value: bool) {
        self.text(name);
        self.text(if value { "true" } else { "false" });
    }

    fn first_operand_type(&self, instruction: &Instruction) -> Option<ElementType> {
        self.module[*instruction.operands().first()?].shape.element_type()
    }

    /// How values of the first operand's type are compared when nothing else is said.
    fn default_comparison(&self, instruction: &Instruction) -> Option<ComparisonType> {
        let element_type = self.first_operand_type(instruction)?;
        Some(if element_type.is_signed_integer() {
            ComparisonType::Signed
        } else if element_type.is_unsigned_integer() || element_type == ElementType::Pred {
            ComparisonType::Unsigned
        } else {
            ComparisonType::Float
        })
    }

    fn computations_attribute(&mut self, name: &str, computations: &[hloom_ir::entity::ComputationId]) {
        self.text(name);
        for (i, &computation) in computations.iter().enumerate() {
            self.computation_attribute(if i > 0 { ", " } else { "" }, computation);
        }
        self.out.push('}');
    }

    /// Strides are written for all dimensions or for none.
    fn slice(&mut self, dims: &[SliceDim]) {
        let strided = dims.iter().any(|d| d.stride != 1);
        self.text(", slice={");
        for (i, dim) in dims.iter().enumerate() {
            self.int_attribute(if i > 0 { ", [" } else { "[" }, dim.start);
            self.int_attribute(":", dim.limit);
            if strided {
                self.int_attribute(":", dim.stride);
            }
            self.out.push(']');
        }
        self.out.push('}');
    }

    /// Interior padding is written for all dimensions or for none.
    fn padding(&mut self, padding: &[PaddingDim]) {
        let interior = padding.iter().any(|d| d.interior != 0);
        self.text(", padding=");
        for (i, dim) in padding.iter().enumerate() {
            self.int_attribute(if i > 0 { "x" } else { "" }, dim.low);
            self.int_attribute("_", dim.high);
            if interior {
                self.int_attribute("_", dim.interior);
            }
        }
    }

    fn gather(&mut self, gather: &Gather) {
        let dims = &gather.dims;
        self.list_attribute(", offset_dims=", &dims.offset_dims);
        self.list_attribute(", collapsed_slice_dims=", &dims.collapsed_slice_dims);
        self.list_attribute(", start_index_map=", &dims.start_index_map);
        self.nonempty_list(", operand_batching_dims=", &dims.operand_batching_dims);
        self.nonempty_list(", start_indices_batching_dims=", &dims.start_indices_batching_dims);
        self.int_attribute(", index_vector_dim=", dims.index_vector_dim);
        self.list_attribute(", slice_sizes=", &gather.slice_sizes);
        self.flag(", indices_are_sorted=true", gather.indices_are_sorted);
    }

    fn scatter(&mut self, scatter: &Scatter) {
        let dims = &scatter.dims;
        self.list_attribute(", update_window_dims=", &dims.update_window_dims);
        self.list_attribute(", inserted_window_dims=", &dims.inserted_window_dims);
        self.list_attribute(", scatter_dims_to_operand_dims=", &dims.scatter_dims_to_operand_dims);
        self.nonempty_list(", input_batching_dims=", &dims.input_batching_dims);
        self.nonempty_list(", scatter_indices_batching_dims=", &dims.scatter_indices_batching_dims);
        self.int_attribute(", index_vector_dim=", dims.index_vector_dim);
        self.flag(", indices_are_sorted=true", scatter.indices_are_sorted);
        self.flag(", unique_indices=true", scatter.unique_indices);
        self.computation_attribute(", to_apply=", scatter.to_apply);
    }

    fn nonempty_list(&mut self, name: &str, list: &[i64]) {
        if !list.is_empty() {
            self.list_attribute(name, list);
        }
    }

    fn dot_dims(&mut self, dims: &DotDimensionNumbers) {
        self.nonempty_list(", lhs_batch_dims=", &dims.lhs_batch);
        self.list_attribute(", lhs_contracting_dims=", &dims.lhs_contracting);
        self.nonempty_list(", rhs_batch_dims=", &dims.rhs_batch);
        self.list_attribute(", rhs_contracting_dims=", &dims.rhs_contracting);
    }

    fn ragged_dot(&mut self, dot: &RaggedDot) {
        self.dot_dims(&dot.dims);
        self.nonempty_list(", lhs_ragged_dims=", &dot.lhs_ragged);
        self.nonempty_list(", rhs_group_dims=", &dot.rhs_group);
        self.precision(&dot.precision);
    }

    fn precision(&mut self, precision: &PrecisionConfig) {
        if precision.operand_precision.iter().any(|&p| p != Precision::Default) {
            self.text(", operand_precision={");
            for (i, precision) in precision.operand_precision.iter().enumerate() {
                self.text(if i > 0 { "," } else { "" });
                self.text(precision.text());
            }
            self.out.push('}');
        }
        if precision.algorithm != DotAlgorithm::Unset {
            self.text(", algorithm=");
            self.text(precision.algorithm.text());
        }
    }

    fn convolution(&mut self, convolution: &Convolution) {
        self.window(&convolution.window);
        self.dim_labels(&convolution.dims);
        self.group_counts(convolution.feature_group_count, convolution.batch_group_count);
        if convolution.kind != ConvolutionKind::Unset {
            self.text(", convolution_kind=");
            self.text(convolution.kind.text());
        }
        self.precision(&convolution.precision);
        let sides = [("lhs={", convolution.lhs_sparsity), ("rhs={", convolution.rhs_sparsity)];
        let mut opening = ", sparsity_config={";
        for (side, sparsity) in sides {
            if let Some(sparsity) = sparsity {
                self.text(opening);
                self.text(side);
                self.sparsity(sparsity);
                opening = " ";
            }
        }
        if opening == " " {
            self.out.push('}');
        }
    }

    fn sparsity(&mut self, sparsity: Sparsity) {
        self.int_attribute("sparsity=", sparsity.num_non_zero);
        self.int_attribute("x", sparsity.block_size);
        self.int_attribute(" dimension=", sparsity.dimension);
        self.int_attribute(" stride=", sparsity.stride);
        self.int_attribute(" idx=", sparsity.idx.into());
        self.out.push('}');
    }

    fn group_counts(&mut self, feature_group_count: i64, batch_group_count: i64) {
        if feature_group_count != 1 {
            self.int_attribute(", feature_group_count=", feature_group_count);
        }
        if batch_group_count != 1 {
            self.int_attribute(", batch_group_count=", batch_group_count);
        }
    }

    /// The window, unless it has no dimensions.
    fn window(&mut self, window: &Window) {
        if !window.dims.is_empty() {
            self.window_in_full(window);
        }
    }

    fn window_in_full(&mut self, window: &Window) {
        let dims = &window.dims;
        self.text(", window={");
        if !dims.is_empty() {
            self.window_field("size=", dims, |p, d| p.int(d.size));
        }
        if dims.iter().any(|d| d.stride != 1) {
            self.window_field(" stride=", dims, |p, d| p.int(d.stride));
        }
        if dims.iter().any(|d| (d.padding_low, d.padding_high) != (0, 0)) {
            self.window_field(" pad=", dims, |p, d| {
                p.int(d.padding_low);
                p.int_attribute("_", d.padding_high);
            });
        }
        if dims.iter().any(|d| d.base_dilation != 1) {
            self.window_field(" lhs_dilate=", dims, |p, d| p.int(d.base_dilation));
        }
        if dims.iter().any(|d| d.window_dilation != 1) {
            self.window_field(" rhs_dilate=", dims, |p, d| p.int(d.window_dilation));
        }
        if dims.iter().any(|d| d.window_reversal) {
            self.window_field(" rhs_reversal=", dims, |p, d| p.int(d.window_reversal.into()));
        }
        self.out.push('}');
    }

    fn window_field(&mut self, name: &str, dims: &[WindowDim], write: impl Fn(&mut Self, &WindowDim)) {
        self.text(name);
        for (i, dim) in dims.iter().enumerate() {
            self.text(if i > 0 { "x" } else { "" });
            write(self, dim);
        }
    }

    fn dim_labels(&mut self, dims: &ConvDimensionNumbers) {
        self.text(", dim_labels=");
        self.labels([(dims.input_batch, 'b'), (dims.input_feature, 'f')], &dims.input_spatial);
        self.out.push('_');
        self.labels([(dims.kernel_input_feature, 'i'), (dims.kernel_output_feature, 'o')], &dims.kernel_spatial);
        self.text("->");
        self.labels([(dims.output_batch, 'b'), (dims.output_feature, 'f')], &dims.output_spatial);
    }

    /// One label per dimension, `?` where a dimension has none.
    fn labels(&mut self, named: [(i64, char); 2], spatial: &DimVec) {
        /// No array has more dimensions: a number beyond it is not one, and is passed over.
        const MAX_RANK: i64 = 256;
        enum Label {
            Name(char),
            Spatial(i64),
        }
        let spatial = spatial.iter().enumerate().map(|(i, &d)| (d, Label::Spatial(i as i64)));
        let mut labels: Vec<(i64, Label)> =
            named.into_iter().map(|(d, c)| (d, Label::Name(c))).chain(spatial).collect();
        labels.retain(|(d, _)| (0..MAX_RANK).contains(d));
        labels.sort_by_key(|l| l.0);
        let mut next = 0;
        for (dimension, label) in labels {
            while next < dimension {
                self.out.push('?');
                next += 1;
            }
            match label {
                Label::Name(c) => self.out.push(c),
                Label::Spatial(i) => write_int(&mut self.out, i),
            }
            next = dimension + 1;
        }
    }

    fn scan(&mut self, scan: &Scan) {
        self.list_attribute(", dimensions=", &[scan.dimension]);
        self.int_attribute(", num_carries=", scan.num_carries);
        self.flag(", is_reverse=true", scan.is_reverse);
        if let Some(is_associative) = scan.is_associative {
            self.bool_attribute(", is_associative=", is_associative);
        }
        self.computation_attribute(", to_apply=", scan.to_apply);
    }

    fn domain(&mut self, domain: &Domain) {
        self.text(", domain={kind=\"sharding\", entry=");
        self.sharding(&domain.entry);
        self.text(", exit=");
        self.sharding(&domain.exit);
        self.out.push('}');
    }

    fn custom_call(&mut self, call: &CustomCall) {
        if let Some(window) = &call.window {
            self.window_in_full(window);
        }
        if let Some(dims) = &call.conv_dims {
            self.dim_labels(dims);
        }
        self.group_counts(call.feature_group_count, call.batch_group_count);
        self.precision(&call.precision);
        if call.padding_type != PaddingType::Invalid {
            self.text(", padding_type=");
            self.text(call.padding_type.text());
        }
        self.quoted(", custom_call_target=", call.target.as_bytes());
        if let Some(layouts) = &call.operand_layouts {
            self.text(", operand_layout_constraints={");
            for (i, shape) in layouts.iter().enumerate() {
                self.comma(i);
                shape.write(&mut self.out, ShapeStyle::FULL);
            }
            self.out.push('}');
        }
        self.flag(", custom_call_has_side_effect=true", call.has_side_effect);
        if let Some(literal) = &call.literal {
            self.text(", literal=");
            self.literal_with_shapes(literal);
        }
        self.output_operand_aliasing(&call.output_operand_aliasing);
        if call.schedule != CustomCallSchedule::None {
            self.text(", schedule=");
            self.text(call.schedule.text());
        }
        if call.api_version != CustomCallApiVersion::Original {
            self.text(", api_version=");
            self.text(call.api_version.text());
        }
        if !call.called_computations.is_empty() {
            self.computations_attribute(", called_computations={", &call.called_computations);
        }
    }

    pub(super) fn output_operand_aliasing(&mut self, aliases: &[OutputOperandAlias]) {
        if aliases.is_empty() {
            return;
        }
        self.text(", output_to_operand_aliasing={");
        for (i, alias) in aliases.iter().enumerate() {
            self.comma(i);
            self.braced_list(&alias.output_index);
            self.int_attribute(": (", alias.operand);
            self.text(", ");
            self.braced_list(&alias.operand_index);
            self.out.push(')');
        }
        self.out.push('}');
    }

    fn channel_id(&mut self, channel_id: Option<i64>) {
        if let Some(id) = channel_id {
            self.int_attribute(", channel_id=", id);
        }
    }

    /// What all collectives begin with; where `use_global_device_ids` comes differs.
    fn collective(&mut self, collective: &Collective) {
        self.channel_id(collective.channel_id);
        self.text(", replica_groups=");
        self.replica_groups(&collective.replica_groups);
        self.flag(", constrain_layout=true", collective.constrain_layout);
        if let Some(mode) = collective.mode {
            self.text(", mode=");
            self.text(mode.text());
        }
    }

    fn split_dimension(&mut self, dimension: Option<i64>) {
        if let Some(dimension) = dimension {
            self.list_attribute(", dimensions=", &[dimension]);
        }
    }

    fn global_device_ids(&mut self, collective: &Collective) {
        self.flag(", use_global_device_ids=true", collective.use_global_device_ids);
    }

    fn permute(&mut self, permute: &CollectivePermute) {
        self.channel_id(permute.channel_id);
        self.text(", source_target_pairs={");
        for (i, &(source, target)) in permute.source_target_pairs.iter().enumerate() {
            self.text(if i > 0 { "," } else { "" });
            self.braced_list(&[source, target]);
        }
        self.out.push('}');
        if !permute.slice_sizes.is_empty() {
            self.text(", slice_sizes={");
            for (i, sizes) in permute.slice_sizes.iter().enumerate() {
                self.text(if i > 0 { "," } else { "" });
                self.braced_list(sizes);
            }
            self.out.push('}');
        }
    }

    fn transfer(&mut self, transfer: &Transfer) {
        self.channel_id(transfer.channel_id);
        self.flag(", is_host_transfer=true", transfer.is_host_transfer);
    }

    fn config(&mut self, name: &str, config: &[u8]) {
        if !config.is_empty() {
            self.quoted(name, config);
        }
    }
}

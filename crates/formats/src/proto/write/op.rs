//! The attributes of operations, by opcode.

use super::{shape, sharding};
use crate::proto::default_comparison;
use crate::proto::messages as m;
use hloom_ir::attributes::*;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::*;

/// Fills in the fields that the operation of `id` has.
pub(super) fn attributes(p: &mut m::InstructionAttributes, module: &Module, id: InstructionId) {
    let instruction = &module[id];
    let operand_count = instruction.operands().len();
    match &instruction.op {
        Op::Parameter { number, replication } => {
            p.parameter_number = *number;
            p.parameter_replication = replication
                .as_ref()
                .map(|r| Box::new(m::ParameterReplication { replicated_at_leaf_buffers: r.to_vec() }));
        }
        Op::Iota { dimension }
        | Op::Concatenate { dimension }
        | Op::GetDimensionSize { dimension }
        | Op::SetDimensionSize { dimension } => p.dimensions = vec![*dimension],
        Op::Broadcast { dimensions }
        | Op::Transpose { dimensions }
        | Op::Reverse { dimensions }
        | Op::Map { dimensions, .. }
        | Op::Reduce { dimensions, .. } => p.dimensions = dimensions.to_vec(),
        Op::Reshape { inferred_dimension } => p.dimensions.extend(inferred_dimension),
        Op::Unary { accuracy, .. } => p.result_accuracy = result_accuracy(*accuracy),
        Op::Compare { direction, kind } => {
            let operand = instruction.operands().first().and_then(|&o| module[o].shape.element_type());
            p.comparison_direction = direction.text().into();
            let kind = kind.or(operand.map(default_comparison));
            p.comparison_type = kind.map_or(String::new(), |k| k.text().into());
        }
        Op::ReducePrecision { exponent_bits, mantissa_bits } => {
            p.exponent_bits = *exponent_bits;
            p.mantissa_bits = *mantissa_bits;
        }
        Op::Slice { dims } => {
            let dim = |d: &SliceDim| m::SliceDimensions { start: d.start, limit: d.limit, stride: d.stride };
            p.slice_dimensions = dims.iter().map(dim).collect();
        }
        Op::DynamicSlice { sizes } => p.dynamic_slice_sizes = sizes.to_vec(),
        Op::Pad { padding } => {
            let dim = |d: &PaddingDim| m::PaddingConfigDimension {
                edge_padding_low: d.low,
                edge_padding_high: d.high,
                interior_padding: d.interior,
            };
            p.padding_config = Some(Box::new(m::PaddingConfig { dimensions: padding.iter().map(dim).collect() }));
        }
        Op::Gather(g) => gather(p, g),
        Op::Scatter(s) => scatter(p, s),
        Op::Dot(d) | Op::ScaledDot(d) => {
            p.dot_dimension_numbers = Some(Box::new(dot_dims(&d.dims)));
            p.precision_config = precision(&d.precision, 2);
        }
        Op::RaggedDot(d) => {
            p.ragged_dot_dimension_numbers = Some(Box::new(m::RaggedDotDimensionNumbers {
                dot_dimension_numbers: Some(dot_dims(&d.dims)),
                lhs_ragged_dimensions: d.lhs_ragged.to_vec(),
                rhs_group_dimensions: d.rhs_group.to_vec(),
            }));
            p.precision_config = precision(&d.precision, 2);
        }
        Op::Convolution(c) => convolution(p, c, operand_count),
        Op::ReduceWindow { window: w, .. } | Op::SelectAndScatter { window: w, .. } => p.window = Some(window(w)),
        Op::Scan(s) => {
            p.dimensions = vec![s.dimension];
            p.num_carries = s.num_carries;
            p.is_reverse = s.is_reverse;
            p.is_associative = match s.is_associative {
                None => 0,
                Some(true) => 1,
                Some(false) => 2,
            };
        }
        Op::Sort { dimension, is_stable, .. } => {
            p.dimensions = vec![*dimension];
            p.is_stable = *is_stable;
        }
        Op::TopK { k, largest, is_stable } => {
            p.k = *k;
            p.largest = *largest;
            p.is_stable = *is_stable;
        }
        Op::Fft { kind, length } => {
            p.fft_type = kind.proto_number();
            p.fft_length = length.to_vec();
        }
        Op::Cholesky { lower } => p.cholesky_options = Some(Box::new(m::CholeskyOptions { lower: *lower })),
        Op::TriangularSolve { left_side, lower, unit_diagonal, transpose_a } => {
            p.triangular_solve_options = Some(Box::new(m::TriangularSolveOptions {
                left_side: *left_side,
                lower: *lower,
                unit_diagonal: *unit_diagonal,
                transpose_a: transpose_a.proto_number(),
            }));
        }
        Op::BatchNormTraining { epsilon, feature_index }
        | Op::BatchNormInference { epsilon, feature_index }
        | Op::BatchNormGrad { epsilon, feature_index } => {
            p.epsilon = Some(epsilon.get());
            p.feature_index = *feature_index;
        }
        Op::Rng { distribution } => p.distribution = distribution.proto_number(),
        Op::RngBitGenerator { algorithm } => p.rng_algorithm = algorithm.proto_number(),
        Op::RngGetAndUpdateState { delta } => p.delta = *delta,
        Op::GetTupleElement { index } => p.tuple_index = *index,
        Op::Domain(d) => {
            // What text calls entry is the exit in protos.
            p.domain_entry_sharding = Some(Box::new(sharding::sharding(&d.exit)));
            p.domain_exit_sharding = Some(Box::new(sharding::sharding(&d.entry)));
        }
        Op::Call { is_composite, .. } => p.is_composite = *is_composite,
        Op::Fusion(f) => {
            p.fusion_kind = f.kind.text().into();
            p.output_operand_aliasing = aliasing(&f.output_operand_aliasing);
        }
        Op::CustomCall(c) => custom_call(p, c, operand_count),
        Op::AsyncStart(a) => {
            p.async_execution_thread = a.execution_thread.as_deref().unwrap_or_default().into();
            p.output_operand_aliasing = aliasing(&a.output_operand_aliasing);
        }
        Op::AsyncUpdate { output_operand_aliasing } => p.output_operand_aliasing = aliasing(output_operand_aliasing),
        Op::AllReduce(a) | Op::AllReduceStart(a) => collective(p, &a.collective),
        Op::AllGather(a) | Op::AllGatherStart(a) => {
            collective(p, &a.collective);
            p.dimensions = vec![a.dimension];
        }
        Op::ReduceScatter(r) => {
            collective(p, &r.collective);
            p.dimensions = vec![r.dimension];
        }
        Op::CollectiveReduce(r) => {
            collective(p, &r.collective);
            p.has_dynamic_root = r.has_dynamic_root;
        }
        Op::AllToAll { collective: c, split_dimension } | Op::RaggedAllToAll { collective: c, split_dimension } => {
            collective(p, c);
            p.dimensions.extend(split_dimension);
        }
        Op::CollectiveBroadcast { collective: c, has_dynamic_root } => {
            collective(p, c);
            p.has_dynamic_root = *has_dynamic_root;
        }
        Op::CollectivePermute(c) | Op::CollectivePermuteStart(c) => {
            p.channel_id = c.channel_id;
            let pair = |&(source, target): &(i64, i64)| m::SourceTarget { source, target };
            p.source_target_pairs = c.source_target_pairs.iter().map(pair).collect();
            p.dynamic_slice_sizes = c.slice_sizes.concat();
        }
        Op::CopyStart { cross_program_prefetch_index } => {
            p.cross_program_prefetch_index = *cross_program_prefetch_index;
        }
        Op::Send(t) | Op::SendDone(t) | Op::Recv(t) | Op::RecvDone(t) => {
            p.channel_id = t.channel_id;
            p.is_host_transfer = t.is_host_transfer;
        }
        Op::Infeed { config } => p.infeed_config = config.to_vec(),
        Op::Outfeed { config, shape: s } => {
            p.outfeed_config = config.to_vec();
            p.outfeed_shape = Some(Box::new(shape::shape(s)));
        }
        Op::Constant(_)
        | Op::ReplicaId
        | Op::PartitionId
        | Op::Binary(_)
        | Op::Select
        | Op::Clamp
        | Op::Convert
        | Op::BitcastConvert
        | Op::StochasticConvert
        | Op::Bitcast
        | Op::Copy
        | Op::DynamicReshape
        | Op::DynamicUpdateSlice
        | Op::Tuple
        | Op::AfterAll
        | Op::AddDependency
        | Op::OptBarrier
        | Op::While { .. }
        | Op::Conditional { .. }
        | Op::AsyncDone
        | Op::AllReduceDone
        | Op::AllGatherDone
        | Op::CollectivePermuteDone
        | Op::CopyDone => {}
    }
}

fn result_accuracy(accuracy: ResultAccuracy) -> Option<Box<m::ResultAccuracy>> {
    let (mode, tolerance) = match accuracy {
        ResultAccuracy::Default => return None,
        ResultAccuracy::Highest => (Some(1), None),
        ResultAccuracy::Tolerance { atol, rtol, ulps } => {
            (None, Some(m::Tolerance { atol: f64::from_bits(atol), rtol: f64::from_bits(rtol), ulps }))
        }
    };
    Some(Box::new(m::ResultAccuracy { mode, tolerance }))
}

fn gather(p: &mut m::InstructionAttributes, g: &Gather) {
    p.gather_dimension_numbers = Some(Box::new(m::GatherDimensionNumbers {
        offset_dims: g.dims.offset_dims.to_vec(),
        collapsed_slice_dims: g.dims.collapsed_slice_dims.to_vec(),
        start_index_map: g.dims.start_index_map.to_vec(),
        index_vector_dim: g.dims.index_vector_dim,
        operand_batching_dims: g.dims.operand_batching_dims.to_vec(),
        start_indices_batching_dims: g.dims.start_indices_batching_dims.to_vec(),
    }));
    p.gather_slice_sizes = g.slice_sizes.to_vec();
    p.indices_are_sorted = g.indices_are_sorted;
}

fn scatter(p: &mut m::InstructionAttributes, s: &Scatter) {
    p.scatter_dimension_numbers = Some(Box::new(m::ScatterDimensionNumbers {
        update_window_dims: s.dims.update_window_dims.to_vec(),
        inserted_window_dims: s.dims.inserted_window_dims.to_vec(),
        scatter_dims_to_operand_dims: s.dims.scatter_dims_to_operand_dims.to_vec(),
        index_vector_dim: s.dims.index_vector_dim,
        input_batching_dims: s.dims.input_batching_dims.to_vec(),
        scatter_indices_batching_dims: s.dims.scatter_indices_batching_dims.to_vec(),
    }));
    p.indices_are_sorted = s.indices_are_sorted;
    p.unique_indices = s.unique_indices;
}

fn dot_dims(d: &DotDimensionNumbers) -> m::DotDimensionNumbers {
    m::DotDimensionNumbers {
        lhs_contracting_dimensions: d.lhs_contracting.to_vec(),
        rhs_contracting_dimensions: d.rhs_contracting.to_vec(),
        lhs_batch_dimensions: d.lhs_batch.to_vec(),
        rhs_batch_dimensions: d.rhs_batch.to_vec(),
    }
}

/// The precision of each operand; XLA's dumps write the default out.
fn precision(config: &PrecisionConfig, operands: usize) -> Option<Box<m::PrecisionConfig>> {
    let mut operand_precision: Vec<i32> = config.operand_precision.iter().map(|p| p.proto_number()).collect();
    if operand_precision.is_empty() {
        operand_precision.resize(operands, Precision::Default.proto_number());
    }
    Some(Box::new(m::PrecisionConfig { operand_precision, algorithm: config.algorithm.proto_number() }))
}

fn window(window: &Window) -> Box<m::Window> {
    let dim = |d: &WindowDim| m::WindowDimension {
        size: d.size,
        stride: d.stride,
        padding_low: d.padding_low,
        padding_high: d.padding_high,
        window_dilation: d.window_dilation,
        base_dilation: d.base_dilation,
        window_reversal: d.window_reversal,
    };
    Box::new(m::Window { dimensions: window.dims.iter().map(dim).collect() })
}

fn conv_dims(c: &ConvDimensionNumbers) -> Box<m::ConvolutionDimensionNumbers> {
    Box::new(m::ConvolutionDimensionNumbers {
        kernel_input_feature_dimension: c.kernel_input_feature,
        kernel_output_feature_dimension: c.kernel_output_feature,
        kernel_spatial_dimensions: c.kernel_spatial.to_vec(),
        input_batch_dimension: c.input_batch,
        input_feature_dimension: c.input_feature,
        output_batch_dimension: c.output_batch,
        output_feature_dimension: c.output_feature,
        input_spatial_dimensions: c.input_spatial.to_vec(),
        output_spatial_dimensions: c.output_spatial.to_vec(),
    })
}

fn convolution(p: &mut m::InstructionAttributes, c: &Convolution, operands: usize) {
    p.window = Some(window(&c.window));
    p.convolution_dimension_numbers = Some(conv_dims(&c.dims));
    p.feature_group_count = c.feature_group_count;
    p.batch_group_count = c.batch_group_count;
    p.precision_config = precision(&c.precision, operands);
    p.conv_kind = c.kind.proto_number();
    let sparsity = |s: Sparsity| m::SparsityDescriptor {
        num_non_zero: s.num_non_zero,
        block_size: s.block_size,
        dimension: s.dimension,
        stride: s.stride,
        idx: s.idx,
    };
    if c.lhs_sparsity.is_some() || c.rhs_sparsity.is_some() {
        p.sparsity_config =
            Some(Box::new(m::SparsityConfig { lhs: c.lhs_sparsity.map(sparsity), rhs: c.rhs_sparsity.map(sparsity) }));
    }
}

fn aliasing(list: &[OutputOperandAlias]) -> Vec<m::OutputOperandAliasing> {
    let alias = |a: &OutputOperandAlias| m::OutputOperandAliasing {
        output_shape_index: a.output_index.to_vec(),
        operand_index: a.operand,
        operand_shape_index: a.operand_index.to_vec(),
    };
    list.iter().map(alias).collect()
}

fn custom_call(p: &mut m::InstructionAttributes, c: &CustomCall, operands: usize) {
    p.custom_call_target = c.target.to_string();
    p.window = c.window.as_ref().map(window);
    p.convolution_dimension_numbers = c.conv_dims.as_ref().map(conv_dims);
    p.feature_group_count = c.feature_group_count;
    p.batch_group_count = c.batch_group_count;
    if let Some(layouts) = &c.operand_layouts {
        p.constrain_layout = true;
        p.operand_shapes_with_layout = layouts.iter().map(shape::shape).collect();
    }
    p.custom_call_has_side_effect = c.has_side_effect;
    p.output_operand_aliasing = aliasing(&c.output_operand_aliasing);
    p.padding_type = c.padding_type.proto_number();
    p.precision_config = precision(&c.precision, operands);
    p.custom_call_schedule = c.schedule.proto_number();
    p.custom_call_api_version = c.api_version.proto_number();
}

fn collective(p: &mut m::InstructionAttributes, c: &Collective) {
    p.channel_id = c.channel_id;
    sharding::replica_groups(p, &c.replica_groups);
    p.constrain_layout = c.constrain_layout;
    p.use_global_device_ids = c.use_global_device_ids;
}

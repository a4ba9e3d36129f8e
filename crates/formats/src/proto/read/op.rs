//! Operations with their attributes, by opcode.
//!
//! What is checked here is what the IR cannot hold otherwise: that a required field is there, that an enumeration has
//! the member, that as many computations are called as the operation has names for. Whether the attributes fit the
//! operands is the verifier's to say.

use super::error::{Result, error, member, missing};
use super::instruction::Parts;
use super::module::Reader;
use super::shape;
use super::sharding::{replica_groups, sharding};
use crate::proto::messages as m;
use hloom_ir::attributes::*;
use hloom_ir::diagnostic::codes::proto as codes;
use hloom_ir::entity::ComputationId;
use hloom_ir::layout::DimVec;
use hloom_ir::literal::Literal;
use hloom_ir::op::*;
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::Shape;
use smallvec::SmallVec;
use std::sync::Arc;

pub(super) fn op(reader: &mut Reader<'_>, opcode: Opcode, parts: Parts<'_>) -> Result<Op> {
    let p = parts.attributes;
    if let Some(op) = UnaryOp::from_opcode(opcode) {
        return Ok(Op::Unary { op, accuracy: result_accuracy(p)? });
    }
    if let Some(op) = BinaryOp::from_opcode(opcode) {
        return Ok(Op::Binary(op));
    }
    Ok(match opcode {
        Opcode::Parameter => Op::Parameter {
            number: p.parameter_number,
            replication: p
                .parameter_replication
                .as_ref()
                .map(|r| r.replicated_at_leaf_buffers.as_slice())
                .filter(|r| !r.is_empty())
                .map(Into::into),
        },
        Opcode::Constant => constant(parts)?,
        Opcode::Iota => Op::Iota { dimension: dimension(p)? },
        Opcode::ReplicaId => Op::ReplicaId,
        Opcode::PartitionId => Op::PartitionId,
        Opcode::Compare => compare(reader, &parts)?,
        Opcode::Select => Op::Select,
        Opcode::Clamp => Op::Clamp,
        Opcode::Convert => Op::Convert,
        Opcode::BitcastConvert => Op::BitcastConvert,
        Opcode::ReducePrecision => {
            Op::ReducePrecision { exponent_bits: p.exponent_bits, mantissa_bits: p.mantissa_bits }
        }
        Opcode::StochasticConvert => Op::StochasticConvert,
        Opcode::Map => {
            let to_apply = only_computation(&parts)?;
            // Dumps leave the dimensions out, which are all of them.
            let rank = parts.shape.as_array().map_or(0, |a| a.rank()) as i64;
            let dimensions = if p.dimensions.is_empty() { (0..rank).collect() } else { dims(&p.dimensions) };
            Op::Map { to_apply, dimensions }
        }
        Opcode::Bitcast => Op::Bitcast,
        Opcode::Copy => Op::Copy,
        Opcode::Reshape => Op::Reshape { inferred_dimension: p.dimensions.first().copied().filter(|&d| d != -1) },
        Opcode::DynamicReshape => Op::DynamicReshape,
        Opcode::Broadcast => Op::Broadcast { dimensions: dims(&p.dimensions) },
        Opcode::Transpose => Op::Transpose { dimensions: dims(&p.dimensions) },
        Opcode::Reverse => Op::Reverse { dimensions: dims(&p.dimensions) },
        Opcode::Concatenate => Op::Concatenate { dimension: dimension(p)? },
        Opcode::Slice => {
            let dim = |d: &m::SliceDimensions| SliceDim { start: d.start, limit: d.limit, stride: d.stride };
            Op::Slice { dims: p.slice_dimensions.iter().map(dim).collect() }
        }
        Opcode::DynamicSlice => Op::DynamicSlice { sizes: dims(&p.dynamic_slice_sizes) },
        Opcode::DynamicUpdateSlice => Op::DynamicUpdateSlice,
        Opcode::Pad => {
            let Some(config) = &p.padding_config else { return missing("padding_config") };
            let dim = |d: &m::PaddingConfigDimension| PaddingDim {
                low: d.edge_padding_low,
                high: d.edge_padding_high,
                interior: d.interior_padding,
            };
            Op::Pad { padding: config.dimensions.iter().map(dim).collect() }
        }
        Opcode::Gather => gather(p)?,
        Opcode::Scatter => scatter(&parts)?,
        Opcode::GetDimensionSize => Op::GetDimensionSize { dimension: dimension(p)? },
        Opcode::SetDimensionSize => Op::SetDimensionSize { dimension: dimension(p)? },
        Opcode::Dot => Op::Dot(Box::new(dot(p)?)),
        Opcode::ScaledDot => Op::ScaledDot(Box::new(dot(p)?)),
        Opcode::RaggedDot => {
            let Some(ragged) = &p.ragged_dot_dimension_numbers else { return missing("ragged_dot_dimension_numbers") };
            Op::RaggedDot(Box::new(RaggedDot {
                dims: ragged.dot_dimension_numbers.as_ref().map(dot_dims).unwrap_or_default(),
                lhs_ragged: dims(&ragged.lhs_ragged_dimensions),
                rhs_group: dims(&ragged.rhs_group_dimensions),
                precision: precision(p)?,
            }))
        }
        Opcode::Convolution => convolution(p)?,
        Opcode::Reduce => Op::Reduce { dimensions: dims(&p.dimensions), to_apply: only_computation(&parts)? },
        Opcode::ReduceWindow => {
            Op::ReduceWindow { window: Box::new(window(p.window.as_deref())), to_apply: only_computation(&parts)? }
        }
        Opcode::SelectAndScatter => {
            let [select, scatter] = computations(&parts)?;
            Op::SelectAndScatter { window: Box::new(window(p.window.as_deref())), select, scatter }
        }
        Opcode::Scan => Op::Scan(Box::new(Scan {
            dimension: dimension(p)?,
            num_carries: p.num_carries,
            is_reverse: p.is_reverse,
            is_associative: match p.is_associative {
                0 => None,
                1 => Some(true),
                2 => Some(false),
                other => return error(&codes::BAD_VALUE, format!("is_associative is {other}")),
            },
            to_apply: only_computation(&parts)?,
        })),
        Opcode::Sort => {
            Op::Sort { dimension: dimension(p)?, is_stable: p.is_stable, to_apply: only_computation(&parts)? }
        }
        Opcode::TopK => Op::TopK { k: p.k, largest: p.largest, is_stable: p.is_stable },
        Opcode::Fft => {
            Op::Fft { kind: member("fft_type", p.fft_type, FftType::from_proto_number)?, length: dims(&p.fft_length) }
        }
        Opcode::Cholesky => Op::Cholesky { lower: p.cholesky_options.as_ref().is_some_and(|o| o.lower) },
        Opcode::TriangularSolve => {
            let Some(o) = &p.triangular_solve_options else { return missing("triangular_solve_options") };
            Op::TriangularSolve {
                left_side: o.left_side,
                lower: o.lower,
                unit_diagonal: o.unit_diagonal,
                transpose_a: member("transpose_a", o.transpose_a, TransposeA::from_proto_number)?,
            }
        }
        Opcode::BatchNormTraining => {
            Op::BatchNormTraining { epsilon: p.epsilon.unwrap_or_default().into(), feature_index: p.feature_index }
        }
        Opcode::BatchNormInference => {
            Op::BatchNormInference { epsilon: p.epsilon.unwrap_or_default().into(), feature_index: p.feature_index }
        }
        Opcode::BatchNormGrad => {
            Op::BatchNormGrad { epsilon: p.epsilon.unwrap_or_default().into(), feature_index: p.feature_index }
        }
        Opcode::Rng => {
            Op::Rng { distribution: member("distribution", p.distribution, RngDistribution::from_proto_number)? }
        }
        Opcode::RngBitGenerator => Op::RngBitGenerator {
            algorithm: member("rng_algorithm", p.rng_algorithm, RngAlgorithm::from_proto_number)?,
        },
        Opcode::RngGetAndUpdateState => Op::RngGetAndUpdateState { delta: p.delta },
        Opcode::Tuple => Op::Tuple,
        Opcode::GetTupleElement => Op::GetTupleElement { index: p.tuple_index },
        Opcode::AfterAll => Op::AfterAll,
        Opcode::AddDependency => Op::AddDependency,
        Opcode::OptBarrier => Op::OptBarrier,
        Opcode::Domain => {
            // The side of the operand is called entry in protos and exit in text, whose names the IR has.
            let Some(exit) = &p.domain_entry_sharding else { return missing("domain_entry_sharding") };
            let Some(entry) = &p.domain_exit_sharding else { return missing("domain_exit_sharding") };
            Op::Domain(Box::new(Domain { entry: sharding(reader, entry)?, exit: sharding(reader, exit)? }))
        }
        Opcode::While => {
            let [body, condition] = computations(&parts)?;
            Op::While { condition, body }
        }
        Opcode::Conditional => Op::Conditional { branches: SmallVec::from_vec(parts.called) },
        Opcode::Call => Op::Call { to_apply: only_computation(&parts)?, is_composite: p.is_composite },
        Opcode::Fusion => Op::Fusion(Box::new(Fusion {
            kind: spelled("fusion_kind", &p.fusion_kind, FusionKind::from_text)?,
            calls: only_computation(&parts)?,
            output_operand_aliasing: aliasing(p),
        })),
        Opcode::CustomCall => custom_call(parts)?,
        Opcode::AsyncStart => Op::AsyncStart(Box::new(AsyncStart {
            calls: only_computation(&parts)?,
            execution_thread: Some(p.async_execution_thread.as_str())
                .filter(|t| !t.is_empty() && *t != "main")
                .map(Into::into),
            output_operand_aliasing: aliasing(p),
        })),
        Opcode::AsyncUpdate => Op::AsyncUpdate { output_operand_aliasing: aliasing(p) },
        Opcode::AsyncDone => Op::AsyncDone,
        Opcode::AllReduce => Op::AllReduce(Box::new(all_reduce(&parts)?)),
        Opcode::AllReduceStart => Op::AllReduceStart(Box::new(all_reduce(&parts)?)),
        Opcode::AllReduceDone => Op::AllReduceDone,
        Opcode::AllGather => {
            Op::AllGather(Box::new(AllGather { collective: collective(p)?, dimension: dimension(p)? }))
        }
        Opcode::AllGatherStart => {
            Op::AllGatherStart(Box::new(AllGather { collective: collective(p)?, dimension: dimension(p)? }))
        }
        Opcode::AllGatherDone => Op::AllGatherDone,
        Opcode::ReduceScatter => Op::ReduceScatter(Box::new(ReduceScatter {
            collective: collective(p)?,
            dimension: dimension(p)?,
            to_apply: only_computation(&parts)?,
        })),
        Opcode::CollectiveReduce => Op::CollectiveReduce(Box::new(CollectiveReduce {
            collective: collective(p)?,
            has_dynamic_root: p.has_dynamic_root,
            to_apply: only_computation(&parts)?,
        })),
        Opcode::AllToAll => {
            Op::AllToAll { collective: Box::new(collective(p)?), split_dimension: p.dimensions.first().copied() }
        }
        Opcode::RaggedAllToAll => {
            Op::RaggedAllToAll { collective: Box::new(collective(p)?), split_dimension: p.dimensions.first().copied() }
        }
        Opcode::CollectiveBroadcast => {
            Op::CollectiveBroadcast { collective: Box::new(collective(p)?), has_dynamic_root: p.has_dynamic_root }
        }
        Opcode::CollectivePermute => Op::CollectivePermute(Box::new(permute(reader, &parts)?)),
        Opcode::CollectivePermuteStart => Op::CollectivePermuteStart(Box::new(permute(reader, &parts)?)),
        Opcode::CollectivePermuteDone => Op::CollectivePermuteDone,
        Opcode::CopyStart => Op::CopyStart {
            // Old dumps have a flag instead of a number.
            cross_program_prefetch_index: p
                .cross_program_prefetch_index
                .or_else(|| p.is_cross_program_prefetch.then_some(0)),
        },
        Opcode::CopyDone => Op::CopyDone,
        Opcode::Send => Op::Send(transfer(p)),
        Opcode::SendDone => Op::SendDone(transfer(p)),
        Opcode::Recv => Op::Recv(transfer(p)),
        Opcode::RecvDone => Op::RecvDone(transfer(p)),
        Opcode::Infeed => Op::Infeed { config: p.infeed_config.as_slice().into() },
        Opcode::Outfeed => {
            let Some(proto) = &p.outfeed_shape else { return missing("outfeed_shape") };
            Op::Outfeed { config: p.outfeed_config.as_slice().into(), shape: shape::shape(proto)? }
        }
        // Every other opcode is unary or binary.
        other => return error(&codes::UNKNOWN_OPCODE, format!("the opcode {other} cannot be read")),
    })
}

fn dims(list: &[i64]) -> DimVec {
    list.iter().copied().collect()
}

/// The one dimension of operations that have one.
fn dimension(p: &m::InstructionAttributes) -> Result<i64> {
    match p.dimensions[..] {
        [d] => Ok(d),
        [] => missing("dimensions"),
        _ => error(&codes::BAD_VALUE, format!("dimensions has {} members instead of one", p.dimensions.len())),
    }
}

fn computations<const N: usize>(parts: &Parts<'_>) -> Result<[ComputationId; N]> {
    match <[ComputationId; N]>::try_from(&parts.called[..]) {
        Ok(called) => Ok(called),
        Err(_) => {
            let message = format!("called_computation_ids has {} members instead of {N}", parts.called.len());
            error(&codes::BAD_VALUE, message)
        }
    }
}

fn only_computation(parts: &Parts<'_>) -> Result<ComputationId> {
    computations(parts).map(|[c]| c)
}

fn spelled<T>(field: &str, text: &str, from: impl Fn(&str) -> Option<T>) -> Result<T> {
    match from(text) {
        Some(value) => Ok(value),
        None if text.is_empty() => missing(field),
        None => error(&codes::BAD_VALUE, format!("{field} is {text:?}, which stands for nothing known")),
    }
}

fn constant(parts: Parts<'_>) -> Result<Op> {
    let Some(Some(literal)) = parts.literal else { return Ok(Op::Constant(ConstantValue::Elided)) };
    if !literal.shape().equal_ignoring_layout(parts.shape) {
        let message = format!("the literal is {} but the constant {}", literal.shape(), parts.shape);
        return error(&codes::BAD_LITERAL, message);
    }
    Ok(Op::constant(relaid(literal, parts.shape)?))
}

/// The literal under the layouts of the constant it belongs to; its own may say less.
fn relaid(literal: Literal, shape: &Shape) -> Result<Literal> {
    Ok(match (literal, shape) {
        (Literal::Array(array), Shape::Array(shape)) => match array.with_shape(shape.clone()) {
            Ok(array) => Literal::Array(array),
            Err(_) => return error(&codes::BAD_LITERAL, format!("the literal does not have the shape {shape}")),
        },
        (Literal::Tuple(elements), Shape::Tuple(shapes)) => {
            let elements = elements.into_iter().zip(shapes.iter()).map(|(e, s)| relaid(e, s));
            Literal::Tuple(elements.collect::<Result<_>>()?)
        }
        (literal, _) => literal,
    })
}

fn compare(reader: &Reader<'_>, parts: &Parts<'_>) -> Result<Op> {
    let p = parts.attributes;
    let direction = match parts.direction {
        Some(direction) => direction,
        None => spelled("comparison_direction", &p.comparison_direction, ComparisonDirection::from_text)?,
    };
    let kind = match p.comparison_type.as_str() {
        "" => None,
        text => Some(spelled("comparison_type", text, ComparisonType::from_text)?),
    };
    // Dumps always say the type; the IR, like text, only where it is not the one that the operands imply.
    let operand = parts.operands.first().and_then(|&o| reader.module[o].shape.element_type());
    let implied = operand.map(crate::proto::default_comparison);
    Ok(Op::Compare { direction, kind: kind.filter(|_| kind != implied) })
}

fn result_accuracy(p: &m::InstructionAttributes) -> Result<ResultAccuracy> {
    let Some(accuracy) = &p.result_accuracy else { return Ok(ResultAccuracy::Default) };
    Ok(match (&accuracy.tolerance, accuracy.mode.unwrap_or(0)) {
        (Some(t), _) => ResultAccuracy::Tolerance { atol: t.atol.to_bits(), rtol: t.rtol.to_bits(), ulps: t.ulps },
        (None, 0) => ResultAccuracy::Default,
        (None, 1) => ResultAccuracy::Highest,
        (None, other) => return error(&codes::BAD_VALUE, format!("the mode of result_accuracy is {other}")),
    })
}

fn gather(p: &m::InstructionAttributes) -> Result<Op> {
    let Some(g) = &p.gather_dimension_numbers else { return missing("gather_dimension_numbers") };
    Ok(Op::Gather(Box::new(Gather {
        dims: GatherDimensionNumbers {
            offset_dims: dims(&g.offset_dims),
            collapsed_slice_dims: dims(&g.collapsed_slice_dims),
            start_index_map: dims(&g.start_index_map),
            operand_batching_dims: dims(&g.operand_batching_dims),
            start_indices_batching_dims: dims(&g.start_indices_batching_dims),
            index_vector_dim: g.index_vector_dim,
        },
        slice_sizes: dims(&p.gather_slice_sizes),
        indices_are_sorted: p.indices_are_sorted,
    })))
}

fn scatter(parts: &Parts<'_>) -> Result<Op> {
    let p = parts.attributes;
    let Some(s) = &p.scatter_dimension_numbers else { return missing("scatter_dimension_numbers") };
    Ok(Op::Scatter(Box::new(Scatter {
        dims: ScatterDimensionNumbers {
            update_window_dims: dims(&s.update_window_dims),
            inserted_window_dims: dims(&s.inserted_window_dims),
            scatter_dims_to_operand_dims: dims(&s.scatter_dims_to_operand_dims),
            input_batching_dims: dims(&s.input_batching_dims),
            scatter_indices_batching_dims: dims(&s.scatter_indices_batching_dims),
            index_vector_dim: s.index_vector_dim,
        },
        indices_are_sorted: p.indices_are_sorted,
        unique_indices: p.unique_indices,
        to_apply: only_computation(parts)?,
    })))
}

fn dot(p: &m::InstructionAttributes) -> Result<Dot> {
    let Some(dims) = &p.dot_dimension_numbers else { return missing("dot_dimension_numbers") };
    Ok(Dot { dims: dot_dims(dims), precision: precision(p)? })
}

fn dot_dims(d: &m::DotDimensionNumbers) -> DotDimensionNumbers {
    DotDimensionNumbers {
        lhs_contracting: dims(&d.lhs_contracting_dimensions),
        rhs_contracting: dims(&d.rhs_contracting_dimensions),
        lhs_batch: dims(&d.lhs_batch_dimensions),
        rhs_batch: dims(&d.rhs_batch_dimensions),
    }
}

fn precision(p: &m::InstructionAttributes) -> Result<PrecisionConfig> {
    let Some(config) = &p.precision_config else { return Ok(PrecisionConfig::default()) };
    let precisions: SmallVec<[Precision; 2]> = config
        .operand_precision
        .iter()
        .map(|&n| member("operand_precision", n, Precision::from_proto_number))
        .collect::<Result<_>>()?;
    // Dumps write the default out for each operand; text leaves it out.
    let said = precisions.iter().any(|&p| p != Precision::Default);
    Ok(PrecisionConfig {
        operand_precision: if said { precisions } else { SmallVec::new() },
        algorithm: member("algorithm", config.algorithm, DotAlgorithm::from_proto_number)?,
    })
}

fn window(proto: Option<&m::Window>) -> Window {
    let dim = |d: &m::WindowDimension| WindowDim {
        size: d.size,
        stride: d.stride,
        padding_low: d.padding_low,
        padding_high: d.padding_high,
        window_dilation: d.window_dilation,
        base_dilation: d.base_dilation,
        window_reversal: d.window_reversal,
    };
    Window { dims: proto.map_or(SmallVec::new(), |w| w.dimensions.iter().map(dim).collect()) }
}

fn conv_dims(c: &m::ConvolutionDimensionNumbers) -> ConvDimensionNumbers {
    ConvDimensionNumbers {
        input_batch: c.input_batch_dimension,
        input_feature: c.input_feature_dimension,
        input_spatial: dims(&c.input_spatial_dimensions),
        kernel_input_feature: c.kernel_input_feature_dimension,
        kernel_output_feature: c.kernel_output_feature_dimension,
        kernel_spatial: dims(&c.kernel_spatial_dimensions),
        output_batch: c.output_batch_dimension,
        output_feature: c.output_feature_dimension,
        output_spatial: dims(&c.output_spatial_dimensions),
    }
}

fn convolution(p: &m::InstructionAttributes) -> Result<Op> {
    let Some(dims) = &p.convolution_dimension_numbers else { return missing("convolution_dimension_numbers") };
    let sparsity = |s: &m::SparsityDescriptor| Sparsity {
        num_non_zero: s.num_non_zero,
        block_size: s.block_size,
        dimension: s.dimension,
        stride: s.stride,
        idx: s.idx,
    };
    let config = p.sparsity_config.as_deref();
    Ok(Op::Convolution(Box::new(Convolution {
        window: window(p.window.as_deref()),
        dims: conv_dims(dims),
        feature_group_count: p.feature_group_count.max(1),
        batch_group_count: p.batch_group_count.max(1),
        precision: precision(p)?,
        kind: member("conv_kind", p.conv_kind, ConvolutionKind::from_proto_number)?,
        lhs_sparsity: config.and_then(|c| c.lhs.as_ref()).map(sparsity),
        rhs_sparsity: config.and_then(|c| c.rhs.as_ref()).map(sparsity),
    })))
}

fn aliasing(p: &m::InstructionAttributes) -> Vec<OutputOperandAlias> {
    let alias = |a: &m::OutputOperandAliasing| OutputOperandAlias {
        output_index: a.output_shape_index.iter().copied().collect(),
        operand: a.operand_index,
        operand_index: a.operand_shape_index.iter().copied().collect(),
    };
    p.output_operand_aliasing.iter().map(alias).collect()
}

fn custom_call(parts: Parts<'_>) -> Result<Op> {
    let p = parts.attributes;
    let literal = match parts.literal {
        Some(None) => return error(&codes::BAD_LITERAL, "the literal of a custom call has no elements"),
        Some(literal) => literal.map(Arc::new),
        None => None,
    };
    let layouts = || p.operand_shapes_with_layout.iter().map(shape::shape).collect::<Result<Vec<_>>>();
    Ok(Op::CustomCall(Box::new(CustomCall {
        target: p.custom_call_target.as_str().into(),
        window: p.window.as_deref().map(|w| window(Some(w))),
        conv_dims: p.convolution_dimension_numbers.as_deref().map(conv_dims),
        feature_group_count: p.feature_group_count.max(1),
        batch_group_count: p.batch_group_count.max(1),
        operand_layouts: p.constrain_layout.then(layouts).transpose()?,
        has_side_effect: p.custom_call_has_side_effect,
        called_computations: parts.called,
        output_operand_aliasing: aliasing(p),
        padding_type: member("padding_type", p.padding_type, PaddingType::from_proto_number)?,
        literal,
        precision: precision(p)?,
        schedule: member("custom_call_schedule", p.custom_call_schedule, CustomCallSchedule::from_proto_number)?,
        api_version: member(
            "custom_call_api_version",
            p.custom_call_api_version,
            CustomCallApiVersion::from_proto_number,
        )?,
    })))
}

/// A channel id; less than 0 means none.
fn channel_id(p: &m::InstructionAttributes) -> Option<i64> {
    p.channel_id.filter(|&id| id >= 0)
}

fn collective(p: &m::InstructionAttributes) -> Result<Collective> {
    Ok(Collective {
        // What all-reduce called its channel in old dumps.
        channel_id: Some(p.all_reduce_id).filter(|&id| id > 0).or(channel_id(p)),
        replica_groups: replica_groups(p)?,
        constrain_layout: p.constrain_layout,
        use_global_device_ids: p.use_global_device_ids,
        mode: None,
    })
}

fn all_reduce(parts: &Parts<'_>) -> Result<AllReduce> {
    Ok(AllReduce { collective: collective(parts.attributes)?, to_apply: only_computation(parts)? })
}

fn transfer(p: &m::InstructionAttributes) -> Transfer {
    Transfer { channel_id: channel_id(p), is_host_transfer: p.is_host_transfer }
}

fn permute(reader: &Reader<'_>, parts: &Parts<'_>) -> Result<CollectivePermute> {
    let p = parts.attributes;
    let operand = |i: usize| parts.operands.get(i).map(|&o| &reader.module[o].shape);
    let slice_sizes = if p.dynamic_slice_sizes.is_empty() {
        Vec::new()
    } else {
        match operand(0).zip(operand(2)).and_then(|(i, s)| slice_sizes(&p.dynamic_slice_sizes, i, s)) {
            Some(sizes) => sizes,
            None => return error(&codes::BAD_VALUE, "dynamic_slice_sizes does not fit the operands"),
        }
    };
    Ok(CollectivePermute {
        channel_id: channel_id(p),
        source_target_pairs: p.source_target_pairs.iter().map(|s| (s.source, s.target)).collect(),
        slice_sizes,
    })
}

/// Takes apart the sizes of the slices that an in-place collective-permute copies: they come one after another, as many
/// numbers for each as its array has dimensions. Of each array of a tuple there are as many slices as lists of start
/// indices; where there are more or fewer sizes than that, the last array's rank goes on to count.
fn slice_sizes(flat: &[i64], input: &Shape, starts: &Shape) -> Option<Vec<Vec<i64>>> {
    let lists = |starts: Option<&Shape>| match starts.and_then(Shape::as_tuple) {
        Some(lists) if lists.first().is_some_and(Shape::is_tuple) => lists.len(),
        _ => 1,
    };
    let arrays = input.as_tuple().unwrap_or(std::slice::from_ref(input));
    let last = arrays.last()?;
    let expected = arrays.iter().enumerate().flat_map(|(i, array)| {
        let starts = if input.is_tuple() { starts.at(&[i as i64]) } else { Some(starts) };
        std::iter::repeat_n(array, lists(starts))
    });
    let mut rest = flat;
    let mut sizes = Vec::new();
    for array in expected.chain(std::iter::repeat(last)) {
        // Nothing of a scalar can be sliced.
        let rank = array.as_array().map(|a| a.rank()).filter(|&r| r > 0)?;
        let (slice, after) = rest.split_at_checked(rank)?;
        sizes.push(slice.to_vec());
        rest = after;
        if rest.is_empty() {
            return Some(sizes);
        }
    }
    None
}

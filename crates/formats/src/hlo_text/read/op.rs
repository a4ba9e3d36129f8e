//! Attributes of one instruction: reading each by its kind, and building the operation from them.

use super::attributes::{Attr, AttrSet, Values};
use super::{Failed, Read, Reader};
use hloom_ir::attributes::*;
use hloom_ir::diagnostic::{Diagnostic, Span, codes};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::op::*;
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::Shape;
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// What is known of the instruction whose attributes are read.
pub(super) struct Subject {
    /// The operation whose attributes these are; with a sugared start, the one that is wrapped.
    pub(super) opcode: Opcode,
    /// Where its name stands.
    pub(super) opcode_span: Span,
    /// Attributes it may have.
    pub(super) allowed: AttrSet,
}

impl<'a> Reader<'a> {
    /// One attribute, with its name.
    pub(super) fn attribute(&mut self, subject: &Subject, values: &mut Values) -> Read<()> {
        self.skip();
        let start = self.pos;
        let Some(name) = self.attribute_name() else { return self.expected("an attribute: name=value") };
        let span = Span::new(start, start + name.len());
        let attr = match if name == b"metadata" { Some(Attr::Metadata) } else { Attr::from_name(name) } {
            Some(attr) if subject.allowed.has(attr) => attr,
            _ => return self.unknown_attribute(name, span, subject.allowed.iter().map(Attr::name)),
        };
        if values.seen.has(attr) {
            return self.repeated_attribute(attr, span, values);
        }
        values.seen.add(attr);
        self.attribute_value(attr, subject.opcode, values)?;
        let span = self.span_from(start);
        values.places.push((attr, span));
        Ok(())
    }

    #[cold]
    fn repeated_attribute(&mut self, attr: Attr, span: Span, values: &Values) -> Read<()> {
        let mut diagnostic =
            Diagnostic::error(&codes::text::DUPLICATE_ATTRIBUTE, format!("`{}` is given twice", attr.name()))
                .at(span)
                .label("the second time");
        if let Some(first) = values.place(attr) {
            diagnostic = diagnostic.note_at("the first time", hloom_ir::diagnostic::Place::Span(first));
        }
        self.fail(diagnostic)
    }

    fn attribute_value(&mut self, attr: Attr, opcode: Opcode, values: &mut Values) -> Read<()> {
        use Attr as A;
        match attr {
            A::Metadata => values.common.metadata = Some(Box::new(self.metadata()?)),
            A::BackendConfig => {
                let config: Box<[u8]> = match self.peek() {
                    b'{' => self.braced_text()?.into(),
                    _ => self.string()?.into(),
                };
                values.common.backend_config = Some(config);
            }
            A::Sharding => values.common.sharding = Some(Box::new(self.sharding()?)),
            A::FrontendAttributes => {
                let map = self.frontend_attributes()?;
                if !map.is_empty() {
                    values.common.rare_mut().frontend_attributes = map;
                }
            }
            A::Statistics => values.common.rare_mut().statistics = Some(self.statistics()?),
            A::Origin => values.common.rare_mut().origin = Some(self.origin()?),
            A::ControlPredecessors => {
                let mut predecessors: Vec<InstructionId> = Vec::new();
                self.list(|r| {
                    r.skip();
                    let start = r.pos;
                    let name = r.name("an instruction")?;
                    let span = r.span_from(start);
                    predecessors.push(r.find_instruction(name, span)?);
                    Ok(())
                })?;
                let mut listed = FxHashSet::default();
                predecessors.retain(|&p| listed.insert(p));
                if !predecessors.is_empty() {
                    values.common.rare_mut().control_predecessors = predecessors;
                }
            }
            A::ParameterReplication => values.replication = Some(self.bool_list()?.into()),
            A::IotaDimension
            | A::K
            | A::ChannelId
            | A::Index
            | A::FeatureGroupCount
            | A::BatchGroupCount
            | A::InferredDimension
            | A::NumCarries
            | A::IndexVectorDim
            | A::FeatureIndex
            | A::Delta => {
                let value = self.int("a whole number")?;
                values.ints.push((attr, value));
            }
            A::ExponentBits | A::MantissaBits | A::CrossProgramPrefetchIndex => {
                let value = self.int32("a whole number")?;
                values.ints.push((attr, i64::from(value)));
            }
            A::Largest
            | A::IsStable
            | A::ConstrainLayout
            | A::UseGlobalDeviceIds
            | A::HasDynamicRoot
            | A::IsHostTransfer
            | A::IsComposite
            | A::IsReverse
            | A::IsAssociative
            | A::IndicesAreSorted
            | A::UniqueIndices
            | A::HasSideEffect
            | A::Lower
            | A::LeftSide
            | A::UnitDiagonal => {
                if self.bool()? {
                    values.true_ones.add(attr);
                }
            }
            A::SliceSizes if opcode != Opcode::Gather => values.rare().list_lists = self.int_list_list()?,
            A::Dimensions
            | A::FftLength
            | A::LhsContractingDims
            | A::RhsContractingDims
            | A::LhsBatchDims
            | A::RhsBatchDims
            | A::LhsRaggedDims
            | A::RhsGroupDims
            | A::DynamicSliceSizes
            | A::OffsetDims
            | A::CollapsedSliceDims
            | A::StartIndexMap
            | A::OperandBatchingDims
            | A::StartIndicesBatchingDims
            | A::UpdateWindowDims
            | A::InsertedWindowDims
            | A::ScatterDimsToOperandDims
            | A::InputBatchingDims
            | A::ScatterIndicesBatchingDims
            | A::SliceSizes => {
                let list = self.int_list()?;
                values.lists.push((attr, list));
            }
            A::ToApply
            | A::Condition
            | A::Body
            | A::Select
            | A::Scatter
            | A::Calls
            | A::TrueComputation
            | A::FalseComputation => {
                let computation = self.computation_value()?;
                values.computations.push((attr, computation));
            }
            A::BranchComputations | A::CalledComputations => {
                let mut list = Vec::new();
                self.list(|r| {
                    list.push(r.computation_value()?);
                    Ok(())
                })?;
                values.rare().branches = list;
            }
            A::CustomCallTarget | A::AsyncExecutionThread => {
                let text = self.text_string()?.into_owned().into_bytes();
                values.strings.push((attr, text));
            }
            A::InfeedConfig | A::OutfeedConfig => {
                let bytes = self.string()?.into_owned();
                values.strings.push((attr, bytes));
            }
            A::ReplicaGroups => values.replica_groups = Some(Box::new(self.replica_groups()?)),
            A::Direction => {
                values.direction =
                    Some(self.word("a direction", ComparisonDirection::ALL, ComparisonDirection::text)?);
            }
            A::Type => {
                values.comparison_type =
                    Some(self.word("a kind of order", ComparisonType::ALL, ComparisonType::text)?);
            }
            A::Kind => values.fusion_kind = Some(self.word("a kind of fusion", FusionKind::ALL, FusionKind::text)?),
            A::Slice => values.slice = self.slice_ranges()?,
            A::Padding => values.padding = self.padding()?,
            A::OutputToOperandAliasing => values.aliasing = self.output_operand_aliasing()?,
            A::OperandPrecision => values.precision = self.precision_list()?,
            A::Algorithm if opcode == Opcode::RngBitGenerator => {
                let algorithm = self.word_in_any_case("a generator", RngAlgorithm::ALL, RngAlgorithm::text)?;
                values.rare().rng_algorithm = Some(algorithm);
            }
            A::Algorithm => {
                values.algorithm =
                    Some(self.word_in_any_case("an algorithm", DotAlgorithm::ALL, DotAlgorithm::text)?);
            }
            A::ResultAccuracy => values.accuracy = self.result_accuracy()?,
            _ => self.rare_value(attr, values)?,
        }
        Ok(())
    }

    #[cold]
    fn rare_value(&mut self, attr: Attr, values: &mut Values) -> Read<()> {
        use Attr as A;
        let rare = values.rare();
        match attr {
            A::Window => rare.window = Some(self.window()?),
            A::DimLabels => rare.conv_dims = Some(self.dim_labels()?),
            A::Epsilon => {
                self.skip();
                let start = self.pos;
                let value = self.float("a number")?;
                rare.epsilon = value as f32;
                if value.is_finite() && rare.epsilon.is_infinite() {
                    let span = self.span_from(start);
                    let message = format!("{value:e} is out of range for f32");
                    return self.fail_at(&codes::text::NUMBER_OUT_OF_RANGE, span, message, "too large");
                }
            }
            A::SourceTargetPairs => {
                let pairs = &mut rare.pairs;
                self.list(|r| {
                    r.skip();
                    let start = r.pos;
                    let pair = r.int_list::<[i64; 4]>()?;
                    let &[source, target] = pair.as_slice() else {
                        let span = r.span_from(start);
                        let message = format!("a pair has two devices, not {}", pair.len());
                        return r.fail_at(&codes::text::LIST_LENGTH, span, message, "expected {source,target}");
                    };
                    pairs.push((source, target));
                    Ok(())
                })?;
            }
            A::ConvolutionKind => {
                rare.convolution_kind =
                    Some(self.word("a kind of convolution", ConvolutionKind::ALL, ConvolutionKind::text)?);
            }
            A::SparsityConfig => [rare.lhs_sparsity, rare.rhs_sparsity] = self.sparsity_config()?,
            A::FftType => rare.fft_type = Some(self.word("a kind of transform", FftType::ALL, FftType::text)?),
            A::TransposeA => {
                rare.transpose_a = Some(self.word("a transposition", TransposeA::ALL, TransposeA::text)?);
            }
            A::OutfeedShape => rare.outfeed_shape = Some(self.shape()?),
            A::Distribution => {
                rare.distribution =
                    Some(self.word_in_any_case("a distribution", RngDistribution::ALL, RngDistribution::text)?);
            }
            A::OperandLayoutConstraints => {
                let mut shapes = Vec::new();
                self.list(|r| {
                    shapes.push(r.shape()?);
                    Ok(())
                })?;
                rare.operand_layouts = Some(shapes);
            }
            A::PaddingType => {
                rare.padding_type = Some(self.word("a kind of padding", PaddingType::ALL, PaddingType::text)?);
            }
            A::Literal => {
                self.skip();
                let start = self.pos;
                match self.literal_with_shape()? {
                    Some(literal) => rare.literal = Some(Arc::new(literal)),
                    None => {
                        let span = self.span_from(start);
                        let message = "a literal in an attribute cannot be left out";
                        return self.fail_at(&codes::text::LITERAL_SHAPE, span, message, "expected its elements");
                    }
                }
            }
            A::Schedule => {
                rare.schedule = Some(self.word("a schedule", CustomCallSchedule::ALL, CustomCallSchedule::text)?);
            }
            A::ApiVersion => {
                rare.api_version =
                    Some(self.word("a calling convention", CustomCallApiVersion::ALL, CustomCallApiVersion::text)?);
            }
            A::Mode => {
                rare.mode = Some(self.word("a group mode", CollectiveGroupMode::ALL, CollectiveGroupMode::text)?);
            }
            A::Domain => rare.domain = Some(Box::new(self.domain()?)),
            // Every other attribute is read by `attribute_value`.
            _ => return self.expected("a value"),
        }
        Ok(())
    }

    /// The one entry of the list `attr`.
    fn one_dimension(&mut self, attr: Attr, values: &mut Values, subject: &Subject) -> Read<i64> {
        let list = values.list(attr);
        if let &[dimension] = list.as_slice() {
            return Ok(dimension);
        }
        let span = values.place(attr).unwrap_or(subject.opcode_span);
        let message = format!("`{}` of {} has one entry, not {}", attr.name(), subject.opcode, list.len());
        self.fail_at(&codes::text::LIST_LENGTH, span, message, "expected one dimension")
    }

    /// A needed attribute that is not there.
    #[cold]
    pub(super) fn missing_attribute<T>(&mut self, attr: Attr, subject: &Subject) -> Read<T> {
        let message = format!("{} needs `{}`", subject.opcode, attr.name());
        let label = format!("`{}=` is missing", attr.name());
        self.fail_at(&codes::text::MISSING_ATTRIBUTE, subject.opcode_span, message, label)
    }

    fn collective(&mut self, values: &mut Values) -> Collective {
        Collective {
            channel_id: values.int(Attr::ChannelId),
            replica_groups: values.replica_groups.take().map(|g| *g).unwrap_or_default(),
            constrain_layout: values.is_true(Attr::ConstrainLayout),
            use_global_device_ids: values.is_true(Attr::UseGlobalDeviceIds),
            mode: values.rare.as_ref().and_then(|r| r.mode),
        }
    }

    /// The operation that the attributes describe. Those it needs are known to be there.
    pub(super) fn build_op(&mut self, subject: &Subject, values: &mut Values, operands: &[InstructionId]) -> Read<Op> {
        use Attr as A;
        use Opcode as O;
        let opcode = subject.opcode;
        if let Some(op) = UnaryOp::from_opcode(opcode) {
            return Ok(Op::Unary { op, accuracy: values.accuracy });
        }
        if let Some(op) = BinaryOp::from_opcode(opcode) {
            return Ok(Op::Binary(op));
        }
        let need = |values: &Values, attr| values.computation(attr).ok_or(Failed);
        let int = |values: &Values, attr| values.int(attr).ok_or(Failed);
        Ok(match opcode {
            O::Iota => Op::Iota { dimension: int(values, A::IotaDimension)? },
            O::ReplicaId => Op::ReplicaId,
            O::PartitionId => Op::PartitionId,
            O::Compare => Op::Compare { direction: values.direction.ok_or(Failed)?, kind: values.comparison_type },
            O::Select => Op::Select,
            O::Clamp => Op::Clamp,
            O::Convert => Op::Convert,
            O::BitcastConvert => Op::BitcastConvert,
            O::ReducePrecision => Op::ReducePrecision {
                exponent_bits: int(values, A::ExponentBits)? as i32,
                mantissa_bits: int(values, A::MantissaBits)? as i32,
            },
            O::StochasticConvert => Op::StochasticConvert,
            O::Map => {
                let to_apply = need(values, A::ToApply)?;
                let mut dimensions = values.list(A::Dimensions);
                if dimensions.is_empty() {
                    // None said means all there are.
                    let operand = operands.first().and_then(|&o| self.module[o].shape.as_array());
                    dimensions.extend(0..operand.map_or(0, |a| a.rank()) as i64);
                }
                Op::Map { to_apply, dimensions }
            }
            O::Bitcast => Op::Bitcast,
            O::Copy => Op::Copy,
            O::Reshape => Op::Reshape { inferred_dimension: values.int(A::InferredDimension).filter(|&d| d != -1) },
            O::DynamicReshape => Op::DynamicReshape,
            O::Broadcast => {
                if !values.seen.has(A::Dimensions) && !self.is_scalar(operands.first()) {
                    return self.missing_attribute(A::Dimensions, subject);
                }
                Op::Broadcast { dimensions: values.list(A::Dimensions) }
            }
            O::Transpose => Op::Transpose { dimensions: values.list(A::Dimensions) },
            O::Reverse => Op::Reverse { dimensions: values.list(A::Dimensions) },
            O::Concatenate => Op::Concatenate { dimension: self.one_dimension(A::Dimensions, values, subject)? },
            O::Slice => Op::Slice { dims: std::mem::take(&mut values.slice).into() },
            O::DynamicSlice => Op::DynamicSlice { sizes: values.list(A::DynamicSliceSizes) },
            O::DynamicUpdateSlice => Op::DynamicUpdateSlice,
            O::Pad => Op::Pad { padding: std::mem::take(&mut values.padding).into() },
            O::Gather => Op::Gather(Box::new(Gather {
                dims: GatherDimensionNumbers {
                    offset_dims: values.list(A::OffsetDims),
                    collapsed_slice_dims: values.list(A::CollapsedSliceDims),
                    start_index_map: values.list(A::StartIndexMap),
                    operand_batching_dims: values.list(A::OperandBatchingDims),
                    start_indices_batching_dims: values.list(A::StartIndicesBatchingDims),
                    index_vector_dim: int(values, A::IndexVectorDim)?,
                },
                slice_sizes: values.list(A::SliceSizes),
                indices_are_sorted: values.is_true(A::IndicesAreSorted),
            })),
            O::Scatter => Op::Scatter(Box::new(Scatter {
                dims: ScatterDimensionNumbers {
                    update_window_dims: values.list(A::UpdateWindowDims),
                    inserted_window_dims: values.list(A::InsertedWindowDims),
                    scatter_dims_to_operand_dims: values.list(A::ScatterDimsToOperandDims),
                    input_batching_dims: values.list(A::InputBatchingDims),
                    scatter_indices_batching_dims: values.list(A::ScatterIndicesBatchingDims),
                    index_vector_dim: int(values, A::IndexVectorDim)?,
                },
                indices_are_sorted: values.is_true(A::IndicesAreSorted),
                unique_indices: values.is_true(A::UniqueIndices),
                to_apply: need(values, A::ToApply)?,
            })),
            O::GetDimensionSize => {
                Op::GetDimensionSize { dimension: self.one_dimension(A::Dimensions, values, subject)? }
            }
            O::SetDimensionSize => {
                Op::SetDimensionSize { dimension: self.one_dimension(A::Dimensions, values, subject)? }
            }
            O::Dot | O::ScaledDot => {
                let dot = Box::new(Dot { dims: dot_dims(values), precision: values.precision_config() });
                if opcode == O::Dot { Op::Dot(dot) } else { Op::ScaledDot(dot) }
            }
            O::RaggedDot => Op::RaggedDot(Box::new(RaggedDot {
                dims: dot_dims(values),
                lhs_ragged: values.list(A::LhsRaggedDims),
                rhs_group: values.list(A::RhsGroupDims),
                precision: values.precision_config(),
            })),
            O::Reduce => Op::Reduce { dimensions: values.list(A::Dimensions), to_apply: need(values, A::ToApply)? },
            O::ReduceWindow => Op::ReduceWindow {
                window: Box::new(values.rare().window.take().unwrap_or_default()),
                to_apply: need(values, A::ToApply)?,
            },
            O::SelectAndScatter => Op::SelectAndScatter {
                window: Box::new(values.rare().window.take().unwrap_or_default()),
                select: need(values, A::Select)?,
                scatter: need(values, A::Scatter)?,
            },
            O::Sort => Op::Sort {
                dimension: self.one_dimension(A::Dimensions, values, subject)?,
                is_stable: values.is_true(A::IsStable),
                to_apply: need(values, A::ToApply)?,
            },
            O::Tuple => Op::Tuple,
            O::GetTupleElement => Op::GetTupleElement { index: int(values, A::Index)? },
            O::AfterAll => Op::AfterAll,
            O::AddDependency => Op::AddDependency,
            O::OptBarrier => Op::OptBarrier,
            O::While => Op::While { condition: need(values, A::Condition)?, body: need(values, A::Body)? },
            O::Conditional => Op::Conditional { branches: self.branches(values, operands, subject)?.into() },
            O::Call => Op::Call { to_apply: need(values, A::ToApply)?, is_composite: values.is_true(A::IsComposite) },
            O::Fusion => Op::Fusion(Box::new(Fusion {
                kind: values.fusion_kind.ok_or(Failed)?,
                calls: need(values, A::Calls)?,
                output_operand_aliasing: std::mem::take(&mut values.aliasing),
            })),
            O::CustomCall => Op::CustomCall(Box::new(self.custom_call(values)?)),
            O::AllReduce | O::AllReduceStart => {
                let all_reduce =
                    Box::new(AllReduce { collective: self.collective(values), to_apply: need(values, A::ToApply)? });
                if opcode == O::AllReduce { Op::AllReduce(all_reduce) } else { Op::AllReduceStart(all_reduce) }
            }
            O::AllReduceDone => Op::AllReduceDone,
            O::AllGather | O::AllGatherStart => {
                let dimension = self.one_dimension(A::Dimensions, values, subject)?;
                let all_gather = Box::new(AllGather { collective: self.collective(values), dimension });
                if opcode == O::AllGather { Op::AllGather(all_gather) } else { Op::AllGatherStart(all_gather) }
            }
            O::AllGatherDone => Op::AllGatherDone,
            O::CollectivePermuteDone => Op::CollectivePermuteDone,
            O::CopyStart => Op::CopyStart {
                cross_program_prefetch_index: values.int(A::CrossProgramPrefetchIndex).map(|i| i as i32),
            },
            O::CopyDone => Op::CopyDone,
            O::Send => Op::Send(transfer(values)),
            O::SendDone => Op::SendDone(transfer(values)),
            O::Recv => Op::Recv(transfer(values)),
            O::RecvDone => Op::RecvDone(transfer(values)),
            _ => return self.build_rare_op(subject, values, operands),
        })
    }

    fn build_rare_op(&mut self, subject: &Subject, values: &mut Values, operands: &[InstructionId]) -> Read<Op> {
        use Attr as A;
        use Opcode as O;
        Ok(match subject.opcode {
            O::Convolution => {
                let precision = values.precision_config();
                let feature_group_count = values.int(A::FeatureGroupCount).unwrap_or(1);
                let batch_group_count = values.int(A::BatchGroupCount).unwrap_or(1);
                let rare = values.rare();
                Op::Convolution(Box::new(Convolution {
                    window: rare.window.take().unwrap_or_default(),
                    dims: rare.conv_dims.take().unwrap_or_default(),
                    feature_group_count,
                    batch_group_count,
                    precision,
                    kind: rare.convolution_kind.unwrap_or(ConvolutionKind::Unset),
                    lhs_sparsity: rare.lhs_sparsity,
                    rhs_sparsity: rare.rhs_sparsity,
                }))
            }
            O::Scan => Op::Scan(Box::new(Scan {
                dimension: self.one_dimension(A::Dimensions, values, subject)?,
                num_carries: values.int(A::NumCarries).ok_or(Failed)?,
                is_reverse: values.is_true(A::IsReverse),
                is_associative: values.bool(A::IsAssociative),
                to_apply: values.computation(A::ToApply).ok_or(Failed)?,
            })),
            O::TopK => Op::TopK {
                k: values.int(A::K).ok_or(Failed)?,
                largest: values.bool(A::Largest).unwrap_or(true),
                is_stable: values.bool(A::IsStable).unwrap_or(true),
            },
            O::Fft => Op::Fft { kind: values.rare().fft_type.ok_or(Failed)?, length: values.list(A::FftLength) },
            O::Cholesky => Op::Cholesky { lower: values.is_true(A::Lower) },
            O::TriangularSolve => Op::TriangularSolve {
                left_side: values.is_true(A::LeftSide),
                lower: values.is_true(A::Lower),
                unit_diagonal: values.is_true(A::UnitDiagonal),
                transpose_a: values.rare().transpose_a.unwrap_or(TransposeA::None),
            },
            O::BatchNormTraining => {
                let (epsilon, feature_index) = batch_norm(values)?;
                Op::BatchNormTraining { epsilon, feature_index }
            }
            O::BatchNormInference => {
                let (epsilon, feature_index) = batch_norm(values)?;
                Op::BatchNormInference { epsilon, feature_index }
            }
            O::BatchNormGrad => {
                let (epsilon, feature_index) = batch_norm(values)?;
                Op::BatchNormGrad { epsilon, feature_index }
            }
            O::Rng => Op::Rng { distribution: values.rare().distribution.ok_or(Failed)? },
            O::RngBitGenerator => Op::RngBitGenerator { algorithm: values.rare().rng_algorithm.ok_or(Failed)? },
            O::RngGetAndUpdateState => Op::RngGetAndUpdateState { delta: values.int(A::Delta).ok_or(Failed)? },
            O::Domain => Op::Domain(values.rare().domain.take().ok_or(Failed)?),
            O::ReduceScatter => {
                let dimension = self.one_dimension(A::Dimensions, values, subject)?;
                Op::ReduceScatter(Box::new(ReduceScatter {
                    collective: self.collective(values),
                    dimension,
                    to_apply: values.computation(A::ToApply).ok_or(Failed)?,
                }))
            }
            O::CollectiveReduce => Op::CollectiveReduce(Box::new(CollectiveReduce {
                collective: self.collective(values),
                has_dynamic_root: values.is_true(A::HasDynamicRoot),
                to_apply: values.computation(A::ToApply).ok_or(Failed)?,
            })),
            O::AllToAll | O::RaggedAllToAll => {
                let split_dimension = match values.seen.has(A::Dimensions) {
                    true => Some(self.one_dimension(A::Dimensions, values, subject)?),
                    false => None,
                };
                let collective = Box::new(self.collective(values));
                match subject.opcode {
                    O::AllToAll => Op::AllToAll { collective, split_dimension },
                    _ => Op::RaggedAllToAll { collective, split_dimension },
                }
            }
            O::CollectiveBroadcast => Op::CollectiveBroadcast {
                collective: Box::new(self.collective(values)),
                has_dynamic_root: values.is_true(A::HasDynamicRoot),
            },
            O::CollectivePermute | O::CollectivePermuteStart => {
                let channel_id = values.int(A::ChannelId);
                let rare = values.rare();
                let permute = Box::new(CollectivePermute {
                    channel_id,
                    source_target_pairs: std::mem::take(&mut rare.pairs),
                    slice_sizes: std::mem::take(&mut rare.list_lists),
                });
                match subject.opcode {
                    O::CollectivePermute => Op::CollectivePermute(permute),
                    _ => Op::CollectivePermuteStart(permute),
                }
            }
            O::Infeed => Op::Infeed { config: values.string(A::InfeedConfig).unwrap_or_default().into() },
            O::Outfeed => {
                let config = values.string(A::OutfeedConfig).unwrap_or_default().into();
                let written = values.rare().outfeed_shape.take();
                let shape = written.or_else(|| Some(self.module[*operands.first()?].shape.clone()));
                Op::Outfeed { config, shape: shape.unwrap_or(Shape::Token) }
            }
            // Parameters, constants and the asynchronous operations are built where they are read.
            _ => return Err(Failed),
        })
    }

    fn is_scalar(&self, operand: Option<&InstructionId>) -> bool {
        operand.and_then(|&o| self.module[o].shape.as_array()).is_some_and(|a| a.is_scalar())
    }

    /// The branches of a conditional: two for a pred, a list for an s32.
    fn branches(
        &mut self,
        values: &mut Values,
        operands: &[InstructionId],
        subject: &Subject,
    ) -> Read<Vec<ComputationId>> {
        use hloom_ir::element_type::ElementType::Pred;
        let is_pred = operands.first().is_some_and(|&o| self.module[o].shape.is_scalar_of(Pred));
        let wrong = match is_pred {
            true => A_BRANCHES.as_slice(),
            false => A_TRUE_FALSE.as_slice(),
        };
        if let Some(&attr) = wrong.iter().find(|&&a| values.seen.has(a)) {
            let span = values.place(attr).unwrap_or(subject.opcode_span);
            let wants = if is_pred { "true_computation and false_computation" } else { "branch_computations" };
            let chosen_by = if is_pred { "a pred" } else { "a number" };
            let message = format!("a conditional on {chosen_by} has {wants}");
            return self.fail_at(&codes::text::UNKNOWN_ATTRIBUTE, span, message, format!("expected {wants}"));
        }
        let needed = if is_pred { A_TRUE_FALSE.as_slice() } else { A_BRANCHES.as_slice() };
        if let Some(&attr) = needed.iter().find(|&&a| !values.seen.has(a)) {
            return self.missing_attribute(attr, subject);
        }
        if is_pred {
            return Ok(A_TRUE_FALSE.iter().filter_map(|&a| values.computation(a)).collect());
        }
        Ok(std::mem::take(&mut values.rare().branches))
    }

    fn custom_call(&mut self, values: &mut Values) -> Read<CustomCall> {
        use Attr as A;
        if let (Some(_), Some(second)) = (values.place(A::ToApply), values.place(A::CalledComputations)) {
            let message = "`to_apply` and `called_computations` exclude each other";
            return self.fail_at(&codes::text::CONFLICTING_ATTRIBUTES, second, message, "give one of them");
        }
        let target = values.string(A::CustomCallTarget).unwrap_or_default();
        let mut call = CustomCall::new(String::from_utf8_lossy(&target));
        call.feature_group_count = values.int(A::FeatureGroupCount).unwrap_or(1);
        call.batch_group_count = values.int(A::BatchGroupCount).unwrap_or(1);
        call.has_side_effect = values.is_true(A::HasSideEffect);
        call.output_operand_aliasing = std::mem::take(&mut values.aliasing);
        call.precision = values.precision_config();
        call.called_computations = values.computation(A::ToApply).into_iter().collect();
        if let Some(mut rare) = values.rare.take() {
            call.window = rare.window.take();
            call.conv_dims = rare.conv_dims.take();
            call.operand_layouts = rare.operand_layouts.take();
            call.called_computations.append(&mut rare.branches);
            call.padding_type = rare.padding_type.unwrap_or(PaddingType::Invalid);
            call.literal = rare.literal.take();
            call.schedule = rare.schedule.unwrap_or(CustomCallSchedule::None);
            call.api_version = rare.api_version.unwrap_or(CustomCallApiVersion::Original);
        }
        Ok(call)
    }
}

const A_TRUE_FALSE: [Attr; 2] = [Attr::TrueComputation, Attr::FalseComputation];
const A_BRANCHES: [Attr; 1] = [Attr::BranchComputations];

fn dot_dims(values: &mut Values) -> DotDimensionNumbers {
    DotDimensionNumbers {
        lhs_contracting: values.list(Attr::LhsContractingDims),
        rhs_contracting: values.list(Attr::RhsContractingDims),
        lhs_batch: values.list(Attr::LhsBatchDims),
        rhs_batch: values.list(Attr::RhsBatchDims),
    }
}

fn transfer(values: &Values) -> Transfer {
    Transfer { channel_id: values.int(Attr::ChannelId), is_host_transfer: values.is_true(Attr::IsHostTransfer) }
}

fn batch_norm(values: &mut Values) -> Read<(F32Bits, i64)> {
    let feature_index = values.int(Attr::FeatureIndex).ok_or(Failed)?;
    Ok((values.rare().epsilon.into(), feature_index))
}

//! Building an operation from the attributes that were read.
//!
//! Attributes that an operation needs are known to be there; where the type system cannot know that, a missing one gives
//! up on the instruction rather than panic.

use super::attributes::{Attr, Values};
use super::op::Subject;
use super::{Failed, Read, Reader};
use hloom_ir::attributes::*;
use hloom_ir::diagnostic::codes;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::op::*;
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::Shape;

impl<'a> Reader<'a> {
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

//! Attributes of one instruction: reading each by its kind.

use super::attributes::{Attr, AttrSet, Values};
use super::{Read, Reader};
use hloom_ir::attributes::*;
use hloom_ir::diagnostic::{Diagnostic, Span, codes};
use hloom_ir::entity::InstructionId;
use hloom_ir::opcode::Opcode;
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
            A::Sharding => values.common.sharding = Some(Arc::new(self.sharding()?)),
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
            // What later prints write in place of a type: floats, and nothing else, may have another order than their own.
            A::Order => {
                if self.word("an order", &[false, true], |total| if total { "TOTAL" } else { "PARTIAL" })? {
                    values.comparison_type = Some(ComparisonType::TotalOrder);
                }
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

    /// A needed attribute that is not there.
    #[cold]
    pub(super) fn missing_attribute<T>(&mut self, attr: Attr, subject: &Subject) -> Read<T> {
        let message = format!("{} needs `{}`", subject.opcode, attr.name());
        let label = format!("`{}=` is missing", attr.name());
        self.fail_at(&codes::text::MISSING_ATTRIBUTE, subject.opcode_span, message, label)
    }
}

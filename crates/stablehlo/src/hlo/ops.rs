//! Which code translates which operation.

use super::{Translate, Translator};
use crate::mlir::OpKind;
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::diagnostic::did_you_mean;
use hloom_ir::op::{BinaryOp, UnaryOp};
use hloom_ir::{Op, Shape};

impl Translator<'_, '_> {
    /// Translates the operation that is at hand.
    pub(super) fn op(&mut self) -> Translate<()> {
        use OpKind as K;
        match self.m.kind(self.at) {
            K::Abs => self.unary(UnaryOp::Abs),
            K::Cbrt => self.cbrt(),
            K::Ceil => self.unary(UnaryOp::Ceil),
            K::Cosine => self.unary(UnaryOp::Cosine),
            K::CountLeadingZeros => self.unary(UnaryOp::CountLeadingZeros),
            K::Exponential => self.unary(UnaryOp::Exponential),
            K::ExponentialMinusOne => self.unary(UnaryOp::ExponentialMinusOne),
            K::Floor => self.unary(UnaryOp::Floor),
            K::Imag => self.real_or_imag(UnaryOp::Imag),
            K::IsFinite => self.unary(UnaryOp::IsFinite),
            K::Log => self.unary(UnaryOp::Log),
            K::LogPlusOne => self.unary(UnaryOp::LogPlusOne),
            K::Logistic => self.unary(UnaryOp::Logistic),
            K::Negate => self.unary(UnaryOp::Negate),
            K::Not => self.unary(UnaryOp::Not),
            K::Popcnt => self.unary(UnaryOp::PopulationCount),
            K::Real => self.real_or_imag(UnaryOp::Real),
            K::RoundNearestAfz => self.unary(UnaryOp::RoundNearestAfz),
            K::RoundNearestEven => self.unary(UnaryOp::RoundNearestEven),
            K::Rsqrt => self.unary(UnaryOp::Rsqrt),
            K::Sign => self.unary(UnaryOp::Sign),
            K::Sine => self.unary(UnaryOp::Sine),
            K::Sqrt => self.unary(UnaryOp::Sqrt),
            K::Tan | K::ChloTan => self.unary(UnaryOp::Tan),
            K::Tanh => self.unary(UnaryOp::Tanh),

            K::Add => self.binary(BinaryOp::Add),
            K::And => self.binary(BinaryOp::And),
            K::Atan2 => self.binary(BinaryOp::Atan2),
            K::Complex => self.binary(BinaryOp::Complex),
            K::Divide => self.binary(BinaryOp::Divide),
            K::Maximum => self.binary(BinaryOp::Maximum),
            K::Minimum => self.binary(BinaryOp::Minimum),
            K::Multiply => self.binary(BinaryOp::Multiply),
            K::Or => self.binary(BinaryOp::Or),
            K::Power => self.binary(BinaryOp::Power),
            K::Remainder => self.binary(BinaryOp::Remainder),
            K::ShiftLeft => self.binary(BinaryOp::ShiftLeft),
            K::ShiftRightArithmetic => self.binary(BinaryOp::ShiftRightArithmetic),
            K::ShiftRightLogical => self.binary(BinaryOp::ShiftRightLogical),
            K::Subtract => self.binary(BinaryOp::Subtract),
            K::Xor => self.binary(BinaryOp::Xor),

            K::Compare => self.compare(),
            K::Select => self.plain(3, Op::Select),
            K::Clamp => self.plain(3, Op::Clamp),
            K::Convert => self.convert(),
            K::BitcastConvert => self.bitcast_convert(),
            K::ReducePrecision => self.reduce_precision(),
            K::Constant | K::ChloConstant | K::SdyConstant => self.constant_op(),
            K::Iota => self.iota(),
            K::ReplicaId => self.plain(0, Op::ReplicaId),
            K::PartitionId => self.plain(0, Op::PartitionId),

            K::Reshape => self.plain(1, Op::Reshape { inferred_dimension: None }),
            K::BroadcastInDim => self.broadcast_in_dim(),
            K::Broadcast => self.broadcast(),
            K::Transpose => {
                let dimensions = self.needed_ints("permutation")?;
                self.plain(1, Op::Transpose { dimensions })
            }
            K::Reverse => {
                let dimensions = self.needed_ints("dimensions")?;
                self.plain(1, Op::Reverse { dimensions })
            }
            K::Concatenate => self.concatenate(),
            K::Slice => self.slice(),
            K::DynamicSlice => {
                let sizes = self.needed_ints("slice_sizes")?;
                self.variadic(Op::DynamicSlice { sizes })
            }
            K::DynamicUpdateSlice => self.variadic(Op::DynamicUpdateSlice),
            K::Pad => self.pad(),
            K::Gather => self.gather(),
            K::Scatter => self.scatter(),
            K::TorchIndexSelect => self.torch_index_select(),
            K::GetDimensionSize => self.get_dimension_size(),
            K::SetDimensionSize => {
                let dimension = self.int("dimension")?;
                self.plain(2, Op::SetDimensionSize { dimension })
            }

            K::Dot => self.dot(),
            K::DotGeneral => self.dot_general(),
            K::Einsum => self.einsum(),
            K::UnaryEinsum => self.unary_einsum(),
            K::Convolution => self.convolution(),
            K::Fft => self.fft(),
            K::Cholesky => {
                let lower = self.flag("lower")?;
                self.plain(1, Op::Cholesky { lower })
            }
            K::TriangularSolve => self.triangular_solve(),
            K::BatchNormTraining | K::BatchNormInference | K::BatchNormGrad => self.batch_norm(),
            K::Rng => self.rng(),
            K::RngBitGenerator => self.rng_bit_generator(),

            K::Reduce => self.reduce(),
            K::ReduceWindow => self.reduce_window(),
            K::SelectAndScatter => self.select_and_scatter(),
            K::Sort => self.sort(),
            K::Map => self.map_op(),

            K::While => self.while_op(),
            K::If => self.if_op(),
            K::Case => self.case_op(),
            K::Call => self.call_op(),
            K::Composite => self.composite(),
            K::CustomCall => self.custom_call(),

            K::Tuple => self.variadic(Op::Tuple),
            K::GetTupleElement => {
                let index = self.int("index")?;
                self.plain(1, Op::GetTupleElement { index })
            }
            K::CreateToken | K::AfterAll => self.after_all(),
            K::OptimizationBarrier => self.optimization_barrier(),
            K::Infeed => self.infeed(),
            K::Outfeed => self.outfeed(),
            K::Send => self.send(),
            K::Recv => self.recv(),

            K::AllReduce | K::CrossReplicaSum => self.all_reduce(),
            K::AllGather => self.all_gather(),
            K::ReduceScatter => self.reduce_scatter(),
            K::AllToAll => self.all_to_all(),
            K::CollectivePermute => self.collective_permute(),
            K::CollectiveBroadcast => self.collective_broadcast(),
            K::CollectiveReduce => self.collective_reduce(),
            K::AsyncStart => self.async_start(),
            K::AsyncDone => self.async_done(),

            K::DynamicBroadcastInDim => self.dynamic_broadcast_in_dim(),
            K::DynamicConv => self.dynamic_conv(),
            K::DynamicGather => self.dynamic_gather(),
            K::DynamicIota => self.dynamic_iota(),
            K::DynamicPad => self.dynamic_pad(),
            K::DynamicReshape => self.dynamic_reshape(),
            K::RealDynamicSlice => self.real_dynamic_slice(),

            K::Cast | K::Probe => {
                let x = self.operand(0)?;
                self.bind(x)
            }
            K::Print => Ok(()),

            K::SdyShardingConstraint | K::SdyReshard => self.sharding_constraint(),
            K::SdyManualComputation => self.manual_computation(),
            K::SdyNamedComputation => self.named_computation(),
            K::SdyShardingGroup => self.sharding_group(),
            K::SdyPropagationBarrier => self.propagation_barrier(),
            K::SdyDataFlowEdge | K::SdyFuncDataFlowEdge => self.passed_on(),
            K::SdyMesh => Ok(()),

            K::UniformQuantize | K::UniformDequantize => Err(self.error(
                &codes::NO_HLO_FORM,
                format!("{} works on quantized values, which HLO does not have", self.op_name()),
            )),
            K::Module | K::Func => {
                let message = format!("{} stands inside a function", self.op_name());
                Err(self.error(&codes::BAD_OPERANDS, message))
            }
            kind if kind.is_expectation() => Err(self.error(
                &codes::NO_HLO_FORM,
                format!("{} can stand only in the function that is checked, outside of control flow", self.op_name()),
            )),
            K::RunParallel => Err(self.error(
                &codes::NO_HLO_FORM,
                format!("{} can stand only in a function that is checked", self.op_name()),
            )),
            K::Unknown => {
                let name = self.op_name();
                let mut error = self.error(&codes::UNKNOWN_OPERATION, format!("there is no operation {name}"));
                if let Some(near) = did_you_mean(name, OpKind::NAMES.iter().copied()) {
                    *error = error.help(format!("did you mean {near}?"));
                }
                Err(error)
            }
            _ => self.chlo(),
        }
    }

    /// An operation with that many operands and one result.
    pub(super) fn plain(&mut self, count: usize, op: Op) -> Translate<()> {
        self.expect_operands(count)?;
        self.variadic(op)
    }

    /// An operation on any number of operands with one result.
    pub(super) fn variadic(&mut self, op: Op) -> Translate<()> {
        let operands = self.operands()?;
        let shape = self.result_shape(0)?;
        let id = self.emit(op, operands, shape)?;
        self.bind(id)
    }

    fn constant_op(&mut self) -> Translate<()> {
        let Some(value) = self.attr("value") else { return Err(self.bad_attribute("value", "a literal")) };
        let op = self.m.op(self.at);
        if op.result_count != 1 {
            return Err(self.error(&codes::BAD_OPERANDS, "a constant gives one result"));
        }
        let id = self.constant(value, self.m.value_type(op.first_result))?;
        self.bind(id)
    }

    fn call_op(&mut self) -> Translate<()> {
        let callee = self.text("callee")?;
        let Some(&function) = self.functions.get(callee) else {
            return Err(self.error(&codes::UNKNOWN_FUNCTION, format!("there is no function @{callee}")));
        };
        let operands = self.operands()?;
        let results = self.call(function, &operands)?;
        self.bind_all(&results)
    }

    fn after_all(&mut self) -> Translate<()> {
        let operands = self.operands()?;
        let id = self.emit(Op::AfterAll, operands, Shape::Token)?;
        self.bind(id)
    }

    fn optimization_barrier(&mut self) -> Translate<()> {
        let operands = self.operands()?;
        if let [one] = operands[..] {
            let shape = self.shape(one).clone();
            let id = self.emit(Op::OptBarrier, operands, shape)?;
            return self.bind(id);
        }
        let tuple = self.tuple(&operands)?;
        let shape = self.shape(tuple).clone();
        let barrier = self.emit(Op::OptBarrier, [tuple].as_slice(), shape)?;
        self.bind_tuple(barrier)
    }
}

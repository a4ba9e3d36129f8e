//! The operations that hloom knows, by dialect.

macro_rules! kinds {
    ($($variant:ident $name:literal),+ $(,)?) => {
        /// A known operation, or that it is none.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs, reason = "each variant is the operation of that name")]
        pub enum OpKind { Unknown, $($variant),+ }

        impl OpKind {
            /// The operation of that name, with its dialect.
            pub fn from_name(name: &str) -> OpKind {
                match name { $($name => OpKind::$variant,)+ _ => OpKind::Unknown }
            }
            /// The names of all known operations.
            pub const NAMES: &'static [&'static str] = &[$($name),+];
        }
    };
}

kinds! {
    Module "builtin.module", Cast "builtin.unrealized_conversion_cast",
    Func "func.func", Call "func.call", FuncReturn "func.return",

    Abs "stablehlo.abs", Add "stablehlo.add", AfterAll "stablehlo.after_all", AllGather "stablehlo.all_gather",
    AllReduce "stablehlo.all_reduce", AllToAll "stablehlo.all_to_all", And "stablehlo.and",
    AsyncDone "stablehlo.async_done", AsyncStart "stablehlo.async_start", Atan2 "stablehlo.atan2",
    BatchNormGrad "stablehlo.batch_norm_grad", BatchNormInference "stablehlo.batch_norm_inference",
    BatchNormTraining "stablehlo.batch_norm_training", BitcastConvert "stablehlo.bitcast_convert",
    Broadcast "stablehlo.broadcast", BroadcastInDim "stablehlo.broadcast_in_dim", Case "stablehlo.case",
    Cbrt "stablehlo.cbrt", Ceil "stablehlo.ceil", Cholesky "stablehlo.cholesky", Clamp "stablehlo.clamp",
    CollectiveBroadcast "stablehlo.collective_broadcast", CollectivePermute "stablehlo.collective_permute",
    CollectiveReduce "stablehlo.collective_reduce", Compare "stablehlo.compare", Complex "stablehlo.complex",
    Composite "stablehlo.composite", Concatenate "stablehlo.concatenate", Constant "stablehlo.constant",
    Convert "stablehlo.convert", Convolution "stablehlo.convolution", Cosine "stablehlo.cosine",
    CountLeadingZeros "stablehlo.count_leading_zeros", CreateToken "stablehlo.create_token",
    CrossReplicaSum "stablehlo.cross-replica-sum", CustomCall "stablehlo.custom_call", Divide "stablehlo.divide",
    Dot "stablehlo.dot", DotGeneral "stablehlo.dot_general", DynamicBroadcastInDim "stablehlo.dynamic_broadcast_in_dim",
    DynamicConv "stablehlo.dynamic_conv", DynamicGather "stablehlo.dynamic_gather", DynamicIota "stablehlo.dynamic_iota",
    DynamicPad "stablehlo.dynamic_pad", DynamicReshape "stablehlo.dynamic_reshape",
    DynamicSlice "stablehlo.dynamic_slice", DynamicUpdateSlice "stablehlo.dynamic_update_slice",
    Einsum "stablehlo.einsum", Exponential "stablehlo.exponential",
    ExponentialMinusOne "stablehlo.exponential_minus_one", Fft "stablehlo.fft", Floor "stablehlo.floor",
    Gather "stablehlo.gather", GetDimensionSize "stablehlo.get_dimension_size",
    GetTupleElement "stablehlo.get_tuple_element", If "stablehlo.if", Imag "stablehlo.imag", Infeed "stablehlo.infeed",
    Iota "stablehlo.iota", IsFinite "stablehlo.is_finite", Log "stablehlo.log", LogPlusOne "stablehlo.log_plus_one",
    Logistic "stablehlo.logistic", Map "stablehlo.map", Maximum "stablehlo.maximum", Minimum "stablehlo.minimum",
    Multiply "stablehlo.multiply", Negate "stablehlo.negate", Not "stablehlo.not",
    OptimizationBarrier "stablehlo.optimization_barrier", Or "stablehlo.or", Outfeed "stablehlo.outfeed",
    Pad "stablehlo.pad", PartitionId "stablehlo.partition_id", Popcnt "stablehlo.popcnt", Power "stablehlo.power",
    Real "stablehlo.real", RealDynamicSlice "stablehlo.real_dynamic_slice", Recv "stablehlo.recv",
    Reduce "stablehlo.reduce", ReducePrecision "stablehlo.reduce_precision", ReduceScatter "stablehlo.reduce_scatter",
    ReduceWindow "stablehlo.reduce_window", Remainder "stablehlo.remainder", ReplicaId "stablehlo.replica_id",
    Reshape "stablehlo.reshape", Return "stablehlo.return", Reverse "stablehlo.reverse", Rng "stablehlo.rng",
    RngBitGenerator "stablehlo.rng_bit_generator", RoundNearestAfz "stablehlo.round_nearest_afz",
    RoundNearestEven "stablehlo.round_nearest_even", Rsqrt "stablehlo.rsqrt", Scatter "stablehlo.scatter",
    Select "stablehlo.select", SelectAndScatter "stablehlo.select_and_scatter", Send "stablehlo.send",
    SetDimensionSize "stablehlo.set_dimension_size", ShiftLeft "stablehlo.shift_left",
    ShiftRightArithmetic "stablehlo.shift_right_arithmetic", ShiftRightLogical "stablehlo.shift_right_logical",
    Sign "stablehlo.sign", Sine "stablehlo.sine", Slice "stablehlo.slice", Sort "stablehlo.sort", Sqrt "stablehlo.sqrt",
    Subtract "stablehlo.subtract", Tan "stablehlo.tan", Tanh "stablehlo.tanh",
    TorchIndexSelect "stablehlo.torch_index_select", Transpose "stablehlo.transpose",
    TriangularSolve "stablehlo.triangular_solve", Tuple "stablehlo.tuple", UnaryEinsum "stablehlo.unary_einsum",
    UniformDequantize "stablehlo.uniform_dequantize", UniformQuantize "stablehlo.uniform_quantize",
    While "stablehlo.while", Xor "stablehlo.xor",

    ChloAcos "chlo.acos", ChloAcosh "chlo.acosh", ChloAsin "chlo.asin", ChloAsinAcosKernel "chlo._asin_acos_kernel",
    ChloAsinh "chlo.asinh", ChloAtan "chlo.atan", ChloAtanh "chlo.atanh", ChloBesselI1e "chlo.bessel_i1e",
    ChloBroadcastAdd "chlo.broadcast_add", ChloBroadcastAnd "chlo.broadcast_and",
    ChloBroadcastAtan2 "chlo.broadcast_atan2", ChloBroadcastCompare "chlo.broadcast_compare",
    ChloBroadcastComplex "chlo.broadcast_complex", ChloBroadcastDivide "chlo.broadcast_divide",
    ChloBroadcastMaximum "chlo.broadcast_maximum", ChloBroadcastMinimum "chlo.broadcast_minimum",
    ChloBroadcastMultiply "chlo.broadcast_multiply", ChloBroadcastNextAfter "chlo.broadcast_next_after",
    ChloBroadcastOr "chlo.broadcast_or", ChloBroadcastPolygamma "chlo.broadcast_polygamma",
    ChloBroadcastPower "chlo.broadcast_power", ChloBroadcastRemainder "chlo.broadcast_remainder",
    ChloBroadcastSelect "chlo.broadcast_select", ChloBroadcastShiftLeft "chlo.broadcast_shift_left",
    ChloBroadcastShiftRightArithmetic "chlo.broadcast_shift_right_arithmetic",
    ChloBroadcastShiftRightLogical "chlo.broadcast_shift_right_logical",
    ChloBroadcastSubtract "chlo.broadcast_subtract", ChloBroadcastXor "chlo.broadcast_xor",
    ChloBroadcastZeta "chlo.broadcast_zeta", ChloConj "chlo.conj", ChloConstant "chlo.constant",
    ChloConstantLike "chlo.constant_like", ChloCosh "chlo.cosh", ChloDigamma "chlo.digamma", ChloErf "chlo.erf",
    ChloErfInv "chlo.erf_inv", ChloErfc "chlo.erfc", ChloIsInf "chlo.is_inf", ChloIsNegInf "chlo.is_neg_inf",
    ChloIsPosInf "chlo.is_pos_inf", ChloLgamma "chlo.lgamma", ChloMulhi "chlo.mulhi", ChloNextAfter "chlo.next_after",
    ChloPolygamma "chlo.polygamma", ChloRaggedDot "chlo.ragged_dot", ChloScan "chlo.scan", ChloSinh "chlo.sinh",
    ChloSquare "chlo.square", ChloTan "chlo.tan", ChloTopK "chlo.top_k", ChloZeta "chlo.zeta",

    ExpectEq "check.expect_eq", ExpectEqConst "check.expect_eq_const", ExpectAlmostEq "check.expect_almost_eq",
    ExpectAlmostEqConst "check.expect_almost_eq_const", ExpectClose "check.expect_close",
    ExpectSerializedEq "check.expect_serialized_eq",
    RunParallel "interpreter.run_parallel", Print "interpreter.print", Probe "interpreter.probe",

    SdyMesh "sdy.mesh", SdyShardingConstraint "sdy.sharding_constraint", SdyReshard "sdy.reshard",
    SdyManualComputation "sdy.manual_computation", SdyShardingGroup "sdy.sharding_group",
    SdyPropagationBarrier "sdy.propagation_barrier", SdyNamedComputation "sdy.named_computation",
    SdyConstant "sdy.constant", SdyReturn "sdy.return", SdyDataFlowEdge "sdy.data_flow_edge",
    SdyFuncDataFlowEdge "sdy.func_data_flow_edge",
    SdyAllGather "sdy.all_gather", SdyAllSlice "sdy.all_slice", SdyAllToAll "sdy.all_to_all",
    SdyCollectivePermute "sdy.collective_permute", SdyAllReduce "sdy.all_reduce", SdyReduceScatter "sdy.reduce_scatter",
    SdyReplicatedToUnreduced "sdy.replicated_to_unreduced", SdyShardedToUnreduced "sdy.sharded_to_unreduced",
}

impl OpKind {
    /// Whether it ends a block and gives its values.
    pub fn is_return(self) -> bool {
        matches!(self, OpKind::Return | OpKind::FuncReturn | OpKind::SdyReturn)
    }
    /// Whether each element of its result is made of the corresponding elements of its operands.
    pub fn is_elementwise(self) -> bool {
        use OpKind::*;
        self.is_elementwise_chlo()
            || matches!(
                self,
                Abs | Add
                    | And
                    | Atan2
                    | Cbrt
                    | Ceil
                    | Clamp
                    | Compare
                    | Complex
                    | Convert
                    | Cosine
                    | CountLeadingZeros
                    | Divide
                    | Exponential
                    | ExponentialMinusOne
                    | Floor
                    | Imag
                    | IsFinite
                    | Log
                    | LogPlusOne
                    | Logistic
                    | Maximum
                    | Minimum
                    | Multiply
                    | Negate
                    | Not
                    | Or
                    | Popcnt
                    | Power
                    | Real
                    | ReducePrecision
                    | Remainder
                    | RoundNearestAfz
                    | RoundNearestEven
                    | Rsqrt
                    | Select
                    | ShiftLeft
                    | ShiftRightArithmetic
                    | ShiftRightLogical
                    | Sign
                    | Sine
                    | Sqrt
                    | Subtract
                    | Tan
                    | Tanh
                    | Xor
            )
    }

    fn is_elementwise_chlo(self) -> bool {
        use OpKind::*;
        matches!(
            self,
            ChloAcos
                | ChloAcosh
                | ChloAsin
                | ChloAsinh
                | ChloAtan
                | ChloAtanh
                | ChloBesselI1e
                | ChloConj
                | ChloCosh
                | ChloDigamma
                | ChloErf
                | ChloErfInv
                | ChloErfc
                | ChloIsInf
                | ChloIsNegInf
                | ChloIsPosInf
                | ChloLgamma
                | ChloMulhi
                | ChloNextAfter
                | ChloPolygamma
                | ChloSinh
                | ChloSquare
                | ChloTan
                | ChloZeta
        )
    }

    /// Whether it compares a value with what it should be.
    pub fn is_expectation(self) -> bool {
        use OpKind::*;
        matches!(
            self,
            ExpectEq | ExpectEqConst | ExpectAlmostEq | ExpectAlmostEqConst | ExpectClose | ExpectSerializedEq
        )
    }
}

#[cfg(test)]
mod tests {
    use super::OpKind;

    #[test]
    fn every_name_is_known_once() {
        let mut seen = std::collections::BTreeSet::new();
        for &name in OpKind::NAMES {
            assert_ne!(OpKind::from_name(name), OpKind::Unknown, "{name}");
            assert!(seen.insert(name), "{name} is there twice");
        }
    }
}

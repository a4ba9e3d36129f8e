//! The flat list of opcodes: their names in HLO text and how many operands each takes.
//!
//! [`Opcode`] says *which* operation; [`crate::op::Op`] says which and carries the attributes.

use std::fmt;

macro_rules! opcodes {
    (@arity _) => { None };
    (@arity $n:literal) => { Some($n) };
    ($($variant:ident $arity:tt $text:literal,)+) => {
        /// Every operation of HLO.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs, reason = "each variant is the operation of that name")]
        #[repr(u8)]
        pub enum Opcode { $($variant),+ }

        impl Opcode {
            /// Every opcode, in alphabetical order of their names.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$variant),+];

            /// The name in HLO text.
            pub const fn name(self) -> &'static str {
                match self { $(Opcode::$variant => $text),+ }
            }

            /// The number of operands, where it is fixed.
            pub const fn arity(self) -> Option<usize> {
                match self { $(Opcode::$variant => opcodes!(@arity $arity)),+ }
            }

            /// The opcode of that name.
            pub fn from_name(name: &[u8]) -> Option<Opcode> {
                match std::str::from_utf8(name).ok()? { $($text => Some(Opcode::$variant),)+ _ => None }
            }
        }
    };
}

opcodes! {
    Abs 1 "abs",
    Acos 1 "acos",
    Acosh 1 "acosh",
    Add 2 "add",
    AddDependency 2 "add-dependency",
    AfterAll _ "after-all",
    AllGather _ "all-gather",
    AllGatherDone 1 "all-gather-done",
    AllGatherStart _ "all-gather-start",
    AllReduce _ "all-reduce",
    AllReduceDone 1 "all-reduce-done",
    AllReduceStart _ "all-reduce-start",
    AllToAll _ "all-to-all",
    And 2 "and",
    Asin 1 "asin",
    Asinh 1 "asinh",
    AsyncDone 1 "async-done",
    AsyncStart _ "async-start",
    AsyncUpdate _ "async-update",
    Atan2 2 "atan2",
    Atanh 1 "atanh",
    BatchNormGrad 5 "batch-norm-grad",
    BatchNormInference 5 "batch-norm-inference",
    BatchNormTraining 3 "batch-norm-training",
    Bitcast 1 "bitcast",
    BitcastConvert 1 "bitcast-convert",
    Broadcast 1 "broadcast",
    Call _ "call",
    Cbrt 1 "cbrt",
    Ceil 1 "ceil",
    Cholesky 1 "cholesky",
    Clamp 3 "clamp",
    CollectiveBroadcast _ "collective-broadcast",
    CollectivePermute _ "collective-permute",
    CollectivePermuteDone 1 "collective-permute-done",
    CollectivePermuteStart _ "collective-permute-start",
    CollectiveReduce _ "collective-reduce",
    Compare 2 "compare",
    Complex 2 "complex",
    Concatenate _ "concatenate",
    Conditional _ "conditional",
    Constant 0 "constant",
    Convert 1 "convert",
    Convolution _ "convolution",
    Copy 1 "copy",
    CopyDone 1 "copy-done",
    CopyStart 1 "copy-start",
    Cosh 1 "cosh",
    Cosine 1 "cosine",
    CountLeadingZeros 1 "count-leading-zeros",
    CustomCall _ "custom-call",
    Divide 2 "divide",
    Domain 1 "domain",
    Dot 2 "dot",
    DynamicReshape _ "dynamic-reshape",
    DynamicSlice _ "dynamic-slice",
    DynamicUpdateSlice _ "dynamic-update-slice",
    Erf 1 "erf",
    Exponential 1 "exponential",
    ExponentialMinusOne 1 "exponential-minus-one",
    Fft 1 "fft",
    Floor 1 "floor",
    Fusion _ "fusion",
    Gather 2 "gather",
    GetDimensionSize 1 "get-dimension-size",
    GetTupleElement 1 "get-tuple-element",
    Imag 1 "imag",
    Infeed 1 "infeed",
    Iota 0 "iota",
    IsFinite 1 "is-finite",
    Log 1 "log",
    LogPlusOne 1 "log-plus-one",
    Logistic 1 "logistic",
    Map _ "map",
    Maximum 2 "maximum",
    Minimum 2 "minimum",
    Mulhi 2 "mulhi",
    Multiply 2 "multiply",
    Negate 1 "negate",
    Not 1 "not",
    OptBarrier 1 "opt-barrier",
    Or 2 "or",
    Outfeed 2 "outfeed",
    Pad 2 "pad",
    Parameter 0 "parameter",
    PartitionId 0 "partition-id",
    PopulationCount 1 "popcnt",
    Power 2 "power",
    RaggedAllToAll 6 "ragged-all-to-all",
    RaggedDot 3 "ragged-dot",
    Real 1 "real",
    Recv 1 "recv",
    RecvDone 1 "recv-done",
    Reduce _ "reduce",
    ReducePrecision 1 "reduce-precision",
    ReduceScatter _ "reduce-scatter",
    ReduceWindow _ "reduce-window",
    Remainder 2 "remainder",
    ReplicaId 0 "replica-id",
    Reshape 1 "reshape",
    Reverse 1 "reverse",
    Rng _ "rng",
    RngBitGenerator 1 "rng-bit-generator",
    RngGetAndUpdateState 0 "rng-get-and-update-state",
    RoundNearestAfz 1 "round-nearest-afz",
    RoundNearestEven 1 "round-nearest-even",
    Rsqrt 1 "rsqrt",
    ScaledDot 4 "scaled-dot",
    Scan _ "scan",
    Scatter _ "scatter",
    Select 3 "select",
    SelectAndScatter 3 "select-and-scatter",
    Send 2 "send",
    SendDone 1 "send-done",
    SetDimensionSize 2 "set-dimension-size",
    ShiftLeft 2 "shift-left",
    ShiftRightArithmetic 2 "shift-right-arithmetic",
    ShiftRightLogical 2 "shift-right-logical",
    Sign 1 "sign",
    Sine 1 "sine",
    Sinh 1 "sinh",
    Slice 1 "slice",
    Sort _ "sort",
    Sqrt 1 "sqrt",
    StochasticConvert 2 "stochastic-convert",
    Subtract 2 "subtract",
    Tan 1 "tan",
    Tanh 1 "tanh",
    TopK 1 "topk",
    Transpose 1 "transpose",
    TriangularSolve 2 "triangular-solve",
    Tuple _ "tuple",
    While 1 "while",
    Xor 2 "xor",
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

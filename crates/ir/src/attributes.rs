//! The values of attributes: windows, dimension numbers, precision, aliasing and the like.
//!
//! Each is plain data in the terms of XLA's documentation; what makes one valid is checked by [`crate::verify`].

use crate::layout::DimVec;
use crate::shape::ShapeIndex;
use smallvec::SmallVec;
use std::fmt;

/// One dimension of a [`Window`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowDim {
    /// Elements the window covers.
    pub size: i64,
    /// Steps between windows.
    pub stride: i64,
    /// Padding before the first element; may be negative.
    pub padding_low: i64,
    /// Padding after the last element; may be negative.
    pub padding_high: i64,
    /// `rhs_dilate`: distance between the elements of the window.
    pub window_dilation: i64,
    /// `lhs_dilate`: distance between the elements of the base.
    pub base_dilation: i64,
    /// Whether the window is mirrored.
    pub window_reversal: bool,
}

impl WindowDim {
    /// A window of `size` with every other property at its default.
    pub fn of_size(size: i64) -> WindowDim {
        WindowDim {
            size,
            stride: 1,
            padding_low: 0,
            padding_high: 0,
            window_dilation: 1,
            base_dilation: 1,
            window_reversal: false,
        }
    }
}

/// `window={size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=… rhs_dilate=… rhs_reversal=…}`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Window {
    /// One entry per (spatial) dimension.
    pub dims: SmallVec<[WindowDim; 2]>,
}

/// One dimension of `padding=l_h_i`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PaddingDim {
    /// Elements before; negative takes away.
    pub low: i64,
    /// Elements after; negative takes away.
    pub high: i64,
    /// Elements between each two.
    pub interior: i64,
}

/// One dimension of `slice={[a:b:s]}`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct SliceDim {
    pub start: i64,
    pub limit: i64,
    pub stride: i64,
}

/// Which dimensions of a dot are summed over and which are batched.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct DotDimensionNumbers {
    pub lhs_contracting: DimVec,
    pub rhs_contracting: DimVec,
    pub lhs_batch: DimVec,
    pub rhs_batch: DimVec,
}

/// `operand_precision={high,default}` and `algorithm=dot_bf16_bf16_f32`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PrecisionConfig {
    /// One per operand, or none.
    pub operand_precision: SmallVec<[Precision; 2]>,
    /// How the products are made.
    pub algorithm: DotAlgorithm,
}

/// `dim_labels=b01f_01io->b01f`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct ConvDimensionNumbers {
    pub input_batch: i64,
    pub input_feature: i64,
    pub input_spatial: DimVec,
    pub kernel_input_feature: i64,
    pub kernel_output_feature: i64,
    pub kernel_spatial: DimVec,
    pub output_batch: i64,
    pub output_feature: i64,
    pub output_spatial: DimVec,
}

/// How gather reads.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct GatherDimensionNumbers {
    pub offset_dims: DimVec,
    pub collapsed_slice_dims: DimVec,
    pub start_index_map: DimVec,
    pub operand_batching_dims: DimVec,
    pub start_indices_batching_dims: DimVec,
    pub index_vector_dim: i64,
}

/// How scatter writes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct ScatterDimensionNumbers {
    pub update_window_dims: DimVec,
    pub inserted_window_dims: DimVec,
    pub scatter_dims_to_operand_dims: DimVec,
    pub input_batching_dims: DimVec,
    pub scatter_indices_batching_dims: DimVec,
    pub index_vector_dim: i64,
}

/// `{0}: (1, {})`: a part of the output is the same memory as a part of an operand.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct OutputOperandAlias {
    pub output_index: ShapeIndex,
    pub operand: i64,
    pub operand_index: ShapeIndex,
}

/// `result_accuracy={mode=highest}` or `{tolerance={atol=…,rtol=…,ulps=…}}`. Tolerances are kept as bits so that
/// attributes can be compared and hashed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ResultAccuracy {
    /// Nothing is said.
    #[default]
    Default,
    /// As exact as can be.
    Highest,
    /// Within these bounds.
    Tolerance {
        /// `f64` bits of the absolute tolerance.
        atol: u64,
        /// `f64` bits of the relative tolerance.
        rtol: u64,
        /// Units in the last place.
        ulps: i64,
    },
}

/// `sparsity_config={lhs={sparsity=2x4 dimension=… stride=… idx=…}}` of one operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Sparsity {
    pub num_non_zero: i64,
    pub block_size: i64,
    pub dimension: i64,
    pub stride: i64,
    pub idx: i32,
}

/// Declares an enum whose variants have a spelling in HLO text.
macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs, reason = "each variant is what its spelling in HLO text says")]
        pub enum $name { $($(#[$vdoc])* $variant = $number),+ }

        impl $name {
            /// Every variant.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            /// The spelling in HLO text.
            pub const fn text(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
            /// The variant with that spelling.
            pub fn from_text(text: &str) -> Option<$name> {
                match text { $($text => Some($name::$variant),)+ _ => None }
            }
            /// The number of the variant in XLA's protos.
            pub const fn proto_number(self) -> i32 { self as i32 }
            /// The variant with that number in XLA's protos.
            pub fn from_proto_number(number: i32) -> Option<$name> {
                match number { $($number => Some($name::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.text())
            }
        }
    };
}

text_enum!(
    /// How exactly an operand's products are made.
    Precision { Default = 0 "default", High = 1 "high", Highest = 2 "highest", PackedNibble = 3 "packed_nibble" }
);
text_enum!(
    /// Which types the products and sums of a dot have.
    DotAlgorithm {
        Unset = 0 "dot_unset",
        AnyF8AnyF8F32 = 1 "dot_any_f8_any_f8_f32",
        AnyF8AnyF8F32FastAccum = 2 "dot_any_f8_any_f8_f32_fast_accum",
        F16F16F16 = 3 "dot_f16_f16_f16",
        F16F16F32 = 4 "dot_f16_f16_f32",
        Bf16Bf16Bf16 = 5 "dot_bf16_bf16_bf16",
        Bf16Bf16F32 = 6 "dot_bf16_bf16_f32",
        Bf16Bf16F32X3 = 7 "dot_bf16_bf16_f32_x3",
        Bf16Bf16F32X6 = 8 "dot_bf16_bf16_f32_x6",
        Tf32Tf32F32 = 9 "dot_tf32_tf32_f32",
        Tf32Tf32F32X3 = 10 "dot_tf32_tf32_f32_x3",
        F32F32F32 = 11 "dot_f32_f32_f32",
        F64F64F64 = 12 "dot_f64_f64_f64",
        Bf16Bf16F32X9 = 13 "dot_bf16_bf16_f32_x9",
    }
);
#[allow(clippy::derivable_impls, reason = "the enum is declared by a macro")]
impl Default for DotAlgorithm {
    fn default() -> Self {
        DotAlgorithm::Unset
    }
}
text_enum!(
    /// What a comparison asks.
    ComparisonDirection { Eq = 0 "EQ", Ne = 1 "NE", Ge = 2 "GE", Gt = 3 "GT", Le = 4 "LE", Lt = 5 "LT" }
);
text_enum!(
    /// The order in which a comparison compares.
    ComparisonType { Float = 0 "FLOAT", TotalOrder = 1 "TOTALORDER", Signed = 2 "SIGNED", Unsigned = 3 "UNSIGNED" }
);
text_enum!(
    /// What a fusion was made for.
    FusionKind { Loop = 0 "kLoop", Input = 1 "kInput", Output = 2 "kOutput", Custom = 3 "kCustom" }
);
text_enum!(
    /// The distribution of rng.
    RngDistribution { Uniform = 1 "rng_uniform", Normal = 2 "rng_normal" }
);
text_enum!(
    /// The generator of rng-bit-generator.
    RngAlgorithm { Default = 0 "rng_default", ThreeFry = 1 "rng_three_fry", Philox = 2 "rng_philox" }
);
text_enum!(
    /// The kind of a Fourier transform.
    FftType { Fft = 0 "FFT", Ifft = 1 "IFFT", Rfft = 2 "RFFT", Irfft = 3 "IRFFT" }
);
text_enum!(
    /// What triangular-solve does to its matrix first.
    TransposeA { None = 1 "NO_TRANSPOSE", Transpose = 2 "TRANSPOSE", Adjoint = 3 "ADJOINT" }
);
text_enum!(
    /// Padding kinds of custom calls.
    PaddingType { Invalid = 0 "PADDING_INVALID", Valid = 1 "PADDING_VALID", Same = 2 "PADDING_SAME" }
);
text_enum!(
    /// When a custom call wants to be scheduled.
    CustomCallSchedule { None = 0 "SCHEDULE_NONE", Latest = 1 "SCHEDULE_LATEST", Earliest = 2 "SCHEDULE_EARLIEST" }
);
text_enum!(
    /// The calling convention of a custom call.
    CustomCallApiVersion {
        Unspecified = 0 "API_VERSION_UNSPECIFIED",
        Original = 1 "API_VERSION_ORIGINAL",
        StatusReturning = 2 "API_VERSION_STATUS_RETURNING",
        StatusReturningUnified = 3 "API_VERSION_STATUS_RETURNING_UNIFIED",
        TypedFfi = 4 "API_VERSION_TYPED_FFI",
    }
);
text_enum!(
    /// What a convolution stands for in training.
    ConvolutionKind { Unset = 0 "unset", Fprop = 1 "fprop", Dgrad = 2 "dgrad", Wgrad = 3 "wgrad" }
);
text_enum!(
    /// Whether a result of the entry must or may share a parameter's memory.
    AliasKind { May = 1 "may-alias", Must = 2 "must-alias" }
);
text_enum!(
    /// How the ids in replica groups are to be read; derived from `channel_id` and `use_global_device_ids`.
    CollectiveGroupMode {
        CrossReplica = 0 "cross_replica",
        CrossPartition = 1 "cross_partition",
        CrossReplicaAndPartition = 2 "cross_replica_and_partition",
        FlattenedId = 3 "flattened_id",
    }
);

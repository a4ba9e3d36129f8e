//! Dots, convolutions, Fourier transforms, triangular systems and batch normalisation.

use super::check_table;
use crate::attributes::{
    ConvDimensionNumbers, ConvolutionKind, DotDimensionNumbers, FftType, PrecisionConfig, TransposeA, Window, WindowDim,
};
use crate::op::{Convolution, Dot, F32Bits, Op, RaggedDot};

fn numbers(lc: &[i64], rc: &[i64], lb: &[i64], rb: &[i64]) -> DotDimensionNumbers {
    DotDimensionNumbers {
        lhs_contracting: lc.into(),
        rhs_contracting: rc.into(),
        lhs_batch: lb.into(),
        rhs_batch: rb.into(),
    }
}

fn dot(lc: &[i64], rc: &[i64], lb: &[i64], rb: &[i64]) -> Op {
    Op::Dot(Box::new(Dot { dims: numbers(lc, rc, lb, rb), ..Dot::default() }))
}

fn scaled_dot() -> Op {
    Op::ScaledDot(Box::new(Dot { dims: numbers(&[1], &[0], &[], &[]), ..Dot::default() }))
}

#[test]
fn dots() {
    check_table([
        (dot(&[1], &[0], &[], &[]), "f32[2,3] | f32[3,4]", "", "f32[2,4]"),
        (dot(&[], &[], &[], &[]), "f32[2] | f32[3]", "", "f32[2,3]"),
        (dot(&[0], &[0], &[], &[]), "f32[3] | f32[3]", "", "f32[]"),
        (dot(&[2], &[1], &[0], &[0]), "f32[5,2,3] | f32[5,3,4]", "", "f32[5,2,4]"),
        (dot(&[1], &[0], &[], &[]), "f32[<=2,3] | f32[3,<=4]", "", "f32[<=2,<=4]"),
        (dot(&[1], &[0], &[], &[]), "s8[2,3] | s8[3,4]", "s32[2,4]", "s32[2,4]"),
        (dot(&[1], &[0], &[], &[]), "bf16[2,3] | f32[3,4]", "", "f32[2,4]"),
        (dot(&[1], &[0], &[], &[]), "f16[2,3] | bf16[3,4]", "", "bf16[2,4]"),
        (dot(&[1], &[0], &[], &[]), "u8[2,3] | s8[3,4]", "", "s8[2,4]"),
        (dot(&[1], &[0], &[], &[]), "f32[2,3] | f32[4,4]", "", "H0305 operand 1"),
        (dot(&[1], &[], &[], &[]), "f32[2,3] | f32[3,4]", "", "H0316 rhs_contracting_dims"),
        (dot(&[2], &[0], &[], &[]), "f32[2,3] | f32[3,4]", "", "H0307 lhs_contracting_dims"),
        (dot(&[1], &[-1], &[], &[]), "f32[2,3] | f32[3,4]", "", "H0307 rhs_contracting_dims"),
        (dot(&[1], &[0], &[1], &[1]), "f32[2,3] | f32[3,4]", "", "H0316 lhs_batch_dims"),
        (dot(&[2], &[1], &[0], &[0]), "f32[5,2,3] | f32[6,3,4]", "", "H0305 operand 1"),
        (dot(&[1], &[0], &[], &[]), "f32[2,3] | f32[3,4]", "(f32[2,4])", "H0313 shape"),
        (dot(&[1], &[0], &[], &[]), "f32[2,3] | token[]", "", "H0302 operand 1"),
        (scaled_dot(), "f8e4m3fn[8,64] | f8e4m3fn[64,4] | f8e8m0fnu[8,2] | f8e8m0fnu[2,4]", "f32[8,4]", "f32[8,4]"),
        (scaled_dot(), "f8e4m3fn[8,64] | bf16[64,4] | f8e8m0fnu[8,2] | bf16[1,1]", "f32[8,4]", "f32[8,4]"),
        (scaled_dot(), "f8e4m3fn[8,64] | f8e4m3fn[64,4] | f8e8m0fnu[8,3] | f8e8m0fnu[2,4]", "", "H0305 operand 2"),
        (scaled_dot(), "f8e4m3fn[8,64] | f8e4m3fn[64,4] | f8e8m0fnu[8,0] | f8e8m0fnu[2,4]", "", "H0305 operand 2"),
    ]);
}

#[test]
fn ragged_dots() {
    let ragged = |dims: DotDimensionNumbers, lhs_ragged: &[i64], rhs_group: &[i64]| {
        Op::RaggedDot(Box::new(RaggedDot {
            dims,
            lhs_ragged: lhs_ragged.into(),
            rhs_group: rhs_group.into(),
            precision: PrecisionConfig::default(),
        }))
    };
    let rows = || numbers(&[1], &[1], &[], &[]);
    check_table([
        (ragged(rows(), &[0], &[0]), "f32[8,5] | f32[3,5,7] | s32[3]", "", "f32[8,7]"),
        (ragged(numbers(&[1], &[0], &[], &[]), &[1], &[]), "f32[8,5] | f32[5,7] | s32[3]", "", "f32[3,8,7]"),
        (ragged(numbers(&[2], &[1], &[0], &[0]), &[0], &[]), "f32[4,8,5] | f32[4,5,7] | s32[3]", "", "f32[4,8,7]"),
        (ragged(numbers(&[2], &[2], &[0], &[0]), &[1], &[1]), "f32[4,8,5] | f32[4,3,5,7] | s32[4,3]", "", "f32[4,8,7]"),
        (ragged(rows(), &[0], &[0]), "f32[8,5] | f32[3,5,7] | s32[2]", "", "H0305 operand 2"),
        (ragged(rows(), &[0], &[0]), "f32[8,5] | f32[3,5,7] | s32[9,3]", "", "H0305 operand 2"),
        (ragged(rows(), &[0], &[0]), "f32[8,5] | f32[3,5,7] | s32[]", "", "H0306 operand 2"),
        (ragged(rows(), &[0], &[]), "f32[8,5] | f32[3,5,7] | s32[3]", "", "H0309 rhs_group_dims"),
        (ragged(rows(), &[0], &[1]), "f32[8,5] | f32[3,5,7] | s32[3]", "", "H0316 rhs_group_dims"),
        (ragged(rows(), &[2], &[0]), "f32[8,5] | f32[3,5,7] | s32[3]", "", "H0307 lhs_ragged_dims"),
        (ragged(rows(), &[], &[0]), "f32[8,5] | f32[3,5,7] | s32[3]", "", "H0309 lhs_ragged_dims"),
    ]);
}

/// A convolution with labels `b0f_0io->b0f` and a window of size 3: `f` changes what is not to be as usual.
fn convolution(f: impl FnOnce(&mut Convolution)) -> Op {
    let mut conv = Convolution {
        window: Window { dims: [WindowDim::of_size(3)].into_iter().collect() },
        dims: ConvDimensionNumbers {
            input_batch: 0,
            input_spatial: [1].into_iter().collect(),
            input_feature: 2,
            kernel_spatial: [0].into_iter().collect(),
            kernel_input_feature: 1,
            kernel_output_feature: 2,
            output_batch: 0,
            output_spatial: [1].into_iter().collect(),
            output_feature: 2,
        },
        feature_group_count: 1,
        batch_group_count: 1,
        precision: PrecisionConfig::default(),
        kind: ConvolutionKind::Unset,
        lhs_sparsity: None,
        rhs_sparsity: None,
    };
    f(&mut conv);
    Op::Convolution(Box::new(conv))
}

fn window(f: impl FnOnce(&mut WindowDim)) -> Op {
    convolution(|c| f(&mut c.window.dims[0]))
}

#[test]
fn convolutions() {
    const OPERANDS: &str = "f32[2,10,4] | f32[3,4,6]";
    check_table([
        (convolution(|_| ()), OPERANDS, "", "f32[2,8,6]"),
        (convolution(|_| ()), "bf16[2,10,4] | f32[3,4,6]", "f32[2,8,6]", "f32[2,8,6]"),
        (convolution(|_| ()), "f32[<=2,<=10,4] | f32[3,4,6]", "", "f32[<=2,<=8,6]"),
        (convolution(|_| ()), "f32[2,?,4] | f32[3,4,6]", "", "f32[2,?,6]"),
        (convolution(|_| ()), "f32[2,10,4] | f32[3,4,<=6]", "", "H0328 operand 1"),
        (window(|w| (w.padding_low, w.padding_high) = (1, 1)), OPERANDS, "", "f32[2,10,6]"),
        (window(|w| w.stride = 2), OPERANDS, "", "f32[2,4,6]"),
        (window(|w| w.window_dilation = 4), OPERANDS, "", "f32[2,2,6]"),
        (window(|w| w.base_dilation = 2), OPERANDS, "", "f32[2,17,6]"),
        (window(|w| w.padding_low = -10), OPERANDS, "", "f32[2,0,6]"),
        (window(|w| w.padding_low = -11), OPERANDS, "", "H0315 window"),
        (window(|w| w.padding_low = i64::MAX), OPERANDS, "", "H0311 whole"),
        (window(|w| w.base_dilation = i64::MAX), OPERANDS, "", "H0311 whole"),
        (window(|w| w.stride = 0), OPERANDS, "", "H0315 window"),
        (window(|w| w.size = 2), OPERANDS, "", "H0315 window"),
        (window(|w| w.base_dilation = 0), OPERANDS, "", "H0315 window"),
        (convolution(|c| c.window.dims.clear()), OPERANDS, "", "H0309 window"),
        (convolution(|c| c.dims.input_feature = 1), OPERANDS, "", "H0316 dim_labels"),
        (convolution(|c| c.dims.output_batch = 3), OPERANDS, "", "H0316 dim_labels"),
        (convolution(|_| ()), "f32[2,10,4] | f32[3,4]", "", "H0306 operand 1"),
        (convolution(|_| ()), "f32[2,10,5] | f32[3,4,6]", "", "H0317 feature_group_count"),
        (convolution(|c| c.feature_group_count = 2), "f32[2,10,8] | f32[3,4,6]", "", "f32[2,8,6]"),
        (convolution(|c| c.feature_group_count = 4), "f32[2,10,16] | f32[3,4,6]", "", "H0317 feature_group_count"),
        (convolution(|c| c.feature_group_count = 0), OPERANDS, "", "H0317 feature_group_count"),
        (convolution(|c| c.batch_group_count = 2), OPERANDS, "", "f32[1,8,6]"),
        (convolution(|c| c.batch_group_count = 3), OPERANDS, "", "H0317 batch_group_count"),
        (
            convolution(|c| (c.batch_group_count, c.feature_group_count) = (2, 2)),
            "f32[2,10,8] | f32[3,4,6]",
            "",
            "H0317 batch_group_count",
        ),
        (convolution(|_| ()), "f32[2,10,4] | f32[3,4,6] | f32[]", "", "H0301 whole"),
        (convolution(|c| c.kind = ConvolutionKind::Dgrad), "f32[2,8,6] | f32[3,4,6]", "", "f32[2,10,4]"),
        (convolution(|c| c.kind = ConvolutionKind::Wgrad), "f32[2,10,4] | f32[2,8,6]", "", "f32[3,4,6]"),
        (convolution(|c| c.kind = ConvolutionKind::Wgrad), "f32[2,10,4] | f32[3,8,6]", "", "H0305 operand 1"),
    ]);
}

#[test]
fn fourier_transforms() {
    let fft = |kind, length: &[i64]| Op::Fft { kind, length: length.into() };
    check_table([
        (fft(FftType::Fft, &[8]), "c64[2,8]", "", "c64[2,8]"),
        (fft(FftType::Ifft, &[2, 8]), "c128[2,8]", "", "c128[2,8]"),
        (fft(FftType::Fft, &[0]), "c64[2,8]", "", "c64[2,8]"),
        (fft(FftType::Fft, &[8]), "f32[2,8]", "", "H0303 operand 0"),
        (fft(FftType::Rfft, &[8]), "f32[2,8]", "", "c64[2,5]"),
        (fft(FftType::Rfft, &[7]), "f64[2,7]", "", "c128[2,4]"),
        (fft(FftType::Rfft, &[0]), "f32[2,0]", "", "c64[2,0]"),
        (fft(FftType::Rfft, &[8]), "c64[2,8]", "", "H0303 operand 0"),
        (fft(FftType::Rfft, &[9]), "f32[2,8]", "", "H0305 fft_length"),
        (fft(FftType::Irfft, &[8]), "c64[2,5]", "", "f32[2,8]"),
        (fft(FftType::Irfft, &[4, 8]), "c64[4,5]", "", "f32[4,8]"),
        (fft(FftType::Irfft, &[10]), "c64[2,5]", "", "H0305 fft_length"),
        (fft(FftType::Fft, &[1, 2, 8]), "c64[2,8]", "", "H0306 operand 0"),
        (fft(FftType::Fft, &[]), "c64[2,8]", "", "H0309 fft_length"),
        (fft(FftType::Fft, &[1, 1, 1, 1]), "c64[1,1,1,1]", "", "H0309 fft_length"),
        (fft(FftType::Fft, &[-8]), "c64[2,8]", "", "H0324 fft_length"),
    ]);
}

#[test]
fn triangular_systems() {
    let solve =
        |left_side| Op::TriangularSolve { left_side, lower: true, unit_diagonal: false, transpose_a: TransposeA::None };
    check_table([
        (Op::Cholesky { lower: true }, "f32[5,3,3]", "", "f32[5,3,3]"),
        (Op::Cholesky { lower: true }, "f32[3,4]", "", "H0306 operand 0"),
        (Op::Cholesky { lower: true }, "f32[3]", "", "H0306 operand 0"),
        (Op::Cholesky { lower: true }, "s32[3,3]", "", "H0303 operand 0"),
        (solve(true), "f32[3,3] | f32[3,7]", "", "f32[3,7]"),
        (solve(false), "f32[3,3] | f32[7,3]", "", "f32[7,3]"),
        (solve(true), "f32[3,3] | f32[7,3]", "", "H0305 operand 1"),
        (solve(true), "f32[2,3,3] | f32[3,7]", "", "H0305 operand 1"),
        (solve(true), "f32[3,3] | f64[3,7]", "", "H0304 operand 1"),
    ]);
}

#[test]
fn batch_norms() {
    let epsilon = F32Bits::from(0.001);
    let training = |feature_index| Op::BatchNormTraining { epsilon, feature_index };
    let inference = |feature_index| Op::BatchNormInference { epsilon, feature_index };
    let grad = |feature_index| Op::BatchNormGrad { epsilon, feature_index };
    check_table([
        (training(1), "f32[2,<=3] | f32[3] | f32[3]", "", "(f32[2,<=3], f32[<=3], f32[<=3])"),
        (training(2), "f32[2,3] | f32[3] | f32[3]", "", "H0307 feature_index"),
        (training(1), "f32[2,3] | f32[2] | f32[3]", "", "H0305 operand 1"),
        (training(1), "f32[2,3] | f32[3] | f32[3,1]", "", "H0305 operand 2"),
        (training(1), "s32[2,3] | s32[3] | s32[3]", "", "H0303 operand 0"),
        (training(1), "f32[2,3] | s32[3] | f32[3]", "", "H0304 operand 1"),
        (inference(0), "f32[2,3] | f32[2] | f32[2] | f32[2] | f32[2]", "", "f32[2,3]"),
        (grad(1), "f32[2,3] | f32[3] | f32[3] | f32[3] | f32[2,3]", "", "(f32[2,3], f32[3], f32[3])"),
        (grad(1), "f32[2,3] | f32[3] | f32[3] | f32[3] | f32[2,4]", "", "H0305 operand 4"),
        (grad(1), "f32[2,3] | f32[3] | f32[3]", "", "H0301 whole"),
    ]);
}

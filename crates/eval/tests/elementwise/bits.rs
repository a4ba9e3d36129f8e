//! bitcast-convert, reduce-precision and stochastic-convert.

use super::*;

fn bitcast(a: &Array, to: ElementType, dims: &[i64]) -> Array {
    evaluate(Op::BitcastConvert, std::slice::from_ref(a), to, dims)
}

#[test]
fn equal_widths_keep_bits() {
    let a = list(F32, &[1f32, -0.0, f32::INFINITY]);
    assert_eq!(bitcast(&a, U32, &[3]).elements::<u32>(), [0x3f80_0000, 0x8000_0000, 0x7f80_0000]);
    assert_eq!(bitcast(&list(U4, &[7u8, 8, 15]), S4, &[3]).elements::<i8>(), [7, -8, -1]);
    assert_eq!(bitcast(&list(S4, &[7i8, -8, -1]), U4, &[3]).elements::<u8>(), [7, 8, 15]);
    assert_eq!(bitcast(&list(F4e2m1fn, &[9u8]), S4, &[1]).elements::<i8>(), [-7]);
}

#[test]
fn widths_differ() {
    // Low bits come first.
    let a = list(U32, &[0x0403_0201u32, 0xf0e0_d0c0]);
    assert_eq!(bitcast(&a, U8, &[2, 4]).elements::<u8>(), [1, 2, 3, 4, 0xc0, 0xd0, 0xe0, 0xf0]);
    assert_eq!(bitcast(&a, S16, &[2, 2]).elements::<i16>(), [0x0201, 0x0403, 0xd0c0u16 as i16, 0xf0e0u16 as i16]);
    let bytes = list(U8, &[1u8, 2, 3, 4, 0xc0, 0xd0, 0xe0, 0xf0]).reshaped(&[2, 4]).unwrap();
    assert_eq!(bitcast(&bytes, U32, &[2]).elements::<u32>(), a.elements::<u32>());
    // Two halves of a byte.
    let a = list(U8, &[0x1fu8, 0x8e]);
    assert_eq!(bitcast(&a, S4, &[2, 2]).elements::<i8>(), [-1, 1, -2, -8]);
    assert_eq!(bitcast(&a, U4, &[2, 2]).elements::<u8>(), [15, 1, 14, 8]);
    let halves = list(S4, &[-1i8, 1, -2, -8]).reshaped(&[2, 2]).unwrap();
    assert_eq!(bitcast(&halves, U8, &[2]).elements::<u8>(), [0x1f, 0x8e]);
    let eighths = bitcast(&list(S32, &[0x7654_3210]), S4, &[1, 8]);
    assert_eq!(eighths.elements::<i8>(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(bitcast(&eighths, S32, &[1]).elements::<i32>(), [0x7654_3210]);
    // The whole word of a scalar.
    let a = list(F64, &[1f64]).reshaped(&[]).unwrap();
    assert_eq!(bitcast(&a, U32, &[2]).elements::<u32>(), [0, 0x3ff0_0000]);
}

fn reduce(a: &Array, exponent_bits: i32, mantissa_bits: i32) -> Array {
    let op = Op::ReducePrecision { exponent_bits, mantissa_bits };
    evaluate(op, std::slice::from_ref(a), a.element_type(), a.dims())
}

/// To the bits of bf16 it is a conversion to bf16 and back.
#[test]
fn precision_of_bf16() {
    let x: Vec<f32> = (0..2000u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761))).collect();
    let x: Vec<f32> = x.into_iter().filter(|x| x.is_normal()).collect();
    let a = list(F32, &x);
    for (i, &r) in reduce(&a, 8, 7).elements::<f32>().iter().enumerate() {
        assert_eq!(r.to_bits(), half::bf16::from_f32(x[i]).to_f32().to_bits(), "{}", x[i]);
    }
}

#[test]
fn precision_of_other_formats() {
    let a =
        list(F32, &[1.0f32, 1.0 + 2f32.powi(-11), 1.0 + 3.0 * 2f32.powi(-11), 65504.0, 65520.0, 1e30, -1e30, 1e-10]);
    let r = reduce(&a, 5, 10);
    // Ties go to even; above f16's range is infinity, below its normal range zero.
    let expected = [1.0, 1.0, 1.0 + 2f32.powi(-9), 65504.0, f32::INFINITY, f32::INFINITY, f32::NEG_INFINITY, 0.0];
    assert_eq!(r.elements::<f32>(), expected);
    let special = list(F32, &[f32::NAN, f32::INFINITY, -0.0, f32::NEG_INFINITY]);
    for (e, m) in [(5, 10), (8, 0), (1, 0), (2, 3), (8, 23), (11, 52)] {
        let r = reduce(&special, e, m);
        let r = r.elements::<f32>();
        assert!(r[0].is_nan() && r[1] == f32::INFINITY && r[3] == f32::NEG_INFINITY, "e{e}m{m}: {r:?}");
        assert_eq!(r[2].to_bits(), (-0f32).to_bits(), "e{e}m{m}");
    }
    // Wider than the type changes nothing.
    assert_eq!(reduce(&a, 11, 52).bytes(), a.bytes());
    let a = list(F64, &[std::f64::consts::PI, 1e40]);
    assert_eq!(reduce(&a, 8, 23).elements::<f64>(), [f64::from(std::f32::consts::PI), f64::INFINITY]);
}

#[test]
fn stochastic_rounding() {
    let x = [1.25f32, 1.25, -1.25, -1.25, 2.0, 1e10, -1e10, f32::NAN, 126.5, f32::INFINITY];
    let quarter = 1u32 << 30;
    let random = [quarter - 1, quarter, quarter - 1, quarter, 0, 0, 0, 0, 0, 0];
    let operands = [list(F32, &x), list(U32, &random)];
    let r = evaluate(Op::StochasticConvert, &operands, S8, &[10]);
    assert_eq!(r.elements::<i8>(), [2, 1, -2, -1, 2, 127, -128, 0, 127, 127]);
}

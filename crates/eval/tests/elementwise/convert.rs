//! Conversions between types.

use super::*;
use hloom_eval::ops::elementwise::convert as convert_array;

fn convert(a: &Array, to: ElementType) -> Array {
    if a.element_type() == to {
        return a.clone();
    }
    evaluate(Op::Convert, std::slice::from_ref(a), to, a.dims())
}

fn as_f64(a: &Array) -> Vec<f64> {
    convert_array(a.clone(), F64).unwrap().elements::<f64>().to_vec()
}

fn as_f64_bits(t: ElementType, bits: u16) -> f64 {
    if t == F16 { half::f16::from_bits(bits).to_f64() } else { half::bf16::from_bits(bits).to_f64() }
}

#[test]
fn floats_to_integers_saturate() {
    let x = [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 3.0, 200.7, -200.7, 1e10, -1e10, 1e30, -1e30, f64::INFINITY, f64::NAN];
    for from in [F32, F64] {
        let a = convert_array(list(F64, &x), from).unwrap();
        for to in [S1, S2, S4, S8, S16, S32, S64, U1, U2, U4, U8, U16, U32, U64] {
            let bits = to.bits();
            let (min, max) = if to.is_signed_integer() {
                (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
            } else {
                (0, (1 << bits) - 1)
            };
            let result = convert(&a, to);
            for (i, x) in as_f64(&a).into_iter().enumerate() {
                let expected = if x.is_nan() { 0 } else { (x.trunc() as i128).clamp(min, max) };
                let stored = hloom_eval::scalar::Scalar::load(&result, i).0;
                let low = (expected as u128) & (u128::MAX >> (128 - 8 * to.bytes()));
                assert_eq!(stored, low, "{from} {x} to {to}");
            }
        }
    }
}

#[test]
fn anything_but_zero_is_true() {
    let a = list(F32, &[0f32, -0.0, 0.25, f32::NAN, f32::INFINITY, f32::from_bits(1)]);
    assert_eq!(convert(&a, Pred).bytes(), [0, 0, 1, 1, 1, 1]);
    assert_eq!(convert(&list(S64, &[0i64, 1 << 32, -1]), Pred).bytes(), [0, 1, 1]);
    assert_eq!(convert(&list(S4, &[0i8, -8]), Pred).bytes(), [0, 1]);
    assert_eq!(convert(&list(Pred, &[0u8, 1]), S4).bytes(), [0, 1]);
    assert_eq!(convert(&list(Pred, &[0u8, 1]), F32).elements::<f32>(), [0.0, 1.0]);
}

#[test]
fn integers_wrap() {
    assert_eq!(convert(&list(S32, &[-1i32, 300, i32::MIN]), U8).elements::<u8>(), [255, 44, 0]);
    assert_eq!(convert(&list(S32, &[7i32, 8, -9, 31]), S4).elements::<i8>(), [7, -8, 7, -1]);
    assert_eq!(convert(&list(S32, &[7i32, 16, -1, 31]), U4).elements::<u8>(), [7, 0, 15, 15]);
    assert_eq!(convert(&list(U64, &[u64::MAX, 1 << 63]), S64).elements::<i64>(), [-1, i64::MIN]);
    assert_eq!(convert(&list(S4, &[-8i8, -1]), U32).elements::<u32>(), [(-8i32) as u32, u32::MAX]);
    assert_eq!(convert(&list(S2, &[-2i8, 1]), S64).elements::<i64>(), [-2, 1]);
}

/// Every value of f16 is exact in f32, so back and forth changes nothing; a value halfway between two is a tie.
#[test]
fn f16_and_bf16_round_trip_and_tie_to_even() {
    for t in [F16, Bf16] {
        let codes: Vec<u16> = (0..=u16::MAX).collect();
        let a = list(t, &codes);
        let wide = convert(&a, F32);
        let back = convert(&wide, t);
        let unchanged = |i: usize| back.elements::<u16>()[i] == codes[i] || wide.elements::<f32>()[i].is_nan();
        assert_eq!((0..codes.len()).find(|&i| !unchanged(i)), None, "{t}");
        let nan_kept =
            |i: usize| wide.elements::<f32>()[i].is_nan() == as_f64_bits(t, back.elements::<u16>()[i]).is_nan();
        assert_eq!((0..codes.len()).find(|&i| !nan_kept(i)), None, "{t}");
        // Positive finite neighbours.
        let last = if t == F16 { 0x7bff } else { 0x7f7f };
        let wide = wide.elements::<f32>();
        let middles: Vec<f64> = (0..last).map(|i| (f64::from(wide[i]) + f64::from(wide[i + 1])) / 2.0).collect();
        for (i, &r) in convert(&list(F64, &middles), t).elements::<u16>().iter().enumerate() {
            assert_eq!(usize::from(r), i + (i & 1), "{t}: between {} and {}", wide[i], wide[i + 1]);
        }
    }
}

/// One rounding: 2^53 + 1 and its like would become a tie on the way through f64, and then go the wrong way.
#[test]
fn integers_round_once() {
    // Just above the middle between two neighbours of bf16 (8 bits of precision).
    let x = (1i64 << 62) + (1 << 54) + 1;
    let r = convert(&list(S64, &[x, -x]), Bf16);
    let up = ((1i64 << 62) + (1 << 55)) as f64;
    assert_eq!(as_f64(&r), [up, -up]);
    let exact_tie = (1i64 << 62) + (1 << 54);
    assert_eq!(as_f64(&convert(&list(S64, &[exact_tie]), Bf16)), [(1i64 << 62) as f64]);
    let small = list(S32, &[257i32, -259, (1 << 24) - 1, (1 << 24) + 1, 70_000]);
    let millions = f64::from(1 << 24);
    assert_eq!(as_f64(&convert(&small, Bf16)), [256.0, -260.0, millions, millions, 70_144.0]);
    assert_eq!(as_f64(&convert(&small, F16)), [257.0, -259.0, f64::INFINITY, f64::INFINITY, f64::INFINITY]);
    // f32 has 24 bits.
    let x = (1u64 << 63) + (1 << 39) + 1;
    assert_eq!(convert(&list(U64, &[x]), F32).elements::<f32>(), [((1u64 << 63) + (1 << 40)) as f32]);
    // f64 just above a tie of f16 and of an eight-bit type.
    let above_tie = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
    assert_eq!(as_f64(&convert(&list(F64, &[above_tie]), F16)), [1.0 + 2f64.powi(-10)]);
    let above_tie = 1.0 + 2f64.powi(-4) + 2f64.powi(-40);
    assert_eq!(as_f64(&convert(&list(F64, &[above_tie]), F8e4m3fn)), [1.125]);
}

/// Small types convert by value: all codes to f32 and back.
#[test]
fn small_types_round_trip() {
    for t in ElementType::ALL.into_iter().filter(|t| t.is_small_float()) {
        let codes: Vec<u8> = (0..=(u8::MAX >> (8 - t.bits()))).collect();
        let a = list(t, &codes);
        for through in [F32, F64, Bf16, C64] {
            let wide = convert(&a, through);
            let back =
                if through.is_complex() { convert(&unary(UnaryOp::Real, &wide, F32), t) } else { convert(&wide, t) };
            for (&code, (&r, v)) in codes.iter().zip(back.bytes().iter().zip(as_f64(&a))) {
                assert!(r == code || v.is_nan(), "{t} {code:#x} through {through} is {r:#x}");
            }
        }
    }
}

#[test]
fn complex_numbers() {
    let z = list(C128, &[[1.5f64, -2.0], [f64::NAN, 1e300]]);
    let narrow = convert(&z, C64);
    let narrow = narrow.elements::<[f32; 2]>();
    assert_eq!(narrow[0], [1.5, -2.0]);
    assert!(narrow[1][0].is_nan() && narrow[1][1] == f32::INFINITY);
    assert_eq!(convert(&list(S32, &[-7i32]), C64).elements::<[f32; 2]>(), [[-7.0, 0.0]]);
    // Complex to real is not in the language's verifier everywhere, but dumps have it.
    let real = convert_array(z, F32).unwrap();
    assert!(real.elements::<f32>()[0] == 1.5 && real.elements::<f32>()[1].is_nan());
}

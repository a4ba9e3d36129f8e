//! Every format against a search over its decoded values, and decoding against the definition of
//! the formats written out as arithmetic.

use hloom_numerics::small_float::{BF16_FORMAT, F16_FORMAT};
use hloom_numerics::*;

/// The value of a code by the textbook formula, `None` for NaN.
fn value_by_formula(format: &Format, code: u16) -> Option<f64> {
    let code = code & format.mask();
    let negative = format.signed && code >> (format.exponent_bits + format.mantissa_bits) & 1 == 1;
    let sign = if negative { -1.0 } else { 1.0 };
    let field = (code >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
    let mantissa = code & ((1 << format.mantissa_bits) - 1);
    let top = (1 << format.exponent_bits) - 1;
    let full = (1 << format.mantissa_bits) - 1;
    match format.nan {
        NanKind::Ieee if field == top && mantissa != 0 => return None,
        NanKind::AllOnes if field == top && mantissa == full => return None,
        NanKind::NegativeZero if negative && field == 0 && mantissa == 0 => return None,
        _ => {}
    }
    if format.has_infinity && field == top {
        return Some(sign * f64::INFINITY);
    }
    let fraction = mantissa as f64 / 2f64.powi(format.mantissa_bits as i32);
    Some(if field == 0 && format.has_zero {
        sign * fraction * 2f64.powi(1 - format.bias)
    } else {
        sign * (1.0 + fraction) * 2f64.powi(field as i32 - format.bias)
    })
}

/// Positive finite values of the format, ascending, with their codes.
fn positives(format: &Format) -> Vec<(f64, u16)> {
    let mut values: Vec<_> = (0..=format.mask())
        .filter(|code| code & format.sign_mask() == 0)
        .filter_map(|code| Some((value_by_formula(format, code)?, code)))
        .filter(|(value, _)| value.is_finite())
        .collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    values
}

/// The nearest code by search, for a positive finite value; `None` is beyond the range.
fn nearest(format: &Format, values: &[(f64, u16)], value: f64) -> Option<u16> {
    // Where a value is all hidden bit, it is odd.
    let even = |code: u16| code & 1 == 0 && format.mantissa_bits > 0;
    let above = values.partition_point(|v| v.0 < value);
    if above == 0 {
        return Some(values[0].1);
    }
    let (low, low_code) = values[above - 1];
    let Some(&(high, high_code)) = values.get(above) else {
        // As if one more value stood a step above the greatest. A format with one finite value
        // per exponent doubles.
        let (before, _) = values[above - 2];
        let step = if low == 2.0 * before { low } else { low - before };
        let middle = low + step / 2.0;
        let stays = value < middle || (value == middle && even(low_code));
        return stays.then_some(low_code);
    };
    // Exact: the values have few bits, and `value` lies between them.
    let (below, over) = (value - low, high - value);
    Some(if below < over || (below == over && even(low_code)) { low_code } else { high_code })
}

/// What the format makes of a value, by the rules stated for it and a search.
fn encode_by_search(format: &Format, values: &[(f64, u16)], value: f64) -> u16 {
    let negative = value.is_sign_negative();
    let sign = if negative { format.sign_mask() } else { 0 };
    let nan = format.nan_code(negative);
    if value.is_nan() {
        return nan.unwrap_or(sign ^ format.sign_mask());
    }
    if !format.signed && (negative || value == 0.0) {
        return nan.unwrap();
    }
    let code = if value.is_finite() { nearest(format, values, value.abs()) } else { None };
    match code {
        Some(0) if format.nan == NanKind::NegativeZero => 0,
        Some(code) => sign | code,
        None if format.has_infinity => sign | ((1 << format.exponent_bits) - 1) << format.mantissa_bits,
        None => nan.unwrap_or(sign | values.last().unwrap().1),
    }
}

/// Every value, every midpoint, their neighbours in `f32` and `f64`, and the far ends.
fn interesting(values: &[(f64, u16)]) -> Vec<f64> {
    let greatest = values.last().unwrap().0;
    let mut points = vec![0.0, 1e-45f32 as f64, f64::from_bits(1), 1e-300, f64::MIN_POSITIVE];
    points.extend([f64::INFINITY, f64::NAN, f64::MAX, 1e30, f32::MAX as f64]);
    points.extend((0..64).map(|i| greatest * (1.0 + i as f64 / 64.0)));
    points.push(values[0].0 / 2.0);
    for pair in values.windows(2) {
        points.extend([pair[0].0, (pair[0].0 + pair[1].0) / 2.0]);
    }
    let mut all = Vec::new();
    for point in points {
        all.push(point);
        if point.is_finite() && point > 0.0 {
            let narrow = point as f32;
            all.extend([point.next_up(), point.next_down()]);
            all.extend([narrow.next_up() as f64, narrow.next_down() as f64]);
        }
    }
    let mut state = 1u64;
    for _ in 0..20_000 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let mantissa = 1.0 + (state >> 12) as f64 / (1u64 << 52) as f64;
        all.push(mantissa * 2f64.powi((state % 300) as i32 - 150));
    }
    let negated: Vec<f64> = all.iter().map(|v| -v).collect();
    all.extend(negated);
    all
}

fn check_format(format: &Format) {
    for code in 0..=format.mask() {
        let decoded = format.decode(code);
        match value_by_formula(format, code) {
            Some(value) => assert_eq!(decoded.to_bits(), value.to_bits(), "{format:?} {code:#x}"),
            None => assert!(decoded.is_nan() && format.is_nan(code), "{format:?} {code:#x}"),
        }
        if !decoded.is_nan() {
            assert_eq!(format.encode(decoded), code, "{format:?} {code:#x}");
        }
    }
    let values = positives(format);
    for value in interesting(&values) {
        assert_eq!(format.encode(value), encode_by_search(format, &values, value), "{} of {value:e}", format.name);
    }
}

fn check_type<T: SmallFloat>() {
    check_format(&T::FORMAT);
    for byte in 0..=255u8 {
        let value = T::from_bits(byte);
        let wide = value.to_f64();
        assert_eq!(value.is_nan(), wide.is_nan());
        assert_eq!(value.to_f32().is_nan(), wide.is_nan());
        assert_eq!(value.to_f32().is_sign_negative(), wide.is_sign_negative());
        if !wide.is_nan() {
            assert_eq!(value.to_f32() as f64, wide);
        }
    }
    for value in interesting(&positives(&T::FORMAT)) {
        let narrow = value as f32;
        let subnormal_rounds_up = !T::FORMAT.has_zero && narrow.is_subnormal() && narrow as f64 > 2f64.powi(-127);
        let expected = match subnormal_rounds_up {
            true => 1,
            false => T::from_f64(narrow as f64).to_bits(),
        };
        assert_eq!(T::from_f32(narrow).to_bits(), expected, "{narrow:e}");
    }
}

#[test]
fn all_small_formats() {
    check_type::<F8E5M2>();
    check_type::<F8E4M3>();
    check_type::<F8E4M3FN>();
    check_type::<F8E4M3B11FNUZ>();
    check_type::<F8E3M4>();
    check_type::<F8E5M2FNUZ>();
    check_type::<F8E4M3FNUZ>();
    check_type::<F8E8M0FNU>();
    check_type::<F4E2M1FN>();
    check_type::<F6E2M3FN>();
    check_type::<F6E3M2FN>();
}

#[test]
fn sixteen_bit_formats() {
    check_format(&F16_FORMAT);
    check_format(&BF16_FORMAT);
    for code in 0..=u16::MAX {
        let (half, brain) = (f16::from_bits(code), bf16::from_bits(code));
        if !half.is_nan() {
            assert_eq!(F16_FORMAT.decode(code), half.to_f64());
            assert_eq!(f16_from_f64(half.to_f64()), half);
        }
        if !brain.is_nan() {
            assert_eq!(BF16_FORMAT.decode(code), brain.to_f64());
            assert_eq!(bf16_from_f64(brain.to_f64()), brain);
        }
    }
}

#[test]
fn one_rounding_from_f64() {
    // Just above the middle of two neighbours, by less than f32 can hold: going through f32 would
    // land on the middle and then on the even neighbour below.
    let trap = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
    assert_eq!(f16_from_f64(trap).to_f64(), 1.0 + 2f64.powi(-10));
    let trap = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
    assert_eq!(bf16_from_f64(trap).to_f64(), 1.0 + 2f64.powi(-7));
    let trap = 1.0 + 2f64.powi(-4) + 2f64.powi(-40);
    assert_eq!(F8E4M3FN::from_f64(trap).to_f64(), 1.125);
    assert_eq!(F8E4M3FN::from_f32(trap as f32).to_f64(), 1.0);
}

#[test]
fn named_values() {
    assert_eq!(F8E5M2::MAX.to_f32(), 57344.0);
    assert_eq!(F8E4M3::MAX.to_f32(), 240.0);
    assert_eq!(F8E4M3FN::MAX.to_f32(), 448.0);
    assert_eq!(F8E4M3B11FNUZ::MAX.to_f32(), 30.0);
    assert_eq!(F8E3M4::MAX.to_f32(), 15.5);
    assert_eq!(F8E5M2FNUZ::MAX.to_f32(), 57344.0);
    assert_eq!(F8E4M3FNUZ::MAX.to_f32(), 240.0);
    assert_eq!(F8E8M0FNU::MAX.to_f64(), 2f64.powi(127));
    assert_eq!(F4E2M1FN::MAX.to_f32(), 6.0);
    assert_eq!(F6E2M3FN::MAX.to_f32(), 7.5);
    assert_eq!(F6E3M2FN::MAX.to_f32(), 28.0);
    assert_eq!(F8E4M3FN::MIN.to_f32(), -448.0);
    assert_eq!(F8E8M0FNU::MIN.to_f64(), 2f64.powi(-127));
    assert_eq!(F8E4M3::MIN_POSITIVE.to_f64(), 2f64.powi(-6));
    assert_eq!(F8E4M3::MIN_SUBNORMAL.to_f64(), 2f64.powi(-9));
    assert_eq!(F8E8M0FNU::MIN_POSITIVE, F8E8M0FNU(0));
    assert_eq!(F8E5M2::NAN, Some(F8E5M2(0x7e)));
    assert_eq!(F8E4M3FN::NAN, Some(F8E4M3FN(0x7f)));
    assert_eq!(F8E4M3FNUZ::NAN, Some(F8E4M3FNUZ(0x80)));
    assert_eq!(F8E8M0FNU::NAN, Some(F8E8M0FNU(0xff)));
    assert_eq!((F4E2M1FN::NAN, F4E2M1FN::INFINITY), (None, None));
    assert_eq!(F8E5M2::INFINITY, Some(F8E5M2(0x7c)));
    assert_eq!(F8E4M3FN::INFINITY, None);
}

#[test]
fn what_a_format_lacks() {
    assert_eq!(F8E4M3FN::from_f32(464.0), F8E4M3FN::MAX);
    assert_eq!(F8E4M3FN::from_f32(464.0f32.next_up()), F8E4M3FN(0x7f));
    assert_eq!(F8E4M3FN::from_f32(f32::NEG_INFINITY), F8E4M3FN(0xff));
    assert_eq!(F8E4M3FNUZ::from_f32(-0.0), F8E4M3FNUZ(0));
    assert_eq!(F8E4M3FNUZ::from_f32(-1e-30), F8E4M3FNUZ(0));
    assert_eq!(F8E8M0FNU::from_f32(0.0), F8E8M0FNU(0xff));
    assert_eq!(F8E8M0FNU::from_f32(-1.0), F8E8M0FNU(0xff));
    assert_eq!(F8E8M0FNU::from_f32(1e-45), F8E8M0FNU(0));
    assert_eq!(F8E8M0FNU::from_f32(f32::MAX), F8E8M0FNU(0xff));
    let above_smallest = 1.1 * 2f64.powi(-127);
    assert_eq!(F8E8M0FNU::from_f64(above_smallest), F8E8M0FNU(0));
    assert_eq!(F8E8M0FNU::from_f32(above_smallest as f32), F8E8M0FNU(1));
    assert_eq!(F8E8M0FNU::from_f32(1.5), F8E8M0FNU(128));
    assert_eq!(F8E8M0FNU::from_f32(3.0), F8E8M0FNU(129));
    assert_eq!(F8E8M0FNU::from_f64(1.5 * 2f64.powi(127)), F8E8M0FNU(0xff));
    assert_eq!(F4E2M1FN::from_f32(f32::NEG_INFINITY), F4E2M1FN(0xf));
    assert_eq!(F4E2M1FN::from_f32(f32::NAN.copysign(1.0)), F4E2M1FN(0x8));
    assert_eq!(F4E2M1FN::from_f32(f32::NAN.copysign(-1.0)), F4E2M1FN(0x0));
    assert!(F8E4M3FNUZ(0x80).to_f32().is_sign_negative());
}

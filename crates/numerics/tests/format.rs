//! Printing against a reference that takes its digits from the standard library and lays them out
//! character by character, and against the values themselves.

use hloom_numerics::format::*;
use hloom_numerics::parse::parse_float;
use hloom_numerics::*;

/// `%.{precision}g` of a finite value, the plain way.
fn reference_g(value: f64, precision: usize) -> String {
    let precision = precision.max(1);
    let scientific = format!("{:.*e}", precision - 1, value);
    let (mantissa, exponent) = scientific.split_once('e').unwrap();
    let exponent: i32 = exponent.parse().unwrap();
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if value != 0.0 && (exponent < -4 || exponent >= precision as i32) {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
    } else {
        let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
        trim(&format!("{value:.decimals$}"))
    }
}

fn g(value: f64, precision: usize) -> String {
    let mut out = String::from(">");
    format_g(&mut out, value, precision);
    out.strip_prefix('>').unwrap().to_string()
}

fn f32_text(value: f32) -> String {
    let mut out = String::new();
    write_f32(&mut out, value);
    out
}

fn f64_text(value: f64) -> String {
    let mut out = String::new();
    write_f64(&mut out, value);
    out
}

fn check_f32(value: f32) {
    let text = f32_text(value);
    let short = reference_g(value as f64, 6);
    if short.parse() == Ok(value) {
        assert_eq!(text, short);
    } else {
        assert_eq!(text, reference_g(value as f64, 9));
    }
    assert_eq!(parse_float::<f32>(&text).unwrap().to_bits(), value.to_bits());
}

fn check_f64(value: f64) {
    let text = f64_text(value);
    let short = reference_g(value, 15);
    if short.parse() == Ok(value) {
        assert_eq!(text, short);
    } else {
        assert_eq!(text, reference_g(value, 17));
    }
    assert_eq!(parse_float::<f64>(&text).unwrap().to_bits(), value.to_bits());
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn general_form() {
    for (value, precision, text) in [
        (1e-5, 6, "1e-05"),
        (0.0001, 6, "0.0001"),
        (100000.0, 6, "100000"),
        (1e6, 6, "1e+06"),
        (999999.5, 6, "1e+06"),
        (0.5, 6, "0.5"),
        (2.5, 1, "2"),
        (3.5, 1, "4"),
        (9.5, 1, "1e+01"),
        (0.125, 2, "0.12"),
        (-0.0, 6, "-0"),
        (0.0, 0, "0"),
        (1e100, 17, "1e+100"),
        (1.5e300, 3, "1.5e+300"),
        (12.0, 1, "1e+01"),
        (120.0, 3, "120"),
        (65280.0, 4, "6.528e+04"),
        (f64::INFINITY, 3, "inf"),
        (f64::NEG_INFINITY, 3, "-inf"),
    ] {
        assert_eq!(g(value, precision), text);
    }
    assert_eq!(g(0.1, 30), "0.100000000000000005551115123126");
}

#[test]
fn nan_text() {
    assert_eq!(f32_text(f32::from_bits(0x7fc0_0000)), "nan");
    assert_eq!(f32_text(f32::from_bits(0xffc0_0000)), "-nan");
    assert_eq!(f32_text(f32::from_bits(0x7f80_0007)), "nan(0x7)");
    assert_eq!(f32_text(f32::from_bits(0xffc0_0001)), "-nan(0x400001)");
    assert_eq!(f64_text(f64::from_bits(0x7ff8_0000_0000_0000)), "nan");
    assert_eq!(f64_text(f64::from_bits(0xfff0_0000_0000_000a)), "-nan(0xa)");
    let text = |write: &dyn Fn(&mut String)| {
        let mut out = String::new();
        write(&mut out);
        out
    };
    assert_eq!(text(&|o| write_f16(o, f16::from_bits(0x7e00))), "nan");
    assert_eq!(text(&|o| write_f16(o, f16::from_bits(0xfe01))), "-nan(0x201)");
    assert_eq!(text(&|o| write_bf16(o, bf16::from_bits(0x7fc0))), "nan");
    assert_eq!(text(&|o| write_bf16(o, bf16::from_bits(0x7f81))), "nan(0x1)");
    assert_eq!(text(&|o| write_small_float(o, F8E5M2(0x7e))), "nan");
    assert_eq!(text(&|o| write_small_float(o, F8E5M2(0xfd))), "-nan(0x1)");
    assert_eq!(text(&|o| write_small_float(o, F8E4M3FN(0x7f))), "nan");
    assert_eq!(text(&|o| write_small_float(o, F8E4M3FNUZ(0x80))), "-nan");
    assert_eq!(text(&|o| write_small_float(o, F8E8M0FNU(0xff))), "nan");
}

#[test]
fn known_f32() {
    for (value, text) in [
        (123456.7f32, "123456.703"),
        (0.1, "0.1"),
        (-0.0, "-0"),
        (1e-5, "1e-05"),
        (16777216.0, "16777216"),
        (1e6, "1e+06"),
        (1.0 / 3.0, "0.333333343"),
        (f32::MAX, "3.40282347e+38"),
        (f32::MIN_POSITIVE, "1.17549435e-38"),
        (f32::NEG_INFINITY, "-inf"),
        (-2.0, "-2"),
    ] {
        assert_eq!(f32_text(value), text);
    }
}

#[test]
fn f32_agrees_with_reference() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..100_000 {
        let value = f32::from_bits(random(&mut state) as u32);
        if value.is_finite() {
            check_f32(value);
        }
        // The range of most constants, and short decimals in it.
        check_f32((random(&mut state) as i32) as f32 / 1e9);
        check_f32(((random(&mut state) % 2_000_001) as f32 - 1e6) / 1000.0);
    }
    for exponent in -149..=127 {
        let power = 2f64.powi(exponent) as f32;
        for value in [power, power.next_up(), power.next_down()] {
            check_f32(value);
        }
    }
    for exponent in -45..=38 {
        let power: f32 = format!("1e{exponent}").parse().unwrap();
        for value in [power, power.next_up(), power.next_down()] {
            check_f32(value);
        }
    }
}

#[test]
fn f64_agrees_with_reference() {
    let mut state = 0x2545_f491_4f6c_dd1d;
    for _ in 0..50_000 {
        let value = f64::from_bits(random(&mut state));
        if value.is_finite() {
            check_f64(value);
        }
        check_f64((random(&mut state) as i64) as f64 / 1e18);
        check_f64((random(&mut state) % 2_000_001) as f64 / 1000.0);
        let scale = 10f64.powi((random(&mut state) % 80) as i32 - 40);
        check_f64((random(&mut state) >> 20) as f64 * scale);
    }
    for exponent in -1074..=1023 {
        let power = 2f64.powi(exponent);
        for value in [power, power.next_up(), power.next_down()] {
            check_f64(value);
        }
    }
    for exponent in -323..=308 {
        let power: f64 = format!("1e{exponent}").parse().unwrap();
        for value in [power, power.next_up(), power.next_down()] {
            check_f64(value);
        }
    }
}

#[test]
fn every_precision_agrees_with_reference() {
    let mut state = 88172645463325252;
    for round in 0..20_000 {
        let bits = random(&mut state);
        let value = match round % 4 {
            0 => f64::from_bits(bits),
            1 => (bits as i64 >> 40) as f64 / 64.0,
            2 => (bits % 10_000_000) as f64,
            _ => f32::from_bits(bits as u32) as f64,
        };
        if value.is_finite() {
            for precision in 0..=20 {
                assert_eq!(g(value, precision), reference_g(value, precision));
            }
        }
    }
}

#[test]
fn sixteen_bit_types_exhaustively() {
    for code in 0..=u16::MAX {
        let (half, brain) = (f16::from_bits(code), bf16::from_bits(code));
        let mut text = String::new();
        write_f16(&mut text, half);
        if half.is_finite() {
            assert_eq!(text, reference_g(half.to_f64(), 5));
        }
        assert_eq!(parse_float::<f16>(&text).unwrap().to_bits(), code);
        text.clear();
        write_bf16(&mut text, brain);
        if brain.is_finite() {
            assert_eq!(text, reference_g(brain.to_f64(), 4));
        }
        assert_eq!(parse_float::<bf16>(&text).unwrap().to_bits(), code);
    }
}

fn check_small<T: SmallFloat>(digits: usize) {
    for byte in 0..=T::FORMAT.mask() as u8 {
        let value = T::from_bits(byte);
        let mut text = String::new();
        write_small_float(&mut text, value);
        if value.to_f64().is_finite() {
            assert_eq!(text, reference_g(value.to_f64(), digits));
        }
        assert_eq!(parse_float::<T>(&text).unwrap().to_bits(), byte, "{text}");
    }
}

#[test]
fn small_types_exhaustively() {
    check_small::<F8E5M2>(2);
    check_small::<F8E4M3>(3);
    check_small::<F8E4M3FN>(3);
    check_small::<F8E4M3B11FNUZ>(3);
    check_small::<F8E3M4>(3);
    check_small::<F8E5M2FNUZ>(2);
    check_small::<F8E4M3FNUZ>(3);
    check_small::<F8E8M0FNU>(2);
    check_small::<F4E2M1FN>(2);
    check_small::<F6E2M3FN>(3);
    check_small::<F6E3M2FN>(2);
}

//! Reading float tokens: grammar, range and NaN payloads.

use hloom_numerics::parse::*;
use hloom_numerics::*;

#[test]
fn grammar() {
    for (token, value) in [
        ("1", 1.0),
        ("-1.5", -1.5),
        (".5", 0.5),
        ("2.", 2.0),
        ("1e3", 1000.0),
        ("1.E-2", 0.01),
        ("-.5e+1", -5.0),
        ("inf", f64::INFINITY),
        ("-inf", f64::NEG_INFINITY),
    ] {
        assert_eq!(parse_float::<f64>(token), Ok(value), "{token}");
    }
    assert!(parse_float::<f32>("-0").unwrap().is_sign_negative());
    for token in [
        "", "-", "+1", "--1", "-+1", "e5", ".", "1e", "1x", "Inf", "infinity", "NaN", "nanx", "1 ", "nan()", "nan(7)",
        "nan(0x)", "nan(0xg)", "nan(0x7", "-.", "0x10", "1_0", "é",
    ] {
        assert_eq!(parse_float::<f64>(token), Err(ParseError::Malformed), "{token}");
    }
}

#[test]
fn range() {
    let out = |type_name| ParseError::OutOfRange { type_name };
    assert_eq!(parse_float::<f16>("65519"), Ok(f16::MAX));
    assert_eq!(parse_float::<f16>("65520"), Err(out("f16")));
    assert_eq!(parse_float::<F8E4M3FN>("464"), Ok(F8E4M3FN::MAX));
    assert_eq!(parse_float::<F8E4M3FN>("500"), Err(out("f8e4m3fn")));
    assert_eq!(parse_float::<F8E4M3FNUZ>("-1e9"), Err(out("f8e4m3fnuz")));
    assert_eq!(parse_float::<f32>("3.4028235e38"), Ok(f32::MAX));
    assert_eq!(parse_float::<f32>("3.5e38"), Err(out("f32")));
    assert_eq!(parse_float::<bf16>("3.4e38"), Err(out("bf16")));
    assert_eq!(parse_float::<f64>("1e400"), Err(out("f64")));
    assert_eq!(parse_float::<f32>("1e-400"), Ok(0.0));
    assert_eq!(parse_float::<F8E8M0FNU>("0"), Err(out("f8e8m0fnu")));
    assert_eq!(parse_float::<F8E8M0FNU>("-1"), Err(out("f8e8m0fnu")));
    // These saturate, so nothing is out of range.
    assert_eq!(parse_float::<F4E2M1FN>("500"), Ok(F4E2M1FN::MAX));
    assert_eq!(parse_float::<F4E2M1FN>("-inf"), Ok(F4E2M1FN::MIN));
    // An infinity that the token asks for is not out of range.
    assert_eq!(parse_float::<f32>("inf"), Ok(f32::INFINITY));
    assert_eq!(parse_float::<F8E4M3FN>("inf"), Ok(F8E4M3FN(0x7f)));
}

#[test]
fn nan_payloads() {
    let bits = |token| parse_float::<f32>(token).map(f32::to_bits);
    assert_eq!(bits("nan"), Ok(0x7fc0_0000));
    assert_eq!(bits("-nan"), Ok(0xffc0_0000));
    assert_eq!(bits("nan(0x7)"), Ok(0x7f80_0007));
    assert_eq!(bits("-nan(0x7fffff)"), Ok(0xffff_ffff));
    assert_eq!(bits("nan(0x0)"), Err(ParseError::ZeroPayload));
    assert_eq!(
        bits("nan(0x800000)").unwrap_err().to_string(),
        "NaN payload 0x800000 is out of range for f32, whose greatest is 0x7fffff"
    );
    assert!(bits("nan(0xfffffffffffffffffffff)").is_err());
    let wide = parse_float::<f64>("nan(0xfffffffffffff)").unwrap();
    assert_eq!(wide.to_bits(), 0x7fff_ffff_ffff_ffff);
    assert_eq!(parse_float::<F8E5M2>("nan(0x1)"), Ok(F8E5M2(0x7d)));
    assert!(parse_float::<F8E5M2>("nan(0x4)").is_err());
    for error in [
        parse_float::<F8E4M3FN>("nan(0x1)").err(),
        parse_float::<F8E4M3B11FNUZ>("nan(0x1)").err(),
        parse_float::<F8E8M0FNU>("nan(0x1)").err(),
    ] {
        assert!(matches!(error, Some(ParseError::NoPayload { .. })));
    }
    assert_eq!(parse_float::<F8E4M3FN>("-nan"), Ok(F8E4M3FN(0xff)));
    assert_eq!(parse_float::<F8E4M3FNUZ>("nan"), Ok(F8E4M3FNUZ(0x80)));
    assert!(matches!(parse_float::<F4E2M1FN>("nan"), Err(ParseError::NoNan { .. })));
}

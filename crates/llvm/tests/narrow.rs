//! Types of a byte that no machine computes with: every value of each of them, and the numbers around which conversions
//! to them change, against the evaluator and bit by bit.

mod common;

use common::{check_all, check_mild};
use hloom_ir::ElementType;
use hloom_loops::small_float::format;

fn small_floats() -> impl Iterator<Item = ElementType> {
    ElementType::ALL.into_iter().filter(|t| t.is_small_float())
}

fn narrow_integers() -> impl Iterator<Item = ElementType> {
    ElementType::ALL.into_iter().filter(|t| t.is_integer() && t.is_sub_byte())
}

/// A fusion of `body`, whose parameter `x` has the type `from` and elements made of `bits`, and whose root is `r`.
fn fused(from: &str, bits: &[u64], body: &str, to: &str) -> String {
    let n = bits.len();
    let unsigned = match from {
        "f32" | "s32" | "u32" => "u32",
        _ => "u64",
    };
    let list: Vec<String> = bits.iter().map(u64::to_string).collect();
    let cast = if unsigned == from { "copy" } else { "bitcast-convert" };
    format!(
        "HloModule m\nbody {{\n  b = {unsigned}[{n}] parameter(0)\n  x = {from}[{n}] {cast}(b)\n  {body}\n}}\n\
         ENTRY e {{\n  b = {unsigned}[{n}] constant({{{}}})\n  \
         ROOT f = {to}[{n}] fusion(b), kind=kLoop, calls=body\n}}\n",
        list.join(", ")
    )
}

/// The values of the type, what lies between two of them, and what lies next to these; and values beyond all.
fn around(t: ElementType) -> Vec<f64> {
    let format = format(t).expect("a small float");
    let mut values: Vec<f64> = (0..=255u16).map(|c| format.decode(c)).filter(|v| v.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let mut all = vec![f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e-45, -1e-45, 1e-30, 3e38, -3e38];
    for pair in values.windows(2) {
        all.extend([pair[0], (pair[0] + pair[1]) / 2.0]);
    }
    // Just as far beyond the last as the middle of the next step would be, and further.
    for last in [values[0], values[values.len() - 1]] {
        all.extend([1.0, 1.01, 1.03, 1.0625, 1.07, 1.125, 1.2, 1.25, 1.4, 1.5, 1.75, 2.0, 4.0].map(|f| f * last));
    }
    all
}

#[test]
fn every_code_is_the_f32_it_stands_for() {
    for t in small_floats() {
        // Codes beyond the type's bits are no elements.
        let n = 1 << t.bits();
        // There are no integers of six bits.
        let unsigned = match t.bits() {
            8 => "u8",
            4 => "u4",
            _ => continue,
        };
        for wide in ["f32", "f64"] {
            let result = if wide == "f32" { "u32" } else { "u64" };
            check_all(
                &format!(
                    "HloModule m\nbody {{\n  i = s32[{n}] iota(), iota_dimension=0\n  u = {unsigned}[{n}] convert(i)\n  \
                     x = {t}[{n}] bitcast-convert(u)\n  w = {wide}[{n}] convert(x)\n  \
                     ROOT r = {result}[{n}] bitcast-convert(w)\n}}\n\
                     ENTRY e {{\n  ROOT f = {result}[{n}] fusion(), kind=kLoop, calls=body\n}}\n"
                ),
                1,
            );
        }
    }
}

#[test]
fn floats_are_rounded_once_at_every_boundary() {
    for t in small_floats() {
        // As f32 again, so that no two results of one number are taken for the same but NaNs.
        let body = format!("c = {t}[N] convert(x)\n  w = f32[N] convert(c)\n  ROOT r = u32[N] bitcast-convert(w)");
        let mut singles = vec![u64::from(f32::NAN.to_bits()), u64::from((-f32::NAN).to_bits()), 1, 0x8000_0001];
        let mut doubles = vec![f64::NAN.to_bits(), (-f64::NAN).to_bits(), 1, 1 << 63 | 1];
        for value in around(t) {
            let (single, double) = (u64::from((value as f32).to_bits()), value.to_bits());
            singles.extend([single, single.saturating_add(1), single.saturating_sub(1)]);
            doubles.extend([double, double.saturating_add(1), double.saturating_sub(1)]);
        }
        let of = |n: usize| body.replace('N', &n.to_string());
        check_all(&fused("f32", &singles, &of(singles.len()), "u32"), 2);
        check_all(&fused("f64", &doubles, &of(doubles.len()), "u32"), 3);
    }
}

#[test]
fn integers_and_truths_become_small_floats_and_back() {
    for t in small_floats() {
        for from in ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "pred", "s4", "u2", "bf16", "f16", "c64"] {
            for (x, y) in [(from.to_string(), t.to_string()), (t.to_string(), from.to_string())] {
                if y == "c64" || x == "c64" && from != "c64" {
                    continue;
                }
                let text = format!(
                    "HloModule m\nENTRY e {{\n  x = {x}[300] parameter(0)\n  ROOT r = {y}[300] convert(x)\n}}\n"
                );
                check_all(&text, 4);
            }
        }
        // Between two floats of few bits, and farther from both than f64 can tell.
        let bits = [1u64 << 62, 3 << 61, (3 << 61) + 1, (3 << 61) - 1, (3 << 60) + 1, u64::MAX, u64::MAX >> 1, 1 << 63];
        for from in ["s64", "u64"] {
            for to in [t.to_string(), "bf16".into(), "f16".into()] {
                let body =
                    format!("c = {to}[8] convert(x)\n  w = f32[8] convert(c)\n  ROOT r = u32[8] bitcast-convert(w)");
                check_all(&fused(from, &bits, &body, "u32"), 5);
            }
        }
    }
}

/// A fusion of all pairs of values of the type, read from bytes.
fn pairs(t: ElementType, operation: &str, to: &str) -> String {
    let n = 1 << t.bits().min(8);
    let made = |name: &str, d: i64| {
        format!("i{name} = s32[{n},{n}] iota(), iota_dimension={d}\n  {name} = {t}[{n},{n}] convert(i{name})\n  ")
    };
    format!(
        "HloModule m\nbody {{\n  {}{}ROOT r = {to}[{n},{n}] {operation}\n}}\n\
         ENTRY e {{\n  ROOT f = {to}[{n},{n}] fusion(), kind=kLoop, calls=body\n}}\n",
        made("x", 0),
        made("y", 1)
    )
}

#[test]
fn narrow_integers_wrap_in_every_operation() {
    for t in narrow_integers() {
        let name = t.to_string();
        for op in [
            "add",
            "subtract",
            "multiply",
            "divide",
            "remainder",
            "power",
            "maximum",
            "minimum",
            "and",
            "or",
            "xor",
            "shift-left",
            "shift-right-logical",
            "shift-right-arithmetic",
        ] {
            check_all(&pairs(t, &format!("{op}(x, y)"), &name), 6);
        }
        // These two are for numbers with a sign only.
        let signed = ["abs", "sign"].into_iter().filter(|_| t.is_signed_integer());
        for op in ["negate", "not", "popcnt", "count-leading-zeros"].into_iter().chain(signed) {
            check_all(&pairs(t, &format!("{op}(x)"), &name), 7);
        }
        for direction in ["EQ", "LT", "GE"] {
            check_all(&pairs(t, &format!("compare(x, y), direction={direction}"), "pred"), 8);
        }
        for to in ["s8", "u8", "s64", "f32", "pred", "f8e5m2", "s2", "u1"] {
            check_all(&pairs(t, "convert(x)", to), 9);
        }
        let text =
            format!("HloModule m\nENTRY e {{\n  x = f32[300] parameter(0)\n  ROOT r = {t}[300] convert(x)\n}}\n");
        check_all(&text, 10);
    }
}

#[test]
fn small_floats_are_rounded_in_every_operation() {
    for t in small_floats() {
        for op in ["add", "subtract", "multiply", "divide", "maximum", "minimum"] {
            let text = format!(
                "HloModule m\nENTRY e {{\n  x = {t}[500] parameter(0)\n  y = {t}[500] parameter(1)\n  \
                 ROOT r = {t}[500] {op}(x, y)\n}}\n"
            );
            check_all(&text, 11);
        }
        for op in ["abs", "negate", "floor", "sqrt", "sign", "real", "imag"] {
            let text =
                format!("HloModule m\nENTRY e {{\n  x = {t}[300] parameter(0)\n  ROOT r = {t}[300] {op}(x)\n}}\n");
            check_all(&text, 12);
        }
        for kind in ["FLOAT", "TOTALORDER"] {
            let text = format!(
                "HloModule m\nENTRY e {{\n  x = {t}[500] parameter(0)\n  y = {t}[500] parameter(1)\n  \
                 ROOT r = pred[500] compare(x, y), direction=LT, type={kind}\n}}\n"
            );
            check_all(&text, 13);
        }
        let text = format!(
            "HloModule m\nENTRY e {{\n  x = {t}[300] parameter(0)\n  \
             ROOT r = {t}[300] reduce-precision(x), exponent_bits=3, mantissa_bits=1\n}}\n"
        );
        check_all(&text, 14);
    }
}

#[test]
fn reductions_round_at_each_step_and_in_order() {
    for t in ["f8e5m2", "f8e4m3fn", "f4e2m1fn", "f8e4m3b11fnuz", "s4", "u2", "s1"] {
        for op in ["add", "multiply", "maximum", "minimum"] {
            for (dims, reduced, kept) in [("7,70", "1", "7"), ("70,7", "0", "7"), ("300", "0", "")] {
                let text = format!(
                    "HloModule m\nf {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT r = {t}[] {op}(a, b)\n}}\n\
                     ENTRY e {{\n  x = {t}[{dims}] parameter(0)\n  z = {t}[] parameter(1)\n  \
                     ROOT r = {t}[{kept}] reduce(x, z), dimensions={{{reduced}}}, to_apply=f\n}}\n"
                );
                check_mild(&text, 15);
            }
        }
    }
}

#[test]
fn bytes_are_moved_as_they_are() {
    for t in ["f8e5m2", "f8e4m3fnuz", "f6e3m2fn", "f8e8m0fnu", "s4", "u1"] {
        for (operation, to) in [
            ("transpose(x), dimensions={1,0}", "33,7"),
            ("reverse(x), dimensions={1}", "7,33"),
            ("slice(x), slice={[1:6],[2:31:3]}", "5,10"),
            ("pad(x, z), padding=1_2_1x-1_3", "16,35"),
            ("concatenate(x, x), dimensions={0}", "14,33"),
            ("broadcast(z), dimensions={}", "7,33"),
        ] {
            let text = format!(
                "HloModule m\nENTRY e {{\n  x = {t}[7,33] parameter(0)\n  z = {t}[] parameter(1)\n  \
                 ROOT r = {t}[{to}] {operation}\n}}\n"
            );
            check_all(&text, 16);
        }
    }
}

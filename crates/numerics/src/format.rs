//! Floats as text, as XLA prints them.
//!
//! [`format_g`] is C's `%.Ng`. The `write_*` functions choose N by the type, as XLA does: `f32` and
//! `f64` take 6 and 15 digits where those read back as the same value, else 9 and 17; the others
//! always take a fixed number. NaNs with a payload other than the default print it: `nan(0x7)`.
//!
//! Invariants: everything is appended to the buffer and nothing else in it changes; what is
//! written for `f32` and `f64` reads back as the same value, bit for bit.

use crate::decimal::{Binary, Digits, MAX_FAST_DIGITS, digits_by_std, round_digits};
use crate::small_float::{BF16_FORMAT, F16_FORMAT, Format, SmallFloat};
use half::{bf16, f16};

/// Appends `value` as C's `%.{precision}g`: at most `precision` significant digits (0 counts as
/// 1), without trailing zeros, in scientific form if the exponent is below −4 or at least the
/// precision. NaN prints as `nan` or `-nan`.
pub fn format_g(out: &mut String, value: f64, precision: usize) {
    let precision = precision.max(1);
    if write_special(out, value) || write_small_integer(out, value, precision) {
        return;
    }
    if precision <= MAX_FAST_DIGITS
        && let Some(digits) = round_digits(Binary::from_f64(value).reduced(), precision)
    {
        return write_digits(out, value.is_sign_negative(), digits, precision);
    }
    write_by_std(out, value, precision);
}

/// Appends an `f32` as XLA prints it.
pub fn write_f32(out: &mut String, value: f32) {
    if value.is_nan() {
        let bits = value.to_bits();
        return write_nan(out, bits >> 31 != 0, (bits & 0x7f_ffff) as u64, 23);
    }
    let wide = value as f64;
    if write_special(out, wide) || write_small_integer(out, wide, 6) {
        return;
    }
    let binary = Binary::from_f32(value);
    let Some(long) = round_digits(binary, 9) else {
        return write_shorter_by_std(out, wide, 6, 9, |text| text.parse() == Ok(value));
    };
    // Half a unit in the last place of a normal f32 is at most 2^-24 of it, so fewer than 60 units
    // of the ninth digit: six digits further off than that cannot read back.
    let off = long.digits % 1000;
    if (off.min(1000 - off) <= 61 || value.is_subnormal())
        && let Some(short) = round_digits(binary, 6)
        && short.reads_back
    {
        return write_digits(out, value.is_sign_negative(), short, 6);
    }
    write_digits(out, value.is_sign_negative(), long, 9);
}

/// Appends an `f64` as XLA prints it.
pub fn write_f64(out: &mut String, value: f64) {
    if value.is_nan() {
        let bits = value.to_bits();
        return write_nan(out, bits >> 63 != 0, bits & ((1 << 52) - 1), 52);
    }
    if write_special(out, value) || write_small_integer(out, value, 15) {
        return;
    }
    let binary = Binary::from_f64(value);
    let Some(long) = round_digits(binary, 17) else {
        return write_shorter_by_std(out, value, 15, 17, |text| text.parse() == Ok(value));
    };
    // Likewise: half a unit is at most 2^-53, fewer than 12 units of the seventeenth digit.
    let off = long.digits % 100;
    if (off.min(100 - off) <= 13 || value.is_subnormal())
        && let Some(short) = round_digits(binary, 15)
        && short.reads_back
    {
        return write_digits(out, value.is_sign_negative(), short, 15);
    }
    write_digits(out, value.is_sign_negative(), long, 17);
}

/// With `short` digits if those read back, else with `long`.
#[cold]
fn write_shorter_by_std(out: &mut String, value: f64, short: usize, long: usize, reads_back: impl Fn(&str) -> bool) {
    let start = out.len();
    write_by_std(out, value, short);
    if !reads_back(&out[start..]) {
        out.truncate(start);
        write_by_std(out, value, long);
    }
}

/// Appends an `f16` as XLA prints it.
pub fn write_f16(out: &mut String, value: f16) {
    write_code(out, &F16_FORMAT, value.to_bits());
}

/// Appends a `bf16` as XLA prints it.
pub fn write_bf16(out: &mut String, value: bf16) {
    write_code(out, &BF16_FORMAT, value.to_bits());
}

/// Appends a value of one of the formats of eight bits or fewer as XLA prints it. The one NaN of a
/// format without negative zero has its sign bit set, and prints as `-nan`.
pub fn write_small_float<T: SmallFloat>(out: &mut String, value: T) {
    write_code(out, &T::FORMAT, value.to_bits() as u16);
}

/// Appends the value of a code of any format.
pub fn write_code(out: &mut String, format: &Format, code: u16) {
    let payload_bits = format.nan_payload_bits();
    if payload_bits > 0 && format.is_nan(code) {
        let payload = (code & format.mantissa_mask()) as u64;
        return write_nan(out, code & format.sign_mask() != 0, payload, payload_bits);
    }
    format_g(out, format.decode(code), format.print_digits);
}

/// NaN with its payload, unless that is the one of the default quiet NaN.
fn write_nan(out: &mut String, negative: bool, payload: u64, payload_bits: u32) {
    use std::fmt::Write;
    out.push_str(if negative { "-nan" } else { "nan" });
    if payload != 1 << (payload_bits - 1) {
        // Writing to a String cannot fail.
        let _ = write!(out, "({payload:#x})");
    }
}

/// Zeros, infinities and NaN; false for everything else.
fn write_special(out: &mut String, value: f64) -> bool {
    let text = if value == 0.0 {
        ["0", "-0"]
    } else if value.is_finite() {
        return false;
    } else if value.is_nan() {
        ["nan", "-nan"]
    } else {
        ["inf", "-inf"]
    };
    out.push_str(text[value.is_sign_negative() as usize]);
    true
}

/// Nonzero integers of at most `precision` digits, which print as they are; false for others.
#[inline]
fn write_small_integer(out: &mut String, value: f64, precision: usize) -> bool {
    const LIMITS: [i64; 16] = {
        let mut limits = [1i64; 16];
        let mut i = 1;
        while i < 16 {
            limits[i] = limits[i - 1] * 10;
            i += 1;
        }
        limits
    };
    let integer = value as i64;
    if integer as f64 != value || integer.unsigned_abs() >= LIMITS[precision.min(15)] as u64 {
        return false;
    }
    let mut text = Text::new();
    text.integer(integer.unsigned_abs());
    if integer < 0 {
        text.prepend(b'-');
    }
    text.append_to(out);
    true
}

/// Lays at most 17 digits out by the rules of `%g`, in one buffer.
fn write_digits(out: &mut String, negative: bool, decimal: Digits, precision: usize) {
    let mut digits = Text::new();
    digits.integer(decimal.digits);
    let digits = digits.bytes();
    let exponent = decimal.exponent;
    if exponent < -4 || exponent >= precision as i32 {
        return layout(out, negative, digits, exponent, precision);
    }
    // Sign, at most five characters of leading zeros, 17 digits and a point.
    let mut buffer = [b'0'; 32];
    buffer[0] = b'-';
    let mut end;
    if exponent < 0 {
        buffer[2] = b'.';
        let start = 2 + exponent.unsigned_abs() as usize;
        end = start + digits.len();
        buffer[start..end].copy_from_slice(digits);
    } else {
        let whole = exponent as usize + 1;
        buffer[1..=whole].copy_from_slice(&digits[..whole]);
        buffer[whole + 1] = b'.';
        end = digits.len() + 2;
        buffer[whole + 2..end].copy_from_slice(&digits[whole..]);
    }
    // There is a point, so the zeros before the end are behind it.
    while buffer[end - 1] == b'0' {
        end -= 1;
    }
    if buffer[end - 1] == b'.' {
        end -= 1;
    }
    let text = &buffer[!negative as usize..end];
    // Only ASCII was put in.
    out.push_str(std::str::from_utf8(text).unwrap_or_default());
}

/// Any nonzero finite value and any precision, by the standard library's digits.
fn write_by_std(out: &mut String, value: f64, precision: usize) {
    let mut digits = String::new();
    let exponent = digits_by_std(value.abs(), precision, &mut digits);
    layout(out, value.is_sign_negative(), digits.as_bytes(), exponent, precision);
}

/// Lays digits out by the rules of `%g`.
fn layout(out: &mut String, negative: bool, digits: &[u8], exponent: i32, precision: usize) {
    let kept = digits.iter().rposition(|&d| d != b'0').map_or(1, |i| i + 1);
    let digits = std::str::from_utf8(&digits[..kept]).unwrap_or_default();
    if negative {
        out.push('-');
    }
    if exponent < -4 || exponent >= precision as i32 {
        let (first, rest) = digits.split_at(1);
        out.push_str(first);
        if !rest.is_empty() {
            out.push('.');
            out.push_str(rest);
        }
        out.push_str(if exponent < 0 { "e-" } else { "e+" });
        let magnitude = exponent.unsigned_abs() as u64;
        if magnitude < 10 {
            out.push('0');
        }
        let mut text = Text::new();
        text.integer(magnitude);
        text.append_to(out);
    } else if exponent < 0 {
        const ZEROS: &str = "0.000";
        out.push_str(&ZEROS[..1 + exponent.unsigned_abs() as usize]);
        out.push_str(digits);
    } else {
        let whole = exponent as usize + 1;
        match digits.split_at_checked(whole) {
            Some((integer, "")) => out.push_str(integer),
            Some((integer, fraction)) => {
                out.push_str(integer);
                out.push('.');
                out.push_str(fraction);
            }
            None => {
                out.push_str(digits);
                out.extend(std::iter::repeat_n('0', whole - kept));
            }
        }
    }
}

/// A few ASCII characters, filled from the back.
struct Text {
    buffer: [u8; 24],
    start: usize,
}

impl Text {
    fn new() -> Self {
        Self { buffer: [b'0'; 24], start: 24 }
    }

    fn prepend(&mut self, byte: u8) {
        self.start -= 1;
        self.buffer[self.start] = byte;
    }

    /// At most twenty digits, so that a sign still fits.
    fn integer(&mut self, mut value: u64) {
        while value >= 100 {
            let pair = (value % 100) as u8;
            value /= 100;
            self.prepend(b'0' + pair % 10);
            self.prepend(b'0' + pair / 10);
        }
        if value >= 10 {
            self.prepend(b'0' + (value % 10) as u8);
            value /= 10;
        }
        self.prepend(b'0' + value as u8);
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn append_to(&self, out: &mut String) {
        // Only ASCII is ever put in.
        out.push_str(std::str::from_utf8(self.bytes()).unwrap_or_default());
    }
}

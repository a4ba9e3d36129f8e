//! Integer semantics: corner cases at every width, narrow types against arithmetic in `i128`.

use hloom_numerics::int::*;

#[test]
fn division_corners() {
    assert_eq!(7i32.divide(0), -1);
    assert_eq!(7u32.divide(0), u32::MAX);
    assert_eq!(i64::MIN.divide(-1), i64::MIN);
    assert_eq!(i8::MIN.divide(-1), i8::MIN);
    assert_eq!((-7i32).divide(2), -3);
    assert_eq!((-7i32).remainder(0), -7);
    assert_eq!(9u8.remainder(0), 9);
    assert_eq!(i32::MIN.remainder(-1), 0);
    assert_eq!((-7i32).remainder(2), -1);
}

#[test]
fn shift_corners() {
    assert_eq!(1i32.shift_left(31), i32::MIN);
    assert_eq!(1i32.shift_left(32), 0);
    assert_eq!(1i32.shift_left(-1), 0);
    assert_eq!((-1i32).shift_right_logical(31), 1);
    assert_eq!((-1i32).shift_right_logical(32), 0);
    assert_eq!((-8i32).shift_right_arithmetic(1), -4);
    assert_eq!((-8i32).shift_right_arithmetic(-3), -1);
    assert_eq!(8i64.shift_right_arithmetic(64), 0);
    assert_eq!(0x80u8.shift_right_arithmetic(1), 0xc0);
    assert_eq!(0x80u8.shift_right_arithmetic(200), 0xff);
    assert_eq!(1u64.shift_left(u64::MAX), 0);
    assert_eq!(1u64.shift_left((1 << 32) + 1), 0);
}

#[test]
fn power_corners() {
    assert_eq!(3i32.power(4), 81);
    assert_eq!((-2i8).power(7), -128);
    assert_eq!(2i8.power(8), 0);
    assert_eq!(0i32.power(0), 1);
    assert_eq!(1i32.power(-5), 1);
    assert_eq!((-1i32).power(-1), -1);
    assert_eq!((-1i32).power(i32::MIN), 1);
    assert_eq!(0i32.power(-1), 0);
    assert_eq!(2i32.power(-1), 0);
    assert_eq!(3u64.power(64), 3u64.wrapping_pow(64));
    assert_eq!(1u8.power(255), 1);
}

#[test]
fn counts_and_products() {
    assert_eq!((-1i8).population_count(), 8);
    assert_eq!(0i16.count_leading_zeros(), 16);
    assert_eq!((-1i64).count_leading_zeros(), 0);
    assert_eq!(i64::MIN.multiply_high(i64::MIN), 1 << 62);
    assert_eq!(u64::MAX.multiply_high(u64::MAX), u64::MAX - 1);
    assert_eq!((-1i32).multiply_high(1), -1);
    for a in i8::MIN..=i8::MAX {
        for b in i8::MIN..=i8::MAX {
            assert_eq!(a.multiply_high(b) as i32, (a as i32 * b as i32) >> 8);
        }
    }
}

#[test]
fn wrapping() {
    assert_eq!(wrap_signed(8, 4), -8);
    assert_eq!(wrap_signed(-9, 4), 7);
    assert_eq!(wrap_signed(1, 1), -1);
    assert_eq!(wrap_signed(i64::MIN, 64), i64::MIN);
    assert_eq!(wrap_signed(5, 0), 0);
    assert_eq!(wrap_unsigned(17, 4), 1);
    assert_eq!(wrap_unsigned(u64::MAX, 64), u64::MAX);
    assert_eq!(wrap_unsigned(3, 0), 0);
}

#[test]
fn floats_to_integers() {
    assert_eq!(i32::from_float(f64::NAN), 0);
    assert_eq!(i32::from_float(1e10), i32::MAX);
    assert_eq!(u8::from_float(-3.0), 0);
    assert_eq!(i8::from_float(-1.9), -1);
    assert_eq!(u64::from_float(f64::INFINITY), u64::MAX);
    assert_eq!(float_to_signed(100.0, 4), 7);
    assert_eq!(float_to_signed(-100.0, 4), -8);
    assert_eq!(float_to_signed(f64::NAN, 2), 0);
    assert_eq!(float_to_signed(-1e30, 64), i64::MIN);
    assert_eq!(float_to_unsigned(100.0, 2), 3);
    assert_eq!(float_to_unsigned(1e30, 64), u64::MAX);
    assert_eq!(NarrowInt::S1.from_float(5.0), 0);
    assert_eq!(NarrowInt::S1.from_float(-5.0), -1);
}

#[test]
fn narrow_types_exhaustively() {
    for bits in [1, 2, 3, 4, 8] {
        for signed in [false, true] {
            let ty = NarrowInt::new(bits, signed);
            for a in ty.min()..=ty.max() {
                assert_eq!(ty.wrap(a), a);
                let pattern = (a as u64) & ((1 << bits) - 1);
                let ones = (0..bits).filter(|i| pattern >> i & 1 == 1).count() as i64;
                assert_eq!(ty.population_count(a), ty.wrap(ones));
                let zeros = (0..bits).rev().take_while(|i| pattern >> i & 1 == 0).count() as i64;
                assert_eq!(ty.count_leading_zeros(a), ty.wrap(zeros));
                for b in ty.min()..=ty.max() {
                    check_pair(ty, a, b);
                }
            }
        }
    }
}

fn check_pair(ty: NarrowInt, a: i64, b: i64) {
    let bits = ty.bits();
    let all_ones = if ty.is_signed() { -1 } else { ty.max() };
    let quotient = if b == 0 { all_ones } else { ty.wrap(a / b) };
    assert_eq!(ty.divide(a, b), quotient, "{ty:?} {a} / {b}");
    let rest = if b == 0 { a } else { a % b };
    assert_eq!(ty.remainder(a, b), rest, "{ty:?} {a} % {b}");
    assert_eq!(ty.multiply_high(a, b), ty.wrap((a * b) >> bits));
    let amount = (b as u64) & ((1 << bits) - 1);
    let in_range = amount < bits as u64;
    let pattern = a as u64 & ((1 << bits) - 1);
    let left = if in_range { ty.wrap(a << amount) } else { 0 };
    assert_eq!(ty.shift_left(a, b), left, "{ty:?} {a} << {b}");
    let logical = if in_range { ty.wrap((pattern >> amount) as i64) } else { 0 };
    assert_eq!(ty.shift_right_logical(a, b), logical, "{ty:?} {a} >>> {b}");
    let top = pattern >> (bits - 1) == 1;
    let filled = if top { pattern as i64 - (1 << bits) } else { pattern as i64 };
    let arithmetic = ty.wrap(filled >> amount.min(63));
    assert_eq!(ty.shift_right_arithmetic(a, b), arithmetic, "{ty:?} {a} >> {b}");
    // Where a negative exponent has a result other than 0, x^−n is x^n.
    let unit = a.abs() == 1;
    let power = if b < 0 && !unit { 0 } else { (0..b.abs()).fold(1, |product, _| ty.wrap(product * a)) };
    assert_eq!(ty.power(a, b), ty.wrap(power), "{ty:?} {a} ^ {b}");
}

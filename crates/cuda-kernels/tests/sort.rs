//! Sorts and top-k, run by the emulator, against the standard library's stable sort.

use hloom_cuda_kernels::number::Number;
use hloom_cuda_kernels::order::{FloatOrder, KeyOrder};
use hloom_cuda_kernels::sort::{SortShape, SortValue, radix_sort};
use hloom_cuda_kernels::top_k::{TopKShape, top_k};
use hloom_cuda_kernels::{Architecture, emulate};

const HOPPER: Architecture = Architecture { capability: 90, accelerated: true };

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 16
}

/// Random bits, of which some are the odd numbers of a type and many are equal.
fn keys(order: KeyOrder, count: u64) -> Vec<u64> {
    let mut state = 11;
    let bits = 8 * order.key.bytes();
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let sign = 1u64 << (bits - 1);
    (0..count)
        .map(|_| {
            let n = next(&mut state) ^ next(&mut state) << 32;
            match n % 16 {
                0 => 0,
                1 => sign,
                2 => mask,
                3 => sign - 1,
                4 => 42,
                _ => n >> 7 & mask,
            }
        })
        .collect()
}

/// A number that orders keys as the order says.
fn place(order: KeyOrder, key: u64) -> i128 {
    let signed = |bits: u32| i128::from(((key << (64 - bits)) as i64) >> (64 - bits));
    let bits = 8 * order.key.bytes();
    let value = if order.key.is_float() {
        let float = match order.key {
            Number::F16 => half::f16::from_bits(key as u16).to_f64(),
            Number::Bf16 => half::bf16::from_bits(key as u16).to_f64(),
            Number::F32 => f32::from_bits(key as u32).into(),
            _ => f64::from_bits(key),
        };
        let total = |bits_of: i128| if bits_of < 0 { -(bits_of & !(-1 << (bits - 1))) - 1 } else { bits_of };
        match order.floats {
            FloatOrder::Total => total(signed(bits)),
            FloatOrder::Canonical if float.is_nan() => i128::MAX / 2,
            FloatOrder::Canonical if float == 0.0 => 0,
            FloatOrder::Canonical => total(signed(bits)),
        }
    } else if order.key.is_signed() {
        signed(bits)
    } else {
        key.into()
    };
    if order.descending { -value } else { value }
}

fn encode(values: &[u64], bytes: u32) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()[..bytes as usize].to_vec()).collect()
}

fn sorted_places(order: KeyOrder, row: &[u64]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..row.len()).collect();
    places.sort_by_key(|&i| place(order, row[i]));
    places
}

fn check_sort(order: KeyOrder, rows: u64, length: u64, values: &[SortValue]) {
    let shape = SortShape { order, rows, length, values: values.to_vec() };
    let sequence = radix_sort(&shape, HOPPER).expect("kernels");
    let keys = keys(order, rows * length);
    let mut operands = vec![encode(&keys, order.key.bytes())];
    let mut sizes = vec![operands[0].len()];
    let count = (rows * length) as usize;
    let data =
        |number: usize| (0..count as u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15 + number as u64)).collect();
    for (i, value) in values.iter().enumerate() {
        match value {
            SortValue::Array { bytes } => {
                let data: Vec<u64> = data(i);
                operands.push(encode(&data, *bytes));
                sizes.push(count * *bytes as usize);
            }
            SortValue::Index => sizes.push(count * 4),
        }
    }
    let results = emulate::run(&sequence, &operands, &sizes).unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    let length = length as usize;
    for row in 0..rows as usize {
        let row_keys = &keys[row * length..][..length];
        let places = sorted_places(order, row_keys);
        let sorted: Vec<u64> = places.iter().map(|&i| row_keys[i]).collect();
        let bytes = order.key.bytes() as usize;
        let found = &results[0][row * length * bytes..][..length * bytes];
        assert!(found == encode(&sorted, bytes as u32), "{shape:?}: the keys of row {row}");
        for (i, value) in values.iter().enumerate() {
            let (expected, bytes): (Vec<u64>, u32) = match value {
                SortValue::Array { bytes } => {
                    let data: Vec<u64> = data(i);
                    (places.iter().map(|&p| data[row * length + p]).collect(), *bytes)
                }
                SortValue::Index => (places.iter().map(|&p| p as u64).collect(), 4),
            };
            let size = bytes as usize * length;
            let found = &results[1 + i][row * size..][..size];
            assert!(found == encode(&expected, bytes), "{shape:?}: value {i} of row {row}");
        }
    }
}

fn order(key: Number, floats: FloatOrder, descending: bool) -> KeyOrder {
    KeyOrder { key, floats, descending }
}

#[test]
fn short_rows_of_every_type() {
    for key in Number::ALL {
        check_sort(order(key, FloatOrder::Total, false), 2, 300, &[]);
        check_sort(order(key, FloatOrder::Canonical, true), 1, 33, &[SortValue::Index]);
    }
}

#[test]
fn rows_of_all_sizes() {
    for length in [1, 2, 31, 64, 1000, 1025, 4096] {
        check_sort(order(Number::S16, FloatOrder::Total, false), 2, length, &[SortValue::Array { bytes: 8 }]);
    }
}

#[test]
fn rows_that_a_warp_holds() {
    for length in [1, 2, 7, 32, 33, 64, 100, 127, 128] {
        check_sort(order(Number::F32, FloatOrder::Canonical, false), 11, length, &[]);
        check_sort(order(Number::S8, FloatOrder::Total, true), 3, length, &[SortValue::Array { bytes: 8 }]);
    }
    let all = [SortValue::Array { bytes: 1 }, SortValue::Index, SortValue::Array { bytes: 2 }];
    check_sort(order(Number::Bf16, FloatOrder::Canonical, false), 9, 90, &all);
    check_sort(order(Number::U32, FloatOrder::Total, true), 9, 128, &all);
}

#[test]
fn long_rows_in_passes() {
    check_sort(order(Number::F32, FloatOrder::Canonical, false), 1, 20_000, &[]);
    check_sort(order(Number::U16, FloatOrder::Total, true), 2, 9_000, &[SortValue::Array { bytes: 4 }]);
    check_sort(order(Number::U8, FloatOrder::Total, false), 1, 5_000, &[SortValue::Index]);
    check_sort(order(Number::F64, FloatOrder::Total, false), 1, 5_000, &[SortValue::Array { bytes: 2 }]);
}

#[test]
fn several_values() {
    let arrays = [SortValue::Array { bytes: 1 }, SortValue::Array { bytes: 8 }];
    check_sort(order(Number::S32, FloatOrder::Total, false), 3, 100, &arrays);
    check_sort(order(Number::S16, FloatOrder::Total, false), 1, 5_000, &arrays);
    let with_index = [SortValue::Array { bytes: 4 }, SortValue::Index];
    check_sort(order(Number::S32, FloatOrder::Total, true), 2, 500, &with_index);
}

fn check_top_k(order: KeyOrder, rows: u64, length: u64, k: u64) {
    let shape = TopKShape { order, rows, length, k };
    let sequence = top_k(&shape, HOPPER).expect("a kernel");
    let keys = keys(order, rows * length);
    let bytes = order.key.bytes();
    let sizes = [(rows * k) as usize * bytes as usize, (rows * k) as usize * 4];
    let operands = [encode(&keys, bytes)];
    let results = emulate::run(&sequence, &operands, &sizes).unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    let (length, k) = (length as usize, k as usize);
    for row in 0..rows as usize {
        let row_keys = &keys[row * length..][..length];
        let places: Vec<u64> = sorted_places(order, row_keys)[..k].iter().map(|&p| p as u64).collect();
        let values: Vec<u64> = places.iter().map(|&p| row_keys[p as usize]).collect();
        let size = k * bytes as usize;
        assert!(results[0][row * size..][..size] == encode(&values, bytes), "{shape:?}: the values of row {row}");
        assert!(results[1][row * k * 4..][..k * 4] == encode(&places, 4), "{shape:?}: the places of row {row}");
    }
}

#[test]
fn top_k_of_rows() {
    check_top_k(order(Number::F32, FloatOrder::Total, true), 3, 1000, 5);
    check_top_k(order(Number::F32, FloatOrder::Canonical, true), 1, 5000, 40);
    check_top_k(order(Number::Bf16, FloatOrder::Total, true), 2, 700, 64);
    check_top_k(order(Number::S8, FloatOrder::Total, false), 1, 100, 100);
    check_top_k(order(Number::U32, FloatOrder::Total, true), 1, 1, 1);
}

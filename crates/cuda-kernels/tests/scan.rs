//! Prefix scans, run by the emulator, against loops.

use half::bf16;
use hloom_cuda_kernels::number::Number;
use hloom_cuda_kernels::scan::{ScanOperation, ScanShape, prefix_scan};
use hloom_cuda_kernels::{Architecture, emulate};

const HOPPER: Architecture = Architecture { capability: 90, accelerated: true };

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

fn encode(element: Number, value: f64) -> Vec<u8> {
    match element {
        Number::U8 => vec![value as u8],
        Number::S8 => vec![value as i8 as u8],
        Number::U16 => (value as u16).to_le_bytes().to_vec(),
        Number::S16 => (value as i16).to_le_bytes().to_vec(),
        Number::U32 => (value as u32).to_le_bytes().to_vec(),
        Number::S32 => (value as i32).to_le_bytes().to_vec(),
        Number::U64 => (value as u64).to_le_bytes().to_vec(),
        Number::S64 => (value as i64).to_le_bytes().to_vec(),
        Number::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
        Number::Bf16 => bf16::from_f64(value).to_le_bytes().to_vec(),
        Number::F32 => (value as f32).to_le_bytes().to_vec(),
        Number::F64 => value.to_le_bytes().to_vec(),
    }
}

fn decode(element: Number, bytes: &[u8]) -> f64 {
    let mut raw = [0; 8];
    raw[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(raw);
    match element {
        Number::U8 | Number::U16 | Number::U32 | Number::U64 => bits as f64,
        Number::S8 => (bits as i8).into(),
        Number::S16 => (bits as i16).into(),
        Number::S32 => (bits as i32).into(),
        Number::S64 => bits as i64 as f64,
        Number::F16 => half::f16::from_bits(bits as u16).to_f64(),
        Number::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        Number::F32 => f32::from_bits(bits as u32).into(),
        Number::F64 => f64::from_bits(bits),
    }
}

fn combine(operation: ScanOperation, a: f64, b: f64) -> f64 {
    match operation {
        ScanOperation::Sum => a + b,
        ScanOperation::Product => a * b,
        ScanOperation::Max => a.max(b),
        ScanOperation::Min => a.min(b),
        ScanOperation::LogSumExp => {
            let m = a.max(b);
            m + ((a - m).exp() + (b - m).exp()).ln()
        }
    }
}

fn check(shape: ScanShape) {
    let sequence = prefix_scan(&shape, HOPPER).expect("a kernel");
    let count = (shape.outer * shape.length * shape.inner) as usize;
    let mut state = 5;
    let values: Vec<f64> = (0..count)
        .map(|_| {
            let n = next(&mut state);
            match shape.operation {
                // Small numbers whose sums and products fit every type.
                ScanOperation::Sum => f64::from(n.is_multiple_of(64) as u32),
                ScanOperation::Product => f64::from(1 + n.is_multiple_of(1024) as u32),
                ScanOperation::LogSumExp => (n % 100) as f64 / 50.0 - 1.0,
                _ if shape.element.is_signed() => (n % 100) as f64 - 50.0,
                _ => (n % 100) as f64,
            }
        })
        .collect();
    let values: Vec<f64> = values.iter().map(|&v| decode(shape.element, &encode(shape.element, v))).collect();
    let input: Vec<u8> = values.iter().flat_map(|&v| encode(shape.element, v)).collect();
    let size = input.len();
    let results = emulate::run(&sequence, &[input], &[size]).unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    let bytes = shape.element.bytes() as usize;
    for outer in 0..shape.outer {
        for inner in 0..shape.inner {
            let mut sum = None;
            for i in 0..shape.length {
                let place = if shape.reverse { shape.length - 1 - i } else { i };
                let at = ((outer * shape.length + place) * shape.inner + inner) as usize;
                let total = sum.map_or(values[at], |s| combine(shape.operation, s, values[at]));
                sum = Some(total);
                let expected = decode(shape.element, &encode(shape.element, total));
                let found = decode(shape.element, &results[0][at * bytes..][..bytes]);
                let close = (found - expected).abs() <= 1e-5 * expected.abs() || (found - expected).abs() <= 1e-5;
                let rounded = matches!(shape.element, Number::Bf16 | Number::F16) && (found - expected).abs() <= 0.05;
                assert!(close || rounded, "{shape:?}: place {place} of {outer}, {inner}: {found}, not {expected}");
            }
        }
    }
}

fn shape(element: Number, operation: ScanOperation, sizes: (u64, u64, u64), reverse: bool) -> ScanShape {
    ScanShape { element, operation, outer: sizes.0, length: sizes.1, inner: sizes.2, reverse }
}

#[test]
fn long_rows_of_every_type() {
    for element in Number::ALL {
        check(shape(element, ScanOperation::Sum, (1, 5000, 1), false));
        check(shape(element, ScanOperation::Max, (2, 300, 1), true));
    }
}

#[test]
fn every_operation_both_ways() {
    use ScanOperation::{LogSumExp, Max, Min, Product, Sum};
    for operation in [Sum, Product, Max, Min, LogSumExp] {
        for reverse in [false, true] {
            check(shape(Number::F32, operation, (1, 4096 * 2 + 4, 1), reverse));
            check(shape(Number::F32, operation, (3, 1001, 1), reverse));
            check(shape(Number::F32, operation, (2, 150, 40), reverse));
        }
    }
    for operation in [Product, Max, Min] {
        check(shape(Number::F64, operation, (1, 600, 1), false));
        check(shape(Number::S64, operation, (1, 600, 1), true));
    }
}

#[test]
fn many_tiles_look_back() {
    check(shape(Number::F32, ScanOperation::Sum, (1, 4096 * 40, 1), false));
}

#[test]
fn many_rows() {
    check(shape(Number::F32, ScanOperation::Sum, (2050, 36, 1), false));
    check(shape(Number::Bf16, ScanOperation::Max, (2048, 20, 1), true));
    check(shape(Number::S32, ScanOperation::Sum, (2048, 515, 1), false));
}

#[test]
fn columns_of_small_types() {
    check(shape(Number::S8, ScanOperation::Min, (1, 300, 33), false));
    check(shape(Number::Bf16, ScanOperation::Sum, (2, 130, 64), true));
}

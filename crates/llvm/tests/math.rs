//! How exact the vector functions are: over a dense sample of all numbers, and at the special ones, in units in the last
//! place from the evaluator's results, which are computed in a wider type or by the system's library.

mod common;

use common::{LoadedKernels, machines, program, run_kernel};
use hloom_eval::run::{DeviceGrid, Options as RunOptions, run};
use hloom_ir::ElementType;
use hloom_llvm::{Options, compile};
use hloom_loops::KernelRequest;
use hloom_value::{Array, Value};

/// The numbers of a type in order, so that neighbours differ by one.
fn order(bits: u64, width: u32) -> i64 {
    let sign = 1u64 << (width - 1);
    if bits & sign == 0 { bits as i64 } else { -((bits & !sign) as i64) }
}

fn ulps(a: &Array, b: &Array, n: usize) -> u64 {
    let width = a.element_type().bytes();
    let at = |array: &Array| {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(&array.bytes()[n * width..(n + 1) * width]);
        u64::from_le_bytes(bytes)
    };
    let float = |bits: u64| match width {
        4 => f64::from(f32::from_bits(bits as u32)),
        _ => f64::from_bits(bits),
    };
    let (x, y) = (at(a), at(b));
    match (float(x).is_nan(), float(y).is_nan()) {
        (true, true) => 0,
        (false, false) => order(x, width as u32 * 8).abs_diff(order(y, width as u32 * 8)),
        _ => u64::MAX,
    }
}

/// Arguments: every so many bits over the whole range, numbers near zero and one, and the special ones.
fn sample(t: ElementType, seed: u64) -> Array {
    let special =
        [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.5, 2.0, -2.0, 710.0, -745.0, 88.7];
    let mut wide: Vec<f64> = special.to_vec();
    for n in -2000..2000 {
        wide.push(f64::from(n) / 100.0);
        wide.push(f64::from(n) / 2003.0);
        wide.push(1.0 + f64::from(n) / 100_000.0);
    }
    let dims = |n: usize| [n as i64];
    match t {
        ElementType::F32 => {
            let mut all: Vec<f32> = wide.iter().map(|&x| x as f32).collect();
            all.extend((0..1u32 << 19).map(|n| f32::from_bits(n.wrapping_mul(8191).wrapping_add(seed as u32))));
            Array::new(&dims(all.len()), &all).expect("as many as there are")
        }
        _ => {
            let mut bits = seed;
            wide.extend((0..1u32 << 17).map(|_| {
                bits = bits.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                f64::from_bits(bits ^ (bits >> 29))
            }));
            Array::new(&dims(wide.len()), &wide).expect("as many as there are")
        }
    }
}

/// The greatest distance of `op` on a type, over all machines, and where it is.
fn worst(op: &str, t: ElementType, arguments: &[Array]) -> (u64, String) {
    let n = arguments[0].len();
    let names: Vec<String> = (0..arguments.len()).map(|k| format!("p{k}")).collect();
    let mut text = String::from("HloModule m\nENTRY e {\n");
    for (k, name) in names.iter().enumerate() {
        text += &format!("  {name} = {t}[{n}] parameter({k})\n");
    }
    text += &format!("  ROOT r = {t}[{n}] {op}({})\n}}\n", names.join(", "));
    let module = program(&text);
    let values: Vec<Value> = arguments.iter().cloned().map(Value::Array).collect();
    let grid = DeviceGrid { replicas: 1, partitions: 1 };
    let expected = run(&module, grid, vec![values.clone()], &RunOptions::default());
    let Ok([expected]) = <[Value; 1]>::try_from(expected.unwrap_or_default()) else { panic!("{op} does not run") };
    let root = module.module().entry().and_then(|e| module.module().root(e)).expect("there is a root");
    let mut worst = (0, String::new());
    for machine in machines() {
        let bits = machine.simd.vector_bits;
        let options = Options { machine, ..Options::default() };
        let requests = [KernelRequest { instruction: root, in_place: false, producer: None }];
        let library = LoadedKernels::new(compile(module.module(), &requests, &options), &options.machine);
        let given = run_kernel(&library, 0, &values, &expected, 1).remove(0);
        let wanted = expected.as_array().expect("an array");
        for k in 0..n {
            // There the evaluator's formula overflows.
            if op == "logistic" && t == ElementType::F64 && arguments[0].elements::<f64>()[k] < -700.0 {
                continue;
            }
            let distance = ulps(wanted, &given, k);
            if distance > worst.0 || worst.1.is_empty() {
                let show = |a: &Array| match t {
                    ElementType::F32 => f64::from(a.elements::<f32>()[k]),
                    _ => a.elements::<f64>()[k],
                };
                let at: Vec<f64> = arguments.iter().map(show).collect();
                worst = (distance, format!("{at:?}: {:e}, not {:e} ({bits} bits)", show(&given), show(wanted)));
            }
        }
    }
    worst
}

const FUNCTIONS: [&str; 18] = [
    "exponential",
    "exponential-minus-one",
    "log",
    "log-plus-one",
    "logistic",
    "tanh",
    "erf",
    "sine",
    "cosine",
    "tan",
    "asin",
    "acos",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "cbrt",
];

fn expect(t: ElementType, limit: u64, distances: Vec<(&str, u64, String)>) {
    let shown: Vec<String> = distances.iter().map(|(op, d, at)| format!("{op} of {t}: {d} units at {at}")).collect();
    let over: Vec<&String> = shown.iter().zip(&distances).filter(|(_, d)| d.1 > limit).map(|(s, _)| s).collect();
    assert!(over.is_empty(), "more than {limit} units in the last place:\n{over:#?}\nall:\n{shown:#?}");
}

#[test]
fn functions_of_f32_are_within_two_units() {
    let arguments = sample(ElementType::F32, 12345);
    let of = |op| {
        let (distance, at) = worst(op, ElementType::F32, std::slice::from_ref(&arguments));
        (op, distance, at)
    };
    expect(ElementType::F32, 2, FUNCTIONS.map(of).into());
}

#[test]
fn functions_of_f64_are_within_a_few_units() {
    let arguments = sample(ElementType::F64, 12345);
    let of = |op| {
        let (distance, at) = worst(op, ElementType::F64, std::slice::from_ref(&arguments));
        (op, distance, at)
    };
    // The system's functions, which these are compared with, are themselves off by one at times.
    expect(ElementType::F64, 4, FUNCTIONS.map(of).into());
}

#[test]
fn functions_of_two_numbers() {
    for t in [ElementType::F32, ElementType::F64] {
        let (x, y) = (sample(t, 1), sample(t, 77_777));
        let reversed = match t {
            ElementType::F32 => Array::new(y.dims(), &y.elements::<f32>().iter().rev().copied().collect::<Vec<_>>()),
            _ => Array::new(y.dims(), &y.elements::<f64>().iter().rev().copied().collect::<Vec<_>>()),
        };
        let pair = [x, reversed.expect("as many as before")];
        let of = |op| {
            let (distance, at) = worst(op, t, &pair);
            (op, distance, at)
        };
        expect(t, 4, ["power", "atan2"].map(of).into());
    }
}

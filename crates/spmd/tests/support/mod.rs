//! Runs a program whole and partitioned with the evaluator, and compares.

#![allow(dead_code, reason = "each test file uses its part")]

use hloom_eval::{DeviceGrid, Options};
use hloom_ir::module::Module;
use hloom_ir::verify::{VerifyOptions, verify};
use hloom_ir::{ElementType, Op, Shape};
use hloom_spmd::partition::Partitioned;
use hloom_spmd::shards::{cut, paste, shard_of};
use hloom_value::{Array, Value};

/// Reads HLO text.
pub(crate) fn read(text: &str) -> Module {
    let read = hloom_formats::hlo_text::read(text.as_bytes());
    assert!(read.module.is_some(), "{:?}", read.diagnostics);
    read.module.unwrap()
}

/// The sharding that is written so.
pub(crate) fn sharding(text: &str) -> hloom_ir::sharding::ShardingKind {
    let sharding = hloom_formats::hlo_text::read_sharding(text.as_bytes()).unwrap_or_else(|d| panic!("{d:?}"));
    sharding.leaves()[0].kind.clone()
}

/// The same module without shardings, for one device.
pub(crate) fn unsharded(module: &Module) -> Module {
    let mut module = module.clone();
    for c in module.computations().to_vec() {
        for i in module[c].instructions().to_vec() {
            module.instruction_mut(i).common.sharding = None;
        }
    }
    module.config.num_partitions = 1;
    module
}

/// Whether the program takes care of devices itself somewhere, so that one device cannot run it.
pub(crate) fn is_manual(module: &Module) -> bool {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    all.into_iter().any(|&i| {
        matches!(&module[i].op, Op::CustomCall(c) if c.target.starts_with("SPMD"))
            || matches!(module[i].op, Op::PartitionId)
    })
}

/// Numbers that look random: floats in [-1, 1), integers from 0 to 7.
pub(crate) fn made_up(shape: &Shape, seed: &mut u64) -> Value {
    match shape {
        Shape::Tuple(elements) => Value::Tuple(elements.iter().map(|e| made_up(e, seed)).collect()),
        Shape::Array(a) => {
            let count = a.element_count().unwrap() as usize;
            let mut next = || {
                *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (*seed >> 40) as f32 / (1u64 << 24) as f32
            };
            let mut bytes: Vec<u8> = Vec::new();
            for _ in 0..count {
                let x = next();
                match a.element_type {
                    ElementType::F32 => bytes.extend((x * 2.0 - 1.0).to_le_bytes()),
                    ElementType::F64 => bytes.extend(f64::from(x * 2.0 - 1.0).to_le_bytes()),
                    ElementType::Bf16 => bytes.extend(half::bf16::from_f32(x * 2.0 - 1.0).to_le_bytes()),
                    ElementType::F16 => bytes.extend(half::f16::from_f32(x * 2.0 - 1.0).to_le_bytes()),
                    ElementType::C64 => {
                        bytes.extend((x * 2.0 - 1.0).to_le_bytes());
                        bytes.extend((next() * 2.0 - 1.0).to_le_bytes());
                    }
                    ElementType::Pred => bytes.push(u8::from(x > 0.5)),
                    t => {
                        let mut number = ((x * 8.0) as u64).to_le_bytes().to_vec();
                        number.resize(t.bytes(), 0);
                        bytes.extend(number);
                    }
                }
            }
            Value::Array(Array::from_bytes(a.element_type, a.dims(), &bytes).unwrap())
        }
        _ => Value::Token,
    }
}

/// Runs a module on that many partitions.
pub(crate) fn evaluate(module: &Module, partitions: usize, inputs: Vec<Vec<Value>>) -> Result<Vec<Value>, String> {
    let checked = verify(module.clone(), &VerifyOptions::default())
        .map_err(|e| format!("the verifier refuses it: {:?}", e.diagnostics.first()))?;
    let grid = DeviceGrid { replicas: 1, partitions };
    hloom_eval::run(&checked, grid, inputs, &Options::default())
        .map_err(|f| format!("{:?}", f.into_diagnostic().message))
}

/// Runs the partitioned program on whole inputs and puts its results together.
pub(crate) fn run_partitioned(made: &Partitioned, source: &Module, inputs: &[Value]) -> Result<Vec<Array>, String> {
    let axes = &made.axes;
    let devices = axes.devices() as usize;
    let mut all: Vec<Vec<Value>> = vec![Vec::new(); devices];
    for (device, arguments) in all.iter_mut().enumerate() {
        for (input, placements) in inputs.iter().zip(&made.parameters) {
            let mut placements = placements.iter();
            arguments.push(cut_value(input, &mut |array| {
                let placement = placements.next().unwrap();
                let logical = placement.logical(axes, device as i64);
                let shard = shard_of(axes, &placement.spec, array.dims(), logical);
                let bytes = cut(array.bytes(), array.dims(), array.element_type().bytes(), &shard);
                Array::from_bytes(array.element_type(), &shard.dims, &bytes).unwrap()
            }));
        }
    }
    let results = evaluate(&made.module, devices, all)?;
    let root = source.root(source.entry().unwrap()).unwrap();
    let leaves = source[root].shape.leaves();
    let mut wholes = Vec::new();
    for (n, (_, leaf)) in leaves.iter().enumerate() {
        let Some(shape) = leaf.as_array() else { continue };
        let placement = &made.results[n];
        let width = shape.element_type.bytes();
        let mut bytes = vec![0; shape.byte_size().unwrap() as usize];
        for logical in 0..devices {
            let device = placement.device(axes, logical as i64) as usize;
            let leaf = results[device].leaves()[n].as_array().map_err(|f| format!("{f:?}"))?.clone();
            let shard = shard_of(axes, &placement.spec, shape.dims(), logical as i64);
            if leaf.dims() != shard.dims {
                return Err(format!("result {n} is {:?} on a device, not {:?}", leaf.dims(), shard.dims));
            }
            paste(&mut bytes, shape.dims(), width, &shard, leaf.bytes());
        }
        wholes.push(Array::from_bytes(shape.element_type, shape.dims(), &bytes).unwrap());
    }
    Ok(wholes)
}

fn cut_value(value: &Value, f: &mut impl FnMut(&Array) -> Array) -> Value {
    match value {
        Value::Array(a) => Value::Array(f(a)),
        Value::Tuple(t) => Value::Tuple(t.iter().map(|v| cut_value(v, f)).collect()),
        other => other.clone(),
    }
}

/// The elements as f64; both parts of complex ones.
fn numbers(array: &Array) -> Vec<f64> {
    let bytes = array.bytes();
    match array.element_type() {
        ElementType::F32 | ElementType::C64 => {
            bytes.chunks(4).map(|c| f64::from(f32::from_le_bytes(c.try_into().unwrap()))).collect()
        }
        ElementType::F64 | ElementType::C128 => {
            bytes.chunks(8).map(|c| f64::from_le_bytes(c.try_into().unwrap())).collect()
        }
        ElementType::Bf16 => {
            bytes.chunks(2).map(|c| f64::from(half::bf16::from_le_bytes(c.try_into().unwrap()))).collect()
        }
        ElementType::F16 => {
            bytes.chunks(2).map(|c| f64::from(half::f16::from_le_bytes(c.try_into().unwrap()))).collect()
        }
        t => bytes.chunks(t.bytes()).map(|c| c.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b)) as f64).collect(),
    }
}

/// Whether two results are the same but for the order of sums.
pub(crate) fn close(a: &Array, b: &Array) -> Result<(), String> {
    let tolerance = match a.element_type() {
        ElementType::Bf16 => 3e-2,
        ElementType::F16 => 5e-3,
        t if t.is_float() || t.is_complex() => 3e-5,
        _ => 0.0,
    };
    let (x, y) = (numbers(a), numbers(b));
    // Inputs are about one; where they cancel, what is left of the sum is off by as much as they were rounded.
    let largest = x.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs())).max(0.02);
    for (i, (p, q)) in x.iter().zip(&y).enumerate() {
        let same = p == q || (p.is_nan() && q.is_nan()) || (p - q).abs() <= tolerance * largest;
        if !same {
            return Err(format!("element {i} is {q}, not {p} (largest {largest})"));
        }
    }
    Ok(())
}

/// Compares the partitioned program with the whole one on made-up inputs.
pub(crate) fn check(source: &Module, made: &Partitioned, seed: u64) -> Result<(), String> {
    let mut seed = seed;
    let entry = source.entry().unwrap();
    let inputs: Vec<Value> =
        source.parameters(entry).iter().map(|&p| made_up(&source[p].shape.without_layout(), &mut seed)).collect();
    let whole = evaluate(&unsharded(source), 1, vec![inputs.clone()]).map_err(|e| format!("whole: {e}"))?;
    let expected: Vec<Array> = whole[0].leaves().into_iter().filter_map(|l| l.as_array().ok().cloned()).collect();
    let got = run_partitioned(made, source, &inputs)?;
    for (n, (e, g)) in expected.iter().zip(&got).enumerate() {
        close(e, g).map_err(|m| format!("result {n}: {m}"))?;
    }
    Ok(())
}

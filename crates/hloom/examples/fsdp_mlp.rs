//! Weights spread over four devices, gathered asynchronously as they are needed: `examples/fsdp_mlp.hlo` gives for every
//! part of the batch what the whole weights would.

#![allow(clippy::print_stdout, reason = "an example shows what it found")]

use hloom::Array;
use hloom::arrays::SplitMix;
use hloom::eval::{DeviceGrid, Options};
use hloom::value::Value;
use std::error::Error;

const PROGRAM: &str = include_str!("../../../examples/fsdp_mlp.hlo");
const DEVICES: usize = 4;
const BATCH: usize = 8;
const WIDTH: usize = 64;
const HIDDEN: usize = 192;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let program = hloom::parse(PROGRAM)?;
    let mut random = SplitMix(11);
    let mut numbers =
        |n: usize| -> Vec<f32> { (0..n).map(|_| (random.next() >> 40) as f32 / (1u64 << 24) as f32 - 0.5).collect() };
    let (gate, up, down) = (numbers(WIDTH * HIDDEN), numbers(WIDTH * HIDDEN), numbers(HIDDEN * WIDTH));
    let batches: Vec<Vec<f32>> = (0..DEVICES).map(|_| numbers(BATCH * WIDTH)).collect();

    // Device d holds the d-th quarter of the rows of each matrix.
    let shard = |m: &[f32], rows: usize, columns: usize, d: usize| {
        let part = rows / DEVICES * columns;
        let dims = [(rows / DEVICES) as i64, columns as i64];
        Array::new(&dims, &m[d * part..(d + 1) * part]).map(Value::Array).ok_or("wrong number of elements")
    };
    let mut inputs = Vec::new();
    for (d, x) in batches.iter().enumerate() {
        inputs.push(vec![
            Array::new(&[BATCH as i64, WIDTH as i64], x).map(Value::Array).ok_or("wrong number of elements")?,
            shard(&gate, WIDTH, HIDDEN, d)?,
            shard(&up, WIDTH, HIDDEN, d)?,
            shard(&down, HIDDEN, WIDTH, d)?,
        ]);
    }
    let grid = DeviceGrid { replicas: 1, partitions: DEVICES };
    let results =
        hloom::eval::run(&program, grid, inputs, &Options::default()).map_err(|f| f.into_diagnostic().to_string())?;

    let mut worst = 0f64;
    for (x, result) in batches.iter().zip(&results) {
        let computed = result.as_array().ok().and_then(|a| a.as_slice::<f32>()).ok_or("the result is not f32")?;
        for row in 0..BATCH {
            let times = |m: &[f32], unit: usize| -> f64 {
                (0..WIDTH).map(|k| f64::from(x[row * WIDTH + k]) * f64::from(m[k * HIDDEN + unit])).sum()
            };
            let mut y = vec![0f64; WIDTH];
            for unit in 0..HIDDEN {
                let g = times(&gate, unit);
                let hidden = g / (1.0 + (-g).exp()) * times(&up, unit);
                for (k, y) in y.iter_mut().enumerate() {
                    *y += hidden * f64::from(down[unit * WIDTH + k]);
                }
            }
            for (k, y) in y.iter().enumerate() {
                worst = worst.max((y - f64::from(computed[row * WIDTH + k])).abs());
            }
        }
    }
    println!("{DEVICES} devices with a quarter of the weights each; largest difference from f64: {worst:.1e}");
    if worst > 1e-4 { Err("the devices do not give the layer's result".into()) } else { Ok(()) }
}

//! A layer cut over four devices gives the same as the whole layer on one.
//!
//! The program in `examples/tensor_parallel_mlp.hlo` runs on four virtual devices, each with its quarter of the hidden
//! units; the result is compared with the layer computed here in plain Rust and f64.

#![allow(clippy::print_stdout, reason = "an example shows what it found")]

use hloom::Array;
use hloom::arrays::SplitMix;
use hloom::eval::{DeviceGrid, Options};
use hloom::value::Value;
use std::error::Error;

const PROGRAM: &str = include_str!("../../../examples/tensor_parallel_mlp.hlo");
const BATCH: usize = 32;
const WIDTH: usize = 256;
const DEVICES: usize = 4;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let program = hloom::parse(PROGRAM)?;
    let mut random = SplitMix(7);
    let mut numbers = |n: usize| -> Vec<f32> {
        (0..n).map(|_| (random.next() >> 40) as f32 / (1u64 << 24) as f32 / 8.0 - 0.0625).collect()
    };
    let (x, b_out) = (numbers(BATCH * WIDTH), numbers(WIDTH));
    let parts: Vec<_> =
        (0..DEVICES).map(|_| (numbers(WIDTH * WIDTH), numbers(WIDTH), numbers(WIDTH * WIDTH))).collect();

    let (b, w) = (BATCH as i64, WIDTH as i64);
    let array = |dims: &[i64], v: &[f32]| Array::new(dims, v).map(Value::Array).ok_or("wrong number of elements");
    let mut inputs = Vec::new();
    for (w_in, b_in, w_out) in &parts {
        inputs.push(vec![
            array(&[b, w], &x)?,
            array(&[w, w], w_in)?,
            array(&[w], b_in)?,
            array(&[w, w], w_out)?,
            array(&[w], &b_out)?,
        ]);
    }
    let grid = DeviceGrid { replicas: 1, partitions: DEVICES };
    let results =
        hloom::eval::run(&program, grid, inputs, &Options::default()).map_err(|f| f.into_diagnostic().to_string())?;

    // The whole layer, one row at a time.
    let mut worst = 0f64;
    for row in 0..BATCH {
        let mut y: Vec<f64> = b_out.iter().map(|&v| f64::from(v)).collect();
        for (w_in, b_in, w_out) in &parts {
            for unit in 0..WIDTH {
                let sum: f64 =
                    (0..WIDTH).map(|k| f64::from(x[row * WIDTH + k]) * f64::from(w_in[k * WIDTH + unit])).sum();
                let active = (sum + f64::from(b_in[unit])).tanh();
                for (k, y) in y.iter_mut().enumerate() {
                    *y += active * f64::from(w_out[unit * WIDTH + k]);
                }
            }
        }
        for result in &results {
            let computed = result.as_array().ok().and_then(|a| a.as_slice::<f32>()).ok_or("the result is not f32")?;
            for (k, y) in y.iter().enumerate() {
                worst = worst.max((y - f64::from(computed[row * WIDTH + k])).abs());
            }
        }
    }
    println!(
        "{DEVICES} devices, {BATCH} × {WIDTH} results each; largest difference from the whole layer in f64: {worst:.1e}"
    );
    if worst > 1e-5 { Err("the devices do not give the layer's result".into()) } else { Ok(()) }
}

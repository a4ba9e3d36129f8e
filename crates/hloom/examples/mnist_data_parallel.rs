//! Training on eight devices: `examples/mnist_data_parallel.hlo` is one step; here it is taken thirty times on images of
//! digits, and the loss falls.
//!
//! The images are drawn here (seven-segment digits, moved about, with noise), so that nothing has to be downloaded.

#![allow(clippy::print_stdout, reason = "an example shows what it found")]

use hloom::Array;
use hloom::arrays::SplitMix;
use hloom::eval::{DeviceGrid, Options};
use hloom::value::Value;
use std::error::Error;

const PROGRAM: &str = include_str!("../../../examples/mnist_data_parallel.hlo");
const DEVICES: usize = 8;
const IMAGES: usize = 16;
const STEPS: usize = 30;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let program = hloom::parse(PROGRAM)?;
    let mut random = SplitMix(3);
    let mut weights = vec![
        weight(&[784, 64], 0.05, &mut random)?,
        weight(&[64], 0.0, &mut random)?,
        weight(&[64, 10], 0.1, &mut random)?,
        weight(&[10], 0.0, &mut random)?,
    ];
    let rate = array(&[], &[0.5])?;
    let grid = DeviceGrid { replicas: DEVICES, partitions: 1 };
    let (mut first, mut last) = (f32::NAN, f32::NAN);
    for step in 0..STEPS {
        let mut inputs = Vec::new();
        for _ in 0..DEVICES {
            let (images, labels) = draw(&mut random);
            let mut arguments = weights.clone();
            arguments.push(array(&[IMAGES as i64, 784], &images)?);
            arguments.push(array(&[IMAGES as i64, 10], &labels)?);
            arguments.push(rate.clone());
            inputs.push(arguments);
        }
        let results = hloom::eval::run(&program, grid, inputs, &Options::default())
            .map_err(|f| f.into_diagnostic().to_string())?;
        // Every device has taken the same step; device 0 tells.
        let mut values = results.into_iter().next().ok_or("no device")?.into_tuple().map_err(|_| "not a tuple")?;
        let loss = values.pop().ok_or("no loss")?;
        last =
            loss.as_array().ok().and_then(|a| a.as_slice::<f32>()).and_then(|s| s.first().copied()).ok_or("no loss")?;
        if step == 0 {
            first = last;
        }
        weights = values;
        if step % 5 == 0 || step + 1 == STEPS {
            println!("step {step:2}: loss {last:.4}");
        }
    }
    if last < first / 2.0 { Ok(()) } else { Err("the loss did not fall".into()) }
}

fn array(dims: &[i64], elements: &[f32]) -> Result<Value, Box<dyn Error>> {
    Ok(Value::Array(Array::new(dims, elements).ok_or("wrong number of elements")?))
}

/// Random weights within ±`size`.
fn weight(dims: &[i64], size: f32, random: &mut SplitMix) -> Result<Value, Box<dyn Error>> {
    let count = dims.iter().product::<i64>() as usize;
    let numbers: Vec<f32> = (0..count).map(|_| size * (2.0 * unit(random) - 1.0)).collect();
    array(dims, &numbers)
}

/// A random number in [0, 1).
fn unit(random: &mut SplitMix) -> f32 {
    (random.next() >> 40) as f32 / (1u64 << 24) as f32
}

/// Images of random digits, 28 × 28 each, and their labels.
fn draw(random: &mut SplitMix) -> (Vec<f32>, Vec<f32>) {
    // Which of the segments top, upper left, upper right, middle, lower left, lower right, bottom a digit has.
    const SEGMENTS: [u8; 10] =
        [0b1110111, 0b0010010, 0b1011101, 0b1011011, 0b0111010, 0b1101011, 0b1101111, 0b1010010, 0b1111111, 0b1111011];
    // Each segment as (row, column, height, width).
    const PLACES: [(usize, usize, usize, usize); 7] =
        [(4, 9, 2, 10), (4, 8, 10, 2), (4, 18, 10, 2), (13, 9, 2, 10), (14, 8, 10, 2), (14, 18, 10, 2), (22, 9, 2, 10)];
    let (mut images, mut labels) = (vec![0.0; IMAGES * 784], vec![0.0; IMAGES * 10]);
    for n in 0..IMAGES {
        let digit = (random.next() % 10) as usize;
        labels[n * 10 + digit] = 1.0;
        let (down, right) = ((random.next() % 3) as usize, (random.next() % 3) as usize);
        let image = &mut images[n * 784..(n + 1) * 784];
        for (s, &(row, column, height, width)) in PLACES.iter().enumerate() {
            if SEGMENTS[digit] >> (6 - s) & 1 == 1 {
                for r in row + down..row + down + height {
                    image[r * 28 + column + right..r * 28 + column + right + width].fill(1.0);
                }
            }
        }
        image.iter_mut().for_each(|pixel| *pixel += 0.2 * unit(random));
    }
    (images, labels)
}

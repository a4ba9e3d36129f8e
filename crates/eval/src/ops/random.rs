//! Random numbers: the counter-based generators Philox 4x32-10 and ThreeFry 2x32-20 (Salmon et al., "Parallel random
//! numbers: as easy as 1, 2, 3"), bit for bit as XLA arranges their output, and rng, whose values XLA leaves open.

use crate::interpreter::{Device, OperandValues};
use crate::ops::data_movement::array_shape;
use crate::ops::{arrays, elementwise};
use hloom_ir::attributes::{RngAlgorithm, RngDistribution};
use hloom_ir::diagnostic::codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::layout::DimVec;
use hloom_ir::op::Op;
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    match &module[i].op {
        Op::RngBitGenerator { algorithm } => {
            let [state] = arrays(operands)?;
            let shape = match &module[i].shape {
                Shape::Tuple(t) => t.get(1).and_then(Shape::as_array),
                single => single.as_array(),
            };
            let shape = shape.ok_or_else(|| ExecutionError::bug("rng-bit-generator makes no array"))?;
            let (state, bits) = match algorithm {
                RngAlgorithm::ThreeFry => three_fry_bits(state, shape)?,
                RngAlgorithm::Philox | RngAlgorithm::Default => philox_bits(state, shape)?,
            };
            Ok(match &module[i].shape {
                Shape::Tuple(_) => Value::Tuple(vec![Value::Array(state), Value::Array(bits)]),
                _ => Value::Array(bits),
            })
        }
        Op::RngGetAndUpdateState { delta } => {
            let state = device.random_state;
            device.random_state = state.wrapping_add(*delta as u128);
            Array::from_elements(ElementType::U64, &[2], &[state as u64, (state >> 64) as u64]).map(Value::Array)
        }
        Op::Rng { distribution } => {
            let [a, b] = arrays(operands)?;
            let key = ((i.index() as u64) << 32) | device.ordinal as u64;
            device.random_state = device.random_state.wrapping_add(1);
            let seed = device.random_state as u64;
            random(&a, &b, *distribution, array_shape(&module[i].shape)?, key, seed).map(Value::Array)
        }
        other => Err(ExecutionError::bug(format!("{} makes no random numbers", other.opcode()))),
    }
}

/// One block of Philox 4x32 with 10 rounds.
fn philox(counter: u128, key: u64) -> [u32; 4] {
    let mut x = [counter as u32, (counter >> 32) as u32, (counter >> 64) as u32, (counter >> 96) as u32];
    let mut k = [key as u32, (key >> 32) as u32];
    for _ in 0..10 {
        let a = u64::from(x[0]) * 0xD251_1F53;
        let b = u64::from(x[2]) * 0xCD9E_8D57;
        x = [(b >> 32) as u32 ^ x[1] ^ k[0], b as u32, (a >> 32) as u32 ^ x[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    x
}

/// One block of ThreeFry 2x32 with 20 rounds.
fn three_fry(counter: u64, key: u64) -> [u32; 2] {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let k = [key as u32, (key >> 32) as u32];
    let keys = [k[0], k[1], 0x1BD1_1BDA ^ k[0] ^ k[1]];
    let mut x = [(counter as u32).wrapping_add(keys[0]), ((counter >> 32) as u32).wrapping_add(keys[1])];
    for group in 0..5u32 {
        for rotation in ROTATIONS[group as usize % 2] {
            x[0] = x[0].wrapping_add(x[1]);
            x[1] = x[1].rotate_left(rotation) ^ x[0];
        }
        let (a, b) = (keys[(group as usize + 1) % 3], keys[(group as usize + 2) % 3]);
        x = [x[0].wrapping_add(a), x[1].wrapping_add(b).wrapping_add(group + 1)];
    }
    x
}

/// The 64-bit words of a generator's state, whatever integer type it is stored in.
fn state_words(state: &Array) -> Result<Vec<u64>, ExecutionError> {
    let words: Vec<u64> =
        state.bytes().chunks_exact(8).map(|b| b.iter().rev().fold(0, |n, &x| n << 8 | u64::from(x))).collect();
    if words.len() < 2 || !state.bytes().len().is_multiple_of(8) {
        return Err(ExecutionError::new(
            &codes::eval::UNSUPPORTED,
            format!(
                "the state of a random generator is two or more words of 64 bits, not {} bytes",
                state.bytes().len()
            ),
        ));
    }
    Ok(words)
}

fn with_words(state: Array, words: &[u64]) -> Result<Array, ExecutionError> {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    Array::from_bytes(state.element_type(), state.dims(), &bytes)
}

/// `count` elements of `width` bytes from 64-bit random words; narrow ones are the low bytes.
fn fill(shape: &ArrayShape, mut word: impl FnMut(usize) -> u64) -> Result<Array, ExecutionError> {
    let mut result = Array::zeroed(shape.element_type, shape.dims())?;
    let width = shape.element_type.bytes();
    if width > 8 {
        return Err(ExecutionError::new(
            &codes::eval::UNSUPPORTED,
            format!("random bits of {} are not defined", shape.element_type),
        ));
    }
    for (n, element) in result.bytes_mut().chunks_exact_mut(width).enumerate() {
        element.copy_from_slice(&word(n).to_le_bytes()[..width]);
    }
    Ok(result)
}

/// Philox: the state is the key and a 128-bit counter (three words), or the key doubles as the counter's high word (two).
fn philox_bits(state: Array, shape: &ArrayShape) -> Result<(Array, Array), ExecutionError> {
    let mut words = state_words(&state)?;
    let key = words[0];
    let high = words.get(2).copied().unwrap_or(key);
    let counter = u128::from(high) << 64 | u128::from(words[1]);
    let wide = shape.element_type.bytes() == 8;
    let mut block = (u128::MAX, [0u32; 4]);
    let mut words_at = |n: usize| {
        let number = counter.wrapping_add((n / 4) as u128);
        if block.0 != number || n.is_multiple_of(4) {
            block = (number, philox(number, key));
        }
        block.1[n % 4]
    };
    let bits = fill(shape, |n| match wide {
        true => u64::from(words_at(2 * n)) | u64::from(words_at(2 * n + 1)) << 32,
        false => u64::from(words_at(n)),
    })?;
    let blocks = (bits.len() * if wide { 2 } else { 1 }).div_ceil(4);
    let next = counter.wrapping_add(blocks as u128);
    words[1] = next as u64;
    if let Some(word) = words.get_mut(2) {
        *word = (next >> 64) as u64;
    }
    Ok((with_words(state, &words)?, bits))
}

/// ThreeFry: the state is the key and a 64-bit counter. A block gives one 64-bit element; for narrower elements one
/// dimension is halved and a block gives two neighbours along it.
fn three_fry_bits(state: Array, shape: &ArrayShape) -> Result<(Array, Array), ExecutionError> {
    let mut words = state_words(&state)?;
    let (key, counter) = (words[0], words[1]);
    let dims = shape.dims();
    if shape.element_type.bytes() == 8 {
        let bits = fill(shape, |n| {
            let [low, high] = three_fry(counter.wrapping_add(n as u64), key);
            u64::from(low) | u64::from(high) << 32
        })?;
        words[1] = counter.wrapping_add(bits.len() as u64);
        return Ok((with_words(state, &words)?, bits));
    }
    // The dimension that is halved: the first even one, otherwise the first of the largest.
    let largest = dims.iter().copied().max().unwrap_or(1);
    let split = dims.iter().position(|d| d % 2 == 0).or_else(|| dims.iter().position(|&d| d == largest));
    let mut half: DimVec = dims.into();
    if let Some(d) = split {
        half[d] = dims[d] / 2 + dims[d] % 2;
    }
    let half_strides = hloom_value::array::strides(&half);
    let strides = hloom_value::array::strides(dims);
    let bits = fill(shape, |n| {
        let (mut block, mut word) = (0, 0);
        for (d, (&stride, &size)) in strides.iter().zip(dims).enumerate() {
            let mut index = n as i64 / stride % size;
            if split == Some(d) {
                word = (index % 2) as usize;
                index /= 2;
            }
            block += index * half_strides[d];
        }
        u64::from(three_fry(counter.wrapping_add(block as u64), key)[word])
    })?;
    words[1] = counter.wrapping_add(half.iter().product::<i64>() as u64);
    Ok((with_words(state, &words)?, bits))
}

/// Values of rng: XLA promises the distribution only, so any good generator will do; ours is repeatable.
fn random(
    a: &Array,
    b: &Array,
    distribution: RngDistribution,
    shape: &ArrayShape,
    key: u64,
    seed: u64,
) -> Result<Array, ExecutionError> {
    let element_type = shape.element_type;
    let words = |n: usize| {
        let [w0, w1, w2, w3] = philox(u128::from(seed) << 64 | n as u128, key);
        (u64::from(w0) << 32 | u64::from(w1), u64::from(w2) << 32 | u64::from(w3))
    };
    let unit = |word: u64| (word >> 11) as f64 / (1u64 << 53) as f64;
    if element_type.is_integer() || element_type == ElementType::Pred {
        let (low, high) = (a.to_i64()?, b.to_i64()?);
        let span = (i128::from(high) - i128::from(low)).max(1) as u128;
        let mut numbers = Array::zeroed(ElementType::S64, shape.dims())?;
        for (n, x) in numbers.elements_mut::<i64>().iter_mut().enumerate() {
            *x = low.wrapping_add((u128::from(words(n).0) % span) as i64);
        }
        return elementwise::convert(numbers, element_type);
    }
    let as_f64 =
        |x: &Array| Ok::<f64, ExecutionError>(elementwise::convert(x.clone(), ElementType::F64)?.elements::<f64>()[0]);
    let (a, b) = (as_f64(a)?, as_f64(b)?);
    let mut numbers = Array::zeroed(ElementType::F64, shape.dims())?;
    for (n, x) in numbers.elements_mut::<f64>().iter_mut().enumerate() {
        let (first, second) = words(n);
        *x = match distribution {
            RngDistribution::Uniform => a + (b - a) * unit(first),
            // Box and Muller; 1 - u is never zero.
            RngDistribution::Normal => {
                a + b * (-2.0 * (1.0 - unit(first)).ln()).sqrt() * (std::f64::consts::TAU * unit(second)).cos()
            }
        };
    }
    elementwise::convert(numbers, element_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors that the authors of the generators publish.
    #[test]
    fn generators_give_the_published_answers() {
        assert_eq!(philox(0, 0), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(philox(u128::MAX, u64::MAX), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        assert_eq!(three_fry(0, 0), [0x6b200159, 0x99ba4efe]);
        assert_eq!(three_fry(u64::MAX, u64::MAX), [0x1cb996fc, 0xbb002be7]);
    }
}

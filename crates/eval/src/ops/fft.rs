//! Fourier transforms: forward and inverse, complex and real, over the last one to three dimensions.
//!
//! Computed in c128 by mixed-radix decimation in time: a length is split by its smallest prime factor, and a prime length
//! is summed as the definition says.

use crate::interpreter::{Device, OperandValues};
use crate::ops::arrays;
use crate::ops::data_movement::{array_shape, slice_to};
use crate::ops::dynamic::resize;
use crate::ops::elementwise::convert;
use hloom_ir::attributes::FftType;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::Op;
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};
use num_complex::Complex;

type C = Complex<f64>;

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let Op::Fft { kind, length } = &module[i].op else { return Err(ExecutionError::bug("not a Fourier transform")) };
    let [operand] = arrays(operands)?;
    let shape = array_shape(&module[i].shape)?;
    transform(operand, *kind, length, shape.element_type, shape.dims()).map(Value::Array)
}

fn transform(
    operand: Array,
    kind: FftType,
    length: &[i64],
    to: ElementType,
    dims: &[i64],
) -> Result<Array, ExecutionError> {
    let first =
        operand.rank().checked_sub(length.len()).ok_or_else(|| ExecutionError::bug("too many transform lengths"))?;
    if length.contains(&0) {
        return Array::zeroed(to, dims);
    }
    let mut x = convert(operand, ElementType::C128)?;
    match kind {
        FftType::Fft | FftType::Ifft | FftType::Rfft => {
            for d in first..x.rank() {
                along(&mut x, d, kind == FftType::Ifft);
            }
            if kind == FftType::Rfft {
                // A real signal's spectrum is symmetric: half of it is kept.
                let mut sizes: DimVec = x.dims().into();
                if let Some(last) = sizes.last_mut() {
                    *last = if *last == 0 { 0 } else { *last / 2 + 1 };
                }
                x = slice_to(&x, &sizes)?;
            }
        }
        FftType::Irfft => {
            for d in first..x.rank().saturating_sub(1) {
                along(&mut x, d, true);
            }
            x = mirrored(&x, length.last().copied().unwrap_or(0))?;
            let last = x.rank() - 1;
            along(&mut x, last, true);
        }
    }
    convert(x, to)
}

/// The whole spectrum of a real signal of that length from the half that is stored.
fn mirrored(half: &Array, length: i64) -> Result<Array, ExecutionError> {
    let mut dims: DimVec = half.dims().into();
    let last = dims.len() - 1;
    let stored = dims[last] as usize;
    dims[last] = length;
    let mut whole = resize(half, &dims)?;
    let n = length as usize;
    if n == 0 {
        return Ok(whole);
    }
    let source = half.elements::<C>();
    for (row, line) in whole.elements_mut::<C>().chunks_exact_mut(n).enumerate() {
        let half = &source[row * stored..(row + 1) * stored];
        for (k, element) in line.iter_mut().enumerate() {
            // The parts that must be real for a real signal are taken as real.
            let from = if k <= n / 2 { half.get(k).copied() } else { half.get(n - k).map(|c| c.conj()) };
            let value = from.unwrap_or_default();
            *element = if k == 0 || 2 * k == n { C::new(value.re, 0.0) } else { value };
        }
    }
    Ok(whole)
}

/// Transforms along one dimension, in place.
fn along(x: &mut Array, dimension: usize, inverse: bool) {
    let n = x.dims()[dimension] as usize;
    let stride = x.strides()[dimension] as usize;
    if n == 0 {
        return;
    }
    let sign = if inverse { 1.0 } else { -1.0 };
    let roots: Vec<C> =
        (0..n).map(|k| C::from_polar(1.0, sign * std::f64::consts::TAU * k as f64 / n as f64)).collect();
    let scale = if inverse { 1.0 / n as f64 } else { 1.0 };
    let elements = x.elements_mut::<C>();
    let mut line = vec![C::default(); n];
    for start in 0..elements.len() {
        // The first element of each line along the dimension.
        if !(start / stride).is_multiple_of(n) {
            continue;
        }
        for (k, value) in line.iter_mut().enumerate() {
            *value = elements[start + k * stride];
        }
        for (k, value) in mixed_radix(&line, &roots, 1).into_iter().enumerate() {
            elements[start + k * stride] = value * scale;
        }
    }
}

/// The transform of `line`, whose roots of unity are every `step`-th of `roots`.
fn mixed_radix(line: &[C], roots: &[C], step: usize) -> Vec<C> {
    let n = line.len();
    let radix = (2..).take_while(|r| r * r <= n).find(|&r| n.is_multiple_of(r)).unwrap_or(n);
    let root = |k: usize| roots[k * step % roots.len()];
    if radix == n {
        return (0..n).map(|k| line.iter().enumerate().map(|(j, x)| x * root(j * k % n)).sum()).collect();
    }
    let m = n / radix;
    let parts: Vec<Vec<C>> = (0..radix)
        .map(|r| mixed_radix(&line.iter().skip(r).step_by(radix).copied().collect::<Vec<_>>(), roots, step * radix))
        .collect();
    (0..n).map(|k| parts.iter().enumerate().map(|(r, part)| part[k % m] * root(r * k % n)).sum()).collect()
}

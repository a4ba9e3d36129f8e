//! Random bits as JAX's kernel for GPUs makes them: `cu_threefry2x32_ffi`, the cipher Threefry with two words of 32 bits.

use super::{CustomCalls, shaped, unsupported};
use crate::interpreter::{Device, OperandValues};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_value::ExecutionError;
use hloom_value::array::{Array, Value};

pub(super) fn register(calls: &mut CustomCalls) {
    for target in ["cu_threefry2x32", "cu_threefry2x32_ffi", "hip_threefry2x32", "hip_threefry2x32_ffi"] {
        calls.register(target, Box::new(threefry));
    }
}

/// Two words of the key and two of the counter for each element give two words.
fn threefry(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let mut arrays = operands.into_iter().map(Value::into_array).collect::<Result<Vec<_>, _>>()?;
    // Where the number of elements is given too, it comes last.
    arrays.truncate(4);
    let [key0, key1, counter0, counter1] = &arrays[..] else {
        return Err(unsupported(device, i, "it needs two words of a key and two of a counter"));
    };
    let dims = key0.dims();
    if arrays.iter().any(|a| a.element_type() != ElementType::U32 || a.dims() != dims) {
        return Err(unsupported(device, i, "its operands are not u32 of one shape"));
    }
    let keys = key0.elements::<u32>().iter().zip(key1.elements::<u32>());
    let counters = counter0.elements::<u32>().iter().zip(counter1.elements::<u32>());
    let (first, second): (Vec<u32>, Vec<u32>) =
        keys.zip(counters).map(|((&k0, &k1), (&c0, &c1))| encrypt([k0, k1], [c0, c1])).unzip();
    let array = |words: &[u32]| Array::from_elements(ElementType::U32, dims, words).map(Value::Array);
    shaped(&device.module()[i].shape, vec![array(&first)?, array(&second)?])
}

/// Threefry-2x32 with twenty rounds.
fn encrypt(key: [u32; 2], counter: [u32; 2]) -> (u32, u32) {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    const PARITY: u32 = 0x1BD1_1BDA;
    let keys = [key[0], key[1], key[0] ^ key[1] ^ PARITY];
    let (mut a, mut b) = (counter[0].wrapping_add(keys[0]), counter[1].wrapping_add(keys[1]));
    for group in 0..5u32 {
        for rotation in ROTATIONS[group as usize % 2] {
            a = a.wrapping_add(b);
            b = b.rotate_left(rotation) ^ a;
        }
        let next = group as usize + 1;
        a = a.wrapping_add(keys[next % 3]);
        b = b.wrapping_add(keys[(next + 1) % 3]).wrapping_add(group + 1);
    }
    (a, b)
}

#[cfg(test)]
mod tests {
    use super::encrypt;

    /// The vectors that the authors of the cipher published with it.
    #[test]
    fn threefry_agrees_with_the_published_vectors() {
        assert_eq!(encrypt([0, 0], [0, 0]), (0x6b20_0159, 0x99ba_4efe));
        assert_eq!(encrypt([!0, !0], [!0, !0]), (0x1cb9_96fc, 0xbb00_2be7));
        assert_eq!(encrypt([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]), (0xc492_3a9c, 0x483d_f7a0));
    }
}

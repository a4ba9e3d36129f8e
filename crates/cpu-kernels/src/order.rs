//! Orders of numbers, and keys for them: unsigned integers that are ordered the same way.

use hloom_numerics::small_float::Format;

/// The type of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names of the types")]
pub enum KeyType {
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    Bf16,
    F32,
    F64,
    /// Floats of at most 8 bits, in a byte each.
    Small(Format),
}

impl KeyType {
    /// The size of an element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            KeyType::U8 | KeyType::S8 | KeyType::Small(_) => 1,
            KeyType::U16 | KeyType::S16 | KeyType::F16 | KeyType::Bf16 => 2,
            KeyType::U32 | KeyType::S32 | KeyType::F32 => 4,
            KeyType::U64 | KeyType::S64 | KeyType::F64 => 8,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unsigned,
    Signed,
    Float,
}

impl KeyType {
    /// How many bits the keys have.
    pub fn key_bits(self) -> u32 {
        match self {
            // They are all bf16 numbers, and ordered as such.
            KeyType::Small(_) => 16,
            _ => 8 * self.bytes() as u32,
        }
    }

    fn kind(self) -> Kind {
        match self {
            KeyType::U8 | KeyType::U16 | KeyType::U32 | KeyType::U64 => Kind::Unsigned,
            KeyType::S8 | KeyType::S16 | KeyType::S32 | KeyType::S64 => Kind::Signed,
            KeyType::F16 | KeyType::Bf16 | KeyType::F32 | KeyType::F64 | KeyType::Small(_) => Kind::Float,
        }
    }

    /// The bits of infinity, of floats: what is above is no number.
    fn infinity(self) -> u64 {
        match self {
            KeyType::F16 => 0x7c00,
            KeyType::Bf16 | KeyType::Small(_) => 0x7f80,
            KeyType::F32 => 0x7f80_0000,
            _ => 0x7ff0_0000_0000_0000,
        }
    }
}

/// How floats are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FloatOrder {
    /// By value: both zeros are equal, a NaN is above all numbers.
    Numeric,
    /// By the total order of IEEE 754: -NaN, -inf … -0, +0 … inf, NaN.
    Total,
}

/// An order of numbers of one type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// Their type.
    pub key_type: KeyType,
    /// Their order, if they are floats.
    pub float_order: FloatOrder,
    /// The largest come first.
    pub descending: bool,
}

impl Order {
    /// The keys of elements that stand one after another, after those that `keys` holds already.
    pub fn keys(&self, elements: &[u8], keys: &mut Vec<u64>) {
        let (sign, infinity) = (1u64 << (self.key_type.key_bits() - 1), self.key_type.infinity());
        if let KeyType::Small(format) = self.key_type {
            let bits = |&code: &u8| self.float(bf16_bits(&format, code), sign, infinity);
            return keys.extend(elements.iter().map(bits));
        }
        match (self.key_type.bytes(), self.key_type.kind(), self.float_order) {
            (1, ..) => keys.extend(elements.iter().map(|&b| self.integer(u64::from(b), sign))),
            (2, Kind::Float, _) => {
                keys.extend(raw(elements, u16::from_le_bytes).map(|r| self.float(r, sign, infinity)))
            }
            (2, ..) => keys.extend(raw(elements, u16::from_le_bytes).map(|r| self.integer(r, sign))),
            (4, Kind::Float, FloatOrder::Total) => {
                // The commonest, and without a branch.
                let flip = if self.descending { u32::MAX } else { 0 };
                keys.extend(elements.as_chunks::<4>().0.iter().map(|&b| {
                    let raw = u32::from_le_bytes(b);
                    let mask = ((raw as i32 >> 31) as u32) | 0x8000_0000;
                    u64::from(raw ^ mask ^ flip)
                }));
            }
            (4, Kind::Float, _) => {
                keys.extend(raw(elements, u32::from_le_bytes).map(|r| self.float(r, sign, infinity)))
            }
            (4, ..) => keys.extend(raw(elements, u32::from_le_bytes).map(|r| self.integer(r, sign))),
            (_, Kind::Float, _) => {
                keys.extend(raw(elements, u64::from_le_bytes).map(|r| self.float(r, sign, infinity)))
            }
            _ => keys.extend(raw(elements, u64::from_le_bytes).map(|r| self.integer(r, sign))),
        }
    }

    #[inline(always)]
    fn integer(&self, raw: u64, sign: u64) -> u64 {
        let key = if self.key_type.kind() == Kind::Signed { raw ^ sign } else { raw };
        if self.descending { !key & (sign | (sign - 1)) } else { key }
    }

    #[inline(always)]
    fn float(&self, raw: u64, sign: u64, infinity: u64) -> u64 {
        let (mask, size) = (sign | (sign - 1), raw & (sign - 1));
        let key = match self.float_order {
            FloatOrder::Numeric if size > infinity => mask,
            FloatOrder::Numeric if size == 0 => sign,
            _ if raw & sign != 0 => !raw & mask,
            _ => raw | sign,
        };
        if self.descending { !key & mask } else { key }
    }
}

/// The bits of the bf16 that a code stands for.
fn bf16_bits(format: &Format, code: u8) -> u64 {
    let wide = format.decode_bits(code.into());
    let magnitude = if format.is_nan(code.into()) { f32::NAN } else { f64::from_bits(wide & !(1 << 63)) as f32 };
    u64::from(magnitude.to_bits() & 0x7fff_ffff) >> 16 | (wide >> 63) << 15
}

/// The bits of each element.
fn raw<T: Into<u64>, const N: usize>(elements: &[u8], bits: fn([u8; N]) -> T) -> impl Iterator<Item = u64> {
    elements.as_chunks::<N>().0.iter().map(move |&b| bits(b).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_numerics::small_float::{F4E2M1FN, F8E4M3B11FNUZ, F8E4M3FN, F8E5M2, F8E8M0FNU, SmallFloat};

    /// Two codes are ordered as the f32 they stand for, by both orders and both ways.
    fn is_order_of<F: SmallFloat>() {
        for float_order in [FloatOrder::Numeric, FloatOrder::Total] {
            for descending in [false, true] {
                let of = |key_type| Order { key_type, float_order, descending };
                let (mut small, mut wide) = (Vec::new(), Vec::new());
                let codes: Vec<u8> = (0..=255).collect();
                of(KeyType::Small(F::FORMAT)).keys(&codes, &mut small);
                let values: Vec<u8> = codes.iter().flat_map(|&c| F::from_bits(c).to_f32().to_le_bytes()).collect();
                of(KeyType::F32).keys(&values, &mut wide);
                for (a, b) in codes.iter().flat_map(|&a| codes.iter().map(move |&b| (a as usize, b as usize))) {
                    let name = F::FORMAT.name;
                    assert_eq!(small[a].cmp(&small[b]), wide[a].cmp(&wide[b]), "{name} {a:#x} {b:#x} {float_order:?}");
                }
                assert!(small.iter().all(|&k| k < 1 << 16));
            }
        }
    }

    #[test]
    fn small_floats_are_ordered_as_the_numbers_they_stand_for() {
        is_order_of::<F8E5M2>();
        is_order_of::<F8E4M3FN>();
        is_order_of::<F8E4M3B11FNUZ>();
        is_order_of::<F8E8M0FNU>();
        is_order_of::<F4E2M1FN>();
    }
}

//! Orders of numbers, and keys for them: unsigned integers that are ordered the same way.

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
}

impl KeyType {
    /// The size of a key in bytes.
    pub fn bytes(self) -> usize {
        match self {
            KeyType::U8 | KeyType::S8 => 1,
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
    fn kind(self) -> Kind {
        match self {
            KeyType::U8 | KeyType::U16 | KeyType::U32 | KeyType::U64 => Kind::Unsigned,
            KeyType::S8 | KeyType::S16 | KeyType::S32 | KeyType::S64 => Kind::Signed,
            KeyType::F16 | KeyType::Bf16 | KeyType::F32 | KeyType::F64 => Kind::Float,
        }
    }

    /// The bits of infinity, of floats: what is above is no number.
    fn infinity(self) -> u64 {
        match self {
            KeyType::F16 => 0x7c00,
            KeyType::Bf16 => 0x7f80,
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
        let (sign, infinity) = (1u64 << (8 * self.key_type.bytes() - 1), self.key_type.infinity());
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

/// The bits of each element.
fn raw<T: Into<u64>, const N: usize>(elements: &[u8], bits: fn([u8; N]) -> T) -> impl Iterator<Item = u64> {
    elements.as_chunks::<N>().0.iter().map(move |&b| bits(b).into())
}

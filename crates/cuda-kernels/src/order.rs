//! Orders of numbers as unsigned integers: what sorting and top-k compare.
//!
//! A key's bits are mapped so that unsigned comparison gives the order wanted. The map need not be invertible (both zeros,
//! or all NaNs, may be equal): what is moved is always the key itself.

use serde::{Deserialize, Serialize};

use crate::number::Number;
use crate::ptx::{PtxBuilder, Reg, at, def, emit};

/// How floats that comparisons find strange are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum FloatOrder {
    /// IEEE's total order: −NaN, −∞, …, −0, +0, …, ∞, NaN.
    Total,
    /// Zeros are equal, NaNs are equal and above all else.
    Canonical,
}

/// An order of keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct KeyOrder {
    /// The type of keys.
    pub key: Number,
    /// What is done about zeros and NaNs.
    pub floats: FloatOrder,
    /// Whether the largest comes first.
    pub descending: bool,
}

impl KeyOrder {
    /// Whether keys are held in 64 bits.
    pub(crate) fn is_wide(self) -> bool {
        self.key.bytes() == 8
    }

    /// Bits of a key.
    pub(crate) fn bits(self) -> u32 {
        8 * self.key.bytes()
    }

    /// Loads the bits of a key, zero-extended to 32 (or 64).
    pub(crate) fn load(self, k: &mut PtxBuilder, target: Reg, base: Reg, offset: i64) {
        emit!(k, &format!("ld.global.u{}", self.bits()), target, at(base, offset));
    }

    /// The bits of a key as an unsigned number, smaller if the key comes earlier.
    pub(crate) fn rank_bits(self, k: &mut PtxBuilder, key: Reg) -> Reg {
        let bits = self.bits();
        let wide = self.is_wide();
        let word = if wide { 64 } else { 32 };
        let class = key.class;
        let sign: u64 = 1 << (bits - 1);
        let all: u64 = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        let hex = |value: u64| format!("0x{value:X}");
        let op = |k: &mut PtxBuilder, name: &str, a: Reg, b: u64| {
            k.define(class, &format!("{name}.b{word}"), &[&a, &hex(b)])
        };
        let mut value = key;
        if self.key.is_float() {
            if self.floats == FloatOrder::Canonical {
                // The bits of infinity, above which (without the sign) are NaNs.
                let infinity: u64 = match self.key {
                    Number::F16 => 0x7C00,
                    Number::Bf16 => 0x7F80,
                    Number::F32 => 0x7F80_0000,
                    _ => 0x7FF0_0000_0000_0000,
                };
                let size = op(k, "and", value, all ^ sign);
                let is_zero = def!(k, Pred, &format!("setp.eq.u{word}"), size, 0);
                let is_nan = def!(k, Pred, &format!("setp.gt.u{word}"), size, hex(infinity));
                let select = format!("selp.b{word}");
                value = k.define(class, &select, &[&0, &value, &is_zero]);
                value = k.define(class, &select, &[&hex(infinity + 1), &value, &is_nan]);
            }
            // Negative numbers are turned over, the others raised above them.
            let negative = op(k, "and", value, sign);
            let is_negative = def!(k, Pred, &format!("setp.ne.u{word}"), negative, 0);
            let turned = k.define(class, &format!("selp.b{word}"), &[&hex(all), &hex(sign), &is_negative]);
            value = k.define(class, &format!("xor.b{word}"), &[&value, &turned]);
        } else if self.key.is_signed() {
            value = op(k, "xor", value, sign);
        }
        if self.descending {
            value = op(k, "xor", value, all);
        }
        value
    }
}

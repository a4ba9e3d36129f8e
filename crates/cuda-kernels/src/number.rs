//! The number types of arrays: how elements are loaded, computed with and stored.
//!
//! Integers of up to 32 bits are computed in 32, half-precision floats in single precision; what is stored is truncated
//! or rounded to the type.

use serde::{Deserialize, Serialize};

use crate::ptx::{Class, PtxBuilder, Reg, Tuple, at, def, emit};

/// The type of an array's elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Number {
    /// Unsigned, 8 bits; predicates too.
    U8,
    /// Signed, 8 bits.
    S8,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 16 bits.
    S16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    S32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    S64,
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl Number {
    /// All of them.
    pub const ALL: [Number; 12] = [
        Number::U8,
        Number::S8,
        Number::U16,
        Number::S16,
        Number::U32,
        Number::S32,
        Number::U64,
        Number::S64,
        Number::F16,
        Number::Bf16,
        Number::F32,
        Number::F64,
    ];

    /// Bytes of an element.
    pub fn bytes(self) -> u32 {
        match self {
            Number::U8 | Number::S8 => 1,
            Number::U16 | Number::S16 | Number::F16 | Number::Bf16 => 2,
            Number::U32 | Number::S32 | Number::F32 => 4,
            Number::U64 | Number::S64 | Number::F64 => 8,
        }
    }

    /// Whether it is a float.
    pub fn is_float(self) -> bool {
        matches!(self, Number::F16 | Number::Bf16 | Number::F32 | Number::F64)
    }

    /// Whether it has a sign.
    pub fn is_signed(self) -> bool {
        self.is_float() || matches!(self, Number::S8 | Number::S16 | Number::S32 | Number::S64)
    }

    /// The class of registers it is computed in.
    pub(crate) fn class(self) -> Class {
        match self {
            Number::F16 | Number::Bf16 | Number::F32 => Class::F32,
            Number::F64 => Class::F64,
            Number::U64 | Number::S64 => Class::B64,
            _ => Class::B32,
        }
    }

    /// The suffix of arithmetic on it.
    pub(crate) fn arithmetic(self) -> &'static str {
        match self {
            Number::F16 | Number::Bf16 | Number::F32 => "f32",
            Number::F64 => "f64",
            Number::U64 => "u64",
            Number::S64 => "s64",
            Number::U8 | Number::U16 | Number::U32 => "u32",
            Number::S8 | Number::S16 | Number::S32 => "s32",
        }
    }

    /// Copies a register.
    pub(crate) fn copy(self, k: &mut PtxBuilder, value: Reg) -> Reg {
        let result = k.reg(self.class());
        self.assign(k, result, value);
        result
    }

    /// Copies a register into another.
    pub(crate) fn assign(self, k: &mut PtxBuilder, target: Reg, value: Reg) {
        emit!(k, &format!("mov.{}", self.arithmetic()), target, value);
    }

    /// The opcode's types for loading a single element, and whether it is converted after.
    pub(crate) fn load(self, k: &mut PtxBuilder, target: Reg, address: crate::ptx::Address, space: &str) {
        match self {
            Number::Bf16 => {
                let bits = def!(k, B32, &format!("ld.{space}.u16"), address);
                let shifted = def!(k, B32, "shl.b32", bits, 16);
                emit!(k, "mov.b32", target, shifted);
            }
            Number::F16 => {
                let bits = def!(k, B16, &format!("ld.{space}.b16"), address);
                emit!(k, "cvt.f32.f16", target, bits);
            }
            _ => {
                let ty = match self {
                    Number::U8 => "u8",
                    Number::S8 => "s8",
                    Number::U16 => "u16",
                    Number::S16 => "s16",
                    _ => self.arithmetic(),
                };
                emit!(k, &format!("ld.{space}.{ty}"), target, address);
            }
        }
    }

    /// Stores a single element.
    pub(crate) fn store(self, k: &mut PtxBuilder, address: crate::ptx::Address, value: Reg, space: &str) {
        match self {
            Number::Bf16 | Number::F16 => {
                let ty = if self == Number::F16 { "f16" } else { "bf16" };
                let bits = def!(k, B16, &format!("cvt.rn.{ty}.f32"), value);
                emit!(k, &format!("st.{space}.b16"), address, bits);
            }
            _ => {
                let ty = match self.bytes() {
                    1 => "u8",
                    2 => "u16",
                    _ => self.arithmetic(),
                };
                emit!(k, &format!("st.{space}.{ty}"), address, value);
            }
        }
    }

    /// Loads as many adjacent elements as 16 bytes hold, in order, from an aligned address.
    pub(crate) fn load_vector(self, k: &mut PtxBuilder, base: Reg, offset: i64) -> Vec<Reg> {
        if self.bytes() == 8 {
            let values = k.regs(self.class(), 2);
            emit!(k, &format!("ld.global.v2.{}", self.arithmetic()), Tuple(&values), at(base, offset));
            return values;
        }
        let words = k.regs(Class::B32, 4);
        emit!(k, "ld.global.v4.b32", Tuple(&words), at(base, offset));
        words.into_iter().flat_map(|word| self.unpack(k, word)).collect()
    }

    fn unpack(self, k: &mut PtxBuilder, word: Reg) -> Vec<Reg> {
        match self {
            Number::F32 => vec![def!(k, F32, "mov.b32", word)],
            Number::U32 | Number::S32 => vec![word],
            Number::Bf16 => {
                let low = def!(k, B32, "shl.b32", word, 16);
                let high = def!(k, B32, "and.b32", word, "0xFFFF0000");
                [low, high].map(|bits| def!(k, F32, "mov.b32", bits)).to_vec()
            }
            Number::F16 => {
                let low = def!(k, B16, "cvt.u16.u32", word);
                let shifted = def!(k, B32, "shr.u32", word, 16);
                let high = def!(k, B16, "cvt.u16.u32", shifted);
                [low, high].map(|bits| def!(k, F32, "cvt.f32.f16", bits)).to_vec()
            }
            _ => {
                let bits = 8 * self.bytes();
                let opcode = if self.is_signed() { "shr.s32" } else { "shr.u32" };
                (0..32 / bits)
                    .map(|i| {
                        let raised = def!(k, B32, "shl.b32", word, 32 - bits * (i + 1));
                        def!(k, B32, opcode, raised, 32 - bits)
                    })
                    .collect()
            }
        }
    }

    /// Stores as many adjacent elements as 16 bytes hold, in order, to an aligned address.
    pub(crate) fn store_vector(self, k: &mut PtxBuilder, base: Reg, offset: i64, values: &[Reg]) {
        if self.bytes() == 8 {
            emit!(k, &format!("st.global.v2.{}", self.arithmetic()), at(base, offset), Tuple(values));
            return;
        }
        let words: Vec<Reg> = values.chunks(4 / self.bytes() as usize).map(|part| self.pack(k, part)).collect();
        emit!(k, "st.global.v4.b32", at(base, offset), Tuple(&words));
    }

    fn pack(self, k: &mut PtxBuilder, part: &[Reg]) -> Reg {
        match self {
            Number::F32 => def!(k, B32, "mov.b32", part[0]),
            Number::U32 | Number::S32 => part[0],
            Number::Bf16 => def!(k, B32, "cvt.rn.bf16x2.f32", part[1], part[0]),
            Number::F16 => def!(k, B32, "cvt.rn.f16x2.f32", part[1], part[0]),
            _ => {
                let bits = 8 * self.bytes();
                let mut word = def!(k, B32, "and.b32", part[0], (1u32 << bits) - 1);
                for (i, &value) in part.iter().enumerate().skip(1) {
                    let low = def!(k, B32, "and.b32", value, (1u32 << bits) - 1);
                    let raised = def!(k, B32, "shl.b32", low, bits * i as u32);
                    word = def!(k, B32, "or.b32", word, raised);
                }
                word
            }
        }
    }

    /// The bits of a value in registers of 32 bits, the lower first.
    pub(crate) fn split_words(self, k: &mut PtxBuilder, value: Reg) -> Vec<Reg> {
        match self.class() {
            Class::F32 => vec![def!(k, B32, "mov.b32", value)],
            Class::B64 | Class::F64 => {
                let bits = def!(k, B64, "mov.b64", value);
                let low = def!(k, B32, "cvt.u32.u64", bits);
                let shifted = def!(k, B64, "shr.u64", bits, 32);
                let high = def!(k, B32, "cvt.u32.u64", shifted);
                vec![low, high]
            }
            _ => vec![value],
        }
    }

    /// The reverse of [`Number::split_words`].
    pub(crate) fn join_words(self, k: &mut PtxBuilder, words: &[Reg]) -> Reg {
        match self.class() {
            Class::F32 => def!(k, F32, "mov.b32", words[0]),
            Class::B64 | Class::F64 => {
                let low = def!(k, B64, "cvt.u64.u32", words[0]);
                let high = def!(k, B64, "cvt.u64.u32", words[1]);
                let raised = def!(k, B64, "shl.b64", high, 32);
                let bits = def!(k, B64, "or.b64", low, raised);
                let result = k.reg(self.class());
                emit!(k, "mov.b64", result, bits);
                result
            }
            _ => words[0],
        }
    }

    /// A value from another lane of the warp: `mode` is `up`, `idx` or `bfly`.
    pub(crate) fn shuffle(self, k: &mut PtxBuilder, mode: &str, value: Reg, lane: u32) -> Reg {
        let clamp = if mode == "up" { 0 } else { 31 };
        let opcode = format!("shfl.sync.{mode}.b32");
        let words = self.split_words(k, value);
        let moved: Vec<Reg> = words.iter().map(|word| def!(k, B32, &opcode, word, lane, clamp, -1)).collect();
        self.join_words(k, &moved)
    }
}

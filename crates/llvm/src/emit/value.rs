//! Values of any element type in registers, and how elements lie in memory.

use super::ir::{Ir, Repr, Val, lanes};
use hloom_ir::ElementType;

/// An element (or a vector of them): its value, or its real and imaginary parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct V<'c> {
    pub(crate) re: Val<'c>,
    pub(crate) im: Option<Val<'c>>,
}

impl<'c> From<Val<'c>> for V<'c> {
    fn from(re: Val<'c>) -> V<'c> {
        V { re, im: None }
    }
}

impl<'c> V<'c> {
    pub(crate) fn complex(re: Val<'c>, im: Val<'c>) -> V<'c> {
        V { re, im: Some(im) }
    }
    pub(crate) fn lanes(self) -> u32 {
        lanes(self.re)
    }
    pub(crate) fn map(self, f: impl Fn(Val<'c>) -> Val<'c>) -> V<'c> {
        V { re: f(self.re), im: self.im.map(f) }
    }
    pub(crate) fn map2(self, other: V<'c>, f: impl Fn(Val<'c>, Val<'c>) -> Val<'c>) -> V<'c> {
        V { re: f(self.re, other.re), im: self.im.zip(other.im).map(|(a, b)| f(a, b)) }
    }
    /// The parts, one or two.
    pub(crate) fn parts(self) -> impl Iterator<Item = Val<'c>> {
        std::iter::once(self.re).chain(self.im)
    }
}

/// The type that one part of an element has in memory.
pub(crate) fn memory_repr(t: ElementType) -> Repr {
    match t {
        ElementType::Pred => Repr::I8,
        ElementType::Bf16 => Repr::I16,
        ElementType::F16 => Repr::F16,
        _ => Repr::of(t),
    }
}

impl<'c> Ir<'c> {
    /// What memory holds as the value computed with.
    pub(crate) fn of_memory(&self, v: Val<'c>, t: ElementType) -> Val<'c> {
        match t {
            ElementType::Pred => self.icmp(inkwell::IntPredicate::NE, v, self.int(Repr::I8, 0)),
            ElementType::F16 => self.fpext(v, Repr::F32),
            ElementType::Bf16 => {
                let wide = self.shl(self.zext(v, Repr::I32), self.int(Repr::I32, 16));
                self.bitcast(wide, Repr::F32)
            }
            _ => v,
        }
    }
    /// The value computed with as memory holds it.
    pub(crate) fn as_memory(&self, v: Val<'c>, t: ElementType) -> Val<'c> {
        match t {
            ElementType::Pred => self.zext(v, Repr::I8),
            ElementType::F16 => self.fptrunc(v, Repr::F16),
            ElementType::Bf16 => {
                let bits = self.lshr(self.bitcast(v, Repr::I32), self.int(Repr::I32, 16));
                self.trunc(bits, Repr::I16)
            }
            _ => v,
        }
    }
    /// The constant in these bytes.
    pub(crate) fn constant(&self, t: ElementType, bytes: &[u8]) -> V<'c> {
        let part = |bytes: &[u8]| {
            let mut wide = [0; 8];
            let width = bytes.len().min(8);
            wide[..width].copy_from_slice(&bytes[..width]);
            let bits = u64::from_le_bytes(wide);
            match t {
                ElementType::Pred => self.int(Repr::I1, i64::from(bits != 0)),
                ElementType::Bf16 => self.float_bits(Repr::F32, bits << 16),
                ElementType::F16 => self.of_memory(self.float_bits(Repr::F16, bits), t),
                ElementType::F32 | ElementType::F64 | ElementType::C64 | ElementType::C128 => {
                    self.float_bits(Repr::of(t), bits)
                }
                _ => self.int(Repr::of(t), bits as i64),
            }
        };
        if t.is_complex() {
            let (re, im) = bytes.split_at(bytes.len() / 2);
            return V::complex(part(re), part(im));
        }
        part(bytes).into()
    }
}

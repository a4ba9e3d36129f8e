//! Dense literals: the raw buffer of MLIR's dense elements, and reading it as numbers or as a literal of HLO.
//!
//! Elements are in row-major order, little-endian, one per whole number of bytes, except that `i1` is packed eight to a
//! byte. A buffer of one element stands for all of them. Nothing here makes more elements than [`MAX_SPLAT_BYTES`] out
//! of a buffer that repeats one.

use super::{DYNAMIC, Module, Signedness, Type, TypeId};
use hloom_ir::ElementType;
use std::borrow::Cow;

/// The most bytes that a repeated element is expanded to.
pub const MAX_SPLAT_BYTES: i64 = 1 << 28;

/// `dense<…> : tensor<…>`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense<'a> {
    /// The type of the tensor.
    pub ty: TypeId,
    /// The buffer.
    pub data: Cow<'a, [u8]>,
}

/// What a dense literal holds.
#[derive(Debug)]
pub enum Elements<'d> {
    /// One element, repeated.
    Splat(Cow<'d, [u8]>),
    /// All elements as literals of HLO hold them.
    All(Cow<'d, [u8]>),
}

impl Module<'_> {
    /// The element type in HLO of the MLIR type `id`, if it is one.
    pub fn element_type(&self, id: TypeId) -> Option<ElementType> {
        Some(match self.ty(id) {
            Type::Integer(bits, sign) => {
                let signed = *sign != Signedness::Unsigned;
                match (bits, signed) {
                    (1, true) => ElementType::Pred,
                    (2, true) => ElementType::S2,
                    (4, true) => ElementType::S4,
                    (8, true) => ElementType::S8,
                    (16, true) => ElementType::S16,
                    (32, true) => ElementType::S32,
                    (64, true) => ElementType::S64,
                    (1, false) => ElementType::U1,
                    (2, false) => ElementType::U2,
                    (4, false) => ElementType::U4,
                    (8, false) => ElementType::U8,
                    (16, false) => ElementType::U16,
                    (32, false) => ElementType::U32,
                    (64, false) => ElementType::U64,
                    _ => return None,
                }
            }
            Type::Float(kind) => kind.element_type()?,
            Type::Index => ElementType::S64,
            Type::Complex(part) => self.element_type(*part)?.complex()?,
            _ => return None,
        })
    }

    /// The sizes and the element type of a ranked tensor.
    pub fn tensor(&self, id: TypeId) -> Option<(&[i64], TypeId)> {
        match self.ty(id) {
            Type::Tensor { dims, element, .. } | Type::MemRef(dims, element) => Some((dims, *element)),
            // Vectors of numbers are written `vector<…>` in old files; nothing else has elements.
            _ => None,
        }
    }

    /// The number of elements of a tensor type; `None` if it is dynamic or does not fit.
    pub fn element_count(&self, id: TypeId) -> Option<i64> {
        let (dims, _) = self.tensor(id)?;
        if dims.iter().any(|&d| d == DYNAMIC || d < 0) {
            return None;
        }
        if dims.contains(&0) {
            return Some(0);
        }
        dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d))
    }

    /// The elements of a literal as HLO holds them; `None` if the buffer does not fit the type.
    pub fn elements<'d>(&self, dense: &'d Dense<'_>) -> Option<(ElementType, Elements<'d>)> {
        let (_, element) = self.tensor(dense.ty)?;
        let element = self.element_type(element)?;
        let count = usize::try_from(self.element_count(dense.ty)?).ok()?;
        let data: &'d [u8] = &dense.data;
        if element == ElementType::Pred {
            return Some((element, bools(data, count)?));
        }
        let size = element.bytes();
        if data.len() == size && count != 1 {
            return Some((element, Elements::Splat(canonical(element, data))));
        }
        if data.len() != count.checked_mul(size)? {
            return None;
        }
        Some((element, Elements::All(canonical(element, data))))
    }

    /// The elements of an integer (or bool) literal.
    pub fn dense_ints(&self, dense: &Dense<'_>) -> Option<Vec<i64>> {
        let (element, elements) = self.elements(dense)?;
        let size = element.bytes();
        let one = |b: &[u8]| -> Option<i64> {
            let mut wide = [0u8; 8];
            wide.get_mut(..b.len())?.copy_from_slice(b);
            let n = i64::from_le_bytes(wide);
            let unused = 64 - 8 * b.len() as u32;
            Some(if element.is_signed_integer() { (n << unused) >> unused } else { n })
        };
        if !element.is_integer() && element != ElementType::Pred {
            return None;
        }
        match elements {
            Elements::Splat(b) => {
                let count = self.element_count(dense.ty)?;
                if count > 1 << 20 {
                    return None;
                }
                Some(vec![one(&b)?; count as usize])
            }
            Elements::All(b) => b.chunks_exact(size).map(one).collect(),
        }
    }
}

/// Truth values: packed, one to a byte in old artifacts, or a single byte for all.
fn bools(data: &[u8], count: usize) -> Option<Elements<'_>> {
    if count == 0 {
        return Some(Elements::All(Cow::Borrowed(&[])));
    }
    if data.len() == 1 && (count > 8 || data[0] == 0xff || data[0] == 0) && count > 1 {
        return Some(Elements::Splat(Cow::Owned(vec![u8::from(data[0] != 0)])));
    }
    if data.len() == count && count > 1 {
        return Some(Elements::All(data.iter().map(|&b| u8::from(b != 0)).collect()));
    }
    if data.len() != count.div_ceil(8) {
        return None;
    }
    Some(Elements::All((0..count).map(|i| data[i / 8] >> (i % 8) & 1).collect()))
}

/// Sub-byte elements with their upper bits as literals hold them: a sign for signed types, zeros for others.
fn canonical(element: ElementType, data: &[u8]) -> Cow<'_, [u8]> {
    let bits = element.bits();
    if bits >= 8 {
        return Cow::Borrowed(data);
    }
    let unused = 8 - bits;
    let signed = element.is_signed_integer();
    data.iter().map(|&b| if signed { ((b << unused) as i8 >> unused) as u8 } else { b << unused >> unused }).collect()
}

//! Neighbouring elements as one access to memory, up to 16 bytes wide, and how they are packed into its words.

use crate::emit::ir::{Ir, Repr, Val};
use crate::emit::value::{V, memory_repr};
use hloom_ir::ElementType;
use inkwell::types::BasicType;
use inkwell::values::PointerValue;

/// The bytes of one part of an element: of each half of a complex number.
fn part_bytes(t: ElementType) -> u32 {
    memory_repr(t).bits() / 8
}

fn parts(t: ElementType) -> u32 {
    if t.is_complex() { 2 } else { 1 }
}

/// What elements are moved in: words of at least 32 bits, of their own type where they fill one. A word of another type would
/// be one more instruction for each element.
fn word_of(t: ElementType) -> Repr {
    match memory_repr(t) {
        repr @ (Repr::F32 | Repr::F64 | Repr::I64) => repr,
        _ => Repr::I32,
    }
}

impl<'c> Ir<'c> {
    /// So many elements from an address that is a multiple of their bytes together, or of 16.
    pub(super) fn load_lanes(&self, pointer: PointerValue<'c>, t: ElementType, count: u32) -> Vec<V<'c>> {
        let (width, parts) = (part_bytes(t), parts(t));
        let bytes = count * parts * width;
        let elements: Vec<Val<'c>> = match bytes {
            _ if count * parts == 1 => vec![self.of_memory(self.load(self.ty(memory_repr(t), 1), pointer, width), t)],
            ..4 => {
                let word = self.load(self.ty(Repr::I16, 1), pointer, 2);
                self.unpack(self.zext(word, Repr::I32), t, count * parts)
            }
            _ => self.load_words(pointer, word_of(t), bytes / width.max(4), t),
        };
        match t.is_complex() {
            true => elements.chunks(2).map(|p| V::complex(p[0], p[1])).collect(),
            false => elements.into_iter().map(V::from).collect(),
        }
    }

    /// Elements in words of 32 or 64 bits.
    fn load_words(&self, pointer: PointerValue<'c>, word: Repr, count: u32, t: ElementType) -> Vec<Val<'c>> {
        let size = word.bits() / 8;
        let most = 16 / size;
        let mut elements = Vec::new();
        for first in (0..count).step_by(most as usize) {
            let here = most.min(count - first);
            let at = self.offset(pointer, self.i64(i64::from(first * size)));
            let loaded = self.load(self.ty(word, here), at, here * size);
            for n in 0..here {
                let one = match loaded {
                    Val::VectorValue(v) => self.extract(v, n),
                    one => one,
                };
                match part_bytes(t) < size {
                    true => elements.extend(self.unpack(one, t, size / part_bytes(t))),
                    false => elements.push(self.of_memory(self.bitcast(one, memory_repr(t)), t)),
                }
            }
        }
        elements
    }

    /// The elements in a word, the first in the lowest bits.
    pub(super) fn unpack(&self, word: Val<'c>, t: ElementType, count: u32) -> Vec<Val<'c>> {
        let int = |n: u32| self.int(Repr::I32, i64::from(n as i32));
        let one = |n: u32| {
            if t == ElementType::Bf16 {
                // The upper half of an f32.
                let bits = if n == 0 { self.shl(word, int(16)) } else { self.and(word, int(0xffff_0000)) };
                return self.bitcast(bits, Repr::F32);
            }
            let bits = part_bytes(t) * 8;
            let moved = if n == 0 { word } else { self.lshr(word, int(n * bits)) };
            let narrow = self.trunc(moved, if bits == 16 { Repr::I16 } else { Repr::I8 });
            self.of_memory(self.bitcast(narrow, memory_repr(t)), t)
        };
        (0..count).map(one).collect()
    }

    /// Writes elements to an address that is a multiple of their bytes together, or of 16. Where `unrounded`, bf16 values
    /// are f32 that are rounded now.
    pub(super) fn store_lanes(&self, pointer: PointerValue<'c>, values: &[V<'c>], t: ElementType, unrounded: bool) {
        let elements: Vec<Val<'c>> = values.iter().flat_map(|v| v.parts()).collect();
        let width = part_bytes(t);
        let bytes = width * elements.len() as u32;
        if let [one] = elements[..] {
            let one = if unrounded { self.round_to(one, t) } else { one };
            return self.store(pointer, self.as_memory(one, t), width);
        }
        if bytes < 4 {
            let word = self.pack(&elements, t, unrounded);
            return self.store(pointer, self.trunc(word, Repr::I16), 2);
        }
        let words: Vec<Val<'c>> = match width {
            4 | 8 => elements.iter().map(|&e| self.bitcast(self.as_memory(e, t), word_of(t))).collect(),
            _ => elements.chunks(4 / width as usize).map(|part| self.pack(part, t, unrounded)).collect(),
        };
        let size = width.max(4);
        for (n, part) in words.chunks(16 / size as usize).enumerate() {
            let at = self.offset(pointer, self.i64(n as i64 * 16));
            self.store(at, self.vector_of(part), size * part.len() as u32);
        }
    }

    /// Adds elements to those at an address that is a multiple of their bytes together, or of 16, whoever else does so at
    /// the same time.
    pub(super) fn add_lanes(&self, pointer: PointerValue<'c>, values: &[V<'c>], t: ElementType) {
        let elements: Vec<Val<'c>> = values.iter().map(|v| v.re).collect();
        let (name, words): (&str, Vec<Val<'c>>) = match (t, elements.len()) {
            (ElementType::F32, _) => ("f32", elements),
            (_, 1) => {
                let bits = self.bitcast(self.as_memory(elements[0], t), Repr::I16);
                (if t == ElementType::F16 { "f16" } else { "bf16" }, vec![bits])
            }
            _ => {
                let pairs = elements.chunks(2).map(|pair| self.pack(pair, t, false)).collect();
                (if t == ElementType::F16 { "f16x2" } else { "bf16x2" }, pairs)
            }
        };
        let rounding = if t == ElementType::F32 { "" } else { ".noftz" };
        let class = match self.repr(words[0]) {
            Repr::F32 => "f",
            Repr::I16 => "h",
            _ => "r",
        };
        for (n, part) in words.chunks(4).enumerate() {
            let at = self.offset(pointer, self.i64(n as i64 * 16));
            let address = self.builder.build_ptr_to_int(at, self.context.i64_type(), "");
            let address: Val<'c> = address.expect("the builder is positioned").into();
            let names: Vec<String> = (1..=part.len()).map(|k| format!("${k}")).collect();
            let (vector, operand) = match part.len() {
                1 => (String::new(), "$1".to_owned()),
                count => (format!(".v{count}"), format!("{{{}}}", names.join(", "))),
            };
            let text = format!("red.global.add{rounding}{vector}.{name} [$0], {operand};");
            let constraints = format!("l{},~{{memory}}", format!(",{class}").repeat(part.len()));
            let operands: Vec<Val<'c>> = std::iter::once(address).chain(part.iter().copied()).collect();
            let types: Vec<_> = operands.iter().map(|o| o.get_type().into()).collect();
            let signature = self.context.void_type().fn_type(&types, false);
            let assembly = self.context.create_inline_asm(signature, text, constraints, true, false, None, false);
            let operands: Vec<_> = operands.iter().map(|&o| o.into()).collect();
            self.builder.build_indirect_call(signature, assembly, &operands, "").expect("the builder is positioned");
        }
    }

    /// The values as lanes of a vector.
    fn vector_of(&self, values: &[Val<'c>]) -> Val<'c> {
        if let [one] = values {
            return *one;
        }
        let repr = self.repr(values[0]);
        let mut vector: Val<'c> = self.ty(repr, values.len() as u32).as_basic_type_enum().const_zero();
        for (n, &value) in values.iter().enumerate() {
            vector = self.insert(vector, value, n as u32);
        }
        vector
    }

    /// Elements of a byte or two as a word.
    pub(super) fn pack(&self, elements: &[Val<'c>], t: ElementType, unrounded: bool) -> Val<'c> {
        let int = |n: u32| self.int(Repr::I32, i64::from(n as i32));
        if t == ElementType::Bf16
            && let [low, high] = *elements
        {
            if unrounded {
                let pair = self.intrinsic("llvm.nvvm.ff2bf16x2.rn", &[], &[high, low]);
                return self.bits_as(pair.expect("the intrinsic has a result"), Repr::I32);
            }
            let low = self.lshr(self.bitcast(low, Repr::I32), int(16));
            return self.or(low, self.and(self.bitcast(high, Repr::I32), int(0xffff_0000)));
        }
        let bits = part_bytes(t) * 8;
        let mut word = int(0);
        for (n, &element) in elements.iter().enumerate() {
            let element = if unrounded { self.round_to(element, t) } else { element };
            let narrow = self.as_memory(element, t);
            let narrow = self.bitcast(narrow, memory_repr(t).as_int());
            let wide = self.zext(narrow, Repr::I32);
            let moved = if n == 0 { wide } else { self.shl(wide, int(n as u32 * bits)) };
            word = if n == 0 { moved } else { self.or(word, moved) };
        }
        word
    }
}

impl<'c> Ir<'c> {
    /// The bits of a value of any type, such as a pair of bf16, as one integer.
    pub(crate) fn bits_as(&self, value: Val<'c>, repr: Repr) -> Val<'c> {
        self.builder.build_bit_cast(value, self.ty(repr, 1), "").expect("the builder is positioned")
    }
}

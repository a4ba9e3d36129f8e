//! Random bits written out: the counter-based generators are arithmetic on a counting array, which kernels do best.

use super::{array, beside, operand};
use crate::rewrite::Rule;
use hloom_ir::attributes::{RngAlgorithm, SliceDim};
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType::{self, U32, U64};
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::{ArrayShape, Shape};

/// The rules.
pub(super) static RULES: &[Rule] = &[Rule {
    name: "random-bits",
    statement: "rng-bit-generator → the rounds of ThreeFry or Philox on a counting array",
    opcodes: &[Opcode::RngBitGenerator],
    apply: random_bits,
}];

fn random_bits(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::RngBitGenerator { algorithm } = module[i].op else { return None };
    let Shape::Tuple(parts) = &module[i].shape else { return None };
    let bits = parts.get(1)?.as_array()?.clone();
    let state = operand(module, i, 0)?;
    let state_shape = array(module, state)?;
    let words = state_shape.element_count()?;
    (state_shape.element_type == U64 && state_shape.rank() == 1 && words >= 2).then_some(())?;
    let integer = bits.element_type.is_integer() && bits.element_type.bits() >= 8;
    (integer && bits.element_count()? > 0 && bits.element_count()? < 1 << 40).then_some(())?;
    let bits_builder = Bits { b: beside(module, i), count: 0 };
    match algorithm {
        RngAlgorithm::ThreeFry => bits_builder.three_fry(state, words, &bits),
        RngAlgorithm::Philox | RngAlgorithm::Default => bits_builder.philox(state, words, &bits),
    }
}

/// Random bits being written out: `count` blocks at once.
struct Bits<'m> {
    b: Builder<'m>,
    count: i64,
}

type Value = Option<InstructionId>;

impl Bits<'_> {
    /// A word of the state, as a scalar.
    fn word(&mut self, state: InstructionId, at: i64) -> Value {
        let one = self.b.slice(state, [SliceDim { start: at, limit: at + 1, stride: 1 }]).ok()?;
        self.b.reshape(one, []).ok()
    }

    /// A scalar for each block.
    fn each(&mut self, scalar: InstructionId) -> Value {
        self.b.broadcast(scalar, [self.count], []).ok()
    }

    fn number32(&mut self, value: u32) -> Value {
        let scalar = self.b.constant(value).ok()?;
        self.each(scalar)
    }
    fn number64(&mut self, value: u64) -> Value {
        let scalar = self.b.constant(value).ok()?;
        self.each(scalar)
    }

    /// The low and the high half of 64-bit numbers.
    fn halves(&mut self, wide: InstructionId) -> Option<[InstructionId; 2]> {
        let scalar = self.b.shape(wide).as_array()?.is_scalar();
        let half = self.b.constant(32u64).ok()?;
        let half = if scalar { half } else { self.each(half)? };
        let low = self.b.convert(wide, U32).ok()?;
        let high = self.b.shift_right_logical(wide, half).ok()?;
        Some([low, self.b.convert(high, U32).ok()?])
    }

    /// Two 32-bit numbers as one of 64 bits.
    fn joined(&mut self, low: InstructionId, high: InstructionId) -> Value {
        let (low, high) = (self.b.convert(low, U64).ok()?, self.b.convert(high, U64).ok()?);
        let half = self.number64(32)?;
        let high = self.b.shift_left(high, half).ok()?;
        self.b.or(low, high).ok()
    }

    /// The state with new words behind its first.
    fn state(&mut self, state: InstructionId, words: i64, new: &[InstructionId]) -> Value {
        let key = self.b.slice(state, [SliceDim { start: 0, limit: 1, stride: 1 }]).ok()?;
        let mut parts = vec![key];
        for &w in new {
            parts.push(self.b.reshape(w, [1]).ok()?);
        }
        let known = parts.len() as i64;
        if known < words {
            parts.push(self.b.slice(state, [SliceDim { start: known, limit: words, stride: 1 }]).ok()?);
        }
        self.b.concatenate(&parts, 0).ok()
    }

    /// One block of ThreeFry 2x32 with 20 rounds for each counter.
    fn three_fry_blocks(&mut self, counter: InstructionId, key: InstructionId) -> Option<[InstructionId; 2]> {
        const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
        let [k0, k1] = self.halves(key)?;
        let parity = self.b.constant(0x1BD1_1BDA_u32).ok()?;
        let k2 = self.b.xor(k0, k1).ok()?;
        let k2 = self.b.xor(k2, parity).ok()?;
        let keys = [k0, k1, k2];
        let [mut x0, mut x1] = self.halves(counter)?;
        let (first, second) = (self.each(k0)?, self.each(k1)?);
        (x0, x1) = (self.b.add(x0, first).ok()?, self.b.add(x1, second).ok()?);
        for group in 0..5u32 {
            for rotation in ROTATIONS[group as usize % 2] {
                x0 = self.b.add(x0, x1).ok()?;
                let (left, right) = (self.number32(rotation)?, self.number32(32 - rotation)?);
                let (up, down) = (self.b.shift_left(x1, left).ok()?, self.b.shift_right_logical(x1, right).ok()?);
                let turned = self.b.or(up, down).ok()?;
                x1 = self.b.xor(turned, x0).ok()?;
            }
            let number = self.b.constant(group + 1).ok()?;
            let added = self.b.add(keys[(group as usize + 2) % 3], number).ok()?;
            let (a, b) = (self.each(keys[(group as usize + 1) % 3])?, self.each(added)?);
            (x0, x1) = (self.b.add(x0, a).ok()?, self.b.add(x1, b).ok()?);
        }
        Some([x0, x1])
    }

    /// ThreeFry: a block gives one 64-bit element, or two neighbours along a dimension that is halved.
    fn three_fry(mut self, state: InstructionId, words: i64, bits: &ArrayShape) -> Value {
        let sizes = bits.dims();
        let wide = bits.element_type.bits() == 64;
        // The dimension that is halved: the first even one, otherwise the first of the largest.
        let largest = sizes.iter().copied().max();
        let split = sizes.iter().position(|d| d % 2 == 0).or_else(|| sizes.iter().position(|&d| Some(d) == largest));
        let split = split.filter(|_| !wide);
        let mut blocks = DimVec::from(sizes);
        if let Some(d) = split {
            blocks[d] = sizes[d] / 2 + sizes[d] % 2;
        }
        self.count = blocks.iter().product();
        let (key, counter) = (self.word(state, 0)?, self.word(state, 1)?);
        let numbers = self.b.iota(ArrayShape::new(U64, [self.count]), 0).ok()?;
        let start = self.each(counter)?;
        let counters = self.b.add(numbers, start).ok()?;
        let [low, high] = self.three_fry_blocks(counters, key)?;
        let passed = self.b.constant(self.count as u64).ok()?;
        let next = self.b.add(counter, passed).ok()?;
        let new_state = self.state(state, words, &[next])?;
        let result = match split {
            _ if wide => {
                let both = self.joined(low, high)?;
                self.b.reshape(both, blocks).ok()?
            }
            // A single element: the low half.
            None => self.b.reshape(low, blocks).ok()?,
            Some(d) => {
                let both = match blocks[d + 1..].iter().all(|&n| n == 1) {
                    // Neighbours in memory are the halves of one number.
                    true => {
                        let wide = self.joined(low, high)?;
                        let pairs = ArrayShape::new(U32, [self.count, 2]);
                        self.b.push_shaped(Op::BitcastConvert, &[wide], pairs).ok()?
                    }
                    false => {
                        let mut apart = blocks.clone();
                        apart.insert(d + 1, 1);
                        let (low, high) = (self.b.reshape(low, apart.clone()).ok()?, self.b.reshape(high, apart).ok()?);
                        self.b.concatenate(&[low, high], d as i64 + 1).ok()?
                    }
                };
                let mut doubled = blocks.clone();
                doubled[d] *= 2;
                let all = self.b.reshape(both, doubled.clone()).ok()?;
                let cut = |(&limit, _): (&i64, &i64)| SliceDim { start: 0, limit, stride: 1 };
                if doubled[..] == *sizes { all } else { self.b.slice(all, sizes.iter().zip(&doubled).map(cut)).ok()? }
            }
        };
        self.finish(new_state, result, bits.element_type)
    }

    /// One block of Philox 4x32 with 10 rounds for each counter, given by its low and high 64 bits.
    fn philox_blocks(&mut self, counter: [InstructionId; 2], key: InstructionId) -> Option<[InstructionId; 4]> {
        let [x0, x1] = self.halves(counter[0])?;
        let [x2, x3] = self.halves(counter[1])?;
        let mut x = [x0, x1, x2, x3];
        let [mut k0, mut k1] = self.halves(key)?;
        let (step0, step1) = (self.b.constant(0x9E37_79B9_u32).ok()?, self.b.constant(0xBB67_AE85_u32).ok()?);
        let (factor0, factor1) = (self.number64(0xD251_1F53)?, self.number64(0xCD9E_8D57)?);
        for _ in 0..10 {
            let (a, b) = (self.b.convert(x[0], U64).ok()?, self.b.convert(x[2], U64).ok()?);
            let (a, b) = (self.b.multiply(a, factor0).ok()?, self.b.multiply(b, factor1).ok()?);
            let ([a_low, a_high], [b_low, b_high]) = (self.halves(a)?, self.halves(b)?);
            let (first, second) = (self.each(k0)?, self.each(k1)?);
            let y0 = self.b.xor(b_high, x[1]).ok()?;
            let y2 = self.b.xor(a_high, x[3]).ok()?;
            x = [self.b.xor(y0, first).ok()?, b_low, self.b.xor(y2, second).ok()?, a_low];
            (k0, k1) = (self.b.add(k0, step0).ok()?, self.b.add(k1, step1).ok()?);
        }
        Some(x)
    }

    /// Philox: a block gives four 32-bit words in a row.
    fn philox(mut self, state: InstructionId, words: i64, bits: &ArrayShape) -> Value {
        let wide = bits.element_type.bits() == 64;
        let elements = bits.element_count()?;
        let needed = if wide { elements.checked_mul(2)? } else { elements };
        self.count = needed / 4 + i64::from(needed % 4 != 0);
        let (key, low) = (self.word(state, 0)?, self.word(state, 1)?);
        let high = if words > 2 { self.word(state, 2)? } else { key };
        let numbers = self.b.iota(ArrayShape::new(U64, [self.count]), 0).ok()?;
        let (from_low, from_high) = (self.each(low)?, self.each(high)?);
        let at_low = self.b.add(numbers, from_low).ok()?;
        let carry = self.b.compare(hloom_ir::attributes::ComparisonDirection::Lt, at_low, from_low).ok()?;
        let carry = self.b.convert(carry, U64).ok()?;
        let at_high = self.b.add(from_high, carry).ok()?;
        let [a, b, c, d] = self.philox_blocks([at_low, at_high], key)?;
        let mut pairs = Vec::new();
        for (low, high) in [(a, b), (c, d)] {
            let pair = self.joined(low, high)?;
            pairs.push(self.b.reshape(pair, [self.count, 1]).ok()?);
        }
        // Four words in a row are two numbers of 64 bits.
        let rows = self.b.concatenate(&pairs, 1).ok()?;
        let flat = match wide {
            true => self.b.reshape(rows, [2 * self.count]).ok()?,
            false => {
                let halves = ArrayShape::new(U32, [self.count, 2, 2]);
                let words = self.b.push_shaped(Op::BitcastConvert, &[rows], halves).ok()?;
                self.b.reshape(words, [4 * self.count]).ok()?
            }
        };
        let exact = self.b.slice(flat, [SliceDim { start: 0, limit: elements, stride: 1 }]).ok()?;
        let result = self.b.reshape(exact, bits.dims().iter().copied()).ok()?;
        let passed = self.b.constant(self.count as u64).ok()?;
        let next = self.b.add(low, passed).ok()?;
        let mut new = vec![next];
        if words > 2 {
            let carry = self.b.compare(hloom_ir::attributes::ComparisonDirection::Lt, next, low).ok()?;
            let carry = self.b.convert(carry, U64).ok()?;
            new.push(self.b.add(high, carry).ok()?);
        }
        let new_state = self.state(state, words, &new)?;
        self.finish(new_state, result, bits.element_type)
    }

    /// The new state and the bits, of which narrow types take the low ones.
    fn finish(&mut self, state: InstructionId, bits: InstructionId, to: ElementType) -> Value {
        let from = self.b.shape(bits).element_type()?;
        let bits = if from == to { bits } else { self.b.convert(bits, to).ok()? };
        self.b.tuple(&[state, bits]).ok()
    }
}

//! Convolutions of integers that are too wide for sums of floats, of 32 and 64 bits: they are cut into pieces of 16 bits, sums
//! of whose products are exact in f64, and what these mean for the whole is shifted to its place and added up, where it
//! wraps as the sums themselves would.

use super::terms::terms;
use crate::rules::array;
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType::{self, F64, S64};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Convolution, Op};

/// Terms of which sums are exact in f64.
const MOST_EXACT: i64 = 1 << 21;
/// Bits of a piece.
const PIECE: u64 = 16;

/// The convolution by convolutions of pieces, which `product` makes in f64. Operands are of the type `to`, which has as
/// many bits as they.
pub(super) fn by_pieces(
    b: &mut Builder<'_>,
    convolution: &Convolution,
    operands: [InstructionId; 2],
    to: ElementType,
    product: impl Fn(&mut Builder<'_>, InstructionId, InstructionId) -> Option<InstructionId>,
) -> Option<InstructionId> {
    let bits = to.bits() as u64;
    let is_whole = to.is_integer() && bits > PIECE && terms(b.module(), convolution, operands[1])? <= MOST_EXACT;
    is_whole.then_some(())?;
    let [input, kernel] = operands.map(|o| pieces(b, o, bits));
    let (input, kernel) = (input?, kernel?);
    let mut sum: Option<InstructionId> = None;
    for (n, &x) in input.iter().enumerate() {
        for (m, &y) in kernel.iter().enumerate() {
            let shift = (n + m) as u64 * PIECE;
            if shift >= bits {
                continue;
            }
            let wide = product(b, x, y)?;
            let wide = b.convert(wide, S64).ok()?;
            let mut part = if to == S64 { wide } else { b.convert(wide, to).ok()? };
            if shift > 0 {
                let by = number(b, shift, part)?;
                part = b.shift_left(part, by).ok()?;
            }
            sum = Some(sum.map_or(Ok(part), |sum| b.add(sum, part)).ok()?);
        }
    }
    sum
}

/// The pieces of the numbers of an array in f64, the last bits first: one of those that are known to be small.
fn pieces(b: &mut Builder<'_>, x: InstructionId, bits: u64) -> Option<Vec<InstructionId>> {
    if are_small(b.module(), x) {
        return Some(vec![b.convert(x, F64).ok()?]);
    }
    (0..bits / PIECE)
        .map(|n| {
            let shift = number(b, n * PIECE, x)?;
            let shifted = if n == 0 { x } else { b.shift_right_logical(x, shift).ok()? };
            let mask = number(b, (1 << PIECE) - 1, x)?;
            let piece = b.and(shifted, mask).ok()?;
            b.convert(piece, F64).ok()
        })
        .collect()
}

/// A number of the type and sizes of `like`.
fn number(b: &mut Builder<'_>, value: u64, like: InstructionId) -> Option<InstructionId> {
    let shape = array(b.module(), like)?.clone();
    let number = b.constant(value as i32).ok()?;
    let number = b.convert(number, shape.element_type).ok()?;
    b.broadcast(number, shape.dims().iter().copied(), []).ok()
}

/// Whether all numbers of an array of integers have at most 16 bits: sums of their products are exact in f64.
pub(super) fn are_small(module: &Module, i: InstructionId) -> bool {
    let has_few =
        |i: InstructionId| array(module, i).is_some_and(|a| !a.element_type.is_float() && a.element_type.bits() <= 16);
    let first = || module[i].operands().first().copied();
    match &module[i].op {
        Op::Convert => has_few(i) || first().is_some_and(has_few),
        Op::Constant(ConstantValue::Literal(literal)) => {
            let words =
                literal.as_array().filter(|a| a.element_type() == ElementType::S32).map(|a| a.bytes().as_chunks::<4>());
            let is_small = |word: &[u8; 4]| i16::try_from(i32::from_le_bytes(*word)).is_ok();
            has_few(i) || words.is_some_and(|(words, _)| words.iter().all(is_small))
        }
        _ => has_few(i),
    }
}

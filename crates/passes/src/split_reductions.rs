//! Reductions of much to little, in two steps: parts, which threads share among themselves, and the few results of these.
//!
//! What becomes of the sum of a large array does not depend on how many threads there are: the parts are the same always.

use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use crate::rules::functions::reducer;
use crate::rules::numbers::splat;
use crate::rules::reductions::is_neutral;
use crate::rules::{array, beside, dims};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op};
use hloom_ir::opcode::Opcode;

/// The pass.
pub static PASS: Pass = Pass {
    name: "split-reductions",
    statement: "makes two steps of reductions of much to little, so that threads can share the first",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[Rule {
    name: "split-reduction",
    statement: "reduce(x) of a large x to few elements → reduce(reduce(x cut into parts))",
    opcodes: &[Opcode::Reduce],
    apply: split,
}];

/// Less than this is not worth a second step.
const MIN_READ: i64 = 1 << 17;
/// So many elements of the result are made side by side where its innermost dimension is kept.
const BESIDE: i64 = 64;
/// With so many of them there is enough to share.
const ENOUGH: i64 = 8;
/// Into how many parts: a number that divides the dimension.
const MOST_PARTS: i64 = 64;
const FEWEST_PARTS: i64 = 8;

fn split(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Reduce { dimensions, to_apply } = &module[i].op else { return None };
    let (mut reduced, function) = (dimensions.clone(), *to_apply);
    let &[x, init] = module[i].operands() else { return None };
    reduced.sort_unstable();
    let (from, to) = (array(module, x)?, array(module, i)?);
    let element_type = from.element_type;
    let op = reducer(module, function)?;
    let associative = matches!(
        op,
        BinaryOp::Add
            | BinaryOp::Multiply
            | BinaryOp::Maximum
            | BinaryOp::Minimum
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
    );
    // What is rounded to few bits at each step is kept in order.
    (!element_type.is_small_float()).then_some(())?;
    let neutral = is_neutral(op, element_type, splat(module, init)?);
    (associative && neutral && from.element_count()? >= MIN_READ).then_some(())?;
    let sizes = DimVec::from(dims(module, x)?);
    let along_rows = reduced.contains(&(sizes.len() as i64 - 1));
    let kept = to.element_count()?;
    let last = sizes.last().copied()?.max(1);
    ((if along_rows { kept } else { kept / last * (last / BESIDE).max(1) }) < ENOUGH).then_some(())?;
    // The outermost dimension that is reduced and large enough is cut.
    let (at, parts) = reduced.iter().find_map(|&d| {
        let size = *sizes.get(usize::try_from(d).ok()?)?;
        let parts = (FEWEST_PARTS..=MOST_PARTS).rev().find(|p| size % p == 0)?;
        (size >= FEWEST_PARTS).then_some((d, parts))
    })?;
    let mut cut = DimVec::new();
    for (d, &size) in sizes.iter().enumerate() {
        if d as i64 == at {
            cut.push(parts);
        }
        cut.push(if d as i64 == at { size / parts } else { size });
    }
    // Without the new dimension, the one that was cut has the next number, as have all behind it.
    let first: DimVec = reduced.iter().map(|&d| if d >= at { d + 1 } else { d }).collect();
    let is_first = |d: i64| first.contains(&d);
    let second = (0..at).filter(|&d| !is_first(d)).count() as i64;
    let mut b = beside(module, i);
    let parts = b.reshape(x, cut).ok()?;
    if !matches!(element_type, ElementType::F16 | ElementType::Bf16) {
        let partial = b.reduce(parts, init, first, function).ok()?;
        return b.reduce(partial, init, [second], function).ok();
    }
    // Sums of narrow numbers are rounded once, at the end.
    let function = b.reducer(op, ElementType::F32).ok()?;
    let (parts, init) = (b.convert(parts, ElementType::F32).ok()?, b.convert(init, ElementType::F32).ok()?);
    let partial = b.reduce(parts, init, first, function).ok()?;
    let whole = b.reduce(partial, init, [second], function).ok()?;
    b.convert(whole, element_type).ok()
}

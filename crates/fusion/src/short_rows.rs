//! Short rows that are repeated: a bias of three colours for each pixel of an image.
//!
//! In a loop along such a row vectors are nearly empty, and rows cannot be taken together while what is repeated starts
//! anew with each of them. So some rows are written out first, and these are repeated: what was two loops is one then.

use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;
use hloom_passes::rewrite::Rule;
use hloom_passes::rules::{array, beside, operand};

/// The rules.
pub(super) static RULES: &[Rule] = &[Rule {
    name: "repeated-short-row",
    statement: "broadcast of a short row to many rows → broadcast of some rows of broadcast to these",
    opcodes: &[Opcode::Broadcast],
    apply: in_two_steps,
}];

/// Rows of more elements fill vectors.
const SHORT: i64 = 15;
/// Elements that are written out: some vectors of them.
const SOME: i64 = 128;
const MOST: i64 = 8192;

/// Whether `i` is a short row, repeated.
pub(super) fn repeats_short_row(module: &Module, i: InstructionId) -> bool {
    let Op::Broadcast { dimensions } = &module[i].op else { return false };
    let (Some(to), Some(from)) = (array(module, i), operand(module, i, 0).and_then(|o| array(module, o))) else {
        return false;
    };
    let is_last = |&d: &i64| d + 1 == to.rank() as i64;
    to.rank() > 1
        && from.rank() == 1
        && dimensions.first().is_some_and(is_last)
        && (2..=SHORT).contains(&from.dims()[0])
}

fn in_two_steps(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    repeats_short_row(module, i).then_some(())?;
    let row = operand(module, i, 0)?;
    let to = array(module, i)?.dims().to_vec();
    // The innermost dimensions that are enough.
    let mut inner = to.len() - 1;
    let mut count = to[inner];
    while count < SOME && inner > 1 {
        inner -= 1;
        count = count.saturating_mul(to[inner]);
    }
    let all = to.iter().try_fold(1i64, |n, &d| n.checked_mul(d))?;
    let pays = (SOME..=MOST).contains(&count) && all > count;
    pays.then_some(())?;
    let last = (to.len() - inner - 1) as i64;
    let mut b = beside(module, i);
    let rows = b.broadcast(row, to[inner..].iter().copied(), [last]).ok()?;
    b.broadcast(rows, to.iter().copied(), inner as i64..to.len() as i64).ok()
}

//! Large values that are made again for each reader instead of being stored: the scores of an attention, the exponentials
//! of a softmax.
//!
//! A value too large for fast memory is written to main memory once and read by every pass over it. A reduction ends a
//! pass: what is computed with its result needs a second one. Two kinds of values cost less to make again in each pass:
//! - element-wise work on an array that is stored anyway: to read that array costs as much as to read the result, or less
//!   where it is narrower;
//! - a product of small operands, where the flops of another product take less time than the bytes of its result.
//!
//! Both become [`Role::Cheap`], with all element-wise work between them and the ends of the passes.

use super::classify::{Role, Roles};
use super::rows;
use crate::edit::array_of;
use crate::stage::StageContext;
use hloom_cost::CostModel;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::FxHashSet;

/// How many instructions are looked at from one value on.
const MAX_SEARCH: usize = 64;
/// Values above this share of fast memory do not stay there beside others.
const LARGE: i64 = 8;

/// Marks what is to be made again; `order` has every operand before its users.
pub(super) fn mark(
    module: &Module,
    order: &[InstructionId],
    roles: &mut Roles,
    context: &StageContext<'_>,
) -> Result<(), Diagnostic> {
    let Some(fast) = context.policy.fast_memory else { return Ok(()) };
    let bytes = |i: InstructionId| context.target.byte_size(&module[i].shape).unwrap_or(0);
    let large = |i: &InstructionId| bytes(*i) > fast.budget / LARGE;
    let mut model = None;
    for &i in order.iter().filter(|i| large(i)) {
        match roles.of(i) {
            Role::Convolution if bytes(i) > fast.budget => {
                let is_worth_it = |p: &Passes| p.ends.len() > 1 || p.has_rows;
                let Some(passes) = Passes::after(module, roles, i).filter(is_worth_it) else { continue };
                let model = match &mut model {
                    Some(model) => model,
                    none => none.insert(CostModel::new(module, context.target)?),
                };
                // Products at their peak, since what is made again is not written.
                let again = model.instruction(i)?.peak_seconds * (passes.ends.len() - 1) as f64;
                let stored = (passes.ends.len() + 1) as f64 * bytes(i) as f64 / context.target.reached_bandwidth(0)?;
                if again < stored {
                    let stored = (i, bytes(i));
                    [i].iter().chain(&passes.between).for_each(|&b| roles.remake(b, stored));
                }
            }
            Role::Loop if module[i].users().len() > 1 => {
                if widens(module, roles, i) {
                    let from = module[i].operands().first().copied().unwrap_or(i);
                    roles.remake(i, (from, bytes(from)));
                } else if let Some((chain, stored)) = from_stored(module, roles, i) {
                    chain.into_iter().for_each(|c| roles.remake(c, stored));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_reduced(module: &Module, i: InstructionId) -> bool {
    module[i].users().iter().any(|&u| matches!(module[u].op, Op::Reduce { .. }))
}

/// Whether it widens what is stored narrow for fusions alone: each of them reads less and widens itself.
fn widens(module: &Module, roles: &Roles, i: InstructionId) -> bool {
    let (Op::Convert, &[from]) = (&module[i].op, module[i].operands()) else { return false };
    let bits = |i: InstructionId| array_of(module, i).map_or(0, |a| a.element_type.bits());
    let is_root = module.root(module[i].parent()) == Some(i);
    bits(from) < bits(i) && !is_root && module[i].users().iter().all(|&u| roles.of(u) != Role::Alone)
}

/// What is done element by element to a value until a pass over it ends.
struct Passes {
    between: Vec<InstructionId>,
    /// The reductions and products that read it in the end.
    ends: FxHashSet<InstructionId>,
    /// Whether a pass works on whole rows, with reductions in its middle.
    has_rows: bool,
}

impl Passes {
    /// `None` if the value, or what is made of it, is needed as it is.
    fn after(module: &Module, roles: &Roles, value: InstructionId) -> Option<Passes> {
        let count = |i: InstructionId| array_of(module, i).and_then(|a| a.element_count());
        let mut passes = Passes { between: Vec::new(), ends: FxHashSet::default(), has_rows: false };
        let by_rows = matches!(module[value].op, Op::Convolution(_)) && rows::in_result(module, value);
        let mut seen = FxHashSet::default();
        let mut stack = vec![value];
        while let Some(i) = stack.pop() {
            if module.root(module[i].parent()) == Some(i) || seen.len() > MAX_SEARCH {
                return None;
            }
            for &user in module[i].users() {
                if !seen.insert(user) {
                    continue;
                }
                match roles.of(user) {
                    Role::Convolution => {
                        passes.ends.insert(user);
                    }
                    Role::LoopRoot if by_rows && rows::row(module, user).is_some() && is_spread_again(module, user) => {
                        passes.has_rows = true;
                    }
                    Role::LoopRoot if matches!(module[user].op, Op::Reduce { .. }) => {
                        passes.ends.insert(user);
                    }
                    Role::Loop | Role::Cheap if along(&module[user].op) && count(user) == count(value) => {
                        passes.between.push(user);
                        stack.push(user);
                    }
                    _ => return None,
                }
            }
        }
        Some(passes)
    }
}

/// Whether all that reads a reduction's result, or what is computed of that, spreads it over rows again.
fn is_spread_again(module: &Module, reduction: InstructionId) -> bool {
    let mut stack = vec![reduction];
    let mut looked = 0;
    while let Some(i) = stack.pop() {
        looked += 1;
        let is_root = module.root(module[i].parent()) == Some(i);
        if is_root || looked > MAX_SEARCH || module[i].users().is_empty() {
            return false;
        }
        for &user in module[i].users() {
            match &module[user].op {
                Op::Broadcast { .. } => {}
                op if along(op) => stack.push(user),
                _ => return false,
            }
        }
    }
    true
}

/// Whether it works element by element, or only gives the elements other indices.
fn along(op: &Op) -> bool {
    op.is_elementwise() || matches!(op, Op::Bitcast | Op::Reshape { .. })
}

/// The element-wise work from a value that is stored anyway up to `last`, if nothing else large is read by it, and that
/// value with its bytes.
fn from_stored(
    module: &Module,
    roles: &Roles,
    last: InstructionId,
) -> Option<(Vec<InstructionId>, (InstructionId, i64))> {
    let bytes = |i: InstructionId| module[i].shape.byte_size().unwrap_or(i64::MAX);
    let mut chain = vec![last];
    let mut source: Option<(InstructionId, i64)> = None;
    let mut next = 0;
    while let Some(&at) = chain.get(next) {
        next += 1;
        if !along(&module[at].op) || chain.len() > MAX_SEARCH {
            return None;
        }
        for &from in module[at].operands() {
            let remade = roles.remade(from);
            if chain.contains(&from) || roles.of(from) == Role::Cheap && remade.is_none() {
                continue;
            }
            let is_stored = match roles.of(from) {
                Role::Alone | Role::LoopRoot | Role::Cheap => true,
                // Another reads it as it is, or it is stored in less.
                Role::Convolution => module[from].users().len() > 1 || 2 * bytes(from) <= bytes(last),
                // Several read it, and it is not made again for them; or who reduces it reads all of it before the result
                // is known.
                Role::Loop => module[from].users().len() > 1 || is_reduced(module, from),
            };
            if is_stored {
                let stored = remade.unwrap_or_else(|| (from, bytes(from)));
                if source.replace(stored).is_some_and(|before| before.0 != stored.0) {
                    return None;
                }
            } else if roles.of(from) == Role::Loop {
                chain.push(from);
            } else {
                return None;
            }
        }
    }
    source.filter(|s| s.1 <= bytes(last)).map(|s| (chain, s))
}

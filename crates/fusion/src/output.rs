//! Output fusions: a dot or a convolution together with its epilogue, the element-wise code after it, so that each part of
//! its result is worked on while it is cache-resident, and needs no memory of its own.
//!
//! A group absorbs a producer that nothing else reads, if each element of its results is made of the element of the producer
//! at the same place. What a group reads besides is made as before; nothing else expensive goes into it. Producers whose
//! results are few are left alone: what comes after them costs nothing.

use super::cost::{elements, plain_array};
use super::groups::{Facts, Group};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// Fewer results are not worth it.
const MIN_ELEMENTS: i64 = 1 << 13;

/// How many groups compute each instruction.
pub(super) fn count_members(module: &Module, groups: &[Group]) -> SideTable<InstructionId, u32> {
    let mut counts = SideTable::with_len(module.instruction_slots(), 0);
    groups.iter().flat_map(|g| &g.members).for_each(|&m| *counts.get_mut(m) += 1);
    counts
}

/// Puts the product that `group` follows into it, if there is one; says how many members are new, the
/// product first.
pub(super) fn absorb_producer(
    module: &Module,
    group: &mut Group,
    facts: &Facts,
    counts: &SideTable<InstructionId, u32>,
) -> usize {
    let Some(&first) = group.results.first() else { return 0 };
    let total = elements(module, first);
    if total < MIN_ELEMENTS || !group.members.iter().all(|&m| may_follow(module, m)) {
        return 0;
    }
    let inside: FxHashSet<InstructionId> = group.members.iter().copied().collect();
    let mut read: SmallVec<[InstructionId; 4]> = SmallVec::new();
    for &operand in group.members.iter().flat_map(|&m| module[m].operands()) {
        let is_ours = |u: &InstructionId| inside.contains(u) && counts[*u] == 1;
        if elements(module, operand) == total
            && !inside.contains(&operand)
            && !read.contains(&operand)
            && module[operand].users().iter().all(is_ours)
        {
            read.push(operand);
        }
    }
    // Of several products the last: its result is the nearest.
    let chains = read.iter().filter_map(|&value| Some((chain(module, value, facts)?, value)));
    let chains = chains.filter(|(chain, value)| {
        let product = chain[chain.len() - 1];
        let reads_inside = module[product].operands().iter().any(|o| inside.contains(o));
        !reads_inside && is_made_by_rows(module, product) && stays_in_place(module, group, *value, total)
    });
    let Some((mut chain, _)) = chains.max_by_key(|(chain, _)| facts.position[chain[chain.len() - 1]]) else {
        return 0;
    };
    chain.reverse();
    let absorbed = chain.len();
    group.members.splice(0..0, chain);
    absorbed
}

/// Whether an instruction can be beside a product: what moves elements about would have loops of its own.
fn may_follow(module: &Module, i: InstructionId) -> bool {
    match &module[i].op {
        Op::Constant(_)
        | Op::Iota { .. }
        | Op::Broadcast { .. }
        | Op::Reshape { .. }
        | Op::Slice { .. }
        | Op::DynamicSlice { .. } => true,
        op => op.is_elementwise(),
    }
}

/// From a value back through reshapes to the product that made it, if nothing else reads any of them.
fn chain(module: &Module, value: InstructionId, facts: &Facts) -> Option<SmallVec<[InstructionId; 2]>> {
    let mut chain: SmallVec<[InstructionId; 2]> = SmallVec::from_slice(&[value]);
    loop {
        let &last = chain.last()?;
        let is_root = module.root(module[last].parent()) == Some(last);
        if facts.is_pinned(last) || is_root {
            return None;
        }
        match (&module[last].op, module[last].operands()) {
            (Op::Dot(_) | Op::Convolution(_), _) => return Some(chain),
            (Op::Reshape { .. }, &[operand]) if module[operand].users() == [last] => chain.push(operand),
            _ => return None,
        }
    }
}

/// Whether all that is made of `value` in the group is made of its element at the same place, and all results are.
fn stays_in_place(module: &Module, group: &Group, value: InstructionId, total: i64) -> bool {
    let mut made: FxHashSet<InstructionId> = FxHashSet::from_iter([value]);
    for &m in &group.members {
        if !module[m].operands().iter().any(|o| made.contains(o)) {
            continue;
        }
        let is_in_place = module[m].op.is_elementwise() || matches!(module[m].op, Op::Reshape { .. });
        if !is_in_place || elements(module, m) != total {
            return false;
        }
        made.insert(m);
    }
    group.results.iter().all(|r| made.contains(r))
}

/// Whether a product is computed row by row, of a type for which there is a kernel.
fn is_made_by_rows(module: &Module, i: InstructionId) -> bool {
    let &[lhs, rhs] = module[i].operands() else { return false };
    let arrays = [lhs, rhs, i].map(|i| plain_array(module, i));
    let [Some(lhs), Some(rhs), Some(result)] = arrays else { return false };
    use ElementType::{Bf16, F16, F32, F64};
    let (from, to) = (lhs.element_type, result.element_type);
    let has_kernel = matches!(from, F32 | F64 | Bf16 | F16) && rhs.element_type == from && (to == from || to == F32);
    if !has_kernel {
        return false;
    }
    match &module[i].op {
        Op::Dot(_) => lhs.element_count().is_some_and(|n| n > 0),
        Op::Convolution(convolution) => {
            let in_groups = convolution.feature_group_count > 1 || convolution.batch_group_count > 1;
            // Positions between those of the input are computed apart from each other.
            let in_parts = convolution.window.dims.iter().any(|d| d.base_dilation > 1);
            !in_groups && !in_parts
        }
        _ => false,
    }
}

//! Sorts by the same keys: of several, the one that carries most arrays along makes the results of those that carry fewer.

use crate::facts::pinned;
use hloom_eval::comparator::keys_of;
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order::PostOrder;
use rustc_hash::FxHashMap;

/// With how many sorts by the same keys one is compared.
const MOST_COMPARED: usize = 8;

/// What sorts have in common that put the same elements in the same places: the dimension, and the arrays that have the
/// keys, with the order of each: whether it is total, descending, and one among numbers only.
type Order = (i64, Vec<(InstructionId, ElementType, [bool; 3])>);

/// Lets sorts take their results from another by the same keys, and says how many do.
pub(crate) fn share_sorts(module: &mut Module) -> usize {
    let pinned = pinned(module);
    let mut order = PostOrder::new(module);
    // What depends on a sort is deeper than it.
    let mut depth: SideTable<InstructionId, u32> = SideTable::default();
    let mut by_order: FxHashMap<(ComputationId, Order), Vec<InstructionId>> = FxHashMap::default();
    for &c in module.computations() {
        for i in order.instructions(c) {
            let below = module[i].operands().iter().map(|&o| depth[o]).max();
            depth.set(i, below.map_or(0, |d| d + 1));
            if !pinned[i]
                && let Some(sorted_by) = order_of(module, i)
            {
                by_order.entry((c, sorted_by)).or_default().push(i);
            }
        }
    }
    let mut alike: Vec<Vec<InstructionId>> = by_order.into_values().filter(|sorts| sorts.len() > 1).collect();
    alike.sort_unstable();
    let mut dead = Vec::new();
    for mut sorts in alike {
        sorts.sort_by_key(|&i| (std::cmp::Reverse(module[i].operands().len()), i));
        let mut kept: Vec<InstructionId> = Vec::new();
        for i in sorts {
            let from = kept.iter().take(MOST_COMPARED).copied().find(|&other| {
                is_stable_enough(module, i, other)
                    && module[other].operands().iter().all(|&o| depth[o] <= depth[i])
                    && module[i].operands().iter().all(|o| module[other].operands().contains(o))
            });
            match from.and_then(|other| take_from(module, i, other)) {
                Some(()) => dead.push(i),
                None => kept.push(i),
            }
        }
    }
    if !dead.is_empty() {
        let removed = module.remove_instructions(&dead);
        debug_assert!(removed.is_ok(), "{removed:?}");
    }
    dead.len()
}

/// What a sort of a known order sorts by.
fn order_of(module: &Module, i: InstructionId) -> Option<Order> {
    let Op::Sort { dimension, to_apply, .. } = module[i].op else { return None };
    let operands = module[i].operands();
    let keys = keys_of(module, to_apply)?.into_iter().map(|key| {
        let of = *operands.get(key.column)?;
        Some((of, key.element_type, [key.total, key.descending, key.without_nan]))
    });
    Some((dimension, keys.collect::<Option<_>>()?))
}

/// Whether elements of equal keys lie in `other` as they may lie in `sort`.
fn is_stable_enough(module: &Module, sort: InstructionId, other: InstructionId) -> bool {
    let is_stable = |i: InstructionId| matches!(module[i].op, Op::Sort { is_stable: true, .. });
    is_stable(other) || !is_stable(sort)
}

/// Puts what `other` makes of the operands of `sort` in the place of its results.
fn take_from(module: &mut Module, sort: InstructionId, other: InstructionId) -> Option<()> {
    let all = module[other].operands();
    let places = module[sort].operands().iter().map(|o| all.iter().position(|x| x == o)).collect::<Option<Vec<_>>>()?;
    let parent = module[sort].parent();
    // The last instruction would become the root of a computation that has none set.
    if let Some(root) = module.root(parent) {
        module.set_root(root);
    }
    let mut b = Builder::resume(module, parent);
    let results = places.iter().map(|&n| b.get_tuple_element(other, n as i64).ok()).collect::<Option<Vec<_>>>()?;
    let value = match results[..] {
        [result] => result,
        _ => b.tuple(&results).ok()?,
    };
    module.replace_all_uses(sort, value).ok()
}

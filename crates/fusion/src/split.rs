//! Groups in two, where no kernel is made of the whole: what is needed at too many indices, for instance.
//!
//! The first part is a beginning of the members' order, so nothing in it waits for the second; and nothing outside lies
//! between the two, since nothing did that lay between members.

use crate::groups::{Facts, Group};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use rustc_hash::{FxHashMap, FxHashSet};

/// The parts of a group, cut about in the middle, where the least goes from one to the other through memory. `None` if
/// there is nothing to cut.
pub(super) fn split(module: &Module, group: &Group, facts: &Facts) -> Option<[Group; 2]> {
    let members = &group.members;
    let position: FxHashMap<InstructionId, usize> = members.iter().enumerate().map(|(n, &m)| (m, n)).collect();
    let last_user = |m: &InstructionId| module[*m].users().iter().filter_map(|u| position.get(u)).max().copied();
    // What is made before each position and needed at it or after it.
    let mut crossing = vec![0i64; members.len() + 1];
    for (n, member) in members.iter().enumerate().filter(|(_, m)| !facts.is_made_again(**m)) {
        let bytes = module[*member].shape.byte_size().unwrap_or(i64::MAX / 4);
        if let Some(last) = last_user(member).filter(|&last| last > n) {
            crossing[n + 1] = crossing[n + 1].saturating_add(bytes);
            crossing[last + 1] = crossing[last + 1].saturating_sub(bytes);
        }
    }
    let mut sum = 0i64;
    crossing.iter_mut().for_each(|bytes| {
        sum = sum.saturating_add(*bytes);
        *bytes = sum;
    });
    let middle = members.len() / 2;
    let begins = members.iter().position(|&m| !facts.is_made_again(m))?;
    let inner = (members.len() / 4).max(begins + 1)..(members.len() * 3 / 4 + 1).min(members.len());
    let cut = inner.min_by_key(|&n| (crossing[n], n.abs_diff(middle)))?;
    let (first, second) = members.split_at(cut);
    // What other groups make too is made in both parts, as it was to be made here: another's value may come too late.
    let mut wanted: FxHashSet<InstructionId> = second.iter().copied().collect();
    let is_wanted =
        |m: InstructionId, wanted: &FxHashSet<InstructionId>| module[m].users().iter().any(|u| wanted.contains(u));
    let mut again: Vec<InstructionId> = Vec::new();
    for &member in first.iter().rev().filter(|&&m| facts.is_made_again(m)) {
        if is_wanted(member, &wanted) && wanted.insert(member) {
            again.push(member);
        }
    }
    let is_result = |&m: &InstructionId| group.results.contains(&m) || !facts.is_made_again(m) && is_wanted(m, &wanted);
    let results: Vec<InstructionId> = first.iter().copied().filter(is_result).collect();
    let second: Vec<InstructionId> = again.into_iter().rev().chain(second.iter().copied()).collect();
    let others = group.results.iter().copied().filter(|r| !results.contains(r)).collect();
    (!results.is_empty()).then(|| [Group::new(first.to_vec(), results), Group::new(second, others)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text::read;
    use hloom_ir::order::PostOrder;
    use hloom_passes::FusionLimits;

    #[test]
    fn a_group_is_cut_where_least_goes_through_memory() {
        let text = "HloModule m
            ENTRY e {
              x = f32[512] parameter(0)
              c = f32[] constant(3)
              cs = f32[512] broadcast(c), dimensions={}
              a = f32[512] multiply(x, cs)
              b = f32[512] exponential(a)
              d = f32[512] add(b, a)
              low = f32[256] slice(d), slice={[0:256]}
              f = f32[256] tanh(low)
              bs = f32[256] broadcast(c), dimensions={}
              g = f32[256] add(f, bs)
              ROOT h = f32[256] multiply(g, f)
            }";
        let module = read(text.as_bytes()).module.unwrap();
        let entry = module.entry().unwrap();
        let order = PostOrder::new(&module).instructions(entry);
        let mut facts = Facts::new(&module);
        let groups = crate::groups::group(&module, entry, &order, &mut facts, FusionLimits::default());
        let whole = groups.iter().max_by_key(|g| g.members.len()).unwrap();
        let [first, second] = split(&module, whole, &facts).expect("it has several members");
        let names = |of: &[InstructionId]| of.iter().map(|&i| module[i].name()).collect::<Vec<_>>().join(" ");
        assert_eq!(names(&first.results), "low");
        assert_eq!(names(&second.results), "h");
        assert!(names(&second.members).starts_with("c "), "constants are made in both: {}", names(&second.members));
    }
}

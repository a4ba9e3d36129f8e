//! Takes away phis at which only one value arrives in the end.
//!
//! Phis that feed each other (nested loops do this) are looked at together: where a strongly connected set of them is
//! fed by one value only, all of them are that value.

use super::forward::Phis;
use super::{Dataflow, ValueId};
use rustc_hash::FxHashMap;

/// Replaces needless phis at every position and deletes them.
pub(super) fn simplify(dataflow: &mut Dataflow<'_>, phis: &Phis) {
    let replaced = replacements(phis);
    if replaced.is_empty() {
        return;
    }
    for value in &mut dataflow.value_at {
        if let Some(&other) = replaced.get(value) {
            *value = other;
        }
    }
    for &phi in replaced.keys() {
        dataflow.values[phi as usize] = None;
    }
}

/// The value that each needless phi is.
fn replacements(phis: &Phis) -> FxHashMap<ValueId, ValueId> {
    let mut replaced: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    // Sets come with those they are fed by before them, so what arrives from outside is settled.
    for set in connected_sets(phis) {
        let mut arriving: Option<ValueId> = None;
        let mut several = false;
        for phi in &set {
            for input in phis.get(phi).into_iter().flatten() {
                let input = replaced.get(input).copied().unwrap_or(*input);
                if set.binary_search(&input).is_ok() {
                    continue;
                }
                several |= arriving.is_some_and(|a| a != input);
                arriving = Some(input);
            }
        }
        if let (Some(value), false) = (arriving, several) {
            replaced.extend(set.iter().map(|&phi| (phi, value)));
        }
    }
    replaced
}

/// The strongly connected sets of phis, each sorted, those that feed others first (Tarjan's algorithm, on a stack of its
/// own).
fn connected_sets(phis: &Phis) -> Vec<Vec<ValueId>> {
    let mut ids: Vec<ValueId> = phis.keys().copied().collect();
    ids.sort_unstable();
    let number: FxHashMap<ValueId, usize> = ids.iter().enumerate().map(|(i, &id)| (id, i)).collect();
    let inputs: Vec<Vec<usize>> =
        ids.iter().map(|id| phis[id].iter().filter_map(|input| number.get(input).copied()).collect()).collect();
    const UNSEEN: usize = usize::MAX;
    let mut order = vec![UNSEEN; ids.len()];
    let mut low = vec![0; ids.len()];
    let mut is_open = vec![false; ids.len()];
    let (mut open, mut sets, mut next) = (Vec::new(), Vec::new(), 0);
    for start in 0..ids.len() {
        if order[start] != UNSEEN {
            continue;
        }
        let mut path: Vec<(usize, usize)> = vec![(start, 0)];
        while let Some(&mut (node, ref mut child)) = path.last_mut() {
            if *child == 0 && order[node] == UNSEEN {
                order[node] = next;
                low[node] = next;
                next += 1;
                open.push(node);
                is_open[node] = true;
            }
            if let Some(&input) = inputs[node].get(*child) {
                *child += 1;
                if order[input] == UNSEEN {
                    path.push((input, 0));
                } else if is_open[input] {
                    low[node] = low[node].min(order[input]);
                }
                continue;
            }
            path.pop();
            if let Some(&(parent, _)) = path.last() {
                low[parent] = low[parent].min(low[node]);
            }
            if low[node] == order[node] {
                let mut set = Vec::new();
                while let Some(member) = open.pop() {
                    is_open[member] = false;
                    set.push(ids[member]);
                    if member == node {
                        break;
                    }
                }
                set.sort_unstable();
                sets.push(set);
            }
        }
    }
    sets
}

//! Where in the program the memory at the peak comes from, as a tree: computations, the operations that call them, and
//! the operations that made the values, each by the name the source program gave it.

use crate::Plan;
use crate::dataflow::ValueId;
use crate::dump::BREAKDOWN;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::module::Module;
use std::collections::BTreeMap;
use std::fmt::Write;

#[derive(Default)]
struct Node {
    own: i128,
    total: i128,
    children: BTreeMap<String, usize>,
}

/// Writes the tree of these values.
pub(super) fn write_tree(plan: &Plan<'_>, values: &[(i64, ValueId)], out: &mut String) {
    let total: i128 = values.iter().map(|v| i128::from(v.0)).sum();
    let _ = writeln!(out, "{BREAKDOWN} {} bytes", grouped(total));
    let module = plan.dataflow.module();
    let callers = callers(module);
    let mut nodes = vec![Node::default()];
    for &(bytes, id) in values {
        let Some(value) = plan.dataflow.value(id) else { continue };
        let mut path = path(module, &callers, plan.dataflow.instruction(value));
        let index = plan.dataflow.positions.index(value.position);
        if let Some(leaf) = path.last_mut().filter(|_| !index.is_empty()) {
            super::write_index(leaf, &index);
        }
        let mut at = 0;
        nodes[at].total += i128::from(bytes);
        for part in path {
            let fresh = nodes.len();
            let next = *nodes[at].children.entry(part).or_insert(fresh);
            if next == fresh {
                nodes.push(Node::default());
            }
            at = next;
            nodes[at].total += i128::from(bytes);
        }
        nodes[at].own += i128::from(bytes);
    }
    print(&nodes, total, out);
}

/// The instruction that calls each computation, by the computation's index.
fn callers(module: &Module) -> Vec<Option<InstructionId>> {
    let mut callers = vec![None; module.computation_slots()];
    for &computation in module.computations() {
        for &id in module[computation].instructions() {
            for callee in module[id].op.called_computations() {
                callers[callee.index()].get_or_insert(id);
            }
        }
    }
    callers
}

/// From the entry to the instruction: computations and the names of operations in turn.
fn path(module: &Module, callers: &[Option<InstructionId>], id: InstructionId) -> Vec<String> {
    let mut path = Vec::new();
    let mut at = Some(id);
    while let Some(id) = at {
        let op_name = module[id].common.metadata.as_ref().map_or("", |m| &*m.op_name);
        let name = if op_name.is_empty() { module[id].name() } else { op_name };
        path.extend(split_keys(name).into_iter().rev().map(str::to_owned));
        let parent = module[id].parent();
        path.push(module[parent].name().to_owned());
        at = callers[parent.index()];
    }
    path.reverse();
    path
}

/// `params['a/b'].c` is split at its keys and attributes; whatever is not wholly of that form stays one name.
fn split_keys(name: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let word_end = |s: &str| s.find(|c| !is_word(c)).unwrap_or(s.len());
    let end = word_end(name);
    if end == 0 || name.starts_with(|c: char| c.is_ascii_digit()) {
        return vec![name];
    }
    let (mut parts, mut rest, mut has_keys) = (vec![&name[..end]], &name[end..], false);
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix("['")
            && let Some(close) = inner.find('\'').filter(|&c| c > 0 && inner[c + 1..].starts_with(']'))
        {
            has_keys = true;
            parts.extend(inner[..close].split('/'));
            rest = &inner[close + 2..];
        } else if let Some(inner) = rest.strip_prefix('.')
            && word_end(inner) > 0
        {
            let (word, after) = inner.split_at(word_end(inner));
            parts.push(word);
            rest = after;
        } else {
            return vec![name];
        }
    }
    if has_keys { parts } else { vec![name] }
}

fn print(nodes: &[Node], total: i128, out: &mut String) {
    let mut remaining = total;
    // A node, its name, what stands before it, and whether it is the last of its siblings.
    let mut stack: Vec<(usize, &str, String, bool)> = vec![(0, "", "  ".into(), true)];
    while let Some((at, name, prefix, is_last)) = stack.pop() {
        let node = &nodes[at];
        if !name.is_empty() {
            let branch = match (prefix.as_str(), is_last) {
                ("  ", _) => "  ",
                (_, true) => "└── ",
                (_, false) => "├── ",
            };
            remaining -= node.own;
            let percent = if total > 0 { 100.0 * node.total as f64 / total as f64 } else { 0.0 };
            let _ = writeln!(
                out,
                "{prefix}{branch}{name} ({percent:.1}%, total: {} bytes, current: {} bytes, remaining: {} bytes)",
                grouped(node.total),
                grouped(node.own),
                grouped(remaining)
            );
        }
        let mut children: Vec<(&str, usize)> = node.children.iter().map(|(n, &c)| (n.as_str(), c)).collect();
        children.retain(|&(_, child)| nodes[child].total != 0);
        children.sort_by_key(|&(name, child)| (std::cmp::Reverse(nodes[child].total), name));
        let inner = match (name.is_empty(), is_last) {
            (true, _) => prefix,
            (false, true) => prefix + "    ",
            (false, false) => prefix + "│   ",
        };
        let last = children.len();
        for (i, (name, child)) in children.into_iter().enumerate().rev() {
            stack.push((child, name, inner.clone(), i + 1 == last));
        }
    }
}

/// `15 364`.
fn grouped(n: i128) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nested_parameters_are_split() {
        assert_eq!(split_keys("params['enc/mlp']['w'].value"), ["params", "enc", "mlp", "w", "value"]);
        for whole in ["jit(f)/mul", "x", "a.b", "ps[0][1]", "p['a']x", "p['']", "1['a']"] {
            assert_eq!(split_keys(whole), [whole]);
        }
    }

    #[test]
    fn digits_stand_in_threes() {
        assert_eq!([0, 999, 1000, 15_963_820].map(grouped), ["0", "999", "1 000", "15 963 820"]);
    }
}

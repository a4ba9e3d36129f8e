//! Shardings that the program gives and that do not fit together at an operation: two closed ones that cut one factor
//! along different axes. Such a program is lawful, and one of the two is moved there; a report tells of it.

use super::hlo_graph::HloGraph;
use crate::axes::AxisList;
use crate::factors::Value;
use hloom_ir::entity::InstructionId;
use hloom_ir::sharding::ShardingKind;
use smallvec::SmallVec;

/// An operation where two given shardings conflict.
#[derive(Clone, PartialEq, Debug)]
pub struct ShardingConflict {
    /// The operation.
    pub instruction: InstructionId,
    /// The two values that it takes or makes, each with what the program says of it.
    pub given: [(InstructionId, ShardingKind); 2],
}

/// Every operation where given shardings conflict, each once.
pub(super) fn conflicts(built: &HloGraph) -> Vec<ShardingConflict> {
    let mut found = Vec::new();
    let given = |v: &Value| v.sharding.as_ref().is_some_and(|s| s.dims.iter().any(|d| d.closed && !d.axes.is_empty()));
    let given: Vec<bool> = built.graph.values.iter().map(given).collect();
    for (op, &instruction) in built.graph.ops.iter().zip(&built.instructions) {
        if op.tensors.iter().filter(|t| t.value.is_some_and(|v| given[v.index()])).count() < 2 {
            continue;
        }
        let mut first: SmallVec<[Option<(usize, &AxisList)>; 8]> = SmallVec::from_elem(None, op.rule.factors.len());
        let mut pair = None;
        for (n, (tensor, dims)) in op.tensors.iter().zip(&op.rule.tensors).enumerate() {
            let sharding = tensor.value.filter(|_| tensor.view.is_none());
            let sharding = sharding.and_then(|v| built.graph.values[v.index()].sharding.as_ref());
            for (dim, factors) in sharding.iter().flat_map(|s| s.dims.iter().zip(dims)) {
                let (&[factor], true) = (factors.as_slice(), dim.closed && !dim.axes.is_empty()) else { continue };
                match first[factor as usize] {
                    None => first[factor as usize] = Some((n, &dim.axes)),
                    Some((other, axes)) if !axes.starts_with(&dim.axes) && !dim.axes.starts_with(axes) => {
                        pair = pair.or(Some((other, n)));
                    }
                    Some(_) => {}
                }
            }
        }
        let given = |n: usize| {
            let value = op.tensors[n].value?;
            let sharding = built.graph.values[value.index()].sharding.as_ref()?;
            Some((built.owners[value.index()].0, ShardingKind::Named(built.graph.to_named(sharding))))
        };
        if let Some((a, b)) = pair
            && let (Some(a), Some(b)) = (given(a), given(b))
        {
            found.push(ShardingConflict { instruction, given: [a, b] });
        }
    }
    found
}

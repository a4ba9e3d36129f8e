//! Which nests of loops a kernel consists of.
//!
//! Outputs of the same sizes are written by one nest. A dynamic-update-slice that is written in place is a nest over the
//! update alone.

use crate::affine::Affine;
use crate::graph::{Graph, NodeOp, ValueRef};
use crate::lower::{Index, Target, linear, lower, lower_with};
use crate::program::{Program, Store};
use crate::unsupported::Unsupported;

/// The loop programs that write all outputs of `graph`.
pub(crate) fn programs(graph: &Graph, in_place: bool) -> Result<Vec<Program>, Unsupported> {
    let mut programs = Vec::new();
    let mut plain: Vec<Target> = Vec::new();
    for (n, &output) in graph.outputs.iter().enumerate() {
        let buffer = graph.inputs + n as u32;
        let node = graph.node(output);
        if node.dims.contains(&0) {
            continue;
        }
        let is_parameter = |v: Option<&ValueRef>| v.is_some_and(|&v| matches!(graph.node(v).op, NodeOp::Parameter(_)));
        match &node.op {
            NodeOp::DynamicUpdateSlice if in_place && is_parameter(node.operands.first()) => {
                programs.push(update_in_place(graph, output, buffer)?);
            }
            _ => match plain.iter_mut().find(|t| t.dims[..] == node.dims[..]) {
                Some(target) => target.outputs.push((buffer, output)),
                None => plain.push(Target { dims: node.dims[..].into(), outputs: vec![(buffer, output)] }),
            },
        }
    }
    for target in &plain {
        programs.push(lower(graph, target)?);
    }
    Ok(programs)
}

/// Writes the update of a dynamic-update-slice over its place in the result, which holds the operand already.
fn update_in_place(graph: &Graph, output: ValueRef, buffer: u32) -> Result<Program, Unsupported> {
    let node = graph.node(output);
    let update = *node.operands.get(1).ok_or_else(|| Unsupported::new("a missing operand"))?;
    let sizes = graph.dims(update);
    lower_with(graph, sizes, &|lowerer, index| {
        let mut known = Vec::new();
        for &o in &node.operands[2..] {
            // Start indices, one by one or in a vector, are asked for first, so that `starts` finds them.
            let count = graph.dims(o).first().copied();
            for k in 0..count.unwrap_or(1) {
                let at: &[Affine] = if count.is_some() { &[Affine::constant(k)] } else { &[] };
                known.push(lowerer.value(o, at, None)?);
            }
        }
        let starts = lowerer.starts(&node.operands[2..], &node.dims, sizes);
        let starts = starts.ok_or_else(|| Unsupported::new("start indices that are not there"))?;
        let item = lowerer.value(update, index, None)?;
        let at: Index = index.iter().zip(&starts).map(|(i, s)| i.plus(s, 1)).collect();
        let offset = linear(&at, &node.dims);
        let element_type = node.types[0];
        lowerer.program.stores.push(Store { buffer, offset, item, element_type, combine: None, condition: None });
        Ok(())
    })
}

//! The rows of a result in one loop (unroll and jam): where a few rows are stacked that are made of the same values, as the derivatives of
//! a state of three numbers are, which a loop for each row would make again for every one. The dimension along which they
//! are stacked may be any, and there may be several. For processors, whose loops have the values of all rows in registers.
//!
//! Of short rows, down to single numbers, it is worth it where they are made of the same functions: little else is saved,
//! as a vector would hold several rows.

use crate::affine::{Affine, VarId};
use crate::graph::{Graph, NodeOp, ValueRef};
use crate::lower::{Index, NestOutputs, lower_with};
use crate::nests::programs;
use crate::program::LoopProgram;
use smallvec::SmallVec;

/// So many rows are made together at most: all their values are at hand at once.
const MOST_ROWS: i64 = 8;
/// Rows are at least so long, for vectors; of shorter ones the work is weighed.
const LEAST_LENGTH: i64 = 64;
/// A loop of more items would be more code than is worth compiling.
const MOST_ITEMS: usize = 500;
/// The share of the items of loops for each row that one for all must do with: more stores and fewer registers cost too.
const LARGEST_SHARE: f64 = 0.75;

/// One loop for all rows of all outputs, if rows are stacked in the graph and that saves work.
pub(crate) fn joined_rows(graph: &Graph) -> Option<LoopProgram> {
    let outputs: Vec<(u32, ValueRef)> = (graph.inputs..).zip(graph.outputs.iter().copied()).collect();
    let dims = graph.dims(outputs.first()?.1);
    let is_plain = |v: ValueRef| {
        let has_own_nests =
            matches!(graph.node(v).op, NodeOp::DynamicUpdateSlice | NodeOp::Scatter(_) | NodeOp::ReduceWindow { .. });
        graph.dims(v) == dims && !has_own_nests
    };
    if dims.contains(&0) || !outputs.iter().all(|&(_, v)| is_plain(v)) {
        return None;
    }
    let target = &NestOutputs { dims: dims.into(), outputs };
    // Of how many rows: which dimension of the result it is after transposes, the number of items tells.
    let mut heights = SmallVec::<[i64; 4]>::new();
    heights.extend(graph.nodes.iter().filter_map(|n| match n.op {
        NodeOp::Concatenate { dimension } => Some(n.dims[dimension]),
        _ => None,
    }));
    let stacked: SmallVec<[usize; 2]> =
        (0..dims.len()).filter(|&d| dims[d] > 1 && heights.contains(&dims[d])).collect();
    let rows: i64 = stacked.iter().map(|&d| dims[d]).product();
    let length: i64 = (0..dims.len()).filter(|d| !stacked.contains(d)).map(|d| dims[d]).product();
    if !(2..=MOST_ROWS).contains(&rows) {
        return None;
    }
    let rows: Vec<SmallVec<[i64; 2]>> = (0..rows).map(|row| place(row, &stacked, dims)).collect();
    let together = lower_rows(graph, target, &stacked, &rows)?;
    if length < LEAST_LENGTH {
        let apart: f64 = programs(graph, false).ok()?.iter().map(steps).sum();
        return (together.items.len() <= MOST_ITEMS && steps(&together) <= LARGEST_SHARE * apart).then_some(together);
    }
    let apart =
        rows.iter().map(|row| Some(lower_rows(graph, target, &stacked, std::slice::from_ref(row))?.items.len()));
    let apart: usize = apart.sum::<Option<usize>>()?;
    let items = together.items.len();
    // Where the rows are the innermost dimension, the loop would otherwise be as short as there are rows.
    let is_short = stacked.last() == Some(&(dims.len() - 1));
    let share = if is_short { 1.0 } else { LARGEST_SHARE };
    (items <= MOST_ITEMS && items as f64 <= share * apart as f64).then_some(together)
}

/// What a short loop takes, in additions of vectors or of single numbers, which take as long.
fn steps(program: &LoopProgram) -> f64 {
    const LANES: f64 = 16.0;
    let times = |vars: &[VarId]| {
        let points: f64 = vars.iter().map(|&v| program.extents[v as usize] as f64).product();
        (points / LANES).ceil()
    };
    program.items.iter().map(|i| times(&i.vars) * i.item.additions(i.element_type).max(1.0)).sum::<f64>()
        + program.stores.len() as f64 * times(&program.nest)
}

/// Where a row lies in the dimensions along which rows are stacked.
fn place(mut row: i64, stacked: &[usize], dims: &[i64]) -> SmallVec<[i64; 2]> {
    let mut at: SmallVec<[i64; 2]> = SmallVec::from_elem(0, stacked.len());
    for (at, &d) in at.iter_mut().zip(stacked).rev() {
        *at = row % dims[d];
        row /= dims[d];
    }
    at
}

/// One loop that writes those rows.
fn lower_rows(
    graph: &Graph,
    target: &NestOutputs,
    stacked: &[usize],
    rows: &[SmallVec<[i64; 2]>],
) -> Option<LoopProgram> {
    let all = 0..target.dims.len();
    let rest: SmallVec<[i64; 4]> = all.clone().filter(|d| !stacked.contains(d)).map(|d| target.dims[d]).collect();
    let program = lower_with(graph, &rest, &|lowerer, rest| {
        for row in rows {
            let (mut rest, mut row) = (rest.iter(), row.iter());
            let along = |d: usize| match stacked.contains(&d) {
                true => row.next().map(|&at| Affine::constant(at)),
                false => rest.next().cloned(),
            };
            let index: Index = all.clone().filter_map(along).collect();
            lowerer.store(&target.outputs, &index)?;
        }
        Ok(())
    });
    program.ok()
}

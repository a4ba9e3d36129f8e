//! Which nests of loops a kernel consists of.
//!
//! Outputs of the same sizes are written by one nest. A dynamic-update-slice that is written in place is a nest over the
//! update alone. A concatenation is a nest for each of its parts. A scatter is a nest over its updates, in order and in one piece: two of them may fall on one place.

use crate::affine::{Affine, ItemId, Term};
use crate::graph::{Graph, NodeOp, ScatterAttributes, ValueRef};
use crate::lower::{Index, NestOutputs, linear, lower, lower_with};
use crate::prefix_scan::PrefixScan;
use crate::program::{Item, ItemData, LoadSource, LoopProgram, Store};
use crate::unsupported::Unsupported;

/// The loop programs that write all outputs of `graph`.
pub fn programs(graph: &Graph, in_place: bool) -> Result<Vec<LoopProgram>, Unsupported> {
    let mut programs = Vec::new();
    let mut plain: Vec<NestOutputs> = Vec::new();
    let mut to_plain = |buffer, output| {
        let dims = graph.dims(output);
        match plain.iter_mut().find(|t| t.dims[..] == *dims) {
            Some(target) => target.outputs.push((buffer, output)),
            None => plain.push(NestOutputs { dims: dims.into(), outputs: vec![(buffer, output)] }),
        }
    };
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
            NodeOp::Concatenate { dimension } if node.operands.len() <= MAX_PARTS => {
                let mut start = 0;
                for &part in &node.operands {
                    let place = Place { buffer, dimension: *dimension, start };
                    start += graph.dims(part)[*dimension];
                    if !graph.dims(part).contains(&0) {
                        programs.push(part_of(graph, output, part, place)?);
                    }
                }
            }
            NodeOp::ReduceWindow { window, function } => match PrefixScan::of(window, graph.dims(node.operands[0])) {
                // All results of one instruction come out of one loop.
                Some(_) if graph.outputs[..n].iter().any(|o| o.node == output.node) => {}
                Some(running) => programs.push(running.program(graph, output.node, function)?),
                None => to_plain(buffer, output),
            },
            NodeOp::Scatter(attributes) => programs.push(scatter(graph, output, attributes, buffer, in_place)?),
            _ => to_plain(buffer, output),
        }
    }
    for target in &plain {
        programs.push(lower(graph, target)?);
    }
    if in_place {
        check_overwritten(graph, &programs)?;
    }
    Ok(programs)
}

/// Refuses what would read an array that is being changed in place anywhere but where it is written next.
fn check_overwritten(graph: &Graph, programs: &[LoopProgram]) -> Result<(), Unsupported> {
    for (n, &output) in graph.outputs.iter().enumerate() {
        let node = graph.node(output);
        let changed = match (&node.op, node.operands.get(output.result as usize).map(|&o| &graph.node(o).op)) {
            (NodeOp::DynamicUpdateSlice | NodeOp::Scatter(_), Some(&NodeOp::Parameter(buffer))) => buffer,
            _ => continue,
        };
        let written = graph.inputs + n as u32;
        for program in programs.iter().flat_map(|p| std::iter::once(p).chain(p.before.as_deref())) {
            let place = program.stores.iter().find(|s| s.buffer == written).map(|s| &s.offset);
            let elsewhere = |i: &ItemData| {
                matches!(&i.item, Item::Load { source: LoadSource::Buffer(b), offset, .. }
                    if *b == changed && Some(offset) != place)
            };
            if program.items.iter().any(elsewhere) {
                return Err(Unsupported::new("a change in place of what is read elsewhere"));
            }
        }
    }
    Ok(())
}

/// Up to so many parts a concatenation is a nest for each.
pub const MAX_PARTS: usize = 32;

/// Where a part of a result lies.
struct Place {
    buffer: u32,
    dimension: usize,
    start: i64,
}

/// Writes one part of a concatenation.
fn part_of(graph: &Graph, output: ValueRef, part: ValueRef, place: Place) -> Result<LoopProgram, Unsupported> {
    let node = graph.node(output);
    lower_with(graph, graph.dims(part), &|lowerer, index| {
        let item = lowerer.value(part, index, None)?;
        let mut at: Index = index.into();
        at[place.dimension] = at[place.dimension].plus_constant(place.start);
        let (offset, element_type) = (linear(&at, &node.dims), node.types[0]);
        let buffer = place.buffer;
        lowerer.program.stores.push(Store { buffer, offset, item, element_type, combine: None, condition: None });
        Ok(())
    })
}

/// Writes the update of a dynamic-update-slice over its place in the result, which holds the operand already.
fn update_in_place(graph: &Graph, output: ValueRef, buffer: u32) -> Result<LoopProgram, Unsupported> {
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

impl LoopProgram {
    /// Makes the innermost loop, which runs within the windows, an outermost one over parts of the windows.
    fn cut_windows(&mut self) {
        let Some(&var) = self.nest.last() else { return };
        let extent = self.extents[var as usize];
        let size = Some(extent / 2).filter(|&half| extent % 2 == 0 && half >= MIN_WINDOW_PART);
        let within = self.stores.iter().all(|s| s.offset.factor(Term::Var(var)) == 1);
        if let Some(size) = size.filter(|_| within && self.nest.len() > 1) {
            let parts = self.split(var, size);
            self.nest.insert(0, parts);
            self.apart = 1;
        }
    }
}

/// Shorter parts of windows would be lost among the indices that each part reads again.
const MIN_WINDOW_PART: i64 = 32;

/// Combines the updates of a scatter, one after another, with what is in their places.
fn scatter(
    graph: &Graph,
    output: ValueRef,
    attributes: &ScatterAttributes,
    buffer: u32,
    in_place: bool,
) -> Result<LoopProgram, Unsupported> {
    let node = graph.node(output);
    // Several arrays are scattered one after another, if what becomes of one does not depend on the others.
    let (n, count) = (output.result as usize, node.types.len());
    let at = |k: usize| node.operands.get(k).copied().ok_or_else(|| Unsupported::new("a missing operand"));
    let (operand, indices, update) = (at(n)?, at(count)?, at(count + 1 + n)?);
    let element_type = node.types[n];
    let function = attributes.function.part(n);
    let function = &function.ok_or_else(|| Unsupported::new("a scatter of arrays that depend on each other"))?;
    if function.parameters[..] != [element_type, graph.element_type(update)] {
        return Err(Unsupported::new("a scatter by a function of other types"));
    }
    let dims = &attributes.dims;
    let update_dims = graph.dims(update);
    let is_window = |d: usize| dims.update_window_dims.contains(&(d as i64));
    // The batch is walked outside, the window inside.
    let batch: Vec<usize> = (0..update_dims.len()).filter(|&d| !is_window(d)).collect();
    let window: Vec<usize> = dims.update_window_dims.iter().map(|&d| d as usize).collect();
    let order: Vec<usize> = batch.iter().chain(&window).copied().collect();
    let sizes: Vec<i64> = order.iter().map(|&d| update_dims[d]).collect();
    let unchanged = NestOutputs { dims: node.dims[..].into(), outputs: vec![(buffer, operand)] };
    if sizes.contains(&0) {
        return lower(graph, &unchanged);
    }
    let mut program = lower_with(graph, &sizes, &|lowerer, index| {
        let mut at_update: Index = update_dims.iter().map(|_| Affine::default()).collect();
        for (&d, i) in order.iter().zip(index) {
            at_update[d] = i.clone();
        }
        let (vector_dim, index_rank) = (dims.index_vector_dim as usize, graph.dims(indices).len());
        let mut batch_index = index.iter();
        let at_indices: Index = (0..index_rank)
            .map(|d| if d == vector_dim { Affine::default() } else { batch_index.next().cloned().unwrap_or_default() })
            .collect();
        let mut offsets = index[batch.len()..].iter().zip(&window).map(|(i, &d)| (i.clone(), update_dims[d]));
        let mut condition: Option<ItemId> = None;
        let mut at = Index::new();
        for (d, &size) in node.dims.iter().enumerate() {
            let d64 = d as i64;
            let (mut component, mut extent) = (Affine::default(), 1);
            if let Some(k) = dims.input_batching_dims.iter().position(|&b| b == d64) {
                let of = dims.scatter_indices_batching_dims.get(k).copied().unwrap_or(0) as usize;
                component = at_indices.get(of).cloned().unwrap_or_default();
            } else if !dims.inserted_window_dims.contains(&d64) {
                (component, extent) = offsets.next().ok_or_else(|| Unsupported::new("a window that does not fit"))?;
            }
            if let Some(k) = dims.scatter_dims_to_operand_dims.iter().position(|&m| m == d64) {
                let mut at = at_indices.clone();
                if vector_dim < index_rank {
                    at[vector_dim] = Affine::constant(k as i64);
                }
                let start = lowerer.value(indices, &at, None)?;
                let start = Affine::term(Term::Item(lowerer.index_item(start)));
                // An update whose window does not lie inside as a whole is dropped as a whole.
                match lowerer.in_range(&start, 0, size - extent + 1) {
                    Ok(true) => {}
                    Ok(false) => return Ok(()),
                    Err(item) => condition = lowerer.and(condition, Some(item)),
                }
                component = component.plus(&start, 1);
            } else if extent > size {
                return Ok(());
            }
            at.push(component);
        }
        let item = lowerer.value(update, &at_update, None)?;
        let combine = (function.forwarded_parameter() != Some(1)).then(|| function.clone());
        let offset = linear(&at, &node.dims);
        lowerer.program.stores.push(Store { buffer, offset, item, element_type, combine, condition });
        Ok(())
    })?;
    program.is_sequential = true;
    // Windows that are not moved along any of their dimensions can be cut: no part of one meets another part.
    let is_moved = |d: usize| dims.scatter_dims_to_operand_dims.contains(&(d as i64));
    let windows_stay = (0..node.dims.len()).all(|d| dims.inserted_window_dims.contains(&(d as i64)) || !is_moved(d));
    program.overlapping = !windows_stay;
    if in_place && windows_stay && !window.is_empty() {
        program.cut_windows();
    }
    match graph.node(operand).op {
        NodeOp::Parameter(from) => {
            let bytes = node.dims.iter().product::<i64>() * element_type.bytes() as i64;
            program.copy_first = (program.apart == 0).then_some((from, buffer, bytes));
        }
        _ if program.apart > 0 => return Err(Unsupported::new("a change in place of what is made on the way")),
        _ => program.before = Some(Box::new(lower(graph, &unchanged)?)),
    }
    Ok(program)
}

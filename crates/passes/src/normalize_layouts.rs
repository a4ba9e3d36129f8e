//! Layout normalisation: everything row-major, and what layouts said made part of the program.
//!
//! In a scheduled dump a bitcast means the bytes of its operand, which its layout and tiles put into an order, read again
//! in that of the result. After this pass that is written as reshapes and transposes ([`memory`]), and layouts say nothing
//! any more: every array is row-major, without tiles, in the default memory. Only custom calls that are written with the
//! layouts that they work on keep them: those say how their code is called. So does the header, which says how arguments
//! and results are handed over: their orders of dimensions stay there, without tiles.
//! Before a module is scheduled its layouts are proposals, and a bitcast to the same dimensions is the identity.

mod memory;
mod slices;

use crate::mixed_precision::legalize;
use crate::pass::{Context, Pass};
use hloom_ir::builder::Builder;
use hloom_ir::diagnostic::codes::eval::UNSUPPORTED;
use hloom_ir::diagnostic::{Blame, Diagnostic, Part};
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::Layout;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::shape::{ArrayShape, ProgramShape, Shape};
use hloom_value::ExecutionError;
use memory::Reading;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The pass.
pub static PASS: Pass = Pass {
    name: "normalize-layouts",
    statement: "makes every array row-major, with transposes where bitcasts relied on layouts",
    // It drops it itself, having asked what bitcasts mean.
    keeps_schedule: true,
    run: |module: &mut Module, _: &Context<'_>| normalize_layouts(module),
};

/// Normalises the layouts of `module`, which has no schedule and no mixed precision afterwards unless nothing changed. An
/// error if the program depends on what padding holds, or reads memory in a way of which nothing is known.
pub fn normalize_layouts(module: &mut Module) -> Result<usize, Diagnostic> {
    hloom_eval::padding::check(module).map_err(ExecutionError::into_diagnostic)?;
    let changes = normalize_header(module) + replace_readings(module)? + normalize_shapes(module);
    if changes == 0 {
        return Ok(0);
    }
    module.is_scheduled = false;
    // Without a schedule and without layouts nothing says any more that a compiler mixed these types.
    Ok(changes + legalize(module)?)
}

/// Writes out whatever reads memory.
fn replace_readings(module: &mut Module) -> Result<usize, Diagnostic> {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    let readers: Vec<InstructionId> = all.copied().filter(|&i| memory::reads_memory(module, i)).collect();
    // The meaning of a bitcast depends on the layout of its operand, so all are looked at before any is replaced.
    let mut readings = Vec::new();
    for i in readers {
        match Reading::of(module, i) {
            Some(reading) => readings.push((i, reading)),
            None if stays_in_order(module, i) => {}
            None => return Err(unknown(module, i)),
        }
    }
    let mut dead = Vec::new();
    let mut replaced: FxHashMap<InstructionId, InstructionId> = FxHashMap::default();
    for (i, reading) in readings {
        // What it reads may have been replaced since, even more than once.
        let reading = reading.of_current(|mut operand| {
            while let Some(&new) = replaced.get(&operand) {
                operand = new;
            }
            operand
        });
        let before = module.instruction_slots();
        let Some(to) = module[i].shape.as_array().cloned() else { continue };
        let parent = module[i].parent();
        // Whatever is added at the end of the list must not become the root by that.
        if let Some(root) = module.root(parent) {
            module.set_root(root);
        }
        let value = reading
            .write_out(&mut Builder::resume(module, parent), &to)
            .map_err(|e| Diagnostic::error(e.code, e.message).blame(Blame::Hloom).at_instruction(i, Part::Whole))?;
        for n in before..module.instruction_slots() {
            let id = hloom_ir::entity::EntityId::from_index(n);
            let metadata = module[i].common.metadata.clone();
            module.instruction_mut(id).common.metadata = metadata;
        }
        let waits = module[i].common.rare.is_some() && !module[i].common.control_predecessors().is_empty();
        if !waits && module.replace_all_uses(i, value).is_ok() {
            dead.push(i);
            replaced.insert(i, value);
        }
    }
    if dead.is_empty() {
        return Ok(0);
    }
    let pinned = crate::facts::pinned(module);
    dead.retain(|&i| !pinned[i]);
    let removed = module.remove_instructions(&dead);
    debug_assert!(removed.is_ok(), "{removed:?}");
    Ok(dead.len())
}

/// Whether `i` is a bitcast that says nothing of memory: of something that is no array, or of an array of dynamic size
/// both of whose layouts are row-major without tiles.
fn stays_in_order(module: &Module, i: InstructionId) -> bool {
    let plain = |a: &ArrayShape| a.layout.as_ref().is_none_or(|l| l.is_descending() && l.tiles.is_empty());
    let operand = module[i].operands().first().and_then(|&o| module[o].shape.as_array());
    match (&module[i].op, operand, module[i].shape.as_array()) {
        (Op::Bitcast, Some(from), Some(to)) => plain(from) && plain(to),
        (Op::Bitcast, _, _) => true,
        _ => false,
    }
}

fn unknown(module: &Module, i: InstructionId) -> Diagnostic {
    let instruction = &module[i];
    let operands: Vec<String> = instruction.operands().iter().map(|&o| module[o].shape.to_string()).collect();
    let message = format!("nothing is known of reading {} as {}", operands.join(", "), instruction.shape);
    Diagnostic::error(&UNSUPPORTED, message).at_instruction(i, Part::Opcode)
}

fn normalize_shapes(module: &mut Module) -> usize {
    let mut changes = 0;
    let all: Vec<InstructionId> =
        module.computations().iter().flat_map(|&c| module[c].instructions()).copied().collect();
    for i in all {
        let instruction = module.instruction_mut(i);
        // A call that names the layouts that it works on is given its arrays in those, wherever they come from.
        if matches!(&instruction.op, Op::CustomCall(call) if call.operand_layouts.is_some()) {
            continue;
        }
        if let Some(shape) = row_major(&instruction.shape) {
            instruction.shape = shape;
            changes += 1;
        }
        match &mut instruction.op {
            Op::Constant(ConstantValue::Literal(literal)) => {
                if let Some(normal) = normal_literal(literal) {
                    *literal = Arc::new(normal);
                }
            }
            Op::Outfeed { shape, .. } => {
                if let Some(normal) = row_major(shape) {
                    *shape = normal;
                }
            }
            _ => {}
        }
    }
    changes
}

/// Has the header name the orders of dimensions of parameters and results, and nothing else of their layouts. What it
/// leaves open stays open.
fn normalize_header(module: &mut Module) -> usize {
    let Some(entry) = module.entry() else { return 0 };
    let said = module.config.entry_layout.clone().or_else(|| module.program_shape(entry));
    let Some(said) = said else { return 0 };
    let order = |shape: &Shape| {
        shape.map_arrays(&mut |a| match a.layout {
            Some(_) => a.clone().with_layout(a.entry_layout()),
            None => a.clone(),
        })
    };
    let normal = ProgramShape { parameters: said.parameters.iter().map(order).collect(), result: order(&said.result) };
    let is_new = module.config.entry_layout.as_ref() != Some(&normal);
    // A header that says what goes without saying need not be.
    if !is_new
        || module.config.entry_layout.is_none() && normal.parameters.iter().chain([&normal.result]).all(is_row_major)
    {
        return 0;
    }
    module.config.entry_layout = Some(normal);
    1
}

/// The shape with all arrays row-major; `None` if they are already.
fn row_major(shape: &Shape) -> Option<Shape> {
    if is_row_major(shape) {
        return None;
    }
    Some(shape.map_arrays(&mut |a| a.clone().with_default_layout()))
}

fn is_row_major(shape: &Shape) -> bool {
    match shape {
        Shape::Array(a) | Shape::Buffer(a) => a.layout.as_ref().is_some_and(|l| is_plain(l, a.rank())),
        Shape::Tuple(t) => t.iter().all(is_row_major),
        Shape::Token | Shape::Opaque => true,
    }
}

fn is_plain(layout: &Layout, rank: usize) -> bool {
    let Layout { minor_to_major, tiles, memory_space, element_size_in_bits, rare } = layout;
    minor_to_major.len() == rank
        && minor_to_major.iter().rev().enumerate().all(|(k, &d)| d == k as i64)
        && tiles.is_empty()
        && *memory_space == 0
        && *element_size_in_bits == 0
        && rare.is_none()
}

/// The constant under a row-major shape; `None` if it is already.
fn normal_literal(literal: &Literal) -> Option<Literal> {
    match literal {
        Literal::Array(a) if !a.shape().layout.as_ref().is_some_and(|l| is_plain(l, a.shape().rank())) => {
            let shape = Arc::new(a.shape().clone().with_default_layout());
            a.clone().with_shape(shape).ok().map(Literal::Array)
        }
        Literal::Tuple(parts) => {
            let normal: Vec<Option<Literal>> = parts.iter().map(normal_literal).collect();
            let any = normal.iter().any(Option::is_some);
            let whole = normal.into_iter().zip(parts).map(|(n, old)| n.unwrap_or_else(|| old.clone()));
            any.then(|| Literal::Tuple(whole.collect()))
        }
        _ => None,
    }
}

//! Layout normalisation: everything row-major, and what layouts said made part of the program.
//!
//! In a scheduled dump a bitcast means the bytes of its operand, which its layout orders, read again in the order of
//! the result's layout. That is a transpose into the physical order, a reshape, and a transpose out of it; after this pass
//! it is written so, and layouts say nothing any more: every array is row-major, without tiles, in the default memory. Only
//! custom calls that are written with the layouts that they work on keep them: those say how their code is called.
//! Before a module is scheduled its layouts are proposals, and a bitcast to the same dimensions is the identity.

use crate::pass::{Context, Pass};
use hloom_ir::builder::Builder;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::{DimVec, Layout};
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::shape::{ArrayShape, Shape};
use std::sync::Arc;

/// The pass.
pub static PASS: Pass = Pass {
    name: "normalize-layouts",
    statement: "makes every array row-major, with transposes where bitcasts relied on layouts",
    // It drops it itself, having asked what bitcasts mean.
    keeps_schedule: true,
    run: |module: &mut Module, _: &Context<'_>| Ok(normalize_layouts(module)) as Result<usize, Diagnostic>,
};

/// Normalises the layouts of `module`, which has no schedule afterwards unless nothing changed.
pub fn normalize_layouts(module: &mut Module) -> usize {
    let changes = replace_bitcasts(module) + normalize_shapes(module);
    if changes > 0 {
        module.is_scheduled = false;
    }
    changes
}

fn replace_bitcasts(module: &mut Module) -> usize {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    let bitcasts: Vec<InstructionId> = all.copied().filter(|&i| matches!(module[i].op, Op::Bitcast)).collect();
    // The meaning of a bitcast depends on the layout of its operand, so all are looked at before any is replaced.
    let forms: Vec<Option<Physical>> = bitcasts.iter().map(|&i| Physical::of(module, i)).collect();
    let mut dead = Vec::new();
    for (i, form) in bitcasts.into_iter().zip(forms) {
        let Some(form) = form else { continue };
        let Some(&operand) = module[i].operands().first() else { continue };
        let before = module.instruction_slots();
        let Some(value) = form.write_out(module, i, operand) else { continue };
        for n in before..module.instruction_slots() {
            let id = hloom_ir::entity::EntityId::from_index(n);
            let metadata = module[i].common.metadata.clone();
            module.instruction_mut(id).common.metadata = metadata;
        }
        let waits = module[i].common.rare.is_some() && !module[i].common.control_predecessors().is_empty();
        if !waits && module.replace_all_uses(i, value).is_ok() {
            dead.push(i);
        }
    }
    if dead.is_empty() {
        return 0;
    }
    let pinned = crate::facts::pinned(module);
    dead.retain(|&i| !pinned[i]);
    let removed = module.remove_instructions(&dead);
    debug_assert!(removed.is_ok(), "{removed:?}");
    dead.len()
}

/// What a bitcast does, in steps that do not ask for layouts.
struct Physical {
    /// The transpose of the operand into its physical order.
    into: DimVec,
    /// The dimensions of the result in its physical order.
    dims: DimVec,
    /// The transpose out of it.
    out: DimVec,
}

impl Physical {
    /// What the bitcast `i` does; `None` if that is not known or it stays a bitcast.
    fn of(module: &Module, i: InstructionId) -> Option<Physical> {
        let from = module[*module[i].operands().first()?].shape.as_array()?;
        let to = module[i].shape.as_array()?;
        if from.is_dynamic() || to.is_dynamic() {
            return None;
        }
        let bytes = |a: &ArrayShape| a.byte_size();
        if bytes(from)? != bytes(to)? {
            return None;
        }
        if from.same_dims_and_type(to) && !module.is_scheduled {
            let identity: DimVec = (0..from.rank() as i64).collect();
            return Some(Physical { into: identity.clone(), dims: to.dims().into(), out: identity });
        }
        let major_to_minor = |shape: &ArrayShape| -> DimVec { shape.minor_to_major().into_iter().rev().collect() };
        let order = major_to_minor(to);
        let dims = order.iter().map(|&d| to.dims().get(d as usize).copied()).collect::<Option<DimVec>>()?;
        let mut out = order.clone();
        for (position, &d) in order.iter().enumerate() {
            *out.get_mut(d as usize)? = position as i64;
        }
        Some(Physical { into: major_to_minor(from), dims, out })
    }

    fn write_out(&self, module: &mut Module, i: InstructionId, operand: InstructionId) -> Option<InstructionId> {
        let element_type = module[i].shape.element_type()?;
        let parent = module[i].parent();
        // Whatever is added at the end of the list must not become the root by that.
        if let Some(root) = module.root(parent) {
            module.set_root(root);
        }
        let mut b = Builder::resume(module, parent);
        let is_identity = |order: &[i64]| order.iter().enumerate().all(|(k, &d)| d == k as i64);
        let mut value = operand;
        if !is_identity(&self.into) {
            value = b.transpose(value, self.into.iter().copied()).ok()?;
        }
        let shape = b.shape(value).as_array()?;
        if shape.element_type != element_type {
            let shape = ArrayShape::new(element_type, self.dims.iter().copied()).with_default_layout();
            value = b.push_shaped(Op::Bitcast, &[value], shape).ok()?;
        } else if shape.dims() != self.dims.as_slice() {
            value = b.reshape(value, self.dims.iter().copied()).ok()?;
        }
        if !is_identity(&self.out) {
            value = b.transpose(value, self.out.iter().copied()).ok()?;
        }
        Some(value)
    }
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
    if let Some(entry) = &mut module.config.entry_layout {
        for shape in entry.parameters.iter_mut().chain([&mut entry.result]) {
            if let Some(normal) = row_major(shape) {
                *shape = normal;
                changes += 1;
            }
        }
    }
    changes
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

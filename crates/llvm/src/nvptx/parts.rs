//! The parts of a kernel: which blocks do which of them, and which parts are the same code over other arrays.
//!
//! Where many small arrays are treated alike, as the parameters of a model by an optimiser, the code is there once; each
//! block finds out by a few comparisons which arrays are its own.

use super::{GridBody, GridKernel, LoopGrid};
use hloom_ir::ElementType;
use hloom_loops::affine::{Affine, ItemId};
use hloom_loops::program::{Item, LoadSource};
use rustc_hash::FxHashMap;

/// Parts with the same code.
pub(super) struct LikeParts<'k> {
    /// Each part: the number of its blocks, its body, and its buffers in the order in which the code names them.
    pub(super) members: Vec<(u32, &'k GridBody, Vec<u32>)>,
}

/// What two parts have in common whose code is the same: all but the arrays and their size.
type Key = ((u32, u32, u32), Vec<(Item, ElementType)>, Vec<(u32, Affine, ItemId, ElementType)>);

/// The code of a part over a single loop, and its buffers in the order in which they occur.
fn key(grid: &LoopGrid) -> Option<(Key, Vec<u32>)> {
    let program = &grid.program;
    let plain = program.nest[..] == [0] && program.extents.len() == 1 && program.scan().is_none();
    if !plain || program.stores.iter().any(|s| s.combine.is_some() || s.condition.is_some()) {
        return None;
    }
    let mut buffers: Vec<u32> = Vec::new();
    let mut number = |buffer: u32| match buffers.iter().position(|&b| b == buffer) {
        Some(n) => n as u32,
        None => {
            buffers.push(buffer);
            buffers.len() as u32 - 1
        }
    };
    let mut items = Vec::with_capacity(program.items.len());
    for data in &program.items {
        let mut item = data.item.clone();
        match &mut item {
            Item::Load { source: LoadSource::Buffer(b), .. } => *b = number(*b),
            // These may be computed otherwise for a large array than for a small one.
            Item::Quotient(..) | Item::Remainder(..) | Item::Index(_) | Item::InRange { .. } => return None,
            _ => {}
        }
        items.push((item, data.element_type));
    }
    let stores = program.stores.iter().map(|s| (number(s.buffer), s.offset.clone(), s.item, s.element_type)).collect();
    Some((((grid.lanes, grid.chunks, grid.in_order), items, stores), buffers))
}

/// The parts of a kernel, those with the same code together.
pub(super) fn like_parts(kernel: &GridKernel) -> Vec<LikeParts<'_>> {
    let mut parts: Vec<LikeParts<'_>> = Vec::new();
    let mut known: FxHashMap<Key, usize> = FxHashMap::default();
    for (blocks, body) in &kernel.parts {
        let found = match body {
            GridBody::Loops(grid) => key(grid),
            _ => None,
        };
        let Some((key, buffers)) = found else {
            parts.push(LikeParts { members: vec![(*blocks, body, Vec::new())] });
            continue;
        };
        let at = *known.entry(key).or_insert(parts.len());
        if at == parts.len() {
            parts.push(LikeParts { members: Vec::new() });
        }
        parts[at].members.push((*blocks, body, buffers));
    }
    parts
}

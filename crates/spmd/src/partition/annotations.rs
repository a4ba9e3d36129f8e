//! What the program says of how its values lie, read once.
//!
//! A program has few shardings and states each of them many times. [`Stated`] tells them apart; [`Annotations`] has what
//! they mean in the axes of the grid, for every leaf of every instruction.

use super::axes::{DeviceAxes, tiles_of};
use super::spec::Spec;
use super::{Emit, error};
use hloom_ir::Shape;
use hloom_ir::diagnostic::Part;
use hloom_ir::entity::{InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::shape::ArrayShape;
use hloom_ir::sharding::{LeafSharding, Sharding, ShardingKind, TileAssignment};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// One of a program's shardings.
pub(crate) struct StatedSharding<'s> {
    tiles: Option<Cow<'s, TileAssignment>>,
    /// The first instruction that states it.
    by: InstructionId,
}

impl StatedSharding<'_> {
    /// Its tiles, if it has some.
    pub(crate) fn tiles(&self) -> Option<&TileAssignment> {
        self.tiles.as_deref()
    }
}

/// The shardings of a program, each once.
pub(crate) struct Stated<'s> {
    /// In the order in which they come up.
    pub all: Vec<StatedSharding<'s>>,
    numbers: FxHashMap<&'s ShardingKind, usize>,
    /// Of every leaf of every instruction's sharding, which it is.
    leaves: Vec<u32>,
}

impl<'s> Stated<'s> {
    pub(crate) fn new(source: &'s Module) -> Stated<'s> {
        let mut stated = Stated { all: Vec::new(), numbers: FxHashMap::default(), leaves: Vec::new() };
        // Instructions share what is stated of them, which then need not be looked at again.
        let mut shared: FxHashMap<*const Sharding, Range<usize>> = FxHashMap::default();
        for &c in source.computations() {
            for &i in source[c].instructions() {
                let Some(sharding) = &source[i].common.sharding else { continue };
                if let Some(leaves) = shared.get(&Arc::as_ptr(sharding)) {
                    stated.leaves.extend_from_within(leaves.clone());
                    continue;
                }
                let start = stated.leaves.len();
                for leaf in sharding.leaves() {
                    let number = *stated.numbers.entry(&leaf.kind).or_insert_with(|| {
                        stated.all.push(StatedSharding { tiles: tiles_of(&leaf.kind), by: i });
                        stated.all.len() - 1
                    });
                    stated.leaves.push(number as u32);
                }
                shared.insert(Arc::as_ptr(sharding), start..stated.leaves.len());
            }
        }
        stated
    }

    /// The tiles of one of them.
    pub(crate) fn tiles(&self, leaf: &LeafSharding) -> Option<&TileAssignment> {
        self.all[*self.numbers.get(&leaf.kind)?].tiles()
    }

    /// Refuses shardings that no array can have.
    pub(crate) fn check(&self, devices: i64) -> Emit<()> {
        for stated in &self.all {
            let Some(tiles) = stated.tiles() else { continue };
            let tiles = tiles.dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
            if tiles != Some(devices) {
                let tiles = tiles.map_or("too many".into(), |t| t.to_string());
                return Err(error(format!("a sharding is for {tiles} devices, the program for {devices}"))
                    .at_instruction(stated.by, Part::Attribute("sharding")));
            }
        }
        Ok(())
    }
}

/// How every leaf of every instruction is to lie.
pub(crate) struct Annotations {
    /// Where the leaves of an instruction begin in `leaves`, and how many there are.
    of: SideTable<InstructionId, (u32, u32)>,
    /// Which of `specs` each leaf has.
    leaves: Vec<u32>,
    specs: Vec<Spec>,
}

impl Annotations {
    pub(crate) fn new(source: &Module, axes: &DeviceAxes, stated: &Stated<'_>) -> Annotations {
        let mut of = SideTable::with_len(source.instruction_slots(), (0, 0));
        let (mut leaves, mut specs) = (Vec::with_capacity(stated.leaves.len()), Vec::new());
        // What a sharding means depends on the array's rank, and on whether it has elements.
        let mut known: FxHashMap<(Option<u32>, usize, bool), u32> = FxHashMap::default();
        let mut numbers = &stated.leaves[..];
        for &c in source.computations() {
            for &i in source[c].instructions() {
                let given = source[i].common.sharding.as_deref().map_or(&[][..], |s| s.leaves());
                let (own, rest) = numbers.split_at(given.len());
                numbers = rest;
                let start = leaves.len();
                each_leaf(&source[i].shape, &mut |shape| {
                    let n = if given.len() == 1 { 0 } else { leaves.len() - start };
                    let rank = shape.as_array_or_buffer().map_or(0, ArrayShape::rank);
                    let is_empty = shape.as_array().is_some_and(|a| a.element_count() == Some(0));
                    let spec = *known.entry((own.get(n).copied(), rank, is_empty)).or_insert_with(|| {
                        let stated = given.get(n).and_then(|leaf| Spec::from_sharding(axes, leaf, rank));
                        let mut spec = stated.unwrap_or_else(|| Spec::replicated(rank));
                        // Arrays without elements are whole everywhere, but for what is manual or to be combined.
                        if is_empty {
                            spec.dims.iter_mut().for_each(|d| d.clear());
                        }
                        specs.push(spec);
                        specs.len() as u32 - 1
                    });
                    leaves.push(spec);
                });
                of.set(i, (start as u32, (leaves.len() - start) as u32));
            }
        }
        Annotations { of, leaves, specs }
    }

    /// Those of an instruction.
    pub(crate) fn leaves(&self, i: InstructionId) -> impl ExactSizeIterator<Item = &Spec> {
        let (start, count) = self.of[i];
        self.leaves[start as usize..][..count as usize].iter().map(|&spec| &self.specs[spec as usize])
    }
}

fn each_leaf(shape: &Shape, f: &mut impl FnMut(&Shape)) {
    match shape {
        Shape::Tuple(elements) => elements.iter().for_each(|e| each_leaf(e, f)),
        _ => f(shape),
    }
}

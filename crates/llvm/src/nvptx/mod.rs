//! Kernels for NVIDIA GPUs: loop programs whose points are spread over the threads of a grid, as PTX.
//!
//! A [`GridKernel`] says which thread computes what; who makes it knows the machine. [`points`] has the code of one thread,
//! [`rows`] that of threads that walk rows together, [`tiles`] that of transposes, [`kernel`] the function around it. Blocks have one dimension.

mod constants;
mod exchange;
mod indices;
mod kernel;
mod memory;
mod pairs;
mod parts;
mod points;
mod rows;
mod short_min_max;
mod stores;
mod tiles;

use crate::emit::ir::Ir;
use crate::failure::LlvmError;
use crate::generator::{Effort, Generator};
use crate::machine::Machine;
use hloom_loops::affine::{ItemId, VarId};
use hloom_loops::program::LoopProgram;
use hloom_loops::row_passes::RowPasses;

/// A kernel to be made.
#[derive(Clone, Debug)]
pub struct GridKernel {
    /// The name of its entry.
    pub name: String,
    /// Threads of a block.
    pub threads: u32,
    /// Whether an array has so many elements that indices need 64 bits.
    pub is_wide: bool,
    /// What the blocks do: so many of them each of these, in order.
    pub parts: Vec<(u32, GridBody)>,
}

/// What some blocks of a kernel do.
#[derive(Clone, Debug)]
pub enum GridBody {
    /// Each thread some neighbouring points of a nest.
    Loops(LoopGrid),
    /// Threads walk rows together.
    Rows(RowGrid),
    /// Blocks have tiles that are read along one loop and written along another.
    Tiles(TileGrid),
}

/// A thread for each group of neighbouring points of a nest.
#[derive(Clone, Debug)]
pub struct LoopGrid {
    /// What is computed. Stores that combine do so by atomic operations, in any order.
    pub program: LoopProgram,
    /// Points of a thread along the innermost loop, which they divide; or all of it and some of the next, which these divide.
    pub lanes: u32,
    /// How many such groups a thread has, as far apart as a block has threads.
    pub chunks: u32,
    /// How many of the innermost loops each thread walks by itself, in order; it then has one group of one lane.
    pub in_order: u32,
}

/// Square parts of a nest, whose loads along another loop than the innermost go through shared memory.
#[derive(Clone, Debug)]
pub struct TileGrid {
    /// What is computed: no reductions, no stores that combine.
    pub program: LoopProgram,
    /// The loop along which the loads find neighbours.
    pub across: VarId,
    /// Those loads: of arrays of the caller, without guards, at indices of loops only.
    pub loads: Vec<ItemId>,
    /// The sides of a tile: along that loop, and along the innermost. Their product is a multiple of a block's threads
    /// times the lanes.
    pub tile_across: u32,
    /// Along the innermost loop.
    pub tile_inner: u32,
    /// Neighbours that a thread loads at once; they divide that loop.
    pub lanes_across: u32,
    /// Neighbours that a thread computes; they divide the innermost loop.
    pub lanes: u32,
}

/// Threads that walk rows together.
#[derive(Clone, Debug)]
pub struct RowGrid {
    /// What is computed.
    pub passes: RowPasses,
    /// Whether neighbouring threads have neighbouring rows, not neighbouring elements of a row.
    pub by_column: bool,
    /// Neighbours that a thread has: elements of a row or, by columns, rows. They divide the innermost such loop.
    pub lanes: u32,
    /// Threads that share a row, a power of two; by rows, at most 1024.
    pub slots: u32,
    /// Rows of a block; by columns, groups of lanes of rows.
    pub rows: u32,
    /// How many groups of lanes a thread takes at once.
    pub chunks: u32,
    /// Where a row is walked in several parts that know nothing of each other: only the reductions of the first pass are
    /// made, and left unfinished.
    pub partial: Option<PartialRows>,
}

/// Parts of rows, each reduced by blocks of its own.
#[derive(Clone, Debug)]
pub struct PartialRows {
    /// How many parts a row has.
    pub parts: u32,
    /// The elements of each part but the last, which may have fewer, but some.
    pub length: i64,
    /// Where each accumulator goes: at `row * parts + part`, or by columns at `part * rows + row`.
    pub buffers: Vec<u32>,
}

impl GridBody {
    /// The program of loops.
    pub fn program(&self) -> &LoopProgram {
        match self {
            GridBody::Loops(grid) => &grid.program,
            GridBody::Rows(grid) => &grid.passes.program,
            GridBody::Tiles(grid) => &grid.program,
        }
    }
}

/// The PTX of a kernel for a processor by LLVM's name (`sm_90a`).
pub fn ptx(kernel: &GridKernel, processor: &str) -> Result<String, LlvmError> {
    let machine = Machine::nvptx(processor);
    let generator = Generator::for_machine(&machine, Effort::Full)?;
    let text = generator.assembly(|generator, context| {
        let ir = Ir::new(context, &machine);
        generator.prepare(&ir.module);
        kernel::write_kernel(&ir, kernel);
        ir.module
    })?;
    Ok(short_min_max::widen(text))
}

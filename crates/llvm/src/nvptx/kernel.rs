//! Kernels as functions of a module: their parameters, their threads, and which blocks do which part.

use super::constants::{Constants, GLOBAL};
use super::indices::Lanes;
use super::parts::{LikeParts, like_parts};
use super::points::{Place, Points};
use super::{GridBody, GridKernel, LoopGrid};
use crate::emit::ir::{Ir, Repr, Val};
use hloom_loops::program::{Item, LoadSource};
use inkwell::AddressSpace;
use inkwell::IntPredicate::ULT;
use inkwell::basic_block::BasicBlock;
use inkwell::types::BasicType;
use inkwell::values::{FunctionValue, PointerValue};
use rustc_hash::FxHashMap;

/// LLVM's number of the calling convention of PTX kernels.
const PTX_KERNEL: u32 = 71;
/// The address space of memory that a block shares.
pub(super) const SHARED: u16 = 3;

impl GridKernel {
    /// The type in which indices are computed.
    fn index(&self) -> Repr {
        if self.is_wide { Repr::I64 } else { Repr::I32 }
    }

    /// The buffers that the kernel reads or writes, in the order in which it takes them.
    pub fn buffers(&self) -> Vec<u32> {
        let mut buffers: Vec<u32> = Vec::new();
        for (_, body) in &self.parts {
            let program = body.program();
            buffers.extend(program.stores.iter().map(|s| s.buffer));
            for data in &program.items {
                if let Item::Load { source: LoadSource::Buffer(n), .. } = &data.item {
                    buffers.push(*n);
                }
            }
            if let GridBody::Rows(rows) = body
                && let Some(partial) = &rows.partial
            {
                buffers.retain(|b| !program.stores.iter().any(|s| s.buffer == *b));
                buffers.extend(&partial.buffers);
            }
        }
        buffers.sort_unstable();
        buffers.dedup();
        buffers
    }
}

/// Writes a kernel into the module.
pub(super) fn write_kernel<'c>(ir: &Ir<'c>, kernel: &GridKernel) {
    let numbers = kernel.buffers();
    let pointer = ir.context.ptr_type(AddressSpace::from(GLOBAL));
    let signature = ir.context.void_type().fn_type(&vec![pointer.into(); numbers.len()], false);
    let function = ir.module.add_function(&kernel.name, signature, None);
    function.set_call_conventions(PTX_KERNEL);
    annotate(ir, function, "kernel", 1);
    annotate(ir, function, "maxntidx", kernel.threads);
    let buffers: FxHashMap<u32, PointerValue<'c>> = numbers
        .iter()
        .enumerate()
        .filter_map(|(n, &b)| Some((b, function.get_nth_param(n as u32)?.into_pointer_value())))
        .collect();
    ir.builder.position_at_end(ir.context.append_basic_block(function, "entry"));
    let mut constants = Constants::default();
    let parts = like_parts(kernel);
    let block = ir.special_register("ctaid");
    let mut first = 0;
    let mut starts = Vec::new();
    for (blocks, ..) in parts.iter().flat_map(|p| &p.members) {
        let entry = match kernel.parts.len() {
            1 => ir.builder.get_insert_block().expect("the builder is positioned"),
            _ => ir.context.append_basic_block(function, "part"),
        };
        starts.push((first, entry));
        first += i64::from(*blocks);
    }
    find_part(ir, function, block, &starts);
    let mut entries = starts.into_iter();
    for part in &parts {
        let members: Vec<_> = entries.by_ref().take(part.members.len()).collect();
        write_part(ir, function, kernel, part, &members, (block, &buffers, &mut constants));
    }
}

/// Branches to the part that a block belongs to.
fn find_part<'c>(ir: &Ir<'c>, function: FunctionValue<'c>, block: Val<'c>, parts: &[(i64, BasicBlock<'c>)]) {
    if parts.len() < 2 {
        return;
    }
    let (low, high) = parts.split_at(parts.len() / 2);
    let side = |side: &[(i64, BasicBlock<'c>)]| match side {
        [(_, one)] => *one,
        _ => ir.context.append_basic_block(function, "find"),
    };
    let (below, above) = (side(low), side(high));
    let is_below = ir.icmp(ULT, block, ir.int(Repr::I32, high[0].0)).into_int_value();
    ir.builder.build_conditional_branch(is_below, below, above).expect("the builder is positioned");
    for (entry, side) in [(below, low), (above, high)] {
        if side.len() > 1 {
            ir.builder.position_at_end(entry);
            find_part(ir, function, block, side);
        }
    }
}

/// What a part finds in its kernel: the number of the block, the buffers, the constants.
type Around<'p, 'c> = (Val<'c>, &'p FxHashMap<u32, PointerValue<'c>>, &'p mut Constants<'c>);

/// Writes parts with the same code, each of which begins at its first block in a basic block of its own.
fn write_part<'c>(
    ir: &Ir<'c>,
    function: FunctionValue<'c>,
    kernel: &GridKernel,
    part: &LikeParts<'_>,
    entries: &[(i64, BasicBlock<'c>)],
    (block, buffers, constants): Around<'_, 'c>,
) {
    let int = |n: i64| ir.int(Repr::I32, n);
    let (_, body, names) = &part.members[0];
    if let [(first, entry)] = *entries {
        ir.builder.position_at_end(entry);
        let here = if first == 0 { block } else { ir.sub(block, int(first)) };
        let mut place = Place { ir, function, buffers, constants };
        match body {
            GridBody::Loops(grid) => write_loops(&mut place, grid, here, kernel, None),
            GridBody::Rows(grid) => super::rows::write_rows(&mut place, grid, here, kernel.index()),
            GridBody::Tiles(grid) => {
                super::tiles::write_tiles(&mut place, grid, here, kernel.threads, kernel.index());
            }
        }
        ir.builder.build_return(None).expect("the builder is positioned");
        return;
    }
    let common = ir.context.append_basic_block(function, "common");
    let mut incoming: Vec<(BasicBlock<'c>, Val<'c>, Val<'c>, Vec<PointerValue<'c>>)> = Vec::new();
    for ((_, body, names), &(first, entry)) in part.members.iter().zip(entries) {
        ir.builder.position_at_end(entry);
        let points = body.program().size_of(&body.program().nest);
        let lanes = if let GridBody::Loops(grid) = body { grid.lanes } else { 1 };
        let pointers = names.iter().map(|b| buffers[b]).collect();
        incoming.push((entry, ir.sub(block, int(first)), ir.int(kernel.index(), points / i64::from(lanes)), pointers));
        ir.builder.build_unconditional_branch(common).expect("the builder is positioned");
    }
    ir.builder.position_at_end(common);
    let merged = |values: &dyn Fn(usize) -> Val<'c>| {
        let phi = ir.builder.build_phi(values(0).get_type(), "").expect("the builder is positioned");
        for (n, (entry, ..)) in incoming.iter().enumerate() {
            phi.add_incoming(&[(&values(n), *entry)]);
        }
        phi.as_basic_value()
    };
    let here = merged(&|n| incoming[n].1);
    let total = merged(&|n| incoming[n].2);
    let pointers: FxHashMap<u32, PointerValue<'c>> = names
        .iter()
        .enumerate()
        .map(|(k, &name)| (name, merged(&|n| incoming[n].3[k].into()).into_pointer_value()))
        .collect();
    if let GridBody::Loops(grid) = body {
        let mut place = Place { ir, function, buffers: &pointers, constants };
        write_loops(&mut place, grid, here, kernel, Some(total));
    }
    ir.builder.build_return(None).expect("the builder is positioned");
}

/// Says something of a kernel that PTX has a directive for.
fn annotate<'c>(ir: &Ir<'c>, function: FunctionValue<'c>, name: &str, value: u32) {
    let value = ir.context.i32_type().const_int(value.into(), false);
    let name = ir.context.metadata_string(name);
    let node =
        ir.context.metadata_node(&[function.as_global_value().as_pointer_value().into(), name.into(), value.into()]);
    ir.module.add_global_metadata("nvvm.annotations", &node).expect("it is a node");
}

impl<'c> Ir<'c> {
    /// The number of a block or of a thread in it, of 32 bits.
    pub(super) fn special_register(&self, name: &str) -> Val<'c> {
        let name = format!("llvm.nvvm.read.ptx.sreg.{name}.x");
        self.intrinsic(&name, &[], &[]).expect("the intrinsic has a result")
    }

    /// Waits until all threads of the block are here.
    pub(super) fn barrier(&self) {
        self.intrinsic("llvm.nvvm.barrier0", &[], &[]);
    }

    /// Memory that the threads of a block share.
    pub(super) fn shared(&self, bytes: u32) -> PointerValue<'c> {
        let array = self.context.i8_type().array_type(bytes);
        let global = self.module.add_global(array, Some(AddressSpace::from(SHARED)), "shared");
        global.set_initializer(&array.as_basic_type_enum().into_array_type().get_undef());
        global.set_linkage(inkwell::module::Linkage::Internal);
        global.set_alignment(16);
        global.as_pointer_value()
    }

    /// The values of loops of those sizes at a position, the last loop fastest.
    pub(super) fn positions(&self, position: Val<'c>, sizes: &[i64]) -> Vec<Val<'c>> {
        let repr = self.repr(position);
        let mut rest = position;
        let mut values = vec![self.int(repr, 0); sizes.len()];
        for (n, &size) in sizes.iter().enumerate().rev() {
            if n == 0 {
                values[0] = rest;
                break;
            }
            values[n] = self.urem(rest, self.int(repr, size));
            rest = self.udiv(rest, self.int(repr, size));
        }
        values
    }
}

/// A thread for each group of lanes of the nest, of which there are `groups` where the grid does not say so.
fn write_loops<'c>(
    place: &mut Place<'_, 'c>,
    grid: &LoopGrid,
    block: Val<'c>,
    kernel: &GridKernel,
    groups: Option<Val<'c>>,
) {
    let ir = place.ir;
    let program = &grid.program;
    let (index, threads) = (kernel.index(), kernel.threads);
    let scan = program.scan().is_some();
    let alone = if scan { 1 } else { grid.in_order as usize };
    let (nest, walked) = program.nest.split_at(program.nest.len() - alone);
    let mut sizes: Vec<i64> = nest.iter().map(|&v| program.extents[v as usize]).collect();
    // How many neighbours along each loop a thread has: some of the innermost, or all of it and some of the next.
    let mut steps = vec![1; nest.len()];
    let inner = sizes.last().copied().unwrap_or(1);
    let lanes = match nest {
        [.., outer, last] if i64::from(grid.lanes) > inner => {
            let outer_lanes = grid.lanes / inner as u32;
            steps[nest.len() - 2] = i64::from(outer_lanes);
            steps[nest.len() - 1] = inner;
            Lanes::along_two((*last, inner as u32), (*outer, outer_lanes))
        }
        _ => {
            steps.last_mut().into_iter().for_each(|s| *s = i64::from(grid.lanes));
            Lanes::along(nest.last().copied(), grid.lanes)
        }
    };
    sizes.iter_mut().zip(&steps).for_each(|(size, step)| *size /= step);
    let total: i64 = sizes.iter().product();
    let per_block = i64::from(threads) * i64::from(grid.chunks);
    let fits = groups.is_none() && total % per_block == 0;
    let total = groups.unwrap_or_else(|| ir.int(index, total));
    let (block, thread) = (ir.zext(block, index), ir.zext(ir.special_register("tid"), index));
    let first = ir.add(ir.mul(block, ir.int(index, per_block)), thread);
    let chunk_vars = if grid.chunks > 1 { nest } else { &[] };
    let mut points = Points::new(place, program, index, lanes, chunk_vars);
    let mut valid = Vec::new();
    for chunk in 0..grid.chunks {
        let number = ir.add(first, ir.int(index, i64::from(chunk) * i64::from(threads)));
        let inside = (!fits).then(|| ir.icmp(ULT, number, total));
        // A thread without points has those of the first for a while, and does not write them.
        let number = inside.map_or(number, |i| ir.select(i, number, ir.int(index, 0)));
        for ((&var, value), &step) in nest.iter().zip(ir.positions(number, &sizes)).zip(&steps) {
            let value = if step > 1 { ir.mul(value, ir.int(index, step)) } else { value };
            points.set_var(var, chunk, value);
        }
        valid.push(inside);
    }
    if let (&[Some(inside)], true) = (&valid[..], alone > 0 || program.items.len() > LONG_CODE) {
        let (done, work) = (points.block("done"), points.block("work"));
        points.branch(inside, work, done);
        points.continue_at(done);
        ir.builder.build_return(None).expect("the builder is positioned");
        points.continue_at(work);
        valid[0] = None;
    }
    if scan {
        return points.write_scan();
    }
    if grid.in_order > 0 {
        return points.write_in_order(walked);
    }
    if grid.chunks > 1 {
        points.load_ahead(grid.chunks);
    }
    let stores: Vec<_> = program.stores.iter().collect();
    for (chunk, inside) in valid.into_iter().enumerate() {
        points.write_stores(&stores, chunk as u32, inside);
    }
}

/// Threads without points of their own skip code that is longer.
const LONG_CODE: usize = 12;

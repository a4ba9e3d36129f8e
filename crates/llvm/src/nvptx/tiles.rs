//! Transposes: what is read along one loop and written along another goes through a tile in shared memory, so that both
//! memory accesses are of neighbours. Rows of a tile are a word longer than they need be: threads that read or write a
//! column of it then meet few others in the same bank.

use super::TileGrid;
use super::indices::Lanes;
use super::points::{At, Place, Points};
use crate::emit::ir::{Ir, Repr, Val};
use hloom_ir::ElementType;
use hloom_loops::affine::VarId;
use inkwell::IntPredicate::ULT;
use inkwell::values::PointerValue;

/// The elements from one row of a tile to the next.
fn pitch(grid: &TileGrid, t: ElementType) -> i64 {
    let word = (4 / t.bytes() as i64).max(1);
    i64::from(grid.tile_inner) + word
}

/// Writes a block for each tile.
pub(super) fn write_tiles<'c>(place: &mut Place<'_, 'c>, grid: &TileGrid, block: Val<'c>, threads: u32, index: Repr) {
    let ir = place.ir;
    let program = &grid.program;
    let Some(&inner) = program.nest.last() else { return };
    let across = grid.across;
    let extent = |v: VarId| program.extents[v as usize];
    let others: Vec<VarId> = program.nest.iter().copied().filter(|&v| v != inner && v != across).collect();
    let tiles = |v: VarId, size: u32| (extent(v) + i64::from(size) - 1) / i64::from(size);
    let mut sizes: Vec<i64> = others.iter().map(|&v| extent(v)).collect();
    sizes.extend([tiles(across, grid.tile_across), tiles(inner, grid.tile_inner)]);
    let numbers = ir.positions(ir.zext(block, index), &sizes);
    let int = |n: u32| ir.int(index, n.into());
    let (first_across, first_inner) =
        (ir.mul(numbers[others.len()], int(grid.tile_across)), ir.mul(numbers[others.len() + 1], int(grid.tile_inner)));
    let thread = ir.zext(ir.special_register("tid"), index);
    let chunks = grid.tile_across * grid.tile_inner / (grid.lanes * threads);
    let shared: Vec<PointerValue<'c>> = grid
        .loads
        .iter()
        .map(|&id| {
            let t = program.item(id).element_type;
            ir.shared((i64::from(grid.tile_across) * pitch(grid, t) * t.bytes() as i64) as u32)
        })
        .collect();
    // First the tiles are filled, along the other loop.
    for (&id, &tile) in grid.loads.iter().zip(&shared) {
        let lanes = grid.lanes_across;
        let mut points = Points::new(place, program, index, Lanes::along(Some(across), lanes), &[across, inner]);
        for (&var, &value) in others.iter().zip(&numbers) {
            points.set_var(var, 0, value);
        }
        let groups = grid.tile_across / lanes;
        let rounds = grid.tile_across * grid.tile_inner / (lanes * threads);
        let mut loaded = Vec::new();
        for round in 0..rounds {
            let number = ir.add(thread, int(round * threads));
            let (group, row) = (ir.urem(number, int(groups)), ir.udiv(number, int(groups)));
            let in_tile = ir.mul(group, int(lanes));
            let (t, i) = (ir.add(first_across, in_tile), ir.add(first_inner, row));
            let valid = inside(ir, &[(t, extent(across), grid.tile_across), (i, extent(inner), grid.tile_inner)]);
            let clamped = |v: Val<'c>| valid.map_or(v, |valid| ir.select(valid, v, int(0)));
            points.set_var(across, round, clamped(t));
            points.set_var(inner, round, clamped(i));
            loaded.push((in_tile, row));
        }
        for round in 0..rounds {
            for lane in 0..lanes {
                points.compute(&[id], At { chunk: round, lane });
            }
        }
        let t = program.item(id).element_type;
        for (round, (in_tile, row)) in loaded.into_iter().enumerate() {
            for lane in 0..lanes {
                let value = points.value(id, At { chunk: round as u32, lane });
                let line = ir.add(in_tile, int(lane));
                let place = ir.add(ir.mul(line, ir.int(index, pitch(grid, t))), row);
                ir.store_lanes(element(ir, tile, place, t), &[value], t, false);
            }
        }
    }
    ir.barrier();
    // Then all is computed along the innermost loop.
    let mut points = Points::new(place, program, index, Lanes::along(Some(inner), grid.lanes), &[across]);
    for (&var, &value) in others.iter().zip(&numbers) {
        points.set_var(var, 0, value);
    }
    let groups = grid.tile_inner / grid.lanes;
    let column = ir.mul(ir.urem(thread, int(groups)), int(grid.lanes));
    let i = ir.add(first_inner, column);
    let inner_valid = inside(ir, &[(i, extent(inner), grid.tile_inner)]);
    points.set_var(inner, 0, inner_valid.map_or(i, |v| ir.select(v, i, int(0))));
    let mut rows = Vec::new();
    for chunk in 0..chunks {
        let row = ir.udiv(ir.add(thread, int(chunk * threads)), int(groups));
        let t = ir.add(first_across, row);
        let valid = inside(ir, &[(t, extent(across), grid.tile_across), (i, extent(inner), grid.tile_inner)]);
        points.set_var(across, chunk, valid.map_or(t, |v| ir.select(v, t, int(0))));
        rows.push((row, valid));
    }
    for (&id, &tile) in grid.loads.iter().zip(&shared) {
        let t = program.item(id).element_type;
        let line = ir.int(index, pitch(grid, t));
        let starts: Vec<PointerValue<'c>> =
            rows.iter().map(|&(row, _)| element(ir, tile, ir.add(ir.mul(row, line), column), t)).collect();
        points.tiles.insert(id, starts);
    }
    let stores: Vec<_> = program.stores.iter().collect();
    for (chunk, (_, valid)) in rows.iter().enumerate() {
        points.write_stores(&stores, chunk as u32, *valid);
    }
}

fn element<'c>(ir: &Ir<'c>, base: PointerValue<'c>, place: Val<'c>, t: ElementType) -> PointerValue<'c> {
    ir.offset(base, ir.mul(ir.zext(place, Repr::I64), ir.i64(t.bytes() as i64).into()).into_int_value())
}

/// Whether indices are inside of their loops, where tiles do not divide these.
fn inside<'c>(ir: &Ir<'c>, indices: &[(Val<'c>, i64, u32)]) -> Option<Val<'c>> {
    let mut all: Option<Val<'c>> = None;
    for &(value, extent, tile) in indices {
        if extent % i64::from(tile) != 0 {
            let valid = ir.icmp(ULT, value, ir.int(ir.repr(value), extent));
            all = Some(all.map_or(valid, |a| ir.and(a, valid)));
        }
    }
    all
}

//! Transposes: loops over square tiles, so that both reading and writing go along the memory.
//!
//! A load that follows the innermost loop in large steps, but some outer loop one by one, reads a whole cache line for
//! each element. Both loops are cut into tiles; for each tile the elements are read along the outer one, turned round in
//! registers, put into a small array on the stack, and from there read as if they had been in the right order.

use crate::affine::{Affine, Term, VarId};
use crate::program::{Item, LoadSource, LoopProgram, Tile};
use crate::schedule::natural_lanes;
use crate::simd::Simd;

/// The greatest side of a tile, in elements.
const MAX_SIDE: i64 = 16;
const MIN_SIDE: i64 = 4;

/// The same work as `program`, with tiles where they help; what the tiles leave over follows as programs of their own.
pub fn tile(program: LoopProgram, simd: &Simd) -> Vec<LoopProgram> {
    let Some((row, column)) = transposed(&program) else { return vec![program] };
    let side = i64::from(natural_lanes(&program, simd, column)).min(MAX_SIDE);
    let (rows, columns) = (program.extents[row as usize], program.extents[column as usize]);
    if side < MIN_SIDE || rows < side || columns < side {
        return vec![program];
    }
    let (whole_rows, whole_columns) = (rows / side * side, columns / side * side);
    let mut programs = Vec::new();
    let mut tiled = program.clone();
    if whole_rows < rows {
        programs.push(program.restricted(row, whole_rows, rows));
        tiled = tiled.restricted(row, 0, whole_rows);
    }
    if whole_columns < columns {
        programs.push(tiled.restricted(column, whole_columns, columns));
        tiled = tiled.restricted(column, 0, whole_columns);
    }
    into_tiles(&mut tiled, row, column, side);
    programs.push(tiled);
    programs
}

/// The two loops of a transpose: the one along which a load reads one by one, and the innermost.
fn transposed(program: &LoopProgram) -> Option<(VarId, VarId)> {
    let &column = program.nest.last()?;
    if program.is_sequential
        || program.scan().is_some()
        || program.stores.iter().any(|s| s.offset.factor(Term::Var(column)) != 1)
    {
        return None;
    }
    let row = program.items.iter().find_map(|i| match &i.item {
        Item::Load { offset, guard: None, .. } if i.element_type.bytes() <= 8 => {
            let along = |&&v: &&VarId| v != column && offset.factor(Term::Var(v)) == 1;
            let apart = !matches!(offset.factor(Term::Var(column)), -1..=1);
            program.nest.iter().find(along).copied().filter(|_| apart)
        }
        _ => None,
    })?;
    let in_reduce = |i: &crate::program::ItemData| matches!(i.item, Item::Reduce(_)) && i.vars.contains(&column);
    (!program.items.iter().any(in_reduce)).then_some((row, column))
}

fn into_tiles(program: &mut LoopProgram, row: VarId, column: VarId, side: i64) {
    let (row_tiles, column_tiles) = (program.split(row, side), program.split(column, side));
    // Tiles of a block follow each other, so that few pages of memory are in use at a time.
    let blocks = |program: &mut LoopProgram, tiles: VarId| {
        let count = program.extents[tiles as usize];
        program.split(tiles, (1 << count.trailing_zeros().min(3)).min(count))
    };
    let (row_blocks, column_blocks) = (blocks(program, row_tiles), blocks(program, column_tiles));
    program.nest.retain(|v| *v != row && *v != column);
    program.nest.extend([row_blocks, column_blocks, row_tiles, column_tiles, row, column]);
    for n in 0..program.items.len() {
        let data = &program.items[n];
        let Item::Load { source, offset, guard: None } = &data.item else { continue };
        let (down, along) = (offset.factor(Term::Var(column)), offset.factor(Term::Var(row)));
        if along != 1 || matches!(down, -1..=1) || data.element_type.bytes() > 8 {
            continue;
        }
        // An index that is only known at run time must not change within the tile.
        let changes = |t: &(Term, i64)| match t.0 {
            Term::Item(i) => program.item(i).vars.iter().any(|v| *v == row || *v == column),
            Term::Var(_) => false,
        };
        if offset.terms.iter().any(changes) {
            continue;
        }
        let tile = Tile {
            source: source.clone(),
            offset: offset.without(Term::Var(row)).without(Term::Var(column)),
            stride: down,
            side,
            element_type: data.element_type,
            inside: column_tiles,
        };
        let in_tile = Affine::term(Term::Var(row)).times(side).plus(&Affine::term(Term::Var(column)), 1);
        program.tiles.push(tile);
        let number = program.tiles.len() as u32 - 1;
        let data = &mut program.items[n];
        data.item = Item::Load { source: LoadSource::Tile(number), offset: in_tile, guard: None };
        data.vars = smallvec::smallvec![row, column];
        data.vars.sort_unstable();
    }
    // Items made of a tile's elements change with all four loops, as those elements do.
    for n in 0..program.items.len() {
        let mut uses_tile = matches!(&program.items[n].item, Item::Load { source: LoadSource::Tile(_), .. });
        let item = program.items[n].item.clone();
        item.for_each_operand(|o| uses_tile |= program.items[o as usize].vars.contains(&row));
        if uses_tile {
            let mut vars = program.items[n].vars.clone();
            vars.extend([row, column]);
            vars.sort_unstable();
            vars.dedup();
            program.items[n].vars = vars;
        }
    }
}

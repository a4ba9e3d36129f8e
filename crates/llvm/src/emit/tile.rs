//! Tiles of a transpose, turned round in registers and put on the stack.

use super::ir::{Repr, Val};
use super::kernel::Emitter;
use hloom_loops::program::Tile;
use inkwell::values::PointerValue;

impl<'c> Emitter<'_, 'c> {
    /// Fills the stack array of a tile; row after row of it is what the loop over rows reads.
    pub(crate) fn fill_tile(&mut self, number: usize, tile: &Tile, from: PointerValue<'c>) {
        let bytes = tile.element_type.bytes() as i64;
        // Elements are moved as they lie in memory; complex ones as a whole.
        let repr = match bytes {
            1 => Repr::I8,
            2 => Repr::I16,
            4 => Repr::I32,
            _ => Repr::I64,
        };
        let side = tile.side as u32;
        let line = self.ir.ty(repr, side);
        let mut lines: Vec<Val<'c>> = (0..tile.side)
            .map(|n| {
                let at = self.ir.offset(from, self.ir.i64(n * tile.stride.wrapping_mul(bytes)));
                self.ir.load(line, at, bytes as u32)
            })
            .collect();
        // Where lines are registers of the smallest kind, merging two halfway apart is one instruction each time.
        let merges = i64::from(side) * bytes == 16;
        let mut distance = 1;
        while distance < side {
            if merges {
                let half = side / 2;
                let merged = |from: u32| (0..side).map(|l| from + l / 2 + l % 2 * side).collect::<Vec<u32>>();
                let (low, high) = (merged(0), merged(half));
                let pairs = (0..half as usize).map(|n| (lines[n], lines[n + half as usize]));
                lines = pairs.flat_map(|(a, b)| [self.ir.shuffle(a, b, &low), self.ir.shuffle(a, b, &high)]).collect();
                distance *= 2;
                continue;
            }
            for n in (0..side).filter(|n| n & distance == 0) {
                let (a, b) = (lines[n as usize], lines[(n + distance) as usize]);
                // Lanes of `b` come after the `side` lanes of `a`.
                let low: Vec<u32> =
                    (0..side).map(|l| if l & distance == 0 { l } else { side + l - distance }).collect();
                let high: Vec<u32> =
                    (0..side).map(|l| if l & distance == 0 { l + distance } else { side + l }).collect();
                lines[n as usize] = self.ir.shuffle(a, b, &low);
                lines[(n + distance) as usize] = self.ir.shuffle(a, b, &high);
            }
            distance *= 2;
        }
        let slot = self.tile_slot(number, tile);
        for (n, line) in lines.into_iter().enumerate() {
            let at = self.ir.offset(slot, self.ir.i64(n as i64 * tile.side * bytes));
            self.ir.store(at, line, bytes as u32);
        }
    }

    /// The stack array of a tile.
    pub(crate) fn tile_slot(&mut self, number: usize, tile: &Tile) -> PointerValue<'c> {
        if let Some(slot) = self.tiles[number] {
            return slot;
        }
        let size = tile.side * tile.side * tile.element_type.bytes() as i64;
        let slot = self.ir.stack_bytes(size as u32);
        self.tiles[number] = Some(slot);
        slot
    }
}

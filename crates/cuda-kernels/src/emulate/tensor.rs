//! The matrix instructions: what a warp's part of a `wgmma` product reads and adds.

use half::{bf16, f16};

/// A product as one warp of a warpgroup sees it: rows `16 · warp ..` of the result.
pub(super) struct WarpProduct {
    pub columns: usize,
    pub factor: Factor,
    /// Whether the accumulator is kept.
    pub accumulates: bool,
    pub right: u64,
    pub right_by_rows: bool,
}

/// The type of what is multiplied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Factor {
    F16,
    Bf16,
    Tf32,
}

impl Factor {
    /// The type by its name.
    pub(super) fn parse(name: &str) -> Option<Factor> {
        [("f16", Factor::F16), ("bf16", Factor::Bf16), ("tf32", Factor::Tf32)]
            .into_iter()
            .find(|(known, _)| *known == name)
            .map(|(_, factor)| factor)
    }

    /// How many elements a step contracts.
    fn depth(self) -> usize {
        if self == Factor::Tf32 { 8 } else { 16 }
    }

    fn decode(self, bits: u32) -> f32 {
        match self {
            Factor::F16 => f16::from_bits(bits as u16).to_f32(),
            Factor::Bf16 => bf16::from_bits(bits as u16).to_f32(),
            // What is below the eleventh bit is not looked at.
            Factor::Tf32 => f32::from_bits(bits & !0x1fff),
        }
    }

    /// The element at an address.
    fn read(self, read: &impl Fn(u64) -> Option<u16>, address: u64) -> Option<f32> {
        let low = u32::from(read(address)?);
        let high = if self == Factor::Tf32 { u32::from(read(address + 2)?) } else { 0 };
        Some(self.decode(high << 16 | low))
    }

    fn bytes(self) -> u64 {
        if self == Factor::Tf32 { 4 } else { 2 }
    }
}

fn field(descriptor: u64, at: u32) -> u64 {
    ((descriptor >> at) & 0x3fff) << 4
}

fn swizzled(address: u64) -> u64 {
    address ^ (((address >> 7) & 7) << 4)
}

/// The byte `byte` of row `row` of a tile with adjacent columns, 128-byte swizzle.
pub(super) fn tile_address(descriptor: u64, row: u64, byte: u64) -> Option<u64> {
    if descriptor >> 62 != 1 {
        return None;
    }
    let address = field(descriptor, 0) + (row / 8) * field(descriptor, 32) + (row % 8) * 128 + byte;
    Some(swizzled(address))
}

/// The element in row `row` and column `column` of a tile that is contracted over its rows.
pub(super) fn row_contracted_address(descriptor: u64, row: u64, column: u64) -> Option<u64> {
    if descriptor >> 62 != 1 {
        return None;
    }
    let address = field(descriptor, 0)
        + (column / 64) * field(descriptor, 16)
        + (row / 8) * field(descriptor, 32)
        + (row % 8) * 128
        + (column % 64) * 2;
    Some(swizzled(address))
}

impl WarpProduct {
    /// `left` is 16 × 16, `accumulator` holds for each lane `columns / 2` sums.
    pub(super) fn run(
        &self,
        left: &[[f32; 16]; 16],
        read: &impl Fn(u64) -> Option<u16>,
        accumulator: &mut [Vec<f32>],
    ) -> Option<()> {
        let mut right = vec![[0f32; 16]; self.columns];
        for (column, values) in right.iter_mut().enumerate() {
            for (step, value) in values.iter_mut().enumerate().take(self.factor.depth()) {
                let address = if self.right_by_rows {
                    row_contracted_address(self.right, step as u64, column as u64)?
                } else {
                    tile_address(self.right, column as u64, step as u64 * self.factor.bytes())?
                };
                *value = self.factor.read(read, address)?;
            }
        }
        for (lane, sums) in accumulator.iter_mut().enumerate() {
            for (i, sum) in sums.iter_mut().enumerate() {
                let row = lane / 4 + 8 * (i % 4 / 2);
                let column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
                let mut total = if self.accumulates { *sum } else { 0.0 };
                for step in 0..16 {
                    total += left[row][step] * right[column][step];
                }
                *sum = total;
            }
        }
        Some(())
    }

    /// The left factor from registers: four a lane, two elements each, or one of TF32.
    pub(super) fn left_from_registers(&self, fragments: &[[u32; 4]]) -> [[f32; 16]; 16] {
        let mut left = [[0f32; 16]; 16];
        for (lane, fragment) in fragments.iter().enumerate() {
            for (i, bits) in fragment.iter().enumerate() {
                let row = lane / 4 + 8 * (i % 2);
                if self.factor == Factor::Tf32 {
                    left[row][lane % 4 + 4 * (i / 2)] = self.factor.decode(*bits);
                    continue;
                }
                let column = 2 * (lane % 4) + 8 * (i / 2);
                left[row][column] = self.factor.decode(*bits & 0xffff);
                left[row][column + 1] = self.factor.decode(*bits >> 16);
            }
        }
        left
    }

    /// The left factor from shared memory: rows `16 · warp ..` of the tile.
    pub(super) fn left_from_shared(
        &self,
        descriptor: u64,
        warp: usize,
        read: &impl Fn(u64) -> Option<u16>,
    ) -> Option<[[f32; 16]; 16]> {
        let mut left = [[0f32; 16]; 16];
        for (row, values) in left.iter_mut().enumerate() {
            for (column, value) in values.iter_mut().enumerate().take(self.factor.depth()) {
                let byte = column as u64 * self.factor.bytes();
                let address = tile_address(descriptor, (16 * warp + row) as u64, byte)?;
                *value = self.factor.read(read, address)?;
            }
        }
        Some(left)
    }
}

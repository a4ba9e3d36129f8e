//! V with its keys side by side, for products that contract adjacent elements only.
//!
//! Of each eight keys the even ones come first: that is the order in which the weights of a row lie in the registers of the
//! threads that made them. Keys past the last are zero, up to whole tiles.

use super::{AttentionShape, HeadStrides, Unsupported};
use crate::launch::{Architecture, KernelArgument, KernelSequence, Launch, PtxKernel, Scratch};
use crate::ptx::{PtxBuilder, at, def, emit};

/// The side of the squares that blocks turn.
const SIDE: u32 = 32;
/// Rows of a square that a block's threads have at once.
const ROWS: u32 = 8;

/// Keys of a head, up to whole tiles.
fn padded_length(shape: &AttentionShape, tile: u32) -> u32 {
    shape.kv_length.next_multiple_of(tile.max(SIDE))
}

/// Where the turned heads lie: their rows are the elements of a value.
pub(super) fn strides(shape: &AttentionShape, tile: u32) -> HeadStrides {
    let row = u64::from(padded_length(shape, tile));
    let head = row * u64::from(shape.value_dim);
    HeadStrides { batch: head * u64::from(shape.kv_heads), head, row }
}

/// A sequence of the kernel that turns V, and `kernel`, which takes what it makes in the place of V.
pub(super) fn before(
    mut kernel: PtxKernel,
    shape: &AttentionShape,
    tile: u32,
    architecture: Architecture,
) -> Result<KernelSequence, Unsupported> {
    let heads = shape.batch.checked_mul(shape.kv_heads).filter(|&n| n <= 65535);
    let heads = heads.ok_or_else(|| Unsupported("more heads than a grid counts".into()))?;
    let mut k = PtxBuilder::new("attention_values", architecture, SIDE * ROWS, 4);
    write(&mut k, shape, tile);
    let launch = Launch {
        grid: [padded_length(shape, tile) / SIDE, shape.value_dim.div_ceil(SIDE), heads],
        block: [SIDE * ROWS, 1, 1],
        dynamic_shared_bytes: k.shared_bytes(),
        cluster: 1,
    };
    let turned = KernelArgument::Scratch(0);
    let mut arguments = vec![KernelArgument::Operand(2), turned];
    arguments.extend_from_slice(k.sizes());
    let turn = PtxKernel { name: "attention_values".into(), ptx: k.finish(), launch, arguments };
    for argument in &mut kernel.arguments {
        if *argument == KernelArgument::Operand(2) {
            *argument = turned;
        }
    }
    let bytes = 4 * u64::from(shape.batch) * strides(shape, tile).batch;
    Ok(KernelSequence { kernels: vec![turn, kernel], scratch: vec![Scratch { bytes, zeroed: false }] })
}

/// Writes the kernel: parameters are V and what is made of it.
fn write(k: &mut PtxBuilder, shape: &AttentionShape, tile: u32) {
    let (from, to) = (k.buffer_parameter(), k.buffer_parameter());
    // A column more than the side, so that neither rows nor columns meet in a bank.
    let square = k.shared(4 * SIDE * (SIDE + 1), 16);
    let shared = k.shared_base();
    let thread = def!(k, B32, "mov.u32", "%tid.x");
    let (along, row) = (def!(k, B32, "and.b32", thread, SIDE - 1), def!(k, B32, "shr.u32", thread, SIDE.ilog2()));
    let first_key = def!(k, B32, "mov.u32", "%ctaid.x");
    emit!(k, "mul.lo.u32", first_key, first_key, SIDE);
    let first_element = def!(k, B32, "mov.u32", "%ctaid.y");
    emit!(k, "mul.lo.u32", first_element, first_element, SIDE);
    let number = def!(k, B32, "mov.u32", "%ctaid.z");
    let heads = k.size32(shape.kv_heads.into());
    let batch = def!(k, B32, "div.u32", number, heads);
    let head = def!(k, B32, "rem.u32", number, heads);
    let (units, element) = (shape.value.in_units(shape.element), def!(k, B32, "add.s32", first_element, along));
    let source = super::tiles::head_address(k, from, batch, head, units);
    let source = def!(k, B64, "mad.wide.u32", element, 4, source);
    let has_element = def!(k, Pred, "setp.lt.u32", element, shape.value_dim);
    let slot = def!(k, B32, "mad.lo.u32", row, 4 * (SIDE + 1), shared);
    let slot = def!(k, B32, "mad.lo.u32", along, 4, slot);
    let (length, row_bytes) = (k.size32(shape.kv_length.into()), k.size64(2 * units.row));
    k.repeat(SIDE / ROWS, |k, round| {
        let below = def!(k, B32, "mad.lo.u32", round, ROWS, row);
        let key = def!(k, B32, "add.s32", below, first_key);
        let exists = def!(k, Pred, "setp.lt.u32", key, length);
        emit!(k, "and.pred", exists, exists, has_element);
        let key = def!(k, B64, "cvt.u64.u32", key);
        let address = def!(k, B64, "mad.lo.s64", key, row_bytes, source);
        let value = def!(k, F32, "mov.f32", crate::ptx::Float(0.0));
        k.guarded(exists, true, |k| emit!(k, "ld.global.nc.f32", value, at(address, 0)));
        let rounded = def!(k, B32, "cvt.rna.tf32.f32", value);
        let there = def!(k, B32, "mad.lo.u32", round, 4 * ROWS * (SIDE + 1), slot);
        emit!(k, "st.shared.b32", at(there, square.into()), rounded);
    });
    emit!(k, "bar.sync", 0);
    // Place p of eight has key 2p, and place 4 + p has key 2p + 1.
    let eighth = def!(k, B32, "and.b32", along, SIDE - 8);
    let pair = def!(k, B32, "and.b32", along, 3);
    let odd = def!(k, B32, "shr.u32", along, 2);
    emit!(k, "and.b32", odd, odd, 1);
    let key = def!(k, B32, "mad.lo.u32", pair, 2, odd);
    emit!(k, "add.s32", key, key, eighth);
    let slot = def!(k, B32, "mad.lo.u32", key, 4 * (SIDE + 1), shared);
    let slot = def!(k, B32, "mad.lo.u32", row, 4, slot);
    let turned = strides(shape, tile).in_units(shape.element);
    let target = super::tiles::head_address(k, to, batch, head, turned);
    let place = def!(k, B32, "add.s32", first_key, along);
    let target = def!(k, B64, "mad.wide.u32", place, 4, target);
    let row_bytes = k.size64(2 * turned.row);
    k.repeat(SIDE / ROWS, |k, round| {
        let below = def!(k, B32, "mad.lo.u32", round, ROWS, row);
        let element = def!(k, B32, "add.s32", below, first_element);
        let exists = def!(k, Pred, "setp.lt.u32", element, shape.value_dim);
        let there = def!(k, B32, "mad.lo.u32", round, 4 * ROWS, slot);
        let value = def!(k, B32, "ld.shared.b32", at(there, square.into()));
        let element = def!(k, B64, "cvt.u64.u32", element);
        let address = def!(k, B64, "mad.lo.s64", element, row_bytes, target);
        k.guarded(exists, true, |k| emit!(k, "st.global.b32", at(address, 0), value));
    });
}

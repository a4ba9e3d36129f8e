//! Tiles: how the two most minor dimensions of an array are cut into the registers' form.
//!
//! The tile follows from the width of an element and the sizes of the two most minor dimensions alone. Every array of the
//! module gets one: parameters, results, what is inside fusions and reducers, and the layouts that the header promises.
//! Tiles that a program states itself are kept, and so are memory spaces without tiles (semaphores).
//!
//! Which dimensions are minor is the program's choice where it states the layouts of its parameters and results. Where it
//! does not, every array lies so that its tiles waste least; equal arrays then lie equally, whoever makes them.

use crate::stage::staged;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::layout::{Layout, Tile};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_passes::Pass;
use smallvec::smallvec;

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "tile-layouts",
    statement: "gives every array a layout with tiles",
    keeps_schedule: false,
    run: |module, context| staged(module, context, |module, _| Ok(tile_module(module)) as Result<usize, Diagnostic>),
};

const LANES: i64 = 128;
const SUBLANES: i64 = 8;
/// The largest tile of an array of one dimension.
const LONGEST: i64 = 1024;

fn tile_module(module: &mut Module) -> usize {
    let mut changes = 0;
    let is_free = module.config.entry_layout.is_none();
    for c in module.computations().to_vec() {
        for i in module[c].instructions().to_vec() {
            let shape = match is_free && !matches!(module[i].op, Op::Bitcast) {
                true => tiled(&module[i].shape.map_arrays(&mut compact)),
                false => tiled(&module[i].shape),
            };
            if shape != module[i].shape {
                module.instruction_mut(i).shape = shape;
                changes += 1;
            }
        }
    }
    if let Some(entry) = module.entry() {
        module.config.entry_layout = module.program_shape(entry);
    }
    changes
}

/// Arrays of more dimensions lie as they are written.
const MAX_RANK: usize = 6;

/// The array with the two dimensions most minor that waste least when they are tiled, the last ones of equals, and the
/// others in their order.
fn compact(array: &ArrayShape) -> ArrayShape {
    let rank = array.rank();
    let is_plain = array.layout.as_ref().is_none_or(Layout::is_default);
    if !is_plain || !(2..=MAX_RANK).contains(&rank) || array.is_dynamic() || array.element_type.bits() == 0 {
        return array.clone();
    }
    let dims = array.dims();
    let waste = |minor: usize, second: usize| -> i128 {
        let pair = [dims[minor], dims[second]];
        let layout = Layout::new([0, 1]);
        let tile = tiles(array.element_type, &pair, &layout).into_iter().next();
        let [rows, lanes] = tile.as_ref().and_then(|t| t.0.as_slice().try_into().ok()).unwrap_or([1, 1]);
        let up = |n: i64, to: i64| i128::from(n).div_ceil_to(i128::from(to));
        let others = (0..rank).filter(|&d| d != minor && d != second).map(|d| i128::from(dims[d]));
        others.product::<i128>() * up(dims[minor], lanes) * up(dims[second], rows)
    };
    let pairs = (0..rank).rev().flat_map(|m| (0..rank).rev().filter(move |&s| s != m).map(move |s| (m, s)));
    // The first of equals is the most like the order in which the array is written.
    let Some((minor, second)) = pairs.min_by_key(|&(m, s)| waste(m, s)) else { return array.clone() };
    let rest = (0..rank).rev().filter(|&d| d != minor && d != second);
    let order = [minor, second].into_iter().chain(rest).map(|d| d as i64);
    array.clone().with_layout(Layout::new(order))
}

/// The shape with a layout and tiles for every array.
pub fn tiled(shape: &Shape) -> Shape {
    match shape {
        // The usual case costs nothing.
        Shape::Array(a) if a.layout.as_ref().is_some_and(has_tiles) => shape.clone(),
        Shape::Array(a) => tiled_array(a).into(),
        Shape::Tuple(t) => Shape::Tuple(t.iter().map(tiled).collect()),
        other => other.clone(),
    }
}

/// The array with a layout and tiles.
pub fn tiled_array(array: &ArrayShape) -> ArrayShape {
    let mut layout = array.layout.clone().unwrap_or_else(|| Layout::descending(array.rank()));
    if !has_tiles(&layout) && array.element_type.bits() > 0 {
        layout.tiles = tiles(array.element_type, array.dims(), &layout).into_iter().collect();
    }
    array.clone().with_layout(layout)
}

/// The array with the same order of dimensions, and the tiles that follow from it.
pub fn retiled(array: &ArrayShape) -> ArrayShape {
    let mut bare = array.clone();
    if let Some(layout) = &mut bare.layout {
        layout.tiles.clear();
    }
    tiled_array(&bare)
}

fn has_tiles(layout: &Layout) -> bool {
    // Semaphores and the small shared memory of collectives have none.
    !layout.tiles.is_empty() || layout.memory_space == 2 || layout.memory_space == 4
}

fn tiles(element_type: ElementType, dims: &[i64], layout: &Layout) -> Vec<Tile> {
    // Elements that share a word of 32 bits; wider ones are taken apart later and count as one.
    let packing = (32 / i64::from(element_type.bits()).clamp(1, 32)).max(1);
    let size = |n: usize| layout.minor_to_major.get(n).and_then(|&d| dims.get(usize::try_from(d).ok()?)).copied();
    let mut tiles = Vec::new();
    match (size(1), size(0)) {
        (_, None) => return vec![Tile(smallvec![LANES * packing])],
        (None, Some(n)) => {
            let whole = n.clamp(LANES, LONGEST).next_power_of_two_i64();
            tiles.push(Tile(smallvec![whole.max(LANES * packing).min(LONGEST.max(LANES * packing))]));
            if packing > 1 {
                tiles.push(Tile(smallvec![LANES]));
            }
        }
        (Some(rows), _) => {
            let rows = rows.clamp(1, SUBLANES).next_power_of_two_i64().clamp(packing.min(SUBLANES), SUBLANES);
            tiles.push(Tile(smallvec![rows, LANES]));
        }
    }
    if packing > 1 {
        tiles.push(Tile(smallvec![packing, 1]));
    }
    tiles
}

trait UpTo {
    fn div_ceil_to(self, to: i128) -> i128;
}

impl UpTo for i128 {
    /// Rounded up to a multiple of `to`.
    fn div_ceil_to(self, to: i128) -> i128 {
        (self + to - 1) / to * to
    }
}

trait NextPowerOfTwo {
    fn next_power_of_two_i64(self) -> i64;
}

impl NextPowerOfTwo for i64 {
    /// Of a small positive number.
    fn next_power_of_two_i64(self) -> i64 {
        (self.max(1) as u64).next_power_of_two() as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_ir::element_type::ElementType::*;

    #[test]
    fn tiles_follow_from_width_and_minor_sizes() {
        let cases: &[(ElementType, &[i64], &str)] = &[
            (F32, &[], "f32[]{:T(128)}"),
            (Bf16, &[], "bf16[]{:T(256)}"),
            (Pred, &[], "pred[]{:T(512)}"),
            (F32, &[300], "f32[300]{0:T(512)}"),
            (F32, &[4096], "f32[4096]{0:T(1024)}"),
            (Bf16, &[64], "bf16[64]{0:T(256)(128)(2,1)}"),
            (S8, &[64], "s8[64]{0:T(512)(128)(4,1)}"),
            (F32, &[1, 5], "f32[1,5]{1,0:T(1,128)}"),
            (F32, &[3, 5], "f32[3,5]{1,0:T(4,128)}"),
            (F32, &[4, 100, 5], "f32[4,100,5]{2,1,0:T(8,128)}"),
            (Bf16, &[1, 5], "bf16[1,5]{1,0:T(2,128)(2,1)}"),
            (Bf16, &[9, 5], "bf16[9,5]{1,0:T(8,128)(2,1)}"),
            (Pred, &[2, 2], "pred[2,2]{1,0:T(4,128)(4,1)}"),
            (S64, &[16, 2], "s64[16,2]{1,0:T(8,128)}"),
        ];
        for (element_type, dims, text) in cases {
            let shape = Shape::array(*element_type, dims.iter().copied());
            assert_eq!(tiled(&shape).to_string(), *text);
        }
    }

    #[test]
    fn arrays_lie_so_that_tiles_waste_least() {
        let cases: &[(ElementType, &[i64], &str)] = &[
            (F32, &[8, 128, 4096], "f32[8,128,4096]{2,1,0}"),
            (F32, &[1024, 4], "f32[1024,4]{0,1}"),
            (Bf16, &[8, 224, 224, 3], "bf16[8,224,224,3]{2,1,3,0}"),
            (Bf16, &[3, 3, 1, 64], "bf16[3,3,1,64]{3,1,2,0}"),
        ];
        for (element_type, dims, text) in cases {
            let array = ArrayShape::new(*element_type, dims.iter().copied());
            assert_eq!(Shape::from(compact(&array)).to_string(), *text);
        }
    }

    #[test]
    fn tiles_cut_the_dimensions_that_are_minor_in_memory() {
        let array = ArrayShape::new(F32, [4096, 2, 1]).with_layout(Layout::new([1, 0, 2]));
        assert_eq!(Shape::from(tiled_array(&array)).to_string(), "f32[4096,2,1]{1,0,2:T(8,128)}");
    }
}

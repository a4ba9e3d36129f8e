//! Properties of the map from elements to memory, over random layouts: it is one to one, it has the size that is said, and
//! a bitcast that is told as moves moves every element to where its memory is.

use super::bitcast::Moves;
use super::memory::{MemoryForm, element_bits};
use super::{Layout, Tile};
use crate::element_type::ElementType;
use crate::shape::ArrayShape;
use proptest::prelude::*;
use std::collections::HashSet;

/// A small deterministic source of choices.
struct Choices(u64);

impl Choices {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

fn layout(c: &mut Choices, rank: usize) -> Layout {
    let mut order: Vec<i64> = (0..rank as i64).collect();
    for k in (1..rank).rev() {
        order.swap(k, c.below(k as u64 + 1) as usize);
    }
    let mut layout = Layout::new(order);
    for _ in 0..c.pick(&[0, 1, 1, 1, 2, 2, 3]) {
        let sizes = (0..1 + c.below(3)).map(|_| c.pick(&[1, 2, 2, 3, 4, 4, 8, Tile::COMBINE]));
        layout.tiles.push(Tile(sizes.collect()));
    }
    layout
}

fn array(c: &mut Choices) -> ArrayShape {
    let rank = c.below(5) as usize;
    let dims: Vec<i64> = (0..rank).map(|_| c.pick(&[1, 1, 2, 3, 4, 5, 6, 8, 12])).collect();
    let element_type = c.pick(&[ElementType::F32, ElementType::Bf16, ElementType::S8]);
    ArrayShape::new(element_type, dims).with_layout(layout(c, rank))
}

/// All indices of an array in row-major order.
fn indices(dims: &[i64]) -> Vec<Vec<i64>> {
    let mut all = vec![Vec::new()];
    for &n in dims {
        all = all.iter().flat_map(|i| (0..n).map(|k| [i.as_slice(), &[k]].concat())).collect();
    }
    all
}

/// The same dimensions in another form: some of size one come or go, some are split or joined.
fn reshaped(c: &mut Choices, dims: &[i64]) -> Vec<i64> {
    let mut new: Vec<i64> = Vec::new();
    for &n in dims {
        match c.below(5) {
            0 if n % 2 == 0 => new.extend([2, n / 2]),
            1 if n % 4 == 0 => new.extend([n / 4, 4]),
            2 => new.extend([n, 1]),
            3 if !new.is_empty() => *new.last_mut().unwrap() *= n,
            _ if n == 1 => {}
            _ => new.push(n),
        }
    }
    new
}

/// Row-major positions in the operand of the elements of the result, in units, by carrying `moves` out.
fn carried_out(moves: &Moves) -> Vec<usize> {
    let strides: Vec<i64> = (0..moves.split.len()).map(|k| moves.split[k + 1..].iter().product()).collect();
    let dims: Vec<i64> = moves.order.iter().map(|&d| moves.split[d as usize]).collect();
    let place = |i: &Vec<i64>| i.iter().zip(&moves.order).map(|(x, &d)| x * strides[d as usize]).sum::<i64>();
    indices(&dims).iter().map(|i| place(i) as usize).collect()
}

/// The bit at which each unit of each element begins, in row-major order.
fn unit_bits(array: &ArrayShape, unit: i64) -> Vec<i64> {
    let (form, bits) = (MemoryForm::of(array).unwrap(), element_bits(array));
    let starts = indices(array.dims()).into_iter().map(|i| form.position(&i) * bits);
    starts.flat_map(|start| (0..bits / unit).map(move |k| start + k * unit)).collect()
}

/// Whether the bitcast is told as moves, which then must be right.
fn check_moves(from: &ArrayShape, to: &ArrayShape) -> bool {
    let Some(moves) = Moves::of(from, to) else { return false };
    let unit = element_bits(from).min(element_bits(to));
    assert_eq!(moves.joined.iter().product::<i64>(), moves.split.iter().product::<i64>(), "{from} → {to}: {moves:?}");
    let (source, target) = (unit_bits(from, unit), unit_bits(to, unit));
    let carried = carried_out(&moves);
    assert_eq!(carried.len(), target.len());
    for (n, &k) in carried.iter().enumerate() {
        assert_eq!(source[k], target[n], "{from} → {to}: element {n} by {moves:?}");
    }
    true
}

fn check_map(array: &ArrayShape) {
    let form = MemoryForm::of(array).unwrap();
    let positions: Vec<i64> = indices(array.dims()).iter().map(|i| form.position(i)).collect();
    let distinct: HashSet<i64> = positions.iter().copied().collect();
    assert_eq!(distinct.len() as i64, array.element_count().unwrap(), "{array}: two elements have one place");
    assert!(positions.iter().all(|p| (0..form.count).contains(p)), "{array}: a place beyond {}", form.count);
    assert_eq!(form.is_dense(), form.count == array.element_count().unwrap(), "{array}");
}

/// Checks two random arrays and the bitcast between them; whether that was told as moves.
fn check_case(seed: u64) -> bool {
    let mut c = Choices(seed);
    let from = array(&mut c);
    check_map(&from);
    // Whatever the other array is, moves that are told are right; for many of these there are some.
    let dims = reshaped(&mut c, from.dims());
    let mut to_layout = match c.below(3) {
        0 => Layout::descending(dims.len()),
        _ => layout(&mut c, dims.len()),
    };
    if let (Some(l), 0 | 1) = (&from.layout, c.below(3)) {
        to_layout.tiles = l.tiles.clone();
    }
    let other = c.pick(&[from.element_type, ElementType::F32, ElementType::Bf16, ElementType::S8]);
    let to = ArrayShape::new(other, dims).with_layout(to_layout);
    check_map(&to);
    assert!(check_moves(&from, &from) || joins_or_cuts_unevenly(&from), "{from}");
    check_moves(&from, &to)
}

/// Tiles that join what others have cut, or cut again what others have cut into other sizes, need not be told as moves.
fn joins_or_cuts_unevenly(array: &ArrayShape) -> bool {
    let tiles = &array.layout.as_ref().unwrap().tiles;
    let joins = |t: &Tile| t.0.contains(&Tile::COMBINE);
    tiles.iter().any(joins) || tiles.len() > 1 && tiles.iter().any(|t| t.0.contains(&3))
}

proptest! {
    #[test]
    fn places_are_distinct_and_moves_are_right(seed in any::<u64>()) {
        check_case(seed);
    }
}

/// As many random layouts as `HLOOM_CASES` says.
#[test]
fn many_layouts() {
    let cases = std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(2000u64);
    let moves = (0..cases).filter(|n| check_case(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).count();
    assert!(moves as u64 > cases / 20, "only {moves} of {cases} bitcasts were told as moves");
}

fn tiled(element_type: ElementType, dims: &[i64], order: &[i64], tiles: &[&[i64]]) -> ArrayShape {
    let mut layout = Layout::new(order.iter().copied());
    layout.tiles = tiles.iter().map(|t| Tile(t.iter().copied().collect())).collect();
    ArrayShape::new(element_type, dims.iter().copied()).with_layout(layout)
}

#[test]
fn rows_of_a_matrix_may_be_cut_into_tiles_and_back_without_moving() {
    use ElementType::F32;
    let matrix = tiled(F32, &[256, 2048], &[1, 0], &[&[8, 128]]);
    let by_tiles = tiled(F32, &[32, 8, 16, 128], &[3, 1, 2, 0], &[&[8, 128]]);
    assert!(Moves::of(&matrix, &by_tiles).unwrap().is_reshape());
    assert!(Moves::of(&by_tiles, &matrix).unwrap().is_reshape());
    // The same without tiles moves rows of 128.
    let untiled = tiled(F32, &[256, 2048], &[1, 0], &[]);
    let untiled_pieces = tiled(F32, &[32, 8, 16, 128], &[3, 1, 2, 0], &[]);
    let moves = Moves::of(&untiled, &untiled_pieces).unwrap();
    assert_eq!((moves.split.as_slice(), moves.order.as_slice()), (&[32, 16, 8, 128][..], &[0, 2, 1, 3][..]));
}

#[test]
fn parameters_are_seen_as_bytes() {
    use ElementType::{Bf16, S8};
    let bytes = tiled(S8, &[16_777_216], &[0], &[&[1024], &[128], &[4, 1]]);
    let weights = tiled(Bf16, &[8, 1024, 8, 128], &[3, 2, 1, 0], &[&[8, 128], &[2, 1]]);
    let moves = Moves::of(&weights, &bytes).unwrap();
    assert_eq!((moves.unit, moves.joined.as_slice()), (S8, &[16_777_216][..]));
    let back = Moves::of(&bytes, &weights).unwrap();
    assert_eq!((back.unit, back.joined.as_slice()), (S8, &[8, 1024, 8, 128, 2][..]));
}

#[test]
fn sizes_of_one_and_ragged_tiles_move_nothing() {
    use ElementType::F32;
    let rows = tiled(F32, &[5, 300], &[1, 0], &[&[8, 128]]);
    let more = tiled(F32, &[5, 300, 1], &[1, 0, 2], &[&[8, 128]]);
    assert!(Moves::of(&rows, &more).unwrap().is_reshape());
    let turned = tiled(F32, &[300, 5], &[0, 1], &[&[8, 128]]);
    let moves = Moves::of(&rows, &turned).unwrap();
    assert_eq!((moves.split.as_slice(), moves.order.as_slice()), (&[5, 300][..], &[1, 0][..]));
    // Reading padding is not moving elements.
    assert_eq!(Moves::of(&rows, &tiled(F32, &[8, 384], &[1, 0], &[&[8, 128]])), None);
    // A vector and a row of it, whatever their tiles.
    let vector = tiled(F32, &[300], &[0], &[&[512]]);
    assert!(Moves::of(&vector, &tiled(F32, &[1, 300], &[1, 0], &[&[1, 128]])).unwrap().is_reshape());
}

#[test]
fn sizes_that_cannot_be_counted_have_no_form() {
    let huge = tiled(ElementType::S8, &[i64::MAX - 1], &[0], &[&[1024]]);
    assert_eq!(MemoryForm::of(&huge), None);
    let empty = tiled(ElementType::F32, &[0, i64::MAX], &[1, 0], &[&[8, 128]]);
    assert_eq!(MemoryForm::of(&empty).unwrap().count, 0);
}

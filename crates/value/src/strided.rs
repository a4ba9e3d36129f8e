//! One primitive for all operations that only move elements: a copy between two strided views.
//!
//! Broadcast (stride 0), transpose (permuted strides), slice (offset and step), reverse (negative strides), pad (a sparse
//! destination), concatenate and update (an offset in the destination) are all this copy. Elements are moved by their
//! width, so no operation here knows about types.

use crate::array::Array;
use crate::error::ExecutionError;
use hloom_ir::layout::DimVec;
use smallvec::SmallVec;

/// Where the element at index 0 is, and how far apart neighbours along each dimension are.
#[derive(Clone, Debug)]
pub struct View {
    /// The position of the first element.
    pub start: i64,
    /// Positions between neighbours, per dimension.
    pub strides: DimVec,
}

impl View {
    /// The whole of a row-major array with those sizes.
    pub fn whole(dims: &[i64]) -> View {
        View { start: 0, strides: crate::array::strides(dims) }
    }
}

/// Copies the elements at all indices of `dims` from one view to another.
///
/// Every position must lie inside its array: checked per copy (not per element) before anything is moved.
pub fn copy(
    dims: &[i64],
    from: &Array,
    from_view: &View,
    to: &mut Array,
    to_view: &View,
) -> Result<(), ExecutionError> {
    if dims.contains(&0) {
        return Ok(());
    }
    if !inside(dims, from_view, from.len()) || !inside(dims, to_view, to.len()) {
        return Err(ExecutionError::bug(format!("a copy of {dims:?} elements reaches outside its arrays")));
    }
    to.unshare()?;
    match from.element_type().bytes() {
        1 => copy_elements::<u8>(dims, from.elements(), from_view, to.elements_mut(), to_view),
        2 => copy_elements::<u16>(dims, from.elements(), from_view, to.elements_mut(), to_view),
        4 => copy_elements::<u32>(dims, from.elements(), from_view, to.elements_mut(), to_view),
        8 => copy_elements::<u64>(dims, from.elements(), from_view, to.elements_mut(), to_view),
        _ => copy_elements::<u128>(dims, from.elements(), from_view, to.elements_mut(), to_view),
    }
    Ok(())
}

/// Whether every position of the view lies in `0..len`.
fn inside(dims: &[i64], view: &View, len: usize) -> bool {
    let (mut least, mut most) = (i128::from(view.start), i128::from(view.start));
    for (&size, &stride) in dims.iter().zip(&view.strides) {
        let reach = i128::from(size - 1) * i128::from(stride);
        if reach < 0 { least += reach } else { most += reach }
    }
    least >= 0 && most < len as i128
}

fn copy_elements<W: Copy>(dims: &[i64], from: &[W], from_view: &View, to: &mut [W], to_view: &View) {
    let loops = merge_loops(dims, &from_view.strides, &to_view.strides);
    let Some((&(size, from_step, to_step), outer)) = loops.split_last() else {
        to[to_view.start as usize] = from[from_view.start as usize];
        return;
    };
    let mut index: SmallVec<[i64; 6]> = SmallVec::from_elem(0, outer.len());
    let (mut f, mut t) = (from_view.start, to_view.start);
    loop {
        match (from_step, to_step) {
            (1, 1) => {
                to[t as usize..(t + size) as usize].copy_from_slice(&from[f as usize..(f + size) as usize]);
            }
            (0, 1) => to[t as usize..(t + size) as usize].fill(from[f as usize]),
            _ => {
                for k in 0..size {
                    to[(t + k * to_step) as usize] = from[(f + k * from_step) as usize];
                }
            }
        }
        // The next row: an odometer over the outer loops.
        let mut d = outer.len();
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            let (outer_size, from_stride, to_stride) = outer[d];
            index[d] += 1;
            f += from_stride;
            t += to_stride;
            if index[d] < outer_size {
                break;
            }
            f -= outer_size * from_stride;
            t -= outer_size * to_stride;
            index[d] = 0;
        }
    }
}

/// The loops of a copy as (size, source stride, destination stride): dimensions of size one dropped, neighbours that are
/// contiguous in both views joined.
fn merge_loops(dims: &[i64], from: &[i64], to: &[i64]) -> SmallVec<[(i64, i64, i64); 6]> {
    let mut loops: SmallVec<[(i64, i64, i64); 6]> = SmallVec::new();
    for ((&size, &f), &t) in dims.iter().zip(from).zip(to) {
        if size == 1 {
            continue;
        }
        match loops.last_mut() {
            Some(last) if last.1 == f * size && last.2 == t * size => *last = (last.0 * size, f, t),
            _ => loops.push((size, f, t)),
        }
    }
    loops
}

/// All indices of an array with those sizes, in row-major order.
pub struct Indices {
    dims: DimVec,
    next: Option<DimVec>,
}

impl Indices {
    /// All indices of `dims`.
    pub fn new(dims: &[i64]) -> Indices {
        let next = if dims.contains(&0) { None } else { Some(DimVec::from_elem(0, dims.len())) };
        Indices { dims: dims.into(), next }
    }
}

impl Iterator for Indices {
    type Item = DimVec;
    fn next(&mut self) -> Option<DimVec> {
        let current = self.next.clone()?;
        let following = self.next.as_mut()?;
        for d in (0..self.dims.len()).rev() {
            following[d] += 1;
            if following[d] < self.dims[d] {
                return Some(current);
            }
            following[d] = 0;
        }
        self.next = None;
        Some(current)
    }
}

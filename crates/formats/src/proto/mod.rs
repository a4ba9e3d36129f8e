//! XLA's protos: `HloModuleProto`, `HloProto` and `HloSnapshot`, read and written.
//!
//! A module that went through a proto is the module it was, with what XLA's messages have no field for left out
//! (replica and partition counts, which XLA keeps elsewhere). Fields that the IR has no place for survive: see
//! [`unknown`]. Bytes of any kind may be read: what is not a module gives a diagnostic, in time and memory linear in
//! the number of bytes.

mod container;
mod messages;
mod read;
mod snapshot;
mod text_form;
mod unknown;
mod wire;
mod write;

#[cfg(test)]
mod tests;

pub use container::detect;
pub use read::{read, read_shape, read_sharding};
pub use snapshot::{Snapshot, read_snapshot, write_snapshot};
pub use text_form::{from_text_form, is_text_form};
pub use write::{Container, write, write_shape, write_sharding};

use hloom_ir::attributes::ComparisonType;
use hloom_ir::element_type::ElementType;
use hloom_ir::shape::ArrayShape;
use smallvec::SmallVec;

/// The order in which values of that type are compared when nothing else is said.
fn default_comparison(element_type: ElementType) -> ComparisonType {
    if element_type.is_signed_integer() {
        ComparisonType::Signed
    } else if element_type.is_float() || element_type.is_complex() {
        ComparisonType::Float
    } else {
        ComparisonType::Unsigned
    }
}

/// Visits all elements in the order of a layout, giving the byte at which each begins in row-major order.
/// `minor_to_major` is a permutation of the dimensions, and the shape's size in bytes fits in memory.
fn for_each_position(shape: &ArrayShape, minor_to_major: &[i64], mut visit: impl FnMut(usize)) {
    let Some(count) = shape.element_count().filter(|&n| n > 0) else { return };
    let dims = shape.dims();
    let mut strides: SmallVec<[usize; 4]> = SmallVec::from_elem(shape.element_type.bytes(), dims.len());
    for d in (1..dims.len()).rev() {
        strides[d - 1] = strides[d] * dims[d] as usize;
    }
    // Sizes and strides of the dimensions, the fastest-varying first.
    let order: SmallVec<[(usize, usize); 4]> =
        minor_to_major.iter().map(|&d| (dims[d as usize] as usize, strides[d as usize])).collect();
    let mut index: SmallVec<[usize; 4]> = SmallVec::from_elem(0, order.len());
    let mut at = 0;
    for _ in 0..count {
        visit(at);
        for (i, &(size, stride)) in index.iter_mut().zip(&order) {
            *i += 1;
            at += stride;
            if *i < size {
                break;
            }
            at -= size * stride;
            *i = 0;
        }
    }
}

//! Gather and scatter.

use super::common::{Dims, Site, array_text, at_attribute, counted, error, same_size};
use super::reduction::check_reducer;
use super::{Inferred, Result1, ShapeError};
use crate::diagnostic::Part;
use crate::diagnostic::codes::infer as codes;
use crate::element_type::ElementType;
use crate::op::{Gather, Scatter};
use crate::shape::ArrayShape;
use smallvec::SmallVec;

/// The indices of a gather or scatter, with the dimension that holds the parts of one index made explicit.
struct Indices<'a> {
    array: &'a ArrayShape,
    /// The dimension that holds the parts of an index; one beyond the last when each is a single number.
    vector_dim: usize,
}

impl<'a> Indices<'a> {
    fn new(s: &Site<'a>, operand: usize, vector_dim: i64) -> Result<Indices<'a>, ShapeError> {
        let array = s.array(operand)?;
        if !array.element_type.is_integer() {
            return Err(s.element_type_error(operand, array.element_type, "integer indices and"));
        }
        let vector_dim = s.dimension(vector_dim, array.rank() + 1, "index_vector_dim")?;
        Ok(Indices { array, vector_dim })
    }

    fn rank(&self) -> usize {
        self.array.rank().max(self.vector_dim + 1)
    }

    /// The number of parts of an index.
    fn parts(&self) -> i64 {
        self.array.dims().get(self.vector_dim).copied().unwrap_or(1)
    }

    /// Sizes of the dimensions that enumerate indices, with whether they are dynamic.
    fn batch_dims(&self) -> impl Iterator<Item = (i64, bool)> + '_ {
        let dims = self.array.dims().iter().enumerate().filter(|(d, _)| *d != self.vector_dim);
        dims.map(|(d, &size)| (size, self.array.is_dynamic_dim(d)))
    }
}

/// The lists that say which dimension of the operand plays which role, and the attributes they stand in.
struct OperandRoles<'a> {
    index_map: (&'a [i64], &'static str),
    dropped: (&'a [i64], &'static str),
    batching: (&'a [i64], &'static str),
    indices_batching: (&'a [i64], &'static str),
}

impl OperandRoles<'_> {
    /// Checks the lists, and finds the dimensions of the operand that are neither dropped nor batched.
    fn check(&self, s: &Site<'_>, rank: usize, indices: &Indices<'_>) -> Result<SmallVec<[usize; 8]>, ShapeError> {
        let (map, map_attribute) = self.index_map;
        if !same_size(indices.parts(), map.len() as i64) {
            let message = format!(
                "{map_attribute} has {}, but each index of {} has {} parts",
                counted(map.len(), "entry"),
                array_text(indices.array),
                indices.parts()
            );
            return Err(at_attribute(&codes::ATTRIBUTE_LENGTH, map_attribute, message));
        }
        s.distinct_dimensions(map, rank, map_attribute)?;
        s.ascending_dimensions(self.dropped.0, rank, self.dropped.1)?;
        s.ascending_dimensions(self.batching.0, rank, self.batching.1)?;
        let (batching, indices_batching) = (self.batching, self.indices_batching);
        s.attribute_length(indices_batching.1, indices_batching.0.len(), batching.0.len())?;
        s.distinct_dimensions(indices_batching.0, indices.rank(), indices_batching.1)?;
        let mut window: SmallVec<[bool; 16]> = SmallVec::from_elem(true, rank);
        let mut indexed: SmallVec<[bool; 16]> = SmallVec::from_elem(false, rank);
        map.iter().for_each(|&d| indexed[d as usize] = true);
        for &d in self.dropped.0.iter().chain(batching.0) {
            if !std::mem::replace(&mut window[d as usize], false) {
                let message = format!("dimension {d} is in both {} and {}", self.dropped.1, batching.1);
                return Err(at_attribute(&codes::DIMENSION_NUMBERS, batching.1, message));
            }
        }
        for (&d, &i) in batching.0.iter().zip(indices_batching.0) {
            let message = if indexed[d as usize] {
                format!("dimension {d} is in both {map_attribute} and {}", batching.1)
            } else if i as usize == indices.vector_dim {
                format!("{} names index_vector_dim, {i}", indices_batching.1)
            } else {
                continue;
            };
            return Err(at_attribute(&codes::DIMENSION_NUMBERS, indices_batching.1, message));
        }
        Ok(window.iter().enumerate().filter(|(_, window)| **window).map(|(d, _)| d).collect())
    }
}

pub(super) fn gather<'a>(s: &Site<'a>, gather: &Gather) -> Result1<'a> {
    let operand = s.array(0)?;
    let numbers = &gather.dims;
    let indices = Indices::new(s, 1, numbers.index_vector_dim)?;
    s.attribute_length("slice_sizes", gather.slice_sizes.len(), operand.rank())?;
    let result_rank = numbers.offset_dims.len() + indices.rank() - 1;
    s.ascending_dimensions(&numbers.offset_dims, result_rank, "offset_dims")?;
    let roles = OperandRoles {
        index_map: (&numbers.start_index_map, "start_index_map"),
        dropped: (&numbers.collapsed_slice_dims, "collapsed_slice_dims"),
        batching: (&numbers.operand_batching_dims, "operand_batching_dims"),
        indices_batching: (&numbers.start_indices_batching_dims, "start_indices_batching_dims"),
    };
    let window = roles.check(s, operand.rank(), &indices)?;
    s.attribute_length("offset_dims", numbers.offset_dims.len(), window.len())?;
    check_batch_sizes(s, operand, indices.array, &numbers.operand_batching_dims, &numbers.start_indices_batching_dims)?;
    for (d, (&slice, &size)) in gather.slice_sizes.iter().zip(operand.dims()).enumerate() {
        if slice < 0 || size != ArrayShape::UNBOUNDED && slice > size {
            let message = format!("a slice of size {slice} does not fit dimension {d} of {}", array_text(operand));
            return Err(at_attribute(&codes::SIZE_OUT_OF_RANGE, "slice_sizes", message));
        }
    }
    for &d in numbers.collapsed_slice_dims.iter().chain(&numbers.operand_batching_dims) {
        let slice = gather.slice_sizes[d as usize];
        if slice > 1 {
            let message = format!("dimension {d} is left out of the result, but its slices have size {slice}");
            return Err(at_attribute(&codes::SIZE_OUT_OF_RANGE, "slice_sizes", message));
        }
    }
    let mut dims = Dims::default();
    let (mut offsets, mut batch) = (window.iter(), indices.batch_dims());
    for d in 0..result_rank as i64 {
        let is_offset = numbers.offset_dims.binary_search(&d).is_ok();
        let from_window = if is_offset { offsets.next() } else { None };
        match from_window {
            Some(&o) => {
                let (slice, size) = (gather.slice_sizes[o], operand.dims()[o]);
                dims.push(slice, slice == size && operand.is_dynamic_dim(o));
            }
            None => {
                let (size, dynamic) = batch.next().unwrap_or((1, false));
                dims.push(size, dynamic);
            }
        }
    }
    Ok(dims.inferred(operand.element_type))
}

/// Batched dimensions of the operand and of the indices go together, so they have one size.
fn check_batch_sizes(
    s: &Site<'_>,
    operand: &ArrayShape,
    indices: &ArrayShape,
    operand_dims: &[i64],
    indices_dims: &[i64],
) -> Result<(), ShapeError> {
    for (&o, &i) in operand_dims.iter().zip(indices_dims) {
        let size = |a: &ArrayShape, d: i64| usize::try_from(d).ok().and_then(|d| a.dims().get(d)).copied().unwrap_or(1);
        if !same_size(size(operand, o), size(indices, i)) {
            let message = format!(
                "{} batches dimension {o} of {} with dimension {i} of {}",
                s.name(),
                array_text(operand),
                array_text(indices)
            );
            return Err(error(&codes::DIMENSIONS_DIFFER, Part::Operand(1), message));
        }
    }
    Ok(())
}

pub(super) fn scatter<'a>(s: &Site<'a>, scatter: &Scatter) -> Result1<'a> {
    let count = s.operands.len() / 2;
    if count == 0 || s.operands.len() != count * 2 + 1 {
        return Err(s.operand_count_error("arrays, indices and as many updates as arrays"));
    }
    let numbers = &scatter.dims;
    let indices = Indices::new(s, count, numbers.index_vector_dim)?;
    let roles = OperandRoles {
        index_map: (&numbers.scatter_dims_to_operand_dims, "scatter_dims_to_operand_dims"),
        dropped: (&numbers.inserted_window_dims, "inserted_window_dims"),
        batching: (&numbers.input_batching_dims, "input_batching_dims"),
        indices_batching: (&numbers.scatter_indices_batching_dims, "scatter_indices_batching_dims"),
    };
    let updates_rank = numbers.update_window_dims.len() + indices.rank() - 1;
    s.ascending_dimensions(&numbers.update_window_dims, updates_rank, "update_window_dims")?;
    let rank = s.array(0)?.rank();
    let window = roles.check(s, rank, &indices)?;
    s.attribute_length("update_window_dims", numbers.update_window_dims.len(), window.len())?;
    for i in 0..count {
        let operand = s.array(i)?;
        if operand.rank() != rank {
            return Err(s.dimensions_differ(0, i));
        }
        check_batch_sizes(s, operand, indices.array, &numbers.input_batching_dims, {
            &numbers.scatter_indices_batching_dims
        })?;
        check_updates(s, scatter, (i, &window), count + 1 + i, &indices)?;
    }
    let operand_type = |i: usize| -> ElementType {
        s.operands.get(i).and_then(|&o| s.module[o].shape.element_type()).unwrap_or(ElementType::Pred)
    };
    check_reducer(s, scatter.to_apply, "to_apply", count, |i| operand_type(count + 1 + i), operand_type)?;
    Ok(match s.operands {
        [_, _, _] => Inferred::Like(s.shape(0)?),
        all => Inferred::TupleOf(&all[..count]),
    })
}

/// Checks the updates of one operand: a window of the operand for each index.
fn check_updates(
    s: &Site<'_>,
    scatter: &Scatter,
    (operand, window): (usize, &[usize]),
    updates: usize,
    indices: &Indices<'_>,
) -> Result<(), ShapeError> {
    let numbers = &scatter.dims;
    let (array, update) = (s.array(operand)?, s.array(updates)?);
    let wrong = |why: String| {
        let message = format!("the updates {} {why}", array_text(update));
        error(&codes::DIMENSIONS_DIFFER, Part::Operand(updates), message)
    };
    let rank = numbers.update_window_dims.len() + indices.rank() - 1;
    if update.rank() != rank {
        return Err(wrong(format!("must have {}", counted(rank, "dimension"))));
    }
    let (mut window, mut batch) = (window.iter(), indices.batch_dims());
    for (d, &size) in update.dims().iter().enumerate() {
        if numbers.update_window_dims.binary_search(&(d as i64)).is_ok() {
            let whole = window.next().map_or(0, |&w| array.dims()[w]);
            if size != ArrayShape::UNBOUNDED && whole != ArrayShape::UNBOUNDED && size > whole {
                return Err(wrong(format!("reach beyond {} in dimension {d}", array_text(array))));
            }
        } else {
            let wanted = batch.next().map_or(1, |(size, _)| size);
            if !same_size(size, wanted) {
                return Err(wrong(format!("must have size {wanted} in dimension {d}, as many as there are indices")));
            }
        }
    }
    Ok(())
}

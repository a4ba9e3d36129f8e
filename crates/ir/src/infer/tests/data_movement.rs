//! Operations that put elements elsewhere, gather, tuples and order.

use super::check_table;
use crate::attributes::{GatherDimensionNumbers, PaddingDim, SliceDim};
use crate::op::{Gather, Op};

fn slice(dims: &[(i64, i64, i64)]) -> Op {
    Op::Slice { dims: dims.iter().map(|&(start, limit, stride)| SliceDim { start, limit, stride }).collect() }
}

fn pad(dims: &[(i64, i64, i64)]) -> Op {
    Op::Pad { padding: dims.iter().map(|&(low, high, interior)| PaddingDim { low, high, interior }).collect() }
}

fn broadcast(dimensions: &[i64]) -> Op {
    Op::Broadcast { dimensions: dimensions.into() }
}

fn transpose(dimensions: &[i64]) -> Op {
    Op::Transpose { dimensions: dimensions.into() }
}

fn concatenate(dimension: i64) -> Op {
    Op::Concatenate { dimension }
}

#[test]
fn reshaping() {
    let reshape = || Op::Reshape { inferred_dimension: None };
    check_table([
        (Op::Bitcast, "f32[2,3]", "f32[6]", "f32[6]"),
        (Op::Bitcast, "f32[2,3]", "u8[24]", "u8[24]"),
        (Op::Bitcast, "f32[2,3]", "f32[5]", "H0314 shape"),
        (Op::Bitcast, "(f32[2])", "(f32[2])", "(f32[2])"),
        (Op::Bitcast, "(f32[2])", "f32[2]", "H0313 shape"),
        (Op::Copy, "(f32[2], token[])", "", "(f32[2], token[])"),
        (reshape(), "f32[2,3]", "f32[3,2]", "f32[3,2]"),
        (reshape(), "f32[1,1]", "f32[]", "f32[]"),
        (reshape(), "f32[0]", "f32[9223372036854775807,0]", "f32[9223372036854775807,0]"),
        (reshape(), "f32[2,3]", "f32[7]", "H0314 shape"),
        (reshape(), "f32[2,3]", "s32[6]", "H0313 shape"),
        (reshape(), "f32[2,3]", "", "H0312 shape"),
        (reshape(), "f32[?,3]", "f32[6]", "f32[6]"),
        (reshape(), "f32[<=6]", "f32[<=2,3]", "f32[<=2,3]"),
        (reshape(), "f32[9223372036854775807,4]", "f32[9223372036854775807,2]", "H0314 shape"),
        (Op::Reshape { inferred_dimension: Some(2) }, "f32[6]", "f32[2,3]", "H0307 inferred_dimension"),
        (Op::DynamicReshape, "f32[6] | s32[] | s32[]", "f32[<=2,3]", "f32[<=2,3]"),
        (Op::DynamicReshape, "f32[6] | s32[]", "f32[<=2,3]", "H0301 whole"),
        (Op::DynamicReshape, "f32[6] | s32[] | s64[]", "f32[<=2,3]", "H0303 operand 2"),
    ]);
}

#[test]
fn broadcast_transpose_reverse() {
    let reverse = |dimensions: &[i64]| Op::Reverse { dimensions: dimensions.into() };
    check_table([
        (broadcast(&[]), "f32[]", "f32[2,3]", "f32[2,3]"),
        (broadcast(&[1]), "f32[3]", "f32[2,3]", "f32[2,3]"),
        (broadcast(&[1, 0]), "f32[3,2]", "f32[2,3]", "f32[2,3]"),
        (broadcast(&[0]), "f32[3]", "f32[2,3]", "H0305 dimensions"),
        (broadcast(&[0]), "f32[1]", "f32[2,3]", "H0305 dimensions"),
        (broadcast(&[2]), "f32[3]", "f32[2,3]", "H0307 dimensions"),
        (broadcast(&[0, 0]), "f32[2,2]", "f32[2,3]", "H0308 dimensions"),
        (broadcast(&[]), "f32[3]", "f32[2,3]", "H0309 dimensions"),
        (broadcast(&[]), "f32[]", "s32[2]", "H0313 shape"),
        (broadcast(&[]), "f32[]", "", "f32[]"),
        (broadcast(&[1]), "f32[3]", "", "H0312 shape"),
        (transpose(&[1, 0]), "f32[2,<=3]", "", "f32[<=3,2]"),
        (transpose(&[]), "f32[]", "", "f32[]"),
        (transpose(&[0, 0]), "f32[2,3]", "", "H0308 dimensions"),
        (transpose(&[0, 2]), "f32[2,3]", "", "H0307 dimensions"),
        (transpose(&[0]), "f32[2,3]", "", "H0309 dimensions"),
        (transpose(&[0]), "token[]", "", "H0302 operand 0"),
        (reverse(&[1, 0]), "f32[2,3]", "", "f32[2,3]"),
        (reverse(&[2]), "f32[2,3]", "", "H0307 dimensions"),
        (reverse(&[1, 1]), "f32[2,3]", "", "H0308 dimensions"),
    ]);
}

#[test]
fn concatenate_and_pad() {
    check_table([
        (concatenate(0), "f32[2,3] | f32[4,3]", "", "f32[6,3]"),
        (concatenate(1), "f32[2,3]", "", "f32[2,3]"),
        (concatenate(0), "f32[<=2,3] | f32[4,3]", "", "f32[<=6,3]"),
        (concatenate(0), "f32[2,3] | f32[4,<=3]", "", "f32[6,<=3]"),
        (concatenate(0), "f32[?,3] | f32[4,?]", "", "f32[?,3]"),
        (concatenate(0), "f32[1,?] | f32[1,3] | f32[1,4]", "", "H0305 operand 2"),
        (concatenate(0), "f32[2,3] | f32[4,2]", "", "H0305 operand 1"),
        (concatenate(0), "f32[2,3] | f32[4]", "", "H0305 operand 1"),
        (concatenate(0), "f32[2,3] | s32[4,3]", "", "H0304 operand 1"),
        (concatenate(2), "f32[2,3] | f32[4,3]", "", "H0307 dimensions"),
        (concatenate(-1), "f32[2,3]", "", "H0307 dimensions"),
        (concatenate(0), "", "", "H0301 whole"),
        (concatenate(0), "f32[9223372036854775807] | f32[1]", "", "H0311 whole"),
        (pad(&[(1, 2, 0), (0, 0, 1)]), "f32[2,3] | f32[]", "", "f32[5,5]"),
        (pad(&[(-1, 0, 0)]), "f32[<=3] | f32[]", "", "f32[<=2]"),
        (pad(&[(1, 1, 3)]), "f32[0] | f32[]", "", "f32[2]"),
        (pad(&[(1, 1, 1)]), "f32[?] | f32[]", "", "f32[?]"),
        (pad(&[(-4, 0, 0)]), "f32[3] | f32[]", "", "H0310 padding"),
        (pad(&[(0, 0, -1)]), "f32[3] | f32[]", "", "H0310 padding"),
        (pad(&[(i64::MAX, 1, 0)]), "f32[3] | f32[]", "", "H0311 whole"),
        (pad(&[(0, 0, i64::MAX)]), "f32[3] | f32[]", "", "H0311 whole"),
        (pad(&[]), "f32[3] | f32[]", "", "H0309 padding"),
        (pad(&[(1, 1, 0)]), "f32[3] | f32[1]", "", "H0323 operand 1"),
        (pad(&[(1, 1, 0)]), "f32[3] | s32[]", "", "H0304 operand 1"),
    ]);
}

#[test]
fn slices() {
    let dynamic_slice = |sizes: &[i64]| Op::DynamicSlice { sizes: sizes.into() };
    check_table([
        (slice(&[(0, 2, 1), (1, 6, 2)]), "f32[4,6]", "", "f32[2,3]"),
        (slice(&[(2, 2, 1)]), "f32[4]", "", "f32[0]"),
        (slice(&[(0, 4, i64::MAX)]), "f32[4]", "", "f32[1]"),
        (slice(&[(0, 2, 1)]), "f32[<=4]", "", "f32[<=2]"),
        (slice(&[(0, 1, 1)]), "f32[<=4]", "", "f32[1]"),
        (slice(&[(0, i64::MAX, 1)]), "f32[?]", "", "f32[9223372036854775807]"),
        (slice(&[(0, 5, 1)]), "f32[4]", "", "H0310 slice"),
        (slice(&[(-1, 2, 1)]), "f32[4]", "", "H0310 slice"),
        (slice(&[(3, 2, 1)]), "f32[4]", "", "H0310 slice"),
        (slice(&[(0, 2, 0)]), "f32[4]", "", "H0310 slice"),
        (slice(&[(0, 2, 1)]), "f32[4,4]", "", "H0309 slice"),
        (dynamic_slice(&[2, 3]), "f32[4,3] | s32[] | s32[]", "", "f32[2,3]"),
        (dynamic_slice(&[2, 3]), "f32[4,3] | s32[2]", "", "f32[2,3]"),
        (dynamic_slice(&[2, 3]), "f32[4,<=3] | s32[] | s32[]", "", "f32[2,<=3]"),
        (dynamic_slice(&[]), "f32[]", "", "f32[]"),
        (dynamic_slice(&[5, 3]), "f32[4,3] | s32[] | s32[]", "", "H0310 dynamic_slice_sizes"),
        (dynamic_slice(&[-1, 3]), "f32[4,3] | s32[] | s32[]", "", "H0310 dynamic_slice_sizes"),
        (dynamic_slice(&[2]), "f32[4,3] | s32[] | s32[]", "", "H0309 dynamic_slice_sizes"),
        (dynamic_slice(&[2, 3]), "f32[4,3] | s32[]", "", "H0301 whole"),
        (dynamic_slice(&[2, 3]), "f32[4,3] | s32[3]", "", "H0305 operand 1"),
        (dynamic_slice(&[2, 3]), "f32[4,3] | f32[] | f32[]", "", "H0303 operand 1"),
        (dynamic_slice(&[2, 3]), "f32[4,3] | s32[] | s64[]", "", "H0304 operand 2"),
        (dynamic_slice(&[2, 3]), "f32[4,3] | s32[] | s32[1]", "", "H0323 operand 2"),
        (Op::DynamicUpdateSlice, "f32[4,3] | f32[2,3] | s32[] | s32[]", "", "f32[4,3]"),
        (Op::DynamicUpdateSlice, "f32[4] | f32[<=4] | s32[]", "", "f32[<=4]"),
        (Op::DynamicUpdateSlice, "b(f32[4]) | f32[2] | s32[]", "", "b(f32[4])"),
        (Op::DynamicUpdateSlice, "f32[4] | f32[5] | s32[]", "", "H0310 operand 1"),
        (Op::DynamicUpdateSlice, "f32[4] | f32[2,1] | s32[]", "", "H0310 operand 1"),
        (Op::DynamicUpdateSlice, "f32[4] | s32[2] | s32[]", "", "H0304 operand 1"),
        (Op::DynamicUpdateSlice, "f32[4] | f32[2]", "", "H0301 whole"),
    ]);
}

#[test]
fn sizes_of_dimensions() {
    check_table([
        (Op::GetDimensionSize { dimension: 1 }, "f32[2,<=3]", "", "s32[]"),
        (Op::GetDimensionSize { dimension: 2 }, "f32[2,3]", "", "H0307 dimensions"),
        (Op::GetDimensionSize { dimension: 0 }, "f32[2147483648]", "", "H0311 operand 0"),
        (Op::SetDimensionSize { dimension: 1 }, "f32[2,3] | s32[]", "", "f32[2,<=3]"),
        (Op::SetDimensionSize { dimension: 1 }, "f32[2,<=3] | s32[]", "f32[2,3]", "f32[2,3]"),
        (Op::SetDimensionSize { dimension: 1 }, "f32[2,3] | s64[]", "", "H0303 operand 1"),
        (Op::SetDimensionSize { dimension: 1 }, "f32[2,3] | s32[1]", "", "H0323 operand 1"),
    ]);
}

/// A gather of rows: `f` changes what is not to be as usual.
fn gather(f: impl FnOnce(&mut Gather)) -> Op {
    let mut gather = Gather {
        dims: GatherDimensionNumbers {
            offset_dims: [1].into_iter().collect(),
            collapsed_slice_dims: [0].into_iter().collect(),
            start_index_map: [0].into_iter().collect(),
            index_vector_dim: 1,
            ..GatherDimensionNumbers::default()
        },
        slice_sizes: [1, 4].into_iter().collect(),
        indices_are_sorted: false,
    };
    f(&mut gather);
    Op::Gather(Box::new(gather))
}

fn batched_gather(indices_batching: i64) -> Op {
    gather(|g| {
        g.dims.collapsed_slice_dims = [1].into_iter().collect();
        g.dims.start_index_map = [1].into_iter().collect();
        g.dims.operand_batching_dims = [0].into_iter().collect();
        g.dims.start_indices_batching_dims = [indices_batching].into_iter().collect();
        g.slice_sizes = [1, 1, 4].into_iter().collect();
        g.dims.offset_dims = [2].into_iter().collect();
        g.dims.index_vector_dim = 2;
    })
}

#[test]
fn gathers() {
    let set = |dims: &mut crate::layout::DimVec, list: &[i64]| *dims = list.into();
    check_table([
        (gather(|_| ()), "f32[8,4] | s32[5]", "", "f32[5,4]"),
        (gather(|_| ()), "f32[8,4] | s32[5,1]", "", "f32[5,4]"),
        (gather(|_| ()), "f32[8,<=4] | s32[<=5]", "", "f32[<=5,<=4]"),
        (gather(|g| set(&mut g.dims.offset_dims, &[0])), "f32[8,4] | s32[5]", "", "f32[4,5]"),
        (gather(|g| set(&mut g.dims.offset_dims, &[2])), "f32[8,4] | s32[5]", "", "H0307 offset_dims"),
        (gather(|g| set(&mut g.dims.offset_dims, &[1, 0])), "f32[8,4] | s32[5]", "", "H0308 offset_dims"),
        (gather(|g| set(&mut g.dims.offset_dims, &[0, 1])), "f32[8,4] | s32[5]", "", "H0309 offset_dims"),
        (gather(|g| g.dims.index_vector_dim = 2), "f32[8,4] | s32[5]", "", "H0307 index_vector_dim"),
        (gather(|g| g.dims.index_vector_dim = -1), "f32[8,4] | s32[5]", "", "H0307 index_vector_dim"),
        (gather(|g| set(&mut g.dims.start_index_map, &[0, 1])), "f32[8,4] | s32[5]", "", "H0309 start_index_map"),
        (gather(|g| set(&mut g.dims.start_index_map, &[2])), "f32[8,4] | s32[5]", "", "H0307 start_index_map"),
        (gather(|g| set(&mut g.dims.start_index_map, &[0, 0])), "f32[8,4] | s32[5,2]", "", "H0308 start_index_map"),
        (
            gather(|g| set(&mut g.dims.collapsed_slice_dims, &[2])),
            "f32[8,4] | s32[5]",
            "",
            "H0307 collapsed_slice_dims",
        ),
        (gather(|g| set(&mut g.slice_sizes, &[2, 4])), "f32[8,4] | s32[5]", "", "H0310 slice_sizes"),
        (gather(|g| set(&mut g.slice_sizes, &[1, 5])), "f32[8,4] | s32[5]", "", "H0310 slice_sizes"),
        (gather(|g| set(&mut g.slice_sizes, &[1])), "f32[8,4] | s32[5]", "", "H0309 slice_sizes"),
        (gather(|_| ()), "f32[8,4] | f32[5]", "", "H0303 operand 1"),
        (batched_gather(0), "f32[3,8,4] | s32[3,5]", "", "f32[3,5,4]"),
        (batched_gather(1), "f32[3,8,4] | s32[5,3]", "", "f32[5,3,4]"),
        (batched_gather(0), "f32[3,8,4] | s32[2,5]", "", "H0305 operand 1"),
        (batched_gather(2), "f32[3,8,4] | s32[3,5,1]", "", "H0316 start_indices_batching_dims"),
    ]);
}

#[test]
fn tuples_and_order() {
    let element = |index| Op::GetTupleElement { index };
    check_table([
        (Op::Tuple, "f32[2] | (token[], s32[])", "", "(f32[2], (token[], s32[]))"),
        (Op::Tuple, "", "", "()"),
        (element(1), "(f32[2], s32[])", "", "s32[]"),
        (element(2), "(f32[2], s32[])", "", "H0321 index"),
        (element(-1), "(f32[2], s32[])", "", "H0321 index"),
        (element(0), "f32[2]", "", "H0320 operand 0"),
        (Op::AfterAll, "token[] | token[]", "", "token[]"),
        (Op::AfterAll, "", "", "token[]"),
        (Op::AddDependency, "f32[2] | token[]", "", "f32[2]"),
        (Op::AddDependency, "f32[2] | f32[]", "", "H0322 operand 1"),
        (Op::OptBarrier, "(f32[2], s32[])", "", "(f32[2], s32[])"),
    ]);
}

//! Steps in which devices meet.
//!
//! They stand only where every device comes, equally often and in the same order: in the entry, in calls from there, and
//! in loops, whose number of turns is constant.

use super::Generator;
use super::body::Body;
use hloom_ir::device_list::{AxisRef, IotaTransform, Mesh, MeshDevices, ReplicaGroups};
use hloom_ir::element_type::ElementType::U32;
use hloom_ir::op::{AllGather, AllReduce, Collective, CollectivePermute, Op, ReduceScatter};
use hloom_ir::shape::{ArrayShape, Shape};
use std::sync::Arc;

/// Which devices an operation can name: replicas only, or any device of any replica (`use_global_device_ids`).
#[derive(Clone, Copy, PartialEq)]
enum Ids {
    Replicas,
    Devices,
}

/// Who meets: the attributes, and how many are in a group.
fn meeting(g: &mut Generator<'_, '_>, ids: Ids) -> (Collective, i64) {
    let flattened = ids == Ids::Devices && g.options.partitions > 1 && g.choices.chance(40);
    let total = g.options.replicas * if flattened { g.options.partitions } else { 1 };
    let divisors: Vec<i64> = (1..=total).filter(|d| total % d == 0).collect();
    let size = *g.choices.pick(&divisors);
    let groups = total / size;
    let explicit = |list: Vec<i64>| ReplicaGroups::Explicit(list.chunks(size as usize).map(<[i64]>::to_vec).collect());
    let (replica_groups, size) = match g.choices.below(6) {
        0 if !flattened => (ReplicaGroups::default(), total),
        1 => {
            let devices = IotaTransform::identity(total);
            (ReplicaGroups::Iota { num_groups: groups, group_size: size, devices }, size)
        }
        2 if groups > 1 && size > 1 => {
            let reshape_dims = [size, groups].into_iter().collect();
            let devices = IotaTransform { reshape_dims, transpose_perm: [1, 0].into_iter().collect() }.canonical();
            (ReplicaGroups::Iota { num_groups: groups, group_size: size, devices }, size)
        }
        3 if size > 1 => {
            let axes = vec![("x".into(), groups), ("y".into(), size)];
            let mesh = Arc::new(Mesh { axes, devices: MeshDevices::Iota });
            (ReplicaGroups::MeshAxes { mesh, axes: vec![AxisRef { axis: 1, sub_axis: None }] }, size)
        }
        4 => {
            let mut list: Vec<i64> = (0..total).collect();
            g.choices.shuffle(&mut list);
            (explicit(list), size)
        }
        _ => (explicit((0..total).collect()), size),
    };
    let collective = Collective {
        channel_id: flattened.then(|| g.channel()),
        replica_groups,
        constrain_layout: ids == Ids::Devices && g.choices.chance(5),
        use_global_device_ids: flattened,
        mode: None,
    };
    (collective, size)
}

/// The sum, or another combination, over the devices of a group; at once or begun and ended.
pub(super) fn all_reduce(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |_| true)?;
    let t = shape.element_type;
    let op = g.combiner(t);
    let (collective, _) = meeting(g, Ids::Devices);
    let attributes = Box::new(AllReduce { collective, to_apply: g.scalar_computation(op, t) });
    if g.choices.chance(30) {
        let start = g.add(body, Op::AllReduceStart(attributes), shape.clone(), [x]);
        g.add(body, Op::AllReduceDone, shape, [start]);
    } else if g.choices.chance(30) {
        let result = Shape::tuple([shape.clone().into(), shape.clone().into()]);
        let y = g.value_of(body, &shape);
        let both = g.add(body, Op::AllReduce(attributes), result, [x, y]);
        g.add(body, Op::GetTupleElement { index: 1 }, shape, [both]);
    } else {
        g.add(body, Op::AllReduce(attributes), shape, [x]);
    }
    Some(())
}

/// The arrays of a group, one after another.
pub(super) fn all_gather(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| a.rank() > 0)?;
    let (collective, size) = meeting(g, Ids::Devices);
    let at = g.choices.below(shape.rank());
    let mut dims = shape.dims().to_vec();
    dims[at] *= size;
    if !g.is_small_enough(&dims) {
        return None;
    }
    let attributes = Box::new(AllGather { collective, dimension: at as i64 });
    let result = Shape::array(shape.element_type, dims);
    if g.choices.chance(30) {
        let state = Shape::tuple([shape.into(), result.clone()]);
        let start = g.add(body, Op::AllGatherStart(attributes), state, [x]);
        g.add(body, Op::AllGatherDone, result, [start]);
    } else {
        g.add(body, Op::AllGather(attributes), result, [x]);
    }
    Some(())
}

/// An array that can be cut into `n` equal parts, and the dimension to cut.
fn divisible(
    g: &mut Generator<'_, '_>,
    body: &mut Body,
    n: i64,
) -> (hloom_ir::entity::InstructionId, ArrayShape, usize) {
    let fits = |a: &ArrayShape| a.dims().iter().any(|d| d % n == 0);
    let (x, shape) = g.find_or(body, fits, |g| {
        let t = g.any_type();
        ArrayShape::new(t, [n, 3])
    });
    let at = shape.dims().iter().position(|d| d % n == 0).unwrap_or(0);
    (x, shape, at)
}

/// A combination over a group, of which each device keeps a part.
pub(super) fn reduce_scatter(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (collective, size) = meeting(g, Ids::Devices);
    let (x, shape, at) = divisible(g, body, size);
    let t = shape.element_type;
    let op = g.combiner(t);
    let to_apply = g.scalar_computation(op, t);
    let mut dims = shape.dims().to_vec();
    dims[at] /= size;
    let attributes = ReduceScatter { collective, dimension: at as i64, to_apply };
    g.add(body, Op::ReduceScatter(Box::new(attributes)), Shape::array(t, dims), [x]);
    Some(())
}

/// Every device sends a part to every other: parts of one array, or one array for each.
pub(super) fn all_to_all(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (collective, size) = meeting(g, Ids::Replicas);
    let collective = Box::new(collective);
    if g.choices.chance(50) {
        let (x, shape, at) = divisible(g, body, size);
        g.add(body, Op::AllToAll { collective, split_dimension: Some(at as i64) }, shape, [x]);
    } else {
        let (x, shape) = g.find_static(body, |_| true)?;
        let result = Shape::tuple((0..size).map(|_| shape.clone().into()));
        g.add(body, Op::AllToAll { collective, split_dimension: None }, result, (0..size).map(|_| x));
    }
    Some(())
}

/// Arrays passed from device to device.
pub(super) fn permute(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |_| true)?;
    let by_partition = g.options.partitions > 1 && g.choices.chance(30);
    let n = if by_partition { g.options.partitions } else { g.options.replicas };
    let mut targets: Vec<i64> = (0..n).collect();
    g.choices.shuffle(&mut targets);
    let pairs = (0..n).zip(targets).filter(|_| g.choices.chance(80)).collect();
    let channel_id = by_partition.then(|| g.channel());
    let attributes = Box::new(CollectivePermute { channel_id, source_target_pairs: pairs, slice_sizes: Vec::new() });
    let shape: Shape = shape.into();
    if g.choices.chance(30) {
        let mut parts = vec![shape.clone(), shape.clone()];
        if g.choices.chance(50) {
            parts.extend([Shape::scalar(U32), Shape::scalar(U32)]);
        }
        let start = g.add(body, Op::CollectivePermuteStart(attributes), Shape::tuple(parts), [x]);
        g.add(body, Op::CollectivePermuteDone, shape, [start]);
    } else {
        g.add(body, Op::CollectivePermute(attributes), shape, [x]);
    }
    Some(())
}

/// The first device of every group gives its array to the others.
pub(super) fn broadcast(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |_| true)?;
    let (collective, _) = meeting(g, Ids::Replicas);
    g.add(body, Op::CollectiveBroadcast { collective: Box::new(collective), has_dynamic_root: false }, shape, [x]);
    Some(())
}

/// Which device this is.
pub(super) fn identity(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let op = if g.choices.chance(50) { Op::ReplicaId } else { Op::PartitionId };
    g.add(body, op, Shape::scalar(U32), []);
    Some(())
}

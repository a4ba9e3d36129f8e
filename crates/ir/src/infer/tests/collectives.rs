//! Collectives and transfers.

use super::{check_call, check_table, computation, outcome, with_operands};
use crate::builder::Builder;
use crate::device_list::{AxisRef, IotaTransform, Mesh, MeshDevices, ReplicaGroups};
use crate::op::{AllGather, AllReduce, Collective, CollectivePermute, CollectiveReduce, Op, ReduceScatter, Transfer};
use std::sync::Arc;

fn groups(groups: &[&[i64]]) -> Collective {
    Collective {
        replica_groups: ReplicaGroups::Explicit(groups.iter().map(|g| g.to_vec()).collect()),
        ..Collective::default()
    }
}

fn all_gather(collective: Collective, dimension: i64) -> Op {
    Op::AllGather(Box::new(AllGather { collective, dimension }))
}

#[test]
fn all_gathers() {
    let pair: &[&[i64]] = &[&[0, 1]];
    let start = |dimension| Op::AllGatherStart(Box::new(AllGather { collective: groups(pair), dimension }));
    check_table([
        (all_gather(groups(pair), 0), "f32[2,3]", "", "f32[4,3]"),
        (all_gather(groups(pair), 0), "f32[2,3] | s8[5]", "", "(f32[4,3], s8[10])"),
        (all_gather(groups(pair), 0), "f32[?]", "", "f32[?]"),
        (all_gather(groups(pair), 0), "f32[2,3]", "f32[6,3]", "H0329 replica_groups"),
        (all_gather(groups(&[]), 0), "f32[2,3]", "f32[6,3]", "f32[6,3]"),
        (all_gather(groups(pair), 2), "f32[2,3]", "", "H0307 dimensions"),
        (all_gather(groups(pair), 0), "f32[9223372036854775807]", "", "H0329 dimensions"),
        (all_gather(groups(pair), 0), "(f32[2])", "", "H0302 operand 0"),
        (all_gather(groups(pair), 0), "", "", "H0301 whole"),
        (start(0), "f32[2,3]", "", "(f32[2,3], f32[4,3])"),
        (start(0), "f32[2] | s8[5]", "", "((f32[2], s8[5]), (f32[4], s8[10]))"),
        (start(0), "f32[2]", "(f32[2], f32[4], u32[])", "(f32[2], f32[4], u32[])"),
        (Op::AllGatherDone, "(f32[2,3], f32[4,3])", "", "f32[4,3]"),
        (start(0), "f32[2]", "f32[4]", "f32[4]"),
        (Op::AllGatherDone, "f32[4]", "", "f32[4]"),
        (Op::AllGatherDone, "token[]", "", "H0320 operand 0"),
    ]);
}

#[test]
fn groups_are_counted_in_every_form() {
    let iota = ReplicaGroups::Iota { num_groups: 2, group_size: 4, devices: IotaTransform::identity(8) };
    let mesh = Mesh { axes: vec![("x".into(), 2), ("y".into(), 6)], devices: MeshDevices::Iota };
    let axes = vec![AxisRef { axis: 0, sub_axis: None }, AxisRef { axis: 1, sub_axis: Some((1, 3)) }];
    let mesh = ReplicaGroups::MeshAxes { mesh: Arc::new(mesh), axes };
    let with = |replica_groups| Collective { replica_groups, ..Collective::default() };
    check_table([
        (all_gather(with(iota), 0), "f32[1]", "", "f32[4]"),
        (all_gather(with(mesh), 0), "f32[1]", "", "f32[6]"),
    ]);
    // Without groups the counts of the module decide, by the mode.
    let (mut module, ids) = with_operands("f32[1]");
    (module.config.replica_count, module.config.num_partitions) = (2, 3);
    let mut collective = Collective::default();
    assert_eq!(outcome(&module, &all_gather(collective.clone(), 0), &ids, ""), "f32[2]");
    collective.channel_id = Some(1);
    assert_eq!(outcome(&module, &all_gather(collective.clone(), 0), &ids, ""), "f32[6]");
    collective.replica_groups = ReplicaGroups::Explicit(vec![vec![0], vec![1]]);
    assert_eq!(outcome(&module, &all_gather(collective.clone(), 0), &ids, ""), "f32[3]");
    collective.use_global_device_ids = true;
    assert_eq!(outcome(&module, &all_gather(collective, 0), &ids, ""), "f32[1]");
}

const ADD: &str = "f32[] | f32[]";

#[test]
fn reducing_collectives() {
    let all_reduce = |parameters: &'static str, result: &'static str| {
        move |b: &mut Builder<'_>| {
            Op::AllReduce(Box::new(AllReduce {
                collective: Collective::default(),
                to_apply: computation(b, parameters, result),
            }))
        }
    };
    check_call("f32[<=2]", "", all_reduce(ADD, "f32[]"), "f32[<=2]");
    check_call("f32[2] | bf16[3]", "", all_reduce(ADD, "f32[]"), "(f32[2], bf16[3])");
    check_call("(f32[2])", "", all_reduce(ADD, "f32[]"), "H0302 operand 0");
    check_call("f32[2]", "", all_reduce("f32[]", "f32[]"), "H0318 to_apply");
    check_call("f32[2]", "", all_reduce(ADD, "f32[2]"), "H0319 to_apply");
    check_call("(f32[2], f32[3])", "", |_| Op::AllReduceDone, "(f32[2], f32[3])");
    // The older form, with the operand beside the result.
    let start = |b: &mut Builder<'_>| {
        let to_apply = computation(b, ADD, "f32[]");
        Op::AllReduceStart(Box::new(AllReduce { collective: Collective::default(), to_apply }))
    };
    check_call("f32[2]", "(f32[2], f32[2])", start, "(f32[2], f32[2])");
    check_call("(f32[2], f32[2])", "f32[2]", |_| Op::AllReduceDone, "f32[2]");

    let reduce_scatter = |devices: &'static [&'static [i64]]| {
        move |b: &mut Builder<'_>| {
            let to_apply = computation(b, ADD, "f32[]");
            Op::ReduceScatter(Box::new(ReduceScatter { collective: groups(devices), dimension: 0, to_apply }))
        }
    };
    check_call("f32[6,2]", "", reduce_scatter(&[&[0, 1, 2]]), "f32[2,2]");
    check_call("f32[6,2]", "f32[3,2]", reduce_scatter(&[&[0, 1, 2]]), "H0329 replica_groups");
    check_call("f32[6,2]", "f32[3,2]", reduce_scatter(&[]), "f32[3,2]");
    check_call("f32[7,2]", "", reduce_scatter(&[&[0, 1, 2]]), "H0329 dimensions");
    check_call("f32[]", "", reduce_scatter(&[&[0, 1, 2]]), "H0307 dimensions");

    let collective_reduce = |has_dynamic_root| {
        move |b: &mut Builder<'_>| {
            let to_apply = computation(b, ADD, "f32[]");
            let collective = Collective::default();
            Op::CollectiveReduce(Box::new(CollectiveReduce { collective, has_dynamic_root, to_apply }))
        }
    };
    check_call("f32[2]", "", collective_reduce(false), "f32[2]");
    check_call("f32[2] | f32[3] | s32[2]", "", collective_reduce(true), "(f32[2], f32[3])");
    check_call("f32[2] | f32[3] | s32[3]", "", collective_reduce(true), "H0305 operand 2");
    check_call("s32[1]", "", collective_reduce(true), "H0301 whole");
}

#[test]
fn moving_collectives() {
    let boxed = |devices: &[&[i64]]| Box::new(groups(devices));
    let all_to_all = |devices: &[&[i64]], split_dimension| Op::AllToAll { collective: boxed(devices), split_dimension };
    let ragged = || Op::RaggedAllToAll { collective: boxed(&[]), split_dimension: None };
    let broadcast = |has_dynamic_root| Op::CollectiveBroadcast { collective: boxed(&[]), has_dynamic_root };
    let pairs = |slice_sizes: &[&[i64]]| CollectivePermute {
        channel_id: None,
        source_target_pairs: vec![(0, 1)],
        slice_sizes: slice_sizes.iter().map(|s| s.to_vec()).collect(),
    };
    let permute = |slice_sizes: &[&[i64]]| Op::CollectivePermute(Box::new(pairs(slice_sizes)));
    let permute_start = |slice_sizes: &[&[i64]]| Op::CollectivePermuteStart(Box::new(pairs(slice_sizes)));
    const IN_PLACE: &str = "f32[4,4] | f32[8,4] | (s32[], s32[]) | (s32[], s32[])";
    check_table([
        (all_to_all(&[&[0, 1]], Some(0)), "f32[4,3]", "", "f32[4,3]"),
        (all_to_all(&[&[0, 1]], Some(1)), "f32[4,3]", "", "H0329 dimensions"),
        (all_to_all(&[&[0, 1]], Some(2)), "f32[4,3]", "", "H0307 dimensions"),
        (all_to_all(&[&[0, 1]], None), "f32[4] | f32[4]", "", "(f32[4], f32[4])"),
        (all_to_all(&[&[0, 1]], None), "f32[4] | f32[5]", "", "H0305 operand 1"),
        (all_to_all(&[&[0, 1]], None), "f32[4]", "", "H0329 replica_groups"),
        (ragged(), "f32[8] | f32[9] | s32[2] | s32[2] | s32[2] | s32[2]", "", "f32[9]"),
        (ragged(), "f32[8] | f32[9] | s32[2] | s32[2] | s32[3] | s32[2]", "", "H0305 operand 4"),
        (ragged(), "f32[8] | f32[9] | s32[] | s32[] | s32[] | s32[]", "", "H0306 operand 2"),
        (ragged(), "f32[8] | s32[9] | s32[2] | s32[2] | s32[2] | s32[2]", "", "H0304 operand 1"),
        (broadcast(false), "f32[4]", "", "f32[4]"),
        (broadcast(true), "f32[4] | s32[1]", "", "f32[4]"),
        (broadcast(true), "f32[4] | s32[]", "", "H0305 operand 1"),
        (permute(&[]), "f32[4]", "", "f32[4]"),
        (permute(&[]), "f32[4] | s32[]", "", "(f32[4], s32[])"),
        (permute(&[&[2, 4]]), IN_PLACE, "", "f32[8,4]"),
        (permute(&[&[2, 4]]), "f32[4,4] | f32[8,4] | (s32[]) | (s32[], s32[])", "", "H0305 operand 2"),
        (permute(&[&[2, 4]]), "f32[4,4] | f32[8,4]", "", "H0301 whole"),
        (permute_start(&[]), "f32[4]", "", "(f32[4], f32[4])"),
        (permute_start(&[]), "f32[4]", "(f32[4], f32[4], u32[], u32[])", "(f32[4], f32[4], u32[], u32[])"),
        (permute_start(&[&[2, 4]]), IN_PLACE, "", "(f32[4,4], f32[8,4])"),
        (Op::CollectivePermuteDone, "(f32[4], f32[4], u32[], u32[])", "", "f32[4]"),
    ]);
}

#[test]
fn transfers() {
    let send = || Op::Send(Transfer::default());
    let recv = || Op::Recv(Transfer::default());
    let outfeed = |shape| Op::Outfeed { config: Box::default(), shape: super::shape(shape) };
    let infeed = || Op::Infeed { config: Box::default() };
    check_table([
        (Op::CopyStart { cross_program_prefetch_index: None }, "f32[2]", "", "(f32[2], f32[2], u32[])"),
        (Op::CopyDone, "(f32[2], f32[2], u32[])", "", "f32[2]"),
        (Op::CopyDone, "(f32[2], f32[3], u32[])", "", "H0320 operand 0"),
        (send(), "f32[2] | token[]", "", "(f32[2], u32[], token[])"),
        (send(), "f32[2] | f32[]", "", "H0322 operand 1"),
        (Op::SendDone(Transfer::default()), "(f32[2], u32[], token[])", "", "token[]"),
        (Op::SendDone(Transfer::default()), "(f32[2], token[])", "", "H0320 operand 0"),
        (recv(), "token[]", "(f32[2], u32[], token[])", "(f32[2], u32[], token[])"),
        (recv(), "token[]", "", "H0312 shape"),
        (recv(), "token[]", "f32[2]", "H0313 shape"),
        (Op::RecvDone(Transfer::default()), "(f32[2], u32[], token[])", "", "(f32[2], token[])"),
        (infeed(), "token[]", "((f32[2], s32[]), token[])", "((f32[2], s32[]), token[])"),
        (infeed(), "token[]", "f32[2]", "H0313 shape"),
        (infeed(), "f32[]", "(f32[2], token[])", "H0322 operand 0"),
        (outfeed("f32[2]"), "f32[2] | token[]", "", "token[]"),
        (outfeed("f32[3]"), "f32[2] | token[]", "", "H0305 outfeed_shape"),
    ]);
}

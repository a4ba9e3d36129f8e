//! Operations that call computations.

use super::{check_call, computation};
use crate::attributes::{FusionKind, ScatterDimensionNumbers, Window, WindowDim};
use crate::builder::Builder;
use crate::op::{AsyncStart, CustomCall, Fusion, Op, Scan, Scatter};

fn reduce<'a>(parameters: &'a str, result: &'a str, dimensions: &'a [i64]) -> impl FnOnce(&mut Builder<'_>) -> Op + 'a {
    move |b| Op::Reduce { dimensions: dimensions.into(), to_apply: computation(b, parameters, result) }
}

const ADD: &str = "f32[] | f32[]";

#[test]
fn reduces() {
    check_call("f32[2,<=3] | f32[]", "", reduce(ADD, "f32[]", &[0]), "f32[<=3]");
    check_call("f32[2,3] | f32[]", "", reduce(ADD, "f32[]", &[1, 0]), "f32[]");
    check_call("f32[2,3] | f32[]", "", reduce(ADD, "f32[]", &[]), "f32[2,3]");
    check_call("bf16[2] | f32[]", "", reduce(ADD, "f32[]", &[0]), "f32[]");
    let two = "f32[] | s32[] | f32[] | s32[]";
    check_call("f32[2,3] | s32[2,3] | f32[] | s32[]", "", reduce(two, "(f32[], s32[])", &[0]), "(f32[3], s32[3])");
    check_call("f32[2,3] | s32[2,4] | f32[] | s32[]", "", reduce(two, "(f32[], s32[])", &[0]), "H0305 operand 1");
    check_call("f32[2,3] | s32[2,3] | f32[] | s32[]", "", reduce(two, "f32[]", &[0]), "H0319 to_apply");
    check_call("f32[2] | f32[] | f32[]", "", reduce(ADD, "f32[]", &[0]), "H0301 whole");
    check_call("f32[2] | f32[1]", "", reduce(ADD, "f32[]", &[0]), "H0323 operand 1");
    check_call("f32[2,3] | f32[]", "", reduce(ADD, "f32[]", &[2]), "H0307 dimensions");
    check_call("f32[2,3] | f32[]", "", reduce(ADD, "f32[]", &[0, 0]), "H0308 dimensions");
    check_call("f32[2] | f32[]", "", reduce("f32[]", "f32[]", &[0]), "H0318 to_apply");
    check_call("f32[2] | f32[]", "", reduce(ADD, "s32[]", &[0]), "H0319 to_apply");
    check_call("f32[2] | f32[]", "", reduce(ADD, "f32[2]", &[0]), "H0319 to_apply");
    check_call("f32[2] | f32[]", "", reduce("f32[] | s32[]", "f32[]", &[0]), "H0318 to_apply");
    check_call("f32[2] | f32[]", "", reduce("bf16[] | f32[]", "f32[]", &[0]), "H0318 to_apply");
}

fn window_of(sizes: &[i64]) -> Box<Window> {
    Box::new(Window { dims: sizes.iter().map(|&s| WindowDim::of_size(s)).collect() })
}

#[test]
fn windows() {
    let reduce_window = |sizes: &'static [i64], parameters: &'static str, result: &'static str| {
        move |b: &mut Builder<'_>| Op::ReduceWindow {
            window: window_of(sizes),
            to_apply: computation(b, parameters, result),
        }
    };
    check_call("f32[4,<=6] | f32[]", "", reduce_window(&[2, 1], ADD, "f32[]"), "f32[3,<=6]");
    check_call("f32[4,6] | f32[]", "", reduce_window(&[2], ADD, "f32[]"), "H0309 window");
    check_call("f32[4] | f32[]", "", reduce_window(&[0], ADD, "f32[]"), "H0315 window");
    check_call("f32[4] | f32[]", "", reduce_window(&[5], ADD, "f32[]"), "f32[0]");
    let two = "f32[] | s32[] | f32[] | s32[]";
    let both = reduce_window(&[2], two, "(f32[], s32[])");
    check_call("f32[4] | s32[4] | f32[] | s32[]", "", both, "(f32[3], s32[3])");

    let select_and_scatter = |select_result: &'static str| {
        move |b: &mut Builder<'_>| Op::SelectAndScatter {
            window: window_of(&[2]),
            select: computation(b, ADD, select_result),
            scatter: computation(b, ADD, "f32[]"),
        }
    };
    check_call("f32[4] | f32[3] | f32[]", "", select_and_scatter("pred[]"), "f32[4]");
    check_call("f32[4] | f32[4] | f32[]", "", select_and_scatter("pred[]"), "H0305 operand 1");
    check_call("f32[4] | s32[3] | f32[]", "", select_and_scatter("pred[]"), "H0318 scatter");
    check_call("f32[4] | f32[3] | f32[]", "", select_and_scatter("f32[]"), "H0319 select");
}

#[test]
fn sort_map_and_topk() {
    let sort = |dimension, parameters: &'static str, result: &'static str| {
        move |b: &mut Builder<'_>| Op::Sort {
            dimension,
            is_stable: false,
            to_apply: computation(b, parameters, result),
        }
    };
    check_call("f32[4,3]", "", sort(1, ADD, "pred[]"), "f32[4,3]");
    let two = "f32[] | f32[] | s32[] | s32[]";
    check_call("f32[4] | s32[4]", "", sort(0, two, "pred[]"), "(f32[4], s32[4])");
    check_call("f32[4] | s32[3]", "", sort(0, two, "pred[]"), "H0305 operand 1");
    check_call("f32[4]", "", sort(1, ADD, "pred[]"), "H0307 dimensions");
    check_call("f32[4]", "", sort(0, ADD, "f32[]"), "H0319 to_apply");
    check_call("f32[4]", "", sort(0, "f32[] | s32[]", "pred[]"), "H0318 to_apply");
    check_call("f32[4] | s32[4]", "", sort(0, ADD, "pred[]"), "H0318 to_apply");

    let map = |dimensions: &'static [i64], parameters: &'static str, result: &'static str| {
        move |b: &mut Builder<'_>| Op::Map {
            dimensions: dimensions.into(),
            to_apply: computation(b, parameters, result),
        }
    };
    check_call("f32[2,<=3] | s32[2,3]", "", map(&[0, 1], "f32[] | s32[]", "pred[]"), "pred[2,<=3]");
    check_call("f32[2,3] | s32[2]", "", map(&[0, 1], "f32[] | s32[]", "pred[]"), "H0305 operand 1");
    check_call("f32[2,3]", "", map(&[1, 0], "f32[]", "f32[]"), "H0316 dimensions");
    check_call("f32[2,3]", "", map(&[0, 1], "s32[]", "f32[]"), "H0318 to_apply");
    check_call("f32[2,3]", "", map(&[0, 1], "f32[]", "f32[1]"), "H0319 to_apply");

    let top_k = |k| move |_: &mut Builder<'_>| Op::TopK { k, largest: true, is_stable: true };
    check_call("bf16[<=2,9]", "", top_k(4), "(bf16[<=2,4], s32[<=2,4])");
    check_call("bf16[2,9]", "", top_k(10), "H0310 k");
    check_call("bf16[2,9]", "", top_k(-1), "H0310 k");
    check_call("bf16[]", "", top_k(1), "H0306 operand 0");
}

#[test]
fn scatters() {
    let scatter = |parameters: &'static str, result: &'static str, inserted: &'static [i64]| {
        move |b: &mut Builder<'_>| {
            Op::Scatter(Box::new(Scatter {
                dims: ScatterDimensionNumbers {
                    update_window_dims: [1].into_iter().collect(),
                    inserted_window_dims: inserted.into(),
                    scatter_dims_to_operand_dims: [0].into_iter().collect(),
                    index_vector_dim: 1,
                    ..ScatterDimensionNumbers::default()
                },
                indices_are_sorted: false,
                unique_indices: false,
                to_apply: computation(b, parameters, result),
            }))
        }
    };
    check_call("f32[8,4] | s32[5] | f32[5,4]", "", scatter(ADD, "f32[]", &[0]), "f32[8,4]");
    check_call("f32[8,4] | s32[5,1] | f32[5,3]", "", scatter(ADD, "f32[]", &[0]), "f32[8,4]");
    let two = "f32[] | s32[] | f32[] | s32[]";
    check_call(
        "f32[8,4] | s32[8,4] | s32[5] | f32[5,4] | s32[5,4]",
        "",
        scatter(two, "(f32[], s32[])", &[0]),
        "(f32[8,4], s32[8,4])",
    );
    check_call("f32[8,4] | s32[5] | f32[5,5]", "", scatter(ADD, "f32[]", &[0]), "H0305 operand 2");
    check_call("f32[8,4] | s32[5] | f32[6,4]", "", scatter(ADD, "f32[]", &[0]), "H0305 operand 2");
    check_call("f32[8,4] | s32[5] | f32[5,4,1]", "", scatter(ADD, "f32[]", &[0]), "H0305 operand 2");
    check_call("f32[8,4] | f32[5] | f32[5,4]", "", scatter(ADD, "f32[]", &[0]), "H0303 operand 1");
    check_call("f32[8,4] | s32[5] | f32[5,4]", "", scatter(ADD, "f32[]", &[2]), "H0307 inserted_window_dims");
    check_call("f32[8,4] | s32[5] | f32[5,4]", "", scatter(ADD, "f32[]", &[]), "H0309 update_window_dims");
    check_call("f32[8,4] | s32[5] | f32[5,4]", "", scatter(ADD, "s32[]", &[0]), "H0319 to_apply");
    check_call("f32[8,4] | s32[5]", "", scatter(ADD, "f32[]", &[0]), "H0301 whole");
}

#[test]
fn scans() {
    let scan = |num_carries, parameters: &'static str, result: &'static str| {
        move |b: &mut Builder<'_>| {
            Op::Scan(Box::new(Scan {
                dimension: 0,
                num_carries,
                is_reverse: false,
                is_associative: None,
                to_apply: computation(b, parameters, result),
            }))
        }
    };
    let step = "f32[3] | f32[3]";
    check_call("f32[10,3] | f32[3]", "", scan(1, step, "(f32[3], f32[3])"), "(f32[10,3], f32[3])");
    check_call("f32[<=10,3] | f32[3]", "", scan(1, step, "(f32[3], f32[3])"), "(f32[<=10,3], f32[3])");
    check_call("f32[10,3] | f32[3]", "", scan(1, step, "f32[3]"), "f32[3]");
    check_call("f32[10,3] | f32[3]", "", scan(3, step, "(f32[3], f32[3])"), "H0324 num_carries");
    check_call("f32[10,3] | f32[3]", "", scan(-1, step, "(f32[3], f32[3])"), "H0324 num_carries");
    check_call("f32[10,3] | f32[3]", "", scan(1, step, "(f32[3], f32[4])"), "H0319 to_apply");
    check_call("f32[10,3] | f32[3]", "", scan(1, "f32[4] | f32[3]", "(f32[3], f32[3])"), "H0318 to_apply");
    check_call("f32[10,3] | f32[4]", "", scan(1, step, "(f32[3], f32[3])"), "H0318 to_apply");
    check_call("f32[] | f32[3]", "", scan(1, step, "(f32[3], f32[3])"), "H0307 dimensions");
    check_call("f32[10,3]", "", scan(1, step, "(f32[3], f32[3])"), "H0318 to_apply");
}

#[test]
fn an_empty_computation_returns_nothing() {
    let (mut module, ids) = super::with_operands("");
    let to_apply = module.add_computation("nothing");
    let found = super::outcome(&module, &Op::Call { to_apply, is_composite: false }, &ids, "");
    assert_eq!(found, "H0327 to_apply");
}

#[test]
fn loops_branches_and_calls() {
    let while_loop = |condition: &'static str, body: (&'static str, &'static str)| {
        move |b: &mut Builder<'_>| Op::While {
            condition: computation(b, "(s32[], f32[2])", condition),
            body: computation(b, body.0, body.1),
        }
    };
    let state = "(s32[], f32[2])";
    check_call(state, "", while_loop("pred[]", (state, state)), state);
    check_call(state, "", while_loop("s32[]", (state, state)), "H0319 condition");
    check_call(state, "", while_loop("pred[]", (state, "(s32[], f32[3])")), "H0319 body");
    check_call(state, "", while_loop("pred[]", ("(s32[])", state)), "H0318 body");
    check_call("(s32[])", "", while_loop("pred[]", (state, state)), "H0318 condition");

    let conditional = |branches: &'static [(&'static str, &'static str)]| {
        move |b: &mut Builder<'_>| Op::Conditional {
            branches: branches.iter().map(|(p, r)| computation(b, p, r)).collect(),
        }
    };
    let two: &[_] = &[("f32[2]", "s32[4]"), ("f32[3]", "s32[<=4]")];
    check_call("pred[] | f32[2] | f32[3]", "", conditional(two), "s32[<=4]");
    check_call("s32[] | f32[2] | f32[3]", "", conditional(two), "s32[<=4]");
    check_call("pred[] | f32[2] | f32[2]", "", conditional(two), "H0318 false_computation");
    check_call("f32[] | f32[2] | f32[3]", "", conditional(two), "H0303 operand 0");
    check_call("pred[1] | f32[2] | f32[3]", "", conditional(two), "H0323 operand 0");
    check_call("pred[] | f32[2]", "", conditional(two), "H0301 whole");
    check_call("pred[] | f32[2]", "", conditional(&two[..1]), "H0309 branch_computations");
    let different: &[_] = &[("f32[2]", "s32[]"), ("f32[2]", "s32[1]")];
    check_call("s32[] | f32[2] | f32[2]", "", conditional(different), "H0319 branch_computations");

    let call = |p: &'static str| {
        move |b: &mut Builder<'_>| Op::Call { to_apply: computation(b, p, "f32[7]"), is_composite: false }
    };
    check_call("f32[2] | s32[]", "", call("f32[2] | s32[]"), "f32[7]");
    check_call("f32[2] | s32[]", "", call("f32[2]"), "H0318 to_apply");
    check_call("f32[2]", "", call("f32[3]"), "H0318 to_apply");
    let fusion = |p: &'static str| {
        move |b: &mut Builder<'_>| {
            let calls = computation(b, p, "(f32[7], s32[])");
            Op::Fusion(Box::new(Fusion { kind: FusionKind::Loop, calls, output_operand_aliasing: Vec::new() }))
        }
    };
    check_call("f32[2]", "", fusion("f32[2]"), "(f32[7], s32[])");
    check_call("f32[2]", "", fusion("bf16[2]"), "H0318 calls");

    let custom = |layouts: Option<&'static str>| {
        move |_: &mut Builder<'_>| {
            let operand_layouts = layouts.map(|l| vec![super::shape(l)]);
            Op::CustomCall(Box::new(CustomCall { operand_layouts, ..CustomCall::new("f") }))
        }
    };
    check_call("f32[2]", "(opaque[], token[])", custom(None), "(opaque[], token[])");
    check_call("f32[2]", "", custom(None), "H0312 shape");
    check_call("f32[2]", "f32[]", custom(Some("f32[2]")), "f32[]");
    check_call("f32[2]", "f32[]", custom(Some("f32[3]")), "H0305 operand_layout_constraints");
    check_call("f32[2] | f32[2]", "f32[]", custom(Some("f32[2]")), "H0309 operand_layout_constraints");
}

#[test]
fn asynchronous_calls() {
    let start = |b: &mut Builder<'_>| {
        let calls = computation(b, "f32[2] | s32[]", "f32[3]");
        Op::AsyncStart(Box::new(AsyncStart { calls, execution_thread: None, output_operand_aliasing: Vec::new() }))
    };
    let whole = "((f32[2], s32[]), f32[3], u32[])";
    check_call("f32[2] | s32[]", "", start, "((f32[2], s32[]), f32[3])");
    check_call("f32[2] | s32[]", whole, start, whole);
    check_call("f32[2]", "((f32[2]), f32[3])", start, "((f32[2]), f32[3])");
    check_call("f32[2] | s32[]", "((f32[2], s32[]), f32[4])", start, "H0320 shape");
    check_call("f32[2] | s32[]", "(f32[2], f32[3])", start, "H0320 shape");
    check_call("f32[2]", "((f32[2], s32[]), f32[3])", start, "H0301 whole");
    check_call("f32[3] | s32[]", "((f32[3], s32[]), f32[3])", start, "H0318 calls");
    let update = |_: &mut Builder<'_>| Op::AsyncUpdate { output_operand_aliasing: Vec::new() };
    check_call(whole, "", update, whole);
    check_call("((f32[2]), f32[3]) | s32[]", "((f32[2], s32[]), f32[3])", update, "((f32[2], s32[]), f32[3])");
    check_call("((f32[2]), f32[3]) | s32[]", "((f32[2], s64[]), f32[3])", update, "H0313 shape");
    check_call(whole, "", |_| Op::AsyncDone, "f32[3]");
    check_call("(f32[3])", "", |_| Op::AsyncDone, "H0321 operand 0");
    check_call("f32[3]", "", |_| Op::AsyncDone, "H0320 operand 0");
}

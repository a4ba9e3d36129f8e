//! What single operations send when they are cut, and that they still compute what one device does.

mod support;

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::module::Module;
use hloom_ir::{Op, Shape};
use hloom_spmd::partition::custom::{CallToPartition, CustomPartition, CustomPartitioner};

/// The collectives of a program, with the shapes of their results, in order.
fn collectives(module: &Module) -> Vec<String> {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    let meets = |op: &Op| op.collective().is_some() || matches!(op, Op::CollectivePermute(_));
    all.filter(|&&i| meets(&module[i].op))
        .map(|&i| format!("{} {}", module[i].op.opcode().name(), module[i].shape.without_layout()))
        .collect()
}

/// Partitions a program for `devices`, compares its results with those of one device, and returns its collectives.
fn sent(devices: i64, text: &str) -> Vec<String> {
    let module = support::read(text);
    let made = hloom_spmd::partition(&module, devices).unwrap_or_else(|d| panic!("{}: {text}", d.message));
    support::check(&module, &made, 3).unwrap_or_else(|e| panic!("{e}: {text}"));
    collectives(&made.module)
}

#[test]
fn slices_at_indices_that_count_are_taken_where_they_are() {
    let text = "HloModule m\nENTRY e {
        x = f32[8,6,3] parameter(0), sharding={devices=[4,1,1]<=[4]}
        i = s32[8,1] iota(), iota_dimension=0, sharding={devices=[4,1]<=[4]}
        j = s32[8,1] parameter(1), sharding={devices=[4,1]<=[4]}
        ij = s32[8,2] concatenate(i, j), dimensions={1}, sharding={devices=[4,1]<=[4]}
        ROOT g = f32[8,3] gather(x, ij), offset_dims={1}, collapsed_slice_dims={0,1}, start_index_map={0,1},
          index_vector_dim=1, slice_sizes={1,1,3}, sharding={devices=[4,1]<=[4]}
      }";
    assert_eq!(sent(4, text), [""; 0]);
    // Uneven, and with the count in the second place.
    let text = "HloModule m\nENTRY e {
        x = f32[5,7,3] parameter(0), sharding={devices=[1,4,1]<=[4]}
        i = s32[7,1] iota(), iota_dimension=0, sharding={devices=[4,1]<=[4]}
        j = s32[7,1] parameter(1), sharding={devices=[4,1]<=[4]}
        ji = s32[7,2] concatenate(j, i), dimensions={1}, sharding={devices=[4,1]<=[4]}
        ROOT g = f32[7,3] gather(x, ji), offset_dims={1}, collapsed_slice_dims={0,1}, start_index_map={0,1},
          index_vector_dim=1, slice_sizes={1,1,3}, sharding={devices=[4,1]<=[4]}
      }";
    assert_eq!(sent(4, text), [""; 0]);
}

#[test]
fn an_update_and_a_slice_touch_a_window_of_the_shard() {
    // Starts within a shard, across the edge of two and of three, at the ends, and beyond them; the last shard is not full.
    for (size, start) in (1..=5).flat_map(|size| [-3, 0, 3, 4, 9, 15, 17, 99].map(|start| (size, start))) {
        let text = format!(
            "HloModule m\nENTRY e {{
              x = f32[3,18] parameter(0), sharding={{devices=[1,4]<=[4]}}
              u = f32[3,{size}] parameter(1), sharding={{replicated}}
              zero = s32[] constant(0)
              i = s32[] constant({start})
              y = f32[3,18] dynamic-update-slice(x, u, zero, i), sharding={{devices=[1,4]<=[4]}}
              s = f32[3,{size}] dynamic-slice(x, zero, i), dynamic_slice_sizes={{3,{size}}}, sharding={{replicated}}
              ROOT r = (f32[3,18], f32[3,{size}]) tuple(y, s),
                sharding={{{{devices=[1,4]<=[4]}}, {{replicated}}}}
            }}"
        );
        let source = support::read(&text);
        let made = hloom_spmd::partition(&source, 4).expect("it is partitioned");
        support::check(&source, &made, 7).unwrap_or_else(|e| panic!("{size} from {start}: {e}"));
        let module = &made.module;
        let all = module.computations().iter().flat_map(|&c| module[c].instructions());
        // A shard has five columns, and nothing is padded for what is one column wide.
        let widest = all.filter_map(|&i| module[i].shape.as_array()?.dims().get(1).copied()).max();
        assert!(size != 1 || widest == Some(5), "{widest:?}");
    }
}

#[test]
fn a_rotation_sends_what_crosses_the_edges_of_shards() {
    let program = |amount: i64| {
        format!(
            "HloModule m\nENTRY e {{
              x = f32[3,12] parameter(0), sharding={{devices=[1,4]<=[4]}}
              ROOT r = f32[3,12] custom-call(x), custom_call_target=\"_SPMDInternalOp_RotateRight\",
                backend_config=\"dimension=1,amount={amount}\", sharding={{devices=[1,4]<=[4]}}
            }}"
        )
    };
    let made = hloom_spmd::partition(&support::read(&program(2)), 4).expect("it is partitioned");
    assert_eq!(collectives(&made.module), ["collective-permute f32[3,2]"]);
    // By whole shards nothing is cut.
    let made = hloom_spmd::partition(&support::read(&program(6)), 4).expect("it is partitioned");
    assert_eq!(collectives(&made.module), ["collective-permute f32[3,3]"]);
}

#[test]
fn shards_that_do_not_nest_are_cut_anew_by_sending_pieces() {
    let text = "HloModule m\nENTRY e {
        x = f32[6,3] parameter(0), sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}
        ROOT y = f32[6,3] copy(x), sharding={devices=[4,1,2]<=[8] last_tile_dim_replicate}
      }";
    assert_eq!(sent(8, text), ["collective-permute f32[1,3]"]);
    let text = "HloModule m\nENTRY e {
        x = f32[24] parameter(0), sharding={devices=[4]<=[4]}
        ROOT y = f32[6,4] reshape(x), sharding={devices=[4,1]<=[4]}
      }";
    let made = sent(4, text);
    assert!(!made.is_empty() && made.iter().all(|c| c.starts_with("collective-permute")), "{made:?}");
}

#[test]
fn an_axis_moves_to_a_dimension_that_it_does_not_divide() {
    let text = "HloModule m\nENTRY e {
        x = f32[4,7] parameter(0), sharding={devices=[2,1]<=[2]}
        ROOT y = f32[4,7] copy(x), sharding={devices=[1,2]<=[2]}
      }";
    assert_eq!(sent(2, text), ["all-to-all f32[2,8]"]);
}

#[test]
fn a_product_written_as_a_convolution_is_cut_as_one() {
    // b and g are dimensions of either side alone, w is summed over.
    let text = "HloModule m\nENTRY e {
        x = f32[2,8,1,4] parameter(0), sharding={devices=[1,2,1,1]<=[2]}
        y = f32[4,6,8,3] parameter(1), sharding={devices=[1,1,2,1]<=[2]}
        ROOT z = f32[2,1,6,3] convolution(x, y), window={size=8x6 pad=0_0x5_5 rhs_reversal=0x1}, dim_labels=b01f_i10o->b01f,
          sharding={replicated}
      }";
    assert_eq!(sent(2, text), ["all-reduce f32[2,1,6,3]"]);
    let text = text.replace("devices=[1,2,1,1]<=[2]", "replicated").replace("[1,1,2,1]<=[2]", "[1,2,1,1]<=[2]");
    let text = text.replace("sharding={replicated}\n      }", "sharding={devices=[1,1,2,1]<=[2]}\n      }");
    assert_eq!(sent(2, &text), [""; 0], "the kernel's own dimension stays where it is");
}

#[test]
fn what_has_no_elements_is_made_anew() {
    let text = "HloModule m\nENTRY e {
        x = f32[4,4] parameter(0), sharding={devices=[2,1]<=[2]}
        ROOT y = f32[0,4] slice(x), slice={[0:0], [0:4]}, sharding={replicated}
      }";
    assert_eq!(sent(2, text), [""; 0]);
}

#[test]
fn devices_that_have_the_same_tile_may_be_listed_in_any_order() {
    let text = "HloModule m\nENTRY e {
        x = f32[4,6] parameter(0), sharding={devices=[1,2,2]1,3,0,2 last_tile_dim_replicate}
        y = f32[6,8] parameter(1), sharding={devices=[2,2]3,1,2,0}
        ROOT z = f32[4,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0},
          sharding={devices=[1,2,2]2,3,0,1 last_tile_dim_replicate}
      }";
    assert_eq!(sent(4, text), ["all-reduce f32[4,4]"]);
}

#[test]
fn a_call_with_effects_is_made_by_one_device() {
    let text = "HloModule m\nENTRY e {
        x = f32[4] parameter(0), sharding={devices=[2]<=[2]}
        ROOT y = f32[4] custom-call(x), custom_call_target=\"f\", sharding={maximal device=1}
      }";
    let made = hloom_spmd::partition(&support::read(text), 2).expect("it is partitioned");
    assert_eq!(collectives(&made.module), ["all-gather f32[4]", "collective-broadcast f32[4]"]);
    let entry = made.module.entry().expect("there is one");
    let conditional =
        made.module[entry].instructions().iter().any(|&i| matches!(made.module[i].op, Op::Conditional { .. }));
    assert!(conditional, "only one device makes the call");
}

/// Knows calls to `rows`: of an array cut along its first dimension.
struct Rows;

impl CustomPartitioner for Rows {
    fn partition(&self, call: &CallToPartition<'_>) -> Result<Option<CustomPartition>, Diagnostic> {
        if call.target != "rows" {
            return Ok(None);
        }
        let Some(array) = call.operands[0].0.as_array() else { return Ok(None) };
        let (rows, columns) = (array.dims()[0] / 2, array.dims()[1]);
        let program = support::read(&format!(
            "HloModule rows\nENTRY e {{ x = f32[{rows},{columns}] parameter(0) ROOT y = f32[{rows},{columns}] negate(x) }}"
        ));
        let tiles = support::sharding("{devices=[2,1]<=[2]}");
        Ok(Some(CustomPartition { program, operands: vec![tiles.clone()], results: vec![tiles] }))
    }
}

#[test]
fn a_partitioner_of_the_caller_is_asked_about_calls() {
    let text = "HloModule m\nENTRY e {
        x = f32[4,6] parameter(0), sharding={devices=[1,2]<=[2]}
        ROOT y = f32[4,6] custom-call(x), custom_call_target=\"rows\", sharding={devices=[2,1]<=[2]}
      }";
    let made = hloom_spmd::partition_with(&support::read(text), 2, &Rows).expect("it is partitioned");
    assert_eq!(collectives(&made.module), ["all-to-all f32[4,3]"]);
    let has = |op: fn(&Op) -> bool| {
        let mut all = made.module.computations().iter().flat_map(|&c| made.module[c].instructions());
        all.any(|&i| op(&made.module[i].op))
    };
    assert!(has(|op| matches!(op, Op::Call { .. })), "what it answers is called");
    assert!(!has(|op| matches!(op, Op::CustomCall(_))), "the call itself is gone");
    let entry = made.module.entry().expect("there is one");
    let root = made.module.root(entry).expect("it has one");
    assert_eq!(made.module[root].shape.without_layout(), Shape::array(hloom_ir::ElementType::F32, [2, 6]));
}

#[test]
fn shards_in_an_order_of_devices_that_the_grid_does_not_have_change_places() {
    let text = "HloModule m\nENTRY e {
        x = f32[8,2] parameter(0), sharding={devices=[2,2]3,2,1,0}
        y = f32[8,2] parameter(1), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
        z = f32[8,2] add(x, y), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
        w = f32[8,2] negate(y), sharding={devices=[4,1]<=[4]}
        ROOT t = (f32[8,2], f32[8,2]) tuple(z, w), sharding={{devices=[1,2,2]1,3,0,2 last_tile_dim_replicate},
          {devices=[4,1]<=[4]}}
      }";
    let module = support::read(text);
    let made = hloom_spmd::partition(&module, 4).expect("it is partitioned");
    support::check(&module, &made, 3).unwrap_or_else(|e| panic!("{e}"));
    let told = |placement: &hloom_spmd::partition::placement::Placement| {
        let sharding = hloom_ir::sharding::Sharding::leaf(placement.to_sharding(&made.axes));
        hloom_formats::hlo_text::print_sharding(&sharding)
    };
    assert_eq!(told(&made.parameters[0][0]), "{devices=[2,2]3,2,1,0}");
    assert_eq!(told(&made.results[0]), "{devices=[1,2,2]1,3,0,2 last_tile_dim_replicate}");
}

#[test]
fn a_loop_carries_the_parts_of_sums_that_the_program_leaves_to_be_made() {
    let text = "HloModule m\n
      condition {
        s = (s32[], f32[4,4], f32[2,8,4]) parameter(0)
        i = s32[] get-tuple-element(s), index=0
        n = s32[] constant(2)
        ROOT c = pred[] compare(i, n), direction=LT
      }
      body {
        s = (s32[], f32[4,4], f32[2,8,4]) parameter(0)
        i = s32[] get-tuple-element(s), index=0
        one = s32[] constant(1)
        next = s32[] add(i, one)
        total = f32[4,4] get-tuple-element(s), index=1
        xs = f32[2,8,4] get-tuple-element(s), index=2
        zero = s32[] constant(0)
        row = f32[1,8,4] dynamic-slice(xs, i, zero, zero), dynamic_slice_sizes={1,8,4},
          sharding={mesh['x'=2], [{}, {'x'}, {}]}
        x = f32[8,4] reshape(row), sharding={mesh['x'=2], [{'x'}, {}]}
        d = f32[4,4] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0},
          sharding={mesh['x'=2], [{}, {}], unreduced={'x'}}
        sum = f32[4,4] add(total, d), sharding={mesh['x'=2], [{}, {}], unreduced={'x'}}
        left = f32[4,4] custom-call(sum), custom_call_target=\"Sharding\",
          sharding={mesh['x'=2], [{}, {}], unreduced={'x'}}
        ROOT t = (s32[], f32[4,4], f32[2,8,4]) tuple(next, left, xs)
      }
      ENTRY e {
        xs = f32[2,8,4] parameter(0), sharding={mesh['x'=2], [{}, {'x'}, {}]}
        zero = s32[] constant(0)
        none = f32[] constant(0)
        nothing = f32[4,4] broadcast(none), dimensions={}
        s = (s32[], f32[4,4], f32[2,8,4]) tuple(zero, nothing, xs)
        w = (s32[], f32[4,4], f32[2,8,4]) while(s), condition=condition, body=body,
          sharding={{mesh['x'=2], []}, {mesh['x'=2], [{}, {}]}, {mesh['x'=2], [{}, {'x'}, {}]}}
        total = f32[4,4] get-tuple-element(w), index=1
        ROOT r = f32[4,4] custom-call(total), custom_call_target=\"Sharding\", sharding={mesh['x'=2], [{}, {}]}
      }";
    let module = support::read(text);
    let made = hloom_spmd::partition(&module, 2).unwrap_or_else(|d| panic!("{}", d.message));
    support::check(&module, &made, 3).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(collectives(&made.module), ["all-reduce f32[4,4]"]);
    let entry = made.module.entry().expect("it has an entry");
    let in_entry = made.module[entry].instructions().iter().any(|&i| matches!(made.module[i].op, Op::AllReduce(_)));
    assert!(in_entry, "the sum is made in the loop");
}

#[test]
fn one_permute_does_where_slicing_another_dimension_makes_shards_as_many() {
    let text = "HloModule m\nENTRY e {
        x = f32[16,16] parameter(0), sharding={mesh['x'=2,'y'=2], [{'x'}, {}]}
        ROOT y = f32[16,16] copy(x), sharding={mesh['x'=2,'y'=2], [{'y'}, {'x'}]}
      }";
    assert_eq!(sent(4, text), ["collective-permute f32[8,8]"]);
}

#[test]
fn idle_axes_share_a_dot_whose_operands_want_the_same_axis() {
    let text = "HloModule m\nENTRY e {
        x = f32[16,32] parameter(0), sharding={mesh['x'=2,'y'=2,'z'=2], [{}, {'x'}]}
        y = f32[32,24] parameter(1), sharding={mesh['x'=2,'y'=2,'z'=2], [{}, {'x'}]}
        ROOT d = f32[16,24] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0},
          sharding={mesh['x'=2,'y'=2,'z'=2], [{}, {'x'}]}
      }";
    let module = support::read(text);
    let made = hloom_spmd::partition(&module, 8).expect("it is partitioned");
    support::check(&module, &made, 3).unwrap_or_else(|e| panic!("{e}"));
    let all = made.module.computations().iter().flat_map(|&c| made.module[c].instructions());
    let dot = all.copied().find(|&i| matches!(made.module[i].op, Op::Dot(_))).expect("there is a dot");
    let lhs = made.module[dot].operands()[0];
    let elements = |i: hloom_ir::entity::InstructionId| {
        made.module[i].shape.as_array().and_then(|a| a.element_count()).unwrap_or(0)
    };
    let depth = made.module[lhs].shape.as_array().map_or(0, |a| a.dims()[1]);
    assert_eq!(elements(dot) * depth, 16 * 24 * 32 / 8, "every device has an eighth of the work");
}

#[test]
fn results_in_other_orders_of_devices_are_computed_where_they_are_wanted() {
    // A mirrored array on mirrored devices: nothing moves but what uneven shards lack.
    let reverse = |n: i64, order: &str| {
        format!(
            "HloModule m\nENTRY e {{
              x = f32[{n}] parameter(0), sharding={{devices=[4]<=[4]}}
              ROOT r = f32[{n}] reverse(x), dimensions={{0}}, sharding={{devices=[4]{order}}}
            }}"
        )
    };
    assert_eq!(sent(4, &reverse(12, "3,2,1,0")), [""; 0]);
    assert_eq!(sent(4, &reverse(11, "3,2,1,0")), ["collective-permute f32[1]"]);
    assert_eq!(sent(4, &reverse(12, "0,1,2,3")), ["collective-permute f32[3]"]);
    assert_eq!(sent(4, &reverse(12, "2,3,0,1")), ["collective-permute f32[3]"]);
    // What every device can compute is computed for the shard that is wanted there.
    let text = "HloModule m\nENTRY e {
        x = f32[2,8] parameter(0), sharding={replicated}
        s = f32[2,8] parameter(1), sharding={devices=[1,4]<=[4]}
        b = f32[6,2,8] broadcast(x), dimensions={1,2}, sharding={devices=[1,1,4]<=[4]}
        n = f32[6,2,8] negate(b), sharding={devices=[1,1,4]2,0,3,1}
        t = f32[2,8] negate(s), sharding={devices=[1,4]<=[4]}
        ROOT r = (f32[6,2,8], f32[2,8]) tuple(n, t),
          sharding={{devices=[1,1,4]2,0,3,1}, {devices=[1,4]<=[4]}}
      }";
    assert_eq!(sent(4, text), [""; 0]);
}

#[test]
fn what_was_widened_travels_narrow() {
    let text = "HloModule m\nENTRY e {
        x = bf16[8,4] parameter(0), sharding={devices=[4,1]<=[4]}
        w = f32[8,4] convert(x), sharding={devices=[4,1]<=[4]}
        ROOT y = f32[8,4] copy(w), sharding={replicated}
      }";
    assert_eq!(sent(4, text), ["all-gather bf16[8,4]"]);
    // Rows that one device has are put together as they were before.
    let text = "HloModule m\nENTRY e {
        table = bf16[64,4] parameter(0), sharding={devices=[4,1]<=[4]}
        wide = f32[64,4] convert(table), sharding={devices=[4,1]<=[4]}
        ids = s32[3,1] parameter(1), sharding={replicated}
        ROOT g = f32[3,4] gather(wide, ids), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
          index_vector_dim=1, slice_sizes={1,4}, sharding={replicated}
      }";
    assert_eq!(sent(4, text), ["all-reduce bf16[3,4]"]);
}

#[test]
fn two_sums_of_which_a_piece_is_wanted_are_added_before_they_are_scattered() {
    let text = "HloModule m\nENTRY e {
        a = f32[6,8] parameter(0), sharding={devices=[1,4]<=[4]}
        b = f32[8,12] parameter(1), sharding={devices=[4,1]<=[4]}
        c = f32[6,8] parameter(2), sharding={devices=[1,4]<=[4]}
        x = f32[6,12] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        y = f32[6,12] dot(c, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        ROOT s = f32[6,12] add(x, y), sharding={devices=[1,4]<=[4]}
      }";
    assert_eq!(sent(4, text), ["reduce-scatter f32[6,3]"]);
}

#[test]
fn what_a_manual_region_starts_is_finished_by_its_done() {
    let text = "HloModule m\nENTRY e {
        x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
        in = f32[4] custom-call(x), custom_call_target=\"SPMDFullToShardShape\", sharding={manual}
        start = (f32[4], f32[8]) all-gather-start(in), channel_id=1, replica_groups={{0,1}}, dimensions={0},
          use_global_device_ids=true, sharding={{manual}, {manual}}
        done = f32[8] all-gather-done(start), sharding={manual}
        ROOT out = f32[8] custom-call(done), custom_call_target=\"SPMDShardToFullShape\", sharding={replicated}
      }";
    let made = hloom_spmd::partition(&support::read(text), 2).expect("it is partitioned");
    let all = || made.module.computations().iter().flat_map(|&c| made.module[c].instructions());
    let done = all().copied().find(|&i| made.module[i].op == Op::AllGatherDone).expect("the gather is finished");
    let from = made.module[done].operands()[0];
    assert!(matches!(made.module[from].op, Op::AllGatherStart(_)), "not by way of a tuple that is put together anew");
}

#[test]
fn a_grid_of_more_axes_than_a_list_holds_is_refused() {
    let module = support::read("HloModule m\nENTRY e {\n  ROOT x = f32[8] parameter(0)\n}");
    let message = |devices: i64| hloom_spmd::partition(&module, devices).err().map(|d| d.message);
    assert_eq!(message(1 << 23), None);
    assert!(message(1 << 24).is_some_and(|m| m.contains("too many axes")));
}

#[test]
fn shards_that_are_mirrored_along_several_dimensions_change_places_once() {
    let reverse = |a: i64, b: i64| {
        format!(
            "HloModule m\nENTRY e {{
              x = f32[{a},6,{b}] parameter(0), sharding={{devices=[4,1,2]<=[8]}}
              ROOT r = f32[{a},6,{b}] reverse(x), dimensions={{0,1,2}}, sharding={{devices=[4,1,2]<=[8]}}
            }}"
        )
    };
    assert_eq!(sent(8, &reverse(12, 10)), ["collective-permute f32[3,6,5]"]);
    // Where shards are not full, elements go over the edges of theirs along that dimension.
    assert!(sent(8, &reverse(11, 10)).len() > 1);
}

/// What a loop adds up of products over cut rows, straight on or by way of a tuple, as a call leaves it whose body was put in
/// its place.
#[test]
fn sums_that_loops_carry_are_completed_after_them() {
    let program = |next: &str| {
        format!(
            "HloModule m
            cond {{
              s = (s32[], f32[8,8], f32[64,8]) parameter(0)
              i = s32[] get-tuple-element(s), index=0
              n = s32[] constant(5)
              ROOT go = pred[] compare(i, n), direction=LT
            }}
            body {{
              s = (s32[], f32[8,8], f32[64,8]) parameter(0)
              i = s32[] get-tuple-element(s), index=0
              one = s32[] constant(1)
              up = s32[] add(i, one)
              carried = f32[8,8] get-tuple-element(s), index=1
              x = f32[64,8] get-tuple-element(s), index=2
              g = f32[8,8] dot(x, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
              {next}
              other = f32[64,8] negate(x)
              ROOT t = (s32[], f32[8,8], f32[64,8]) tuple(up, next, other)
            }}
            ENTRY e {{
              p = f32[64,8] parameter(0), sharding={{devices=[4,1]<=[4]}}
              zero = f32[] constant(0)
              none = f32[8,8] broadcast(zero), dimensions={{}}
              i = s32[] constant(0)
              s = (s32[], f32[8,8], f32[64,8]) tuple(i, none, p)
              w = (s32[], f32[8,8], f32[64,8]) while(s), condition=cond, body=body,
                sharding={{{{replicated}}, {{replicated}}, {{devices=[4,1]<=[4]}}}}
              ROOT r = f32[8,8] get-tuple-element(w), index=1
            }}"
        )
    };
    let straight = "next = f32[8,8] add(carried, g)";
    let by_tuple = "sum = f32[8,8] add(carried, g)\n both = (f32[8,8], f32[64,8]) tuple(sum, x)\n next = f32[8,8] get-tuple-element(both), index=0";
    for next in [straight, by_tuple] {
        let module = support::read(&program(next));
        let made = hloom_spmd::partition(&module, 4).unwrap_or_else(|d| panic!("{}", d.message));
        support::check(&module, &made, 3).unwrap_or_else(|e| panic!("{e}"));
        let entry = made.module.entry().expect("there is one");
        let mut in_entry = made.module[entry].instructions().iter();
        let is_sum = |&i: &hloom_ir::entity::InstructionId| matches!(made.module[i].op, Op::AllReduce(_));
        assert_eq!(collectives(&made.module), ["all-reduce f32[8,8]"]);
        assert!(in_entry.any(is_sum), "{next}");
    }
}

/// Calls in the body of a loop are written out where shardings are tiles, too: a sum that is added to in one is completed
/// after the loop.
#[test]
fn sums_that_calls_add_to_are_completed_after_the_loop() {
    let text = "HloModule m, num_partitions=4
            cond {
              s = (s32[], f32[8,8], f32[64,8]) parameter(0)
              i = s32[] get-tuple-element(s), index=0
              n = s32[] constant(5)
              ROOT go = pred[] compare(i, n), direction=LT
            }
            inner {
              carried = f32[8,8] parameter(0)
              x = f32[64,8] parameter(1)
              g = f32[8,8] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
              sum = f32[8,8] add(carried, g)
              other = f32[64,8] negate(x)
              ROOT both = (f32[8,8], f32[64,8]) tuple(sum, other)
            }
            outer {
              carried = f32[8,8] parameter(0)
              x = f32[64,8] parameter(1)
              ROOT r = (f32[8,8], f32[64,8]) call(carried, x), to_apply=inner
            }
            body {
              s = (s32[], f32[8,8], f32[64,8]) parameter(0)
              i = s32[] get-tuple-element(s), index=0
              one = s32[] constant(1)
              up = s32[] add(i, one)
              carried = f32[8,8] get-tuple-element(s), index=1
              x = f32[64,8] get-tuple-element(s), index=2
              r = (f32[8,8], f32[64,8]) call(carried, x), to_apply=outer
              next = f32[8,8] get-tuple-element(r), index=0
              other = f32[64,8] get-tuple-element(r), index=1
              ROOT t = (s32[], f32[8,8], f32[64,8]) tuple(up, next, other)
            }
            ENTRY e {
              p = f32[64,8] parameter(0), sharding={devices=[4,1]<=[4]}
              zero = f32[] constant(0)
              none = f32[8,8] broadcast(zero), dimensions={}
              i = s32[] constant(0)
              s = (s32[], f32[8,8], f32[64,8]) tuple(i, none, p)
              w = (s32[], f32[8,8], f32[64,8]) while(s), condition=cond, body=body
              ROOT r = f32[8,8] get-tuple-element(w), index=1, sharding={replicated}
            }";
    let mut module = support::read(text);
    hloom_spmd::propagate(&mut module, &hloom_spmd::PropagationOptions::default()).unwrap_or_else(|d| panic!("{d:?}"));
    let made = hloom_spmd::partition(&module, 4).unwrap_or_else(|d| panic!("{}", d.message));
    support::check(&module, &made, 3).unwrap_or_else(|e| panic!("{e}"));
    let entry = made.module.entry().expect("there is one");
    assert_eq!(collectives(&made.module), ["all-reduce f32[8,8]"]);
    assert!(made.module[entry].instructions().iter().any(|&i| matches!(made.module[i].op, Op::AllReduce(_))));
}

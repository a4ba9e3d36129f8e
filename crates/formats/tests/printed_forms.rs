//! Every attribute in the form XLA prints: each line here is read and must print as itself.

use hloom_formats::hlo_text::{PrintOptions, print, read};

/// Computations for lines to call.
const CALLED: &str = "\
%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%ge (x.1: f32[], y.1: f32[]) -> pred[] {
  %x.1 = f32[] parameter(0)
  %y.1 = f32[] parameter(1)
  ROOT %is_ge = pred[] compare(%x.1, %y.1), direction=GE
}

%same (x.2: f32[4]) -> f32[4] {
  %x.2 = f32[4]{0} parameter(0)
  ROOT %copy.2 = f32[4]{0} copy(%x.2)
}

%test (x.3: f32[4]) -> pred[] {
  %x.3 = f32[4]{0} parameter(0)
  ROOT %no = pred[] constant(false)
}

%running (x.4: f32[], y.4: f32[]) -> (f32[], f32[]) {
  %x.4 = f32[] parameter(0)
  %y.4 = f32[] parameter(1)
  %sum.4 = f32[] add(%x.4, %y.4)
  ROOT %both = (f32[], f32[]) tuple(%sum.4, %sum.4)
}
";

/// Reads `text` or tells what is wrong with it.
fn printed(text: &str, options: &PrintOptions) -> String {
    let result = read(text.as_bytes());
    match &result.module {
        Some(module) => print(module, options),
        None => panic!("not read: {:?}\n{text}", result.diagnostics),
    }
}

/// Checks that the last instruction of an entry with these parameters prints as written.
#[track_caller]
fn keeps(parameters: &[&str], line: &str) {
    let mut text = format!("HloModule m\n\n{CALLED}\nENTRY %main {{\n");
    for (i, shape) in parameters.iter().enumerate() {
        text += &format!("  %p{i} = {shape} parameter({i})\n");
    }
    text += &format!("  ROOT %r = {line}\n}}\n");
    let out = printed(&text, &PrintOptions::default());
    let got = out.lines().find_map(|l| l.trim_start().strip_prefix("ROOT %r = ")).unwrap_or_default();
    assert_eq!(got, line);
    assert_eq!(printed(&out, &PrintOptions::default()), out, "not a fixed point");
}

const F4: &str = "f32[4]{0}";
const F44: &str = "f32[4,4]{1,0}";
const F: &str = "f32[]";
const S: &str = "s32[]";

#[test]
fn leaves() {
    keeps(&[], "f32[2,<=3]{1,0} parameter(0)");
    keeps(
        &[],
        "(f32[2]{0}, f32[]) parameter(0), parameter_replication={true,false}, sharding={{replicated}, {manual}}",
    );
    keeps(&[], "s32[4,8]{1,0} iota(), iota_dimension=1");
    keeps(&[], "u32[] replica-id()");
    keeps(&[], "f32[2]{0} constant({1.5, -0})");
    keeps(&[], "f32[3]{0} constant({nan, -inf, 1e-05})");
    keeps(&[], "(s32[], (f32[2]{0}, pred[])) constant(( 1, ( {1, 2}, true ) ))");
    keeps(&[], "c64[1]{0} constant({(1, -2.5)})");
    keeps(
        &[],
        "pred[2,1,2,2]{3,2,1,0} constant({ { /*i0=0*/ { /*i1=0*/ { 1, 0 }, { 0, 0 } } }, { /*i0=1*/ { /*i1=0*/ { 1, 1 }, { 1, 0 } } } })",
    );
    keeps(&[], "f32[1000]{0} constant({...})");
}

#[test]
fn layouts() {
    keeps(&["f32[8,128]{0,1:T(8,128)(2,1)S(1)}"], "f32[8,128]{0,1:T(8,128)(2,1)S(1)} copy(%p0)");
    keeps(&["s4[8]{0:E(4)}"], "s4[8]{0:E(4)} copy(%p0)");
    keeps(&["f32[]{:T(128)}"], "f32[]{:T(128)} copy(%p0)");
    keeps(&["f32[8,8]{1,0:T(*,8)L(16)#(u32)*(u8)E(32)S(5)SC(0:3,5)M(8)}"], "f32[8,8]{1,0} copy(%p0)");
}

#[test]
fn elementwise() {
    keeps(&[F4], "f32[4]{0} negate(%p0)");
    keeps(&[F4], "f32[4]{0} tanh(%p0), result_accuracy={mode=highest}");
    keeps(&[F4], "f32[4]{0} exponential(%p0), result_accuracy={tolerance={atol=0.1234567891,rtol=1e-07,ulps=3}}");
    keeps(&[F4, F4], "pred[4]{0} compare(%p0, %p1), direction=LT");
    keeps(&[F4, F4], "pred[4]{0} compare(%p0, %p1), direction=EQ, type=TOTALORDER");
    keeps(&[F4], "f32[4]{0} reduce-precision(%p0), exponent_bits=5, mantissa_bits=10");
    keeps(&[F4, F4], "f32[4]{0} map(%p0, %p1), dimensions={0}, to_apply=%add");
}

#[test]
fn movement() {
    keeps(&[F4], "f32[2,2]{1,0} reshape(%p0), inferred_dimension=0");
    keeps(&[F], "f32[4]{0} broadcast(%p0), dimensions={}");
    keeps(&[F44], "f32[4,4]{0,1} transpose(%p0), dimensions={1,0}");
    keeps(&[F4, F4], "f32[8]{0} concatenate(%p0, %p1), dimensions={0}");
    keeps(&[F44], "f32[2,4]{1,0} slice(%p0), slice={[0:2], [0:4]}");
    keeps(&[F44], "f32[2,2]{1,0} slice(%p0), slice={[0:2:1], [0:4:2]}");
    keeps(&[F4, S], "f32[2]{0} dynamic-slice(%p0, %p1), dynamic_slice_sizes={2}");
    keeps(&[F44, F], "f32[6,4]{1,0} pad(%p0, %p1), padding=1_1x0_0");
    keeps(&[F44, F], "f32[6,7]{1,0} pad(%p0, %p1), padding=3_-1_0x0_0_1");
    keeps(
        &[F44, "s32[2,1]{1,0}"],
        "f32[2,4]{1,0} gather(%p0, %p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}, indices_are_sorted=true",
    );
    keeps(
        &[F44, "s32[4,1]{1,0}"],
        "f32[4,1]{1,0} gather(%p0, %p1), offset_dims={1}, collapsed_slice_dims={}, start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=1, slice_sizes={1,1}",
    );
    keeps(
        &[F44, "s32[2,1]{1,0}", "f32[2,4]{1,0}"],
        "f32[4,4]{1,0} scatter(%p0, %p1, %p2), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, indices_are_sorted=true, unique_indices=true, to_apply=%add",
    );
    keeps(&["f32[<=4]{0}"], "s32[] get-dimension-size(%p0), dimensions={0}");
    keeps(&[F4, S], "f32[<=4]{0} set-dimension-size(%p0, %p1), dimensions={0}");
}

#[test]
fn products() {
    keeps(
        &["f32[2,3,4]{2,1,0}", "f32[2,4,5]{2,1,0}"],
        "f32[2,3,5]{2,1,0} dot(%p0, %p1), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}, operand_precision={high,default}, algorithm=dot_bf16_bf16_f32_x3",
    );
    keeps(
        &["f32[8,3]{1,0}", "f32[2,3,5]{2,1,0}", "s64[2]{0}"],
        "f32[8,5]{1,0} ragged-dot(%p0, %p1, %p2), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
    );
    keeps(
        &["f32[1,8,8,2]{3,2,1,0}", "f32[3,3,1,2]{3,2,1,0}"],
        "f32[1,4,4,2]{3,2,1,0} convolution(%p0, %p1), window={size=3x3 stride=2x2 pad=1_1x0_2 rhs_reversal=0x1}, dim_labels=b01f_01io->b01f, feature_group_count=2",
    );
    keeps(&[F4, F4], "f32[] dot(%p0, %p1), lhs_contracting_dims={0}, rhs_contracting_dims={0}");
}

#[test]
fn reductions() {
    keeps(&[F44, F], "f32[4]{0} reduce(%p0, %p1), dimensions={1}, to_apply=%add");
    keeps(&[F44, F], "f32[2,2]{1,0} reduce-window(%p0, %p1), window={size=2x2 stride=2x2}, to_apply=%add");
    keeps(
        &[F44, "f32[2,2]{1,0}", F],
        "f32[4,4]{1,0} select-and-scatter(%p0, %p1, %p2), window={size=2x2 stride=2x2}, select=%ge, scatter=%add",
    );
    keeps(&[F4], "f32[4]{0} sort(%p0), dimensions={0}, is_stable=true, to_apply=%ge");
    keeps(
        &[F4, F],
        "(f32[4]{0}, f32[]) scan(%p0, %p1), dimensions={0}, num_carries=1, is_reverse=true, is_associative=false, to_apply=%running",
    );
    keeps(&[F44], "(f32[4,2]{1,0}, s32[4,2]{1,0}) topk(%p0), k=2, largest=true");
    keeps(&["c64[4]{0}"], "c64[4]{0} fft(%p0), fft_type=FFT, fft_length={4}");
    keeps(&[F44], "f32[4,4]{1,0} cholesky(%p0), lower=true");
    keeps(
        &[F44, F44],
        "f32[4,4]{1,0} triangular-solve(%p0, %p1), left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
    );
    keeps(
        &[F44, F4, F4, F4, F4],
        "f32[4,4]{1,0} batch-norm-inference(%p0, %p1, %p2, %p3, %p4), epsilon=0.001, feature_index=1",
    );
    keeps(&[F, F], "f32[4]{0} rng(%p0, %p1), distribution=rng_uniform");
    keeps(&["u64[2]{0}"], "(u64[2]{0}, u32[4]{0}) rng-bit-generator(%p0), algorithm=rng_three_fry");
    keeps(&[], "u64[1]{0} rng-get-and-update-state(), delta=4096");
}

#[test]
fn tuples_and_calls() {
    keeps(
        &[F, F, F, F, F, F],
        "(f32[], f32[], f32[], f32[], f32[], /*index=5*/f32[]) tuple(%p0, %p1, %p2, %p3, %p4, /*index=5*/%p5)",
    );
    keeps(&["(f32[], s32[])"], "s32[] get-tuple-element(%p0), index=1");
    keeps(&[F4], "f32[4]{0} while(%p0), condition=%test, body=%same");
    keeps(&["pred[]", F4], "f32[4]{0} conditional(%p0, %p1, %p1), true_computation=%same, false_computation=%same");
    keeps(&[S, F4], "f32[4]{0} conditional(%p0, %p1, %p1), branch_computations={%same, %same}");
    keeps(&[F4], "f32[4]{0} call(%p0), to_apply=%same, is_composite=true");
    keeps(&[F4], "f32[4]{0} fusion(%p0), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=%same");
    keeps(&[F4], "f32[4]{0} domain(%p0), domain={kind=\"sharding\", entry={maximal device=1}, exit={replicated}}");
    keeps(
        &[F4],
        "f32[4]{0} custom-call(%p0), custom_call_target=\"a\\\"b\", operand_layout_constraints={f32[4]{0}}, custom_call_has_side_effect=true, literal=s32[2]{0} {1, 2}, output_to_operand_aliasing={{}: (0, {})}, schedule=SCHEDULE_LATEST, api_version=API_VERSION_TYPED_FFI, called_computations={%same}, backend_config={a = 1 : i64}",
    );
    keeps(
        &["f32[1,8,2]{2,1,0}", "f32[3,2,2]{2,1,0}"],
        "f32[1,6,2]{2,1,0} custom-call(%p0, %p1), window={size=3}, dim_labels=b0f_0io->b0f, feature_group_count=2, padding_type=PADDING_SAME, custom_call_target=\"conv\"",
    );
    keeps(&["token[]"], "((f32[2]{0}), token[]) infeed(%p0), infeed_config=\"x\\001\"");
    keeps(&[F4, "token[]"], "token[] outfeed(%p0, %p1), outfeed_shape=f32[4]{0}, outfeed_config=\"x\"");
}

#[test]
fn collectives() {
    keeps(
        &[F4],
        "f32[4]{0} all-reduce(%p0), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=%add",
    );
    keeps(&[F4], "f32[4]{0} all-reduce(%p0), replica_groups={}, constrain_layout=true, to_apply=%add");
    keeps(
        &[F4],
        "f32[16]{0} all-gather(%p0), channel_id=2, replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}, use_global_device_ids=true",
    );
    keeps(&[F4], "f32[4]{0} all-reduce(%p0), replica_groups=mesh['x'=2,'y'=4] {'y':(1)2,'x'}, to_apply=%add");
    keeps(
        &["f32[8]{0}"],
        "f32[4]{0} reduce-scatter(%p0), channel_id=1, replica_groups=[1,2]<=[2], use_global_device_ids=true, dimensions={0}, to_apply=%add",
    );
    keeps(&[F4], "f32[4]{0} all-to-all(%p0), replica_groups={{0,1}}, dimensions={0}");
    keeps(&[F4], "f32[4]{0} collective-broadcast(%p0), replica_groups={{1,0}}");
    keeps(&[F4], "f32[4]{0} collective-permute(%p0), channel_id=3, source_target_pairs={{0,1},{1,0}}");
    keeps(&[F4, "token[]"], "(f32[4]{0}, u32[], token[]) send(%p0, %p1), channel_id=1, is_host_transfer=true");
    keeps(&[F4], "(f32[4]{0}, f32[4]{0:S(1)}, u32[]) copy-start(%p0), cross_program_prefetch_index=0");
}

#[test]
fn shardings() {
    for sharding in [
        "{replicated}",
        "{maximal device=3}",
        "{manual}",
        "{unknown}",
        "{unreduced}",
        "{devices=[2,2]0,3,1,2}",
        "{devices=[4,2]<=[8]}",
        "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
        "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}",
        "{devices=[2,1]<=[2] shard_as 1}",
        "{replicated shard_like 2 metadata={op_name=\"a\"}}",
        "{manual metadata={{op_name=\"a\"}, {op_name=\"b\" source_line=3}}}",
        "{mesh['a'=2,'b'=4], [{'a'}, {'b':(1)2, ?}]}",
        "{mesh['a'=2,'b'=4], [{}, {?}], replicated={'a'}, unreduced={'b'}}",
        "{mesh['a'=2,'b'=2], device_ids=(3,2,1,0), [{}, {'b'}], manual={'a'}}",
        "{mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)), [{'b', 'a'}, {}]}",
        "{maximal_mesh[device_id=2]}",
    ] {
        keeps(&[F44], &format!("f32[4,4]{{1,0}} copy(%p0), sharding={sharding}"));
    }
    keeps(&[F], "f32[] copy(%p0), sharding={mesh['a'=2,'b'=4], replicated}");
    keeps(&[F], "f32[] copy(%p0), sharding={mesh['a'=2,'b'=4], manual}");
    keeps(&[F], "f32[] copy(%p0), sharding={mesh['a'=2,'b'=4], unreduced}");
}

#[test]
fn attributes_of_every_instruction() {
    keeps(
        &[F4],
        "f32[4]{0} copy(%p0), sharding={replicated}, frontend_attributes={a=\"x\\ny\",b={\"k\": 1}}, control-predecessors={%p0}, statistics={visualizing_index=1,stat-1=33,stat-2=0.25}, origin={{\"copy.1\" {1}}}, metadata={op_type=\"T\" op_name=\"jit(f)/\\303\\244\" source_file=\"f.py\" source_line=1 source_end_line=2 source_column=3 source_end_column=4 profile_type={1} deduplicated_name=\"d\" scheduling_name=\"s\" metadata_payload=\"p\"}, backend_config=\"not {json\"",
    );
    keeps(&["(f32[], (s32[], s32[]))"], "(f32[], (s32[], s32[])) copy(%p0), origin={({\"a\"}, ({}, {\"b\" {1,0}}))}");
    keeps(&[F4], "f32[4]{0} call(%p0), to_apply=%same, origin={[synthetic_call]}");
}

#[test]
fn async_operations_are_written_as_what_they_wrap() {
    let text = "HloModule m, entry_computation_layout={(f32[4]{0})->f32[2]{0}}

ENTRY %main (p: f32[4]) -> f32[2] {
  %p = f32[4]{0} parameter(0)
  %start = ((f32[4]{0}), f32[2]{0}, u32[]) slice-start(%p), async_execution_thread=\"host\", slice={[0:2]}, metadata={op_name=\"s\"}
  %update = ((f32[4]{0}), f32[2]{0}, u32[]) slice-update(%start)
  ROOT %done = f32[2]{0} slice-done(%update)
}
";
    assert_eq!(printed(text, &PrintOptions::default()), text);
}

#[test]
fn module_headers() {
    let text = "HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {0}, must-alias) }, buffer_donor={ (1, {1}) }, alias_passthrough_params=true, entry_computation_layout={(f32[4]{0}, (f32[], f32[]))->(f32[4]{0}, f32[])}, allow_spmd_sharding_propagation_to_parameters={true,false}, allow_spmd_sharding_propagation_to_output={true}, replica_count=2, num_partitions=4, frontend_attributes={a=\"b\"}

FileNames
1 \"a.py\"

FunctionNames
1 \"f\"

FileLocations
1 {file_name_id=1 function_name_id=1 line=2 end_line=3 column=4 end_column=5}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=1 parent_frame_id=2}


ENTRY %main (p: f32[4], q: (f32[], f32[])) -> (f32[4], f32[]) {
  %p = f32[4]{0} parameter(0)
  %q = (f32[], f32[]) parameter(1)
  %x = f32[] get-tuple-element(%q), index=0, metadata={op_name=\"x\" stack_frame_id=2}
  ROOT %r = (f32[4]{0}, f32[]) tuple(%p, %x)
}
";
    assert_eq!(printed(text, &PrintOptions::default()), text);
}

#[test]
fn recovery_tables_hold_modules() {
    let text = "HloModule m, entry_computation_layout={(f32[4]{0})->f32[4]{0}}, origin_recovery_table={
  {\"a\" {1}} : {\"b\"}
  {\"c\"} : {\"d\"},
  \"
    HloModule module_recover, entry_computation_layout={(f32[4]{0})->f32[2,2]{1,0}}

    ENTRY %recover (p: f32[4]) -> f32[2,2] {
      %p = f32[4]{0} parameter(0)
      ROOT %reshape = f32[2,2]{1,0} reshape(%p), metadata={op_name=\\\"x\\\"}
    }


  \"
}


ENTRY %main (p: f32[4]) -> f32[4] {
  ROOT %p = f32[4]{0} parameter(0)
}
";
    assert_eq!(printed(text, &PrintOptions::default()), text);
}

#[test]
fn nothing_is_lost_unless_wished() {
    let text = "HloModule m
ENTRY main {
  p = f32[4,4] parameter(0), metadata={source_line=3}
  q = f32[4] parameter(1)
  ROOT r = f32[4,4] batch-norm-inference(p, q, q, q, q), epsilon=0.0010000123, feature_index=1, statistics={visualizing_index=0,s=1.2345678}
}
";
    let full = printed(text, &PrintOptions::default());
    for kept in ["source_line=3", "epsilon=0.00100001227", "s=1.2345678"] {
        assert!(full.contains(kept), "{kept} is lost:\n{full}");
    }
    let dump = printed(text, &PrintOptions { elide_constants: true });
    for kept in ["epsilon=0.00100001,", "s=1.23457}"] {
        assert!(dump.contains(kept), "{kept} is not in\n{dump}");
    }
    assert!(!dump.contains("metadata"));
}

/// Layouts of shapes that are not written, as XLA infers them.
#[test]
fn layouts_follow_from_operands() {
    let parameters = "  p = f32[4,8]{0,1} parameter(0)
  q = f32[4,8]{1,0:T(8,128)} parameter(1)
  mask = pred[4,8]{0,1} parameter(2)
  v = f32[4] parameter(3)
  t = f32[2,3,4]{1,0,2} parameter(4)
  s = f32[] parameter(5)
  n = s32[] parameter(6)
  four = s4[4,8]{1,0:E(4)} parameter(7)
";
    for (op, shape) in [
        ("negate(p)", "f32[4,8]{0,1}"),
        ("add(q, p)", "f32[4,8]{1,0:T(8,128)}"),
        ("compare(p, q), direction=LT", "pred[4,8]{0,1}"),
        ("select(mask, q, p)", "f32[4,8]{0,1}"),
        ("select(mask, four, four)", "s4[4,8]{0,1:E(4)}"),
        ("compare(four, four), direction=EQ", "pred[4,8]{1,0}"),
        ("clamp(s, p, s)", "f32[4,8]{0,1}"),
        ("transpose(t), dimensions={2,0,1}", "f32[4,2,3]{2,1,0}"),
        ("set-dimension-size(p, n), dimensions={0}", "f32[<=4,8]{0,1}"),
        ("batch-norm-training(p, v, v), epsilon=0, feature_index=0", "(f32[4,8]{0,1}, f32[4]{0}, f32[4]{0})"),
        ("concatenate(p, p), dimensions={0}", "f32[8,8]{1,0}"),
    ] {
        let out =
            printed(&format!("HloModule m\nENTRY e {{\n{parameters}  ROOT r = {op}\n}}\n"), &PrintOptions::default());
        let line = out.lines().find(|l| l.contains("ROOT")).unwrap_or_default();
        assert!(line.contains(&format!("= {shape} ")), "{op}: expected {shape} in {line}");
    }
}

#[test]
fn what_follows_from_the_rest_is_not_taken_from_the_text() {
    let text = "HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  t = token[] parameter(1)
  send = f32[4] send(p, t), channel_id=1
  recv = (f32[8], u32[8], token[]) recv(t), channel_id=2
  done = token[] recv-done(recv), channel_id=2
  out = (s32[]) outfeed(p, t)
  ROOT c = s4[2]{0:E(4)} constant({1, -1})
}
";
    let out = printed(text, &PrintOptions::default());
    for line in [
        "%send = (f32[4]{0}, u32[], token[]) send(",
        "%recv = (f32[8]{0}, u32[], token[]) recv(",
        "%done = (f32[8]{0}, token[]) recv-done(",
        "%out = token[] outfeed(",
        "%c = s4[2]{0} constant({1, -1})",
    ] {
        assert!(out.contains(line), "{line} is not in\n{out}");
    }
}

#[test]
fn a_thread_reaches_all_that_is_called_on_it() {
    let text = "HloModule m
inner { ROOT p = f32[4] parameter(0) }
outer {
  p = f32[4] parameter(0)
  ROOT c = f32[4] call(p), to_apply=inner
}
ENTRY e {
  p = f32[4] parameter(0)
  s = ((f32[4]), f32[4], u32[]) call-start(p), to_apply=outer, async_execution_thread=\"host\"
  ROOT d = f32[4] call-done(s)
}
";
    assert_eq!(printed(text, &PrintOptions::default()).matches("}, execution_thread=\"host\"").count(), 2);
}

//! `hloom partition`.

use super::*;

const TENSOR_PARALLEL: &str = "sdy.mesh @mesh = <[\"data\"=2, \"model\"=2]>
func.func @main(%x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"data\"}, {}]>},
    %up: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {\"model\"}]>},
    %down: tensor<32x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"model\"}, {}]>})
    -> (tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"data\"}, {}]>}) {
  %h = stablehlo.dot_general %x, %up, contracting_dims = [1] x [0] :
    (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %y = stablehlo.dot_general %h, %down, contracting_dims = [1] x [0] :
    (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  return %y : tensor<8x16xf32>
}
";

#[test]
fn the_report_says_which_product_is_summed_and_along_what() {
    let folder = Folder::new("partition-report").with("m.mlir", TENSOR_PARALLEL);
    let text = folder.hloom(&["partition", "m.mlir", "--devices", "4", "--report"]).exits(0).stdout;
    assert!(text.contains("sums over its contracting dimension, split along model"), "{text}");
    // A shard of 4x16 numbers, half of them sent twice.
    assert!(text.starts_with("4 devices; a device sends 256 bytes"), "{text}");
    assert!(text.contains("\nmodel   256\n"), "{text}");
}

#[test]
fn collectives_in_loops_count_as_often_as_they_run() {
    let program = "HloModule m, num_partitions=2
cond {
  p = (s32[], f32[8,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT lt = pred[] compare(i, n), direction=LT
}
body {
  q = (s32[], f32[8,8], f32[8,8]) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  one = s32[] constant(1)
  next = s32[] add(j, one)
  x = f32[8,8] get-tuple-element(q), index=1
  w = f32[8,8] get-tuple-element(q), index=2
  y = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
  ROOT t = (s32[], f32[8,8], f32[8,8]) tuple(next, y, w)
}
ENTRY e {
  zero = s32[] constant(0)
  x0 = f32[8,8] parameter(0), sharding={replicated}
  w0 = f32[8,8] parameter(1), sharding={devices=[2,1]<=[2]}
  init = (s32[], f32[8,8], f32[8,8]) tuple(zero, x0, w0)
  r = (s32[], f32[8,8], f32[8,8]) while(init), condition=cond, body=body
  ROOT out = f32[8,8] get-tuple-element(r), index=1, sharding={replicated}
}
";
    let folder = Folder::new("partition-loop").with("m.hlo", program);
    let ran = folder.hloom(&["partition", "m.hlo", "--json", "-o", "out.hlo"]).exits(0);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    let all = report["collectives"].as_array().expect("a list");
    assert!(all.iter().any(|c| c["times"] == 5), "{report}");
    assert!(folder.read("out.hlo").contains("\"known_trip_count\":{\"n\":\"5\"}"));
}

#[test]
fn an_annotation_that_would_save_something_is_named() {
    // The product comes out in parts along x; nothing says that the sum may stay scattered.
    let program = "HloModule m, num_partitions=4
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY e {
  x = f32[64,32] parameter(0), sharding={devices=[1,4]<=[4]}
  w = f32[32,64] parameter(1), sharding={devices=[4,1]<=[4]}
  y = f32[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[64,64] tanh(y)
  s = f32[64,64] negate(z)
  zero = f32[] constant(0)
  ROOT r = f32[64] reduce(s, zero), dimensions={1}, to_apply=add, sharding={replicated}
}
";
    let folder = Folder::new("partition-advice").with("m.hlo", program);
    let text = folder.hloom(&["partition", "m.hlo", "--report"]).exits(0).stdout;
    let advice = text.split("one annotation more would save:\n").nth(1).unwrap_or_default();
    assert!(advice.contains(" bytes: y as {devices=["), "{text}");
}

#[test]
fn the_indices_of_a_lookup_are_named_where_its_batch_comes_from_them() {
    let program = "sdy.mesh @mesh = <[\"dp\"=2, \"tp\"=2]>
func.func @main(%table: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"dp\"}, {\"tp\"}]>},
    %ids: tensor<4x1xi32> {sdy.sharding = #sdy.sharding<@mesh, [{\"dp\"}, {}]>}) -> tensor<4x8xf32> {
  %rows = \"stablehlo.gather\"(%table, %ids) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>}> :
    (tensor<16x8xf32>, tensor<4x1xi32>) -> tensor<4x8xf32>
  %r = stablehlo.negate %rows : tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}
";
    let folder = Folder::new("partition-explain").with("m.mlir", program);
    let text = folder.hloom(&["partition", "m.mlir", "--devices", "4", "--explain", "gather"]).exits(0).stdout;
    let said: Vec<&str> = text.lines().filter(|l| l.ends_with("as the program says")).collect();
    assert_eq!(said.len(), 2, "{text}");
    assert!(said[0].starts_with("parameter") && said[1].starts_with("parameter"), "{text}");
}

#[test]
fn the_search_tells_what_it_assumes_and_is_no_worse_than_schemes_by_hand() {
    let program = TENSOR_PARALLEL.replace(" {sdy.sharding = #sdy.sharding<@mesh, [{\"data\"}, {}]>}", "");
    let program = program.replace(" {sdy.sharding = #sdy.sharding<@mesh, [{}, {\"model\"}]>}", "");
    let program = program.replace(" {sdy.sharding = #sdy.sharding<@mesh, [{\"model\"}, {}]>}", "");
    let folder = Folder::new("partition-auto").with("m.mlir", &program);
    let ran = folder.hloom(&["partition", "m.mlir", "--auto", "--mesh", "2x2", "--json"]).exits(0);
    assert!(ran.stderr.contains("--target names another machine"), "{}", ran.stderr);
    let found: serde_json::Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    let best = found["best"]["seconds"].as_f64().expect("a time");
    let schemes = found["schemes"].as_array().expect("a list");
    assert!(schemes.len() > 4, "{found}");
    assert!(schemes.iter().all(|s| s["seconds"].as_f64().is_some_and(|t| best <= t * 1.000_01)), "{found}");
    let text = folder.hloom(&["partition", "m.mlir", "--auto", "--mesh", "2x2", "--target", "tpu-v4"]).exits(0).stdout;
    assert!(text.contains("by hand, the best first:") && text.ends_with(" s\n"), "{text}");
    folder.hloom(&["partition", "m.mlir", "--auto"]).exits(2);
    folder.hloom(&["partition", "m.mlir", "--auto", "--mesh", "2y2"]).exits(2);
}

#[test]
fn replicas_of_a_program_are_partitioned_alike() {
    let program = "HloModule m, replica_count=2, num_partitions=2
ENTRY e {
  x = f32[4] parameter(0), sharding={devices=[2]<=[2]}
  n = f32[4] negate(x), sharding={devices=[2]<=[2]}
  ROOT r = f32[4] copy(n), sharding={replicated}
}
";
    let folder = Folder::new("partition-replicas").with("m.hlo", program);
    let text = folder.hloom(&["partition", "m.hlo"]).exits(0).stdout;
    assert!(text.contains("replica_groups=[2,2]<=[4]"), "{text}");
    folder.hloom(&["run", "m.hlo", "--seed", "1", "--engine", "eval"]).exits(0);
    folder.hloom(&["run", "m.hlo", "--seed", "1"]).exits(0);
}

/// Tiles on devices that the program does not have are the program's fault.
#[test]
fn tiles_on_devices_that_are_not_there_are_refused() {
    let program = "HloModule m
ENTRY e {
  x = f32[8,4] parameter(0), sharding={devices=[2,1,2]0,4,1,5 last_tile_dim_replicate}
  ROOT y = f32[8,4] negate(x), sharding={devices=[1,2,2]0,1,4,5 last_tile_dim_replicate}
}
";
    let folder = Folder::new("partition-absent-devices").with("m.hlo", program);
    for command in [["partition", "m.hlo"], ["run", "m.hlo"]] {
        let said = folder.hloom(&command).exits(1).stderr;
        assert!(said.contains("the sharding names device 4: there are 4, counted from 0"), "{said}");
        assert!(said.contains("m.hlo:3:") && said.contains("^^^"), "{said}");
    }
}

/// Two closed shardings that cut a dimension along different axes are lawful; the report names both and where they meet.
#[test]
fn shardings_that_conflict_are_named() {
    let program = r#"sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>}) -> tensor<8x8xf32> {
  %0 = stablehlo.add %a, %b : tensor<8x8xf32> loc("model.py":12:3)
  %1 = stablehlo.multiply %0, %b : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
"#;
    let folder = Folder::new("partition-conflict").with("m.mlir", program);
    let text = folder.hloom(&["partition", "m.mlir", "--report"]).exits(0).stdout;
    let line = text.lines().find(|l| l.contains("model.py:12): ")).expect("the addition is named");
    for part in ["add add", "parameter Arg_0 is given as", "[{'x'}, {}]", "parameter Arg_1 is given as", "[{'y'}, {}]"]
    {
        assert!(line.contains(part), "{part}: {text}");
    }
    let json = folder.hloom(&["partition", "m.mlir", "--json"]).exits(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["conflicts"].as_array().map(Vec::len), Some(1), "{json}");
}

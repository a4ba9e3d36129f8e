//! `hloom opt`.

use super::*;

const PROGRAM: &str = "HloModule m

ENTRY e {
  x = f32[4] parameter(0)
  unused = f32[4] negate(x)
  a = f32[4] add(x, x)
  b = f32[4] add(x, x)
  ROOT r = f32[4] multiply(a, b)
}
";

#[test]
fn passes_run_by_name_in_the_order_given() {
    let folder = Folder::new("opt").with("m.hlo", PROGRAM);
    let dce = folder.hloom(&["opt", "m.hlo", "--passes", "dce"]).exits(0);
    assert!(!dce.stdout.contains("negate") && dce.stdout.contains("%b = "), "{}", dce.stdout);
    let both = folder.hloom(&["opt", "m.hlo", "--passes", "cse,dce", "--report"]).exits(0);
    assert!(both.stdout.contains("multiply(%a, %a)"), "{}", both.stdout);
    let rows: Vec<&str> = both.stderr.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(rows, ["pass", "cse", "dce", "all", "verifying"]);
}

#[test]
fn the_report_can_be_json() {
    let folder = Folder::new("opt-json").with("m.hlo", PROGRAM);
    let ran = folder.hloom(&["opt", "m.hlo", "--passes", "cse,dce", "--report", "--json", "-o", "out.hlo"]).exits(0);
    let report: serde_json::Value = serde_json::from_str(&ran.stderr).expect("it is JSON");
    assert_eq!((&report["passes"][0]["pass"], &report["passes"][0]["changes"]), (&"cse".into(), &1.into()));
    assert_eq!((&report["passes"][1]["pass"], &report["passes"][1]["runs"]), (&"dce".into(), &1.into()));
    assert_eq!(report["changes"], 2);
    assert!(report["ms"].as_f64().is_some_and(|ms| ms > 0.0), "{report}");
    folder.hloom(&["opt", "m.hlo", "--json"]).exits(2);
}

#[test]
fn the_target_decides_what_runs() {
    let folder = Folder::new("opt-target").with("m.hlo", PROGRAM);
    let ran = folder.hloom(&["opt", "m.hlo", "--target", "cpu", "-o", "out.hlo"]).exits(0);
    assert_eq!(ran.stdout, "");
    assert!(folder.read("out.hlo").contains("kind=kLoop"), "{}", folder.read("out.hlo"));
    folder.hloom(&["verify", "out.hlo"]).exits(0);
    let ran = folder.hloom(&["opt", "m.hlo", "--target", "tpu-v2"]).exits(0);
    assert!(ran.stdout.contains("is_scheduled=true") && ran.stdout.contains("T(128)"), "{}", ran.stdout);
}

#[test]
fn every_machine_with_a_backend_has_its_whole_pipeline() {
    let folder = Folder::new("opt-machines").with("m.hlo", PROGRAM);
    for target in ["cpu", "gpu-a100", "gpu-h100", "gpu-h200", "tpu-v6e"] {
        let ran = folder.hloom(&["opt", "m.hlo", "--target", target]).exits(0);
        assert!(ran.stdout.contains("is_scheduled=true"), "{target}: {}", ran.stdout);
    }
    let listed = folder.hloom(&["opt", "--list"]).exits(0);
    assert!(listed.stdout.contains("fuse-attention"), "{}", listed.stdout);
}

#[test]
fn the_module_after_each_pass_can_be_kept() {
    let folder = Folder::new("opt-dumps").with("m.hlo", PROGRAM);
    folder.hloom(&["opt", "m.hlo", "--passes", "cse,dce", "--dump-after-each", "dumps", "-o", "out.hlo"]).exits(0);
    assert!(folder.read("dumps/001.cse.hlo").contains("negate"));
    assert_eq!(folder.read("dumps/002.dce.hlo"), folder.read("out.hlo"));
}

#[test]
fn passes_are_listed_and_misspelt_ones_are_helped() {
    let folder = Folder::new("opt-list").with("m.hlo", PROGRAM);
    let list = folder.hloom(&["opt", "--list"]).exits(0).stdout;
    assert!(list.lines().any(|l| l.starts_with("fusion ")) && list.lines().any(|l| l.starts_with("dce ")), "{list}");
    let ran = folder.hloom(&["opt", "m.hlo", "--passes", "fusio"]).exits(2);
    assert!(ran.stderr.contains("did you mean `fusion`?"), "{}", ran.stderr);
}

#[test]
fn shardings_are_propagated_over_stablehlo() {
    let program = "sdy.mesh @mesh = <[\"x\"=2]>
func.func @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}]>}) -> tensor<8xf32> {
  %0 = stablehlo.negate %arg0 : tensor<8xf32>
  return %0 : tensor<8xf32>
}
";
    let folder = Folder::new("opt-shardings").with("m.mlir", program);
    let text = folder.hloom(&["opt", "m.mlir", "--passes", "sdy-basic-propagate"]).exits(0).stdout;
    assert!(
        text.contains("stablehlo.negate %arg0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{\"x\", ?}]>]>}"),
        "{text}"
    );
    let told = folder.hloom(&["opt", "m.mlir", "--passes", "sdy-basic-propagate='keep=1'"]).exits(2).stderr;
    assert!(told.contains("keep-sharding-rules"), "{told}");
}

#[test]
fn shardings_are_propagated_over_hlo() {
    let program = "HloModule m
ENTRY e {
  a = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  b = f32[8] parameter(1)
  ROOT c = f32[8] add(a, b)
}
";
    let folder = Folder::new("opt-tiles").with("m.hlo", program);
    let passes = "sharding-propagation='is_spmd=true allow_propagation_to_parameters=true,true'";
    let text = folder.hloom(&["opt", "m.hlo", "--passes", passes]).exits(0).stdout;
    assert!(text.lines().any(|l| l.contains("b = f32[8]") && l.contains("sharding={devices=[4]<=[4]}")), "{text}");
}

/// `f0`, and functions more, each of which calls the one before twice.
fn doubling(calls: usize) -> String {
    let mut text = String::from("HloModule m\n\nf0 {\n  x = f32[] parameter(0)\n  ROOT y = f32[] sine(x)\n}\n");
    for n in 1..=calls {
        let before = n - 1;
        text += &format!(
            "\nf{n} {{\n  x{n} = f32[] parameter(0)\n  a{n} = f32[] call(x{n}), to_apply=f{before}\n  \
             ROOT b{n} = f32[] call(a{n}), to_apply=f{before}\n}}\n"
        );
    }
    text + &format!("\nENTRY e {{\n  x = f32[] parameter(0)\n  ROOT r = f32[] call(x), to_apply=f{calls}\n}}\n")
}

#[test]
fn calls_that_double_and_double_are_refused_where_they_must_be_copied() {
    let folder = Folder::new("doubling").with("m.hlo", doubling(60));
    for command in [&["opt", "m.hlo", "--target", "cpu"][..], &["memory", "m.hlo"], &["run", "m.hlo", "--seed", "1"]] {
        let ran = folder.hloom(command).exits(1);
        assert!(ran.stderr.contains("more instructions"), "{command:?}: {}", ran.stderr);
    }
}

#[test]
fn stages_of_tpu_like_machines_run_alone() {
    let text = "HloModule m
ENTRY e {
  x = f32[16,32] parameter(0)
  y = f32[32,64] parameter(1)
  ROOT d = f32[16,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
";
    let folder = Folder::new("opt-tpu").with("m.hlo", text);
    let run = |target: &str, passes: &str| {
        folder.hloom(&["opt", "m.hlo", "--target", target, "--passes", passes, "--report"])
    };
    let ran = run("tpu-v6e", "dce,tile-layouts,dots-to-convolutions").exits(0);
    assert!(ran.stdout.contains("T(8,128)") && ran.stdout.contains(" convolution("), "{}", ran.stdout);
    let rows: Vec<&str> = ran.stderr.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(rows, ["pass", "dce", "tile-layouts", "dots-to-convolutions", "all", "verifying"]);
    let ran = run("cpu", "tile-layouts").exits(2);
    assert!(ran.stderr.contains("`tile-layouts` is a stage for TPU-like machines"), "{}", ran.stderr);
    run("tpu-v6e", "tile-layouts,nothing-of-the-kind").exits(2);
}

//! `hloom simulate`.

use super::*;

fn example() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tensor_parallel_mlp.hlo").to_string_lossy().into_owned()
}

#[test]
fn json_tells_what_the_design_asks_for() {
    let args = ["simulate", &example(), "--target", "tpu-v6e", "--topology", "2x2", "--json"];
    let ran = Folder::new("simulate-json").hloom(&args).exits(0);
    assert!(ran.stderr.contains("no schedule"), "{}", ran.stderr);
    let told = &json_lines(&ran.stdout)[0];
    assert_eq!((&told["target"], &told["devices"]), (&"tpu-v6e".into(), &4.into()));
    for key in ["step_ms", "cycles", "compute_ms", "memory_ms", "network_ms", "exposed_network_ms", "flops", "mfu"] {
        assert!(told[key].as_f64().is_some_and(|n| n > 0.0), "{key}: {}", told[key]);
    }
    assert!(told["peak_bytes"]["0"].as_u64().is_some_and(|n| n > 500_000), "{}", told["peak_bytes"]);
    let instructions = told["instructions"].as_array().expect("a list");
    let dot = instructions.iter().find(|i| i["name"] == "hidden").or(instructions.first()).expect("one");
    assert!(dot["end_us"].as_f64() > dot["start_us"].as_f64());
    assert!(["compute", "memory", "network", "latency"].contains(&dot["bound"].as_str().expect("a word")));
    assert!(instructions.iter().any(|i| i["bound"] == "network"), "the all-reduce");
}

#[test]
fn a_faster_machine_is_faster() {
    let folder = Folder::new("simulate-set");
    let step = |more: &[&str]| {
        let file = example();
        let mut args = vec!["simulate", file.as_str(), "--target", "tpu-v6e", "--json"];
        args.extend(more);
        json_lines(&folder.hloom(&args).exits(0).stdout)[0]["step_ms"].as_f64().expect("a number")
    };
    let plain = step(&[]);
    assert!(step(&["--set", "hbm_bandwidth=2x"]) < plain);
    assert!(step(&["--set", "link.ici.latency_us=100"]) > plain);
}

#[test]
fn pages_and_traces_are_written() {
    let folder = Folder::new("simulate-page");
    let args = ["simulate", &example(), "--target", "gpu-h100", "--html", "page.html", "--trace", "trace.json"];
    let ran = folder.hloom(&args).exits(0);
    assert!(ran.stdout.contains("a step") && ran.stdout.contains("critical path"), "{}", ran.stdout);
    let page = folder.read("page.html");
    assert!(page.contains("· report</title>"), "the page of `hloom report`, with this timeline");
    let trace = folder.read("trace.json");
    let trace: serde_json::Value = serde_json::from_str(&trace).expect("JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|e| e.len() > 5));
}

#[test]
fn a_sweep_goes_on_where_a_global_program_does_not_fit_a_topology() {
    let text = "HloModule m, num_partitions=4
ENTRY e {
  x = f32[64,64] parameter(0), sharding={devices=[4,1]<=[4]}
  ROOT y = f32[64,64] negate(x)
}
";
    let folder = Folder::new("simulate-sweep-global").with("m.hlo", text);
    let ran = folder.hloom(&["simulate", "m.hlo", "--sweep", "tpu-v6e", "--topologies", "4x4,2x2", "--json"]).exits(0);
    let rows = json_lines(&ran.stdout).remove(0);
    assert!(rows[0]["error"].as_str().is_some_and(|e| e.contains("16 devices")), "{rows}");
    assert!(rows[1]["step_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{rows}");
}

#[test]
fn a_module_of_another_generation_is_told() {
    let folder = Folder::new("simulate-generation");
    let compile = ["compile", &example(), "--target", "tpu-v6e", "--topology", "2x2", "--emit", "schedule"];
    folder.hloom(&[&compile[..], &["-o", "m.txt"]].concat()).exits(0);
    let run = |target: &str| folder.hloom(&["simulate", "m.txt", "--target", target]);
    let ran = run("tpu-v5e");
    assert!(ran.stderr.contains("looks like a module for tpu-v6e"), "{}", ran.stderr);
    assert!(!run("tpu-v6e").exits(0).stderr.contains("looks like"));
}

#[test]
fn a_sweep_has_a_row_for_each_machine_and_topology() {
    let args = ["simulate", &example(), "--sweep", "tpu-v5e,tpu-v6e", "--topologies", "2x2,2x4", "--json"];
    let ran = Folder::new("simulate-sweep").hloom(&args).exits(0);
    let rows = json_lines(&ran.stdout).remove(0);
    let rows = rows.as_array().expect("a list");
    assert_eq!(rows.len(), 4);
    assert!(rows[0]["step_ms"].as_f64() > rows[2]["step_ms"].as_f64(), "v6e is faster than v5e");
    assert!(rows[1]["error"].as_str().is_some_and(|e| e.contains("8 devices")), "{}", rows[1]);
}

#[test]
fn wrong_options_are_told() {
    let folder = Folder::new("simulate-wrong");
    let file = example();
    let run = |more: &[&str]| {
        let mut args = vec!["simulate", file.as_str(), "--target", "tpu-v6e"];
        args.extend(more);
        folder.hloom(&args)
    };
    assert!(run(&["--topology", "2by2"]).exits(2).stderr.contains("`2by2` is no topology"));
    assert!(
        run(&["--topology", "2x4"])
            .exits(1)
            .stderr
            .contains("has 8 devices, but the module is for 1 replicas × 4 partitions")
    );
    assert!(run(&["--set", "speed=2x"]).exits(2).stderr.contains("speed"));
    assert!(run(&["--set", "hbm_bandwidth"]).exits(2).stderr.contains("KEY=VALUE"));
    assert!(run(&["--cost", "x=fast"]).exits(2).stderr.contains("a cost is"));
    assert!(run(&["--trip-count", "w=many"]).exits(2).stderr.contains("`many` is no number"));
    assert!(run(&["--trip-count", "w=3"]).exits(1).stderr.contains("which the module lacks"));
    assert!(run(&["--cycles", "dump"]).exits(1).stderr.contains("carries no `estimated_cycles`"));
}

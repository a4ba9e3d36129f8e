//! `hloom bench`, and the record of a run.

use crate::Folder;

const PRODUCT: &str = "HloModule m

ENTRY main {
  x = f32[64,64] parameter(0)
  y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[64,64] sine(y)
}
";

#[test]
fn programs_are_measured_against_the_machine() {
    let folder = Folder::new("bench").with("p.hlo", PRODUCT);
    let ran = folder.hloom(&["bench", "p.hlo", "--repeat", "2", "--json"]).exits(0);
    let row: serde_json::Value = serde_json::from_str(&ran.stdout).expect("one JSON object");
    for key in ["compile_ms", "run_ms", "run_ms_median", "gflops", "gigabytes", "share"] {
        assert!(row[key].as_f64().is_some_and(|x| x > 0.0), "{key}: {row}");
    }
    let ran = folder.hloom(&["bench", "p.hlo", "p.hlo", "--repeat", "1"]).exits(0);
    assert_eq!(ran.stdout.matches("p.hlo").count(), 2, "{}", ran.stdout);
    assert!(ran.stdout.contains("GFLOP/s"), "{}", ran.stdout);
}

#[test]
fn what_cannot_be_read_does_not_stop_the_rest() {
    let folder = Folder::new("bench-missing").with("p.hlo", PRODUCT);
    let ran = folder.hloom(&["bench", "absent.hlo", "p.hlo", "--repeat", "1"]).exits(1);
    assert!(ran.stdout.contains("p.hlo") && ran.stderr.contains("absent.hlo"), "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn the_record_of_a_run_names_its_instructions() {
    let folder = Folder::new("trace").with("p.hlo", PRODUCT);
    let runs = [
        &["run", "p.hlo", "--seed", "1"][..],
        &["run", "p.hlo", "--seed", "1", "--bench", "2"],
        &["bench", "p.hlo", "--repeat", "1"],
    ];
    for command in runs {
        folder.hloom(&[command, &["--trace", "t.json"]].concat()).exits(0);
        let text = folder.read("t.json");
        let trace: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let events = trace["traceEvents"].as_array().expect("a list");
        let product = events.iter().find(|e| e["args"]["opcode"] == "dot").expect("the product ran");
        assert_eq!((product["ph"].as_str(), product["pid"].as_i64()), (Some("X"), Some(0)));
        assert!(product["dur"].as_f64().is_some_and(|us| us > 0.0), "{product}");
    }
}

#[test]
fn a_machine_that_was_measured_is_a_target() {
    let folder = Folder::new("calibrate").with("p.hlo", PRODUCT);
    folder.hloom(&["bench", "--calibrate", "--repeat", "1", "-o", "here.toml"]).exits(0);
    let described = folder.read("here.toml");
    for key in ["dispatch_us", "launch_us", "bandwidth", "matmul", "transcendental"] {
        assert!(described.contains(&format!("\n{key} = ")), "{key}: {described}");
    }
    // What has no schedule is compiled by the backend of the machine.
    let ran = folder.hloom(&["simulate", "p.hlo", "--target", "here.toml", "--json"]).exits(0);
    assert!(ran.stderr.contains("it was compiled for cpu"), "{}", ran.stderr);
    let simulated: serde_json::Value = serde_json::from_str(&ran.stdout).expect("one JSON object");
    assert!(simulated["step_ms"].as_f64().is_some_and(|ms| ms > 0.0 && ms < 100.0), "{simulated}");
}

#[test]
fn a_machine_that_is_absent_compiles_what_it_simulates() {
    let folder = Folder::new("simulate-gpu").with("p.hlo", PRODUCT);
    let ran = folder.hloom(&["simulate", "p.hlo", "--target", "gpu-h200"]).exits(0);
    assert!(ran.stderr.contains("it was compiled for gpu-h200"), "{}", ran.stderr);
}

#[test]
fn what_a_compiler_has_fused_is_simulated_as_it_is() {
    let fused = "HloModule m\nf {\n  p = f32[64] parameter(0)\n  ROOT n = f32[64] negate(p)\n}\nENTRY e {\n  x = f32[64] \
                 parameter(0)\n  ROOT y = f32[64] fusion(x), kind=kLoop, calls=f\n}\n";
    let folder = Folder::new("simulate-fused").with("p.hlo", fused);
    let ran = folder.hloom(&["simulate", "p.hlo", "--target", "gpu-h200"]).exits(0);
    assert!(ran.stderr.contains("it was scheduled for little memory"), "{}", ran.stderr);
}

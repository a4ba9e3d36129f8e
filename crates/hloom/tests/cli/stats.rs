//! `hloom stats`.

use super::*;
use expect_test::expect;

fn example() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tensor_parallel_mlp.hlo").to_string_lossy().into_owned()
}

#[test]
fn tables_line_up() {
    let ran = Folder::new("stats").hloom(&["stats", &example()]).exits(0);
    assert_eq!(ran.stderr, "");
    expect![[r#"
        tensor_parallel_mlp: 16 instructions in 2 computations, 1 replica × 4 partitions
        one run on one device: 8.41 M flops, 8.19 k transcendentals, 1.00 MiB accessed

        opcode      count   flops  transcendentals  accessed
        dot             2  8.39 M                0   640 KiB
        add             3  16.4 k                0   192 KiB
        all-reduce      1  8.19 k                0  64.0 KiB
        tanh            1       0           8.19 k  64.0 KiB
        broadcast       2       0                0  66.0 KiB
        parameter       7       0                0       0 B

        collective  groups        count  executions  bytes put in
        all-reduce  1 group of 4      1           1      32.0 KiB

        parameter  name   shape                  size
                0  x      f32[32,256]{1,0}   32.0 KiB
                1  w_in   f32[256,256]{1,0}   256 KiB
                2  b_in   f32[256]{0}        1.00 KiB
                3  w_out  f32[256,256]{1,0}   256 KiB
                4  b_out  f32[256]{0}        1.00 KiB

        parameters take 546 KiB, the result takes 32.0 KiB
    "#]]
    .assert_eq(&ran.stdout);
}

#[test]
fn json_has_the_same_numbers() {
    let ran = Folder::new("stats-json").hloom(&["stats", "--json", &example()]).exits(0);
    let stats = &json_lines(&ran.stdout)[0];
    // Two dots of 32 × 256 results with 256 products each; three sums and the all-reduce's sum, one flop per element.
    assert_eq!(stats["flops"], 2 * (2 * 32 * 256 * 256) + 3 * 32 * 256);
    assert_eq!(stats["transcendentals"], 32 * 256);
    assert_eq!(stats["instructions"], 16);
    assert_eq!((&stats["computations"], &stats["num_partitions"]), (&2.into(), &4.into()));
    let collectives = stats["collectives"].as_array().expect("a list");
    assert_eq!(collectives.len(), 1);
    assert_eq!(collectives[0]["opcode"], "all-reduce");
    assert_eq!(collectives[0]["groups"], "1 group of 4");
    assert_eq!(collectives[0]["bytes"], 32 * 256 * 4);
    assert_eq!(stats["parameters"].as_array().map(Vec::len), Some(5));
    assert_eq!(stats["parameters"][1]["bytes"], 256 * 256 * 4);
    assert_eq!(stats["result_bytes"], 32 * 256 * 4);
}

#[test]
fn a_module_that_is_wrong_has_no_statistics() {
    let folder = Folder::new("stats-wrong").with("m.hlo", WRONG_SHAPE);
    let ran = folder.hloom(&["stats", "--json", "m.hlo"]).exits(1);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains("m.hlo:5:12"), "{}", ran.stderr);
}

#[test]
fn sizes_that_nobody_knows_are_called_unknown() {
    let text = "HloModule m\n\nENTRY e {\n  p = f32[?,4] parameter(0)\n  ROOT r = f32[?,4] negate(p)\n}\n";
    let folder = Folder::new("stats-unbounded").with("m.hlo", text);
    let ran = folder.hloom(&["stats", "m.hlo"]).exits(0);
    assert!(ran.stdout.contains("f32[?,4]{1,0}  unknown\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("parameters take an unknown size, the result takes an unknown size"), "{}", ran.stdout);
    let json = &json_lines(&folder.hloom(&["stats", "m.hlo", "--json"]).exits(0).stdout)[0];
    assert!(json["parameter_bytes"].is_null() && json["parameters"][0]["bytes"].is_null(), "{json}");
    for engine in ["eval", "cpu"] {
        let ran = folder.hloom(&["run", "m.hlo", "--seed", "1", "--engine", engine]);
        assert!(ran.status == 1 && !ran.stderr.contains("GiB"), "{}", ran.stderr);
    }
}

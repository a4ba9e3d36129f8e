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
    expect![[r#""#]].assert_eq(&ran.stdout);
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

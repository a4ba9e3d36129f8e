//! `hloom check`, and StableHLO as a format of programs.

use super::Folder;
use std::path::Path;

const HOLDS: &str = "func.func @doubles() {
  %x = stablehlo.constant dense<[1.0, 2.5]> : tensor<2xf32>
  %y = stablehlo.add %x, %x : tensor<2xf32>
  check.expect_eq_const %y, dense<[2.0, 5.0]> : tensor<2xf32>
  check.expect_close %y, %y, max_ulp_difference = 1 : tensor<2xf32>, tensor<2xf32>
  func.return
}

// -----

func.func @almost() {
  %x = stablehlo.constant dense<1.0> : tensor<f64>
  %y = stablehlo.exponential %x : tensor<f64>
  check.expect_almost_eq_const %y, dense<2.71828> : tensor<f64>
  func.return
}
";

#[test]
fn every_function_of_every_part_is_checked() {
    let folder = Folder::new("check").with("holds.mlir", HOLDS);
    for engine in ["eval", "cpu"] {
        let ran = folder.hloom(&["check", "holds.mlir", "--engine", engine]).exits(0);
        assert_eq!(ran.stdout, "2 functions, 3 expectations hold, 0 fail\n");
        assert_eq!(ran.stderr, "");
    }
}

#[test]
fn hlo_is_not_taken_for_stablehlo() {
    let folder = Folder::new("check-hlo").with("module.hlo", super::WRITTEN);
    let ran = folder.hloom(&["check", "module.hlo"]).exits(1);
    assert!(ran.stderr.contains("`module.hlo` is HLO") && ran.stderr.contains("hloom verify"), "{}", ran.stderr);
}

#[test]
fn an_expectation_that_fails_is_shown_in_its_line() {
    let folder = Folder::new("check-fails").with("wrong.mlir", HOLDS.replace("[2.0, 5.0]", "[2.0, 6.0]"));
    let ran = folder.hloom(&["check", "wrong.mlir", "--engine", "eval"]).exits(1);
    assert!(ran.stderr.contains("wrong.mlir:4:3"), "{}", ran.stderr);
    assert!(ran.stderr.contains("element [1] is 5.0, expected 6.0"), "{}", ran.stderr);
    assert!(ran.stderr.contains("1 of 2 elements differ") && ran.stderr.contains("@doubles"), "{}", ran.stderr);
}

#[test]
fn devices_run_side_by_side() {
    let program = "module {
  func.func @sum(%x: tensor<i32>) -> tensor<i32> {
    %0 = \"stablehlo.all_reduce\"(%x) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %1 = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %1 : tensor<i32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<i32>) -> tensor<i32>
    return %0 : tensor<i32>
  }
  func.func @main() {
    %a = stablehlo.constant dense<3> : tensor<i32>
    %b = stablehlo.constant dense<4> : tensor<i32>
    %r:2 = \"interpreter.run_parallel\"(%a, %b) {programs = [[@sum], [@sum]]} : (tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>)
    %s = stablehlo.add %r#0, %a : tensor<i32>
    check.expect_eq_const %r#1, dense<7> : tensor<i32>
    check.expect_eq_const %s, dense<10> : tensor<i32>
    return
  }
}
";
    let folder = Folder::new("check-devices").with("sum.mlir", program);
    let ran = folder.hloom(&["check", "sum.mlir"]).exits(0);
    assert_eq!(ran.stdout, "1 functions, 2 expectations hold, 0 fail\n");
}

#[test]
fn different_programs_run_side_by_side() {
    let program = "module {
  func.func @one() -> tensor<i32> {
    %0 = stablehlo.constant dense<1> : tensor<i32>
    return %0 : tensor<i32>
  }
  func.func @twice(%x: tensor<2xi32>) -> tensor<2xi32> {
    %0 = stablehlo.add %x, %x : tensor<2xi32>
    return %0 : tensor<2xi32>
  }
  func.func @main() {
    %a = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
    %r:2 = \"interpreter.run_parallel\"(%a) {programs = [[@one, @twice]]} : (tensor<2xi32>) -> (tensor<i32>, tensor<2xi32>)
    check.expect_eq_const %r#0, dense<1> : tensor<i32>
    check.expect_eq_const %r#1, dense<[6, 8]> : tensor<2xi32>
    return
  }
}
";
    let folder = Folder::new("check-programs").with("two.mlir", program);
    folder.hloom(&["check", "two.mlir", "--engine", "eval"]).exits(0);
}

/// The programs of `tests/check` hold what they expect.
#[test]
fn programs_hold_with_both_engines() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check");
    let files = std::fs::read_dir(&folder).expect("the folder can be read").map(|f| f.expect("a file").path());
    let mut count = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("it can be read");
        let name = file.file_name().and_then(|n| n.to_str()).expect("a name");
        let folder = Folder::new(&format!("check-{name}")).with(name, text);
        for engine in ["eval", "cpu"] {
            let ran = folder.hloom(&["check", name, "--engine", engine]).exits(0);
            assert!(ran.stdout.ends_with(" 0 fail\n") && !ran.stdout.contains(" 0 expectations"), "{}", ran.stdout);
        }
        count += 1;
    }
    assert!(count > 0, "there are no programs");
}

#[test]
fn sizes_that_follow_from_constants_are_worked_out() {
    let program = "func.func @main() {
  %x = stablehlo.constant dense<[1, 2, 3, 4, 5, 6]> : tensor<6xi64>
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<6xi64>) -> tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %m = stablehlo.divide %n, %two : tensor<i32>
  %a = stablehlo.reshape %two : (tensor<i32>) -> tensor<1xi32>
  %b = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
  %s = stablehlo.concatenate %a, %b, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %r = stablehlo.dynamic_reshape %x, %s : (tensor<6xi64>, tensor<2xi32>) -> tensor<?x?xi64>
  %d = stablehlo.add %r, %r : tensor<?x?xi64>
  check.expect_eq_const %d, dense<[[2, 4, 6], [8, 10, 12]]> : tensor<2x3xi64>
  func.return
}
";
    let folder = Folder::new("check-dynamic").with("d.mlir", program);
    folder.hloom(&["check", "d.mlir"]).exits(0);
}

#[test]
fn stablehlo_is_run_and_converted() {
    let program = "func.func @main() -> tensor<2xi32> {
  %x = stablehlo.constant dense<[20, 22]> : tensor<2xi32>
  %y = stablehlo.add %x, %x : tensor<2xi32>
  return %y : tensor<2xi32>
}
";
    let folder = Folder::new("check-convert").with("p.mlir", program);
    let shown = folder.hloom(&["run", "p.mlir"]).exits(0).stdout;
    assert!(shown.contains("{40, 44}"), "{shown}");
    folder.hloom(&["convert", "p.mlir", "p.hlo"]).exits(0);
    assert!(folder.read("p.hlo").contains("s32[2]{0} add("));
    folder.hloom(&["convert", "p.hlo", "q.mlir"]).exits(0);
    assert!(folder.read("q.mlir").contains("stablehlo.add"), "{}", folder.read("q.mlir"));
    assert_eq!(folder.hloom(&["run", "q.mlir"]).exits(0).stdout, shown);
    folder.hloom(&["convert", "p.hlo", "q.mlirbc"]).exits(2);
}

#[test]
fn what_is_wrong_with_a_program_is_shown_in_its_text() {
    let folder =
        Folder::new("check-bad").with("p.mlir", "func.func @main() {\n  %0 = stablehlo.negat %x : tensor<f32>\n}\n");
    let ran = folder.hloom(&["check", "p.mlir"]).exits(1);
    assert!(
        ran.stderr.contains("p.mlir:2:8") && ran.stderr.contains("did you mean stablehlo.negate?"),
        "{}",
        ran.stderr
    );
    let ran = folder.hloom(&["verify", "p.mlir"]).exits(1);
    assert!(ran.stderr.contains("H0908"), "{}", ran.stderr);
}

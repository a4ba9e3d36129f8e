//! The text reader: forms that the samples lack, and what it says of text that is wrong.

use hloom_ir::diagnostic::{Diagnostic, Place};
use hloom_stablehlo::{read_split_text, read_text, to_hlo};

/// What is wrong with a text, the code and the words it points at.
fn refused(text: &str) -> (String, String, String) {
    let error: Box<Diagnostic> = match read_text(text.as_bytes()) {
        Err(error) => error,
        Ok(module) => to_hlo(&module).expect_err("it should be refused"),
    };
    let at = match error.place {
        Place::Span(span) => text.get(span.start as usize..span.end as usize).unwrap_or("?").to_owned(),
        _ => String::new(),
    };
    (error.code.to_string(), at, error.message.clone())
}

fn main_with(body: &str) -> String {
    format!("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{\n  {body}\n}}\n")
}

#[test]
fn errors_point_at_what_is_wrong() {
    let undefined = refused(&main_with("return %y : tensor<4xf32>"));
    assert_eq!((&*undefined.0, &*undefined.1), ("H0906", "%y"), "{}", undefined.2);
    let unknown = refused(&main_with("%0 = stablehlo.negat %x : tensor<4xf32>\n  return %0 : tensor<4xf32>"));
    assert_eq!((&*unknown.0, &*unknown.1), ("H0908", "stablehlo.negat"), "{}", unknown.2);
    let foreign =
        refused(&main_with("%0 = \"arith.negf\"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %0 : tensor<4xf32>"));
    assert_eq!(foreign.0, "H0908", "{}", foreign.2);
    assert!(foreign.1.starts_with("%0 = \"arith.negf\""), "{}", foreign.1);
    let missing = refused(&main_with("%0 = stablehlo.add %x %x : tensor<4xf32>"));
    assert_eq!((&*missing.0, &*missing.1), ("H0905", "%"), "{}", missing.2);
    let literal =
        refused(&main_with("%0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<4xf32>\n  return %0 : tensor<4xf32>"));
    assert_eq!((&*literal.0, &*literal.1), ("H0917", "[1.0, 2.0]"), "{}", literal.2);
    let dynamic = refused("func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {\n  return %x : tensor<?xf32>\n}");
    assert_eq!(dynamic.0, "H0914", "{}", dynamic.2);
    let quantized = refused("func.func @main(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>) {\n  return\n}");
    assert_eq!(quantized.0, "H0909", "{}", quantized.2);
    let circle = refused("func.func @main() {\n  call @main() : () -> ()\n  return\n}");
    assert_eq!(circle.0, "H0913", "{}", circle.2);
    let alias = refused("func.func @main() {\n  return\n} loc(#nobody)");
    assert_eq!((&*alias.0, &*alias.1), ("H0919", "nobody"), "{}", alias.2);
}

#[test]
fn layouts_of_arguments_and_results_are_in_the_header() {
    let main = |argument: &str, result: &str| {
        let mode = |text: &str| format!("{{mhlo.layout_mode = \"{text}\"}}");
        let (x, y, result) = (mode(argument), mode("{}"), mode(result));
        let arguments = format!("%x: tensor<2x3xf32> {x}, %y: tensor<f32> {y}");
        format!("func.func @main({arguments}) -> (tensor<2x3xf32> {result}) {{\n  return %x : tensor<2x3xf32>\n}}\n")
    };
    let header = |text: &str| {
        let module = to_hlo(&read_text(text.as_bytes()).expect("it is well formed")).expect("it can be translated");
        module.config.entry_layout.expect("there is a header").to_string()
    };
    assert_eq!(header(&main("{0,1}", "default")), "(f32[2,3]{0,1}, f32[])->f32[2,3]{1,0}");
    // What is left open has none.
    assert_eq!(header(&main("default", "auto")), "(f32[2,3]{1,0}, f32[])->f32[2,3]");
    let (code, _, message) = refused(&main("{0,0}", "default"));
    assert_eq!(code, "H0910", "{message}");
    assert!(message.contains("is no layout of f32[2,3]"), "{message}");
}

#[test]
fn nesting_is_limited() {
    let deep =
        format!("func.func @main() attributes {{a = {}1{}}} {{\n  return\n}}", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(refused(&deep).0, "H0904");
    let types = format!("func.func @main(%x: {}f32{}) {{\n  return\n}}", "tuple<".repeat(5000), ">".repeat(5000));
    assert_eq!(refused(&types).0, "H0904");
}

#[test]
fn parts_of_a_file_are_modules_of_their_own() {
    let text =
        "// -----\nfunc.func @a() {\n  return\n}\n// -----\n\n// nothing\n// -----\nfunc.func @b() {\n  retur\n}\n";
    let parts = read_split_text(text.as_bytes());
    assert_eq!(parts.len(), 2);
    let error = parts[1].as_ref().expect_err("the second part is wrong");
    let Place::Span(span) = error.place else { panic!("it has a place") };
    assert_eq!(&text[span.start as usize..span.end as usize], "retur", "places are those in the file");
}

#[test]
fn loops_pass_on_what_they_capture() {
    let text = "func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<4xf32>
      cond {
        %p = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %j = stablehlo.add %i, %one : tensor<i32>
        %b = stablehlo.add %a, %x : tensor<4xf32>
        stablehlo.return %j, %b : tensor<i32>, tensor<4xf32>
      }
      return %r#1 : tensor<4xf32>
    }";
    let module = to_hlo(&read_text(text.as_bytes()).expect("it can be read")).expect("it can be translated");
    let printed = hloom_formats::hlo_text::print(&module, &Default::default());
    // The count and the array are captured; the constant 1 is made again inside.
    assert!(printed.contains("(s32[], f32[4]{0}, s32[], f32[4]{0}) while("), "{printed}");
}

#[test]
fn names_and_lines_of_the_source_are_kept() {
    let text = "func.func @main(%x: tensor<4xf32> loc(\"weights\")) -> tensor<4xf32> {
      %0 = stablehlo.negate %x : tensor<4xf32> loc(\"jit(f)/neg\"(\"f\"(\"model.py\":7:3)))
      return %0 : tensor<4xf32>
    }";
    let module = to_hlo(&read_text(text.as_bytes()).expect("it can be read")).expect("it can be translated");
    let negate = module.instruction_by_name("neg").expect("the last part of the name is the instruction's");
    let metadata = module[negate].common.metadata.as_ref().expect("it has metadata");
    assert_eq!((&*metadata.op_name, &*metadata.source_file, metadata.source_line), ("jit(f)/neg", "model.py", 7));
    assert_eq!(metadata.stack_frame_id, 1);
    assert!(module.instruction_by_name("weights").is_some());
}

/// `depth` branches, each inside the one before.
fn nested(depth: usize) -> String {
    let mut body = "stablehlo.return %x : tensor<4xf32>".to_owned();
    for _ in 0..depth {
        body = format!(
            "%r = \"stablehlo.if\"(%p) ({{ {body} }}, {{ stablehlo.return %x : tensor<4xf32> }}) \
             : (tensor<i1>) -> tensor<4xf32>\n stablehlo.return %r : tensor<4xf32>"
        );
    }
    let body = body.rsplit_once("stablehlo.return").map_or(String::new(), |(b, e)| format!("{b}return{e}"));
    format!("func.func @main(%p: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {{\n{body}\n}}")
}

#[test]
fn what_nests_as_deep_as_may_be_is_translated_and_written() {
    let text = nested(60);
    let module = to_hlo(&read_text(text.as_bytes()).expect("it can be read")).expect("it can be translated");
    let written = hloom_stablehlo::from_hlo(&module).expect("it can be written");
    assert_eq!(written.matches("stablehlo.if").count(), 60);
    assert_eq!(refused(&nested(80)).0, "H0904");
}

#[test]
fn a_sharding_that_refers_to_what_is_not_there_is_told_of() {
    let message = |mesh: &str, axis: &str| {
        let text = format!(
            "sdy.mesh @mesh = <[\"x\"=4, \"y\"=2]>
    func.func @main(%a: tensor<8x16xf32> {{sdy.sharding = #sdy.sharding<@{mesh}, [{{{axis}}}, {{}}]>}}) -> tensor<8x16xf32> {{
      return %a : tensor<8x16xf32>
    }}"
        );
        refused(&text).2
    };
    assert_eq!(
        message("mesh", "\"z\""),
        "`sdy.sharding` of func.func: the mesh @mesh has no axis \"z\"; it has \"x\"=4, \"y\"=2"
    );
    assert_eq!(message("other", "\"x\""), "`sdy.sharding` of func.func: there is no mesh @other; there is @mesh");
    let part = message("mesh", "\"x\":(1)3");
    assert!(part.ends_with("an axis \"x\" of 4 has no part (1)3: 1 times 3 must divide 4"), "{part}");
}

#[test]
fn meshes_and_shardings_become_those_of_hlo() {
    let text = "sdy.mesh @mesh = <[\"x\"=2, \"y\"=4]>
    func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {\"y\"}]>}) -> tensor<8x16xf32> {
      %0 = stablehlo.negate %a {mhlo.sharding = \"{devices=[2,1,4]<=[8] last_tile_dim_replicate}\"} : tensor<8x16xf32>
      return %0 : tensor<8x16xf32>
    }";
    let module = to_hlo(&read_text(text.as_bytes()).expect("it can be read")).expect("it can be translated");
    let printed = hloom_formats::hlo_text::print(&module, &Default::default());
    assert!(printed.contains("sharding={mesh['x'=2,'y'=4], [{}, {'y'}]}"), "{printed}");
    assert!(printed.contains("sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}"), "{printed}");
}

#[test]
fn sums_over_an_axis_are_told_apart_from_copies() {
    let text = "sdy.mesh @mesh = <[\"x\"=2, \"y\"=4]>
    func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {\"y\"}], unreduced={\"x\"}>})
        -> tensor<8x16xf32> {
      return %a : tensor<8x16xf32>
    }";
    let module = to_hlo(&read_text(text.as_bytes()).expect("it can be read")).expect("it can be translated");
    let printed = hloom_formats::hlo_text::print(&module, &Default::default());
    assert!(printed.contains("[{}, {'y'}], unreduced={'x'}"), "{printed}");
}

#[test]
fn bounds_are_read_in_their_old_forms() {
    for bounds in ["#stablehlo.bounds<8, ?>", "#stablehlo.type_extensions<bounds = [8, ?]>"] {
        let text = format!("func.func @main(%a: tensor<?x4xf32, {bounds}>) {{\n  return\n}}");
        read_text(text.as_bytes()).unwrap_or_else(|e| panic!("{bounds}: {}", e.message));
    }
    read_text(b"func.func @main(%a: tensor<f32, #stablehlo.bounds<>>) {\n  return\n}").expect("a scalar has none");
}

#[test]
fn what_hlo_does_not_have_is_made_of_what_it_has() {
    let cube_root = "func.func @main(%a: tensor<complex<f64>>) -> tensor<complex<f64>> {
      %0 = stablehlo.cbrt %a : tensor<complex<f64>>
      return %0 : tensor<complex<f64>>
    }";
    let exchange = "func.func @main(%a: tensor<2x4xi64>, %b: tensor<3x4xi32>) -> (tensor<4x2xi64>, tensor<6x2xi32>) {
      %0:2 = \"stablehlo.all_to_all\"(%a, %b) {split_dimension = 1 : i64, concat_dimension = 0 : i64,
        split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
        : (tensor<2x4xi64>, tensor<3x4xi32>) -> (tensor<4x2xi64>, tensor<6x2xi32>)
      return %0#0, %0#1 : tensor<4x2xi64>, tensor<6x2xi32>
    }";
    for (text, opcode) in [(cube_root, "power("), (exchange, "s32[6,2]")] {
        let module = to_hlo(&read_text(text.as_bytes()).expect("it can be read")).expect("it can be translated");
        let printed = hloom_formats::hlo_text::print(&module, &Default::default());
        assert!(printed.contains(opcode), "{printed}");
    }
}

#[test]
fn a_collective_in_two_calls_is_the_collective() {
    let program = |target: &str, config: &str, result: &str, more: &str| {
        let frontend = format!("mhlo.frontend_attributes = {{async_collective_config = \"{{{config}}}\"}}");
        let start = format!("stablehlo.custom_call @{target}-start(%x) {{api_version = 1 : i32, {frontend}{more}}}");
        format!(
            "func.func @main(%x: tensor<4xf32>) -> {result} {{\n  %0 = {start} : (tensor<4xf32>) -> {result}\n  \
             %1 = stablehlo.custom_call @{target}-done(%0) : ({result}) -> {result}\n  return %1 : {result}\n}}\n\
             func.func private @sum(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {{\n  \
             %0 = stablehlo.add %a, %b : tensor<f32>\n  return %0 : tensor<f32>\n}}\n"
        )
    };
    let groups = r#"\22replica_groups\22: [[0, 1]], \22channel_id\22: 1, \22use_global_device_ids\22: true"#;
    let called = ", called_computations = [@sum]";
    let root = |text: &str| {
        let module = to_hlo(&read_text(text.as_bytes()).expect("it is well formed")).expect("it can be translated");
        let root = module.entry().and_then(|e| module.root(e)).expect("a root");
        let printed = hloom_formats::hlo_text::print(&module, &hloom_formats::hlo_text::PrintOptions::default());
        let line = printed.lines().rfind(|l| l.trim_start().starts_with("ROOT")).unwrap_or_default().to_owned();
        (module[root].opcode().name().to_owned(), line)
    };
    let (gather, line) =
        root(&program("all-gather", &format!(r#"\22all_gather_dimension\22: 0, {groups}"#), "tensor<8xf32>", ""));
    assert_eq!(gather, "all-gather");
    assert!(line.contains("replica_groups={{0,1}}") && line.contains("channel_id=1"), "{line}");
    assert_eq!(root(&program("all-reduce", groups, "tensor<4xf32>", called)).0, "all-reduce");
    let scattered = format!(r#"\22scatter_dimension\22: 0, \22tiled\22: true, {groups}"#);
    assert_eq!(root(&program("reduce-scatter", &scattered, "tensor<2xf32>", called)).0, "reduce-scatter");
    let exchanged = format!(r#"\22split_dimension\22: 0, \22concat_dimension\22: 0, \22split_count\22: 2, {groups}"#);
    assert_eq!(root(&program("all-to-all", &exchanged, "tensor<4xf32>", "")).0, "all-to-all");
    let permuted = r#"\22permutation\22: [[0, 1], [1, 0]], \22channel_id\22: 1"#;
    let (permute, line) = root(&program("collective-permute", permuted, "tensor<4xf32>", ""));
    assert_eq!(permute, "collective-permute");
    assert!(line.contains("source_target_pairs={{0,1},{1,0}}"), "{line}");
    let wrong = refused(&program("all-gather", groups, "tensor<8xf32>", ""));
    assert!(wrong.2.contains("async_collective_config"), "{}", wrong.2);
}

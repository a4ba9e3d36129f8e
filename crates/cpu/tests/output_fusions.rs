//! Output fusions on the engine: products and convolutions with what follows them give what the evaluator gives, the same
//! bits on any number of threads, and the same bits as one after the other.

mod common;

use common::{execute, parse};
use hloom_compiler::CompileOptions;
use hloom_cpu::{CpuClient, CpuClientOptions};
use hloom_eval::run::{DeviceGrid, Options, run};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare, inputs};
use hloom_runtime::{Client, ExecuteOptions, LoadedExecutable};
use hloom_value::Value;
use std::sync::Arc;

const GRID: DeviceGrid = DeviceGrid { replicas: 1, partitions: 1 };

/// The results of `text` on so many threads, and what was compiled.
fn results(text: &str, arguments: &[Vec<Value>], threads: usize) -> (Value, Arc<dyn LoadedExecutable>) {
    let client =
        CpuClient::new(&CpuClientOptions { threads: Some(threads), ..CpuClientOptions::default() }).expect("a client");
    let options = CompileOptions { fill_constants: true, ..CompileOptions::new(GRID) };
    let compiled = client.compile(&parse(text), &options).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let run = || execute(&client, &compiled, arguments, &ExecuteOptions::default());
    let first = run().unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let again = run().unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    compare(&first, &again, Agreement::Exact).unwrap_or_else(|e| panic!("{e}\n{text}"));
    (first.into_iter().next().expect("one device"), compiled)
}

fn arguments(text: &str) -> Vec<Vec<Value>> {
    let mut choices = Choices::from_seed(11).with_ordinary_numbers();
    inputs(parse(text).module(), 1, &mut choices).expect("arguments can be made")
}

fn output_fusions(compiled: &Arc<dyn LoadedExecutable>) -> usize {
    compiled.compiled().report.native.get("output fusion").copied().unwrap_or(0)
}

/// Checks that `text` has so many output fusions, and that its results are the evaluator's, whatever the threads.
fn check(text: &str, fusions: usize) -> Value {
    let arguments = arguments(text);
    let options = Options { fill_constants: true, ..Options::default() };
    let expected = run(&parse(text), GRID, arguments.clone(), &options).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let (one, compiled) = results(text, &arguments, 1);
    compare(std::slice::from_ref(&one), &expected, Agreement::ByNorm).unwrap_or_else(|e| panic!("{e}\n{text}"));
    if cfg!(feature = "llvm") {
        assert_eq!(output_fusions(&compiled), fusions, "{text}");
    }
    for threads in [2, 3, 7] {
        let (many, _) = results(text, &arguments, threads);
        compare(&[many], std::slice::from_ref(&one), Agreement::Exact)
            .unwrap_or_else(|e| panic!("{threads} threads: {e}\n{text}"));
    }
    one
}

/// Checks a program of one output fusion, whose product is named `x` and whose result, named `y`, is `shape`: against the
/// evaluator, and against the same program with a result that is the product, so that both are made one after the other.
fn check_both(parameters: &str, product: (&str, &str), follows: &str, shape: &str) {
    let (of_product, product) = product;
    let program = |root: &str| {
        format!("HloModule m\nENTRY e {{\n  {parameters}\n  x = {of_product} {product}\n  {follows}\n  {root}\n}}\n")
    };
    let fused = check(&program(&format!("ROOT r = ({shape}) tuple(y)")), 1);
    let apart = program(&format!("ROOT r = ({shape}, {of_product}) tuple(y, x)"));
    let (both, compiled) = results(&apart, &arguments(&apart), 3);
    assert_eq!(output_fusions(&compiled), 0, "{apart}");
    let first = |v: &Value| match v {
        Value::Tuple(elements) => elements[0].clone(),
        other => other.clone(),
    };
    compare(&[first(&both)], &[first(&fused)], Agreement::Exact).unwrap_or_else(|e| panic!("{e}\n{apart}"));
}

const DOT: &str = "dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}";

/// What follows products of 192 × 96 results of a type: bias, bounds, functions, other arrays.
#[test]
fn what_follows_a_product() {
    for t in ["f32", "f64", "bf16", "f16"] {
        let of = |dims: &str| format!("{t}[{dims}]");
        let (shape, row) = (of("192,96"), of("96"));
        let operands = format!("a = {} parameter(0)\n  b = {} parameter(1)", of("192,40"), of("40,96"));
        let zeros = format!("z = {t}[] constant(0)\n  zs = {shape} broadcast(z), dimensions={{}}");
        let bias = format!("cs = {shape} broadcast(c), dimensions={{1}}\n  s = {shape} add(x, cs)");
        let with_row = format!("{operands}\n  c = {row} parameter(2)");
        let with_array = format!("{operands}\n  c = {shape} parameter(2)");
        let product = (shape.as_str(), DOT);
        check_both(&with_row, product, &format!("{bias}\n  y = {shape} abs(s)"), &shape);
        check_both(&with_row, product, &format!("{bias}\n  {zeros}\n  y = {shape} maximum(s, zs)"), &shape);
        check_both(&with_row, product, &format!("{bias}\n  t = {shape} tanh(s)\n  y = {shape} multiply(t, s)"), &shape);
        check_both(&with_array, product, &format!("y = {shape} add(x, c)"), &shape);
        check_both(&with_array, product, &format!("d = {shape} subtract(c, x)\n  y = {shape} multiply(d, x)"), &shape);
        check_both(
            &operands,
            product,
            &format!("{zeros}\n  p = pred[192,96] compare(x, zs), direction=GT\n  y = {shape} select(p, x, zs)"),
            &shape,
        );
    }
}

/// The product and the result have elements of other sizes: the product has no place in the result's memory.
#[test]
fn results_of_another_type() {
    let wide = "a = bf16[192,40] parameter(0)\n  b = bf16[40,96] parameter(1)\n  c = f32[96] parameter(2)\n  \
                cs = f32[192,96] broadcast(c), dimensions={1}";
    let product = ("f32[192,96]", DOT);
    check_both(wide, product, "s = f32[192,96] add(x, cs)\n  y = bf16[192,96] convert(s)", "bf16[192,96]");
    let plain = "a = f32[192,40] parameter(0)\n  b = f32[40,96] parameter(1)\n  c = f32[96] parameter(2)\n  \
                 cs = f32[192,96] broadcast(c), dimensions={1}";
    check_both(plain, product, "y = pred[192,96] compare(x, cs), direction=LT", "pred[192,96]");
    check_both(plain, product, "s = f32[192,96] add(x, cs)\n  y = f64[192,96] convert(s)", "f64[192,96]");
}

/// Rows that no vector fills, so that several of them are worked on together; batches; results of more dimensions.
#[test]
fn rows_of_every_length() {
    for n in [16, 17, 40, 90, 100, 255] {
        let shape = format!("f32[600,{n}]");
        let parameters =
            format!("a = f32[600,24] parameter(0)\n  b = f32[24,{n}] parameter(1)\n  c = {shape} parameter(2)");
        check_both(&parameters, (&shape, DOT), &format!("y = {shape} add(x, c)"), &shape);
        let parameters =
            format!("a = f32[600,24] parameter(0)\n  b = f32[24,{n}] parameter(1)\n  c = f32[{n}] parameter(2)");
        let follows = format!("cs = {shape} broadcast(c), dimensions={{1}}\n  y = {shape} multiply(x, cs)");
        check_both(&parameters, (&shape, DOT), &follows, &shape);
    }
    let batched =
        "dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}";
    for (m, n) in [(64, 96), (50, 72), (33, 100)] {
        let shape = format!("f32[5,{m},{n}]");
        let parameters =
            format!("a = f32[5,{m},33] parameter(0)\n  b = f32[5,33,{n}] parameter(1)\n  c = {shape} parameter(2)");
        check_both(&parameters, (&shape, batched), &format!("y = {shape} add(x, c)"), &shape);
        let follows = format!(
            "d = f32[] constant(0.125)\n  ds = {shape} broadcast(d), dimensions={{}}\n  y = {shape} multiply(x, ds)"
        );
        check_both(&parameters, (&shape, batched), &follows, &shape);
    }
    // The product has other dimensions than what follows, in the same order.
    let parameters = "a = f32[192,40] parameter(0)\n  b = f32[40,96] parameter(1)\n  c = f32[8,12] parameter(2)";
    let follows = "v = f32[4,48,8,12] reshape(x)\n  cs = f32[4,48,8,12] broadcast(c), dimensions={2,3}\n  \
                   y = f32[4,48,8,12] add(v, cs)";
    check_both(parameters, ("f32[192,96]", DOT), follows, "f32[4,48,8,12]");
    // One row of a table, found by an index, is added.
    let parameters = "a = f32[192,40] parameter(0)\n  b = f32[40,96] parameter(1)\n  c = f32[3,96] parameter(2)\n  \
                      i = s32[] parameter(3)\n  z = s32[] constant(0)";
    let follows = "d = f32[1,96] dynamic-slice(c, i, z), dynamic_slice_sizes={1,96}\n  v = f32[96] reshape(d)\n  \
                   cs = f32[192,96] broadcast(v), dimensions={1}\n  y = f32[192,96] add(x, cs)";
    check_both(parameters, ("f32[192,96]", DOT), follows, "f32[192,96]");
}

/// Images with features last and first, windows of several sizes, with a bias and a bound, or scaled, shifted and added to
/// another image.
#[test]
fn what_follows_a_convolution() {
    let last = |k: usize, pad: usize, stride: usize| {
        format!(
            "convolution(a, b), window={{size={k}x{k} stride={stride}x{stride} pad={pad}_{pad}x{pad}_{pad}}}, \
             dim_labels=b01f_01io->b01f"
        )
    };
    let convolutions = [
        ("f32[2,19,23,20]", "f32[3,3,20,48]", "f32[2,19,23,48]", last(3, 1, 1), 3),
        ("f32[1,32,32,20]", "f32[1,1,20,32]", "f32[1,32,32,32]", last(1, 0, 1), 3),
        ("f32[3,32,32,3]", "f32[5,5,3,16]", "f32[3,16,16,16]", last(5, 2, 2), 3),
        ("bf16[2,19,23,20]", "bf16[3,3,20,48]", "bf16[2,19,23,48]", last(3, 1, 1), 3),
        (
            "f32[3,20,19,23]",
            "f32[32,20,3,3]",
            "f32[3,32,19,23]",
            last(3, 1, 1).replace("b01f_01io->b01f", "bf01_oi01->bf01"),
            1,
        ),
        (
            "f32[3,20,16,16]",
            "f32[32,20,1,1]",
            "f32[3,32,16,16]",
            last(1, 0, 1).replace("b01f_01io->b01f", "bf01_oi01->bf01"),
            1,
        ),
    ];
    for (a, b, shape, convolution, feature) in convolutions {
        let (t, _) = shape.split_once('[').expect("a type");
        let dims: Vec<&str> = shape[t.len() + 1..shape.len() - 1].split(',').collect();
        let row = format!("{t}[{}]", dims[feature]);
        let operands = format!("a = {a} parameter(0)\n  b = {b} parameter(1)\n  c = {row} parameter(2)");
        let along = |name: &str| format!("{name}s = {shape} broadcast({name}), dimensions={{{feature}}}");
        let zeros = format!("z = {t}[] constant(0)\n  zs = {shape} broadcast(z), dimensions={{}}");
        let follows = format!("{}\n  s = {shape} add(x, cs)\n  {zeros}\n  y = {shape} maximum(s, zs)", along("c"));
        check_both(&operands, (shape, &convolution), &follows, shape);
        let operands = format!("{operands}\n  d = {row} parameter(3)\n  o = {shape} parameter(4)");
        let follows = format!(
            "{}\n  {}\n  m = {shape} multiply(x, cs)\n  s = {shape} add(m, ds)\n  w = {shape} add(s, o)\n  {zeros}\n  \
             y = {shape} maximum(w, zs)",
            along("c"),
            along("d")
        );
        check_both(&operands, (shape, &convolution), &follows, shape);
    }
}

/// Two results of one product: a function of it, and whether it is positive.
#[test]
fn several_results() {
    let text = "HloModule m\nENTRY e {\n  a = f32[192,40] parameter(0)\n  b = f32[40,96] parameter(1)\n  \
                c = f32[96] parameter(2)\n  x = f32[192,96] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n  \
                cs = f32[192,96] broadcast(c), dimensions={1}\n  s = f32[192,96] add(x, cs)\n  \
                z = f32[] constant(0)\n  zs = f32[192,96] broadcast(z), dimensions={}\n  \
                p = pred[192,96] compare(s, zs), direction=GT\n  t = f32[192,96] tanh(s)\n  \
                ROOT r = (f32[192,96], pred[192,96]) tuple(t, p)\n}\n";
    check(text, 1);
}

/// In a loop the result takes the place of an operand: of one that is read element by element, and of one that the product
/// reads.
#[test]
fn in_a_loop_in_the_place_of_an_operand() {
    for next in ["x = f32[128,128] dot(a, b)", "x = f32[128,128] dot(a, w)", "x = f32[128,128] dot(w, w)"] {
        for follows in ["subtract(w, u)", "add(w, u)", "add(u, b)"] {
            let text = format!(
                "HloModule m\n\
                 condition {{\n  p = (s32[], f32[128,128], f32[128,128], f32[128,128]) parameter(0)\n  \
                 i = s32[] get-tuple-element(p), index=0\n  n = s32[] constant(5)\n  \
                 ROOT l = pred[] compare(i, n), direction=LT\n}}\n\
                 body {{\n  p = (s32[], f32[128,128], f32[128,128], f32[128,128]) parameter(0)\n  \
                 i = s32[] get-tuple-element(p), index=0\n  w = f32[128,128] get-tuple-element(p), index=1\n  \
                 a = f32[128,128] get-tuple-element(p), index=2\n  b = f32[128,128] get-tuple-element(p), index=3\n  \
                 {next}, lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n  \
                 k = f32[] constant(0.001)\n  ks = f32[128,128] broadcast(k), dimensions={{}}\n  \
                 u = f32[128,128] multiply(x, ks)\n  y = f32[128,128] {follows}\n  \
                 one = s32[] constant(1)\n  j = s32[] add(i, one)\n  \
                 ROOT t = (s32[], f32[128,128], f32[128,128], f32[128,128]) tuple(j, y, a, b)\n}}\n\
                 ENTRY e {{\n  w = f32[128,128] parameter(0)\n  a = f32[128,128] parameter(1)\n  \
                 b = f32[128,128] parameter(2)\n  z = s32[] constant(0)\n  \
                 t = (s32[], f32[128,128], f32[128,128], f32[128,128]) tuple(z, w, a, b)\n  \
                 l = (s32[], f32[128,128], f32[128,128], f32[128,128]) while(t), condition=condition, body=body\n  \
                 ROOT r = f32[128,128] get-tuple-element(l), index=1\n}}\n"
            );
            check(&text, 1);
        }
    }
}

/// One product after another, each with what follows: the second must not begin before the first is done with its memory.
#[test]
fn several_in_a_row() {
    let mut text = "HloModule m\nENTRY e {\n  x0 = f32[160,128] parameter(0)\n".to_owned();
    for n in 0..4 {
        text += &format!(
            "  w{n} = f32[128,128] parameter({})\n  b{n} = f32[128] parameter({})\n  \
             d{n} = f32[160,128] dot(x{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n  \
             bias{n} = f32[160,128] broadcast(b{n}), dimensions={{1}}\n  sum{n} = f32[160,128] add(d{n}, bias{n})\n  \
             t{n} = f32[160,128] tanh(sum{n})\n  x{} = f32[160,128] add(t{n}, x{n})\n",
            2 * n + 1,
            2 * n + 2,
            n + 1
        );
    }
    check(&(text + "  ROOT r = f32[160,128] negate(x4)\n}\n"), 4);
}

/// So many results that no cache holds them: rows are worked on in their place, as soon as they are there.
#[test]
fn more_results_than_caches_hold() {
    let convolution = "convolution(a, b), window={size=1x3 pad=0_0x1_1}, dim_labels=b01f_01io->b01f";
    let cases = [
        ("f32[4200,8]", "f32[8,1001]", "f32[4200,1001]", "1", DOT),
        ("bf16[4200,8]", "bf16[8,1024]", "bf16[4200,1024]", "1", DOT),
        ("f32[5,100,840,2]", "f32[1,3,2,16]", "f32[5,100,840,16]", "3", convolution),
    ];
    for (a, b, shape, last, product) in cases {
        let columns = shape.rsplit(',').next().expect("dimensions").trim_end_matches(']');
        let t = shape.split('[').next().expect("a type");
        let follows = [
            format!(
                "c = {t}[{columns}] parameter(2)\n  cs = {shape} broadcast(c), dimensions={{{last}}}\n  y = {shape} add(x, cs)"
            ),
            format!("c = {shape} parameter(2)\n  y = {shape} subtract(c, x)"),
        ];
        for follows in follows {
            let program = |root: &str| {
                format!(
                    "HloModule m\nENTRY e {{\n  a = {a} parameter(0)\n  b = {b} parameter(1)\n  x = {shape} {product}\n  \
                     {follows}\n  {root}\n}}\n"
                )
            };
            let (fused, apart) = (
                program(&format!("ROOT r = ({shape}) tuple(y)")),
                program(&format!("ROOT r = ({shape}, {shape}) tuple(y, x)")),
            );
            let arguments = arguments(&fused);
            let first = |v: Value| match v {
                Value::Tuple(elements) => elements.into_iter().next().expect("one"),
                other => other,
            };
            let expected = first(results(&apart, &arguments, 2).0);
            for threads in [1, 3] {
                let (found, compiled) = results(&fused, &arguments, threads);
                assert_eq!(output_fusions(&compiled), usize::from(cfg!(feature = "llvm")), "{fused}");
                compare(&[first(found)], std::slice::from_ref(&expected), Agreement::Exact)
                    .unwrap_or_else(|e| panic!("{threads} threads: {e}\n{fused}"));
            }
        }
    }
}

//! Kernels of single instructions and of fusions, by hand, against the evaluator.

mod common;

use common::{check_all, check_in_place, check_mild, program};
use hloom_llvm::{Options, Refused, compile};
use hloom_loops::KernelRequest;

/// A module whose entry is one instruction on parameters.
fn single(parameters: &[&str], root: &str) -> String {
    let mut text = String::from("HloModule m\nENTRY e {\n");
    for (n, shape) in parameters.iter().enumerate() {
        text += &format!("  p{n} = {shape} parameter({n})\n");
    }
    text + &format!("  ROOT r = {root}\n}}\n")
}

const REALS: [&str; 12] = ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"];

#[test]
fn arithmetic_of_every_type() {
    for t in REALS {
        for op in ["add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder"] {
            for n in [1, 7, 16, 133] {
                let shape = format!("{t}[{n}]");
                check_all(&single(&[&shape, &shape], &format!("{shape} {op}(p0, p1)")), n);
            }
        }
    }
}

#[test]
fn quotients_of_complex_numbers() {
    for t in ["c64", "c128"] {
        for n in [1, 16, 133] {
            let shape = format!("{t}[{n}]");
            check_all(&single(&[&shape, &shape], &format!("{shape} divide(p0, p1)")), 30 + n);
        }
    }
}

#[test]
fn bits_of_integers() {
    for t in ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"] {
        let shape = format!("{t}[77]");
        for op in ["and", "or", "xor", "shift-left", "shift-right-logical", "shift-right-arithmetic", "power"] {
            check_all(&single(&[&shape, &shape], &format!("{shape} {op}(p0, p1)")), 3);
        }
        for op in ["not", "negate", "abs", "sign", "popcnt", "count-leading-zeros"] {
            if t.starts_with('u') && matches!(op, "abs" | "sign" | "negate") {
                continue;
            }
            check_all(&single(&[&shape], &format!("{shape} {op}(p0)")), 4);
        }
    }
}

#[test]
fn conversions_between_all_types() {
    for from in REALS.iter().chain(&["pred"]) {
        for to in REALS.iter().chain(&["pred"]) {
            check_all(&single(&[&format!("{from}[131]")], &format!("{to}[131] convert(p0)")), 5);
        }
    }
}

#[test]
fn comparisons_selection_and_clamping() {
    for t in REALS {
        let shape = format!("{t}[5,21]");
        for direction in ["EQ", "NE", "LT", "LE", "GT", "GE"] {
            check_all(&single(&[&shape, &shape], &format!("pred[5,21] compare(p0, p1), direction={direction}")), 6);
        }
        check_all(&single(&["pred[5,21]", &shape, &shape], &format!("{shape} select(p0, p1, p2)")), 7);
        check_all(&single(&[&format!("{t}[]"), &shape, &format!("{t}[]")], &format!("{shape} clamp(p0, p1, p2)")), 8);
    }
    for t in ["f16", "bf16", "f32", "f64"] {
        let root = "pred[99] compare(p0, p1), direction=LT, type=TOTALORDER";
        check_all(&single(&[&format!("{t}[99]"), &format!("{t}[99]")], root), 9);
    }
}

#[test]
fn rounding_and_signs_of_floats() {
    for t in ["f16", "bf16", "f32", "f64"] {
        let shape = format!("{t}[99]");
        for op in ["abs", "negate", "sign", "floor", "ceil", "round-nearest-afz", "round-nearest-even", "sqrt", "rsqrt"]
        {
            check_all(&single(&[&shape], &format!("{shape} {op}(p0)")), 10);
        }
        check_all(&single(&[&shape], "pred[99] is-finite(p0)"), 11);
        for (e, m) in [(5, 10), (8, 7), (4, 3), (8, 23), (2, 1)] {
            let root = format!("{shape} reduce-precision(p0), exponent_bits={e}, mantissa_bits={m}");
            check_all(&single(&[&shape], &root), 12);
        }
    }
    check_all(&single(&["f32[40]"], "u32[40] bitcast-convert(p0)"), 13);
    check_all(&single(&["bf16[40]"], "u16[40] bitcast-convert(p0)"), 14);
    check_all(&single(&["s64[40]"], "f64[40] bitcast-convert(p0)"), 15);
    check_all(&single(&["u16[40]"], "f16[40] bitcast-convert(p0)"), 16);
}

#[test]
fn data_elsewhere() {
    let cases: &[(&[&str], &str)] = &[
        (&["f32[3,5]"], "f32[4,3,2,5] broadcast(p0), dimensions={1,3}"),
        (&["bf16[]"], "bf16[40,3] broadcast(p0), dimensions={}"),
        (&["f32[20,33]"], "f32[33,20] transpose(p0), dimensions={1,0}"),
        (&["f32[48,64]"], "f32[64,48] transpose(p0), dimensions={1,0}"),
        (&["bf16[3,50,37]"], "bf16[37,3,50] transpose(p0), dimensions={2,0,1}"),
        (&["f64[3,18,5,21]"], "f64[3,21,5,18] transpose(p0), dimensions={0,3,2,1}"),
        (&["c64[20,19]"], "c64[19,20] transpose(p0), dimensions={1,0}"),
        (&["f32[9,100]"], "f32[5,34] slice(p0), slice={[0:9:2], [0:100:3]}"),
        (&["s8[300]"], "s8[150] slice(p0), slice={[1:300:2]}"),
        (&["f64[7,67]"], "f64[7,17] slice(p0), slice={[0:7], [0:67:4]}"),
        (&["bf16[201]"], "bf16[67] slice(p0), slice={[0:201:3]}"),
        (&["c128[20,19]"], "c128[19,20] transpose(p0), dimensions={1,0}"),
        (&["s8[70,66]"], "s8[66,70] transpose(p0), dimensions={1,0}"),
        (&["u8[4,5,6]"], "u8[6,4,5] transpose(p0), dimensions={2,0,1}"),
        (&["f32[4,6,5]"], "f32[24,5] reshape(p0)"),
        (&["f32[4,6]"], "f32[3,8] reshape(p0)"),
        (&["f32[7,40]"], "f32[7,40] reverse(p0), dimensions={1}"),
        (&["f32[7,40]"], "f32[7,40] reverse(p0), dimensions={0}"),
        (&["f32[10,40]"], "f32[4,18] slice(p0), slice={[1:9:2], [3:21]}"),
        (&["f32[10,40]"], "f32[4,6] slice(p0), slice={[1:9:2], [3:21:3]}"),
        (&["f32[3,20]", "f32[]"], "f32[6,25] pad(p0, p1), padding=1_2x2_3"),
        (&["f32[3,20]", "f32[]"], "f32[2,51] pad(p0, p1), padding=0_-1x-3_15_1"),
        (&["s16[3,4]", "s16[2,4]", "s16[5,4]"], "s16[10,4] concatenate(p0, p1, p2), dimensions={0}"),
        (&["f32[7,2,8]", "f32[7,0,8]", "f32[7,3,8]"], "f32[7,5,8] concatenate(p0, p1, p2), dimensions={1}"),
        (&["f64[3,4]", "f64[3,9]"], "f64[3,13] concatenate(p0, p1), dimensions={1}"),
        (&["f32[10,20]", "s32[]", "s32[]"], "f32[3,7] dynamic-slice(p0, p1, p2), dynamic_slice_sizes={3,7}"),
        (&["f32[10,20]", "f32[3,7]", "s32[]", "s32[]"], "f32[10,20] dynamic-update-slice(p0, p1, p2, p3)"),
        (&[], "s32[5,40] iota(), iota_dimension=1"),
        (&[], "f32[70,3] iota(), iota_dimension=0"),
        (&["c64[13]", "c64[13]"], "c64[13] multiply(p0, p1)"),
        (&["c64[13]"], "f32[13] imag(p0)"),
        (&["f32[37]", "f32[37]"], "c64[37] complex(p0, p1)"),
        (&["f32[10,20]"], "f32[10,20] copy(p0)"),
        (&["f32[0,20]"], "f32[0,20] negate(p0)"),
        (&["f32[]"], "f32[] negate(p0)"),
    ];
    for (parameters, root) in cases {
        check_all(&single(parameters, root), 20);
    }
}

#[test]
fn gathers() {
    let cases = [
        (
            "f32[50,24]",
            "s32[7]",
            "f32[7,24]",
            "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,24}",
        ),
        (
            "f32[50,24]",
            "s64[7,2]",
            "f32[7]",
            "offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,1}",
        ),
        (
            "f32[9,24]",
            "u8[2,3]",
            "f32[3,5,4]",
            "offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={1,0}, index_vector_dim=0, slice_sizes={5,4}",
        ),
        (
            "bf16[4,30]",
            "s32[4,6,1]",
            "bf16[4,6]",
            "offset_dims={}, collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1}",
        ),
    ];
    for (operand, indices, shape, attributes) in cases {
        check_all(&single(&[operand, indices], &format!("{shape} gather(p0, p1), {attributes}")), 30);
    }
}

fn reduction(op: &str, t: &str, from: &str, to: &str, dimensions: &str) -> String {
    format!(
        "HloModule m\nf {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT c = {t}[] {op}(a, b)\n}}\n\
         ENTRY e {{\n  x = {t}[{from}] parameter(0)\n  i = {t}[] parameter(1)\n  \
         ROOT r = {t}[{to}] reduce(x, i), dimensions={{{dimensions}}}, to_apply=f\n}}\n"
    )
}

#[test]
fn reductions_along_any_dimension() {
    let shapes = [
        ("100", "", "0"),
        ("3", "", "0"),
        ("5,130", "5", "1"),
        ("5,130", "130", "0"),
        ("4,6,70", "4,70", "1"),
        ("4,6,70", "6", "0,2"),
        ("4,6,70", "", "0,1,2"),
        ("64,3", "3", "0"),
        ("64,3", "64", "1"),
        ("3,0", "3", "1"),
        ("200,300", "300", "0"),
    ];
    for t in ["f32", "bf16", "s32", "f64", "u8"] {
        for op in ["add", "maximum", "minimum"] {
            for (from, to, dimensions) in shapes {
                check_mild(&reduction(op, t, from, to, dimensions), 40);
            }
        }
    }
    check_mild(&reduction("multiply", "s32", "5,130", "5", "1"), 41);
    check_mild(&reduction("and", "pred", "5,130", "5", "1"), 42);
    check_mild(&reduction("or", "pred", "5,130", "130", "0"), 42);
}

#[test]
fn the_greatest_and_least_with_special_values() {
    let text = |op: &str, t: &str, to: &str, dimension: &str| {
        // Every 97th number in a row of 40 × 70 is the same special one; some rows and columns have none.
        let specials = ["-nan", "nan", "inf", "-inf", "-0", "0"].iter().enumerate();
        let replaced: String = specials
            .map(|(n, special)| {
                format!(
                    "  v{n} = {t}[] constant({special})\n  all{n} = {t}[40,70] broadcast(v{n}), dimensions={{}}\n  \
                     k{n} = s32[] constant({})\n  w{n} = s32[40,70] broadcast(k{n}), dimensions={{}}\n  \
                     is{n} = pred[40,70] compare(place, w{n}), direction=EQ\n  \
                     x{} = {t}[40,70] select(is{n}, all{n}, x{n})\n",
                    7 * n,
                    n + 1
                )
            })
            .collect();
        format!(
            "HloModule m\nf {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT c = {t}[] {op}(a, b)\n}}\n\
             ENTRY e {{\n  x0 = {t}[40,70] parameter(0)\n  i = {t}[] parameter(1)\n  \
             line = s32[2800] iota(), iota_dimension=0\n  number = s32[40,70] reshape(line)\n  \
             every = s32[] constant(97)\n  all = s32[40,70] broadcast(every), dimensions={{}}\n  \
             place = s32[40,70] remainder(number, all)\n{replaced}  \
             ROOT r = {t}[{to}] reduce(x6, i), dimensions={{{dimension}}}, to_apply=f\n}}\n"
        )
    };
    for t in ["f32", "bf16", "f16", "f64"] {
        for op in ["maximum", "minimum"] {
            check_mild(&text(op, t, "40", "1"), 43);
            check_mild(&text(op, t, "70", "0"), 44);
        }
    }
}

#[test]
fn the_place_of_the_greatest() {
    let text = |from: &str, to: &str, dimension: &str| {
        format!(
            "HloModule m\nf {{\n  a = f32[] parameter(0)\n  i = s32[] parameter(1)\n  b = f32[] parameter(2)\n  \
             j = s32[] parameter(3)\n  gt = pred[] compare(a, b), direction=GT\n  ne = pred[] compare(a, a), direction=NE\n  \
             or = pred[] or(gt, ne)\n  eq = pred[] compare(a, b), direction=EQ\n  lt = pred[] compare(i, j), direction=LT\n  \
             and = pred[] and(eq, lt)\n  or2 = pred[] or(or, and)\n  m = f32[] select(or, a, b)\n  k = s32[] select(or2, i, j)\n  \
             ROOT t = (f32[], s32[]) tuple(m, k)\n}}\n\
             ENTRY e {{\n  x = f32[{from}] parameter(0)\n  n = s32[{from}] iota(), iota_dimension={dimension}\n  \
             low = f32[] constant(-inf)\n  zero = s32[] constant(0)\n  \
             ROOT r = (f32[{to}], s32[{to}]) reduce(x, n, low, zero), dimensions={{{dimension}}}, to_apply=f\n}}\n"
        )
    };
    for (from, to, dimension) in [("5,130", "5", "1"), ("130,5", "5", "0"), ("7", "", "0"), ("64,64", "64", "0")] {
        check_all(&text(from, to, dimension), 50);
    }
}

#[test]
fn windows() {
    let text = |t: &str, op: &str, from: &str, to: &str, window: &str| {
        format!(
            "HloModule m\nf {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT c = {t}[] {op}(a, b)\n}}\n\
             ENTRY e {{\n  x = {t}[{from}] parameter(0)\n  i = {t}[] parameter(1)\n  \
             ROOT r = {t}[{to}] reduce-window(x, i), window={{{window}}}, to_apply=f\n}}\n"
        )
    };
    check_mild(&text("f32", "add", "8,40", "4,20", "size=2x2 stride=2x2"), 60);
    check_mild(&text("f32", "maximum", "8,40", "8,40", "size=3x3 pad=1_1x1_1"), 61);
    check_mild(&text("bf16", "add", "1,9,9,20", "1,4,4,20", "size=1x3x3x1 stride=1x2x2x1"), 62);
    check_all(&text("s32", "add", "10", "6", "size=3 rhs_dilate=2"), 63);
}

#[test]
fn prefix_scans() {
    let run = |op: &str, t: &str, dims: &str, window: &str, init: &str| {
        check_mild(
            &format!(
                "HloModule m\nf {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT r = {t}[] {op}(a, b)\n}}\n\
                 ENTRY e {{\n  p0 = {t}[{dims}] parameter(0)\n  i = {t}[] constant({init})\n  \
                 ROOT r = {t}[{dims}] reduce-window(p0, i), window={{{window}}}, to_apply=f\n}}\n"
            ),
            6,
        );
    };
    for t in ["f32", "bf16", "f64", "s32", "u8"] {
        // Along the last dimension, the first, and one in the middle; to the first element and to the last.
        run("add", t, "5,40", "size=1x40 pad=0_0x39_0", "0");
        run("add", t, "40,21", "size=40x1 pad=39_0x0_0", "0");
        run("add", t, "3,19,5", "size=1x19x1 pad=0_0x0_18x0_0", "0");
        run("maximum", t, "70,9", "size=1x9 pad=0_0x0_8", "0");
        run("minimum", t, "300", "size=300 pad=299_0", "0");
    }
}

#[test]
fn scans_down_many_columns() {
    for (t, dims) in [("f32", "9,700"), ("s32", "3,9,260"), ("f64", "70,9,3")] {
        let rank = dims.split(',').count();
        let (size, pad) = if rank == 2 { ("9x1", "8_0x0_0") } else { ("1x9x1", "0_0x8_0x0_0") };
        check_mild(
            &format!(
                "HloModule m\nf {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT r = {t}[] add(a, b)\n}}\n\
                 ENTRY e {{\n  p0 = {t}[{dims}] parameter(0)\n  i = {t}[] constant(0)\n  \
                 ROOT r = {t}[{dims}] reduce-window(p0, i), window={{size={size} pad={pad}}}, to_apply=f\n}}\n"
            ),
            10,
        );
    }
}

#[test]
fn columns_side_by_side() {
    // Each part is written with the others between its elements.
    for t in REALS.into_iter().chain(["pred", "c64", "c128", "f8e5m2"]) {
        for (n, parts) in [(1, 2), (5, 3), (16, 2), (70, 3), (133, 4), (200, 5)] {
            let shape = format!("{t}[{n},1]");
            let operands: Vec<String> = (0..parts).map(|p| format!("p{p}")).collect();
            let root = format!("{t}[{n},{parts}] concatenate({}), dimensions={{1}}", operands.join(", "));
            check_all(&single(&vec![&shape[..]; parts], &root), 11);
        }
    }
}

#[test]
fn reductions_of_every_other_element() {
    for (t, op) in [("f32", "add"), ("f32", "maximum"), ("f64", "minimum"), ("bf16", "maximum"), ("s8", "add")] {
        for (n, stride) in [(7, 2), (133, 2), (100, 3), (70, 4), (70, 5)] {
            check_mild(
                &format!(
                    "HloModule m\ng {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT r = {t}[] {op}(a, b)\n}}\n\
                     f {{\n  p0 = {t}[{n},{stride}] parameter(0)\n  i = {t}[] parameter(1)\n  \
                     x = {t}[{n},1] slice(p0), slice={{[0:{n}], [1:2]}}\n  \
                     ROOT r = {t}[1] reduce(x, i), dimensions={{0}}, to_apply=g\n}}\n\
                     ENTRY e {{\n  p0 = {t}[{n},{stride}] parameter(0)\n  i = {t}[] constant(1)\n  \
                     ROOT r = {t}[1] fusion(p0, i), kind=kInput, calls=f\n}}\n"
                ),
                12,
            );
        }
    }
}

#[test]
fn floats_become_the_nearest_integers_that_there_are() {
    let limits = [31, 32, 63, 64].map(|n| 2f64.powi(n));
    let mut values = vec![0.0, -0.0, 0.9, -0.9, 1.5, -1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e30, -1e30];
    for limit in limits {
        let next = |x: f64, by: i32| f64::from(f32::from_bits((x as f32).to_bits().wrapping_add_signed(by)));
        let (f32s, f64s) = ([next(limit, -1), next(limit, 1)], [limit.next_down(), limit.next_up()]);
        values.extend([limit, limit - 1.0, limit + 1.0].into_iter().chain(f32s).chain(f64s).flat_map(|v| [v, -v]));
    }
    let list: Vec<String> = values.iter().map(|v| v.to_string().replace("NaN", "nan")).collect();
    let (n, list) = (values.len(), list.join(", "));
    for from in ["f32", "f64", "bf16"] {
        for to in ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"] {
            check_all(
                &format!(
                    "HloModule m\nf {{\n  x = f64[{n}] parameter(0)\n  y = {from}[{n}] convert(x)\n  \
                     ROOT r = {to}[{n}] convert(y)\n}}\nENTRY e {{\n  c = f64[{n}] constant({{{list}}})\n  \
                     ROOT r = {to}[{n}] fusion(c), kind=kLoop, calls=f\n}}\n"
                ),
                13,
            );
        }
    }
}

#[test]
fn a_running_fold_of_two_arrays() {
    // The greatest so far and where it stands, from the end.
    let text = "HloModule m\nf {\n  a = f32[] parameter(0)\n  i = s32[] parameter(1)\n  b = f32[] parameter(2)\n  \
        j = s32[] parameter(3)\n  c = pred[] compare(a, b), direction=GE\n  x = f32[] select(c, a, b)\n  \
        y = s32[] select(c, i, j)\n  ROOT r = (f32[], s32[]) tuple(x, y)\n}\nENTRY e {\n  \
        p0 = f32[4,33] parameter(0)\n  n = s32[4,33] iota(), iota_dimension=1\n  low = f32[] constant(-inf)\n  \
        zero = s32[] constant(0)\n  ROOT r = (f32[4,33], s32[4,33]) reduce-window(p0, n, low, zero), \
        window={size=1x33 pad=0_0x0_32}, to_apply=f\n}\n";
    check_all(text, 9);
}

#[test]
fn chains_of_bf16_are_rounded_where_it_shows() {
    let t = "bf16[3,50]";
    let text = format!(
        "HloModule m\nf {{\n  a = {t} parameter(0)\n  b = {t} parameter(1)\n  s = {t} add(a, b)\n  m = {t} multiply(s, b)\n  \
         d = {t} subtract(m, a)\n  e = pred[3,50] compare(d, m), direction=EQ\n  n = {t} negate(d)\n  w = {t} select(e, d, n)\n  \
         bits = u16[3,50] bitcast-convert(s)\n  whole = s32[3,50] convert(m)\n  \
         ROOT r = ({t}, pred[3,50], u16[3,50], s32[3,50]) tuple(w, e, bits, whole)\n}}\n\
         ENTRY e {{\n  p0 = {t} parameter(0)\n  p1 = {t} parameter(1)\n  \
         ROOT r = ({t}, pred[3,50], u16[3,50], s32[3,50]) fusion(p0, p1), kind=kLoop, calls=f\n}}\n"
    );
    check_mild(&text, 8);
}

#[test]
fn fusions() {
    // softmax: two reductions in the middle, each once a row.
    let softmax = "HloModule m
max { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] maximum(a, b) }
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
body {
  x = f32[6,50] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[6] reduce(x, low), dimensions={1}, to_apply=max
  mb = f32[6,50] broadcast(m), dimensions={0}
  d = f32[6,50] subtract(x, mb)
  e = f32[6,50] multiply(d, d)
  s = f32[6] reduce(e, zero), dimensions={1}, to_apply=add
  sb = f32[6,50] broadcast(s), dimensions={0}
  ROOT r = f32[6,50] divide(e, sb)
}
ENTRY e { p = f32[6,50] parameter(0)
 ROOT f = f32[6,50] fusion(p), kind=kLoop, calls=body }
";
    check_mild(softmax, 70);
    // Reshapes whose sizes have nothing in common, so that indices are divided: rows shifted one against the other.
    let shifted = "HloModule m
body {
  x = f32[3,16,40] parameter(0)
  zero = f32[] constant(0)
  p = f32[3,16,41] pad(x, zero), padding=0_0x0_0x1_0
  q = f32[3,656] reshape(p)
  r = f32[3,41,16] reshape(q)
  s = f32[3,40,16] slice(r), slice={[0:3], [1:41], [0:16]}
  t = f32[3,16,40] reshape(s)
  u = f32[3,48,40] pad(t, zero), padding=0_0x16_16x0_0
  v = f32[40,3,48] reshape(u)
  w = f32[40,3,48] add(v, v)
  y = f32[120,48] reshape(w)
  ROOT z = f32[48,120] transpose(y), dimensions={1,0}
}
ENTRY e { p = f32[3,16,40] parameter(0)
 ROOT f = f32[48,120] fusion(p), kind=kLoop, calls=body }
";
    check_mild(shifted, 71);
    // Several results of different sizes, and a reshape that splits a loop.
    let several = "HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
body {
  x = f32[12,40] parameter(0)
  y = f32[40] parameter(1)
  yb = f32[12,40] broadcast(y), dimensions={1}
  z = f32[12,40] multiply(x, yb)
  zero = f32[] constant(0)
  s = f32[40] reduce(z, zero), dimensions={0}, to_apply=add
  r = f32[3,4,40] reshape(z)
  t = f32[4,3,40] transpose(r), dimensions={1,0,2}
  u = f32[480] reshape(t)
  ROOT out = (f32[12,40], f32[40], f32[480], f32[12,40]) tuple(z, s, u, x)
}
ENTRY e { p = f32[12,40] parameter(0)
 q = f32[40] parameter(1)
 ROOT f = (f32[12,40], f32[40], f32[480], f32[12,40]) fusion(p, q), kind=kLoop, calls=body }
";
    check_mild(several, 71);

    // A transpose beside other operands, written the same way round.
    let transposed = "HloModule m
body {
  x = f32[40,33] parameter(0)
  y = f32[33,40] parameter(1)
  t = f32[33,40] transpose(x), dimensions={1,0}
  s = f32[33,40] add(t, y)
  ROOT r = f32[33,40] multiply(s, t)
}
ENTRY e { p = f32[40,33] parameter(0)
 q = f32[33,40] parameter(1)
 ROOT f = f32[33,40] fusion(p, q), kind=kLoop, calls=body }
";
    check_all(transposed, 72);
    // One element more than fills the vectors, compared on the way.
    let odd = "HloModule m
body {
  x = f64[25] parameter(0)
  y = f64[25] parameter(1)
  zero = f64[] constant(0)
  z = f64[25] broadcast(zero), dimensions={}
  p = f64[25] multiply(x, y)
  c = pred[25] compare(p, z), direction=EQ
  s = f64[25] select(c, x, p)
  d = f64[25] divide(y, s)
  ROOT r = f64[25] select(c, z, d)
}
ENTRY e { p = f64[25] parameter(0)
 q = f64[25] parameter(1)
 ROOT f = f64[25] fusion(p, q), kind=kLoop, calls=body }
";
    check_all(odd, 73);
}

#[test]
fn scatters_of_the_least_and_the_greatest() {
    // Whole vectors of plain numbers, and some with NaN or a zero among them; places out of range and in common.
    let list = |n: usize, of: fn(usize) -> String| (0..n).map(of).collect::<Vec<_>>().join(", ");
    let values = |i: usize| match i % 64 {
        40 => "nan".to_string(),
        n @ (50 | 51 | 60 | 61) => if n % 2 == 0 { "-0" } else { "0" }.to_string(),
        n => ((n * 37 % 64) as f64 - 30.5).to_string(),
    };
    let places = |i: usize| (i * 29 % 23).to_string();
    let far = |i: usize| (i as i64 * 29 % 27 - 2).to_string();
    let starts = |i: usize| ["0", "-0", "nan", "3", "-40", "inf"][i % 6].to_string();
    for t in ["f32", "f64", "bf16", "s32"] {
        for op in ["minimum", "maximum"] {
            for places in [places, far] {
                let (n, is_float) = (150, t != "s32");
                let number = |text: String| if is_float { text } else { text.replace("nan", "1").replace("inf", "9") };
                let whole = |text: String| if is_float { text } else { text.replace(".5", "") };
                let (x, u) = (whole(number(list(23, starts))), whole(number(list(n, values))));
                check_all(
                    &format!(
                        "HloModule m\nf {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  \
                         ROOT c = {t}[] {op}(a, b)\n}}\nENTRY e {{\n  x = {t}[23] constant({{{x}}})\n  \
                         i = s32[{n},1] constant({{{}}})\n  u = {t}[{n}] constant({{{u}}})\n  \
                         ROOT r = {t}[23] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0}}, \
                         scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f\n}}\n",
                        list(n, places).split(", ").map(|p| format!("{{{p}}}")).collect::<Vec<_>>().join(", ")
                    ),
                    14,
                );
            }
        }
    }
}

#[test]
fn scatters() {
    let text = |t: &str, op: &str, operand: &str, indices: &str, update: &str, attributes: &str| {
        let root = if op == "parameter" {
            format!("ROOT c = {t}[] parameter(1)\n")
        } else {
            format!("b = {t}[] parameter(1)\n  ROOT c = {t}[] {op}(a, b)\n")
        };
        format!(
            "HloModule m\nf {{\n  a = {t}[] parameter(0)\n  {root}}}\nENTRY e {{\n  x = {t}[{operand}] parameter(0)\n  \
             i = s32[{indices}] parameter(1)\n  u = {t}[{update}] parameter(2)\n  \
             ROOT r = {t}[{operand}] scatter(x, i, u), {attributes}, to_apply=f\n}}\n"
        )
    };
    let rows = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1";
    let points =
        "update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1";
    let windows =
        "update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1";
    for op in ["add", "parameter", "maximum"] {
        check_mild(&text("f32", op, "9,20", "12", "12,20", rows), 80);
        check_mild(&text("s32", op, "9,20", "30,2", "30", points), 81);
        check_mild(&text("bf16", op, "9,20", "5,2", "5,3,18", windows), 82);
    }
    // Into an array that the fusion makes.
    let made = "HloModule m
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
body {
  i = s32[12] parameter(0)
  u = f32[12,20] parameter(1)
  one = f32[] constant(1)
  x = f32[9,20] broadcast(one), dimensions={}
  v = f32[12,20] multiply(u, u)
  ROOT r = f32[9,20] scatter(x, i, v), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f
}
ENTRY e { i = s32[12] parameter(0)
 u = f32[12,20] parameter(1)
 ROOT r = f32[9,20] fusion(i, u), kind=kLoop, calls=body }
";
    check_mild(made, 83);
}

#[test]
fn updates_in_place() {
    check_in_place(
        &single(&["f32[10,20]", "f32[3,20]", "s32[]", "s32[]"], "f32[10,20] dynamic-update-slice(p0, p1, p2, p3)"),
        90,
    );
    check_in_place(&single(&["bf16[50]", "bf16[7]", "s64[]"], "bf16[50] dynamic-update-slice(p0, p1, p2)"), 91);
    let scatter = "HloModule m
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY e { x = f32[9,20] parameter(0)
 i = s32[12] parameter(1)
 u = f32[12,20] parameter(2)
 ROOT r = f32[9,20] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f
}
";
    check_in_place(scatter, 92);
}

#[test]
fn what_is_read_elsewhere_is_not_changed_in_place() {
    let text = |update: &str| {
        format!(
            "HloModule m\nbody {{\n  x = f32[10] parameter(0)\n  i = s32[] parameter(1)\n  {update}\n  \
             ROOT r = f32[10] dynamic-update-slice(x, u, i)\n}}\nENTRY e {{\n  x = f32[10] parameter(0)\n  \
             i = s32[] parameter(1)\n  ROOT f = f32[10] fusion(x, i), kind=kLoop, calls=body\n}}\n"
        )
    };
    let in_place = |text: &str| {
        let module = program(text);
        let plain = module.module();
        let root = plain.entry().and_then(|e| plain.root(e)).expect("there is a root");
        let requests = [KernelRequest { instruction: root, in_place: true, producer: None }];
        compile(plain, &requests, &Options::default()).kernel(0).map(|_| ())
    };
    let same = text("s = f32[4] dynamic-slice(x, i), dynamic_slice_sizes={4}\n  u = f32[4] negate(s)");
    assert_eq!(in_place(&same), Ok(()));
    check_in_place(&same, 95);
    let other = text("s = f32[4] slice(x), slice={[0:4]}\n  u = f32[4] reverse(s), dimensions={0}");
    assert!(matches!(in_place(&other), Err(Refused::Unsupported(_))));
    check_all(&other, 96);
}

#[test]
fn a_value_converted_to_two_types_stays_two_values() {
    // The index becomes s64 to compute the address, and bf16 as the update.
    let text = "HloModule m\nbody {\n  x = bf16[4,8] parameter(0)\n  i = s32[] parameter(1)\n  z = s32[] constant(0)\n  \
                c = bf16[] convert(i)\n  u = bf16[1,8] broadcast(c), dimensions={}\n  \
                ROOT r = bf16[4,8] dynamic-update-slice(x, u, i, z)\n}\nENTRY e {\n  x = bf16[4,8] parameter(0)\n  \
                i = s32[] parameter(1)\n  ROOT f = bf16[4,8] fusion(x, i), kind=kLoop, calls=body\n}\n";
    check_all(text, 97);
    check_in_place(text, 98);
    check_all(
        "HloModule m\nENTRY e {\n  x = f32[37] parameter(0)\n  a = s32[37] convert(x)\n  b = u8[37] convert(x)\n  \
         c = s32[37] convert(b)\n  ROOT r = s32[37] add(a, c)\n}\n",
        99,
    );
}

#[test]
fn a_fold_whose_condition_alone_has_lanes() {
    // What is reduced is the same everywhere; how much of the window is inside differs.
    check_all(
        "HloModule m\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n\
         body {\n  one = f32[] constant(1)\n  x = f32[10,10] broadcast(one), dimensions={}\n  zero = f32[] constant(0)\n  \
         ROOT r = f32[10,10] reduce-window(x, zero), window={size=1x10 pad=0_0x9_0}, to_apply=add\n}\n\
         ENTRY e {\n  ROOT f = f32[10,10] fusion(), kind=kLoop, calls=body\n}\n",
        100,
    );
}

#[test]
fn reductions_within_reductions_within_reductions() {
    // The fourth power of a matrix, and the eighth, by squaring what was just reduced.
    let square = |from: &str, to: &str| {
        format!(
            "  {to}r = f32[4,4,4] broadcast({from}), dimensions={{0,2}}\n  \
             {to}t = f32[4,4] transpose({from}), dimensions={{1,0}}\n  \
             {to}c = f32[4,4,4] broadcast({to}t), dimensions={{1,2}}\n  \
             {to}m = f32[4,4,4] multiply({to}r, {to}c)\n  \
             {to} = f32[4,4] reduce({to}m, zero), dimensions={{2}}, to_apply=add\n"
        )
    };
    let text = format!(
        "HloModule m\nadd {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}}\n\
         body {{\n  x = f32[4,4] parameter(0)\n  zero = f32[] constant(0)\n{}{}{}  \
         ROOT t = (f32[4,4], f32[4,4]) tuple(b, c)\n}}\n\
         ENTRY e {{\n  x = f32[4,4] parameter(0)\n  ROOT f = (f32[4,4], f32[4,4]) fusion(x), kind=kInput, calls=body\n}}\n",
        square("x", "a"),
        square("a", "b"),
        square("b", "c")
    );
    check_all(&text, 101);
}

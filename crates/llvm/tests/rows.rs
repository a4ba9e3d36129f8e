//! Chains of passes over rows, in which a later pass needs what an earlier one computed.

mod common;

use common::{check_all, check_mild};

/// A fusion of one parameter of that shape; `m` is the greatest of each row, `s` the sum of what `e` is.
fn softmax(t: &str, dims: &[i64], e: &str, result: &str) -> String {
    let list = |dims: &[i64]| dims.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let (whole, rows, last) = (list(dims), list(&dims[..dims.len() - 1]), dims.len() - 1);
    let kept = list(&(0..last as i64).collect::<Vec<_>>());
    format!(
        "HloModule m
max {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = {t}[] maximum(a, b)
}}
add {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = {t}[] add(a, b)
}}
body {{
  x = {t}[{whole}] parameter(0)
  least = {t}[] constant(-inf)
  zero = {t}[] constant(0)
  m = {t}[{rows}] reduce(x, least), dimensions={{{last}}}, to_apply=max
  wide = {t}[{whole}] broadcast(m), dimensions={{{kept}}}
  d = {t}[{whole}] subtract(x, wide)
  e = {t}[{whole}] {e}
  s = {t}[{rows}] reduce(e, zero), dimensions={{{last}}}, to_apply=add
  sums = {t}[{whole}] broadcast(s), dimensions={{{kept}}}
  {result}
}}
ENTRY entry {{
  x = {t}[{whole}] parameter(0)
  ROOT f = {t}[{whole}] fusion(x), kind=kLoop, calls=body
}}
"
    )
}

#[test]
fn softmax_of_rows_of_every_length() {
    for t in ["f32", "bf16", "f16", "f64"] {
        for (n, row) in [1, 2, 5, 8, 10, 16, 17, 31, 64, 100, 257].into_iter().enumerate() {
            let root = |op: &str| format!("ROOT r = {t}[3,7,{row}] {op}(e, sums)");
            check_mild(&softmax(t, &[3, 7, row], "exponential(d)", &root("divide")), n as u64);
        }
    }
    // Special values as well, and rows that do not fit where rows are kept.
    check_all(&softmax("f32", &[20, 40], "exponential(d)", "ROOT r = f32[20,40] divide(e, sums)"), 20);
    check_mild(&softmax("f64", &[9, 40_000], "exponential(d)", "ROOT r = f64[9,40000] divide(e, sums)"), 21);
}

#[test]
fn what_is_kept_is_used_in_several_ways() {
    // Two rows, one of truth values; one is used in a reduce and again in the result.
    let result = "
  big = pred[6,50] compare(e, sums), direction=GT
  product = f32[6,50] multiply(e, x)
  t = f32[6] reduce(product, zero), dimensions={1}, to_apply=add
  other = f32[6,50] broadcast(t), dimensions={0}
  chosen = f32[6,50] select(big, e, product)
  ROOT r = f32[6,50] divide(chosen, other)";
    check_mild(&softmax("f32", &[6, 50], "exponential(d)", result), 30);
    // Sums of what is kept as it is, and rounded.
    let result = "
  w = f32[5,33] convert(e)
  h = bf16[5,33] tanh(e)
  q = bf16[5,33] multiply(h, sums)
  v = bf16[5,33] convert(w)
  ROOT r = bf16[5,33] add(q, v)";
    check_mild(&softmax("bf16", &[5, 33], "logistic(d)", result), 31);
}

#[test]
fn rows_of_two_dimensions_and_folds_at_different_depths() {
    let text = "HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
body {
  x = f32[4,3,6,5] parameter(0)
  y = f32[4,7,6,5] parameter(1)
  zero = f32[] constant(0)
  t = f32[4,6,3,5] transpose(x), dimensions={0,2,1,3}
  e = f32[4,6,3,5] exponential(t)
  s = f32[4,6] reduce(e, zero), dimensions={2,3}, to_apply=add
  wide = f32[4,6,3,5] broadcast(s), dimensions={0,1}
  ROOT r = f32[4,6,3,5] divide(e, wide)
}
ENTRY entry {
  x = f32[4,3,6,5] parameter(0)
  y = f32[4,7,6,5] parameter(1)
  ROOT f = f32[4,6,3,5] fusion(x, y), kind=kLoop, calls=body
}
";
    check_mild(text, 40);
    // The second sum is needed for each of the first's parts: it must not be read before it is there.
    let text = "HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
body {
  x = f32[5,20] parameter(0)
  y = f32[5,9,20] parameter(1)
  zero = f32[] constant(0)
  e = f32[5,20] exponential(x)
  s = f32[5] reduce(e, zero), dimensions={1}, to_apply=add
  wide = f32[5,9,20] broadcast(e), dimensions={0,2}
  product = f32[5,9,20] multiply(wide, y)
  t = f32[5,9] reduce(product, zero), dimensions={2}, to_apply=add
  ts = f32[5,9,20] broadcast(t), dimensions={0,1}
  ss = f32[5,9,20] broadcast(s), dimensions={0}
  q = f32[5,9,20] divide(product, ts)
  ROOT r = f32[5,9,20] add(q, ss)
}
ENTRY entry {
  x = f32[5,20] parameter(0)
  y = f32[5,9,20] parameter(1)
  ROOT f = f32[5,9,20] fusion(x, y), kind=kLoop, calls=body
}
";
    check_mild(text, 41);
}

#[test]
fn the_greatest_and_least_of_special_numbers() {
    // Every row has other special values in it; NaN wins, and −0 is below 0.
    for t in ["f32", "f64", "bf16", "f16"] {
        for op in ["maximum", "minimum"] {
            for (dims, dimension) in [("40,9", 1), ("9,40", 0), ("3,100", 1), ("70,33", 0)] {
                let (first, second) = dims.split_once(',').unwrap_or((dims, ""));
                let rest = if dimension == 1 { first } else { second };
                let text = format!(
                    "HloModule m
f {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = {t}[] {op}(a, b)
}}
ENTRY e {{
  x = {t}[{dims}] parameter(0)
  i = {t}[] constant({})
  ROOT r = {t}[{rest}] reduce(x, i), dimensions={{{dimension}}}, to_apply=f
}}
",
                    if op == "maximum" { "-0" } else { "inf" }
                );
                for seed in 50..54 {
                    check_all(&text, seed);
                }
            }
        }
    }
}

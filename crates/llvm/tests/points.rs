//! Many single elements scattered at once: their places are computed side by side, and they are written in order.

mod common;

use common::{check_all, check_in_place, check_mild};

fn scatter(t: &str, op: &str, points: i64, dims: &str, rank: usize) -> String {
    let inserted = (0..rank).map(|d| d.to_string()).collect::<Vec<_>>().join(",");
    let combined = match op {
        "set" => format!("ROOT r = {t}[] parameter(1)"),
        op => format!("b = {t}[] parameter(1)\n  ROOT r = {t}[] {op}(a, b)"),
    };
    format!(
        "HloModule m
f {{
  a = {t}[] parameter(0)
  {combined}
}}
ENTRY e {{
  x = {t}[{dims}] parameter(0)
  i = s32[{points},{rank}] parameter(1)
  u = {t}[{points}] parameter(2)
  ROOT r = {t}[{dims}] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{{inserted}}}, scatter_dims_to_operand_dims={{{inserted}}}, index_vector_dim=1, to_apply=f
}}
"
    )
}

#[test]
fn points_that_meet_and_points_outside() {
    // Indices are small numbers of both signs: many fall on one place, and many outside.
    for t in ["f32", "f64", "bf16", "s8", "s32", "u16"] {
        for op in ["add", "maximum", "set"] {
            for (points, dims, rank) in [(64, "5", 1), (133, "3,4", 2), (200, "50,50", 2)] {
                check_mild(&scatter(t, op, points, dims, rank), 60);
                check_in_place(&scatter(t, op, points, dims, rank), 61);
            }
        }
    }
}

#[test]
fn indices_of_every_type_count_alike() {
    for t in ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "f32", "bf16"] {
        check_all(&format!("HloModule m\nENTRY e {{ ROOT r = {t}[7,300] iota(), iota_dimension=1 }}"), 1);
        let text = format!(
            "HloModule m\nbody {{\n  x = {t}[70] parameter(0)\n  i = {t}[70] iota(), iota_dimension=0\n  \
             ROOT r = pred[70] compare(x, i), direction=LT\n}}\nENTRY e {{\n  x = {t}[70] parameter(0)\n  \
             ROOT f = pred[70] fusion(x), kind=kLoop, calls=body\n}}\n"
        );
        check_all(&text, 2);
    }
}

#[test]
fn windows_outside_are_left_out_as_a_whole() {
    // Rows of several vectors, with and without a rest; of the indices many are outside.
    for row in [5, 16, 40, 64] {
        let text = format!(
            "HloModule m
f {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
ENTRY e {{
  x = f32[3,{row}] parameter(0)
  i = s32[90,1] parameter(1)
  u = f32[90,{row}] parameter(2)
  ROOT r = f32[3,{row}] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f
}}
"
        );
        check_mild(&text, 70);
        check_in_place(&text, 71);
    }
}

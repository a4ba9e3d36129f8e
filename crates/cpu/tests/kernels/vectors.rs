//! Programs whose loops are cut, split or written out before they are compiled.

/// Small numbers of both signs; whole ones for integers.
fn numbers(n: i64) -> (f64, f64) {
    (((n * 37) % 101) as f64 / 8.0 - 5.0, ((n * 53) % 97) as f64 / 9.0 - 4.0)
}

/// Nothing may be left to the evaluator where there are kernels.
fn agrees(text: &str, tolerance: f64) {
    crate::agrees(text, numbers, tolerance, |report| report.fallback.is_empty() || !cfg!(feature = "llvm"));
}

/// A module whose entry is these lines.
fn entry(functions: &str, lines: &[&str]) -> String {
    format!("HloModule m\n{functions}\nENTRY e {{\n  {}\n}}\n", lines.join("\n  "))
}

const MAX: &str = "max { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] maximum(a, b) }";

#[test]
fn random_bits_of_every_width_and_shape() {
    for algorithm in ["rng_three_fry", "rng_philox", "rng_default"] {
        for words in [2, 3] {
            for shape in ["u32[]", "u32[7]", "u32[1000]", "u64[33]", "u16[5,3]", "u8[4,6,2]", "s32[3,2,1]", "u32[3,3]"]
            {
                // Without the words that only Philox keeps.
                let generated = format!("ROOT r = (u64[{words}], {shape}) rng-bit-generator(s), algorithm={algorithm}");
                agrees(&entry("", &[&format!("s = u64[{words}] parameter(0)"), &generated]), 0.0);
            }
        }
    }
}

#[test]
fn padded_arrays_with_something_before_and_after() {
    for (from, to, padding) in [
        ("9,40,17,64", "11,46,23,64", "1_1x3_3x3_3x0_0"),
        ("60,300", "60,331", "0_0x13_18"),
        ("70,200", "68,190", "-1_-1x-5_-5"),
        ("50,64", "99,190", "0_0_1x0_0_2"),
    ] {
        let text = entry(
            "",
            &[
                &format!("x = f32[{from}] parameter(0)"),
                "c = f32[] constant(2.5)",
                &format!("n = f32[{from}] negate(x)"),
                &format!("p = f32[{to}] pad(n, c), padding={padding}"),
                &format!("ROOT r = f32[{to}] abs(p)"),
            ],
        );
        agrees(&text, 0.0);
    }
}

#[test]
fn windows_that_reach_over_edges() {
    for (from, to, window) in [
        ("4,8,56,56", "4,8,28,28", "size=1x1x3x3 stride=1x1x2x2 pad=0_0x0_0x0_1x0_1"),
        ("3,30,41,16", "3,30,41,16", "size=1x3x3x1 pad=0_0x1_1x1_1x0_0"),
        ("2,64,100", "2,62,104", "size=1x3x5 pad=0_0x0_0x4_4"),
    ] {
        let text = entry(
            MAX,
            &[
                &format!("x = f32[{from}] parameter(0)"),
                "c = f32[] constant(-inf)",
                &format!("ROOT r = f32[{to}] reduce-window(x, c), window={{{window}}}, to_apply=max"),
            ],
        );
        agrees(&text, 0.0);
    }
}

#[test]
fn parts_of_concatenations_beneath_something() {
    let text = entry(
        "",
        &[
            "x = f32[500,64] parameter(0)",
            "y = f32[500,96] parameter(1)",
            "c = f32[500,160] concatenate(x, y), dimensions={1}",
            "d = f64[500,160] convert(c)",
            "ROOT r = f64[500,160] multiply(d, d)",
        ],
    );
    agrees(&text, 0.0);
}

#[test]
fn much_reduced_to_little() {
    for (t, from, dims, to) in [
        ("f32", "400000", "0", ""),
        ("f64", "64,4096", "0,1", ""),
        ("s32", "300000", "0", ""),
        ("f32", "80000,3", "0", "3"),
        ("f32", "7,131072", "1", "7"),
        ("f32", "262147", "0", ""),
        ("bf16", "200000", "0", ""),
    ] {
        let function = format!("add {{ a = {t}[] parameter(0)\n b = {t}[] parameter(1)\n ROOT r = {t}[] add(a, b) }}");
        let text = entry(
            &function,
            &[
                &format!("x = {t}[{from}] parameter(0)"),
                &format!("n = {t}[{from}] abs(x)"),
                &format!("c = {t}[] constant(0)"),
                &format!("ROOT r = {t}[{to}] reduce(n, c), dimensions={{{dims}}}, to_apply=add"),
            ],
        );
        agrees(&text, if t == "bf16" { 1e-2 } else { 1e-5 });
    }
}

#[test]
fn functions_of_complex_numbers() {
    let functions = "exponential exponential-minus-one log log-plus-one logistic sine cosine tan tanh sqrt sign";
    for t in ["c64", "c128"] {
        for function in functions.split(' ') {
            let lines = [&format!("x = {t}[333] parameter(0)"), &format!("ROOT r = {t}[333] {function}(x)")];
            agrees(&entry("", &lines.map(String::as_str)), if t == "c64" { 1e-5 } else { 1e-12 });
        }
    }
}

#[test]
fn elements_taken_apart_and_put_together() {
    let lines = [
        "x = u64[6] parameter(0)",
        "a = u32[6,2] bitcast-convert(x)",
        "n = u32[6,2] not(a)",
        "ROOT r = u64[6] bitcast-convert(n)",
    ];
    agrees(&entry("", &lines), 0.0);
}

#[test]
fn one_update_in_each_row() {
    let add = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }";
    let text = entry(
        add,
        &[
            "i = s32[50,1,1] parameter(0)",
            "u = f32[50,1] parameter(1)",
            "z = f32[] constant(0.5)",
            "x = f32[50,7] broadcast(z), dimensions={}",
            "ROOT s = f32[50,7] scatter(x, i, u), update_window_dims={}, inserted_window_dims={1}, \
             scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0}, \
             index_vector_dim=2, to_apply=add",
        ],
    );
    agrees(&text, 1e-6);
}

#[test]
fn large_arrays_changed_in_a_few_places() {
    let text = entry(
        "",
        &[
            "x = f32[700,512] parameter(0)",
            "u = f32[3,512] parameter(1)",
            "i = s32[] constant(697)",
            "z = s32[] constant(0)",
            "ROOT r = f32[700,512] dynamic-update-slice(x, u, i, z)",
        ],
    );
    agrees(&text, 0.0);
    let add = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }";
    let text = entry(
        add,
        &[
            "x = f32[5000,64] parameter(0)",
            "i = s32[90,1] parameter(1)",
            "u = f32[90,64] parameter(2)",
            "ROOT s = f32[5000,64] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, \
             scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
        ],
    );
    agrees(&text, 1e-6);
}

#[test]
fn several_arrays_scattered_at_once() {
    let both = "both { a = f32[] parameter(0)\n b = s32[] parameter(1)\n c = f32[] parameter(2)\n d = s32[] parameter(3)\n \
                e = f32[] add(a, c)\n f = s32[] maximum(b, d)\n ROOT r = (f32[], s32[]) tuple(e, f) }";
    let text = entry(
        both,
        &[
            "x = f32[40,6] parameter(0)",
            "y = s32[40,6] parameter(1)",
            "i = s32[30,1] parameter(2)",
            "u = f32[30,6] parameter(3)",
            "v = s32[30,6] parameter(4)",
            "ROOT s = (f32[40,6], s32[40,6]) scatter(x, y, i, u, v), update_window_dims={1}, \
             inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=both",
        ],
    );
    agrees(&text, 1e-5);
}

#[test]
fn rows_taken_by_indices_of_each_type() {
    for t in ["s32", "u32", "s64", "u8"] {
        let text = entry(
            "",
            &[
                "x = f32[300,50] parameter(0)",
                &format!("i = {t}[300,50,1] parameter(1)"),
                "ROOT g = f32[300,50] gather(x, i), offset_dims={}, collapsed_slice_dims={1}, start_index_map={1}, \
                 operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1}",
            ],
        );
        agrees(&text, 0.0);
    }
}

#[test]
fn remainders_by_numbers_of_all_sizes() {
    for t in ["f16", "bf16", "f32", "f64"] {
        let text = entry(
            "",
            &[
                &format!("x = {t}[400] parameter(0)"),
                &format!("c = {t}[] constant(0.37)"),
                &format!("y = {t}[400] broadcast(c), dimensions={{}}"),
                &format!("p = {t}[400] multiply(x, y)"),
                &format!("ROOT r = {t}[400] remainder(x, p)"),
            ],
        );
        agrees(&text, if t == "f64" { 1e-12 } else { 1e-2 });
    }
}

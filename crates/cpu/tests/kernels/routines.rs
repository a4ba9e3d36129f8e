//! Instructions that are routines written by hand.

/// Small numbers of both signs, some of them equal.
fn numbers(n: i64) -> (f64, f64) {
    (((n * 37) % 101) as f64 / 2.0 - 20.0, 0.0)
}

/// The same without a pattern: matrices of them are far from singular.
fn independent_numbers(n: i64) -> (f64, f64) {
    (((n * n * 37 + n * 11) % 101) as f64 / 2.0 - 20.0, 0.0)
}

fn agrees(text: &str, tolerance: f64) {
    agrees_on(text, numbers, tolerance);
}

/// None of these may be left to the evaluator; what is around them may, where the build has no compiler of kernels.
fn agrees_on(text: &str, numbers: fn(i64) -> (f64, f64), tolerance: f64) {
    let routines = ["fft", "topk", "sort", "select-and-scatter", "cholesky", "triangular-solve", "custom-call"];
    crate::agrees(text, numbers, tolerance, |report| !routines.iter().any(|&name| report.fallback.contains_key(name)));
}

#[test]
fn fourier_transforms() {
    for (real, complex, tolerance) in [("f32", "c64", 1e-5), ("f64", "c128", 1e-11)] {
        for (dims, length) in [("3,16", "16"), ("13", "13"), ("2,6,10", "6,10"), ("2,3,4,5", "3,4,5")] {
            for kind in ["FFT", "IFFT"] {
                agrees(
                    &format!(
                        "HloModule m\nENTRY e {{\n  p = {complex}[{dims}] parameter(0)\n  \
                         ROOT r = {complex}[{dims}] fft(p), fft_type={kind}, fft_length={{{length}}}\n}}\n"
                    ),
                    tolerance,
                );
            }
        }
        for (whole, half, length) in [("3,16", "3,9", "16"), ("2,5,7", "2,5,4", "5,7"), ("4,1", "4,1", "1")] {
            agrees(
                &format!(
                    "HloModule m\nENTRY e {{\n  p = {real}[{whole}] parameter(0)\n  \
                     f = {complex}[{half}] fft(p), fft_type=RFFT, fft_length={{{length}}}\n  \
                     g = {real}[{whole}] fft(f), fft_type=IRFFT, fft_length={{{length}}}\n  \
                     ROOT r = ({complex}[{half}], {real}[{whole}]) tuple(f, g)\n}}\n"
                ),
                tolerance,
            );
        }
    }
}

#[test]
fn the_first_few() {
    for (t, largest) in [("f32", true), ("f32", false), ("bf16", true), ("s32", false), ("u8", true), ("f64", true)] {
        agrees(
            &format!(
                "HloModule m\nENTRY e {{\n  p = {t}[5,200] parameter(0)\n  \
                 ROOT r = ({t}[5,7], s32[5,7]) topk(p), k=7, largest={largest}\n}}\n"
            ),
            0.0,
        );
    }
}

#[test]
fn sorts_by_several_keys() {
    let sort = |order: &str| {
        format!(
            "HloModule m\nf {{\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  c = u8[] parameter(2)\n  \
             d = u8[] parameter(3)\n  e = s32[] parameter(4)\n  g = s32[] parameter(5)\n{order}}}\n\
             ENTRY e {{\n  p0 = s32[3,50] parameter(0)\n  p1 = u8[3,50] parameter(1)\n  \
             p2 = s32[3,50] iota(), iota_dimension=1\n  \
             ROOT r = (s32[3,50], u8[3,50], s32[3,50]) sort(p0, p1, p2), dimensions={{1}}, is_stable=true, to_apply=f\n}}\n"
        )
    };
    agrees(
        &sort(
            "  l = pred[] compare(a, b), direction=LT\n  q = pred[] compare(a, b), direction=EQ\n  \
             m = pred[] compare(c, d), direction=GT\n  n = pred[] and(q, m)\n  ROOT r = pred[] or(l, n)\n",
        ),
        0.0,
    );
    agrees(
        &sort(
            "  l = pred[] compare(c, d), direction=GT\n  q = pred[] compare(c, d), direction=EQ\n  \
             m = pred[] compare(b, a), direction=LT\n  ROOT r = pred[] select(q, m, l)\n",
        ),
        0.0,
    );
}

#[test]
fn gradients_of_pooling() {
    for (t, tolerance) in [("f32", 1e-5), ("bf16", 1e-2), ("f64", 1e-11)] {
        for (direction, dims, source, window) in [
            ("GE", "2,9,8,5", "2,5,4,5", "size=1x3x2x1 stride=1x2x2x1 pad=0_0x1_1x0_0x0_0"),
            ("LT", "3,7,7", "3,3,3", "size=1x3x3 stride=1x2x2"),
            ("GT", "31", "15", "size=2 stride=2"),
        ] {
            agrees(
                &format!(
                    "HloModule m\ns {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  \
                     ROOT r = pred[] compare(a, b), direction={direction}\n}}\n\
                     f {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT r = {t}[] add(a, b)\n}}\n\
                     ENTRY e {{\n  p = {t}[{dims}] parameter(0)\n  q = {t}[{source}] parameter(1)\n  \
                     z = {t}[] constant(0)\n  ROOT r = {t}[{dims}] select-and-scatter(p, q, z), window={{{window}}}, \
                     select=s, scatter=f\n}}\n"
                ),
                tolerance,
            );
        }
    }
}

#[test]
fn a_nan_that_no_order_knows_is_left_to_the_evaluator() {
    let text = "HloModule m\nf {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  \
        ROOT r = pred[] compare(a, b), direction=LT\n}\nENTRY e {\n  c = f32[4] constant({3, nan, 1, 2})\n  \
        p = f32[4] parameter(0)\n  s = f32[4] add(c, p)\n  \
        ROOT r = f32[4] sort(s), dimensions={0}, to_apply=f\n}\n";
    agrees(text, 1e-6);
}

/// Rows of the identity, so many to each matrix of a batch of two, times a number.
fn diagonal(t: &str, n: usize, times: i32) -> String {
    let dims = format!("2,{n},{n}");
    format!(
        "  i = s32[{dims}] iota(), iota_dimension=1\n  j = s32[{dims}] iota(), iota_dimension=2\n  \
         same = pred[{dims}] compare(i, j), direction=EQ\n  ones = {t}[{dims}] convert(same)\n  \
         k = {t}[] constant({times})\n  ks = {t}[{dims}] broadcast(k), dimensions={{}}\n  \
         d = {t}[{dims}] multiply(ones, ks)\n"
    )
}

#[test]
fn factors_of_matrices() {
    for (t, letter, tolerance) in [("f32", 's', 1e-4), ("f64", 'd', 1e-11)] {
        for n in [1, 3, 20, 110] {
            let dims = format!("2,{n},{n}");
            let head = format!("HloModule m\nENTRY e {{\n  p = {t}[{dims}] parameter(0)\n");
            // Layouts as LAPACK has them, and the factors in place of the matrix.
            let lu = format!(
                "{head}{}  a = {t}[{dims}] add(p, d)\n  \
                 ROOT r = ({t}[{dims}]{{1,2,0}}, s32[2,{n}]{{1,0}}, s32[2]{{0}}) custom-call(a), \
                 custom_call_target=\"lapack_{letter}getrf_ffi\", operand_layout_constraints={{{t}[{dims}]{{1,2,0}}}}, \
                 output_to_operand_aliasing={{{{0}}: (0, {{}})}}, api_version=API_VERSION_TYPED_FFI, \
                 backend_config={{}}\n}}\n",
                diagonal(t, n, 70)
            );
            agrees(&lu, tolerance);
            for lower in [true, false] {
                let positive = format!(
                    "{head}{}  pp = {t}[{dims}] dot(p, p), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, \
                     lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}\n  a = {t}[{dims}] add(pp, d)\n",
                    diagonal(t, n, 100_000)
                );
                agrees(&format!("{positive}  ROOT r = {t}[{dims}] cholesky(a), lower={lower}\n}}\n"), tolerance);
                let uplo = if lower { b'L' } else { b'U' };
                agrees(
                    &format!(
                        "{positive}  ROOT r = ({t}[{dims}]{{1,2,0}}, s32[2]{{0}}) custom-call(a), \
                         custom_call_target=\"lapack_{letter}potrf_ffi\", \
                         operand_layout_constraints={{{t}[{dims}]{{1,2,0}}}}, \
                         output_to_operand_aliasing={{{{0}}: (0, {{}})}}, api_version=API_VERSION_TYPED_FFI, \
                         backend_config={{uplo = {uplo} : ui8}}\n}}\n"
                    ),
                    tolerance,
                );
            }
        }
        let negative = format!(
            "HloModule m\nENTRY e {{\n  p = {t}[2,2] parameter(0)\n  n = {t}[2,2] constant({{{{1, 2}}, {{2, 1}}}})\n  \
             ROOT r = {t}[2,2] cholesky(n), lower=true\n}}\n"
        );
        agrees(&negative, 0.0);
    }
}

#[test]
fn triangular_systems() {
    for (t, letter, tolerance) in [("f32", 's', 1e-4), ("f64", 'd', 1e-11)] {
        for (n, others) in [(3, 1), (7, 4), (70, 20)] {
            for case in 0..8 {
                let [left, lower, transposed] = [0, 1, 2].map(|bit| case & (1 << bit) != 0);
                let dims = format!("2,{n},{n}");
                let (rows, columns) = if left { (n, others) } else { (others, n) };
                let head = format!(
                    "HloModule m\nENTRY e {{\n  p = {t}[{dims}] parameter(0)\n  q = {t}[2,{rows},{columns}] \
                     parameter(1)\n{}  a = {t}[{dims}] add(p, d)\n",
                    diagonal(t, n, 100_000)
                );
                let transpose = if transposed { "TRANSPOSE" } else { "NO_TRANSPOSE" };
                agrees(
                    &format!(
                        "{head}  ROOT r = {t}[2,{rows},{columns}] triangular-solve(a, q), left_side={left}, \
                         lower={lower}, unit_diagonal=false, transpose_a={transpose}\n}}\n"
                    ),
                    tolerance,
                );
                let letters = [
                    if left { b'L' } else { b'R' },
                    if lower { b'L' } else { b'U' },
                    if transposed { b'T' } else { b'N' },
                ];
                let [side, uplo, trans] = letters;
                agrees(
                    &format!(
                        "{head}  ROOT r = {t}[2,{rows},{columns}]{{1,2,0}} custom-call(a, q), \
                         custom_call_target=\"lapack_{letter}trsm_ffi\", \
                         operand_layout_constraints={{{t}[{dims}]{{1,2,0}}, {t}[2,{rows},{columns}]{{1,2,0}}}}, \
                         output_to_operand_aliasing={{{{}}: (1, {{}})}}, api_version=API_VERSION_TYPED_FFI, \
                         backend_config={{diag = 78 : ui8, side = {side} : ui8, trans_x = {trans} : ui8, \
                         uplo = {uplo} : ui8}}\n}}\n"
                    ),
                    tolerance,
                );
            }
        }
    }
}

#[test]
fn factors_of_reflectors() {
    for (t, letter, tolerance) in [("f32", 's', 1e-4), ("f64", 'd', 1e-11)] {
        for (rows, columns) in [(1, 1), (8, 8), (70, 40), (5, 9)] {
            let (few, kept) = (rows.min(columns), if rows < columns { rows } else { columns });
            let matrix = |columns: usize| format!("{t}[2,{rows},{columns}]{{1,2,0}}");
            let [whole, square] = [columns, kept].map(matrix);
            let text = format!(
                "HloModule m\nENTRY e {{\n  a = {t}[2,{rows},{columns}] parameter(0)\n  \
                 qr = ({whole}, {t}[2,{few}]{{1,0}}) custom-call(a), \
                 custom_call_target=\"lapack_{letter}geqrf_ffi\", operand_layout_constraints={{{whole}}}, \
                 api_version=API_VERSION_TYPED_FFI, backend_config={{}}\n  \
                 factors = {t}[2,{rows},{columns}] get-tuple-element(qr), index=0\n  \
                 taus = {t}[2,{few}] get-tuple-element(qr), index=1\n  \
                 kept = {t}[2,{rows},{kept}] slice(factors), slice={{[0:2], [0:{rows}], [0:{kept}]}}\n  \
                 q = {square} custom-call(kept, taus), custom_call_target=\"lapack_{letter}orgqr_ffi\", \
                 operand_layout_constraints={{{square}, {t}[2,{few}]{{1,0}}}}, \
                 api_version=API_VERSION_TYPED_FFI, backend_config={{}}\n  \
                 ROOT r = ({t}[2,{rows},{columns}], {t}[2,{few}], {t}[2,{rows},{kept}]) tuple(factors, taus, q)\n}}\n"
            );
            agrees_on(&text, independent_numbers, tolerance);
        }
    }
}

#[test]
fn tridiagonal_systems() {
    for (t, letter, tolerance) in [("f32", 's', 1e-3), ("f64", 'd', 1e-10)] {
        for (n, columns) in [(1, 1), (9, 1), (40, 3)] {
            let (line, others) = (format!("{t}[2,{n}]"), format!("{t}[2,{n},{columns}]"));
            let text = format!(
                "HloModule m\nENTRY e {{\n  dl = {line} parameter(0)\n  d = {line} parameter(1)\n  \
                 du = {line} parameter(2)\n  b = {others} parameter(3)\n  k = {t}[] constant(20)\n  \
                 ks = {line} broadcast(k), dimensions={{}}\n  large = {line} add(d, ks)\n  \
                 ROOT r = ({line}, {line}, {line}, {others}{{1,2,0}}, s32[2]) custom-call(dl, large, du, b), \
                 custom_call_target=\"lapack_{letter}gtsv_ffi\", \
                 operand_layout_constraints={{{line}{{1,0}}, {line}{{1,0}}, {line}{{1,0}}, {others}{{1,2,0}}}}, \
                 api_version=API_VERSION_TYPED_FFI, backend_config={{}}\n}}\n"
            );
            agrees(&text, tolerance);
        }
    }
}

//! What programs become on a GPU, shown without one: library calls, loops, exchanges, memory, and what is left over.

use expect_test::{Expect, expect};
use hloom_analysis::devices::DeviceGrid;
use hloom_compiler::{CompileOptions, CompiledModule, Emit, compile, file};
use hloom_cuda::CudaBackend;
use hloom_formats::hlo_text;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};

fn verified(text: &str) -> VerifiedModule {
    let module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
    verify(module, &VerifyOptions::default()).expect("it is valid")
}

fn compiled(text: &str, replicas: usize) -> CompiledModule {
    let backend = CudaBackend::named("gpu-h200").expect("the target is known");
    let options = CompileOptions::new(DeviceGrid { replicas, partitions: 1 });
    compile(&backend, &verified(text), &options).expect("it compiles")
}

/// Checks the thunks of a program on so many devices.
fn thunks(text: &str, replicas: usize, expected: Expect) {
    let compiled = compiled(text, replicas);
    expected.assert_eq(&compiled.code.emit(&compiled.module, Emit::Thunks).expect("thunks print"));
}

#[test]
fn products_of_heads_are_one_call_without_a_copy() {
    thunks(
        "HloModule m

         ENTRY e {
           q = bf16[64,4,32] parameter(0)
           k = bf16[64,4,32] parameter(1)
           ROOT s = bf16[4,64,64] dot(q, k), lhs_batch_dims={1}, rhs_batch_dims={1}, lhs_contracting_dims={2},
             rhs_contracting_dims={2}
         }",
        1,
        expect![[r#"
            allocations:
              a0: result, 32768 bytes
              a1: argument 0
              a2: argument 1
            0 bytes of temporaries
            thunks:
              s: gemm 64x64x32 x4 bf16[k] bf16[k] -> bf16 in F32 [a1+0, a2+0, a0+0]
        "#]],
    );
}

#[cfg(feature = "llvm")]
#[test]
fn what_a_transform_works_in_lies_where_nothing_is_needed_meanwhile() {
    thunks(
        "HloModule m

         ENTRY e {
           x = f32[64,256] parameter(0)
           y = f32[64,256] parameter(1)
           fx = c64[64,129] fft(x), fft_type=RFFT, fft_length={256}
           fy = c64[64,129] fft(y), fft_type=RFFT, fft_length={256}
           p = c64[64,129] multiply(fx, fy)
           ROOT r = f32[64,256] fft(p), fft_type=IRFFT, fft_length={256}
         }",
        1,
        expect![[r#"
            allocations:
              a0: result, 65536 bytes
              a1: argument 0
              a2: argument 1
              a3: temporary at 0
              a4: temporary at 0
            132096 bytes of temporaries
            thunks:
              fx: Rfft of 256 x64 [a1+0, a3+66048]
              fy: Rfft of 256 x64 [a2+0, a3+0]
              p: kernel loops <<<17, 256>>> [a3+66048, a3+0, a3+66048]
              r: Irfft of 256 x64 [a3+66048, a0+0, a4+0]
        "#]],
    );
}

#[cfg(feature = "llvm")]
#[test]
fn a_loop_whose_length_can_be_seen_needs_no_condition() {
    thunks(
        "HloModule m

         body {
           s = (s32[], f32[128,128], f32[128,128]) parameter(0)
           i = s32[] get-tuple-element(s), index=0
           x = f32[128,128] get-tuple-element(s), index=1
           w = f32[128,128] get-tuple-element(s), index=2
           one = s32[] constant(1)
           n = s32[] add(i, one)
           y = f32[128,128] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
           ROOT t = (s32[], f32[128,128], f32[128,128]) tuple(n, y, w)
         }

         condition {
           s = (s32[], f32[128,128], f32[128,128]) parameter(0)
           i = s32[] get-tuple-element(s), index=0
           limit = s32[] constant(12)
           ROOT c = pred[] compare(i, limit), direction=LT
         }

         ENTRY e {
           x = f32[128,128] parameter(0)
           w = f32[128,128] parameter(1)
           zero = s32[] constant(0)
           t = (s32[], f32[128,128], f32[128,128]) tuple(zero, x, w)
           l = (s32[], f32[128,128], f32[128,128]) while(t), condition=condition, body=body
           ROOT r = f32[128,128] get-tuple-element(l), index=1
         }",
        1,
        expect![[r#"
            allocations:
              a0: result, 65536 bytes
              a1: argument 0
              a2: argument 1
              a3: constant one, 4 bytes
              a4: constant zero, 4 bytes
              a5: constant limit, 4 bytes
              a6: temporary at 0
            66048 bytes of temporaries
            thunks:
              copy: copy 4 bytes [a4+0, a6+65792]
              copy.1: copy 65536 bytes [a1+0, a0+0]
              l: while, 12 times [a6+256, a6+65792, a0+0, a2+0]
               body:
                n: kernel loops <<<1, 256>>> [a6+65792, a3+0, a6+65792]
                y: gemm 128x128x128 f32[k] f32[-] -> f32 in Tf32 [a0+0, a2+0, a6+256]
                copy.2: copy 65536 bytes [a6+256, a0+0]
        "#]],
    );
}

#[test]
fn who_sends_to_whom_is_known_before_the_program_runs() {
    let text = "HloModule m, replica_count=2

         ENTRY e {
           x = f32[8,8] parameter(0)
           p = f32[8,8] collective-permute(x), source_target_pairs={{0,1},{1,0}}
           ROOT g = f32[8,16] all-gather(p), dimensions={1}, replica_groups={{0,1}}
         }";
    let compiled = compiled(text, 2);
    let thunks = compiled.code.emit(&compiled.module, Emit::Thunks).expect("thunks print");
    assert!(thunks.contains("p: permute among 2 devices in 1 groups"), "{thunks}");
    assert!(thunks.contains("g: gather among 2 devices in 1 groups"), "{thunks}");
    assert_eq!(compiled.report.fallback_steps(), 0);
}

#[test]
fn a_strided_convolution_and_its_gradient_are_library_calls() {
    let text = "HloModule m

         ENTRY e {
           x = bf16[8,32,32,16] parameter(0)
           w = bf16[64,3,3,16] parameter(1)
           g = bf16[8,16,16,64] parameter(2)
           y = bf16[8,16,16,64] convolution(x, w), window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f
           d = bf16[64,3,3,16] convolution(x, g), window={size=16x16 pad=1_0x1_0 rhs_dilate=2x2},
             dim_labels=f01b_i01o->f01b
           ROOT t = (bf16[8,16,16,64], bf16[64,3,3,16]) tuple(y, d)
         }";
    let compiled = compiled(text, 1);
    let thunks = compiled.code.emit(&compiled.module, Emit::Thunks).expect("thunks print");
    assert!(thunks.contains("y: convolution bf16 8x32x32x16 by 3x3 to 64"), "{thunks}");
    assert!(thunks.contains("d: convolution, gradient of the filter, bf16 8x32x32x16 by 3x3 to 64"), "{thunks}");
}

#[test]
fn what_has_no_kernel_is_counted_and_refused_under_strict() {
    let text = "HloModule m

         ENTRY e {
           x = f32[8,8] parameter(0)
           ROOT l = f32[8,8] custom-call(x), custom_call_target=\"somebody_elses\"
         }";
    let compiled = compiled(text, 1);
    assert_eq!(compiled.report.fallback["custom-call"].instructions, ["l"]);
    let backend = CudaBackend::named("gpu-h200").expect("the target is known");
    let grid = DeviceGrid { replicas: 1, partitions: 1 };
    let options = CompileOptions { strict: true, ..CompileOptions::new(grid) };
    assert!(compile(&backend, &verified(text), &options).is_err());
}

#[test]
fn a_saved_program_has_the_same_thunks() {
    let text = "HloModule m

         ENTRY e {
           x = f32[8,8] parameter(0)
           w = f32[8,8] parameter(1)
           y = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
           ROOT z = f32[8,8] tanh(y)
         }";
    let (backend, source) = (CudaBackend::named("gpu-h200").expect("the target is known"), verified(text));
    let compiled = compiled(text, 1);
    let bytes = file::save(&backend, &compiled, &source).expect("it can be saved");
    let loaded = file::load(&backend, &bytes).expect("it can be loaded");
    let thunks = |c: &CompiledModule| c.code.emit(&c.module, Emit::Thunks);
    assert_eq!(thunks(&loaded), thunks(&compiled));
    assert_eq!(loaded.code.emit(&loaded.module, Emit::Ptx), compiled.code.emit(&compiled.module, Emit::Ptx));
}

#[test]
fn without_a_gpu_the_error_names_what_is_missing() {
    match hloom_cuda::CudaClient::new() {
        Ok(_) => {}
        Err(error) => {
            let said: Vec<&str> = error.diagnostics.iter().map(|d| d.message.as_str()).collect();
            let machine = error.diagnostics.iter().all(|d| d.blame == hloom_ir::diagnostic::Blame::Machine);
            assert!(machine && said.iter().any(|m| m.contains("CUDA") || m.contains("GPU")), "{said:?}");
        }
    }
}

#[cfg(feature = "llvm")]
#[test]
fn what_devices_reduce_is_one_kernel_that_writes_to_all() {
    thunks(
        "HloModule m

         add {
           a = f32[] parameter(0)
           b = f32[] parameter(1)
           ROOT s = f32[] add(a, b)
         }

         ENTRY e {
           x = f32[64] parameter(0)
           y = f32[4,6] parameter(1)
           r = (f32[64], f32[4,6]) all-reduce(x, y), replica_groups={{0,1}}, to_apply=add
           z = f32[4,6] get-tuple-element(r), index=1
           w = f32[64] get-tuple-element(r), index=0
           s = f32[4,3] reduce-scatter(z), replica_groups={{0,1}}, dimensions={1}, to_apply=add
           ROOT t = (f32[64], f32[4,3]) tuple(w, s)
         }",
        2,
        expect![[r#"
            allocations:
              a0: result, 256 bytes
              a1: argument 0
              a2: argument 1
              a3: result, 48 bytes
              a8: temporary at 0
            512 bytes of temporaries
            thunks:
              r: reduce among 2 devices in 1 groups [a1+0, a2+0, a0+0, a8+0]
              s.1: reduce and scatter among 2 devices in 1 groups [a8+0, a3+0]
        "#]],
    );
}

#[cfg(feature = "llvm")]
#[test]
fn a_scatter_makes_its_indices_and_updates_itself() {
    thunks(
        "HloModule m

         add {
           a = s32[] parameter(0)
           b = s32[] parameter(1)
           ROOT c = s32[] add(a, b)
         }

         ENTRY e {
           x = s32[100000] parameter(0)
           zero = s32[] constant(0)
           one = s32[] constant(1)
           zeros = s32[100000] broadcast(zero), dimensions={}
           ones = s32[100000] broadcast(one), dimensions={}
           counts = s32[1000] broadcast(zero), dimensions={}
           i = s32[100000] maximum(x, zeros)
           at = s32[100000,1] reshape(i)
           ROOT s = s32[1000] scatter(counts, at, ones), update_window_dims={}, inserted_window_dims={0},
             scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
         }",
        1,
        expect![[r#"
            allocations:
              a0: argument 0
              a1: result, 4000 bytes
              a2: constant zero, 4 bytes
            0 bytes of temporaries
            thunks:
              counts: kernel loops <<<1, 256>>> [a2+0, a1+0]
              scatter_fusion: kernel scatter <<<391, 256>>> [a0+0, a1+0, a1+0]
        "#]],
    );
}

/// What is added to an array may depend on what was there before, wherever it is added.
#[cfg(feature = "llvm")]
#[test]
fn a_scatter_does_not_read_what_it_changes() {
    thunks(
        "HloModule m

         add {
           a = f32[] parameter(0)
           b = f32[] parameter(1)
           ROOT c = f32[] add(a, b)
         }

         ENTRY e {
           x = f32[64,64] parameter(0)
           i = s32[4096,1] parameter(1)
           flat = f32[4096] reshape(x)
           doubled = f32[4096] add(flat, flat)
           again = f32[64,64] exponential(x)
           more = f32[4096] reshape(again)
           base = f32[4096] reshape(x)
           first = f32[4096] scatter(base, i, doubled), update_window_dims={}, inserted_window_dims={0},
             scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
           ROOT second = f32[4096] scatter(first, i, more), update_window_dims={}, inserted_window_dims={0},
             scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
         }",
        1,
        expect![[r#"
            allocations:
              a0: result, 16384 bytes
              a1: argument 0
              a2: argument 1
              a6: temporary at 0
            16384 bytes of temporaries
            thunks:
              copy: copy 16384 bytes [a1+0, a0+0]
              add: kernel loops <<<4, 256>>> [a1+0, a1+0, a6+0]
              first: kernel scatter <<<4, 256>>> [a0+0, a2+0, a6+0, a0+0]
              scatter_fusion: kernel scatter <<<4, 256>>> [a1+0, a0+0, a2+0, a0+0]
        "#]],
    );
}

#[cfg(feature = "llvm")]
#[test]
fn a_transpose_between_products_is_absorbed_by_them() {
    thunks(
        "HloModule m

         ENTRY e {
           w = bf16[8,128,256] parameter(0)
           x = bf16[64,128] parameter(1)
           v = bf16[8,256,128] parameter(2)
           h = bf16[8,256,64] dot(w, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
           t = bf16[8,64,256] transpose(h), dimensions={0,2,1}
           n = bf16[8,64,256] negate(t)
           e = bf16[8,64,256] exponential(n)
           one = bf16[] constant(1)
           ones = bf16[8,64,256] broadcast(one), dimensions={}
           d = bf16[8,64,256] add(e, ones)
           q = bf16[8,64,256] divide(t, d)
           ROOT y = bf16[8,128,64] dot(v, q), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1},
             rhs_contracting_dims={2}
         }",
        1,
        expect![[r#"
            allocations:
              a0: argument 2
              a1: argument 0
              a2: result, 131072 bytes
              a3: argument 1
              a4: temporary at 0
            262144 bytes of temporaries
            thunks:
              h: gemm 256x64x128 x8 bf16[-] bf16[k] -> bf16 in F32 [a1+0, a3+0, a4+0]
              divide_fusion: kernel loops <<<64, 256>>> [a4+0, a4+0]
              dot: gemm 128x64x256 x8 bf16[-] bf16[-] -> bf16 in F32 [a0+0, a4+0, a2+0]
        "#]],
    );
}

/// Who else runs the program on a GPU rounds them, and choices are made by them.
#[test]
fn products_are_rounded_to_their_type_even_if_they_are_widened_at_once() {
    let products = |text: &str| {
        let compiled = compiled(text, 1);
        let thunks = compiled.code.emit(&compiled.module, Emit::Thunks).expect("thunks print");
        thunks.lines().filter(|l| l.contains("gemm")).map(str::to_owned).collect::<Vec<_>>().join("")
    };
    let found = products(
        "HloModule m

         ENTRY e {
           x = bf16[64,128] parameter(0)
           w = bf16[128,8] parameter(1)
           d = bf16[64,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
           ROOT c = f32[64,8] convert(d)
         }",
    );
    assert!(found.contains("-> bf16 in F32"), "{found}");
}

/// The thunks of a program, as text.
#[cfg(feature = "llvm")]
fn printed(text: &str) -> String {
    let compiled = compiled(text, 1);
    compiled.code.emit(&compiled.module, Emit::Thunks).expect("thunks print")
}

/// The same of an entry computation that applies `add`.
#[cfg(feature = "llvm")]
fn printed_with_add(entry: &str) -> String {
    let add = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}";
    printed(&format!("HloModule m\n\n{add}\n\n{entry}"))
}

#[cfg(feature = "llvm")]
#[test]
fn what_is_scanned_is_put_where_the_result_goes() {
    let text = printed_with_add(
        "ENTRY e {
           x = f32[64,256] parameter(0)
           y = f32[64,256] multiply(x, x)
           zero = f32[] constant(0)
           ROOT s = f32[64,256] reduce-window(y, zero), window={size=1x256 pad=0_0x255_0}, to_apply=add
         }",
    );
    assert!(text.contains("kernel prefix_scan"), "{text}");
    let scan = text.lines().find(|l| l.contains("kernel prefix_scan")).expect("there is one");
    assert_eq!(scan.matches("[a0+0,").count(), 1, "the scan reads where it writes: {text}");
}

#[cfg(feature = "llvm")]
#[test]
fn elements_moved_apart_are_read_by_the_windows_over_them() {
    let text = printed_with_add(
        "ENTRY e {
           x = f32[4,28,28,64] parameter(0)
           zero = f32[] constant(0)
           apart = f32[4,58,58,64] pad(x, zero), padding=0_0x2_1_1x2_1_1x0_0
           ROOT s = f32[4,56,56,64] reduce-window(apart, zero), window={size=1x3x3x1}, to_apply=add
         }",
    );
    assert!(text.contains("\n0 bytes of temporaries"), "{text}");
    assert_eq!(text.matches("kernel").count(), 1, "{text}");
}

#[cfg(feature = "llvm")]
#[test]
fn of_cheap_branches_both_are_taken() {
    let text = printed(
        "HloModule m

         sine {
           a = f32[1024,64] parameter(0)
           ROOT b = f32[1024,64] sine(a)
         }

         twice {
           a.1 = f32[1024,64] parameter(0)
           ROOT b.1 = f32[1024,64] add(a.1, a.1)
         }

         ENTRY e {
           i = s32[] parameter(0)
           x = f32[1024,64] parameter(1)
           ROOT y = f32[1024,64] conditional(i, x, x), branch_computations={sine, twice}
         }",
    );
    assert!(!text.contains("conditional") && text.matches("kernel").count() == 1, "{text}");
}

#[cfg(feature = "llvm")]
#[test]
fn few_updates_that_overwrite_each_other_are_made_in_order() {
    let of = |updates: i64| {
        printed(&format!(
            "HloModule m

             second {{
               a = f32[] parameter(0)
               ROOT b = f32[] parameter(1)
             }}

             ENTRY e {{
               x = f32[1000,8] parameter(0)
               i = s32[{updates}] parameter(1)
               u = f32[{updates},8] parameter(2)
               ROOT s = f32[1000,8] scatter(x, i, u), to_apply=second, update_window_dims={{1}},
                 inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1
             }}"
        ))
    };
    assert!(of(4).contains("kernel scatter_in_order <<<1, 256>>>"), "{}", of(4));
    assert!(!of(1000).contains("scatter_in_order"), "{}", of(1000));
    // One update has no order, nor has it a loop.
    assert!(!of(1).contains("scatter_in_order"), "{}", of(1));
    let single = printed(
        "HloModule m

         second {
           a = f32[] parameter(0)
           ROOT b = f32[] parameter(1)
         }

         ENTRY e {
           x = f32[10] parameter(0)
           i = s32[1,1] parameter(1)
           u = f32[1,1] parameter(2)
           ROOT s = f32[10] scatter(x, i, u), to_apply=second, update_window_dims={}, inserted_window_dims={0},
             scatter_dims_to_operand_dims={0}, index_vector_dim=2
         }",
    );
    assert!(single.contains("kernel") && !single.contains("scatter_in_order"), "{single}");
}

#[cfg(feature = "llvm")]
#[test]
fn gradients_of_single_features_need_no_padded_image() {
    let text = printed(
        "HloModule m

         ENTRY e {
           x = f32[8,28,28,64] parameter(0)
           d = f32[8,28,28,64] parameter(1)
           ROOT w = f32[3,3,1,64] convolution(x, d), window={size=28x28 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf,
             batch_group_count=64
         }",
    );
    let temporaries = text.lines().find_map(|l| l.strip_suffix(" bytes of temporaries")?.parse::<u64>().ok());
    assert!(!text.contains("convolution") && temporaries.is_some_and(|n| n < 1 << 20), "{text}");
}

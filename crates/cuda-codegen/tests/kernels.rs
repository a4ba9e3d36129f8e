//! Which kernels instructions become: how many, with which threads, and the lines of their PTX that say that memory is
//! read and written as it should be.

mod common;
mod programs;

use common::assemble;
use hloom_cuda_codegen::KernelSequence;
use hloom_cuda_kernels::KernelArgument;
use programs::{PROGRAMS, all_text, count, kernels, kernels_in_place, program};

fn named(name: &str) -> KernelSequence {
    kernels(program(name)).unwrap_or_else(|why| panic!("{name}: {why}"))
}

#[test]
fn neighbouring_elements_are_moved_sixteen_bytes_at_once() {
    let made = named("add_f32");
    assert_eq!(made.kernels.len(), 1);
    let text = &made.kernels[0].ptx;
    assert_eq!((count(text, "ld.global.v4.f32"), count(text, "st.global.v4.f32")), (2, 1), "{text}");
    assert_eq!(made.kernels[0].launch.grid[0] * made.kernels[0].launch.block[0] * 4, 1 << 16);
    // A product and a sum are rounded one after the other, and the assembler may not make one operation of them.
    assert_eq!((count(text, "mul.rn.f32"), count(text, "add.rn.f32"), count(text, "fma")), (4, 4, 0), "{text}");
}

#[test]
fn bf16_are_rounded_in_pairs() {
    let made = named("silu_bf16");
    let text = &made.kernels[0].ptx;
    assert_eq!((count(text, "ld.global.v4"), count(text, "st.global.v4")), (1, 1), "{text}");
    assert_eq!(count(text, "cvt.rn.bf16x2.f32"), 4, "{text}");
}

#[test]
fn a_softmax_reads_its_rows_once() {
    let made = named("softmax");
    assert_eq!(made.kernels.len(), 1);
    let text = &made.kernels[0].ptx;
    // 512 elements for the 32 threads of a warp, four at a time; warps need no barriers.
    assert_eq!((count(text, "ld.global"), count(text, "st.global"), count(text, "bar.sync")), (4, 4, 0), "{text}");
    assert_eq!(count(text, "shfl.sync.bfly"), 10, "{text}");
}

#[test]
fn sums_inside_of_rows_are_read_in_loops_of_their_own() {
    let made = named("largest_of_sums");
    assert_eq!(made.kernels.len(), 1);
    let text = &made.kernels[0].ptx;
    assert!(count(text, "ld.global") > 0 && count(text, "st.global") > 0, "{text}");
}

/// The assembler takes as long as the text is.
#[test]
fn a_long_function_is_written_for_few_elements_and_for_one_exchange() {
    let made = named("places_of_largest");
    assert_eq!(made.kernels.len(), 1);
    let text = &made.kernels[0].ptx;
    // Eight elements at once, and the exchange of a value and its place among the threads of a warp and among warps.
    assert_eq!((count(text, "ld.global.v4"), count(text, "shfl.sync.bfly")), (2, 4), "{text}");
}

#[test]
fn long_rows_are_shared_by_warps() {
    let made = named("softmax_long");
    assert_eq!(made.kernels.len(), 1);
    let text = &made.kernels[0].ptx;
    assert_eq!(count(text, "bar.sync"), 2, "{text}");
    let threads = i64::from(made.kernels[0].launch.block[0]);
    assert_eq!(count(text, "ld.global.v4") as i64 * 4 * threads, 16384, "{text}");
}

#[test]
fn columns_are_read_side_by_side_and_in_parts_where_they_are_few() {
    let made = named("column_sums");
    assert_eq!(made.kernels.len(), 2, "parts, and what they come to");
    let first = &made.kernels[0];
    assert!(count(&first.ptx, "ld.global.v4") > 0, "{}", first.ptx);
    assert!(first.launch.grid[0] >= 132, "{:?}", first.launch);
    assert!(matches!(first.arguments[..], [KernelArgument::Operand(0), KernelArgument::Scratch(0)]));
    let parts = made.scratch[0].bytes / (512 * 4);
    assert!(parts > 1 && made.scratch[0].bytes.is_multiple_of(512 * 4), "{:?}", made.scratch);
}

#[test]
fn a_transpose_goes_through_shared_memory() {
    let made = named("transpose");
    let text = &made.kernels[0].ptx;
    assert_eq!((made.kernels.len(), count(text, "bar.sync")), (1, 1), "{text}");
    assert!(count(text, ".shared .align 16") == 1, "{text}");
    assert_eq!(count(text, "ld.global.v4"), count(text, "st.global.v4"), "{text}");
}

#[test]
fn updates_are_added_by_atomic_operations() {
    let made = named("scatter");
    assert_eq!(made.kernels.len(), 2, "a copy, and the updates");
    assert_eq!(count(&all_text(&made), "red.global.add.v4.f32"), 1);
    let in_place = kernels_in_place(program("scatter")).expect("there are kernels");
    assert_eq!(in_place.kernels.len(), 1);
}

#[test]
fn many_small_arrays_are_one_kernel_whose_code_is_there_once() {
    let made = named("updates");
    assert_eq!(made.kernels.len(), 1);
    let text = &made.kernels[0].ptx;
    // Arrays of a multiple of four elements are alike; one is not.
    assert_eq!(count(text, "st.global"), 2, "{text}");
    assert_eq!(made.kernels[0].arguments.len(), 40 * 3);
}

#[test]
fn what_fits_no_kernel_is_cut() {
    let made = named("sum_of_all_and_more");
    assert!(made.kernels.len() >= 2 && !made.scratch.is_empty(), "{} kernels", made.kernels.len());
}

#[test]
fn a_reduction_that_many_points_share_is_made_once() {
    let made = named("row_sums_in_a_table");
    assert_eq!((made.kernels.len(), made.scratch.len()), (2, 1), "the sums, and the table");
    assert_eq!(made.scratch[0].bytes, 1024 * 4);
}

#[test]
fn quotients_and_roots_call_none_of_the_assemblers_functions() {
    let text = all_text(&named("quotients"));
    assert_eq!((count(&text, "div."), count(&text, "sqrt.rn"), count(&text, "rcp.rn")), (0, 0, 0), "{text}");
    assert_eq!((count(&text, "rcp.approx.ftz.f32"), count(&text, "rsqrt.approx.f32")), (4, 8), "{text}");
}

#[test]
fn large_indices_have_64_bits() {
    let made = named("wide");
    assert!(count(&made.kernels[0].ptx, "mad.wide") + count(&made.kernels[0].ptx, "mul.wide") > 0);
    assert!(all_text(&made).contains("%rd"));
    // Each thread has two groups of sixteen.
    assert_eq!(u64::from(made.kernels[0].launch.grid[0]) * 256 * 32, 1 << 33);
}

#[test]
fn the_assembler_takes_all_of_them() {
    let all: Vec<(String, KernelSequence)> = PROGRAMS.iter().map(|(n, _)| (n.to_string(), named(n))).collect();
    assemble(&all);
}

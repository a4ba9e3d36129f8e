//! The first k of each row in an order, and where they are: ties go to the lower index.
//!
//! A block has a row. Every thread finds the first of its own elements; the k-th of these is a bound that at most k
//! threads' elements pass, and those that pass it are sorted in shared memory.

use serde::{Deserialize, Serialize};

use crate::attention::Unsupported;
use crate::launch::{Architecture, KernelArgument, KernelSequence, Launch, PtxKernel};
use crate::order::KeyOrder;
use crate::ptx::{Class, PtxBuilder, Reg, at, def, emit};

/// What is asked for. Operand 0 is `[rows][length]`; results are values `[rows][k]` and indices `[rows][k]` as s32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TopKShape {
    /// Which elements come first.
    pub order: KeyOrder,
    /// Rows.
    pub rows: u64,
    /// Elements of a row.
    pub length: u64,
    /// How many are wanted.
    pub k: u64,
}

/// Candidates that shared memory has room for.
const CANDIDATES: u64 = 16384;
/// Larger than every element: what empty places hold.
const NOTHING: &str = "0xFFFFFFFFFFFFFFFF";

/// The kernel.
pub fn top_k(shape: &TopKShape, architecture: Architecture) -> Result<KernelSequence, Unsupported> {
    let refuse = |why: String| Err(Unsupported(why));
    if architecture.capability < 80 {
        return refuse(format!("top-k is made for sm_80 and later, not for {architecture}"));
    }
    if shape.order.is_wide() {
        return refuse(format!("top-k of {:?}", shape.order.key));
    }
    let Ok(rows) = u32::try_from(shape.rows) else { return refuse(format!("top-k of {} rows", shape.rows)) };
    if shape.length > 1 << 31 || shape.k == 0 || shape.k > shape.length || rows == 0 || rows >= 1 << 31 {
        return refuse(format!("top-{} of {} rows of {}", shape.k, shape.rows, shape.length));
    }
    // As few threads as hold the row in a few elements each; as many as bound the candidates.
    let threads = (shape.length.div_ceil(8)).max(shape.k).next_power_of_two().clamp(64, 1024);
    let each = shape.length.div_ceil(threads);
    let bound = (shape.k * each).max(threads).next_power_of_two();
    if shape.k > threads || bound > CANDIDATES {
        return refuse(format!("top-{} of {}: a sort is faster", shape.k, shape.length));
    }
    let threads = threads as u32;
    let mut k = PtxBuilder::new("top_k", architecture, threads, if threads == 1024 { 2 } else { 1 });
    write(&mut k, shape, threads, bound as u32);
    let dynamic_shared_bytes = k.shared_bytes();
    let launch = Launch { grid: [rows, 1, 1], block: [threads, 1, 1], dynamic_shared_bytes, cluster: 1 };
    let mut arguments = vec![KernelArgument::Operand(0), KernelArgument::Result(0), KernelArgument::Result(1)];
    arguments.extend_from_slice(k.sizes());
    let kernel = PtxKernel { name: "top_k".into(), ptx: k.finish(), launch, arguments };
    Ok(KernelSequence { kernels: vec![kernel], scratch: Vec::new() })
}

fn write(k: &mut PtxBuilder, shape: &TopKShape, threads: u32, bound: u32) {
    let bytes = shape.order.key.bytes();
    let counter = k.shared(16, 16);
    // The last, since its length depends on how much is asked for.
    let list = k.shared(8 * bound, 16);
    let [input, values, indices] = [0; 3].map(|_| k.buffer_parameter());
    let (length, wanted_count) = (k.size32(shape.length as i64), k.size32(shape.k as i64));
    let row_bytes = def!(k, B64, "mul.wide.u32", length, bytes);
    let shared = k.shared_base();
    let thread = def!(k, B32, "mov.u32", "%tid.x");
    let row = def!(k, B32, "mov.u32", "%ctaid.x");
    let row = def!(k, B64, "cvt.u64.u32", row);
    let source = def!(k, B64, "mad.lo.s64", row, row_bytes, input);
    let wide_thread = def!(k, B64, "cvt.u64.u32", thread);
    let mine = def!(k, B64, "mad.lo.s64", wide_thread, bytes, source);
    let own = def!(k, B32, "mad.lo.u32", thread, 8, shared);

    // The first of this thread's elements.
    let first = def!(k, B64, "mov.u64", NOTHING);
    for_each_element(k, (shape, length), (mine, thread, threads), |k, composite| {
        emit!(k, "min.u64", first, first, composite);
    });
    emit!(k, "st.shared.u64", at(own, list.into()), first);
    let is_first = def!(k, Pred, "setp.eq.u32", thread, 0);
    k.guarded(is_first, true, |k| emit!(k, "st.shared.u32", at(shared, counter.into()), 0));
    let size = def!(k, B32, "mov.u32", threads);
    sort_shared(k, (shared, list), thread, threads, size);
    let limit_place = def!(k, B32, "mad.lo.u32", wanted_count, 8, shared);
    let limit = def!(k, B64, "ld.shared.u64", at(limit_place, i64::from(list) - 8));
    emit!(k, "bar.sync", 0);

    // Those that pass the bound.
    for_each_element(k, (shape, length), (mine, thread, threads), |k, composite| {
        let passes = def!(k, Pred, "setp.le.u64", composite, limit);
        let skip = k.label();
        k.branch_unless(passes, skip);
        let place = def!(k, B32, "atom.shared.add.u32", at(shared, counter.into()), 1);
        let to = def!(k, B32, "mad.lo.u32", place, 8, shared);
        emit!(k, "st.shared.u64", at(to, list.into()), composite);
        k.place(skip);
    });
    emit!(k, "bar.sync", 0);
    // To a power of two of at least two, filled up with nothing.
    let count = def!(k, B32, "ld.shared.u32", at(shared, counter.into()));
    let size = def!(k, B32, "mov.u32", 2);
    let (grow, grown) = (k.label(), k.label());
    k.place(grow);
    let enough = def!(k, Pred, "setp.ge.u32", size, count);
    k.branch_uniform_if(enough, grown);
    emit!(k, "shl.b32", size, size, 1);
    k.branch(grow);
    k.place(grown);
    let place = def!(k, B32, "add.s32", count, thread);
    let (fill, filled) = (k.label(), k.label());
    k.place(fill);
    let past = def!(k, Pred, "setp.ge.u32", place, size);
    k.branch_if(past, filled);
    let to = def!(k, B32, "mad.lo.u32", place, 8, shared);
    emit!(k, "st.shared.u64", at(to, list.into()), NOTHING);
    emit!(k, "add.s32", place, place, threads);
    k.branch(fill);
    k.place(filled);
    sort_shared(k, (shared, list), thread, threads, size);

    // The first k: their index is in the lower half, their value where they came from.
    let end = k.label();
    let wanted = def!(k, Pred, "setp.lt.u32", thread, wanted_count);
    k.branch_unless(wanted, end);
    let composite = def!(k, B64, "ld.shared.u64", at(own, list.into()));
    let index = def!(k, B32, "cvt.u32.u64", composite);
    let wide_index = def!(k, B64, "cvt.u64.u32", index);
    let from = def!(k, B64, "mad.lo.s64", wide_index, bytes, source);
    let value = k.reg(Class::B32);
    shape.order.load(k, value, from, 0);
    let wide_count = def!(k, B64, "cvt.u64.u32", wanted_count);
    let place = def!(k, B64, "mad.lo.s64", row, wide_count, wide_thread);
    let to = def!(k, B64, "mad.lo.s64", place, bytes, values);
    emit!(k, &format!("st.global.u{}", 8 * bytes), at(to, 0), value);
    let to = def!(k, B64, "mad.lo.s64", place, 4, indices);
    emit!(k, "st.global.u32", at(to, 0), index);
    k.place(end);
}

/// Runs over this thread's elements: rank in the upper half of 64 bits, index in the lower.
fn for_each_element(
    k: &mut PtxBuilder,
    (shape, length): (&TopKShape, Reg),
    (mine, thread, threads): (Reg, Reg, u32),
    mut each: impl FnMut(&mut PtxBuilder, Reg),
) {
    const UNROLLED: u32 = 4;
    let bytes = shape.order.key.bytes();
    let index = def!(k, B32, "mov.u32", thread);
    let address = def!(k, B64, "mov.u64", mine);
    let (next, done) = (k.label(), k.label());
    k.place(next);
    let past = def!(k, Pred, "setp.ge.u32", index, length);
    k.branch_if(past, done);
    // Several loads under way at once.
    let keys = k.regs(Class::B32, UNROLLED as usize);
    let mut guards = Vec::new();
    for (i, &key) in keys.iter().enumerate() {
        let here = def!(k, B32, "add.s32", index, i as u32 * threads);
        let inside = def!(k, Pred, "setp.lt.u32", here, length);
        emit!(k, "mov.u32", key, 0);
        k.guarded(inside, true, |k| shape.order.load(k, key, address, i64::from(i as u32 * threads * bytes)));
        guards.push((here, inside));
    }
    for (&key, (here, inside)) in keys.iter().zip(guards) {
        let rank = shape.order.rank_bits(k, key);
        let high = def!(k, B64, "cvt.u64.u32", rank);
        let raised = def!(k, B64, "shl.b64", high, 32);
        let low = def!(k, B64, "cvt.u64.u32", here);
        let composite = def!(k, B64, "or.b64", raised, low);
        let composite = def!(k, B64, "selp.b64", composite, NOTHING, inside);
        each(k, composite);
    }
    emit!(k, "add.s32", index, index, UNROLLED * threads);
    emit!(k, "add.s64", address, address, UNROLLED * threads * bytes);
    k.branch(next);
    k.place(done);
}

/// Sorts `size` words of 64 bits (a power of two) in shared memory: a bitonic network. Starts and ends with a barrier.
fn sort_shared(k: &mut PtxBuilder, (shared, list): (Reg, u32), thread: Reg, threads: u32, size: Reg) {
    emit!(k, "bar.sync", 0);
    let run = def!(k, B32, "mov.u32", 2);
    let half_size = def!(k, B32, "shr.u32", size, 1);
    let (next_run, runs_done) = (k.label(), k.label());
    k.place(next_run);
    let past = def!(k, Pred, "setp.gt.u32", run, size);
    k.branch_uniform_if(past, runs_done);
    let distance = def!(k, B32, "shr.u32", run, 1);
    let next_distance = k.label();
    k.place(next_distance);
    let pair = def!(k, B32, "mov.u32", thread);
    let (next_pair, pairs_done) = (k.label(), k.label());
    k.place(next_pair);
    let past = def!(k, Pred, "setp.ge.u32", pair, half_size);
    k.branch_if(past, pairs_done);
    // The lower of the pair's places: a zero put into the pair's number at the distance's bit.
    let mask = def!(k, B32, "sub.s32", distance, 1);
    let low = def!(k, B32, "and.b32", pair, mask);
    let high = def!(k, B32, "sub.s32", pair, low);
    let place = def!(k, B32, "mad.lo.u32", high, 2, low);
    let first = def!(k, B32, "mad.lo.u32", place, 8, shared);
    let second = def!(k, B32, "mad.lo.u32", distance, 8, first);
    let a = def!(k, B64, "ld.shared.u64", at(first, list.into()));
    let b = def!(k, B64, "ld.shared.u64", at(second, list.into()));
    let smaller = def!(k, B64, "min.u64", a, b);
    let larger = def!(k, B64, "max.u64", a, b);
    let in_run = def!(k, B32, "and.b32", place, run);
    let rising = def!(k, Pred, "setp.eq.u32", in_run, 0);
    let to_first = def!(k, B64, "selp.b64", smaller, larger, rising);
    let to_second = def!(k, B64, "selp.b64", larger, smaller, rising);
    emit!(k, "st.shared.u64", at(first, list.into()), to_first);
    emit!(k, "st.shared.u64", at(second, list.into()), to_second);
    emit!(k, "add.s32", pair, pair, threads);
    k.branch(next_pair);
    k.place(pairs_done);
    emit!(k, "bar.sync", 0);
    emit!(k, "shr.u32", distance, distance, 1);
    let more = def!(k, Pred, "setp.ne.u32", distance, 0);
    k.branch_uniform_if(more, next_distance);
    emit!(k, "shl.b32", run, run, 1);
    k.branch(next_run);
    k.place(runs_done);
}

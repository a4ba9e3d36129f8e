//! The ranks of a tile's keys by one digit, and moves by rank through shared memory.
//!
//! A warp has `32 · items` adjacent keys, 32 at a time; warps follow each other. A rank is stable: equal digits keep this
//! order. Keys past the end of a row are given the last digit and stay behind all others.

use super::{DIGIT_BITS, DIGITS, ITEMS};
use crate::order::KeyOrder;
use crate::ptx::{Class, PtxBuilder, Reg, at, def, emit};

/// A block's share of a sort: its threads, and its shared memory.
pub(super) struct Ranking {
    warps: u32,
    items: u32,
    key_class: Class,
    shared: Reg,
    thread: Reg,
    lane: Reg,
    /// The place of the thread's first key in the tile.
    first_place: Reg,
    /// Counts of each warp and digit, then where each warp's keys of the digit start.
    counts: u32,
    /// Where a digit's keys start in the tile.
    starts: u32,
    /// Where a digit's keys of this tile go, less where they start in the tile.
    bases: u32,
    /// Partial sums of warps.
    sums: u32,
    /// Keys or values on their way.
    exchange: u32,
}

impl Ranking {
    pub(super) fn new(k: &mut PtxBuilder, order: KeyOrder, payload: Class, warps: u32, items: u32) -> Ranking {
        debug_assert!(items <= ITEMS);
        let key_class = if order.is_wide() { Class::B64 } else { Class::B32 };
        let widest = if key_class == Class::B64 || payload == Class::B64 { 8 } else { 4 };
        let exchange = k.shared(32 * warps * items * widest, 16);
        let counts = k.shared(4 * DIGITS * warps, 16);
        let starts = k.shared(4 * DIGITS, 16);
        let bases = k.shared(4 * DIGITS, 16);
        let sums = k.shared(4 * 32, 16);
        let shared = k.shared_base();
        let thread = def!(k, B32, "mov.u32", "%tid.x");
        let lane = def!(k, B32, "and.b32", thread, 31);
        let warp = def!(k, B32, "shr.u32", thread, 5);
        let first_place = def!(k, B32, "mad.lo.u32", warp, 32 * items, lane);
        Ranking { warps, items, key_class, shared, thread, lane, first_place, counts, starts, bases, sums, exchange }
    }

    pub(super) fn shared(&self) -> Reg {
        self.shared
    }

    pub(super) fn thread(&self) -> Reg {
        self.thread
    }

    fn threads(&self) -> u32 {
        32 * self.warps
    }

    /// The places of the thread's keys in the tile.
    pub(super) fn places(&self, k: &mut PtxBuilder) -> Vec<Reg> {
        (0..self.items).map(|i| def!(k, B32, "add.s32", self.first_place, 32 * i)).collect()
    }

    /// The bits of the tile's keys, from element `first` of the array, of which `count` exist.
    pub(super) fn load(&self, k: &mut PtxBuilder, order: KeyOrder, input: Reg, first: Reg, count: Reg) -> Vec<Reg> {
        self.load_bits(k, order.key.bytes(), input, first, count)
    }

    /// Elements of so many bytes; those that do not exist are 0.
    pub(super) fn load_bits(&self, k: &mut PtxBuilder, bytes: u32, input: Reg, first: Reg, count: Reg) -> Vec<Reg> {
        let class = if bytes == 8 { Class::B64 } else { Class::B32 };
        let wide = def!(k, B64, "cvt.u64.u32", self.first_place);
        let place = def!(k, B64, "add.s64", first, wide);
        let address = def!(k, B64, "mad.lo.s64", place, bytes, input);
        (0..self.items)
            .map(|i| {
                let value = k.reg(class);
                emit!(k, if bytes == 8 { "mov.u64" } else { "mov.u32" }, value, 0);
                let here = def!(k, B32, "add.s32", self.first_place, 32 * i);
                let exists = def!(k, Pred, "setp.lt.u32", here, count);
                let from = at(address, i64::from(32 * i * bytes));
                k.guarded(exists, true, |k| emit!(k, &format!("ld.global.u{}", 8 * bytes), value, from));
                value
            })
            .collect()
    }

    fn digit(&self, k: &mut PtxBuilder, order: KeyOrder, key: Reg, shift: Reg) -> Reg {
        let bits = order.rank_bits(k, key);
        let shifted = match self.key_class {
            Class::B64 => {
                let shifted = def!(k, B64, "shr.u64", bits, shift);
                def!(k, B32, "cvt.u32.u64", shifted)
            }
            _ => def!(k, B32, "shr.u32", bits, shift),
        };
        def!(k, B32, "and.b32", shifted, DIGITS - 1)
    }

    /// The place of each key in the tile once it is sorted by the digit at `shift`. Begins with a barrier; afterwards
    /// starts of digits are in shared memory.
    pub(super) fn rank(&self, k: &mut PtxBuilder, order: KeyOrder, keys: &[Reg], shift: Reg, count: Reg) -> Vec<Reg> {
        emit!(k, "bar.sync", 0);
        let mine = def!(k, B32, "mad.lo.u32", self.thread, 4, self.shared);
        for i in 0..(DIGITS * self.warps).div_ceil(self.threads()) {
            emit!(k, "st.shared.u32", at(mine, i64::from(self.counts + 4 * i * self.threads())), 0);
        }
        emit!(k, "bar.sync", 0);
        let warp = def!(k, B32, "shr.u32", self.thread, 5);
        let warp_counts = def!(k, B32, "mad.lo.u32", warp, 4 * DIGITS, self.shared);
        let below = def!(k, B32, "mov.u32", "%lanemask_lt");
        let mut ranked = Vec::new();
        for (i, &key) in keys.iter().enumerate() {
            let digit = self.digit(k, order, key, shift);
            let here = def!(k, B32, "add.s32", self.first_place, 32 * i as u32);
            let exists = def!(k, Pred, "setp.lt.u32", here, count);
            let digit = def!(k, B32, "selp.b32", digit, DIGITS - 1, exists);
            // The lanes with the same digit, bit by bit.
            let peers = def!(k, B32, "mov.u32", -1);
            for bit in 0..DIGIT_BITS {
                let set = def!(k, B32, "and.b32", digit, 1 << bit);
                let is_set = def!(k, Pred, "setp.ne.u32", set, 0);
                let ballot = def!(k, B32, "vote.sync.ballot.b32", is_set, -1);
                let flipped = def!(k, B32, "selp.b32", 0, -1, is_set);
                let same = def!(k, B32, "xor.b32", ballot, flipped);
                emit!(k, "and.b32", peers, peers, same);
            }
            let lower = def!(k, B32, "and.b32", peers, below);
            let position = def!(k, B32, "popc.b32", lower);
            let slot = def!(k, B32, "mad.lo.u32", digit, 4, warp_counts);
            let before = def!(k, B32, "ld.shared.u32", at(slot, self.counts.into()));
            emit!(k, "bar.warp.sync", -1);
            let leads = def!(k, Pred, "setp.eq.u32", position, 0);
            let number = def!(k, B32, "popc.b32", peers);
            let after = def!(k, B32, "add.s32", before, number);
            k.guarded(leads, true, |k| emit!(k, "st.shared.u32", at(slot, self.counts.into()), after));
            emit!(k, "bar.warp.sync", -1);
            ranked.push((slot, def!(k, B32, "add.s32", before, position)));
        }
        emit!(k, "bar.sync", 0);
        self.start_digits(k);
        // Counts now say where each warp's keys of a digit start.
        ranked
            .into_iter()
            .map(|(slot, rank)| {
                let start = def!(k, B32, "ld.shared.u32", at(slot, self.counts.into()));
                def!(k, B32, "add.s32", start, rank)
            })
            .collect()
    }

    /// Turns counts of warps and digits into starts. Ends with a barrier.
    fn start_digits(&self, k: &mut PtxBuilder) {
        let per_thread = DIGITS / self.threads();
        // The thread's digits are adjacent, so that one sum over threads is one over digits.
        let first_digit = def!(k, B32, "mul.lo.u32", self.thread, per_thread);
        let slot = def!(k, B32, "mad.lo.u32", first_digit, 4, self.shared);
        let mut totals = Vec::new();
        let sum = def!(k, B32, "mov.u32", 0);
        for digit in 0..per_thread {
            let total = def!(k, B32, "mov.u32", 0);
            for warp in 0..self.warps {
                let from = at(slot, i64::from(self.counts + 4 * (DIGITS * warp + digit)));
                let count = def!(k, B32, "ld.shared.u32", from);
                // Where the warp's keys start among those of the digit.
                emit!(k, "st.shared.u32", from, total);
                emit!(k, "add.s32", total, total, count);
            }
            emit!(k, "add.s32", sum, sum, total);
            totals.push(total);
        }
        let start = self.exclusive_sum(k, sum);
        for (digit, total) in totals.into_iter().enumerate() {
            emit!(k, "st.shared.u32", at(slot, i64::from(self.starts + 4 * digit as u32)), start);
            for warp in 0..self.warps {
                let place = at(slot, i64::from(self.counts + 4 * (DIGITS * warp + digit as u32)));
                let within = def!(k, B32, "ld.shared.u32", place);
                let moved = def!(k, B32, "add.s32", within, start);
                emit!(k, "st.shared.u32", place, moved);
            }
            emit!(k, "add.s32", start, start, total);
        }
        emit!(k, "bar.sync", 0);
    }

    /// The sum of the values of all threads before this one. Has barriers.
    pub(super) fn exclusive_sum(&self, k: &mut PtxBuilder, value: Reg) -> Reg {
        let inclusive = def!(k, B32, "mov.u32", value);
        for distance in [1, 2, 4, 8, 16] {
            let other = def!(k, B32, "shfl.sync.up.b32", inclusive, distance, 0, -1);
            let has = def!(k, Pred, "setp.ge.u32", self.lane, distance);
            k.guarded(has, true, |k| emit!(k, "add.s32", inclusive, inclusive, other));
        }
        let result = def!(k, B32, "sub.s32", inclusive, value);
        if self.warps > 1 {
            let warp = def!(k, B32, "shr.u32", self.thread, 5);
            let slot = def!(k, B32, "mad.lo.u32", warp, 4, self.shared);
            let last = def!(k, Pred, "setp.eq.u32", self.lane, 31);
            emit!(k, "bar.sync", 0);
            k.guarded(last, true, |k| emit!(k, "st.shared.u32", at(slot, self.sums.into()), inclusive));
            emit!(k, "bar.sync", 0);
            for other in 0..self.warps - 1 {
                let sum = def!(k, B32, "ld.shared.u32", at(self.shared, i64::from(self.sums + 4 * other)));
                let earlier = def!(k, Pred, "setp.gt.u32", warp, other);
                k.guarded(earlier, true, |k| emit!(k, "add.s32", result, result, sum));
            }
        }
        result
    }

    /// How many keys of the thread's digit the tile has; for blocks of as many threads as digits, after [`Self::rank`].
    pub(super) fn digit_count(&self, k: &mut PtxBuilder) -> Reg {
        debug_assert_eq!(self.threads(), DIGITS);
        let slot = def!(k, B32, "mad.lo.u32", self.thread, 4, self.shared);
        let start = def!(k, B32, "ld.shared.u32", at(slot, self.starts.into()));
        // The last digit ends with the tile.
        let end = def!(k, B32, "mov.u32", self.threads() * self.items);
        let inner = def!(k, Pred, "setp.lt.u32", self.thread, DIGITS - 1);
        k.guarded(inner, true, |k| emit!(k, "ld.shared.u32", end, at(slot, i64::from(self.starts + 4))));
        def!(k, B32, "sub.s32", end, start)
    }

    /// Tells all threads where the keys of each digit go. Has a barrier.
    pub(super) fn publish_bases(&self, k: &mut PtxBuilder, base: Reg) {
        let slot = def!(k, B32, "mad.lo.u32", self.thread, 4, self.shared);
        let start = def!(k, B32, "ld.shared.u32", at(slot, self.starts.into()));
        let moved = def!(k, B32, "sub.s32", base, start);
        emit!(k, "st.shared.u32", at(slot, self.bases.into()), moved);
        emit!(k, "bar.sync", 0);
    }

    /// Moves values to their ranks: afterwards a thread has those at its places.
    pub(super) fn exchange(&self, k: &mut PtxBuilder, values: &[Reg], ranks: &[Reg]) {
        self.to_shared(k, values, ranks);
        let (bytes, ty) = width(values);
        let from = def!(k, B32, "mad.lo.u32", self.first_place, bytes, self.shared);
        for (i, &value) in values.iter().enumerate() {
            emit!(k, &format!("ld.shared.{ty}"), value, at(from, i64::from(self.exchange + 32 * i as u32 * bytes)));
        }
    }

    fn to_shared(&self, k: &mut PtxBuilder, values: &[Reg], ranks: &[Reg]) {
        let (bytes, ty) = width(values);
        emit!(k, "bar.sync", 0);
        for (&value, &rank) in values.iter().zip(ranks) {
            let to = def!(k, B32, "mad.lo.u32", rank, bytes, self.shared);
            emit!(k, &format!("st.shared.{ty}"), at(to, self.exchange.into()), value);
        }
        emit!(k, "bar.sync", 0);
    }

    /// [`Self::exchange`] of the keys, which also gives where in the row each of the thread's new keys goes.
    pub(super) fn exchange_to_rows(
        &self,
        k: &mut PtxBuilder,
        order: KeyOrder,
        keys: &[Reg],
        ranks: &[Reg],
        shift: Reg,
    ) -> Vec<Reg> {
        self.exchange(k, keys, ranks);
        keys.iter()
            .enumerate()
            .map(|(i, &key)| {
                let digit = self.digit(k, order, key, shift);
                let slot = def!(k, B32, "mad.lo.u32", digit, 4, self.shared);
                let base = def!(k, B32, "ld.shared.u32", at(slot, self.bases.into()));
                let place = def!(k, B32, "add.s32", self.first_place, 32 * i as u32);
                def!(k, B32, "add.s32", base, place)
            })
            .collect()
    }

    /// Stores the thread's values at `targets` of the row that starts at element `row_first`.
    #[expect(clippy::too_many_arguments, reason = "an array is its address, its first element and its element size")]
    pub(super) fn scatter(
        &self,
        k: &mut PtxBuilder,
        values: &[Reg],
        bytes: u32,
        output: Reg,
        row_first: Reg,
        targets: &[Reg],
        count: Reg,
    ) {
        let row = def!(k, B64, "mad.lo.s64", row_first, bytes, output);
        for (i, (&value, &target)) in values.iter().zip(targets).enumerate() {
            let place = def!(k, B32, "add.s32", self.first_place, 32 * i as u32);
            let exists = def!(k, Pred, "setp.lt.u32", place, count);
            let wide = def!(k, B64, "cvt.u64.u32", target);
            let to = def!(k, B64, "mad.lo.s64", wide, bytes, row);
            k.guarded(exists, true, |k| emit!(k, &format!("st.global.u{}", 8 * bytes), at(to, 0), value));
        }
    }

    /// Stores the thread's values at its places, from element `first` on.
    pub(super) fn store(&self, k: &mut PtxBuilder, values: &[Reg], bytes: u32, output: Reg, first: Reg, count: Reg) {
        let places = self.places(k);
        self.scatter(k, values, bytes, output, first, &places, count);
    }
}

fn width(values: &[Reg]) -> (u32, &'static str) {
    match values.first().map(|v| v.class) {
        Some(Class::B64) => (8, "u64"),
        _ => (4, "u32"),
    }
}

/// How many keys of the thread's digit the tiles before this one hold; publishes this tile's own number. `state` is the
/// address of the tile's and digit's word, less the 16 bytes before the first.
pub(super) fn look_back(k: &mut PtxBuilder, state: Reg, in_row: Reg, total: Reg) -> Reg {
    // The upper two bits say what a number counts: this tile's keys alone, or all up to and with it.
    const PARTIAL: u32 = 1 << 30;
    const COMPLETE: u32 = 2 << 30;
    let before = def!(k, B32, "mov.u32", 0);
    let first = def!(k, Pred, "setp.eq.u32", in_row, 0);
    let flag = def!(k, B32, "selp.b32", COMPLETE, PARTIAL, first);
    let word = def!(k, B32, "or.b32", flag, total);
    emit!(k, "st.relaxed.gpu.global.u32", at(state, 16), word);
    let done = k.label();
    k.branch_if(first, done);
    let address = def!(k, B64, "mov.u64", state);
    let (previous, wait, found) = (k.label(), k.label(), k.label());
    k.place(previous);
    emit!(k, "sub.s64", address, address, 4 * DIGITS);
    k.place(wait);
    let word = def!(k, B32, "ld.relaxed.gpu.global.u32", at(address, 16));
    let empty = def!(k, Pred, "setp.eq.u32", word, 0);
    k.branch_if(empty, wait);
    let number = def!(k, B32, "and.b32", word, PARTIAL - 1);
    emit!(k, "add.s32", before, before, number);
    let complete = def!(k, Pred, "setp.ge.u32", word, COMPLETE);
    k.branch_if(complete, found);
    k.branch(previous);
    k.place(found);
    let inclusive = def!(k, B32, "add.s32", before, total);
    let word = def!(k, B32, "or.b32", inclusive, COMPLETE);
    emit!(k, "st.relaxed.gpu.global.u32", at(state, 16), word);
    k.place(done);
    before
}

/// Counts all digits of each row: parameters are the keys and the counts, `[rows][passes][digits]`; a block has a part of
/// a row of `keys_per_block` keys.
pub(super) fn write_histogram(k: &mut PtxBuilder, order: KeyOrder, length: u64, keys_per_block: u64) {
    const UNROLLED: u32 = 8;
    let passes = order.bits() / DIGIT_BITS;
    let bytes = order.key.bytes();
    let class = if order.is_wide() { Class::B64 } else { Class::B32 };
    let counts = k.shared(4 * DIGITS * passes, 16);
    let input = k.buffer_parameter();
    let histogram = k.buffer_parameter();
    let shared = k.shared_base();
    let thread = def!(k, B32, "mov.u32", "%tid.x");
    let block = def!(k, B32, "mov.u32", "%ctaid.x");
    let parts = length.div_ceil(keys_per_block);
    let row = def!(k, B32, "div.u32", block, parts);
    let part = def!(k, B32, "rem.u32", block, parts);
    let mine = def!(k, B32, "mad.lo.u32", thread, 4, shared);
    for pass in 0..passes {
        emit!(k, "st.shared.u32", at(mine, i64::from(counts + 4 * DIGITS * pass)), 0);
    }
    emit!(k, "bar.sync", 0);
    let row = def!(k, B64, "cvt.u64.u32", row);
    let place = def!(k, B32, "mad.lo.u32", part, keys_per_block, thread);
    let part_end = def!(k, B32, "mul.lo.u32", part, keys_per_block);
    emit!(k, "add.s32", part_end, part_end, keys_per_block);
    let end = def!(k, B32, "min.u32", part_end, length);
    let row_start = def!(k, B64, "mad.lo.s64", row, length * u64::from(bytes), input);
    let wide_place = def!(k, B64, "cvt.u64.u32", place);
    let address = def!(k, B64, "mad.lo.s64", wide_place, bytes, row_start);
    let (next, done) = (k.label(), k.label());
    k.place(next);
    let past = def!(k, Pred, "setp.ge.u32", place, end);
    k.branch_if(past, done);
    let mut loaded = Vec::new();
    for i in 0..UNROLLED {
        let here = def!(k, B32, "add.s32", place, 256 * i);
        let exists = def!(k, Pred, "setp.lt.u32", here, end);
        let key = k.reg(class);
        emit!(k, if order.is_wide() { "mov.u64" } else { "mov.u32" }, key, 0);
        k.guarded(exists, true, |k| order.load(k, key, address, i64::from(256 * i * bytes)));
        loaded.push((key, exists));
    }
    for (key, exists) in loaded {
        let bits = order.rank_bits(k, key);
        for pass in 0..passes {
            let shifted = match class {
                Class::B64 => {
                    let shifted = def!(k, B64, "shr.u64", bits, DIGIT_BITS * pass);
                    def!(k, B32, "cvt.u32.u64", shifted)
                }
                _ => def!(k, B32, "shr.u32", bits, DIGIT_BITS * pass),
            };
            let digit = def!(k, B32, "and.b32", shifted, DIGITS - 1);
            let slot = def!(k, B32, "mad.lo.u32", digit, 4, shared);
            let to = at(slot, i64::from(counts + 4 * DIGITS * pass));
            k.guarded(exists, true, |k| emit!(k, "red.shared.add.u32", to, 1));
        }
    }
    emit!(k, "add.s32", place, place, 256 * UNROLLED);
    emit!(k, "add.s64", address, address, 256 * UNROLLED * bytes);
    k.branch(next);
    k.place(done);
    emit!(k, "bar.sync", 0);
    let row_counts = def!(k, B64, "mad.lo.s64", row, u64::from(4 * DIGITS * passes), histogram);
    let wide_thread = def!(k, B64, "cvt.u64.u32", thread);
    let target = def!(k, B64, "mad.lo.s64", wide_thread, 4, row_counts);
    for pass in 0..passes {
        let count = def!(k, B32, "ld.shared.u32", at(mine, i64::from(counts + 4 * DIGITS * pass)));
        emit!(k, "red.global.add.u32", at(target, i64::from(4 * DIGITS * pass)), count);
    }
}

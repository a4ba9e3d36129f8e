//! The ranks of a tile's keys by one digit, and moves by rank through shared memory.
//!
//! A warp has `32 · items` adjacent keys, 32 at a time; warps follow each other. A rank is stable: equal digits keep this
//! order. Keys past the end of a row are given the last digit and stay behind all others. Tiles lie in shared memory, so
//! that loops go through them that are written once: the time to assemble a kernel is that of its text.

use super::{DIGIT_BITS, DIGITS, ITEMS, STATE_START};
use crate::order::KeyOrder;
use crate::ptx::{Address, Class, PtxBuilder, Reg, Tuple, at, def, emit};

/// Elements of a tile in shared memory, in the order of their places.
#[derive(Clone, Copy)]
pub(super) struct Area {
    /// Its address.
    pub(super) base: Reg,
    /// Bytes of an element: 2, 4 or 8.
    pub(super) width: u32,
}

impl Area {
    fn class(self) -> Class {
        if self.width == 8 { Class::B64 } else { Class::B32 }
    }

    /// The address of the element at a place.
    fn slot(self, k: &mut PtxBuilder, place: Reg) -> Reg {
        def!(k, B32, "mad.lo.u32", place, self.width, self.base)
    }

    /// The element so many places after the one in a slot.
    fn load(self, k: &mut PtxBuilder, slot: Reg, after: u32) -> Reg {
        k.define(self.class(), &format!("ld.shared.u{}", 8 * self.width), &[&at(slot, i64::from(after * self.width))])
    }

    /// The element at a place.
    fn get(self, k: &mut PtxBuilder, place: Reg) -> Reg {
        let slot = self.slot(k, place);
        self.load(k, slot, 0)
    }

    /// Sets the element at a place.
    pub(super) fn set(self, k: &mut PtxBuilder, place: Reg, value: Reg) {
        let slot = self.slot(k, place);
        self.store(k, slot, 0, value);
    }

    /// Copies the element at a place of one area to a place of another.
    pub(super) fn move_element(k: &mut PtxBuilder, [source, target]: [Area; 2], from: Reg, to: Reg) {
        let value = source.get(k, from);
        target.set(k, to, value);
    }

    fn store(self, k: &mut PtxBuilder, slot: Reg, after: u32, value: Reg) {
        emit!(k, &format!("st.shared.u{}", 8 * self.width), at(slot, i64::from(after * self.width)), value);
    }
}

/// An array in global memory, from one of its elements on.
#[derive(Clone, Copy)]
pub(super) struct Elements {
    /// Where the array begins.
    pub(super) array: Reg,
    /// Bytes of an element.
    pub(super) bytes: u32,
    /// The element.
    pub(super) first: Reg,
}

impl Elements {
    /// The address of the first.
    fn start(self, k: &mut PtxBuilder) -> Reg {
        def!(k, B64, "mad.lo.s64", self.first, self.bytes, self.array)
    }

    /// The address of the element so many after the first, which is at `start`.
    fn address(self, k: &mut PtxBuilder, start: Reg, place: Reg) -> Reg {
        def!(k, B64, "mad.wide.u32", place, self.bytes, start)
    }

    /// Whether a copy that a thread does not wait for can move an element.
    fn is_copied(self) -> bool {
        self.bytes >= 4
    }
}

/// A block's share of a sort: its threads, and its shared memory.
pub(super) struct Ranking {
    order: KeyOrder,
    warps: u32,
    items: u32,
    shared: Reg,
    thread: Reg,
    lane: Reg,
    /// The place of the thread's first key in the tile.
    first_place: Reg,
    /// Counts of each warp and digit, then where the warp's next key of the digit goes.
    counts: u32,
    /// Where a digit's keys start in the tile.
    starts: u32,
    /// Where a digit's keys of this tile go, less where they start in the tile.
    bases: u32,
    /// Partial sums of warps.
    sums: u32,
}

/// A thread's loads from global memory that are under way together.
const LOADS: u32 = 8;
impl Ranking {
    pub(super) fn new(k: &mut PtxBuilder, order: KeyOrder, warps: u32, items: u32) -> Ranking {
        debug_assert!(items <= ITEMS && items.is_power_of_two());
        let counts = k.shared(4 * DIGITS * warps, 16);
        let starts = k.shared(4 * DIGITS, 16);
        let bases = k.shared(4 * DIGITS, 16);
        let sums = k.shared(4 * 32, 16);
        let shared = k.shared_base();
        let thread = def!(k, B32, "mov.u32", "%tid.x");
        let lane = def!(k, B32, "and.b32", thread, 31);
        let warp = def!(k, B32, "shr.u32", thread, 5);
        let first_place = def!(k, B32, "mad.lo.u32", warp, 32 * items, lane);
        Ranking { order, warps, items, shared, thread, lane, first_place, counts, starts, bases, sums }
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

    /// Room for an element of so many bytes for each key of the tile.
    pub(super) fn area(&self, k: &mut PtxBuilder, bytes: u32) -> Area {
        let width = if bytes == 8 { 8 } else { 4 };
        self.area_of_width(k, width)
    }

    /// Room for the place of each key.
    pub(super) fn area_of_places(&self, k: &mut PtxBuilder) -> Area {
        self.area_of_width(k, 2)
    }

    fn area_of_width(&self, k: &mut PtxBuilder, width: u32) -> Area {
        let offset = k.shared(self.threads() * self.items * width, 16);
        Area { base: def!(k, B32, "add.s32", self.shared, offset), width }
    }

    /// Goes through the thread's places, so many at a time: `body` is given the first of them, the others follow at
    /// distances of 32, and how many there are.
    fn each(&self, k: &mut PtxBuilder, at_once: u32, body: impl FnOnce(&mut PtxBuilder, Reg, u32)) {
        let at_once = at_once.min(self.items);
        k.repeat(self.items / at_once, |k, round| {
            let place = def!(k, B32, "mad.lo.u32", round, 32 * at_once, self.first_place);
            body(k, place, at_once);
        });
    }

    /// Goes through the thread's places one by one. Many warps share a processor, so nothing is gained by having more of
    /// them under way in a thread.
    fn each_key(&self, k: &mut PtxBuilder, body: impl FnOnce(&mut PtxBuilder, Reg)) {
        self.each(k, 1, |k, place, _| body(k, place));
    }

    /// The thread's elements of the tile, at its places; those past `count` are 0. They are there after [`loaded`].
    pub(super) fn load(&self, k: &mut PtxBuilder, from: Elements, count: Reg, to: Area) {
        let start = from.start(k);
        if from.is_copied() {
            return self.each_key(k, |k, place| {
                let slot = to.slot(k, place);
                copy(k, from, start, place, count, slot);
            });
        }
        self.each(k, LOADS, |k, place, number| {
            let address = from.address(k, start, place);
            let values = self.loads(k, from.bytes, address, place, count, number);
            let slot = to.slot(k, place);
            for (i, value) in (0..).zip(values) {
                to.store(k, slot, 32 * i, value);
            }
        });
    }

    fn loads(&self, k: &mut PtxBuilder, bytes: u32, address: Reg, place: Reg, count: Reg, number: u32) -> Vec<Reg> {
        let load = |i: u32| {
            let value = def!(k, B32, "mov.u32", 0);
            let exists = self.exists(k, place, i, count);
            let from = at(address, i64::from(32 * i * bytes));
            k.guarded(exists, true, |k| emit!(k, &format!("ld.global.u{}", 8 * bytes), value, from));
            value
        };
        (0..number).map(load).collect()
    }

    /// Whether the row has a key at the `i`th place of a group.
    fn exists(&self, k: &mut PtxBuilder, place: Reg, i: u32, count: Reg) -> Reg {
        let here = def!(k, B32, "add.s32", place, 32 * i);
        def!(k, Pred, "setp.lt.u32", here, count)
    }

    /// Writes the places of keys in their row to an area, at the thread's places.
    pub(super) fn write_places(&self, k: &mut PtxBuilder, to: Area) {
        self.each_key(k, |k, place| to.set(k, place, place));
    }

    fn digit(&self, k: &mut PtxBuilder, key: Reg, shift: Reg) -> Reg {
        let bits = self.order.rank_bits(k, key);
        let shifted = match key.class {
            Class::B64 => {
                let shifted = def!(k, B64, "shr.u64", bits, shift);
                def!(k, B32, "cvt.u32.u64", shifted)
            }
            _ => def!(k, B32, "shr.u32", bits, shift),
        };
        def!(k, B32, "and.b32", shifted, DIGITS - 1)
    }

    /// The digit of the key at a place; of one that does not exist, the last.
    fn digit_at(&self, k: &mut PtxBuilder, key: Reg, shift: Reg, place: Reg, count: Reg) -> Reg {
        let digit = self.digit(k, key, shift);
        let exists = def!(k, Pred, "setp.lt.u32", place, count);
        def!(k, B32, "selp.b32", digit, DIGITS - 1, exists)
    }

    /// Where the counts of the thread's warp are, less their offset.
    fn warp_counts(&self, k: &mut PtxBuilder) -> Reg {
        let warp = def!(k, B32, "shr.u32", self.thread, 5);
        def!(k, B32, "mad.lo.u32", warp, 4 * DIGITS, self.shared)
    }

    /// Counts the digits at `shift` and finds where each warp's keys of each start in the tile. Begins and ends with a
    /// barrier; afterwards starts of digits are in shared memory.
    pub(super) fn count(&self, k: &mut PtxBuilder, keys: Area, shift: Reg, count: Reg) {
        emit!(k, "bar.sync", 0);
        let mine = def!(k, B32, "mad.lo.u32", self.thread, 16, self.shared);
        let zero = def!(k, B32, "mov.u32", 0);
        // Eight counts a thread.
        for half in 0..2 {
            let to = at(mine, i64::from(self.counts + 16 * half * self.threads()));
            emit!(k, "st.shared.v4.u32", to, Tuple(&[zero; 4]));
        }
        emit!(k, "bar.sync", 0);
        let warp_counts = self.warp_counts(k);
        self.each_key(k, |k, place| {
            let key = keys.get(k, place);
            let digit = self.digit_at(k, key, shift, place, count);
            let slot = def!(k, B32, "mad.lo.u32", digit, 4, warp_counts);
            emit!(k, "red.shared.add.u32", at(slot, self.counts.into()), 1);
        });
        emit!(k, "bar.sync", 0);
        self.start_digits(k);
    }

    /// Moves keys to their places in the tile once it is sorted by the digit at `shift`, after [`Self::count`]; `then` is
    /// told of each key which place it had and which it has. No key has arrived before the next barrier.
    pub(super) fn move_keys(
        &self,
        k: &mut PtxBuilder,
        [from, to]: [Area; 2],
        shift: Reg,
        count: Reg,
        then: impl Fn(&mut PtxBuilder, Reg, Reg),
    ) {
        let warp_counts = self.warp_counts(k);
        let below = def!(k, B32, "mov.u32", "%lanemask_lt");
        self.each_key(k, |k, place| {
            let key = from.get(k, place);
            let digit = self.digit_at(k, key, shift, place, count);
            let peers = same_digit(k, digit);
            let lower = def!(k, B32, "and.b32", peers, below);
            let position = def!(k, B32, "popc.b32", lower);
            let next = def!(k, B32, "mad.lo.u32", digit, 4, warp_counts);
            let before = def!(k, B32, "ld.shared.u32", at(next, self.counts.into()));
            emit!(k, "bar.warp.sync", -1);
            let leads = def!(k, Pred, "setp.eq.u32", position, 0);
            let number = def!(k, B32, "popc.b32", peers);
            let after = def!(k, B32, "add.s32", before, number);
            k.guarded(leads, true, |k| emit!(k, "st.shared.u32", at(next, self.counts.into()), after));
            emit!(k, "bar.warp.sync", -1);
            let rank = def!(k, B32, "add.s32", before, position);
            to.set(k, rank, key);
            then(k, place, rank);
        });
    }

    /// Loads elements and puts each where `places` says that its key is. They are there after [`loaded`].
    pub(super) fn load_to(&self, k: &mut PtxBuilder, from: Elements, count: Reg, places: Area, to: Area) {
        let start = from.start(k);
        if from.is_copied() {
            return self.each_key(k, |k, place| {
                let target = places.get(k, place);
                let slot = to.slot(k, target);
                copy(k, from, start, place, count, slot);
            });
        }
        self.each(k, LOADS, |k, place, number| {
            let address = from.address(k, start, place);
            let values = self.loads(k, from.bytes, address, place, count, number);
            let slot = places.slot(k, place);
            for (i, value) in (0..).zip(values) {
                let target = places.load(k, slot, 32 * i);
                to.set(k, target, value);
            }
        });
    }

    /// As [`Self::load_to`] of the places of keys in their row, in which the tile starts at `tile_first`.
    pub(super) fn places_to(&self, k: &mut PtxBuilder, tile_first: Reg, places: Area, to: Area) {
        self.each_key(k, |k, place| {
            let in_row = def!(k, B32, "add.s32", place, tile_first);
            let target = places.get(k, place);
            to.set(k, target, in_row);
        });
    }

    /// Turns counts of warps and digits into starts. Ends with a barrier.
    fn start_digits(&self, k: &mut PtxBuilder) {
        let per_thread = DIGITS / self.threads();
        // The thread's digits are adjacent, so that one sum over threads is one over digits.
        let slot = def!(k, B32, "mad.lo.u32", self.thread, 4 * per_thread, self.shared);
        let sum = def!(k, B32, "mov.u32", 0);
        let nothing = |_: &mut PtxBuilder, _: Reg| {};
        self.each_count(k, slot, nothing, |k, place| {
            let count = def!(k, B32, "ld.shared.u32", place);
            emit!(k, "add.s32", sum, sum, count);
        });
        let start = self.exclusive_sum(k, sum);
        let keep_start = |k: &mut PtxBuilder, digit| emit!(k, "st.shared.u32", at(digit, self.starts.into()), start);
        self.each_count(k, slot, keep_start, |k, place| {
            let count = def!(k, B32, "ld.shared.u32", place);
            emit!(k, "st.shared.u32", place, start);
            emit!(k, "add.s32", start, start, count);
        });
        emit!(k, "bar.sync", 0);
    }

    /// Goes through the thread's digits, the first of which is at `slot`: `first` is given each, `body` then where the
    /// count of each warp is.
    fn each_count(
        &self,
        k: &mut PtxBuilder,
        slot: Reg,
        first: impl Fn(&mut PtxBuilder, Reg),
        body: impl Fn(&mut PtxBuilder, Address),
    ) {
        k.repeat(DIGITS / self.threads(), |k, digit| {
            let of_digit = def!(k, B32, "mad.lo.u32", digit, 4, slot);
            first(k, of_digit);
            k.repeat(self.warps, |k, warp| {
                let of_warp = def!(k, B32, "mad.lo.u32", warp, 4 * DIGITS, of_digit);
                body(k, at(of_warp, self.counts.into()));
            });
        });
    }

    /// The sum of the values of all threads before this one. Has barriers.
    pub(super) fn exclusive_sum(&self, k: &mut PtxBuilder, value: Reg) -> Reg {
        let inclusive = def!(k, B32, "mov.u32", value);
        k.repeat(5, |k, step| {
            let distance = def!(k, B32, "shl.b32", 1, step);
            let other = def!(k, B32, "shfl.sync.up.b32", inclusive, distance, 0, -1);
            let has = def!(k, Pred, "setp.ge.u32", self.lane, distance);
            k.guarded(has, true, |k| emit!(k, "add.s32", inclusive, inclusive, other));
        });
        let result = def!(k, B32, "sub.s32", inclusive, value);
        if self.warps > 1 {
            let warp = def!(k, B32, "shr.u32", self.thread, 5);
            let slot = def!(k, B32, "mad.lo.u32", warp, 4, self.shared);
            let last = def!(k, Pred, "setp.eq.u32", self.lane, 31);
            emit!(k, "bar.sync", 0);
            k.guarded(last, true, |k| emit!(k, "st.shared.u32", at(slot, self.sums.into()), inclusive));
            emit!(k, "bar.sync", 0);
            k.repeat(self.warps - 1, |k, other| {
                let slot = def!(k, B32, "mad.lo.u32", other, 4, self.shared);
                let sum = def!(k, B32, "ld.shared.u32", at(slot, self.sums.into()));
                let earlier = def!(k, Pred, "setp.gt.u32", warp, other);
                k.guarded(earlier, true, |k| emit!(k, "add.s32", result, result, sum));
            });
        }
        result
    }

    /// How many keys of the thread's digit the tile has; for blocks of as many threads as digits, once keys are ranked.
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

    /// Stores the elements of a sorted tile where the digits of its keys say: of each area to the row that starts at the
    /// element beside it.
    pub(super) fn scatter(&self, k: &mut PtxBuilder, keys: Area, areas: &[(Area, Elements)], shift: Reg, count: Reg) {
        let starts: Vec<Reg> = areas.iter().map(|(_, row)| row.start(k)).collect();
        self.each_key(k, |k, place| {
            let key = keys.get(k, place);
            let digit = self.digit(k, key, shift);
            let slot = def!(k, B32, "mad.lo.u32", digit, 4, self.shared);
            let base = def!(k, B32, "ld.shared.u32", at(slot, self.bases.into()));
            let exists = def!(k, Pred, "setp.lt.u32", place, count);
            let target = def!(k, B32, "add.s32", base, place);
            for (&(area, row), &start) in areas.iter().zip(&starts) {
                let value = if area.base == keys.base { key } else { area.get(k, place) };
                let to = row.address(k, start, target);
                k.guarded(exists, true, |k| emit!(k, &format!("st.global.u{}", 8 * row.bytes), at(to, 0), value));
            }
        });
    }

    /// Stores a tile as it lies.
    pub(super) fn store(&self, k: &mut PtxBuilder, from: Area, to: Elements, count: Reg) {
        let start = to.start(k);
        self.each_key(k, |k, place| {
            let value = from.get(k, place);
            let address = to.address(k, start, place);
            let exists = def!(k, Pred, "setp.lt.u32", place, count);
            k.guarded(exists, true, |k| emit!(k, &format!("st.global.u{}", 8 * to.bytes), at(address, 0), value));
        });
    }
}

/// Starts the copy of the element at a place to a slot of shared memory; of one past `count`, sets the slot to 0.
fn copy(k: &mut PtxBuilder, from: Elements, start: Reg, place: Reg, count: Reg, slot: Reg) {
    let address = from.address(k, start, place);
    let exists = def!(k, Pred, "setp.lt.u32", place, count);
    let bytes = def!(k, B32, "selp.b32", from.bytes, 0, exists);
    emit!(k, "cp.async.ca.shared.global", at(slot, 0), at(address, 0), from.bytes, bytes);
}

/// Waits for what the thread has begun to load.
pub(super) fn loaded(k: &mut PtxBuilder) {
    emit!(k, "cp.async.wait_all");
}

/// The lanes that have the same digit as this one, bit by bit.
fn same_digit(k: &mut PtxBuilder, digit: Reg) -> Reg {
    let peers = def!(k, B32, "mov.u32", -1);
    k.repeat(2, |k, half| {
        let four = def!(k, B32, "shl.b32", half, 2);
        let bits = def!(k, B32, "shr.u32", digit, four);
        for bit in 0..DIGIT_BITS / 2 {
            let set = def!(k, B32, "and.b32", bits, 1 << bit);
            let is_set = def!(k, Pred, "setp.ne.u32", set, 0);
            let ballot = def!(k, B32, "vote.sync.ballot.b32", is_set, -1);
            k.guarded(is_set, false, |k| emit!(k, "not.b32", ballot, ballot));
            emit!(k, "and.b32", peers, peers, ballot);
        }
    });
    peers
}

/// What the upper two bits of a word say that its number counts: a tile's keys alone, or all up to and with it.
const PARTIAL: u32 = 1 << 30;
const COMPLETE: u32 = 2 << 30;

/// Tells the tiles after this one how many keys of the thread's digit it has. `state` is the address of the tile's and
/// digit's word, less the bytes before the first.
pub(super) fn publish(k: &mut PtxBuilder, state: Reg, in_row: Reg, total: Reg) {
    let first = def!(k, Pred, "setp.eq.u32", in_row, 0);
    let flag = def!(k, B32, "selp.b32", COMPLETE, PARTIAL, first);
    let word = def!(k, B32, "or.b32", flag, total);
    emit!(k, "st.relaxed.gpu.global.u32", at(state, STATE_START.into()), word);
}

/// How many keys of the thread's digit the tiles before this one hold, after [`publish`], of which the tiles after then
/// hear.
pub(super) fn look_back(k: &mut PtxBuilder, state: Reg, in_row: Reg, total: Reg) -> Reg {
    let before = def!(k, B32, "mov.u32", 0);
    let first = def!(k, Pred, "setp.eq.u32", in_row, 0);
    let done = k.label();
    k.branch_if(first, done);
    let address = def!(k, B64, "mov.u64", state);
    let (previous, wait, found) = (k.label(), k.label(), k.label());
    k.place(previous);
    emit!(k, "sub.s64", address, address, 4 * DIGITS);
    k.place(wait);
    let word = def!(k, B32, "ld.relaxed.gpu.global.u32", at(address, STATE_START.into()));
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
    emit!(k, "st.relaxed.gpu.global.u32", at(state, STATE_START.into()), word);
    k.place(done);
    before
}

/// The row of a part by its number, and its number in the row, where each part has `keys` keys of a row.
pub(super) fn row_and_part(k: &mut PtxBuilder, number: Reg, length: Reg, keys: u32, single: bool) -> (Reg, Reg) {
    if single {
        return (def!(k, B32, "mov.u32", 0), number);
    }
    let rounded = def!(k, B32, "add.s32", length, keys - 1);
    let parts = def!(k, B32, "div.u32", rounded, keys);
    let row = def!(k, B32, "div.u32", number, parts);
    let first = def!(k, B32, "mul.lo.u32", row, parts);
    (row, def!(k, B32, "sub.s32", number, first))
}

/// Counts all digits of each row: parameters are the keys, the counts, `[rows][passes][digits]`, and the length of rows; a
/// block has a part of a row of `keys_per_block` keys.
pub(super) fn write_histogram(k: &mut PtxBuilder, order: KeyOrder, keys_per_block: u32, single: bool) {
    const UNROLLED: u32 = 4;
    let passes = order.bits() / DIGIT_BITS;
    let bytes = order.key.bytes();
    let class = if order.is_wide() { Class::B64 } else { Class::B32 };
    let counts = k.shared(4 * DIGITS * passes, 16);
    let input = k.buffer_parameter();
    let histogram = k.buffer_parameter();
    let length = k.number_parameter();
    let shared = k.shared_base();
    let thread = def!(k, B32, "mov.u32", "%tid.x");
    let block = def!(k, B32, "mov.u32", "%ctaid.x");
    let (row, part) = row_and_part(k, block, length, keys_per_block, single);
    let mine = def!(k, B32, "mad.lo.u32", thread, 4, shared);
    k.repeat(passes, |k, pass| {
        let slot = def!(k, B32, "mad.lo.u32", pass, 4 * DIGITS, mine);
        emit!(k, "st.shared.u32", at(slot, counts.into()), 0);
    });
    emit!(k, "bar.sync", 0);
    let row = def!(k, B64, "cvt.u64.u32", row);
    let place = def!(k, B32, "mad.lo.u32", part, keys_per_block, thread);
    let part_end = def!(k, B32, "mul.lo.u32", part, keys_per_block);
    emit!(k, "add.s32", part_end, part_end, keys_per_block);
    let end = def!(k, B32, "min.u32", part_end, length);
    let wide_length = def!(k, B64, "mul.wide.u32", length, bytes);
    let row_start = def!(k, B64, "mad.lo.s64", row, wide_length, input);
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
    let loaded: Vec<_> = loaded.into_iter().map(|(key, exists)| (order.rank_bits(k, key), exists)).collect();
    k.repeat(passes, |k, pass| {
        let shift = def!(k, B32, "shl.b32", pass, DIGIT_BITS.ilog2());
        let of_pass = def!(k, B32, "mad.lo.u32", pass, 4 * DIGITS, shared);
        for &(bits, exists) in &loaded {
            let shifted = match class {
                Class::B64 => {
                    let shifted = def!(k, B64, "shr.u64", bits, shift);
                    def!(k, B32, "cvt.u32.u64", shifted)
                }
                _ => def!(k, B32, "shr.u32", bits, shift),
            };
            let digit = def!(k, B32, "and.b32", shifted, DIGITS - 1);
            let slot = def!(k, B32, "mad.lo.u32", digit, 4, of_pass);
            k.guarded(exists, true, |k| emit!(k, "red.shared.add.u32", at(slot, counts.into()), 1));
        }
    });
    emit!(k, "add.s32", place, place, 256 * UNROLLED);
    emit!(k, "add.s64", address, address, 256 * UNROLLED * bytes);
    k.branch(next);
    k.place(done);
    emit!(k, "bar.sync", 0);
    let row_counts = def!(k, B64, "mad.lo.s64", row, u64::from(4 * DIGITS * passes), histogram);
    let wide_thread = def!(k, B64, "cvt.u64.u32", thread);
    let target = def!(k, B64, "mad.lo.s64", wide_thread, 4, row_counts);
    k.repeat(passes, |k, pass| {
        let slot = def!(k, B32, "mad.lo.u32", pass, 4 * DIGITS, mine);
        let count = def!(k, B32, "ld.shared.u32", at(slot, counts.into()));
        let to = def!(k, B64, "mad.wide.u32", pass, 4 * DIGITS, target);
        emit!(k, "red.global.add.u32", at(to, 0), count);
    });
}

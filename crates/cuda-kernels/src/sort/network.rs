//! Sorts of short rows: a warp for each, in registers, by a bitonic network.
//!
//! A word is the rank of a key and, below it, the key's place in its row: so that words differ, the sort is stable, and
//! what belongs to a place is fetched at the end. All of a row is read before any of it is written, so that results may lie
//! where the operands are. A lane holds neighbouring words: half of the network is between words of one lane.

use super::{SortShape, SortValue};
use crate::launch::{Architecture, KernelArgument, Launch, PtxKernel};
use crate::order::KeyOrder;
use crate::ptx::{Class, PtxBuilder, Reg, at, def, emit};

/// The most keys of such a row.
const MAX_LENGTH: u64 = 128;
/// Warps of a block.
const WARPS: u32 = 8;
/// Places are below this.
const PLACE_BITS: u32 = 16;

/// Whether rows are sorted like that.
pub(super) fn is_short(shape: &SortShape) -> bool {
    shape.length <= MAX_LENGTH && shape.order.bits() <= 32
}

/// The kernel, for rows that are short.
pub(super) fn sort_short_rows(shape: &SortShape, architecture: Architecture) -> PtxKernel {
    let mut k = PtxBuilder::new("sort_short_rows", architecture, 32 * WARPS, 4);
    let (input, output) = (k.buffer_parameter(), k.buffer_parameter());
    let mut arguments = vec![KernelArgument::Operand(0), KernelArgument::Result(0)];
    let mut values = Vec::new();
    let mut arrays = 0;
    for (n, value) in (1..).zip(&shape.values) {
        let from = match value {
            SortValue::Array { bytes } => {
                arrays += 1;
                arguments.push(KernelArgument::Operand(arrays));
                Some((k.buffer_parameter(), *bytes))
            }
            SortValue::Index => None,
        };
        arguments.push(KernelArgument::Result(n));
        values.push((from, k.buffer_parameter()));
    }
    let (count, rows) = (k.number_parameter(), k.number_parameter());
    arguments.extend([KernelArgument::U32(shape.length as u32), KernelArgument::U32(shape.rows as u32)]);
    let k_mut = &mut k;
    let items = (shape.length as u32).div_ceil(32).next_power_of_two();
    let network = Network::new(k_mut, shape.order, items);
    let (row, end) = (network.row, k_mut.label());
    let is_none = def!(k_mut, Pred, "setp.ge.u32", row, rows);
    k_mut.branch_uniform_if(is_none, end);
    let wide_count = def!(k_mut, B64, "cvt.u64.u32", count);
    let wide_row = def!(k_mut, B64, "cvt.u64.u32", row);
    let first = def!(k_mut, B64, "mul.lo.s64", wide_row, wide_count);
    let key_bytes = shape.order.key.bytes();
    let start = |k: &mut PtxBuilder, array: Reg, bytes: u32| def!(k, B64, "mad.lo.s64", first, bytes, array);
    let source = start(k_mut, input, key_bytes);
    let words = network.load(k_mut, source, count);
    network.sort(k_mut, &words);
    let places = network.places(k_mut, &words);
    let keys = network.fetch(k_mut, source, key_bytes, &places);
    let mut fetched = Vec::new();
    for &(from, to) in &values {
        let (bytes, taken) = match from {
            Some((array, bytes)) => {
                let source = start(k_mut, array, bytes);
                (bytes, network.fetch(k_mut, source, bytes, &places))
            }
            None => (4, places.iter().map(|&(place, _)| place).collect()),
        };
        fetched.push((to, bytes, taken));
    }
    emit!(k_mut, "bar.warp.sync", -1);
    for (to, bytes, taken) in [(output, key_bytes, keys)].into_iter().chain(fetched) {
        let target = start(k_mut, to, bytes);
        network.store(k_mut, target, bytes, &taken, count);
    }
    k_mut.place(end);
    let launch = Launch {
        grid: [(shape.rows as u32).div_ceil(WARPS), 1, 1],
        block: [32 * WARPS, 1, 1],
        dynamic_shared_bytes: 0,
        cluster: 1,
    };
    PtxKernel { name: "sort_short_rows".into(), ptx: k.finish(), launch, arguments }
}

/// The words of a warp: `items` neighbours in each lane.
struct Network {
    order: KeyOrder,
    items: u32,
    lane: Reg,
    row: Reg,
}

impl Network {
    fn new(k: &mut PtxBuilder, order: KeyOrder, items: u32) -> Network {
        let thread = def!(k, B32, "mov.u32", "%tid.x");
        let lane = def!(k, B32, "and.b32", thread, 31);
        let warp = def!(k, B32, "shr.u32", thread, 5);
        let block = def!(k, B32, "mov.u32", "%ctaid.x");
        let row = def!(k, B32, "mad.lo.u32", block, WARPS, warp);
        Network { order, items, lane, row }
    }

    /// Whether rank and place fit 32 bits.
    fn is_narrow(&self) -> bool {
        self.order.bits() + PLACE_BITS <= 32
    }

    fn class(&self) -> Class {
        if self.is_narrow() { Class::B32 } else { Class::B64 }
    }

    fn width(&self) -> u32 {
        if self.is_narrow() { 32 } else { 64 }
    }

    /// A row's words, in any order; past its end words that come last.
    fn load(&self, k: &mut PtxBuilder, source: Reg, count: Reg) -> Vec<Reg> {
        let mut loaded = Vec::new();
        for item in 0..self.items {
            let place = def!(k, B32, "add.s32", self.lane, 32 * item);
            let inside = def!(k, Pred, "setp.lt.u32", place, count);
            let key = def!(k, B32, "mov.u32", 0);
            let from = def!(k, B64, "mad.wide.u32", place, self.order.key.bytes(), source);
            k.guarded(inside, true, |k| self.order.load(k, key, from, 0));
            loaded.push((place, inside, key));
        }
        let width = self.width();
        let mut words = Vec::new();
        for (place, inside, key) in loaded {
            let rank = self.order.rank_bits(k, key);
            let (rank, place) = match self.is_narrow() {
                true => (rank, place),
                false => (def!(k, B64, "cvt.u64.u32", rank), def!(k, B64, "cvt.u64.u32", place)),
            };
            let shift = if self.is_narrow() { PLACE_BITS } else { 32 };
            let high = k.define(self.class(), &format!("shl.b{width}"), &[&rank, &shift]);
            let word = k.define(self.class(), &format!("or.b{width}"), &[&high, &place]);
            let last = if self.is_narrow() { "0xFFFFFFFF" } else { "0xFFFFFFFFFFFFFFFF" };
            words.push(k.define(self.class(), &format!("selp.b{width}"), &[&word, &last, &inside]));
        }
        words
    }

    /// Sorts the words of the warp: afterwards word `n` of the row is in lane `n / items`.
    fn sort(&self, k: &mut PtxBuilder, words: &[Reg]) {
        let total = 32 * self.items;
        let mut run = 2;
        while run <= total {
            let mut distance = run / 2;
            while distance > 0 {
                match distance < self.items {
                    true => self.exchange_in_lane(k, words, run, distance),
                    false => self.exchange_lanes(k, words, run / self.items, distance / self.items),
                }
                distance /= 2;
            }
            run *= 2;
        }
    }

    /// Words of one lane, by pairs.
    fn exchange_in_lane(&self, k: &mut PtxBuilder, words: &[Reg], run: u32, distance: u32) {
        let width = self.width();
        // Whether runs rise is a matter of the lane, but for runs within one.
        let rising = (run >= self.items).then(|| {
            let bit = def!(k, B32, "and.b32", self.lane, run / self.items);
            def!(k, Pred, "setp.eq.u32", bit, 0)
        });
        for low in (0..self.items).filter(|n| n & distance == 0) {
            let (a, b) = (words[low as usize], words[(low | distance) as usize]);
            let swaps = match rising {
                None if low & run == 0 => def!(k, Pred, &format!("setp.gt.u{width}"), a, b),
                None => def!(k, Pred, &format!("setp.lt.u{width}"), a, b),
                Some(rising) => {
                    let is_less = def!(k, Pred, &format!("setp.lt.u{width}"), a, b);
                    def!(k, Pred, "xor.pred", is_less, rising)
                }
            };
            let select = format!("selp.b{width}");
            let first = k.define(self.class(), &select, &[&b, &a, &swaps]);
            emit!(k, &select, b, a, b, swaps);
            emit!(k, &format!("mov.b{width}"), a, first);
        }
    }

    /// Words of lanes that far apart.
    fn exchange_lanes(&self, k: &mut PtxBuilder, words: &[Reg], run: u32, distance: u32) {
        let width = self.width();
        // The smaller word stays in the lower lane where the run rises, in the upper one where it falls.
        let bits = def!(k, B32, "and.b32", self.lane, (run & 31) | distance);
        let none = def!(k, Pred, "setp.eq.u32", bits, 0);
        let both = def!(k, Pred, "setp.eq.u32", bits, run | distance);
        let keeps_smaller = def!(k, Pred, "or.pred", none, both);
        for &word in words {
            let other = self.shuffled(k, word, distance);
            let is_less = def!(k, Pred, &format!("setp.lt.u{width}"), word, other);
            let takes = def!(k, Pred, "xor.pred", is_less, keeps_smaller);
            emit!(k, &format!("selp.b{width}"), word, other, word, takes);
        }
    }

    fn shuffled(&self, k: &mut PtxBuilder, word: Reg, distance: u32) -> Reg {
        let shuffle = |k: &mut PtxBuilder, part: Reg| def!(k, B32, "shfl.sync.bfly.b32", part, distance, 31, -1);
        if self.is_narrow() {
            return shuffle(k, word);
        }
        let low = def!(k, B32, "cvt.u32.u64", word);
        let shifted = def!(k, B64, "shr.u64", word, 32);
        let high = def!(k, B32, "cvt.u32.u64", shifted);
        let [low, high] = [low, high].map(|part| shuffle(k, part));
        let high = def!(k, B64, "cvt.u64.u32", high);
        let high = def!(k, B64, "shl.b64", high, 32);
        let low = def!(k, B64, "cvt.u64.u32", low);
        def!(k, B64, "or.b64", high, low)
    }

    /// Where each word came from, and whether that is inside of the row.
    fn places(&self, k: &mut PtxBuilder, words: &[Reg]) -> Vec<(Reg, Reg)> {
        let mut places = Vec::new();
        for &word in words {
            let place = match self.is_narrow() {
                true => def!(k, B32, "and.b32", word, (1u32 << PLACE_BITS) - 1),
                false => def!(k, B32, "cvt.u32.u64", word),
            };
            let inside = def!(k, Pred, "setp.lt.u32", place, 32 * self.items);
            places.push((place, inside));
        }
        places
    }

    /// The elements at places.
    fn fetch(&self, k: &mut PtxBuilder, source: Reg, bytes: u32, places: &[(Reg, Reg)]) -> Vec<Reg> {
        let class = if bytes == 8 { Class::B64 } else { Class::B32 };
        let load = format!("ld.global.u{}", 8 * bytes);
        let mut fetched = Vec::new();
        for &(place, inside) in places {
            let from = def!(k, B64, "mad.wide.u32", place, bytes, source);
            let value = k.reg(class);
            k.guarded(inside, true, |k| emit!(k, &load, value, at(from, 0)));
            fetched.push(value);
        }
        fetched
    }

    /// Writes the elements of the warp in order.
    fn store(&self, k: &mut PtxBuilder, target: Reg, bytes: u32, values: &[Reg], count: Reg) {
        let first = def!(k, B32, "mul.lo.u32", self.lane, self.items);
        let to = def!(k, B64, "mad.wide.u32", first, bytes, target);
        for (n, &value) in (0..).zip(values) {
            let place = def!(k, B32, "add.s32", first, n);
            let inside = def!(k, Pred, "setp.lt.u32", place, count);
            let store = format!("st.global.u{}", 8 * bytes);
            k.guarded(inside, true, |k| emit!(k, &store, at(to, i64::from(n * bytes)), value));
        }
    }
}

//! Stable radix sort of rows: keys alone, or keys with values that follow them.
//!
//! Short rows are sorted by a warp each, in registers. For the others there are digits of 8 bits, the lowest first. Rows
//! that one block can hold are sorted in shared memory in one kernel; longer ones
//! in a pass over memory for each digit, in which a block ranks the keys of a tile, finds out by looking back how many
//! keys of each digit the tiles before it hold, and writes each digit's keys together.

use serde::{Deserialize, Serialize};

use crate::attention::Unsupported;
use crate::launch::{Architecture, KernelArgument, KernelSequence, Launch, PtxKernel, Scratch};
use crate::order::KeyOrder;
use crate::ptx::{Class, PtxBuilder, at, def, emit};

mod network;
mod rank;

use rank::{Area, Elements, Ranking};

/// What goes along with a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum SortValue {
    /// The element of an operand, of so many bytes: 1, 2, 4 or 8.
    Array {
        /// Bytes of an element.
        bytes: u32,
    },
    /// The key's place in its row, as a number of 32 bits.
    Index,
}

/// What is sorted. Operand 0 is the keys, `[rows][length]`; the operands after are the values that are arrays, in order.
/// Result 0 is the keys, the results after are the values.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SortShape {
    /// The order of keys.
    pub order: KeyOrder,
    /// Rows.
    pub rows: u64,
    /// Keys of a row.
    pub length: u64,
    /// What follows the keys.
    pub values: Vec<SortValue>,
}

const DIGITS: u32 = 256;
const DIGIT_BITS: u32 = 8;
/// Keys of a thread at once.
const ITEMS: u32 = 16;
/// Keys of a row that one block sorts.
const BLOCK_KEYS: u64 = 4096;
/// Keys that a block of the histogram counts.
const HISTOGRAM_KEYS: u32 = 16384;
/// Bytes of a pass's state before the counts of tiles.
const STATE_START: u32 = 16;

/// The value that moves with a key through all passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Payload {
    None,
    Array { bytes: u32 },
    Index,
}

impl Payload {
    /// Bytes of a value in memory.
    fn bytes(self) -> u32 {
        match self {
            Payload::None => 0,
            Payload::Array { bytes } => bytes,
            Payload::Index => 4,
        }
    }
}

/// The kernels that sort.
pub fn radix_sort(shape: &SortShape, architecture: Architecture) -> Result<KernelSequence, Unsupported> {
    let refuse = |why: String| Err(Unsupported(why));
    if architecture.capability < 80 {
        return refuse(format!("sorts are made for sm_80 and later, not for {architecture}"));
    }
    let elements = shape.rows.checked_mul(shape.length);
    if elements.is_none_or(|n| n == 0 || n > 1 << 40) || shape.length >= 1 << 30 || shape.rows >= 1 << 31 {
        return refuse(format!("a sort of {} rows of {}", shape.rows, shape.length));
    }
    for value in &shape.values {
        if let SortValue::Array { bytes } = value
            && !matches!(bytes, 1 | 2 | 4 | 8)
        {
            return refuse(format!("a sort of values of {bytes} bytes"));
        }
    }
    if network::is_short(shape) {
        let kernels = vec![network::sort_short_rows(shape, architecture)];
        return Ok(KernelSequence { kernels, scratch: Vec::new() });
    }
    // One value travels with its key; of several, the place does, and they are gathered at the end.
    let payload = match shape.values[..] {
        [] => Payload::None,
        [SortValue::Array { bytes }] => Payload::Array { bytes },
        _ => Payload::Index,
    };
    let mut sort =
        Sort { shape, architecture, payload, kernels: Vec::new(), scratch: Vec::new(), payload_target: None };
    sort.place_payload();
    if shape.length <= BLOCK_KEYS {
        sort.block_rows();
    } else {
        sort.passes()?;
    }
    sort.gather()?;
    Ok(KernelSequence { kernels: sort.kernels, scratch: sort.scratch })
}

/// Whether the results may lie where the operands are: all kernels that read an operand are done before one writes there.
pub fn sorts_in_place(shape: &SortShape) -> bool {
    // Several values are gathered at the end; of several passes the first of an even number writes beside the result.
    let even_passes = (shape.order.bits() / DIGIT_BITS).is_multiple_of(2);
    network::is_short(shape) || shape.values.len() <= 1 && (shape.length <= BLOCK_KEYS || even_passes)
}

struct Sort<'a> {
    shape: &'a SortShape,
    architecture: Architecture,
    payload: Payload,
    kernels: Vec<PtxKernel>,
    scratch: Vec<Scratch>,
    /// Where the payload ends up.
    payload_target: Option<KernelArgument>,
}

impl Sort<'_> {
    fn elements(&self) -> u64 {
        self.shape.rows * self.shape.length
    }

    fn new_scratch(&mut self, bytes: u64, zeroed: bool) -> KernelArgument {
        self.scratch.push(Scratch { bytes, zeroed });
        KernelArgument::Scratch(self.scratch.len() as u32 - 1)
    }

    /// The payload ends up in the result of the only value or of an index, or in scratch memory for the gather.
    fn place_payload(&mut self) {
        self.payload_target = match self.payload {
            Payload::None => None,
            Payload::Array { .. } => Some(KernelArgument::Result(1)),
            Payload::Index => match self.shape.values.iter().position(|v| *v == SortValue::Index) {
                Some(i) => Some(KernelArgument::Result(1 + i as u32)),
                None => Some(self.new_scratch(4 * self.elements(), false)),
            },
        };
    }

    fn push(&mut self, name: &str, k: PtxBuilder, grid: u32, threads: u32, arguments: Vec<KernelArgument>) {
        let launch =
            Launch { grid: [grid, 1, 1], block: [threads, 1, 1], dynamic_shared_bytes: k.shared_bytes(), cluster: 1 };
        self.kernels.push(PtxKernel { name: name.into(), ptx: k.finish(), launch, arguments });
    }

    /// Each row by one block, all digits.
    fn block_rows(&mut self) {
        let length = self.shape.length as u32;
        // Each warp has counters for all digits, whatever it counts: from 256 keys on fewer warps with more keys are faster.
        let least = if length > 128 { 4 } else { 1 };
        let items = length.div_ceil(32 * 8).clamp(least, ITEMS).next_power_of_two();
        let warps = length.div_ceil(32 * items).next_power_of_two().clamp(1, 8);
        let threads = 32 * warps;
        let mut k = PtxBuilder::new("sort_rows", self.architecture, threads, 1);
        let input = k.buffer_parameter();
        let output = k.buffer_parameter();
        let payload_input = matches!(self.payload, Payload::Array { .. }).then(|| k.buffer_parameter());
        let payload_output = (self.payload != Payload::None).then(|| k.buffer_parameter());
        let count = k.number_parameter();
        let k = &mut k;
        let order = self.shape.order;
        let ranking = Ranking::new(k, order, warps, items);
        let keys = [0; 2].map(|_| ranking.area(k, order.key.bytes()));
        let payload = payload_output.map(|_| [0; 2].map(|_| ranking.area(k, self.payload.bytes())));
        let row = def!(k, B32, "mov.u32", "%ctaid.x");
        let row = def!(k, B64, "cvt.u64.u32", row);
        let wide_count = def!(k, B64, "cvt.u64.u32", count);
        let first = def!(k, B64, "mul.lo.s64", row, wide_count);
        ranking.load(k, Elements { array: input, bytes: order.key.bytes(), first }, count, keys[0]);
        match (payload, payload_input) {
            (Some([area, _]), Some(array)) => {
                ranking.load(k, Elements { array, bytes: self.payload.bytes(), first }, count, area);
            }
            (Some([area, _]), None) => ranking.write_places(k, area),
            (None, _) => {}
        }
        rank::loaded(k);
        let shift = def!(k, B32, "mov.u32", 0);
        let next = k.label();
        k.place(next);
        ranking.count(k, keys[0], shift, count);
        ranking.move_keys(k, keys, shift, count, |k, from, to| {
            if let Some(areas) = payload {
                Area::move_element(k, areas, from, to);
            }
        });
        emit!(k, "bar.sync", 0);
        // What was the target is what the next digit starts from.
        for [from, to] in [Some(keys), payload].into_iter().flatten() {
            let other = def!(k, B32, "mov.u32", from.base);
            emit!(k, "mov.u32", from.base, to.base);
            emit!(k, "mov.u32", to.base, other);
        }
        emit!(k, "add.s32", shift, shift, DIGIT_BITS);
        let more = def!(k, Pred, "setp.lt.u32", shift, order.bits());
        k.branch_uniform_if(more, next);
        ranking.store(k, keys[0], Elements { array: output, bytes: order.key.bytes(), first }, count);
        if let (Some([area, _]), Some(array)) = (payload, payload_output) {
            ranking.store(k, area, Elements { array, bytes: self.payload.bytes(), first }, count);
        }
        let mut arguments = vec![KernelArgument::Operand(0), KernelArgument::Result(0)];
        arguments.extend(payload_input.map(|_| KernelArgument::Operand(1)));
        arguments.extend(self.payload_target);
        arguments.push(KernelArgument::U32(length));
        let rows = self.shape.rows as u32;
        let finished = std::mem::replace(k, PtxBuilder::new("", self.architecture, 32, 1));
        self.push("sort_rows", finished, rows, threads, arguments);
    }

    /// A histogram of all digits of each row, then a pass for each digit.
    fn passes(&mut self) -> Result<(), Unsupported> {
        let order = self.shape.order;
        let passes = order.bits() / DIGIT_BITS;
        let rows = self.shape.rows;
        let tile = u64::from(32 * 8 * ITEMS);
        let tiles = self.shape.length.div_ceil(tile);
        let counted = self.shape.length.div_ceil(HISTOGRAM_KEYS.into());
        let too_many = |n: u64| u32::try_from(n).map_err(|_| Unsupported(format!("a sort in {n} blocks")));
        let histogram_blocks = too_many(counted * rows)?;
        let blocks = too_many(tiles * rows)?;
        let histogram = self.new_scratch(4 * u64::from(DIGITS * passes) * rows, true);
        // A counter of tiles, then a count for each tile and digit; passes take turns with two of them.
        let state_bytes = 4 * u64::from(DIGITS) * tiles * rows + u64::from(STATE_START);
        let state = self.new_scratch(2 * state_bytes, true);
        let key_bytes = u64::from(order.key.bytes());
        let spare_keys = (passes > 1).then(|| self.new_scratch(key_bytes * self.elements(), false));
        let payload_bytes = u64::from(self.payload.bytes());
        let has_payload = self.payload != Payload::None;
        let spare_payload =
            (has_payload && passes > 1).then(|| self.new_scratch(payload_bytes * self.elements(), false));
        let payload_target = self.payload_target;

        let mut k = PtxBuilder::new("sort_histogram", self.architecture, 256, 4);
        rank::write_histogram(&mut k, order, HISTOGRAM_KEYS, rows == 1);
        let length = KernelArgument::U32(self.shape.length as u32);
        self.push("sort_histogram", k, histogram_blocks, 256, vec![KernelArgument::Operand(0), histogram, length]);

        for pass in 0..passes {
            // The last pass writes the result; those before alternate.
            let to_result = (passes - 1 - pass).is_multiple_of(2);
            let (keys_from, payload_from) = match (pass, to_result) {
                (0, _) => (Some(KernelArgument::Operand(0)), Some(KernelArgument::Operand(1))),
                (_, true) => (spare_keys, spare_payload),
                (_, false) => (Some(KernelArgument::Result(0)), payload_target),
            };
            let (keys_to, payload_to) =
                if to_result { (Some(KernelArgument::Result(0)), payload_target) } else { (spare_keys, spare_payload) };
            let mut k = PtxBuilder::new("sort_pass", self.architecture, 256, 4);
            self.write_pass(&mut k, passes);
            let mut arguments: Vec<KernelArgument> = [keys_from, keys_to].into_iter().flatten().collect();
            arguments.extend([histogram, state, KernelArgument::U32(pass), length]);
            if has_payload {
                // The first pass makes places up, and does not read where they would be.
                let unread = pass == 0 && self.payload == Payload::Index;
                arguments.extend(if unread { payload_to } else { payload_from });
                arguments.extend(payload_to);
            }
            self.push("sort_pass", k, blocks, 256, arguments);
        }
        Ok(())
    }

    /// The kernel of a pass. Which one it is, and how long rows are, are parameters: the text is the same for all of them,
    /// and is assembled once.
    fn write_pass(&self, k: &mut PtxBuilder, passes: u32) {
        let order = self.shape.order;
        let input = k.buffer_parameter();
        let output = k.buffer_parameter();
        let histogram = k.buffer_parameter();
        let all_state = k.buffer_parameter();
        let pass = k.number_parameter();
        let length = k.number_parameter();
        let payload_input = (self.payload != Payload::None).then(|| k.buffer_parameter());
        let payload_output = (self.payload != Payload::None).then(|| k.buffer_parameter());
        let ranking = Ranking::new(k, order, 8, ITEMS);
        let key_bytes = order.key.bytes();
        // Keys as they come, whose place the values take later; and sorted.
        let unsorted = ranking.area(k, key_bytes.max(self.payload.bytes()));
        let sorted = ranking.area(k, key_bytes);
        let places = payload_input.map(|_| ranking.area_of_places(k));
        let ticket_at = k.shared(4, 4);
        let wide_pass = def!(k, B64, "cvt.u64.u32", pass);
        let tile_keys = 32 * 8 * ITEMS;
        let blocks = def!(k, B32, "mov.u32", "%nctaid.x");
        let blocks = def!(k, B64, "cvt.u64.u32", blocks);
        let state_bytes = def!(k, B64, "mul.lo.s64", blocks, u64::from(4 * DIGITS));
        emit!(k, "add.s64", state_bytes, state_bytes, STATE_START);
        let turn = def!(k, B64, "and.b64", wide_pass, 1);
        let state = def!(k, B64, "mad.lo.s64", turn, state_bytes, all_state);
        let other_turn = def!(k, B64, "xor.b64", turn, 1);
        let next_state = def!(k, B64, "mad.lo.s64", other_turn, state_bytes, all_state);
        let shared = ranking.shared();
        let thread = ranking.thread();
        // Tiles are numbered as blocks start, so that those before this one are running or done.
        let is_first = def!(k, Pred, "setp.eq.u32", thread, 0);
        let ticketed = k.label();
        k.branch_unless(is_first, ticketed);
        let ticket = def!(k, B32, "atom.global.add.u32", at(state, 0), 1);
        emit!(k, "st.global.u32", at(next_state, 0), 0);
        emit!(k, "st.shared.u32", at(shared, ticket_at.into()), ticket);
        k.place(ticketed);
        emit!(k, "bar.sync", 0);
        let number = def!(k, B32, "ld.shared.u32", at(shared, ticket_at.into()));
        let (row, in_row) = rank::row_and_part(k, number, length, tile_keys, self.shape.rows == 1);
        let wide_row = def!(k, B64, "cvt.u64.u32", row);
        let wide_length = def!(k, B64, "cvt.u64.u32", length);
        let row_first = def!(k, B64, "mul.lo.s64", wide_row, wide_length);
        let tile_first = def!(k, B32, "mul.lo.u32", in_row, tile_keys);
        let wide_tile = def!(k, B64, "cvt.u64.u32", tile_first);
        let first = def!(k, B64, "add.s64", row_first, wide_tile);
        let left = def!(k, B32, "sub.s32", length, tile_first);
        let count = def!(k, B32, "min.u32", left, tile_keys);

        let keys = Area { width: sorted.width, ..unsorted };
        ranking.load(k, Elements { array: input, bytes: key_bytes, first }, count, keys);
        rank::loaded(k);
        let shift = def!(k, B32, "mul.lo.u32", pass, DIGIT_BITS);
        ranking.count(k, keys, shift, count);
        // Thread d looks after digit d: how many keys of it come before this tile's in the row.
        let tile_place = def!(k, B64, "mul.wide.u32", number, 4 * DIGITS);
        let place = def!(k, B64, "mul.wide.u32", thread, 4);
        emit!(k, "add.s64", place, place, tile_place);
        let digit_state = def!(k, B64, "add.s64", state, place);
        // The pass after this one starts with zeros where the one before has counted.
        let next_digit_state = def!(k, B64, "add.s64", next_state, place);
        emit!(k, "st.global.u32", at(next_digit_state, STATE_START.into()), 0);
        let total = ranking.digit_count(k);
        rank::publish(k, digit_state, in_row, total);
        ranking.move_keys(k, [keys, sorted], shift, count, |k, from, to| {
            if let Some(places) = places {
                places.set(k, from, to);
            }
        });
        let row = |array, bytes| Elements { array, bytes, first: row_first };
        let mut moved = vec![(sorted, row(output, key_bytes))];
        if let (Some(array), Some(target), Some(places)) = (payload_input, payload_output, places) {
            let bytes = self.payload.bytes();
            let values = Area { width: if bytes == 8 { 8 } else { 4 }, ..unsorted };
            // The keys as they came have been read by all: their room is the values', which come while others are waited
            // for.
            emit!(k, "bar.sync", 0);
            let loaded = k.label();
            if self.payload == Payload::Index {
                let stored = k.label();
                let is_later = def!(k, Pred, "setp.ne.u32", pass, 0);
                k.branch_uniform_if(is_later, stored);
                ranking.places_to(k, tile_first, places, values);
                k.branch(loaded);
                k.place(stored);
            }
            ranking.load_to(k, Elements { array, bytes, first }, count, places, values);
            k.place(loaded);
            moved.push((values, row(target, bytes)));
        }
        let before = rank::look_back(k, digit_state, in_row, total);
        let bases = {
            let row_histogram = def!(k, B64, "mad.lo.s64", wide_row, u64::from(4 * DIGITS * passes), histogram);
            let address = def!(k, B64, "mad.wide.u32", thread, 4, row_histogram);
            let address = def!(k, B64, "mad.wide.u32", pass, 4 * DIGITS, address);
            let in_row = def!(k, B32, "ld.global.u32", at(address, 0));
            let smaller = ranking.exclusive_sum(k, in_row);
            def!(k, B32, "add.s32", smaller, before)
        };
        rank::loaded(k);
        ranking.publish_bases(k, bases);
        ranking.scatter(k, sorted, &moved, shift, count);
    }

    /// The values that did not travel, fetched by the index that did.
    fn gather(&mut self) -> Result<(), Unsupported> {
        let (Payload::Index, Some(index)) = (self.payload, self.payload_target) else { return Ok(()) };
        let mut operand = 1;
        for (i, value) in self.shape.values.clone().into_iter().enumerate() {
            match value {
                SortValue::Array { bytes } => {
                    let mut k = PtxBuilder::new("sort_gather", self.architecture, 256, 4);
                    write_gather(&mut k, self.shape, bytes);
                    let blocks = u32::try_from(self.elements().div_ceil(1024));
                    let blocks = blocks.map_err(|_| Unsupported("a sort of too many values".into()))?;
                    let mut arguments =
                        vec![KernelArgument::Operand(operand), index, KernelArgument::Result(1 + i as u32)];
                    arguments.extend_from_slice(k.sizes());
                    self.push("sort_gather", k, blocks, 256, arguments);
                    operand += 1;
                }
                SortValue::Index => {
                    let target = KernelArgument::Result(1 + i as u32);
                    if target != index {
                        return Err(Unsupported("a sort that gives places twice".into()));
                    }
                }
            }
        }
        Ok(())
    }
}

/// `out[row][i] = in[row][index[row][i]]`, four elements a thread.
fn write_gather(k: &mut PtxBuilder, shape: &SortShape, bytes: u32) {
    let [input, index, output] = [0; 3].map(|_| k.buffer_parameter());
    let (elements, length) = (k.size64(shape.rows * shape.length), k.size64(shape.length));
    let class = if bytes == 8 { Class::B64 } else { Class::B32 };
    let thread = def!(k, B32, "mov.u32", "%tid.x");
    let block = def!(k, B32, "mov.u32", "%ctaid.x");
    let wide_block = def!(k, B64, "cvt.u64.u32", block);
    let wide_thread = def!(k, B64, "cvt.u64.u32", thread);
    let first = def!(k, B64, "mad.lo.s64", wide_block, 1024, wide_thread);
    for i in 0..4 {
        let place = def!(k, B64, "add.s64", first, 256 * i);
        let skip = k.label();
        let past = def!(k, Pred, "setp.ge.u64", place, elements);
        k.branch_if(past, skip);
        let from = def!(k, B64, "mad.lo.s64", place, 4, index);
        let position = def!(k, B32, "ld.global.u32", at(from, 0));
        let row = def!(k, B64, "div.u64", place, length);
        let row_first = def!(k, B64, "mul.lo.s64", row, length);
        let position = def!(k, B64, "cvt.u64.u32", position);
        let source = def!(k, B64, "add.s64", row_first, position);
        let source = def!(k, B64, "mad.lo.s64", source, bytes, input);
        let value = k.reg(class);
        emit!(k, &format!("ld.global.u{}", 8 * bytes), value, at(source, 0));
        let target = def!(k, B64, "mad.lo.s64", place, bytes, output);
        emit!(k, &format!("st.global.u{}", 8 * bytes), at(target, 0), value);
        k.place(skip);
    }
}
